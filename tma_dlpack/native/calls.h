/* calls.h: make the map of a call for a tensor, in these steps.
 *
 *   judge_tensor   read the tensor and its device, describe the call, judge the call
 *   map_of_call    make the map object, and record the call in the object
 *   encode         write the 128 bytes, either with the driver or in the measured layout
 */

#ifndef TMA_DLPACK_CALLS_H
#define TMA_DLPACK_CALLS_H

#include "../include/tma_dlpack_driver.h"
#include "tensors.h"

/* A tensor and a judged call for the tensor. */
typedef struct {
  uint64_t failed; /* mask of the rules that refuse the call; 0 before the call is judged */
  View view;
  TmaDlpackDescribed described;
  TmaDlpackTarget target;
  int ordinal; /* ordinal of the tensor's GPU, or ON_HOST */
  int encoder; /* BY_DRIVER, BY_MODEL or NOT_ENCODED */
} Judged;

/* Return the default target, which is row 0 of the table of targets. A row is (major, minor,
 * max_smem_bytes). */
static TmaDlpackTarget default_target(void) {
  const int *row = tma_dlpack_target(0);
  return (TmaDlpackTarget){row[0], row[1], row[2]};
}

static int is_on_gpu(const TmaDlpackDevice *device) {
  return device->device_type == TMA_DLPACK_CUDA || device->device_type == TMA_DLPACK_CUDA_MANAGED;
}

/* Return the encoder for a target. `gpu` is the tensor's GPU, or NULL. If `gpu` has the target's
 * compute capability, the encoder is the driver. Otherwise, if the layout of maps was measured for
 * the target, the encoder is tma_dlpack_encode (BY_MODEL). */
static int encoder_for(const TmaDlpackTarget *target, const TmaDlpackGpu *gpu) {
  if (gpu != NULL && gpu->target.major == target->major && gpu->target.minor == target->minor)
    return BY_DRIVER;
  return tma_dlpack_target_has_model(target->major, target->minor) ? BY_MODEL : NOT_ENCODED;
}

/* Find the tensor's GPU, the target and the encoder. Return 0 to fall back to Python. */
static int find_target(const TmaDlpackTensor *tensor, const Options *options, Judged *call) {
  const TmaDlpackGpu *gpu = NULL;
  const TmaDlpackDevice *device = &tensor->device;
  call->ordinal = ON_HOST;
  call->target = options->target_object != NULL ? options->target : default_target();
  if (device->device_id < 0) return 0;
  if (is_on_gpu(device)) {
    /* Without a driver the tensor's GPU is not known. Python chooses the target in this case. */
    if (tma_dlpack_driver() == NULL && options->target_object == NULL) return 0;
    if (tma_dlpack_driver() != NULL) {
      call->ordinal = tma_dlpack_ordinal(tensor);
      gpu = tma_dlpack_gpu(call->ordinal);
      if (gpu == NULL) return 0;
      if (options->target_object == NULL) call->target = gpu->target;
    }
  } else if (device->device_type != TMA_DLPACK_CPU && device->device_type != TMA_DLPACK_CUDA_HOST) {
    return 0;
  }
  call->encoder = encoder_for(&call->target, gpu);
  return 1;
}

/* Return whether a tensor has no elements. The strides of such a tensor have no meaning. */
static int is_empty(const TmaDlpackTensor *tensor) {
  for (int i = 0; i < tensor->ndim; ++i)
    if (tensor->shape[i] == 0) return 1;
  return 0;
}

/* Judge the call for a tensor. Return 1 if the rules accept the call. If rules refuse the call,
 * return 0 with the mask of these rules in `failed`. If the call must fall back to Python, return 0
 * with `failed` == 0. An exception may be set then, and the caller clears it. A refused call for a
 * tensor without memory also falls back to Python, because the tensor may be a wrapper, for example
 * of torch.func. */
static int judge_tensor(State *state, PyObject *tensor, const Options *options, Judged *call) {
  const TmaDlpackTensor *exported = &call->view.tensor;
  call->failed = 0;
  if (!read_tensor(state, tensor, &call->view) || !find_target(exported, options, call)) return 0;
  const char *flaw = tma_dlpack_describe(exported, &options->o, &call->target, &call->described);
  if (!TMA_DLPACK_LIKELY(flaw == NULL)) return 0;
  call->failed = tma_dlpack_judge(&call->described, tma_dlpack_asked(&options->o, &call->target));
  if (TMA_DLPACK_LIKELY(call->failed == 0)) return 1;
  if (call->described.is_null || is_empty(exported)) call->failed = 0;
  return 0;
}

/* Record those options that the 128 bytes do not contain. The rules have accepted the options, so
 * the options fit into the narrow members of Record. */
static void keep_options(Record *kept, const TmaDlpackOptions *o) {
  kept->kind = (uint8_t)o->kind;
  kept->mode = (uint8_t)o->mode;
  kept->driver_rules = (uint8_t)o->driver_rules;
  kept->asked_type = (int8_t)o->asked_type;
  kept->has_swizzle = (uint8_t)o->has_swizzle;
  kept->has_elem_strides = o->elem_stride_count > 0;
  for (int i = 0; i < o->elem_stride_count; ++i) kept->elem_strides[i] = (uint8_t)o->elem_strides[i];
}

/* Copy the options to `kept` if the call has a Target, `allow`, or an option in
 * TMA_DLPACK_RARE_OPTIONS. Return 0 with an exception if out of memory. */
static int keep_rare(RareOptions **kept, const Options *options) {
  const TmaDlpackOptions *o = &options->o;
  const int is_rare = options->target_object != NULL || o->allowed != 0 || tma_dlpack_has_rare_options(o);
  if (TMA_DLPACK_LIKELY(!is_rare)) return 1;
  RareOptions rare = {options->target_object, *o};
  *kept = copy_rare(&rare);
  return *kept != NULL;
}

static void keep_target(Record *kept, const TmaDlpackTarget *target, int ordinal, int encoder) {
  kept->major = (int8_t)target->major;
  kept->minor = (int8_t)target->minor;
  kept->ordinal = (int8_t)ordinal;
  kept->encoder = (uint8_t)encoder;
}

/* Record a tensor's layout, the target, and the encoder of its map. */
static void keep_layout(Record *kept, const Judged *call) {
  const View *view = &call->view;
  kept->rank = (uint8_t)view->tensor.ndim;
  kept->device = view->tensor.device;
  kept->dtype = view->tensor.dtype;
  kept->flags = (uint8_t)view->flags;
  kept->has_strides = view->tensor.strides != NULL;
  keep_target(kept, &call->target, call->ordinal, call->encoder);
  /* This copies all TMA_DLPACK_MAX_RANK entries, but only `rank` entries are read. */
  memcpy(kept->shape, view->shape, sizeof kept->shape);
  if (kept->has_strides) memcpy(kept->strides, view->strides, sizeof kept->strides);
}

/* Encode the arguments of an accepted call. `bytes` must be zeroed and aligned to 128 bytes,
 * because the driver was tested only with such memory. Return 0 if the driver refuses the
 * arguments. */
static int encode(TmaDlpackDescribed *described, int encoder, int ordinal, unsigned char *bytes) {
  tma_dlpack_extend(described);
  if (encoder == BY_DRIVER) return tma_dlpack_driver_encode(described, ordinal, bytes) == 0;
  if (encoder == BY_MODEL) tma_dlpack_encode(described, bytes);
  return 1;
}

/* Return `c`, the driver's arguments, if they cannot be decoded from the bytes of the map. Else
 * return NULL. */
static const TmaDlpackDescribed *hidden_fields(const TmaDlpackDescribed *c, int encoder) {
  return encoder != NOT_ENCODED && c->has_model ? NULL : c;
}

/* Make an empty map in the spare memory, or in new memory. Return NULL with an exception if out of
 * memory. */
static MapStorage *empty_map(PyTypeObject *map_type, SpareMap *spare) {
  MapStorage *map = spare == NULL ? NULL : spare->map;
  if (map == NULL) {
    map = (MapStorage *)PyType_GenericAlloc(map_type, 0);
  } else {
    /* Clear only the members. The collector's header is in front of the object and stays valid. */
    spare->map = NULL;
    clear((char *)map + sizeof(PyObject), sizeof *map - sizeof(PyObject));
    PyObject_Init((PyObject *)map, map_type);
    PyObject_GC_Track(map);
  }
  if (map != NULL && spare != NULL) {
    map->spare = spare;
    ++spare->owners;
  }
  return map;
}

/* Make a map without bytes, with the tensor and the address of an accepted call. `tensor` may be
 * NULL. Return NULL with an exception if out of memory. */
static MapStorage *new_map(PyTypeObject *map_type, SpareMap *spare, PyObject *tensor,
                           uint64_t address) {
  MapStorage *map = empty_map(map_type, spare);
  if (map == NULL) return NULL;
  map->has_record = 1;
  map->address = address;
  Py_XINCREF(tensor);
  map->tensor = tensor;
  return map;
}

/* Make the map object of a judged call, but do not encode its 128 bytes. Return NULL with an
 * exception if out of memory. */
static MapStorage *map_of_call(State *state, PyObject *tensor, const Options *options,
                               const Judged *call) {
  MapStorage *map =
      new_map(state->map_type, state->spare, tensor, (uint64_t)call->described.address);
  if (map == NULL) return NULL;
  keep_options(&map->record, &options->o);
  keep_layout(&map->record, call);
  map->launchable = (uint8_t)is_on_gpu(&call->view.tensor.device);
  if (keep_rare(&map->rare, options)) return map;
  Py_DECREF(map);
  return NULL;
}

/* Make the map of a tensor. Return NULL in three cases: rules refuse the call (call->failed != 0),
 * Python must handle the call, or an exception is set. */
static MapStorage *map_of_tensor(State *state, PyObject *tensor, const Options *options, Judged *call) {
  if (!judge_tensor(state, tensor, options, call)) return NULL;
  MapStorage *map = map_of_call(state, tensor, options, call);
  if (map == NULL) return NULL;
  map->has_bytes = call->encoder != NOT_ENCODED;
  if (encode(&call->described, call->encoder, call->ordinal, map_bytes(map)) &&
      keep_fields(&map->fields, hidden_fields(&call->described, call->encoder)))
    return map;
  Py_DECREF(map);
  return NULL;
}

/* Check a call. Return a map object without bytes, which has the tensor's type in place of the
 * tensor. Return NULL in the same cases as map_of_tensor. */
static MapStorage *checked_call(State *state, PyObject *tensor, const Options *options, Judged *call) {
  if (!judge_tensor(state, tensor, options, call)) return NULL;
  MapStorage *map = map_of_call(state, (PyObject *)Py_TYPE(tensor), options, call);
  if (map == NULL) return NULL;
  tma_dlpack_extend(&call->described);
  if (keep_fields(&map->fields, &call->described)) return map;
  Py_DECREF(map);
  return NULL;
}

#endif /* TMA_DLPACK_CALLS_H */
