"""The 128 bytes of a map as people paste them: what debuggers, xxd and C sources print."""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tables.refusals import REFUSALS

MAX_DUMP_BYTES = 1 << 16  # read of a file; the longest text form of a map has about 2000

#: What `parse` reads, for those who wrote something else.
FORMS = (
    "256 hex digits (also as xxd prints them, or with colons), the words of a debugger (gdb "
    "x/32xw, x/16xg or x/128xb), a C list of opaque[16] {0x..., ...}"
)

_LABEL = re.compile(r"(?<!\S)[^\s:{]+(?:\s+<[^\n]*?>)?:(?=\s|$)")  # addr: or addr <symbol+8>:
_XXD = re.compile(r"^\s*[0-9a-fA-F]{6,}: (\S.*?)(?:  .*)?$", re.MULTILINE)  # bytes, then characters
_REPEATS = re.compile(r"\b(\w{1,20}) <repeats (\d{1,3}) times>")
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|\d{1,20})[uUlL]*")  # 2^64 - 1 has 20 digits
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]+)")

LONGEST_DUMP = 8_000  # characters; x/128xb of gdb with its addresses takes 1,500
_HEX_LINE = re.compile(r"(?:[^\n:{}=]{0,60}:)?[ \t]*(?:0[xX])?[0-9a-fA-F]{2,16}(?:[ \t,;:|].*)?")
_FOUR = re.compile(
    r"(?:[^\n:{}=]{0,60}:)?(?:[ \t,]*(?:0[xX])?[0-9a-fA-F]{2,16}(?![\w:.-])){4}|[0-9a-f]{64}"
)
_BRACES = re.compile(r"\{[^{}]{40,4000}\}")
_ASSIGNED = re.compile(r"(?<!\w)\w{1,40}\[[ \t]*\d{1,3}\][ \t]*=[ \t]*(0[xX][0-9a-fA-F]{1,16})\b")
_DIGITS = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{256}(?![0-9a-fA-F])")

_WIDTHS = {MAP_BYTES // width: width for width in (1, 2, 4, 8)}  # of as many words


def parse(text: str) -> bytes | None:
    r"""Read the bytes that a text shows; None where it shows none.

    Labels that end in a colon, braces, commas, and what stands before the last brace are left out.
    If the rest is 128, 64, 32 or 16 numbers of which one begins with 0x, these are little-endian
    words of 1, 2, 4 or 8 bytes. Else it is hex digits, as many as there are.

    Examples
    --------
    >>> words = "0x7ffe10 <map>:\t0x7f120000\t0x00006310" + "\t0x00000000" * 30
    >>> parse(words)[:8].hex()
    '0000127f10630000'
    >>> parse("cuuint64_t opaque[16] = {0x63107f120000, " + "0, " * 15 + "};")[:8].hex()
    '0000127f10630000'
    >>> parse("00:00:12:7f").hex()
    '0000127f'
    """
    text = _XXD.sub(r"\1", text)  # first: its characters may be anything
    text = _REPEATS.sub(lambda m: " ".join([m[1]] * int(m[2])), text[text.rfind("{") + 1 :])
    text = _LABEL.sub(" ", text)
    tokens = re.sub(r"[{},;]", " ", text).split()
    return _words(tokens) or _digits(tokens)


def _words(tokens: list[str]) -> bytes | None:
    """Read numbers that together make one map."""
    if not any(token[:2] in ("0x", "0X") for token in tokens):
        return None
    numbers = [_NUMBER.fullmatch(token) for token in tokens]
    width = _WIDTHS.get(len(tokens))
    if width is None or not all(numbers):
        return None
    values = [int(n[1], 16 if n[1][:2] in ("0x", "0X") else 10) for n in numbers if n]
    if max(values) >> 8 * width:
        return None
    return b"".join(value.to_bytes(width, "little") for value in values)


def _digits(tokens: list[str]) -> bytes | None:
    """Read hex digits; 0x before the first token is ignored; later tokens with 0x are not bytes."""
    found = [_HEX.fullmatch(part) for token in tokens for part in token.split(":")]
    if not found or not all(found):
        return None
    parts = [part[1] for part in found if part]
    prefixed = any(token[:2] in ("0x", "0X") for token in tokens[1:])
    if prefixed or any(len(part) % 2 for part in parts):
        return None
    return bytes.fromhex("".join(parts))


def find(text: str) -> Iterator[tuple[int, bytes]]:
    """Return the line, from 0, and the bytes of each map that a text shows somewhere, each once."""
    taken: set[bytes] = set()
    for line, candidate in _candidates(text):
        data = parse(candidate)
        if data is not None and len(data) == MAP_BYTES and data not in taken:
            taken.add(data)
            yield line, data


def is_line(line: str) -> bool:
    """Return whether a line is likely to be one of a dump: four numbers in hex or more."""
    return len(line) < 400 and _FOUR.match(line) is not None


def _candidates(text: str) -> Iterator[tuple[int, str]]:
    """Return the parts of a text that may be a dump, and their lines."""
    if (len(text) <= LONGEST_DUMP and "repeats" not in text) or len(text) <= 1_000:
        yield 0, text
    ends = [m.start() for m in re.finditer("\n", text)]
    for pattern in (_DIGITS, _BRACES):
        for found in pattern.finditer(text):
            if pattern is _DIGITS or found[0].count("0x") >= 8:
                yield bisect.bisect_left(ends, found.start()), found[0]
    words = _ASSIGNED.findall(text[: 64 * LONGEST_DUMP])
    if len(words) in (16, 32, 128):
        yield 0, " ".join(words)
    run: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""]):
        if len(line) < 400 and _HEX_LINE.fullmatch(line.strip()):
            run.append(line)
            continue
        joined = "\n".join(run)
        if len(run) <= 130 and 200 <= len(joined) <= LONGEST_DUMP:
            yield number - len(run), joined
        run = []


def map_bytes(word: str) -> bytes:
    """Read a pasted dump, or a file or standard input that has a dump or 128 raw bytes."""
    pasted = parse(word)
    if pasted is None or len(pasted) != MAP_BYTES:
        content = _content(word)
        if content is None:
            found = f"{word[:60]!r}{'...' * (len(word) > 60)}, which is neither a dump nor a file"
        else:
            found = f"{'at least ' * (len(content) == MAX_DUMP_BYTES)}{len(content)} bytes"
            raw = len(content) == MAP_BYTES
            pasted = content if raw else parse(content.decode("ascii", "replace"))
        if pasted is not None:
            found = counted(len(pasted), "byte")
        if pasted is None or len(pasted) != MAP_BYTES:
            fix = f"pass a dump: {FORMS}"
            found = f"the map is {found}"
            raise REFUSALS["FILE_MAP"].error("map", found, fix=fix)
    return pasted


def _content(word: str) -> bytes | None:
    """Read at most `MAX_DUMP_BYTES` of a file, or of standard input; None if there is no file."""
    if word == "-":
        return sys.stdin.buffer.read(MAX_DUMP_BYTES)
    if not is_there(word):
        return None
    with Path(word).open("rb") as file:
        return file.read(MAX_DUMP_BYTES)  # /dev/zero never ends


def is_there(word: str) -> bool:
    """Return whether a word is the path of something."""
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # a name that is too long, or has a zero in it
        return False
