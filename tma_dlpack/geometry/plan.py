"""`plan`, which computes the properties that all copies of a map share, such as tile sizes.

A line is a part of a tile that is contiguous in global memory, such as a row of the box. The
docstring of `tma_dlpack.geometry` has the definition for each kind of map.
"""

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

#: Required alignment of a tile in shared memory, in bytes [measured: a copy to an address with a
#: smaller alignment faults].
SMEM_ALIGNMENT = 128
#: Shared memory has 32 banks of 4 bytes. 128 contiguous bytes use each bank once.
BANK_BYTES, BANKS = 4, 32
LINE_BYTES = BANK_BYTES * BANKS


class Swizzle(NamedTuple):
    """A permutation of shared addresses.

    A term (right, mask, left) XORs ``(a >> right & mask) << left`` into the address `a`.
    """

    span_bytes: int  # size of the part of memory in which a granule moves; minimum pitch of lines
    repeat_bytes: int  # period of the pattern
    granule_bytes: int  # number of adjacent bytes that the swizzle moves together
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

    `address` is the address in shared memory, not the offset from the start of the tile. The
    function is its own inverse.

    In rows of eight 16-byte chunks, address 0x480 is chunk 0 of row 9. The swizzle moves the chunk
    to place 0 XOR (9 mod 8) = 1 of the row.

    >>> hex(swizzle_offset(TmaSwizzle.bytes128, 0x480))
    '0x490'
    """
    swizzled = address
    for right, mask, left in SWIZZLES[swizzle].terms:
        swizzled = swizzled ^ ((address >> right & mask) << left)
    return swizzled


# --- Plans --------------------------------------------------------------------------------------

#: A tensor of this many bytes or more has no `Lattice`. Its boxes are copied line by line. Its
#: addresses wrap modulo 2^64, as in the engine.
MAX_LATTICE_BYTES = 1 << 58

#: Number of pixels of a column in the mode im2col::w::128 (PTX ISA).
W128_PIXELS = 128

# Interleave layout -> bytes of a unit, which is one position of dimension 0. 0 means that the map
# is not interleaved.
_UNIT_BYTES = {
    TmaInterleaveLayout.none: 0,
    TmaInterleaveLayout.bytes16: 16,
    TmaInterleaveLayout.bytes32: 32,
}


class Lattice(NamedTuple):
    """The grid of a tiled map's elements in global memory, with dimensions in driver order."""

    limits: IntArray  # (rank,) the largest coordinates at which a box is wholly in bounds
    strides_bits: IntArray  # (rank,) bits from one element to the next, along each dimension
    line_strides: tuple[int, ...]  # bytes from one line to the next, along each axis of line_shape


@dataclass(frozen=True, slots=True, eq=False)
class TilePlan:
    """The facts that all copies of a map share. The function `plan` makes one TilePlan per map.

    A plan is equal only to itself.

    Attributes
    ----------
    arguments : EncodeArguments
    row : DataTypeRow
        The table row of the map's data type.
    swizzle : Swizzle
    unit_bytes : int
        Bytes of a unit, which an interleaved copy moves per position of dimension 0. 0 if the map
        is not interleaved.
    counts, steps : tuple of int
        For a tiled map, `counts` has n[d] and `steps` has s[d] for each dimension d. n[d] is the
        number of positions that a box has along d. s[d] is the distance between two adjacent
        positions. For an im2col map, `counts` is (channels, pixels) and `steps` is empty.
    line_dims : range
        The dimensions in which the lines of a tile have different positions, outermost dimension
        first. Each dimension is an index in driver order.
    line_shape : tuple of int
        For a tiled map, the number of lines of a tile along each dimension of `line_dims`. For an
        im2col map, the only entry is the number of pixels.
    lines : int
        Number of lines, the product of `line_shape`.
    line_bytes : int
        Bytes of a line in global memory.
    smem_line_bytes : int
        Bytes of a line in shared memory. This is more than `line_bytes` if the data type is a
        packed type with gaps in shared memory.
    pitch_bytes : int
        Bytes from one line to the next in shared memory.
    tile_shape : tuple of int
        Shape of the logical tile, row-major, in elements. The tile of an interleaved map has one
        axis more than the map has dimensions. This last axis counts the elements of a unit.
    smem_bytes : int
        Bytes of the tile in shared memory, including the padding of the swizzle.
    tx_bytes : int
        Bytes that the mbarrier counts for one copy, without gaps and padding.
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
    """Return the plan of a map's copies. The 1024 plans that were used last are cached.

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
        # A line spans the box along dimension 0, so the lines differ only in the other dimensions.
        # If the map is interleaved, a line is only one unit, so the lines also differ in dimension
        # 0.
        line_shape = counts[::-1] if unit_bytes else counts[:0:-1]
    else:
        wide_128 = args.kind == "im2col_wide" and args.mode == TensorMapIm2ColWideMode.w128
        counts = (args.channels_per_pixel, W128_PIXELS if wide_128 else args.pixels_per_column)
        line_shape = counts[1:]

    dims = range(args.rank)
    line_dims = dims[::-1] if unit_bytes else dims[:0:-1]
    lines = math.prod(line_shape)
    line_bytes = unit_bytes or counts[0] * row.element_bits // 8
    # A group of values of an ALIGN16B packed type is larger in shared memory than in global memory.
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
        # The tile ends at the end of a span, because the swizzle moves bytes within a span. The
        # lines of an interleaved tile have no padding, so the last line may end within a span.
        smem_bytes=-(-lines * pitch_bytes // span_bytes) * span_bytes,
        tx_bytes=lines * line_bytes,
        lattice=_lattice(args, unit_bytes, counts, steps, line_dims),
    )


def _box_counts(args: EncodeArguments) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return n[d] and s[d] of each dimension, where ``n[d] = ceil(box[d] / s[d])``.

    If the map is not interleaved, the element stride of dimension 0 is ignored. If the map is
    interleaved, a box has one slice, so n[rank - 2] is 1.
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
    # No byte offset in the tensor exceeds the sum of `ends`. If the sum is below 2^58, every offset
    # in bits fits in an int64.
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

    If the start of the tile is aligned to 128 bytes, a copy writes no byte outside the tile.
    """
    return plan(args).smem_bytes


def smem_alignment(args: EncodeArguments) -> int:
    """Return the recommended alignment of a tile in shared memory, in bytes.

    The recommended alignment is the period of the swizzle's pattern: 256 for the swizzle 32B, 512
    for 64B, 1024 for 128B, and 128 without a swizzle. With this alignment, the pattern starts at
    the tile's first row. The engine itself requires an alignment of only 128 with every swizzle,
    because the engine swizzles by the absolute address [measured].
    """
    return SWIZZLES[args.swizzle].repeat_bytes


@lru_cache(maxsize=64)
def swizzle_order(tile_plan: TilePlan, smem_offset: int) -> IntArray:
    """Return the permutation by which the swizzle moves the granules of a tile in shared memory.

    `smem_offset` is the shared address of the tile. Place n starts ``n * granule_bytes`` bytes
    after this address. If entry n of the result is m, the swizzle moves the granule of place m to
    place n. The array is int64 and has ``smem_bytes / granule_bytes`` entries. The permutation is
    its own inverse.
    """
    granule, start = tile_plan.swizzle.granule_bytes, smem_offset % tile_plan.swizzle.repeat_bytes
    addresses = np.arange(start, start + tile_plan.smem_bytes, granule, dtype=np.int64)
    order = (swizzle_offset(tile_plan.arguments.swizzle, addresses) - start) // granule
    order.flags.writeable = False
    return order


def spatial_dims(args: EncodeArguments) -> range:
    """Return the indices of the dimensions W, H and D of an im2col map, in driver order.

    A map of rank 3 has only W, and a map of rank 4 has only W and H. W is dimension 0 if the map is
    interleaved. Otherwise W is dimension 1.
    """
    first = 0 if args.interleave else 1
    return range(first, first + args.rank - 2)


def walked_dims(args: EncodeArguments) -> range:
    """Return the spatial dimensions in which the pixels of a column have different positions.

    The pixels of an im2col map's column differ in W, H and D. The pixels of an im2col-wide map's
    column differ only in W.
    """
    dims = spatial_dims(args)
    return dims[:1] if args.kind == "im2col_wide" else dims


@lru_cache(maxsize=1024)
def im2col_box(args: EncodeArguments) -> dict[int, tuple[int, int]]:
    """Return the first and last pixel of the bounding box in each dimension of `walked_dims`.

    The dict has W first. The dict is empty for tiled maps.
    """
    if args.kind == "tiled":
        return {}
    corners = args.pixel_box_lower_corner, args.pixel_box_upper_corner
    return {
        d: (lower, args.global_dim[d] - 1 + upper)
        for d, lower, upper in zip(walked_dims(args), *corners, strict=True)
    }
