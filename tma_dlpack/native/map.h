/* map.h: MapStorage, the base class of TensorMap.
 *
 * A MapStorage has the tensor and the map's 128 bytes. The bytes are inside the object and aligned
 * to 128, so that `ptr` needs no copy of the bytes. If C accepted the call, a MapStorage also has a
 * record with the parts of the call that the bytes do not contain. An attribute is decoded from the
 * bytes when a caller reads the attribute. tensor_map/storage.py has this class in Python, for
 * builds without a C compiler.
 */

#ifndef TMA_DLPACK_MAP_H
#define TMA_DLPACK_MAP_H

#include "storage.h"

#include <structmember.h>

/* ---- the values of a map, from its bytes and its record -------------------------------------------- */

/* Read the driver's arguments. If `fields` is not NULL, `fields` has the arguments. Otherwise
 * decode the arguments from the bytes of the map. But if a caller has writable access to the bytes
 * of the map, the caller may have changed the bytes. Therefore, if `data` is not NULL, decode
 * `data`, the copy of the original bytes. */
static void read_fields(const MapStorage *map, TmaDlpackDescribed *c) {
  if (map->fields != NULL) {
    *c = *map->fields;
    return;
  }
  const void *bytes = map->data != NULL ? (void *)PyBytes_AsString(map->data) : map_bytes((MapStorage *)map);
  tma_dlpack_decode(bytes, map->record.kind, c);
  c->mode = map->record.mode;
}

/* Return the rank of the tensor that the map describes. If the call has the argument `shape=`, the
 * rank is the length of this argument. */
static int rank_of(const MapStorage *map) {
  int is_own = map->rare == NULL || map->rare->o.shape_count == TMA_DLPACK_NOT_GIVEN;
  return is_own ? map->record.rank : map->rare->o.shape_count;
}

static void reverse(const int64_t *from, int count, int64_t *to) {
  for (int i = 0; i < count; ++i) to[i] = from[count - 1 - i];
}

/* Read the options of the call. If the map has no RareOptions, the options come from the driver's
 * arguments and the record. The rank of such a map is the tensor's own rank. */
static void options_of(const MapStorage *map, TmaDlpackOptions *o) {
  const Record *record = &map->record;
  TmaDlpackDescribed c;
  if (map->rare != NULL) {
    *o = map->rare->o;
    return;
  }
  read_fields(map, &c);
  tma_dlpack_start_options(o, record->kind);
  o->driver_rules = record->driver_rules;
  o->asked_type = record->asked_type;
  o->has_swizzle = record->has_swizzle;
  o->interleave = (int)c.interleave;
  o->swizzle = (int)c.swizzle;
  o->l2_promotion = (int)c.l2_promotion;
  o->oob_fill = (int)c.oob_fill;
  o->mode = (int)c.mode;
  o->channels = c.channels;
  o->pixels = c.pixels;
  const int corners = record->kind == TMA_DLPACK_IM2COL ? (int)c.rank - 2 : record->kind == TMA_DLPACK_IM2COL_WIDE;
  o->box_count = record->kind == TMA_DLPACK_TILED ? (int)c.rank : 0;
  o->lower_count = o->upper_count = corners;
  /* TmaDlpackDescribed is innermost first, and the options are row-major. */
  reverse(c.box_dim, o->box_count, o->box_sizes);
  reverse(c.lower, corners, o->lower);
  reverse(c.upper, corners, o->upper);
  if (!record->has_elem_strides) return;
  o->elem_stride_count = (int)c.rank;
  for (int i = 0; i < c.rank; ++i) o->elem_strides[i] = record->elem_strides[i];
}

/* Return the tensor as its producer exported it, but with the address NULL, because no caller reads
 * the address. The address is not always known: after with_address(n), a map with an offset has
 * only the address of its first element. The result points into `map`. */
static TmaDlpackTensor tensor_of(const MapStorage *map) {
  const Record *record = &map->record;
  return (TmaDlpackTensor){NULL,
                           record->device,
                           record->rank,
                           record->dtype,
                           (int64_t *)record->shape,
                           record->has_strides ? (int64_t *)record->strides : NULL,
                           0};
}

/* ---- as Python objects -------------------------------------------------------------------------- */

/* Return a tuple with the fields of the Python class EncodeArguments, with enums as numbers.
 * Py_BuildValue's format "N" steals the reference, and a NULL argument makes the result NULL. */
static PyObject *numbers_of(const TmaDlpackDescribed *c) {
  int is_tiled = c->kind == TMA_DLPACK_TILED;
  int64_t corners = is_tiled ? 0 : c->kind == TMA_DLPACK_IM2COL ? c->rank - 2 : 1;
  return Py_BuildValue("(iiNNNNiiiiNNiii)", (int)c->kind, (int)c->data_type,
                       tuple_of(c->global_dim, c->rank, 1), tuple_of(c->stride_bits, c->rank - 1, 8),
                       tuple_of(c->element_strides, c->rank, 1),
                       tuple_of(c->box_dim, is_tiled ? c->rank : 0, 1), (int)c->interleave,
                       (int)c->swizzle, (int)c->l2_promotion, (int)c->oob_fill,
                       tuple_of(c->lower, corners, 1), tuple_of(c->upper, corners, 1),
                       is_tiled ? 0 : (int)c->channels, is_tiled ? 0 : (int)c->pixels, (int)c->mode);
}

static PyObject *storage_numbers(PyObject *self, void *unused) {
  (void)unused;
  const MapStorage *map = (const MapStorage *)self;
  TmaDlpackDescribed c;
  if (!map->has_record) return none();
  read_fields(map, &c);
  return numbers_of(&c);
}

static PyObject *storage_call(PyObject *self, void *unused) {
  (void)unused;
  const MapStorage *map = (const MapStorage *)self;
  TmaDlpackOptions options;
  if (!map->has_record) return none();
  if (map->record.is_bare) return PyTuple_New(0);
  const TmaDlpackTensor tensor = tensor_of(map);
  options_of(map, &options);
  return Py_BuildValue("(NN)", layout_of(&tensor, map->record.flags), options_tuple(&options));
}

/* Return the target of the call. If the call has no target, return the ordinal of the tensor's GPU.
 * If the tensor is not on a GPU, return None, which means the default target. */
static PyObject *storage_target(PyObject *self, void *unused) {
  (void)unused;
  const MapStorage *map = (const MapStorage *)self;
  if (map->rare != NULL && map->rare->target != NULL)
    return Py_INCREF(map->rare->target), map->rare->target;
  return map->record.ordinal == ON_HOST ? none() : PyLong_FromLong(map->record.ordinal);
}

static PyObject *storage_encoder(PyObject *self, void *unused) {
  (void)unused;
  int encoder = ((MapStorage *)self)->record.encoder;
  if (encoder == NOT_ENCODED) return none();
  return PyUnicode_InternFromString(encoder == BY_DRIVER ? "driver" : "model");
}

/* Return the options (split_inner, ragged) of the call. `ragged` is a dimension, counted from 0, or
 * None. */
static PyObject *storage_added(PyObject *self, void *unused) {
  (void)unused;
  const MapStorage *map = (const MapStorage *)self;
  const TmaDlpackOptions *rare = map->rare == NULL ? NULL : &map->rare->o;
  if (!map->has_record) return none();
  PyObject *ragged = none();
  if (rare != NULL && rare->has_ragged) {
    Py_DECREF(ragged);
    ragged = PyLong_FromLongLong(rare->ragged < 0 ? rare->ragged + rank_of(map) : rare->ragged);
  }
  return Py_BuildValue("(NN)", PyBool_FromLong(rare != NULL && rare->split_inner), ragged);
}

static PyObject *storage_tx_bytes(PyObject *self, void *unused) {
  (void)unused;
  const MapStorage *map = (const MapStorage *)self;
  TmaDlpackDescribed c;
  if (!map->has_record) return none();
  read_fields(map, &c);
  return tx_bytes_of(&c);
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
             "Save the bytes before a caller gets writable storage.");

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

/* Set a slot to a new value. Release the old value only afterwards, because its destructor may run
 * code that reads the slot. */
static PyObject *keep(PyObject **slot, PyObject *value) {
  PyObject *before = *slot;
  Py_INCREF(value);
  *slot = value;
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(keep_doc, "_keep($self, description, /)\n--\n\nKeep the description of the map.");

static PyObject *storage_keep(PyObject *self, PyObject *description) {
  return keep(&((MapStorage *)self)->description, description);
}

PyDoc_STRVAR(keep_arguments_doc,
             "_keep_arguments($self, arguments, /)\n--\n\nKeep the driver's arguments.");

static PyObject *storage_keep_arguments(PyObject *self, PyObject *arguments) {
  return keep(&((MapStorage *)self)->arguments, arguments);
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

/* Make a map of a class. This is a class method, so `type` is MapStorage or a subclass. */
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
  Py_VISIT(map->arguments);
  Py_VISIT(map->description);
  Py_VISIT(map->producer);
  if (map->rare != NULL) Py_VISIT(map->rare->target);
  return 0;
}

static int storage_clear(PyObject *self) {
  MapStorage *map = (MapStorage *)self;
  Py_CLEAR(map->tensor);
  Py_CLEAR(map->capsule);
  Py_CLEAR(map->arguments);
  Py_CLEAR(map->description);
  Py_CLEAR(map->producer);
  Py_CLEAR(map->data);
  return 0;
}

static void storage_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  MapStorage *map = (MapStorage *)self;
  SpareMap *spare = map->spare;
  PyObject_GC_UnTrack(self);
  if (map->weak_references != NULL) PyObject_ClearWeakRefs(self);
  storage_clear(self); /* This releases references, which may free other maps. */
  free_rare(map->rare);
  PyMem_Free(map->fields);
  /* PyObject_GC_Del is the tp_free of every class whose objects the collector tracks. */
  if (spare != NULL && spare->map == NULL && !spare->closed) spare->map = map;
  else PyObject_GC_Del(self);
  if (spare != NULL) leave_spare(spare);
  Py_DECREF(type);
}

/* ---- the class ------------------------------------------------------------------------------------ */

static PyMethodDef storage_methods[] = {
    {"_make", storage_make, METH_VARARGS | METH_CLASS, make_doc},
    {"_keep", storage_keep, METH_O, keep_doc},
    {"_keep_arguments", storage_keep_arguments, METH_O, keep_arguments_doc},
    {"_keep_data", storage_keep_data, METH_NOARGS, keep_data_doc},
    {"__bytes__", storage_bytes, METH_NOARGS, "Return the 128 bytes of the map."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef storage_members[] = {
    {"_tensor", T_OBJECT, offsetof(MapStorage, tensor), READONLY, "The tensor, kept alive."},
    {"_capsule", T_OBJECT, offsetof(MapStorage, capsule), READONLY, "The tensor's capsule, or None."},
    {"_producer", T_OBJECT, offsetof(MapStorage, producer), READONLY,
     "For a map without a tensor: the type of the tensor that it was checked for."},
    {"_arguments", T_OBJECT, offsetof(MapStorage, arguments), READONLY,
     "The driver's arguments, or None before they are first read."},
    {"_description", T_OBJECT, offsetof(MapStorage, description), READONLY,
     "The description of the map, or None before it is first computed."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(MapStorage, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef storage_getters[] = {
    {"_ptr", storage_ptr, NULL, "Address of the map's own 128 bytes, or an error.", NULL},
    {"_address", storage_address, NULL, "Address of element (0, ..., 0).", NULL},
    {"_data", storage_data, NULL, "The 128 bytes, or None.", NULL},
    {"_launchable", storage_launchable, NULL, "Whether the map may be passed to a kernel.", NULL},
    {"_numbers", storage_numbers, NULL, "The fields of EncodeArguments as numbers, or None.", NULL},
    {"_call", storage_call, NULL, "Layout and options of the accepted call, or None.", NULL},
    {"_target", storage_target, NULL, "The target of the call, or the ordinal of its GPU, or None.", NULL},
    {"_encoder", storage_encoder, NULL, "The encoder: driver, model or None.", NULL},
    {"_added", storage_added, NULL, "(split_inner, ragged) of the call, or None.", NULL},
    {"_tx_bytes", storage_tx_bytes, NULL, "Bytes that one load adds to its barrier, or None.", NULL},
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
    .name = "tma_dlpack.native._core.MapStorage",
    .basicsize = sizeof(MapStorage),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = storage_slots,
};

#endif /* TMA_DLPACK_MAP_H */
