/* _quick.h: a Python function with a short cut before it.
 *
 * Calling a Python function of 14 parameters takes half as long as the whole short cut. So the public
 * verb is a callable object that binds the arguments itself, takes the short cut, and calls the
 * Python function with the same arguments where the short cut is not sure, or the arguments are odd.
 *
 * It is called by the vectorcall protocol, which CPython has for types like this one since 3.9, but the
 * limited API names only since 3.12. It is no built-in function, because torch.compile warns of these.
 */

#ifndef TMA_DLPACK_QUICK_H
#define TMA_DLPACK_QUICK_H

#include "_state.h"

#include <structmember.h>

enum { MAX_PARAMETERS = 24 };

/* Py_TPFLAGS_HAVE_VECTORCALL, and the flag in a count that is none of the count [CPython, PEP 590]. */
#define HAVE_VECTORCALL (1UL << 11)
#define COUNT_FLAG ((size_t)1 << (8 * sizeof(size_t) - 1))

typedef PyObject *(*Verb)(PyObject *module, PyObject *const *args, Py_ssize_t count);
typedef PyObject *(*Vectorcall)(PyObject *self, PyObject *const *args, size_t count,
                                PyObject *keywords);

typedef struct {
  PyObject_HEAD
  Vectorcall vectorcall;
  PyObject *module, *function;
  PyObject *names[MAX_PARAMETERS];    /* of the function's parameters, interned, in order */
  PyObject *defaults[MAX_PARAMETERS]; /* NULL for those that must be given */
  Verb verb;
  int positional, count; /* parameters that may be given by position, and all */
  int accepted_count;
  int accepted[MAX_PARAMETERS]; /* which parameters the short cut takes, in its order */
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

static PyObject *quick_vectorcall(PyObject *self, PyObject *const *args, size_t count,
                                  PyObject *keywords) {
  const Quick *quick = (const Quick *)self;
  Py_ssize_t given = (Py_ssize_t)(count & ~COUNT_FLAG);
  PyObject *values[MAX_PARAMETERS], *accepted[MAX_PARAMETERS];
  if (bind_arguments(quick, args, given, keywords, values) &&
      choose_accepted(quick, values, accepted)) {
    PyObject *map = quick->verb(quick->module, accepted, quick->accepted_count);
    if (map != Py_None) return map;
    Py_DECREF(map);
  }
  return call_function(quick, args, given, keywords);
}

/* The same for callers that have a tuple and a dict, such as f(*args, **keywords). */
static PyObject *quick_call(PyObject *self, PyObject *args, PyObject *keywords) {
  PyObject *values[2 * MAX_PARAMETERS], *names = NULL, *key, *value, *result = NULL;
  Py_ssize_t given = PyTuple_Size(args), named = keywords ? PyDict_Size(keywords) : 0, place = 0;
  if (given + named > 2 * MAX_PARAMETERS) /* far too many: Python's own binding says so */
    return PyObject_Call(((Quick *)self)->function, args, keywords);
  for (Py_ssize_t i = 0; i < given; ++i) values[i] = PyTuple_GetItem(args, i);
  if (named > 0) {
    names = PyTuple_New(named);
    if (names == NULL) return NULL;
    for (Py_ssize_t k = 0; PyDict_Next(keywords, &place, &key, &value); ++k) {
      Py_INCREF(key);
      PyTuple_SetItem(names, k, key);
      values[given + k] = value;
    }
  }
  result = quick_vectorcall(self, values, (size_t)given, names);
  Py_XDECREF(names);
  return result;
}

/* ---- what it looks like: the Python function, whose attributes it has ----------------------------- */

static PyObject *quick_attribute(PyObject *self, PyObject *name) {
  PyObject *own = PyObject_GenericGetAttr(self, name);
  if (own != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(((Quick *)self)->function, name);
}

static PyObject *quick_doc(PyObject *self, void *unused) {
  (void)unused;
  return PyObject_GetAttrString(((Quick *)self)->function, "__doc__");
}

static PyObject *quick_home(PyObject *self, void *unused) {
  (void)unused;
  return PyObject_GetAttrString(((Quick *)self)->function, "__module__");
}

static PyObject *quick_repr(PyObject *self) {
  PyObject *name = PyObject_GetAttrString(((Quick *)self)->function, "__qualname__");
  PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<compiled function %U>", name);
  Py_XDECREF(name);
  return text;
}

/* Pickled by name, as functions are. */
static PyObject *quick_reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  return PyObject_GetAttrString(((Quick *)self)->function, "__qualname__");
}

/* In a class it is what it is, as built-in functions are; help() and doctest take it for a routine. */
static PyObject *quick_get(PyObject *self, PyObject *object, PyObject *type) {
  (void)object;
  (void)type;
  Py_INCREF(self);
  return self;
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
    {Py_tp_call, (void *)quick_call},
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

static PyType_Spec quick_spec = {
    .name = "tma_dlpack.make._accept.Quick",
    .basicsize = sizeof(Quick),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL,
    .slots = quick_slots,
};

/* Make the callable. */
static PyObject *new_quick(PyObject *module, PyTypeObject *type, Verb verb, PyObject *function,
                           PyObject *accepted) {
  Quick *quick = (Quick *)PyType_GenericAlloc(type, 0);
  if (quick == NULL) return NULL;
  Py_INCREF(module);
  Py_INCREF(function);
  quick->vectorcall = quick_vectorcall;
  quick->module = module;
  quick->function = function;
  quick->verb = verb;
  if (!read_parameters(quick) || !match_parameters(quick, accepted)) {
    Py_DECREF(quick);
    return NULL;
  }
  return (PyObject *)quick;
}

#endif /* TMA_DLPACK_QUICK_H */
