// Players of the figures of barrier_play.py and swizzle_bits.py. A page has draw/play.js before this file.
const PLAY_MS = 700;

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
    this.svg.getRootNode().host.addEventListener("tma-drawn", () => {  // the layout has changed
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
  // Make the picture focusable, so that after a click the picture gets the keys instead of the notebook cell.
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
  // Mark the event at x, and hide all that follows the next event. x and next are fractions of the time axis.
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
  // After each drawing of the picture, let a click and the arrow keys choose a chunk.
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

playAll("barrier", Barrier);
playAll("bits", Bits);
