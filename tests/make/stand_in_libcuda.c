/* A stand-in for libcuda.so.1, so that tests can make maps of CUDA tensors without a GPU.
 *
 * It has the functions that native/core.c and driver/library.py call to encode a map. They keep a
 * stack of current contexts per thread, as the driver does, and write down each call. The encoders
 * refuse what the driver refuses, and write the layout that was measured on an H200.
 * stand_in_gpu.py sets it up through the functions named stand_in_*.
 *
 * GPU 0 and GPU 1 have compute capability 9.0, GPU 2 has 10.0. STAND_IN_GPUS in the environment is
 * another number of GPUs, STAND_IN_INIT what cuInit returns.
 */

#include "tma_dlpack_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GPUS = 3, DEPTH = 8, LOG_BYTES = 1 << 16 };

/* CUresult (cuda.h). */
enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };

typedef struct {
  int gpu;
} Context;

static Context primary[GPUS] = {{0}, {1}, {2}};
static Context own[GPUS] = {{0}, {1}, {2}}; /* made by the user, in addition to the primary contexts */
static _Thread_local Context *stack[DEPTH];
static _Thread_local int depth;
static _Thread_local char calls[LOG_BYTES];
static _Thread_local size_t call_bytes;

static int process; /* that called cuInit */
static char failing[64];
static int failing_result, calls_before_failure, pointer_gpu = -1;

/* ---- what a test sets and asks ------------------------------------------------------------------- */

/* Make this the only current context of the thread: of a GPU, or none for -1. */
void stand_in_set_context(int gpu, int is_primary) {
  depth = gpu >= 0;
  if (gpu >= 0) stack[0] = is_primary ? &primary[gpu] : &own[gpu];
}

/* Describe the current contexts, innermost last, such as "primary 0, own 1". */
const char *stand_in_contexts(void) {
  static _Thread_local char text[16 * DEPTH];
  text[0] = '\0';
  for (int i = 0; i < depth; ++i) {
    char one[16];
    int is_primary = stack[i] >= primary && stack[i] < primary + GPUS;
    snprintf(one, sizeof one, "%s%s %d", i > 0 ? ", " : "", is_primary ? "primary" : "own",
             stack[i]->gpu);
    strcat(text, one);
  }
  return text;
}

/* Let a function return `result` from its next call but `before` on; "" lets all work. */
void stand_in_fail(const char *function, int result, int before) {
  snprintf(failing, sizeof failing, "%s", function);
  failing_result = result;
  calls_before_failure = before;
}

/* Let cuPointerGetAttribute give this GPU for every address; -1: it knows none. */
void stand_in_own_pointers(int gpu) { pointer_gpu = gpu; }

/* The thread's calls since the last stand_in_forget, as far as there was room; encoders have the GPU
 * of the context, such as "cuCtxGetCurrent cuTensorMapEncodeTiled@0". */
const char *stand_in_calls(void) { return calls; }

void stand_in_forget(void) { calls[call_bytes = 0] = '\0'; }

/* ---- the functions of libcuda -------------------------------------------------------------------- */

/* Record a call. Returns the call's result: 0, or the error that the test has set. */
static int called(const char *function, int gpu) {
  char place[16] = "";
  if (gpu >= 0) snprintf(place, sizeof place, "@%d", gpu);
  if (call_bytes + strlen(function) + sizeof place + 2 < LOG_BYTES)
    call_bytes += (size_t)snprintf(calls + call_bytes, LOG_BYTES - call_bytes, "%s%s%s",
                                   call_bytes > 0 ? " " : "", function, place);
  if (strcmp(function, failing) != 0) return 0;
  return calls_before_failure-- > 0 ? 0 : failing_result;
}

#define WRITE_DOWN(gpu)                        \
  do {                                         \
    int result = called(__func__, gpu);        \
    if (result != 0) return result;            \
    if (process != getpid()) return NOT_INITIALIZED; \
  } while (0)

static int number_in_environment(const char *name, int usual) {
  const char *text = getenv(name);
  return text != NULL ? atoi(text) : usual;
}

static int gpu_count(void) { return number_in_environment("STAND_IN_GPUS", GPUS); }

/* Like the driver, it cannot be initialised again in a forked child. */
int cuInit(unsigned flags) {
  int result = called(__func__, -1);
  if (result == 0) result = flags != 0 ? INVALID_VALUE : number_in_environment("STAND_IN_INIT", 0);
  if (result == 0 && process == 0) process = getpid();
  return result != 0 ? result : process == getpid() ? 0 : NOT_INITIALIZED;
}

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

int cuDeviceGetCount(int *count) {
  WRITE_DOWN(-1);
  *count = gpu_count();
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  WRITE_DOWN(-1);
  *device = ordinal;
  return ordinal >= 0 && ordinal < gpu_count() ? 0 : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device) {
  WRITE_DOWN(-1);
  snprintf(name, (size_t)length, "Stand-in GPU %d", device);
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  WRITE_DOWN(-1);
  if (device < 0 || device >= gpu_count()) return INVALID_DEVICE;
  int has_90 = device < 2;
  *value = attribute == 75   ? (has_90 ? 9 : 10)
           : attribute == 76 ? 0
           : attribute == 97 ? 232448
                             : 132; /* multiprocessors */
  return 0;
}

int cuDevicePrimaryCtxRetain(Context **context, int device) {
  WRITE_DOWN(-1);
  if (device < 0 || device >= gpu_count()) return INVALID_DEVICE;
  *context = &primary[device];
  return 0;
}

int cuCtxGetCurrent(Context **context) {
  WRITE_DOWN(-1);
  *context = depth > 0 ? stack[depth - 1] : NULL;
  return 0;
}

int cuCtxGetDevice(int *device) {
  WRITE_DOWN(-1);
  if (depth == 0) return INVALID_CONTEXT;
  *device = stack[depth - 1]->gpu;
  return 0;
}

int cuCtxPushCurrent_v2(Context *context) {
  WRITE_DOWN(-1);
  if (context == NULL || depth == DEPTH) return INVALID_CONTEXT;
  stack[depth++] = context;
  return 0;
}

int cuCtxPopCurrent_v2(Context **context) {
  WRITE_DOWN(-1);
  if (depth == 0) return INVALID_CONTEXT;
  *context = stack[--depth];
  return 0;
}

/* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL is 9. */
int cuPointerGetAttribute(void *answer, int attribute, uint64_t address) {
  (void)address;
  WRITE_DOWN(-1);
  if (pointer_gpu < 0 || attribute != 9) return INVALID_VALUE;
  memcpy(answer, &pointer_gpu, sizeof pointer_gpu);
  return 0;
}

int cuGetErrorName(int result, const char **name) {
  *name = result == INVALID_VALUE     ? "CUDA_ERROR_INVALID_VALUE"
          : result == NOT_INITIALIZED ? "CUDA_ERROR_NOT_INITIALIZED"
          : result == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                      : NULL;
  return *name != NULL ? 0 : INVALID_VALUE;
}

int cuGetErrorString(int result, const char **text) {
  *text = result == INVALID_VALUE     ? "invalid argument"
          : result == NOT_INITIALIZED ? "initialization error"
          : result == INVALID_CONTEXT ? "invalid device context"
                                      : NULL;
  return *text != NULL ? 0 : INVALID_VALUE;
}

/* ---- encoders ------------------------------------------------------------------------------------ */

static int current_gpu(void) { return depth > 0 ? stack[depth - 1]->gpu : -1; }

/* The map must be aligned, and zero: that is how the driver was called when its bytes were measured. */
static int is_map_memory(const unsigned char *map) {
  static const unsigned char zeros[TMA_DLPACK_MAP_BYTES];
  return (uintptr_t)map % TMA_DLPACK_ALIGNMENT_BYTES == 0 && memcmp(map, zeros, sizeof zeros) == 0;
}

/* The arguments about the tensor, which all encoders take. Entries past the rank are not read. */
static TmaDlpackDescribed tensor_arguments(int kind, int data_type, uint32_t rank, void *address,
                                           const uint64_t *dims, const uint64_t *strides,
                                           const uint32_t *elem_strides) {
  TmaDlpackDescribed a = {.kind = kind, .data_type = data_type, .address = (intptr_t)address};
  a.rank = rank <= TMA_DLPACK_MAX_RANK ? (int)rank : 0;
  a.box_count = a.elem_stride_count = a.rank;
  a.lower_count = a.upper_count = kind == TMA_DLPACK_IM2COL ? a.rank - 2 : 1;
  for (int d = 0; d < a.rank; ++d) {
    a.global_dim[d] = (int64_t)dims[d];
    a.element_strides[d] = elem_strides[d];
    if (d < a.rank - 1) a.stride_bits[d] = 8 * (int64_t)strides[d];
  }
  return a;
}

/* GPUs of 10.0 set bit 85, as drivers before CUDA 13.2 do. */
static int encode(TmaDlpackDescribed *a, unsigned char *map) {
  if (depth == 0) return INVALID_CONTEXT;
  const TmaDlpackTarget target = {stack[depth - 1]->gpu < 2 ? 9 : 10, 0, 232448};
  const TmaDlpackTypeRow *row = tma_dlpack_type_row((int)a->data_type);
  if (!is_map_memory(map) || row == NULL) return INVALID_VALUE;
  a->row_bits = a->global_dim[0] * row->element_bits;
  a->inner_stride = 1;
  a->asked_type = -1;
  tma_dlpack_derive(a, TMA_DLPACK_RULES_MEASURED, &target);
  int rules = tma_dlpack_rules_of(TMA_DLPACK_IM2COL, 1, &target);
  if (tma_dlpack_judge(a, tma_dlpack_rows((int)a->kind, rules, 1)) != 0) return INVALID_VALUE;
  tma_dlpack_encode(a, map);
  if (target.major == 10) map[85 / 8] |= 1u << 85 % 8;
  return 0;
}

int cuTensorMapEncodeTiled(void *map, int data_type, uint32_t rank, void *address,
                           const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *elem_strides, int interleave, int swizzle,
                           int l2_promotion, int oob_fill) {
  WRITE_DOWN(current_gpu());
  TmaDlpackDescribed a = tensor_arguments(TMA_DLPACK_TILED, data_type, rank, address, dims, strides,
                                          elem_strides);
  for (int d = 0; d < a.rank; ++d) a.box_dim[d] = box[d];
  a.interleave = interleave;
  a.swizzle = swizzle;
  a.l2_promotion = l2_promotion;
  a.oob_fill = oob_fill;
  return encode(&a, map);
}

int cuTensorMapEncodeIm2col(void *map, int data_type, uint32_t rank, void *address,
                            const uint64_t *dims, const uint64_t *strides, const int *lower,
                            const int *upper, uint32_t channels, uint32_t pixels,
                            const uint32_t *elem_strides, int interleave, int swizzle,
                            int l2_promotion, int oob_fill) {
  WRITE_DOWN(current_gpu());
  TmaDlpackDescribed a = tensor_arguments(TMA_DLPACK_IM2COL, data_type, rank, address, dims,
                                          strides, elem_strides);
  for (int s = 0; s < a.rank - 2; ++s) {
    a.lower[s] = lower[s];
    a.upper[s] = upper[s];
  }
  a.channels = channels;
  a.pixels = pixels;
  a.interleave = interleave;
  a.swizzle = swizzle;
  a.l2_promotion = l2_promotion;
  a.oob_fill = oob_fill;
  return encode(&a, map);
}

#ifndef BEFORE_CUDA_12_8
int cuTensorMapEncodeIm2colWide(void *map, int data_type, uint32_t rank, void *address,
                                const uint64_t *dims, const uint64_t *strides, int lower, int upper,
                                uint32_t channels, uint32_t pixels, const uint32_t *elem_strides,
                                int interleave, int mode, int swizzle, int l2_promotion,
                                int oob_fill) {
  WRITE_DOWN(current_gpu());
  TmaDlpackDescribed a = tensor_arguments(TMA_DLPACK_IM2COL_WIDE, data_type, rank, address, dims,
                                          strides, elem_strides);
  a.lower[0] = lower;
  a.upper[0] = upper;
  a.channels = channels;
  a.pixels = pixels;
  a.interleave = interleave;
  a.mode = mode;
  a.swizzle = swizzle;
  a.l2_promotion = l2_promotion;
  a.oob_fill = oob_fill;
  return encode(&a, map);
}
#endif

int cuTensorMapReplaceAddress(void *map, void *address) {
  WRITE_DOWN(current_gpu());
  if ((uintptr_t)address % 16 != 0) return INVALID_VALUE;
  memcpy(map, &address, sizeof address);
  return 0;
}

/* ---- torch tensors that seem to be CUDA tensors -------------------------------------------------- */

/* torch's dltensor_from_py_object_no_sync, with the device exchanged. */
static int (*fill_of_torch)(void *, TmaDlpackTensor *);
static int gpu_of_torch_tensors;

static int fill_on_gpu(void *object, TmaDlpackTensor *out) {
  int result = fill_of_torch(object, out);
  out->device.device_type = TMA_DLPACK_CUDA;
  out->device.device_id = gpu_of_torch_tensors;
  return result;
}

void stand_in_put_torch_tensors(int gpu) { gpu_of_torch_tensors = gpu; }

/* A copy of the DLPack exchange API of torch [dlpack.h 1.3: word 5 is the function above]. */
void **stand_in_exchange_api(void **torchs) {
  static void *table[7];
  int (*fill)(void *, TmaDlpackTensor *) = fill_on_gpu;
  memcpy(table, torchs, sizeof table);
  memcpy(&fill_of_torch, &torchs[5], sizeof torchs[5]);
  memcpy(&table[5], &fill, sizeof fill);
  return table;
}
