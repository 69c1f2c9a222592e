"""The primitive under every figure: cells on a grid, measured in columns and rows.

A cell is a tinted rectangle with words in it; in a style of `WORDS` it is words alone, and without
width or height it is a line. `lay_out` stacks grids, with a heading above and notes and a legend
below, and returns a `Scene`: the same cells in pixels, which `svg.py` writes. Nothing here knows a
tensor map.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

LABEL_SIZE = 10  # px, height of a label's font
MIN_LABEL_SIZE = 7
LINE_HEIGHT = 1.2
GLYPH_WIDTH = 0.61  # of a monospace font's size; the widest common one has 0.602
NOTE_COLUMNS = 88  # characters, before a note is wrapped
MARGIN, GAP = 10, 8  # px around a panel, and between its parts
HEADING_LINE, LINE, LEGEND_LINE = 18, 16, 20  # px of a line above, of a note, of a legend
SAMPLE = 22, 14  # px of the cell beside the words of a legend
TOOTH_DEPTH = 3  # px of a torn side

WORDS = ("label", "muted", "strong", "alarm")  # the styles of text


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in rows [row, row + rows) and columns [column, column + columns) of a grid.

    Attributes
    ----------
    column, row, columns, rows : float
    style : str
        A row of `svg.STYLES`.
    text : str
        In a rectangle: lines, drawn only as large as fits and cut with an ellipsis. In a style of
        `WORDS`: one line of full size.
    title : str
        Shown when the pointer rests on the cell.
    hatched : bool
        Crossed by slanted lines: the sign of "out of bounds" that needs no colour.
    key : str
        What the cell shows, such as the name of a chunk: cells of one key light up together.
    to : tuple of str
        Keys of what else has to do with it; they light up too, and light it up.
    anchor : {"start", "middle", "end"}
        Where words stand in the cell.
    css : str
        The cell's own style, such as its animation.
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
    """Cells, the pixels of one column and one row, and the position of the upper left corner.

    `windows` are what can be dragged, for scripts: "x" or "y", the tensor's dimension, and the
    positions [first, last) of it that are drawn.
    """

    cells: tuple[Cell, ...]
    unit: tuple[float, float] = (1, 1)
    origin: tuple[float, float] = (0, 0)
    windows: tuple[tuple[str, int, int, int], ...] = ()

    def in_pixels(self) -> list[Cell]:
        """Return the cells in pixels, from the corner on."""
        (w, h), (left, top) = self.unit, self.origin
        corners = ((w * (c.column - left), h * (c.row - top)) for c in self.cells)
        return [
            replace(c, column=x, row=y, columns=c.columns * w, rows=c.rows * h)
            for c, (x, y) in zip(self.cells, corners, strict=True)
        ]


Legend = Sequence[tuple[Cell, str]]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scene:
    """One panel: its size in pixels, what it shows in a sentence, and its cells in pixels.

    `data` becomes ``data-*`` attributes, for scripts. `css` is added to the style sheet: the
    keyframes of what moves.
    """

    width: float
    height: float
    about: str
    items: tuple[Cell, ...]
    data: tuple[tuple[str, str], ...] = ()
    css: str = ""


def label(column: float, row: float, text: str, style: str = "muted", rows: float = 1) -> Cell:
    """Return words that end left of a position: the name of a row."""
    return Cell(column, row, style, text, columns=0, rows=rows, anchor="end")


def words(column: float, row: float, text: str, style: str = "muted", rows: float = 1) -> Cell:
    """Return words that begin at a position."""
    return Cell(column, row, style, text, columns=0, rows=rows, anchor="start")


def sides(columns: Span, rows: Span, cut: Sequence[bool], unit: Span) -> list[Cell]:
    """Return the left, top, right and bottom side of a rectangle, torn where it goes on."""
    (left, right), (top, bottom) = columns, rows
    wide, high, x, y = right - left, bottom - top, TOOTH_DEPTH / unit[0], TOOTH_DEPTH / unit[1]
    straight = (
        (left, top, 0, high),
        (left, top, wide, 0),
        (right, top, 0, high),
        (left, bottom, wide, 0),
    )
    inwards = (x, 0), (0, y), (-x, 0), (0, -y)
    cells = []
    for (column, row, w, h), (dx, dy), is_cut in zip(straight, inwards, cut, strict=True):
        style, w, h = ("torn", w + dx, h + dy) if is_cut else ("edge", w, h)
        cells.append(Cell(column, row, style, columns=w, rows=h))
    return cells


def bounds(cell: Cell) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a cell in pixels, or of its words."""
    right, bottom = cell.column + cell.columns, cell.row + cell.rows
    if cell.style not in WORDS:
        return cell.column, cell.row, right, bottom
    width, middle = text_width(cell.text), cell.row + cell.rows / 2
    free = cell.columns - width
    left = cell.column + {"start": 0, "middle": free / 2, "end": free - 6}[cell.anchor]
    return left, middle - 7, left + width, middle + 7


def lay_out(
    about: str,
    grids: Iterable[Grid],
    heading: str = "",
    above: Iterable[str] = (),
    notes: Iterable[str] = (),
    legend: Legend = (),
    css: str = "",
) -> Scene:
    """Stack grids below a heading, and notes and a legend below them; all begin at one column."""
    items: list[Cell] = []
    y = float(MARGIN)
    for text, style in ((heading, "strong"), *((line, "muted") for line in above)):
        if text:
            items.append(words(MARGIN, y, text, style, LINE))
            y += HEADING_LINE
    placed = [(grid, grid.in_pixels()) for grid in grids]
    left = MARGIN - min((bounds(cell)[0] for _, cells in placed for cell in cells), default=0)
    data: list[tuple[str, str]] = []
    for grid, cells in placed:
        boxes = [bounds(cell) for cell in cells]
        top = y - min(box[1] for box in boxes)
        items += [
            replace(c, column=round(c.column + left, 2), row=round(c.row + top, 2)) for c in cells
        ]
        y = top + max(box[3] for box in boxes) + GAP
        corners, spans = {"x": left, "y": top}, dict(zip("xy", grid.unit, strict=True))
        for name, dimension, first, last in grid.windows:
            length = (last - first) * spans[name]
            data.append((name, f"{dimension} {corners[name]:g} {length:g} {first} {last}"))
    for note in notes:
        for line in textwrap.wrap(note, NOTE_COLUMNS, subsequent_indent="  "):
            style = "alarm" if note[0] == "✗" else "muted"
            items.append(words(MARGIN, y, line, style, LINE))
            y += LINE
    right = max((bounds(cell)[2] for cell in items), default=0)
    entries, y = _legend(legend, y + 2, max(right, NOTE_COLUMNS * LABEL_SIZE * GLYPH_WIDTH))
    items += entries
    right = max((bounds(cell)[2] for cell in items), default=0)
    return Scene(round(right + MARGIN, 2), round(y + 4, 2), about, tuple(items), tuple(data), css)


def _legend(legend: Legend, y: float, right: float) -> tuple[list[Cell], float]:
    """Place sample cells with their meaning side by side; return them, and where they end."""
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
    """Return the pixels that a text takes at most, in a monospace font.

    >>> text_width("r0")
    12.2
    """
    return len(text) * size * GLYPH_WIDTH


def fitted(text: str, width: float, height: float) -> tuple[list[str], float]:
    """Return lines as they fit a rectangle, and their font size in pixels.

    >>> fitted("columns 0..7", 30, 12)
    (['column…'], 7)
    """
    lines = text.split("\n")
    by_width = width / (max(map(len, lines)) * GLYPH_WIDTH)
    by_height = height / (len(lines) * LINE_HEIGHT)
    size = max(MIN_LABEL_SIZE, min(LABEL_SIZE, by_width, by_height))
    room = max(1, int(width / (size * GLYPH_WIDTH)))
    return [s if len(s) <= room else s[: room - 1] + "…" for s in lines], size
