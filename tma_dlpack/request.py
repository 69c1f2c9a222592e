"""What a user wrote becomes a `Case`: words become enums and integers, innermost first.

What cannot be read becomes a Violation in `Case.unread`. Nothing here raises, whatever the methods
of a user's objects do.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar

from tma_dlpack.arguments import MapKind, driver_layout
from tma_dlpack.case import RULE_SETS, Case, counted, needs_32_bytes, set_of_rules
from tma_dlpack.dlpack import TensorView, canonical_strides
from tma_dlpack.dtypes import data_type_of, overrides_of
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
from tma_dlpack.limits import MAX_RANK
from tma_dlpack.reading import MAX_ENTRIES, integer_of, integers_of, shown, text_of
from tma_dlpack.target import Target

__all__ = ["make_case", "mirror_case"]


AnyEnum = TypeVar("AnyEnum", bound=IntEnum)


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
    read.instead["target"] = None  # the tensor's own
    rank = len(view.shape) if view is not None else 0
    rules = read.word("rules", given["rules"], RULE_SETS[kind])
    asked_type = read.data_type("data_type", given["data_type"])
    fields: dict[str, Any] = {
        "interleave": read.member(
            "interleave_layout", TmaInterleaveLayout, given["interleave_layout"]
        ),
        "swizzle": read.member("swizzle", TmaSwizzle, given["swizzle"]),
        "l2_promotion": read.member("l2_fetch_size", TmaL2FetchSize, given["l2_fetch_size"]),
        "oob_fill": read.member("oobfill", TmaOobFill, given["oobfill"]),
    }
    if kind == "tiled":
        fields["box"] = read.integers("box_sizes", given["box_sizes"], (1,) * rank)[::-1]
    else:
        fields |= _read_column(read, kind, given, rank)
    if given["elem_strides"] is None:
        fields["elem_strides"] = (1,) * rank
    else:
        fields["elem_strides"] = read.integers("elem_strides", given["elem_strides"], None)[::-1]
    if view is not None:
        fields |= _tensor_fields(view, asked_type, fields["interleave"])
    return Case(
        kind=kind,
        rules=set_of_rules(kind, rules, target),
        target=target,
        target_is_assumed=target_is_assumed,
        asked_type=asked_type,
        rank=rank,
        unread=(*unread, *read.unread),
        instead=read.instead,
        **fields,
    )


def _tensor_fields(
    view: TensorView, asked_type: TensorMapDataType | None, interleave: TmaInterleaveLayout
) -> dict[str, Any]:
    data_type = data_type_of(view.dtype) if asked_type is None else asked_type
    if asked_type is not None and asked_type not in overrides_of(view.dtype):
        data_type = None
    described = _described(view)
    laid_out = described
    if needs_32_bytes(interleave, data_type) and 1 in view.shape:
        # the view has made strides of extent 1 multiples of 16 bytes; these must be of 32
        bits = view.dtype.itemsize_bits
        strides = canonical_strides(view.shape, view.strides, bits, align_bytes=32)
        laid_out = dataclasses.replace(described, strides=strides)
    dims, strides_bytes = driver_layout(laid_out, data_type)
    return {
        "view": described,
        "data_type": data_type,
        "address": view.address,
        "dims": dims,
        "strides_bytes": strides_bytes,
        "innermost_stride": view.strides[-1] if view.strides else 1,
    }


def _described(view: TensorView) -> TensorView:
    """Leave out the memory of a view, so that a case can be kept."""
    return TensorView(
        0, view.device, view.dtype, view.shape, view.strides, view.read_only, view.producer, None
    )


def _read_column(
    read: _Reader, kind: MapKind, given: Mapping[str, Any], rank: int
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "channels": read.integer("channels_per_pixel", given["channels_per_pixel"], 1),
        "pixels": read.integer("pixels_per_column", given["pixels_per_column"], 1),
    }
    for which in ("lower", "upper"):
        if kind == "im2col":
            name = f"pixel_box_{which}_corner"
            fields[which] = read.integers(name, given[name], (0,) * max(0, rank - 2))[::-1]
        else:
            name = f"{which}_corner_width"
            fields[which] = (read.integer(name, given[name], 0),)
    if kind == "im2col_wide":
        fields["mode"] = read.member("mode", TensorMapIm2ColWideMode, given["mode"])
    return fields


def mirror_case(kind: MapKind, given: Mapping[str, Any], target: Target) -> Case:
    """Read a `driver_encode_*` call: the driver's words, innermost first.

    As in C, entries of an array past the rank are not read.
    """
    read = _Reader()
    rank = read.integer("tensor_rank", given["tensor_rank"])

    def array(name: str, fewer: int = 0) -> tuple[int, ...]:
        count = max(0, rank - fewer)
        least = count if rank <= MAX_RANK else 0  # a rank that is too large has its own rule
        return read.array(name, given[name], count, least)

    fields: dict[str, Any] = {
        "data_type": read.member("tensor_data_type", TensorMapDataType, given["tensor_data_type"]),
        "interleave": read.member("interleave", TmaInterleaveLayout, given["interleave"]),
        "swizzle": read.member("swizzle", TmaSwizzle, given["swizzle"]),
        "l2_promotion": read.member("l2_promotion", TmaL2FetchSize, given["l2_promotion"]),
        "oob_fill": read.member("oob_fill", TmaOobFill, given["oob_fill"]),
        "address": read.integer("global_address", given["global_address"]),
        "dims": array("global_dim"),
        "strides_bytes": array("global_strides", fewer=1),
        "elem_strides": array("element_strides"),
    }
    if kind == "tiled":
        fields["box"] = array("box_dim")
    else:
        fields["channels"] = read.integer("channels_per_pixel", given["channels_per_pixel"])
        fields["pixels"] = read.integer("pixels_per_column", given["pixels_per_column"])
    for which in ("lower", "upper"):
        if kind == "im2col":
            fields[which] = array(f"pixel_box_{which}_corner", fewer=2)
        if kind == "im2col_wide":
            name = f"pixel_box_{which}_corner_width"
            fields[which] = (read.integer(name, given[name]),)
    if kind == "im2col_wide":
        fields["mode"] = read.member("mode", TensorMapIm2ColWideMode, given["mode"])
    return Case(
        kind=kind,
        rules="measured" if target.has_model else "documented",
        mirror=True,
        target=target,
        rank=rank,
        unread=tuple(read.unread),
        **fields,
    )


class _Reader:
    """Read arguments one by one; keep what could not be read, and what could be in its place."""

    def __init__(self) -> None:
        self.unread: list[Violation] = []
        self.instead: dict[str, Any] = {}

    def refuse(
        self, argument: str, found: str, must: str, fix: str, instead: object = None
    ) -> None:
        self.instead[argument] = instead
        self.unread.append(
            Violation(
                rule="ARGUMENT",
                argument=argument,
                found=f"{argument} {found}",
                limit=f"it must {must}",
                fix=fix,
                source="tma_dlpack: what the argument may be",
            )
        )

    def member(self, argument: str, enum: type[AnyEnum], value: object) -> AnyEnum:
        """Read a member, its name or its value; the one of value 0 where it is none of these."""
        if type(value) is enum:
            return value
        word = text_of(value)
        try:
            return parse(enum, word if word is not None else integer_of(value))
        except (TypeError, ValueError):
            close = difflib.get_close_matches(word or "", enum.__members__, n=1, cutoff=0.5)
            choices = ", ".join(f"{m.name} ({m.value})" for m in enum)
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be a {enum.__name__}, its name or its value",
                f"choose one of {choices}" + "".join(f"; did you mean {n!r}?" for n in close),
                close[0] if close else enum(0).name,
            )
            return enum(0)

    def data_type(self, argument: str, value: object) -> TensorMapDataType | None:
        """Read a data type that may be left out; None too where it is none."""
        if value is None:
            return None
        known = len(self.unread)
        data_type = self.member(argument, TensorMapDataType, value)
        if len(self.unread) == known:
            return data_type
        self.instead[argument] = None
        return None

    def integer(self, argument: str, value: object, instead: int = 0) -> int:
        """Read an integer; 0 where it is none."""
        number = integer_of(value)
        if number is None:
            must = "be an integer of 64 bits"
            self.refuse(argument, f"is {shown(value)}", must, "pass an int, such as 1", instead)
        return number or 0

    def integers(
        self, argument: str, value: object, instead: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """Read a sequence of integers, in the order given; none where it is no such sequence."""
        numbers = integers_of(value)
        if numbers is None:
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be a sequence of at most {MAX_ENTRIES} integers of 64 bits",
                "pass a tuple of ints, such as (64, 64)",
                instead,
            )
            return ()
        return numbers

    def array(self, argument: str, value: object, count: int, least: int) -> tuple[int, ...]:
        """Read the first `count` entries of an array, as C does; it must have `least`."""
        known = len(self.unread)
        numbers = self.integers(argument, value)
        if len(numbers) < least and len(self.unread) == known:
            self.refuse(
                argument,
                f"has {counted(len(numbers), 'entry')}",
                f"have {counted(least, 'entry')}, for the rank that is given",
                "give one entry per dimension, innermost first",
            )
        return numbers[:count]

    def word(self, argument: str, value: object, choices: tuple[str, ...]) -> str:
        """Read one of a few words; the first where it is none of them."""
        word = text_of(value)
        if word in choices:
            return word
        self.refuse(
            argument,
            f"is {shown(value)}",
            f"be one of {', '.join(map(repr, choices))}",
            f"pass {argument}={choices[0]!r}",
            choices[0],
        )
        return choices[0]
