"""Functions that the translated basic blocks call, among them the atomic operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tma_dlpack.kernel.memory import LOCAL_WINDOW, OFFSET_MASK, RANK_SHIFT, SHARED_WINDOW
from tma_dlpack.ptx import opcodes


def mask_of(guard: Any, n: int) -> Any:
    """Return the guard as a mask of the `n` threads, or None if all threads execute."""
    if np.ndim(guard) == 0:
        return None if guard else np.zeros(n, np.bool_)
    return None if guard.all() else guard


def call(
    run: Callable[..., Any], g: Any, code: Any, mask: Any, arguments: tuple[Any, ...],
    olds: tuple[Any, ...],
) -> Any:  # fmt: skip
    """Run an operation and return a tuple of its results.

    For threads outside of `mask`, the results are the old values `olds`.
    """
    g.code = code
    if mask is not None and not mask.any():
        return olds
    result = run(g, mask, *arguments)
    # If the result is callable, the operation waits. The group calls the result after the wait.
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
    """Return a result as unsigned integers of type `unsigned`, which has the register's width."""
    found = np.asarray(value)
    if found.dtype == np.bool_:
        return found.astype(unsigned)
    if found.dtype.itemsize == np.dtype(unsigned).itemsize:
        return found.view(unsigned)
    return found.astype(unsigned)


def scatter(table: Any, slots: Any, index: Any, rows: Any) -> None:
    """Store values (registers, threads) in those rows of a table that `slots` lists."""
    if isinstance(index, slice):
        table[slots, index] = rows
    else:
        table[slots[:, None], index] = rows


def cut(whole: Any, at: int, unsigned: type) -> Any:
    """Return the bits of a register from bit `at` on, cut to the width of `unsigned`.

    The instruction mov.b64 {a, b}, c splits a register with this function.
    """
    return (whole >> whole.dtype.type(at)).astype(unsigned)


def glued(part: int, unsigned: type, *values: Any) -> Any:
    """Return the concatenation of `values`, each with `part` bits; the lowest bits come first."""
    found: Any = unsigned(0)
    for n, value in enumerate(values):
        found = found | value.astype(unsigned) << unsigned(n * part)
    return found


def with_carry(a: Any, b: Any, carry: Any, subtracts: bool) -> tuple[Any, Any]:
    """Return (a + b + carry, new carry), or with `subtracts` (a - b - carry, new borrow)."""
    kind = a.dtype.type
    # An unsigned sum wraps around. So if the sum is less than an operand, there is a carry.
    flag = np.asarray(carry).astype(kind)
    if subtracts:
        found = a - b - flag
        return found, (a < b) | ((a == b) & (flag != 0))
    found = a + b + flag
    return found, (found < a) | ((found == a) & (flag != 0))


def mapped(address: Any, rank: Any) -> Any:
    """Return the result of mapa: the address with the same offset in the block of rank `rank`."""
    # A 32-bit address is a shared address. A 64-bit address is generic.
    kind = address.dtype.type
    if address.dtype.itemsize == 4:
        return address & kind(OFFSET_MASK) | rank.astype(kind) << kind(RANK_SHIFT)
    offset = address - np.uint64(SHARED_WINDOW) & np.uint64(OFFSET_MASK)
    return (offset | rank.astype(np.uint64) << np.uint64(RANK_SHIFT)) + np.uint64(SHARED_WINDOW)


def trap(g: Any, code: Any, mask: Any) -> None:
    """End the run if a thread executes a trap."""
    g.code = code
    if mask is None or mask.any():
        g.machine.fault(
            g, "TRAP", "the kernel executes a trap", "look at the condition before it",
            lanes=g.lanes if mask is None else g.lanes[mask],
        )  # fmt: skip


#: Global names that the Python source of translated blocks uses.
NAMES: dict[str, Any] = {
    **opcodes.NAMES, "i1": np.int8, "i2": np.int16, "i4": np.int32, "i8": np.int64,
    "f2": np.float16, "f4": np.float32, "f8": np.float64, "mask_of": mask_of, "call": call,
    "sized": sized, "scatter": scatter, "cut": cut, "glued": glued, "with_carry": with_carry,
    "mapped": mapped, "trap": trap, "SHARED_WINDOW": np.uint64(SHARED_WINDOW),
    "LOCAL_WINDOW": np.uint64(LOCAL_WINDOW),
}  # fmt: skip


# -- atomics ---------------------------------------------------------------------------------------

#: Name of the operation -> function that returns the new value; `a` is the old value.
ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "exch": lambda a, b: b, "cas": lambda a, b, c: np.where(a == b, c, a),
    "inc": lambda a, b: np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1)),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - a.dtype.type(1)),
}  # fmt: skip


def atomic(op: str, kind: str) -> Callable[..., Any]:
    """Return the function of an atomic operation.

    The function's arguments and its result are bits, as unsigned integers.
    """
    function = ATOMICS[op]
    # A type such as f16x2 has two values of 16 bits in a register.
    if kind.endswith("x2"):
        one = kind[:-2]
        return lambda a, *b: opcodes.each_half(one, function, a, *b)

    def run(a: Any, *operands: Any) -> Any:
        values = [opcodes.read(kind, x) for x in (a, *operands)]
        found = function(*values)
        return opcodes.written(kind, np.asarray(found), f"b{8 * a.dtype.itemsize}")

    return run
