"""What was asked of `matrix_descriptor`, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tma_dlpack.consumer.instructions import K_STEP_BYTES, Instruction
from tma_dlpack.consumer.tile_matrix import TileMatrix, tile_matrix
from tma_dlpack.geometry import SMEM_ALIGNMENT, SWIZZLES
from tma_dlpack.types.enums import TmaSwizzle

if TYPE_CHECKING:
    from tma_dlpack.tensor_map.map import TensorMap

__all__ = ["ADDRESS_END", "Operand"]

ADDRESS_END = 1 << 18  # a descriptor's address has 14 bits, in units of 16 bytes


@dataclass(frozen=True, slots=True)
class Operand:
    """What was asked of `matrix_descriptor`."""

    tensor_map: TensorMap
    instruction: Instruction
    major: str
    smem_address: int

    @property
    def matrix(self) -> TileMatrix | None:
        """The tile as a matrix."""
        return tile_matrix(self.tensor_map)

    @property
    def tile(self) -> TileMatrix:
        """The tile as a matrix, where it is one."""
        found = self.matrix
        assert found is not None  # rows that ask for it need MATRIX_RANK
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
        """Name of the tensor's own type, such as float8_e4m3fn; empty where there is no tensor."""
        return str(getattr(self.tensor_map.tensor, "dtype", "")).rpartition(".")[2]

    @property
    def rows_step(self) -> int:
        """What the rows of the tile are a multiple of: an atom's, or a K step's."""
        return 8 if self.major == "K" else self.k_elements

    @property
    def address_step(self) -> int:
        """What the tile's address is a multiple of."""
        if self.instruction.pattern_aligned:
            return max(SMEM_ALIGNMENT, SWIZZLES[self.swizzle].repeat_bytes)
        return SMEM_ALIGNMENT
