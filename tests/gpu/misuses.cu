// One misuse of tma_dlpack.h a run: misuses NAME. Prints "right" or "wrong" by the tile that a kernel
// brings, or the error that the launch ends with; with -DTMA_DLPACK_CHECK=1 what the checked build says.

#include <cstdio>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include <tma_dlpack.h>

using namespace tma_dlpack;

constexpr unsigned ROWS = 64, COLUMNS = 64, TILE_BYTES = ROWS * COLUMNS * 2;
constexpr unsigned SMEM_BYTES = 2 * TILE_BYTES;
using Half = unsigned short;  // 16 bits to copy

extern __shared__ __align__(1024) unsigned char smem[];

__device__ void give(Half* out, const unsigned char* tile)
{
  for (unsigned i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x)
    out[i] = reinterpret_cast<const Half*>(tile)[i];
}

// maps: the map, zeros, one of 2^32 rows, one swizzled by 128 bytes, the map again 32 bytes later, and the
// tensor's bytes.
#define KERNEL(NAME)                                                                              \
  __global__ void NAME(const __grid_constant__ Map map, const Map* maps, Half* out)

#define START(ARRIVALS)                        \
  __shared__ alignas(16) Barrier barriers[2];  \
  Barrier* const full = barriers;              \
  const bool first = threadIdx.x == 0;         \
  if (first) init(full, ARRIVALS);             \
  __syncthreads();

#define FINISH(PARITY) \
  wait(full, PARITY);  \
  give(out, smem);

// Kernels that are right except for one wrong statement each.
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

WITH(nothing_wrong, arrive_expect_tx(full, TILE_BYTES); load(smem, map, full, 0, 0);)
WITH(map_in_global_memory, arrive_expect_tx(full, TILE_BYTES); load(smem, *maps, full, 0, 0);)
WITH(map_off_32, arrive_expect_tx(full, TILE_BYTES);
     load(smem, *reinterpret_cast<const Map*>(reinterpret_cast<const char*>(maps + 4) + 32), full, 0, 0);)
WITH(map_of_zeros, arrive_expect_tx(full, TILE_BYTES); load(smem, maps[1], full, 0, 0);)
WITH(dimension_over_2_31, arrive_expect_tx(full, TILE_BYTES); load(smem, maps[2], full, 0, 0);)
WITH(tile_off_16, arrive_expect_tx(full, TILE_BYTES); load(smem + 16, map, full, 0, 0);)
WITH(tile_off_64, arrive_expect_tx(full, TILE_BYTES); load(smem + 64, map, full, 0, 0);)
WITH(tile_beyond_shared_memory, arrive_expect_tx(full, TILE_BYTES);
     load(smem + SMEM_BYTES - TILE_BYTES + 4096, map, full, 0, 0);)
WITH(no_dynamic_shared_memory, arrive_expect_tx(full, TILE_BYTES); load(smem, map, full, 0, 0);)
WITH(wrong_rank, arrive_expect_tx(full, TILE_BYTES); load(smem, map, full, 0, 0, 0);)
WITH(wrong_kind, arrive_expect_tx(full, TILE_BYTES); load_im2col(smem, map, full, 0, 0, 0, OffsetsW{0});)
WITH(coordinate_off_16_bytes, arrive_expect_tx(full, TILE_BYTES); load(smem, map, full, 3, 0);)
WITH(halo_to_the_left, arrive_expect_tx(full, TILE_BYTES); load(smem, map, full, -1, 0);)
WITH(an_arrive_that_counts_two, arrive(full, 2);)
WITH(bulk_multicast_to_no_block, arrive_expect_tx(full, 64); load_bulk_multicast(smem, out, 64, full, 2);)
WITH(multicast_to_no_block, arrive_expect_tx(full, TILE_BYTES); load_multicast(smem, map, full, 2, 0, 0);)
WITH(too_many_bytes_expected, arrive_expect_tx(full, (1 << 20) + TILE_BYTES); load(smem, map, full, 0, 0);)
WITH(two_arrivals_of_one, arrive_expect_tx(full, TILE_BYTES); arrive(full); load(smem, map, full, 0, 0);)
WITH(armed_without_a_load, arrive_expect_tx(full, TILE_BYTES);)
WITH(expects_more_than_comes, arrive_expect_tx(full, TILE_BYTES + 2048); load(smem, map, full, 0, 0);)
WITH(expects_half, arrive_expect_tx(full, TILE_BYTES / 2); load(smem, map, full, 0, 0);)
WITH(expects_nothing, arrive(full); load(smem, map, full, 0, 0);)
WITH(expects_one_load_of_two, arrive_expect_tx(full, TILE_BYTES); load(smem, map, full, 0, 0);
     load(smem + TILE_BYTES, map, full, 0, 0);)

WITH(two_threads_arrive_expect_tx, arrive_expect_tx(full, TILE_BYTES); load(smem, map, full, 0, 0);
     } else if (threadIdx.x == 32) { arrive_expect_tx(full, TILE_BYTES);)
WITH(expected_without_an_arrival, expect_tx_only(full, TILE_BYTES); load(smem, map, full, 0, 0);)
WITH(prefetch_of_the_wrong_rank, prefetch_tile(map, 0, 0, 0); arrive_expect_tx(full, TILE_BYTES);
     load(smem, map, full, 0, 0);)
WITH(bulk_of_24_bytes, arrive_expect_tx(full, 24); load_bulk(smem, out, 24, full);)
WITH(bulk_from_8_bytes_off, arrive_expect_tx(full, 32); load_bulk(smem, out + 4, 32, full);)
WITH(bulk_to_8_bytes_off, arrive_expect_tx(full, 32); load_bulk(smem + 8, out, 32, full);)
WITH(bulk_beyond_shared_memory, arrive_expect_tx(full, 64);
     load_bulk(smem + SMEM_BYTES - 32, out, 64, full);)
WITH(bulk_from_shared_memory, arrive_expect_tx(full, 64); load_bulk(smem, smem + 128, 64, full);)
WITH(bulk_of_more_bytes_than_expected, arrive_expect_tx(full, 64); load_bulk(smem, out, 128, full);)
WITH(bulk_right, arrive_expect_tx(full, TILE_BYTES); load_bulk(smem, maps + 6, TILE_BYTES - 64, full);
     load_bulk(smem + TILE_BYTES - 64, reinterpret_cast<const char*>(maps + 6) + TILE_BYTES - 64, 64, full);)

// Two stages, each of which is loaded once.
#define TWO_STAGES                                      \
  START(1)                                              \
  if (first)                                            \
  {                                                     \
    init(full + 1);                                     \
    for (int i = 0; i < 2; ++i)                         \
    {                                                   \
      arrive_expect_tx(full + i, TILE_BYTES);           \
      load(smem + i * TILE_BYTES, map, full + i, 0, 0); \
    }                                                   \
  }                                                     \
  __syncthreads();                                      \
  PipelineState<2> state;                               \
  wait(full + state.stage(), state.phase());

KERNEL(state_advanced_twice)
{
  TWO_STAGES
  state.advance();
  state.advance();
  wait(full + state.stage(), state.phase());
  give(out, smem + TILE_BYTES);
}

KERNEL(state_advanced_once)
{
  TWO_STAGES
  state.advance();
  wait(full + state.stage(), state.phase());
  give(out, smem + TILE_BYTES);
}

// All threads advance the state, and one thread uses it.
KERNEL(state_that_one_thread_uses)
{
  START(1)
  PipelineState<1> state = PipelineState<1>::producer();
  if (first) init(full + 1);
  __syncthreads();
  for (int i = 0; i < 3; ++i, state.advance())
  {
    if (first)
    {
      wait(full + 1, state.phase());
      arrive_expect_tx(full, TILE_BYTES);
      load(smem, map, full, 0, 0);
    }
    wait(full, i % 2);
    __syncthreads();
    if (first) arrive(full + 1);
  }
  give(out, smem);
}

// The producer starts its first round with the readers' phase.
KERNEL(state_of_a_reader_for_the_producer)
{
  START(1)
  PipelineState<1> state;
  if (first)
  {
    init(full + 1);
    wait(full + 1, state.phase());
    arrive_expect_tx(full, TILE_BYTES);
    load(smem, map, full, 0, 0);
  }
  FINISH(0)
}

KERNEL(one_arrival_of_two)
{
  START(2)
  if (first)
  {
    arrive_expect_tx(full, TILE_BYTES);
    load(smem, map, full, 0, 0);
  }
  FINISH(0)
}

KERNEL(other_parity)
{
  START(1)
  if (first)
  {
    arrive_expect_tx(full, TILE_BYTES);
    load(smem, map, full, 0, 0);
  }
  FINISH(1)
}

// The wait for the second tile has the parity of the first tile.
KERNEL(parity_not_flipped)
{
  START(1)
  for (int tile = 0; tile < 2; ++tile)
  {
    if (first)
    {
      arrive_expect_tx(full, TILE_BYTES);
      load(smem, map, full, 0, 0);
    }
    wait(full, 0);
    __syncthreads();
  }
  give(out, smem);
}

KERNEL(barrier_never_initialised)
{
  __shared__ Barrier full;
  if (threadIdx.x == 0)
  {
    arrive_expect_tx(&full, TILE_BYTES);
    load(smem, map, &full, 0, 0);
  }
  wait(&full, 0);
  give(out, smem);
}

KERNEL(barrier_off_4)
{
  START(1)
  Barrier* const off = reinterpret_cast<Barrier*>(reinterpret_cast<char*>(full) + 4);
  if (first) init(off);
  __syncthreads();
  if (first)
  {
    arrive_expect_tx(off, TILE_BYTES);
    load(smem, map, off, 0, 0);
  }
  wait(off, 0);
  give(out, smem);
}

__global__ void map_not_a_grid_constant(Map map, const Map*, Half* out)
{
  START(1)
  if (first)
  {
    arrive_expect_tx(full, TILE_BYTES);
    load(smem, map, full, 0, 0);
  }
  FINISH(0)
}

KERNEL(map_in_shared_memory)
{
  __shared__ Map here;
  START(1)
  if (first)
  {
    here = map;
    arrive_expect_tx(full, TILE_BYTES);
    load(smem, here, full, 0, 0);
  }
  FINISH(0)
}

// Reads the tile by offsets from its start, which is 128 bytes after the start of the swizzle's pattern.
KERNEL(tile_off_the_swizzle)
{
  START(1)
  unsigned char* const tile = smem + 128;
  if (first)
  {
    indexed_from_start(tile, maps[3]);
    arrive_expect_tx(full, TILE_BYTES);
    load(tile, maps[3], full, 0, 0);
  }
  wait(full, 0);
  for (unsigned i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x)
    out[i] = reinterpret_cast<const Half*>(
      tile)[swizzled_index<Half, Swizzle::bytes128>(i / COLUMNS, i % COLUMNS)];
}

#define STORE(NAME, STATEMENTS)                                                              \
  KERNEL(NAME)                                                                               \
  {                                                                                          \
    for (unsigned i = threadIdx.x; i < SMEM_BYTES; i += blockDim.x) smem[i] = 0;             \
    fence_async();                                                                           \
    __syncthreads();                                                                         \
    if (threadIdx.x == 0)                                                                    \
    {                                                                                        \
      STATEMENTS                                                                             \
      store_commit();                                                                        \
      store_wait();                                                                          \
    }                                                                                        \
  }

STORE(store_off_64, store(map, smem + 64, 0, 0);)
STORE(store_at_a_negative_coordinate, store(map, smem, 0, -8);)
STORE(bulk_store_of_24_bytes, store_bulk(out, smem, 24);)
STORE(bulk_store_8_bytes_off, store_bulk(out + 4, smem, 32);)
STORE(bulk_reduction_of_24_bytes, reduce_bulk<Reduction::add>(reinterpret_cast<int*>(out), smem, 24);)
STORE(reduction_without_that_type, reduce<Reduction::add>(map, smem, 0, 0);)

KERNEL(wgmma_by_tcgen05s_descriptor)
{
  float d[4] = {};
  const unsigned long long tile =
    descriptor_at(shared_address(smem), tcgen05_k_major_descriptor<64, Swizzle::bytes128>());
  wgmma_fence();
  wgmma<8>(d, tile, tile, 0);
  wgmma_commit();
  wgmma_wait();
  out[threadIdx.x] = d[0];
}

KERNEL(a_parameter_is_changed)
{
  if (threadIdx.x == 0) replace_global_dim<1>(const_cast<Map*>(&map), 8);
}

// ---- host ----

struct Misuse
{
  const char* name;
  void (*kernel)(Map, const Map*, Half*);
};

#define ROW(NAME) {#NAME, NAME},
const Misuse MISUSES[] = {
  ROW(nothing_wrong) ROW(map_in_global_memory) ROW(map_off_32) ROW(map_of_zeros)
  ROW(dimension_over_2_31) ROW(tile_off_16) ROW(tile_off_64)
  ROW(tile_beyond_shared_memory) ROW(no_dynamic_shared_memory) ROW(wrong_rank) ROW(wrong_kind)
  ROW(coordinate_off_16_bytes) ROW(multicast_to_no_block) ROW(too_many_bytes_expected)
  ROW(two_arrivals_of_one) ROW(armed_without_a_load) ROW(expects_more_than_comes) ROW(expects_half)
  ROW(expects_nothing) ROW(expects_one_load_of_two) ROW(one_arrival_of_two) ROW(other_parity)
  ROW(parity_not_flipped) ROW(barrier_never_initialised) ROW(barrier_off_4)
  ROW(map_not_a_grid_constant) ROW(map_in_shared_memory) ROW(tile_off_the_swizzle) ROW(store_off_64)
  ROW(store_at_a_negative_coordinate) ROW(reduction_without_that_type)
  ROW(a_parameter_is_changed) ROW(two_threads_arrive_expect_tx) ROW(expected_without_an_arrival)
  ROW(prefetch_of_the_wrong_rank) ROW(bulk_of_24_bytes) ROW(bulk_from_8_bytes_off)
  ROW(bulk_to_8_bytes_off) ROW(bulk_beyond_shared_memory) ROW(bulk_from_shared_memory)
  ROW(bulk_of_more_bytes_than_expected) ROW(bulk_right) ROW(state_advanced_twice)
  ROW(state_advanced_once) ROW(state_that_one_thread_uses) ROW(state_of_a_reader_for_the_producer)
  ROW(bulk_store_of_24_bytes) ROW(bulk_store_8_bytes_off) ROW(halo_to_the_left) ROW(an_arrive_that_counts_two)
  ROW(bulk_multicast_to_no_block) ROW(bulk_reduction_of_24_bytes) ROW(wgmma_by_tcgen05s_descriptor)
};

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

Map encode(Half* x, cuuint64_t rows, CUtensorMapSwizzle swizzle)
{
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  Map map{};
  const cuuint64_t dims[] = {COLUMNS, rows}, strides[] = {COLUMNS * 2};
  const cuuint32_t box[] = {COLUMNS, ROWS}, ones[] = {1, 1};
  reinterpret_cast<Encode>(function)(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, x, dims, strides, box,
                                     ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                     CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

int main(int, char** arguments)
{
  std::vector<Half> values(ROWS * COLUMNS), brought(ROWS * COLUMNS, 0xEEEE);
  for (unsigned i = 0; i < values.size(); ++i) values[i] = static_cast<Half>(i * 40503u + 1);
  Half *x, *out;
  Map* maps;
  cudaMalloc(&x, TILE_BYTES);
  cudaMalloc(&out, TILE_BYTES);
  cudaMalloc(&maps, 6 * sizeof(Map) + TILE_BYTES);
  cudaMemcpy(x, values.data(), TILE_BYTES, cudaMemcpyHostToDevice);
  cudaMemcpy(out, brought.data(), TILE_BYTES, cudaMemcpyHostToDevice);
  const Map plain = encode(x, ROWS, CU_TENSOR_MAP_SWIZZLE_NONE);
  const Map host[] = {plain, Map{}, encode(x, 1ull << 32, CU_TENSOR_MAP_SWIZZLE_NONE),
                      encode(x, ROWS, CU_TENSOR_MAP_SWIZZLE_128B)};
  cudaMemcpy(maps, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemcpy(reinterpret_cast<char*>(maps + 4) + 32, &plain, sizeof plain, cudaMemcpyHostToDevice);

  cudaMemcpy(maps + 6, values.data(), TILE_BYTES, cudaMemcpyHostToDevice);

  for (const Misuse& misuse : MISUSES)
  {
    if (std::strcmp(misuse.name, arguments[1]) != 0) continue;
    const bool without = std::strstr(misuse.name, "no_dynamic") != nullptr;
    misuse.kernel<<<1, 128, without ? 0 : SMEM_BYTES>>>(plain, maps, out);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = cudaMemcpy(brought.data(), out, TILE_BYTES, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorName(error));
    else std::printf("%s\n", brought == values ? "right" : "wrong");
  }
  std::fflush(stdout);
  std::_Exit(0);
}
