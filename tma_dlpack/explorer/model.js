// The model behind the page: judge, encode, simulate and count a tensor map, without Python.
//
// Plain scripts, to be concatenated in this order: tables.js, geometry.js, model.js. Everything is
// in `tmaModel`; the tables (names of enums, data types, targets, limits, rules, fields of the 128
// bytes) are in `tmaTables`.
//
// A request is a plain object in the user's words, row-major, as make_tma_descriptor takes it:
//   {kind: "tiled" | "im2col" | "im2col_wide", shape, strides: elements or null,
//    dtype: "float16" (tensor's) and/or data_type: "FLOAT16" or null, address: number,
//    box_sizes, elem_strides or null, interleave_layout, swizzle, l2_fetch_size, oobfill,
//    rules, allow: [ids], target: "sm_90" or {compute_capability: [9, 0], max_smem_bytes},
//    split_inner: bool, ragged: dim or null,
//    pixel_box_lower_corner, pixel_box_upper_corner, channels_per_pixel, pixels_per_column}
// What is missing is as in Python. Enums are names or numbers. im2col_wide has lower_corner_width
// and upper_corner_width (numbers) and mode. No function changes the request that it is given.
"use strict";

const tmaModel = (() => {
  const later = (name) => () => { throw new Error(`${name} is not written yet`); };
  return {
    // describe(request) -> the struct that the judge reads: index 0 innermost, bits and integers.
    describe: later("describe"),
    // check(request) -> {ok, violations: [{rule, argument, index, found, limit, fix, change, why,
    //   source}], fixed}. Violations in libcu++'s order. `index`: row-major entry of the argument,
    //   or null. `change`: {argument: value} that satisfies this rule (may change the tensor's
    //   shape, strides or address), or null. `fixed`: a whole request with other arguments (same
    //   tensor) that is accepted; the request itself where it is ok; null if there is none.
    check: later("check"),
    // encode(request) -> Uint8Array(128) of an accepted request; null where the target has no model
    //   or the request is refused.
    encode: later("encode"),
    // fields(request) -> [{name, index, label, pieces: [[bit, width], ...], value}] of the 128 bytes.
    fields: later("fields"),
    // plan(request) -> {txBytes, smemBytes, smemAlignment, lines, lineShape, lineBytes,
    //   smemLineBytes, pitchBytes, tileShape, unitBytes, rank, ...} of an accepted request; lines
    //   are rows of the box, pixels of a column, or interleaved units.
    plan: later("plan"),
    txBytes: later("txBytes"), // (request) -> bytes that the mbarrier counts
    smemBytes: later("smemBytes"), // (request) -> bytes that the tile takes, padding included
    smemAlignment: later("smemAlignment"), // (request) -> recommended alignment
    // swizzle(offset, mode) -> swizzled shared address of a byte; its own inverse. mode: name/number
    swizzle: later("swizzle"),
    // tile(request, coords, im2colOffsets = null, smemOffset = 0) -> plan's fields and
    //   {refusal: null or {rule, argument, found, limit, fix},
    //    line(i) -> {position: row-major coordinate of its first element, inside, origin: bytes},
    //    chunk(address) -> what the 16 bytes at a shared address hold,
    //    chunks() -> all of them, by address,
    //    element(address) -> the same of one element: {position, state, globalOffset}}
    //   A chunk: {address, state: "data" | "filled" | "clipped" | "padding", row (line, -1 of
    //   padding), first, last (elements of that line), element (row-major position in the tensor),
    //   globalOffset (bytes after address), linear (address before the swizzle), swapped (its
    //   halves of 8 bytes are exchanged), dataBytes (of the 16), inside: [from, end) bytes of
    //   dataBytes that are in bounds}
    tile: later("tile"),
    // firstCoords(request) -> coordinates of a first tile (row-major).
    firstCoords: later("firstCoords"),
    // tileCoords(request, most = 4096) -> coordinates of the tiles that cover the tensor.
    tileCoords: later("tileCoords"),
    // banks(request, access, {swizzle, smemOffset = 0}) -> {degrees, worst, wavefronts, phase,
    //   phases: [[words that each thread reads], ...] (the first 16), words}; access: "column",
    //   "row", or 16-byte shared addresses in phases of 8 (as ldmatrix returns).
    banks: later("banks"),
    // ldmatrix(request, row, column, {num = 4, transpose = false, smemAddress = 0}) -> 32 addresses.
    ldmatrix: later("ldmatrix"),
    // legal(request, name, coords, im2colOffsets) of one control, every other staying as it is.
    //   Numbers, such as "box_sizes[0]", "pixels_per_column", "coords[1]", "strides[0]":
    //   {least, most, step, reason, refused: [{first, last, reason}]}.
    //   Menus, such as "swizzle": {options: [{value, reason}]}, reason "" where accepted.
    legal: later("legal"),
    // code(request, coords, im2colOffsets) -> {python, cpp}; cpp is "" where refused.
    code: later("code"),
  };
})();
