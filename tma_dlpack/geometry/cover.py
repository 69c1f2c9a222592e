"""The coordinates of the tiles that cover a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tma_dlpack.encoding.arguments import EncodeArguments
from tma_dlpack.geometry.plan import IntArray, im2col_box, plan, spatial_dims, walked_dims
from tma_dlpack.types.errors import TmaUnsupportedError

__all__ = ["tile_coords"]

#: More coordinates than this (1 GiB) are refused rather than listed.
MAX_COORDS = 1 << 27


def tile_coords(args: EncodeArguments) -> IntArray:
    """Give the coordinates of the tiles that cover the tensor.

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
        For more than 2^27 coordinates (tiles times rank), which no list should hold; and for maps
        that describe no copy, as `plan` refuses them.
    """
    plan(args)
    if args.kind == "tiled":
        box = list(args.box_dim)
        if args.interleave:
            box[-2] = 1
        steps = [range(0, dim, b) for dim, b in zip(args.global_dim, box, strict=True)]
        return _grid(steps, args.rank)[:, ::-1]
    return _column_starts(args)[:, ::-1]


def _grid(ranges: Sequence[range], rank: int) -> IntArray:
    """Give all combinations, the first range changing fastest, as (n, len(ranges))."""
    # Not len(): a walk over all images may be longer than what len can say.
    counts = [max(0, -(-(r.stop - r.start) // r.step)) for r in ranges]
    total = math.prod(counts)
    if total * rank > MAX_COORDS:
        raise TmaUnsupportedError(
            f"{total} tiles cover this tensor; a list of at most {MAX_COORDS} coordinates "
            f"({MAX_COORDS // rank} tiles of rank {rank}) is given. Step through the coordinates "
            "yourself, box by box along each dimension, and pass load_tiles some at a time"
        )
    number = np.arange(total, dtype=np.int64)
    columns = []
    for r, count in zip(ranges, counts, strict=True):
        number, place = np.divmod(number, count)
        columns.append(r.start + place * r.step)
    return np.stack(columns, axis=1)


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
    grid = _grid([inner, walk, *(range(0, dims[d], estr[d]) for d in fixed)], args.rank)

    coords = np.empty((len(grid), args.rank), np.int64)
    coords[:, inner_dim] = grid[:, 0]
    pixel = grid[:, 1]
    for d in walked:
        pixel, place = np.divmod(pixel, passes[d])
        coords[:, d] = box[d][0] + place * estr[d]
    coords[:, images] = pixel * estr[images]
    for column, d in enumerate(fixed):
        coords[:, d] = grid[:, 2 + column]
    return coords
