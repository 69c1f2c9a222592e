// The model behind the page: judge, encode, simulate and count a tensor map, without Python.
//
// Plain scripts, to be concatenated in this order: tables.js (generated), request.js, geometry.js,
// operand.js, check.js, model.js. Everything is in `tmaModel`; the tables (names of enums, data types, targets,
// limits, rules, fields of the 128 bytes) are in `tmaTables`.
//
// A request is a plain object in the user's words, row-major, as make_tma_descriptor takes it:
//   {kind: "tiled" | "im2col" | "im2col_wide", shape, strides: elements or null,
//    dtype: "float16" (the tensor's) and/or data_type: "FLOAT16" or null, address: number,
//    box_sizes, elem_strides or null, interleave_layout, swizzle, l2_fetch_size, oobfill,
//    rules, allow: [ids], target: "sm_90" or {compute_capability: [9, 0], max_smem_bytes},
//    split_inner: bool, ragged: dim or null,
//    pixel_box_lower_corner, pixel_box_upper_corner, channels_per_pixel, pixels_per_column}
// What is missing is as in Python. Enums are names or numbers. im2col_wide has lower_corner_width
// and upper_corner_width (numbers) and mode. No function changes the request that it is given.
"use strict";

const tmaModel = (() => {
  const T = tmaTables, R = tmaRequest, G = tmaGeometry, C = tmaCheck;
  const { read, encodeArguments } = R, { reasonOf, put, python } = C;
  // -- what a control can be set to --------------------------------------------------------------

  const AROUND = 64, MAX_TAP = 31, MANY = 32; // steps that are all judged

  function legal(request, name, coords = null, im2colOffsets = null) {
    const [, field, index] = /^(\w+)(?:\[(\d+)\])?$/.exec(name);
    const place = index === undefined ? null : Number(index);
    if (field === "coords" || field === "im2col_offsets")
      return legalPlace(request, field, place, coords, im2colOffsets);
    const value = C.valueOf(request, field), number = place === null ? value : value[place];
    const why = (n) => reasonOf(put(request, field, n, place));
    return legalNumber(number, C.reachOf(read(request), field, place), why);
  }

  /** The legal multiples of a control's step; of 1 where what stands between them is legal too. */
  function legalNumber(value, { least, most, step }, reason) {
    let found = multiples(value, least, most, step, reason);
    const beside = found.legal === null ? least : found.legal + (found.legal < most ? 1 : -1);
    if (step > 1 && !reason(beside)) {
      step = 1;
      found = multiples(value, least, most, step, reason);
    }
    return { least, most, step, reason: step > 1 ? reason(beside) : "", refused: found.refused };
  }

  /** The runs of refused multiples, by few questions: all of a few, or ends by halving; and the
   *  first legal one. */
  function multiples(value, least, most, step, reason) {
    const low = Math.ceil(least / step), high = Math.floor(most / step);
    const why = (n) => reason(n * step), isLegal = (n) => !why(n);
    const run = (first, last, words) => ({ first: first * step, last: last * step, reason: words });
    if (high - low < MANY) {
      const places = Array.from({ length: high - low + 1 }, (_, i) => low + i);
      const legal = places.find(isLegal);
      const refused = runs(low, high, why).map((r) => run(r.first, r.last, r.reason));
      return { legal: legal === undefined ? null : legal * step, refused };
    }
    const near = Math.round(value / step), starts = [near, near + 1, 1, 0, low, high];
    const start = starts.find((n) => low <= n && n <= high && isLegal(n));
    if (start === undefined) return { legal: null, refused: [run(low, high, why(low))] };
    const end = (limit) => (isLegal(limit) ? limit : C.halved(start, limit, isLegal));
    const from = end(low), to = end(high), refused = [];
    if (from > low) refused.push(run(low, from - 1, why(from - 1)));
    if (to < high) refused.push(run(to + 1, high, why(to + 1)));
    return { legal: start * step, refused };
  }

  function runs(least, most, reason) {
    const found = [];
    for (let n = least; n <= most; ++n) {
      const why = reason(n), last = found[found.length - 1];
      if (why && last && last.last === n - 1 && last.reason === why) last.last = n;
      else if (why) found.push({ first: n, last: n, reason: why });
    }
    return found;
  }

  /** How far a coordinate or an offset goes, and in which steps. */
  function legalPlace(request, field, place, coords, im2colOffsets) {
    const a = encodeArguments(request), d = a.rank - 1 - place;
    const zero = G.firstCoords(a), taps = G.walked(a);
    if (field === "im2col_offsets") {
      const reach = -(a.lower[taps.length - 1 - place] + a.upper[taps.length - 1 - place]);
      const most = Math.min(reach > 0 ? reach : 8, MAX_TAP);
      return { least: 0, most, step: 1, reason: "", refused: [] };
    }
    const box = taps.find((walk) => walk.d === d);
    const least = box ? box.first : -AROUND, most = box ? box.last : a.global_dim[d] + AROUND;
    const reason = (value) => {
      const at = zero.map((n, i) => (i === place ? value : n));
      const { refusal } = G.tile(a, at, [], 0);
      return refusal ? `${refusal.rule}: ${refusal.limit}` : "";
    };
    const steps = [1, 2, 4, 8, 16, 32, 64, 128].filter((n) => n >= least && n <= most);
    const step = steps.find((n) => !reason(n)) ?? 1;
    return { least, most, step, reason: step > 1 ? reason(1) : "", refused: [] };
  }

  // -- code --------------------------------------------------------------------------------------

  const FUNCTIONS = {
    tiled: ["make_tma_descriptor", "cuTensorMapEncodeTiled"],
    im2col: ["make_im2col_descriptor", "cuTensorMapEncodeIm2col"],
    im2col_wide: ["make_im2col_wide_descriptor", "cuTensorMapEncodeIm2colWide"],
  };
  const COUNTS = ["channels_per_pixel", "pixels_per_column"];
  const NEEDED = {
    tiled: ["box_sizes"],
    im2col: ["pixel_box_lower_corner", "pixel_box_upper_corner", ...COUNTS],
    im2col_wide: ["lower_corner_width", "upper_corner_width", ...COUNTS],
  };
  const OPTIONAL = [
    "elem_strides", "interleave_layout", "swizzle", "l2_fetch_size", "oobfill", "mode", "data_type",
    "rules", "allow", "split_inner", "ragged", "target",
  ];

  /** Whether an option is as it would be anyway. */
  function isPlain(request, kind, name, value) {
    if (value == null || value === false) return true;
    if (name === "elem_strides") return value.every((n) => n === 1);
    if (name === "allow") return value.length === 0;
    if (name === "rules") return value === T.RULE_SETS[kind][0];
    if (!T.ENUMS[name] || name === "data_type") return false;
    if (name === "swizzle" && request.split_inner) return false;
    const isWideSwizzle = name === "swizzle" && kind === "im2col_wide";
    return R.member(name, value) === (isWideSwizzle ? T.K.SWIZZLE_128B : 0);
  }

  function pythonCode(request, coords, im2colOffsets) {
    const kind = request.kind ?? "tiled";
    const optional = OPTIONAL.filter((name) => !isPlain(request, kind, name, request[name]));
    const text = (name, value) => {
      if (name === "target" && typeof value !== "string")
        return `tma.Target(${python(value.compute_capability)}, ${value.max_smem_bytes})`;
      return python(value);
    };
    const names = [...NEEDED[kind], ...optional];
    const given = names.map((name) => `${name}=${text(name, request[name])}`).join(", ");
    const call = `tm = tma.${FUNCTIONS[kind][0]}(tensor, ${given})`;
    if (!coords) return call;
    const hasTaps = (im2colOffsets ?? []).some(Boolean);
    const taps = hasTaps ? `, im2col_offsets=${python(im2colOffsets)}` : "";
    return `${call}\ntile = tma.load_tile(tm, ${python(coords)}${taps})`;
  }

  function cppCode(request) {
    const a = encodeArguments(request), name = (menu, n) => T.C_NAMES[menu][n];
    const array = (type, label, values) =>
      `const ${type} ${label}[] = {${values.join(", ")}};`;
    const lines = [
      "// Index 0 is the innermost dimension.",
      array("cuuint64_t", "global_dim", a.global_dim),
      array("cuuint64_t", "global_strides", a.global_strides.length ? a.global_strides : [0]),
    ];
    const middle = [];
    if (a.kind === "tiled") {
      lines.push(array("cuuint32_t", "box_dim", a.box_dim));
      middle.push("box_dim");
    } else {
      const corners = [["pixel_box_lower_corner", a.lower], ["pixel_box_upper_corner", a.upper]];
      for (const [label, values] of corners) {
        if (a.kind === "im2col") lines.push(array("int", label, values));
        middle.push(a.kind === "im2col" ? label : values[0]);
      }
      middle.push(a.channels, a.pixels);
    }
    lines.push(array("cuuint32_t", "element_strides", a.element_strides));
    const call = [
      "&map", a.row.c_name, a.rank, "global_address", "global_dim", "global_strides", ...middle,
      "element_strides", name("interleave_layout", a.interleave),
      ...(a.kind === "im2col_wide" ? [name("mode", a.mode)] : []),
      name("swizzle", a.swizzle), name("l2_fetch_size", a.l2_promotion),
      name("oobfill", a.oob_fill),
    ];
    const function_ = FUNCTIONS[a.kind][1];
    lines.push("", "alignas(128) CUtensorMap map{};");
    lines.push(`CUresult result = ${function_}(`, `    ${call.join(",\n    ")});`);
    return lines.join("\n");
  }

  return {
    // describe(request) -> the struct that the judge reads: index 0 innermost, bits and integers.
    describe: read,
    // check(request) -> {ok, violations: [{rule, argument, index, found, limit, fix, change, why,
    //   source}], fixed}. Violations in libcu++'s order. `index`: row-major entry of the argument,
    //   or null. `change`: {argument: value} that satisfies this rule (may change the tensor's
    //   shape, strides or address), or null. `fixed`: a whole request with other arguments (same
    //   tensor) that is accepted; the request itself where it is ok; null if there is none.
    check: C.check,
    // accepts(request) -> whether it is accepted: check without its words.
    accepts: C.accepts,
    // encode(request) -> Uint8Array(128); null where the request is refused, or the target has no
    //   model.
    encode: R.encode,
    // fields(request) -> [{name, index, label, pieces: [[bit, width], ...], value, ...}] of the 128
    //   bytes, or null as encode.
    fields: R.fieldsOf,
    // plan(request) -> {txBytes, smemBytes, smemAlignment, lines, lineShape, lineBytes,
    //   smemLineBytes, pitchBytes, tileShape, unitBytes, rank, counts, steps} of an accepted
    //   request; lines are rows of the box, pixels of a column, or interleaved units. txBytes are
    //   what the mbarrier counts, smemBytes what the tile takes, with padding.
    plan: (request) => G.plan(encodeArguments(request)),
    // tile(request, coords, im2colOffsets = null, smemOffset = 0) -> plan's fields and
    //   {refusal: null or {rule, argument, found, limit, fix},
    //    line(i) -> {position: row-major coordinate of its first element, inside, origin: bytes},
    //    chunk(address) -> what the 16 bytes at a shared address hold,
    //    chunks() -> all of them, by address}
    //   A chunk: {address, state: "data" | "filled" | "clipped" | "padding", row (line, -1 of
    //   padding), first, last (elements of that line), element (row-major position in the tensor),
    //   globalOffset (bytes after address), linear (address before the swizzle), swapped (its
    //   halves of 8 bytes are exchanged), dataBytes (of the 16), inside: [from, end) bytes of
    //   dataBytes that are in bounds}. With a refusal there are no line, chunk and chunks.
    tile: (request, coords, im2colOffsets = null, smemOffset = 0) =>
      G.tile(encodeArguments(request), coords, im2colOffsets, smemOffset),
    // firstCoords(request) -> coordinates of a first tile (row-major).
    firstCoords: (request) => G.firstCoords(encodeArguments(request)),
    // banks(request, access, {swizzle, smemOffset = 0}) -> {degrees, worst, wavefronts,
    //   phases: [[words that each thread reads], ...] (the first 16)};
    //   access: "column", "row", or 16-byte shared addresses in phases of 8 (as ldmatrix returns).
    banks: (request, access, options = {}) => G.banks(encodeArguments(request), access, options),
    // ldmatrix(request, row, column, {num = 4, transpose = false, smemAddress = 0}) -> 32
    //   addresses; null where the tile is no matrix or they leave it.
    ldmatrix: (request, row, column, options = {}) =>
      G.ldmatrix(encodeArguments(request), row, column, options),
    // operand(request, major = "K") -> the tile as wgmma or tcgen05.mma reads it: {instruction, major,
    //   refusals: [{rule, found, limit}]}, and where there are none {value: its 64 bits in hex, fields:
    //   [{name, first, bits, number}], leading, stride, starts: where each K step begins, kElements,
    //   mnElements, atoms: [[{address, steps}]] row by row, atomRows, span, swizzle, sure}.
    operand: tmaOperand.operand,
    // legal(request, name, coords, im2colOffsets) of one control, every other staying as it is.
    //   Numbers, such as "box_sizes[0]", "pixels_per_column", "coords[1]", "strides[0]":
    //   {least, most, step, reason, refused: [{first, last, reason}]}: legal are the multiples of
    //   step in least..most outside the runs; `reason` is why other numbers are refused.
    legal,
    // reason(request, name, value) -> why an option of a menu, such as "swizzle", is refused; ""
    //   where it is accepted.
    reason: (request, name, value) => reasonOf(put(request, name, value || null)),
    // code(request, coords, im2colOffsets) -> {python, cpp}; cpp is "" where refused.
    code: (request, coords = null, im2colOffsets = null) => ({
      python: pythonCode(request, coords, im2colOffsets),
      cpp: C.accepts(request) ? cppCode(request) : "",
    }),
  };
})();
