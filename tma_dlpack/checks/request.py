"""`Request`: a call, normalised to the driver's words and order; and the struct of a request.

Its numbers may break any rule; only their types are right. An argument that could not be read (a
box of strings, a swizzle that does not exist) has a default here and a Violation in `unreadable`;
rules that read it are skipped. `describe` turns a request into the integers that predicates read,
as `tma_dlpack_describe` of include/tma_dlpack_make.h does in C. There numbers are cut at 2^60,
which is beyond every limit; here they are exact. Packed types count in bits: nothing is a fraction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from tma_dlpack.checks.judge import int32
from tma_dlpack.checks.rule import STRUCT
from tma_dlpack.dlpack import TensorView
from tma_dlpack.public import lazy
from tma_dlpack.tables.abi import RareOptions
from tma_dlpack.tables.arguments import KINDS, EncodeArguments, MapKind, Number
from tma_dlpack.tables.dtypes import DATA_TYPES, DataTypeRow, DLDataType
from tma_dlpack.tables.enums import (
    SWIZZLE_MEMBERS,
    DLDataTypeCode,
    TensorMapDataType,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import Violation
from tma_dlpack.tables.limits import (
    CORNER_ENDS,
    INNER_BYTES,
    MAX_RANK,
    RAGGED_EXTENT,
    RAGGED_EXTRA_EXTENT,
    RAGGED_STRIDE_END,
    SWIZZLE_SPAN_BYTES,
)
from tma_dlpack.tables.targets import Target

#: What `rules=` may be, by kind of map; the first is the default.
RULE_SETS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("libcu++", "driver"),
    "im2col": ("documented", "driver"),
    "im2col_wide": ("documented", "driver"),
}

NAN_REFUSED = (DLDataTypeCode.kDLInt, DLDataTypeCode.kDLUInt, DLDataTypeCode.kDLBool)


def set_of_rules(kind: MapKind, rules: str, target: Target) -> str:
    """Give the set of rules that `rules=` of a `make_*` call means.

    The driver's rules for im2col maps are measured on sm_90 only; for other targets the
    documentation is used.
    """
    if kind == "tiled" or rules != "driver":
        return rules
    return "measured" if target.has_model else "documented"


#: The options of a call that gives none of the rare ones.
USUAL = RareOptions()
#: Arguments with which a call reads other memory of its tensor.
PLACES = frozenset({"strides", "offset"})


class Seen(NamedTuple):
    """Another tensor, over the same memory or a copy of it."""

    address: int
    dtype: DLDataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class JudgedCall(Protocol):
    """A call that was read and judged in C, with the fields of `STRUCT` (make/_judged.h)."""

    kind: int
    mask: int  # of the rows that fail
    is_exact: bool  # whether no number was too large for C
    tx_bytes: int | None  # of an accepted call without interleaved layout

    @property
    def failed(self) -> list[tuple[int, int]]:
        """What `judge.judge` returns."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """Layout and address of the tensor, the target, and `parse.Options`."""

    def changed(self, arguments: Mapping[str, Any], view: Seen | None, /) -> JudgedCall | None:
        """Judge it with other arguments, or of another tensor; None where C can't read them."""


# Not frozen: constructing it is three times faster, and every call in Python makes one.
@dataclass
class Request:
    """A call of the user. Index 0 is innermost in every tuple.

    Attributes
    ----------
    arguments : EncodeArguments
        The driver's arguments. Extents and strides of types smaller than a byte may
        be Fractions, and any number may be out of range.
    address : int
        Address of element (0, ..., 0).
    rank : int
        The tensor's, or the one that a `driver_encode_*` call gives.
    rules : {"libcu++", "documented", "driver", "measured"}
        The set of rules that applies.
    target : Target
    target_is_assumed : bool
        Whether the target is a default because no driver could be asked.
    is_driver_call : bool
        Whether it is a `driver_encode_*` call; messages then use the driver's names.
    view : TensorView or None
        The tensor of a `make_*` call, at address 0 and without its owner.
    innermost_stride : int
        Stride of dimension 0 in elements.
    rare : RareOptions
        The options that few calls give, as they were given.
    has_swizzle : bool
        Whether `swizzle=` was given.
    allowed : frozenset of str
        Ids of rules that `allow=` switches off.
    asked_type : TensorMapDataType or None
        What `data_type=` is.
    type_is_known : bool
        False if maps have no type for the tensor, or `data_type=` does not fit it; the type in
        `arguments` is then UINT8 and means nothing.
    driver_rules : bool
        Whether `rules` is ``"driver"`` as the call gives it.
    unreadable : tuple of Violation
        Arguments that could not be read.
    proposals : mapping
        What `Report.fixed` puts in their place, by argument.
    unread : frozenset of str
        Of a printed call, the arguments, and entries such as ``"box_dim[0]"``, that are not known;
        rules that read them are skipped.
    call : JudgedCall or None
        The same in C, where C has read it.
    keeps_tensor : bool
        Whether only other arguments may mend it, as `Report.fixed` has it.
    """

    arguments: EncodeArguments
    address: int
    rank: int
    rules: str
    target: Target
    target_is_assumed: bool = False
    is_driver_call: bool = False
    view: TensorView | None = None
    innermost_stride: int = 1
    rare: RareOptions = USUAL
    has_swizzle: bool = True
    allowed: frozenset[str] = frozenset()
    asked_type: TensorMapDataType | None = None
    type_is_known: bool = True
    driver_rules: bool = False
    unreadable: tuple[Violation, ...] = ()
    proposals: Mapping[str, Any] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    call: JudgedCall | None = None
    keeps_tensor: bool = False

    @lazy
    def facts(self) -> Any:
        """The struct that predicates read, and the words of rules."""
        return self.call if self.call is not None and self.call.is_exact else describe(self)

    @property
    def tensor(self) -> TensorView:
        """The tensor of a `make_*` call."""
        assert self.view is not None
        return self.view

    @property
    def is_own_layout(self) -> bool:
        """Whether the tensor has its own layout, without `shape=`, `strides=` or `offset=`."""
        return self.view is None or self.view.own is None

    @property
    def kind(self) -> MapKind:
        return self.arguments.kind

    @property
    def data_type(self) -> TensorMapDataType | None:
        """The map's type; None where it is not known."""
        return self.arguments.data_type if self.type_is_known else None

    @property
    def swizzle(self) -> TmaSwizzle:
        member: TmaSwizzle = SWIZZLE_MEMBERS[self.facts.swizzle]
        return member

    @property
    def box_dim(self) -> tuple[int, ...]:
        """The box of a tiled map that has at most five entries."""
        box: tuple[int, ...] = self.facts.box_dim[: self.facts.box_count]
        return box

    @property
    def type_row(self) -> DataTypeRow:
        return DATA_TYPES[self.arguments.data_type]

    @property
    def inner_box_bytes(self) -> Number:
        """Bytes of the box along dimension 0, in global memory; not rounded."""
        return in_bytes(self.facts.inner_box_bits)

    @property
    def inner_unit(self) -> int:
        """Fewest elements along dimension 0 that take a multiple of 16 bytes."""
        bits: int = self.facts.element_bits
        return math.lcm(INNER_BYTES * 8, bits) // bits

    @property
    def span_bytes(self) -> int:
        span_bits: int = self.facts.span_bits
        return span_bits // 8

    @property
    def span_elements(self) -> int:
        """Elements that one row of the swizzle pattern holds."""
        span: int = self.facts.span_bits // self.facts.element_bits
        return span

    def span_values_of(self, swizzle: TmaSwizzle) -> int:
        """Elements of one span of a swizzle; without one, of a row of a core matrix, 16 bytes."""
        return (SWIZZLE_SPAN_BYTES[swizzle] or INNER_BYTES) * 8 // self.type_row.element_bits

    def spatial_size(self, i: int) -> int:
        """Extent along spatial dimension i, 0 being W, as the target's driver reads it."""
        size = int(self.arguments.global_dim[self.facts.first_spatial + i])
        return int32(size) if self.target.has_model else size

    def corner(self, which: str) -> tuple[int, ...]:
        """Return the ``"lower"`` or ``"upper"`` corner, W first."""
        a = self.arguments
        return a.pixel_box_lower_corner if which == "lower" else a.pixel_box_upper_corner

    @property
    def corner_range(self) -> range:
        """Valid values of one corner entry: the corners share 16 bits."""
        return range(-self.facts.corner_end, self.facts.corner_end)

    # -- result ----------------------------------------------------------------------------------

    def encode_arguments(self) -> EncodeArguments:
        """Return the driver's arguments as they are encoded.

        An ignored elem_stride is 1; split_inner= and ragged= add outer dimensions.
        """
        a = self.arguments
        if a.element_strides[:1] != (1,) and self.facts.ignores_inner_step:
            a = a._replace(element_strides=(1, *a.element_strides[1:]))
        if self.rare.split_inner:
            a = _split(a, self.facts.span_values)
        return a if self.rare.ragged is None else _ragged(a, self.facts.ragged_dim)

    def under(self, rules: str) -> Request:
        """Give the same request with other `rules=`, and none switched off by `allow=`."""
        named = set_of_rules(self.kind, rules, self.target)
        return self.with_fields(rules=named, allowed=frozenset())

    def with_fields(self, **fields: Any) -> Request:
        """Return the same request with other fields, a fifth of the time of dataclasses.replace."""
        changed = object.__new__(Request)
        changed.__dict__.update(self.__dict__, **fields)
        changed.__dict__.pop("facts", None)
        return changed


def _split(a: EncodeArguments, span: int) -> EncodeArguments:
    """Make the columns of spans the outermost dimension: (.., M, K) is (K / span, .., M, span)."""
    return a._replace(
        global_dim=(span, *a.global_dim[1:], a.global_dim[0] // span),
        global_strides=(*a.global_strides, span * a.type_row.element_bits // 8),
        element_strides=(*a.element_strides, 1),
        box_dim=(span, *a.box_dim[1:], a.box_dim[0] // span),
    )


def ragged_wrap_bytes(element_bits: int) -> int:
    """Return a stride that wraps: times 2^30 it is 0 modulo 2^64, for packed types too."""
    return RAGGED_STRIDE_END * max(8, element_bits) // 8


def _ragged(a: EncodeArguments, dim: int) -> EncodeArguments:
    """Add the two dimensions whose strides sum to 2^34 elements; `make.recipes` says why."""
    stride, wrap = a.global_strides[dim - 1], ragged_wrap_bytes(a.type_row.element_bits)
    extents = list(a.global_dim)
    extents[dim] = RAGGED_EXTENT
    return a._replace(
        global_dim=(*extents, RAGGED_EXTRA_EXTENT, RAGGED_EXTRA_EXTENT),
        global_strides=(*a.global_strides, stride, wrap - stride),
        element_strides=(*a.element_strides, 1, 1),
        box_dim=(*a.box_dim, 1, 1),
    )


def in_bytes(bits: Number) -> Number:
    """Return bits as bytes, as a Fraction where they are not whole."""
    return bits // 8 if bits % 8 == 0 else Fraction(bits) / 8


# -- the struct that predicates read ---------------------------------------------------------------


class Described:
    """A request as integers: the fields of `STRUCT`, each 0 until it is set."""


for _name, _count, *_ in STRUCT:
    setattr(Described, _name, (0,) * _count if _count else 0)

_ZEROS = (0,) * MAX_RANK


def describe(r: Request) -> Any:
    """Return the struct of a request."""
    a, target, rank = r.arguments, r.target, r.rank
    c: Any = Described()
    view, extents = r.view, a.global_dim
    c.kind, c.rank = KINDS.index(a.kind), rank
    c.dims = dims = rank if 1 <= rank <= MAX_RANK else 0
    c.address, c.is_null = r.address, view is not None and r.address == view.offset_bytes

    row = DATA_TYPES[a.data_type]
    c.data_type = a.data_type if r.type_is_known else -1
    c.asked_type = -1 if r.asked_type is None else r.asked_type
    c.element_bits = bits = row.element_bits
    c.is_float, c.packed_unit, c.type_swizzles = row.is_float, 1, row.swizzles
    c.type_interleaves = row.interleaves
    if row.is_packed:
        c.is_packed, c.is_padded, c.packed_unit = True, row.is_padded, row.packed_unit
    if r.rules == "libcu++" and view is not None and r.asked_type is None:
        c.passes_nan = view.dtype.code not in NAN_REFUSED

    c.interleave, c.swizzle = a.interleave, a.swizzle
    c.l2_promotion, c.oob_fill, c.mode = a.l2_promotion, a.oob_fill, a.mode
    c.first_spatial = 0 if a.interleave else 1
    c.alignment_bytes, c.inner_stride = a.alignment_bytes, r.innermost_stride

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
    c.has_swizzle, c.ragged_dim = r.has_swizzle, -1
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


def _ignores_inner_step(r: Request) -> bool:
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
    if is_wide and rules == "documented":  # which limits them alike, whatever the rank
        c.corner_end = 1 << 15
    c.lower_count, c.lower = len(lower), (lower + _ZEROS)[:3]
    c.upper_count, c.upper = len(upper), (upper + _ZEROS)[:3]
    c.channels, c.pixels = a.channels_per_pixel, a.pixels_per_column
    c.inner_box = c.channels
    c.box_bits = c.floor_box_bits = c.channels * c.pixels * c.element_bits
