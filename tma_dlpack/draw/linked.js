// Highlight linked elements together, for live.js (figures in a page) and explorer.js (the explorer).
const DARK = "@media (prefers-color-scheme:dark)";
const LINK_STYLE =
  "svg{display:block;max-width:100%;height:auto}:focus{outline:none}" +
  ".dim rect:not(.lit,.near,.t-paper){opacity:.35}svg:focus-visible{outline:2px solid #1f6feb}[data-k],[data-to]{cursor:pointer}" +
  ".lit{stroke:#d29922!important;stroke-width:3px!important;stroke-opacity:1!important}" +
  "@media print{svg{min-width:0!important}}.near{stroke:#d29922!important;stroke-width:2px!important;stroke-dasharray:3 2}";

// Return red, green, blue and opacity of a CSS colour, each from 0 to 255.
const pixelOf = (colour) => {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
};
// JupyterLab handles each key before the focused element does, unless the element has this attribute.
const OWN_KEYS = "data-lm-suppress-shortcuts";
const ownKeys = (element) => element?.setAttribute(OWN_KEYS, "true");
const isLabs = (event) => (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey)) ||
  (event.key.toLowerCase() === "s" && (event.ctrlKey || event.metaKey));
const TAKES_KEYS = ["input", "select", "button", "pre", "summary"];
// Create an element with attributes and children; an attribute such as onclick adds a listener.
const make = (tag, attributes = {}, ...children) => {
  const e = document.createElement(tag);
  if (TAKES_KEYS.includes(tag)) ownKeys(e);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
};
// JupyterLab must handle the keys for run and save even if one of our elements has the focus. So remove OWN_KEYS from
// these elements until the event has been handled.
const passKeys = (event) => {
  if (!isLabs(event)) return;
  const path = event.composedPath().filter((e) => e instanceof Element);
  if (!path.some((e) => e.matches(".tma, .tmax"))) return;
  const owners = path.filter((e) => e.hasAttribute(OWN_KEYS));
  for (const e of owners) e.removeAttribute(OWN_KEYS);
  setTimeout(() => owners.forEach(ownKeys));
};
if (!window.tmaPassesKeys) {
  window.tmaPassesKeys = true;
  addEventListener("keydown", passKeys, true);
}
// If a page is so narrow that letters would be smaller than LEAST_LETTER, a panel scrolls its picture.
const LEAST_LETTER = 12;  // px
const keepLegible = (svg) => {
  const size = (e) => Number(e.getAttribute("font-size")), own = size(svg);
  const least = Math.min(own, ...[...svg.querySelectorAll("text")].map((t) => size(t) || own));
  svg.style.minWidth = `${Math.floor(LEAST_LETTER / least * svg.viewBox.baseVal.width)}px`;
  const { style } = svg.getRootNode().host;
  style.overflowX = "auto";
  // The background draws a shadow at each end where content is hidden.
  style.background = "linear-gradient(90deg,Canvas 30%,#0000) 0 0/40px 100% no-repeat local,linear-gradient(270deg,Canvas 30%,#0000) 100% 0/40px 100% no-repeat local," +
    "linear-gradient(90deg,#8c959faa,#0000) 0 0/14px 100% no-repeat scroll,linear-gradient(270deg,#8c959faa,#0000) 100% 0/14px 100% no-repeat scroll";
};
// Return true if the nearest opaque background behind a node is dark.
const isDark = (node) => {
  if (matchMedia("print").matches) return false;  // paper is white
  const body = document.body.classList;  // VS Code's outputs stand on no background of their own
  if (body.contains("vscode-dark")) return true;
  if (body.contains("vscode-light")) return false;
  const from = node.isConnected ? node : document.body;  // a node outside the document has no colour
  for (let e = from; e; e = e.parentElement || (e.getRootNode().host ?? null)) {
    const colour = getComputedStyle(e).backgroundColor;
    if (colour === "rgba(0, 0, 0, 0)") continue;
    const [red, green, blue, opacity] = pixelOf(colour);
    if (opacity > 127) return 0.3 * red + 0.6 * green + 0.1 * blue < 110;
  }
  return getComputedStyle(document.documentElement).colorScheme.includes("dark") &&
    matchMedia("(prefers-color-scheme: dark)").matches;
};
const themed = (sheet, node) => sheet.replace(DARK, isDark(node) ? "@media screen" : "@media not all");
// Call act shortly after the page or the system switches between dark and light.
const onTheme = (act) => {
  const soon = () => setTimeout(act, 100);
  for (const e of [document.documentElement, document.body])  // a site's switch writes on <html>
    new MutationObserver(soon).observe(e, { attributes: true });
  for (const event of ["beforeprint", "afterprint"]) addEventListener(event, act);
  matchMedia("(forced-colors: active)").addEventListener("change", soon);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
};

class Linked {
  // svgs() returns the pictures whose cells are highlighted together. say(text) shows the description of the
  // highlighted cells. words has the elements of the marked words in the captions.
  constructor(svgs, say, words = []) {
    Object.assign(this, { svgs, say, words, pinned: "" });
    for (const word of words) this.listen(word);
  }
  parts() {
    const marks = this.svgs().flatMap((svg) => [...svg.querySelectorAll("[data-k],[data-to]")]);
    return [...marks, ...this.words];
  }
  // Highlight the cells of a word while the word is hovered or focused, and dim all other cells.
  listen(word) {
    const light = (on) => {
      this.show(on ? word.dataset.k : this.pinned);
      if (on) this.say("");  // the caption already describes the cells
      for (const svg of this.svgs()) svg.classList.toggle("dim", on);
    };
    for (const name of ["pointerenter", "focus"]) word.addEventListener(name, () => light(true));
    for (const name of ["pointerleave", "blur"]) word.addEventListener(name, () => light(false));
  }
  about(key) {
    const titles = this.parts().filter((p) => p.dataset.k === key)
      .map((p) => p.parentNode.querySelector(":scope > title")?.textContent || "");
    return titles.sort((a, b) => b.length - a.length)[0] || "";
  }
  show(key) {
    const parts = this.parts();
    const kinds = (p) => [...p.classList].map((name) => name.replace("t-", "is-"));  // class t-taken has the key is-taken
    const links = (p) => [...(p.dataset.to || "").split(" "), ...kinds(p)];
    const to = new Set(key ? parts.filter((p) => p.dataset.k === key).flatMap(links) : []);
    for (const p of parts) {
      const same = Boolean(key) && p.dataset.k === key;
      p.classList.toggle("lit", same);
      p.classList.toggle("near", !same && Boolean(key) &&
        (to.has(p.dataset.k) || links(p).includes(key)));
    }
    this.say(key ? this.about(key) : "");
  }
  pin(key) {
    this.pinned = key;
    this.show(key);
  }
  attach(svg) {
    const key = (event) => (event.target.closest?.("[data-k]") ||
      event.target.closest?.("g")?.querySelector(":scope > [data-k]"))?.dataset.k || "";
    svg.addEventListener("pointerover", (event) => this.pinned || this.show(key(event)));
    svg.addEventListener("pointerleave", () => this.pinned || this.show(""));
    svg.addEventListener("click", (event) => this.pin(key(event) === this.pinned ? "" : key(event)));
    const about = svg.querySelector("desc");  // screen readers read the label of a picture first
    if (about) svg.setAttribute("aria-label", about.textContent);
    const keys = [...new Set([...svg.querySelectorAll("[data-k]")].map((p) => p.dataset.k))];
    if (!keys.length) return;
    svg.setAttribute("tabindex", "0");
    for (const e of [svg, svg.getRootNode().host]) ownKeys(e);  // JupyterLab sees a key in a shadow root as a key of the host
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 8, ArrowLeft: -1, ArrowUp: -8 }[event.key];
      if (event.key === "Escape") this.pin("");
      if (!by) return;
      event.preventDefault();
      const at = keys.indexOf(this.pinned);
      this.pin(keys[at < 0 ? 0 : Math.min(keys.length - 1, Math.max(0, at + by))]);
    });
  }
}
