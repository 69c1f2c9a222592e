/* libcuda.so.1 for the tests of trace: the stand-in of tests/make, with what CUPTI needs of it.
 *
 * As the real one, cuInit loads the library that CUDA_INJECTION64_PATH names, and each call below runs
 * the subscriber's callback before and after it. Kernels are pointers to a `Kernel`.
 * The layouts of parameters equal generated_cuda_meta.h of CUDA 13.0.
 */

#define cuInit plain_cuInit
#define cuTensorMapEncodeTiled plain_tiled
#define cuTensorMapEncodeIm2col plain_im2col
#define cuTensorMapEncodeIm2colWide plain_im2col_wide
#define cuTensorMapReplaceAddress plain_replace
#include "../make/stand_in_libcuda.c"
#undef cuInit
#undef cuTensorMapEncodeTiled
#undef cuTensorMapEncodeIm2col
#undef cuTensorMapEncodeIm2colWide
#undef cuTensorMapReplaceAddress

#include <dlfcn.h>

typedef struct {
  int site;
  const char *function_name;
  const void *params;
  void *result;
  const char *symbol_name;
} CallbackData;

typedef void (*Callback)(void *, int, uint32_t, const CallbackData *);

/* Set by the stand-in of CUPTI; `enabled` has a byte for each callback of the driver's. */
static Callback callback;
static void *user;
static const unsigned char *enabled;

void stand_in_subscribe(Callback function, void *data, const unsigned char *which) {
  user = data;
  enabled = which;
  callback = function;
}

int cuInit(unsigned flags) {
  static int is_injected;
  int result = plain_cuInit(flags);
  const char *path = getenv("CUDA_INJECTION64_PATH");
  if (result != 0 || path == NULL || is_injected++) return result;
  void *library = dlopen(path, RTLD_NOW);
  int (*injection)(void) = NULL;
  if (library != NULL) *(void **)&injection = dlsym(library, "InitializeInjection");
  if (injection != NULL) injection();
  return result;
}

typedef struct {
  const char *name;
  int parameters;
  size_t bytes[8];
} Kernel;

int cuFuncGetParamInfo(const Kernel *kernel, size_t index, size_t *offset, size_t *bytes) {
  if (index >= (size_t)kernel->parameters) return INVALID_VALUE;
  *offset = 0;
  for (size_t i = 0; i <= index; ++i) {
    size_t alignment = kernel->bytes[i] >= 64 ? 64 : 8;
    *offset = (*offset + (i > 0 ? kernel->bytes[i - 1] : 0) + alignment - 1) / alignment * alignment;
  }
  *bytes = kernel->bytes[index];
  return 0;
}

int cuFuncGetName(const char **name, const Kernel *kernel) {
  *name = kernel->name;
  return 0;
}

static void tell(int site, uint32_t id, const char *name, const void *params, int *result,
                 const Kernel *kernel) {
  CallbackData data = {site, name, params, result, kernel != NULL ? kernel->name : NULL};
  if (callback != NULL && enabled[id]) callback(user, 1, id, &data);
}

/* A call with callbacks around it. The arguments stand in a struct, as CUPTI gives them. With
 * STAND_IN_BLIND in the environment no call is made, and all are refused: pointers may be bad. */
#define TOLD(id, name, kernel, call, ...)                  \
  do {                                                     \
    void *arguments[] = {__VA_ARGS__};                     \
    int result = 0;                                        \
    tell(0, id, name, arguments, &result, kernel);         \
    result = getenv("STAND_IN_BLIND") ? INVALID_VALUE : (call); \
    tell(1, id, name, arguments, &result, kernel);         \
    return result;                                         \
  } while (0)

#define PAIR(low, high) (void *)(uintptr_t)((uint32_t)(low) | (uint64_t)(uint32_t)(high) << 32)

#ifndef WITHOUT_TENSOR_MAPS
int cuTensorMapEncodeTiled(void *map, int data_type, uint32_t rank, void *address,
                           const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *elem_strides, int interleave, int swizzle,
                           int l2_promotion, int oob_fill) {
  TOLD(697, "cuTensorMapEncodeTiled", NULL,
       plain_tiled(map, data_type, rank, address, dims, strides, box, elem_strides, interleave, swizzle,
                   l2_promotion, oob_fill),
       map, PAIR(data_type, rank), address, (void *)dims, (void *)strides, (void *)box,
       (void *)elem_strides, PAIR(interleave, swizzle), PAIR(l2_promotion, oob_fill));
}
#endif

int cuTensorMapEncodeIm2col(void *map, int data_type, uint32_t rank, void *address,
                            const uint64_t *dims, const uint64_t *strides, const int *lower,
                            const int *upper, uint32_t channels, uint32_t pixels,
                            const uint32_t *elem_strides, int interleave, int swizzle,
                            int l2_promotion, int oob_fill) {
  TOLD(698, "cuTensorMapEncodeIm2col", NULL,
       plain_im2col(map, data_type, rank, address, dims, strides, lower, upper, channels, pixels,
                    elem_strides, interleave, swizzle, l2_promotion, oob_fill),
       map, PAIR(data_type, rank), address, (void *)dims, (void *)strides, (void *)lower,
       (void *)upper, PAIR(channels, pixels), (void *)elem_strides, PAIR(interleave, swizzle),
       PAIR(l2_promotion, oob_fill));
}

int cuTensorMapEncodeIm2colWide(void *map, int data_type, uint32_t rank, void *address,
                                const uint64_t *dims, const uint64_t *strides, int lower, int upper,
                                uint32_t channels, uint32_t pixels, const uint32_t *elem_strides,
                                int interleave, int mode, int swizzle, int l2_promotion,
                                int oob_fill) {
  TOLD(781, "cuTensorMapEncodeIm2colWide", NULL,
       plain_im2col_wide(map, data_type, rank, address, dims, strides, lower, upper, channels, pixels,
                         elem_strides, interleave, mode, swizzle, l2_promotion, oob_fill),
       map, PAIR(data_type, rank), address, (void *)dims, (void *)strides, PAIR(lower, upper),
       PAIR(channels, pixels), (void *)elem_strides, PAIR(interleave, mode),
       PAIR(swizzle, l2_promotion), PAIR(oob_fill, 0));
}

int cuTensorMapReplaceAddress(void *map, void *address) {
  TOLD(699, "cuTensorMapReplaceAddress", NULL, plain_replace(map, address), map, address);
}

/* Refuses a launch without parameters, as the driver does where it reads a bad pointer. */
int cuLaunchKernel(const Kernel *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                   void *stream, void **params, void **extra) {
  TOLD(307, "cuLaunchKernel", kernel, params == NULL && extra == NULL ? INVALID_VALUE : 0,
       (void *)kernel, PAIR(grid_x, grid_y), PAIR(grid_z, block_x), PAIR(block_y, block_z),
       PAIR(smem_bytes, 0), stream, (void *)params, (void *)extra);
}

int cuLaunchKernelEx(const void *config, const Kernel *kernel, void **params, void **extra) {
  TOLD(652, "cuLaunchKernelEx", kernel, 0, (void *)config, (void *)kernel, (void *)params,
       (void *)extra);
}

/* CUDA_KERNEL_NODE_PARAMS_v2: the function first, 7 words, then the parameters; a CUkernel at 56. */
int cuGraphAddKernelNode_v2(void **node, void *graph, const void *dependencies, size_t count,
                            const void *params) {
  TOLD(689, "cuGraphAddKernelNode_v2", NULL, 0, (void *)node, graph, (void *)dependencies,
       (void *)count, (void *)params);
}

/* CUPTI reports the one as an event, the other as a call. */
int cuModuleUnload(void *module) {
  (void)module;
  CallbackData data = {0};
  if (callback != NULL) callback(user, 3, 7, &data);
  return 0;
}

int cuLibraryUnload(void *library) { TOLD(680, "cuLibraryUnload", NULL, 0, library); }

int cuCtxSynchronize(void) {
  CallbackData data = {0};
  if (callback != NULL) callback(user, 4, 2, &data);
  return 0;
}

int cuModuleLoadData(void **module, const void *image) {
  CallbackData data = {0};
  (void)module, (void)image;
  if (callback != NULL) callback(user, 3, 6, &data);
  return 0;
}
