"""The engine: blocks of threads, groups that run together, and the schedule.

A group is threads of one block with the same program counter. A branch that its threads take both
ways splits it; the parts meet again at the branch's immediate post-dominator, or where a warp must
act together, unless everything else waits (threads of a warp need not reconverge, on Volta and
later). What is asynchronous waits in `pending` until the schedule lets it happen:

- *late*: only when every group waits, or polls without progress;
- *early*: at once;
- *random*: at random moments, in an order that `seed` chooses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel import barriers, copies, matrix, mbarrier, tcgen05, warps  # noqa: F401 # they register operations
from tma_dlpack.kernel.arguments import parameters_of
from tma_dlpack.kernel.core import TensorMap
from tma_dlpack.kernel.memory import RANK_SHIFT, UNSIGNED, Memory, Region
from tma_dlpack.kernel.operands import operands_of
from tma_dlpack.kernel.operations import Wait
from tma_dlpack.kernel.order import Order
from tma_dlpack.kernel.program import Code, CodeBlock, Program, program_of
from tma_dlpack.kernel.findings import Findings
from tma_dlpack.kernel.timeline import Timeline

Array = npt.NDArray[Any]
Three = tuple[int, int, int]

WARP = 32
FIRST_SHARED = 0x400  # the first KiB of shared memory is the system's on sm_90
LOCAL_BYTES = 1 << 14  # of a thread, at least
QUIET_STEPS = 3_000_000  # instructions without anything that another thread could see
TURN = 200  # blocks of code that a group runs before another has its turn
RESIDENT = 3  # clusters at once, in a random schedule


class Fault(Exception):
    """The run has ended as the hardware ends a kernel; the finding is noted."""


class Join:
    """Where the parts of a group meet again."""

    __slots__ = ("code", "depth", "expected", "pc", "released", "waiting")

    def __init__(self, pc: int, depth: int, expected: int) -> None:
        self.pc, self.depth, self.expected = pc, depth, expected
        self.waiting: list[Group] = []
        self.released = False


class Group:
    """Threads of a block that share a program counter; see the module."""

    def __init__(self, block: Block, lanes: Array, pc: int, code: Code) -> None:
        self.block, self.machine = block, block.machine
        self.pc, self.function = pc, code
        self.joins: list[Join] = []
        self.frames: list[tuple[Code, int, list[tuple[str, str]]]] = []
        self.code: Any = None
        self.wait: Wait | None = None
        self.poll: Any = None
        self.polls: set[Any] = set()  # places polled since the last progress
        self.seen = -1  # machine.progress at the last poll
        self.ready_after = 0
        self.deferred: list[tuple[Any, Any]] = []
        self.gated = False
        self.passes = -1  # a gate that it may pass alone, everything else being blocked
        self.done = False
        self._waits: list[tuple[Any, Wait]] = []
        self.set_lanes(lanes)

    def set_lanes(self, lanes: Array) -> None:
        """Set the threads, ascending."""
        self.lanes, self.n = lanes, len(lanes)
        first, last = int(lanes[0]), int(lanes[-1])
        self.index: Any = slice(first, last + 1) if last - first + 1 == self.n else lanes

    @property
    def warps(self) -> Array:
        """Numbers of the warps of which it has threads."""
        return np.unique(self.lanes // WARP)

    # -- called by translated blocks -------------------------------------------------------------

    def branch(self, guard: Any, taken: int, falls: int, join: int) -> int:
        """Return the next block; split where the threads disagree."""
        if np.ndim(guard) == 0:
            return taken if guard else falls
        if guard.all():
            return taken
        if not guard.any():
            return falls
        self.split(guard, taken, join)
        return falls

    def branch_to(self, index: Any, table: list[int], join: int) -> int:
        """Return the next block of a jump through a table."""
        choices = np.unique(np.broadcast_to(index, self.n))
        index = np.broadcast_to(index, self.n)
        for choice in choices[1:].tolist():
            here = index == choice
            self.split(here, table[choice], join)
            index = index[~here]
        return table[int(choices[0])]

    def split(self, away: Array, pc: int, join: int | None = None) -> Group:
        """Move the threads of a mask into a group of their own, which goes on at `pc`.

        The parts meet again at `join`, if that is given.
        """
        depth = len(self.frames)
        if join is not None and not (self.joins and (self.joins[-1].pc, self.joins[-1].depth) == (join, depth)):
            self.joins.append(Join(join, depth, self.n))
        other = Group(self.block, self.lanes[away], pc, self.function)
        other.joins, other.frames = list(self.joins), list(self.frames)
        other.code, other.polls, other.seen = self.code, set(self.polls), self.seen
        self.set_lanes(self.lanes[~away])
        self.block.groups.append(other)
        self.machine.awake(other)
        return other

    def leave(self, mask: Array | None, falls: int, join: int, ends: bool) -> int:
        """Return from a function, or end the threads."""
        if mask is None:
            return -2 if ends or not self.frames else -1
        if not mask.any():
            return falls
        other = self.split(mask, 0, join)
        other.pc = -2 if ends or not self.frames else -1
        return falls

    def call(self, code: Any, name: str, given: list[str], results: list[str], after: int) -> int:
        """Call a function of the module, or one of CUDA's runtime."""
        self.code = code
        builtin = _BUILTINS.get(name)
        if builtin is not None:
            builtin(self, given, results)
            return after
        program = self.machine.program
        if name not in program.functions:
            self.machine.unknown(self, code, f"the function {name}")
        callee = program.code(name)
        parameters = self.block.parameters
        formal = [n for n in callee.parameters if "retval" not in n]
        returned = [n for n in callee.parameters if "retval" in n]
        for inner, outer in zip(formal, given, strict=False):
            parameters[inner] = parameters[outer].copy()
        self.frames.append((self.function, after, list(zip(returned, results, strict=False))))
        self.function = callee
        return 0

    def later(self, result: Any, places: Any) -> None:
        """Write results now, or after the wait where they are known only then."""
        self.deferred.append((result, places))
        if self.wait is None and not self._waits:
            self.settle()

    def settle(self) -> None:
        """Write what was deferred."""
        for result, places in self.deferred:
            values = result() if callable(result) else result
            values = values if type(values) is tuple else (values,)
            for value, place in zip(values, places, strict=True):
                if place is not None:
                    table = getattr(self.block, place[0])
                    table[place[1], self.index] = value
        self.deferred = []

    def polled(self, key: Any) -> None:
        """Note that a thread has looked at something which had not changed."""
        self.poll = key

    def wait_for(self, waits: Sequence[tuple[Any, Wait]]) -> None:
        """Let threads wait; `waits` has the indices of threads of the group, and for what."""
        self._waits = [(self.lanes[at], wait) for at, wait in waits]

    def take_waits(self) -> None:
        """Turn the waits of an instruction into groups that wait."""
        waits, self._waits = self._waits, []
        covered = np.zeros(self.n, np.bool_)
        for lanes, _ in waits:
            covered |= np.isin(self.lanes, lanes)
        if len(waits) == 1 and covered.all():
            self.wait = waits[0][1]
            return
        for lanes, wait in waits:
            if len(lanes) == self.n:
                self.wait = wait
                return
            other = self.split(np.isin(self.lanes, lanes), self.pc)
            other.wait = wait


class Block:
    """A block of threads: its shared memory and registers."""

    def __init__(self, cluster: Cluster, ctaid: Three, rank: int) -> None:
        machine = cluster.machine
        self.machine, self.cluster, self.ctaid, self.rank = machine, cluster, ctaid, rank
        x, y, z = machine.block
        self.threads = x * y * z
        self.exited = 0
        self.ended = False
        number = np.arange(self.threads, dtype=np.uint32)
        zero = np.zeros(self.threads, np.uint32)
        self.tid = (number % x, number // x % y, number // (x * y), zero)
        self.laneid, self.warpid = number % WARP, number // WARP
        lane = self.laneid.astype(np.uint64)
        one = np.uint64(1)
        self.lanemask_eq = (one << lane).astype(np.uint32)
        self.lanemask_lt = ((one << lane) - one).astype(np.uint32)
        self.lanemask_le = ((one << lane + one) - one).astype(np.uint32)
        self.lanemask_gt = ~self.lanemask_le
        self.lanemask_ge = ~self.lanemask_lt
        self.smem = np.zeros(machine.smem_size, np.uint8)
        self._views: dict[int, Array] = {}
        self.local = np.zeros((self.threads, machine.local_size), np.uint8)
        self.parameters: dict[str, Array] = {}
        slots = machine.program.slots
        self.W = np.zeros((slots["W"], self.threads), np.uint32)
        self.D = np.zeros((slots["D"], self.threads), np.uint64)
        self.H = np.zeros((slots["H"], self.threads), np.uint16)
        self.P = np.zeros((slots["P"], self.threads), np.bool_)
        base = rank << RANK_SHIFT
        self.addresses = dict(machine.addresses)
        for name, offset in machine.shared_offsets.items():
            self.addresses[name] = np.uint64(base | offset)
        self.sync = barriers.BlockSync()
        order = machine.order
        count = -(-self.threads // WARP)
        self.warp_agents = order.add_warps(self, count) if order is not None else np.zeros(count)
        self.groups: list[Group] = []
        self.parked: list[Join] = []  # joins at which groups wait
        self._live = np.ones(count * WARP, np.bool_)
        self._live[self.threads :] = False

    def live_masks(self) -> Array:
        """Return the lanes of each warp that have not ended, as bits."""
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        masks: Array = (self._live.reshape(-1, WARP) * weights).sum(axis=1).astype(np.uint64)
        return masks

    def end_lanes(self, lanes: Array) -> None:
        """Note that threads have ended."""
        self._live[lanes] = False

    def smem_view(self, size: int) -> Array:
        """Return shared memory as elements of a size."""
        found = self._views.get(size)
        if found is None:
            whole = len(self.smem) // size * size
            found = self._views[size] = self.smem[:whole].view(UNSIGNED[size])
        return found

    def special(self, name: str, axis: int) -> Any:
        """Return a special register that all threads of the block share."""
        machine = self.machine
        per_axis = {
            "ntid": machine.block, "ctaid": self.ctaid, "nctaid": machine.grid,
            "clusterid": self.cluster.place, "nclusterid": machine.clusters,
            "cluster_nctaid": machine.cluster, "cluster_ctaid": self.place,
        }  # fmt: skip
        if name in per_axis:
            return np.uint32((*per_axis[name], 0)[axis])
        if name in ("clock", "globaltimer_lo"):
            return np.uint32(machine.steps & 0xFFFFFFFF)
        if name in ("clock64", "globaltimer"):
            return np.uint64(machine.steps)
        single = {
            "cluster_ctarank": self.rank, "cluster_nctarank": len(self.cluster.blocks),
            "is_explicit_cluster": int(machine.cluster != (1, 1, 1)), "smid": self.rank,
            "nsmid": 132, "nwarpid": 64, "gridid": 1, "clock_hi": 0, "globaltimer_hi": 0,
            "dynamic_smem_size": machine.smem_bytes,
            "total_smem_size": machine.smem_size - FIRST_SHARED,
            "aggr_smem_size": machine.smem_size,
        }  # fmt: skip
        if name not in single:
            raise KeyError(f"the special register %{name}")
        return np.uint32(single[name])

    @property
    def place(self) -> Three:
        """Its place in the cluster."""
        x, y, z = (c % n for c, n in zip(self.ctaid, self.machine.cluster, strict=True))
        return x, y, z

    # -- parameters ------------------------------------------------------------------------------

    def parameter(self, g: Group, name: str, offset: int, size: int, count: int) -> list[Any]:
        """Load a parameter: of the kernel, of a function, or what a call returned."""
        machine = self.machine
        place = machine.parameter_places.get(name)
        if place is not None:
            at = place + offset
            kind = UNSIGNED[size]
            values = machine.parameters[at : at + size * count].view(kind)
            return [kind(v) for v in values]
        array = self.parameters[name]
        part = np.ascontiguousarray(array[g.index, offset : offset + size * count])
        return list(part.view(UNSIGNED[size]).T)

    def set_parameter(
        self, g: Group, name: str, offset: int, size: int, values: tuple[Any, ...]
    ) -> None:
        """Store a parameter of a call, or a result."""
        end = offset + size * len(values)
        array = self.parameters.get(name)
        if array is None or array.shape[1] < end:
            larger = np.zeros((self.threads, end), np.uint8)
            if array is not None:
                larger[:, : array.shape[1]] = array
            array = self.parameters[name] = larger
        for n, value in enumerate(values):
            bits = np.broadcast_to(np.asarray(value, UNSIGNED[size]), g.n)
            at = offset + n * size
            array[g.index, at : at + size] = np.ascontiguousarray(bits).view(np.uint8).reshape(g.n, size)


class Cluster:
    """Blocks that share their shared memory; one block where there are no clusters."""

    def __init__(self, machine: Machine, place: Three) -> None:
        self.machine, self.place = machine, place
        self.blocks: list[Block] = []
        self.meeting = barriers.Meeting()
        cx, cy, cz = machine.cluster
        px, py, pz = place
        for z in range(cz):
            for y in range(cy):
                for x in range(cx):
                    ctaid = px * cx + x, py * cy + y, pz * cz + z
                    self.blocks.append(Block(self, ctaid, len(self.blocks)))

    @property
    def ended(self) -> bool:
        """Whether all threads have ended."""
        return all(block.ended for block in self.blocks)


class Machine:
    """A launch: its memory, clusters, what is pending, and what was found."""

    def __init__(
        self, program: Program, kernel: str, grid: Three, block: Three, cluster: Three,
        smem_bytes: int, parameters: bytes, regions: list[Region], maps: dict[bytes, TensorMap],
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
        self.order = Order(findings) if order else None
        self.memory = Memory(self, regions)
        self.schedule = ("late", "early")[schedule] if schedule < 2 else "random"
        self.random = random.Random(f"{seed}/{schedule}")
        self.max_steps = max_steps
        self.steps = self.progress = 0
        self._quiet_since = (0, 0)
        self.pending: list[Any] = []
        self.printed: list[str] = []
        self.ready: list[Group] = []
        self.asleep: list[Group] = []
        self.active: list[Cluster] = []
        self._lay_out(parameters)
        self._waiting_clusters = iter(
            [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
        )
        self._more = True

    def _lay_out(self, parameters: bytes) -> None:
        """Place parameters and variables; `addresses` has what names stand for."""
        region = self.memory.variable(parameters or bytes(1), 128, "the parameters", False)
        self.parameters = region.raw
        self.addresses: dict[str, Any] = {}
        self.parameter_places: dict[str, int] = {}
        at = 0
        for parameter in parameters_of(self.code.function.header):
            at += -at % parameter.align
            self.parameter_places[parameter.name] = at
            self.addresses[parameter.name] = np.uint64(region.first + at)
            at += parameter.size
        offset, local = FIRST_SHARED, 0
        self.shared_offsets: dict[str, int] = {}
        dynamic, made = [], []
        for variable in self.program.used_variables(self.kernel):
            if variable.space == "shared":
                if variable.is_extern:
                    dynamic.append(variable)
                    continue
                offset += -offset % variable.align
                self.shared_offsets[variable.name] = offset
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
                value = int(self.addresses.get(symbol, 0)) + extra
                placed.raw[byte : byte + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
        align = max([16, *(v.align for v in dynamic)])
        if dynamic:
            offset += -offset % align
        for variable in dynamic:
            self.shared_offsets[variable.name] = offset
        self.smem_size = offset + self.smem_bytes + (-(offset + self.smem_bytes) % 16)
        self.local_size = max(LOCAL_BYTES if local else 16, local + 16)
        self.local_size += -self.local_size % 16

    # -- what happens later ----------------------------------------------------------------------

    def add(self, pending: Any) -> None:
        """Let an asynchronous event happen when the schedule says so."""
        self.pending.append(pending)
        if self.schedule == "early":
            self._settle_all()

    def _settle_all(self) -> None:
        while self.happen(first=True):
            pass

    def happen(self, first: bool = False) -> bool:
        """Let one pending event happen; return whether there was one."""
        free = [p for p in self.pending if all(q.happened for q in p.after)]
        if not free:
            return False
        chosen = free[0] if first or self.schedule != "random" else self.random.choice(free)
        self.pending.remove(chosen)
        chosen.happen()
        if chosen not in self.pending:
            chosen.happened = True
        self.progress += 1
        return True

    # -- the end ---------------------------------------------------------------------------------

    def fault(self, g: Any, rule: str, message: str, fix: str, lanes: Any = None) -> None:
        """Note an error that ends the kernel, and end the run."""
        self.findings.add(rule, "error", message, fix, g=g, lanes=lanes)
        raise Fault(message)

    def unknown(self, g: Any, code: Any, why: str) -> None:
        """End the run at an instruction that no row knows."""
        from tma_dlpack.kernel.core import TmaUnsupportedError

        raise TmaUnsupportedError(
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
        except Fault:
            pass

    def _finish(self) -> None:
        """Let what is still pending happen: the memory of the grid is written at its end."""
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
        """Let one group run, or something else happen; False where the grid has ended or hangs."""
        self._retire()
        if not self.active:
            if self._more:
                self._start_cluster()
            return bool(self.active)
        is_random = self.schedule == "random"
        if is_random:
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
        if self._release_join() or self.happen() or self._release_gate():
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
        # copies out of the shared memory of a block that ended still read it
        if self.order is not None and not self.pending:
            self.order.retire([block for cluster in gone for block in cluster.blocks])

    def _wake(self) -> None:
        """Make the groups ready whose wait is over, or whose poll may have another answer."""
        still = []
        for group in self.asleep:
            if group.wait is not None:
                if group.wait.ready():
                    group.wait = None
                    group.settle()
                    self.ready.append(group)
                    continue
            elif group.seen != self.progress:
                group.polls.clear()
                self.ready.append(group)
                continue
            still.append(group)
        self.asleep = still

    def _release_join(self) -> bool:
        """Let groups that wait for others of their threads go on without them."""
        for cluster in self.active:
            for block in cluster.blocks:
                if block.parked:
                    self._merge(block.parked[-1])
                    return True
        return False

    def _release_gate(self) -> bool:
        """Let a part of a warp go on where the rest will not come; the order of last resort."""
        for cluster in self.active:
            for block in cluster.blocks:
                for group in block.groups:
                    if group.gated:
                        group.gated, group.passes = False, group.pc
                        self.ready.append(group)
                        return True
        return False

    def _merge(self, join: Join) -> None:
        """Make one group of those that wait at a join, and let it go on."""
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
        """Whether a group waits for others at its join; meets them where all have come."""
        while group.joins:
            join = group.joins[-1]
            if len(group.frames) < join.depth:  # it returned past the join
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
        """Expect fewer threads at a join; those that wait go on if none is missing."""
        join.expected -= n
        if join.waiting and not join.released:
            if sum(g.n for g in join.waiting) >= join.expected:
                self._merge(join)

    def _run_group(self, group: Group, turns: int) -> None:
        if group.wait is not None:  # a part of a group that was split where it waits
            self.asleep.append(group)
            return
        for _ in range(turns):
            blocks = group.function.blocks
            pc = group.pc
            if group.joins and self._parks(group):
                return
            if pc >= len(blocks):
                pc = -1 if group.frames else -2
            if pc < 0:
                if pc == -1 and group.frames:
                    function, after, results = group.frames.pop()
                    parameters = group.block.parameters
                    for inner, outer in results:
                        if inner in parameters:
                            parameters[outer] = parameters[inner].copy()
                    group.function, group.pc = function, after
                    continue
                self._end_threads(group)
                return
            block = blocks[pc]
            if block.is_gate and not self._gathered(group, block):
                return
            self.steps += len(block.code)
            group.pc = block.run(group, group.block)
            if group._waits:
                group.take_waits()
            if group.wait is not None:
                if group.wait.ready():
                    group.wait = None
                    group.settle()
                else:
                    self.asleep.append(group)
                    return
            if group.poll is not None and self._sleeps(group):
                return
            self._check_steps(group)
        self.ready.append(group)

    def _sleeps(self, group: Group) -> bool:
        """Whether a group polls what it has polled before, with nothing changed since."""
        group.poll = None
        if group.seen != self.progress:
            group.seen = self.progress
            group.polls = {group.pc}
            return False
        if group.pc not in group.polls:
            group.polls.add(group.pc)
            return False
        self.asleep.append(group)
        return True

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

    def _gathered(self, group: Group, block: CodeBlock) -> bool:
        """Whether a group has all the threads that execute an instruction together."""
        place = group.block
        if group.n == place.threads - place.exited:
            return True
        if group.passes == group.pc:
            group.passes = -1
            return True
        for other in list(place.groups):  # others that wait at the same place join in
            if other is not group and other.gated and other.pc == group.pc:
                if len(other.frames) == len(group.frames) and other.joins == group.joins:
                    other.gated = False
                    self._absorb(group, other)
        warps = group.warps
        members = self._member_masks(group, block)
        lanes = group.lanes
        have = np.zeros(len(warps), np.uint64)
        at = np.searchsorted(warps, lanes // WARP)
        np.bitwise_or.at(have, at, np.uint64(1) << (lanes % WARP).astype(np.uint64))
        live = place.live_masks()[warps]
        if not (live & members & ~have).any():
            return True
        group.gated = True
        return False

    def _member_masks(self, group: Group, block: CodeBlock) -> Any:
        """Return the lanes that an instruction wants of each warp of a group."""
        mask = self._member_mask(group, block)
        every = np.uint64(0xFFFFFFFF)
        if mask is None:
            return np.full(len(group.warps), every)
        return np.full(len(group.warps), np.uint64(mask) & every)

    def _member_mask(self, group: Group, block: CodeBlock) -> int | None:
        """Return the member mask of the instruction at the start of a block; None is the warp."""
        code = block.code[0]
        if ".aligned" in code.opcode:
            return None
        mask = operands_of(code)[-1]
        if isinstance(mask, int):
            return mask & 0xFFFFFFFF
        place = self.program.register(group.function.function.name, mask.name)
        if place is None:
            return None
        return int(getattr(group.block, place[0])[place[1], group.lanes[0]])

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


# -- functions of CUDA's runtime -------------------------------------------------------------------


def _vprintf(g: Group, given: list[str], results: list[str]) -> None:
    """printf: one line of text for each thread, with the values from local memory."""
    from tma_dlpack.kernel.printing import formatted

    text = formatted(g, *(g.block.parameters[name] for name in given))
    g.machine.printed += text
    for name in results:
        g.block.set_parameter(g, name, 0, 4, (np.uint32(1),))


def _assertfail(g: Group, given: list[str], results: list[str]) -> None:
    from tma_dlpack.kernel.printing import text_at

    parameters = [g.block.parameters[name] for name in given]
    message, file = (text_at(g, p, int(g.lanes[0])) for p in parameters[:2])
    line = int(parameters[2][g.lanes[0], :4].view(np.uint32)[0])
    g.machine.fault(
        g, "ASSERT", f"{file}:{line}: the assertion `{message}` fails",
        "look at the values in it", lanes=g.lanes,
    )  # fmt: skip


_BUILTINS: dict[str, Callable[[Group, list[str], list[str]], None]] = {
    "vprintf": _vprintf, "__assertfail": _assertfail,
}  # fmt: skip


def simulate(
    ptx: str, kernel: str, grid: Three, block: Three, parameters: bytes, regions: list[Region],
    *, cluster: Three = (1, 1, 1), smem_bytes: int = 0, seed: int = 0, schedule: int = 0,
    max_steps: int | None = None, order: bool = True, maps: dict[bytes, TensorMap] | None = None,
    target: str = "sm_90",
) -> Machine:  # fmt: skip
    """Run a kernel under one schedule; return the machine with what was found."""
    machine = Machine(
        program_of(ptx), kernel, grid, block, cluster, smem_bytes, parameters, regions,
        maps or {}, seed, schedule, max_steps, order, target, Findings(kernel), Timeline(),
    )  # fmt: skip
    machine.run()
    return machine
