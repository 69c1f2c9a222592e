// The back end of the explorer's page. `Host` has the state, calls tmaModel, and draws the result with pictures.js,
// memory.js, scenes.js and refused.js.

const LAST = "the picture shows the last accepted values";
const SAME_CHANGE_MS = 1000;
const OF_TENSOR = ["shape", "strides", "address", "dtype"], OF_TILE = ["coords", "im2col_offsets", "plane"];

class Host {
  // place: an object of places.js. about: facts about the tensor of a notebook, which widget.py sends:
  //   isOwn: the page shows a tensor of the notebook, so another tensor cannot be chosen
  //   onlyTile: the page shows a map without its tensor, so only the tile can be chosen
  //   note: a text that is shown above the report
  //   preparation: Python code that must run before the call
  //   stored: the CSS class of the still picture, which is hidden while the page is live
  constructor(place, about = {}) {
    Object.assign(this, { place, about, written: { at: -Infinity }, looks: { width: 900 } });
    this.reopen();
  }
  reopen() {
    const [given, unread] = readAddress(this.place.read());
    this.note = unread.length ? `Not read of the address: ${unread.join(", ")}` : this.about.note || "";
    this.open(completed(given));
    this.address = writeAddress(this.state);
  }
  open(state) {
    Object.assign(this, { accepted: null, instead: null });
    this.turn(state);
    if (!this.ok) this.instead = this.withFix();
  }
  // Return the result of the repaired state; null if the repair fails. If the first state of a page is refused, the
  // page draws the repaired state, because there is no earlier accepted state that the page could draw.
  withFix() {
    const repaired = this.repaired();
    let found = repaired && resultOf(repaired);
    if (found?.tile.refusal) found = resultOf(movedOf(found));
    if (!found?.ok) return null;
    this.accepted = found.state;
    return { ...found, state: { ...found.state, tab: this.state.tab } };
  }
  link() { return `${location.href.split("#")[0]}${writeAddress(this.state)}`; }

  // --- Actions of the front end ---
  choose(values) {
    this.changed = Object.keys(values);
    if (values.task) this.open(tasked(values.task));
    else this.turn(this.chosen(values));
  }
  fix() {
    this.changed = ["fix"];
    this.turn(this.report.ok ? movedOf(this) : this.repaired() || this.state);
  }
  undo() {
    this.changed = ["undo"];
    if (this.accepted) this.turn({ ...this.accepted, tab: this.state.tab });
  }
  // Show another tab, or change how the tile is read in the current tab.
  look(name, value) {
    if (value === this.state[name]) return;
    this.write();  // the previous change gets its own entry of the history
    this.state = { ...this.state, [name]: value };
    this.found = null;  // the stored repaired state has the old tab
    this.changed = [name, value];
  }
  // Write the state as an entry of the history. Several changes of the same control without a pause become one entry.
  write() {
    const address = writeAddress(this.state), names = String(this.changed), at = performance.now();
    if (address === this.address) return;
    const isMore = names === this.written.names && at - this.written.at < SAME_CHANGE_MS;
    this.place.write(address, isMore);
    Object.assign(this, { address, written: { names, at } });
  }

  // --- Changes of the state ---
  turn(state) {
    // `repaired` stores the repaired state in `found`.
    Object.assign(this, resultOf(state), { found: null, shapeOfControls: shapeOf(state) });
    if (this.ok) this.accepted = state;
  }
  chosen(values) {
    const state = { ...this.state };
    if (values.task === "") state.task = "";
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
  // Return the state for another kind of map. An im2col map gets a tensor of images if the tensor has fewer than 3
  // dimensions.
  otherKind(state) {
    const shape = state.kind !== "tiled" && state.shape.length < 3 ? IMAGES : state.shape, { target } = state;
    const has = (name) => tmaRequest.targetOf(name).has_wide, isWide = state.kind === "im2col_wide";
    return completed({ ...state, shape, coords: null, plane: null, elem_strides: null, rules: "",
      strides: shape === state.shape ? state.strides : null,
      box_sizes: null, swizzle: isWide ? "bytes128" : state.swizzle, im2col_offsets: null,
      target: isWide && !has(target) ? Object.keys(tmaTables.TARGETS).find(has) : target });
  }
  // Return an accepted state with other arguments, or with another tensor if no arguments help; null if no such state
  // is found.
  repaired() {
    return this.report.ok ? this.state : (this.found ??= { state: this.searched() }).state;
  }
  searched() {
    let { state, report } = this;
    const seen = new Set();
    while (!report.ok) {
      const [{ rule, change }] = report.violations;
      const fix = report.fixed || (this.about.isOwn ? null : change);  // `change` may change the tensor
      if (seen.has(rule) || !fix) return null;
      seen.add(rule);
      const words = this.wordsOf(fix);
      if (words.strides && !state.strides) words.strides = apart(state.shape, words.strides);
      state = completed({ ...state, ...words, coords: null });
      report = tmaModel.check(requestOf(state));
    }
    return state;
  }
  // Convert a change of a request to a change of the page's state.
  wordsOf(change) {
    const word = (name, value) => (name === "split_inner" ? (value ? "yes" : "") : value ?? PLAIN[name] ?? null);
    return Object.fromEntries(Object.entries(change).map(([name, value]) => [name, word(name, value)]));
  }

  // --- Results ---
  // Return everything that the front end shows. `looks` has the width of the pictures, the part of the tensor that is
  // shown, the phase of the access that is shown, and the pinned chunk.
  answer(looks) {
    Object.assign(this.looks, looks);
    const { state, report, tile, ok } = this, refused = tile?.refusal;
    if (ok) this.instead = null;
    const isBlank = !(ok || this.instead || this.accepted);
    const last = this.instead ? "the picture shows it with the fix below" : isBlank ? "there is no picture of it" : LAST;
    const shown = ok ? this : this.instead;
    let panels = [], why = "", refusal = refused ? `${refused.rule}: ${refused.found}; ${refused.limit}.\nFix: ${refused.fix}` : "", banks = {};
    if (shown) {
      try {
        [panels, banks, why = ""] = this.panels(shown);
        refusal ||= why;
      } catch (error) {
        refusal = String(error.message || error);
      }
    }
    const asked = ok ? null : refusedPicture(this, this.accepted, this.looks.shown, this.half);
    if (asked) panels = [asked, ...panels.slice(state.tab === "tensor" ? 1 : 0)];
    const task = state.task ? { name: state.task, isDone: TASKS[state.task].isDone(this) } : null;
    const code = tmaModel.code(this.request, state.coords, offsetsOf(state));
    const states = report.ok ? (refused ? `✗ the map is accepted, this tile is refused; ${last}` : "✓ accepted")
      : `✗ refused: ${counted(report.violations.length, "violation")}; ${last}`;
    return { tab: state.tab, task, menu: menuOf(state), values: this.values(), ok, state: states, note: this.note, report: this.findings(), refusal, fix: this.fixWords(),
      banks, panels, isBlank, spoken: this.spoken(ok),
      codes: [["Python", (this.about.preparation || "") + code.python], ["C++", code.cpp]].filter(([, text]) => text) };
  }
  // Return the text for a screen reader: the position of the tile, and the broken rule if the state is refused.
  spoken(ok) {
    const { coords, box_sizes: box, kind } = this.state, at = `tile at (${coords.join(", ")})` + (kind === "tiled" && box ? `, box (${box.join(", ")})` : "");
    const found = this.tile?.refusal ? [this.tile.refusal] : this.report.violations;
    return `${at}: ${ok ? "accepted" : `refused by ${found.map((v) => `${v.rule}: ${v.found}`).join("; ")}`}`;
  }
  findings() {
    return this.report.violations.map((v) => `<div class="tma-finding tma-violation"><b>✗ ${escaped(v.found)}</b>` +
      `<br>It must ${escaped(v.limit.replace(/^(it )?must /, ""))}.` + (v.fix ? `<br>Fix: ${escaped(v.fix)}.` : "") +
      (v.why ? `<br><i>Why: ${escaped(v.why)}.</i>` : "") + `<br><small>${escaped(v.rule)} (${escaped(v.source)})</small></div>`).join("");
  }
  fixWords() {
    if (this.report.ok) return this.tile.refusal ? "move the tile to legal coordinates" : "";
    const repaired = this.repaired() || {}, own = (name) => name !== "coords" && name in PLAIN || LISTS.includes(name) || COUNTS.includes(name);
    const parts = Object.entries(repaired).filter(([name, value]) => own(name) && name !== "coords" && String(value ?? "") !== String(this.state[name] ?? ""))
      .map(([name, value]) => `${name}=${Array.isArray(value) ? `(${value.join(", ")})` : name === "address" ? hex(value, 1) : value || "the default"}`);
    return parts.length ? `apply ${parts.join(", ")}` : "";
  }
  get half() { return this.looks.width >= 560 ? (this.looks.width - 10) / 2 : this.looks.width; }
  panels({ state, tile, request }) {
    const { tab } = this.state, { half } = this;
    const swizzled = tile.terms.length ? `Shared memory: the tile, swizzled by ${tile.swizzle}` : "Shared memory: the tile, row after row";
    const legend = [`r: ${state.kind !== "tiled" ? "pixel of the column" : "row of the box"}; c: the elements of that row in the 16 bytes. Point at a chunk to see where it comes from.`];
    if (tab === "tensor") {
      const source = state.kind !== "tiled" ? pixelsPicture(tile, half) : tensorPicture(tile, planeOf(state, tile), this.looks.shown, half);
      return [[source, memoryPicture(swizzled, tile.chunks, tile, half, { words: legend, most: FEW_LINES })], {}];
    }
    if (tab === "shared") {
      if (!tile.terms.length) return [[memoryPicture(swizzled, tile.chunks, tile, half, { words: legend }), bitsPicture(this.pinnedChunk(tile), tile, half)], {}];
      return [[memoryPicture("Before the swizzle: row after row", tile.unswizzled, tile, half, { words: legend }),
        memoryPicture(swizzled, tile.chunks, tile, half), bitsPicture(this.pinnedChunk(tile), tile, this.looks.width)], {}];
    }
    if (tab === "copy") return [[copyPicture(tile, this.looks.width)], {}];
    if (tab === "core") return this.corePanels({ state, tile, request }, half);
    if (tab === "banks") return this.bankPanels({ state, tile, request }, half);
    if (tab !== "bytes") return [[], {}];
    const bytes = tmaModel.encode(request);
    if (!bytes) throw new Error(`The bytes of a map for ${state.target} are not known: they were measured on sm_90.`);
    const fields = tmaModel.fields(request), table = fieldsPicture(fields, half);
    const rest = this.looks.width - table.width - 10;
    return [[bytesPicture(bytes, fields, rest > 380 ? rest : this.looks.width), table.svg()], {}];
  }
  // Return the pinned chunk. If no chunk is pinned, return the first chunk of the second line of 128 bytes, because
  // every swizzle moves this chunk.
  pinnedChunk({ chunks }) {
    return chunks.find((c) => c.key && c.key === this.looks.pinned) || chunks.find((c) => c.row >= 0 && c.linear >= 128) || chunks.find((c) => c.row >= 0);
  }
  corePanels({ state, tile, request }, half) {
    const operand = tmaModel.operand(request, state.major), [refused] = operand.refusals;
    if (refused) return [state.kind === "tiled" ? [unreadablePicture(operand, tile, half)] : [], {}, `${operand.instruction} cannot read this tile ${state.major}-major. ${refused.rule}: ${refused.found}; ${refused.limit}.`];
    return [[corePicture(operand, half), descriptorPicture(operand, half)], {}];
  }
  bankPanels({ state, tile, request }, half) {
    const access = state.access === "ldmatrix" ? tmaModel.ldmatrix(request, 0, 0, { num: 4 }) : state.access;
    if (!access) throw new Error("ldmatrix.x4 reads 16 rows of 32 bytes: this tile is no such matrix.");
    const found = tmaModel.banks(request, access, {});
    const last = found.phases.length - 1, phase = clamp(this.looks.phase, 0, last);
    const words = new Set(found.phases[phase].flat()), marked = new Set(tile.chunks.filter((c) => words.has(c.address / 4)).map((c) => c.key));
    const ways = { column: "one 16-byte column of 8 rows", row: "8 neighbouring chunks", ldmatrix: "8 rows of an 8 x 8 matrix (ldmatrix.x4)" };
    const ranked = [];
    tmaTables.ENUMS.swizzle.forEach((name, number) => {
      const other = { ...request, swizzle: name };
      if (name !== tile.swizzle && !tmaModel.accepts(other)) return;
      const { wavefronts, worst } = tmaModel.banks(request, access, { swizzle: name });
      ranked.push({ name, own: name === tile.swizzle, wavefronts, worst });
    });
    ranked.sort((a, b) => a.wavefronts - b.wavefronts || b.own - a.own);
    return [[phasePicture(found, phase, ways[state.access], half),
      memoryPicture("The chunks of this phase, in shared memory", tile.chunks, tile, half, { marked }),
      rankedPicture(ranked, this.looks.width)], { phase, last }];
  }
  values() {
    const { state } = this, values = {};
    for (const name of [...LISTS, "im2col_offsets"]) (state[name] || []).forEach((n, d) => { values[`${name}[${d}]`] = n; });
    for (const name of [...WORDS, ...COUNTS]) values[name] = state[name] ?? "";
    return { ...values, shape: listed(state.shape), strides: listed(state.strides), address: hex(state.address, 1), plane: listed(state.plane) };
  }

  // --- Controls ---
  controls() {
    const { state } = this, tiled = state.kind === "tiled", rank = state.shape.length;
    const numbers = [...OWN[state.kind], "coords", ...(tiled ? [] : ["im2col_offsets"]), "elem_strides"];
    const options = { ragged: ["", ...state.shape.keys()].map(String), plane: ["", ...planes(state.coords.length)] };
    const menus = ["dtype", ...(tiled && rank > 2 ? ["plane"] : []), "kind", ...MENUS, "target", ...(state.kind === "im2col_wide" ? ["mode"] : []), ...(tiled ? ["split_inner", "ragged"] : [])];
    const isPlain = (name) => (name === "elem_strides" ? state[name].every((n) => n === 1) : String(state[name] ?? "") === String(PLAIN[name] ?? ""));
    const items = [...["shape", "strides", "address"].map((name) => ({ name })),
      ...numbers.flatMap((name) => (Array.isArray(state[name]) ? state[name].map((n, d) => [`${name}[${d}]`, n]) : [[name, state[name]]]))
        .map(([name, value]) => ({ name, least: 0, most: Math.max(1, value) })),
      ...menus.map((name) => ({ name, options: options[name] || optionsOf(name, state) }))];
    const { isOwn, onlyTile } = this.about, isThere = ({ name }) => (onlyTile ? OF_TILE.includes(name.split("[")[0])
      : !isOwn || !(OF_TENSOR.includes(name) || (name === "kind" && rank < 3)));
    return items.filter(isThere).map((item) => ({ ...item, isPlain: isPlain(item.name.split("[")[0]) }));
  }
  legal() {
    const { accepted, report, state } = this, isBeside = !report.ok && accepted && shapeOf(accepted) === shapeOf(state);
    const at = isBeside ? accepted : state, request = requestOf(at), ranges = {}, options = {};
    // If the C core cannot read the request, for example because an extent is negative, the legal values are unknown.
    if (!isBeside && report.violations.some(({ rule }) => rule === "ARGUMENT")) return { ranges, options };
    for (const { name, most, options: all } of this.controls()) {
      if (most !== undefined) ranges[name] = tmaModel.legal(request, name, at.coords, offsetsOf(at));
      if (![...MENUS, "dtype"].includes(name)) continue;
      const reasons = all.map((option) => [option, tmaModel.reason(request, name, option)]);
      options[name] = Object.fromEntries(reasons.filter(([, why]) => why));
    }
    return { ranges, options };
  }
}

// Return the menu above the pictures of a tab, {name, words, options, value}; null if the tab has no menu.
const LOOKS = { banks: ["access", "read: "], core: ["major", "major: "] };
const menuOf = (state) => {
  const [name, words] = LOOKS[state.tab] || [];
  return name ? { name, words, options: optionsOf(name), value: state[name] } : null;
};

const tasked = (name) => completed({ ...readAddress(TASKS[name].start)[0], task: name });

// Return a copy of the state with the nearest legal coordinates.
function movedOf({ state, request }) {
  const moved = { ...state };
  for (const name of ["coords", "im2col_offsets"])
    moved[name] = state[name]?.map((value, d) => {
      const { least, most, step } = tmaModel.legal(request, `${name}[${d}]`, state.coords, offsetsOf(state));
      return clamp(Math.round(value / step) * step, Math.ceil(least / step) * step, Math.floor(most / step) * step);
    });
  return moved;
}

// Return strides that are increased where necessary, so that no row overlaps the next row.
const apart = (shape, strides) => {
  const wide = [...strides];
  for (let d = shape.length - 2; d >= 0; d--) wide[d] = Math.max(wide[d], wide[d + 1] * shape[d + 1]);
  return wide;
};

// Return a string that is equal for two states if both states have the same controls.
const shapeOf = ({ kind, shape, coords, box_sizes: box, split_inner: split }) =>
  [kind, shape.length, coords.length, box?.length, split].join(" ");

// Return the two dimensions of a tensor that are drawn: those in `plane`, or else the two innermost dimensions.
function planeOf(state, tile) {
  const rank = tile.shape.length, [down, across] = state.plane || [];
  const is = (d) => Number.isInteger(d) && d >= 0 && d < rank;
  return is(down) && is(across) && down !== across ? [down, across] : [rank - 2, rank - 1];
}

const planes = (rank) => {
  const found = [];
  for (let down = 0; down < rank; down++) for (let across = down + 1; across < rank; across++) found.push(`${down}, ${across}`);
  return found;
};
