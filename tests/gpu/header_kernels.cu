// The verbs of tma_dlpack.h that copies.cu and hopper_gemm.cu do not use, run with two blocks in a cluster.
#include <tma_dlpack.h>

using namespace tma_dlpack;

constexpr unsigned long long TWO_SECONDS = 2'000'000'000;
constexpr unsigned TAP_W = 1, TAP_H = 2, TAP_D = 1;

extern __shared__ __align__(1024) unsigned char shared_memory[];

struct Coords { int c[5]; };  // innermost first

#define CLUSTER extern "C" __global__ void __cluster_dims__(2)

// Write each block's shared memory to `out`, tile after tile. If a copy does not arrive, `out` stays unchanged.
__device__ void give(Barrier* full, unsigned bytes, unsigned char* out)
{
  if (!wait_at_most(full, 0, TWO_SECONDS)) return;
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
    out[blockIdx.x * bytes + i] = shared_memory[i];
}

__device__ Barrier* start(unsigned bytes)
{
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + bytes);
  if (threadIdx.x == 0)
  {
    init(full);
    arrive_expect_tx(full, bytes);
  }
  cluster_sync();
  return full;
}

// The second block loads the tiles of both blocks.
#define MULTICAST(NAME, LOAD)                                                                     \
  CLUSTER NAME(const __grid_constant__ Map map, const Coords at, unsigned bytes, unsigned char* out) \
  {                                                                                               \
    const int* const c = at.c;                                                                    \
    Barrier* const full = start(bytes);                                                           \
    if (cluster_rank() == 1 && threadIdx.x == 0) LOAD;                                            \
    give(full, bytes, out);                                                                       \
    cluster_sync();                                                                               \
  }

#define TO_BOTH shared_memory, map, full, 3
MULTICAST(multicast_1, load_multicast(TO_BOTH, c[0]))
MULTICAST(multicast_2, load_multicast(TO_BOTH, c[0], c[1]))
MULTICAST(multicast_3, load_multicast(TO_BOTH, c[0], c[1], c[2]))
MULTICAST(multicast_4, load_multicast(TO_BOTH, c[0], c[1], c[2], c[3]))
MULTICAST(multicast_5, load_multicast(TO_BOTH, c[0], c[1], c[2], c[3], c[4]))
MULTICAST(multicast_policy, load_multicast(TO_BOTH, evict_last(), c[0], c[1]))
MULTICAST(im2col_3, load_im2col_multicast(TO_BOTH, c[0], c[1], c[2], OffsetsW{TAP_W}))
MULTICAST(im2col_4, load_im2col_multicast(TO_BOTH, c[0], c[1], c[2], c[3], OffsetsWH{TAP_W, TAP_H}))
MULTICAST(im2col_5, load_im2col_multicast(TO_BOTH, c[0], c[1], c[2], c[3], c[4],
                                          OffsetsWHD{TAP_W, TAP_H, TAP_D}))

// Only the block whose bit is set gets the tile. The first block's barrier expects no bytes.
CLUSTER multicast_to_one(const __grid_constant__ Map map, const Coords at, unsigned bytes,
                         unsigned char* out)
{
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + bytes);
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared_memory[i] = 0xEE;
  fence_async();
  if (threadIdx.x == 0)
  {
    init(full);
    if (cluster_rank() == 1) arrive_expect_tx(full, bytes);
    else arrive(full);
  }
  cluster_sync();
  if (cluster_rank() == 0 && threadIdx.x == 0)
    load_multicast(shared_memory, map, full, 2, at.c[0], at.c[1]);
  give(full, bytes, out);
  cluster_sync();
}

// Copy and add through every rank with a policy for L2. One block.
#define POLICIES(RANK, COORDS)                                                                      \
  extern "C" __global__ void policies_##RANK(                                                       \
    const __grid_constant__ Map source, const __grid_constant__ Map copy,                           \
    const __grid_constant__ Map sum, const Coords at, unsigned bytes)                               \
  {                                                                                                 \
    const int* const c = at.c;                                                                      \
    Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + bytes);                        \
    if (threadIdx.x != 0) return;                                                                   \
    prefetch_map(source);                                                                           \
    init(full);                                                                                     \
    arrive_expect_tx(full, bytes);                                                                         \
    load(shared_memory, source, full, evict_last(), COORDS);                                        \
    if (!wait_at_most(full, 0, TWO_SECONDS)) return;                                                \
    store(copy, shared_memory, evict_first(), COORDS);                                              \
    reduce<Reduction::add>(sum, shared_memory, evict_normal(), COORDS);                          \
    store_commit();                                                                                       \
    store_wait();                                                                                  \
  }

#define C1 c[0]
#define C2 c[0], c[1]
#define C3 c[0], c[1], c[2]
#define C4 c[0], c[1], c[2], c[3]
#define C5 c[0], c[1], c[2], c[3], c[4]
POLICIES(1, C1)
POLICIES(2, C2)
POLICIES(3, C3)
POLICIES(4, C4)
POLICIES(5, C5)

// Every thread of block 1 writes a word and arrives at block 0's barrier. Then block 0 reads all words.
CLUSTER arrive_at_the_other_block(unsigned* words, unsigned* out)
{
  __shared__ Barrier all;
  __shared__ Barrier one;
  if (threadIdx.x == 0)
  {
    init(&all, blockDim.x);
    init(&one, 1);
  }
  cluster_sync();
  if (cluster_rank() == 1)
  {
    words[threadIdx.x] = 1000 + threadIdx.x;
    arrive_remote(&all, 0);
    if (threadIdx.x == 0) arrive_remote_relaxed(&one, 0);
  }
  else
  {
    wait_cluster(&all, 0);
    wait(&one, 0);
    out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
  }
  cluster_sync();
}

// Two warps wait at a named barrier in which the other warps do not take part.
extern "C" __global__ void two_warps_meet(unsigned* out)
{
  __shared__ unsigned word;
  if (threadIdx.x >= 64) return;
  if (threadIdx.x == 0) word = 77;
  sync_threads(3, 64);
  out[threadIdx.x] = word;
}

// Read a tile with rows of one span in row-major order, with swizzled_index.
template <class Element, Swizzle swizzle>
__device__ void unswizzle(const Map& map, Element* out, unsigned rows)
{
  constexpr unsigned columns = span_bytes(swizzle) / sizeof(Element);
  const unsigned bytes = rows * span_bytes(swizzle);
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + bytes);
  if (threadIdx.x == 0)
  {
    init(full);
    arrive_expect_tx(full, bytes);
    load(shared_memory, map, full, 0, 0);
  }
  __syncthreads();
  if (!wait_at_most(full, 0, TWO_SECONDS)) return;
  const Element* const tile = reinterpret_cast<const Element*>(shared_memory);
  for (unsigned i = threadIdx.x; i < rows * columns; i += blockDim.x)
    out[i] = tile[swizzled_index<Element, swizzle>(i / columns, i % columns)];
}

#define UNSWIZZLE(BITS, TYPE, SPAN)                                                                \
  extern "C" __global__ void unswizzle_uint##BITS##_bytes##SPAN(const __grid_constant__ Map map,   \
                                                                TYPE* out, unsigned rows)          \
  {                                                                                                \
    unswizzle<TYPE, Swizzle::bytes##SPAN>(map, out, rows);                                         \
  }

UNSWIZZLE(8, unsigned char, 32)
UNSWIZZLE(16, unsigned short, 32)
UNSWIZZLE(32, unsigned, 64)
UNSWIZZLE(16, unsigned short, 64)
UNSWIZZLE(8, unsigned char, 128)
UNSWIZZLE(16, unsigned short, 128)
UNSWIZZLE(32, unsigned, 128)
UNSWIZZLE(64, unsigned long long, 128)

// c (64, 8) = a x b^T in bf16, b (8, 64); a is (64, 64), or (64, 64) transposed: then its rows are K.
// The order of tiles in memory is [columns of one span][rows][span].
template <Swizzle swizzle, bool transposed>
__device__ void multiply(const Map& a_map, const Map& b_map, float* c)
{
  constexpr unsigned span = span_bytes(swizzle);
  constexpr unsigned long long a_layout =
    transposed ? mn_major_descriptor<64, swizzle>() : k_major_descriptor<64, swizzle>();
  constexpr unsigned long long b_layout = k_major_descriptor<8, swizzle>();
  unsigned char* const a = shared_memory;
  unsigned char* const b = shared_memory + 64 * 128;
  Barrier* const full = reinterpret_cast<Barrier*>(b + 8 * 128);
  if (threadIdx.x == 0)
  {
    init(full);
    arrive_expect_tx(full, (64 + 8) * 128);
    for (unsigned column = 0; column < 128 / span; ++column)
    {
      load(a + column * 64 * span, a_map, full, column * span / 2, 0);
      load(b + column * 8 * span, b_map, full, column * span / 2, 0);
    }
  }
  __syncthreads();
  if (!wait_at_most(full, 0, TWO_SECONDS)) return;
  float d[4] = {0, 0, 0, 0};
  wgmma_fence();
#pragma unroll
  for (unsigned step = 0; step < 4; ++step)
  {
    const unsigned a_step =
      transposed ? mn_major_k_step_bytes<swizzle>(step) : k_step_bytes<64, swizzle>(step);
    asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, %6, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(descriptor_at(shared_address(a) + a_step, a_layout)),
        "l"(descriptor_at(shared_address(b) + k_step_bytes<8, swizzle>(step), b_layout)),
        "n"(transposed ? 1 : 0));
  }
  wgmma_commit();
  wgmma_wait();
  const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
  for (unsigned i = 0; i < 4; ++i) c[(row + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

#define MULTIPLY(NAME, SWIZZLE, TRANSPOSED)                                                      \
  extern "C" __global__ void __launch_bounds__(128)                                              \
    NAME##_##SWIZZLE(const __grid_constant__ Map a, const __grid_constant__ Map b, float* c)     \
  {                                                                                              \
    multiply<Swizzle::SWIZZLE, TRANSPOSED>(a, b, c);                                             \
  }

MULTIPLY(multiply, none, false)
MULTIPLY(multiply, bytes32, false)
MULTIPLY(multiply, bytes64, false)
MULTIPLY(multiply, bytes128, false)
MULTIPLY(multiply_transposed, none, true)
MULTIPLY(multiply_transposed, bytes32, true)
MULTIPLY(multiply_transposed, bytes64, true)
MULTIPLY(multiply_transposed, bytes128, true)

// ---- the verbs of 0.4 ----

// out[warp] counts the elected threads of two elections, out[32 + warp] is the elected lane plus 1.
extern "C" __global__ void elections(unsigned* out)
{
  for (int time = 0; time < 2; ++time)
    if (elect_one())
    {
      atomicAdd(out + threadIdx.x / 32, 1u);
      out[32 + threadIdx.x / 32] = threadIdx.x % 32 + 1;
    }
}

// Bytes are expected without an arrival: the phase does not end before one. flags: test_wait before and
// after; what try_wait says at the end.
extern "C" __global__ void expected_without_an_arrival(const __grid_constant__ Map map, const Coords at,
                                                       unsigned bytes, unsigned char* out,
                                                       unsigned* flags)
{
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + bytes);
  if (threadIdx.x == 0)
  {
    init(full);
    expect_tx_only(full, bytes);
    load(shared_memory, map, full, at.c[0], at.c[1]);
    for (int i = 0; i < 100; ++i) __nanosleep(10000);  // the bytes are there by then
    flags[0] = test_wait(full, 0);
    arrive(full);
    while (!test_wait(full, 0)) {}
    flags[1] = test_wait(full, 0), flags[2] = try_wait(full, 0);
  }
  __syncthreads();
  give(full, bytes, out);
}

// Copy contiguous bytes through shared memory, with and without a policy.
template <class... Policy>
__device__ void copy_bulk(const unsigned char* from, unsigned char* to, unsigned bytes, Policy... policy)
{
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + bytes);
  if (threadIdx.x >= 32 || !elect_one()) return;
  init(full);
  arrive_expect_tx(full, bytes);
  load_bulk(shared_memory, from, bytes, full, policy...);
  if (!wait_at_most(full, 0, TWO_SECONDS)) return;
  store_bulk(to, shared_memory, bytes, policy...);
  store_commit();
  store_wait();
}

extern "C" __global__ void bulk(const unsigned char* from, unsigned char* to, unsigned bytes)
{
  copy_bulk(from, to, bytes);
}

extern "C" __global__ void bulk_policy(const unsigned char* from, unsigned char* to, unsigned bytes)
{
  copy_bulk(from, to, bytes, evict_first());
}

// Prefetch a tile, and load it by a map whose rank is known at compile time.
#define PREFETCH(RANK, COORDS)                                                                     \
  extern "C" __global__ void prefetch_##RANK(const __grid_constant__ RankedMap<RANK> map,          \
                                             const Coords at, unsigned bytes, unsigned char* out)  \
  {                                                                                                \
    const int* const c = at.c;                                                                     \
    Barrier* const full = start(bytes);                                                            \
    if (threadIdx.x == 0)                                                                          \
    {                                                                                              \
      prefetch_tile(map, COORDS);                                                                  \
      prefetch_tile(map, evict_last(), COORDS);                                                    \
      load(shared_memory, map, full, COORDS);                                                      \
    }                                                                                              \
    give(full, bytes, out);                                                                        \
  }

PREFETCH(1, C1)
PREFETCH(2, C2)
PREFETCH(3, C3)
PREFETCH(4, C4)
PREFETCH(5, C5)

// A ring: one warp loads the tiles of a matrix of `rows` rows, 8 x 32 floats each, another warp sums every
// tile, thread by thread, in order; out[tile * 32 + lane].
template <unsigned stages>
__device__ void sum_tiles(const RankedMap<2>& map, int tiles, float* out)
{
  constexpr unsigned BYTES = 8 * 32 * sizeof(float);
  __shared__ Barrier full[stages], empty[stages];
  float* const ring = reinterpret_cast<float*>(shared_memory);
  if (threadIdx.x == 0)
    for (unsigned stage = 0; stage < stages; ++stage) init(full + stage), init(empty + stage, 32);
  __syncthreads();
  if (threadIdx.x < 32)
  {
    if (!elect_one()) return;
    auto at = PipelineState<stages>::producer();
    for (int tile = 0; tile < tiles; ++tile, at.advance())
    {
      wait(empty + at.stage(), at.phase());
      arrive_expect_tx(full + at.stage(), BYTES);
      load(ring + at.stage() * BYTES / 4, map, full + at.stage(), 0, tile * 8);
    }
  }
  else
  {
    PipelineState<stages> at;
    for (int tile = 0; tile < tiles; ++tile, at.advance())
    {
      wait(full + at.stage(), at.phase());
      float sum = 0;
      for (int row = 0; row < 8; ++row) sum += ring[at.stage() * BYTES / 4 + row * 32 + threadIdx.x % 32];
      arrive(empty + at.stage());
      out[tile * 32 + threadIdx.x % 32] = sum;
    }
  }
}

#define RING(STAGES)                                                                                \
  extern "C" __global__ void __launch_bounds__(64)                                                  \
    ring_##STAGES(const __grid_constant__ RankedMap<2> map, int tiles, float* out)                  \
  {                                                                                                 \
    sum_tiles<STAGES>(map, tiles, out);                                                             \
  }

RING(1)
RING(2)
RING(3)
RING(5)

// Two warps take every second tile: each advances by 2.
extern "C" __global__ void states(unsigned* out)
{
  PipelineState<3> one = PipelineState<3>::producer(), two = one;
  for (unsigned i = 0; i < 12; ++i)
  {
    out[2 * i] = one.stage() << 1 | one.phase();
    out[2 * i + 1] = two.stage() << 1 | two.phase();
    one.advance();
    if (one.stage() < 3) one.advance(i % 5);
    two.advance(1 + i % 5);
  }
}
