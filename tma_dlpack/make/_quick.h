/* _quick.h: a Python function with a short cut before it.
 *
 * Calling a Python function of 14 parameters takes half as long as the whole short cut. So the public
 * verb is a built-in function that binds the arguments itself, takes the short cut, and calls the
 * Python function with the same arguments where the short cut is not sure, or the arguments are odd.
 */

#ifndef TMA_DLPACK_QUICK_H
#define TMA_DLPACK_QUICK_H

#include "_state.h"

enum { MAX_PARAMETERS = 24 };

typedef PyObject *(*Verb)(PyObject *module, PyObject *const *args, Py_ssize_t count);

typedef struct {
  PyObject_HEAD
  PyObject *module, *function, *name, *doc;
  PyObject *names[MAX_PARAMETERS];    /* of the function's parameters, interned, in order */
  PyObject *defaults[MAX_PARAMETERS]; /* NULL for those that must be given */
  Verb verb;
  int positional, count; /* parameters that may be given by position, and all */
  int accepted_count;
  int accepted[MAX_PARAMETERS]; /* which parameters the short cut takes, in its order */
  PyMethodDef definition;
} Quick;

/* Put a call's arguments in the order of the parameters. 0: odd, Python's own binding shall see it. */
static int bind_arguments(const Quick *quick, PyObject *const *args, Py_ssize_t given,
                          PyObject *keywords, PyObject **values) {
  if (given > quick->positional) return 0;
  for (int i = 0; i < quick->count; ++i) values[i] = i < given ? args[i] : quick->defaults[i];
  Py_ssize_t count = keywords == NULL ? 0 : PyTuple_Size(keywords);
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject *keyword = PyTuple_GetItem(keywords, k);
    int i = (int)given;
    while (i < quick->count && quick->names[i] != keyword) ++i;
    if (i == quick->count) return 0;
    values[i] = args[given + k];
  }
  return 1;
}

/* Choose what the short cut takes; the other parameters must have their defaults. */
static int choose_accepted(const Quick *quick, PyObject *const *values, PyObject **accepted) {
  int next = 0;
  for (int i = 0; i < quick->count; ++i) {
    if (values[i] == NULL) return 0;
    if (next < quick->accepted_count && quick->accepted[next] == i) accepted[next++] = values[i];
    else if (values[i] != quick->defaults[i]) return 0;
  }
  return 1;
}

static PyObject *call_function(const Quick *quick, PyObject *const *args, Py_ssize_t given,
                               PyObject *keywords) {
  PyObject *positional = PyTuple_New(given), *named = PyDict_New(), *result = NULL;
  Py_ssize_t count = keywords == NULL ? 0 : PyTuple_Size(keywords);
  int built = positional != NULL && named != NULL;
  for (Py_ssize_t i = 0; built && i < given; ++i) {
    Py_INCREF(args[i]);
    built = PyTuple_SetItem(positional, i, args[i]) == 0;
  }
  for (Py_ssize_t k = 0; built && k < count; ++k)
    built = PyDict_SetItem(named, PyTuple_GetItem(keywords, k), args[given + k]) == 0;
  if (built) result = PyObject_Call(quick->function, positional, named);
  Py_XDECREF(positional);
  Py_XDECREF(named);
  return result;
}

static PyObject *quick_call(PyObject *self, PyObject *const *args, Py_ssize_t given,
                            PyObject *keywords) {
  const Quick *quick = (const Quick *)self;
  PyObject *values[MAX_PARAMETERS], *accepted[MAX_PARAMETERS];
  if (bind_arguments(quick, args, given, keywords, values) &&
      choose_accepted(quick, values, accepted)) {
    PyObject *map = quick->verb(quick->module, accepted, quick->accepted_count);
    if (map != Py_None) return map;
    Py_DECREF(map);
  }
  return call_function(quick, args, given, keywords);
}

/* ---- making one ---------------------------------------------------------------------------------- */

/* Give the function that a decorator wraps (functools.wraps), or the function itself. A new reference. */
static PyObject *unwrapped(PyObject *function) {
  PyObject *wrapped = PyObject_GetAttrString(function, "__wrapped__");
  if (wrapped != NULL) return wrapped;
  PyErr_Clear();
  Py_INCREF(function);
  return function;
}

/* Read the parameters of a Python function: names, kinds and defaults. */
static int read_parameters(Quick *quick) {
  PyObject *function = unwrapped(quick->function);
  PyObject *code = PyObject_GetAttrString(function, "__code__");
  PyObject *names = code ? PyObject_GetAttrString(code, "co_varnames") : NULL;
  PyObject *positional = code ? PyObject_GetAttrString(code, "co_argcount") : NULL;
  PyObject *named = code ? PyObject_GetAttrString(code, "co_kwonlyargcount") : NULL;
  PyObject *defaults = PyObject_GetAttrString(function, "__defaults__");
  PyObject *named_defaults = PyObject_GetAttrString(function, "__kwdefaults__");
  int read = names && positional && named && defaults && named_defaults;
  if (read) {
    quick->positional = (int)PyLong_AsLong(positional);
    quick->count = quick->positional + (int)PyLong_AsLong(named);
    read = quick->count <= MAX_PARAMETERS;
  }
  Py_ssize_t with_default = read && PyTuple_Check(defaults) ? PyTuple_Size(defaults) : 0;
  for (int i = 0; read && i < quick->count; ++i) {
    quick->names[i] = PyTuple_GetItem(names, i);
    Py_INCREF(quick->names[i]);
    Py_ssize_t nth = i - (quick->positional - with_default);
    if (i >= quick->positional && PyDict_Check(named_defaults))
      quick->defaults[i] = PyDict_GetItemWithError(named_defaults, quick->names[i]);
    else if (i < quick->positional && nth >= 0)
      quick->defaults[i] = PyTuple_GetItem(defaults, nth);
    Py_XINCREF(quick->defaults[i]);
  }
  Py_DECREF(function);
  Py_XDECREF(code);
  Py_XDECREF(names);
  Py_XDECREF(positional);
  Py_XDECREF(named);
  Py_XDECREF(defaults);
  Py_XDECREF(named_defaults);
  return read;
}

/* Find the short cut's parameters among the function's, in the same order. */
static int match_parameters(Quick *quick, PyObject *accepted) {
  quick->accepted_count = (int)PyTuple_Size(accepted);
  int i = 0;
  for (int k = 0; k < quick->accepted_count; ++k, ++i) {
    PyObject *name = PyTuple_GetItem(accepted, k);
    while (i < quick->count && PyUnicode_Compare(quick->names[i], name) != 0) ++i;
    if (i >= quick->count) {
      PyErr_Format(PyExc_TypeError, "the function has no parameter %R in this place", name);
      return 0;
    }
    quick->accepted[k] = i;
  }
  return 1;
}

static int quick_traverse(PyObject *self, visitproc visit, void *arg) {
  Quick *quick = (Quick *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(quick->module);
  Py_VISIT(quick->function);
  for (int i = 0; i < quick->count; ++i) Py_VISIT(quick->defaults[i]);
  return 0;
}

static int quick_clear(PyObject *self) {
  Quick *quick = (Quick *)self;
  Py_CLEAR(quick->module);
  Py_CLEAR(quick->function);
  Py_CLEAR(quick->name);
  Py_CLEAR(quick->doc);
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

static PyType_Slot quick_slots[] = {
    {Py_tp_doc, (void *)"A Python function and the short cut before it."},
    {Py_tp_traverse, (void *)quick_traverse},
    {Py_tp_clear, (void *)quick_clear},
    {Py_tp_dealloc, (void *)quick_dealloc},
    {0, NULL},
};

static PyType_Spec quick_spec = {
    .name = "tma_dlpack.make._accept.Quick",
    .basicsize = sizeof(Quick),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = quick_slots,
};

/* Make the built-in function. `doc` starts with the signature, as CPython reads it from there. */
static PyObject *new_quick(PyObject *module, PyTypeObject *type, Verb verb, PyObject *function,
                           PyObject *accepted, PyObject *doc) {
  Quick *quick = (Quick *)PyType_GenericAlloc(type, 0);
  if (quick == NULL) return NULL;
  Py_INCREF(module);
  Py_INCREF(function);
  Py_INCREF(doc);
  quick->module = module;
  quick->function = function;
  quick->doc = doc;
  quick->verb = verb;
  quick->name = PyObject_GetAttrString(function, "__name__");
  PyObject *home = PyObject_GetAttrString(function, "__module__"), *made = NULL;
  if (quick->name != NULL && home != NULL && read_parameters(quick) &&
      match_parameters(quick, accepted)) {
    quick->definition.ml_name = PyUnicode_AsUTF8AndSize(quick->name, NULL);
    quick->definition.ml_doc = PyUnicode_AsUTF8AndSize(quick->doc, NULL);
    quick->definition.ml_meth = (PyCFunction)(void (*)(void))quick_call;
    quick->definition.ml_flags = METH_FASTCALL | METH_KEYWORDS;
    if (quick->definition.ml_name != NULL && quick->definition.ml_doc != NULL)
      made = PyCFunction_NewEx(&quick->definition, (PyObject *)quick, home);
  }
  Py_XDECREF(home);
  Py_DECREF(quick); /* the built-in function holds it */
  return made;
}

#endif /* TMA_DLPACK_QUICK_H */
