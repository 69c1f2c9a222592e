// A request in the user's words: read, described for the judge, and encoded as 128 bytes.
// As checks/parse.py, checks/request.py and tables/bits.py do in Python.
"use strict";

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

  /** A request as the driver's arguments, innermost first; any number may be out of range. */
  function read(request) {
    const kind = request.kind ?? "tiled", target = targetOf(request.target ?? undefined);
    const rules = setOfRules(kind, request.rules ?? T.RULE_SETS[kind][0], target);
    const asked = request.data_type == null ? -1 : member("data_type", request.data_type);
    const dtype = dtypeOf(request, asked), own = dtype.data_type;
    const dataType = asked < 0 ? own : dtype.overrides.includes(asked) ? asked : -1;
    const row = T.DATA_TYPES[Math.max(0, dataType)];
    const shape = list(request, "shape"), rank = shape.length;
    const defaults = { swizzle: kind === "im2col_wide" ? K.SWIZZLE_128B : 0 }, enums = {};
    for (const name of ["interleave_layout", "swizzle", "l2_fetch_size", "oobfill", "mode"])
      enums[name] = member(name, request[name] ?? defaults[name] ?? 0);
    const spanBytes = T.SWIZZLE_SPAN_BYTES[enums.swizzle] || K.INNER_BYTES;
    const padded = dataType >= 0 && row.is_padded;
    const alignment = enums.interleave_layout === K.INTERLEAVE_32B || padded ? 32 : 16;
    const given = request.strides ?? rowMajorStrides(shape);
    const strides = canonicalStrides(shape, given, dtype.bits, alignment);
    const [lower, upper] = cornersOf(request, kind);
    const rowBits = rank ? shape[rank - 1] * dtype.bits : 0;
    const dims = reversed(shape);
    if (row.is_packed && rank) dims[0] = Math.floor(rowBits / row.element_bits);
    return {
      kind, rank, rules, target, asked, dtype, dataType, row, rowBits, lower, upper,
      data_type: Math.max(0, dataType),
      allow: request.allow ?? [],
      address: request.address ?? 0,
      alignment_bytes: alignment,
      inner_stride: rank ? strides[rank - 1] : 1,
      global_dim: dims,
      global_strides: reversed(strides.slice(0, -1)).map((stride) => (stride * dtype.bits) / 8),
      box_dim: kind === "tiled" ? reversed(list(request, "box_sizes")) : [],
      element_strides: request.elem_strides ? reversed(request.elem_strides) : dims.map(() => 1),
      interleave: enums.interleave_layout,
      swizzle: enums.swizzle,
      l2_promotion: enums.l2_fetch_size,
      oob_fill: enums.oobfill,
      mode: enums.mode,
      channels: kind === "tiled" ? 0 : request.channels_per_pixel,
      pixels: kind === "tiled" ? 0 : request.pixels_per_column,
      is_split: Boolean(request.split_inner),
      has_swizzle: request.swizzle != null,
      ragged: request.ragged ?? null,
      span_values: Math.floor((spanBytes * 8) / row.element_bits),
      ignores_inner_step:
        !["measured", "driver"].includes(rules) && enums.interleave_layout === 0,
    };
  }

  /** The dimension that ragged names, 0 being innermost; -1 where there is none. */
  function raggedDim(a) {
    if (a.ragged === null || a.ragged < -a.rank || a.ragged >= a.rank) return -1;
    return a.rank - 1 - modulo(a.ragged, a.rank);
  }

  // -- the struct that the judge reads -----------------------------------------------------------

  const filled = (values, count) => [...values, 0, 0, 0, 0, 0].slice(0, count);

  function describeRead(a) {
    const { row, rank, target } = a, bits = row.element_bits;
    const dims = rank >= 1 && rank <= K.MAX_RANK ? rank : 0;
    const strideBits = a.global_strides.map((stride) => 8 * stride);
    const inside = [0];
    for (let d = 1, span = a.rowBits; d < dims; ++d) {
      inside.push(span);
      if (a.global_dim[d] !== 1) span = a.global_dim[d] * strideBits[d - 1];
    }
    const isTiled = a.kind === "tiled", ragged = raggedDim(a);
    const spatial = isTiled ? 0 : Math.max(0, dims - 2);
    const step = (d) => (d === 0 && a.ignores_inner_step ? 1 : a.element_strides[d] ?? 1);
    const floors = a.box_dim.map((n, d) => (step(d) > 0 ? Math.floor(n / step(d)) : n));
    const innerBox = !isTiled ? a.channels : a.is_split ? a.span_values : a.box_dim[0] ?? 0;
    const boxBits = isTiled ? product(a.box_dim) * bits : a.channels * a.pixels * bits;
    const isWide = a.kind === "im2col_wide";
    return {
      kind: T.KINDS.indexOf(a.kind),
      rank,
      dims,
      spatial,
      corners: isWide ? Math.min(1, spatial) : spatial,
      first_spatial: a.interleave ? 0 : 1,
      address: a.address,
      is_null: Number(a.address === 0),
      data_type: a.dataType,
      asked_type: a.asked,
      element_bits: bits,
      is_packed: row.is_packed,
      is_padded: row.is_packed && row.is_padded,
      is_float: row.is_float,
      packed_unit: row.packed_unit,
      type_interleaves: row.interleaves,
      type_swizzles: row.swizzles,
      passes_nan: Number(a.rules === "libcu++" && a.asked < 0 && !a.dtype.refuses_nan),
      interleave: a.interleave,
      swizzle: a.swizzle,
      l2_promotion: a.l2_promotion,
      oob_fill: a.oob_fill,
      mode: a.mode,
      alignment_bytes: a.alignment_bytes,
      inner_stride: a.inner_stride,
      row_bits: a.rowBits,
      global_dim: filled(a.global_dim, 5),
      stride_bits: filled(strideBits, 4),
      inside_bits: filled(inside, 5),
      box_count: a.box_dim.length,
      box_dim: filled(a.box_dim, 5),
      inner_box: innerBox,
      inner_box_bits: innerBox * bits,
      box_bits: boxBits,
      floor_box_bits: isTiled ? product(floors) * bits : boxBits,
      span_bits: 8 * T.SWIZZLE_SPAN_BYTES[a.swizzle],
      elem_stride_count: a.element_strides.length,
      element_strides: filled(a.element_strides, 5),
      ignores_inner_step: Number(a.ignores_inner_step),
      lower_count: a.lower.length,
      upper_count: a.upper.length,
      lower: filled(a.lower, 3),
      upper: filled(a.upper, 3),
      corner_end: isWide && a.rules === "documented" ? 1 << 15 : T.CORNER_ENDS[rank] ?? 1 << 15,
      channels: a.channels,
      pixels: a.pixels,
      is_split: Number(a.is_split),
      has_swizzle: Number(a.has_swizzle),
      span_values: a.span_values,
      is_ragged: Number(a.ragged !== null),
      ragged_dim: ragged,
      ragged_stride_bits: ragged >= 1 && ragged < dims ? strideBits[ragged - 1] : 0,
      has_tma: target.has_tma,
      is_sm_9x: target.is_sm_9x,
      has_wide: target.has_wide,
      has_model: target.has_model,
      max_smem_bytes: target.max_smem_bytes,
    };
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
  function failuresOf(request, other = {}) {
    const a = read(request);
    return T.judge({ ...describeRead(a), ...other }, askedOf(a));
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
    const ragged = raggedDim(a); // the dimensions inside stay where they are
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

  function valuesOf(a) {
    const steps = a.box_dim.map((n, d) => Math.floor(n / a.element_strides[d]));
    const elements = a.kind === "tiled" ? product(steps) : a.channels * a.pixels;
    return {
      global_address: a.address,
      im2col: Number(a.kind !== "tiled"),
      bit_65: 0,
      rank: a.rank,
      element_type: a.row.element_type,
      interleave: a.interleave,
      swizzle: a.swizzle,
      oob_fill: a.oob_fill,
      tf32: a.row.tf32,
      l2_promotion: a.l2_promotion,
      bit_85: 0,
      global_strides: a.global_strides,
      global_dim: a.global_dim,
      element_strides: a.element_strides,
      box_dim: a.box_dim,
      channels_per_pixel: a.channels,
      pixels_per_column: a.pixels,
      pixel_box_lower_corner: a.lower,
      pixel_box_upper_corner: a.upper,
      box_bytes: Math.floor((elements * a.row.element_bits) / 8),
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
    member, read, targetOf, rowMajorStrides, describeRead, failuresOf, encodeArguments, fieldsOf,
    elementsOf, encode, reversed, product, modulo,
  };
})();
