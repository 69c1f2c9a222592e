// Wrong on hardware as lint predicts: kernels with one mistake each, run many times, every byte compared.
//   nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -O3 -o cases on_gpu.cu; ./cases NAME
// prints how much of the output is wrong. test_on_gpu.py has what was measured.
#include "kernels.cu"
#include <cstdio>
#include <cstring>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <vector>

constexpr int BLOCKS = 264, TURNS = 32;

// A warp writes 32 KiB with bank conflicts, so that its writes queue up; one thread stores the tile at once.
template <bool fenced> __device__ void stress_write(int4* out)
{
  __shared__ alignas(128) int4 tile[64 * 32];
  for (int t = 0; t < TURNS; ++t) {
#pragma unroll
    for (int i = 0; i < 64; ++i) tile[threadIdx.x * 64 + i] = make_int4(t, threadIdx.x * 64 + i, 0, 0);
    if (fenced) fence_async();
    __syncwarp();
    if (threadIdx.x == 0) {
      store_bulk(out + ((size_t)blockIdx.x * TURNS + t) * 2048, tile, 32768);
      commit();
      wait_read<0>();
    }
    __syncwarp();
  }
}
// The fence after the barrier, by the thread that stores, is between all writes and the copy.
KERNEL write_late(const int4*, int4* out)
{
  __shared__ alignas(128) int4 tile[64 * 32];
  for (int t = 0; t < TURNS; ++t) {
#pragma unroll
    for (int i = 0; i < 64; ++i) tile[threadIdx.x * 64 + i] = make_int4(t, threadIdx.x * 64 + i, 0, 0);
    __syncwarp();
    if (threadIdx.x == 0) {
      fence_async();
      store_bulk(out + ((size_t)blockIdx.x * TURNS + t) * 2048, tile, 32768);
      commit();
      wait_read<0>();
    }
    __syncwarp();
  }
}
// The fence before the barrier, by that thread alone.
KERNEL write_some_wrong(const int4*, int4* out)
{
  __shared__ alignas(128) int4 tile[64 * 32];
  for (int t = 0; t < TURNS; ++t) {
#pragma unroll
    for (int i = 0; i < 64; ++i) tile[threadIdx.x * 64 + i] = make_int4(t, threadIdx.x * 64 + i, 0, 0);
    if (threadIdx.x == 0) fence_async();
    __syncwarp();
    if (threadIdx.x == 0) {
      store_bulk(out + ((size_t)blockIdx.x * TURNS + t) * 2048, tile, 32768);
      commit();
      wait_read<0>();
    }
    __syncwarp();
  }
}
KERNEL write_wrong(const int4*, int4* out) { stress_write<false>(out); }
KERNEL write_right(const int4*, int4* out) { stress_write<true>(out); }

// A warp reads a tile with bank conflicts, and the next tile is loaded over it at once: after a barrier of the
// warp, of the block, or after an mbarrier at which all lanes arrive.
enum Meet { OF_WARP, OF_BLOCK, OF_ARRIVALS };
template <bool fenced, Meet meet = OF_WARP> __device__ void stress_read(const int4* in, int4* out)
{
  __shared__ alignas(128) int4 tile[64 * 32];
  __shared__ alignas(8) uint64_t barrier, empty;
  if (threadIdx.x == 0) {
    init(&barrier);
    init(&empty, 32);
    fence_init();
    expect(&barrier, 32768);
    load_bulk(tile, in, 32768, &barrier);
  }
  __syncwarp();
  for (int t = 0; t < TURNS; ++t) {
    wait(&barrier, t & 1);
    int4 r[64];
#pragma unroll
    for (int i = 0; i < 64; ++i)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r[i].x), "=r"(r[i].y), "=r"(r[i].z), "=r"(r[i].w)
                   : "r"(shared(&tile[threadIdx.x * 64 + 63 - i])));
    if (fenced) fence_async();
    if (meet == OF_WARP) __syncwarp();
    if (meet == OF_BLOCK) __syncthreads();
    if (meet == OF_ARRIVALS) arrive(&empty);
    if (threadIdx.x == 0 && t + 1 < TURNS) {
      if (meet == OF_ARRIVALS) wait(&empty, t & 1);
      expect(&barrier, 32768);
      load_bulk(tile, in + (size_t)(t + 1) * 2048, 32768, &barrier);
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) out[((size_t)blockIdx.x * TURNS + t) * 2048 + threadIdx.x * 64 + 63 - i] = r[i];
    __syncwarp();
  }
}
KERNEL read_wrong(const int4* in, int4* out) { stress_read<false>(in, out); }
KERNEL read_block_wrong(const int4* in, int4* out) { stress_read<false, OF_BLOCK>(in, out); }
KERNEL read_arrived_wrong(const int4* in, int4* out) { stress_read<false, OF_ARRIVALS>(in, out); }
KERNEL read_right(const int4* in, int4* out) { stress_read<true>(in, out); }

// The tile is written again while its store reads it: nobody waits; or one thread waits and the others do not.
template <bool waited, bool published> __device__ void stress_again(int4* out)
{
  __shared__ alignas(128) int4 tile[2048];
  for (int t = 0; t < TURNS; ++t) {
    if (waited && threadIdx.x == 0) wait_read<0>();
    if (published) __syncthreads();
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = make_int4(t, i, 0, 0);
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      store_bulk(out + ((size_t)blockIdx.x * TURNS + t) * 2048, tile, 32768);
      commit();
    }
  }
  if (threadIdx.x == 0) wait_read<0>();
}
KERNEL again_wrong(const int4*, int4* out) { stress_again<false, true>(out); }
KERNEL others_wrong(const int4*, int4* out) { stress_again<true, false>(out); }
KERNEL again_right(const int4*, int4* out) { stress_again<true, true>(out); }

// A block ends with its store in flight, and the next block of the multiprocessor writes its own tile.
template <bool waited> __device__ void stress_end(int4* out)
{
  __shared__ alignas(128) int4 tile[2048];
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = make_int4(blockIdx.x % TURNS, i, 0, 0);
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(out + (size_t)blockIdx.x * 2048, tile, 32768);
    commit();
    if (waited) wait_read<0>();
  }
}
KERNEL end_wrong(const int4*, int4* out) { stress_end<false>(out); }
KERNEL end_right(const int4*, int4* out) { stress_end<true>(out); }

// The thread that initialises the barrier loads at once, without a fence; the others wait after a barrier.
KERNEL barrier_alone_wrong(const int4* in, int4* out)
{
  __shared__ alignas(128) int4 tile[2048];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier);
    expect(&barrier, 32768);
    load_bulk(tile, in + (size_t)(blockIdx.x % TURNS) * 2048, 32768, &barrier);
  }
  __syncthreads();
  wait(&barrier, 0);
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) out[(size_t)blockIdx.x * 2048 + i] = tile[i];
}

// A map is used, changed and used again: out[block] counts the loads through the old map.
template <bool released, bool acquired> __device__ void stress_map(CUtensorMap* maps, int* in, int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x != 0) return;
  init(&barrier);
  fence_init();
  CUtensorMap* map = maps + blockIdx.x;
  int stale = 0;
  for (int t = 0; t < 64; ++t) {
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(in + t * 1024) : "memory");
    if (released) asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
    if (acquired) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
    expect(&barrier, 4096);
    load_tile(tile, map, 0, 0, &barrier);
    wait(&barrier, t & 1);
    stale += *(volatile int*)tile != t * 1024;
    fence_async();
  }
  out[blockIdx.x] = stale;
}
KERNEL map_wrong(CUtensorMap* maps, int* in, int* out) { stress_map<false, false>(maps, in, out); }
KERNEL map_acquire_wrong(CUtensorMap* maps, int* in, int* out) { stress_map<true, false>(maps, in, out); }
KERNEL map_right(CUtensorMap* maps, int* in, int* out) { stress_map<true, true>(maps, in, out); }

static CUtensorMap map_of(void* data, int rows)
{
  void* found;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
  CUtensorMap map;
  cuuint64_t dim[2] = {32, (cuuint64_t)rows}, stride[1] = {128};
  cuuint32_t box[2] = {32, 32}, ones[2] = {1, 1};
  ((PFN_cuTensorMapEncodeTiled_v12000)found)(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, data, dim, stride, box, ones,
    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

struct Case {
  const char* name;
  void (*kernel)(const int4*, int4*);
  int blocks, threads;
};
static const Case CASES[] = {
  {"write_wrong", write_wrong, BLOCKS, 32}, {"write_right", write_right, BLOCKS, 32},
  {"write_late", write_late, BLOCKS, 32}, {"write_some_wrong", write_some_wrong, BLOCKS, 32},
  {"read_wrong", read_wrong, BLOCKS, 32}, {"read_right", read_right, BLOCKS, 32},
  {"read_block_wrong", read_block_wrong, BLOCKS, 32}, {"read_arrived_wrong", read_arrived_wrong, BLOCKS, 32},
  {"again_wrong", again_wrong, BLOCKS, 512}, {"others_wrong", others_wrong, BLOCKS, 512},
  {"again_right", again_right, BLOCKS, 512}, {"end_wrong", end_wrong, BLOCKS * TURNS, 512},
  {"end_right", end_right, BLOCKS * TURNS, 512}, {"barrier_alone_wrong", barrier_alone_wrong, BLOCKS * TURNS, 512},
};
static const struct { const char* name; void (*kernel)(CUtensorMap*, int*, int*); } OF_MAPS[] = {
  {"map_wrong", map_wrong}, {"map_acquire_wrong", map_acquire_wrong}, {"map_right", map_right}};
static const struct { const char* name; void (*kernel)(CUtensorMap, int*); int blocks; } ONE_TILE[] = {
  {"barrier_init_both_wrong", barrier_init_both_wrong, 132}, {"barrier_init_right", barrier_init_right, 132},
  {"map_space_local_wrong", map_space_local_wrong, 1}, {"map_space_shared_wrong", map_space_shared_wrong, 1},
  {"map_space_right", map_space_right, 1}, {"cluster_wrong", cluster_wrong, 2}, {"cluster_right", cluster_right, 2}};

int main(int argc, char** argv)
{
  const char* name = argc > 1 ? argv[1] : "";
  const size_t tiles = (size_t)BLOCKS * TURNS;
  int4 *in, *out;
  cudaMalloc(&in, tiles * 32768);
  cudaMalloc(&out, tiles * 32768);
  cudaMemset(out, 0xff, tiles * 32768);
  std::vector<int4> data(tiles * 2048);
  std::vector<int> ints(1 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = make_int4((int)(i / 2048), (int)(i % 2048), 0, 0);
  for (int i = 0; i < 1 << 20; ++i) ints[i] = i;
  size_t wrong = 0, of = 0;
  for (const Case& c : CASES) {
    if (strcmp(c.name, name)) continue;
    cudaMemcpy(in, data.data(), tiles * 32768, cudaMemcpyHostToDevice);
    c.kernel<<<c.blocks, c.threads>>>(in, out);
    cudaMemcpy(data.data(), out, tiles * 32768, cudaMemcpyDeviceToHost);
    for (of = 0; of < tiles; ++of) {
      bool same = true;
      for (int i = 0; i < 2048; ++i) same &= data[of * 2048 + i].x == (int)(of % TURNS) && data[of * 2048 + i].y == i;
      wrong += !same;
    }
  }
  cudaMemcpy(in, ints.data(), 4 << 20, cudaMemcpyHostToDevice);
  for (const auto& c : OF_MAPS) {
    if (strcmp(c.name, name)) continue;
    CUtensorMap map = map_of(in, 32), *maps;
    cudaMalloc(&maps, 132 * sizeof(map));
    for (int i = 0; i < 132; ++i) cudaMemcpy(maps + i, &map, sizeof(map), cudaMemcpyHostToDevice);
    c.kernel<<<132, 32>>>(maps, (int*)in, (int*)out);
    cudaMemcpy(ints.data(), out, 132 * 4, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 132; ++i) wrong += ints[i];
    of = 132 * 64;
  }
  for (const auto& c : ONE_TILE) {
    if (strcmp(c.name, name)) continue;
    CUtensorMap map = map_of(in, 4096);
    c.kernel<<<c.blocks, 1024>>>(map, (int*)out);
    cudaMemcpy(ints.data(), out, 4096, cudaMemcpyDeviceToHost);
    for (of = 0; of < 1024; ++of) wrong += ints[of] != (int)of;
  }
  printf("%d %zu %zu\n", (int)cudaDeviceSynchronize(), wrong, of);
  return 0;
}
