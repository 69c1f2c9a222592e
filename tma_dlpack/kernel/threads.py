"""Clusters, blocks of threads, and groups of threads that run together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel import barriers, runtime
from tma_dlpack.kernel.memory import RANK_SHIFT, UNSIGNED
from tma_dlpack.kernel.operations import Wait
from tma_dlpack.kernel.program import Code

Array = npt.NDArray[Any]
Three = tuple[int, int, int]

WARP = 32
# Offset of the first byte of shared memory that a kernel may use. On sm_90 the system reserves the
# first 1 KiB of shared memory.
FIRST_SHARED = 0x400


class Join:
    """A program counter where the parts of a split group are merged again."""

    __slots__ = ("code", "depth", "expected", "pc", "released", "waiting")

    #: Number of frames (calls) of a group at the join. In a recursive function, a group with more
    #: frames may also reach `pc`, but it must not stop there.
    depth: int
    #: Number of threads that the join waits for. Threads that have ended or have left the function
    #: are not counted.
    expected: int
    pc: int
    #: Whether the waiting groups have continued without the missing threads.
    released: bool

    def __init__(self, pc: int, depth: int, expected: int) -> None:
        self.pc, self.depth, self.expected = pc, depth, expected
        self.waiting: list[Group] = []
        self.released = False


class Frame(NamedTuple):
    """A call of a device function that has not returned yet.

    `function` is the caller, and `after` is the number of the basic block after the call. `saved`
    has tuples (array, rows, copy of the array) for the registers and parameters that a recursive
    call overwrites. For a parameter, `rows` is None. Each copy has the values of all threads of the
    block.
    """

    function: Code
    after: int
    #: Each result is (name in the called function, name in the calling function).
    results: list[tuple[str, str]]
    saved: list[tuple[Array, Array | None, Array]]


class Group:
    """Threads of a block that share a program counter (see the module `machine`)."""

    block: Block
    machine: Any
    pc: int
    function: Any
    lanes: Array
    n: int

    def __init__(self, block: Block, lanes: Array, pc: int, code: Code) -> None:
        self.block, self.machine = block, block.machine
        self.pc, self.function = pc, code
        self.joins: list[Join] = []
        self.frames: list[Frame] = []
        self.code: Any = None
        self.wait: Wait | None = None
        # Keys of the polls in the last basic block (see `polled`).
        self.poll: list[Any] = []
        # `polls` has the program counters where the group has polled since `machine.progress` got
        # the value `seen`, and the keys of these polls.
        self.polls: dict[int, list[Any]] = {}
        self.seen = -1
        # Results that are stored in registers after the wait, as (values, places). `values` may be
        # a function that returns the values for an array of threads. `places` has the (table, slot)
        # of each register.
        self.deferred: list[tuple[Any, Any]] = []
        # Whether the group waits for the other lanes of its warps (see `Machine._gathered`).
        self.gated = False
        # Program counter of an instruction that the group may execute without whole warps, or -1.
        self.passes = -1
        self.done = False
        self._waits: list[tuple[Any, Wait]] = []
        self.set_lanes(lanes)

    def set_lanes(self, lanes: Array) -> None:
        """Set the threads of the group; `lanes` is in ascending order."""
        self.lanes, self.n = lanes, len(lanes)
        first, last = int(lanes[0]), int(lanes[-1])
        # Use a slice for neighbouring threads, because NumPy reads a slice without a copy.
        self.index: Any = slice(first, last + 1) if last - first + 1 == self.n else lanes

    @property
    def warps(self) -> Array:
        """Numbers of the warps with threads in the group."""
        return np.unique(self.lanes // WARP)

    # -- called by translated blocks -------------------------------------------------------------

    def branch(self, guard: Any, taken: int, falls: int, join: int) -> int:
        """Return the number of the next block after a branch.

        If some threads take the branch and others do not, split the group.
        """
        if np.ndim(guard) == 0:
            return taken if guard else falls
        if guard.all():
            return taken
        if not guard.any():
            return falls
        self.split(guard, taken, join)
        return falls

    def branch_to(self, index: Any, table: list[int], join: int) -> int:
        """Return the number of the next block after a jump through a table.

        If the threads jump to different targets, split the group into one group for each target.
        """
        choices = np.unique(np.broadcast_to(index, self.n))
        index = np.broadcast_to(index, self.n)
        # This group takes the first target. The threads of each other target become a new group.
        for choice in choices[1:].tolist():
            here = index == choice
            self.split(here, table[choice], join)
            index = index[~here]
        return table[int(choices[0])]

    def split(self, away: Array, pc: int, join: int | None = None) -> Group:
        """Move the threads in `away` into a new group, and return the new group.

        The new group continues at `pc`. If `join` is not None, it is the program counter where the
        two groups are merged again.
        """
        depth = len(self.frames)
        # A branch in a loop may split the group several times before the group reaches the join. So
        # do not add a join that is already the last join of the group.
        if join is not None and not (
            self.joins and (self.joins[-1].pc, self.joins[-1].depth) == (join, depth)
        ):
            self.joins.append(Join(join, depth, self.n))
        other = Group(self.block, self.lanes[away], pc, self.function)
        other.joins, other.frames = list(self.joins), list(self.frames)
        other.code, other.polls, other.seen = self.code, dict(self.polls), self.seen
        self.set_lanes(self.lanes[~away])
        self.block.groups.append(other)
        self.machine.awake(other)
        return other

    def leave(self, mask: Array | None, falls: int, join: int, ends: bool) -> int:
        """Return the number of the next block after ret or exit.

        `mask` has the threads that leave. If the other threads continue, split the group.
        """
        if mask is None:
            # `Machine._run_group` returns from the function at block -1, and ends the threads at
            # block -2.
            return -2 if ends or not self.frames else -1
        if not mask.any():
            return falls
        other = self.split(mask, 0, join)
        other.pc = -2 if ends or not self.frames else -1
        return falls

    def call(self, code: Any, name: str, given: list[str], results: list[str], after: int) -> int:
        """Call a function of the PTX module or of CUDA's device runtime.

        Return the number of the next block: block 0 of the function, or `after` for the runtime.
        """
        self.code = code
        builtin = runtime.FUNCTIONS.get(name)
        if builtin is not None:
            builtin(self, given, results)
            return after
        program = self.machine.program
        if name not in program.functions:
            self.machine.unknown(self, code, f"the function {name}")
        callee = program.code(name)
        # The header of a function lists its return values (func_retval0, ...) and parameters.
        formal = [n for n in callee.parameters if not n.startswith("func_retval")]
        returned = [n for n in callee.parameters if n.startswith("func_retval")]
        saved = []
        # In a recursive call, the new call uses the register slots of an earlier call of the same
        # function. So save the registers of the earlier call.
        if callee is self.function or any(callee is frame.function for frame in self.frames):
            if "local" in callee.function.symbols.values():
                self.machine.unknown(self, code, f"{name} calls itself and has local variables")
            saved = self.block.saved(program.tables.get(name, {}), formal)
        for inner, outer in zip(formal, given, strict=False):
            self.block.copy_parameter(self, outer, inner)
        pairs = list(zip(returned, results, strict=False))
        self.frames.append(Frame(self.function, after, pairs, saved))
        self.function = callee
        return 0

    def call_by_address(
        self, code: Any, targets: Any, given: list[str], results: list[str], after: int
    ) -> int:
        """Call the functions at the addresses in `targets`, which has one address for each thread.

        If the threads call different functions, split the group into one group for each function.
        """
        names = self.machine.function_names
        targets = np.broadcast_to(targets, self.n)
        self.code = code
        distinct = np.unique(targets)
        for target in distinct.tolist():
            if target not in names:
                self.machine.fault(
                    self, "ILLEGAL_ADDRESS", f"a function at {target:#x} is called; none is there",
                    "assign the pointer before the call", lanes=self.lanes[targets == target],
                )  # fmt: skip
        for target in distinct[1:].tolist():
            here = targets == target
            other = self.split(here, 0, after)
            targets = targets[~here]
            other.pc = other.call(code, names[target], given, results, after)
        return self.call(code, names[int(distinct[0])], given, results, after)

    def returns(self) -> None:
        """Return to the caller: copy the results and restore the caller's saved registers."""
        frame = self.frames.pop()
        for inner, outer in frame.results:
            self.block.copy_parameter(self, inner, outer)
        for array, rows, values in frame.saved:
            if rows is None:
                array[self.index] = values[self.index]
            else:
                at = self.index if type(self.index) is slice else self.index[None, :]
                rows = rows if type(at) is slice else rows[:, None]
                array[rows, at] = values[rows, at]
        self.function, self.pc = frame.function, frame.after

    def later(self, result: Any, places: Any) -> None:
        """Store results in registers: after the wait if the group has to wait, otherwise now."""
        self.deferred.append((result, places))
        if self.wait is None and not self._waits:
            self.settle()

    def settle(self) -> None:
        """Store the deferred results in registers."""
        for result, places in self.deferred:
            values = result(self.lanes) if callable(result) else result
            values = values if type(values) is tuple else (values,)
            for value, place in zip(values, places, strict=True):
                if place is not None:
                    table = getattr(self.block, place[0])
                    table[place[1], self.index] = value
        self.deferred = []

    def polled(self, key: Any) -> None:
        """Record that a thread has polled memory, the time, or a barrier whose phase has not ended.

        If it has polled an mbarrier, `key` is the mbarrier.
        """
        self.poll.append(key)

    def wait_for(self, waits: Sequence[tuple[Any, Wait]]) -> None:
        """Let threads wait after the basic block ends.

        `waits` has tuples (indices of the threads in the group, `Wait`).
        """
        self._waits = [(self.lanes[at], wait) for at, wait in waits]

    def waits(self) -> bool:
        """Return whether the group waits; if its wait has ended, store the deferred results."""
        if self.wait is not None:
            if not self.wait.ready():
                return True
            self.wait = None
            self.settle()
        return False

    def take_waits(self) -> None:
        """Start the waits that the last instruction passed to `wait_for`.

        A group can have only one wait. So if the threads have different waits, split the group. The
        parts are merged again after the waits.
        """
        waits, self._waits = self._waits, []
        deferred, self.deferred = self.deferred, []
        for lanes, wait in waits:
            here = np.isin(self.lanes, lanes)
            waiting = self if here.all() else self.split(here, self.pc, self.pc)
            waiting.wait, waiting.deferred = wait, deferred


class Block:
    """A block of threads with its shared memory and registers."""

    machine: Any
    cluster: Cluster
    ctaid: Three
    rank: int
    threads: Any
    tid: tuple[Any, ...]
    laneid: Array
    warpid: Array
    lanemask_eq: Any
    lanemask_lt: Any
    lanemask_le: Any
    lanemask_gt: Any
    lanemask_ge: Any
    smem: Array
    local: Array
    addresses: Any
    sync: barriers.BlockSync
    warp_agents: Any

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
        # Compute in 64 bits, because the mask of lane 31 needs a shift by 32 bits.
        self.lanemask_le = ((one << lane + one) - one).astype(np.uint32)
        self.lanemask_gt = ~self.lanemask_le
        self.lanemask_ge = ~self.lanemask_lt
        self.smem = np.zeros(machine.smem_size, np.uint8)
        self._views: dict[int, Array] = {}
        self.local = np.zeros((self.threads, machine.local_size), np.uint8)
        self.parameters: dict[str, Array] = {}
        # Tables of registers, arrays (slot, thread). `program` describes the tables.
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
        # Joins that groups of this block wait at.
        self.parked: list[Join] = []
        # One entry for each lane of each warp: True if the lane has a thread that has not ended.
        self._live = np.ones(count * WARP, np.bool_)
        self._live[self.threads :] = False

    def live_masks(self) -> Array:
        """Return one mask for each warp; bit l is set if lane l has a thread that has not ended."""
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        masks: Array = (self._live.reshape(-1, WARP) * weights).sum(axis=1).astype(np.uint64)
        return masks

    def end_lanes(self, lanes: Array) -> None:
        """Record that threads have ended."""
        self._live[lanes] = False

    def smem_view(self, size: int) -> Array:
        """Return shared memory as an array of elements of `size` bytes."""
        found = self._views.get(size)
        if found is None:
            whole = len(self.smem) // size * size
            found = self._views[size] = self.smem[:whole].view(UNSIGNED[size])
        return found

    def special(self, name: str, axis: int) -> Any:
        """Return the value of a special register that is equal in all threads of the block."""
        machine = self.machine
        per_axis = {
            "ntid": machine.block, "ctaid": self.ctaid, "nctaid": machine.grid,
            "clusterid": self.cluster.place, "nclusterid": machine.clusters,
            "cluster_nctaid": machine.cluster, "cluster_ctaid": self.place,
        }  # fmt: skip
        if name in per_axis:
            return np.uint32((*per_axis[name], 0)[axis])
        time = machine.steps + machine.skipped & 0xFFFFFFFFFFFFFFFF
        if name in ("clock", "globaltimer_lo"):
            return np.uint32(time & 0xFFFFFFFF)
        if name in ("clock_hi", "globaltimer_hi"):
            return np.uint32(time >> 32)
        if name in ("clock64", "globaltimer"):
            return np.uint64(time)
        # Special registers that the simulator does not model have plausible constant values. For
        # example, %nsmid is 132, the number of multiprocessors of an H100.
        single = {
            "cluster_ctarank": self.rank, "cluster_nctarank": len(self.cluster.blocks),
            "is_explicit_cluster": int(machine.cluster != (1, 1, 1)), "smid": self.rank,
            "nsmid": 132, "nwarpid": 64, "gridid": 1,
            "dynamic_smem_size": machine.smem_bytes,
            "total_smem_size": machine.smem_size - FIRST_SHARED,
            "aggr_smem_size": machine.smem_size,
        }  # fmt: skip
        if name not in single:
            raise KeyError(f"the special register %{name}")
        return np.uint32(single[name])

    @property
    def place(self) -> Three:
        """Index (x, y, z) of the block in the cluster."""
        x, y, z = (c % n for c, n in zip(self.ctaid, self.machine.cluster, strict=True))
        return x, y, z

    # -- parameters ------------------------------------------------------------------------------

    def parameter(self, g: Group, name: str, offset: int, size: int, count: int) -> list[Any]:
        """Load `count` elements of `size` bytes from a parameter, or from a result of a call."""
        machine = self.machine
        place = machine.parameter_places.get(name)
        if place is not None:
            at = place + offset
            kind = UNSIGNED[size]
            values = machine.parameters[at : at + size * count].view(kind)
            return [kind(v) for v in values]
        # The caller may have stored fewer bytes, because a structure may end with padding.
        array = self.reserve(name, offset + size * count)
        part = np.ascontiguousarray(array[g.index, offset : offset + size * count])
        return list(part.view(UNSIGNED[size]).T)

    def copy_parameter(self, g: Group, source: str, target: str) -> None:
        """Copy a parameter or result to another name for the threads of a group."""
        array = self.parameters.get(source)
        if array is None:
            return
        self.reserve(target, array.shape[1])[g.index, : array.shape[1]] = array[g.index]

    def reserve(self, name: str, size: int) -> Array:
        """Return the bytes of a parameter: an array (threads, bytes) with at least `size` bytes."""
        array = self.parameters.get(name)
        if array is None or array.shape[1] < size:
            larger = np.zeros((self.threads, size), np.uint8)
            if array is not None:
                larger[:, : array.shape[1]] = array
            array = self.parameters[name] = larger
        return array

    def saved(
        self, registers: dict[str, tuple[str, int, str]], parameters: list[str]
    ) -> list[tuple[Array, Array | None, Array]]:
        """Return copies of a recursive function's registers and parameters, for `Frame.saved`."""
        found: list[tuple[Array, Array | None, Array]] = []
        for table in "WDHP":
            rows = np.array([slot for t, slot, _ in registers.values() if t == table], np.int64)
            array = getattr(self, table)
            if len(rows):
                whole = np.zeros_like(array)
                whole[rows] = array[rows]
                found.append((array, rows, whole))
        arrays = (self.parameters[name] for name in parameters if name in self.parameters)
        return found + [(array, None, array.copy()) for array in arrays]

    def set_parameter(
        self, g: Group, name: str, offset: int, size: int, values: tuple[Any, ...]
    ) -> None:
        """Store elements of `size` bytes in a parameter, or in a result of a call."""
        array = self.reserve(name, offset + size * len(values))
        for n, value in enumerate(values):
            bits = np.broadcast_to(np.asarray(value, UNSIGNED[size]), g.n)
            at = offset + n * size
            array[g.index, at : at + size] = (
                np.ascontiguousarray(bits).view(np.uint8).reshape(g.n, size)
            )


class Cluster:
    """Blocks that can access each other's shared memory.

    In a launch without clusters each cluster has one block.
    """

    machine: Any
    place: Three
    meeting: barriers.Meeting

    def __init__(self, machine: Any, place: Three) -> None:
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
        """Whether all threads of the cluster have ended."""
        return all(block.ended for block in self.blocks)
