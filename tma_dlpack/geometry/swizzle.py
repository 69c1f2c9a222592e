"""Swizzles: from an unswizzled shared-memory address to the swizzled one."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt

from tma_dlpack.tables.enums import TmaSwizzle

Address = TypeVar("Address", int, npt.NDArray[Any])

#: Alignment of a tile in shared memory, bytes [measured: with less, copies fault].
SMEM_ALIGNMENT = 128


class Swizzle(NamedTuple):
    """How a swizzle changes a shared address: ``a ^ ((a >> right & mask) << left)`` per term."""

    span_bytes: int  # chunks move within a span; also the least pitch of a row
    repeat_bytes: int  # the pattern repeats after so many bytes
    granule_bytes: int  # bytes that always stay together
    terms: tuple[tuple[int, int, int], ...]  # right, mask, left


#: [measured] for the first four; 128B_ATOM_32B and its flip are published for sm_120, and
#: 128B_ATOM_64B is documented, not measured (PTX ISA, swizzling modes).
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
    """Give the swizzled address of a byte in shared memory.

    `address` is absolute, in the shared memory of the thread block, not relative to the tile. The
    function is its own inverse.

    >>> hex(swizzle_offset(TmaSwizzle.bytes128, 0x480))  # row 9 mod 8 = 1: chunk 0 moves to 1
    '0x490'
    """
    swizzled = address
    for right, mask, left in SWIZZLES[swizzle].terms:
        swizzled = swizzled ^ ((address >> right & mask) << left)
    return swizzled
