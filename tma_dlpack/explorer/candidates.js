// `tmaCandidates` returns the candidate fixes of a rule that a request breaks. model.js describes a request.
//
// A broken rule has one or more alternatives. An alternative is a list of candidates, which are tried in order. A
// candidate is one possible fix, an object with these fields:
//   change: the arguments that the candidate changes
//   view: another tensor, {shape, strides, dtype, address}; null if the candidate keeps the tensor
//   isGuess: whether the user may have meant something else
//
// The Python versions are checks/candidates.py and the field `candidates` in the rows of the rules. tests/explorer
// tests that JavaScript and Python return the same alternatives and the same candidates, in the same order.

const tmaCandidates = (() => {
  const T = tmaTables, K = T.K, R = tmaRequest;
  const { reversed, product } = R;
  // The address that a copy of the tensor is assumed to have. The address satisfies every required alignment.
  const COPY_AT = 2 ** 20;
  const WIDEST_BITS = 64; // bits of the widest integer type that viewed() uses
  const SPAN_BYTES = [16, 32, 64, 128, 128, 128, 128]; // number of the swizzle -> bytes of its span
  const upTo = (n, unit) => Math.ceil(n / unit) * unit, downTo = (n, unit) => Math.floor(n / unit) * unit;
  const range = (n, first = 0) => Array.from({ length: Math.max(0, n - first) }, (_, i) => first + i);
  const candidate = (change, isGuess = false) => ({ change, view: null, isGuess });
  const isPadded = (row) => row.packed_unit >= K.PADDED_INNER_VALUES;

  /** Return a copy of the strides in which every dimension of extent 1 has a valid stride. No access uses the stride of
   *  such a dimension. */
  function canonical(shape, strides, bits) {
    if (!shape.includes(1)) return [...strides];
    const unit = R.elementsOf(K.INNER_BYTES, bits), found = [...strides];
    let span = 1;
    for (let i = shape.length - 1; i >= 0; --i) {
      if (shape[i] === 1) {
        const stride = i === shape.length - 1 ? span : upTo(span, unit);
        found[i] = stride * bits < 8 * K.STRIDE_BYTES_END ? stride : 0;
      }
      span = shape[i] * found[i];
    }
    return found;
  }

  /** Return the tensor of a request as {shape, strides, dtype, address}, like the `view` of a candidate. */
  function viewOf(request) {
    const { shape, strides, dtype, address = 0 } = request;
    const numbers = shape.map(Number); // numbers above 2^53 are rounded; the C core checks the exact numbers
    return { shape: numbers, strides: strides?.map(Number) ?? R.rowMajorStrides(numbers), dtype, address };
  }

  /** Return an object with a request, the C core's result `a` for the request, and the fields of Python's class
   *  `Request`. */
  function seen(request, a) {
    const rank = request.shape.length, bits = a.dtype.bits, view = viewOf(request), { shape } = view;
    const strides = canonical(shape, view.strides, bits), ones = shape.map(() => 1);
    const ragged = request.ragged == null ? null : R.modulo(request.ragged, rank);
    const hasRagged = ragged !== null && -rank <= request.ragged && request.ragged < rank;
    return {
      request, a, rank, bits, strides, ragged, hasRagged, shape, isTiled: a.kind === "tiled",
      box: a.kind === "tiled" ? request.box_sizes.map(Number) : [], // row-major, like the steps
      steps: (request.elem_strides ?? ones).map(Number),
      unit: R.elementsOf(K.INNER_BYTES, a.element_bits), isKnown: a.data_type >= 0,
      asked: request.data_type == null ? null : R.member("data_type", request.data_type),
    };
  }

  // -- arguments ---------------------------------------------------------------------------------

  function members({ request, a }, name, first = []) {
    const names = T.ENUMS[name], old = a[T.OPTION_NAMES[name]] ?? R.member(name, request[name] ?? 0);
    const order = [...first, ...range(names.length, old + 1), ...range(old).reverse()];
    return [...new Set(order)].filter((n) => n !== old).map((n) => candidate({ [name]: names[n] }));
  }

  const swizzles = (r) => members(r, "swizzle", [K.SWIZZLE_128B]);

  const widerSwizzles = ({ a }) => [2, 3]
    .filter((n) => 8 * SPAN_BYTES[n] > a.span_bits).map((n) => candidate({ swizzle: T.ENUMS.swizzle[n] }));

  const split = ({ a, isTiled }) => isTiled && a.has_swizzle && !a.is_split ? [candidate({ split_inner: true })] : [];

  function allow({ request }, id) {
    const allowed = request.allow ?? [];
    return allowed.includes(id) ? [] : [candidate({ allow: [...[...allowed].sort(), id] })];
  }

  const nearestFirst = (old, values) => [...new Set(values)].filter((n) => n !== old)
    .sort((x, y) => Math.abs(x - old) - Math.abs(y - old) || y - x);

  const withEntry = (values, i, value) =>
    values.map((n, d) => (d === values.length - 1 - i ? value : n));

  // The C core's result has only five entries of a box. If the tensor has more than five dimensions, return all entries
  // of the request's box. Otherwise return only the five innermost entries.
  const keptBox = (r) => (r.rank > K.MAX_RANK ? r.box : r.box.slice(-K.MAX_RANK));
  const withBoxEntry = (r, i, value) =>
    r.isTiled ? { box_sizes: withEntry(keptBox(r), i, value) } : { channels_per_pixel: value };

  /** Return candidates that change entry i of the box, or the channels per pixel of an im2col map. The candidate whose
   *  value is nearest to the current value is first. Entry 0 is the innermost entry. */
  function boxEntries(r, i) {
    const { a } = r, old = r.isTiled ? reversed(r.box)[i] : a.channels;
    const unit = i > 0 ? 1 : a.is_split ? a.span_values : r.unit;
    const most = K.MAX_BOX * (i === 0 && a.is_split ? a.span_values : 1);
    const limits = [most, Math.min(i < r.rank ? a.global_dim[i] : most, most), a.packed_unit];
    if (i === 0 && a.span_bits) limits.push(Math.floor(a.span_bits / a.element_bits));
    const around = Math.abs(old) > most ? [] : [downTo(old, unit), upTo(old, unit)];
    const inUnits = a.target.has_model || (r.isTiled && !a.interleave);
    const ends = limits.map((limit) => downTo(limit, unit));
    return nearestFirst(old, [...ends, ...around, inUnits ? unit : 1])
      .filter((n) => 1 <= n && n <= most).map((n) => candidate(withBoxEntry(r, i, n)));
  }

  /** Return candidates whose boxes have fewer bytes. The first candidates make only the largest outer entry smaller.
   *  The next candidates set this entry to 1 and make the second largest outer entry smaller, and so on. The innermost
   *  entry is last. */
  function shrunkBoxes(r) {
    const box = reversed(r.box), { a } = r, found = [], ones = box.map(() => 1);
    const steps = [...reversed(r.steps), ...ones].slice(0, box.length);
    if (a.ignores_inner_step) steps[0] = 1;
    const outer = range(box.length, 1).sort((x, y) => box[y] - box[x]);
    for (const i of [...outer, 0]) {
      const unit = i ? 1 : r.unit, fitting = new Set();
      for (const [bytes, by] of [[a.target.max_smem_bytes, ones], [K.MAX_BOX_BYTES, steps]]) {
        const others = product(box.map((n, d) => (d === i ? 1 : Math.floor(n / Math.max(1, by[d])))));
        const step = Math.max(1, by[i]);
        const fits = others ? Math.floor((8 * bytes) / (a.element_bits * others)) * step + step - 1 : 0;
        const units = Math.floor(Math.min(box[i] - 1, fits) / unit);
        if (units > 0) fitting.add(unit * 2 ** Math.floor(Math.log2(units)));
      }
      for (const n of [...fitting].sort((x, y) => y - x))
        found.push(candidate({ box_sizes: withEntry(reversed(box), i, n) }));
      box[i] = 1;
    }
    return found;
  }

  /** Return a candidate in which the list argument `name` has one entry per dimension. The candidate is a guess if it
   *  drops an entry that is not 1. */
  function perDimension(r, name) {
    const values = name === "box_sizes" ? r.box : r.steps, excess = Math.max(0, values.length - r.rank);
    const kept = values.slice(excess), ones = range(r.rank - kept.length).map(() => 1);
    return [candidate({ [name]: [...ones, ...kept] }, values.slice(0, excess).some((n) => n !== 1))];
  }

  function elemStrides(r, i) {
    const old = reversed(r.steps)[i], most = K.MAX_ELEM_STRIDE;
    return nearestFirst(old, [1, most, Math.min(r.a.global_dim[i], most)])
      .filter((n) => n >= 1).map((n) => candidate({ elem_strides: withEntry(r.steps, i, n) }));
  }

  /** Return candidates with the other data types with which a map can copy the tensor's bits. */
  function dataTypes(r) {
    const { a } = r, row = T.DATA_TYPES[r.isKnown ? a.data_type : 0];
    const others = a.dtype.overrides.filter((t) => !r.isKnown || t !== a.data_type);
    const isLike = (t) => T.DATA_TYPES[t].element_bits === row.element_bits && !isPadded(T.DATA_TYPES[t]);
    const unpadded = isPadded(row) ? others.filter(isLike) : [], found = [];
    for (const t of [...unpadded, null, ...others]) {
      if (t === null && r.asked === null) continue;
      const own = t ?? R.read({ ...r.request, data_type: null }).data_type;
      const bits = own < 0 ? r.bits : T.DATA_TYPES[own].element_bits;
      const name = t === null ? null : T.DATA_TYPES[t].name;
      found.push(candidate({ data_type: name, ...boxIn(r, bits, bits) }));
    }
    return found;
  }

  /** Return the changed argument {name: value} for a box of elements of `bits` bits. A row of the new box has as many
   *  bytes as a row of the current box, rounded up to a whole element. */
  function boxIn(r, bits, orBits) {
    const old = r.isKnown ? r.a.element_bits : orBits;
    if (old === bits || (r.isTiled && !r.box.length)) return {};
    const inner = r.isTiled ? reversed(r.box)[0] : r.a.channels;
    return withBoxEntry(r, 0, Math.ceil((inner * old) / bits));
  }

  /** Return the candidates of `dataTypes` in which an element of the data type is a whole number of bytes. */
  const carriers = (r) => dataTypes(r).filter(({ change }) =>
    change.data_type === null || T.DATA_TYPES[R.member("data_type", change.data_type)].packed_unit === 1);

  function counts(r, name) {
    if (name === "channels_per_pixel") return boxEntries(r, 0);
    const old = r.a.pixels, isUsed = r.a.box_bits > 0 && old > 0;
    const fits = isUsed ? Math.max(1, Math.floor((8 * K.MAX_BOX_BYTES * old) / r.a.box_bits)) : K.MAX_PIXELS;
    return nearestFirst(old, [1, K.MAX_PIXELS, Math.min(K.MAX_PIXELS, fits)]).map((n) => candidate({ [name]: n }));
  }

  // -- another tensor over the same memory -------------------------------------------------------

  const other = (r, change, shape, strides, dtype = r.request.dtype, address = r.request.address ?? 0) =>
    ({ change, isGuess: false, view: { shape, strides, dtype, address } });

  const along = (values, kept, missing = 1) => kept.map((d) => (d === null ? missing : values[d]));

  /** Return the argument {ragged} for a tensor that has only the dimensions in `kept`. Return null if `kept` lacks the
   *  ragged dimension. */
  function raggedAfter(r, kept) {
    if (!r.hasRagged) return {};
    return kept.includes(r.ragged) ? { ragged: kept.indexOf(r.ragged) } : null;
  }

  function permuted(r, order) {
    if (order.every((d, i) => d === i)) return [];
    const change = {};
    for (const [name, values] of [["box_sizes", r.box], ["elem_strides", r.steps]])
      if (r.isTiled && values.length === r.rank && new Set(values).size > 1) change[name] = along(values, order);
    Object.assign(change, raggedAfter(r, order));
    return [other(r, change, along(r.shape, order), along(r.strides, order))];
  }

  function reshaped(r, kept, shape = null, strides = null, box = null) {
    const ragged = raggedAfter(r, kept);
    if (ragged === null) return [];
    const change = { elem_strides: null };
    if (r.isTiled) change.box_sizes = box ?? (r.box.length === r.rank ? along(r.box, kept) : r.box);
    return [other(r, { ...change, ...ragged }, shape ?? along(r.shape, kept), strides ?? along(r.strides, kept, 0))];
  }

  /** Return candidates whose views of the tensor have rank `rank`. In each view, adjacent contiguous dimensions are
   *  merged to one dimension. */
  function merged(r, rank) {
    if (!r.isTiled || r.rank <= rank) return [];
    const { shape, strides } = r, box = r.box.length === r.rank ? r.box : shape.map(() => 1);
    const found = [];
    for (let first = 0; first < rank; ++first) {
      const last = first + r.rank - rank; // the dimensions first..last become one dimension
      if (last >= r.rank) break;
      if (!range(last, first).every((d) => strides[d] === shape[d + 1] * strides[d + 1] || shape[d] === 1)) continue;
      const around = (values, one) => [...values.slice(0, first), one, ...values.slice(last + 1)];
      // `size` is the entry of the box for the merged dimension. Entry d of the old box multiplies `size` only if the
      // box spans the whole of the merged dimensions after d.
      let size = box[last];
      for (let d = last - 1; d >= first && size >= product(shape.slice(d + 1, last + 1)); --d) size *= box[d];
      const kept = [...range(first), null, ...range(r.rank, last + 1)];
      found.push(...reshaped(r, kept, around(shape, product(shape.slice(first, last + 1))),
        [...strides.slice(0, first), ...strides.slice(last)], around(box, Math.min(size, K.MAX_BOX))));
    }
    return found;
  }

  /** Return a candidate whose view is one slice of the tensor. The slice has rank `rank`. */
  function indexed(r, rank) {
    if (!r.isTiled || r.rank <= rank) return [];
    const index = range(r.rank - 1).filter((d) => d !== r.ragged).slice(0, r.rank - rank);
    return reshaped(r, range(r.rank).filter((d) => !index.includes(d)));
  }

  function outerOnes(r, rank) {
    if (!(0 < r.rank && r.rank < rank)) return [];
    return reshaped(r, [...range(rank - r.rank).map(() => null), ...range(r.rank)]);
  }

  /** Return a candidate whose view has only every n-th element along a dimension, where n is the element stride. With
   *  this view, the element stride can be 1. */
  function stepped(r, i) {
    const d = r.rank - 1 - i, step = r.steps[d];
    if (!r.isTiled || i === 0 || step < 1 || r.box.length !== r.rank) return [];
    const put = (values, n) => withEntry(values, i, n);
    const change = { box_sizes: put(r.box, Math.max(1, Math.ceil(r.box[d] / step))), elem_strides: put(r.steps, 1) };
    return [other(r, change, put(r.shape, Math.ceil(r.shape[d] / step)), put(r.strides, r.strides[d] * step))];
  }

  const part = (r, i, extent, change = {}) => [other(r, change, withEntry(r.shape, i, extent), r.strides)];
  const parts = (r, i) => part(r, i, 2 ** 30);
  const oneAtATime = (r, i) => part(r, i, 1, r.isTiled ? withBoxEntry(r, i, 1) : {});

  /** Return a candidate that views the tensor as integers of `bits` bits. If the integers are wider than the tensor's
   *  elements, the integers are signed. Otherwise they are unsigned. The sizes of the candidate's box are in these
   *  integers. */
  function viewed(r, bits) {
    const isWider = bits > r.bits, wide = isWider ? Math.floor(bits / r.bits) : 1;
    const narrow = isWider ? 1 : Math.floor(r.bits / bits);
    if (r.bits === bits || r.bits % 8 || r.bits * wide !== bits * narrow) return [];
    if (bits > WIDEST_BITS || !r.rank) return [];
    const outer = r.strides.slice(0, -1), extent = r.shape[r.rank - 1];
    if ([extent, ...outer, r.a.inner_box].some((n) => n % wide)) return [];
    const change = boxIn(r, bits, r.bits);
    if (r.asked !== null) change.data_type = null;
    const scaled = (n) => Math.floor((n * narrow) / wide);
    const shape = [...r.shape.slice(0, -1), scaled(extent)];
    const strides = [...outer.map(scaled), r.strides[r.rank - 1]];
    return [other(r, change, shape, strides, `${isWider ? "int" : "uint"}${bits}`)];
  }

  // -- copies ------------------------------------------------------------------------------------

  const copied = (r, shape, rows = shape) =>
    [other(r, {}, shape, R.rowMajorStrides(rows), r.request.dtype, COPY_AT)];

  const wholeRows = (r, unit) => [...r.shape.slice(0, -1), upTo(r.shape[r.rank - 1], unit)];
  const widened = (r, unit) => (r.rank ? copied(r, wholeRows(r, unit)) : []);
  const padded = (r, unit) => (r.rank ? copied(r, r.shape, wholeRows(r, unit)) : []);

  const copies = (r) => [
    ...copied(r, r.shape),
    ...[K.INNER_BYTES, 2 * K.INNER_BYTES].flatMap((bytes) => padded(r, R.elementsOf(bytes, r.bits))),
  ];

  const lastButOne = (r) => [0, ...range(r.rank, 2), 1];

  /** Return a candidate that copies the tensor, with the channels as the last dimension of the copy. The dimensions of
   *  the original tensor are N, C, [D,] [H,] W. */
  function channelsLast(r) {
    const { shape } = r, { channels } = r.a;
    if (r.isTiled || r.a.interleave || r.rank < 3) return [];
    if (!(shape[r.rank - 1] < channels && channels <= shape[1])) return [];
    return copied(r, along(shape, lastButOne(r)));
  }

  // -- corners -----------------------------------------------------------------------------------

  const corner = (r, which) => (r.a.kind === "im2col_wide"
    ? [r.request[`${which}_corner_width`]] : reversed(r.request[`pixel_box_${which}_corner`]));

  const withCorner = (r, which, values) => (r.a.kind === "im2col_wide"
    ? { [`${which}_corner_width`]: values[0] } : { [`pixel_box_${which}_corner`]: reversed(values) });

  const clamped = (r, n) => Math.max(-r.a.corner_end, Math.min(n, r.a.corner_end - 1));

  function clampedCorner(r, which, i) {
    const values = corner(r, which);
    values[i] = clamped(r, values[i]);
    return [candidate(withCorner(r, which, values))];
  }

  function boundingBox(r, i) {
    const extent = r.a.global_dim[r.a.first_spatial + i], upper = corner(r, "upper"), lower = corner(r, "lower");
    // If the bounding box is not empty, the rule is broken because the 32-bit sum in the rule wraps.
    if (extent + upper[i] - lower[i] > 0) return [parts(r, r.a.first_spatial + i)];
    const size = r.a.target.has_model ? extent | 0 : extent, before = lower[i];
    upper[i] = clamped(r, lower[i] + 1 - size);
    lower[i] = clamped(r, Math.min(lower[i], size + upper[i] - 1));
    const change = withCorner(r, "upper", upper);
    return [[candidate(lower[i] === before ? change : { ...change, ...withCorner(r, "lower", lower) })]];
  }

  // -- the rows ----------------------------------------------------------------------------------

  const target = (name, isGuess = false) => [candidate({ target: name }, isGuess)];
  const fits = (n, extent) => 1 <= n && n <= Math.min(extent, K.MAX_BOX);

  function turnedBox(r) { // return the box in the opposite order, if only this order fits the tensor
    const turned = reversed(r.box), extents = reversed(r.a.global_dim);
    const all = (box) => box.every((n, d) => d >= extents.length || fits(n, extents[d]));
    const isCut = !r.a.interleave && r.isKnown && turned[turned.length - 1] % (r.a.span_values || r.unit);
    return all(turned) && !all(r.box) && !isCut ? [[candidate({ box_sizes: turned }, true)]] : [];
  }

  const lessAligned = (r) => r.a.alignment_bytes > K.INNER_BYTES
    ? [members(r, "interleave_layout").filter(({ change }) => change.interleave_layout !== "none"), dataTypes(r)] : [];

  function rank(r) {
    if (r.rank > K.MAX_RANK) return [merged(r, K.MAX_RANK), indexed(r, K.MAX_RANK)];
    return r.isTiled ? [] : [outerOnes(r, K.MIN_RANK_IM2COL)];
  }

  function innermost(r) {
    const contiguous = range(r.rank).filter((d) => r.strides[d] === 1 && r.shape[d] > 1);
    if (!contiguous.length) return [copies(r)];
    if (!r.isTiled && r.rank >= 3 && r.strides[1] === 1) return [permuted(r, lastButOne(r))];
    const last = contiguous[contiguous.length - 1];
    return [permuted(r, [...range(r.rank).filter((d) => d !== last), last]), copies(r)];
  }

  function unique(r) {
    const order = range(r.rank).sort((x, y) => r.strides[y] - r.strides[x]);
    const isInner = order[r.rank - 1] === r.rank - 1;
    return [allow(r, "STRIDE_UNIQUE"), ...(isInner ? [permuted(r, order)] : []), copies(r)];
  }

  function aligned(r) {
    const last = channelsLast(r);
    return [...lessAligned(r), last.length ? last : copies(r)];
  }

  function boxRange(r, i) {
    if (reversed(r.box)[i] < 1) return [boxEntries(r, i)];
    if (i > 0) return [boxEntries(r, i)];
    const isPlain = !r.a.interleave && !r.a.swizzle && r.asked === null;
    const wider = [32, 64, 96].filter((bits) => bits > r.bits).flatMap((bits) => viewed(r, bits));
    return [split(r), boxEntries(r, 0), ...(isPlain ? [wider] : [])];
  }

  function span(r) {
    if (r.a.inner_box_bits % (8 * K.INNER_BYTES)) return [boxEntries(r, 0)]; // no swizzle is legal with this row size
    const narrowed = candidate(withBoxEntry(r, 0, Math.floor(r.a.span_bits / r.a.element_bits)));
    const none = candidate({ swizzle: "none" }, true);
    return [widerSwizzles(r), split(r), [narrowed, ...boxEntries(r, 0)], [none]];
  }

  const extentBreaks = (a) => Boolean(a.global_dim[0] % a.span_values);

  function wholeSpans(r) {
    const { a } = r, narrower = [2, 1].filter((n) => n < a.swizzle);
    const one = withBoxEntry(r, 0, Math.min(a.box_dim[0], a.span_values));
    const whole = extentBreaks(a)
      ? [widened(r, a.span_values), [candidate({ ...one, split_inner: false }, true)]] : [boxEntries(r, 0)];
    return [...whole, narrower.map((n) => candidate({ swizzle: T.ENUMS.swizzle[n] }))];
  }

  const toRank = (r, most) => [merged(r, most), indexed(r, most)];
  const splitRank = (r) => toRank(r, K.MAX_RANK - 1 - 2 * r.a.is_ragged);
  const interleaves = (r) => [members(r, "interleave_layout")];
  const fills = (r) => [members(r, "oobfill")];
  const spatial = (r, i) => [parts(r, r.a.first_spatial + i)];

  const ALTERNATIVES = {
    CAPABILITY: (r) => [target(r.a.kind === "im2col_wide" ? "sm_100" : "sm_90")],
    WIDE_CAPABILITY: () => [target("sm_100")],
    ATOM_SWIZZLE: (r) => [swizzles(r), target("sm_100", true)],
    PACKED_TYPE: (r) => [[...carriers(r), ...viewed(r, 8)], target("sm_100", true)],
    RANK: rank,
    RANK_INTERLEAVED: (r) => [members(r, "interleave_layout"), outerOnes(r, K.MIN_RANK_INTERLEAVED)],
    ADDRESS_ALIGNED: (r) => [...lessAligned(r), copies(r)],
    DTYPE: (r) => [[...(r.a.target.is_sm_9x ? carriers(r) : dataTypes(r)), ...viewed(r, 8)]],
    DATA_TYPE_OVERRIDE: (r) => [dataTypes(r)],
    OOB_NAN: fills,
    OOB_NAN_FLOAT8: fills,
    DIM_PACKED: (r) => [widened(r, Math.ceil((r.a.packed_unit * r.a.element_bits) / r.bits)), dataTypes(r)],
    DIM_RANGE: (r, i) => (r.a.global_dim[i] > 1 ? [parts(r, i)] : []),
    STRIDE_INNERMOST: innermost,
    STRIDE_UNIQUE: unique,
    STRIDE_ALIGNED: aligned,
    STRIDE_RANGE: (r, i) => [oneAtATime(r, i)],
    SPLIT_SWIZZLE: () => ["bytes128", "none"].map((swizzle) => [candidate({ swizzle }, true)]),
    SPLIT_INTERLEAVE: interleaves,
    SPLIT_RANK: splitRank,
    SPLIT_DTYPE: (r) => [carriers(r), viewed(r, 8)],
    RAGGED_RANK: (r) => [...toRank(r, K.MAX_RANK - 2), r.rank === 1 ? [candidate({ ragged: null }, true)] : []],
    RAGGED_DIM: () => [[candidate({ ragged: 0 })]],
    INTERLEAVE_32B_SWIZZLE: (r) => [members(r, "swizzle"), members(r, "interleave_layout")],
    PACKED_INTERLEAVE: (r) => [members(r, "interleave_layout"), dataTypes(r)],
    PACKED_SWIZZLE: (r) => [swizzles(r)],
    WIDE_SWIZZLE: (r) => [swizzles(r)],
    LOWER_CORNER: (r, i) => [clampedCorner(r, "lower", i)],
    UPPER_CORNER: (r, i) => [clampedCorner(r, "upper", i)],
    BOUNDING_BOX: boundingBox,
    WIDE_DIMS: spatial,
    CHANNELS: (r) => [counts(r, "channels_per_pixel")],
    PIXELS: (r) => [counts(r, "pixels_per_column")],
    BOX_RANK: (r) => [perDimension(r, "box_sizes")],
    BOX_RANGE: boxRange,
    BOX_IN_SHAPE: (r, i) => [...turnedBox(r), allow(r, "BOX_IN_SHAPE"), boxEntries(r, i)],
    BOX_INNER_16B: (r) => [boxEntries(r, 0)],
    BOX_INNER_16B_INTERLEAVED: (r) => [boxEntries(r, 0)],
    BOX_PACKED: (r) => [[candidate(withBoxEntry(r, 0, K.PADDED_INNER_VALUES))], dataTypes(r)],
    BOX_SWIZZLE_SPAN: span,
    BOX_SMEM: (r) => [shrunkBoxes(r)],
    BOX_BYTES: (r) => [shrunkBoxes(r)],
    SPLIT_SPAN: wholeSpans,
    ELEM_STRIDES_RANK: (r) => [perDimension(r, "elem_strides"), [candidate({ elem_strides: null })]],
    ELEM_STRIDES_RANGE: (r, i) => [elemStrides(r, i), stepped(r, i)],
    ELEM_STRIDES_IN_SHAPE: (r, i) => [allow(r, "ELEM_STRIDES_IN_SHAPE"), elemStrides(r, i)],
    SPLIT_STEP: (r) => [elemStrides(r, 0)],
    CHANNELS_16B: (r) => [boxEntries(r, 0)],
    COLUMN_BYTES: (r) => [counts(r, "pixels_per_column")],
  };

  /** Return the alternatives for a broken rule, the best alternative first. `a` is the C core's result for the request.
   *  `entry` is the index of the list entry that breaks the rule, or -1. */
  const alternatives = (request, a, { rule, entry }) =>
    ALTERNATIVES[rule.id]?.(seen(request, a), Math.max(0, entry)) ?? [];

  /** Return the request that results when a candidate is applied. */
  function applied(request, { change, view }) {
    if (!view) return { ...request, ...change };
    const { bits } = T.DTYPES[view.dtype] ?? R.read(request).dtype;
    return { ...request, ...view, strides: canonical(view.shape, view.strides, bits), ...change };
  }

  return { alternatives, applied, viewOf, extentBreaks, rules: Object.keys(ALTERNATIVES) };
})();
