/* tma_dlpack.make._accept: the short cut, compiled. accept.py has the same contract in Python.
 *
 *   tensor, options  ->  read  ->  describe  ->  judge  ->  encode  ->  a TensorMap, or None
 *
 * None means "not sure": nothing is refused or explained here, the rules do that. Exceptions of a
 * producer are cleared, because the long road asks the producer again and reports them; only
 * MemoryError, KeyboardInterrupt and the like are passed on. Whatever is accepted here, the rules
 * accept too, with the same bytes.
 *
 * _options.h reads the options, _tensors.h the tensor; include/tma_dlpack_make.h describes, judges
 * and encodes; include/tma_dlpack_driver.h calls the driver. The GIL protects all state.
 */

#include "../include/tma_dlpack_driver.h"
#include "_quick.h"
#include "_tensors.h"

static State *state_of(PyObject *module) { return (State *)PyModule_GetState(module); }

/* Whether setup() was called and the interpreter is not shutting down. */
static int is_ready(const State *state) { return state->map_type != NULL; }

/* The result of every function that is not sure. */
static PyObject *not_sure(void) {
  if (swallowed() < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- a map --------------------------------------------------------------------------------------- */

/* Keep the options of a call; the fields are as narrow as the checked ranges. */
static void keep_options(AskedCall *asked, const TmaDlpackOptions *o) {
  asked->kind = (uint8_t)o->kind;
  asked->rules = (uint8_t)o->rules;
  asked->asked_type = (int8_t)o->asked_type;
  asked->interleave = (uint8_t)o->interleave;
  asked->swizzle = (uint8_t)o->swizzle;
  asked->l2_promotion = (uint8_t)o->l2_promotion;
  asked->oob_fill = (uint8_t)o->oob_fill;
  asked->mode = (uint8_t)o->mode;
  asked->channels = (uint16_t)o->channels;
  asked->pixels = (uint16_t)o->pixels;
  asked->has_elem_strides = o->elem_stride_count > 0;
  for (int i = 0; i < o->elem_stride_count; ++i) asked->elem_strides[i] = (uint8_t)o->elem_strides[i];
  for (int i = 0; i < o->box_count; ++i) asked->box[i] = (uint16_t)o->box_sizes[i];
  for (int i = 0; i < o->lower_count; ++i) asked->lower[i] = (int16_t)o->lower[i];
  for (int i = 0; i < o->upper_count; ++i) asked->upper[i] = (int16_t)o->upper[i];
}

/* Keep a tensor's layout. */
static void keep_layout(AskedCall *asked, const View *view) {
  asked->rank = (uint8_t)view->told.ndim;
  asked->device = view->told.device;
  asked->dtype = view->told.dtype;
  asked->flags = (uint8_t)view->flags;
  asked->has_strides = view->told.strides != NULL;
  memcpy(asked->shape, view->shape, sizeof asked->shape); /* entries past the rank are not read */
  if (asked->has_strides) memcpy(asked->strides, view->strides, sizeof asked->strides);
}

/* A new map, with or without a tensor; NULL with an exception if out of memory. */
static MapStorage *new_map(const State *state, PyObject *tensor, uint64_t address) {
  MapStorage *map = (MapStorage *)PyType_GenericAlloc(state->map_type, 0);
  if (map == NULL) return NULL;
  map->has_asked = map->has_bytes = 1;
  map->address = address;
  Py_XINCREF(tensor);
  map->tensor = tensor;
  return map;
}

/* Encode judged arguments into a map: by the driver for a GPU's ordinal, by the model for -1. */
static int encode_into(MapStorage *map, const TmaDlpackArguments *a, int ordinal) {
  unsigned char *bytes = map_bytes(map); /* zeroed, as the driver was given it when measured */
  map->asked.by_driver = ordinal >= 0;
  if (ordinal >= 0) return tma_dlpack_driver_encode(a, ordinal, bytes) == 0;
  tma_dlpack_encode(a, bytes);
  return 1;
}

/* ---- tensors ------------------------------------------------------------------------------------- */

/* The device of a tensor: which encoder it needs, and its limit of shared memory. */
typedef struct {
  int ordinal; /* of the GPU; -1 for host memory, which is described for sm_90 */
  int64_t max_smem_bytes;
} Place;

static int place_of(const TmaDlpackDevice *device, Place *place) {
  place->ordinal = -1;
  place->max_smem_bytes = TMA_DLPACK_SM_90_SMEM_BYTES;
  if (device->device_id < 0) return 0;
  if (device->device_type == TMA_DLPACK_CPU || device->device_type == TMA_DLPACK_CUDA_HOST) return 1;
  if (device->device_type != TMA_DLPACK_CUDA) return 0; /* whose GPU managed memory is on, only the
                                                           driver knows */
  const TmaDlpackGpu *gpu = tma_dlpack_gpu(device->device_id);
  if (gpu == NULL || !tma_dlpack_gpu_is_judged(gpu)) return 0;
  place->ordinal = device->device_id;
  place->max_smem_bytes = gpu->max_smem_bytes;
  return 1;
}

/* The short cut for one tensor. A new map; NULL for "not sure", or with an exception. */
static MapStorage *map_of_tensor(State *state, PyObject *tensor, const TmaDlpackOptions *options) {
  View view;
  Place place;
  TmaDlpackArguments arguments;
  if (!read_tensor(state, tensor, &view) || !place_of(&view.told.device, &place)) return NULL;
  tma_dlpack_describe(&view.told, options, &arguments);
  if (!tma_dlpack_judge(&arguments, options->rules, place.max_smem_bytes)) return NULL;
  MapStorage *map = new_map(state, tensor, arguments.address);
  if (map == NULL) return NULL;
  keep_options(&map->asked, options);
  keep_layout(&map->asked, &view);
  map->launchable = place.ordinal >= 0;
  if (!encode_into(map, &arguments, place.ordinal)) {
    Py_DECREF(map);
    return NULL;
  }
  return map;
}

typedef int (*ReadOptions)(const State *, PyObject *const *, TmaDlpackOptions *);

/* A make_* function: the tensor, then its options, all by position. */
static PyObject *accept(PyObject *module, PyObject *const *args, Py_ssize_t count,
                        Py_ssize_t expected, ReadOptions read_options) {
  State *state = state_of(module);
  TmaDlpackOptions options;
  if (!is_ready(state) || count != expected || !read_options(state, args + 1, &options)) return not_sure();
  MapStorage *map = map_of_tensor(state, args[0], &options);
  return map != NULL ? (PyObject *)map : not_sure();
}

PyDoc_STRVAR(accept_tiled_doc,
             "accept_tiled(tensor, box_sizes, elem_strides, interleave_layout, swizzle,\n"
             "             l2_fetch_size, oobfill, data_type, rules, target, /)\n--\n\n"
             "Make the map of an ordinary make_tma_descriptor call; None for \"not sure\".");

static PyObject *accept_tiled(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  return accept(module, args, count, 10, read_tiled_options);
}

PyDoc_STRVAR(accept_im2col_doc,
             "accept_im2col(tensor, lower, upper, channels, pixels, elem_strides,\n"
             "              interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, rules,\n"
             "              target, /)\n--\n\n"
             "Make the map of an ordinary make_im2col_descriptor call; None for \"not sure\".");

static PyObject *accept_im2col(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  return accept(module, args, count, 13, read_im2col_options);
}

PyDoc_STRVAR(accept_im2col_wide_doc,
             "accept_im2col_wide(tensor, lower_width, upper_width, channels, pixels, elem_strides,\n"
             "                   interleave_layout, swizzle, l2_fetch_size, oobfill, mode,\n"
             "                   data_type, rules, target, /)\n--\n\n"
             "Make the map of an ordinary make_im2col_wide_descriptor call; None for \"not sure\".");

static PyObject *accept_im2col_wide(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  return accept(module, args, count, 14, read_wide_options);
}

/* ---- batches ------------------------------------------------------------------------------------- */

PyDoc_STRVAR(accept_many_doc,
             "accept_many(tensors, address, box_sizes, elem_strides, interleave_layout, swizzle,\n"
             "            l2_fetch_size, oobfill, data_type, rules, target, /)\n--\n\n"
             "Make the maps of a tuple of tensors, as a list, and copy their bytes to `address`,\n"
             "128 after 128, where the caller has as many; None for \"not sure\" of any.");

static PyObject *accept_many(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  State *state = state_of(module);
  TmaDlpackOptions options;
  if (!is_ready(state) || count != 11 || !PyTuple_CheckExact(args[0]) ||
      !read_tiled_options(state, args + 2, &options))
    return not_sure();
  unsigned char *rows = PyLong_AsVoidPtr(args[1]);
  if (rows == NULL) return not_sure();
  Py_ssize_t size = PyTuple_Size(args[0]);
  PyObject *maps = PyList_New(size);
  for (Py_ssize_t i = 0; maps != NULL && i < size; ++i) {
    MapStorage *map = map_of_tensor(state, PyTuple_GetItem(args[0], i), &options);
    if (map == NULL) {
      Py_DECREF(maps);
      return not_sure();
    }
    memcpy(rows + i * TMA_DLPACK_MAP_BYTES, map_bytes(map), TMA_DLPACK_MAP_BYTES);
    PyList_SetItem(maps, i, (PyObject *)map);
  }
  return maps;
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
  MapStorage *map = new_map(state, is_number ? NULL : args[1], address);
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

/* tensorDataType, tensorRank, globalAddress, globalDim, globalStrides: five arguments in a row. As in
 * C, entries of an array past the rank are not read. */
static int read_bare_tensor(const State *state, PyObject *const *args, TmaDlpackArguments *a) {
  int64_t rank = 0, address = 0, strides[TMA_DLPACK_MAX_RANK] = {0};
  int dims = 0, outer = 0;
  if (!read_member(state, DATA_TYPE, args[0], &a->data_type) ||
      !read_integer(state, args[1], &rank) || !read_integer(state, args[2], &address) ||
      !read_integers(state, args[3], TMA_DLPACK_MAX_RANK, a->dims, &dims))
    return 0;
  int no_strides = rank == 1 && PyTuple_CheckExact(args[4]) && PyTuple_Size(args[4]) == 0;
  if (!no_strides && !read_integers(state, args[4], TMA_DLPACK_MAX_RANK, strides, &outer)) return 0;
  if (rank < 1 || rank > dims || rank - 1 > outer || address < 0) return 0;
  a->rank = (int)rank;
  a->address = (uint64_t)address;
  memcpy(a->strides_bytes, strides, ((size_t)rank - 1) * sizeof strides[0]);
  return 1;
}

/* An array with at least the required number of entries. */
static int read_bare_array(const State *state, PyObject *value, int least, int64_t *out) {
  int count = 0;
  return read_integers(state, value, TMA_DLPACK_MAX_RANK, out, &count) && count >= least;
}

static int read_bare_options(const State *state, PyObject *const *args, TmaDlpackArguments *a) {
  return read_member(state, SWIZZLE, args[0], &a->swizzle) &&
         read_member(state, L2_PROMOTION, args[1], &a->l2_promotion) &&
         read_member(state, OOB_FILL, args[2], &a->oob_fill);
}

/* The arguments of a kind, from the sixth on; `target` and `encoder` come last, and are not read. */
static int read_bare_tile(const State *state, PyObject *const *args, TmaDlpackArguments *a) {
  if (a->kind == TMA_DLPACK_TILED)
    return read_bare_array(state, args[0], a->rank, a->box) &&
           read_bare_array(state, args[1], a->rank, a->elem_strides) &&
           read_member(state, INTERLEAVE, args[2], &a->interleave) &&
           read_bare_options(state, args + 3, a);
  int is_wide = a->kind == TMA_DLPACK_IM2COL_WIDE;
  int corners = is_wide ? read_integer(state, args[0], a->lower) &&
                              read_integer(state, args[1], a->upper)
                        : read_bare_array(state, args[0], a->rank - 2, a->lower) &&
                              read_bare_array(state, args[1], a->rank - 2, a->upper);
  return corners && read_integer(state, args[2], &a->channels) &&
         read_integer(state, args[3], &a->pixels) &&
         read_bare_array(state, args[4], a->rank, a->elem_strides) &&
         read_member(state, INTERLEAVE, args[5], &a->interleave) &&
         (!is_wide || read_member(state, WIDE_MODE, args[6], &a->mode)) &&
         read_bare_options(state, args + 6 + is_wide, a);
}

/* Keep judged arguments, in the driver's order. */
static void keep_bare(AskedCall *asked, const TmaDlpackArguments *a) {
  asked->is_bare = asked->has_elem_strides = 1;
  asked->kind = (uint8_t)a->kind;
  asked->rules = TMA_DLPACK_RULES_BARE;
  asked->rank = (uint8_t)a->rank;
  asked->asked_type = (int8_t)a->data_type;
  asked->interleave = (uint8_t)a->interleave;
  asked->swizzle = (uint8_t)a->swizzle;
  asked->l2_promotion = (uint8_t)a->l2_promotion;
  asked->oob_fill = (uint8_t)a->oob_fill;
  asked->mode = (uint8_t)a->mode;
  asked->channels = (uint16_t)a->channels;
  asked->pixels = (uint16_t)a->pixels;
  for (int d = 0; d < a->rank; ++d) {
    asked->shape[d] = a->dims[d];
    asked->box[d] = (uint16_t)a->box[d];
    asked->elem_strides[d] = (uint8_t)a->elem_strides[d];
    if (d < a->rank - 1) asked->strides[d] = a->strides_bytes[d];
  }
  for (int s = 0; s < 3; ++s) {
    asked->lower[s] = (int16_t)a->lower[s];
    asked->upper[s] = (int16_t)a->upper[s];
  }
}

/* The GPU whose driver encodes: the current one, or GPU 0, if its rules are known here; else -1. */
static int bare_ordinal(PyObject *encoder) {
  TmaDlpackDriver *driver = is_word(encoder, "model") ? NULL : tma_dlpack_driver();
  if (driver == NULL) return -1;
  int current = tma_dlpack_current_gpu(driver);
  int ordinal = current < 0 ? 0 : current;
  const TmaDlpackGpu *gpu = tma_dlpack_gpu(ordinal);
  return gpu != NULL && tma_dlpack_gpu_is_judged(gpu) ? ordinal : -1;
}

/* A driver_encode_* function for target="sm_90", encoder "auto" or "model": all by position. */
static PyObject *accept_bare(PyObject *module, PyObject *const *args, Py_ssize_t count,
                             Py_ssize_t expected, int kind) {
  State *state = state_of(module);
  TmaDlpackArguments arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.kind = kind;
  if (!is_ready(state) || count != expected || !is_word(args[count - 2], "sm_90") ||
      !(is_word(args[count - 1], "auto") || is_word(args[count - 1], "model")) ||
      !read_bare_tensor(state, args, &arguments) || !read_bare_tile(state, args + 5, &arguments) ||
      !tma_dlpack_judge(&arguments, TMA_DLPACK_RULES_BARE, TMA_DLPACK_SM_90_SMEM_BYTES))
    return not_sure();
  MapStorage *map = new_map(state, NULL, arguments.address);
  if (map == NULL) return NULL;
  keep_bare(&map->asked, &arguments);
  map->launchable = 1; /* the address is the caller's word */
  if (encode_into(map, &arguments, bare_ordinal(args[count - 1]))) return (PyObject *)map;
  Py_DECREF(map);
  return not_sure();
}

PyDoc_STRVAR(accept_driver_tiled_doc,
             "accept_driver_tiled(tensor_data_type, tensor_rank, global_address, global_dim,\n"
             "                    global_strides, box_dim, element_strides, interleave, swizzle,\n"
             "                    l2_promotion, oob_fill, target, encoder, /)\n--\n\n"
             "Make the map of an ordinary driver_encode_tiled call; None for \"not sure\".");

static PyObject *accept_driver_tiled(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  return accept_bare(module, args, count, 13, TMA_DLPACK_TILED);
}

PyDoc_STRVAR(accept_driver_im2col_doc,
             "accept_driver_im2col(tensor_data_type, tensor_rank, global_address, global_dim,\n"
             "                     global_strides, lower, upper, channels, pixels,\n"
             "                     element_strides, interleave, swizzle, l2_promotion, oob_fill,\n"
             "                     target, encoder, /)\n--\n\n"
             "Make the map of an ordinary driver_encode_im2col call; None for \"not sure\".");

static PyObject *accept_driver_im2col(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  return accept_bare(module, args, count, 16, TMA_DLPACK_IM2COL);
}

PyDoc_STRVAR(accept_driver_im2col_wide_doc,
             "accept_driver_im2col_wide(tensor_data_type, tensor_rank, global_address, global_dim,\n"
             "                          global_strides, lower_width, upper_width, channels, pixels,\n"
             "                          element_strides, interleave, mode, swizzle, l2_promotion,\n"
             "                          oob_fill, target, encoder, /)\n--\n\n"
             "Make the map of an ordinary driver_encode_im2col_wide call; None for \"not sure\".");

static PyObject *accept_driver_im2col_wide(PyObject *module, PyObject *const *args,
                                           Py_ssize_t count) {
  return accept_bare(module, args, count, 17, TMA_DLPACK_IM2COL_WIDE);
}

/* ---- functions with a short cut before them ------------------------------------------------------ */

PyDoc_STRVAR(quick_text,
             "quick(function, verb, parameters, required, positional, /)\n--\n\n"
             "Make the callable that takes the short cut `verb`, one of this module's accept_*,\n"
             "before it calls a Python function. `parameters` is {name: default} of those that the\n"
             "short cut takes, `required` in place of no default; the first `positional` may be given\n"
             "by position.");

static PyObject *quick(PyObject *module, PyObject *args) {
  static const struct {
    const char *name;
    Verb verb;
  } verbs[] = {
      {"accept_tiled", accept_tiled},
      {"accept_im2col", accept_im2col},
      {"accept_im2col_wide", accept_im2col_wide},
      {"accept_driver_tiled", accept_driver_tiled},
      {"accept_driver_im2col", accept_driver_im2col},
      {"accept_driver_im2col_wide", accept_driver_im2col_wide},
  };
  PyObject *function, *parameters, *required;
  const char *name;
  int positional;
  if (!PyArg_ParseTuple(args, "OsO!Oi:quick", &function, &name, &PyDict_Type, &parameters,
                        &required, &positional))
    return NULL;
  for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; ++i)
    if (strcmp(verbs[i].name, name) == 0)
      return new_quick(module, state_of(module)->quick_type, verbs[i].verb, function, parameters,
                       required, positional);
  return PyErr_Format(PyExc_ValueError, "there is no short cut %s", name);
}

/* ---- setting up ---------------------------------------------------------------------------------- */

PyDoc_STRVAR(setup_doc,
             "setup(map_type, enums, names, exports, numpy_integer, numpy_array, /)\n--\n\n"
             "Say which classes to make and to read: TensorMap; the enums of interleave, swizzle, L2\n"
             "promotion, fill, data type and wide mode, with a dict {name: member} for each; and\n"
             "how `__dlpack__` is called: of host tensors, of CUDA tensors, of JAX's CUDA arrays.");

static int is_storage(PyTypeObject *type) {
  PyObject *module = PyImport_ImportModule("tma_dlpack.tensor_map._storage");
  PyObject *base = module == NULL ? NULL : PyObject_GetAttrString(module, "MapStorage");
  int made_from_it = base != NULL && PyType_IsSubtype(type, (PyTypeObject *)base);
  if (base != NULL && !made_from_it)
    PyErr_SetString(PyExc_TypeError, "the class of maps is not made from MapStorage");
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
  PyObject *map_type, *enums, *names, *exports, *integer, *array;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!:setup", &PyType_Type, &map_type, &PyTuple_Type, &enums,
                        &PyTuple_Type, &names, &PyTuple_Type, &exports, &PyType_Type, &integer,
                        &PyType_Type, &array))
    return NULL;
  if (PyTuple_Size(enums) != ENUMS || PyTuple_Size(names) != ENUMS ||
      PyTuple_Size(exports) != EXPORTS || state->map_type != NULL) {
    PyErr_SetString(PyExc_ValueError, "setup is called once, with an entry for each enum and export");
    return NULL;
  }
  if (!is_storage((PyTypeObject *)map_type)) return NULL;
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
  }
  for (int i = 0; i < EXPORTS; ++i) Py_VISIT(state->exports[i]);
  return 0;
}

static int module_clear(PyObject *module) {
  State *state = state_of(module);
  Py_CLEAR(state->quick_type);
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

#define VERB(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, name##_doc}

static PyMethodDef module_methods[] = {
    VERB(accept_tiled),
    VERB(accept_im2col),
    VERB(accept_im2col_wide),
    VERB(accept_many),
    VERB(accept_address),
    VERB(accept_driver_tiled),
    VERB(accept_driver_im2col),
    VERB(accept_driver_im2col_wide),
    {"setup", setup, METH_VARARGS, setup_doc},
    {"quick", quick, METH_VARARGS, quick_text},
    {NULL, NULL, 0, NULL},
};

static int intern(PyObject **slot, const char *word) {
  *slot = PyUnicode_InternFromString(word);
  return *slot != NULL;
}

static int intern_words(State *state) {
  return intern(&state->names[DTYPE], "dtype") && intern(&state->names[PLATFORM], "platform") &&
         intern(&state->names[DLPACK_DEVICE], "__dlpack_device__") &&
         intern(&state->libcudacxx, "libcu++") && intern(&state->documented, "documented") &&
         intern(&state->driver, "driver");
}

static int module_exec(PyObject *module) {
  State *state = state_of(module);
  if (!intern_words(state)) return -1;
  state->quick_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &quick_spec, NULL);
  return state->quick_type == NULL ? -1 : 0;
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
