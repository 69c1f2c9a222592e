"""Barriers of a warp, a block and a cluster; fences; groups of asynchronous copies.

Source: PTX ISA 9.0, 9.7.13 (parallel synchronisation), 9.7.9.25 (asynchronous copies).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tma_dlpack.kernel.accumulators import Flying
from tma_dlpack.kernel.core import Instruction
from tma_dlpack.kernel.mbarrier import (
    Barrier,
    barrier_at,
    each,
    happen_before,
    of_lane,
    report_exit,
)
from tma_dlpack.kernel.operations import Operation, Wait, operation
from tma_dlpack.kernel.order import DONE, FENCED, FENCED_GLOBAL, BoolArray, Clocks, IntArray, merged
from tma_dlpack.kernel.pending import Pending

_WARP, _WARPGROUP = 32, 128
_MAP = "tensormap"


@dataclass(eq=False, slots=True)
class Meeting:
    """A barrier of threads: bar.sync with one id, or that of the cluster."""

    arrived: int = 0
    generation: int = 0  # those that are complete
    arriving: Clocks | None = None
    ended: Clocks | None = None
    values: dict[int, list[int]] = field(default_factory=dict)  # bar.red: true, all lanes
    expected: int = 0  # 0: every thread that has not ended
    warps: set[int] = field(default_factory=set)

    def complete_if(self, expected: int) -> None:
        """End the generation if all have arrived."""
        if self.arrived >= expected:
            self.arrived = 0
            self.generation += 1
            self.ended, self.arriving = merged(self.ended, self.arriving), None
            self.warps.clear()


@dataclass(eq=False, slots=True)
class Groups:
    """Asynchronous operations of an owner, in groups: those not committed, then committed ones."""

    open: list[Any] = field(default_factory=list)
    committed: list[list[Any]] = field(default_factory=list)
    agents: dict[str, int] = field(default_factory=dict)
    waited: int = 0  # groups whose source is known to be read
    is_fenced: bool = False  # wgmma.fence was executed

    @property
    def clock(self) -> int:
        """Of the group that is open."""
        return len(self.committed) + 1

    def commit(self) -> None:
        """Close the open group."""
        self.committed.append(self.open)
        self.open = []

    def agent(self, order: Any, kind: str, block: Any, name: str) -> int:
        """Return the order's agent of one kind of access of these operations."""
        if kind not in self.agents:
            self.agents[kind] = order.add_agent(kind, block, name)
        return self.agents[kind]


class BlockSync:
    """The barriers and groups of a block."""

    def __init__(self) -> None:
        self.barriers: dict[int, Barrier] = {}
        self.named: dict[int, Meeting] = defaultdict(Meeting)
        self.bulk: dict[int, Groups] = defaultdict(Groups)  # by thread
        self.cp_async: dict[int, Groups] = defaultdict(Groups)  # by warp
        self.wgmma: dict[int, Groups] = defaultdict(Groups)  # by warpgroup
        #: By slot of a warp of another block: its last access here, (clock, block, code, thread).
        self.remote: dict[int, tuple[int, Any, Any, int]] = {}
        self.accumulators: dict[int, Flying] = defaultdict(Flying)  # by warpgroup
        self.cluster_generation: dict[int, int] = {}  # by thread: that it arrived for


def end_of_block(block: Any) -> None:
    """Warn of bulk stores whose source a block does not wait for before it ends."""
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


# -- threads of a block ----------------------------------------------------------------------------


def _live_threads(block: Any) -> int:
    return int(block.threads - block.exited)


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
        waits = []
        for name, at in each(g, mask, number):
            meeting = g.block.sync.named[name]
            count = of_lane(rest[0], at[0]) if rest else 0
            lanes = g.lanes[at]
            generation = meeting.generation
            _arrive(g, meeting, lanes, count)
            if values is not None:
                flags = np.broadcast_to(values, g.n)[at]
                meeting.values.setdefault(generation, []).extend(flags.tolist())
            meeting.complete_if(count or _live_threads(g.block))
            g.machine.progress += 1
            if what != "arrive":
                waits.append((at, _wait(g, meeting, generation, lanes, name, count)))
        if waits:
            g.wait_for(waits)
        if what == "red":
            return lambda: _reduced(g, mask, number, reduction)
        return None

    return Operation(run, destinations=int(what == "red"), pauses=what != "arrive")


def _reduced(g: Any, mask: BoolArray | None, number: Any, reduction: str) -> Any:
    """Return what bar.red gives each lane, once all have arrived."""
    results = np.zeros(g.n, np.uint32 if reduction == "popc" else np.bool_)
    for name, at in each(g, mask, number):
        meeting = g.block.sync.named[name]
        flags = meeting.values[max(meeting.values)]
        results[at] = {"popc": sum(flags), "and": all(flags), "or": any(flags)}[reduction]
    return results


def _arrive(g: Any, meeting: Meeting, lanes: IntArray, count: int) -> None:
    """Count the threads; with a count given, a warp counts as all of its lanes."""
    meeting.expected = count
    warps = np.unique(lanes // _WARP)
    meeting.warps.update(warps.tolist())
    last = g.block.threads % _WARP
    short = count and last and warps[-1] == g.block.threads // _WARP
    meeting.arrived += len(lanes) + (_WARP - last if short else 0)
    order = g.machine.order
    if order is not None:
        meeting.arriving = merged(meeting.arriving, order.publish(order.slots_at(g.block, lanes)))


def _wait(
    g: Any, meeting: Meeting, generation: int, lanes: IntArray, name: int, count: int
) -> Wait:
    block, machine = g.block, g.machine
    slots = machine.order.slots_at(block, lanes) if machine.order is not None else None

    def ready() -> bool:
        if meeting.generation == generation and not count:
            meeting.complete_if(_live_threads(block))  # others may have ended since
        if meeting.generation == generation:
            return False
        if slots is not None:
            machine.order.receive(slots, meeting.ended)
        return True

    what = {"kind": "bar", "number": name, "count": count, "meeting": meeting, "lanes": lanes}
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
        happen_before(g.block)
        meeting: Meeting = cluster.meeting
        for lane in lanes.tolist():
            g.block.sync.cluster_generation[lane] = meeting.generation
        meeting.arrived += len(lanes)
        if order is not None:
            clocks = order.publish(order.slots_at(g.block, lanes), relaxed=relaxed)
            meeting.arriving = merged(meeting.arriving, clocks)
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
        generation = max(arrived.get(lane, meeting.generation) for lane in lanes.tolist())
        slots = machine.order.slots_at(g.block, lanes) if machine.order is not None else None

        def ready() -> bool:
            if meeting.generation <= generation:
                meeting.complete_if(sum(map(_live_threads, cluster.blocks)))
            if meeting.generation <= generation:
                return False
            if slots is not None:
                machine.order.receive(slots, meeting.ended)
            return True

        at = np.arange(g.n) if mask is None else mask.nonzero()[0]
        what = {"kind": "cluster", "meeting": meeting, "lanes": lanes}
        g.wait_for([(at, Wait(ready, what))])

    return Operation(run, pauses=True)


# -- fences ----------------------------------------------------------------------------------------


@operation("fence", "membar")
def _fence(code: Instruction) -> Operation | None:
    words = code.opcode.split(".")
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
        elif "proxy" in words:
            in_global = ".global" in code.opcode
            in_shared = ".shared" in code.opcode
            both = in_global == in_shared
            ways = [FENCED] * (both or in_shared) + [FENCED_GLOBAL] * (both or in_global)
            order.fence_proxy(slots, ways)
        elif "mbarrier_init" in words:
            mine = set(slots.tolist())
            for barrier in g.block.sync.barriers.values():
                barrier.is_fenced |= barrier.init[0] in mine
        else:
            order.fence(slots)

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
    """Return how many groups are waited for."""
    return max(0, len(groups.committed) - int(np.max(most)))


def _stores(groups: Groups, last: int) -> list[Any]:
    """Return the operations of the first groups, and forget those that are complete."""
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
    """Return the threads of each warpgroup that execute, and its groups."""
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
    """Order registers, which are in order here."""
    return Operation(lambda g, mask: None, needs_warp=True)


class _ArrivalAfterCopies(Pending):
    """cp.async.mbarrier.arrive: an arrival when the copies before it have happened."""

    def __init__(
        self, g: Any, barrier: Barrier, count: int, clocks: Clocks | None, after: list[Any]
    ) -> None:
        super().__init__(g, f"an arrival at the barrier {barrier.address:#x}", after)
        self._arrival = barrier, count, clocks

    def happen(self) -> None:
        barrier, count, clocks = self._arrival
        barrier.arrive(count, clocks)


@operation("cp.async.mbarrier.arrive")
def _copies_arrive(code: Instruction) -> Operation:
    is_counted = ".noinc" in code.opcode  # among the arrivals of the phase

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
            g.machine.add(_ArrivalAfterCopies(g, barrier, len(at), clocks, after))

    return Operation(run)


@operation("griddepcontrol")
def _griddepcontrol(code: Instruction) -> Operation:
    """Do nothing: a run has one kernel, so the kernels before it have ended."""
    return Operation(lambda g, mask: None)
