"""Tables of the instructions that compute a value, one row for each operation with its modifiers.

A row is ``name | operands | result | value``. The columns `operands` and `result` have one letter
for the type of each operand and of the result: `t` is the instruction's type, `w` is the type of
twice the width, `u` is u32, `p` is a predicate, and `r` is the untyped type with the same width as
the instruction's type, such as b32. The column `value` is a Python expression of the operands `a`,
`b`, `c` and `d`, which are typed arrays. The expression may call the functions of `numbers` and
`integers`. In the expression, ``{t}`` is the PTX type, ``{n}`` is the NumPy type, ``{w}`` is the
NumPy type of twice the width, and ``{m}`` is the last modifier.

If an instruction has a modifier that no row and no function of this module supports, the
instruction is unknown. Its result is never guessed.

Source: PTX ISA 9.0, 9.7.1 to 9.7.6 (integers, floating point, comparison, logic), 9.7.9 (cvt).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.ptx import integers, numbers
from tma_dlpack.ptx.numbers import NUMPY, UNSIGNED, WIDER, bits_of, each_half, read, written

__all__ = ["NAMES", "NUMPY", "UNSIGNED", "WIDER", "Value", "bits_of", "comparison", "each_half",
           "numbers", "read", "value_of", "written"]  # fmt: skip


class Value(NamedTuple):
    """The computation of an instruction, with the types of its operands and of its result.

    `expression` is a Python expression of the operands a, b, c and d. If `expression` is empty, the
    function `run` computes the result from the operands.
    """

    operands: tuple[str, ...]
    result: str
    expression: str = ""
    run: Callable[..., Any] | None = None


#: Global names that expressions may use.
NAMES: dict[str, Any] = {
    **{name: value for room in (numbers, integers) for name, value in vars(room).items()
       if callable(value)},
    **{name: getattr(np, name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16",
       "uint32", "uint64", "float16", "float32", "float64", "where")},
    "np": np,
}  # fmt: skip


def _rows(text: str) -> dict[str, tuple[str, str, str]]:
    """Return the rows of a table as name -> (operands, result, value).

    If a row has several names, each name gets this row.
    """
    found = {}
    for line in text.strip().splitlines():
        names, operands, result, value = (part.strip() for part in line.split("|", 3))
        found.update(dict.fromkeys(names.split(), (operands, result, value)))
    return found


#: Integer and bit instructions. A name includes all modifiers, but not the type.
INTEGER = _rows("""
add | tt | t | a + b
sub | tt | t | a - b
add.sat | tt | t | saturated({t!r}, a.astype(int64) + b.astype(int64))
sub.sat | tt | t | saturated({t!r}, a.astype(int64) - b.astype(int64))
mul.lo | tt | t | a * b
mul.hi | tt | t | mul_hi(a, b)
mul.wide | tt | w | a.astype({w}) * b.astype({w})
mad.lo | ttt | t | a * b + c
mad.hi | ttt | t | mul_hi(a, b) + c
mad.wide | ttw | w | a.astype({w}) * b.astype({w}) + c
mul24.lo | tt | t | low24(a) * low24(b)
mul24.hi | tt | t | ((low24(a).astype({w}) * low24(b).astype({w})) >> 16).astype({n})
mad24.lo | ttt | t | low24(a) * low24(b) + c
div | tt | t | quotient(a, b)
rem | tt | t | remainder(a, b)
min | tt | t | np.minimum(a, b)
max | tt | t | np.maximum(a, b)
min.relu | tt | t | np.maximum(np.minimum(a, b), a.dtype.type(0))
max.relu | tt | t | np.maximum(np.maximum(a, b), a.dtype.type(0))
abs | t | t | np.abs(a)
neg | t | t | -a
sad | ttt | t | where(a < b, b - a, a - b) + c
and | tt | t | a & b
or | tt | t | a | b
xor | tt | t | a ^ b
not | t | t | ~a
cnot | t | t | (a == 0).astype(a.dtype)
shl | tu | t | shifted_left(a, b)
shr | tu | t | shifted_right(a, b)
shf.l.wrap | uuu | u | funnel(a, b, c, True, False)
shf.l.clamp | uuu | u | funnel(a, b, c, True, True)
shf.r.wrap | uuu | u | funnel(a, b, c, False, False)
shf.r.clamp | uuu | u | funnel(a, b, c, False, True)
bfe | tuu | t | field(a, b, c)
bfi | ttuu | t | insert(a, b, c, d)
brev | t | t | reversed_bits(a)
popc | t | u | popcount(a)
clz | t | u | leading_zeros(a)
bfind | t | u | find_bit(a, False)
bfind.shiftamt | t | u | find_bit(a, True)
fns | uuu | u | nth_bit(a, b, c.view(int32))
bmsk.clamp | uu | u | mask_bits(a, b, False)
bmsk.wrap | uu | u | mask_bits(a, b, True)
szext.clamp | tu | t | extended(a, b, False)
szext.wrap | tu | t | extended(a, b, True)
prmt | uuu | u | permuted(a, b, c)
prmt.f4e prmt.b4e prmt.rc8 prmt.ecl prmt.ecr prmt.rc16 | uuu | u | permuted_by({m!r}, a, b, c)
lop3 | uuuu | u | lookup(a, b, c, d)
selp | rrp | r | where(c, a, b)
""")

#: Floating-point instructions without modifiers. The function `_float` applies the modifiers. It
#: also has the expressions of fma and mad, which depend on the type.
FLOAT = _rows("""
add | tt | t | a + b
sub | tt | t | a - b
mul | tt | t | a * b
div | tt | t | a / b
fma mad | ttt | t |
min | tt | t | smaller(a, b)
max | tt | t | larger(a, b)
abs | t | t | np.abs(a)
neg | t | t | -a
copysign | tt | t | np.copysign(b, a)
rcp | t | t | a.dtype.type(1) / a
sqrt | t | t | np.sqrt(a)
rsqrt | t | t | a.dtype.type(1) / np.sqrt(a)
ex2 | t | t | np.exp2(a)
lg2 | t | t | np.log2(a)
sin | t | t | turned(np.sin, a)
cos | t | t | turned(np.cos, a)
tanh | t | t | np.tanh(a)
testp.finite | t | p | np.isfinite(a)
testp.infinite | t | p | np.isinf(a)
testp.number | t | p | ~np.isnan(a)
testp.notanumber | t | p | np.isnan(a)
testp.normal | t | p | np.isfinite(a) & ((np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0))
testp.subnormal | t | p | (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)
""")
_MODIFIERS = frozenset(
    ("rn", "ftz", "sat", "relu", "approx", "full", "NaN", "xorsign", "abs", "rz", "rm", "rp")
)

#: Comparison -> expression. A floating-point comparison whose name ends in "u", such as "ltu", is
#: also true if an operand is NaN.
_COMPARISONS = {
    "eq": "a == b", "ne": "a != b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b",
    "lo": "a < b", "ls": "a <= b", "hi": "a > b", "hs": "a >= b",
    "equ": "~((a < b) | (a > b))", "neu": "a != b", "ltu": "~(a >= b)", "leu": "~(a > b)",
    "gtu": "~(a <= b)", "geu": "~(a < b)", "num": "~unordered(a, b)", "nan": "unordered(a, b)",
}  # fmt: skip


def comparison(how: str, kind: str, ftz: bool = False) -> str | None:
    """Return the expression of a comparison, or None if the comparison is unknown."""
    # For NaN, Python's != is true, but the floating-point "ne" of PTX is false.
    found = _COMPARISONS.get(how)
    if how == "ne" and is_float(kind):
        found = "(a < b) | (a > b)"
    if ftz and found:
        found = found.replace("a ", "flushed(a) ").replace(" b", " flushed(b)")
    return found


def is_float(kind: str) -> bool:
    """Return whether a type is a floating-point type or a pair of floating-point halves."""
    return kind.removesuffix("x2") in ("f16", "bf16", "f32", "f64")


@lru_cache(maxsize=4096)
def value_of(opcode: str, count: int) -> Value | None:
    """Return the `Value` of an instruction with `count` operands, or None if it is unknown.

    >>> value_of("mul.wide.u32", 2).result
    'u64'
    >>> value_of("add.rounded.u32", 2) is None
    True
    """
    base, *words = opcode.split(".")
    special = _SPECIAL.get(base)
    if special is not None:
        return special(words, count)
    # The last word that is a type is the instruction's type. All other words are modifiers.
    at = next((n for n in range(len(words) - 1, -1, -1) if _is_type(words[n])), -1)
    if at < 0:
        return None
    kind, modifiers = words[at], words[:at] + words[at + 1 :]
    if is_float(kind) and base in (*_FLOAT_BASES, "testp"):
        return _float(base, modifiers, kind, count)
    return _integer(base, modifiers, kind, count)


_FLOAT_BASES = frozenset(name.split(".")[0] for name in FLOAT) - {"testp"}


def _is_type(word: str) -> bool:
    return word == "pred" or word.removesuffix("x2") in NUMPY


def _kinds(letters: str, kind: str) -> tuple[str, ...]:
    """Return the PTX types for the letters of a row, such as "tu"."""
    wide = WIDER.get(kind, kind)
    of = {"t": kind, "w": wide, "u": "u32", "p": "pred", "r": f"b{bits_of(kind)}"}
    return tuple(of[letter] for letter in letters)


def _function(expression: str, count: int) -> Any:
    return eval(f"lambda {', '.join('abcd'[:count])}: {expression}", NAMES)


def _integer(base: str, modifiers: list[str], kind: str, count: int) -> Value | None:
    row = INTEGER.get(".".join([base, *modifiers]))
    if row is None or len(row[0]) != count:
        return None
    letters, result, text = row
    mode = modifiers[-1] if modifiers else ""
    # For u16x2 and s16x2, compute each half separately. An instruction on untyped bits, such as
    # selp, moves whole registers.
    if kind.endswith("x2") and "r" not in letters:
        function = _function(text, count)
        return Value(("b32",) * count, "b32", run=partial(each_half, kind[:-2], function))
    numpy = NUMPY.get(kind, np.uint32).__name__
    wide = NUMPY[WIDER[kind]].__name__ if kind in WIDER else numpy
    text = text.format(t=kind, w=wide, n=numpy, m=mode)
    kinds = _kinds(letters, kind)
    return Value(kinds, _kinds(result, kind)[0], text)


def _float(base: str, modifiers: list[str], kind: str, count: int) -> Value | None:
    """Return the `Value` of a floating-point instruction with modifiers such as .rz or .ftz."""
    one = kind.removesuffix("x2")
    if base == "testp":
        row = FLOAT.get(f"testp.{modifiers[0]}") if len(modifiers) == 1 else None
        return Value((kind,), "pred", row[2]) if row and count == 1 else None
    letters, _, text = FLOAT[base]
    mode = next((m for m in modifiers if m in ("rz", "rm", "rp")), "rn")
    # min and max have a form with two operands, as in the table, and a form with three operands.
    known = _MODIFIERS.issuperset(modifiers)
    if not known or (count != len(letters) and (base, count) not in (("min", 3), ("max", 3))):
        return None
    # A directed rounding (.rz, .rm, .rp) needs the exact result, which `_EXACT` computes.
    if mode != "rn":
        if one != "f32" or base not in _EXACT:
            return None
        text = f"rounded({_EXACT[base]}, 'f32', {mode!r})"
    elif base in ("fma", "mad"):
        text = {
            "f64": "fused64(a, b, c)",
            "f32": "fused32(a, b, c)",
            "bf16": "from_odd(fused(a, b, c))",
        }.get(one, f"fused(a, b, c).astype({NUMPY[one].__name__})")
    if base in ("min", "max"):
        text = _least(base, modifiers, count)
    # .ftz flushes subnormal operands and subnormal results. So apply .ftz to the operands before
    # the other modifiers, and to the result after them.
    if "ftz" in modifiers and one == "f32":
        for letter in "abc"[:count]:
            text = _replaced(text, letter, f"flushed({letter})")
    if "sat" in modifiers:
        text = f"saturate01({text})"
    if "relu" in modifiers:
        text = f"relu({text})"
    if "ftz" in modifiers and one == "f32":
        text = f"flushed({text})"
    if kind != one:
        raw = f"b{bits_of(kind)}"
        return Value((raw,) * count, raw, run=partial(each_half, one, _function(text, count)))
    return Value((kind,) * count, kind, text)


#: Instruction -> expression of its float64 result for float32 operands. The function `rounded`
#: rounds this result to float32. So the float64 result must be exact, rounded to odd, or close
#: enough that the direction of the second rounding is right.
_EXACT = {
    "add": "fused(a, np.float32(1), b)", "sub": "fused(b, np.float32(-1), a)",
    "mul": "a.astype(float64) * b.astype(float64)", "fma": "fused(a, b, c)",
    "mad": "fused(a, b, c)", "div": "a.astype(float64) / b.astype(float64)",
    "rcp": "1 / a.astype(float64)", "sqrt": "np.sqrt(a.astype(float64))",
}  # fmt: skip


def _least(base: str, modifiers: list[str], count: int) -> str:
    """Return the expression of min or max with the modifiers .NaN and .xorsign.abs."""
    function = {"min": "smaller", "max": "larger"}[base]
    letters = list("abc"[:count])
    sized = [f"np.abs({x})" for x in letters] if "abs" in modifiers else letters
    text = f"{function}({sized[0]}, {sized[1]})"
    if count == 3:
        text = f"{function}({text}, {sized[2]})"
    if "NaN" in modifiers:
        text = f"with_nan({text}, {', '.join(letters)})"
    if "xorsign" in modifiers:
        text = f"xor_sign({text}, a, b)"
    return text


def _replaced(text: str, letter: str, by: str) -> str:
    # Replace only the variable, for example `a`. Do not replace the letter in a name such as
    # "np.abs".
    return re.sub(rf"(?<![\w.]){letter}(?![\w(])", by, text)


# -- instructions with two types -------------------------------------------------------------------


def _set(words: list[str], count: int) -> Value | None:
    """Return the `Value` of the instruction `set`.

    If the comparison is false, the result is 0. If it is true, the result is 1.0 for a float type,
    and an integer whose bits are all 1 otherwise.
    """
    words = [word for word in words if word != "ftz"]
    if len(words) != 3 or count != 2:
        return None
    how, to, kind = words
    one = kind.removesuffix("x2")
    text = comparison(how, one)
    if text is None:
        return None
    if is_float(to):
        function = _function(f"({text}).astype(float32)", 2)
        if kind == "f16x2":
            packed = lambda a, b: function(a, b).astype(np.float16)  # noqa: E731
            return Value(("b32", "b32"), "b32", run=partial(each_half, one, packed))
        to_kind = NUMPY[to]
        return Value((kind, kind), to, run=lambda a, b: function(a, b).astype(to_kind))
    if kind != one or bits_of(to) != 32:
        return None
    return Value((kind, kind), "u32", f"where({text}, uint32(0xFFFFFFFF), uint32(0))")


def _slct(words: list[str], count: int) -> Value | None:
    words = [word for word in words if word != "ftz"]
    if len(words) != 2 or count != 3 or words[1] not in ("s32", "f32"):
        return None
    raw = f"b{bits_of(words[0])}"
    return Value((raw, raw, words[1]), raw, "where(c >= 0, a, b)")


def _dot(words: list[str], count: int, base: str) -> Value | None:
    high = words[:1] == ["hi"]
    kinds = words[1:] if words[:1] in (["lo"], ["hi"]) else words
    if len(kinds) != 2 or count != 3 or not {*kinds} <= {"u32", "s32"}:
        return None
    if base == "dp2a":
        return Value((*kinds, "s32"), "s32", f"dot_halves(a, b, c, {high})")
    signs = ", ".join(str(kind == "s32") for kind in kinds)
    return Value(("b32", "b32", "s32"), "s32", f"dot_bytes(a, b, c, {signs})")


# -- conversions -----------------------------------------------------------------------------------

_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_ROUNDINGS = ("rn", "rz", "rm", "rp", "rna", *_WHOLE)
_F8 = ("e4m3x2", "e5m2x2")


def _convert(words: list[str], count: int) -> Value | None:
    """Return the `Value` of cvt, including its packed forms."""
    # cvt.pack has two forms: cvt.pack.sat.TO.s32 with two operands, and cvt.pack.sat.TO.s32.b32
    # with three operands.
    if words[:1] == ["pack"]:
        if words[1:2] != ["sat"] or words[3:4] != ["s32"] or count != len(words) - 2:
            return None
        kinds = ("s32", "s32", "b32")[:count]
        return Value(kinds, "b32", run=partial(integers.packed_integers, words[2]))
    if len(words) < 2:
        return None
    *modifiers, to, source = words
    modes = set(modifiers)
    is_relu = "relu" in modes
    mode = next((m for m in modifiers if m in _ROUNDINGS), "rn")
    if modes - {mode, "relu", "sat", "ftz", "satfinite"}:
        return None
    if source == "f32" and count == 2 and to in ("f16x2", "bf16x2", *_F8):
        result = "b16" if to in _F8 else "b32"
        if "satfinite" in modes and to not in _F8:
            return None
        run = numbers.packed(to, is_relu, mode)
        return Value(("f32", "f32"), result, run=run)
    if count != 1:
        return None
    if to in ("f16x2", "bf16x2") and source in _F8:
        pair = f"f8_pair({source[:4]!r}, {to[:-2]!r}, a, {is_relu})"
        return Value(("b16",), "b32", pair)
    if to in _F8 and source == "f16x2":
        return Value(("b32",), "b16", f"to_f8_pair({to[:4]!r}, a, {is_relu})")
    if to == "tf32" and source == "f32" and modes <= {"rn", "rz", "rna"}:
        return Value(("f32",), "b32", f"to_tf32(a, {mode!r})")
    if to not in NUMPY or source not in NUMPY or mode == "rna" or "satfinite" in modes:
        return None
    return Value((source,), to, run=_converter(to, source, modes, mode))


def _converter(to: str, source: str, modes: set[str], mode: str) -> Callable[[Any], Any]:
    """Return a Python function that computes a cvt.

    If the mode is rni, rzi, rmi or rpi, the function first rounds the value to an integer. Then it
    clips the value if required, and converts the value.
    """
    from_float, to_float = is_float(source), is_float(to)
    sat, ftz, is_relu = "sat" in modes, "ftz" in modes, "relu" in modes
    integral = _WHOLE.get(mode)
    kind = NUMPY[to]

    def run(value: Any) -> Any:
        if ftz and source == "f32":
            value = numbers.flushed(value)
        if integral is not None:
            value = integral(value)
        if not to_float:
            if from_float:
                return integers.whole(to, value, source)
            return integers.saturated(to, value) if sat else value.astype(kind)
        if sat:
            value = numbers.saturate01(value)
        if is_relu:
            value = numbers.relu(value)
        found = numbers.rounded(value, to, "rn" if integral is not None else mode)
        return numbers.flushed(found) if ftz and to == "f32" else found

    return run


# Instructions with two types -> function that returns their `Value`. The arguments of the function
# are the words after the first dot of the opcode, and the number of operands.
_SPECIAL: dict[str, Callable[[list[str], int], Value | None]] = {
    "cvt": _convert, "set": _set, "slct": _slct, "dp4a": partial(_dot, base="dp4a"),
    "dp2a": partial(_dot, base="dp2a"),
}  # fmt: skip
