"""The values of a function's registers, as far as the PTX of the function determines them.

A value is a sum of terms and a constant. A term is the product of a symbol and a factor. A symbol
is a shared array, `%tid.x`, a parameter, or an operation on other values. If two registers have
equal computations, they have the same symbol. A register that is loaded from memory, or that
several instructions write, is a symbol of its own. Such a symbol is valid until the next write of
the register (`Symbol.registers`).

A predicate is stored as conditions. A condition means that a value is inside or outside of an
interval. Conditions exclude paths that no thread can take. For example, if a store and its wait are
in two different blocks `if (thread == 0)`, each possible path with the store has the wait, too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from tma_dlpack.ptx.parse import Function, Instruction, Module

Term = tuple["Symbol", int]
#: A sum: (terms, constant). The terms are sorted by the numbers of their symbols.
Value = tuple[tuple[Term, ...], int]
#: A condition on a sum of terms: (terms, low, high, True if the sum is inside of [low, high] or
#: False if it is outside).
Condition = tuple[tuple[Term, ...], int, int, bool]
#: (Conditions that hold if a predicate is true, conditions that hold if it is false).
_Truth = tuple[tuple[Condition, ...], tuple[Condition, ...]]

#: Symbol -> its value in one thread. The value of a loop counter is its value in the first
#: iteration.
Known = dict["Symbol", Value]

# Maximum number of terms of a sum, maximum depth of nested operations, and maximum number of
# registers that the search for a value follows.
_MOST_TERMS, _MOST_DEPTH, _MOST_WRITES = 12, 64, 16
_NONE: Value = (), 0
_HUGE = 1 << 64
#: Number of bytes between the addresses that are assumed for shared arrays. The low 18 bits of each
#: assumed address are 0. A matrix descriptor contains the low 18 bits of an address, so the assumed
#: address of an array does not change a descriptor. The assumed addresses are aligned for every
#: swizzle.
APART = 1 << 18
#: Special register whose value depends on the thread in the block -> (largest value, function). The
#: argument of the function is %tid.x, and the result is the register's value in the thread with
#: this %tid.x and with %tid.y = %tid.z = 0.
_OF_THREAD: dict[str, tuple[int, Callable[[int], int]]] = {
    "%tid.x": (1023, lambda t: t),
    "%tid.y": (1023, lambda t: 0),
    "%tid.z": (63, lambda t: 0),
    "%laneid": (31, lambda t: t % 32),
    "%warpid": (31, lambda t: t // 32),
    "elect": (1, lambda t: int(t % 32 == 0)),
}


@dataclass(eq=False, slots=True)
class Symbol:
    """An unknown part of a value: the operation `op` on `arguments`, or the name `op` alone."""

    number: int  #: Number of the symbol in the order of creation. Terms are sorted by it.
    op: str
    arguments: tuple[Value, ...] = ()
    high: int | None = None  #: Upper bound of the symbol if it is never negative, else None.
    registers: frozenset[str] = frozenset()  #: Registers whose next write changes the symbol.
    origins: frozenset[str] = frozenset()  #: Memory names such as "shared:tile" or "param:map".
    depth: int = 0
    by_thread: bool = False  #: Whether the value depends on the thread within its block.
    kind: str = "b64"  #: Type in which `op` computes: a letter and the number of bits.

    def at(self, thread: int, known: Known) -> Value:
        """Return the symbol's value in the thread with %tid.x = `thread`.

        Parts of the value that are not known remain symbols.
        """
        if self not in known:
            known[self] = self._at(thread, known)
        return known[self]

    def _at(self, thread: int, known: Known) -> Value:
        itself = _value(self)
        if self.op in _OF_THREAD:
            return (), _OF_THREAD[self.op][1](thread)
        # "shfl" is a shuffle from lane 0, so return the argument's value in the first thread of the
        # warp.
        if self.op == "shfl":
            leader = thread // 32 * 32
            value = at_thread(self.arguments[0], leader, known if leader == thread else {})
            return itself if value[0] else value
        values = [at_thread(value, thread, known) for value in self.arguments]
        if self.op == "sum":
            return values[0]
        if self.op not in COMPUTED or len(values) != 2:
            return itself
        (left, a), (right, b) = values
        if left or right:
            return itself
        return (), computed(self.op, self.kind, a, b)


#: Operation -> function of (left operand, right operand, width of their type in bits) (PTX ISA 9.0,
#: 9.7.1 and 9.7.8). Shifts by the width or more are clamped. PTX does not specify the result of a
#: division by zero; here it is 0.
COMPUTED: dict[str, Callable[[int, int, int], int]] = {
    "and": lambda a, b, bits: a & b,
    "or": lambda a, b, bits: a | b,
    "xor": lambda a, b, bits: a ^ b,
    "shl": lambda a, b, bits: a << b if 0 <= b < bits else 0,
    "shr": lambda a, b, bits: a >> min(b & 0xFFFFFFFF, bits),
    "mul": lambda a, b, bits: a * b,
    "mul.hi": lambda a, b, bits: a * b >> bits,
    "div": lambda a, b, bits: (abs(a) // abs(b)) * _sign(a * b) if b else 0,
    "rem": lambda a, b, bits: abs(a) % abs(b) * _sign(a) if b else 0,
    "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b),
}


def _sign(number: int) -> int:
    return -1 if number < 0 else 1


#: Type -> (smallest number, largest number + 1).
_RANGES = {
    f"{letter}{bits}": (-(1 << bits - 1), 1 << bits - 1) if letter == "s" else (0, 1 << bits)
    for letter in "usb"
    for bits in (16, 32, 64, 128)
}


def in_range(number: int, kind: str) -> int:
    """Return a number wrapped to the range of a type such as "u32"."""
    low, high = _RANGES[kind]
    return number if low <= number < high else (number - low) % (high - low) + low


def computed(op: str, kind: str, a: int, b: int) -> int:
    """Return the result of an operation of type `kind`, wrapped to a signed type of this width."""
    shift = b if op in ("shl", "shr") else in_range(b, kind)
    result = COMPUTED[op](in_range(a, kind), shift, int(kind[1:]))
    return in_range(result, "s" + kind[1:])


def _gathered(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Return the sum of terms as one term for each symbol, sorted by the number of the symbol.

    Omit terms whose factor is 0.
    """
    factors: dict[Symbol, int] = {}
    for symbol, factor in terms:
        factors[symbol] = factors.get(symbol, 0) + factor
    kept = [term for term in factors.items() if term[1]]
    if len(kept) > 1:
        kept.sort(key=lambda term: term[0].number)
    return tuple(kept)


def at_thread(value: Value, thread: int, known: Known) -> Value:
    """Return a value in the thread with %tid.x = `thread`; replace the symbols that are known."""
    terms, constant = value
    if not terms:
        return value
    there = [(symbol.at(thread, known), factor) for symbol, factor in terms]
    left = ((part, times * factor) for (inner, _), factor in there for part, times in inner)
    return _gathered(left), constant + sum(number * factor for (_, number), factor in there)


def put_in(value: Value, known: Known, kept: frozenset[str]) -> Value | None:
    """Return a value in which the symbols of `known` are replaced by their values.

    Return None if a remaining symbol depends on a register that is not in `kept`.
    """
    terms, constant = value
    if any(s not in known and s.registers - kept for s, _ in terms):
        return None
    there = [(known.get(symbol, _value(symbol)), factor) for symbol, factor in terms]
    left = ((part, times * factor) for (inner, _), factor in there for part, times in inner)
    return _gathered(left), constant + sum(number * factor for (_, number), factor in there)


def origins(value: Value) -> frozenset[str]:
    """Return the names of the memory that a value may point into, such as "shared:buffer"."""
    return frozenset().union(*(symbol.origins for symbol, _ in value[0]))


def registers(terms: Iterable[Term]) -> frozenset[str]:
    """Return the registers whose next write changes the value of these terms."""
    return frozenset(name for symbol, _ in terms for name in symbol.registers)


def contradicts(a: Condition, b: Condition) -> bool:
    """Return whether two conditions on the same value cannot both be true."""
    if a[0] != b[0]:
        return False
    # Two intervals contradict each other if they are disjoint.
    if a[3] and b[3]:
        return a[2] < b[1] or b[2] < a[1]
    # An interval and an excluded interval contradict each other if the interval is inside of the
    # excluded interval.
    if a[3] != b[3]:
        inner, hole = (a, b) if a[3] else (b, a)
        return hole[1] <= inner[1] and inner[2] <= hole[2]
    return False


@lru_cache(maxsize=1 << 14)
def holds_at(condition: Condition, thread: int) -> bool:
    """Return whether a condition can be true in the thread with %tid.x = `thread`.

    If the value is not known in this thread, the condition can be true.
    """
    return holds_of(condition, at_thread((condition[0], 0), thread, {}))


def holds_of(condition: Condition, value: Value) -> bool:
    """Return whether a condition can be true if its terms have this value."""
    left, number = value
    return bool(left) or (condition[1] <= number <= condition[2]) == condition[3]


def _value(symbol: Symbol) -> Value:
    return ((symbol, 1),), 0


def _is(symbol: Symbol, number: int) -> Condition:
    """Return the condition that a symbol equals a number."""
    return ((symbol, 1),), number, number, True


def _minus(value: Value) -> Value:
    terms, constant = value
    return tuple((symbol, -factor) for symbol, factor in terms), -constant


@dataclass
class Values:
    """The values of all registers of a function, and the conditions of its predicates.

    `of` maps a register to its value if only one instruction writes the register. `predicates` maps
    a predicate register to (conditions that hold if it is true, conditions that hold if it is
    false).
    """

    module: Module
    function: Function
    of: dict[str, Value] = field(default_factory=dict)
    predicates: dict[str, _Truth] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = count()
        self._symbols: dict[tuple[object, ...], Symbol] = {}
        #: Register -> number of instructions that write it.
        self.writes: dict[str, int] = {}
        targets = [written(code) for code in self.function.code]
        for names in targets:
            for name in names:
                self.writes[name] = self.writes.get(name, 0) + 1
        #: Symbol of a shared array -> address that is assumed for the array, a multiple of `APART`.
        self.bases: Known = {}
        #: Register with two writes -> constant that the first write assigns.
        self._firsts: dict[str, int] = {}
        #: Register with several writes -> its writes as (line, value or None if unknown).
        self._definitions: dict[str, list[tuple[int, Value | None]]] = {}
        self._resolved: dict[tuple[str, int], Value | None] = {}
        #: Register with several writes -> value that the last write assigned. The entries are
        #: removed at the next label.
        self._current: dict[str, Value] = {}
        #: Symbol that is 1 if a predicate is true and 0 otherwise -> conditions of this predicate.
        self._truths: dict[Symbol, _Truth] = {}
        starts = {*self.function.labels.values()}
        for place, (code, names) in enumerate(zip(self.function.code, targets, strict=True)):
            if place in starts:
                self._current.clear()
            if names:
                # If operands of an instruction are missing, the value that it writes is unknown.
                with suppress(IndexError):
                    self._read(code, names)
        self._current.clear()

    def conditions(self, code: Instruction) -> tuple[Condition, ...]:
        """Return the conditions under which an instruction is executed."""
        return self.branch(code.guard, code.negated) if code.guard else ()

    def branch(self, guard: str, negated: bool) -> tuple[Condition, ...]:
        """Return the conditions that hold if the predicate `guard` is true.

        With `negated`, return the conditions that hold if it is false.
        """
        if guard not in self.predicates:
            return (_is(self._register(guard), int(not negated)),)
        return self.predicates[guard][negated]

    def address(self, text: str) -> Value:
        """Return the value of an address operand, such as ``%r1+16`` or ``buffer``."""
        found = _ADDRESS.match(text)
        terms, constant = self.operand(found[1] if found else text)
        offset = number_of(found[3]) or 0 if found and found[3] else 0
        return terms, constant + (-offset if found and found[2] == "-" else offset)

    def operand(self, text: str) -> Value:
        """Return the value of an operand, which is a register, a number or a name."""
        known = self.of.get(text) or self._current.get(text)
        if known is not None:
            return known
        number = number_of(text)
        if number is not None:
            return (), number
        space = self.function.symbols.get(text) or self.module.symbols.get(text)
        if space or text in self.function.parameters:
            return _value(self._name(text, space or "param"))
        if text.startswith("%") and _SPECIAL.match(text):
            return _value(self._symbol(text, (), high=_OF_THREAD.get(text, (None,))[0]))
        return _value(self._register(text))

    def first_turn(
        self, value: Value, line: int, kept: frozenset[str], comes: Callable[[int], bool]
    ) -> Known:
        """Return the values that registers with several writes have when a line is first executed.

        `comes` returns whether the thread reaches a line. Consider only the writes that the thread
        reaches. For each register, use the last of these writes above `line`. This write is usually
        the last write that is executed before `line`, because a compiler places the initialisation
        of a loop counter above the loop, and the loop for the remainder above the unrolled loop.
        Registers in `kept` remain symbols.
        """
        found: Known = {}
        self._resolved.clear()
        for name in sorted(registers(value[0]) - kept):
            first = self._first(name, line, kept, comes, _MOST_WRITES)
            if first is not None:
                found[self._register(name)] = first
        return found

    def _first(
        self,
        name: str,
        line: int,
        kept: frozenset[str],
        comes: Callable[[int], bool],
        depth: int,
    ) -> Value | None:
        """Return a register's value when a line is first executed; None if it is unknown."""
        writes = self._definitions.get(name, [])
        at = bisect_left(writes, line, key=lambda write: write[0]) - 1
        while at >= 0 and not comes(writes[at][0]):
            at -= 1
        if at < 0 or depth == 0:
            return None
        key = name, at
        if key not in self._resolved:
            # The computation of a register's value may need the value of the same register. Set the
            # result to None first, so that the recursion ends.
            self._resolved[key] = None
            above, value = writes[at]
            if value is not None:
                known: Known = {}
                for inner in sorted(registers(value[0]) - kept):
                    first = self._first(inner, above, kept, comes, depth - 1)
                    if first is None:
                        return None
                    known[self._register(inner)] = first
                self._resolved[key] = put_in(value, known, kept)
        return self._resolved[key]

    def counts(self, name: str) -> bool:
        """Return whether a register is a loop counter.

        A loop counter has at most one write that sets it. All other writes add a step to it.
        """
        writes = [value for _, value in self._definitions.get(name, [])]
        register = self._register(name)
        steps = [value for value in writes if value and (register, 1) in value[0]]
        return len(writes) - len(steps) <= 1 and bool(steps)

    def stable(self, value: Value, line: int) -> frozenset[str]:
        """Return the registers that a value depends on, except loop counters."""
        found: set[str] = set()
        seen: set[str] = set()
        work = [(name, line) for name in registers(value[0])]
        while work and len(seen) < _MOST_WRITES:
            name, line = work.pop()
            writes = self._definitions.get(name, [])
            # A loop counter has a write that adds a step to it, for example add %r1, %r1, 1.
            steps = any((self._register(name), 1) in (of or _NONE)[0] for _, of in writes)
            at = bisect_left(writes, line, key=lambda write: write[0]) - 1
            if name in seen:
                continue
            seen.add(name)
            if not steps:
                found.add(name)
            above, of = writes[at] if at >= 0 else (0, None)
            work += [(inner, above) for inner in registers((of or _NONE)[0])]
        return frozenset(found)

    def _register(self, name: str) -> Symbol:
        symbol = self._symbol("register", (), name)
        if not symbol.registers:
            symbol.registers = frozenset((name,))
        return symbol

    def _name(self, name: str, space: str) -> Symbol:
        symbol = self._symbol("name", (), name)
        if not symbol.origins:
            symbol.origins = frozenset((f"{space}:{name}",))
            if space == "shared":
                self.bases[symbol] = (), (len(self.bases) + 1) * APART
        return symbol

    def _symbol(
        self,
        op: str,
        arguments: tuple[Value, ...],
        name: str = "",
        high: int | None = None,
        kind: str = "b64",
    ) -> Symbol:
        key = (op, name, kind, *arguments)
        found = self._symbols.get(key)
        if found is None:
            # If operations are nested too deeply, the symbol becomes "unknown". This limits the
            # work and the depth of recursion.
            inner = [symbol for terms, _ in arguments for symbol, _ in terms]
            depth = 1 + max((symbol.depth for symbol in inner), default=0)
            deep = depth > _MOST_DEPTH
            found = Symbol(
                next(self._numbers), "unknown" if deep else op, () if deep else arguments, high,
                frozenset().union(*(symbol.registers for symbol in inner)),
                frozenset().union(*(symbol.origins for symbol in inner)),
                0 if deep else depth,
                op in _OF_THREAD or any(symbol.by_thread for symbol in inner),
                kind,
            )  # fmt: skip
            self._symbols[key] = found
        return found

    def _sum(self, a: Value, b: Value, bits: int = 64) -> Value:
        terms = _wrapped(_gathered((*a[0], *b[0])), bits)
        # A long sum becomes one symbol.
        if len(terms) > _MOST_TERMS:
            terms = ((self._symbol("sum", ((terms, 0),)), 1),)
        return terms, in_range(a[1] + b[1], f"s{bits}")

    def _read(self, code: Instruction, names: list[str]) -> None:
        """Record the values or conditions that an instruction writes to registers."""
        name = names[0]
        words = code.split()
        if self.writes[name] > 1:
            self._read_one_of_several(code, name, words)
            return
        if code.opcode.startswith(("setp", "elect")) or code.opcode.endswith(".pred"):
            self._read_predicate(code, words)
        elif not code.guard and (len(names) == 1 or code.opcode.startswith("shfl")):
            # nvcc writes shfl with two destinations, a value and a predicate. Ignore the predicate.
            value = self._computed(code.opcode, words)
            if value is not None:
                self.of[name] = value

    def _read_one_of_several(self, code: Instruction, name: str, words: list[str]) -> None:
        """Record a write of a register that several instructions write.

        If two writes are `mov x, 0; @p mov x, 1`, also record that x is 1 if p is true and 0
        otherwise.
        """
        value = self._computed(code.opcode, words)
        self._current.pop(name, None)
        if value is not None and not code.guard and not registers(value[0]):
            self._current[name] = value
        if self.writes[name] == 2 and value is not None and not value[0]:
            first = self._firsts.setdefault(name, value[1])
            if code.guard in self.predicates and {first, value[1]} == {0, 1}:
                symbol = self._symbol("select", (), name)
                self._truth(symbol, code.guard, swapped=code.negated ^ (value[1] == 0))
                self.of[name] = _value(symbol)
                return
        register = self._register(name)
        if value is not None:
            register.origins |= origins(value)
        definition = code.line, None if code.guard else value
        self._definitions.setdefault(name, []).append(definition)

    def _truth(self, symbol: Symbol, predicate: str, swapped: bool = False) -> None:
        """Record that a symbol is 1 if a predicate is true and 0 if it is false.

        With `swapped`, the symbol is 0 if the predicate is true and 1 if it is false.
        """
        true, false = self.predicates[predicate]
        self._truths[symbol] = (false, true) if swapped else (true, false)
        symbol.registers = frozenset().union(*(registers(c[0]) for c in (*true, *false)))

    def _read_predicate(self, code: Instruction, words: list[str]) -> None:
        head = code.opcode.split(".")
        # The destination "%p1|%p2" of setp has two predicates. The destination "%r1|%p1" of
        # elect.sync has a register and a predicate.
        target = words[0].split("|")
        if head[0] == "elect":
            symbol = self._symbol("elect", (self.operand(words[-1]),), high=1)
            self._predicate(target[-1], (_is(symbol, 1),))
        elif head[0] == "setp" and len(words) == 3 and len(target) == 1:
            self._compare(target[0], head, words)
        elif head[0] == "not":
            true, false = self._known(words[1])
            self.predicates[words[0]] = false, true
        elif head[0] == "mov" and words[1] in self.predicates:
            self.predicates[words[0]] = self.predicates[words[1]]
        elif head[0] in ("and", "or") and len(words) == 3:
            a, b = self._known(words[1]), self._known(words[2])
            # If "a and b" is true, all conditions of a and all conditions of b hold. If "a and b"
            # is false, it is not known which of a and b is false, so record only that the symbol
            # is 0. For "a or b", true and false are swapped.
            key = tuple((c[0], c[1]) for side in (*a, *b) for c in side[:1])
            symbol = self._symbol(head[0] + ".pred", key, high=1)
            yes, no = _is(symbol, 1), _is(symbol, 0)
            if head[0] == "and":
                self.predicates[words[0]] = (yes, *a[0], *b[0]), (no,)
            else:
                self.predicates[words[0]] = (yes,), (no, *a[1], *b[1])

    def _known(self, name: str) -> _Truth:
        return self.branch(name, False), self.branch(name, True)

    def _predicate(self, name: str, true: tuple[Condition, ...]) -> None:
        (terms, low, high, inside), *_ = true
        self.predicates[name] = true, ((terms, low, high, not inside),)

    def _compare(self, name: str, head: list[str], words: list[str]) -> None:
        """Record the condition of a setp.

        An equality, or an ordered comparison with a constant, tests an interval. An ordered
        comparison of two variables becomes a symbol.
        """
        how, kind = head[1], head[-1]
        if kind[0] == "f" or len(head) != 3:
            return
        a, b = self.operand(words[1]), self.operand(words[2])
        if not b[0] and _KIND.fullmatch(kind):
            b = (), in_range(b[1], kind)
        # Compare a - b, which is the sum of `terms` and `constant`, with 0. So `terms` is compared
        # with -constant.
        terms, constant = _gathered((*a[0], *_minus(b)[0])), a[1] - b[1]
        if not terms:
            return
        if len(terms) == 1 and constant == 0 and how in ("eq", "ne"):
            truth = self._truths.get(terms[0][0])
            if truth:
                self.predicates[name] = truth if how == "ne" else truth[::-1]
                return
        if terms[0][1] < 0 and how in ("eq", "ne"):
            terms, constant = _minus((terms, constant))
        # For an unsigned type, `a` is at least 0. So the interval begins at the value of `terms`
        # for which `a` is 0.
        at, bottom = -constant, -a[1] if kind[0] in "ub" else -_HUGE
        # The difference of two variables may wrap around, so an ordered comparison of two variables
        # is no interval.
        if b[0] and how not in ("eq", "ne"):
            order = {"lt": "lt", "ge": "lt", "gt": "gt", "le": "gt"}.get(how[:2])
            symbol = self._symbol("compare", (a, b), order or how, high=1)
            self._predicate(name, ((((symbol, 1),), 1, 1, how[:2] in ("lt", "gt")),))
            return
        how = _UNSIGNED.get(how, how)
        if how in ("eq", "ne", "lt", "ge", "le", "gt"):
            low, high = (at, at) if how in ("eq", "ne") else (bottom, at - (how in ("lt", "ge")))
            self._predicate(name, ((terms, low, high, how in ("eq", "lt", "le")),))

    def _computed(self, opcode: str, words: list[str]) -> Value | None:
        """Return the value of an integer operation, or None for other operations."""
        head = opcode.split(".")
        if head[-1][:1] == "f" and head[0] != "cvta":
            return None
        args = [self.operand(word) for word in words[1:]]
        op, kind = head[0], head[-1]
        if op in ("mov", "cvta") or (op == "cvt" and kind[0] in "us" and head[1][0] in "us"):
            return None if words[1].startswith("{") else _converted(args[0], head)
        if op == "mapa":
            return _value(self._symbol("mapa", (args[0], args[1])))
        if op == "ld" and "param" in head:
            return _value(self._symbol("parameter", (), words[1]))
        if not _KIND.fullmatch(kind):
            return None
        bits = int(kind[1:])
        if op == "add" and len(args) == 2:
            return self._sum(args[0], args[1], bits)
        if op == "sub" and len(args) == 2:
            return self._sum(args[0], _minus(args[1]), bits)
        if op == "neg":
            return self._sum(_NONE, _minus(args[0]), bits)
        if op == "not":
            return self._binary("xor", kind, args[0], ((), -1))
        # If position and length of a bfi are constants, the result is the bitwise or of two parts:
        # the shifted part of the first operand, and the kept part of the second operand.
        if op == "bfi" and not args[2][0] and not args[3][0] and 0 <= args[2][1] < bits:
            mask = (1 << min(args[3][1] & 0xFF, bits)) - 1
            part = self._binary("and", kind, args[0], ((), mask))
            kept = self._binary("and", kind, args[1], ((), ~(mask << args[2][1])))
            part = self._product(part, ((), 1 << args[2][1]), bits)
            return self._binary("or", kind, kept, part)
        if op in ("mul", "mad"):
            if "hi" in head:
                product = self._binary("mul.hi", kind, args[0], args[1])
            else:
                if "wide" in head:
                    args[:2] = (_narrow(value, kind) for value in args[:2])
                    bits *= 2
                product = self._product(args[0], args[1], bits)
            return product if op == "mul" else self._sum(product, args[2], bits)
        if op == "shl" and not args[1][0] and 0 <= args[1][1] < bits:
            return self._product(args[0], ((), 1 << args[1][1]), bits)
        if op == "shfl" and "idx" in head and len(args) >= 2 and args[1] == ((), 0):
            return _value(self._symbol("shfl", (args[0],), high=_high(args[0])))
        # A selp that selects between 1 and 0 converts a predicate to a number.
        if op == "selp" and words[-1] in self.predicates and {*args[:2]} == {((), 0), ((), 1)}:
            key = tuple((c[0], c[1]) for side in self.predicates[words[-1]] for c in side[:1])
            symbol = self._symbol("truth", key, str(args[0][1]), high=1)
            self._truth(symbol, words[-1], swapped=args[0][1] == 0)
            return _value(symbol)
        return self._binary(op, kind, *args) if op in COMPUTED and len(args) == 2 else None

    def _binary(self, op: str, kind: str, a: Value, b: Value) -> Value:
        if not a[0] and not b[0]:
            return (), computed(op, kind, a[1], b[1])
        # For most operations the bits of the result do not depend on the signedness of the type. So
        # use the same symbol for u32 and s32.
        if op not in _SIGN_MATTERS:
            kind = "b" + kind[1:]
        return _value(self._symbol(op, (a, b), high=_bound(op, a, b), kind=kind))

    def _product(self, a: Value, b: Value, bits: int) -> Value:
        if a[0] and b[0]:
            return _value(self._symbol("mul", (a, b), kind=f"b{bits}"))
        terms, factor = (a, b[1]) if a[0] else (b, a[1])
        scaled = _wrapped(((s, f * factor) for s, f in terms[0]), bits)
        return scaled, in_range(terms[1] * factor, f"s{bits}")


_KIND = re.compile(r"[usb](16|32|64)")
_SIGN_MATTERS = ("shr", "div", "rem", "min", "max", "mul.hi")


def _wrapped(terms: Iterable[Term], bits: int) -> tuple[Term, ...]:
    """Return the terms with each factor wrapped to a signed integer of `bits` bits; omit zeros."""
    factors = ((symbol, in_range(factor, f"s{bits}")) for symbol, factor in terms)
    return tuple(term for term in factors if term[1])


def _narrow(value: Value, kind: str) -> Value:
    """Return a constant value wrapped to a type; other values are unchanged."""
    return value if value[0] else ((), in_range(value[1], kind))


def _converted(value: Value, head: list[str]) -> Value:
    """Return a value after mov or cvt; wrap a constant to the signed type of the result's width."""
    source, target = head[-1], head[-2] if head[0] == "cvt" else head[-1]
    if value[0] or not _KIND.fullmatch(source) or not _KIND.fullmatch(target):
        return value
    return (), in_range(in_range(value[1], source), "s" + target[1:])


#: Comparison for unsigned types -> name of the comparison for all types.
_UNSIGNED = {"lo": "lt", "hs": "ge", "ls": "le", "hi": "gt"}


def _high(value: Value) -> int | None:
    """Return an upper bound of a value that is never negative; None if this is not known."""
    high = value[1]
    for symbol, factor in value[0]:
        if symbol.high is None or factor < 0:
            return None
        high += symbol.high * factor
    return high


def _bound(op: str, a: Value, b: Value) -> int | None:
    """Return an upper bound of a result that is never negative; None if this is not known."""
    if op == "and":
        return min((x[1] for x in (a, b) if not x[0] and x[1] >= 0), default=None)
    high = _high(a)
    if op in ("or", "xor"):
        other = _high(b)
        return None if high is None or other is None else (1 << max(high, other).bit_length()) - 1
    if op == "shr" and not b[0] and 0 <= b[1] < 64 and high is not None:
        return high >> b[1]
    if op == "rem" and not b[0] and b[1] > 0:
        return b[1] - 1
    return high if op in ("div", "min") else None


# An address such as "%r1+16" or "buffer". The groups are name, sign and offset.
_ADDRESS = re.compile(r"([%A-Za-z_$][\w.$#%]*)\s*(?:([+-])\s*(-?\w+))?$")
_SPECIAL = re.compile(
    r"%(?:tid|ntid|ctaid|nctaid|laneid|warpid|smid|gridid|clusterid|nclusterid|cluster_\w+|"
    r"dynamic_smem_size|total_smem_size|aggr_smem_size|is_explicit_cluster|lanemask_\w+)(?:\.[xyz])?$"
)
_REGISTER = re.compile(r"[%A-Za-z_$][\w.$#]*")
#: Prefixes of instructions that write no register, so their first operand is no destination.
_WRITES_NOTHING = (
    "st.", "st ", "red", "bar", "barrier", "bra", "brx", "ret", "exit", "trap", "cp.", "fence",
    "membar", "prefetch", "stmatrix", "tensormap", "wgmma.", "tcgen05", "griddepcontrol",
    "setmaxnreg",
    "mbarrier.init", "mbarrier.inval", "mbarrier.expect_tx", "mbarrier.complete_tx", "nanosleep",
    "discard", "applypriority", "multimem.red", "multimem.st", "pmevent", "brkpt", "call",
)  # fmt: skip


def written(code: Instruction) -> list[str]:
    """Return the registers that an instruction writes.

    The accumulators of wgmma are omitted, because they never contain addresses.
    """
    if code.writes is None:
        code.writes = _written(code)
    return code.writes


def _written(code: Instruction) -> list[str]:
    if code.opcode.startswith(_WRITES_NOTHING):
        return []
    # The first operand is the result, or a vector of results such as {%r1, %r2}.
    operands = code.operands
    if operands[:1] == "{":
        first = operands[1 : operands.find("}")]
    else:
        first = operands[: operands.find(",")] if "," in operands else ""
    return [name for name in _REGISTER.findall(first) if name != "_"]


def number_of(text: str) -> int | None:
    """Return the value of a PTX integer such as ``-12``, ``0x1F`` or ``7U``, or None."""
    found = _WHOLE.fullmatch(text)
    return int(found[1], 0) if found else None


#: An integer constant. PTX constants have at most 64 bits (ISA 9.0, 4.5.1).
_WHOLE = re.compile(r"(-?(?:0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|[1-9][0-9]{0,19}|0))U?")
