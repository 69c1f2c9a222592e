// Turns the still pictures of a page into linked ones. Every figure brings this script: where a
// viewer drops scripts the <img> stays, elsewhere it is replaced by its own SVG. Rest on a part, or
// click it, and every part of the same card that shows the same thing lights up.
(() => {
  const STYLE =
    "svg{display:block;width:100%;height:auto}:focus{outline:none}" +
    "svg:focus-visible{outline:2px solid #1f6feb}[data-k],[data-to]{cursor:pointer}" +
    ".lit{stroke:#d29922!important;stroke-width:3px!important;stroke-opacity:1!important}" +
    ".near{stroke:#d29922!important;stroke-width:2px!important;stroke-dasharray:3 2}" +
    ".rest{opacity:.45}";
  const DARK = "@media (prefers-color-scheme:dark)";

  const isDark = (node) => {
    for (let e = node; e; e = e.parentElement || (e.getRootNode().host ?? null)) {
      const c = getComputedStyle(e).backgroundColor.match(/[\d.]+/g)?.map(Number);
      if (c && (c.length < 4 || c[3] > 0.5)) return 0.3 * c[0] + 0.6 * c[1] + 0.1 * c[2] < 110;
    }
    return getComputedStyle(document.documentElement).colorScheme.includes("dark") &&
      matchMedia("(prefers-color-scheme: dark)").matches;
  };

  const words = (e) => (e.dataset.to || "").split(" ").filter(Boolean);
  const parts = (card) => [...card.querySelectorAll(".tma-live")].flatMap((host) =>
    [...host.shadowRoot.querySelectorAll("[data-k],[data-to]")]);
  const about = (e) => e.parentNode.querySelector(":scope > title")?.textContent || "";

  const light = (card, e) => {
    const to = e ? words(e) : [], key = e?.dataset.k;
    for (const p of parts(card)) {
      const same = e && (p === e || (key && p.dataset.k === key));
      const near = e && !same && (to.includes(p.dataset.k) || (key && words(p).includes(key)));
      p.classList.toggle("lit", Boolean(same));
      p.classList.toggle("near", Boolean(near));
    }
    let info = card.querySelector(":scope > .tma-info");
    if (!info) {
      info = document.createElement("div");
      info.className = "tma-info";
      info.setAttribute("aria-live", "polite");
      info.style.cssText = "position:sticky;bottom:0;z-index:2;white-space:pre-wrap;padding:6px 10px;" +
        "font:12px/1.45 ui-monospace,monospace;border-radius:6px;background:#1f2328;color:#e6edf3";
      card.append(info);
    }
    info.textContent = e ? about(e) : "";
    info.hidden = !info.textContent;
  };

  const link = (host, svg) => {
    const card = host.closest(".tma") || host.parentElement;
    const found = (event) => event.target.closest?.("g")?.querySelector(":scope > [data-k],:scope > [data-to]") ||
      event.target.closest?.("[data-k],[data-to]");
    svg.addEventListener("pointerover", (event) => {
      const e = found(event);
      if (!card.tmaPinned) light(card, e);
    });
    svg.addEventListener("pointerleave", () => card.tmaPinned || light(card, null));
    svg.addEventListener("click", (event) => {
      const e = found(event);
      card.tmaPinned = e && card.tmaPinned !== e ? e : null;
      light(card, e && card.tmaPinned);
    });
    const own = [...svg.querySelectorAll("[data-k]")];
    if (!own.length) return;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 8, ArrowLeft: -1, ArrowUp: -8 }[event.key];
      if (event.key === "Escape") light(card, (card.tmaPinned = null));
      if (!by) return;
      event.preventDefault();
      const at = own.indexOf(card.tmaPinned);
      card.tmaPinned = own[Math.min(own.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
      light(card, card.tmaPinned);
    });
  };

  const paint = (host) => {
    const style = host.shadowRoot.querySelector("svg style");
    style.textContent = host.tmaSheet.replace(DARK, isDark(host) ? "@media all" : "@media not all");
  };

  const enliven = (img) => {
    const bytes = Uint8Array.from(atob(img.src.split(",")[1]), (c) => c.charCodeAt(0));
    const host = document.createElement("span");
    host.className = "tma-live";
    host.style.cssText = img.style.cssText;
    const root = host.attachShadow({ mode: "open" });
    root.innerHTML = `<style>${STYLE}</style>${new TextDecoder().decode(bytes)}`;
    const svg = root.querySelector("svg");
    host.tmaSheet = svg.querySelector("style").textContent;
    host.style.display = "block";
    img.replaceWith(host);
    paint(host);
    link(host, svg);
  };

  document.querySelectorAll("img.tma-still").forEach(enliven);
  if (window.tmaWatched) return;
  window.tmaWatched = true;
  const repaint = () => document.querySelectorAll(".tma-live").forEach((h) => h.tmaSheet && paint(h));
  new MutationObserver(() => setTimeout(repaint, 100)).observe(document.body, {
    attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-theme", "theme"],
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTimeout(repaint, 50));
})();
