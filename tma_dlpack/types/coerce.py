"""Integers, sequences of integers and words, from whatever a user passes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import IntEnum
from fractions import Fraction
from numbers import Integral, Real

__all__ = [
    "INTEGER_BITS",
    "MAX_ENTRIES",
    "bytes_of",
    "counted",
    "integer_of",
    "integers_of",
    "nearest_integer",
    "nearest_integers",
    "not_an_integer",
    "reusable",
    "shown",
    "text_of",
    "texts_of",
]

MAX_ENTRIES = 64  # a list longer than any rank is refused before its entries are looked at
MAX_SHOWN = 80  # characters of a value in a message
INTEGER_BITS = 512  # enough for any that is meant, and Python still writes products of them
INTEGER_END = 1 << INTEGER_BITS


def integer_of(value: object) -> int | None:
    """Give a value as an int; None for what is no integer, for bools and for members of enums."""
    if type(value) is int:
        return value if -INTEGER_END < value < INTEGER_END else None
    try:
        if isinstance(value, (bool, IntEnum)) or type(value).__name__ in ("bool", "bool_"):
            return None  # numpy.bool has either name
        number = operator.index(value)  # type: ignore[arg-type]
    except Exception:  # a TypeError, or what a tensor that is being traced raises
        return None
    return number if -INTEGER_END < number < INTEGER_END else None


def integers_of(value: object) -> tuple[int, ...] | None:
    """Give the integers of an ordered iterable, in its order; None if it is none of integers."""
    entries = _entries(value)
    if entries is None:
        return None
    numbers = [number for number in map(integer_of, entries) if number is not None]
    return tuple(numbers) if len(numbers) == len(entries) else None


def nearest_integer(value: object) -> int | None:
    """Give the integer that a value was meant to be, floats without a fraction included.

    Only for proposals: what was given stays refused.

    >>> nearest_integer(64.0), nearest_integer(64.5), nearest_integer(True)
    (64, None, None)
    """
    number = integer_of(value)
    try:
        if number is None and isinstance(value, Real) and not isinstance(value, Integral):
            number = integer_of(int(float(value))) if float(value).is_integer() else None
    except Exception:  # infinities, NaN, and the methods of a user's number
        return None
    return number


def nearest_integers(value: object, otherwise: int) -> tuple[int, ...] | None:
    """Give `nearest_integer` of each entry, or `otherwise`; None where no entry has any."""
    numbers = [nearest_integer(entry) for entry in _entries(value) or ()]
    if all(number is None for number in numbers):
        return None
    return tuple(otherwise if number is None else number for number in numbers)


def not_an_integer(value: object) -> str:
    """Name the first entry of a sequence that is no int, and its type; "" where there is none.

    >>> not_an_integer((16, 64.0))
    'entry 1 has type float'
    """
    for i, entry in enumerate(_entries(value) or ()):
        if integer_of(entry) is None:
            too_long = " of too many bits" if type(entry) is int else ""
            return f"entry {i} has type {type(entry).__name__}{too_long}"
    return ""


def _entries(value: object) -> tuple[object, ...] | None:
    """Give what an ordered iterable holds, if it is not longer than `MAX_ENTRIES`."""
    if isinstance(value, (str, bytes, bytearray, Mapping, Set)) or not isinstance(value, Iterable):
        return None
    try:
        entries = tuple(itertools.islice(value, MAX_ENTRIES + 1))
    except Exception:  # an array without dimensions, a tensor that is being traced
        return None
    return entries if len(entries) <= MAX_ENTRIES else None


def text_of(value: object) -> str | None:
    """Give the text of a str, a member of a str enum included; None of anything else."""
    return str.__str__(value) if isinstance(value, str) else None


def texts_of(value: object) -> tuple[str, ...] | None:
    """Give the strs of a collection; None if it is none of strs."""
    if isinstance(value, Set):
        value = sorted(map(str, value))
    entries = _entries(value)
    if entries is None:
        return None
    found = tuple(text for text in map(text_of, entries) if text is not None)
    return found if len(found) == len(entries) else None


def type_name(kind: type) -> str:
    """Give the name of a type."""
    return kind.__name__


def bytes_of(value: object) -> bytes | None:
    """Give a copy of what an object with a buffer holds; None if it has none."""
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except Exception:  # a buffer may be refused in any way
        return None


def shown(value: object) -> str:
    """Give what a message shows of a value: its repr, on one line."""
    if type(value) is list:
        value = tuple(value)  # so that what was kept as a tuple reads as what was given
    if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
        return f"an int of {value.bit_length()} bits"  # Python refuses to print 5000 digits
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a tensor whose data is gone, a list that holds a long int
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def counted(number: int | Fraction, unit: str) -> str:
    """Give a number with its unit, in the singular where it is 1.

    >>> counted(1, "byte"), counted(2, "entry"), counted(Fraction(3, 2), "byte")
    ('1 byte', '2 entries', '1.5 bytes')
    """
    text = str(number) if isinstance(number, int) else f"{float(number):.10g}"
    plural = f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"
    return f"{text} {unit if number == 1 else plural}"


def reusable(value: object) -> object:
    """Give an argument as it is now: lists are copied, and iterators are read."""
    if type(value) is list:
        return list(value)
    entries = _entries(value) if isinstance(value, Iterator) else None
    return value if entries is None else entries
