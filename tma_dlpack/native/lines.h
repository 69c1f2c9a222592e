/* lines.h: functions that write lines of JSON with data of the traced program.
 *
 * Some functions read memory of the program that may be unmapped. Other functions describe the
 * caller of the driver and the GPU. Functions of Python are looked up in the running program, so
 * the library does not link to Python.
 */

#ifndef TMA_DLPACK_LINES_H
#define TMA_DLPACK_LINES_H

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cupti.h"

enum { MAP_BYTES = 128, LINE_BYTES = 32768, FRAMES = 32 };

static int file = -1, self_memory = -1;
static pid_t process;

/* ---- lines of JSON ------------------------------------------------------------------------------- */

/* A line of the file. It is on the heap, because a thread of the program may have a small stack. A
 * pointer to a line is NULL if out of memory, so all functions for lines accept NULL. */
typedef struct {
  size_t used;
  char text[LINE_BYTES];
} Line;

__attribute__((format(printf, 2, 3))) static void put(Line *line, const char *format, ...) {
  if (line == NULL) return;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line->text + line->used, LINE_BYTES - line->used, format, arguments);
  va_end(arguments);
  if (length > 0) line->used += (size_t)length;
  if (line->used > LINE_BYTES - 1) line->used = LINE_BYTES - 1;
}

/* Append a JSON string. Escape each byte above 126 as the Latin-1 character with the same number.
 * result.py converts these characters to bytes again. */
static void put_string(Line *line, const char *text, size_t longest) {
  put(line, "\"");
  for (size_t i = 0; text != NULL && text[i] != '\0' && i < longest; ++i) {
    unsigned char c = (unsigned char)text[i];
    int is_plain = c >= 32 && c <= 126 && c != '"' && c != '\\';
    put(line, is_plain ? "%c" : "\\u%04x", c);
  }
  put(line, "\"");
}

static void put_hex(Line *line, const char *name, const void *bytes) {
  put(line, ",\"%s\":\"", name);
  for (int i = 0; i < MAP_BYTES; ++i) put(line, "%02x", ((const unsigned char *)bytes)[i]);
  put(line, "\"");
}

static Line *new_line(const char *is) {
  Line *line = malloc(sizeof *line);
  if (line != NULL) line->used = 0;
  put(line, "{\"is\":\"%s\"", is);
  return line;
}

/* Append the line to the file, and free the memory of the line. Use one call of write(), so that
 * lines of several threads do not mix. A line that was cut off is not valid JSON, and result.py
 * reports it. If the disk is full, the line is lost. */
static void write_line(Line *line) {
  if (line != NULL && line->used > LINE_BYTES - 4) line->used = LINE_BYTES - 4;
  put(line, "}\n");
  if (line != NULL && file >= 0 && write(file, line->text, line->used) < 0) errno = 0;
  free(line);
}

/* ---- memory that may be unmapped ----------------------------------------------------------------- */

/* Memory to copy. read_all returns a mask, in which `bit` is set if `from` is not readable. */
typedef struct {
  void *to;
  const void *from;
  size_t bytes;
  uint32_t bit;
} Wanted;

/* Copy memory by a system call, which returns an error for unmapped memory. Return whether all
 * bytes were read. */
static int is_read(const Wanted *wanted) {
  struct iovec to = {wanted->to, wanted->bytes}, from = {(void *)wanted->from, wanted->bytes};
  ssize_t got = process_vm_readv(process, &to, 1, &from, 1, 0);
  /* Some containers and kernels do not allow process_vm_readv. */
  if (got < 0 && errno != EFAULT) {
    if (self_memory < 0) self_memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    got = pread(self_memory, wanted->to, wanted->bytes, (off_t)(uintptr_t)wanted->from);
  }
  return got == (ssize_t)wanted->bytes;
}

/* Return whether memory is on this thread's stack above this frame. Such memory can be read without
 * a system call. Most callers have their arrays on the stack, and a system call is the slowest step
 * in the recording of a call. */
static int is_on_stack(const void *at, size_t bytes) {
  static __thread uintptr_t low, top;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0), from = (uintptr_t)at;
  if (top == 0) {
    pthread_attr_t attributes;
    void *start = NULL;
    size_t room = 0;
    /* `top` is 0 before the first call, and 1 if the stack is not known. */
    top = 1;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      if (pthread_attr_getstack(&attributes, &start, &room) == 0) {
        low = (uintptr_t)start;
        top = low + room;
      }
      pthread_attr_destroy(&attributes);
    }
  }
  /* If `here` is below `low`, the thread runs on another stack. */
  return low <= here && here <= from && from < top && bytes <= top - from;
}

/* Return whether a byte can be read. rt_sigprocmask is the fastest system call that reads memory at
 * an address. It first reads 8 bytes at its second argument, and then refuses the invalid first
 * argument. */
static int is_there(const void *at) {
  const void *word = (const void *)((uintptr_t)at & ~(uintptr_t)7);
  enum { NO_SUCH_HOW = 99, SIGSET_BYTES = 8 };
  if (is_on_stack(at, 1)) return 1;
  return syscall(SYS_rt_sigprocmask, NO_SUCH_HOW, word, NULL, SIGSET_BYTES) == 0 || errno != EFAULT;
}

/* Copy several pieces of memory with one system call. Return the mask of the pieces that are not
 * readable. */
static uint32_t read_all(const Wanted *wanted, int count) {
  struct iovec to[ARRAYS + 1], from[ARRAYS + 1];
  ssize_t total = 0;
  unsigned long n = 0;
  for (int i = 0; i < count; ++i) {
    const Wanted *w = &wanted[i];
    if (w->bytes == 0) continue;
    if (is_on_stack(w->from, w->bytes)) {
      memcpy(w->to, w->from, w->bytes);
      continue;
    }
    to[n] = (struct iovec){w->to, w->bytes};
    from[n++] = (struct iovec){(void *)w->from, w->bytes};
    total += (ssize_t)w->bytes;
  }
  if (n == 0 || process_vm_readv(process, to, n, from, n, 0) == total) return 0;
  /* At least one piece is not readable. Copy each piece with its own call to find out which. */
  uint32_t unreadable = 0;
  for (int i = 0; i < count; ++i)
    if (wanted[i].bytes > 0 && !is_read(&wanted[i])) {
      memset(wanted[i].to, 0, wanted[i].bytes);
      unreadable |= wanted[i].bit;
    }
  return unreadable;
}

/* ---- the caller of the driver -------------------------------------------------------------------- */

/* Append the shared objects on the call stack, innermost first. Each entry also has the name of the
 * function that is on the stack, or "" if the function has no name. */
static void put_objects(Line *line) {
  void *frames[FRAMES];
  int depth = backtrace(frames, FRAMES), written = 0;
  const void *last = NULL;
  put(line, ",\"objects\":[");
  for (int i = 1; i < depth && written < 12; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fbase == last) continue;
    last = info.dli_fbase;
    put(line, written++ > 0 ? ",[" : "[");
    put_string(line, info.dli_fname, 400);
    put(line, ",");
    put_string(line, info.dli_sname, 200);
    put(line, "]");
  }
  put(line, "]");
}

/* The functions of Python that put_python calls. put_python uses the functions only if all of them
 * are found. */
static struct {
  int (*PyGILState_Check)(void), (*Py_IsInitialized)(void), (*PyFrame_GetLineNumber)(void *);
  void *(*PyEval_GetFrame)(void), *(*PyFrame_GetCode)(void *), *(*PyFrame_GetBack)(void *);
  void *(*PyErr_Occurred)(void), *(*PyObject_GetAttrString)(void *, const char *);
  const char *(*PyUnicode_AsUTF8AndSize)(void *, ssize_t *);
  void (*Py_IncRef)(void *), (*Py_DecRef)(void *), (*PyErr_Clear)(void);
} py;

static int has_python(void) {
#define FOUND(name) (*(void **)&py.name = dlsym(RTLD_DEFAULT, #name)) != NULL
  return FOUND(PyGILState_Check) && FOUND(Py_IsInitialized) && FOUND(PyFrame_GetLineNumber) &&
         FOUND(PyEval_GetFrame) && FOUND(PyFrame_GetCode) && FOUND(PyFrame_GetBack) &&
         FOUND(PyErr_Occurred) && FOUND(PyObject_GetAttrString) && FOUND(PyUnicode_AsUTF8AndSize) &&
         FOUND(Py_IncRef) && FOUND(Py_DecRef) && FOUND(PyErr_Clear);
#undef FOUND
}

static void put_attribute(Line *line, void *object, const char *name) {
  void *value = py.PyObject_GetAttrString(object, name);
  put_string(line, value != NULL ? py.PyUnicode_AsUTF8AndSize(value, NULL) : NULL, 300);
  if (value != NULL) py.Py_DecRef(value);
}

/* Append the Python frames of this thread, innermost first, if the thread holds the GIL. */
static void put_python(Line *line) {
  if (!has_python() || !py.Py_IsInitialized() || !py.PyGILState_Check() || py.PyErr_Occurred()) return;
  void *frame = py.PyEval_GetFrame();
  if (frame != NULL) py.Py_IncRef(frame);
  put(line, ",\"python\":[");
  for (int depth = 0; frame != NULL; ++depth) {
    void *code = py.PyFrame_GetCode(frame), *back = py.PyFrame_GetBack(frame);
    if (depth < FRAMES) {
      put(line, depth > 0 ? ",[" : "[");
      put_attribute(line, code, "co_filename");
      put(line, ",%d,", py.PyFrame_GetLineNumber(frame));
      put_attribute(line, code, "co_name");
      put(line, "]");
    }
    py.Py_DecRef(code);
    py.Py_DecRef(frame);
    frame = back;
  }
  py.PyErr_Clear();
  put(line, "]");
}

/* Append those attributes of the current context's GPU that the class Target has. */
static void put_device(Line *line) {
  static const struct {
    const char *name;
    int attribute;
  } facts[] = {{"major", 75}, {"minor", 76}, {"max_smem_bytes", 97}, {"multiprocessors", 16}};
  int device = 0, value = 0;
  if (driver.current_device == NULL || driver.current_device(&device) != 0) return;
  put(line, ",\"device\":{\"index\":%d", device);
  for (size_t i = 0; i < sizeof facts / sizeof *facts; ++i)
    if (driver.device_attribute(&value, facts[i].attribute, device) == 0)
      put(line, ",\"%s\":%d", facts[i].name, value);
  if (driver.version(&value) == 0) put(line, ",\"driver_version\":%d", value);
  put(line, "}");
}

/* Append the rank of the process in a distributed program, from the first environment variable that
 * is set. */
static void put_rank(Line *line) {
  static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                                      "LOCAL_RANK"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (getenv(names[i]) != NULL) {
      put(line, ",\"process_rank\":");
      put_string(line, getenv(names[i]), 20);
      return;
    }
}

#endif
