"""Pages seen by a browser: a screenshot to look at, and an audit of every label by its box."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

ARTEFACTS = Path(__file__).parent / "artefacts"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium here (Debian package `chromium`): nothing can be seen"
LIGHT, DARK = "light", "dark"
COLOUR_SCHEMES = {DARK: 0, LIGHT: 1}  # as Blink numbers them

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)

#: Runs in the page; leaves what it finds wrong as JSON in <pre id="audit">.
AUDIT = r"""
<script>
(() => {
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
  const found = document.createElement("pre");
  found.id = "audit";
  found.hidden = true;
  found.textContent = JSON.stringify({width: innerWidth, labels, wrong,
    ground: getComputedStyle(document.body).backgroundColor,
    dark: matchMedia("(prefers-color-scheme: dark)").matches});
  document.body.append(found);
})();
</script>
"""


def seen(name: str, page: str, width: int, scheme: str, height: int = 6000) -> dict:
    """Keep a screenshot of a page under tests/artefacts, and give what the audit found."""
    ARTEFACTS.mkdir(exist_ok=True)
    stem = f"{name}-{width}-{scheme}"
    written = ARTEFACTS / f"{stem}.html"
    written.write_text(page.replace("</body>", AUDIT + "</body>"), encoding="utf-8")
    dom = _chromium(
        f"--blink-settings=preferredColorScheme={COLOUR_SCHEMES[scheme]}",
        f"--window-size={width},{height}",
        f"--screenshot={ARTEFACTS / stem}.png",
        "--dump-dom",
        written.as_uri(),
    )
    found = re.findall(r'<pre id="audit" hidden="">(.*?)</pre>', dom, re.DOTALL)[-1]
    return json.loads(html.unescape(found))


def _chromium(*arguments: str) -> str:
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    return done.stdout
