/* page.c: the functions describe, judge, extend and encode for the explorer's page, as WebAssembly.
 *
 * JavaScript and C exchange arrays of int64_t, which explorer/core.js writes and reads as BigInt.
 * `asked` has the numbers of the request, in the order in which the function `describe` reads them.
 * `answered` has the members of TmaDlpackDescribed, in the order of checks.struct.STRUCT. The page
 * handles one request at a time. The code allocates no memory and needs no C library.
 */

#include "../include/tma_dlpack_make.h"

/* MOST_RANK is the maximum rank of a tensor on the page. ROOM is the number of entries of `asked`.
 * A request needs at most 58 entries. */
enum { MOST_RANK = 8, ROOM = 64 };

#define EXPORT(name) __attribute__((export_name(#name)))

static int64_t asked[ROOM];
static TmaDlpackDescribed answered;
static uint8_t entries[TMA_DLPACK_RULE_COUNT], map[TMA_DLPACK_MAP_BYTES];
static uint64_t rows; /* mask of the rules that apply to the request */

TMA_DLPACK_STATIC_ASSERT(sizeof(TmaDlpackDescribed) % sizeof(int64_t) == 0, "flat");

EXPORT(asked_at) int64_t *asked_at(void) { return asked; }
EXPORT(answered_at) TmaDlpackDescribed *answered_at(void) { return &answered; }
EXPORT(entries_at) uint8_t *entries_at(void) { return entries; }
EXPORT(map_at) uint8_t *map_at(void) { return map; }
EXPORT(tables_abi) uint32_t tables_abi(void) { return TMA_DLPACK_TABLES_ABI; }

/* Return the features of a compute capability as bits, in the order of CAPABILITIES in
 * tables.js. */
EXPORT(capabilities) int capabilities(int major, int minor) {
  return tma_dlpack_target_has_tma(major, minor) | tma_dlpack_target_is_sm_9x(major, minor) << 1 |
         tma_dlpack_target_has_wide(major, minor) << 2 | tma_dlpack_target_has_model(major, minor) << 3;
}

/* Read a count, and then `count` numbers. If there are more than `room` numbers, store only the
 * last `room` numbers, which belong to the innermost dimensions. Return the count. */
static int read_list(const int64_t **at, int room, int64_t *values) {
  const int count = (int)*(*at)++;
  for (int i = 0; i < count; ++i, ++*at)
    if (i >= count - room) values[count > room ? i - (count - room) : i] = **at;
  return count;
}

static int at_most(int count, int most) { return count < most ? count : most; }

/* Read the request in `asked`, and write its description to `answered`. Return whether
 * TmaDlpackDescribed can represent the request. If the rank is above 5, `answered.rank` is this
 * rank, but the arrays have only the 5 innermost dimensions. */
EXPORT(describe) int describe(void) {
  const int64_t *at = asked;
  int64_t shape[TMA_DLPACK_MAX_RANK], strides[TMA_DLPACK_MAX_RANK];
  TmaDlpackOptions o;
  TmaDlpackTensor tensor = {NULL, {TMA_DLPACK_CPU, 0}, 0, {0, 0, 0}, shape, NULL, 0};
  tma_dlpack_start_options(&o, (int)*at++);
  o.driver_rules = (int)*at++;
  o.asked_type = (int)*at++;
  o.interleave = (int)*at++;
  o.swizzle = (int)*at++;
  o.l2_promotion = (int)*at++;
  o.oob_fill = (int)*at++;
  o.mode = (int)*at++;
  o.has_swizzle = (int)*at++;
  o.allowed = (uint64_t)*at++;
  o.channels = *at++;
  o.pixels = *at++;
  o.split_inner = (int)*at++;
  o.has_ragged = (int)*at++;
  o.ragged = *at++;
  TmaDlpackTarget target = {(int)at[0], (int)at[1], at[2]};
  at += 3;
  tensor.byte_offset = (uint64_t)*at++;
  tensor.dtype = (TmaDlpackDataType){(uint8_t)at[0], (uint8_t)at[1], (uint16_t)at[2]};
  at += 3;
  const int rank = read_list(&at, TMA_DLPACK_MAX_RANK, shape);
  if (read_list(&at, TMA_DLPACK_MAX_RANK, strides) != 0) tensor.strides = strides;
  const int box = read_list(&at, TMA_DLPACK_MAX_RANK, o.box_sizes);
  const int has_steps = (int)*at++, steps = read_list(&at, TMA_DLPACK_MAX_RANK, o.elem_strides);
  const int lower = read_list(&at, 3, o.lower), upper = read_list(&at, 3, o.upper);
  tensor.ndim = at_most(rank, TMA_DLPACK_MAX_RANK);
  o.box_count = at_most(box, TMA_DLPACK_MAX_RANK);
  if (has_steps) o.elem_stride_count = at_most(steps, TMA_DLPACK_MAX_RANK);
  o.lower_count = at_most(lower, 3);
  o.upper_count = at_most(upper, 3);
  memset(&answered, 0, sizeof answered);
  rows = tma_dlpack_asked(&o, &target);
  if (tma_dlpack_describe(&tensor, &o, &target, &answered) != NULL) return 0;
  /* The rules judge the counts of the request, even if they exceed the sizes of the arrays. */
  answered.rank = rank;
  answered.box_count = o.kind == TMA_DLPACK_TILED ? box : 0;
  answered.elem_stride_count = has_steps ? steps : rank;
  answered.lower_count = o.kind == TMA_DLPACK_TILED ? 0 : lower;
  answered.upper_count = o.kind == TMA_DLPACK_TILED ? 0 : upper;
  if (rank > TMA_DLPACK_MAX_RANK)
    tma_dlpack_derive(&answered, tma_dlpack_rules_of(o.kind, o.driver_rules, &target), &target);
  return 1;
}

/* Judge the call in `answered`. Return the mask of the rules that fail. For each rule, write the
 * mask of the array entries that fail to `entries`. */
EXPORT(judge) uint64_t judge(void) {
  memset(entries, 0, sizeof entries);
  return tma_dlpack_judge_entries(&answered, rows, entries);
}

/* Add the dimensions of split_inner and ragged. The rules may have refused the request. So add the
 * dimensions only if the numbers of the options are valid and the new rank is at most 5. */
EXPORT(extend) void extend(void) {
  if (answered.span_values == 0) answered.is_split = 0;
  if (answered.ragged_dim < 1) answered.is_ragged = 0;
  if (answered.rank + answered.is_split + 2 * answered.is_ragged > TMA_DLPACK_MAX_RANK)
    answered.is_split = answered.is_ragged = 0;
  tma_dlpack_extend(&answered);
}

/* Encode an accepted and extended request, and write the 128 bytes to `map`. */
EXPORT(encode) void encode(void) { tma_dlpack_encode(&answered, map); }
