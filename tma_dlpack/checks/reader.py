"""Read the arguments of a call one by one, as enums and integers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.dlpack import TensorView
from tma_dlpack.tables.arguments import CORNERS, ENUMS, OPTION_NAMES, RARE_OPTIONS, MapKind, Option
from tma_dlpack.tables.coerce import (
    INTEGER_BITS,
    counted,
    integer_of,
    integers_of,
    nearest_integer,
    nearest_integers,
    not_an_integer,
    shown,
    text_of,
    texts_of,
)
from tma_dlpack.tables.enums import TensorMapIm2ColWideMode
from tma_dlpack.tables.errors import Violation, argument_violation
from tma_dlpack.tables.limits import INNER_BYTES, MAX_ELEM_STRIDE
from tma_dlpack.tables.meanings import choices_of, near_name, parse

AnyEnum = TypeVar("AnyEnum", bound=IntEnum)

_DEFAULTS = tuple(ENUMS[name](0) for name in OPTION_NAMES.values())
_RULE_IDS = frozenset(rule.id for rule in RULES)

# How many entries an argument has.
_PER_DIMENSION, _PER_SPATIAL = "one per dimension", "one per spatial dimension"
#: Argument of integers -> (an example, the meaning of its entries).
_INTEGERS: dict[str, tuple[str, str]] = {
    **{o.name: ("(1, 1)" if o.form == "integers" else "1", "") for o in RARE_OPTIONS},
    "box_sizes": ("(64, 64)", _PER_DIMENSION),
    "elem_strides": ("(1, 1)", _PER_DIMENSION),
    "shape": ("(4096, 64)", _PER_DIMENSION),
    "strides": ("(64, 1)", f"{_PER_DIMENSION}, in elements"),
    "offset": ("64", ""),
    "ragged": ("0", ""),
    "channels_per_pixel": ("64", ""),
    "pixels_per_column": ("128", ""),
    "pixel_box_lower_corner": ("(-1, -1)", _PER_SPATIAL),
    "pixel_box_upper_corner": ("(-1, -1)", _PER_SPATIAL),
    "lower_corner_width": ("-1", ""),
    "upper_corner_width": ("-1", ""),
    "pixel_box_lower_corner_width": ("-1", ""),
    "pixel_box_upper_corner_width": ("-1", ""),
    "tensor_rank": ("2", ""),
    "global_address": ("0x7f0000000000", ""),
    "global_dim": ("(4096, 4096)", _PER_DIMENSION),
    "global_strides": ("(8192,)", "one per dimension but the innermost, in bytes"),
    "box_dim": ("(64, 64)", _PER_DIMENSION),
    "element_strides": ("(1, 1)", _PER_DIMENSION),
}


#: Arguments whose example is adapted to the tensor.
_FITTED = {"box_sizes", "elem_strides", *CORNERS}


class Reader:
    """Reads the arguments of a call one by one; keeps violations for unreadable ones.

    Methods return None for an unreadable argument. `proposals` maps such an argument to a readable
    value with the same meaning. An ambiguous argument has no proposal, so `Report.fixed` is None
    instead of a call with another meaning.
    """

    def __init__(self, given: Mapping[str, Any], kind: MapKind = "tiled") -> None:
        self.given = given
        self.kind = kind
        self.view: TensorView | None = None  # the tensor, for examples that fit
        self.unreadable: list[Violation] = []
        self.proposals: dict[str, Any] = {}

    def refuse(
        self, argument: str, found: str, must: str, fix: str, proposal: object = None
    ) -> None:
        """Add the violation of an unreadable argument; keep `proposal` unless it is None."""
        if proposal is not None:
            self.proposals[argument] = proposal
        self.unreadable.append(argument_violation(argument, f"{argument} {found}", must, fix))

    def member(
        self, argument: str, enum: type[AnyEnum], default: AnyEnum | None = None
    ) -> AnyEnum | None:
        """Read a member, or a name or number that means one; the default if unreadable."""
        value = self.given[argument]
        member = parse(enum, value)
        if member is None:
            must = f"be a {enum.__name__}, its name or its value"
            near = near_name(enum, value)
            self.refuse(argument, f"is {shown(value)}", must, choices_of(enum, value), near)
            return default
        return member

    def enums(self, names: Iterable[str]) -> dict[str, Any]:
        """Read the options of every kind of map; the member of value 0 for an unreadable one."""
        rows = zip(OPTION_NAMES.values(), names, _DEFAULTS, strict=True)
        return {field: self.member(name, type(usual), usual) for field, name, usual in rows}

    def integer(self, argument: str) -> int | None:
        value = self.given[argument]
        number = integer_of(value)
        # ragged=True is a likely mistake, and True would pass as 1.
        if number is None and argument == "ragged" and type(value) is bool:
            must = "be the dimension that is cut into slices, an int"
            fix = "name the dimension: ragged=0 for the rows" if value else "omit ragged"
            self.refuse(argument, f"is {value}", must, fix)
        elif number is None:
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be an int of at most {INTEGER_BITS} bits" if _is_long(value) else "be an int",
                f"pass an int, such as {_INTEGERS[argument][0]}",
                nearest_integer(value),
            )
        return number

    def integers(self, argument: str) -> tuple[int, ...] | None:
        """Read a sequence of integers, in the order given."""
        value = self.given[argument]
        numbers = integers_of(value)
        if numbers is None:
            wrong, meant = not_an_integer(value), nearest_integers(value)
            example, entries = self._example(argument), _INTEGERS[argument][1]
            hint = "" if meant is None else f"; did you mean {meant}?"
            self.refuse(
                argument,
                f"is {shown(value)}" + (f", where {wrong}" if wrong else ""),
                f"be a sequence of ints, {entries}",
                f"pass a tuple of ints, such as {example}{hint}",
                meant,
            )
        return numbers

    def _example(self, argument: str) -> str:
        """Return example values that fit the tensor; for a single number, its likely meaning."""
        example, entries = _INTEGERS[argument]
        if self.view is None or not self.view.shape or argument not in _FITTED:
            return example
        rank, shape = len(self.view.shape), self.view.shape
        if entries == _PER_SPATIAL:
            return str((-1,) * max(0, rank - 2))
        if argument == "elem_strides":
            step = integer_of(self.given[argument])
            if step is None or not 1 <= step <= MAX_ELEM_STRIDE or self.kind == "tiled":
                return str((1,) * rank)
            return str((1, *(step,) * (rank - 2), 1))  # the stride of a convolution
        unit = max(1, INNER_BYTES * 8 // self.view.dtype.itemsize_bits)
        rows = (min(shape[-2], 64),) if rank > 1 else ()
        inner = max(unit, min(shape[-1], 64) // unit * unit)
        return str((*(1,) * (rank - 2), *rows, inner))

    def row_major(self, argument: str, fewer: int = 0) -> tuple[int, ...]:
        """Read a sequence; empty if unreadable. Rules check how long it is, not `fewer`."""
        return self.integers(argument) or ()

    def array(self, argument: str, count: int, least: int) -> tuple[int, ...]:
        """Read the first `count` entries of an array, as C does; it must have at least `least`."""
        numbers = self.integers(argument)
        if numbers is not None and len(numbers) < least:
            self.refuse(
                argument,
                f"has {counted(len(numbers), 'entry')}",
                f"have {counted(least, 'entry')}, for the rank that is given",
                "give one entry per dimension, innermost first",
            )
        return (numbers or ())[:count]

    def flag(self, argument: str) -> bool | None:
        """Read a bool, or a NumPy bool."""
        value = self.given[argument]
        if value is True or value is False:
            return value
        if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        found, fix = f"is {shown(value)}", f"pass {argument}=True, or omit it"
        meant = True if type(value) is int and value == 1 else None
        self.refuse(argument, found, "be True or False", fix, meant)
        return None

    def rare(self, option: Option) -> Any:
        """Read an option by its form; the default of one that is omitted or unreadable."""
        given = self.given.get(option.name, option.default)
        if given is option.default:
            return given
        by_form = {"flag": self.flag, "integer": self.integer, "integers": self.integers}
        read: Any = by_form[option.form](option.name)
        return option.default if read is None else read

    def word(self, argument: str, choices: tuple[str, ...]) -> str | None:
        """Read one of a few words."""
        value = self.given[argument]
        word = text_of(value)
        if word in choices:
            return word
        meant = choices[0] if value is None else _close(word or "", choices, 0.8)
        self.refuse(
            argument,
            f"is {shown(value)}",
            f"be one of {', '.join(map(repr, choices))}",
            f"pass {argument}={meant or choices[0]!r}",
            meant,
        )
        return None

    def rule_ids(self, argument: str) -> frozenset[str]:
        """Read ids of rules that may be switched off, or one; all of them if unreadable."""
        value, choices = self.given.get(argument, ()), ALLOWABLE
        if type(value) is tuple and not value:
            return frozenset()
        one = text_of(value)
        ids = texts_of(value) if one is None else (one,)
        if ids is None:
            fix = f"pass {argument}=({choices[0]!r},)"
            self.refuse(argument, f"is {shown(value)}", "be a sequence of rule ids", fix, ())
            return frozenset(choices)
        valid = tuple(name for name in ids if name in choices)
        wrong = next((name for name in ids if name not in choices), None)
        if wrong is None:
            return frozenset(valid)
        is_what = "also a rule of the driver" if wrong in _RULE_IDS else "not a rule"
        close = None if wrong in _RULE_IDS else _close(wrong, choices, 0.5)
        self.refuse(
            argument,
            f"names {wrong}, which is {is_what}",
            f"name only {', '.join(choices)}",
            f"omit {wrong}" + (f"; did you mean {close!r}?" if close else ""),
            (*valid, close) if close else valid,
        )
        return frozenset(choices)

    def tile(self, kind: MapKind, entries: Callable[..., tuple[int, ...]]) -> dict[str, Any]:
        """Read the box of a tiled map, or the counts, corners and mode of an im2col map.

        `entries` reads an array, row-major, that has `fewer` entries than the rank.
        """
        of_driver = "tensor_rank" in self.given
        if kind == "tiled":
            return {"box_sizes": entries("box_dim" if of_driver else "box_sizes")}
        fields: dict[str, Any] = {
            "channels": self.integer("channels_per_pixel") or 0,
            "pixels": self.integer("pixels_per_column") or 0,
        }
        for which in ("lower", "upper"):
            corner = f"pixel_box_{which}_corner"
            if kind == "im2col":
                fields[which] = entries(corner, fewer=2)
            else:
                width = f"{corner}_width" if of_driver else f"{which}_corner_width"
                fields[which] = (self.integer(width) or 0,)
        if kind == "im2col_wide":
            mode = TensorMapIm2ColWideMode.w
            fields["mode"] = self.member("mode", TensorMapIm2ColWideMode, mode)
        return fields


def _is_long(value: object) -> bool:
    return issubclass(type(value), int) and value.bit_length() > INTEGER_BITS  # type: ignore[attr-defined]


def _close(word: str, names: Iterable[str], cutoff: float) -> str | None:
    """Return the name closest to a word, ignoring case; None if none is close."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None
