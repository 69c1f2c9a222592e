"""`Timeline`, which records waits at mbarriers and asynchronous copies.

All times are in steps, which are executed instructions (see `KernelRun.steps`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.kernel.core import picture

_WARP = 32
# Maximum number of recorded events. Later events are not recorded.
_MOST = 20_000


class Open(NamedTuple):
    """A wait of a warp at an mbarrier; the wait has begun at step `begin` and has not ended."""

    barrier: Any
    phase: int
    code: Any
    lanes: Any
    block: Any
    begin: int


def name_of(block: Any) -> str:
    """Return the name of a block in the timeline: its index (x, y, z) without zeros at the end."""
    x, y, z = block.ctaid
    return f"block {x},{y},{z}" if z else f"block {x},{y}" if y else f"block {x}"


class Timeline:
    """Recorder of the events of a run."""

    def __init__(self) -> None:
        self.events: list[picture.TimelineRow] = []
        # (id of the block, id of the mbarrier, warp) -> wait that has not ended.
        self.waiting: dict[tuple[int, int, int], Open] = {}
        self._filling: dict[int, picture.TimelineRow] = {}

    def waits(self, g: Any, barrier: Any, lanes: Any) -> None:
        """Record that threads test a barrier whose phase has not ended."""
        for warp in np.unique(lanes // _WARP).tolist():
            key = id(g.block), id(barrier), warp
            if key not in self.waiting:
                self.waiting[key] = Open(
                    barrier, barrier.phase, g.code, lanes, g.block, g.machine.steps
                )

    def passes(self, g: Any, barrier: Any, lanes: Any) -> None:
        """Record that threads have seen the end of a barrier's phase, so their wait has ended."""
        if not self.waiting:
            return
        for warp in np.unique(lanes // _WARP).tolist():
            found = self.waiting.pop((id(g.block), id(barrier), warp), None)
            if found is not None:
                self._add(_of_wait(found, warp, g.machine.steps))

    def fills(self, g: Any, load: Any) -> None:
        """Record the issue of a load."""
        barrier = load.barrier
        self._filling[id(load)] = picture.TimelineRow(
            f"{name_of(load.block)}, load {barrier.offset:#x}", g.machine.steps, None, "copy",
            "load", f"{load.what}, line {g.code.line}", key=_key(barrier, barrier.phase),
        )  # fmt: skip

    def filled(self, load: Any) -> None:
        """Record that a load has written all its bytes."""
        self._add(self._filling.pop(id(load))._replace(end=load.machine.steps))

    def stores(self, g: Any, what: str, store: Any) -> None:
        """Record the issue of a bulk store."""
        self._filling[id(store)] = picture.TimelineRow(
            f"{name_of(g.block)}, store {int(g.lanes[0]) // _WARP}", g.machine.steps, None,
            "copy", "store", f"{what}, line {g.code.line}",
        )  # fmt: skip

    def stored(self, store: Any) -> None:
        """Record that a bulk store has written global memory."""
        self._add(self._filling.pop(id(store))._replace(end=store.machine.steps))

    def rows(self) -> tuple[picture.TimelineRow, ...]:
        """Return all events, sorted by their start.

        If a wait or a copy has not ended, its `end` is None.
        """
        waits = [_of_wait(found, key[2], None) for key, found in self.waiting.items()]
        return tuple(sorted([*self.events, *self._filling.values(), *waits], key=_begin))

    def _add(self, event: picture.TimelineRow) -> None:
        if len(self.events) < _MOST:
            self.events.append(event)


def _begin(event: picture.TimelineRow) -> float:
    return event.start


def _key(barrier: Any, phase: int) -> str:
    return f"{barrier.block.ctaid} {barrier.offset:#x} {phase}"


def _of_wait(found: Open, warp: int, end: int | None) -> picture.TimelineRow:
    barrier = found.barrier
    about = f"waits for phase {found.phase} of barrier {barrier.offset:#x}"
    if barrier.block is not found.block:
        about += f" of {name_of(barrier.block)}"
    return picture.TimelineRow(
        f"{name_of(found.block)}, warp {warp}", found.begin, end, "wait",
        f"{barrier.offset:#x} phase {found.phase}", f"{about}, line {found.code.line}",
        fault=end is None, key=_key(barrier, found.phase),
    )  # fmt: skip
