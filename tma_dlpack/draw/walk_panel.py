"""The walk of an im2col copy drawn: the pixels of one image, and the bounding box around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tma_dlpack.draw.captions import legend_entry, notes_below
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text
from tma_dlpack.draw.torn import torn

if TYPE_CHECKING:
    from tma_dlpack.draw.walks import Im2colWalk, Image, Pixel

__all__ = ["walk_panel"]

CELL, GUTTER, HEAD = 30, 52, 46
LEAST_WIDTH = 560


def walk_panel(figure: Im2colWalk, image: Image) -> Scene:
    """Draw the pixels of one image in a grid of h and w, and the bounding box."""
    rows, columns = figure.window(image)
    items: list[Item] = [
        Text(10, 19, image.name, "strong"),
        *_scales(rows, columns),
        *_cells(figure, image, rows, columns),
        *_outline(figure.box, rows, columns, "window"),
    ]
    is_shifted = any(figure.offsets)
    if is_shifted:
        items += _outline(figure.shifted, rows, columns, "shifted")
    items += _torn_sides(figure, rows, columns)
    notes, y = notes_below((*figure.notes, *figure.cut(image)), HEAD + CELL * len(rows) + 8)
    items += notes
    legend, y = _legend(y + 2, is_shifted)
    width = max(GUTTER + CELL * len(columns) + 14, LEAST_WIDTH)
    return Scene(width, y + 4, f"{figure.title}, {image.name}", (*items, *legend))


def _scales(rows: range, columns: range) -> list[Item]:
    """Write w above the columns and h beside the rows."""
    return [
        Text(GUTTER - 8, 38, "h \\ w", "muted", "end"),
        *(
            Text(GUTTER + CELL * (n + 0.5), 38, str(w), "muted", "middle")
            for n, w in enumerate(columns)
        ),
        *(
            Text(GUTTER - 8, HEAD + CELL * (n + 0.6), str(h), "muted", "end")
            for n, h in enumerate(rows)
        ),
    ]


def _cells(figure: Im2colWalk, image: Image, rows: range, columns: range) -> list[Item]:
    """Draw the pixels that are taken, and those of the image that are not."""
    by_place = image.by_place
    items: list[Item] = []
    for n, h in enumerate(rows):
        for k, w in enumerate(columns):
            x, y = GUTTER + CELL * k, HEAD + CELL * n
            pixel = by_place.get((h, w))
            if pixel is not None:
                items.append(_taken(pixel, x, y))
            elif figure.has_pixel(image, h, w):
                items.append(Box(x, y, CELL, CELL, "tensor"))
    return items


def _taken(pixel: Pixel, x: float, y: float) -> Box:
    return Box(
        x,
        y,
        CELL,
        CELL,
        "taken" if pixel.inside else "filled",
        (str(pixel.row),),
        pixel.about,
        hatched=not pixel.inside,
        key=f"row{pixel.row}",
    )


def _outline(box: tuple[int, int, int, int], rows: range, columns: range, style: str) -> list[Item]:
    """Draw the part of a box in the window; edges outside the window get no line."""
    top, bottom, left, right = box
    first_row, end_row = max(top, rows.start), min(bottom + 1, rows.stop)
    first_column, end_column = max(left, columns.start), min(right + 1, columns.stop)
    if first_row >= end_row or first_column >= end_column:
        return []
    x, beyond = (GUTTER + CELL * (c - columns.start) for c in (first_column, end_column))
    y, below = (HEAD + CELL * (r - rows.start) for r in (first_row, end_row))
    if (top, bottom + 1, left, right + 1) == (first_row, end_row, first_column, end_column):
        return [Box(x, y, beyond - x, below - y, style)]
    sides = [
        (top == first_row, ((x, y), (beyond, y))),
        (bottom + 1 == end_row, ((x, below), (beyond, below))),
        (left == first_column, ((x, y), (x, below))),
        (right + 1 == end_column, ((beyond, y), (beyond, below))),
    ]
    return [Line(points, style) for is_there, points in sides if is_there]


def _torn_sides(figure: Im2colWalk, rows: range, columns: range) -> list[Item]:
    """Draw a torn edge where the image continues outside the window."""
    (height, width), right = figure.extent, GUTTER + CELL * len(columns)
    below = HEAD + CELL * len(rows)
    sides = [
        (rows.start > 0, torn(GUTTER, HEAD - 4, right, HEAD - 4)),
        (rows.stop < height, torn(GUTTER, below + 1, right, below + 1)),
        (columns.start > 0, torn(GUTTER - 4, HEAD, GUTTER - 4, below)),
        (columns.stop < width, torn(right + 1, HEAD, right + 1, below)),
    ]
    return [Line(points, "edge") for is_cut, points in sides if is_cut]


def _legend(y: float, is_shifted: bool) -> tuple[list[Item], float]:
    """Explain the cells and outlines; give that, and where it ends."""
    items = [
        *legend_entry(10, y, "taken", "row n of the tile", ("n",)),
        *legend_entry(160, y, "filled", "filled", ("n",), hatched=True),
        *legend_entry(246, y, "tensor", "image, not taken"),
        *legend_entry(392, y, "window", "bounding box"),
    ]
    if is_shifted:
        y += 20
        said = "bounding box shifted by the offsets: where the pixels are"
        items += legend_entry(10, y, "shifted", said)
    return items, y + 20
