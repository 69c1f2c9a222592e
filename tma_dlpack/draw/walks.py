"""The picture of an im2col copy: which pixel of the images becomes which row of the tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import lines_positions, request_of
from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure
from tma_dlpack.draw.grid import (
    LINE,
    Cell,
    Grid,
    Legend,
    Scene,
    label,
    lay_out,
    sides,
    window,
    words,
)
from tma_dlpack.draw.memory import shared
from tma_dlpack.geometry import im2col_box, spatial_dims
from tma_dlpack.public import opaque, with_arguments_of
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

UNIT = 30, 30  # px: width and height of a drawn pixel
MAX_CELLS = 14  # maximum number of pixels that are drawn along h or along w
MAX_IMAGES = 3
MAP = 110, 200  # px of the overview: maximum height and width
# px: the path between two runs of pixels is drawn only if the runs are at least this far apart.
LEAST_JUMP = 4
WHOLE = "the whole walk; framed: what is drawn"
LEGEND = (
    (Cell(0, 0, "taken", "n"), "row n of the tile"),
    (Cell(0, 0, "filled", "n", hatched=True), "filled"),
    (Cell(0, 0, "tensor"), "image, not copied"),
    (Cell(0, 0, "window"), "bounding box"),
)
SHIFTED = Cell(0, 0, "shifted"), "bounding box shifted by the offsets: where the pixels are"


@dataclass(frozen=True, slots=True)
class Pixel:
    """A pixel of an im2col column; it becomes one row of the tile.

    Attributes
    ----------
    row : int
        Index of the row in the tile.
    position : tuple of int
        Row-major position of the pixel's first channel in the tensor: (n, [d,] [h,] w, c). For an
        interleaved map, the position is (n, slice, [d,] [h,] w).
    h, w : int
        Position of the pixel in its image; h is 0 for images without height.
    inside : bool
        Whether the pixel is in bounds.
    global_offset : int
        Bytes from the map's global_address to the pixel's first channel; valid only if `inside`.
    """

    row: int
    position: tuple[int, ...]
    h: int
    w: int
    inside: bool
    global_offset: int

    def cell(self) -> Cell:
        """Draw the pixel with the number of its row."""
        origin = f"global_address {self.global_offset:+#x}"
        where = origin if self.inside else "out of bounds, filled"
        title = f"row {self.row}: element {self.position}\n{where}"
        style, key = "taken" if self.inside else "filled", f"row{self.row}"
        is_filled = not self.inside
        return Cell(self.w, self.h, style, f"{self.row}", title, hatched=is_filled, key=key)


@dataclass(frozen=True, slots=True)
class Image:
    """The pixels of an im2col column in one image, or in one depth of a volume."""

    name: str
    pixels: tuple[Pixel, ...]
    exists: bool = True  # False if the image or the depth is out of bounds


@dataclass(frozen=True, slots=True, repr=False)
class Im2colWalk(Figure):
    """An im2col column: pixels that are drawn in their images.

    Attributes
    ----------
    extent : tuple of (int, int)
        Height and width of an image; height is 1 for a one-dimensional image.
    box : tuple of (int, int, int, int)
        The bounding box before the offsets are added: first h, last h, first w, last w. The walk
        stays in this box.
    offsets : tuple of (int, int)
        Offsets (h, w). A copy reads the pixels at the positions of the walk plus these offsets.
    images : tuple of Image
        The first images of the walk, at most 3.
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
        """The bounding box after the offsets have been added; it contains all pixels."""
        (h, w), (top, bottom, left, right) = self.offsets, self.box
        return top + h, bottom + h, left + w, right + w

    def brief(self) -> Im2colWalk:
        """Return the picture with only its first image, and a note about the other images."""
        notes = (*self.notes, "further images: see draw.walk")
        short = replace(self, images=self.images[:1], notes=notes)
        return short if len(self.images) > 1 else self

    def whole(self, image: Image) -> tuple[range, range]:
        """Return the ranges of h and w that contain the image, `box`, `shifted` and all pixels."""
        height, width = self.extent
        top, bottom, left, right = zip(self.box, self.shifted, strict=True)
        rows = 0, height - 1, *top, *bottom, *(p.h for p in image.pixels)
        columns = 0, width - 1, *left, *right, *(p.w for p in image.pixels)
        return range(min(rows), max(rows) + 1), range(min(columns), max(columns) + 1)

    def window(self, image: Image) -> tuple[range, range]:
        """Return the drawn ranges of h and w: at most 14 positions each, near the first pixel."""
        (rows, columns), first = self.whole(image), image.pixels[0]
        return _around(first.h, rows), _around(first.w, columns)

    def runs(self, image: Image) -> list[tuple[int, int, int]]:
        """Return (h, first w, last w) for each run of pixels with the same h, in walk order."""
        rows = [list(row) for _, row in groupby(image.pixels, key=lambda p: p.h)]
        return [(row[0].h, row[0].w, row[-1].w) for row in rows]

    def cut(self, image: Image) -> tuple[bool, bool, bool, bool]:
        """Return four flags: the image continues left of, above, right of, below the drawn part."""
        (rows, columns), (height, width) = self.window(image), self.extent
        return columns.start > 0, rows.start > 0, columns.stop < width, rows.stop < height

    def missing(self, image: Image) -> list[str]:
        """Return a note on the drawn part, if a part of the image or some pixels are not drawn."""
        rows, columns = self.window(image)
        left = sum(p.h not in rows or p.w not in columns for p in image.pixels)
        if not left and not any(self.cut(image)):
            return []
        drawn = f"drawn: h {rows.start}..{rows.stop - 1}, w {columns.start}..{columns.stop - 1}"
        return [f"{drawn}; {left} pixels are elsewhere" if left else drawn]

    def cells(self, image: Image) -> dict[tuple[int, int], Cell]:
        """Return (h, w) -> cell for all drawn pixels of an image, copied or not."""
        (rows, columns), (height, width) = self.window(image), self.extent
        inside = {(h, w) for h in rows for w in columns if 0 <= h < height and 0 <= w < width}
        found = {(h, w): Cell(w, h, "tensor") for h, w in inside if image.exists}
        # A pixel of the tile replaces the plain cell of the image at the same place.
        found |= {(p.h, p.w): p.cell() for p in image.pixels if p.h in rows and p.w in columns}
        return dict(sorted(found.items()))

    @property
    def sentence(self) -> str:
        """The caption: the numbers of copied and of filled pixels."""
        pixels = [p.inside for image in self.images for p in image.pixels]
        copied = f"[{sum(pixels)} are copied](is-taken)" if any(pixels) else "none is copied"
        rest = ", [the hatched ones](is-filled) are outside of the image" * (not all(pixels))
        return f"The {len(pixels)} numbered pixels become rows of the tile: {copied}{rest}."

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel per image."""
        return tuple(map(self._scene, self.images))

    def _scene(self, image: Image) -> Scene:
        rows, columns = self.window(image)
        edge, above = columns.start, rows.start - 0.7
        cells = [label(edge, above, "h \\ w", rows=0.7)]
        cells += [Cell(w, above, "muted", f"{w}", rows=0.7) for w in columns]
        cells += [label(edge, h, f"{h}") for h in rows]
        cells += [*self.cells(image).values(), *_outline(self.box, rows, columns, "window")]
        legend: Legend = LEGEND
        if any(self.offsets):
            cells += _outline(self.shifted, rows, columns, "shifted")
            legend = (*LEGEND, SHIFTED)
        ends = (columns.start, columns.stop), (rows.start, rows.stop)
        # Draw only the sides that are cut, because the cells draw all other edges.
        cells += [side for side in sides(*ends, self.cut(image)) if side.style == "zigzag"]
        about, notes = f"{self.title}, {image.name}", (*self.notes, *self.missing(image))
        grids = [Grid(tuple(cells), UNIT, (edge, above))]
        if self.missing(image):
            grids.append(self._map(image))
        return lay_out(about, grids, image.name, (), notes, legend)

    def _map(self, image: Image) -> Grid:
        """Draw an overview: image, runs of pixels, lines between runs, frame of the drawn part."""
        (tall, wide), (rows, columns) = self.whole(image), self.window(image)
        runs = self.runs(image)
        unit = min(MAP[0] / len(tall), MAP[1] / len(wide))
        height, width = self.extent
        cells = [Cell(0, 0, "tensor", columns=width, rows=height)] * image.exists
        for h, w, end in runs:
            cells.append(Cell(w, h, "taken", "", f"h {h}, w {w}..{end}", columns=end + 1 - w))
        # Join the middle of a run's last pixel with the middle of the next run's first pixel.
        for (h, _, end), (to, w, _) in pairwise(runs):
            if (to - h) * unit >= LEAST_JUMP:
                cells.append(Cell(end + 0.5, h + 0.5, "way", columns=w - end, rows=to - h))
        frame = Cell(columns.start, rows.start, "frame", "", "", len(columns), len(rows))
        beside = words(wide.stop + 12 / unit, tall.start, WHOLE, rows=LINE / unit)
        return Grid((*cells, frame, beside), (unit, unit), (wide.start, tall.start))

    def text(self) -> str:
        """Return one grid of row numbers per image."""
        parts = [self.title, *self.notes]
        for image in self.images:
            (rows, columns), cells = self.window(image), self.cells(image)
            tokens = {at: f"{c.text}{'*' * c.hatched}" or "." for at, c in cells.items()}
            lines = ["      w" + "".join(f"{w:>5}" for w in columns)]
            for h in rows:
                line = "".join(f"{tokens.get((h, w), ''):>5}" for w in columns)
                lines.append(f"  h {h:>3}{line}".rstrip())
            parts += [image.name, *self.missing(image), *(line[:TEXT_COLUMNS] for line in lines)]
        return "\n".join([*parts, "number: row of the tile; * out of bounds, filled; . image"])


def _around(place: int, whole: range) -> range:
    return range(*window(place - MAX_CELLS // 4, (whole.start, whole.stop), MAX_CELLS))


def _outline(box: tuple[int, int, int, int], rows: range, columns: range, style: str) -> list[Cell]:
    """Draw the parts of a box's sides that are in the window (rows, columns)."""
    top, bottom, left, right = box[0], box[1] + 1, box[2], box[3] + 1
    first, last = max(left, columns.start), min(right, columns.stop)
    begin, end = max(top, rows.start), min(bottom, rows.stop)
    across = [row for row in (top, bottom) if rows.start <= row <= rows.stop and first < last]
    down = [c for c in (left, right) if columns.start <= c <= columns.stop and begin < end]
    return [
        *(Cell(first, row, style, columns=last - first, rows=0) for row in across),
        *(Cell(column, begin, style, columns=0, rows=end - begin) for column in down),
    ]


@opaque
@with_arguments_of(shared)
def walk(tensor_map: TensorMap | Tile, options: dict[str, Any]) -> Im2colWalk:
    """Show which pixel becomes which row of an im2col tile.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        An im2col or im2col-wide map, or a Tile of such a map. A Tile has its own coordinates and
        offsets, so the other arguments are ignored.
    coords : sequence of int, optional
        Row-major coordinates, as in `load_tile`; None means the bounding box's first pixel.
    im2col_offsets : sequence of int, optional
        Row-major offsets (D, H, W). In a convolution, an offset is the index of the filter tap
        times the dilation.
    smem_offset : int
        Start of the tile in shared memory, in bytes; a multiple of 128.

    Returns
    -------
    Im2colWalk
        `images` has the pixels of the first three images or depths.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is neither a TensorMap nor a Tile, or `load_tile` would refuse the
        coordinates or offsets.
    TmaUnsupportedError
        For tiled maps; use `tensor` for them.

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
    request = request_of(tensor_map, **options)
    args = request.plan.arguments
    if args.kind == "tiled":
        message = "only im2col maps have pixels to walk; for a tiled map use draw.tensor"
        raise TmaUnsupportedError(message)
    # Name (w, h or d) -> driver dimension. `request.offsets` also begins with w.
    dims = dict(zip("whd", spatial_dims(args), strict=False))
    offsets = dict(zip(dims, (*request.offsets, 0, 0, 0), strict=False))
    start, box = request.coords[0].tolist(), im2col_box(args)
    # An im2col-wide map has no bounding box along h, because it walks only along w.
    ends = {name: box.get(d, (start[d], start[d])) for name, d in dims.items()}
    boxed = ", ".join(f"{n} {ends[n][0]}..{ends[n][1]}" for n in "hw" if n in dims)
    moved = ", ".join(f"{n} {offsets[n]}" for n in "dhw" if n in dims)
    images, left = _images(request, dims)
    notes = [f"bounding box {boxed}; offsets {moved}"]
    notes += [f"{left} pixels of further images are not drawn"] * bool(left)
    pixels = f"{request.plan.lines} pixels of {request.plan.tile_shape[-1]} channels"
    title = f"{args.kind}: {pixels} from {tuple(start[::-1])}"
    extent = args.global_dim[dims["h"]] if "h" in dims else 1, args.global_dim[dims["w"]]
    around = (*ends.get("h", (0, 0)), *ends["w"])
    shift = offsets.get("h", 0), offsets["w"]
    return Im2colWalk(title, extent, around, images, tuple(notes), shift)


def _images(request: CopyRequest, dims: dict[str, int]) -> tuple[tuple[Image, ...], int]:
    """Return the pixels of the first 3 images or depths, and the number of all other pixels."""
    extents = request.plan.arguments.global_dim
    which = {name: d for name, d in (("n", len(extents) - 1), *dims.items()) if name in "nd"}
    lines, positions = request.lines(), lines_positions(request).tolist()
    offsets = (lines.origins[0] + lines.start[0]).tolist()
    # A pixel is in bounds if its position and at least one of its channels are in bounds.
    inside = (lines.inside[0] & (lines.first[0] < lines.last[0])).tolist()
    images: list[Image] = []
    for place, group in groupby(enumerate(positions), lambda p: [p[1][d] for d in which.values()]):
        if len(images) == MAX_IMAGES:
            break
        pixels = []
        for row, at in group:
            h, w = at[dims["h"]] if "h" in dims else 0, at[dims["w"]]
            pixels.append(Pixel(row, tuple(at[::-1]), h, w, inside[row], offsets[row]))
        name = "image " + ", ".join(f"{n} = {p}" for n, p in zip(which, place, strict=True))
        exists = all(0 <= p < extents[d] for d, p in zip(which.values(), place, strict=True))
        images.append(Image(name + ", out of bounds" * (not exists), tuple(pixels), exists))
    return tuple(images), len(positions) - sum(len(image.pixels) for image in images)
