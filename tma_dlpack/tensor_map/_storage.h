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

/* Where the numbers of a map come from. */
enum {
  MAP_EMPTY = 0,  /* nothing was filled in: TensorMap.__new__ alone */
  MAP_FACTS = 1,  /* the rules made it: `facts` says everything */
  MAP_NUMBERS = 2 /* the short cut made it: `asked` says everything, `facts` is worked out later */
};

enum { ENCODER_MODEL = 0, ENCODER_DRIVER = 1 };

/* The numbers asked for, judged before they came here, so that each fits its field. */
typedef struct {
  uint64_t address;
  uint64_t dims[TMA_DLPACK_MAX_RANK];
  uint64_t strides_bytes[TMA_DLPACK_MAX_RANK - 1];
  TmaDlpackDevice device; /* type 0: no tensor, a bare address */
  TmaDlpackDataType dtype;
  uint16_t box[TMA_DLPACK_MAX_RANK];
  int16_t lower[3], upper[3];
  uint16_t channels, pixels;
  uint8_t elem_strides[TMA_DLPACK_MAX_RANK];
  uint8_t kind, data_type, rank, interleave, swizzle, l2_promotion, oob_fill, mode, rules, encoder;
  int8_t asked_type;
  uint8_t read_only;
} MapNumbers;

/* Small enough, with the collector's head, for the allocator of small objects (512 bytes). */
typedef struct {
  PyObject_HEAD
  PyObject *tensor, *capsule, *facts; /* any may be NULL */
  PyObject *weak_references;
  MapNumbers asked;
  uint8_t source, has_bytes;
  unsigned char room[TMA_DLPACK_MAP_BYTES + TMA_DLPACK_MAP_ALIGNMENT - 1];
} MapStorage;

TMA_DLPACK_STATIC_ASSERT(sizeof(MapStorage) <= 512 - 16, "larger objects come from malloc: slower");

/* The map's 128 bytes: the first address in its room that is a multiple of 128. Objects never move. */
static inline unsigned char *map_bytes(MapStorage *map) {
  uintptr_t start = (uintptr_t)map->room + TMA_DLPACK_MAP_ALIGNMENT - 1;
  return (unsigned char *)(start - start % TMA_DLPACK_MAP_ALIGNMENT);
}

#endif /* TMA_DLPACK_STORAGE_H */
