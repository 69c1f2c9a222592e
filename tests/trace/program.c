/* A program that is traced: it does what its arguments say, such as `init tiled launch 3 kill`.
 *
 * It is no Python, and knows nothing of the trace.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  _Alignas(128) unsigned char bytes[256];
} Map;

typedef struct {
  const char *name;
  int parameters;
  size_t bytes[8];
} Kernel;

static Kernel gemm = {"gemm", 3, {4, 128, 256}}, fill = {"_Z4fillPfi", 2, {8, 4}}, lone = {"_Z4lone11CUtensorMap", 1, {128}};
static void *cuda;
static Map last;

#define CALL(name) ((int (*)())dlsym(cuda, #name))

static void init(void) {
  void *context;
  cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (CALL(cuInit)(0) != 0) exit(3);
  CALL(cuDevicePrimaryCtxRetain)(&context, 0);
  CALL(cuCtxPushCurrent_v2)(context);
}

/* Encode 64 rows of 128 float16 in boxes of 64 x `box_rows`; `bad` is the number of a bad pointer. */
static int tiled(uint64_t address, uint32_t rows, uint32_t box_rows, int swizzle, int bad) {
  static _Thread_local Map map;
  uint64_t dims[5] = {128, rows, 1, 1, 1}, strides[4] = {256, 1, 1, 1};
  uint32_t box[5] = {64, box_rows, 1, 1, 1}, ones[5] = {1, 1, 1, 1, 1};
  void *pointers[5] = {&map, dims, strides, box, ones};
  if (bad >= 0) pointers[bad] = (void *)(uintptr_t)(bad % 2 ? 0x10 : 0xfffffffffffff000);
  memset(&map, 0, sizeof map);
  int result = CALL(cuTensorMapEncodeTiled)(pointers[0], 6, 2, (void *)address, pointers[1], pointers[2],
                                            pointers[3], pointers[4], 0, swizzle, 0, 0);
  if (result == 0) last = map;
  return result;
}

static void im2col(int is_wide) {
  Map map = {{0}};
  uint64_t dims[4] = {64, 14, 14, 2}, strides[3] = {128, 1792, 25088};
  uint32_t ones[4] = {1, 1, 1, 1};
  int corner[2] = {-1, -1};
  void *address = (void *)0x7f0000000000;
  int result = is_wide ? CALL(cuTensorMapEncodeIm2colWide)(&map, 6, 4, address, dims, strides, -1, -1, 64, 32,
                                                           ones, 0, 1, 3, 0, 0)
                       : CALL(cuTensorMapEncodeIm2col)(&map, 6, 4, address, dims, strides, corner, corner, 64,
                                                       32, ones, 0, 3, 0, 0);
  printf("im2col %d\n", result);
}

static void launch(const char *how) {
  struct {
    int n;
    _Alignas(64) unsigned char map[128], before[64], inside[128], after[64];
  } packed = {7, {0}, {0}, {0}, {0}};
  memcpy(packed.map, last.bytes, 128);
  memcpy(packed.inside, last.bytes, 128);
  void *params[] = {&packed.n, packed.map, packed.before};
  void *extra[] = {(void *)1, &packed, NULL};
  struct {
    const Kernel *function;
    int sizes[8];
    void **params, **extra;
    const Kernel *kernel;
    void *context;
  } node = {NULL, {0}, params, NULL, &gemm, NULL};
  if (strcmp(how, "launch") == 0) CALL(cuLaunchKernel)(&gemm, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
  if (strcmp(how, "extra") == 0) CALL(cuLaunchKernel)(&gemm, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
  if (strcmp(how, "ex") == 0) CALL(cuLaunchKernelEx)(NULL, &gemm, params, NULL);
  if (strcmp(how, "graph") == 0) CALL(cuGraphAddKernelNode_v2)(NULL, NULL, NULL, (size_t)0, &node);
  if (strcmp(how, "lone") == 0) CALL(cuLaunchKernel)(&lone, 1, 1, 1, 1, 1, 1, 0, NULL, params + 1, NULL);
  if (strcmp(how, "fill") == 0) CALL(cuLaunchKernel)(&fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

static void *encode_many(void *unused) {
  (void)unused;
  CALL(stand_in_set_context)(0, 1);
  for (int i = 0; i < 1000; ++i) tiled(0x7f0000000000, 64 + (uint32_t)i % 10, 8, 3, -1);
  return NULL;
}

static uint64_t state = 1;

static uint64_t random_word(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

/* Calls whose arguments are anything. The driver is blind, so that it does not read them. */
static void fuzz(int calls) {
  const size_t page = 4096;
  char *edge = (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + page;
  munmap(edge, page);
  char *hidden = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static char valid[256];
  char here[256] = {0};
  for (int i = 0; i < calls; ++i) {
    void *p[8];
    uint32_t n[8];
    for (int k = 0; k < 8; ++k) {
      void *choices[] = {NULL, (void *)0x10, edge - random_word() % 130, hidden, valid, here + random_word() % 64,
                         (void *)random_word(), (void *)-1};
      uint32_t numbers[] = {0, 1, 2, 3, 5, 6, (uint32_t)random_word(), 0x80000000u};
      p[k] = choices[random_word() % 8];
      n[k] = numbers[random_word() % 8];
    }
    CALL(cuTensorMapEncodeTiled)(p[0], n[0], n[1], p[1], p[2], p[3], p[4], p[5], n[2], n[3], n[4], n[5]);
    CALL(cuTensorMapEncodeIm2col)(p[0], n[0], n[1], p[1], p[2], p[3], p[4], p[5], n[2], n[3], p[6], n[4], n[5],
                                  n[6], n[7]);
    CALL(cuTensorMapEncodeIm2colWide)(p[0], n[0], n[1], p[1], p[2], p[3], n[2], n[3], n[4], n[5], p[4], n[6], n[7],
                                      n[0], n[1], n[2]);
    CALL(cuTensorMapReplaceAddress)(p[0], p[1]);
  }
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **words) {
  for (int i = 1; i < count; ++i) {
    const char *word = words[i];
    int number = i + 1 < count ? atoi(words[i + 1]) : 0;
    if (strcmp(word, "init") == 0) init();
    if (strcmp(word, "tiled") == 0) printf("tiled %d\n", tiled(0x7f0000000000, 64, 8, 3, -1));
    if (strcmp(word, "moved") == 0) printf("moved %d\n", tiled(0x7f0000004000, 64, 8, 3, -1));
    if (strcmp(word, "refused") == 0) printf("refused %d\n", tiled(0x7f0000000000, 64, 512, 3, -1));
    if (strcmp(word, "bad") == 0) printf("bad %d\n", tiled(0x7f0000000000, 64, 8, 3, number));
    if (strcmp(word, "many") == 0)
      for (int n = 0; n < number; ++n) tiled(0x7f0000000000, 64 + (uint32_t)n, 8, 3, -1);
    if (strcmp(word, "im2col") == 0 || strcmp(word, "wide") == 0) im2col(word[0] == 'w');
    if (strcmp(word, "replace") == 0)
      printf("replace %d\n", CALL(cuTensorMapReplaceAddress)(&last, (void *)0x7f0000080000));
    if (strcmp(word, "misplace") == 0)
      printf("misplace %d\n", CALL(cuTensorMapReplaceAddress)(&last, (void *)0x7f0000080004));
    if (strcmp(word, "bit85") == 0) last.bytes[10] ^= 0x20;
    if (strcmp(word, "unknown") == 0) last.bytes[32] ^= 1;
    if (strncmp(word, "unload", 6) == 0) { /* another kernel gets the handle */
      strcmp(word, "unload") == 0 ? CALL(cuModuleUnload)(NULL) : CALL(cuLibraryUnload)(NULL);
      gemm = (Kernel){"other", 1, {4}};
    }
    if (strcmp(word, "wait") == 0) usleep(120000);
    if (strcmp(word, "sync") == 0) CALL(cuCtxSynchronize)();
    if (strcmp(word, "load") == 0) CALL(cuModuleLoadData)(NULL, NULL);
    if (strcmp(word, "fills") == 0 || strcmp(word, "launches") == 0)
      for (int n = 0; n < number; ++n) launch(word[0] == 'f' ? "fill" : "launch");
    if (strcmp(word, "nocontext") == 0) CALL(stand_in_set_context)(-1, 0);
    if (strcmp(word, "finalize") == 0)
      ((int (*)(void))dlsym(dlopen("libcupti.so.13", RTLD_NOW), "cuptiFinalize"))();
    if (strcmp(word, "fuzz") == 0) fuzz(number);
    launch(word);
    if (strcmp(word, "threads") == 0) {
      pthread_t threads[8];
      for (int n = 0; n < 8; ++n) pthread_create(&threads[n], NULL, encode_many, NULL);
      for (int n = 0; n < 8; ++n) pthread_join(threads[n], NULL);
    }
    if (strcmp(word, "fork") == 0) {
      fflush(stdout);
      if (fork() != 0) {
        wait(NULL);
        break; /* the child does the rest */
      }
    }
    if (strcmp(word, "time") == 0) {
      double start = seconds();
      for (int n = 0; n < number; ++n) tiled(0x7f0000000000, 64, 8, 3, -1);
      double encoded = seconds();
      for (int n = 0; n < number; ++n) launch("fill");
      double filled = seconds();
      for (int n = 0; n < number; ++n) launch("launch");
      printf("us %.3f %.3f %.3f\n", (encoded - start) / number * 1e6, (filled - encoded) / number * 1e6,
             (seconds() - filled) / number * 1e6);
    }
    if (strcmp(word, "kill") == 0) raise(SIGKILL);
    if (strcmp(word, "abort") == 0) abort();
    if (strcmp(word, "exit") == 0) exit(number);
  }
  return 0;
}
