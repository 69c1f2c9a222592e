"""The walk of an im2col copy over the images: which pixel becomes which row of the tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tma_dlpack import geometry
from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text
from tma_dlpack.draw.shown_copy import lines_positions, request_of
from tma_dlpack.draw.torn import torn
from tma_dlpack.geometry.plan import spatial_dims
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.errors import TmaUnsupportedError
from tma_dlpack.types.opaque import opaque

__all__ = ["Im2colWalk", "Image", "Pixel", "walk"]

MAX_CELLS = 14  # drawn along one axis
MAX_IMAGES = 3


@dataclass(frozen=True, slots=True)
class Pixel:
    """One row of the tile.

    Attributes
    ----------
    row : int
        Which one.
    position : tuple of int
        Row-major in the tensor: (n, [d,] [h,] w, c) of its first channel; an interleaved map's
        (n, slice, [d,] [h,] w).
    h, w : int
        Where it is drawn; h is 0 without height.
    inside : bool
        Whether it is in bounds.
    global_address : int
        Meaningful where in bounds.
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


@opaque
def walk(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    *,
    im2col_offsets: Sequence[int] | None = None,
    smem_offset: int = 0,
) -> Im2colWalk:
    """Show which pixel becomes which row of an im2col tile.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        Of an im2col or im2col-wide map; a tile brings its own coordinates and offsets.
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the bounding box's first pixel.
    im2col_offsets : sequence of int, optional
        Row-major (D, H, W): tap x dilation of a convolution.

    Returns
    -------
    Im2colWalk

    Raises
    ------
    TmaPreconditionError
        For what is neither map nor tile, and for coordinates and offsets that `load_tile` would
        refuse.
    TmaUnsupportedError
        For tiled maps, which `tensor` shows.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> lower, upper = tma.im2col_corners((3, 3), padding=1)
    >>> images = np.zeros((1, 4, 4, 8), np.float16)
    >>> tm = tma.make_im2col_descriptor(images, lower, upper, 8, 16)
    >>> print(walk(tm))
    im2col: 16 pixels of 8 channels from (0, -1, -1, 0)
    bounding box h -1..2, w -1..2; offsets h 0, w 0
    image n = 0
          w   -1    0    1    2    3
      h  -1   0*   1*   2*   3*
      h   0   4*    5    6    7    .
      h   1   8*    9   10   11    .
      h   2  12*   13   14   15    .
      h   3         .    .    .    .
    number: row of the tile; * out of bounds, filled; . image
    """
    request = request_of(tensor_map, coords, im2col_offsets, smem_offset)
    args = request.plan.arguments
    if args.kind == "tiled":
        raise TmaUnsupportedError(
            "only im2col maps have pixels to walk; for a tiled map use draw.tensor"
        )
    spatial = spatial_dims(args)
    box = dict(zip(geometry.walked_dims(args), geometry.im2col_box(args), strict=True))
    start = request.coords[0]
    ends = [box.get(d, (int(start[d]), int(start[d]))) for d in spatial[:2]]
    ends += [(0, 0)] * (2 - len(ends))
    (w_box, h_box), names = ends, "whd"[: len(spatial)]
    offsets = (*request.offsets, 0, 0, 0)
    images, left = _images(request)
    notes = [
        "bounding box "
        + ", ".join(
            f"{n} {a}..{b}" for n, (a, b) in zip("hw", (h_box, w_box), strict=True) if n in names
        )
        + "; offsets "
        + ", ".join(f"{n} {offsets['whd'.index(n)]}" for n in reversed(names)),
    ]
    if left:
        notes.append(f"{left} pixels of further images are not drawn")
    place = tuple(start[::-1].tolist())
    return Im2colWalk(
        title=f"{args.kind}: {request.plan.lines} pixels of {request.plan.tile_shape[-1]} channels "
        f"from {place}",
        extent=(
            args.global_dim[spatial[1]] if len(spatial) > 1 else 1,
            args.global_dim[spatial[0]],
        ),
        box=(*h_box, *w_box),
        images=images,
        notes=tuple(notes),
        offsets=(offsets[1] if len(spatial) > 1 else 0, offsets[0]),
    )


def _images(request: CopyRequest) -> tuple[tuple[Image, ...], int]:
    """Group the pixels by image and depth: the first few groups, and how many pixels are left."""
    args = request.plan.arguments
    spatial = spatial_dims(args)
    lines = request.lines()
    positions = lines_positions(request).tolist()
    starts = lines.origins[0] + lines.start[0] + request.tensor_map.global_address
    inside = lines.inside[0] & (lines.first[0] < lines.last[0])

    dims = (args.rank - 1, *spatial[2:])  # of the image, and of its depth

    def place(row: int) -> tuple[int, ...]:
        return tuple(positions[row][d] for d in dims)

    images: list[Image] = []
    left = 0
    for at, rows in groupby(range(len(positions)), place):
        if len(images) == MAX_IMAGES:
            left += len(list(rows))
            continue
        pixels = tuple(
            Pixel(
                row,
                tuple(positions[row][::-1]),
                positions[row][spatial[1]] if len(spatial) > 1 else 0,
                positions[row][spatial[0]],
                bool(inside[row]),
                int(starts[row]),
            )
            for row in rows
        )
        name = "image " + ", ".join(f"{n} = {p}" for n, p in zip("nd", at, strict=False))
        exists = all(0 <= p < args.global_dim[d] for p, d in zip(at, dims, strict=True))
        images.append(Image(name + ", out of bounds" * (not exists), pixels, exists))
    return tuple(images), left


# --- Drawing ------------------------------------------------------------------------------------

CELL, GUTTER, HEAD = 30, 52, 46
NOTE_HEIGHT = 16


def _panel(figure: Im2colWalk, image: Image) -> Scene:
    rows, columns = figure.window(image)
    items: list[Item] = [
        Text(10, 19, image.name, "strong"),
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
    taken = {(p.h, p.w): p for p in image.pixels}
    for n, h in enumerate(rows):
        for k, w in enumerate(columns):
            inside = 0 <= h < figure.extent[0] and 0 <= w < figure.extent[1]
            cell = _cell(
                taken.get((h, w)), inside and image.exists, GUTTER + CELL * k, HEAD + CELL * n
            )
            items += [cell] if cell else []
    items += _outline(figure.box, rows, columns, "window")
    if any(figure.offsets):
        items += _outline(figure.shifted, rows, columns, "shifted")
    items += _torn_sides(figure, rows, columns)
    y = HEAD + CELL * len(rows) + 10
    for note in (*figure.notes, *figure.cut(image)):
        items.append(Text(10, y + 8, note, "muted"))
        y += NOTE_HEIGHT
    items += _legend(y, any(figure.offsets))
    y += 20 * any(figure.offsets)
    width = max(GUTTER + CELL * len(columns) + 14, 560)
    return Scene(width, y + 24, f"{figure.title}, {image.name}", tuple(items))


def _cell(pixel: Pixel | None, inside: bool, x: float, y: float) -> Box | None:
    if pixel is None:
        return Box(x, y, CELL, CELL, "tensor") if inside else None
    style = "taken" if pixel.inside else "filled"
    return Box(
        x,
        y,
        CELL,
        CELL,
        style,
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


def _legend(y: float, is_shifted: bool) -> list[Item]:
    items: list[Item] = [
        Box(10, y, 22, 14, "taken", ("n",)),
        Text(38, y + 11, "row n of the tile", "muted"),
        Box(160, y, 22, 14, "filled", ("n",), hatched=True),
        Text(188, y + 11, "filled", "muted"),
        Box(246, y, 22, 14, "tensor"),
        Text(274, y + 11, "image, not taken", "muted"),
        Box(392, y, 22, 14, "window"),
        Text(420, y + 11, "bounding box", "muted"),
    ]
    if is_shifted:
        items += [
            Box(10, y + 20, 22, 14, "shifted"),
            Text(38, y + 31, "bounding box shifted by the offsets: where the pixels are", "muted"),
        ]
    return items


def _characters(figure: Im2colWalk, image: Image) -> list[str]:
    rows, columns = figure.window(image)
    taken = {(p.h, p.w): p for p in image.pixels}

    def token(h: int, w: int) -> str:
        pixel = taken.get((h, w))
        if pixel is not None:
            return f"{pixel.row}{'' if pixel.inside else '*'}"
        inside = 0 <= h < figure.extent[0] and 0 <= w < figure.extent[1]
        return "." if inside and image.exists else ""

    lines = ["      w" + "".join(f"{w:>5}" for w in columns)]
    lines += [f"  h {h:>3}" + "".join(f"{token(h, w):>5}" for w in columns).rstrip() for h in rows]
    return [line[:TEXT_COLUMNS] for line in lines]
