/* _quick.h: a Python function with a short cut before it.
 *
 * Calling a Python function of 14 parameters takes half as long as the whole short cut. So the public
 * function is a built-in one that binds the arguments itself and takes the short cut. If the short cut
 * is not sure, or the arguments do not bind, it calls the Python function with the same arguments.
 */

#ifndef TMA_DLPACK_QUICK_H
#define TMA_DLPACK_QUICK_H

#include "_state.h"

enum { MAX_PARAMETERS = 24 };

typedef PyObject *(*Verb)(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* Of the function's parameters only those that the short cut takes stand here, in its order. */
typedef struct {
  PyObject_HEAD
  PyObject *module, *function, *name, *doc;
  PyObject *names[MAX_PARAMETERS];    /* interned, as keywords are */
  PyObject *defaults[MAX_PARAMETERS]; /* NULL for those that must be given */
  Verb verb;
  int positional, count; /* parameters that may be given by position, and all */
  PyMethodDef definition;
} Quick;

/* Put a call's arguments in the order of the parameters. 0: not an ordinary call (an unknown keyword, one
 * given twice, one that is missing), which the Python function shall see. */
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
  for (int i = (int)given; i < quick->count; ++i)
    if (values[i] == NULL) return 0;
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
  PyObject *values[MAX_PARAMETERS];
  if (bind_arguments(quick, args, given, keywords, values)) {
    PyObject *map = quick->verb(quick->module, values, quick->count);
    if (map != Py_None) return map;
    Py_DECREF(map);
  }
  return call_function(quick, args, given, keywords);
}

/* ---- making one ---------------------------------------------------------------------------------- */

/* Keep the parameters that the short cut takes: a dict {name: default}, where
 * `required` stands for none; `positional` of them may be given by position. */
static int keep_parameters(Quick *quick, PyObject *parameters, PyObject *required, int positional) {
  PyObject *name, *value;
  Py_ssize_t at = 0;
  quick->positional = positional;
  while (PyDict_Next(parameters, &at, &name, &value)) {
    if (quick->count == MAX_PARAMETERS) {
      PyErr_SetString(PyExc_ValueError, "too many parameters");
      return 0;
    }
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    quick->names[quick->count] = name;
    if (value != required) {
      Py_INCREF(value);
      quick->defaults[quick->count] = value;
    }
    ++quick->count;
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

/* Make the built-in function. `doc` starts with the signature, where CPython looks for it. */
static PyObject *new_quick(PyObject *module, PyTypeObject *type, Verb verb, PyObject *function,
                           PyObject *parameters, PyObject *required, int positional,
                           PyObject *doc) {
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
  if (quick->name != NULL && home != NULL &&
      keep_parameters(quick, parameters, required, positional)) {
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
