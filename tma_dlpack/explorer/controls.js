// The controls of the explorer: menus, text fields, and numbers with sliders. A slider snaps to legal values.

const NARROW = 900;  // px; a narrower page has one column, as in explorer.css

const download = (href, name) => make("a", { href, download: name }).click();
// The key Enter applies the typed text. JupyterLab intercepts the key, so the browser may send no `change` event.
const onEnter = (take) => (event) => {
  if (event.key !== "Enter" || isLabs(event)) return;
  event.preventDefault();
  take();
};
const newId = () => `tmax-${Math.random().toString(36).slice(2)}`;

// --- What the controls are called ----------------------------------------------------------------

// Group of controls -> names of the group's controls, without indices such as [0]. A group is shown only if its first
// control exists.
const GROUPS = {
  "Tensor": ["shape", "dtype"],
  "Box": ["box_sizes", "swizzle"],
  "Column": ["channels_per_pixel", "pixels_per_column", "mode", "swizzle"],
  "Bounding box": ["pixel_box_lower_corner", "pixel_box_upper_corner", "lower_corner_width", "upper_corner_width"],
  "Tile: coords": ["coords", "plane"],
  "Filter tap: im2col_offsets": ["im2col_offsets"],
  "Options": ["interleave_layout", "kind", "oobfill", "l2_fetch_size", "data_type", "rules", "target", "split_inner", "ragged"],
  "In memory: strides, address": ["strides", "address"],
  "Traversal: elem_strides": ["elem_strides"],
};
// Groups that are closed if all their values are defaults.
const MORE = ["Options", "In memory: strides, address", "Traversal: elem_strides"];
const HINTS = { shape: "row-major", strides: "contiguous", address: "0x100000000" };
// Name of a menu -> the text of the menu's empty option. In other menus, this text is "of the tensor".
const EMPTY = { plane: "the inner two", rules: "the default", split_inner: "no", ragged: "no" };

// --- What is legal ------------------------------------------------------------------------------

class Legal {
  ranges = {};  // name of a numeric control -> {least, most, step, reason, refused}
  options = {};  // name of a menu -> {refused option: reason}
  // Return the nearest legal value. If `direction` is 1, larger values are searched first. If it is -1, smaller values
  // are searched first. If it is 0, both directions are searched.
  snap(name, value, direction = 0) {
    const range = this.ranges[name];
    if (!range) return value;
    const isRefused = (n) => range.refused.some((run) => run.first <= n && n <= run.last);
    const isLegal = (n) => range.least <= n && n <= range.most && !isRefused(n);
    const search = (part) => tmaModel.nearest(value, { ...range, ...part }, isLegal);
    return (direction ? search(direction > 0 ? { least: value } : { most: value }) : null) ?? search({}) ?? value;
  }
}

// --- One number: its name, a text field, a slider that snaps, and the shading ---------------------

class NumberControl {
  constructor(item, legal, choose) {
    Object.assign(this, { item, legal, choose });
    const id = newId();
    const change = (value) => Number.isInteger(value) && value !== this.value && choose({ [item.name]: value });
    const type = () => change(this.field.valueAsNumber);
    this.field = make("input", {
      type: "number", id, step: 1, "aria-label": `${item.name}, typed`,
      onchange: type, onkeydown: onEnter(type),
    });
    this.slider = make("input", {
      type: "range", min: item.least, max: item.most, step: 1, "aria-label": item.name,
      oninput: () => {
        const now = this.slider.valueAsNumber;
        const step = now - this.value;  // an arrow key changes the value by 1; then `snap` searches in this direction
        const value = legal.snap(item.name, now, Math.abs(step) === 1 ? step : 0);
        this.slider.value = value;
        change(value);
      },
    });
    this.shade = make("div", { class: "tmax-shade", "aria-hidden": "true" });
    this.element = make("div", { class: "tmax-number" },
      make("label", { for: id }, item.name, this.steps = make("small", {})), this.field,
      make("div", { class: "tmax-track" }, this.slider, this.shade));
  }
  set(value) {
    this.value = value;
    if (this.field !== document.activeElement || this.field.valueAsNumber !== value)
      this.field.value = value;
    this.slider.value = value;
  }
  reach() {
    const r = this.legal.ranges[this.item.name];
    if (!r) return;
    this.slider.min = Math.min(r.least, this.value);
    this.slider.max = Math.max(r.most, this.value);
    const span = r.most - r.least + 1;
    this.steps.textContent = r.step > 1 ? ` multiples of ${r.step}` : "";
    this.steps.title = r.reason;
    this.shade.replaceChildren(...r.refused.map((run) => {
      const values = run.last > run.first ? `${run.first}..${run.last}` : `${run.first}`;
      // The values between the last refused value and the next step are refused too.
      const until = Math.min(run.last + r.step, r.most + 1);
      const at = `left:${100 * (run.first - r.least) / span}%;width:${100 * (until - run.first) / span}%`;
      return make("i", { style: at, title: `${values} refused. ${run.reason}` });
    }));
  }
}

class MenuControl {
  constructor(item, legal, choose) {
    Object.assign(this, { item, legal });
    const id = newId();
    this.select = make("select", { id, "aria-label": item.name,
      onchange: () => choose({ [item.name]: this.select.value }) },
      ...item.options.map((o) => make("option", { value: o })));
    this.element = make("div", { class: "tmax-menu" },
      make("label", { for: id }, item.name), this.select);
  }
  set(value) { this.select.value = value; }
  reach() {
    const refused = this.legal.options[this.item.name] || {};
    for (const option of this.select.options) {
      const why = refused[option.value];
      option.title = why || "";
      option.textContent = (option.value || EMPTY[this.item.name] || "of the tensor") + (why ? " ✗" : "");
    }
  }
}

// A text field for a number, or for a list such as a shape.
class WordsControl {
  constructor(item, legal, choose) {
    const id = newId(), type = () => this.field.value !== this.value && choose({ [item.name]: this.field.value });
    this.field = make("input", { type: "text", id, placeholder: HINTS[item.name], "aria-label": item.name, spellcheck: "false",
      onchange: type, onkeydown: onEnter(type) });
    this.element = make("div", { class: "tmax-menu" }, make("label", { for: id }, item.name), this.field);
  }
  set(value) {
    const words = value ?? "";
    if (this.field !== document.activeElement || words !== this.value) this.field.value = words;
    this.value = words;
  }
  reach() {}
}
