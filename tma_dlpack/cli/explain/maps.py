"""The 128 bytes of a map somewhere in a text."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

from tma_dlpack.cli import hexdump
from tma_dlpack.cli.explain.printed import PrintedArguments, arguments_of
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

LONGEST_DUMP = 8_000  # characters; x/128xb of gdb with its addresses takes 1,500

_HEX_LINE = re.compile(r"(?:[^\n:{}=]{0,60}:)?[ \t]*(?:0[xX])?[0-9a-fA-F]{2,16}(?:[ \t,;:|].*)?")
_BRACES = re.compile(r"\{[^{}]{40,4000}\}")
_ASSIGNED = re.compile(r"(?<!\w)\w{1,40}\[[ \t]*\d{1,3}\][ \t]*=[ \t]*(0[xX][0-9a-fA-F]{1,16})\b")
_DIGITS = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{256}(?![0-9a-fA-F])")


def maps_in(text: str, target: Target) -> Iterator[tuple[int, PrintedArguments | str]]:
    """Give the line and the arguments of each map in a text; or why its bytes are not a map."""
    taken: set[bytes] = set()
    for line, candidate in _candidates(text):
        data = hexdump.parse(candidate)
        if data is None or len(data) != MAP_BYTES or data in taken:
            continue
        taken.add(data)
        try:
            yield line, _arguments(TensorMap.from_bytes(data, target), line)
        except TmaError as error:
            yield line, f"128 bytes that are no map for {target}: {' '.join(str(error).split())}"


def _candidates(text: str) -> Iterator[tuple[int, str]]:
    """Give the parts of a text that may be a dump."""
    if (len(text) <= LONGEST_DUMP and "repeats" not in text) or len(text) <= 1_000:
        yield 1, text
    ends = [m.start() for m in re.finditer("\n", text)]
    for pattern in (_DIGITS, _BRACES):
        for found in pattern.finditer(text):
            if pattern is _DIGITS or found[0].count("0x") >= 8:
                yield bisect.bisect_left(ends, found.start()) + 1, found[0]
    words = _ASSIGNED.findall(text[: 64 * LONGEST_DUMP])
    if len(words) in (16, 32, 128):
        yield 1, " ".join(words)
    run: list[str] = []
    first = 1
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if len(line) < 400 and _HEX_LINE.fullmatch(line.strip()):
            first = first if run else number
            run.append(line)
            continue
        if 1 <= len(run) <= 130:
            joined = "\n".join(run)
            if 200 <= len(joined) <= LONGEST_DUMP:
                yield first, joined
        run = []


def _arguments(tensor_map: TensorMap, line: int) -> PrintedArguments:
    names = arguments_of(tensor_map.kind)
    return PrintedArguments(
        kind=tensor_map.kind,
        printed_by="a dump of the map's 128 bytes",
        lines=(line, line),
        **{name: getattr(tensor_map, name) for name in names},
    )
