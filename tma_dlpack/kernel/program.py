"""`Program`, a PTX module whose basic blocks are translated to Python functions.

The Python function of a basic block executes the block for a group of threads. The function works
on NumPy arrays with one entry for each thread of the group. A PTX register is a row of a table,
which is an array (slot, thread). There is one table for each width of registers: `W` has the
32-bit registers, `D` the 64-bit registers, `H` the 16-bit and 8-bit registers, and `P` the
predicates. The Python function loads the registers that the block reads, keeps values in local
variables, and stores the registers that are read after the block. It returns the number of the
next block.

`Emitter` writes the Python source of one block. Arithmetic becomes NumPy expressions. All other
instructions become calls of an `Operation` (see `operations`).

Source: PTX ISA 9.0, chapters 4 to 6, and 9.7 for each instruction.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tma_dlpack.kernel.accumulators import Step, steps_of
from tma_dlpack.kernel.emit import CARRY, Emitter, reads_time
from tma_dlpack.kernel.operands import Reg, number_of, operands_of
from tma_dlpack.kernel.operations import Operation, operation_of
from tma_dlpack.ptx import opcodes
from tma_dlpack.ptx.parse import Function, Instruction, Module, parse

# Width of a register in bits, or "pred" -> name of the table for such registers.
_TABLES = {"pred": "P", 1: "P", 8: "H", 16: "H", 32: "W", 64: "D", 128: "Q"}
WARPGROUP_WARPS = 4
# First words of opcodes that end a basic block.
_ENDS = ("bra", "brx", "ret", "exit", "trap")


@dataclass
class Variable:
    """A variable of a module or of a function; alignment and size are in bytes."""

    name: str
    space: str
    align: int
    size: int
    is_extern: bool
    initial: bytes
    #: Addresses that the initial value contains: (offset in `initial`, symbol, bytes to add to the
    #: address of the symbol).
    pointers: tuple[tuple[int, str, int], ...] = ()


@dataclass
class CodeBlock:
    """A basic block with its PTX instructions, its Python function and its successors."""

    code: list[Instruction]
    #: Index of the block in `Code.blocks`.
    label: int
    next: list[int] = field(default_factory=list)
    #: The block's first instruction if all threads of a warp or warpgroup must execute it together;
    #: otherwise None.
    gate: Any = None
    is_gate: bool = False
    run: Any = None
    #: Number of the block's immediate post-dominator. The parts of a split group are merged there.
    join: int = -1
    source: str = ""
    #: Steps on accumulator registers of wgmma (see `accumulators`).
    steps: tuple[Step, ...] = ()


@dataclass
class Code:
    """A translated function."""

    function: Function
    blocks: list[CodeBlock]
    #: Parameter of a device function -> (offset in bytes, size in bytes).
    parameters: dict[str, tuple[int, int]]


class Program:
    """A PTX module with its variables and functions.

    A function is translated when it is used for the first time.
    """

    functions: dict[str, Function]
    variables: dict[str, Variable]

    def __init__(self, ptx: str) -> None:
        self.module: Module = parse(ptx)
        self.functions = {f.name: f for f in self.module.functions}
        self.variables = {v.name: v for v in _variables(ptx)}
        self.codes: dict[str, Code] = {}
        # Name of a register table -> number of used slots.
        self.slots: dict[str, int] = dict.fromkeys("WDHPQ", 0)
        # Name of a function -> name of a register -> (table, slot, type).
        self.tables: dict[str, dict[str, tuple[str, int, str]]] = {}

    def register(self, function: str, name: str) -> tuple[str, int, str] | None:
        """Return (table, slot, type) of a register, or None if `name` is no register."""
        known = self.tables.setdefault(function, {})
        found = known.get(name)
        if found is None:
            kind = self.type_of(function, name)
            if kind is None:
                return None
            table = _TABLES[1 if kind == "pred" else opcodes.bits_of(kind)]
            found = known[name] = table, self.slots[table], kind
            self.slots[table] += 1
        return found

    def type_of(self, function: str, name: str) -> str | None:
        """Return the declared type of a register, or None if `name` is no register."""
        if name == CARRY:
            return "pred"
        declared = self.functions[function].registers
        own = declared.get(name)
        if own is not None:
            return own
        # The declaration ".reg .b32 %r<9>" declares %r0 to %r8. `declared` has this declaration
        # under the key "%r<". "%r3#1" is the register %r3 of an inlined function.
        family = re.fullmatch(r"(.*?)\d+(#\d+)?", name)
        found = declared.get(family[1] + "<") if family else None
        if found is None and family and family[1].endswith("_"):
            return None
        return found

    def code(self, name: str) -> Code:
        """Return a function's code; the first call translates the function."""
        found = self.codes.get(name)
        if found is None:
            found = self.codes[name] = _translate(self, self.functions[name])
        return found

    def timed(self, kernel: str) -> set[tuple[str, int]]:
        """Return the (table, slot) of the registers of a kernel that may depend on the time.

        The set has the registers that the kernel's functions compute from %clock or %globaltimer.
        """
        found = set()
        for name in self.used(kernel)[0]:
            codes = self.functions[name].code
            if not any(reads_time(code.operands) for code in codes):
                continue
            timed: set[str] = set()
            size = -1
            while size != len(timed):
                size = len(timed)
                for code in codes:
                    read, written = Emitter.reads_and_writes(code, operation_of(code))
                    if read & timed or reads_time(code.operands):
                        timed |= written
            places = (self.register(name, register) for register in timed)
            found |= {place[:2] for place in places if place is not None}
        return found

    def used(self, kernel: str) -> tuple[list[str], list[Variable]]:
        """Return (functions, variables) that a kernel uses, directly or in functions it calls."""
        functions: dict[str, None] = {}
        variables: dict[str, Variable] = {}
        waiting = [kernel]
        while waiting:
            name = waiting.pop()
            if name in functions or name in variables:
                continue
            if name in self.functions:
                functions[name] = None
                for code in self.functions[name].code:
                    waiting += _WORD.findall(code.operands)
            elif name in self.variables:
                variables[name] = self.variables[name]
                waiting += [symbol for _, symbol, _ in self.variables[name].pointers]
        ordered = [v for name, v in self.variables.items() if name in variables]
        return list(functions), ordered


_WORD = re.compile(r"[A-Za-z_$][\w$]*")


@lru_cache(maxsize=16)
def program_of(ptx: str) -> Program:
    """Return the `Program` of a PTX text; the result is cached."""
    return Program(ptx)


# -- variables -------------------------------------------------------------------------------------

# For example ".visible .global .align 4 .b8 table[2][4] = {1, 2, 3};".
_VARIABLE = re.compile(
    r"(?<![\w.])(?P<linkage>(?:\.(?:extern|visible|weak|common)\s+)*)"
    r"\.(?P<space>shared|global|const|local)\b"
    r"(?P<words>(?:\s*\.(?:align\s+\d+|attribute\([^)]*\)|v[248]))*)"
    r"\s*\.(?P<type>[a-z]+\d+)\s+(?P<name>[A-Za-z_$%][\w$]*)(?P<dims>(?:\s*\[[^\]]*\])*)"
    r"\s*(?:=\s*(?P<initial>\{[^;]*\}|[^;{]+))?\s*;"
)


def _variables(ptx: str) -> list[Variable]:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
    found = []
    for match in _VARIABLE.finditer(text):
        bits = opcodes.bits_of(match["type"])
        vector = re.search(r"\.v([248])", match["words"])
        align = re.search(r"align\s+(\d+)", match["words"])
        element = bits // 8
        # If a dimension is empty, as in "extern __shared__ x[]", the size is 0.
        size = element * int(vector[1] if vector else 1)
        dims = re.findall(r"\[\s*(\d*)\s*\]", match["dims"])
        for dim in dims:
            size *= int(dim or 0)
        initial, pointers = _initial(match["initial"], match["type"], element)
        found.append(
            Variable(
                match["name"], match["space"], int(align[1]) if align else element,
                max(size, len(initial)), "extern" in match["linkage"], initial, pointers,
            )
        )  # fmt: skip
    return found


def _initial(text: str | None, kind: str, element: int) -> tuple[bytes, tuple[Any, ...]]:
    """Return the bytes of an initialiser, and its pointers in the form of `Variable.pointers`."""
    if text is None:
        return b"", ()
    data, pointers = bytearray(), []
    # An entry is a text such as "generic(table)+8", "table + 8", "0f3F800000" or "17".
    for word in re.findall(r"generic\([^)]*\)(?:\s*\+\s*\d+)?|[^\s,{}]+(?:\s*\+\s*\d+)?", text):
        number = number_of(word)
        if number is None:
            symbol = re.match(r"(?:generic\(\s*)?([A-Za-z_$][\w$]*)\s*\)?(?:\s*\+\s*(\d+))?", word)
            if symbol:
                pointers.append((len(data), symbol[1], int(symbol[2] or 0)))
            number = 0
        if kind in ("f32", "f64") and not re.match(r"0[fFdD]", word):
            data += struct.pack("<f" if kind == "f32" else "<d", float(word))
        else:
            data += (number % (1 << 8 * element)).to_bytes(element, "little")
    return bytes(data), tuple(pointers)


# -- blocks ----------------------------------------------------------------------------------------


def _translate(program: Program, function: Function) -> Code:
    """Split a function into basic blocks, and translate and compile each block."""
    operations = {id(code): operation_of(code) for code in function.code}
    blocks = _blocks(function, operations)
    _post_dominators(blocks)
    reads, writes = [], []
    for block in blocks:
        gen, kill = _reads_and_writes(program, function, block, operations)
        reads.append(gen)
        writes.append(kill)
    # `Program.register` assigns the next free slot to a new register. So ask for the registers of
    # each vector operand in sequence; then the operand is a slice of the table.
    for code in function.code:
        found = operations[id(code)]
        if found is not None and found.register_block:
            for operand in operands_of(code):
                if isinstance(operand, tuple) and operand[0] == "vector":
                    for name in operand[1]:
                        if isinstance(name, Reg):
                            program.register(function.name, name.name)
    live = _live_out(blocks, reads, writes)
    for number, block in enumerate(blocks):
        emitter = Emitter(program, function, block, live[number], writes[number], operations)
        block.source, block.run = emitter.compiled()
    for block, steps in zip(blocks, steps_of(block.code for block in blocks), strict=True):
        block.steps = steps
    return Code(function, blocks, _call_parameters(function))


def _blocks(function: Function, operations: dict[int, Operation | None]) -> list[CodeBlock]:
    """Split a function into basic blocks.

    A block begins at a label, after a branch, after an instruction that may wait, and before an
    instruction that the lanes of a warp must execute together.
    """
    code = function.code
    starts = {0, *function.labels.values()}
    gates: dict[int, Any] = {}
    # Number of whole warps that are known to execute together at this point of the basic block: 0,
    # 1, or 4 (a warpgroup). An instruction for whole warps needs a new block only if it needs more
    # warps than `together`.
    together = 0
    for n, instruction in enumerate(code):
        if n in starts:
            together = 0
        found = operations[id(instruction)]
        needs = WARPGROUP_WARPS if instruction.opcode.startswith("wgmma") else 1
        if found is not None and found.needs_warp and together < needs:
            starts.add(n)
            gates[n] = instruction
            together = needs
        ends = instruction.opcode.split(".")[0] in (*_ENDS, "call")
        if ends or (found is not None and found.pauses):
            starts.add(n + 1)
            together = 0
    ordered = sorted(s for s in starts if s < len(code))
    number_at = {start: n for n, start in enumerate(ordered)}
    blocks = []
    for n, start in enumerate(ordered):
        end = ordered[n + 1] if n + 1 < len(ordered) else len(code)
        block = CodeBlock(code[start:end], n)
        if start in gates:
            block.is_gate, block.gate = True, gates[start]
        blocks.append(block)
    # A label at the end of the function has no block, so its number is the number of blocks.
    last_block = len(blocks)
    labels = {name: number_at.get(at, last_block) for name, at in function.labels.items()}
    for n, block in enumerate(blocks):
        last = block.code[-1]
        base = last.opcode.split(".")[0]
        falls = [n + 1]
        if base == "bra":
            target = labels.get(last.operands.strip(), last_block)
            block.next = [target, *(falls if last.guard else [])]
        elif base == "brx":
            table = function.symbols.get(last.split()[-1], "").split()
            block.next = [labels[name] for name in table if name in labels]
        elif base in ("ret", "exit", "trap"):
            block.next = [last_block, *(falls if last.guard else [])]
        else:
            block.next = falls
        block.labels = labels  # type: ignore[attr-defined]
    return blocks


def _post_dominators(blocks: list[CodeBlock]) -> None:
    """Set `join` of each block to the block's immediate post-dominator.

    The immediate post-dominator is the first later block that is on all paths to the end of the
    function.
    """
    # Use "A Simple, Fast Dominance Algorithm" (Cooper, Harvey, Kennedy) on the reversed graph.
    end = len(blocks)
    doms: list[int | None] = [None] * (end + 1)
    doms[end] = end
    # `order` becomes the post-order of a depth-first walk of the reversed graph. The walk starts at
    # the end of the function.
    order: list[int] = []
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for n, block in enumerate(blocks):
        for successor in block.next:
            before[successor].append(n)
    seen, stack = {end}, [(end, iter(before[end]))]
    while stack:
        node, rest = stack[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(before[other])))
                break
        else:
            order.append(node)
            stack.pop()
    rank = {node: n for n, node in enumerate(order)}

    def meet(a: int, b: int) -> int:
        while a != b:
            while rank[a] < rank[b]:
                a = doms[a]  # type: ignore[assignment]
            while rank[b] < rank[a]:
                b = doms[b]  # type: ignore[assignment]
        return a

    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            known = [s for s in blocks[node].next if s in rank and doms[s] is not None]
            if not known:
                continue
            found = known[0]
            for other in known[1:]:
                found = meet(found, other)
            if doms[node] != found:
                doms[node] = found
                changed = True
    for n, block in enumerate(blocks):
        block.join = end if doms[n] is None else doms[n]  # type: ignore[assignment]


def _reads_and_writes(
    program: Program, function: Function, block: CodeBlock, operations: dict[int, Operation | None]
) -> tuple[set[str], set[str]]:
    """Return (registers that a block reads before it writes them, registers that it writes).

    The two sets are the usual `gen` and `kill` of a liveness analysis.
    """
    gen: set[str] = set()
    kill: set[str] = set()
    if block.is_gate:
        gen |= {reg.name for reg in _registers(operands_of(block.gate))}
    for code in block.code:
        read, wrote = Emitter.reads_and_writes(code, operations[id(code)])
        if code.guard:
            # In a thread whose guard is false, the destination keeps its old value. So the
            # instruction also reads its destination.
            read = read | {code.guard} | wrote
        gen |= read - kill
        kill |= wrote
    return gen, kill


def _registers(operands: Any) -> list[Reg]:
    found = []
    for operand in operands:
        if isinstance(operand, Reg):
            found.append(operand)
        elif isinstance(operand, tuple):
            found += _registers(operand[1:] if isinstance(operand[0], str) else operand)
        elif isinstance(operand, list):
            found += _registers(operand)
    return found


def _live_out(
    blocks: list[CodeBlock], reads: list[set[str]], writes: list[set[str]]
) -> list[set[str]]:
    """Return, for each block, the set of registers that are read after the block."""
    # Iterate `live_in = reads | (live_out - writes)` until no set changes.
    live_in = [set(r) for r in reads] + [set()]
    changed = True
    while changed:
        changed = False
        for n in range(len(blocks) - 1, -1, -1):
            out: set[str] = set().union(*(live_in[s] for s in blocks[n].next))
            new = reads[n] | (out - writes[n])
            if new != live_in[n]:
                live_in[n] = new
                changed = True
    return [set().union(*(live_in[s] for s in block.next)) for block in blocks]


def _call_parameters(function: Function) -> dict[str, tuple[int, int]]:
    """Return parameter -> (offset, size) in bytes, for the parameters of a device function."""
    from tma_dlpack.kernel.arguments import parameters_of

    at, found = 0, {}
    for parameter in parameters_of(function.header):
        at += -at % parameter.align
        found[parameter.name] = at, parameter.size
        at += parameter.size
    return found
