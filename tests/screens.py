"""Pages in a browser: screenshots, and an audit of every label by its bounding box."""

from __future__ import annotations

import collections
import contextlib
import shutil
from pathlib import Path

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

ARTEFACTS = Path(__file__).parent / "artefacts"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = (
    "no Chromium here (Debian package `chromium`): nothing can be seen"
    if CHROMIUM is None
    else "playwright is not installed"
    if sync_playwright is None
    else ""
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
LIGHT, DARK = "light", "dark"
FREE = collections.defaultdict(list)  # first script of a page -> pages to reuse

#: JavaScript that runs in the page and returns the faults that it finds.
AUDIT = r"""() => {
  const wrong = [], slack = 1;
  const name = (t) => t.textContent.slice(0, 40);
  const inside = (a, b) => a.left >= b.left - slack && a.right <= b.right + slack &&
                           a.top >= b.top - slack && a.bottom <= b.bottom + slack;
  const meet = (a, b) => a.left < b.right - slack && b.left < a.right - slack &&
                         a.top < b.bottom - slack && b.top < a.bottom - slack;
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map((c) => c / 255)
      .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort();
    return (y + 0.05) / (x + 0.05);
  };
  const fill = (e) => getComputedStyle(e).fill;
  let labels = 0;
  const shadows = [...document.querySelectorAll(".tma-live")].map((h) => h.shadowRoot);
  const svgs = [document, ...shadows].flatMap((r) => [...r.querySelectorAll("svg[role=img]")]);
  const still = (e) => !e.closest("g[style*=animation]");  // what moves meets much on its way
  for (const svg of svgs) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;  // folded away
    const paper = svg.querySelector(".t-paper");
    const cells = [...svg.querySelectorAll("rect")].filter(
      (r) => still(r) && !r.matches(".t-paper"));
    const boxes = new Map(cells.map((r) => [r, r.getBoundingClientRect()]));
    const texts = [...svg.querySelectorAll("text")].filter(still).map((t) => {
      const own = t.parentNode.querySelector(":scope > rect:not(.t-paper)");
      return {t, own: t.parentNode.tagName === "g" && t.parentNode.querySelectorAll(
              ":scope > rect").length === 1 ? own : null, box: t.getBoundingClientRect()};
    });
    labels += texts.length;
    texts.forEach(({t, own, box}, i) => {
      const letter = parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a;
      if (letter < 9.99) wrong.push(`'${name(t)}' is ${letter.toFixed(1)} px high`);
      if (!inside(box, frame)) wrong.push(`'${name(t)}' leaves its picture`);
      if (own && !inside(box, boxes.get(own))) wrong.push(`'${name(t)}' leaves its box`);
      if (!own) for (const [r, b] of boxes)
        if (meet(box, b)) wrong.push(`'${name(t)}' lies on a box ${r.getAttribute("class")}`);
      for (const other of texts.slice(i + 1))
        if (meet(box, other.box)) wrong.push(`'${name(t)}' meets '${name(other.t)}'`);
      const ground = own && fill(own) !== "none" ? own : paper;
      const ratio = contrast(fill(t), fill(ground));
      if (ratio < 4.5) wrong.push(`'${name(t)}' has a contrast of ${ratio.toFixed(1)}`);
    });
  }
  for (const e of document.querySelectorAll(".tma, .tma *:not(svg *)")) {
    const box = e.getBoundingClientRect();
    if (box.width && !e.closest("pre") && box.right > innerWidth + slack)
      wrong.push(`<${e.tagName}> ${name(e)} ends at ${Math.round(box.right)} of ${innerWidth}`);
  }
  for (const e of document.querySelectorAll("svg[role=img], img")) {
    const box = e.getBoundingClientRect();
    for (let a = e.parentElement; a && box.width; a = a.parentElement)
      if (getComputedStyle(a).overflowX !== "visible" &&
          box.right > a.getBoundingClientRect().right + slack)
        wrong.push(`a picture ${Math.round(box.width)} wide is cut off`);
  }
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth + slack) wrong.push(`the page is ${wide} wide in ${innerWidth}`);
  return {width: innerWidth, labels, wrong,
    ground: getComputedStyle(document.body).backgroundColor,
    dark: matchMedia("(prefers-color-scheme: dark)").matches};
}"""


@contextlib.contextmanager
def browser():
    with sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def shot(page, name: str, full_page: bool = True) -> None:
    """Take a screenshot, if there is a folder tests/artefacts."""
    if ARTEFACTS.is_dir():
        page.screenshot(path=str(ARTEFACTS / f"{name}.png"), full_page=full_page)


def open_page(chromium, width=1280, scheme=LIGHT, height=900, script=""):
    """Return an empty page, reused if possible, because a new page needs a new process."""
    if FREE[script]:
        page = FREE[script].pop()
    else:
        page = chromium.new_page()
        page.add_init_script(script)
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    return page


def leave_page(page, script="") -> None:
    page.goto("about:blank")
    FREE[script].append(page)


def audit(chromium, name: str, text: str, width: int, scheme: str) -> dict:
    """Open an HTML page and return what the audit finds."""
    page = open_page(chromium, width, scheme)
    page.set_content(text)
    found = page.evaluate(AUDIT)
    shot(page, f"{name}-{width}-{scheme}")
    leave_page(page)
    return found
