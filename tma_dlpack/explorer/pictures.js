// Pictures as SVG text. Their styles, STYLE_SHEET and STYLE_ATTRIBUTES, come from draw/grid.py. A picture is as wide
// as its place in the page, and all its letters have the same size.

const FONT = 12, LEAST_FONT = 12, GLYPH = 0.61;  // two font sizes in px; a letter's width as a share of its font size
const EDGE = 12, LINE = 17;  // px: the margin around a picture, and the height of a line of text
const TINTS = 8;
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const textWidth = (text, size = FONT) => String(text).length * size * GLYPH;
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const ends = (first, count) => (count > 1 ? `${first}..${first + count - 1}` : `${first}`);
const round = (x) => Math.round(x * 100) / 100;

class Sheet {
  constructor(width, about) {
    Object.assign(this, { width, about, parts: [], data: {}, css: "", y: EDGE });
  }
  cell(x, y, width, height, style, { text = "", title = "", key = "", to = [], hatched = false, most = FONT, css = "" } = {}) {
    const box = `x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, width))}" height="${round(Math.max(0, height))}"`;
    let drawn = `<rect ${box} class="t-${style}" ${STYLE_ATTRIBUTES[style] || ""}` +
      (key ? ` data-k="${key}"` : "") + (to.length ? ` data-to="${to.join(" ")}"` : "") + "/>";
    if (title) drawn = `<title>${escaped(title)}</title>${drawn}`;
    if (hatched) drawn += hatching(x, y, width, height);
    if (text !== "") drawn += this.fitted(text, x, y, width, height, most);
    this.parts.push(`<g${css && ` style="${css}"`}>${drawn}</g>`);
  }
  // Return the first of several texts that fits into a rectangle, as centred SVG text; "" if none of the texts fits.
  fitted(texts, x, y, width, height, most) {
    const sized = [texts].flat().map((text) => {
      const lines = String(text).split("\n"), longest = Math.max(...lines.map((l) => l.length));
      return [lines, Math.min(most, (width - 2) / (longest * GLYPH), (height - 1) / (lines.length * 1.15))];
    });
    const [lines, size] = sized.find(([, size]) => size >= LEAST_FONT) || [];
    if (!lines) return "";
    const top = y + (height - size * 1.15 * lines.length) / 2 + 0.88 * size;
    return lines.map((line, n) => `<text x="${round(x + width / 2)}" y="${round(top + n * 1.15 * size)}" ` +
      `text-anchor="middle" font-size="${round(size)}" class="t-label" pointer-events="none">${escaped(line)}</text>`).join("");
  }
  words(x, y, text, style = "muted", anchor = "start", css = "") {
    this.parts.push(`<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" class="t-${style}" ` +
      `${STYLE_ATTRIBUTES[style] || ""}${css && ` style="${css}"`}>${escaped(text)}</text>`);
  }
  path(d, style) {
    this.parts.push(`<path d="${d}" class="t-${style}" fill="none" style="fill:none;pointer-events:none" ${STYLE_ATTRIBUTES[style] || ""}/>`);
  }
  // Add a text below the drawing, wrapped to the width of the picture.
  say(text, style = "muted") {
    const most = Math.floor((this.width - 2 * EDGE) / (FONT * GLYPH));
    let line = "";
    const flush = () => {
      if (line) this.words(EDGE, (this.y += LINE) - 5, line, style);
      line = "";
    };
    for (const word of text.split(" ")) {
      if (line && line.length + word.length + 1 > most) flush();
      line += (line ? " " : "") + word;
    }
    flush();
  }
  legend(samples) {
    let x = EDGE;
    this.y += 6;
    for (const [style, meaning, hatched] of samples) {
      if (x > EDGE && x + 28 + textWidth(meaning) > this.width - EDGE) [x, this.y] = [EDGE, this.y + 20];
      this.cell(x, this.y, 22, 13, style, { hatched });
      this.words(x + 28, this.y + 11, meaning);
      x += 44 + textWidth(meaning);
    }
    this.y += 18;
  }
  svg() {
    const height = round(this.y + EDGE), width = round(this.width);
    const data = Object.entries(this.data).map(([name, value]) => ` data-${name}="${value}"`).join("");
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
      `role="img" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="${FONT}"${data}>` +
      `<desc>${escaped(this.about)}</desc><style>${STYLE_SHEET}${this.css}</style>` +
      `<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="6" class="t-paper"/>${this.parts.join("")}</svg>`;
  }
}

const hatching = (x, y, width, height) => {
  let d = "";
  const gap = Math.max(7, (width + height) / 200);
  for (let reach = gap; reach < width + height; reach += gap) {
    const low = Math.min(reach, height), across = Math.min(reach, width);
    d += `M${round(x + reach - low)} ${round(y + low)}L${round(x + across)} ${round(y + reach - across)}`;
  }
  return `<path d="${d}" class="t-hatch" ${STYLE_ATTRIBUTES.hatch} pointer-events="none"/>`;
};

// --- The tensor with the box ----------------------------------------------------------------------

// If a dimension is at most as long as MOST_BOXES boxes, the whole dimension is drawn. Otherwise the picture shows only
// a part of the dimension, as long as MOST_TILES boxes, around the current box.
const MOST_BOXES = 48, MOST_TILES = 12;
const MOST_HEIGHT = 420;  // px: the maximum height of the plot
const MOST_CELLS = 64;  // maximum number of cells in the strip of an outer dimension

// One dimension of the tensor, and the positions of the box along this dimension: start, start + step, ...
class Axis {
  constructor(dimension, extent, start, span, step, shown) {
    Object.assign(this, { dimension, extent, start, span, step });
    [this.first, this.last] = this.window(shown);
  }
  window(shown) {
    const end = this.start + this.span;
    if (shown && shown[0] <= this.start && end <= shown[1]) return shown;
    const margin = Math.floor(this.span / 2);
    if (this.extent <= Math.max(MOST_BOXES * this.span, MOST_CELLS))
      return [Math.min(-margin, this.start), Math.max(this.extent + margin, end)];
    const least = Math.min(0, this.start), most = Math.max(this.extent, end);
    const first = Math.max(least, Math.min(this.start - MOST_TILES / 2 * this.span, most - MOST_TILES * this.span));
    return [first, Math.min(most, first + MOST_TILES * this.span)];
  }
  get cut() { return this.first > 0 || this.last < this.extent; }
  get count() { return Math.ceil(this.span / this.step); }
  get inside() {
    const reach = (limit) => clamp(Math.ceil((limit - this.start) / this.step), 0, this.count);
    return reach(this.extent) - reach(0);
  }
  get ends() { return ends(this.start, this.span); }
  clip(position) { return clamp(position, this.first, this.last); }
  // Return one band [first, last) for each position of the box that is in bounds. If such bands are too narrow to draw,
  // return one band for all positions.
  bands(unit) {
    const first = Math.max(this.start, 0), last = Math.min(this.start + this.span, this.extent);
    if (first >= last) return [];
    if (this.step === 1 || unit < 3) return [[first, last]];
    const all = [];
    for (let p = this.start; p < last; p += this.step) if (p >= 0) all.push([p, p + 1]);
    return all;
  }
  about() {
    const out = this.count - this.inside;
    return `shape[${this.dimension}] = ${this.extent.toLocaleString("en")}: the box takes ${this.ends}` +
      (this.step > 1 ? `, every ${this.step}th` : "") +
      (out ? `; ${out} of ${this.count} out of bounds` : "") + (this.cut ? `; drawn: ${ends(this.first, this.last - this.first)}` : "");
  }
}

// Draw the tensor with the box.
//   tile: a ShownTile of state.js
//   plane: the two dimensions that are drawn, [down, across]; each other dimension is drawn as a strip
//   faults: the parts that break a rule, from refused.js. If there are faults, the picture shows the refused box, and no
//     copied elements.
function tensorPicture(tile, plane, shown, width, faults = []) {
  const axis = (d) => new Axis(d, tile.shape[d], tile.coords[d], tile.spans[d], tile.steps[d], shown?.[d]);
  const columns = axis(plane[1]);
  const rows = plane[0] >= 0 ? axis(plane[0]) : new Axis(-1, 1, 0, 1, 1, [0, 1]);
  const others = tile.shape.map((_, d) => d).filter((d) => !plane.includes(d)).map(axis);
  const sheet = new Sheet(width, `tensor (${tile.shape.join(", ")}), box (${tile.spans.join(", ")}) at (${tile.coords.join(", ")})`);
  sheet.say(`Global memory: tensor (${tile.shape.join(", ")}), ${tile.typeName}`, "strong");
  const inner = plane[1] === tile.shape.length - 1;
  sheet.say(`→ shape[${columns.dimension}] = ${columns.extent.toLocaleString("en")}${inner ? ", contiguous" : ""}` +
    (rows.dimension >= 0 ? `   ↓ shape[${rows.dimension}] = ${rows.extent.toLocaleString("en")}` : ""));
  if (faults.length) sheet.say(`✗ as asked for; marked: ${[...new Set(faults.map(({ words }) => words))].join(", ")}`, "alarm");
  else sheet.say("Drag the box, or its lower right corner; arrow keys move it.");
  sheet.y += LINE;  // room for the label with the columns of the box
  const left = EDGE + Math.max(44, textWidth(rows.ends) + 8), top = sheet.y + 6;
  // Elements are drawn as squares if the plot then fits the limits below. Otherwise the elements are stretched in one
  // direction.
  const most = width - left - EDGE, across = columns.last - columns.first, count = rows.last - rows.first;
  const least = rows.dimension >= 0 ? 96 : 40, highest = Math.max(least, Math.min(most, MOST_HEIGHT));
  const plotHeight = clamp(count / across * most, least, highest);
  const plotWidth = clamp(across / count * plotHeight, Math.min(most, 150), most), unit = plotWidth / across;
  const down = plotHeight / (rows.last - rows.first);
  const x = (p) => left + (columns.clip(p) - columns.first) * unit, y = (p) => top + (rows.clip(p) - rows.first) * down;
  const rectangle = (c, r, style, more) => sheet.cell(x(c[0]), y(r[0]), x(c[1]) - x(c[0]), y(r[1]) - y(r[0]), style, more);
  const whole = [[0, columns.extent], [0, rows.extent]], box = [[columns.start, columns.start + columns.span], [rows.start, rows.start + rows.span]];
  for (let n = Math.min(2, others.reduce((sum, a) => sum + a.extent - 1, 0)); n > 0; n--)
    sheet.cell(x(0) + 5 * n, y(0) + 5 * n, x(columns.extent) - x(0), y(rows.extent) - y(0), "tensor");
  rectangle(...whole, "tensor");
  if (!faults.length) rectangle(...box, "filled", { hatched: true });
  if (!faults.length && others.every((a) => a.start >= 0 && a.start < a.extent)) {
    const bands = [columns.bands(unit), rows.bands(down)];
    if (bands[0].length && bands[1].length)
      rectangle([bands[0][0][0], bands[0].at(-1)[1]], [bands[1][0][0], bands[1].at(-1)[1]], "ground");
    for (const r of bands[1]) for (const c of bands[0]) rectangle(c, r, "taken");
  }
  const grid = (a, to) => {
    let d = "";
    for (let p = Math.max(Math.floor(a.first / a.span) + 1, 1) * a.span; p < Math.min(a.last, a.extent); p += a.span) d += to(p);
    if (d) sheet.path(d, "grid");
  };
  grid(columns, (p) => `M${round(x(p))} ${round(y(0))}V${round(y(rows.extent))}`);
  grid(rows, (p) => `M${round(x(0))} ${round(y(p))}H${round(x(columns.extent))}`);
  for (const c of tile.chunksIn(plane, columns, rows))
    rectangle([c.at, c.at + c.positions], [c.row, c.row + 1],
      unit * c.positions >= 5 && down >= 4 && c.state !== "filled" ? `tint${c.number % TINTS}` : "plain",
      { key: c.key, to: c.to, title: c.about });
  rectangle(...box, "box");
  for (const { dimension, first, last, words } of faults) {
    const part = [columns, rows].findIndex((a) => a.dimension === dimension), isOfTensor = first >= tile.coords[dimension] + tile.spans[dimension];
    if (part < 0) continue;
    const place = (isOfTensor ? whole : box).map((side, n) => (n === part ? [first, last] : side));
    const thick = Math.max(4, part ? y(last) - y(first) : x(last) - x(first));
    const [px, py] = [x(place[0][0]), y(place[1][0])], title = `${words}: ${ends(first, last - first)} of shape[${dimension}]`;
    sheet.cell(px, py, part ? x(place[0][1]) - px : thick, part ? thick : y(place[1][1]) - py, "conflict", { hatched: true, title });
  }
  if (faults.length) sheet.data.refused = faults.map(({ words }) => words).join(" ");
  sheet.cell(x(box[0][1]) - 4, y(box[1][1]) - 4, 8, 8, "handle");
  sheet.words(clamp((x(box[0][0]) + x(box[0][1])) / 2, left + textWidth(columns.ends) / 2, width - EDGE - textWidth(columns.ends) / 2),
    top - 6, columns.ends, "label", "middle");
  if (rows.dimension >= 0) sheet.words(left - 6, (y(box[1][0]) + y(box[1][1])) / 2 + 4, rows.ends, "label", "end");
  sheet.data.x = `${columns.dimension} ${round(left)} ${round(plotWidth)} ${columns.first} ${columns.last}`;
  if (rows.dimension >= 0) sheet.data.y = `${rows.dimension} ${round(top)} ${round(plotHeight)} ${rows.first} ${rows.last}`;
  sheet.y = top + plotHeight + 12;
  for (const a of others) strip(sheet, a);
  if (columns.cut || rows.cut) minimap(sheet, columns, rows);
  for (const a of [...others, rows, columns]) if (a.dimension >= 0) sheet.say(a.about());
  for (const words of tile.remarks) sheet.say(words);
  if (faults.length) sheet.legend([["box", "the box asked for"], ["conflict", "breaks the rule", true]]);
  else sheet.legend([["taken", "copied"], ["filled", "out of bounds: filled", true], ["grid", "tiles side by side"]]);
  return sheet.svg();
}

// Draw an outer dimension as a strip of its positions. The positions of the box are filled. A click moves the box.
function strip(sheet, axis) {
  const name = `shape[${axis.dimension}]`, left = EDGE + textWidth(name) + 11, room = sheet.width - EDGE - left;
  const per = Math.ceil((axis.last - axis.first) / MOST_CELLS), count = Math.ceil((axis.last - axis.first) / per);
  const width = Math.min(40, room / count);
  sheet.words(EDGE, sheet.y + 12, name, "label");
  for (let n = 0; n < count; n++) {
    const begin = axis.first + n * per, end = Math.min(begin + per, axis.last);
    const inside = begin >= 0 && begin < axis.extent;
    const next = axis.start + Math.max(0, Math.ceil((begin - axis.start) / axis.step)) * axis.step;
    const taken = next >= begin && next < end && next < axis.start + axis.span;
    sheet.cell(left + n * width, sheet.y, width, 16, ["padding", "tensor", "filled", "taken"][2 * taken + inside], {
      text: per === 1 ? begin : "", hatched: taken && !inside, key: `at${axis.dimension}.${begin}`,
      title: `shape[${axis.dimension}]: ${ends(begin, end - begin)}${taken ? " in the box" : ""}; click to move the box here` });
  }
  sheet.y += 24;
  if (per > 1) sheet.say(`${name}: ${per} positions per cell`);
}

function minimap(sheet, columns, rows) {
  const [w, h] = [columns, rows].map((a, n) => {
    const least = Math.min(0, a.first), most = Math.max(a.extent, a.last), size = [96, 44][n];
    const length = Math.max(4, (a.last - a.first) / (most - least) * size);
    return [size, Math.min((a.first - least) / (most - least) * size, size - length), length];
  });
  sheet.cell(EDGE, sheet.y, w[0], h[0], "tensor");
  sheet.cell(EDGE + w[1], sheet.y + h[1], w[2], h[2], "frame");
  sheet.words(EDGE + w[0] + 10, sheet.y + 26, "the whole tensor; framed: what is drawn");
  sheet.y += h[0] + 6;
}

// --- The pixels of an im2col column -----------------------------------------------------------------

// Draw the images that the column reads. A 2-D image is drawn as one plane of height and width, and a 3-D image as one
// such plane for each depth. The numbers in a plane are the pixels of the column, in the order of the copy.
function pixelsPicture(tile, width) {
  const [dh, dw] = tile.imageDims, sheet = new Sheet(width, "the pixels of an im2col column");
  sheet.say(`Global memory: images (${tile.shape.join(", ")}), ${tile.typeName}`, "strong");
  sheet.say(`→ w = shape[${dw}]` + (dh >= 0 ? `   ↓ h = shape[${dh}]` : "") + ". Each number is a row of the tile, in the order of the copy.");
  const frames = new Map();
  for (const line of tile.pixels) {
    const key = tile.frameOf(line.position);
    if (!frames.has(key)) frames.set(key, []);
    frames.get(key).push(line);
  }
  for (const [name, lines] of [...frames].slice(0, 3)) frame(sheet, tile, name, lines, dh, dw);
  if (frames.size > 3) sheet.say(`⋮ ${counted(frames.size - 3, "more image")} not drawn`);
  for (const words of tile.remarks) sheet.say(words);
  sheet.legend([["taken", "row n of the tile"], ["filled", "out of bounds: filled", true], ["window", "bounding box, in which a column starts"],
    ...(tile.offsets.some(Boolean) ? [["shifted", "the box moved by the filter's offsets"]] : [])]);
  return sheet.svg();
}

function frame(sheet, tile, name, lines, dh, dw) {
  const spans = [dw, dh].map((d) => {
    if (d < 0) return [0, 1];
    const [least, most] = tile.startBox[d], taken = lines.map((l) => l.position[d]), moved = tile.offsetOf[d];
    const first = Math.min(0, least, least + moved, ...taken), last = Math.max(tile.shape[d] - 1, most, most + moved, ...taken);
    const room = d === dw ? Math.max(8, Math.floor((sheet.width - 70) / 15)) : 16;
    const begin = last - first < room ? first : clamp(taken[0] - Math.floor(room / 4), first, last - room + 1);
    return [begin, Math.min(last + 1, begin + room)];
  });
  const [[left, right], [top, bottom]] = spans;
  const unit = clamp((sheet.width - 2 * EDGE - 34) / (right - left), 14, 32), x0 = EDGE + 34;
  sheet.say(name, "label");
  sheet.y += LINE;
  const y0 = sheet.y, x = (w) => x0 + (w - left) * unit, y = (h) => y0 + (h - top) * unit;
  if (!sheet.data.x) {  // the start of the column can be dragged in the first image
    sheet.data.x = `${dw} ${round(x0)} ${round((right - left) * unit)} ${left} ${right}`;
    if (dh >= 0) sheet.data.y = `${dh} ${round(y0)} ${round((bottom - top) * unit)} ${top} ${bottom}`;
  }
  const step = unit * 0.9 < textWidth("000") ? 4 : 1;
  for (let w = left; w < right; w++) if ((w - left) % step === 0) sheet.words(x(w) + unit / 2, y0 - 5, w, "muted", "middle");
  for (let h = top; h < bottom; h++) {
    if (dh >= 0) sheet.words(x0 - 10, y(h) + unit / 2 + 4, h, "muted", "end");
    for (let w = left; w < right; w++)
      if (w >= 0 && w < tile.shape[dw] && (dh < 0 || (h >= 0 && h < tile.shape[dh]))) sheet.cell(x(w), y(h), unit, unit, "tensor");
  }
  let d = "", out = 0, before = null;
  for (const line of lines) {
    const w = line.position[dw], h = dh < 0 ? 0 : line.position[dh];
    if (w < left || w >= right || h < top || h >= bottom) {
      out += 1;
      continue;
    }
    sheet.cell(x(w), y(h), unit, unit, line.inside ? "taken" : "filled", { text: line.row, hatched: !line.inside, key: `row${line.row}`,
      title: `row ${line.row} of the tile: pixel (${line.position.join(", ")})${line.inside ? "" : "\nout of bounds: filled"}` });
    // The path from the end of a row of pixels to the next row follows the border between the two rows.
    if (before && before.h !== h) d += `M${round(x(before.w) + unit)} ${round(y(before.h) + unit / 2)}h5V${round(y(h))}H${round(x(w) - 5)}v${round(unit / 2)}h5m-4 -3l4 3l-4 3`;
    before = { w, h };
  }
  if (d) sheet.path(d, "way");
  const outline = (moved, style) => {
    const [a, b] = [dw, dh].map((dim) => (dim < 0 ? [0, 1] : [tile.startBox[dim][0] + moved[dim], tile.startBox[dim][1] + 1 + moved[dim]]));
    const [l, r] = a.map((p) => clamp(p, left, right)), [t, u] = b.map((p) => clamp(p, top, bottom));
    sheet.cell(x(l), y(t), x(r) - x(l), y(u) - y(t), style);
  };
  outline({ [dw]: 0, [dh]: 0 }, "window");
  if (tile.offsets.some(Boolean)) outline(tile.offsetOf, "shifted");
  sheet.y = y0 + (bottom - top) * unit + 6;
  if (out) {
    sheet.say(`${counted(out, "pixel")} outside what is drawn`);
    walkMap(sheet, lines.map((l) => [l.position[dw], dh < 0 ? 0 : l.position[dh]]), [tile.shape[dw], dh < 0 ? 1 : tile.shape[dh]], spans);
  }
}

// Draw a small picture of the whole image: the rows of pixels, the path between the rows, and a frame around the part
// that is drawn above this picture.
function walkMap(sheet, pixels, extent, spans) {
  const runs = [], [[left, right], [top, bottom]] = spans;
  for (const [w, h] of pixels) runs.at(-1)?.h === h ? (runs.at(-1).end = w) : runs.push({ h, w, end: w });
  const least = [left, top].map((first, n) => Math.min(0, first, ...pixels.map((p) => p[n])));
  const most = [right, bottom].map((last, n) => Math.max(extent[n], last, ...pixels.map((p) => p[n] + 1)));
  const unit = Math.min(200 / (most[0] - least[0]), 110 / (most[1] - least[1])), y0 = sheet.y + 4;
  const x = (w) => EDGE + (w - least[0]) * unit, y = (h) => y0 + (h - least[1]) * unit;
  sheet.cell(x(0), y(0), extent[0] * unit, extent[1] * unit, "tensor");
  for (const { h, w, end } of runs) sheet.cell(x(w), y(h), (end + 1 - w) * unit, unit, "taken", { title: `h ${h}, w ${w}..${end}` });
  let d = "";
  for (let n = 1; n < runs.length; n++)
    if ((runs[n].h - runs[n - 1].h) * unit >= 4)
      d += `M${round(x(runs[n - 1].end + 0.5))} ${round(y(runs[n - 1].h + 0.5))}L${round(x(runs[n].w + 0.5))} ${round(y(runs[n].h + 0.5))}`;
  if (d) sheet.path(d, "way");
  sheet.cell(x(left), y(top), (right - left) * unit, (bottom - top) * unit, "frame");
  sheet.words(x(most[0]) + 10, y0 + 12, "the whole walk; framed: what is drawn");
  sheet.y = y(most[1]) + 6;
}
