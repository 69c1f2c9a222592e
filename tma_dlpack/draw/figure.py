"""What every figure can do: be drawn as SVG, shown in a notebook, and read in a terminal."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tma_dlpack.draw.door import require
from tma_dlpack.draw.scene import Scene
from tma_dlpack.draw.stills import CSS, live_script, panel_row
from tma_dlpack.draw.svg import ROW_WIDTH, svg_file

TEXT_COLUMNS = 100


class Figure(ABC):
    """A frozen model of a picture: facts first, drawing after.

    `str(figure)` is the text for a terminal, at most 100 columns; a notebook shows `html()`.
    """

    __slots__ = ()

    title: str  # one line that says what is shown

    @abstractmethod
    def scenes(self) -> tuple[Scene, ...]:
        """Lower to panels of boxes, words and lines."""

    @abstractmethod
    def text(self) -> str:
        """Say the same in characters, at most 100 columns wide."""

    def svg(self, row_width: int = ROW_WIDTH) -> str:
        """Give one SVG document, to write to a file.

        Parameters
        ----------
        row_width : int
            Panels stand side by side up to this width in pixels; further ones go below.

        Returns
        -------
        str
        """
        return svg_file(self.title, self.scenes(), row_width)

    def html(self) -> str:
        """Give an HTML fragment for a notebook: images, and the script that links them."""
        return fragment([self])

    def panels(self) -> str:
        """Give the HTML without the style sheet, to stand among others in a `fragment`."""
        title = f'<div class="tma-title"><b>{html.escape(self.title)}</b></div>'
        return title + panel_row(self.scenes())

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    def _repr_html_(self) -> str:
        return self.html()

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        """Give what notebooks show: pictures in HTML, and the text."""
        return {"text/html": self.html(), "text/plain": self.text()}


def fragment(parts: Sequence[Figure | str]) -> str:
    """Join figures and pieces of finished HTML; parts with the same key light up together.

    Strings are HTML: the caller has escaped the text in them.
    """
    body = "".join(part if isinstance(part, str) else part.panels() for part in parts)
    script = live_script() if "tma-still" in body else ""
    return f'<div class="tma"><style>{CSS}</style>{body}</div>{script}'


def page(title: str, parts: Sequence[Figure | str]) -> str:
    """Give a whole HTML document, light or dark as the reader's system is.

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
