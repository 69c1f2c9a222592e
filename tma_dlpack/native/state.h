/* state.h: the state of the extension: classes, names, and the way to read tensors of each type. */

#ifndef TMA_DLPACK_STATE_H
#define TMA_DLPACK_STATE_H

#include "storage.h"

/* Indices of the functions of one argument that call `__dlpack__`; setup() receives the functions. */
enum { EXPORT, EXPORT_ON_CUDA, EXPORT_ON_CUDA_OF_JAX, EXPORTS };

/* Indices of the enums in setup() and in State.words. */
enum { INTERLEAVE, SWIZZLE, L2_PROMOTION, OOB_FILL, DATA_TYPE, WIDE_MODE, ENUMS };

/* Names of the attributes that are read. They are interned, which makes CPython's lookups fast. */
enum { DTYPE, DLPACK_DEVICE, NAMES };

enum { MAX_MEMBERS = 16, KNOWN_TARGETS = 8 };

/* An enum: its class, a dict {name: member} that has the names of cuda.h too, and the members' own names by value.
 * The own names are interned, as string literals of Python code are. */
typedef struct {
  PyTypeObject *type;
  PyObject *names;
  PyObject *interned[MAX_MEMBERS];
} Words;

/* A Target and its numbers; a Target object is immutable. */
typedef struct {
  PyObject *object;
  TmaDlpackTarget target;
} KnownTarget;

/* DLPack's C exchange API: the functions of its table that are used [dlpack.h 1.3]. */
typedef int (*FillTensor)(void *object, TmaDlpackTensor *out);
typedef int (*ExportTensor)(void *object, TmaDlpackManagedVersioned **out);

/* The way to read tensors of one Python type; chosen for the first tensor of the type. */
typedef struct {
  PyTypeObject *type;
  PyCFunction is_neg;         /* torch: the C function of the method; else NULL */
  PyObject *dtypes;           /* torch before 2.10: {torch.dtype: DLDataType}; else NULL */
  FillTensor fill;            /* torch */
  ExportTensor export_tensor; /* other types with the exchange API */
  PyObject *on_host;          /* every other type: calls `__dlpack__` of a host tensor */
  PyObject *on_cuda;          /* the same for a CUDA tensor */
  PyObject *platform;         /* JAX: the method that names the device; else NULL */
  PyObject *is_deleted;       /* JAX: called first, because platform() of a deleted array reads freed memory */
  int only_host, only_cuda;   /* NumPy, CuPy: the device is known without a call */
  int is_jax;                 /* JAX: arrays are read-only, although the capsule does not say so */
} Producer;

enum { MAX_PRODUCERS = 16 }; /* known libraries have few types; further types are left to Python */

typedef struct {
  PyTypeObject *quick_type; /* of quick.h */
  PyTypeObject *batch_type; /* of batch.h */
  PyTypeObject *judged_type; /* of judged.h */
  PyTypeObject *map_type;   /* TensorMap */
  SpareMap *spare;
  PyTypeObject *numpy_integer, *numpy_array, *target_type, *torch_size;
  PyObject *presets;    /* {name: Target} */
  PyObject *default_target;
  PyObject *allowable;  /* {id: row} of TMA_DLPACK_ALLOWABLE */
  PyObject *readers[3]; /* by kind of map: {argument: index in `readers` of options.h} */
  PyObject *no_swizzle; /* the default of `swizzle`, an object of its own */
  PyObject *accepted, *refused; /* functions of make/build.py that make Reports; imported on first use */
  KnownTarget targets[KNOWN_TARGETS];
  unsigned target_count; /* number of Targets that were read; `targets` has the last ones */
  Words words[ENUMS];
  PyObject *exports[EXPORTS];
  PyObject *names[NAMES];
  PyObject *libcudacxx, *documented, *driver; /* interned names of the sets of rules */
  PyObject *torch_uint8, *torch_int8;
  int producer_count;
  Producer producers[MAX_PRODUCERS]; /* entries are only added, so a pointer to an entry stays valid */
} State;

/* The objects of the state, without the objects in arrays. */
#define STATE_OBJECTS(OBJECT) \
  OBJECT(quick_type) OBJECT(batch_type) OBJECT(judged_type) OBJECT(map_type) OBJECT(numpy_integer) \
  OBJECT(numpy_array) OBJECT(target_type) OBJECT(torch_size) OBJECT(presets) OBJECT(default_target) \
  OBJECT(allowable) OBJECT(no_swizzle) OBJECT(accepted) OBJECT(refused) OBJECT(libcudacxx) \
  OBJECT(documented) OBJECT(driver) OBJECT(torch_uint8) OBJECT(torch_int8)

/* Whether setup() was called and the interpreter is not shutting down. */
static int is_ready(const State *state) { return state->map_type != NULL; }

#endif /* TMA_DLPACK_STATE_H */
