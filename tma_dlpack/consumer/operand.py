"""Operands of the instructions that read shared memory through a matrix descriptor.

`Instruction` has the facts about an instruction. `Operand` has the arguments of
`matrix_descriptor`, and the tile as a matrix. A span is a part of a row of the matrix that is
contiguous in shared memory. The first spans of all rows form the first column of spans, the second
spans form the second column, and so on::

    [column of spans][row][span bytes]        address = (column * rows + row) * pitch + byte

A tile has one column of spans if a row of the box is a whole row of the matrix. The tile of a map
made with `split_inner` has several columns of spans, because the map's outermost dimension steps
from a span of a row to the next span of the same row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tma_dlpack import geometry
from tma_dlpack.geometry import SMEM_ALIGNMENT, SWIZZLES, TilePlan
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.targets import SWIZZLE_SPAN_BYTES
from tma_dlpack.tensor_map.map import TensorMap

Major = Literal["K", "MN"]

#: Bytes along K that one instruction multiplies. The number is the same for every data type: for
#: example, 16 elements of 16 bits.
K_STEP_BYTES = 32
#: A descriptor stores the address and the offsets in units of this number of bytes.
UNITS = 16

#: TmaSwizzle -> bytes of a row of an atom. Without a swizzle, the atom is a core matrix.
SPAN_BYTES = (16, *SWIZZLE_SPAN_BYTES[1:])


@dataclass(frozen=True, slots=True)
class Field:
    """A bit field of a descriptor; `about` explains the field if all tiles have the same value."""

    name: str
    first_bit: int
    bits: int
    about: str = ""

    def of(self, value: int) -> int:
        """Return the number that this field has in a 64-bit descriptor."""
        return value >> self.first_bit & (1 << self.bits) - 1

    @property
    def place(self) -> str:
        """The range of the field's bits, first and last bit included, as PTX writes it.

        >>> Field("start address", 0, 14).place
        '0..13'
        """
        last = self.first_bit + self.bits - 1
        return f"{self.first_bit}..{last}" if self.bits > 1 else str(self.first_bit)


@dataclass(frozen=True, slots=True)
class Instruction:
    """The layouts that an instruction can read, and the fields of its descriptor.

    Attributes
    ----------
    name : str
    capabilities : tuple of int
        Major compute capabilities of the GPUs that have the instruction.
    fields : tuple of Field
        All fields of the 64-bit descriptor; the field "layout type" is last. Bits outside of the
        fields are 0.
    layout_types : dict
        Swizzle -> number in the field "layout type".
    fixed : int
        Number in the field "fixed"; 0 if the instruction has no such field.
    mn_bits : tuple of int
        Sizes in bits of the elements that the instruction can read from an MN-major tile.
    pattern_aligned : bool
        Whether the tile's address must be a multiple of the size of the swizzle pattern.
    sure : str
        The evidence for these facts: measured or documented.
    source : str
    """

    name: str
    capabilities: tuple[int, ...]
    fields: tuple[Field, ...]
    layout_types: dict[TmaSwizzle, int]
    fixed: int
    mn_bits: tuple[int, ...]
    pattern_aligned: bool
    sure: str
    source: str


# Fields of the descriptors of wgmma and tcgen05. Only tcgen05 has FIXED.
START = Field("start address", 0, 14)
LEADING = Field("leading byte offset", 16, 14)
STRIDE = Field("stride byte offset", 32, 14)
FIXED = Field("fixed", 46, 3, "always 0b001")
BASE = Field("base offset", 49, 3, "0: TMA swizzles by the absolute address")

INSTRUCTIONS: dict[str, Instruction] = {
    "wgmma": Instruction(
        name="wgmma",
        capabilities=(9,),
        fields=(START, LEADING, STRIDE, BASE, Field("layout type", 62, 2)),
        layout_types={
            TmaSwizzle.none: 0,
            TmaSwizzle.bytes128: 1,
            TmaSwizzle.bytes64: 2,
            TmaSwizzle.bytes32: 3,
        },
        fixed=0,
        mn_bits=(16,),
        pattern_aligned=False,
        sure="measured (H200, driver 580.159.04, 2026-11-21)",
        source="PTX ISA, wgmma: matrix descriptor format; measured, H200, driver 580.159.04",
    ),
    "tcgen05": Instruction(
        name="tcgen05",
        capabilities=(10, 11),
        fields=(
            *(START, LEADING, STRIDE, FIXED, BASE),
            Field("leading dimension mode", 52, 1, "an offset, not an address"),
            Field("layout type", 61, 3),
        ),
        layout_types={
            TmaSwizzle.none: 0,
            TmaSwizzle.bytes128_atom_32B: 1,
            TmaSwizzle.bytes128: 2,
            TmaSwizzle.bytes64: 4,
            TmaSwizzle.bytes32: 6,
        },
        fixed=0b001,
        mn_bits=(8, 16, 32),
        pattern_aligned=True,
        sure="documented, not measured",
        source="PTX ISA, tcgen05: shared memory descriptor; documented, not measured",
    ),
}

_T = TensorMapDataType
#: Data type of a map -> the types of tensor-core operands that a map of this data type can copy.
OPERAND_TYPES: dict[TensorMapDataType, str] = {
    _T.FLOAT16: "f16",
    _T.BFLOAT16: "bf16",
    _T.TFLOAT32: "tf32",
    _T.TFLOAT32_FTZ: "tf32",
    _T.UINT8: "8 bits: e4m3, e5m2, s8 or u8, as the instruction says",
}


def atom_rows(swizzle: TmaSwizzle) -> int:
    """Return the number of rows of an atom."""
    return 4 if swizzle == TmaSwizzle.bytes128_atom_32B else 8


def encoded(offset_bytes: int) -> int:
    """Encode an address or an offset for a field of a descriptor (PTX: matrix-descriptor-encode).

    >>> encoded(1024)
    64
    """
    return (offset_bytes & 0x3FFFF) // UNITS


# Addresses in a descriptor are below this number, because the field has 14 bits and a unit of 16
# bytes.
ADDRESS_END = 1 << 18


class TileMatrix(NamedTuple):
    """The layout of a tile in shared memory as a matrix (see the docstring of this module).

    Attributes
    ----------
    columns : int
        Number of columns of spans.
    rows : int
        Number of rows of the matrix, which is the number of rows of each column of spans.
    row_bytes : int
        Size of a span in bytes.
    pitch_bytes : int
        Bytes from the start of a span to the span of the next row.
    element_bytes : int
    """

    columns: int
    rows: int
    row_bytes: int
    pitch_bytes: int
    element_bytes: int

    @property
    def width(self) -> int:
        """Number of elements of a row of the matrix; each column of spans has a part of the row."""
        return self.columns * self.row_bytes // self.element_bytes

    @property
    def column_bytes(self) -> int:
        """Bytes from the start of a column of spans to the next column in shared memory."""
        return self.rows * self.pitch_bytes


#: The `TileMatrix` of a tile that is not a matrix.
NO_MATRIX = TileMatrix(0, 0, 0, 0, 1)


class Operand(NamedTuple):
    """The input of the rules in `refusals`: the arguments of a call and the tile as a matrix.

    Attributes
    ----------
    tensor_map : TensorMap
    instruction : Instruction
    major : {"K", "MN"}
    smem_address : int
    arguments : EncodeArguments
        Arguments of the map.
    smem_bytes : int
        Size of the tile in shared memory, in bytes.
    tile : TileMatrix
        The tile as a matrix; `NO_MATRIX` if the tile is not a matrix.
    bits : int
        Size of an element in bits.
    swizzle : TmaSwizzle
    rows_step : int
        The number of rows of the tile must be a multiple of `rows_step`: the rows of an atom if the
        tile is K-major, or the rows of a K step if it is MN-major.
    """

    tensor_map: TensorMap
    instruction: Instruction
    major: Major
    smem_address: int
    arguments: EncodeArguments
    smem_bytes: int
    tile: TileMatrix
    bits: int
    swizzle: TmaSwizzle
    rows_step: int

    @classmethod
    def of(
        cls, tensor_map: TensorMap, instruction: Instruction, major: Major, smem_address: int
    ) -> Operand:
        """Return the operand for the tile that a map's copy writes."""
        arguments = tensor_map.arguments
        smem_bytes, tile, bits = _tile_of(arguments, split_dimension(tensor_map))
        return cls(
            tensor_map,
            instruction,
            major,
            smem_address,
            arguments,
            smem_bytes,
            tile,
            bits,
            arguments.swizzle,
            8 if major == "K" else K_STEP_BYTES * 8 // bits,
        )

    @property
    def dtype(self) -> str:
        """Name of the dtype of the map's tensor, such as float8_e4m3fn; "" without a tensor."""
        return str(getattr(self.tensor_map.tensor, "dtype", "")).rpartition(".")[2]

    @property
    def address_step(self) -> int:
        """The alignment in bytes that the tile's address must have."""
        if self.instruction.pattern_aligned:
            return max(SMEM_ALIGNMENT, SWIZZLES[self.swizzle].repeat_bytes)
        return SMEM_ALIGNMENT


# The functions below return the leading and the stride byte offset. Each function is a single
# expression, because `.packaging/generate.py` prints it in JavaScript for the explorer's page.
#
#   major   (leading, stride) with swizzle none   (leading, stride) with another swizzle
#   K       (column, atom)                        (16, atom); the 16 is not read
#   MN      (atom, column)                        (column, atom)
#
# "column" is the size of a column of spans in bytes. "atom" is the size of an atom in bytes: 8
# spans, or 4 spans for the swizzle bytes128_atom_32B.


def leading_bytes(o: Operand) -> int:
    """Return the leading byte offset."""
    return (
        (UNITS if o.major == "K" else o.tile.column_bytes)
        if o.swizzle != TmaSwizzle.none
        else (o.tile.column_bytes if o.major == "K" else _atom_bytes(o))
    )


def stride_bytes(o: Operand) -> int:
    """Return the stride byte offset."""
    return (
        o.tile.column_bytes if o.swizzle == TmaSwizzle.none and o.major == "MN" else _atom_bytes(o)
    )


def _atom_bytes(o: Operand) -> int:
    return atom_rows(o.swizzle) * SPAN_BYTES[o.swizzle]


def tile_matrix(tensor_map: TensorMap) -> TileMatrix | None:
    """Return a map's tile as a matrix, or None if the tile is not a matrix.

    The tile of a tiled map of rank 2 or more is a matrix if at most one outer dimension of the box
    has an extent greater than 1. The dimension that `split_inner` added is ignored, because its
    extent is the number of columns of spans.

    If it is unknown whether `split_inner` added a dimension, the strides decide. The candidate is
    the outermost dimension whose extent in the box is greater than 1. If the candidate's stride in
    bytes equals the size of a row of the box, the candidate is taken as the added dimension.
    """
    tile = _tile_of(tensor_map.arguments, split_dimension(tensor_map))[1]
    return tile if tile.rows else None


def split_dimension(tensor_map: TensorMap) -> int | None:
    """Return the number of the dimension that steps from span to span; None if it is unknown.

    Dimension 0 is the innermost. A map has such a dimension if it was made with `split_inner=True`,
    or with the arguments that `tma.split_inner` returns for a tensor of rank 2 or more. A map that
    describes a vector as a matrix has no such dimension.
    """
    # In a ragged map, two added dimensions are outside of this dimension.
    if tensor_map.split_inner:
        return tensor_map.rank - (1 if tensor_map.ragged is None else 3)
    if tensor_map.arguments.global_dim[1:2] != (1,):
        # `_matrix_of` finds the dimension by the strides, unless dimension 1 has extent 1.
        return None
    view = tensor_map.description.view
    own = None if view is None else view.own
    if view is None or own is None or len(own.shape) < 2 or len(view.shape) != len(own.shape) + 1:
        return None
    span = view.shape[-1]
    # The view must have the shape of the tensor after two changes: the last axis is split into
    # (spans, span), and the axis `spans` is moved to the front.
    same = view.shape[1:-1] == own.shape[:-1] and view.shape[0] * span == own.shape[-1]
    return len(own.shape) if same and view.strides[0] == span else None


# The cache has the size of the cache of geometry.plan.
@functools.lru_cache(maxsize=1024)
def _tile_of(arguments: EncodeArguments, split: int | None) -> tuple[int, TileMatrix, int]:
    plan = geometry.plan(arguments)
    return plan.smem_bytes, _matrix_of(plan, split) or NO_MATRIX, arguments.type_row.element_bits


def _matrix_of(plan: TilePlan, split: int | None) -> TileMatrix | None:
    args, counts = plan.arguments, plan.counts
    # element_bytes is 0 for packed types.
    element_bytes = args.type_row.element_bits // 8
    if plan.unit_bytes or not element_bytes:
        return None
    columns = 1
    if args.kind == "tiled":
        # `axes` are the outer dimensions with more than one element in the box, outermost first.
        axes = [d for d in range(len(counts) - 1, 0, -1) if counts[d] > 1]
        if split is not None:
            columns = counts[split]
            axes = [d for d in axes if d != split]
        # Without `split`, the outermost axis may step from span to span. Exception: if dimension 1
        # of the tensor has extent 1, a single axis steps along the rows of a dense matrix.
        elif axes and axes[0] > 1 and (len(axes) > 1 or args.global_dim[1] > 1):
            step_bytes = plan.steps[axes[0]] * args.global_strides[axes[0] - 1]
            # The axis steps to the bytes right after a row of the box, so it counts the columns of
            # spans.
            if step_bytes == plan.line_bytes:
                columns = counts[axes.pop(0)]
        if len(counts) < 2 or len(axes) > 1:
            return None
    rows = plan.lines // columns
    return TileMatrix(columns, rows, plan.line_bytes, plan.pitch_bytes, element_bytes)
