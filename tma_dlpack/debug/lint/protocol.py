"""The mbarriers of a function, the instructions that use them, and paths between them.

Barriers are grouped into families. A family is the barrier at one address, or all barriers of a
ring. A ring is an array of barriers with one barrier for each stage. The kernel selects a barrier
of the ring by an index. Each ring is contiguous in memory, so the constant part of an address
identifies the ring.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tma_dlpack.debug.lint.events import KNOWN_CALLS, Events, callee_of
from tma_dlpack.ptx.flow import excluded
from tma_dlpack.ptx.parse import Instruction
from tma_dlpack.ptx.values import APART, Condition, Term, Value, at_thread, holds_of, registers

_EXPECT = re.compile(r"mbarrier\.arrive\.expect_tx|mbarrier\.arrive_drop\.expect_tx")
_ARRIVE = re.compile(r"mbarrier\.arrive|cp\.async\.mbarrier\.arrive|tcgen05\.commit")
_AWAIT = re.compile(r"mbarrier\.(?:try_wait|test_wait)")
_COPY = re.compile(
    r"cp\.async\.bulk\S*\.mbarrier::complete_tx|(?:st|red)\.async\S*\.mbarrier::complete_tx"
)
#: The bits of a shared::cluster address that are the offset in the shared memory of a block. The
#: other bits select the block of the cluster.
_PLACE_BITS = (1 << 24) - 1
_BARRIER_BYTES = 8
_MOST_OF_A_SPIN = 40  # a loop with this many instructions is not only a wait for a barrier
_MOST_THREADS = 1024
_OTHER_DIMENSION = re.compile(r"%n?tid\.[yz]")
_BLOCK = re.compile(r"\.(reqntid|maxntid)\s+(\d{1,4})(?:\s*,\s*(\d{1,4}))?(?:\s*,\s*(\d{1,4}))?")
_FAR = 64 * _BARRIER_BYTES  # maximum size of a ring in bytes


@dataclass(eq=False)
class Site:
    """An instruction that uses an mbarrier.

    `kind` is "init", "arrive", "expect", "copy" or "await".
    """

    kind: str
    code: Instruction
    block: int
    value: Value
    at: int  # the constant part of the barrier's address
    index: tuple[Term, ...]  # the part of the address that is only known at run time
    arrives: bool = False
    family: int | None = None  # None if the barrier is unknown


class Protocol:
    """The mbarriers of a function."""

    def __init__(self, events: Events, sizes: Callable[[Instruction], int | None]) -> None:
        self.events = events
        self.flow = events.flow
        self.values = events.flow.values
        self.sizes = sizes
        self.sites: list[Site] = []
        self._values: dict[tuple[Term, ...], list[Value]] = {}
        for number, block in enumerate(self.flow.blocks):
            for code in block.code:
                self._read(code, number)
        self._families()

    def _read(self, code: Instruction, block: int) -> None:
        opcode = code.opcode
        kind, place = "", 0
        if opcode.startswith("mbarrier.init"):
            kind = "init"
        elif _EXPECT.match(opcode) or opcode.startswith("mbarrier.expect_tx"):
            kind = "expect"
        elif _ARRIVE.match(opcode):
            kind = "arrive"
        elif _AWAIT.match(opcode):
            kind = "await"
        elif _COPY.match(opcode):
            kind, place = "copy", 1 if ".async" in opcode[:10] and "bulk" not in opcode else 2
        address = code.address(place) if kind else ""
        if not address:
            return
        value = _unwrapped(self.values.address(address))
        index, at = at_thread(value, 0, {**self.values.bases})
        site = Site(kind, code, block, value, at - _turned(index), index)
        site.arrives = kind == "arrive" or bool(_EXPECT.match(opcode))
        self.sites.append(site)

    def _families(self) -> None:
        """Set `family` of each site to the address of the first barrier of the site's family."""
        starts: dict[int, int] = {}  # constant part of an indexed address -> start of its ring
        for at in sorted({site.at for site in self.sites if site.index and site.at >= APART}):
            # an unrolled loop has a site for each stage, so `at` may be a later stage of the ring
            # that contains the barrier below `at`
            starts[at] = starts.get(at - _BARRIER_BYTES, at)
        inits = [site for site in self.sites if site.kind == "init"]
        counts = {s.at: self.values.operand(s.code.split()[-1]) for s in inits}
        # addresses of rings that a loop initialises; the ends of these rings are not known
        looped = {site.at for site in inits if registers(site.index)}
        unclear = set()
        for site in self.sites:
            if site.at < APART:
                continue  # the base address is in a register, so the barrier is not known
            below = max((at for at in starts if at <= site.at), default=-_FAR)
            is_near = site.at - below < _FAR and (site.at - below) % _BARRIER_BYTES == 0
            is_stage = is_near and counts.get(site.at) == counts.get(starts[below])
            site.family = starts[below] if is_stage and site.at in counts else site.at
            if site.at not in counts:
                rings = {at for at in looped if 0 < site.at - at < _FAR}
                unclear |= {*rings, *([site.at] if rings else [])}
        for site in self.sites:
            if site.family in unclear:
                site.family = None

    @cached_property
    def by_family(self) -> dict[int, list[Site]]:
        found = defaultdict(list)
        for site in self.sites:
            if site.family is not None:
                found[site.family].append(site)
        return found

    @cached_property
    def calls(self) -> bool:
        """Whether the function calls functions that may use the barriers."""
        codes = (c for c in self.values.function.code if c.opcode.startswith("call"))
        return any(callee_of(code) not in KNOWN_CALLS for code in codes)

    def of(self, family: int, *kinds: str) -> list[Site]:
        return [site for site in self.by_family[family] if site.kind in kinds]

    @cached_property
    def _before(self) -> dict[int, list[int]]:
        """The predecessors of each block."""
        before: dict[int, list[int]] = defaultdict(list)
        for number, block in enumerate(self.flow.blocks):
            for follows in block.next:
                before[follows].append(number)
        return before

    @cached_property
    def loops(self) -> list[tuple[int, frozenset[int]]]:
        """The natural loops (header, blocks), smallest first; loops that only wait are skipped."""
        found: dict[int, set[int]] = {}
        for latch, header in _back_edges([block.next for block in self.flow.blocks]):
            body = found.setdefault(header, {header})
            work = [latch]
            while work:
                number = work.pop()
                self.flow.step(1)
                if number not in body:
                    body.add(number)
                    work += self._before[number]
        kept = [(h, frozenset(b)) for h, b in found.items() if not self._only_waits(b)]
        return sorted(kept, key=lambda loop: len(loop[1]))

    def _only_waits(self, body: Iterable[int]) -> bool:
        code = [code for number in body for code in self.flow.blocks[number].code]
        events = {what for n in body for what in (h.what for h in self.events.blocks[n])}
        return len(code) < _MOST_OF_A_SPIN and events <= {"use", "await", "write_register"}

    def loop_of(self, *blocks: int) -> frozenset[int]:
        """Return the innermost loop that contains all blocks, or an empty set."""
        return next((body for _, body in self.loops if body.issuperset(blocks)), frozenset())

    def has_barrier(self, blocks: Iterable[int]) -> bool:
        """Return whether these basic blocks contain a barrier of the thread block."""
        events = (h.what for n in blocks for h in self.events.blocks[n])
        return "barrier" in events

    def reached(self, target: Site, barred: Iterable[Site] = (), start: Site | None = None) -> bool:
        """Return whether a path from `start` (or the entry) to `target` avoids all barred sites."""
        stops: dict[int, list[int]] = defaultdict(list)
        for site in barred:
            stops[site.block].append(site.code.line)
        here = self.flow.always[target.block]
        work, seen = [(start.block, start.code.line) if start else (0, -1)], set()
        while work:
            number, line = work.pop()
            self.flow.step(1)
            stop = min((at for at in stops[number] if at > line), default=None)
            if number == target.block and target.code.line > line:
                if stop is None or stop >= target.code.line:
                    return True
                continue
            if stop is None:
                for follows in self.flow.blocks[number].next:
                    if follows not in seen and not excluded(self.flow.always[follows], here):
                        seen.add(follows)
                        work.append((follows, -1))
        return False

    def threads(self, site: Site) -> tuple[int, bool]:
        """Return (maximum number of threads that execute a site, whether this number is exact).

        The number is 0 if the threads cannot be counted. This happens in two cases: the thread
        block has several dimensions, or its size is unknown and several threads may execute the
        site.
        """
        header = self.values.function.header
        size = _BLOCK.search(header)
        if size is None and self._has_more_dimensions:
            return 0, False
        if size and (size[3] or "1", size[4] or "1") != ("1", "1"):
            return 0, False
        most = min(int(size[2]), _MOST_THREADS) if size else _MOST_THREADS
        known = [c for c in self.flow.conditions(site.code, site.block) if _of_thread_alone(c[0])]
        number = len(set(range(most)).intersection(*map(self._threads_where, known)))
        if number > 1 and size is None:
            return 0, False
        is_size = number == 1 or bool(size and size[1] == "reqntid")
        return number, is_size and all(map(self._is_followed, self._deciders(site.block)))

    def _threads_where(self, condition: Condition) -> frozenset[int]:
        """Return the indices of the threads for which a condition can hold."""
        terms = condition[0]  # the key of `_values`: both sides of a branch have the same terms
        if terms not in self._values:
            threads = range(_MOST_THREADS)
            self._values[terms] = [at_thread((terms, 0), thread, {}) for thread in threads]
        values = enumerate(self._values[terms])
        return frozenset(thread for thread, value in values if holds_of(condition, value))

    @cached_property
    def _has_more_dimensions(self) -> bool:
        return any(_OTHER_DIMENSION.search(code.operands) for code in self.values.function.code)

    def _deciders(self, target: int) -> Iterator[int]:
        """Return the basic blocks whose branch decides whether the block `target` is reached."""
        blocks = self.flow.blocks
        reach, work = set(), [target]
        while work:
            number = work.pop()
            self.flow.step(1)
            if number not in reach:
                reach.add(number)
                work += self._before[number]
        return (n for n in reach if blocks[n].branch and not reach.issuperset(blocks[n].next))

    def _is_followed(self, block: int) -> bool:
        """Return whether the branch of a block is uniform, or depends only on the thread index."""
        branch = self.flow.blocks[block].branch
        sides = [self.values.branch(branch[1], n) for n in (False, True)] if branch else []
        return all(
            any(_of_thread_alone(c[0]) or not any(s.by_thread for s, _ in c[0]) for c in side)
            for side in sides
        ) and all(symbol.op != "register" for side in sides for c in side for symbol, _ in c[0])


def _of_thread_alone(terms: tuple[Term, ...]) -> bool:
    return not at_thread((terms, 0), 0, {})[0]


def _unwrapped(value: Value) -> Value:
    """Return the address without `mapa` and masks.

    The result is the offset in the shared memory of one block.
    """
    terms, constant = value
    if len(terms) == 1 and terms[0][1] == 1:
        symbol = terms[0][0]
        inner = symbol.arguments
        if symbol.op == "mapa":
            return _added(_unwrapped(inner[0]), constant)
        if symbol.op == "and" and len(inner) == 2:
            for part, mask in (inner, inner[::-1]):
                if not mask[0] and mask[1] & _PLACE_BITS == _PLACE_BITS and part[0]:
                    return _added(_unwrapped(part), constant)
    return value


def _turned(index: tuple[Term, ...]) -> int:
    """Return the bytes that the constant n of an index ``(i + n) % stages`` adds to the address.

    The result is 0 for other indices.

    PTX code from nvcc computes this remainder as i + n minus a multiple of a quotient. The dividend
    of the quotient is i + n.
    """
    added = [term for term in index if term[1] > 0]
    for symbol, factor in index:
        terms, number = symbol.arguments[0] if symbol.arguments else ((), 0)
        if factor < 0 and len(terms) == 1 and terms[0][0].op == "mul.hi":
            terms, number = terms[0][0].arguments[0]
        times = {times for _, times in (*added, *terms)}  # factors in the index and in the dividend
        if factor > 0 or not terms or registers(terms) != registers(added):
            continue
        _, scale = terms[0]
        if len(times) <= 2 and number % scale == 0:
            return number // scale * added[0][1]
    return 0


def _added(value: Value, number: int) -> Value:
    return value[0], value[1] + number


def _back_edges(follows: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the back edges (from, to) of a depth-first search from the entry."""
    state = [0] * len(follows)  # 1: on the current path, 2: finished
    work: list[tuple[int, Iterator[int]]] = []
    if follows:
        state[0] = 1
        work.append((0, iter(follows[0])))
    while work:
        at, rest = work[-1]
        to = next(rest, None)
        if to is None:
            state[at] = 2
            work.pop()
        elif state[to] == 1:
            yield at, to
        elif state[to] == 0:
            state[to] = 1
            work.append((to, iter(follows[to])))
