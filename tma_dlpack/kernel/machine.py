"""The engine of the simulator, which runs groups of threads under a schedule.

A group is a set of threads of one block with the same program counter. If some threads take a
branch and others do not, the group is split into parts. The parts are merged at the branch's
immediate post-dominator. They are also merged before an instruction that a whole warp must execute
together. If nothing else can run, a part continues alone, because Volta and later GPUs do not
require that the threads of a warp reconverge. An asynchronous event, such as the arrival of a copy,
stays in `pending` until it happens. The schedule decides when it happens:

- *late*: an event happens only when every group waits, or polls without progress;
- *early*: an event happens immediately;
- *random*: events happen at random times, in an order that `seed` determines.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cached_property
from operator import eq
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel import barriers, copies, matrix, mbarrier, tcgen05, warps  # noqa: F401
from tma_dlpack.kernel.accumulators import follow
from tma_dlpack.kernel.arguments import HANDLE, parameters_of
from tma_dlpack.kernel.core import tma
from tma_dlpack.kernel.findings import Findings
from tma_dlpack.kernel.memory import Memory, Region
from tma_dlpack.kernel.operands import operands_of
from tma_dlpack.kernel.order import Order
from tma_dlpack.kernel.program import WARPGROUP_WARPS, Code, Program, program_of
from tma_dlpack.kernel.threads import FIRST_SHARED, WARP, Cluster, Group, Join
from tma_dlpack.kernel.timeline import Timeline
from tma_dlpack.ptx.parse import Instruction

Array = npt.NDArray[Any]
Three = tuple[int, int, int]
# Alignment in bytes that a tile needs in shared memory. If a variable has at least TILE_ALIGN bytes
# but declares a smaller alignment, its offset is chosen so that it is not a multiple of TILE_ALIGN.
# Then every run reports the missing __align__.
TILE_ALIGN = 128
# Minimum size in bytes of a thread's local memory if the kernel has local variables.
LOCAL_BYTES = 1 << 14
# Size in bytes of a thread's local memory if the kernel has no local variables.
NO_LOCALS = 16
# Maximum number of consecutive instructions whose effects no other thread can see. After more such
# instructions, the run ends with the finding ENDLESS_LOOP.
QUIET_STEPS = 3_000_000
# Maximum number of such instructions while all groups wait or poll. After more, the kernel hangs.
POLL_STEPS = 500_000
# If no group can run, and only the time can end a poll, the time jumps by 1, 2, 4, ... up to
# 2**(TIME_JUMPS - 1) steps. The sum is less than 2**63, so it does not overflow a signed number.
TIME_JUMPS = 62
# If no group can run, a jump of the time follows at the latest after this number of polls.
JUMP_POLLS = 256
# Number of basic blocks that a group runs before another group runs.
TURN = 200
# Maximum number of clusters that run at the same time in a random schedule.
RESIDENT = 3
# Mangled name of the table of tma_dlpack_check.h in shared memory. The header reads entries before
# they are written, and without a barrier, because it finds out whether it has written an entry.
CHECK_TABLE = re.compile(r"_ZZN10tma_dlpack\w*6detail5tableEvE3all")
# Address of the first function. Memory regions have larger addresses.
FUNCTIONS = 0x100


class FaultError(Exception):
    """Exception that ends a run; it is raised after the error has been added to `Findings`."""


class Machine:
    """A launch: its memory, clusters, pending events and findings."""

    program: Program
    kernel: str
    target: str
    grid: Three
    block: Three
    cluster: Three
    smem_bytes: int
    clusters: tuple[int, int, int]
    code: Code
    findings: Any
    timeline: Any
    maps: dict[bytes, tma.TensorMap]
    order: Order | None
    memory: Memory
    random: random.Random
    steps: int
    progress: int
    parameters: Array
    smem_size: int
    local_size: int

    def __init__(
        self, program: Program, kernel: str, grid: Three, block: Three, cluster: Three,
        smem_bytes: int, parameters: bytes, regions: list[Region], maps: dict[bytes, tma.TensorMap],
        seed: int, schedule: int, max_steps: int | None, order: bool, target: str,
        findings: Any, timeline: Any,
    ) -> None:  # fmt: skip
        self.program, self.kernel, self.target = program, kernel, target
        self.grid, self.block, self.cluster, self.smem_bytes = grid, block, cluster, smem_bytes
        x, y, z = (g // c for g, c in zip(grid, cluster, strict=True))
        self.clusters = x, y, z
        self.code = program.code(kernel)
        self.findings, self.timeline = findings, timeline
        self.maps = dict(maps)
        opcodes = {code.opcode for f in program.functions.values() for code in f.code}
        self.order = Order(findings, opcodes) if order else None
        self.memory = Memory(self, regions)
        self.schedule = ("late", "early")[schedule] if schedule < 2 else "random"
        self.random = random.Random(f"{seed}/{schedule}")
        self.max_steps = max_steps
        self.steps = self.progress = 0
        # `progress` counts the effects that other threads can see. This tuple has the values of
        # `steps` and `progress` when `progress` last changed.
        self._quiet_since = (0, 0)
        # Value of %globaltimer and %clock minus `steps`.
        self.skipped = 0
        # `_poll_again` keeps these values while `progress` has the first value: `steps` when it
        # first ran, how often it ran, the number of jumps of the time, and a saved state.
        self._polled: tuple[int, int, int, int, list[int]] = (-1, 0, 0, 0, [])
        self.pending: list[Any] = []
        self.printed: list[str] = []
        # `ready` has the groups that can run. `asleep` has the groups that wait, or that poll
        # without progress.
        self.ready: list[Group] = []
        self.asleep: list[Group] = []
        self.active: list[Cluster] = []
        self._lay_out(parameters)
        self._waiting_clusters = iter(
            [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
        )
        self._more = True

    def _lay_out(self, parameters: bytes) -> None:
        """Allocate memory for parameters and variables, and store their addresses by name."""
        region = self.memory.variable(parameters or bytes(1), 128, "the parameters", False)
        self.parameters, self.parameters_first = region.raw, np.uint64(region.first)
        self.addresses: dict[str, Any] = {}
        self.parameter_places: dict[str, int] = {}
        at = 0
        for parameter in parameters_of(self.code.function.header):
            at += -at % parameter.align
            self.parameter_places[parameter.name] = at
            self.addresses[parameter.name] = np.uint64(region.first + at)
            at += parameter.size
        functions, variables = self.program.used(self.kernel)
        self.function_names: dict[int, str] = {}
        for number, name in enumerate(functions):
            # Translate all functions before the run, because the register tables need rows for the
            # registers of all functions.
            self.program.code(name)
            address = FUNCTIONS + 16 * number
            self.function_names[address] = name
            self.addresses[name] = np.uint64(address)
        offset, local = FIRST_SHARED, 0
        self.shared_offsets: dict[str, int] = {}
        # Offsets of the table of tma_dlpack_check.h in shared memory.
        self.check_table = range(0)
        dynamic, made = [], []
        for variable in variables:
            if variable.space == "shared":
                if variable.is_extern:
                    dynamic.append(variable)
                    continue
                offset += -offset % variable.align
                # The variable may be a tile. Make its offset a multiple of the declared alignment,
                # but not of TILE_ALIGN.
                if variable.align < TILE_ALIGN <= variable.size:
                    offset += (variable.align - offset) % TILE_ALIGN
                self.shared_offsets[variable.name] = offset
                if CHECK_TABLE.fullmatch(variable.name):
                    self.check_table = range(offset, offset + variable.size)
                offset += variable.size
            elif variable.space == "local":
                local += -local % variable.align
                self.addresses[variable.name] = np.uint64(local)
                local += variable.size
            else:
                data = variable.initial.ljust(max(variable.size, 1), b"\0")
                writable = variable.space == "global"
                placed = self.memory.variable(data, variable.align, variable.name, writable)
                self.addresses[variable.name] = np.uint64(placed.first)
                made.append((variable, placed))
        for variable, placed in made:
            for byte, symbol, extra in variable.pointers:
                # The initial value of a variable may contain the address of another variable. So
                # write these values after all variables have addresses.
                value = int(self.addresses.get(symbol, 0)) + extra
                placed.raw[byte : byte + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
        if self.check_table and any(data.startswith(HANDLE) for data in self.maps):
            raise tma.TmaUnsupportedError(
                "a kernel that is compiled with TMA_DLPACK_CHECK reads the bytes of its maps, and "
                "the bytes of a map among its arguments are not known on this machine; compile "
                "without TMA_DLPACK_CHECK, or run the kernel with backend='cuda'"
            )
        align = max([16, *(v.align for v in dynamic)])
        if dynamic:
            offset += -offset % align
        for variable in dynamic:
            self.shared_offsets[variable.name] = offset
        # Shared memory has the static variables first, then the dynamic memory. Round the total
        # size up to 16 bytes.
        self.smem_size = offset + self.smem_bytes + (-(offset + self.smem_bytes) % 16)
        self.local_size = max(LOCAL_BYTES if local else NO_LOCALS, local + 16)
        self.local_size += -self.local_size % 16

    # -- asynchronous events ---------------------------------------------------------------------

    def add(self, pending: Any) -> None:
        """Add an asynchronous event; the schedule decides when it happens."""
        self.pending.append(pending)
        if self.schedule == "early":
            self._settle_all()

    def _settle_all(self) -> None:
        while self.happen(first=True):
            pass

    def happen(self, first: bool = False) -> bool:
        """Let one pending event happen; return False if no pending event can happen."""
        free = [p for p in self.pending if all(q.happened for q in p.after)]
        if not free:
            return False
        chosen = free[0] if first or self.schedule != "random" else self.random.choice(free)
        self.pending.remove(chosen)
        chosen.happen()
        # A load that has written only a part of its bytes adds itself to `pending` again.
        if chosen not in self.pending:
            chosen.happened = True
        self.progress += 1
        return True

    # -- the end ---------------------------------------------------------------------------------

    def fault(self, g: Any, rule: str, message: str, fix: str, lanes: Any = None) -> None:
        """Report an error that would end the kernel on hardware, and end the simulator's run."""
        self.findings.add(rule, "error", message, fix, g=g, lanes=lanes)
        raise FaultError(message)

    def unknown(self, g: Any, code: Any, why: str) -> None:
        """End the run at an instruction that the simulator cannot execute."""
        raise tma.TmaUnsupportedError(
            f"the simulator does not know the instruction {code.opcode} (line {code.line} of the "
            f"PTX{f', {why}' if why else ''}); run the kernel with backend='cuda'"
        )

    # -- running ---------------------------------------------------------------------------------

    def awake(self, group: Group) -> None:
        """Add a group that can run."""
        self.ready.append(group)

    def run(self) -> None:
        """Run the grid to its end, to an error, or to a hang."""
        try:
            with np.errstate(all="ignore"):
                self._start_cluster()
                while self.active or self._more:
                    if not self._turn():
                        break
                self._finish()
        except FaultError:
            pass

    def _finish(self) -> None:
        """Complete all pending events, because a grid ends only after its stores are complete."""
        while self.happen(first=True):
            pass

    def _start_cluster(self) -> bool:
        place = next(self._waiting_clusters, None)
        if place is None:
            self._more = False
            return False
        cluster = Cluster(self, place)
        self.active.append(cluster)
        for block in cluster.blocks:
            group = Group(block, np.arange(block.threads), 0, self.code)
            block.groups.append(group)
            self.awake(group)
        return True

    def _turn(self) -> bool:
        """Let one group run or one event happen; return False if the grid has ended or hangs."""
        self._retire()
        if not self.active:
            if self._more:
                self._start_cluster()
            return bool(self.active)
        is_random = self.schedule == "random"
        if is_random:
            # In a random schedule, clusters overlap, and events may happen while groups can run.
            if self._more and len(self.active) < RESIDENT and self.random.random() < 0.1:
                self._start_cluster()
            if self.pending and self.random.random() < 0.3:
                self.happen()
        if not self.ready:
            self._wake()
        if self.ready:
            at = self.random.randrange(len(self.ready)) if is_random else 0
            group = self.ready.pop(at)
            self._run_group(group, self.random.randrange(1, 20) if is_random else TURN)
            return True
        # No group can run. Try, in this order: release a join, let an event happen, let gated
        # threads continue that miss no other thread, poll again, let a part of a warp run alone,
        # start another cluster. If none of these steps is possible, the kernel hangs.
        if self._release_join() or self.happen() or self._gather_again():
            return True
        if self._poll_again() or self._release_gate():
            return True
        if self._more and self._start_cluster():
            return True
        if self.active:
            self.findings.hang(self)
        return False

    def _retire(self) -> None:
        if all(not cluster.ended for cluster in self.active):
            return
        gone = [cluster for cluster in self.active if cluster.ended]
        self.active = [cluster for cluster in self.active if not cluster.ended]
        # A pending copy may still read the shared memory of an ended block. So remove the agents of
        # ended blocks only if no event is pending.
        if self.order is not None and not self.pending:
            self.order.retire([block for cluster in gone for block in cluster.blocks])

    def _wake(self) -> None:
        """Move groups to `ready` if their wait is over or if their next poll may succeed."""
        still = []
        for group in self.asleep:
            if group.wait is not None:
                if not group.waits():
                    self.ready.append(group)
                    continue
            elif group.seen != self.progress:
                group.polls.clear()
                self.ready.append(group)
                continue
            still.append(group)
        self.asleep = still

    def _gather_again(self) -> bool:
        """Let gated threads continue that miss no other thread; return False if there are none."""
        for group in self._gated():
            # Since the group was gated, threads may have ended, and a join that kept groups apart
            # may have been released.
            if group.gated and self._gathered(group):
                group.gated = False
                self.ready.append(group)
                return True
        for group in self._gated():
            # Some threads wait only because other threads of their group miss threads.
            free = ~self._misses(group)
            if free.any():
                part = group.split(free, group.pc)
                part.passes = part.pc
                return True
        return False

    def _gated(self) -> list[Group]:
        return [
            group
            for cluster in self.active
            for block in cluster.blocks
            for group in block.groups
            if group.gated
        ]

    def _poll_again(self) -> bool:
        """Let the sleeping groups poll again, because a kernel may poll a limited number of times.

        Return False if no group polls, or if the groups seem to poll forever: their registers have
        the same values again although the time moves, or they have polled for POLL_STEPS.
        """
        groups = [group for group in self.asleep if group.wait is None]
        progress, begin, count, jumps, saved = self._polled
        if progress != self.progress:
            begin, count, jumps, saved = self.steps, 0, 0, []
        if not groups or self.steps - begin > POLL_STEPS:
            return False
        count += 1
        repeats = bool(saved) and all(map(eq, self._poll_state(groups), saved))
        # Save the state after 1, 2, 4, ... polls, so that a cycle of any length is found.
        if not count & (count - 1):
            saved = list(self._poll_state(groups))
        if repeats or not count % JUMP_POLLS:
            if self._more and self._start_cluster():
                return True
            if self._timed and jumps < TIME_JUMPS:
                self.skipped += 1 << jumps
            elif repeats:
                return False
            jumps += 1
        self._polled = self.progress, begin, count, jumps, saved
        for group in groups:
            group.polls = {group.pc: group.polls[group.pc]}
            self.ready.append(group)
        self.asleep = [group for group in self.asleep if group.wait is not None]
        return True

    def _poll_state(self, groups: list[Group]) -> Iterator[int]:
        """Yield hashes of the polling groups' state, without values that depend on the time."""
        yield len(groups)
        for group in groups:
            block = group.block
            yield hash((block.ctaid, group.pc, len(group.frames), group.lanes.tobytes()))
            for name, rows in self._timeless.items():
                yield hash(getattr(block, name)[:, group.index][rows].tobytes())
            if self.local_size > NO_LOCALS:
                yield hash(block.local[group.index].tobytes())

    @cached_property
    def _timed(self) -> set[tuple[str, int]]:
        return self.program.timed(self.kernel)

    @cached_property
    def _timeless(self) -> dict[str, Array]:
        """Table of registers -> rows of the registers whose values do not depend on the time."""
        found = {name: np.ones(self.program.slots[name], np.bool_) for name in "WDHP"}
        for name, slot in self._timed:
            found[name][slot] = False
        return found

    def _release_join(self) -> bool:
        """Let the groups that wait at a join continue; return False if no group waits at a join.

        The groups continue without the threads that have not reached the join.
        """
        for cluster in self.active:
            for block in cluster.blocks:
                if block.parked:
                    self._merge(block.parked[-1])
                    return True
        return False

    def _release_gate(self) -> bool:
        """Let a part of a warp execute an instruction that a whole warp should execute.

        This is the last resort: nothing else can run, so the warp's other lanes cannot arrive any
        more.
        """
        for group in self._gated():
            group.gated, group.passes = False, group.pc
            self.ready.append(group)
            return True
        return False

    def _merge(self, join: Join) -> None:
        """Merge the groups that wait at a join into one group, which continues."""
        first, *others = join.waiting
        join.waiting, join.released = [], True
        if join in first.block.parked:
            first.block.parked.remove(join)
        for other in others:
            self._absorb(first, other)
        if not self._parks(first):
            self.ready.append(first)

    def _absorb(self, first: Group, other: Group) -> None:
        first.set_lanes(np.sort(np.concatenate([first.lanes, other.lanes])))
        if other in other.block.groups:
            other.block.groups.remove(other)
        other.done = True

    def _parks(self, group: Group) -> bool:
        """Return whether a group must stop at its join.

        If all expected threads have reached the join, merge their groups.
        """
        while group.joins:
            join = group.joins[-1]
            # If the group has returned from the function that has the join, it will never reach the
            # join.
            if len(group.frames) < join.depth:
                group.joins.pop()
                self._less(join, group.n)
                continue
            if group.pc != join.pc or len(group.frames) != join.depth:
                return False
            group.joins.pop()
            if join.released:
                continue
            join.waiting.append(group)
            here = sum(g.n for g in join.waiting)
            if here >= join.expected:
                self._merge(join)
            elif join not in group.block.parked:
                group.block.parked.append(join)
            return True
        return False

    def _less(self, join: Join, n: int) -> None:
        """Expect `n` fewer threads at a join; merge the waiting groups if no thread is missing."""
        join.expected -= n
        if join.waiting and sum(g.n for g in join.waiting) >= join.expected:
            self._merge(join)

    def _run_group(self, group: Group, turns: int) -> None:
        # `Group.take_waits` may have created this group by a split. Its threads already wait.
        if group.wait is not None:
            self.asleep.append(group)
            return
        for _ in range(turns):
            blocks = group.function.blocks
            pc = group.pc
            if group.joins and self._parks(group):
                return
            # At the end of a function's code, the program counter becomes -1 or -2: -1 returns from
            # the function, and -2 ends the threads.
            if pc >= len(blocks):
                pc = -1 if group.frames else -2
            if pc < 0:
                if pc == -1 and group.frames:
                    group.returns()
                    continue
                self._end_threads(group)
                return
            block = blocks[pc]
            if block.is_gate and not self._gathered(group):
                return
            self.steps += len(block.code)
            # Check the block's uses of wgmma accumulators before the block changes registers.
            if block.steps and self.order is not None:
                follow(group, block.steps)
            group.pc = block.run(group, group.block)
            if group._waits:
                group.take_waits()
            if group.waits():
                self.asleep.append(group)
                return
            if group.poll and self._sleeps(group):
                return
            self._check_steps(group)
        self.ready.append(group)

    def _sleeps(self, group: Group) -> bool:
        """Let a group sleep if it polls twice at the same place without progress.

        Return whether the group sleeps.
        """
        polled, group.poll = group.poll, []
        if group.seen != self.progress:
            group.seen, group.polls = self.progress, {}
        sleeps = group.pc in group.polls
        group.polls[group.pc] = polled
        if sleeps:
            self.asleep.append(group)
        return sleeps

    def _check_steps(self, group: Group) -> None:
        if self.max_steps is not None and self.steps > self.max_steps:
            self._endless(group, f"{self.max_steps:,} steps were executed (max_steps)")
        if self._quiet_since[1] != self.progress:
            self._quiet_since = self.steps, self.progress
        elif self.steps - self._quiet_since[0] > QUIET_STEPS:
            self._endless(
                group, f"{QUIET_STEPS:,} instructions changed nothing that others can see"
            )

    def _endless(self, group: Group, why: str) -> None:
        block = group.function.blocks[min(max(group.pc, 0), len(group.function.blocks) - 1)]
        group.code = block.code[0]
        self.fault(
            group, "ENDLESS_LOOP", f"the kernel does not end: {why}",
            "look at the condition of the loop, or pass a larger max_steps=",
        )  # fmt: skip

    def _gathered(self, group: Group) -> bool:
        """Return whether a group has all threads that must execute its next instruction.

        If threads are missing, the group becomes *gated*: it waits until the other groups of its
        warps reach this instruction.
        """
        place = group.block
        if group.n == place.threads - place.exited:
            return True
        # If `passes` equals the group's program counter, `_release_gate` has allowed the group to
        # execute the instruction alone.
        if group.passes == group.pc:
            group.passes = -1
            return True
        group.joins = [join for join in group.joins if not join.released]
        mine = set((group.warps // WARPGROUP_WARPS).tolist())
        # If other groups of the same warpgroups are gated at the same instruction, merge them into
        # this group.
        for other in list(place.groups):
            same = other.pc == group.pc and len(other.frames) == len(group.frames)
            same = same and not mine.isdisjoint((other.warps // WARPGROUP_WARPS).tolist())
            rest = [join for join in other.joins if not join.released]
            if other is not group and other.gated and same and rest == group.joins:
                other.gated = False
                self._absorb(group, other)
        group.gated = bool(self._misses(group).any())
        return not group.gated

    def _misses(self, group: Group) -> Array:
        """Return for each thread of a group whether threads that it needs are not in the group.

        A thread needs the other threads that must execute the group's next instruction with it.
        """
        code, lanes = group.function.blocks[group.pc].code[0], group.lanes
        numbers = lanes // WARP
        # `absent` has one mask for each warp: bit l is set if lane l is missing in the group.
        absent = group.block.live_masks()
        np.bitwise_and.at(absent, numbers, ~(np.uint64(1) << (lanes % WARP).astype(np.uint64)))
        if code.opcode.startswith("wgmma"):
            # wgmma needs all four warps of each warpgroup.
            first = np.arange(0, len(absent), WARPGROUP_WARPS)
            absent = np.bitwise_or.reduceat(absent, first).repeat(WARPGROUP_WARPS)
        found: Array = (absent[numbers] & self._member_masks(group, code)) != 0
        return found

    def _member_masks(self, group: Group, code: Instruction) -> Any:
        """Return the member mask of an instruction: an array (threads,), or one mask for all."""
        every = np.uint64(0xFFFFFFFF)
        if ".aligned" in code.opcode:
            return every
        mask = operands_of(code)[-1]
        if isinstance(mask, int):
            return np.uint64(mask & 0xFFFFFFFF)
        place = self.program.register(group.function.function.name, mask.name)
        if place is None:
            return every
        return getattr(group.block, place[0])[place[1], group.lanes].astype(np.uint64) & every

    def _end_threads(self, group: Group) -> None:
        block = group.block
        block.exited += group.n
        block.end_lanes(group.lanes)
        group.done = True
        if group in block.groups:
            block.groups.remove(group)
        self.progress += 1
        for join in group.joins:
            self._less(join, group.n)
        if block.exited == block.threads:
            block.ended = True
            barriers.end_of_block(block)


def simulate(
    ptx: str, kernel: str, grid: Three, block: Three, parameters: bytes, regions: list[Region],
    *, cluster: Three = (1, 1, 1), smem_bytes: int = 0, seed: int = 0, schedule: int = 0,
    max_steps: int | None = None, order: bool = True,
    maps: dict[bytes, tma.TensorMap] | None = None, target: str = "sm_90",
) -> Machine:  # fmt: skip
    """Run a kernel under one schedule; return the `Machine`, which contains the findings."""
    machine = Machine(
        program_of(ptx), kernel, grid, block, cluster, smem_bytes, parameters, regions,
        maps or {}, seed, schedule, max_steps, order, target, Findings(kernel), Timeline(),
    )  # fmt: skip
    machine.run()
    return machine
