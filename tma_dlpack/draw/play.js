// Players: controls with which a reader selects one of a figure's pictures or frames. Python has computed all pictures
// and frames. Without scripts, the page shows only one picture. `PLAYERS` in figure.py has the scripts of other
// players.

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

// A player with one picture per choice. The slider and the switches both select a choice. After a selection, the
// cell of each thread moves from its place in the previous picture to its place in the new picture.
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

// Create a player of the class `kind` for every figure whose element has the attribute data-`name`.
const playAll = (name, kind) => {
  for (const root of document.querySelectorAll(`.tma-play[data-${name}]`)) {
    const packed = root.dataset[name];
    delete root.dataset[name];
    unpack(packed).then((data) => new kind(root, data));
  }
};
playAll("steps", Steps);
