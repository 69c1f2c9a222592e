"""The coordinates of the tiles that cover a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tma_dlpack.geometry.plan import IntArray, im2col_box, plan, spatial_dims, walked_dims
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.errors import TmaUnsupportedError

#: More coordinates than this (1 GiB) are refused rather than listed.
MAX_COORDS = 1 << 27


def tile_coords(args: EncodeArguments) -> IntArray:
    """Return the coordinates of the tiles that cover the tensor.

    Tiled maps step by the box in each dimension (an interleaved map by one slice). Im2col maps
    list the column starts that cover every pixel of the bounding boxes, `pixels_per_column` at a
    time over all images, and per start the channels (or slices).

    Returns
    -------
    int64 array (n, rank)
        Row-major coordinates, the last changing fastest; for im2col maps channels or slices change
        fastest.

    Raises
    ------
    TmaUnsupportedError
        For more than 2^27 coordinates (tiles times rank), and for maps that `plan` refuses.
    """
    plan(args)
    return _tiled(args) if args.kind == "tiled" else _column_starts(args)


def _tiled(args: EncodeArguments) -> IntArray:
    box = list(args.box_dim)
    if args.interleave:
        box[-2] = 1
    steps = [range(0, dim, b) for dim, b in zip(args.global_dim, box, strict=True)]
    coords, grid = _empty_grid(steps[::-1], args.rank)
    for d, places in enumerate(steps):
        column = args.rank - 1 - d
        grid[..., column] = _along(places, column, args.rank)
    return coords


def _column_starts(args: EncodeArguments) -> IntArray:
    pixels = plan(args).lines
    walked = list(walked_dims(args))
    fixed = [d for d in spatial_dims(args) if d not in walked]
    images, estr, dims = args.rank - 1, args.element_strides, args.global_dim
    box = dict(zip(walked, im2col_box(args), strict=True))
    passes = {d: max(0, (last - first) // estr[d] + 1) for d, (first, last) in box.items()}
    per_image = math.prod(passes.values())
    walk = range(0, per_image * -(-dims[images] // estr[images]), pixels)

    if args.interleave:
        inner_dim, inner = args.rank - 2, range(dims[args.rank - 2])
    else:
        inner_dim, inner = 0, range(0, dims[0], args.channels_per_pixel)
    steps = [*(range(0, dims[d], estr[d]) for d in reversed(fixed)), walk, inner]
    coords, grid = _empty_grid(steps, args.rank)
    if not coords.size:
        return coords  # one range may be empty and another endless

    axes, columns = len(steps), grid[..., ::-1]  # the columns in the driver's order
    columns[..., inner_dim] = _along(inner, axes - 1, axes)
    for axis, d in enumerate(reversed(fixed)):
        columns[..., d] = _along(steps[axis], axis, axes)
    pixel = _along(walk, axes - 2, axes)
    for d in walked:
        pixel, place = np.divmod(pixel, passes[d])
        columns[..., d] = box[d][0] + place * estr[d]
    columns[..., images] = pixel * estr[images]
    return coords


def _empty_grid(steps: Sequence[range], rank: int) -> tuple[IntArray, IntArray]:
    """Allocate all combinations as (n, rank), the last of `steps` changing fastest.

    Also gives the same memory as (*counts, rank), to write each column by broadcasting.
    """
    # Not len(), which fails for ranges longer than sys.maxsize.
    counts = [max(0, -(-(r.stop - r.start) // r.step)) for r in steps]
    total = math.prod(counts)
    if total * rank > MAX_COORDS:
        raise TmaUnsupportedError(
            f"{total} tiles cover this tensor, and tile_coords lists at most "
            f"{MAX_COORDS // rank} tiles of rank {rank}. Compute the coordinates in parts, box by "
            "box along each dimension, and pass each part to load_tiles"
        )
    coords = np.empty((total, rank), np.int64)
    return coords, coords.reshape(*counts, rank)


def _along(places: range, axis: int, axes: int) -> IntArray:
    """Return a range as an array that broadcasts along one of some axes."""
    values: IntArray = np.arange(places.start, places.stop, places.step, dtype=np.int64)
    return values.reshape([-1 if a == axis else 1 for a in range(axes)])
