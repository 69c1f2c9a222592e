// The judge with words: what a request breaks, and what to change, found by trying values of the
// arguments that the rule's row names, as checks/repairs.py tries the row's ways.

const tmaCheck = (() => {
  const T = tmaTables, K = T.K, R = tmaRequest;
  const { read, failuresOf } = R;
  const MAX_REPAIRS = 40, NEAR = 16; // steps tried around the current value before halving
  const TENSOR = ["shape", "strides", "address", "dtype"]; // not arguments: another tensor
  const PER_DIMENSION = ["box_sizes", "elem_strides"];
  const LISTS = [...PER_DIMENSION, "pixel_box_lower_corner", "pixel_box_upper_corner"];

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
    if (name === "data_type") return read(request).row.name;
    const { defaults } = T.VERBS[request.kind ?? "tiled"];
    return { ...defaults, address: 0, target: "sm_90" }[name] ?? null;
  }

  /** The same request with another value, or another entry of a list. */
  function put(request, name, value, index = null) {
    if (index === null) return { ...request, [name]: value };
    const values = [...valueOf(request, name)];
    values[index] = value;
    return { ...request, [name]: values };
  }

  const python = (value) => {
    if (Array.isArray(value))
      return `(${value.map(python).join(", ")}${value.length === 1 ? "," : ""})`;
    if (typeof value === "boolean") return value ? "True" : "False";
    return value === null ? "None" : typeof value === "string" ? `'${value}'` : `${value}`;
  };

  const shown = (name, value) => {
    if (name === "address") return `0x${value.toString(16)}`;
    if (name === "target") return R.targetOf(value).name;
    return typeof value === "string" ? value : python(value);
  };

  //: Fields of the struct that are about the innermost dimension.
  const INNER = ["inner_box", "inner_box_bits", "inner_stride", "row_bits"];

  /** The row-major index of the entry that a rule is about; null for the whole argument. */
  function indexOf(rule, entry, a, name) {
    if (![...LISTS, "shape", "strides"].includes(name)) return null;
    if (entry < 0) return rule.fields.some((f) => INNER.includes(f)) ? a.rank - 1 : null;
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

  /** {ok, violations: [{rule, argument, index, found, limit, fix, change, why, source}], fixed}, in
   *  libcu++'s order. `index`: row-major entry of the argument, or null. `change`: {argument: value}
   *  that satisfies this rule, of the tensor too, or null. `fixed`: a request on the same tensor
   *  that is accepted, or null. */
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
    box_bits: (c) => `the ${c.kind === "tiled" ? "box" : "column"} is ${c.box_bits / 8} bytes`,
    floor_box_bits: (c) => `the driver counts ${c.floor_box_bits / 8} bytes`,
    span_values: (c) => `a span is ${c.span_values} elements`,
    stride_bits: (c, d) => `${c.stride_bits[d - 1] / 8} bytes`,
    inside_bits: (c, d) => `the dimensions inside span ${c.inside_bits[d] / 8} bytes`,
    max_smem_bytes: (c) => `a block has ${c.max_smem_bytes} bytes`,
    corner_end: (c) => `entries are -${c.corner_end}..${c.corner_end - 1} at rank ${c.rank}`,
  };

  /** The values that a rule read: its argument, what follows from it, then the others given. */
  function foundOf(request, a, { rule, entry }, argument, index) {
    const value = valueOf(request, argument);
    const one = index !== null && Array.isArray(value);
    const parts = [one
      ? `${argument}[${index}] is ${shown(argument, value[index])}`
      : `${argument} is ${shown(argument, value)}`];
    if (rule.on === "tensor.rank") parts[0] = `the tensor has ${a.rank} dimensions`;
    for (const field of rule.fields)
      if (MEASURES[field] && !(field === "span_values" && !a.is_split))
        parts.push(MEASURES[field](a, entry));
    const readsType = rule.fields.some((field) => /^(is_|type_|data_)/.test(field));
    for (const read of rule.reads ?? []) {
      const name = controlOf(read, request), other = valueOf(request, name);
      const isDefault = ["none", "null", "false"].includes(String(other));
      if (name !== argument && (name === "data_type" ? readsType : !isDefault))
        parts.push(`${name} is ${shown(name, other)}`);
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
      fix: words.length ? `use ${words.join(", or ")}` : rule.fix ?? withoutRepair(argument),
      change: repairs[0] ?? null,
      why: rule.why,
      source: sourceOf(rule, a.kind),
    };
  }

  const withoutRepair = (argument) => TENSOR.includes(argument)
    ? `change the tensor's ${argument}`
    : `no other ${argument} is accepted while the rest is as it is`;

  /** A change in words: the entry that differs, or the whole value. */
  function wordsOf(request, change) {
    const [[name, value]] = Object.entries(change), old = valueOf(request, name);
    const isEntry = Array.isArray(value) && value.length === old.length;
    const index = isEntry ? value.findIndex((n, i) => n !== old[i]) : -1;
    if (index >= 0) return `${name}[${index}] = ${shown(name, value[index])}`;
    return `${name} = ${name === "address" ? shown(name, value) : python(value)}`;
  }

  // -- repairs, found by trying ------------------------------------------------------------------

  const keysOf = (request, other = {}) =>
    new Set(failuresOf(request, other).map(([row, entry]) => `${row} ${entry}`));

  /** Changes of one argument each that satisfy a rule, in the order of its row; those of the tensor
   *  come last. */
  function repairsOf(request, { rule, row, entry }, mayChangeTensor) {
    const a = read(request), before = keysOf(request), key = `${row} ${entry}`;
    if (rule.wraps && !keysOf(request, { has_model: 0 }).has(key)) return []; // only of the driver
    const on = [rule.on].flat(), own = on.map((name) => controlOf(name, request));
    const names = (rule.mends ?? []).map((name) => controlOf(name, request));
    if (mayChangeTensor) names.push(...own.filter((name) => TENSOR.includes(name)));
    const isSame = (k) => { // a rule on the same entry
      const [row2, entry2] = k.split(" ").map(Number);
      return [T.RULES[row2].on].flat()[0] === on[0] && Math.max(0, entry2) === Math.max(0, entry);
    };
    const heals = (after) => !after.has(key);
    const breaksNothing = (after) => heals(after) && [...after].every((k) => before.has(k));
    const settles = (after) => breaksNothing(after) && ![...after].some(isSame);
    for (const isEnough of [settles, breaksNothing, heals]) {
      const isAccepted = (candidate) => isEnough(keysOf(candidate));
      const found = names
        .map((name) => changeOf(request, a, rule, name, indexOf(rule, entry, a, name), isAccepted))
        .filter(Boolean);
      if (found.length) return found;
    }
    const isWhole = own.includes("box_sizes") && entry < 0; // and no entry alone is enough
    return [isWhole && shrunk(request)].filter(Boolean);
  }

  /** The nearest accepted value of one argument, as {name: value}; null if there is none. */
  function changeOf(request, a, rule, name, index, isAccepted) {
    const list = PER_DIMENSION.includes(name) ? valueOf(request, name) : null;
    if (list && list.length !== a.rank) {
      const kept = list.slice(Math.max(0, list.length - a.rank));
      const value = [...Array(Math.max(0, a.rank - kept.length)).fill(1), ...kept];
      return isAccepted(put(request, name, value)) ? { [name]: value } : null;
    }
    const options = optionsOf(request, a, rule, name);
    if (options) {
      const value = options.find((option) => isAccepted(put(request, name, option)));
      return value === undefined ? null : { [name]: value };
    }
    const value = valueOf(request, name);
    if (!reachOf(a, name, 0)) return null;
    const places = Array.isArray(value) ? (index === null ? [...value.keys()] : [index]) : [null];
    let best = null;
    for (const place of places) {
      const old = Number(place === null ? value : value[place]);
      const range = reachOf(a, name, place);
      const near = nearest(old, range, (n) => isAccepted(put(request, name, n, place)));
      if (near === null || near === old) continue;
      const cost = Math.abs(near - old) / Math.max(1, Math.abs(old));
      if (best === null || cost < best.cost) best = { cost, put: put(request, name, near, place) };
    }
    return best && { [name]: best.put[name] };
  }

  /** The values of an option, the best first; null for numbers. */
  function optionsOf(request, a, rule, name) {
    if (name === "allow") return [[...valueOf(request, "allow"), rule.id].sort()];
    if (name === "split_inner") return a.kind === "tiled" && a.swizzle && !a.is_split ? [true] : [];
    if (name === "ragged") return [0];
    if (name === "target") return Object.keys(T.TARGETS);
    if (name === "data_type") {
      const names = a.dtype.overrides.map((t) => T.DATA_TYPES[t].name);
      return [null, ...names].filter((option) => option !== (request.data_type ?? null));
    }
    if (!T.ENUMS[name]) return null;
    const old = R.member(name, valueOf(request, name));
    const isSpan = (n) => K.SWIZZLE_32B <= n && n <= K.SWIZZLE_128B; // where one is asked for
    const asksSpan = name === "swizzle" && rule.fields.some((field) => field.startsWith("span_"));
    return [...T.ENUMS[name].keys()]
      .filter((n) => n !== old && (isSpan(n) || !asksSpan))
      .sort((x, y) => Math.abs(x - old) - Math.abs(y - old))
      .map((n) => T.ENUMS[name][n]);
  }

  /** The numbers that a control takes in some request, as {least, most, step}; null for none.
   *  Units of 16 bytes, spans and packed groups are steps, and alignment. */
  function reachOf(a, name, place) {
    const inRange = (least, most, step = 1) => ({ least, most, step });
    if (name.includes("corner")) return inRange(-a.corner_end, a.corner_end - 1);
    const isInner = place === null || place === a.rank - 1, bits = a.row.element_bits;
    const unit = a.is_split ? a.span_values : R.elementsOf(K.INNER_BYTES, bits);
    const group = (a.row.packed_unit * bits) / a.dtype.bits;
    return {
      box_sizes: inRange(1, K.MAX_BOX * (isInner && a.is_split ? unit : 1), isInner ? unit : 1),
      elem_strides: inRange(1, K.MAX_ELEM_STRIDE),
      channels_per_pixel: inRange(1, K.MAX_BOX, a.has_model ? unit : 1),
      pixels_per_column: inRange(1, K.MAX_PIXELS),
      shape: inRange(1, K.MAX_DIM, isInner && group > 1 ? group : 1),
      strides: inRange(
        1, // 0 is legal too, and another tensor: one whose elements repeat
        Math.floor((8 * K.STRIDE_BYTES_END - 1) / a.dtype.bits),
        isInner ? 1 : R.elementsOf(a.alignment_bytes, a.dtype.bits),
      ),
      address: inRange(0, Number.MAX_SAFE_INTEGER, a.alignment_bytes),
    }[name] ?? null;
  }

  /** The accepted multiple of the step nearest to a value: those near it are tried, then both
   *  ends by halving. */
  function nearest(value, { least, most, step }, accepts) {
    const low = Math.ceil(least / step), high = Math.floor(most / step);
    const start = Math.min(Math.max(Math.round(value / step), low), high);
    const isAccepted = (n) => accepts(n * step);
    for (let distance = 0; distance <= NEAR; ++distance)
      for (const n of [start - distance, start + distance])
        if (n >= low && n <= high && isAccepted(n)) return n * step;
    const ends = [low, high].filter(isAccepted).map((end) => halved(end, start, isAccepted));
    ends.sort((x, y) => Math.abs(x - start) - Math.abs(y - start));
    return ends.length ? ends[0] * step : null;
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

  /** A request with other arguments that is accepted; null if the tensor itself must change.
   *  Where no arguments satisfy libcu++'s rules, or the documentation's, the driver's are tried. */
  function fixedOf(request) {
    const isLifted = ({ rule: { unsupported, sets } }, by) => !unsupported || sets.includes(by);
    const found = searched(request);
    if (found) return needed(request, found);
    const byDriver = { ...request, rules: "driver" }, { rules } = read(byDriver);
    const isUsable = faultsOf(request).every((fault) => isLifted(fault, rules));
    const lifted = isUsable ? searched(byDriver) : null;
    return lifted && needed(request, lifted);
  }

  function searched(request) {
    for (let n = 0; n < MAX_REPAIRS; ++n) {
      const faults = faultsOf(request);
      if (!faults.length) return request;
      let change;
      for (const fault of faults) if ((change = repairsOf(request, fault, false)[0])) break;
      if (!change) return null;
      request = { ...request, ...change };
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

  /** Why a request is refused first; "" where it is accepted. */
  function reasonOf(request) {
    const [fault] = faultsOf(request);
    return fault ? `${fault.rule.id}: it must ${fault.rule.must}` : "";
  }

  return { check, accepts, reasonOf, put, valueOf, reachOf, nearest, halved, python };
})();
