// The header's functions as symbols, for test_make_header.py.
#include "tma_dlpack_make.h"

void describe(const TmaDlpackTensor *tensor, const TmaDlpackOptions *options, TmaDlpackArguments *a) {
  tma_dlpack_describe(tensor, options, a);
}

int judge(const TmaDlpackArguments *a, int rules, int64_t max_smem_bytes) {
  return tma_dlpack_judge(a, rules, max_smem_bytes);
}

void encode(const TmaDlpackArguments *a, unsigned char *map) { tma_dlpack_encode(a, map); }
