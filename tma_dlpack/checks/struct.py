"""A call as numbers, in two forms: its `Options`, and the struct that the rules' predicates read.

The arrays in `Options` have the order of the call. The C extension returns the `Options` of a call
that it has read (a `JudgedCall`); `call.py` makes the `Options` of all other calls. `describe`
computes the struct in Python, and `tma_dlpack_describe` of include/tma_dlpack_make.h computes it in
C. The C function clamps numbers to 2^60, which is beyond every limit. The Python function computes
exact numbers. The sizes in the struct are in bits, because a value of a packed type is smaller than
a byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from tma_dlpack.tables.abi import ALLOWABLE_ROWS, RareOptions
from tma_dlpack.tables.arguments import KINDS, OPTION_NAMES, EncodeArguments, MapKind
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.enums import DLDataTypeCode
from tma_dlpack.tables.rule import Rule
from tma_dlpack.tables.targets import (
    CORNER_ENDS,
    MAX_RANK,
    SWIZZLE_SPAN_BYTES,
    Target,
)

#: Keyword arguments that replace arguments of a call, in row-major order.
Change = dict[str, Any]


class OtherTensor(NamedTuple):
    """A tensor that replaces the tensor of a call: a view of the same memory, or a copy."""

    address: int
    dtype: DLDataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


#: The values that `rules=` accepts, by kind of map. The first value is the default.
RULE_SETS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("libcu++", "driver"),
    "im2col": ("documented", "driver"),
    "im2col_wide": ("documented", "driver"),
}


def set_of_rules(kind: MapKind, rules: str, target: Target) -> str:
    """Return the set of rules that `rules=` of a `make_*` call selects.

    The driver's rules for im2col maps were measured on sm_90 only. For other targets, the result is
    ``"documented"``.
    """
    if kind == "tiled" or rules != "driver":
        return rules
    return "measured" if target.has_model else "documented"


#: The values of the rare options in a call that passes none of them.
USUAL = RareOptions()
#: If a fix changes one of these arguments, the map describes other memory of the same tensor.
PLACES = frozenset({"strides", "offset"})

#: Argument -> field of `Options`, if the two names differ.
_OPTION_OF = {
    "interleave_layout": "interleave",
    "l2_fetch_size": "l2_promotion",
    "oobfill": "oob_fill",
    "data_type": "asked_type",
    "rules": "driver_rules",
    "allow": "allowed",
    "pixel_box_lower_corner": "lower",
    "pixel_box_upper_corner": "upper",
    "lower_corner_width": "lower",
    "upper_corner_width": "upper",
    "channels_per_pixel": "channels",
    "pixels_per_column": "pixels",
}


class Options(NamedTuple):
    """The options of a call: numbers, and arrays in the order of the call.

    `allowed` is the mask of the rules that `allow=` names. `asked_type` is -1 if the call does not
    pass `data_type=`. `elem_strides` is None if the call does not pass it.
    """

    driver_rules: bool = False
    asked_type: int = -1
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    oob_fill: int = 0
    mode: int = 0
    has_swizzle: bool = True
    allowed: int = 0
    elem_strides: tuple[int, ...] | None = None
    box_sizes: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    rare: RareOptions = USUAL

    def changed(self, change: Mapping[str, Any]) -> Options:
        """Return the options with the arguments in `change`.

        `change` has row-major arguments whose values were read already.
        """
        fields: dict[str, Any] = {"has_swizzle": self.has_swizzle or "swizzle" in change}
        rare = {name: value for name, value in change.items() if name in RareOptions._fields}
        for name in change.keys() - rare.keys() - {"target"}:
            value = change[name]
            if name == "data_type" and value is None:
                value = -1
            elif name == "rules":
                value = value == "driver"
            elif name == "allow":
                value = mask_of(value)
            elif name.endswith("_width"):
                value = (value,)
            fields[_OPTION_OF.get(name, name)] = value
        return self._replace(rare=self.rare._replace(**rare), **fields)


def mask_of(ids: Iterable[str]) -> int:
    """Return the ids in `allow=` as a mask, in which bit i is the rule `RULES[i]`."""
    return sum(1 << ALLOWABLE_ROWS[rule] for rule in set(ids))


@cache
def allowed_ids(mask: int) -> frozenset[str]:
    """Return the ids of a mask that `mask_of` returned."""
    return frozenset(rule for rule, row in ALLOWABLE_ROWS.items() if mask >> row & 1)


class JudgedCall(Protocol):
    """A call that C has read and judged (native/judged.h). It has the fields of `STRUCT` too."""

    kind: int
    rank: int
    mask: int  # bit i is set if the predicate of `RULES[i]` is false
    is_exact: bool  # False if C clamped a number
    tx_bytes: int | None  # None if the call is refused or the layout is interleaved

    @property
    def failed(self) -> list[tuple[int, int]]:
        """The list that `judge.judge` returns for the call."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """The tensor's layout and address, the target, and the fields of `Options`."""

    def changed(
        self, arguments: Mapping[str, Any], view: OtherTensor | None, /
    ) -> JudgedCall | None:
        """Judge the call with other arguments or another tensor.

        Return None if C cannot read the arguments or the tensor.
        """


# -- the struct ------------------------------------------------------------------------------------

#: The fields of the struct. Each row has the name, the number of entries (0 for a single number),
#: the arguments that the field depends on, and the meaning. If one of these arguments is
#: unreadable, rules that read the field are not reported. Index 0 is the innermost dimension; in a
#: corner it is W. Entries at index `rank` and above are 0 in Python, and C does not write them. In
#: the same way, `spatial`, `corners` and `corner_end` are 0 or not written for tiled maps.
STRUCT: tuple[tuple[str, int, str, str], ...] = (
    ("kind", 0, "", "TILED, IM2COL or IM2COL_WIDE"),
    ("rank", 0, "", "number of dimensions; may be outside 1..5"),
    ("dims", 0, "", "`rank` if it is 1..5, else 0; loops visit this number of dimensions"),
    ("spatial", 0, "", "number of spatial dimensions (W, H, D) of an im2col map, 0..3"),
    ("corners", 0, "", "judged entries of a corner: `spatial`, but at most 1 for im2col-wide"),
    (
        "first_spatial",
        0,
        "interleave_layout",
        "index of dimension W: 1, or 0 if the layout is interleaved",
    ),
    ("address", 0, "", "address of element (0, ..., 0)"),
    ("is_null", 0, "", "whether the tensor's own address is 0"),
    ("data_type", 0, "data_type", "CUtensorMapDataType, or -1 if maps have no type for the tensor"),
    ("asked_type", 0, "data_type", "CUtensorMapDataType that data_type= names, or -1 if omitted"),
    ("element_bits", 0, "data_type", "bits of a value of `data_type`; 8 if `data_type` is -1"),
    ("is_packed", 0, "data_type", "column of DATA_TYPES, in the row of `data_type`"),
    ("is_padded", 0, "data_type", "column of DATA_TYPES, in the row of `data_type`"),
    ("is_float", 0, "data_type", "column of DATA_TYPES, in the row of `data_type`"),
    ("packed_unit", 0, "data_type", "column of DATA_TYPES, in the row of `data_type`"),
    ("type_interleaves", 0, "data_type", "column of DATA_TYPES, in the row of `data_type`"),
    ("type_swizzles", 0, "data_type", "column of DATA_TYPES, in the row of `data_type`"),
    ("passes_nan", 0, "", "whether libcu++ does not check oobfill, as for float8 and float4"),
    ("interleave", 0, "interleave_layout", "TmaInterleaveLayout"),
    ("swizzle", 0, "swizzle", "TmaSwizzle"),
    ("l2_promotion", 0, "l2_fetch_size", "TmaL2FetchSize"),
    ("oob_fill", 0, "oobfill", "TmaOobFill"),
    ("mode", 0, "mode", "TensorMapIm2ColWideMode"),
    (
        "alignment_bytes",
        0,
        "interleave_layout data_type",
        "required alignment of the address and of every stride",
    ),
    ("inner_stride", 0, "", "stride of dimension 0, in elements"),
    ("row_bits", 0, "", "bits that the tensor spans along dimension 0"),
    ("global_dim", 5, "", "extents, in values of `data_type`"),
    ("stride_bits", 4, "", "strides of dimensions 1 to `rank` - 1, in bits"),
    (
        "inside_bits",
        5,
        "",
        "entry d: bits that dimensions 0 to d - 1 span; dimensions of extent 1 do not count",
    ),
    ("box_count", 0, "box_sizes", "entries of the box in the call"),
    ("box_dim", 5, "box_sizes", "the box of a tiled map"),
    (
        "inner_box",
        0,
        "box_sizes",
        "box_dim[0], or `span_values` if split; for an im2col map, `channels`",
    ),
    ("inner_box_bits", 0, "box_sizes data_type", "bits of inner_box"),
    ("box_bits", 0, "box_sizes data_type", "bits of the whole box, or of the column"),
    (
        "floor_box_bits",
        0,
        "box_sizes data_type elem_strides",
        "bits of the box after each entry is divided by its element stride, rounded down",
    ),
    ("span_bits", 0, "swizzle", "bits of one row of the swizzle pattern; 0 without swizzle"),
    ("elem_stride_count", 0, "elem_strides", "element strides in the call; `rank` if omitted"),
    ("element_strides", 5, "elem_strides", "element stride of each dimension"),
    ("ignores_inner_step", 0, "interleave_layout", "whether element_strides[0] is ignored"),
    ("lower_count", 0, "pixel_box_lower_corner", "entries of the lower corner in the call"),
    ("upper_count", 0, "pixel_box_upper_corner", "entries of the upper corner in the call"),
    ("lower", 3, "pixel_box_lower_corner", "lower corner of an im2col map"),
    ("upper", 3, "pixel_box_upper_corner", "upper corner of an im2col map"),
    ("corner_end", 0, "target", "entries of corners must be in [-corner_end, corner_end)"),
    ("channels", 0, "channels_per_pixel", "channels per pixel"),
    ("pixels", 0, "pixels_per_column", "pixels per column"),
    ("is_split", 0, "split_inner", "whether the call passes split_inner=True"),
    ("has_swizzle", 0, "swizzle", "whether the call passes swizzle="),
    (
        "span_values",
        0,
        "swizzle data_type",
        "elements of a span, or of 16 bytes without swizzle; 0 if not split",
    ),
    ("is_ragged", 0, "ragged", "whether the call passes ragged="),
    ("ragged_dim", 0, "ragged", "dimension that ragged= names; -1 if omitted or out of range"),
    ("ragged_stride_bits", 0, "ragged", "stride of `ragged_dim`"),
    ("has_tma", 0, "target", "column of TARGETS, in the row of the target"),
    ("is_sm_9x", 0, "target", "column of TARGETS, in the row of the target"),
    ("has_wide", 0, "target", "column of TARGETS, in the row of the target"),
    ("has_model", 0, "target", "column of TARGETS, in the row of the target"),
    ("max_smem_bytes", 0, "target", "shared memory of a block, after opt-in"),
)

#: `Rule.each` -> the loop over the entries: (variable, first value, the field that has the end of
#: the range). `d` is a dimension, and `s` is a spatial dimension. `d` and `s` are 0 for the
#: innermost dimension.
LOOPS: dict[str, tuple[str, int, str]] = {
    "d": ("d", 0, "dims"),
    "d > 0": ("d", 1, "dims"),
    "s": ("s", 0, "corners"),
    "s > 0": ("s", 1, "spatial"),
}


# libcu++ refuses a NaN fill for these dtypes. It does not check other dtypes, so float8 and float4
# pass, although their maps have integer types.
NAN_REFUSED = (DLDataTypeCode.kDLInt, DLDataTypeCode.kDLUInt, DLDataTypeCode.kDLBool)


class Described:
    """A request as integers. It has the fields of `STRUCT`, which are 0 by default."""


for _name, _count, *_ in STRUCT:
    # Class attributes, so `describe` sets only the fields that the kind of map has.
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
    # inside_bits[0] is 0, because no dimension is inside the innermost one.
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
            # ragged= counts from the outermost dimension, as an index of the tensor's shape.
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
    """Return whether the innermost entry of elem_strides is ignored.

    Unless the layout is interleaved, libcu++ encodes 1 for this entry, and the documentation states
    that the entry is ignored. But the driver refuses an entry that is out of range.
    """
    # The driver for sm_90 reads this entry. But an unreadable `target=` may mean another GPU.
    if r.rules == "measured":
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
    # An im2col-wide map has offsets along W only.
    c.corners = min(1, c.spatial) if is_wide else c.spatial
    c.corner_end = CORNER_ENDS.get(c.rank, 1 << 15)
    # The documentation has the same limit for im2col-wide maps of every rank.
    if is_wide and rules == "documented":
        c.corner_end = 1 << 15
    c.lower_count, c.lower = len(lower), (lower + _ZEROS)[:3]
    c.upper_count, c.upper = len(upper), (upper + _ZEROS)[:3]
    c.channels, c.pixels = a.channels_per_pixel, a.pixels_per_column
    c.inner_box = c.channels
    c.box_bits = c.floor_box_bits = c.channels * c.pixels * c.element_bits


# -- which rules read an argument that a printout does not show ------------------------------------

#: Field of `STRUCT` -> the driver's arguments that the field depends on. For any other field,
#: `STRUCT` itself has these arguments. A name with an index, such as box_dim[0], is one entry of an
#: argument.
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
    "span_values": "",  # depends on split_inner, which driver calls do not have
}
#: Name of an argument in rules -> its name in `driver_encode_*` calls.
OF_DRIVER = {
    "tensor.rank": "tensor_rank",
    "tensor.address": "global_address",
    "tensor.dtype": "tensor_data_type",
    "tensor.shape": "global_dim",
    "tensor.strides": "global_strides",
    "data_type": "tensor_data_type",
    "box_sizes": "box_dim",
    "elem_strides": "element_strides",
    **OPTION_NAMES,
    "lower_corner_width": "pixel_box_lower_corner_width",
    "upper_corner_width": "pixel_box_upper_corner_width",
}
_NAMES: Final = {**OF_DRIVER, "data_type": "data_type"}


@cache
def _names_read(holds: str) -> frozenset[str]:
    """Return the driver's arguments, and entries of arguments, that a predicate reads."""
    return frozenset(
        _NAMES.get(name, name)
        for column, _, names, _ in STRUCT
        if re.search(rf"\b{column}\b", holds)
        for name in _COLUMNS.get(column, names).split()
    )


def reads(rule: Rule, unread: frozenset[str], *entry: int) -> bool:
    """Return whether a rule reads an argument or an entry that `unread` names.

    `entry` is the index at which a rule with `each` is judged. If `entry` is omitted for such a
    rule, names of single entries in `unread`, such as ``"box_dim[1]"``, are ignored.

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
        # global_strides[d - 1] is the stride of dimension d.
        entries = [f"{name}[{e - (name == 'global_strides')}]" for e in entry]
        if not rule.each:
            entries = [other for other in unread if other.startswith(f"{name}[")]
        if not unread.isdisjoint(entries):
            return True
    return False
