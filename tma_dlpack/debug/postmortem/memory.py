"""Decoders of objects in memory: the 64 bits of an mbarrier, and the 128 bytes of a tensor map.

NVIDIA does not publish the layout of an mbarrier. The layout below was measured in stopped kernels
on an H100 (driver 580.159.04, 2026-11-22). In two tests with 512 and 1,000 random states, all
decoded values were correct::

    bit  63     62 ........ 43  42  41 ...... 21  20 ....... 1  0
         phase  -(arrivals)     0   -(bytes)      -(count)      0
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tma_dlpack.debug.core import targets, tma
from tma_dlpack.debug.postmortem.dump import Dump, Grid
from tma_dlpack.debug.postmortem.results import BLOCK_SHIFT, FoundMap
from tma_dlpack.debug.postmortem.sass import signed

# largest number of arrivals, and largest absolute value of the pending bytes
MOST = (1 << 20) - 1


def offset_of(address: int) -> int:
    """Return the offset of a shared::cluster address in the shared memory of its block."""
    return address & (1 << BLOCK_SHIFT) - 1


@dataclass(frozen=True, slots=True, order=True)
class Word:
    """The state of an mbarrier; `arrivals` and `bytes` are the pending arrivals and bytes.

    >>> Word.decode(0x3fc001ffffe)
    Word(count=1, arrivals=0, bytes=8192, phase=0, is_initialised=True)
    """

    count: int
    arrivals: int
    bytes: int
    phase: int
    is_initialised: bool = True

    @classmethod
    def decode(cls, word: int) -> Word:
        """Decode 64 bits; `bytes` is negative if bytes came before an expect_tx announced them."""
        # the hardware stores negated numbers, and counts up
        count = -(word >> 1) & MOST
        return cls(
            count=count,
            arrivals=-(word >> 43) & MOST,
            bytes=signed(-(word >> 21) & 2 * MOST + 1, 21),
            phase=word >> 63,
            is_initialised=count != 0,
        )

    @classmethod
    def at(cls, shared: memoryview, offset: int) -> Word | None:
        """Return the state of the barrier at an offset, or None if the file lacks its 8 bytes."""
        if offset % 8 or offset + 8 > len(shared):
            return None
        return cls.decode(int.from_bytes(shared[offset : offset + 8], "little"))


def looks_like_one(word: Any, most_arrivals: int) -> Any:
    """Return whether 64 bits can be an mbarrier in use; an array gives a result for each item."""
    count, arrivals = -(word >> 1) & MOST, -(word >> 43) & MOST
    # a phase ends when no arrivals and no bytes are pending, so an mbarrier in use has pending
    # arrivals or pending bytes
    is_between = (arrivals != 0) | (word >> 21 & 2 * MOST + 1 != 0)
    # bits 0 and 42 are always 0
    has_form = (word & 1 == 0) & (word >> 42 & 1 == 0)
    return has_form & is_between & (count >= 1) & (count <= most_arrivals) & (arrivals <= count)


# -- tensor maps among the parameters --------------------------------------------------------------

# minimum alignment of a CUtensorMap in bytes; CUDA 13 and later align it to 128 bytes
_ALIGNMENT = 64
# maximum number of bits of a tensor's address; alignment of this address in bytes; the bytes of a
# box's innermost row are a multiple of the last number
_ADDRESS_BITS, _ADDRESS_UNIT, _INNER_BYTES = 57, 16, 16
# The architecture for which the second half of a map was measured. This half has 16 words of 32
# bits: the size of the box in bytes, 0, one of `_REPEATS`, then zeros.
_MEASURED = "sm_90"
# maximum bytes of a box, and possible values of the third word in a map's second half
_MOST_BOX_BYTES, _REPEATS = 233_472, (0, 16, 256, 512, 1024)


def read_map(data: bytes, target: str) -> tuple[tma.TensorMap | None, str]:
    """Return (map, "") for the 128 bytes of a map; (None, reason) for bytes that are not a map."""
    try:
        found = tma.TensorMap.from_bytes(data, target)
        # each of these attributes raises an error if no copy can use the map
        _ = found.tx_bytes, found.smem_bytes
        return found, ""
    except tma.TmaError as error:
        return None, " ".join(str(error).split("\n")[0].split())


def maps_of(dump: Dump, grid: Grid) -> tuple[FoundMap, ...]:
    """Return the maps among a kernel's parameters."""
    name = dump.kernel_of(grid).name
    return _maps(name, grid.parameters, int(grid.row["parameters"]), dump.target)


@lru_cache(maxsize=256)
def _maps(kernel: str, parameters: bytes, first: int, target: str) -> tuple[FoundMap, ...]:
    # a map's offset in the constant bank is aligned, and the parameters begin at offset `first` of
    # the bank
    found = []
    start = -first % _ALIGNMENT
    while start + targets.MAP_BYTES <= len(parameters):
        data = parameters[start : start + targets.MAP_BYTES]
        tensor_map = read_map(data, target)[0] if any(data) else None
        if tensor_map is not None and _is_plausible(tensor_map, data, target):
            found.append(FoundMap(tensor_map, kernel, start))
            start += targets.MAP_BYTES
        else:
            start += _ALIGNMENT
    return tuple(found)


def _is_plausible(found: tma.TensorMap, data: bytes, target: str) -> bool:
    """Return whether decoded bytes are really a map; other data rarely passes all these tests."""
    address = found.global_address
    box_bytes, unused, repeat, *others = struct.unpack("<16I", data[targets.MAP_BYTES // 2 :])
    is_drivers = box_bytes <= _MOST_BOX_BYTES and repeat in _REPEATS and not any((unused, *others))
    inner = found.box_dim[0] if found.kind == "tiled" else found.channels_per_pixel or 0
    return bool(
        address
        and address % _ADDRESS_UNIT == 0
        and address >> _ADDRESS_BITS == 0
        and inner * found.arguments.type_row.element_bits % (8 * _INNER_BYTES) == 0
        and (is_drivers or target != _MEASURED)
    )
