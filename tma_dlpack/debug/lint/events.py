"""Events of a function in program order: accesses to shared memory, fences, barriers, waits.

The rules of `lint` read these events. `OPCODES` maps instructions to events. If the addresses of
accesses in a basic block differ only by a constant, and no fence or barrier is between the
accesses, they are combined into one `Access`. For example, the writes of an unrolled loop are one
`Access`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial

from tma_dlpack.ptx.flow import Conditions, Flow
from tma_dlpack.ptx.parse import Function, Instruction
from tma_dlpack.ptx.values import (
    Known,
    Term,
    Value,
    Values,
    at_thread,
    holds_at,
    number_of,
    origins,
    registers,
    written,
)

#: (pattern of an opcode, event). The first pattern that matches an opcode determines the event. If
#: this event is "", the instruction has no event, even if a later pattern also matches. A bulk copy
#: from shared to global memory is a "store", a bulk copy from global to shared memory is a "load",
#: and a bulk copy from shared memory to another block's shared memory is a "send".
OPCODES = tuple(
    (re.compile(pattern), event)
    for pattern, event in (
        (r"fence\.proxy\.tensormap.*acquire", "acquire"),
        (r"fence\.proxy\.tensormap.*release", "release"),
        (r"fence\.proxy\.async(\.shared::\w+|::generic\.\S+)?$", "fence"),
        (r"fence\.proxy\.async\.global$", "global_fence"),
        (r"fence\.mbarrier_init", "init_fence"),
        (r"bar\.(cta\.)?(sync|red|arrive)|barrier\.(cta\.)?(sync|red|arrive)|bar\.warp|"
         r"barrier\.cluster\.wait", "barrier"),
        (r"cp\.async\.bulk\.commit_group", "commit"),
        (r"cp\.async\.bulk\.wait_group", "wait"),
        (r"cp\.async\.bulk\.prefetch", ""),
        (r"cp\.(reduce\.)?async\.bulk(\.tensor\.\dd)?\.global\.shared", "store"),
        (r"cp\.async\.bulk(\.tensor\.\dd)?(\.cta_group::\d)?\.shared::(cluster|cta)\.global",
         "load"),
        (r"cp\.async\.bulk\.shared::cluster\.shared", "send"),
        (r"cp\.(reduce\.)?async\.(bulk|mbarrier|wait|commit)", ""),
        (r"wgmma\.mma_async", "mma"),
        (r"tcgen05\.(mma|cp)\b", "operand"),
        (r"wgmma\.commit_group", "mma_commit"),
        (r"wgmma\.wait_group", "mma_wait"),
        (r"tensormap\.replace.*\.global\b", "replace"),
        (r"tensormap\.cp_fenceproxy", "publish"),
        (r"mbarrier\.init", "init"),
        (r"mbarrier\.arrive(?!\.expect_tx)", "arrive"),
        (r"mbarrier\.(try_wait|test_wait)", "await"),
        (r"mbarrier\.(arrive|expect_tx|complete_tx)", "use"),
        (r"(st|stmatrix|red|atom|cp\.async)\b.*\.shared::cluster", ""),  # another block's memory
        (r"(st|stmatrix|red|atom|cp\.async)\b.*\.shared\b", "write"),
        (r"(ld|ldmatrix)\b.*\.shared\b", "read"),
        (r"st\b(?!.*\.async).*\.global\b", "global_write"),
        (r"st\b(?!.*\.(param|local|global|async))", "write"),  # a generic address
        (r"ld\b(?!.*\.(param|local|global|const))", "read"),
        (r"(ret|exit)\b", "end"),
        (r"call\b", "call"),
    )
)  # fmt: skip

# the size of an access in its opcode; ".v4.f32" means 4 x 32 bits
_BITS = re.compile(r"\.[bsuf](8|16|32|64|128)\b")
# a register, such as "%r12", or "%p#3" of an inner scope
_NAMES = re.compile(r"%[\w$]+(?:#\d+)?")
_VECTOR = re.compile(r"\.v(\d)\b")
#: Minimum bytes of an access of unknown size, such as a bulk tensor copy.
LEAST_BYTES = 16
#: Events that do not end an `Access`, so accesses before and after them can be one `Access`.
_CLOSE_NOTHING = frozenset(
    ["write", "read", "mma", "operand", "global_write", "use", "init", "replace", "arrive", "await"]
)
# bits 0 to 13 of a matrix descriptor, which are the address in units of 16 bytes
_ADDRESS_BITS = (1 << 14) - 1


@dataclass(eq=False)
class Access:
    """Accesses of one basic block to addresses that differ only by a constant."""

    what: str
    block: int
    conditions: Conditions
    # the address without its constant part; None if the address is unknown
    terms: tuple[Term, ...] | None
    # arrays and parameters that the address points into, such as "shared:tile"
    origins: frozenset[str] = frozenset()
    # (constant of the address, bytes) of each instruction
    spans: list[tuple[int, int]] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    # the control-flow graph, from which `at` gets the values of registers that are written several
    # times; None unless `what` is "write" or "read"
    flow: Flow | None = None
    # registers in the address; the next write of such a register changes the address
    registers: frozenset[str] = frozenset()
    bases: Known = field(default_factory=dict)
    # registers that a wgmma writes when it is complete
    results: set[str] = field(default_factory=set)
    # (thread, kept registers) -> the result of `at`
    _at: dict[tuple[int, frozenset[str]], Value | None] = field(default_factory=dict)

    def at(self, thread: int, kept: frozenset[str]) -> Value | None:
        """Return the address that a thread computes, without the constant part.

        The result is None if the thread skips the access. A register that is written several times
        is replaced by its value in the first iteration of the loop. Registers in `kept` are not
        replaced.
        """
        key = thread, kept
        if key not in self._at:
            self._at[key] = None
            if all(holds_at(condition, thread) for condition in self.conditions):
                value = self.terms or (), 0
                known = {**self.bases}
                if self.flow:
                    comes = partial(self.flow.comes, thread)
                    firsts = self.flow.values.first_turn(value, self.first.line, kept, comes)
                    known |= {s: at_thread(of, thread, {**self.bases}) for s, of in firsts.items()}
                self._at[key] = at_thread(value, thread, known)
        return self._at[key]

    @property
    def first(self) -> Instruction:
        return self.code[0]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a basic block: its kind, its instruction, and more fields for some kinds."""

    what: str
    code: Instruction
    access: Access | None = None
    # for a wait: the number of groups that may still be pending when the wait ends
    number: int = 0
    # for "write_register": the register; for "results": the registers that are read
    registers: frozenset[str] = frozenset()
    # for "results": (source, target) of each move of a result
    moves: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def event_of(opcode: str) -> str:
    """Return the event of an opcode; "" if the opcode has no event."""
    return next((event for pattern, event in OPCODES if pattern.match(opcode)), "")


class Events:
    """The events of a function by basic block, and their accesses."""

    values: Values

    def __init__(self, flow: Flow, callees: Callees) -> None:
        self.flow = flow
        self.values = flow.values
        self.accesses: list[Access] = []
        self.blocks: list[list[Event]] = []
        # key -> an access of the current block; later instructions can join this access
        self._open: dict[tuple[object, ...], Access] = {}
        self._callees = callees
        self.overlap = cache(overlap)
        # writes to global memory are only needed if the function has plain bulk loads
        loads_global = any(map(_is_plain_load, self.values.function.code))
        for number, block in enumerate(flow.blocks):
            self._open.clear()
            found = [(event_of(code.opcode), code) for code in block.code]
            if not loads_global:
                found = [(what, code) for what, code in found if what != "global_write"]
            self.blocks.append(
                [h for what, code in found if what for h in self._happens(what, code, number)]
            )
        if any(access.what == "mma" for access in self.accesses):
            for number in range(len(self.blocks)):
                self._with_results(number)
        # a write of a register that is in an access's address is also an event, because the address
        # changes
        ended = {name for access in self.accesses for name in access.registers}
        for number, writes in enumerate(flow.watch(ended)):
            if writes:
                self._with_writes(number, writes)

    def _with_writes(self, number: int, writes: list[tuple[int, str]]) -> None:
        """Insert the writes of registers into the events of a block in program order."""
        code = self.flow.blocks[number].code
        # (index of the instruction, 0 or 1, event); if an instruction has several events, the
        # writes of registers (0) come before the other events (1)
        order = {id(instruction): place for place, instruction in enumerate(code)}
        merged = [(order[id(h.code)], 1, h) for h in self.blocks[number]]
        merged += [
            (place, 0, Event("write_register", code[place], registers=frozenset((name,))))
            for place, name in writes
        ]
        merged.sort(key=lambda entry: entry[:2])
        self.blocks[number] = [event for _, _, event in merged]

    @cached_property
    def _results(self) -> set[str]:
        """The registers that hold results of wgmma, directly or after a mov."""
        found = {name for access in self.accesses for name in access.results}
        moves = [(written(code), code.split()[-1]) for block in self.flow.blocks
                 for code in block.code if code.opcode.startswith("mov")]  # fmt: skip
        size = 0
        while size < len(found):
            size = len(found)
            found |= {name for targets, source in moves if source in found for name in targets}
        return found

    def _with_results(self, number: int) -> None:
        """Add events to a block for the reads and moves of wgmma results."""
        # all reads and moves before the next wgmma event are combined into one "results" event; its
        # place is the first read or move
        events = iter(self.blocks[number])
        merged: list[Event] = []
        reads: set[str] = set()
        moves: list[tuple[str, str]] = []
        first: Instruction | None = None
        ahead = next(events, None)
        for code in self.flow.blocks[number].code:
            is_event = ahead is not None and ahead.code is code
            if is_event and first and ahead and ahead.what.startswith("mma"):
                merged.append(Event("results", first, None, 0, frozenset(reads), tuple(moves)))
                reads, moves, first = set(), [], None
            while ahead is not None and ahead.code is code:
                merged.append(ahead)
                ahead = next(events, None)
            if code.opcode.startswith("wgmma"):
                continue
            names = _NAMES.findall(code.operands)
            if code.opcode.startswith("mov") and names[1:] and names[-1] in self._results:
                moves += [(names[-1], target) for target in written(code)]
            elif found := self._results.intersection(names).difference(written(code)):
                first = code if not reads else first
                reads |= found
            if moves and first is None:
                first = code
        if first:
            merged.append(Event("results", first, None, 0, frozenset(reads), tuple(moves)))
        self.blocks[number] = merged

    def _happens(self, what: str, code: Instruction, block: int) -> Iterator[Event]:
        """Yield the events of an instruction. A copy also has events of its barrier and map."""
        first = "use" if what in ("arrive", "await") else what
        # the shared memory of a store is its second address, as in "[map, {x}], [shared]"; the
        # shared memory of all other instructions is their first address
        if first in _OF_ADDRESS:
            address = code.address(int(what == "store"))
            access = self._access(first, code, block, address)
            if access is not None or what not in ("write", "read"):
                yield Event(first, code, access)
            if what != first:
                yield Event(what, code)
        elif what == "mma":
            access = self._open.get((what,))
            if access is None:
                access = Access(what, block, self.flow.conditions(code, block), None)
                self._open[what,] = access
                self.accesses.append(access)
                yield Event(what, code, access)
            access.code.append(code)
            # a wgmma's first operand is the vector of its accumulators
            access.results.update(_NAMES.findall(code.operands[: code.operands.find("}")]))
            yield from self._operands(code, block)
        elif what == "operand":
            yield from self._operands(code, block)
        elif what in ("wait", "mma_wait"):
            yield Event(what, code, number=number_of(code.operands.strip()) or 0)
        elif what == "call":
            for happened in self._callees.get(callee_of(code), ()):
                access = Access(happened, block, self.flow.conditions(code, block), None)
                access.code.append(code)
                self.accesses.append(access)
                yield Event(happened, code, access)
        elif what == "global_write":
            yield Event(what, code, self._access(what, code, block, code.address()))
        elif what != "send":
            yield Event(what, code)
        # a fence.proxy.async without a state space is also a fence for global memory
        if code.opcode == "fence.proxy.async":
            yield Event("global_fence", code)
        if _is_plain_load(code):
            source = self._access("global_load", code, block, code.address(1))
            yield Event("global_load", code, source)
        if what in ("load", "send") and (barrier := code.address(_BARRIER_OF_COPY)):
            yield Event("async_use", code, self._access("async_use", code, block, barrier))
        copies = what in ("load", "store") and ".tensor" in code.opcode
        if copies and (found := _MAP_OPERAND.search(code.operands)):
            yield Event("map_use", code, self._access("map_use", code, block, found[1]))
        if what in ("mma_commit", "mma_wait"):
            self._open.pop(("mma",), None)
        # after these three events, ordinary reads and writes can still join an earlier access
        elif what in ("barrier", "commit", "wait"):
            self._open = {k: v for k, v in self._open.items() if v.what in ("write", "read")}
        elif what not in _CLOSE_NOTHING:
            self._open.clear()

    def _operands(self, code: Instruction, block: int) -> Iterator[Event]:
        """Yield an event for each descriptor of a matrix product whose value is known.

        A matrix product reads shared memory through descriptors. Bits 0 to 13 of a descriptor are
        the low 18 bits of the address, divided by 16. The analysis assumes that shared arrays begin
        at multiples of `APART`, which is 2**18. So these bits are the offset in the array.
        """
        for word in code.split():
            value = self.values.of.get(word)
            points = origins(value) if value else frozenset()
            if value is None or len(points) != 1:
                continue
            space, _, name = next(iter(points)).partition(":")
            comes = partial(self.flow.comes, 0)
            firsts = self.values.first_turn(value, code.line, frozenset(), comes)
            known = {**self.values.bases}
            known |= {symbol: at_thread(of, 0, {**known}) for symbol, of in firsts.items()}
            left, number = at_thread(value, 0, known)
            if left or space != "shared":
                continue
            access = self._open.get(("operand", name))
            if access is None:
                terms, _ = self.values.address(name)
                conditions = self.flow.conditions(code, block)
                access = Access("operand", block, conditions, terms, points)
                access.bases = self.values.bases
                self._open["operand", name] = access
                yield Event("operand", code, access)
            access.spans.append(((number & _ADDRESS_BITS) * 16, LEAST_BYTES))
            access.code.append(code)

    def _access(self, what: str, code: Instruction, block: int, text: str) -> Access | None:
        # an access with a generic address has an event only if the address points into a shared
        # array
        terms, constant = self.values.address(text) if text else ((), 0)
        points = origins((terms, 0))
        is_generic = what in ("write", "read") and ".shared" not in code.opcode
        if is_generic and not any(origin.startswith("shared:") for origin in points):
            return None
        held = (self.values.of.get(name) for name in sorted(registers(terms)))
        # the key contains the values of the address's registers, because registers may be rewritten
        key = what, terms, code.guard, code.negated, *held
        access = self._open.get(key)
        if access is None:
            access = Access(what, block, self.flow.conditions(code, block), terms, points,
                            registers=registers(terms), bases=self.values.bases)  # fmt: skip
            self._open[key] = access
            self.accesses.append(access)
            # `overlap` compares the addresses of ordinary accesses in the first iteration of a loop
            if what in ("write", "read"):
                access.flow = self.flow
                access.registers = self.values.stable((terms, 0), code.line)
        access.spans.append((constant, _bytes(code)))
        access.code.append(code)
        return access


def _is_plain_load(code: Instruction) -> bool:
    """Return whether an instruction is a bulk load from global memory without a map."""
    return event_of(code.opcode) == "load" and ".tensor" not in code.opcode


def _bytes(code: Instruction) -> int:
    """Return the minimum number of bytes of an access."""
    # the third operand of a plain bulk copy is its size: [to], [from], bytes
    if code.opcode.startswith(("cp.async.bulk.s", "cp.async.bulk.g")):
        size = number_of("".join(code.split()[2:3]))
        return size if size and size > 0 else LEAST_BYTES
    if "bulk" in code.opcode or "matrix" in code.opcode:
        return LEAST_BYTES
    if code.opcode.startswith("mbarrier"):
        return 8
    bits, vector = _BITS.search(code.opcode), _VECTOR.search(code.opcode)
    return (int(bits[1]) // 8 if bits else 4) * (int(vector[1]) if vector else 1)


#: Kinds of events whose instruction has an address in brackets.
_OF_ADDRESS = ("write", "read", "store", "load", "init", "use", "replace", "publish")
#: Index of the barrier among the addresses in brackets of a load:
#: ``[shared], [map, {coordinates}], [mbarrier]`` or ``[shared], [global], bytes, [mbarrier]``.
_BARRIER_OF_COPY = 2
# the map in "[map, {x, y}]"
_MAP_OPERAND = re.compile(r"\[\s*([^\[\]{},]+?)\s*,\s*\{")


def callee_of(code: Instruction) -> str:
    """Return the name of the function in "call (result), name, (arguments)"."""
    words = [word for word in code.split() if not word.startswith("(")]
    return words[0] if words else ""


# -- which bytes ----------------------------------------------------------------------------------

# threads in which `overlap` compares addresses: the first threads of some warps
_WITNESSES = (0, 32, 64, 96, 128, 256, 384, 512)


def overlap(a: Access, b: Access, exact: bool) -> str:
    """Return whether two accesses touch the same byte: "must", "may", "no" or "apart".

    "no" means that the accesses are in different arrays. "apart" means that the bytes differ in
    every thread that was tried. "must" means that the accesses touch the same byte in a thread that
    was tried. If `exact` is False, a register of an address may have changed, so the result is
    "may" instead of "must". "may" is also the result if no thread could be tried. A thread is tried
    if it runs both accesses and if the unknown parts of the addresses are equal.
    """
    if a.terms is None or b.terms is None:
        return "may"
    if a.origins and b.origins and a.origins.isdisjoint(b.origins):
        return "no"
    apart = False
    kept_of_a, kept_of_b = registers(b.terms), registers(a.terms)
    for thread in _WITNESSES:
        left, right = a.at(thread, kept_of_a), b.at(thread, kept_of_b)
        if left is None or right is None or left[0] != right[0]:
            continue
        apart = True
        for start, size in a.spans:
            # test whether the intervals [start, start + size) of a and [begin, begin + length) of b
            # intersect
            distance = start + left[1] - right[1]
            if any(begin - size < distance < begin + length for begin, length in b.spans):
                return "must" if exact else "may"
    return "apart" if apart else "may"


# -- calls ----------------------------------------------------------------------------------------


#: Name of a function -> the events that stand for a call of this function. Their order is the order
#: that is most likely to break a rule.
Callees = dict[str, tuple[str, ...]]
#: Functions of the CUDA runtime that have no events.
KNOWN_CALLS = ("vprintf", "__assertfail", "malloc", "free")
# events that make an access safe; a call has such an event only if every path of the callee has it
_PASSED = ("fence", "init_fence", "barrier", "commit", "wait")


def summaries(functions: tuple[Function, ...]) -> Callees:
    """Return the events of each function that can be called, including its callees' events."""
    own = {function.name: function for function in functions if not function.is_entry}
    found: Callees = {}

    def visit(name: str, above: tuple[str, ...]) -> tuple[str, ...]:
        if name in found or name not in own or name in above or len(above) > 40:
            return found.get(name, ())
        what = defaultdict(list)
        for block in own[name].blocks:
            for code in block.code:
                event = event_of(code.opcode)
                if event == "call":
                    for inner in visit(callee_of(code), (*above, name)):
                        what[inner].append(block)
                elif event not in ("write", "read") or ".shared" in code.opcode:
                    what[event].append(block)
        # the order that is most likely to break a rule: bulk copies, then fences, then ordinary
        # accesses
        found[name] = (
            *(event for event in ("store", "load") if what[event]),
            *(event for event in _PASSED if _always(own[name], what[event])),
            *(event for event in ("write", "read") if what[event]),
        )
        return found[name]

    for name in own:
        visit(name, ())
    return found


def _always(function: Function, blocks: Sequence[object]) -> bool:
    """Return whether every path through the function passes at least one of the blocks."""
    # search from the entry, and do not continue behind these blocks; the result is False if the
    # search finds an end of the function
    barred = {id(block) for block in blocks}
    work, seen = [0] if function.blocks else [], set()
    while work:
        n = work.pop()
        if n in seen or id(function.blocks[n]) in barred:
            continue
        seen.add(n)
        if not function.blocks[n].next:
            return False
        work += function.blocks[n].next
    return bool(blocks)
