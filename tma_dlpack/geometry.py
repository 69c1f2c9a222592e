"""Which element goes where: every formula of a TMA copy, once, as pure functions.

Everything reads `EncodeArguments` (driver order: index 0 is innermost). A copy moves a tile of
*lines*. A line is what is contiguous on both sides: the box's row along dimension 0, one pixel's
channels (im2col), or one unit of 16 or 32 bytes (interleaved). Line `i` starts `i * pitch` bytes
after the destination, before the swizzle.

Source: measured on an H200 (compute capability 9.0, driver 580.159.04, 2026-11-20). Packed types,
atom swizzles and im2col-wide are documented, not measured (PTX ISA, CUDA driver API).

>>> from tma_dlpack.enums import TensorMapDataType, TmaSwizzle
>>> args = EncodeArguments(
...     "tiled", TensorMapDataType.BFLOAT16, (100, 30), (256,), (1, 1), (64, 8),
...     swizzle=TmaSwizzle.bytes128,
... )
>>> tx_bytes(args), smem_bytes(args), smem_alignment(args)
(1024, 1024, 1024)
>>> tile_coords(args).tolist()
[[0, 0], [0, 64], [8, 0], [8, 64], [16, 0], [16, 64], [24, 0], [24, 64]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tma_dlpack.arguments import EncodeArguments
from tma_dlpack.enums import TensorMapIm2ColWideMode, TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.errors import TmaUnsupportedError

__all__ = [
    "SMEM_ALIGNMENT",
    "SWIZZLES",
    "TilePlan",
    "element_positions",
    "im2col_box",
    "inner_window",
    "line_origins",
    "line_positions",
    "plan",
    "smem_alignment",
    "smem_bytes",
    "swizzle_offset",
    "swizzle_order",
    "tile_coords",
    "tx_bytes",
]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Address = TypeVar("Address", int, npt.NDArray[Any])

#: What the engine asks of a shared-memory address [measured: 16, 32 or 64 fault], bytes.
SMEM_ALIGNMENT = 128
#: Stores and reductions write whole chunks of global memory [measured], bytes.
CHUNK_BYTES = 16
#: Packed values come in groups of so many.
PACKED_GROUP = 16
#: Pixels of a column in mode im2col::w::128 (PTX ISA).
W128_PIXELS = 128
#: A distance beyond any address (those have 57 bits), small enough that five still fit int64.
FAR = 1 << 59
#: More tiles than this are refused rather than listed.
MAX_TILES = 1 << 26


class Swizzle(NamedTuple):
    """How a swizzle changes a shared address: ``a ^ ((a >> right & mask) << left)`` per term."""

    span: int  # bytes within which chunks move; also the least pitch of a row
    repeat: int  # bytes after which the pattern starts again
    granule: int  # bytes that always stay together
    terms: tuple[tuple[int, int, int], ...]  # right, mask, left


#: [measured] for the first four; 128B_ATOM_32B and its flip are published for sm_120, and
#: 128B_ATOM_64B is documented, not measured (PTX ISA, swizzling modes).
SWIZZLES: dict[TmaSwizzle, Swizzle] = {
    TmaSwizzle.none: Swizzle(1, SMEM_ALIGNMENT, 16, ()),
    TmaSwizzle.bytes32: Swizzle(32, 256, 16, ((7, 1, 4),)),
    TmaSwizzle.bytes64: Swizzle(64, 512, 16, ((7, 3, 4),)),
    TmaSwizzle.bytes128: Swizzle(128, 1024, 16, ((7, 7, 4),)),
    TmaSwizzle.bytes128_atom_32B: Swizzle(128, 512, 32, ((7, 3, 5),)),
    TmaSwizzle.bytes128_atom_32B_flip_8B: Swizzle(128, 512, 8, ((7, 3, 5), (7, 1, 3))),
    TmaSwizzle.bytes128_atom_64B: Swizzle(128, 256, 64, ((7, 1, 6),)),
}


def swizzle_offset(swizzle: TmaSwizzle, address: Address) -> Address:
    """Give the shared address where the byte of an unswizzled shared address lies.

    `address` is absolute: what counts is the address in the CTA's shared memory, not the distance
    from the tile. The function is its own inverse.

    >>> hex(swizzle_offset(TmaSwizzle.bytes128, 0x480))  # row 9 mod 8 = 1: chunk 0 moves to 1
    '0x490'
    """
    swizzled = address
    for right, mask, left in SWIZZLES[swizzle].terms:
        swizzled = swizzled ^ ((address >> right & mask) << left)
    return swizzled


@dataclass(frozen=True, slots=True)
class TilePlan:
    """What a map's copies have in common; made once per map by `plan`.

    Attributes
    ----------
    counts : tuple of int
        Elements taken along each walked dimension, innermost first: ``n[d]`` of a tiled map;
        (channels, pixels) of an im2col map.
    line_shape : tuple of int
        The lines of a tile, row-major; their product is `lines`.
    line_bytes : int
        Bytes of a line in global memory.
    smem_line_bytes : int
        Bytes of a line in shared memory; more than `line_bytes` where packed types leave gaps.
    pitch : int
        Bytes from one line to the next in shared memory.
    tile_shape : tuple of int
        Shape of the logical tile, row-major, in elements. An interleaved map has one more axis
        than dimensions: the elements of a unit.
    smem_bytes, tx_bytes : int
        The footprint in shared memory, padding included; what the mbarrier counts.
    """

    arguments: EncodeArguments
    counts: tuple[int, ...]
    line_shape: tuple[int, ...]
    line_bytes: int
    smem_line_bytes: int
    pitch: int
    tile_shape: tuple[int, ...]
    smem_bytes: int
    tx_bytes: int

    @property
    def lines(self) -> int:
        """Number of lines of a tile."""
        return math.prod(self.line_shape)

    @property
    def swizzle(self) -> Swizzle:
        """The row of the map's swizzle."""
        return SWIZZLES[self.arguments.swizzle]


def interleave_unit(args: EncodeArguments) -> int:
    """Give the bytes that an interleaved copy moves per position; 0 when not interleaved."""
    return {
        TmaInterleaveLayout.none: 0,
        TmaInterleaveLayout.bytes16: 16,
        TmaInterleaveLayout.bytes32: 32,
    }[args.interleave]


def spatial_dims(args: EncodeArguments) -> range:
    """Give the driver dimensions W, [H, [D]] of an im2col map; interleaved ones start at 0."""
    first = 0 if args.interleave else 1
    return range(first, first + args.rank - 2)


def walked_dims(args: EncodeArguments) -> range:
    """Give the spatial dimensions that a column walks; im2col-wide holds H and D fixed."""
    dims = spatial_dims(args)
    return dims[:1] if args.kind == "im2col_wide" else dims


def box_counts(args: EncodeArguments) -> tuple[int, ...]:
    """Give n[d], the positions that a tiled box takes along each dimension.

    ``n[d] = ceil(box[d] / element_stride[d])``, but n[0] = box[0] when not interleaved, and one
    slice when interleaved.
    """
    counts = [-(-box // step) for box, step in zip(args.box_dim, steps(args), strict=True)]
    if args.interleave:
        counts[-2] = 1
    return tuple(counts)


def steps(args: EncodeArguments) -> tuple[int, ...]:
    """Give s[d], the element strides that count: dimension 0's only when interleaved."""
    return args.element_strides if args.interleave else (1, *args.element_strides[1:])


@lru_cache(maxsize=1024)
def plan(args: EncodeArguments) -> TilePlan:
    """Give the plan of a map's copies, computed once per map and kept (the last 1024)."""
    row, unit = args.type_row, interleave_unit(args)
    if args.kind == "tiled":
        counts = box_counts(args)
        line_shape = counts[::-1] if unit else counts[:0:-1]
    else:
        pixels = args.pixels_per_column
        if args.kind == "im2col_wide" and args.mode == TensorMapIm2ColWideMode.w128:
            pixels = W128_PIXELS
        counts = (args.channels_per_pixel, pixels)
        line_shape = (pixels,)

    line_bytes = unit or counts[0] * row.element_bits // 8
    group_bytes = PACKED_GROUP * row.element_bits // 8
    smem_line_bytes = line_bytes * (row.smem_chunk_bytes or group_bytes) // group_bytes
    span = SWIZZLES[args.swizzle].span
    pitch = smem_line_bytes if unit else max(smem_line_bytes, span)
    lines = math.prod(line_shape)
    return TilePlan(
        arguments=args,
        counts=counts,
        line_shape=line_shape,
        line_bytes=line_bytes,
        smem_line_bytes=smem_line_bytes,
        pitch=pitch,
        tile_shape=(*line_shape, line_bytes * 8 // row.element_bits),
        # Dense interleaved lines may end inside a span, and the swizzle then reaches its end.
        smem_bytes=-(-lines * pitch // span) * span,
        tx_bytes=lines * smem_line_bytes,
    )


def tx_bytes(args: EncodeArguments) -> int:
    """Give the bytes that the mbarrier counts: the whole box, out-of-bounds elements included.

    Row and swizzle padding is not counted [measured]. That the gaps of the ALIGN16B packed types
    are counted is documented, not measured.
    """
    return plan(args).tx_bytes


def smem_bytes(args: EncodeArguments) -> int:
    """Give the shared memory that a tile takes, padding of the swizzle included, bytes."""
    return plan(args).smem_bytes


def smem_alignment(args: EncodeArguments) -> int:
    """Give the alignment to give a tile in shared memory, bytes.

    This is the repeat of the swizzle (256, 512, 1024 for 32B, 64B, 128B; 128 without), so that
    the pattern starts at the tile's first row. The engine itself demands 128 with every swizzle,
    and swizzles by the absolute address [measured].
    """
    return SWIZZLES[args.swizzle].repeat


def swizzle_order(tile_plan: TilePlan, smem_offset: int) -> IntArray:
    """Give, for each swizzle granule of the tile in shared memory, the one that it holds.

    As an involution it is also the place of each unswizzled granule. Granules are
    ``tile_plan.swizzle.granule`` bytes and count from `smem_offset`; the array is int64 of length
    ``smem_bytes / granule``.
    """
    return _swizzle_order(
        tile_plan.arguments.swizzle, smem_offset % tile_plan.swizzle.repeat, tile_plan.smem_bytes
    )


@lru_cache(maxsize=64)
def _swizzle_order(swizzle: TmaSwizzle, start: int, footprint: int) -> IntArray:
    granule = SWIZZLES[swizzle].granule
    addresses = np.arange(start, start + footprint, granule, dtype=np.int64)
    order = (swizzle_offset(swizzle, addresses) - start) // granule
    order.flags.writeable = False
    return order


class LinePosition(NamedTuple):
    """Where the lines of tiles lie along one driver dimension.

    `positions` broadcasts to (tiles, *line_shape); `dim` and `stride_bytes` are the tensor's.
    """

    dimension: int
    positions: IntArray
    dim: int
    stride_bytes: int


def line_positions(
    args: EncodeArguments, coords: IntArray, offsets: Sequence[int] = ()
) -> list[LinePosition]:
    """Give the position of each line of each tile along every dimension that lines step through.

    Parameters
    ----------
    args : EncodeArguments
    coords : int64 array (tiles, rank)
        Coordinates in driver order, innermost first.
    offsets : sequence of int
        Im2col offsets, W first; none means 0.
    """
    strides = (interleave_unit(args), *args.global_strides)
    if args.kind == "tiled":
        positions = _tiled_positions(args, coords)
    else:
        positions = _im2col_positions(args, coords, offsets)
    return [LinePosition(d, p, args.global_dim[d], strides[d]) for d, p in positions.items()]


def _tiled_positions(args: EncodeArguments, coords: IntArray) -> dict[int, IntArray]:
    """``p[d] = coord[d] + j[d] * s[d]``, j along its own axis; dimension 1 varies fastest."""
    first = 0 if args.interleave else 1
    positions = {}
    for d, (count, step) in enumerate(zip(box_counts(args), steps(args), strict=True)):
        if d >= first:
            axes = (1,) * (args.rank - 1 - d) + (count,) + (1,) * (d - first)
            taken = np.arange(0, count * step, step, dtype=np.int64).reshape(axes)
            positions[d] = coords[:, d].reshape((-1,) + (1,) * len(axes)) + taken
    return positions


def im2col_box(args: EncodeArguments) -> list[tuple[int, int]]:
    """Give the inclusive bounding box (first, last) of each walked dimension, W first."""
    return [
        (lower, args.global_dim[d] - 1 + upper)
        for d, lower, upper in zip(
            walked_dims(args), args.pixel_box_lower_corner, args.pixel_box_upper_corner, strict=True
        )
    ]


def _im2col_positions(
    args: EncodeArguments, coords: IntArray, offsets: Sequence[int]
) -> dict[int, IntArray]:
    """Walk each column from its start: W fastest, back to the box's first on overflow, then n.

    Pixel i of a dimension takes the start, start + step, ... up to the last (`head` of them), then
    whole passes first, first + step, ... of `full` pixels; each wrap steps the next dimension.
    """
    pixels = plan(args).counts[1]
    turn: IntArray = np.arange(pixels, dtype=np.int64)[None, :]
    positions = {d: coords[:, d, None] for d in range(args.rank)}
    if not args.interleave:
        del positions[0]
    for d, (first, last) in zip(walked_dims(args), im2col_box(args), strict=True):
        step, start = args.element_strides[d], positions[d]
        head, full = (last - start) // step + 1, (last - first) // step + 1
        passes, place = np.divmod(turn - head, full)
        in_head = turn < head
        positions[d] = np.where(in_head, start + turn * step, first + place * step)
        turn = np.where(in_head, 0, passes + 1)
    images = args.rank - 1
    positions[images] = positions[images] + turn * args.element_strides[images]
    for d, offset in zip(spatial_dims(args), offsets, strict=False):
        positions[d] = positions[d] + offset
    return positions


def line_origins(
    args: EncodeArguments, coords: IntArray, offsets: Sequence[int] = ()
) -> tuple[IntArray, BoolArray]:
    """Give where each line starts in global memory, and whether it is in bounds.

    Returns
    -------
    origins : int64 array (tiles, lines)
        Bytes from the tensor's address to dimension 0's element 0 of the line. Meaningful where
        in bounds only; anything from `FAR` on stands for "beyond every address".
    inside : bool array (tiles, lines)
        Whether the line is in bounds in every dimension that lines step through.
    """
    shape = (len(coords), *plan(args).line_shape)
    origins: IntArray = np.zeros((1,) * len(shape), np.int64)
    inside: BoolArray = np.ones((1,) * len(shape), np.bool_)
    for line in line_positions(args, coords, offsets):
        p = line.positions
        in_dim = (p >= 0) & (p < line.dim)
        inside = inside & in_dim
        if line.stride_bytes:
            # Strides have 40 bits and positions 32: what would overflow becomes FAR.
            p = np.minimum(p, FAR // line.stride_bytes + 1)
            origins = origins + p * in_dim * line.stride_bytes
    flat = (len(coords), -1)
    return (
        np.broadcast_to(origins, shape).reshape(flat),
        np.broadcast_to(inside, shape).reshape(flat),
    )


def inner_window(args: EncodeArguments, coords: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Give which bytes of a line are in bounds along dimension 0.

    Returns
    -------
    start, first, last : int64 arrays (tiles,)
        Global bytes from a line's origin to the line's byte 0; the window [first, last) of line
        bytes that are in bounds. An interleaved unit is in bounds as a whole.
    """
    line_bytes = plan(args).line_bytes
    if args.interleave:
        zeros = np.zeros(len(coords), np.int64)
        return zeros, zeros, zeros + line_bytes
    bits = args.type_row.element_bits
    start = coords[:, 0] * bits // 8
    row_bytes = args.global_dim[0] * bits // 8
    first = np.minimum(np.maximum(-start, 0), line_bytes)
    last = np.minimum(np.maximum(row_bytes - start, first), line_bytes)
    return start, first, last


def store_window(args: EncodeArguments, start: IntArray, last: IntArray) -> IntArray:
    """Give the end of the window that a store writes: up to the next 16-byte chunk [measured]."""
    end: IntArray = -(-(start + last) // CHUNK_BYTES) * CHUNK_BYTES - start
    return end.clip(max=plan(args).line_bytes)


def element_positions(
    args: EncodeArguments, coords: Sequence[int], offsets: Sequence[int] = ()
) -> IntArray:
    """Give the tensor position of every element of one tile.

    Returns
    -------
    int64 array (*tile_shape, rank)
        Positions in driver order; out-of-bounds ones included. An interleaved tile gives each
        element of a unit the position of the unit.

    Examples
    --------
    >>> from tma_dlpack.enums import TensorMapDataType
    >>> args = EncodeArguments("tiled", TensorMapDataType.INT32, (8, 8), (32,), (1, 2), (4, 3))
    >>> element_positions(args, (4, -1))[1, 0].tolist()
    [4, 1]
    """
    starts = np.array([coords], np.int64)
    tile_plan = plan(args)
    out = np.empty((*tile_plan.tile_shape, args.rank), np.int64)
    if not args.interleave:
        out[..., 0] = coords[0] + np.arange(tile_plan.tile_shape[-1])
    for line in line_positions(args, starts, offsets):
        out[..., line.dimension] = np.broadcast_to(line.positions[0], tile_plan.line_shape)[
            ..., None
        ]
    return out


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
        For more than 67,108,864 tiles, which no list should hold.
    """
    if args.kind == "tiled":
        box = list(args.box_dim)
        if args.interleave:
            box[-2] = 1
        return _grid([range(0, dim, b) for dim, b in zip(args.global_dim, box, strict=True)])[
            :, ::-1
        ]
    return _column_starts(args)[:, ::-1]


def _grid(ranges: Sequence[range]) -> IntArray:
    """Give all combinations, the first range changing fastest, as (n, len(ranges))."""
    counts = [len(r) for r in ranges]
    total = math.prod(counts)
    if total > MAX_TILES:
        raise TmaUnsupportedError(
            f"{total} tiles cover this tensor; a list of at most {MAX_TILES} is given. "
            "Compute the coordinates you need: box by box along each dimension"
        )
    number = np.arange(total, dtype=np.int64)
    columns = []
    for r, count in zip(ranges, counts, strict=True):
        number, place = np.divmod(number, count)
        columns.append(r.start + place * r.step)
    return np.stack(columns, axis=1)


def _column_starts(args: EncodeArguments) -> IntArray:
    pixels = plan(args).counts[1]
    walked = list(walked_dims(args))
    fixed = [d for d in spatial_dims(args) if d not in walked]
    images, estr, dims = args.rank - 1, args.element_strides, args.global_dim
    box = dict(zip(walked, im2col_box(args), strict=True))
    passes = {d: (last - first) // estr[d] + 1 for d, (first, last) in box.items()}
    per_image = math.prod(passes.values())
    walk = range(0, per_image * -(-dims[images] // estr[images]), pixels)

    if args.interleave:
        inner_dim, inner = args.rank - 2, range(dims[args.rank - 2])
    else:
        inner_dim, inner = 0, range(0, dims[0], args.channels_per_pixel)
    grid = _grid([inner, walk, *(range(0, dims[d], estr[d]) for d in fixed)])

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
