/* _options.h: read the options as numbers: enum members, names or values; tuples or lists of integers.
 *
 * Each function returns 1 if it read the value and 0 for "not sure", possibly with an exception: the caller
 * takes it to swallowed(), and checks/parse.py says what is wrong.
 */

#ifndef TMA_DLPACK_OPTIONS_H
#define TMA_DLPACK_OPTIONS_H

#include "_state.h"

/* Clear the current exception and return 0; for MemoryError and KeyboardInterrupt keep it and return
 * -1. */
static int swallowed(void) {
  if (PyErr_Occurred() == NULL) return 0;
  if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception))
    return -1;
  PyErr_Clear();
  return 0;
}

/* An int or a NumPy integer; neither a bool nor a member of an enum. */
static int read_integer(const State *state, PyObject *value, int64_t *out) {
  int overflow = 0;
  if (PyLong_CheckExact(value)) {
    *out = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
  }
  if (!PyType_IsSubtype(Py_TYPE(value), state->numpy_integer)) return 0;
  Py_INCREF(value); /* a __index__ in Python may empty the list that holds it */
  PyObject *number = PyNumber_Index(value);
  Py_DECREF(value);
  if (number == NULL) return 0;
  *out = PyLong_AsLongLongAndOverflow(number, &overflow);
  Py_DECREF(number);
  return !overflow;
}

/* A tuple or list of 1 to `most` integers; their number in `count`. */
static int read_integers(const State *state, PyObject *value, int most, int64_t *out, int *count) {
  int is_tuple = PyTuple_CheckExact(value);
  if (!is_tuple && !PyList_CheckExact(value)) return 0;
  PyObject *(*entry_of)(PyObject *, Py_ssize_t) = is_tuple ? PyTuple_GetItem : PyList_GetItem;
  int size = (int)(is_tuple ? PyTuple_Size(value) : PyList_Size(value));
  if (size < 1 || size > most) return 0;
  *count = size;
  for (int i = 0; i < size; ++i) {
    PyObject *entry = entry_of(value, i);
    if (entry == NULL || !read_integer(state, entry, &out[i])) return 0; /* NULL: a list that became
                                                                            shorter meanwhile */
  }
  return 1;
}

/* The member of a name. */
static int read_name(const Words *words, PyObject *name, int64_t *out) {
  for (int i = 0; i < MAX_MEMBERS && words->interned[i] != NULL; ++i)
    if (words->interned[i] == name) { /* as mostly: a word that stands in a program */
      *out = i;
      return 1;
    }
  PyObject *member = PyDict_GetItemWithError(words->names, name); /* borrowed */
  int overflow = 0;
  if (member != NULL) *out = PyLong_AsLongLongAndOverflow(member, &overflow);
  return member != NULL && !overflow;
}

/* A member of an enum, its name, or its value; values too large for the driver are refused later. */
static int read_any_member(const State *state, int which, PyObject *value, int *out) {
  const Words *words = &state->words[which];
  int64_t number = 0;
  int overflow = 0;
  if (PyUnicode_CheckExact(value)) {
    if (!read_name(words, value, &number)) return 0;
  } else if (Py_TYPE(value) == words->type) {
    number = PyLong_AsLongLongAndOverflow(value, &overflow);
  } else if (!read_integer(state, value, &number)) {
    return 0;
  }
  *out = (int)number;
  return !overflow && number >= 0 && number <= 127;
}

static inline int read_member(const State *state, int which, PyObject *value, int *out) {
  if (value != state->words[which].interned[0]) return read_any_member(state, which, value, out);
  *out = 0; /* the default of most: "none" */
  return 1;
}

static int is_word(PyObject *value, const char *word) {
  return PyUnicode_CheckExact(value) && PyUnicode_CompareWithASCIIString(value, word) == 0;
}

/* ---- one function per argument ------------------------------------------------------------------- */

typedef int (*ReadOption)(const State *, PyObject *, TmaDlpackOptions *);

static int read_box_sizes(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_integers(state, value, TMA_DLPACK_MAX_RANK, o->box_sizes, &o->box_count);
}

static int read_lower_corner(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_integers(state, value, TMA_DLPACK_MAX_RANK - 2, o->lower, &o->lower_count);
}

static int read_upper_corner(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_integers(state, value, TMA_DLPACK_MAX_RANK - 2, o->upper, &o->upper_count);
}

static int read_lower_width(const State *state, PyObject *value, TmaDlpackOptions *o) {
  o->lower_count = 1;
  return read_integer(state, value, &o->lower[0]);
}

static int read_upper_width(const State *state, PyObject *value, TmaDlpackOptions *o) {
  o->upper_count = 1;
  return read_integer(state, value, &o->upper[0]);
}

static int read_channels(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_integer(state, value, &o->channels);
}

static int read_pixels(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_integer(state, value, &o->pixels);
}

/* Row-major element strides, or None. The innermost may be ignored, but must fit a byte to be kept. */
static int read_elem_strides(const State *state, PyObject *value, TmaDlpackOptions *o) {
  if (value == Py_None) return 1;
  if (!read_integers(state, value, TMA_DLPACK_MAX_RANK, o->elem_strides, &o->elem_stride_count))
    return 0;
  int64_t innermost = o->elem_strides[o->elem_stride_count - 1];
  return innermost >= 0 && innermost <= UINT8_MAX;
}

static int read_interleave(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_member(state, INTERLEAVE, value, &o->interleave);
}

static int read_swizzle(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_member(state, SWIZZLE, value, &o->swizzle);
}

static int read_l2_promotion(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_member(state, L2_PROMOTION, value, &o->l2_promotion);
}

static int read_oob_fill(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_member(state, OOB_FILL, value, &o->oob_fill);
}

static int read_mode(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return read_member(state, WIDE_MODE, value, &o->mode);
}

static int read_data_type(const State *state, PyObject *value, TmaDlpackOptions *o) {
  return value == Py_None || read_member(state, DATA_TYPE, value, &o->asked_type);
}

/* The name of a set of rules: the default of the kind of map, or the driver's. */
static int read_rules(const State *state, PyObject *value, TmaDlpackOptions *o) {
  PyObject *usual = o->kind == TMA_DLPACK_TILED ? state->libcudacxx : state->documented;
  if (value == usual) return 1; /* as mostly: strings that stand in a program are one object */
  if (!PyUnicode_CheckExact(value)) return 0;
  if (PyUnicode_Compare(value, usual) == 0) return 1;
  o->rules = TMA_DLPACK_RULES_DRIVER;
  return PyUnicode_Compare(value, state->driver) == 0;
}

/* Only the tensor's own GPU is a target here. */
static int read_target(const State *state, PyObject *value, TmaDlpackOptions *o) {
  (void)state;
  (void)o;
  return value == Py_None;
}

/* ---- the functions that make the map of a tensor ------------------------------------------------- */

enum { MAX_OPTIONS = 13 };

/* What reads the arguments after the tensor, in their order. */
typedef struct {
  int kind, count;
  ReadOption read[MAX_OPTIONS];
} TensorVerb;

#define READ_LAYOUT read_elem_strides, read_interleave, read_swizzle, read_l2_promotion, read_oob_fill
#define READ_MANNER read_data_type, read_rules, read_target

static const TensorVerb tiled_verb = {
    TMA_DLPACK_TILED, 9, {read_box_sizes, READ_LAYOUT, READ_MANNER}};

static const TensorVerb im2col_verb = {
    TMA_DLPACK_IM2COL, 12,
    {read_lower_corner, read_upper_corner, read_channels, read_pixels, READ_LAYOUT, READ_MANNER}};

static const TensorVerb im2col_wide_verb = {
    TMA_DLPACK_IM2COL_WIDE, 13,
    {read_lower_width, read_upper_width, read_channels, read_pixels, READ_LAYOUT, read_mode,
     READ_MANNER}};

/* Read all arguments after the tensor. */
static int read_options(const State *state, const TensorVerb *verb, PyObject *const *args,
                        TmaDlpackOptions *o) {
  tma_dlpack_start_options(o, verb->kind);
  for (int i = 0; i < verb->count; ++i)
    if (!verb->read[i](state, args[i], o)) return 0;
  return 1;
}

#endif /* TMA_DLPACK_OPTIONS_H */
