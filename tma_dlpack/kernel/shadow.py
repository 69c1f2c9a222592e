"""`Shadow`, the last accesses to every byte of a memory region.

The arrays of a `Shadow` have one entry for each *unit*. At first a unit has 16 bytes. An access
with a smaller size or alignment splits all units into smaller units, and the recorded accesses are
copied to the smaller units. A recorded access is the number of an agent (see `order`) and a stamp
of 64 bits. In the stamp, `atomic` is set for atomic and other strong accesses::

    bit  63 ..... 26  25 ........ 6     5     4 .. 0
         clock        site (code)    atomic   lane
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
#: A part of a region, either as a range of bytes [first, last) or as an array of unit numbers.
Units = tuple[int, int] | IntArray

CLOCK_SHIFT: Final = 26
SITE_SHIFT: Final = 6
ATOMIC: Final = 32
LANE_BITS: Final = 31
# Size of a unit in bytes before the first split.
_LARGEST_UNIT = 16
#: Number of readers that are recorded for each unit of global memory. In shared memory, all readers
#: of a unit are recorded.
_GLOBAL_READERS = 2


class Shadow:
    """Last writer and last readers of each unit of the memory `raw`."""

    raw: npt.NDArray[np.uint8]
    is_shared: bool
    #: Size of a unit in bytes.
    unit: int
    is_written: bool
    writer: npt.NDArray[Any]
    stamp: npt.NDArray[Any]
    published: npt.NDArray[Any]

    def __init__(self, raw: npt.NDArray[np.uint8], is_shared: bool) -> None:
        self.raw, self.is_shared = raw, is_shared
        self.unit = _LARGEST_UNIT
        count = -(-len(raw) // _LARGEST_UNIT)
        self.is_written = False
        self.writer = np.zeros(count, np.int32)
        self.stamp = np.zeros(count, np.int64)
        # `published` is True for a unit that tensormap.cp_fenceproxy wrote and released.
        self.published = np.zeros(count, np.bool_)
        self._has_published = False
        # `_stamps` has the stamps of readers in rows, and each row is an array (units,). In shared
        # memory each reading agent has one row: `_row_of` maps the agent to its row, and `_agents`
        # maps the row to its agent. Global memory has _GLOBAL_READERS rows, and the first row has
        # the newest reader of each unit. For global memory, `_agents` has an array (units,) for
        # each row.
        self._row_of: dict[int, int] = {}
        self._agents: list[Any] = []
        self._stamps: list[IntArray] = []

    # -- units -----------------------------------------------------------------------------------

    def units(self, offsets: IntArray, size: int) -> IntArray:
        """Return an array (n, k): the numbers of the k units that each of n accesses touches.

        Each access has `size` bytes.
        """
        # The lowest set bit of `low` is the largest power of two that divides `size` and all
        # offsets.
        low = int(np.bitwise_or.reduce(offsets)) | size
        if low & (self.unit - 1):
            self._split(low & -low)
        first = offsets // self.unit
        return first[:, None] + np.arange(size // self.unit)

    def range(self, first: int, last: int) -> slice:
        """Return a slice of the unit numbers that cover the bytes [first, last)."""
        low = first | last
        if low & (self.unit - 1):
            self._split(low & -low)
        return slice(first // self.unit, last // self.unit)

    def index(self, where: Units) -> Any:
        """Convert a part of the region to an index into arrays such as `writer`."""
        return self.range(*where) if isinstance(where, tuple) else where

    def _split(self, unit: int) -> None:
        times = self.unit // unit
        self.unit = unit
        self.writer = np.repeat(self.writer, times)
        self.stamp = np.repeat(self.stamp, times)
        self.published = np.repeat(self.published, times)
        self._stamps = [np.repeat(stamps, times) for stamps in self._stamps]
        if not self.is_shared:
            self._agents = [np.repeat(agents, times) for agents in self._agents]

    # -- accesses --------------------------------------------------------------------------------

    def note_writes(self, agents: Any, units: Any, stamps: Any) -> None:
        """Record that `agents` are the last writers of `units`."""
        self.is_written = True
        self.writer[units], self.stamp[units] = agents, stamps
        if self._has_published:
            self.published[units] = False

    def publish(self, first: int, last: int) -> None:
        """Record that the last writes of the bytes [first, last) also released these bytes."""
        self._has_published = True
        self.published[self.range(first, last)] = True

    def note_reads(self, agents: IntArray, units: Any, stamps: Any) -> None:
        """Record reads of units.

        `agents` has either one reader for all units, or one reader for each row of `units`.
        """
        if self.is_shared:
            first = int(agents[0])
            if len(agents) == 1 or (agents == first).all():
                self._stamps[self._row(first)][units] = stamps
                return
            for agent in np.unique(agents).tolist():
                at = agents == agent
                self._stamps[self._row(agent)][units[at]] = stamps[at]
            return
        if not self._agents:
            for _ in range(_GLOBAL_READERS):
                self._agents.append(np.zeros(len(self.writer), np.int32))
                self._stamps.append(np.zeros(len(self.writer), np.int64))
        readers = agents[:, None] if len(agents) > 1 else agents[0]
        # Store the new reader in the first row. If the reader that was in the first row before is
        # another agent, move that reader to the second row.
        older = self._agents[0][units] != readers
        for array in (self._agents, self._stamps):
            array[1][units] = np.where(older, array[0][units], array[1][units])
        self._agents[0][units], self._stamps[0][units] = readers, stamps

    def _row(self, agent: int) -> int:
        row = self._row_of.get(agent)
        if row is None:
            row = self._row_of[agent] = len(self._stamps)
            self._agents.append(agent)
            self._stamps.append(np.zeros(len(self.writer), np.int64))
        return row

    def reads(self, units: Any) -> Iterator[tuple[npt.NDArray[np.int32], IntArray]]:
        """Yield (agents, stamps) of the readers of `units`, once for each row of `_stamps`."""
        for agents, stamps in zip(self._agents, self._stamps, strict=True):
            found = stamps[units]
            if self.is_shared:
                agents = np.broadcast_to(np.int32(agents), found.shape)
            else:
                agents = agents[units]
            yield agents, found
