"""Functions that read integers, strings and bytes from any object, and write text for messages."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import IntEnum
from numbers import Integral, Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

MAX_ENTRIES = 64  # far more than any rank; only 65 entries of a longer list are read
MAX_REPR = 200  # characters
MAX_SHOWN = 80  # characters of a value in a message
INTEGER_BITS = 512  # valid values have far fewer bits; Python can print products of such integers
INTEGER_END = 1 << INTEGER_BITS
#: Characters that `printable` replaces: C0 and C1 controls except the newline, bidirectional
#: controls, invisible characters and surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]{1,16}|\d{1,18})")


def integer_of(value: object) -> int | None:
    """Return an integer as an int; None for a bool, an enum member or any other object."""
    if type(value) is int:
        return value if -INTEGER_END < value < INTEGER_END else None
    try:
        if isinstance(value, (bool, IntEnum)) or type(value).__name__ in ("bool", "bool_"):
            return None  # the name of NumPy's bool type depends on NumPy's version
        number = operator.index(value)  # type: ignore[arg-type]
    except Exception:  # TypeError, or any error that a traced tensor raises
        return None
    return number if -INTEGER_END < number < INTEGER_END else None


def address_of(value: object) -> int | None:
    """Return an integer as an address; None for any other object.

    Return None for a tensor too, because `integer_of` reads the value of a tensor with one element.
    """
    is_tensor = hasattr(type(value), "__dlpack__")
    return None if is_tensor else integer_of(value)


def integers_of(value: object) -> tuple[int, ...] | None:
    """Return the entries of an ordered iterable of integers; None for any other object."""
    entries = value if type(value) is tuple and len(value) <= MAX_ENTRIES else entries_of(value)
    if entries is None:
        return None
    numbers = tuple(map(integer_of, entries))
    return None if None in numbers else numbers  # type: ignore[return-value]


def nearest_integer(value: object) -> int | None:
    """Return the integer that a value equals; accept a float without a fraction, or a string.

    Use the integer only in the fix of a message, because calls refuse floats and strings.

    >>> nearest_integer(64.0), nearest_integer("64"), nearest_integer(64.5), nearest_integer(True)
    (64, 64, None, None)
    """
    number = integer_of(value)
    try:
        if number is None and isinstance(value, Real) and not isinstance(value, Integral):
            number = integer_of(int(float(value))) if float(value).is_integer() else None
    except Exception:  # raised by infinities, NaN and number classes of users
        return None
    text = text_of(value)
    if text is not None and _INTEGER.fullmatch(text.strip()):
        return int(text, 0) if "x" in text.lower() else int(text)
    return number


def nearest_integers(value: object) -> tuple[int, ...] | None:
    """Return `nearest_integer` of each entry of a sequence, or of each number in a string.

    Return None if `nearest_integer` of an entry is None.

    >>> nearest_integers((16, 64.0)), nearest_integers("64,64"), nearest_integers((None, 64))
    ((16, 64), (64, 64), None)
    """
    text = text_of(value)
    if text is not None:
        value = text.strip("()[] ").removesuffix(",").split(",")
    numbers = [nearest_integer(entry) for entry in entries_of(value) or ()]
    found = tuple(number for number in numbers if number is not None)
    return found if found and len(found) == len(numbers) else None


def not_an_integer(value: object) -> str:
    """Describe the first entry that is not an integer; return "" if all entries are integers.

    >>> not_an_integer((16, 64.0))
    'entry 1 has type float'
    """
    for i, entry in enumerate(entries_of(value) or ()):
        if integer_of(entry) is None:
            too_long = " of too many bits" if type(entry) is int else ""
            return f"entry {i} has type {type(entry).__name__}{too_long}"
    return ""


def entries_of(value: object) -> tuple[object, ...] | None:
    """Return the entries of an ordered iterable; None for other objects and long iterables.

    An iterable is long if it has more than `MAX_ENTRIES` entries.
    """
    try:
        if isinstance(value, (str, bytes, bytearray, Mapping, Set)):
            return None
        entries = tuple(itertools.islice(value, MAX_ENTRIES + 1))  # type: ignore[call-overload]
    except Exception:  # not an iterable, an array without dimensions, or a traced tensor
        return None
    return entries if len(entries) <= MAX_ENTRIES else None


def text_of(value: object) -> str | None:
    """Return the text of a string, or of a member of an enum of strings; else None."""
    if type(value) is str:
        return value
    return str.__str__(value) if issubclass(type(value), str) else None


def texts_of(value: object) -> tuple[str, ...] | None:
    """Return the strings of a sequence or set; None for any other object."""
    try:
        entries = sorted(map(str, value)) if isinstance(value, Set) else entries_of(value)
    except Exception:  # `__class__` or `__str__` of a user's object may raise any error
        return None
    if entries is None:
        return None
    found = tuple(text for text in map(text_of, entries) if text is not None)
    return found if len(found) == len(entries) else None


def bytes_of(value: object) -> bytes | None:
    """Return a copy of the bytes of an object with a buffer; None if it has no buffer."""
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except Exception:  # exporting a buffer may raise any error
        return None


def shown(value: object) -> str:
    """Return the text of a value in a message: its repr on one line, cut at `MAX_SHOWN`."""
    if type(value) is list:
        value = tuple(value)  # messages show a list as a tuple
    try:
        if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
            return f"an int of {value.bit_length()} bits"  # Python prints at most 4300 digits
        text = " ".join(repr(value).split())
    except Exception:  # repr fails for a tensor without data, and for a list with a very long int
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def printable(text: str) -> str:
    r"""Replace characters that move the cursor, are invisible, or reverse the direction of text.

    >>> printable("a\x1b[2Jb\u202ec\td\n")
    'a\\x1b[2Jb\\u202ec d\n'
    """
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    # Replace a tab by a blank, and any other character by its escape sequence in Python.
    code = ord(found[0])
    if code == 9:
        return " "
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def summary(words: str) -> str:
    """Return `words` as a repr: between < and >, on one line, cut at `MAX_REPR` characters.

    >>> summary("Report: refused"), len(summary("Report: " + "long " * 99))
    ('<Report: refused>', 200)
    """
    text = " ".join(words.split())
    return f"<{text}>" if len(text) <= MAX_REPR - 2 else f"<{text[: MAX_REPR - 5]}...>"


def aligned(table: Sequence[Sequence[object]], left: int = 0) -> list[str]:
    """Return the rows of a table as lines of text.

    The first `left` columns are aligned to the left, the other columns to the right.

    >>> aligned([("box", "MB"), ("64x8", 12)], left=1)
    ['box   MB', '64x8  12']
    """
    widths = [max(len(str(cell)) for cell in column) for column in zip(*table, strict=True)]
    cells = [f"{{:{'<' if n < left else '>'}{width}}}" for n, width in enumerate(widths)]
    return ["  ".join(cells).format(*map(str, row)) for row in table]


def counted(number: int | Fraction, unit: str) -> str:
    """Return a number and its unit as text; the unit is plural unless the number is 1.

    >>> from fractions import Fraction
    >>> counted(1, "byte"), counted(2, "entry"), counted(Fraction(3, 2), "byte")
    ('1 byte', '2 entries', '1.5 bytes')
    """
    text = number if isinstance(number, int) else f"{float(number):.10g}"
    if number == 1:
        return f"{text} {unit}"
    return f"{text} {unit[:-1]}ies" if unit[-1] == "y" else f"{text} {unit}s"


def reusable(value: object) -> object:
    """Return a value that can be read twice.

    A list or set is copied, an iterator becomes its entries, and any other value stays the same.
    """
    if value is None or type(value) is tuple:
        return value
    if type(value) in (list, set):
        return type(value)(value)  # type: ignore[call-arg]
    entries = entries_of(value) if issubclass(type(value), Iterator) else None
    return value if entries is None else entries


def rows(table: str) -> list[list[str]]:
    """Parse a table that is written as text, with one row per line.

    Bars separate the cells of a row. An indented line continues the row above.
    """
    lines = (" ".join(row.split()) for row in re.split(r"\n(?=\S)", table.strip()))
    return [[cell.strip() for cell in re.split(r"(?<= )\|(?= |$)", line)] for line in lines]
