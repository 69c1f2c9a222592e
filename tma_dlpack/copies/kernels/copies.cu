// The two kernels of the CUDA backend. In load_tiles, each block loads one tile and returns its
// shared memory. In store_tile, one block stores or reduces one tile.

#include <tma_dlpack.h>

using namespace tma_dlpack;

// Coordinates are innermost first. im2col offsets are in the order W, H, D.
struct Coords { int c[5]; };
struct Offsets { unsigned short o[3]; };

// copies/cuda.py has the same numbers.
enum Status : unsigned { DONE = 0, TIMED_OUT = 1, MISALIGNED = 2 };

constexpr unsigned long long TWO_SECONDS = 2'000'000'000;
// Values that fill shared memory before the two passes of a load; the values differ in every bit.
constexpr unsigned char FIRST_PATTERN = 0x5A, SECOND_PATTERN = 0xA5;

extern __shared__ __align__(1024) unsigned char shared_memory[];

// `form` is the rank for a tile copy (1..5), and the rank + 5 for an im2col copy (8..10).
__device__ inline void load_form(unsigned form, void* smem, const Map& map, Barrier* full, Coords at,
                                 Offsets tap)
{
  const int* const c = at.c;
  const unsigned short* const o = tap.o;
  switch (form)
  {
    case 1: load(smem, map, full, c[0]); break;
    case 2: load(smem, map, full, c[0], c[1]); break;
    case 3: load(smem, map, full, c[0], c[1], c[2]); break;
    case 4: load(smem, map, full, c[0], c[1], c[2], c[3]); break;
    case 5: load(smem, map, full, c[0], c[1], c[2], c[3], c[4]); break;
    case 8: load_im2col(smem, map, full, c[0], c[1], c[2], OffsetsW{o[0]}); break;
    case 9: load_im2col(smem, map, full, c[0], c[1], c[2], c[3], OffsetsWH{o[0], o[1]}); break;
    case 10:
      load_im2col(smem, map, full, c[0], c[1], c[2], c[3], c[4], OffsetsWHD{o[0], o[1], o[2]});
      break;
  }
}

__device__ inline void store_form(unsigned form, const Map& map, const void* smem, Coords at)
{
  const int* const c = at.c;
  switch (form)
  {
    case 1: store(map, smem, c[0]); break;
    case 2: store(map, smem, c[0], c[1]); break;
    case 3: store(map, smem, c[0], c[1], c[2]); break;
    case 4: store(map, smem, c[0], c[1], c[2], c[3]); break;
    case 5: store(map, smem, c[0], c[1], c[2], c[3], c[4]); break;
    case 8: store_im2col(map, smem, c[0], c[1], c[2]); break;
    case 9: store_im2col(map, smem, c[0], c[1], c[2], c[3]); break;
    case 10: store_im2col(map, smem, c[0], c[1], c[2], c[3], c[4]); break;
  }
}

template <Reduction op>
__device__ inline void reduce_form(unsigned form, const Map& map, const void* smem, Coords at)
{
  const int* const c = at.c;
  switch (form)
  {
    case 1: reduce<op>(map, smem, c[0]); break;
    case 2: reduce<op>(map, smem, c[0], c[1]); break;
    case 3: reduce<op>(map, smem, c[0], c[1], c[2]); break;
    case 4: reduce<op>(map, smem, c[0], c[1], c[2], c[3]); break;
    case 5: reduce<op>(map, smem, c[0], c[1], c[2], c[3], c[4]); break;
    case 8: reduce_im2col<op>(map, smem, c[0], c[1], c[2]); break;
    case 9: reduce_im2col<op>(map, smem, c[0], c[1], c[2], c[3]); break;
    case 10: reduce_im2col<op>(map, smem, c[0], c[1], c[2], c[3], c[4]); break;
  }
}

// If `op` is 0, store the tile. If `op` is 1 to 8, reduce the tile with the operation of this
// number.
__device__ inline void store_or_reduce(unsigned op, unsigned form, const Map& map, const void* smem,
                                       Coords at)
{
  switch (op)
  {
    case 0: store_form(form, map, smem, at); break;
    case 1: reduce_form<Reduction::add>(form, map, smem, at); break;
    case 2: reduce_form<Reduction::min>(form, map, smem, at); break;
    case 3: reduce_form<Reduction::max>(form, map, smem, at); break;
    case 4: reduce_form<Reduction::inc>(form, map, smem, at); break;
    case 5: reduce_form<Reduction::dec>(form, map, smem, at); break;
    case 6: reduce_form<Reduction::bit_and>(form, map, smem, at); break;
    case 7: reduce_form<Reduction::bit_or>(form, map, smem, at); break;
    case 8: reduce_form<Reduction::bit_xor>(form, map, smem, at); break;
  }
}

__device__ inline void fill(unsigned bytes, unsigned char pattern)
{
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared_memory[i] = pattern;
  // The threads wrote the pattern through the generic proxy; the copy writes through the async
  // proxy, so a fence must be between them.
  fence_async();
  __syncthreads();
}

// Load the tile twice. Before each load, fill shared memory with a different pattern. If a byte
// still has the pattern after both loads, the copy did not write this byte.
//
// The arrays smem_out and written are [tiles][bytes]. `bytes` is the size of the tile plus the size
// of the memory before the tile. If the copy does not write a byte, the byte is 0 in both arrays.
//
// The array status is [tiles + 1]. A block whose tile times out sets the last word, and blocks that
// start later return at once.
extern "C" __global__ void load_tiles(const __grid_constant__ Map map, const Coords* coords,
                                      Offsets offsets, unsigned form, unsigned smem_offset,
                                      unsigned bytes, unsigned tx_bytes, unsigned char* smem_out,
                                      unsigned char* written, unsigned* status)
{
  const size_t tile = blockIdx.x;
  volatile unsigned* const stop = status + gridDim.x;
  if (__syncthreads_or(*stop)) return;
  smem_out += tile * bytes;
  written += tile * bytes;
  // A swizzle depends on the absolute address of the tile, which is shared_memory + smem_offset. So
  // shared_memory must be a multiple of 1024.
  if (shared_address(shared_memory) % 1024 != 0)
  {
    status[tile] = MISALIGNED;
    return;
  }
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + bytes);
  if (threadIdx.x == 0) init(full);

  for (unsigned pass = 0; pass < 2; ++pass)
  {
    fill(bytes, pass == 0 ? FIRST_PATTERN : SECOND_PATTERN);
    if (threadIdx.x == 0)
    {
      arrive_expect_tx(full, tx_bytes);
      load_form(form, shared_memory + smem_offset, map, full, coords[tile], offsets);
    }
    // `pass` is also the parity of the barrier's phase: 0 in the first pass, 1 in the second.
    if (!wait_at_most(full, pass, TWO_SECONDS))
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

// Copy `data` to shared memory at smem_offset, then store or reduce the tile there.
extern "C" __global__ void store_tile(const __grid_constant__ Map map, Coords at, unsigned op,
                                      unsigned form, unsigned smem_offset,
                                      const unsigned char* data, unsigned bytes, unsigned* status)
{
  if (shared_address(shared_memory) % 1024 != 0)
  {
    *status = MISALIGNED;
    return;
  }
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared_memory[smem_offset + i] = data[i];
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    store_or_reduce(op, form, map, shared_memory + smem_offset, at);
    store_commit();
    store_wait();
    *status = DONE;
  }
}
