"""Read the arguments of a call one by one, as enums and integers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeVar

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
from tma_dlpack.tables.enums import NAMES, TensorMapDataType
from tma_dlpack.tables.errors import Violation, wrong_argument
from tma_dlpack.tables.meanings import name_of_dtype, near_name, parse
from tma_dlpack.tables.targets import TARGETS

AnyEnum = TypeVar("AnyEnum", bound=IntEnum)

PER_DIMENSION, PER_SPATIAL = "one per dimension", "one per spatial dimension"


#: What an argument of integers may look like, and what each entry of it is for.
_INTEGERS: dict[str, tuple[str, str]] = {
    "box_sizes": ("(64, 64)", PER_DIMENSION),
    "elem_strides": ("(1, 1)", PER_DIMENSION),
    "shape": ("(4096, 64)", PER_DIMENSION),
    "strides": ("(64, 1)", f"{PER_DIMENSION}, in elements"),
    "offset": ("64", ""),
    "ragged": ("0", ""),
    "channels_per_pixel": ("64", ""),
    "pixels_per_column": ("128", ""),
    "pixel_box_lower_corner": ("(-1, -1)", PER_SPATIAL),
    "pixel_box_upper_corner": ("(-1, -1)", PER_SPATIAL),
    "lower_corner_width": ("-1", ""),
    "upper_corner_width": ("-1", ""),
    "pixel_box_lower_corner_width": ("-1", ""),
    "pixel_box_upper_corner_width": ("-1", ""),
    "tensor_rank": ("2", ""),
    "global_address": ("0x7f0000000000", ""),
    "global_dim": ("(4096, 4096)", PER_DIMENSION),
    "global_strides": ("(8192,)", "one per dimension but the innermost, in bytes"),
    "box_dim": ("(64, 64)", PER_DIMENSION),
    "element_strides": ("(1, 1)", PER_DIMENSION),
}


class Reader:
    """Reads arguments one by one; keeps violations for unreadable ones, and proposals for them.

    A proposal is what the argument means, read in another way. There is none where that is not
    clear: `Report.fixed` then is None, rather than arguments of another meaning.
    """

    def __init__(self) -> None:
        self.unreadable: list[Violation] = []
        self.proposals: dict[str, Any] = {}

    def refuse(
        self, argument: str, found: str, must: str, fix: str, proposal: object = None
    ) -> None:
        """Add the violation of an unreadable argument, and a value to propose unless it is None."""
        if proposal is not None:
            self.proposals[argument] = proposal
        self.unreadable.append(wrong_argument(argument, f"{argument} {found}", must, fix))

    def member(self, argument: str, enum: type[AnyEnum], value: object) -> AnyEnum:
        """Read a member, a name or number that means one; the member of value 0 if unreadable."""
        if type(value) is enum:
            return value
        if type(value) is str and value in NAMES[enum]:
            return NAMES[enum][value]  # type: ignore[return-value]
        word = text_of(value)
        if word is None and enum is TensorMapDataType:
            word = name_of_dtype(value)
        try:
            return parse(enum, word if word is not None else integer_of(value))
        except (TypeError, ValueError):
            near = near_name(enum, shown(value) if word is None else word)  # None, nan are shown
            choices = ", ".join(f"{m.name} ({m.value})" for m in enum)
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be a {enum.__name__}, its name or its value",
                f"choose one of {choices}" + (f"; did you mean {near!r}?" if near else ""),
                near,
            )
            return enum(0)

    def data_type(self, argument: str, value: object) -> TensorMapDataType | None:
        """Read a data type that may be omitted; None if omitted or unreadable."""
        if value is None:
            return None
        known = len(self.unreadable)
        data_type = self.member(argument, TensorMapDataType, value)
        return data_type if len(self.unreadable) == known else None

    def integer(self, argument: str, value: object) -> int:
        """Read an integer; 0 if unreadable."""
        number = integer_of(value)
        if number is None:
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be an int of at most {INTEGER_BITS} bits" if _is_long(value) else "be an int",
                f"pass an int, such as {_INTEGERS[argument][0]}",
                nearest_integer(value),
            )
        return number or 0

    def optional_integer(self, argument: str, value: object) -> int | None:
        """Read an integer that may be omitted; None if omitted or unreadable."""
        if value is None:
            return None
        known = len(self.unreadable)
        number = self.integer(argument, value)
        return number if len(self.unreadable) == known else None

    def flag(self, argument: str, value: object) -> bool:
        """Read a bool, or a NumPy bool; False if unreadable."""
        if value is True or value is False:
            return value
        if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        found, fix = f"is {shown(value)}", f"pass {argument}=True, or omit it"
        self.refuse(argument, found, "be True or False", fix, False)
        return False

    def integers(self, argument: str, value: object) -> tuple[int, ...]:
        """Read a sequence of integers, in the order given; an empty one if unreadable."""
        numbers = integers_of(value)
        if numbers is None:
            wrong, meant = not_an_integer(value), nearest_integers(value)
            example, entries = _INTEGERS[argument]
            hint = "" if meant is None else f"; did you mean {meant}?"
            self.refuse(
                argument,
                f"is {shown(value)}" + (f", where {wrong}" if wrong else ""),
                f"be a sequence of ints, {entries}",
                f"pass a tuple of ints, such as {example}{hint}",
                meant,
            )
            return ()
        return numbers

    def array(self, argument: str, value: object, count: int, least: int) -> tuple[int, ...]:
        """Read the first `count` entries of an array, as C does; it must have at least `least`."""
        known = len(self.unreadable)
        numbers = self.integers(argument, value)
        if len(numbers) < least and len(self.unreadable) == known:
            self.refuse(
                argument,
                f"has {counted(len(numbers), 'entry')}",
                f"have {counted(least, 'entry')}, for the rank that is given",
                "give one entry per dimension, innermost first",
            )
        return numbers[:count]

    def word(self, argument: str, value: object, choices: tuple[str, ...]) -> str:
        """Read one of a few words; the first of them if unreadable."""
        if type(value) is str and value in choices:
            return value
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
        return choices[0]

    def target(self, argument: str, value: object) -> None:
        """Propose the target that an unreadable one is near to: "SM90", 90, (9, 0)."""
        if value is None:
            return
        digits = "".join(re.findall(r"\d", shown(value)))
        if f"sm_{digits}" in TARGETS:
            self.proposals[argument] = f"sm_{digits}"

    def rule_ids(
        self, argument: str, value: object, choices: tuple[str, ...], known: frozenset[str]
    ) -> frozenset[str]:
        """Read a sequence of rule ids, each one of `choices`; all of them where one is not.

        `known` has the ids of all rules.
        """
        if type(value) is tuple and not value:
            return frozenset()
        ids = texts_of(value)
        if ids is None:
            given = text_of(value)
            self.refuse(
                argument,
                f"is {shown(value)}",
                "be a sequence of rule ids",
                f"pass {argument}=({(given or choices[0])!r},)",
                () if given is None else (given,),
            )
            return frozenset(choices)
        valid = tuple(name for name in ids if name in choices)
        wrong = next((name for name in ids if name not in choices), None)
        if wrong is None:
            return frozenset(valid)
        is_what = "also a rule of the driver" if wrong in known else "not a rule"
        close = None if wrong in known else _close(wrong, choices, 0.5)
        self.refuse(
            argument,
            f"names {wrong}, which is {is_what}",
            f"name only {', '.join(choices)}",
            f"omit {wrong}" + (f"; did you mean {close!r}?" if close else ""),
            (*valid, close) if close else valid,
        )
        return frozenset(choices)


def _is_long(value: object) -> bool:
    return issubclass(type(value), int) and value.bit_length() > INTEGER_BITS  # type: ignore[attr-defined]


def _close(word: str, names: Iterable[str], cutoff: float) -> str | None:
    """Return the name closest to a word, ignoring case; None if none is close."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None
