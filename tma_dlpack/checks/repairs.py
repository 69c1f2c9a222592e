"""The changes of `Report.fixed`: arguments to pass instead, so that a rule holds.

A repair takes a request (and, of a rule per entry, the entry) and gives keyword arguments of the
call, row-major, or an empty dict if no change of arguments helps. It may leave another rule
broken: `Report.fixed` goes on until nothing is broken, and checks what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tma_dlpack.checks.request import Request
from tma_dlpack.tables.arguments import reverse
from tma_dlpack.tables.dtypes import DATA_TYPES, PACKED_TYPES, data_type_of, overrides_of
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.tables.limits import (
    INNER_BYTES,
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_ELEM_STRIDE,
    PADDED_INNER_VALUES,
    SWIZZLE_SPAN_BYTES,
)

Change = dict[str, Any]
Repair = Callable[[Request], Change]
RepairOfEntry = Callable[[Request, int], Change]
Holds = Callable[[Request], bool]


def constant(**change: Any) -> Repair:
    """Set arguments to values that the rule always accepts."""
    return lambda r: change


# -- data type, interleave -----------------------------------------------------------------------


def other_type(r: Request) -> Change:
    """Take the same values unpadded, else the tensor's own type, else an integer of its size."""
    if r.view is None:
        return {}
    unpadded = _unpadded(r)
    if unpadded is not None:
        return {"data_type": unpadded}
    own = data_type_of(r.view.dtype)
    missing = own in PACKED_TYPES and r.target.is_sm_9x
    if own is not None and own is not r.data_type and not missing:
        return {"data_type": None}
    choices = (t for t in overrides_of(r.view.dtype) if t not in PACKED_TYPES)
    return next(({"data_type": t} for t in choices if t is not r.data_type), {})


def _unpadded(r: Request) -> TensorMapDataType | None:
    """Give the packed type of the same bits that needs less alignment and takes any row."""
    if r.view is None or r.data_type is None or r.target.is_sm_9x or not r.type_row.is_packed:
        return None
    return next(
        (
            t
            for t in overrides_of(r.view.dtype)
            if DATA_TYPES[t].element_bits == r.element_bits
            and DATA_TYPES[t].smem_chunk_bytes < r.type_row.smem_chunk_bytes
        ),
        None,
    )


def less_aligned(r: Request) -> Change:
    """Choose options that need only 16 bytes of alignment, if the tensor has those."""
    if r.alignment_bytes == 16 or r.address % 16 or any(s % 16 for s in r.arguments.global_strides):
        return {}
    if r.arguments.interleave is TmaInterleaveLayout.bytes32:
        return {"interleave_layout": TmaInterleaveLayout.bytes16}
    return other_type(r)


def full_swizzle(r: Request) -> Change:
    """Choose bytes128, which padded types and im2col-wide maps allow."""
    if r.arguments.interleave is TmaInterleaveLayout.bytes32:
        return {"swizzle": TmaSwizzle.bytes128, "interleave_layout": TmaInterleaveLayout.none}
    return {"swizzle": TmaSwizzle.bytes128}


# -- box -----------------------------------------------------------------------------------------


def _with(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Replace entry i of a driver-order tuple and give it row-major."""
    return reverse((*values[:i], int(value), *values[i + 1 :]))


def _with_inner(r: Request, value: int) -> Change:
    if r.kind == "tiled":
        return {"box_sizes": _with(r.arguments.box_dim, 0, value)}
    return {"channels_per_pixel": int(value)}


def nearest(value: int, valid: range) -> int:
    """Give the valid value that is nearest."""
    return max(valid[0], min(value, valid[-1]))


def _valid(r: Request, i: int, limit: int, within: str) -> range:
    """Give the valid values of entry i of a box or of elem_strides, considering no other entry.

    `within` is the rule that keeps it within the shape.
    """
    extent = int(r.arguments.global_dim[i]) if r.has_rule(within) else limit
    return range(1, max(1, min(limit, extent)) + 1)


def clamp_box(r: Request, i: int) -> Change:
    """Clamp entry i to 1..256, and to the shape if a rule requires it."""
    limit = MAX_BOX * r.span_values if r.split_inner and i == 0 else MAX_BOX
    valid = _valid(r, i, limit, "BOX_IN_SHAPE")
    return {"box_sizes": _with(r.arguments.box_dim, i, nearest(r.arguments.box_dim[i], valid))}


def inner_box(r: Request) -> Change:
    """Choose the nearest multiple of 16 bytes that the shape and the swizzle allow."""
    most = _valid(r, 0, MAX_BOX, "BOX_IN_SHAPE")[-1]
    if r.arguments.swizzle and not r.interleaved:
        most = min(most, r.span_elements)
    fitting = range(r.inner_unit, most + 1, r.inner_unit)
    if not fitting:
        return {}
    return _with_inner(r, min(fitting, key=lambda n: (abs(n - r.inner_box), -n)))


def whole_spans(r: Request) -> Change:
    """Choose the nearest tile of whole spans for split_inner= that the tensor holds."""
    extent, span, size = r.arguments.global_dim[0], r.span_values, r.arguments.inner_box
    spans = range(1, max(1, int(extent) // span if r.has_rule("BOX_IN_SHAPE") else MAX_BOX) + 1)
    return _with_inner(r, span * nearest(-(-size // span), spans))


def padded_inner(r: Request) -> Change:
    """Choose the only row that the types padded to 16 bytes allow."""
    return _with_inner(r, PADDED_INNER_VALUES)


def wider_swizzle(r: Request) -> TmaSwizzle | None:
    """Give the narrowest swizzle that is wide enough for the row of the box, or None."""
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if r.inner_box_bytes <= SWIZZLE_SPAN_BYTES[swizzle]:
            return swizzle
    return None


def fit_span(r: Request) -> Change:
    """Choose a swizzle that is wide enough for the row; if none is, narrow the row.

    A row of channels that must become a multiple of 16 bytes anyway may then fit as it is.
    """
    if r.kind != "tiled" and r.target.has_model and r.inner_box_bytes % INNER_BYTES:
        return inner_box(r)
    swizzle = wider_swizzle(r)
    return _with_inner(r, r.span_elements) if swizzle is None else {"swizzle": swizzle}


def shrunk(r: Request, holds: Holds) -> tuple[int, int]:
    """Find the entry to shrink so that a limit of the box holds: its index and new value."""
    place = max(range(1, r.rank), key=lambda k: r.arguments.box_dim[k], default=0)
    place = place if r.arguments.box_dim[place] > 1 else 0
    unit = r.inner_unit if place == 0 else 1
    most = (r.arguments.box_dim[place] - 1) // unit * unit

    def fits(value: int) -> bool:
        box = (*r.arguments.box_dim[:place], value, *r.arguments.box_dim[place + 1 :])
        return holds(r.with_arguments(box_dim=box))

    return place, next(filter(fits, range(most, 0, -unit)), 1)


def shrink_box(holds: Holds) -> Repair:
    """Shrink the largest outer entry as little as a limit of the box requires."""
    return lambda r: {"box_sizes": _with(r.arguments.box_dim, *shrunk(r, holds))}


def shrink_column(r: Request) -> Change:
    """Choose as many pixels as fit into 228 KB."""
    share = Fraction(r.box_bytes) / r.arguments.pixels_per_column
    return {"pixels_per_column": max(1, int(MAX_BOX_BYTES // share))}


def entries(argument: str) -> Repair:
    """Make a list as long as the tensor's rank: add outer entries of 1, or drop outer entries."""

    def repair(r: Request) -> Change:
        values = reverse(
            r.arguments.box_dim if argument == "box_sizes" else r.arguments.element_strides
        )
        kept = values[max(0, len(values) - r.rank) :]
        return {argument: (1,) * (r.rank - len(kept)) + kept}

    return repair


def clamp_elem_stride(r: Request, i: int) -> Change:
    """Clamp entry i to 1..8, and to the shape if a rule requires it."""
    steps = r.arguments.element_strides
    valid = _valid(r, i, MAX_ELEM_STRIDE, "ELEM_STRIDES_IN_SHAPE")
    return {"elem_strides": _with(steps, i, nearest(steps[i], valid))}


# -- im2col --------------------------------------------------------------------------------------


def _with_corner(r: Request, which: str, values: tuple[int, ...]) -> Change:
    if r.kind == "im2col_wide":
        return {f"{which}_corner_width": values[0]}
    return {f"pixel_box_{which}_corner": reverse(values)}


def corner_count(which: str) -> Repair:
    """Give a corner one entry per spatial dimension: add outer zeros, or drop outer entries."""

    def repair(r: Request) -> Change:
        values = r.corner(which)[: r.spatial]
        return _with_corner(r, which, values + (0,) * (r.spatial - len(values)))

    return repair


def corner_range(which: str) -> RepairOfEntry:
    """Clamp entry i to the range for the rank."""

    def repair(r: Request, i: int) -> Change:
        values = list(r.corner(which))
        values[i] = nearest(values[i], r.corner_range)
        return _with_corner(r, which, tuple(values))

    return repair


def open_bounding_box(r: Request, i: int) -> Change:
    """Move the upper corner, or if that is not enough the lower one, to leave one pixel."""
    size, upper, lower = r.spatial_size(i), list(r.corner("upper")), list(r.corner("lower"))
    upper[i] = nearest(lower[i] + 1 - size, r.corner_range)
    lower[i] = nearest(min(lower[i], size + upper[i] - 1), r.corner_range)
    change = _with_corner(r, "upper", tuple(upper))
    if tuple(lower) != r.corner("lower"):
        change |= _with_corner(r, "lower", tuple(lower))
    return change


def clamp_count(argument: str, limit: int) -> Repair:
    """Clamp a count to 1..limit."""
    valid = range(1, limit + 1)
    return lambda r: {argument: nearest(getattr(r.arguments, argument), valid)}
