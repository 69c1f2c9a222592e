/* _storage.h: the memory of a TensorMap, shared by _storage.c (the class) and make/_accept.c (who
 * fills it). Both are compiled from this file in one build. */

#ifndef TMA_DLPACK_STORAGE_H
#define TMA_DLPACK_STORAGE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000 /* the stable ABI of CPython 3.10 */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../include/tma_dlpack_make.h"

/* A call that the short cut accepted: the tensor's layout and the options, all within the ranges that
 * the short cut checks. `storage.Asked` is the same in Python. */
typedef struct {
  int64_t shape[TMA_DLPACK_MAX_RANK]; /* row-major, as exported; for driver_encode_* the globalDim */
  int64_t strides[TMA_DLPACK_MAX_RANK]; /* in elements; of bare arguments the driver's globalStrides */
  TmaDlpackDevice device;
  TmaDlpackDataType dtype;
  uint16_t box[TMA_DLPACK_MAX_RANK]; /* all in the order in which they were given */
  int16_t lower[3], upper[3];
  uint16_t channels, pixels;
  uint8_t elem_strides[TMA_DLPACK_MAX_RANK];
  uint8_t is_bare; /* a driver_encode_* call, without a tensor */
  uint8_t kind, rules, rank, has_strides, has_elem_strides, flags, by_driver;
  uint8_t interleave, swizzle, l2_promotion, oob_fill, mode;
  int8_t asked_type;
} AskedCall;

struct MapStorage;

/* The memory of the map that was freed last, which the next one takes: programs that make a map at every
 * step free as many, and this is twice as quick as CPython's allocator with its collector's bookkeeping.
 * It belongs to the module that makes maps and to all maps that it made. */
typedef struct {
  struct MapStorage *map; /* or NULL */
  Py_ssize_t owners;
  int closed; /* the module is gone */
} SpareMap;

/* With the collector's header small enough for CPython's small-object allocator (512 bytes). */
typedef struct MapStorage {
  PyObject_HEAD
  SpareMap *spare; /* where its memory goes; NULL: back to CPython */
  PyObject *tensor, *capsule, *description, *data; /* any may be NULL */
  PyObject *weak_references;
  uint64_t address;
  AskedCall asked;
  uint8_t has_asked, has_bytes, launchable;
  unsigned char room[TMA_DLPACK_MAP_BYTES + TMA_DLPACK_MAP_ALIGNMENT - 1];
} MapStorage;

TMA_DLPACK_STATIC_ASSERT(sizeof(MapStorage) <= 512 - 16, "larger objects come from malloc: slower");

/* The map's 128 bytes, at the first multiple of 128 inside the object; Python objects never move. */
static inline unsigned char *map_bytes(MapStorage *map) {
  uintptr_t start = (uintptr_t)map->room + TMA_DLPACK_MAP_ALIGNMENT - 1;
  return (unsigned char *)(start - start % TMA_DLPACK_MAP_ALIGNMENT);
}

/* One owner less. */
static inline void leave_spare(SpareMap *spare) {
  if (--spare->owners == 0) PyMem_Free(spare);
}

#endif /* TMA_DLPACK_STORAGE_H */
