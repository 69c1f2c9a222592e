/* tma_dlpack_make.h: functions that make the 128 bytes of a map from a DLPack tensor. C11, C++17.
 *
 *   describe   tensor and options (row-major) -> TmaDlpackDescribed. This struct has the driver's
 *              arguments (innermost first), and all other numbers that the rules read
 *   judge      TmaDlpackDescribed -> mask of the broken rules (generated, in tma_dlpack_tables.h)
 *   extend     adds the dimensions of split_inner and ragged to a call that breaks no rule
 *   encode     the driver's arguments -> 128 bytes, in the measured layout of sm_90
 *
 * The header uses no Python, no allocation and no libcuda. tma_dlpack_driver.h calls the driver, and
 * tma_dlpack_make.hpp is the C++ interface of both headers. tma_dlpack's Python extension also
 * compiles this file. The texts of refusals are in Python, and `tma-dlpack explain` prints them.
 *
 * Sources: make_tma_descriptor.h, NVIDIA/cccl at 571f2fc3bc, 2026-08-22; CUDA driver API documents,
 * cuTensorMapEncodeTiled, ...Im2col and ...Im2colWide; dlpack.h 1.3. [measured] means: measured on
 * an NVIDIA H200, driver 580.159.04 (CUDA 13.0), 2026-11-20.
 */

#ifndef TMA_DLPACK_MAKE_H
#define TMA_DLPACK_MAKE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tma_dlpack_tables.h"

#ifdef __cplusplus
#define TMA_DLPACK_STATIC_ASSERT static_assert
#else
#define TMA_DLPACK_STATIC_ASSERT _Static_assert
#endif

TMA_DLPACK_BEGIN

/* ---- DLPack: the structs of a tensor ------------------------------------------------------------- */

enum {
  TMA_DLPACK_CPU = 1,
  TMA_DLPACK_CUDA = 2,
  TMA_DLPACK_CUDA_HOST = 3,
  TMA_DLPACK_CUDA_MANAGED = 13
};

enum {
  TMA_DLPACK_INT = 0,
  TMA_DLPACK_UINT = 1,
  TMA_DLPACK_FLOAT = 2,
  TMA_DLPACK_OPAQUE = 3,
  TMA_DLPACK_BFLOAT = 4,
  TMA_DLPACK_COMPLEX = 5,
  TMA_DLPACK_BOOL = 6
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

/* DLTensor. `strides` are in elements. If the producer uses DLPack before version 1.2, `strides`
 * may be NULL for a row-major tensor. */
typedef struct {
  void *data;
  TmaDlpackDevice device;
  int32_t ndim;
  TmaDlpackDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} TmaDlpackTensor;

/* DLManagedTensor, to which a capsule named "dltensor" points. */
typedef struct TmaDlpackManaged {
  TmaDlpackTensor tensor;
  void *manager_ctx;
  void (*deleter)(struct TmaDlpackManaged *);
} TmaDlpackManaged;

/* DLManagedTensorVersioned, to which a capsule named "dltensor_versioned" points. */
typedef struct TmaDlpackManagedVersioned {
  uint32_t major, minor;
  void *manager_ctx;
  void (*deleter)(struct TmaDlpackManagedVersioned *);
  uint64_t flags;
  TmaDlpackTensor tensor;
} TmaDlpackManagedVersioned;

#ifndef __wasm32__ /* WebAssembly has no DLPack producers, so native/page.c passes flat arrays */
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
#endif
#ifdef DLPACK_MAJOR_VERSION /* dlpack.h was included, so callers may cast a DLTensor */
TMA_DLPACK_STATIC_ASSERT(sizeof(DLTensor) == sizeof(TmaDlpackTensor), "dlpack.h");
TMA_DLPACK_STATIC_ASSERT(offsetof(DLTensor, shape) == offsetof(TmaDlpackTensor, shape), "dlpack.h");
TMA_DLPACK_STATIC_ASSERT(offsetof(DLTensor, byte_offset) == offsetof(TmaDlpackTensor, byte_offset),
                         "dlpack.h");
#endif

/* ---- the request (tma_dlpack_tables.h has its options) -------------------------------------------- */

/* The GPU that a map is for. */
typedef struct {
  int major, minor;       /* compute capability */
  int64_t max_smem_bytes; /* shared memory of a block, after opt-in */
} TmaDlpackTarget;

/* Return the set of rules for a kind of map. The driver's rules for im2col maps were measured only
 * on sm_90, so for other targets the documented rules are used. */
static inline int tma_dlpack_rules_of(int kind, int driver_rules, const TmaDlpackTarget *target) {
  if (kind == TMA_DLPACK_TILED)
    return driver_rules ? TMA_DLPACK_RULES_DRIVER : TMA_DLPACK_RULES_LIBCUDACXX;
  return driver_rules && tma_dlpack_target_has_model(target->major, target->minor)
             ? TMA_DLPACK_RULES_MEASURED
             : TMA_DLPACK_RULES_DOCUMENTED;
}

/* ---- numbers ------------------------------------------------------------------------------------- */

/* The largest absolute value of a number. tma_dlpack_cut replaces a number outside this range by
 * the nearest number in the range. TMA_DLPACK_HUGE is above every limit of the rules, and the sum
 * of two such numbers does not overflow. */
#define TMA_DLPACK_HUGE (INT64_C(1) << 60)

static inline int64_t tma_dlpack_cut(int64_t n) {
  if (TMA_DLPACK_LIKELY((uint64_t)n < TMA_DLPACK_HUGE)) return n;
  return n > TMA_DLPACK_HUGE ? TMA_DLPACK_HUGE : n < -TMA_DLPACK_HUGE ? -TMA_DLPACK_HUGE : n;
}

/* Return a product, cut to TMA_DLPACK_HUGE. */
static inline int64_t tma_dlpack_product(int64_t a, int64_t b) {
  if (TMA_DLPACK_LIKELY(((a | b) >> 29) == 0)) return a * b;
  if (a < 0) return a < -TMA_DLPACK_HUGE ? -TMA_DLPACK_HUGE : -tma_dlpack_product(-a, b);
  if (b < 0) return b < -TMA_DLPACK_HUGE ? -TMA_DLPACK_HUGE : -tma_dlpack_product(a, -b);
  return b != 0 && a > TMA_DLPACK_HUGE / b ? TMA_DLPACK_HUGE : a * b;
}

static inline int64_t tma_dlpack_gcd(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* ---- describe: a tensor's layout ----------------------------------------------------------------- */

/* Extents and strides in elements, row-major. */
typedef struct {
  int rank;
  int64_t shape[TMA_DLPACK_MAX_RANK], strides[TMA_DLPACK_MAX_RANK];
} TmaDlpackLayout;

/* Set the strides of a row-major tensor, in elements. An extent below 1 counts as 1. */
static inline void tma_dlpack_row_major(TmaDlpackLayout *layout) {
  int64_t stride = 1;
  for (int i = layout->rank - 1; i >= 0; --i) {
    layout->strides[i] = stride;
    if (layout->shape[i] > 1) stride = tma_dlpack_product(stride, layout->shape[i]);
  }
}

/* Replace the stride of each dimension of extent 1, because no access uses this stride. The new
 * stride is the stride of a row-major tensor, rounded up to a multiple of `align_bytes`. If the
 * rounded stride is 2^40 bytes or more, the new stride is 0. The same function in Python is
 * `canonical_strides` in dlpack/layout.py. */
static inline void tma_dlpack_canonical(TmaDlpackLayout *layout, int64_t element_bits,
                                        int64_t align_bytes) {
  int64_t unit = 8 * align_bytes / tma_dlpack_gcd(8 * align_bytes, element_bits), span = 1;
  for (int i = layout->rank - 1; i >= 0; --i) {
    if (layout->shape[i] == 1) {
      int64_t stride = i == layout->rank - 1 ? span : (span + unit - 1) / unit * unit;
      int fits = tma_dlpack_product(stride, element_bits) < 8 * TMA_DLPACK_STRIDE_BYTES_END;
      layout->strides[i] = fits ? stride : 0;
    }
    span = tma_dlpack_product(layout->shape[i], layout->strides[i]);
  }
}

static inline int tma_dlpack_has_unit_extent(const TmaDlpackLayout *layout) {
  for (int i = 0; i < layout->rank; ++i)
    if (layout->shape[i] == 1) return 1;
  return 0;
}

static inline int tma_dlpack_equal(const int64_t *a, const int64_t *b, int count) {
  for (int i = 0; i < count; ++i)
    if (a[i] != b[i]) return 0;
  return 1;
}

/* Read the tensor's own layout. Returns NULL, or the reason why the layout cannot be used. */
static inline const char *tma_dlpack_own_layout(const TmaDlpackTensor *tensor, int64_t element_bits,
                                                TmaDlpackLayout *layout) {
  int has_unit_extent = 0;
  int64_t all = 0; /* bitwise or of all numbers; if the result is in 0..HUGE, so is every number */
  if (tensor->ndim < 0 || tensor->ndim > TMA_DLPACK_MAX_RANK ||
      (tensor->ndim > 0 && tensor->shape == NULL))
    return "the tensor has more than five dimensions";
  layout->rank = tensor->ndim;
  for (int i = 0; i < layout->rank; ++i) {
    int64_t extent = tensor->shape[i], stride = tensor->strides == NULL ? 0 : tensor->strides[i];
    layout->shape[i] = extent;
    layout->strides[i] = stride;
    all |= extent | stride;
    has_unit_extent |= extent == 1;
  }
  for (int i = 0; (uint64_t)all >= TMA_DLPACK_HUGE && i < layout->rank; ++i) {
    if (layout->shape[i] < 0) return "an extent is negative";
    if (layout->strides[i] < 0 && layout->shape[i] > 1) return "a stride is negative";
    layout->shape[i] = tma_dlpack_cut(layout->shape[i]);
    layout->strides[i] = tma_dlpack_cut(layout->strides[i]);
  }
  if (tensor->strides == NULL) tma_dlpack_row_major(layout);
  if (has_unit_extent) tma_dlpack_canonical(layout, element_bits, TMA_DLPACK_INNER_BYTES);
  return NULL;
}

/* Describe a tensor as one dimension. This function is for a tensor that has more dimensions than a
 * map may have, in a call with the option `shape`. The tensor must be row-major without gaps,
 * unless the call has the option `strides`. Returns NULL, or the reason why the layout cannot be
 * used. */
static inline const char *tma_dlpack_flat_layout(const TmaDlpackTensor *tensor,
                                                 const TmaDlpackOptions *options,
                                                 TmaDlpackLayout *layout) {
  int64_t all = 1;
  int is_dense = 1;
  if (tensor->shape == NULL) return "the tensor has no shape";
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    int64_t extent = tensor->shape[i], stride = tensor->strides == NULL ? all : tensor->strides[i];
    if (extent < 0) return "an extent is negative";
    if (stride < 0 && extent > 1) return "a stride is negative";
    is_dense &= extent == 1 || stride == all;
    if (extent > 1) all = tma_dlpack_product(all, extent);
  }
  if (!is_dense && options->stride_count == TMA_DLPACK_NOT_GIVEN)
    return "strides must be given with this shape";
  layout->rank = 1;
  layout->shape[0] = all;
  layout->strides[0] = 1;
  return NULL;
}

/* Describe the tensor's memory by the options `shape` and `strides`. If `strides` is omitted, there
 * are two candidates for the strides. If `shape` has the tensor's rank, the tensor's own strides
 * are a candidate. If the tensor is row-major, the row-major strides of `shape` are a candidate. If
 * both are candidates, they must be equal. Returns NULL, or the reason why the options cannot be
 * used. */
static inline const char *tma_dlpack_as_strided(const TmaDlpackOptions *options, int64_t element_bits,
                                                TmaDlpackLayout *layout) {
  TmaDlpackLayout own = *layout;
  if (options->shape_count != TMA_DLPACK_NOT_GIVEN) {
    layout->rank = options->shape_count;
    for (int i = 0; i < layout->rank; ++i) layout->shape[i] = tma_dlpack_cut(options->shape[i]);
  }
  if (options->stride_count != TMA_DLPACK_NOT_GIVEN) {
    if (options->stride_count != layout->rank) return "strides has not one entry per dimension";
    for (int i = 0; i < layout->rank; ++i) layout->strides[i] = tma_dlpack_cut(options->strides[i]);
  } else if (options->shape_count != TMA_DLPACK_NOT_GIVEN) {
    TmaDlpackLayout dense = own;
    int same_rank = own.rank == layout->rank;
    tma_dlpack_row_major(&dense);
    tma_dlpack_canonical(&dense, element_bits, TMA_DLPACK_INNER_BYTES);
    int is_dense = tma_dlpack_equal(own.strides, dense.strides, own.rank);
    if (!is_dense && !same_rank) return "strides must be given with this shape";
    tma_dlpack_row_major(layout);
    tma_dlpack_canonical(layout, element_bits, TMA_DLPACK_INNER_BYTES);
    if (same_rank && is_dense && !tma_dlpack_equal(own.strides, layout->strides, own.rank))
      return "strides must be given with this shape";
    if (!is_dense) memcpy(layout->strides, own.strides, sizeof own.strides);
  }
  for (int i = 0; i < layout->rank; ++i)
    if (layout->shape[i] < 0 || (layout->strides[i] < 0 && layout->shape[i] != 1))
      return "a described number is negative";
  if (tma_dlpack_has_unit_extent(layout))
    tma_dlpack_canonical(layout, element_bits, TMA_DLPACK_INNER_BYTES);
  return NULL;
}

/* ---- describe: everything ------------------------------------------------------------------------ */

/* Return the data type of the map of a tensor whose elements have the type `dtype`. Return -1 if no
 * map of this tensor is possible. If `asked_type` is TMA_DLPACK_OWN_TYPE, the result is the map
 * type of `dtype`. Otherwise the result is `asked_type` in three cases. (1) `asked_type` is not
 * packed, and its elements have the size of the tensor's elements. (2) `asked_type` is packed, and
 * the tensor has 8-bit integers. (3) Both types have 4-bit elements. */
static inline int tma_dlpack_data_type(TmaDlpackDataType dtype, int asked_type) {
  int own = tma_dlpack_own_type(dtype.code, dtype.bits, dtype.lanes);
  if (asked_type == TMA_DLPACK_OWN_TYPE) return own;
  const TmaDlpackTypeRow *row = tma_dlpack_type_row(asked_type);
  if (row == NULL || dtype.code > TMA_DLPACK_LAST_CODE || dtype.code == TMA_DLPACK_OPAQUE) return -1;
  int same_size = dtype.bits * dtype.lanes == row->element_bits && !row->is_packed;
  int of_4_bits = dtype.bits == 4 && own >= 0 && row->element_bits == 4;
  int of_bytes = dtype.code <= TMA_DLPACK_UINT && dtype.bits == 8 && dtype.lanes == 1 && row->is_packed;
  return same_size || of_4_bits || of_bytes ? asked_type : -1;
}

/* Reverse row-major entries, so that the innermost entry is first. If there are fewer than `needed`
 * entries, the missing entries are set to 0. */
static inline void tma_dlpack_reverse(const int64_t *row_major, int count, int needed, int room,
                                      int64_t *reversed) {
  int i = 0;
  for (; i < count && i < room; ++i) reversed[i] = tma_dlpack_cut(row_major[count - 1 - i]);
  for (; i < needed; ++i) reversed[i] = 0;
}

/* Fill the fields of `c` that follow from the box of a tiled map. `box_bits` is the size of the box
 * in bits. `floor_box_bits` is the size in bits after each extent is divided by its element stride
 * and rounded down. */
static inline void tma_dlpack_derive_box(TmaDlpackDescribed *c) {
  const int count = (int)(c->box_count < TMA_DLPACK_MAX_RANK ? c->box_count : TMA_DLPACK_MAX_RANK);
  int64_t all = c->element_bits, steps = 0, floor = c->element_bits;
  c->spatial = c->corners = c->corner_end = 0;
  c->inner_box = c->is_split ? c->span_values : c->box_dim[0];
  for (int d = 0; d < count; ++d) {
    all = tma_dlpack_product(all, c->box_dim[d]);
    if (d < c->elem_stride_count) steps |= c->element_strides[d] - 1;
  }
  c->box_bits = c->floor_box_bits = all;
  if (steps == 0) return;
  for (int d = 0; d < count; ++d) {
    int is_given = d < c->elem_stride_count && !(d == 0 && c->ignores_inner_step);
    int64_t box = c->box_dim[d], step = is_given ? c->element_strides[d] : 1;
    if (step > 1) box = box >= 0 ? box / step : -((-box + step - 1) / step);
    floor = tma_dlpack_product(floor, box);
  }
  c->floor_box_bits = floor;
}

/* Fill, for an im2col map, the fields that tma_dlpack_derive_box fills for a tiled map. */
static inline void tma_dlpack_derive_column(TmaDlpackDescribed *c, int rules) {
  const int is_wide = c->kind == TMA_DLPACK_IM2COL_WIDE;
  c->spatial = c->dims < 2 ? 0 : c->dims - 2;
  c->corners = is_wide && c->spatial > 1 ? 1 : c->spatial;
  c->corner_end = is_wide && rules == TMA_DLPACK_RULES_DOCUMENTED ? 1 << 15
                  : c->rank == 4                                  ? 1 << 7
                  : c->rank == 5                                  ? 1 << 4
                                                                  : 1 << 15;
  c->inner_box = c->channels;
  c->box_bits = c->floor_box_bits =
      tma_dlpack_product(tma_dlpack_product(c->channels, c->pixels), c->element_bits);
}

/* Fill the fields of `c` that follow from the driver's arguments. Before the call, `kind`, `rank`,
 * `data_type`, the enums, `global_dim`, `row_bits`, `stride_bits`, the boxes, element strides,
 * corners and counts must be filled. */
static inline void tma_dlpack_derive(TmaDlpackDescribed *c, int rules, const TmaDlpackTarget *target) {
  static const int span_bytes[] = {0, 32, 64, 128, 128, 128, 128};
  const TmaDlpackTypeRow *row = tma_dlpack_type_row(c->data_type < 0 ? 0 : (int)c->data_type);
  const int is_tiled = c->kind == TMA_DLPACK_TILED;
  c->dims = c->rank >= 1 && c->rank <= TMA_DLPACK_MAX_RANK ? c->rank : 0;
  c->first_spatial = c->interleave == 0;
  c->element_bits = row->element_bits;
  c->is_packed = row->is_packed;
  c->is_padded = row->is_padded;
  c->is_float = row->is_float;
  c->packed_unit = row->packed_unit;
  c->type_interleaves = row->interleaves;
  c->type_swizzles = row->swizzles;
  c->alignment_bytes = c->interleave == TMA_DLPACK_INTERLEAVE_32B || c->is_padded ? 32 : 16;
  c->ignores_inner_step =
      (rules == TMA_DLPACK_RULES_LIBCUDACXX || rules == TMA_DLPACK_RULES_DOCUMENTED) &&
      c->interleave == 0;
  for (int d = 1; d < c->dims; ++d)
    c->inside_bits[d] = d == 1                      ? c->row_bits
                        : c->global_dim[d - 1] == 1 ? c->inside_bits[d - 1]
                                                    : tma_dlpack_product(c->global_dim[d - 1],
                                                                         c->stride_bits[d - 2]);
  c->span_bits = 8 * span_bytes[c->swizzle];
  c->span_values = 0;
  if (c->is_split)
    c->span_values = (c->span_bits != 0 ? c->span_bits : 8 * TMA_DLPACK_INNER_BYTES) / row->element_bits;
  if (is_tiled) tma_dlpack_derive_box(c);
  else tma_dlpack_derive_column(c, rules);
  c->inner_box_bits = tma_dlpack_product(c->inner_box, c->element_bits);
  c->has_tma = tma_dlpack_target_has_tma(target->major, target->minor);
  c->is_sm_9x = tma_dlpack_target_is_sm_9x(target->major, target->minor);
  c->has_wide = tma_dlpack_target_has_wide(target->major, target->minor);
  c->has_model = tma_dlpack_target_has_model(target->major, target->minor);
  c->max_smem_bytes = target->max_smem_bytes;
}

static inline int tma_dlpack_is_member(int value, int count) { return value >= 0 && value < count; }

/* Describe a call. Returns NULL, or the reason why TmaDlpackDescribed cannot represent the call. If
 * there is a reason, the caller refuses the call, or calls the Python function. This function
 * checks no rules. */
static inline const char *tma_dlpack_describe(const TmaDlpackTensor *tensor,
                                              const TmaDlpackOptions *o,
                                              const TmaDlpackTarget *target, TmaDlpackDescribed *c) {
  TmaDlpackLayout layout;
  const int64_t bits = (int64_t)tensor->dtype.bits * tensor->dtype.lanes;
  const uint64_t start = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
  const int rules = tma_dlpack_rules_of(o->kind, o->driver_rules, target);
  if (!tma_dlpack_is_member(o->interleave, 3) || !tma_dlpack_is_member(o->swizzle, 7) ||
      !tma_dlpack_is_member(o->l2_promotion, 4) || !tma_dlpack_is_member(o->oob_fill, 2) ||
      !tma_dlpack_is_member(o->mode, 2) || o->asked_type < TMA_DLPACK_OWN_TYPE ||
      o->asked_type >= TMA_DLPACK_DATA_TYPES)
    return "an option is not a member of its enum";
  if (bits == 0) return "the tensor's elements have no bits";
  const int is_flat = tensor->ndim > TMA_DLPACK_MAX_RANK && o->shape_count != TMA_DLPACK_NOT_GIVEN;
  const char *flaw = is_flat ? tma_dlpack_flat_layout(tensor, o, &layout)
                             : tma_dlpack_own_layout(tensor, bits, &layout);
  if (flaw == NULL && (o->shape_count != TMA_DLPACK_NOT_GIVEN || o->stride_count != TMA_DLPACK_NOT_GIVEN))
    flaw = tma_dlpack_as_strided(o, bits, &layout);
  /* `flaw` is usually NULL. Without LIKELY, compilers expect that a pointer is not NULL. */
  if (!TMA_DLPACK_LIKELY(flaw == NULL)) return flaw;
  if (start < tensor->byte_offset || start >> 62 != 0) return "the address is out of range";
  if (o->offset != 0 && (o->offset > TMA_DLPACK_HUGE / bits || o->offset < -TMA_DLPACK_HUGE / bits ||
                         o->offset * bits % 8 != 0))
    return "the offset is not a whole number of bytes";

  c->kind = o->kind;
  c->rank = layout.rank;
  c->address = (int64_t)start + (o->offset == 0 ? 0 : o->offset * bits / 8);
  c->is_null = start == 0;
  c->data_type = tma_dlpack_data_type(tensor->dtype, o->asked_type);
  c->asked_type = o->asked_type;
  c->passes_nan = rules == TMA_DLPACK_RULES_LIBCUDACXX && o->asked_type == TMA_DLPACK_OWN_TYPE &&
                  tensor->dtype.code != TMA_DLPACK_INT && tensor->dtype.code != TMA_DLPACK_UINT &&
                  tensor->dtype.code != TMA_DLPACK_BOOL;
  c->interleave = o->interleave;
  c->swizzle = o->swizzle;
  c->l2_promotion = o->l2_promotion;
  c->oob_fill = o->oob_fill;
  c->mode = o->mode;

  const TmaDlpackTypeRow *row = tma_dlpack_type_row(c->data_type < 0 ? 0 : (int)c->data_type);
  if ((o->interleave == TMA_DLPACK_INTERLEAVE_32B || row->is_padded) && tma_dlpack_has_unit_extent(&layout))
    tma_dlpack_canonical(&layout, bits, 32);
  c->inner_stride = layout.rank > 0 ? layout.strides[layout.rank - 1] : 1;
  c->row_bits = layout.rank > 0 ? tma_dlpack_product(layout.shape[layout.rank - 1], bits) : 0;
  c->global_dim[0] = 0; /* read if the rank is 0; other entries past the rank are not written */
  for (int d = 0, i = layout.rank - 1; i >= 0; ++d, --i) {
    c->global_dim[d] = layout.shape[i];
    if (d > 0) c->stride_bits[d - 1] = tma_dlpack_product(layout.strides[i], bits);
  }
  if (row->is_packed && layout.rank > 0) c->global_dim[0] = c->row_bits / row->element_bits;

  c->elem_stride_count = o->elem_stride_count;
  c->element_strides[0] = c->box_dim[0] = 0;
  if (o->elem_stride_count == TMA_DLPACK_NOT_GIVEN) {
    c->elem_stride_count = layout.rank;
    for (int d = 0; d < layout.rank; ++d) c->element_strides[d] = 1;
  } else {
    tma_dlpack_reverse(o->elem_strides, o->elem_stride_count, layout.rank, TMA_DLPACK_MAX_RANK,
                       c->element_strides);
  }
  c->box_count = o->kind == TMA_DLPACK_TILED ? o->box_count : 0;
  c->lower_count = c->upper_count = 0;
  c->channels = tma_dlpack_cut(o->channels);
  c->pixels = tma_dlpack_cut(o->pixels);
  if (o->kind == TMA_DLPACK_TILED) {
    tma_dlpack_reverse(o->box_sizes, o->box_count, layout.rank, TMA_DLPACK_MAX_RANK, c->box_dim);
  } else {
    c->lower_count = o->lower_count;
    c->upper_count = o->upper_count;
    tma_dlpack_reverse(o->lower, o->lower_count, 3, 3, c->lower);
    tma_dlpack_reverse(o->upper, o->upper_count, 3, 3, c->upper);
  }

  c->is_split = o->split_inner;
  c->has_swizzle = o->has_swizzle;
  c->is_ragged = o->has_ragged;
  c->ragged_dim = -1;
  c->ragged_stride_bits = 0;
  if (o->has_ragged && o->ragged >= -layout.rank && o->ragged < layout.rank)
    c->ragged_dim = layout.rank - 1 - (o->ragged + layout.rank) % layout.rank;
  if (c->ragged_dim >= 1) c->ragged_stride_bits = c->stride_bits[c->ragged_dim - 1];
  tma_dlpack_derive(c, rules, target);
  return NULL;
}

/* Return the mask of the rules that apply to a call with these options. */
static inline uint64_t tma_dlpack_asked(const TmaDlpackOptions *o, const TmaDlpackTarget *target) {
  int rules = tma_dlpack_rules_of(o->kind, o->driver_rules, target);
  return tma_dlpack_rows(o->kind, rules, 0) & ~(o->allowed & TMA_DLPACK_ALLOWABLE);
}

/* ---- extend: dimensions that only the map has ---------------------------------------------------- */

static inline void tma_dlpack_add_dimension(TmaDlpackDescribed *c, int64_t extent, int64_t stride_bits,
                                            int64_t box) {
  int64_t d = c->rank++;
  c->global_dim[d] = extent;
  c->stride_bits[d - 1] = stride_bits;
  c->box_dim[d] = box;
  c->element_strides[d] = 1;
}

/* Convert an accepted call to the driver's arguments. An ignored element stride becomes 1.
 * split_inner changes the shape from (.., M, K) to (K / span, .., M, span). ragged adds two
 * dimensions, and the sum of their strides is 2^34 elements (make/recipes.py has the reason). */
static inline void tma_dlpack_extend(TmaDlpackDescribed *c) {
  if (c->ignores_inner_step) c->element_strides[0] = 1;
  if (c->is_split) {
    int64_t span = c->span_values;
    tma_dlpack_add_dimension(c, c->global_dim[0] / span, span * c->element_bits, c->box_dim[0] / span);
    c->global_dim[0] = c->box_dim[0] = span;
  }
  if (c->is_ragged) {
    /* 2^30 times the sum of the two strides must be a multiple of 2^64 bytes, because addresses
     * wrap at 2^64. So elements of less than 8 bits count as 8 bits. */
    int64_t wrapping_bits = c->element_bits < 8 ? 8 : c->element_bits;
    int64_t stride = c->ragged_stride_bits, wrap = TMA_DLPACK_RAGGED_STRIDE_END * wrapping_bits;
    c->global_dim[c->ragged_dim] = TMA_DLPACK_RAGGED_EXTENT;
    tma_dlpack_add_dimension(c, TMA_DLPACK_RAGGED_EXTRA_EXTENT, stride, 1);
    tma_dlpack_add_dimension(c, TMA_DLPACK_RAGGED_EXTRA_EXTENT, wrap - stride, 1);
  }
}

/* ---- encode: the 128 bytes, as measured ---------------------------------------------------------- */

/* A value, shifted to the position of entry `i` of a field in a 32-bit word. Of all fields, only
 * the address is wider than a word. */
#define TMA_DLPACK_FIELD(name, i, value) \
  tma_dlpack_bits(TMA_DLPACK_BIT_##name + TMA_DLPACK_WIDTH_##name * (i), TMA_DLPACK_WIDTH_##name, value)

static inline uint32_t tma_dlpack_bits(int bit, int width, int64_t value) {
  return ((uint32_t)value & (~UINT32_C(0) >> (32 - width))) << bit % 32;
}

/* Write the word that begins at `bit`. No byte is swapped, because a map and every host of a GPU
 * are little-endian. */
static inline void tma_dlpack_put_word(unsigned char *map, int bit, uint32_t word) {
  memcpy(map + bit / 8, &word, sizeof word);
}

/* Write the strides, in units of 16 bytes, and the extents. The lower 32 bits of each stride are a
 * word. The upper bits of all strides share another word. */
static inline void tma_dlpack_put_layout(unsigned char *map, const TmaDlpackDescribed *c) {
  uint32_t upper_bits = 0;
  for (int d = 0; d < c->rank - 1; ++d) {
    uint64_t units = (uint64_t)c->stride_bits[d] / 128;
    tma_dlpack_put_word(map, TMA_DLPACK_BIT_GLOBAL_STRIDES + 32 * d, (uint32_t)units);
    upper_bits |= TMA_DLPACK_FIELD(GLOBAL_STRIDES_HIGH, d, (int64_t)(units >> 32));
  }
  tma_dlpack_put_word(map, TMA_DLPACK_BIT_GLOBAL_STRIDES_HIGH, upper_bits);
  for (int d = 0; d < c->rank; ++d)
    tma_dlpack_put_word(map, TMA_DLPACK_BIT_GLOBAL_DIM + 32 * d, (uint32_t)(c->global_dim[d] - 1));
}

/* Write the element strides and the box. The innermost extent of the box is in the same word as the
 * element strides. */
static inline void tma_dlpack_put_tile(unsigned char *map, const TmaDlpackDescribed *c) {
  int is_tiled = c->kind == TMA_DLPACK_TILED;
  uint32_t first = TMA_DLPACK_FIELD(BOX_DIM, 0, (is_tiled ? c->box_dim[0] : c->channels) - 1), rest = 0;
  for (int d = 0; d < c->rank; ++d) first |= TMA_DLPACK_FIELD(ELEMENT_STRIDES, d, c->element_strides[d] - 1);
  tma_dlpack_put_word(map, TMA_DLPACK_BIT_ELEMENT_STRIDES, first);
  if (is_tiled) {
    for (int d = 1; d < c->rank; ++d) rest |= TMA_DLPACK_FIELD(BOX_DIM, d, c->box_dim[d] - 1);
  } else {
    int width = c->rank == 3 ? 16 : c->rank == 4 ? 8 : 5; /* the entries of a corner share 16 bits */
    for (int s = 0; s < c->corners; ++s)
      rest |= tma_dlpack_bits(TMA_DLPACK_BIT_PIXEL_BOX_LOWER_CORNER + width * s, width, c->lower[s]) |
              tma_dlpack_bits(TMA_DLPACK_BIT_PIXEL_BOX_UPPER_CORNER + width * s, width, c->upper[s]);
    tma_dlpack_put_word(map, TMA_DLPACK_BIT_PIXELS_PER_COLUMN,
                        TMA_DLPACK_FIELD(PIXELS_PER_COLUMN, 0, c->pixels - 1));
  }
  tma_dlpack_put_word(map, TMA_DLPACK_BIT_PIXEL_BOX_LOWER_CORNER, rest);
}

/* Set the 128 bytes to zero in two halves. The compiler then generates four instructions for each
 * half. */
static inline void tma_dlpack_clear(unsigned char *map) {
  memset(map, 0, TMA_DLPACK_MAP_BYTES / 2);
  memset(map + TMA_DLPACK_MAP_BYTES / 2, 0, TMA_DLPACK_MAP_BYTES / 2);
}

/* Write the 128 bytes of a map for accepted arguments. The driver writes equal bytes on compute
 * capability 9.0 [measured; not published by NVIDIA]. */
static inline void tma_dlpack_encode(const TmaDlpackDescribed *c, unsigned char *map) {
  const TmaDlpackTypeRow *row = tma_dlpack_type_row((int)c->data_type);
  tma_dlpack_clear(map);
  memcpy(map, &c->address, sizeof c->address);
  tma_dlpack_put_word(
      map, TMA_DLPACK_BIT_IM2COL,
      TMA_DLPACK_FIELD(IM2COL, 0, c->kind != TMA_DLPACK_TILED) | TMA_DLPACK_FIELD(RANK, 0, c->rank - 1) |
          TMA_DLPACK_FIELD(ELEMENT_TYPE, 0, row->element_type) |
          TMA_DLPACK_FIELD(INTERLEAVE, 0, c->interleave) | TMA_DLPACK_FIELD(SWIZZLE, 0, c->swizzle) |
          TMA_DLPACK_FIELD(OOB_FILL, 0, c->oob_fill) | TMA_DLPACK_FIELD(TF32, 0, row->tf32) |
          TMA_DLPACK_FIELD(L2_PROMOTION, 0, c->l2_promotion));
  tma_dlpack_put_layout(map, c);
  tma_dlpack_put_tile(map, c);
  tma_dlpack_put_word(map, TMA_DLPACK_BIT_BOX_BYTES, (uint32_t)(c->floor_box_bits / 8));
  tma_dlpack_put_word(map, TMA_DLPACK_BIT_SWIZZLE_REPEAT_BYTES,
                      c->swizzle == 0 ? 16 : 128u << c->swizzle);
}

/* ---- decode: the fields of the 128 bytes --------------------------------------------------------- */

static inline int64_t tma_dlpack_get(const unsigned char *map, int bit, int width) {
  uint32_t word;
  memcpy(&word, map + bit / 32 * 4, sizeof word);
  return word >> bit % 32 & (~UINT32_C(0) >> (32 - width));
}

/* Read a field that is a two's complement number. */
static inline int64_t tma_dlpack_get_signed(const unsigned char *map, int bit, int width) {
  const int64_t value = tma_dlpack_get(map, bit, width), sign = INT64_C(1) << (width - 1);
  return (value ^ sign) - sign;
}

/* Read entry `i` of a field. */
#define TMA_DLPACK_GET(name, i) \
  tma_dlpack_get(map, TMA_DLPACK_BIT_##name + TMA_DLPACK_WIDTH_##name * (i), TMA_DLPACK_WIDTH_##name)

/* Read the corners of an im2col map. */
static inline void tma_dlpack_get_corners(const unsigned char *map, TmaDlpackDescribed *c) {
  const int width = c->rank == 3 ? 16 : c->rank == 4 ? 8 : 5, lower = TMA_DLPACK_BIT_PIXEL_BOX_LOWER_CORNER,
            upper = TMA_DLPACK_BIT_PIXEL_BOX_UPPER_CORNER;
  c->corners = c->kind == TMA_DLPACK_IM2COL_WIDE ? 1 : c->rank - 2;
  for (int s = 0; s < c->corners; ++s) {
    c->lower[s] = tma_dlpack_get_signed(map, lower + width * s, width);
    c->upper[s] = tma_dlpack_get_signed(map, upper + width * s, width);
  }
}

/* Decode the bytes of a map, as the inverse of tma_dlpack_encode. The caller passes `kind`, because
 * the bytes do not show whether a map is im2col or im2col-wide. The function fills `element_bits`
 * and the driver's arguments, except the address and `mode`. */
static inline void tma_dlpack_decode(const unsigned char *map, int kind, TmaDlpackDescribed *c) {
  memset(c, 0, sizeof *c);
  c->kind = kind;
  c->rank = TMA_DLPACK_GET(RANK, 0) + 1;
  c->interleave = TMA_DLPACK_GET(INTERLEAVE, 0);
  c->swizzle = TMA_DLPACK_GET(SWIZZLE, 0);
  c->oob_fill = TMA_DLPACK_GET(OOB_FILL, 0);
  c->l2_promotion = TMA_DLPACK_GET(L2_PROMOTION, 0);
  for (int t = 0; t < TMA_DLPACK_DATA_TYPES; ++t) {
    const TmaDlpackTypeRow *row = tma_dlpack_type_row(t);
    if (row->is_packed || row->element_type != TMA_DLPACK_GET(ELEMENT_TYPE, 0) || row->tf32 != TMA_DLPACK_GET(TF32, 0))
      continue;
    c->data_type = t;
    c->element_bits = row->element_bits;
  }
  for (int d = 0; d < c->rank; ++d) {
    c->global_dim[d] = tma_dlpack_get(map, TMA_DLPACK_BIT_GLOBAL_DIM + 32 * d, 32) + 1;
    c->element_strides[d] = TMA_DLPACK_GET(ELEMENT_STRIDES, d) + 1;
    if (kind == TMA_DLPACK_TILED) c->box_dim[d] = TMA_DLPACK_GET(BOX_DIM, d) + 1;
    if (d < c->rank - 1)
      c->stride_bits[d] = 128 * (tma_dlpack_get(map, TMA_DLPACK_BIT_GLOBAL_STRIDES + 32 * d, 32) |
                                 TMA_DLPACK_GET(GLOBAL_STRIDES_HIGH, d) << 32);
  }
  if (kind == TMA_DLPACK_TILED) return;
  c->channels = TMA_DLPACK_GET(BOX_DIM, 0) + 1;
  c->pixels = TMA_DLPACK_GET(PIXELS_PER_COLUMN, 0) + 1;
  tma_dlpack_get_corners(map, c);
}

TMA_DLPACK_END

#endif /* TMA_DLPACK_MAKE_H */
