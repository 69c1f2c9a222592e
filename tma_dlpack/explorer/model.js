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
// A missing value has the default of Python. Enums are names or numbers. im2col_wide has lower_corner_width
// and upper_corner_width (numbers) and mode. No function changes the request that it is given; what
// each returns stands where it is defined. Those of a tile are for accepted requests.

const tmaModel = (() => {
  const T = tmaTables, R = tmaRequest, G = tmaGeometry, C = tmaCheck;
  const { read, encodeArguments } = R, { reasonOf, put, python } = C;
  // -- what a control can be set to --------------------------------------------------------------

  const AROUND = 64, MAX_TAP = 31, MANY = 32; // steps that are all judged

  /** The legal values of a control, such as "box_sizes[0]", while the others keep theirs,
   *  "pixels_per_column", "coords[1]", "strides[0]": {least, most, step, reason, refused: [{first,
   *  last, reason}]}. Legal are the multiples of step in least..most outside the runs; `reason` is
   *  why other numbers are refused. */
  function legal(request, name, coords = null, im2colOffsets = null) {
    const [, field, index] = /^(\w+)(?:\[(\d+)\])?$/.exec(name);
    const place = index === undefined ? null : Number(index);
    if (field === "coords" || field === "im2col_offsets")
      return legalPlace(request, field, place, coords, im2colOffsets);
    const value = C.valueOf(request, field), number = place === null ? value : value[place];
    const why = (n) => reasonOf(put(request, field, n, place)), a = read(request);
    const reach = C.reachOf(a, field, place), isWide = field === "box_sizes" && reach.most > T.K.MAX_BOX;
    const whole = Math.ceil(a.global_dim[0] / reach.step) * reach.step; // of a split row, which may be long
    return legalNumber(number, isWide ? { ...reach, most: Math.min(reach.most, whole) } : reach, why);
  }

  /** The legal multiples of a control's step; of 1 where the values between them are legal too. */
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

  /** Whether an option is as it would be anyway. */
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
      cpp: C.accepts(request) ? cppCode(request) : "", // "" where refused
    }),
  };
})();
