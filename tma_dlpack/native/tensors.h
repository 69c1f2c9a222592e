/* tensors.h: read a tensor of a known library as a DLTensor, and copy its shape and strides
 * immediately.
 *
 * If the type of a tensor has DLPack's C exchange API, as torch.Tensor has, the tensor is read
 * through this API. All other tensors of known libraries are read by one call of `__dlpack__`. The
 * capsule of this call is not consumed, so the destructor of the capsule runs the deleter. Tensors
 * of unknown libraries are read by dlpack/producer.py, with more checks. dlpack/frameworks.py has
 * the arguments of `__dlpack__` for each library.
 */

#ifndef TMA_DLPACK_TENSORS_H
#define TMA_DLPACK_TENSORS_H

#include "options.h"

/* A tensor as its producer exported it, with copies of the shape and the strides. */
typedef struct {
  TmaDlpackTensor tensor;
  int64_t shape[TMA_DLPACK_MAX_RANK], strides[TMA_DLPACK_MAX_RANK];
  uint64_t flags;
} View;

/* Copy the shape and the strides of `view->tensor` while the producer's memory is valid. Return 0
 * to fall back to Python. */
static int keep_view(View *view, uint64_t flags) {
  TmaDlpackTensor *tensor = &view->tensor;
  int rank = tensor->ndim;
  if (rank < 1 || rank > TMA_DLPACK_MAX_RANK || tensor->shape == NULL) return 0;
  for (int i = 0; i < rank; ++i) {
    view->shape[i] = tensor->shape[i];
    if (tensor->strides != NULL) view->strides[i] = tensor->strides[i];
  }
  tensor->shape = view->shape;
  if (tensor->strides != NULL) tensor->strides = view->strides;
  view->flags = flags;
  return !(flags & TMA_DLPACK_SUBBYTE_PADDED && tensor->dtype.bits < 8);
}

/* ---- the way to read tensors of a type ----------------------------------------------------------- */

/* The functions of this section run Python code, which may raise KeyboardInterrupt. swallowed()
 * does not clear this exception. While the exception is set, all further functions of this section
 * do nothing, and learn() returns with the exception. */

/* Return a new reference to an attribute of any object, or NULL if the object lacks the
 * attribute. */
static PyObject *attribute_of(PyObject *object, const char *attribute) {
  PyObject *found = PyErr_Occurred() ? NULL : PyObject_GetAttrString(object, attribute);
  swallowed();
  return found;
}

/* Return a new reference to an attribute of an imported module, or NULL. */
static PyObject *attribute_of_module(const char *module_name, const char *attribute) {
  PyObject *name = PyErr_Occurred() ? NULL : PyUnicode_FromString(module_name);
  PyObject *module = name == NULL ? NULL : PyImport_GetModule(name);
  PyObject *found = module == NULL ? NULL : attribute_of(module, attribute);
  swallowed();
  Py_XDECREF(name);
  Py_XDECREF(module);
  return found;
}

/* Return a new reference to an attribute of a module of this package, or NULL; import the module if
 * necessary. */
static PyObject *attribute_of_own_module(const char *module_name, const char *attribute) {
  PyObject *module = PyErr_Occurred() ? NULL : PyImport_ImportModule(module_name);
  PyObject *found = module == NULL ? NULL : attribute_of(module, attribute);
  swallowed();
  Py_XDECREF(module);
  return found;
}

/* Read the type's DLPackExchangeAPI as a table of 64-bit words [dlpack.h 1.3]. Word 0 is the
 * version (u32 major, u32 minor). Word 3 is managed_tensor_from_py_object_no_sync. Word 5 is
 * dltensor_from_py_object_no_sync, which may be NULL. Return 0 if the type has no table of version
 * 1. */
static int read_exchange_api(PyTypeObject *type, Producer *producer) {
  PyObject *capsule = attribute_of((PyObject *)type, "__dlpack_c_exchange_api__");
  void **table = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  int usable = table != NULL && *(uint32_t *)table == 1;
  if (usable) {
    memcpy(&producer->export_tensor, &table[3], sizeof table[3]);
    memcpy(&producer->fill, &table[5], sizeof table[5]);
  }
  swallowed();
  /* The table is static, so it outlives the capsule [dlpack.h: "stays alive throughout the
   * program"]. */
  Py_XDECREF(capsule);
  return usable;
}

/* Return {torch.dtype: DLDataType}. torch before 2.10 needs this dict, because it has no exchange
 * API. Return NULL on ROCm. */
static PyObject *torch_dtypes(void) {
  PyObject *version = attribute_of_module("torch.version", "hip");
  int on_rocm = version != Py_None;
  Py_XDECREF(version);
  PyObject *table = on_rocm ? NULL
                            : attribute_of_own_module("tma_dlpack.dlpack.torch_tensor", "torch_dtype_table");
  PyObject *types = table == NULL ? NULL : PyObject_CallFunctionObjArgs(table, NULL);
  swallowed();
  Py_XDECREF(table);
  return types;
}

/* Return the C function of a built-in method without arguments, or NULL. The C function stays
 * valid as long as the type of the object exists. Each call for a torch tensor calls the method
 * `is_neg`. To call the C function takes a third less time than to call the method. */
static PyCFunction method_function(PyObject *object, const char *name) {
  PyObject *method = attribute_of(object, name);
  PyCFunction function = NULL;
  if (method != NULL && PyCFunction_CheckExact(method) && PyCFunction_GetSelf(method) == object &&
      PyCFunction_GetFlags(method) == METH_NOARGS)
    function = PyCFunction_GetFunction(method);
  Py_XDECREF(method);
  return function;
}

/* Find out how to read a torch tensor. Return 0 if the tensor is not a torch.Tensor or a
 * torch.nn.Parameter. Do not accept other subclasses, because an object of a subclass may be a fake
 * tensor or wrap another tensor. */
static int learn_torch(State *state, PyObject *tensor, Producer *producer) {
  PyObject *tensor_type = attribute_of_module("torch", "Tensor");
  if (tensor_type == NULL) return 0;
  PyObject *parameter_type = attribute_of_module("torch.nn", "Parameter");
  PyObject *own = (PyObject *)Py_TYPE(tensor);
  int is_torch = own == tensor_type || own == parameter_type;
  if (is_torch && (!read_exchange_api((PyTypeObject *)tensor_type, producer) || !producer->fill)) {
    producer->dtypes = torch_dtypes();
    is_torch = producer->dtypes != NULL;
  }
  if (is_torch) {
    producer->is_neg = method_function(tensor, "is_neg");
    if (state->torch_uint8 == NULL) state->torch_uint8 = attribute_of_module("torch", "uint8");
    if (state->torch_int8 == NULL) state->torch_int8 = attribute_of_module("torch", "int8");
    if (state->torch_size == NULL)
      state->torch_size = (PyTypeObject *)attribute_of_module("torch", "Size");
  }
  Py_XDECREF(parameter_type);
  Py_DECREF(tensor_type);
  return is_torch && producer->is_neg != NULL && state->torch_uint8 != NULL;
}

/* Return whether a framework has a flag. `row` is the framework's row in dlpack/frameworks.py, or
 * NULL. */
static int row_has(PyObject *row, const char *flag) {
  PyObject *value = row == NULL ? NULL : attribute_of(row, flag);
  int has = value != NULL && PyObject_IsTrue(value) == 1;
  swallowed();
  Py_XDECREF(value);
  return has;
}

/* Return whether the type itself defines the exchange API. Do not use an inherited API, because it
 * may not support the subclass. */
static int owns_exchange_api(PyTypeObject *type) {
  PyObject *own = attribute_of((PyObject *)type, "__dict__");
  PyObject *api = own == NULL ? NULL : PyMapping_GetItemString(own, "__dlpack_c_exchange_api__");
  swallowed();
  Py_XDECREF(own);
  Py_XDECREF(api);
  return api != NULL;
}

/* Find out how to read a tensor of another library than torch. If the type has the exchange API,
 * use this API. Otherwise use `__dlpack__`. Return 0 for an unknown type. A type is known if it is
 * NumPy's array, or if the row of its framework has the flag in_c. */
static int learn_dlpack(const State *state, PyTypeObject *type, Producer *producer) {
  PyObject *of = attribute_of_own_module("tma_dlpack.dlpack.frameworks", "framework_of");
  PyObject *row = of == NULL ? NULL : PyObject_CallFunctionObjArgs(of, (PyObject *)type, NULL);
  swallowed();
  int is_jax = row_has(row, "immutable");
  producer->only_host = type == state->numpy_array;
  producer->only_cuda = row_has(row, "only_cuda");
  producer->is_jax = is_jax;
  int known = producer->only_host || row_has(row, "in_c");
  Py_XDECREF(of);
  Py_XDECREF(row);
  if (!known) return 0;
  if (owns_exchange_api(type) && read_exchange_api(type, producer) && producer->export_tensor != NULL)
    return 1;
  producer->on_cuda = state->exports[is_jax ? EXPORT_ON_CUDA_OF_JAX : EXPORT_ON_CUDA];
  Py_INCREF(producer->on_cuda);
  if (is_jax) { /* Do not pass max_version, because it makes JAX's __dlpack__ slower. */
    producer->on_host = attribute_of((PyObject *)type, "__dlpack__");
    producer->platform = attribute_of((PyObject *)type, "platform");
    producer->is_deleted = attribute_of((PyObject *)type, "is_deleted");
    return producer->on_host != NULL && producer->platform != NULL && producer->is_deleted != NULL;
  }
  producer->on_host = state->exports[EXPORT];
  Py_INCREF(producer->on_host);
  return 1;
}

static void forget_producer(Producer *producer) {
  Py_CLEAR(producer->type);
  Py_CLEAR(producer->dtypes);
  Py_CLEAR(producer->on_host);
  Py_CLEAR(producer->on_cuda);
  Py_CLEAR(producer->platform);
  Py_CLEAR(producer->is_deleted);
}

static const Producer *known_producer(const State *state, const PyTypeObject *type) {
  for (int i = 0; i < state->producer_count; ++i)
    if (state->producers[i].type == type) return &state->producers[i];
  return NULL;
}

/* Find out how to read the tensors of a type, and add the result to the state. If the result is
 * NULL, the call falls back to Python, and an exception may be set. */
static const Producer *learn(State *state, PyObject *tensor) {
  PyTypeObject *type = Py_TYPE(tensor);
  Producer learned = {0};
  Py_INCREF(type);
  learned.type = type;
  int chosen = learn_torch(state, tensor, &learned) || learn_dlpack(state, type, &learned);
  /* The two functions have run Python code, which may have called learn() for other types or for
   * this type. */
  const Producer *known = known_producer(state, type);
  if (chosen && !PyErr_Occurred() && known == NULL && state->producer_count < MAX_PRODUCERS) {
    state->producers[state->producer_count] = learned;
    return &state->producers[state->producer_count++];
  }
  forget_producer(&learned);
  return PyErr_Occurred() ? NULL : known;
}

static const Producer *producer_of(State *state, PyObject *tensor) {
  const Producer *known = known_producer(state, Py_TYPE(tensor));
  if (known != NULL || state->producer_count == MAX_PRODUCERS) return known;
  return learn(state, tensor);
}

/* ---- reading a tensor ---------------------------------------------------------------------------- */

/* Return whether a torch tensor has the dtype uint8 or int8. torch exports types of less than 8
 * bits, such as int4, as 8-bit integers, so the exported type is not enough. */
static int is_whole_byte(const State *state, PyObject *tensor) {
  PyObject *dtype = PyObject_GetAttr(tensor, state->names[DTYPE]);
  int whole = dtype != NULL && (dtype == state->torch_uint8 || dtype == state->torch_int8);
  Py_XDECREF(dtype);
  return whole;
}

/* Read a torch tensor through the exchange API. The exchange API does not report lazy negation and
 * lazy conjugation. So negated tensors and all complex tensors fall back to Python. */
static int read_torch(const State *state, const Producer *producer, PyObject *tensor, View *view) {
  PyObject *negated = producer->is_neg(tensor, NULL);
  int plain = negated == Py_False;
  Py_XDECREF(negated);
  if (!plain || producer->fill(tensor, &view->tensor) != 0 || !keep_view(view, 0)) return 0;
  TmaDlpackDataType dtype = view->tensor.dtype;
  int byte_integer = dtype.code <= TMA_DLPACK_UINT && dtype.bits == 8;
  return dtype.code != TMA_DLPACK_COMPLEX && (!byte_integer || is_whole_byte(state, tensor));
}

/* Copy a tuple of integers, such as a torch.Size. Return the number of integers, or -1 to fall back
 * to Python. */
static int copy_integers(PyObject *tuple, int64_t *out) {
  if (tuple == NULL || !PyTuple_Check(tuple) || PyTuple_Size(tuple) > TMA_DLPACK_MAX_RANK) return -1;
  int count = (int)PyTuple_Size(tuple);
  for (int i = 0; i < count; ++i) {
    out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (out[i] == -1 && PyErr_Occurred()) return -1;
  }
  return count;
}

/* Call a method that returns one integer or a tuple of integers, and copy the integers. Return
 * their number, or -1 to fall back to Python. */
static int copy_method(PyObject *tensor, const char *method, int64_t *out) {
  PyObject *answer = PyObject_CallMethod(tensor, method, NULL);
  int count = answer != NULL && PyLong_Check(answer) ? 1 : copy_integers(answer, out);
  if (answer != NULL && PyLong_Check(answer)) *out = (int64_t)PyLong_AsUnsignedLongLong(answer);
  Py_XDECREF(answer);
  return count;
}

/* Read a tensor of torch before 2.10 from the attributes that dlpack/torch_tensor.py also reads. */
static int read_torch_attributes(const State *state, const Producer *producer, PyObject *tensor,
                                 View *view) {
  int64_t ordinal = 0, address = 0;
  PyObject *negated = producer->is_neg(tensor, NULL);
  PyObject *dtype = negated == NULL ? NULL : PyObject_GetAttr(tensor, state->names[DTYPE]);
  PyObject *known = dtype == NULL ? NULL : PyDict_GetItemWithError(producer->dtypes, dtype);
  PyObject *shape = known == NULL ? NULL : PyObject_GetAttrString(tensor, "shape");
  PyObject *device = shape == NULL ? NULL : PyObject_GetAttrString(tensor, "device");
  PyObject *kind = device == NULL ? NULL : PyObject_GetAttrString(device, "type");
  int64_t type[TMA_DLPACK_MAX_RANK] = {0};
  int on_cuda = kind != NULL && is_word(kind, "cuda"), on_host = kind != NULL && is_word(kind, "cpu");
  int rank = copy_integers(shape, view->shape);
  int read = negated == Py_False && (on_cuda || on_host) && rank > 0 &&
             copy_method(tensor, "stride", view->strides) == rank &&
             copy_method(tensor, "data_ptr", &address) == 1 && copy_integers(known, type) == 3 &&
             type[0] != TMA_DLPACK_COMPLEX;
  if (read && on_cuda) {
    PyObject *index = PyObject_GetAttrString(device, "index");
    ordinal = index == NULL ? -1 : PyLong_AsLongLong(index);
    Py_XDECREF(index);
  }
  memset(&view->tensor, 0, sizeof view->tensor);
  view->tensor.data = (void *)(uintptr_t)address;
  view->tensor.device.device_type = on_cuda ? TMA_DLPACK_CUDA : TMA_DLPACK_CPU;
  view->tensor.device.device_id = (int32_t)ordinal;
  view->tensor.ndim = rank;
  view->tensor.dtype.code = (uint8_t)type[0];
  view->tensor.dtype.bits = (uint8_t)type[1];
  view->tensor.dtype.lanes = (uint16_t)type[2];
  view->tensor.shape = view->shape;
  view->tensor.strides = view->strides;
  view->flags = 0;
  Py_XDECREF(negated);
  Py_XDECREF(dtype);
  Py_XDECREF(shape);
  Py_XDECREF(device);
  Py_XDECREF(kind);
  return read && PyErr_Occurred() == NULL;
}

/* Read a tensor of another library than torch through the exchange API. Use the function that
 * exports a managed tensor, because only a managed tensor has the read-only flag. */
static int read_exported(const Producer *producer, PyObject *tensor, View *view) {
  TmaDlpackManagedVersioned *managed = NULL;
  if (producer->export_tensor(tensor, &managed) != 0 || managed == NULL) return 0;
  view->tensor = managed->tensor;
  int kept = managed->major == 1 && keep_view(view, managed->flags);
  if (managed->deleter != NULL) managed->deleter(managed);
  return kept;
}

static int read_capsule(const Producer *producer, PyObject *capsule, View *view) {
  /* JAX arrays are read-only, but JAX does not set the flag in the capsule. */
  uint64_t read_only = producer->is_jax ? TMA_DLPACK_READ_ONLY : 0;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const TmaDlpackManagedVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    view->tensor = managed->tensor;
    return managed->major == 1 && keep_view(view, managed->flags | read_only);
  }
  const TmaDlpackManaged *managed = PyCapsule_GetPointer(capsule, "dltensor");
  if (managed == NULL) return 0; /* The capsule was consumed, or has another name. */
  view->tensor = managed->tensor;
  return keep_view(view, read_only);
}

/* Return 1 for a tensor on a CUDA device, 0 for a host tensor, and -1 to fall back to Python. All
 * arrays of NumPy are on the host, and all arrays of CuPy are on a GPU. For JAX, read the platform,
 * which is "cpu" or "gpu", because JAX's `__dlpack_device__` is slow: it takes half as long as
 * `__dlpack__`. The platform does not show pinned memory or a GPU of another vendor, so the device
 * is read from the capsule later. */
static int lies_on_cuda(const State *state, const Producer *producer, PyObject *tensor) {
  if (producer->only_host) return 0;
  if (producer->only_cuda) return 1;
  /* To call the function of JAX's type takes half the time of a call of the array's method. */
  if (producer->is_jax) {
    PyObject *deleted = PyObject_CallFunctionObjArgs(producer->is_deleted, tensor, NULL);
    Py_XDECREF(deleted);
    if (deleted != Py_False) return -1;
    PyObject *platform = PyObject_CallFunctionObjArgs(producer->platform, tensor, NULL);
    int on_cuda = platform == NULL          ? -1
                  : is_word(platform, "cpu") ? 0
                  : is_word(platform, "gpu") ? 1
                                             : -1;
    Py_XDECREF(platform);
    return on_cuda;
  }
  PyObject *device = PyObject_CallMethodObjArgs(tensor, state->names[DLPACK_DEVICE], NULL);
  PyObject *first = device == NULL ? NULL : PySequence_GetItem(device, 0);
  PyObject *number = first == NULL ? NULL : PyNumber_Long(first);
  long type = number == NULL ? -1 : PyLong_AsLong(number);
  Py_XDECREF(device);
  Py_XDECREF(first);
  Py_XDECREF(number);
  return type == TMA_DLPACK_CUDA                                  ? 1
         : type == TMA_DLPACK_CPU || type == TMA_DLPACK_CUDA_HOST ? 0
                                                                  : -1;
}

/* 1 while this thread runs a method of a tensor, else 0. The method may be written in Python and
 * make another map. The call for this other map falls back to the Python function, so that Python
 * detects an endless recursion. */
static _Thread_local int in_producer;

static int read_dlpack(const State *state, const Producer *producer, PyObject *tensor, View *view) {
  if (in_producer) return 0;
  in_producer = 1;
  int on_cuda = lies_on_cuda(state, producer, tensor), kept = 0;
  PyObject *ask = on_cuda ? producer->on_cuda : producer->on_host;
  PyObject *capsule = on_cuda < 0 ? NULL : PyObject_CallFunctionObjArgs(ask, tensor, NULL);
  in_producer = 0;
  if (capsule != NULL) kept = read_capsule(producer, capsule, view);
  Py_XDECREF(capsule);
  return kept;
}

/* Read a tensor. Return 1 if the tensor was read. Return 0 to fall back to Python, possibly with an
 * exception that the caller clears. */
static int read_tensor(State *state, PyObject *tensor, View *view) {
  const Producer *producer = producer_of(state, tensor);
  if (producer == NULL) return 0;
  if (producer->dtypes != NULL) return read_torch_attributes(state, producer, tensor, view);
  if (producer->is_neg != NULL) return read_torch(state, producer, tensor, view);
  if (producer->export_tensor != NULL) return read_exported(producer, tensor, view);
  return read_dlpack(state, producer, tensor, view);
}

#endif /* TMA_DLPACK_TENSORS_H */
