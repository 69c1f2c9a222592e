// The model behind the page: judge, encode, simulate and count a tensor map, without Python.
//
// Plain scripts, to be concatenated in this order: tables.js (generated), request.js, geometry.js,
// model.js. Everything is in `tmaModel`; the tables (names of enums, data types, targets, limits,
// rules, fields of the 128 bytes) are in `tmaTables`.
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
  const T = tmaTables, K = T.K, R = tmaRequest, G = tmaGeometry;
  const { read, failuresOf, encodeArguments, reversed } = R;
  const MAX_REPAIRS = 40, NEAR = 512; // values tried around the current one before halving
  const TENSOR = ["shape", "strides", "address", "dtype"]; // not arguments: another tensor
  const LISTS = {
    box_sizes: 1, elem_strides: 1, pixel_box_lower_corner: 0, pixel_box_upper_corner: 0,
  }; // and what an entry that is missing is

  // -- names and values of arguments -------------------------------------------------------------

  /** The control that a rule's argument is in a request. */
  function controlOf(name, request) {
    const own = {
      "tensor.rank": "shape", "tensor.shape": "shape", "tensor.strides": "strides",
      "tensor.address": "address",
      "tensor.dtype": request.data_type == null ? "dtype" : "data_type",
    };
    if (own[name]) return own[name];
    const kind = request.kind ?? "tiled";
    if (kind !== "tiled" && name === "box_sizes") return "channels_per_pixel";
    if (kind === "im2col_wide" && name.startsWith("pixel_box"))
      return name.includes("lower") ? "lower_corner_width" : "upper_corner_width";
    return name;
  }

  /** A control's value, defaults filled in. */
  function valueOf(request, name) {
    if (request[name] != null) return request[name];
    if (name === "strides") return R.rowMajorStrides(request.shape);
    if (name === "elem_strides") return request.shape.map(() => 1);
    if (name === "data_type") return T.DATA_TYPES[read(request).data_type].name;
    if (T.ENUMS[name]) return T.ENUMS[name][0];
    return { address: 0, target: "sm_90", split_inner: false, allow: [] }[name] ?? null;
  }

  /** The same request with another value, or another entry of a list. */
  function put(request, name, value, index = null) {
    if (index === null) return { ...request, [name]: value };
    const values = [...valueOf(request, name)];
    values[index] = value;
    return { ...request, [name]: values };
  }

  const python = (value) => {
    if (Array.isArray(value)) return `(${value.map(python).join(", ")}${value.length === 1 ? "," : ""})`;
    if (typeof value === "boolean") return value ? "True" : "False";
    return value === null ? "None" : typeof value === "string" ? `'${value}'` : `${value}`;
  };

  const shown = (name, value) => {
    if (name === "address") return `0x${value.toString(16)}`;
    if (name === "target") return R.targetOf(value).name;
    return typeof value === "string" ? value : python(value);
  };

  /** The row-major index of the entry that a rule is about; null for the whole argument. */
  function indexOf(rule, entry, a, name) {
    if (!LISTS.hasOwnProperty(name) && !["shape", "strides"].includes(name)) return null;
    if (entry < 0) {
      const isInner = rule.fields.some((f) => ["inner_box", "inner_box_bits", "inner_stride"].includes(f));
      return isInner || rule.id === "DIM_PACKED" ? a.rank - 1 : null;
    }
    if (name.startsWith("pixel_box")) return a.rank - 3 - entry;
    const first = rule.each.startsWith("s") ? (a.interleave ? 0 : 1) : 0;
    return a.rank - 1 - first - entry;
  }

  // -- judging -----------------------------------------------------------------------------------

  /** The rules that do not hold, in libcu++'s order, without those whose prerequisites failed. */
  function faultsOf(request) {
    const failed = failuresOf(request);
    const ids = new Set(failed.map(([row]) => T.RULES[row].id));
    const here = new Set(failed.map(([row, entry]) => `${T.RULES[row].id} ${entry}`));
    const found = [];
    for (const [row, entry] of failed) {
      const rule = T.RULES[row];
      if ((rule.after ?? []).some((id) => ids.has(id))) continue;
      if ((rule.after_here ?? []).some((id) => here.has(`${id} ${Math.max(0, entry)}`))) continue;
      found.push({ rule, row, entry, nth: rule.outermost_first ? -entry : entry });
    }
    return found.sort((x, y) => x.rule.step - y.rule.step || x.nth - y.nth || x.row - y.row);
  }

  function check(request) {
    let faults;
    try {
      faults = faultsOf(request);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      const [found, limit] = error.message.split("; ");
      const argument = found.split(" ")[0];
      const words = { found, limit, fix: "", why: "", source: "tma_dlpack" };
      const violation = { rule: "ARGUMENT", argument, index: null, ...words, change: null };
      return { ok: false, violations: [violation], fixed: null };
    }
    if (!faults.length) return { ok: true, violations: [], fixed: request };
    const violations = faults.map((fault) => violationOf(request, fault));
    return { ok: false, violations, fixed: fixedOf(request) };
  }

  const accepts = (request) => failuresOf(request).length === 0;

  /** What a field of the struct is in words, where its argument alone does not show it. */
  const MEASURES = {
    inner_box_bits: (c) => `a row of the box is ${c.inner_box_bits / 8} bytes`,
    span_bits: (c) => `the swizzle spans ${c.span_bits / 8} bytes`,
    box_bits: (c) => `the ${c.kind ? "column" : "box"} is ${c.box_bits / 8} bytes`,
    floor_box_bits: (c) => `the driver counts ${c.floor_box_bits / 8} bytes`,
    span_values: (c) => `a span is ${c.span_values} elements`,
    stride_bits: (c, d) => `${c.stride_bits[d - 1] / 8} bytes`,
    inside_bits: (c, d) => `the dimensions inside span ${c.inside_bits[d] / 8} bytes`,
    max_smem_bytes: (c) => `a block has ${c.max_smem_bytes} bytes`,
    corner_end: (c) => `entries are -${c.corner_end}..${c.corner_end - 1} at rank ${c.rank}`,
  };

  /** The values that a rule read: its argument, what follows from it, then the others given. */
  function foundOf(request, a, { rule, entry }, argument, index) {
    const value = valueOf(request, argument), c = R.describeRead(a);
    const one = index !== null && Array.isArray(value);
    const parts = [one
      ? `${argument}[${index}] is ${shown(argument, value[index])}`
      : `${argument} is ${shown(argument, value)}`];
    if (rule.on === "tensor.rank") parts[0] = `the tensor has ${a.rank} dimensions`;
    for (const field of rule.fields)
      if (MEASURES[field] && !(field === "span_values" && !a.is_split))
        parts.push(MEASURES[field](c, entry));
    for (const read of rule.reads ?? []) {
      const name = controlOf(read, request);
      const isDefault = ["none", "null", "false"].includes(String(valueOf(request, name)));
      const isTold = name === "data_type" ? rule.fields.some((f) => /^(is_|type_|data_)/.test(f)) : !isDefault;
      if (name !== argument && isTold) parts.push(`${name} is ${shown(name, valueOf(request, name))}`);
    }
    return [...new Set(parts)].join(", ");
  }

  function sourceOf(rule, kind) {
    const cites = rule.libcudacxx && (kind === "tiled" || !rule.documented);
    const header = cites ? `${T.LIBCUDACXX}, ${rule.libcudacxx}` : "";
    const text = [header, rule.documented ? T.DOCUMENTS[kind] : "", rule.source]
      .filter(Boolean).join("; ");
    return rule.differs ? `${text} (${rule.differs})` : text;
  }

  function violationOf(request, fault) {
    const a = read(request), { rule, entry } = fault;
    const own = [rule.on].flat().map((name) => controlOf(name, request));
    const repairs = repairsOf(request, fault, true);
    const argument = own.find((name) => repairs.some((change) => name in change)) ?? own[0];
    const index = indexOf(rule, entry, a, argument);
    const words = repairs.map((change) => wordsOf(request, change));
    return {
      rule: rule.id,
      argument,
      index,
      found: foundOf(request, a, fault, argument, index),
      limit: `it must ${rule.must}`,
      fix: words.length ? `use ${words.join(", or ")}` : rule.fix ?? "change the tensor",
      change: repairs[0] ?? null,
      why: rule.why,
      source: sourceOf(rule, a.kind),
    };
  }

  /** A change in words: the entry that differs, or the whole value. */
  function wordsOf(request, change) {
    const [[name, value]] = Object.entries(change), old = valueOf(request, name);
    const isEntry = Array.isArray(value) && value.length === old.length;
    const index = isEntry ? value.findIndex((n, i) => n !== old[i]) : -1;
    if (index >= 0) return `${name}[${index}] = ${shown(name, value[index])}`;
    return `${name} = ${name === "address" ? shown(name, value) : python(value)}`;
  }

  // -- repairs, found by trying ------------------------------------------------------------------

  const keysOf = (request) => new Set(failuresOf(request).map(([row, entry]) => `${row} ${entry}`));

  /** Changes of one argument each that satisfy a rule: of its own argument first. */
  function repairsOf(request, { rule, row, entry }, mayChangeTensor) {
    const a = read(request), before = keysOf(request), key = `${row} ${entry}`;
    const own = [rule.on].flat().map((name) => controlOf(name, request));
    if (own.includes("dtype")) own.push("data_type"); // which carries the same bits
    const others = (rule.reads ?? [])
      .map((name) => controlOf(name, request))
      .filter((name) => !own.includes(name) && !["target", "split_inner", "ragged"].includes(name));
    const isSame = (k) => { // a rule on the same entry
      const [row2, entry2] = k.split(" ").map(Number);
      const on = [T.RULES[row2].on].flat()[0];
      return on === [rule.on].flat()[0] && Math.max(0, entry2) === Math.max(0, entry);
    };
    const heals = (after) => !after.has(key);
    const breaksNothing = (after) => heals(after) && [...after].every((k) => before.has(k));
    const settles = (after) => breaksNothing(after) && ![...after].some(isSame);
    const isAllowed = (name) => mayChangeTensor || !TENSOR.includes(name);
    for (const isEnough of [settles, breaksNothing, heals]) {
      const isAccepted = (candidate) => isEnough(keysOf(candidate));
      const found = [...own, ...(isEnough === heals ? [] : others)]
        .filter(isAllowed)
        .map((name) => changeOf(request, a, name, indexOf(rule, entry, a, name), isAccepted))
        .filter(Boolean);
      if (found.length) return found;
    }
    const isWhole = own.includes("box_sizes") && entry < 0; // and no entry alone is enough
    return [isWhole && shrunk(request)].filter(Boolean);
  }

  /** The nearest accepted value of one argument, as {name: value}; null if there is none. */
  function changeOf(request, a, name, index, isAccepted) {
    const list = LISTS[name] === undefined ? null : valueOf(request, name);
    const count = name.startsWith("pixel_box") ? a.rank - 2 : a.rank;
    if (list && list.length !== count) {
      const kept = list.slice(Math.max(0, list.length - count));
      const value = [...Array(Math.max(0, count - kept.length)).fill(LISTS[name]), ...kept];
      return isAccepted(put(request, name, value)) ? { [name]: value } : null;
    }
    const options = optionsOf(request, a, name);
    if (options) {
      const value = options.find((option) => isAccepted(put(request, name, option)));
      return value === undefined ? null : { [name]: value };
    }
    const value = valueOf(request, name), range = reachOf(a, name);
    if (!range) return null;
    const places = Array.isArray(value) ? (index === null ? [...value.keys()] : [index]) : [null];
    let best = null;
    for (const place of places) {
      const old = place === null ? value : value[place];
      const near = nearest(old, ...range, (n) => isAccepted(put(request, name, n, place)));
      if (near === null || near === old) continue;
      const cost = Math.abs(near - old) / Math.max(1, Math.abs(old));
      if (best === null || cost < best.cost) best = { cost, put: put(request, name, near, place) };
    }
    return best && { [name]: best.put[name] };
  }

  /** The members of a menu, those nearest to the current one first; null for numbers. */
  function optionsOf(request, a, name) {
    if (name === "data_type") {
      const names = a.dtype.overrides.map((t) => T.DATA_TYPES[t].name);
      return [null, ...names].filter((option) => option !== (request.data_type ?? null));
    }
    if (name === "target") return Object.keys(T.TARGETS);
    if (name === "ragged") return request.shape.map((_, dim) => dim);
    if (!T.ENUMS[name]) return null;
    const old = a[{ interleave_layout: "interleave", l2_fetch_size: "l2_promotion", oobfill: "oob_fill" }[name] ?? name];
    return [...T.ENUMS[name].keys()]
      .filter((n) => n !== old)
      .sort((x, y) => Math.abs(x - old) - Math.abs(y - old))
      .map((n) => T.ENUMS[name][n]);
  }

  /** The least and the largest number that a control takes in any request; null for no number. */
  function reachOf(a, name) {
    const { corner_end: end } = R.describeRead(a);
    if (/corner/.test(name)) return [-end, end - 1];
    return {
      box_sizes: [1, a.is_split ? K.MAX_BOX * a.span_values : K.MAX_BOX],
      elem_strides: [1, K.MAX_ELEM_STRIDE],
      channels_per_pixel: [1, K.MAX_BOX],
      pixels_per_column: [1, K.MAX_PIXELS],
      shape: [1, K.MAX_DIM],
      strides: [0, Math.floor((8 * K.STRIDE_BYTES_END - 1) / a.dtype.bits)],
      address: [0, Number.MAX_SAFE_INTEGER],
    }[name] ?? null;
  }

  /** The accepted value nearest to one: all near it are tried, then both ends by halving. */
  function nearest(value, least, most, isAccepted) {
    const start = Math.min(Math.max(value, least), most);
    for (let distance = 0; distance <= NEAR; ++distance) {
      for (const n of [start - distance, start + distance])
        if (n >= least && n <= most && isAccepted(n)) return n;
      if (start - distance < least && start + distance > most) return null;
    }
    const ends = [least, most].filter(isAccepted).map((end) => halved(end, start, isAccepted));
    ends.sort((x, y) => Math.abs(x - start) - Math.abs(y - start));
    return ends[0] ?? null;
  }

  /** The accepted value nearest to a refused one, coming from an accepted one. */
  function halved(accepted, refused, isAccepted) {
    while (Math.abs(refused - accepted) > 1) {
      const middle = Math.floor((accepted + refused) / 2);
      if (isAccepted(middle)) accepted = middle;
      else refused = middle;
    }
    return accepted;
  }

  /** The largest outer entry of the box becomes 1. */
  function shrunk(request) {
    const box = [...request.box_sizes], outer = box.slice(0, -1);
    const largest = Math.max(...outer);
    if (!(largest > 1)) return null;
    box[outer.indexOf(largest)] = 1;
    return { box_sizes: box };
  }

  /** A request with other arguments that is accepted; null if the tensor itself must change. */
  function fixedOf(request) {
    let current = request;
    for (let n = 0; n < MAX_REPAIRS; ++n) {
      const faults = faultsOf(current);
      if (!faults.length) return needed(request, current);
      const changes = faults.map((fault) => repairsOf(current, fault, false)[0]);
      const change = changes.find(Boolean);
      if (!change) return null;
      current = { ...current, ...change };
    }
    return null;
  }

  /** Take back every change without which the request is accepted too. */
  function needed(request, fixed) {
    for (const name of Object.keys(fixed)) {
      if (fixed[name] === request[name]) continue;
      const fewer = { ...fixed, [name]: request[name] };
      if (accepts(fewer)) return needed(request, fewer);
    }
    return fixed;
  }

  // -- what a control can be set to --------------------------------------------------------------

  const AROUND = 64, MAX_TAP = 31, SHORT = 32, MAX_STEP = 128;

  /** Why a request is refused first; "" where it is accepted. */
  function reasonOf(request) {
    const [fault] = faultsOf(request);
    return fault ? `${fault.rule.id}: it must ${fault.rule.must}` : "";
  }

  function legal(request, name, coords = null, im2colOffsets = null) {
    const [, field, index] = /^(\w+)(?:\[(\d+)\])?$/.exec(name);
    const place = index === undefined ? null : Number(index);
    if (field === "coords" || field === "im2col_offsets")
      return legalPlace(request, field, place, coords, im2colOffsets);
    const a = read(request), options = menuOf(a, field);
    if (options) {
      const judged = (value) => ({ value, reason: reasonOf(put(request, field, value || null)) });
      return { options: options.map(judged) };
    }
    const reason = (value) => reasonOf(put(request, field, value, place));
    const value = valueOf(request, field);
    const [least, most] = reachOf(a, field);
    return legalNumber(place === null ? value : value[place], least, most, reason);
  }

  function menuOf(a, name) {
    if (name === "data_type") return ["", ...T.ENUMS.data_type];
    if (name === "rules") return T.RULE_SETS[a.kind];
    if (name === "target") return Object.keys(T.TARGETS);
    if (name === "dtype") return Object.keys(T.DTYPES);
    return T.ENUMS[name] ?? null;
  }

  /** The legal multiples of a step, by few questions: a whole short range, or ends by halving. */
  function legalNumber(value, least, most, reason) {
    const isLegal = (n) => !reason(n);
    if (most - least < SHORT) return { least, most, step: 1, reason: "", refused: runs(least, most, 1, reason) };
    let step = 1;
    const first = value - MAX_STEP < least ? least : value - MAX_STEP;
    const near = nearestPair(isLegal, value, first, Math.min(most, value + 2 * MAX_STEP));
    if (near && near[1] - near[0] > 1 && near[0] % (near[1] - near[0]) === 0) step = near[1] - near[0];
    const low = Math.ceil(least / step) * step, high = Math.floor(most / step) * step;
    const between = step > 1 ? reason(near[0] + 1) : "";
    if ((high - low) / step <= MAX_STEP)
      return { least, most, step, reason: between, refused: runs(low, high, step, reason) };
    const start = near ? near[0] : [value, 1, 0, low, high].find((n) => n >= low && n <= high && isLegal(n));
    if (start === undefined)
      return { least, most, step: 1, reason: "", refused: [{ first: least, last: most, reason: reason(least) }] };
    const end = (limit) => isLegal(limit)
      ? limit
      : step * halved(start / step, limit / step, (n) => isLegal(n * step));
    const [from, to] = [end(low), end(high)], refused = [];
    if (from > low) refused.push({ first: low, last: from - step, reason: reason(from - step) });
    if (to < high) refused.push({ first: to + step, last: high, reason: reason(to + step) });
    return { least, most, step, reason: between, refused };
  }

  /** Two legal values that follow each other, as near to a value as there are; else null. */
  function nearestPair(isLegal, value, least, most) {
    const legalOnes = [];
    for (let n = least; n <= most && legalOnes.length < 2; ++n) if (isLegal(n)) legalOnes.push(n);
    return legalOnes.length === 2 ? legalOnes : null;
  }

  function runs(least, most, step, reason) {
    const found = [];
    for (let n = least; n <= most; n += step) {
      const why = reason(n), last = found[found.length - 1];
      if (why && last && last.last === n - step && last.reason === why) last.last = n;
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
      return { least: 0, most: Math.min(reach > 0 ? reach : 8, MAX_TAP), step: 1, reason: "", refused: [] };
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
  const NEEDED = {
    tiled: ["box_sizes"],
    im2col: ["pixel_box_lower_corner", "pixel_box_upper_corner", "channels_per_pixel", "pixels_per_column"],
    im2col_wide: ["lower_corner_width", "upper_corner_width", "channels_per_pixel", "pixels_per_column"],
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
    if (name === "swizzle" && kind === "im2col_wide") return value === "bytes128" || value === 3;
    if (name === "swizzle" && request.split_inner) return false;
    return T.ENUMS[name] !== undefined && name !== "data_type" && (value === 0 || value === T.ENUMS[name][0]);
  }

  function pythonCode(request, coords, im2colOffsets) {
    const kind = request.kind ?? "tiled";
    const optional = OPTIONAL.filter((name) => !isPlain(request, kind, name, request[name]));
    const text = (name, value) => {
      if (name === "target" && typeof value !== "string")
        return `tma.Target(${python(value.compute_capability)}, ${value.max_smem_bytes})`;
      return python(value);
    };
    const given = [...NEEDED[kind], ...optional].map((name) => `${name}=${text(name, request[name])}`);
    const call = `tm = tma.${FUNCTIONS[kind][0]}(tensor, ${given.join(", ")})`;
    if (!coords) return call;
    const taps = (im2colOffsets ?? []).some(Boolean) ? `, im2col_offsets=${python(im2colOffsets)}` : "";
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
      const corners = [["lower_corner", a.lower], ["upper_corner", a.upper]];
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
      name("swizzle", a.swizzle), name("l2_fetch_size", a.l2_promotion), name("oobfill", a.oob_fill),
    ];
    const function_ = FUNCTIONS[a.kind][1];
    lines.push("", "alignas(128) CUtensorMap map{};");
    lines.push(`CUresult result = ${function_}(`, `    ${call.join(",\n    ")});`);
    return lines.join("\n");
  }

  const planOf = (request) => G.plan(encodeArguments(request));

  return {
    // describe(request) -> the struct that the judge reads: index 0 innermost, bits and integers.
    describe: (request) => R.describeRead(read(request)),
    // check(request) -> {ok, violations: [{rule, argument, index, found, limit, fix, change, why,
    //   source}], fixed}. Violations in libcu++'s order. `index`: row-major entry of the argument,
    //   or null. `change`: {argument: value} that satisfies this rule (may change the tensor's
    //   shape, strides or address), or null. `fixed`: a whole request with other arguments (same
    //   tensor) that is accepted; the request itself where it is ok; null if there is none.
    check,
    // accepts(request) -> whether it is accepted: check without its words.
    accepts,
    // encode(request) -> Uint8Array(128) of an accepted request; null where the target has no model
    //   or the request is refused.
    encode: R.encode,
    // fields(request) -> [{name, index, label, pieces: [[bit, width], ...], value, ...}] of the 128
    //   bytes, or null as encode.
    fields: R.fieldsOf,
    // plan(request) -> {txBytes, smemBytes, smemAlignment, lines, lineShape, lineBytes,
    //   smemLineBytes, pitchBytes, tileShape, unitBytes, rank, counts, steps} of an accepted
    //   request; lines are rows of the box, pixels of a column, or interleaved units.
    plan: planOf,
    txBytes: (request) => planOf(request).txBytes, // bytes that the mbarrier counts
    smemBytes: (request) => planOf(request).smemBytes, // bytes that the tile takes, with padding
    smemAlignment: (request) => planOf(request).smemAlignment, // recommended
    // swizzle(offset, mode) -> swizzled shared address of a byte; its own inverse. mode: name/number
    swizzle: G.swizzle,
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
    // tileCoords(request, most = 4096) -> coordinates of the tiles that cover the tensor.
    tileCoords: (request, most = 4096) => G.tileCoords(encodeArguments(request), most),
    // banks(request, access, {swizzle, smemOffset = 0}) -> {degrees, worst, wavefronts, phase,
    //   phases: [[words that each thread reads], ...] (the first 16), words (of `phase`)}; access:
    //   "column", "row", or 16-byte shared addresses in phases of 8 (as ldmatrix returns).
    banks: (request, access, options = {}) => G.banks(encodeArguments(request), access, options),
    // ldmatrix(request, row, column, {num = 4, transpose = false, smemAddress = 0}) -> 32 addresses;
    //   null where the tile is no matrix or they leave it.
    ldmatrix: (request, row, column, options = {}) =>
      G.ldmatrix(encodeArguments(request), row, column, options),
    // legal(request, name, coords, im2colOffsets) of one control, every other staying as it is.
    //   Numbers, such as "box_sizes[0]", "pixels_per_column", "coords[1]", "strides[0]":
    //   {least, most, step, reason, refused: [{first, last, reason}]}: legal are the multiples of
    //   step in least..most outside the runs; `reason` is why other numbers are refused.
    //   Menus, such as "swizzle": {options: [{value, reason}]}, reason "" where accepted.
    legal,
    // code(request, coords, im2colOffsets) -> {python, cpp}; cpp is "" where refused.
    code: (request, coords = null, im2colOffsets = null) => ({
      python: pythonCode(request, coords, im2colOffsets),
      cpp: accepts(request) ? cppCode(request) : "",
    }),
  };
})();
