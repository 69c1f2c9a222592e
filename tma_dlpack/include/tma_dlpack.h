// tma_dlpack.h: tensor maps made in Python, in C++ and in CUDA kernels. Header-only, C++17.
//
// Host:   CUtensorMap map = tma_dlpack::tensor_map(t);      t: TensorMap.as_torch() as at::Tensor
//         CUtensorMap map = tma_dlpack::tensor_map(ptr);    ptr: TensorMap.ptr as an integer
//         kernel<<<grid, block>>>(map, tx_bytes);           tx_bytes: TensorMap.tx_bytes
// Device: load, store, and the mbarrier and fences around them, one PTX instruction each.
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

// ---- device ------------------------------------------------------------------------------------

#ifdef __CUDACC__

// An mbarrier in shared memory: `__shared__ tma_dlpack::Barrier full;`.
struct Barrier
{
  unsigned long long state;
};

__device__ inline unsigned shared_address(const void* smem)
{
  return static_cast<unsigned>(__cvta_generic_to_shared(smem));
}

// Make a barrier whose phase ends with so many arrivals. One thread; then __syncthreads().
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

// Fetch a map ahead of its first use.
__device__ inline void prefetch(const Map& map)
{
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Before the first use in a block of a map in global memory that the host wrote there. A
// __grid_constant__ parameter needs none.
__device__ inline void fence_acquire(const Map* map)
{
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

// Between writing shared memory and a store from it: every writing thread, then __syncthreads().
__device__ inline void fence_async()
{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define TMA_DLPACK_LOAD(DIM, MODE, COORDS, OFFSETS)                              \
  asm volatile("cp.async.bulk.tensor." DIM ".shared::cluster.global." MODE       \
               ".mbarrier::complete_tx::bytes [%0], [%1, " COORDS "], [%2]" OFFSETS ";" \
               ::"r"(shared_address(smem)), "l"(&map), "r"(shared_address(barrier))

// Load the tile at these coordinates into shared memory, aligned to TensorMap.smem_alignment. One
// thread, after its expect_tx.
__device__ inline void load(void* smem, const Map& map, Barrier* barrier, int c0)
{
  TMA_DLPACK_LOAD("1d", "tile", "{%3}", ""), "r"(c0) : "memory");
}

__device__ inline void load(void* smem, const Map& map, Barrier* barrier, int c0, int c1)
{
  TMA_DLPACK_LOAD("2d", "tile", "{%3, %4}", ""), "r"(c0), "r"(c1) : "memory");
}

__device__ inline void load(void* smem, const Map& map, Barrier* barrier, int c0, int c1, int c2)
{
  TMA_DLPACK_LOAD("3d", "tile", "{%3, %4, %5}", ""), "r"(c0), "r"(c1), "r"(c2) : "memory");
}

__device__ inline void load(void* smem, const Map& map, Barrier* barrier, int c0, int c1, int c2,
                            int c3)
{
  TMA_DLPACK_LOAD("4d", "tile", "{%3, %4, %5, %6}", ""), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
    : "memory");
}

__device__ inline void load(void* smem, const Map& map, Barrier* barrier, int c0, int c1, int c2,
                            int c3, int c4)
{
  TMA_DLPACK_LOAD("5d", "tile", "{%3, %4, %5, %6, %7}", ""), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
    "r"(c4)
    : "memory");
}

// The offsets of a filter tap, W first. A type of its own, so that none is taken for a coordinate.
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

// The same by an im2col map: coordinates (channel, w, [h, [d,]] image).
__device__ inline void load_im2col(void* smem, const Map& map, Barrier* barrier, int c, int w, int n,
                                   OffsetsW at)
{
  TMA_DLPACK_LOAD("3d", "im2col", "{%3, %4, %5}", ", {%6}"), "r"(c), "r"(w), "r"(n), "h"(at.w)
    : "memory");
}

__device__ inline void load_im2col(void* smem, const Map& map, Barrier* barrier, int c, int w, int h,
                                   int n, OffsetsWH at)
{
  TMA_DLPACK_LOAD("4d", "im2col", "{%3, %4, %5, %6}", ", {%7, %8}"), "r"(c), "r"(w), "r"(h), "r"(n),
    "h"(at.w), "h"(at.h)
    : "memory");
}

__device__ inline void load_im2col(void* smem, const Map& map, Barrier* barrier, int c, int w, int h,
                                   int d, int n, OffsetsWHD at)
{
  TMA_DLPACK_LOAD("5d", "im2col", "{%3, %4, %5, %6, %7}", ", {%8, %9, %10}"), "r"(c), "r"(w), "r"(h),
    "r"(d), "r"(n), "h"(at.w), "h"(at.h), "h"(at.d)
    : "memory");
}

#undef TMA_DLPACK_LOAD

#define TMA_DLPACK_STORE(DIM, MODE, COORDS)                                        \
  asm volatile("cp.async.bulk.tensor." DIM ".global.shared::cta." MODE             \
               ".bulk_group [%0, " COORDS "], [%1];" ::"l"(&map), "r"(shared_address(smem))

// Store the tile in shared memory at these coordinates, none negative. One thread; then commit().
__device__ inline void store(const Map& map, const void* smem, int c0)
{
  TMA_DLPACK_STORE("1d", "tile", "{%2}"), "r"(c0) : "memory");
}

__device__ inline void store(const Map& map, const void* smem, int c0, int c1)
{
  TMA_DLPACK_STORE("2d", "tile", "{%2, %3}"), "r"(c0), "r"(c1) : "memory");
}

__device__ inline void store(const Map& map, const void* smem, int c0, int c1, int c2)
{
  TMA_DLPACK_STORE("3d", "tile", "{%2, %3, %4}"), "r"(c0), "r"(c1), "r"(c2) : "memory");
}

__device__ inline void store(const Map& map, const void* smem, int c0, int c1, int c2, int c3)
{
  TMA_DLPACK_STORE("4d", "tile", "{%2, %3, %4, %5}"), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}

__device__ inline void store(const Map& map, const void* smem, int c0, int c1, int c2, int c3, int c4)
{
  TMA_DLPACK_STORE("5d", "tile", "{%2, %3, %4, %5, %6}"), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
    : "memory");
}

// The same by an im2col map whose corners keep inside the tensor.
__device__ inline void store_im2col(const Map& map, const void* smem, int c, int w, int n)
{
  TMA_DLPACK_STORE("3d", "im2col_no_offs", "{%2, %3, %4}"), "r"(c), "r"(w), "r"(n) : "memory");
}

__device__ inline void store_im2col(const Map& map, const void* smem, int c, int w, int h, int n)
{
  TMA_DLPACK_STORE("4d", "im2col_no_offs", "{%2, %3, %4, %5}"), "r"(c), "r"(w), "r"(h), "r"(n)
    : "memory");
}

__device__ inline void store_im2col(const Map& map, const void* smem, int c, int w, int h, int d,
                                    int n)
{
  TMA_DLPACK_STORE("5d", "im2col_no_offs", "{%2, %3, %4, %5, %6}"), "r"(c), "r"(w), "r"(h), "r"(d),
    "r"(n)
    : "memory");
}

#undef TMA_DLPACK_STORE

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
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Wait until at most `pending` groups of this thread are not complete: the others are in memory.
template <int pending = 0>
__device__ inline void wait_stores()
{
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

#endif  // __CUDACC__

}  // namespace tma_dlpack

#endif  // TMA_DLPACK_H
