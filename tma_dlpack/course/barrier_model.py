"""A model of the mbarrier, and a player that runs programs on this model.

`Barrier` is the state that PTX describes. A phase ends when two conditions hold: the number of
arrivals has reached the count of `mbarrier.init`, and all announced bytes have arrived. `Play` runs
programs (threads, warps, copy engines) on one time axis. It records the actions of the programs,
and every state of every barrier. A lane is a row of the picture: the actions of one program, or the
use of one slot. A slot is a part of shared memory that has room for one tile.

A program is a generator. For an action that takes time, the program yields a `Do` or a `Wait`. For
an operation that takes no time, the program calls a method of `Play`.

Times are ticks without a unit, because the model shows the order of events, not their duration.
NVIDIA does not document in how many steps the engine counts its bytes.

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

MOST = (1 << 20) - 1  # largest arrival count, and largest absolute number of pending bytes
LATENCY = 6  # ticks from a load or store to its first byte
#: Name of the barrier with which the model implements __syncthreads() or cluster_sync(). The
#: picture does not show this barrier.
SYNC = "sync"

FOREVER, UNDEFINED = "waits forever", "undefined from here on"


class BarrierError(RuntimeError):
    """A misuse of an mbarrier.

    Some misuses are undefined behavior in PTX. Others end in CUDA_ERROR_LAUNCH_FAILED (measured).
    """


class Barrier(NamedTuple):
    """The state of an mbarrier; each operation returns the next state.

    Attributes
    ----------
    arrivals : int
        Number of arrivals that end a phase.
    pending : int
        Number of arrivals that are still missing in this phase.
    tx_bytes : int
        Announced bytes that are still missing; negative if bytes were written before they were
        announced.
    phase : int
        Number of the current phase, counted from 0. A thread passes the parity of a phase's number
        to `wait`.
    """

    arrivals: int
    pending: int
    tx_bytes: int = 0
    phase: int = 0

    @classmethod
    def init(cls, arrivals: int) -> Barrier:
        """Return the state after ``mbarrier.init``."""
        if not 1 <= arrivals <= MOST:
            raise BarrierError(f"{arrivals} arrivals are not in 1..{MOST}")
        return cls(arrivals, arrivals)

    def arrive(self, tx_bytes: int = 0) -> Barrier:
        """Return the state after ``mbarrier.arrive``, which first announces `tx_bytes` bytes."""
        if not self.pending:
            raise BarrierError(f"too many arrivals in phase {self.phase}")
        return self._next(self.pending - 1, self.tx_bytes + tx_bytes)

    def complete_tx(self, tx_bytes: int) -> Barrier:
        """Return the state after a copy has written `tx_bytes` bytes."""
        return self._next(self.pending, self.tx_bytes - tx_bytes)

    def passes(self, parity: int) -> bool:
        """Return whether ``wait(barrier, parity)`` ends: it ends in a phase of the other parity.

        The first phase is phase 0, so ``wait(barrier, 1)`` passes at a fresh barrier.
        """
        return self.phase % 2 != parity

    def _next(self, pending: int, tx_bytes: int) -> Barrier:
        if abs(tx_bytes) > MOST:
            raise BarrierError(f"{tx_bytes} pending bytes are beyond {MOST}")
        # The phase ends only when both counts are exactly 0; a negative `tx_bytes` does not end it.
        if pending or tx_bytes:
            return Barrier(self.arrivals, pending, tx_bytes, self.phase)
        return Barrier(self.arrivals, self.arrivals, 0, self.phase + 1)


# --- What programs do -----------------------------------------------------------------------------


class Do(NamedTuple):
    """An action that takes some ticks.

    `text` is the label, which may be followed by shorter labels, each after "|". An action without
    a label is not drawn.
    """

    ticks: int
    text: str = ""
    style: str = "cell"
    line: int = -1  # line of the code that runs; -1 for none
    tile: int = -1  # tile that is read or copied; -1 for none
    slot: str = ""  # the part of shared memory that is read
    lost: str = "not there"  # description of bytes that are missing in the slot


class Wait(NamedTuple):
    """A wait that ends when ``passes(parity)`` of a barrier is true."""

    barrier: str
    parity: int
    line: int = -1
    style: str = "padding"

    @property
    def text(self) -> str:
        """The label: the call, and a shorter label after "|"."""
        call = f"wait({self.barrier.partition(' ')[0]}, {self.parity})|wait"
        return SYNC if self.barrier == SYNC else call


Program = Generator["Do | Wait", None, None]


@dataclass(slots=True)
class Bar:
    """An action in a lane in the ticks [begin, end); `end` is None if the action never ends.

    `wrong` names the error of the action, such as missing bytes or an endless wait; "" for none.
    """

    lane: str
    begin: int
    end: int | None
    act: Do | Wait
    wrong: str = ""


class Change(NamedTuple):
    """An operation on a barrier: its tick, the lane that runs it, and the barrier's next state."""

    at: int
    barrier: str
    lane: str
    state: Barrier


class Play:
    """A player that runs programs. It records bars, changes and events (tick, lane, text)."""

    now: int
    lane: str

    def __init__(self, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.now, self.lane = 0, ""
        self.bars: list[Bar] = []
        self.changes: list[Change] = []
        self.events: list[tuple[int, str, str]] = []
        self.barriers: dict[str, Barrier] = {}
        self.memory: dict[str, dict[str, tuple[int, int]]] = {}  # slot -> piece -> (tile, bytes)
        self._free: dict[str, int] = {}  # engine -> tick when its last copy ends
        # A heap of (tick, count, program, bar). The count grows, so that programs with the same
        # tick run in the order in which they were scheduled.
        self._ready: list[tuple[int, int, Program, Bar]] = []
        self._waiting: list[tuple[Program, Bar]] = []
        self._count = 0

    def start(self, lane: str, program: Program, at: int | None = None) -> None:
        """Start a program now, or at the tick `at`."""
        begin = self.now if at is None else at
        self._resume(program, Bar(lane, begin, begin, Do(0)))

    def run(self) -> None:
        """Run until all programs have ended or wait forever, or until a barrier is misused."""
        wrong = FOREVER
        try:
            while self._ready:
                self._step()
        except BarrierError as error:
            self._say(f"✗ {error}")
            self.bars.append(Bar(self.lane, self.now, None, Do(0, f"{error}|fails"), UNDEFINED))
            wrong = ""
        # No program runs any more, so the waits that are left never end.
        for _, bar in self._waiting:
            bar.end, bar.wrong = None, wrong
            if wrong:
                self._say(wrong, bar.lane)

    def _step(self) -> None:
        self.now, _, program, bar = heapq.heappop(self._ready)
        self.lane = bar.lane
        # When a read ends, check again for bytes that have been overwritten since the read began.
        if isinstance(bar.act, Do) and bar.act.slot and not bar.wrong:
            lost = self.missing(bar.act)
            bar.wrong = f"{lost} bytes overwritten" if lost else ""
        act = next(program, None)
        if act is not None:
            self._begin(program, act)

    def _begin(self, program: Program, act: Do | Wait) -> None:
        bar = Bar(self.lane, self.now, self.now, act)
        if act.text:
            self.bars.append(bar)
        if isinstance(act, Wait):
            passes = self._state(act.barrier).passes(act.parity)
            self._say(act.text.partition("|")[0] + " passes at once" * passes)
            self._waiting.append((program, bar))
            self._wake(act.barrier)
            return
        bar.end = self.now + act.ticks
        lost = self.missing(act) if act.slot else 0
        bar.wrong = f"{lost} bytes {act.lost}" if lost else ""
        # A copy has no event here, because `copy` records an event for each of its pieces. If the
        # last event has the same tick and lane, an operation has already recorded this action.
        is_copy, said = act.tile >= 0 and not act.slot, (self.now, self.lane)
        if act.text and not is_copy and (lost or said not in (e[:2] for e in self.events[-1:])):
            name = act.text.partition("|")[0].replace("\n", " ")
            self._say(f"{name}, ✗ {bar.wrong}" if lost else name)
        self._resume(program, bar)

    # --- Operations that take no time ---

    def init(self, barrier: str, arrivals: int) -> None:
        """Initialise a barrier."""
        self._say(f"init({barrier}, {arrivals})")
        self._change(barrier, Barrier.init(arrivals))

    def arrive(self, barrier: str, tx_bytes: int | None = None) -> None:
        """Arrive at a barrier; first announce `tx_bytes`, if it is not None."""
        self._say(
            f"arrive({barrier})" if tx_bytes is None else f"arrive_expect_tx({barrier}, {tx_bytes})"
        )
        self._change(barrier, self._state(barrier).arrive(tx_bytes or 0))

    def write(self, slot: str, piece: str, tile: int, size: int) -> None:
        """Write a piece of a tile into shared memory."""
        self.memory.setdefault(slot, {})[piece] = tile, size

    def missing(self, read: Do) -> int:
        """Return how many bytes are missing in the slot: bytes of the tile that `read` reads."""
        pieces = self.memory.get(read.slot, {}).values()
        return self.slot_bytes - sum(size for tile, size in pieces if tile == read.tile)

    def copy(
        self, engine: str, to: Sequence[tuple[str, str]], act: Do, sizes: Sequence[int]
    ) -> None:
        """Copy the tile of `act` with an engine, in pieces, to each (slot, barrier) pair of `to`.

        Each piece takes `act.ticks` ticks. An engine runs one copy after the other.
        """
        begin = max(self.now + LATENCY, self._free.get(engine, 0))
        self._free[engine] = end = begin + act.ticks * len(sizes)
        # The slots are drawn as busy from the call on, not only from the first byte on.
        self.bars += [Bar(slot, self.now, end, act) for slot, _ in to]

        def program() -> Program:
            for n, size in enumerate(sizes):
                yield act._replace(text=act.text or f"{size}")
                for slot, barrier in to:
                    self.write(slot, f"{engine} {n}", act.tile, size)
                    self._say(f"{size} bytes are there, {barrier} counts them")
                    self._change(barrier, self._state(barrier).complete_tx(size))

        self.start(engine, program(), begin)

    def _state(self, barrier: str) -> Barrier:
        if barrier not in self.barriers:
            raise BarrierError(f"{barrier} was never initialised")
        return self.barriers[barrier]

    def _change(self, barrier: str, state: Barrier) -> None:
        if self.barriers.get(barrier, state).phase != state.phase:
            self._say(f"{barrier}: phase {state.phase - 1} ends", "")
        self.barriers[barrier] = state
        self.changes.append(Change(self.now, barrier, self.lane, state))
        self._wake(barrier)

    def _wake(self, barrier: str) -> None:
        # Programs that must wait longer stay in `_waiting`, in the same order.
        waiting, self._waiting = self._waiting, []
        for program, bar in waiting:
            wait, state = bar.act, self._state(barrier)
            if isinstance(wait, Wait) and wait.barrier == barrier and state.passes(wait.parity):
                bar.end = self.now
                self._resume(program, bar)
            else:
                self._waiting.append((program, bar))

    def _resume(self, program: Program, bar: Bar) -> None:
        """Schedule a program at the tick at which its bar ends."""
        self._count += 1
        heapq.heappush(self._ready, (bar.end or 0, self._count, program, bar))

    def _say(self, words: str, lane: str | None = None) -> None:
        self.events.append((self.now, self.lane if lane is None else lane, words))
