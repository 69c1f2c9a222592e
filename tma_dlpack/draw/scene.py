"""What a picture is made of: boxes, words and lines at given places, in pixels.

Figure models lower to scenes; `svg` turns scenes into text. Nothing here knows a tensor map, and
every label is plain text that `svg` escapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LABEL_SIZE = 10  # px, height of a label's font
MIN_LABEL_SIZE = 7
LINE_HEIGHT = 1.2
GLYPH_WIDTH = 0.61  # of a monospace font's size; the widest common one has 0.602
HATCH_GAP = 7

#: CSS that stops every animation for readers who do not want motion.
STILL = "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with centred lines of text.

    Attributes
    ----------
    x, y, width, height : float
    style : str
        A row of `theme.STYLES`.
    lines : tuple of str
        Drawn only as large as fits; what does not fit is cut with an ellipsis.
    title : str
        Shown when the pointer rests on the box.
    hatched : bool
        Crossed by slanted lines: the sign of "out of bounds" that needs no colour.
    key : str
        What the box shows, such as the name of a chunk: boxes of one key light up together.
    to : tuple of str
        Keys of what else has to do with it; they light up too, and light it up.
    """

    x: float
    y: float
    width: float
    height: float
    style: str
    lines: tuple[str, ...] = ()
    title: str = ""
    hatched: bool = False
    key: str = ""
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; `y` is its baseline."""

    x: float
    y: float
    text: str
    style: str = "label"
    anchor: Anchor = "start"


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points (x, y), or an area where its style fills."""

    points: tuple[tuple[float, float], ...]
    style: str = "rule"


@dataclass(frozen=True, slots=True)
class Group:
    """Items that move together: `css` is the group's own style, such as its animation."""

    items: tuple[Box | Text | Line, ...]
    css: str


Item = Box | Text | Line | Group


@dataclass(frozen=True, slots=True)
class Scene:
    """One panel: its size in pixels, what it shows in a sentence, and its items.

    `data` becomes ``data-*`` attributes, for scripts: (name, value). `css` is added to the style
    sheet: the keyframes of what moves.
    """

    width: float
    height: float
    about: str
    items: tuple[Item, ...]
    data: tuple[tuple[str, str], ...] = ()
    css: str = ""


def text_width(text: str, size: float = LABEL_SIZE) -> float:
    """Give the pixels that a text takes at most, in a monospace font.

    >>> text_width("r0")
    12.2
    """
    return len(text) * size * GLYPH_WIDTH


def fitted(lines: tuple[str, ...], width: float, height: float) -> tuple[tuple[str, ...], float]:
    """Give the lines as they fit a box, and their font size in pixels.

    >>> fitted(("columns 0..7",), 30, 12)
    (('column…',), 7)
    """
    widest = max(map(len, lines))
    by_width = width / (widest * GLYPH_WIDTH)
    by_height = height / (len(lines) * LINE_HEIGHT)
    size = max(MIN_LABEL_SIZE, min(LABEL_SIZE, by_width, by_height))
    room = max(1, int(width / (size * GLYPH_WIDTH)))
    return tuple(s if len(s) <= room else s[: room - 1] + "…" for s in lines), size


def hatching(x: float, y: float, width: float, height: float) -> str:
    """Give the path of slanted lines within a rectangle (no `id` that two pictures could share).

    >>> hatching(0, 0, 7, 7)
    'M0 7L7 0'
    """
    path = []
    reach = HATCH_GAP
    while reach < width + height:
        low = (reach - min(reach, height), min(reach, height))
        high = (min(reach, width), reach - min(reach, width))
        path.append(f"M{x + low[0]:g} {y + low[1]:g}L{x + high[0]:g} {y + high[1]:g}")
        reach += HATCH_GAP
    return "".join(path)
