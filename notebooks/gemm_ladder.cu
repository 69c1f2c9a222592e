// gemm_ladder.cu: seven kernels for C = A x B^T of bf16. Each kernel adds one idea to the previous kernel.
//
//   1 threads      every thread copies 16 bytes at a time with cp.async into one stage; then all threads multiply
//   2 TMA          one thread loads the tile in boxes of 16 bytes, which wgmma reads without a swizzle
//   3 swizzle      boxes are 128 bytes wide, with the swizzle bytes128: one copy replaces eight
//   4 ring         four stages: three stages are loaded while one is multiplied
//   5 specialized  a separate warpgroup loads, and never waits for a product
//   6 multicast    two blocks share each tile of B
//   7 persistent   each multiprocessor runs one block; a store overlaps with the next tile's loads
//
// A kernel differs from the previous kernel in at most 20 lines, which 06_hopper_gemm.ipynb shows. The
// tile sizes (TILE_M, TILE_N, TILE_K), the function store_c and the type Tiles are from hopper_gemm.cu.
// python tests/bench ladder measures the kernels.

#include "hopper_gemm.cu"

namespace ladder
{

using namespace gemm;

constexpr int STAGES = 4;
constexpr int BOX = 128;  // rows of a box: a tile of A is one box, a tile of B two boxes
using One = Choice<Swizzle::bytes128, BOX, STAGES, 1, 2, 1>;   // one block per tile, tiles in row order
using Pair = Choice<Swizzle::bytes128, BOX, STAGES, 2, 2, 1>;  // two blocks per cluster

struct Shared
{
  unsigned char *tiles, *c_boxes;  // in each stage: the tile of A, then the tile of B
  Barrier *full, *empty;           // arrays with one barrier per stage
};

// Place stages, boxes of C and barriers in shared memory. Each `empty` barrier expects `arrivals` arrivals.
__device__ inline Shared start(unsigned arrivals = 1)
{
  unsigned char* const tiles = shared_memory + (-shared_address(shared_memory) & 1023);
  unsigned char* const c_boxes = tiles + STAGES * STAGE_BYTES;
  Barrier* const full = reinterpret_cast<Barrier*>(c_boxes + CONSUMERS * 2 * C_BOX_BYTES);
  if (threadIdx.x == 0)
    for (int stage = 0; stage < STAGES; ++stage) init(full + stage), init(full + STAGES + stage, arrivals);
  cluster_sync();
  return {tiles, c_boxes, full, full + STAGES};
}

// Issue the four wgmmas of a stage as one group. If k0 is 0, the sums start from zero.
template <Swizzle swizzle>
__device__ void multiply(float (&d)[128], unsigned char* tile, int warpgroup, int k0)
{
  const unsigned a = shared_address(tile) + warpgroup * 64 * span_bytes(swizzle);
  const unsigned b = shared_address(tile + A_BYTES);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < TILE_K / 16; ++step)
    wgmma<TILE_N>(
      d, descriptor_at(a + k_step_bytes<TILE_M, swizzle>(step), k_major_descriptor<TILE_M, swizzle>()),
      descriptor_at(b + k_step_bytes<TILE_N, swizzle>(step), k_major_descriptor<TILE_N, swizzle>()), k0 + step);
  wgmma_commit();
}

// Copy `rows` rows of 64 columns with cp.async. 8 threads copy a row of 128 bytes. Each thread writes its 16
// bytes to the swizzled place, so no access has bank conflicts. Elements outside of the matrix become zeros.
template <int rows>
__device__ void copy_rows(unsigned char* tile, const uint4* matrix, int height, int width, int row, int k0)
{
  for (int i = threadIdx.x; i < rows * 8; i += 128 * CONSUMERS)
  {
    const int r = i / 8, column = i % 8 * 8;
    const bool inside = row + r < height && k0 + column < width;
    const long long at = inside ? static_cast<long long>(row + r) * width + k0 + column : 0;
    const unsigned to = swizzled_index<unsigned short, Swizzle::bytes128>(r, column) * ELEMENT_BYTES;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(tile) + to),
                 "l"(matrix + at / 8), "r"(inside ? 16 : 0)
                 : "memory");
  }
}

}  // namespace ladder

using namespace ladder;

extern "C" __global__ void __launch_bounds__(256, 1)
  ladder_threads(const uint4* a, const uint4* b, const __grid_constant__ Map c, int m, int n, int k)
{
  const Shared s = start();
  const int warpgroup = threadIdx.x / 128;
  const int2 place = Tiles<One>(m, n).place(blockIdx.x);
  float d[128] = {};
  for (int k0 = 0; k0 < k; k0 += TILE_K)
  {
    copy_rows<TILE_M>(s.tiles, a, m, k, place.x, k0);
    copy_rows<TILE_N>(s.tiles + A_BYTES, b, n, k, place.y, k0);
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_async();
    __syncthreads();  // all threads have written the stage
    multiply<Swizzle::bytes128>(d, s.tiles, warpgroup, k0);
    wgmma_wait();
    __syncthreads();  // all threads have read the stage
  }
  store_c<Fast>(d, c, s.c_boxes + warpgroup * 2 * C_BOX_BYTES, warpgroup, place);
  if (threadIdx.x % 128 == 0) store_wait_read();
}

extern "C" __global__ void __launch_bounds__(256, 1)
  ladder_tma(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c,
    int m, int n, int k)
{
  const Shared s = start();
  const int warpgroup = threadIdx.x / 128;
  const int2 place = Tiles<One>(m, n).place(blockIdx.x);
  float d[128] = {};
  for (int k0 = 0; k0 < k; k0 += TILE_K)
  {
    if (threadIdx.x == 0)
    {
      arrive_expect_tx(s.full, STAGE_BYTES);
      for (int i = 0; i < 8; ++i)  // each box is 8 elements (16 bytes) wide
      {
        load(s.tiles + i * TILE_M * 16, a, s.full, k0 + i * 8, place.x);
        load(s.tiles + A_BYTES + i * TILE_N * 16, b, s.full, k0 + i * 8, place.y);
        load(s.tiles + A_BYTES + (i * TILE_N + BOX) * 16, b, s.full, k0 + i * 8, place.y + BOX);
      }
    }
    wait(s.full, k0 / TILE_K % 2);
    multiply<Swizzle::none>(d, s.tiles, warpgroup, k0);
    wgmma_wait();
    __syncthreads();  // all threads have read the stage
  }
  store_c<Fast>(d, c, s.c_boxes + warpgroup * 2 * C_BOX_BYTES, warpgroup, place);
  if (threadIdx.x % 128 == 0) store_wait_read();
}

extern "C" __global__ void __launch_bounds__(256, 1)
  ladder_swizzle(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c,
    int m, int n, int k)
{
  const Shared s = start();
  const int warpgroup = threadIdx.x / 128;
  const int2 place = Tiles<One>(m, n).place(blockIdx.x);
  float d[128] = {};
  for (int k0 = 0; k0 < k; k0 += TILE_K)
  {
    if (threadIdx.x == 0)
    {
      arrive_expect_tx(s.full, STAGE_BYTES);
      load(s.tiles, a, s.full, k0, place.x);
      load(s.tiles + A_BYTES, b, s.full, k0, place.y);
      load(s.tiles + A_BYTES + BOX * 128, b, s.full, k0, place.y + BOX);
    }
    wait(s.full, k0 / TILE_K % 2);
    multiply<Swizzle::bytes128>(d, s.tiles, warpgroup, k0);
    wgmma_wait();
    __syncthreads();  // all threads have read the stage
  }
  store_c<Fast>(d, c, s.c_boxes + warpgroup * 2 * C_BOX_BYTES, warpgroup, place);
  if (threadIdx.x % 128 == 0) store_wait_read();
}

extern "C" __global__ void __launch_bounds__(256, 1)
  ladder_ring(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c,
    int m, int n, int k)
{
  const Shared s = start();
  const int warpgroup = threadIdx.x / 128;
  const int2 place = Tiles<One>(m, n).place(blockIdx.x);
  float d[128] = {};
  PipelineState<STAGES> at;
  const auto load_stage = [&](int k0)
  {
    Barrier* const full = s.full + at.stage();
    unsigned char* const tile = s.tiles + at.stage() * STAGE_BYTES;
    arrive_expect_tx(full, STAGE_BYTES);
    load(tile, a, full, k0, place.x);
    load(tile + A_BYTES, b, full, k0, place.y);
    load(tile + A_BYTES + BOX * 128, b, full, k0, place.y + BOX);
  };
  for (int k0 = 0; k0 < STAGES * TILE_K; k0 += TILE_K, at.advance())
    if (threadIdx.x == 0 && k0 < k) load_stage(k0);
  for (int k0 = 0; k0 < k; k0 += TILE_K, at.advance())
  {
    wait(s.full + at.stage(), at.phase() ^ 1);  // `at` is a round ahead, because the first loads have advanced it
    multiply<Swizzle::bytes128>(d, s.tiles + at.stage() * STAGE_BYTES, warpgroup, k0);
    wgmma_wait();
    __syncthreads();  // all threads have read the stage
    if (threadIdx.x == 0 && k0 + STAGES * TILE_K < k) load_stage(k0 + STAGES * TILE_K);
  }
  store_c<Fast>(d, c, s.c_boxes + warpgroup * 2 * C_BOX_BYTES, warpgroup, place);
  if (threadIdx.x % 128 == 0) store_wait_read();
}

extern "C" __global__ void __launch_bounds__(384, 1)
  ladder_specialized(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c,
    int m, int n, int k)
{
  const Shared s = start(CONSUMERS);
  const int warpgroup = threadIdx.x / 128 - 1;
  const int2 place = Tiles<One>(m, n).place(blockIdx.x);
  float d[128];  // uninitialized, because ptxas would serialize the wgmmas if zeros were written here
  PipelineState<STAGES> at;
  const auto load_stage = [&](int k0)
  {
    Barrier* const full = s.full + at.stage();
    unsigned char* const tile = s.tiles + at.stage() * STAGE_BYTES;
    wait(s.empty + at.stage(), at.phase());
    arrive_expect_tx(full, STAGE_BYTES);
    load(tile, a, full, k0, place.x);
    load(tile + A_BYTES, b, full, k0, place.y);
    load(tile + A_BYTES + BOX * 128, b, full, k0, place.y + BOX);
  };
  if (warpgroup < 0)
  {
    give_registers<40>();
    at = at.producer();
    for (int k0 = 0; threadIdx.x == 0 && k0 < k; k0 += TILE_K, at.advance()) load_stage(k0);
    return;
  }
  take_registers<232>();
  for (int k0 = 0; k0 < k; k0 += TILE_K, at.advance())
  {
    wait(s.full + at.stage(), at.phase());
    multiply<Swizzle::bytes128>(d, s.tiles + at.stage() * STAGE_BYTES, warpgroup, k0);
    wgmma_wait<1>();  // the tensor core has read the previous stage
    if (k0 && threadIdx.x % 128 == 0) arrive(s.empty + (at.stage() + STAGES - 1) % STAGES);
  }
  wgmma_wait();
  store_c<Fast>(d, c, s.c_boxes + warpgroup * 2 * C_BOX_BYTES, warpgroup, place);
  if (threadIdx.x % 128 == 0) store_wait_read();
}

extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(384, 1)
  ladder_multicast(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c,
    int m, int n, int k)
{
  const Shared s = start(CONSUMERS * 2);
  const int warpgroup = threadIdx.x / 128 - 1, rank = cluster_rank();
  const int2 place = Tiles<Pair>(m, n).place(blockIdx.x / 2);
  float d[128];  // uninitialized, because ptxas would serialize the wgmmas if zeros were written here
  PipelineState<STAGES> at;
  const auto load_stage = [&](int k0)
  {
    Barrier* const full = s.full + at.stage();
    unsigned char* const tile = s.tiles + at.stage() * STAGE_BYTES;
    wait(s.empty + at.stage(), at.phase());
    arrive_expect_tx(full, STAGE_BYTES);
    load(tile, a, full, k0, place.x);
    load_multicast(tile + A_BYTES + rank * BOX * 128, b, full, 0b11, k0, place.y + rank * BOX);
  };
  if (warpgroup < 0)
  {
    give_registers<40>();
    at = at.producer();
    for (int k0 = 0; threadIdx.x == 0 && k0 < k; k0 += TILE_K, at.advance()) load_stage(k0);
    cluster_sync();  // the other block loads into this block's shared memory: wait for it before the end
    return;
  }
  take_registers<232>();
  for (int k0 = 0; k0 < k; k0 += TILE_K, at.advance())
  {
    wait(s.full + at.stage(), at.phase());
    multiply<Swizzle::bytes128>(d, s.tiles + at.stage() * STAGE_BYTES, warpgroup, k0);
    wgmma_wait<1>();  // the tensor core has read the previous stage
    const unsigned block = threadIdx.x % 128, before = (at.stage() + STAGES - 1) % STAGES;
    if (k0 && block < 2) arrive_remote_relaxed(s.empty + before, block);
  }
  wgmma_wait();
  store_c<Fast>(d, c, s.c_boxes + warpgroup * 2 * C_BOX_BYTES, warpgroup, place);
  if (threadIdx.x % 128 == 0) store_wait_read();
  cluster_sync();
}

extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(384, 1)
  ladder_persistent(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c,
    int m, int n, int k)
{
  const Shared s = start(CONSUMERS * 2);
  const int warpgroup = threadIdx.x / 128 - 1, rank = cluster_rank();
  const Tiles<Fast> tiles(m, n);
  float d[128] = {};
  PipelineState<STAGES> at;
  const auto load_stage = [&](int k0, int2 place)
  {
    Barrier* const full = s.full + at.stage();
    unsigned char* const tile = s.tiles + at.stage() * STAGE_BYTES;
    wait(s.empty + at.stage(), at.phase());
    arrive_expect_tx(full, STAGE_BYTES);
    load(tile, a, full, k0, place.x);
    load_multicast(tile + A_BYTES + rank * BOX * 128, b, full, 0b11, k0, place.y + rank * BOX);
  };
  if (warpgroup < 0)
  {
    give_registers<40>();
    at = at.producer();
    for (int tile = tiles.first(); threadIdx.x == 0 && tile < tiles.count(); tile += tiles.step())
      for (int k0 = 0; k0 < k; k0 += TILE_K, at.advance()) load_stage(k0, tiles.place(tile));
    cluster_sync();  // the other block loads into this block's shared memory: wait for it before the end
    return;
  }
  take_registers<232>();
  for (int tile = tiles.first(); tile < tiles.count(); tile += tiles.step())
  {
    for (int k0 = 0; k0 < k; k0 += TILE_K, at.advance())
    {
      wait(s.full + at.stage(), at.phase());
      multiply<Swizzle::bytes128>(d, s.tiles + at.stage() * STAGE_BYTES, warpgroup, k0);
      wgmma_wait<1>();  // the tensor core has read the previous stage
      const unsigned block = threadIdx.x % 128, before = (at.stage() + STAGES - 1) % STAGES;
      if (k0 && block < 2) arrive_remote_relaxed(s.empty + before, block);
    }
    wgmma_wait();
    const unsigned block = threadIdx.x % 128;
    if (block < 2) arrive_remote_relaxed(s.empty + (at.stage() + STAGES - 1) % STAGES, block);
    store_c<Fast>(d, c, s.c_boxes + warpgroup * 2 * C_BOX_BYTES, warpgroup, tiles.place(tile));
  }
  if (threadIdx.x % 128 == 0) store_wait_read();
  cluster_sync();
}
