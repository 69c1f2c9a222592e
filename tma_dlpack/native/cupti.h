/* cupti.h: functions that find CUPTI and the driver at run time, and tables of the driver calls
 * that the trace records.
 *
 * Source of the declarations: cupti_callbacks.h, cupti_driver_cbid.h, generated_cuda_meta.h and
 * cuda.h of CUDA 13.0. NVIDIA never changes the numbers of callbacks and the layouts of parameters.
 */

#ifndef TMA_DLPACK_CUPTI_H
#define TMA_DLPACK_CUPTI_H

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* ---- CUPTI --------------------------------------------------------------------------------------- */

/* Numbers that CUPTI defines. */
enum { DRIVER_API = 1, RESOURCE = 3, SYNCHRONIZE = 4 };        /* callback domains */
enum { MODULE_LOADED = 6, MODULE_UNLOAD_STARTING = 7 };        /* callbacks of the domain RESOURCE */
enum { STREAM_SYNCHRONIZED = 1, CONTEXT_SYNCHRONIZED = 2 };    /* callbacks of SYNCHRONIZE */
enum { API_ENTER = 0, API_EXIT = 1 };                          /* sites of a call */
/* Callbacks of the domain DRIVER_API: the driver calls that make maps. */
enum { ENCODE_TILED = 697, ENCODE_IM2COL = 698, REPLACE_ADDRESS = 699, ENCODE_IM2COL_WIDE = 781 };

/* The first members of CUpti_CallbackData. */
typedef struct {
  int site;
  const char *function_name;
  const void *params;
  void *result;
  const char *symbol_name;
  /* The trace does not read the other members. */
} CallbackData;

/* The parameters of cuptiSubscribe_v2. CUPTI allows only one subscriber. If there is an earlier
 * subscriber, `other_name` receives its name. */
typedef struct {
  size_t size_bytes;
  const char *name;
  char *other_name;
  size_t other_bytes;
} SubscriberParams;

typedef void (*Callback)(void *, int, uint32_t, const CallbackData *);

static struct {
  int (*subscribe)(void **, Callback, void *);
  int (*subscribe_v2)(void **, Callback, void *, SubscriberParams *);
  int (*unsubscribe)(void *);
  int (*enable)(uint32_t, void *, int, uint32_t);
  int (*state)(uint32_t *, void *, int, uint32_t);
  int (*version)(uint32_t *);
} cupti;

/* ---- the driver ---------------------------------------------------------------------------------- */

static struct {
  int (*param_info)(void *, size_t, size_t *, size_t *);        /* since CUDA 12.4 */
  int (*kernel_param_info)(void *, size_t, size_t *, size_t *); /* of a CUkernel */
  int (*version)(int *);
  int (*current_device)(int *);
  int (*device_attribute)(int *, int, int);
  int (*name)(const char **, void *); /* since CUDA 12.3 */
} driver;

static int is_loaded_cupti(struct dl_phdr_info *info, size_t size, void *name) {
  (void)size;
  const char *base = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
  if (base == NULL || strncmp(base, "/libcupti.so", 12) != 0) return 0;
  snprintf(name, PATH_BYTES, "%s", info->dlpi_name);
  return 1;
}

static int load_cupti(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 0;
#define FIND(member, name) (*(void **)&cupti.member = dlsym(library, name)) != NULL
  *(void **)&cupti.subscribe_v2 = dlsym(library, "cuptiSubscribe_v2"); /* since CUPTI 13.0 */
  return FIND(subscribe, "cuptiSubscribe") && FIND(unsubscribe, "cuptiUnsubscribe") &&
         FIND(enable, "cuptiEnableCallback") && FIND(state, "cuptiGetCallbackState") &&
         FIND(version, "cuptiGetVersion");
#undef FIND
}

/* Load CUPTI, and return whether it was found. First try a CUPTI that the process has already
 * loaded. Then try the paths in `given`, which Python has found. Colons separate these paths.
 * Finally try names that the loader searches for. `path` receives the path or the name of the
 * library that was loaded. */
static int find_cupti(const char *given, char *path) {
  char names[4 * PATH_BYTES], *rest = NULL;
  if (dl_iterate_phdr(is_loaded_cupti, path) && load_cupti(path)) return 1;
  snprintf(names, sizeof names, "%s:libcupti.so.13:libcupti.so.12:libcupti.so", given ? given : "");
  for (char *name = strtok_r(names, ":", &rest); name != NULL; name = strtok_r(NULL, ":", &rest)) {
    snprintf(path, PATH_BYTES, "%s", name);
    if (load_cupti(path)) return 1;
  }
  return 0;
}

static int find_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL) return 0;
  *(void **)&driver.param_info = dlsym(library, "cuFuncGetParamInfo");
  *(void **)&driver.kernel_param_info = dlsym(library, "cuKernelGetParamInfo");
  *(void **)&driver.name = dlsym(library, "cuFuncGetName");
  *(void **)&driver.version = dlsym(library, "cuDriverGetVersion");
  *(void **)&driver.current_device = dlsym(library, "cuCtxGetDevice");
  *(void **)&driver.device_attribute = dlsym(library, "cuDeviceGetAttribute");
  return dlsym(library, "cuTensorMapEncodeTiled") != NULL;
}

/* ---- the calls that are traced -------------------------------------------------------------------- */

/* The tables below describe the four calls that make maps. The table ENCODERS has byte offsets in
 * the parameter structs of these calls [generated_cuda_meta.h]. The map is the first parameter of
 * each call. */
enum { SCALARS = 11, ARRAYS = 6, LONGEST = 5 };
enum { RANK = 1 };

static const char *const SCALAR[SCALARS] = {
    "data_type",   "rank",        "channels_per_pixel", "pixels_per_column", "lower_width",
    "upper_width", "interleave",  "mode",               "swizzle",           "l2_promotion",
    "oob_fill"};

static const struct {
  const char *name;
  size_t entry_bytes;
  int fewer; /* rank of the map minus number of entries */
} ARRAY[ARRAYS] = {{"global_dim", 8, 0},
                   {"global_strides", 8, 1},
                   {"box_dim", 4, 0},
                   {"element_strides", 4, 0},
                   {"pixel_box_lower_corner", 4, 2},
                   {"pixel_box_upper_corner", 4, 2}};

typedef struct {
  uint32_t callback;
  int address, scalar[SCALARS], array[ARRAYS]; /* 0 means that the call has no such parameter. */
} Encoder;

static const Encoder ENCODERS[] = {
    {ENCODE_TILED, 16, {8, 12, 0, 0, 0, 0, 56, 0, 60, 64, 68}, {24, 32, 40, 48, 0, 0}},
    {ENCODE_IM2COL, 16, {8, 12, 56, 60, 0, 0, 72, 0, 76, 80, 84}, {24, 32, 0, 64, 40, 48}},
    {ENCODE_IM2COL_WIDE, 16, {8, 12, 48, 52, 40, 44, 64, 68, 72, 76, 80}, {24, 32, 0, 56, 0, 0}},
    {REPLACE_ADDRESS, 8, {0}, {0}},
};
enum { N_ENCODERS = sizeof ENCODERS / sizeof *ENCODERS };

/* Byte offsets in the parameter struct of a call that launches a kernel or adds a kernel to a
 * graph. An offset of -1 means that the call has no such parameter. */
typedef struct {
  uint32_t callback;
  int node;                        /* offset of a pointer to a struct with the other parameters */
  int function, parameters, extra; /* offsets in that struct; if node is -1, in the parameters */
  int kernel;                      /* offset of a CUkernel, which is used if the function is NULL */
} LaunchShape;

static const LaunchShape LAUNCHES[] = {
    {307, -1, 0, 48, 56, -1}, /* cuLaunchKernel; the next row is for per-thread streams */
    {442, -1, 0, 48, 56, -1},
    {652, -1, 8, 16, 24, -1}, /* cuLaunchKernelEx */
    {653, -1, 8, 16, 24, -1},
    {477, -1, 0, 48, -1, -1}, /* cuLaunchCooperativeKernel */
    {478, -1, 0, 48, -1, -1},
    {502, 32, 0, 40, 48, -1}, /* cuGraphAddKernelNode, _v2 */
    {689, 32, 0, 40, 48, 56},
    {521, 8, 0, 40, 48, -1}, /* cuGraphKernelNodeSetParams, _v2 */
    {691, 8, 0, 40, 48, 56},
    {538, 16, 0, 40, 48, -1}, /* cuGraphExecKernelNodeSetParams, _v2 */
    {692, 16, 0, 40, 48, 56},
};
enum { LAUNCH_SHAPES = sizeof LAUNCHES / sizeof *LAUNCHES };

/* After one of these calls, the driver may reuse the handle of a kernel for another kernel:
 * cuModuleUnload, cuLibraryUnload, cuCtxDestroy_v2, cuDevicePrimaryCtxRelease,
 * cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2. */
static const uint32_t UNLOADS[] = {22, 680, 322, 387, 544, 389, 545};
enum { N_UNLOADS = sizeof UNLOADS / sizeof *UNLOADS };

#endif
