// Every device function of tma_dlpack.h, so that ptxas sees each instruction.

#include <tma_dlpack.h>

using namespace tma_dlpack;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 1000  // wgmma's
constexpr unsigned long long DESCRIPTOR = k_major_descriptor<64, Swizzle::bytes128>();
static_assert(DESCRIPTOR == (1ull << 62 | 64ull << 32 | 1ull << 16));
static_assert(k_major_descriptor<128, Swizzle::none>() == (8ull << 32 | 128ull << 16));
static_assert(mn_major_descriptor<64, Swizzle::none>() == (64ull << 32 | 8ull << 16));
static_assert(mn_major_descriptor<64, Swizzle::bytes64>() ==
              (2ull << 62 | 32ull << 32 | 256ull << 16));
#endif
static_assert(tcgen05_k_major_descriptor<64, Swizzle::bytes128>() ==
              (2ull << 61 | 1ull << 46 | 64ull << 32 | 1ull << 16));
static_assert(tcgen05_mn_major_descriptor<64, Swizzle::bytes64>() ==
              (4ull << 61 | 1ull << 46 | 32ull << 32 | 256ull << 16));
static_assert(mn_major_k_step_bytes<Swizzle::bytes128, 1>(1) == 4096);
static_assert(mn_major_k_step_bytes<Swizzle::bytes64>(3) == 3072);
static_assert(k_step_bytes<64, Swizzle::bytes128>(3) == 96);
static_assert(k_step_bytes<64, Swizzle::none>(3) == 6 * 64 * 16);
static_assert(swizzled<Swizzle::bytes128>(0x3B0) == 0x3C0);
static_assert(swizzled_index<float, Swizzle::bytes32>(4, 3) == 4 * 8 + 4 + 3);

template <Reduction op>
__device__ void every_reduction(const Map& map, const void* tile, int c)
{
  reduce<op>(map, tile, c);
  reduce<op>(map, tile, c, c);
  reduce<op>(map, tile, c, c, c);
  reduce<op>(map, tile, c, c, c, c);
  reduce<op>(map, tile, evict_first(), c, c, c, c, c);
  reduce_im2col<op>(map, tile, c, c, c);
  reduce_im2col<op>(map, tile, c, c, c, c);
  reduce_im2col<op>(map, tile, c, c, c, c, c);
}

struct Numbers
{
  unsigned* u32;
  int* s32;
  unsigned long long* u64;
  long long* s64;
  __half* f16;
  __nv_bfloat16* bf16;
  float* f32;
  double* f64;
};

template <Reduction op>
__device__ void every_integer(Numbers out, const void* tile)
{
  reduce_bulk<op>(out.u32, tile, 16);
  reduce_bulk<op>(out.s32, tile, 16);
  reduce_bulk<op>(out.u64, tile, 16);
  reduce_bulk<op>(out.s64, tile, 16, evict_last());
}

__device__ void every_bulk_reduction(Numbers out, const void* tile)
{
  every_integer<Reduction::add>(out, tile);
  every_integer<Reduction::min>(out, tile);
  every_integer<Reduction::max>(out, tile);
  every_integer<Reduction::bit_and>(out, tile);
  every_integer<Reduction::bit_or>(out, tile);
  every_integer<Reduction::bit_xor>(out, tile);
  reduce_bulk<Reduction::inc>(out.u32, tile, 16);
  reduce_bulk<Reduction::dec>(out.u32, tile, 16);
  reduce_bulk<Reduction::add>(out.f16, tile, 16);
  reduce_bulk<Reduction::min>(out.f16, tile, 16);
  reduce_bulk<Reduction::max>(out.f16, tile, 16, evict_first());
  reduce_bulk<Reduction::add>(out.bf16, tile, 16);
  reduce_bulk<Reduction::min>(out.bf16, tile, 16);
  reduce_bulk<Reduction::max>(out.bf16, tile, 16);
  reduce_bulk<Reduction::add>(out.f32, tile, 16);
  reduce_bulk<Reduction::add>(out.f64, tile, 16);
}

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_REPLACE
#endif

__device__ void every_field(Map* map, Map* in_global_memory, unsigned n)
{
#ifdef HAS_REPLACE
  replace_global_address(map, in_global_memory);
  replace_rank(map, n);
  replace_global_dim<0>(map, n);
  replace_global_dim<4>(map, n);
  replace_global_stride<0>(map, n);
  replace_global_stride<3>(map, n);
  replace_box_dim<0>(map, n);
  replace_box_dim<4>(map, n);
  replace_element_stride<0>(map, n);
  replace_element_stride<4>(map, n);
  replace_elemtype<10>(map);
  replace_swizzle_mode<Swizzle::bytes128>(map);
  replace_interleave_layout<2>(map);
  replace_fill_mode<1>(map);
  replace_global_dim<1>(in_global_memory, n);
#endif
}

extern "C" __global__ void every_change(Map* in_global_memory, unsigned n)
{
  __shared__ Map map;
  if (threadIdx.x == 0) every_field(&map, in_global_memory, n);
  publish(in_global_memory, &map);
  fence_release();
  fence_acquire(in_global_memory);
}

#if defined(HAS_REPLACE) && __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
#define HAS_PAIRS
template <class... Coords>
__device__ void pair_loads(void* tile, const Map& map, Barrier* full, Coords... c)
{
  load_cta_group2(tile, map, full, c...);
  load_cta_group2(tile, map, full, evict_last(), c...);
  load_multicast_cta_group2(tile, map, full, 3, c...);
  load_multicast_cta_group2(tile, map, full, 3, evict_last(), c...);
}

__device__ void every_pair_load(void* tile, const Map& map, Barrier* full, int c)
{
  pair_loads(tile, map, full, c);
  pair_loads(tile, map, full, c, c);
  pair_loads(tile, map, full, c, c, c);
  pair_loads(tile, map, full, c, c, c, c);
  pair_loads(tile, map, full, c, c, c, c, c);
}
#endif

extern "C" __global__ void every_helper(const __grid_constant__ Map map, const Map* in_global_memory,
                                        unsigned tx_bytes, int c, Numbers numbers)
{
  __shared__ alignas(1024) unsigned char tile[1024];
  __shared__ Barrier full;

  prefetch_map(map);
  fence_acquire(in_global_memory);
  init(&full);
  init(&full, 2);
  cluster_sync();
  arrive_expect_tx(&full, tx_bytes);
  expect_tx_only(&full, tx_bytes);
  arrive(&full);
  arrive(&full, 2);
  if (elect_one()) wait_dependencies();

  load_bulk(tile, in_global_memory, 128, &full);
  load_bulk(tile, in_global_memory, 128, &full, evict_first());
  load_bulk_multicast(tile, in_global_memory, 128, &full, 3);
  load_bulk_multicast(tile, in_global_memory, 128, &full, 3, evict_first());
  prefetch_tile(map, c);
  prefetch_tile(map, c, c);
  prefetch_tile(map, c, c, c);
  prefetch_tile(map, c, c, c, c);
  prefetch_tile(map, c, c, c, c, c);
  prefetch_tile(map, evict_last(), c);
  prefetch_tile(map, evict_last(), c, c);
  prefetch_tile(map, evict_last(), c, c, c);
  prefetch_tile(map, evict_last(), c, c, c, c);
  prefetch_tile(map, evict_last(), c, c, c, c, c);
  load(tile, map, &full, c);
  load(tile, map, &full, c, c);
  load(tile, *in_global_memory, &full, c, c, c);
  load(tile, map, &full, c, c, c, c);
  load(tile, map, &full, c, c, c, c, c);
  load_im2col(tile, map, &full, c, c, c, OffsetsW{1});
  load_im2col(tile, map, &full, c, c, c, c, OffsetsWH{1, 2});
  load_im2col(tile, map, &full, c, c, c, c, c, OffsetsWHD{1, 2, 3});

  load(tile, map, &full, evict_last(), c);
  load(tile, map, &full, evict_last(), c, c, c, c, c);
  load_multicast(tile, map, &full, 3, c);
  load_multicast(tile, map, &full, 3, c, c);
  load_multicast(tile, map, &full, 3, c, c, c);
  load_multicast(tile, map, &full, 3, c, c, c, c);
  load_multicast(tile, map, &full, 3, c, c, c, c, c);
  load_multicast(tile, map, &full, 3, evict_normal(), c, c);
  load_im2col_multicast(tile, map, &full, 3, c, c, c, OffsetsW{1});
  load_im2col_multicast(tile, map, &full, 3, c, c, c, c, OffsetsWH{1, 2});
  load_im2col_multicast(tile, map, &full, 3, c, c, c, c, c, OffsetsWHD{1, 2, 3});

  arrive(&full);
  arrive_remote(&full, cluster_rank());
  cluster_arrive_relaxed();
  cluster_wait();
  if (!test_wait(&full, 0) && !try_wait(&full, 0)) wait(&full, 0);
  wait_cluster(&full, 1);
  sync_threads(1, 128);
  fence_async();
  fence_async_global();

  store_bulk(const_cast<Map*>(in_global_memory), tile, 16);
  store_bulk(const_cast<Map*>(in_global_memory), tile, 16, evict_first());
  every_bulk_reduction(numbers, tile);
  store(map, tile, c);
  store(map, tile, c, c);
  store(map, tile, c, c, c);
  store(map, tile, c, c, c, c);
  store(map, tile, c, c, c, c, c);
  store(map, tile, evict_first(), c, c);
  store_im2col(map, tile, c, c, c);
  store_im2col(map, tile, c, c, c, c);
  store_im2col(map, tile, c, c, c, c, c);

  every_reduction<Reduction::add>(map, tile, c);
  every_reduction<Reduction::min>(map, tile, c);
  every_reduction<Reduction::max>(map, tile, c);
  every_reduction<Reduction::inc>(map, tile, c);
  every_reduction<Reduction::dec>(map, tile, c);
  every_reduction<Reduction::bit_and>(map, tile, c);
  every_reduction<Reduction::bit_or>(map, tile, c);
  every_reduction<Reduction::bit_xor>(map, tile, c);

  store_commit();
  store_wait_read<3>();
  store_wait_read();
  store_wait<1>();
  store_wait();

  launch_dependents();

#if __CUDA_ARCH__ >= 1000
  load_gather4(tile, map, &full, c, c, c, c, c);
  load_im2col_w(tile, map, &full, c, c, c, HaloW{1, 2});
  load_im2col_w(tile, map, &full, c, c, c, c, HaloW{1, 2});
  load_im2col_w(tile, map, &full, c, c, c, c, c, HaloW{1, 2});
#endif
#ifdef HAS_PAIRS
  load_im2col_w128(tile, map, &full, c, c, c, HaloW{1, 2});
  load_im2col_w128(tile, map, &full, c, c, c, c, HaloW{1, 2});
  load_im2col_w128(tile, map, &full, c, c, c, c, c, HaloW{1, 2});
  load_gather4_multicast(tile, map, &full, 3, c, c, c, c, c);
  store_scatter4(map, tile, c, c, c, c, c);
  every_pair_load(tile, map, &full, c);
#endif
#if __CUDA_ARCH__ == 1070
  load_from(tile, map, in_global_memory, &full, c);
  load_from(tile, map, in_global_memory, &full, c, c);
  load_from(tile, map, in_global_memory, &full, c, c, c);
  load_from(tile, map, in_global_memory, &full, c, c, c, c);
  load_from(tile, map, in_global_memory, &full, c, c, c, c, c);
#endif

}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1206
template <unsigned n>
__device__ void every_wgmma(unsigned long long tile, float* out)
{
  constexpr Major K = Major::K, MN = Major::MN;
  float d[n / 2] = {};
  const unsigned a[4] = {1, 2, 3, 4};
  wgmma_fence();
  wgmma<n>(d, tile, tile, 0);
  wgmma<n, MmaType::bf16, MmaType::bf16, MN, K>(d, tile, tile, 1);
  wgmma<n, MmaType::fp16, MmaType::fp16, K, MN>(d, tile, tile, 1);
  wgmma<n, MmaType::fp16, MmaType::fp16, MN, MN>(d, tile, tile, 1);
  wgmma<n, MmaType::tf32>(d, tile, tile, 1);
  wgmma<n, MmaType::e4m3>(d, tile, tile, 1);
  wgmma<n, MmaType::e4m3, MmaType::e5m2>(d, tile, tile, 1);
  wgmma<n, MmaType::e5m2, MmaType::e4m3>(d, tile, tile, 1);
  wgmma<n, MmaType::e5m2>(d, tile, tile, 1);
  wgmma<n>(d, a, tile, 1);
  wgmma<n, MmaType::fp16, MmaType::fp16, MN>(d, a, tile, 1);
  wgmma<n, MmaType::tf32>(d, a, tile, 1);
  wgmma<n, MmaType::e4m3, MmaType::e5m2>(d, a, tile, 1);
  wgmma_commit();
  wgmma_wait<1>();
  wgmma_wait();
  for (unsigned i = 0; i < n / 2; ++i) out[i * blockDim.x + threadIdx.x] = d[i];
}

extern "C" __global__ void every_product(float* out)
{
  __shared__ alignas(1024) unsigned char tile[1024];
  const unsigned long long a = descriptor_at(shared_address(tile), DESCRIPTOR);
  every_wgmma<8>(a, out);
  every_wgmma<24>(a, out);
  every_wgmma<128>(a, out);
  every_wgmma<248>(a, out);
  every_wgmma<256>(a, out);
}
#endif

#if defined(HAS_PAIRS) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1206
template <unsigned count>
__device__ void every_column(unsigned columns, float* out)
{
  float values[count];
  unsigned bits[count];
  tcgen05_load(values, columns);
  tcgen05_load(bits, columns);
  tcgen05_wait_load();
  for (unsigned i = 0; i < count; ++i) out[i] = values[i] + bits[i];
  tcgen05_store(columns, values);
  tcgen05_store(columns, bits);
  tcgen05_wait_store();
}

template <unsigned cta_group>
__device__ void every_tcgen05(float* out)
{
  __shared__ alignas(1024) unsigned char tile[1024];
  __shared__ Barrier full;
  __shared__ unsigned allocated;
  constexpr unsigned instruction = tcgen05_instruction_descriptor<MmaType::bf16, 128, 256>();
  const unsigned long long a =
    descriptor_at(shared_address(tile), tcgen05_k_major_descriptor<64, Swizzle::bytes128>());
  init(&full, 3);
  tcgen05_alloc<cta_group>(&allocated, 256);
  tcgen05_relinquish<cta_group>();
  tcgen05_fence_before();
  __syncthreads();
  tcgen05_fence_after();
  tcgen05_mma<MmaType::bf16, cta_group>(allocated, a, a, instruction, 0);
  tcgen05_mma<MmaType::fp16, cta_group>(allocated, a, a, instruction, 1);
  tcgen05_mma<MmaType::tf32, cta_group>(allocated, a, a, instruction, 1);
  tcgen05_mma<MmaType::e4m3, cta_group>(allocated, a, a, instruction, 1);
  tcgen05_mma<MmaType::e5m2, cta_group>(allocated, allocated, a, instruction, 1);
  tcgen05_commit<cta_group>(&full);
  tcgen05_commit<cta_group>(&full, 3);
  wait(&full, 0);
  every_column<1>(allocated, out);
  every_column<2>(allocated, out);
  every_column<4>(allocated, out);
  every_column<8>(allocated, out);
  every_column<16>(allocated, out);
  every_column<32>(allocated, out);
  every_column<64>(allocated, out);
  every_column<128>(allocated, out);
  tcgen05_dealloc<cta_group>(allocated, 256);
}

extern "C" __global__ void every_product_of_tcgen05(float* out) { every_tcgen05<1>(out); }
extern "C" __global__ void every_product_of_a_pair(float* out) { every_tcgen05<2>(out); }
#endif

#ifdef HAS_REPLACE
extern "C" __global__ void __launch_bounds__(256, 1) registers_move(int* out)
{
  if (threadIdx.x < 128) give_registers<40>();
  else take_registers<200>();
  out[threadIdx.x] = 1;
}
#endif

// A ring of three stages, and a map whose rank is known.
extern "C" __global__ void ring(const __grid_constant__ RankedMap<2> map, int* out)
{
  __shared__ alignas(1024) unsigned char tiles[3][1024];
  __shared__ Barrier full[3], empty[3];
  PipelineState<3> state;
  auto filled = PipelineState<3>::producer();
  for (int i = 0; i < 4; ++i, state.advance(), filled.advance())
  {
    wait(empty + filled.stage(), filled.phase());
    arrive_expect_tx(full + filled.stage(), 1024);
    load(tiles[filled.stage()], map, full + filled.stage(), 0, i);
    wait(full + state.stage(), state.phase());
  }
  state.advance(2);
  *out = state.stage();
}
