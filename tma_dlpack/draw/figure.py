"""What every figure can do: be drawn as SVG, shown in a notebook, and read in a terminal.

The HTML survives sanitisers: each panel is an image that every viewer shows, and a script replaces
it by its own SVG, with links between the pictures, where scripts may run.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tma_dlpack.draw.grid import Scene
from tma_dlpack.draw.svg import MONO, ROW_WIDTH, svg_file, svg_panel
from tma_dlpack.tables.coerce import type_name
from tma_dlpack.tables.errors import refusal

TEXT_COLUMNS = 100
SHRINK = 0.72  # panels shrink to this before they wrap
MAKE_ONE = "pass make_tma_descriptor(x, ...)"

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
PLAY_CSS = (
    ".tma-switches,.tma-seek,.tma-states{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0;"
    "align-items:center}.tma-switches label{cursor:pointer;white-space:nowrap}"
    ".tma-seek input{flex:1 1 300px;max-width:760px}.tma-event{min-height:2.8em;line-height:1.4}"
    ".tma-states{min-height:1.6em}.tma .tma-code{margin:0;line-height:1.55}"
    ".tma-code span{display:inline-block;min-width:100%}"
    ".tma-code .tma-wrong{background:#d1242f40;font-weight:bold}"
    ".tma-code .tma-now{background:#d2992240;outline:1px solid #d29922}"
)
ENLARGED = 1.35  # times its size, what is played on a wide page
_ROW = "display:flex;flex-wrap:wrap;gap:10px;align-items:flex-start;margin:4px 0"


class Figure(ABC):
    """A frozen model of a picture: facts first, drawing after.

    `str(figure)` is the text for a terminal, at most 100 columns; a notebook shows `html()`.
    """

    __slots__ = ()

    title: str  # one line that describes the figure

    @abstractmethod
    def scenes(self) -> tuple[Scene, ...]:
        """Lower to panels of cells."""

    @abstractmethod
    def text(self) -> str:
        """Return the same in characters, at most 100 columns wide."""

    def svg(self, row_width: int = ROW_WIDTH) -> str:
        """Return one SVG document, to write to a file.

        Parameters
        ----------
        row_width : int
            Width in pixels up to which panels are placed side by side.

        Returns
        -------
        str
        """
        return svg_file(self.title, self.scenes(), row_width)

    def html(self) -> str:
        """Return an HTML fragment for a notebook: images, and the script that links them."""
        return fragment([self])

    def panels(self) -> str:
        """Return the HTML without the style sheet, to join with others in a `fragment`."""
        return f'<div class="tma-title"><b>{html.escape(self.title)}</b></div>{panel_row(self)}'

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    _repr_html_ = html

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        """Return what notebooks show: pictures in HTML, and the text."""
        return {"text/html": self.html(), "text/plain": self.text()}


def require(argument: str, value: object, kinds: tuple[type, ...], fix: str) -> None:
    """Refuse a value that is an instance of none of `kinds`, without calling its methods.

    >>> require("title", 3, (str,), "pass a word")
    Traceback (most recent call last):
    tma_dlpack.TmaPreconditionError: title is of type int; it must be a str
      fix: pass a word
      rule: ARGUMENT
    """
    if not issubclass(type(value), kinds):
        names = " or a ".join(kind.__name__ for kind in kinds)
        found = f"{argument} is of type {type_name(type(value))}"
        raise refusal(argument, found, f"be a {names}", fix)


def panel_row(figure: Figure) -> str:
    """Return panels side by side; they shrink first, and wrap where it is narrow."""
    panels = "".join(map(_still, figure.scenes()))
    return f'<div class="tma-panels" style="{_ROW}">{panels}</div>'


def _still(scene: Scene, shrunk: float = SHRINK, enlarged: float = 1.0) -> str:
    """Return one panel as an `<img>` whose source is the SVG itself.

    Sanitisers that remove SVG elements, scripts and style sheets (an untrusted notebook, a code
    host) leave it as it is. It shrinks to `shrunk` times its width before it wraps, and grows to
    `enlarged` times its width where there is room.
    """
    data = base64.b64encode(svg_panel(scene).encode()).decode()
    return (
        f'<img class="tma-still" alt="{html.escape(scene.about)}" width="{scene.width:g}" '
        f'style="flex:1 1 {shrunk * scene.width:.0f}px;min-width:0;max-width:min(100%,'
        f'{enlarged * scene.width:g}px);height:auto" src="data:image/svg+xml;base64,{data}">'
    )


def played(figure: Figure, kind: str, data: object, beside: str = "") -> str:
    """Return a figure of one panel with the data of `play.js`: pictures and frames to choose from.

    Without scripts it is the panel, and the HTML `beside` it. On a wide page it grows.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return (
        f'<div class="tma-play" data-{kind}="{packed}"><style>{PLAY_CSS}</style>'
        f'<div class="tma-title"><b>{html.escape(figure.title)}</b></div>'
        '<div class="tma-controls" hidden></div>'
        f'<div style="{_ROW}">{_still(figure.scenes()[0], 1, ENLARGED)}{beside}</div></div>'
    )


@cache
def script_source(*names: str) -> str:
    """Return JavaScript files of this folder as one, without comments and indentation."""
    texts = ((Path(__file__).parent / name).read_text(encoding="utf-8") for name in names)
    lines = (re.sub(r"^\s*(//.*)?", "", line) for text in texts for line in text.splitlines())
    return "\n".join(filter(None, lines))


def fragment(parts: Sequence[Figure | str]) -> str:
    """Join figures and pieces of finished HTML; parts with the same key light up together.

    Strings are HTML: the caller has escaped the text in them.
    """
    body = "".join(part if isinstance(part, str) else part.panels() for part in parts)
    script = ""
    if "tma-still" in body:
        source = script_source("linked.js", "live.js", *["play.js"] * ("tma-play" in body))
        script = f"<script>(() => {{\n{source}\n}})();</script>"
    return f'<div class="tma"><style>{CSS}</style>{body}</div>{script}'


def page(title: str, parts: Sequence[Figure | str]) -> str:
    """Return a whole HTML document, light or dark as the reader's system is.

    Parameters
    ----------
    title : str
    parts : list or tuple of Figure or str
        Figures, and pieces of finished HTML such as `report_html(report)`.

    Returns
    -------
    str

    Raises
    ------
    TmaPreconditionError
        For a title or parts of another kind.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> from tma_dlpack import draw
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (8, 64))
    >>> page("my map", [draw.tensor(tm), draw.shared(tm)])[:15]
    '<!doctype html>'
    """
    require("title", title, (str,), "pass a word")
    require("parts", parts, (list, tuple), "pass a list of figures")
    for n, part in enumerate(parts):
        require(f"parts[{n}]", part, (Figure, str), "pass draw.shared(tensor_map), or HTML")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title>"
        "<style>body{font-family:system-ui,sans-serif;font-size:14px;margin:16px;"
        "background:Canvas;color:CanvasText}</style></head>"
        f"<body>{fragment(parts)}</body></html>\n"
    )
