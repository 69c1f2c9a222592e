"""Floating-point types, roundings and conversions of PTX as functions of NumPy arrays.

A register is an array of unsigned integers, which contain the register's bits. `read` converts
these bits to typed values, and `written` converts typed values to bits. PTX does not define some
results, such as the sign of a zero, or the result of .relu for NaN. In these cases the functions
return the results that were measured on an H100 (`tests/golden/ptx_h100.npz`).

Source: PTX ISA 9.0, 9.7.3 to 9.7.5 (floating point), 9.7.9 (cvt).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: PTX type -> NumPy type of its values. NumPy has no bfloat16, so bf16 values are float32.
NUMPY: dict[str, type[np.generic]] = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16,
    "s16": np.int16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "b64": np.uint64,
    "u64": np.uint64, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": np.float32, "pred": np.bool_,
}  # fmt: skip
# Width in bits -> NumPy type.
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
# Operand type of mul.wide and mad.wide -> result type.
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def bits_of(kind: str) -> int:
    """Return the width of a PTX type in bits.

    >>> bits_of("f32"), bits_of("bf16x2")
    (32, 32)
    """
    found = re.fullmatch(r"[a-z]+(\d+)(?:x(\d))?", kind)
    if kind == "pred" or found is None:
        return 1
    return int(found[1]) * int(found[2] or 1)


def read(kind: str, bits: Any) -> Any:
    """Convert the bits of a register to values of the type `kind`."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    wanted = NUMPY[kind]
    size = np.dtype(wanted).itemsize
    # A register that is wider than the type has the value in its low bits.
    if bits.dtype.itemsize > size and kind != "pred":
        bits = bits.astype(UNSIGNED[8 * size])
    return bits.view(wanted)


def written(kind: str, value: Any, register: str) -> Any:
    """Convert a value of type `kind` to bits, extended to the width of the type `register`."""
    if register == "pred":
        return value
    value = bf16_bits(value) if kind == "bf16" else value.astype(NUMPY[kind], copy=False)
    size = bits_of(register) // 8
    if value.dtype.itemsize == size:
        return value.view(UNSIGNED[8 * size])
    if value.dtype.kind == "f":
        value = value.view(UNSIGNED[8 * value.dtype.itemsize])
    # Extend signed integers with their sign, and all other values with zeros.
    if value.dtype.kind == "i":
        return value.astype(np.dtype(f"i{size}")).view(UNSIGNED[8 * size])
    return value.astype(UNSIGNED[8 * size])


# -- rounding --------------------------------------------------------------------------------------


def odd(exact: Any, error: Any) -> Any:
    """Return the sum `exact` + `error` in float64, rounded to odd.

    If float64 cannot represent the sum, rounding to odd chooses the neighbour whose last bit is 1.
    If this result is then rounded to fewer than 52 bits, the second rounding gives the same value
    as a single rounding of the exact sum.
    """
    # As an integer, the bits of a float increase with the magnitude of the float. So adding 1 to
    # the bits gives the neighbour that is farther from zero.
    exact = np.asarray(exact, np.float64)
    bits = exact.view(np.int64)
    fix = (error != 0) & (bits & 1 == 0) & np.isfinite(exact)
    away = (error > 0) == (exact > 0)
    return np.where(fix, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def fused(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c in float64, rounded to odd.

    The mantissas of a and b must have at most 26 bits.
    """
    # The product is exact in float64. Knuth's TwoSum computes the rounding error of the sum.
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    return odd(total, np.where(np.isfinite(total), error, 0))


def fused32(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c for float32 operands, rounded once.

    The fast method rounds the sum to float64, then to float32. Its result can be wrong only if the
    float64 sum is halfway between two float32 numbers, or if the result is subnormal. In these
    cases use `fused`.
    """
    # float32 drops 29 bits of a float64. The sum is halfway between two float32 numbers if only the
    # highest of these bits is 1.
    total = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    near = total.astype(np.float32)
    halfway = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    if halfway.any() or ((np.abs(near) < _TINY) & (total != 0)).any():
        return fused(a, b, c).astype(np.float32)
    return near


# The smallest normal float32.
_TINY = np.finfo(np.float32).tiny


def _split(a: Any) -> tuple[Any, Any]:
    """Split a float64 into two numbers of 26 bits each, whose sum is the float64 (Veltkamp)."""
    # The factor is 2**27 + 1.
    spread = a * 134217729.0
    high = spread - (spread - a)
    return high, a - high


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return (a + b rounded, rounding error of this sum), by Knuth's TwoSum."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fused64(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c for float64 operands, rounded once.

    Source: Boldo and Melquiond, Emulation of a FMA and correctly rounded sums (2008). Very large
    and very small products are computed in long double, because the algorithm fails for them.
    """
    product = a * b
    size = np.abs(product)
    middle = (size > 1e-250) & (size < 1e250) & (np.abs(a) < 1e250) & (np.abs(b) < 1e250)
    (a1, a0), (b1, b0) = _split(a), _split(b)
    # `low` is the rounding error of the product (Dekker).
    low = ((a1 * b1 - product) + a1 * b0 + a0 * b1) + a0 * b0
    high, rest = _two_sum(c, low)
    top, middle_part = _two_sum(product, high)
    total, error = _two_sum(rest, middle_part)
    exact = top + odd(total, error)
    wide = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    return np.where(middle & np.isfinite(exact), exact, wide.astype(np.float64))


def from_odd(value: Any) -> Any:
    """Round float64 values to float32 by rounding to odd, so that `bf16_bits` rounds correctly."""
    value = np.asarray(value, np.float64)
    near = value.astype(np.float32)
    bits = near.view(np.int32)
    error = value - near.astype(np.float64)
    fix = (error != 0) & (bits & 1 == 0) & np.isfinite(near)
    away = (error > 0) == (near > 0)
    return np.where(fix, np.where(away, bits + 1, bits - 1), bits).view(np.float32)


def bf16_bits(value: Any, mode: str = "rn") -> Any:
    """Return float32 values as bits of bfloat16; NaN becomes 0x7FFF.

    The mode "rn" rounds to the nearest value. Other modes round toward zero.
    """
    bits = np.asarray(value, np.float32).view(np.uint32)
    nan = np.isnan(value)
    # bfloat16 drops the lower 16 bits. To round to nearest, add 0x8000, which is half of the last
    # remaining bit. If the last remaining bit is 0, add 0x7FFF, so that ties go to even.
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    found = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(nan, np.uint16(0x7FFF), found) if nan.any() else found


def flushed(value: Any) -> Any:
    """Return values in which each subnormal number is replaced by a zero of its sign (.ftz)."""
    tiny = np.abs(value) < np.finfo(value.dtype).tiny
    return np.where(tiny, np.copysign(value.dtype.type(0), value), value)


# -- modifiers -----------------------------------------------------------------------------------


def relu(value: Any) -> Any:
    """Return the larger of a value and 0; NaN is unchanged."""
    return np.where(value <= 0, value.dtype.type(0), value)


def saturate01(value: Any) -> Any:
    """Return a value clipped to the range 0 to 1; NaN becomes 0."""
    kind = value.dtype.type
    return np.where(value > 0, np.minimum(value, kind(1)), kind(0))


def smaller(a: Any, b: Any) -> Any:
    """Return the smaller number, or NaN if both are NaN; -0 is smaller than 0."""
    return np.where((a == b) & np.signbit(a), a, np.fmin(b, a))


def larger(a: Any, b: Any) -> Any:
    """Return the larger number, or NaN if both are NaN; 0 is larger than -0."""
    return np.where((a == b) & np.signbit(b), a, np.fmax(b, a))


def with_nan(found: Any, *values: Any) -> Any:
    """Return `found`, or NaN where one of the values is NaN."""
    for value in values:
        found = np.where(np.isnan(value), value, found)
    return found


def xor_sign(found: Any, a: Any, b: Any) -> Any:
    """Return `found` with a new sign: the exclusive or of the signs of a and b."""
    sign = np.where(np.signbit(a) ^ np.signbit(b), -1.0, 1.0).astype(found.dtype)
    return np.copysign(found, sign)


def turned(function: Any, a: Any) -> Any:
    """Return the result of sin.approx or cos.approx; `function` is np.sin or np.cos."""
    # First convert the angle to turns, a / (2 pi), and round it to float32. 0.15915494 is
    # 1 / (2 pi).
    turns = (a * np.float32(0.15915494)).astype(np.float32).astype(np.float64)
    return function(2 * np.pi * (turns - np.rint(turns))).astype(np.float32)


def unordered(a: Any, b: Any) -> Any:
    """Return whether `a` or `b` is NaN."""
    return np.isnan(a) | np.isnan(b)


def each_half(kind: str, function: Callable[..., Any], *packed: Any) -> Any:
    """Apply a function to the low halves and to the high halves of packed registers.

    Return the packed register with both results.
    """
    half = bits_of(kind)
    small, wide = UNSIGNED[half], UNSIGNED[2 * half]
    low = [read(kind, p.astype(small)) for p in packed]
    high = [read(kind, (p >> wide(half)).astype(small)) for p in packed]
    parts = [written(kind, np.asarray(function(*x)), f"b{half}") for x in (low, high)]
    return parts[0].astype(wide) | parts[1].astype(wide) << wide(half)


# -- conversions -----------------------------------------------------------------------------------

# Type -> (bits of the exponent, bits of the mantissa, largest finite value).
_F8 = {"e4m3": (4, 3, 448.0), "e5m2": (5, 2, 57344.0)}


def rounded(value: Any, to: str, mode: str) -> Any:
    """Return values rounded to a float type; bf16 values are returned as float32."""
    if to == "bf16":
        # Integers are rounded to odd in float64, and float64 values are rounded to odd in float32.
        # So only the last step, the rounding to bfloat16, decides the result.
        wide = np.asarray(value)
        if wide.dtype.kind in "iu":
            near64 = wide.astype(np.float64)
            lost = wide.astype(np.longdouble) - near64.astype(np.longdouble)
            wide = odd(near64, lost.astype(np.float64))
        if wide.dtype == np.float64:
            wide = from_odd(wide)
        near = read("bf16", bf16_bits(wide.astype(np.float32)))
        exact, kind = wide.astype(np.float64), np.float32
        if mode == "rn":
            return near
        # The float32 bits of two neighbouring bfloat16 values differ by this number.
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
    """Return `exact` rounded by rz, rm or rp; `near` is the nearest value.

    `inward` returns the neighbour of `near` toward zero, and `outward` the neighbour away from
    zero.
    """
    error = near.astype(np.longdouble) - exact
    # `up` is True where the nearest value is above the exact value, and `down` where the nearest
    # value is below the exact value.
    up, down = error > 0, error < 0
    positive = exact > 0
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
    # An OCP 8-bit float has a sign, a biased exponent and a mantissa. Exponent 0 is subnormal.
    codes = np.arange(256)
    sign = np.where(codes >> 7, -1.0, 1.0)
    mantissa = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    value = np.where(
        exponent, (1 + mantissa) * 2.0 ** (exponent - bias), mantissa * 2.0 ** (1 - bias)
    )
    # e4m3 has no infinity, and its only NaN has ones in all bits of exponent and mantissa. e5m2 has
    # infinities and NaNs like the IEEE types.
    if kind == "e4m3":
        value = np.where(codes & 0x7F == 0x7F, np.nan, value)
    else:
        top = exponent == 31
        value = np.where(top, np.where(mantissa == 0, np.inf, np.nan), value)
    return (sign * value).astype(np.float32)


F8_VALUES = {kind: f8_table(kind) for kind in _F8}


def f8_bits(kind: str, value: Any) -> Any:
    """Convert values to codes of e4m3 or e5m2, rounded to nearest even and saturated.

    NaN becomes 0x7F.
    """
    # Codes 0 to 127 have the positive values in ascending order, so a binary search finds the code.
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


def packed(to: str, is_relu: bool, mode: str = "rn") -> Callable[[Any, Any], Any] | None:
    """Return the function that converts two float32 to the packed type `to`, as cvt does.

    The first argument of this function becomes the upper half. Return None if `to` is no packed
    type.
    """
    base = to.removesuffix("x2")
    if base in _F8:
        one: Callable[[Any], Any] = lambda v: f8_bits(base, v).astype(np.uint16)  # noqa: E731
        shift, result = 8, np.uint16
    elif base in ("f16", "bf16"):
        result = np.uint32
        shift = 16

        def one(v: Any) -> Any:
            if mode == "rn" and base == "bf16":
                return bf16_bits(v).astype(np.uint32)
            near = rounded(v, base, mode)
            bits = bf16_bits(near) if base == "bf16" else near.view(np.uint16)
            return bits.astype(np.uint32)
    else:
        return None

    def run(high: Any, low: Any) -> Any:
        if is_relu:
            high, low = relu(high), relu(low)
        return one(high) << result(shift) | one(low)

    return run


def halves(kind: str, bits: Any) -> tuple[Any, Any]:
    """Return (value in the lower half, value in the upper half) of an f16x2 or bf16x2 register."""
    low = read(kind, bits.astype(np.uint16))
    return low, read(kind, (bits >> np.uint32(16)).astype(np.uint16))


def joined(kind: str, low: Any, high: Any) -> Any:
    """Return one packed register that has `low` in the lower half and `high` in the upper half."""
    bits = [written(kind, v, "b16").astype(np.uint32) for v in (low, high)]
    return bits[0] | bits[1] << np.uint32(16)


def f8_pair(kind: str, to: str, bits: Any, is_relu: bool) -> Any:
    """Convert a pair of packed 8-bit floats to a pair of packed 16-bit floats."""
    values = F8_VALUES[kind]
    pair = [values[bits & np.uint16(255)], values[bits >> np.uint16(8)]]
    if is_relu:
        pair = [relu(value) for value in pair]
    if to == "f16":
        pair = [value.astype(np.float16) for value in pair]
    return joined(to, *pair)


def to_f8_pair(kind: str, bits: Any, is_relu: bool) -> Any:
    """Convert a pair of packed float16 to a pair of packed 8-bit floats."""
    pair = [value.astype(np.float32) for value in halves("f16", bits)]
    if is_relu:
        pair = [relu(value) for value in pair]
    low, high = (f8_bits(kind, value).astype(np.uint16) for value in pair)
    return low | high << np.uint16(8)


def to_tf32(value: Any, mode: str) -> Any:
    """Convert float32 values to tf32, whose mantissa has 10 bits.

    The mode "rna" rounds to nearest, with ties away from zero.
    """
    # tf32 drops the 13 lowest bits of a float32, so 0x1000 is half of the last remaining bit.
    bits = np.asarray(value, np.float32).view(np.uint32)
    if mode == "rna":
        bits = bits + np.uint32(0x1000)
    elif mode == "rn":
        bits = bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    found = bits & np.uint32(0xFFFFE000)
    return np.where(np.isnan(value), np.uint32(0x7FFFFFFF), found)
