// Pictures of the tile in shared memory, of its banks, and of the map's 128 bytes.

const CHUNK = 16, LINE_OF_BANKS = 128, BANKS = 32;  // bytes of a chunk, bytes of a line, number of banks (4 bytes each)
const MOST_LINES = 32, FEW_LINES = 16;  // maximum number of lines that are drawn, in a large and in a small picture
const hex = (address, digits = 4) => `0x${address.toString(16).padStart(digits, "0")}`;
const columnsOf = (chunk) => (chunk.last > chunk.first ? `c${chunk.first}..${chunk.last}` : `c${chunk.first}`);
// Return labels of a chunk, the longest first. The first label has the row and the elements, in two lines. If isShort
// is true, the first label has only the row and the first element.
const labels = (chunk, isShort) => (chunk.row < 0 ? "" : [
  `r${chunk.row}\n${isShort ? `c${chunk.first}` : columnsOf(chunk)}${chunk.swapped ? " ⇄" : ""}`, `r${chunk.row}\nc${chunk.first}`, `${chunk.row}`]);

// Return a function that returns the label of a chunk's four banks. In a narrow picture, the label has only the first
// bank.
const bankNames = (unit) => (textWidth("28..31", LEAST_FONT) <= unit - 2 ? (k) => `${4 * k}..${4 * k + 3}` : (k) => `${4 * k}`);

// Divide the lines of 128 bytes into blocks, and return the blocks that are drawn. A block is not drawn if it looks
// like the previous drawn block except for the row numbers.
function blocksOf(lines, pitch, repeat, marked, most) {
  let step = Math.max(1, Math.ceil(Math.max(pitch, repeat) / LINE_OF_BANKS));
  step = Math.min(step, most);
  while (step < (marked ? 8 : 4)) step *= 2;
  const isMarked = (c) => Boolean(marked?.has(c.key));
  const alike = (a, b) => a && a.length === b.length && a.every((line, n) => line.length === b[n].length && line.every((c, k) => {
    const d = b[n][k];
    return c.state === d.state && isMarked(c) === isMarked(d) && c.first === d.first && c.swapped === d.swapped && (c.row < 0 || d.row - c.row === b[0][0].row - a[0][0].row);
  }));
  const blocks = [];
  let drawn = 0;
  for (let begin = 0; begin < lines.length; begin += step) {
    const block = lines.slice(begin, begin + step), last = blocks.at(-1);
    if (last && alike(last.lines, block)) last.like.push(...block);
    else if (drawn < most) {
      blocks.push({ lines: block, like: [] });
      drawn += block.length;
    } else {
      last.left = lines.length - begin;
      break;
    }
  }
  return blocks;
}

const rowsOf = (lines) => {
  const rows = lines.flat().map((c) => c.row).filter((r) => r >= 0);
  return rows.length ? ends(Math.min(...rows), Math.max(...rows) - Math.min(...rows) + 1) : "";
};

// Draw chunks of shared memory. The chunks must be in the order of their addresses. `marked` has the keys of the chunks
// that a phase reads.
function memoryPicture(heading, chunks, tile, width, { marked = null, words = [], most = MOST_LINES } = {}) {
  const sheet = new Sheet(width, `shared memory: ${heading}`);
  sheet.say(heading, "strong");
  const left = EDGE + 52, unit = (width - left - EDGE) / 8, height = 34;
  sheet.y += LINE + 2;
  sheet.words(left - 6, sheet.y - 4, "bank", "muted", "end");
  const named = bankNames(unit);
  for (let k = 0; k < 8; k++)
    sheet.cell(left + k * unit, sheet.y - LINE, unit, LINE, "plain", { text: named(k), key: `bank${k}`,
      title: `banks ${4 * k}..${4 * k + 3}: bytes ${16 * k}..${16 * k + 15} of every 128` });
  const lines = [];
  for (const chunk of chunks) {
    const n = Math.floor((chunk.address - tile.smemOffset) / LINE_OF_BANKS);
    (lines[n] ??= []).push(chunk);
  }
  const states = new Set(), widest = Math.max(...chunks.filter((c) => c.row >= 0).map((c) => columnsOf(c).length + 2 * c.swapped));
  const isShort = textWidth("c".repeat(widest), LEAST_FONT) > unit - 2;
  // All labels of chunks have the same font size.
  const size = isShort ? FONT : Math.max(LEAST_FONT, Math.min(FONT, (unit - 2) / (widest * GLYPH)));
  for (const block of blocksOf(lines, tile.pitchBytes, tile.repeatBytes, marked, most)) {
    for (const line of block.lines) {
      sheet.words(left - 6, sheet.y + height / 2 + 4, hex(line[0].address), "muted", "end");
      for (const chunk of line) {
        const x = left + chunk.address % LINE_OF_BANKS / CHUNK * unit, dim = marked && !marked.has(chunk.key);
        const part = unit * (chunk.row < 0 ? 1 : chunk.dataBytes / CHUNK);
        const tint = ["data", "clipped"].includes(chunk.state) && !dim;
        states.add(chunk.state);
        sheet.cell(x, sheet.y, part, height, tint ? `tint${chunk.number % TINTS}` : chunk.state === "filled" && !dim ? "filled" : "padding", {
          text: labels(chunk, isShort), most: size, key: chunk.key, to: chunk.to, title: chunk.about, hatched: ["filled", "clipped"].includes(chunk.state) && !dim });
        if (part < unit) {
          states.add("gap");
          sheet.cell(x + part, sheet.y, unit - part, height, "padding", { title: `${CHUNK - chunk.dataBytes} bytes of gap: written, no value` });
        }
      }
      sheet.y += height;
    }
    const further = [block.like.length ? `rows ${rowsOf(block.like)} like rows ${rowsOf(block.lines)}` : "",
      block.left ? `${counted(block.left, "more line")} of 128 bytes not drawn` : ""].filter(Boolean);
    if (further.length) sheet.say(`⋮ ${further.join("; ")}`, "label");
    sheet.y += further.length ? 6 : 0;
  }
  sheet.y += 4;
  for (const line of words) sheet.say(line);
  const meanings = { data: ["tint0", "in bounds"], filled: ["filled", "out of bounds: filled", true],
    clipped: ["tint0", "partly out of bounds", true], padding: ["padding", "untouched by the copy"], gap: ["padding", "gap of a packed type"] };
  sheet.legend(Object.keys(meanings).filter((s) => states.has(s)).map((s) => meanings[s]));
  return sheet.svg();
}

// --- The swizzle as bits --------------------------------------------------------------------------

const ADDRESS_BITS = 11;

// Draw the bits of one chunk's address, and mark the bits that the swizzle reads and the bits that the swizzle changes.
function bitsPicture(chunk, tile, width) {
  const sheet = new Sheet(width, "the swizzle of one address, bit by bit");
  sheet.say(`The swizzle ${tile.swizzle}, bit by bit: row ${chunk.row}, elements ${ends(chunk.first, chunk.last - chunk.first + 1)}`, "strong");
  const left = EDGE + 118, unit = Math.min(46, (width - left - EDGE) / ADDRESS_BITS), x = (bit) => left + (ADDRESS_BITS - 1 - bit) * unit;
  const reads = new Set(), writes = new Set();
  for (const [right, mask, to] of tile.terms)
    for (let b = 0; mask >> b; b++) if (mask >> b & 1) [reads.add(right + b), writes.add(to + b)];
  sheet.y += LINE;
  const heads = sheet.y, before = heads + 8, after = before + 78;
  for (let bit = 0; bit < ADDRESS_BITS; bit++) sheet.words(x(bit) + unit / 2, heads, bit, "muted", "middle");
  sheet.words(left - 8, heads, "bit", "muted", "end");
  const row = (name, y, address, styled) => {
    sheet.words(left - 8, y + 19, `${name} ${hex(address)}`, "label", "end");
    for (let bit = 0; bit < ADDRESS_BITS; bit++)
      sheet.cell(x(bit), y, unit, 28, styled(bit), { text: address >> bit & 1 });
  };
  row("before", before, chunk.linear, (bit) => (reads.has(bit) ? "taken" : writes.has(bit) ? "tint2" : "cell"));
  for (const [right, mask, to] of tile.terms)
    for (let b = 0; mask >> b; b++) {
      if (!(mask >> b & 1)) continue;
      const from = x(right + b) + unit / 2, at = x(to + b) + unit / 2, y = before + 28;
      sheet.path(`M${round(from)} ${y}C${round(from)} ${y + 30} ${round(at)} ${y + 12} ${round(at)} ${y + 44}m-4 -7l4 7l4 -7`, "arrow");
    }
  sheet.words(left - 8, before + 56, "XOR into", "muted", "end");
  row("after", after, chunk.address, (bit) => (writes.has(bit) ? ((chunk.address ^ chunk.linear) >> bit & 1 ? "changed" : "tint2") : "cell"));
  sheet.y = after + 34;
  const line = chunk.linear >> 7 & 7, chunkBefore = chunk.linear >> 4 & 7, chunkAfter = chunk.address >> 4 & 7;
  sheet.say(tile.terms.length ? `It is line ${line} of eight, so chunk ${chunkBefore} goes to chunk ${chunkAfter} of its line: banks ${4 * chunkAfter}..${4 * chunkAfter + 3} instead of ${4 * chunkBefore}..${4 * chunkBefore + 3}. Bits 0 to 3 stay: 16 bytes move together. The bits are those of the address in shared memory: align the tile to ${tile.repeatBytes} bytes, or the pattern begins in its middle.`
    : "No swizzle: every chunk stays where it is, so that one column of the tile is in the same four banks row after row.");
  return sheet.svg();
}

// --- Banks ------------------------------------------------------------------------------------------

// Draw one phase of an access. The picture has one row per wavefront, and shows in which banks the 16 bytes of each
// thread are.
function phasePicture(found, phase, access, width) {
  const sheet = new Sheet(width, `phase ${phase + 1} of ${found.degrees.length}`), words = found.phases[phase];
  const first = phase * words.length % 32, degree = found.degrees[phase], left = EDGE + 96, unit = (width - left - EDGE) / BANKS;
  sheet.say(`Phase ${phase + 1} of ${found.degrees.length}: threads ${ends(first, words.length)} read ${access}`, "strong");
  sheet.y += LINE + 2;
  const top = sheet.y;
  for (let bank = 0; bank < BANKS; bank += 4) {
    sheet.cell(left + bank * unit, top - LINE, 4 * unit, LINE, "plain", { text: bankNames(4 * unit)(bank / 4) });
    sheet.cell(left + bank * unit, top, 4 * unit, degree * 24, "padding");
  }
  sheet.words(left - 6, top - 4, "bank", "muted", "end");
  for (let n = 0; n < degree; n++) sheet.words(left - 6, top + 24 * n + 16, `wavefront ${n + 1}`, "muted", "end");
  const level = Array(BANKS).fill(0), readers = new Map();
  words.forEach((read, n) => {
    const key = read.join(" ");
    if (read.length) readers.set(key, [...(readers.get(key) || []), first + n]);
  });
  for (const [key, threads] of readers) {
    const banks = key.split(" ").map((word) => word % BANKS), at = Math.max(...banks.map((b) => level[b]));
    for (const b of banks) level[b] = at + 1;
    const name = threads.join(", ");
    sheet.cell(left + Math.min(...banks) * unit, top + 24 * at, banks.length * unit, 24, at ? "conflict" : "taken", {
      text: [`thread ${name}`, name, threads[0]], title: `thread ${name}: shared ${hex(4 * key.split(" ")[0])}, bank ${banks[0]}` });
  }
  sheet.y = top + 24 * degree + 4;
  sheet.say(degree === 1 ? "No bank is asked twice: one wavefront serves all of these threads."
    : `${degree} threads meet in one bank: ${degree} wavefronts, one after the other, where 1 would do.`, degree === 1 ? "label" : "alarm");
  sheet.say("Shared memory has 32 banks of 4 bytes. Threads of 16 bytes each are served 8 at a time.");
  return sheet.svg();
}

// Draw a list of the swizzles that the box allows. ranked: [{name, own, wavefronts, worst}], the swizzle with the
// fewest wavefronts first.
function rankedPicture(ranked, width) {
  const sheet = new Sheet(width, "swizzles ranked by wavefronts");
  sheet.say("The same access with each swizzle that this box allows: wavefronts in all", "strong");
  sheet.y += 8;
  const left = EDGE + 176, room = width - left - EDGE - 130, most = Math.max(1, ...ranked.map((r) => r.wavefronts));
  for (const r of ranked) {
    sheet.words(left - 8, sheet.y + 15, `${r.name}${r.own ? " (yours)" : ""}`, r.own ? "strong" : "label", "end");
    sheet.cell(left, sheet.y, room * r.wavefronts / most, 20, r.worst > 1 ? "conflict" : "taken");
    sheet.words(left + room * r.wavefronts / most + 8, sheet.y + 15, `${r.wavefronts}, ${r.worst > 1 ? `worst ${r.worst}-way` : "free"}`, "label");
    sheet.y += 26;
  }
  return sheet.svg();
}

// --- The 128 bytes ------------------------------------------------------------------------------------

const REST = { group: "the rest", style: "cell" };

// Return the fields with a group, a style and letters. The groups, styles and letters are the same as in
// draw/map_bytes.py.
function marked(fields) {
  let small = 0;
  return fields.map((field) => {
    const entry = Object.entries(FIELD_GROUPS).find(([, [, letters]]) => field.name in letters);
    if (!entry) return { ...field, ...REST, key: String.fromCharCode(97 + small++) };
    const [group, [style, letters]] = entry;
    return { ...field, group, style, key: `${letters[field.name]}${field.index ?? ""}` };
  });
}

// Draw the 128 bytes. fields: [{label, pieces: [[bit, width], ...], value}], the result of tmaModel.fields.
function bytesPicture(bytes, fields, width) {
  const sheet = new Sheet(width, "the 128 bytes of the tensor map");
  const left = EDGE + 30, unit = (width - left - EDGE) / 64;
  const used = new Set(fields.flatMap((f) => f.pieces.map(([bit]) => Math.floor(bit / 64))));
  sheet.say("The 128 bytes of the CUtensorMap that the hardware reads", "strong");
  sheet.y += LINE + 2;
  for (let n = 0; n < 8; n++) sheet.words(left + (8 * n + 4) * unit, sheet.y - 4, `+${n}`, "muted", "middle");
  sheet.words(left - 6, sheet.y - 4, "byte", "muted", "end");
  for (let line = 0; line < 16; line++) {
    const data = [...bytes.slice(8 * line, 8 * line + 8)];
    if (!used.has(line) && line >= 8 && data.every((b) => b === 0)) continue;
    sheet.words(left - 6, sheet.y + 14, 8 * line, "muted", "end");
    sheet.cell(left, sheet.y, 64 * unit, 20, "padding");
    marked(fields).forEach((field) => {
      for (const [bit, count] of field.pieces) {
        if (Math.floor(bit / 64) !== line) continue;
        const last = bit + count - 1;
        sheet.cell(left + bit % 64 * unit, sheet.y, count * unit, 20, field.style, { key: `field-${field.label}`,
          text: [`${field.key} ${field.label}`, field.key], title: `${field.label}: bit${count > 1 ? `s ${bit}..${last}` : ` ${bit}`}\nvalue ${valueOf(field)}` });
      }
    });
    data.forEach((byte, n) => sheet.words(left + (8 * n + 4) * unit, sheet.y + 33, byte.toString(16).padStart(2, "0"), "label", "middle"));
    sheet.y += 42;
  }
  sheet.say("Bit 0 of each byte is at the left; letters are those of the table; the other bytes are 0. In brackets: the stored number, where it is the value - 1 or in units of 16 bytes.");
  sheet.say("The layout was measured on an H200 (driver 580.159.04); NVIDIA does not publish it, and it may change.");
  return sheet.svg();
}

function fieldsPicture(fields, width) {
  const sheet = new Sheet(width, "fields of the tensor map and their values");
  const places = (f) => f.pieces.map(([bit, count]) => ends(bit, count)).join(", ");
  const second = EDGE + 28 + Math.max(...fields.map((f) => textWidth(f.label))) + 16;
  const longest = Math.max(...fields.map((f) => textWidth(valueOf(f)))), own = Math.max(...fields.map((f) => textWidth(places(f)))) + 16;
  const hasBits = second + own + longest + EDGE <= width || width > 560;  // a narrow table omits the column of bits
  const third = second + own * hasBits;
  const row = (x, text, style) => sheet.words(x, sheet.y + 13, text, style);
  for (const [x, head] of [[EDGE + 28, "field"], ...(hasBits ? [[second, "bits"]] : []), [third, "value"]]) row(x, head, "muted");
  sheet.y += 20;
  const all = marked(fields), groups = [...Object.keys(FIELD_GROUPS), REST.group];
  const sorted = groups.flatMap((group) => all.filter((field) => field.group === group));
  sorted.forEach((field, n) => {
    if (field.group !== sorted[n - 1]?.group) {
      sheet.words(EDGE, sheet.y + 13, field.group, "strong");
      sheet.y += 19;
    }
    sheet.cell(EDGE, sheet.y, 22, 17, field.style, { text: field.key, key: `field-${field.label}`, title: `${field.label} = ${valueOf(field)}` });
    row(EDGE + 28, field.label, "label");
    if (hasBits) row(second, places(field), "muted");
    row(third, valueOf(field), "label");
    sheet.y += 19;
  });
  sheet.width = third + longest + EDGE;
  return sheet;
}

// Return the value of a field as text. If the number that the bits store differs from the value, add the stored number
// in brackets.
function valueOf({ name, value, bias, unit }) {
  const menu = Object.keys(tmaTables.OPTION_NAMES).find((ours) => tmaTables.OPTION_NAMES[ours] === name);
  if (menu) return `${tmaTables.ENUMS[menu][value]} (${value})`;
  if (name === "global_address") return hex(value, 1);
  if (name === "global_strides") return `${value} bytes (${hex(value / unit, 1)})`;
  return bias ? `${value} (${hex(value - bias, 1)})` : `${value}`;
}
