"""Rules about pairs of events, such as a write and a later copy, which need a fence between them.

A fact is a tuple (access, state, exact). The state of an access, such as "fenced", is changed by
the later events of the path. `exact` is True if the registers of the access's address are
unchanged. A use is a later event that is a mistake if the access is in a wrong state. `_NEXT` has
the new states after each event. `_PAIRS` lists the wrong states for each pair of a fact and its
use. A use in a wrong state is an error if both accesses certainly touch the same byte and the state
is wrong on every path. A use is a warning if the state is wrong on only some paths. If nothing is
known about the addresses, most pairs produce no finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tma_dlpack.debug.core import coerce, report
from tma_dlpack.debug.lint.events import Access, Event, Events
from tma_dlpack.ptx.flow import Conditions, Facts, Flow, Key, both, excluded, without
from tma_dlpack.ptx.parse import Instruction
from tma_dlpack.ptx.values import holds_at


class LintRule(NamedTuple):
    """A rule: its id, the requirement as a sentence, and the source of the requirement."""

    id: str
    about: str
    source: str


RULES: Final = {
    cells[0]: LintRule(*cells)
    for cells in coerce.rows("""
PROXY_FENCE | generic accesses to shared memory and bulk copies of it need fence.proxy.async between
    them | PTX ISA 9.0, Proxies and fence.proxy.async
GLOBAL_PROXY | ordinary stores to global memory and bulk loads of it need fence.proxy.async between
    them | PTX ISA 9.0, Proxies and fence.proxy.async
MAP_FENCE | a tensor map that the device changed needs a release and an acquire before a copy uses
    it | PTX ISA 9.0, fence.proxy.tensormap
MAP_SPACE | a tensor map is in parameter, constant or global memory | PTX ISA 9.0,
    cp.async.bulk.tensor; measured: error 700
BARRIER_INIT | an mbarrier is initialised, fenced and published before anyone uses it | PTX ISA 9.0,
    mbarrier.init and fence.mbarrier_init
BLOCK_BARRIER | what the threads of a block wrote or read is copied by one of them after a barrier
    | PTX ISA 9.0, bar.sync
MMA_WAIT | wgmma is committed and waited for before its accumulators are read or a stage that it
    reads is released | PTX ISA 9.0, wgmma.wait_group
BULK_WAIT | a bulk store is committed and waited for before its memory is written again or the block
    ends | PTX ISA 9.0, cp.async.bulk.wait_group
BARRIER_ARRIVALS | an mbarrier that is waited for has its count of arrivals in each phase |
    PTX ISA 9.0, mbarrier, phase completion
BARRIER_BYTES | an mbarrier expects the bytes of the copies that complete on it | PTX ISA 9.0,
    mbarrier, expect-tx and complete-tx
BARRIER_PARITY | a wait names the parity of the phase that it waits for | PTX ISA 9.0,
    mbarrier.try_wait.parity
LOAD_WAIT | the memory of a bulk copy is used after a wait for its mbarrier | PTX ISA 9.0,
    cp.async.bulk, completion mechanisms
MAP_MISMATCH | copies, expected bytes and matrix descriptors agree with the maps of the launch |
    measured: error 715, or a wait that ends never or too early
MAP_ACQUIRE | a tensor map in global memory that was written after the launch is acquired before a
    copy uses it | PTX ISA 9.0, fence.proxy.tensormap
BULK_SIZE | a bulk copy has a multiple of 16 bytes | PTX ISA 9.0, cp.async.bulk
ALIGNMENT | tiles of tensor copies are aligned to 128 bytes in shared memory, those of plain bulk
    copies to 16, mbarriers to 8 | PTX ISA 9.0, cp.async.bulk.tensor, cp.async.bulk and mbarrier;
    measured: error 716
PDL_ORDER | a kernel that waits for the kernel before it copies after that wait | PTX ISA 9.0,
    griddepcontrol
TMEM_LEAK | what tcgen05.alloc allocates is deallocated before the kernel ends | PTX ISA 9.0,
    tcgen05.alloc
CLUSTER_ORDER | threads arrive at the barrier of the cluster, then wait for it, then reach other
    blocks | PTX ISA 9.0,
    barrier.cluster
CLUSTER | multicast and remote barriers need a cluster, and their instructions an architecture that
    has them | PTX ISA 9.0, cp.async.bulk.tensor and .target
""")
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One or two instructions that break a rule; `report.findings` groups mistakes by cause."""

    rule: str
    severity: str  #: "error", "warning" or "note"
    cause: Instruction
    use: Instruction | None
    message: str
    fix: str

    @property
    def ends(self) -> list[Instruction]:
        """The instructions of the mistake: the cause, and the use if there is a use."""
        return [self.cause, *([self.use] if self.use else [])]


# The state of an access to shared memory depends on the events after the access: "open" (no event),
# "fenced" (a fence, no barrier), "shared" (a barrier, no fence), "some" (a fence that not all
# threads ran), "done" (a fence and a barrier). A read can also be in the state "arrived" (the
# reading thread arrived at an mbarrier) or "met" (a wait for an mbarrier followed the arrival).
_FENCED = {"open": "fenced", "shared": "done", "some": "done", "arrived": "done", "met": "done"}
_SHARED = {"open": "shared", "fenced": "done"}
# "committed n" means that the group of the access was committed, and that n more groups were
# committed later
_COMMITTED = {
    "open": "committed 0",
    **{f"committed {n}": f"committed {n + 1}" for n in range(8)},
}

#: (kind of the fact's access, kind of event) -> {old state: new state}. A state that is not in the
#: inner dict does not change. A fact in the state "done" is kept, because a path with this state
#: turns the error of another path into a warning.
_NEXT: dict[tuple[str, str], dict[str, str]] = {
    ("write", "fence"): _FENCED,
    ("write", "barrier"): _SHARED,
    ("write", "await"): {"fenced": "done"},
    ("global_write", "global_fence"): {"open": "done"},
    ("read", "fence"): _FENCED,
    ("read", "barrier"): _SHARED,
    ("read", "arrive"): {"open": "arrived", "shared": "arrived"},
    ("read", "await"): {"fenced": "done", "arrived": "met"},
    ("store", "commit"): _COMMITTED,
    ("mma", "mma_commit"): _COMMITTED,
    ("store", "barrier"): {"waited": "done"},
    ("store", "arrive"): {"waited": "done"},
    ("init", "fence"): {"open": "fenced", "barrier": "done"},
    ("init", "init_fence"): {"open": "fenced", "barrier": "done"},
    ("init", "barrier"): {"open": "barrier", "fenced": "done"},
    ("replace", "release"): {"open": "released"},
    ("replace", "acquire"): {"released": "done"},
    ("publish", "acquire"): {"open": "done"},
}

#: Old state -> new state, if only some of the threads that accessed the memory run the fence. If
#: the fence is before the barrier, it does not order the other threads' writes. If the fence is
#: after the barrier, it orders all writes.
_FENCED_BY_SOME = {"open": "some"}

#: Kind of access that is committed in groups -> the event that waits for these groups.
_WAITS = {"store": "wait", "mma": "mma_wait"}
#: Event -> the kinds of accesses whose state the event can change.
_CHANGED_BY: dict[str, set[str]] = {wait: {fact} for fact, wait in _WAITS.items()}
for _fact, _event in _NEXT:
    _CHANGED_BY.setdefault(_event, set()).add(_fact)

# events whose access becomes a fact
_KEPT = ("write", "read", "store", "init", "replace", "publish", "mma", "global_write")


def _next(what: str, state: str, event: Event) -> str:
    """Return the state of a fact after an event."""
    # wait_group N waits for all groups except the last N, so it waits for "committed n" if n >= N
    if event.what == _WAITS.get(what) and state.startswith("committed"):
        return "waited" if int(state[10:]) >= event.number else state
    return _NEXT.get((what, event.what), {}).get(state, state)


class _Pair(NamedTuple):
    """A rule about a fact and its use: the wrong states, the message and the fix."""

    rule: str
    wrong: frozenset[str]
    most: str  # highest severity
    message: str
    fix: str


#: Columns: fact > use | rule | wrong states | highest severity | message | fix. Some severities are
#: below "error", for the following reasons. In tests, an ordinary write before a load never
#: overwrote the loaded data. A block that ends with a store in flight keeps its memory until the
#: store is complete (H100: 0 of 8,448 tiles were wrong; tests/lint/test_on_gpu.py). If only a
#: barrier of the warp or block synchronised the readers, a bulk load overtook reads that were still
#: running (8,184 of 8,448 tiles were wrong). If the readers arrived at an mbarrier, no load
#: overtook a read (0 of 8,448). Nine working kernels of ThunderKittens and FlashAttention-3 issue a
#: copy immediately after the same thread initialised the copy's mbarrier. But if another thread
#: uses the mbarrier, and no barrier of the block is between the initialisation and the use, this is
#: an error.
_PAIRS: Final = {
    tuple(pair.split(" > ")): _Pair(rule, frozenset(wrong.split()), most, message, fix)
    for pair, rule, wrong, most, message, fix in coerce.rows("""
write > store | PROXY_FENCE | open shared some fenced | error | shared memory is written by
    ordinary stores and read by a bulk store without fence.proxy.async between them: the copy may
    read what was there before | write, then fence.proxy.async.shared::cta by every thread that
    wrote, then the barrier, then the copy (cuda::ptx::fence_proxy_async, tma::fence_async)
write > operand | PROXY_FENCE | open shared some | warning | shared memory is written by ordinary
    stores and read by a matrix product through a descriptor without fence.proxy.async between them:
    the product may be of what was there before | write, then fence.proxy.async.shared::cta by every
    thread that wrote, then the barrier, then the product (tma::fence_async)
global_write > global_load | GLOBAL_PROXY | open | warning | global memory is written by ordinary
    stores and read by a bulk load without fence.proxy.async between them: the copy may read what
    was there before | write, then fence.proxy.async.global (or fence.proxy.async) by every thread
    that wrote, then the barrier, then the copy
write > load | PROXY_FENCE | open shared | warning | shared memory is written by ordinary stores,
    then by a bulk load, without fence.proxy.async between them: their order is open | write, then
    fence.proxy.async.shared::cta by every thread that wrote, then the barrier, then the copy
    (cuda::ptx::fence_proxy_async, tma::fence_async)
read > load | PROXY_FENCE | open shared some fenced arrived met | error | shared memory is read by
    ordinary loads, then overwritten by a bulk load, without fence.proxy.async between them: the
    copy may overtake the reads | after the last read: fence.proxy.async.shared::cta, then the
    barrier, then the copy
fenced write > store | BLOCK_BARRIER | fenced | warning | shared memory is written by the threads
    of a block and read by a bulk store of one of them, without a barrier between them | after the
    fence of every thread that wrote: __syncthreads(), or the named barrier of these threads
fenced read > load | BLOCK_BARRIER | fenced | warning | shared memory is read by the threads of a
    block and overwritten by a bulk load of one of them, without a barrier between them | after the
    last read: the fence, then __syncthreads(), or an mbarrier at which the readers arrive
mma > results | MMA_WAIT | open committed | warning | the accumulators of wgmma are read before
    wgmma.wait_group: their values are open | wgmma.commit_group after the last wgmma.mma_async,
    then wgmma.wait_group.sync.aligned N, N being the groups committed after it
store > write | BULK_WAIT | open committed waited | error | shared memory is written again while a
    bulk store may still read it | cp.async.bulk.commit_group after the store; before the write,
    cp.async.bulk.wait_group.read by the thread that issued it, then a barrier of all that write
store > load | BULK_WAIT | open committed | error | a bulk load overwrites shared memory while a
    bulk store may still read it | cp.async.bulk.wait_group.read N before the load, N being the
    groups committed after that store
store > end | BULK_WAIT | open committed | warning | the thread ends with a bulk store {state}: the
    block's shared memory may be given to another block while the store still reads it |
    cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 by the thread that issued the
    store, before it ends
init > async_use | BARRIER_INIT | open barrier own | warning | an mbarrier is initialised and a bulk
    copy completes on it without a fence between them | fence.mbarrier_init.release.cluster (or
    fence.proxy.async) by the thread that initialised it, then the barrier of the block
init > use | BARRIER_INIT | open fenced | error | an mbarrier is initialised by one thread and used
    by others without a barrier of the block between them | fence.mbarrier_init.release.cluster
    after the last mbarrier.init, then __syncthreads() or barrier.cluster
replace > map_use | MAP_FENCE | open released | error | a tensor map in global memory is changed and
    used by a copy without a release and an acquire between them |
    fence.proxy.tensormap::generic.release.gpu after the change,
    fence.proxy.tensormap::generic.acquire.gpu [map], 128 before the copy
publish > map_use | MAP_FENCE | open | error | a tensor map is published by tensormap.cp_fenceproxy
    and used by a copy without an acquire between them | fence.proxy.tensormap::generic.acquire.gpu
    [map], 128 before the copy, by the thread that issues it
""")
}
#: Rules that produce a finding only if the state is wrong on every path. If the state is right on
#: one path, usually only this path leads to the use, because of a condition that the analysis does
#: not recognise.
_ON_EVERY_PATH = ("BULK_WAIT", "MAP_FENCE", "BLOCK_BARRIER", "MMA_WAIT")
_USES = frozenset(use for _, use in _PAIRS)

#: Wrong state -> addition to the message, and highest severity. If there are several wrong states,
#: the most severe entry is used. A state that is not listed has the severity of its pair.
_IF_ALL = {
    "barrier": (" (a barrier is: on sm_90 this is common and works)", "note"),
    "met": (" (an mbarrier that the readers arrive at is: on sm_90 this works)", "warning"),
    "own": (" (one thread does both: on sm_90 this works)", "note"),
    "end committed": ("; on sm_90 the block keeps its memory until then", "note"),
    "some": (". One is, but before the barrier and not by all threads of the accesses", "warning"),
    "waited": (
        ": the thread that issued it waits, and the others do not wait for that thread", "error",
    ),
}  # fmt: skip
#: Severities, the worst first. An error is proved by the PTX, a warning is a possible mistake, and
#: a note is a violation of the ISA that measurements showed to be harmless.
SEVERITIES = report.SEVERITIES
_rank = SEVERITIES.index


#: (fact, use) -> {state of the fact at the use: whether the addresses certainly overlap}.
_Uses = dict[tuple[Access, Access | str], dict[str, bool]]
_Where = dict[tuple[Access, Access | str], Instruction]


def paths(events: Events) -> Iterator[Mistake]:
    """Analyse all paths of a function, and yield the mistakes."""
    flow = events.flow
    # only facts that have a possible use in this function are followed
    there = {event.what for block in events.blocks for event in block}
    kept = {fact for fact, use in _PAIRS if use in there}
    uses: _Uses = defaultdict(dict)
    where: _Where = {}

    def transfer(block: int, facts: Facts, report: bool = False) -> Facts:
        for event in events.blocks[block]:
            flow.step(1 + len(facts))
            if report:
                _look(events, block, event, facts, uses, where)
            if event.what not in _KEPT or event.what in kept:
                facts = _after(flow, block, event, facts)
        return facts

    # `flow.run` finds the facts at the start of each block; this second pass records the uses
    for block, facts in enumerate(flow.run(transfer, {})):
        if facts is not None:
            transfer(block, dict(facts), report=True)
    for (access, use), states in uses.items():
        found = _judged(access, use, states, where[access, use])
        if found:
            yield found


def _after(flow: Flow, block: int, event: Event, facts: Facts) -> Facts:
    """Return the facts after an event."""
    what, access = event.what, event.access
    if what == "write_register":
        return _rewritten(event.registers, facts)
    if what in _KEPT and access is not None:
        conditions = flow.conditions(event.code, block)
        # an access without a predicate runs in each execution of the block, so it replaces its
        # earlier facts
        if not event.code.guard:
            facts = {key: value for key, value in facts.items() if key[0] is not access}
        return facts | {(access, "open", True): conditions}
    if what == "results":
        for fact, state, _ in facts:
            # if mov copies a result before its wgmma is complete, the target of the mov is not
            # complete either
            if fact.what == "mma" and state != "waited":
                for source, target in event.moves:
                    if source in fact.results:
                        fact.results.add(target)
        return facts
    if not any(key[0].what in _CHANGED_BY.get(what, ()) for key in facts):
        return facts
    changed: Facts = {}
    skipped, here = flow.skipped(event.code), flow.conditions(event.code, block)
    for (fact, state, exact), conditions in facts.items():
        after = _next(fact.what, state, event)
        if what == "fence" and state in _FENCED_BY_SOME and _is_of_some(here, fact.conditions):
            after = _FENCED_BY_SOME[state]
        if after == state:
            _add(changed, (fact, state, exact), conditions)
            continue
        _add(changed, (fact, after, exact), conditions)
        # threads that skip an event with a predicate keep the old state
        if skipped is not None and not excluded(conditions, skipped):
            _add(changed, (fact, state, exact), both(conditions, skipped))
    return changed


def _is_of_some(here: Conditions, there: Conditions) -> bool:
    """Return whether `here` has a condition on the thread that `there` lacks.

    In this case, fewer threads run the code at `here`.
    """
    return any(symbol.by_thread for terms, *_ in here - there for symbol, _ in terms)


# threads that usually run a copy, which are the first threads of some warps
_LEADERS = (0, 32, 64, 96, 128, 256, 384)


def is_of_one(there: Conditions, here: Conditions) -> bool:
    """Return whether one thread runs the code at `here`, but its neighbour runs only `there`.

    The thread is one of `_LEADERS`. It meets both conditions. The next thread meets only the
    condition `there`.
    """
    return any(
        all(holds_at(c, leader) for c in (*here, *there))
        and all(holds_at(c, leader + 1) for c in there)
        and not all(holds_at(c, leader + 1) for c in here)
        for leader in _LEADERS
    )


def _add(facts: Facts, key: Key, conditions: Conditions) -> None:
    # if two paths have the same fact, only their common conditions are kept
    facts[key] = facts[key] & conditions if key in facts else conditions


def _rewritten(names: frozenset[str], facts: Facts) -> Facts:
    """Return the facts after writes of registers.

    Conditions on these registers are dropped, and facts with such a register in their address are
    no longer exact.
    """
    changed: Facts = {}
    for (fact, state, exact), conditions in facts.items():
        exact = exact and names.isdisjoint(fact.registers)
        _add(changed, (fact, state, exact), without(conditions, names))
    return changed


def _look(
    events: Events, block: int, event: Event, facts: Facts, uses: _Uses, where: _Where
) -> None:
    """Record the states of the facts for which this event is a use."""
    what, access = event.what, event.access
    if what not in _USES:
        return
    here = events.flow.conditions(event.code, block)
    for (fact, state, exact), conditions in facts.items():
        if (fact.what, what) not in _PAIRS or excluded(conditions, here):
            continue
        if what == "results" and fact.results.isdisjoint(event.registers):
            continue
        relation = "must" if access is None else events.overlap(fact, access, exact)
        if relation == "no" or relation == "apart":
            continue
        # the thread that waited also writes, so no barrier is needed
        if state == "waited" and what == "write" and fact.conditions <= here:
            state = "done"
        # a missing barrier matters only if a thread other than the copying thread made the access
        if fact.what != "init" and state == "fenced" and not is_of_one(fact.conditions, here):
            state = "done"
        if fact.what == "init" and not _is_of_some(fact.conditions, here):
            # the thread that initialised the barrier also uses it
            if what == "use":
                continue
            state = "own" if state == "open" else state
        pair = fact, access or what
        uses[pair][state] = uses[pair].get(state, False) or relation == "must"
        where.setdefault(pair, event.code)


def _judged(
    access: Access, use: Access | str, states: dict[str, bool], code: Instruction
) -> Mistake | None:
    """Return the mistake of a fact and its use; None if a mistake is neither proved nor likely."""
    pair = access.what, use if isinstance(use, str) else use.what
    row = _PAIRS[pair]
    # `row.wrong` has no numbers of groups: it has "committed" for the state "committed 3"
    wrong = {state: must for state, must in states.items() if state.split()[0] in row.wrong}
    if wrong.keys() == {"fenced"}:
        row = _PAIRS.get(("fenced " + pair[0], pair[1]), row)
    if not wrong:
        return None
    must = any(wrong.values())
    # if the overlap is not certain, report only mistakes with mbarriers and maps
    if not must and pair[0] not in ("init", "replace", "publish"):
        return None
    right = len(wrong) < len(states)
    if right and row.rule in _ON_EVERY_PATH:
        return None
    state = "that no commit_group follows" if "open" in wrong else "that is not waited for"
    prefix = "end " if pair[1] == "end" else ""
    kinds = [_IF_ALL.get(prefix + name.split()[0], ("", row.most)) for name in sorted(wrong)]
    more, most = min(kinds, key=lambda kind: _rank(kind[1]))
    severity = max(most, row.most, "error" if must and not right else "warning", key=_rank)
    return Mistake(row.rule, severity, access.first, code, row.message.format(state=state) + more,
                   row.fix)  # fmt: skip
