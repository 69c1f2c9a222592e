"""What to change so that a rule holds: the hints of `fix`, and the changes of `Report.fixed`.

A repair takes a case and a place and gives keyword arguments of the call, row-major, or an empty
dict where no change of arguments mends it. It may leave another rule broken: `Report.fixed` goes
on until nothing is broken, and proves what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tma_dlpack.arguments import reverse
from tma_dlpack.case import SWIZZLE_SPAN_BYTES, Case
from tma_dlpack.dtypes import overrides_of, row
from tma_dlpack.enums import TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.errors import Violation

Change = dict[str, Any]
Repair = Callable[[Case, int], Change]

MAX_BOX = 256
MAX_ELEM_STRIDE = 8


def constant(**change: Any) -> Repair:
    """Set arguments to a value that always passes."""
    return lambda c, i: change


def _with(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Replace entry i of a driver-order tuple and give it row-major."""
    return reverse((*values[:i], int(value), *values[i + 1 :]))


def _set_inner(c: Case, value: int) -> Change:
    if c.kind == "tiled":
        return {"box_sizes": _with(c.box or (), 0, value)}
    return {"channels_per_pixel": int(value)}


# -- data type, interleave ---------------------------------------------------------------------


def carried_type(c: Case, i: int) -> Change:
    """Carry the bits as an unsigned integer of the element's size."""
    choices = overrides_of(c.view.dtype) if c.view is not None else ()
    whole = [t for t in choices if not row(t).is_packed]
    return {"data_type": whole[0]} if whole else {}


def unpacked_type(c: Case, i: int) -> Change:
    """Carry packed values as bytes, where their storage is in bytes."""
    change = carried_type(c, i)
    return {} if change.get("data_type") == c.asked_type else change


def narrower_interleave(c: Case, i: int) -> Change:
    """Ask for units of 16 bytes where 32 are not aligned but 16 are."""
    aligned_to_16 = c.address % 16 == 0 and all(s % 16 == 0 for s in c.strides_bytes)
    if c.interleave is TmaInterleaveLayout.bytes32 and aligned_to_16:
        return {"interleave_layout": TmaInterleaveLayout.bytes16}
    return {}


def transpose_hint(c: Case) -> str:
    """Say how to bring the contiguous dimension to the end."""
    assert c.view is not None
    strides = c.view.strides
    contiguous = [d for d, s in enumerate(strides) if s == 1 and c.view.shape[d] > 1]
    if c.kind != "tiled" and len(strides) >= 3 and strides[1] == 1:
        order = (0, *range(2, len(strides)), 1)
        return (
            "this is an N, C, [D,] [H,] W tensor in channels_last memory: pass "
            f"x.permute({', '.join(map(str, order))}), which moves no data"
        )
    if contiguous:
        last = contiguous[-1]
        order = (*(d for d in range(len(strides)) if d != last), last)
        return (
            f"dimension {last} is the contiguous one: pass x.permute({', '.join(map(str, order))}) "
            "and give box_sizes in that order, or copy: x = x.contiguous()"
        )
    return "copy to a contiguous tensor: x = x.contiguous(); to skip elements use elem_strides"


# -- box -----------------------------------------------------------------------------------------


def _limit(c: Case, i: int) -> int:
    """Give the most elements that box entry i may have, other entries apart."""
    limit = MAX_BOX
    if c.rules == "libcu++" and c.kind == "tiled":
        limit = min(limit, int(c.dims[i]))
    return limit


def clamp_box(c: Case, i: int) -> Change:
    """Bring entry i into 1..256, and into the shape where that is asked."""
    box = c.box or ()
    return {"box_sizes": _with(box, i, max(1, min(box[i], _limit(c, i))))}


def inner_box(c: Case, i: int) -> Change:
    """Take the nearest multiple of 16 bytes that the shape and the swizzle allow."""
    limit, unit = _limit(c, 0), c.inner_unit
    if c.swizzle and not c.interleaved:
        limit = min(limit, c.span_bytes * 8 // c.element_bits)
    fitting = range(unit, limit + 1, unit)
    if not fitting:
        return {}
    return _set_inner(c, min(fitting, key=lambda n: (abs(n - c.inner_box), -n)))


def inner_to(value: int) -> Repair:
    """Set the innermost entry to the one value that is accepted."""
    return lambda c, i: _set_inner(c, value)


def _wider_swizzle(c: Case) -> TmaSwizzle | None:
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if c.inner_box_bytes <= SWIZZLE_SPAN_BYTES[swizzle]:
            return swizzle
    return None


def fit_span(c: Case, i: int) -> Change:
    """Take the next wider swizzle that holds the row, or narrow the row to the widest."""
    swizzle = _wider_swizzle(c)
    if swizzle is not None:
        return {"swizzle": swizzle}
    return _set_inner(c, c.span_bytes * 8 // c.element_bits)


def span_hint(c: Case, i: int) -> str:
    """Say the same in words."""
    elements = c.span_bytes * 8 // c.element_bits
    narrow = f"narrow it to {elements} elements ({c.span_bytes} bytes) and copy in several steps"
    swizzle = _wider_swizzle(c)
    if swizzle is not None:
        return f"use swizzle={swizzle.name!r}, or {narrow}"
    return f"{narrow}, or use swizzle='none'"


def _shrunk(c: Case) -> tuple[int, int]:
    """Find the entry to shrink so that the box fits: its place and its new value."""
    box = c.box or ()
    limit_bytes = min(c.target.max_smem_bytes, 233_472)
    outer = max(range(1, len(box)), key=lambda k: box[k], default=0)
    place = outer if outer and box[outer] > 1 else 0
    share = Fraction(c.box_bytes) / box[place]
    value = int(limit_bytes // share)
    if place == 0:
        value -= value % c.inner_unit
    return place, max(1, min(value, box[place] - 1))


def shrink_box(c: Case, i: int) -> Change:
    """Shrink the largest outer entry to what fits shared memory."""
    place, value = _shrunk(c)
    return {"box_sizes": _with(c.box or (), place, value)}


def smem_hint(c: Case, i: int) -> str:
    """Say the same in words."""
    place, value = _shrunk(c)
    return f"shrink {c.say_box(place)} from {(c.box or ())[place]} to {value}, and copy in steps"


def shrink_column(c: Case, i: int) -> Change:
    """Take as many pixels as fit 228 KB."""
    share = Fraction(c.box_bytes) / (c.pixels or 1)
    return {"pixels_per_column": max(1, int(233_472 // share))}


def entries(argument: str) -> Repair:
    """Make a list as long as the tensor has dimensions: outer entries of 1 come or go."""

    def repair(c: Case, i: int) -> Change:
        values = reverse((c.box if argument == "box_sizes" else c.elem_strides) or ())
        kept = values[max(0, len(values) - c.rank) :]
        return {argument: (1,) * (c.rank - len(kept)) + kept}

    return repair


def clamp_elem_stride(c: Case, i: int) -> Change:
    """Bring entry i into 1..8, and into the shape where that is asked."""
    strides = c.elem_strides or ()
    limit = min(MAX_ELEM_STRIDE, _limit(c, i))
    return {"elem_strides": _with(strides, i, max(1, min(strides[i], limit)))}


# -- im2col --------------------------------------------------------------------------------------


def _corner_change(c: Case, which: str, values: tuple[int, ...]) -> Change:
    if c.kind == "im2col_wide":
        return {f"{which}_corner_width": values[0]}
    return {f"pixel_box_{which}_corner": reverse(values)}


def _corner(c: Case, which: str) -> tuple[int, ...]:
    return (c.lower if which == "lower" else c.upper) or ()


def corner_count(which: str) -> Repair:
    """Make a corner as long as there are spatial dimensions; entries that come are 0."""

    def repair(c: Case, i: int) -> Change:
        values = _corner(c, which)[: c.spatial]
        return _corner_change(c, which, values + (0,) * (c.spatial - len(values)))

    return repair


def corner_range(which: str) -> Repair:
    """Bring entry i into the range of the rank."""

    def repair(c: Case, i: int) -> Change:
        values, half = list(_corner(c, which)), 1 << (c.corner_bits - 1)
        values[i] = max(-half, min(values[i], half - 1))
        return _corner_change(c, which, tuple(values))

    return repair


def open_bounding_box(c: Case, i: int) -> Change:
    """Move the upper corner, or where that cannot reach the lower one, to leave one pixel."""
    size = c.spatial_size(i)
    half = 1 << (c.corner_bits - 1)
    upper, lower = list(c.upper or ()), list(c.lower or ())
    upper[i] = lower[i] + 1 - size
    if -half <= upper[i] < half:
        return _corner_change(c, "upper", tuple(upper))
    upper[i] = -half if upper[i] < -half else half - 1
    lower[i] = min(lower[i], size + upper[i] - 1)
    return _corner_change(c, "upper", tuple(upper)) | _corner_change(c, "lower", tuple(lower))


def clamp_count(argument: str, field: str, limit: int) -> Repair:
    """Bring a count into 1..limit."""
    return lambda c, i: {argument: max(1, min(getattr(c, field) or 0, limit))}


# -- what could not be read ----------------------------------------------------------------------

_DEFAULTS: Change = {
    "elem_strides": None,
    "interleave_layout": "none",
    "swizzle": "none",
    "l2_fetch_size": "none",
    "oobfill": "none",
    "data_type": None,
    "target": None,
    "mode": "w",
    "lower_corner_width": 0,
    "upper_corner_width": 0,
    "pixels_per_column": 1,
}


def readable(violation: Violation, c: Case) -> Change:
    """Replace an argument that could not be read: by its closest word, or by the smallest value."""
    name = violation.argument
    _, close, word = violation.fix.partition("did you mean ")
    if close:
        return {name: word.rstrip("?").strip("'")}
    if name == "rules":
        return {name: "libcu++" if c.kind == "tiled" else "documented"}
    if c.view is None:
        return {}
    if name in ("box_sizes", "channels_per_pixel"):
        return {name: (*(1,) * (c.rank - 1), c.inner_unit) if c.kind == "tiled" else c.inner_unit}
    if name.startswith("pixel_box"):
        return {name: (0,) * c.spatial}
    return {name: _DEFAULTS[name]} if name in _DEFAULTS else {}
