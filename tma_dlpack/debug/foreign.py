"""Readers of untrusted input: files up to a size limit, and dumps of a map's bytes.

`explain`, `decode`, `lint` and `postmortem` use this module to read a file, a pipe, or standard
input (``-``). Input that begins with the first bytes of gzip or xz is decompressed.
`parse_dump` reads a map's 128 bytes in the forms of debuggers, xxd, hexdump, od and C sources.
"""

from __future__ import annotations

import bisect
import functools
import lzma
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from tma_dlpack.debug.core import coerce, counted, refusals, targets, tma

STDIN = "-"
_PIECE = 1 << 20  # bytes
# The first bytes of compressed files (RFC 1952; the .xz file format).
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_MOST_XZ_MEMORY = 1 << 28  # bytes; xz -9 needs 65 MiB

P = ParamSpec("P")
R = TypeVar("R")

# -- reading --------------------------------------------------------------------------------------


def is_there(word: str) -> bool:
    """Return whether a word is the path of a file or folder that exists."""
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # the name is too long, or contains a NUL character
        return False


def content(word: str, most_bytes: int, rule: str, *, cut: bool = False) -> bytes:
    """Return the decompressed bytes of a file, a pipe, or standard input (``-``).

    If there are more than `most_bytes` bytes, an error of the rule `rule` is raised. With `cut`,
    the first `most_bytes` bytes are returned instead.
    """
    found = bytearray()
    for piece in _pieces(word, rule):
        found += piece
        if len(found) > most_bytes:
            if not cut:
                raise _too_large(word, most_bytes, rule)
            break
    return bytes(found[:most_bytes])


@contextmanager
def plain_file(word: str, most_bytes: int, rule: str) -> Iterator[Path]:
    """Provide a path at which a file's decompressed bytes can be mapped into memory.

    For an uncompressed regular file of any size, the path is the file's own path. Other content
    is copied into a temporary file.
    """
    # A pipe can be opened only once, so its first bytes are not read here.
    if word != STDIN and stat.S_ISREG(Path(word).stat().st_mode):
        with Path(word).open("rb") as file:
            is_compressed = file.read(6).startswith((_GZIP, _XZ))
        if not is_compressed:
            yield Path(word)
            return
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_") as folder:
        name = "stdin" if word == STDIN else re.sub(r"\.(?:xz|gz)$", "", Path(word).name)
        copy = Path(folder) / name
        size_bytes = 0
        with copy.open("wb") as file:
            for piece in _pieces(word, rule):
                size_bytes += len(piece)
                if size_bytes > most_bytes:
                    raise _too_large(word, most_bytes, rule)
                file.write(piece)
        yield copy


def _pieces(word: str, rule: str) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in pieces of at most 1 MiB."""
    if word == STDIN:
        if hasattr(sys.stdin, "buffer"):
            yield from _decompressed(sys.stdin.buffer, "standard input", rule)
        return
    with Path(word).open("rb") as file:
        yield from _decompressed(file, word, rule)


def _decompressed(file: IO[bytes], name: str, rule: str) -> Iterator[bytes]:
    """Yield the decompressed bytes in pieces, so that the caller can stop at a limit."""
    first = _exactly(file, 6)
    if first.startswith(_GZIP):
        pieces = _gunzipped(first, file)
    elif first == _XZ:
        pieces = _unxzed(first, file)
    else:
        yield first
        while piece := file.read(_PIECE):
            yield piece
        return
    try:
        yield from pieces
    except (zlib.error, lzma.LZMAError, EOFError) as error:
        raise _refused(
            rule, f"{coerce.printable(name)} is compressed, and damaged or cut off"
        ) from error


def _exactly(file: IO[bytes], size_bytes: int) -> bytes:
    """Return `size_bytes` bytes, or fewer at the end of the file.

    A single read of a pipe may return fewer bytes, so this function reads until it has all bytes.
    """
    found = b""
    while len(found) < size_bytes and (piece := file.read(size_bytes - len(found))):
        found += piece
    return found


def _gunzipped(first: bytes, file: IO[bytes]) -> Iterator[bytes]:
    # wbits=31 is the gzip format. Zero bytes after a member are padding.
    unzip, data = zlib.decompressobj(wbits=31), first
    while data or (data := file.read(_PIECE)):
        yield unzip.decompress(data, _PIECE)
        data = unzip.unconsumed_tail
        if unzip.eof:
            data = unzip.unused_data.lstrip(b"\0") or file.read(_PIECE).lstrip(b"\0")
            if not data:
                return
            unzip = zlib.decompressobj(wbits=31)  # a file may have several members
    raise EOFError


def _unxzed(first: bytes, file: IO[bytes]) -> Iterator[bytes]:
    unzip, data = lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY), first
    while True:
        yield unzip.decompress(data, _PIECE)
        data = b""
        if unzip.eof:
            data = unzip.unused_data.lstrip(b"\0") or file.read(_PIECE).lstrip(b"\0")
            if not data:
                return
            unzip = lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY)
        elif unzip.needs_input and not (data := file.read(_PIECE)):
            raise EOFError


# -- refusals -------------------------------------------------------------------------------------


def _refused(rule: str, found: str, fix: str | None = None) -> tma.TmaPreconditionError:
    row = refusals.REFUSALS[rule]
    more = {} if fix is None else {"fix": fix}
    return row.error(str(row.on), found, **more)


def _too_large(word: str, most_bytes: int, rule: str) -> tma.TmaPreconditionError:
    name = "standard input" if word == STDIN else coerce.printable(word)
    size = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes:,} bytes"
    fix = f"pass the part that matters; at most {size} are read of a log, a pipe or an archive"
    return _refused(rule, f"{name} has more than {size} (decompressed)", fix)


def refusing(rule: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a reader of untrusted input so that an unexpected exception becomes a refusal."""

    def decorated(read: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(read)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return read(*args, **kwargs)
            except (tma.TmaError, OSError, MemoryError):
                raise
            except Exception as error:
                found = (
                    f"it cannot be read ({type(error).__name__}: {coerce.printable(str(error))})"
                )
                raise _refused(rule, found) from error

        return checked

    return decorated


# -- dumps of a map -------------------------------------------------------------------------------

# Maximum number of bytes that are read from a file. A map's longest dump has about 2000 bytes.
MAX_DUMP_BYTES = 1 << 16

#: The forms that `parse_dump` reads, for an error message.
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

# Maximum number of characters of a dump. The output of gdb's x/128xb has 1,500
# characters.
LONGEST_DUMP = 8_000
# A line of a dump: an optional label and a hex number, or 16 to 32 bytes without blanks.
_HEX_LINE = re.compile(
    r"(?:[^\n:{}=]{0,60}:)?[ \t]*(?:0[xX])?[0-9a-fA-F]{2,16}(?:[ \t,;:|].*)?|[0-9a-fA-F]{32,64}"
)
# The beginning of a line of a dump: four hex numbers, or 32 bytes without blanks.
_FOUR = re.compile(
    r"(?:[^\n:{}=]{0,60}:)?(?:[ \t,]*(?:0[xX])?[0-9a-fA-F]{2,16}(?![\w:.-])){4}|[0-9a-f]{64}"
)
# Parts of a text that may be a dump: a C list in braces, an assignment "opaque[3] = 0x12", and 256
# hex digits.
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
# hexdump and od write * in place of lines that equal the line above.
_FOLD, _MOST_LINES = "*", 1 << 12

# Number of words in a map's dump -> size of a word in bytes. A dump has between 128 words of 1 byte
# and 16 words of 8 bytes.
_WORD_BYTES = {targets.MAP_BYTES // width: width for width in (1, 2, 4, 8)}


def parse_dump(text: str) -> bytes | None:
    r"""Return the bytes that a dump shows, or None if the text is not a dump.

    Commas, labels that end in a colon, and text outside of the last braces are ignored. If the rest
    is 128, 64, 32 or 16 numbers, and at least one number begins with 0x, the numbers are read as
    little-endian words of 1, 2, 4 or 8 bytes. Otherwise, the rest is read as hex digits of any
    length.

    Examples
    --------
    >>> words = "0x7ffe10 <map>:\t0x7f120000\t0x00006310" + "\t0x00000000" * 30
    >>> parse_dump(words)[:8].hex()
    '0000127f10630000'
    >>> parse_dump("cuuint64_t opaque[16] = {0x63107f120000, " + "0, " * 15 + "};")[:8].hex()
    '0000127f10630000'
    >>> parse_dump("00:00:12:7f").hex()
    '0000127f'
    """
    if (at_offsets := _at_offsets(text)) is not None:
        return at_offsets
    # Lines of xxd are shortened first, because the characters at their ends may look like labels or
    # braces.
    text = _XXD.sub(r"\1", text)
    text = text[text.rfind("{") + 1 :].partition("}")[0]
    text = _REPEATS.sub(lambda m: " ".join([m[1]] * int(m[2])), text)
    text = _LABEL.sub(" ", text)
    tokens = re.sub(r"[{},;]", " ", text).split()
    return _words(tokens) or _digits(tokens)


def _at_offsets(text: str) -> bytes | None:
    r"""Return the bytes in lines of hexdump, od or xxd, or None for other texts.

    Each line has an offset, then bytes or words. The offsets are read in base 16, 8 or 10: the base
    in which each offset equals the number of bytes before it. The offsets also show how many lines
    a `*` replaces. Words after an offset without a colon are little-endian.

    >>> _at_offsets("0000000 0201 0403\n*\n0000010 55aa\n0000012").hex()
    '01020304010203040102030401020304aa55'
    """
    rows: list[tuple[str, bytes]] = []
    folded: list[int] = []  # indices in `rows` of the lines that follow a `*`
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
    """Return the joined bytes of the rows, or None if offsets in this base do not fit the bytes."""
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
    """Return the 128 bytes if the tokens are words of equal width; otherwise None."""
    if not any(token[:2] in ("0x", "0X") for token in tokens):
        return None
    numbers = [_NUMBER.fullmatch(token) for token in tokens]
    width = _WORD_BYTES.get(len(tokens))
    if width is None or not all(numbers):
        return None
    values = [int(n[1], 16 if n[1][:2] in ("0x", "0X") else 10) for n in numbers if n]
    if max(values) >> 8 * width:
        return None
    return b"".join(value.to_bytes(width, "little") for value in values)


def _digits(tokens: list[str]) -> bytes | None:
    """Return the bytes if the tokens are hex digits; otherwise None.

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


def find_dumps(text: str) -> Iterator[tuple[int, bytes]]:
    """Yield, for each different map in a text, the index of its first line and its bytes."""
    taken: set[bytes] = set()
    for line, candidate in _candidates(text):
        data = parse_dump(candidate)
        if data is not None and len(data) == targets.MAP_BYTES and data not in taken:
            taken.add(data)
            yield line, data


def is_dump_line(line: str) -> bool:
    """Return whether a line is probably part of a dump, because it begins with four hex numbers."""
    return len(line) < 400 and _FOUR.match(line) is not None


def _candidates(text: str) -> Iterator[tuple[int, str]]:
    """Yield, for each part that may be a dump, the index of its first line and its text."""
    # A short text may be a dump as a whole.
    if (len(text) <= LONGEST_DUMP and "repeats" not in text) or len(text) <= 1_000:
        yield 0, text
    ends = [m.start() for m in re.finditer("\n", text)]
    for pattern in (_DIGITS, _BRACES):
        for found in pattern.finditer(text):
            if pattern is _DIGITS or found[0].count("0x") >= 8:
                yield bisect.bisect_left(ends, found.start()), found[0]
    # Entries such as "opaque[0] = 0x12" may be a dump if there are as many entries as words in one
    # map.
    words = _ASSIGNED.findall(text[: 64 * LONGEST_DUMP])
    if len(words) in (16, 32, 128):
        yield 0, " ".join(words)
    # Consecutive lines of hex numbers may be a dump. The empty line at the end completes the last
    # group of lines.
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
    pasted = parse_dump(word)
    if pasted is not None and len(pasted) == targets.MAP_BYTES:
        return pasted
    text, fix = word, f"pass a dump: {FORMS}"
    if word == STDIN or is_there(word):
        data = content(word, MAX_DUMP_BYTES, "FILE_MAP", cut=True)
        if len(data) == targets.MAP_BYTES:
            return data
        found = f"{'at least ' * (len(data) == MAX_DUMP_BYTES)}{len(data)} bytes"
        text = data.decode("ascii", "replace")
        pasted = parse_dump(text)
        if pasted is not None and len(pasted) == targets.MAP_BYTES:
            return pasted
    else:
        found = f"{word[:60]!r}{'...' * (len(word) > 60)}, which is neither a dump nor a file"
    if any(line.strip() == _FOLD for line in text.splitlines()):
        fix = "it leaves equal lines out (*): print them all, with hexdump -v or od -v"
    if pasted is not None:
        found = counted(len(pasted), "byte")
    raise refusals.REFUSALS["FILE_MAP"].error("map", f"the map is {found}", fix=fix)
