// Pictures of the moving copy, and of the tile as the tensor core reads it. draw/motion.py and draw/atoms.py are the
// Python versions.

// A new chunk starts every SECONDS_PER_CHUNK, and its flight lasts FLIGHT * SECONDS_PER_CHUNK.
const MOST_FLYING = 64, SECONDS_PER_CHUNK = 0.22, HOLD_SECONDS = 2.5, FLIGHT = 3;
const MOTION_LEAST = 560;  // px; in a narrower panel, tensor, engine and shared memory are stacked
const ENGINE_AT = 9.4, MEMORY_AT = 14.2, MOTION_COLUMNS = 22.4;  // columns, in chunks from the left edge of the tensor
const ENGINE_ROWS = 6.4, HEADING_ROWS = 2.4;  // heights in rows of chunks, in the stacked layout

// Draw one load. The chunks move from the tensor through the engine to shared memory, one after another. The picture
// also shows for how many bytes the mbarrier still waits. Without animation, for example on paper, every chunk is at
// its destination.
function copyPicture(tile, width) {
  const all = tile.chunks.filter((c) => c.row >= 0).sort((a, b) => a.row - b.row || a.first - b.first);
  const chunks = all.slice(0, MOST_FLYING), total = SECONDS_PER_CHUNK * (chunks.length + FLIGHT) + HOLD_SECONDS;
  const sheet = new Sheet(width, `one load of ${tile.txBytes} bytes, moving from the tensor through the TMA engine to shared memory`);
  const isStacked = width < MOTION_LEAST;
  const unit = Math.min(40, (sheet.width - 2 * EDGE) / (isStacked ? 8 : MOTION_COLUMNS)), height = Math.min(24, unit), x = (column) => EDGE + column * unit;
  const percent = (n) => round(100 * SECONDS_PER_CHUNK * n / total), rows = [...new Set(chunks.map((c) => c.row))];
  sheet.say(`One load: ${tile.txBytes.toLocaleString("en")} bytes, swizzle ${tile.swizzle}`, "strong");
  const top = sheet.y + 48, y = (row) => top + row * height, tall = Math.ceil(Math.max(...chunks.map((c) => c.number + 1)) / 8);
  // The column and the row at which the engine begins, and at which shared memory begins. The tensor begins at column 0
  // and row 0.
  const engine = isStacked ? [0, rows.length * tall + HEADING_ROWS] : [ENGINE_AT, 0];
  const memory = isStacked ? [0, engine[1] + ENGINE_ROWS - 2.4 + HEADING_ROWS] : [MEMORY_AT, 0];
  const beside = isStacked ? [4.2, -3.2] : [0, 0];  // if stacked, the mbarrier's count is next to the engine
  for (const [[column, row], words] of [[[0, 0], "tensor"], [engine, "TMA engine"], [memory, "shared memory"]]) sheet.words(x(column), y(row) - 28, words, "strong");
  sheet.words(x(0), y(0) - 10, `box at (${tile.coords.join(", ")})`);
  sheet.words(x(memory[0]), y(memory[1]) - 10, "128 bytes a row");
  sheet.cell(x(engine[0]), y(engine[1] + (isStacked ? 0 : 0.5)), 3.5 * unit, 2.3 * height, "taken", { text: ["tensor map\naddress, XOR", "map\nXOR"] });
  const count = (row) => [x(engine[0] + beside[0]), y(engine[1] + row + beside[1]) + 18];
  sheet.words(...count(3.2), "mbarrier", "strong");
  sheet.words(...count(4.1), "bytes to come:");
  const places = chunks.map((c) => ({ c, from: [c.number % 8, rows.indexOf(c.row) * tall + Math.floor(c.number / 8)],
    to: [memory[0] + c.address % LINE_OF_BANKS / CHUNK, memory[1] + Math.floor((c.address - tile.smemOffset) / LINE_OF_BANKS)] }));
  for (const { c, from, to } of places) {
    const filled = c.state === "filled";
    sheet.cell(x(from[0]), y(from[1]), unit, height, filled ? "filled" : "cell", { hatched: filled });
    sheet.cell(x(to[0]), y(to[1]), unit, height, "padding");
  }
  places.forEach(({ c, from, to }, n) => {
    const move = ([column, row]) => `{transform:translate(${round((column - to[0]) * unit)}px,${round((row - to[1]) * height)}px)}`;
    const [start, middle, end] = [0, 0.5, 1].map((share) => percent(n + share * FLIGHT)), filled = c.state === "filled";
    const begin = filled ? `0%,${start}%{opacity:0}${round(start + 0.01)}%,` : `0%,${start}%${move(from)}`;
    sheet.css += `@keyframes c${n}{${begin}${middle}%${move([engine[0] + 1.25, engine[1] + (isStacked ? 0.65 : 1.15)])}${end}%,100%{transform:none}}`;
    sheet.cell(x(to[0]), y(to[1]), unit, height, filled ? "filled" : `tint${c.number % TINTS}`,
      { text: `${c.row}.${c.number}`, title: c.about, hatched: filled, key: c.key, css: `animation:c${n} ${round(total)}s linear infinite` });
  });
  const perChunk = Math.floor(tile.txBytes / all.length);
  for (let n = 0; n <= chunks.length; n++) {
    const isLast = n === chunks.length, [begin, end] = [n - 1, n].map((k) => (k < 0 ? 0 : percent(k + FLIGHT)));
    sheet.css += `@keyframes n${n}{${n ? "0%{opacity:0}" : ""}${begin}%{opacity:1}${isLast ? "" : `${end}%{opacity:0}`}}`;
    const words = isLast ? "0: done" : `${tile.txBytes - perChunk * n}`;
    sheet.words(...count(5), words, "label", "start", `opacity:${Number(isLast)};animation:n${n} ${round(total)}s step-end infinite`);
  }
  sheet.css += "@media (prefers-reduced-motion:reduce),print{g[style*=animation],text[style*=animation]{animation:none!important}}";
  sheet.y = y(Math.max(ENGINE_ROWS, rows.length * tall, ...places.map(({ to }) => to[1] + 1))) + 4;
  sheet.say("2.5 is chunk 5 of row 2 of the box. The picture goes row by row; NVIDIA does not document in which order the engine copies.");
  if (all.length > chunks.length) sheet.say(`${counted(all.length - chunks.length, "further chunk")} count with the last.`);
  return sheet.svg();
}

// --- The tensor core's view -------------------------------------------------------------------------

const MOST_ACROSS = 6, MOST_DOWN = 8;  // maximum number of atoms that are drawn in each direction

// Draw the atoms of the tile in shared memory, the K steps that read each atom, and the two byte offsets (leading and
// stride).
function corePicture(operand, width) {
  const { atoms, major, swizzle, leading, stride, starts, kElements } = operand, isPlain = swizzle === "none", isK = major === "K";
  const sheet = new Sheet(width, `the tile as ${operand.instruction} reads it, ${major}-major`);
  sheet.say(`${operand.instruction}, ${major}-major: ${operand.mnElements} of M or N, ${starts.length * kElements} of K`, "strong");
  sheet.say(`Atoms of ${operand.atomRows} rows of ${operand.span} bytes. Down: ${isK ? "M or N" : "K"}; across: ${isK ? "K" : "M or N"}.`);
  const across = Math.min(MOST_ACROSS, atoms[0].length), down = Math.min(MOST_DOWN, atoms.length), left = EDGE + 96, gap = 30, tall = 34;
  const unit = Math.min(280, (width - left - EDGE - gap * (across - 1)) / across), top = sheet.y + 26;
  const isParted = isK && !isPlain, share = isParted ? 32 / operand.span : 1;
  const x = (n) => left + n * (unit + gap), y = (n) => top + n * (tall + gap);
  for (let n = 0; n < down; n++) {
    sheet.words(left - 8, y(n) + 21, `${n * operand.atomRows}..${(n + 1) * operand.atomRows - 1}`, "label", "end");
    for (let m = 0; m < across; m++) {
      const { address, steps } = atoms[n][m];
      for (const step of steps)
        sheet.cell(x(m) + (isParted ? starts[step] % operand.span / operand.span * unit : 0), y(n), unit * share, tall, `tint${step % TINTS}`,
          { text: [`step ${step}`, `${step}`], key: `step${step}`, title: `K step ${step} starts at shared ${hex(starts[step])}; this atom is at ${hex(address)}` });
      sheet.cell(x(m), y(n), unit, tall, "box");
      sheet.words(x(m) + unit / 2, y(n) + tall + 14, hex(address), "muted", "middle");
    }
  }
  const arrow = (d, words, at, anchor) => {
    sheet.path(d, "arrow");
    sheet.words(...at, words, "label", anchor);
  };
  const [below, right] = isPlain ? (isK ? ["SBO", "LBO"] : ["LBO", "SBO"]) : ["SBO", isK ? "" : "LBO"], bytes = { LBO: leading, SBO: stride };
  if (down > 1) arrow(`M${left - 16} ${y(0) + tall}V${y(1)}m-4 -7l4 7l4 -7`, `${below} ${bytes[below]}`, [left - 24, y(0) + tall + 19], "end");
  if (right && across > 1) arrow(`M${round(x(0) + unit)} ${y(0) + 12}H${round(x(1))}m-7 -4l7 4l-7 4`, `${right} ${bytes[right]}`, [x(1) - gap / 2, y(0) - 6], "middle");
  sheet.y = y(down) - 6;
  const more = [[atoms.length - down, "row"], [atoms[0].length - across, "span"]].filter(([n]) => n > 0);
  if (more.length) sheet.say(`⋮ ${more.map(([n, what]) => counted(n, `more ${what}`)).join(" and ")} of atoms`, "label");
  const shown = starts.slice(0, 8).map((s) => hex(s)).join(", ");
  sheet.say(`Each instruction multiplies ${kElements} of K, 32 bytes. Steps start at ${shown}${starts.length > 8 ? ` and ${starts.length - 8} more` : ""}.`);
  return sheet.svg();
}

// Draw the table of the fields of the 64-bit matrix descriptor.
function descriptorPicture(operand, width) {
  const sheet = new Sheet(width, `the matrix descriptor ${operand.value}, field by field`);
  sheet.say(`The matrix descriptor: ${operand.value}`, "strong");
  sheet.say("64 bits in a register, one per K step; the tile is at shared address 0 here.");
  const places = operand.fields.map(({ first, bits }) => ends(first, bits)), wide = (texts) => Math.max(...texts.map((t) => textWidth(t))) + 14;
  const second = EDGE + 28 + wide(operand.fields.map((f) => f.name)), third = second + wide(places), fourth = third + 44;
  const isBeside = width - fourth > 250;  // whether the meanings fit next to the numbers
  sheet.y += 6;
  operand.fields.forEach(({ name, number, about }, n) => {
    sheet.cell(EDGE, sheet.y, 18, 17, `tint${n % TINTS}`, { key: `operand-${n}`, title: `${name}: ${about}` });
    sheet.words(EDGE + 28, sheet.y + 13, name, "label");
    sheet.words(second, sheet.y + 13, places[n], "muted");
    sheet.words(third, sheet.y + 13, hex(number, 1), "label");
    if (!isBeside) sheet.y += 19;
    sheet.words(isBeside ? fourth : EDGE + 28, sheet.y + 13, about);
    sheet.y += 19;
  });
  sheet.say(`${operand.sure.replace(/^./, (c) => c.toUpperCase())}.`);
  return sheet.svg();
}
