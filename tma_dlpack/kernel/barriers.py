"""Simulation of fences, of barriers of threads, and of groups of asynchronous operations.

Source: PTX ISA 9.0, 9.7.13 (parallel synchronisation), 9.7.9.25 (asynchronous copies).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel.accumulators import Flying
from tma_dlpack.kernel.mbarrier import (
    Barrier,
    barrier_at,
    check_arrivals,
    each,
    happen_before,
    of_lane,
    report_exit,
)
from tma_dlpack.kernel.operations import Operation, Wait, operation
from tma_dlpack.kernel.order import (
    DONE,
    FENCED,
    FENCED_GLOBAL,
    BoolArray,
    Clocks,
    IntArray,
    merged,
    scope_of,
)
from tma_dlpack.kernel.pending import Pending
from tma_dlpack.ptx.parse import Instruction

_WARP, _WARPGROUP = 32, 128
_MAP = "tensormap"


@dataclass(eq=False, slots=True)
class Generation:
    """One use of a barrier of threads, which is complete when all expected threads have arrived."""

    #: Number of the generation of its barrier, counted from 0.
    number: int = 0
    arrived: int = 0
    is_complete: bool = False
    #: Clocks of `Order` that threads published when they arrived.
    clocks: Clocks | None = None
    #: For bar.red: predicates of the threads that arrived.
    values: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Meeting:
    """A barrier of threads: a named barrier of a block (bar.sync), or the barrier of a cluster.

    Threads can use a barrier any number of times. `open` is the generation that is not complete.
    """

    open: Generation = field(default_factory=Generation)

    def complete_if(self, expected: int) -> None:
        """Complete the open generation if the expected number of threads has arrived."""
        if self.open.arrived >= expected:
            self.open.is_complete = True
            self.open = Generation(self.open.number + 1)


@dataclass(eq=False, slots=True)
class Groups:
    """Groups of asynchronous operations of one thread, warp or warpgroup."""

    #: Operations of the open group, which no commit_group has committed yet.
    open: list[Any] = field(default_factory=list)
    #: Committed groups, oldest first.
    committed: list[list[Any]] = field(default_factory=list)
    #: Kind of access, such as "store_read" -> number of the agent that makes these accesses (see
    #: the module `order`).
    agents: dict[str, int] = field(default_factory=dict)
    #: Number of groups that a wait_group instruction has covered. These are the oldest groups.
    waited: int = 0

    @property
    def clock(self) -> int:
        """Clock of the open group. The groups have the clocks 1, 2, ..."""
        return len(self.committed) + 1

    def commit(self) -> None:
        """Close the open group."""
        self.committed.append(self.open)
        self.open = []

    def agent(self, order: Any, kind: str, block: Any, name: str) -> int:
        """Return the agent in `Order` for one kind of access; the first call adds the agent."""
        if kind not in self.agents:
            self.agents[kind] = order.add_agent(kind, block, name)
        return self.agents[kind]


class BlockSync:
    """The barriers and groups of a block."""

    def __init__(self) -> None:
        # `barriers`: offset in shared memory -> mbarrier. `named`: number -> named barrier.
        self.barriers: dict[int, Barrier] = {}
        self.named: dict[int, Meeting] = defaultdict(Meeting)
        # `bulk` has the bulk stores of each thread, `cp_async` the cp.async of each warp, and
        # `wgmma` the wgmma of each warpgroup.
        self.bulk: dict[int, Groups] = defaultdict(Groups)
        self.cp_async: dict[int, Groups] = defaultdict(Groups)
        self.wgmma: dict[int, Groups] = defaultdict(Groups)
        #: Last access to the shared memory of this block by each warp of another block. The key is
        #: the slot that the warp has in `Order`. The value is (clock, block of the warp,
        #: instruction, thread).
        self.remote: dict[int, tuple[int, Any, Any, int]] = {}
        #: Last copy from the shared memory of this block to another block. The key is the agent of
        #: the copy in `Order`. The value is (clock, instruction, thread).
        self.sent: dict[int, tuple[int, Any, int]] = {}
        # Number of a warpgroup -> the accumulator registers that its pending products may write.
        self.accumulators: dict[int, Flying] = defaultdict(Flying)
        # Thread -> generation in which the thread last arrived at the cluster's barrier.
        self.cluster_generation: dict[int, Generation] = {}


def end_of_block(block: Any) -> None:
    """Report accesses to a block's shared memory that may happen after the block has ended.

    A bulk store is reported if no wait_group covers it, because the store may still read the shared
    memory. A load into the block, a copy from the block to another block, or an access by another
    block is reported if no warp of the ended block knows that the operation is complete.
    """
    for lane, groups in block.sync.bulk.items():
        left = [store for group in groups.committed[groups.waited :] for store in group]
        if left or groups.open:
            first = (left or groups.open)[0]
            state = "that is not waited for" if left else "that no commit_group follows"
            block.machine.findings.add(
                "BULK_WAIT", "warning",
                f"the thread ends with a bulk store {state}: the block's shared memory may be "
                "given to another block while the store still reads it",
                "cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 by the thread that "
                "issued the store, before it ends", code=first.code, place=(block, lane),
            )  # fmt: skip

    # `known` has a clock for each agent. At least one warp of the block knows that the agent's
    # accesses up to this clock are complete.
    order = block.machine.order
    if order is None:
        return
    findings = block.machine.findings
    known = order.known[DONE, order.slot[block.warp_agents]].max(axis=0)
    for slot, (clock, other, code, lane) in block.sync.remote.items():
        if known[slot] < clock:
            report_exit(findings, code, other, block, "an access", lane)
    for barrier in block.sync.barriers.values():
        if barrier.issued is not None and known[order.slot[barrier.agent]] < barrier.issued[0]:
            _, other, code, lane = barrier.issued
            report_exit(findings, code, other, block, "a load", lane)
    for agent, (clock, code, lane) in block.sync.sent.items():
        if known[order.slot[agent]] < clock:
            findings.add(
                "BLOCK_ENDED", "warning",
                "a block may end while a copy from its shared memory is in flight",
                "let every block of the cluster end after a barrier of the cluster",
                code=code, place=(block, lane),
            )  # fmt: skip


# -- threads of a block ----------------------------------------------------------------------------


def _live_threads(block: Any) -> int:
    return int(block.threads - block.exited)


# For example "bar.sync" or "barrier.cta.red.popc". ".aligned" and the type may follow.
_BAR = re.compile(r"(?:bar|barrier)(?:\.cta)?\.(sync|arrive|red)(?:\.(popc|and|or))?")


@operation(
    "bar.sync", "bar.arrive", "bar.red", "bar.cta", "barrier.sync", "barrier.arrive", "barrier.red",
    "barrier.cta",
)  # fmt: skip
def _bar(code: Instruction) -> Operation | None:
    found = _BAR.match(code.opcode)
    if found is None:
        return None
    what, reduction = found.groups()

    def run(g: Any, mask: BoolArray | None, number: Any, *operands: Any) -> Any:
        rest, values = (operands[:-1], operands[-1]) if what == "red" else (operands, None)
        # The last operand of bar.red is the predicate. The number of threads is optional.
        waits, generations = [], []
        for name, at in each(g, mask, number):
            meeting = g.block.sync.named[name]
            count = of_lane(rest[0], at[0]) if rest else 0
            # Generation -> indices of the lanes that arrived in it.
            arrived: dict[Generation, list[IntArray]] = defaultdict(list)
            for part in _warp_by_warp(g, at) if count else [at]:
                generation, lanes = meeting.open, g.lanes[part]
                arrived[generation].append(part)
                _arrive(g, generation, lanes, count)
                if values is not None:
                    generation.values += np.broadcast_to(values, g.n)[part].tolist()
                meeting.complete_if(count or _live_threads(g.block))
            g.machine.progress += 1
            for generation, parts in arrived.items():
                here = np.concatenate(parts)
                lanes = g.lanes[here]
                generations.append((lanes, generation))
                waits.append((here, _wait(g, meeting, generation, lanes, name, count)))
        if what != "arrive":
            g.wait_for(waits)
        if what == "red":
            return lambda lanes: _reduced(g.block.threads, generations, reduction)[lanes]
        return None

    return Operation(run, destinations=int(what == "red"), pauses=what != "arrive")


def _warp_by_warp(g: Any, at: IntArray) -> list[IntArray]:
    """Return the lanes `at` of a group by warp, in the order in which the warps arrive.

    The warps of a group may arrive in any order. If more warps arrive than the barrier expects, the
    order decides which warps wait for each other.
    """
    warps = g.lanes[at] // _WARP
    parts = [at[warps == n] for n in np.unique(warps)]
    if g.machine.schedule == "random":
        g.machine.random.shuffle(parts)
    elif g.machine.schedule == "early":
        # Neighbouring warps arrive in different halves of the order.
        parts = parts[::2] + parts[1::2]
    return parts


def _reduced(
    threads: int, generations: list[tuple[IntArray, Generation]], reduction: str
) -> npt.NDArray[Any]:
    """Return the result of bar.red for each thread of a block.

    `generations` has tuples (threads, generation in which these threads arrived).
    """
    results = np.zeros(threads, np.uint32 if reduction == "popc" else np.bool_)
    for lanes, generation in generations:
        flags = generation.values
        results[lanes] = {"popc": sum(flags), "and": all(flags), "or": any(flags)}[reduction]
    return results


def _arrive(g: Any, generation: Generation, lanes: IntArray, count: int) -> None:
    """Count the arrival of threads at a barrier."""
    # If bar.sync has a thread count, each warp counts as 32 threads (PTX ISA). The last warp of a
    # block also counts as 32 threads, even if it has fewer threads.
    last = g.block.threads % _WARP
    short = count and last and lanes[-1] // _WARP == g.block.threads // _WARP
    generation.arrived += len(lanes) + (_WARP - last if short else 0)
    order = g.machine.order
    if order is not None:
        clocks = order.publish(order.slots_at(g.block, lanes))
        generation.clocks = merged(generation.clocks, clocks)


def _wait(
    g: Any, meeting: Meeting, generation: Generation, lanes: IntArray, name: int, count: int
) -> Wait:
    block, machine = g.block, g.machine
    slots = machine.order.slots_at(block, lanes) if machine.order is not None else None

    def ready() -> bool:
        if not generation.is_complete and not count:
            # Without a thread count, the barrier expects all live threads of the block.
            meeting.complete_if(_live_threads(block))
        if not generation.is_complete:
            return False
        if slots is not None:
            machine.order.receive(slots, generation.clocks)
        return True

    what = {"kind": "bar", "number": name, "count": count, "generation": generation, "lanes": lanes}
    return Wait(ready, what)


@operation("bar.warp.sync")
def _warp_sync(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None, members: Any) -> None:
        if g.machine.order is not None:
            g.machine.order.sync_warps(g, mask)

    return Operation(run, needs_warp=True)


# -- blocks of a cluster ---------------------------------------------------------------------------


@operation("barrier.cluster.arrive")
def _cluster_arrive(code: Instruction) -> Operation:
    relaxed = ".relaxed" in code.opcode

    def run(g: Any, mask: BoolArray | None) -> None:
        lanes = g.lanes if mask is None else g.lanes[mask]
        if not len(lanes):
            return
        cluster, order = g.block.cluster, g.machine.order
        # The arrival is a release at cluster scope. So pending arrivals of this block at mbarriers
        # of other blocks must happen first.
        happen_before(g.block)
        meeting: Meeting = cluster.meeting
        for lane in lanes.tolist():
            g.block.sync.cluster_generation[lane] = meeting.open
        meeting.open.arrived += len(lanes)
        if order is not None:
            clocks = order.publish(order.slots_at(g.block, lanes), relaxed=relaxed)
            meeting.open.clocks = merged(meeting.open.clocks, clocks)
        meeting.complete_if(sum(map(_live_threads, cluster.blocks)))
        g.machine.progress += 1

    return Operation(run)


@operation("barrier.cluster.wait")
def _cluster_wait(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None) -> None:
        lanes = g.lanes if mask is None else g.lanes[mask]
        if not len(lanes):
            return
        cluster, machine = g.block.cluster, g.machine
        meeting: Meeting = cluster.meeting
        arrived = g.block.sync.cluster_generation
        # If a thread executes `wait` without a previous `arrive`, it waits for the open generation.
        awaited = (arrived.get(lane, meeting.open) for lane in lanes.tolist())
        generation = max(awaited, key=lambda generation: generation.number)
        slots = machine.order.slots_at(g.block, lanes) if machine.order is not None else None

        def ready() -> bool:
            if not generation.is_complete:
                meeting.complete_if(sum(map(_live_threads, cluster.blocks)))
            if not generation.is_complete:
                return False
            if slots is not None:
                machine.order.receive(slots, generation.clocks)
            return True

        at = np.arange(g.n) if mask is None else mask.nonzero()[0]
        what = {"kind": "cluster", "generation": generation, "lanes": lanes}
        g.wait_for([(at, Wait(ready, what))])

    return Operation(run, pauses=True)


# -- fences ----------------------------------------------------------------------------------------


@operation("fence", "membar")
def _fence(code: Instruction) -> Operation | None:
    words = code.opcode.split(".")
    # The instruction is fence.proxy.tensormap, fence.proxy.async, fence.proxy.alias,
    # fence.mbarrier_init, or a memory fence such as fence.acq_rel. fence.proxy.alias orders neither
    # asynchronous operations nor accesses of different threads.
    is_map, is_acquire = f".{_MAP}" in code.opcode, "acquire" in words

    def run(g: Any, mask: BoolArray | None, address: Any = None, size: Any = None) -> None:
        order = g.machine.order
        if order is None or (mask is not None and not mask.any()):
            return
        slots = order.slots_of(g, mask)
        if is_map and address is not None and is_acquire:
            for where, at in each(g, mask, address):
                order.acquire_map(order.slots_at(g.block, g.lanes[at]), where)
        elif is_map:
            order.release_maps(slots)
        elif ".proxy.async" in code.opcode:
            in_global = ".global" in code.opcode
            in_shared = ".shared" in code.opcode
            # A fence.proxy.async without a state space covers shared and global memory.
            both = in_global == in_shared
            ways = [FENCED] * (both or in_shared) + [FENCED_GLOBAL] * (both or in_global)
            order.fence_proxy(slots, ways)
        elif "mbarrier_init" in words:
            # fence.mbarrier_init covers the mbarriers that the executing warps have initialised.
            mine = set(slots.tolist())
            for barrier in g.block.sync.barriers.values():
                barrier.is_fenced |= barrier.init[0] in mine
        elif "proxy" not in words:
            order.fence(slots, scope_of(code.opcode))

    return Operation(run)


# -- groups of asynchronous copies -----------------------------------------------------------------


@operation("cp.async.bulk.commit_group")
def _bulk_commit(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None) -> None:
        for lane in (g.lanes if mask is None else g.lanes[mask]).tolist():
            if lane in g.block.sync.bulk:
                g.block.sync.bulk[lane].commit()

    return Operation(run)


@operation("cp.async.bulk.wait_group")
def _bulk_wait(code: Instruction) -> Operation:
    reads = ".read" in code.opcode
    # wait_group.read waits until the stores have read shared memory. wait_group without .read also
    # waits until the stores have written global memory.
    kinds = ("store_read",) if reads else ("store_read", "store_write")

    def run(g: Any, mask: BoolArray | None, most: Any) -> None:
        lanes = g.lanes if mask is None else g.lanes[mask]
        groups = {
            lane: g.block.sync.bulk[lane] for lane in lanes.tolist() if lane in g.block.sync.bulk
        }
        awaited = {lane: _all_but(found, most) for lane, found in groups.items()}
        for lane, last in awaited.items():
            groups[lane].waited = max(groups[lane].waited, last)
        order, block = g.machine.order, g.block

        def ready() -> bool:
            # The wait ends when, for each thread, the stores of the groups 1 to `last` are
            # complete.
            stores = (s for lane, last in awaited.items() for s in _stores(groups[lane], last))
            if not all(store.has_read if reads else store.has_written for store in stores):
                return False
            for lane, last in awaited.items():
                for kind in kinds:
                    if order is not None and kind in groups[lane].agents:
                        slots = order.slots_at(block, np.array([lane]))
                        order.learn(slots, groups[lane].agents[kind], last)
            return True

        if awaited and not ready():
            at = np.arange(g.n) if mask is None else mask.nonzero()[0]
            g.wait_for([(at, Wait(ready, {"kind": "bulk", "lanes": lanes}))])

    return Operation(run, pauses=True)


def _all_but(groups: Groups, most: Any) -> int:
    """Return how many of the oldest groups must complete if `most` groups may remain pending."""
    return max(0, len(groups.committed) - int(np.max(most)))


def _stores(groups: Groups, last: int) -> list[Any]:
    """Return the bulk stores of the groups 1 to `last`.

    If all these stores are complete, also empty these groups, so that they are not checked again.
    """
    found = [store for group in groups.committed[:last] for store in group]
    if all(store.has_written for store in found):
        for group in groups.committed[:last]:
            group.clear()
    return found


@operation("cp.async.commit_group")
def _commit(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None) -> None:
        for warp in _warps(g, mask):
            g.block.sync.cp_async[warp].commit()

    return Operation(run)


@operation("cp.async.wait_group", "cp.async.wait_all")
def _commit_wait(code: Instruction) -> Operation:
    is_all = "wait_all" in code.opcode

    def run(g: Any, mask: BoolArray | None, most: Any = 0) -> None:
        awaited = []
        for warp in _warps(g, mask):
            groups = g.block.sync.cp_async[warp]
            # wait_all is equivalent to commit_group, then wait_group 0.
            if is_all:
                groups.commit()
            awaited.append((warp, groups, _all_but(groups, most)))
        order, block = g.machine.order, g.block

        def ready() -> bool:
            if not all(op.happened for _, groups, last in awaited for op in _copies(groups, last)):
                return False
            for warp, groups, last in awaited:
                if order is not None and "cp_async" in groups.agents:
                    slots = order.slots_at(block, np.array([warp * _WARP]))
                    order.learn(slots, groups.agents["cp_async"], last)
            return True

        if not ready():
            at = np.arange(g.n) if mask is None else mask.nonzero()[0]
            g.wait_for([(at, Wait(ready, {"kind": "cp.async", "lanes": g.lanes[at]}))])

    return Operation(run, pauses=True)


def _copies(groups: Groups, last: int) -> list[Any]:
    """Return the cp.async operations of the groups 1 to `last`.

    If all these operations are complete, also empty these groups.
    """
    found = [copy for group in groups.committed[:last] for copy in group]
    if all(copy.happened for copy in found):
        for group in groups.committed[:last]:
            group.clear()
    return found


def _warps(g: Any, mask: BoolArray | None) -> list[int]:
    lanes = g.lanes if mask is None else g.lanes[mask]
    found: list[int] = np.unique(lanes // _WARP).tolist()
    return found


# -- wgmma -----------------------------------------------------------------------------------------


def _warpgroups(g: Any, mask: BoolArray | None) -> list[tuple[IntArray, Groups]]:
    """Return (executing threads, groups of wgmma) for each warpgroup with an executing thread."""
    lanes = g.lanes if mask is None else g.lanes[mask]
    numbers = lanes // _WARPGROUP
    return [(lanes[numbers == n], g.block.sync.wgmma[n]) for n in np.unique(numbers).tolist()]


@operation("wgmma.commit_group")
def _wgmma_commit(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None) -> None:
        for _, groups in _warpgroups(g, mask):
            groups.commit()

    return Operation(run, needs_warp=True)


@operation("wgmma.wait_group")
def _wgmma_wait(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None, most: Any) -> None:
        order = g.machine.order
        for lanes, groups in _warpgroups(g, mask):
            if order is not None and groups.agents:
                slots = order.slots_at(g.block, lanes)
                order.learn(slots, groups.agents["wgmma"], _all_but(groups, most))

    return Operation(run, needs_warp=True)


@operation("wgmma.fence")
def _wgmma_fence(code: Instruction) -> Operation:
    """Do nothing: wgmma.fence orders register accesses; the simulator always runs them in order."""
    return Operation(lambda g, mask: None, needs_warp=True)


class _ArrivalAfterCopies(Pending):
    """Arrival of cp.async.mbarrier.arrive, which waits for earlier cp.async of the same threads."""

    def __init__(
        self, g: Any, barrier: Barrier, lanes: IntArray, clocks: Clocks | None, after: list[Any]
    ) -> None:
        super().__init__(g, f"an arrival at the barrier {barrier.address:#x}", after)
        self._arrival = g, barrier, lanes, clocks

    def happen(self) -> None:
        g, barrier, lanes, clocks = self._arrival
        check_arrivals(g, barrier, len(lanes), lanes)
        barrier.arrive(len(lanes), clocks)


@operation("cp.async.mbarrier.arrive")
def _copies_arrive(code: Instruction) -> Operation:
    # With .noinc, the count of mbarrier.init must include this arrival. Without .noinc, the
    # instruction itself adds 1 to the pending count before the arrival.
    is_counted = ".noinc" in code.opcode

    def run(g: Any, mask: BoolArray | None, address: Any) -> None:
        order = g.machine.order
        for where, at in each(g, mask, address):
            lanes = g.lanes[at]
            barrier = barrier_at(g, where, lanes)
            clocks: Clocks | None = None
            after: list[Any] = []
            for warp in np.unique(lanes // _WARP).tolist():
                groups = g.block.sync.cp_async[warp]
                before = [*groups.committed, groups.open]
                after += [copy for group in before for copy in group if not copy.happened]
                if order is not None and "cp_async" in groups.agents:
                    agent = groups.agents["cp_async"]
                    clocks = order.completed(clocks, agent, groups.clock)
            if not is_counted:
                barrier.pending += len(at)
            g.machine.add(_ArrivalAfterCopies(g, barrier, lanes, clocks, after))

    return Operation(run)


@operation("griddepcontrol")
def _griddepcontrol(code: Instruction) -> Operation:
    """Do nothing: a run has only one kernel, so there is no earlier kernel to wait for."""
    return Operation(lambda g, mask: None)
