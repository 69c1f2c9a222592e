// `tmaOperand` describes a tile as an operand of wgmma or tcgen05.mma. These instructions read shared memory through a
// 64-bit matrix descriptor. The Python versions are consumer/ and draw/atoms.py. In this file, the tile starts at
// shared address 0.

const tmaOperand = (() => {
  const T = tmaTables, { K_STEP_BYTES: STEP, UNITS, SPAN_BYTES, ATOM_ROWS, MEANINGS } = T.OPERAND;

  const NO_MATRIX = { rows: 0, columns: 0, row_bytes: 0, column_bytes: 0 };
  const swizzleOf = (o) => T.ENUMS.swizzle[o.swizzle];

  /** Return an object with the fields that the rules of matrix descriptors read. The fields have the same names as in
   *  Python. */
  function operandOf(request, major) {
    const a = tmaRequest.encodeArguments(request), bits = a.row.element_bits, { target } = a;
    const own = (row) => row.capabilities.includes(target.compute_capability[0]);
    return {
      instruction: T.OPERAND.INSTRUCTIONS.find(own) ?? T.OPERAND.INSTRUCTIONS[0],
      tensor_map: { target, launchable: true }, arguments: a, swizzle: a.swizzle, major, bits,
      tile: tmaGeometry.matrixOf(a) ?? NO_MATRIX, rows_step: major === "K" ? 8 : (STEP * 8) / bits,
      dtype: String(request.dtype ?? "").replace(/^.*\./, ""),
      smem_address: 0, address_step: T.SMEM_ALIGNMENT, smem_bytes: tmaGeometry.plan(a).smemBytes,
    };
  }

  const found = {
    MATRIX_TARGET: (o) => `the map is for ${o.tensor_map.target.name}, whose tensor cores read registers`,
    MATRIX_TYPE: (o) => `the map's data type is ${o.arguments.row.name}${o.dtype ? `, the tensor's ${o.dtype}` : ""}`,
    MATRIX_MAJOR: (o) => `the tile is read MN-major, with elements of ${o.bits} bits`,
    MATRIX_INTERLEAVE: (o) => `interleave_layout is ${T.ENUMS.interleave_layout[o.arguments.interleave]}`,
    MATRIX_FILL: () => "oobfill is nan",
    MATRIX_SWIZZLE: (o) => `swizzle is ${swizzleOf(o)}, ${o.major}-major with elements of ${o.bits} bits`,
    MATRIX_RANK: (o) => `the box is (${tmaRequest.reversed(o.arguments.box_dim).join(", ")})`,
    MATRIX_WIDTH: (o) => `a row of the tile is ${o.tile.columns} x ${o.tile.row_bytes} bytes, with swizzle ${swizzleOf(o)}`,
    MATRIX_ROWS: (o) => `the tile has ${o.tile.rows} rows (${o.major === "K" ? "M or N" : "K"})`,
    MATRIX_ADDRESS: (o) => `the tile takes ${o.smem_bytes} bytes`,
  };

  /** Return the rules that refuse a tile. A rule is omitted if one of its prerequisites refuses the tile too. */
  function refusalsOf(o) {
    const failed = T.OPERAND.RULES.filter(({ id }) => !T.OPERAND_HOLDS[id](o)), ids = failed.map((row) => row.id);
    return failed.filter((row) => !row.after.some((id) => ids.includes(id)))
      .map(({ id, must }) => ({ rule: id, found: found[id](o), limit: `it must ${must}` }));
  }

  const range = (end, step, first = 0) => Array.from({ length: Math.ceil(end / step) }, (_, n) => first + n * step);

  /** Return the shared address at which each K step starts. In a K-major tile, a step starts every 32 bytes of a row.
   *  In an MN-major tile, a step starts every `rows_step` rows. */
  function startsOf({ tile, major, rows_step: step }) {
    if (major === "MN") return range(tile.column_bytes, step * tile.pitch_bytes);
    const atOnce = tile.column_bytes * Math.max(1, STEP / tile.row_bytes); // without swizzle, a step reads two columns
    return range(tile.columns * tile.column_bytes, atOnce).flatMap((at) => range(tile.row_bytes, STEP, at));
  }

  /** Return the atoms, row by row: {address, steps}. `steps` has the K steps that read the atom. */
  function atomsOf(o, { starts, leading, stride, span, atomRows }) {
    const { tile } = o, isPlain = o.swizzle === 0;
    if (o.major === "K") {
      const columns = new Map();
      starts.forEach((start, step) => {
        const at = isPlain ? [start, start + leading] : [start - (start % span)];
        for (const a of at) columns.set(a, [...(columns.get(a) ?? []), step]);
      });
      return range(tile.rows / 8, 1).map((n) => [...columns].map(([at, steps]) => ({ address: at + n * stride, steps })));
    }
    const [down, across] = isPlain ? [leading, stride] : [stride, leading];
    const spans = Math.ceil(tile.width / (span / tile.element_bytes));
    return starts.flatMap((start, step) => range(o.rows_step / atomRows, 1).map((n) =>
      range(spans, 1).map((m) => ({ address: start + n * down + m * across, steps: [step] }))));
  }

  /** Return the matrix descriptor and the atoms of an accepted request's tile, or the rules that refuse the tile. */
  function operand(request, major = "K") {
    const o = operandOf(request, major), refusals = refusalsOf(o), { instruction, tile } = o;
    if (refusals.length) return { instruction: instruction.name, major, refusals };
    const found = {
      starts: startsOf(o), leading: T.LEADING_BYTES(o), stride: T.STRIDE_BYTES(o), span: SPAN_BYTES[o.swizzle],
      atomRows: ATOM_ROWS[o.swizzle],
    };
    const [leads, strides] = MEANINGS[`${major} ${o.swizzle ? "swizzled" : "none"}`];
    const known = { // name of a field -> [number, description]
      "start address": [found.starts[0] / UNITS, "0: add the tile's own address / 16"],
      "leading byte offset": [found.leading / UNITS, `${found.leading} bytes, ${leads}`],
      "stride byte offset": [found.stride / UNITS, `${found.stride} bytes, ${strides.replace("{atom}", found.atomRows)}`],
      fixed: [instruction.fixed],
      "layout type": [instruction.layout_numbers[o.swizzle], `swizzle ${swizzleOf(o)}`],
    };
    const fields = instruction.fields.map(([name, first, bits, always]) => {
      const [number = 0, words = ""] = known[name] ?? [];
      return { name, first, bits, number, about: always || words };
    });
    const value = fields.reduce((all, { first, number }) => all | (BigInt(number) << BigInt(first)), 0n);
    return {
      ...found, instruction: instruction.name, major, refusals, sure: instruction.sure, swizzle: swizzleOf(o), fields,
      value: `0x${value.toString(16).padStart(16, "0")}`, kElements: STEP / tile.element_bytes,
      mnElements: major === "K" ? tile.rows : tile.width, atoms: atomsOf(o, found),
    };
  }

  return { operand };
})();
