// tma_dlpack.h: tensor maps made in Python, in C++ and in CUDA kernels. Header-only, C++17.
//
// Host:   CUtensorMap map = tma_dlpack::tensor_map(t);      t: TensorMap.as_torch() as at::Tensor
//         CUtensorMap map = tma_dlpack::tensor_map(ptr);    ptr: TensorMap.ptr as an integer
//         kernel<<<grid, block>>>(map, tx_bytes);           tx_bytes: TensorMap.tx_bytes
// Device: load, store and reduce, into this block or every block of a cluster, and the mbarriers and
//         fences around them, one PTX instruction each; changes to a map; where a swizzled element
//         lies, and the numbers by which wgmma reads a tile. hopper_gemm.cu and grouped_gemm.cu in the
//         repository's notebooks/ are written with it.
//
// #define TMA_DLPACK_CHECK 1 before including it, and every verb tests what it is given: a mistake prints
// a line with the file and line of the call, and ends the kernel, where it would hang or die without a
// word (tma_dlpack_check.h). Without it not one instruction is different.
//
// Nothing of libcuda is called: no -lcuda. Works under nvcc, NVRTC and, without the device part, a
// host compiler. Coordinates are the instruction's: innermost first (tma_dlpack's Python is row-major).

#ifndef TMA_DLPACK_H
#define TMA_DLPACK_H

#if defined(_MSVC_LANG)
#define TMA_DLPACK_CPLUSPLUS _MSVC_LANG
#else
#define TMA_DLPACK_CPLUSPLUS __cplusplus
#endif
#if TMA_DLPACK_CPLUSPLUS < 201703L
#error "tma_dlpack.h needs C++17: compile with -std=c++17 or later"
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "tma_dlpack.h needs compute capability 9.0: compile with -gencode=arch=compute_90a,code=sm_90a"
#endif

#ifndef __CUDACC_RTC__  // NVRTC compiles the device part alone, and finds no headers

#include <cuda.h>  // CUtensorMap

#if CUDA_VERSION < 12000
#error "tma_dlpack.h needs CUDA 12.0 or later: older cuda.h has no CUtensorMap"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#endif

namespace tma_dlpack
{

#ifdef __CUDACC_RTC__
struct alignas(128) Map
{
  unsigned char bytes[128];
};
#else

using Map = CUtensorMap;

// ---- host: what Python hands over becomes a CUtensorMap ----------------------------------------

constexpr std::size_t map_bytes = 128;
constexpr std::size_t map_alignment = 128;
static_assert(sizeof(CUtensorMap) == map_bytes, "a tensor map is 128 bytes");

// What was handed over is no map of TensorMap.ptr or TensorMap.as_torch().
struct map_error : std::invalid_argument
{
  using std::invalid_argument::invalid_argument;
};

// Copy the map at TensorMap.ptr.
//
// Throws map_error unless the pointer is what Python gives for a launchable map: not null, 128 bytes,
// aligned to 128, not all zero. Python refuses to give ptr or as_torch() of a map that no kernel may
// have (of a host tensor, of an unpickled map), so the alignment, which other storage seldom has,
// also speaks for that. What 128 bytes cannot tell, and the caller keeps: that they are a map at all,
// that it is of this GPU, and that its tensor lives until the kernel is done.
inline CUtensorMap tensor_map(const void* pointer, std::size_t size_bytes = map_bytes)
{
  if (size_bytes != map_bytes)
    throw map_error("tma_dlpack: a tensor map is 128 bytes, not " + std::to_string(size_bytes) +
                    "; pass TensorMap.ptr or TensorMap.as_torch()");
  if (pointer == nullptr)
    throw map_error("tma_dlpack: the pointer to the tensor map is null; pass TensorMap.ptr");
  if (reinterpret_cast<std::uintptr_t>(pointer) % map_alignment != 0)
    throw map_error("tma_dlpack: the tensor map is not aligned to 128 bytes, so this is a copy or a "
                    "map that cannot be launched; pass TensorMap.ptr or TensorMap.as_torch() itself");
  static constexpr unsigned char zeroed[map_bytes] = {};
  if (std::memcmp(pointer, zeroed, map_bytes) == 0)
    throw map_error("tma_dlpack: the 128 bytes are all zero, a map of nothing; pass the map of a "
                    "tensor");
  CUtensorMap map;
  std::memcpy(&map, pointer, map_bytes);
  return map;
}

// The same for TensorMap.ptr as the integer that it is.
inline CUtensorMap tensor_map(std::uintptr_t address)
{
  return tensor_map(reinterpret_cast<const void*>(address));
}

// Copy the map in TensorMap.as_torch(): an at::Tensor, or any tensor with these methods.
//
// Throws map_error unless it is a contiguous CPU tensor of 128 one-byte elements, and as above.
template <class Tensor, class = decltype(std::declval<const Tensor&>().data_ptr())>
CUtensorMap tensor_map(const Tensor& tensor)
{
  if (!tensor.is_cpu())
    throw map_error("tma_dlpack: the tensor map lies on a GPU; pass TensorMap.as_torch() on the CPU, "
                    "where it is: the launch copies it");
  if (tensor.element_size() != 1)
    throw map_error("tma_dlpack: the tensor map has elements of " +
                    std::to_string(tensor.element_size()) +
                    " bytes, and must be uint8[128]; pass TensorMap.as_torch()");
  if (!tensor.is_contiguous())
    throw map_error("tma_dlpack: the tensor map is not contiguous; pass TensorMap.as_torch() itself");
  return tensor_map(tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()));
}

#endif

// ---- numbers that the compiler can check, on the host too --------------------------------------

#ifdef __CUDACC__
#define TMA_DLPACK_EITHER __host__ __device__
#else
#define TMA_DLPACK_EITHER
#endif

#ifndef TMA_DLPACK_SWIZZLE  // tma_dlpack_make.hpp has it too: each of the two can be used alone
#define TMA_DLPACK_SWIZZLE
// TmaSwizzle's names and values.
enum class Swizzle : int
{
  none = 0,
  bytes32 = 1,
  bytes64 = 2,
  bytes128 = 3
};
#endif

// Bytes of one row of a swizzled tile; 16 without a swizzle, where the tensor core reads columns of
// 16 bytes.
TMA_DLPACK_EITHER constexpr unsigned span_bytes(Swizzle swizzle)
{
  return 16u << static_cast<unsigned>(swizzle);
}

// Where the byte lies that would lie here without swizzle. Bytes count from an address that is a
// multiple of 8 spans, such as 0: pass the shared address, or an offset into a tile aligned to 1024.
template <Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned swizzled(unsigned byte)
{
  return byte ^ ((byte >> 7 & (span_bytes(swizzle) / 16 - 1)) << 4);
}

// Index of an element of a tile that is aligned to 1024 and has rows of one span.
template <class Element, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned swizzled_index(unsigned row, unsigned column)
{
  static_assert(swizzle != Swizzle::none, "without a swizzle the index is row * columns + column");
  static_assert(sizeof(Element) <= 16, "a swizzle moves pieces of 16 bytes: larger elements are split");
  return swizzled<swizzle>(row * span_bytes(swizzle) + column * sizeof(Element)) / sizeof(Element);
}

// The 64 bits by which wgmma finds a tile in shared memory, but for its address: PTX ISA, "Matrix
// Descriptor Format". The base offset is 0 also for tiles that are aligned to 128 only (measured).
template <unsigned leading_byte_offset, unsigned stride_byte_offset, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long matrix_descriptor()
{
  static_assert(leading_byte_offset % 16 == 0 && stride_byte_offset % 16 == 0,
                "the offsets of a matrix descriptor are multiples of 16 bytes");
  static_assert(leading_byte_offset < 1u << 18 && stride_byte_offset < 1u << 18,
                "the offsets of a matrix descriptor are less than 262144 bytes");
  constexpr unsigned long long layout = (4 - static_cast<unsigned>(swizzle)) % 4;
  return static_cast<unsigned long long>(leading_byte_offset >> 4) << 16 |
         static_cast<unsigned long long>(stride_byte_offset >> 4) << 32 | layout << 62;
}

// The same of a K-major tile of so many rows that lies as [columns of one span][rows][span]: boxes of
// (rows, one span) next to each other, or the one box of split_inner.
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long k_major_descriptor()
{
  static_assert(rows % 8 == 0, "the tensor core reads 8 rows at a time");
  if constexpr (swizzle == Swizzle::none)
    return matrix_descriptor<rows * 16, 128, swizzle>();
  else
    return matrix_descriptor<16, 8 * span_bytes(swizzle), swizzle>();
}

// From the start of such a tile to its K step: each step is 32 bytes of every row.
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned k_step_bytes(unsigned k_step)
{
  constexpr unsigned span = span_bytes(swizzle);
  return 32 * k_step / span * rows * span + 32 * k_step % span;
}

// The same of an MN-major tile of 16-bit elements: its rows are K, and lie as [columns of one
// span][rows][span] too. Its K step is 16 rows.
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long mn_major_descriptor()
{
  static_assert(rows % 16 == 0, "the tensor core reads 16 rows of K at a time");
  if constexpr (swizzle == Swizzle::none)
    return matrix_descriptor<128, rows * 16, swizzle>();
  else
    return matrix_descriptor<rows * span_bytes(swizzle), 8 * span_bytes(swizzle), swizzle>();
}

template <Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned mn_major_k_step_bytes(unsigned k_step)
{
  return k_step * 16 * span_bytes(swizzle);
}

#undef TMA_DLPACK_EITHER

// ---- device ------------------------------------------------------------------------------------

#ifdef __CUDACC__

// An mbarrier in shared memory: `__shared__ tma_dlpack::Barrier full;`.
struct Barrier
{
  unsigned long long state;
};

// Offsets of a filter tap, W first. A type of its own, so that none is taken for a coordinate.
struct OffsetsW
{
  unsigned short w;
};

struct OffsetsWH
{
  unsigned short w, h;
};

struct OffsetsWHD
{
  unsigned short w, h, d;
};

// What a reduction does with the tile and what is there.
enum class Reduction
{
  add,
  min,
  max,
  inc,
  dec,
  bit_and,
  bit_or,
  bit_xor
};

// How the L2 cache treats the bytes of one copy; from evict_first(), evict_last(), evict_normal().
struct CachePolicy
{
  unsigned long long bits;
};

__device__ inline unsigned shared_address(const void* smem)
{
  return static_cast<unsigned>(__cvta_generic_to_shared(smem));
}

// With TMA_DLPACK_CHECK the verbs from here on to the tensor core's are those of tma_dlpack_check.h, which
// call these.
#if TMA_DLPACK_CHECK
namespace unchecked
{
#endif

// ---- mbarriers and fences ----

// Make a barrier whose phase ends with so many arrivals. One thread; then __syncthreads(), or
// cluster_sync() where other blocks of the cluster use it.
__device__ inline void init(Barrier* barrier, unsigned arrivals = 1)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrive, and tell the barrier how many bytes come: TensorMap.tx_bytes for each load. One thread.
__device__ inline void expect_tx(Barrier* barrier, unsigned tx_bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                 shared_address(barrier)),
               "r"(tx_bytes)
               : "memory");
}

// Arrive: what this thread did so far happens before the phase ends.
__device__ inline void arrive(Barrier* barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrive at the same barrier of another block of the cluster, by its rank; or of this block. What this
// thread wrote is then seen by who waits with wait_cluster().
__device__ inline void arrive_remote(Barrier* barrier, unsigned block_rank)
{
  asm volatile("{\n .reg .b32 remote;\n"
               " mapa.shared::cluster.u32 remote, %0, %1;\n"
               " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(
                 shared_address(barrier)),
               "r"(block_rank)
               : "memory");
}

// The same for a tile that wgmma or a store has read, and that may be loaded again: nothing written is
// made visible. That saves a fence, without which hopper_gemm.cu is 1.4 times as fast (H200).
__device__ inline void arrive_remote_relaxed(Barrier* barrier, unsigned block_rank)
{
  asm volatile("{\n .reg .b32 remote;\n"
               " mapa.shared::cluster.u32 remote, %0, %1;\n"
               " mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(
                 shared_address(barrier)),
               "r"(block_rank)
               : "memory");
}

// Whether the phase of this parity is complete; may wait for a while. Phases go 0, 1, 0, ...
__device__ inline bool try_wait(Barrier* barrier, unsigned parity)
{
  unsigned complete;
  asm volatile("{\n .reg .pred p;\n"
               " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
               " selp.u32 %0, 1, 0, p;\n}"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return complete != 0;
}

// Wait until the phase of this parity is complete. Every thread that reads the tile.
__device__ inline void wait(Barrier* barrier, unsigned parity)
{
  while (!try_wait(barrier, parity)) {}
}

// Wait at most so long; false where the phase is not complete then. A wrong copy ends by itself.
__device__ inline bool wait_at_most(Barrier* barrier, unsigned parity, unsigned long long nanoseconds)
{
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do
  {
    if (try_wait(barrier, parity)) return true;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
  return false;
}

// The same as wait() where blocks of the cluster arrive that wrote or read memory this thread now uses.
__device__ inline void wait_cluster(Barrier* barrier, unsigned parity)
{
  unsigned complete = 0;
  while (!complete)
    asm volatile("{\n .reg .pred p;\n"
                 " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                 " selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(complete)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
}

// Fetch a map ahead of its first use.
__device__ inline void prefetch(const Map& map)
{
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Before a copy by a map in global memory that a kernel or the host has changed there: the thread that
// issues the copy, once it knows of the change. One call for each map: it covers 128 bytes, not an
// array. Without it the copy may go by an older map. A __grid_constant__ parameter needs none.
__device__ inline void fence_acquire(const Map* map)
{
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

// Between writing shared memory and a store from it, or a wgmma that reads it: every writing thread,
// then __syncthreads().
__device__ inline void fence_async()
{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Wait for the other threads of this barrier, 1 to 15 (0 is __syncthreads); threads: a multiple of 32.
__device__ inline void sync_threads(unsigned barrier_id, unsigned threads)
{
  asm volatile("bar.sync %0, %1;" ::"r"(barrier_id), "r"(threads) : "memory");
}

// ---- clusters ----

// Rank of this block in its cluster.
__device__ inline unsigned cluster_rank()
{
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Arrive at the barrier of the cluster. Every thread of every block; then cluster_wait().
__device__ inline void cluster_arrive()
{
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Wait until every thread of the cluster has arrived.
__device__ inline void cluster_wait()
{
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Both: after init() and before a block of the cluster exits whose memory others still write.
__device__ inline void cluster_sync()
{
  cluster_arrive();
  cluster_wait();
}

// ---- what L2 keeps ----

#define TMA_DLPACK_POLICY(NAME)                                                                    \
  __device__ inline CachePolicy NAME()                                                             \
  {                                                                                                \
    CachePolicy policy;                                                                            \
    asm volatile("createpolicy.fractional.L2::" #NAME ".b64 %0, 1.0;" : "=l"(policy.bits));        \
    return policy;                                                                                 \
  }

// Evict the bytes of the copy before others: of a tensor that is read or written once.
TMA_DLPACK_POLICY(evict_first)

// Evict them after others: of a tensor that other blocks read again.
TMA_DLPACK_POLICY(evict_last)

// Evict them when their turn comes, as those of a copy without a policy.
TMA_DLPACK_POLICY(evict_normal)

#undef TMA_DLPACK_POLICY

// ---- copies: one instruction for each rank ----

namespace detail
{

// Coordinates and offsets as the instructions take them, the unused ones 0.
struct At
{
  int c[5];
  unsigned short offset[3];
};

template <class... Coords>
__device__ inline At at(Coords... coords)
{
  static_assert(1 <= sizeof...(Coords) && sizeof...(Coords) <= 5,
                "pass one coordinate for each dimension of the map, innermost first: 1 to 5");
  return At{{static_cast<int>(coords)...}, {}};
}

#define TMA_DLPACK_COORDS_1 "{%3}"
#define TMA_DLPACK_COORDS_2 "{%3, %4}"
#define TMA_DLPACK_COORDS_3 "{%3, %4, %5}"
#define TMA_DLPACK_COORDS_4 "{%3, %4, %5, %6}"
#define TMA_DLPACK_COORDS_5 "{%3, %4, %5, %6, %7}"

// Every instruction gets every operand, and names those that it has.
#define TMA_DLPACK_OPERANDS                                                                      \
  ::"r"(smem), "l"(map), "r"(barrier), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]),   \
    "r"(at.c[4]), "h"(at.offset[0]), "h"(at.offset[1]), "h"(at.offset[2]), "h"(block_mask),      \
    "l"(policy)                                                                                  \
    : "memory"

// Into this block's shared memory: for ::cluster ptxas calls a function on sm_120 and sm_121, and
// ::cta needs PTX ISA 8.6 (CUDA 12.7).
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1207
#define TMA_DLPACK_THIS_BLOCK "shared::cta"
#else
#define TMA_DLPACK_THIS_BLOCK "shared::cluster"
#endif

#define TMA_DLPACK_LOAD(RANK, SPACE, MODE, OFFSETS, SUFFIX, TAIL)                                \
  asm volatile("cp.async.bulk.tensor." #RANK "d." SPACE ".global." MODE                          \
               ".mbarrier::complete_tx::bytes" SUFFIX " [%0], [%1, " TMA_DLPACK_COORDS_##RANK    \
               "], [%2]" OFFSETS TAIL ";" TMA_DLPACK_OPERANDS)

#define TMA_DLPACK_LOADS(RANK, MODE, OFFSETS)                                                    \
  if constexpr (multicast && hint)                                                               \
    TMA_DLPACK_LOAD(RANK, "shared::cluster", MODE, OFFSETS, ".multicast::cluster.L2::cache_hint", \
                    ", %11, %12");                                                               \
  else if constexpr (multicast)                                                                  \
    TMA_DLPACK_LOAD(RANK, "shared::cluster", MODE, OFFSETS, ".multicast::cluster", ", %11");     \
  else if constexpr (hint)                                                                       \
    TMA_DLPACK_LOAD(RANK, TMA_DLPACK_THIS_BLOCK, MODE, OFFSETS, ".L2::cache_hint", ", %12");     \
  else                                                                                           \
    TMA_DLPACK_LOAD(RANK, TMA_DLPACK_THIS_BLOCK, MODE, OFFSETS, "", "")

template <unsigned rank, bool multicast, bool hint>
__device__ inline void load(unsigned smem, const Map* map, unsigned barrier, At at,
                            unsigned short block_mask, unsigned long long policy)
{
  if constexpr (rank == 1) { TMA_DLPACK_LOADS(1, "tile", ""); }
  if constexpr (rank == 2) { TMA_DLPACK_LOADS(2, "tile", ""); }
  if constexpr (rank == 3) { TMA_DLPACK_LOADS(3, "tile", ""); }
  if constexpr (rank == 4) { TMA_DLPACK_LOADS(4, "tile", ""); }
  if constexpr (rank == 5) { TMA_DLPACK_LOADS(5, "tile", ""); }
}

template <unsigned rank, bool multicast, bool hint>
__device__ inline void load_im2col(unsigned smem, const Map* map, unsigned barrier, At at,
                                   unsigned short block_mask, unsigned long long policy)
{
  if constexpr (rank == 3) { TMA_DLPACK_LOADS(3, "im2col", ", {%8}"); }
  if constexpr (rank == 4) { TMA_DLPACK_LOADS(4, "im2col", ", {%8, %9}"); }
  if constexpr (rank == 5) { TMA_DLPACK_LOADS(5, "im2col", ", {%8, %9, %10}"); }
}

#define TMA_DLPACK_STORE(PTX, RANK, OP, SUFFIX, TAIL)                                            \
  asm volatile(PTX ".async.bulk.tensor." #RANK "d.global.shared::cta" OP ".bulk_group" SUFFIX    \
               " [%1, " TMA_DLPACK_COORDS_##RANK "], [%0]" TAIL ";" TMA_DLPACK_OPERANDS)

#define TMA_DLPACK_STORES(PTX, RANK, OP)                          \
  if constexpr (hint)                                             \
    TMA_DLPACK_STORE(PTX, RANK, OP, ".L2::cache_hint", ", %12");  \
  else                                                            \
    TMA_DLPACK_STORE(PTX, RANK, OP, "", "")

#define TMA_DLPACK_STORE_RANKS(PTX, OP)                                                         \
  {                                                                                             \
    if constexpr (!im2col && rank == 1) { TMA_DLPACK_STORES(PTX, 1, OP ".tile"); }              \
    if constexpr (!im2col && rank == 2) { TMA_DLPACK_STORES(PTX, 2, OP ".tile"); }              \
    if constexpr (!im2col && rank == 3) { TMA_DLPACK_STORES(PTX, 3, OP ".tile"); }              \
    if constexpr (!im2col && rank == 4) { TMA_DLPACK_STORES(PTX, 4, OP ".tile"); }              \
    if constexpr (!im2col && rank == 5) { TMA_DLPACK_STORES(PTX, 5, OP ".tile"); }              \
    if constexpr (im2col && rank == 3) { TMA_DLPACK_STORES(PTX, 3, OP ".im2col_no_offs"); }     \
    if constexpr (im2col && rank == 4) { TMA_DLPACK_STORES(PTX, 4, OP ".im2col_no_offs"); }     \
    if constexpr (im2col && rank == 5) { TMA_DLPACK_STORES(PTX, 5, OP ".im2col_no_offs"); }     \
  }

constexpr unsigned barrier = 0;        // what a store has no use for
constexpr unsigned short block_mask = 0;

template <unsigned rank, bool im2col, bool hint>
__device__ inline void store(const Map* map, unsigned smem, At at, unsigned long long policy)
{
  TMA_DLPACK_STORE_RANKS("cp", "")
}

template <Reduction op, unsigned rank, bool im2col, bool hint>
__device__ inline void reduce(const Map* map, unsigned smem, At at, unsigned long long policy)
{
  if constexpr (op == Reduction::add) TMA_DLPACK_STORE_RANKS("cp.reduce", ".add")
  if constexpr (op == Reduction::min) TMA_DLPACK_STORE_RANKS("cp.reduce", ".min")
  if constexpr (op == Reduction::max) TMA_DLPACK_STORE_RANKS("cp.reduce", ".max")
  if constexpr (op == Reduction::inc) TMA_DLPACK_STORE_RANKS("cp.reduce", ".inc")
  if constexpr (op == Reduction::dec) TMA_DLPACK_STORE_RANKS("cp.reduce", ".dec")
  if constexpr (op == Reduction::bit_and) TMA_DLPACK_STORE_RANKS("cp.reduce", ".and")
  if constexpr (op == Reduction::bit_or) TMA_DLPACK_STORE_RANKS("cp.reduce", ".or")
  if constexpr (op == Reduction::bit_xor) TMA_DLPACK_STORE_RANKS("cp.reduce", ".xor")
}

#undef TMA_DLPACK_STORE_RANKS
#undef TMA_DLPACK_STORES
#undef TMA_DLPACK_STORE
#undef TMA_DLPACK_LOADS
#undef TMA_DLPACK_LOAD
#undef TMA_DLPACK_THIS_BLOCK
#undef TMA_DLPACK_OPERANDS

}  // namespace detail

// ---- loads ----

// Load the tile at these coordinates into shared memory, aligned to TensorMap.smem_alignment. One
// thread, after its expect_tx.
template <class... Coords>
__device__ inline void load(void* smem, const Map& map, Barrier* barrier, Coords... coords)
{
  detail::load<sizeof...(Coords), false, false>(shared_address(smem), &map, shared_address(barrier),
                                                detail::at(coords...), 0, 0);
}

// The same, with a policy for L2.
template <class... Coords>
__device__ inline void load(void* smem, const Map& map, Barrier* barrier, CachePolicy policy,
                            Coords... coords)
{
  detail::load<sizeof...(Coords), false, true>(shared_address(smem), &map, shared_address(barrier),
                                               detail::at(coords...), 0, policy.bits);
}

// Load one tile into every block of the cluster whose bit in block_mask is set, at this place in its
// shared memory; each block's own barrier, at this place too, counts the bytes.
template <class... Coords>
__device__ inline void load_multicast(void* smem, const Map& map, Barrier* barrier,
                                      unsigned short block_mask, Coords... coords)
{
  detail::load<sizeof...(Coords), true, false>(shared_address(smem), &map, shared_address(barrier),
                                               detail::at(coords...), block_mask, 0);
}

// The same, with a policy for L2.
template <class... Coords>
__device__ inline void load_multicast(void* smem, const Map& map, Barrier* barrier,
                                      unsigned short block_mask, CachePolicy policy,
                                      Coords... coords)
{
  detail::load<sizeof...(Coords), true, true>(shared_address(smem), &map, shared_address(barrier),
                                              detail::at(coords...), block_mask, policy.bits);
}

// Load by an im2col map: coordinates (channel, w, [h, [d,]] image).
__device__ inline void load_im2col(void* smem, const Map& map, Barrier* barrier, int c, int w, int n,
                                   OffsetsW tap)
{
  detail::load_im2col<3, false, false>(shared_address(smem), &map, shared_address(barrier),
                                       detail::At{{c, w, n}, {tap.w}}, 0, 0);
}

__device__ inline void load_im2col(void* smem, const Map& map, Barrier* barrier, int c, int w, int h,
                                   int n, OffsetsWH tap)
{
  detail::load_im2col<4, false, false>(shared_address(smem), &map, shared_address(barrier),
                                       detail::At{{c, w, h, n}, {tap.w, tap.h}}, 0, 0);
}

__device__ inline void load_im2col(void* smem, const Map& map, Barrier* barrier, int c, int w, int h,
                                   int d, int n, OffsetsWHD tap)
{
  detail::load_im2col<5, false, false>(shared_address(smem), &map, shared_address(barrier),
                                       detail::At{{c, w, h, d, n}, {tap.w, tap.h, tap.d}}, 0, 0);
}

// The same into every block of the cluster whose bit in block_mask is set.
__device__ inline void load_im2col_multicast(void* smem, const Map& map, Barrier* barrier,
                                             unsigned short block_mask, int c, int w, int n,
                                             OffsetsW tap)
{
  detail::load_im2col<3, true, false>(shared_address(smem), &map, shared_address(barrier),
                                      detail::At{{c, w, n}, {tap.w}}, block_mask, 0);
}

__device__ inline void load_im2col_multicast(void* smem, const Map& map, Barrier* barrier,
                                             unsigned short block_mask, int c, int w, int h, int n,
                                             OffsetsWH tap)
{
  detail::load_im2col<4, true, false>(shared_address(smem), &map, shared_address(barrier),
                                      detail::At{{c, w, h, n}, {tap.w, tap.h}}, block_mask, 0);
}

__device__ inline void load_im2col_multicast(void* smem, const Map& map, Barrier* barrier,
                                             unsigned short block_mask, int c, int w, int h, int d,
                                             int n, OffsetsWHD tap)
{
  detail::load_im2col<5, true, false>(shared_address(smem), &map, shared_address(barrier),
                                      detail::At{{c, w, h, d, n}, {tap.w, tap.h, tap.d}}, block_mask,
                                      0);
}

// Load four rows of a 2D map, whose box is one row; sm_100 and later.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 1000
__device__ inline void load_gather4(void* smem, const Map& map, Barrier* barrier, int column,
                                    int row0, int row1, int row2, int row3)
{
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4"
               ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(
                 shared_address(smem)),
               "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row0), "r"(row1),
               "r"(row2), "r"(row3)
               : "memory");
}
#else
__device__ void load_gather4(void*, const Map&, Barrier*, int, int, int, int, int) = delete;
#endif

// State that this kernel reads the tile by offsets from its own start, as swizzled_index gives them: a
// checked build then asks that the tile lies where the map's swizzle begins anew. Does nothing else.
__device__ inline void indexed_from_start(const void*, const Map&) {}

// ---- stores and reductions ----

// Store the tile in shared memory at these coordinates, none negative. One thread; then commit().
template <class... Coords>
__device__ inline void store(const Map& map, const void* smem, Coords... coords)
{
  detail::store<sizeof...(Coords), false, false>(&map, shared_address(smem), detail::at(coords...),
                                                 0);
}

// The same, with a policy for L2.
template <class... Coords>
__device__ inline void store(const Map& map, const void* smem, CachePolicy policy, Coords... coords)
{
  detail::store<sizeof...(Coords), false, true>(&map, shared_address(smem), detail::at(coords...),
                                                policy.bits);
}

// Store by an im2col map whose corners keep inside the tensor: coordinates (channel, w, [h, [d,]] image).
template <class... Coords>
__device__ inline void store_im2col(const Map& map, const void* smem, Coords... coords)
{
  static_assert(sizeof...(Coords) >= 3, "an im2col map has 3 to 5 dimensions");
  detail::store<sizeof...(Coords), true, false>(&map, shared_address(smem), detail::at(coords...), 0);
}

// Combine the tile with what is there: reduce<Reduction::add>(map, smem, c0, c1). One thread; then
// commit(). Which types an operation has: PTX ISA, cp.reduce.async.bulk.tensor.
template <Reduction op, class... Coords>
__device__ inline void reduce(const Map& map, const void* smem, Coords... coords)
{
  detail::reduce<op, sizeof...(Coords), false, false>(&map, shared_address(smem),
                                                      detail::at(coords...), 0);
}

// The same, with a policy for L2.
template <Reduction op, class... Coords>
__device__ inline void reduce(const Map& map, const void* smem, CachePolicy policy, Coords... coords)
{
  detail::reduce<op, sizeof...(Coords), false, true>(&map, shared_address(smem),
                                                     detail::at(coords...), policy.bits);
}

// Combine by an im2col map whose corners keep inside the tensor.
template <Reduction op, class... Coords>
__device__ inline void reduce_im2col(const Map& map, const void* smem, Coords... coords)
{
  static_assert(sizeof...(Coords) >= 3, "an im2col map has 3 to 5 dimensions");
  detail::reduce<op, sizeof...(Coords), true, false>(&map, shared_address(smem),
                                                     detail::at(coords...), 0);
}

// Store four rows by a 2D map, whose box is one row; sm_100 (sm_120 has no such instruction).
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200)
__device__ inline void store_scatter4(const Map& map, const void* smem, int column, int row0,
                                      int row1, int row2, int row3)
{
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
               " [%1, {%2, %3, %4, %5, %6}], [%0];" ::"r"(shared_address(smem)),
               "l"(&map), "r"(column), "r"(row0), "r"(row1), "r"(row2), "r"(row3)
               : "memory");
}
#else
__device__ void store_scatter4(const Map&, const void*, int, int, int, int, int) = delete;
#endif

// Put this thread's stores since the last commit into a group.
__device__ inline void commit()
{
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until at most `pending` groups of this thread have yet to read shared memory: then it may be
// written again.
template <int pending = 0>
__device__ inline void wait_read()
{
  static_assert(pending >= 0, "a store waits for 0 or more pending groups");
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Wait until at most `pending` groups of this thread are not complete: the others are in memory.
template <int pending = 0>
__device__ inline void wait_stores()
{
  static_assert(pending >= 0, "a store waits for 0 or more pending groups");
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- maps that a kernel changes ----
//
//   if (threadIdx.x == 0) shared = template_map, replace_global_dim<1>(&shared, rows);
//   publish(global, &shared);                             // this warp
//   if (threadIdx.x == 0) fence_acquire(global), load(tile, *global, ...);
//
// While another block may still copy by the map at that place, publish to another place.

// Copy a changed map from shared memory to its place in global memory and make it visible there to who
// then calls fence_acquire(global). A whole warp, converged: that of the thread which changed the map
// and whose stores went by the old one: they have read it and their tiles before it is overwritten. What
// a part of a warp does is undefined, and no error says so.
__device__ inline void publish(Map* global, const Map* shared)
{
  commit();
  wait_read();
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
               " [%0], [%1], 128;" ::"l"(__cvta_generic_to_global(global)),
               "r"(shared_address(shared))
               : "memory");
}

// After changing a map in global memory where it is: the thread that changed it, before it lets others
// know. Without it their fence_acquire() may find the old map.
__device__ inline void fence_release()
{
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

// Change one field of a tiled map in shared or global memory. One thread; then publish(), or
// fence_release(): before that, a copy may find the old map or half of the change. The fields are those
// of PTX's tensormap.replace, dimension 0 is the innermost, and no value is checked. For targets with
// the suffix a or f.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__) ||                             \
  defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL) ||                       \
  defined(__CUDA_ARCH_FEAT_SM101_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL)
#define TMA_DLPACK_HAS_REPLACE(...) __VA_ARGS__
#else
#define TMA_DLPACK_HAS_REPLACE(...) = delete;
#endif

#define TMA_DLPACK_REPLACE(FIELD, BITS, VALUES, ...)                                              \
  asm volatile("tensormap.replace.tile." FIELD ".b1024." BITS " [%0], " VALUES ";" ::"l"(map),    \
               __VA_ARGS__                                                                        \
               : "memory")

#define TMA_DLPACK_REPLACE_IN_DIMENSION(FIELD, DIMENSIONS, TYPE, BITS, VALUE)                         \
  template <unsigned dimension>                                                                       \
  __device__ inline void replace_##FIELD(Map* map, TYPE value) TMA_DLPACK_HAS_REPLACE({               \
    static_assert(dimension < DIMENSIONS, "a map's " #FIELD " are numbered from 0, the innermost, to " \
                                          #DIMENSIONS " - 1");                                        \
    TMA_DLPACK_REPLACE(#FIELD, BITS, "%1, %2", "n"(dimension), VALUE(value));                         \
  })

#define TMA_DLPACK_REPLACE_CONSTANT(FIELD, TYPE, END)                                               \
  template <TYPE value>                                                                             \
  __device__ inline void replace_##FIELD(Map* map) TMA_DLPACK_HAS_REPLACE({                         \
    static_assert(static_cast<unsigned>(value) < END, #FIELD " is a number below " #END);           \
    TMA_DLPACK_REPLACE(#FIELD, "b32", "%1", "n"(static_cast<unsigned>(value)));                     \
  })

// The address: a multiple of 16.
__device__ inline void replace_global_address(Map* map, const void* address) TMA_DLPACK_HAS_REPLACE({
  TMA_DLPACK_REPLACE("global_address", "b64", "%1", "l"(__cvta_generic_to_global(address)));
})

// The number of dimensions, 1 to 5.
__device__ inline void replace_rank(Map* map, unsigned rank) TMA_DLPACK_HAS_REPLACE({
  TMA_DLPACK_REPLACE("rank", "b32", "%1", "r"(rank - 1));
})

// replace_global_dim<1>(map, rows), in elements.
TMA_DLPACK_REPLACE_IN_DIMENSION(global_dim, 5, unsigned, "b32", "r")

// replace_global_stride<0>(map, bytes): of dimension 1, since dimension 0 has none. Multiples of 16.
TMA_DLPACK_REPLACE_IN_DIMENSION(global_stride, 4, unsigned long long, "b64", "l")

// replace_box_dim<1>(map, rows): 1 to 256. The bytes that a load brings change with it.
TMA_DLPACK_REPLACE_IN_DIMENSION(box_dim, 5, unsigned, "b32", "r")

// replace_element_stride<1>(map, 2): 1 to 8.
TMA_DLPACK_REPLACE_IN_DIMENSION(element_stride, 5, unsigned, "b32", "r")

// replace_elemtype<10>(map): PTX's numbers (bf16 is 10), which are not CUtensorMapDataType's. A map of
// tf32 (11, 12) stays one: the instruction does not clear its bit, and a copy of another type dies.
TMA_DLPACK_REPLACE_CONSTANT(elemtype, unsigned, 16)

// replace_swizzle_mode<Swizzle::bytes128>(map).
TMA_DLPACK_REPLACE_CONSTANT(swizzle_mode, Swizzle, 4)

// 0 none, 1 bytes16, 2 bytes32.
TMA_DLPACK_REPLACE_CONSTANT(interleave_layout, unsigned, 3)

// What fills elements out of bounds: 0 zeros, 1 NaN.
TMA_DLPACK_REPLACE_CONSTANT(fill_mode, unsigned, 2)

#undef TMA_DLPACK_REPLACE_CONSTANT
#undef TMA_DLPACK_REPLACE_IN_DIMENSION
#undef TMA_DLPACK_REPLACE
#undef TMA_DLPACK_HAS_REPLACE

#if TMA_DLPACK_CHECK
}  // namespace unchecked
}  // namespace tma_dlpack
#include "tma_dlpack_check.h"
namespace tma_dlpack
{
#endif

// ---- the tensor core of sm_90a: what stands around a wgmma ----

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The matrix descriptor of a tile at this place. matrix_descriptor<...>() or k_major_descriptor<...>()
// gives the rest of its bits; add k_step_bytes to the place for the next K step.
__device__ inline unsigned long long descriptor_at(unsigned smem_address,
                                                   unsigned long long descriptor)
{
  return descriptor | (smem_address & 0x3FFFF) >> 4;
}

// Before the first wgmma, and before one whose registers the threads have written since. All 128
// threads of the warpgroup, as in the three that follow.
__device__ inline void wgmma_fence()
{
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Put the wgmmas since the last commit into a group.
__device__ inline void wgmma_commit()
{
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `pending` groups are not complete: the others' accumulators may be read, and
// their tiles written again.
template <int pending = 0>
__device__ inline void wgmma_wait()
{
  static_assert(0 <= pending && pending <= 7, "wgmma waits for 0 to 7 pending groups");
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Registers of each thread from here on: a warpgroup that only copies gives some back, one that
// multiplies takes them. The kernel needs __launch_bounds__(threads, 1).
template <unsigned registers>
__device__ inline void give_registers()
{
  static_assert(registers % 8 == 0 && 24 <= registers && registers <= 256,
                "setmaxnreg takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <unsigned registers>
__device__ inline void take_registers()
{
  static_assert(registers % 8 == 0 && 24 <= registers && registers <= 256,
                "setmaxnreg takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

#endif

#endif  // __CUDACC__

}  // namespace tma_dlpack

#endif  // TMA_DLPACK_H
