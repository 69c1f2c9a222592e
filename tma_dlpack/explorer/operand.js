// A tile as an operand of wgmma or tcgen05.mma, which read shared memory through 64 bits.
// As consumer/ and draw/matrix.py do in Python; the tile's address in shared memory is 0.
"use strict";

const tmaOperand = (() => {
  const T = tmaTables, { K_STEP_BYTES: STEP, UNITS, SPAN_BYTES } = T.OPERAND;
  const FLOAT8 = ["float8_e4m3fn", "float8_e5m2"];

  /** What the predicates below read. */
  function operandOf(request, major) {
    const a = tmaRequest.encodeArguments(request), bits = a.row.element_bits;
    const capability = Math.floor(Number(a.target.name.slice(3)) / 10);
    const swizzle = T.ENUMS.swizzle[a.swizzle], own = (row) => row.capabilities.includes(capability);
    const instruction = T.OPERAND.INSTRUCTIONS.find(own) ?? T.OPERAND.INSTRUCTIONS[0];
    return {
      a, bits, capability, swizzle, instruction, major, tile: tmaGeometry.matrixOf(a),
      dtype: String(request.dtype ?? "").replace(/^.*\./, ""), span: SPAN_BYTES[a.swizzle],
      rowsStep: major === "K" ? 8 : (STEP * 8) / bits, atomRows: swizzle === "bytes128_atom_32B" ? 4 : 8,
      isPlain: a.swizzle === 0,
    };
  }

  const HOLDS = {
    MATRIX_TARGET: (o) => o.instruction.capabilities.includes(o.capability),
    MATRIX_TYPE: ({ a, dtype }) => T.OPERAND.TYPES.includes(a.row.name)
      && (a.row.name !== "UINT8" || FLOAT8.includes(dtype) || !/^(float|u?int4)/.test(dtype)),
    MATRIX_MAJOR: (o) => o.major === "K" || o.instruction.mn_bits.includes(o.bits),
    MATRIX_INTERLEAVE: ({ a }) => a.interleave === 0,
    MATRIX_FILL: ({ a }) => a.oob_fill === 0,
    MATRIX_SWIZZLE: (o) => {
      const isTurned = o.instruction.name === "tcgen05" && o.major === "MN" && o.bits === 32;
      return o.swizzle in o.instruction.layout_types && isTurned === (o.swizzle === "bytes128_atom_32B");
    },
    MATRIX_RANK: ({ tile }) => tile !== null,
    MATRIX_WIDTH: ({ tile, span, major, isPlain }) => {
      if (isPlain) return tile?.lineBytes === span && (major === "MN" || tile.columns % 2 === 0);
      return major === "K" ? tile?.lineBytes % STEP === 0 : tile?.columns === 1 || tile?.lineBytes === span;
    },
    MATRIX_ROWS: ({ tile, rowsStep }) => tile?.rows % rowsStep === 0,
  };
  const found = {
    MATRIX_TARGET: (o) => `the map is for ${o.a.target.name}, whose tensor cores read registers`,
    MATRIX_TYPE: (o) => `the map's data type is ${o.a.row.name}${o.dtype ? `, the tensor's ${o.dtype}` : ""}`,
    MATRIX_MAJOR: (o) => `the tile is read MN-major, with elements of ${o.bits} bits`,
    MATRIX_INTERLEAVE: (o) => `interleave_layout is ${T.ENUMS.interleave_layout[o.a.interleave]}`,
    MATRIX_FILL: () => "oobfill is nan",
    MATRIX_SWIZZLE: (o) => `swizzle is ${o.swizzle}, ${o.major}-major with elements of ${o.bits} bits`,
    MATRIX_RANK: (o) => `the box is (${tmaRequest.reversed(o.a.box_dim).join(", ")})`,
    MATRIX_WIDTH: ({ tile, swizzle }) => `a row of the tile is ${tile.columns} x ${tile.lineBytes} bytes, with swizzle ${swizzle}`,
    MATRIX_ROWS: ({ tile, major }) => `the tile has ${tile.rows} rows (${major === "K" ? "M or N" : "K"})`,
  };

  /** The rows of T.OPERAND.RULES that refuse a tile; those that an earlier one settles are left out. */
  function refusalsOf(o) {
    const failed = T.OPERAND.RULES.filter(({ id }) => HOLDS[id] && !HOLDS[id](o)), ids = failed.map((row) => row.id);
    return failed.filter((row) => !row.after.some((id) => ids.includes(id)))
      .map(({ id, must }) => ({ rule: id, found: found[id](o), limit: `it must ${must}` }));
  }

  /** The leading and the stride byte offset. */
  function offsetsOf({ tile, major, span, atomRows, isPlain }) {
    const column = tile.rows * tile.pitchBytes, atom = atomRows * span;
    if (!isPlain) return [major === "K" ? UNITS : column, atom];
    return major === "K" ? [column, atom] : [atom, column];
  }

  const range = (end, step, first = 0) => Array.from({ length: Math.ceil(end / step) }, (_, n) => first + n * step);

  /** Where each K step starts: every 32 bytes of a row, or every `rowsStep` rows. */
  function startsOf({ tile, major, rowsStep }) {
    const column = tile.rows * tile.pitchBytes;
    if (major === "MN") return range(column, rowsStep * tile.pitchBytes);
    const atOnce = column * Math.max(1, STEP / tile.lineBytes); // without a swizzle a step takes two columns
    return range(tile.columns * column, atOnce).flatMap((at) => range(tile.lineBytes, STEP, at));
  }

  /** The atoms, row by row: {address, steps}. */
  function atomsOf(o, starts, leading, stride) {
    const { tile, isPlain, span } = o;
    if (o.major === "K") {
      const columns = new Map();
      starts.forEach((start, step) => {
        const at = isPlain ? [start, start + leading] : [start - (start % span)];
        for (const a of at) columns.set(a, [...(columns.get(a) ?? []), step]);
      });
      return range(tile.rows / 8, 1).map((n) => [...columns].map(([at, steps]) => ({ address: at + n * stride, steps })));
    }
    const [down, across] = isPlain ? [leading, stride] : [stride, leading];
    const spans = Math.ceil(tile.width / (span / tile.elementBytes));
    return starts.flatMap((start, step) => range(o.rowsStep / o.atomRows, 1).map((n) =>
      range(spans, 1).map((m) => ({ address: start + n * down + m * across, steps: [step] }))));
  }

  /** The descriptor of an accepted request's tile and its atoms, or why there is none. */
  function operand(request, major = "K") {
    const o = operandOf(request, major), refusals = refusalsOf(o), { instruction, tile } = o;
    if (refusals.length) return { instruction: instruction.name, major, refusals };
    const [leading, stride] = offsetsOf(o), starts = startsOf(o);
    const numbers = {
      "start address": starts[0] / UNITS, "leading byte offset": leading / UNITS, "stride byte offset": stride / UNITS,
      fixed: instruction.fixed, "layout type": instruction.layout_types[o.swizzle],
    };
    const fields = instruction.fields.map(([name, first, bits]) => ({ name, first, bits, number: numbers[name] ?? 0 }));
    const value = fields.reduce((all, { first, number }) => all | (BigInt(number) << BigInt(first)), 0n);
    return {
      instruction: instruction.name, major, refusals, sure: instruction.sure, swizzle: o.swizzle, leading, stride, starts, fields,
      value: `0x${value.toString(16).padStart(16, "0")}`, kElements: STEP / tile.elementBytes,
      mnElements: major === "K" ? tile.rows : tile.width, atomRows: o.atomRows, span: o.span,
      atoms: atomsOf(o, starts, leading, stride),
    };
  }

  return { operand };
})();
