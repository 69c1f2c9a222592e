"""Addresses of lines and boxes in global memory, their bounds, and the tiles of a tensor."""

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

#: Stores and reductions write whole chunks of global memory [measured], bytes.
CHUNK_BYTES = 16


class LinePosition(NamedTuple):
    """The positions of the lines of tiles along one driver dimension.

    `positions` broadcasts to (tiles, *line_shape); `extent` and `stride_bytes` are the tensor's.
    """

    dimension: int
    positions: IntArray
    extent: int
    stride_bytes: int


def line_positions(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int] = ()
) -> list[LinePosition]:
    """Return the positions of all lines of all tiles, per dimension that lines step through.

    Parameters
    ----------
    tile_plan : TilePlan
    coords : int64 array (tiles, rank)
        Coordinates in driver order, innermost first.
    offsets : sequence of int
        Im2col offsets, W first; if empty, every offset is 0.
    """
    args = tile_plan.arguments
    strides = (tile_plan.unit_bytes, *args.global_strides)
    if args.kind == "tiled":
        positions = _tiled_positions(tile_plan, coords)
    else:
        positions = _im2col_positions(tile_plan, coords, offsets)
    return [LinePosition(d, p, args.global_dim[d], strides[d]) for d, p in positions.items()]


def _tiled_positions(tile_plan: TilePlan, coords: IntArray) -> dict[int, IntArray]:
    """Return ``p[d] = coord[d] + j[d] * s[d]``; j[d] varies along an axis of its own."""
    # Axis 0 is the tile; the other axes are those of line_shape, outermost dimension first.
    axes = (-1, *(1 for _ in tile_plan.line_shape))
    return {d: coords[:, d].reshape(axes) + taken for d, taken in _taken(tile_plan)}


@lru_cache(maxsize=256)
def _taken(tile_plan: TilePlan) -> list[tuple[int, IntArray]]:
    """Return ``j[d] * s[d]`` of each dimension that lines step through, shaped to broadcast."""
    counts, steps, dims = tile_plan.counts, tile_plan.steps, tile_plan.line_dims
    taken = (np.arange(0, counts[d] * steps[d], steps[d]) for d in dims)
    return [*zip(dims, np.meshgrid(*taken, indexing="ij", sparse=True), strict=True)]


def _im2col_positions(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int]
) -> dict[int, IntArray]:
    """Return the pixels of each column, walked from its start: W fastest, then H, D and image.

    Along one dimension the walk visits start, start + step, ... up to the last pixel of the box
    (`head` pixels), then whole passes first, first + step, ... (`full` pixels). After each pass the
    next dimension makes one step.
    """
    args = tile_plan.arguments
    # `turn` counts the steps of the current dimension: at first one per line of the column.
    turn: IntArray = np.arange(tile_plan.lines)[None, :]
    positions = {d: coords[:, d, None] for d in tile_plan.line_dims}
    for d, (first, last) in im2col_box(args).items():
        step, start = args.element_strides[d], positions[d]
        head, full = (last - start) // step + 1, (last - first) // step + 1
        passes, place = np.divmod(turn - head, full)
        # A turn within the head has negative `passes`, so the next dimension makes no step.
        in_head = turn < head
        positions[d] = np.where(in_head, start + turn * step, first + place * step)
        turn = np.maximum(passes + 1, 0)
    images = args.rank - 1
    # The image is the outermost dimension: it has no bounding box, and steps without end.
    positions[images] = positions[images] + turn * args.element_strides[images]
    # Offsets shift the pixels after the walk: the bounding box does not limit them.
    for d, offset in zip(spatial_dims(args), offsets, strict=False):
        positions[d] = positions[d] + offset
    return positions


def line_origins(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int] = ()
) -> tuple[IntArray, BoolArray]:
    """Return where each line starts in global memory, and whether it is in bounds.

    Returns
    -------
    origins : int64 array (tiles, lines)
        Bytes from the tensor's address to dimension 0's element 0 of the line, modulo 2^64, as the
        engine's addresses are [measured: ragged maps rely on it]. Meaningful where in bounds only.
    inside : bool array (tiles, lines)
        Whether the line is in bounds in every dimension that lines step through.
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
    """Return which of `count` positions start, start + step, ... lie in 0..dim - 1: [first, last).

    >>> in_bounds(-3, 2, 4, 3)  # of the positions -3, -1, 1, 3 only the third is in 0..2
    (2, 3)
    """
    # -(n // step) is ceil(-n / step): the first index at which the position is 0 or more.
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
        `start`: global bytes from a line's origin to the line's byte 0. [first, last): the bytes of
        the line that are in bounds; all bytes of an interleaved unit.
    """
    args, line_bytes = tile_plan.arguments, tile_plan.line_bytes
    if tile_plan.unit_bytes:
        # A zero of the same kind as `inner`: an int, or an array of one zero per tile.
        zero = inner * 0
        return zero, zero, zero + line_bytes
    bits = tile_plan.row.element_bits
    start = inner * bits // 8
    first, last = in_bounds(start, 1, line_bytes, args.global_dim[0] * bits // 8)
    return start, first, last


def store_window(tile_plan: TilePlan, start: IntArray, last: IntArray) -> IntArray:
    """Return the end of the window that a store writes: up to the next 16-byte chunk [measured]."""
    end: IntArray = -(-(start + last) // CHUNK_BYTES) * CHUNK_BYTES - start
    return end.clip(max=tile_plan.line_bytes)


# --- The part of a tiled map's box that is in bounds, as a regular grid of lines -----------------


class Cut(NamedTuple):
    """The part of a box that is in bounds: some of its lines, and the same bytes of each line."""

    lines: tuple[slice, ...]  # along each axis of line_shape
    shape: tuple[int, ...]  # number of lines along each axis
    strides: tuple[int, ...]  # bytes from a line to the next one, along each axis
    first: int  # bytes [first, last) of each line
    last: int
    start: int  # bytes from the start of the box to the first byte in bounds
    reach: int  # bytes from the first line's start to the last one's

    @property
    def size_bytes(self) -> int:
        """The number of bytes in bounds."""
        return math.prod(self.shape) * (self.last - self.first)


def box_starts(tile_plan: TilePlan, coords: IntArray) -> IntArray:
    """Return the starts of boxes, in bytes from the tensor's address, (tiles,).

    The result is meaningful only for a box of which at least a part is in bounds.
    """
    # In bits, because elements of packed types are smaller than a byte.
    return coords @ _lattice(tile_plan).strides_bits >> 3


def wholly_in_bounds(tile_plan: TilePlan, coords: IntArray) -> BoolArray:
    """Return which boxes are wholly in bounds, (tiles,)."""
    wholly: BoolArray = np.all((coords >= 0) & (coords <= _lattice(tile_plan).limits), axis=1)
    return wholly


def cut_box(tile_plan: TilePlan, coords: Sequence[int]) -> Cut:
    """Return the part of one box that is in bounds; `coords` in driver order.

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
    assert tile_plan.lattice is not None  # every caller has tested it
    return tile_plan.lattice


# --- The tiles that cover a tensor --------------------------------------------------------------

#: Largest number of coordinates that `tile_coords` lists (1 GiB).
MAX_COORDS = 1 << 27


def tile_coords(args: EncodeArguments) -> IntArray:
    """Return the coordinates of the tiles that cover the tensor.

    The tiles of a tiled map are one box apart in each dimension; those of an interleaved map, one
    slice. The columns of an im2col map cover every pixel of the bounding boxes of all images: each
    column starts `pixels_per_column` pixels after the one before, once per block of channels (or
    per slice).

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
    return _listed(_combined(steps[::-1], args.rank))


def _column_starts(args: EncodeArguments) -> IntArray:
    pixels = plan(args).lines
    box = im2col_box(args)
    fixed = [d for d in spatial_dims(args) if d not in box]
    images, estr, dims = args.rank - 1, args.element_strides, args.global_dim
    # `passes`: pixels of the bounding box per walked dimension; `walk`: numbers of start pixels.
    passes = {d: max(0, (last - first) // estr[d] + 1) for d, (first, last) in box.items()}
    per_image = math.prod(passes.values())
    walk = range(0, per_image * -(-dims[images] // estr[images]), pixels)

    if args.interleave:
        inner_dim, inner = args.rank - 2, range(dims[args.rank - 2])
    else:
        inner_dim, inner = 0, range(0, dims[0], args.channels_per_pixel)
    steps = [*(range(0, dims[d], estr[d]) for d in reversed(fixed)), walk, inner]
    # A number of `walk` is split into positions as `_im2col_positions` counts them, W fastest.
    *outer, pixel, inner_places = _combined(steps, args.rank)
    columns = {inner_dim: inner_places, **dict(zip(reversed(fixed), outer, strict=True))}
    for d in box:
        pixel, place = np.divmod(pixel, passes[d])
        columns[d] = box[d][0] + place * estr[d]
    columns[images] = pixel * estr[images]
    return _listed([columns[d] for d in reversed(range(args.rank))])


def _combined(steps: Sequence[range], rank: int) -> Sequence[IntArray]:
    """Return ranges as arrays that broadcast to all combinations, the last changing fastest."""
    # Not len(), which fails for ranges longer than sys.maxsize.
    total = math.prod(max(0, -(-(r.stop - r.start) // r.step)) for r in steps)
    if total * rank > MAX_COORDS:
        raise TmaUnsupportedError(
            f"{total} tiles cover this tensor, and tile_coords lists at most "
            f"{MAX_COORDS // rank} tiles of rank {rank}. Compute the coordinates in parts, box by "
            "box along each dimension, and pass each part to load_tiles"
        )
    if not total:  # one range may be empty while another is too long to list
        steps = [range(0)] * len(steps)
    places = (np.arange(r.start, r.stop, r.step, dtype=np.int64) for r in steps)
    return np.meshgrid(*places, indexing="ij", sparse=True)


def _listed(columns: Sequence[IntArray]) -> IntArray:
    """Return all combinations of columns that broadcast, one per row, in row-major order."""
    return np.stack(np.broadcast_arrays(*columns), axis=-1).reshape(-1, len(columns))
