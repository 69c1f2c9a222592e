"""Reader of a map's 128 bytes in the forms of debuggers, xxd, hexdump, od and C sources."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

from tma_dlpack.debug import foreign
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.refusals import REFUSALS
from tma_dlpack.tables.targets import MAP_BYTES

# Maximum number of bytes that are read from a file. The longest dump of a map has about 2000.
MAX_DUMP_BYTES = 1 << 16

#: The forms that `parse` reads, for an error message.
FORMS = (
    "256 hex digits (also as xxd, hexdump or od -tx1 print them, or with colons), the words of a "
    "debugger (gdb x/32xw, x/16xg or x/128xb), a C list of opaque[16] {0x..., ...}"
)

# gdb's labels "0x7ffe10:" and "0x7ffe10 <symbol+8>:".
_LABEL = re.compile(r"(?<!\S)[^\s:{]+(?:\s+<[^\n]*?>)?:(?=\s|$)")
# xxd's line "00000000: 0000 127f  ....": an offset, bytes, and the bytes as characters.
_XXD = re.compile(r"^\s*[0-9a-fA-F]{6,}: (\S.*?)(?:  .*)?$", re.MULTILINE)
# gdb's "0x0 <repeats 15 times>".
_REPEATS = re.compile(r"\b(\w{1,20}) <repeats (\d{1,3}) times>")
# 2^64 - 1 has 20 digits.
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|\d{1,20})[uUlL]*")
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]+)")

# Maximum number of characters of a dump. The output of gdb's x/128xb has 1,500.
LONGEST_DUMP = 8_000
# A line of a dump: a label, then a hex number; or 16 to 32 bytes without blanks.
_HEX_LINE = re.compile(
    r"(?:[^\n:{}=]{0,60}:)?[ \t]*(?:0[xX])?[0-9a-fA-F]{2,16}(?:[ \t,;:|].*)?|[0-9a-fA-F]{32,64}"
)
# The beginning of a dump's line with four numbers or 32 bytes.
_FOUR = re.compile(
    r"(?:[^\n:{}=]{0,60}:)?(?:[ \t,]*(?:0[xX])?[0-9a-fA-F]{2,16}(?![\w:.-])){4}|[0-9a-f]{64}"
)
# A C list in braces; an assignment "opaque[3] = 0x12"; 256 hex digits.
_BRACES = re.compile(r"\{[^{}]{40,4000}\}")
_ASSIGNED = re.compile(r"(?<!\w)\w{1,40}\[[ \t]*\d{1,3}\][ \t]*=[ \t]*(0[xX][0-9a-fA-F]{1,16})\b")
_DIGITS = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{256}(?![0-9a-fA-F])")

#: A line of xxd (an offset with a colon, then bytes in order), a line of hexdump or od (an offset,
#: then bytes or words), or the last line, which has only an offset.
_OFFSET_LINE = re.compile(
    r"\s*(?P<offset>[0-9a-fA-F]{6,16})"
    r"(?::[ \t]+(?P<bytes>(?:[0-9a-fA-F]{2,32} ?)+)(?:[ \t].*)?"
    r"|(?:[ \t]+(?P<words>(?:[0-9a-fA-F]{2,16}(?:[ \t]+|$))+)(?:[|>].*)?)?)[ \t]*"
)
# hexdump and od write * for lines that equal the line before.
_FOLD, _MOST_LINES = "*", 1 << 12

# Number of words in a map's dump -> bytes of a word, from 128 words of 1 byte to 16 of 8 bytes.
_WIDTHS = {MAP_BYTES // width: width for width in (1, 2, 4, 8)}


def parse(text: str) -> bytes | None:
    r"""Return the bytes that a dump shows, or None if the text is not a dump.

    Labels that end in a colon, commas, and text outside of the last braces are ignored. If the rest
    is 128, 64, 32 or 16 numbers and at least one begins with 0x, the numbers are read as
    little-endian words of 1, 2, 4 or 8 bytes. Otherwise the rest is read as hex digits of any
    length.

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
    if (at_offsets := _at_offsets(text)) is not None:
        return at_offsets
    # First, because the characters at the end of a line may look like labels or braces.
    text = _XXD.sub(r"\1", text)
    text = text[text.rfind("{") + 1 :].partition("}")[0]
    text = _REPEATS.sub(lambda m: " ".join([m[1]] * int(m[2])), text)
    text = _LABEL.sub(" ", text)
    tokens = re.sub(r"[{},;]", " ", text).split()
    return _words(tokens) or _digits(tokens)


def _at_offsets(text: str) -> bytes | None:
    r"""Return the bytes in lines of hexdump, od or xxd, or None for other texts.

    Each line has an offset, then bytes or words. The offsets are read in the base in which they
    match the number of bytes before them. The offsets also show how many lines a `*` replaces.
    Words after an offset without a colon are little-endian.

    >>> _at_offsets("0000000 0201 0403\n*\n0000010 55aa\n0000012").hex()
    '01020304010203040102030401020304aa55'
    """
    rows: list[tuple[str, bytes]] = []
    folded: list[int] = []  # indices of the rows that follow a `*`
    for line in text.strip().splitlines():
        found = _OFFSET_LINE.fullmatch(line)
        if line.strip() == _FOLD and rows:
            folded.append(len(rows))
        elif found is None or len(rows) > _MOST_LINES:
            return None
        else:
            tokens = (found["bytes"] or found["words"] or "").split()
            if any(len(token) % 2 for token in tokens):
                return None
            step = 1 if found["bytes"] else -1
            parts = [bytes.fromhex(token)[::step] for token in tokens]
            rows.append((found["offset"], b"".join(parts)))
    if len(rows) < 2 or not rows[0][1]:
        return None
    # xxd and hexdump print offsets in base 16, od in base 8, and od -Ad in base 10.
    candidates = (_unfolded(rows, folded, base) for base in (16, 8, 10))
    return next((data for data in candidates if data is not None), None)


def _unfolded(rows: list[tuple[str, bytes]], folded: list[int], base: int) -> bytes | None:
    """Return the joined rows, or None if their offsets in this base do not match their sizes."""
    data = b""
    try:
        offsets = [int(offset, base) for offset, _ in rows]
    except ValueError:
        return None
    for number, (offset, (_, row)) in enumerate(zip(offsets, rows, strict=True)):
        missing = offset - offsets[0] - len(data)
        if missing and number in folded and 0 < missing < MAX_DUMP_BYTES:
            line = rows[number - 1][1]
            data += line * (missing // len(line))
            missing %= len(line)
        if missing:
            return None
        data += row
    # A `*` at the end replaces an unknown number of lines.
    return None if len(rows) in folded else data


def _words(tokens: list[str]) -> bytes | None:
    """Return the 128 bytes of words of equal width, or None for other tokens."""
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
    """Return the bytes of hex digits, or None for other tokens.

    Only the first token may begin with 0x.
    """
    found = [_HEX.fullmatch(part) for token in tokens for part in token.split(":")]
    if not found or not all(found):
        return None
    parts = [part[1] for part in found if part]
    prefixed = any(token[:2] in ("0x", "0X") for token in tokens[1:])
    if prefixed or any(len(part) % 2 for part in parts):
        return None
    return bytes.fromhex("".join(parts))


def find(text: str) -> Iterator[tuple[int, bytes]]:
    """Yield the line (from 0) and the bytes of each map in a text, without repeated maps."""
    taken: set[bytes] = set()
    for line, candidate in _candidates(text):
        data = parse(candidate)
        if data is not None and len(data) == MAP_BYTES and data not in taken:
            taken.add(data)
            yield line, data


def is_line(line: str) -> bool:
    """Return whether a line is probably part of a dump, because it begins with four hex numbers."""
    return len(line) < 400 and _FOUR.match(line) is not None


def _candidates(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line (from 0) and the text of each part that may be a dump."""
    # A short text may be a dump as a whole.
    if (len(text) <= LONGEST_DUMP and "repeats" not in text) or len(text) <= 1_000:
        yield 0, text
    ends = [m.start() for m in re.finditer("\n", text)]
    for pattern in (_DIGITS, _BRACES):
        for found in pattern.finditer(text):
            if pattern is _DIGITS or found[0].count("0x") >= 8:
                yield bisect.bisect_left(ends, found.start()), found[0]
    # Printed entries "opaque[0] = 0x12", if their number is the number of words of one map.
    words = _ASSIGNED.findall(text[: 64 * LONGEST_DUMP])
    if len(words) in (16, 32, 128):
        yield 0, " ".join(words)
    # Runs of lines in hex; the empty line at the end completes the last run.
    run: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""]):
        bare = line.strip()
        if len(line) < 400 and (_HEX_LINE.fullmatch(bare) or (run and bare == _FOLD)):
            run.append(line)
            continue
        joined = "\n".join(run)
        shortest = 60 if _FOLD in joined else 200
        if len(run) <= 130 and shortest <= len(joined) <= LONGEST_DUMP:
            yield number - len(run), joined
        run = []


def map_bytes(word: str) -> bytes:
    """Return the bytes of a map from a pasted dump, a file or standard input.

    A file or standard input contains a dump or 128 raw bytes.
    """
    pasted = parse(word)
    if pasted is not None and len(pasted) == MAP_BYTES:
        return pasted
    text, fix = word, f"pass a dump: {FORMS}"
    if word == foreign.STDIN or foreign.is_there(word):
        content = foreign.content(word, MAX_DUMP_BYTES, "FILE_MAP", cut=True)
        if len(content) == MAP_BYTES:
            return content
        found = f"{'at least ' * (len(content) == MAX_DUMP_BYTES)}{len(content)} bytes"
        text = content.decode("ascii", "replace")
        pasted = parse(text)
        if pasted is not None and len(pasted) == MAP_BYTES:
            return pasted
    else:
        found = f"{word[:60]!r}{'...' * (len(word) > 60)}, which is neither a dump nor a file"
    if any(line.strip() == _FOLD for line in text.splitlines()):
        fix = "it leaves equal lines out (*): print them all, with hexdump -v or od -v"
    if pasted is not None:
        found = counted(len(pasted), "byte")
    raise REFUSALS["FILE_MAP"].error("map", f"the map is {found}", fix=fix)
