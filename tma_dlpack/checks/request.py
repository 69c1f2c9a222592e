"""The `Request`: one call of the user, with its options, its tensor and its target.

A request has the numbers of the call unchanged. Their types are valid, but their values may break
any rule. An argument that could not be read (a box of strings, a swizzle that does not exist) has
its default value in the request and a `Violation` in `unreadable`. Rules that read this argument
are skipped. If the C extension has read and judged the call, the request holds the result, a
`JudgedCall`, and reads its own fields from the `JudgedCall` on first use. The driver's arguments,
the struct for predicates, and the broken rules are computed from these fields.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tma_dlpack import driver
from tma_dlpack.checks.judge import int32
from tma_dlpack.checks.struct import (
    PLACES,
    RULE_SETS,
    JudgedCall,
    Options,
    OtherTensor,
    allowed_ids,
    describe,
    set_of_rules,
)
from tma_dlpack.dlpack import (
    TensorView,
    canonical_strides,
    check_layout,
    name_of,
    row_major_strides,
)
from tma_dlpack.public import lazy
from tma_dlpack.tables.abi import RareOptions
from tma_dlpack.tables.arguments import KINDS, EncodeArguments, MapKind, Number, alignment_bytes_of
from tma_dlpack.tables.dtypes import DATA_TYPES, DataTypeRow, data_type_of, overrides_of
from tma_dlpack.tables.enums import (
    DATA_TYPE_MEMBERS,
    FILL_MEMBERS,
    INTERLEAVE_MEMBERS,
    L2_MEMBERS,
    MODE_MEMBERS,
    SWIZZLE_MEMBERS,
    TensorMapDataType,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import Violation
from tma_dlpack.tables.targets import (
    DEFAULT_TARGET,
    INNER_BYTES,
    RAGGED_EXTENT,
    RAGGED_EXTRA_EXTENT,
    RAGGED_STRIDE_END,
    SWIZZLE_SPAN_BYTES,
    Target,
)

#: Fields that stay the same in a request with other arguments.
_KEPT = frozenset(
    {"layout", "rank", "rules", "target_is_assumed", "is_driver_call", "unreadable", "proposals"}
    | {"unread", "keeps_tensor"}
)


class Request:
    """A call of the user.

    Index 0 of a tuple is the innermost dimension, except in `options` and `view`, which have the
    order of the call. The constructor receives some fields. All other fields are computed on first
    use from these fields or from the `JudgedCall`.

    Attributes
    ----------
    kind : MapKind
    options : Options
    view : TensorView or None
        The DLPack description of the tensor of a `make_*` call; it does not keep the tensor alive.
    address : int
        Address of element (0, ..., 0).
    layout : (type or None, extents, strides in bytes)
        The layout in the driver's terms. The type is None if maps have no type for the tensor, or
        if `data_type=` does not fit the tensor. Extents and strides may be Fractions if an element
        is smaller than a byte. Any number may be out of range.
    rank : int
        The tensor's rank, or the argument of a `driver_encode_*` call.
    target : Target
    target_is_assumed : bool
        Whether the target is a default because no driver is available.
    rules : {"libcu++", "documented", "driver", "measured"}
        The set of rules that the call must follow.
    is_driver_call : bool
        Whether the call is a `driver_encode_*` call; messages then use the driver's names.
    unreadable : tuple of Violation
        The violations of the arguments that could not be read.
    proposals : mapping
        Values that `Report.fixed` tries for unreadable arguments, by the argument's name.
    unread : frozenset of str
        The arguments whose values are not known, because a printed call does not show them. An
        entry, such as ``"box_dim[0]"``, may also be unknown. Rules that read an unknown value are
        skipped.
    keeps_tensor : bool
        Whether fixes must keep the tensor, which means that they change only arguments.
    call : JudgedCall or None
        The call as C has read and judged it, or None if C did not read the call. `producer` is the
        type of the tensor.
    """

    target_is_assumed: bool = False
    is_driver_call: bool = False
    unreadable: tuple[Violation, ...] = ()
    proposals: Mapping[str, Any] = MappingProxyType({})
    unread: frozenset[str] = frozenset()
    keeps_tensor: bool = False
    call: JudgedCall | None = None
    producer: type

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self._fields = fields

    def with_fields(self, **fields: Any) -> Request:
        """Return a copy of the request with some fields replaced."""
        return Request(**{**self._fields, **fields})

    @lazy
    def _parts(self) -> tuple[Any, ...]:
        # Only a request that C has read computes fields from `_parts`.
        assert self.call is not None
        return self.call.parts

    @lazy
    def kind(self) -> MapKind:
        # Only a request that C has read computes `kind`. All other requests receive `kind` as an
        # argument.
        assert self.call is not None
        return KINDS[self.call.kind]

    @lazy
    def options(self) -> Options:
        return _options_of(self._parts[3])

    @lazy
    def target(self) -> Target:
        # a target, the ordinal of a GPU, or -1 for the default target
        known: Target | int = self._parts[2]
        if isinstance(known, Target):
            return known
        return driver.device_target(known) if known >= 0 else DEFAULT_TARGET

    @lazy
    def view(self) -> TensorView | None:
        if self.call is None:
            return None
        own = TensorView(0, *check_layout(self._parts[0]), name_of(self.producer))
        return described(own, self.options.rare)

    @lazy
    def address(self) -> int:
        own: int = self._parts[1]
        return own + self.tensor.offset_bytes

    @lazy
    def rank(self) -> int:
        if self.call is not None:
            return self.call.rank
        return 0 if self.view is None else len(self.view.shape)

    @lazy
    def rules(self) -> str:
        if self.is_driver_call:
            return "measured" if self.target.has_model else "documented"
        return self.set_of(RULE_SETS[self.kind][self.options.driver_rules])

    def set_of(self, rules: str) -> str:
        """Return the set of rules that the value `rules` of `rules=` selects for this request."""
        return rules if self.kind == "tiled" else set_of_rules(self.kind, rules, self.target)

    @lazy
    def facts(self) -> Any:
        """The struct of numbers that predicates and the texts of rules read."""
        return self.call if self.call is not None and self.call.is_exact else describe(self)

    # -- the driver's arguments --------------------------------------------------------------------

    @lazy
    def layout(
        self,
    ) -> tuple[TensorMapDataType | None, tuple[Number, ...], tuple[Number, ...]]:
        view = self.view
        if view is None:
            return None, (), ()
        data_type, bits = data_type_of(view.dtype), view.dtype.itemsize_bits
        if (asked := self.asked_type) is not None:
            data_type = asked if asked in overrides_of(view.dtype) else None
        if 1 in view.shape:
            # A dimension of extent 1 may have any stride. Use a stride that the rules accept.
            align_bytes = alignment_bytes_of(INTERLEAVE_MEMBERS[self.options.interleave], data_type)
            strides = canonical_strides(view.shape, view.strides, bits, align_bytes)
            view = dataclasses.replace(view, strides=strides)
        return data_type, *driver_layout(view, data_type)

    @lazy
    def arguments(self) -> EncodeArguments:
        """The driver's arguments.

        If maps have no type for the tensor, the data type is UINT8 as a placeholder.
        """
        o = self.options
        data_type, dims, strides_bytes = self.layout
        return EncodeArguments(
            self.kind,
            TensorMapDataType.UINT8 if data_type is None else data_type,
            dims,  # type: ignore[arg-type]  # rules refuse Fractions
            strides_bytes,  # type: ignore[arg-type]
            (1,) * self.rank if o.elem_strides is None else o.elem_strides[::-1],
            o.box_sizes[::-1],
            INTERLEAVE_MEMBERS[o.interleave],
            SWIZZLE_MEMBERS[o.swizzle],
            L2_MEMBERS[o.l2_promotion],
            FILL_MEMBERS[o.oob_fill],
            o.lower[::-1],
            o.upper[::-1],
            o.channels,
            o.pixels,
            MODE_MEMBERS[o.mode],
        )

    def encode_arguments(self) -> EncodeArguments:
        """Return the arguments to pass to the driver.

        In these arguments, an innermost element stride that is ignored is 1, and the outer
        dimensions that split_inner= and ragged= add are included.
        """
        a = self.arguments
        if a.element_strides[:1] != (1,) and self.facts.ignores_inner_step:
            a = a._replace(element_strides=(1, *a.element_strides[1:]))
        if self.rare.split_inner:
            a = split(a, self.facts.span_values)
        return a if self.rare.ragged is None else ragged(a, self.facts.ragged_dim)

    # -- other calls -------------------------------------------------------------------------------

    def under(self, rules: str) -> Request:
        """Return a copy of the request with another `rules=`, and without `allow=`."""
        # A `JudgedCall` was judged by one set of rules, and cannot be judged by another set.
        assert self.call is None
        return self.with_fields(rules=self.set_of(rules), options=self.options._replace(allowed=0))

    def changed(self, change: Mapping[str, Any], view: OtherTensor | None = None) -> Request:
        """Return a request with the arguments in `change`, and another tensor if `view` is passed.

        `change` has keyword arguments in row-major order. Their values are not parsed, so they must
        be readable.
        """
        call = None if self.call is None else self.call.changed(change, view)
        if call is None:
            return self.changed_in_python(change, view)
        return Request(call=call, producer=self.producer, keeps_tensor=self.keeps_tensor)

    def changed_in_python(
        self, change: Mapping[str, Any], view: OtherTensor | None = None
    ) -> Request:
        """Return the request that `changed` returns, without using the `JudgedCall`."""
        # `_fields` has only the fields that the constructor received. Fields that were computed on
        # first use are computed again for the new request.
        fields = {name: value for name, value in self._fields.items() if name in _KEPT}
        # The set of rules depends on `rules=` and `target=`, so compute it again.
        if not change.keys().isdisjoint({"rules", "target"}):
            fields.pop("rules", None)
        options = self.options.changed(change)
        # `view` is another tensor. Without it, `strides=` or `offset=` may describe other memory of
        # the same tensor.
        seen, address = self.view, self.address
        if view is not None:
            address = view.address
            strides = canonical_strides(view.shape, view.strides, view.dtype.itemsize_bits)
            seen = dataclasses.replace(
                self.tensor, shape=view.shape, strides=strides, dtype=view.dtype
            )
        elif not PLACES.isdisjoint(change):
            own = self.tensor.own
            assert own is not None
            place = options.rare._replace(
                shape=self.tensor.shape, strides=options.rare.strides or self.tensor.strides
            )
            seen = described(own, place)
            address += seen.offset_bytes - self.tensor.offset_bytes
        target = Target.of(change["target"]) if "target" in change else self.target
        fields |= {"kind": self.kind, "options": options, "target": target}
        return Request(view=seen, address=address, **fields)

    # -- for the words of rules --------------------------------------------------------------------

    @lazy
    def tensor(self) -> TensorView:
        """The tensor of a `make_*` call."""
        assert self.view is not None
        return self.view

    @property
    def is_own_layout(self) -> bool:
        """Whether the map has the tensor's layout, without `shape=`, `strides=` or `offset=`."""
        return self.view is None or self.view.own is None

    @property
    def rare(self) -> RareOptions:
        """The options that few calls pass."""
        return self.options.rare

    @property
    def asked_type(self) -> TensorMapDataType | None:
        """The value of `data_type=`, or None if omitted."""
        asked = self.options.asked_type
        return None if asked < 0 else DATA_TYPE_MEMBERS[asked]

    @property
    def allowed(self) -> frozenset[str]:
        """Ids of rules that `allow=` switches off."""
        return allowed_ids(self.options.allowed)

    @property
    def data_type(self) -> TensorMapDataType | None:
        """The map's type, or None if it is not known."""
        return self.layout[0]

    @property
    def type_is_known(self) -> bool:
        """Whether maps have a type for the tensor, and `data_type=`, if passed, fits the tensor."""
        known: bool = self.facts.data_type >= 0
        return known

    @property
    def type_row(self) -> DataTypeRow:
        return DATA_TYPES[self.layout[0] or TensorMapDataType.UINT8]

    @property
    def swizzle(self) -> TmaSwizzle:
        member: TmaSwizzle = SWIZZLE_MEMBERS[self.facts.swizzle]
        return member

    @property
    def box_dim(self) -> tuple[int, ...]:
        """The first five entries of the box of a tiled map."""
        box: tuple[int, ...] = self.facts.box_dim[: self.facts.box_count]
        return box

    @property
    def inner_box_bytes(self) -> Number:
        """The exact bytes of a row of the box (along dimension 0) in global memory."""
        return in_bytes(self.facts.inner_box_bits)

    @property
    def inner_unit(self) -> int:
        """The smallest number of elements that takes a multiple of 16 bytes."""
        bits: int = self.facts.element_bits
        return math.lcm(INNER_BYTES * 8, bits) // bits

    @property
    def span_bytes(self) -> int:
        span_bits: int = self.facts.span_bits
        return span_bits // 8

    @property
    def span_elements(self) -> int:
        """The number of elements in one span, which is one row of the swizzle pattern."""
        span: int = self.facts.span_bits // self.facts.element_bits
        return span

    def span_values_of(self, swizzle: TmaSwizzle) -> int:
        """Return the number of elements in one span of a swizzle.

        Without a swizzle, a span is the 16 bytes of one row of a core matrix.
        """
        return (SWIZZLE_SPAN_BYTES[swizzle] or INNER_BYTES) * 8 // self.type_row.element_bits

    def spatial_size(self, i: int) -> int:
        """Return the extent along spatial dimension i, where 0 is W.

        The drivers that were measured read the extent as a signed 32-bit integer. If the target's
        driver was not measured, the extent is returned unchanged.
        """
        size = int(self.arguments.global_dim[self.facts.first_spatial + i])
        return int32(size) if self.target.has_model else size

    def corner(self, which: str) -> tuple[int, ...]:
        """Return the ``"lower"`` or ``"upper"`` corner, W first."""
        return (self.options.lower if which == "lower" else self.options.upper)[::-1]

    @property
    def corner_range(self) -> range:
        """The valid values of one entry of a corner. All entries of a corner share 16 bits."""
        return range(-self.facts.corner_end, self.facts.corner_end)


def driver_call(arguments: EncodeArguments, address: int, target: Target) -> Request:
    """Return the request of a `driver_encode_*` call with these arguments."""
    a = arguments
    options = Options(
        interleave=a.interleave,
        swizzle=a.swizzle,
        l2_promotion=a.l2_promotion,
        oob_fill=a.oob_fill,
        mode=a.mode,
        elem_strides=a.element_strides[::-1],
        box_sizes=a.box_dim[::-1],
        lower=a.pixel_box_lower_corner[::-1],
        upper=a.pixel_box_upper_corner[::-1],
        channels=a.channels_per_pixel,
        pixels=a.pixels_per_column,
    )
    return Request(
        kind=a.kind,
        options=options,
        layout=(a.data_type, a.global_dim, a.global_strides),
        rank=a.rank,
        view=None,
        address=address,
        target=target,
        is_driver_call=True,
    )


def request_of_map(tensor_map: Any) -> Request:
    """Return the request of the call by which C made a map from a tensor.

    The request refers to neither the map nor the tensor.
    """
    layout, fields = tensor_map._call
    options = _options_of(fields)
    # If `with_address` made the map for an integer address, the map has no tensor. Such a map
    # stores the type of the tensor of the earlier map.
    owner = tensor_map._producer if tensor_map._tensor is None else tensor_map._tensor
    producer = name_of(owner if isinstance(owner, type) else type(owner))
    known = tensor_map._target  # the target of the call, or the ordinal of a GPU, or None
    target = driver.device_target(known) if type(known) is int else known
    return Request(
        kind=KINDS[tensor_map._numbers[0]],
        options=options,
        view=described(TensorView(0, *check_layout(layout), producer), options.rare),
        address=tensor_map._address,
        target=DEFAULT_TARGET if target is None else target,
    )


def with_facts_in_c(request: Request, tensor_map: Any) -> Request:
    """Store C's struct in the accepted request of a map if the struct is exact; return the request.

    A request with C's struct cannot be pickled.
    """
    described_in_c = tensor_map._described
    call = None if described_in_c is None else described_in_c(tensor_map)
    # C clamps numbers that do not fit its struct. If C clamped a number, do not set `facts`, so
    # that Python computes the exact struct.
    if call is not None and call.is_exact:
        request.facts = call
    return request


def _options_of(fields: tuple[Any, ...]) -> Options:
    """Return the options of a call that C has read."""
    return Options._make((*fields[:-1], RareOptions(*fields[-1])))


def in_bytes(bits: Number) -> Number:
    """Return a number of bits in bytes, as a Fraction if it is not a whole number of bytes."""
    return bits // 8 if bits % 8 == 0 else Fraction(bits) / 8


# -- from a tensor to the driver's layout ----------------------------------------------------------


def described(own: TensorView, rare: RareOptions) -> TensorView:
    """Return the view of a tensor that readable `shape=`, `strides=` and `offset=` describe."""
    if rare.shape is None and rare.strides is None and not rare.offset:
        return own
    shape, strides = own.shape if rare.shape is None else rare.shape, rare.strides
    if strides is None:
        strides = own.strides if rare.shape is None else omitted_strides(own, shape)[0]
    return own.as_strided(shape, strides, rare.offset * own.dtype.itemsize_bits // 8)


def omitted_strides(view: TensorView, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the possible strides of a call that passes `shape=` without `strides=`.

    The tensor's own strides are possible if the rank stays the same. Row-major strides are possible
    if the tensor is row-major.
    """
    bits, choices = view.dtype.itemsize_bits, []
    if len(shape) == len(view.shape):
        choices.append(view.strides)
    if view.strides == canonical_strides(view.shape, row_major_strides(view.shape), bits):
        choices.append(canonical_strides(shape, row_major_strides(shape), bits))
    return list(dict.fromkeys(choices))


def driver_layout(
    view: TensorView, data_type: TensorMapDataType | None
) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
    """Turn a tensor's shape and strides into global_dim and global_strides (bytes).

    Extents count values of the map's type. A value of a packed type may be smaller than an element
    of the tensor. The innermost extent then counts these values, and may be a Fraction.

    >>> import numpy as np
    >>> from tma_dlpack.dlpack import as_tensor_view
    >>> driver_layout(as_tensor_view(np.zeros((2, 3, 8), np.float32)), TensorMapDataType.FLOAT32)
    ((8, 3, 2), (32, 96))
    """
    itemsize_bits = view.dtype.itemsize_bits
    dims: tuple[Number, ...] = view.shape[::-1]
    if dims and data_type is not None and (row := DATA_TYPES[data_type]).is_packed:
        values = _whole(Fraction(view.shape[-1] * itemsize_bits, row.element_bits))
        dims = (values, *dims[1:])
    outer = view.strides[-2::-1]
    if itemsize_bits % 8 == 0:
        return dims, tuple([stride * (itemsize_bits // 8) for stride in outer])
    return dims, tuple(_whole(Fraction(stride * itemsize_bits, 8)) for stride in outer)


def _whole(number: Fraction) -> Number:
    return int(number) if number.denominator == 1 else number


# -- the arguments of the encode -------------------------------------------------------------------


def split(a: EncodeArguments, span: int) -> EncodeArguments:
    """Return arguments that split the innermost dimension into spans of `span` elements.

    The number of spans becomes the outermost extent. In row-major order, the shape (.., M, K)
    becomes (K / span, .., M, span).
    """
    return a._replace(
        global_dim=(span, *a.global_dim[1:], a.global_dim[0] // span),
        global_strides=(*a.global_strides, span * a.type_row.element_bits // 8),
        element_strides=(*a.element_strides, 1),
        box_dim=(span, *a.box_dim[1:], a.box_dim[0] // span),
    )


def ragged_wrap_bytes(element_bits: int) -> int:
    """Return the sum, in bytes, of the strides of the two dimensions that `ragged` adds.

    2^30 times this sum is 0 modulo 2^64.
    """
    return RAGGED_STRIDE_END * max(8, element_bits) // 8


def ragged(a: EncodeArguments, dim: int) -> EncodeArguments:
    """Return arguments with two more dimensions, whose strides sum to `ragged_wrap_bytes`.

    The docstring of `make.recipes` explains the two dimensions.
    """
    stride, wrap = a.global_strides[dim - 1], ragged_wrap_bytes(a.type_row.element_bits)
    extents = list(a.global_dim)
    extents[dim] = RAGGED_EXTENT
    return a._replace(
        global_dim=(*extents, RAGGED_EXTRA_EXTENT, RAGGED_EXTRA_EXTENT),
        global_strides=(*a.global_strides, stride, wrap - stride),
        element_strides=(*a.element_strides, 1, 1),
        box_dim=(*a.box_dim, 1, 1),
    )
