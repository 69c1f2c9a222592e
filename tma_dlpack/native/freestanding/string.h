/* string.h: memset and memcpy for page.c, which is compiled without a C library. */

#ifndef TMA_DLPACK_STRING_H
#define TMA_DLPACK_STRING_H

#include <stddef.h>

/* The bytes are volatile. Otherwise a compiler could replace the loop in memset or memcpy with a
 * call of memset or memcpy, which would be an endless recursion. */
void *memset(void *to, int value, size_t count) {
  for (size_t i = 0; i < count; ++i) ((volatile unsigned char *)to)[i] = (unsigned char)value;
  return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) ((volatile unsigned char *)to)[i] = ((const unsigned char *)from)[i];
  return to;
}

#endif /* TMA_DLPACK_STRING_H */
