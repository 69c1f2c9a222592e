"""A model of the mbarrier, and a player of the programs that use one.

`Barrier` is the state that PTX describes: a phase ends when as many threads have arrived as
`mbarrier.init` named and every announced byte is there. `Play` runs programs (threads, warps, copy
engines) on one axis of time and records what they did and every state of every barrier. A program
is a generator: what takes time it yields, what takes none it calls.

Times are ticks without a unit: which event comes before which is what the model shows, not how long
it takes. In how many steps the engine counts its bytes is not documented.

Source: PTX ISA, mbarrier; the outcomes of misuses are measured (H200, driver 580.159.04).

>>> full = Barrier.init(1).arrive(512)  # expect_tx: announce 512 bytes, and arrive
>>> full
Barrier(arrivals=1, pending=0, tx_bytes=512, phase=0)
>>> full.complete_tx(512)
Barrier(arrivals=1, pending=1, tx_bytes=0, phase=1)
>>> full.passes(0), full.complete_tx(512).passes(0)
(False, True)
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MOST = (1 << 20) - 1  # arrivals, and bytes in either direction
LATENCY = 6  # ticks from a load or store to its first byte


class LaunchFailedError(RuntimeError):
    """What ends a kernel with CUDA_ERROR_LAUNCH_FAILED (719) [measured]."""


class Barrier(NamedTuple):
    """The state of an mbarrier; each operation returns the next one.

    Attributes
    ----------
    arrivals : int
        How many of them end a phase.
    pending : int
        How many are still missing in this phase.
    tx_bytes : int
        Announced bytes that are still missing; negative where bytes came before they were
        announced.
    phase : int
        How many phases have ended. Its parity is what `wait` names.
    """

    arrivals: int
    pending: int
    tx_bytes: int = 0
    phase: int = 0

    @classmethod
    def init(cls, arrivals: int) -> Barrier:
        """Return the state after ``mbarrier.init``."""
        if not 1 <= arrivals <= MOST:
            raise LaunchFailedError(f"{arrivals} arrivals are not in 1..{MOST}")
        return cls(arrivals, arrivals)

    def arrive(self, tx_bytes: int = 0) -> Barrier:
        """Announce bytes, then arrive: ``mbarrier.arrive`` and ``mbarrier.arrive.expect_tx``."""
        if not self.pending:
            raise LaunchFailedError(f"more than {self.arrivals} arrivals in phase {self.phase}")
        return self._next(self.pending - 1, self.tx_bytes + tx_bytes)

    def complete_tx(self, tx_bytes: int) -> Barrier:
        """Count bytes that a copy has written."""
        return self._next(self.pending, self.tx_bytes - tx_bytes)

    def passes(self, parity: int) -> bool:
        """Return whether ``wait(barrier, parity)`` ends: the current phase has the other parity.

        The phase before the first one has parity 1: a fresh barrier lets ``wait(barrier, 1)`` pass.
        """
        return self.phase % 2 != parity

    def _next(self, pending: int, tx_bytes: int) -> Barrier:
        if abs(tx_bytes) > MOST:
            raise LaunchFailedError(f"{tx_bytes} pending bytes are beyond {MOST}")
        if pending or tx_bytes:
            return Barrier(self.arrivals, pending, tx_bytes, self.phase)
        return Barrier(self.arrivals, self.arrivals, 0, self.phase + 1)


# --- What programs do -----------------------------------------------------------------------------


class Do(NamedTuple):
    """Be busy for some ticks. Without a text nothing is drawn."""

    ticks: int
    text: str = ""
    style: str = "cell"
    line: int = -1  # of the code
    tile: int = -1
    slot: str = ""  # the part of shared memory that is read


class Wait(NamedTuple):
    """Wait until a barrier passes a parity."""

    barrier: str
    parity: int
    line: int = -1


Program = Generator["Do | Wait", None, None]


@dataclass(slots=True)
class Bar:
    """What one lane did in the ticks [begin, end); `end` is None of a wait that never ends.

    `wrong` is what went wrong: bytes that were read before they came, or a wait without end.
    """

    lane: str
    begin: int
    end: int | None
    act: Do | Wait
    wrong: str = ""


class Change(NamedTuple):
    """An operation on a barrier: when, on which, by which lane, in words, and the state after."""

    at: int
    barrier: str
    lane: str
    words: str
    state: Barrier


class Play:
    """Runs programs, and records bars and changes."""

    def __init__(self, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.now, self.lane = 0, ""
        self.bars: list[Bar] = []
        self.changes: list[Change] = []
        self.barriers: dict[str, Barrier] = {}
        self.memory: dict[str, dict[int, tuple[int, int]]] = {}  # slot -> piece -> tile, bytes
        self._free: dict[str, int] = {}  # engine -> when it is
        self._ready: list[tuple[int, int, str, Program, Bar | None]] = []
        self._waiting: list[tuple[str, Program, Bar]] = []
        self._count = 0

    def start(self, lane: str, program: Program, at: int | None = None) -> None:
        """Let a program begin, now or later."""
        self._push(self.now if at is None else at, lane, program, None)

    def run(self) -> None:
        """Go on until every program has ended, or waits for what nobody does."""
        while self._ready:
            self.now, _, self.lane, program, bar = heapq.heappop(self._ready)
            if bar is not None and isinstance(bar.act, Do) and bar.act.slot and not bar.wrong:
                lost = self.missing(bar.act.slot, bar.act.tile)
                bar.wrong = f"{lost} bytes overwritten" if lost else ""
            act = next(program, None)
            if act is None:
                continue
            bar = Bar(self.lane, self.now, self.now, act)
            if isinstance(act, Wait):
                self.bars.append(bar)
                self._waiting.append((self.lane, program, bar))
                self._wake(act.barrier)
                continue
            bar.end = self.now + act.ticks
            if act.text:
                self.bars.append(bar)
            if act.slot and (lost := self.missing(act.slot, act.tile)):
                bar.wrong = f"{lost} bytes not there"
            self._push(bar.end, self.lane, program, bar)
        for _, _, bar in self._waiting:
            bar.end, bar.wrong = None, "waits for ever"

    # --- What takes no time ---

    def init(self, barrier: str, arrivals: int) -> None:
        """Initialise a barrier."""
        self._change(barrier, f"init({barrier}, {arrivals})", Barrier.init(arrivals))

    def arrive(self, barrier: str, tx_bytes: int | None = None) -> None:
        """Arrive, and announce bytes where there are some."""
        words = f"arrive({barrier})" if tx_bytes is None else f"expect_tx({barrier}, {tx_bytes})"
        self._change(barrier, words, self._state(barrier).arrive(tx_bytes or 0))

    def write(self, slot: str, piece: int, tile: int, size: int, barrier: str) -> None:
        """Write a piece of a tile into shared memory, and count its bytes."""
        self.memory.setdefault(slot, {})[piece] = tile, size
        words = f"{size} bytes are written, {barrier} counts them"
        self._change(barrier, words, self._state(barrier).complete_tx(size))

    def missing(self, slot: str, tile: int) -> int:
        """Return how many bytes of a tile are not in a slot."""
        pieces = self.memory.get(slot, {}).values()
        return self.slot_bytes - sum(size for of, size in pieces if of == tile)

    def copy(
        self,
        engine: str,
        to: Sequence[tuple[str, str]],
        act: Do,
        sizes: Sequence[int],
        first: int = 0,
    ) -> None:
        """Let an engine copy the tile of `act`, piece by piece, into (slot, barrier) pairs.

        Each piece takes the ticks of `act`; an engine serves its loads one by one.
        """
        begin = max(self.now + LATENCY, self._free.get(engine, 0))
        self._free[engine] = end = begin + act.ticks * len(sizes)

        def program() -> Program:
            for n, size in enumerate(sizes, first):
                yield act._replace(text=act.text or f"{size}")
                for slot, barrier in to:
                    self.write(slot, n, act.tile, size, barrier)

        for slot, _ in to:
            self.bars.append(Bar(slot, self.now, end, act))
        self.start(engine, program(), begin)

    def _state(self, barrier: str) -> Barrier:
        if barrier not in self.barriers:
            raise LaunchFailedError(f"{barrier} was never initialised")
        return self.barriers[barrier]

    def _change(self, barrier: str, words: str, state: Barrier) -> None:
        self.barriers[barrier] = state
        self.changes.append(Change(self.now, barrier, self.lane, words, state))
        self._wake(barrier)

    def _wake(self, barrier: str) -> None:
        state, still = self._state(barrier), []
        for lane, program, bar in self._waiting:
            wait = bar.act
            if isinstance(wait, Wait) and wait.barrier == barrier and state.passes(wait.parity):
                bar.end = self.now
                self._push(self.now, lane, program, bar)
            else:
                still.append((lane, program, bar))
        self._waiting = still

    def _push(self, at: int, lane: str, program: Program, bar: Bar | None) -> None:
        self._count += 1
        heapq.heappush(self._ready, (at, self._count, lane, program, bar))
