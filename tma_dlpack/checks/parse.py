"""Parse the arguments of a call into a `Request`: enums and integers, innermost first.

An unreadable argument becomes a Violation in `Request.unreadable`. Nothing here raises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import IntEnum
from fractions import Fraction
from typing import Any

from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.checks.reader import Reader
from tma_dlpack.checks.request import RULE_SETS, Request, set_of_rules
from tma_dlpack.dlpack import TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.arguments import (
    CORNERS,
    NO_SWIZZLE,
    EncodeArguments,
    MapKind,
    Number,
    alignment_bytes_of,
)
from tma_dlpack.tables.coerce import counted, integer_of
from tma_dlpack.tables.dtypes import DATA_TYPES, data_type_of, overrides_of
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import Violation
from tma_dlpack.tables.limits import MAX_RANK
from tma_dlpack.tables.targets import Target

#: The enums of every kind of map: our name, the driver's, the type.
_ENUMS: tuple[tuple[str, str, type[IntEnum]], ...] = (
    ("interleave_layout", "interleave", TmaInterleaveLayout),
    ("swizzle", "swizzle", TmaSwizzle),
    ("l2_fetch_size", "l2_promotion", TmaL2FetchSize),
    ("oobfill", "oob_fill", TmaOobFill),
)

_LAYOUT = ("elem_strides", "interleave_layout", "swizzle", "l2_fetch_size", "oobfill")
_COMMON = ("data_type", "rules", "allow", "shape", "strides", "offset", "target")
_COUNTS = ("channels_per_pixel", "pixels_per_column")
_WIDTHS = ("lower_corner_width", "upper_corner_width")

#: The options of each `make_*` function.
OPTIONS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("box_sizes", *_LAYOUT, *_COMMON, "split_inner", "ragged"),
    "im2col": (*CORNERS, *_COUNTS, *_LAYOUT, *_COMMON),
    "im2col_wide": (*_WIDTHS, *_COUNTS, *_LAYOUT, "mode", *_COMMON),
}

_TENSOR = ("tensor_data_type", "tensor_rank", "global_address", "global_dim", "global_strides")
_PIXELS = ("channels_per_pixel", "pixels_per_column", "element_strides", "interleave")
_OPTIONS = ("swizzle", "l2_promotion", "oob_fill")

#: The driver's arguments of each `driver_encode_*`, in the order of its signature.
DRIVER_ARGUMENTS: dict[MapKind, tuple[str, ...]] = {
    "tiled": (*_TENSOR, "box_dim", "element_strides", "interleave", *_OPTIONS),
    "im2col": (*_TENSOR, *CORNERS, *_PIXELS, *_OPTIONS),
    "im2col_wide": (
        *_TENSOR,
        "pixel_box_lower_corner_width",
        "pixel_box_upper_corner_width",
        *_PIXELS,
        "mode",
        *_OPTIONS,
    ),
}

_RULE_IDS = frozenset(rule.id for rule in RULES)


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
    read = Reader()
    read.target("target", given["target"])
    view = _as_described(read, view, given)
    if view is not None:
        address += view.offset_bytes
    rank = len(view.shape) if view is not None else 0
    rules = read.word("rules", given["rules"], RULE_SETS[kind])
    allowed = read.rule_ids("allow", given.get("allow", ()), ALLOWABLE, _RULE_IDS)
    asked_type = read.data_type("data_type", given["data_type"])
    enums: list[Any] = [read.member(name, enum, given[name]) for name, _, enum in _ENUMS]
    box = _read_box(read, kind, given)
    elem_strides = (1,) * rank
    if given["elem_strides"] is not None:
        elem_strides = read.integers("elem_strides", given["elem_strides"])[::-1]
    data_type = _type_of(view, asked_type)
    dims, strides_bytes = _layout_of(view, data_type, enums[0])
    return Request(
        EncodeArguments(
            kind,
            TensorMapDataType.UINT8 if data_type is None else data_type,
            dims,  # type: ignore[arg-type]  # rules ask for whole numbers
            strides_bytes,  # type: ignore[arg-type]
            elem_strides,
            box.pop("box_dim", ()),
            *enums,
            **box,
        ),
        address,
        rank,
        set_of_rules(kind, rules, target),
        target,
        target_is_assumed,
        view=view,
        innermost_stride=view.strides[-1] if view is not None and rank else 1,
        split_inner=read.flag("split_inner", given.get("split_inner", False)),
        ragged=read.optional_integer("ragged", given.get("ragged")),
        has_swizzle=given["swizzle"] is not NO_SWIZZLE,
        allowed=allowed,
        asked_type=asked_type,
        type_is_known=data_type is not None,
        unreadable=(*refused, *read.unreadable),
        proposals=read.proposals,
    )


def _as_described(
    read: Reader, view: TensorView | None, given: Mapping[str, Any]
) -> TensorView | None:
    """Give the view that `shape=`, `strides=` and `offset=` describe; None if they are unreadable.

    Omitted strides are the tensor's own or row-major ones; where both are possible and differ, they
    are refused as ambiguous.
    """
    shape, strides, offset = given.get("shape"), given.get("strides"), given.get("offset", 0)
    if view is None or (shape is None and strides is None and integer_of(offset) == 0):
        return view
    known = len(read.unreadable)
    new_shape = view.shape if shape is None else read.integers("shape", shape)
    new_strides = () if strides is None else read.integers("strides", strides)
    offset_bits = read.integer("offset", offset) * view.dtype.itemsize_bits
    if len(read.unreadable) > known:
        return None
    if strides is not None and len(new_strides) != len(new_shape):
        read.refuse(
            "strides",
            f"has {counted(len(new_strides), 'entry')}",
            f"have {len(new_shape)}, one per dimension of the shape",
            f"give one stride per dimension, in elements, for the shape {new_shape}",
        )
    elif strides is None:
        new_strides = view.strides if shape is None else _omitted_strides(read, view, new_shape)
    if offset_bits % 8:
        read.refuse(
            "offset",
            f"is {offset}, {counted(Fraction(offset_bits, 8), 'byte')}",
            "be a whole number of bytes",
            "use a multiple of 2 elements",
        )
    if len(read.unreadable) > known:
        return None
    return view.as_strided(new_shape, new_strides, offset_bits // 8)


def _omitted_strides(read: Reader, view: TensorView, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Give the strides for a shape whose strides are omitted; refuse if they are ambiguous."""
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
    read.refuse("strides", "is omitted", f"be given for the shape {shape}", fix)
    return ()


def _dense_strides(view: TensorView, shape: tuple[int, ...]) -> tuple[int, ...]:
    return canonical_strides(shape, row_major_strides(shape), view.dtype.itemsize_bits)


def _type_of(
    view: TensorView | None, asked_type: TensorMapDataType | None
) -> TensorMapDataType | None:
    """Give the map's data type; None if the dtype has none, or does not fit `data_type=`."""
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
    """Give the extents and byte strides of a tensor, innermost first."""
    if view is None:
        return (), ()
    align_bytes = alignment_bytes_of(interleave, data_type)
    if align_bytes != 16 and 1 in view.shape:  # the view's strides of extent 1 are multiples of 16
        bits = view.dtype.itemsize_bits
        strides = canonical_strides(view.shape, view.strides, bits, align_bytes)
        view = dataclasses.replace(view, strides=strides)
    return driver_layout(view, data_type)


def _read_box(read: Reader, kind: MapKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the box of a tiled map; for an im2col map the counts, the corners and the mode."""
    if kind == "tiled":
        return {"box_dim": read.integers("box_sizes", given["box_sizes"])[::-1]}
    fields: dict[str, Any] = {name: read.integer(name, given[name]) for name in _COUNTS}
    for which in ("lower", "upper"):
        corner = f"pixel_box_{which}_corner"
        if kind == "im2col":
            fields[corner] = read.integers(corner, given[corner])[::-1]
        else:
            name = f"{which}_corner_width"
            fields[corner] = (read.integer(name, given[name]),)
    if kind == "im2col_wide":
        fields["mode"] = read.member("mode", TensorMapIm2ColWideMode, given["mode"])
    return fields


def read_driver_call(kind: MapKind, given: Mapping[str, Any], target: Target) -> Request:
    """Parse a `driver_encode_*` call: the driver's names, innermost first.

    As in C, array entries past the rank are ignored.
    """
    read = Reader()
    rank = read.integer("tensor_rank", given["tensor_rank"])

    def array(name: str, fewer: int = 0) -> tuple[int, ...]:
        count = max(0, rank - fewer)
        least = count if rank <= MAX_RANK else 0  # a rank that is too large has its own rule
        return read.array(name, given[name], count, least)

    fields: dict[str, Any] = {
        "data_type": read.member("tensor_data_type", TensorMapDataType, given["tensor_data_type"]),
        **{name: read.member(name, enum, given[name]) for _, name, enum in _ENUMS},
        "global_dim": array("global_dim"),
        "global_strides": array("global_strides", fewer=1),
        "element_strides": array("element_strides"),
    }
    address = read.integer("global_address", given["global_address"])
    if kind == "tiled":
        fields["box_dim"] = array("box_dim")
    else:
        for name in _COUNTS:
            fields[name] = read.integer(name, given[name])
    for corner in CORNERS:
        if kind == "im2col":
            fields[corner] = array(corner, fewer=2)
        if kind == "im2col_wide":
            name = f"{corner}_width"
            fields[corner] = (read.integer(name, given[name]),)
    if kind == "im2col_wide":
        fields["mode"] = read.member("mode", TensorMapIm2ColWideMode, given["mode"])
    return Request(
        arguments=EncodeArguments(kind=kind, **fields),
        address=address,
        rank=rank,
        rules="measured" if target.has_model else "documented",
        is_driver_call=True,
        target=target,
        unreadable=tuple(read.unreadable),
    )
