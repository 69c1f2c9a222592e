"""Where the 128 bytes of a map lie for launchers: aligned slots, many of them in one array.

A slot is given out once and never again, so nothing that was handed out can change. The array lives
as long as one of its slots, or of the arrays made of them.
"""

from __future__ import annotations

import itertools
import struct
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tma_dlpack.types.limits import ADDRESS_BYTES, ALIGNMENT_BYTES, MAP_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SETTLING", "Slot", "aligned_bytes", "take_slot"]

ROOM_BYTES = 32 * MAP_BYTES

_map = struct.Struct(f"<Q{MAP_BYTES - ADDRESS_BYTES}s")

#: To be held by who settles on a slot. A finalizer may do so while this thread does.
SETTLING = threading.RLock()


class Slot(NamedTuple):
    """128 bytes of an array, and their address."""

    room: NDArray[np.uint8]
    start: int
    address: int

    def array(self) -> NDArray[np.uint8]:
        """Give the 128 bytes; they keep the room alive."""
        return self.room[self.start : self.start + MAP_BYTES]


class _Room:
    """The array that slots are being taken from."""

    def __init__(self) -> None:
        self.array = aligned_bytes(ROOM_BYTES)
        self.memory = self.array.data
        self.address = int(self.array.ctypes.data)
        self.starts = itertools.count(0, MAP_BYTES)


_room: _Room | None = None


def take_slot(address: int, tail: bytes) -> Slot:
    """Write a map into a slot of its own: its address, then bytes 8..127."""
    global _room
    room = _room
    # next() is atomic: other threads, and finalizers of this one, take others meanwhile
    while room is None or (start := next(room.starts)) >= ROOM_BYTES:
        room = _room = _Room()
    _map.pack_into(room.memory, start, address, tail)
    return Slot(room.array, start, room.address + start)


def aligned_bytes(count: int) -> NDArray[np.uint8]:
    """Make an array of `count` bytes, with nothing in it, whose address is a multiple of 128."""
    room = np.empty(count + ALIGNMENT_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT_BYTES
    return room[start : start + count]
