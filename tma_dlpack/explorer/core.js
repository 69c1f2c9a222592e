// `tmaCore` loads the C core, which is native/page.c compiled to WebAssembly. `tmaRequest` passes requests to the C
// core. The C core computes the driver's arguments, checks the rules, and encodes the map's 128 bytes. JavaScript and
// the C core exchange arrays of 64-bit integers. T.STRUCT lists the fields of the C core's result, in order.

const tmaCore = {
  /** A promise that resolves when the C core is loaded. The promise rejects if the browser does not allow
   *  WebAssembly. */
  ready: (async () => {
    const bytes = Uint8Array.from(atob(TMA_CORE), (letter) => letter.charCodeAt(0));
    const { instance } = await WebAssembly.instantiate(bytes);
    const core = instance.exports, { buffer } = core.memory, { STRUCT, RULES, K, ABI } = tmaTables;
    if (core.tables_abi() >>> 0 !== ABI) throw new Error("page.wasm was built from other tables");
    const numbers = STRUCT.reduce((all, [, count]) => all + (count || 1), 0);
    Object.assign(tmaCore, core, {
      asked: new BigInt64Array(buffer, core.asked_at(), 64),
      answered: new BigInt64Array(buffer, core.answered_at(), numbers),
      entries: new Uint8Array(buffer, core.entries_at(), RULES.length),
      map: new Uint8Array(buffer, core.map_at(), K.MAP_BYTES),
    });
  })(),
};
tmaCore.ready.catch(() => {}); // no report here, because the code that awaits the promise reports the error

const tmaRequest = (() => {
  const T = tmaTables, K = T.K, KINDS = Object.keys(T.VERBS);
  const OPTIONS = Object.entries({ ...T.OPTION_NAMES, mode: "mode" }); // [name in Python, name in the driver API]
  const product = (values) => values.reduce((a, b) => a * b, 1);
  const modulo = (n, m) => n - Math.floor(n / m) * m;
  const reversed = (values) => [...values].reverse();

  /** Return the list `name` of a request; throw an error if the value is not a list. */
  function list(request, name) {
    if (!Array.isArray(request[name]))
      throw new RangeError(`${name} is ${request[name]}; it must be a list of integers`);
    return request[name];
  }

  /** Return the number of an enum's member. `value` is the member's name or number. */
  function member(name, value) {
    const members = T.ENUMS[name];
    const number = typeof value === "number" ? value : members.indexOf(value);
    if (members[number] === undefined)
      throw new RangeError(`${name} is ${value}; it must be one of ${members.join(", ")}`);
    return number;
  }

  /** Return a target with its capabilities. `target` is a name such as "sm_90" or "sm_90a", or an object with the
   *  compute capability. */
  function targetOf(target = "sm_90") {
    const known = typeof target === "string" ? T.TARGETS[target.replace(/[af]$/, "")] : target;
    if (!known)
      throw new RangeError(`target is ${target}; it must be one of ${Object.keys(T.TARGETS)}`);
    const [major, minor] = known.compute_capability, bits = tmaCore.capabilities(major, minor);
    const has = T.CAPABILITIES.map((name, bit) => [name, (bits >> bit) & 1]);
    return { name: `sm_${major}${minor}`, ...known, ...Object.fromEntries(has) };
  }

  /** Return the row of DTYPES for the tensor's dtype. If the request has no dtype, use the usual dtype of its
   *  data_type. */
  function dtypeOf(request, asked) {
    const name = request.dtype ?? T.DATA_TYPES[asked]?.dtype;
    const dtype = T.DTYPES[String(name).replace(/^.*\./, "")];
    if (!dtype)
      throw new RangeError(`dtype is ${name}; it must be one of ${Object.keys(T.DTYPES)}`);
    return dtype;
  }

  function rowMajorStrides(shape) {
    const strides = [];
    let span = 1;
    for (const extent of reversed(shape)) {
      strides.unshift(span);
      span *= Math.max(Number(extent), 1);
    }
    return strides;
  }

  /** Return the smallest number of elements of `bits` bits whose size is a multiple of `bytes` bytes. */
  function elementsOf(bytes, bits) {
    const divisor = (a, b) => (b ? divisor(b, a % b) : a);
    return (bytes * 8) / divisor(bytes * 8, bits);
  }

  /** Return the lower and the upper corner of the pixel box, in this order. Both are row-major, and empty for tiled
   *  maps. */
  function cornersOf(request, kind) {
    if (kind === "tiled") return [[], []];
    if (kind === "im2col_wide")
      return [[request.lower_corner_width], [request.upper_corner_width]];
    return [list(request, "pixel_box_lower_corner"), list(request, "pixel_box_upper_corner")];
  }

  /** Clamp a number to the range of signed 64-bit integers. The rules refuse a size of this magnitude anyway, so its
   *  exact value does not matter. */
  function saturated(n) {
    if (!Number.isInteger(n) || Math.abs(n) < 2 ** 63) return n;
    return n < 0 ? -(1n << 63n) : (1n << 63n) - 1n;
  }

  /** Convert a request to the numbers that native/page.c reads, in the order in which it reads them. Also return the
   *  kind of map, the name of the rule set, and the table rows of the target and the dtype. */
  function asNumbers(request) {
    const kind = request.kind ?? "tiled", isTiled = kind === "tiled", { defaults } = T.VERBS[kind];
    const target = targetOf(request.target ?? undefined);
    const asked = request.data_type == null ? -1 : member("data_type", request.data_type);
    const options = OPTIONS.map(([ours]) => [ours, member(ours, request[ours] ?? defaults[ours] ?? 0)]);
    const { interleave_layout, swizzle, l2_fetch_size, oobfill, mode } = Object.fromEntries(options);
    const allowed = (request.allow ?? []).map((id) => 1n << BigInt(T.RULES.findIndex((r) => r.id === id)));
    const dtype = dtypeOf(request, asked), rules = request.rules ?? defaults.rules;
    const counted = (values) => [values.length, ...values];
    const sized = (values) => counted(values.map(saturated));
    const [lower, upper] = cornersOf(request, kind), steps = request.elem_strides;
    const numbers = [
      KINDS.indexOf(kind), Number(rules === "driver"), asked,
      interleave_layout, swizzle, l2_fetch_size, oobfill, mode, Number(request.swizzle != null),
      allowed.reduce((a, b) => a | b, 0n),
      ...[request.channels_per_pixel, request.pixels_per_column].map((n) => (isTiled ? 0 : saturated(n))),
      Number(Boolean(request.split_inner)), Number(request.ragged != null), request.ragged ?? 0,
      ...target.compute_capability, target.max_smem_bytes,
      request.address ?? 0, ...dtype.dlpack,
      ...counted(list(request, "shape")), ...counted(request.strides ?? []),
      ...sized(isTiled ? list(request, "box_sizes") : []),
      Number(Boolean(steps)), ...sized(steps ?? []), ...sized(lower), ...sized(upper),
    ];
    return { numbers, kind, rules, target, dtype };
  }

  /** Throw a RangeError with the reason why the core cannot read a request. */
  function refuse(request) {
    const isInteger = (n) => typeof n === "bigint" || Number.isInteger(n);
    for (const [name, value] of Object.entries(request)) {
      const isNumber = typeof value === "number" || typeof value === "bigint";
      const numbers = Array.isArray(value) && name !== "allow" ? value : isNumber ? [value] : [];
      const why = (n) => !isInteger(n) ? "be an integer"
        : BigInt(n) >= 1n << 63n || BigInt(n) < -(1n << 63n) ? "be below 2^63"
        : ["shape", "strides"].includes(name) && n < 0 ? "not be negative" : "";
      const index = numbers.findIndex(why);
      if (index >= 0) {
        const entry = Array.isArray(value) ? `${name}[${index}]` : name;
        throw new RangeError(`${entry} is ${numbers[index]}; it must ${why(numbers[index])}`);
      }
    }
    const missing = T.VERBS[request.kind ?? "tiled"].needs.find((name) => request[name] === undefined);
    if (missing) throw new RangeError(`${missing} is missing; it must be given`);
    throw new RangeError(`address is ${request.address}; it must be 0 or more, and below 2^62`);
  }

  /** Call the C core's function `describe` for a request. Return the kind, rules, target and dtype, which are not in
   *  the result of the C core. */
  function described(request) {
    const found = asNumbers(request), isInInt64 = (n) => BigInt.asIntN(64, n) === n;
    let numbers = null;
    try {
      numbers = found.numbers.map(BigInt);
    } catch (error) {
      refuse(request);
    }
    if (!numbers.every(isInInt64)) refuse(request);
    tmaCore.asked.set(numbers);
    if (!tmaCore.describe()) refuse(request);
    return found;
  }

  /** Return the C core's result as an object, with the table rows of the types and the target. In the lists, index 0 is
   *  the innermost dimension. Numbers above 2^53 are rounded in the object. The C core itself checks and encodes the
   *  exact numbers. */
  function answer(request, { kind, rules, target, dtype }) {
    const a = {};
    let at = 0;
    for (const [name, count] of T.STRUCT) {
      const values = Array.from(tmaCore.answered.subarray(at, at + (count || 1)), Number);
      a[name] = count ? values : values[0];
      at += count || 1;
    }
    const rank = Math.min(a.rank, K.MAX_RANK), isTiled = kind === "tiled";
    for (const name of ["global_dim", "inside_bits", "element_strides"]) a[name].length = rank;
    a.stride_bits.length = Math.max(0, rank - 1);
    a.box_dim.length = isTiled ? rank : 0;
    for (const name of ["lower", "upper"]) a[name].length = isTiled ? 0 : Math.max(a.corners, a[`${name}_count`]);
    const row = T.DATA_TYPES[Math.max(0, a.data_type)];
    const isMeasured = !isTiled && rules === "driver";
    return Object.assign(a, row, {
      kind, target, dtype, row, data_type: a.data_type, allow: request.allow ?? [],
      address: request.address ?? 0,
      rules: isMeasured ? (target.has_model ? "measured" : "documented") : rules,
      global_strides: a.stride_bits.map((bits) => bits / 8),
    });
  }

  /** Return the C core's result for a request. The rules read the fields of this result. `read` checks no rule, so a
   *  number in the result may be out of range. */
  const read = (request) => answer(request, described(request));

  /** Return the broken rules as a list of [row, entry]. `row` is the index of the rule in T.RULES. If the rule checks
   *  the entries of a list, each entry that breaks the rule has its own pair, and `entry` is the index of this entry.
   *  Otherwise `entry` is -1. A rule is listed even if its prerequisite is broken too. The fields in `other` replace
   *  fields of the C core's result. */
  function failuresOf(request, other = {}) {
    described(request);
    let at = 0;
    for (const [name, count] of T.STRUCT) {
      if (name in other) tmaCore.answered[at] = BigInt(other[name]);
      at += count || 1;
    }
    const mask = BigInt.asUintN(64, tmaCore.judge()), failed = [];
    for (let row = 0; mask >> BigInt(row); ++row) {
      if (!((mask >> BigInt(row)) & 1n)) continue;
      if (!tmaCore.entries[row]) failed.push([row, -1]);
      for (let entry = 0; tmaCore.entries[row] >> entry; ++entry)
        if ((tmaCore.entries[row] >> entry) & 1) failed.push([row, entry]);
    }
    return failed;
  }

  // -- the driver's arguments, and their bytes ---------------------------------------------------

  /** Return the arguments for the driver. If the hardware ignores an element stride, its value in the result is 1.
   *  The options `split_inner` and `ragged` add dimensions. */
  function encodeArguments(request) {
    const found = described(request);
    tmaCore.extend();
    return answer(request, found);
  }

  /** Return the 128 bytes of a map; null if the request is refused, or if the layout is not known for the target. */
  function encode(request) {
    if (failuresOf(request).length || !targetOf(request.target ?? undefined).has_model) return null;
    described(request);
    tmaCore.extend();
    tmaCore.encode();
    return tmaCore.map.slice();
  }

  /** Return whether a map of this kind and rank has a field. */
  function exists(field, kind, rank) {
    if (field.kind && (field.kind === "tiled") !== (kind === "tiled")) return false;
    if (field.rank && field.rank !== rank) return false;
    if (field.index === undefined) return true;
    const isCorner = field.name.startsWith("pixel_box");
    const corners = kind === "im2col_wide" ? 1 : rank - 2;
    return field.index < (isCorner ? corners : field.name === "global_strides" ? rank - 1 : rank);
  }

  /** Return the value of a field as a number. `word` is the map's 128 bytes as one integer. */
  function valueIn(word, { pieces, bias, unit, signed }) {
    let raw = 0n, shift = 0n;
    for (const [bit, width] of pieces) {
      raw |= BigInt.asUintN(width, word >> BigInt(bit)) << shift;
      shift += BigInt(width);
    }
    if (signed) raw = BigInt.asIntN(Number(shift), raw);
    return Number((raw + BigInt(bias)) * BigInt(unit));
  }

  /** Return the fields of the map that an accepted request describes, with their values. Return null if the layout of
   *  the map is not known for the target. */
  function fieldsOf(request) {
    const bytes = encode(request);
    if (bytes === null) return null;
    const { kind, rank } = encodeArguments(request);
    const word = BigInt(`0x${reversed(bytes).map((n) => n.toString(16).padStart(2, "0")).join("")}`);
    return T.FIELDS.filter((field) => exists(field, kind, rank)).map((field) => {
      const label = field.index === undefined ? field.name : `${field.name}[${field.index}]`;
      return { ...field, label, value: valueIn(word, field) };
    });
  }

  return {
    member, read, targetOf, rowMajorStrides, failuresOf, encodeArguments, fieldsOf,
    elementsOf, encode, reversed, product, modulo,
  };
})();
