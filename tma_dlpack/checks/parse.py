"""Parse the arguments of a call into a `Request`: enums and integers, innermost first.

An unreadable argument becomes a Violation in `Request.unreadable`. Nothing here raises.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from tma_dlpack.checks.reader import Reader
from tma_dlpack.checks.request import PLACES, RULE_SETS, Request, Seen, set_of_rules
from tma_dlpack.dlpack import TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.abi import ALLOWABLE_ROWS, RareOptions
from tma_dlpack.tables.arguments import (
    NO_SWIZZLE,
    OPTION_NAMES,
    RARE_OPTIONS,
    EncodeArguments,
    MapKind,
    Number,
    alignment_bytes_of,
)
from tma_dlpack.tables.coerce import counted, shown
from tma_dlpack.tables.dtypes import DATA_TYPES, data_type_of, overrides_of
from tma_dlpack.tables.enums import (
    DATA_TYPE_MEMBERS,
    FILL_MEMBERS,
    INTERLEAVE_MEMBERS,
    L2_MEMBERS,
    MODE_MEMBERS,
    SWIZZLE_MEMBERS,
    TensorMapDataType,
    TmaInterleaveLayout,
)
from tma_dlpack.tables.errors import Violation, argument_violation
from tma_dlpack.tables.limits import MAX_RANK
from tma_dlpack.tables.targets import TARGETS, Target


def read_call(
    kind: MapKind,
    view: TensorView | None,
    address: int,
    given: Mapping[str, Any],
    target: Target,
    target_is_assumed: bool,
    refused: tuple[Violation, ...] = (),
) -> Request:
    """Read a `make_*` call on a tensor.

    Parameters
    ----------
    kind : MapKind
    view : TensorView or None
        The tensor's layout, at address 0 and without owner, so that the request can be kept; None
        where the tensor itself was refused, and `refused` says why.
    address : int
        Of the tensor's first element.
    given : mapping
        The keyword arguments of the call, row-major.
    target : Target
    target_is_assumed : bool
        Whether the target is a default because no driver could be asked.
    refused : tuple of Violation
        What was refused before the arguments were read.
    """
    read = Reader(given, kind)
    place = {} if view is None else {o.name: read.rare(o) for o in RARE_OPTIONS if o.name in _PLACE}
    view = read.view = _as_described(read, view, RareOptions(**place))
    if view is not None:
        address += view.offset_bytes
    rank = len(view.shape) if view is not None else 0
    choices = RULE_SETS[kind]
    rules = read.word("rules", choices) or choices[0]
    allowed = read.rule_ids("allow")
    asked_type = None
    if given["data_type"] is not None:
        asked_type = read.member("data_type", TensorMapDataType)
    enums = read.enums(OPTION_NAMES)
    tile = read.tile(kind, read.innermost_first)
    elem_strides = (1,) * rank
    if given["elem_strides"] is not None:
        elem_strides = read.innermost_first("elem_strides")
    if refused and refused[-1].argument == "target":  # "SM90", 90, (9, 0)
        digits = "".join(re.findall(r"\d", shown(given["target"])))
        if f"sm_{digits}" in TARGETS:
            read.proposals["target"] = f"sm_{digits}"
    arguments = EncodeArguments(
        kind, *_NO_LAYOUT, elem_strides, tile.pop("box_dim", ()), *enums, **tile
    )
    return Request(
        address=address,
        rules=set_of_rules(kind, rules, target),
        target=target,
        target_is_assumed=target_is_assumed,
        rare=RareOptions(
            **place, **{o.name: read.rare(o) for o in RARE_OPTIONS if o.name not in _PLACE}
        ),
        has_swizzle=given["swizzle"] is not NO_SWIZZLE,
        allowed=allowed,
        driver_rules=rules == "driver",
        unreadable=(*refused, *read.unreadable),
        proposals=read.proposals,
        **_of_tensor(arguments, view, asked_type),
    )


class Options(NamedTuple):
    """The options of a call that C has read: numbers, and arrays in the order of the call.

    `allowed` is a mask of rows; `asked_type` is -1, and `elem_strides` None, if not given.
    """

    driver_rules: bool
    asked_type: int
    interleave: int
    swizzle: int
    l2_promotion: int
    oob_fill: int
    mode: int
    has_swizzle: bool
    allowed: int
    elem_strides: tuple[int, ...] | None
    box_sizes: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    rare: RareOptions

    @classmethod
    def of(cls, fields: tuple[Any, ...]) -> Options:
        """Make them of what C returns."""
        return cls._make((*fields[:-1], RareOptions(*fields[-1])))


def request_of_options(
    kind: MapKind, view: TensorView, address: int, target: Target, o: Options
) -> Request:
    """Return the request that `read_call` reads of the arguments from which C read `o`."""
    rare = o.rare
    if rare.shape is not None or rare.strides is not None or rare.offset:
        shape, strides = rare.shape or view.shape, rare.strides or view.strides
        if rare.strides is None and rare.shape is not None:
            strides = _omitted_strides(Reader({}), view, shape)
        view = view.as_strided(shape, strides, rare.offset * view.dtype.itemsize_bits // 8)
        address += view.offset_bytes
    is_tiled = kind == "tiled"
    arguments = EncodeArguments(
        kind,
        *_NO_LAYOUT,
        (1,) * len(view.shape) if o.elem_strides is None else o.elem_strides[::-1],
        o.box_sizes[::-1] if is_tiled else (),
        INTERLEAVE_MEMBERS[o.interleave],
        SWIZZLE_MEMBERS[o.swizzle],
        L2_MEMBERS[o.l2_promotion],
        FILL_MEMBERS[o.oob_fill],
        () if is_tiled else o.lower[::-1],
        () if is_tiled else o.upper[::-1],
        o.channels,
        o.pixels,
        MODE_MEMBERS[o.mode],
    )
    return Request(
        address=address,
        rules=set_of_rules(kind, RULE_SETS[kind][o.driver_rules], target),
        target=target,
        allowed=_allowed(o.allowed),
        driver_rules=o.driver_rules,
        has_swizzle=o.has_swizzle,
        rare=rare,
        **_of_tensor(
            arguments, view, None if o.asked_type < 0 else DATA_TYPE_MEMBERS[o.asked_type]
        ),
    )


@cache
def _allowed(mask: int) -> frozenset[str]:
    return frozenset(rule for rule, row in ALLOWABLE_ROWS.items() if mask >> row & 1)


# -- the tensor's layout ---------------------------------------------------------------------------

#: Type, extents and strides of arguments that `_of_tensor` fills in.
_NO_LAYOUT: tuple[TensorMapDataType, tuple[int, ...], tuple[int, ...]]
_NO_LAYOUT = TensorMapDataType.UINT8, (), ()


def _of_tensor(
    arguments: EncodeArguments, view: TensorView | None, asked_type: TensorMapDataType | None
) -> dict[str, Any]:
    """Return the fields of a request that follow from its tensor; the options' are `arguments`."""
    data_type = _type_of(view, asked_type)
    dims, strides_bytes = _layout_of(view, data_type, arguments.interleave)
    return {
        "arguments": EncodeArguments(
            arguments.kind,
            TensorMapDataType.UINT8 if data_type is None else data_type,
            dims,  # type: ignore[arg-type]  # rules ask for whole numbers
            strides_bytes,  # type: ignore[arg-type]
            *arguments[4:],
        ),
        "view": view,
        "rank": 0 if view is None else len(view.shape),
        "innermost_stride": view.strides[-1] if view is not None and view.shape else 1,
        "asked_type": asked_type,
        "type_is_known": data_type is not None,
    }


#: The rare options that describe the tensor's memory in another way.
_PLACE = ("shape", "strides", "offset")


def _as_described(read: Reader, view: TensorView | None, rare: RareOptions) -> TensorView | None:
    """Return the view that `shape=`, `strides=` and `offset=` describe; None if unreadable.

    Omitted strides are the tensor's own or row-major ones; where both are possible and differ, they
    are refused as ambiguous.
    """
    if view is None or read.unreadable:
        return None
    shape, strides, offset = rare.shape, rare.strides, rare.offset
    if shape is None and strides is None and offset == 0:
        return view
    new_shape = view.shape if shape is None else shape
    if strides is None:
        strides = view.strides if shape is None else _omitted_strides(read, view, new_shape)
    elif len(strides) != len(new_shape):
        read.refuse(
            "strides",
            f"has {counted(len(strides), 'entry')}",
            f"have {len(new_shape)}, one per dimension of the shape",
            f"give one stride per dimension, in elements, for the shape {new_shape}",
        )
    offset_bits = offset * view.dtype.itemsize_bits
    if offset_bits % 8:
        read.refuse(
            "offset",
            f"is {offset}, {counted(Fraction(offset_bits, 8), 'byte')}",
            "be a whole number of bytes",
            "use a multiple of 2 elements",
        )
    if read.unreadable:
        return None
    return view.as_strided(new_shape, strides, offset_bits // 8)


def _omitted_strides(read: Reader, view: TensorView, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides for a shape whose strides are omitted; refuse if they are ambiguous."""
    row_major = _dense_strides(view, shape)
    choices = []
    if len(shape) == len(view.shape):
        choices.append(view.strides)
    if view.strides == _dense_strides(view, view.shape):
        choices.append(row_major)
    if len(set(choices)) == 1:
        return choices[0]
    if choices:
        fix = f"pass strides={view.strides}, which are the tensor's own, or {row_major}, row-major"
    else:
        fix = f"pass strides={row_major} for rows without gaps"
    read.unreadable.append(
        argument_violation(
            "strides", "strides are ambiguous", f"be given for the shape {shape}", fix
        )
    )
    return ()


def _dense_strides(view: TensorView, shape: tuple[int, ...]) -> tuple[int, ...]:
    return canonical_strides(shape, row_major_strides(shape), view.dtype.itemsize_bits)


def _type_of(
    view: TensorView | None, asked_type: TensorMapDataType | None
) -> TensorMapDataType | None:
    """Return the map's data type; None if the dtype has none, or does not fit `data_type=`."""
    if view is None:
        return None
    if asked_type is None:
        return data_type_of(view.dtype)
    return asked_type if asked_type in overrides_of(view.dtype) else None


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


def _layout_of(
    view: TensorView | None, data_type: TensorMapDataType | None, interleave: TmaInterleaveLayout
) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
    """Return the extents and byte strides of a tensor, innermost first."""
    if view is None:
        return (), ()
    if 1 in view.shape:  # its stride in the view is a multiple of 16; some maps want 32
        bits = view.dtype.itemsize_bits
        align_bytes = alignment_bytes_of(interleave, data_type)
        strides = canonical_strides(view.shape, view.strides, bits, align_bytes)
        view = dataclasses.replace(view, strides=strides)
    return driver_layout(view, data_type)


def read_driver_call(kind: MapKind, given: Mapping[str, Any], target: Target) -> Request:
    """Parse a `driver_encode_*` call: the driver's names, innermost first.

    As in C, array entries past the rank are ignored.
    """
    read = Reader(given)
    rank = read.integer("tensor_rank") or 0

    def array(name: str, fewer: int = 0) -> tuple[int, ...]:
        count = max(0, rank - fewer)
        least = count if rank <= MAX_RANK else 0  # a rank that is too large has its own rule
        return read.array(name, count, least)

    data_type = read.member("tensor_data_type", TensorMapDataType) or TensorMapDataType.UINT8
    enums = read.enums(OPTION_NAMES.values())
    global_dim = array("global_dim")
    global_strides = array("global_strides", fewer=1)
    element_strides = array("element_strides")
    address = read.integer("global_address") or 0
    tile = read.tile(kind, array)
    return Request(
        arguments=EncodeArguments(
            kind,
            data_type,
            global_dim,
            global_strides,
            element_strides,
            tile.pop("box_dim", ()),
            *enums,
            **tile,
        ),
        address=address,
        rank=rank,
        rules="measured" if target.has_model else "documented",
        is_driver_call=True,
        target=target,
        unreadable=tuple(read.unreadable),
    )


# -- another call ----------------------------------------------------------------------------------


#: Arguments that are lists of the driver's, or one entry of them.
_DRIVER_NAMES = {
    "box_sizes": "box_dim",
    "elem_strides": "element_strides",
    "pixel_box_lower_corner": "pixel_box_lower_corner",
    "pixel_box_upper_corner": "pixel_box_upper_corner",
    "lower_corner_width": "pixel_box_lower_corner",
    "upper_corner_width": "pixel_box_upper_corner",
}
#: Arguments that change neither extents nor strides.
_SAME_LAYOUT = {*_DRIVER_NAMES, "channels_per_pixel", "pixels_per_column", "swizzle", "allow"}


def changed(r: Request, change: Mapping[str, Any], view: Seen | None = None) -> Request:
    """Return a request with other arguments, or of another tensor, that need not be read.

    `change` has row-major keyword arguments, which are valid values.
    """
    arguments: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    seen = r.view
    if view is not None or not PLACES.isdisjoint(change):
        seen, fields["address"] = _moved(r, change, view)
    rank = r.rank if seen is None else len(seen.shape)
    for name, value in change.items():
        if name in OPTION_NAMES:
            arguments[OPTION_NAMES[name]] = value
            fields["has_swizzle"] = r.has_swizzle or name == "swizzle"
        elif name in _DRIVER_NAMES:
            if value is None:  # elem_strides, of 1
                value = (1,) * rank
            arguments[_DRIVER_NAMES[name]] = value[::-1] if type(value) is tuple else (value,)
        elif name == "allow":
            fields["allowed"] = frozenset(value)
        elif name == "rules":
            fields["driver_rules"] = value == "driver"
        elif name == "target":
            fields["target"] = Target.of(value)
        elif name == "data_type":
            fields["asked_type"] = value
        elif name in RareOptions._fields:
            fields["rare"] = fields.get("rare", r.rare)._replace(**{name: value})
        else:
            arguments[name] = value
    a = r.arguments._replace(**arguments)
    fields["arguments"] = a
    if seen is not None and (seen is not r.view or not _SAME_LAYOUT.issuperset(change)):
        fields |= _of_tensor(a, seen, fields.get("asked_type", r.asked_type))
    if "rules" in change or "target" in change:  # of which depends what `rules` means
        rules = RULE_SETS[r.kind][fields.get("driver_rules", r.driver_rules)]
        fields["rules"] = set_of_rules(r.kind, rules, fields.get("target", r.target))
    call = None if r.call is None else r.call.changed(change, view)
    return r.with_fields(call=call, **fields)


def _moved(r: Request, change: Mapping[str, Any], view: Seen | None) -> tuple[TensorView, int]:
    """Return another tensor, or the memory as `strides=` and `offset=` describe it, and where."""
    assert r.view is not None
    if view is not None:
        address, dtype, shape, strides = view
        strides = canonical_strides(shape, strides, dtype.itemsize_bits)
        return dataclasses.replace(r.view, shape=shape, strides=strides, dtype=dtype), address
    assert r.view.own is not None
    offset_bytes = r.view.offset_bytes
    if "offset" in change:
        offset_bytes = change["offset"] * r.view.dtype.itemsize_bits // 8
    own = r.view.own.at(r.address - r.view.offset_bytes)
    other = own.as_strided(r.view.shape, change.get("strides", r.view.strides), offset_bytes)
    return other.at(0), other.address
