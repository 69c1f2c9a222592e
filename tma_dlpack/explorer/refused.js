// Pictures of refused requests, in which the part that breaks a rule is marked.

// Return the part of a dimension that breaks a rule, {dimension, first, last, words}; null if no part can be marked.
function faultOf(violation, state, accepted) {
  const [, name, index] = violation.found.match(/^(\w+)\[(\d+)\]/) || [null, violation.argument, violation.index];
  const inner = state.shape.length - 1, bits = tmaTables.DTYPES[state.dtype].bits, words = violation.rule;
  const whole = (n) => Math.floor(n * bits / 128) * 128 / bits;  // n elements, rounded down to a multiple of 16 bytes
  if (name === "box_sizes" && index !== null && index !== undefined) {
    const d = Number(index), size = state.box_sizes[d], start = state.coords[d] ?? 0, before = accepted?.box_sizes?.[d];
    const part = d === inner ? whole(size) : size;
    const legal = before < size ? before : part < size ? part : size > 256 ? 256 : 0;
    return { dimension: d, first: start + legal, last: start + size, words };
  }
  if (name === "strides" || name === "shape") {
    const size = state.shape[inner];
    return whole(size) < size ? { dimension: inner, first: whole(size), last: size, words } : null;
  }
  if (name === "coords" && state.coords.length === state.shape.length) {
    const d = Number(index ?? inner), at = state.coords[d];
    return { dimension: d, first: at, last: at + 1, words };
  }
  return null;
}

// Draw the tensor with the refused box. Return null if the box cannot be drawn on the dimensions of the tensor.
function refusedPicture({ state, report, tile }, accepted, shown, width) {
  const { shape, box_sizes: box, coords, elem_strides: steps } = state, rank = shape.length;
  const isDrawn = state.kind === "tiled" && rank <= 5 && [box, coords, steps].every((list) => list?.length === rank) &&
    [...shape, ...box].every((n) => n > 0) && state.interleave_layout !== "bytes16" && state.interleave_layout !== "bytes32";
  if (!isDrawn) return null;
  const violations = tile?.refusal ? [{ argument: "coords", ...tile.refusal }] : report.violations;
  const faults = violations.map((v) => faultOf(v, state, accepted?.box_sizes?.length === rank ? accepted : null)).filter(Boolean);
  const asked = { shape, coords, spans: box, steps, typeName: state.dtype, remarks: [], chunksIn: () => [] };
  return tensorPicture(asked, planeOf(state, asked), shown, width, faults.length ? faults : [{ dimension: null, words: violations[0].rule }]);
}

// Draw a tile that the tensor core cannot read. The rows are drawn in atoms of 8 rows. The part of the tile that
// fills no whole atom is marked.
function unreadablePicture(operand, tile, width) {
  const bits = tile.map.row.element_bits, rowBytes = tile.spans.at(-1) * bits / 8, rows = product(tile.spans.slice(0, -1));
  const rules = operand.refusals.map(({ rule }) => rule), isWidth = rules.includes("MATRIX_WIDTH"), isRows = rules.includes("MATRIX_ROWS");
  const span = Math.min(rowBytes, tmaTables.OPERAND.SPAN_BYTES[tile.map.swizzle] ?? 16), groups = Math.ceil(rows / 8);
  const sheet = new Sheet(width, `the tile that ${operand.instruction} cannot read: ${rules.join(", ")}`), tall = 24, left = EDGE + 76;
  sheet.say(`The tile: ${counted(rows, "row")} of ${counted(rowBytes, "byte")}, in atoms of 8 rows`, "strong");
  for (const { rule, found, limit } of operand.refusals) sheet.say(`✗ ${rule}: ${found}; ${limit}.`, "alarm");
  sheet.y += 8;
  const room = width - left - EDGE, unit = room / rowBytes;
  const shown = groups <= MOST_DOWN ? [...Array(groups).keys()] : [...Array(MOST_DOWN - 1).keys(), groups - 1];
  for (const [n, group] of shown.entries()) {
    if (n && group !== shown[n - 1] + 1) sheet.say(`⋮ ${counted(group - shown[n - 1] - 1, "more atom")}`);
    const count = Math.min(8, rows - 8 * group), isShort = isRows && count < 8, isAll = isShort || !(isWidth || isRows);
    const title = isShort ? `${counted(count, "row")}: no atom of 8` : `rows ${ends(8 * group, count)}`;
    sheet.words(left - 8, sheet.y + 16, ends(8 * group, count), "label", "end");
    sheet.cell(left, sheet.y, unit * (isWidth ? span : rowBytes), tall, isAll ? "conflict" : `tint${group % TINTS}`,
      { text: isShort ? [title, `${count} of 8`] : isWidth ? [`bytes 0..${span - 1}`, `${span}`] : "", title, hatched: isAll });
    if (isWidth && span < rowBytes)
      sheet.cell(left + unit * span, sheet.y, unit * (rowBytes - span), tall, "conflict",
        { text: [`bytes ${span}..${rowBytes - 1}`], title: `beyond the ${span} bytes of a row of an atom`, hatched: true });
    sheet.y += tall + 4;
  }
  sheet.legend([["conflict", "no instruction reads this", true]]);
  return sheet.svg();
}
