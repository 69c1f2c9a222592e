/* quick.h: the callable object that tries a verb in C before it calls the Python function.
 *
 * To call a Python function with 16 parameters takes longer than to make a map in C. So each public
 * function is a callable object that binds the arguments in C. If C does not support the call, or
 * if the arguments do not bind, the object calls the Python function with these arguments.
 *
 * The object uses the vectorcall protocol. CPython has this protocol for such types since 3.9,
 * although the limited API declares it only since 3.12. The base class is written in Python
 * (extension.py), because torch.compile traces the `__call__` of this class instead of calling the
 * object. The object is no built-in function, because torch.compile warns about built-in functions.
 */

#ifndef TMA_DLPACK_QUICK_H
#define TMA_DLPACK_QUICK_H

#include "bare.h"
#include "judged.h"

#include <structmember.h>

enum { MAX_PARAMETERS = 24 };

/* HAVE_VECTORCALL has the value of Py_TPFLAGS_HAVE_VECTORCALL. COUNT_FLAG has the value of
 * PY_VECTORCALL_ARGUMENTS_OFFSET, a flag in the top bit of the argument count [CPython, PEP
 * 590]. */
#define HAVE_VECTORCALL (1UL << 11)
#define COUNT_FLAG ((size_t)1 << (8 * sizeof(size_t) - 1))

typedef PyObject *(*Vectorcall)(PyObject *self, PyObject *const *args, size_t count,
                                PyObject *keywords);

/* A verb is the C version of a public function. It makes the map of a tensor, or the map of a call
 * without a tensor (bare.h). If `is_check` is 1, it makes the Report on a call for a tensor. */
typedef struct {
  const char *name;
  int kind, is_check;
  int argument_count; /* number of arguments of a call without a tensor, else 0 */
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

/* A call is a *miss* if its arguments differ from the arguments in KeptCall. To keep arguments
 * takes a tenth of the time of a call. So keep the arguments only at every eighth miss. */
enum { CALLS_PER_KEPT = 8 };

/* The arguments of an earlier accepted call without the tensor, and the options that were read from
 * these arguments. The next call usually has the same objects as arguments. All kept objects are
 * immutable, so the options need not be read again. */
typedef struct {
  PyObject *keywords, *values[MAX_PARAMETERS]; /* `values` has the arguments after the tensor */
  Py_ssize_t given, count; /* number of positional and of all arguments; 0 if no call is kept */
  int in_use;              /* 1 while a call that uses `values` may run Python code */
  unsigned misses;
  Options options;
} KeptCall;

typedef struct {
  PyObject_HEAD
  Vectorcall vectorcall;
  PyObject *module, *function;
  State *state; /* the module's state; NULL after quick_clear */
  PyObject *names[MAX_PARAMETERS];    /* parameters, interned because CPython interns keywords */
  PyObject *defaults[MAX_PARAMETERS]; /* NULL for a required parameter */
  const Verb *verb;
  Options options; /* the options of a call without optional arguments */
  int required;    /* number of parameters up to and including the last required parameter */
  int positional, count; /* number of parameters that may be positional; number of all parameters */
  KeptCall kept;
  /* For each parameter, the function that reads its argument. The tensor, which is parameter 0, has
   * no such function, so read[0] is NULL. If the verb has no tensor, all entries are NULL. */
  ReadOption read[MAX_PARAMETERS];
} Quick;

/* Return the index of the parameter with the name `keyword`. Return -1 if there is no such
 * parameter, or if it is one of the first `given` parameters, because these parameters have
 * positional arguments. */
static inline int parameter_of(const Quick *quick, PyObject *keyword, Py_ssize_t given) {
  for (int i = (int)given; i < quick->count; ++i)
    if (quick->names[i] == keyword) return i;
  /* The keyword may be a string that is not interned, because it was made at run time. */
  for (int i = (int)given; i < quick->count; ++i)
    if (PyUnicode_Compare(quick->names[i], keyword) == 0) return i;
  return -1;
}

/* Return a borrowed reference to the Python function. If the collector has cleared this object as a
 * part of a cycle, return NULL with an exception. Another object of the cycle may still call this
 * object. */
static PyObject *function_of(const Quick *quick) {
  if (quick->function == NULL) PyErr_SetString(PyExc_ReferenceError, "this function is being freed");
  return quick->function;
}

static PyObject *function_attribute(PyObject *self, const char *name) {
  PyObject *function = function_of((Quick *)self);
  return function == NULL ? NULL : PyObject_GetAttrString(function, name);
}

/* read_call and bind_arguments return 0 if an argument is unknown, repeated or missing. The caller
 * then calls the Python function, which raises the TypeError. */

/* Read the arguments of a call for a tensor. `quick->options` has the options for omitted
 * arguments. */
static int read_call(const Quick *quick, PyObject *const *args, Py_ssize_t given,
                     PyObject *keywords, PyObject **tensor, Options *options) {
  const ReadOption *read = quick->read;
  Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords), required = given;
  if (given > quick->positional) return 0;
  /* Copy only the members of `o` before the arrays. The counts of the arrays are among these
   * members. Each count is 0 or "not given", so no entry of an array is read. */
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

/* Return whether the arguments of a call are the same objects as in the kept call. args[0] is the
 * tensor, because kept->given is at least 1. */
static int is_kept_call(const KeptCall *kept, PyObject *const *args, Py_ssize_t given,
                        PyObject *keywords) {
  if (kept->count == 0 || kept->in_use || given != kept->given || keywords != kept->keywords) return 0;
  for (Py_ssize_t i = 1; i < kept->count; ++i)
    if (args[i] != kept->values[i]) return 0;
  return 1;
}

/* Forget the kept call. Set `count` to 0 before objects are freed, because freeing an object may
 * run code that calls this function object again. */
static void forget_call(KeptCall *kept) {
  Py_ssize_t count = kept->count;
  kept->count = 0;
  for (Py_ssize_t i = 1; i < count; ++i) Py_CLEAR(kept->values[i]);
  Py_CLEAR(kept->keywords);
}

/* Return whether a value is immutable and runs no code when it is freed. */
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

/* Write the arguments of a call to `values` in the order of the parameters, with defaults for
 * omitted arguments. */
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

/* Return a copy of a list or set, because the caller may change the list or set later. Return any
 * other value unchanged. */
static PyObject *unchanging(PyObject *value) {
  if (PyList_CheckExact(value)) return PyList_GetSlice(value, 0, PyList_Size(value));
  if (Py_TYPE(value) == &PySet_Type) return PySet_New(value);
  Py_INCREF(value);
  return value;
}

/* Return a dict {parameter: argument} without the tensor. Return NULL if the arguments do not bind,
 * or if an exception is set. */
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

/* Return a borrowed reference to a function of checks/report.py, or NULL if the function cannot be
 * imported. After NULL, the caller falls back to Python. */
static PyObject *function_of_report(PyObject **slot, const char *name) {
  if (*slot == NULL) *slot = attribute_of_own_module("tma_dlpack.checks.report", name);
  return *slot;
}

/* Return the Report on an accepted call. */
static PyObject *report_on(const Quick *quick, PyObject *named, PyObject *call) {
  PyObject *make = function_of_report(&quick->state->accepted, "accepted");
  return make == NULL ? NULL : PyObject_CallFunctionObjArgs(make, named, call, NULL);
}

/* Return the Report on a refused call. If `named` is None, return an exception for the caller to
 * raise. */
static PyObject *refusal_of(const Quick *quick, PyObject *tensor, PyObject *named, const Judged *call,
                            const Options *options) {
  PyObject *make = function_of_report(&quick->state->refused, "refused");
  PyObject *judged = make == NULL ? NULL : new_judged(quick->module, options, &call->view);
  if (judged == NULL) return NULL;
  PyObject *result = PyObject_CallFunctionObjArgs(make, tensor, judged, named, NULL);
  Py_DECREF(judged);
  return result;
}

/* Return the map or the Report that the verb makes. If rules refuse the call of a verb that makes a
 * map, set `is_refused`, and return NULL with the exception for the user. Otherwise NULL means that
 * the call falls back to Python. If an exception is set then, the caller clears this exception. */
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
  /* call.failed is 0 unless rules refuse the call. */
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

/* Return an attribute of the object. If the object lacks the attribute, return the attribute of the
 * Python function. `__call__` is the object itself, because IPython shows the signature of
 * `__call__` if this signature differs from the object's signature. */
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

/* Return the name of the function, because the object is pickled by name, as functions are. */
static PyObject *quick_reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  return function_attribute(self, "__qualname__");
}

/* If the object is read as an attribute of a class, return the object itself, so that it does not
 * become a method. help() and doctest treat the object as a routine, because its type has this
 * descriptor function. */
static PyObject *quick_get(PyObject *self, PyObject *object, PyObject *type) {
  (void)object;
  (void)type;
  Py_INCREF(self);
  return self;
}

/* ---- making a callable --------------------------------------------------------------------------- */

/* Store the parameters, a dict {name: default}. The object `required` marks a parameter without a
 * default. The first `positional` parameters may have positional arguments. */
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
    {"__reduce__", quick_reduce, METH_NOARGS, "Return the name by which the object is pickled."},
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

/* The name of the type is "function", because help() and IPython show this name. */
static PyType_Spec quick_spec = {
    .name = "tma_dlpack.native._core.function",
    .basicsize = sizeof(Quick),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             HAVE_VECTORCALL,
    .slots = quick_slots,
};

/* Find the function that reads each parameter after the tensor, and read the defaults. Return 0
 * with an exception if a parameter cannot be read. */
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

/* Return 1 if the parameters match the parameters of the verb, else 0 with an exception. */
static int fits_verb(Quick *quick) {
  int count = quick->verb->argument_count;
  if (count == 0) return keep_options_of_defaults(quick);
  if (quick->count != count) PyErr_SetString(PyExc_ValueError, "these are not the parameters of the verb");
  return quick->count == count;
}

/* Make the callable object that tries the verb before it calls the Python function `function`. */
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
