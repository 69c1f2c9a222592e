"""The walk of an im2col copy over the images: which pixel becomes which row of the tile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.im2col_walk import Im2colWalk, Image, Pixel
from tma_dlpack.draw.shown_copy import bounding_box, lines_positions, request_of
from tma_dlpack.geometry.plan import spatial_dims
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap

MAX_IMAGES = 3


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
