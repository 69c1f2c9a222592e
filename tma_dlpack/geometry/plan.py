"""`plan`, which computes the counts, lines, pitch, footprint and swizzle of a map's copies."""

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

#: Required alignment of a tile in shared memory, in bytes [measured: a copy to a tile with a
#: smaller alignment faults].
SMEM_ALIGNMENT = 128
#: Shared memory has 32 banks of 4 bytes. 128 contiguous bytes use each bank once.
BANK_BYTES, BANKS = 4, 32
LINE_BYTES = BANK_BYTES * BANKS


class Swizzle(NamedTuple):
    """A permutation of shared addresses: a term XORs ``(a >> right & mask) << left`` into `a`."""

    span_bytes: int  # a granule moves only within its span; also the smallest pitch of a row
    repeat_bytes: int  # period of the pattern
    granule_bytes: int  # bytes that move together
    terms: tuple[tuple[int, int, int], ...]  # (right, mask, left) of the formula above


#: Source: the first four swizzles are measured. 128B_ATOM_32B and 128B_ATOM_32B_FLIP_8B were
#: published for sm_120. 128B_ATOM_64B is documented (PTX ISA, swizzling modes), not measured.
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

    `address` counts from the start of the thread block's shared memory, not from the start of the
    tile. The function is its own inverse.

    >>> hex(swizzle_offset(TmaSwizzle.bytes128, 0x480))  # row 9 mod 8 = 1: chunk 0 becomes chunk 1
    '0x490'
    """
    swizzled = address
    for right, mask, left in SWIZZLES[swizzle].terms:
        swizzled = swizzled ^ ((address >> right & mask) << left)
    return swizzled


# --- Plans --------------------------------------------------------------------------------------

#: Bytes of the smallest tensor without a `Lattice`. Its boxes are copied line by line, and its
#: addresses wrap modulo 2^64, as the engine's addresses do.
MAX_LATTICE_BYTES = 1 << 58

#: Pixels of a column in mode im2col::w::128 (PTX ISA).
W128_PIXELS = 128

# Bytes per position of an interleaved layout; 0 means that elements are not interleaved.
_UNIT_BYTES = {
    TmaInterleaveLayout.none: 0,
    TmaInterleaveLayout.bytes16: 16,
    TmaInterleaveLayout.bytes32: 32,
}


class Lattice(NamedTuple):
    """The grid of a tiled map's elements in global memory, with dimensions in driver order."""

    limits: IntArray  # (rank,) the largest coordinates of a box that is wholly in bounds
    strides_bits: IntArray  # (rank,) bits from one element to the next, along each dimension
    line_strides: tuple[int, ...]  # bytes from one line to the next, along each axis of line_shape


@dataclass(frozen=True, slots=True, eq=False)
class TilePlan:
    """The data that all copies of a map share. `plan` makes one TilePlan per map.

    Two plans are equal only if they are the same object.

    Attributes
    ----------
    arguments : EncodeArguments
    row : DataTypeRow
        The table row of the map's data type.
    swizzle : Swizzle
    unit_bytes : int
        Bytes that an interleaved copy moves per position; 0 if the map is not interleaved.
    counts, steps : tuple of int
        For a tiled map, n[d] and s[d] of each dimension d: the number of positions of a box, and
        the distance between two positions. For an im2col map, `counts` is (channels, pixels) and
        `steps` is empty.
    line_dims : range
        The driver dimensions that lines step through, outermost first.
    line_shape : tuple of int
        The numbers of lines of a tile along the dimensions of `line_dims`; for an im2col map, the
        number of pixels alone.
    lines : int
        Number of lines, the product of `line_shape`.
    line_bytes : int
        Bytes of a line in global memory.
    smem_line_bytes : int
        Bytes of a line in shared memory. With a packed type that has gaps in shared memory, this is
        more than `line_bytes`.
    pitch_bytes : int
        Bytes from one line to the next in shared memory.
    tile_shape : tuple of int
        Shape of the logical tile, row-major, in elements. The tile of an interleaved map has one
        more axis than the map has dimensions: the last axis counts the elements of a unit.
    smem_bytes : int
        Bytes of the tile in shared memory, including the padding of the swizzle.
    tx_bytes : int
        Bytes that the mbarrier counts, which are the bytes copied, without gaps and padding.
    lattice : Lattice or None
        The grid of elements. None for im2col maps and for tensors of 2^58 bytes or more.
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
    """Return the plan of a map's copies. The plans of the last 1024 maps are cached.

    Raises
    ------
    TmaUnsupportedError
        If the map is interleaved and its rank is 1 or 2. ``tensormap.replace`` can make such a map.
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
        # A line spans dimension 0 of the box. In an interleaved map, a line is only one unit, so
        # lines step through dimension 0 too.
        line_shape = counts[::-1] if unit_bytes else counts[:0:-1]
    else:
        wide_128 = args.kind == "im2col_wide" and args.mode == TensorMapIm2ColWideMode.w128
        counts = (args.channels_per_pixel, W128_PIXELS if wide_128 else args.pixels_per_column)
        line_shape = counts[1:]

    dims = range(args.rank)
    line_dims = dims[::-1] if unit_bytes else dims[:0:-1]
    lines = math.prod(line_shape)
    line_bytes = unit_bytes or counts[0] * row.element_bits // 8
    # A group of an ALIGN16B packed type has more bytes in shared memory than in global memory.
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
        # Interleaved lines have no padding, so the last line may end inside a span. The swizzle can
        # move bytes up to the end of the span.
        smem_bytes=-(-lines * pitch_bytes // span_bytes) * span_bytes,
        tx_bytes=lines * line_bytes,
        lattice=_lattice(args, unit_bytes, counts, steps, line_dims),
    )


def _box_counts(args: EncodeArguments) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return n[d] and s[d] of each dimension, where ``n[d] = ceil(box[d] / s[d])``.

    The element stride of dimension 0 is ignored unless the map is interleaved. An interleaved box
    has one slice, so its n[rank - 2] is 1.
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
    # The sum is an upper limit of every byte offset in the tensor. If the sum is below 2^58, an
    # offset in bits fits in an int64.
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
    """Return the bytes that the mbarrier counts for one copy.

    The mbarrier counts the bytes of the whole box, including elements that are out of bounds. It
    does not count the padding of rows and of the swizzle [measured]. It does not count the gaps of
    the ALIGN16B packed types either [as in TileLang, CuTe DSL, DeepGEMM and CUTLASS; not measured].

    >>> from tma_dlpack.tables.enums import TensorMapDataType
    >>> packed = TensorMapDataType["16U4_ALIGN16B"]
    >>> args = EncodeArguments("tiled", packed, (128, 64), (64,), (1, 1), (128, 64))
    >>> tx_bytes(args), smem_bytes(args)
    (4096, 8192)
    """
    return plan(args).tx_bytes


def smem_bytes(args: EncodeArguments) -> int:
    """Return the bytes of a tile in shared memory, including the padding of the swizzle.

    A copy writes no byte outside this range, at any start address that is aligned to 128 bytes.
    """
    return plan(args).smem_bytes


def smem_alignment(args: EncodeArguments) -> int:
    """Return the recommended alignment of a tile in shared memory, in bytes.

    The recommended alignment is the period of the swizzle's pattern: 256, 512 or 1024 for 32B, 64B
    or 128B, and 128 without a swizzle. With this alignment, the pattern starts at the tile's first
    row. The engine itself requires an alignment of only 128 with every swizzle, because the engine
    swizzles by the absolute address [measured].
    """
    return SWIZZLES[args.swizzle].repeat_bytes


@lru_cache(maxsize=64)
def swizzle_order(tile_plan: TilePlan, smem_offset: int) -> IntArray:
    """Return for each granule of shared memory the number of the unswizzled granule that it holds.

    Granules are numbered from `smem_offset`. The array is int64 and has
    ``smem_bytes / tile_plan.swizzle.granule_bytes`` entries. The permutation is its own inverse.
    """
    granule, start = tile_plan.swizzle.granule_bytes, smem_offset % tile_plan.swizzle.repeat_bytes
    addresses = np.arange(start, start + tile_plan.smem_bytes, granule, dtype=np.int64)
    order = (swizzle_offset(tile_plan.arguments.swizzle, addresses) - start) // granule
    order.flags.writeable = False
    return order


def spatial_dims(args: EncodeArguments) -> range:
    """Return the driver dimensions W, [H, [D]] of an im2col map.

    W is dimension 0 if the map is interleaved, and else dimension 1.
    """
    first = 0 if args.interleave else 1
    return range(first, first + args.rank - 2)


def walked_dims(args: EncodeArguments) -> range:
    """Return the spatial dimensions that a column walks.

    A column of an im2col map walks W, H and D. A column of an im2col-wide map walks only W, because
    its pixels all have the same H and D.
    """
    dims = spatial_dims(args)
    return dims[:1] if args.kind == "im2col_wide" else dims


@lru_cache(maxsize=1024)
def im2col_box(args: EncodeArguments) -> dict[int, tuple[int, int]]:
    """Return the first and last pixel of the bounding box in each walked dimension, W first.

    The dict is empty for tiled maps.
    """
    if args.kind == "tiled":
        return {}
    corners = args.pixel_box_lower_corner, args.pixel_box_upper_corner
    return {
        d: (lower, args.global_dim[d] - 1 + upper)
        for d, lower, upper in zip(walked_dims(args), *corners, strict=True)
    }
