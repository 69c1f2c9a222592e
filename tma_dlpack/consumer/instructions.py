"""The two instructions that read shared memory through a matrix descriptor, as rows of facts."""

from __future__ import annotations

from dataclasses import dataclass

from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.limits import SWIZZLE_SPAN_BYTES

#: Bytes of K that one instruction multiplies, whatever the type: 16 elements of 16 bits.
K_STEP_BYTES = 32
#: Address and offsets are written in units of 16 bytes.
UNITS = 16

#: Bytes of one row of a swizzle atom, by TmaSwizzle; without one, of a core matrix (8 rows of 16).
SPAN_BYTES = (16, *SWIZZLE_SPAN_BYTES[1:])


@dataclass(frozen=True, slots=True)
class Field:
    """A bit field of a descriptor."""

    name: str
    first_bit: int
    bits: int

    def of(self, value: int) -> int:
        """Return the field's number in the 64 bits of a descriptor."""
        return value >> self.first_bit & (1 << self.bits) - 1

    @property
    def place(self) -> str:
        """The bits, as PTX writes them.

        >>> Field("start address", 0, 14).place
        '0..13'
        """
        last = self.first_bit + self.bits - 1
        return f"{self.first_bit}..{last}" if self.bits > 1 else str(self.first_bit)


@dataclass(frozen=True, slots=True)
class Instruction:
    """What an instruction can read, and the fields of its descriptor.

    Attributes
    ----------
    name : str
    capabilities : tuple of int
        Major compute capabilities of the GPUs that have it.
    fields : tuple of Field
        Every field of its 64-bit descriptor, the layout type last; other bits are 0.
    layout_types : dict
        Swizzle -> the number in the field "layout type".
    fixed : int
        The number in the field "fixed"; 0 where there is none.
    mn_bits : tuple of int
        Sizes of the elements that it can read MN-major, bits.
    pattern_aligned : bool
        Whether only tiles at the start of the swizzle pattern are accepted.
    sure : str
        How sure these facts are: measured or documented.
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


START = Field("start address", 0, 14)
LEADING = Field("leading byte offset", 16, 14)
STRIDE = Field("stride byte offset", 32, 14)
FIXED = Field("fixed", 46, 3)
BASE = Field("base offset", 49, 3)

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
            Field("leading dimension mode", 52, 1),
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
#: The map data types that tensor cores multiply, and the operand types that they hold.
OPERAND_TYPES: dict[TensorMapDataType, str] = {
    _T.FLOAT16: "f16",
    _T.BFLOAT16: "bf16",
    _T.TFLOAT32: "tf32",
    _T.TFLOAT32_FTZ: "tf32",
    _T.UINT8: "8 bits: e4m3, e5m2, s8 or u8, as the instruction says",
}


def atom_rows(swizzle: TmaSwizzle) -> int:
    """Return the rows of a swizzle atom."""
    return 4 if swizzle is TmaSwizzle.bytes128_atom_32B else 8


def encoded(offset_bytes: int) -> int:
    """Write an address or an offset as descriptors do: PTX's matrix-descriptor-encode.

    >>> encoded(1024)
    64
    """
    return (offset_bytes & 0x3FFFF) // UNITS
