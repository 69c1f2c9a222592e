"""Options that many commands share, and functions that write results as text, JSON or HTML."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tma_dlpack.cli.table import EXIT_NOTHING, EXIT_OK, EXIT_REFUSED, Option, option, wrong_word
from tma_dlpack.tables.targets import TARGETS

if TYPE_CHECKING:
    import argparse

    from tma_dlpack.tables.errors import Violation
    from tma_dlpack.tensor_map.map import TensorMap

STDOUT = Path("-")
BYTES_A_LINE = 32  # number of bytes in a line of a hex dump


# -- options --------------------------------------------------------------------------------------


def file(word: str) -> Path:
    """Read the name of a file; ``-`` means standard output."""
    if not word:
        raise wrong_word("the name of the file is empty")
    return Path(word)


def to_file(name: str, about: str, short: str = "") -> Option:
    """Return an option for the name of a file that the command writes."""
    about = f"{about}; - is standard output"
    return option(name, about, short=short, type=file, metavar="FILE")


def out(about: str) -> Option:
    """Return the option ``-o FILE``, ``--out FILE``."""
    return to_file("--out", about, short="-o")


def html(what: str) -> Option:
    """Return the option ``--html FILE``."""
    return to_file("--html", f"also write the {what} as HTML")


def target(about: str) -> Option:
    """Return the option ``--target``."""
    about = f"{about} {', '.join(TARGETS)}; default sm_90"
    return option("--target", about, default="sm_90", values=TARGETS)


#: The option ``--json``, which makes `show` write JSON.
JSON = option("--json", "print the result as JSON, not as text", action="store_true")


# -- words of options -----------------------------------------------------------------------------


def integers(word: str) -> tuple[int, ...]:
    """Read integers that commas or letters `x` separate; ignore a final comma.

    >>> integers("(64,)"), integers("128x64"), integers("0x10,-1")
    ((64,), (128, 64), (16, -1))
    """
    # The x of a hexadecimal number, such as 0x10, is not a separator.
    parts = re.split(r",|(?<=\d)(?<!\b0)x", word.strip("()[] ").removesuffix(","))
    try:
        return tuple(int(part, 0) for part in parts)
    except ValueError:
        message = f"{word!r} is not a list of integers; write one such as 128,64"
        raise wrong_word(message) from None


def integer(word: str) -> int:
    """Read one integer."""
    try:
        return int(word, 0)
    except ValueError:
        raise wrong_word(f"{word!r} is not an integer") from None


# -- writing --------------------------------------------------------------------------------------


def show(
    options: argparse.Namespace,
    result: object,
    words: object = None,
    page: Callable[[], str] | None = None,
    to: Path | TextIO = STDOUT,
) -> None:
    """Write a result to `to`.

    With ``--json``, write the result as JSON. Without ``--json``, write `words`, or
    ``str(result)`` if `words` is None. With ``--html``, also write the HTML that `page` returns. If
    the HTML and the text would both go to standard output, write only the HTML.
    """
    page_to: Path | None = getattr(options, "html", None)
    # `page_to` is None without --html.
    if not page_to == to == STDOUT:
        write(to, as_json(result) if options.json else f"{result if words is None else words}\n")
    if page_to is not None and page is not None:
        from tma_dlpack import draw

        write(page_to, draw.page(f"tma_dlpack {options.command}", [page()]))


def write(target: Path | TextIO, text: str) -> None:
    """Write a text to a file, to standard output, or to a stream.

    Text to a terminal is coloured.
    """
    if isinstance(target, Path) and target != STDOUT:
        target.write_text(text, encoding="utf-8")
        return
    stream = sys.stdout if isinstance(target, Path) else target
    if is_coloured(stream):
        text = coloured(text)
    try:
        stream.write(text)
    except UnicodeEncodeError:  # the stream's encoding lacks a character of the text
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def as_json(value: Any) -> str:
    """Return a value as JSON with a final newline.

    If the value has a method `to_json`, the method makes the JSON.
    """
    import json

    own = getattr(value, "to_json", None)
    return (json.dumps(plain(value), indent=2) if own is None else own()) + "\n"


def plain(value: object) -> object:
    """Convert a value to the types that JSON has.

    An enum's member becomes its name, bytes become hex, and a dataclass becomes a dict of its
    public fields.

    >>> from tma_dlpack import TmaSwizzle
    >>> plain(TmaSwizzle.bytes128), plain((1, b"ab"))
    ('bytes128', [1, '6162'])
    """
    # This `if` comes before the `if` for int, because a member of an IntEnum is also an int.
    if isinstance(value, IntEnum):
        return value.name
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value):
        value = vars_of(value)
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(entry) for name, entry in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [plain(entry) for entry in value]
    return str(value)


def vars_of(value: Any) -> dict[str, object]:
    """Return {name: value} for the public fields of a dataclass; a property `ok` comes first."""
    names = [field.name for field in dataclasses.fields(value) if field.name[0] != "_"]
    names = ["ok"] * hasattr(value, "ok") + names
    return {name: getattr(value, name) for name in names}


def attributes(tensor_map: TensorMap) -> dict[str, object]:
    """Return a map's attributes for JSON.

    Lists with a name of the driver, such as `global_dim`, have the innermost dimension first. The
    lists `shape`, `box_sizes` and `elem_strides` are row-major.
    """
    from tma_dlpack.tensor_map import text

    return {
        "target": tensor_map.target.name,
        "global_address": tensor_map.global_address,
        **tensor_map.arguments._asdict(),
        "shape": tensor_map.shape,
        "box_sizes": tensor_map.box_sizes,
        "elem_strides": tensor_map.elem_strides,
        "tile": text.tile_line(tensor_map),
        "remarks": text.remarks(tensor_map, tensor_map.advice),
        "bytes": bytes(tensor_map),
    }


def hex_lines(data: bytes) -> Iterable[str]:
    """Yield the lines of a hex dump. A line has the offset of its first byte, and then 32 bytes.

    >>> next(iter(hex_lines(bytes(range(33)))))
    '  0  00010203 04050607 08090a0b 0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f'
    """
    for start in range(0, len(data), BYTES_A_LINE):
        yield f"{start:3d}  {data[start : start + BYTES_A_LINE].hex(' ', 4)}"


# -- errors ---------------------------------------------------------------------------------------


def failure(
    stream: TextIO, as_json_too: bool, message: str, violations: Sequence[Violation] = ()
) -> None:
    """Print an error.

    If `as_json_too` is True, write JSON to `stream`. Otherwise write text to standard error.
    """
    if as_json_too:
        write(stream, as_json({"ok": False, "error": message, "violations": violations}))
    else:
        from tma_dlpack.tables.coerce import printable

        write(sys.stderr, f"error: {printable(message)}\n")


def status_of(violations: Sequence[Violation]) -> int:
    """Return the exit status.

    The status is 2 if an argument could not be read, else 1 if a rule is broken, else 0.
    """
    if any(violation.is_unread for violation in violations):
        return EXIT_NOTHING
    return EXIT_REFUSED if violations else EXIT_OK


# -- colour ---------------------------------------------------------------------------------------

# Parameters of the escape sequence "ESC [ ... m" (ECMA-48, SGR).
_RED, _GREEN, _CYAN, _DIM, _BOLD = "31;1", "32;1", "36", "2", "1"
#: (pattern, colour). The pattern's first group gets the colour.
_COLOURS: tuple[tuple[str, str], ...] = (
    (r"^(error:)", _RED),
    (r"^(refused\b|FAILED\b|error\b)", _RED),
    (r"^(accepted\b|ok\b)", _GREEN),
    (r"^(usage|options|examples|exit status|[A-Z][a-z ,]+)(?=:$|: )", _BOLD),
    (r"^( +fix:)", _CYAN),
    (r"^( +(?:rule|source):.*)$", _DIM),
    (r"^(note:)", _DIM),
)


def is_coloured(stream: TextIO) -> bool:
    """Return whether text to a stream is coloured. By default, only text to a terminal is coloured.

    The environment variable NO_COLOR switches colours off. FORCE_COLOR switches colours on, unless
    NO_COLOR is set.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        stream.isatty() and os.environ.get("TERM") != "dumb"
    )


def coloured(text: str) -> str:
    r"""Return a command's output with escape sequences that make a terminal colour the output.

    >>> coloured("refused: 1 violation")
    '\x1b[31;1mrefused\x1b[0m: 1 violation'
    """
    for pattern, colour in _COLOURS:
        text = re.sub(pattern, f"\x1b[{colour}m\\1\x1b[0m", text, flags=re.MULTILINE)
    return text
