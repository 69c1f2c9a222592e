// One tile per CTA: a load whose shared memory comes back to be looked at, and a store.

#include "tma.cuh"

constexpr unsigned char FIRST_PATTERN = 0x5A, SECOND_PATTERN = 0xA5;

__device__ inline void fill(unsigned bytes, unsigned char pattern)
{
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared_memory[i] = pattern;
  fence_proxy_async();
  __syncthreads();
}

// Load the tile twice, over two patterns: a byte that shows its pattern both times was not written.
//
// smem_out, written: [tiles][bytes], bytes = what precedes the tile, and the tile. Bytes that the
// copy leaves alone come out as 0 in both. status: [tiles + 1]; the last word is set once a tile has
// timed out, and tiles that see it are not run.
extern "C" __global__ void load_tiles(const __grid_constant__ TensorMap map, const Coords* coords,
                                      Offsets offsets, unsigned form, unsigned smem_offset,
                                      unsigned bytes, unsigned tx_bytes, unsigned char* smem_out,
                                      unsigned char* written, unsigned* status)
{
  const size_t tile = blockIdx.x;
  volatile unsigned* const stop = status + gridDim.x;
  if (__syncthreads_or(*stop)) return;
  smem_out += tile * bytes;
  written += tile * bytes;
  const unsigned base = shared_address(shared_memory);
  const unsigned barrier = base + bytes;
  if (base % 1024 != 0)  // a swizzle looks at absolute addresses
  {
    status[tile] = MISALIGNED;
    return;
  }
  if (threadIdx.x == 0) barrier_init(barrier, 1);

  for (unsigned pass = 0; pass < 2; ++pass)
  {
    fill(bytes, pass == 0 ? FIRST_PATTERN : SECOND_PATTERN);
    if (threadIdx.x == 0)
    {
      barrier_expect(barrier, tx_bytes);
      tma_load(form, base + smem_offset, &map, barrier, coords[tile], offsets);
    }
    if (!barrier_wait(barrier, pass))
    {
      status[tile] = TIMED_OUT;
      *stop = 1;
      return;
    }
    for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
    {
      const unsigned char byte = shared_memory[i];
      if (pass == 0)
      {
        smem_out[i] = byte;
        continue;
      }
      const bool untouched = smem_out[i] == FIRST_PATTERN && byte == SECOND_PATTERN;
      written[i] = !untouched;
      smem_out[i] = untouched ? 0 : byte;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) status[tile] = DONE;
}

// Put `data` at smem_offset and store or reduce it.
extern "C" __global__ void store_tile(const __grid_constant__ TensorMap map, Coords at, unsigned op,
                                      unsigned form, unsigned smem_offset,
                                      const unsigned char* data, unsigned bytes, unsigned* status)
{
  const unsigned base = shared_address(shared_memory);
  if (base % 1024 != 0)
  {
    *status = MISALIGNED;
    return;
  }
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared_memory[smem_offset + i] = data[i];
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    tma_store(op, form, base + smem_offset, &map, at);
    commit_and_wait_all();
    *status = DONE;
  }
}
