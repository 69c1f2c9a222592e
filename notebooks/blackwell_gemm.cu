// blackwell_gemm.cu: C = A x B^T, bf16 in and out, float accumulation, for the tensor core of compute
// capability 10. The kernel follows the PTX ISA. It was compiled for sm_100a, sm_103a and sm_110a, but never run.
//
// Tiles, maps and ring are as in hopper_gemm.cu. Three parts differ. One thread issues the products. The
// sums are in tensor memory, not in a warpgroup's registers. Tensor memory has 128 lanes of 512 columns, one lane
// per row of the tile. And the tensor core itself arrives at a stage's `empty` barrier after it has read the stage.
//
//   warp 0, one thread   wait(empty), arrive_expect_tx, load A and B   --full-->
//   warp 1, one thread   wait(full), 4 x tcgen05.mma, tcgen05.commit   --empty-->  and at the end  --done-->
//   all four warps       wait(done), tcgen05.ld of 32 rows each, round, store
//
// With -DBLOCKS=2, two blocks compute a tile of 256 x 256. Each block loads 128 rows of A and 128 rows of B.

#include <tma_dlpack.h>

using namespace tma_dlpack;

#ifndef BLOCKS
#define BLOCKS 1
#endif

// Boxes of A and C have 128 rows of 64 columns. Boxes of B have B_ROWS rows of 64 columns.
constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64, STAGES = 4, B_ROWS = TILE_N / BLOCKS;
constexpr int ROW_BYTES = 128, A_BYTES = TILE_M * ROW_BYTES, STAGE_BYTES = A_BYTES + B_ROWS * ROW_BYTES;
constexpr Swizzle SWIZZLE = Swizzle::bytes128;

constexpr unsigned INSTRUCTION = tcgen05_instruction_descriptor<MmaType::bf16, BLOCKS * TILE_M, TILE_N>();
constexpr unsigned short ALL_BLOCKS = (1 << BLOCKS) - 1;

// Return eight sums of this thread's row, rounded to bf16. `sums` is the address of the first sum.
__device__ inline uint4 read_bf16(unsigned sums)
{
  float v[8];
  tcgen05_load(v, sums);
  tcgen05_wait_load();
  unsigned two[4];
  for (int i = 0; i < 4; ++i)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two[i]) : "f"(v[2 * i + 1]), "f"(v[2 * i]));
  return {two[0], two[1], two[2], two[3]};
}

// Grid: (m / 128, n / 256), in clusters of BLOCKS. Dynamic shared memory: 1024 + STAGES * STAGE_BYTES.
extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(128)
  blackwell_gemm(const __grid_constant__ Map a, const __grid_constant__ Map b,
                 const __grid_constant__ Map c, int k)
{
  extern __shared__ unsigned char shared_memory[];
  __shared__ Barrier full[STAGES], empty[STAGES], done;
  __shared__ unsigned allocated;  // address in tensor memory
  unsigned char* const stages = shared_memory + (-shared_address(shared_memory) & 1023);
  const int warp = threadIdx.x / 32, rank = static_cast<int>(cluster_rank());
  const int row = blockIdx.x * TILE_M, column = blockIdx.y * TILE_N;

  if (threadIdx.x == 0)
  {
    init(&done);
    for (int stage = 0; stage < STAGES; ++stage) init(full + stage), init(empty + stage);
  }
  if (warp == 0)
  {
    tcgen05_alloc<BLOCKS>(&allocated, TILE_N);
    tcgen05_relinquish<BLOCKS>();
    tcgen05_fence_before();
  }
  cluster_sync();
  tcgen05_fence_after();
  const unsigned sums = allocated;

  if (warp == 0 && elect_one())
  {
    auto at = PipelineState<STAGES>::producer();
    for (int k0 = 0; k0 < k; k0 += TILE_K, at.advance())
    {
      unsigned char* const stage = stages + at.stage() * STAGE_BYTES;
      wait(empty + at.stage(), at.phase());
      if (rank == 0) arrive_expect_tx(full + at.stage(), BLOCKS * STAGE_BYTES);
#if BLOCKS == 2  // the block of rank 0 multiplies, so its barrier counts the bytes of both blocks
      load_cta_group2(stage, a, full + at.stage(), k0, row);
      load_cta_group2(stage + A_BYTES, b, full + at.stage(), k0, column + rank * B_ROWS);
#else
      load(stage, a, full + at.stage(), k0, row);
      load(stage + A_BYTES, b, full + at.stage(), k0, column);
#endif
    }
  }
  else if (warp == 1 && rank == 0 && elect_one())
  {
    constexpr unsigned long long a_layout = tcgen05_k_major_descriptor<TILE_M, SWIZZLE>();
    constexpr unsigned long long b_layout = tcgen05_k_major_descriptor<B_ROWS, SWIZZLE>();
    PipelineState<STAGES> at;
    for (int k0 = 0; k0 < k; k0 += TILE_K, at.advance())
    {
      const unsigned stage = shared_address(stages) + at.stage() * STAGE_BYTES;
      wait(full + at.stage(), at.phase());
      tcgen05_fence_after();
      for (int step = 0; step < TILE_K / 16; ++step)
        tcgen05_mma<MmaType::bf16, BLOCKS>(
          sums, descriptor_at(stage + k_step_bytes<TILE_M, SWIZZLE>(step), a_layout),
          descriptor_at(stage + A_BYTES + k_step_bytes<B_ROWS, SWIZZLE>(step), b_layout), INSTRUCTION,
          k0 + step);
      tcgen05_commit<BLOCKS>(empty + at.stage(), ALL_BLOCKS);
    }
    tcgen05_commit<BLOCKS>(&done, ALL_BLOCKS);
  }
  __syncwarp();

  wait(&done, 0);
  tcgen05_fence_after();
  for (int n = 0; n < TILE_N; n += 8)
    *reinterpret_cast<uint4*>(stages + n / 64 * A_BYTES +
                              swizzled<SWIZZLE>(threadIdx.x * ROW_BYTES + n % 64 * 2)) =
      read_bf16(sums + (warp * 32 << 16) + n);  // the upper half of the address is the lane
  fence_async();
  tcgen05_fence_before();
  cluster_sync();
  if (warp == 0) tcgen05_dealloc<BLOCKS>(sums, TILE_N);
  if (threadIdx.x == 0)
  {
    for (int n = 0; n < TILE_N; n += 64) store(c, stages + n / 64 * A_BYTES, column + n, row);
    store_commit();
    store_wait_read();  // shared memory must live until the engine has read it
  }
}
