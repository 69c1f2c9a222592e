/* state.h: the state of the module. The state has classes, names, and the functions that read the
 * tensors of each Python type. */

#ifndef TMA_DLPACK_STATE_H
#define TMA_DLPACK_STATE_H

#include "storage.h"

/* Indices of the functions that call `__dlpack__` of a tensor. setup() receives the functions. */
enum { EXPORT, EXPORT_ON_CUDA, EXPORT_ON_CUDA_OF_JAX, EXPORTS };

/* Indices of the enums in setup() and in State.words. */
enum { INTERLEAVE, SWIZZLE, L2_PROMOTION, OOB_FILL, DATA_TYPE, WIDE_MODE, ENUMS };

/* Indices of the names of attributes in State.names. The names are interned, which makes CPython's
 * attribute lookup fast. */
enum { DTYPE, DLPACK_DEVICE, NAMES };

enum { MAX_MEMBERS = 16, KNOWN_TARGETS = 8 };

/* An enum. `names` is a dict {name: member}, which also has the names of cuda.h. `interned[v]` is
 * the name of the member with the value v. These names are interned strings. Python interns the
 * string literals of its code, too, so names are first compared by address. */
typedef struct {
  PyTypeObject *type;
  PyObject *names;
  PyObject *interned[MAX_MEMBERS];
} Words;

/* A Target and its numbers, which never change because a Target is immutable. */
typedef struct {
  PyObject *object;
  TmaDlpackTarget target;
} KnownTarget;

/* Functions of DLPack's C exchange API [dlpack.h 1.3]. */
typedef int (*FillTensor)(void *object, TmaDlpackTensor *out);
typedef int (*ExportTensor)(void *object, TmaDlpackManagedVersioned **out);

/* How to read tensors of one Python type. The members are set when the first tensor of the type is
 * read. Pointers that are not used for the type are NULL. */
typedef struct {
  PyTypeObject *type;
  PyCFunction is_neg;         /* torch: the C function of the method is_neg */
  PyObject *dtypes;           /* torch before 2.10: {torch.dtype: DLDataType} */
  FillTensor fill;            /* torch: function of the exchange API */
  ExportTensor export_tensor; /* other types with the exchange API: function of this API */
  PyObject *on_host;          /* other types: function that calls `__dlpack__` of a host tensor */
  PyObject *on_cuda;          /* other types: function that calls `__dlpack__` of a CUDA tensor */
  PyObject *platform;         /* JAX: the method that returns the name of the platform */
  PyObject *is_deleted;       /* JAX: called first, because platform() of a deleted array is unsafe */
  int only_host, only_cuda;   /* NumPy, CuPy: 1, because the device is known without a call */
  int is_jax;                 /* JAX: arrays are read-only, but their capsules lack the flag */
} Producer;

/* The known libraries together have fewer types of tensors than this maximum. If a program uses
 * more types, tensors of the additional types fall back to Python. */
enum { MAX_PRODUCERS = 16 };

typedef struct {
  PyTypeObject *quick_type;  /* the class of quick.h */
  PyTypeObject *batch_type;  /* the class of batch.h */
  PyTypeObject *judged_type; /* the class of judged.h */
  PyTypeObject *map_type;    /* TensorMap */
  SpareMap *spare;
  PyTypeObject *numpy_integer, *numpy_array, *target_type, *torch_size;
  PyObject *presets;    /* {name: Target} */
  PyObject *default_target;
  PyObject *allowable;  /* {id: row} of TMA_DLPACK_ALLOWABLE */
  PyObject *readers[3]; /* by kind of map: {argument: index in `readers` of options.h} */
  PyObject *no_swizzle; /* the default of the argument `swizzle`, see read_swizzle */
  PyObject *accepted, *refused; /* functions of make/build.py, imported on first use */
  KnownTarget targets[KNOWN_TARGETS]; /* the Targets that were read last */
  unsigned target_count; /* number of Targets that were read */
  Words words[ENUMS];
  PyObject *exports[EXPORTS];
  PyObject *names[NAMES];
  PyObject *libcudacxx, *documented, *driver; /* interned names of the sets of rules */
  PyObject *torch_uint8, *torch_int8;
  int producer_count;
  Producer producers[MAX_PRODUCERS]; /* never removed, so pointers stay valid */
} State;

/* The objects of the state, except for the objects in arrays. */
#define STATE_OBJECTS(OBJECT) \
  OBJECT(quick_type) OBJECT(batch_type) OBJECT(judged_type) OBJECT(map_type) OBJECT(numpy_integer) \
  OBJECT(numpy_array) OBJECT(target_type) OBJECT(torch_size) OBJECT(presets) OBJECT(default_target) \
  OBJECT(allowable) OBJECT(no_swizzle) OBJECT(accepted) OBJECT(refused) OBJECT(libcudacxx) \
  OBJECT(documented) OBJECT(driver) OBJECT(torch_uint8) OBJECT(torch_int8)

/* Return whether setup() was called and the interpreter is not shutting down. */
static int is_ready(const State *state) { return state->map_type != NULL; }

#endif /* TMA_DLPACK_STATE_H */
