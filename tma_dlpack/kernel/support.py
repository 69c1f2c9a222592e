"""Functions that translated blocks call, and the atomic operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tma_dlpack.kernel.core import opcodes
from tma_dlpack.kernel.memory import LOCAL_WINDOW, OFFSET_MASK, RANK_SHIFT, SHARED_WINDOW


def mask_of(guard: Any, n: int) -> Any:
    """Return which threads execute; None is all."""
    if np.ndim(guard) == 0:
        return None if guard else np.zeros(n, np.bool_)
    return None if guard.all() else guard


def call(
    run: Callable[..., Any], g: Any, code: Any, mask: Any, arguments: tuple[Any, ...],
    olds: tuple[Any, ...],
) -> Any:  # fmt: skip
    """Run an operation; where a guard is false the registers keep their old values."""
    g.code = code
    if mask is not None and not mask.any():
        return olds
    result = run(g, mask, *arguments)
    if callable(result):
        return result
    if type(result) is not tuple:
        result = (result,)
    if mask is None or not olds:
        return result
    return tuple(
        new if old is None else np.where(mask, new, old)
        for new, old in zip(result, olds, strict=False)
    )


def sized(value: Any, unsigned: type) -> Any:
    """Return a result as the bits of its register."""
    found = np.asarray(value)
    if found.dtype == np.bool_:
        return found.astype(unsigned)
    if found.dtype.itemsize == np.dtype(unsigned).itemsize:
        return found.view(unsigned)
    return found.astype(unsigned)


def scatter(table: Any, slots: Any, index: Any, rows: Any) -> None:
    """Store rows of registers that are no neighbours."""
    if isinstance(index, slice):
        table[slots, index] = rows
    else:
        table[slots[:, None], index] = rows


def cut(whole: Any, at: int, unsigned: type) -> Any:
    """Return a part of a register: mov.b64 {a, b}, c."""
    return (whole >> whole.dtype.type(at)).astype(unsigned)


def glued(part: int, unsigned: type, *values: Any) -> Any:
    """Return a register made of parts, the lowest first."""
    found: Any = unsigned(0)
    for n, value in enumerate(values):
        found = found | value.astype(unsigned) << unsigned(n * part)
    return found


def each_half(kind: str, function: Callable[..., Any], *packed: Any) -> Any:
    """Apply a function to both halves of packed registers."""
    if kind == "f32":  # two float32 in 64 bits
        low = [p.astype(np.uint32).view(np.float32) for p in packed]
        high = [(p >> np.uint64(32)).astype(np.uint32).view(np.float32) for p in packed]
        parts = [np.asarray(function(*x), np.float32).view(np.uint32) for x in (low, high)]
        return parts[0].astype(np.uint64) | parts[1].astype(np.uint64) << np.uint64(32)
    pairs = [opcodes.halves(kind, p) for p in packed]
    low, high = (function(*(pair[n] for pair in pairs)) for n in range(2))
    return opcodes.joined(kind, np.asarray(low), np.asarray(high))


def relu(value: Any) -> Any:
    """Return the larger of a value and 0; 0 for NaN."""
    return np.fmax(value, value.dtype.type(0))


def saturate01(value: Any) -> Any:
    """Return a value clipped to 0..1; 0 for NaN."""
    return np.where(np.isnan(value), 0, np.clip(value, 0, 1)).astype(value.dtype)


def mapped(address: Any, rank: Any) -> Any:
    """Return mapa: an address of shared memory in another block of the cluster."""
    kind = address.dtype.type
    if address.dtype.itemsize == 4:
        return address & kind(OFFSET_MASK) | rank.astype(kind) << kind(RANK_SHIFT)
    offset = address - np.uint64(SHARED_WINDOW) & np.uint64(OFFSET_MASK)
    return (offset | rank.astype(np.uint64) << np.uint64(RANK_SHIFT)) + np.uint64(SHARED_WINDOW)


def trap(g: Any, code: Any, mask: Any) -> None:
    """End the run where threads execute a trap."""
    g.code = code
    if mask is None or mask.any():
        g.machine.fault(
            g, "TRAP", "the kernel executes a trap", "look at the condition before it",
            lanes=g.lanes if mask is None else g.lanes[mask],
        )  # fmt: skip


def f8_pair(kind: str, to: str, bits: Any) -> Any:
    """Return two 8-bit floats as packed 16-bit ones."""
    table = opcodes.F8_VALUES[kind]
    low, high = table[bits & np.uint16(255)], table[bits >> np.uint16(8)]
    if to == "f16":
        low, high = low.astype(np.float16), high.astype(np.float16)
    return opcodes.joined(to, low, high)


def to_f8_pair(kind: str, bits: Any, is_relu: bool) -> Any:
    """Return two packed float16 as 8-bit floats."""
    low, high = (v.astype(np.float32) for v in opcodes.halves("f16", bits))
    if is_relu:
        low, high = relu(low), relu(high)
    codes = [opcodes.f8_bits(kind, v).astype(np.uint16) for v in (low, high)]
    return codes[0] | codes[1] << np.uint16(8)


def to_tf32(value: Any, mode: str, away: bool) -> Any:
    """Return float32 as tf32: 10 bits of mantissa; `away` rounds halves away from zero."""
    bits = np.asarray(value, np.float32).view(np.uint32)
    if away:
        bits = bits + np.uint32(0x1000)
    elif mode == "rn":
        bits = bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    found = bits & np.uint32(0xFFFFE000)
    return np.where(np.isnan(value), np.uint32(0x7FFFFFFF), found)


NAMES: dict[str, Any] = {
    "np": np, "where": np.where, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32,
    "uint64": np.uint64, "int64": np.int64, "int32": np.int32, "int16": np.int16,
    "float32": np.float32, "i1": np.int8, "i2": np.int16, "i4": np.int32, "i8": np.int64,
    "f2": np.float16, "f4": np.float32, "f8": np.float64, "read": opcodes.read,
    "written": opcodes.written, "mul_hi": opcodes.mul_hi, "quotient": opcodes.quotient,
    "remainder": opcodes.remainder, "shifted_left": opcodes.shifted_left,
    "shifted_right": opcodes.shifted_right, "field": opcodes.field, "insert": opcodes.insert,
    "reversed_bits": opcodes.reversed_bits, "lookup": opcodes.lookup,
    "permuted": opcodes.permuted, "popcount": opcodes.popcount,
    "leading_zeros": opcodes.leading_zeros, "find_bit": opcodes.find_bit,
    "dot_bytes": opcodes.dot_bytes, "flushed": opcodes.flushed, "unordered": opcodes.unordered,
    "saturated": opcodes.saturated, "mask_of": mask_of, "call": call, "sized": sized,
    "scatter": scatter, "cut": cut, "glued": glued, "each_half": each_half, "relu": relu,
    "saturate01": saturate01, "mapped": mapped, "trap": trap, "f8_pair": f8_pair,
    "to_f8_pair": to_f8_pair, "to_tf32": to_tf32, "SHARED_WINDOW": np.uint64(SHARED_WINDOW),
    "LOCAL_WINDOW": np.uint64(LOCAL_WINDOW),
}  # fmt: skip


# -- atomics ---------------------------------------------------------------------------------------

#: What an atomic operation makes of the old value `a` and its operands.
ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "exch": lambda a, b: b, "cas": lambda a, b, c: np.where(a == b, c, a),
    "inc": lambda a, b: np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1)),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - a.dtype.type(1)),
}  # fmt: skip


def atomic(op: str, kind: str) -> Callable[..., Any]:
    """Return an atomic operation on bits of a type."""
    function = ATOMICS[op]
    if kind.endswith("x2"):
        one = kind[:-2]
        return lambda a, *b: each_half(one, function, a, *b)

    def run(a: Any, *operands: Any) -> Any:
        values = [opcodes.read(kind, x) for x in (a, *operands)]
        found = function(*values)
        return opcodes.written(kind, np.asarray(found), f"b{8 * a.dtype.itemsize}")

    return run
