"""`Order`, which reports two accesses to one byte if no synchronisation orders them.

An *agent* is a warp, or the asynchronous operations of one kind and one owner. For example, the
loads that complete on one mbarrier are an agent, and so are the bulk stores of one thread. Each
agent has a clock. Each access has a stamp, which contains the value that the clock of the accessing
agent had at that time. For each agent, a warp knows four clock values, one in each row of
`Order.known`. The value c in a row means that the agent's accesses up to clock c have the property
of this row:

- `SEEN`: the accesses are ordered before the warp's next instruction by release and acquire (PTX
  memory model, causality order);
- `FENCED` for shared memory, `FENCED_GLOBAL` for global memory: in addition, a proxy fence follows
  the accesses, so the warp's next asynchronous operation sees them;
- `DONE`: the accesses are complete. A relaxed arrival is enough to give this property. To overwrite
  bytes that the agent has read, a warp needs only this property.

A release and an acquire transfer all four clock values. So the proxy fence may be anywhere between
the access and the asynchronous operation, and any thread may execute the fence.

Source: PTX ISA 9.0, chapter 8 (memory consistency model), section "Async proxy".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel.operands import is_in_flight
from tma_dlpack.kernel.shadow import ATOMIC, CLOCK_SHIFT, LANE_BITS, SITE_SHIFT, Shadow, Units
from tma_dlpack.kernel.words import MEETINGS, Meeting

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
#: Clock values. The array has the four rows of `Order.known`, from SEEN to DONE, and one column for
#: each slot of an agent (see `Order.slot`). `Order.publish` returns such an array, and
#: `Order.receive` takes such an array as an argument.
Clocks = npt.NDArray[np.int32]

# Rows of `Order.known`. DONE is the last row, so `clocks[:DONE]` selects the rows without DONE.
SEEN, FENCED, FENCED_GLOBAL, DONE = range(4)
_ROWS = 4
#: Scopes of strong accesses and of fences, from the narrowest to the widest. A run has one GPU, so
#: GPU also stands for the scope .sys.
CTA, CLUSTER, GPU = range(3)
_SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "gl": GPU, "sys": GPU}
# Opcodes of accesses and fences that may have a scope.
_SCOPED = re.compile(r"(?:ld|st|atom|red|membar|fence)\.(?!mbarrier_init|proxy)")
# Mask of the bits of a stamp that are below the bits of the clock.
_LOW = (1 << CLOCK_SHIFT) - 1
_WARP = 32
# Size in bytes of a piece of a bulk load.
_PIECE = 16
# Bytes of a tensor map.
MAP_BYTES = 128
#: Maximum number of flags that one instruction of a group accesses. A flag is an address that
#: threads synchronise with. If the instruction accesses more distinct addresses, they contain data
#: and no flags.
_MOST_FLAGS = 64
# Semantics of strong accesses. Two strong accesses are no race, even if nothing orders them.
_NO_RACE = frozenset(("relaxed", "volatile", "acquire", "release", "acq_rel", "sc"))


class Agent(NamedTuple):
    """A warp, or asynchronous operations; `kind` is "warp", or the kind of the operations."""

    kind: str
    block: Any
    name: str


class Order:
    """Checker of the order of accesses.

    It stores the clocks of all agents, and the last accesses to each byte of memory. It reports
    findings with ``findings.add(rule, severity, message, fix, g=, lanes=, also=)``.
    """

    slot: npt.NDArray[np.int32]
    is_async: BoolArray
    known: npt.NDArray[np.int32]
    clock: npt.NDArray[np.int32]

    def __init__(self, findings: Any, opcodes: Iterable[str]) -> None:
        self.findings = findings
        # Narrowest scope of the program's fences and strong accesses. The clocks of a flag are
        # stored separately for this scope and each wider scope. So most programs store them once.
        self._narrowest = min(map(scope_of, filter(_SCOPED.match, opcodes)), default=GPU)
        # Agent 0 stands for "no agent": it is the writer of memory that has not been written.
        self.agents: list[Agent | None] = [None]
        # Agent -> slot, which is an index into `known` and `clock`. When a block has ended, its
        # agents get slot 0, where all clocks are 0. New agents reuse the slots that become free.
        self.slot = np.zeros(64, np.int32)
        self.is_async = np.zeros(64, np.bool_)
        # known[row, slot of a warp, slot of an agent] is the value that the warp knows of the
        # agent's clock.
        self.known = np.zeros((_ROWS, 64, 64), np.int32)
        # Slot of a warp -> current clock of the warp. For asynchronous agents, callers of `Order`
        # pass the clocks as arguments.
        self.clock = np.zeros(64, np.int32)
        # Instructions that have accessed memory. A stamp contains an index into this list.
        self.sites: list[Any] = []
        self._free: list[int] = []
        # id of a load instruction -> result of `operands.is_in_flight`.
        self._in_flight: dict[int, bool] = {}
        self._used = 1
        self._site_of: dict[int, int] = {}
        self._shadows: dict[int, tuple[Any, Shadow]] = {}
        # Readers (see `_readers`) -> (id of the region, offset) of a flag -> clocks that strong
        # writes to the flag published to these readers.
        self._flags: dict[Any, dict[tuple[int, int], Clocks]] = defaultdict(dict)
        # Scope -> slot of a warp -> clocks that the warp published at its last fence of this scope
        # or a wider scope.
        self._published: list[dict[int, Clocks]] = [{}, {}, {}]
        # Scope -> slot of a warp -> clocks that the warp's relaxed reads received since its last
        # fence of this scope or a wider scope.
        self._observed: list[dict[int, Clocks]] = [{}, {}, {}]
        # Releases by fence.proxy.tensormap: (slot of the warp, clock of the warp, clocks that the
        # warp knew at the fence).
        self._map_releases: list[tuple[int, int, Clocks]] = []
        # Address of a map -> acquires of the map by fence.proxy.tensormap. Each acquire is (slot of
        # the warp, clock of the warp, clocks that the warp knew at the fence).
        self._map_acquires: dict[int, list[tuple[int, int, Clocks]]] = {}

    # -- agents ----------------------------------------------------------------------------------

    def add_warps(self, block: Any, count: int) -> IntArray:
        """Add an agent for each warp of a block; return the numbers of these agents."""
        numbers = [self.add_agent("warp", block, f"warp {n}") for n in range(count)]
        agents = np.array(numbers, np.int64)
        self.clock[self.slot[agents]] = 1
        return agents

    def add_agent(self, kind: str, block: Any, name: str = "") -> int:
        """Add an agent and return its number; the table `MEETINGS` lists the possible kinds."""
        if not self._free:
            self._free.append(self._used)
            self._used += 1
        slot, number = self._free.pop(), len(self.agents)
        self.agents.append(Agent(kind, block, name))
        if number >= len(self.slot):
            self.slot = np.concatenate([self.slot, np.zeros_like(self.slot)])
            self.is_async = np.concatenate([self.is_async, np.zeros_like(self.is_async)])
        if slot >= len(self.clock):
            size = 2 * len(self.clock)
            self.clock, self.known = _grown(self.clock, size), _grown(self.known, size)
        self.slot[number], self.is_async[number] = slot, kind not in ("warp", "cp_async")
        return number

    def retire(self, blocks: Sequence[Any]) -> None:
        """Free the slots of the agents of ended blocks.

        Keep all slots if a warp of another block knows a nonzero clock of one of these agents, or
        if a flag contains such a clock.
        """
        gone = set(map(id, blocks))
        for key in [key for key, (owner, _) in self._shadows.items() if id(owner) in gone]:
            del self._shadows[key]
        for block in blocks:
            for readers in _readers(block)[:GPU]:
                self._flags.pop(readers, None)
        ended = [n for n, a in enumerate(self.agents) if a and id(a.block) in gone and self.slot[n]]
        slots = self.slot[ended]
        others = np.ones(len(self.clock), np.bool_)
        others[slots] = False
        clocks = (clocks for flags in self._flags.values() for clocks in flags.values())
        flags = (_wide(one, len(self.clock)) for one in clocks)
        rows = (self.known[:, others], *flags)
        if not any(row[..., slots].any() for row in rows):
            self.slot[ended] = 0
            self.known[:, slots] = 0
            self.known[:, :, slots] = 0
            self.clock[slots] = 0
            self._free += slots.tolist()
            for slot in slots.tolist():
                for kept in (*self._published, *self._observed):
                    kept.pop(slot, None)

    def slots_of(self, g: Any, mask: BoolArray | None = None) -> IntArray:
        """Return the slots of those warps of a group that have executing threads."""
        return self.slots_at(g.block, g.lanes if mask is None else g.lanes[mask])

    def slots_at(self, block: Any, lanes: Any) -> IntArray:
        """Return the slots of the warps that threads of a block belong to."""
        warps = np.unique(np.asarray(lanes) // _WARP)
        found: IntArray = self.slot[block.warp_agents[warps]]
        return found

    # -- synchronisation -------------------------------------------------------------------------

    def publish(self, slots: IntArray, *, relaxed: bool = False, scope: int = CTA) -> Clocks:
        """Return the clocks that these warps publish, and increment the clock of each warp.

        The clocks are incremented so that the published values do not cover later accesses. With
        `relaxed`, only the row DONE has the current values. The other rows have the values of each
        warp's last fence of `scope` or a wider scope.
        """
        clocks = self.snapshot(slots)
        if relaxed:
            clocks[:DONE] = 0
            for slot in slots.tolist():
                if slot in self._published[scope]:
                    fenced = _wide(self._published[scope][slot], clocks.shape[1])
                    np.maximum(clocks, fenced, out=clocks)
        self.clock[slots] += 1
        return clocks

    def snapshot(self, slots: IntArray) -> Clocks:
        """Return the clocks that these warps know, including their own accesses."""
        clocks: Clocks = self.known[:, slots].max(axis=1)
        clocks[SEEN, slots] = clocks[DONE, slots] = self.clock[slots]
        return clocks

    def receive(
        self, slots: IntArray, clocks: Clocks | None, *, relaxed: bool = False, scope: int = CTA
    ) -> None:
        """Merge published clocks into the clocks that warps know.

        With `relaxed`, update only the row DONE now. Update the other rows at each warp's next
        fence of `scope` or a wider scope.
        """
        if clocks is None:
            return
        clocks = _wide(clocks, len(self.clock))
        if not relaxed:
            self.known[:, slots] = np.maximum(self.known[:, slots], clocks[:, None])
            return
        self.known[DONE, slots] = np.maximum(self.known[DONE, slots], clocks[DONE])
        for slot in slots.tolist():
            self._observed[scope][slot] = merged(self._observed[scope].get(slot), clocks)

    def learn(self, slots: IntArray, agent: int, clock: int) -> None:
        """Let warps know that an asynchronous agent's accesses up to `clock` are complete."""
        slot = self.slot[agent]
        for way in (SEEN, DONE):
            self.known[way, slots, slot] = np.maximum(self.known[way, slots, slot], clock)

    def completed(self, clocks: Clocks | None, agent: int, clock: int) -> Clocks:
        """Return a copy of `clocks` in which the accesses of `agent` up to `clock` are complete."""
        clocks = np.array(merged(clocks, np.zeros((_ROWS, len(self.clock)), np.int32)))
        slot = self.slot[agent]
        for way in (SEEN, DONE):
            clocks[way, slot] = max(clocks[way, slot], clock)
        return clocks

    def fence(self, slots: IntArray, scope: int = GPU) -> None:
        """Execute fence.acq_rel, fence.sc or membar."""
        # Relaxed reads before the fence become acquires at the fence. Relaxed writes after the
        # fence release the accesses before the fence.
        for slot in slots.tolist():
            for observed in self._observed[: scope + 1]:
                self.receive(np.array([slot]), observed.pop(slot, None))
            clocks = self.snapshot(np.array([slot]))
            for published in self._published[: scope + 1]:
                published[slot] = clocks
        self.clock[slots] += 1

    def fence_proxy(self, slots: IntArray, ways: Sequence[int] = (FENCED, FENCED_GLOBAL)) -> None:
        """Execute fence.proxy.async, which orders accesses of the generic and the async proxy."""
        for way in ways:
            # Later asynchronous operations see the accesses of the warp itself, and all accesses
            # that the warp sees.
            self.known[way, slots] = np.maximum(self.known[way, slots], self.known[SEEN, slots])
            self.known[way, slots, slots] = self.clock[slots]
        self.clock[slots] += 1

    def sync_warps(self, g: Any, mask: BoolArray | None = None) -> None:
        """Execute bar.warp.sync, which orders the accesses of the lanes of each warp."""
        slots = self.slots_of(g, mask)
        self.known[SEEN, slots, slots] = self.clock[slots]
        self.known[DONE, slots, slots] = self.clock[slots]
        self.clock[slots] += 1

    # -- tensor maps -----------------------------------------------------------------------------

    def release_maps(self, slots: IntArray) -> None:
        """Execute fence.proxy.tensormap with .release, which publishes changes of tensor maps."""
        self._map_releases += self._at(slots)

    def acquire_map(self, slots: IntArray, address: int) -> None:
        """Execute fence.proxy.tensormap with .acquire, so that later copies see a changed map."""
        self._map_acquires.setdefault(address, []).extend(self._at(slots))

    def _at(self, slots: IntArray) -> list[tuple[int, int, Clocks]]:
        # Each entry is (slot of a warp, clock of the warp, clocks that the warp knows).
        points = [(s, int(self.clock[s]), self.snapshot(np.array([s]))) for s in slots.tolist()]
        self.clock[slots] += 1
        return points

    def use_map(self, g: Any, lane: int, region: Any, offset: int, address: int) -> None:
        """Report a copy whose map the kernel has changed without the required fences."""
        shadow = self._shadow(region)
        if not shadow.is_written:
            return
        units = shadow.range(offset, offset + MAP_BYTES)
        writers, stamps = shadow.writer[units], shadow.stamp[units]
        written = writers != 0
        if not written.any():
            return
        slots, clocks = self.slot[writers[written]], stamps[written] >> CLOCK_SHIFT
        slot = int(self.slot[g.block.warp_agents[lane // _WARP]])
        seen = self.snapshot(np.array([slot]))[SEEN]
        # The copy must be ordered after an acquire of the map. For every byte of the map that the
        # kernel wrote, the acquire must be ordered after a release by the writer, or after the
        # tensormap.cp_fenceproxy that wrote the byte.
        for at, clock, acquired in self._map_acquires.get(address, ()):
            if seen[at] < clock:
                continue
            published = np.zeros(len(acquired[SEEN]), np.int32)
            for where, when, released in self._map_releases:
                if acquired[SEEN, where] >= when:
                    known = _wide(released, len(acquired[SEEN]))[SEEN][: len(published)]
                    np.maximum(published, known, out=published)
            own = shadow.published[units][written] & (acquired[SEEN][slots] >= clocks)
            if (own | (published[slots] >= clocks)).all():
                return
        site = self._site_at(int(stamps[written].max()))
        rule, severity, message, fix = MEETINGS["map"]
        self.findings.add(rule, severity, message, fix, g=g, lanes=[lane], also=site)

    # -- accesses of threads ---------------------------------------------------------------------

    def access(
        self,
        g: Any,
        mask: BoolArray | None,
        region: Any,
        offsets: IntArray,
        size: int,
        *,
        write: bool,
        atomic: bool = False,
        semantics: str = "weak",
        data: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        """Check and record accesses of a group's threads; call this before memory is changed.

        Parameters
        ----------
        region
            A `Block` for its shared memory, or a `Region` of global memory.
        offsets : array (n,)
            Byte offset in the region for each thread of the group. If the mask excludes a thread,
            the offset of the thread is ignored.
        size : int
            Number of bytes that each thread accesses.
        write, atomic : bool
            `write` is True for a store. `atomic` is True for an atomic operation, which reads and
            writes.
        semantics : str
            "weak", "relaxed", "volatile", "acquire", "release", "acq_rel" or "sc".
        data : uint8 array (n, size), optional
            Bytes that a store writes. If two unordered stores write equal bytes, they are not
            reported.
        """
        lanes = g.lanes
        if mask is not None:
            at = mask.nonzero()[0]
            if not len(at):
                return
            lanes, offsets = lanes[at], offsets[at]
            data = None if data is None else data[at]
        shadow = self._shadow(region)
        if shadow.is_shared and int(offsets[0]) in g.machine.check_table:
            return
        agents = g.block.warp_agents[lanes // _WARP]
        strong = atomic or semantics in _NO_RACE
        if shadow.is_shared and region is not g.block:
            self.note_remote(g, lanes, region)
        # A strong read may acquire, so receive clocks before the check. A strong write may release,
        # so publish clocks after the check.
        if strong and not atomic and not write:
            self._acquire_flags(g, mask, region, offsets, semantics)
        # Each thread's access has one stamp; the module `shadow` describes the bits of a stamp.
        units = shadow.units(offsets.astype(np.int64), size)
        slots = self.slot[agents]
        site = self._site(g.code)
        stamps = self.clock[slots].astype(np.int64) << CLOCK_SHIFT | site << SITE_SHIFT
        stamps |= lanes % _WARP | (ATOMIC if strong else 0)
        if write or atomic:
            # An exchange writes its own operand, so it may be the first write.
            if atomic and ".exch" not in g.code.opcode:
                self._check_initialised(g, lanes, shadow, shadow.writer[units])
            if shadow.is_shared:
                _overwrite_barriers(g, region, shadow, units)
            self._check_write(g, lanes, shadow, units, agents, slots, stamps, data)
        else:
            self._check_read(g, lanes, shadow, units, agents, slots, stamps)
        if strong and (write or atomic):
            if atomic:
                self._acquire_flags(g, mask, region, offsets, semantics)
            self._release_flags(g, mask, region, offsets, semantics)

    def note_remote(self, g: Any, lanes: IntArray, block: Any) -> None:
        """Record an access to the shared memory of `block`, another block of the cluster.

        `barriers.end_of_block` checks that `block` does not end before the access is complete.
        """
        for slot in self.slots_at(g.block, lanes).tolist():
            block.sync.remote[slot] = int(self.clock[slot]), g.block, g.code, int(lanes[0])

    def _check_initialised(
        self, g: Any, lanes: IntArray, shadow: Shadow, writers: npt.NDArray[Any]
    ) -> None:
        """Report the threads that read shared memory without a writer."""
        if shadow.is_shared and not writers.all():
            lane = lanes[(writers == 0).any(axis=1)]
            self._report(g, lane, "uninitialised", None, None)

    def _check_read(
        self, g: Any, lanes: IntArray, shadow: Shadow, units: IntArray, agents: IntArray,
        slots: IntArray, stamps: IntArray,
    ) -> None:  # fmt: skip
        if shadow.is_written:
            writers, last = shadow.writer[units], shadow.stamp[units]
            self._check_initialised(g, lanes, shadow, writers)
            wrong = self._unknown(SEEN, slots[:, None], writers, last)
            if wrong is not None:
                self._meet(g, lanes, "read", wrong, writers, last, agents, stamps)
        elif shadow.is_shared:
            self._report(g, lanes, "uninitialised", None, None)
        shadow.note_reads(agents, units, stamps[:, None])

    def _check_write(
        self, g: Any, lanes: IntArray, shadow: Shadow, units: IntArray, agents: IntArray,
        slots: IntArray, stamps: IntArray, data: npt.NDArray[np.uint8] | None,
    ) -> None:  # fmt: skip
        equal = None
        if shadow.is_written:
            writers, last = shadow.writer[units], shadow.stamp[units]
            wrong = self._unknown(SEEN, slots[:, None], writers, last)
            late = self._unknown(DONE, slots[:, None], writers, last)
            if wrong is not None:
                # A thread may overwrite bytes that a bulk copy has written, if the thread knows
                # that the copy is complete (DONE). The thread needs no acquire.
                wrong &= ~self.is_async[writers] | (False if late is None else late)
                same = _is_same(shadow, units, data)
                if same is not None:
                    equal = wrong & same
                    wrong = wrong & ~same
                self._meet(g, lanes, "write", wrong, writers, last, agents, stamps)
        for readers, last in shadow.reads(units):
            wrong = self._unknown(DONE, slots[:, None], readers, last)
            if wrong is None:
                continue
            wrong = wrong & (readers != agents[:, None])
            same = _is_same(shadow, units, data)
            if same is not None:
                wrong &= ~same
            self._meet(g, lanes, "overwrite", wrong, readers, last, agents, stamps)
        shadow.note_writes(agents[:, None], units, stamps[:, None])
        # If two warps stored equal bytes and nothing orders the two stores, a later reader may be
        # ordered after either store. So set the stamp to 0: every access is ordered after stamp 0.
        if equal is not None and equal.any():
            shadow.writer[units[equal]], shadow.stamp[units[equal]] = agents[0], 0

    def _unknown(
        self, way: int, slots: IntArray, agents: npt.NDArray[Any], stamps: IntArray
    ) -> BoolArray | None:
        """Return a mask of the accesses that are newer than the clocks that the warps know.

        Return None if there is no such access.
        """
        limits = self.known[way][slots, self.slot[agents]].astype(np.int64)
        # Set all bits below the clock, so that the limit is the largest stamp with this clock.
        wrong: BoolArray = stamps > (limits << CLOCK_SHIFT | _LOW)
        return wrong if wrong.any() else None

    def _meet(
        self, g: Any, lanes: IntArray, what: str, wrong: BoolArray, others: npt.NDArray[Any],
        last: IntArray, agents: IntArray, stamps: IntArray,
    ) -> None:  # fmt: skip
        """Report the accesses of threads that are not ordered after earlier accesses."""
        both_atomic = (last & ATOMIC != 0) & (stamps[:, None] & ATOMIC != 0)
        own = others == agents[:, None]
        # The accesses of one thread are ordered. Accesses of two lanes of one warp are ordered only
        # by __syncwarp.
        same_lane = own & (last & LANE_BITS == stamps[:, None] & LANE_BITS)
        wrong = wrong & ~both_atomic & ~same_lane
        for other in np.unique(others[wrong]).tolist():
            here = wrong & (others == other)
            kind = self._kind(other)
            if own[here].all():
                kind = "same warp"
            which = here.any(axis=1)
            site = self._site_at(int(last[here].max()))
            self._report(g, lanes[which], f"{what} {kind}", site, other)

    def _report(self, g: Any, lanes: Any, meeting: str, site: Any, other: int | None) -> None:
        row: Meeting | None = MEETINGS.get(meeting)
        if row is None:
            return
        agent = self.agents[other] if other else None
        words = {"agent": agent.name if agent else ""}
        self.findings.add(
            row.rule, row.severity, row.message.format(**words), row.fix, g=g, lanes=lanes,
            also=site,
        )  # fmt: skip

    # -- flags in memory -------------------------------------------------------------------------

    def _flag_keys(self, region: Any, offsets: IntArray) -> list[tuple[int, int]]:
        distinct = np.unique(offsets)
        if len(distinct) > _MOST_FLAGS:
            return []
        return [(id(region), offset) for offset in distinct.tolist()]

    def _acquire_flags(
        self, g: Any, mask: BoolArray | None, region: Any, offsets: IntArray, semantics: str
    ) -> None:
        if not self._flags:
            return
        slots, keys = self.slots_of(g, mask), self._flag_keys(region, offsets)
        relaxed = semantics not in ("acquire", "acq_rel", "sc")
        widest = scope_of(g.code.opcode)
        for readers in _readers(g.block)[self._narrowest :]:
            scope, flags = readers[0], self._flags.get(readers, {})
            for clocks in (flags[key] for key in keys if key in flags):
                seen = clocks if scope <= widest else _only_done(clocks)
                self.receive(slots, seen, relaxed=relaxed, scope=scope)

    def _release_flags(
        self, g: Any, mask: BoolArray | None, region: Any, offsets: IntArray, semantics: str
    ) -> None:
        keys = self._flag_keys(region, offsets)
        if not keys:
            return
        relaxed = semantics not in ("release", "acq_rel", "sc")
        widest = scope_of(g.code.opcode)
        for readers in _readers(g.block)[self._narrowest :]:
            scope, flags = readers[0], self._flags[readers]
            clocks = self.publish(self.slots_of(g, mask), relaxed=relaxed, scope=scope)
            if scope > widest:
                clocks = _only_done(clocks)
            for key in keys:
                flags[key] = merged(flags.get(key), clocks)

    # -- asynchronous accesses -------------------------------------------------------------------

    def async_read(
        self, g: Any, lanes: Any, region: Any, where: Units, agent: int, clock: int,
        *, known: Clocks | None = None, quiet: bool = False,
    ) -> None:  # fmt: skip
        """Check and record the reads of an asynchronous operation when it is issued.

        Parameters
        ----------
        lanes : int array
            Threads that issue the operation.
        where : (first, last) or int array
            The bytes that are read: either a range of bytes of the region, or the unit numbers that
            `Order.units` returns.
        agent, clock : int
            Agent and clock of the operation. A warp may overwrite the bytes when it knows that the
            agent has reached this clock (DONE).
        known : optional
            Clocks that the issuing warps know. The default is ``self.issue(g, lanes)``.
        quiet : bool
            True if a read of uninitialised shared memory is not reported.
        """
        shadow = self._shadow(region)
        units = shadow.index(where)
        known = self.issue(g, lanes) if known is None else _wide(known, len(self.clock))
        site = self._site(g.code)
        is_product = self._kind(agent) in ("wgmma", "tcgen05")
        unwritten = "uninitialised product" if is_product else "uninitialised async"
        if shadow.is_written:
            writers, last = shadow.writer[units], shadow.stamp[units]
            if shadow.is_shared and not quiet and not writers.all():
                self._report(g, lanes, unwritten, None, None)
            self._meet_async(g, lanes, "async read", _fenced(shadow), SEEN, known, writers, last)
        elif shadow.is_shared and not quiet:
            self._report(g, lanes, unwritten, None, None)
        stamp = clock << CLOCK_SHIFT | site << SITE_SHIFT
        shadow.note_reads(np.array([agent]), units, stamp)

    def async_write(
        self, g: Any, lanes: Any, region: Any, where: Units, agent: int, clock: int,
        *, known: Clocks | None = None, atomic: bool = False,
        after: Callable[[], npt.NDArray[np.uint8]] | None = None,
        generic: bool = False,
    ) -> None:  # fmt: skip
        """Check and record the writes of an asynchronous operation; call this at its issue.

        `async_read` describes `lanes`, `where`, `agent`, `clock` and `known`. `atomic` is True for
        a reduction. Two reductions do not race. `after` returns the bytes that the region will have
        after the operation. With `after`, two unordered bulk stores of equal bytes are not
        reported. `generic` is True if the operation writes through the generic proxy (st.async).
        """
        shadow = self._shadow(region)
        units = shadow.index(where)
        known = self.issue(g, lanes) if known is None else _wide(known, len(self.clock))
        site = self._site(g.code)
        stamp = clock << CLOCK_SHIFT | site << SITE_SHIFT | (ATOMIC if atomic else 0)
        is_async = self.is_async[agent] and not generic
        fenced = (_fenced(shadow),) * 2 if is_async else (SEEN, DONE)
        if atomic and shadow.is_shared and not shadow.writer[units].all():
            self._report(g, lanes, "uninitialised async", None, None)
        if shadow.is_written:
            writers, last = shadow.writer[units], shadow.stamp[units]
            if atomic:
                # A stamp of 0 is never reported. So replace the stamps of earlier reductions by 0.
                last = np.where(last & ATOMIC, 0, last)
            if after is not None:
                last = self._without_equal(known, shadow, units, last, after)
            self._meet_async(g, lanes, "async write", fenced[0], SEEN, known, writers, last)
        for readers, last in shadow.reads(units):
            self._meet_async(
                g, lanes, "async overwrite", _fenced(shadow), DONE, known, readers, last
            )
        if shadow.is_shared:
            _overwrite_barriers(g, region, shadow, units)
        shadow.note_writes(agent, units, stamp)

    def publish_map(self, g: Any, mask: BoolArray | None, region: Any, offset: int) -> None:
        """Check and record that tensormap.cp_fenceproxy writes and releases a map of 128 bytes."""
        offsets = np.full(g.n, offset)
        for part in range(0, MAP_BYTES, 16):
            self.access(g, mask, region, offsets + part, 16, write=True, semantics="release")
        shadow = self._shadow(region)
        shadow.publish(offset, offset + MAP_BYTES)

    def units(self, region: Any, offsets: IntArray, size: int) -> IntArray:
        """Return an array (n, k): the numbers of the k units that each of n accesses touches.

        Each access has `size` bytes. The class `Shadow` defines the units.
        """
        return self._shadow(region).units(offsets, size)

    def _without_equal(
        self, known: Clocks, shadow: Shadow, units: Any, last: IntArray,
        after: Callable[[], npt.NDArray[np.uint8]],
    ) -> IntArray:  # fmt: skip
        """Return `last`, with 0 for the stamps of unordered bulk stores that wrote equal bytes.

        A stamp of 0 is never reported.
        """
        writers = shadow.writer[units]
        limits = known[SEEN][self.slot[writers]].astype(np.int64)
        wrong = self.is_async[writers] & (last > (limits << CLOCK_SHIFT | _LOW))
        if not wrong.any():
            return last
        whole = len(shadow.raw) // shadow.unit * shadow.unit
        then, now = (a[:whole].reshape(-1, shadow.unit)[units] for a in (after(), shadow.raw))
        ordered: IntArray = np.where(wrong & (then == now).all(axis=-1), 0, last)
        return ordered

    def restamp(self, region: Any, offsets: IntArray, agent: int, clock: int) -> None:
        """Correct the clock of pieces that arrive in a later phase than `Order` expected.

        `offsets` are the offsets of the pieces. A piece has 16 bytes.
        """
        shadow = self._shadow(region)
        units = shadow.units(offsets, _PIECE)
        mine = shadow.writer[units] == agent
        low = shadow.stamp[units] & _LOW
        shadow.stamp[units] = np.where(mine, clock << CLOCK_SHIFT | low, shadow.stamp[units])

    def issue(self, g: Any, lanes: Any) -> Clocks:
        """Return the clocks that the issuing warps know, and increment the warps' clocks."""
        slots = self.slots_at(g.block, lanes)
        clocks = self.snapshot(slots)
        self.clock[slots] += 1
        return clocks

    def _meet_async(
        self, g: Any, lanes: Any, what: str, fenced: int, plain: int, known: Clocks,
        others: npt.NDArray[Any], last: IntArray,
    ) -> None:  # fmt: skip
        """Report the earlier accesses that are not ordered before an asynchronous operation.

        A row of `known` covers an access if the access is not newer than the row's clock for its
        agent. The row `fenced` must cover earlier accesses of threads. If only the row `plain`
        covers such an access, a fence is missing. The row `plain` must cover earlier asynchronous
        accesses; for an asynchronous write, the row DONE is enough.
        """
        slots = self.slot[others]
        limits = known[plain][slots].astype(np.int64)
        generic = ~self.is_async[others]
        # A bulk copy may overwrite bytes that an earlier copy has written if the issuer knows that
        # the earlier copy is complete (DONE).
        if what == "async write":
            limits = np.where(generic, limits, known[DONE][slots])
        # Earlier accesses of threads were made through the generic proxy, so they also need a proxy
        # fence.
        strict = np.where(generic, known[fenced][slots], limits)
        wrong = last > (strict << CLOCK_SHIFT | _LOW)
        if not wrong.any():
            return
        unordered = last > (limits << CLOCK_SHIFT | _LOW)
        for other in np.unique(others[wrong]).tolist():
            kind = self._kind(other)
            for is_unordered, name in ((True, f"{what} {kind}"), (False, f"{what} without fence")):
                here = wrong & (others == other) & (unordered == is_unordered)
                if here.any():
                    site = self._site_at(int(last[here].max()))
                    if name == "async overwrite without fence" and self._is_in_flight(g, site):
                        name = "async overwrite in flight"
                    self._report(g, lanes, name, site, other)

    # -- helpers ---------------------------------------------------------------------------------

    def _is_in_flight(self, g: Any, read: Any) -> bool:
        """Return whether the load instruction `read` may be incomplete after the next barrier."""
        if id(read) not in self._in_flight:
            functions = g.machine.program.functions.values()
            code = next(f.code for f in functions if any(read is code for code in f.code))
            self._in_flight[id(read)] = is_in_flight(read, code)
        return self._in_flight[id(read)]

    def _kind(self, agent: int) -> str:
        found = self.agents[agent]
        return found.kind if found else ""

    def _shadow(self, region: Any) -> Shadow:
        found = self._shadows.get(id(region))
        if found is None:
            shared = getattr(region, "smem", None)
            raw = region.raw if shared is None else shared
            found = self._shadows[id(region)] = region, Shadow(raw, shared is not None)
        return found[1]

    def _site(self, code: Any) -> int:
        number = self._site_of.get(id(code))
        if number is None:
            number = self._site_of[id(code)] = len(self.sites)
            self.sites.append(code)
        return number

    def _site_at(self, stamp: int) -> Any:
        return self.sites[(stamp & _LOW) >> SITE_SHIFT]


@cache
def scope_of(opcode: str) -> int:
    """Return the scope of a strong access or of a fence.

    Volatile accesses have the scope .sys, and atomics without a scope have the scope .gpu.
    """
    return next((_SCOPES[word] for word in opcode.split(".") if word in _SCOPES), GPU)


def _readers(block: Any) -> list[tuple[int, Any]]:
    """Return tuples (scope, place) for the threads of a block, of its cluster, and of the grid.

    A write to a flag publishes clocks to each of the tuples whose scope is not wider than the scope
    of the write. A read receives clocks from the tuples of its block in the same way. So a read
    receives the clocks of a write only if the scope of each includes the block of the other.
    """
    return [(CTA, block.ctaid), (CLUSTER, block.cluster.place), (GPU, None)]


def _only_done(clocks: Clocks) -> Clocks:
    """Return a copy of `clocks` without the rows other than DONE."""
    done: Clocks = clocks.copy()
    done[:DONE] = 0
    return done


def _fenced(shadow: Shadow) -> int:
    return FENCED if shadow.is_shared else FENCED_GLOBAL


def _overwrite_barriers(g: Any, block: Any, shadow: Shadow, units: IntArray) -> None:
    """Mark the mbarriers whose bytes an instruction writes; a use of a marked mbarrier is wrong."""
    barriers = block.sync.barriers
    if not barriers:
        return
    low, high = int(units.min()), int(units.max())
    for offset, barrier in barriers.items():
        first, last = offset // shadow.unit, (offset + 7) // shadow.unit
        if first <= high and low <= last and ((first <= units) & (units <= last)).any():
            barrier.overwritten = g.code


def _is_same(
    shadow: Shadow, units: IntArray, data: npt.NDArray[np.uint8] | None
) -> BoolArray | None:
    """Return a mask of the units that already contain the bytes `data` of a store.

    Return None if `data` is None.
    """
    if data is None:
        return None
    at = units[..., None] * shadow.unit + np.arange(shadow.unit)
    stored = data.reshape(*units.shape, shadow.unit)
    same: BoolArray = (shadow.raw[at] == stored).all(axis=-1)
    return same


def _grown(array: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int32]:
    shape = tuple(size if n == array.shape[-1] else n for n in array.shape)
    larger = np.zeros(shape, array.dtype)
    larger[tuple(slice(n) for n in array.shape)] = array
    return larger


def _wide(clocks: Clocks, size: int) -> Clocks:
    return clocks if clocks.shape[-1] >= size else _padded(clocks, size)


def _padded(clocks: Clocks, size: int) -> Clocks:
    wider = np.zeros((len(clocks), size), np.int32)
    wider[:, : clocks.shape[1]] = clocks
    return wider


def merged(a: Clocks | None, b: Clocks | None) -> Any:
    """Return the elementwise maximum of two sets of clocks; None is the empty set."""
    if a is None or b is None:
        return b if a is None else a
    size = max(a.shape[1], b.shape[1])
    return np.maximum(_wide(a, size), _wide(b, size))
