"""`Request`: a call, normalised to the driver's words and order; and the struct of a request.

Its numbers may break any rule; only their types are right. An argument that could not be read (a
box of strings, a swizzle that does not exist) has a default here and a Violation in `unreadable`;
rules that read it are skipped. `describe` turns a request into the integers that predicates read,
as `tma_dlpack_describe` of include/tma_dlpack_make.h does in C. There numbers are cut at 2^60,
which is beyond every limit; here they are exact. Packed types count in bits: nothing is a fraction.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tma_dlpack.checks.judge import int32
from tma_dlpack.checks.rule import STRUCT
from tma_dlpack.dlpack import TensorView
from tma_dlpack.tables.arguments import KINDS, EncodeArguments, MapKind, Number
from tma_dlpack.tables.dtypes import DATA_TYPES, DataTypeRow
from tma_dlpack.tables.enums import (
    DLDataTypeCode,
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import Violation
from tma_dlpack.tables.limits import (
    CORNER_ENDS,
    INNER_BYTES,
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


@dataclass(frozen=True, slots=True)
class Request:
    """A call of the user. Index 0 is innermost in every tuple.

    Attributes
    ----------
    arguments : EncodeArguments
        The driver's arguments. Extents and strides of types smaller than a byte may
        be Fractions, and any number may be out of range.
    address : int
        Where element (0, ..., 0) stands.
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
    split_inner : bool
        Whether the innermost dimension is split into spans of the swizzle, outermost.
    ragged : int or None
        The dimension that slices of any length are taken along, as it was given.
    has_swizzle : bool
        Whether `swizzle=` was given.
    allowed : frozenset of str
        Ids of rules that `allow=` switches off.
    asked_type : TensorMapDataType or None
        What `data_type=` is.
    type_is_known : bool
        False if maps have no type for the tensor, or `data_type=` does not fit it; the type in
        `arguments` is then UINT8 and means nothing.
    unreadable : tuple of Violation
        Arguments that could not be read.
    proposals : mapping
        What `Report.fixed` puts in their place, by argument.
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
    split_inner: bool = False
    ragged: int | None = None
    has_swizzle: bool = True
    allowed: frozenset[str] = frozenset()
    asked_type: TensorMapDataType | None = None
    type_is_known: bool = True
    unreadable: tuple[Violation, ...] = ()
    proposals: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_own_layout(self) -> bool:
        """Whether the tensor has its own layout, without `shape=`, `strides=` or `offset=`."""
        return self.view is None or self.view.own is None

    @property
    def own_address(self) -> int:
        """Address of the tensor's own first element."""
        return self.address - (0 if self.view is None else self.view.offset_bytes)

    # -- numbers for the rules -------------------------------------------------------------------

    @property
    def kind(self) -> MapKind:
        return self.arguments.kind

    @property
    def data_type(self) -> TensorMapDataType | None:
        """The map's type; None where it is not known."""
        return self.arguments.data_type if self.type_is_known else None

    @property
    def type_row(self) -> DataTypeRow:
        return self.arguments.type_row

    @property
    def interleaved(self) -> bool:
        return self.arguments.interleave != TmaInterleaveLayout.none

    @property
    def alignment_bytes(self) -> int:
        """What the address and every stride must be a multiple of."""
        return self.arguments.alignment_bytes

    @property
    def element_bits(self) -> int:
        """Bits of one element in global memory; only for rules that need a data type."""
        return self.arguments.type_row.element_bits

    @property
    def inner_box(self) -> int:
        """Elements of a row of the box: box_dim[0], a span if split, or channels per pixel."""
        return self.span_values if self.split_inner else self.arguments.inner_box

    @property
    def inner_box_bytes(self) -> Number:
        """Bytes of the box along dimension 0, in global memory; not rounded."""
        return in_bytes(self.inner_box * self.element_bits)

    @property
    def inner_unit(self) -> int:
        """Fewest elements along dimension 0 that take a multiple of 16 bytes."""
        return math.lcm(INNER_BYTES * 8, self.element_bits) // self.element_bits

    @property
    def span_bytes(self) -> int:
        return SWIZZLE_SPAN_BYTES[self.arguments.swizzle]

    @property
    def span_elements(self) -> int:
        """Elements that one row of the swizzle pattern holds."""
        return self.span_bytes * 8 // self.element_bits

    @property
    def span_values(self) -> int:
        """Elements that split_inner= splits by."""
        return self.span_values_of(self.arguments.swizzle)

    def span_values_of(self, swizzle: TmaSwizzle) -> int:
        """Elements of one span of a swizzle; without one, of a row of a core matrix, 16 bytes."""
        return (SWIZZLE_SPAN_BYTES[swizzle] or INNER_BYTES) * 8 // self.element_bits

    @property
    def is_ragged(self) -> bool:
        return self.ragged is not None

    @property
    def ragged_dim(self) -> int:
        """The dimension that ragged= names, 0 being innermost; -1 where there is none."""
        if self.ragged is None or not -self.rank <= self.ragged < self.rank:
            return -1
        return self.rank - 1 - self.ragged % self.rank

    @property
    def box_bytes(self) -> Number:
        """Bytes of the whole box (tiled) or column (im2col), in global memory; not rounded."""
        a = self.arguments
        entries = a.box_dim if self.kind == "tiled" else (a.channels_per_pixel, a.pixels_per_column)
        return in_bytes(math.prod(entries) * self.element_bits)

    @property
    def passes_nan(self) -> bool:
        """Whether libcu++ leaves the fill of this type to the driver: of float8 and float4."""
        if self.rules != "libcu++" or self.view is None or self.asked_type is not None:
            return False
        return self.view.dtype.code not in NAN_REFUSED

    @property
    def ignores_innermost_elem_stride(self) -> bool:
        """Whether the innermost entry of elem_strides is ignored.

        libcu++ encodes 1 there unless the layout is interleaved, and the document ignores it; the
        driver wants it in range all the same.
        """
        if self.rules == "measured":  # only on sm_90: a target that could not be read may differ
            return any(v.argument == "target" for v in self.unreadable)
        return self.rules != "driver" and not self.interleaved and not self.is_driver_call

    def has_rule(self, rule_id: str) -> bool:
        """Whether a rule that only libcu++ has is checked for this request."""
        return self.rules == "libcu++" and rule_id not in self.allowed

    @property
    def spatial(self) -> int:
        return self.rank - 2

    @property
    def first_spatial(self) -> int:
        return 0 if self.interleaved else 1

    def spatial_size(self, i: int) -> int:
        """Extent along spatial dimension i, 0 being W, as the target's driver reads it."""
        size = int(self.arguments.global_dim[self.first_spatial + i])
        return int32(size) if self.target.has_model else size

    def corner(self, which: str) -> tuple[int, ...]:
        """Give the ``"lower"`` or ``"upper"`` corner, W first."""
        a = self.arguments
        return a.pixel_box_lower_corner if which == "lower" else a.pixel_box_upper_corner

    @property
    def corner_end(self) -> int:
        """The first value too large for one corner entry: the corners share 16 bits."""
        wide = self.kind == "im2col_wide" and self.rules == "documented"
        return 1 << 15 if wide else CORNER_ENDS.get(self.rank, 1 << 15)

    @property
    def corner_range(self) -> range:
        """Valid values of one corner entry."""
        return range(-self.corner_end, self.corner_end)

    # -- result ----------------------------------------------------------------------------------

    def encode_arguments(self) -> EncodeArguments:
        """Return the driver's arguments as they are encoded.

        An ignored elem_stride is 1; split_inner= and ragged= add outer dimensions.
        """
        a = self.arguments
        if a.element_strides[:1] != (1,) and self.ignores_innermost_elem_stride:
            a = dataclasses.replace(a, element_strides=(1, *a.element_strides[1:]))
        if self.split_inner:
            a = _split(a, self.span_values)
        return a if self.ragged_dim < 1 else _ragged(a, self.ragged_dim)

    def under(self, rules: str) -> Request:
        """Give the same request with other `rules=`, and none switched off by `allow=`."""
        named = set_of_rules(self.kind, rules, self.target)
        return dataclasses.replace(self, rules=named, allowed=frozenset())

    def with_arguments(self, **changes: Any) -> Request:
        """Give the same request with some of the driver's arguments changed."""
        return dataclasses.replace(self, arguments=dataclasses.replace(self.arguments, **changes))


def _split(a: EncodeArguments, span: int) -> EncodeArguments:
    """Make the columns of spans the outermost dimension: (.., M, K) is (K / span, .., M, span)."""
    return EncodeArguments(
        a.kind,
        a.data_type,
        (span, *a.global_dim[1:], a.global_dim[0] // span),
        (*a.global_strides, span * a.type_row.element_bits // 8),
        (*a.element_strides, 1),
        (span, *a.box_dim[1:], a.box_dim[0] // span),
        *a.enums,
    )


def ragged_wrap_bytes(element_bits: int) -> int:
    """Return a stride that wraps: times 2^30 it is 0 modulo 2^64, for packed types too."""
    return RAGGED_STRIDE_END * max(8, element_bits) // 8


def _ragged(a: EncodeArguments, dim: int) -> EncodeArguments:
    """Add the two dimensions whose strides sum to 2^34 elements; `make.ragged` says why."""
    stride, wrap = a.global_strides[dim - 1], ragged_wrap_bytes(a.type_row.element_bits)
    extents = list(a.global_dim)
    extents[dim] = RAGGED_EXTENT
    return EncodeArguments(
        a.kind,
        a.data_type,
        (*extents, RAGGED_EXTRA_EXTENT, RAGGED_EXTRA_EXTENT),
        (*a.global_strides, stride, wrap - stride),
        (*a.element_strides, 1, 1),
        (*a.box_dim, 1, 1),
        *a.enums,
    )


def in_bytes(bits: Number) -> Number:
    """Return bits as bytes, as a Fraction where they are not whole."""
    return bits // 8 if bits % 8 == 0 else Fraction(bits) / 8


# -- the struct that predicates read ---------------------------------------------------------------


class Described:
    """A request as integers: the fields of `STRUCT`, each 0 until it is set."""


for _name, _count, *_ in STRUCT:
    setattr(Described, _name, (0,) * _count if _count else 0)

_ZEROS = (0,) * 5


def describe(r: Request) -> Any:
    """Return the struct of a request."""
    a, target, rank = r.arguments, r.target, r.rank
    c: Any = Described()
    view, extents = r.view, a.global_dim
    c.kind, c.rank = KINDS.index(a.kind), rank
    c.dims = dims = rank if 1 <= rank <= 5 else 0
    c.address, c.is_null = r.address, view is not None and r.address == view.offset_bytes

    row = DATA_TYPES[a.data_type]
    c.data_type = a.data_type if r.type_is_known else -1
    c.asked_type = -1 if r.asked_type is None else r.asked_type
    c.element_bits = bits = row.element_bits
    c.is_float, c.packed_unit, c.type_swizzles = row.is_float, 1, row.swizzles
    c.type_interleaves, c.passes_nan = row.interleaves, r.passes_nan
    if row.is_packed:
        c.is_packed, c.is_padded, c.packed_unit = True, row.is_padded, row.packed_unit

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
    c.ignores_inner_step = r.ignores_innermost_elem_stride
    c.span_bits = 8 * SWIZZLE_SPAN_BYTES[a.swizzle]
    c.has_swizzle, c.ragged_dim = r.has_swizzle, -1
    if r.split_inner:
        c.is_split, c.span_values = True, r.span_values
    if r.ragged is not None:
        c.is_ragged, c.ragged_dim = True, r.ragged_dim
    if 1 <= c.ragged_dim < dims:
        c.ragged_stride_bits = stride_bits[c.ragged_dim - 1]
    if a.kind == "tiled":
        _describe_box(c, a.box_dim, steps)
    else:
        _describe_column(c, a)
        c.corner_end = r.corner_end
    c.inner_box_bits = c.inner_box * bits

    c.has_tma, c.is_sm_9x, c.has_wide = target.has_tma, target.is_sm_9x, target.has_wide
    c.has_model, c.max_smem_bytes = target.has_model, target.max_smem_bytes
    return c


def _describe_box(c: Any, box: tuple[int, ...], steps: tuple[int, ...]) -> None:
    c.box_count, c.box_dim = len(box), (box + _ZEROS)[:5]
    c.inner_box = c.span_values if c.is_split else c.box_dim[0]
    box_bits = floor_bits = c.element_bits
    for d, size in enumerate(box):
        step = steps[d] if d < len(steps) and not (d == 0 and c.ignores_inner_step) else 1
        box_bits *= size
        floor_bits *= size // step if step > 0 else size
    c.box_bits, c.floor_box_bits = box_bits, floor_bits


def _describe_column(c: Any, a: EncodeArguments) -> None:
    lower, upper = a.pixel_box_lower_corner, a.pixel_box_upper_corner
    c.spatial = max(0, c.dims - 2)
    c.corners = min(1, c.spatial) if a.kind == "im2col_wide" else c.spatial
    c.lower_count, c.lower = len(lower), (lower + _ZEROS)[:3]
    c.upper_count, c.upper = len(upper), (upper + _ZEROS)[:3]
    c.channels, c.pixels = a.channels_per_pixel, a.pixels_per_column
    c.inner_box = c.channels
    c.box_bits = c.floor_box_bits = c.channels * c.pixels * c.element_bits
