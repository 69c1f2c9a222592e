// Plays the figures of barrier_figure.py, bits.py and banks.py: switches between pictures and selects frames,
// which Python computed. Without scripts the page shows the chosen picture only.
const PLAY_MS = 700;

const unpack = async (packed) => JSON.parse(await inflated(packed));
const set = (node, attributes) => {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};

class Played {
  constructor(root, data) {
    Object.assign(this, { root, ...data });
    const name = `tma-${Math.random()}`;
    const switches = this.choices.map((choice, n) => {
      const radio = make("input", { type: "radio", name, checked: n === this.now, onchange: () => this.choose(n) });
      return make("label", {}, radio, ` ${choice.name}`);
    });
    this.slider = make("input", { type: "range", min: 0, oninput: () => this.seek() });
    this.seeking = make("div", { class: "tma-seek" }, this.slider);
    const group = make("div", { class: "tma-switches", role: "radiogroup", "aria-label": "variants" }, ...switches);
    this.controls = root.querySelector(".tma-controls");
    this.controls.append(group, this.seeking);
    this.controls.hidden = false;
  }
  get choice() {
    return this.choices[this.now];
  }
  get svg() {
    return this.root.querySelector(".tma-live").shadowRoot.querySelector("svg");
  }
  choose(n) {
    this.now = n;
    this.root.querySelector(".tma-title b").textContent = this.choice.title;
    const host = this.root.querySelector(".tma-live");
    Object.assign(host, { tmaWide: this.choice.svg, tmaNarrow: this.choice.narrow, tmaIsNarrow: undefined });
    arrange(host);
  }
}

class Barrier extends Played {
  constructor(root, data) {
    super(root, data);
    this.button = make("button", { type: "button", onclick: () => this.play(!this.timer) });
    this.slider.addEventListener("pointerdown", () => this.play(false));
    this.slider.setAttribute("aria-label", "event");
    this.seeking.prepend(this.button);
    this.event = make("div", { class: "tma-event", "aria-live": "polite" });
    this.states = make("div", { class: "tma-states" });
    this.controls.append(this.states, this.event);
    this.choose(this.now);
    this.svg.getRootNode().host.addEventListener("tma-drawn", () => {  // in its other layout
      this.takeKeys();
      this.seek();
    });
  }
  choose(n) {
    super.choose(n);
    this.takeKeys();
    this.root.querySelector(".tma-code").innerHTML = this.choice.code;
    this.slider.max = this.choice.frames.length;
    this.slider.value = 0;
    this.play(false);
    this.seek();
  }
  // A click on the picture gives it the keys, which would go to the notebook's cell.
  takeKeys() {
    for (const e of [this.svg, this.svg.getRootNode().host]) ownKeys(e);
    this.svg.setAttribute("tabindex", "-1");
    this.svg.addEventListener("keydown", (event) => this.step(event));
  }
  step(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.play(false);
    this.slider.stepUp(by);
    this.seek();
  }
  play(on) {
    clearInterval(this.timer);
    this.button.textContent = on ? "❚❚ pause" : "▶ play";
    this.timer = on && setInterval(() => {
      this.slider.stepUp();
      this.seek();
      if (this.slider.value === this.slider.max || !this.root.isConnected) this.play(false);
    }, PLAY_MS);
    if (on && this.slider.value === this.slider.max) this.slider.value = 0;
    if (on) this.seek();
  }
  seek() {
    const { frames, about } = this.choice;
    const n = Number(this.slider.value), next = frames[n + 1]?.[0];
    const [x, said, states, lines] = frames[n] ?? [null, about, [], []];
    this.slider.setAttribute("aria-valuetext", said);
    this.event.textContent = said;
    this.states.replaceChildren(...states.map((text) => make("code", {}, text)));
    this.root.querySelectorAll(".tma-code span").forEach((span, line) =>
      span.classList.toggle("tma-now", lines.includes(line)));
    this.cover(x, next);
  }
  // Mark the event at x and hide what comes after the next one, as parts of the axis of time.
  cover(x, next) {
    const svg = this.svg;
    svg.querySelectorAll(".tma-cover").forEach((e) => e.remove());
    if (x === null) return;
    const size = (axis) => svg.dataset[axis].split(" ").map(Number);
    const [, left, width] = size("x"), [, top, height] = size("y"), from = (next ?? 1) * width;
    const part = (name) => svg.appendChild(document.createElementNS(svg.namespaceURI, name));
    const place = { x: left + from, y: top - 1, width: width - from + 2, height };
    const hide = "stroke:none;opacity:.88", mark = "stroke:#e5534b;stroke-width:2";
    set(part("rect"), { ...place, class: "tma-cover t-paper", style: hide });
    set(part("path"), { d: `M${left + x * width} ${top - 4}v${height + 2}`, class: "tma-cover", style: mark });
  }
}

class Bits extends Played {
  constructor(root, data) {
    super(root, data);
    set(this.slider, { max: 896, step: 128, "aria-label": "start of the tile" });
    this.slider.value = this.offset;
    this.seeking.prepend("the tile starts at");
    this.seeking.append(this.start = make("output", {}));
    this.event = make("div", { class: "tma-event", "aria-live": "polite" });
    this.controls.append(this.event, "Click a chunk, or go from chunk to chunk with the arrow keys:");
    this.root.querySelector(".tma-live").addEventListener("tma-drawn", () => this.link());
    this.choose(this.now);
  }
  // The picture has been drawn, in one of its layouts: a click and the arrow keys choose a chunk.
  link() {
    const linked = linkedOf(this.root.closest(".tma"));
    linked.pin(`c${this.chunk}`);
    for (const event of ["click", "keydown"])
      this.svg.addEventListener(event, () => {
        if (/^c\d+$/.test(linked.pinned)) this.chunk = Number(linked.pinned.slice(1));
        this.seek();
      });
    this.seek();
  }
  seek() {
    const { svg, chunk } = this, base = Number(this.slider.value), n = base / 128;
    const { swizzled, column, facts } = this.choice;
    const all = (key) => [...svg.querySelectorAll(`[data-k="${key}"]`)];
    const write = (key, text) => all(key).forEach((cell) =>
      cell.parentNode.querySelector("text").textContent = text);
    const hex = (address) => `0x${address.toString(16).padStart(4, "0")}`;
    this.start.textContent = hex(base);
    this.event.replaceChildren(...facts[n].map((fact) => make("div", {}, fact)));
    for (const [name, address] of [["in", base + 16 * chunk], ["out", swizzled[n][chunk]]]) {
      for (let bit = 0; bit < 10; ++bit) write(`${name}${bit}`, address >> bit & 1);
      write(`${name}hex`, hex(address));
      write(`${name}banks`, `banks ${this.banks[address >> 4 & 7]}`);
    }
    for (let line = 0; line < 8; ++line) write(`line${line}`, hex(base + 128 * line));
    const at = (cell) => ["x", "y"].map((name) => Number(cell.getAttribute(name)));
    const before = column.map((_, c) => at(all(`c${c}`)[0]));
    const after = swizzled[n].map((address) => before[(address - base) >> 4]);
    const [dx, dy] = at(all("after")[0]).map((place, n) => place - at(all("before")[0])[n]);
    const still = matchMedia("(prefers-reduced-motion:reduce)").matches;
    after.forEach(([x, y], c) => {
      const cell = all(`c${c}`)[1], [x0, y0] = at(cell), { style } = cell.parentNode;
      style.transition = still ? "" : "transform .3s";
      style.transform = `translate(${x + dx - x0}px,${y + dy - y0}px)`;
    });
    const framed = [...column[chunk].filter((c) => c !== chunk), chunk];
    framed.forEach((c, k) => {
      set(all("framed-before")[k], { x: before[c][0], y: before[c][1] });
      set(all("framed-after")[k], { x: after[c][0] + dx, y: after[c][1] + dy });
    });
  }
}

// One picture per choice, from the first to the last of them: the slider and the switches agree.
// Move the bytes a thread reads from their place in one picture to their place in the next.
class Steps extends Played {
  constructor(root, data) {
    super(root, data);
    set(this.slider, { max: this.choices.length - 1, "aria-label": "swizzle" });
    this.choose(this.now);
  }
  places() {
    const cells = [...this.svg.querySelectorAll("g > [data-k^=thread]")];
    return new Map(cells.map((cell) => [cell.dataset.k, cell]));
  }
  choose(n) {
    const before = this.places(), at = (cell, name) => Number(cell.getAttribute(name));
    super.choose(n);
    const still = !this.begun || matchMedia("(prefers-reduced-motion:reduce)").matches;
    this.begun = true;
    for (const [key, cell] of still ? [] : this.places()) {
      const from = before.get(key) ?? cell, by = (name) => `${at(from, name) - at(cell, name)}px`;
      const moved = { transform: `translate(${by("x")},${by("y")})` };
      cell.parentNode.animate([moved, { transform: "none" }], { duration: 400, easing: "ease" });
    }
    this.slider.value = n;
    this.slider.setAttribute("aria-valuetext", this.choice.name);
    this.controls.querySelectorAll("input[type=radio]")[n].checked = true;
  }
  seek() {
    this.choose(Number(this.slider.value));
  }
}

for (const [name, kind] of [["barrier", Barrier], ["bits", Bits], ["steps", Steps]])
  for (const root of document.querySelectorAll(`.tma-play[data-${name}]`)) {
    const packed = root.dataset[name];
    delete root.dataset[name];
    unpack(packed).then((data) => new kind(root, data));
  }
