// Kernels that load tiles by TMA, and read the tiles with wgmma (a product) or ldmatrix. For a
// product, verification/on_device.py inserts the macros WGMMA(d, a, b, accumulate), ACCUMULATOR and
// REGISTERS above this text. The macros are made for one wgmma instruction, with its shape, element
// type and transpositions.

#include <tma_dlpack.h>

using namespace tma_dlpack;

// A tile to load. In `coords`, the innermost coordinate is first.
struct Tile
{
  int coords[3];
  unsigned rank;
  unsigned smem_offset;
  unsigned tx_bytes;
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

__device__ inline void load_tile(const Map& map, const Tile& tile, Barrier* full)
{
  void* const to = shared_memory + tile.smem_offset;
  const int* const c = tile.coords;
  if (tile.rank == 2) load(to, map, full, c[0], c[1]);
  else load(to, map, full, c[0], c[1], c[2]);
}

// Load both tiles. Return false if shared memory does not begin at a multiple of 1024 bytes. The
// hardware swizzles addresses. The simulator, which makes the expected results, swizzles offsets in
// shared memory. Both make the same tile only if shared memory begins at a multiple of 1024 bytes.
__device__ inline bool loaded(const Map& a, const Map& b, const Tile& tile_a, const Tile& tile_b,
                              unsigned barrier_offset)
{
  if (shared_address(shared_memory) % 1024 != 0) return false;
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + barrier_offset);
  if (threadIdx.x == 0) init(full);
  __syncthreads();
  if (threadIdx.x == 0)
  {
    arrive_expect_tx(full, tile_a.tx_bytes + tile_b.tx_bytes);
    load_tile(a, tile_a, full);
    if (tile_b.tx_bytes != 0) load_tile(b, tile_b, full);
  }
  wait(full, 0);
  return true;
}

#ifdef WGMMA

// Compute out[64 * blocks][N] = A B. A has one descriptor per K step for every 64 rows. B has one
// descriptor per K step. The addresses in the descriptors are relative to `shared_memory`.
extern "C" __global__ void __launch_bounds__(128)
  multiply(const __grid_constant__ Map a, const __grid_constant__ Map b,
           const __grid_constant__ Tile tile_a, const __grid_constant__ Tile tile_b,
           unsigned barrier_offset, unsigned blocks, unsigned k_steps,
           const unsigned long long* a_descriptors, const unsigned long long* b_descriptors,
           ACCUMULATOR* out, unsigned* done)
{
  if (!loaded(a, b, tile_a, tile_b, barrier_offset)) return;
  // The lowest bits of a descriptor are the address in units of 16 bytes (PTX ISA, wgmma). So add
  // the address of `shared_memory` in these units.
  const unsigned long long base = shared_address(shared_memory) >> 4;
  for (unsigned block = 0; block < blocks; ++block)
  {
    ACCUMULATOR d[REGISTERS];
    for (unsigned i = 0; i < REGISTERS; ++i) d[i] = 0;
    for (unsigned step = 0; step < k_steps; ++step)
    {
      wgmma_fence();
      WGMMA(d, a_descriptors[block * k_steps + step] + base, b_descriptors[step] + base, step != 0);
      wgmma_commit();
      wgmma_wait();
    }
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (unsigned i = 0; i < REGISTERS; ++i)  // PTX ISA (wgmma) has the layout of D in registers.
    {
      const unsigned row = block * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8;
      const unsigned column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      out[row * (REGISTERS * 2) + column] = d[i];
    }
  }
  if (threadIdx.x == 0) *done = 1;
}

#endif

// Execute one ldmatrix, which reads `num` 8 x 8 matrices. tma_dlpack.h has no such function.
template <unsigned num, bool transpose>
__device__ inline void ldmatrix(unsigned (&d)[4], unsigned address)
{
#define LDMATRIX(FORM, REGISTERS_READ, ADDRESS, ...) \
  asm volatile("ldmatrix.sync.aligned.m8n8." FORM ".shared.b16 " REGISTERS_READ ", [" ADDRESS "];" \
               : __VA_ARGS__ : "r"(address) : "memory")
  if constexpr (num == 1)
  {
    if constexpr (transpose) LDMATRIX("x1.trans", "{%0}", "%1", "=r"(d[0]));
    else LDMATRIX("x1", "{%0}", "%1", "=r"(d[0]));
  }
  else if constexpr (num == 2)
  {
    if constexpr (transpose) LDMATRIX("x2.trans", "{%0, %1}", "%2", "=r"(d[0]), "=r"(d[1]));
    else LDMATRIX("x2", "{%0, %1}", "%2", "=r"(d[0]), "=r"(d[1]));
  }
  else
  {
    if constexpr (transpose)
      LDMATRIX("x4.trans", "{%0, %1, %2, %3}", "%4", "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]));
    else LDMATRIX("x4", "{%0, %1, %2, %3}", "%4", "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]));
  }
#undef LDMATRIX
}

// Execute one ldmatrix, and write the registers of each lane to out[lane][4].
extern "C" __global__ void __launch_bounds__(32)
  read_matrices(const __grid_constant__ Map map, const __grid_constant__ Tile tile,
                unsigned barrier_offset, unsigned num, unsigned transpose, const unsigned* addresses,
                unsigned* out, unsigned* done)
{
  Tile none{};
  if (!loaded(map, map, tile, none, barrier_offset)) return;
  const unsigned address = addresses[threadIdx.x] + shared_address(shared_memory);
  unsigned d[4] = {};
  switch (num * 2 + transpose)
  {
    case 2: ldmatrix<1, false>(d, address); break;
    case 3: ldmatrix<1, true>(d, address); break;
    case 4: ldmatrix<2, false>(d, address); break;
    case 5: ldmatrix<2, true>(d, address); break;
    case 8: ldmatrix<4, false>(d, address); break;
    case 9: ldmatrix<4, true>(d, address); break;
  }
  for (unsigned i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
  if (threadIdx.x == 0) *done = 1;
}
