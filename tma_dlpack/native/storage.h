/* storage.h: MapStorage, the memory of a TensorMap. map.h has the Python class of MapStorage.
 * calls.h and batch.h write the memory. */

#ifndef TMA_DLPACK_STORAGE_H
#define TMA_DLPACK_STORAGE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000 /* the stable ABI of CPython 3.10 */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../include/tma_dlpack_make.h"

enum { NOT_ENCODED, BY_MODEL, BY_DRIVER };
enum { ON_HOST = -1 }; /* stands for "no GPU" where an ordinal of a GPU is expected */

/* The parts of an accepted call that the 128 bytes do not contain: the tensor's layout, some
 * options, and the target. */
typedef struct {
  int64_t shape[TMA_DLPACK_MAX_RANK], strides[TMA_DLPACK_MAX_RANK]; /* as exported, in elements */
  TmaDlpackDevice device;
  TmaDlpackDataType dtype;
  uint8_t elem_strides[TMA_DLPACK_MAX_RANK]; /* as passed; ignored entries are 1 in the bytes */
  uint8_t is_bare; /* whether this is a driver_encode_* call, which has no tensor */
  uint8_t kind, mode; /* the 128 bytes do not show whether a map is im2col or im2col-wide */
  uint8_t driver_rules, rank, has_strides, has_elem_strides, has_swizzle, flags, encoder;
  int8_t asked_type, major, minor, ordinal; /* `ordinal` is the tensor's own GPU or ON_HOST */
} Record;

/* All options of a call. The struct is allocated only if the call has a Target, `allow`, or an
 * option in TMA_DLPACK_RARE_OPTIONS. */
typedef struct {
  PyObject *target; /* the Target of the call; NULL stands for the tensor's own GPU */
  TmaDlpackOptions o;
} RareOptions;

struct MapStorage;

/* The memory of a freed map. The next new map uses this memory. A program that makes a map at every
 * step also frees a map at every step. To reuse the memory takes half the time of a new allocation.
 * CPython informs the garbage collector of each new allocation. The owners of this struct are the
 * module and all maps that the module made. */
typedef struct {
  struct MapStorage *map; /* the free memory, or NULL */
  Py_ssize_t owners;
  int closed; /* whether the module was freed */
} SpareMap;

/* The memory of a TensorMap. With the collector's header it has at most 512 bytes, the limit of
 * CPython's allocator for small objects. */
typedef struct MapStorage {
  PyObject_HEAD
  SpareMap *spare; /* receives the memory of the freed map; if NULL, CPython receives it */
  PyObject *tensor, *capsule, *arguments, *description, *data; /* each may be NULL */
  PyObject *producer; /* after with_address(int): the type of the earlier tensor, or NULL */
  PyObject *weak_references;
  RareOptions *rare; /* or NULL */
  TmaDlpackDescribed *fields; /* the driver's arguments; NULL if the bytes can be decoded */
  uint64_t address;
  Record record;
  uint8_t has_record, has_bytes, launchable;
  _Alignas(16) unsigned char room[TMA_DLPACK_MAP_BYTES + TMA_DLPACK_ALIGNMENT_BYTES - 16];
} MapStorage;

/* Python objects begin at multiples of 16 bytes, so `room` begins at a multiple of 16 bytes, too.
 * So the first address in `room` that is a multiple of 128 is at most 112 bytes after the start of
 * `room`. */
TMA_DLPACK_STATIC_ASSERT(offsetof(MapStorage, room) % 16 == 0, "128 aligned bytes end past `room`");
TMA_DLPACK_STATIC_ASSERT(sizeof(MapStorage) <= 512 - 16, "larger objects come from malloc: slower");

/* Return the address of the map's 128 bytes, which is the first multiple of 128 in `room`. The
 * address never changes, because Python objects do not move. */
static inline unsigned char *map_bytes(MapStorage *map) {
  uintptr_t start = (uintptr_t)map->room + TMA_DLPACK_ALIGNMENT_BYTES - 1;
  return (unsigned char *)(start - start % TMA_DLPACK_ALIGNMENT_BYTES);
}

/* Remove one owner of the spare memory, and free the struct if it was the last owner. */
static inline void leave_spare(SpareMap *spare) {
  if (--spare->owners == 0) PyMem_Free(spare);
}

/* Return a copy of `rare`, or NULL if `rare` is NULL. Return NULL with an exception if out of
 * memory. */
static inline RareOptions *copy_rare(const RareOptions *rare) {
  RareOptions *copy = rare == NULL ? NULL : PyMem_Malloc(sizeof *copy);
  if (rare == NULL) return NULL;
  if (copy == NULL) return PyErr_NoMemory(), NULL;
  *copy = *rare;
  Py_XINCREF(copy->target);
  return copy;
}

static inline void free_rare(RareOptions *rare) {
  if (rare == NULL) return;
  Py_XDECREF(rare->target);
  PyMem_Free(rare);
}

/* Copy `c`, the driver's arguments of a map, to new memory at `kept`. If `c` is NULL, copy nothing,
 * because the arguments can be decoded from the bytes. Return 0 with an exception if out of
 * memory. */
static inline int keep_fields(TmaDlpackDescribed **kept, const TmaDlpackDescribed *c) {
  if (c == NULL) return 1;
  *kept = PyMem_Malloc(sizeof **kept);
  if (*kept == NULL) return PyErr_NoMemory(), 0;
  **kept = *c;
  return 1;
}

/* ---- as Python objects --------------------------------------------------------------------------- */

static inline PyObject *none(void) {
  Py_INCREF(Py_None);
  return Py_None;
}

/* Return a tuple of `count` values, each divided by `unit`. The unit 8 converts bits to bytes. */
static inline PyObject *tuple_of(const int64_t *values, int64_t count, int64_t unit) {
  PyObject *tuple = PyTuple_New((Py_ssize_t)count);
  for (int64_t i = 0; tuple != NULL && i < count; ++i) {
    PyObject *number = PyLong_FromLongLong(values[i] / unit);
    if (number == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

/* Return a tuple with the fields of the Python class dlpack.layout.Layout. */
static inline PyObject *layout_of(const TmaDlpackTensor *t, int flags) {
  return Py_BuildValue("(iiiiiiNN)", (int)t->device.device_type, (int)t->device.device_id, t->dtype.code,
                       t->dtype.bits, t->dtype.lanes, flags, tuple_of(t->shape, t->ndim, 1),
                       t->strides == NULL ? none() : tuple_of(t->strides, t->ndim, 1));
}

static inline PyObject *given_tuple(const int64_t *values, int count) {
  return count == TMA_DLPACK_NOT_GIVEN ? none() : tuple_of(values, count, 1);
}

/* Return a tuple with the fields of the Python class abi.RareOptions, or NULL with an exception. */
static inline PyObject *rare_options_tuple(const TmaDlpackOptions *o) {
#define FLAG_OBJECT(name) PyBool_FromLong(o->name),
#define INTEGER_OBJECT(name) PyLong_FromLongLong(o->name),
#define OPTIONAL_INTEGER_OBJECT(name) o->has_##name ? PyLong_FromLongLong(o->name) : none(),
#define INTEGERS_OBJECT(name, count) given_tuple(o->name, o->count),
  PyObject *objects[] = {
      TMA_DLPACK_RARE_OPTIONS(FLAG_OBJECT, INTEGER_OBJECT, OPTIONAL_INTEGER_OBJECT, INTEGERS_OBJECT)};
  const Py_ssize_t count = sizeof objects / sizeof objects[0];
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (objects[i] == NULL) Py_CLEAR(tuple);
    if (tuple != NULL) PyTuple_SetItem(tuple, i, objects[i]);
    else Py_XDECREF(objects[i]);
  }
  return tuple;
}

/* Return a tuple with the fields of the Python class checks.struct.Options. */
static inline PyObject *options_tuple(const TmaDlpackOptions *o) {
  return Py_BuildValue("(iiiiiiiiKNNNNLLN)", o->driver_rules, o->asked_type, o->interleave, o->swizzle,
                       o->l2_promotion, o->oob_fill, o->mode, o->has_swizzle,
                       (unsigned long long)o->allowed, given_tuple(o->elem_strides, o->elem_stride_count),
                       given_tuple(o->box_sizes, o->box_count), given_tuple(o->lower, o->lower_count),
                       given_tuple(o->upper, o->upper_count), (long long)o->channels, (long long)o->pixels,
                       rare_options_tuple(o));
}

/* Return the number of bytes that an mbarrier counts for one load with the map of an accepted call.
 * Return None for an interleaved layout; geometry.tx_bytes computes the number in this case. */
static inline PyObject *tx_bytes_of(const TmaDlpackDescribed *c) {
  int64_t line = c->channels, lines = c->kind == TMA_DLPACK_IM2COL_WIDE && c->mode ? 128 : c->pixels;
  if (c->interleave != 0) return none();
  if (c->kind == TMA_DLPACK_TILED) {
    /* With an element stride of n, the load copies every n-th element of the box. These are
     * ceil(box / n) elements. */
    line = c->box_dim[0], lines = 1;
    for (int d = 1; d < c->rank; ++d)
      lines *= (c->box_dim[d] + c->element_strides[d] - 1) / c->element_strides[d];
  }
  return PyLong_FromLongLong(line * c->element_bits / 8 * lines);
}

#endif /* TMA_DLPACK_STORAGE_H */
