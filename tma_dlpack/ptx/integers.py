"""Integer instructions of PTX as functions of NumPy arrays.

PTX does not define some results: a division by 0, the conversion of NaN to an integer, and a 64-bit
field that extends beyond bit 63. For these cases the functions return the results that were
measured on an H100 (`tests/golden/ptx_h100.npz`).

Source: PTX ISA 9.0, 9.7.1 (integers), 9.7.2 (dp4a), 9.7.7 (logic, shifts), 9.7.9 (cvt).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tma_dlpack.ptx.numbers import NUMPY, UNSIGNED, bits_of


def _wide(a: Any) -> Any:
    return a.astype({"u": np.uint64, "i": np.int64}[a.dtype.kind])


def mul_hi(a: Any, b: Any) -> Any:
    """Return the upper half of the bits of a product (mul.hi)."""
    size = 8 * a.dtype.itemsize
    if size < 64:
        return ((_wide(a) * _wide(b)) >> size).astype(a.dtype)
    # Split each operand into 32-bit halves, and add the four products of these halves. The upper
    # halves of `middle` and `other` are the carries into the upper half of the result.
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (other >> half)
    # If a is negative, its bits as an unsigned number have the value a + 2**64. This makes the
    # upper half too large by b, so subtract b. If b is negative, also subtract a.
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def quotient(a: Any, b: Any) -> Any:
    """Return a / b rounded toward zero; if b is 0, all bits of the result are 1 (H100)."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        found = a // safe
    else:
        # NumPy rounds down, so add 1 to an inexact negative quotient.
        whole = a // safe
        found = whole + ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.array(-1).astype(a.dtype), found).astype(a.dtype)


def remainder(a: Any, b: Any) -> Any:
    """Return the remainder of a / b with the sign of a; if b is 0, all bits are 1 (H100)."""
    found = a - quotient(a, b) * b
    return np.where(b == 0, np.array(-1).astype(a.dtype), found).astype(a.dtype)


def shifted_left(a: Any, n: Any) -> Any:
    """Return a << n; 0 if n is at least the width of the type."""
    # NumPy does not define a shift by the width of the type or more, so clip n first.
    size = 8 * a.dtype.itemsize
    n = np.asarray(n).astype(np.uint32)
    moved = a << np.minimum(n, size - 1).astype(a.dtype)
    return np.where(n >= size, a.dtype.type(0), moved)


def shifted_right(a: Any, n: Any) -> Any:
    """Return a >> n; if n is at least the width of the type, the result is 0, or -1 if a < 0."""
    size = 8 * a.dtype.itemsize
    n = np.asarray(n).astype(np.uint32)
    moved = a >> np.minimum(n, size - 1).astype(a.dtype)
    if a.dtype.kind == "i":
        return moved
    return np.where(n >= size, a.dtype.type(0), moved)


def _pair(a: Any, b: Any) -> Any:
    """Return the 64-bit number with the upper half b and the lower half a."""
    return np.asarray(b).astype(np.uint64) << np.uint64(32) | np.asarray(a).astype(np.uint64)


def funnel(a: Any, b: Any, n: Any, left: bool, clamps: bool) -> Any:
    """Return the result of shf, which shifts the 64-bit pair b:a by n.

    shf.l (`left`) returns the upper 32 bits of the shifted pair, and shf.r the lower 32 bits.
    """
    # .clamp limits n to 32. .wrap uses n modulo 32.
    n = np.minimum(n, 32) if clamps else np.bitwise_and(n, 31)
    n = np.asarray(n).astype(np.uint64)
    pair = _pair(a, b)
    moved = (pair << n) >> np.uint64(32) if left else pair >> n
    return moved.astype(np.uint32)


def popcount(a: Any) -> Any:
    """Return the number of set bits (popc)."""
    found = np.zeros(np.shape(a), np.uint32)
    for at in range(8 * a.dtype.itemsize):
        found = found + (a >> a.dtype.type(at) & a.dtype.type(1)).astype(np.uint32)
    return found


def leading_zeros(a: Any) -> Any:
    """Return the number of zero bits above the highest set bit (clz)."""
    size = 8 * a.dtype.itemsize
    # Set all bits below the highest set bit, then count the set bits.
    filled = a
    for n in (1, 2, 4, 8, 16, 32):
        if n < size:
            filled = filled | filled >> a.dtype.type(n)
    return (np.uint32(size) - popcount(filled)).astype(np.uint32)


def find_bit(a: Any, shift: bool) -> Any:
    """Return the result of bfind: the position of the highest bit that differs from the sign bit.

    For an unsigned type, it is the position of the highest set bit. With `shift` (.shiftamt), the
    result is the number of bits by which a left shift moves this bit to the top position. If there
    is no such bit, the result is 0xFFFFFFFF.
    """
    size = 8 * a.dtype.itemsize
    unsigned = a.view(UNSIGNED[size])
    if a.dtype.kind == "i":
        unsigned = np.where(a < 0, ~unsigned, unsigned)
    zeros = leading_zeros(unsigned)
    found = zeros if shift else np.uint32(size - 1) - zeros
    return np.where(unsigned == 0, np.uint32(0xFFFFFFFF), found)


def reversed_bits(a: Any) -> Any:
    """Return the bits in reverse order (brev)."""
    found = np.zeros_like(a)
    size = 8 * a.dtype.itemsize
    for at in range(size):
        bit = a >> a.dtype.type(at) & a.dtype.type(1)
        found = found | bit << a.dtype.type(size - 1 - at)
    return found


def _few(n: Any, size: int) -> Any:
    """Return a bit position or a length, clipped to 64.

    Instructions of 32 bits use only the lowest 8 bits of the operand.
    """
    n = np.bitwise_and(n, 255) if size == 32 else n
    return np.minimum(n, 64).astype(np.uint64)


def _ones(n: Any) -> Any:
    """Return 64-bit integers whose n lowest bits are 1."""
    # For n = 0 the shift would be by 64 bits, which NumPy does not define.
    every = np.uint64(0xFFFFFFFFFFFFFFFF)
    return np.where(n == 0, np.uint64(0), every >> (np.uint64(64) - np.maximum(n, np.uint64(1))))


def field(a: Any, at: Any, length: Any) -> Any:
    """Return the result of bfe: `length` bits of `a`, beginning at bit `at`.

    If the type is signed, the sign of the field is extended.
    """
    size = 8 * a.dtype.itemsize
    at, length = _few(at, size), _few(length, size)
    wide = a.astype(np.int64 if a.dtype.kind == "i" else np.uint64)
    last = wide.dtype.type(63)
    moved = wide >> np.minimum(at.astype(wide.dtype), last)
    if a.dtype.kind == "u":
        moved = np.where(at > np.uint64(63), np.uint64(0), moved)
        return (moved & _ones(length)).astype(a.dtype)
    # For a signed type, shift the field left to bit 63, then shift it right. The right shift
    # extends the sign of the field.
    unused = np.minimum(np.int64(64) - length.astype(np.int64), last)
    found = (moved << unused) >> unused
    return np.where(length == 0, 0, found).astype(a.dtype)


def insert(a: Any, b: Any, at: Any, length: Any) -> Any:
    """Return the result of bfi: b with `length` bits replaced, beginning at bit `at`.

    The new bits are the lowest `length` bits of `a`.
    """
    size = 8 * b.dtype.itemsize
    at, length = _few(at, size), _few(length, size)
    shift = np.minimum(at, np.uint64(63))
    mask = np.where(at < np.uint64(size), _ones(length) << shift, np.uint64(0))
    moved = a.astype(np.uint64) << shift
    return ((b.astype(np.uint64) & ~mask) | (moved & mask)).astype(b.dtype)


def low24(a: Any) -> Any:
    """Return the lowest 24 bits as a number, sign-extended for signed types."""
    bits = a.dtype.type(8)
    return (a << bits) >> bits


def mask_bits(at: Any, length: Any, wraps: bool) -> Any:
    """Return the result of bmsk: a mask with `length` set bits, beginning at bit `at`."""
    if wraps:
        at, length = np.bitwise_and(at, 31), np.bitwise_and(length, 31)
    at, length = _few(np.minimum(at, 64), 64), _few(np.minimum(length, 64), 64)
    return np.where(at > 31, np.uint64(0), _ones(length) << np.minimum(at, 63)).astype(np.uint32)


def extended(a: Any, length: Any, wraps: bool) -> Any:
    """Return the result of szext: the lowest `length` bits of `a`, extended to the whole width.

    An unsigned type is extended with zeros, and a signed type with the sign bit.
    """
    length = np.bitwise_and(length, 31) if wraps else np.minimum(length, 32)
    return field(a.astype(f"{a.dtype.kind}8"), np.uint64(0), length).astype(a.dtype)


def nth_bit(mask: Any, base: Any, offset: Any) -> Any:
    """Return the result of fns: the position of set bit number `offset`, counted from bit `base`.

    If there is no such bit, the result is 0xFFFFFFFF.
    """
    # A negative offset counts from `base` downward. The offset 0 tests the bit `base` itself. For
    # each bit position, `up` and `down` are the number of set bits between `base` and this bit.
    mask, base, offset = np.broadcast_arrays(mask, np.asarray(base).astype(np.int64), offset)
    bits = (mask[..., None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)).astype(np.int64)
    place = np.arange(32)
    up = np.cumsum(bits * (place >= base[..., None]), axis=-1)
    down = np.cumsum((bits * (place <= base[..., None]))[..., ::-1], axis=-1)[..., ::-1]
    n = offset.astype(np.int64)[..., None]
    wanted = np.where(n > 0, up == n, np.where(n < 0, down == -n, place == base[..., None]))
    hit = wanted & (bits == 1)
    return np.where(hit.any(axis=-1), hit.argmax(axis=-1), -1).astype(np.int32).view(np.uint32)


def permuted(a: Any, b: Any, selector: Any) -> Any:
    """Return the result of prmt, which selects four bytes of the 64-bit pair b:a."""
    # The selector has four bits for each byte of the result. Bits 0 to 2 are the index of a byte in
    # the pair. If bit 3 is set, each bit of the result byte is the sign bit of the selected byte.
    pair = _pair(a, b)
    found = np.uint32(0)
    for n in range(4):
        choice = np.asarray(selector).astype(np.uint64) >> np.uint64(4 * n) & np.uint64(15)
        byte = pair >> (choice & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = np.where(choice & np.uint64(8), sign, byte)
        found = found | byte.astype(np.uint32) << np.uint32(8 * n)
    return found


#: Mode of prmt -> the selectors for the values 0 to 3 of the two lowest bits of operand c (PTX ISA
#: 9.0, prmt).
_PRMT_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333), "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}  # fmt: skip


def permuted_by(mode: str, a: Any, b: Any, selector: Any) -> Any:
    """Return the result of prmt in a mode such as "f4e"."""
    selectors = np.array(_PRMT_MODES[mode], np.uint32)
    return permuted(a, b, selectors[np.bitwise_and(selector, 3)])


def lookup(a: Any, b: Any, c: Any, table: Any) -> Any:
    """Return the result of lop3, which computes each bit by a look-up in a table of 8 bits."""
    # At each bit position, the index in the table is 4 a + 2 b + c, where a, b and c are the bits
    # of the operands at this position.
    found = np.uint32(0)
    for n in range(8):
        if int(table) >> n & 1:
            x = a if n & 4 else ~a
            y = b if n & 2 else ~b
            z = c if n & 1 else ~c
            found = found | (x & y & z)
    return found


def dot_bytes(a: Any, b: Any, c: Any, a_signed: bool, b_signed: bool) -> Any:
    """Return the result of dp4a: c plus the sum of the products of four pairs of bytes."""
    total = np.asarray(c).astype(np.int64)
    for n in range(4):
        x = (a >> np.uint32(8 * n)).astype(np.uint8)
        y = (b >> np.uint32(8 * n)).astype(np.uint8)
        left = x.view(np.int8) if a_signed else x
        right = y.view(np.int8) if b_signed else y
        total = total + left.astype(np.int64) * right.astype(np.int64)
    return total.astype(np.int32)


def dot_halves(a: Any, b: Any, c: Any, high: bool) -> Any:
    """Return the result of dp2a: c plus the products of the two halves of `a` and two bytes of `b`.

    With `high`, use the two upper bytes of `b`, otherwise the two lower bytes.
    """
    words, parts = (np.int16, np.int8), (np.uint16, np.uint8)
    total = np.asarray(c).astype(np.int64)
    for n in range(2):
        half = (a >> a.dtype.type(16 * n)).astype((words if a.dtype.kind == "i" else parts)[0])
        byte = b >> b.dtype.type(8 * n + 16 * high)
        byte = byte.astype((words if b.dtype.kind == "i" else parts)[1])
        total = total + half.astype(np.int64) * byte.astype(np.int64)
    return total.astype(np.int32)


def saturated(kind: str, value: Any) -> Any:
    """Return a value clipped to the range of the integer type `kind`; NaN becomes 0."""
    info = np.iinfo(NUMPY[kind])  # type: ignore[type-var]
    if value.dtype.kind == "f":
        wide = np.where(np.isnan(value), 0.0, value.astype(np.float64))
        # float64 cannot represent the largest 64-bit integers. So convert only values inside of the
        # range, and set the clipped values afterwards.
        low = wide <= float(info.min)
        high = wide >= float(info.max)
        inside = np.where(low | high, 0.0, wide)
        # The conversion to int64 works only below 2**63. So subtract 2**63 from larger values
        # before the conversion, and add 2**63 to the u64 result.
        large = inside >= 2.0**63
        whole = np.where(large, inside - 2.0**63, inside).astype(np.int64).astype(info.dtype)
        if kind == "u64":
            whole = whole + np.where(large, np.uint64(1 << 63), np.uint64(0))
        found = np.where(low, info.dtype.type(info.min), whole)
        return np.where(high, info.dtype.type(info.max), found)
    if value.dtype == np.uint64:
        return np.minimum(value, np.uint64(info.max)).astype(info.dtype)
    wide = value.astype(np.int64)
    if kind == "u64":
        return np.maximum(wide, 0).astype(np.uint64)
    return np.clip(wide, info.min, info.max).astype(info.dtype)


def whole(kind: str, value: Any, source: str) -> Any:
    """Return floats as saturated integers, as cvt does.

    NaN becomes 0 if the result has fewer than 32 bits, or if the result has 32 bits and the source
    is not f64. In all other cases, NaN becomes a result whose only set bit is the top bit.
    """
    found = saturated(kind, value)
    size = bits_of(kind)
    if size < 32 or (size == 32 and source != "f64"):
        return found
    nan = np.array(1 << size - 1, UNSIGNED[size]).view(found.dtype)
    return np.where(np.isnan(value), nan, found)


def packed_integers(kind: str, high: Any, low: Any, rest: Any = None) -> Any:
    """Return the result of cvt.pack: `high` and `low` as saturated integers, side by side.

    `low` is in the lowest bits. `rest`, if present, is shifted left and is above `high`.
    """
    size = bits_of(kind)
    parts = [saturated(kind, v).view(UNSIGNED[size]).astype(np.uint32) for v in (high, low)]
    found = parts[0] << np.uint32(size) | parts[1]
    if rest is not None:
        found = found | np.asarray(rest, np.uint32) << np.uint32(2 * size)
    return found
