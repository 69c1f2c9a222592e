"""What a user wrote becomes a `Case`: words become enums and integers, innermost first.

What cannot be read becomes a Violation in `Case.unread`; nothing here raises.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from tma_dlpack.arguments import MapKind, driver_layout
from tma_dlpack.case import Case
from tma_dlpack.dlpack import TensorView, canonical_strides
from tma_dlpack.dtypes import data_type_of, row
from tma_dlpack.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
    parse,
)
from tma_dlpack.errors import Violation
from tma_dlpack.target import Target

__all__ = ["RULE_SETS", "make_case", "mirror_case"]

#: What `rules=` may be, by kind of map; the first is the default.
RULE_SETS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("libcu++", "driver"),
    "im2col": ("documented", "driver"),
    "im2col_wide": ("documented", "driver"),
}
MAX_ENTRIES = 64  # a list longer than any rank is refused before its entries are looked at

AnyEnum = TypeVar("AnyEnum", bound=IntEnum)


class _Reader:
    """Read arguments one by one, and keep what could not be read."""

    def __init__(self) -> None:
        self.unread: list[Violation] = []

    def refuse(self, argument: str, found: str, must: str, fix: str) -> None:
        self.unread.append(
            Violation(
                rule="ARGUMENT",
                argument=argument,
                found=found,
                limit=f"it must {must}",
                fix=fix,
                source="tma_dlpack: the type of the argument",
            )
        )

    def member(self, argument: str, enum: type[AnyEnum], value: object) -> AnyEnum | None:
        if type(value) is enum:
            return value
        try:
            return parse(enum, value)
        except (TypeError, ValueError) as error:
            said, _, choices = str(error).partition(": ")
            self.refuse(argument, f"{argument}={value!r}: {said}", f"be a {enum.__name__}", choices)
            return None

    def integer(self, argument: str, value: object) -> int | None:
        if type(value) is int:
            return value
        number = _index(value)
        if number is None:
            self.refuse(
                argument, f"{argument}={_short(value)}", "be an integer", "pass an int, such as 64"
            )
        return number

    def integers(self, argument: str, value: object) -> tuple[int, ...] | None:
        """Read a sequence of integers, in the order given."""
        entries = _entries(value)
        numbers = None if entries is None else tuple(map(_index, entries))
        if numbers is None or None in numbers:
            self.refuse(
                argument,
                f"{argument}={_short(value)}",
                f"be a sequence of at most {MAX_ENTRIES} integers",
                "pass a tuple such as (64, 64)",
            )
            return None
        return numbers  # type: ignore[return-value]

    def word(self, argument: str, value: object, choices: tuple[str, ...]) -> str:
        if isinstance(value, str) and value in choices:
            return value
        self.refuse(
            argument,
            f"{argument}={_short(value)}",
            f"be one of {', '.join(map(repr, choices))}",
            f"pass {argument}={choices[0]!r}",
        )
        return choices[0]


def _index(value: object) -> int | None:
    if type(value) is int:
        return value
    if isinstance(value, (bool, IntEnum)) or type(value).__name__ == "bool":  # numpy.bool too
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except Exception:  # an __index__ may raise anything
        return None


def _entries(value: object) -> list[object] | None:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return None
    try:
        entries = []
        for entry in value:
            entries.append(entry)
            if len(entries) > MAX_ENTRIES:
                return None
        return entries
    except Exception:  # an iterator may raise anything
        return None


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


def make_case(
    kind: MapKind,
    view: TensorView | None,
    given: Mapping[str, Any],
    target: Target,
    target_is_assumed: bool,
    unread: tuple[Violation, ...] = (),
) -> Case:
    """Read a `make_*` call on a tensor.

    Parameters
    ----------
    kind : MapKind
    view : TensorView or None
        The tensor; None where the tensor itself was refused, which `unread` then says.
    given : mapping
        The keyword arguments of the call, row-major.
    target : Target
    target_is_assumed : bool
        Whether nothing but habit says that it is the target.
    unread : tuple of Violation
        What was refused on the way here.
    """
    read = _Reader()
    rules = read.word("rules", given["rules"], RULE_SETS[kind])
    if kind != "tiled" and rules == "driver":
        rules = "measured" if target.has_model else "documented"
    asked = given["data_type"]
    asked_type = None if asked is None else read.member("data_type", TensorMapDataType, asked)
    fields: dict[str, Any] = {
        "interleave": read.member(
            "interleave_layout", TmaInterleaveLayout, given["interleave_layout"]
        ),
        "swizzle": read.member("swizzle", TmaSwizzle, given["swizzle"]),
        "l2_promotion": read.member("l2_fetch_size", TmaL2FetchSize, given["l2_fetch_size"]),
        "oob_fill": read.member("oobfill", TmaOobFill, given["oobfill"]),
    }
    if kind == "tiled":
        fields["box"] = _reversed(read.integers("box_sizes", given["box_sizes"]))
    else:
        fields |= _read_column(read, kind, given)
    rank = len(view.shape) if view is not None else 0
    if given["elem_strides"] is None:
        fields["elem_strides"] = (1,) * rank
    else:
        fields["elem_strides"] = _reversed(read.integers("elem_strides", given["elem_strides"]))
    if view is not None:
        data_type = asked_type if asked_type is not None else data_type_of(view.dtype)
        padded = data_type is not None and row(data_type).smem_chunk_bytes == 16
        if padded or fields["interleave"] is TmaInterleaveLayout.bytes32:
            strides = canonical_strides(view.shape, view.strides, view.dtype.itemsize_bits, 32)
            view = dataclasses.replace(view, strides=strides)
        fields |= _tensor_fields(view, data_type)
    return Case(
        kind=kind,
        rules=rules,
        target=target,
        target_is_assumed=target_is_assumed,
        view=view,
        asked_type=asked_type,
        rank=rank,
        unread=(*unread, *read.unread),
        **fields,
    )


def _tensor_fields(view: TensorView, data_type: TensorMapDataType | None) -> dict[str, Any]:
    dims, strides_bytes = driver_layout(view, data_type)
    return {
        "data_type": data_type,
        "address": view.address,
        "dims": dims,
        "strides_bytes": strides_bytes,
        "innermost_stride": view.strides[-1] if view.strides else 1,
    }


def _read_column(read: _Reader, kind: MapKind, given: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "channels": read.integer("channels_per_pixel", given["channels_per_pixel"]),
        "pixels": read.integer("pixels_per_column", given["pixels_per_column"]),
    }
    for which in ("lower", "upper"):
        if kind == "im2col":
            name = f"pixel_box_{which}_corner"
            fields[which] = _reversed(read.integers(name, given[name]))
        else:
            width = read.integer(f"{which}_corner_width", given[f"{which}_corner_width"])
            fields[which] = None if width is None else (width,)
    if kind == "im2col_wide":
        fields["mode"] = read.member("mode", TensorMapIm2ColWideMode, given["mode"])
    return fields


def _reversed(numbers: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if numbers is None else numbers[::-1]


def mirror_case(kind: MapKind, given: Mapping[str, Any], target: Target) -> Case:
    """Read a `driver_encode_*` call: the driver's words, innermost first.

    As in C, entries of an array past the rank are not read.
    """
    read = _Reader()
    rank = read.integer("tensor_rank", given["tensor_rank"]) or 0
    fields: dict[str, Any] = {
        "data_type": read.member("tensor_data_type", TensorMapDataType, given["tensor_data_type"]),
        "interleave": read.member("interleave", TmaInterleaveLayout, given["interleave"]),
        "swizzle": read.member("swizzle", TmaSwizzle, given["swizzle"]),
        "l2_promotion": read.member("l2_promotion", TmaL2FetchSize, given["l2_promotion"]),
        "oob_fill": read.member("oob_fill", TmaOobFill, given["oob_fill"]),
        "address": read.integer("global_address", given["global_address"]) or 0,
    }

    def array(name: str, count: int) -> tuple[int, ...] | None:
        numbers = read.integers(name, given[name])
        if numbers is not None and len(numbers) < count:
            read.refuse(
                name,
                f"{name} has {len(numbers)} entries",
                f"have {count} for rank {rank}",
                "give one entry per dimension, innermost first",
            )
            return None
        return None if numbers is None else numbers[:count]

    count = rank if 0 <= rank <= MAX_ENTRIES else 0
    dims = array("global_dim", count)
    strides = array("global_strides", max(0, count - 1))
    fields["elem_strides"] = array("element_strides", count)
    if kind == "tiled":
        fields["box"] = array("box_dim", count)
    else:
        fields["channels"] = read.integer("channels_per_pixel", given["channels_per_pixel"])
        fields["pixels"] = read.integer("pixels_per_column", given["pixels_per_column"])
    if kind == "im2col":
        for which in ("lower", "upper"):
            fields[which] = array(f"pixel_box_{which}_corner", max(0, count - 2))
    if kind == "im2col_wide":
        for which in ("lower", "upper"):
            name = f"pixel_box_{which}_corner_width"
            width = read.integer(name, given[name])
            fields[which] = None if width is None else (width,)
        fields["mode"] = read.member("mode", TensorMapIm2ColWideMode, given["mode"])
    return Case(
        kind=kind,
        rules="measured" if target.has_model else "documented",
        mirror=True,
        target=target,
        rank=rank,
        dims=dims or (),
        strides_bytes=strides or (),
        unread=tuple(read.unread),
        **fields,
    )
