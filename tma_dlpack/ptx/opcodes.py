"""What the arithmetic instructions of PTX compute, in NumPy: one row for each operation.

A row has the operation's name, how many operands it reads, and its value as an expression of typed
arrays `a`, `b`, `c`. `operands` says how they are typed: "t" as the instruction's last type, "i" as
a 32-bit number whatever the type. Values that need more than an expression are functions below.

Registers hold bits: unsigned arrays. `read` and `written` type them and turn values into bits.

Approximate functions (`ex2.approx` and the like) are NumPy's, so their last bits may differ from a
GPU's. Rounding other than to nearest even is known for conversions only.

Source: PTX ISA 9.0, 9.7.1 to 9.7.6 (integers, floating point, comparison, logic), 9.7.9 (cvt).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: PTX type -> NumPy type of its values; bf16 and 8-bit floats are computed in float32.
NUMPY: dict[str, type[np.generic]] = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16,
    "s16": np.int16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "b64": np.uint64,
    "u64": np.uint64, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": np.float32, "pred": np.bool_,
}  # fmt: skip
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def bits_of(kind: str) -> int:
    """Return the width of a type.

    >>> bits_of("f32"), bits_of("bf16x2")
    (32, 32)
    """
    found = re.fullmatch(r"[a-z]+(\d+)(?:x(\d))?", kind)
    if kind == "pred" or found is None:
        return 1
    return int(found[1]) * int(found[2] or 1)


def read(kind: str, bits: Any) -> Any:
    """Return the typed values of register bits."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    wanted = NUMPY[kind]
    size = np.dtype(wanted).itemsize
    if bits.dtype.itemsize > size and kind != "pred":  # the low bits of a wider register
        bits = bits.astype(UNSIGNED[8 * size])
    return bits.view(wanted)


def written(kind: str, value: Any, register: str) -> Any:
    """Return a value as the bits of a register, extended to its width."""
    if register == "pred":
        return value
    value = bf16_bits(value) if kind == "bf16" else value.astype(NUMPY[kind], copy=False)
    size = bits_of(register) // 8
    if value.dtype.itemsize == size:
        return value.view(UNSIGNED[8 * size])
    if value.dtype.kind == "f":
        value = value.view(UNSIGNED[8 * value.dtype.itemsize])
    if value.dtype.kind == "i":  # sign extension
        return value.astype(np.dtype(f"i{size}")).view(UNSIGNED[8 * size])
    return value.astype(UNSIGNED[8 * size])


# -- rounding --------------------------------------------------------------------------------------


def odd(exact: Any, error: Any) -> Any:
    """Round a sum to odd: float64 whose last bit is set where `error` was lost.

    Rounding such a number again, to fewer than 52 bits, gives the rounding of the exact sum.
    """
    exact = np.asarray(exact, np.float64)
    bits = exact.view(np.int64)
    fix = (error != 0) & (bits & 1 == 0) & np.isfinite(exact)
    away = (error > 0) == (exact > 0)
    return np.where(fix, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def fused(a: Any, b: Any, c: Any) -> Any:
    """Return a b + c in float64, rounded to odd; exact products of up to 26 bits."""
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    return odd(total, np.where(np.isfinite(total), error, 0))


def fma(kind: str) -> Callable[[Any, Any, Any], Any]:
    """Return the fused multiply-add of a type."""
    if kind == "f64":
        wide = np.longdouble

        def run(a: Any, b: Any, c: Any) -> Any:
            return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(np.float64)

        return run
    if kind == "bf16":
        return lambda a, b, c: from_odd(fused(a, b, c))
    return lambda a, b, c: fused(a, b, c).astype(NUMPY[kind])


def from_odd(value: Any) -> Any:
    """Return float64 as float32, rounded to odd, so that bf16_bits rounds once."""
    value = np.asarray(value, np.float64)
    near = value.astype(np.float32)
    bits = near.view(np.int32)
    error = value - near.astype(np.float64)
    fix = (error != 0) & (bits & 1 == 0) & np.isfinite(near)
    away = (error > 0) == (near > 0)
    return np.where(fix, np.where(away, bits + 1, bits - 1), bits).view(np.float32)


def bf16_bits(value: Any, mode: str = "rn") -> Any:
    """Return the 16 bits of float32 values as bfloat16; NaN is 0x7FFF."""
    bits = np.asarray(value, np.float32).view(np.uint32)
    nan = np.isnan(value)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(nan, np.uint16(0x7FFF), (bits >> np.uint32(16)).astype(np.uint16))


def flushed(value: Any) -> Any:
    """Return values with subnormal numbers replaced by zeros of their sign (.ftz)."""
    tiny = np.abs(value) < np.finfo(value.dtype).tiny
    return np.where(tiny, np.copysign(value.dtype.type(0), value), value)


# -- integers --------------------------------------------------------------------------------------


def _wide(a: Any) -> Any:
    return a.astype({"u": np.uint64, "i": np.int64}[a.dtype.kind])


def mul_hi(a: Any, b: Any) -> Any:
    """Return the upper half of a product."""
    size = 8 * a.dtype.itemsize
    if size < 64:
        return ((_wide(a) * _wide(b)) >> size).astype(a.dtype)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":  # subtract what the signs add
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def quotient(a: Any, b: Any) -> Any:
    """Return a / b toward zero; all ones where b is 0, as GPUs have it."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        found = a // safe
    else:
        whole = a // safe
        found = whole + ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.array(-1).astype(a.dtype), found).astype(a.dtype)


def remainder(a: Any, b: Any) -> Any:
    """Return what is left of a / b toward zero; a where b is 0."""
    return (a - quotient(a, b) * b).astype(a.dtype)


def shifted_left(a: Any, n: Any) -> Any:
    """Return a << n; 0 from the width of the type on."""
    size = 8 * a.dtype.itemsize
    n = np.asarray(n).astype(np.uint32)
    moved = a << np.minimum(n, size - 1).astype(a.dtype)
    return np.where(n >= size, a.dtype.type(0), moved)


def shifted_right(a: Any, n: Any) -> Any:
    """Return a >> n; the sign, or 0, from the width of the type on."""
    size = 8 * a.dtype.itemsize
    n = np.asarray(n).astype(np.uint32)
    moved = a >> np.minimum(n, size - 1).astype(a.dtype)
    if a.dtype.kind == "i":
        return moved
    return np.where(n >= size, a.dtype.type(0), moved)


def _pair(a: Any, b: Any) -> Any:
    return np.asarray(b).astype(np.uint64) << np.uint64(32) | np.asarray(a).astype(np.uint64)


def funnel(left: bool, clamps: bool) -> Callable[[Any, Any, Any], Any]:
    """Return shf: 32 bits of the pair b:a, shifted."""

    def run(a: Any, b: Any, n: Any) -> Any:
        n = np.minimum(n, 32) if clamps else np.bitwise_and(n, 31)
        n = np.asarray(n).astype(np.uint64)
        pair = _pair(a, b)
        moved = (pair << n) >> np.uint64(32) if left else pair >> n
        return moved.astype(np.uint32)

    return run


def popcount(a: Any) -> Any:
    """Return the number of bits that are 1."""
    found = np.zeros(np.shape(a), np.uint32)
    for at in range(8 * a.dtype.itemsize):
        found = found + (a >> a.dtype.type(at) & a.dtype.type(1)).astype(np.uint32)
    return found


def leading_zeros(a: Any) -> Any:
    """Return the number of zeros before the highest bit that is 1."""
    size = 8 * a.dtype.itemsize
    filled = a
    for n in (1, 2, 4, 8, 16, 32):
        if n < size:
            filled = filled | filled >> a.dtype.type(n)
    return (np.uint32(size) - popcount(filled)).astype(np.uint32)


def find_bit(a: Any, shift: bool) -> Any:
    """Return the highest bit that differs from the sign; 0xFFFFFFFF where there is none."""
    size = 8 * a.dtype.itemsize
    unsigned = a.view(UNSIGNED[size])
    if a.dtype.kind == "i":
        unsigned = np.where(a < 0, ~unsigned, unsigned)
    zeros = leading_zeros(unsigned)
    found = zeros if shift else np.uint32(size - 1) - zeros
    return np.where(unsigned == 0, np.uint32(0xFFFFFFFF), found)


def reversed_bits(a: Any) -> Any:
    """Return the bits in the other order."""
    found = np.zeros_like(a)
    size = 8 * a.dtype.itemsize
    for at in range(size):
        bit = a >> a.dtype.type(at) & a.dtype.type(1)
        found = found | bit << a.dtype.type(size - 1 - at)
    return found


def field(a: Any, at: Any, length: Any) -> Any:
    """Return bfe: `length` bits of a from bit `at` on, sign-extended for signed types."""
    size = 8 * a.dtype.itemsize
    at = np.bitwise_and(at, 255).astype(np.int64)
    length = np.bitwise_and(length, 255).astype(np.int64)
    wide = a.astype(object) if size == 64 else a.astype(np.int64)
    top = np.minimum(at + length, size)
    mask = (np.int64(1) << np.minimum(length, 62)) - 1
    unsigned = a.view(UNSIGNED[size]).astype(np.uint64)
    raw = np.where(at < size, unsigned >> np.minimum(at, 63).astype(np.uint64), np.uint64(0))
    raw = np.where(length >= 64, raw, raw & mask.astype(np.uint64))
    if a.dtype.kind == "i":
        sign_at = np.maximum(top - 1, 0)
        sign = unsigned >> sign_at.astype(np.uint64) & np.uint64(1)
        kept = np.maximum(top - at, 0)
        high = ~((np.uint64(1) << np.minimum(kept, 63).astype(np.uint64)) - np.uint64(1))
        raw = np.where((sign == 1) & (length > 0), raw | high, raw)
    del wide
    return np.where(length == 0, np.uint64(0), raw).astype(UNSIGNED[size]).view(a.dtype)


def insert(a: Any, b: Any, at: Any, length: Any) -> Any:
    """Return bfi: b with `length` bits from bit `at` on replaced by those of a."""
    size = 8 * b.dtype.itemsize
    at = np.bitwise_and(at, 255).astype(np.uint64)
    length = np.bitwise_and(length, 255).astype(np.uint64)
    one = np.uint64(1)
    low = np.where(
        length >= np.uint64(64),
        np.uint64(0xFFFFFFFFFFFFFFFF),
        (one << np.minimum(length, np.uint64(63))) - one,
    )
    inside = at < np.uint64(size)
    mask = np.where(inside, low << np.minimum(at, np.uint64(63)), np.uint64(0))
    moved = a.astype(np.uint64) << np.minimum(at, np.uint64(63))
    return ((b.astype(np.uint64) & ~mask) | (moved & mask)).astype(b.dtype)


def permuted(a: Any, b: Any, selector: Any) -> Any:
    """Return prmt: four bytes of the pair b:a, each chosen by four bits; bit 3 copies the sign."""
    pair = _pair(a, b)
    found = np.uint32(0)
    for n in range(4):
        choice = np.asarray(selector).astype(np.uint64) >> np.uint64(4 * n) & np.uint64(15)
        byte = pair >> (choice & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = np.where(choice & np.uint64(8), sign, byte)
        found = found | byte.astype(np.uint32) << np.uint32(8 * n)
    return found


def lookup(a: Any, b: Any, c: Any, table: Any) -> Any:
    """Return lop3: each bit by the table of eight."""
    found = np.uint32(0)
    for n in range(8):
        if int(table) >> n & 1:
            x = a if n & 4 else ~a
            y = b if n & 2 else ~b
            z = c if n & 1 else ~c
            found = found | (x & y & z)
    return found


def dot_bytes(a: Any, b: Any, c: Any, a_signed: bool, b_signed: bool) -> Any:
    """Return dp4a: the sum of products of four bytes, and c."""
    total = np.asarray(c).astype(np.int64)
    for n in range(4):
        x = (a >> np.uint32(8 * n)).astype(np.uint8)
        y = (b >> np.uint32(8 * n)).astype(np.uint8)
        left = x.view(np.int8) if a_signed else x
        right = y.view(np.int8) if b_signed else y
        total = total + left.astype(np.int64) * right.astype(np.int64)
    return total.astype(np.int32)


def saturated(kind: str, value: Any) -> Any:
    """Return a value clipped to an integer type; NaN is 0."""
    info = np.iinfo(NUMPY[kind])
    if value.dtype.kind == "f":
        wide = np.where(np.isnan(value), 0.0, value.astype(np.float64))
        low = wide <= float(info.min)
        high = wide >= float(info.max)
        inside = np.where(low | high, 0.0, wide).astype(np.int64)
        found = inside.astype(info.dtype)
        found = np.where(low, info.dtype.type(info.min), found)
        return np.where(high, info.dtype.type(info.max), found)
    if value.dtype == np.uint64:
        return np.minimum(value, np.uint64(info.max)).astype(info.dtype)
    wide = value.astype(np.int64)
    if kind == "u64":
        return np.maximum(wide, 0).astype(np.uint64)
    return np.clip(wide, info.min, info.max).astype(info.dtype)


# -- rows ------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """An operation: its operands, typed "t" or 32-bit "i", and its value."""

    operands: str
    expression: str


#: By operation, for integers and bits.
INTEGER = {
    "add": Row("tt", "a + b"), "sub": Row("tt", "a - b"), "mul.lo": Row("tt", "a * b"),
    "mul.hi": Row("tt", "mul_hi(a, b)"), "mad.lo": Row("ttt", "a * b + c"),
    "mad.hi": Row("ttt", "mul_hi(a, b) + c"), "div": Row("tt", "quotient(a, b)"),
    "rem": Row("tt", "remainder(a, b)"), "min": Row("tt", "np.minimum(a, b)"),
    "max": Row("tt", "np.maximum(a, b)"), "abs": Row("t", "np.abs(a)"), "neg": Row("t", "-a"),
    "sad": Row("ttt", "np.where(a < b, b - a, a - b) + c"), "and": Row("tt", "a & b"),
    "or": Row("tt", "a | b"), "xor": Row("tt", "a ^ b"), "not": Row("t", "~a"),
    "cnot": Row("t", "(a == 0).astype(a.dtype)"), "shl": Row("ti", "shifted_left(a, b)"),
    "shr": Row("ti", "shifted_right(a, b)"), "bfe": Row("tii", "field(a, b, c)"),
    "bfi": Row("ttii", "insert(a, b, c, d)"), "brev": Row("t", "reversed_bits(a)"),
    "mov": Row("t", "a"), "mul24.lo": Row("tt", "(a & 0xFFFFFF) * (b & 0xFFFFFF)"),
}  # fmt: skip
#: By operation, for floating point.
FLOAT = {
    "add": Row("tt", "a + b"), "sub": Row("tt", "a - b"), "mul": Row("tt", "a * b"),
    "div": Row("tt", "a / b"), "abs": Row("t", "np.abs(a)"), "neg": Row("t", "-a"),
    "min": Row("tt", "np.fmin(a, b)"), "max": Row("tt", "np.fmax(a, b)"),
    "rcp": Row("t", "one / a"), "sqrt": Row("t", "np.sqrt(a)"),
    "rsqrt": Row("t", "one / np.sqrt(a)"),
    "ex2": Row("t", "np.exp2(a)"), "lg2": Row("t", "np.log2(a)"), "sin": Row("t", "np.sin(a)"),
    "cos": Row("t", "np.cos(a)"), "tanh": Row("t", "np.tanh(a)"),
    "copysign": Row("tt", "np.copysign(b, a)"), "mov": Row("t", "a"),
}  # fmt: skip
#: Comparisons; those that end in u are true for NaN, "num" and "nan" ask for it.
COMPARISONS = {
    "eq": "a == b", "ne": "a != b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b",
    "lo": "a < b", "ls": "a <= b", "hi": "a > b", "hs": "a >= b",
    "equ": "~(a != b) | unordered(a, b)", "neu": "a != b", "ltu": "~(a >= b)",
    "leu": "~(a > b)", "gtu": "~(a <= b)", "geu": "~(a < b)",
    "num": "~unordered(a, b)", "nan": "unordered(a, b)",
}  # fmt: skip


def unordered(a: Any, b: Any) -> Any:
    """Whether one of two numbers is NaN."""
    return np.isnan(a) | np.isnan(b)


# -- conversions -----------------------------------------------------------------------------------

_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_F8 = {"e4m3": (4, 3, 448.0), "e5m2": (5, 2, 57344.0)}


def convert(words: list[str]) -> Callable[..., Any] | None:
    """Return the function of a cvt's modifiers, (typed value) -> typed value; None if unknown.

    >>> convert(["cvt", "rzi", "s32", "f32"])(np.float32([1.9, -1.9])).tolist()
    [1, -1]
    """
    to, source = words[-2], words[-1]
    modes = set(words[1:-2])
    if "x2" in to or "x2" in source or to == "tf32" or "x4" in to:
        return None
    if to not in NUMPY or source not in NUMPY:
        return None
    to_float, from_float = to[0] in "fb" and to != "b", source in ("f16", "bf16", "f32", "f64")
    to_float = to in ("f16", "bf16", "f32", "f64")
    whole = next((_WHOLE[m] for m in modes if m in _WHOLE), None)
    relu, sat, ftz = "relu" in modes, "sat" in modes, "ftz" in modes
    rounding = next((m for m in modes if m in ("rn", "rz", "rm", "rp", "rna", "rs")), "rn")
    if rounding in ("rna", "rs"):
        return None

    def run(value: Any) -> Any:
        if ftz and from_float and value.dtype == np.float32:
            value = flushed(value)
        if whole is not None:
            value = whole(value)
        if not to_float:
            if from_float or sat:
                return saturated(to, value)
            return value.astype(NUMPY[to])
        if sat:
            value = np.where(np.isnan(value), 0, np.clip(value, 0, 1)).astype(value.dtype)
        if relu:
            value = np.fmax(value, value.dtype.type(0))
        found = _rounded(value, to, rounding)
        return flushed(found) if ftz and to == "f32" else found

    return run


def _rounded(value: Any, to: str, mode: str) -> Any:
    """Return values as a float type; bf16 as float32 that bfloat16 can hold."""
    if to == "bf16":
        wide = np.asarray(value)
        if wide.dtype.kind in "iu" or wide.dtype == np.float64:
            wide = from_odd(wide.astype(np.float64))
        near = read("bf16", bf16_bits(wide.astype(np.float32)))
        exact, kind = wide.astype(np.float64), np.float32
        if mode == "rn":
            return near
        step = np.uint32(1 << 16)
        bits = near.view(np.uint32)
        return _directed(
            near, exact, mode, lambda: (bits - step).view(kind), lambda: (bits + step).view(kind)
        )
    kind = NUMPY[to]
    near = np.asarray(value).astype(kind)
    if mode == "rn":
        return near
    exact = np.asarray(value).astype(np.longdouble)
    return _directed(
        near, exact, mode,
        lambda: np.nextafter(near, kind(0)),
        lambda: np.nextafter(near, np.copysign(kind(np.inf), near)),
    )  # fmt: skip


def _directed(near: Any, exact: Any, mode: str, inward: Any, outward: Any) -> Any:
    """Return the neighbour of a rounded value in the direction of rz, rm or rp."""
    error = near.astype(np.longdouble) - exact
    up, down = error > 0, error < 0  # rounded up, rounded down
    positive = near > 0
    with np.errstate(all="ignore"):
        smaller = np.where(positive, inward(), outward())
        larger = np.where(positive, outward(), inward())
    if mode == "rm":
        return np.where(up, smaller, near).astype(near.dtype)
    if mode == "rp":
        return np.where(down, larger, near).astype(near.dtype)
    return np.where(positive & up, smaller, np.where(~positive & down, larger, near)).astype(
        near.dtype
    )


def f8_table(kind: str) -> Array:
    """Return the value of each of the 256 codes of e4m3 or e5m2."""
    exponent_bits, mantissa_bits, _ = _F8[kind]
    codes = np.arange(256)
    sign = np.where(codes >> 7, -1.0, 1.0)
    mantissa = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    value = np.where(
        exponent, (1 + mantissa) * 2.0 ** (exponent - bias), mantissa * 2.0 ** (1 - bias)
    )
    if kind == "e4m3":  # all ones is NaN, and there is no infinity
        value = np.where(codes & 0x7F == 0x7F, np.nan, value)
    else:
        top = exponent == 31
        value = np.where(top, np.where(mantissa == 0, np.inf, np.nan), value)
    return (sign * value).astype(np.float32)


F8_VALUES = {kind: f8_table(kind) for kind in _F8}


def f8_bits(kind: str, value: Any) -> Any:
    """Return the codes of values as e4m3 or e5m2, nearest even, saturated; NaN is 0x7F."""
    values = F8_VALUES[kind][:128]
    most = _F8[kind][2]
    finite = values[np.isfinite(values)].astype(np.float64)
    size = np.minimum(np.abs(np.where(np.isnan(value), 0, value)).astype(np.float64), most)
    upper = np.searchsorted(finite, size)
    upper = np.minimum(upper, len(finite) - 1)
    lower = np.maximum(upper - 1, 0)
    to_upper, to_lower = finite[upper] - size, size - finite[lower]
    even = np.where(upper % 2 == 0, upper, lower)
    code = np.where(to_upper < to_lower, upper, np.where(to_upper > to_lower, lower, even))
    code = np.where(size == finite[upper], upper, code) | np.where(np.signbit(value), 128, 0)
    return np.where(np.isnan(value), 0x7F, code).astype(np.uint8)


def packed(to: str, relu: bool, mode: str = "rn") -> Callable[[Any, Any], Any] | None:
    """Return cvt.*x2.f32: two float32 as one register, the first in the upper half."""
    base = to.removesuffix("x2")
    if base in _F8:
        one: Callable[[Any], Any] = lambda v: f8_bits(base, v).astype(np.uint16)  # noqa: E731
        shift, result = 8, np.uint16
    elif base in ("f16", "bf16"):
        result = np.uint32
        shift = 16

        def one(v: Any) -> Any:
            rounded = _rounded(v, base, mode)
            bits = bf16_bits(rounded) if base == "bf16" else rounded.view(np.uint16)
            return bits.astype(np.uint32)
    else:
        return None

    def run(high: Any, low: Any) -> Any:
        if relu:
            high, low = np.fmax(high, np.float32(0)), np.fmax(low, np.float32(0))
        return one(high) << result(shift) | one(low)

    return run


def halves(kind: str, bits: Any) -> tuple[Any, Any]:
    """Return the low and the high value of a packed register (f16x2, bf16x2)."""
    low = read(kind, bits.astype(np.uint16))
    return low, read(kind, (bits >> np.uint32(16)).astype(np.uint16))


def joined(kind: str, low: Any, high: Any) -> Any:
    """Return two values as one packed register."""
    bits = [written(kind, v, "b16").astype(np.uint32) for v in (low, high)]
    return bits[0] | bits[1] << np.uint32(16)
