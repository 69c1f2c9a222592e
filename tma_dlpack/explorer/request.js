// A request in the user's words: read, described for the judge, and encoded as 128 bytes.
// As checks/parse.py, checks/request.py and tables/bits.py do in Python.

const tmaRequest = (() => {
  const T = tmaTables, K = T.K;
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const product = (values) => values.reduce((a, b) => a * b, 1);
  const modulo = (n, m) => n - Math.floor(n / m) * m;
  const reversed = (values) => [...values].reverse();

  /** A list of numbers of a request. */
  function list(request, name) {
    if (!Array.isArray(request[name]))
      throw new RangeError(`${name} is ${request[name]}; it must be a list of integers`);
    return request[name];
  }

  /** The number of an enum's member, by its name or number. */
  function member(name, value) {
    const members = T.ENUMS[name];
    const number = typeof value === "number" ? value : members.indexOf(value);
    if (members[number] === undefined)
      throw new RangeError(`${name} is ${value}; it must be one of ${members.join(", ")}`);
    return number;
  }

  const targets = new Map();

  /** A target's columns, by its name such as "sm_90" or "sm_90a", or its compute capability. */
  function targetOf(target = "sm_90") {
    const known = typeof target === "string" ? T.TARGETS[target.replace(/[af]$/, "")] : target;
    if (!known)
      throw new RangeError(`target is ${target}; it must be one of ${Object.keys(T.TARGETS)}`);
    const [major, minor] = known.compute_capability, name = `sm_${major}${minor}`;
    if (!targets.has(name)) {
      const columns = Object.entries(T.COLUMNS);
      targets.set(name, Object.fromEntries(columns.map(([of, f]) => [of, f(major, minor)])));
    }
    return { name, ...known, ...targets.get(name) };
  }

  /** The tensor's dtype: its row of DTYPES; without a dtype, one that data_type is made of. */
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
      span *= Math.max(extent, 1);
    }
    return strides;
  }

  /** The fewest elements that take a multiple of some bytes. */
  function elementsOf(bytes, bits) {
    const divisor = (a, b) => (b ? divisor(b, a % b) : a);
    return (bytes * 8) / divisor(bytes * 8, bits);
  }

  /** Strides with those of extents of 1, which mean nothing, as a row-major tensor has them. */
  function canonicalStrides(shape, strides, bits, alignBytes) {
    const unit = elementsOf(alignBytes, bits);
    const result = [...strides];
    let span = 1;
    for (let i = shape.length - 1; i >= 0; --i) {
      if (shape[i] === 1) {
        const stride = i === shape.length - 1 ? span : Math.ceil(span / unit) * unit;
        result[i] = stride * bits < 8 * K.STRIDE_BYTES_END ? stride : 0;
      }
      span = shape[i] * result[i];
    }
    return result;
  }

  function setOfRules(kind, rules, target) {
    if (kind === "tiled" || rules !== "driver") return rules;
    return target.has_model ? "measured" : "documented";
  }

  /** The corners, W first. */
  function cornersOf(request, kind) {
    if (kind === "tiled") return [[], []];
    if (kind === "im2col_wide")
      return [[request.lower_corner_width], [request.upper_corner_width]];
    const names = ["pixel_box_lower_corner", "pixel_box_upper_corner"];
    return names.map((name) => reversed(list(request, name)));
  }

  /** The options that have names, by the driver's names. */
  function optionsOf(request, kind) {
    const names = Object.entries({ ...T.OPTION_NAMES, mode: "mode" }), { defaults } = T.VERBS[kind];
    return Object.fromEntries(names.map(([ours, drivers]) =>
      [drivers, member(ours, request[ours] ?? defaults[ours] ?? 0)]));
  }

  /** The tensor's dtype, and the row of the map's type; data_type is -1 where maps have none. */
  function typesOf(request) {
    const asked = request.data_type == null ? -1 : member("data_type", request.data_type);
    const dtype = dtypeOf(request, asked);
    const data_type = asked < 0 ? dtype.data_type : dtype.overrides.includes(asked) ? asked : -1;
    return { dtype, data_type, asked_type: asked, row: T.DATA_TYPES[Math.max(0, data_type)] };
  }

  /** A list with a 0 for each entry that is missing. */
  const filled = (values, count) =>
    values.length < count ? [...values, ...Array(count - values.length).fill(0)] : values;

  /** The bits that the dimensions inside each one span; those of extent 1 do not count. */
  function insideBits(dims, extents, strideBits, rowBits) {
    const inside = [0];
    for (let d = 1, span = rowBits; d < dims; ++d) {
      inside.push(span);
      if (extents[d] !== 1) span = extents[d] * strideBits[d - 1];
    }
    return inside;
  }

  /** A request as the struct that the judge reads, innermost first, with the rows of its types and
   *  of its target; any number may be out of range. */
  function read(request) {
    const kind = request.kind ?? "tiled", isTiled = kind === "tiled", isWide = kind === "im2col_wide";
    const target = targetOf(request.target ?? undefined), options = optionsOf(request, kind);
    const rules = setOfRules(kind, request.rules ?? T.VERBS[kind].defaults.rules, target);
    const types = typesOf(request), { row, dtype, data_type, asked_type } = types;
    const { interleave } = options, bits = row.element_bits, address = request.address ?? 0;
    const shape = list(request, "shape"), rank = shape.length;
    const dims = rank >= 1 && rank <= K.MAX_RANK ? rank : 0;
    const isPadded = data_type >= 0 && row.is_padded;
    const alignment = interleave === K.INTERLEAVE_32B || isPadded ? 32 : 16;
    const given = request.strides ?? rowMajorStrides(shape);
    const strides = canonicalStrides(shape, given, dtype.bits, alignment);
    const strideBits = reversed(strides.slice(0, -1)).map((stride) => stride * dtype.bits);
    const rowBits = rank ? shape[rank - 1] * dtype.bits : 0;
    const extents = reversed(shape);
    if (row.is_packed && rank) extents[0] = Math.floor(rowBits / bits);
    const box = isTiled ? reversed(list(request, "box_sizes")) : [];
    const steps = request.elem_strides ? reversed(request.elem_strides) : extents.map(() => 1);
    const ignoresInnerStep = !["measured", "driver"].includes(rules) && interleave === 0;
    const floors = box.map((n, d) => {
      const step = d === 0 && ignoresInnerStep ? 1 : steps[d] ?? 1;
      return step > 0 ? Math.floor(n / step) : n;
    });
    const channels = isTiled ? 0 : request.channels_per_pixel;
    const pixels = isTiled ? 0 : request.pixels_per_column;
    const [lower, upper] = cornersOf(request, kind), spatial = isTiled ? 0 : Math.max(0, dims - 2);
    const corners = isWide ? Math.min(1, spatial) : spatial;
    const spanBytes = T.SWIZZLE_SPAN_BYTES[options.swizzle], isSplit = Boolean(request.split_inner);
    const spanValues = Math.floor(((spanBytes || K.INNER_BYTES) * 8) / bits);
    const ragged = request.ragged ?? null, isDim = ragged !== null && -rank <= ragged && ragged < rank;
    const raggedDim = isDim ? rank - 1 - modulo(ragged, rank) : -1; // 0 is innermost
    const innerBox = !isTiled ? channels : isSplit ? spanValues : box[0] ?? 0;
    const boxBits = isTiled ? product(box) * bits : channels * pixels * bits;
    return Object.assign({ // twenty times as fast as a literal with spreads
      target, rules, kind, rank, dims, spatial, address, channels, pixels,
      allow: request.allow ?? [],
      corners,
      first_spatial: interleave ? 0 : 1,
      is_null: address === 0,
      passes_nan: rules === "libcu++" && asked_type < 0 && !dtype.refuses_nan,
      alignment_bytes: alignment,
      inner_stride: rank ? strides[rank - 1] : 1,
      row_bits: rowBits,
      global_dim: extents,
      global_strides: strideBits.map((stride) => stride / 8),
      stride_bits: strideBits,
      inside_bits: insideBits(dims, extents, strideBits, rowBits),
      box_count: box.length,
      box_dim: isTiled ? filled(box, rank) : box,
      inner_box: innerBox,
      inner_box_bits: innerBox * bits,
      box_bits: boxBits,
      floor_box_bits: isTiled ? product(floors) * bits : boxBits,
      span_bits: 8 * spanBytes,
      elem_stride_count: steps.length,
      element_strides: filled(steps, rank),
      ignores_inner_step: ignoresInnerStep,
      lower_count: lower.length,
      upper_count: upper.length,
      lower: filled(lower, corners),
      upper: filled(upper, corners),
      corner_end: isWide && rules === "documented" ? 1 << 15 : T.CORNER_ENDS[rank] ?? 1 << 15,
      is_split: isSplit,
      has_swizzle: request.swizzle != null,
      span_values: spanValues,
      is_ragged: ragged !== null,
      ragged_dim: raggedDim,
      ragged_stride_bits: raggedDim >= 1 && raggedDim < dims ? strideBits[raggedDim - 1] : 0,
    }, row, target, types, options);
  }

  const rows = new Map();

  /** Which rows are asked of a request, by number. */
  function askedOf({ kind, rules, allow }) {
    const key = [kind, rules, ...allow].join();
    const isAsked = (rule) =>
      rule.kinds.includes(kind) && rule.sets.includes(rules) && !allow.includes(rule.id);
    if (!rows.has(key)) rows.set(key, T.RULES.map(isAsked));
    return rows.get(key);
  }

  /** [row, entry] of every failed predicate, whether or not its prerequisites hold; `other` fields
   *  may stand in the struct. */
  function failuresOf(request, other = null) {
    const a = read(request);
    return T.judge(other ? { ...a, ...other } : a, askedOf(a));
  }

  // -- the driver's arguments, and their bytes ---------------------------------------------------

  /** The arguments as they are encoded: ignored steps are 1; split and ragged add dimensions. */
  function encodeArguments(request) {
    const a = read(request), bits = a.row.element_bits;
    if (a.ignores_inner_step && a.element_strides.length) a.element_strides[0] = 1;
    if (a.is_split) {
      const span = a.span_values;
      a.global_dim = [span, ...a.global_dim.slice(1), Math.floor(a.global_dim[0] / span)];
      a.global_strides = [...a.global_strides, (span * bits) / 8];
      a.box_dim = [span, ...a.box_dim.slice(1), Math.floor(a.box_dim[0] / span)];
      a.element_strides = [...a.element_strides, 1];
    }
    const ragged = a.ragged_dim; // the dimensions inside stay where they are
    if (ragged >= 1) {
      const stride = a.global_strides[ragged - 1];
      const wrap = (K.RAGGED_STRIDE_END * Math.max(8, bits)) / 8;
      a.global_dim = [...a.global_dim, K.RAGGED_EXTRA_EXTENT, K.RAGGED_EXTRA_EXTENT];
      a.global_dim[ragged] = K.RAGGED_EXTENT;
      a.global_strides = [...a.global_strides, stride, wrap - stride];
      a.box_dim = [...a.box_dim, 1, 1];
      a.element_strides = [...a.element_strides, 1, 1];
    }
    a.rank = a.global_dim.length;
    return a;
  }

  /** Whether a map of this kind and rank has a field. */
  function exists(field, kind, rank) {
    if (field.kind && (field.kind === "tiled") !== (kind === "tiled")) return false;
    if (field.rank && field.rank !== rank) return false;
    if (field.index === undefined) return true;
    const isCorner = field.name.startsWith("pixel_box");
    const corners = kind === "im2col_wide" ? 1 : rank - 2;
    return field.index < (isCorner ? corners : field.name === "global_strides" ? rank - 1 : rank);
  }

  /** What each field holds, by its name. */
  function valuesOf(a) {
    const steps = a.box_dim.map((n, d) => Math.floor(n / a.element_strides[d]));
    const elements = a.kind === "tiled" ? product(steps) : a.channels * a.pixels;
    return {
      ...a,
      global_address: a.address,
      im2col: Number(a.kind !== "tiled"),
      bit_65: 0,
      bit_85: 0,
      channels_per_pixel: a.channels,
      pixels_per_column: a.pixels,
      pixel_box_lower_corner: a.lower,
      pixel_box_upper_corner: a.upper,
      box_bytes: Math.floor((elements * a.element_bits) / 8),
      swizzle_repeat_bytes: T.SWIZZLE_REPEAT_BYTES[a.swizzle],
    };
  }

  /** The fields of the map of an accepted request, with their values; null without a model. */
  function fieldsOf(request) {
    const a = encodeArguments(request), values = valuesOf(a);
    if (!a.target.has_model || failuresOf(request).length) return null;
    return T.FIELDS.filter((field) => exists(field, a.kind, a.rank)).map((field) => {
      const { name, index } = field;
      const label = index === undefined ? name : `${name}[${index}]`;
      return { ...field, label, value: index === undefined ? values[name] : values[name][index] };
    });
  }

  /** The 128 bytes; null where the request is refused, or the target has no model. */
  function encode(request) {
    const fields = fieldsOf(request);
    if (fields === null) return null;
    let word = 0n;
    for (const { label, pieces, value, unit, bias } of fields) {
      let raw = BigInt(value / unit - bias);
      const width = BigInt(sum(pieces.map(([, width]) => width)));
      if (raw >> width > 0n || raw < -(1n << (width - 1n)))
        throw new RangeError(`${label} = ${value} does not fit ${width} bits`);
      for (const [bit, width] of pieces) {
        word |= BigInt.asUintN(width, raw) << BigInt(bit);
        raw >>= BigInt(width);
      }
    }
    const bytes = new Uint8Array(K.MAP_BYTES);
    for (let i = 0; i < bytes.length; ++i) bytes[i] = Number((word >> BigInt(8 * i)) & 0xffn);
    return bytes;
  }

  return {
    member, read, targetOf, rowMajorStrides, failuresOf, encodeArguments, fieldsOf,
    elementsOf, encode, reversed, product, modulo,
  };
})();
