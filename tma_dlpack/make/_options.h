/* _options.h: read the options as numbers: enum members, names or values; tuples or lists of integers.
 *
 * Each function returns 1 if it read the value and 0 for "not sure": then rules/parse.py says what is
 * wrong. None of them leaves an exception behind.
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
  PyObject *number = PyNumber_Index(value);
  if (number == NULL) {
    PyErr_Clear();
    return 0;
  }
  *out = PyLong_AsLongLongAndOverflow(number, &overflow);
  Py_DECREF(number);
  return !overflow;
}

/* A tuple or list of 1 to `most` integers; their number in `count`. */
static int read_integers(const State *state, PyObject *value, int most, int64_t *out, int *count) {
  int is_tuple = PyTuple_CheckExact(value);
  if (!is_tuple && !PyList_CheckExact(value)) return 0;
  Py_ssize_t size = is_tuple ? PyTuple_Size(value) : PyList_Size(value);
  if (size < 1 || size > most) return 0;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject *entry = is_tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i);
    if (entry == NULL || !read_integer(state, entry, &out[i])) {
      PyErr_Clear(); /* a list that became shorter meanwhile */
      return 0;
    }
  }
  *count = (int)size;
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
  else PyErr_Clear();
  return member != NULL && !overflow;
}

/* A member of an enum, its name, or its value; values too large for the driver are refused later. */
static int read_member(const State *state, int which, PyObject *value, int *out) {
  const Words *words = &state->words[which];
  int64_t number = 0;
  int overflow = 0;
  if (value == words->interned[0]) { /* the default of most: "none" */
    *out = 0;
    return 1;
  }
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

static int is_word(PyObject *value, const char *word) {
  return PyUnicode_CheckExact(value) && PyUnicode_CompareWithASCIIString(value, word) == 0;
}

/* The name of a set of rules: 0 is the default of the kind of map, 1 the driver's. */
static int read_rules(const State *state, PyObject *value, PyObject *usual, int *out) {
  *out = TMA_DLPACK_RULES_DEFAULT;
  if (value == usual) return 1; /* as mostly: strings that stand in a program are one object */
  if (!PyUnicode_CheckExact(value)) return 0;
  if (PyUnicode_Compare(value, usual) == 0) return 1;
  *out = TMA_DLPACK_RULES_DRIVER;
  return PyUnicode_Compare(value, state->driver) == 0;
}

static int read_data_type(const State *state, PyObject *value, int *out) {
  *out = TMA_DLPACK_OWN_TYPE;
  return value == Py_None || read_member(state, DATA_TYPE, value, out);
}

/* Row-major element strides, or None. The innermost may be ignored, but must fit a byte to be kept. */
static int read_elem_strides(const State *state, PyObject *value, TmaDlpackOptions *o) {
  if (value == Py_None) return 1;
  if (!read_integers(state, value, TMA_DLPACK_MAX_RANK, o->elem_strides, &o->elem_stride_count))
    return 0;
  int64_t innermost = o->elem_strides[o->elem_stride_count - 1];
  return innermost >= 0 && innermost <= UINT8_MAX;
}

/* elem_strides, interleave_layout, swizzle, l2_fetch_size, oobfill: five arguments in a row. */
static int read_layout_options(const State *state, PyObject *const *args, TmaDlpackOptions *o) {
  return read_elem_strides(state, args[0], o) &&
         read_member(state, INTERLEAVE, args[1], &o->interleave) &&
         read_member(state, SWIZZLE, args[2], &o->swizzle) &&
         read_member(state, L2_PROMOTION, args[3], &o->l2_promotion) &&
         read_member(state, OOB_FILL, args[4], &o->oob_fill);
}

/* data_type, rules, target: the last three arguments. Only target=None is accepted here. */
static int read_manner(const State *state, PyObject *const *args, PyObject *usual_rules,
                       TmaDlpackOptions *o) {
  return args[2] == Py_None && read_data_type(state, args[0], &o->asked_type) &&
         read_rules(state, args[1], usual_rules, &o->rules);
}

/* box_sizes, the layout options, then data_type, rules and target: nine arguments. */
static int read_tiled_options(const State *state, PyObject *const *args, TmaDlpackOptions *o) {
  tma_dlpack_start_options(o, TMA_DLPACK_TILED);
  return read_integers(state, args[0], TMA_DLPACK_MAX_RANK, o->box_sizes, &o->box_count) &&
         read_layout_options(state, args + 1, o) && read_manner(state, args + 6, state->libcudacxx, o);
}

/* Corners, channels and pixels, the layout options, data_type, rules, target: twelve arguments. */
static int read_im2col_options(const State *state, PyObject *const *args, TmaDlpackOptions *o) {
  tma_dlpack_start_options(o, TMA_DLPACK_IM2COL);
  return read_integers(state, args[0], TMA_DLPACK_MAX_RANK - 2, o->lower, &o->lower_count) &&
         read_integers(state, args[1], TMA_DLPACK_MAX_RANK - 2, o->upper, &o->upper_count) &&
         read_integer(state, args[2], &o->channels) && read_integer(state, args[3], &o->pixels) &&
         read_layout_options(state, args + 4, o) && read_manner(state, args + 9, state->documented, o);
}

/* The same with one entry per corner, and `mode` before data_type: thirteen arguments. */
static int read_wide_options(const State *state, PyObject *const *args, TmaDlpackOptions *o) {
  tma_dlpack_start_options(o, TMA_DLPACK_IM2COL_WIDE);
  o->lower_count = o->upper_count = 1;
  return read_integer(state, args[0], &o->lower[0]) && read_integer(state, args[1], &o->upper[0]) &&
         read_integer(state, args[2], &o->channels) && read_integer(state, args[3], &o->pixels) &&
         read_layout_options(state, args + 4, o) && read_member(state, WIDE_MODE, args[9], &o->mode) &&
         read_manner(state, args + 10, state->documented, o);
}

#endif /* TMA_DLPACK_OPTIONS_H */
