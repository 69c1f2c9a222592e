"""The walk of an im2col copy over the images: which pixel becomes which row of the tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure
from tma_dlpack.draw.scene import Scene
from tma_dlpack.draw.shown_copy import bounding_box, lines_positions, request_of
from tma_dlpack.draw.walk_panel import walk_panel
from tma_dlpack.encoding.arguments import EncodeArguments
from tma_dlpack.geometry.plan import spatial_dims
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.errors import TmaUnsupportedError
from tma_dlpack.types.opaque import opaque

__all__ = ["Im2colWalk", "Image", "Pixel", "walk"]

MAX_CELLS = 14  # drawn along one axis
MAX_IMAGES = 3


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
        return tuple(walk_panel(self, image) for image in self.images)

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
    smem_offset : int
        Where the tile starts in shared memory, bytes; a multiple of 128.

    Returns
    -------
    Im2colWalk
        `images` has the pixels of the first three images or depths.

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
    dims = _dims(args)
    offsets = dict(zip(dims, (*request.offsets, 0, 0, 0), strict=False))
    start, box = request.coords[0].tolist(), bounding_box(args)
    # im2col-wide walks along w alone: along h it stays where it starts.
    ends = {name: box.get(d, (start[d], start[d])) for name, d in dims.items()}
    boxed = ", ".join(f"{n} {ends[n][0]}..{ends[n][1]}" for n in "hw" if n in dims)
    moved = ", ".join(f"{n} {offsets[n]}" for n in "dhw" if n in dims)
    images, left = _images(request)
    notes = [f"bounding box {boxed}; offsets {moved}"]
    if left:
        notes.append(f"{left} pixels of further images are not drawn")
    return Im2colWalk(
        title=f"{args.kind}: {request.plan.lines} pixels of {request.plan.tile_shape[-1]} channels "
        f"from {tuple(start[::-1])}",
        extent=(args.global_dim[dims["h"]] if "h" in dims else 1, args.global_dim[dims["w"]]),
        box=(*ends.get("h", (0, 0)), *ends["w"]),
        images=images,
        notes=tuple(notes),
        offsets=(offsets.get("h", 0), offsets["w"]),
    )


def _dims(args: EncodeArguments) -> dict[str, int]:
    """Give the driver's dimension of w, and of h and d where the tensor has them."""
    return dict(zip("whd", spatial_dims(args), strict=False))


def _images(request: CopyRequest) -> tuple[tuple[Image, ...], int]:
    """Group the pixels by image and depth: the first few groups, and how many pixels are left."""
    pixels = _pixels(request)
    groups = [list(group) for _, group in groupby(pixels, key=lambda p: _image_of(request, p))]
    drawn = tuple(_image(request, group) for group in groups[:MAX_IMAGES])
    return drawn, len(pixels) - sum(len(image.pixels) for image in drawn)


def _pixels(request: CopyRequest) -> list[Pixel]:
    dims = _dims(request.plan.arguments)
    lines = request.lines()
    addresses = lines.origins[0] + lines.start[0] + request.tensor_map.global_address
    inside = lines.inside[0] & (lines.first[0] < lines.last[0])
    return [
        Pixel(
            row=row,
            position=tuple(position[::-1]),
            h=position[dims["h"]] if "h" in dims else 0,
            w=position[dims["w"]],
            inside=bool(inside[row]),
            global_address=int(addresses[row]),
        )
        for row, position in enumerate(lines_positions(request).tolist())
    ]


def _image_of(request: CopyRequest, pixel: Pixel) -> dict[str, int]:
    """Give where the pixel's image is: n, and in volumes d."""
    args = request.plan.arguments
    dims = {"n": args.rank - 1, **_dims(args)}
    return {name: pixel.position[-1 - dims[name]] for name in "nd" if name in dims}


def _image(request: CopyRequest, pixels: list[Pixel]) -> Image:
    args = request.plan.arguments
    dims = {"n": args.rank - 1, **_dims(args)}
    where = _image_of(request, pixels[0])
    exists = all(0 <= p < args.global_dim[dims[name]] for name, p in where.items())
    name = "image " + ", ".join(f"{name} = {p}" for name, p in where.items())
    return Image(name if exists else f"{name}, out of bounds", tuple(pixels), exists)


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
