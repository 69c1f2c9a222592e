"""The changes of `Report.fixed`: what to pass instead so that a rule holds.

A repair takes a case and a place and gives keyword arguments of the call, row-major, or an empty
dict where no change of arguments mends it. It may leave another rule broken: `Report.fixed` goes
on until nothing is broken, and proves what it returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tma_dlpack.encoding.arguments import reverse
from tma_dlpack.rules.request import Case
from tma_dlpack.types.dtypes import PACKED_TYPES, data_type_of, overrides_of, row
from tma_dlpack.types.enums import TensorMapDataType, TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.types.limits import (
    INNER_BYTES,
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_ELEM_STRIDE,
    PADDED_INNER_VALUES,
    SWIZZLE_SPAN_BYTES,
)

__all__ = [
    "Change",
    "Holds",
    "Repair",
    "clamp_box",
    "clamp_count",
    "clamp_elem_stride",
    "constant",
    "corner_count",
    "corner_range",
    "entries",
    "fit_span",
    "full_swizzle",
    "inner_box",
    "less_aligned",
    "open_bounding_box",
    "other_type",
    "padded_inner",
    "shrink_box",
    "shrink_column",
    "shrunk",
    "wider_swizzle",
]

Change = dict[str, Any]
Repair = Callable[[Case, int], Change]
Holds = Callable[[Case, int], bool]


def constant(**change: Any) -> Repair:
    """Set arguments to a value that always passes."""
    return lambda c, i: change


# -- data type, interleave -----------------------------------------------------------------------


def other_type(c: Case, i: int) -> Change:
    """Take the same values unpadded, else the tensor's own type, else an integer of its size."""
    if c.view is None:
        return {}
    unpadded = _unpadded(c)
    if unpadded is not None:
        return {"data_type": unpadded}
    own = data_type_of(c.view.dtype)
    missing = own in PACKED_TYPES and c.target.is_sm_9x
    if own is not None and own is not c.data_type and not missing:
        return {"data_type": None}
    choices = (t for t in overrides_of(c.view.dtype) if t not in PACKED_TYPES)
    return next(({"data_type": t} for t in choices if t is not c.data_type), {})


def _unpadded(c: Case) -> TensorMapDataType | None:
    """Give the packed type of the same bits that asks for less alignment and any row."""
    if c.view is None or c.data_type is None or c.target.is_sm_9x or not c.type_row.is_packed:
        return None
    return next(
        (
            t
            for t in overrides_of(c.view.dtype)
            if row(t).element_bits == c.element_bits
            and row(t).smem_chunk_bytes < c.type_row.smem_chunk_bytes
        ),
        None,
    )


def less_aligned(c: Case, i: int) -> Change:
    """Ask for what 16 bytes of alignment suffice for, where the tensor has them."""
    if c.alignment_bytes == 16 or c.address % 16 or any(s % 16 for s in c.strides_bytes):
        return {}
    if c.interleave is TmaInterleaveLayout.bytes32:
        return {"interleave_layout": TmaInterleaveLayout.bytes16}
    return other_type(c, i)


def full_swizzle(c: Case, i: int) -> Change:
    """Take the swizzle that padded types and im2col-wide maps allow, which bytes32 rules out."""
    if c.interleave is TmaInterleaveLayout.bytes32:
        return {"swizzle": TmaSwizzle.bytes128, "interleave_layout": TmaInterleaveLayout.none}
    return {"swizzle": TmaSwizzle.bytes128}


# -- box -----------------------------------------------------------------------------------------


def _with(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Replace entry i of a driver-order tuple and give it row-major."""
    return reverse((*values[:i], int(value), *values[i + 1 :]))


def _with_inner(c: Case, value: int) -> Change:
    if c.kind == "tiled":
        return {"box_sizes": _with(c.box, 0, value)}
    return {"channels_per_pixel": int(value)}


def _clamped(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _most(c: Case, i: int, limit: int) -> int:
    """Give the most that entry i of a box or of elem_strides may be, other entries apart."""
    return min(limit, int(c.dims[i])) if c.rules == "libcu++" else limit


def clamp_box(c: Case, i: int) -> Change:
    """Bring entry i into 1..256, and into the shape where that is asked."""
    return {"box_sizes": _with(c.box, i, _clamped(c.box[i], 1, _most(c, i, MAX_BOX)))}


def inner_box(c: Case, i: int) -> Change:
    """Take the nearest multiple of 16 bytes that the shape and the swizzle allow."""
    most = _most(c, 0, MAX_BOX)
    if c.swizzle and not c.interleaved:
        most = min(most, c.span_elements)
    fitting = range(c.inner_unit, most + 1, c.inner_unit)
    if not fitting:
        return {}
    return _with_inner(c, min(fitting, key=lambda n: (abs(n - c.inner_box), -n)))


def padded_inner(c: Case, i: int) -> Change:
    """Take the one row that the types padded to 16 bytes allow."""
    return _with_inner(c, PADDED_INNER_VALUES)


def wider_swizzle(c: Case) -> TmaSwizzle | None:
    """Give the narrowest swizzle that holds the row of the box; None where none does."""
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if c.inner_box_bytes <= SWIZZLE_SPAN_BYTES[swizzle]:
            return swizzle
    return None


def fit_span(c: Case, i: int) -> Change:
    """Take a wider swizzle that holds the row; where none does, narrow the row to the swizzle.

    A row of channels that must become a multiple of 16 bytes anyway may then fit as it is.
    """
    if c.kind != "tiled" and c.target.has_model and c.inner_box_bytes % INNER_BYTES:
        return inner_box(c, i)
    swizzle = wider_swizzle(c)
    return _with_inner(c, c.span_elements) if swizzle is None else {"swizzle": swizzle}


def shrunk(c: Case, holds: Holds) -> tuple[int, int]:
    """Find the entry to shrink so that a limit of the box holds: its place and its new value."""
    place = max(range(1, c.rank), key=lambda k: c.box[k], default=0)
    place = place if c.box[place] > 1 else 0
    unit = c.inner_unit if place == 0 else 1
    most = (c.box[place] - 1) // unit * unit

    def fits(value: int) -> bool:
        box = (*c.box[:place], value, *c.box[place + 1 :])
        return holds(dataclasses.replace(c, box=box), 0)

    return place, next(filter(fits, range(most, 0, -unit)), 1)


def shrink_box(holds: Holds) -> Repair:
    """Shrink the largest outer entry as little as a limit of the box asks."""
    return lambda c, i: {"box_sizes": _with(c.box, *shrunk(c, holds))}


def shrink_column(c: Case, i: int) -> Change:
    """Take as many pixels as fit 228 KB."""
    share = Fraction(c.box_bytes) / c.pixels
    return {"pixels_per_column": max(1, int(MAX_BOX_BYTES // share))}


def entries(argument: str) -> Repair:
    """Make a list as long as the tensor's rank: outer entries of 1 come, or outer ones go."""

    def repair(c: Case, i: int) -> Change:
        values = reverse(c.box if argument == "box_sizes" else c.elem_strides)
        kept = values[max(0, len(values) - c.rank) :]
        return {argument: (1,) * (c.rank - len(kept)) + kept}

    return repair


def clamp_elem_stride(c: Case, i: int) -> Change:
    """Bring entry i into 1..8, and into the shape where that is asked."""
    value = _clamped(c.elem_strides[i], 1, _most(c, i, MAX_ELEM_STRIDE))
    return {"elem_strides": _with(c.elem_strides, i, value)}


# -- im2col --------------------------------------------------------------------------------------


def _with_corner(c: Case, which: str, values: tuple[int, ...]) -> Change:
    if c.kind == "im2col_wide":
        return {f"{which}_corner_width": values[0]}
    return {f"pixel_box_{which}_corner": reverse(values)}


def _corner(c: Case, which: str) -> tuple[int, ...]:
    return c.lower if which == "lower" else c.upper


def corner_count(which: str) -> Repair:
    """Make a corner as long as there are spatial dimensions; outer entries of 0 come, or go."""

    def repair(c: Case, i: int) -> Change:
        values = _corner(c, which)[: c.spatial]
        return _with_corner(c, which, values + (0,) * (c.spatial - len(values)))

    return repair


def corner_range(which: str) -> Repair:
    """Bring entry i into the range of the rank."""

    def repair(c: Case, i: int) -> Change:
        values, half = list(_corner(c, which)), 1 << (c.corner_bits - 1)
        values[i] = _clamped(values[i], -half, half - 1)
        return _with_corner(c, which, tuple(values))

    return repair


def open_bounding_box(c: Case, i: int) -> Change:
    """Move the upper corner, or where that cannot reach the lower one, to leave one pixel."""
    size, half = c.spatial_size(i), 1 << (c.corner_bits - 1)
    upper, lower = list(c.upper), list(c.lower)
    upper[i] = _clamped(lower[i] + 1 - size, -half, half - 1)
    lower[i] = _clamped(min(lower[i], size + upper[i] - 1), -half, half - 1)
    change = _with_corner(c, "upper", tuple(upper))
    return change | (_with_corner(c, "lower", tuple(lower)) if tuple(lower) != c.lower else {})


def clamp_count(argument: str, attribute: str, limit: int) -> Repair:
    """Bring a count into 1..limit."""
    return lambda c, i: {argument: _clamped(getattr(c, attribute), 1, limit)}
