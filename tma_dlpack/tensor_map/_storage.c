/* tma_dlpack.tensor_map._storage: the base class of TensorMap.
 *
 * It holds the tensor, the 128 bytes (aligned to 128, inside the object, so that `ptr` costs nothing)
 * and the numbers asked for. Everything else about a map is worked out in Python when somebody asks.
 * storage.py holds the same class in Python, for where this one was not compiled.
 */

#include "_storage.h"

#include <structmember.h>

/* ---- the numbers, as one flat tuple (tensor_map/facts.py names them) ----------------------------- */

static PyObject *tuple_of_u64(const uint64_t *values, int count) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; ++i) {
    PyObject *number = PyLong_FromUnsignedLongLong(values[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *box_of(const MapNumbers *n) {
  uint64_t box[TMA_DLPACK_MAX_RANK];
  for (int i = 0; i < TMA_DLPACK_MAX_RANK; ++i) box[i] = n->box[i];
  return tuple_of_u64(box, n->kind == TMA_DLPACK_TILED ? n->rank : 0);
}

static PyObject *elem_strides_of(const MapNumbers *n) {
  uint64_t strides[TMA_DLPACK_MAX_RANK];
  for (int i = 0; i < TMA_DLPACK_MAX_RANK; ++i) strides[i] = n->elem_strides[i];
  return tuple_of_u64(strides, n->rank);
}

static PyObject *corner_of(const MapNumbers *n, const int16_t *corner) {
  int count = n->kind == TMA_DLPACK_TILED ? 0 : n->kind == TMA_DLPACK_IM2COL ? n->rank - 2 : 1;
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; ++i) {
    PyObject *number = PyLong_FromLong(corner[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

PyDoc_STRVAR(numbers_doc,
             "_numbers($self, /)\n--\n\n"
             "Give the numbers of a map that the short cut made, in the order of `facts.Asked`;\n"
             "None for a map that has its facts.");

static PyObject *storage_numbers(PyObject *self, PyObject *unused) {
  (void)unused;
  const MapStorage *map = (const MapStorage *)self;
  const MapNumbers *n = &map->asked;
  if (map->source != MAP_NUMBERS) Py_RETURN_NONE;
  /* "N" takes the reference, and NULL makes the whole NULL */
  return Py_BuildValue(
      "(iKiiiiiOiiNNNNiiiiNNiiiiii)", n->kind, (unsigned long long)n->address,
      (int)n->device.device_type, (int)n->device.device_id, n->dtype.code, n->dtype.bits,
      n->dtype.lanes, n->read_only ? Py_True : Py_False, n->data_type, n->rank,
      tuple_of_u64(n->dims, n->rank), tuple_of_u64(n->strides_bytes, n->rank - 1), box_of(n),
      elem_strides_of(n), n->interleave, n->swizzle, n->l2_promotion, n->oob_fill,
      corner_of(n, n->lower), corner_of(n, n->upper), n->channels, n->pixels, n->mode, n->rules,
      n->asked_type, n->encoder);
}

/* ---- bytes and ptr ------------------------------------------------------------------------------- */

/* Raise the exception that a function of tensor_map/interop.py makes of this map. */
static PyObject *refuse(PyObject *self, const char *function) {
  PyObject *module = PyImport_ImportModule("tma_dlpack.tensor_map.interop");
  if (module == NULL) return NULL;
  PyObject *error = PyObject_CallMethod(module, function, "O", self);
  Py_DECREF(module);
  if (error != NULL) {
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
  }
  return NULL;
}

static PyObject *storage_bytes(PyObject *self, PyObject *unused) {
  (void)unused;
  MapStorage *map = (MapStorage *)self;
  if (!map->has_bytes) return refuse(self, "no_bytes");
  return PyBytes_FromStringAndSize((const char *)map_bytes(map), TMA_DLPACK_MAP_BYTES);
}

/* Whether a kernel may be given the map: 1, 0, or -1 with an exception. */
static int is_launchable(MapStorage *map) {
  if (map->source == MAP_NUMBERS)
    return map->asked.device.device_type == TMA_DLPACK_CUDA || map->asked.device.device_type == 0;
  if (map->facts == NULL) return 0;
  PyObject *launchable = PyObject_GetAttrString(map->facts, "launchable");
  if (launchable == NULL) return -1;
  int answer = PyObject_IsTrue(launchable);
  Py_DECREF(launchable);
  return answer;
}

static PyObject *storage_ptr(PyObject *self, void *unused) {
  (void)unused;
  MapStorage *map = (MapStorage *)self;
  int launchable = is_launchable(map);
  if (launchable < 0) return NULL;
  if (!launchable) return refuse(self, "not_launchable");
  if (!map->has_bytes) return refuse(self, "no_bytes");
  return PyLong_FromVoidPtr(map_bytes(map));
}

static PyObject *storage_launchable(PyObject *self, void *unused) {
  (void)unused;
  int launchable = is_launchable((MapStorage *)self);
  return launchable < 0 ? NULL : PyBool_FromLong(launchable);
}

static PyObject *storage_address(PyObject *self, void *unused) {
  (void)unused;
  MapStorage *map = (MapStorage *)self;
  return map->has_bytes ? PyLong_FromVoidPtr(map_bytes(map)) : refuse(self, "no_bytes");
}

/* ---- making and unmaking ------------------------------------------------------------------------- */

static PyObject *held(PyObject *object) {
  return object == Py_None ? NULL : (Py_INCREF(object), object);
}

PyDoc_STRVAR(make_doc,
             "_make($type, tensor, capsule, data, facts, /)\n--\n\n"
             "Make the map of the long road: 128 bytes or None, and its facts.");

/* A class method, so that `type` is MapStorage or a class made from it. */
static PyObject *storage_make(PyObject *type, PyObject *arguments) {
  PyObject *tensor, *capsule, *data, *facts;
  if (!PyArg_ParseTuple(arguments, "OOOO:_make", &tensor, &capsule, &data, &facts)) return NULL;
  if (data != Py_None && (!PyBytes_Check(data) || PyBytes_Size(data) != TMA_DLPACK_MAP_BYTES)) {
    PyErr_SetString(PyExc_ValueError, "a map is 128 bytes, or None");
    return NULL;
  }
  PyObject *self = PyType_GenericAlloc((PyTypeObject *)type, 0);
  if (self == NULL) return NULL;
  MapStorage *map = (MapStorage *)self;
  map->source = MAP_FACTS;
  map->tensor = held(tensor);
  map->capsule = held(capsule);
  map->facts = held(facts);
  if (data != Py_None) {
    memcpy(map_bytes(map), PyBytes_AsString(data), TMA_DLPACK_MAP_BYTES);
    map->has_bytes = 1;
  }
  return self;
}

static int storage_traverse(PyObject *self, visitproc visit, void *arg) {
  MapStorage *map = (MapStorage *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(map->tensor);
  Py_VISIT(map->capsule);
  Py_VISIT(map->facts);
  return 0;
}

static int storage_clear(PyObject *self) {
  MapStorage *map = (MapStorage *)self;
  Py_CLEAR(map->tensor);
  Py_CLEAR(map->capsule);
  Py_CLEAR(map->facts);
  return 0;
}

static void storage_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (((MapStorage *)self)->weak_references != NULL) PyObject_ClearWeakRefs(self);
  storage_clear(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

/* ---- the class and the module -------------------------------------------------------------------- */

static PyMethodDef storage_methods[] = {
    {"_numbers", storage_numbers, METH_NOARGS, numbers_doc},
    {"_make", storage_make, METH_VARARGS | METH_CLASS, make_doc},
    {"__bytes__", storage_bytes, METH_NOARGS, "Give the 128 bytes of the map."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef storage_members[] = {
    {"_tensor", T_OBJECT, offsetof(MapStorage, tensor), READONLY, "The tensor, kept alive."},
    {"_capsule", T_OBJECT, offsetof(MapStorage, capsule), READONLY, "Its capsule, where kept."},
    {"_facts", T_OBJECT, offsetof(MapStorage, facts), 0, "The whole description, once known."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(MapStorage, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef storage_getters[] = {
    {"ptr", storage_ptr, NULL,
     "Address of the map's own 128 bytes: 128-byte aligned, valid as long as the map lives.\n\n"
     "Raises `TmaUnsupportedError` for the map of a host tensor and for one without bytes.",
     NULL},
    {"launchable", storage_launchable, NULL, "Whether a kernel may be given the map.", NULL},
    {"_address_of_bytes", storage_address, NULL, "As `ptr`, also of a map of host memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot storage_slots[] = {
    {Py_tp_doc, (void *)"The tensor, the 128 bytes and the numbers of a TensorMap."},
    {Py_tp_methods, storage_methods},
    {Py_tp_members, storage_members},
    {Py_tp_getset, storage_getters},
    {Py_tp_traverse, (void *)storage_traverse},
    {Py_tp_clear, (void *)storage_clear},
    {Py_tp_dealloc, (void *)storage_dealloc},
    {0, NULL},
};

static PyType_Spec storage_spec = {
    .name = "tma_dlpack.tensor_map._storage.MapStorage",
    .basicsize = sizeof(MapStorage),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = storage_slots,
};

static int module_exec(PyObject *module) {
  PyObject *type = PyType_FromModuleAndSpec(module, &storage_spec, NULL);
  if (type == NULL) return -1;
  int result = PyModule_AddObjectRef(module, "MapStorage", type);
  Py_DECREF(type);
  return result;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_storage",
    .m_doc = "The memory of a TensorMap, compiled.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__storage(void) { return PyModuleDef_Init(&module_definition); }
