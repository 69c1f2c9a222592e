"""`MatrixDescriptor`: the 64 bits that describe an operand in shared memory, and their meaning.

An operand consists of atoms. An atom is 8 rows of 16 bytes (a core matrix), or of 32, 64 or 128
bytes (the span of the swizzle). The rows of a K-major operand step along M or N; the rows of an
MN-major operand step along K. The leading and the stride byte offset are distances from the start
of an atom to the start of the next atom, each in one direction:

=========  ========  ==============================  ===============================
major      swizzle   leading byte offset             stride byte offset
=========  ========  ==============================  ===============================
K          none      to the next 16 bytes of K       to the next 8 rows of M or N
K          32..128   not read                        to the next 8 rows of M or N
MN         none      to the next 8 rows of K         to the next 16 bytes of M or N
MN         32..128   to the next span of M or N      to the next 8 rows of K
=========  ========  ==============================  ===============================

Source: PTX ISA, wgmma and tcgen05, "strides" and "canonical layouts".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.consumer.operand import (
    BASE,
    FIXED,
    INSTRUCTIONS,
    K_STEP_BYTES,
    LEADING,
    OPERAND_TYPES,
    SPAN_BYTES,
    STRIDE,
    UNITS,
    Instruction,
    Major,
    atom_rows,
    encoded,
)
from tma_dlpack.geometry import IntArray, swizzle_offset
from tma_dlpack.public import Drawn, opaque, public, untraced
from tma_dlpack.tables.coerce import counted, integer_of
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.errors import argument_error, bad_value, sealed

#: (instruction, swizzle) -> the bits of the descriptor that do not depend on the tile: the fields
#: "layout type" and "fixed".
_CONSTANT_BITS = {
    (row.name, swizzle): row.fixed << FIXED.first_bit | number << row.fields[-1].first_bit
    for row in INSTRUCTIONS.values()
    for swizzle, number in row.layout_types.items()
}

OFFSET_MEANINGS = {
    # (major, whether there is a swizzle): meanings of (leading byte offset, stride byte offset)
    ("K", False): ("to the next 16 bytes of K", "to the next 8 rows of M or N"),
    ("K", True): ("not read with a swizzle", "to the next 8 rows of M or N"),
    ("MN", False): ("to the next 8 rows of K", "to the next 16 bytes of M or N"),
    ("MN", True): ("to the next span of M or N", "to the next {atom} rows of K"),
}


@public
@sealed
@dataclass(frozen=True, slots=True)
class MatrixDescriptor(Drawn):
    """The matrix descriptor of a tile in shared memory, for `wgmma` or `tcgen05.mma`.

    The function `matrix_descriptor` returns such a descriptor. `value` is the operand of one
    instruction, which multiplies `k_elements` elements along K. ``advance(1)`` returns the
    descriptor for the next instruction.

    Attributes
    ----------
    instruction : {"wgmma", "tcgen05"}
    major : {"K", "MN"}
        Dimension that is contiguous in shared memory.
    data_type : TensorMapDataType
    swizzle : TmaSwizzle
    leading_byte_offset, stride_byte_offset : int
        Bytes from an atom to the next atom in one direction. ``print(descriptor)`` shows the
        direction of each offset.
    base_offset : int
        Always 0, because TMA and wgmma both swizzle by the absolute address. The PTX ISA's formula
        ``(pattern start >> 7) & 7`` gives wrong products if the address is not a multiple of the
        pattern's size [measured, H200, driver 580.159.04, 2026-11-21].
    mn_elements : int
        Number of elements along M or N in the tile. One wgmma multiplies 64 elements along M, and 8
        to 256 along N.
    k_starts : tuple of int
        Shared-memory addresses in bytes where the K steps begin, from this descriptor's step to the
        last step of the tile.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((128, 64), np.float16), (64, 64), swizzle="bytes128")
    >>> d = tma.matrix_descriptor(tm)
    >>> hex(d.value), d.stride_byte_offset, d.k_elements, hex(d.advance(1).value)
    ('0x4000004000010000', 1024, 16, '0x4000004000010002')
    """

    instruction: str
    major: Major
    data_type: TensorMapDataType
    swizzle: TmaSwizzle
    leading_byte_offset: int
    stride_byte_offset: int
    base_offset: int
    mn_elements: int
    k_starts: tuple[int, ...]

    @property
    def start_address(self) -> int:
        """Address that the operand's first byte would have in shared memory without a swizzle."""
        return self.k_starts[0]

    @property
    def layout_type(self) -> int:
        """The number in the descriptor's field "layout type", which encodes the swizzle."""
        return self._row.layout_types[self.swizzle]

    @property
    def element_bytes(self) -> int:
        """Size of an element in bytes."""
        return DATA_TYPES[self.data_type].element_bytes

    @property
    def k_elements(self) -> int:
        """Number of elements along K that one instruction multiplies; they take 32 bytes."""
        return K_STEP_BYTES // self.element_bytes

    @property
    def k_steps(self) -> int:
        """Number of instructions that multiply the tile along K, from this descriptor on."""
        return len(self.k_starts)

    @property
    @untraced
    def value(self) -> int:
        """The descriptor as a 64-bit integer, which is an operand of the instruction."""
        return (
            _CONSTANT_BITS[self.instruction, self.swizzle]
            | encoded(self.k_starts[0])
            | encoded(self.leading_byte_offset) << LEADING.first_bit
            | encoded(self.stride_byte_offset) << STRIDE.first_bit
            | self.base_offset << BASE.first_bit
        )

    @opaque
    def advance(self, k_steps: int = 1, *, mn_elements: int = 0) -> MatrixDescriptor:
        """Return the descriptor of a part of the tile that starts later along K, or along M or N.

        Parameters
        ----------
        k_steps : int
            Number of K steps to skip, from 0 to the attribute `k_steps` - 1.
        mn_elements : int
            Number of elements along M or N to skip. For a K-major tile, this must be a multiple
            of 8. For an MN-major tile, it must be a multiple of the number of elements in a span.
            For example, a tile of 128 rows of M needs two wgmma instructions, with mn_elements 0
            and 64.

        Returns
        -------
        MatrixDescriptor

        Raises
        ------
        TmaPreconditionError
            If the new start is outside of the tile, or if it is not the start of an atom.
        """
        steps = integer_of(k_steps)
        if steps is None or not 0 <= steps < self.k_steps:
            last = self.k_steps - 1
            must = f"be 0..{last}: the tile has {self.k_steps} steps from here"
            raise bad_value("k_steps", k_steps, must, f"pass k_steps={last} or less")
        skipped = integer_of(mn_elements)
        atom = self._mn_atom
        if skipped is None or skipped % atom or not 0 <= skipped < self.mn_elements:
            must = f"be a multiple of {atom}, less than the {self.mn_elements} of the tile"
            fix = f"pass a multiple of {atom}, the elements of an atom"
            raise bad_value("mn_elements", mn_elements, must, fix)
        # Bytes to the next atom along M or N; see the table in the docstring of this module.
        leads = self.major == "MN" and self.swizzle is not TmaSwizzle.none
        step_bytes = self.leading_byte_offset if leads else self.stride_byte_offset
        moved = skipped // atom * step_bytes
        starts = tuple(start + moved for start in self.k_starts[steps:])
        return replace(self, mn_elements=self.mn_elements - skipped, k_starts=starts)

    @opaque
    def read(self, smem: object) -> npt.NDArray[Any]:
        """Return the operand that the tensor core reads from shared memory, as an array.

        The method computes the addresses from the descriptor of each K step, as the canonical
        layouts of the PTX ISA define them. It does not use the tensor map. The descriptor is
        correct if the result equals the tile.

        Parameters
        ----------
        smem : uint8 array
            Shared memory from address 0 on, such as `Tile.smem`.

        Returns
        -------
        array (mn_elements, K) if K-major, (K, mn_elements) if MN-major
            The elements from this K step to the end of the tile, with the dtype of `Tile.array`
            (uint16 for bfloat16).

        Raises
        ------
        TmaPreconditionError
            If `smem` is not a one-dimensional uint8 array, or does not contain the whole operand.

        Examples
        --------
        >>> import numpy as np, tma_dlpack as tma
        >>> x = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
        >>> tm = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
        >>> smem = tma.load_tile(tm, (0, 0)).smem
        >>> bool((tma.matrix_descriptor(tm).read(smem) == x).all())
        True
        """
        # The shape of each entry of `steps` is (mn, k, element_bytes), so axis 1 is K.
        memory = _bytes_of(smem)
        steps = [
            _operand(self.advance(n), self.advance(n).value, memory) for n in range(self.k_steps)
        ]
        seen = np.concatenate(steps, axis=1).view(DATA_TYPES[self.data_type].numpy)[..., 0]
        return seen if self.major == "K" else np.ascontiguousarray(seen.T)

    @property
    def _row(self) -> Instruction:
        return INSTRUCTIONS[self.instruction]

    @property
    def _mn_atom(self) -> int:
        """Number of elements along M or N in an atom."""
        return 8 if self.major == "K" else SPAN_BYTES[self.swizzle] // self.element_bytes

    @opaque
    def __str__(self) -> str:
        leads, strides = OFFSET_MEANINGS[self.major, self.swizzle is not TmaSwizzle.none]
        meanings = {
            "start address": f"{self.start_address:#x} bytes",
            "leading byte offset": f"{self.leading_byte_offset} bytes, {leads}",
            "stride byte offset": f"{self.stride_byte_offset} bytes, "
            + strides.format(atom=atom_rows(self.swizzle)),
            "layout type": f"swizzle {self.swizzle.name}",
        }
        # For example, "8 bits: e4m3, ..." becomes "8 bits".
        name, k = OPERAND_TYPES[self.data_type].partition(":")[0], self.k_steps * self.k_elements
        starts = ", ".join(f"{start:#x}" for start in self.k_starts[:8])
        more = f" and {self.k_steps - 8} more" if self.k_steps > 8 else ""
        return "\n".join(
            [
                f"{self.instruction} matrix descriptor {self.value:#018x}: {self.major}-major",
                *(
                    f"  bits {f.place:<7}{f.name:<23}{f.of(self.value):#6x}   "
                    f"{f.about or meanings[f.name]}"
                    for f in self._row.fields
                ),
                f"operand of {name}: {self.mn_elements} of M or N, {k} of K in "
                f"{counted(self.k_steps, 'step')} of {self.k_elements}",
                f"steps start at {starts}{more}",
                self._row.sure,
            ]
        )


def _bytes_of(smem: object) -> npt.NDArray[np.uint8]:
    is_array = issubclass(type(smem), np.ndarray)
    if not is_array or smem.dtype != np.uint8 or smem.ndim != 1:  # type: ignore[attr-defined]
        must = "be a one-dimensional uint8 array, shared memory from address 0 on"
        raise bad_value("smem", smem, must, "pass load_tile(tensor_map, coords).smem")
    return smem  # type: ignore[return-value]


def _operand(
    of: MatrixDescriptor, value: int, memory: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Return the operand of one K step, whose descriptor is `value`.

    The result is bytes of shape (mn, k, element_bytes).
    """
    size = of.element_bytes
    address = operand_addresses(
        of.instruction, value, of.major, of.mn_elements, of.k_elements, size
    )
    end = int(address.max()) + size
    if end > len(memory):
        must = f"hold the operand, which ends at {end:#x}"
        found, fix = f"smem has {len(memory):#x} bytes", "pass the whole tile, from address 0 on"
        raise argument_error("smem", found, must, fix)
    seen: npt.NDArray[np.uint8] = memory[address[..., None] + np.arange(size)]
    return seen


# The results are cached, because a kernel uses few different descriptors, and the simulator reads
# each of them many times.
@functools.lru_cache(maxsize=512)
def operand_addresses(
    instruction: str, value: int, major: Major, mn: int, k: int, element_bytes: int
) -> IntArray:
    """Return the shared-memory address of each element (mn, k) of a descriptor's operand.

    The table has the canonical layouts of the PTX ISA: the offset in bytes of the element at
    (m, k), before the swizzle. LBO and SBO are the descriptor's leading and stride byte offset. T
    is the number of elements in 16 bytes, and W is span / 16. The last term of each row counts
    elements: multiply it by the size of an element.

    ========  =====================================================================
    K         (m % 8) span + (m / 8) SBO + (k / T) (LBO; swizzled: 16) + k % T
    MN        (k % 8) span + (k / 8) SBO + (m / T % W) 16 + (m / T / W) LBO + m % T
    MN none   (k % 8) 16 + (k / 8) LBO + (m / T) SBO + m % T
    ========  =====================================================================

    Raises
    ------
    KeyError
        If the instruction does not support the layout type in the descriptor.
    """
    row, size = INSTRUCTIONS[instruction], element_bytes
    fields = {field.name: field.of(value) for field in row.fields}
    start, lbo, sbo = (
        fields[name] * UNITS
        for name in ("start address", "leading byte offset", "stride byte offset")
    )
    swizzle = {number: swizzle for swizzle, number in row.layout_types.items()}[
        fields["layout type"]
    ]
    span, rows = SPAN_BYTES[swizzle], atom_rows(swizzle)
    # These are T and W of the table: elements in 16 bytes, and pieces of 16 bytes in a span.
    per_unit, wide = UNITS // size, span // UNITS

    at_m: IntArray = np.arange(mn, dtype=np.int64)[:, None]
    at_k: IntArray = np.arange(k, dtype=np.int64)[None, :]
    if major == "K":
        to_next = lbo if swizzle is TmaSwizzle.none else UNITS
        offset = at_m % 8 * span + at_m // 8 * sbo
        offset = offset + at_k // per_unit * to_next + at_k % per_unit * size
    else:
        unit, inside = at_m // per_unit, at_m % per_unit * size
        if swizzle is TmaSwizzle.none:
            offset = at_k % 8 * span + at_k // 8 * lbo + unit * sbo + inside
        else:
            offset = at_k % rows * span + at_k // rows * sbo
            offset = offset + unit % wide * UNITS + unit // wide * lbo + inside
    # The swizzle depends on the absolute address, not on the descriptor's start address.
    addresses: IntArray = np.asarray(swizzle_offset(swizzle, start + offset))
    addresses.flags.writeable = False
    return addresses
