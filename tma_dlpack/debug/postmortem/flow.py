"""Control flow of a function, and values of registers at an instruction.

A warp continues to run after the instruction that failed, and a wait is a loop. Therefore the
registers in the dump may have later values than the instruction used. `Registers` finds the value
that a register had at an earlier instruction. If no instruction wrote the register between this
instruction and the time of the dump, the value is in the dump. Otherwise, if exactly one
instruction can have written the register, its result is computed from the code. If this is not
possible, the value is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import Final

from tma_dlpack.debug.postmortem.dump import Block, Dump, Function, Warp, three
from tma_dlpack.debug.postmortem.sass import (
    ALWAYS,
    BSSY,
    BSYNC,
    INSTRUCTION_BYTES,
    ZERO_REGISTER,
    Instruction,
)

_MOST_INSTRUCTIONS = 1 << 17
# maximum number of instructions that one search visits
_MOST_STEPS = 4096
# maximum length of a chain of instructions from which the value of an operand is computed
_DEEPEST = 12
_WORD = (1 << 32) - 1
#: Major number of the compute capability -> offset in constant bank 0 at which the generic address
#: of the kernel's parameters is stored. The offset of sm_90 was measured. The other offsets are
#: from machine code of ptxas 13.0: this code adds the offset of a map to the word at this place.
_PARAMETER_POINTER: Final = {9: 0x198, 10: 0x348, 11: 0x348, 12: 0x348}
# numbers of special registers: the block's rank in its cluster, and SR_SWINHI, which is the upper
# half of the generic address at which shared memory begins
_CGA_CTA_ID, _SHARED_WINDOW = 0x88, 0x2F


class Flow:
    """The control flow of a function; a `place` is the index of an instruction in the function."""

    def __init__(self, function: Function, major: int) -> None:
        self.function: Function = function
        self.major: int = major
        self.code: list[Instruction] = [
            Instruction(int(a), int(b), major) for a, b in function.code
        ]
        # each object has its own caches, because `functools.cache` on a method keeps all objects
        # alive
        self.between = cache(self._between)
        self.waits_of = cache(self._waits_of)
        self.writer = cache(self._writer)

    def __getitem__(self, place: int) -> Instruction:
        return self.code[place]

    def place(self, pc: int) -> int:
        """Return the place of the instruction at an address."""
        return (pc - self.function.start) // INSTRUCTION_BYTES

    @cached_property
    def successors(self) -> list[tuple[int, ...]]:
        """For each place, the places that can run next."""
        # convergence register -> the places that can run after a BSYNC of this register; the
        # constant of a BSSY is the distance from its next instruction to such a place
        joins: dict[int, list[int]] = {}
        for place, instruction in enumerate(self.code):
            if instruction.opcode == BSSY:
                to = place + 1 + instruction.constant // INSTRUCTION_BYTES
                joins.setdefault(instruction.convergence, []).append(to)
        found = []
        for place, instruction in enumerate(self.code):
            after = [] if instruction.ends else [place + 1]
            if instruction.branch is not None:
                after.append(place + 1 + instruction.branch // INSTRUCTION_BYTES)
            if instruction.opcode == BSYNC:
                after = joins.get(instruction.convergence, after)
            found.append(tuple(to for to in after if 0 <= to < len(self.code)))
        return found

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """For each place, the places that can run just before it."""
        found: list[list[int]] = [[] for _ in self.code]
        for place, after in enumerate(self.successors):
            for to in after:
                found[to].append(place)
        return found

    def reach(
        self, start: int, back: bool = False, stop: Callable[[int], bool] = lambda place: False
    ) -> set[int] | None:
        """Return the places that can be reached from a place, or None if there are too many.

        If `back` is true, the search goes backwards. The search does not continue from a place for
        which `stop` is true.
        """
        edges: list[tuple[int, ...]] | list[list[int]]
        edges = self.predecessors if back else self.successors
        seen: set[int] = set()
        ahead = [*edges[start]]
        while ahead:
            place = ahead.pop()
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > _MOST_STEPS:
                return None
            if not stop(place):
                ahead += edges[place]
        return seen

    def _between(self, start: int, end: int) -> set[int] | None:
        """Return the places that may run between two places, or None if no path is known."""
        if start == end:
            return set()
        after = self.reach(start, stop=lambda place: place in (start, end))
        before = self.reach(end, back=True, stop=lambda place: place in (start, end))
        if after is None or before is None or end not in after:
            return None
        return (after & before) - {start, end}

    def _waits_of(self, place: int) -> tuple[int, ...]:
        """Return the mbarrier waits at which a thread at `place` waits; () if it does not wait.

        The thread may be at a wait, at an instruction that needs the result of waits, or in a loop
        with waits. The loop must have no copy, arrival, block barrier, store or matrix instruction.
        """
        if self[place].is_wait:
            return (place,)
        # a thread at a WARPSYNC waits for threads of its warp, even if the WARPSYNC is in the loop
        # of a wait
        if self[place].name == "WARPSYNC":
            return ()
        if unanswered := self._unanswered(place):
            return unanswered
        ahead = self.reach(place, stop=self._works)
        behind = self.reach(place, back=True, stop=self._works)
        if self._works(place) or ahead is None or behind is None or place not in ahead:
            return ()
        return tuple(sorted(i for i in ahead & behind if self[i].is_wait))

    def _unanswered(self, place: int) -> tuple[int, ...]:
        """Return the mbarrier waits whose results an instruction needs; () if there are none."""
        # An instruction of unknown duration sets a scoreboard. An instruction that reads its result
        # waits for this scoreboard.
        needed = self[place].needed_scoreboards
        if len(needed) != 1:
            return ()

        def sets(i: int) -> bool:
            return needed[0] in self[i].set_scoreboards

        seen = self.reach(place, back=True, stop=sets)
        found = sorted(i for i in seen or () if sets(i))
        return tuple(found) if all(self[i].is_wait for i in found) else ()

    def _works(self, place: int) -> bool:
        return self[place].does_work

    def _writer(self, kind: str, number: int, place: int) -> int | None:
        """Return the place that wrote the value of a register at `place`, or None if it is unknown.

        `kind` is "uniform" or "register".
        """

        def writes(i: int) -> bool:
            return number in written(kind, self[i])

        seen = self.reach(place, back=True, stop=writes)
        found = [i for i in seen or () if writes(i)]
        # Place 0 is the function's start. If the search reached it, a path to `place` may have no
        # writer, so the register may have an older value.
        if len(found) != 1 or found[0] == place or (0 in (seen or ()) and found[0] != 0):
            return None
        return found[0]


def flow_of(dump: Dump, function: Function) -> Flow | None:
    """Return the `Flow` of a function, which the dump caches, or None if the code is too long."""
    if len(function.code) > _MOST_INSTRUCTIONS:
        return None
    if function.start not in dump._flows:
        dump._flows[function.start] = Flow(function, dump.major)
    found: Flow = dump._flows[function.start]
    return found


class Registers:
    """The values of a thread's registers at any instruction of its function."""

    warp: Warp
    flow: Flow
    lane: int
    ahead: bool
    now: int | None
    zero: dict[str, int]

    def __init__(
        self, warp: Warp, flow: Flow, pc: int | None, lane: int, ahead: bool = False
    ) -> None:
        """Read the registers of a thread that is at `pc`.

        If `pc` is None or in another function, only values that can be computed from the code are
        known. If `ahead` is true, the methods return values at instructions that will run after
        `pc`, such as instructions of the thread's loop. Otherwise, they return values at
        instructions that ran before `pc`.
        """
        self.warp, self.flow, self.lane, self.ahead = warp, flow, lane, ahead
        is_here = pc is not None and flow.function.at(pc) is not None
        self.now = flow.place(pc) if pc is not None and is_here else None
        # numbers of RZ and URZ, whose value is always 0; URZ is 63 on sm_90, and 255 on later GPUs
        self.zero = {"register": ZERO_REGISTER, "uniform": 63 if flow.major == 9 else 255}

    @cached_property
    def _registers(self) -> list[int]:
        return [int(word) for word in self.warp.registers(self.lane)[:ZERO_REGISTER]]

    def uniform(self, number: int, place: int, depth: int = 0) -> int | None:
        """Return the value of a uniform register before an instruction, or None if unknown."""
        return self._value("uniform", number, place, depth)

    def register(self, number: int, place: int, depth: int = 0) -> int | None:
        """Return the value of a register before an instruction, or None if unknown."""
        return self._value("register", number, place, depth)

    def pair(self, number: int, place: int) -> int | None:
        """Return the 64-bit address in two uniform registers; the first has the low half."""
        low, high = self.uniform(number, place), self.uniform(number + 1, place)
        return None if low is None or high is None else low | high << 32

    def barrier(self, place: int) -> int | None:
        """Return the address of a SYNCS's barrier; None if unknown, or for another instruction."""
        i = self.flow[place]
        if i.is_wait or i.is_arrival:
            parts = self.register(i.second, place), self.uniform(i.third, place)
        elif i.is_init:
            parts = 0, self.uniform(i.second, place)
        else:
            return None
        first, second = parts
        return None if first is None or second is None else (first + second + i.immediate) & _WORD

    def _value(self, kind: str, number: int, place: int, depth: int) -> int | None:
        if number == self.zero[kind]:
            return 0
        # if no instruction from `place` to the time of the dump writes the register, use the dump's
        # value
        runs = self._runs_between(place)
        if runs is not None and not any(number in written(kind, self.flow[i]) for i in runs):
            kept = self.warp.uniform if kind == "uniform" else self._registers
            return int(kept[number]) if number < len(kept) else None
        writer = self.flow.writer(kind, number, place)
        if writer is None or depth > _DEEPEST:
            return None
        # if the writer has a predicate that the reading instruction does not have, the writer may
        # not have run
        guard = self.flow[writer].guard
        if guard not in (ALWAYS, self.flow[place].guard):
            return None
        return self._computed(writer, number, depth)

    def _runs_between(self, place: int) -> set[int] | None:
        """Return the places that may run between `place` and `now`, or None if they are unknown."""
        # the result includes the earlier of the two places, because its instruction may write a
        # register
        if self.now is None or place == self.now:
            return None if self.now is None else set()
        first, last = (self.now, place) if self.ahead else (place, self.now)
        between = self.flow.between(first, last)
        return None if between is None else {first, *between}

    def _computed(self, place: int, number: int, depth: int) -> int | None:
        """Return the value that an instruction writes to a register, or None if it is unknown."""
        # The cases below are the instructions from which compilers build the addresses, coordinates
        # and masks of copies. The result of any other instruction is unknown.
        i = self.flow[place]
        depth += 1
        a, b = i.second, i.constant

        def uniform(*numbers: int) -> list[int]:
            values = [self.uniform(n & 0xFF, place, depth) for n in numbers]
            return [] if None in values else [v for v in values if v is not None]

        def register(n: int) -> int | None:
            return self.register(n & 0xFF, place, depth)

        match i.opcode:
            case 0x882 | 0x802 | 0x424:  # UMOV, MOV, IMAD.MOV of a constant
                return b
            case 0xC82:  # UMOV
                return next(iter(uniform(b)), None)
            case 0x202:  # MOV
                return register(b)
            case 0x224 if a == b & 0xFF == ZERO_REGISTER and not i.high >> 8 & 0xFF:  # IMAD.MOV
                return register(i.high)
            case 0x2CA:  # R2UR
                return register(a)
            case 0x9C3 if i.high >> 8 & 0xFF == _CGA_CTA_ID:  # S2UR
                return rank_in_cluster(self.warp.block)
            case 0x9C3 if (  # S2UR
                i.high >> 8 & 0xFF == _SHARED_WINDOW and self.warp.dump.windows is not None
            ):
                return int(self.warp.dump.windows["shared"]) >> 32
            case 0xAB9 | 0x7AC:  # ULDC, LDCU
                offset = b >> 6 if i.opcode == 0xAB9 else b >> 5
                return self._constant(offset + 4 * (number != i.target))
            # ULEA computes (a << shift) + b; 0xF8E is the form without .HI and without predicates
            case 0x291 if i.high >> 16 & 0xFFF == 0xF8E:
                values = uniform(a, b)
                shift = i.high >> 11 & 31
                return (values[0] << shift) + values[1] & _WORD if values else None
            # SHF.L.U32 with the zero register as its upper word is a left shift
            case 0x819 if i.high & 0xFFFFFF == 0x0006FF:
                value = register(a)
                return None if value is None else value << (b & 31) & _WORD
            case 0x896 if b == 0x5410:  # UPRMT, which combines the low halves of two registers
                values = uniform(a, i.third)
                return values[0] & 0xFFFF | (values[1] & 0xFFFF) << 16 if values else None
            case 0x290 | 0x890:  # UIADD3 of registers, and UIADD3 with a constant
                total = self._sum(i, place, depth)
                return None if total is None else total & _WORD
        return None

    def _sum(self, i: Instruction, place: int, depth: int) -> int | None:
        """Return the sum of a UIADD3, with its carry in bit 32, or None if it is unknown."""
        # a UIADD3 with a negated operand is a difference, which is not computed
        if i.high >> 8 & 1 or (i.opcode == 0x290 and i.low >> 63):
            return None
        operands = [i.second, i.third, *([i.first] if i.opcode == 0x290 else [])]
        values = [self.uniform(n, place, depth) for n in operands]
        total = i.constant if i.opcode == 0x890 else 0
        # .X adds the carry of an earlier UIADD3, which computed the low half of a 64-bit sum
        if i.high >> 10 & 1:
            near = range(place - 1, max(place - 32, -1), -1)
            before = next((p for p in near if _carries(self.flow[p])), None)
            low = None if before is None else self._sum(self.flow[before], before, depth)
            if low is None:
                return None
            total += low >> 32
        return None if None in values else total + sum(v for v in values if v is not None)

    def _constant(self, offset: int) -> int | None:
        """Return a word of constant bank 0, or None if it is unknown.

        Only the words of the parameters and of the address of the parameters are known.
        """
        grid = self.warp.block.grid
        if grid is None:
            return None
        first = int(grid.row["parameters"])
        if first <= offset and offset + 4 <= first + len(grid.parameters):
            return int.from_bytes(grid.parameters[offset - first :][:4], "little")
        # the 64-bit address of the parameters has two words, at `pointer` and `pointer` + 4
        pointer = _PARAMETER_POINTER.get(self.flow.major)
        if pointer is not None and grid.parameter_address and offset - pointer in (0, 4):
            return grid.parameter_address >> 8 * (offset - pointer) & _WORD
        return None


def cluster_sizes(block: Block) -> tuple[int, int, int]:
    """Return the number of blocks of a block's cluster along x, y and z."""
    # if the cluster sizes in the block's row are zeros, the cluster sizes of the grid are used
    own = three(block.row, "cluster")
    whole = block.grid.dims("cluster") if block.grid is not None else own
    x, y, z = (max(1, size) for size in (own if any(own) else whole))
    return x, y, z


def cluster_of(block: Block) -> tuple[int, int, int]:
    """Return the index of a block's cluster."""
    x, y, z = (place // size for place, size in zip(block.index, cluster_sizes(block), strict=True))
    return x, y, z


def rank_in_cluster(block: Block) -> int:
    """Return the rank of a block in its cluster (x fastest), which is 0 without clusters."""
    sizes = cluster_sizes(block)
    x, y, z = (place % size for place, size in zip(block.index, sizes, strict=True))
    return x + sizes[0] * (y + sizes[1] * z)


def _carries(i: Instruction) -> bool:
    # true for a UIADD3 without .X that writes its carry to a predicate; predicate 7 is UPT, which
    # cannot be written
    return i.opcode in (0x290, 0x890) and not i.high >> 10 & 1 and i.high >> 17 & 7 != 7


def written(kind: str, i: Instruction) -> Iterable[int]:
    """Return the numbers of the registers that an instruction may write."""
    return i.writes_uniform if kind == "uniform" else i.writes
