/* judged.h: JudgedCall, the object of a refused call.
 *
 * Python computes the messages from this object when a user reads them. The object has the tensor's
 * layout, the options, the described call (TmaDlpackDescribed), and the rules that fail. Its method
 * `changed` judges the call again with other arguments or for another tensor. The object does not
 * keep the tensor alive.
 */

#ifndef TMA_DLPACK_JUDGED_H
#define TMA_DLPACK_JUDGED_H

#include "calls.h"

#include <structmember.h>

/* A judged call. It is immutable after finish_judged. */
typedef struct {
  PyObject_HEAD
  PyObject *module;
  Options options; /* owns a reference to `target_object` */
  Judged call;
  char is_exact; /* whether all numbers of `call.described` are exact, see is_exact() */
  uint8_t entries[TMA_DLPACK_RULE_COUNT]; /* for each rule, mask of the array entries that fail */
} JudgedCall;

/* Make the object of a call that is not judged yet. Return NULL with an exception if out of
 * memory. */
static JudgedCall *start_judged(PyObject *module, const Options *options, const View *view) {
  State *state = (State *)PyModule_GetState(module);
  JudgedCall *judged = (JudgedCall *)PyType_GenericAlloc(state->judged_type, 0);
  if (judged == NULL) return NULL;
  Py_INCREF(module);
  Py_XINCREF(options->target_object);
  judged->module = module;
  judged->options = *options;
  judged->call.view = *view;
  /* The struct `view` was copied, so let the copy point to its own shape and strides. */
  judged->call.view.tensor.shape = judged->call.view.shape;
  if (view->tensor.strides != NULL) judged->call.view.tensor.strides = judged->call.view.strides;
  return judged;
}

/* Return whether all numbers of a described call are exact. A number is not exact if its absolute
 * value was limited to TMA_DLPACK_HUGE. All members of the struct are int64_t, so read the struct
 * as an array. */
static int is_exact(const TmaDlpackDescribed *described) {
  const int64_t *numbers = &described->kind;
  for (size_t i = 0; i < sizeof *described / sizeof *numbers; ++i)
    if (numbers[i] >= TMA_DLPACK_HUGE || numbers[i] <= -TMA_DLPACK_HUGE) return 0;
  return 1;
}

/* Judge the call. Return 0 if TmaDlpackDescribed cannot represent the call. */
static int finish_judged(JudgedCall *judged) {
  Judged *call = &judged->call;
  const TmaDlpackOptions *o = &judged->options.o;
  if (!find_target(&call->view.tensor, &judged->options, call) ||
      tma_dlpack_describe(&call->view.tensor, o, &call->target, &call->described) != NULL)
    return 0;
  call->failed = tma_dlpack_judge_entries(&call->described, tma_dlpack_asked(o, &call->target), judged->entries);
  judged->is_exact = (char)is_exact(&call->described);
  return 1;
}

/* Make the object of a call and judge the call. Return NULL with an exception if out of memory. */
static PyObject *new_judged(PyObject *module, const Options *options, const View *view) {
  JudgedCall *judged = start_judged(module, options, view);
  if (judged != NULL) finish_judged(judged);
  return (PyObject *)judged;
}

/* ---- the same call with some arguments changed ---------------------------------------------------- */

/* Read the fields of a checks.struct.OtherTensor, which describes another tensor on the same
 * device. */
static int read_view(const State *state, PyObject *fields, View *view) {
  unsigned long long address;
  int code, bits, lanes, rank = 0, strides = 0;
  PyObject *shape_given, *strides_given;
  if (!PyArg_ParseTuple(fields, "K(iii)OO", &address, &code, &bits, &lanes, &shape_given, &strides_given) ||
      !read_integers(state, shape_given, TMA_DLPACK_MAX_RANK, view->shape, &rank) ||
      !read_integers(state, strides_given, TMA_DLPACK_MAX_RANK, view->strides, &strides) || strides != rank)
    return 0;
  view->tensor.data = (void *)(uintptr_t)address;
  view->tensor.byte_offset = 0;
  view->tensor.dtype = (TmaDlpackDataType){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
  view->tensor.ndim = rank;
  view->tensor.strides = view->strides;
  return 1;
}

PyDoc_STRVAR(changed_doc, "changed(arguments, view, /)\n--\n\n"
                          "Judge the call with other arguments, and for another tensor unless `view` is None.\n"
                          "Return None to fall back to Python.");

static PyObject *judged_changed(PyObject *self, PyObject *args) {
  const JudgedCall *old = (JudgedCall *)self;
  State *state = (State *)PyModule_GetState(old->module);
  PyObject *change, *fields;
  View view = old->call.view;
  Options options = old->options;
  if (!PyArg_ParseTuple(args, "O!O:changed", &PyDict_Type, &change, &fields)) return NULL;
  JudgedCall *judged = NULL;
  if (is_ready(state) && read_named(state, change, &options) &&
      (fields == Py_None || read_view(state, fields, &view))) {
    judged = start_judged(old->module, &options, &view);
    if (judged == NULL || finish_judged(judged)) return (PyObject *)judged;
    Py_DECREF(judged);
  }
  return swallowed() < 0 ? NULL : none();
}

/* ---- attributes for Python ------------------------------------------------------------------------- */

/* Return (layout, address, target, options). If the call has no Target, the third entry is the
 * ordinal of the tensor's GPU, or ON_HOST. */
static PyObject *judged_parts(PyObject *self, void *unused) {
  (void)unused;
  const JudgedCall *judged = (JudgedCall *)self;
  const TmaDlpackTensor *tensor = &judged->call.view.tensor;
  PyObject *target = judged->options.target_object;
  if (target == NULL) target = PyLong_FromLong(judged->call.ordinal);
  else Py_INCREF(target);
  return Py_BuildValue("(NKNN)", layout_of(tensor, (int)judged->call.view.flags),
                       (unsigned long long)(uintptr_t)tensor->data + tensor->byte_offset, target,
                       options_tuple(&judged->options.o));
}

static int append_failed(PyObject *list, int row, int entry) {
  PyObject *pair = Py_BuildValue("(ii)", row, entry);
  int appended = pair == NULL ? -1 : PyList_Append(list, pair);
  Py_XDECREF(pair);
  return appended;
}

/* Return a list with (row, entry) for each failure of a rule, as checks.judge.judge does. `row` is
 * the index of the rule. `entry` is the index of the array entry that fails, or -1 if the rule has
 * no array. */
static PyObject *judged_failed(PyObject *self, void *unused) {
  (void)unused;
  const JudgedCall *judged = (JudgedCall *)self;
  PyObject *list = PyList_New(0);
  uint64_t failed = judged->call.failed;
  for (int row = 0; list != NULL && failed >> row != 0; ++row) {
    unsigned entries = judged->entries[row];
    if ((failed >> row & 1) && entries == 0 && append_failed(list, row, -1) < 0) Py_CLEAR(list);
    for (int entry = 0; list != NULL && (failed >> row & 1) && entries >> entry != 0; ++entry)
      if ((entries >> entry & 1) && append_failed(list, row, entry) < 0) Py_CLEAR(list);
  }
  return list;
}

static PyObject *judged_tx_bytes(PyObject *self, void *unused) {
  (void)unused;
  const JudgedCall *judged = (JudgedCall *)self;
  return judged->call.failed == 0 ? tx_bytes_of(&judged->call.described) : none();
}

/* The place of an array member in TmaDlpackDescribed. `offset` is in bytes, `count` in entries. */
typedef struct {
  size_t offset, count;
} ArrayField;

static PyObject *judged_array(PyObject *self, void *field) {
  const ArrayField *array = field;
  const char *described = (const char *)&((JudgedCall *)self)->call.described;
  return tuple_of((const int64_t *)(const void *)(described + array->offset), (int64_t)array->count, 1);
}

static void judged_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  Py_XDECREF(((JudgedCall *)self)->options.target_object);
  Py_XDECREF(((JudgedCall *)self)->module);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

#define FIELD_OF(name) offsetof(TmaDlpackDescribed, name)
#define NUMBER_MEMBER(name) \
  {#name, T_LONGLONG, offsetof(JudgedCall, call.described) + FIELD_OF(name), READONLY, NULL},
#define ARRAY_FIELD(name) \
  static const ArrayField array_##name = {FIELD_OF(name), sizeof ((TmaDlpackDescribed *)0)->name / sizeof(int64_t)};
#define ARRAY_GETTER(name) {#name, judged_array, NULL, NULL, (void *)&array_##name},

TMA_DLPACK_ARRAYS(ARRAY_FIELD)

static PyMemberDef judged_members[] = {
    TMA_DLPACK_NUMBERS(NUMBER_MEMBER)
    {"is_exact", T_BOOL, offsetof(JudgedCall, is_exact), READONLY, "Whether all numbers are exact."},
    {"mask", T_ULONGLONG, offsetof(JudgedCall, call.failed), READONLY, "Mask of the rows that fail."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef judged_getters[] = {
    TMA_DLPACK_ARRAYS(ARRAY_GETTER)
    {"failed", judged_failed, NULL, "(row, entry) of each predicate that fails.", NULL},
    {"tx_bytes", judged_tx_bytes, NULL, "Bytes that one load adds to its barrier, or None.", NULL},
    {"parts", judged_parts, NULL, "(layout, address, target, options).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef judged_methods[] = {
    {"changed", judged_changed, METH_VARARGS, changed_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot judged_slots[] = {
    {Py_tp_doc, (void *)"A judged call: its description and the rules that fail."},
    {Py_tp_members, judged_members},
    {Py_tp_getset, judged_getters},
    {Py_tp_methods, judged_methods},
    {Py_tp_dealloc, (void *)judged_dealloc},
    {0, NULL},
};

static PyType_Spec judged_spec = {
    .name = "tma_dlpack.native._core.JudgedCall",
    .basicsize = sizeof(JudgedCall),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = judged_slots,
};

#endif /* TMA_DLPACK_JUDGED_H */
