/* batch.h: encode the maps of many tensors in one call.
 *
 * The bytes of the maps are written to contiguous memory of the caller. A kernel needs nothing
 * else. When the caller reads a TensorMap of the batch for the first time, the TensorMap objects of
 * all maps are made.
 */

#ifndef TMA_DLPACK_BATCH_H
#define TMA_DLPACK_BATCH_H

#include "calls.h"

#include <structmember.h>

/* The data of one map. The TensorMap of the map is made from this data later. `bytes` is a copy,
 * because the caller may overwrite the bytes in the caller's memory. */
typedef struct {
  Record record;
  TmaDlpackDescribed *fields; /* the driver's arguments; NULL if `bytes` can be decoded */
  uint64_t address;
  uint8_t launchable;
  unsigned char bytes[TMA_DLPACK_MAP_BYTES];
} BatchEntry;

typedef struct {
  PyObject_HEAD
  PyTypeObject *map_type;
  PyObject *tensors;   /* a tuple */
  PyObject *maps;      /* a tuple; NULL until a map is first read */
  BatchEntry *entries; /* one for each tensor */
  RareOptions *rare;   /* for all maps; NULL if the call has no rare option */
  int launchable;      /* whether all maps are launchable */
  int has_bytes;       /* whether all maps were encoded */
} Batch;

/* ---- making a batch ------------------------------------------------------------------------------ */

/* Make a batch with empty entries. The garbage collector tracks the batch only after fill_batch.
 * Return NULL with an exception if out of memory. */
static Batch *new_batch(const State *state, PyObject *tensors, const Options *options) {
  Batch *batch = (Batch *)PyType_GenericAlloc(state->batch_type, 0);
  if (batch == NULL) return NULL;
  PyObject_GC_UnTrack(batch);
  Py_INCREF(state->map_type);
  Py_INCREF(tensors);
  batch->map_type = state->map_type;
  batch->tensors = tensors;
  batch->launchable = batch->has_bytes = 1;
  batch->entries = PyMem_Calloc((size_t)PyTuple_Size(tensors), sizeof(BatchEntry));
  if (batch->entries == NULL) PyErr_NoMemory();
  if (batch->entries != NULL && keep_rare(&batch->rare, options)) return batch;
  Py_DECREF(batch);
  return NULL;
}

/* Encode the maps of all tensors into `rows`, which is aligned to 128 bytes. Return 0 to fall back
 * to Python. */
static int fill_batch(State *state, Batch *batch, const Options *options, unsigned char *rows) {
  Py_ssize_t count = PyTuple_Size(batch->tensors);
  Record kept = {0};
  keep_options(&kept, &options->o);
  for (Py_ssize_t i = 0; i < count; ++i) {
    Judged call;
    BatchEntry *entry = &batch->entries[i];
    unsigned char *row = rows + i * TMA_DLPACK_MAP_BYTES;
    if (!judge_tensor(state, PyTuple_GetItem(batch->tensors, i), options, &call)) return 0;
    entry->record = kept;
    keep_layout(&entry->record, &call);
    entry->address = (uint64_t)call.described.address;
    entry->launchable = (uint8_t)is_on_gpu(&call.view.tensor.device);
    tma_dlpack_clear(row);
    if (!encode(&call.described, call.encoder, call.ordinal, row)) return 0;
    if (!keep_fields(&entry->fields, hidden_fields(&call.described, call.encoder))) return 0;
    memcpy(entry->bytes, row, TMA_DLPACK_MAP_BYTES);
    batch->launchable &= entry->launchable;
    batch->has_bytes &= call.encoder != NOT_ENCODED;
  }
  PyObject_GC_Track(batch);
  return 1;
}

/* ---- the maps of a batch ------------------------------------------------------------------------- */

static PyObject *map_of_entry(const Batch *batch, Py_ssize_t i) {
  const BatchEntry *entry = &batch->entries[i];
  PyObject *tensor = PyTuple_GetItem(batch->tensors, i);
  MapStorage *map = new_map(batch->map_type, NULL, tensor, entry->address);
  if (map == NULL) return NULL;
  map->record = entry->record;
  map->launchable = entry->launchable;
  map->has_bytes = entry->record.encoder != NOT_ENCODED;
  memcpy(map_bytes(map), entry->bytes, TMA_DLPACK_MAP_BYTES);
  map->rare = copy_rare(batch->rare);
  if ((map->rare != NULL || batch->rare == NULL) && keep_fields(&map->fields, entry->fields)) return (PyObject *)map;
  Py_DECREF(map);
  return NULL;
}

static PyObject *batch_maps(PyObject *self, void *unused) {
  (void)unused;
  Batch *batch = (Batch *)self;
  Py_ssize_t count = PyTuple_Size(batch->tensors);
  if (batch->maps == NULL) {
    PyObject *maps = PyTuple_New(count);
    for (Py_ssize_t i = 0; maps != NULL && i < count; ++i) {
      PyObject *map = map_of_entry(batch, i);
      if (map == NULL || PyTuple_SetItem(maps, i, map) < 0) Py_CLEAR(maps);
    }
    if (maps == NULL) return NULL;
    /* The loop may have run a finalizer that read the maps of this batch. Then `batch->maps` is
     * already set, so drop the new tuple. */
    if (batch->maps == NULL) batch->maps = maps;
    else Py_DECREF(maps);
  }
  Py_INCREF(batch->maps);
  return batch->maps;
}

static PyObject *batch_launchable(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((Batch *)self)->launchable);
}

static PyObject *batch_has_bytes(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((Batch *)self)->has_bytes);
}

static Py_ssize_t batch_length(PyObject *self) { return PyTuple_Size(((Batch *)self)->tensors); }

/* ---- the class ----------------------------------------------------------------------------------- */

/* Like a tuple, a batch needs no tp_clear, because a batch refers only to objects that are older
 * than the batch. So each cycle with a batch contains an object that was changed after the batch
 * was made, and the collector breaks the cycle at this object. */
static int batch_traverse(PyObject *self, visitproc visit, void *arg) {
  Batch *batch = (Batch *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(batch->map_type);
  Py_VISIT(batch->tensors);
  Py_VISIT(batch->maps);
  if (batch->rare != NULL) Py_VISIT(batch->rare->target);
  return 0;
}

static void batch_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  Batch *batch = (Batch *)self;
  PyObject_GC_UnTrack(self);
  for (Py_ssize_t i = PyTuple_Size(batch->tensors); batch->entries != NULL && i > 0;) PyMem_Free(batch->entries[--i].fields);
  Py_XDECREF(batch->maps);
  Py_XDECREF(batch->tensors);
  Py_XDECREF(batch->map_type);
  PyMem_Free(batch->entries);
  free_rare(batch->rare);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMemberDef batch_members[] = {
    {"tensors", T_OBJECT, offsetof(Batch, tensors), READONLY, "The tensors, in order."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef batch_getters[] = {
    {"maps", batch_maps, NULL, "The tuple of the maps, made when it is first read.", NULL},
    {"launchable", batch_launchable, NULL, "Whether all maps may be passed to a kernel.", NULL},
    {"has_bytes", batch_has_bytes, NULL, "Whether all maps are encoded.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, (void *)"The encoded maps of many tensors; extension.Maps is this class in Python."},
    {Py_tp_members, batch_members},
    {Py_tp_getset, batch_getters},
    {Py_tp_traverse, (void *)batch_traverse},
    {Py_tp_dealloc, (void *)batch_dealloc},
    {Py_sq_length, (void *)batch_length},
    {0, NULL},
};

static PyType_Spec batch_spec = {
    .name = "tma_dlpack.native._core.Batch",
    .basicsize = sizeof(Batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};

#endif /* TMA_DLPACK_BATCH_H */
