// hopper_gemm.cu: C = A x B^T, bf16 in and out, float accumulation, for compute capability 9.0.
//
// A is (m, k), B is (n, k), C is (m, n), all row-major. So B^T, the factor on the right, is column-major. m, n
// and k are any multiples of 8: TMA fills elements outside A and B with zeros, and clips stores to C.
// For other sizes TMA cannot address the rows, so make_tma_descriptor refuses the map.
//
// One block per multiprocessor computes tiles of C (128 x 256), one after the other. A producer thread fills a
// ring of stages; a stage is 64 columns of A and B. Two warpgroups multiply, 64 rows each. The two blocks of a
// cluster compute tiles one above the other. Each block loads half of B's tile into both blocks.
//
//   warpgroup 0    wait(empty), expect_tx, load A and B  --full-->  wait(full), 4 x wgmma    1 and 2
//   (one thread)                                         <-empty--  arrive(empty): stage read
//
// python tests/bench gemm measures the kernel; 06_hopper_gemm.ipynb shows its tiles.

#include <tma_dlpack.h>

namespace gemm
{

using namespace tma_dlpack;

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64;
constexpr int CONSUMERS = 2, THREADS = 128 * (1 + CONSUMERS);
constexpr int ELEMENT_BYTES = 2;

// The constants of a kernel. Its maps of A and B have boxes of (box_rows, one span of the swizzle). Its
// map of C has boxes of (64, 64) with the swizzle bytes128.
template <Swizzle swizzle_, int box_rows_, int stages_, int cluster_, int c_boxes_, int group_>
struct Choice
{
  static constexpr Swizzle swizzle = swizzle_;
  static constexpr int box_rows = box_rows_;
  static constexpr int stages = stages_;
  static constexpr int cluster = cluster_;  // blocks that share tiles of B
  static constexpr int c_boxes = c_boxes_;  // boxes of C in shared memory, per warpgroup
  static constexpr int group = group_;      // rows of cluster tiles that share data in L2
  static constexpr int span = span_bytes(swizzle_);
};

// `Fast` is the kernel. The two variants are for measurements: tiles without a swizzle, and boxes of 8 rows.
using Fast = Choice<Swizzle::bytes128, 128, 4, 2, 2, 8>;
using WithoutSwizzle = Choice<Swizzle::none, 128, 4, 2, 2, 8>;
using SmallBoxes = Choice<Swizzle::bytes128, 8, 4, 2, 2, 8>;

constexpr int A_BYTES = TILE_M * TILE_K * ELEMENT_BYTES;
constexpr int B_BYTES = TILE_N * TILE_K * ELEMENT_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int C_BOX_BYTES = 64 * 64 * ELEMENT_BYTES;

template <class Choose>
constexpr int smem_bytes = 1024 + Choose::stages * (STAGE_BYTES + 2 * sizeof(Barrier)) +
                           CONSUMERS * Choose::c_boxes * C_BOX_BYTES;

// ---- which tile ----

// The order of cluster tiles: all tiles in the first `group` rows, then all tiles in the next `group` rows.
template <class Choose>
struct Tiles
{
  int rows, columns;  // counted in cluster tiles; a cluster tile is `cluster` tiles of C, one below the other

  __device__ Tiles(int m, int n)
    : rows((m + Choose::cluster * TILE_M - 1) / (Choose::cluster * TILE_M)),
      columns((n + TILE_N - 1) / TILE_N) {}

  __device__ int count() const { return rows * columns; }
  __device__ int first() const { return blockIdx.x / Choose::cluster; }
  __device__ int step() const { return gridDim.x / Choose::cluster; }

  // Return the first row and column of C in this block's part of a cluster tile.
  __device__ int2 place(int tile) const
  {
    const int first = tile / (Choose::group * columns) * Choose::group;
    const int height = min(Choose::group, rows - first);
    const int within = tile - first * columns;
    const int row = first + within % height, column = within / height;
    return {(row * Choose::cluster + static_cast<int>(cluster_rank())) * TILE_M, column * TILE_N};
  }
};

// ---- the ring of stages ----

template <class Choose>
struct Ring
{
  unsigned char* tiles;  // in each stage: the tile of A, then the tile of B
  Barrier *fulls, *empties;
  PipelineState<Choose::stages> at = {};

  __device__ unsigned char* a() const { return tiles + at.stage() * STAGE_BYTES; }
  __device__ unsigned char* b() const { return a() + A_BYTES; }
  __device__ Barrier* full() const { return fulls + at.stage(); }

  __device__ void expect() const  // wait until the stage is empty, then expect its bytes
  {
    wait(empties + at.stage(), at.phase());
    arrive_expect_tx(full(), STAGE_BYTES);
  }
};

// Load rows `first` to first + rows - 1 of a tile. The tile has all_rows rows of 64 columns (128 bytes).
// Its layout in shared memory is [128 / span][all_rows][span], in bytes.
template <int rows, int all_rows, bool to_cluster, class Choose>
__device__ void load_rows(const Ring<Choose>& ring, unsigned char* tile, const Map& map, int k, int row,
                          int first)
{
  constexpr int span_elements = Choose::span / ELEMENT_BYTES;
  for (int column = 0; column < TILE_K; column += span_elements)
#pragma unroll 8
    for (int r = first; r < first + rows; r += Choose::box_rows)
    {
      void* const to = tile + (column / span_elements * all_rows + r) * Choose::span;
      if constexpr (to_cluster)
        load_multicast(to, map, ring.full(), (1 << Choose::cluster) - 1, k + column, row + r);
      else
        load(to, map, ring.full(), k + column, row + r);
    }
}

// Fill one stage after the other. load_stage(ring, place, k0) issues the loads of columns k0 to k0 + 63.
template <class Choose, class LoadStage>
__device__ void produce(Ring<Choose> ring, Tiles<Choose> tiles, int k, LoadStage load_stage)
{
  ring.at = ring.at.producer();
  for (int tile = tiles.first(); tile < tiles.count(); tile += tiles.step())
    for (int k0 = 0; k0 < k; k0 += TILE_K, ring.at.advance())
    {
      ring.expect();
      load_stage(ring, tiles.place(tile), k0);
    }
}

// ---- the tensor core ----

// Arrive at the stage's `empty` barrier in both blocks, because each block loads into both blocks.
template <class Choose>
__device__ void release(const Ring<Choose>& ring, int stage)
{
  const unsigned block = threadIdx.x % 128;
  if (block < Choose::cluster) arrive_remote_relaxed(ring.empties + stage, block);
}

// Wait until the current stage is full, and issue its wgmmas as one group. If k0 is 0, the sums start from zero.
template <class Choose>
__device__ void multiply_stage(float (&d)[128], const Ring<Choose>& ring, int warpgroup, int k0)
{
  constexpr unsigned long long a_layout = k_major_descriptor<TILE_M, Choose::swizzle>();
  constexpr unsigned long long b_layout = k_major_descriptor<TILE_N, Choose::swizzle>();
  wait(ring.full(), ring.at.phase());
  const unsigned a = shared_address(ring.a()) + warpgroup * 64 * Choose::span;
  const unsigned b = shared_address(ring.b());
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < TILE_K / 16; ++step)
    wgmma<TILE_N>(d, descriptor_at(a + k_step_bytes<TILE_M, Choose::swizzle>(step), a_layout),
                  descriptor_at(b + k_step_bytes<TILE_N, Choose::swizzle>(step), b_layout), k0 + step);
  wgmma_commit();
}

// Compute one tile of C in registers. Each warpgroup computes 64 rows of the tile.
template <class Choose>
__device__ void multiply(float (&d)[128], Ring<Choose>& ring, int warpgroup, int k)
{
  int before = -1;
  for (int k0 = 0; k0 < k; k0 += TILE_K, ring.at.advance())
  {
    multiply_stage(d, ring, warpgroup, k0);
    wgmma_wait<1>();  // the tensor core has read the previous stage
    if (before >= 0) release(ring, before);
    before = ring.at.stage();
  }
  wgmma_wait();
  release(ring, before);
}

// ---- the store of C ----

__device__ inline unsigned two_bf16(float low, float high)
{
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Write four matrices of 8 x 8 elements. Lane i passes the address of row i % 8 of matrix i / 8.
__device__ inline void store_matrices(void* row, unsigned m0, unsigned m1, unsigned m2, unsigned m3)
{
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                 shared_address(row)),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

// Round 64 x 256 sums and store them, box by box. The stores run while the next tile is multiplied.
template <class Choose>
__device__ void store_c(const float (&d)[128], const Map& c, unsigned char* boxes, int warpgroup,
                        int2 place)
{
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane % 16;  // this lane passes the address of this row
#pragma unroll
  for (int box = 0; box < TILE_N / 64; ++box)
  {
    unsigned char* const room = boxes + box % Choose::c_boxes * C_BOX_BYTES;
    if (thread == 0) store_wait_read<Choose::c_boxes - 1>();  // the last store from `room` has read it
    sync_threads(1 + warpgroup, 128);
#pragma unroll
    for (int column = 0; column < 64; column += 16)
    {
      // For each 8 columns, d has two sums of one row, then two sums of the row 8 rows below.
      const float* const v = d + box * 32 + column / 2;
      const unsigned at =
        swizzled_index<unsigned short, Swizzle::bytes128>(row, column + lane / 16 * 8);
      store_matrices(room + at * ELEMENT_BYTES, two_bf16(v[0], v[1]), two_bf16(v[2], v[3]),
                     two_bf16(v[4], v[5]), two_bf16(v[6], v[7]));
    }
    fence_async();
    sync_threads(1 + warpgroup, 128);
    if (thread == 0)
    {
      store(c, room, place.y + box * 64, place.x + warpgroup * 64);
      store_commit();
    }
  }
}

// ---- the kernel ----

extern __shared__ unsigned char shared_memory[];

// Place the stages, the boxes of C and the barriers in shared memory, and initialize the barriers.
template <class Choose>
__device__ Ring<Choose> start_ring(unsigned char*& c_boxes)
{
  static_assert(smem_bytes<Choose> <= 227 * 1024, "too many stages: a block has 227 KiB");
  unsigned char* const start = shared_memory + (-shared_address(shared_memory) & 1023);
  c_boxes = start + Choose::stages * STAGE_BYTES;
  Barrier* const full =
    reinterpret_cast<Barrier*>(c_boxes + CONSUMERS * Choose::c_boxes * C_BOX_BYTES);
  const Ring<Choose> ring{start, full, full + Choose::stages};
  if (threadIdx.x == 0)
    for (int stage = 0; stage < Choose::stages; ++stage)
      init(ring.fulls + stage), init(ring.empties + stage, CONSUMERS * Choose::cluster);
  cluster_sync();
  return ring;
}

template <class Choose, class LoadStage>
__device__ void run(const Map& c, Tiles<Choose> tiles, int k, LoadStage load_stage)
{
  unsigned char* c_boxes;
  Ring<Choose> ring = start_ring<Choose>(c_boxes);

  if (threadIdx.x < 128)
  {
    give_registers<40>();
    if (threadIdx.x < 32 && elect_one()) produce(ring, tiles, k, load_stage);
  }
  else
  {
    take_registers<232>();
    const int warpgroup = threadIdx.x / 128 - 1;
    unsigned char* const boxes = c_boxes + warpgroup * Choose::c_boxes * C_BOX_BYTES;
    float d[128] = {};  // zeros, because NVRTC 12.8 serializes wgmma on uninitialized registers
    for (int tile = tiles.first(); tile < tiles.count(); tile += tiles.step())
    {
      multiply(d, ring, warpgroup, k);
      store_c<Choose>(d, c, boxes, warpgroup, tiles.place(tile));
    }
    if (threadIdx.x % 128 == 0) store_wait_read();  // shared memory must live until the engine has read it
  }
  cluster_sync();  // the other block loads into this block's shared memory: wait for it before the end
}

template <class Choose>
__device__ void gemm(const Map& a, const Map& b, const Map& c, int m, int n, int k)
{
  constexpr int PART = TILE_N / Choose::cluster;  // rows of B that this block loads
  const int part = static_cast<int>(cluster_rank()) * PART;
  run(c, Tiles<Choose>(m, n), k,
      [&](const Ring<Choose>& ring, int2 place, int k0)
      {
        load_rows<TILE_M, TILE_M, false>(ring, ring.a(), a, k0, place.x, 0);
        load_rows<PART, TILE_N, (Choose::cluster > 1)>(ring, ring.b(), b, k0, place.y, part);
      });
}

}  // namespace gemm

#define GEMM(NAME, CHOICE)                                                                       \
  extern "C" __global__ void __cluster_dims__(gemm::CHOICE::cluster)                             \
    __launch_bounds__(gemm::THREADS, 1)                                                          \
      NAME(const __grid_constant__ gemm::Map a, const __grid_constant__ gemm::Map b,             \
           const __grid_constant__ gemm::Map c, int m, int n, int k)                             \
  {                                                                                              \
    gemm::gemm<gemm::CHOICE>(a, b, c, m, n, k);                                                  \
  }

GEMM(hopper_gemm, Fast)
GEMM(hopper_gemm_without_swizzle, WithoutSwizzle)
GEMM(hopper_gemm_small_boxes, SmallBoxes)

// ---- the launch ----

#ifndef __CUDACC_RTC__

#include <cuda_runtime_api.h>

// Launch the kernel on a stream of the current device. hopper_gemm_torch.cpp makes the maps and calls this function.
cudaError_t launch_hopper_gemm(const CUtensorMap& a, const CUtensorMap& b, const CUtensorMap& c, int m,
                               int n, int k, cudaStream_t stream)
{
  constexpr int smem = gemm::smem_bytes<gemm::Fast>, cluster = gemm::Fast::cluster;
  int device = 0, blocks = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(hopper_gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  hopper_gemm<<<blocks / cluster * cluster, gemm::THREADS, smem, stream>>>(a, b, c, m, n, k);
  return cudaGetLastError();
}

#endif
