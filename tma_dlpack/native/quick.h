/* quick.h: the callable object that tries a verb in C before it calls the Python function.
 *
 * A call of a Python function with 16 parameters alone takes longer than making a map in C. So the public
 * function is a callable object that binds the arguments itself. If C falls back to Python, or the arguments do
 * not bind, it calls the Python function with the same arguments.
 *
 * It uses the vectorcall protocol, which CPython has for such types since 3.9, although the limited API
 * names it only since 3.12; CPython makes every call through it. The base class is written in Python
 * (extension.py): torch.compile, which does not call but trace, finds its `__call__`. It is not a built-in
 * function, because torch.compile warns about those.
 */

#ifndef TMA_DLPACK_QUICK_H
#define TMA_DLPACK_QUICK_H

#include "bare.h"
#include "judged.h"

#include <structmember.h>

enum { MAX_PARAMETERS = 24 };

/* Py_TPFLAGS_HAVE_VECTORCALL, and PY_VECTORCALL_ARGUMENTS_OFFSET, the flag in the top bit of the count of
 * arguments [CPython, PEP 590]. */
#define HAVE_VECTORCALL (1UL << 11)
#define COUNT_FLAG ((size_t)1 << (8 * sizeof(size_t) - 1))

typedef PyObject *(*Vectorcall)(PyObject *self, PyObject *const *args, size_t count,
                                PyObject *keywords);

/* The result of a call: the map of a tensor, the map of bare arguments, or the report on a tensor. */
typedef struct {
  const char *name;
  int kind, is_check;
  int argument_count; /* number of bare arguments; 0 for a tensor and options */
} Verb;

static const Verb verbs[] = {
    {"tiled", TMA_DLPACK_TILED, 0, 0},
    {"im2col", TMA_DLPACK_IM2COL, 0, 0},
    {"im2col_wide", TMA_DLPACK_IM2COL_WIDE, 0, 0},
    {"check_tiled", TMA_DLPACK_TILED, 1, 0},
    {"check_im2col", TMA_DLPACK_IM2COL, 1, 0},
    {"check_im2col_wide", TMA_DLPACK_IM2COL_WIDE, 1, 0},
    {"driver_tiled", TMA_DLPACK_TILED, 0, 13},
    {"driver_im2col", TMA_DLPACK_IM2COL, 0, 16},
    {"driver_im2col_wide", TMA_DLPACK_IM2COL_WIDE, 0, 17},
};

/* Of the calls whose arguments differ from the kept arguments, every eighth is kept, because keeping takes a
 * tenth of the time of a call. */
enum { CALLS_PER_KEPT = 8 };

/* The arguments of an earlier accepted call without the tensor, and the options read from them. The next call
 * usually has the same objects, of types that never change. */
typedef struct {
  PyObject *keywords, *values[MAX_PARAMETERS]; /* `values`: of the keywords, and of the positions after the tensor */
  Py_ssize_t given, count;                     /* `count` 0: no call is kept */
  int in_use;                                  /* by a call that may run other Python code */
  unsigned misses;
  Options options;
} KeptCall;

typedef struct {
  PyObject_HEAD
  Vectorcall vectorcall;
  PyObject *module, *function;
  State *state; /* of the module; NULL after quick_clear */
  PyObject *names[MAX_PARAMETERS];    /* parameters, interned because keywords are */
  PyObject *defaults[MAX_PARAMETERS]; /* NULL for a required parameter */
  const Verb *verb;
  Options options; /* of a call with required arguments only */
  int required;    /* parameters up to the last one that must be given */
  int positional, count; /* number of parameters that may be given by position, and of all */
  KeptCall kept;
  ReadOption read[MAX_PARAMETERS];    /* NULL for the tensor, and for bare arguments */
} Quick;

/* The index of the parameter that a keyword names; -1 if it is unknown, or one of the first `given`. */
static inline int parameter_of(const Quick *quick, PyObject *keyword, Py_ssize_t given) {
  for (int i = (int)given; i < quick->count; ++i)
    if (quick->names[i] == keyword) return i;
  /* A keyword that was made at run time is not interned. */
  for (int i = (int)given; i < quick->count; ++i)
    if (PyUnicode_Compare(quick->names[i], keyword) == 0) return i;
  return -1;
}

/* Return the Python function, borrowed. NULL with an exception if the collector has cleared this object (it is
 * part of a cycle) while other parts of the cycle still refer to it. */
static PyObject *function_of(const Quick *quick) {
  if (quick->function == NULL) PyErr_SetString(PyExc_ReferenceError, "this function is being freed");
  return quick->function;
}

static PyObject *function_attribute(PyObject *self, const char *name) {
  PyObject *function = function_of((Quick *)self);
  return function == NULL ? NULL : PyObject_GetAttrString(function, name);
}

/* read_call and bind_arguments return 0 for a call with an unknown, repeated or missing argument, so that the
 * Python function raises the TypeError. */

/* Read the arguments of a call for a tensor; `quick->options` has the defaults of missing arguments. */
static int read_call(const Quick *quick, PyObject *const *args, Py_ssize_t given,
                     PyObject *keywords, PyObject **tensor, Options *options) {
  const ReadOption *read = quick->read;
  Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords), required = given;
  if (given > quick->positional) return 0;
  /* Copy the members before the arrays, whose counts say how many entries are valid. */
  memcpy(options, &quick->options, offsetof(Options, o.box_sizes));
  options->target_object = NULL;
  if (given > 0) *tensor = args[0];
  for (Py_ssize_t i = 1; i < given; ++i)
    if (!read[i](quick->state, args[i], options)) return 0;
  for (Py_ssize_t k = 0; k < named; ++k) {
    int i = parameter_of(quick, PyTuple_GetItem(keywords, k), given);
    if (i < 0) return 0;
    if (i == 0) *tensor = args[given + k];
    else if (!read[i](quick->state, args[given + k], options)) return 0;
    required += i < quick->required;
  }
  return required >= quick->required;
}

/* Whether a call has the same objects as the kept call. args[0] is the tensor, because given > 0. */
static int is_kept_call(const KeptCall *kept, PyObject *const *args, Py_ssize_t given,
                        PyObject *keywords) {
  if (kept->count == 0 || kept->in_use || given != kept->given || keywords != kept->keywords) return 0;
  for (Py_ssize_t i = 1; i < kept->count; ++i)
    if (args[i] != kept->values[i]) return 0;
  return 1;
}

/* `count` is 0 before the objects are freed, so that no call finds half of the kept arguments. */
static void forget_call(KeptCall *kept) {
  Py_ssize_t count = kept->count;
  kept->count = 0;
  for (Py_ssize_t i = 1; i < count; ++i) Py_CLEAR(kept->values[i]);
  Py_CLEAR(kept->keywords);
}

/* Whether a value is immutable, and runs no code when it is freed. */
static int is_constant(PyObject *value) {
  if (!PyTuple_CheckExact(value))
    return PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value) ||
           value == Py_None;
  for (Py_ssize_t i = 0; i < PyTuple_Size(value); ++i) {
    PyObject *entry = PyTuple_GetItem(value, i);
    if (!PyLong_CheckExact(entry) && !PyUnicode_CheckExact(entry)) return 0;
  }
  return 1;
}

/* Keep the arguments of an accepted call if all of them are immutable. */
static void keep_call_arguments(KeptCall *kept, PyObject *const *args, Py_ssize_t given,
                                PyObject *keywords, const Options *options) {
  Py_ssize_t count = given + (keywords == NULL ? 0 : PyTuple_Size(keywords));
  if (kept->misses++ % CALLS_PER_KEPT != 0) return;
  if (given == 0 || kept->in_use || count > MAX_PARAMETERS) return;
  for (Py_ssize_t i = 1; i < count; ++i)
    if (!is_constant(args[i])) return;
  forget_call(kept);
  for (Py_ssize_t i = 1; i < count; ++i) {
    Py_INCREF(args[i]);
    kept->values[i] = args[i];
  }
  Py_XINCREF(keywords);
  kept->keywords = keywords;
  kept->given = given;
  kept->count = count;
  kept->options = *options;
}

/* Put the arguments of a call in the order of the parameters, with defaults for missing arguments. */
static int bind_arguments(const Quick *quick, PyObject *const *args, Py_ssize_t given,
                          PyObject *keywords, PyObject **values) {
  Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords);
  if (given > quick->positional) return 0;
  memcpy(values, quick->defaults, sizeof quick->defaults);
  for (int i = 0; i < given; ++i) values[i] = args[i];
  for (Py_ssize_t k = 0; k < named; ++k) {
    int i = parameter_of(quick, PyTuple_GetItem(keywords, k), given);
    if (i < 0) return 0;
    values[i] = args[given + k];
  }
  for (int i = (int)given; i < quick->required; ++i)
    if (values[i] == NULL) return 0;
  return 1;
}

/* Return a value that cannot change later: the value itself, or a copy of a list or set. */
static PyObject *unchanging(PyObject *value) {
  if (PyList_CheckExact(value)) return PyList_GetSlice(value, 0, PyList_Size(value));
  if (Py_TYPE(value) == &PySet_Type) return PySet_New(value);
  Py_INCREF(value);
  return value;
}

/* Return the arguments after the tensor, by name. NULL if they do not bind, or with an exception. */
static PyObject *arguments_by_name(const Quick *quick, PyObject *const *args, Py_ssize_t given,
                                   PyObject *keywords) {
  PyObject *values[MAX_PARAMETERS];
  PyObject *named = bind_arguments(quick, args, given, keywords, values) ? PyDict_New() : NULL;
  for (int i = 1; named != NULL && i < quick->count; ++i) {
    PyObject *value = unchanging(values[i]);
    if (value == NULL || PyDict_SetItem(named, quick->names[i], value) < 0) Py_CLEAR(named);
    Py_XDECREF(value);
  }
  return named;
}

/* Return a function of make/build.py, borrowed. NULL to fall back to Python, possibly with an exception. */
static PyObject *function_of_build(PyObject **slot, const char *name) {
  if (*slot == NULL) *slot = attribute_of_own_module("tma_dlpack.make.build", name);
  return *slot;
}

/* Return the report on an accepted call. */
static PyObject *report_on(const Quick *quick, PyObject *named, PyObject *call) {
  PyObject *make = function_of_build(&quick->state->accepted, "accepted");
  return make == NULL ? NULL : PyObject_CallFunctionObjArgs(make, named, call, NULL);
}

/* Return the report on a refused call, or the exception if `named` is None. */
static PyObject *refusal_of(const Quick *quick, PyObject *tensor, PyObject *named, const Judged *call,
                            const Options *options) {
  PyObject *make = function_of_build(&quick->state->refused, "refused");
  PyObject *judged = make == NULL ? NULL : new_judged(quick->module, options, &call->view);
  if (judged == NULL) return NULL;
  PyObject *result = PyObject_CallFunctionObjArgs(make, tensor, judged, named, NULL);
  Py_DECREF(judged);
  return result;
}

/* Return what the verb makes. NULL for "fall back to Python", or with an exception, which the caller raises if
 * `is_refused` is set. */
static PyObject *try_in_c(Quick *quick, PyObject *const *args, Py_ssize_t given, PyObject *keywords,
                          int *is_refused) {
  const Verb *verb = quick->verb;
  if (quick->state == NULL || !is_ready(quick->state)) return NULL;
  if (verb->argument_count > 0) {
    PyObject *values[MAX_PARAMETERS];
    return bind_arguments(quick, args, given, keywords, values)
               ? map_of_arguments(quick->state, values, verb->argument_count, verb->kind)
               : NULL;
  }
  Judged call;
  Options options;
  const Options *read = &options;
  PyObject *tensor = NULL, *made = NULL;
  if (is_kept_call(&quick->kept, args, given, keywords)) {
    tensor = args[0];
    read = &quick->kept.options;
    quick->kept.in_use = 1;
    made = (PyObject *)map_of_tensor(quick->state, tensor, read, &call);
    quick->kept.in_use = 0;
  } else if (!read_call(quick, args, given, keywords, &tensor, &options)) {
    return NULL;
  } else if (verb->is_check) {
    made = (PyObject *)checked_call(quick->state, tensor, &options, &call);
  } else {
    made = (PyObject *)map_of_tensor(quick->state, tensor, &options, &call);
    if (made != NULL) keep_call_arguments(&quick->kept, args, given, keywords, &options);
  }
  /* `failed` is not 0 if rules refuse the call. */
  if (made == NULL && (call.failed == 0 || PyErr_Occurred())) return NULL;
  if (made != NULL && !verb->is_check) return made;

  PyObject *named = verb->is_check ? arguments_by_name(quick, args, given, keywords) : none();
  PyObject *result = NULL;
  if (named != NULL)
    result = made != NULL ? report_on(quick, named, made)
                          : refusal_of(quick, tensor, named, &call, read);
  Py_XDECREF(named);
  Py_XDECREF(made);
  if (result == NULL || verb->is_check) return result;
  PyErr_SetObject((PyObject *)Py_TYPE(result), result);
  Py_DECREF(result);
  *is_refused = 1;
  return NULL;
}

static PyObject *call_function(const Quick *quick, PyObject *const *args, Py_ssize_t given,
                               PyObject *keywords) {
  PyObject *function = function_of(quick), *result = NULL;
  if (function == NULL) return NULL;
  PyObject *positional = PyTuple_New(given), *named = PyDict_New();
  Py_ssize_t count = keywords == NULL ? 0 : PyTuple_Size(keywords);
  int built = positional != NULL && named != NULL;
  for (Py_ssize_t i = 0; built && i < given; ++i) {
    Py_INCREF(args[i]);
    built = PyTuple_SetItem(positional, i, args[i]) == 0;
  }
  for (Py_ssize_t k = 0; built && k < count; ++k)
    built = PyDict_SetItem(named, PyTuple_GetItem(keywords, k), args[given + k]) == 0;
  if (built) result = PyObject_Call(function, positional, named);
  Py_XDECREF(positional);
  Py_XDECREF(named);
  return result;
}

static PyObject *quick_vectorcall(PyObject *self, PyObject *const *args, size_t count,
                                  PyObject *keywords) {
  Quick *quick = (Quick *)self;
  Py_ssize_t given = (Py_ssize_t)(count & ~COUNT_FLAG);
  int is_refused = 0;
  PyObject *made = try_in_c(quick, args, given, keywords, &is_refused);
  if (made != NULL || is_refused) return made;
  return swallowed() < 0 ? NULL : call_function(quick, args, given, keywords);
}

/* ---- attributes: those of the Python function ----------------------------- */

/* `__call__` is the Python function itself, because IPython shows both signatures if they differ. */
static PyObject *quick_attribute(PyObject *self, PyObject *name) {
  if (PyUnicode_CompareWithASCIIString(name, "__call__") == 0) return Py_INCREF(self), self;
  PyObject *own = PyObject_GenericGetAttr(self, name);
  if (own != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  PyObject *function = function_of((Quick *)self);
  return function == NULL ? NULL : PyObject_GetAttr(function, name);
}

static PyObject *quick_doc(PyObject *self, void *unused) {
  (void)unused;
  return function_attribute(self, "__doc__");
}

static PyObject *quick_home(PyObject *self, void *unused) {
  (void)unused;
  return function_attribute(self, "__module__");
}

static PyObject *quick_repr(PyObject *self) {
  PyObject *name = function_attribute(self, "__qualname__");
  PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<compiled function %U>", name);
  Py_XDECREF(name);
  return text;
}

/* The object is pickled by name, like a function. */
static PyObject *quick_reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  return function_attribute(self, "__qualname__");
}

/* In a class it does not become a method, like built-in functions; help() and doctest treat it as a routine. */
static PyObject *quick_get(PyObject *self, PyObject *object, PyObject *type) {
  (void)object;
  (void)type;
  Py_INCREF(self);
  return self;
}

/* ---- making a callable --------------------------------------------------------------------------- */

/* Keep the parameters: a dict {name: default}, in which `required` marks a parameter without a default.
 * `positional` of them may be given by position. */
static int keep_parameters(Quick *quick, PyObject *parameters, PyObject *required, int positional) {
  PyObject *name, *value;
  Py_ssize_t at = 0;
  quick->positional = positional;
  while (PyDict_Next(parameters, &at, &name, &value)) {
    if (quick->count == MAX_PARAMETERS) {
      PyErr_SetString(PyExc_ValueError, "too many parameters");
      return 0;
    }
    int index = quick->count++;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    quick->names[index] = name;
    if (value == required) {
      quick->required = index + 1;
      continue;
    }
    Py_INCREF(value);
    quick->defaults[index] = value;
  }
  return 1;
}

static int quick_traverse(PyObject *self, visitproc visit, void *arg) {
  Quick *quick = (Quick *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(quick->module);
  Py_VISIT(quick->function);
  for (int i = 0; i < quick->count; ++i) Py_VISIT(quick->defaults[i]);
  for (Py_ssize_t i = 1; i < quick->kept.count; ++i) Py_VISIT(quick->kept.values[i]);
  Py_VISIT(quick->kept.keywords);
  return 0;
}

static int quick_clear(PyObject *self) {
  Quick *quick = (Quick *)self;
  quick->state = NULL;
  Py_CLEAR(quick->module);
  Py_CLEAR(quick->function);
  forget_call(&quick->kept);
  for (int i = 0; i < MAX_PARAMETERS; ++i) {
    Py_CLEAR(quick->names[i]);
    Py_CLEAR(quick->defaults[i]);
  }
  return 0;
}

static void quick_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  quick_clear(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMethodDef quick_methods[] = {
    {"__reduce__", quick_reduce, METH_NOARGS, "Give the name to pickle."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef quick_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Quick, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Quick, function), READONLY, "The Python function."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef quick_getters[] = {
    {"__doc__", quick_doc, NULL, NULL, NULL},
    {"__module__", quick_home, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot quick_slots[] = {
    {Py_tp_getattro, (void *)quick_attribute},
    {Py_tp_repr, (void *)quick_repr},
    {Py_tp_descr_get, (void *)quick_get},
    {Py_tp_methods, quick_methods},
    {Py_tp_members, quick_members},
    {Py_tp_getset, quick_getters},
    {Py_tp_traverse, (void *)quick_traverse},
    {Py_tp_clear, (void *)quick_clear},
    {Py_tp_dealloc, (void *)quick_dealloc},
    {0, NULL},
};

/* The type's name is "function", because help() and IPython show it. */
static PyType_Spec quick_spec = {
    .name = "tma_dlpack.native._core.function",
    .basicsize = sizeof(Quick),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             HAVE_VECTORCALL,
    .slots = quick_slots,
};

/* Find the function that reads each parameter after the tensor, and read the defaults. 0 with an exception. */
static int keep_options_of_defaults(Quick *quick) {
  State *state = quick->state;
  PyObject *found = PyDict_New();
  start_options(&quick->options, quick->verb->kind);
  for (int i = 1; found != NULL && i < quick->count; ++i) {
    int reader = reader_of(quick->names[i]);
    PyObject *number = PyLong_FromLong(reader);
    if (reader >= 0) quick->read[i] = readers[reader].read;
    int is_read = reader >= 0 && (quick->defaults[i] == NULL ||
                                  quick->read[i](state, quick->defaults[i], &quick->options));
    if (!is_read) PyErr_Format(PyExc_ValueError, "the parameter %U is not read in C", quick->names[i]);
    if (!is_read || number == NULL || PyDict_SetItem(found, quick->names[i], number) < 0) Py_CLEAR(found);
    Py_XDECREF(number);
  }
  if (found == NULL) return 0;
  Py_XDECREF(state->readers[quick->verb->kind]);
  state->readers[quick->verb->kind] = found;
  return 1;
}

/* Return whether the parameters match the verb's parameters; 0 with an exception. */
static int fits_verb(Quick *quick) {
  int count = quick->verb->argument_count;
  if (count == 0) return keep_options_of_defaults(quick);
  if (quick->count != count) PyErr_SetString(PyExc_ValueError, "these are not the parameters of the verb");
  return quick->count == count;
}

/* Make the callable. */
static PyObject *new_quick(PyObject *module, const Verb *verb, PyObject *function,
                           PyObject *parameters, PyObject *required, int positional) {
  State *state = (State *)PyModule_GetState(module);
  if (state->quick_type == NULL) return PyErr_Format(PyExc_ValueError, "setup was not called");
  Quick *quick = (Quick *)PyType_GenericAlloc(state->quick_type, 0);
  if (quick == NULL) return NULL;
  Py_INCREF(module);
  Py_INCREF(function);
  quick->vectorcall = quick_vectorcall;
  quick->module = module;
  quick->state = state;
  quick->function = function;
  quick->verb = verb;
  if (!keep_parameters(quick, parameters, required, positional) || !fits_verb(quick)) {
    Py_DECREF(quick);
    return NULL;
  }
  return (PyObject *)quick;
}

#endif /* TMA_DLPACK_QUICK_H */
