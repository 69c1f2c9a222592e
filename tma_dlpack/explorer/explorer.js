// The explorer's front end shows controls on the left and pictures on the right. In a narrow page, the pictures are
// above the controls. The back end, host.js, checks requests and draws pictures. Pages and notebooks use the same front
// end and back end.

// --- The tensor's picture: drag the box, or its lower right corner --------------------------------

// Return a function that converts the position of a pointer event to pixels of a picture. The picture's position in the
// page is read only once, because the picture is replaced while the box is dragged.
const pointerIn = (svg) => {
  const box = svg.getBoundingClientRect(), { width, height } = svg.viewBox.baseVal;
  return (event) => [(event.clientX - box.left) * width / box.width,
                     (event.clientY - box.top) * height / box.height];
};

// One dimension of the drawn tensor. The constructor parses the picture's attribute data-x or data-y.
class DrawnAxis {
  constructor(text) {
    const [dimension, offset, length, first, last] = text.split(" ").map(Number);
    Object.assign(this, { dimension, offset, length, first, last });
  }
  position(pixel) {
    return this.first + (pixel - this.offset) / this.length * (this.last - this.first);
  }
  pixel(position) {
    return this.offset + (position - this.first) / (this.last - this.first) * this.length;
  }
}

// If the page is narrower than NARROW, pictures and controls form one column. While the page scrolls, a picture stays
// visible if its height leaves room for a control.
const STACKED = `@container (max-width:${NARROW - 1}px){:host(:not([hidden])),.row{display:contents}.row>svg.low{position:sticky;top:0;z-index:1}}`;
const MOST_OF_SCREEN = 0.6;
// Distances in px. A mouse grips the corner of the box at a distance of at most MOUSE. A finger grips the corner at a
// distance of at most TOUCH. A press that moves less than LEAST_MOVE is a tap.
const MOUSE = 9, TOUCH = 16, LEAST_MOVE = 2;

class Drag {
  constructor(explorer) { this.explorer = explorer; }
  attach(svg) {
    if (!svg.dataset.x) return;
    const axes = [svg.dataset.x, svg.dataset.y].map((text) => text && new DrawnAxis(text));
    svg.style.touchAction = "pan-y pinch-zoom";  // a finger scrolls the page, except on the box and its corner
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-roledescription", "tensor with a box");
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("touchstart", (event) => {
      const [touch] = event.touches, grip = this.grip(pointerIn(svg)(touch), axes, TOUCH);
      if (grip.sizing || grip.inside) event.preventDefault();
    }, { passive: false });
    svg.addEventListener("keydown", (event) => this.step(event, axes));
    svg.addEventListener("pointerdown", (event) => this.begin(event, svg, axes));
  }
  // Move the box when an arrow key is pressed. The box moves by 1, or with Shift by its own length. If this place is
  // not legal, the box moves on to the next legal place.
  step(event, axes) {
    const [n, sign] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, -1], ArrowDown: [1, 1] }[event.key] ?? [];
    if (n === undefined) return;
    event.preventDefault();
    event.stopImmediatePropagation();  // in other pictures, the arrow keys select chunks
    if (!axes[n]) return;
    const { legal, values } = this.explorer, { dimension } = axes[n], name = `coords[${dimension}]`;
    const by = event.shiftKey ? values[`box_sizes[${dimension}]`] ?? 1 : 1;
    const next = legal.snap(name, values[name] + sign * by, sign);
    if (sign * (next - values[name]) > 0) this.explorer.choose({ [name]: next });
  }
  // Return which part of the box is at the pixel `at`. `sizing` is true at the lower right corner, and `inside` is true
  // in the box.
  grip(at, axes, reach) {
    const { values, numbers } = this.explorer;
    const sides = axes.map((axis, n) => {
      if (!axis) return null;
      const start = values[`coords[${axis.dimension}]`], span = values[`box_sizes[${axis.dimension}]`] ?? 1;
      return { axis, n, start, span, position: axis.position(at[n]), fromEnd: at[n] - axis.pixel(start + span) };
    }).filter(Boolean);
    const canSize = numbers.has(`box_sizes[${sides[0].axis.dimension}]`);
    const sizing = canSize && sides.every((s) => Math.abs(s.fromEnd) <= reach);
    const inside = sides.every(({ n, axis, start, span }) => {
      const first = axis.pixel(start), last = axis.pixel(start + span), free = Math.max(0, (3 * reach - (last - first)) / 2);
      return at[n] >= first - free && at[n] <= last + free;  // so that a box of few pixels can be dragged too
    });
    for (const s of sides) s.grab = s.position - s.start;
    const isColumn = values[`box_sizes[${sides[0].axis.dimension}]`] === undefined;  // im2col: there is no box to drag
    const inPlot = sides.every(({ n, axis }) => at[n] >= axis.offset && at[n] <= axis.offset + axis.length);
    return { sides, sizing, inside: inside || (isColumn && inPlot && reach === MOUSE) };
  }
  begin(event, svg, axes) {
    const { explorer } = this, { legal } = explorer;
    const pointer = pointerIn(svg), at = pointer(event);
    const { sides, sizing, inside } = this.grip(at, axes, event.pointerType === "touch" ? TOUCH : MOUSE);
    if (event.button || !(sizing || inside)) return;
    explorer.shown = Object.fromEntries(sides.map((s) => [s.axis.dimension, [s.axis.first, s.axis.last]]));
    let isMoved = false;  // stays false for a tap, which changes nothing
    const move = (e) => {
      const now = pointer(e), changed = {};
      isMoved ||= Math.hypot(now[0] - at[0], now[1] - at[1]) >= LEAST_MOVE;
      if (!isMoved) return;
      for (const s of sides) {
        const name = `${sizing ? "box_sizes" : "coords"}[${s.axis.dimension}]`;
        changed[name] = legal.snap(name, Math.round(s.axis.position(now[s.n]) - (sizing ? s.start : s.grab)));
      }
      explorer.choose(changed);
    };
    const until = new AbortController(), { signal } = until;
    const end = () => {
      until.abort();
      explorer.shown = null;
      explorer.dragging = false;
      explorer.settle();
    };
    addEventListener("pointermove", move, { signal });
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, end, { signal });
    explorer.dragging = true;
    event.preventDefault();
  }
}

// --- The explorer ---------------------------------------------------------------------------------

class Explorer {
  constructor(host, el) {
    Object.assign(this, { host, el, shown: null, dragging: false, phase: 0, legal: new Legal(), numbers: new Map(), menus: new Map() });
    this.build();
    this.linked = new Linked(() => [...this.stage.querySelectorAll("svg")], (text) => { this.said.textContent = text; });
    this.drag = new Drag(this);
    this.show(true);
    host.place.listen(() => {
      host.reopen();
      this.show(true);
    });
    this.watch();
  }
  // Build the controls of all arguments, group by group. An item with `most` becomes a number, an item with `options` a
  // menu, and any other item a text field.
  buildControls(items) {
    const choose = (values) => this.choose(values), before = new Map([...this.form.children].map((e) => [e.dataset.title, e.open]));
    this.numbers.clear();
    this.menus.clear();
    const control = (item) => {
      const isNumber = "most" in item, Kind = isNumber ? NumberControl : item.options ? MenuControl : WordsControl;
      const made = new Kind(item, this.legal, choose);
      (isNumber ? this.numbers : this.menus).set(item.name, made);
      return made.element;
    };
    const group = ([title, fields]) => {
      const own = items.filter(({ name }) => fields.includes(name.split("[")[0])), numbers = own.filter((item) => "most" in item);
      const isUsed = own.some((item) => item.isPlain === false), isWide = numbers.length > 0 || this.el.clientWidth >= NARROW;
      const open = MORE.includes(title) ? isUsed || (before.get(title) ?? false) : before.get(title) ?? isWide;
      return own.some(({ name }) => name.startsWith(fields[0])) ? [make("details", { open, "data-title": title }, make("summary", {}, title), ...own.map(control))] : [];
    };
    this.form.replaceChildren(...Object.entries(GROUPS).flatMap(group));
  }
  build() {
    const { about, place } = this.host;
    this.form = make("form", { class: "tmax-controls", "aria-label": "arguments of the tensor map", onsubmit: (e) => e.preventDefault() });
    this.tabs = Object.entries(TABS).map(([name, title]) => make("button", {
      type: "button", role: "tab", "data-tab": name, onclick: () => this.look("tab", name),
      onkeydown: (e) => this.arrow(e) }, title));
    this.tasks = Object.entries(about.isOwn ? {} : TASKS).map(([name, { title }]) => make("button", { type: "button", "data-task": name,
      onclick: () => this.choose({ task: this.task === name ? "" : name }) }, title));
    this.taskBox = make("div", { class: "tmax-task", hidden: true }, this.taskText = make("p", { "aria-live": "polite" }),
      make("details", {}, make("summary", {}, "hint"), this.taskHint = make("p", {})));
    this.state = make("div", { class: "tmax-state" });
    this.spoken = make("div", { class: "tmax-spoken", role: "status" });
    this.fixes = make("div", { class: "tmax-fixes" });
    this.note = make("p", { class: "tmax-note", hidden: true });
    this.refused = make("p", { class: "tmax-refused", hidden: true });
    // The report can get the focus, so that keys can scroll it.
    this.report = make("div", { class: "tmax-report", role: "region", "aria-label": "report", tabIndex: 0 });
    ownKeys(this.report);
    const panel = newId();
    this.picture = make("div", { class: "tmax-stage", role: "tabpanel", id: panel });
    for (const tab of this.tabs) Object.assign(tab, { id: newId() }).setAttribute("aria-controls", panel);
    const shadow = this.picture.attachShadow({ mode: "open" });
    shadow.append(make("style", {}, `${LINK_STYLE}.row{display:flex;flex-wrap:wrap;gap:10px;align-items:flex-start}.row>svg{flex:none}:host(.tmax-stale) svg:not([data-refused]){opacity:.4;filter:grayscale(1)}${STACKED}`));
    this.stage = shadow.appendChild(make("div", { class: "row" }));
    this.lookMenu = make("select", { "aria-label": "what reads the tile", onchange: () => {
      this.phase = 0;
      this.look(this.lookMenu.name, this.lookMenu.value);
    } });
    this.phases = make("input", { type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": "phase of the access",
      oninput: () => { this.phase = this.phases.valueAsNumber; this.show(); } });
    this.stepper = make("div", { class: "tmax-stepper", hidden: true }, this.lookMenu, this.phases);
    this.said = make("div", { class: "tmax-said", "aria-live": "polite" });
    this.codeBox = make("div", { hidden: true });
    const tools = make("div", { class: "tmax-tools" },
      place.hasLink ? make("button", { type: "button", onclick: (e) => this.copy(this.host.link(), e.target) }, "copy link") : null,
      make("button", { type: "button", onclick: (e) => this.copy(this.code, e.target) }, "copy code"),
      place.savePage ? make("button", { type: "button", title: "this explorer as one HTML file, which needs no Python",
        onclick: () => place.savePage() }, "save page") : null,
      make("button", { type: "button", onclick: () => this.save("svg") }, "save SVG"),
      make("button", { type: "button", onclick: () => this.save("png") }, "save PNG"));
    this.root = make("div", { class: "tmax" }, this.sides = make("div", { class: "tmax-sides" },
      this.form,
      make("div", { class: "tmax-pictures" },
        this.tasks.length ? make("div", { class: "tmax-tasks" }, make("b", {}, "Try:"), ...this.tasks) : null, this.taskBox,
        make("div", { class: "tmax-tabs", role: "tablist", "aria-label": "pictures" }, ...this.tabs),
        this.note, this.spoken, this.state, this.report, this.refused, this.fixes, this.stepper, this.picture, this.codeBox, this.said, tools)));
    this.el.append(this.root);
    const hidden = make("style", {}, about.stored ? `.${about.stored}{display:none}` : "");
    document.head.append(hidden);
    this.dispose = () => hidden.remove();
  }

  // --- Choosing ---
  choose(values) {
    this.act(() => this.host.choose(values), Boolean(values.task));
  }
  // Change the state and show the result. If the new state needs other controls, build all controls again.
  act(change, isOther = false) {
    const before = this.host.shapeOfControls;
    this.asked = performance.now();
    change();
    this.show(isOther || before !== this.host.shapeOfControls);
    if (!this.dragging) this.settle();
  }
  look(name, value) {
    this.act(() => this.host.look(name, value));
  }
  // Wait until the user pauses. Then write an entry of the history, and compute the legal values. Computing the legal
  // values after every change would take too long.
  settle() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.host.write();
      this.reach();
      this.spoken.textContent = this.words;
    }, 180);
  }

  // --- Showing ---
  get width() { return this.picture.clientWidth || this.codeBox.clientWidth || this.sides.clientWidth; }
  show(withControls = false) {
    const { width } = this;
    const view = this.host.answer({ shown: this.shown, phase: this.phase, pinned: this.linked.pinned, ...(width && { width }) });
    this.values = view.values;
    this.tab = view.tab;
    if (withControls) this.buildControls(this.host.controls());
    this.take(view);
    if (withControls) this.reach();
    this.root.dispatchEvent(new CustomEvent("tmax-shown", { bubbles: true, composed: true, detail: performance.now() - this.asked }));
  }
  take(view) {
    for (const [name, control] of [...this.numbers, ...this.menus]) control.set(this.values[name]);
    this.state.textContent = view.state;
    this.words = view.spoken;
    this.note.textContent = view.note;
    this.note.hidden = !view.note;
    this.report.innerHTML = view.report;
    this.refused.textContent = view.refusal;
    this.refused.hidden = !view.refusal;
    this.fixes.replaceChildren(...(view.fix ? [this.button(view.fix, "fix")] : []),
      ...(view.ok || view.isBlank ? [] : [this.button("back to the last accepted", "undo")]));
    this.code = view.codes.map(([, text]) => text).join("\n\n");
    this.codeBox.replaceChildren(...view.codes.flatMap(([language, text]) => [
      make("div", { class: "tmax-language" }, make("b", {}, language),
        make("button", { type: "button", onclick: (e) => this.copy(text, e.target) }, `copy ${language}`)),
      make("pre", { class: "tmax-code", tabindex: 0 }, text)]));
    for (const pre of this.codeBox.querySelectorAll("pre")) ownKeys(pre);
    const isCode = view.tab === "code";
    this.codeBox.hidden = !isCode;
    this.picture.hidden = isCode;
    this.said.hidden = isCode;
    this.taskIs(view.task);
    this.stepper.hidden = !view.menu;
    if (view.menu) this.lookAt(view.menu);
    this.phases.hidden = view.banks.last === undefined;
    this.phases.max = view.banks.last ?? 0;
    this.phases.value = this.phase = view.banks.phase ?? 0;
    for (const tab of this.tabs) {
      const on = tab.dataset.tab === this.tab;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      if (on) this.picture.setAttribute("aria-label", `picture: ${tab.textContent}`);
    }
    this.picture.classList.toggle("tmax-stale", !view.ok);
    if (view.panels.length || view.ok || view.isBlank) this.draw(view.panels);
  }
  // Show the chosen task: its text, and whether it is done.
  taskIs(now) {
    const isOther = now?.name !== this.task;
    this.task = now?.name;
    for (const button of this.tasks) button.setAttribute("aria-pressed", button.dataset.task === this.task);
    this.taskBox.hidden = !now;
    if (!now) return;
    const { asks, hint, learned } = TASKS[now.name];
    this.taskText.textContent = now.isDone ? `✓ Done. ${learned}` : asks;
    this.taskHint.textContent = hint;
    this.taskBox.classList.toggle("tmax-done", now.isDone);
    if (isOther) this.taskBox.querySelector("details").open = false;
  }
  // Show the menu of the current tab. The menu selects how the tile is read.
  lookAt({ name, words, options, value }) {
    if (this.lookMenu.name !== name) {
      this.lookMenu.replaceChildren(...options.map((o) => make("option", { value: o }, words + o)));
      Object.assign(this.lookMenu, { name, ariaLabel: name });
    }
    this.lookMenu.value = value;
  }
  draw(panels) {
    const focused = [...this.stage.children].indexOf(this.stage.getRootNode().activeElement);
    this.stage.innerHTML = panels.join("");
    this.paint();
    for (const svg of this.stage.querySelectorAll("svg")) {
      svg.style.maxWidth = `min(100%, ${svg.viewBox.baseVal.width}px)`;
      keepLegible(svg);
      svg.classList.toggle("low", !svg.previousElementSibling && svg.viewBox.baseVal.height <= MOST_OF_SCREEN * innerHeight);
      this.drag.attach(svg);
      this.linked.attach(svg);
      svg.addEventListener("click", (e) => this.strip(e) || this.show());
    }
    if (this.linked.pinned) this.linked.show(this.linked.pinned);
    this.stage.children[focused]?.focus({ preventScroll: true });
  }
  strip(event) {
    const key = event.target.closest?.("g")?.querySelector("[data-k^=at]")?.dataset.k;
    if (!key) return false;
    const [d, position] = key.slice(2).split(".").map(Number);
    this.choose({ [`coords[${d}]`]: position });
    return true;
  }
  paint() {
    const dark = isDark(this.el);
    this.root.style.colorScheme = dark ? "dark" : "light";
    for (const [n, style] of this.stage.querySelectorAll("svg style").entries()) {
      this.sheets ??= [];
      this.sheets[n] = style.textContent.includes(DARK) ? style.textContent : this.sheets[n];
      style.textContent = themed(this.sheets[n], this.el);
    }
  }
  watch() {
    onTheme(() => this.paint());
    let width = 0;
    const resized = new ResizeObserver(() => {
      if (!width) this.paint();  // the page has become visible, so its background is known
      const now = this.width;
      if (now && Math.abs(now - width) > 24) this.show();
      width = now || width;
    });
    for (const e of [this.picture, this.sides]) resized.observe(e);
  }
  reach() {
    Object.assign(this.legal, this.host.legal());
    for (const control of [...this.numbers.values(), ...this.menus.values()]) control.reach();
  }
  button(words, what) {
    return make("button", { type: "button", onclick: () => this.act(() => this.host[what]()) }, words);
  }
  arrow(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const n = this.tabs.findIndex((t) => t.dataset.tab === this.tab);
    const tab = this.tabs[(n + by + this.tabs.length) % this.tabs.length];
    tab.focus();
    this.look("tab", tab.dataset.tab);
  }

  // --- Copying and saving ---
  copy(text, button) {
    navigator.clipboard?.writeText(text);
    const words = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = words; }, 900);
  }
  save(kind) {
    const svg = this.stage.querySelector("svg");
    if (!svg) return;
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }));
    const name = `tma-${this.tab}.${kind}`;
    if (kind === "svg") return download(url, name);
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
      const context = canvas.getContext("2d");
      context.scale(2, 2);
      context.drawImage(image, 0, 0);
      download(canvas.toDataURL("image/png"), name);
    };
    image.src = url;
  }
}
