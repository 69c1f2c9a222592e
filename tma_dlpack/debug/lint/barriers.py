"""Rules about the arrivals, waits, bytes and parities of mbarriers.

A site (`Site`) is an instruction that uses an mbarrier. Some rules compare all sites of a function,
and follow no paths. For example, if threads wait for a barrier, the kernel must contain an arrival
at this barrier. `protocol` groups barriers into families: a family is one barrier, or the barriers
of all stages of a ring. A mistake of these rules can be an error only if the address of the barrier
is constant. If the address has an index, the mistake is a warning.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from tma_dlpack.debug.core import coerce, counted
from tma_dlpack.debug.lint.protocol import Protocol, Site
from tma_dlpack.debug.lint.rules import Mistake
from tma_dlpack.debug.lint.single import cluster_blocks
from tma_dlpack.ptx.flow import excluded
from tma_dlpack.ptx.values import Value, at_thread, registers, written

# name of the mistake -> rule, message, fix
_WORDS = {
    name: words
    for name, *words in coerce.rows("""
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
ahead | BARRIER_PARITY | the first wait for an mbarrier, after the copy or the arrival that it is
    for, has parity 1: it ends at once | begin with parity 0 where data is waited for, and with 1
    where an empty stage is
cycle | BARRIER_PARITY | the first wait for an mbarrier has parity 0, and every arrival at it waits
    for a copy that this wait is before: the kernel hangs | begin with parity 1 where an empty
    stage is waited for: the phase before the first counts as over
count | BARRIER_ARRIVALS | an mbarrier is initialised for {count} arrivals, and its {sites} in this
    kernel make {sums}: the wait never ends, or ends too early | initialise it for the number of
    arrivals of one phase
unheeded | BARRIER_ARRIVALS | stages are released in a loop, and the loop that copies into them
    waits for no release: a copy may overwrite what is still read | wait for the stage's barrier
    before each copy into it
unreleased | BARRIER_ARRIVALS | a loop waits for a stage to be released before each copy into it,
    and the loop that reads the stages releases none | arrive at the stage's barrier after the
    last read of it, in the same loop
""")
}

# maximum number of blocks of a cluster (with the non-portable size)
_MOST_BLOCKS = 16
# functions with more than _MOST_SITES instructions on mbarriers are not checked; families with more
# than _MOST_ARRIVALS arrivals are not checked by `_counts`, which compares every pair of arrivals
_MOST_SITES = 2000
_MOST_ARRIVALS = 16
# instructions that read shared memory, such as "ldmatrix" or "cp.async.bulk.global.shared::cta"
_READERS = re.compile(
    r"ld\b|ldmatrix|wgmma\.mma|tcgen05\.(mma|cp)|cp\.(reduce\.)?async\.bulk.*\.global\.shared"
)


def _mistake(
    name: str, severity: str, cause: Site, use: Site | None = None, **shown: object
) -> Mistake:
    rule, message, fix = _WORDS[name]
    return Mistake(
        rule, severity, cause.code, use.code if use else None, message.format(**shown), fix
    )


def barriers(protocol: Protocol) -> Iterator[Mistake]:
    """Yield the mistakes with the barriers of a function."""
    # if the function initialises no barrier, another function does, and this other function may
    # also arrive or wait at the barriers
    if not any(site.kind == "init" for site in protocol.sites):
        return
    if len(protocol.sites) > _MOST_SITES or protocol.calls:
        return
    # kinds of the sites whose barrier is unknown; such a site may use any barrier
    anywhere = {site.kind for site in protocol.sites if site.family is None}
    anywhere |= {"arrive"} if any(s.arrives and s.family is None for s in protocol.sites) else set()
    for family, sites in protocol.by_family.items():
        if protocol.of(family, "init"):
            yield from _members(protocol, family, sites, anywhere)
            yield from _counts(protocol, sites, anywhere)
    yield from _bytes(protocol)
    yield from _parities(protocol)
    if not anywhere & {"await", "arrive", "copy"}:
        yield from _releases(protocol)
        yield from _unheeded(protocol)


def _members(
    protocol: Protocol, family: int, sites: list[Site], anywhere: set[str]
) -> Iterator[Mistake]:
    """Check that a family has the sites that its other sites need, such as arrivals for waits."""
    awaits, copies = protocol.of(family, "await"), protocol.of(family, "copy")
    arrivals = [site for site in sites if site.arrives]
    expects = protocol.of(family, "expect")
    # if an address has an index, it is unknown which barrier of the family the site uses, so a
    # mistake is not proved
    severity = "warning" if any(site.index for site in sites) else "error"
    if awaits and not arrivals and "arrive" not in anywhere:
        yield _mistake("nobody", severity, awaits[0])
    if copies and not awaits and "await" not in anywhere:
        is_read = any(_READERS.match(code.opcode) for code in protocol.values.function.code)
        yield _mistake("unawaited", severity if is_read else "warning", copies[0])
    if arrivals and not copies and not awaits and not {"await", "copy"} & anywhere:
        yield _mistake("unheard", "warning", arrivals[0])
    if copies and not expects and "expect" not in anywhere and (arrivals or not awaits):
        yield _mistake("unexpected", severity, copies[0])


def _counts(protocol: Protocol, sites: list[Site], anywhere: set[str]) -> Iterator[Mistake]:
    """Compare the count of mbarrier.init with the possible numbers of arrivals in one phase."""
    inits = [site for site in sites if site.kind == "init"]
    counts = {protocol.values.operand(site.code.split()[-1]) for site in inits}
    arrivals = [site for site in sites if site.arrives]
    if len(counts) != 1 or not 0 < len(arrivals) <= _MOST_ARRIVALS or "arrive" in anywhere:
        return
    (terms, count), *_ = counts
    # an arrival with a count operand may add more than 1 to the number of arrivals
    if terms or any(len(site.code.split()) > 2 and site.kind == "arrive" for site in arrivals):
        return
    if any(site.code.opcode.startswith(("cp.async", "tcgen05")) for site in arrivals):
        return
    # if threads arrive at other blocks' barriers, the number of arrivals here is unknown
    if any(".shared::cluster" in site.code.opcode for site in arrivals):
        return
    # if the address depends on the thread, the threads arrive at different barriers, so the
    # arrivals cannot be added
    if any(symbol.by_thread for site in arrivals for symbol, _ in site.value[0]):
        return
    awaits = [site for site in protocol.sites if site.kind == "await"]
    own = [site for site in sites if site.kind == "await"]
    # a loop without a wait may arrive several times in one phase
    if any(protocol.reached(s, awaits, s) and not _moves(protocol, s) for s in arrivals):
        return
    # site -> (maximum number of threads that arrive, whether this number is exact)
    numbers = {site: protocol.threads(site) for site in arrivals}
    if not all(most for most, _ in numbers.values()):
        return
    # a phase may have arrivals of only some sites of a group, so the sum of every subset of the
    # group is a possible number of arrivals
    sums: set[int] = set()
    for group in _of_one_phase(protocol, arrivals, own):
        own_sums = {0}
        for site in group:
            own_sums |= {total + numbers[site][0] for total in own_sums}
        sums |= own_sums - {0}
    is_exact = all(exact for _, exact in numbers.values())
    if count > max(sums) or (count not in sums and is_exact):
        shown = " or ".join(map(str, sorted(sums)))
        yield _mistake("count", "warning", inits[0], arrivals[0], count=count,
                       sites=counted(len(arrivals), "arrival"), sums=shown)  # fmt: skip


def _moves(protocol: Protocol, site: Site) -> bool:
    """Return whether each iteration of the loop around a site uses a different barrier."""
    return bool(registers(site.index) & _written_in(protocol, protocol.loop_of(site.block)))


def _written_in(protocol: Protocol, blocks: Iterable[int]) -> set[str]:
    return {name for n in blocks for c in protocol.flow.blocks[n].code for name in written(c)}


def _of_one_phase(
    protocol: Protocol, arrivals: list[Site], awaits: list[Site]
) -> Iterator[list[Site]]:
    """Yield groups of arrivals that can be in one phase."""
    # Two arrivals are in one group if a path without a wait connects them. If no path connects the
    # two, threads with different roles execute them. Both can then be in one phase, so they are in
    # one group too.
    groups = [[site] for site in arrivals]
    for a, b in combinations(arrivals, 2):
        # sites with different constant addresses use different stages
        if a.at != b.at and not a.index and not b.index:
            continue
        between = [protocol.reached(b, (), a), protocol.reached(a, (), b)]
        direct = [protocol.reached(b, awaits, a), protocol.reached(a, awaits, b)]
        if any(direct) or not any(between):
            apart = [group for group in groups if a not in group and b not in group]
            joined = [s for group in groups if group not in apart for s in group]
            groups = [*apart, joined]
    yield from groups


def _bytes(protocol: Protocol) -> Iterator[Mistake]:
    """Compare the bytes that barriers expect with the bytes of copies in the same basic block."""
    # value of the barrier's address -> sites
    copies: dict[Value, list[Site]] = defaultdict(list)
    others: dict[Value, list[Site]] = defaultdict(list)
    for site in protocol.sites:
        if site.kind == "copy":
            copies[site.value].append(site)
        elif site.kind in ("expect", "arrive"):
            others[site.value].append(site)
    expecting = {site.block for site in protocol.sites if site.kind == "expect"}
    # families in which at least one barrier with copies has an arrival or an expect_tx
    announced = {s.family for value in copies if others[value] for s in copies[value]} - {None}
    for value, sites in copies.items():
        expects = [site for site in others[value] if site.kind == "expect"]
        by_block = {s.block: [e for e in expects if e.block == s.block] for s in sites}
        for block, near in by_block.items():
            mine = [site for site in sites if site.block == block]
            arrivals = [s for s in others[value] if s.block == block and s.kind == "arrive"]
            if arrivals and not expects:
                yield _mistake("unexpected", "warning", arrivals[0], mine[0])
                continue
            is_alone = mine[0].family in announced and not others[value] and block not in expecting
            # in a pair of blocks (cta_group::2), the leading block expects the bytes of both blocks
            if ".cta_group::2" in mine[0].code.opcode:
                is_alone = False
            if is_alone or (not near and _is_unexpected(protocol, mine[0], expects, by_block)):
                yield _mistake("unexpected", "warning", mine[0])
        if all(len(near) == 1 for near in by_block.values()):
            wrong = [
                found
                for block, (expect,) in by_block.items()
                for found in _total(protocol, expect, [s for s in sites if s.block == block])
            ]
            # if one basic block expects too much and another too little, the sum may be correct, so
            # nothing is reported
            if len({ends for ends, _ in wrong}) == 1:
                yield from (mistake for _, mistake in wrong)


def _is_unexpected(
    protocol: Protocol, copy: Site, expects: list[Site], by_block: dict[int, list[Site]]
) -> bool:
    """Return whether no expect_tx in `expects` can be for the bytes of `copy`.

    This is so if each expect_tx has copies in its own basic block, and if every path between the
    expect_tx and `copy` has a wait.
    """
    awaits = [s for s in protocol.sites if s.kind == "await" and s.value == copy.value]
    return bool(awaits and expects) and all(
        expect.block in by_block
        and not protocol.reached(copy, awaits, expect)
        and not protocol.reached(expect, awaits, copy)
        and (protocol.reached(copy, (), expect) or protocol.reached(expect, (), copy))
        for expect in expects
    )


def _total(protocol: Protocol, expect: Site, copies: list[Site]) -> Iterator[tuple[str, Mistake]]:
    """Compare the expected bytes with the sizes of the copies, if all sizes are known."""
    # with multicast, each block of the cluster may issue a part of the tile, and every block
    # receives all parts
    terms, count = protocol.values.operand(expect.code.split()[-1])
    sizes = [(protocol.sizes(site.code), ".multicast" in site.code.opcode) for site in copies]
    if terms or any(size is None for size, _ in sizes):
        return
    own = sum(size or 0 for size, is_multicast in sizes if not is_multicast)
    shared = sum(size or 0 for size, is_multicast in sizes if is_multicast)
    blocks = cluster_blocks(protocol.values.function) or _MOST_BLOCKS
    totals = {own + shared * times for times in range(1, blocks + 1)} if shared else {own}
    # in a pair of blocks, the copies of both blocks complete on one barrier
    if any(".cta_group::2" in site.code.opcode for site in copies):
        totals |= {2 * total for total in totals}
    if count not in totals:
        ends = "never ends" if count > max(totals) else "ends too early"
        shown = " or ".join(str(total) for total in sorted(totals)[:3])
        words = {"count": count, "total": shown, "ends": ends}
        yield ends, _mistake("bytes", "error", expect, copies[0], **words)


def _parities(protocol: Protocol) -> Iterator[Mistake]:
    """Check the parity of each wait in a loop, and of the first wait for each barrier."""
    for site in protocol.sites:
        words = site.code.split()
        if site.kind != "await" or ".parity" not in site.code.opcode or len(words) < 3:
            continue
        parity = protocol.values.operand(words[2])
        body = protocol.loop_of(site.block)
        moves = _written_in(protocol, body)
        # test whether the parity is constant in the loop, and independent of the block and the
        # thread
        if body and not registers(parity[0]) & moves and not _depends(parity, "ctaid", "tid"):
            alike = [s for s in protocol.sites if s.block in body and s.family == site.family]
            others = {tuple(s.code.split()[2:3]) for s in alike if s.kind == "await"}
            turns = _is_ring(protocol, site, moves)
            again = not site.index and any(s.kind == "copy" or s.arrives for s in alike)
            if len(others) == 1 and (turns or again):
                yield _mistake("constant", "warning", site)
                continue
        if site.family is not None:
            yield from _first_parity(protocol, site, parity)


def _depends(value: Value, *words: str) -> bool:
    return any(word in symbol.op for symbol, _ in value[0] for word in words)


def _is_ring(protocol: Protocol, site: Site, moves: set[str]) -> bool:
    """Return whether the loop sets the index of a barrier back to the first stage."""
    # such an index has a remainder, a mask or a negative factor, or one of its registers is reset
    names = registers(site.index) & moves
    is_remainder = any(symbol.op in ("and", "rem") or times < 0 for symbol, times in site.index)
    return bool(names) and (is_remainder or not any(map(protocol.values.counts, names)))


def _first_parity(protocol: Protocol, site: Site, parity: Value) -> Iterator[Mistake]:
    """Check the parity of the first wait for a family.

    A wait is the first if no path to it passes a wait for the same family that is above it in the
    PTX.
    """
    family = site.family or 0
    # the parity in thread 0, in the first iteration of every loop
    known = protocol.values.first_turn(parity, site.code.line, frozenset(), lambda line: True)
    left, number = at_thread(parity, 0, known)
    own = protocol.of(family, "await")
    others = [s for s in own if s.code.line < site.code.line]
    if left or any(_is_before(protocol, s, site) for s in others):
        return
    copies = protocol.of(family, "copy")
    arrivals = [s for s in protocol.by_family[family] if s.arrives]
    # after the initialisation, a wait for parity 1 ends at once, and a wait for parity 0 blocks
    if number == 1:
        if copies or (arrivals and not protocol.reached(site, arrivals)):
            yield _mistake("ahead", "warning", site, (copies or arrivals)[0])
    elif number == 0 and not copies:
        body = protocol.loop_of(site.block)
        filled = {s.family for s in protocol.sites if s.kind == "copy" and s.block in body}
        families = [f for f in filled if f is not None and f != family]
        full = [s for f in families for s in protocol.of(f, "await")]
        copies = [s for f in families for s in protocol.of(f, "copy")]
        if not full or not arrivals or any(protocol.reached(s, own) for s in copies):
            return
        after = [s for s in arrivals if not protocol.reached(s, full)]
        others = [s for s in arrivals if s not in after]
        # the release of the last stage is after the loop; the control-flow graph has a path to this
        # release that skips the loop and the waits in the loop
        is_last = all(any(protocol.reached(s, (), f) for f in full) for s in others)
        if after and is_last:
            yield _mistake("cycle", "warning", site, arrivals[0])


def _is_before(protocol: Protocol, first: Site, site: Site) -> bool:
    """Return whether a path to `site` passes `first`."""
    return protocol.reached(site, (), first) and not excluded(
        protocol.flow.always[first.block], protocol.flow.always[site.block]
    )


def _releases(protocol: Protocol) -> Iterator[Mistake]:
    """Check that the loop that reads the stages of a ring also releases them."""
    # `site` waits for an empty stage in the loop with the copies; `readers` wait for full stages
    for site in protocol.sites:
        if site.kind != "await" or not site.index or site.family is None:
            continue
        body = protocol.loop_of(site.block)
        filled = {s.family for s in protocol.sites if s.kind == "copy" and s.block in body}
        filled -= {None, site.family}
        readers = [s for f in filled if f is not None for s in protocol.of(f, "await")]
        arrivals = [s for s in protocol.by_family[site.family] if s.arrives]
        loops = {protocol.loop_of(reader.block) for reader in readers}
        if not readers or not all(loops) or not arrivals:
            continue
        if not any(arrival.block in loop for loop in loops for arrival in arrivals):
            yield _mistake("unreleased", "warning", site, arrivals[0])


def _unheeded(protocol: Protocol) -> Iterator[Mistake]:
    """Yield a mistake if the loop with the copies never waits for the release of a stage.

    If all waits for releases are outside of loops, a copy may overwrite a stage that other threads
    still read.
    """
    awaits = [site for site in protocol.sites if site.kind == "await"]
    for family in protocol.by_family:
        arrivals = [s for s in protocol.of(family, "arrive") if protocol.loop_of(s.block)]
        own = protocol.of(family, "await")
        if not arrivals or not own or any(protocol.loop_of(site.block) for site in own):
            continue
        read = {s.family for s in awaits if s.block in protocol.loop_of(arrivals[0].block)}
        for copy in (s for s in protocol.sites if s.kind == "copy" and s.family in read - {None}):
            # `loops` is sorted by size, so the last body is the outermost loop
            around = [body for _, body in protocol.loops if copy.block in body]
            waits = any(site.block in around[-1] for site in awaits) if around else True
            if not waits and not protocol.has_barrier(around[-1]):
                yield _mistake("unheeded", "warning", copy, arrivals[0])
                break
