"""The operand of an instruction: the arguments of `matrix_descriptor`, and the tile as a matrix.

::

    [column of spans][row][span bytes]        address = (column * rows + row) * pitch + byte

There is one column if the row of the box is the whole width; a map made with `split_inner` has
several, because its outermost dimension steps from one span of a row to the next.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from tma_dlpack import geometry
from tma_dlpack.consumer.instructions import K_STEP_BYTES, Instruction
from tma_dlpack.geometry import SMEM_ALIGNMENT, SWIZZLES, TilePlan
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tensor_map.map import TensorMap

ADDRESS_END = 1 << 18  # a descriptor's address has 14 bits, in units of 16 bytes


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
        """Elements of a row of the matrix, all columns together."""
        return self.columns * self.row_bytes // self.element_bytes

    @property
    def column_bytes(self) -> int:
        """Bytes from one column of spans to the next in shared memory."""
        return self.rows * self.pitch_bytes


#: Of a tile that is not a matrix.
NO_MATRIX = TileMatrix(0, 0, 0, 0, 1)


class Operand(NamedTuple):
    """What the rows of `refusals` read, worked out once per call.

    Attributes
    ----------
    tensor_map : TensorMap
    instruction : Instruction
    major : {"K", "MN"}
    smem_address : int
    arguments : EncodeArguments
        The map's.
    smem_bytes : int
        Of the tile.
    tile : TileMatrix
        `NO_MATRIX` if it is not one.
    bits : int
        Of an element.
    swizzle : TmaSwizzle
    rows_step : int
        What the rows of the tile must be a multiple of: those of an atom, or of a K step.
    """

    tensor_map: TensorMap
    instruction: Instruction
    major: str
    smem_address: int
    arguments: EncodeArguments
    smem_bytes: int
    tile: TileMatrix
    bits: int
    swizzle: TmaSwizzle
    rows_step: int

    @classmethod
    def of(
        cls, tensor_map: TensorMap, instruction: Instruction, major: str, smem_address: int
    ) -> Operand:
        """Describe the tile that a map's copy writes."""
        arguments = tensor_map.arguments
        smem_bytes, tile, bits = _tile_of(arguments)
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
        """What the tile's address must be a multiple of."""
        if self.instruction.pattern_aligned:
            return max(SMEM_ALIGNMENT, SWIZZLES[self.swizzle].repeat_bytes)
        return SMEM_ALIGNMENT


@functools.lru_cache(maxsize=1024)  # as geometry.plan
def _tile_of(arguments: EncodeArguments) -> tuple[int, TileMatrix, int]:
    plan = geometry.plan(arguments)
    return plan.smem_bytes, tile_matrix(plan) or NO_MATRIX, arguments.type_row.element_bits


def tile_matrix(plan: TilePlan) -> TileMatrix | None:
    """Return a tile as a matrix; None for rank 1, or with more than two extents over 1.

    A third extent over 1 counts as columns of spans if its stride in global memory equals the bytes
    of a row of the box.
    """
    args, counts = plan.arguments, plan.counts
    element_bytes = args.type_row.element_bits // 8  # 0 of packed types
    if plan.unit_bytes or not element_bytes:
        return None
    columns = 1
    if args.kind == "tiled":
        axes = [d for d in range(len(counts) - 1, 0, -1) if counts[d] > 1]
        # a lone such dimension beside one of extent 1 is the rows of a dense matrix
        if axes and axes[0] > 1 and (len(axes) > 1 or args.global_dim[1] > 1):
            step_bytes = plan.steps[axes[0]] * args.global_strides[axes[0] - 1]
            if step_bytes == plan.line_bytes:  # to the bytes right after the row of the box
                columns = counts[axes.pop(0)]
        if len(counts) < 2 or len(axes) > 1:
            return None
    rows = plan.lines // columns
    return TileMatrix(columns, rows, plan.line_bytes, plan.pitch_bytes, element_bytes)
