"""Where the 128 bytes of a map lie for launchers: aligned slots, many of them in one array.

A slot is given out once and never again, so nothing that was handed out can change. The array lives
as long as one of its slots, or of the arrays made of them.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Slot", "aligned_bytes", "take_slot"]

MAP_BYTES = 128
ALIGNMENT_BYTES = 128  # alignas of CUtensorMap in CUDA 13's cuda.h (64 in the documents)
SLOTS_AT_ONCE = 32

_map = struct.Struct(f"<Q{MAP_BYTES - 8}s")
_free: deque[Slot] = deque()


class Slot(NamedTuple):
    """128 bytes of an array, and their address."""

    room: NDArray[np.uint8]
    start: int
    address: int

    def array(self) -> NDArray[np.uint8]:
        """Give the 128 bytes; they keep the room alive."""
        return self.room[self.start : self.start + MAP_BYTES]


def take_slot(address: int, tail: bytes) -> Slot:
    """Write a map into a slot of its own: its address, then bytes 8..127."""
    while True:
        try:
            slot = _free.popleft()
            break
        except IndexError:
            _free.extend(_new_slots())
    _map.pack_into(slot.room.data, slot.start, address, tail)
    return slot


def _new_slots() -> Iterator[Slot]:
    room = aligned_bytes(SLOTS_AT_ONCE * MAP_BYTES)
    base = room.ctypes.data
    for start in range(0, room.size, MAP_BYTES):
        yield Slot(room, start, base + start)


def aligned_bytes(count: int) -> NDArray[np.uint8]:
    """Make an array of `count` bytes whose address is a multiple of 128."""
    room = np.zeros(count + ALIGNMENT_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT_BYTES
    return room[start : start + count]
