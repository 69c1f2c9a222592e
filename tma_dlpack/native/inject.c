/* inject.c: the library that records the tensor maps of a program. Either libcuda
 * (CUDA_INJECTION64_PATH) or `tma.trace()` loads the library into the traced program.
 *
 * The library subscribes to CUPTI's callbacks of the driver API, and writes a file of JSON lines
 * into a folder. The file has a line for each distinct tensor map, for each kernel that a map is
 * passed to, and for each problem. A second file has the counts. This file is mapped into memory,
 * so the counts are not lost if the process is killed. result.py reads and judges the two files.
 *
 * The library must never end the program. So it reads the arguments of a call of cuTensorMapEncode*
 * with the system call process_vm_readv, and records an invalid pointer as "unreadable". It reads
 * the parameters of a launch only after the driver has read and accepted them.
 */

#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "lines.h"

#define EXPORTED __attribute__((visibility("default")))

enum { MAP_ALIGNMENT = 64, BODY_WORDS = 15, MAX_PLACES = 128 };
enum { MAX_IDS = 8192, SLOTS = 32768, COUNT_BYTES = MAX_IDS * 8 };
/* Indices of the counts that belong to no line of the file. The index of a line's count is the
 * line's id, and FIRST_ID is the id of the first line. */
enum { COUNT_CALLS, COUNT_OVERFLOW, COUNT_PAUSES, FIRST_ID };
/* The trace *listens* while CUPTI reports launches to it. A reported launch takes 0.1 to 0.3 us
 * longer, and CUPTI itself takes nearly all of this time [H200]. So the trace stops listening after
 * LAUNCHES_WITHOUT_NEWS launches without a new map or a new kernel. It listens again when a new map
 * is made. From time to time, but not more often than every PAUSE_MS milliseconds, it also listens
 * for LAUNCHES_NOW_AND_THEN launches. */
enum { LAUNCHES_WITHOUT_NEWS = 100000, LAUNCHES_NOW_AND_THEN = 1000, PAUSE_MS = 100 };

/* ---- records of calls and kernels ---------------------------------------------------------------- */

/* The arguments and the result of a call that makes a map, without the address of the tensor. The
 * struct is zeroed before it is filled, because it is compared and hashed as bytes. `address_kind`
 * has the properties of the address that rules test: the low 5 bits, whether the address is 0, and
 * whether the address is too large. */
typedef struct {
  uint32_t callback, unreadable; /* `unreadable`: bit i for array i, MAP_BIT for the map */
  int32_t result, scalar[SCALARS];
  uint32_t address_kind, unused;
  union {
    uint64_t array[ARRAYS][LONGEST];
    uint64_t body[BODY_WORDS]; /* for cuTensorMapReplaceAddress: the old map without its address */
  };
} Call;
enum { MAP_BIT = 1 << ARRAYS };
enum { NOT_RETURNED = -1 };

/* A call that has a line in the file: the line's id, and the map that the call made. */
typedef struct {
  Call call;
  uint32_t id;
  uint64_t body[BODY_WORDS];
} Record;

/* A map that was passed to a kernel at one place of the kernel's parameters. `id` is the id of the
 * line about this pair of map and place. */
typedef struct Pair {
  Record *record;
  uint32_t id;
  struct Pair *next;
} Pair;

/* 128 bytes of a kernel's parameters that may be a map. */
typedef struct {
  uint32_t parameter, offset, offset_on_device;
  int is_whole; /* whether the parameter has exactly 128 bytes */
  _Atomic int is_unknown_written;
  _Atomic(Pair *) pairs;
} Place;

/* A kernel's handle, and the places in its parameters that have room for a map. */
typedef struct {
  void *handle;
  uint32_t generation;
  int count;
  Place places[];
} Function;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, listening = PTHREAD_MUTEX_INITIALIZER;
static int is_listening;          /* whether CUPTI reports launches */
static _Atomic int launches_left; /* number of launches until the trace stops listening */
static _Atomic int64_t paused_at;
static _Atomic(Record *) by_call[SLOTS], by_body[SLOTS];
static _Atomic(Function *) functions[SLOTS];
static _Atomic uint64_t modes_seen[64];
/* Number of unloads. After an unload the driver may reuse the handles of functions, so entries of
 * `functions` with an older generation are invalid. */
static _Atomic uint32_t generation;
static _Atomic uint64_t *counts; /* an array of MAX_IDS entries */
static _Atomic uint32_t next_id = FIRST_ID;
static void *subscriber;
static char folder[PATH_BYTES];
static _Atomic int alive;

/* ---- files --------------------------------------------------------------------------------------- */

/* Write a line about a problem, and return 0. `what` is a word that result.py explains, `code` is
 * an error code, and `detail` is a text. */
static int write_problem(const char *what, int code, const char *detail) {
  Line *line = new_line("problem");
  put(line, ",\"what\":\"%s\",\"code\":%d,\"detail\":", what, code);
  put_string(line, detail, 1024);
  write_line(line);
  return 0;
}

static void open_files(void) {
  char name[4200], command[512] = "";
  struct timespec now = {0};
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(name, sizeof name, "%s/%ld-%lld%09ld.jsonl", folder, (long)process,
           (long long)now.tv_sec, now.tv_nsec);
  file = open(name, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  memcpy(name + strlen(name) - strlen("jsonl"), "count", strlen("count"));
  int counted = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  /* Reserve the disk blocks now. Otherwise a later write to the mapped file raises SIGBUS if the
   * disk is full. */
  int error = counted < 0 ? errno : posix_fallocate(counted, 0, COUNT_BYTES);
  if (error == 0)
    mmap((void *)counts, COUNT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, counted, 0);
  if (counted >= 0) close(counted);
  int words = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = words < 0 ? 0 : read(words, command, sizeof command - 1);
  if (words >= 0) close(words);
  for (ssize_t i = 0; i + 1 < length; ++i)
    if (command[i] == '\0') command[i] = ' ';
  Line *line = new_line("process");
  put(line, ",\"pid\":%ld,\"command\":", (long)process);
  put_string(line, command, sizeof command);
  write_line(line);
  if (error != 0) write_problem("counts", error, "");
}

/* Empty the tables. Do not free the entries, because another thread may read the entries. */
static void forget_all(void) {
  memset((void *)by_call, 0, sizeof by_call);
  memset((void *)by_body, 0, sizeof by_body);
  memset((void *)functions, 0, sizeof functions);
  memset((void *)modes_seen, 0, sizeof modes_seen);
  mmap((void *)counts, COUNT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (file >= 0) close(file);
  if (self_memory >= 0) close(self_memory);
  file = self_memory = -1;
  next_id = FIRST_ID;
  process = getpid();
}

/* Empty the tables in a forked child process. The child opens its own files when it writes its
 * first line. */
static void after_fork_in_child(void) {
  pthread_mutex_init(&mutex, NULL);
  pthread_mutex_init(&listening, NULL);
  alive = 0;
  forget_all();
}

/* ---- tables -------------------------------------------------------------------------------------- */

/* Return a hash of two words [Steele, Lea and Flood 2014, SplitMix64]. */
static uint64_t mixed(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0xbf58476d1ce4e5b9u;
  return a ^ (a >> 29);
}

static uint64_t hash_of_call(const Call *call) {
  uint64_t hash = 0, word;
  for (size_t at = 0; at + sizeof word <= sizeof *call; at += sizeof word) {
    memcpy(&word, (const char *)call + at, sizeof word);
    hash = mixed(hash, word);
  }
  return hash;
}

/* Return the second 64-bit word of a map, which has the rank, the type and the modes. In the
 * returned word, clear the map's bit 85, because libcu++ clears this bit after encoding. */
static uint64_t modes_of(const void *map) {
  uint64_t word;
  memcpy(&word, (const char *)map + 8, sizeof word);
  return word & ~((uint64_t)1 << 21);
}

/* `modes_seen` is a set of hashed modes, with one bit for each hash. Return the word that has the
 * bit of `modes`, and write the mask of this bit to `bit`. If the bit of the word is 0, no known
 * map has these modes. This test quickly rejects most bytes that are not a map. */
static _Atomic uint64_t *known_modes(uint64_t modes, uint64_t *bit) {
  uint64_t hash = mixed(modes, 0);
  *bit = (uint64_t)1 << (hash & 63);
  return &modes_seen[hash >> 58];
}

/* Copy all words of a map except the first word, which is the address. */
static void copy_body(uint64_t *body, const void *map) {
  memcpy(body, (const char *)map + 8, MAP_BYTES - 8);
  body[0] = modes_of(map);
}

/* Return a hash of the words with modes, extents and box, which differ between most maps. */
static uint64_t hash_of_body(const uint64_t *body) {
  return mixed(mixed(mixed(mixed(mixed(0, body[0]), body[3]), body[4]), body[5]), body[6]);
}

static size_t slot_of(uint64_t hash, size_t step) { return (size_t)(hash + step) % SLOTS; }

/* Return the record of a call, or NULL. The tables use open addressing, so the search ends at the
 * record or at a free slot. `free_slot` receives the slot at which the search ends. Readers take no
 * lock. Writers hold the mutex, and entries are never removed. */
static Record *record_of_call(const Call *call, size_t *free_slot) {
  uint64_t hash = hash_of_call(call);
  for (size_t step = 0; step < SLOTS; ++step) {
    *free_slot = slot_of(hash, step);
    Record *record = atomic_load_explicit(&by_call[*free_slot], memory_order_acquire);
    if (record == NULL || memcmp(&record->call, call, sizeof *call) == 0) return record;
  }
  return NULL;
}

static Record *record_of_body(const uint64_t *body, size_t *free_slot) {
  uint64_t hash = hash_of_body(body);
  for (size_t step = 0; step < SLOTS; ++step) {
    *free_slot = slot_of(hash, step);
    Record *record = atomic_load_explicit(&by_body[*free_slot], memory_order_acquire);
    if (record == NULL || memcmp(record->body, body, sizeof record->body) == 0) return record;
  }
  return NULL;
}

static void count(uint32_t id, uint64_t more) {
  atomic_fetch_add_explicit(&counts[id], more, memory_order_relaxed);
}

/* Return a new id, or COUNT_OVERFLOW if no id is free. The caller holds the mutex. */
static uint32_t new_id(void) {
  if (next_id >= MAX_IDS) return COUNT_OVERFLOW;
  return next_id++;
}

/* ---- enabling the callbacks of launches ---------------------------------------------------------- */

static int64_t milliseconds(void) {
  struct timespec now = {0};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Listen for the next `launches` launches, or stop listening if `launches` is 0. Never wait for the
 * mutex `listening`: the thread that holds it may be in CUPTI, and CUPTI may wait for the calling
 * thread. */
static void listen(int launches) {
  if (pthread_mutex_trylock(&listening) != 0) return;
  launches_left = launches;
  if (is_listening != (launches > 0))
    for (int i = 0; i < LAUNCH_SHAPES; ++i)
      cupti.enable(launches > 0, subscriber, DRIVER_API, LAUNCHES[i].callback);
  if (is_listening && launches == 0) count(COUNT_PAUSES, 1);
  is_listening = launches > 0;
  paused_at = milliseconds();
  pthread_mutex_unlock(&listening);
}

static void listen_now_and_then(void) {
  if (launches_left <= 0 && milliseconds() - paused_at >= PAUSE_MS) listen(LAUNCHES_NOW_AND_THEN);
}

static void heard_launch(void) {
  if (atomic_fetch_sub(&launches_left, 1) <= 1) listen(0);
}

/* ---- encodes ------------------------------------------------------------------------------------- */

/* The arguments of a call that makes a map. They are read when the call begins, and are used when
 * the call ends. */
typedef struct {
  Call call;
  const Encoder *encoder;
  const void *map, *array[ARRAYS];
  uint64_t address;
  unsigned char before[MAP_BYTES];
} Begun;

static __thread Begun begun;

static const void *pointer_at(const void *base, int offset) {
  const void *pointer;
  memcpy(&pointer, (const char *)base + offset, sizeof pointer);
  return pointer;
}

/* Return the number of entries of an array argument. An im2col-wide map has scalars instead of
 * corner arrays, so the number of entries of its corners is 0. */
static int entries(const Call *call, int which) {
  uint32_t rank = (uint32_t)call->scalar[RANK];
  if (call->callback == ENCODE_IM2COL_WIDE && which >= 4) return 0;
  int count = (rank < LONGEST ? (int)rank : LONGEST) - ARRAY[which].fewer;
  return count > 0 ? count : 0;
}

static void put_arguments(Line *line, const Begun *b) {
  const Call *call = &b->call;
  put(line, ",\"global_address\":%llu", (unsigned long long)b->address);
  put(line, call->unreadable & MAP_BIT ? ",\"map_address\":{\"unreadable\":%llu}"
                                       : ",\"map_address\":%llu",
      (unsigned long long)(uintptr_t)b->map);
  for (int i = 0; i < SCALARS; ++i)
    if (b->encoder->scalar[i] > 0) put(line, ",\"%s\":%d", SCALAR[i], call->scalar[i]);
  for (int i = 0; i < ARRAYS; ++i) {
    if (b->encoder->array[i] == 0) continue;
    put(line, ",\"%s\":", ARRAY[i].name);
    if (call->unreadable & (1u << i)) {
      put(line, "{\"unreadable\":%llu}", (unsigned long long)(uintptr_t)b->array[i]);
      continue;
    }
    const int32_t *narrow = (const int32_t *)call->array[i];
    for (int d = 0; d < entries(call, i); ++d) {
      put(line, d > 0 ? "," : "[");
      if (ARRAY[i].entry_bytes == 8)
        put(line, "%llu", (unsigned long long)call->array[i][d]);
      else if (ARRAY[i].fewer > 0)
        put(line, "%d", narrow[d]);
      else
        put(line, "%u", (uint32_t)narrow[d]);
    }
    put(line, entries(call, i) > 0 ? "]" : "[]");
  }
}

/* Write a line about a call that has no line yet. Add `more` to the count of the line. `map` points
 * to the 128 bytes if the call made a map. Otherwise `map` is NULL. */
static void write_new(Begun *b, const char *function, const void *map, uint64_t more) {
  Record *record = next_id < MAX_IDS ? calloc(1, sizeof *record) : NULL;
  if (record == NULL) {
    count(COUNT_OVERFLOW, more);
    return;
  }
  record->call = b->call;
  Line *line = new_line("map");
  put(line, ",\"call\":\"%s\"", function);
  if (b->call.result != NOT_RETURNED) put(line, ",\"result\":%d", b->call.result);
  put_arguments(line, b);
  if (b->call.callback == REPLACE_ADDRESS) put_hex(line, "before", b->before);
  if (map != NULL) put_hex(line, "bytes", map);
  put_rank(line);
  put_device(line);
  put_python(line);
  put_objects(line);
  size_t slot, body_slot;
  uint64_t bit;
  pthread_mutex_lock(&mutex);
  Record *known = record_of_call(&b->call, &slot);
  if (known != NULL) { /* Another thread has added an equal call in the meantime. */
    count(known->id, more);
    free(record);
    free(line);
  } else {
    if (file < 0) open_files();
    count(record->id = new_id(), more);
    put(line, ",\"id\":%u", record->id);
    write_line(line);
    if (map != NULL) {
      copy_body(record->body, map);
      if (record_of_body(record->body, &body_slot) == NULL)
        atomic_store_explicit(&by_body[body_slot], record, memory_order_release);
      _Atomic uint64_t *modes = known_modes(record->body[0], &bit);
      atomic_fetch_or(modes, bit);
    }
    atomic_store_explicit(&by_call[slot], record, memory_order_release);
  }
  pthread_mutex_unlock(&mutex);
  listen(LAUNCHES_WITHOUT_NEWS);
}

static void seen(Begun *b, const char *function, const void *map, uint64_t more) {
  size_t slot;
  Record *record = record_of_call(&b->call, &slot);
  if (record != NULL)
    count(record->id, more);
  else
    write_new(b, function, map, more);
}

static void encode_begins(const Encoder *encoder, const CallbackData *info) {
  Begun *b = &begun;
  Call *call = &b->call;
  memset(b, 0, sizeof *b);
  b->encoder = encoder;
  b->map = pointer_at(info->params, 0);
  b->address = (uintptr_t)pointer_at(info->params, encoder->address);
  call->callback = encoder->callback;
  for (int i = 0; i < SCALARS; ++i)
    if (encoder->scalar[i] > 0)
      memcpy(&call->scalar[i], (const char *)info->params + encoder->scalar[i], 4);
  Wanted wanted[ARRAYS + 1];
  int n = 0;
  if (encoder->callback == REPLACE_ADDRESS)
    wanted[n++] = (Wanted){b->before, b->map, MAP_BYTES, MAP_BIT};
  else if (!is_there(b->map) || !is_there((const char *)b->map + MAP_BYTES - 1))
    call->unreadable = MAP_BIT;
  for (int i = 0; i < ARRAYS; ++i) {
    if (encoder->array[i] == 0) continue;
    b->array[i] = pointer_at(info->params, encoder->array[i]);
    size_t bytes = (size_t)entries(call, i) * ARRAY[i].entry_bytes;
    wanted[n++] = (Wanted){call->array[i], b->array[i], bytes, 1u << i};
  }
  call->unreadable |= read_all(wanted, n);
  if (encoder->callback == REPLACE_ADDRESS) copy_body(call->body, b->before);
  call->address_kind = (uint32_t)(b->address & 31) | (b->address == 0) << 5 | (b->address >> 57 != 0) << 6;
  call->result = NOT_RETURNED;
  /* If arguments are unreadable, record the call now, because the driver may crash in this call. */
  if (call->unreadable != 0) seen(b, info->function_name, NULL, 1);
}

static void encode_ends(const Encoder *encoder, const CallbackData *info) {
  Begun *b = &begun;
  if (b->encoder != encoder) return; /* The call began before the trace. */
  /* encode_begins has counted this call as a call that has not returned. Now the call has returned,
   * so subtract 1 from that count. */
  if (b->call.unreadable != 0) seen(b, info->function_name, NULL, (uint64_t)-1);
  b->call.result = *(const int *)info->result;
  /* After a success the map is readable, because the driver has written it. */
  seen(b, info->function_name, b->call.result == 0 ? b->map : NULL, 1);
  b->encoder = NULL;
  listen_now_and_then();
}

/* ---- launches ------------------------------------------------------------------------------------ */

typedef int (*ParamInfo)(void *, size_t, size_t *, size_t *);

/* Find the places in a kernel's parameters that may contain a map. A place has 128 bytes and begins
 * at a multiple of 64 bytes in its parameter. */
static Function *new_function(void *handle, uint32_t now) {
  Function *function = calloc(1, sizeof *function + MAX_PLACES * sizeof *function->places);
  if (function == NULL) return NULL;
  function->handle = handle;
  function->generation = now;
  size_t offset, bytes;
  ParamInfo ask = driver.param_info; /* This function fails if the handle is a CUkernel. */
  if (ask == NULL || ask(handle, 0, &offset, &bytes) != 0) ask = driver.kernel_param_info;
  for (size_t i = 0; ask != NULL && ask(handle, i, &offset, &bytes) == 0; ++i)
    for (size_t at = 0; at + MAP_BYTES <= bytes && function->count < MAX_PLACES; at += MAP_ALIGNMENT) {
      Place *place = &function->places[function->count++];
      place->parameter = (uint32_t)i;
      place->offset = (uint32_t)at;
      place->offset_on_device = (uint32_t)(offset + at);
      place->is_whole = bytes == MAP_BYTES;
    }
  size_t needed = sizeof *function + (size_t)function->count * sizeof *function->places;
  Function *smaller = realloc(function, needed);
  return smaller != NULL ? smaller : function;
}

static Function *function_of(void *handle) {
  uint64_t hash = mixed((uintptr_t)handle, 0);
  uint32_t now = atomic_load_explicit(&generation, memory_order_acquire);
  for (size_t step = 0; step < SLOTS; ++step) {
    _Atomic(Function *) *slot = &functions[slot_of(hash, step)];
    Function *function = atomic_load_explicit(slot, memory_order_acquire);
    if (function != NULL && function->handle != handle) continue;
    if (function != NULL && function->generation == now) return function;
    /* Do not free an old entry, because another thread may read it. */
    Function *made = new_function(handle, now);
    if (made == NULL || atomic_compare_exchange_strong(slot, &function, made)) return made;
    free(made);
    return function->handle == handle ? function : NULL;
  }
  return NULL;
}

static void put_place(Line *line, const Place *place, void *handle, const char *name) {
  /* CUPTI reports no name for the node of a graph. */
  if (name == NULL && driver.name != NULL) driver.name(&name, handle);
  put(line, ",\"parameter\":%u,\"offset\":%u,\"kernel\":", place->parameter, place->offset);
  put_string(line, name, 1000);
}

/* Count a launch that passes a known map to a kernel at a place. For the first launch with this map
 * and place, also write a line. */
static void takes_map(Place *place, Record *record, void *handle, const char *name) {
  for (Pair *p = atomic_load_explicit(&place->pairs, memory_order_acquire); p != NULL; p = p->next)
    if (p->record == record) {
      count(p->id, 1);
      return;
    }
  Pair *pair = malloc(sizeof *pair);
  if (pair == NULL) return;
  Line *line = new_line("kernel");
  put_place(line, place, handle, name);
  pthread_mutex_lock(&mutex);
  *pair = (Pair){record, new_id(), atomic_load(&place->pairs)};
  count(pair->id, 1);
  put(line, ",\"id\":%u,\"map\":%u", pair->id, record->id);
  write_line(line);
  atomic_store_explicit(&place->pairs, pair, memory_order_release);
  pthread_mutex_unlock(&mutex);
  listen(LAUNCHES_WITHOUT_NEWS);
}

/* Record a 128-byte parameter that is not a known map. result.py decides whether its bytes are a
 * map. */
static void takes_unknown(Place *place, const void *bytes, void *handle, const char *name) {
  if (atomic_exchange(&place->is_unknown_written, 1)) return;
  Line *line = new_line("parameter");
  put_hex(line, "bytes", bytes);
  put_place(line, place, handle, name);
  put_rank(line);
  put_device(line);
  pthread_mutex_lock(&mutex);
  if (file < 0) open_files();
  write_line(line);
  pthread_mutex_unlock(&mutex);
}

/* Return the buffer with all parameters of a launch if `extra` has such a buffer
 * (CU_LAUNCH_PARAM_BUFFER_POINTER). Otherwise return NULL. */
static const char *packed(const void *const *extra) {
  enum { END, BUFFER_POINTER };
  for (int i = 0; extra != NULL && i < 8 && (uintptr_t)extra[i] != END; i += 2)
    if ((uintptr_t)extra[i] == BUFFER_POINTER) return extra[i + 1];
  return NULL;
}

/* Return the record of a call that made a map with these 128 bytes, or NULL. The global addresses
 * are not compared. */
static Record *map_in(const void *bytes) {
  uint64_t body[BODY_WORDS], bit;
  size_t slot;
  if (!(*known_modes(modes_of(bytes), &bit) & bit)) return NULL;
  copy_body(body, bytes);
  return record_of_body(body, &slot);
}

/* Record the maps of an accepted launch. All parameters are readable, because the driver has read
 * them. */
static void launch_ends(const LaunchShape *shape, const CallbackData *info) {
  if (*(const int *)info->result != 0) return;
  const void *params = shape->node < 0 ? info->params : pointer_at(info->params, shape->node);
  void *handle = (void *)pointer_at(params, shape->function);
  if (handle == NULL && shape->kernel >= 0) handle = (void *)pointer_at(params, shape->kernel);
  Function *function = handle == NULL ? NULL : function_of(handle);
  if (function == NULL || function->count == 0) return;
  const char *const *each = pointer_at(params, shape->parameters);
  const char *buffer = each != NULL || shape->extra < 0 ? NULL : packed(pointer_at(params, shape->extra));
  if (each == NULL && buffer == NULL) return;
  for (int i = 0; i < function->count; ++i) {
    Place *place = &function->places[i];
    const char *bytes = each != NULL ? each[place->parameter] + place->offset
                                     : buffer + place->offset_on_device;
    Record *record = map_in(bytes);
    if (record != NULL)
      takes_map(place, record, handle, info->symbol_name);
    else if (place->is_whole && !place->is_unknown_written)
      takes_unknown(place, bytes, handle, info->symbol_name);
  }
}

/* ---- CUPTI, and start and stop ------------------------------------------------------------------- */

/* The function that CUPTI calls. It saves and restores errno, because the traced program may read
 * errno after the driver call. */
static void on_call(void *user, int domain, uint32_t callback, const CallbackData *info) {
  (void)user;
  int saved = errno;
  if (domain == RESOURCE && callback == MODULE_LOADED) {
    if (launches_left < LAUNCHES_NOW_AND_THEN) listen(LAUNCHES_NOW_AND_THEN);
  } else if (domain == RESOURCE) {
    atomic_fetch_add(&generation, 1);
  } else if (domain == SYNCHRONIZE) {
    listen_now_and_then();
  } else {
    if (info->site == API_EXIT) count(COUNT_CALLS, 1);
    for (int i = 0; i < N_ENCODERS; ++i)
      if (ENCODERS[i].callback == callback)
        (info->site == API_ENTER ? encode_begins : encode_ends)(&ENCODERS[i], info);
    for (int i = 0; i < LAUNCH_SHAPES; ++i)
      if (LAUNCHES[i].callback == callback && info->site == API_EXIT) {
        launch_ends(&LAUNCHES[i], info);
        heard_launch();
      }
    for (int i = 0; i < N_UNLOADS; ++i)
      if (UNLOADS[i] == callback) atomic_fetch_add(&generation, 1);
  }
  errno = saved;
}

static int subscribe(void) {
  char other[64] = "";
  SubscriberParams params = {sizeof params, "tma_dlpack trace", other, sizeof other};
  int result = cupti.subscribe_v2 != NULL ? cupti.subscribe_v2(&subscriber, on_call, NULL, &params)
                                          : cupti.subscribe(&subscriber, on_call, NULL);
  if (result != 0) return write_problem("subscribe", result, other);
  result = cupti.enable(1, subscriber, DRIVER_API, ENCODE_TILED);
  if (result != 0) {
    cupti.unsubscribe(subscriber);
    return write_problem("enable", result, "");
  }
  /* Ignore errors, because an older CUPTI lacks the last calls. */
  for (int i = 1; i < N_ENCODERS; ++i)
    cupti.enable(1, subscriber, DRIVER_API, ENCODERS[i].callback);
  for (int i = 0; i < N_UNLOADS; ++i) cupti.enable(1, subscriber, DRIVER_API, UNLOADS[i]);
  cupti.enable(1, subscriber, RESOURCE, MODULE_LOADED);
  cupti.enable(1, subscriber, RESOURCE, MODULE_UNLOAD_STARTING);
  cupti.enable(1, subscriber, SYNCHRONIZE, STREAM_SYNCHRONIZED);
  cupti.enable(1, subscriber, SYNCHRONIZE, CONTEXT_SYNCHRONIZED);
  is_listening = 0;
  listen(LAUNCHES_WITHOUT_NEWS);
  return 1;
}

static void end(void) {
  uint32_t enabled = 0;
  if (!atomic_exchange(&alive, 0)) return;
  int result = cupti.state(&enabled, subscriber, DRIVER_API, ENCODE_TILED);
  if (result != 0 || !enabled) /* Another tool has called cuptiFinalize, which ended the trace. */
    write_problem("lost", result, "");
  write_line(new_line("end"));
}

/* Start a trace that writes into the folder `into`. Return 1 if the trace has started. Otherwise
 * return 0, and write a line with the reason. */
EXPORTED int tma_dlpack_trace_start(const char *into, const char *cupti_paths) {
  static int is_prepared;
  if (counts == NULL)
    counts = mmap(NULL, COUNT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (alive || (void *)counts == MAP_FAILED) return 0;
  pthread_mutex_lock(&mutex);
  forget_all();
  snprintf(folder, sizeof folder, "%s", into);
  open_files();
  pthread_mutex_unlock(&mutex);
  char path[PATH_BYTES] = "";
  void *frame;
  /* The first call of backtrace() loads libgcc. A callback inside a driver call must not load a
   * library, so call backtrace() here, before the first callback. */
  backtrace(&frame, 1);
  if (!find_driver()) return write_problem("driver", 0, "");
  if (!find_cupti(cupti_paths, path)) return write_problem("cupti", 0, "");
  if (!subscribe()) return 0;
  uint32_t version = 0;
  cupti.version(&version);
  Line *line = new_line("start");
  put(line, ",\"version\":%u,\"kernels\":%d,\"cupti\":", version, driver.param_info != NULL);
  put_string(line, path, sizeof path);
  write_line(line);
  alive = 1;
  if (!is_prepared) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
    atexit(end); /* `end` runs before CUPTI's handler, which was registered earlier. */
  }
  is_prepared = 1;
  return 1;
}

EXPORTED void tma_dlpack_trace_stop(void) {
  if (!alive) return;
  end();
  cupti.unsubscribe(subscriber);
}

/* The function that libcuda calls. It returns 1 even if the trace does not start, so that the
 * program runs in any case. */
EXPORTED int InitializeInjection(void) {
  const char *into = getenv("TMA_DLPACK_TRACE");
  if (into != NULL) tma_dlpack_trace_start(into, getenv("TMA_DLPACK_TRACE_CUPTI"));
  return 1;
}
