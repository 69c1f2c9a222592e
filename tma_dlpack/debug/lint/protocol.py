"""Rules of mbarriers: who arrives, who waits, how many bytes, in which phase.

Barriers are grouped into families: one address, or the stages of a ring, which an index leads to.
The stages of one ring begin where another ring's end, so that a constant tells rings apart. Facts
that hold for the whole function need no path: a family that threads wait for needs an arrival
somewhere, in whatever role of the kernel. What is known of an address by its family alone makes a
warning; an address that is a number makes an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tma_dlpack.debug.lint.events import Events
from tma_dlpack.debug.lint.rules import Mistake
from tma_dlpack.ptx.flow import excluded
from tma_dlpack.ptx.parse import Instruction
from tma_dlpack.ptx.values import APART, Term, Value, at_thread, holds_at, registers
from tma_dlpack.tables.coerce import counted, rows

_WORDS = {
    name: words
    for name, *words in rows("""
nobody | BARRIER_ARRIVALS | threads wait for an mbarrier at which no thread arrives: the wait never
    ends | arrive at it: mbarrier.arrive.expect_tx with the bytes of the copies, or mbarrier.arrive
unawaited | LOAD_WAIT | a bulk copy completes on an mbarrier that no thread waits for: what it
    copies may be read before it is there | wait for the barrier's phase before the memory is used:
    mbarrier.try_wait.parity in a loop
unheard | BARRIER_ARRIVALS | threads arrive at an mbarrier that no thread waits for | wait for it
    where what the arrival allows is done, such as before a copy into a stage that was released
unexpected | BARRIER_BYTES | bulk copies complete on an mbarrier for which no thread expects their
    bytes: its phase ends before they are there, or never |
    mbarrier.arrive.expect_tx with the bytes of the copies, by the thread that issues them
bytes | BARRIER_BYTES | a barrier expects {count} bytes, and the copies that follow complete
    {total}: the wait {ends} | expect the bytes of the copies: TensorMap.tx_bytes of each
constant | BARRIER_PARITY | an mbarrier is waited for in a loop, always with the same parity: every
    second wait is over before it begins, or never ends | flip the parity each time the ring comes
    to its first stage again
ahead | BARRIER_PARITY | the first wait for an mbarrier that copies complete on has parity 1: it
    ends at once, before the copy | begin with parity 0 where data is waited for, and with 1 where
    an empty stage is
cycle | BARRIER_PARITY | the first wait for an mbarrier has parity 0, and every arrival at it waits
    for a copy that this wait is before: the kernel hangs | begin with parity 1 where an empty
    stage is waited for: the phase before the first counts as over
count | BARRIER_ARRIVALS | an mbarrier is initialised for {count} arrivals, and its {sites} in this
    kernel make {sums}: the wait never ends, or ends too early | initialise it for the number of
    arrivals of one phase
unreleased | BARRIER_ARRIVALS | a loop waits for a stage to be released before each copy into it,
    and the loop that reads the stages releases none | arrive at the stage's barrier behind the
    last read of it, in the same loop
""")
}

_EXPECT = re.compile(r"mbarrier\.arrive\.expect_tx|mbarrier\.arrive_drop\.expect_tx")
_ARRIVE = re.compile(r"mbarrier\.arrive|cp\.async\.mbarrier\.arrive|tcgen05\.commit")
_AWAIT = re.compile(r"mbarrier\.(?:try_wait|test_wait)")
_COPY = re.compile(
    r"cp\.async\.bulk\S*\.mbarrier::complete_tx|(?:st|red)\.async\S*\.mbarrier::complete_tx"
)
#: Bits of an address that are its place in shared memory; the others name the block of a cluster.
_PLACE_BITS = (1 << 24) - 1
_BARRIER_BYTES = 8
_FAR = 64 * _BARRIER_BYTES  # bytes of the longest ring
_MOST_SITES = 2000


@dataclass(eq=False)
class Site:
    """An instruction of a barrier: "init", "arrive", "expect", "copy" or "await"."""

    kind: str
    code: Instruction
    block: int
    value: Value
    at: int  # the number in its address
    index: tuple[Term, ...]  # what is added at run time
    arrives: bool = False
    family: int | None = None  # None: any barrier
    more: dict[str, int] = field(default_factory=dict)


class Protocol:
    """The barriers of a function."""

    def __init__(self, events: Events, sizes: Callable[[Instruction], int | None]) -> None:
        self.events = events
        self.flow = events.flow
        self.values = events.flow.values
        self.sizes = sizes
        self.sites: list[Site] = []
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
        site = Site(kind, code, block, value, at, index)
        site.arrives = kind == "arrive" or bool(_EXPECT.match(opcode))
        self.sites.append(site)

    def _families(self) -> None:
        """Name the family of each site by the number that its ring begins at."""
        starts: dict[int, int] = {}  # an indexed number, and where its ring begins
        for at in sorted({site.at for site in self.sites if site.index and site.at >= APART}):
            starts[at] = starts.get(at - _BARRIER_BYTES, at)  # an unrolled loop: the next stage
        counts = {s.at: self.values.operand(s.code.split()[-1])
                  for s in self.sites if s.kind == "init" and not s.index}  # fmt: skip
        for site in self.sites:
            if site.at < APART:
                continue  # the base is in a register
            below = max((at for at in starts if at <= site.at), default=-_FAR)
            is_stage = site.at - below < _FAR and (site.at - below) % _BARRIER_BYTES == 0
            if is_stage and counts.get(site.at) == counts.get(starts[below]):
                site.family = starts[below]
            else:
                site.family = site.at

    @cached_property
    def by_family(self) -> dict[int, list[Site]]:
        found = defaultdict(list)
        for site in self.sites:
            if site.family is not None:
                found[site.family].append(site)
        return found

    def of(self, family: int, *kinds: str) -> list[Site]:
        return [site for site in self.by_family[family] if site.kind in kinds]

    @cached_property
    def loops(self) -> list[tuple[int, frozenset[int]]]:
        """The natural loops, (header, blocks), the smallest first; loops of one wait left out."""
        blocks = self.flow.blocks
        before: dict[int, list[int]] = defaultdict(list)
        for number, block in enumerate(blocks):
            for follows in block.next:
                before[follows].append(number)
        found: dict[int, set[int]] = {}
        for latch, header in _back_edges([block.next for block in blocks]):
            body = found.setdefault(header, {header})
            work = [latch]
            while work:
                number = work.pop()
                self.flow.step(1)
                if number not in body:
                    body.add(number)
                    work += before[number]
        kept = [(h, frozenset(b)) for h, b in found.items() if not self._only_waits(b)]
        return sorted(kept, key=lambda loop: len(loop[1]))

    def _only_waits(self, body: Iterable[int]) -> bool:
        code = [code for number in body for code in self.flow.blocks[number].code]
        events = {what for n in body for what in (h.what for h in self.events.blocks[n])}
        return len(code) < _MOST_OF_A_SPIN and events <= {"use", "await", "write_register"}

    def loop_of(self, site: Site) -> frozenset[int]:
        """Return the blocks of the innermost loop around a site, none if there is no loop."""
        return next((body for _, body in self.loops if site.block in body), frozenset())

    def reached(self, target: Site, barred: Sequence[Site]) -> bool:
        """Whether a path leads from the entry to a site and passes none of the barred sites."""
        stops: dict[int, int] = {}
        for site in barred:
            line = site.code.line
            stops[site.block] = min(line, stops.get(site.block, line))
        here = self.flow.always[target.block]
        work, seen = [0], set()
        while work:
            number = work.pop()
            self.flow.step(1)
            if number in seen or excluded(self.flow.always[number], here):
                continue
            seen.add(number)
            stop = stops.get(number)
            if number == target.block and (stop is None or stop >= target.code.line):
                return True
            if stop is None:
                work += self.flow.blocks[number].next
        return False

    def threads(self, site: Site) -> tuple[int, bool]:
        """Return how many threads of a full block execute a site at most, and whether all do."""
        most = _BLOCK.search(self.values.function.header)
        if most is None or (most[3] or "1") != "1" or (most[2] or "1") != "1":
            return 0, False
        known = [c for c in self.flow.conditions(site.code, site.block) if _of_thread_alone(c[0])]
        threads = range(min(int(most[1]), 1024))
        number = sum(all(holds_at(c, t) for c in known) for t in threads)
        return number, all(map(self._is_followed, self._deciders(site.block)))

    def _deciders(self, target: int) -> Iterator[int]:
        """Return the blocks whose branch decides whether a block is come to."""
        blocks = self.flow.blocks
        before: dict[int, list[int]] = defaultdict(list)
        for number, block in enumerate(blocks):
            for follows in block.next:
                before[follows].append(number)
        reach, work = set(), [target]
        while work:
            number = work.pop()
            self.flow.step(1)
            if number not in reach:
                reach.add(number)
                work += before[number]
        return (n for n in reach if blocks[n].branch and not reach.issuperset(blocks[n].next))

    def _is_followed(self, block: int) -> bool:
        """Whether a branch is uniform, or its conditions are known in each thread."""
        branch = self.flow.blocks[block].branch
        sides = [self.values.branch(branch[1], n) for n in (False, True)] if branch else []
        return all(
            any(_of_thread_alone(c[0]) or not any(s.by_thread for s, _ in c[0]) for c in side)
            for side in sides
        ) and all(symbol.op != "register" for side in sides for c in side for symbol, _ in c[0])


_MOST_OF_A_SPIN = 40
_BLOCK = re.compile(r"\.(?:reqntid|maxntid)\s+(\d{1,4})(?:\s*,\s*(\d{1,4}))?(?:\s*,\s*(\d{1,4}))?")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d{1,2})(?:\s*,\s*(\d{1,2}))?(?:\s*,\s*(\d{1,2}))?")


def _of_thread_alone(terms: tuple[Term, ...]) -> bool:
    return not at_thread((terms, 0), 0, {})[0]


def _unwrapped(value: Value) -> Value:
    """Return the address in the own block of a barrier in another block of the cluster."""
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


def _added(value: Value, number: int) -> Value:
    return value[0], value[1] + number


def _back_edges(follows: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Return the edges (from, to) that lead to a block on the path from the entry."""
    state = [0] * len(follows)  # 1: on the path, 2: done
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


def _mistake(
    name: str, severity: str, cause: Site, use: Site | None = None, **shown: object
) -> Mistake:
    rule, message, fix = _WORDS[name]
    return Mistake(
        rule, severity, cause.code, use.code if use else None, message.format(**shown), fix
    )


def barriers(events: Events, sizes: Callable[[Instruction], int | None]) -> Iterator[Mistake]:
    """Return what is wrong with the barriers of a function.

    `sizes` returns the bytes of a copy, None where they are unknown.
    """
    protocol = Protocol(events, sizes)
    if not any(site.kind == "init" for site in protocol.sites):
        return  # the barriers are another function's
    if len(protocol.sites) > _MOST_SITES:
        return
    anywhere = {site.kind for site in protocol.sites if site.family is None}
    anywhere |= {"arrive"} if any(s.arrives and s.family is None for s in protocol.sites) else set()
    for family, sites in protocol.by_family.items():
        if protocol.of(family, "init"):
            yield from _members(protocol, family, sites, anywhere)
            yield from _counts(protocol, sites, anywhere)
    yield from _bytes(protocol)
    yield from _parities(protocol)
    yield from _releases(protocol, anywhere)


def _members(
    protocol: Protocol, family: int, sites: list[Site], anywhere: set[str]
) -> Iterator[Mistake]:
    """Compare who waits, who arrives and who copies."""
    awaits, copies = protocol.of(family, "await"), protocol.of(family, "copy")
    arrivals = [site for site in sites if site.arrives]
    expects = protocol.of(family, "expect")
    severity = "warning" if any(site.index for site in sites) else "error"
    if awaits and not arrivals and "arrive" not in anywhere:
        yield _mistake("nobody", severity, awaits[0])
    if copies and not awaits and "await" not in anywhere:
        yield _mistake("unawaited", severity, copies[0])
    if arrivals and not copies and not awaits and not {"await", "copy"} & anywhere:
        yield _mistake("unheard", "warning", arrivals[0])
    if copies and not expects and "expect" not in anywhere and (arrivals or not awaits):
        yield _mistake("unexpected", severity, copies[0])


def _counts(protocol: Protocol, sites: list[Site], anywhere: set[str]) -> Iterator[Mistake]:
    """Compare the count of the initialisation with sums of what the sites arrive."""
    inits = [site for site in sites if site.kind == "init"]
    counts = {protocol.values.operand(site.code.split()[-1]) for site in inits}
    arrivals = [site for site in sites if site.arrives]
    if len(counts) != 1 or not arrivals or "arrive" in anywhere:
        return
    (terms, count), *_ = counts
    if terms or any(len(site.code.split()) > 2 and site.kind == "arrive" for site in arrivals):
        return  # an arrival may count for several
    if any(site.code.opcode.startswith(("cp.async", "tcgen05")) for site in arrivals):
        return
    if any(symbol.by_thread for site in arrivals for symbol, _ in site.value[0]):
        return  # each thread has its own barrier
    numbers = [protocol.threads(site) for site in arrivals]
    if not all(most for most, _ in numbers):
        return
    sums = {0}
    for most, _ in numbers:
        sums |= {total + most for total in sums}
    if count > max(sums) or (count not in sums and all(exact for _, exact in numbers)):
        shown = ", ".join(map(str, sorted(sums - {0})))
        yield _mistake("count", "warning", inits[0], arrivals[0], count=count,
                       sites=counted(len(arrivals), "arrival"), sums=shown)  # fmt: skip


def _bytes(protocol: Protocol) -> Iterator[Mistake]:
    """Compare what a thread expects with the copies that it issues beside that."""
    copies: dict[Value, list[Site]] = defaultdict(list)
    others: dict[Value, list[Site]] = defaultdict(list)
    for site in protocol.sites:
        if site.kind == "copy":
            copies[site.value].append(site)
        elif site.kind in ("expect", "arrive"):
            others[site.value].append(site)
    expected = {site.block for value in others for site in others[value] if site.kind == "expect"}
    for value, sites in copies.items():
        blocks = {site.block for site in sites}
        expects = [site for site in others[value] if site.kind == "expect"]
        for block in blocks:
            near = [site for site in others[value] if site.block == block]
            kinds = {site.kind for site in near}
            if kinds == {"arrive"} and not expects:
                first = next(site for site in sites if site.block == block)
                yield _mistake("unexpected", "warning", near[0], first)
        if len(expects) != 1 or blocks != {expects[0].block}:
            continue
        yield from _total(protocol, expects[0], sites)
    lone = [s for value in copies if not others[value] for s in copies[value]
            if s.family and ".cta_group::2" not in s.code.opcode]  # fmt: skip
    announced = {s.family for value in copies if others[value] for s in copies[value]}
    for site in lone:
        if site.family in announced and site.block not in expected:
            yield _mistake("unexpected", "warning", site)


def _total(protocol: Protocol, expect: Site, copies: list[Site]) -> Iterator[Mistake]:
    terms, count = protocol.values.operand(expect.code.split()[-1])
    sizes = [(protocol.sizes(site.code), ".multicast" in site.code.opcode) for site in copies]
    if terms or any(size is None for size, _ in sizes):
        return
    own = sum(size or 0 for size, is_multicast in sizes if not is_multicast)
    shared = sum(size or 0 for size, is_multicast in sizes if is_multicast)
    cluster = _CLUSTER.search(protocol.values.function.header)
    blocks = 1
    for number in cluster.groups() if cluster else ("16",):
        blocks *= int(number or 1)
    totals = {own + shared * times for times in range(1, blocks + 1)} if shared else {own}
    if any(".cta_group::2" in site.code.opcode for site in copies):
        totals |= {2 * total for total in totals}  # the pair's copies complete on one barrier
    if count not in totals:
        ends = "never ends" if count > max(totals) else "ends too early"
        shown = " or ".join(str(total) for total in sorted(totals)[:3])
        yield _mistake("bytes", "error", expect, copies[0], count=count, total=shown, ends=ends)


def _parities(protocol: Protocol) -> Iterator[Mistake]:
    """Look at the parity of waits: of the first one, and of those in a loop."""
    for site in protocol.sites:
        words = site.code.split()
        if site.kind != "await" or ".parity" not in site.code.opcode or len(words) < 3:
            continue
        parity = protocol.values.operand(words[2])
        body = protocol.loop_of(site)
        moves = {name for n in body for name in _written_in(protocol, n)}
        if body and not registers(parity[0]) & moves and not _depends(parity, "ctaid", "tid"):
            alike = [s for s in protocol.sites if s.block in body and s.family == site.family]
            others = {tuple(s.code.split()[2:3]) for s in alike if s.kind == "await"}
            turns = _is_ring(protocol, site, moves)
            again = not site.index and any(s.kind == "copy" for s in alike)
            if len(others) == 1 and (turns or again):
                yield _mistake("constant", "warning", site)
                continue
        if site.family is not None:
            yield from _first_parity(protocol, site, parity)


def _depends(value: Value, *words: str) -> bool:
    return any(word in symbol.op for symbol, _ in value[0] for word in words)


def _written_in(protocol: Protocol, block: int) -> Iterator[str]:
    from tma_dlpack.ptx.values import written

    for code in protocol.flow.blocks[block].code:
        yield from written(code)


def _is_ring(protocol: Protocol, site: Site, moves: set[str]) -> bool:
    """Whether the index of a barrier comes back to the first stage in the loop."""
    names = registers(site.index) & moves
    return bool(names) and not any(protocol.values.counts(name) for name in names)


def _first_parity(protocol: Protocol, site: Site, parity: Value) -> Iterator[Mistake]:
    """Look at the parity of a wait that no other wait for the family comes before."""
    family = site.family or 0
    known = protocol.values.first_turn(parity, site.code.line, frozenset(), lambda line: True)
    left, number = at_thread(parity, 0, known)
    if left:
        return
    own = protocol.of(family, "await")
    copies = protocol.of(family, "copy")
    others = [s for s in own if s is not site and s.code.line != site.code.line]
    if number == 1 and copies:
        alone = not any(protocol.reached(site, ()) and _before(protocol, s, site) for s in others)
        if alone:
            yield _mistake("ahead", "warning", site, copies[0])
    elif number == 0 and not copies:
        body = protocol.loop_of(site)
        filled = {s.family for s in protocol.sites if s.kind == "copy" and s.block in body}
        filled -= {None, family}
        full = [s for f in filled if f is not None for s in protocol.of(f, "await")]
        arrivals = [s for s in protocol.by_family[family] if s.arrives]
        copies = [s for f in filled if f is not None for s in protocol.of(f, "copy")]
        behind = [*((s, full) for s in arrivals), *((s, [site]) for s in copies)]
        if full and arrivals and not any(protocol.reached(s, first) for s, first in behind):
            yield _mistake("cycle", "warning", site, arrivals[0])


def _before(protocol: Protocol, first: Site, site: Site) -> bool:
    """Whether some path to a site passes another one first."""
    return (
        protocol.reached(site, ())
        and (not protocol.reached(site, [first]) or first.code.line < site.code.line)
        and not excluded(protocol.flow.always[first.block], protocol.flow.always[site.block])
    )


def _releases(protocol: Protocol, anywhere: set[str]) -> Iterator[Mistake]:
    """Look at rings: stages that a loop fills must be released by the loop that reads them."""
    if anywhere & {"await", "arrive", "copy"}:
        return
    for site in protocol.sites:
        if site.kind != "await" or not site.index or site.family is None:
            continue
        body = protocol.loop_of(site)
        filled = {s.family for s in protocol.sites if s.kind == "copy" and s.block in body}
        filled -= {None, site.family}
        readers = [s for f in filled if f is not None for s in protocol.of(f, "await")]
        arrivals = [s for s in protocol.by_family[site.family] if s.arrives]
        loops = {protocol.loop_of(reader) for reader in readers}
        if not readers or not all(loops) or not arrivals:
            continue
        if not any(arrival.block in loop for loop in loops for arrival in arrivals):
            yield _mistake("unreleased", "warning", site, arrivals[0])
