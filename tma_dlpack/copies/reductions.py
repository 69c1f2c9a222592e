"""Arithmetic of ``cp.reduce.async.bulk.tensor``, for each data type and operation.

Source: measured on an H200 (driver 580.159.04, 2026-11-20).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tma_dlpack.copies.refusals import refuse
from tma_dlpack.copies.tile import Values
from tma_dlpack.tables.coerce import shown, text_of
from tma_dlpack.tables.enums import TensorMapDataType

Operation = Callable[[Values, Values], Values]
_T = TensorMapDataType

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")

_ORDERED = ("min", "max")
_BITWISE = ("and", "or", "xor")

#: Type -> operations that the hardware executes [measured]; others are illegal instructions.
REDUCTIONS: dict[TensorMapDataType, tuple[str, ...]] = {
    _T.UINT32: ("add", *_ORDERED, "inc", "dec", *_BITWISE),
    _T.INT32: ("add", *_ORDERED, *_BITWISE),
    _T.UINT64: ("add", *_ORDERED, *_BITWISE),
    _T.INT64: _ORDERED,
    _T.FLOAT16: ("add", *_ORDERED),
    _T.BFLOAT16: ("add", *_ORDERED),
    _T.FLOAT32: ("add",),
    _T.FLOAT64: ("add",),
    _T.FLOAT32_FTZ: ("add",),
    _T.TFLOAT32: ("add",),
    _T.TFLOAT32_FTZ: ("add",),
}


def reduction_of(data_type: TensorMapDataType, op: object) -> str:
    """Return the operation; refuse it if the hardware does not have it for the data type."""
    allowed, word = REDUCTIONS.get(data_type, ()), text_of(op)
    if word is not None and word in allowed:
        return word
    if word not in OPERATIONS:
        refuse("COPY_REDUCTION", "op", f"op is {shown(op)}, not one of {', '.join(OPERATIONS)}")
    has = f"has {', '.join(allowed)}" if allowed else "has no reductions"
    refuse("COPY_REDUCTION", "op", f"op is {shown(op)}, but {data_type.name} {has}")


def combine(data_type: TensorMapDataType, op: str, old: Values, new: Values) -> Values:
    """Return ``op(old, new)`` element by element, as the engine computes it.

    `old` and `new` have the NumPy type of `data_type`; bfloat16 is uint16. Sums round to nearest
    even. Only the ..._FTZ types treat subnormals as zero.
    """
    if op in _WORD_OPERATIONS:
        return _WORD_OPERATIONS[op](old, new)
    if data_type in _INFINITY_WORDS and op in _ORDERED:
        infinity = _INFINITY_WORDS[data_type]
        return _ordered(old.view(np.uint16), new.view(np.uint16), op, infinity).view(old.dtype)
    if op in _ORDERED:
        return np.minimum(old, new) if op == "min" else np.maximum(old, new)
    with np.errstate(all="ignore"):
        return _ADDITIONS.get(data_type, np.add)(old, new)


def _increment(old: Values, new: Values) -> Values:
    return np.where(old >= new, 0, old + np.uint32(1)).astype(old.dtype)


def _decrement(old: Values, new: Values) -> Values:
    return np.where((old == 0) | (old > new), new, old - np.uint32(1)).astype(old.dtype)


def _ordered(old: Values, new: Values, op: str, infinity: int) -> Values:
    """Return min or max of 16-bit floats: -0 is below +0, a number wins over NaN.

    Two NaNs give 0x7FFF.
    """
    # Bits of floats as unsigned numbers in the order of the values: negative floats are inverted.
    old_nan, new_nan = (old & 0x7FFF) > infinity, (new & 0x7FFF) > infinity
    old_rank, new_rank = (np.where(w >> 15, ~w, w | 0x8000) for w in (old, new))
    takes_new = new_rank < old_rank if op == "min" else new_rank > old_rank
    chosen = np.where(old_nan | (takes_new & ~new_nan), new, old)
    return np.where(old_nan & new_nan, 0x7FFF, chosen).astype(np.uint16)


def _add_float(old: Values, new: Values) -> Values:
    """Add float16 or float32; a NaN has ones in all bits below the sign."""
    total = old + new
    words = total.view(f"u{total.itemsize}")
    words[np.isnan(total)] = np.iinfo(words.dtype).max >> 1
    return total


def _add_float32_ftz(old: Values, new: Values) -> Values:
    return _flushed(_add_float(_flushed(old), _flushed(new)))


def _add_float64(old: Values, new: Values) -> Values:
    """Add float64; a NaN operand keeps its bits, `new` first. The NaN of inf - inf is negative."""
    total, old_words, new_words = (v.view(np.uint64) for v in (old + new, old, new))
    total[np.isnan(total.view(np.float64))] = 0xFFF8000000000000
    kept = np.where(np.isnan(old), old_words, total)
    return np.where(np.isnan(new), new_words, kept).view(np.float64)


def _add_bfloat16(old: Values, new: Values) -> Values:
    """Add bfloat16 in float32, whose bits suffice: rounding twice gives the same result."""
    # A bfloat16 is the upper half of a float32; the sum is rounded to nearest even.
    total = (old.astype(np.uint32) << 16).view(np.float32)
    total += (new.astype(np.uint32) << 16).view(np.float32)
    words = total.view(np.uint32)
    rounded = (words + 0x7FFF + (words >> 16 & 1)) >> 16
    return np.where(np.isnan(total), 0x7FFF, rounded).astype(np.uint16)


def _flushed(values: Values) -> Values:
    # The sign of a zero stays.
    subnormal = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(subnormal, np.copysign(np.float32(0), values), values)


_WORD_OPERATIONS: dict[str, Operation] = {
    "inc": _increment,
    "dec": _decrement,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
#: Bits of infinity in the 16-bit floats; the bits of a NaN are larger.
_INFINITY_WORDS = {_T.FLOAT16: 0x7C00, _T.BFLOAT16: 0x7F80}
_ADDITIONS: dict[TensorMapDataType, Operation] = {
    **dict.fromkeys((_T.FLOAT16, _T.FLOAT32, _T.TFLOAT32), _add_float),
    **dict.fromkeys((_T.FLOAT32_FTZ, _T.TFLOAT32_FTZ), _add_float32_ftz),
    _T.BFLOAT16: _add_bfloat16,
    _T.FLOAT64: _add_float64,
}
