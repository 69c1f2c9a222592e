"""Readers of untrusted files with a size limit, and the printer of untrusted text.

`explain`, `decode`, `lint` and `postmortem` use this module to read a file, a pipe, or standard
input (``-``). The input may be compressed with gzip or xz, which its first bytes show. The reports
of these tools and of `trace` use `printable`, which replaces control characters in untrusted text.
"""

from __future__ import annotations

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

from tma_dlpack.report.escape import printable as printable
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError
from tma_dlpack.tables.refusals import REFUSALS

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

    Content of more than `most_bytes` bytes is refused under `rule`; with `cut`, only its start is
    read.
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

    For an uncompressed regular file of any size, this is the file's own path. Other content is
    copied into a temporary file.
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
    """Decompress piece by piece, so that a decompression bomb stops at the caller's limit."""
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
        raise _refused(rule, f"{printable(name)} is compressed, and damaged or cut off") from error


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


def _refused(rule: str, found: str, fix: str | None = None) -> TmaPreconditionError:
    row = REFUSALS[rule]
    more = {} if fix is None else {"fix": fix}
    return row.error(str(row.on), found, **more)


def _too_large(word: str, most_bytes: int, rule: str) -> TmaPreconditionError:
    name = "standard input" if word == STDIN else printable(word)
    size = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes:,} bytes"
    fix = f"pass the part that matters; at most {size} are read of a log, a pipe or an archive"
    return _refused(rule, f"{name} has more than {size} (decompressed)", fix)


def refusing(rule: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a reader of foreign bytes so that an unexpected exception becomes a refusal."""

    def decorated(read: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(read)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return read(*args, **kwargs)
            except (TmaError, OSError, MemoryError):
                raise
            except Exception as error:
                found = f"it cannot be read ({type(error).__name__}: {printable(str(error))})"
                raise _refused(rule, found) from error

        return checked

    return decorated
