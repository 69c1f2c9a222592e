"""The primitives of every figure: cells on a grid, measured in columns and rows of the grid.

A cell is a coloured rectangle with text. A cell in a style of `WORDS` is only text. A cell without
width or height, or in the style "way", is a line. `lay_out` stacks a heading, grids, notes and a
legend, and returns a `Scene`. A scene has the cells of all grids in pixels, and `figure.py` writes
it as SVG. `STYLES` has the colours. Nothing in this file depends on tensor maps.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

LABEL_SIZE = 10  # px: font size of every label; text that does not fit is cut or omitted
LINE_HEIGHT = 1.2
# Width of a monospace letter, per px of font size. In common fonts, this width is at most 0.602.
GLYPH_WIDTH = 0.61
LETTER_WIDTH = LABEL_SIZE * GLYPH_WIDTH  # px
NOTE_COLUMNS = 88  # maximum characters in a line of a note
# px: maximum width of a panel in the narrow layout. The panel is later scaled by 1.2, and must then
# fit on a phone that is 390 px wide.
NARROW = 298
NARROW_COLUMNS = 44  # maximum characters in a line of a note, in the narrow layout
MARGIN, GAP = 10, 8  # px around a panel, and between its parts
HEADING_LINE, LINE, LEGEND_LINE = 18, 16, 20  # px: line heights of a heading, a note, a legend
SAMPLE = 22, 14  # px; width and height of a legend's cell

WORDS = ("label", "muted", "strong", "alarm")  # the styles of text

Pair = tuple[str, str]  # colour in light and in dark mode


class Style(NamedTuple):
    """The style of a cell: (light, dark) colours, and other SVG attributes."""

    fill: Pair = ("none", "none")
    stroke: Pair = ("none", "none")
    attributes: str = ""


# Colours by purpose, (light, dark).
_INK = ("#1f2328", "#e6edf3")
_GRID = ("#8c959f", "#6e7781")
_ALARM = ("#b42318", "#ff9a8f")
_PAPER = ("#ffffff", "#15191f")
_BLUE, _EDGE = ("#1f5fa8", "#8ec2ff"), ("#4a7ab5", "#6ea8ec")
_TAKEN, _GROUND = ("#9cc7f0", "#2f5f93"), ("#eef4fb", "#1b2a3d")
_VIOLET = ("#8250df", "#c297ff")
_BOLD, _THICK = 'font-weight="bold"', 'stroke-width="2.5"'
#: One tint per 16-byte chunk of a row, so that a swizzle is visible as a pattern of colours.
_TINTS = tuple(
    (f"hsl({hue},70%,{88 - 4 * (n % 2)}%)", f"hsl({hue},38%,{24 + 5 * (n % 2)}%)")
    for n, hue in enumerate(range(200, 560, 45))
)

# A style sheet has its rules in the order of this table.
STYLES: dict[str, Style] = {
    "paper": Style(_PAPER, ("#d0d7de", "#3d444d")),
    "label": Style(_INK),
    "strong": Style(_INK, attributes=_BOLD),
    "muted": Style(("#57606a", "#a3adb8")),
    "alarm": Style(_ALARM, attributes=_BOLD),
    "axis": Style(stroke=_INK, attributes='stroke-width="1.5"'),
    "arrow": Style(stroke=_BLUE, attributes='stroke-width="1.3"'),
    "way": Style(stroke=_INK),
    "grid": Style(stroke=_GRID, attributes='stroke-dasharray="2 3"'),
    "hatch": Style(stroke=_GRID, attributes='stroke-opacity="0.7"'),
    "plain": Style(attributes='pointer-events="all"'),
    "cell": Style(("#f6f8fa", "#21262d"), _GRID),
    "tensor": Style(_GROUND, _EDGE),
    "ground": Style(_GROUND),
    "edge": Style(stroke=_EDGE),
    "zigzag": Style(_PAPER, _EDGE),
    "taken": Style(_TAKEN, _BLUE),
    "box": Style(stroke=_BLUE, attributes=_THICK),
    "handle": Style(_BLUE, _PAPER),
    "filled": Style(("#eceff3", "#2b3037"), _GRID),
    "padding": Style(_PAPER, _GRID, 'stroke-dasharray="3 3"'),
    "window": Style(stroke=_VIOLET, attributes=f'{_THICK} stroke-dasharray="7 4"'),
    "shifted": Style(stroke=_VIOLET, attributes=f'{_THICK} stroke-linecap="square"'),
    "focus": Style(stroke=_INK, attributes=_THICK),
    "frame": Style(stroke=_ALARM, attributes='stroke-width="1.5"'),
    "changed": Style(("#ffd33d", "#9e6a03"), ("#7a4100", "#ffd33d"), 'stroke-width="1.5"'),
    "conflict": Style(("#f5b5ae", "#7d2a25"), _ALARM, 'stroke-width="1.5"'),
    "even": Style(("#eaeef2", "#2a3038"), _GRID),
    "odd": Style(("#f6d07f", "#6b4f0c"), _GRID),
    **{f"tint{n}": Style(tint, _GRID) for n, tint in enumerate(_TINTS)},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A rectangle, a text or a line in rows [row, row + rows), columns [column, column + columns).

    Attributes
    ----------
    column, row, columns, rows : float
    style : str
        A key of `STYLES`.
    text : str
        A rectangle shows the lines that fit; a line that is too long ends in an ellipsis. In a
        style of `WORDS`, the text is a single line.
    title : str
        The tooltip.
    hatched : bool
        Whether slanted lines cross the cell, so that the cell stands out without colours too.
    key : str
        Name of what the cell shows, such as a chunk. Cells with the same key are highlighted
        together.
    to : tuple of str
        Keys of related cells. If this cell is highlighted, the related cells are marked, and vice
        versa.
    anchor : {"start", "middle", "end"}
        The alignment of the text in the cell. The teeth of a zigzag point right or down with
        "start", and left or up with "end".
    css : str
        Additional CSS of the cell, such as its animation.
    """

    column: float
    row: float
    style: str = "label"
    text: str = ""
    title: str = ""
    columns: float = 1
    rows: float = 1
    hatched: bool = False
    key: str = ""
    to: tuple[str, ...] = ()
    anchor: Literal["start", "middle", "end"] = "middle"
    css: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells whose places are measured in columns and rows.

    `unit` is the width of a column and the height of a row in pixels. `origin` is the (column, row)
    of the grid's upper left corner. `windows` has the axes along which scripts let users drag a
    box. An entry has four items: "x" or "y", the dimension of the tensor, the first drawn position,
    and the end of the drawn positions.
    """

    cells: tuple[Cell, ...]
    unit: tuple[float, float] = (1, 1)
    origin: tuple[float, float] = (0, 0)
    windows: tuple[tuple[str, int, int, int], ...] = ()

    def in_pixels(self, left: float, top: float) -> list[Cell]:
        """Return the cells in pixels; the corner of the grid is at (left, top)."""
        (w, h), (x, y) = self.unit, self.origin
        cells = []
        for c in self.cells:
            column, row = round(left + (c.column - x) * w, 2), round(top + (c.row - y) * h, 2)
            width, height = c.columns * w, c.rows * h
            # dataclasses.replace() would take four times as long.
            cells.append(
                Cell(
                    column, row, c.style, c.text, c.title, width, height, c.hatched, c.key, c.to,
                    c.anchor, c.css,
                )
            )  # fmt: skip
        return cells

    def bounds(self) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom of all cells, in pixels from the grid's corner."""
        x, y = self.unit[0] * self.origin[0], self.unit[1] * self.origin[1]
        edges = list(zip(*[bounds(cell, self.unit) for cell in self.cells], strict=True))
        return min(edges[0]) - x, min(edges[1]) - y, max(edges[2]) - x, max(edges[3]) - y


Legend = Sequence[tuple[Cell, str]]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scene:
    """One panel: its size in pixels, a sentence about its contents, and its cells in pixels.

    `data` becomes ``data-*`` attributes of the SVG, which scripts read. `css` is added to the style
    sheet of the SVG, for example the keyframes of an animation.
    """

    width: float
    height: float
    about: str
    items: tuple[Cell, ...]
    data: tuple[tuple[str, str], ...] = ()
    css: str = ""


def label(column: float, row: float, text: str, style: str = "muted", rows: float = 1) -> Cell:
    """Return a text that ends left of a position, such as the name of a row."""
    return Cell(column, row, style, text, columns=0, rows=rows, anchor="end")


def words(column: float, row: float, text: str, style: str = "muted", rows: float = 1) -> Cell:
    """Return a text that begins at a position."""
    return Cell(column, row, style, text, columns=0, rows=rows, anchor="start")


def rectangle(style: str, columns: Span, rows: Span, hatched: bool = False) -> Cell:
    """Return a cell that covers the columns and rows [first, last)."""
    (left, right), (top, bottom) = columns, rows
    return Cell(left, top, style, columns=right - left, rows=bottom - top, hatched=hatched)


def sides(columns: Span, rows: Span, cut: Sequence[bool]) -> list[Cell]:
    """Return the left, top, right and bottom side of a rectangle; cut sides are zigzags."""
    whole = rectangle("edge", columns, rows)
    # The anchor is the direction of a zigzag's teeth.
    begin, end = replace(whole, anchor="start"), replace(whole, anchor="end")
    left, top, right, bottom = ("zigzag" if goes_on else "edge" for goes_on in cut)
    return [
        replace(begin, style=left, columns=0),
        replace(begin, style=top, rows=0),
        replace(end, style=right, column=columns[1], columns=0),
        replace(end, style=bottom, row=rows[1], rows=0),
    ]


def window(first: int, whole: tuple[int, int], most: int) -> tuple[int, int]:
    """Return a span of at most `most` positions of `whole`.

    The span begins at `first`, or earlier if fewer than `most` positions would remain.

    >>> window(90, (0, 100), 14), window(3, (0, 10), 14)
    ((86, 100), (0, 10))
    """
    begin = max(whole[0], min(first, whole[1] - most))
    return begin, min(whole[1], begin + most)


def bounds(cell: Cell, unit: Span = (1, 1)) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a cell in pixels.

    If the cell is only text, these are the bounds of the text.
    """
    (w, h), left, top = unit, cell.column * unit[0], cell.row * unit[1]
    if cell.style not in WORDS:
        return left, top, left + cell.columns * w, top + cell.rows * h
    width, middle = text_width(cell.text), top + cell.rows * h / 2
    free = cell.columns * w - width
    # A text that ends at a position has 6 px of space before this position.
    left += {"start": 0, "middle": free / 2, "end": free - 6}[cell.anchor]
    return left, middle - 7, left + width, middle + 7


def lay_out(
    about: str,
    grids: Iterable[Grid],
    heading: str = "",
    above: Iterable[str] = (),
    notes: Iterable[str] = (),
    legend: Legend = (),
    css: str = "",
    *,
    is_narrow: bool = False,
) -> Scene:
    """Stack a heading, grids, notes and a legend; the corners of all grids have the same x."""
    items: list[Cell] = []
    y, columns = float(MARGIN), NARROW_COLUMNS if is_narrow else NOTE_COLUMNS
    for text, style in ((heading, "strong"), *((line, "muted") for line in above)):
        for line in textwrap.wrap(text, columns) if is_narrow else [text] * bool(text):
            items.append(words(MARGIN, y, line, style, LINE))
            y += HEADING_LINE
    # Labels may be left of the corner of their grid.
    edges = [(grid, *grid.bounds()) for grid in grids]
    # `left` is the x of all corners. The label furthest left of its corner begins at MARGIN.
    left = MARGIN - min(edge[1] for edge in edges)
    right = left + max(edge[3] for edge in edges)
    data: list[tuple[str, str]] = []
    for grid, _, above_corner, _, below_corner in edges:
        top = y - above_corner
        items += grid.in_pixels(left, top)
        y = top + below_corner + GAP
        for name, dimension, first, last in grid.windows:
            # `data-x` or `data-y` of the SVG: dimension, start (px), length (px), first and end of
            # the drawn positions.
            n = "xy".index(name)
            place = f"{(left, top)[n]:g} {(last - first) * grid.unit[n]:g}"
            data.append((name, f"{dimension} {place} {first} {last}"))
    others: list[Cell] = []
    for note in notes:
        for line in textwrap.wrap(note, columns, subsequent_indent="  "):
            style = "alarm" if note[0] == "✗" else "muted"
            others.append(words(MARGIN, y, line, style, LINE))
            y += LINE
    entries, y = _legend(legend, y + 2, max(right, columns * LABEL_SIZE * GLYPH_WIDTH))
    items += [*others, *entries]
    # items[:2] are the first two lines of the heading and of `above`, if the scene has them.
    right = max(right, *[bounds(cell)[2] for cell in (*items[:2], *others, *entries)])
    # The size is in whole pixels, because browsers may cut off a fraction of a pixel.
    size = math.ceil(right + MARGIN), math.ceil(y + 4)
    return Scene(*size, about, tuple(items), tuple(data), css)


def _legend(legend: Legend, y: float, right: float) -> tuple[list[Cell], float]:
    """Return sample cells and their meanings, side by side, and the y coordinate below them."""
    items: list[Cell] = []
    x, (width, height) = float(MARGIN), SAMPLE
    for cell, meaning in legend:
        if items and x + width + 6 + text_width(meaning) > right:
            x, y = float(MARGIN), y + LEGEND_LINE
        items.append(replace(cell, column=x, row=y, columns=width, rows=height))
        items.append(words(x + width + 6, y, meaning, rows=height))
        x = bounds(items[-1])[2] + 16
    return items, y + LEGEND_LINE * bool(items)


def text_width(text: str, size: float = LABEL_SIZE) -> float:
    """Return the maximum width of a text in pixels, in a monospace font.

    >>> text_width("r0")
    12.2
    """
    return len(text) * size * GLYPH_WIDTH


def fitted(text: str, width: float, height: float) -> list[str]:
    r"""Return the lines of a text that fit in width x height pixels; cut lines that are too long.

    >>> fitted("columns 0..7", 45, 13), fitted("a", 7, 13), fitted("too\nhigh", 45, 13)
    (['column…'], ['a'], ['too'])
    >>> fitted("12", 6, 13), fitted("columns", 45, 8)
    ([], [])
    """
    room, lines = int(width / LETTER_WIDTH), int((height + 1) / (LABEL_SIZE * LINE_HEIGHT))
    fitting = []
    for line in text.split("\n")[:lines]:
        cut = line if len(line) <= room else line[: room - 1] + "…"
        # Omit a line if only one letter and an ellipsis would remain.
        if 0 < len(cut) <= room and cut[1:] != "…":
            fitting.append(cut)
    return fitting
