"""Figures as HTML that survives: images that every viewer shows, linked where scripts may run."""

from __future__ import annotations

import base64
import html
import re
from functools import cache
from pathlib import Path

from tma_dlpack.draw.scene import Scene
from tma_dlpack.draw.svg import svg_panel
from tma_dlpack.draw.theme import MONO

SHRINK = 0.72  # panels shrink to this before they wrap

#: Tables and findings take the colours of the page around them; the two reds and greys here are
#: legible on white and on black.
CSS = (
    f".tma pre{{font:12px/1.4 {MONO};white-space:pre;overflow-x:auto}}"
    ".tma .tma-title{margin-top:10px}"
    ".tma,.tma code{overflow-wrap:anywhere}"
    ".tma table.tma-table{border-collapse:collapse;margin:6px 0;font-size:12px}"
    ".tma-table td,.tma-table th{text-align:left;padding:2px 10px 2px 0;vertical-align:top}"
    ".tma-finding{border-left:3px solid #8c959f;padding:2px 0 2px 10px;margin:6px 0;"
    "font-size:13px}"
    ".tma-violation{border-left:5px double #d1242f}"
)


def still(scene: Scene) -> str:
    """Give one panel as an `<img>` whose source is the SVG itself.

    Sanitisers that remove SVG elements, scripts and style sheets (an untrusted notebook, a code
    host) leave it as it is.
    """
    data = base64.b64encode(svg_panel(scene).encode()).decode()
    return (
        f'<img class="tma-still" alt="{html.escape(scene.about)}" width="{scene.width:g}" '
        f'style="flex:1 1 {SHRINK * scene.width:.0f}px;min-width:0;max-width:min(100%,'
        f'{scene.width:g}px);height:auto" src="data:image/svg+xml;base64,{data}">'
    )


def panel_row(scenes: tuple[Scene, ...]) -> str:
    """Give panels side by side; they shrink first, and stand below each other where narrow."""
    row = "display:flex;flex-wrap:wrap;gap:10px;align-items:flex-start;margin:4px 0"
    return f'<div class="tma-panels" style="{row}">{"".join(map(still, scenes))}</div>'


@cache
def script_source(*names: str) -> str:
    """Give JavaScript files of this folder as one, without comments and indentation."""
    lines: list[str] = []
    for name in names:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        lines += (re.sub(r"^\s*(//.*)?", "", line) for line in text.splitlines())
    return "\n".join(filter(None, lines))


def live_script() -> str:
    """Give the `<script>` that links the pictures above it; it needs no kernel and no network."""
    return f"<script>(() => {{\n{script_source('linked.js', 'live.js')}\n}})();</script>"
