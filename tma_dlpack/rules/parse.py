"""What a user wrote becomes a `Case`: words become enums and integers, innermost first.

What cannot be read becomes a Violation in `Case.unread`. Nothing here raises, whatever the methods
of a user's objects do.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from tma_dlpack.dlpack import TensorView, canonical_strides
from tma_dlpack.encoding.arguments import MapKind, Number, alignment_bytes_of
from tma_dlpack.rules.driver_order import driver_layout
from tma_dlpack.rules.request import RULE_SETS, Case, set_of_rules
from tma_dlpack.types.coerce import (
    INTEGER_BITS,
    MAX_ENTRIES,
    counted,
    integer_of,
    integers_of,
    nearest_integer,
    nearest_integers,
    shown,
    text_of,
)
from tma_dlpack.types.dtypes import data_type_of, overrides_of
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
    parse,
)
from tma_dlpack.types.errors import Violation
from tma_dlpack.types.limits import MAX_RANK
from tma_dlpack.types.target import Target

__all__ = ["MIRROR_OPTIONS", "OPTIONS", "make_case", "mirror_case"]


AnyEnum = TypeVar("AnyEnum", bound=IntEnum)

_LAYOUT = ("elem_strides", "interleave_layout", "swizzle", "l2_fetch_size", "oobfill")
_MANNER = ("data_type", "rules", "target")
_COUNTS = ("channels_per_pixel", "pixels_per_column")
_CORNERS = ("pixel_box_lower_corner", "pixel_box_upper_corner")
_WIDTHS = ("lower_corner_width", "upper_corner_width")

#: The options of each verb, in the order of its signature.
OPTIONS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("box_sizes", *_LAYOUT, *_MANNER),
    "im2col": (*_CORNERS, *_COUNTS, *_LAYOUT, *_MANNER),
    "im2col_wide": (*_WIDTHS, *_COUNTS, *_LAYOUT, "mode", *_MANNER),
}

_BARE = ("tensor_data_type", "tensor_rank", "global_address", "global_dim", "global_strides")
_PIXELS = ("channels_per_pixel", "pixels_per_column", "element_strides", "interleave")
_ENUMS = ("swizzle", "l2_promotion", "oob_fill")

#: The driver's arguments of each mirror, in the order of its signature.
MIRROR_OPTIONS: dict[MapKind, tuple[str, ...]] = {
    "tiled": (*_BARE, "box_dim", "element_strides", "interleave", *_ENUMS),
    "im2col": (*_BARE, *_CORNERS, *_PIXELS, *_ENUMS),
    "im2col_wide": (
        *_BARE,
        "pixel_box_lower_corner_width",
        "pixel_box_upper_corner_width",
        *_PIXELS,
        "mode",
        *_ENUMS,
    ),
}

#: What each argument of integers may look like.
_EXAMPLES = {
    "box_sizes": "(64, 64)",
    "elem_strides": "(1, 1)",
    "channels_per_pixel": "64",
    "pixels_per_column": "128",
    "pixel_box_lower_corner": "(-1, -1)",
    "pixel_box_upper_corner": "(-1, -1)",
    "lower_corner_width": "-1",
    "upper_corner_width": "-1",
    "pixel_box_lower_corner_width": "-1",
    "pixel_box_upper_corner_width": "-1",
    "tensor_rank": "2",
    "global_address": "0x7f0000000000",
    "global_dim": "(4096, 4096)",
    "global_strides": "(8192,)",
    "box_dim": "(64, 64)",
    "element_strides": "(1, 1)",
}


def make_case(
    kind: MapKind,
    view: TensorView | None,
    address: int,
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
        The tensor's layout, at address 0 and without owner, so that the case can be kept; None
        where the tensor itself was refused, which `unread` then says.
    address : int
        Where it lies.
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
    interleave = read.member("interleave_layout", TmaInterleaveLayout, given["interleave_layout"])
    swizzle = read.member("swizzle", TmaSwizzle, given["swizzle"])
    l2_promotion = read.member("l2_fetch_size", TmaL2FetchSize, given["l2_fetch_size"])
    oob_fill = read.member("oobfill", TmaOobFill, given["oobfill"])
    box: tuple[int, ...] = ()
    column: dict[str, Any] = {}
    if kind == "tiled":
        box = read.integers("box_sizes", given["box_sizes"], (1,) * rank)[::-1]
    else:
        column = _read_column(read, kind, given, rank)
    elem_strides = given["elem_strides"]
    if elem_strides is None:
        elem_strides = (1,) * rank
    else:
        elem_strides = read.integers("elem_strides", elem_strides)[::-1]
    data_type, dims, strides_bytes = _laid_out(view, asked_type, interleave)
    return Case(
        kind=kind,
        rules=set_of_rules(kind, rules, target),
        target=target,
        target_is_assumed=target_is_assumed,
        view=view,
        asked_type=asked_type,
        data_type=data_type,
        address=address,
        rank=rank,
        dims=dims,
        strides_bytes=strides_bytes,
        innermost_stride=view.strides[-1] if view is not None and rank else 1,
        box=box,
        elem_strides=elem_strides,
        interleave=interleave,
        swizzle=swizzle,
        l2_promotion=l2_promotion,
        oob_fill=oob_fill,
        unread=(*unread, *read.unread),
        instead=read.instead,
        **column,
    )


def _laid_out(
    view: TensorView | None, asked_type: TensorMapDataType | None, interleave: TmaInterleaveLayout
) -> tuple[TensorMapDataType | None, tuple[Number, ...], tuple[Number, ...]]:
    """Give the map's type, and the extents and byte strides of a tensor in it, innermost first."""
    if view is None:
        return None, (), ()
    data_type = data_type_of(view.dtype) if asked_type is None else asked_type
    if asked_type is not None and asked_type not in overrides_of(view.dtype):
        data_type = None
    align_bytes = alignment_bytes_of(interleave, data_type)
    if align_bytes != 16 and 1 in view.shape:  # judged strides of extent 1 are multiples of 16
        bits = view.dtype.itemsize_bits
        strides = canonical_strides(view.shape, view.strides, bits, align_bytes)
        view = dataclasses.replace(view, strides=strides)
    return data_type, *driver_layout(view, data_type)


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


def _close(word: str, names: Iterable[str]) -> str | None:
    """Give the name that a word was meant to be, whatever its case; None where none is close."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[close[0]] if close else None


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
            close = _close(word or "", enum.__members__)
            choices = ", ".join(f"{m.name} ({m.value})" for m in enum)
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be a {enum.__name__}, its name or its value",
                f"choose one of {choices}" + (f"; did you mean {close!r}?" if close else ""),
                close or enum(0).name,
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
            meant = nearest_integer(value)
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be an integer of at most {INTEGER_BITS} bits",
                f"pass an int, such as {_EXAMPLES[argument]}",
                instead if meant is None else meant,
            )
        return number or 0

    def integers(
        self, argument: str, value: object, instead: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """Read a sequence of integers, in the order given; none where it is no such sequence.

        Entries that can be read, or are whole numbers, stay as they are in what could be instead.
        """
        numbers = integers_of(value)
        if numbers is None:
            meant = nearest_integers(value, 0 if argument.startswith("pixel_box") else 1)
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be a sequence of at most {MAX_ENTRIES} integers of {INTEGER_BITS} bits",
                f"pass a tuple of ints, such as {_EXAMPLES[argument]}",
                instead if meant is None else meant,
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
