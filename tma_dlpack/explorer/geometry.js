// `tmaGeometry` computes the addresses of a copy in global and in shared memory, and the bank conflicts when a tile is
// read. The Python versions are geometry/, draw/chunks.py, consumer/reads.py and consumer/verbs.py. The parameter `a`
// of the functions below is the result of tmaRequest.encodeArguments. In the lists of `a`, index 0 is the innermost
// dimension.

const tmaGeometry = (() => {
  const T = tmaTables, K = T.K;
  const { reversed, product, modulo } = tmaRequest;
  const CHUNK = 16, BANKS = 32, BANK_BYTES = 4, PHASE = 8, MAX_PHASES = 16;
  const clamp = (n, low, high) => Math.min(Math.max(n, low), high);

  /** Return the swizzled address of a byte in shared memory. The function is its own inverse. `number` is the number of
   *  the swizzle mode. */
  function swizzle(address, number) {
    let swizzled = address;
    for (const [right, mask, left] of T.SWIZZLES[number].terms)
      swizzled ^= ((address >> right) & mask) << left;
    return swizzled;
  }

  /** Return the sizes and counts that are the same for every tile of a map. A line is a row of the box, a pixel of a
   *  column, or an interleaved unit. txBytes is the number of bytes that the mbarrier counts. smemBytes is the size of
   *  the tile in shared memory, padding included. */
  function plan(a) {
    const bits = a.row.element_bits, unitBytes = [0, 16, 32][a.interleave];
    let counts, steps = [], lines;
    if (a.kind === "tiled") {
      steps = unitBytes ? a.element_strides : [1, ...a.element_strides.slice(1)];
      counts = a.box_dim.map((box, d) => Math.ceil(box / steps[d]));
      if (unitBytes) counts[a.rank - 2] = 1; // an interleaved copy takes one position of this dimension
      lines = product(unitBytes ? counts : counts.slice(1));
    } else {
      const isWide128 = a.kind === "im2col_wide" && a.mode === 1;
      counts = [a.channels, isWide128 ? T.W128_PIXELS : a.pixels];
      lines = counts[1];
    }
    const lineBytes = unitBytes || (counts[0] * bits) / 8;
    const groupBytes = (K.PACKED_GROUP * bits) / 8;
    const smemLineBytes = (lineBytes * (a.row.smem_chunk_bytes || groupBytes)) / groupBytes;
    const { span_bytes: span, repeat_bytes: smemAlignment } = T.SWIZZLES[a.swizzle];
    const pitchBytes = unitBytes ? smemLineBytes : Math.max(smemLineBytes, span);
    return {
      unitBytes, counts, steps, lines, lineBytes, smemLineBytes, pitchBytes, smemAlignment,
      smemBytes: Math.ceil((lines * pitchBytes) / span) * span,
      txBytes: lines * lineBytes,
    };
  }

  // -- im2col ------------------------------------------------------------------------------------

  const firstSpatial = (a) => (a.interleave ? 0 : 1);

  /** Return a list of {d, first, last}, with one entry for each dimension along which the pixels of an im2col column
   *  differ. The dimension W is first. `first` and `last` are the bounds of the bounding box in dimension d, both
   *  inclusive. */
  function walked(a) {
    if (a.kind === "tiled") return [];
    const count = a.kind === "im2col_wide" ? 1 : a.rank - 2;
    return Array.from({ length: count }, (_, i) => {
      const d = firstSpatial(a) + i;
      return { d, first: a.lower[i], last: a.global_dim[d] - 1 + a.upper[i] };
    });
  }

  /** Return the position of pixel number `turn` of a column. W changes fastest, then H, D and the image. */
  function pixelPosition(a, coords, offsets, turn) {
    const position = [...coords];
    for (const { d, first, last } of walked(a)) {
      const step = a.element_strides[d], start = coords[d];
      const head = Math.floor((last - start) / step) + 1; // number of positions up to the end of the bounding box
      const full = Math.floor((last - first) / step) + 1;
      if (turn < head) {
        position[d] = start + turn * step;
        turn = 0;
      } else {
        const passes = Math.floor((turn - head) / full);
        position[d] = first + (turn - head - passes * full) * step;
        turn = passes + 1;
      }
    }
    const images = a.rank - 1;
    position[images] += turn * a.element_strides[images];
    offsets.forEach((offset, i) => (position[firstSpatial(a) + i] += offset));
    return position;
  }

  // -- one tile ----------------------------------------------------------------------------------

  /** Return the position of line i of a box. Line i + 1 follows line i along the innermost dimension in which lines
   *  differ. */
  function boxPosition(a, p, coords, i) {
    const position = [...coords];
    for (let d = p.unitBytes ? 0 : 1; d < a.rank; ++d) {
      position[d] += (i % p.counts[d]) * p.steps[d];
      i = Math.floor(i / p.counts[d]);
    }
    return position;
  }

  /** Return why a tile of an accepted request cannot be loaded: [id of a row of COPY_RULES, argument, found]; null if
   *  the tile can be loaded. */
  function refusalOf(a, p, coords, offsets, smemOffset) {
    const rowBytes = (a.kind === "tiled" ? a.box_dim[0] : a.channels) * a.row.element_bits / 8;
    const span = T.SWIZZLE_SPAN_BYTES[a.swizzle] || rowBytes;
    const mode = T.ENUMS.swizzle[a.swizzle], type = a.row.name;
    if (!a.interleave && (rowBytes % K.INNER_BYTES || rowBytes > span))
      return ["COPY_BOX_ROW", "box_sizes", `a row is ${rowBytes} bytes with swizzle ${mode}`];
    if (a.target.is_sm_9x && Math.max(...a.global_dim) > T.MAX_COPIED_DIM)
      return ["COPY_DIM_31_BITS", "shape", `an extent is ${Math.max(...a.global_dim)}`];
    if (mode === "bytes128_atom_64B" && type === "16U6_ALIGN16B")
      return ["UNSUPPORTED", "swizzle", `${type} with ${mode} can be stored, not loaded`];
    if (coords.some((n) => n !== (n | 0)))
      return ["COPY_COORD_32_BITS", "coords", `coords are ${reversed(coords).join(", ")}`];
    const isPadded = a.row.smem_chunk_bytes === 16;
    const step = isPadded ? K.PADDED_INNER_VALUES : (K.INNER_BYTES * 8) / a.row.element_bits;
    if (!p.unitBytes && coords[0] % step) {
      const found = `coords[${a.rank - 1}] is ${coords[0]}; ${type} needs a multiple of ${step}`;
      return [isPadded ? "COPY_INNER_128_VALUES" : "COPY_INNER_16B", "coords", found];
    }
    const taps = walked(a).length;
    const most = T.MAX_OFFSET[taps];
    if (offsets.length && (offsets.length !== taps || offsets.some((n) => n < 0 || n > most))) {
      const found = `they are ${reversed(offsets).join(", ")}; the map needs ${taps} of 0..${most}`;
      return ["COPY_IM2COL_OFFSETS", "im2col_offsets", found];
    }
    for (const { d, first, last } of walked(a)) {
      if (coords[d] > last || (coords[d] < first && a.kind === "im2col")) {
        const found = `coords[${a.rank - 1 - d}] is ${coords[d]}; the bounding box is`;
        return ["COPY_IM2COL_START", "coords", `${found} ${first}..${last}`];
      }
    }
    if (smemOffset < 0 || smemOffset % T.SMEM_ALIGNMENT)
      return ["COPY_SMEM_OFFSET", "smem_offset", `smem_offset is ${smemOffset}`];
    if (smemOffset + p.smemBytes > a.target.max_smem_bytes)
      return ["COPY_SMEM_SIZE", "smem_offset", `the tile takes ${p.smemBytes} bytes`];
    return null;
  }

  /** Simulate the load of one tile. Coordinates and offsets are row-major. Return the fields of `plan` and the
   *  following fields. If the tile cannot be loaded, the functions are missing.
   *    refusal: {rule, argument, found, limit, fix}; null if the tile can be loaded
   *    line(i): the position of line i
   *    chunk(address): the chunk of 16 bytes at a shared address
   *    chunks(): all chunks, in the order of their addresses
   *  A chunk has these fields:
   *    address
   *    state: "data", "filled" (out of bounds), "clipped" (partly out of bounds) or "padding"
   *    row: number of the line; -1 for padding
   *    first, last: indices in the line of the chunk's first and last element
   *    element: position of the chunk's first element in the tensor, row-major
   *    globalOffset: bytes from the tensor's address to the chunk's first element
   *    linear: the shared address that the chunk would have without the swizzle
   *    swapped: whether the swizzle exchanges the two halves of 8 bytes
   *    dataBytes: number of the chunk's 16 bytes that are not padding
   *    inside: [from, end), the part of the data bytes that is in bounds */
  function tile(a, rowMajorCoords, rowMajorOffsets = null, smemOffset = 0) {
    const p = plan(a), bits = a.row.element_bits;
    const coords = reversed(rowMajorCoords), offsets = reversed(rowMajorOffsets ?? []);
    const refused = refusalOf(a, p, coords, offsets, smemOffset);
    if (refused) {
      const [rule, argument, found] = refused;
      const words = T.COPY_RULES[rule] ?? { limit: "it must be a map that can be loaded", fix: "" };
      return { ...p, refusal: { rule, argument, found, limit: words.limit, fix: words.fix } };
    }
    const strides = [p.unitBytes, ...a.global_strides].map(BigInt);
    const start = p.unitBytes ? 0 : (coords[0] * bits) / 8;
    const rowBytes = Math.floor((a.global_dim[0] * bits) / 8);
    const firstByte = p.unitBytes ? 0 : clamp(-start, 0, p.lineBytes);
    const endByte = p.unitBytes ? p.lineBytes : clamp(rowBytes - start, firstByte, p.lineBytes);
    const isTiled = a.kind === "tiled", known = [];

    /** Return the position of line i, its offset in bytes, and whether the line is in bounds. If the map is not
     *  interleaved, dimension 0 is ignored. */
    function lineOf(i) {
      if (known[i]) return known[i];
      const position = isTiled
        ? boxPosition(a, p, coords, i)
        : pixelPosition(a, coords, offsets, i);
      let inside = true, origin = 0n; // a BigInt, because addresses wrap modulo 2^64
      for (let d = p.unitBytes ? 0 : 1; d < a.rank; ++d) {
        inside = inside && position[d] >= 0 && position[d] < a.global_dim[d];
        origin += BigInt(position[d]) * strides[d];
      }
      return (known[i] = { position, inside, origin: Number(BigInt.asIntN(64, origin)) });
    }

    function chunk(address) {
      address -= address % CHUNK;
      const swizzled = swizzle(address, a.swizzle);
      const linear = swizzled - (swizzled % CHUNK);
      const row = Math.floor((linear - smemOffset) / p.pitchBytes);
      const byte = linear - smemOffset - row * p.pitchBytes;
      const swapped = swizzled !== linear;
      if (row < 0 || row >= p.lines || byte >= p.smemLineBytes)
        return { address, state: "padding", row: -1, linear, swapped };
      const { position, inside, origin } = lineOf(row);
      const dataBytes = Math.floor((CHUNK * p.lineBytes) / p.smemLineBytes);
      const first = Math.floor((byte * p.lineBytes) / p.smemLineBytes);
      const from = inside ? clamp(firstByte - first, 0, dataBytes) : 0;
      const end = inside ? clamp(endByte - first, from, dataBytes) : 0;
      const state = end - from === dataBytes ? "data" : end > from ? "clipped" : "filled";
      const element = reversed(position), firstElement = Math.floor((first * 8) / bits);
      if (!p.unitBytes) element[a.rank - 1] += firstElement;
      return {
        address, state, row, linear, swapped, element, dataBytes,
        first: firstElement,
        last: Math.floor(((first + dataBytes) * 8) / bits) - 1,
        globalOffset: origin + start + first,
        inside: [from, end],
      };
    }

    return {
      ...p,
      refusal: null,
      line: (i) => ({ ...lineOf(i), position: reversed(lineOf(i).position) }),
      chunk,
      chunks: () =>
        Array.from({ length: p.smemBytes / CHUNK }, (_, n) => chunk(smemOffset + n * CHUNK)),
    };
  }

  /** Return the row-major coordinates of a first tile: zeros, or for im2col maps the first pixel of the bounding
   *  box. */
  function firstCoords(a) {
    const coords = a.global_dim.map(() => 0);
    for (const { d, first } of walked(a)) coords[d] = first;
    return reversed(coords);
  }

  // -- bank conflicts ----------------------------------------------------------------------------

  /** Return the reads of the whole tile, column by column or row by row, grouped into phases of at most 8 reads. A read
   *  is [line, byte]: the 16 bytes of a line from `byte` on. */
  function pattern(p, name) {
    const columns = Array.from({ length: p.smemLineBytes / CHUNK }, (_, n) => n * CHUNK);
    let rows = Array.from({ length: p.lines }, (_, n) => n);
    if (name === "column") rows = rows.slice(0, Math.floor(p.lines / PHASE) * PHASE || p.lines);
    const places = name === "column"
      ? columns.flatMap((byte) => rows.map((row) => [row, byte]))
      : rows.flatMap((row) => columns.map((byte) => [row, byte]));
    return inPhases(places, Math.min(PHASE, name === "column" ? rows.length : places.length));
  }

  function inPhases(places, width) {
    const count = Math.floor(places.length / width);
    return Array.from({ length: count }, (_, n) => places.slice(n * width, (n + 1) * width));
  }

  /** Return the bank conflicts of an access. `access` is "column", "row", or a list of the shared addresses of 16-byte
   *  reads. A phase of such a list has 8 reads. `degrees` has, for each phase, the maximum number of words in one bank.
   *  `worst` is the largest degree, and `wavefronts` the sum of the degrees. `phases` has the words that each of the
   *  first MAX_PHASES phases reads. */
  function banks(a, access, { swizzle: mode = a.swizzle, smemOffset = 0 } = {}) {
    const number = tmaRequest.member("swizzle", mode), own = plan(a), p = plan({ ...a, swizzle: number });
    const place = (address) => {
      const plain = swizzle(address, a.swizzle) - smemOffset;
      return [Math.floor(plain / own.pitchBytes), plain % own.pitchBytes];
    };
    const reads =
      typeof access === "string" ? pattern(own, access) : inPhases(access.map(place), PHASE);
    const wordsOf = ([row, byte]) => {
      const start = smemOffset + row * p.pitchBytes + byte;
      const words = Array.from({ length: CHUNK / BANK_BYTES }, (_, n) =>
        Math.floor(swizzle(start + n * BANK_BYTES, number) / BANK_BYTES));
      return words.sort((x, y) => x - y);
    };
    const degreeOf = (phase) => {
      const counts = new Array(BANKS).fill(0);
      for (const word of new Set(phase.flat())) ++counts[word % BANKS];
      return Math.max(...counts);
    };
    const phases = reads.map((phase) => phase.map(wordsOf));
    const degrees = phases.map(degreeOf);
    return {
      degrees,
      worst: Math.max(...degrees),
      wavefronts: degrees.reduce((x, y) => x + y, 0),
      phases: phases.slice(0, MAX_PHASES),
    };
  }

  /** Return the layout of a tile as one matrix; null if the tile is not one matrix. The matrix is divided into
   *  `columns` columns of one span each. */
  function matrixOf(a) {
    const p = plan(a), bytes = Math.floor(a.row.element_bits / 8); // 0 for packed types
    if (p.unitBytes || !bytes) return null;
    let columns = 1;
    if (a.kind === "tiled") {
      const split = a.is_split ? a.rank - (a.is_ragged ? 3 : 1) : null; // the dimension whose positions are spans
      const axes = reversed([...p.counts.keys()].filter((d) => d > 0 && d !== split && p.counts[d] > 1));
      if (split !== null) columns = p.counts[split];
      else if (axes.length && axes[0] > 1 && (axes.length > 1 || a.global_dim[1] > 1)) {
        const stepBytes = p.steps[axes[0]] * a.global_strides[axes[0] - 1];
        if (stepBytes === p.lineBytes) columns = p.counts[axes.shift()];
      }
      if (a.rank < 2 || axes.length > 1) return null;
    }
    const rows = p.lines / columns, width = (columns * p.lineBytes) / bytes;
    return {
      columns, rows, row_bytes: p.lineBytes, pitch_bytes: p.pitchBytes, element_bytes: bytes, width,
      column_bytes: rows * p.pitchBytes,
    };
  }

  /** Return the shared addresses that the 32 lanes of a warp pass to ldmatrix; null if ldmatrix cannot read at `row`
   *  and `column`. */
  function ldmatrix(a, row, column, { num = 4, transpose = false, smemAddress = 0 } = {}) {
    const m = matrixOf(a);
    const [rows, columns] = num === 4 ? [2, 2] : transpose ? [num, 1] : [1, num];
    const isInside = m && row >= 0 && row + rows * PHASE <= m.rows
      && column >= 0 && column + (columns * CHUNK) / m.element_bytes <= m.width;
    if (!isInside || (column * m.element_bytes) % CHUNK || (transpose && m.element_bytes !== 2))
      return null;
    return Array.from({ length: 32 }, (_, n) => {
      const lane = n % (PHASE * rows * columns), matrix = Math.floor(lane / PHASE);
      const atRow = row + (matrix % rows) * PHASE + (lane % PHASE);
      const atByte = column * m.element_bytes + Math.floor(matrix / rows) * CHUNK;
      const span = Math.floor(atByte / m.row_bytes), byte = modulo(atByte, m.row_bytes);
      const start = smemAddress + span * m.column_bytes + atRow * m.pitch_bytes + byte;
      return swizzle(start, a.swizzle);
    });
  }

  return { plan, walked, tile, firstCoords, banks, ldmatrix, matrixOf };
})();
