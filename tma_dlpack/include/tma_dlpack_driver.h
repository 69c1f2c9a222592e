/* tma_dlpack_driver.h: functions that encode maps with the driver. C11 and C++17.
 *
 * The first call loads libcuda, so a program need not link against libcuda. After each call, the
 * caller's context is current again. Each translation unit has its own state. Callers must
 * serialise calls, as Python's GIL does.
 *
 * Source: cuda.h of CUDA 13.0, and the documents of the CUDA driver API.
 */

#ifndef TMA_DLPACK_DRIVER_H
#define TMA_DLPACK_DRIVER_H

#include "tma_dlpack_make.h"

#ifndef _WIN32
#include <dlfcn.h>
#include <pthread.h>
#endif

TMA_DLPACK_BEGIN

enum { TMA_DLPACK_MAX_GPUS = 64 };

/* The result of an encode if the driver cannot be used. Then libcuda is missing or too old, or the
 * process is a forked child. */
enum { TMA_DLPACK_NO_DRIVER = -1 };

enum { TMA_DLPACK_POINTER_ORDINAL = 9 }; /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */

enum { TMA_DLPACK_INVALID_CONTEXT = 201 }; /* CUDA_ERROR_INVALID_CONTEXT: there is no context */

/* The properties of a GPU that are needed to make its tensor maps. */
typedef struct {
  int known; /* 0 if the other fields are not filled yet */
  TmaDlpackTarget target;
  void *primary; /* primary context, retained until the process ends; NULL before its first use */
} TmaDlpackGpu;

typedef int (*TmaDlpackEncodeTiled)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                                    const uint32_t *, const uint32_t *, int, int, int, int);
typedef int (*TmaDlpackEncodeIm2col)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                                     const int *, const int *, uint32_t, uint32_t, const uint32_t *,
                                     int, int, int, int);
typedef int (*TmaDlpackEncodeWide)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                                   int, int, uint32_t, uint32_t, const uint32_t *, int, int, int, int,
                                   int);

typedef struct {
  int state; /* 0: not loaded yet; 1: usable; -1: not usable */
  int gpu_count;
  int version; /* the result of cuDriverGetVersion */
  int missed_context; /* 1 if a query has ever failed because the thread had no context */
  int (*init)(unsigned);
  int (*driver_get_version)(int *);
  int (*device_get_count)(int *);
  int (*device_get_attribute)(int *, int, int);
  int (*ctx_get_current)(void **);
  int (*ctx_get_device)(int *);
  int (*ctx_push_current)(void *);
  int (*ctx_pop_current)(void **);
  int (*primary_ctx_retain)(void **, int);
  int (*pointer_get_attribute)(void *, int, uint64_t);
  TmaDlpackEncodeTiled encode_tiled;
  TmaDlpackEncodeIm2col encode_im2col;
  TmaDlpackEncodeWide encode_im2col_wide; /* NULL before CUDA 12.8 */
  TmaDlpackGpu gpus[TMA_DLPACK_MAX_GPUS];
} TmaDlpackDriver;

static inline TmaDlpackDriver *tma_dlpack_driver_state(void) {
  static TmaDlpackDriver driver;
  return &driver;
}

/* A driver that was initialised before a fork cannot be used in the child. */
static inline void tma_dlpack_driver_forked(void) {
  if (tma_dlpack_driver_state()->state == 1) tma_dlpack_driver_state()->state = -1;
}

#ifdef _WIN32
static inline int tma_dlpack_driver_load(TmaDlpackDriver *driver) {
  (void)driver;
  return 0; /* only libcuda.so.1 is supported, which Windows does not have */
}
#else
/* Find a function and copy its address to `function`. Returns whether the function exists. The
 * address is copied because ISO C has no cast from an object pointer to a function pointer. */
static inline int tma_dlpack_driver_find(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static inline int tma_dlpack_driver_load(TmaDlpackDriver *driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 0;
  tma_dlpack_driver_find(library, "cuTensorMapEncodeIm2colWide", &driver->encode_im2col_wide);
  return tma_dlpack_driver_find(library, "cuInit", &driver->init) &&
         tma_dlpack_driver_find(library, "cuDriverGetVersion", &driver->driver_get_version) &&
         tma_dlpack_driver_find(library, "cuDeviceGetCount", &driver->device_get_count) &&
         tma_dlpack_driver_find(library, "cuDeviceGetAttribute", &driver->device_get_attribute) &&
         tma_dlpack_driver_find(library, "cuCtxGetCurrent", &driver->ctx_get_current) &&
         tma_dlpack_driver_find(library, "cuCtxGetDevice", &driver->ctx_get_device) &&
         tma_dlpack_driver_find(library, "cuCtxPushCurrent_v2", &driver->ctx_push_current) &&
         tma_dlpack_driver_find(library, "cuCtxPopCurrent_v2", &driver->ctx_pop_current) &&
         tma_dlpack_driver_find(library, "cuDevicePrimaryCtxRetain", &driver->primary_ctx_retain) &&
         tma_dlpack_driver_find(library, "cuPointerGetAttribute", &driver->pointer_get_attribute) &&
         tma_dlpack_driver_find(library, "cuTensorMapEncodeTiled", &driver->encode_tiled) &&
         tma_dlpack_driver_find(library, "cuTensorMapEncodeIm2col", &driver->encode_im2col) &&
         driver->init(0) == 0 && driver->driver_get_version(&driver->version) == 0 &&
         driver->device_get_count(&driver->gpu_count) == 0 &&
         driver->gpu_count > 0 && pthread_atfork(NULL, NULL, tma_dlpack_driver_forked) == 0;
}
#endif

/* Return the driver, or NULL if there is no driver with a GPU. Only the first call loads the
 * driver. */
static inline TmaDlpackDriver *tma_dlpack_driver(void) {
  TmaDlpackDriver *driver = tma_dlpack_driver_state();
  if (driver->state == 0) driver->state = tma_dlpack_driver_load(driver) ? 1 : -1;
  return driver->state == 1 ? driver : NULL;
}

/* Return the properties of a GPU, or NULL if there is no such GPU. */
static inline TmaDlpackGpu *tma_dlpack_gpu(int ordinal) {
  TmaDlpackDriver *driver = tma_dlpack_driver();
  if (driver == NULL || ordinal < 0 || ordinal >= driver->gpu_count ||
      ordinal >= TMA_DLPACK_MAX_GPUS)
    return NULL;
  TmaDlpackGpu *gpu = &driver->gpus[ordinal];
  if (!gpu->known) /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ..._MINOR, MAX_..._OPTIN */
  {
    int smem = 0;
    gpu->known = driver->device_get_attribute(&gpu->target.major, 75, ordinal) == 0 &&
                 driver->device_get_attribute(&gpu->target.minor, 76, ordinal) == 0 &&
                 driver->device_get_attribute(&smem, 97, ordinal) == 0;
    gpu->target.max_smem_bytes = smem;
  }
  return gpu->known ? gpu : NULL;
}

/* Return the ordinal of the current context's GPU, or -1 if there is no context. The query for the
 * GPU takes a tenth of the time of an encode. Without a context, the query fails after one to two
 * microseconds. So the function calls the query directly until the query has failed once. From then
 * on, each call first checks whether the thread has a context. */
static inline int tma_dlpack_current_gpu(TmaDlpackDriver *driver) {
  void *context = NULL;
  int ordinal = -1;
  if (driver->missed_context && (driver->ctx_get_current(&context) != 0 || context == NULL)) return -1;
  if (driver->gpu_count == 1) return 0;
  if (driver->ctx_get_device(&ordinal) == 0) return ordinal;
  driver->missed_context = 1;
  return -1;
}

/* Return the ordinal of the GPU whose memory contains a tensor, or -1 for memory that is not on a
 * GPU. Producers export managed memory as memory of GPU 0. Therefore the ordinal for managed memory
 * comes from the driver, which returns the GPU whose context allocated the memory. */
static inline int tma_dlpack_ordinal(const TmaDlpackTensor *tensor) {
  int ordinal = -1;
  TmaDlpackDriver *driver = tma_dlpack_driver();
  if (tensor->device.device_type == TMA_DLPACK_CUDA) return tensor->device.device_id;
  if (tensor->device.device_type != TMA_DLPACK_CUDA_MANAGED || driver == NULL) return -1;
  uint64_t address = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
  int result = driver->pointer_get_attribute(&ordinal, TMA_DLPACK_POINTER_ORDINAL, address);
  return result == 0 && ordinal >= 0 ? ordinal : tensor->device.device_id;
}

/* Call the encoder of the map's kind in the current context. Returns the CUresult. */
static inline int tma_dlpack_driver_call(const TmaDlpackDriver *driver, const TmaDlpackDescribed *a,
                                         unsigned char *map) {
  const uint64_t *dims = (const uint64_t *)a->global_dim;
  uint64_t strides[TMA_DLPACK_MAX_RANK];
  uint32_t box[TMA_DLPACK_MAX_RANK], elem_strides[TMA_DLPACK_MAX_RANK];
  int lower[TMA_DLPACK_MAX_RANK], upper[TMA_DLPACK_MAX_RANK];
  void *address = (void *)(uintptr_t)a->address;
  const uint32_t rank = (uint32_t)a->rank;
  const int data_type = (int)a->data_type, interleave = (int)a->interleave, swizzle = (int)a->swizzle;
  const int l2_promotion = (int)a->l2_promotion, oob_fill = (int)a->oob_fill;
  for (int d = 0; d < a->rank; ++d) elem_strides[d] = (uint32_t)a->element_strides[d];
  for (int d = 0; d < a->rank - 1; ++d) strides[d] = (uint64_t)a->stride_bits[d] / 8;
  if (a->kind == TMA_DLPACK_TILED) {
    for (int d = 0; d < a->rank; ++d) box[d] = (uint32_t)a->box_dim[d];
    return driver->encode_tiled(map, data_type, rank, address, dims, strides, box, elem_strides,
                                interleave, swizzle, l2_promotion, oob_fill);
  }
  if (a->kind == TMA_DLPACK_IM2COL) {
    for (int s = 0; s < a->rank - 2; ++s) {
      lower[s] = (int)a->lower[s];
      upper[s] = (int)a->upper[s];
    }
    return driver->encode_im2col(map, data_type, rank, address, dims, strides, lower, upper,
                                 (uint32_t)a->channels, (uint32_t)a->pixels, elem_strides,
                                 interleave, swizzle, l2_promotion, oob_fill);
  }
  if (driver->encode_im2col_wide == NULL) return TMA_DLPACK_NO_DRIVER;
  return driver->encode_im2col_wide(map, data_type, rank, address, dims, strides, (int)a->lower[0],
                                    (int)a->upper[0], (uint32_t)a->channels, (uint32_t)a->pixels,
                                    elem_strides, interleave, (int)a->mode, swizzle, l2_promotion,
                                    oob_fill);
}

/* Clear bit 85 of a map, as libcu++ does. The bit stands for the allocation class LARGE. On compute
 * capability 10.0 and later, drivers before 13.2 also set this bit for small allocations. libcu++
 * clears the bit in tiled maps. If the rank is 1, libcu++ clears the bit only if the tensor has
 * less than 128 KiB. Source: release notes of driver 595.71.05. */
static inline void tma_dlpack_mend(const TmaDlpackDriver *driver, const TmaDlpackGpu *gpu,
                                   const TmaDlpackDescribed *a, unsigned char *map) {
  if (gpu->target.major < 10 || driver->version >= TMA_DLPACK_BIT_85_MENDED_IN ||
      a->kind != TMA_DLPACK_TILED ||
      (a->rank == 1 && a->global_dim[0] * a->element_bits >= 8 * TMA_DLPACK_BIT_85_SMALL_BYTES))
    return;
  map[85 / 8] &= (unsigned char)~(1u << 85 % 8);
}

/* Encode accepted arguments for a GPU with the driver. The GPU's context need not be current. `map`
 * must be aligned to 128 bytes. Returns the CUresult, which is 0 for success. */
static inline int tma_dlpack_driver_encode(const TmaDlpackDescribed *a, int ordinal,
                                           unsigned char *map) {
  TmaDlpackGpu *gpu = tma_dlpack_gpu(ordinal);
  if (gpu == NULL) return TMA_DLPACK_NO_DRIVER;
  TmaDlpackDriver *driver = tma_dlpack_driver();
  int result = 0;
  if (tma_dlpack_current_gpu(driver) == ordinal) {
    result = tma_dlpack_driver_call(driver, a, map);
    if (result == 0) tma_dlpack_mend(driver, gpu, a, map);
    if (result != TMA_DLPACK_INVALID_CONTEXT) return result;
    driver->missed_context = 1;
    result = 0;
  }
  if (gpu->primary == NULL) result = driver->primary_ctx_retain(&gpu->primary, ordinal);
  if (result == 0) result = driver->ctx_push_current(gpu->primary);
  if (result != 0) return result;
  result = tma_dlpack_driver_call(driver, a, map);
  if (result == 0) tma_dlpack_mend(driver, gpu, a, map);
  void *popped = NULL;
  int pop_result = driver->ctx_pop_current(&popped);
  return result != 0 ? result : pop_result;
}

TMA_DLPACK_END

#endif /* TMA_DLPACK_DRIVER_H */
