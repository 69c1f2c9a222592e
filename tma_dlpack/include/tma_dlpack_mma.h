// tma_dlpack_mma.h: verbs that multiply tiles in the tensor core. The verbs of tma_dlpack.h load
// the tiles. The instructions are wgmma on sm_90a, and tcgen05 on sm_100a and its family.
// tma_dlpack.h includes this header. Do not include this header alone.
//
// The last two lines of a verb's comment have the form that tma_dlpack.h describes. wgmma(),
// tcgen05_mma() and the verbs with a cta_group insert strings into their instruction with "C"
// operands of asm. nvcc and NVRTC of CUDA 12.6 and later support "C" operands, and clang does not.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "TensorCore 5th
// Generation Family Instructions". The verbs of tcgen05 were compiled, but not run on a GPU.

#ifndef TMA_DLPACK_MMA_H
#define TMA_DLPACK_MMA_H

#ifndef TMA_DLPACK_H
#error "include tma_dlpack.h, which includes tma_dlpack_mma.h"
#endif

namespace tma_dlpack
{
inline namespace v0_4
{

#if TMA_DLPACK_CHECK
namespace unchecked
{
#endif

// Lists of N registers. LIST_N is the list's text in an instruction. EACH_N(F) is F(0), F(1), ...,
// F(N - 1).
#define TMA_DLPACK_LIST_1 "%0"
#define TMA_DLPACK_LIST_2 "%0, %1"
#define TMA_DLPACK_LIST_4 "%0, %1, %2, %3"
#define TMA_DLPACK_LIST_8 TMA_DLPACK_LIST_4 ", %4, %5, %6, %7"
#define TMA_DLPACK_LIST_12 TMA_DLPACK_LIST_8 ", %8, %9, %10, %11"
#define TMA_DLPACK_LIST_16 TMA_DLPACK_LIST_12 ", %12, %13, %14, %15"
#define TMA_DLPACK_LIST_20 TMA_DLPACK_LIST_16 ", %16, %17, %18, %19"
#define TMA_DLPACK_LIST_24 TMA_DLPACK_LIST_20 ", %20, %21, %22, %23"
#define TMA_DLPACK_LIST_28 TMA_DLPACK_LIST_24 ", %24, %25, %26, %27"
#define TMA_DLPACK_LIST_32 TMA_DLPACK_LIST_28 ", %28, %29, %30, %31"
#define TMA_DLPACK_LIST_36 TMA_DLPACK_LIST_32 ", %32, %33, %34, %35"
#define TMA_DLPACK_LIST_40 TMA_DLPACK_LIST_36 ", %36, %37, %38, %39"
#define TMA_DLPACK_LIST_44 TMA_DLPACK_LIST_40 ", %40, %41, %42, %43"
#define TMA_DLPACK_LIST_48 TMA_DLPACK_LIST_44 ", %44, %45, %46, %47"
#define TMA_DLPACK_LIST_52 TMA_DLPACK_LIST_48 ", %48, %49, %50, %51"
#define TMA_DLPACK_LIST_56 TMA_DLPACK_LIST_52 ", %52, %53, %54, %55"
#define TMA_DLPACK_LIST_60 TMA_DLPACK_LIST_56 ", %56, %57, %58, %59"
#define TMA_DLPACK_LIST_64 TMA_DLPACK_LIST_60 ", %60, %61, %62, %63"
#define TMA_DLPACK_LIST_68 TMA_DLPACK_LIST_64 ", %64, %65, %66, %67"
#define TMA_DLPACK_LIST_72 TMA_DLPACK_LIST_68 ", %68, %69, %70, %71"
#define TMA_DLPACK_LIST_76 TMA_DLPACK_LIST_72 ", %72, %73, %74, %75"
#define TMA_DLPACK_LIST_80 TMA_DLPACK_LIST_76 ", %76, %77, %78, %79"
#define TMA_DLPACK_LIST_84 TMA_DLPACK_LIST_80 ", %80, %81, %82, %83"
#define TMA_DLPACK_LIST_88 TMA_DLPACK_LIST_84 ", %84, %85, %86, %87"
#define TMA_DLPACK_LIST_92 TMA_DLPACK_LIST_88 ", %88, %89, %90, %91"
#define TMA_DLPACK_LIST_96 TMA_DLPACK_LIST_92 ", %92, %93, %94, %95"
#define TMA_DLPACK_LIST_100 TMA_DLPACK_LIST_96 ", %96, %97, %98, %99"
#define TMA_DLPACK_LIST_104 TMA_DLPACK_LIST_100 ", %100, %101, %102, %103"
#define TMA_DLPACK_LIST_108 TMA_DLPACK_LIST_104 ", %104, %105, %106, %107"
#define TMA_DLPACK_LIST_112 TMA_DLPACK_LIST_108 ", %108, %109, %110, %111"
#define TMA_DLPACK_LIST_116 TMA_DLPACK_LIST_112 ", %112, %113, %114, %115"
#define TMA_DLPACK_LIST_120 TMA_DLPACK_LIST_116 ", %116, %117, %118, %119"
#define TMA_DLPACK_LIST_124 TMA_DLPACK_LIST_120 ", %120, %121, %122, %123"
#define TMA_DLPACK_LIST_128 TMA_DLPACK_LIST_124 ", %124, %125, %126, %127"
#define TMA_DLPACK_EACH_1(F) F(0)
#define TMA_DLPACK_EACH_2(F) F(0), F(1)
#define TMA_DLPACK_EACH_4(F) F(0), F(1), F(2), F(3)
#define TMA_DLPACK_EACH_8(F) TMA_DLPACK_EACH_4(F), F(4), F(5), F(6), F(7)
#define TMA_DLPACK_EACH_12(F) TMA_DLPACK_EACH_8(F), F(8), F(9), F(10), F(11)
#define TMA_DLPACK_EACH_16(F) TMA_DLPACK_EACH_12(F), F(12), F(13), F(14), F(15)
#define TMA_DLPACK_EACH_20(F) TMA_DLPACK_EACH_16(F), F(16), F(17), F(18), F(19)
#define TMA_DLPACK_EACH_24(F) TMA_DLPACK_EACH_20(F), F(20), F(21), F(22), F(23)
#define TMA_DLPACK_EACH_28(F) TMA_DLPACK_EACH_24(F), F(24), F(25), F(26), F(27)
#define TMA_DLPACK_EACH_32(F) TMA_DLPACK_EACH_28(F), F(28), F(29), F(30), F(31)
#define TMA_DLPACK_EACH_36(F) TMA_DLPACK_EACH_32(F), F(32), F(33), F(34), F(35)
#define TMA_DLPACK_EACH_40(F) TMA_DLPACK_EACH_36(F), F(36), F(37), F(38), F(39)
#define TMA_DLPACK_EACH_44(F) TMA_DLPACK_EACH_40(F), F(40), F(41), F(42), F(43)
#define TMA_DLPACK_EACH_48(F) TMA_DLPACK_EACH_44(F), F(44), F(45), F(46), F(47)
#define TMA_DLPACK_EACH_52(F) TMA_DLPACK_EACH_48(F), F(48), F(49), F(50), F(51)
#define TMA_DLPACK_EACH_56(F) TMA_DLPACK_EACH_52(F), F(52), F(53), F(54), F(55)
#define TMA_DLPACK_EACH_60(F) TMA_DLPACK_EACH_56(F), F(56), F(57), F(58), F(59)
#define TMA_DLPACK_EACH_64(F) TMA_DLPACK_EACH_60(F), F(60), F(61), F(62), F(63)
#define TMA_DLPACK_EACH_68(F) TMA_DLPACK_EACH_64(F), F(64), F(65), F(66), F(67)
#define TMA_DLPACK_EACH_72(F) TMA_DLPACK_EACH_68(F), F(68), F(69), F(70), F(71)
#define TMA_DLPACK_EACH_76(F) TMA_DLPACK_EACH_72(F), F(72), F(73), F(74), F(75)
#define TMA_DLPACK_EACH_80(F) TMA_DLPACK_EACH_76(F), F(76), F(77), F(78), F(79)
#define TMA_DLPACK_EACH_84(F) TMA_DLPACK_EACH_80(F), F(80), F(81), F(82), F(83)
#define TMA_DLPACK_EACH_88(F) TMA_DLPACK_EACH_84(F), F(84), F(85), F(86), F(87)
#define TMA_DLPACK_EACH_92(F) TMA_DLPACK_EACH_88(F), F(88), F(89), F(90), F(91)
#define TMA_DLPACK_EACH_96(F) TMA_DLPACK_EACH_92(F), F(92), F(93), F(94), F(95)
#define TMA_DLPACK_EACH_100(F) TMA_DLPACK_EACH_96(F), F(96), F(97), F(98), F(99)
#define TMA_DLPACK_EACH_104(F) TMA_DLPACK_EACH_100(F), F(100), F(101), F(102), F(103)
#define TMA_DLPACK_EACH_108(F) TMA_DLPACK_EACH_104(F), F(104), F(105), F(106), F(107)
#define TMA_DLPACK_EACH_112(F) TMA_DLPACK_EACH_108(F), F(108), F(109), F(110), F(111)
#define TMA_DLPACK_EACH_116(F) TMA_DLPACK_EACH_112(F), F(112), F(113), F(114), F(115)
#define TMA_DLPACK_EACH_120(F) TMA_DLPACK_EACH_116(F), F(116), F(117), F(118), F(119)
#define TMA_DLPACK_EACH_124(F) TMA_DLPACK_EACH_120(F), F(120), F(121), F(122), F(123)
#define TMA_DLPACK_EACH_128(F) TMA_DLPACK_EACH_124(F), F(124), F(125), F(126), F(127)

// ---- the tensor core of sm_90a: wgmma ----

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Make the registers of accumulators and of A ready for wgmma(). Call this verb before the first
// wgmma(), and before each wgmma() whose registers the threads have written since the last wgmma().
// All 128 threads of the warpgroup call the verbs of this chapter.
//   wgmma.fence | all 128 threads of a warpgroup | sm_90a | 0.2 | WARPGROUP.ARRIVE
//   e.g. wgmma_fence();
__device__ inline void wgmma_fence()
{
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Close a group. The group contains all wgmma() calls since the previous wgmma_commit().
//   wgmma.commit_group | all 128 threads of a warpgroup | sm_90a | 0.2 | a bit of the last HGMMA
//   e.g. wgmma_commit();
__device__ inline void wgmma_commit()
{
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until all groups, except the last `pending` groups, are complete. The accumulators of
// complete groups may be read, and their tiles may be written again.
//   wgmma.wait_group | all 128 threads of a warpgroup | sm_90a | 0.2 | WARPGROUP.DEPBAR
//   e.g. wgmma_wait<1>();
template <int pending = 0>
__device__ inline void wgmma_wait()
{
  static_assert(0 <= pending && pending <= 7, "wgmma waits for 0 to 7 pending groups");
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

#if TMA_DLPACK_HAS_OPERAND_C

namespace detail
{

// `words` is the part of the instruction's name that has the types of A and B.
template <MmaType a, MmaType b>
struct WgmmaTypes;

#define TMA_DLPACK_TYPES(A, B, WORDS)             \
  template <>                                     \
  struct WgmmaTypes<MmaType::A, MmaType::B>       \
  {                                               \
    static constexpr char words[] = WORDS;        \
  };

TMA_DLPACK_TYPES(bf16, bf16, "k16.f32.bf16.bf16")
TMA_DLPACK_TYPES(fp16, fp16, "k16.f32.f16.f16")
TMA_DLPACK_TYPES(tf32, tf32, "k8.f32.tf32.tf32")
TMA_DLPACK_TYPES(e4m3, e4m3, "k32.f32.e4m3.e4m3")
TMA_DLPACK_TYPES(e4m3, e5m2, "k32.f32.e4m3.e5m2")
TMA_DLPACK_TYPES(e5m2, e4m3, "k32.f32.e5m2.e4m3")
TMA_DLPACK_TYPES(e5m2, e5m2, "k32.f32.e5m2.e5m2")
#undef TMA_DLPACK_TYPES

// `words` is the text of the instruction's operands for the majors of A and B. Only a matrix of
// 16-bit elements in shared memory has such an operand. All other matrices are K-major.
// a_in_smem_is_mn is -1 for A in registers.
template <bool is_16_bits, int a_in_smem_is_mn, bool b_is_mn>
struct WgmmaMajors
{
  static constexpr char words[] = "";
};

#define TMA_DLPACK_MAJORS(A, B, WORDS)    \
  template <>                             \
  struct WgmmaMajors<true, A, B>          \
  {                                       \
    static constexpr char words[] = WORDS; \
  };

TMA_DLPACK_MAJORS(0, false, ", 0, 0")
TMA_DLPACK_MAJORS(0, true, ", 0, 1")
TMA_DLPACK_MAJORS(1, false, ", 1, 0")
TMA_DLPACK_MAJORS(1, true, ", 1, 1")
TMA_DLPACK_MAJORS(-1, false, ", 0")
TMA_DLPACK_MAJORS(-1, true, ", 1")
#undef TMA_DLPACK_MAJORS

template <unsigned n>
struct Wgmma
{
  static_assert(n % 8 == 0 && 8 <= n && n <= 256, "wgmma takes a multiple of 8 rows of B, from 8 to 256");
};

#define TMA_DLPACK_SUM(I) "+f"(d[I])
#define TMA_DLPACK_WGMMA(N, COUNT, I0, I1, I2, I3, I4, I5, I6, I7)                                         \
  template <>                                                                                              \
  struct Wgmma<N>                                                                                          \
  {                                                                                                        \
    template <class Types, class Majors>                                                                   \
    static __device__ __forceinline__ void run(float (&d)[COUNT], unsigned long long a,                    \
                                               unsigned long long b, int accumulate)                       \
    {                                                                                                      \
      asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #I2 ", 0;\n"                                     \
                   " wgmma.mma_async.sync.aligned.m64n" #N "%" #I3 " {" TMA_DLPACK_LIST_##COUNT            \
                   "}, %" #I0 ", %" #I1 ", p, 1, 1%" #I4 ";\n}"                                            \
                   : TMA_DLPACK_EACH_##COUNT(TMA_DLPACK_SUM)                                               \
                   : "l"(a), "l"(b), "r"(accumulate), "C"(Types::words), "C"(Majors::words));              \
    }                                                                                                      \
    template <class Types, class Majors>                                                                   \
    static __device__ __forceinline__ void run(float (&d)[COUNT], const unsigned (&a)[4],                  \
                                               unsigned long long b, int accumulate)                       \
    {                                                                                                      \
      asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #I5 ", 0;\n"                                     \
                   " wgmma.mma_async.sync.aligned.m64n" #N "%" #I6 " {" TMA_DLPACK_LIST_##COUNT            \
                   "}, {%" #I0 ", %" #I1 ", %" #I2 ", %" #I3 "}, %" #I4 ", p, 1, 1%" #I7 ";\n}"            \
                   : TMA_DLPACK_EACH_##COUNT(TMA_DLPACK_SUM)                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                  \
                     "C"(Types::words), "C"(Majors::words));                                               \
    }                                                                                                      \
  };

TMA_DLPACK_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, 10, 11)
TMA_DLPACK_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14, 15)
TMA_DLPACK_WGMMA(24, 12, 12, 13, 14, 15, 16, 17, 18, 19)
TMA_DLPACK_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22, 23)
TMA_DLPACK_WGMMA(40, 20, 20, 21, 22, 23, 24, 25, 26, 27)
TMA_DLPACK_WGMMA(48, 24, 24, 25, 26, 27, 28, 29, 30, 31)
TMA_DLPACK_WGMMA(56, 28, 28, 29, 30, 31, 32, 33, 34, 35)
TMA_DLPACK_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38, 39)
TMA_DLPACK_WGMMA(72, 36, 36, 37, 38, 39, 40, 41, 42, 43)
TMA_DLPACK_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46, 47)
TMA_DLPACK_WGMMA(88, 44, 44, 45, 46, 47, 48, 49, 50, 51)
TMA_DLPACK_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54, 55)
TMA_DLPACK_WGMMA(104, 52, 52, 53, 54, 55, 56, 57, 58, 59)
TMA_DLPACK_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62, 63)
TMA_DLPACK_WGMMA(120, 60, 60, 61, 62, 63, 64, 65, 66, 67)
TMA_DLPACK_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70, 71)
TMA_DLPACK_WGMMA(136, 68, 68, 69, 70, 71, 72, 73, 74, 75)
TMA_DLPACK_WGMMA(144, 72, 72, 73, 74, 75, 76, 77, 78, 79)
TMA_DLPACK_WGMMA(152, 76, 76, 77, 78, 79, 80, 81, 82, 83)
TMA_DLPACK_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86, 87)
TMA_DLPACK_WGMMA(168, 84, 84, 85, 86, 87, 88, 89, 90, 91)
TMA_DLPACK_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94, 95)
TMA_DLPACK_WGMMA(184, 92, 92, 93, 94, 95, 96, 97, 98, 99)
TMA_DLPACK_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102, 103)
TMA_DLPACK_WGMMA(200, 100, 100, 101, 102, 103, 104, 105, 106, 107)
TMA_DLPACK_WGMMA(208, 104, 104, 105, 106, 107, 108, 109, 110, 111)
TMA_DLPACK_WGMMA(216, 108, 108, 109, 110, 111, 112, 113, 114, 115)
TMA_DLPACK_WGMMA(224, 112, 112, 113, 114, 115, 116, 117, 118, 119)
TMA_DLPACK_WGMMA(232, 116, 116, 117, 118, 119, 120, 121, 122, 123)
TMA_DLPACK_WGMMA(240, 120, 120, 121, 122, 123, 124, 125, 126, 127)
TMA_DLPACK_WGMMA(248, 124, 124, 125, 126, 127, 128, 129, 130, 131)
TMA_DLPACK_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134, 135)

#undef TMA_DLPACK_WGMMA
#undef TMA_DLPACK_SUM

template <MmaType a, MmaType b, Major a_major, Major b_major>
__device__ inline void require_operands()
{
  tma_dlpack::detail::require_pair<a, b>();
  static_assert((a == MmaType::bf16 || a == MmaType::fp16) ||
                  (a_major == Major::K && b_major == Major::K),
                "wgmma reads operands of 8 and 32 bits K-major alone");
}

}  // namespace detail

// Compute d = A x B^T, or d += A x B^T if accumulate is not 0. A has 64 rows, B has n rows, and K
// is 32 bytes (16 elements of bf16). A and B are matrix descriptors, or A is in registers. d has 64
// x n floats, n / 2 in each thread. Call wgmma_commit() afterwards, and wgmma_wait() before you use
// d. This verb needs CUDA 12.6 or later.
//   wgmma.mma_async.sync.aligned.m64n{8..256} | all 128 threads of a warpgroup | sm_90a | 0.4 | HGMMA
//   e.g. wgmma<64>(sums, descriptor, descriptor, 0); wgmma_commit(); wgmma_wait(); x[0] = sums[0];
template <unsigned n, MmaType a_type = MmaType::bf16, MmaType b_type = a_type, Major a_major = Major::K,
          Major b_major = Major::K>
__device__ __forceinline__ void wgmma(float (&d)[n / 2], unsigned long long a, unsigned long long b,
                                      int accumulate)
{
  detail::require_operands<a_type, b_type, a_major, b_major>();
  constexpr bool is_16_bits = a_type == MmaType::bf16 || a_type == MmaType::fp16;
  detail::Wgmma<n>::template run<
    detail::WgmmaTypes<a_type, b_type>,
    detail::WgmmaMajors<is_16_bits, a_major == Major::MN, b_major == Major::MN>>(d, a, b, accumulate);
}

// wgmma() with A in registers. Each thread passes four registers of 32 bits, in the order of PTX's
// wgmma fragment.
template <unsigned n, MmaType a_type = MmaType::bf16, MmaType b_type = a_type, Major b_major = Major::K>
__device__ __forceinline__ void wgmma(float (&d)[n / 2], const unsigned (&a)[4], unsigned long long b,
                                      int accumulate)
{
  detail::require_operands<a_type, b_type, Major::K, b_major>();
  constexpr bool is_16_bits = a_type == MmaType::bf16 || a_type == MmaType::fp16;
  detail::Wgmma<n>::template run<detail::WgmmaTypes<a_type, b_type>,
                                 detail::WgmmaMajors<is_16_bits, -1, b_major == Major::MN>>(d, a, b,
                                                                                            accumulate);
}

#else
template <unsigned, MmaType = MmaType::bf16, MmaType = MmaType::bf16, class... Given>
[[deprecated(TMA_DLPACK_NEEDS_NVCC_OR_NVRTC("12.6", "PTX by hand"))]] __device__ void wgmma(Given...) = delete;
#endif

#else
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_WGMMA) void wgmma_fence() = delete;
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_WGMMA) void wgmma_commit() = delete;
template <int = 0>
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_WGMMA) void wgmma_wait() = delete;
template <unsigned, MmaType = MmaType::bf16, MmaType = MmaType::bf16, Major = Major::K, Major = Major::K,
          class D, class A, class... Given>
TMA_DLPACK_LACKS(TMA_DLPACK_NEEDS_WGMMA) void wgmma(D&&, A&&, Given...) = delete;
#endif

// ---- the tensor core of sm_100a: tcgen05 ----
//
// These verbs follow NVIDIA's documentation. They were compiled, but not run on a GPU. An address
// in tensor memory has 32 bits, with the lane in the upper 16 bits and the column in the lower 16
// bits. cta_group is 2 if a pair of blocks multiplies together. All verbs of a kernel must have the
// same cta_group.

#if TMA_DLPACK_HAS_PAIRS && TMA_DLPACK_HAS_OPERAND_C

namespace detail
{

template <unsigned cta_group>
struct CtaGroup
{
  static_assert(cta_group == 1 || cta_group == 2, "cta_group is 1, or 2 for a pair of blocks");
  static constexpr char words[] = {'0' + cta_group, 0};
};

template <MmaType a>
struct MmaKind
{
  static constexpr char words[] = "f8f6f4";
};
template <>
struct MmaKind<MmaType::bf16>
{
  static constexpr char words[] = "f16";
};
template <>
struct MmaKind<MmaType::fp16>
{
  static constexpr char words[] = "f16";
};
template <>
struct MmaKind<MmaType::tf32>
{
  static constexpr char words[] = "tf32";
};

}  // namespace detail

// Allocate 32, 64, 128, 256 or 512 columns of tensor memory, and write the address of the first
// column to shared memory. The other threads read this address after tcgen05_fence_before(),
// __syncthreads() and tcgen05_fence_after(). The call waits until this number of columns is free.
// The warp that allocates columns must also deallocate them.
//   tcgen05.alloc | a converged warp | sm_100a, 100f, 103a, 110a | 0.4 | UTCATOMSWS
//   e.g. tcgen05_alloc(&allocated, 256);
template <unsigned cta_group = 1>
__device__ inline void tcgen05_alloc(unsigned* smem, unsigned columns)
{
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                 shared_address(smem)),
               "r"(columns), "C"(detail::CtaGroup<cta_group>::words)
               : "memory");
}

// Deallocate columns before the kernel ends. Pass the address that tcgen05_alloc() wrote, and the
// number of columns that was passed to tcgen05_alloc().
//   tcgen05.dealloc | the converged warp that allocated | sm_100a, 100f, 103a, 110a | 0.4 | UTCATOMSWS
//   e.g. tcgen05_dealloc(allocated, 256);
template <unsigned cta_group = 1>
__device__ inline void tcgen05_dealloc(unsigned tmem, unsigned columns)
{
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns),
               "C"(detail::CtaGroup<cta_group>::words)
               : "memory");
}

// Declare that this block will allocate no more columns, so that another block may allocate.
//   tcgen05.relinquish_alloc_permit | the converged warp that allocated | sm_100a, 100f, 103a, 110a | 0.4 | UVIRTCOUNT
//   e.g. tcgen05_relinquish();
template <unsigned cta_group = 1>
__device__ inline void tcgen05_relinquish()
{
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"C"(
                 detail::CtaGroup<cta_group>::words)
               : "memory");
}

// Compute D = A x B^T in tensor memory, or D += A x B^T if accumulate is not 0. K is 32 bytes. A
// and B are matrix descriptors, or A is an address in tensor memory. `instruction` is a
// tcgen05_instruction_descriptor(). One thread of the block calls tcgen05_mma(), then
// tcgen05_commit(). For a pair of blocks, this is a thread of the block of even rank.
//   tcgen05.mma.cta_group::{1, 2}.kind::{f16, tf32, f8f6f4} | one thread | sm_100a, 100f, 103a, 110a | 0.4 | UTCHMMA
//   e.g. tcgen05_mma(allocated, tcgen05_a, tcgen05_a, instruction, 0);
template <MmaType a_type = MmaType::bf16, unsigned cta_group = 1>
__device__ inline void tcgen05_mma(unsigned tmem, unsigned long long a, unsigned long long b,
                                   unsigned instruction, int accumulate)
{
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n"
               " tcgen05.mma.cta_group::%5.kind::%6 [%0], %1, %2, %3, p;\n}" ::"r"(tmem), "l"(a), "l"(b),
               "r"(instruction), "r"(accumulate), "C"(detail::CtaGroup<cta_group>::words),
               "C"(detail::MmaKind<a_type>::words)
               : "memory");
}

// tcgen05_mma() with A in tensor memory.
template <MmaType a_type = MmaType::bf16, unsigned cta_group = 1>
__device__ inline void tcgen05_mma(unsigned tmem, unsigned a_tmem, unsigned long long b,
                                   unsigned instruction, int accumulate)
{
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n"
               " tcgen05.mma.cta_group::%5.kind::%6 [%0], [%1], %2, %3, p;\n}" ::"r"(tmem), "r"(a_tmem),
               "l"(b), "r"(instruction), "r"(accumulate), "C"(detail::CtaGroup<cta_group>::words),
               "C"(detail::MmaKind<a_type>::words)
               : "memory");
}

// Arrive once at the barrier after all earlier tcgen05 instructions of this thread are complete.
// With a block_mask, arrive at the barrier with the same offset in each block of the cluster whose
// bit is set.
//   tcgen05.commit ... .mbarrier::arrive::one | the thread that multiplied | sm_100a, 100f, 103a, 110a | 0.4 | UTCBAR
//   e.g. tcgen05_commit(&full);
template <unsigned cta_group = 1>
__device__ inline void tcgen05_commit(Barrier* barrier)
{
  asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                 shared_address(barrier)),
               "C"(detail::CtaGroup<cta_group>::words)
               : "memory");
}

template <unsigned cta_group = 1>
__device__ inline void tcgen05_commit(Barrier* barrier, BlockMask block_mask)
{
  asm volatile("tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
               " [%0], %1;" ::"r"(shared_address(barrier)),
               "h"(block_mask.bits), "C"(detail::CtaGroup<cta_group>::words)
               : "memory");
}

template <unsigned = 1>
TMA_DLPACK_NOWHERE void tcgen05_commit(Barrier*, Nowhere*) = delete;

namespace detail
{

template <unsigned count>
struct Tcgen05
{
  static_assert(count == 0, "a thread loads or stores 1, 2, 4, 8, 16, 32, 64 or 128 columns");
};

#define TMA_DLPACK_LOADED(I) "=r"(values[I])
#define TMA_DLPACK_STORED(I) "r"(values[I])
#define TMA_DLPACK_TCGEN05(COUNT)                                                                    \
  template <>                                                                                        \
  struct Tcgen05<COUNT>                                                                              \
  {                                                                                                  \
    static __device__ __forceinline__ void load(unsigned (&values)[COUNT], unsigned tmem)            \
    {                                                                                                \
      asm volatile("tcgen05.ld.sync.aligned.32x32b.x" #COUNT ".b32 {" TMA_DLPACK_LIST_##COUNT        \
                   "}, [%" #COUNT "];"                                                               \
                   : TMA_DLPACK_EACH_##COUNT(TMA_DLPACK_LOADED)                                      \
                   : "r"(tmem)                                                                       \
                   : "memory");                                                                      \
    }                                                                                                \
    static __device__ __forceinline__ void store(unsigned tmem, const unsigned (&values)[COUNT])     \
    {                                                                                                \
      asm volatile("tcgen05.st.sync.aligned.32x32b.x" #COUNT ".b32 [%" #COUNT                        \
                   "], {" TMA_DLPACK_LIST_##COUNT "};" ::TMA_DLPACK_EACH_##COUNT(TMA_DLPACK_STORED), \
                   "r"(tmem)                                                                         \
                   : "memory");                                                                      \
    }                                                                                                \
  };

TMA_DLPACK_TCGEN05(1)
TMA_DLPACK_TCGEN05(2)
TMA_DLPACK_TCGEN05(4)
TMA_DLPACK_TCGEN05(8)
TMA_DLPACK_TCGEN05(16)
TMA_DLPACK_TCGEN05(32)
TMA_DLPACK_TCGEN05(64)
TMA_DLPACK_TCGEN05(128)

#undef TMA_DLPACK_TCGEN05
#undef TMA_DLPACK_STORED
#undef TMA_DLPACK_LOADED

}  // namespace detail

// Load columns of 32 bits, beginning at the address `tmem`. The number of columns is the number of
// elements in the array. Thread i of warp w reads lane 32 * (w % 4) + i, so the lane in the address
// must be 32 * (w % 4). Call tcgen05_wait_load() before you use the array.
//   tcgen05.ld.32x32b.x{1..128} | a converged warp | sm_100a, 100f, 103a, 110a | 0.4 | LDTM
//   e.g. tcgen05_load(columns, allocated); tcgen05_wait_load(); x[0] = columns[0];
template <class Element, unsigned count>
__device__ __forceinline__ void tcgen05_load(Element (&values)[count], unsigned tmem)
{
  static_assert(sizeof(Element) == 4, "columns have 32 bits");
  detail::Tcgen05<count>::load(reinterpret_cast<unsigned(&)[count]>(values), tmem);
}

// Store columns of 32 bits, beginning at the address `tmem`. Each thread writes the lane that it
// reads in tcgen05_load(). Call tcgen05_wait_store() afterwards.
//   tcgen05.st.32x32b.x{1..128} | a converged warp | sm_100a, 100f, 103a, 110a | 0.4 | STTM
//   e.g. tcgen05_store(allocated, columns); tcgen05_wait_store();
template <class Element, unsigned count>
__device__ __forceinline__ void tcgen05_store(unsigned tmem, const Element (&values)[count])
{
  static_assert(sizeof(Element) == 4, "columns have 32 bits");
  detail::Tcgen05<count>::store(tmem, reinterpret_cast<const unsigned(&)[count]>(values));
}

// Wait for this thread's loads from tensor memory.
//   tcgen05.wait::ld | a converged warp | sm_100a, 100f, 103a, 110a | 0.4 | waits at the first use
//   e.g. tcgen05_wait_load();
__device__ inline void tcgen05_wait_load()
{
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// Wait for this thread's stores to tensor memory.
//   tcgen05.wait::st | a converged warp | sm_100a, 100f, 103a, 110a | 0.4 | FENCE.VIEW.ASYNC.T
//   e.g. tcgen05_wait_store();
__device__ inline void tcgen05_wait_store()
{
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

// Order the earlier tcgen05 instructions of this thread before a __syncthreads() or an arrive().
// Call this verb if other threads then use the results of these instructions.
//   tcgen05.fence::before_thread_sync | the thread that goes before | sm_100a, 100f, 103a, 110a | 0.4 | nothing
//   e.g. tcgen05_fence_before(); __syncthreads();
__device__ inline void tcgen05_fence_before()
{
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// Order the later tcgen05 instructions of this thread after a __syncthreads() or a wait(). Call
// this verb if these instructions use the results of other threads.
//   tcgen05.fence::after_thread_sync | the thread that continues | sm_100a, 100f, 103a, 110a | 0.4 | nothing
//   e.g. __syncthreads(); tcgen05_fence_after();
__device__ inline void tcgen05_fence_after()
{
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

#else

#define TMA_DLPACK_LACKS_TCGEN05(VERB, ...)                                      \
  template <__VA_ARGS__, class... Given>                                         \
  [[deprecated(TMA_DLPACK_NEEDS_PAIRS)]] __device__ void VERB(Given&&...) = delete;

TMA_DLPACK_LACKS_TCGEN05(tcgen05_alloc, unsigned = 1)
TMA_DLPACK_LACKS_TCGEN05(tcgen05_dealloc, unsigned = 1)
TMA_DLPACK_LACKS_TCGEN05(tcgen05_relinquish, unsigned = 1)
TMA_DLPACK_LACKS_TCGEN05(tcgen05_mma, MmaType = MmaType::bf16, unsigned = 1)
TMA_DLPACK_LACKS_TCGEN05(tcgen05_commit, unsigned = 1)
#undef TMA_DLPACK_LACKS_TCGEN05
TMA_DLPACK_LACKS_VERB(tcgen05_wait_load, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(tcgen05_wait_store, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(tcgen05_fence_before, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(tcgen05_fence_after, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(tcgen05_load, TMA_DLPACK_NEEDS_PAIRS)
TMA_DLPACK_LACKS_VERB(tcgen05_store, TMA_DLPACK_NEEDS_PAIRS)
#endif

#undef TMA_DLPACK_LIST_1
#undef TMA_DLPACK_LIST_2
#undef TMA_DLPACK_LIST_4
#undef TMA_DLPACK_LIST_8
#undef TMA_DLPACK_LIST_12
#undef TMA_DLPACK_LIST_16
#undef TMA_DLPACK_LIST_20
#undef TMA_DLPACK_LIST_24
#undef TMA_DLPACK_LIST_28
#undef TMA_DLPACK_LIST_32
#undef TMA_DLPACK_LIST_36
#undef TMA_DLPACK_LIST_40
#undef TMA_DLPACK_LIST_44
#undef TMA_DLPACK_LIST_48
#undef TMA_DLPACK_LIST_52
#undef TMA_DLPACK_LIST_56
#undef TMA_DLPACK_LIST_60
#undef TMA_DLPACK_LIST_64
#undef TMA_DLPACK_LIST_68
#undef TMA_DLPACK_LIST_72
#undef TMA_DLPACK_LIST_76
#undef TMA_DLPACK_LIST_80
#undef TMA_DLPACK_LIST_84
#undef TMA_DLPACK_LIST_88
#undef TMA_DLPACK_LIST_92
#undef TMA_DLPACK_LIST_96
#undef TMA_DLPACK_LIST_100
#undef TMA_DLPACK_LIST_104
#undef TMA_DLPACK_LIST_108
#undef TMA_DLPACK_LIST_112
#undef TMA_DLPACK_LIST_116
#undef TMA_DLPACK_LIST_120
#undef TMA_DLPACK_LIST_124
#undef TMA_DLPACK_LIST_128
#undef TMA_DLPACK_EACH_1
#undef TMA_DLPACK_EACH_2
#undef TMA_DLPACK_EACH_4
#undef TMA_DLPACK_EACH_8
#undef TMA_DLPACK_EACH_12
#undef TMA_DLPACK_EACH_16
#undef TMA_DLPACK_EACH_20
#undef TMA_DLPACK_EACH_24
#undef TMA_DLPACK_EACH_28
#undef TMA_DLPACK_EACH_32
#undef TMA_DLPACK_EACH_36
#undef TMA_DLPACK_EACH_40
#undef TMA_DLPACK_EACH_44
#undef TMA_DLPACK_EACH_48
#undef TMA_DLPACK_EACH_52
#undef TMA_DLPACK_EACH_56
#undef TMA_DLPACK_EACH_60
#undef TMA_DLPACK_EACH_64
#undef TMA_DLPACK_EACH_68
#undef TMA_DLPACK_EACH_72
#undef TMA_DLPACK_EACH_76
#undef TMA_DLPACK_EACH_80
#undef TMA_DLPACK_EACH_84
#undef TMA_DLPACK_EACH_88
#undef TMA_DLPACK_EACH_92
#undef TMA_DLPACK_EACH_96
#undef TMA_DLPACK_EACH_100
#undef TMA_DLPACK_EACH_104
#undef TMA_DLPACK_EACH_108
#undef TMA_DLPACK_EACH_112
#undef TMA_DLPACK_EACH_116
#undef TMA_DLPACK_EACH_120
#undef TMA_DLPACK_EACH_124
#undef TMA_DLPACK_EACH_128

#if TMA_DLPACK_CHECK
}  // namespace unchecked
#endif

}  // namespace v0_4
}  // namespace tma_dlpack

#endif  // TMA_DLPACK_MMA_H
