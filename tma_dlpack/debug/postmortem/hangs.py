"""Hangs: which warps wait at which mbarrier, what it lacks, and what that means.

A meaning is a row of `ROWS`; the first that holds is the one. Bytes are held against the maps among
the kernel's parameters, and against what the code announces where that is a constant.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from tma_dlpack.debug.postmortem.dump import Block, Dump, Warp
from tma_dlpack.debug.postmortem.flow import Flow, Registers, flow_of
from tma_dlpack.debug.postmortem.memory import Word, looks_like_one, maps_of, offset_of
from tma_dlpack.debug.postmortem.results import (
    DeadBarrier,
    DeadKernel,
    FoundMap,
    Standing,
    readable,
)
from tma_dlpack.debug.postmortem.sass import INSTRUCTION_BYTES
from tma_dlpack.tables.coerce import counted

_MOST_ARRIVALS = 4096  # of a barrier that nobody waits at; a count beyond is taken for other data
_NEIGHBOURS = 64  # bytes to the next barrier of an array of them
TRAP = "at a trap (__trap, a failed assert)"
_MOST_COPIES, _MOST_MAPS = 4, 4  # that bytes are made up of


class Wait(NamedTuple):
    """Threads of a warp that wait at a barrier."""

    lines: tuple[str, ...]
    parity: int | None
    place: int  # of the instruction


@dataclass(slots=True)
class State:
    """One barrier in one state, over all blocks in which it stands so."""

    kernel: str
    address: int
    word: Word
    blocks: int = 0
    waits: Counter[Wait] = field(default_factory=Counter)
    maps: tuple[FoundMap, ...] = ()
    announced: int | None = None  # bytes that the code announces for each phase
    others: set[tuple[int, Word]] = field(default_factory=set)  # waited at in the same blocks

    @property
    def waiting(self) -> int:
        """How many warps wait."""
        return sum(self.waits.values())

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has happened in its phase."""
        return self.word.arrivals == self.word.count and not self.word.bytes


# -- what is known of bytes -----------------------------------------------------------------------


def copies(bytes_: int, maps: Iterable[FoundMap]) -> str:
    """Return the copies that make up so many bytes, "2 x 8,192 + 1 x 4,096"; "" if none do."""
    sizes = sorted({found.map.tx_bytes for found in maps}, reverse=True)[:_MOST_MAPS]
    for counts in sorted(product(range(_MOST_COPIES + 1), repeat=len(sizes)), key=sum):
        if bytes_ and sum(n * size for n, size in zip(counts, sizes, strict=True)) == bytes_:
            used = [(n, size) for n, size in zip(counts, sizes, strict=True) if n]
            return " + ".join(f"{n} x {size:,}" for n, size in used)
    return ""


def _one_copy(maps: tuple[FoundMap, ...]) -> str:
    sizes = dict.fromkeys(f"{found.map.tx_bytes:,}" for found in maps)
    if not sizes:
        return "no map is among the parameters"
    return f"one copy by a map of this launch is {' or '.join(sizes)} bytes"


def _bytes(state: State) -> str:
    pending, announced = state.word.bytes, state.announced
    text = f"every thread arrived, and {pending:,} bytes are missing"
    if announced is not None and announced >= pending:
        came = announced - pending
        text = f"{announced:,} bytes are expected, {came:,} came, and {pending:,} are missing"
    made_of = copies(pending, state.maps)
    if state.maps:
        text += f" ({made_of}: whole copies)" if made_of else " (no whole copies)"
    return f"{text}; {_one_copy(state.maps)}"


def _nothing_came(state: State) -> str:
    made_of = copies(state.word.bytes, state.maps)
    whole = f" ({made_of})" if made_of else ""
    return (
        f"armed for {state.word.bytes:,} bytes{whole}, and none came: no copy was issued, or it "
        f"completes on another barrier; {_one_copy(state.maps)}"
    )


def _unannounced(state: State) -> str:
    came = -state.word.bytes
    made_of = copies(came, state.maps)
    whole = f" ({made_of})" if made_of else ""
    return (
        f"{came:,} bytes came{whole} that nobody announced, and {state.word.arrivals} of "
        f"{counted(state.word.count, 'arrival')} did not happen: no thread ran "
        "mbarrier.arrive.expect_tx"
    )


def _some_arrived(state: State) -> str:
    came = state.word.count - state.word.arrivals
    more = f", and {state.word.bytes:,} bytes are missing" if state.word.bytes else ""
    return (
        f"{came} of {counted(state.word.count, 'arrival')} came{more}: it was initialised for "
        f"{state.word.arrivals} too many, or {counted(state.word.arrivals, 'arrival')} of this "
        "phase never happened"
    )


def _where(others: Iterable[tuple[int, Word]]) -> str:
    return " and ".join(f"{address:#x}" for address in sorted({a for a, _ in others}))


def _cycle(state: State) -> str:
    return (
        "a cycle: nobody has arrived here in this phase, and warps of the same blocks wait at "
        f"{_where(state.others)}, where nobody has arrived either"
    )


def _follows(state: State) -> str:
    return (
        "nobody has arrived in this phase: the warps that would may be those that wait at "
        f"{_where(state.others)}"
    )


def _untouched(state: State) -> str:
    if not state.word.phase:
        return "nobody has arrived in this phase, and no byte is announced"
    return (
        "the phase of parity 0 has ended and nobody has arrived since: the wait names the other "
        "parity, or the next arrival and copy were never issued"
    )


class Row(NamedTuple):
    """A meaning of what a barrier lacks."""

    rule: str
    holds: Callable[[State], bool]
    message: Callable[[State], str]
    fix: str


def _is_cycle(state: State) -> bool:
    return bool(state.others) and all(
        word.arrivals == word.count and not word.bytes for _, word in state.others
    )


def _is_first_phase(state: State) -> bool:
    return not state.word.phase and not any(word.phase for _, word in state.others)


ROWS: Final = (
    Row(
        "BARRIER_INIT", lambda s: not s.word.is_initialised,
        lambda s: "it was never initialised: its count is 0",
        "initialise it in one thread, then fence.mbarrier_init and a barrier of the block",
    ),
    Row(
        "HANG_NOT_ANNOUNCED", lambda s: s.word.bytes < 0, _unannounced,
        "let one thread run mbarrier.arrive.expect_tx with the bytes of its copies, for each phase",
    ),
    Row(
        "HANG_NO_COPY",
        lambda s: s.word.arrivals == 0 and s.word.bytes == s.announced,
        _nothing_came,
        "issue the copy after arming, on this barrier",
    ),
    Row(
        "HANG_BYTES", lambda s: s.word.arrivals == 0 and s.word.bytes > 0, _bytes,
        "announce exactly the bytes of the copies of a phase: tx_bytes of each map, out-of-bounds "
        "elements included; or issue the copy that is missing",
    ),
    Row(
        "HANG_ARRIVALS", lambda s: 0 < s.word.arrivals < s.word.count or s.word.bytes > 0,
        _some_arrived,
        "initialise it with the number of arrivals of a phase, or let every thread arrive",
    ),
    Row(
        "HANG_CYCLE", lambda s: _is_cycle(s) and _is_first_phase(s),
        lambda s: f"{_cycle(s)}; no phase need ever have ended",
        "let the producer's first wait for an empty stage be with parity 1: a fresh barrier lets "
        "parity 1 pass, and holds parity 0",
    ),
    Row(
        "HANG_CYCLE", _is_cycle,
        lambda s: f"{_cycle(s)}; one of them has been through a phase",
        "let each consumer arrive at the stage's empty barrier when it has read it, and the "
        "producer at the full one, in every phase",
    ),
    Row(
        "HANG_FOLLOWS", lambda s: bool(s.others), _follows,
        "mend what those wait for first",
    ),
    Row(
        "HANG_PARITY", lambda s: s.word.phase == 1, _untouched,
        "flip the parity after each phase, from 0; or issue the arrival and the copy",
    ),
    Row(
        "HANG_NOBODY_ARRIVED", lambda s: True, _untouched,
        "arm it: mbarrier.arrive.expect_tx, then the copy; or arrive",
    ),
)  # fmt: skip


# -- reading --------------------------------------------------------------------------------------


class Survey:
    """Where every warp stood: what `hangs_of` and `kernels_of` share."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.states: dict[tuple[str, int, Word], State] = {}
        self.standing: dict[str, Counter[tuple[str, tuple[str, ...]]]] = defaultdict(Counter)
        self.blocks: dict[str, list[Block]] = defaultdict(list)
        self.warps: Counter[str] = Counter()
        for block in dump.blocks:
            self._add(block)
        for kernel, blocks in self.blocks.items():
            self._add_quiet(kernel, blocks)

    def _add(self, block: Block) -> None:
        kernel = self.kernel_of(block)
        self.blocks[kernel].append(block)
        waited: dict[int, Counter[Wait]] = defaultdict(Counter)
        announced: int | None = None
        for warp in self.dump.warps(block):
            self.warps[kernel] += 1
            found: set[tuple[int, Wait]] = set()
            for pc, rows in warp.groups():
                wait = self._stand(kernel, warp, pc, int(rows[0]))
                if wait is not None:
                    found.add(wait)
                    announced = self._announced(warp, pc)
            for address, what in found:
                waited[address][what] += 1
        blocked = {}
        for address, waits in waited.items():
            word = Word.at(block.shared, address)
            if word is None:
                continue
            stuck = {wait: n for wait, n in waits.items() if wait.parity in (None, word.phase)}
            if stuck:  # others' phase has ended: they go on
                blocked[address] = word, stuck
        for address, (word, stuck) in blocked.items():
            state = self.state(kernel, block, address, word)
            state.blocks += 1
            state.waits += Counter(stuck)
            state.announced = announced if word.count == 1 else None  # of several that arm, a part
            state.others |= {(a, w) for a, (w, _) in blocked.items() if a != address}

    def state(self, kernel: str, block: Block, address: int, word: Word) -> State:
        """Return the state of a barrier, added if it is new."""
        key = kernel, address, word
        if key not in self.states:
            maps = maps_of(self.dump, block.grid) if block.grid is not None else ()
            self.states[key] = State(kernel, address, word, maps=maps)
        return self.states[key]

    def kernel_of(self, block: Block) -> str:
        """Return the mangled name of a block's kernel."""
        entry = int(block.grid.row["entry"]) if block.grid is not None else 0
        function = self.dump.function_at(entry)
        return function.name if function is not None else "unknown code"

    def _stand(self, kernel: str, warp: Warp, pc: int, lane: int) -> tuple[int, Wait] | None:
        """Note where threads stand; return the barrier that they wait at."""
        function = self.dump.function_at(pc)
        if function is None:
            self.standing[kernel]["in code that the file has not", ()] += 1
            return None
        flow = flow_of(self.dump, function)
        if flow is None:
            self.standing[kernel]["in a function that is too long to be read", ()] += 1
            return None
        place = flow.place(pc)
        waits = flow.waits_of(place)
        if not waits:
            words = _standing_words(flow, place)
            self.standing[kernel][words, self.dump.lines_at(pc)[:1]] += 1
            return None
        lines = self.dump.lines_at(function.start + INSTRUCTION_BYTES * waits[0])
        registers = Registers(warp, flow, pc, lane)
        addresses = {registers.barrier(wait) for wait in waits}
        address = addresses.pop() if len(addresses) == 1 else None
        if address is None:
            words = "waits at an mbarrier that the registers no longer name"
            self.standing[kernel][words, lines[:1]] += 1
            return None
        self.standing[kernel]["waits at an mbarrier", lines[:1]] += 1
        tokens = {registers.register(flow[wait].first, wait) for wait in waits}
        token = tokens.pop() if len(tokens) == 1 else None
        parity = None if token is None else token >> 31
        return offset_of(address), Wait(lines, parity, waits[0])

    def _announced(self, warp: Warp, pc: int) -> int | None:
        """Return the bytes that the code announces, if all its announcements are one constant."""
        function = self.dump.function_at(pc)
        if function is None:
            return None
        flow = flow_of(self.dump, function)
        if flow is None:
            return None
        if flow.announced is None:
            computed = Registers(warp, flow, None, 0)
            flow.announced = {
                computed.register(flow[place].first, place)
                for place in range(len(flow.code))
                if flow[place].is_arrival and not flow[place].arrival
            }
        return next(iter(flow.announced)) if len(flow.announced) == 1 else None

    def _add_quiet(self, kernel: str, blocks: list[Block]) -> None:
        """Add the barriers that nobody waits at: neighbours, or at one place in several blocks."""
        known = {address for name, address, _ in self.states if name == kernel}
        found: dict[int, list[Block]] = defaultdict(list)
        for block in blocks:
            words = np.frombuffer(block.shared, "<u8", len(block.shared) // 8)
            likely = (words & 1 == 0) & (words >> 42 & 1 == 0) & (words != 0)
            counts = -(words >> 1).astype(np.int64) & 0xFFFFF
            likely &= (counts >= 1) & (counts <= _MOST_ARRIVALS)
            for place in np.flatnonzero(likely).tolist():
                if looks_like_one(int(words[place]), _MOST_ARRIVALS):
                    found[8 * place].append(block)
        chosen = known | self._named(blocks[0])
        for address in sorted(found):
            everywhere = len(blocks) > 1 and len(found[address]) == len(blocks)
            if everywhere or any(abs(address - other) <= _NEIGHBOURS for other in chosen):
                chosen.add(address)
        for address in sorted(found, reverse=True):
            if any(abs(address - other) <= _NEIGHBOURS for other in chosen):
                chosen.add(address)
        for address in chosen:
            for block in found.get(address, ()):
                word = Word.at(block.shared, address)
                if word is not None and not self._is_waited(kernel, address, word):
                    self.state(kernel, block, address, word).blocks += 1

    def _named(self, block: Block) -> set[int]:
        """Return the barriers whose addresses the code computes from constants."""
        entry = int(block.grid.row["entry"]) if block.grid is not None else 0
        function = self.dump.function_at(entry)
        flow = flow_of(self.dump, function) if function is not None else None
        warp = next(self.dump.warps(block), None)
        if flow is None or warp is None:
            return set()
        computed = Registers(warp, flow, None, 0)
        found = (computed.barrier(place) for place in range(len(flow.code)))
        return {offset_of(address) for address in found if address is not None}

    def _is_waited(self, kernel: str, address: int, word: Word) -> bool:
        state = self.states.get((kernel, address, word))
        return state is not None and bool(state.waits)


#: Where threads that wait at no mbarrier stand: by the instruction, or the one before it.
_STANDING: Final = {
    "BAR": "at a barrier of the block (__syncthreads, bar.sync)",
    "BPT": TRAP,
    "UCGABAR_WAIT": "at a barrier of the cluster (cluster_sync, barrier.cluster.wait)",
    "BSYNC": "wait for other threads of their warp",
    "WARPSYNC": "wait for other threads of their warp",
}


def _standing_words(flow: Flow, place: int) -> str:
    before = flow[place - 1].name if place else ""
    name = before if before in ("BAR", "BPT") else flow[place].name
    return _STANDING.get(name, "elsewhere: no control flow ties it to the wait of an mbarrier")


def barriers_of(survey: Survey, died: bool) -> Iterator[DeadBarrier]:
    """Return every barrier once for each state, those with waiting warps first.

    `died`: a fault ended the kernel; then nothing follows from a barrier.
    """
    for state in sorted(survey.states.values(), key=lambda s: (not s.waits, s.address, s.word)):
        waits = state.waits.most_common()
        first = waits[0][0] if waits else Wait((), None, 0)
        parities = {wait.parity for wait in state.waits}
        barrier = DeadBarrier(
            kernel=readable(state.kernel),
            address=state.address,
            count=state.word.count,
            arrivals=state.word.arrivals,
            bytes=state.word.bytes,
            phase=state.word.phase,
            blocks=state.blocks,
            waiting=state.waiting,
            lines=first.lines,
            parity=parities.pop() if len(parities) == 1 else None,
        )
        if state.waits and not died:
            row = next(row for row in ROWS if row.holds(state))
            message = row.message(state)
            barrier = dataclasses.replace(barrier, rule=row.rule, message=message, fix=row.fix)
        yield barrier


def kernels_of(survey: Survey) -> Iterator[DeadKernel]:
    """Return every kernel that was on the GPU."""
    for mangled, blocks in survey.blocks.items():
        grid = blocks[0].grid
        nothing = (0, 0, 0)
        standing = survey.standing[mangled].most_common()
        yield DeadKernel(
            name=readable(mangled),
            mangled=mangled,
            grid=grid.dims("grid") if grid else nothing,
            block=grid.dims("block") if grid else nothing,
            cluster=grid.dims("cluster") if grid else nothing,
            blocks=len(blocks),
            warps=survey.warps[mangled],
            standing=tuple(Standing(what, lines, n) for (what, lines), n in standing),
        )
