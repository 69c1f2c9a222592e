// gemm_ladder.cu: the steps to the kernel of hopper_gemm.cu, each with one idea more than the one before.
//
//   1 threads      every thread copies 16 bytes at a time into shared memory; then wgmma
//   2 TMA          one thread loads the tile, in boxes of 16 bytes: the layout of step 1
//   3 swizzle      boxes of 128 bytes with the swizzle bytes128
//   4 ring         four stages: the loads of the next three run while one is multiplied
//   5 specialized  a warp of its own loads, and waits for nobody's products
//   6 multicast    two blocks share each tile of B
//   7 persistent   a block per multiprocessor; stores overlap with the next tile, in an order for L2
//
// python tests/bench ladder measures them; 06_hopper_gemm.ipynb has the figures.

#include "hopper_gemm.cu"

namespace ladder
{

using namespace gemm;

using ByThreads = Choice<Swizzle::none, 128, 1, 1, 2, 1>;
using Tma = ByThreads;
using Swizzled = Choice<Swizzle::bytes128, 128, 1, 1, 2, 1>;
using InARing = Choice<Swizzle::bytes128, 128, 4, 1, 2, 1>;
using Multicast = Choice<Swizzle::bytes128, 128, 4, 2, 2, 1>;

constexpr int TOGETHER = 128 * CONSUMERS;  // threads that load and multiply

// Step 1: copy `rows` rows of 64 columns as TMA would, in columns of 16 bytes; zeros outside.
template <int rows>
__device__ void copy_rows(unsigned char* tile, const uint4* matrix, int height, int width, int row, int k0)
{
  for (int i = threadIdx.x; i < rows * 8; i += TOGETHER)
  {
    const int r = i / 8, chunk = i % 8;
    const bool inside = row + r < height && k0 + chunk * 8 < width;
    const uint4 zeros = {0, 0, 0, 0};
    reinterpret_cast<uint4*>(tile)[chunk * rows + r] =
      inside ? matrix[(static_cast<long long>(row + r) * width + k0) / 8 + chunk] : zeros;
  }
}

// Steps 1 to 4: the same threads load and multiply; a block for each tile of C.
template <class Choose, class LoadStage>
__device__ void together(const Map& c, int m, int n, int k, LoadStage load_stage)
{
  unsigned char* c_boxes;
  Ring<Choose> ring = start_ring<Choose>(c_boxes), loading = ring;
  const int2 place = Tiles<Choose>(m, n).place(blockIdx.x);
  const int warpgroup = threadIdx.x / 128;
  float d[128] = {};

  for (int k0 = 0; k0 < Choose::stages * TILE_K && k0 < k; k0 += TILE_K, loading.at.advance())
    load_stage(loading, place, k0);
  for (int k0 = 0; k0 < k; k0 += TILE_K, ring.at.advance())
  {
    multiply_stage(d, ring, warpgroup, k0);
    wgmma_wait();
    __syncthreads();  // all have read the stage
    const int next = k0 + Choose::stages * TILE_K;
    if (next < k)
    {
      load_stage(loading, place, next);
      loading.at.advance();
    }
  }
  store_c<Choose>(d, c, c_boxes + warpgroup * Choose::c_boxes * C_BOX_BYTES, warpgroup, place);
  if (threadIdx.x % 128 == 0) store_wait_read();
}

__device__ inline void by_threads(const uint4* a, const uint4* b, const Map& c, int m, int n, int k)
{
  together<ByThreads>(c, m, n, k,
                      [&](const Ring<ByThreads>& ring, int2 place, int k0)
                      {
                        copy_rows<TILE_M>(ring.a(), a, m, k, place.x, k0);
                        copy_rows<TILE_N>(ring.b(), b, n, k, place.y, k0);
                        fence_async();
                        __syncthreads();
                        if (threadIdx.x == 0) arrive(ring.full());
                      });
}

template <class Choose>
__device__ void by_tma(const Map& a, const Map& b, const Map& c, int m, int n, int k)
{
  together<Choose>(c, m, n, k,
                   [&](const Ring<Choose>& ring, int2 place, int k0)
                   {
                     if (threadIdx.x >= 32 || !elect_one()) return;
                     arrive_expect_tx(ring.full(), STAGE_BYTES);
                     load_rows<TILE_M, TILE_M, false>(ring, ring.a(), a, k0, place.x, 0);
                     load_rows<TILE_N, TILE_N, false>(ring, ring.b(), b, k0, place.y, 0);
                   });
}

}  // namespace ladder

extern "C" __global__ void __launch_bounds__(ladder::TOGETHER, 1)
  ladder_threads(const uint4* a, const uint4* b, const __grid_constant__ gemm::Map c, int m, int n, int k)
{
  ladder::by_threads(a, b, c, m, n, k);
}

#define TOGETHER_BY_TMA(NAME, CHOICE)                                                            \
  extern "C" __global__ void __launch_bounds__(ladder::TOGETHER, 1)                              \
    NAME(const __grid_constant__ gemm::Map a, const __grid_constant__ gemm::Map b,               \
         const __grid_constant__ gemm::Map c, int m, int n, int k)                               \
  {                                                                                              \
    ladder::by_tma<ladder::CHOICE>(a, b, c, m, n, k);                                            \
  }

TOGETHER_BY_TMA(ladder_tma, Tma)
TOGETHER_BY_TMA(ladder_swizzle, Swizzled)
TOGETHER_BY_TMA(ladder_ring, InARing)

// Steps 5 and 6 are the kernel of hopper_gemm.cu with a block for each tile; step 7 is hopper_gemm.
namespace gemm
{
using ladder::InARing;
using ladder::Multicast;
}  // namespace gemm

GEMM(ladder_specialized, InARing)
GEMM(ladder_multicast, Multicast)
