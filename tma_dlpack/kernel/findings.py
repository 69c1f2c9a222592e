"""The findings of a run, and the explanation of a hang.

A mistake concerns one instruction, and often also an instruction that was executed before it. If
the kernel repeats a mistake at the same source lines, the repetitions become one finding.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.kernel.core import counted, report
from tma_dlpack.ptx import stuck

Triple = tuple[int, int, int]
_WARP, _WARPGROUP = 32, 128
# Rule -> document that the finding cites.
_SOURCES = {
    "PROXY_FENCE": "PTX ISA 9.0, Proxies and fence.proxy.async",
    "MAP_FENCE": "PTX ISA 9.0, fence.proxy.tensormap",
    "BARRIER_INIT": "PTX ISA 9.0, mbarrier.init and fence.mbarrier_init",
    "BARRIER_OVERWRITTEN": "PTX ISA 9.0, Lifecycle of the mbarrier object",
    "BULK_WAIT": "PTX ISA 9.0, cp.async.bulk.wait_group",
    "RACE": "PTX ISA 9.0, Memory consistency model",
    "LOAD_WAIT": "PTX ISA 9.0, mbarrier.try_wait",
}


class BarrierState(NamedTuple):
    """State of an mbarrier at the end of a run.

    An entry of `PostMortem.barriers` has the same fields, and also the field `kernel`.
    """

    address: int
    count: int  # type: ignore[assignment] # not tuple's
    #: Number of pending arrivals.
    arrivals: int
    #: Number of pending bytes.
    bytes: int
    phase: int
    #: Number of blocks in which the barrier at this address has this state.
    blocks: int
    #: Number of warps in these blocks that wait at the barrier.
    waiting: int
    lines: tuple[str, ...] = ()
    parity: int | None = None
    rule: str = ""
    message: str = ""
    fix: str = ""


def line_of(code: Any) -> str | None:
    """Return the source line of an instruction, such as "gemm.cu:42".

    The file is the file of the kernel's own code. If the instruction was inlined from a header, the
    line is the line of the kernel's file that calls the function of the header. Return None if the
    PTX has no line table.
    """
    if code is None or not code.place:
        return None
    # `place` lists (file, line): first the instruction's own line, then the lines of the calls that
    # the compiler inlined. The last entry is in the kernel's file. Return the first entry that is
    # in the kernel's file.
    file = code.place[-1][0]
    line = next(line for name, line in code.place if name == file)
    return f"{file}:{line}"


class Findings:
    """Collector of the findings of one run."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.barriers: tuple[BarrierState, ...] = ()
        self._found: dict[tuple[Any, ...], report.Finding] = {}

    def all(self) -> tuple[report.Finding, ...]:
        """Return all findings, oldest first."""
        return tuple(self._found.values())

    def add(
        self, rule: str, severity: str, message: str, fix: str, *, g: Any = None, lanes: Any = None,
        also: Any = None, code: Any = None, place: tuple[Any, int] | None = None,
        evidence: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Add a finding, or increase `sites` of an equal finding.

        If the mistake is a conflict of two accesses, `also` is the instruction of the earlier
        access.
        """
        # Two findings are equal if their rules, severities and source lines are equal. A loop or a
        # template would otherwise add many findings for one mistake.
        code = code if g is None else g.code
        line = code.line if code is not None else None
        earlier = line_of(also) or getattr(also, "line", None)
        # Many lines may use an mbarrier. So if a fence after mbarrier.init is missing, or the
        # mbarrier is overwritten, compare only the line of the mbarrier.init or of the write.
        of_barrier = rule in ("BARRIER_INIT", "BARRIER_OVERWRITTEN")
        at = None if of_barrier else line_of(code) or line
        key = rule, severity, at, earlier
        before = self._found.get(key)
        if before is not None:
            self._found[key] = replace(before, sites=before.sites + 1)
            return
        if g is not None:
            place = g.block, int(lanes[0]) if lanes is not None and len(lanes) else -1
        block = thread = None
        if place is not None:
            block = place[0].ctaid
            if place[1] >= 0:
                thread = _thread(place[0].machine.block, place[1])
        if also is not None:
            there = line_of(also)
            where = f"{there}, " if there else ""
            evidence = (
                f"the earlier one is {also.opcode} at {where}line {also.line} of the PTX",
                *evidence,
            )
        inlined = code.place[0] if code is not None and code.place else None
        if inlined is not None and inlined[0] != code.place[-1][0]:
            evidence = (*evidence, f"in a function at {inlined[0]}:{inlined[1]}")
        self._found[key] = report.Finding(
            rule, severity, message, fix, self.kernel, line_of(code), line, block, thread,
            evidence=evidence, source=_SOURCES.get(rule, ""),
        )  # fmt: skip

    # -- hangs -----------------------------------------------------------------------------------

    def hang(self, machine: Any) -> None:
        """Explain why no thread can continue."""
        states = _states(machine)
        rows = [(state, next(row for row in stuck.ROWS if row.holds(state))) for state in states]
        # Report only barriers that cause the hang. A barrier has the rule HANG_FOLLOWS if its warps
        # wait only because another barrier hangs.
        causes = [(s, r) for s, r in rows if r.rule != "HANG_FOLLOWS"] or rows
        for state, row in causes:
            message = f"the kernel hangs at the barrier {state.address:#x}: {row.message(state)}"
            blocked = state.opened[0]
            self.add(
                row.rule, "error", message, row.fix, code=blocked.code,
                evidence=(_who_waits(state),),
            )  # fmt: skip
        self.barriers = tuple(_state(s, r) for s, r in rows)
        if not states:
            self._threads(machine)

    def _threads(self, machine: Any) -> None:
        """Explain a hang at a barrier of threads, or in a loop that polls memory."""
        # Groups that wait in the same way, at the same barrier, in the same block and at the same
        # instruction become one finding.
        waits: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for group in machine.asleep:
            what = dict(group.wait.what) if group.wait is not None else {"kind": "poll"}
            key = what["kind"], what.get("number"), id(group.block), group.code.line
            waits[key].append((group, what))
        for (kind, number, _, _), groups in waits.items():
            group, what = groups[0]
            threads = sum(len(w.get("lanes", g.lanes)) for g, w in groups)
            rule, message, fix = _thread_words(kind, number, group, what, threads)
            self.add(rule, "error", message, fix, g=group, lanes=group.lanes)


def _thread(size: Triple, number: int) -> Triple:
    """Return the index (x, y, z) of thread `number` in a block of `size` threads (x, y, z)."""
    x, y, _ = size
    return number % x, number // x % y, number // (x * y)


def _thread_words(
    kind: str, number: int | None, group: Any, what: dict[str, Any], threads: int
) -> tuple[str, str, str]:
    block, generation = group.block, what.get("generation")
    if kind == "bar" and generation is not None:
        expected = what["count"] or block.threads - block.exited
        return (
            "HANG_THREADS",
            f"the kernel hangs at barrier {number} of the block: {generation.arrived} of "
            f"{counted(expected, 'thread')} arrived",
            "let every thread that the barrier counts execute it; in a branch, name a barrier and "
            "its number of threads",
        )
    if kind == "cluster" and generation is not None:
        expected = sum(b.threads - b.exited for b in block.cluster.blocks)
        return (
            "HANG_THREADS",
            f"the kernel hangs at the barrier of the cluster: {generation.arrived} of "
            f"{counted(expected, 'thread')} arrived",
            "let every thread of every block of the cluster arrive and wait",
        )
    return (
        "HANG_POLL",
        f"the kernel hangs: {counted(threads, 'thread')} of a group wait for memory or a barrier "
        "that nothing changes any more",
        "look at who writes what the loop reads, and whether that block runs at all",
    )


# -- mbarriers that warps wait at ------------------------------------------------------------------


@dataclass
class _Word:
    """The fields that the 64 bits of an mbarrier contain."""

    count: int
    arrivals: int
    bytes: int
    phase: int
    is_initialised: bool = True

    @classmethod
    def of(cls, barrier: Any) -> _Word:
        return cls(barrier.count, barrier.pending, barrier.bytes, barrier.phase % 2)


@dataclass
class _State:
    """State of an mbarrier, with the attributes that the rows of `ptx.stuck.ROWS` test.

    If the mbarriers at the same offset in several blocks have equal states, one object describes
    all of them.
    """

    address: int
    word: _Word
    announced: int | None
    maps: tuple[Any, ...]
    #: Open waits at this barrier, each a `timeline.Open`.
    opened: list[Any]
    #: Number of blocks whose mbarrier has this state.
    blocks: int = 1
    #: Number of warps that wait at the barrier.
    waiting: int = 0
    #: The other mbarriers of this block that warps wait at: offset -> state.
    here: dict[Any, Any] = field(default_factory=dict)
    #: Offsets, other than `address`, of the mbarriers in other blocks that warps wait at.
    far: set[int] = field(default_factory=set)
    #: Fields of the mbarriers at the offset `address` in the other blocks of the cluster.
    peers: list[_Word] = field(default_factory=list)
    #: True if every mbarrier of every block is in its first phase and has counted neither arrivals
    #: nor bytes.
    is_first: bool = False
    ended: int = 0
    passed: int = 0
    multicasts: bool = False

    @property
    def came(self) -> int:
        return self.word.count - self.word.arrivals

    @property
    def elsewhere(self) -> set[int]:
        return {state.address for state in self.here.values()}

    @property
    def is_behind(self) -> bool:
        armed = any(p.phase == self.word.phase and p.arrivals < p.count for p in self.peers)
        return self.word.bytes < 0 and self.multicasts and armed

    @property
    def is_ahead(self) -> bool:
        late = any(p.phase == self.word.phase and p.arrivals == p.count for p in self.peers)
        return self.multicasts and late

    @property
    def is_untouched(self) -> bool:
        no_bytes = not self.word.bytes or self.is_behind
        return self.word.arrivals == self.word.count and no_bytes


def _states(machine: Any) -> list[_State]:
    """Return the distinct states of the mbarriers that warps wait at."""
    # A wait is stuck if the phase that the warp waits for has not ended.
    stuck: dict[Any, list[Any]] = defaultdict(list)
    # A warp that polled an mbarrier may have given up, so take only the mbarriers that the warps
    # still poll.
    polled = {
        (id(group.block), id(key), warp)
        for group in machine.asleep for keys in group.polls.values() for key in keys
        for warp in group.warps.tolist()
    }  # fmt: skip
    for key, opened in machine.timeline.waiting.items():
        if key in polled and opened.phase == opened.barrier.phase:
            stuck[opened.barrier].append(opened)
    every = [b for c in machine.active for block in c.blocks for b in block.sync.barriers.values()]
    is_first = all(not b.phase and _is_untouched(b) for b in every)
    maps = tuple(machine.maps.values())
    multicasts = any(".multicast::cluster" in code.opcode for code in machine.code.function.code)
    made: dict[Any, _State] = {}
    for barrier, opened in stuck.items():
        state = _State(
            barrier.offset, _Word.of(barrier), barrier.announced or None, maps, opened,
            waiting=len(opened), is_first=is_first, multicasts=multicasts,
        )  # fmt: skip
        others = [b for b in barrier.block.cluster.blocks if b is not barrier.block]
        peers = (b.sync.barriers.get(barrier.offset) for b in others)
        state.peers = [_Word.of(peer) for peer in peers if peer is not None]
        if len(stuck) == 1:
            # If only one mbarrier is stuck, warps that have ended may be the cause, because they
            # can no longer arrive.
            state.ended = _warps(barrier.block.exited)
        made[barrier] = state
    for barrier, state in made.items():
        for other, found in made.items():
            if other is barrier:
                continue
            if other.block is barrier.block:
                state.here[other.offset] = found
            elif other.offset != barrier.offset:
                state.far.add(other.offset)
    return _alike(list(made.values()))


def _alike(states: list[_State]) -> list[_State]:
    """Merge the states of several blocks if their offsets and fields are equal."""
    found: dict[Any, _State] = {}
    for state in states:
        word = state.word
        key = state.address, word.count, word.arrivals, word.bytes, word.phase
        before = found.get(key)
        if before is None:
            found[key] = state
        else:
            before.blocks += 1
            before.waiting += state.waiting
            before.far |= state.far
    return list(found.values())


def _is_untouched(barrier: Any) -> bool:
    return bool(barrier.pending == barrier.count and not barrier.bytes)


def _warps(threads: int) -> int:
    return -(-threads // _WARP)


def _who_waits(state: _State) -> str:
    opened = state.opened[0]
    warps = sorted({int(n) for o in state.opened for n in np.unique(o.lanes // _WARP)})
    shown = ", ".join(map(str, warps[:8])) + (", ..." if len(warps) > 8 else "")
    also = f" and of {counted(state.blocks - 1, 'other block')}" if state.blocks > 1 else ""
    return (
        f"warps {shown} of block {opened.block.ctaid}{also} wait for parity {state.word.phase} at "
        f"line {opened.code.line} of the PTX; count {state.word.count}, pending "
        f"{counted(state.word.arrivals, 'arrival')} and {state.word.bytes:,} bytes"
    )


def _state(state: _State, row: Any) -> BarrierState:
    word, line = state.word, line_of(state.opened[0].code)
    return BarrierState(
        state.address, word.count, word.arrivals, word.bytes, word.phase, state.blocks,
        state.waiting, (line,) if line else (), word.phase, row.rule, row.message(state), row.fix,
    )  # fmt: skip
