/* tma_dlpack_make.h: from a DLPack tensor to the 128 bytes of a CUDA tensor map. Plain C11, also C++17.
 *
 *   describe   a tensor and options, row-major  ->  the driver's arguments, innermost first
 *   judge      are these arguments accepted on compute capability 9.0?  yes, or "not sure"
 *   encode     the driver's arguments  ->  128 bytes, by the measured layout
 *
 * No Python, no allocation, no libcuda: tma_dlpack_driver.h asks the driver, tma_dlpack_make.hpp is the
 * C++ surface of both. tma_dlpack's Python extension and C++ extensions compile this same file.
 *
 * "Not sure" never explains: `python -m tma_dlpack explain` does, and the Python rules are the reference
 * (tma_dlpack/rules). What is accepted here is accepted there, with the same bytes.
 *
 * Sources of the numbers below:
 *   [libcu++]   make_tma_descriptor.h, NVIDIA/cccl at 571f2fc3bc, 2026-08-22
 *   [driver]    CUDA driver API documents, cuTensorMapEncodeTiled, ...Im2col and ...Im2colWide
 *   [measured]  NVIDIA H200, compute capability 9.0, driver 580.159.04 (CUDA 13.0), 2026-11-20
 *   [dlpack.h]  DLPack 1.3
 */

#ifndef TMA_DLPACK_MAKE_H
#define TMA_DLPACK_MAKE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define TMA_DLPACK_STATIC_ASSERT static_assert
#else
#define TMA_DLPACK_STATIC_ASSERT _Static_assert
#endif

/* What holds in ordinary calls. */
#ifdef __GNUC__
#define TMA_DLPACK_LIKELY(condition) __builtin_expect(!!(condition), 1)
#else
#define TMA_DLPACK_LIKELY(condition) (condition)
#endif

/* ---- limits: the same as tma_dlpack/tables/limits.py, which a test compares ----------------------- */

#define TMA_DLPACK_MAX_RANK 5                      /* [driver] */
#define TMA_DLPACK_MIN_RANK_IM2COL 3               /* [driver] */
#define TMA_DLPACK_MIN_RANK_INTERLEAVED 3          /* [driver] [libcu++] */
#define TMA_DLPACK_ADDRESS_END (INT64_C(1) << 57)  /* [measured] the first address that is too large */
#define TMA_DLPACK_STRIDE_BYTES_END (INT64_C(1) << 40) /* [driver] */
#define TMA_DLPACK_MAX_DIM (INT64_C(1) << 32)      /* [driver] */
#define TMA_DLPACK_MAX_BOX 256                     /* [driver] box entries, and channels per pixel */
#define TMA_DLPACK_MAX_PIXELS 1024                 /* [driver] */
#define TMA_DLPACK_MAX_ELEM_STRIDE 8               /* [driver] */
#define TMA_DLPACK_MAX_BOX_BYTES 233472            /* [measured] 228 KB */
#define TMA_DLPACK_INNER_BYTES 16                  /* [driver] the row of a box is a multiple of it */
#define TMA_DLPACK_SM_90_SMEM_BYTES 232448         /* shared memory per block, opt-in, of an H200 */
#define TMA_DLPACK_MAP_BYTES 128
#define TMA_DLPACK_MAP_ALIGNMENT 128 /* alignas of CUtensorMap in CUDA 13's cuda.h */

/* ---- DLPack: the few structs that are needed ----------------------------------------------------- */

enum {
  TMA_DLPACK_CPU = 1,
  TMA_DLPACK_CUDA = 2,
  TMA_DLPACK_CUDA_HOST = 3
};

enum {
  TMA_DLPACK_INT = 0,
  TMA_DLPACK_UINT = 1,
  TMA_DLPACK_FLOAT = 2,
  TMA_DLPACK_OPAQUE = 3,
  TMA_DLPACK_BFLOAT = 4,
  TMA_DLPACK_COMPLEX = 5,
  TMA_DLPACK_BOOL = 6,
  TMA_DLPACK_FLOAT8_FIRST = 7,  /* kDLFloat8_e3m4; eight float8 types follow each other */
  TMA_DLPACK_FLOAT8_LAST = 14,  /* kDLFloat8_e8m0fnu */
  TMA_DLPACK_LAST_CODE = 17     /* kDLFloat4_e2m1fn */
};

#define TMA_DLPACK_READ_ONLY 1u       /* DLPACK_FLAG_BITMASK_READ_ONLY */
#define TMA_DLPACK_SUBBYTE_PADDED 4u  /* DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED */

typedef struct {
  int32_t device_type, device_id;
} TmaDlpackDevice;

typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} TmaDlpackDataType;

/* DLTensor: strides in elements; NULL for row-major, as producers before DLPack 1.2 may send. */
typedef struct {
  void *data;
  TmaDlpackDevice device;
  int32_t ndim;
  TmaDlpackDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} TmaDlpackTensor;

/* DLManagedTensor, of a capsule named "dltensor". */
typedef struct TmaDlpackManaged {
  TmaDlpackTensor tensor;
  void *manager_ctx;
  void (*deleter)(struct TmaDlpackManaged *);
} TmaDlpackManaged;

/* DLManagedTensorVersioned, of a capsule named "dltensor_versioned". */
typedef struct TmaDlpackManagedVersioned {
  uint32_t major, minor;
  void *manager_ctx;
  void (*deleter)(struct TmaDlpackManagedVersioned *);
  uint64_t flags;
  TmaDlpackTensor tensor;
} TmaDlpackManagedVersioned;

TMA_DLPACK_STATIC_ASSERT(sizeof(void *) == 8, "DLPack's offsets below are those of 64-bit machines");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackTensor, device) == 8, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackTensor, ndim) == 16, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackTensor, dtype) == 20, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackTensor, shape) == 24, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackTensor, strides) == 32, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackTensor, byte_offset) == 40, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(sizeof(TmaDlpackTensor) == 48, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackManaged, deleter) == 56, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackManagedVersioned, deleter) == 16, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackManagedVersioned, flags) == 24, "dlpack.h 1.3");
TMA_DLPACK_STATIC_ASSERT(offsetof(TmaDlpackManagedVersioned, tensor) == 32, "dlpack.h 1.3");
#ifdef DLPACK_MAJOR_VERSION /* the real dlpack.h was included before: a DLTensor may be cast to ours */
TMA_DLPACK_STATIC_ASSERT(sizeof(DLTensor) == sizeof(TmaDlpackTensor), "dlpack.h");
TMA_DLPACK_STATIC_ASSERT(offsetof(DLTensor, shape) == offsetof(TmaDlpackTensor, shape), "dlpack.h");
TMA_DLPACK_STATIC_ASSERT(offsetof(DLTensor, byte_offset) == offsetof(TmaDlpackTensor, byte_offset),
                         "dlpack.h");
#endif

/* ---- what is asked ------------------------------------------------------------------------------- */

enum { TMA_DLPACK_TILED = 0, TMA_DLPACK_IM2COL = 1, TMA_DLPACK_IM2COL_WIDE = 2 };

/* Whose preconditions hold.
 * DEFAULT  libcu++'s for tiled maps, the driver's document for im2col; and what the driver asks beyond.
 * DRIVER   what the driver asks of the map of a tensor (`rules="driver"` in Python).
 * BARE     what the driver asks of bare arguments (`driver_encode_*` in Python) [measured]. */
enum { TMA_DLPACK_RULES_DEFAULT = 0, TMA_DLPACK_RULES_DRIVER = 1, TMA_DLPACK_RULES_BARE = 2 };

enum { TMA_DLPACK_INTERLEAVE_32B = 2 };                         /* CU_TENSOR_MAP_INTERLEAVE_32B */
enum { TMA_DLPACK_SWIZZLE_32B = 1, TMA_DLPACK_SWIZZLE_128B = 3 }; /* CU_TENSOR_MAP_SWIZZLE_* */
enum { TMA_DLPACK_OWN_TYPE = -1 };                              /* the map type of the tensor's dtype */
enum { TMA_DLPACK_NO_TYPE = -1 };                               /* a map has none for it */

/* The options of a make_* call, row-major; enums as the driver's values. Start with
 * tma_dlpack_start_options; entries past a count are not read. */
typedef struct {
  int kind, rules;
  int asked_type; /* CUtensorMapDataType, or TMA_DLPACK_OWN_TYPE */
  int interleave, swizzle, l2_promotion, oob_fill;
  int mode;
  int box_count, elem_stride_count; /* elem_stride_count 0: strides of 1 */
  int lower_count, upper_count;
  int64_t channels, pixels;
  int64_t box_sizes[TMA_DLPACK_MAX_RANK], elem_strides[TMA_DLPACK_MAX_RANK];
  int64_t lower[TMA_DLPACK_MAX_RANK], upper[TMA_DLPACK_MAX_RANK];
} TmaDlpackOptions;

static inline void tma_dlpack_start_options(TmaDlpackOptions *options, int kind) {
  options->kind = kind;
  options->rules = TMA_DLPACK_RULES_DEFAULT;
  options->asked_type = TMA_DLPACK_OWN_TYPE;
  options->interleave = options->swizzle = options->l2_promotion = options->oob_fill = 0;
  options->box_count = options->elem_stride_count = options->lower_count = options->upper_count = 0;
  options->channels = options->pixels = 0;
  options->mode = 0;
}

/* The driver's arguments, index 0 innermost; every number as it was asked, judged or not. Entries past
 * the rank, and those of the other kinds of map, are not filled and not read. */
typedef struct {
  int kind, data_type, rank;
  int interleave, swizzle, l2_promotion, oob_fill, mode;
  uint64_t address;
  int64_t dims[TMA_DLPACK_MAX_RANK];
  int64_t strides_bytes[TMA_DLPACK_MAX_RANK - 1]; /* of dimensions 1 to rank - 1 */
  int64_t box[TMA_DLPACK_MAX_RANK], elem_strides[TMA_DLPACK_MAX_RANK];
  int64_t lower[TMA_DLPACK_MAX_RANK], upper[TMA_DLPACK_MAX_RANK]; /* W first */
  int64_t channels, pixels;
  const char *flaw; /* what the other fields cannot show; NULL for none */
} TmaDlpackArguments;

/* ---- data types ---------------------------------------------------------------------------------- */

/* One row per CUtensorMapDataType of whole bytes: 0..12 (13..15 need compute capability 10.0).
 * `element_type` and `tf32` are what the map's bits hold [measured]. */
typedef struct {
  int element_bytes, is_float, element_type, tf32;
} TmaDlpackTypeRow;

enum { TMA_DLPACK_DATA_TYPES = 13 };

static inline const TmaDlpackTypeRow *tma_dlpack_type_row(int data_type) {
  static const TmaDlpackTypeRow rows[TMA_DLPACK_DATA_TYPES] = {
      {1, 0, 0, 0},  /* UINT8 */
      {2, 0, 1, 0},  /* UINT16 */
      {4, 0, 2, 0},  /* UINT32 */
      {4, 0, 3, 0},  /* INT32 */
      {8, 0, 4, 0},  /* UINT64 */
      {8, 0, 5, 0},  /* INT64 */
      {2, 1, 6, 0},  /* FLOAT16 */
      {4, 1, 7, 0},  /* FLOAT32 */
      {8, 1, 9, 0},  /* FLOAT64 */
      {2, 1, 10, 0}, /* BFLOAT16 */
      {4, 1, 8, 0},  /* FLOAT32_FTZ */
      {4, 1, 7, 1},  /* TFLOAT32 */
      {4, 1, 8, 1},  /* TFLOAT32_FTZ */
  };
  return data_type >= 0 && data_type < TMA_DLPACK_DATA_TYPES ? &rows[data_type] : NULL;
}

/* The map type of a DLPack type, as [libcu++] __get_tensor_map_data_type. */
static inline int tma_dlpack_own_type(TmaDlpackDataType dtype) {
  if (dtype.lanes != 1) return TMA_DLPACK_NO_TYPE;
  switch (dtype.code) {
    case TMA_DLPACK_INT:
      return dtype.bits == 32 ? 3 : dtype.bits == 64 ? 5 : TMA_DLPACK_NO_TYPE;
    case TMA_DLPACK_UINT:
      return dtype.bits == 8    ? 0
             : dtype.bits == 16 ? 1
             : dtype.bits == 32 ? 2
             : dtype.bits == 64 ? 4
                                : TMA_DLPACK_NO_TYPE;
    case TMA_DLPACK_FLOAT:
      return dtype.bits == 16   ? 6
             : dtype.bits == 32 ? 7
             : dtype.bits == 64 ? 8
                                : TMA_DLPACK_NO_TYPE;
    case TMA_DLPACK_BFLOAT:
      return dtype.bits == 16 ? 9 : TMA_DLPACK_NO_TYPE;
    case TMA_DLPACK_BOOL:
      return dtype.bits == 8 ? 0 : TMA_DLPACK_NO_TYPE;
    default: /* the eight float8 types are carried as bytes */
      return dtype.code >= TMA_DLPACK_FLOAT8_FIRST && dtype.code <= TMA_DLPACK_FLOAT8_LAST &&
                     dtype.bits == 8
                 ? 0
                 : TMA_DLPACK_NO_TYPE;
  }
}

/* The map type of a tensor: its own, or the one asked if an element has the same size. */
static inline int tma_dlpack_data_type(TmaDlpackDataType dtype, int asked_type) {
  if (asked_type == TMA_DLPACK_OWN_TYPE) return tma_dlpack_own_type(dtype);
  const TmaDlpackTypeRow *row = tma_dlpack_type_row(asked_type);
  int known = dtype.code <= TMA_DLPACK_LAST_CODE && dtype.code != TMA_DLPACK_OPAQUE;
  int same_size = row != NULL && dtype.bits * dtype.lanes == 8 * row->element_bytes;
  return known && same_size ? asked_type : TMA_DLPACK_NO_TYPE;
}

/* ---- describe: tensor and options become the driver's arguments ---------------------------------- */

/* A product of two numbers that are not negative; too large for any limit where it would overflow. */
static inline int64_t tma_dlpack_product(int64_t a, int64_t b) {
  const int64_t huge = INT64_C(1) << 62;
  if (TMA_DLPACK_LIKELY(((a | b) >> 31) == 0)) return a * b;
  return b != 0 && a > huge / b ? huge : a * b;
}

/* `unit` is a power of two. */
static inline int64_t tma_dlpack_rounded_up(int64_t n, int64_t unit) {
  return (n + unit - 1) & -unit;
}

/* The strides of a row-major tensor, in elements; an extent below 1 counts as 1. */
static inline void tma_dlpack_row_major(const int64_t *shape, int rank, int64_t *strides) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[i] = stride;
    if (shape[i] > 1) stride = tma_dlpack_product(stride, shape[i]);
  }
}

/* The stride of an extent 1, which no access uses: what a row-major tensor would have there, in whole
 * `alignment_bytes`, and 0 where that reaches 2^40 (canonical_strides in tma_dlpack/dlpack/layout.py). */
static inline int64_t tma_dlpack_unused_stride(int64_t span, int64_t element_bytes,
                                               int64_t alignment_bytes) {
  int64_t stride = tma_dlpack_rounded_up(span, alignment_bytes / element_bytes);
  return tma_dlpack_product(stride, element_bytes) < TMA_DLPACK_STRIDE_BYTES_END ? stride : 0;
}

/* Extents, and strides in bytes. */
static inline void tma_dlpack_lay_out(const TmaDlpackTensor *tensor, int64_t element_bytes,
                                      int64_t alignment_bytes, TmaDlpackArguments *a) {
  int64_t row_major[TMA_DLPACK_MAX_RANK];
  const int64_t *strides = tensor->strides;
  if (strides == NULL) tma_dlpack_row_major(tensor->shape, a->rank, row_major), strides = row_major;
  int64_t inner_extent = 1, inner_stride = 1; /* of the dimension before */
  for (int d = 0, i = a->rank - 1; i >= 0; ++d, --i) {
    int64_t extent = tensor->shape[i], stride = strides[i];
    a->dims[d] = extent;
    if (TMA_DLPACK_LIKELY(extent > 1)) {
      if (stride < 0) a->flaw = "a stride is negative", stride = 0;
    } else {
      if (extent < 1) a->flaw = "an extent is below 1";
      extent = 1;
      int64_t span = tma_dlpack_product(inner_extent, inner_stride);
      stride = d == 0 ? 1 : tma_dlpack_unused_stride(span, element_bytes, alignment_bytes);
    }
    if (d > 0) a->strides_bytes[d - 1] = tma_dlpack_product(stride, element_bytes);
    else if (stride != 1) a->flaw = "the innermost stride is not 1";
    inner_extent = extent;
    inner_stride = stride;
  }
}

static inline void tma_dlpack_reverse(const int64_t *row_major, int count, int64_t *innermost_first) {
  for (int i = 0; i < count; ++i) innermost_first[i] = row_major[count - 1 - i];
}

/* Whether the innermost element stride has no say: [libcu++] encodes 1 there unless interleaved. */
static inline int tma_dlpack_ignores_innermost(const TmaDlpackOptions *options) {
  return options->rules == TMA_DLPACK_RULES_DEFAULT && options->interleave == 0;
}

static inline void tma_dlpack_elem_strides(const TmaDlpackOptions *options, TmaDlpackArguments *a) {
  if (options->elem_stride_count != a->rank) {
    if (options->elem_stride_count != 0) a->flaw = "elem_strides has not one entry per dimension";
    for (int d = 0; d < a->rank; ++d) a->elem_strides[d] = 1;
    return;
  }
  tma_dlpack_reverse(options->elem_strides, a->rank, a->elem_strides);
  if (tma_dlpack_ignores_innermost(options)) a->elem_strides[0] = 1;
}

/* Box (tiled), or corners (im2col). */
static inline void tma_dlpack_tile(const TmaDlpackOptions *options, TmaDlpackArguments *a) {
  if (a->kind == TMA_DLPACK_TILED) {
    if (options->box_count != a->rank) a->flaw = "box_sizes has not one entry per dimension";
    tma_dlpack_reverse(options->box_sizes, options->box_count, a->box);
    return;
  }
  int corner = a->kind == TMA_DLPACK_IM2COL ? a->rank - 2 : 1;
  if (options->lower_count != corner || options->upper_count != corner)
    a->flaw = "a corner has not one entry per spatial dimension";
  tma_dlpack_reverse(options->lower, options->lower_count, a->lower);
  tma_dlpack_reverse(options->upper, options->upper_count, a->upper);
}

/* Give the driver's arguments of a call. Always fills them as far as it can; `flaw` says what they
 * cannot show. Nothing is judged here. `tensor->shape` is not read beyond five dimensions. */
static inline void tma_dlpack_describe(const TmaDlpackTensor *tensor, const TmaDlpackOptions *options,
                                       TmaDlpackArguments *a) {
  int has_rank = tensor->ndim >= 1 && tensor->ndim <= TMA_DLPACK_MAX_RANK && tensor->shape != NULL;
  a->kind = options->kind;
  a->data_type = tma_dlpack_data_type(tensor->dtype, options->asked_type);
  a->rank = has_rank ? tensor->ndim : 0;
  a->interleave = options->interleave;
  a->swizzle = options->swizzle;
  a->l2_promotion = options->l2_promotion;
  a->oob_fill = options->oob_fill;
  a->mode = options->mode;
  a->channels = options->channels;
  a->pixels = options->pixels;
  a->address = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
  a->flaw = NULL;
  if (a->address < tensor->byte_offset) a->flaw = "data + byte_offset exceeds 64 bits";
  if (!has_rank) a->flaw = "the tensor has not 1 to 5 dimensions";
  const TmaDlpackTypeRow *row = tma_dlpack_type_row(a->data_type);
  if (row == NULL) a->flaw = "sm_90 maps have no such data type";
  tma_dlpack_lay_out(tensor, row != NULL ? row->element_bytes : 1,
                     a->interleave == TMA_DLPACK_INTERLEAVE_32B ? 32 : 16, a);
  tma_dlpack_elem_strides(options, a);
  tma_dlpack_tile(options, a);
}

/* ---- judge: would compute capability 9.0 have it? ------------------------------------------------ */

static inline int tma_dlpack_in_range(int64_t n, int64_t low, int64_t high) {
  return TMA_DLPACK_LIKELY(low <= n && n <= high);
}

/* Enums within what the driver has on 9.x: neither packed types nor the three atom swizzles. */
static inline int tma_dlpack_judge_options(const TmaDlpackArguments *a, int rules) {
  const TmaDlpackTypeRow *row = tma_dlpack_type_row(a->data_type);
  int needs_32b = a->interleave == TMA_DLPACK_INTERLEAVE_32B &&
                  (rules == TMA_DLPACK_RULES_DEFAULT ||
                   (rules == TMA_DLPACK_RULES_DRIVER && a->kind == TMA_DLPACK_TILED));
  return row != NULL && tma_dlpack_in_range(a->interleave, 0, 2) &&
         tma_dlpack_in_range(a->swizzle, 0, TMA_DLPACK_SWIZZLE_128B) &&
         tma_dlpack_in_range(a->l2_promotion, 0, 3) && tma_dlpack_in_range(a->oob_fill, 0, 1) &&
         tma_dlpack_in_range(a->mode, 0, 1) &&
         (a->oob_fill == 0 || row->is_float) &&
         (!needs_32b || a->swizzle == TMA_DLPACK_SWIZZLE_32B);
}

static inline int tma_dlpack_judge_rank(const TmaDlpackArguments *a) {
  int least = a->kind != TMA_DLPACK_TILED ? TMA_DLPACK_MIN_RANK_IM2COL
              : a->interleave != 0        ? TMA_DLPACK_MIN_RANK_INTERLEAVED
                                          : 1;
  return tma_dlpack_in_range(a->rank, least, TMA_DLPACK_MAX_RANK);
}

static inline int64_t tma_dlpack_alignment_bytes(const TmaDlpackArguments *a) {
  return a->interleave == TMA_DLPACK_INTERLEAVE_32B ? 32 : 16; /* [driver] */
}

static inline int tma_dlpack_judge_address(const TmaDlpackArguments *a, int rules) {
  return (a->address & ((uint64_t)tma_dlpack_alignment_bytes(a) - 1)) == 0 &&
         a->address < (uint64_t)TMA_DLPACK_ADDRESS_END &&
         (a->address != 0 || rules == TMA_DLPACK_RULES_BARE); /* the driver takes 0 [measured] */
}

/* Extents and strides; for [libcu++] the strides nest: 0, or at least what the dimension inside spans,
 * where an extent of 1 has no say. */
static inline int tma_dlpack_judge_layout(const TmaDlpackArguments *a, int rules,
                                          int64_t element_bytes) {
  const int nested = rules == TMA_DLPACK_RULES_DEFAULT;
  const int64_t unaligned_bits = tma_dlpack_alignment_bytes(a) - 1;
  if (!tma_dlpack_in_range(a->dims[0], 1, TMA_DLPACK_MAX_DIM)) return 0;
  int64_t inside = a->dims[0] * element_bytes; /* at most 2^35 */
  for (int d = 1; d < a->rank; ++d) {
    int64_t stride = a->strides_bytes[d - 1];
    if (!tma_dlpack_in_range(a->dims[d], 1, TMA_DLPACK_MAX_DIM) ||
        !tma_dlpack_in_range(stride, 0, TMA_DLPACK_STRIDE_BYTES_END - 1) ||
        (stride & unaligned_bits) != 0 || (nested && stride != 0 && stride < inside))
      return 0;
    if (a->dims[d] != 1) inside = tma_dlpack_product(a->dims[d], stride);
  }
  return 1;
}

/* Bytes of one row of the swizzle pattern: a box must not be wider [driver]; 0 without swizzle. */
static inline int64_t tma_dlpack_span_bytes(int swizzle) {
  return swizzle == 0 ? 0 : INT64_C(16) << swizzle;
}

/* The row of the box (box[0] or channels): whole units of 16 bytes, also where interleaved
 * [measured], and within the swizzle span unless interleaved. */
static inline int tma_dlpack_judge_row(const TmaDlpackArguments *a, int64_t inner_bytes) {
  return (inner_bytes & (TMA_DLPACK_INNER_BYTES - 1)) == 0 &&
         (a->swizzle == 0 || a->interleave != 0 ||
          inner_bytes <= tma_dlpack_span_bytes(a->swizzle));
}

/* What the driver computes for the box, and holds against 228 KB: it divides rounding down
 * [measured]. Not what a copy transfers. */
static inline int64_t tma_dlpack_box_bytes(const TmaDlpackArguments *a) {
  int64_t elements = a->channels * a->pixels;
  if (a->kind == TMA_DLPACK_TILED) {
    elements = 1;
    for (int d = 0; d < a->rank; ++d)
      elements *= a->elem_strides[d] == 1 ? a->box[d] : a->box[d] / a->elem_strides[d];
  }
  return elements * tma_dlpack_type_row(a->data_type)->element_bytes;
}

static inline int tma_dlpack_judge_elem_strides(const TmaDlpackArguments *a, int within_shape) {
  for (int d = 0; d < a->rank; ++d)
    if (!tma_dlpack_in_range(a->elem_strides[d], 1, TMA_DLPACK_MAX_ELEM_STRIDE) ||
        (within_shape && a->elem_strides[d] > a->dims[d]))
      return 0;
  return 1;
}

static inline int tma_dlpack_judge_box(const TmaDlpackArguments *a, int rules,
                                       int64_t max_smem_bytes) {
  int libcudacxx = rules == TMA_DLPACK_RULES_DEFAULT;
  int64_t element_bytes = tma_dlpack_type_row(a->data_type)->element_bytes;
  int64_t bytes = element_bytes; /* at most 8 x 256^5: no overflow */
  for (int d = 0; d < a->rank; ++d) {
    if (!tma_dlpack_in_range(a->box[d], 1, TMA_DLPACK_MAX_BOX) ||
        (libcudacxx && a->box[d] > a->dims[d]))
      return 0;
    bytes *= a->box[d];
  }
  return tma_dlpack_judge_row(a, a->box[0] * element_bytes) &&
         (!libcudacxx || bytes <= max_smem_bytes) &&
         tma_dlpack_judge_elem_strides(a, libcudacxx) && /* before they divide */
         (bytes <= TMA_DLPACK_MAX_BOX_BYTES || tma_dlpack_box_bytes(a) <= TMA_DLPACK_MAX_BOX_BYTES);
}

/* A number as the driver's 32-bit signed arithmetic has it [measured]. */
static inline int64_t tma_dlpack_int32(int64_t n) {
  return ((n + (INT64_C(1) << 31)) & INT64_C(0xffffffff)) - (INT64_C(1) << 31);
}

/* Corners share 16 bits of the map: one of 16, two of 8 or three of 5 bits, by rank. */
static inline int tma_dlpack_corner_bits(int rank) { return rank == 3 ? 16 : rank == 4 ? 8 : 5; }

static inline int tma_dlpack_judge_bounding_box(const TmaDlpackArguments *a) {
  const int64_t half = INT64_C(1) << (tma_dlpack_corner_bits(a->rank) - 1);
  const int first = a->interleave != 0 ? 0 : 1; /* the dimension of W */
  for (int s = 0; s < a->rank - 2; ++s) {
    int64_t size = tma_dlpack_int32(a->dims[first + s]);
    if (a->kind == TMA_DLPACK_IM2COL_WIDE && s > 0) { /* only W has corners */
      if (size <= 0) return 0;
      continue;
    }
    if (!tma_dlpack_in_range(a->lower[s], -half, half - 1) ||
        !tma_dlpack_in_range(a->upper[s], -half, half - 1) ||
        tma_dlpack_int32(size + a->upper[s]) - a->lower[s] <= 0)
      return 0;
  }
  return 1;
}

static inline int tma_dlpack_judge_column(const TmaDlpackArguments *a, int rules) {
  if (a->kind == TMA_DLPACK_IM2COL_WIDE && rules == TMA_DLPACK_RULES_DEFAULT)
    return 0; /* documented for compute capability 10.0 and later */
  int64_t element_bytes = tma_dlpack_type_row(a->data_type)->element_bytes;
  return tma_dlpack_judge_bounding_box(a) &&
         tma_dlpack_in_range(a->channels, 1, TMA_DLPACK_MAX_BOX) &&
         tma_dlpack_in_range(a->pixels, 1, TMA_DLPACK_MAX_PIXELS) &&
         tma_dlpack_judge_row(a, a->channels * element_bytes) &&
         tma_dlpack_judge_elem_strides(a, 0) &&
         tma_dlpack_box_bytes(a) <= TMA_DLPACK_MAX_BOX_BYTES;
}

/* Say 1 if these arguments are accepted on compute capability 9.0, 0 for "not sure".
 * `max_smem_bytes`: shared memory per block after opt-in, which libcu++ holds a box against. */
static inline int tma_dlpack_judge(const TmaDlpackArguments *a, int rules, int64_t max_smem_bytes) {
  if (a->flaw != NULL || !tma_dlpack_judge_options(a, rules) || !tma_dlpack_judge_rank(a) ||
      !tma_dlpack_judge_address(a, rules) ||
      !tma_dlpack_judge_layout(a, rules, tma_dlpack_type_row(a->data_type)->element_bytes))
    return 0;
  return a->kind == TMA_DLPACK_TILED ? tma_dlpack_judge_box(a, rules, max_smem_bytes)
                                     : tma_dlpack_judge_column(a, rules);
}

/* ---- encode: the 128 bytes, as measured ---------------------------------------------------------- */

/* A value in `width` bits from `bit` on, in place within its 32-bit word; only the address is wider. */
static inline uint32_t tma_dlpack_bits(int bit, int width, int64_t value) {
  return ((uint32_t)value & (~UINT32_C(0) >> (32 - width))) << bit % 32;
}

/* Write the word that begins at `bit`. A map is little-endian, and so is every host of a GPU. */
static inline void tma_dlpack_put_word(unsigned char *map, int bit, uint32_t word) {
  memcpy(map + bit / 8, &word, sizeof word);
}

/* Write the strides, in units of 16 bytes, whose upper bits stand together, and the extents. */
static inline void tma_dlpack_put_layout(unsigned char *map, const TmaDlpackArguments *a) {
  uint32_t upper_bits = 0;
  for (int d = 0; d < a->rank - 1; ++d) {
    uint64_t units = (uint64_t)a->strides_bytes[d] / 16;
    tma_dlpack_put_word(map, 96 + 32 * d, (uint32_t)units);
    upper_bits |= tma_dlpack_bits(224 + 4 * d, 4, (int64_t)(units >> 32));
  }
  tma_dlpack_put_word(map, 224, upper_bits);
  for (int d = 0; d < a->rank; ++d)
    tma_dlpack_put_word(map, 256 + 32 * d, (uint32_t)(a->dims[d] - 1));
}

/* Write the element strides, which share a word with the row of the tile, and the tile. */
static inline void tma_dlpack_put_tile(unsigned char *map, const TmaDlpackArguments *a) {
  int is_tiled = a->kind == TMA_DLPACK_TILED;
  uint32_t first = tma_dlpack_bits(440, 8, (is_tiled ? a->box[0] : a->channels) - 1), rest = 0;
  for (int d = 0; d < a->rank; ++d) first |= tma_dlpack_bits(416 + 3 * d, 3, a->elem_strides[d] - 1);
  tma_dlpack_put_word(map, 416, first);
  if (is_tiled) {
    for (int d = 1; d < a->rank; ++d) rest |= tma_dlpack_bits(440 + 8 * d, 8, a->box[d] - 1);
  } else {
    int width = tma_dlpack_corner_bits(a->rank);
    int corner = a->kind == TMA_DLPACK_IM2COL ? a->rank - 2 : 1;
    for (int s = 0; s < corner; ++s)
      rest |= tma_dlpack_bits(448 + width * s, width, a->lower[s]) |
              tma_dlpack_bits(464 + width * s, width, a->upper[s]);
    tma_dlpack_put_word(map, 480, tma_dlpack_bits(480, 10, a->pixels - 1));
  }
  tma_dlpack_put_word(map, 448, rest);
}

/* Write the 128 bytes of accepted arguments, as the driver makes them on compute capability 9.0
 * [measured; not published by NVIDIA]. Bit numbers are those of FIELDS in tma_dlpack/tables/fields.py. */
static inline void tma_dlpack_encode(const TmaDlpackArguments *a, unsigned char *map) {
  const TmaDlpackTypeRow *row = tma_dlpack_type_row(a->data_type);
  memset(map, 0, TMA_DLPACK_MAP_BYTES / 2); /* by halves, each of which is four instructions */
  memset(map + TMA_DLPACK_MAP_BYTES / 2, 0, TMA_DLPACK_MAP_BYTES / 2);
  memcpy(map, &a->address, sizeof a->address);
  tma_dlpack_put_word(map, 64,
                      tma_dlpack_bits(64, 1, a->kind != TMA_DLPACK_TILED) |
                          tma_dlpack_bits(68, 3, a->rank - 1) |
                          tma_dlpack_bits(71, 4, row->element_type) |
                          tma_dlpack_bits(75, 2, a->interleave) |
                          tma_dlpack_bits(77, 2, a->swizzle) |
                          tma_dlpack_bits(79, 1, a->oob_fill) |
                          tma_dlpack_bits(80, 1, row->tf32) |
                          tma_dlpack_bits(81, 2, a->l2_promotion));
  tma_dlpack_put_layout(map, a);
  tma_dlpack_put_tile(map, a);
  tma_dlpack_put_word(map, 512, (uint32_t)tma_dlpack_box_bytes(a));
  tma_dlpack_put_word(map, 576, a->swizzle == 0 ? 16 : 128u << a->swizzle); /* the swizzle repeats */
}

#endif /* TMA_DLPACK_MAKE_H */
