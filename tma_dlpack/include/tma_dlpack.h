// tma_dlpack.h: tensor maps that were made in Python, for C++ and CUDA kernels. Header-only, C++17.
//
// Host:   CUtensorMap map = tma_dlpack::tensor_map(t);      t: TensorMap.as_torch() as at::Tensor
//         CUtensorMap map = tma_dlpack::tensor_map(ptr);    ptr: TensorMap.ptr as an integer
//         kernel<<<grid, block>>>(map, tx_bytes);           tx_bytes: TensorMap.tx_bytes
// Device: functions of about one PTX instruction each, which are called verbs. Verbs load, store
//         and reduce tiles (for this block or for every block of a cluster), use mbarriers and
//         fences, and change maps. Other functions return the index of a swizzled element, or
//         matrix descriptors for wgmma and tcgen05. hopper_gemm.cu, grouped_gemm.cu and
//         blackwell_gemm.cu in the repository's notebooks/ use these functions.
//
// With #define TMA_DLPACK_CHECK 1 before the #include, every verb checks its arguments. A verb that
// finds a mistake prints the file and line of the call, and ends the kernel. Without the check, the
// kernel would hang or end without a message. The checks are in tma_dlpack_check.h. Without the
// #define, the verbs have no additional instructions.
//
// The header calls no function of libcuda, so -lcuda is not needed. nvcc and NVRTC compile the
// header. A host compiler compiles only the host part. Coordinates are innermost first, as in PTX,
// but tma_dlpack's Python functions are row-major.
//
// The comment of each verb ends with two lines. The first line is: PTX | who calls the verb |
// targets (sm_90 stands for sm_90 and later) | first release | cost in SASS. The second line is an
// example. The reference page is generated from these comments.

#ifndef TMA_DLPACK_H
#define TMA_DLPACK_H

// Number of this release: major * 10000 + minor * 100 + patch.
#ifndef TMA_DLPACK_VERSION
#define TMA_DLPACK_VERSION 400
#elif TMA_DLPACK_VERSION != 400
#error "two releases of tma_dlpack in one file: pass one include path"
#endif

#if defined(_MSVC_LANG)
#define TMA_DLPACK_CPLUSPLUS _MSVC_LANG
#else
#define TMA_DLPACK_CPLUSPLUS __cplusplus
#endif
#if TMA_DLPACK_CPLUSPLUS < 201703L
#error "tma_dlpack.h needs C++17: compile with -std=c++17 or later"
#endif

// clang before 20 copies __grid_constant__ maps to local memory, which TMA cannot read (error 700).
#if defined(__clang__) && defined(__CUDA__) && !defined(__CUDACC_RTC__)
#if !__has_attribute(grid_constant)
#error "tma_dlpack.h needs nvcc, NVRTC or clang 20: this clang ignores __grid_constant__"
#endif
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "tma_dlpack.h needs compute capability 9.0: compile with -gencode=arch=compute_90a,code=sm_90a"
#endif

#ifndef __CUDACC_RTC__  // NVRTC compiles only the device part, and finds no headers

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

#ifdef __CUDACC__
// These types are declared here, so that cuda_fp16.h and cuda_bf16.h need not be included.
struct __half;
struct __nv_bfloat16;
#endif

// Every symbol has the minor release in its name, so a program may link objects that were compiled
// with different releases of this header.
namespace tma_dlpack
{
inline namespace v0_4
{

#ifdef __CUDACC_RTC__
struct alignas(128) Map
{
  unsigned char bytes[128];
};
#else

using Map = CUtensorMap;

// ---- host: a map made in Python becomes a CUtensorMap ----------------------------------------

constexpr std::size_t map_bytes = 128;
constexpr std::size_t map_alignment = 128;
static_assert(sizeof(CUtensorMap) == map_bytes, "a tensor map is 128 bytes");

// The error for an argument that is neither TensorMap.ptr nor TensorMap.as_torch().
struct map_error : std::invalid_argument
{
  using std::invalid_argument::invalid_argument;
};

// Copy the map at TensorMap.ptr.
//
// Throws map_error if the pointer cannot be TensorMap.ptr, because it is null, is not aligned to
// 128 bytes, or points to 128 zero bytes. In Python, ptr and as_torch() raise an error for a map
// that no kernel may use (a map of a host tensor, an unpickled map). The caller must ensure two
// conditions that this function cannot check: the bytes are a map for this GPU, and the tensor
// stays alive until the kernel has ended.
//   no instruction | host | host | 0.2 | a copy of 128 bytes
//   e.g. CUtensorMap map = tensor_map(tensor_map_ptr);
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
    throw map_error("tma_dlpack: this is an all-zero map, which describes no tensor; pass the map of "
                    "a tensor");
  CUtensorMap map;
  std::memcpy(&map, pointer, map_bytes);
  return map;
}

// Copy the map at TensorMap.ptr, which is passed as an integer.
inline CUtensorMap tensor_map(std::uintptr_t address)
{
  return tensor_map(reinterpret_cast<const void*>(address));
}

// Copy the map in the tensor that TensorMap.as_torch() returned. The type of the tensor is
// at::Tensor, or another type with the same methods.
//
// Throws map_error if the tensor is not a contiguous CPU tensor of 128 one-byte elements, or if its
// address cannot be TensorMap.ptr (see the overload that takes a pointer).
template <class Tensor, class = decltype(std::declval<const Tensor&>().data_ptr())>
CUtensorMap tensor_map(const Tensor& tensor)
{
  if (!tensor.is_cpu())
    throw map_error("tma_dlpack: the tensor map is on a GPU; pass TensorMap.as_torch() on the CPU, "
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

// Marks a function that this target lacks. A call of this function does not compile. The compiler's
// error message contains REASON.
#define TMA_DLPACK_LACKS(REASON) [[deprecated(REASON)]] TMA_DLPACK_EITHER
#define TMA_DLPACK_NEEDS_WGMMA                                                                    \
  "this target lacks wgmma, which is sm_90a's: tcgen05_k_major_descriptor() and "                 \
  "tcgen05_mn_major_descriptor() are for tcgen05.mma"

#ifndef TMA_DLPACK_SWIZZLE  // also in tma_dlpack_make.hpp; each header can be used alone
#define TMA_DLPACK_SWIZZLE
// The names and values of Python's TmaSwizzle. Swizzles with an atom of 32 or 64 bytes need sm_100
// or later.
enum class Swizzle : int
{
  none = 0,
  bytes32 = 1,
  bytes64 = 2,
  bytes128 = 3,
  bytes128_atom_32B = 4,
  bytes128_atom_32B_flip_8B = 5,
  bytes128_atom_64B = 6
};
#endif

// Return the number of bytes in one row of a swizzled tile. Such a row is called a span. Without a
// swizzle, the result is 16, because the tensor core then reads strips that are 16 bytes wide.
//   no instruction | anyone | host and device | 0.2 | compile time
//   e.g. span_bytes(Swizzle::bytes64) == 64
TMA_DLPACK_EITHER constexpr unsigned span_bytes(Swizzle swizzle)
{
  return 16u << (swizzle < Swizzle::bytes128 ? static_cast<unsigned>(swizzle) : 3);
}

// Return the position to which a swizzle moves a byte. `byte` is the position of the byte without a
// swizzle. A position is a distance in bytes from an address that is a multiple of 8 spans. Pass
// the shared-memory address of the byte, or its offset in a tile that is aligned to 1024 bytes.
//   no instruction | anyone | host and device | 0.2 | 3 integer operations
//   e.g. tile[swizzled<Swizzle::bytes128>(row * 128 + byte)]
template <Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned swizzled(unsigned byte)
{
  constexpr unsigned atom = swizzle == Swizzle::bytes128_atom_64B ? 64
                            : swizzle > Swizzle::bytes128         ? 32
                                                                  : 16;
  const unsigned flipped = swizzle == Swizzle::bytes128_atom_32B_flip_8B ? (byte >> 7 & 1) << 3 : 0;
  return byte ^ (byte >> 7 & (span_bytes(swizzle) / atom - 1)) * atom ^ flipped;
}

// Return the index of an element in a swizzled tile. The tile must be aligned to 1024 bytes, and
// each row of the tile must be one span.
//   no instruction | anyone | host and device | 0.2 | 3 integer operations
//   e.g. tile[swizzled_index<float, Swizzle::bytes128>(row, column)]
template <class Element, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned swizzled_index(unsigned row, unsigned column)
{
  static_assert(swizzle != Swizzle::none, "without a swizzle the index is row * columns + column");
  static_assert(sizeof(Element) <= (swizzle == Swizzle::bytes128_atom_32B_flip_8B ? 8 : 16),
                "a swizzle moves pieces of 16 bytes, or 8 if it flips: larger elements are split");
  return swizzled<swizzle>(row * span_bytes(swizzle) + column * sizeof(Element)) / sizeof(Element);
}

namespace detail
{

// Return a matrix descriptor in which only the leading byte offset and the stride byte offset are
// set. The offsets are in the same bits for wgmma and tcgen05.
template <unsigned leading_byte_offset, unsigned stride_byte_offset>
TMA_DLPACK_EITHER constexpr unsigned long long descriptor_offsets()
{
  static_assert(leading_byte_offset % 16 == 0 && stride_byte_offset % 16 == 0,
                "the offsets of a matrix descriptor are multiples of 16 bytes");
  static_assert(leading_byte_offset < 1u << 18 && stride_byte_offset < 1u << 18,
                "the offsets of a matrix descriptor are less than 262144 bytes");
  return static_cast<unsigned long long>(leading_byte_offset >> 4) << 16 |
         static_cast<unsigned long long>(stride_byte_offset >> 4) << 32;
}

// Return the descriptor's offsets for a tile of `rows` rows in the layout of k_major_descriptor().
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long k_major_offsets()
{
  static_assert(rows % 8 == 0, "the tensor core reads 8 rows at a time");
  if constexpr (swizzle == Swizzle::none)
    return descriptor_offsets<rows * 16, 128>();
  else
    return descriptor_offsets<16, 8 * span_bytes(swizzle)>();
}

template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long mn_major_offsets()
{
  if constexpr (swizzle == Swizzle::none)
    return descriptor_offsets<128, rows * 16>();
  else  // the stride byte offset is 8 rows, or 4 rows if the swizzle's atom has 32 bytes
    return descriptor_offsets<rows * span_bytes(swizzle),
                              (swizzle > Swizzle::bytes128 ? 4 : 8) * span_bytes(swizzle)>();
}

// Return the bits of a matrix descriptor that select the swizzle. For wgmma, the swizzles none,
// bytes32, bytes64 and bytes128 are 0, 3, 2 and 1 in bits 62..63. For tcgen05, these swizzles are
// 0, 6, 4 and 2 in bits 61..63, so the descriptors have the same bits as for wgmma. For tcgen05,
// bytes128_atom_32B is 1. Every descriptor for tcgen05 also has 0b001 in bits 46..48, which the
// constant TCGEN05 sets.
template <Swizzle swizzle, bool or_atom_32B = false>
TMA_DLPACK_EITHER constexpr unsigned long long layout_bits()
{
  static_assert(swizzle <= Swizzle::bytes128 || (or_atom_32B && swizzle == Swizzle::bytes128_atom_32B),
                "the tensor core reads tiles with the swizzle none, bytes32, bytes64 or bytes128, and "
                "tcgen05 MN-major ones of 32-bit elements with bytes128_atom_32B");
  if constexpr (swizzle == Swizzle::bytes128_atom_32B) return 1ull << 61;
  return static_cast<unsigned long long>((4 - static_cast<unsigned>(swizzle)) % 4) << 62;
}

constexpr unsigned long long TCGEN05 = 1ull << 46;

}  // namespace detail

// Return the 64-bit matrix descriptor of a tile for wgmma, without the tile's address (PTX ISA,
// "Matrix Descriptor Format"). The base offset is 0, which is correct even if the tile is aligned
// to only 128 bytes (measured).
//   wgmma, "Matrix Descriptor Format" | anyone | host, sm_90 | 0.2 | compile time
//   e.g. matrix_descriptor<16, 1024, Swizzle::bytes128>()
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 1000
template <unsigned leading_byte_offset, unsigned stride_byte_offset, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long matrix_descriptor()
{
  return detail::descriptor_offsets<leading_byte_offset, stride_byte_offset>() |
         detail::layout_bits<swizzle>();
}

// Return the matrix_descriptor() of a K-major tile with `rows` rows. The tile is divided into
// strips that are one span wide. In memory, the strips follow each other, and the rows of a strip
// follow each other. Two layouts in shared memory are such tiles: successive boxes of (rows, one
// span), and the single box of a map with split_inner.
//   wgmma, "Matrix Descriptor Format" | anyone | host, sm_90 | 0.2 | compile time
//   e.g. k_major_descriptor<128, Swizzle::bytes128>()
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long k_major_descriptor()
{
  return detail::k_major_offsets<rows, swizzle>() | detail::layout_bits<swizzle>();
}

// Return the matrix_descriptor() of an MN-major tile of 16-bit elements. The tile has one row for
// each index of K. Its strips and rows are stored in the same order as for k_major_descriptor().
//   wgmma, "Matrix Descriptor Format" | anyone | host, sm_90 | 0.2 | compile time
//   e.g. mn_major_descriptor<64, Swizzle::bytes128>()
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long mn_major_descriptor()
{
  static_assert(rows % 16 == 0, "the tensor core reads 16 rows of K at a time");
  return detail::mn_major_offsets<rows, swizzle>() | detail::layout_bits<swizzle>();
}
#else
template <unsigned, unsigned, Swizzle>
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_WGMMA) constexpr unsigned long long matrix_descriptor() = delete;
template <unsigned, Swizzle>
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_WGMMA) constexpr unsigned long long k_major_descriptor() = delete;
template <unsigned, Swizzle>
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_WGMMA) constexpr unsigned long long mn_major_descriptor() = delete;
#endif

// Return the 64-bit descriptor of a K-major tile for tcgen05.mma, without the tile's address. The
// tile must have the layout of k_major_descriptor(), and its address must be a multiple of 8 spans.
// The descriptor follows NVIDIA's documentation, and was not tested on a GPU.
//   tcgen05, "Shared memory descriptor" | anyone | host and device | 0.4 | compile time
//   e.g. tcgen05_k_major_descriptor<128, Swizzle::bytes128>()
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long tcgen05_k_major_descriptor()
{
  return detail::k_major_offsets<rows, swizzle>() | detail::layout_bits<swizzle>() | detail::TCGEN05;
}

// Return the 64-bit descriptor of an MN-major tile for tcgen05.mma, without the tile's address. The
// tile must have the layout of mn_major_descriptor(), and its address must be a multiple of 8
// spans. Elements of 32 bits need bytes128_atom_32B. Other elements need a swizzle without "atom"
// in its name. The descriptor follows NVIDIA's documentation, and was not tested on a GPU.
//   tcgen05, "Shared memory descriptor" | anyone | host and device | 0.4 | compile time
//   e.g. tcgen05_mn_major_descriptor<64, Swizzle::bytes128>()
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned long long tcgen05_mn_major_descriptor()
{
  static_assert(rows % (swizzle == Swizzle::bytes128_atom_32B ? 8 : 16) == 0,
                "the tensor core reads 16 rows of K or more at a time, 8 of 32-bit elements");
  return detail::mn_major_offsets<rows, swizzle>() | detail::layout_bits<swizzle, true>() | detail::TCGEN05;
}

// The type of the elements that the tensor core multiplies. The sums are float. fp16 stands for
// __half. tf32 stands for float, and the tensor core ignores the lower 13 bits of each element.
enum class MmaType
{
  bf16,
  fp16,
  tf32,
  e4m3,
  e5m2
};

// The dimension along which the elements of a tile are contiguous in shared memory. MN stands for M
// in a tile of A, and for N in a tile of B.
enum class Major
{
  K,
  MN
};

namespace detail
{

TMA_DLPACK_EITHER constexpr bool is_fp8(MmaType type)
{
  return type == MmaType::e4m3 || type == MmaType::e5m2;
}

template <MmaType a, MmaType b>
TMA_DLPACK_EITHER constexpr void require_pair()
{
  static_assert(a == b || (is_fp8(a) && is_fp8(b)),
                "the tensor core multiplies two operands of one type, or e4m3 and e5m2");
}

}  // namespace detail

// Return the 32-bit instruction descriptor of tcgen05.mma. The descriptor contains the types and
// majors of A and B, the shape, and float as the type of the sums. m is the number of rows of A. If
// cta_group is 2, m is the sum of the rows in both blocks. The descriptor follows NVIDIA's
// documentation, and was not tested on a GPU.
//   tcgen05, "Instruction descriptor" | anyone | host and device | 0.4 | compile time
//   e.g. tcgen05_instruction_descriptor<MmaType::bf16, 128, 256>()
template <MmaType a_type, unsigned m, unsigned n, MmaType b_type = a_type, Major a_major = Major::K,
          Major b_major = Major::K>
TMA_DLPACK_EITHER constexpr unsigned tcgen05_instruction_descriptor()
{
  detail::require_pair<a_type, b_type>();
  static_assert(m == 64 || m == 128 || m == 256, "tcgen05.mma takes 64, 128 or 256 rows of A");
  static_assert(n % (m == 64 ? 8 : 16) == 0 && 8 <= n && n <= 256,
                "tcgen05.mma takes multiples of 16 rows of B, up to 256; of 8, if A has 64");
  // The number that the descriptor has for each type, in the order of MmaType. F16 is 0, BF16 is 1,
  // and TF32 is 2. In kind::f8f6f4, E4M3 is 0 and E5M2 is 1.
  constexpr unsigned numbers[] = {1, 0, 2, 0, 1};
  return 1u << 4 | numbers[static_cast<int>(a_type)] << 7 | numbers[static_cast<int>(b_type)] << 10 |
         static_cast<unsigned>(a_major) << 15 | static_cast<unsigned>(b_major) << 16 | n / 8 << 17 |
         m / 16 << 24;
}

// Return the offset, in bytes, of a K step of wgmma or tcgen05 from the start of a K-major tile. A
// K step is 32 bytes of every row.
//   no instruction | anyone | host and device | 0.2 | compile time, unrolled
//   e.g. a + k_step_bytes<128, Swizzle::bytes128>(step)
template <unsigned rows, Swizzle swizzle>
TMA_DLPACK_EITHER constexpr unsigned k_step_bytes(unsigned k_step)
{
  constexpr unsigned span = span_bytes(swizzle);
  return 32 * k_step / span * rows * span + 32 * k_step % span;
}

// Return the offset, in bytes, of a K step from the start of an MN-major tile. A K step is 16 rows
// of 16-bit elements, 32 rows of 8-bit elements, or 8 rows of 32-bit elements.
//   no instruction | anyone | host and device | 0.2 | compile time, unrolled
//   e.g. a + mn_major_k_step_bytes<Swizzle::bytes128>(step)
template <Swizzle swizzle, unsigned element_bytes = 2>
TMA_DLPACK_EITHER constexpr unsigned mn_major_k_step_bytes(unsigned k_step)
{
  return k_step * (32 / element_bytes) * span_bytes(swizzle);
}

// Return `descriptor` with the tile's shared-memory address added. `descriptor` is the result of
// k_major_descriptor() or of another function for descriptors. For a later K step, add
// k_step_bytes() to the address.
//   no instruction | anyone | host and device | 0.2 | 2 integer operations
//   e.g. descriptor_at(shared_address(tile), descriptor)
TMA_DLPACK_EITHER constexpr unsigned long long descriptor_at(unsigned smem_address,
                                                             unsigned long long descriptor)
{
  return descriptor | (smem_address & 0x3FFFF) >> 4;
}

// ---- device ------------------------------------------------------------------------------------

#ifdef __CUDACC__

// The release of the compiler and of its ptxas, such as 1208 for CUDA 12.8.
#if defined(__CUDACC_VER_MAJOR__)
#define TMA_DLPACK_CUDA (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__)
#define TMA_DLPACK_HAS_OPERAND_C (TMA_DLPACK_CUDA >= 1206)  // asm accepts strings as operands ("C")
#else  // clang uses the ptxas of the toolkit that has this cuda.h
#define TMA_DLPACK_CUDA (CUDA_VERSION / 1000 * 100 + CUDA_VERSION % 1000 / 10)
#define TMA_DLPACK_HAS_OPERAND_C 0
#endif

// TMA_DLPACK_HAS_SUFFIX is 1 if the target has the suffix a or f. TMA_DLPACK_HAS_PAIRS is 1 if pairs
// of blocks can share an mma. In the compiler's pass for the host, both macros are 1, so that every
// verb is defined.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__) ||                             \
  defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL) ||                       \
  defined(__CUDA_ARCH_FEAT_SM101_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL)
#define TMA_DLPACK_HAS_SUFFIX 1  // such as sm_90a
#else
#define TMA_DLPACK_HAS_SUFFIX 0
#endif
#if !defined(__CUDA_ARCH__) ||                                                                       \
  (TMA_DLPACK_HAS_SUFFIX && __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200)
#define TMA_DLPACK_HAS_PAIRS 1  // sm_100a, sm_100f, sm_103a, sm_107a, sm_110a
#else
#define TMA_DLPACK_HAS_PAIRS 0
#endif
// Declares a verb that this target lacks. A call of the verb does not compile. The compiler's error
// message contains REASON.
#define TMA_DLPACK_LACKS_VERB(VERB, REASON) \
  template <class... Given>                 \
  [[deprecated(REASON)]] __device__ void VERB(Given...) = delete;
#define TMA_DLPACK_NEEDS_SUFFIX \
  "this target lacks it: compile for one with the suffix a or f, such as sm_90a"
#define TMA_DLPACK_NEEDS_SM100 "this target lacks it: compile for sm_100 or later"
#define TMA_DLPACK_NEEDS_PAIRS "this target lacks it: compile for sm_100a, 100f, 103a or 110a"
#define TMA_DLPACK_NEEDS_NVCC_OR_NVRTC(RELEASE, INSTEAD) \
  "this compiler lacks it: compile with nvcc or NVRTC of CUDA " RELEASE " or later, or call " INSTEAD
#define TMA_DLPACK_NEEDS_SM107 "this target lacks it: compile for sm_107a with CUDA 13.4 or later"

// An mbarrier in shared memory: `__shared__ tma_dlpack::Barrier full;`.
struct Barrier
{
  unsigned long long state;
};

// The offsets of a filter tap in an im2col load, W first. Offsets have their own types, so that an
// offset cannot be passed as a coordinate.
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

// The two offsets of an im2col-wide load, which PTX calls wHalo and wOffset.
struct HaloW
{
  unsigned short halo, w;
};

// A coordinate is an integer of at most 32 bits. A floating-point number or an integer of 64 bits
// does not compile. Cast such a number to int if its value fits.
template <class T>
inline constexpr bool is_coordinate = __is_enum(T) && sizeof(T) <= 4;
template <> inline constexpr bool is_coordinate<signed char> = true;
template <> inline constexpr bool is_coordinate<unsigned char> = true;
template <> inline constexpr bool is_coordinate<char> = true;
template <> inline constexpr bool is_coordinate<short> = true;
template <> inline constexpr bool is_coordinate<unsigned short> = true;
template <> inline constexpr bool is_coordinate<int> = true;
template <> inline constexpr bool is_coordinate<unsigned> = true;
template <> inline constexpr bool is_coordinate<long> = sizeof(long) == 4;
template <> inline constexpr bool is_coordinate<unsigned long> = sizeof(long) == 4;

#define TMA_DLPACK_COORDINATE "a coordinate is an integer of at most 32 bits: cast what is not"

struct Coordinate
{
  int value;

  template <class T>
  __device__ constexpr Coordinate(T number) : value(static_cast<int>(number))
  {
    static_assert(is_coordinate<T>, TMA_DLPACK_COORDINATE);
  }
};

// A map whose rank the compiler knows, such as `const __grid_constant__ tma_dlpack::RankedMap<2>
// x`. A call with a wrong number of coordinates does not compile. With a Map, such a call compiles,
// and a checked build reports the call at run time. A RankedMap is made from a Map, and converts to
// a Map.
template <unsigned rank_>
struct RankedMap : Map
{
  static_assert(1 <= rank_ && rank_ <= 5, "a map has 1 to 5 dimensions");
  static constexpr unsigned rank = rank_;

  RankedMap() = default;
  __host__ __device__ RankedMap(const Map& map) : Map(map) {}
};

// The blocks of a cluster to which a multicast writes. Bit i stands for the block of rank i. An
// integer converts to a BlockMask. The literal 0 does not compile, because it selects no block.
struct BlockMask
{
  unsigned short bits;

  template <class T>
  __device__ constexpr BlockMask(T blocks) : bits(static_cast<unsigned short>(blocks))
  {
    static_assert(static_cast<T>(1) / 2 == static_cast<T>(0),
                  "a mask of blocks is an integer: bit i is the block of rank i");
  }
};

// The literal 0 converts to a null pointer and to a BlockMask. Overload resolution prefers the null
// pointer, so each verb with a BlockMask has a deleted overload with a Nowhere*.
struct Nowhere;
#define TMA_DLPACK_NOWHERE \
  [[deprecated("the block mask 0 names no block: set bit i for the block of rank i")]] __device__ inline

// The operation with which a reduction combines a tile with the values in global memory.
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

// The priority of a copy's bytes in the L2 cache. evict_first(), evict_last() and evict_normal()
// return a policy.
struct CachePolicy
{
  unsigned long long bits;
};

// Return the 32-bit shared-memory address of a pointer, for PTX instructions.
//   cvta.to.shared | anyone | sm_90 | 0.2 | 0 to 2 integer operations
//   e.g. shared_address(tile)
__device__ inline unsigned shared_address(const void* smem)
{
  return static_cast<unsigned>(__cvta_generic_to_shared(smem));
}

// With TMA_DLPACK_CHECK, the verbs from here to the end of the chapter "a ring of stages" are in
// the namespace `unchecked`. tma_dlpack_check.h then defines verbs of the same names, which check
// their arguments and call the unchecked verbs.
#if TMA_DLPACK_CHECK
namespace unchecked
{
#endif

// ---- mbarriers and fences ----

// Initialise a barrier. Each phase of the barrier ends after `arrivals` arrivals and all expected
// bytes. One thread calls init(). Then all threads call __syncthreads(), or cluster_sync() if other
// blocks of the cluster use the barrier.
//   mbarrier.init, fence.mbarrier_init | one thread | sm_90 | 0.2 | SYNCS.EXCH
//   e.g. init(&full); __syncthreads();
__device__ inline void init(Barrier* barrier, unsigned arrivals = 1)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrive at the barrier, and add `tx_bytes` to the bytes that the barrier expects in this phase.
// `tx_bytes` is the sum of TensorMap.tx_bytes over the loads of the phase. One thread calls this
// verb.
//   mbarrier.arrive.expect_tx | one thread | sm_90 | 0.4 | SYNCS.ARRIVE
//   e.g. arrive_expect_tx(&full, tx_bytes); load(tile, map, &full, column, row);
__device__ inline void arrive_expect_tx(Barrier* barrier, unsigned tx_bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                 shared_address(barrier)),
               "r"(tx_bytes)
               : "memory");
}

// Add `tx_bytes` to the bytes that the barrier expects in this phase, without an arrival. Therefore
// a thread must also call arrive() in this phase.
//   mbarrier.expect_tx | one thread | sm_90 | 0.4 | SYNCS.ARRIVE
//   e.g. expect_tx_only(&full, tx_bytes); ... arrive(&full);
__device__ inline void expect_tx_only(Barrier* barrier, unsigned tx_bytes)
{
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                 shared_address(barrier)),
               "r"(tx_bytes)
               : "memory");
}

// The name of arrive_expect_tx() in releases before 0.4.
[[deprecated("call arrive_expect_tx(); PTX's expect_tx, which does not arrive, is expect_tx_only()")]]
__device__ inline void expect_tx(Barrier* barrier, unsigned tx_bytes)
{
  arrive_expect_tx(barrier, tx_bytes);
}

// Arrive at the barrier. The earlier accesses of this thread happen before the phase ends. With a
// `count`, the call counts as `count` arrivals.
//   mbarrier.arrive | each thread that init() counts | sm_90 | 0.2 | SYNCS.ARRIVE
//   e.g. arrive(&empty);
__device__ inline void arrive(Barrier* barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ inline void arrive(Barrier* barrier, unsigned count)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}

// Arrive at a barrier in the block of rank `block_rank`. The barrier has the same shared-memory
// offset as `barrier`. The block may be any block of the cluster, including this block. A thread
// that waits with wait_cluster() then sees the writes of this thread.
//   mapa, mbarrier.arrive.release.cluster | each thread that init() counts | sm_90 | 0.2 | MEMBAR.GPU, SYNCS.ARRIVE
//   e.g. arrive_remote(&ready, 0);
__device__ inline void arrive_remote(Barrier* barrier, unsigned block_rank)
{
  asm volatile("{\n .reg .b32 remote;\n"
               " mapa.shared::cluster.u32 remote, %0, %1;\n"
               " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(
                 shared_address(barrier)),
               "r"(block_rank)
               : "memory");
}

// Arrive as arrive_remote() does, but do not make writes of this thread visible. Use this verb
// after wgmma or a store has read a tile. The next tile may then be loaded to the same place.
// Because this verb has no fence, it makes hopper_gemm.cu 1.4 times as fast (H200). The verb needs
// CUDA 12.8 or later (PTX 8.6).
//   mapa, mbarrier.arrive.relaxed.cluster | each thread that init() counts | sm_90 | 0.2 | SYNCS.ARRIVE
//   e.g. arrive_remote_relaxed(&empty, block);
#if TMA_DLPACK_CUDA >= 1207
__device__ inline void arrive_remote_relaxed(Barrier* barrier, unsigned block_rank)
{
  asm volatile("{\n .reg .b32 remote;\n"
               " mapa.shared::cluster.u32 remote, %0, %1;\n"
               " mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(
                 shared_address(barrier)),
               "r"(block_rank)
               : "memory");
}
#else
TMA_DLPACK_LACKS_VERB(arrive_remote_relaxed, TMA_DLPACK_NEEDS_NVCC_OR_NVRTC("12.8", "arrive_remote()"))
#endif

// Return whether the phase of this parity is complete. The call may wait for a short time before it
// returns. The parities of successive phases are 0, 1, 0, ...
//   mbarrier.try_wait.parity | any thread | sm_90 | 0.2 | SYNCS.PHASECHK.TRYWAIT
//   e.g. if (try_wait(&full, state.phase())) ...
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

// Return whether the phase of this parity is complete. The call does not wait.
//   mbarrier.test_wait.parity | any thread | sm_90 | 0.4 | SYNCS.PHASECHK
//   e.g. if (test_wait(&full, 0)) ...
__device__ inline bool test_wait(Barrier* barrier, unsigned parity)
{
  unsigned complete;
  asm volatile("{\n .reg .pred p;\n"
               " mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
               " selp.u32 %0, 1, 0, p;\n}"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return complete != 0;
}

// Wait until the phase of this parity is complete. Every thread that reads the tile calls wait().
//   mbarrier.try_wait.parity, a loop | every thread that reads the tile | sm_90 | 0.2 | SYNCS.PHASECHK.TRYWAIT per iteration
//   e.g. wait(&full, state.phase());
__device__ inline void wait(Barrier* barrier, unsigned parity)
{
  while (!try_wait(barrier, parity)) {}
}

// Wait until the phase of this parity is complete, but at most `nanoseconds`. Return whether the
// phase is complete. With this verb, a kernel with a wrong copy can end instead of hanging.
//   mbarrier.try_wait.parity, %globaltimer | any thread | sm_90 | 0.2 | an iteration and 1 to 2 us of the timer
//   e.g. if (!wait_at_most(&full, 0, 1000000)) ...
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

// Wait until the phase of this parity is complete, and make the ordinary stores of other blocks of
// the cluster visible to this thread. Use this verb only for data that this thread reads with
// ordinary loads, and that another block wrote with ordinary stores before its arrive_remote(). For
// a tile that a load wrote, use wait(), even if another block issued the load. For a stage that
// another block released, use wait() too. Each iteration of wait_cluster() costs a CCTL.IVALL,
// which empties the L1 cache.
//   mbarrier.try_wait.parity.acquire.cluster, a loop | every thread that reads what others stored | sm_90 | 0.2 | SYNCS.PHASECHK.TRYWAIT, CCTL.IVALL per iteration
//   e.g. wait_cluster(&ready, 0);
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

// Fetch a map before its first use.
//   prefetch.tensormap | one thread | sm_90 | 0.4 | UTMACCTL.PF
//   e.g. prefetch_map(map);
__device__ inline void prefetch_map(const Map& map)
{
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The name of prefetch_map() in releases before 0.4.
[[deprecated("call prefetch_map(); prefetch_tile() is for a tile")]]
__device__ inline void prefetch(const Map& map)
{
  prefetch_map(map);
}

// Make a change of a map in global memory visible to the copies of this thread. Call this verb
// before a copy if a kernel or the host has changed the map in place. The thread that issues the
// copy calls the verb after a barrier or a flag has shown that the change is complete. A call
// covers one map (128 bytes), not an array of maps. Without the fence, the copy may use an older
// map. A __grid_constant__ parameter needs no fence.
//   fence.proxy.tensormap::generic.acquire.sys | the thread that issues the copy | sm_90 | 0.2 | UTMACCTL.IV
//   e.g. fence_acquire(maps + i); load(tile, maps[i], &full, 0, 0);
__device__ inline void fence_acquire(const Map* map)
{
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

// Order ordinary writes to shared memory before a TMA store or a wgmma that reads this memory.
// Every thread that wrote calls fence_async(), and then __syncthreads().
//   fence.proxy.async.shared::cta | every thread that wrote | sm_90 | 0.2 | MEMBAR.ALL.CTA, FENCE.VIEW.ASYNC
//   e.g. fence_async(); __syncthreads();
__device__ inline void fence_async()
{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Order ordinary stores to global memory before a TMA copy or load_bulk() that reads this memory.
// There are two ways to use this verb. (1) Each thread that wrote to the memory calls the verb, and
// then signals other threads. (2) The thread that issues the copy calls the verb after it has
// acquired the stores by a flag or a barrier. Stores of an earlier kernel need no fence.
//   fence.proxy.async.global | every thread that wrote, or the thread that copies | sm_90 | 0.4 | FENCE.VIEW.ASYNC
//   e.g. x[0] = 1; fence_async_global(); __syncthreads();
__device__ inline void fence_async_global()
{
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Return true in exactly one thread of a warp, which is the same thread in each call. Every thread
// of a converged warp calls this verb, as in `if (threadIdx.x < 32 && elect_one()) ...`. The
// compiler then knows that only one thread issues the copy. If you write `if (threadIdx.x == 0)`
// instead, the compiler does not know this, and generates a loop around the copy.
//   elect.sync | every thread of a converged warp | sm_90 | 0.4 | ELECT
//   e.g. if (threadIdx.x < 32 && elect_one()) load(tile, map, &full, column, row);
__device__ inline bool elect_one()
{
  unsigned elected;
  asm volatile("{\n .reg .pred p;\n"
               " elect.sync _|p, 0xffffffff;\n"
               " selp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected)
               :
               : "memory");
  return elected != 0;
}

// Allow the next kernel of the stream to start, if it was launched with programmatic stream
// serialization. The next kernel may start when each block of this kernel has ended or has called
// this verb in at least one thread. The next kernel sees the writes of this kernel only after it
// has called wait_dependencies().
//   griddepcontrol.launch_dependents | any thread | sm_90 | 0.4 | PREEXIT
//   e.g. launch_dependents();
__device__ inline void launch_dependents()
{
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Wait until the earlier kernels of the stream are complete and their writes can be read. Every
// thread that reads these writes calls wait_dependencies() before its first load. Before this call,
// the thread may already prepare maps and barriers. Without programmatic stream serialization, the
// call does not wait.
//   griddepcontrol.wait | every thread that reads | sm_90 | 0.4 | ACQBULK
//   e.g. wait_dependencies();
__device__ inline void wait_dependencies()
{
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Wait at a barrier of the block until `threads` threads have arrived. `barrier_id` is 1 to 15,
// because __syncthreads() uses barrier 0. `threads` is a multiple of 32.
//   bar.sync | the threads of the barrier | sm_90 | 0.2 | BAR.SYNC
//   e.g. sync_threads(1 + warpgroup, 128);
__device__ inline void sync_threads(unsigned barrier_id, unsigned threads)
{
  asm volatile("bar.sync %0, %1;" ::"r"(barrier_id), "r"(threads) : "memory");
}

// ---- clusters ----

// Return the rank of this block in its cluster.
//   %cluster_ctarank | any thread | sm_90 | 0.2 | S2R
//   e.g. cluster_rank() == 0
__device__ inline unsigned cluster_rank()
{
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Arrive at the barrier of the cluster. Every thread of every block of the cluster calls
// cluster_arrive(), and later cluster_wait().
//   barrier.cluster.arrive.release | every thread of the cluster | sm_90 | 0.2 | MEMBAR.GPU, UCGABAR_ARV
//   e.g. cluster_arrive(); ... cluster_wait();
__device__ inline void cluster_arrive()
{
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Arrive as cluster_arrive() does, but do not make the writes of this thread visible. This is
// enough after init(), which itself makes the barriers visible.
//   barrier.cluster.arrive.relaxed | every thread of the cluster | sm_90 | 0.4 | UCGABAR_ARV
//   e.g. init(&full); cluster_arrive_relaxed(); ... cluster_wait();
__device__ inline void cluster_arrive_relaxed()
{
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Wait until every thread of the cluster has arrived.
//   barrier.cluster.wait.acquire | every thread of the cluster | sm_90 | 0.2 | UCGABAR_WAIT, CCTL.IVALL
//   e.g. cluster_wait();
__device__ inline void cluster_wait()
{
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Call cluster_arrive(), then cluster_wait(). Use this verb after init(). Use it also before a
// block exits, if other blocks may still write to the shared memory of this block.
//   barrier.cluster.arrive, .wait | every thread of the cluster | sm_90 | 0.2 | both
//   e.g. init(&full); cluster_sync();
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

// Return the policy with which L2 evicts the bytes of a copy before other bytes. Use this policy
// for a tensor that is read or written only once.
//   createpolicy.fractional.L2::evict_first | any thread | sm_90 | 0.2 | a constant
//   e.g. store(map, tile, evict_first(), column, row);
TMA_DLPACK_POLICY(evict_first)

// Return the policy with which L2 evicts the bytes of a copy after other bytes. Use this policy for
// a tensor that other blocks read again.
//   createpolicy.fractional.L2::evict_last | any thread | sm_90 | 0.2 | a constant
//   e.g. load(tile, map, &full, evict_last(), column, row);
TMA_DLPACK_POLICY(evict_last)

// Return the policy with which L2 evicts the bytes of a copy with normal priority. A copy without a
// policy has the same priority.
//   createpolicy.fractional.L2::evict_normal | any thread | sm_90 | 0.2 | a constant
//   e.g. load(tile, map, &full, evict_normal(), column, row);
TMA_DLPACK_POLICY(evict_normal)

#undef TMA_DLPACK_POLICY

// ---- copies: one instruction for each rank ----

namespace detail
{

// The operands of a copy instruction. Unused operands are 0.
struct Copy
{
  const Map* map;
  unsigned smem, barrier;
  unsigned short block_mask;
  int c[5] = {};
  unsigned short offset[3] = {};
  unsigned long long policy = 0;
  unsigned rank = 0;

  template <class T>
  __device__ void take(T coordinate)
  {
    c[rank++] = static_cast<int>(coordinate);
  }
  __device__ void take(CachePolicy given) { policy = given.bits; }
  __device__ void take(OffsetsW tap) { offset[0] = tap.w; }
  __device__ void take(OffsetsWH tap) { offset[0] = tap.w, offset[1] = tap.h; }
  __device__ void take(OffsetsWHD tap) { offset[0] = tap.w, offset[1] = tap.h, offset[2] = tap.d; }
  __device__ void take(HaloW tap) { offset[0] = tap.halo, offset[1] = tap.w; }
};

// After its map and barrier, a verb takes a policy for L2, coordinates and offsets. These templates
// classify the types of such arguments. For a type of offsets, `taps` is not 0.
template <class T>
inline constexpr unsigned taps = 0;
template <> inline constexpr unsigned taps<OffsetsW> = 1;
template <> inline constexpr unsigned taps<OffsetsWH> = 2;
template <> inline constexpr unsigned taps<OffsetsWHD> = 3;
template <> inline constexpr unsigned taps<HaloW> = 4;
template <class T>
inline constexpr bool is_policy = false;
template <> inline constexpr bool is_policy<CachePolicy> = true;
template <class... Given>
inline constexpr unsigned rank_given = (0 + ... + is_coordinate<Given>);
template <class M>
inline constexpr unsigned rank_of = 0;  // the rank is not known
template <unsigned rank>
inline constexpr unsigned rank_of<RankedMap<rank>> = rank;

template <class M>
__device__ inline void require_map()
{
  static_assert(__is_base_of(Map, M), "pass a map where this verb takes one: load(smem, map, ...), "
                                      "store(map, smem, ...), prefetch_tile(map, ...)");
}

template <class M>
__device__ inline void require_rows()
{
  require_map<M>();
  static_assert(rank_of<M> == 0 || rank_of<M> == 2, "rows are gathered by a map of rank 2");
}

enum class Mode
{
  tile,
  im2col,       // pixels follow each other along W, H and D
  im2col_w,     // pixels follow each other only along W
  im2col_w128,  // as im2col_w, with 128 pixels in each load
  store_im2col,
  from  // a tile of a tensor that begins at another address than the map's tensor
};

enum class To
{
  block,
  blocks,  // the blocks in block_mask
  pair,    // this block, with .cta_group::2
  pairs    // the blocks in block_mask, with .cta_group::2
};

template <Mode mode, class M, class... Given>
__device__ inline Copy copy(const void* smem, const M& map, unsigned barrier,
                            unsigned short block_mask, Given... given)
{
  require_map<M>();
  constexpr unsigned rank = rank_given<Given...>, offsets = (0 + ... + taps<Given>);
  static_assert(((is_coordinate<Given> || is_policy<Given> || taps<Given> != 0) && ...),
                TMA_DLPACK_COORDINATE);
  static_assert(1 <= rank && rank <= 5,
                "pass one coordinate for each dimension of the map, innermost first: 1 to 5");
  static_assert(rank_of<M> == 0 || rank_of<M> == rank,
                "pass as many coordinates as the map's rank, which the compiler knows");
  static_assert(mode == Mode::tile || mode == Mode::from || rank >= 3,
                "an im2col map has 3 to 5 dimensions");
  static_assert(offsets == (mode == Mode::im2col                                      ? rank - 2
                            : mode == Mode::im2col_w || mode == Mode::im2col_w128 ? 4
                                                                                      : 0),
                "after the coordinates an im2col load takes OffsetsW, OffsetsWH or OffsetsWHD, by its "
                "spatial dimensions, an im2col-wide one HaloW, and other copies take none");
  Copy all{&map, shared_address(smem), barrier, block_mask};
  (all.take(given), ...);
  return all;
}

#define TMA_DLPACK_COORDS_1 "{%3}"
#define TMA_DLPACK_COORDS_2 "{%3, %4}"
#define TMA_DLPACK_COORDS_3 "{%3, %4, %5}"
#define TMA_DLPACK_COORDS_4 "{%3, %4, %5, %6}"
#define TMA_DLPACK_COORDS_5 "{%3, %4, %5, %6, %7}"

// Every asm statement receives all operands. Its PTX text uses only the operands that the
// instruction needs.
#define TMA_DLPACK_COPY(PTX)                                                                     \
  asm volatile(PTX ::"r"(all.smem), "l"(all.map), "r"(all.barrier), "r"(all.c[0]), "r"(all.c[1]), \
               "r"(all.c[2]), "r"(all.c[3]), "r"(all.c[4]), "h"(all.offset[0]),                  \
               "h"(all.offset[1]), "h"(all.offset[2]), "h"(all.block_mask), "l"(all.policy)      \
               : "memory")

// The state space of the destination of a load to this block's shared memory. shared::cta needs PTX
// ISA 8.6 (CUDA 12.7). For shared::cluster, ptxas generates a function call on sm_120 and sm_121.
#if TMA_DLPACK_CUDA >= 1207
#define TMA_DLPACK_THIS_BLOCK "shared::cta"
#else
#define TMA_DLPACK_THIS_BLOCK "shared::cluster"
#endif

#define TMA_DLPACK_LOAD(RANK, SPACE, MODE, SUFFIX, OFFSETS, TAIL)                                \
  TMA_DLPACK_COPY("cp.async.bulk.tensor." #RANK "d." SPACE ".global." MODE                       \
                  ".mbarrier::complete_tx::bytes" SUFFIX " [%0], [%1, " TMA_DLPACK_COORDS_##RANK \
                  "], [%2]" OFFSETS TAIL ";")

// A load with a policy for L2, or without a policy.
#define TMA_DLPACK_LOADS(RANK, SPACE, MODE, SUFFIX, OFFSETS, TAIL)                               \
  {                                                                                              \
    if constexpr (hint)                                                                          \
      TMA_DLPACK_LOAD(RANK, SPACE, MODE, SUFFIX ".L2::cache_hint", OFFSETS, TAIL ", %12");       \
    else                                                                                         \
      TMA_DLPACK_LOAD(RANK, SPACE, MODE, SUFFIX, OFFSETS, TAIL);                                 \
  }

#define TMA_DLPACK_LOAD_TO(RANK, MODE, OFFSETS)                                                        \
  if constexpr (to == To::block)                                                                       \
    TMA_DLPACK_LOADS(RANK, TMA_DLPACK_THIS_BLOCK, MODE, "", OFFSETS, "")                               \
  else if constexpr (to == To::blocks)                                                                 \
    TMA_DLPACK_LOADS(RANK, "shared::cluster", MODE, ".multicast::cluster", OFFSETS, ", %11")           \
  else if constexpr (to == To::pair)                                                                   \
    TMA_DLPACK_LOADS(RANK, "shared::cluster", MODE, ".cta_group::2", OFFSETS, "")                      \
  else                                                                                                 \
    TMA_DLPACK_LOADS(RANK, "shared::cluster", MODE, ".multicast::cluster.cta_group::2", OFFSETS, ", %11")

#define TMA_DLPACK_IF(MODE, RANK) if constexpr (mode == Mode::MODE && rank == RANK)

template <Mode mode, To to, class M, class... Given>
__device__ inline void load(void* smem, const M& map, unsigned barrier, unsigned short block_mask,
                            Given... given)
{
  constexpr unsigned rank = rank_given<Given...>;
  constexpr bool hint = (is_policy<Given> || ...);
  const Copy all = copy<mode>(smem, map, barrier, block_mask, given...);
  TMA_DLPACK_IF(tile, 1) { TMA_DLPACK_LOAD_TO(1, "tile", "") }
  TMA_DLPACK_IF(tile, 2) { TMA_DLPACK_LOAD_TO(2, "tile", "") }
  TMA_DLPACK_IF(tile, 3) { TMA_DLPACK_LOAD_TO(3, "tile", "") }
  TMA_DLPACK_IF(tile, 4) { TMA_DLPACK_LOAD_TO(4, "tile", "") }
  TMA_DLPACK_IF(tile, 5) { TMA_DLPACK_LOAD_TO(5, "tile", "") }
  TMA_DLPACK_IF(im2col, 3) { TMA_DLPACK_LOAD_TO(3, "im2col", ", {%8}") }
  TMA_DLPACK_IF(im2col, 4) { TMA_DLPACK_LOAD_TO(4, "im2col", ", {%8, %9}") }
  TMA_DLPACK_IF(im2col, 5) { TMA_DLPACK_LOAD_TO(5, "im2col", ", {%8, %9, %10}") }
  TMA_DLPACK_IF(im2col_w, 3) { TMA_DLPACK_LOAD_TO(3, "im2col::w", ", {%8, %9}") }
  TMA_DLPACK_IF(im2col_w, 4) { TMA_DLPACK_LOAD_TO(4, "im2col::w", ", {%8, %9}") }
  TMA_DLPACK_IF(im2col_w, 5) { TMA_DLPACK_LOAD_TO(5, "im2col::w", ", {%8, %9}") }
  TMA_DLPACK_IF(im2col_w128, 3) { TMA_DLPACK_LOAD_TO(3, "im2col::w::128", ", {%8, %9}") }
  TMA_DLPACK_IF(im2col_w128, 4) { TMA_DLPACK_LOAD_TO(4, "im2col::w::128", ", {%8, %9}") }
  TMA_DLPACK_IF(im2col_w128, 5) { TMA_DLPACK_LOAD_TO(5, "im2col::w::128", ", {%8, %9}") }
}

#define TMA_DLPACK_PREFETCH(RANK)                                                                  \
  TMA_DLPACK_IF(tile, RANK)                                                                        \
  {                                                                                                \
    if constexpr ((is_policy<Given> || ...))                                                       \
      TMA_DLPACK_COPY("cp.async.bulk.prefetch.tensor." #RANK "d.L2.global.tile.L2::cache_hint [%1, " \
                      TMA_DLPACK_COORDS_##RANK "], %12;");                                         \
    else                                                                                           \
      TMA_DLPACK_COPY("cp.async.bulk.prefetch.tensor." #RANK "d.L2.global.tile [%1, "              \
                      TMA_DLPACK_COORDS_##RANK "];");                                              \
  }

template <Mode mode, class M, class... Given>
__device__ inline void prefetch(const M& map, Given... given)
{
  constexpr unsigned rank = rank_given<Given...>;
  Copy all = copy<mode>(nullptr, map, 0, 0, given...);
  all.smem = 0;
  TMA_DLPACK_PREFETCH(1)
  TMA_DLPACK_PREFETCH(2)
  TMA_DLPACK_PREFETCH(3)
  TMA_DLPACK_PREFETCH(4)
  TMA_DLPACK_PREFETCH(5)
}

// Operand %12 is the global address. In other copies, this operand is the policy.
#define TMA_DLPACK_FROM(RANK)                                                                    \
  TMA_DLPACK_IF(from, RANK)                                                                      \
  {                                                                                              \
    TMA_DLPACK_COPY("cp.async.bulk.tensor." #RANK "d.shared::cta.global.tile"                    \
                    ".mbarrier::complete_tx::bytes.override::global_address [%0], [%1, %12, "    \
                    TMA_DLPACK_COORDS_##RANK "], [%2];");                                        \
  }

template <Mode mode, class M, class... Given>
__device__ inline void load_from(void* smem, const M& map, const void* global_address,
                                 unsigned barrier, Given... given)
{
  constexpr unsigned rank = rank_given<Given...>;
  Copy all = copy<mode>(smem, map, barrier, 0, given...);
  all.policy = __cvta_generic_to_global(global_address);
  TMA_DLPACK_FROM(1)
  TMA_DLPACK_FROM(2)
  TMA_DLPACK_FROM(3)
  TMA_DLPACK_FROM(4)
  TMA_DLPACK_FROM(5)
}

#define TMA_DLPACK_STORE(PTX, RANK, OP, SUFFIX, TAIL)                                            \
  TMA_DLPACK_COPY(PTX ".async.bulk.tensor." #RANK "d.global.shared::cta" OP ".bulk_group" SUFFIX \
                      " [%1, " TMA_DLPACK_COORDS_##RANK "], [%0]" TAIL ";")

#define TMA_DLPACK_STORES(MODE, PTX, RANK, OP)                             \
  TMA_DLPACK_IF(MODE, RANK)                                                \
  {                                                                        \
    if constexpr ((is_policy<Given> || ...))                               \
      TMA_DLPACK_STORE(PTX, RANK, OP, ".L2::cache_hint", ", %12");         \
    else                                                                   \
      TMA_DLPACK_STORE(PTX, RANK, OP, "", "");                             \
  }

#define TMA_DLPACK_STORE_RANKS(PTX, OP)                          \
  {                                                              \
    TMA_DLPACK_STORES(tile, PTX, 1, OP ".tile")                  \
    TMA_DLPACK_STORES(tile, PTX, 2, OP ".tile")                  \
    TMA_DLPACK_STORES(tile, PTX, 3, OP ".tile")                  \
    TMA_DLPACK_STORES(tile, PTX, 4, OP ".tile")                  \
    TMA_DLPACK_STORES(tile, PTX, 5, OP ".tile")                  \
    TMA_DLPACK_STORES(store_im2col, PTX, 3, OP ".im2col_no_offs") \
    TMA_DLPACK_STORES(store_im2col, PTX, 4, OP ".im2col_no_offs") \
    TMA_DLPACK_STORES(store_im2col, PTX, 5, OP ".im2col_no_offs") \
  }

template <Mode mode, class M, class... Given>
__device__ inline void store(const M& map, const void* smem, Given... given)
{
  constexpr unsigned rank = rank_given<Given...>;
  const Copy all = copy<mode>(smem, map, 0, 0, given...);
  TMA_DLPACK_STORE_RANKS("cp", "")
}

template <Reduction op, Mode mode, class M, class... Given>
__device__ inline void reduce(const M& map, const void* smem, Given... given)
{
  constexpr unsigned rank = rank_given<Given...>;
  const Copy all = copy<mode>(smem, map, 0, 0, given...);
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
#undef TMA_DLPACK_FROM
#undef TMA_DLPACK_PREFETCH
#undef TMA_DLPACK_IF
#undef TMA_DLPACK_LOAD_TO
#undef TMA_DLPACK_LOADS
#undef TMA_DLPACK_LOAD
#undef TMA_DLPACK_COPY

}  // namespace detail

// ---- loads ----

// Load the tile at these coordinates into shared memory. The address `smem` must be aligned to
// TensorMap.smem_alignment. One thread calls load() after its arrive_expect_tx(). As in every copy,
// a policy for L2 may be passed before the coordinates. The innermost coordinate times the size of
// an element must be a multiple of 16 bytes. Otherwise, the kernel ends with error 715 (illegal
// instruction). For example, a tile of 16-bit elements with a halo cannot begin one column before a
// multiple of 8. With an interleave layout or a packed type, every coordinate meets this condition.
//   cp.async.bulk.tensor.{1..5}d.shared::cta.global.tile | one thread | sm_90 | 0.2 | UTMALDG
//   e.g. load(tile, map, &full, column, row);
template <class M, class... Coords>
__device__ inline void load(void* smem, const M& map, Barrier* barrier, Coords... coords)
{
  detail::load<detail::Mode::tile, detail::To::block>(smem, map, shared_address(barrier), 0, coords...);
}

// Load one tile into every block of the cluster whose bit in block_mask is set. In every block, the
// tile and the barrier have the same shared-memory offsets as in this block. The barrier of each
// block counts the bytes that are written to that block. The innermost coordinate times the size of
// an element must be a multiple of 16 bytes, as for load().
//   cp.async.bulk.tensor.{1..5}d ... .multicast::cluster | one thread | sm_90a (slow on sm_90, 12x) | 0.2 | UTMALDG.MULTICAST
//   e.g. load_multicast(tile, map, &full, 0b11, column, row);
template <class M, class... Coords>
__device__ inline void load_multicast(void* smem, const M& map, Barrier* barrier,
                                      BlockMask block_mask, Coords... coords)
{
  detail::load<detail::Mode::tile, detail::To::blocks>(smem, map, shared_address(barrier), block_mask.bits,
                                                       coords...);
}

template <class M, class... Coords>
TMA_DLPACK_NOWHERE void load_multicast(void*, const M&, Barrier*, Nowhere*, Coords...) = delete;

// Load the tile at these coordinates into L2, so that a later load() is faster. A thread cannot
// wait for a prefetch. The innermost coordinate times the size of an element must be a multiple of
// 16 bytes, as for load().
//   cp.async.bulk.prefetch.tensor.{1..5}d.L2.global.tile | one thread | sm_90 | 0.4 | UTMAPF.L2
//   e.g. prefetch_tile(map, column, row + 128);
template <class M, class... Coords>
__device__ inline void prefetch_tile(const M& map, Coords... coords)
{
  detail::prefetch<detail::Mode::tile>(map, coords...);
}

// Load pixels with an im2col map. Pass the coordinates (channel, w, [h, [d,]] image), and then
// the OffsetsW, OffsetsWH or OffsetsWHD of the filter tap. The channel coordinate times the size
// of an element must be a multiple of 16 bytes.
//   cp.async.bulk.tensor.{3..5}d ... .im2col | one thread | sm_90 | 0.2 | UTMALDG.IM2COL
//   e.g. load_im2col(tile, map, &full, c, w, h, n, OffsetsWH{tap_w, tap_h});
template <class M, class... Coords>
__device__ inline void load_im2col(void* smem, const M& map, Barrier* barrier, Coords... coords)
{
  detail::load<detail::Mode::im2col, detail::To::block>(smem, map, shared_address(barrier), 0,
                                                        coords...);
}

// Load as load_im2col() does, but into every block of the cluster whose bit in block_mask is
// set. The channel coordinate times the size of an element must be a multiple of 16 bytes.
//   cp.async.bulk.tensor.{3..5}d ... .im2col ... .multicast::cluster | one thread | sm_90a (slow on sm_90, 12x) | 0.2 | UTMALDG.IM2COL.MULTICAST
//   e.g. load_im2col_multicast(tile, map, &full, 0b11, c, w, n, OffsetsW{tap});
template <class M, class... Coords>
__device__ inline void load_im2col_multicast(void* smem, const M& map, Barrier* barrier,
                                             BlockMask block_mask, Coords... coords)
{
  detail::load<detail::Mode::im2col, detail::To::blocks>(smem, map, shared_address(barrier), block_mask.bits,
                                                         coords...);
}

template <class M, class... Coords>
TMA_DLPACK_NOWHERE void load_im2col_multicast(void*, const M&, Barrier*, Nowhere*, Coords...) = delete;

// Declare that this kernel reads the tile at offsets from the tile's start, such as the results of
// swizzled_index(). A checked build then requires that the tile begins at an address where the
// swizzle pattern begins. Other builds ignore the call.
//   no instruction | one thread | sm_90 | 0.3 | nothing
//   e.g. indexed_from_start(tile, map);
__device__ inline void indexed_from_start(const void*, const Map&) {}

// ---- loads of sm_100 and later: compiled for their targets, documented, not run ----

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 1000

// Load four rows with a 2D map whose box is one row. The column times the size of an element must
// be a multiple of 16 bytes.
//   cp.async.bulk.tensor.2d ... .tile::gather4 | one thread | sm_100 | 0.2 | UTMALDG.GATHER4
//   e.g. load_gather4(rows, map, &full, column, r0, r1, r2, r3);
template <class M>
__device__ inline void load_gather4(void* smem, const M& map, Barrier* barrier, Coordinate column,
                                    Coordinate row0, Coordinate row1, Coordinate row2, Coordinate row3)
{
  detail::require_rows<M>();
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4"
               ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(
                 shared_address(smem)),
               "l"(&map), "r"(shared_address(barrier)), "r"(column.value), "r"(row0.value),
               "r"(row1.value), "r"(row2.value), "r"(row3.value)
               : "memory");
}

// Load pixels with an im2col-wide map of mode w. Unlike the pixels of load_im2col(), these
// pixels follow each other only along W. The channel coordinate times the size of an element
// must be a multiple of 16 bytes.
//   cp.async.bulk.tensor.{3..5}d ... .im2col::w | one thread | sm_100 | 0.4 | UTMALDG.W
//   e.g. load_im2col_w(tile, map, &full, c, w, h, n, HaloW{halo, tap_w});
template <class M, class... Coords>
__device__ inline void load_im2col_w(void* smem, const M& map, Barrier* barrier, Coords... coords)
{
  detail::load<detail::Mode::im2col_w, detail::To::block>(smem, map, shared_address(barrier), 0,
                                                          coords...);
}

#else
TMA_DLPACK_LACKS_VERB(load_gather4, TMA_DLPACK_NEEDS_SM100)
TMA_DLPACK_LACKS_VERB(load_im2col_w, TMA_DLPACK_NEEDS_SM100)
#endif

#if TMA_DLPACK_HAS_PAIRS

namespace detail
{

// In this block's pair of blocks, one block has an even rank. Return the address of the barrier in
// that block, at the same shared-memory offset as `barrier`.
__device__ inline unsigned pair_barrier(const Barrier* barrier)
{
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(shared_address(barrier)), "r"(cluster_rank() & ~1u));
  return there;
}

}  // namespace detail

// Load as load_gather4() does, but into every block of the cluster whose bit in block_mask is set.
// The column times the size of an element must be a multiple of 16 bytes.
//   cp.async.bulk.tensor.2d ... .tile::gather4 ... .multicast::cluster | one thread | sm_100a, 100f, 103a, 110a | 0.4 | UTMALDG.GATHER4.MULTICAST
//   e.g. load_gather4_multicast(rows, map, &full, 0b11, column, r0, r1, r2, r3);
template <class M>
__device__ inline void load_gather4_multicast(void* smem, const M& map, Barrier* barrier,
                                              BlockMask block_mask, Coordinate column,
                                              Coordinate row0, Coordinate row1, Coordinate row2,
                                              Coordinate row3)
{
  detail::require_rows<M>();
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4"
               ".mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(smem)),
               "l"(&map), "r"(shared_address(barrier)), "r"(column.value), "r"(row0.value),
               "r"(row1.value), "r"(row2.value), "r"(row3.value), "h"(block_mask.bits)
               : "memory");
}

template <class M, class... Rows>
TMA_DLPACK_NOWHERE void load_gather4_multicast(void*, const M&, Barrier*, Nowhere*, Coordinate, Rows...) = delete;

// Load as load_im2col_w() does, but with a map of mode w128. The channel coordinate times the
// size of an element must be a multiple of 16 bytes.
//   cp.async.bulk.tensor.{3..5}d ... .im2col::w::128 | one thread | sm_100a, 100f, 103a, 110a | 0.4 | UTMALDG.W128
//   e.g. load_im2col_w128(tile, map, &full, c, w, h, n, HaloW{halo, tap_w});
template <class M, class... Coords>
__device__ inline void load_im2col_w128(void* smem, const M& map, Barrier* barrier, Coords... coords)
{
  detail::load<detail::Mode::im2col_w128, detail::To::block>(smem, map, shared_address(barrier), 0,
                                                             coords...);
}

// Load a tile for a pair of blocks that share one tcgen05.mma. The tile is written to this block's
// shared memory. The barrier in the pair's block of even rank counts the bytes. The innermost
// coordinate times the size of an element must be a multiple of 16 bytes, as for load().
//   cp.async.bulk.tensor.{1..5}d ... .cta_group::2 | one thread | sm_100a, 100f, 103a, 110a | 0.4 | UTMALDG.2CTA
//   e.g. load_cta_group2(tile, map, &full, column, row);
template <class M, class... Coords>
__device__ inline void load_cta_group2(void* smem, const M& map, Barrier* barrier, Coords... coords)
{
  detail::load<detail::Mode::tile, detail::To::pair>(smem, map, detail::pair_barrier(barrier), 0,
                                                     coords...);
}

// Load as load_cta_group2() does, but into every block of the cluster whose bit in block_mask is
// set. In each pair, the barrier in the block of even rank counts the bytes of both blocks. The
// innermost coordinate times the size of an element must be a multiple of 16 bytes, as for load().
//   cp.async.bulk.tensor.{1..5}d ... .multicast::cluster.cta_group::2 | one thread | sm_100a, 100f, 103a, 110a | 0.4 | UTMALDG.MULTICAST.2CTA
//   e.g. load_multicast_cta_group2(tile, map, &full, 0b1111, column, row);
template <class M, class... Coords>
__device__ inline void load_multicast_cta_group2(void* smem, const M& map, Barrier* barrier,
                                                 BlockMask block_mask, Coords... coords)
{
  detail::load<detail::Mode::tile, detail::To::pairs>(smem, map, detail::pair_barrier(barrier),
                                                      block_mask.bits, coords...);
}

template <class M, class... Coords>
TMA_DLPACK_NOWHERE void load_multicast_cta_group2(void*, const M&, Barrier*, Nowhere*, Coords...) = delete;

// Store four rows with a 2D map whose box is one row. One thread calls store_scatter4(), then
// store_commit(). The column times the size of an element must be a multiple of 16 bytes.
//   cp.async.bulk.tensor.2d ... .tile::scatter4 | one thread | sm_100a, 100f, 103a, 110a | 0.2 | UTMASTG.SCATTER4
//   e.g. store_scatter4(map, rows, column, r0, r1, r2, r3);
template <class M>
__device__ inline void store_scatter4(const M& map, const void* smem, Coordinate column,
                                      Coordinate row0, Coordinate row1, Coordinate row2,
                                      Coordinate row3)
{
  detail::require_rows<M>();
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
               " [%1, {%2, %3, %4, %5, %6}], [%0];" ::"r"(shared_address(smem)),
               "l"(&map), "r"(column.value), "r"(row0.value), "r"(row1.value), "r"(row2.value),
               "r"(row3.value)
               : "memory");
}

#else
TMA_DLPACK_LACKS_VERB(load_gather4_multicast, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(load_im2col_w128, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(load_cta_group2, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(load_multicast_cta_group2, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(store_scatter4, TMA_DLPACK_NEEDS_PAIRS)
#endif

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 1070 && TMA_DLPACK_HAS_SUFFIX &&                    \
                                TMA_DLPACK_CUDA >= 1304)

// Load a tile as if the map's tensor began at `global_address`, so that one map serves many tensors
// of the same shape. The innermost coordinate times the size of an element must be a multiple of 16
// bytes, as for load(). This verb needs a Rubin GPU, and CUDA 13.4 or later.
//   cp.async.bulk.tensor.{1..5}d ... .override::global_address | one thread | sm_107a, 107f | 0.4 | UTMALDG
//   e.g. load_from(tile, map, weights[expert], &full, column, row);
template <class M, class... Coords>
__device__ inline void load_from(void* smem, const M& map, const void* global_address,
                                 Barrier* barrier, Coords... coords)
{
  detail::load_from<detail::Mode::from>(smem, map, global_address, shared_address(barrier), coords...);
}

#else
TMA_DLPACK_LACKS_VERB(load_from, TMA_DLPACK_NEEDS_SM107)
#endif

// ---- stores and reductions ----

// Store the tile in shared memory to these coordinates, which must not be negative. One thread
// calls store(), then store_commit(). The innermost coordinate times the size of an element must be
// a multiple of 16 bytes, as for load().
//   cp.async.bulk.tensor.{1..5}d.global.shared::cta.tile | one thread | sm_90 | 0.2 | UTMASTG
//   e.g. fence_async(); __syncthreads(); if (first) store(map, tile, column, row), store_commit();
template <class M, class... Coords>
__device__ inline void store(const M& map, const void* smem, Coords... coords)
{
  detail::store<detail::Mode::tile>(map, smem, coords...);
}

// Store pixels with an im2col map whose corners are inside the tensor. Pass the coordinates
// (channel, w, [h, [d,]] image). The channel coordinate times the size of an element must be a
// multiple of 16 bytes.
//   cp.async.bulk.tensor.{3..5}d.global.shared::cta.im2col_no_offs | one thread | sm_90 | 0.2 | UTMASTG.IM2COL
//   e.g. store_im2col(map, tile, c, w, h, n);
template <class M, class... Coords>
__device__ inline void store_im2col(const M& map, const void* smem, Coords... coords)
{
  detail::store<detail::Mode::store_im2col>(map, smem, coords...);
}

// Combine the tile in shared memory with the values at these coordinates in global memory. For
// example, reduce<Reduction::add>(map, smem, c0, c1) adds the tile to these values. One thread
// calls reduce(), then store_commit(). The innermost coordinate times the size of an element must
// be a multiple of 16 bytes, as for load(). The PTX ISA lists the types for each operation under
// cp.reduce.async.bulk.tensor.
//   cp.reduce.async.bulk.tensor.{1..5}d.global.shared::cta.tile | one thread | sm_90 | 0.2 | UTMAREDG
//   e.g. reduce<Reduction::add>(map, tile, column, row);
template <Reduction op, class M, class... Coords>
__device__ inline void reduce(const M& map, const void* smem, Coords... coords)
{
  detail::reduce<op, detail::Mode::tile>(map, smem, coords...);
}

// Combine pixels as reduce() does, but with an im2col map whose corners are inside the tensor.
// The channel coordinate times the size of an element must be a multiple of 16 bytes.
//   cp.reduce.async.bulk.tensor.{3..5}d.global.shared::cta.im2col_no_offs | one thread | sm_90 | 0.2 | UTMAREDG.IM2COL
//   e.g. reduce_im2col<Reduction::add>(map, tile, c, w, h, n);
template <Reduction op, class M, class... Coords>
__device__ inline void reduce_im2col(const M& map, const void* smem, Coords... coords)
{
  detail::reduce<op, detail::Mode::store_im2col>(map, smem, coords...);
}

// ---- bytes in a row, without a map ----

// Load bytes from global to shared memory. Both addresses and the number of bytes must be multiples
// of 16. The barrier counts the bytes. One thread calls load_bulk() after its arrive_expect_tx().
//   cp.async.bulk.shared::cta.global | one thread | sm_90 | 0.4 | UBLKCP
//   e.g. arrive_expect_tx(&full, bytes); load_bulk(smem, x, bytes, &full);
__device__ inline void load_bulk(void* smem, const void* global, unsigned bytes, Barrier* barrier)
{
  asm volatile("cp.async.bulk." TMA_DLPACK_THIS_BLOCK ".global.mbarrier::complete_tx::bytes"
               " [%0], [%1], %2, [%3];" ::"r"(shared_address(smem)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// load_bulk() with a policy for L2.
__device__ inline void load_bulk(void* smem, const void* global, unsigned bytes, Barrier* barrier,
                                 CachePolicy policy)
{
  asm volatile("cp.async.bulk." TMA_DLPACK_THIS_BLOCK ".global.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(smem)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier)),
               "l"(policy.bits)
               : "memory");
}

// Load as load_bulk() does, but into every block of the cluster whose bit in block_mask is set. In
// every block, the destination and the barrier have the same shared-memory offsets as in this
// block. The barrier of each block counts the bytes that are written to that block.
//   cp.async.bulk.shared::cluster.global ... .multicast::cluster | one thread | sm_90a (slow on sm_90, 12x) | 0.4 | UBLKCP.MULTICAST
//   e.g. load_bulk_multicast(smem, x, bytes, &full, 0b11);
__device__ inline void load_bulk_multicast(void* smem, const void* global, unsigned bytes,
                                           Barrier* barrier, BlockMask block_mask)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(smem)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier)),
               "h"(block_mask.bits)
               : "memory");
}

// load_bulk_multicast() with a policy for L2.
__device__ inline void load_bulk_multicast(void* smem, const void* global, unsigned bytes,
                                           Barrier* barrier, BlockMask block_mask, CachePolicy policy)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(shared_address(smem)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier)),
               "h"(block_mask.bits), "l"(policy.bits)
               : "memory");
}

template <class... Policy>
TMA_DLPACK_NOWHERE void load_bulk_multicast(void*, const void*, unsigned, Barrier*, Nowhere*,
                                            Policy...) = delete;

// Store bytes from shared to global memory. Both addresses and the number of bytes must be
// multiples of 16. One thread calls store_bulk(), then store_commit(). Call fence_async() after the
// writes to shared memory, as for store().
//   cp.async.bulk.global.shared::cta | one thread | sm_90 | 0.4 | UBLKCP
//   e.g. store_bulk(out, smem, bytes); store_commit();
__device__ inline void store_bulk(void* global, const void* smem, unsigned bytes)
{
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                 __cvta_generic_to_global(global)),
               "r"(shared_address(smem)), "r"(bytes)
               : "memory");
}

// store_bulk() with a policy for L2.
__device__ inline void store_bulk(void* global, const void* smem, unsigned bytes, CachePolicy policy)
{
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
                 __cvta_generic_to_global(global)),
               "r"(shared_address(smem)), "r"(bytes), "l"(policy.bits)
               : "memory");
}

namespace detail
{

// The types of the elements of cp.reduce.async.bulk. u and s stand for unsigned and signed
// integers.
enum class Number
{
  u32,
  s32,
  u64,
  s64,
  f16,
  bf16,
  f32,
  f64,
  none
};
template <class T>
inline constexpr Number number_of = Number::none;
template <> inline constexpr Number number_of<unsigned> = Number::u32;
template <> inline constexpr Number number_of<int> = Number::s32;
template <> inline constexpr Number number_of<unsigned long> =
  sizeof(long) == 8 ? Number::u64 : Number::u32;
template <> inline constexpr Number number_of<long> = sizeof(long) == 8 ? Number::s64 : Number::s32;
template <> inline constexpr Number number_of<unsigned long long> = Number::u64;
template <> inline constexpr Number number_of<long long> = Number::s64;
template <> inline constexpr Number number_of<__half> = Number::f16;
template <> inline constexpr Number number_of<__nv_bfloat16> = Number::bf16;
template <> inline constexpr Number number_of<float> = Number::f32;
template <> inline constexpr Number number_of<double> = Number::f64;

#define TMA_DLPACK_BULK(OP, NUMBER, PTX)                                                           \
  if constexpr (op == Reduction::OP && number == Number::NUMBER)                                   \
  {                                                                                                \
    if constexpr (hint)                                                                            \
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint" PTX         \
                   " [%0], [%1], %2, %3;" ::"l"(global), "r"(smem), "r"(bytes), "l"(policy.bits)   \
                   : "memory");                                                                    \
    else                                                                                           \
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group" PTX " [%0], [%1], %2;" ::  \
                     "l"(global), "r"(smem), "r"(bytes)                                            \
                   : "memory");                                                                    \
  }

// Source: PTX ISA, cp.reduce.async.bulk. PTX has no add of s64, but add of u64 computes the same
// bits.
template <Reduction op, Number number, bool hint>
__device__ inline void reduce_bulk(unsigned long long global, unsigned smem, unsigned bytes,
                                   CachePolicy policy)
{
  TMA_DLPACK_BULK(add, u32, ".add.u32")
  else TMA_DLPACK_BULK(add, s32, ".add.s32")
  else TMA_DLPACK_BULK(add, u64, ".add.u64")
  else TMA_DLPACK_BULK(add, s64, ".add.u64")
  else TMA_DLPACK_BULK(add, f16, ".add.noftz.f16")
  else TMA_DLPACK_BULK(add, bf16, ".add.noftz.bf16")
  else TMA_DLPACK_BULK(add, f32, ".add.f32")
  else TMA_DLPACK_BULK(add, f64, ".add.f64")
  else TMA_DLPACK_BULK(min, u32, ".min.u32")
  else TMA_DLPACK_BULK(min, s32, ".min.s32")
  else TMA_DLPACK_BULK(min, u64, ".min.u64")
  else TMA_DLPACK_BULK(min, s64, ".min.s64")
  else TMA_DLPACK_BULK(min, f16, ".min.f16")
  else TMA_DLPACK_BULK(min, bf16, ".min.bf16")
  else TMA_DLPACK_BULK(max, u32, ".max.u32")
  else TMA_DLPACK_BULK(max, s32, ".max.s32")
  else TMA_DLPACK_BULK(max, u64, ".max.u64")
  else TMA_DLPACK_BULK(max, s64, ".max.s64")
  else TMA_DLPACK_BULK(max, f16, ".max.f16")
  else TMA_DLPACK_BULK(max, bf16, ".max.bf16")
  else TMA_DLPACK_BULK(inc, u32, ".inc.u32")
  else TMA_DLPACK_BULK(dec, u32, ".dec.u32")
  else TMA_DLPACK_BULK(bit_and, u32, ".and.b32")
  else TMA_DLPACK_BULK(bit_and, s32, ".and.b32")
  else TMA_DLPACK_BULK(bit_and, u64, ".and.b64")
  else TMA_DLPACK_BULK(bit_and, s64, ".and.b64")
  else TMA_DLPACK_BULK(bit_or, u32, ".or.b32")
  else TMA_DLPACK_BULK(bit_or, s32, ".or.b32")
  else TMA_DLPACK_BULK(bit_or, u64, ".or.b64")
  else TMA_DLPACK_BULK(bit_or, s64, ".or.b64")
  else TMA_DLPACK_BULK(bit_xor, u32, ".xor.b32")
  else TMA_DLPACK_BULK(bit_xor, s32, ".xor.b32")
  else TMA_DLPACK_BULK(bit_xor, u64, ".xor.b64")
  else TMA_DLPACK_BULK(bit_xor, s64, ".xor.b64")
  else
    static_assert(number == Number::none && number != Number::none,
                  "cp.reduce.async.bulk adds integers of 32 and 64 bits, __half, __nv_bfloat16, float and "
                  "double; takes min and max of all but float and double; inc and dec of unsigned; and, "
                  "or, xor of integers");
}

#undef TMA_DLPACK_BULK

}  // namespace detail

// Combine elements in shared memory with elements in global memory. Both addresses and the number
// of bytes must be multiples of 16. The type of the global pointer is the type of the elements. One
// thread calls reduce_bulk(), then store_commit(). Call fence_async() after the writes to shared
// memory, as for store_bulk().
//   cp.reduce.async.bulk.global.shared::cta | one thread | sm_90 | 0.4 | UBLKRED
//   e.g. reduce_bulk<Reduction::add>(x, smem, bytes); store_commit();
template <Reduction op, class Element>
__device__ inline void reduce_bulk(Element* global, const void* smem, unsigned bytes)
{
  detail::reduce_bulk<op, detail::number_of<Element>, false>(__cvta_generic_to_global(global),
                                                             shared_address(smem), bytes, {});
}

// reduce_bulk() with a policy for L2.
template <Reduction op, class Element>
__device__ inline void reduce_bulk(Element* global, const void* smem, unsigned bytes, CachePolicy policy)
{
  detail::reduce_bulk<op, detail::number_of<Element>, true>(__cvta_generic_to_global(global),
                                                            shared_address(smem), bytes, policy);
}

#undef TMA_DLPACK_THIS_BLOCK

// ---- groups of stores ----

// Put the stores that this thread issued after its last commit into a group.
//   cp.async.bulk.commit_group | the thread that stored | sm_90 | 0.4 | UTMACMDFLUSH
//   e.g. store_commit();
__device__ inline void store_commit()
{
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until all groups of this thread, except the last `pending` groups, have read their shared
// memory. This memory may then be written again.
//   cp.async.bulk.wait_group.read | the thread that stored | sm_90 | 0.4 | DEPBAR
//   e.g. store_wait_read<1>();
template <int pending = 0>
__device__ inline void store_wait_read()
{
  static_assert(pending >= 0, "a store waits for 0 or more pending groups");
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Wait until all groups of this thread, except the last `pending` groups, are complete. Complete
// groups have written their bytes to global memory.
//   cp.async.bulk.wait_group | the thread that stored | sm_90 | 0.4 | DEPBAR, CCTL.IVALL
//   e.g. store_wait();
template <int pending = 0>
__device__ inline void store_wait()
{
  static_assert(pending >= 0, "a store waits for 0 or more pending groups");
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// The names of store_commit(), store_wait_read() and store_wait() in releases before 0.4.
[[deprecated("call store_commit(); wgmma_commit() is for wgmma")]] __device__ inline void commit()
{
  store_commit();
}

template <int pending = 0>
[[deprecated("call store_wait_read()")]] __device__ inline void wait_read()
{
  store_wait_read<pending>();
}

template <int pending = 0>
[[deprecated("call store_wait()")]] __device__ inline void wait_stores()
{
  store_wait<pending>();
}

// ---- maps that a kernel changes ----
//
//   if (threadIdx.x == 0) shared = template_map, replace_global_dim<1>(&shared, rows);
//   publish(global, &shared);                             // this warp
//   if (threadIdx.x == 0) fence_acquire(global), load(tile, *global, ...);
//
// If another block may still issue copies with the old map in global memory, publish the new map at
// another address.

// Copy a changed map from shared memory to global memory. A thread that then calls
// fence_acquire(global) sees the new map. All threads of a converged warp call publish(). A thread
// of this warp must have changed the map. Stores with the old map must also come from threads of
// this warp, because publish() first waits until these stores have read the old map and their
// tiles. If only a part of the warp calls publish(), the behavior is undefined, and no error is
// reported.
//   tensormap.cp_fenceproxy | a converged warp | sm_90 | 0.3 | a loop of LDS, ATOMG
//   e.g. publish(place, &changed);
__device__ inline void publish(Map* global, const Map* shared)
{
  store_commit();
  store_wait_read();
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
               " [%0], [%1], 128;" ::"l"(__cvta_generic_to_global(global)),
               "r"(shared_address(shared))
               : "memory");
}

// Make a change of a map in global memory visible to the fence_acquire() of other threads. The
// thread that changed the map in place calls fence_release() before it signals the other threads.
// Without fence_release(), their fence_acquire() may find the old map.
//   fence.proxy.tensormap::generic.release.gpu | the thread that changed the map | sm_90 | 0.3 | MEMBAR.GPU
//   e.g. *map = changed; fence_release();
__device__ inline void fence_release()
{
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

// Each of these verbs changes one field of a tiled map in shared or global memory. One thread calls
// the verbs, and then publish() or fence_release(). Before publish() or fence_release(), a copy may
// use the old map, or only a part of the changes. The fields are the fields of PTX's
// tensormap.replace. Dimension 0 is the innermost. The verbs do not check the values. The verbs
// need a target with the suffix a or f.
#if TMA_DLPACK_HAS_SUFFIX
#define TMA_DLPACK_REPLACES
#define TMA_DLPACK_HAS_REPLACE(...) __VA_ARGS__
#else
#define TMA_DLPACK_REPLACES [[deprecated(TMA_DLPACK_NEEDS_SUFFIX)]]
#define TMA_DLPACK_HAS_REPLACE(...) = delete;
#endif

#define TMA_DLPACK_REPLACE(FIELD, BITS, VALUES, ...)                                              \
  asm volatile("tensormap.replace.tile." FIELD ".b1024." BITS " [%0], " VALUES ";" ::"l"(map),    \
               __VA_ARGS__                                                                        \
               : "memory")

#define TMA_DLPACK_REPLACE_IN_DIMENSION(FIELD, DIMENSIONS, TYPE, BITS, VALUE)                         \
  template <unsigned dimension>                                                                       \
  TMA_DLPACK_REPLACES __device__ inline void replace_##FIELD(Map* map, TYPE value)                    \
    TMA_DLPACK_HAS_REPLACE({                                                                          \
    static_assert(dimension < DIMENSIONS, "a map's " #FIELD " are numbered from 0, the innermost, to " \
                                          #DIMENSIONS " - 1");                                        \
    TMA_DLPACK_REPLACE(#FIELD, BITS, "%1, %2", "n"(dimension), VALUE(value));                         \
  })

#define TMA_DLPACK_REPLACE_CONSTANT(FIELD, TYPE, END)                                               \
  template <TYPE value>                                                                             \
  TMA_DLPACK_REPLACES __device__ inline void replace_##FIELD(Map* map) TMA_DLPACK_HAS_REPLACE({     \
    static_assert(static_cast<unsigned>(value) < END, #FIELD " is a number below " #END);           \
    TMA_DLPACK_REPLACE(#FIELD, "b32", "%1", "n"(static_cast<unsigned>(value)));                     \
  })

// Replace the address of the tensor. The address must be a multiple of 16.
//   tensormap.replace.tile.global_address | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_global_address(&map, x);
TMA_DLPACK_REPLACES __device__ inline void replace_global_address(Map* map, const void* address)
TMA_DLPACK_HAS_REPLACE({
  TMA_DLPACK_REPLACE("global_address", "b64", "%1", "l"(__cvta_generic_to_global(address)));
})

// Replace the rank, which is the number of dimensions (1 to 5).
//   tensormap.replace.tile.rank | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_rank(&map, 3);
TMA_DLPACK_REPLACES __device__ inline void replace_rank(Map* map, unsigned rank)
TMA_DLPACK_HAS_REPLACE({
  TMA_DLPACK_REPLACE("rank", "b32", "%1", "r"(rank - 1));
})

// Replace an extent of the tensor, in elements. For example, replace_global_dim<1>(map, rows)
// replaces the extent of dimension 1.
//   tensormap.replace.tile.global_dim | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_global_dim<1>(&map, rows);
TMA_DLPACK_REPLACE_IN_DIMENSION(global_dim, 5, unsigned, "b32", "r")

// Replace a stride, in bytes. The stride must be a multiple of 16. replace_global_stride<0>(map,
// bytes) replaces the stride of dimension 1, because dimension 0 has no stride.
//   tensormap.replace.tile.global_stride | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_global_stride<0>(&map, row_bytes);
TMA_DLPACK_REPLACE_IN_DIMENSION(global_stride, 4, unsigned long long, "b64", "l")

// Replace an extent of the box (1 to 256). For example, replace_box_dim<1>(map, rows) replaces the
// extent along dimension 1. This also changes the number of bytes of a load.
//   tensormap.replace.tile.box_dim | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_box_dim<1>(&map, 64);
TMA_DLPACK_REPLACE_IN_DIMENSION(box_dim, 5, unsigned, "b32", "r")

// Replace an element stride (1 to 8). For example, replace_element_stride<1>(map, 2) replaces the
// element stride of dimension 1.
//   tensormap.replace.tile.element_stride | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_element_stride<1>(&map, 2);
TMA_DLPACK_REPLACE_IN_DIMENSION(element_stride, 5, unsigned, "b32", "r")

// Replace the element type, as in replace_elemtype<10>(map). The types have PTX's numbers (bf16 is
// 10), which differ from CUtensorMapDataType. Do not change a map of tf32 (11, 12) to another type.
// tensormap.replace does not clear the tf32 bit of the map, so a copy with the changed map ends the
// kernel with an error.
//   tensormap.replace.tile.elemtype | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_elemtype<10>(&map);
TMA_DLPACK_REPLACE_CONSTANT(elemtype, unsigned, 16)

// Replace the swizzle, as in replace_swizzle_mode<Swizzle::bytes128>(map).
//   tensormap.replace.tile.swizzle_mode | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_swizzle_mode<Swizzle::bytes128>(&map);
TMA_DLPACK_REPLACE_CONSTANT(swizzle_mode, Swizzle, 4)

// Replace the interleave layout. 0 is none, 1 is bytes16, and 2 is bytes32.
//   tensormap.replace.tile.interleave_layout | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_interleave_layout<0>(&map);
TMA_DLPACK_REPLACE_CONSTANT(interleave_layout, unsigned, 3)

// Replace the fill mode, which selects the value of elements that are out of bounds. 0 selects
// zero, and 1 selects NaN.
//   tensormap.replace.tile.fill_mode | one thread | suffix a or f | 0.3 | 1 or 2 loads and stores
//   e.g. replace_fill_mode<1>(&map);
TMA_DLPACK_REPLACE_CONSTANT(fill_mode, unsigned, 2)

#undef TMA_DLPACK_REPLACE_CONSTANT
#undef TMA_DLPACK_REPLACE_IN_DIMENSION
#undef TMA_DLPACK_REPLACE
#undef TMA_DLPACK_HAS_REPLACE
#undef TMA_DLPACK_REPLACES

// ---- a ring of stages ----

// The current stage of a ring, and the parity to wait for. A thread that reads the stages waits at
// the full barriers. A thread that fills the stages starts with producer(), and waits at the empty
// barriers. In the first round, these waits end at once, because every stage is empty. The kernel
// declares two barriers in shared memory for each stage.
//   no instruction | each thread that takes part | host and device | 0.4 | 2 registers, 3 integer operations a stage
//   e.g. for (auto at = PipelineState<4>::producer(); tile < tiles; ++tile, at.advance()) ...
template <unsigned stages>
struct PipelineState
{
  static_assert(stages > 0, "a ring has at least one stage");

  unsigned at = 0, parity = 0;

  __host__ __device__ static constexpr PipelineState producer() { return {0, 1}; }

  __host__ __device__ constexpr unsigned stage() const { return at; }
  __host__ __device__ constexpr unsigned phase() const { return parity; }

  // Go to the next stage, or go `steps` stages ahead. Pass `steps` if several threads share a ring,
  // and other threads use the stages that this thread skips.
  __host__ __device__ constexpr void advance()
  {
    if (++at == stages) at = 0, parity ^= 1;
  }

  __host__ __device__ constexpr void advance(unsigned steps)
  {
    parity ^= (at + steps) / stages & 1;
    at = (at + steps) % stages;
  }
};

#if TMA_DLPACK_CHECK
}  // namespace unchecked
#endif
}  // namespace v0_4
}  // namespace tma_dlpack

#include "tma_dlpack_mma.h"
#if TMA_DLPACK_CHECK
#include "tma_dlpack_check.h"
#endif

namespace tma_dlpack
{
inline namespace v0_4
{

// ---- registers ----

// Decrease the number of registers of each thread to `registers`. A warpgroup that only copies
// calls this verb, so that a warpgroup that multiplies can get the released registers with
// take_registers(). The kernel needs __launch_bounds__(threads, 1).
//   setmaxnreg.dec | all 128 threads of a warpgroup | suffix a or f | 0.2 | USETMAXREG
//   e.g. give_registers<40>();
#if TMA_DLPACK_HAS_SUFFIX
template <unsigned registers>
__device__ inline void give_registers()
{
  static_assert(registers % 8 == 0 && 24 <= registers && registers <= 256,
                "setmaxnreg takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// Increase the number of registers of each thread to `registers`. The additional registers must
// have been released by give_registers() in other warpgroups.
//   setmaxnreg.inc | all 128 threads of a warpgroup | suffix a or f | 0.4 | USETMAXREG
//   e.g. take_registers<232>();
template <unsigned registers>
__device__ inline void take_registers()
{
  static_assert(registers % 8 == 0 && 24 <= registers && registers <= 256,
                "setmaxnreg takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
#else
template <unsigned>
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_SUFFIX) void give_registers() = delete;
template <unsigned>
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_SUFFIX) void take_registers() = delete;
#endif

#endif  // __CUDACC__

}  // namespace v0_4
}  // namespace tma_dlpack

#undef TMA_DLPACK_COORDINATE
#undef TMA_DLPACK_NEEDS_SM107
#undef TMA_DLPACK_NEEDS_NVCC_OR_NVRTC
#undef TMA_DLPACK_CUDA
#undef TMA_DLPACK_HAS_OPERAND_C
#undef TMA_DLPACK_NOWHERE
#undef TMA_DLPACK_NEEDS_PAIRS
#undef TMA_DLPACK_NEEDS_SM100
#undef TMA_DLPACK_NEEDS_SUFFIX
#undef TMA_DLPACK_NEEDS_WGMMA
#undef TMA_DLPACK_LACKS_VERB
#undef TMA_DLPACK_LACKS
#undef TMA_DLPACK_EITHER

#endif  // TMA_DLPACK_H
