"""Operands of the instructions that read shared memory through a matrix descriptor.

`Instruction` has the facts about an instruction. `Operand` has the arguments of
`matrix_descriptor`, with the tile as a matrix::

    [column of spans][row][span bytes]        address = (column * rows + row) * pitch + byte

A tile has one column if a row of the box is the whole width. The tile of a map made with
`split_inner` has several columns, because the map's outermost dimension steps from one span of a
row to the next.
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

#: Bytes of K that one instruction multiplies, for all types; for example 16 elements of 16 bits.
K_STEP_BYTES = 32
#: Bytes of the unit in which a descriptor has its address and offsets.
UNITS = 16

#: By TmaSwizzle: bytes of a row of a swizzle atom; without a swizzle, of a core matrix (8 rows).
SPAN_BYTES = (16, *SWIZZLE_SPAN_BYTES[1:])


@dataclass(frozen=True, slots=True)
class Field:
    """A bit field of a descriptor; `about` explains it if its value is equal for all tiles."""

    name: str
    first_bit: int
    bits: int
    about: str = ""

    def of(self, value: int) -> int:
        """Return the field's number in the 64 bits of a descriptor."""
        return value >> self.first_bit & (1 << self.bits) - 1

    @property
    def place(self) -> str:
        """The range of bits, as PTX writes it.

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
        All fields of the 64-bit descriptor, the layout type last; other bits are 0.
    layout_types : dict
        Swizzle -> number in the field "layout type".
    fixed : int
        Number in the field "fixed", or 0.
    mn_bits : tuple of int
        Sizes in bits of the elements that the instruction can read MN-major.
    pattern_aligned : bool
        Whether a tile must begin at the start of the swizzle pattern.
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


# Fields that wgmma and tcgen05 share; only tcgen05 has FIXED.
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
#: Data type of a map -> types of tensor-core operands that such a map copies.
OPERAND_TYPES: dict[TensorMapDataType, str] = {
    _T.FLOAT16: "f16",
    _T.BFLOAT16: "bf16",
    _T.TFLOAT32: "tf32",
    _T.TFLOAT32_FTZ: "tf32",
    _T.UINT8: "8 bits: e4m3, e5m2, s8 or u8, as the instruction says",
}


def atom_rows(swizzle: TmaSwizzle) -> int:
    """Return the number of rows of a swizzle atom."""
    return 4 if swizzle == TmaSwizzle.bytes128_atom_32B else 8


def encoded(offset_bytes: int) -> int:
    """Return an address or an offset in the form of a descriptor (PTX: matrix-descriptor-encode).

    >>> encoded(1024)
    64
    """
    return (offset_bytes & 0x3FFFF) // UNITS


# End of the addresses that a descriptor can hold: 14 bits in units of 16 bytes.
ADDRESS_END = 1 << 18


class TileMatrix(NamedTuple):
    """The layout of a tile of two dimensions in shared memory.

    Attributes
    ----------
    columns : int
        Number of columns of spans.
    rows : int
        Rows of each column.
    row_bytes : int
        Bytes of a row within a span.
    pitch_bytes : int
        Bytes from one row to the next.
    element_bytes : int
    """

    columns: int
    rows: int
    row_bytes: int
    pitch_bytes: int
    element_bytes: int

    @property
    def width(self) -> int:
        """Number of elements of a row of the matrix, over all columns."""
        return self.columns * self.row_bytes // self.element_bytes

    @property
    def column_bytes(self) -> int:
        """Bytes from one column of spans to the next in shared memory."""
        return self.rows * self.pitch_bytes


#: Stands for a tile that is not a matrix.
NO_MATRIX = TileMatrix(0, 0, 0, 0, 1)


class Operand(NamedTuple):
    """The input of the rules in `refusals`, computed once per call.

    Attributes
    ----------
    tensor_map : TensorMap
    instruction : Instruction
    major : {"K", "MN"}
    smem_address : int
    arguments : EncodeArguments
        Arguments of the map.
    smem_bytes : int
        Size of the tile in shared memory, bytes.
    tile : TileMatrix
        The tile as a matrix; `NO_MATRIX` if it is no matrix.
    bits : int
        Bits of an element.
    swizzle : TmaSwizzle
    rows_step : int
        The number of rows of the tile must be a multiple of this: the rows of an atom if K-major,
        of a K step if MN-major.
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
        """Name of the tensor's dtype, such as float8_e4m3fn; empty without a tensor."""
        return str(getattr(self.tensor_map.tensor, "dtype", "")).rpartition(".")[2]

    @property
    def address_step(self) -> int:
        """The alignment of the tile's address, in bytes."""
        if self.instruction.pattern_aligned:
            return max(SMEM_ALIGNMENT, SWIZZLES[self.swizzle].repeat_bytes)
        return SMEM_ALIGNMENT


# The byte offsets from one atom to the next. Each is one expression, because the page has it too:
#
#   major   leading, stride; swizzle none   others
#   K       column, atom                    16 (not read), atom
#   MN      atom, column                    column, atom
#
# "column" is the bytes of all rows of one span; "atom" is the bytes of 8 rows (4 rows for the atom
# of 32 bytes).


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
    """Return a map's tile as a matrix; None for rank 1, or with more than two extents over 1.

    The columns of spans are the dimension that `split_inner` added. If the call that made the map
    is not known, a third extent over 1 is taken for this dimension if its stride in global memory
    equals the bytes of a row of the box.
    """
    tile = _tile_of(tensor_map.arguments, split_dimension(tensor_map))[1]
    return tile if tile.rows else None


def split_dimension(tensor_map: TensorMap) -> int | None:
    """Return the number of the dimension that steps from span to span, or None if it is not known.

    Dimension 0 is the innermost. A map made with the arguments of `tma.split_inner` has such a
    dimension too, if its tensor has two dimensions or more: a vector described as a matrix is a
    matrix.
    """
    # A ragged map has two more dimensions outside of this one.
    if tensor_map.split_inner:
        return tensor_map.rank - (1 if tensor_map.ragged is None else 3)
    if tensor_map.arguments.global_dim[1:2] != (1,):
        # `_matrix_of` decides by the strides, unless the tile has one row.
        return None
    view = tensor_map.description.view
    own = None if view is None else view.own
    if view is None or own is None or len(own.shape) < 2 or len(view.shape) != len(own.shape) + 1:
        return None
    span = view.shape[-1]
    # The view must be the tensor with its last axis split into (spans, span).
    same = view.shape[1:-1] == own.shape[:-1] and view.shape[0] * span == own.shape[-1]
    return len(own.shape) if same and view.strides[0] == span else None


# The cache is as large as that of geometry.plan.
@functools.lru_cache(maxsize=1024)
def _tile_of(arguments: EncodeArguments, split: int | None) -> tuple[int, TileMatrix, int]:
    plan = geometry.plan(arguments)
    return plan.smem_bytes, _matrix_of(plan, split) or NO_MATRIX, arguments.type_row.element_bits


def _matrix_of(plan: TilePlan, split: int | None) -> TileMatrix | None:
    args, counts = plan.arguments, plan.counts
    # 0 for packed types.
    element_bytes = args.type_row.element_bits // 8
    if plan.unit_bytes or not element_bytes:
        return None
    columns = 1
    if args.kind == "tiled":
        # Outer dimensions with more than one element in the box, outermost first.
        axes = [d for d in range(len(counts) - 1, 0, -1) if counts[d] > 1]
        if split is not None:
            columns = counts[split]
            axes = [d for d in axes if d != split]
        # A single dimension of this kind, next to dimension 1 of extent 1, has the rows of a dense
        # matrix, not columns of spans.
        elif axes and axes[0] > 1 and (len(axes) > 1 or args.global_dim[1] > 1):
            step_bytes = plan.steps[axes[0]] * args.global_strides[axes[0] - 1]
            # The dimension steps to the bytes right after the row of the box.
            if step_bytes == plan.line_bytes:
                columns = counts[axes.pop(0)]
        if len(counts) < 2 or len(axes) > 1:
            return None
    rows = plan.lines // columns
    return TileMatrix(columns, rows, plan.line_bytes, plan.pitch_bytes, element_bytes)
