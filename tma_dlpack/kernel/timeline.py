"""Who waited for which barrier and phase, and which copy filled what, in steps of the run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_WARP = 32
_MOST = 20_000  # events that are kept; a run of millions of steps shows its beginning


class Event(NamedTuple):
    """One bar of the timeline; `end` is None where it never ended.

    `row` is a warp, "block (0, 0, 0), warp 1", or a barrier with what fills its stage.
    """

    kind: str  # "wait", "load", "store"
    row: str
    text: str
    begin: int
    end: int | None
    line: int  # of the PTX


class Open(NamedTuple):
    """A warp that waits at a barrier since a step."""

    barrier: Any
    phase: int
    code: Any
    lanes: Any
    block: Any
    begin: int


def name_of(block: Any) -> str:
    """Return the name of a block in rows."""
    return f"block {block.ctaid}"


class Timeline:
    """Events of a run, in the order in which they end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.waiting: dict[tuple[int, int, int], Open] = {}  # by block, barrier, warp
        self._filling: dict[int, Event] = {}

    def waits(self, g: Any, barrier: Any, lanes: Any) -> None:
        """Note that threads look at a barrier whose phase has not ended."""
        for warp in np.unique(lanes // _WARP).tolist():
            key = id(g.block), id(barrier), warp
            if key not in self.waiting:
                self.waiting[key] = Open(
                    barrier, barrier.phase, g.code, lanes, g.block, g.machine.steps
                )

    def passes(self, g: Any, barrier: Any, lanes: Any) -> None:
        """Note that the wait of threads is over."""
        if not self.waiting:
            return
        for warp in np.unique(lanes // _WARP).tolist():
            found = self.waiting.pop((id(g.block), id(barrier), warp), None)
            if found is not None:
                self._add(_of_wait(found, warp, g.machine.steps))

    def fills(self, g: Any, load: Any) -> None:
        """Note the issue of a load."""
        row = f"{name_of(load.block)}, barrier {load.barrier.offset:#x}"
        event = Event("load", row, load.what, g.machine.steps, None, g.code.line)
        self._filling[id(load)] = event

    def filled(self, load: Any) -> None:
        """Note that all of a load has landed."""
        self._add(self._filling.pop(id(load))._replace(end=load.machine.steps))

    def stores(self, g: Any, what: str, store: Any) -> None:
        """Note the issue of a bulk store."""
        row = f"{name_of(g.block)}, warp {int(g.lanes[0]) // _WARP}, stores"
        self._filling[id(store)] = Event("store", row, what, g.machine.steps, None, g.code.line)

    def stored(self, store: Any) -> None:
        """Note that global memory is written."""
        self._add(self._filling.pop(id(store))._replace(end=store.machine.steps))

    def rows(self) -> tuple[Event, ...]:
        """Return all events; what is open never ended."""
        waits = [_of_wait(found, key[2], None) for key, found in self.waiting.items()]
        return tuple(sorted([*self.events, *self._filling.values(), *waits], key=_begin))

    def _add(self, event: Event) -> None:
        if len(self.events) < _MOST:
            self.events.append(event)


def _begin(event: Event) -> int:
    return event.begin


def _of_wait(found: Open, warp: int, end: int | None) -> Event:
    row = f"{name_of(found.block)}, warp {warp}"
    text = f"waits for phase {found.phase} of barrier {found.barrier.offset:#x}"
    if found.barrier.block is not found.block:
        text += f" of {name_of(found.barrier.block)}"
    return Event("wait", row, text, found.begin, end, found.code.line)
