"""The plan of a map's copies, computed once per map: counts, lines, pitch, footprint, swizzle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.dtypes import DataTypeRow
from tma_dlpack.tables.enums import TensorMapIm2ColWideMode, TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.targets import MIN_RANK_INTERLEAVED, PACKED_GROUP

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# --- Swizzles -----------------------------------------------------------------------------------

Address = TypeVar("Address", int, npt.NDArray[Any])

#: Alignment of a tile in shared memory, bytes [measured: with less, copies fault].
SMEM_ALIGNMENT = 128
#: Shared memory has 32 banks of 4 bytes; a line of 128 bytes spans all of them.
BANK_BYTES, BANKS = 4, 32
LINE_BYTES = BANK_BYTES * BANKS


class Swizzle(NamedTuple):
    """How a swizzle changes a shared address: ``a ^ ((a >> right & mask) << left)`` per term."""

    span_bytes: int  # chunks move only within a span; also the smallest pitch of a row
    repeat_bytes: int  # period of the pattern
    granule_bytes: int  # bytes that always stay together
    terms: tuple[tuple[int, int, int], ...]  # (right, mask, left) of the formula above


#: Source: the first four are measured; 128B_ATOM_32B and 128B_ATOM_32B_FLIP_8B are published for
#: sm_120; 128B_ATOM_64B is documented, not measured (PTX ISA, swizzling modes).
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
    """Return the swizzled address of a byte in shared memory.

    `address` is absolute, in the shared memory of the thread block, not relative to the tile. The
    function is its own inverse.

    >>> hex(swizzle_offset(TmaSwizzle.bytes128, 0x480))  # row 9 mod 8 = 1: chunk 0 moves to 1
    '0x490'
    """
    swizzled = address
    for right, mask, left in SWIZZLES[swizzle].terms:
        swizzled = swizzled ^ ((address >> right & mask) << left)
    return swizzled


# --- Plans --------------------------------------------------------------------------------------

#: Size of a tensor, bytes, from which on boxes are copied line by line, with addresses modulo 2^64
#: as the engine computes them.
MAX_LATTICE_BYTES = 1 << 58

#: Pixels of a column in mode im2col::w::128 (PTX ISA).
W128_PIXELS = 128

# Bytes per position of an interleaved layout; 0 where elements are not interleaved.
_UNIT_BYTES = {
    TmaInterleaveLayout.none: 0,
    TmaInterleaveLayout.bytes16: 16,
    TmaInterleaveLayout.bytes32: 32,
}


class Lattice(NamedTuple):
    """The regular grid of a tiled map's elements in global memory, dimensions in driver order."""

    limits: IntArray  # (rank,) the largest coordinates of boxes that are wholly in bounds
    strides_bits: IntArray  # (rank,) bits from an element to the next one along each dimension
    line_strides: tuple[int, ...]  # bytes from line to line, along each axis of line_shape


@dataclass(frozen=True, slots=True, eq=False)
class TilePlan:
    """The data that all copies of a map share; `plan` makes one per map. Plans compare by identity.

    Attributes
    ----------
    arguments : EncodeArguments
    row : DataTypeRow
        The table row of the map's data type.
    swizzle : Swizzle
    unit_bytes : int
        Bytes that an interleaved copy moves per position; 0 when not interleaved.
    counts, steps : tuple of int
        For a tiled map, per dimension: n[d], the number of positions of a box, and s[d], the
        distance between them. For an im2col map `counts` is (channels, pixels), `steps` is empty.
    line_dims : range
        The driver dimensions that lines step through, outermost first.
    line_shape : tuple of int
        The lines of a tile, row-major.
    lines : int
        Number of lines, the product of `line_shape`.
    line_bytes : int
        Bytes of a line in global memory.
    smem_line_bytes : int
        Bytes of a line in shared memory; more than `line_bytes` where packed types leave gaps.
    pitch_bytes : int
        Bytes from one line to the next in shared memory.
    tile_shape : tuple of int
        Shape of the logical tile, row-major, in elements. An interleaved map has one more axis
        than dimensions: the elements of a unit.
    smem_bytes : int
        The footprint in shared memory, padding of the swizzle included.
    tx_bytes : int
        Bytes that the mbarrier counts: the payload, without gaps and padding.
    lattice : Lattice or None
        None for im2col maps and for tensors of 2^58 bytes or more.
    """

    arguments: EncodeArguments
    row: DataTypeRow
    swizzle: Swizzle
    unit_bytes: int
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    line_dims: range
    line_shape: tuple[int, ...]
    lines: int
    line_bytes: int
    smem_line_bytes: int
    pitch_bytes: int
    tile_shape: tuple[int, ...]
    smem_bytes: int
    tx_bytes: int
    lattice: Lattice | None


@lru_cache(maxsize=1024)
def plan(args: EncodeArguments) -> TilePlan:
    """Return the plan of a map's copies, computed once per map and kept (the last 1024).

    Raises
    ------
    TmaUnsupportedError
        For an interleaved map of rank 1 or 2, such as ``tensormap.replace`` can make.
    """
    if args.interleave and args.rank < MIN_RANK_INTERLEAVED:
        raise TmaUnsupportedError(
            f"an interleaved map of rank {args.rank} cannot be copied: interleaved layouts have "
            f"{MIN_RANK_INTERLEAVED} to 5 dimensions (PTX ISA); change its rank or its "
            "interleave_layout with replace()"
        )
    row, unit_bytes = args.type_row, _UNIT_BYTES[args.interleave]
    steps: tuple[int, ...] = ()
    if args.kind == "tiled":
        counts, steps = _box_counts(args)
        # A line is dimension 0 of the box; lines of an interleaved map step through it too.
        line_shape = counts[::-1] if unit_bytes else counts[:0:-1]
    else:
        wide_128 = args.kind == "im2col_wide" and args.mode == TensorMapIm2ColWideMode.w128
        counts = (args.channels_per_pixel, W128_PIXELS if wide_128 else args.pixels_per_column)
        line_shape = counts[1:]

    dims = range(args.rank)
    line_dims = dims[::-1] if unit_bytes else dims[:0:-1]
    lines = math.prod(line_shape)
    line_bytes = unit_bytes or counts[0] * row.element_bits // 8
    # The ALIGN16B packed types take more bytes in shared memory than in global memory, per group.
    group_bytes = PACKED_GROUP * row.element_bits // 8
    smem_line_bytes = line_bytes * (row.smem_chunk_bytes or group_bytes) // group_bytes
    swizzle = SWIZZLES[args.swizzle]
    span_bytes = swizzle.span_bytes
    pitch_bytes = smem_line_bytes if unit_bytes else max(smem_line_bytes, span_bytes)
    return TilePlan(
        arguments=args,
        row=row,
        swizzle=swizzle,
        unit_bytes=unit_bytes,
        counts=counts,
        steps=steps,
        line_dims=line_dims,
        line_shape=line_shape,
        lines=lines,
        line_bytes=line_bytes,
        smem_line_bytes=smem_line_bytes,
        pitch_bytes=pitch_bytes,
        tile_shape=(*line_shape, line_bytes * 8 // row.element_bits),
        # Dense interleaved lines may end inside a span; the swizzle reaches the span's end.
        smem_bytes=-(-lines * pitch_bytes // span_bytes) * span_bytes,
        tx_bytes=lines * line_bytes,
        lattice=_lattice(args, unit_bytes, counts, steps, line_dims),
    )


def _box_counts(args: EncodeArguments) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return n[d] and s[d]: ``n[d] = ceil(box[d] / s[d])``.

    s[0] counts only when interleaved; an interleaved box takes one slice (dimension rank - 2).
    """
    steps = args.element_strides if args.interleave else (1, *args.element_strides[1:])
    counts = [-(-box // step) for box, step in zip(args.box_dim, steps, strict=True)]
    if args.interleave:
        counts[-2] = 1
    return tuple(counts), steps


def _lattice(
    args: EncodeArguments,
    unit_bytes: int,
    counts: tuple[int, ...],
    steps: tuple[int, ...],
    line_dims: range,
) -> Lattice | None:
    if args.kind != "tiled":
        return None
    strides = (unit_bytes, *args.global_strides)
    # The sum bounds every byte offset in the tensor; below the limit, int64 bits do not overflow.
    ends = (dim * stride for dim, stride in zip(args.global_dim, strides, strict=True))
    if sum(ends) >= MAX_LATTICE_BYTES:
        return None
    reaches = [(n - 1) * s for n, s in zip(counts, steps, strict=True)]
    element_bits = unit_bytes * 8 or args.type_row.element_bits
    return Lattice(
        np.array(args.global_dim, np.int64) - 1 - reaches,
        np.array([element_bits, *(8 * stride for stride in strides[1:])]),
        tuple(steps[d] * strides[d] for d in line_dims),
    )


def tx_bytes(args: EncodeArguments) -> int:
    """Return the bytes that the mbarrier counts: the whole box, out-of-bounds elements included.

    Padding of rows and of the swizzle is not counted [measured]. The gaps of the ALIGN16B packed
    types are not counted either [as TileLang, CuTe DSL, DeepGEMM and CUTLASS do; not measured].

    >>> from tma_dlpack.tables.enums import TensorMapDataType
    >>> packed = TensorMapDataType["16U4_ALIGN16B"]
    >>> args = EncodeArguments("tiled", packed, (128, 64), (64,), (1, 1), (128, 64))
    >>> tx_bytes(args), smem_bytes(args)
    (4096, 8192)
    """
    return plan(args).tx_bytes


def smem_bytes(args: EncodeArguments) -> int:
    """Return the shared memory that a tile takes, padding of the swizzle included, bytes.

    A copy writes no byte outside these, wherever a 128-byte-aligned tile starts.
    """
    return plan(args).smem_bytes


def smem_alignment(args: EncodeArguments) -> int:
    """Return the recommended alignment of a tile in shared memory, bytes.

    It is the repeat of the swizzle (256, 512, 1024 for 32B, 64B, 128B; 128 without), so that the
    pattern starts at the tile's first row. The engine requires only 128 with every swizzle, and
    swizzles by the absolute address [measured].
    """
    return SWIZZLES[args.swizzle].repeat_bytes


@lru_cache(maxsize=64)
def swizzle_order(tile_plan: TilePlan, smem_offset: int) -> IntArray:
    """Return, for each granule of shared memory, the number of the unswizzled granule in it.

    The permutation is its own inverse. Granules count from `smem_offset`; the array is int64 of
    length ``smem_bytes / tile_plan.swizzle.granule_bytes``.
    """
    granule, start = tile_plan.swizzle.granule_bytes, smem_offset % tile_plan.swizzle.repeat_bytes
    addresses = np.arange(start, start + tile_plan.smem_bytes, granule, dtype=np.int64)
    order = (swizzle_offset(tile_plan.arguments.swizzle, addresses) - start) // granule
    order.flags.writeable = False
    return order


def spatial_dims(args: EncodeArguments) -> range:
    """Return the driver dimensions W, [H, [D]] of an im2col map; interleaved ones start at 0."""
    first = 0 if args.interleave else 1
    return range(first, first + args.rank - 2)


def walked_dims(args: EncodeArguments) -> range:
    """Return the spatial dimensions that a column walks; im2col-wide keeps H and D fixed."""
    dims = spatial_dims(args)
    return dims[:1] if args.kind == "im2col_wide" else dims


@lru_cache(maxsize=1024)
def im2col_box(args: EncodeArguments) -> dict[int, tuple[int, int]]:
    """Return the inclusive bounding box (first, last) of each walked dimension, W first.

    The dict is empty for tiled maps.
    """
    if args.kind == "tiled":
        return {}
    corners = args.pixel_box_lower_corner, args.pixel_box_upper_corner
    return {
        d: (lower, args.global_dim[d] - 1 + upper)
        for d, lower, upper in zip(walked_dims(args), *corners, strict=True)
    }
