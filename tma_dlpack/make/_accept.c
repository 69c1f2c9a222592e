/* tma_dlpack.make._accept: the short cut, compiled. accept.py has the same contract in Python.
 *
 *   tensor, options  ->  read  ->  describe  ->  judge  ->  encode  ->  a TensorMap, or None
 *
 * None means "not sure": nothing is refused or explained here, the rules do that. Exceptions of a
 * producer are cleared, because the long road asks the producer again and reports them; only
 * MemoryError, KeyboardInterrupt and the like are passed on. Whatever is accepted here, the rules
 * accept too, with the same bytes.
 *
 * _quick.h binds the arguments, _options.h reads the options, _tensors.h the tensor, _bare.h what comes
 * without one; _calls.h takes one call to its map, _batch.h many. include/tma_dlpack_make.h describes,
 * judges and encodes; include/tma_dlpack_driver.h calls the driver. The GIL protects all state.
 */

#include "_bare.h"
#include "_batch.h"
#include "_quick.h"

static State *state_of(PyObject *module) { return (State *)PyModule_GetState(module); }

/* The result of every function that is not sure. */
static PyObject *not_sure(void) {
  if (swallowed() < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- tensors ------------------------------------------------------------------------------------- */

/* A make_* function: the tensor, then its options, all by position. */
static PyObject *accept(PyObject *module, PyObject *const *args, Py_ssize_t count,
                        const TensorVerb *verb) {
  State *state = state_of(module);
  TmaDlpackOptions options;
  if (!is_ready(state) || count != verb->count + 1 || !read_options(state, verb, args + 1, &options))
    return not_sure();
  MapStorage *map = map_of_tensor(state, args[0], &options);
  return map != NULL ? (PyObject *)map : not_sure();
}

/* The functions of Python. */
#define ACCEPT_TENSOR(name, verb)                                                    \
  static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t count) { \
    return accept(module, args, count, &verb);                                       \
  }

ACCEPT_TENSOR(accept_tiled, tiled_verb)
ACCEPT_TENSOR(accept_im2col, im2col_verb)
ACCEPT_TENSOR(accept_im2col_wide, im2col_wide_verb)

/* ---- batches ------------------------------------------------------------------------------------- */

PyDoc_STRVAR(accept_many_doc,
             "accept_many(tensors, address, box_sizes, elem_strides, interleave_layout, swizzle,\n"
             "            l2_fetch_size, oobfill, data_type, rules, target, /)\n--\n\n"
             "Encode the maps of a tuple of tensors to `address`, 128 bytes after 128, where the\n"
             "caller has as many, aligned to 128. Give a Batch; None for \"not sure\" of any.");

static PyObject *accept_many(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  State *state = state_of(module);
  TmaDlpackOptions options;
  if (!is_ready(state) || count != 11 || !PyTuple_CheckExact(args[0]) ||
      !read_options(state, &tiled_verb, args + 2, &options))
    return not_sure();
  unsigned char *rows = PyLong_AsVoidPtr(args[1]);
  if (rows == NULL || (uintptr_t)rows % TMA_DLPACK_MAP_ALIGNMENT != 0) return not_sure();
  Batch *batch = new_batch(state, args[0]);
  if (batch == NULL || fill_batch(state, batch, &options, rows)) return (PyObject *)batch;
  Py_DECREF(batch);
  return not_sure();
}

/* ---- another address ----------------------------------------------------------------------------- */

/* Whether a tensor has the layout of a map's own tensor. Strides of dimensions of extent 1 may differ
 * and mean nothing: the long road decides then. */
static int same_layout(const AskedCall *asked, const View *view) {
  size_t bytes = asked->rank * sizeof asked->shape[0];
  return !asked->is_bare && view->told.ndim == asked->rank &&
         (view->told.strides != NULL) == asked->has_strides &&
         memcmp(&view->told.device, &asked->device, sizeof asked->device) == 0 &&
         memcmp(&view->told.dtype, &asked->dtype, sizeof asked->dtype) == 0 &&
         memcmp(view->shape, asked->shape, bytes) == 0 &&
         (!asked->has_strides || memcmp(view->strides, asked->strides, bytes) == 0);
}

PyDoc_STRVAR(accept_address_doc,
             "accept_address(tensor_map, tensor_or_int, /)\n--\n\n"
             "Move a map to another tensor of its layout, or to an address: TensorMap.with_address;\n"
             "None for \"not sure\".");

static PyObject *accept_address(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  State *state = state_of(module);
  if (count != 2 || Py_TYPE(args[0]) != state->map_type) return not_sure();
  MapStorage *old = (MapStorage *)args[0];
  int64_t number = 0;
  View view;
  int is_number = PyLong_CheckExact(args[1]);
  if (!old->has_asked) return not_sure();
  if (is_number ? !read_integer(state, args[1], &number)
                : !read_tensor(state, args[1], &view) || !same_layout(&old->asked, &view))
    return not_sure();
  uint64_t address = is_number ? (uint64_t)number
                               : (uint64_t)(uintptr_t)view.told.data + view.told.byte_offset;
  uint64_t alignment = old->asked.interleave == TMA_DLPACK_INTERLEAVE_32B ? 32 : 16;
  if (address == 0 || address % alignment != 0 || address >= (uint64_t)TMA_DLPACK_ADDRESS_END)
    return not_sure();
  MapStorage *map = new_map(state->map_type, state->spare, is_number ? NULL : args[1], address);
  if (map == NULL) return NULL;
  map->asked = old->asked;
  map->launchable = old->launchable;
  if (!is_number) map->asked.flags = (uint8_t)view.flags;
  const void *bytes = old->data != NULL ? (void *)PyBytes_AsString(old->data) : map_bytes(old);
  memcpy(map_bytes(map), bytes, TMA_DLPACK_MAP_BYTES);
  memcpy(map_bytes(map), &address, sizeof address); /* cuTensorMapReplaceAddress changes no more */
  return (PyObject *)map;
}

/* ---- driver_encode_* ----------------------------------------------------------------------------- */

/* A driver_encode_* function for target="sm_90", encoder "auto" or "model": all by position. A new map;
 * NULL for "not sure", or with an exception. */
static PyObject *map_of_arguments(State *state, PyObject *const *args, int count, int kind) {
  TmaDlpackArguments arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.kind = kind;
  if (!is_word(args[count - 2], "sm_90") ||
      !(is_word(args[count - 1], "auto") || is_word(args[count - 1], "model")) ||
      !read_bare_tensor(state, args, &arguments) || !read_bare_tile(state, args + 5, &arguments) ||
      !tma_dlpack_judge(&arguments, TMA_DLPACK_RULES_BARE, TMA_DLPACK_SM_90_SMEM_BYTES))
    return NULL;
  MapStorage *map = new_map(state->map_type, state->spare, NULL, arguments.address);
  if (map == NULL) return NULL;
  int ordinal = bare_ordinal(args[count - 1]);
  keep_bare(&map->asked, &arguments, ordinal);
  map->launchable = 1; /* the address is the caller's word */
  if (encode(&arguments, ordinal, map_bytes(map))) return (PyObject *)map;
  Py_DECREF(map);
  return NULL;
}

/* How many arguments each has. */
enum { TILED_ARGUMENTS = 13, IM2COL_ARGUMENTS = 16, IM2COL_WIDE_ARGUMENTS = 17 };

static PyObject *driver_tiled(State *state, PyObject *const *args) {
  return map_of_arguments(state, args, TILED_ARGUMENTS, TMA_DLPACK_TILED);
}

static PyObject *driver_im2col(State *state, PyObject *const *args) {
  return map_of_arguments(state, args, IM2COL_ARGUMENTS, TMA_DLPACK_IM2COL);
}

static PyObject *driver_im2col_wide(State *state, PyObject *const *args) {
  return map_of_arguments(state, args, IM2COL_WIDE_ARGUMENTS, TMA_DLPACK_IM2COL_WIDE);
}

/* ---- functions with a short cut before them ------------------------------------------------------ */

PyDoc_STRVAR(quick_text,
             "quick(function, verb, parameters, required, positional, /)\n--\n\n"
             "Make the callable that takes the short cut `verb`, by its name in `short_cuts`,\n"
             "before it calls a Python function. `parameters` is {name: default} of those that the\n"
             "short cut takes, `required` in place of no default; the first `positional` may be given\n"
             "by position.");

static const ShortCut short_cuts[] = {
    {"accept_tiled", &tiled_verb, NULL, 0},
    {"accept_im2col", &im2col_verb, NULL, 0},
    {"accept_im2col_wide", &im2col_wide_verb, NULL, 0},
    {"accept_driver_tiled", NULL, driver_tiled, TILED_ARGUMENTS},
    {"accept_driver_im2col", NULL, driver_im2col, IM2COL_ARGUMENTS},
    {"accept_driver_im2col_wide", NULL, driver_im2col_wide, IM2COL_WIDE_ARGUMENTS},
};

static PyObject *quick(PyObject *module, PyObject *args) {
  PyObject *function, *parameters, *required;
  const char *name;
  int positional;
  if (!PyArg_ParseTuple(args, "OsO!Oi:quick", &function, &name, &PyDict_Type, &parameters,
                        &required, &positional))
    return NULL;
  for (size_t i = 0; i < sizeof short_cuts / sizeof short_cuts[0]; ++i)
    if (strcmp(short_cuts[i].name, name) == 0)
      return new_quick(module, &short_cuts[i], function, parameters, required, positional);
  return PyErr_Format(PyExc_ValueError, "there is no short cut %s", name);
}

/* ---- the spare map ------------------------------------------------------------------------------ */

/* Without memory for it maps are made all the same. */
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
             "setup(map_type, function_type, enums, names, exports, numpy_integer, numpy_array, /)\n--\n\n"
             "Say which classes to make and to read: TensorMap; the base class of what `quick` makes;\n"
             "the enums of interleave, swizzle, L2 promotion, fill, data type and wide mode, with a\n"
             "dict {name: member} for each; and how `__dlpack__` is called: of host tensors, of CUDA\n"
             "tensors, of JAX's CUDA arrays.");

/* Whether an attribute of a class is this number. */
static int has_number(PyTypeObject *type, const char *attribute, Py_ssize_t number) {
  PyObject *found = PyObject_GetAttrString((PyObject *)type, attribute);
  int has = found != NULL && PyLong_AsSsize_t(found) == number;
  Py_XDECREF(found);
  PyErr_Clear();
  return has;
}

/* Whether a class is made from MapStorage, and its objects are no larger. */
static int is_storage(PyTypeObject *type) {
  PyObject *module = PyImport_ImportModule("tma_dlpack.tensor_map._storage");
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

/* Copy an enum and its names. The first name of each value is the member's own. */
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

static PyObject *setup(PyObject *module, PyObject *args) {
  State *state = state_of(module);
  PyObject *map_type, *function_type, *enums, *names, *exports, *integer, *array;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!O!:setup", &PyType_Type, &map_type, &PyType_Type,
                        &function_type, &PyTuple_Type, &enums, &PyTuple_Type, &names, &PyTuple_Type,
                        &exports, &PyType_Type, &integer, &PyType_Type, &array))
    return NULL;
  if (PyTuple_Size(enums) != ENUMS || PyTuple_Size(names) != ENUMS ||
      PyTuple_Size(exports) != EXPORTS || state->map_type != NULL) {
    PyErr_SetString(PyExc_ValueError, "setup is called once, with an entry for each enum and export");
    return NULL;
  }
  if (!is_storage((PyTypeObject *)map_type)) return NULL;
  PyObject *bases = PyTuple_Pack(1, function_type);
  if (bases == NULL) return NULL;
  Py_XDECREF(state->quick_type); /* of a setup() that failed */
  state->quick_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &quick_spec, bases);
  Py_DECREF(bases);
  if (state->quick_type == NULL) return NULL;
  open_spare(state);
  for (int i = 0; i < ENUMS; ++i)
    if (!set_words(&state->words[i], PyTuple_GetItem(enums, i), PyTuple_GetItem(names, i)))
      return NULL;
  for (int i = 0; i < EXPORTS; ++i) {
    state->exports[i] = PyTuple_GetItem(exports, i);
    Py_INCREF(state->exports[i]);
  }
  Py_INCREF(map_type);
  Py_INCREF(integer);
  Py_INCREF(array);
  state->numpy_integer = (PyTypeObject *)integer;
  state->numpy_array = (PyTypeObject *)array;
  state->map_type = (PyTypeObject *)map_type;
  Py_RETURN_NONE;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  State *state = state_of(module);
  Py_VISIT(state->quick_type);
  Py_VISIT(state->batch_type);
  Py_VISIT(state->map_type);
  Py_VISIT(state->numpy_integer);
  Py_VISIT(state->numpy_array);
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
  close_spare(state); /* while its class is there */
  Py_CLEAR(state->quick_type);
  Py_CLEAR(state->batch_type);
  Py_CLEAR(state->map_type);
  Py_CLEAR(state->numpy_integer);
  Py_CLEAR(state->numpy_array);
  for (int i = 0; i < NAMES; ++i) Py_CLEAR(state->names[i]);
  Py_CLEAR(state->libcudacxx);
  Py_CLEAR(state->documented);
  Py_CLEAR(state->driver);
  Py_CLEAR(state->torch_uint8);
  Py_CLEAR(state->torch_int8);
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

static PyMethodDef module_methods[] = {
    VERB(accept_tiled,
         "accept_tiled(tensor, box_sizes, elem_strides, interleave_layout, swizzle,\n"
         "             l2_fetch_size, oobfill, data_type, rules, target, /)\n--\n\n"
         "Make the map of an ordinary make_tma_descriptor call; None for \"not sure\"."),
    VERB(accept_im2col,
         "accept_im2col(tensor, lower, upper, channels, pixels, elem_strides,\n"
         "              interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, rules,\n"
         "              target, /)\n--\n\n"
         "Make the map of an ordinary make_im2col_descriptor call; None for \"not sure\"."),
    VERB(accept_im2col_wide,
         "accept_im2col_wide(tensor, lower_width, upper_width, channels, pixels, elem_strides,\n"
         "                   interleave_layout, swizzle, l2_fetch_size, oobfill, mode,\n"
         "                   data_type, rules, target, /)\n--\n\n"
         "Make the map of an ordinary make_im2col_wide_descriptor call; None for \"not sure\"."),
    VERB(accept_many, accept_many_doc),
    VERB(accept_address, accept_address_doc),
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
  return state->batch_type == NULL ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_accept",
    .m_doc = "The short cut, compiled: an ordinary call becomes a map, any other None.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__accept(void) { return PyModuleDef_Init(&module_definition); }
