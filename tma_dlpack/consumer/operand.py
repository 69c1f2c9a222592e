"""The arguments of `matrix_descriptor`, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tma_dlpack.consumer.instructions import K_STEP_BYTES, Instruction
from tma_dlpack.consumer.tile_matrix import TileMatrix, tile_matrix
from tma_dlpack.geometry import SMEM_ALIGNMENT, SWIZZLES
from tma_dlpack.tables.enums import TmaSwizzle

if TYPE_CHECKING:
    from tma_dlpack.tensor_map.map import TensorMap

ADDRESS_END = 1 << 18  # a descriptor's address has 14 bits, in units of 16 bytes


@dataclass(frozen=True, slots=True)
class Operand:
    """The arguments of `matrix_descriptor`, as the rows of `refusals` read them."""

    tensor_map: TensorMap
    instruction: Instruction
    major: str
    smem_address: int

    @property
    def matrix(self) -> TileMatrix | None:
        """The tile as a matrix; None if it is not one."""
        return tile_matrix(self.tensor_map)

    @property
    def tile(self) -> TileMatrix:
        """The tile as a matrix, for rows that need MATRIX_RANK."""
        found = self.matrix
        assert found is not None
        return found

    @property
    def swizzle(self) -> TmaSwizzle:
        """The map's swizzle."""
        return self.tensor_map.swizzle

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.tensor_map.arguments.type_row.element_bits

    @property
    def k_elements(self) -> int:
        """Elements of K in one instruction."""
        return K_STEP_BYTES * 8 // self.bits

    @property
    def dtype(self) -> str:
        """Name of the tensor's dtype, such as float8_e4m3fn; empty without a tensor."""
        return str(getattr(self.tensor_map.tensor, "dtype", "")).rpartition(".")[2]

    @property
    def rows_step(self) -> int:
        """What the rows of the tile must be a multiple of: those of an atom, or of a K step."""
        return 8 if self.major == "K" else self.k_elements

    @property
    def address_step(self) -> int:
        """What the tile's address must be a multiple of."""
        if self.instruction.pattern_aligned:
            return max(SMEM_ALIGNMENT, SWIZZLES[self.swizzle].repeat_bytes)
        return SMEM_ALIGNMENT
