// Kernels with one mistake each (..._wrong) and their neighbours without it (..._right). In EXPECTED
// of test_rules.py stands what lint finds. kernels.ptx is made of this file by
//   nvcc -ptx -lineinfo -std=c++17 -arch=sm_90a -o kernels.ptx kernels.cu
// and checked in, so that a machine without nvcc tests it.
#include <cstdint>
#include <cuda.h>

#define KERNEL extern "C" __global__ void

__device__ inline uint32_t shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int groups> __device__ inline void wait_read()
{
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}

__device__ inline void store_bulk(void* to, const void* from, int bytes)
{
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared(from)),
               "r"(bytes) : "memory");
}

__device__ inline void store_tile(const CUtensorMap* map, const void* from, int x, int y)
{
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
               "r"(x), "r"(y), "r"(shared(from)) : "memory");
}

__device__ inline void load_tile(void* to, const CUtensorMap* map, int x, int y, uint64_t* barrier)
{
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(shared(to)), "l"(map), "r"(x), "r"(y), "r"(shared(barrier)) : "memory");
}

__device__ inline void load_bulk(void* to, const void* from, int bytes, uint64_t* barrier)
{
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(shared(to)), "l"(from), "r"(bytes), "r"(shared(barrier)) : "memory");
}

__device__ inline void init(uint64_t* barrier)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(barrier)) : "memory");
}

__device__ inline void expect(uint64_t* barrier, int bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)), "r"(bytes) : "memory");
}

__device__ inline void wait(uint64_t* barrier, int parity)
{
  asm volatile("{\n.reg .pred p;\nLAB_WAIT:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(shared(barrier)), "r"(parity) : "memory");
}

__device__ inline bool elect()
{
  uint32_t elected = 0;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n@p mov.u32 %0, 1;\n}" : "+r"(elected));
  return elected != 0;
}

// ---- PROXY_FENCE: ordinary stores, then a bulk store of the same bytes ----

template <bool fenced> __device__ void write_and_store(int* out)
{
  __shared__ alignas(128) int tile[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = i;
  if (fenced) fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(out, tile, 4096);
    commit();
    wait_read<0>();
  }
}
KERNEL proxy_fence_wrong(int* out) { write_and_store<false>(out); }
KERNEL proxy_fence_right(int* out) { write_and_store<true>(out); }

// The tile is written by stmatrix through a swizzle, stored with a map by an elected thread.
template <bool fenced> __device__ void matrix_and_store(const CUtensorMap* map, uint32_t value)
{
  extern __shared__ __align__(1024) char memory[];
  int row = threadIdx.x % 32;
  uint32_t at = shared(memory) + 4096 + row * 128;
  at ^= (at >> 3) & 0x70;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(value) : "memory");
  if (fenced) fence_async();
  __syncthreads();
  if (threadIdx.x / 32 == 0 && elect()) {
    store_tile(map, memory + 4096, 0, 0);
    commit();
    wait_read<0>();
  }
}
KERNEL proxy_fence_matrix_wrong(const __grid_constant__ CUtensorMap map, uint32_t v) { matrix_and_store<false>(&map, v); }
KERNEL proxy_fence_matrix_right(const __grid_constant__ CUtensorMap map, uint32_t v) { matrix_and_store<true>(&map, v); }

// The fence is after a flag, the store after the same or after another one.
template <bool same> __device__ void fence_behind_a_flag(int* out, int flag, int other)
{
  __shared__ alignas(128) int tile[1024];
  tile[threadIdx.x] = flag;
  if (flag) {
    fence_async();
    out[0] = 1;
  }
  __syncthreads();
  if (threadIdx.x == 0 && (same ? flag : other)) {
    store_bulk(out, tile, 4096);
    commit();
    wait_read<0>();
  }
}
KERNEL proxy_fence_flag_wrong(int* out, int flag, int other) { fence_behind_a_flag<false>(out, flag, other); }
KERNEL proxy_fence_flag_right(int* out, int flag, int other) { fence_behind_a_flag<true>(out, flag, other); }

// The buffer that is written without a fence is another one, or the part after the stored part.
KERNEL proxy_fence_elsewhere_right(int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(128) int scratch[1024];
  tile[threadIdx.x] = 1;
  fence_async();
  scratch[threadIdx.x] = 2;
  __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(out, tile, 4096);
    commit();
    wait_read<0>();
  }
  out[threadIdx.x + 2048] = scratch[threadIdx.x ^ 1];
}

// Ordinary loads, then a bulk load over them.
template <bool fenced> __device__ void read_and_load(const CUtensorMap* map, int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier);
    fence_init();
  }
  __syncthreads();
  for (int k = 0; k < 8; ++k) {
    if (threadIdx.x == 0) {
      expect(&barrier, 4096);
      load_tile(tile, map, 0, k * 32, &barrier);
    }
    wait(&barrier, k & 1);
    out[k * 1024 + threadIdx.x] = tile[threadIdx.x];
    if (fenced) fence_async();
    __syncthreads();
  }
}
KERNEL proxy_fence_read_wrong(const __grid_constant__ CUtensorMap map, int* out) { read_and_load<false>(&map, out); }
KERNEL proxy_fence_read_right(const __grid_constant__ CUtensorMap map, int* out) { read_and_load<true>(&map, out); }

// ---- BULK_WAIT ----

template <bool committed, bool waited> __device__ void store_and_end(int* out)
{
  __shared__ alignas(128) int tile[1024];
  tile[threadIdx.x] = 1;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(out, tile, 4096);
    if (committed) commit();
    if (waited) wait_read<0>();
  }
}
KERNEL bulk_wait_commit_wrong(int* out) { store_and_end<false, true>(out); }
KERNEL bulk_wait_end_wrong(int* out) { store_and_end<true, false>(out); }
KERNEL bulk_wait_end_right(int* out) { store_and_end<true, true>(out); }

// The tile is written again: after a wait, and after a barrier that lets the others know of it.
template <bool waited, bool published> __device__ void write_again(int* out, int turns)
{
  __shared__ alignas(128) int tile[256];
  for (int turn = 0; turn < turns; ++turn) {
    if (waited && threadIdx.x == 0) wait_read<0>();
    if (published) __syncthreads();
    tile[threadIdx.x] = turn;
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      store_bulk(out + turn * 256, tile, 1024);
      commit();
    }
  }
  if (threadIdx.x == 0) wait_read<0>();
}
KERNEL bulk_wait_again_wrong(int* out, int turns) { write_again<false, true>(out, turns); }
KERNEL bulk_wait_others_wrong(int* out, int turns) { write_again<true, false>(out, turns); }
KERNEL bulk_wait_again_right(int* out, int turns) { write_again<true, true>(out, turns); }

// A stage is loaded, stored and loaded again by one thread: the store's own group must be over.
template <int groups> __device__ void copy_in_stages(const char* in, char* out, int turns)
{
  __shared__ alignas(128) char stage[2][2048];
  __shared__ alignas(8) uint64_t barrier[2];
  if (threadIdx.x != 0) return;
  init(&barrier[0]);
  init(&barrier[1]);
  fence_init();
  for (int turn = 0; turn < 2; ++turn) {
    expect(&barrier[turn], 2048);
    load_bulk(stage[turn], in + turn * 2048, 2048, &barrier[turn]);
  }
  for (int turn = 0; turn < turns; ++turn) {
    int s = turn % 2;
    wait(&barrier[s], turn / 2 % 2);
    store_bulk(out + turn * 2048, stage[s], 2048);
    commit();
    if (turn + 2 < turns) {
      wait_read<groups>();
      expect(&barrier[s], 2048);
      load_bulk(stage[s], in + (turn + 2) * 2048, 2048, &barrier[s]);
    }
  }
  wait_read<0>();
}
KERNEL bulk_wait_stage_wrong(const char* in, char* out, int turns) { copy_in_stages<1>(in, out, turns); }
KERNEL bulk_wait_stage_right(const char* in, char* out, int turns) { copy_in_stages<0>(in, out, turns); }

// ---- BARRIER_INIT ----

template <bool fenced, bool published> __device__ void load_once(const CUtensorMap* map, int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier);
    if (fenced) fence_init();
  }
  if (published) __syncthreads();
  if (threadIdx.x == 0) {
    expect(&barrier, 4096);
    load_tile(tile, map, 0, 0, &barrier);
  }
  wait(&barrier, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
KERNEL barrier_init_both_wrong(const __grid_constant__ CUtensorMap map, int* out) { load_once<false, false>(&map, out); }
KERNEL barrier_init_others_wrong(const __grid_constant__ CUtensorMap map, int* out) { load_once<true, false>(&map, out); }
KERNEL barrier_init_fence_wrong(const __grid_constant__ CUtensorMap map, int* out) { load_once<false, true>(&map, out); }
KERNEL barrier_init_right(const __grid_constant__ CUtensorMap map, int* out) { load_once<true, true>(&map, out); }

// ---- MAP_FENCE ----

template <bool released, bool acquired> __device__ void change_and_load(CUtensorMap* map, void* address, int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier);
    fence_init();
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(address) : "memory");
    if (released) asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
    if (acquired) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
    expect(&barrier, 4096);
    load_tile(tile, map, 0, 0, &barrier);
  }
  __syncthreads();
  wait(&barrier, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
KERNEL map_fence_both_wrong(CUtensorMap* map, void* address, int* out) { change_and_load<false, false>(map, address, out); }
KERNEL map_fence_acquire_wrong(CUtensorMap* map, void* address, int* out) { change_and_load<true, false>(map, address, out); }
KERNEL map_fence_right(CUtensorMap* map, void* address, int* out) { change_and_load<true, true>(map, address, out); }

// A copy in shared memory is changed and published by a warp; whoever uses it acquires it first.
template <bool acquired> __device__ void publish_and_load(const CUtensorMap* map, CUtensorMap* workspace, void* address)
{
  __shared__ alignas(128) CUtensorMap copy;
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x >= 32) return;
  if (threadIdx.x == 0) {
    init(&barrier);
    fence_init();
    copy = *map;
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared(&copy)),
                 "l"(address) : "memory");
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
               ::"l"(workspace), "r"(shared(&copy)) : "memory");
  if (acquired) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(workspace) : "memory");
  if (threadIdx.x == 0) {
    expect(&barrier, 4096);
    load_tile(tile, workspace, 0, 0, &barrier);
    wait(&barrier, 0);
  }
}
KERNEL map_fence_publish_wrong(const __grid_constant__ CUtensorMap map, CUtensorMap* w, void* a) { publish_and_load<false>(&map, w, a); }
KERNEL map_fence_publish_right(const __grid_constant__ CUtensorMap map, CUtensorMap* w, void* a) { publish_and_load<true>(&map, w, a); }

// ---- MAP_SPACE ----

__device__ void load_with(const CUtensorMap* map, int* out)
{
  load_once<true, true>(map, out);
}
KERNEL map_space_local_wrong(CUtensorMap map, int* out) { load_with(&map, out); }
KERNEL map_space_right(const __grid_constant__ CUtensorMap map, int* out) { load_with(&map, out); }
KERNEL map_space_shared_wrong(const __grid_constant__ CUtensorMap map, int* out)
{
  __shared__ alignas(128) CUtensorMap copy;
  if (threadIdx.x == 0) copy = map;
  __syncthreads();
  load_with(&copy, out);
}

// ---- CLUSTER ----

__device__ void load_multicast(const CUtensorMap* map, uint64_t* barrier, int* tile)
{
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %2}], [%3], %4;" ::"r"(shared(tile)), "l"(map), "r"(0), "r"(shared(barrier)),
               "h"((uint16_t)3) : "memory");
}

template <bool clustered> __device__ void sync_cluster()
{
  if (clustered) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// Each block of the cluster loads the tile into both: two copies arrive at each barrier.
template <bool clustered> __device__ void multicast(const CUtensorMap* map, int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier);
    fence_init();
    expect(&barrier, 2 * 4096);
  }
  __syncthreads();
  sync_cluster<clustered>();
  if (threadIdx.x == 0) load_multicast(map, &barrier, tile);
  wait(&barrier, 0);
  out[threadIdx.x] = tile[threadIdx.x];
  sync_cluster<clustered>();
}
KERNEL cluster_wrong(const __grid_constant__ CUtensorMap map, int* out) { multicast<false>(&map, out); }
KERNEL __cluster_dims__(2, 1, 1) cluster_right(const __grid_constant__ CUtensorMap map, int* out) { multicast<true>(&map, out); }

// ---- BARRIER_ARRIVALS, BARRIER_BYTES, BARRIER_PARITY, LOAD_WAIT: one barrier, loaded in turns ----

enum Slip { none, no_arrival, count_of_two, nothing_expected, half_expected, same_parity, parity_ahead, no_wait,
            no_release, empty_parity, no_empty_wait };

__device__ inline void init(uint64_t* barrier, int count)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(count) : "memory");
}

__device__ inline void arrive(uint64_t* barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(barrier)) : "memory");
}

template <Slip slip> __device__ void load_in_turns(const char* in, int* out, int turns)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier, slip == count_of_two ? 2 : 1);
    fence_init();
  }
  __syncthreads();
  for (int turn = 0; turn < turns; ++turn) {
    if (threadIdx.x == 0) {
      if (slip == nothing_expected) arrive(&barrier);
      else if (slip != no_arrival) expect(&barrier, slip == half_expected ? 2048 : 4096);
      load_bulk(tile, in + turn * 4096, 4096, &barrier);
    }
    if (slip != no_wait) wait(&barrier, slip == same_parity ? 0 : slip == parity_ahead ? ~turn & 1 : turn & 1);
    out[turn * 1024 + threadIdx.x] = tile[threadIdx.x];
    fence_async();
    __syncthreads();
  }
}
KERNEL barrier_arrivals_none_wrong(const char* in, int* out, int turns) { load_in_turns<no_arrival>(in, out, turns); }
KERNEL barrier_arrivals_count_wrong(const char* in, int* out, int turns) { load_in_turns<count_of_two>(in, out, turns); }
KERNEL barrier_bytes_none_wrong(const char* in, int* out, int turns) { load_in_turns<nothing_expected>(in, out, turns); }
KERNEL barrier_bytes_half_wrong(const char* in, int* out, int turns) { load_in_turns<half_expected>(in, out, turns); }
KERNEL barrier_parity_same_wrong(const char* in, int* out, int turns) { load_in_turns<same_parity>(in, out, turns); }
KERNEL barrier_parity_ahead_wrong(const char* in, int* out, int turns) { load_in_turns<parity_ahead>(in, out, turns); }
KERNEL load_wait_wrong(const char* in, int* out, int turns) { load_in_turns<no_wait>(in, out, turns); }
KERNEL barrier_right(const char* in, int* out, int turns) { load_in_turns<none>(in, out, turns); }

// A ring of stages: one warp loads them, the others read them and release them.
template <Slip slip> __device__ void ring(const char* in, int* out, int turns)
{
  __shared__ alignas(128) int tile[4][1024];
  __shared__ alignas(8) uint64_t full[4], empty[4];
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 4; ++stage) {
      init(&full[stage], 1);
      init(&empty[stage], 96);
    }
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (threadIdx.x != 0) return;
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      if (slip != no_empty_wait) wait(&empty[turn % 4], slip == empty_parity ? turn / 4 & 1 : ~(turn / 4) & 1);
      expect(&full[turn % 4], 4096);
      load_bulk(tile[turn % 4], in + turn * 4096, 4096, &full[turn % 4]);
    }
    if (slip == no_empty_wait) wait(&empty[turns % 4], 0);
  } else {
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      wait(&full[turn % 4], turn / 4 & 1);
      out[turn * 1024 + threadIdx.x] = tile[turn % 4][threadIdx.x];
      fence_async();
      if (slip != no_release) arrive(&empty[turn % 4]);
    }
    if (slip == no_release) arrive(&empty[turns % 4]);
  }
}
KERNEL __launch_bounds__(128) barrier_arrivals_release_wrong(const char* in, int* out, int turns) { ring<no_release>(in, out, turns); }
KERNEL __launch_bounds__(128) barrier_parity_empty_wrong(const char* in, int* out, int turns) { ring<empty_parity>(in, out, turns); }
KERNEL __launch_bounds__(128) barrier_arrivals_unheeded_wrong(const char* in, int* out, int turns) { ring<no_empty_wait>(in, out, turns); }
KERNEL __launch_bounds__(128) barrier_ring_right(const char* in, int* out, int turns) { ring<none>(in, out, turns); }

// ---- BLOCK_BARRIER: each thread fences what it wrote or read, and one thread copies ----

template <bool synchronized> __device__ void write_and_store_alone(int* out)
{
  __shared__ alignas(128) int tile[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = i;
  fence_async();
  if (synchronized) __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(out, tile, 4096);
    commit();
    wait_read<0>();
  }
}
KERNEL block_barrier_wrong(int* out) { write_and_store_alone<false>(out); }
KERNEL block_barrier_right(int* out) { write_and_store_alone<true>(out); }

// Each thread stores what it wrote itself: no barrier is needed.
KERNEL block_barrier_own_right(int* out)
{
  __shared__ alignas(128) int tile[128][4];
  for (int i = 0; i < 4; ++i) tile[threadIdx.x][i] = i;
  fence_async();
  if (threadIdx.x < 64) {
    store_bulk(out + threadIdx.x * 4, tile[threadIdx.x], 16);
    commit();
    wait_read<0>();
  }
}

// ---- CLUSTER_ORDER ----

template <bool arrives> __device__ void sync_before_and_after(int* out)
{
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
  out[threadIdx.x] = 1;
  if (arrives) asm volatile("barrier.cluster.arrive;" ::: "memory");
  asm volatile("barrier.cluster.wait;" ::: "memory");
}
KERNEL __cluster_dims__(2, 1, 1) cluster_order_wrong(int* out) { sync_before_and_after<false>(out); }
KERNEL __cluster_dims__(2, 1, 1) cluster_order_right(int* out) { sync_before_and_after<true>(out); }

// A cluster, and the barrier of one block where the barrier of the cluster should be.
template <bool clustered> __device__ void multicast_at_once(const CUtensorMap* map, int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier);
    fence_init();
    expect(&barrier, 2 * 4096);
  }
  if (clustered) sync_cluster<true>();
  else __syncthreads();
  if (threadIdx.x == 0) load_multicast(map, &barrier, tile);
  wait(&barrier, 0);
  out[threadIdx.x] = tile[threadIdx.x];
  sync_cluster<true>();
}
KERNEL __cluster_dims__(2, 1, 1) cluster_order_block_wrong(const __grid_constant__ CUtensorMap map, int* out) { multicast_at_once<false>(&map, out); }
KERNEL __cluster_dims__(2, 1, 1) cluster_order_block_right(const __grid_constant__ CUtensorMap map, int* out) { multicast_at_once<true>(&map, out); }

// Each block adds the other's number; the other must not end before.
template <bool parted> __device__ void read_a_peer(int* out)
{
  __shared__ int number;
  if (threadIdx.x == 0) number = out[blockIdx.x];
  sync_cluster<true>();
  uint32_t peer;
  int there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(shared(&number)), "r"(blockIdx.x % 2 ^ 1));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(there) : "r"(peer) : "memory");
  if (!parted) sync_cluster<true>();
  out[blockIdx.x * 32 + threadIdx.x] = there;
}
KERNEL __cluster_dims__(2, 1, 1) cluster_order_end_wrong(int* out) { read_a_peer<true>(out); }
KERNEL __cluster_dims__(2, 1, 1) cluster_order_end_right(int* out) { read_a_peer<false>(out); }

// The first bytes of a tile in global memory are changed, then the tile is loaded.
template <bool fenced> __device__ void change_and_load_bulk(int* in, int* out)
{
  __shared__ alignas(128) int tile[1024];
  __shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    init(&barrier);
    fence_init();
    in[2] = 1;
    if (fenced) asm volatile("fence.proxy.async.global;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&barrier, 4096);
    load_bulk(tile, in, 4096, &barrier);
  }
  wait(&barrier, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
KERNEL global_proxy_wrong(int* in, int* out) { change_and_load_bulk<false>(in, out); }
KERNEL global_proxy_right(int* in, int* out) { change_and_load_bulk<true>(in, out); }

// ---- MAP_ACQUIRE, BULK_SIZE, ALIGNMENT, PDL_ORDER ----

template <bool acquired> __device__ void load_through_a_pointer(const CUtensorMap* map, int* out)
{
  if (acquired) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
  load_with(map, out);
}
KERNEL map_pointer_wrong(const CUtensorMap* map, int* out) { load_through_a_pointer<false>(map, out); }
KERNEL map_pointer_right(const CUtensorMap* map, int* out) { load_through_a_pointer<true>(map, out); }

template <int bytes> __device__ void store_few(int* out)
{
  __shared__ alignas(128) int tile[32];
  tile[threadIdx.x] = 1;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(out, tile, bytes);  // ptxas refuses a literal 24, and not a register
    commit();
    wait_read<0>();
  }
}
KERNEL bulk_size_wrong(int* out) { store_few<24>(out); }
KERNEL bulk_size_right(int* out) { store_few<48>(out); }

template <int alignment, int offset> __device__ void store_from(const CUtensorMap* map)
{
  __shared__ alignas(alignment) char tile[4096 + 128];
  tile[threadIdx.x + offset] = 1;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_tile(map, tile + offset, 0, 0);
    commit();
    wait_read<0>();
  }
}
KERNEL alignment_wrong(const __grid_constant__ CUtensorMap map) { store_from<16, 0>(&map); }
KERNEL alignment_offset_wrong(const __grid_constant__ CUtensorMap map) { store_from<128, 64>(&map); }
KERNEL alignment_right(const __grid_constant__ CUtensorMap map) { store_from<128, 128>(&map); }

template <bool early> __device__ void load_behind_another_kernel(const CUtensorMap* map, int* out)
{
  if (!early) asm volatile("griddepcontrol.wait;" ::: "memory");
  load_with(map, out);
  if (early) asm volatile("griddepcontrol.wait;" ::: "memory");
}
KERNEL pdl_order_wrong(const __grid_constant__ CUtensorMap map, int* out) { load_behind_another_kernel<true>(&map, out); }
KERNEL pdl_order_right(const __grid_constant__ CUtensorMap map, int* out) { load_behind_another_kernel<false>(&map, out); }

// Two rings of three stages in one array; a reader releases the stage before the one that it reads.
KERNEL __launch_bounds__(128) barrier_rings_right(const char* in, int* out, int turns)
{
  __shared__ alignas(128) int tile[3][1024];
  __shared__ alignas(8) uint64_t barriers[6];
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 3; ++stage) {
      init(&barriers[stage], 1);
      init(&barriers[3 + stage], 96);
    }
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int turn = 0; turn < turns; ++turn) {
      wait(&barriers[3 + turn % 3], ~(turn / 3) & 1);
      expect(&barriers[turn % 3], 4096);
      load_bulk(tile[turn % 3], in + turn * 4096, 4096, &barriers[turn % 3]);
    }
  } else if (threadIdx.x >= 32) {
    for (int turn = 0; turn < turns; ++turn) {
      wait(&barriers[turn % 3], turn / 3 & 1);
      out[turn * 1024 + threadIdx.x] = tile[turn % 3][threadIdx.x];
      fence_async();
      if (turn > 0) arrive(&barriers[3 + (turn + 2) % 3]);
    }
  }
}
