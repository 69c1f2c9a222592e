// The header's functions as symbols, for test_make_header.py.
#include "tma_dlpack_make.h"

const char *describe(const TmaDlpackTensor *tensor, const TmaDlpackOptions *options,
                     const TmaDlpackTarget *target, TmaDlpackDescribed *c) {
  return tma_dlpack_describe(tensor, options, target, c);
}

uint64_t asked(const TmaDlpackOptions *options, const TmaDlpackTarget *target) {
  return tma_dlpack_asked(options, target);
}

uint64_t judge(const TmaDlpackDescribed *c, uint64_t asked) { return tma_dlpack_judge(c, asked); }

void encode(TmaDlpackDescribed *c, unsigned char *map) {
  tma_dlpack_extend(c);
  tma_dlpack_encode(c, map);
}

uint32_t abi(void) { return TMA_DLPACK_TABLES_ABI; }

int carried(int code, int bits, int lanes, int asked_type) {
  TmaDlpackDataType dtype = {(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
  return tma_dlpack_data_type(dtype, asked_type);
}
