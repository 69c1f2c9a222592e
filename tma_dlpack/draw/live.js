// Replace each <img> of a figure by its SVG, and link the cells of all pictures. The HTML of every
// figure contains this script. If a viewer removes scripts, the <img> stays.
const SAY =
  "position:sticky;bottom:0;pointer-events:none;z-index:2;white-space:pre-wrap;padding:6px 10px;border-radius:6px;" +
  "font:12px/1.45 ui-monospace,monospace;background:#1f2328;color:#e6edf3";

const linkedOf = (card) => {
  if (card.tmaLinked) return card.tmaLinked;
  const said = make("div", { class: "tma-said", "aria-live": "polite", style: SAY, hidden: true });
  card.append(said);
  const svgs = () => [...card.querySelectorAll(".tma-live")].map((h) =>
    h.shadowRoot.querySelector("svg"));
  card.tmaLinked = new Linked(svgs, (text) => {
    said.textContent = text;
    said.hidden = !text;
  }, card.querySelectorAll(".tma-word"));
  return card.tmaLinked;
};

const paint = (host) => {
  host.shadowRoot.querySelector("svg style").textContent = themed(host.tmaSheet, host);
};

const inflated = async (packed) => {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

const draw = (host, drawn) => {
  const wide = "svg{width:100%}";
  host.shadowRoot.innerHTML = `<style>${LINK_STYLE}${wide}</style>${drawn}`;
  const svg = host.shadowRoot.querySelector("svg");
  host.tmaSheet = svg.querySelector("style").textContent;
  paint(host);
  keepLegible(svg);
  linkedOf(host.closest(".tma") || host.parentElement).attach(svg);
};

// Draw a panel's narrow layout, if there is one, while the parent element is narrower than NARROW.
const NARROW = 560;  // px
const arrange = (host) => {
  const narrow = Boolean(host.tmaNarrow) && host.parentElement.clientWidth < NARROW;
  if (narrow === host.tmaIsNarrow) return;
  host.tmaIsNarrow = narrow;
  draw(host, narrow ? host.tmaNarrow : host.tmaWide);
  host.dispatchEvent(new Event("tma-drawn"));
};

const enliven = async (img) => {
  const bytes = Uint8Array.from(atob(img.src.split(",")[1]), (c) => c.charCodeAt(0));
  const host = make("span", { class: "tma-live", style: `${img.style.cssText};display:block` });
  host.attachShadow({ mode: "open" });
  host.tmaWide = new TextDecoder().decode(bytes);
  const { narrow } = img.dataset;
  img.replaceWith(host);
  arrange(host);
  if (!narrow) return;
  const packed = await inflated(narrow);
  host.tmaNarrow ??= packed;  // already set if the reader has chosen another picture
  arrange(host);
  new ResizeObserver(() => host.isConnected && arrange(host)).observe(host.parentElement);
};

document.querySelectorAll("img.tma-still").forEach(enliven);
if (!window.tmaWatched) {
  window.tmaWatched = true;
  onTheme(() => document.querySelectorAll(".tma-live").forEach((h) => h.tmaSheet && paint(h)));
}
