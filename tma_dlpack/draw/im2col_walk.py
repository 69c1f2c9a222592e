"""The walk of an im2col copy as a figure: the pixels of each image, and the box around them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tma_dlpack.draw.captions import legend_entry, notes_below
from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text
from tma_dlpack.draw.torn import torn

CELL, GUTTER, HEAD = 30, 52, 46
LEAST_WIDTH = 560
MAX_CELLS = 14  # drawn along one axis


@dataclass(frozen=True, slots=True)
class Pixel:
    """A pixel that a column takes: one row of the tile.

    Attributes
    ----------
    row : int
        Its number in the tile.
    position : tuple of int
        Row-major in the tensor: (n, [d,] [h,] w, c) of its first channel; an interleaved map's
        (n, slice, [d,] [h,] w).
    h, w : int
        Where it is drawn; h is 0 without height.
    inside : bool
        Whether it is in bounds.
    global_address : int
        Of its first channel; means nothing out of bounds.
    """

    row: int
    position: tuple[int, ...]
    h: int
    w: int
    inside: bool
    global_address: int

    @property
    def about(self) -> str:
        """Everything, as shown on hovering."""
        where = f"global {self.global_address:#x}" if self.inside else "out of bounds, filled"
        return f"row {self.row}: element {self.position}\n{where}"


@dataclass(frozen=True, slots=True)
class Image:
    """The pixels taken of one image, or of one depth of a volume."""

    name: str
    pixels: tuple[Pixel, ...]
    exists: bool = True  # False of an image or a depth that is out of bounds

    @property
    def by_place(self) -> dict[tuple[int, int], Pixel]:
        """The pixels by their (h, w)."""
        return {(p.h, p.w): p for p in self.pixels}


@dataclass(frozen=True, slots=True, repr=False)
class Im2colWalk(Figure):
    """A column of pixels on the images that it is taken from.

    Attributes
    ----------
    extent : tuple of (int, int)
        Height and width of an image; height 1 where there is none.
    box : tuple of (int, int, int, int)
        First and last h, first and last w of the bounding box, in which the walk stays (before
        offsets are added).
    offsets : tuple of (int, int)
        Of h and w: the box that the pixels are taken from is the bounding box shifted by them.
    images : tuple of Image
        At most 3.
    notes : tuple of str
    """

    title: str
    extent: tuple[int, int]
    box: tuple[int, int, int, int]
    images: tuple[Image, ...]
    notes: tuple[str, ...]
    offsets: tuple[int, int] = (0, 0)

    @property
    def shifted(self) -> tuple[int, int, int, int]:
        """The bounding box after the offsets: where the pixels are."""
        (h, w), (top, bottom, left, right) = self.offsets, self.box
        return top + h, bottom + h, left + w, right + w

    def has_pixel(self, image: Image, h: int, w: int) -> bool:
        """Whether (h, w) is in bounds, of an image that is."""
        height, width = self.extent
        return image.exists and 0 <= h < height and 0 <= w < width

    def window(self, image: Image) -> tuple[range, range]:
        """Give the h and w that are drawn: all, or at most 14 around the image's first pixel."""
        pixels, box, shifted = image.pixels, self.box, self.shifted
        h_ends = min(box[0], shifted[0]), max(box[1], shifted[1])
        w_ends = min(box[2], shifted[2]), max(box[3], shifted[3])
        return (
            _window(self.extent[0], h_ends, [p.h for p in pixels]),
            _window(self.extent[1], w_ends, [p.w for p in pixels]),
        )

    def cut(self, image: Image) -> tuple[str, ...]:
        """Say what is not drawn."""
        rows, columns = self.window(image)
        left = sum(p.h not in rows or p.w not in columns for p in image.pixels)
        whole = rows.start <= 0 and columns.start <= 0
        whole = whole and rows.stop >= self.extent[0] and columns.stop >= self.extent[1]
        if whole and not left:
            return ()
        elsewhere = f"; {left} pixels lie elsewhere" if left else ""
        return (
            f"drawn: h {rows.start}..{rows.stop - 1}, w {columns.start}..{columns.stop - 1}"
            + elsewhere,
        )

    def brief(self) -> Im2colWalk:
        """Give the first image alone, and say that there are more."""
        if len(self.images) == 1:
            return self
        further = "further images: see draw.walk"
        return replace(self, images=self.images[:1], notes=(*self.notes, further))

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel per image."""
        return tuple(_panel(self, image) for image in self.images)

    def text(self) -> str:
        """Give one grid of row numbers per image."""
        parts = [self.title, *self.notes]
        for image in self.images:
            parts += [image.name, *self.cut(image), *_characters(self, image)]
        return "\n".join([*parts, "number: row of the tile; * out of bounds, filled; . image"])


def _window(extent: int, box: tuple[int, int], taken: list[int]) -> range:
    first = min(0, box[0], *taken)
    last = max(extent - 1, box[1], *taken)
    if last - first >= MAX_CELLS:
        first = max(first, min(taken[0] - MAX_CELLS // 4, last - MAX_CELLS + 1))
    return range(first, min(last, first + MAX_CELLS - 1) + 1)


def _characters(figure: Im2colWalk, image: Image) -> list[str]:
    rows, columns = figure.window(image)
    by_place = image.by_place

    def token(h: int, w: int) -> str:
        pixel = by_place.get((h, w))
        if pixel is not None:
            return f"{pixel.row}{'' if pixel.inside else '*'}"
        return "." if figure.has_pixel(image, h, w) else ""

    lines = ["      w" + "".join(f"{w:>5}" for w in columns)]
    lines += [f"  h {h:>3}" + "".join(f"{token(h, w):>5}" for w in columns).rstrip() for h in rows]
    return [line[:TEXT_COLUMNS] for line in lines]


def _panel(figure: Im2colWalk, image: Image) -> Scene:
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
