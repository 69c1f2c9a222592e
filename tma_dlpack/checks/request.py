"""`Request`: one call of the user, unchanged: its options, its tensor and its target.

Its numbers may break any rule; only their types are right. An argument that could not be read (a
box of strings, a swizzle that does not exist) has a default here and a Violation in `unreadable`;
rules that read it are skipped. A request that C has read and judged holds the C call, and reads its
fields from the call on first use. The driver's arguments, the struct for predicates, and the broken
rules are computed from these fields.
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

#: Fields that a change of arguments keeps.
_KEPT = frozenset(
    {"layout", "rank", "rules", "target_is_assumed", "is_driver_call", "unreadable", "proposals"}
    | {"unread", "keeps_tensor"}
)


class Request:
    """A call of the user.

    Index 0 is innermost in every tuple, except in `options` and `view`. A field is passed to the
    constructor, or computed on first use, from other fields or the C call.

    Attributes
    ----------
    kind : MapKind
    options : Options
    view : TensorView or None
        The DLPack description of the tensor of a `make_*` call, without its owner.
    address : int
        Address of element (0, ..., 0).
    layout : (type or None, extents, strides in bytes)
        The driver's; None if maps have no type for the tensor, or `data_type=` does not fit it.
        Those of types smaller than a byte may be Fractions, and any number may be out of range.
    rank : int
        The tensor's rank, or the argument of a `driver_encode_*` call.
    target : Target
    target_is_assumed : bool
        Whether the target is a default because no driver is available.
    rules : {"libcu++", "documented", "driver", "measured"}
        The set of rules that applies.
    is_driver_call : bool
        Whether it is a `driver_encode_*` call; messages then use the driver's names.
    unreadable : tuple of Violation
        Arguments that could not be read.
    proposals : mapping
        What `Report.fixed` puts in their place, by argument.
    unread : frozenset of str
        Of a printed call, the arguments, and entries such as ``"box_dim[0]"``, that are not known;
        rules that read them are skipped.
    keeps_tensor : bool
        Whether fixes may change arguments only, as `Report.fixed` requires.
    call : JudgedCall or None
        The same in C, where C has read it, of a tensor of type `producer`.
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
        """Return the same request with other fields."""
        return Request(**{**self._fields, **fields})

    @lazy
    def _parts(self) -> tuple[Any, ...]:
        # A request without a C call has all its fields.
        assert self.call is not None
        return self.call.parts

    @lazy
    def kind(self) -> MapKind:
        # A request without a C call has its own `kind`.
        assert self.call is not None
        return KINDS[self.call.kind]

    @lazy
    def options(self) -> Options:
        return _options_of(self._parts[3])

    @lazy
    def target(self) -> Target:
        known: Target | int = self._parts[2]  # the target as given, or a GPU's ordinal
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
        """Return the set of rules that `rules=` means."""
        return rules if self.kind == "tiled" else set_of_rules(self.kind, rules, self.target)

    @lazy
    def facts(self) -> Any:
        """The struct that predicates read, and the words of rules."""
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
            # The stride of a dimension of 1 has no meaning, so give it the map's alignment.
            align_bytes = alignment_bytes_of(INTERLEAVE_MEMBERS[self.options.interleave], data_type)
            strides = canonical_strides(view.shape, view.strides, bits, align_bytes)
            view = dataclasses.replace(view, strides=strides)
        return data_type, *driver_layout(view, data_type)

    @lazy
    def arguments(self) -> EncodeArguments:
        """The driver's arguments.

        For a tensor without a map type they have UINT8, which then has no meaning.
        """
        o = self.options
        data_type, dims, strides_bytes = self.layout
        return EncodeArguments(
            self.kind,
            TensorMapDataType.UINT8 if data_type is None else data_type,
            dims,  # type: ignore[arg-type]  # rules require whole numbers
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
        """Return the driver's arguments in their encoded form.

        An ignored elem_stride is 1; split_inner= and ragged= add outer dimensions.
        """
        a = self.arguments
        if a.element_strides[:1] != (1,) and self.facts.ignores_inner_step:
            a = a._replace(element_strides=(1, *a.element_strides[1:]))
        if self.rare.split_inner:
            a = split(a, self.facts.span_values)
        return a if self.rare.ragged is None else ragged(a, self.facts.ragged_dim)

    # -- other calls -------------------------------------------------------------------------------

    def under(self, rules: str) -> Request:
        """Return the same request with other `rules=`, and without `allow=`."""
        # A C call caches the verdict of its own rules.
        assert self.call is None
        return self.with_fields(rules=self.set_of(rules), options=self.options._replace(allowed=0))

    def changed(self, change: Mapping[str, Any], view: OtherTensor | None = None) -> Request:
        """Return a request with other arguments, or of another tensor, that need not be read.

        `change` has row-major keyword arguments, which are valid values.
        """
        call = None if self.call is None else self.call.changed(change, view)
        if call is None:
            return self.changed_in_python(change, view)
        return Request(call=call, producer=self.producer, keeps_tensor=self.keeps_tensor)

    def changed_in_python(
        self, change: Mapping[str, Any], view: OtherTensor | None = None
    ) -> Request:
        """Return the same as `changed`, without the C call."""
        fields = {name: value for name, value in self._fields.items() if name in _KEPT}
        # Both arguments select the set of rules.
        if not change.keys().isdisjoint({"rules", "target"}):
            fields.pop("rules", None)
        options = self.options.changed(change)
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
        """Whether the tensor has its own layout, without `shape=`, `strides=` or `offset=`."""
        return self.view is None or self.view.own is None

    @property
    def rare(self) -> RareOptions:
        """The options that few calls give."""
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
        """Whether maps have a type for the tensor, which `data_type=` fits."""
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
        """The box of a tiled map that has at most five entries."""
        box: tuple[int, ...] = self.facts.box_dim[: self.facts.box_count]
        return box

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
        return (self.options.lower if which == "lower" else self.options.upper)[::-1]

    @property
    def corner_range(self) -> range:
        """Valid values of one corner entry: the corners share 16 bits."""
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
    """Return the request of a map that C made of a tensor, from what the map keeps.

    The request keeps neither the map nor the tensor.
    """
    layout, fields = tensor_map._call
    options = _options_of(fields)
    # a moved map has no tensor, but the type of the tensor whose layout it has
    owner = tensor_map._producer if tensor_map._tensor is None else tensor_map._tensor
    producer = name_of(owner if isinstance(owner, type) else type(owner))
    known = tensor_map._target  # as given, or a GPU's ordinal, or None
    target = driver.device_target(known) if type(known) is int else known
    return Request(
        kind=KINDS[tensor_map._numbers[0]],
        options=options,
        view=described(TensorView(0, *check_layout(layout), producer), options.rare),
        address=tensor_map._address,
        target=DEFAULT_TARGET if target is None else target,
    )


def with_facts_in_c(request: Request, tensor_map: Any) -> Request:
    """Return the accepted request of a map; where C can, it reads C's struct of the map.

    The request cannot be pickled then.
    """
    call = tensor_map._described(tensor_map)
    # C cuts numbers that do not fit its struct; then Python computes the facts.
    if call is not None and call.is_exact:
        request.facts = call
    return request


def _options_of(fields: tuple[Any, ...]) -> Options:
    """Return the options of a call that C has read."""
    return Options._make((*fields[:-1], RareOptions(*fields[-1])))


def in_bytes(bits: Number) -> Number:
    """Return bits as bytes; a Fraction if the bytes are not whole."""
    return bits // 8 if bits % 8 == 0 else Fraction(bits) / 8


# -- from a tensor to the driver's layout ----------------------------------------------------------


def described(own: TensorView, rare: RareOptions) -> TensorView:
    """Return the view that `shape=`, `strides=` and `offset=` describe, if they can be read."""
    if rare.shape is None and rare.strides is None and not rare.offset:
        return own
    shape, strides = own.shape if rare.shape is None else rare.shape, rare.strides
    if strides is None:
        strides = own.strides if rare.shape is None else omitted_strides(own, shape)[0]
    return own.as_strided(shape, strides, rare.offset * own.dtype.itemsize_bits // 8)


def omitted_strides(view: TensorView, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return what strides may be meant for a shape without them: the tensor's, or row-major."""
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

    Extents count values of the map's type: where those are smaller than an element of the tensor
    (packed types) the innermost extent grows, and need not come out whole.

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


def ragged(a: EncodeArguments, dim: int) -> EncodeArguments:
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
