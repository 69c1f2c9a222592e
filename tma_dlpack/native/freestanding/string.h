/* string.h: what the core needs of it where there is no C library, which is when page.c is compiled. */

#ifndef TMA_DLPACK_STRING_H
#define TMA_DLPACK_STRING_H

#include <stddef.h>

/* Of volatile bytes, so that no compiler makes calls of these functions out of their loops. */
void *memset(void *to, int value, size_t count) {
  for (size_t i = 0; i < count; ++i) ((volatile unsigned char *)to)[i] = (unsigned char)value;
  return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) ((volatile unsigned char *)to)[i] = ((const unsigned char *)from)[i];
  return to;
}

#endif /* TMA_DLPACK_STRING_H */
