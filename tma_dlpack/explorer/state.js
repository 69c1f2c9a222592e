// The state of the page, and the tile that results from the state. The page's address contains the state.

const TABS = { tensor: "Tensor and tile", shared: "Shared memory", copy: "Copy", banks: "Banks", core: "Tensor core", bytes: "128 bytes", code: "Code" };
const LISTS = ["shape", "strides", "box_sizes", "elem_strides", "coords", "pixel_box_lower_corner",
  "pixel_box_upper_corner", "im2col_offsets", "plane"];
const COUNTS = ["address", "channels_per_pixel", "pixels_per_column", "ragged", "lower_corner_width", "upper_corner_width"];
const MENUS = ["swizzle", "interleave_layout", "oobfill", "l2_fetch_size", "data_type", "rules"];
const WORDS = ["kind", "dtype", "split_inner", "target", "tab", "access", "major", "mode", "task", ...MENUS];
const PLAIN = { kind: "tiled", dtype: "float16", split_inner: "", target: "sm_90", tab: "tensor", access: "column", major: "K", mode: "w", task: "",
  swizzle: "none", interleave_layout: "none", oobfill: "none", l2_fetch_size: "none", data_type: "", rules: "",
  address: 2 ** 32, ragged: null, strides: null, plane: null, allow: [] };
// Kind of map -> its required arguments.
const OWN = Object.fromEntries(Object.entries(tmaTables.VERBS).map(([kind, { needs }]) => [kind, needs]));
const OF_KINDS = [...new Set(Object.values(OWN).flat()), "im2col_offsets"];
const IMAGES = [2, 12, 14, 64];  // the shape of the tensor of an im2col map, if the state has no shape
const MOST_LINKED = 256;  // maximum number of chunks that are linked to their place in the tensor
const MOST_RANK = 8;  // maximum number of dimensions that are read; the rules refuse more than 5

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

// Read an address such as "#shape=96,128&dtype=float16". Return [state, the parts that could not be read].
function readAddress(hash) {
  const state = {}, unread = [];
  for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    let value = null;
    if (LISTS.includes(name)) value = readList(text);
    else if (COUNTS.includes(name)) value = readNumber(text);
    else if (name === "allow") value = text.split(",").filter((id) => tmaTables.ALLOWABLE.includes(id));
    else if (WORDS.includes(name)) value = text;
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
    if (name === (state.kind === "tiled" ? "coords" : "im2col_offsets") && value.every((n) => n === 0)) continue;
    const own = [...OWN[state.kind], ...(state.kind === "tiled" ? [] : ["im2col_offsets"])];
    if (own.includes(name) || !OF_KINDS.includes(name)) parts.push(`${name}=${encodeURIComponent(String(value)).replaceAll("%2C", ",")}`);
  }
  return `#${parts.join("&")}`;
}

// The options of each menu, except the menu of rules, whose options depend on the kind of map.
const OPTIONS = {
  ...tmaTables.ENUMS, kind: Object.keys(OWN), dtype: Object.keys(tmaTables.DTYPES), target: Object.keys(tmaTables.TARGETS),
  split_inner: ["", "yes"], data_type: ["", ...tmaTables.ENUMS.data_type], tab: Object.keys(TABS),
  access: ["column", "row", "ldmatrix"], major: ["K", "MN"], task: ["", ...Object.keys(TASKS)],
};
const optionsOf = (name, { kind = "tiled" } = {}) => (name === "rules" ? ["", ...tmaTables.RULE_SETS[kind]] : OPTIONS[name]);

// --- A complete state ---------------------------------------------------------------------------------

const sized = (list, length, value) => Array.from({ length }, (_, d) => list?.[d] ?? value);

// Return a complete state: every list has one entry per dimension, and a state of a tiled map has a box.
function completed(given) {
  const state = { ...PLAIN, ...given };
  if (!state.shape?.length) state.shape = state.kind !== "tiled" ? IMAGES : [32, 256];
  const rank = state.shape.length, isWide = state.kind === "im2col_wide", spatial = isWide ? 1 : rank - 2;
  state.elem_strides = sized(state.elem_strides, rank, 1);
  if (state.strides && state.strides.length !== rank) state.strides = null;
  if (state.kind !== "tiled") {
    if (isWide) for (const name of OWN.im2col_wide.slice(0, 2)) state[name] ??= -1;
    else for (const name of OWN.im2col.slice(0, 2)) state[name] = sized(state[name], Math.max(0, spatial), -1);
    if (isWide && given.swizzle === undefined) state.swizzle = "bytes128";
    state.channels_per_pixel ??= Math.min(64, state.shape.at(-1));
    state.pixels_per_column ??= 32;
    state.im2col_offsets = sized(state.im2col_offsets, Math.max(0, spatial), 0);
    Object.assign(state, { ragged: null, split_inner: "" });
  } else if (!given.box_sizes?.length) {
    const bits = tmaTables.DTYPES[state.dtype].bits, limits = [...Array(rank).fill(1), 8, Math.max(1, 1024 / bits)].slice(-rank);
    state.box_sizes = state.shape.map((n, d) => Math.max(1, Math.min(n, limits[d])));
    if (given.swizzle === undefined) state.swizzle = "bytes128";
  } else state.box_sizes = sized(state.box_sizes, given.box_sizes.length, 1);
  if (!optionsOf("rules", state).includes(state.rules)) state.rules = "";
  return state;
}

const requestOf = (state) => {
  const own = [...OWN[state.kind], { tiled: "ragged", im2col_wide: "mode" }[state.kind]], request = { allow: state.allow };
  for (const name of ["kind", "shape", "strides", "dtype", "address", "elem_strides", "target", ...own, ...MENUS])
    if (state[name] !== null && state[name] !== "" && state[name] !== undefined) request[name] = state[name];
  if (request.target === PLAIN.target) delete request.target;
  if (state.split_inner && state.kind === "tiled") request.split_inner = true;
  return request;
};

const offsetsOf = (state) => (state.kind === "tiled" ? null : state.im2col_offsets);

// Return the request, the report and the tile of a state. `ok` is true if there is a tile to show.
function resultOf(state) {
  const request = requestOf(state), report = tmaModel.check(request);
  let tile = null;
  if (report.ok) {
    const { rank } = tmaRequest.encodeArguments(request);
    if (state.coords?.length !== rank) state.coords = [...tmaModel.firstCoords(request)];
    tile = new ShownTile(state, request);
  }
  state.coords ??= state.shape.map(() => 0);
  return { state, request, report, tile, ok: tile !== null && !tile.refusal };
}

// --- The tile that is shown ---------------------------------------------------------------------------

// A tile with all data that the pictures need: the result of tmaModel.tile, and for each chunk a name and links to
// other parts of the pictures. Lists are row-major, with one entry per dimension of the map.
class ShownTile {
  constructor(state, request) {
    const found = tmaModel.tile(request, state.coords, offsetsOf(state));
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
    this.typeName = state.data_type || type.toLowerCase() === state.dtype ? type : `${state.dtype} as ${type}`;
    if (state.kind !== "tiled") this.asPixels(map);
  }
  get chunks() { return (this.every ??= this.found.chunks().map((c) => this.named(c))); }
  // The chunks at the addresses that they would have without the swizzle.
  get unswizzled() {
    return this.chunks.map((c) => ({ ...c, address: c.linear, swapped: false, about: c.about })).sort((a, b) => a.address - b.address);
  }
  named(chunk) {
    const isData = chunk.row >= 0, field = isData ? `field-${this.terms.length ? "swizzle" : this.state.kind === "tiled" ? "box_dim[0]" : "channels_per_pixel"}` : "";
    const named = { ...chunk, key: isData ? `c${chunk.row}.${chunk.first}` : "", number: isData ? Math.floor(chunk.first / (chunk.last - chunk.first + 1)) : 0 };
    named.to = isData ? [`row${chunk.row}`, `bank${Math.floor(chunk.address % 128 / 16)}`, field] : [];
    Object.defineProperty(named, "about", { get: () => this.about(named) });  // computed only for chunks that are drawn
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
    const said = [`The tile takes ${this.smemBytes.toLocaleString("en")} bytes of shared memory. The mbarrier counts ${this.txBytes.toLocaleString("en")} bytes, elements out of bounds included.`];
    if (this.chunks.some((c) => c.state === "filled" || c.state === "clipped"))
      said.push(`Elements out of bounds become ${this.state.oobfill === "nan" ? "NaN (words 0x7ff7)" : "zero"}; the code needs no bounds test.`);
    if (this.state.split_inner) said.push(`split_inner: the tensor (${listed(this.state.shape)}) is described with its columns in spans of ${this.shape.at(-1)}, so that one copy fills a tile wider than the swizzle. tma.split_inner_coords translates coordinates.`);
    if (this.state.ragged !== null) said.push(`ragged: two dimensions are added, with which a copy ends at the end of any slice of shape[${this.state.ragged}]. tma.ragged_coords(tm, offset, size, coords) gives their coordinates.`);
    if (this.isInterleaved) said.push(`The innermost dimension counts units of ${this.unitBytes} bytes; of shape[1] a copy takes one slice.`);
    return said;
  }
  // Return at most MOST_LINKED chunks that are on the drawn plane, with their places in the tensor: {at, positions,
  // row, ...chunk}.
  chunksIn(plane, columns, rows) {
    if (this.isInterleaved) return [];
    const inner = plane[1] === this.shape.length - 1, drawn = [];
    for (const c of this.chunks) {
      if (c.row < 0 || drawn.length >= MOST_LINKED) continue;
      const at = c.element[plane[1]], row = plane[0] >= 0 ? c.element[plane[0]] : 0;
      if (c.element.some((p, d) => !plane.includes(d) && p !== this.coords[d] && d < this.shape.length - 1)) continue;
      if (at >= columns.first && at < columns.last && row >= rows.first && row < rows.last)
        drawn.push({ ...c, about: c.about, at, row, positions: inner ? c.last - c.first + 1 : 1 });
    }
    return drawn;
  }
  // --- im2col ---
  asPixels(map) {
    const { rank } = map, first = map.interleave ? 0 : 1, dims = [];  // row-major indices of the dimensions w, h, d
    for (let s = 0; s < map.lower.length; s++) dims.push(rank - 1 - (first + s));
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

