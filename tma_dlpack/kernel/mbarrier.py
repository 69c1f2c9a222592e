"""The state of mbarriers, and the instructions that change or test this state.

A phase of an mbarrier ends when no arrival and no byte is pending. If a thread's wait for the phase
succeeds, the thread sees all accesses that other threads made before they arrived.

Source: PTX ISA 9.0, 9.7.13.15 (mbarrier). The layout of the 64 bits of an mbarrier was measured in
a stopped kernel (H100, driver 580.159.04, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel.core import counted
from tma_dlpack.kernel.operations import Operation, operation
from tma_dlpack.kernel.order import DONE, FENCED, SEEN, BoolArray, Clocks, IntArray, merged
from tma_dlpack.kernel.pending import Pending
from tma_dlpack.ptx.parse import Instruction

#: Maximum number of pending arrivals, and maximum absolute value of the number of pending bytes.
MOST = (1 << 20) - 1
# An address in a cluster's shared memory has the block's rank in bits 24 to 31 and the offset in
# bits 0 to 23.
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
_SHARED_BITS = 0xFFFFFFFF


@dataclass(eq=False, slots=True)
class Barrier:
    """An initialised mbarrier; `phase` is the number of phases that have ended."""

    block: Any
    #: Bytes from the start of the block's shared memory.
    offset: int
    #: Number of arrivals that a phase needs.
    count: int
    #: Number of arrivals that are missing in the current phase.
    pending: int
    #: Number of bytes that are expected but have not arrived. It is negative if bytes arrive before
    #: the expect_tx.
    bytes: int = 0
    phase: int = 0
    #: Sum of the bytes of all expect_tx in the current phase.
    announced: int = 0
    #: The mbarrier.init instruction.
    code: Any = None
    #: (slot in `Order`, clock) of the warp that executed the mbarrier.init.
    init: tuple[int, int] = (0, 0)
    #: The last instruction that wrote over the bytes of the mbarrier.
    overwritten: Any = None
    #: Whether fence.mbarrier_init followed the mbarrier.init.
    is_fenced: bool = False
    #: Clocks of `Order` that the arrivals of the current phase published.
    arriving: Clocks | None = None
    #: Clocks of `Order` that the arrivals of all ended phases published.
    ended: Clocks | None = None
    #: Index in `Order.agents` of the loads that complete on the barrier; 0 before the first load.
    agent: int = 0
    #: (clock, issuing block, instruction, thread) of the last load that completes on the barrier.
    issued: tuple[int, Any, Any, int] | None = None
    #: Warp -> number of its arrivals in this phase.
    came: dict[int, int] = field(default_factory=dict)

    @property
    def address(self) -> int:
        """Address of the barrier in the cluster's shared memory."""
        return int(self.block.rank) << RANK_SHIFT | self.offset

    @property
    def word(self) -> int:
        """The state as the 64 bits that the hardware stores."""
        # Each part is (value, first bit, number of bits). The hardware stores the three counts as
        # negative numbers.
        parts = ((self.phase % 2, 63, 1), (-self.pending, 43, 20), (-self.bytes, 21, 21))
        return sum((n % (1 << bits)) << at for n, at, bits in (*parts, (-self.count, 1, 20)))

    def load_agent(self) -> int:
        """Return the agent in `Order` for the loads that complete on this barrier."""
        if not self.agent:
            name = f"the barrier {self.offset:#x}"
            self.agent = self.block.machine.order.add_agent("load", self.block, name)
        return self.agent

    def arrive(self, count: int, clocks: Clocks | None, drop: bool = False) -> None:
        """Count `count` arrivals that one instruction makes."""
        self.arriving = merged(self.arriving, clocks)
        # If the arrivals exceed the pending count, the phase ends, and the remaining arrivals count
        # in the next phase.
        while count:
            now = min(count, self.pending)
            self.pending -= now
            if drop:
                self.count -= now
            count -= now
            self.end_phase()

    def transact(self, size_bytes: int, clocks: Clocks | None = None) -> None:
        """Count bytes that have arrived; a negative number counts expected bytes."""
        self.bytes -= size_bytes
        if clocks is not None:
            completed = clocks.copy()
            # The completion of an asynchronous operation does not release the issuer's writes. It
            # only proves that the issuer's earlier accesses are complete, so keep only the DONE
            # clocks.
            completed[:DONE] = 0
            self.arriving = merged(self.arriving, completed)
        self.end_phase()

    def end_phase(self) -> None:
        """End the phase if no arrival and no byte is pending."""
        machine = self.block.machine
        machine.progress += 1
        if self.pending or self.bytes:
            return
        self.phase += 1
        self.pending, self.announced = self.count, 0
        self.came.clear()
        self.ended, self.arriving = merged(self.ended, self.arriving), None
        if self.agent and machine.order is not None:
            self.ended = machine.order.completed(self.ended, self.agent, self.phase)


# -- finding barriers ------------------------------------------------------------------------------


def place_of(g: Any, address: int, lanes: Any = None) -> tuple[Any, int]:
    """Return (block, offset) of an address in shared memory; the address is shared or generic."""
    address &= _SHARED_BITS
    rank, offset = address >> RANK_SHIFT, address & OFFSET_MASK
    blocks = g.block.cluster.blocks
    if rank >= len(blocks):
        found = f"the address {address:#x} is in block {rank} of the cluster, which has"
        g.machine.fault(
            g, "CLUSTER", f"{found} {counted(len(blocks), 'block')}",
            "launch with a cluster that has the block, or correct the rank given to mapa",
            lanes=lanes,
        )  # fmt: skip
    return blocks[rank], offset


def barrier_at(g: Any, address: int, lanes: Any) -> Barrier:
    """Return the barrier that a thread uses; end the run if no initialised barrier is there."""
    barrier = _barrier_at(g, address, lanes)
    check_bytes(barrier, g=g, lanes=lanes)
    return barrier


def _barrier_at(g: Any, address: int, lanes: Any) -> Barrier:
    block, offset = place_of(g, address, lanes)
    where = f"the barrier {address & _SHARED_BITS:#x}"
    if offset % 8:
        g.machine.fault(
            g, "BARRIER_ALIGNED", f"{where} is not at a multiple of 8 bytes",
            "declare it alignas(8) uint64_t", lanes=lanes,
        )  # fmt: skip
    if offset + 8 > len(block.smem):
        g.machine.fault(
            g, "BARRIER_RANGE", f"{where} is beyond the block's {len(block.smem):#x} bytes",
            "place it in the block's shared memory", lanes=lanes,
        )  # fmt: skip
    barrier = block.sync.barriers.get(offset)
    if barrier is None:
        g.machine.fault(
            g, "BARRIER_INIT", f"{where} is not initialised when it is used",
            "initialise it in one thread before, then fence.mbarrier_init and a barrier of the "
            "block, or of the cluster where other blocks use it", lanes=lanes,
        )  # fmt: skip
    found: Barrier = barrier
    _check_init(g, found, lanes)
    return found


def check_bytes(barrier: Barrier, **place: Any) -> None:
    """Report a use of a barrier whose bytes were written; `place` is passed to `Findings.add`."""
    if barrier.overwritten is not None:
        barrier.block.machine.findings.add(
            "BARRIER_OVERWRITTEN", "error",
            f"the bytes of the mbarrier {barrier.address:#x} are written, and then it is used "
            "without a new mbarrier.init",
            "place the mbarrier outside of the tiles and the other data; or mbarrier.init it again "
            "after the other use of its memory", also=barrier.overwritten, **place,
        )  # fmt: skip


def _check_init(g: Any, barrier: Barrier, lanes: Any) -> None:
    """Report a use of a barrier that is not ordered after the mbarrier.init of this barrier."""
    order = g.machine.order
    if order is None:
        return
    slot, clock = barrier.init
    slots = order.slots_at(g.block, lanes)
    # With fence.mbarrier_init, it is enough that the mbarrier.init is complete before the use
    # (DONE). Without this fence, a release and an acquire must order the mbarrier.init before the
    # use (SEEN).
    way = DONE if barrier.is_fenced else SEEN
    if ((order.known[way, slots, slot] < clock) & (slots != slot)).any():
        remote = barrier.block is not g.block
        g.machine.findings.add(
            "BARRIER_INIT", "error",
            f"the barrier {barrier.address:#x} is initialised by one thread and used by "
            f"{'another block' if remote else 'others'} without a barrier of the "
            f"{'cluster' if remote else 'block'} between them",
            "fence.mbarrier_init.release.cluster after the last mbarrier.init, then "
            + ("barrier.cluster.arrive and .wait" if remote else "__syncthreads()"),
            g=g, lanes=lanes, also=barrier.code,
        )  # fmt: skip


def check_async_use(g: Any, barrier: Barrier, lanes: Any) -> None:
    """Warn if a copy uses a barrier without a fence after the mbarrier.init of this barrier."""
    order = g.machine.order
    if order is None or barrier.is_fenced:
        return
    slot, clock = barrier.init
    slots = order.slots_at(g.block, lanes)
    if (order.known[FENCED, slots, slot] < clock).all():
        g.machine.findings.add(
            "BARRIER_INIT", "warning",
            "an mbarrier is initialised and a bulk copy completes on it without a fence between "
            "them (on sm_90 this is common and works)",
            "fence.mbarrier_init.release.cluster by the thread that initialised it, then the "
            "barrier of the block", g=g, lanes=lanes, also=barrier.code,
        )  # fmt: skip


def each(g: Any, mask: BoolArray | None, addresses: Any) -> Iterator[tuple[int, IntArray]]:
    """Yield (address, lanes) for each distinct address among the executing lanes of a group.

    `lanes` are the indices of the lanes in the group.
    """
    at = np.arange(g.n) if mask is None else mask.nonzero()[0]
    if not len(at):
        return
    if np.ndim(addresses) == 0:
        yield int(addresses), at
        return
    values = addresses[at]
    if (values == values[0]).all():
        yield int(values[0]), at
        return
    for value in np.unique(values).tolist():
        yield int(value), at[values == value]


def of_lane(value: Any, lane: int) -> int:
    """Return the operand of one lane; a scalar `value` is the operand of all lanes."""
    return int(value) if np.ndim(value) == 0 else int(value[lane])


# -- instructions ----------------------------------------------------------------------------------


@operation("mbarrier.init")
def _init(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None, address: Any, count: Any) -> None:
        for where, at in each(g, mask, address):
            lanes = g.lanes[at[:1]]
            block, offset = place_of(g, where, lanes)
            number = of_lane(count, at[0])
            if offset % 8 or offset + 8 > len(block.smem):
                # The address is invalid. Remove an earlier barrier at this address, and call
                # `barrier_at`, which reports the address.
                block.sync.barriers.pop(offset, None)
                barrier_at(g, where, lanes)
            if not 1 <= number <= MOST:
                g.machine.fault(
                    g, "BARRIER_ARRIVALS",
                    f"a barrier is initialised for {number} arrivals; it counts 1 to {MOST:,}",
                    "initialise it with the number of arrivals of a phase", lanes=lanes,
                )  # fmt: skip
            barrier = Barrier(block, offset, number, number, code=g.code)
            order = g.machine.order
            if order is not None:
                slot = int(order.slots_at(g.block, lanes)[0])
                barrier.init = slot, int(order.clock[slot])
            block.sync.barriers[offset] = barrier
            g.machine.progress += 1

    return Operation(run)


@operation("mbarrier.inval")
def _inval(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None, address: Any) -> None:
        for where, at in each(g, mask, address):
            barrier = _barrier_at(g, where, g.lanes[at])
            del barrier.block.sync.barriers[barrier.offset]

    return Operation(run)


class RemoteArrival(Pending):
    """An arrival at a barrier of another block; the schedule decides when it happens."""

    block: Any

    def __init__(self, g: Any, barrier: Barrier, lanes: IntArray, act: Callable[[], None]) -> None:
        super().__init__(g, f"an arrival at the barrier {barrier.address:#x}")
        self.block = g.block
        self._barrier, self._lanes, self._act = barrier, lanes, act

    def happen(self) -> None:
        if self._barrier.block.ended:
            gone, lane = self._barrier.block, int(self._lanes[0])
            report_exit(self.machine.findings, self.code, self.block, gone, "an arrival", lane)
            return
        self._act()


def report_exit(findings: Any, code: Any, block: Any, gone: Any, what: str, lane: int) -> None:
    """Report an access that may reach the shared memory of a block that has ended."""
    message = f"{what} may reach the shared memory of another block after that has ended"
    fix = "let every block of the cluster end after a barrier of the cluster"
    if gone is block:
        message = f"a block may end while {what} to its shared memory is in flight"
        fix = "wait for every load before the block ends"
    # Many kernels end a block right after an arrival at another block, and this works on hardware.
    # So only a load into another block is an error. All other accesses are warnings.
    severity = "error" if what == "a load" and gone is not block else "warning"
    findings.add("BLOCK_ENDED", severity, message, fix, code=code, place=(block, lane))


def happen_before(block: Any) -> None:
    """Complete a block's pending arrivals at other blocks, before a release at cluster scope."""
    machine = block.machine
    for pending in [p for p in machine.pending if isinstance(p, RemoteArrival)]:
        if pending.block is block:
            machine.pending.remove(pending)
            pending.happen()
            pending.happened = True


def _arrive_bytes(g: Any, barrier: Barrier, size_bytes: int, lanes: IntArray) -> None:
    announced = size_bytes + barrier.bytes
    if not -MOST <= announced <= MOST or size_bytes < 0:
        g.machine.fault(
            g, "BARRIER_BYTES",
            f"{announced:,} bytes are announced; a barrier counts {MOST:,} at most",
            "announce in several phases, or in several barriers", lanes=lanes,
        )  # fmt: skip
    barrier.bytes += size_bytes
    barrier.announced += size_bytes


def check_arrivals(g: Any, barrier: Barrier, count: int, lanes: IntArray) -> None:
    """End the run if a barrier does not allow `count` more arrivals.

    More arrivals than the phase needs are not allowed while bytes are pending. 0 arrivals are never
    allowed.
    """
    if (count > barrier.pending and barrier.bytes) or not count:
        g.machine.fault(
            g, "BARRIER_ARRIVALS",
            f"{counted(count, 'arrival')} at the barrier {barrier.address:#x}, which waits for "
            f"{barrier.pending} more in this phase (it was initialised with {barrier.count})",
            "initialise it with the number of arrivals of a phase (arrive.expect_tx is one, too); "
            "or a wait passed too early, by its parity or its stage, and a thread arrives a phase "
            "too soon", lanes=lanes,
        )  # fmt: skip


@operation("mbarrier.arrive", "mbarrier.arrive_drop")
def _arrive(code: Instruction) -> Operation:
    words = code.opcode.split(".")
    relaxed, drop = "relaxed" in words, words[1] == "arrive_drop"
    expects = "expect_tx" in words

    def run(g: Any, mask: BoolArray | None, address: Any, operand: Any = 1) -> Any:
        states = np.zeros(g.n, np.uint64)
        for where, at in each(g, mask, address):
            lanes = g.lanes[at]
            barrier = barrier_at(g, where, lanes)
            order = g.machine.order
            # The result of the instruction is the state before the arrival.
            states[at] = barrier.word
            count, size_bytes = len(at), 0
            if np.ndim(operand) == 0:
                # With .expect_tx, the operand is a number of bytes. Otherwise it is the number of
                # arrivals.
                total = int(operand) * len(at)
            else:
                total = int(operand[at].astype(np.int64).sum())
            if expects:
                size_bytes = total
            else:
                count = total
            clocks = None
            if order is not None:
                if barrier.block is not g.block:
                    order.note_remote(g, lanes, barrier.block)
                clocks = order.publish(order.slots_at(g.block, lanes), relaxed=relaxed)
            warps = (lanes // 32).tolist()

            # `act` may run after a later iteration has assigned new values to these variables. So
            # keep the values of this iteration as default arguments.
            def act(
                barrier: Barrier = barrier, count: int = count, size_bytes: int = size_bytes,
                clocks: Clocks | None = clocks, lanes: IntArray = lanes,
                warps: list[int] = warps, code: Any = g.code,
            ) -> None:  # fmt: skip
                if expects:
                    _arrive_bytes(g, barrier, size_bytes, lanes)
                check_arrivals(g, barrier, count, lanes)
                for warp in warps:
                    barrier.came[warp] = barrier.came.get(warp, 0) + 1
                barrier.arrive(count, clocks, drop)

            if barrier.block is g.block:
                act()
            else:
                g.machine.add(RemoteArrival(g, barrier, lanes, act))
        return states

    return Operation(run, destinations=1)


@operation("mbarrier.expect_tx", "mbarrier.complete_tx")
def _bytes(code: Instruction) -> Operation:
    expects = ".expect_tx" in code.opcode

    def run(g: Any, mask: BoolArray | None, address: Any, size_bytes: Any) -> None:
        for where, at in each(g, mask, address):
            barrier = barrier_at(g, where, g.lanes[at])
            for lane in at:
                number = of_lane(size_bytes, lane)
                if expects:
                    _arrive_bytes(g, barrier, number, g.lanes[at])
                    barrier.end_phase()
                else:
                    barrier.transact(number)

    return Operation(run)


@operation("mbarrier.test_wait", "mbarrier.try_wait")
def _wait(code: Instruction) -> Operation:
    words = code.opcode.split(".")
    by_parity, relaxed = "parity" in words, "relaxed" in words

    def run(g: Any, mask: BoolArray | None, address: Any, state: Any, *rest: Any) -> Any:
        done = np.zeros(g.n, np.bool_)
        for where, at in each(g, mask, address):
            lanes = g.lanes[at]
            barrier = barrier_at(g, where, lanes)
            if np.ndim(state) == 0:
                # With .parity, the operand is the parity of a phase. Otherwise the operand is a
                # state, and bit 63 of the state is the parity.
                parity: Any = int(state) & 1 if by_parity else int(state) >> 63
            else:
                parity = (
                    state[at] & state.dtype.type(1) if by_parity else state[at] >> np.uint64(63)
                )
            # The tested phase has ended if its parity differs from the parity of the current phase.
            passed: npt.NDArray[np.bool_] = np.broadcast_to(parity != barrier.phase % 2, len(at))
            done[at] = passed
            if passed.all():
                through = lanes
            else:
                stuck = lanes[~passed]
                g.polled(barrier)
                g.machine.timeline.waits(g, barrier, stuck)
                through = lanes[passed]
            if len(through):
                g.machine.timeline.passes(g, barrier, through)
                order = g.machine.order
                if order is not None:
                    slots = order.slots_at(g.block, through)
                    order.receive(slots, barrier.ended, relaxed=relaxed)
        return done

    return Operation(run, destinations=1)


@operation("mbarrier.pending_count")
def _pending_count(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None, state: Any) -> Any:
        return (-(np.asarray(state).astype(np.int64) >> 43) & MOST).astype(np.uint32)

    return Operation(run, destinations=1)
