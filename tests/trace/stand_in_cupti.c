/* A stand-in for libcupti.so.13, which hands the callbacks of stand_in_driver.c to one subscriber.
 *
 * STAND_IN_CUPTI in the environment makes cuptiSubscribe return that CUptiResult. With
 * -DBEFORE_13 there is no cuptiSubscribe_v2.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TAKEN = 39, INVALID = 1, CALLBACKS = 1024 };

static unsigned char enabled[CALLBACKS];
static int has_subscriber;

typedef void (*Callback)(void *, int, uint32_t, const void *);

static void connect_driver(Callback callback, void *user) {
  void (*subscribe)(Callback, void *, const unsigned char *) = NULL;
  *(void **)&subscribe = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "stand_in_subscribe");
  subscribe(callback, user, enabled);
}

int cuptiSubscribe(void **subscriber, Callback callback, void *user) {
  const char *fails = getenv("STAND_IN_CUPTI");
  if (fails != NULL) return atoi(fails);
  if (has_subscriber) return TAKEN;
  has_subscriber = 1;
  *subscriber = &has_subscriber;
  connect_driver(callback, user);
  return 0;
}

#ifndef BEFORE_13
typedef struct {
  size_t size_bytes;
  const char *name;
  char *other;
  size_t other_bytes;
} SubscriberParams;

int cuptiSubscribe_v2(void **subscriber, Callback callback, void *user, SubscriberParams *params) {
  int result = params->size_bytes == sizeof *params ? cuptiSubscribe(subscriber, callback, user) : INVALID;
  if (result == TAKEN) snprintf(params->other, params->other_bytes, "CUPTI for nsys");
  return result;
}
#endif

int cuptiUnsubscribe(void *subscriber) {
  if (subscriber != &has_subscriber || !has_subscriber) return INVALID;
  has_subscriber = 0;
  connect_driver(NULL, NULL);
  return 0;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id) {
  if (subscriber != &has_subscriber || id >= CALLBACKS) return INVALID;
  if (domain == 1) enabled[id] = (unsigned char)enable;
  return 0;
}

int cuptiGetCallbackState(uint32_t *enable, void *subscriber, int domain, uint32_t id) {
  if (subscriber != &has_subscriber || domain != 1 || !has_subscriber) return INVALID;
  *enable = enabled[id];
  return 0;
}

int cuptiGetVersion(uint32_t *version) {
  *version = 130001;
  return 0;
}

/* Ends the subscription without a word. */
int cuptiFinalize(void) {
  has_subscriber = 0;
  for (int i = 0; i < CALLBACKS; ++i) enabled[i] = 0;
  connect_driver(NULL, NULL);
  return 0;
}
