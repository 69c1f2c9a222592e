"""Addresses and bounds of lines and boxes in global memory, and the list of a tensor's tiles.

A line is a part of a tile that is contiguous in global memory, such as a row of the box. The
docstring of `tma_dlpack.geometry` has the definition for each kind of map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from tma_dlpack.geometry.plan import (
    BoolArray,
    IntArray,
    Lattice,
    TilePlan,
    im2col_box,
    plan,
    spatial_dims,
)
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.errors import TmaUnsupportedError

#: Bytes of a chunk of global memory. Stores and reductions write whole chunks, even if the
#: tensor ends within a chunk [measured].
CHUNK_BYTES = 16


class LinePosition(NamedTuple):
    """The positions of the lines of several tiles: their coordinates along one tensor dimension.

    `dimension` is the index of the dimension in driver order. `positions` broadcasts to (tiles,
    *TilePlan.line_shape). `extent` and `stride_bytes` are the tensor's extent and stride in this
    dimension.
    """

    dimension: int
    positions: IntArray
    extent: int
    stride_bytes: int


def line_positions(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int] = ()
) -> list[LinePosition]:
    """Return the positions of all lines of all tiles, in each dimension of `tile_plan.line_dims`.

    Parameters
    ----------
    tile_plan : TilePlan
    coords : int64 array (tiles, rank)
        Coordinates in driver order, innermost first.
    offsets : sequence of int
        Im2col offsets, W first. An empty sequence means that every offset is 0.
    """
    args = tile_plan.arguments
    strides = (tile_plan.unit_bytes, *args.global_strides)
    if args.kind == "tiled":
        positions = _tiled_positions(tile_plan, coords)
    else:
        positions = _im2col_positions(tile_plan, coords, offsets)
    return [LinePosition(d, p, args.global_dim[d], strides[d]) for d, p in positions.items()]


def _tiled_positions(tile_plan: TilePlan, coords: IntArray) -> dict[int, IntArray]:
    """Return {d: positions of the lines along dimension d}, for each d of `line_dims`."""
    # The positions are coords[:, d] + j[d] * s[d]; see `_taken`. Axis 0 of each array counts tiles.
    # The other axes are the axes of `line_shape`.
    axes = (-1, *(1 for _ in tile_plan.line_shape))
    return {d: coords[:, d].reshape(axes) + taken for d, taken in _taken(tile_plan)}


@lru_cache(maxsize=256)
def _taken(tile_plan: TilePlan) -> list[tuple[int, IntArray]]:
    """Return (d, distances of the lines from line 0 along d) for each dimension d of `line_dims`.

    The distances are ``j[d] * s[d]``: ``j[d]`` is 0, 1, ..., n[d] - 1, and ``s[d]`` is the step.
    The array of a dimension varies only along the axis of `line_shape` that belongs to the
    dimension.
    """
    counts, steps, dims = tile_plan.counts, tile_plan.steps, tile_plan.line_dims
    taken = (np.arange(0, counts[d] * steps[d], steps[d]) for d in dims)
    return [*zip(dims, np.meshgrid(*taken, indexing="ij", sparse=True), strict=True)]


def _im2col_positions(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int]
) -> dict[int, IntArray]:
    """Return the positions of each column's pixels, in the order in which the engine reads them.

    The order starts at the column's first pixel. W changes fastest, then H, D and the image. Along
    one dimension, the engine first reads the head: the positions ``start, start + step, ...`` up to
    the last pixel of the bounding box. Then it repeats whole passes through the bounding box. A
    pass has the positions ``first, first + step, ...`` up to the last pixel. After the head and
    after each pass, the position in the next dimension increases by one step.
    """
    args = tile_plan.arguments
    # `turn` is the distance from the column's first pixel to each line, in steps along the
    # dimension `d` of the loop. Along W, line i is i steps away.
    turn: IntArray = np.arange(tile_plan.lines)[None, :]
    positions = {d: coords[:, d, None] for d in tile_plan.line_dims}
    for d, (first, last) in im2col_box(args).items():
        step, start = args.element_strides[d], positions[d]
        # The number of positions in the head, and the number in a pass.
        head, full = (last - start) // step + 1, (last - first) // step + 1
        passes, place = np.divmod(turn - head, full)
        # In the head, `passes` is negative, so the position in the next dimension does not change.
        in_head = turn < head
        positions[d] = np.where(in_head, start + turn * step, first + place * step)
        turn = np.maximum(passes + 1, 0)
    images = args.rank - 1
    # The outermost dimension counts images. The position in this dimension only increases, because
    # the bounding box does not limit the images.
    positions[images] = positions[images] + turn * args.element_strides[images]
    # The im2col offsets are added last, so the shifted pixels may be outside of the bounding box.
    for d, offset in zip(spatial_dims(args), offsets, strict=False):
        positions[d] = positions[d] + offset
    return positions


def line_origins(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int] = ()
) -> tuple[IntArray, BoolArray]:
    """Return the origin of each line in global memory, and whether each line is in bounds.

    Returns
    -------
    origins : int64 array (tiles, lines)
        Bytes from the tensor's address to each line's origin. The origin is the element at the
        line's positions. If dimension 0 is not in `line_dims`, the origin's index in dimension 0 is
        0. The byte offsets wrap modulo 2^64, as in the engine [measured; ragged maps depend on the
        wrap]. The origin of a line that is out of bounds has no meaning.
    inside : bool array (tiles, lines)
        Whether the line is in bounds in every dimension of `line_dims`.
    """
    shape = (len(coords), *tile_plan.line_shape)
    origins, inside = np.zeros(shape, np.int64), np.ones(shape, np.bool_)
    for line in line_positions(tile_plan, coords, offsets):
        p = line.positions
        inside &= (p >= 0) & (p < line.extent)
        origins += p * line.stride_bytes  # int64 wraps
    flat = (len(coords), tile_plan.lines)
    return origins.reshape(flat), inside.reshape(flat)


Positions = TypeVar("Positions", int, IntArray)


def in_bounds(start: Positions, step: int, count: int, dim: int) -> tuple[Positions, Positions]:
    """Return the range [first, last) of the indices whose positions are in 0..dim - 1.

    The indices are 0..count - 1. Index i has the position ``start + i * step``.

    >>> in_bounds(-3, 2, 4, 3)  # of the positions -3, -1, 1, 3, only the third is in 0..2
    (2, 3)
    """
    # -(start // step) is ceil(-start / step), the first index whose position is 0 or more.
    first = _clamped(-(start // step), 0, count)
    return first, _clamped(-((start - dim) // step), first, count)


def _clamped(n: Positions, low: Positions | int, high: int) -> Positions:
    if isinstance(n, int):
        return min(max(n, low), high)
    return np.minimum(np.maximum(n, low), high)


def inner_window(tile_plan: TilePlan, inner: Positions) -> tuple[Positions, Positions, Positions]:
    """Return which bytes of a line are in bounds along dimension 0.

    Parameters
    ----------
    tile_plan : TilePlan
    inner : int, or int64 array (tiles,)
        The coordinate of dimension 0.

    Returns
    -------
    start, first, last : like `inner`
        `start` is the number of bytes in global memory from the line's origin (see `line_origins`)
        to byte 0 of the line. [first, last) is the range of the line's bytes that are in bounds. An
        interleaved line is always in bounds along dimension 0.
    """
    args, line_bytes = tile_plan.arguments, tile_plan.line_bytes
    if tile_plan.unit_bytes:
        # `zero` has the type of `inner`: an int, or an array with one zero per tile.
        zero = inner * 0
        return zero, zero, zero + line_bytes
    bits = tile_plan.row.element_bits
    start = inner * bits // 8
    first, last = in_bounds(start, 1, line_bytes, args.global_dim[0] * bits // 8)
    return start, first, last


def store_window(tile_plan: TilePlan, start: IntArray, last: IntArray) -> IntArray:
    """Return the end of the range of bytes that a store writes in each line.

    The end is `last`, rounded up to the end of a 16-byte chunk of global memory [measured]. Like
    `last`, the end counts bytes from byte 0 of the line.
    """
    end: IntArray = -(-(start + last) // CHUNK_BYTES) * CHUNK_BYTES - start
    return end.clip(max=tile_plan.line_bytes)


# --- The part of a tiled map's box that is in bounds, as a regular grid of lines -----------------


class Cut(NamedTuple):
    """The part of a box that is in bounds: some lines, and the same range of bytes in each line."""

    lines: tuple[slice, ...]  # the lines that are in bounds, along each axis of line_shape
    shape: tuple[int, ...]  # number of lines that are in bounds, along each axis
    strides: tuple[int, ...]  # bytes from one line to the next, along each axis
    first: int  # bytes [first, last) of each line are in bounds
    last: int
    start: int  # bytes from the start of the box to the first byte in bounds
    reach: int  # bytes from the start of the first to the start of the last line in bounds

    @property
    def size_bytes(self) -> int:
        """The number of bytes of the box that are in bounds."""
        return math.prod(self.shape) * (self.last - self.first)


def box_starts(tile_plan: TilePlan, coords: IntArray) -> IntArray:
    """Return the start of each box in bytes from the tensor's address, as an array (tiles,).

    The start of a box that is wholly out of bounds has no meaning.
    """
    # The sum is in bits, because elements of packed types are smaller than a byte.
    return coords @ _lattice(tile_plan).strides_bits >> 3


def wholly_in_bounds(tile_plan: TilePlan, coords: IntArray) -> BoolArray:
    """Return whether each tile's box is wholly in bounds, as an array (tiles,)."""
    wholly: BoolArray = np.all((coords >= 0) & (coords <= _lattice(tile_plan).limits), axis=1)
    return wholly


def cut_box(tile_plan: TilePlan, coords: Sequence[int]) -> Cut:
    """Return the part of one box that is in bounds. `coords` are in driver order.

    Examples
    --------
    >>> from tma_dlpack.tables.arguments import EncodeArguments
    >>> from tma_dlpack.tables.enums import TensorMapDataType
    >>> from tma_dlpack.geometry import plan
    >>> args = EncodeArguments("tiled", TensorMapDataType.INT32, (8, 8), (32,), (1, 1), (4, 3))
    >>> cut = cut_box(plan(args), (-4, 6))
    >>> cut.lines, cut.first, cut.last, cut.size_bytes
    ((slice(0, 2, None),), 16, 16, 0)
    """
    counts, steps, dims = tile_plan.counts, tile_plan.steps, tile_plan.arguments.global_dim
    strides = _lattice(tile_plan).line_strides
    _, first, last = inner_window(tile_plan, coords[0])
    lines, shape, start, reach = [], [], first, 0
    for d, stride in zip(tile_plan.line_dims, strides, strict=True):
        begin, end = in_bounds(coords[d], steps[d], counts[d], dims[d])
        lines.append(slice(begin, end))
        shape.append(end - begin)
        start += begin * stride
        reach += (end - begin - 1) * stride
    return Cut(tuple(lines), tuple(shape), strides, first, last, start, reach)


def _lattice(tile_plan: TilePlan) -> Lattice:
    assert tile_plan.lattice is not None  # every caller has checked that the plan has a lattice
    return tile_plan.lattice


# --- The tiles that cover a tensor --------------------------------------------------------------

#: Maximum number of coordinates in a result of `tile_coords`. A result of this size has 1 GiB.
MAX_COORDS = 1 << 27


def tile_coords(args: EncodeArguments) -> IntArray:
    """Return the coordinates of the tiles that cover the tensor.

    The tiles of a tiled map are one box apart in each dimension. In an interleaved map, a box has
    one slice, so the coordinate that counts slices increases by 1. The tiles of an im2col map are
    columns, which cover every pixel of the bounding boxes of all images. Each column starts
    `pixels_per_column` pixels after the previous column. The first pixel of a column is listed once
    per block of channels, or once per slice if the map is interleaved.

    Returns
    -------
    int64 array (n, rank)
        Row-major coordinates, one tile per row. If the map is tiled, the last coordinate changes
        fastest from row to row. If the map is im2col, the coordinate of the channels changes
        fastest. If it is also interleaved, the coordinate of the slices changes fastest.

    Raises
    ------
    TmaUnsupportedError
        If the result would have more than 2^27 coordinates (number of tiles times rank), or if
        `plan` refuses the map.
    """
    plan(args)
    return _tiled(args) if args.kind == "tiled" else _column_starts(args)


def _tiled(args: EncodeArguments) -> IntArray:
    box = list(args.box_dim)
    if args.interleave:
        box[-2] = 1
    steps = [range(0, dim, b) for dim, b in zip(args.global_dim, box, strict=True)]
    return _listed(_combined(steps[::-1], args.rank))


def _column_starts(args: EncodeArguments) -> IntArray:
    pixels = plan(args).lines
    box = im2col_box(args)
    fixed = [d for d in spatial_dims(args) if d not in box]
    images, estr, dims = args.rank - 1, args.element_strides, args.global_dim
    # `passes` has the number of pixels of the bounding box along each dimension. The pixels in the
    # bounding boxes of all images are numbered from 0. `walk` has the number of each column's first
    # pixel.
    passes = {d: max(0, (last - first) // estr[d] + 1) for d, (first, last) in box.items()}
    per_image = math.prod(passes.values())
    walk = range(0, per_image * -(-dims[images] // estr[images]), pixels)

    if args.interleave:
        inner_dim, inner = args.rank - 2, range(dims[args.rank - 2])
    else:
        inner_dim, inner = 0, range(0, dims[0], args.channels_per_pixel)
    steps = [*(range(0, dims[d], estr[d]) for d in reversed(fixed)), walk, inner]
    # Below, the number of a pixel is converted to one position per dimension. W changes fastest, as
    # in `_im2col_positions`.
    *outer, pixel, inner_places = _combined(steps, args.rank)
    columns = {inner_dim: inner_places, **dict(zip(reversed(fixed), outer, strict=True))}
    for d in box:
        pixel, place = np.divmod(pixel, passes[d])
        columns[d] = box[d][0] + place * estr[d]
    columns[images] = pixel * estr[images]
    return _listed([columns[d] for d in reversed(range(args.rank))])


def _combined(steps: Sequence[range], rank: int) -> Sequence[IntArray]:
    """Return one array per range. The arrays broadcast to all combinations of their values."""
    # len() would raise for a range that is longer than sys.maxsize.
    total = math.prod(max(0, -(-(r.stop - r.start) // r.step)) for r in steps)
    if total * rank > MAX_COORDS:
        raise TmaUnsupportedError(
            f"{total} tiles cover this tensor, and tile_coords lists at most "
            f"{MAX_COORDS // rank} tiles of rank {rank}. Compute the coordinates in parts, box by "
            "box along each dimension, and pass each part to load_tiles"
        )
    # If a range is empty, there are no combinations. Then replace all ranges by empty ranges,
    # because another range may be too long for np.arange.
    if not total:
        steps = [range(0)] * len(steps)
    places = (np.arange(r.start, r.stop, r.step, dtype=np.int64) for r in steps)
    return np.meshgrid(*places, indexing="ij", sparse=True)


def _listed(columns: Sequence[IntArray]) -> IntArray:
    """Return an array with one row per combination of the broadcast columns, in row-major order."""
    return np.stack(np.broadcast_arrays(*columns), axis=-1).reshape(-1, len(columns))
