// What is behind the explorer's front end in a page without Python: the state, which stands in the
// page's address, and answers of tmaModel, drawn by pictures.js and memory.js. It speaks as Python's
// Explorer does: get("start"), send(question), on("msg:custom", answer => ...).

const TABS = { tensor: "Tensor and tile", shared: "Shared memory", banks: "Banks", bytes: "128 bytes", code: "Code" };
const LISTS = ["shape", "strides", "box_sizes", "elem_strides", "coords", "pixel_box_lower_corner",
  "pixel_box_upper_corner", "im2col_offsets", "plane"];
const COUNTS = ["address", "channels_per_pixel", "pixels_per_column", "ragged"];
const MENUS = ["swizzle", "interleave_layout", "oobfill", "l2_fetch_size", "data_type", "rules"];
const WORDS = ["kind", "dtype", "split_inner", "target", "tab", "access", ...MENUS];
const PLAIN = { kind: "tiled", dtype: "float16", split_inner: "", target: "sm_90", tab: "tensor", access: "column",
  swizzle: "none", interleave_layout: "none", oobfill: "none", l2_fetch_size: "none", data_type: "", rules: "",
  address: 2 ** 32, ragged: null, strides: null, plane: null, allow: [] };
const OF_TILED = ["box_sizes"];
const OF_IM2COL = ["pixel_box_lower_corner", "pixel_box_upper_corner", "channels_per_pixel", "pixels_per_column"];
const MOST_RANK = 8;  // dimensions that are read; more than 5 are refused by the judge
const LAST = "the picture shows the last accepted values";
const WHEN_SETTLED = 180;  // ms

const isWord = (names, word) => names.includes(word);
const listed = (numbers) => (numbers || []).join(", ");

// --- The state as an address ------------------------------------------------------------------------

const readNumber = (text) => {
  const value = Number(text.trim() || NaN);
  return Number.isSafeInteger(value) ? value : null;
};
const readList = (text) => {
  const parts = text.replace(/[()[\]\s]/g, "").replace(/,$/, "").split(",").map(readNumber);
  return parts.length <= MOST_RANK && !parts.includes(null) ? parts : null;
};

// "#shape=96,128&dtype=float16&..." -> [state, what could not be read]
function readAddress(hash) {
  const state = {}, unread = [];
  for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    let value = null;
    if (LISTS.includes(name)) value = readList(text);
    else if (COUNTS.includes(name)) value = readNumber(text);
    else if (name === "allow") value = text.split(",").filter((id) => tmaTables.ALLOWABLE.includes(id));
    else if (isWord(WORDS, name)) value = text;
    if (value === null || (optionsOf(name, state) && !optionsOf(name, state).includes(value))) unread.push(`${name}=${text}`);
    else state[name] = value;
  }
  return [state, unread];
}

function writeAddress(state) {
  const parts = [];
  for (const name of ["kind", ...LISTS, ...COUNTS, ...WORDS.filter((n) => n !== "kind"), "allow"]) {
    const value = state[name];
    if (value === null || value === undefined || String(value) === String(PLAIN[name] ?? "")) continue;
    if (name === "elem_strides" && value.every((n) => n === 1)) continue;
    if (isWord(["coords", "im2col_offsets"], name) && value.every((n) => n === 0)) continue;
    const isOther = state.kind === "tiled" ? [...OF_IM2COL, "im2col_offsets"] : OF_TILED;
    if (!isOther.includes(name)) parts.push(`${name}=${encodeURIComponent(String(value)).replaceAll("%2C", ",")}`);
  }
  return `#${parts.join("&")}`;
}

// What a menu offers; undefined for what is no menu.
function optionsOf(name, state) {
  const { ENUMS, RULE_SETS, TARGETS, DTYPES } = tmaTables;
  if (name === "kind") return ["tiled", "im2col"];
  if (name === "dtype") return Object.keys(DTYPES);
  if (name === "target") return Object.keys(TARGETS);
  if (name === "rules") return ["", ...RULE_SETS[state.kind || "tiled"]];
  if (name === "split_inner") return ["", "yes"];
  if (name === "data_type") return ["", ...ENUMS.data_type];
  if (name === "tab") return Object.keys(TABS);
  if (name === "access") return ["column", "row", "ldmatrix"];
  return ENUMS[name];
}

// --- A state that can be judged -----------------------------------------------------------------------

const sized = (list, length, value) => Array.from({ length }, (_, d) => list?.[d] ?? value);

// Return the state with every list as long as the tensor's rank, and a box where it has none.
function completed(given) {
  const state = { ...PLAIN, ...given };
  if (!state.shape?.length) state.shape = [96, 256];
  const rank = state.shape.length, spatial = rank - 2;
  state.elem_strides = sized(state.elem_strides, rank, 1);
  if (state.strides && state.strides.length !== rank) state.strides = null;
  if (state.kind === "im2col") {
    for (const name of OF_IM2COL.slice(0, 2)) state[name] = sized(state[name], Math.max(0, spatial), name.includes("lower") ? -1 : -1);
    state.channels_per_pixel ??= Math.min(64, state.shape.at(-1));
    state.pixels_per_column ??= 32;
    state.im2col_offsets = sized(state.im2col_offsets, Math.max(0, spatial), 0);
    Object.assign(state, { ragged: null, split_inner: "" });
  } else if (!given.box_sizes?.length) {
    const bits = tmaTables.DTYPES[state.dtype].bits, limits = [...Array(rank).fill(1), 16, Math.max(1, 1024 / bits)].slice(-rank);
    state.box_sizes = state.shape.map((n, d) => Math.max(1, Math.min(n, limits[d])));
    if (given.swizzle === undefined) state.swizzle = "bytes128";
  } else state.box_sizes = sized(state.box_sizes, given.box_sizes.length, 1);
  if (!optionsOf("rules", state).includes(state.rules)) state.rules = "";
  return state;
}

const requestOf = (state) => {
  const own = state.kind === "tiled" ? [...OF_TILED, "ragged"] : OF_IM2COL, request = { allow: state.allow };
  for (const name of ["kind", "shape", "strides", "dtype", "address", "elem_strides", "target", ...own, ...MENUS])
    if (state[name] !== null && state[name] !== "" && state[name] !== undefined) request[name] = state[name];
  if (state.split_inner && state.kind === "tiled") request.split_inner = true;
  return request;
};

// --- The tile that is shown ---------------------------------------------------------------------------

// What the pictures ask of a tile: tmaModel's, with names and links. Lists are row-major, of the map.
class ShownTile {
  constructor(state, request) {
    const found = tmaModel.tile(request, state.coords, state.kind === "im2col" ? state.im2col_offsets : null);
    const map = tmaRequest.encodeArguments(request), { rank } = map, outward = (list) => [...list].reverse();
    const { chunks, chunk, ...plan } = found;
    Object.assign(this, plan, { found, state, map, smemOffset: 0 });
    this.shape = outward(map.global_dim);
    this.coords = state.coords;
    this.isInterleaved = map.interleave > 0;
    this.steps = outward(map.element_strides);
    if (!this.isInterleaved) this.steps[rank - 1] = 1;
    this.spans = state.kind === "tiled" ? outward(map.box_dim) : this.shape.map(() => 1);
    if (this.isInterleaved && state.kind === "tiled") this.spans[1] = 1;
    this.swizzle = tmaTables.ENUMS.swizzle[map.swizzle];
    const { terms, repeat_bytes } = tmaTables.SWIZZLES[map.swizzle];
    Object.assign(this, { terms, repeatBytes: repeat_bytes });
    const type = map.row.name;
    this.typeName = state.data_type || type.toLowerCase() === state.dtype ? type : `${state.dtype} (as ${type})`;
    if (state.kind === "im2col") this.asPixels(map);
  }
  get chunks() { return (this.every ??= this.found.chunks().map((c) => this.named(c))); }
  // The same chunks where they would be without the swizzle.
  get unswizzled() {
    return this.chunks.map((c) => ({ ...c, address: c.linear, swapped: false })).sort((a, b) => a.address - b.address);
  }
  named(chunk) {
    const isData = chunk.row >= 0, field = isData ? `field-${this.terms.length ? "swizzle" : this.state.kind === "tiled" ? "box_dim[0]" : "channels_per_pixel"}` : "";
    const named = { ...chunk, key: isData ? `c${chunk.row}.${chunk.first}` : "", number: isData ? Math.floor(chunk.first / (chunk.last - chunk.first + 1)) : 0 };
    named.to = isData ? [`row${chunk.row}`, `bank${Math.floor(chunk.address % 128 / 16)}`, field] : [];
    named.about = this.about(named);
    return named;
  }
  about(c) {
    const bank = Math.floor(c.address % 128 / 4), where = `shared ${hex(c.address)}, banks ${bank}..${bank + 3}`;
    if (c.row < 0) return `${where}: untouched`;
    const steps = this.terms.map(([right, mask, left]) => `the line number ${c.linear >> right & mask} is XORed into the chunk number ${c.linear >> left & mask}`);
    return [`row ${c.row} of the tile: element (${c.element.join(", ")})` + (c.last > c.first ? ` and ${c.last - c.first} more` : ""),
      c.state === "filled" ? "out of bounds: filled" : `global_address + ${hex(c.globalOffset, 1)}${c.state === "clipped" ? ", partly out of bounds" : ""}`,
      where, this.terms.length ? `linear ${hex(c.linear)} to ${hex(c.address)}: ${steps.join(", ")}` : ""].filter(Boolean).join("\n");
  }
  get remarks() {
    const said = [`The copy writes ${this.smemBytes.toLocaleString("en")} bytes of shared memory at most; its mbarrier counts ${this.txBytes.toLocaleString("en")} bytes, elements out of bounds included.`];
    if (this.chunks.some((c) => c.state === "filled" || c.state === "clipped"))
      said.push(`Elements out of bounds become ${this.state.oobfill === "nan" ? "NaN (words 0x7ff7)" : "zero"}; the code needs no bounds test.`);
    if (this.isInterleaved) said.push(`The innermost dimension counts units of ${this.unitBytes} bytes; of shape[1] a copy takes one slice.`);
    return said;
  }
  // Where the chunks of the drawn plane come from, at most 512: {at, positions, row, ...chunk}.
  chunksIn(plane, columns, rows) {
    if (this.isInterleaved) return [];
    const inner = plane[1] === this.shape.length - 1, drawn = [];
    for (const c of this.chunks) {
      if (c.row < 0 || drawn.length >= 512) continue;
      const at = c.element[plane[1]], row = plane[0] >= 0 ? c.element[plane[0]] : 0;
      if (c.element.some((p, d) => !plane.includes(d) && p !== this.coords[d] && d < this.shape.length - 1)) continue;
      if (at >= columns.first && at < columns.last && row >= rows.first && row < rows.last)
        drawn.push({ ...c, at, row, positions: inner ? c.last - c.first + 1 : 1 });
    }
    return drawn;
  }
  // --- im2col ---
  asPixels(map) {
    const { rank } = map, first = map.interleave ? 0 : 1, dims = [];  // row-major dimensions of w, h, d
    for (let s = 0; s < rank - 2; s++) dims.push(rank - 1 - (first + s));
    this.imageDims = [dims[1] ?? -1, dims[0]];
    this.depthDims = dims.slice(2);
    this.startBox = Object.fromEntries(dims.map((d, s) => [d, [map.lower[s], this.shape[d] - 1 + map.upper[s]]]));
    this.offsets = this.state.im2col_offsets;
    this.offsetOf = Object.fromEntries(dims.map((d, s) => [d, this.offsets[this.offsets.length - 1 - s] || 0]));
  }
  get pixels() {
    return Array.from({ length: this.found.lines }, (_, row) => ({ row, ...this.found.line(row) }));
  }
  frameOf(position) {
    const depth = this.depthDims.map((d) => `, depth ${position[d]}`).join("");
    return `image ${position[0]}${depth}`;
  }
}

// --- The host -----------------------------------------------------------------------------------------

class Host {
  constructor(given, { keepsAddress = true } = {}) {
    Object.assign(this, { heard: [], width: 900, keepsAddress, accepted: null, looks: { phase: 0, shown: null, pinned: "" } });
    this.begin(given);
    if (keepsAddress) addEventListener("hashchange", () => this.reopened());
  }
  begin(hash) {
    const [given, unread] = readAddress(hash);
    this.note = unread.length ? `Not read of the address: ${unread.join(", ")}` : "";
    this.turn(completed(given));
  }
  reopened() {
    this.begin(location.hash);
    this.say({ ...this.answer(), controls: this.controls(), ...this.legal() });
  }
  get(name) {
    return name === "start" ? { tabs: TABS, accesses: optionsOf("access"), controls: this.controls(), link: this.keepsAddress,
      view: this.answer(), ...this.legal() } : undefined;
  }
  on(_, hear) { this.heard.push(hear); }
  say(answer) { for (const hear of this.heard) hear(answer); }
  link() { return `${location.href.split("#")[0]}${writeAddress(this.state)}`; }

  send(asked) {
    const before = this.shapeOfControls;
    if (asked.width) this.width = asked.width;
    if (asked.tab) this.state.tab = asked.tab;
    if (asked.access) this.state.access = asked.access;
    Object.assign(this.looks, { shown: asked.shown ?? null, phase: asked.phase ?? 0, pinned: asked.pinned ?? "" });
    if (asked.do === "legal") {
      if (this.keepsAddress) this.write();
      return this.say({ ...this.legal(), seq: asked.seq });
    }
    if (asked.do === "choose") this.turn(this.chosen(asked.values || {}));
    else if (asked.do === "fix") this.turn(this.fixed());
    else if (asked.do === "undo" && this.accepted) this.turn({ ...this.accepted, tab: this.state.tab });
    const answer = { ...this.answer(), seq: asked.seq };
    this.say(before === this.shapeOfControls ? answer : { ...answer, controls: this.controls(), ...this.legal() });
  }
  write() {
    try {
      history.replaceState(null, "", writeAddress(this.state));
    } catch {
      this.keepsAddress = false;  // a document without an address of its own
    }
  }

  // --- What is chosen ---
  turn(state) {
    this.state = state;
    this.request = requestOf(state);
    this.report = tmaModel.check(this.request);
    this.tile = null;
    if (this.report.ok) {
      const { rank } = tmaRequest.encodeArguments(this.request);
      if (state.coords?.length !== rank) state.coords = [...tmaModel.firstCoords(this.request)];
      this.tile = new ShownTile(state, this.request);
      if (!this.tile.refusal) this.accepted = state;
    }
    state.coords ??= state.shape.map(() => 0);
    this.shapeOfControls = [state.kind, state.shape.length, state.coords.length, state.box_sizes?.length, state.split_inner].join(" ");
  }
  chosen(values) {
    const state = { ...this.state };
    for (const [name, value] of Object.entries(values)) {
      const [, field, index] = name.match(/^(\w+)\[(\d+)\]$/) || [null, name, null];
      if (index !== null && Number.isInteger(value)) state[field] = (state[field] || []).map((n, d) => (d === Number(index) ? value : n));
      else if (name === "shape" || name === "strides") this.describe(state, name, String(value));
      else if (COUNTS.includes(name)) state[name] = value === "" ? PLAIN[name] : Number.isInteger(value) ? value : readNumber(String(value)) ?? state[name];
      else if (name === "plane") state.plane = readList(String(value));
      else if (optionsOf(name, state)?.includes(value)) state[name] = value;
    }
    if (values.kind && values.kind !== this.state.kind) return this.otherKind(state);
    if ("split_inner" in values || "ragged" in values) state.coords = null;
    return completed(state);
  }
  describe(state, name, text) {
    const list = text.trim() ? readList(text) : null;
    if (name === "strides") state.strides = list;
    else if (list) {
      if (list.length !== state.shape.length) Object.assign(state, { box_sizes: null, elem_strides: null, strides: null, plane: null, coords: null, ragged: null });
      state.shape = list;
    }
  }
  // Another kind of map: images of 64 channels for im2col, where the tensor has no such shape.
  otherKind(state) {
    const shape = state.kind === "im2col" && state.shape.length < 3 ? [2, 12, 14, 64] : state.shape;
    return completed({ ...state, shape, coords: null, plane: null, elem_strides: null, rules: "",
      strides: shape === state.shape ? state.strides : null,
      box_sizes: null, swizzle: state.swizzle, im2col_offsets: null });
  }
  fixed() {
    const { violations, fixed } = this.report;
    if (fixed && !this.report.ok) return completed({ ...this.state, ...fixed, ...this.wordsOf(fixed) });
    if (!this.report.ok) return completed({ ...this.state, ...this.wordsOf(violations[0]?.change || {}), coords: null });
    const state = { ...this.state, coords: [...this.state.coords] };
    for (const name of ["coords", "im2col_offsets"])
      (state[name] || []).forEach((value, d) => {
        const r = tmaModel.legal(this.request, `${name}[${d}]`, this.state.coords, this.offsets);
        const step = r.step || 1, least = Math.ceil(r.least / step) * step;
        state[name] = state[name].map((n, e) => (e === d ? clamp(Math.round(value / step) * step, least, Math.floor(r.most / step) * step) : n));
      });
    return state;
  }
  // Enums by their names, and what Python calls otherwise.
  wordsOf(change) {
    const words = {};
    for (const [name, value] of Object.entries(change)) {
      const names = tmaTables.ENUMS[name];
      words[name] = names && Number.isInteger(value) ? names[value] : name === "split_inner" ? (value ? "yes" : "") : value ?? PLAIN[name] ?? null;
    }
    return words;
  }
  get offsets() { return this.state.kind === "im2col" ? this.state.im2col_offsets : null; }

  // --- Answers ---
  answer() {
    const { state, report, tile } = this, refused = tile?.refusal, ok = Boolean(tile) && !refused;
    let panels = [], refusal = refused ? `${refused.rule}: ${refused.found}; ${refused.limit}.\nFix: ${refused.fix}` : "", banks = {};
    if (ok) {
      try {
        [panels, banks] = this.panels();
      } catch (error) {
        refusal = String(error.message || error);
      }
    }
    const code = tmaModel.code(this.request, state.coords, this.offsets);
    const states = report.ok ? (refused ? `✗ the map is accepted, this tile is refused; ${LAST}` : "✓ accepted")
      : `✗ refused: ${counted(report.violations.length, "violation")}; ${LAST}`;
    return { tab: state.tab, access: state.access, values: this.values(), ok, state: states, note: this.note, report: this.findings(), refusal, fix: this.fixWords(),
      title: "", banks, panels, exact: true, code: [code.python, code.cpp].filter(Boolean).join("\n\n"),
      codes: [["Python", code.python], ["C++", code.cpp]].filter(([, text]) => text) };
  }
  findings() {
    return this.report.violations.map((v) => `<div class="tma-finding tma-violation"><b>✗ ${escaped(v.found)}</b>` +
      `<br>It must ${escaped(v.limit.replace(/^(it )?must /, ""))}.` + (v.fix ? `<br>Fix: ${escaped(v.fix)}.` : "") +
      (v.why ? `<br><i>Why: ${escaped(v.why)}.</i>` : "") + `<br><small>${escaped(v.rule)} (${escaped(v.source)})</small></div>`).join("");
  }
  fixWords() {
    const { report, tile } = this;
    if (report.ok) return tile.refusal ? "move the tile to legal coordinates" : "";
    const change = report.fixed ? this.differing(report.fixed) : report.violations[0]?.change || {};
    const parts = Object.entries(this.wordsOf(change)).map(([name, value]) => `${name}=${Array.isArray(value) ? `(${value.join(", ")})` : value}`);
    return parts.length ? `apply ${parts.join(", ")}` : "";
  }
  differing(fixed) {
    return Object.fromEntries(Object.entries(fixed).filter(([name, value]) => String(value) !== String(this.request[name] ?? "")));
  }
  panels() {
    const { state, tile } = this, wide = this.width >= 820, half = wide ? (this.width - 10) / 2 : this.width, { tab } = state;
    const swizzled = tile.terms.length ? `In shared memory: the tile, swizzled by ${tile.swizzle}` : "In shared memory: the tile, row after row";
    const legend = [`r: ${state.kind === "im2col" ? "pixel of the column" : "row of the box"}; c: the elements of that row in the 16 bytes. Point at a chunk to see where it comes from.`];
    if (tab === "tensor") {
      const source = state.kind === "im2col" ? pixelsPicture(tile, half) : tensorPicture(tile, this.plane(), this.looks.shown, half);
      return [[source, memoryPicture(swizzled, tile.chunks, tile, half, { words: legend })], {}];
    }
    if (tab === "shared") {
      if (!tile.terms.length) return [[memoryPicture(swizzled, tile.chunks, tile, half, { words: legend }), bitsPicture(this.pinnedChunk(), tile, half)], {}];
      return [[memoryPicture("Before the swizzle: row after row", tile.unswizzled, tile, half, { words: legend }),
        memoryPicture(swizzled, tile.chunks, tile, half), bitsPicture(this.pinnedChunk(), tile, this.width)], {}];
    }
    if (tab === "banks") return this.bankPanels(half);
    if (tab !== "bytes") return [[], {}];
    const bytes = tmaModel.encode(this.request);
    if (!bytes) throw new Error(`The bytes of a map for ${state.target} are not known: they were measured on sm_90.`);
    const fields = tmaModel.fields(this.request), left = wide ? this.width * 0.58 : this.width;
    return [[bytesPicture(bytes, fields, left), fieldsPicture(fields, wide ? this.width - left - 10 : this.width)], {}];
  }
  plane() {
    const rank = this.tile.shape.length, [down, across] = this.state.plane || [];
    const is = (d) => Number.isInteger(d) && d >= 0 && d < rank;
    return is(down) && is(across) && down !== across ? [down, across] : [rank - 2, rank - 1];
  }
  // The chunk that is pinned; else the first of the second line, which a swizzle moves.
  pinnedChunk() {
    const { chunks } = this.tile;
    return chunks.find((c) => c.key && c.key === this.looks.pinned) || chunks.find((c) => c.row >= 0 && c.linear >= 128) || chunks.find((c) => c.row >= 0);
  }
  bankPanels(half) {
    const { state, tile, request } = this;
    const access = state.access === "ldmatrix" ? tmaModel.ldmatrix(request, 0, 0, { num: 4 }) : state.access;
    const found = tmaModel.banks(request, access, {});
    const last = found.phases.length - 1, phase = clamp(this.looks.phase, 0, last);
    const words = new Set(found.phases[phase].flat()), marked = new Set(tile.chunks.filter((c) => words.has(c.address / 4)).map((c) => c.key));
    const ways = { column: "one 16-byte column of 8 rows", row: "8 neighbouring chunks", ldmatrix: "8 rows of an 8 x 8 matrix (ldmatrix.x4)" };
    const ranked = [];
    tmaTables.ENUMS.swizzle.forEach((name, number) => {
      const other = { ...request, swizzle: name };
      if (name !== tile.swizzle && !tmaModel.check(other).ok) return;
      const { wavefronts, worst } = tmaModel.banks(request, access, { swizzle: name });
      ranked.push({ name, own: name === tile.swizzle, wavefronts, worst });
    });
    ranked.sort((a, b) => a.wavefronts - b.wavefronts || b.own - a.own);
    return [[phasePicture(found, phase, ways[state.access], half),
      memoryPicture("The chunks of this phase, in shared memory", tile.chunks, tile, half, { marked }),
      rankedPicture(ranked, this.width)], { phase, last }];
  }
  values() {
    const { state } = this, values = {};
    for (const name of [...LISTS, "im2col_offsets"]) (state[name] || []).forEach((n, d) => { values[`${name}[${d}]`] = n; });
    for (const name of [...WORDS, ...COUNTS]) values[name] = state[name] ?? "";
    return { ...values, shape: listed(state.shape), strides: listed(state.strides), address: hex(state.address, 1), plane: listed(state.plane) };
  }

  // --- Controls ---
  controls() {
    const { state } = this, rank = state.shape.length, numbers = (name) => (state[name] || []).map((value, d) => ({ name: `${name}[${d}]`, least: 0, most: Math.max(1, value) }));
    const menu = (name, empty) => ({ name, options: optionsOf(name, state), empty });
    const tiled = state.kind === "tiled", groups = [
      { title: "Tensor", words: [{ name: "shape", hint: "row-major" }, { name: "strides", hint: "contiguous" }, { name: "address", hint: "0x100000000" }],
        menus: [menu("dtype")], numbers: [] },
      { title: tiled ? "Box: box_sizes" : "Column", numbers: tiled ? numbers("box_sizes") : OF_IM2COL.slice(2).map((name) => ({ name, least: 1, most: state[name] })), menus: [] },
      ...(tiled ? [] : [{ title: "Bounding box", numbers: OF_IM2COL.slice(0, 2).flatMap(numbers), menus: [] }]),
      { title: "Tile: coords", numbers: numbers("coords"), menus: rank > 2 && tiled ? [{ name: "plane", options: ["", ...planes(state.coords.length)], empty: "the inner two" }] : [] },
      ...(tiled ? [] : [{ title: "Filter tap: im2col_offsets", numbers: numbers("im2col_offsets"), menus: [] }]),
      { title: "Options", menus: [menu("kind"), ...MENUS.map((name) => menu(name, name === "rules" ? "the default" : "of the tensor")), menu("target"),
        ...(tiled ? [menu("split_inner", "no"), { name: "ragged", options: ["", ...state.shape.map((_, d) => String(d)).slice(0, rank)], empty: "no" }] : [])], numbers: [] },
      { title: "Traversal: elem_strides", numbers: numbers("elem_strides"), menus: [], folded: state.elem_strides.every((n) => n === 1) }];
    return groups;
  }
  legal() {
    const at = this.accepted && this.report && !this.report.ok ? this.accepted : this.state, request = requestOf(at), legal = {}, options = {};
    const offsets = at.kind === "im2col" ? at.im2col_offsets : null;
    for (const group of this.controls()) {
      for (const { name } of group.numbers) {
        const found = tmaModel.legal(request, name, at.coords, offsets);
        if (found && found.least !== undefined) legal[name] = found;
      }
      for (const { name } of group.menus) {
        if (!isWord([...MENUS, "dtype"], name)) continue;
        const reason = (value) => {
          const report = tmaModel.check({ ...request, [name]: value || undefined });
          return report.ok ? "" : `${report.violations[0].rule}: ${report.violations[0].limit}`;
        };
        options[name] = Object.fromEntries(optionsOf(name, at).map((value) => [value, reason(value)]).filter(([, why]) => why));
      }
    }
    return { legal, options };
  }
}

const planes = (rank) => {
  const found = [];
  for (let down = 0; down < rank; down++) for (let across = down + 1; across < rank; across++) found.push(`${down}, ${across}`);
  return found;
};
