// `tmaCheck` returns a report of the rules that a request breaks, with texts and fixes. model.js describes a request.
// fixes.js finds the fixes. It tests each candidate fix of a broken rule, as checks/fixes.py does.

const tmaCheck = (() => {
  const T = tmaTables, K = T.K, R = tmaRequest;
  const { read, failuresOf } = R, { faultsOf } = tmaFixes;
  const NEAR = 16; // number of steps on each side of a value that nearest() tries before it bisects
  const TENSOR = ["shape", "strides", "address", "dtype"]; // properties of the tensor, not arguments
  const PER_DIMENSION = ["box_sizes", "elem_strides"];
  const LISTS = [...PER_DIMENSION, "pixel_box_lower_corner", "pixel_box_upper_corner"];

  // -- names and values of arguments -------------------------------------------------------------

  /** Return the name that a value has in a request, such as "shape". `name` is the name that the value has in the
   *  rules, such as "tensor.shape". */
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

  /** Return the value that a request has for an argument or a tensor property. If the request has no value, return the
   *  default. */
  function valueOf(request, name) {
    if (request[name] != null) return request[name];
    if (name === "strides") return R.rowMajorStrides(request.shape);
    if (name === "elem_strides") return request.shape.map(() => 1);
    if (name === "data_type") return read(request).row.name;
    const { defaults } = T.VERBS[request.kind ?? "tiled"];
    return { ...defaults, address: 0, target: "sm_90" }[name] ?? null;
  }

  /** Return a copy of a request with `value` for `name`. If `index` is not null, only entry `index` of the list `name`
   *  is replaced by `value`. */
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

  //: Fields of the C core's result that belong to the innermost dimension.
  const INNER = ["inner_box", "inner_box_bits", "inner_stride", "row_bits"];

  /** Return the row-major index of the argument's entry that breaks a rule; null if the rule is about the whole
   *  argument. */
  function indexOf(rule, entry, a, name) {
    if (![...LISTS, "shape", "strides"].includes(name)) return null;
    if (entry < 0) return rule.fields.some((f) => INNER.includes(f)) ? a.rank - 1 : null;
    if (name.startsWith("pixel_box")) return a.rank - 3 - entry;
    const first = rule.each.startsWith("s") ? (a.interleave ? 0 : 1) : 0;
    return a.rank - 1 - first - entry;
  }

  // -- judging -----------------------------------------------------------------------------------

  /** Return {ok, violations: [{rule, argument, index, found, limit, fix, change, why, source}], fixed}. The violations
   *  are in the order in which libcu++ checks the rules. If one entry of the argument breaks the rule, `index` is the
   *  row-major index of this entry. Otherwise `index` is null. `change` is {name: value}, the arguments and tensor
   *  properties that a fix of the rule changes; null if there is no fix. `fixed` is an accepted request for the same
   *  tensor; null if none is found. */
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
    const found = tmaFixes.violationsOf(request);
    const violations = found.map((one) => violationOf(request, one)), change = tmaFixes.changesOf(request);
    return { ok: false, violations, fixed: change && { ...request, ...change } };
  }

  /** Return whether a request breaks no rule. The result is false if the C core cannot read the request. */
  function accepts(request) {
    try {
      return failuresOf(request).length === 0;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      return false;
    }
  }

  /** Field of the C core's result -> function that describes the field in words. The core computes these fields, so the
   *  arguments do not show their values. */
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

  /** Describe the values that a rule reads. The argument is first. Then come the fields in `MEASURES`, and then other
   *  arguments. */
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

  function violationOf(request, { fault, answers, breaks = [] }) {
    const a = read(request), { rule, entry } = fault;
    const argument = controlOf(tmaFixes.argumentOf(fault, a), request);
    const index = indexOf(rule, entry, a, argument);
    const changes = answers.map(({ candidate, request: after }) => differences(request, a, candidate, after));
    const words = answers.map((answer, n) => wordsOf(request, changes[n], answer)).filter(Boolean);
    const [first = rule.fix ?? withoutFix(argument), ...others] = words;
    const broken = breaks.length ? `, which then breaks ${breaks.join(" and ")}` : "";
    return {
      rule: rule.id,
      argument,
      index,
      found: foundOf(request, a, fault, argument, index),
      limit: `it must ${rule.must}`,
      fix: [first + broken, ...others].join("; or "),
      change: changes[0] ?? null,
      why: rule.why,
      source: sourceOf(rule, a.kind),
    };
  }

  const withoutFix = (argument) => TENSOR.includes(argument)
    ? `change the tensor's ${argument}`
    : `no other ${argument} is accepted while the rest is as it is`;

  /** Return {name: new value} of the arguments and the tensor properties that a candidate fix changes. A new address is
   *  included only if the old address is not aligned. */
  function differences(request, a, candidate, after) {
    const isOther = (name, old) => python(after[name] ?? null) !== python(old ?? null);
    const isMoved = Number(valueOf(request, "address")) % a.alignment_bytes !== 0;
    const ofTensor = candidate.view ? TENSOR.filter((name) => name !== "address" || isMoved) : [];
    const names = [
      ...ofTensor.filter((name) => isOther(name, valueOf(request, name))),
      ...Object.keys(candidate.change).filter((name) => isOther(name, request[name])),
    ];
    return Object.fromEntries(names.map((name) => [name, after[name]]));
  }

  /** Describe a change in words. If only one entry of a list differs, describe only this entry. */
  function wordsOf(request, change, { candidate, isEnough, breaks = [] }) {
    const parts = Object.entries(change).map(([name, value]) => {
      const old = valueOf(request, name), isList = Array.isArray(value) && Array.isArray(old);
      const others = isList && value.length === old.length ? [...value.keys()].filter((i) => value[i] !== old[i]) : [];
      if (others.length === 1) return `${name}[${others[0]}] = ${shown(name, value[others[0]])}`;
      return `${name} = ${name === "address" ? shown(name, value) : python(value)}`;
    });
    if (!parts.length) return "";
    const isCopy = candidate.view && candidate.view.address !== (request.address ?? 0);
    const use = `${isCopy ? "copy the tensor, with" : "use"} ${parts.join(" and ")}`;
    if (!candidate.isGuess) return use;
    return isEnough ? `${use}, if that is what was meant` : `${use}, which then breaks ${breaks.join(" and ")}`;
  }

  /** Return the range {least, most, step} for the slider of argument `name`; null if the argument has no range. `place`
   *  is the index of the slider's entry if the argument is a list. `step` is, for example, the number of elements in 16
   *  bytes, in a span of the swizzle, or in a group of a packed type. */
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
        1, // a stride of 0 is also legal, but then all elements along the dimension have the same address
        Math.floor((8 * K.STRIDE_BYTES_END - 1) / a.dtype.bits),
        isInner ? 1 : R.elementsOf(a.alignment_bytes, a.dtype.bits),
      ),
      address: inRange(0, Number.MAX_SAFE_INTEGER, a.alignment_bytes),
    }[name] ?? null;
  }

  /** Return an accepted multiple of the step near a value; null if none is found. First the multiples within NEAR steps
   *  of the value are tried. Then bisection searches between the value and each end of the range. */
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

  /** Bisect between an accepted and a refused value. Return an accepted value that has a refused value as its
   *  neighbour. */
  function halved(accepted, refused, isAccepted) {
    while (Math.abs(refused - accepted) > 1) {
      const middle = Math.floor((accepted + refused) / 2);
      if (isAccepted(middle)) accepted = middle;
      else refused = middle;
    }
    return accepted;
  }

  /** Return the first reason why a request is refused; "" if it is accepted. */
  function reasonOf(request) {
    const [fault] = faultsOf(request);
    return fault ? `${fault.rule.id}: it must ${fault.rule.must}` : "";
  }

  return { check, accepts, reasonOf, put, valueOf, reachOf, nearest, halved, python };
})();
