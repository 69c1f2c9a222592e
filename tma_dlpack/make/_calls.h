/* _calls.h: a call for a tensor, up to the encoded map.
 *
 *   judge_tensor   read the tensor and its device, describe the driver's arguments, judge them
 *   keep_call      what a map keeps of the call
 *   encode         the 128 bytes, by the driver or by the measured layout
 */

#ifndef TMA_DLPACK_CALLS_H
#define TMA_DLPACK_CALLS_H

#include "../include/tma_dlpack_driver.h"
#include "_tensors.h"

enum { ON_HOST = -1 }; /* in place of a GPU's ordinal: described for sm_90, encoded by the model */

/* A tensor and its arguments, which were judged. */
typedef struct {
  View view;
  TmaDlpackArguments arguments;
  int ordinal; /* of the GPU, or ON_HOST */
} Judged;

/* Find out which encoder a tensor's device needs, and its limit of shared memory. 0: not sure. */
static int read_device(const TmaDlpackDevice *device, int *ordinal, int64_t *max_smem_bytes) {
  *ordinal = ON_HOST;
  *max_smem_bytes = TMA_DLPACK_SM_90_SMEM_BYTES;
  if (device->device_id < 0) return 0;
  if (device->device_type == TMA_DLPACK_CPU || device->device_type == TMA_DLPACK_CUDA_HOST) return 1;
  if (device->device_type != TMA_DLPACK_CUDA) return 0; /* whose GPU managed memory is on, only the
                                                           driver knows */
  const TmaDlpackGpu *gpu = tma_dlpack_gpu(device->device_id);
  if (gpu == NULL || !tma_dlpack_gpu_is_judged(gpu)) return 0;
  *ordinal = device->device_id;
  *max_smem_bytes = gpu->max_smem_bytes;
  return 1;
}

/* 1 if a map can be made; 0 for "not sure", possibly with an exception that the caller clears. */
static int judge_tensor(State *state, PyObject *tensor, const TmaDlpackOptions *options,
                        Judged *call) {
  int64_t max_smem_bytes;
  if (!read_tensor(state, tensor, &call->view) ||
      !read_device(&call->view.told.device, &call->ordinal, &max_smem_bytes))
    return 0;
  tma_dlpack_describe(&call->view.told, options, &call->arguments);
  return tma_dlpack_judge(&call->arguments, options->rules, max_smem_bytes);
}

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

/* Keep a tensor's layout, and by whom its map is encoded. */
static void keep_layout(AskedCall *asked, const Judged *call) {
  const View *view = &call->view;
  asked->rank = (uint8_t)view->told.ndim;
  asked->device = view->told.device;
  asked->dtype = view->told.dtype;
  asked->flags = (uint8_t)view->flags;
  asked->has_strides = view->told.strides != NULL;
  asked->by_driver = call->ordinal != ON_HOST;
  memcpy(asked->shape, view->shape, sizeof asked->shape); /* entries past the rank are not read */
  if (asked->has_strides) memcpy(asked->strides, view->strides, sizeof asked->strides);
}

/* Encode judged arguments: by the driver for a GPU's ordinal, by the model for ON_HOST. The 128 bytes
 * are aligned, and zero, as the driver was given them when measured. 0: the driver refuses. */
static int encode(const TmaDlpackArguments *a, int ordinal, unsigned char *bytes) {
  if (ordinal != ON_HOST) return tma_dlpack_driver_encode(a, ordinal, bytes) == 0;
  tma_dlpack_encode(a, bytes);
  return 1;
}

/* An empty map, in the spare memory if there is any; NULL with an exception if out of memory. */
static MapStorage *empty_map(PyTypeObject *map_type, SpareMap *spare) {
  MapStorage *map = spare == NULL ? NULL : spare->map;
  if (map == NULL) {
    map = (MapStorage *)PyType_GenericAlloc(map_type, 0);
  } else {
    /* volatile: gcc writes zeros of a known size in line, by "rep stos", which takes three times as long */
    const volatile size_t bytes = sizeof *map - sizeof(PyObject);
    spare->map = NULL;
    memset((char *)map + sizeof(PyObject), 0, bytes);
    PyObject_Init((PyObject *)map, map_type);
    PyObject_GC_Track(map);
  }
  if (map != NULL && spare != NULL) {
    map->spare = spare;
    ++spare->owners;
  }
  return map;
}

/* A new map, with or without a tensor; NULL with an exception if out of memory. */
static MapStorage *new_map(PyTypeObject *map_type, SpareMap *spare, PyObject *tensor,
                           uint64_t address) {
  MapStorage *map = empty_map(map_type, spare);
  if (map == NULL) return NULL;
  map->has_asked = map->has_bytes = 1;
  map->address = address;
  Py_XINCREF(tensor);
  map->tensor = tensor;
  return map;
}

/* The short cut for one tensor. A new map; NULL for "not sure", or with an exception. */
static MapStorage *map_of_tensor(State *state, PyObject *tensor, const TmaDlpackOptions *options) {
  Judged call;
  if (!judge_tensor(state, tensor, options, &call)) return NULL;
  MapStorage *map = new_map(state->map_type, state->spare, tensor, call.arguments.address);
  if (map == NULL) return NULL;
  keep_options(&map->asked, options);
  keep_layout(&map->asked, &call);
  map->launchable = call.ordinal != ON_HOST;
  if (encode(&call.arguments, call.ordinal, map_bytes(map))) return map;
  Py_DECREF(map);
  return NULL;
}

#endif /* TMA_DLPACK_CALLS_H */
