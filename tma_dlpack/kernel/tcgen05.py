"""Simulation of the fifth-generation tensor core: tensor memory, tcgen05.mma, commits and waits.

The tensor memory of a block has 128 lanes and 512 columns, and each element has 32 bits. In an
accumulator of 128 rows, row i is in lane i. In an accumulator of 64 rows, row i is in lane
32 * (i // 16) + i % 16, so half of the lanes are not used. With cta_group::2, each of the two
blocks has half of the rows of A and half of the n rows of B in its shared memory.

This module follows the documentation and is not measured on hardware. Source: PTX ISA 9.0, 9.7.16
(tcgen05: tensor memory, data path layout organization, instruction descriptor).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel.core import operand_addresses
from tma_dlpack.kernel.matrix import ELEMENTS, K_BYTES, WORD, Element
from tma_dlpack.kernel.mbarrier import barrier_at, check_arrivals, place_of
from tma_dlpack.kernel.memory import OFFSET_MASK, Region
from tma_dlpack.kernel.operations import Operation, operation
from tma_dlpack.kernel.pending import Pending
from tma_dlpack.ptx.parse import Instruction

Array = npt.NDArray[Any]

LANES, COLUMNS = 128, 512
# Size in bytes of a lane of tensor memory.
_LANE_BYTES = COLUMNS * 4
# Number of lanes that each warp of a warpgroup can access.
_WARP_LANES = 32
#: `.kind` of the instruction -> type number in the instruction descriptor -> element type of A or
#: B.
_TYPES = {
    "f16": {0: "f16", 1: "bf16"}, "tf32": {2: "tf32"}, "f8f6f4": {0: "e4m3", 1: "e5m2"},
    "i8": {0: "u8", 1: "s8"},
}  # fmt: skip


class TensorMemory:
    """The tensor memory of a block, with its free columns and its last product."""

    words: Array
    region: Region
    free: Array

    def __init__(self, block: Any) -> None:
        self.words = np.zeros((LANES, COLUMNS), np.uint32)
        self.region = Region(0, self.words.reshape(-1).view(np.uint8), "tensor memory", True)
        self.free = np.ones(COLUMNS, np.bool_)
        # The product that was issued last. Each product waits for the previous product, because
        # products happen in the order of their issue.
        self.last: Any = None
        # `clocks`: thread -> clock of the thread's next commit. `agents`: thread -> number of the
        # agent in `Order` for the thread's products.
        self.clocks: dict[int, int] = defaultdict(lambda: 1)
        self.agents: dict[int, int] = {}
        self.block = block

    def agent(self, order: Any, thread: int) -> int:
        """Return the agent in `Order` for the products that a thread issues."""
        if thread not in self.agents:
            self.agents[thread] = order.add_agent("tcgen05", self.block, "tcgen05.mma")
        return self.agents[thread]


def tensor_memory(block: Any) -> TensorMemory:
    """Return the tensor memory of a block; the first call creates it."""
    found: TensorMemory | None = getattr(block, "tensor_memory", None)
    if found is None:
        found = block.tensor_memory = TensorMemory(block)
    return found


def _blocks(g: Any, code: Instruction) -> list[Any]:
    """Return the blocks of an instruction: one block, or two blocks with cta_group::2."""
    if "cta_group::2" not in code.opcode:
        return [g.block]
    # A pair is two blocks whose ranks differ only in the lowest bit.
    first = g.block.rank & ~1
    found: list[Any] = g.block.cluster.blocks[first : first + 2]
    return found


# -- allocation ------------------------------------------------------------------------------------


@operation("tcgen05.alloc")
def _alloc(code: Instruction) -> Operation:
    def run(g: Any, mask: Array | None, address: Any, count: Any) -> None:
        number = int(np.max(count))
        at = np.broadcast_to(address, g.n)
        if number not in (32, 64, 128, 256, 512):
            g.machine.fault(
                g, "TMEM_COLUMNS", f"{number} columns of tensor memory are allocated",
                "allocate 32, 64, 128, 256 or 512",
            )  # fmt: skip
        memory = tensor_memory(g.block)
        starts = [c for c in range(0, COLUMNS, number) if memory.free[c : c + number].all()]
        if not starts:
            g.machine.fault(
                g, "TMEM_FULL", f"{number} columns of tensor memory are allocated; fewer are free",
                "tcgen05.dealloc what is not used any more",
            )  # fmt: skip
        memory.free[starts[0] : starts[0] + number] = False
        # The instruction writes the address of the allocated columns to shared memory. Let only the
        # first thread of the group write, so that the write is recorded once.
        one = np.zeros(g.n, np.bool_)
        one[0] = True
        value = np.full(g.n, starts[0], np.uint32)
        g.machine.memory.store(g, one, "shared", at, 4, [value], "weak")

    return Operation(run, needs_warp=True)


@operation("tcgen05.dealloc")
def _dealloc(code: Instruction) -> Operation:
    def run(g: Any, mask: Array | None, address: Any, count: Any) -> None:
        first = int(np.max(address)) & 0xFFFF
        tensor_memory(g.block).free[first : first + int(np.max(count))] = True

    return Operation(run, needs_warp=True)


@operation(
    "tcgen05.relinquish_alloc_permit",
    "tcgen05.fence::before_thread_sync",
    "tcgen05.fence::after_thread_sync",
)
def _nothing(code: Instruction) -> Operation:
    """Do nothing: in the simulator, tcgen05.commit and its mbarrier order tensor memory."""
    return Operation(lambda g, mask: None)


@operation("tcgen05.wait::ld", "tcgen05.wait::st")
def _wait(code: Instruction) -> Operation:
    """Do nothing, because the simulator completes loads and stores of tensor memory at issue."""
    return Operation(lambda g, mask: None, needs_warp=True)


# -- loads and stores ------------------------------------------------------------------------------

# For example "tcgen05.ld.sync.aligned.32x32b.x16.b32", where 16 is the number of columns.
_SHAPE = re.compile(r"tcgen05\.(?:ld|st)\.sync\.aligned\.32x32b\.x(\d+)\.b32$")


def _places(g: Any, address: Any, count: int) -> tuple[Array, Array]:
    """Return (first column, lane) in tensor memory for each thread of a group."""
    # An address has the lane in its upper 16 bits and the column in its lower 16 bits.
    at = np.broadcast_to(address, g.n).astype(np.int64)
    lanes = g.lanes % LANES
    wrong = (at >> 16) // _WARP_LANES != lanes // _WARP_LANES
    columns = at & 0xFFFF
    if wrong.any() or int(columns.max()) + count > COLUMNS:
        where = wrong.argmax() if wrong.any() else columns.argmax()
        g.machine.fault(
            g, "TMEM_LANES",
            f"a warp accesses tensor memory at {int(at[where]):#x}: warp n of a warpgroup has the "
            f"lanes 32 n to 32 n + 31, and there are {COLUMNS} columns",
            "add (warp % 4) * 32 << 16 to the address", lanes=g.lanes[where : where + 1],
        )  # fmt: skip
    return columns, lanes


def _note(g: Any, columns: Array, lanes: Array, count: int, write: bool) -> None:
    order = g.machine.order
    if order is not None:
        offsets = lanes * _LANE_BYTES + columns * 4
        region = tensor_memory(g.block).region
        order.access(g, None, region, offsets, 4 * count, write=write)


@operation("tcgen05.ld")
def _load(code: Instruction) -> Operation | None:
    found = _SHAPE.match(code.opcode)
    if found is None:
        return None
    count = int(found[1])

    def run(g: Any, mask: Array | None, address: Any) -> tuple[Array, ...]:
        columns, lanes = _places(g, address, count)
        _note(g, columns, lanes, count, False)
        words = tensor_memory(g.block).words
        return tuple(words[lanes, columns + n] for n in range(count))

    return Operation(run, destinations=1, needs_warp=True)


@operation("tcgen05.st")
def _store(code: Instruction) -> Operation | None:
    found = _SHAPE.match(code.opcode)
    if found is None:
        return None
    count = int(found[1])

    def run(g: Any, mask: Array | None, address: Any, values: Any) -> None:
        columns, lanes = _places(g, address, count)
        _note(g, columns, lanes, count, True)
        words = tensor_memory(g.block).words
        for n, value in enumerate(values if isinstance(values, tuple) else (values,)):
            words[lanes, columns + n] = value

    return Operation(run, needs_warp=True)


# -- products --------------------------------------------------------------------------------------


class _Product(Pending):
    """A pending tcgen05.mma; it reads shared memory when it happens, not when it is issued."""

    def __init__(self, g: Any, act: Any, after: list[Any]) -> None:
        super().__init__(g, "a tcgen05.mma", after)
        self._act = act

    def happen(self) -> None:
        self._act()


def _rows(m: int) -> Array:
    """Return the tensor memory lane of each of the `m` rows of one block's accumulator."""
    row = np.arange(m)
    return row if m == LANES else row // 16 * _WARP_LANES + row % 16


def _operand(block: Any, value: int, element: Element, major: int, mn: int, k: int) -> Any:
    size = element.bits // 8
    name = "MN" if major else "K"
    addresses = operand_addresses("tcgen05", value, name, mn, k, size)
    return addresses


@operation("tcgen05.mma")
def _mma(code: Instruction) -> Operation | None:
    found = re.match(r"tcgen05\.mma\.cta_group::([12])\.kind::(f16|tf32|f8f6f4|i8)$", code.opcode)
    if found is None:
        return None
    pair, kind = found[1] == "2", found[2]

    def run(
        g: Any, mask: Array | None, d: Any, a: Any, b: Any, instruction: Any, add: Any, *rest: Any
    ) -> None:
        lane = 0 if mask is None else int(mask.argmax())
        number = _of(instruction, lane)
        # Bits of the instruction descriptor (PTX ISA 9.0, 9.7.16): bits 4-5 are the type of D, 7-9
        # the type of A, 10-12 the type of B, 13 negates A, 14 negates B, 15 transposes A, 16
        # transposes B, 17-22 are N / 8, and 24-28 are M / 16.
        n, m = (number >> 17 & 63) * 8, (number >> 24 & 31) * 16
        names = [_TYPES[kind].get(number >> at & 7) for at in (7, 10)]
        sums_f32 = number >> 4 & 3 == (2 if kind == "i8" else 1)
        per_block = m // 2 if pair else m
        known = all(name is not None for name in names) and sums_f32
        if rest or not known or per_block not in ((128,) if pair else (64, 128)) or not n:
            g.machine.unknown(
                g, code, f"instruction descriptor {number:#x}: m {m}, n {n}, types {names}"
            )
        types = [ELEMENTS[str(name)] for name in names]
        k = K_BYTES * 8 // types[0].bits
        column = _of(d, lane) & 0xFFFF
        from_tensor_memory = "[" in code.split()[1]
        if from_tensor_memory:
            g.machine.unknown(g, code, "A from tensor memory")
        blocks = _blocks(g, code)
        # Each entry is (block, 0 for A or 1 for B, addresses of the elements). The order is A and B
        # of the first block, then A and B of the second block.
        reads = [
            (block, i, _operand(block, _of(v, lane), types[i], number >> 15 + i & 1, rows, k))
            for block in blocks
            for i, (v, rows) in enumerate(((a, per_block), (b, n // len(blocks))))
        ]
        adds, signs = bool(_of(add, lane)), (number >> 13 & 1, number >> 14 & 1)
        thread = int(g.lanes[lane])
        order = g.machine.order
        # Record all reads and the write in `Order` now, at the issue. `act` computes the product
        # later, when the event happens.
        for block, i, addresses in reads:
            if int(addresses.max()) + types[i].bits // 8 > len(block.smem):
                g.machine.fault(
                    g, "ILLEGAL_ADDRESS",
                    f"tcgen05.mma reads shared memory up to {int(addresses.max()):#x}; the block "
                    f"has {len(block.smem):#x} bytes",
                    "correct the matrix descriptor: tma.matrix_descriptor(map, "
                    "instruction='tcgen05') prints its fields",
                )  # fmt: skip
            if order is not None:
                memory = tensor_memory(g.block)
                units = order.units(block, np.unique(addresses // 16) * 16, 16)
                agent, clock = memory.agent(order, thread), memory.clocks[thread]
                order.async_read(g, g.lanes[lane : lane + 1], block, units, agent, clock)
        if order is not None:
            memory = tensor_memory(g.block)
            agent, clock = memory.agent(order, thread), memory.clocks[thread]
            for block in blocks:
                region = tensor_memory(block).region
                starts = _rows(per_block) * _LANE_BYTES + column * 4
                # The hardware executes the products on the same accumulator in order, so their
                # writes do not race. Record the writes as atomic, because `Order` reports no race
                # between two atomic writes.
                where = order.units(region, starts, 4 * n)
                order.async_write(
                    g, g.lanes[lane : lane + 1], region, where, agent, clock, atomic=True
                )

        def act() -> None:
            parts = [
                types[i].numbers(
                    block.smem[: len(block.smem) // 8 * 8].view(WORD[types[i].bits])[
                        addresses // (types[i].bits // 8)
                    ]
                )
                for block, i, addresses in reads
            ]
            # `right` is the transpose of B, an array (k, n). Each block has a part of the n rows of
            # B in shared memory, but each block multiplies its rows of A by all of B.
            right = np.concatenate(parts[1::2]).T
            for block, left in zip(blocks, parts[::2], strict=True):
                product = left.astype(right.dtype) @ right
                # If A and B are both negated, the negations cancel.
                if signs[0] != signs[1]:
                    product = -product
                words = tensor_memory(block).words
                rows = _rows(per_block)
                dtype = np.int32 if kind == "i8" else np.float32
                here = words[:, column : column + n]
                total = product + here[rows].view(dtype) if adds else product
                here[rows] = np.ascontiguousarray(total.astype(dtype)).view(np.uint32)

        memory = tensor_memory(g.block)
        last = memory.last
        memory.last = _Product(g, act, [last] if last is not None and not last.happened else [])
        g.machine.add(memory.last)

    return Operation(run)


def _of(value: Any, lane: int) -> int:
    return int(value) if np.ndim(value) == 0 else int(value[lane])


class _Commit(Pending):
    """Arrival of a tcgen05.commit; it happens when all earlier products are complete."""

    def __init__(self, g: Any, arrive: Any, after: list[Any]) -> None:
        super().__init__(g, "a tcgen05.commit", after)
        self._arrive = arrive

    def happen(self) -> None:
        self._arrive()


@operation("tcgen05.commit")
def _commit(code: Instruction) -> Operation:
    multicast = "multicast::cluster" in code.opcode

    def run(g: Any, mask: Array | None, address: Any, blocks: Any = None) -> None:
        lane = 0 if mask is None else int(mask.argmax())
        lanes = g.lanes[lane : lane + 1]
        where = _of(address, lane)
        # Without multicast, the barrier is in the block whose rank the address contains.
        ranks = [place_of(g, where, lanes)[0].rank]
        if multicast:
            bits = _of(blocks, lane)
            ranks = [r for r in range(len(g.block.cluster.blocks)) if bits >> r & 1]
        barriers = [barrier_at(g, rank << 24 | where & OFFSET_MASK, lanes) for rank in ranks]
        order, memory, thread = g.machine.order, tensor_memory(g.block), int(lanes[0])
        clocks = None
        if order is not None:
            agent, clock = memory.agent(order, thread), memory.clocks[thread]
            memory.clocks[thread] += 1
            clocks = order.publish(order.slots_at(g.block, lanes), relaxed=True)
            clocks = order.completed(clocks, agent, clock)

        def arrive() -> None:
            for barrier in barriers:
                check_arrivals(g, barrier, 1, lanes)
                barrier.arrive(1, clocks)

        last = memory.last
        after = [last] if last is not None and not last.happened else []
        g.machine.add(_Commit(g, arrive, after))

    return Operation(run)
