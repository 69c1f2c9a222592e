"""The struct that predicates read: a request as integers, and the arguments behind each column.

`describe` does in Python what `tma_dlpack_describe` of include/tma_dlpack_make.h does in C. There
numbers are cut at 2^60, which is beyond every limit; here they are exact. Packed types count in
bits: nothing is a fraction.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from tma_dlpack.checks.rule import OF_DRIVER, STRUCT
from tma_dlpack.tables.arguments import KINDS, EncodeArguments
from tma_dlpack.tables.enums import DLDataTypeCode
from tma_dlpack.tables.errors import Rule
from tma_dlpack.tables.limits import CORNER_ENDS, MAX_RANK, SWIZZLE_SPAN_BYTES

NAN_REFUSED = (DLDataTypeCode.kDLInt, DLDataTypeCode.kDLUInt, DLDataTypeCode.kDLBool)


class Described:
    """A request as integers: the fields of `STRUCT`, each 0 until it is set."""


for _name, _count, *_ in STRUCT:
    setattr(Described, _name, (0,) * _count if _count else 0)

_ZEROS = (0,) * MAX_RANK


def describe(r: Any) -> Any:
    """Return the struct of a request."""
    a, target, rank = r.arguments, r.target, r.rank
    c: Any = Described()
    view, extents = r.view, a.global_dim
    c.kind, c.rank = KINDS.index(a.kind), rank
    c.dims = dims = rank if 1 <= rank <= MAX_RANK else 0
    c.address, c.is_null = r.address, view is not None and r.address == view.offset_bytes

    row = r.type_row
    c.data_type = -1 if r.layout[0] is None else r.layout[0]
    c.asked_type = r.options.asked_type
    c.element_bits = bits = row.element_bits
    c.is_float, c.packed_unit, c.type_swizzles = row.is_float, 1, row.swizzles
    c.type_interleaves = row.interleaves
    if row.is_packed:
        c.is_packed, c.is_padded, c.packed_unit = True, row.is_padded, row.packed_unit
    if r.rules == "libcu++" and view is not None and c.asked_type < 0:
        c.passes_nan = view.dtype.code not in NAN_REFUSED

    c.interleave, c.swizzle = a.interleave, a.swizzle
    c.l2_promotion, c.oob_fill, c.mode = a.l2_promotion, a.oob_fill, a.mode
    c.first_spatial = 0 if a.interleave else 1
    c.alignment_bytes = a.alignment_bytes
    c.inner_stride = view.strides[-1] if view is not None and view.shape else 1

    if view is not None and view.shape:
        c.row_bits = view.shape[-1] * view.dtype.itemsize_bits
    else:
        c.row_bits = extents[0] * bits if extents else 0
    stride_bits = tuple([int(8 * stride) for stride in a.global_strides])
    c.stride_bits = (stride_bits + _ZEROS)[:4]
    inside, spans = c.row_bits, [0]
    for d in range(1, dims):
        spans.append(inside)
        if extents[d] != 1:
            inside = extents[d] * stride_bits[d - 1]
    c.inside_bits = (*spans, *_ZEROS)[:5]
    c.global_dim = (extents + _ZEROS)[:5]
    if row.is_packed and dims:
        c.global_dim = (c.row_bits // bits, *c.global_dim[1:])

    steps = a.element_strides
    c.elem_stride_count, c.element_strides = len(steps), (steps + _ZEROS)[:5]
    c.ignores_inner_step = _ignores_inner_step(r)
    c.span_bits = 8 * SWIZZLE_SPAN_BYTES[a.swizzle]
    c.has_swizzle, c.ragged_dim = r.options.has_swizzle, -1
    if r.rare.split_inner:
        c.is_split, c.span_values = True, r.span_values_of(a.swizzle)
    if r.rare.ragged is not None:
        c.is_ragged = True
        if -rank <= r.rare.ragged < rank:
            c.ragged_dim = rank - 1 - r.rare.ragged % rank
    if 1 <= c.ragged_dim < dims:
        c.ragged_stride_bits = stride_bits[c.ragged_dim - 1]
    if a.kind == "tiled":
        _describe_box(c, a.box_dim, steps)
    else:
        _describe_column(c, a, r.rules)
    c.inner_box_bits = c.inner_box * bits

    c.has_tma, c.is_sm_9x, c.has_wide = target.has_tma, target.is_sm_9x, target.has_wide
    c.has_model, c.max_smem_bytes = target.has_model, target.max_smem_bytes
    return c


def _ignores_inner_step(r: Any) -> bool:
    """Whether the innermost entry of elem_strides is ignored.

    libcu++ encodes 1 there unless the layout is interleaved, and the document ignores it; the
    driver wants it in range all the same.
    """
    if r.rules == "measured":  # only on sm_90: a target that could not be read may differ
        return any(v.argument == "target" for v in r.unreadable)
    return r.rules != "driver" and not r.arguments.interleave and not r.is_driver_call


def _describe_box(c: Any, box: tuple[int, ...], steps: tuple[int, ...]) -> None:
    c.box_count, c.box_dim = len(box), (box + _ZEROS)[:5]
    c.inner_box = c.span_values if c.is_split else c.box_dim[0]
    box_bits = floor_bits = c.element_bits
    for d, size in enumerate(box):
        step = steps[d] if d < len(steps) and not (d == 0 and c.ignores_inner_step) else 1
        box_bits *= size
        floor_bits *= size // step if step > 0 else size
    c.box_bits, c.floor_box_bits = box_bits, floor_bits


def _describe_column(c: Any, a: EncodeArguments, rules: str) -> None:
    lower, upper = a.pixel_box_lower_corner, a.pixel_box_upper_corner
    is_wide = a.kind == "im2col_wide"
    c.spatial = max(0, c.dims - 2)
    c.corners = min(1, c.spatial) if is_wide else c.spatial
    c.corner_end = CORNER_ENDS.get(c.rank, 1 << 15)
    if is_wide and rules == "documented":  # same limit for every rank
        c.corner_end = 1 << 15
    c.lower_count, c.lower = len(lower), (lower + _ZEROS)[:3]
    c.upper_count, c.upper = len(upper), (upper + _ZEROS)[:3]
    c.channels, c.pixels = a.channels_per_pixel, a.pixels_per_column
    c.inner_box = c.channels
    c.box_bits = c.floor_box_bits = c.channels * c.pixels * c.element_bits


# -- which rules read an argument that a printout does not show ------------------------------------

#: Column of the struct -> the driver's arguments that it depends on, if `STRUCT` names other
#: arguments or none; x[0] is one entry.
_COLUMNS: Final = {
    "rank": "rank",
    "address": "global_address",
    "row_bits": "global_dim[0]",
    "global_dim": "global_dim",
    "stride_bits": "global_strides",
    "inside_bits": "global_dim global_strides",
    "inner_box": "box_dim[0] channels_per_pixel",
    "inner_box_bits": "box_dim[0] channels_per_pixel data_type",
    "box_bits": "box_dim channels_per_pixel pixels_per_column data_type",
    "floor_box_bits": "box_dim element_strides data_type",
    "span_values": "",  # of split_inner, which no call of the driver has
}
_NAMES: Final = {**OF_DRIVER, "data_type": "data_type"}


@cache
def _names_read(holds: str) -> frozenset[str]:
    """Return the driver's arguments that a predicate reads."""
    return frozenset(
        _NAMES.get(name, name)
        for column, _, names, _ in STRUCT
        if re.search(rf"\b{column}\b", holds)
        for name in _COLUMNS.get(column, names).split()
    )


def reads(rule: Rule, unread: frozenset[str], *entry: int) -> bool:
    """Return whether a rule reads an unread argument; a rule with `each`, at one entry or at any.

    >>> from tma_dlpack.checks import RULES
    >>> rules = {rule.id: rule for rule in RULES}
    >>> reads(rules["BOX_INNER_16B"], frozenset({"box_dim[1]"}))
    False
    >>> reads(rules["BOX_RANGE"], frozenset({"box_dim[1]"}), 1)
    True
    """
    for name in _names_read(str(rule.holds)):
        if name in unread or name.partition("[")[0] in unread:
            return True
        entries = [f"{name}[{e - (name == 'global_strides')}]" for e in entry]
        if not rule.each:
            entries = [other for other in unread if other.startswith(f"{name}[")]
        if not unread.isdisjoint(entries):
            return True
    return False
