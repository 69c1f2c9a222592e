/* _bare.h: the arguments of driver_encode_* calls, which have no tensor. */

#ifndef TMA_DLPACK_BARE_H
#define TMA_DLPACK_BARE_H

#include "_calls.h"

/* tensorDataType, tensorRank, globalAddress, globalDim, globalStrides: five arguments in a row. As in
 * C, entries of an array past the rank are not read. */
static int read_bare_tensor(const State *state, PyObject *const *args, TmaDlpackArguments *a) {
  int64_t rank = 0, address = 0, strides[TMA_DLPACK_MAX_RANK] = {0};
  int dims = 0, outer = 0;
  if (!read_member(state, DATA_TYPE, args[0], &a->data_type) ||
      !read_integer(state, args[1], &rank) || !read_integer(state, args[2], &address) ||
      !read_integers(state, args[3], TMA_DLPACK_MAX_RANK, a->dims, &dims))
    return 0;
  int no_strides = rank == 1 && PyTuple_CheckExact(args[4]) && PyTuple_Size(args[4]) == 0;
  if (!no_strides && !read_integers(state, args[4], TMA_DLPACK_MAX_RANK, strides, &outer)) return 0;
  if (rank < 1 || rank > dims || rank - 1 > outer || address < 0) return 0;
  a->rank = (int)rank;
  a->address = (uint64_t)address;
  memcpy(a->strides_bytes, strides, ((size_t)rank - 1) * sizeof strides[0]);
  return 1;
}

/* An array with at least the required number of entries. */
static int read_bare_array(const State *state, PyObject *value, int least, int64_t *out) {
  int count = 0;
  return read_integers(state, value, TMA_DLPACK_MAX_RANK, out, &count) && count >= least;
}

static int read_bare_options(const State *state, PyObject *const *args, TmaDlpackArguments *a) {
  return read_member(state, SWIZZLE, args[0], &a->swizzle) &&
         read_member(state, L2_PROMOTION, args[1], &a->l2_promotion) &&
         read_member(state, OOB_FILL, args[2], &a->oob_fill);
}

/* The arguments of a kind, from the sixth on; `target` and `encoder` come last, and are not read. */
static int read_bare_tile(const State *state, PyObject *const *args, TmaDlpackArguments *a) {
  if (a->kind == TMA_DLPACK_TILED)
    return read_bare_array(state, args[0], a->rank, a->box) &&
           read_bare_array(state, args[1], a->rank, a->elem_strides) &&
           read_member(state, INTERLEAVE, args[2], &a->interleave) &&
           read_bare_options(state, args + 3, a);
  int is_wide = a->kind == TMA_DLPACK_IM2COL_WIDE;
  int corners = is_wide ? read_integer(state, args[0], a->lower) &&
                              read_integer(state, args[1], a->upper)
                        : read_bare_array(state, args[0], a->rank - 2, a->lower) &&
                              read_bare_array(state, args[1], a->rank - 2, a->upper);
  return corners && read_integer(state, args[2], &a->channels) &&
         read_integer(state, args[3], &a->pixels) &&
         read_bare_array(state, args[4], a->rank, a->elem_strides) &&
         read_member(state, INTERLEAVE, args[5], &a->interleave) &&
         (!is_wide || read_member(state, WIDE_MODE, args[6], &a->mode)) &&
         read_bare_options(state, args + 6 + is_wide, a);
}

/* Keep judged arguments, in the driver's order, and by whom they are encoded. */
static void keep_bare(AskedCall *asked, const TmaDlpackArguments *a, int ordinal) {
  asked->is_bare = asked->has_elem_strides = 1;
  asked->by_driver = ordinal != ON_HOST;
  asked->kind = (uint8_t)a->kind;
  asked->rules = TMA_DLPACK_RULES_BARE;
  asked->rank = (uint8_t)a->rank;
  asked->asked_type = (int8_t)a->data_type;
  asked->interleave = (uint8_t)a->interleave;
  asked->swizzle = (uint8_t)a->swizzle;
  asked->l2_promotion = (uint8_t)a->l2_promotion;
  asked->oob_fill = (uint8_t)a->oob_fill;
  asked->mode = (uint8_t)a->mode;
  asked->channels = (uint16_t)a->channels;
  asked->pixels = (uint16_t)a->pixels;
  for (int d = 0; d < a->rank; ++d) {
    asked->shape[d] = a->dims[d];
    asked->box[d] = (uint16_t)a->box[d];
    asked->elem_strides[d] = (uint8_t)a->elem_strides[d];
    if (d < a->rank - 1) asked->strides[d] = a->strides_bytes[d];
  }
  for (int s = 0; s < 3; ++s) {
    asked->lower[s] = (int16_t)a->lower[s];
    asked->upper[s] = (int16_t)a->upper[s];
  }
}

/* The GPU whose driver encodes: the current one, or GPU 0, if its rules are known here; else
 * ON_HOST. */
static int bare_ordinal(PyObject *encoder) {
  TmaDlpackDriver *driver = is_word(encoder, "model") ? NULL : tma_dlpack_driver();
  if (driver == NULL) return ON_HOST;
  int current = tma_dlpack_current_gpu(driver);
  int ordinal = current < 0 ? 0 : current;
  const TmaDlpackGpu *gpu = tma_dlpack_gpu(ordinal);
  return gpu != NULL && tma_dlpack_gpu_is_judged(gpu) ? ordinal : ON_HOST;
}

#endif /* TMA_DLPACK_BARE_H */
