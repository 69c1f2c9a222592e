/* bare.h: make the maps of driver_encode_* calls. These calls have an address instead of a
 * tensor. */

#ifndef TMA_DLPACK_BARE_H
#define TMA_DLPACK_BARE_H

#include "calls.h"

/* Read an array argument, which must have at least `least` entries. Read only the first `least`
 * entries, as the driver does, and set the other `room` - `least` entries of `out` to 0. */
static int read_bare_array(const State *state, PyObject *value, int least, int room, int64_t *out) {
  int count = 0;
  int64_t entries[TMA_DLPACK_MAX_RANK] = {0};
  int is_empty = least == 0 && PyTuple_CheckExact(value) && PyTuple_Size(value) == 0;
  if (!is_empty && !read_integers(state, value, TMA_DLPACK_MAX_RANK, entries, &count)) return 0;
  for (int i = 0; i < room; ++i) out[i] = i < least ? entries[i] : 0;
  return count >= least;
}

/* Read a member of one of the driver's enums. Return 0 if its value is not less than `count`. */
static int read_bare_member(const State *state, int which, PyObject *value, int count, int64_t *out) {
  int member = 0;
  int read = read_member(state, which, value, &member) && member < count;
  *out = member;
  return read;
}

/* Read the first five arguments: tensorDataType, tensorRank, globalAddress, globalDim,
 * globalStrides. */
static int read_bare_tensor(const State *state, PyObject *const *args, TmaDlpackDescribed *c) {
  int64_t strides[TMA_DLPACK_MAX_RANK];
  if (!read_bare_member(state, DATA_TYPE, args[0], TMA_DLPACK_DATA_TYPES, &c->data_type) ||
      !read_integer(state, args[1], &c->rank) || !read_integer(state, args[2], &c->address) ||
      c->rank < 1 || c->rank > TMA_DLPACK_MAX_RANK)
    return 0;
  int rank = (int)c->rank;
  if (!read_bare_array(state, args[3], rank, TMA_DLPACK_MAX_RANK, c->global_dim) ||
      !read_bare_array(state, args[4], rank - 1, TMA_DLPACK_MAX_RANK, strides))
    return 0;
  for (int d = 0; d < rank; ++d) c->global_dim[d] = tma_dlpack_cut(c->global_dim[d]);
  for (int d = 0; d < rank - 1; ++d) c->stride_bits[d] = tma_dlpack_product(strides[d], 8);
  return 1;
}

/* Read swizzle, l2Promotion and oobFill, which follow each other in every encode function. */
static int read_bare_options(const State *state, PyObject *const *args, TmaDlpackDescribed *c) {
  return read_bare_member(state, SWIZZLE, args[0], 7, &c->swizzle) &&
         read_bare_member(state, L2_PROMOTION, args[1], 4, &c->l2_promotion) &&
         read_bare_member(state, OOB_FILL, args[2], 2, &c->oob_fill);
}

/* Read the arguments from the sixth on, which depend on the kind of map. map_of_arguments reads the
 * last two arguments, `target` and `encoder`. */
static int read_bare_tile(const State *state, PyObject *const *args, TmaDlpackDescribed *c) {
  const int rank = (int)c->rank, room = TMA_DLPACK_MAX_RANK;
  if (c->kind == TMA_DLPACK_TILED)
    return read_bare_array(state, args[0], rank, room, c->box_dim) &&
           read_bare_array(state, args[1], rank, room, c->element_strides) &&
           read_bare_member(state, INTERLEAVE, args[2], 3, &c->interleave) &&
           read_bare_options(state, args + 3, c);
  int is_wide = c->kind == TMA_DLPACK_IM2COL_WIDE;
  int corners = is_wide ? read_integer(state, args[0], c->lower) &&
                              read_integer(state, args[1], c->upper)
                        : rank > 2 && read_bare_array(state, args[0], rank - 2, 3, c->lower) &&
                              read_bare_array(state, args[1], rank - 2, 3, c->upper);
  return corners && read_integer(state, args[2], &c->channels) &&
         read_integer(state, args[3], &c->pixels) &&
         read_bare_array(state, args[4], rank, room, c->element_strides) &&
         read_bare_member(state, INTERLEAVE, args[5], 3, &c->interleave) &&
         (!is_wide || read_bare_member(state, WIDE_MODE, args[6], 2, &c->mode)) &&
         read_bare_options(state, args + 6 + is_wide, c);
}

/* Compute the remaining fields of `c`, and judge the call by the driver's rules. The rules are the
 * measured rules, or the documented rules if the target was not measured. Return 1 if the rules
 * accept the call. */
static int judge_bare(TmaDlpackDescribed *c, const TmaDlpackTarget *target) {
  int rules = tma_dlpack_rules_of(TMA_DLPACK_IM2COL, 1, target);
  c->lower_count = c->upper_count = c->kind == TMA_DLPACK_IM2COL ? c->rank - 2 : 1;
  c->box_count = c->elem_stride_count = c->rank;
  c->asked_type = c->ragged_dim = -1;
  c->inner_stride = c->has_swizzle = 1;
  c->channels = tma_dlpack_cut(c->channels);
  c->pixels = tma_dlpack_cut(c->pixels);
  for (int d = 0; d < TMA_DLPACK_MAX_RANK; ++d) {
    c->box_dim[d] = tma_dlpack_cut(c->box_dim[d]);
    c->element_strides[d] = tma_dlpack_cut(c->element_strides[d]);
  }
  for (int s = 0; s < 3; ++s) {
    c->lower[s] = tma_dlpack_cut(c->lower[s]);
    c->upper[s] = tma_dlpack_cut(c->upper[s]);
  }
  c->row_bits =
      tma_dlpack_product(c->global_dim[0], tma_dlpack_type_row((int)c->data_type)->element_bits);
  /* Always pass the measured rules: with the documented rules, tma_dlpack_derive may ignore the
   * innermost element stride, but the driver does not. */
  tma_dlpack_derive(c, TMA_DLPACK_RULES_MEASURED, target);
  if (c->kind == TMA_DLPACK_IM2COL_WIDE && rules == TMA_DLPACK_RULES_DOCUMENTED)
    c->corner_end = 1 << 15;
  return tma_dlpack_judge(c, tma_dlpack_rows((int)c->kind, rules, 1)) == 0;
}

/* Record those arguments of the call that the 128 bytes do not contain. */
static void keep_bare(Record *kept, const TmaDlpackDescribed *c) {
  kept->is_bare = 1;
  kept->kind = (uint8_t)c->kind;
  kept->mode = (uint8_t)c->mode;
  kept->rank = (uint8_t)c->rank;
}

/* Return the ordinal of the GPU whose context is used to encode: the current GPU, or GPU 0 if no
 * GPU is current. Return ON_HOST if there is no driver, or if the encoder is "model". */
static int bare_ordinal(PyObject *encoder) {
  TmaDlpackDriver *driver = is_word(encoder, "model") ? NULL : tma_dlpack_driver();
  if (driver == NULL) return ON_HOST;
  int current = tma_dlpack_current_gpu(driver);
  return current < 0 ? 0 : current;
}

/* Make the map of a driver_encode_* call with `count` positional arguments. The last two arguments
 * are the target and the encoder. Return NULL if Python must handle the call, or if an exception is
 * set. */
static PyObject *map_of_arguments(State *state, PyObject *const *args, int count, int kind) {
  Options options;
  TmaDlpackDescribed c;
  clear(&c, sizeof c);
  options.target_object = NULL;
  c.kind = kind;
  PyObject *named = args[count - 1];
  if (!(is_word(named, "auto") || is_word(named, "model")) ||
      !read_target(state, args[count - 2], &options) || options.target_object == NULL ||
      !read_bare_tensor(state, args, &c) || !read_bare_tile(state, args + 5, &c) ||
      !judge_bare(&c, &options.target))
    return NULL;
  int ordinal = bare_ordinal(named);
  int encoder = encoder_for(&options.target, ordinal == ON_HOST ? NULL : tma_dlpack_gpu(ordinal));
  /* The call asks for the encoder "model", but this target has no such encoder. The Python function
   * raises the error. */
  if (encoder == NOT_ENCODED && is_word(named, "model")) return NULL;
  MapStorage *map = new_map(state->map_type, state->spare, NULL, (uint64_t)c.address);
  if (map == NULL) return NULL;
  keep_bare(&map->record, &c);
  keep_target(&map->record, &options.target, ON_HOST, encoder);
  map->launchable = 1; /* Trust the caller, because a bare address has no known device. */
  map->has_bytes = encoder != NOT_ENCODED;
  int is_default = options.target_object == state->default_target;
  if (!is_default) tma_dlpack_start_options(&options.o, kind);
  if ((is_default || keep_rare(&map->rare, &options)) && encode(&c, encoder, ordinal, map_bytes(map)) &&
      keep_fields(&map->fields, hidden_fields(&c, encoder)))
    return (PyObject *)map;
  Py_DECREF(map);
  return NULL;
}

#endif /* TMA_DLPACK_BARE_H */
