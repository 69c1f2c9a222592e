/* options.h: read the options of a call as numbers.
 *
 * The value of an option may be an integer, a tuple or list of integers, or an enum member, which
 * may also be passed by its name or its number. Each read function returns 1 if it read the value.
 * If it returns 0, the call falls back to Python. If an exception is set then, the caller clears
 * the exception with swallowed(), and checks/call.py reports the wrong value.
 */

#ifndef TMA_DLPACK_OPTIONS_H
#define TMA_DLPACK_OPTIONS_H

#include "state.h"

/* Clear the current exception, if there is any, and return 0. Do not clear MemoryError, or an
 * exception that is not derived from Exception, such as KeyboardInterrupt; return -1 instead. */
static int swallowed(void) {
  if (PyErr_Occurred() == NULL) return 0;
  if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception))
    return -1;
  PyErr_Clear();
  return 0;
}

/* Read an int or a NumPy integer, but neither a bool nor a member of an enum. */
static int read_integer(const State *state, PyObject *value, int64_t *out) {
  int overflow = 0;
  if (PyLong_CheckExact(value)) {
    *out = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
  }
  if (!PyType_IsSubtype(Py_TYPE(value), state->numpy_integer)) return 0;
  Py_INCREF(value); /* An __index__ in Python may remove the value from its list. */
  PyObject *number = PyNumber_Index(value);
  Py_DECREF(value);
  if (number == NULL) return 0;
  *out = PyLong_AsLongLongAndOverflow(number, &overflow);
  Py_DECREF(number);
  return !overflow;
}

/* Read a tuple or list of 1 to `most` integers. `count` receives the number of integers. */
static int read_integers(const State *state, PyObject *value, int most, int64_t *out, int *count) {
  int is_tuple = PyTuple_CheckExact(value) || Py_TYPE(value) == state->torch_size;
  if (!is_tuple && !PyList_CheckExact(value)) return 0;
  PyObject *(*entry_of)(PyObject *, Py_ssize_t) = is_tuple ? PyTuple_GetItem : PyList_GetItem;
  int size = (int)(is_tuple ? PyTuple_Size(value) : PyList_Size(value));
  if (size < 1 || size > most) return 0;
  *count = size;
  for (int i = 0; i < size; ++i) {
    PyObject *entry = entry_of(value, i);
    /* The entry is NULL if the __index__ of an earlier entry has shortened the list. */
    if (entry == NULL || !read_integer(state, entry, &out[i])) return 0;
  }
  return 1;
}

/* Read the value of the enum member that has the name `name`. */
static int read_name(const Words *words, PyObject *name, int64_t *out) {
  for (int i = 0; i < MAX_MEMBERS && words->interned[i] != NULL; ++i)
    if (words->interned[i] == name) { /* This is the usual case, because Python interns literals. */
      *out = i;
      return 1;
    }
  PyObject *member = PyDict_GetItemWithError(words->names, name); /* borrowed */
  int overflow = 0;
  if (member != NULL) *out = PyLong_AsLongLongAndOverflow(member, &overflow);
  return member != NULL && !overflow;
}

/* Read a member of an enum, the name of a member, or a value of 0 to 127. The rules refuse values
 * that the driver does not have. */
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
  *out = 0; /* The value is the name of member 0, such as "none", the most common default. */
  return 1;
}

static int is_word(PyObject *value, const char *word) {
  return PyUnicode_CheckExact(value) && PyUnicode_CompareWithASCIIString(value, word) == 0;
}

/* ---- one function per argument ------------------------------------------------------------------- */

/* Each function sets all members of `options` that belong to its argument, because `options` may
 * have the values of an earlier call (see JudgedCall.changed). The functions for common options are
 * written out here. Macros below define the functions for the options in TMA_DLPACK_RARE_OPTIONS, a
 * list that is generated from tables/arguments.py. */

/* The options of a call. */
typedef struct {
  TmaDlpackOptions o;
  PyObject *target_object; /* borrowed from the call; NULL stands for the tensor's own GPU */
  TmaDlpackTarget target;  /* the numbers of `target_object` */
} Options;

typedef int (*ReadOption)(State *, PyObject *, Options *);

static int read_box_sizes(State *state, PyObject *value, Options *options) {
  return read_integers(state, value, TMA_DLPACK_MAX_RANK, options->o.box_sizes, &options->o.box_count);
}

static int read_lower_corner(State *state, PyObject *value, Options *options) {
  return read_integers(state, value, TMA_DLPACK_MAX_RANK - 2, options->o.lower, &options->o.lower_count);
}

static int read_upper_corner(State *state, PyObject *value, Options *options) {
  return read_integers(state, value, TMA_DLPACK_MAX_RANK - 2, options->o.upper, &options->o.upper_count);
}

static int read_lower_width(State *state, PyObject *value, Options *options) {
  options->o.lower_count = 1;
  return read_integer(state, value, &options->o.lower[0]);
}

static int read_upper_width(State *state, PyObject *value, Options *options) {
  options->o.upper_count = 1;
  return read_integer(state, value, &options->o.upper[0]);
}

static int read_channels(State *state, PyObject *value, Options *options) {
  return read_integer(state, value, &options->o.channels);
}

static int read_pixels(State *state, PyObject *value, Options *options) {
  return read_integer(state, value, &options->o.pixels);
}

/* Read row-major element strides, or None. Record stores each element stride in a byte. The rules
 * limit every stride except the innermost stride, which the rules may ignore. So fall back to
 * Python if the innermost stride does not fit into a byte. */
static int read_elem_strides(State *state, PyObject *value, Options *options) {
  options->o.elem_stride_count = TMA_DLPACK_NOT_GIVEN;
  if (value == Py_None) return 1;
  if (!read_integers(state, value, TMA_DLPACK_MAX_RANK, options->o.elem_strides, &options->o.elem_stride_count))
    return 0;
  int64_t innermost = options->o.elem_strides[options->o.elem_stride_count - 1];
  return innermost >= 0 && innermost <= UINT8_MAX;
}

static int read_interleave(State *state, PyObject *value, Options *options) {
  return read_member(state, INTERLEAVE, value, &options->o.interleave);
}

/* Read the swizzle. The default, `no_swizzle`, is a special object, so that it differs from an
 * explicit "none". */
static int read_swizzle(State *state, PyObject *value, Options *options) {
  options->o.has_swizzle = value != state->no_swizzle;
  if (!options->o.has_swizzle) return options->o.swizzle = 0, 1;
  return read_member(state, SWIZZLE, value, &options->o.swizzle);
}

static int read_l2_promotion(State *state, PyObject *value, Options *options) {
  return read_member(state, L2_PROMOTION, value, &options->o.l2_promotion);
}

static int read_oob_fill(State *state, PyObject *value, Options *options) {
  return read_member(state, OOB_FILL, value, &options->o.oob_fill);
}

static int read_mode(State *state, PyObject *value, Options *options) {
  return read_member(state, WIDE_MODE, value, &options->o.mode);
}

static int read_data_type(State *state, PyObject *value, Options *options) {
  options->o.asked_type = TMA_DLPACK_OWN_TYPE;
  return value == Py_None || read_member(state, DATA_TYPE, value, &options->o.asked_type);
}

/* Read the name of a set of rules. The name is "driver", or the name of the default set for this
 * kind of map. The default set is "libcu++" for tiled maps, and "documented" for im2col maps. */
static int read_rules(State *state, PyObject *value, Options *options) {
  PyObject *usual = options->o.kind == TMA_DLPACK_TILED ? state->libcudacxx : state->documented;
  options->o.driver_rules = 0;
  if (value == usual) return 1; /* This is the usual case, because equal literals are one object. */
  if (!PyUnicode_CheckExact(value)) return 0;
  if (PyUnicode_Compare(value, usual) == 0) return 1;
  options->o.driver_rules = 1;
  return PyUnicode_Compare(value, state->driver) == 0;
}

/* Read ids of rules in a tuple, list, set or frozenset. */
static int read_allow(State *state, PyObject *value, Options *options) {
  options->o.allowed = 0;
  if (PyTuple_CheckExact(value) && PyTuple_Size(value) == 0) return 1;
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value) && !PyFrozenSet_CheckExact(value) &&
      Py_TYPE(value) != &PySet_Type)
    return 0;
  PyObject *entries = PyObject_GetIter(value), *entry;
  int known = entries != NULL;
  while (known && (entry = PyIter_Next(entries)) != NULL) {
    PyObject *row = PyUnicode_CheckExact(entry) ? PyDict_GetItemWithError(state->allowable, entry) : NULL;
    known = row != NULL;
    if (known) options->o.allowed |= UINT64_C(1) << PyLong_AsLong(row);
    Py_DECREF(entry);
  }
  Py_XDECREF(entries);
  return known && PyErr_Occurred() == NULL;
}

#define READ_FLAG(name)                                                          \
  static int read_##name(State *state, PyObject *value, Options *options) {      \
    (void)state;                                                                 \
    options->o.name = value == Py_True;                                          \
    return value == Py_True || value == Py_False;                                \
  }
#define READ_INTEGER(name)                                                       \
  static int read_##name(State *state, PyObject *value, Options *options) {      \
    return read_integer(state, value, &options->o.name);                         \
  }
#define READ_OPTIONAL_INTEGER(name)                                              \
  static int read_##name(State *state, PyObject *value, Options *options) {      \
    options->o.has_##name = value != Py_None;                                    \
    return value == Py_None || read_integer(state, value, &options->o.name);     \
  }
#define READ_INTEGERS(name, count)                                               \
  static int read_##name(State *state, PyObject *value, Options *options) {      \
    options->o.count = TMA_DLPACK_NOT_GIVEN;                                     \
    return value == Py_None || read_integers(state, value, TMA_DLPACK_MAX_RANK,  \
                                             options->o.name, &options->o.count); \
  }
TMA_DLPACK_RARE_OPTIONS(READ_FLAG, READ_INTEGER, READ_OPTIONAL_INTEGER, READ_INTEGERS)

/* Read a number from an attribute of a Target. If `entry` is not -1, the attribute is a tuple, and
 * the number is the entry with the index `entry`. */
static int target_number(PyObject *target, const char *attribute, Py_ssize_t entry, int64_t *out) {
  PyObject *number = PyObject_GetAttrString(target, attribute);
  if (number != NULL && entry >= 0) {
    PyObject *pair = number;
    number = PySequence_GetItem(pair, entry);
    Py_DECREF(pair);
  }
  if (number != NULL) *out = PyLong_AsLongLong(number);
  Py_XDECREF(number);
  return PyErr_Occurred() == NULL;
}

/* Read the numbers of a Target. Also store the Target and its numbers in the state, so that later
 * calls with this Target need not read the numbers again. */
static int learn_target(State *state, PyObject *object, TmaDlpackTarget *target) {
  int64_t major = 0, minor = 0;
  if (!target_number(object, "compute_capability", 0, &major) ||
      !target_number(object, "compute_capability", 1, &minor) ||
      !target_number(object, "max_smem_bytes", -1, &target->max_smem_bytes))
    return 0;
  KnownTarget *known = &state->targets[state->target_count++ % KNOWN_TARGETS];
  PyObject *before = known->object;
  target->major = (int)major; /* The class Target checks that the number is less than 100. */
  target->minor = (int)minor;
  Py_INCREF(object);
  known->object = object;
  known->target = *target;
  Py_XDECREF(before);
  return 1;
}

/* Read a Target or the name of a preset. None stands for the tensor's own GPU. */
static int read_target(State *state, PyObject *value, Options *options) {
  options->target_object = NULL;
  if (value == Py_None) return 1;
  if (PyUnicode_CheckExact(value)) value = PyDict_GetItemWithError(state->presets, value);
  if (value == NULL || Py_TYPE(value) != state->target_type) return 0;
  options->target_object = value;
  for (int i = 0; i < KNOWN_TARGETS; ++i)
    if (state->targets[i].object == value) {
      options->target = state->targets[i].target;
      return 1;
    }
  return learn_target(state, value, &options->target);
}

/* ---- the function for each argument -------------------------------------------------------------- */

typedef struct {
  const char *argument;
  ReadOption read;
} Reader;

#define READER(name) {#name, read_##name},
#define READER_OF_INTEGERS(name, count) READER(name)

static const Reader readers[] = {
    {"box_sizes", read_box_sizes},
    {"pixel_box_lower_corner", read_lower_corner},
    {"pixel_box_upper_corner", read_upper_corner},
    {"lower_corner_width", read_lower_width},
    {"upper_corner_width", read_upper_width},
    {"channels_per_pixel", read_channels},
    {"pixels_per_column", read_pixels},
    {"elem_strides", read_elem_strides},
    {"interleave_layout", read_interleave},
    {"swizzle", read_swizzle},
    {"l2_fetch_size", read_l2_promotion},
    {"oobfill", read_oob_fill},
    {"mode", read_mode},
    {"data_type", read_data_type},
    {"rules", read_rules},
    {"allow", read_allow},
    {"target", read_target},
    TMA_DLPACK_RARE_OPTIONS(READER, READER, READER, READER_OF_INTEGERS)
};

enum { READERS = sizeof readers / sizeof readers[0] };

/* Return the index in `readers` for an argument, or -1 for an unknown argument. */
static int reader_of(PyObject *argument) {
  for (int i = 0; i < READERS; ++i)
    if (is_word(argument, readers[i].argument)) return i;
  return -1;
}

/* Set memory to zero. `bytes` is volatile, because gcc zeros a known number of bytes with inline
 * "rep stos", which takes three times as long as memset. */
static inline void clear(void *memory, volatile size_t bytes) { memset(memory, 0, bytes); }

static void start_options(Options *options, int kind) {
  tma_dlpack_start_options(&options->o, kind);
  options->target_object = NULL;
}

/* Read a dict {argument: value} into `options`, whose member `o.kind` must be set. Options that are
 * not in the dict keep their values. If the result is 0, the call falls back to Python, and an
 * exception may be set. */
static int read_named(State *state, PyObject *arguments, Options *options) {
  PyObject *name, *value, *known = state->readers[options->o.kind];
  Py_ssize_t at = 0;
  while (known != NULL && PyDict_Next(arguments, &at, &name, &value)) {
    PyObject *reader = PyDict_GetItemWithError(known, name);
    if (reader == NULL || !readers[PyLong_AsLong(reader)].read(state, value, options)) return 0;
  }
  return known != NULL;
}

#endif /* TMA_DLPACK_OPTIONS_H */
