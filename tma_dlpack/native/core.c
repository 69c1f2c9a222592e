/* tma_dlpack.native._core: the base class of TensorMap, and the functions that make and check maps.
 *
 *   tensor, options  ->  read  ->  describe  ->  judge  ->  encode  ->  a TensorMap
 *
 * A *verb* is the C version of a Python function, for example "tiled" for make_tma_descriptor. If a
 * verb does not support a call, for example because an argument has an unusual type, the call falls
 * back to the Python function. If a method of the tensor has raised an exception, the exception is
 * cleared first, because the Python function calls the method again and reports the exception.
 * MemoryError is not cleared, and neither is an exception that is not derived from Exception, such
 * as KeyboardInterrupt.
 *
 * If rules refuse a call for one tensor, C makes a JudgedCall (judged.h), which is the object of a
 * refused call. The exception or the Report stores this object. Python computes the text of the
 * exception or Report from the object when the text is read. C accepts only calls that Python
 * accepts. For the same call, C and Python make maps with equal bytes.
 *
 *   map.h      defines the base class of TensorMap
 *   quick.h    binds the arguments of a call
 *   options.h  reads the options
 *   tensors.h  reads the tensor
 *   bare.h     makes the map of a call without a tensor
 *   calls.h    makes the map of a call for a tensor
 *   batch.h    makes the maps of many tensors
 *   judged.h   has the object of a refused call
 *
 * include/tma_dlpack_make.h describes, judges and encodes calls. include/tma_dlpack_driver.h calls
 * the driver. The GIL protects all state.
 */

#include "batch.h"
#include "map.h"
#include "quick.h"

static State *state_of(PyObject *module) { return (State *)PyModule_GetState(module); }

/* Clear the current exception and return None, which means "fall back to Python". If the exception
 * must not be cleared (see swallowed() in options.h), return NULL instead. */
static PyObject *fall_back(void) {
  if (swallowed() < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- batches ------------------------------------------------------------------------------------- */

PyDoc_STRVAR(accept_many_doc,
             "accept_many(tensors, address, options, /)\n--\n\n"
             "Encode the maps of a tuple of tensors, and return a Batch; None to fall back to Python.\n"
             "The maps are written to `address`, which is aligned to 128 bytes, one after the other.");

static PyObject *accept_many(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  State *state = state_of(module);
  Options options;
  start_options(&options, TMA_DLPACK_TILED);
  if (!is_ready(state) || count != 3 || !PyTuple_CheckExact(args[0]) || !PyDict_CheckExact(args[2]) ||
      !read_named(state, args[2], &options))
    return fall_back();
  unsigned char *rows = PyLong_AsVoidPtr(args[1]);
  if (rows == NULL || (uintptr_t)rows % TMA_DLPACK_ALIGNMENT_BYTES != 0) return fall_back();
  Batch *batch = new_batch(state, args[0], &options);
  if (batch == NULL || fill_batch(state, batch, &options, rows)) return (PyObject *)batch;
  Py_DECREF(batch);
  return fall_back();
}

/* ---- another address ----------------------------------------------------------------------------- */

/* Return whether a tensor has exactly the layout of a map's tensor. The stride of a dimension with
 * the extent 1 has no meaning. But if such strides differ, the result is 0, and Python compares the
 * layouts again. */
static int same_layout(const Record *call, const View *view) {
  size_t bytes = call->rank * sizeof call->shape[0];
  return !call->is_bare && view->tensor.ndim == call->rank &&
         (view->tensor.strides != NULL) == call->has_strides &&
         memcmp(&view->tensor.device, &call->device, sizeof call->device) == 0 &&
         memcmp(&view->tensor.dtype, &call->dtype, sizeof call->dtype) == 0 &&
         memcmp(view->shape, call->shape, bytes) == 0 &&
         (!call->has_strides || memcmp(view->strides, call->strides, bytes) == 0);
}

PyDoc_STRVAR(accept_address_doc,
             "accept_address(tensor_map, tensor_or_int, /)\n--\n\n"
             "Return a map for another tensor of this layout or for an address (with_address);\n"
             "None to fall back to Python.");

static PyObject *accept_address(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  State *state = state_of(module);
  if (count != 2 || Py_TYPE(args[0]) != state->map_type) return fall_back();
  MapStorage *old = (MapStorage *)args[0];
  int64_t number = 0;
  View view;
  int is_number = PyLong_CheckExact(args[1]);
  if (!old->has_record) return fall_back();
  if (is_number ? !read_integer(state, args[1], &number)
                : !read_tensor(state, args[1], &view) || !same_layout(&old->record, &view))
    return fall_back();
  uint64_t address = (uint64_t)number;
  if (!is_number) address = (uint64_t)(uintptr_t)view.tensor.data + view.tensor.byte_offset;
  /* The rules have accepted the option `offset`, so it is a whole number of bytes. */
  if (!is_number && old->rare != NULL)
    address += (uint64_t)(old->rare->o.offset * view.tensor.dtype.bits * view.tensor.dtype.lanes / 8);
  TmaDlpackDescribed c;
  read_fields(old, &c);
  uint64_t alignment =
      c.interleave == TMA_DLPACK_INTERLEAVE_32B || tma_dlpack_type_row((int)c.data_type)->is_padded ? 32 : 16;
  if (address == 0 || address % alignment != 0 || address >= (uint64_t)TMA_DLPACK_ADDRESS_END)
    return fall_back();
  MapStorage *map = new_map(state->map_type, state->spare, is_number ? NULL : args[1], address);
  if (map == NULL) return NULL;
  map->rare = copy_rare(old->rare);
  if ((old->rare != NULL && map->rare == NULL) || !keep_fields(&map->fields, old->fields)) {
    Py_DECREF(map);
    return NULL;
  }
  map->record = old->record;
  map->launchable = old->launchable;
  map->has_bytes = old->has_bytes;
  if (!is_number) map->record.flags = (uint8_t)view.flags;
  /* The new map has no tensor, so store the type of the tensor that the old map was checked for. */
  else map->producer = old->tensor != NULL ? (PyObject *)Py_TYPE(old->tensor) : old->producer;
  Py_XINCREF(map->producer);
  if (!old->has_bytes) return (PyObject *)map;
  const void *bytes = old->data != NULL ? (void *)PyBytes_AsString(old->data) : map_bytes(old);
  memcpy(map_bytes(map), bytes, TMA_DLPACK_MAP_BYTES);
  /* The address is the only field that cuTensorMapReplaceAddress changes. */
  memcpy(map_bytes(map), &address, sizeof address);
  return (PyObject *)map;
}

/* ---- functions that are tried in C first --------------------------------------------------------- */

PyDoc_STRVAR(quick_text,
             "quick(function, verb, parameters, required, positional, /)\n--\n\n"
             "Return a callable that tries `verb` in C before it calls a Python function.\n"
             "`parameters` is {name: default}, with `required` for a parameter without a default.\n"
             "The first `positional` parameters may have positional arguments.");

static PyObject *quick(PyObject *module, PyObject *args) {
  PyObject *function, *parameters, *required;
  const char *name;
  int positional;
  if (!PyArg_ParseTuple(args, "OsO!Oi:quick", &function, &name, &PyDict_Type, &parameters,
                        &required, &positional))
    return NULL;
  for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; ++i)
    if (strcmp(verbs[i].name, name) == 0)
      return new_quick(module, &verbs[i], function, parameters, required, positional);
  return PyErr_Format(PyExc_ValueError, "there is no verb %s", name);
}

/* ---- the spare map ------------------------------------------------------------------------------ */

/* Allocate the struct SpareMap. If out of memory, all maps are made without spare memory. */
static void open_spare(State *state) {
  state->spare = PyMem_Calloc(1, sizeof *state->spare);
  if (state->spare != NULL) state->spare->owners = 1;
}

static void close_spare(State *state) {
  SpareMap *spare = state->spare;
  if (spare == NULL) return;
  if (spare->map != NULL) PyObject_GC_Del(spare->map);
  spare->map = NULL;
  spare->closed = 1;
  state->spare = NULL;
  leave_spare(spare);
}

/* ---- setting up ---------------------------------------------------------------------------------- */

PyDoc_STRVAR(setup_doc,
             "setup(map_type, function_type, enums, names, exports, numpy_integer, numpy_array,\n"
             "      presets, default_target, allowable, no_swizzle, /)\n--\n\n"
             "Set the classes and objects that the module uses: TensorMap; the base class of the\n"
             "callables that `quick` returns; the enums of interleave, swizzle, L2 promotion, fill, data\n"
             "type and wide mode; a dict {name: member} for each enum; three functions that call\n"
             "`__dlpack__` of host tensors, CUDA tensors and JAX's CUDA arrays; NumPy's integer and array\n"
             "classes; {name: Target}; the default Target; {id: row} of the rules that `allow` may name;\n"
             "and the default of `swizzle`.");

/* Return whether an attribute of a class equals a number. */
static int has_number(PyTypeObject *type, const char *attribute, Py_ssize_t number) {
  PyObject *found = PyObject_GetAttrString((PyObject *)type, attribute);
  int has = found != NULL && PyLong_AsSsize_t(found) == number;
  Py_XDECREF(found);
  PyErr_Clear();
  return has;
}

/* Return whether a class is derived from MapStorage and its objects have the size of MapStorage. If
 * not, set an exception. */
static int is_storage(PyTypeObject *type) {
  PyObject *module = PyImport_ImportModule("tma_dlpack.native._core");
  PyObject *base = module == NULL ? NULL : PyObject_GetAttrString(module, "MapStorage");
  int made_from_it = base != NULL && PyType_IsSubtype(type, (PyTypeObject *)base) &&
                     has_number(type, "__basicsize__", sizeof(MapStorage)) &&
                     has_number(type, "__dictoffset__", 0);
  if (base != NULL && !made_from_it)
    PyErr_SetString(PyExc_TypeError, "the class of maps is not made from MapStorage alone");
  Py_XDECREF(module);
  Py_XDECREF(base);
  return made_from_it;
}

/* Store an enum, its names, and an interned name for each value. Several names in the dict may have
 * the same value. The first of these names is the member's own name. Only this name is interned. */
static int set_words(Words *words, PyObject *type, PyObject *names) {
  if (!PyType_Check(type) || !PyDict_CheckExact(names)) {
    PyErr_SetString(PyExc_TypeError, "an enum is a class, and its names a dict");
    return 0;
  }
  Py_INCREF(type);
  Py_INCREF(names);
  words->type = (PyTypeObject *)type;
  words->names = names;
  PyObject *name, *member;
  Py_ssize_t at = 0;
  while (PyDict_Next(names, &at, &name, &member)) {
    long value = PyLong_AsLong(member);
    if (value < 0 || value >= MAX_MEMBERS || words->interned[value] != NULL) continue;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    words->interned[value] = name;
  }
  return PyErr_Occurred() == NULL;
}

static void keep_object(void *slot, PyObject *object) {
  Py_INCREF(object);
  memcpy(slot, &object, sizeof object);
}

static PyObject *setup(PyObject *module, PyObject *args) {
  State *state = state_of(module);
  PyObject *map_type, *function_type, *enums, *names, *exports, *integer, *array, *presets,
      *default_target, *allowable, *no_swizzle;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!O!O!OO!O:setup", &PyType_Type, &map_type, &PyType_Type,
                        &function_type, &PyTuple_Type, &enums, &PyTuple_Type, &names, &PyTuple_Type,
                        &exports, &PyType_Type, &integer, &PyType_Type, &array, &PyDict_Type,
                        &presets, &default_target, &PyDict_Type, &allowable, &no_swizzle))
    return NULL;
  if (PyTuple_Size(enums) != ENUMS || PyTuple_Size(names) != ENUMS ||
      PyTuple_Size(exports) != EXPORTS || state->map_type != NULL) {
    PyErr_SetString(PyExc_ValueError, "setup is called once, with an entry for each enum and export");
    return NULL;
  }
  if (!is_storage((PyTypeObject *)map_type)) return NULL;
  PyObject *bases = PyTuple_Pack(1, function_type);
  if (bases == NULL) return NULL;
  Py_XDECREF(state->quick_type); /* An earlier setup() that failed may have set it. */
  state->quick_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &quick_spec, bases);
  Py_DECREF(bases);
  if (state->quick_type == NULL) return NULL;
  open_spare(state);
  for (int i = 0; i < ENUMS; ++i)
    if (!set_words(&state->words[i], PyTuple_GetItem(enums, i), PyTuple_GetItem(names, i)))
      return NULL;
  for (int i = 0; i < EXPORTS; ++i) keep_object(&state->exports[i], PyTuple_GetItem(exports, i));
  keep_object(&state->numpy_integer, integer);
  keep_object(&state->numpy_array, array);
  keep_object(&state->presets, presets);
  keep_object(&state->default_target, default_target);
  keep_object(&state->target_type, (PyObject *)Py_TYPE(default_target));
  keep_object(&state->allowable, allowable);
  keep_object(&state->no_swizzle, no_swizzle);
  keep_object(&state->map_type, map_type);
  Py_RETURN_NONE;
}

/* Visit the objects of the state. STATE_OBJECTS applies a macro to each object of the state that is
 * not in an array. */
static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  State *state = state_of(module);
#define VISIT_OBJECT(name) Py_VISIT(state->name);
  STATE_OBJECTS(VISIT_OBJECT)
  for (int i = 0; i < KNOWN_TARGETS; ++i) Py_VISIT(state->targets[i].object);
  for (int i = 0; i < ENUMS; ++i) {
    Py_VISIT(state->words[i].type);
    Py_VISIT(state->words[i].names);
  }
  for (int i = 0; i < state->producer_count; ++i) {
    Py_VISIT(state->producers[i].type);
    Py_VISIT(state->producers[i].dtypes);
    Py_VISIT(state->producers[i].on_host);
    Py_VISIT(state->producers[i].on_cuda);
    Py_VISIT(state->producers[i].platform);
    Py_VISIT(state->producers[i].is_deleted);
  }
  for (int i = 0; i < EXPORTS; ++i) Py_VISIT(state->exports[i]);
  return 0;
}

static int module_clear(PyObject *module) {
  State *state = state_of(module);
  close_spare(state); /* Close the spare map before its class is released. */
#define CLEAR_OBJECT(name) Py_CLEAR(state->name);
  STATE_OBJECTS(CLEAR_OBJECT)
  for (int i = 0; i < KNOWN_TARGETS; ++i) Py_CLEAR(state->targets[i].object);
  for (int i = 0; i < NAMES; ++i) Py_CLEAR(state->names[i]);
  for (int kind = 0; kind < 3; ++kind) Py_CLEAR(state->readers[kind]);
  for (int i = 0; i < ENUMS; ++i) {
    Py_CLEAR(state->words[i].type);
    Py_CLEAR(state->words[i].names);
    for (int k = 0; k < MAX_MEMBERS; ++k) Py_CLEAR(state->words[i].interned[k]);
  }
  for (int i = 0; i < EXPORTS; ++i) Py_CLEAR(state->exports[i]);
  while (state->producer_count > 0) forget_producer(&state->producers[--state->producer_count]);
  return 0;
}

static void module_free(void *module) { module_clear(module); }

#define VERB(name, text) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, text}

PyDoc_STRVAR(described_map_doc, "described_map(tensor_map, /)\n--\n\n"
                                "Return the JudgedCall of a map that C made of a tensor; None to fall back to Python.");

/* Describe and judge again the call that made the map. The tensor is not needed, because the map
 * stores the tensor's layout and all options. The JudgedCall does not keep the tensor alive. */
static PyObject *described_map(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  State *state = state_of(module);
  if (count != 1 || Py_TYPE(args[0]) != state->map_type) return fall_back();
  MapStorage *map = (MapStorage *)args[0];
  if (!map->has_record || map->record.is_bare) return fall_back();
  Options options;
  View view = {.tensor = tensor_of(map), .flags = map->record.flags};
  if (!read_target(state, map->rare == NULL || map->rare->target == NULL ? Py_None : map->rare->target, &options))
    return fall_back();
  options_of(map, &options.o);
  memcpy(view.shape, map->record.shape, sizeof view.shape);
  memcpy(view.strides, map->record.strides, sizeof view.strides);
  /* The map's address is the address of the tensor plus the option `offset`. */
  const TmaDlpackDataType *dtype = &view.tensor.dtype;
  const int64_t offset_bytes = options.o.offset * dtype->bits * dtype->lanes / 8;
  view.tensor.data = (void *)(uintptr_t)(map->address - (uint64_t)offset_bytes);
  JudgedCall *judged = start_judged(module, &options, &view);
  if (judged == NULL || finish_judged(judged)) return (PyObject *)judged;
  Py_DECREF(judged);
  return swallowed() < 0 ? NULL : fall_back();
}

static PyMethodDef module_methods[] = {
    VERB(accept_many, accept_many_doc),
    VERB(accept_address, accept_address_doc),
    VERB(described_map, described_map_doc),
    {"setup", setup, METH_VARARGS, setup_doc},
    {"quick", quick, METH_VARARGS, quick_text},
    {NULL, NULL, 0, NULL},
};

static int intern(PyObject **slot, const char *word) {
  *slot = PyUnicode_InternFromString(word);
  return *slot != NULL;
}

static int intern_words(State *state) {
  return intern(&state->names[DTYPE], "dtype") &&
         intern(&state->names[DLPACK_DEVICE], "__dlpack_device__") &&
         intern(&state->libcudacxx, "libcu++") && intern(&state->documented, "documented") &&
         intern(&state->driver, "driver");
}

static int module_exec(PyObject *module) {
  State *state = state_of(module);
  if (!intern_words(state)) return -1;
  state->batch_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &batch_spec, NULL);
  state->judged_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &judged_spec, NULL);
  if (state->batch_type == NULL || state->judged_type == NULL) return -1;
  PyObject *storage_type = PyType_FromModuleAndSpec(module, &storage_spec, NULL);
  if (storage_type == NULL) return -1;
  int has_storage = PyModule_AddObjectRef(module, "MapStorage", storage_type) == 0;
  Py_DECREF(storage_type);
  if (!has_storage) return -1;
  PyObject *abi = PyLong_FromUnsignedLong(TMA_DLPACK_TABLES_ABI);
  int added = abi == NULL ? -1 : PyModule_AddObjectRef(module, "TABLES_ABI", abi);
  Py_XDECREF(abi);
  return added;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The verbs that make and check maps, in C.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module_definition); }
