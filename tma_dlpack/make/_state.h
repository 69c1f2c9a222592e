/* _state.h: what the short cut knows of this interpreter: classes, names, and how tensors are asked. */

#ifndef TMA_DLPACK_STATE_H
#define TMA_DLPACK_STATE_H

#include "../tensor_map/_storage.h"

enum { INTERLEAVE, SWIZZLE, L2_PROMOTION, OOB_FILL, DATA_TYPE, WIDE_MODE, ENUMS };

/* An enum: its class, and {name: member} with the spellings of cuda.h. */
typedef struct {
  PyTypeObject *type;
  PyObject *names;
} Words;

/* DLPack's C exchange API: the functions of its table that are used [dlpack.h 1.3]. */
typedef int (*FillTensor)(void *object, TmaDlpackTensor *out);
typedef int (*ExportTensor)(void *object, TmaDlpackManagedVersioned **out);

/* How tensors of one Python type are asked, chosen when the first of them is seen. */
typedef struct {
  PyTypeObject *type;
  PyObject *negated;          /* torch: the method `is_neg`; else NULL */
  FillTensor fill;            /* torch */
  ExportTensor export_tensor; /* other types with the exchange API */
  PyObject *method;           /* the type's `__dlpack__`, for everything else */
  PyObject *on_host;          /* its keyword arguments for a host tensor, NULL for none */
  PyObject *on_cuda;          /* and for a CUDA tensor */
  int only_host;              /* NumPy: the device need not be asked */
  int read_only;              /* JAX: arrays never change, though legacy capsules do not say so */
} Producer;

enum { MAX_PRODUCERS = 16 }; /* known libraries have few types; a type past these goes the long road */

typedef struct {
  PyTypeObject *map_type; /* TensorMap */
  PyTypeObject *numpy_integer, *numpy_array;
  Words words[ENUMS];
  PyObject *none; /* the interned string "none" */
  PyObject *torch_uint8, *torch_int8;
  int producer_count;
  Producer producers[MAX_PRODUCERS]; /* only ever added to: a pointer to one stays good */
} State;

#endif /* TMA_DLPACK_STATE_H */
