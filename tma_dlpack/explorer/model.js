// `tmaModel`: functions that check, encode and simulate a tensor map without Python.
//
// The scripts are concatenated in this order: tables.js (generated), core.js, geometry.js, operand.js,
// candidates.js, fixes.js, check.js, model.js. `tmaTables` has the names of enums, the data types, targets, limits,
// rules, and fields of the 128 bytes.
//
// A request is an object with the arguments of make_tma_descriptor, row-major, and a description of the tensor:
//   {kind: "tiled" | "im2col" | "im2col_wide", shape, strides: elements or null,
//    dtype: "float16" (the tensor's) and/or data_type: "FLOAT16" or null, address: number,
//    box_sizes, elem_strides or null, interleave_layout, swizzle, l2_fetch_size, oobfill,
//    rules, allow: [ids], target: "sm_90" or {compute_capability: [9, 0], max_smem_bytes},
//    split_inner: bool, ragged: dim or null,
//    pixel_box_lower_corner, pixel_box_upper_corner, channels_per_pixel, pixels_per_column}
// A missing value has the same default as in Python. An enum's member is a name or a number. A request of im2col_wide
// has lower_corner_width, upper_corner_width (numbers) and mode. No function changes its request. The functions about
// a tile need an accepted request.

const tmaModel = (() => {
  const T = tmaTables, R = tmaRequest, G = tmaGeometry, C = tmaCheck;
  const { read, encodeArguments } = R, { reasonOf, put, python } = C;
  // -- the legal values of a control -------------------------------------------------------------

  // The slider of a coordinate extends AROUND elements past each end of the tensor. The slider of an im2col offset ends
  // at MAX_TAP. If a control has at most MANY steps, each step is checked.
  const AROUND = 64, MAX_TAP = 31, MANY = 32;

  /** Return the legal values of a control while all other values are unchanged: {least, most, step, reason, refused:
   *  [{first, last, reason}]}. Examples of `name` are "box_sizes[0]", "pixels_per_column", "coords[1]" and
   *  "strides[0]". The legal values are the multiples of `step` from `least` to `most`, except the multiples in the
   *  runs of `refused`. `reason` explains why numbers between the multiples are refused. */
  function legal(request, name, coords = null, im2colOffsets = null) {
    const [, field, index] = /^(\w+)(?:\[(\d+)\])?$/.exec(name);
    const place = index === undefined ? null : Number(index);
    if (field === "coords" || field === "im2col_offsets")
      return legalPlace(request, field, place, coords, im2colOffsets);
    const value = C.valueOf(request, field), number = place === null ? value : value[place];
    const why = (n) => reasonOf(put(request, field, n, place)), a = read(request);
    const reach = C.reachOf(a, field, place), isWide = field === "box_sizes" && reach.most > T.K.MAX_BOX;
    const whole = Math.ceil(a.global_dim[0] / reach.step) * reach.step; // the end of the slider with split_inner
    return legalNumber(number, isWide ? { ...reach, most: Math.min(reach.most, whole) } : reach, why);
  }

  /** Return the legal values of a numeric control. If a number next to a legal multiple of `step` is legal too, the
   *  step of the result is 1. */
  function legalNumber(value, { least, most, step }, reason) {
    let found = multiples(value, least, most, step, reason);
    const beside = found.legal === null ? least : found.legal + (found.legal < most ? 1 : -1);
    if (step > 1 && !reason(beside)) {
      step = 1;
      found = multiples(value, least, most, step, reason);
    }
    return { least, most, step, reason: step > 1 ? reason(beside) : "", refused: found.refused };
  }

  /** Return {legal, refused}: one legal multiple of `step` or null, and the runs of refused multiples. If there are few
   *  multiples, each multiple is checked. Otherwise bisection finds the two ends of one range of legal multiples. */
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

  /** Return the range and the step of a coordinate or an im2col offset. */
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

  /** Return whether an option has its default value, so that the code omits it. */
  function isPlain(request, name, value, plain) {
    if (value == null || (name === "elem_strides" && value.every((n) => n === 1))) return true;
    if (plain === null || (name === "swizzle" && request.split_inner)) return false;
    return T.ENUMS[name] ? R.member(name, value) === R.member(name, plain) : `${value}` === `${plain}`;
  }

  function pythonCode(request, coords, im2colOffsets) {
    const { name, needs, defaults } = T.VERBS[request.kind ?? "tiled"];
    const options = Object.entries(defaults)
      .filter(([name, plain]) => !isPlain(request, name, request[name], plain));
    const text = (name, value) => {
      if (name === "target" && typeof value !== "string")
        return `tma.Target(${python(value.compute_capability)}, ${value.max_smem_bytes})`;
      return python(value);
    };
    const given = [...needs, ...options.map(([name]) => name)]
      .map((name) => `${name}=${text(name, request[name])}`).join(", ");
    const call = `tm = tma.${name}(tensor, ${given})`;
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
    lines.push("", "alignas(128) CUtensorMap map{};");
    lines.push(`CUresult result = ${T.VERBS[a.kind].driver_name}(`, `    ${call.join(",\n    ")});`);
    return lines.join("\n");
  }

  const ofArguments = (answer) => (request, ...more) => answer(encodeArguments(request), ...more);

  return {
    describe: read,
    check: C.check,
    accepts: C.accepts,
    encode: R.encode,
    fields: R.fieldsOf,
    plan: ofArguments(G.plan),
    tile: ofArguments(G.tile),
    firstCoords: ofArguments(G.firstCoords),
    banks: ofArguments(G.banks),
    ldmatrix: ofArguments(G.ldmatrix),
    operand: tmaOperand.operand,
    legal,
    nearest: C.nearest,
    reason: (request, name, value) => reasonOf(put(request, name, value || null)),
    code: (request, coords = null, im2colOffsets = null) => ({
      python: pythonCode(request, coords, im2colOffsets),
      cpp: C.accepts(request) ? cppCode(request) : "", // "" if the request is refused
    }),
  };
})();
