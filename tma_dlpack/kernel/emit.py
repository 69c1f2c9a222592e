"""`Emitter`: translate one basic block of PTX into the source of a Python function."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tma_dlpack.kernel import support
from tma_dlpack.kernel.operands import Reg, operands_of
from tma_dlpack.ptx import opcodes
from tma_dlpack.ptx.parse import Function, Instruction

_SPACES = ("global", "shared", "local", "const", "param")
# First words of opcodes without a destination; all other opcodes write their first operand.
_NO_DESTINATION = frozenset(
    ("st", "red", "bra", "brx", "ret", "exit", "trap", "call", "prefetch", "prefetchu", "discard",
     "applypriority", "nanosleep", "setmaxnreg", "pmevent", "brkpt", "multimem")
)  # fmt: skip
# First words of opcodes that are hints for the hardware. A hint changes neither values nor the
# order of memory accesses.
_IGNORED = frozenset(
    ("prefetch", "prefetchu", "discard", "applypriority", "pmevent", "setmaxnreg", "nanosleep")
)
# PTX type -> NumPy type of the same width; `support.NAMES` defines these names.
_VIEWS = {"s8": "i1", "s16": "i2", "s32": "i4", "s64": "i8", "f16": "f2", "f32": "f4", "f64": "f8"}
# Name of a register table -> number of bits of each register in the table.
_TABLE_BITS = {"W": 32, "D": 64, "H": 16, "P": 1}


# Name of the predicate register for the carry flag; no PTX register can have this name.
CARRY = "%carry flag"


def is_carried(code: Instruction) -> bool:
    """Return whether an instruction reads or writes the carry flag."""
    return ".cc." in code.opcode or code.opcode.startswith(("addc.", "subc.", "madc."))


def reads_time(operands: str) -> bool:
    """Return whether the text of operands has a special register with the time."""
    return "%clock" in operands or "%globaltimer" in operands


class UnknownFormError(Exception):
    """Error for an opcode, or for a form of an opcode, that the emitter cannot translate."""


class Emitter:
    """Translator of one basic block.

    `local` maps the name of a PTX register to the Python variable that has the register's bits.
    `live` is the set of registers that are read after this block. `written` is the set of registers
    that this block writes.
    """

    program: Any
    function: Function
    block: Any
    live: set[str]
    written: set[str]
    count: int

    def __init__(
        self,
        program: Any,
        function: Function,
        block: Any,
        live: set[str],
        written: set[str],
        operations: Any,
    ) -> None:
        self.program, self.function, self.block = program, function, block
        self.live, self.written = live, written
        self.operations = operations
        self.lines: list[str] = []
        # Globals of the emitted source: helper functions, and constants K1, K2, ...
        self.names: dict[str, Any] = dict(support.NAMES)
        # `local`: PTX register -> variable v1, v2, ... `dirty` has the registers whose new values
        # have not been stored to the register tables yet.
        self.local: dict[str, str] = {}
        self.dirty: set[str] = set()
        self.count = 0

    # -- registers that an instruction reads and writes ------------------------------------------

    @staticmethod
    def reads_and_writes(code: Instruction, operation: Any) -> tuple[set[str], set[str]]:
        """Return (registers that the instruction reads, registers that the instruction writes)."""
        operands = operands_of(code)
        base = code.opcode.split(".")[0]
        if operation is not None:
            written = operation.destinations
        else:
            written = 0 if base in _NO_DESTINATION else 1
        first = _names(operands[:written])
        read = _names(operands[written:])
        if operation is not None and operation.updates:
            read |= first
        if is_carried(code):
            # addc, subc and madc read the carry flag. The modifier .cc writes the carry flag.
            read |= {CARRY} if base[-1] == "c" else set()
            first |= {CARRY} if ".cc." in code.opcode else set()
        return read, first

    # -- variables -------------------------------------------------------------------------------

    def new(self, expression: str) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.lines.append(f"{name} = {expression}")
        return name

    def constant(self, value: Any) -> str:
        self.count += 1
        name = f"K{self.count}"
        self.names[name] = value
        return name

    def register(self, name: str) -> tuple[str, int, str] | None:
        found: tuple[str, int, str] | None = self.program.register(self.function.name, name)
        return found

    def value(self, name: str) -> str:
        """Return the name of the variable that has a register's bits; emit a load if needed."""
        found = self.local.get(name)
        if found is None:
            place = self.register(name)
            if place is None:
                raise UnknownFormError(f"the register {name}")
            table, slot, _ = place
            if table == "Q":
                # Table Q (128 bits) has no array, because the emitter does not support registers of
                # 128 bits.
                raise UnknownFormError("a register of 128 bits")
            # The row may be a NumPy view of the register table. If this block writes the register,
            # copy the row, because the variable must keep the old value.
            copy = ".copy()" if name in self.written else ""
            found = self.local[name] = self.new(f"{table}[{slot}, ix]{copy}")
        return found

    def assign(self, name: str, variable: str) -> None:
        self.local[name] = variable
        self.dirty.add(name)

    def bits(self, operand: Any, kind: str = "") -> str:
        """Return an expression for an operand's bits.

        A constant gets the width of the PTX type `kind`, or 64 bits if `kind` is empty.
        """
        if isinstance(operand, Reg):
            if self.register(operand.name) is not None:
                return self.value(operand.name)
            return f"A[{operand.name!r}]"
        if isinstance(operand, int):
            size = opcodes.bits_of(kind) if kind else 64
            if kind == "pred":
                return self.constant(np.bool_(operand))
            unsigned = opcodes.UNSIGNED[max(8, size)]
            return self.constant(unsigned(operand % (1 << max(8, size))))
        if operand[0] == "special":
            return self.special(operand[1])
        if operand[0] == "sum":
            base = self.bits(operand[1], kind)
            return f"({base} + {self.constant(np.uint64(operand[2] % (1 << 64)))})"
        if operand[0] == "not":
            return f"(~{self.bits(operand[1], 'pred')})"
        if operand[0] == "vector" and len(operand[1]) == 1:
            return self.bits(operand[1][0], kind)
        raise UnknownFormError("an operand")

    def special(self, name: str) -> str:
        base, _, part = name[1:].partition(".")
        axis = "xyzw".index(part) if part else 0
        if base == "tid":
            return f"B.tid[{axis}][ix]"
        if base in ("laneid", "warpid") or base.startswith("lanemask_"):
            return f"B.{base}[ix]"
        if reads_time(name):
            self.lines.append("g.polled('time')")
        return f"B.special({base!r}, {axis})"

    def typed(self, operand: Any, kind: str) -> str:
        """Return an expression for an operand's values as numbers of a PTX type."""
        if kind == "pred":
            return self.bits(operand, kind)
        text = self.bits(operand, kind)
        own = opcodes.bits_of(kind)
        if isinstance(operand, Reg) and (place := self.register(operand.name)) is not None:
            if opcodes.bits_of(place[2]) != own or own == 8:
                return f"read({kind!r}, {text})"
        elif not isinstance(operand, int):
            # Special registers and addresses of symbols may be wider or narrower than `kind`.
            unsigned = opcodes.UNSIGNED[own].__name__
            text = f"{text}.astype({unsigned})"
        if kind == "bf16":
            return f"read('bf16', {text})"
        view = _VIEWS.get(kind)
        return f"{text}.view({view})" if view else text

    def address(self, operand: Any) -> str:
        """Return an expression for an address as uint64."""
        _, base, offset = operand
        if isinstance(base, int):
            return self.constant(np.uint64((base + offset) % (1 << 64)))
        text = self.bits(base)
        if isinstance(base, Reg):
            place = self.register(base.name)
            if place is None or place[0] != "D":
                text = f"{text}.astype(uint64)"
        elif base[0] != "sum":
            text = f"{text}.astype(uint64)"
        if offset:
            text = f"({text} + {self.constant(np.uint64(offset % (1 << 64)))})"
        return text

    def store_result(self, code: Instruction, operand: Any, kind: str, expression: str) -> None:
        """Assign typed values to a destination register."""
        if operand is None:
            return
        if not isinstance(operand, Reg):
            raise UnknownFormError("a destination")
        place = self.register(operand.name)
        if place is None:
            raise UnknownFormError(f"the register {operand.name}")
        declared = place[2]
        # The tables store registers as unsigned integers. If the result has the register's width,
        # reinterpret the bits of the result. Otherwise extend or truncate the result.
        same = opcodes.bits_of(declared) == opcodes.bits_of(kind) and kind != "bf16"
        if kind == "pred" or (same and kind[0] in "bu"):
            text = expression
        elif same:
            text = f"({expression}).view({opcodes.UNSIGNED[opcodes.bits_of(kind)].__name__})"
        else:
            text = f"written({kind!r}, {expression}, {declared!r})"
        self.put(code, operand.name, text)

    def put(self, code: Instruction, name: str, text: str) -> None:
        """Assign bits to a register; a thread with a false guard keeps the register's old bits."""
        if code.guard:
            text = f"where({self.guard(code)}, {text}, {self.value(name)})"
            self.assign(name, self.new(text))
        elif re.fullmatch(r"v\d+", text):
            self.assign(name, text)
        else:
            self.assign(name, self.new(text))

    def guard(self, code: Instruction) -> str:
        variable = self.value(code.guard)
        return f"(~{variable})" if code.negated else variable

    def mask(self, code: Instruction) -> str:
        return f"mask_of({self.guard(code)}, n)" if code.guard else "None"

    # -- the block -------------------------------------------------------------------------------

    def compiled(self) -> tuple[str, Any]:
        """Return the Python source of the block, and the compiled function."""
        result = None
        for code in self.block.code:
            before = len(self.lines)
            try:
                result = self.instruction(code)
            except (UnknownFormError, KeyError, ValueError, IndexError, TypeError) as error:
                # Emit a call that raises the error when a thread executes the instruction. Do not
                # raise it now, because many kernels contain code that never runs on this target.
                del self.lines[before:]
                self.lines.append(f"M.unknown(g, {self.constant(code)}, {str(error)!r})")
                result = None
                for name in self.reads_and_writes(code, None)[1]:
                    self.local.pop(name, None)
        self.write_back()
        self.lines.append(result or f"return {self.block.label + 1}")
        # In the emitted source, g is the group of threads, B is the block of these threads, and M
        # is the machine. ix are the columns of the group in the register tables W, D, H and P.
        head = ["def block(g, B):", "M = B.machine", "ix, n, A = g.index, g.n, B.addresses"]
        head.append("W, D, H, P = B.W, B.D, B.H, B.P")
        source = "\n    ".join(head + self.lines)
        scope = self.names
        exec(compile(source, f"<{self.function.name} {self.block.label}>", "exec"), scope)
        return source, scope["block"]

    def write_back(self) -> None:
        """Emit the stores of new register values that are read after this block."""
        for name in sorted(self.dirty & self.live):
            table, slot, _ = self.register(name)  # type: ignore[misc]
            self.lines.append(f"{table}[{slot}, ix] = {self.local[name]}")

    def instruction(self, code: Instruction) -> str | None:
        """Emit one instruction; return the statement that ends the block, or None."""
        words = code.opcode.split(".")
        base = words[0]
        operation = self.operations[id(code)]
        operands = operands_of(code)
        if operation is not None:
            return self.operation(code, operation, operands)
        if base == "nanosleep":
            self.lines.append("g.polled('time')")
        if base in _IGNORED:
            return None
        method = getattr(self, f"emit_{base}", None)
        if method is not None:
            found: str | None = method(code, words, operands)
            return found
        self.arithmetic(code, words, operands)
        return None

    # -- operations ------------------------------------------------------------------------------

    def operation(self, code: Instruction, operation: Any, operands: list[Any]) -> str | None:
        written = operation.destinations
        targets, sources = operands[:written], operands[written:]
        if operation.updates:
            sources = operands
        arguments = [self.argument(o, operation.register_block) for o in sources]
        names = _register_names(targets)
        run, at = self.constant(operation.run), self.constant(code)
        block = operation.register_block and any(_is_vector(t) for t in targets)
        # In a thread whose guard is false, the destination registers keep their old values. So pass
        # the old values to the operation.
        olds = "()"
        if code.guard and names:
            if block:
                olds = f"({self.rows(names)},)"
            else:
                olds = f"({', '.join(self.value(n) if n else 'None' for n in names)},)"
        given = "".join(argument + ", " for argument in arguments)
        call = f"call({run}, g, {at}, {self.mask(code)}, ({given}), {olds})"
        if not names:
            self.lines.append(call)
        elif operation.pauses:
            result = self.new(call)
            # The results are known only after the operation has waited, so `Group.later` stores
            # them at that time.
            places = self.constant([self.register(n) if n else None for n in names])
            self.lines.append(f"g.later({result}, {places})")
            for name in names:
                self.local.pop(name, None)
                self.dirty.discard(name)
        elif block:
            result = self.new(call)
            self.store_rows(names, f"{result}[0]")
        else:
            result = self.new(call)
            for n, name in enumerate(names):
                if name:
                    place = self.register(name)
                    if place is None:
                        raise UnknownFormError(f"the register {name}")
                    # Convert the result to the width of the register. A predicate needs no
                    # conversion.
                    kind = _TABLE_BITS[place[0]]
                    text = f"{result}[{n}]"
                    if kind > 1:
                        text = f"sized({text}, {opcodes.UNSIGNED[kind].__name__})"
                    self.assign(name, self.new(text))
        if operation.pauses:
            return f"return {self.block.label + 1}"
        return None

    def argument(self, operand: Any, as_block: bool) -> str:
        """Return an expression for an operand of `Operation.run`."""
        if operand is None:
            return "None"
        if isinstance(operand, Reg):
            if self.register(operand.name) is not None:
                return self.value(operand.name)
            if operand.name in self.program.variables:
                return f"A[{operand.name!r}]"
            return repr(operand.name)
        if isinstance(operand, int):
            return repr(operand)
        if operand[0] == "address":
            return self.address(operand)
        if operand[0] == "vector":
            if as_block:
                names = _register_names([operand])
                if all(n and self.register(n) is not None for n in names):
                    return self.rows(names)
            parts = "".join(self.argument(part, False) + ", " for part in operand[1])
            return f"({parts})"
        if operand[0] in ("tuple", "list"):
            parts = "".join(self.argument(part, False) + ", " for part in operand[1])
            return f"({parts})"
        return self.bits(operand)

    def slots(self, names: list[str]) -> tuple[str, list[int]]:
        places = [self.register(name) for name in names]
        tables = {place[0] for place in places if place is not None}
        if len(tables) != 1 or None in places:
            raise UnknownFormError("registers of several widths")
        return tables.pop(), [place[1] for place in places]  # type: ignore[index]

    def rows(self, names: list[str]) -> str:
        """Return an expression for registers as one array (registers, threads).

        The expression reads the register table, so emit stores of the registers' new values first.
        """
        table, slots = self.slots(names)
        self.flush(names)
        # NumPy reads neighbouring slots as a slice, without a copy.
        if slots == list(range(slots[0], slots[0] + len(slots))):
            return f"{table}[{slots[0]}:{slots[0] + len(slots)}, ix]"
        return f"{table}[{self.constant(np.array(slots))}][:, ix]"

    def flush(self, names: list[str]) -> None:
        """Emit stores of those registers among `names` that have new values."""
        for name in names:
            if name in self.dirty:
                table, slot, _ = self.register(name)  # type: ignore[misc]
                self.lines.append(f"{table}[{slot}, ix] = {self.local[name]}")
                self.dirty.discard(name)

    def store_rows(self, names: list[str], text: str) -> None:
        table, slots = self.slots(names)
        for name in names:
            self.local.pop(name, None)
            self.dirty.discard(name)
        if slots == list(range(slots[0], slots[0] + len(slots))):
            self.lines.append(f"{table}[{slots[0]}:{slots[0] + len(slots)}, ix] = {text}")
        else:
            self.lines.append(f"scatter({table}, {self.constant(np.array(slots))}, ix, {text})")

    # -- control flow ----------------------------------------------------------------------------

    def emit_bra(self, code: Instruction, words: list[str], operands: list[Any]) -> str:
        target = self.block.labels.get(code.operands.strip())
        if target is None:
            raise UnknownFormError(f"the label {code.operands.strip()}")
        if not code.guard:
            return f"return {target}"
        guard = self.new(f"{self.guard(code)}")
        return f"return g.branch({guard}, {target}, {self.block.label + 1}, {self.block.join})"

    def emit_brx(self, code: Instruction, words: list[str], operands: list[Any]) -> str:
        if code.guard:
            raise UnknownFormError("a guarded brx.idx")
        # The last operand is the name of a .branchtargets directive, which lists the labels.
        names = self.function.symbols.get(code.split()[-1], "").split()
        table = self.constant([self.block.labels[name] for name in names])
        index = self.new(self.bits(operands[0], "u32"))
        return f"return g.branch_to({index}, {table}, {self.block.join})"

    def emit_ret(self, code: Instruction, words: list[str], operands: list[Any]) -> str:
        mask = self.new(self.mask(code))
        return f"return g.leave({mask}, {self.block.label + 1}, {self.block.join}, False)"

    def emit_exit(self, code: Instruction, words: list[str], operands: list[Any]) -> str:
        mask = self.new(self.mask(code))
        return f"return g.leave({mask}, {self.block.label + 1}, {self.block.join}, True)"

    def emit_trap(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        self.lines.append(f"trap(g, {self.constant(code)}, {self.mask(code)})")

    def emit_call(self, code: Instruction, words: list[str], operands: list[Any]) -> str:
        results: list[str] = []
        rest: list[Any] = list(operands)
        # The operands are (results), function, (arguments), prototype. A call without results or
        # without arguments omits the empty list.
        if rest and _is_list(rest[0]):
            results = [o.name for o in rest.pop(0)[1]]
        if not rest or not isinstance(rest[0], Reg) or code.guard:
            raise UnknownFormError("a guarded call")
        name, lists = rest[0].name, rest[1:]
        given = [o.name for o in lists[0][1]] if lists and _is_list(lists[0]) else []
        at = self.constant(code)
        rest_text = f"{given!r}, {results!r}, {self.block.label + 1}"
        if self.register(name) is not None:
            return f"return g.call_by_address({at}, {self.value(name)}, {rest_text})"
        return f"return g.call({at}, {name!r}, {rest_text})"

    # -- memory ----------------------------------------------------------------------------------

    def access(self, words: list[str]) -> tuple[str, str, int, str]:
        """Return (state space, type, number of elements, memory semantics) of an ld or st."""
        spaces = [w.split("::")[0] for w in words[1:]]
        space = next((w for w in spaces if w in _SPACES), "")
        count = next((int(w[1]) for w in words if w in ("v2", "v4", "v8")), 1)
        semantics = next(
            (w for w in words if w in ("volatile", "relaxed", "acquire", "release")), "weak"
        )
        kind = words[-1]
        if opcodes.bits_of(kind) > 64 or kind not in opcodes.NUMPY:
            raise UnknownFormError(f"the type {kind}")
        return space, kind, count, semantics

    def emit_ld(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        space, kind, count, semantics = self.access(words)
        size = opcodes.bits_of(kind) // 8
        targets = operands[0][1] if _is_vector(operands[0]) else [operands[0]]
        where = operands[1]
        if space == "param":
            # In `[name + offset]`, `name` is the parameter. In `[register]`, the register has the
            # generic address of a parameter.
            name = where[1].name if isinstance(where[1], Reg) else None
            if name is None or self.register(name) is not None:
                mask, at = self.mask(code), self.address(where)
                text = f"M.memory.load(g, {mask}, '', {at}, {size}, {count}, 'weak')"
            else:
                text = f"B.parameter(g, {name!r}, {where[2]}, {size}, {count})"
        else:
            # Constant memory is in the same kind of regions as global memory. So read it by its
            # generic address. The empty name of a state space stands for generic addresses.
            if space in ("const", "local"):
                space = "" if space == "const" else "local"
            self.lines.append(f"g.code = {self.constant(code)}")
            text = (
                f"M.memory.load(g, {self.mask(code)}, {space!r}, {self.address(where)}, {size}, "
                f"{count}, {semantics!r})"
            )
        found = self.new(text)
        if semantics != "weak":
            self.lines.append("g.polled('memory')")
        for n, target in enumerate(targets):
            raw = f"{found}[{n}]"
            view = _VIEWS.get(kind)
            value = f"{raw}.view({view})" if view else raw
            if kind == "bf16":
                kind = "b16"
            self.store_result(code, target, kind, value)

    def emit_st(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        space, kind, _, semantics = self.access(words)
        size = opcodes.bits_of(kind) // 8
        sources = operands[1][1] if _is_vector(operands[1]) else [operands[1]]
        raw = f"b{8 * size}"
        values = "".join(self.typed(source, raw) + ", " for source in sources)
        where = operands[0]
        if space == "param":
            name = where[1].name
            self.lines.append(f"B.set_parameter(g, {name!r}, {where[2]}, {size}, ({values}))")
            return
        self.lines.append(f"g.code = {self.constant(code)}")
        self.lines.append(
            f"M.memory.store(g, {self.mask(code)}, {space!r}, {self.address(where)}, {size}, "
            f"[{values}], {semantics!r})"
        )

    def emit_atom(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        self.atomic(code, words, operands[0], operands[1:])

    def emit_red(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        self.atomic(code, words, None, operands)

    def atomic(self, code: Instruction, words: list[str], target: Any, operands: list[Any]) -> None:
        spaces = [w.split("::")[0] for w in words]
        space = next((w for w in spaces if w in ("global", "shared")), "")
        semantics = next((w for w in words if w in ("acquire", "release", "acq_rel")), "relaxed")
        kind = words[-1]
        op = next(w for w in words[1:] if w in support.ATOMICS)
        size = opcodes.bits_of(kind) // 8
        vector = _is_vector(operands[1])
        raw = f"b{8 * size}"
        where, *values = operands
        # In a vector atomic such as red.v4.f32, each element is a separate atomic operation. So
        # emit one call for each element.
        columns = [v[1] if _is_vector(v) else [v] for v in values]
        targets = target[1] if _is_vector(target) else [target]
        combine = self.constant(support.atomic(op, kind))
        mask, at = self.mask(code), self.address(where)
        self.lines.append(f"g.code = {self.constant(code)}")
        for n in range(len(columns[0])):
            given = ", ".join(self.typed(column[n], raw) for column in columns)
            text = (
                f"M.memory.atomic(g, {mask}, {space!r}, {at} + uint64({n * size}), {size}, "
                f"{semantics!r}, {combine}, {given})"
            )
            result = self.new(text)
            if target is not None:
                self.store_result(code, targets[n] if vector else target, raw, result)

    def emit_cvta(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        to = "to" in words
        space = next(w.split("::")[0] for w in words[1:] if w.split("::")[0] in _SPACES)
        text = self.typed(operands[1], words[-1])
        if isinstance(operands[1], int):
            text = f"uint64({text})"
        # A global address equals its generic address. For a shared or local address, add or
        # subtract the first generic address of this state space.
        window = {"shared": "SHARED_WINDOW", "local": "LOCAL_WINDOW"}.get(space)
        if window:
            text = f"({text}.astype(uint64) {'-' if to else '+'} {window})"
            self.store_result(code, operands[0], "u64", text)
        else:
            self.store_result(code, operands[0], words[-1], text)

    def emit_isspacep(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        space = words[1].split("::")[0]
        a = self.typed(operands[1], "u64")
        tests = {
            "shared": f"({a} >= SHARED_WINDOW)",
            "local": f"(({a} >= LOCAL_WINDOW) & ({a} < SHARED_WINDOW))",
            "global": f"({a} < LOCAL_WINDOW)",
            "param": f"({a} - M.parameters_first < uint64(len(M.parameters)))",
        }
        if space not in tests:
            raise UnknownFormError(f"the space {space}")
        self.store_result(code, operands[0], "pred", tests[space])

    def emit_mapa(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        kind = words[-1]
        a, rank = self.typed(operands[1], kind), self.typed(operands[2], "u32")
        self.store_result(code, operands[0], kind, f"mapped({a}, {rank})")

    def emit_getctarank(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        a = self.typed(operands[1], words[-1])
        # Bits 24 to 31 of a shared address are the rank of the block (see `memory`).
        text = f"({a}.astype(uint64) >> uint64(24) & uint64(255)).astype(uint32)"
        self.store_result(code, operands[0], "u32", text)

    # -- values ----------------------------------------------------------------------------------

    def emit_mov(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        kind = words[-1]
        target, source = operands
        if _is_vector(target):
            # mov.b64 {a, b}, c cuts c into parts: a gets the lowest bits.
            parts = target[1]
            part = opcodes.bits_of(kind) // len(parts)
            whole = self.new(self.typed(source, f"b{opcodes.bits_of(kind)}"))
            for n, one in enumerate(parts):
                if one is not None:
                    text = f"cut({whole}, {n * part}, {opcodes.UNSIGNED[part].__name__})"
                    self.store_result(code, one, f"b{part}", text)
            return
        # mov.b64 c, {a, b} joins the parts: a has the lowest bits.
        if _is_vector(source):
            part = opcodes.bits_of(kind) // len(source[1])
            values = ", ".join(self.typed(one, f"b{part}") for one in source[1])
            whole = opcodes.UNSIGNED[opcodes.bits_of(kind)].__name__
            text = f"glued({part}, {whole}, {values})"
            self.store_result(code, target, f"b{opcodes.bits_of(kind)}", text)
            return
        if kind == "pred":
            self.store_result(code, target, kind, self.bits(source, kind))
            return
        raw = f"b{opcodes.bits_of(kind)}"
        self.store_result(code, target, raw, self.typed(source, raw))

    def emit_setp(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        # For example setp.lt.and.f32 p|q, a, b, c sets p = (a < b) & c and q = ~(a < b) & c.
        kind, modifiers = words[-1], [word for word in words[1:-1] if word != "ftz"]
        test = opcodes.comparison(modifiers[0], kind, "ftz" in words and kind == "f32")
        combine = {"and": "&", "or": "|", "xor": "^"}.get(modifiers[-1])
        if test is None or kind.endswith("x2") or len(modifiers) != 1 + bool(combine):
            raise UnknownFormError(code.opcode)
        a, b = self.new(self.typed(operands[1], kind)), self.new(self.typed(operands[2], kind))
        found = self.new(f"({_renamed(test, {'a': a, 'b': b})})")
        targets = operands[0][1:] if _is_pair(operands[0]) else (operands[0],)
        texts = [found, f"(~{found})"]
        if combine:
            c = self.bits(operands[3], "pred")
            texts = [f"({text} {combine} {c})" for text in texts]
        for target, text in zip(targets, texts, strict=False):
            self.store_result(code, target, "pred", text)

    def emit_createpolicy(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        self.put(code, operands[0].name, self.new("uint64(0)"))

    def carried(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        """Emit integer arithmetic with the carry flag: add.cc, addc, sub.cc, subc, mad.cc, madc."""
        kind, base = words[-1], words[0].removesuffix("c")
        carry_in = words[0] in ("addc", "subc", "madc")
        part = next((word for word in words[1:-1] if word in ("lo", "hi")), "lo")
        raw = f"b{opcodes.bits_of(kind)}"
        a, b, *c = (self.typed(o, kind if base == "mad" else raw) for o in operands[1:])
        flag = self.value(CARRY) if carry_in else "False"
        # mad.lo.cc and mad.hi.cc multiply, then add with carry.
        if base == "mad":
            product = f"mul_hi({a}, {b})" if part == "hi" else f"{a} * {b}"
            a, b = f"({product}).view({opcodes.UNSIGNED[opcodes.bits_of(kind)].__name__})", c[0]
            base = "add"
        found = self.new(f"with_carry({a}, {b}, {flag}, {base == 'sub'})")
        self.store_result(code, operands[0], raw, f"{found}[0]")
        if "cc" in words:
            self.put(code, CARRY, f"{found}[1]")

    def arithmetic(self, code: Instruction, words: list[str], operands: list[Any]) -> None:
        """Emit an instruction that has a row in the tables of `opcodes`."""
        if is_carried(code):
            self.carried(code, words, operands)
            return
        value = opcodes.value_of(code.opcode, len(operands) - 1)
        if value is None:
            raise UnknownFormError("")
        given = [self.typed(o, kind) for o, kind in zip(operands[1:], value.operands, strict=True)]
        # In NumPy, a shift by the width of the type or more is undefined. `shift` handles constant
        # counts.
        if words[0] in ("shl", "shr") and isinstance(operands[2], int):
            text = self.shift(words, given[0], value.result, operands[2])
        elif value.run is not None:
            text = f"{self.constant(value.run)}({', '.join(given)})"
        else:
            text = value.expression
            # If the expression uses an operand twice, assign the operand to a variable first, so
            # that the operand is computed once.
            used = {
                letter: one
                if text.count(letter) == 1 or re.fullmatch(r"[vK]\d+", one)
                else self.new(one)
                for letter, one in zip("abcd", given, strict=False)
            }
            text = _renamed(text, used)
        self.store_result(code, operands[0], value.result, f"({text})")

    def shift(self, words: list[str], value: str, kind: str, count: int) -> str:
        """Return an expression for a shift by a constant count.

        If the count is at least the width of the type, a right shift of a signed number returns -1
        for a negative number and 0 otherwise. All other shifts by such a count return 0.
        """
        size = opcodes.bits_of(kind)
        if count < 0 or (count >= size and kind[0] != "s"):
            return f"np.zeros_like({value})"
        number = self.constant(opcodes.NUMPY[kind](min(count, size - 1)))
        return f"{value} {'<<' if words[0] == 'shl' else '>>'} {number}"


def _renamed(expression: str, values: dict[str, str]) -> str:
    """Replace the operands a, b, c and d in an expression by variables."""
    # Match a, b, c and d only as whole names. Do not match a letter inside a name ("np.abs"), or
    # the name of a function that is called ("a(").
    return re.sub(r"(?<![\w.])([abcd])(?![\w(])", lambda m: values.get(m[1], m[1]), expression)


def _is_vector(operand: Any) -> bool:
    return isinstance(operand, tuple) and not isinstance(operand, Reg) and operand[0] == "vector"


def _is_list(operand: Any) -> bool:
    return isinstance(operand, tuple) and not isinstance(operand, Reg) and operand[0] == "list"


def _is_pair(operand: Any) -> bool:
    return isinstance(operand, tuple) and not isinstance(operand, Reg) and operand[0] == "pair"


def _names(operands: list[Any]) -> set[str]:
    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, Reg):
            found.add(operand.name)
        elif isinstance(operand, tuple):
            for part in operand[1:]:
                found |= _names(part if isinstance(part, list) else [part])
    return found


def _register_names(operands: list[Any]) -> list[Any]:
    """Return the names of the destination registers in order, with None for `_`."""
    found: list[Any] = []
    for operand in operands:
        if operand is None:
            found.append(None)
        elif isinstance(operand, Reg):
            found.append(operand.name)
        elif operand[0] == "pair":
            found += _register_names(list(operand[1:]))
        elif operand[0] == "vector":
            found += _register_names(operand[1])
        else:
            found.append(None)
    return found
