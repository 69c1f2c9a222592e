// Kernels that die or hang, in raw PTX: one case a program, nvcc -arch=sm_90a -lineinfo -DCASE=name.
// Only the case's own kernel is in the program: the others are templates that nobody asks for.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

using Map = CUtensorMap;
using Half = unsigned short;

constexpr unsigned ROWS = 64, COLUMNS = 64, TILE_BYTES = ROWS * COLUMNS * 2, SMALL_BYTES = TILE_BYTES / 2;
constexpr unsigned SMEM_BYTES = 2 * (TILE_BYTES + SMALL_BYTES) + 1024;
#ifndef STATES
#define STATES 1000
#endif

extern __shared__ __align__(1024) unsigned char smem[];

// ---- PTX, one instruction each ----

__device__ unsigned shared(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void init(unsigned barrier, unsigned count)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ void arrive(unsigned barrier, unsigned count = 1)
{
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0], %1; }" ::"r"(barrier), "r"(count)
               : "memory");
}
__device__ void arm(unsigned barrier, unsigned bytes)
{
  asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}
__device__ void wait(unsigned barrier, unsigned parity)
{
  asm volatile(
    "{\n .reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
    " @p bra done;\n bra again;\ndone:\n}" ::"r"(barrier),
    "r"(parity)
    : "memory");
}
__device__ void spin(unsigned barrier, unsigned parity)
{
  asm volatile(
    "{\n .reg .pred p;\nagain: mbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1;\n"
    " @p bra done;\n bra again;\ndone:\n}" ::"r"(barrier),
    "r"(parity)
    : "memory");
}
#define LOAD "cp.async.bulk.tensor."
#define ARGUMENTS ".shared::cluster.global"
__device__ void load(unsigned to, const Map* map, unsigned barrier, int x, int y)
{
  asm volatile(LOAD "2d" ARGUMENTS ".tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y)
               : "memory");
}
__device__ void load(unsigned to, const Map* map, unsigned barrier, int x, int y, int z)
{
  asm volatile(LOAD "3d" ARGUMENTS
                    ".tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
               : "memory");
}
__device__ void load_im2col(unsigned to, const Map* map, unsigned barrier, int c, int w, int n,
                            unsigned short offset)
{
  asm volatile(LOAD "3d" ARGUMENTS
                    ".im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2], {%6};" ::"r"(to),
               "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(n), "h"(offset)
               : "memory");
}
__device__ void load_multicast(unsigned to, const Map* map, unsigned barrier, unsigned short blocks, int x,
                               int y)
{
  asm volatile(LOAD "2d" ARGUMENTS ".tile.mbarrier::complete_tx::bytes.multicast::cluster "
                                   "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
               "l"(map), "r"(barrier), "h"(blocks), "r"(x), "r"(y)
               : "memory");
}
__device__ void store(const Map* map, unsigned from, int x, int y)
{
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y)
               : "memory");
}
__device__ void store(const Map* map, unsigned from, int x, int y, int z)
{
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z)
               : "memory");
}
__device__ void add(const Map* map, unsigned from, int x, int y)
{
  asm volatile(
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
    "r"(from), "r"(x), "r"(y)
    : "memory");
}
__device__ void prefetch(const Map* map, int x, int y, int z)
{
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y),
               "r"(z)
               : "memory");
}
__device__ void load_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ void finish_stores()
{
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ unsigned in_block(unsigned address, unsigned rank)
{
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ void arrive_there(unsigned barrier)
{
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void cluster_sync()
{
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
__device__ unsigned cluster_rank()
{
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// ---- the cases ----

struct Random  // numbers as expected.py makes them
{
  unsigned long long state;
  __host__ __device__ unsigned below(unsigned n)
  {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<unsigned>((state >> 33) % n);
  }
};

#define KERNEL(NAME)     \
  template <class Any>   \
  __global__ void NAME(const __grid_constant__ Map map, const __grid_constant__ Map small, const Map* maps, \
                       Half* out)

#define START(ARRIVALS)                              \
  __shared__ alignas(16) unsigned long long words[2]; \
  const unsigned full = shared(words), tile = shared(smem); \
  const bool first = threadIdx.x == 0;               \
  if (first) init(full, ARRIVALS);                   \
  __syncthreads();

#define FINISH(PARITY) \
  wait(full, PARITY);  \
  out[threadIdx.x] = reinterpret_cast<const Half*>(smem)[threadIdx.x];

// Right kernels with one wrong statement each.
#define WITH(NAME, STATEMENTS) \
  KERNEL(NAME)                 \
  {                            \
    START(1)                   \
    if (first)                 \
    {                          \
      STATEMENTS               \
    }                          \
    FINISH(0)                  \
  }

WITH(fault_rank, arm(full, TILE_BYTES); load(tile, &map, full, 0, 16, 0);)
WITH(fault_im2col_on_tiled, arm(full, TILE_BYTES); load_im2col(tile, &map, full, 0, 0, 0, 0);)
WITH(fault_tile_on_im2col, arm(full, TILE_BYTES); load(tile, &map, full, 0, 0, 0);)  // im2col map
WITH(fault_map_off_32, arm(full, TILE_BYTES);
     load(tile, reinterpret_cast<const Map*>(reinterpret_cast<const char*>(maps + 1) + 32), full, 0, 0);)
WITH(fault_zeros, arm(full, TILE_BYTES); load(tile, &map, full, 0, 0);)    // map of zeros
WITH(fault_nowhere, arm(full, TILE_BYTES); load(tile, &map, full, 0, 64);)  // an address without memory
WITH(fault_host, arm(full, TILE_BYTES); load(tile, &map, full, 0, 0);)     // an address of the host
WITH(fault_freed, arm(full, TILE_BYTES); load(tile, &map, full, 0, 0);)
WITH(fault_global_map_zeros, arm(full, TILE_BYTES); load(tile, maps, full, 0, 0);)
WITH(fault_global_map_rank, arm(full, TILE_BYTES); load(tile, maps, full, 0, 0, 0);)
WITH(fault_to_off_16, arm(full, TILE_BYTES); load(tile + 16, &map, full, 0, 0);)
WITH(fault_to_off_64, arm(full, TILE_BYTES); load(tile + 64, &map, full, 0, 0);)
WITH(fault_to_beyond, arm(full, TILE_BYTES); load(tile + SMEM_BYTES - 1024 - TILE_BYTES + 4096, &map, full, 0, 0);)
WITH(fault_no_dynamic, arm(full, TILE_BYTES); load(tile, &map, full, 0, 0);)
WITH(fault_coordinate, arm(full, TILE_BYTES); load(tile, &map, full, 3, 8);)
WITH(fault_multicast, arm(full, TILE_BYTES); load_multicast(tile, &map, full, 2, 0, 0);)
WITH(fault_bytes, arm(full, (1 << 20) + TILE_BYTES); load(tile, &map, full, 0, 0);)
WITH(fault_arrivals, arrive(full, 3); load(tile, &map, full, 0, 0);)
WITH(fault_two_arrivals, arm(full, TILE_BYTES); arrive(full); load(tile, &map, full, 0, 0);)
WITH(fault_copy_barrier_off, arm(full, TILE_BYTES); load(tile, &map, full + 4, 0, 0);)
WITH(fault_two_on_barrier, arm(full, TILE_BYTES); load(tile, &map, full + 8, 0, 0);)
WITH(fault_bulk_bytes, arm(full, 4096); load_bulk(tile, maps, 4096, full + 4);)
WITH(fault_bulk_address, arm(full, 4096); load_bulk(tile, reinterpret_cast<const char*>(maps) + 8, 4096, full);)
WITH(fault_prefetch_rank, prefetch(&map, 0, 0, 0); arm(full, TILE_BYTES); load(tile, &map, full, 0, 0);)
WITH(fault_im2col_start, arm(full, TILE_BYTES); load_im2col(tile, &map, full, 0, 200, 0, 0);)  // im2col map
WITH(fault_plain_address, out = reinterpret_cast<Half*>(0x10); arm(full, TILE_BYTES); load(tile, &map, full, 0, 0);)
WITH(fault_trap, asm volatile("trap;");)

KERNEL(fault_never_initialised)
{
  __shared__ alignas(16) unsigned long long words[2];
  const unsigned full = shared(words), tile = shared(smem);
  if (threadIdx.x == 0)
  {
    arm(full, TILE_BYTES);
    load(tile, &map, full, 0, 0);
  }
  FINISH(0)
}

KERNEL(fault_load_on_no_barrier)
{
  __shared__ alignas(16) unsigned long long words[2];
  const unsigned full = shared(words), tile = shared(smem);
  if (threadIdx.x == 0) load(tile, &map, full, 0, 0);
  FINISH(0)
}

KERNEL(fault_barrier_off_4)
{
  START(1)
  if (first)
  {
    init(full + 4, 1);
    arm(full + 4, TILE_BYTES);
    load(tile, &map, full + 4, 0, 0);
  }
  FINISH(0)
}

template <class Any>
__global__ void fault_local(Map map, const __grid_constant__ Map small, const Map* maps, Half* out)
{
  START(1)
  if (first)
  {
    arm(full, TILE_BYTES);
    load(tile, &map, full, 0, 0);
  }
  FINISH(0)
}

KERNEL(fault_shared)
{
  __shared__ Map here;
  START(1)
  if (first)
  {
    here = map;
    arm(full, TILE_BYTES);
    load(tile, &here, full, 0, 0);
  }
  FINISH(0)
}

#define STORE(NAME, STATEMENTS)                                              \
  KERNEL(NAME)                                                               \
  {                                                                          \
    const unsigned tile = shared(smem);                                      \
    for (unsigned i = threadIdx.x; i < TILE_BYTES; i += blockDim.x) smem[i] = 0; \
    asm volatile("fence.proxy.async;" ::: "memory");                         \
    __syncthreads();                                                         \
    if (threadIdx.x == 0)                                                    \
    {                                                                        \
      STATEMENTS                                                             \
      finish_stores();                                                       \
    }                                                                        \
  }

STORE(fault_store_off_64, store(&map, tile + 64, 0, 0);)
STORE(fault_store_rank, store(&map, tile, 0, 0, 0);)
STORE(fault_store_negative, store(&map, tile, 0, -8);)
STORE(fault_reduce_type, add(&map, tile, 0, 0);)
STORE(fault_store_nowhere, store(&map, tile, 0, 0);)

WITH(hang_bytes, arm(full, TILE_BYTES + 2048); load(tile, &map, full, 0, 0);)
WITH(hang_bytes_everywhere, arm(full, TILE_BYTES + 2048); load(tile, &map, full, 0, 0);)
WITH(hang_no_copy, arm(full, TILE_BYTES);)
WITH(hang_no_arrive, load(tile, &map, full, 0, 0);)
WITH(hang_out_of_one_map, arm(full, TILE_BYTES + SMALL_BYTES); load(tile, &map, full, 0, 0);)

KERNEL(hang_count)
{
  START(2)
  if (first)
  {
    arm(full, TILE_BYTES);
    load(tile, &map, full, 0, 0);
  }
  FINISH(0)
}

KERNEL(hang_parity)
{
  START(1)
  if (first)
  {
    arm(full, TILE_BYTES);
    load(tile, &map, full, 0, 0);
  }
  wait(full, 0);
  FINISH(1)
}

KERNEL(hang_test_wait)
{
  START(2)
  if (first)
  {
    arm(full, TILE_BYTES);
    load(tile, &map, full, 0, 0);
  }
  spin(full, 0);
  FINISH(0)
}

KERNEL(hang_backoff)
{
  START(2)
  if (first)
  {
    arm(full, TILE_BYTES);
    load(tile, &map, full, 0, 0);
  }
  for (bool ready = false; !ready;)
  {
    unsigned there;
    asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
      : "=r"(there)
      : "r"(full)
      : "memory");
    ready = there;
    if (!ready) __nanosleep(200);
  }
  FINISH(0)
}

// A pipeline of two stages: warp 0 produces, warp 1 consumes 8 tiles.
template <int BYTES, int FULL_COUNT, bool RELEASE, int PRODUCER, bool ARM, bool FLIP>
__device__ void pipeline(const Map& map, const Map& small, Half* out)
{
  __shared__ alignas(16) unsigned long long words[4];
  const unsigned full = shared(words), empty = full + 16, tile = shared(smem);
  if (threadIdx.x == 0)
    for (int stage = 0; stage < 2; ++stage) init(full + 8 * stage, FULL_COUNT), init(empty + 8 * stage, 32);
  __syncthreads();
  if (threadIdx.x < 32)
  {
    if (threadIdx.x == 0)
      for (int i = 0; i < 8; ++i)
      {
        const int stage = i % 2, phase = i / 2 % 2;
        wait(empty + 8 * stage, phase ^ PRODUCER);
        if (ARM) arm(full + 8 * stage, BYTES);
        load(tile + stage * (TILE_BYTES + SMALL_BYTES), &map, full + 8 * stage, 0, 0);
        load(tile + stage * (TILE_BYTES + SMALL_BYTES) + TILE_BYTES, &small, full + 8 * stage, 0, 0);
      }
  }
  else
  {
    Half sum = 0;
    for (int i = 0; i < 8; ++i)
    {
      const int stage = i % 2, phase = FLIP ? i / 2 % 2 : 0;
      wait(full + 8 * stage, phase);
      sum += reinterpret_cast<const Half*>(smem)[threadIdx.x];
      if (RELEASE) arrive(empty + 8 * stage);
    }
    out[threadIdx.x] = sum;
  }
}
[[maybe_unused]] constexpr int BOTH = TILE_BYTES + SMALL_BYTES;
#define PIPELINE(NAME, ...) \
  KERNEL(NAME) { pipeline<__VA_ARGS__>(map, small, out); }
PIPELINE(right_pipeline, BOTH, 1, true, 1, true, true)
PIPELINE(hang_ring_bytes, 2 * BOTH, 1, true, 1, true, true)
PIPELINE(hang_ring_one_copy, BOTH + SMALL_BYTES, 1, true, 1, true, true)
PIPELINE(hang_ring_count, BOTH, 2, true, 1, true, true)
PIPELINE(hang_ring_no_release, BOTH, 1, false, 1, true, true)
PIPELINE(hang_ring_cycle, BOTH, 1, true, 0, true, true)
PIPELINE(hang_ring_no_arm, BOTH, 1, true, 1, false, true)
PIPELINE(hang_ring_parity, BOTH, 1, true, 1, true, false)

// The consumer waits for stage 2 of 2 stages: the next array's first barrier.
KERNEL(hang_ring_stage)
{
  __shared__ alignas(16) unsigned long long words[4];
  const unsigned full = shared(words), empty = full + 16, tile = shared(smem);
  if (threadIdx.x == 0)
    for (int stage = 0; stage < 2; ++stage) init(full + 8 * stage, 1), init(empty + 8 * stage, 32);
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < 8; ++i)
    {
      const int stage = i % 2;
      wait(empty + 8 * stage, i / 2 % 2 ^ 1);
      arm(full + 8 * stage, TILE_BYTES);
      load(tile + stage * (TILE_BYTES + SMALL_BYTES), &map, full + 8 * stage, 0, 0);
    }
  else if (threadIdx.x >= 32)
    for (int i = 0; i < 8; ++i)
    {
      const int stage = i % 2;
      wait(full + 8 * (stage + 1), i / 2 % 2);
      arrive(empty + 8 * stage);
    }
}

// Block 1 arrives at block 0's barrier once; block 0 expects two of it.
KERNEL(hang_cluster)
{
  START(3)
  cluster_sync();
  if (first) arrive_there(in_block(full, 0));
  if (cluster_rank() == 0) wait(full, 0);
  cluster_sync();
}

KERNEL(hang_multicast)  // block 1 never arms its barrier
{
  START(1)
  cluster_sync();
  if (first && cluster_rank() == 0)
  {
    arm(full, TILE_BYTES);
    load_multicast(tile, &map, full, 3, 0, 0);
  }
  FINISH(0)
  cluster_sync();
}

KERNEL(neither_syncthreads)
{
  volatile Half* flag = out;
  if (threadIdx.x == 0)
    while (*flag != 77) {}
  __syncthreads();
  out[threadIdx.x] = 1;
}

KERNEL(neither_no_tma)
{
  volatile Half* flag = out;
  while (*flag != 77) {}
}

KERNEL(neither_cluster)
{
  volatile Half* flag = out;
  if (cluster_rank() == 1)
    while (*flag != 77) {}
  cluster_sync();
}

KERNEL(states)
{
  unsigned long long* words = reinterpret_cast<unsigned long long*>(smem);
  if (threadIdx.x == 0)
  {
    Random random{12345};
    for (int i = 0; i < STATES; ++i)
    {
      const unsigned count = 1 + random.below(1u << (1 + random.below(20))) % ((1 << 20) - 1);
      const unsigned arrived = random.below(count), phases = random.below(6);
      const int tx = static_cast<int>(random.below((1 << 21) - 1)) - ((1 << 20) - 1);
      const unsigned barrier = shared(words + i);
      init(barrier, count);
      for (unsigned p = 0; p < phases; ++p) arrive(barrier, count);
      if (tx > 0)
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(tx) : "memory");
      if (tx < 0)
        asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(-tx)
                     : "memory");
      if (arrived) arrive(barrier, arrived);
    }
    volatile Half* flag = out;
    while (*flag != 77) {}
  }
  __syncthreads();
}

// ---- host ----

template <class Function>
Function entry(const char* name)
{
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  return reinterpret_cast<Function>(function);
}

Map tiled(void* x, cuuint32_t rows)
{
  Map map{};
  const cuuint64_t dims[] = {COLUMNS, ROWS}, strides[] = {COLUMNS * 2};
  const cuuint32_t box[] = {COLUMNS, rows}, ones[] = {1, 1};
  entry<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled")(
    &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, x, dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

Map im2col(void* x)
{
  Map map{};
  const cuuint64_t dims[] = {64, 16, 4}, strides[] = {128, 2048};
  const int corner[] = {0};
  const cuuint32_t ones[] = {1, 1, 1};
  entry<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col")(
    &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, x, dims, strides, corner, corner, 64, 64, ones,
    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

#define WORD(NAME) #NAME
#define STRING(NAME) WORD(NAME)

int main()
{
  const char* name = STRING(CASE);
  const auto has = [&](const char* part) { return std::strstr(name, part) != nullptr; };
  Half *x, *out;
  Map* maps;
  cudaMalloc(&x, TILE_BYTES);
  cudaMemset(x, 0, TILE_BYTES);
  cudaMalloc(&out, TILE_BYTES);
  cudaMemset(out, 0, TILE_BYTES);
  cudaMalloc(&maps, 4 * sizeof(Map));
  Map map = tiled(x, ROWS);
  const Map small = tiled(x, ROWS / 2);
  if (has("on_im2col") || has("im2col_start")) map = im2col(x);
  if (has("nowhere")) map = tiled(reinterpret_cast<void*>(0x7a0000000000), ROWS);
  if (has("host")) map = tiled(std::aligned_alloc(4096, 1 << 20), ROWS);
  if (has("freed"))
  {
    void* gone;
    cudaMalloc(&gone, 64 << 20);
    map = tiled(gone, ROWS);
    cudaFree(gone);
  }
  if (std::strcmp(name, "fault_zeros") == 0) map = Map{};
  cudaMemset(maps, 0, 4 * sizeof(Map));
  cudaMemcpy(reinterpret_cast<char*>(maps + 1) + 32, &map, sizeof map, cudaMemcpyHostToDevice);
  if (has("map_rank")) cudaMemcpy(maps, &map, sizeof map, cudaMemcpyHostToDevice);

  cudaFuncSetAttribute(CASE<void>, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
  cudaLaunchConfig_t config{};
  const bool cluster = has("cluster") || std::strcmp(name, "hang_multicast") == 0;
  const bool everywhere = has("everywhere");
  config.gridDim = dim3(everywhere ? 132 : cluster ? 2 : has("ring_bytes") || has("hang_bytes") ? 3 : 1);
  config.blockDim = dim3(everywhere ? 384 : 64);
  config.dynamicSmemBytes = has("no_dynamic") ? 0 : SMEM_BYTES;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = cluster;
  cudaError_t error = cudaLaunchKernelEx(&config, CASE<void>, map, small, static_cast<const Map*>(maps), out);
  std::printf("launched %s\n", cudaGetErrorName(error));
  std::fflush(stdout);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(error));
  std::fflush(stdout);
  std::_Exit(0);
}
