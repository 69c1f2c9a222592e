"""Survey of a dump: the position of every warp in the code, and the state of every mbarrier."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from tma_dlpack.debug.postmortem.dump import Block, Dump, Kernel, Warp, three
from tma_dlpack.debug.postmortem.flow import Flow, Registers, cluster_of, flow_of
from tma_dlpack.debug.postmortem.memory import Word, looks_like_one, maps_of, offset_of
from tma_dlpack.debug.postmortem.results import FoundMap
from tma_dlpack.debug.postmortem.sass import INSTRUCTION_BYTES

# If no warp waits at 8 bytes that look like an mbarrier, they are taken as an mbarrier only if
# their count is at most this number.
_MOST_ARRIVALS = 4096
# maximum distance in bytes between two mbarriers that are taken as members of one array
_NEIGHBOURS = 64
_WARP_THREADS, _WARPGROUP_THREADS = 32, 128
TRAP = "at a trap (__trap, a failed assert)"
_WAIT = "at the wait of an mbarrier"
_AT_WGMMA = "at a wgmma, which needs all four warps of its warpgroup"
_OF_THE_WARP = "where the threads of a warp meet (WARPSYNC, BSYNC)"
#: Name of an instruction -> description of threads that are at this instruction. For threads at a
#: BAR or BPT, the program counter is at the next instruction.
_STANDING: Final = {
    "BAR": "at a barrier of the block (__syncthreads, bar.sync)",
    "BPT": TRAP,
    "UCGABAR_WAIT": "at a barrier of the cluster (cluster_sync, barrier.cluster.wait)",
    "BSYNC": _OF_THE_WARP,
    "WARPSYNC": _OF_THE_WARP,
    "HGMMA": _AT_WGMMA,
}
_ELSEWHERE = "elsewhere: no control flow ties it to the wait of an mbarrier"
_ANNOUNCING = ("", ".A0TX", ".A0TR")  # values of `Instruction.arrival` in an expect_tx


class Wait(NamedTuple):
    """A wait of threads of one warp at an mbarrier."""

    lines: tuple[str, ...]  # ``file:line``, the innermost line first
    parity: int | None  # None if the registers no longer have the parity
    place: int  # index of the instruction in its function


class Code(NamedTuple):
    """Data about a kernel's copies and barriers that its code shows without values of registers."""

    # numbers of bytes that the kernel announces (expect_tx); None stands for a number that is not
    # constant
    announces: frozenset[int | None] = frozenset()
    multicasts: bool = False
    # offsets of the barriers whose addresses the code computes from constants
    barriers: frozenset[int] = frozenset()


@dataclass(slots=True)
class State:
    """A state of the mbarrier at one address, and data about the blocks with this state."""

    kernel: Kernel
    address: int  # offset in a block's shared memory
    word: Word
    code: Code
    maps: tuple[FoundMap, ...] = ()
    blocks: int = 0
    waits: Counter[Wait] = field(default_factory=Counter)
    # (address, word) -> state of another barrier at which warps of the same blocks wait
    here: dict[tuple[int, Word], State] = field(default_factory=dict)
    # addresses, other than `address`, of barriers at which warps of the cluster's other blocks wait
    far: set[int] = field(default_factory=set)
    # states of the barriers at this address in other blocks of the cluster
    peers: set[Word] = field(default_factory=set)
    # True if no barrier of the kernel has had an arrival yet
    is_first: bool = False
    # number of warps that are at a wgmma, while other warps of their warpgroup wait at this barrier
    passed: int = 0
    # Number of warps of a block that have ended. It is 0 unless all other warps of the cluster wait
    # at this address.
    ended: int = 0

    @property
    def waiting(self) -> int:
        """Number of warps that wait at the barrier."""
        return sum(self.waits.values())

    @property
    def came(self) -> int:
        """Number of arrivals that the current phase has had."""
        return self.word.count - self.word.arrivals

    @property
    def elsewhere(self) -> set[int]:
        """Addresses of other barriers at which warps of the same blocks wait."""
        return {address for address, _ in self.here}

    @property
    def announced(self) -> int | None:
        """Number of bytes that each phase expects; None if it is unknown.

        It is known only if each phase has one arrival, and all arrivals in the code announce the
        same constant.
        """
        is_one = self.word.count == 1 and len(self.code.announces) == 1
        return next(iter(self.code.announces)) if is_one else None

    @property
    def is_behind(self) -> bool:
        """Whether bytes of another block's multicast came before this block announced them.

        It is true only if the other block's barrier at this address has had an arrival in the same
        phase.
        """
        return (
            self.word.bytes < 0
            and self.code.multicasts
            and bool(self.code.announces)
            and any(p.phase == self.word.phase and p.arrivals < p.count for p in self.peers)
        )

    @property
    def is_ahead(self) -> bool:
        """Whether another block, which may send bytes by multicast, has not yet begun its phase.

        It is true if the other block's barrier at this address is in the same phase without an
        arrival.
        """
        return self.code.multicasts and any(
            peer.phase == self.word.phase and peer.arrivals == peer.count for peer in self.peers
        )

    @property
    def is_untouched(self) -> bool:
        """Whether no thread has arrived in the current phase."""
        return self.word.arrivals == self.word.count and (not self.word.bytes or self.is_behind)


class _Stands(NamedTuple):
    """A position in the code at which threads of a warp are, and the barrier at which they wait."""

    words: str  # description, such as a value of `_STANDING`
    # the fields of `Wait`, in the same order
    lines: tuple[str, ...] = ()
    parity: int | None = None
    place: int = 0
    address: int | None = None  # offset of the barrier; None if the threads do not wait


class _Waited(NamedTuple):
    """A barrier of a block, and the waits of warps at this barrier for its current phase."""

    word: Word
    waits: Counter[Wait]
    passed: int  # as `State.passed`


class _Blocked(NamedTuple):
    """A block, the barriers at which its warps wait, and the number of its warps in the dump."""

    block: Block
    waited: dict[int, _Waited]
    warps: int


class Survey:
    """The positions of all warps and the states of all barriers of a dump."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        # (kernel, address, word) -> state
        self.states: dict[tuple[Kernel, int, Word], State] = {}
        # kernel -> {(words, lines) of a position: number of groups of threads at this position};
        # the threads of a group belong to one warp
        self.standing: dict[Kernel, Counter[tuple[str, tuple[str, ...]]]] = defaultdict(Counter)
        self.blocks: dict[Kernel, list[Block]] = defaultdict(list)
        self.warps: Counter[Kernel] = Counter()
        self._codes: dict[Kernel, Code] = {}
        # blocks are grouped by cluster, because a barrier may need bytes from another block of its
        # cluster
        clusters: dict[tuple[Kernel, tuple[int, ...]], list[_Blocked]] = defaultdict(list)
        for block in dump.blocks:
            kernel = dump.kernel_of(block.grid)
            self.blocks[kernel].append(block)
            place = id(block.grid), *cluster_of(block)
            clusters[kernel, place].append(self._read(kernel, block))
        for (kernel, _), blocks in clusters.items():
            for one in blocks:
                self._add(kernel, one, [other for other in blocks if other is not one])
        for kernel, found in self.blocks.items():
            self._add_quiet(kernel, found)
            states = [state for state in self.states.values() if state.kernel == kernel]
            is_first = all(s.is_untouched and not s.word.phase for s in states)
            for state in states:
                state.is_first = is_first

    def _read(self, kernel: Kernel, block: Block) -> _Blocked:
        """Count the positions of a block's warps, and return the barriers at which they wait."""
        # address -> (number of the warp, wait)
        waits: dict[int, set[tuple[int, Wait]]] = defaultdict(set)
        # warpgroup -> number of its warps at a wgmma
        at_wgmma: Counter[int] = Counter()
        warps = [*self.dump.warps(block)]
        for number, warp in enumerate(warps):
            for pc, rows in warp.groups():
                stands = self._stand(warp, pc, int(rows[0]))
                self.standing[kernel][stands.words, stands.lines] += 1
                at_wgmma[_warpgroup(warp)] += stands.words == _AT_WGMMA
                if stands.address is not None:
                    waits[stands.address].add((number, Wait(*stands[1:4])))
        self.warps[kernel] += len(warps)
        one = _Blocked(block, {}, len(warps))
        for address, found in waits.items():
            word = Word.at(block.shared, address)
            if word is None:
                continue
            # if a warp waits for the other parity, its phase has already ended, so the wait will
            # end
            stuck = [(n, wait) for n, wait in found if wait.parity in (None, word.phase)]
            if stuck:
                groups = {_warpgroup(warps[n]) for n, _ in stuck}
                passed = sum(at_wgmma[group] for group in groups)
                one.waited[address] = _Waited(word, Counter(wait for _, wait in stuck), passed)
        return one

    def _add(self, kernel: Kernel, one: _Blocked, others: list[_Blocked]) -> None:
        """Add the barriers at which `one` waits; `others` are the other blocks of its cluster."""
        states = {}
        for address, (word, waits, passed) in one.waited.items():
            states[address, word] = state = self.state(kernel, one.block, address, word)
            state.blocks += 1
            state.waits += waits
            state.passed += passed
            peers = (Word.at(other.block.shared, address) for other in others)
            state.peers |= {peer for peer in peers if peer is not None}
            state.far |= {far for other in others for far in other.waited if far != address}
            if all(_all_wait_at(address, blocked) for blocked in (one, *others)):
                state.ended = max(state.ended, _warps_of(one.block) - one.warps)
        for key, state in states.items():
            state.here |= {other: found for other, found in states.items() if other[0] != key[0]}

    def state(self, kernel: Kernel, block: Block, address: int, word: Word) -> State:
        """Return the `State` for these values; create and add it at the first call."""
        key = kernel, address, word
        if key not in self.states:
            maps = maps_of(self.dump, block.grid) if block.grid is not None else ()
            self.states[key] = State(kernel, address, word, self._code(kernel, block), maps)
        return self.states[key]

    def _stand(self, warp: Warp, pc: int, lane: int) -> _Stands:
        """Return the position of threads, and the barrier at which they wait."""
        function = self.dump.function_at(pc)
        if function is None:
            return _Stands("in code that the file has not")
        flow = flow_of(self.dump, function)
        if flow is None:
            return _Stands("in a function that is too long to be read")
        place = flow.place(pc)
        waits = flow.waits_of(place)
        if not waits:
            return _Stands(_standing_words(flow, place), self.dump.lines_at(pc))
        lines = self.dump.lines_at(function.start + INSTRUCTION_BYTES * waits[0])
        # The wait is in a loop, so it ran before `pc`, and will run again after `pc`. Its operands
        # may be known for only one of these two runs.
        for ahead in (False, True):
            registers = Registers(warp, flow, pc, lane, ahead)
            address = _only(registers.barrier(wait) for wait in waits)
            if address is not None:
                break
        else:
            return _Stands(f"{_WAIT} that the registers no longer name", lines)
        token = _only(registers.register(flow[wait].first, wait) for wait in waits)
        # the parity is bit 31 of a wait's operand
        parity = None if token is None else token >> 31
        return _Stands(_WAIT, lines, parity, waits[0], offset_of(address))

    def _code(self, kernel: Kernel, block: Block) -> Code:
        if kernel not in self._codes:
            self._codes[kernel] = self._read_code(block)
        return self._codes[kernel]

    def _read_code(self, block: Block) -> Code:
        """Return the `Code` of a block's kernel."""
        function = self.dump.function_of(block.grid)
        flow = flow_of(self.dump, function) if function is not None else None
        warp = next(self.dump.warps(block), None)
        if flow is None or warp is None:
            return Code()
        computed = Registers(warp, flow, None, 0)
        code = [*enumerate(flow.code)]
        addresses = (computed.barrier(place) for place, _ in code)
        return Code(
            frozenset(
                computed.register(op.first, place)
                for place, op in code
                if op.is_arrival and op.arrival in _ANNOUNCING
            ),
            any(op.coding is not None and op.is_multicast for _, op in code),
            frozenset(offset_of(address) for address in addresses if address is not None),
        )

    def _add_quiet(self, kernel: Kernel, blocks: list[Block]) -> None:
        """Add the barriers at which no warp waits.

        8 bytes of shared memory that look like an mbarrier are added in two cases: they are near a
        known barrier, or all blocks have such bytes at the same address.
        """
        waited = {*self.states}
        known = {address for name, address, _ in waited if name == kernel}
        found: dict[int, list[Block]] = defaultdict(list)
        for block in blocks:
            words = np.frombuffer(block.shared, "<u8", len(block.shared) // 8)
            for place in np.flatnonzero(looks_like_one(words, _MOST_ARRIVALS)).tolist():
                found[8 * place].append(block)
        chosen = known | self._code(kernel, blocks[0]).barriers
        # A chosen barrier can add its neighbours on both sides. So there are two passes, first by
        # ascending address, then by descending address.
        for address in (*sorted(found), *sorted(found, reverse=True)):
            everywhere = len(blocks) > 1 and len(found[address]) == len(blocks)
            if everywhere or any(abs(address - other) <= _NEIGHBOURS for other in chosen):
                chosen.add(address)
        for address in chosen:
            for block in found.get(address, ()):
                word = Word.at(block.shared, address)
                if word is not None and (kernel, address, word) not in waited:
                    self.state(kernel, block, address, word).blocks += 1


def _all_wait_at(address: int, one: _Blocked) -> bool:
    """Return whether every warp of a block waits at the barrier that has this address."""
    waiting = one.waited.get(address)
    return waiting is not None and sum(waiting.waits.values()) == one.warps


def _warps_of(block: Block) -> int:
    """Return the number of warps that a block was launched with."""
    x, y, z = block.grid.dims("block") if block.grid is not None else (0, 0, 0)
    return -(-x * y * z // _WARP_THREADS)


def _warpgroup(warp: Warp) -> int:
    """Return the index of a warp's warpgroup in its block."""
    grid = warp.block.grid
    if grid is None or not len(warp.lanes):
        return 0
    x, y, z = three(warp.lanes[0], "thread")
    wide, high, _ = grid.dims("block")
    return (x + wide * (y + high * z)) // _WARPGROUP_THREADS


def _only(values: Iterable[int | None]) -> int | None:
    """Return the common value of all items, or None if items differ."""
    found = {*values}
    return found.pop() if len(found) == 1 else None


def _standing_words(flow: Flow, place: int) -> str:
    # for threads at a block barrier or a trap, the program counter is already at the next
    # instruction
    before = flow[place - 1].name if place else ""
    name = before if before in ("BAR", "BPT") else flow[place].name
    return _STANDING.get(name, _ELSEWHERE)
