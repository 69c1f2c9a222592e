"""Who waited for which barrier and phase, and which copy filled what, in steps of the run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_WARP = 32
_MOST = 20_000  # events that are kept; a run of millions of steps shows its beginning


class TimelineRow(NamedTuple):
    """What one actor does for some time; `end` is None where it never ends.

    `actor` is a warp, or a barrier with what it fills; `kind` is "wait" or "copy"; `about` says
    what, with the line of the PTX. Bars of one `key` belong together: a wait, and the copy that
    ends it.
    """

    actor: str
    start: float
    end: float | None
    kind: str = "run"
    label: str = ""
    about: str = ""
    fault: bool = False
    key: str = ""


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
        self.events: list[TimelineRow] = []
        self.waiting: dict[tuple[int, int, int], Open] = {}  # by block, barrier, warp
        self._filling: dict[int, TimelineRow] = {}

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
        barrier = load.barrier
        self._filling[id(load)] = TimelineRow(
            f"{name_of(load.block)}, barrier {barrier.offset:#x}", g.machine.steps, None, "copy",
            "load", f"{load.what}, line {g.code.line}", key=_key(barrier, barrier.phase),
        )  # fmt: skip

    def filled(self, load: Any) -> None:
        """Note that all of a load has landed."""
        self._add(self._filling.pop(id(load))._replace(end=load.machine.steps))

    def stores(self, g: Any, what: str, store: Any) -> None:
        """Note the issue of a bulk store."""
        self._filling[id(store)] = TimelineRow(
            f"{name_of(g.block)}, stores of warp {int(g.lanes[0]) // _WARP}", g.machine.steps, None,
            "copy", "store", f"{what}, line {g.code.line}",
        )  # fmt: skip

    def stored(self, store: Any) -> None:
        """Note that global memory is written."""
        self._add(self._filling.pop(id(store))._replace(end=store.machine.steps))

    def rows(self) -> tuple[TimelineRow, ...]:
        """Return all events; what is open never ended."""
        waits = [_of_wait(found, key[2], None) for key, found in self.waiting.items()]
        return tuple(sorted([*self.events, *self._filling.values(), *waits], key=_begin))

    def _add(self, event: TimelineRow) -> None:
        if len(self.events) < _MOST:
            self.events.append(event)


def _begin(event: TimelineRow) -> float:
    return event.start


def _key(barrier: Any, phase: int) -> str:
    return f"{barrier.block.ctaid} {barrier.offset:#x} {phase}"


def _of_wait(found: Open, warp: int, end: int | None) -> TimelineRow:
    barrier = found.barrier
    about = f"waits for phase {found.phase} of barrier {barrier.offset:#x}"
    if barrier.block is not found.block:
        about += f" of {name_of(barrier.block)}"
    return TimelineRow(
        f"{name_of(found.block)}, warp {warp}", found.begin, end, "wait",
        f"{barrier.offset:#x} phase {found.phase}", f"{about}, line {found.code.line}",
        fault=end is None, key=_key(barrier, found.phase),
    )  # fmt: skip
