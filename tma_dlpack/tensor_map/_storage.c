/* tma_dlpack.tensor_map._storage: the base class of TensorMap.
 *
 * It holds the tensor, the 128 bytes (aligned to 128, inside the object, so that `ptr` costs nothing)
 * and the call that the short cut accepted. Everything else about a map is worked out in Python when
 * an attribute is read. storage.py has the same class in Python, for builds without a C compiler.
 */

#include "_storage.h"

#include <structmember.h>

/* ---- the call, as tuples (storage.Asked names them) ---------------------------------------------- */

static PyObject *tuple_of(const int64_t *values, int count) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; ++i) {
    PyObject *number = PyLong_FromLongLong(values[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *none(void) {
  Py_INCREF(Py_None);
  return Py_None;
}

static PyObject *box_of(const AskedCall *asked) {
  int64_t box[TMA_DLPACK_MAX_RANK];
  for (int i = 0; i < TMA_DLPACK_MAX_RANK; ++i) box[i] = asked->box[i];
  return tuple_of(box, asked->rank);
}

static PyObject *elem_strides_of(const AskedCall *asked) {
  int64_t strides[TMA_DLPACK_MAX_RANK];
  for (int i = 0; i < TMA_DLPACK_MAX_RANK; ++i) strides[i] = asked->elem_strides[i];
  return asked->has_elem_strides ? tuple_of(strides, asked->rank) : none();
}

/* A corner: a tuple, or a single number for im2col-wide maps. */
static PyObject *corner_of(const AskedCall *asked, const int16_t *corner) {
  int64_t entries[3] = {corner[0], corner[1], corner[2]};
  if (asked->kind == TMA_DLPACK_IM2COL_WIDE) return PyLong_FromLong(corner[0]);
  return tuple_of(entries, asked->rank - 2);
}

static PyObject *data_type_of(const AskedCall *asked) {
  return asked->asked_type < 0 ? none() : PyLong_FromLong(asked->asked_type);
}

static const char *rules_of(const AskedCall *asked) {
  return asked->rules == TMA_DLPACK_RULES_DRIVER  ? "driver"
         : asked->kind == TMA_DLPACK_TILED ? "libcu++"
                                           : "documented";
}

/* In these formats "N" steals the reference, and NULL makes the result NULL; "z" of NULL is None. */
static PyObject *options_of(const AskedCall *n) {
  if (n->kind == TMA_DLPACK_TILED)
    return Py_BuildValue("(NNiiiiNsz)", box_of(n), elem_strides_of(n), n->interleave, n->swizzle,
                         n->l2_promotion, n->oob_fill, data_type_of(n), rules_of(n), NULL);
  if (n->kind == TMA_DLPACK_IM2COL)
    return Py_BuildValue("(NNiiNiiiiNsz)", corner_of(n, n->lower), corner_of(n, n->upper),
                         n->channels, n->pixels, elem_strides_of(n), n->interleave, n->swizzle,
                         n->l2_promotion, n->oob_fill, data_type_of(n), rules_of(n), NULL);
  return Py_BuildValue("(NNiiNiiiiiNsz)", corner_of(n, n->lower), corner_of(n, n->upper),
                       n->channels, n->pixels, elem_strides_of(n), n->interleave, n->swizzle,
                       n->l2_promotion, n->oob_fill, n->mode, data_type_of(n), rules_of(n), NULL);
}

/* The same for driver_encode_* calls, which have neither rules nor a target. */
static PyObject *bare_options_of(const AskedCall *n, uint64_t address) {
  unsigned long long at = address;
  PyObject *dims = tuple_of(n->shape, n->rank), *strides = tuple_of(n->strides, n->rank - 1);
  if (n->kind == TMA_DLPACK_TILED)
    return Py_BuildValue("(iiKNNNNiiii)", n->asked_type, n->rank, at, dims, strides, box_of(n),
                         elem_strides_of(n), n->interleave, n->swizzle, n->l2_promotion,
                         n->oob_fill);
  if (n->kind == TMA_DLPACK_IM2COL)
    return Py_BuildValue("(iiKNNNNiiNiiii)", n->asked_type, n->rank, at, dims, strides,
                         corner_of(n, n->lower), corner_of(n, n->upper), n->channels, n->pixels,
                         elem_strides_of(n), n->interleave, n->swizzle, n->l2_promotion,
                         n->oob_fill);
  return Py_BuildValue("(iiKNNNNiiNiiiii)", n->asked_type, n->rank, at, dims, strides,
                       corner_of(n, n->lower), corner_of(n, n->upper), n->channels, n->pixels,
                       elem_strides_of(n), n->interleave, n->mode, n->swizzle, n->l2_promotion,
                       n->oob_fill);
}

static PyObject *layout_of(const AskedCall *n) {
  if (n->is_bare) return none();
  return Py_BuildValue("(iiiiiiNN)", (int)n->device.device_type, (int)n->device.device_id,
                       n->dtype.code, n->dtype.bits, n->dtype.lanes, n->flags,
                       tuple_of(n->shape, n->rank),
                       n->has_strides ? tuple_of(n->strides, n->rank) : none());
}

static PyObject *storage_asked(PyObject *self, void *unused) {
  (void)unused;
  const MapStorage *map = (const MapStorage *)self;
  const AskedCall *n = &map->asked;
  if (!map->has_asked) return none();
  return Py_BuildValue("(iKNNO)", n->kind, (unsigned long long)map->address, layout_of(n),
                       n->is_bare ? bare_options_of(n, map->address) : options_of(n),
                       n->by_driver ? Py_True : Py_False);
}

/* ---- bytes and pointer --------------------------------------------------------------------------- */

static PyObject *storage_data(PyObject *self, void *unused) {
  (void)unused;
  MapStorage *map = (MapStorage *)self;
  if (!map->has_bytes) return none();
  if (map->data != NULL) return Py_INCREF(map->data), map->data;
  return PyBytes_FromStringAndSize((const char *)map_bytes(map), TMA_DLPACK_MAP_BYTES);
}

PyDoc_STRVAR(keep_data_doc,
             "_keep_data($self, /)\n--\n\n"
             "Save the bytes before handing out writable storage.");

static PyObject *storage_keep_data(PyObject *self, PyObject *unused) {
  (void)unused;
  MapStorage *map = (MapStorage *)self;
  if (map->has_bytes && map->data == NULL) {
    map->data = PyBytes_FromStringAndSize((const char *)map_bytes(map), TMA_DLPACK_MAP_BYTES);
    if (map->data == NULL) return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *storage_bytes(PyObject *self, PyObject *unused) {
  (void)unused;
  if (!((MapStorage *)self)->has_bytes) return PyObject_CallMethod(self, "_refuse_bytes", NULL);
  return storage_data(self, NULL);
}

static PyObject *storage_ptr(PyObject *self, void *unused) {
  (void)unused;
  MapStorage *map = (MapStorage *)self;
  if (!map->launchable || !map->has_bytes) return PyObject_CallMethod(self, "_refuse_pointer", NULL);
  return PyLong_FromVoidPtr(map_bytes(map));
}

static PyObject *storage_address(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(((MapStorage *)self)->address);
}

static PyObject *storage_launchable(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((MapStorage *)self)->launchable);
}

/* ---- a map is immutable -------------------------------------------------------------------------- */

PyDoc_STRVAR(keep_doc, "_keep($self, description, /)\n--\n\nKeep the description of the map.");

static PyObject *storage_keep(PyObject *self, PyObject *description) {
  MapStorage *map = (MapStorage *)self;
  PyObject *before = map->description;
  Py_INCREF(description);
  map->description = description;
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

static int storage_set(PyObject *self, PyObject *name, PyObject *value) {
  (void)self;
  PyErr_Format(PyExc_AttributeError, "a TensorMap is immutable: %S cannot be %s", name,
               value == NULL ? "deleted" : "set");
  return -1;
}

/* ---- making and unmaking ------------------------------------------------------------------------- */

static PyObject *held(PyObject *object) {
  return object == Py_None ? NULL : (Py_INCREF(object), object);
}

PyDoc_STRVAR(make_doc,
             "_make($type, tensor, capsule, address, data, launchable, description, /)\n--\n\n"
             "Make a map with its description.");

/* A class method: `type` is MapStorage or a subclass. */
static PyObject *storage_make(PyObject *type, PyObject *arguments) {
  PyObject *tensor, *capsule, *data, *description;
  unsigned long long address;
  int launchable;
  if (!PyArg_ParseTuple(arguments, "OOKOpO:_make", &tensor, &capsule, &address, &data, &launchable,
                        &description))
    return NULL;
  if (data != Py_None && (!PyBytes_Check(data) || PyBytes_Size(data) != TMA_DLPACK_MAP_BYTES)) {
    PyErr_SetString(PyExc_ValueError, "a map is 128 bytes, or None");
    return NULL;
  }
  PyObject *self = PyType_GenericAlloc((PyTypeObject *)type, 0);
  if (self == NULL) return NULL;
  MapStorage *map = (MapStorage *)self;
  map->tensor = held(tensor);
  map->capsule = held(capsule);
  map->description = held(description);
  map->address = address;
  map->launchable = (uint8_t)launchable;
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
  Py_VISIT(map->description);
  return 0;
}

static int storage_clear(PyObject *self) {
  MapStorage *map = (MapStorage *)self;
  Py_CLEAR(map->tensor);
  Py_CLEAR(map->capsule);
  Py_CLEAR(map->description);
  Py_CLEAR(map->data);
  return 0;
}

static void storage_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  MapStorage *map = (MapStorage *)self;
  SpareMap *spare = map->spare;
  PyObject_GC_UnTrack(self);
  if (map->weak_references != NULL) PyObject_ClearWeakRefs(self);
  storage_clear(self); /* which may free other maps */
  if (spare != NULL && spare->map == NULL && !spare->closed) spare->map = map;
  else PyObject_GC_Del(self); /* what tp_free is for every class with a collector */
  if (spare != NULL) leave_spare(spare);
  Py_DECREF(type);
}

/* ---- the class and the module -------------------------------------------------------------------- */

static PyMethodDef storage_methods[] = {
    {"_make", storage_make, METH_VARARGS | METH_CLASS, make_doc},
    {"_keep", storage_keep, METH_O, keep_doc},
    {"_keep_data", storage_keep_data, METH_NOARGS, keep_data_doc},
    {"__bytes__", storage_bytes, METH_NOARGS, "Give the 128 bytes of the map."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef storage_members[] = {
    {"_tensor", T_OBJECT, offsetof(MapStorage, tensor), READONLY, "The tensor, kept alive."},
    {"_capsule", T_OBJECT, offsetof(MapStorage, capsule), READONLY, "Its capsule, where kept."},
    {"_description", T_OBJECT, offsetof(MapStorage, description), READONLY,
     "What the map describes, once it has been worked out."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(MapStorage, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef storage_getters[] = {
    {"_ptr", storage_ptr, NULL, "Address of the map's own 128 bytes, or an error.", NULL},
    {"_address", storage_address, NULL, "Address of element (0, ..., 0).", NULL},
    {"_data", storage_data, NULL, "The 128 bytes, or None.", NULL},
    {"_launchable", storage_launchable, NULL, "Whether the map may be passed to a kernel.", NULL},
    {"_asked", storage_asked, NULL, "What the short cut accepted, as `Asked`; or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot storage_slots[] = {
    {Py_tp_doc, (void *)"The tensor, the 128 bytes and the numbers of a TensorMap."},
    {Py_tp_methods, storage_methods},
    {Py_tp_members, storage_members},
    {Py_tp_getset, storage_getters},
    {Py_tp_setattro, (void *)storage_set},
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
