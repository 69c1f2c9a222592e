"""A log as streams: the lines of each process that names itself, without their prefixes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tma_dlpack.cli.explain.names import MULTI_WORD, STRONG, WEAK

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STAMP = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]?"
_PREFIX = re.compile(
    rf"(?:{_STAMP}|\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d[\d.,]*"
    r"|(?:INFO|WARN|WARNING|ERROR|DEBUG|FATAL|CRITICAL|std(?:err|out))\b:?[FP]?"
    r"|\[(?=[^\]\n]*[A-Za-z])[^\]\n]{1,80}\]:?|\[\d{1,4},\d{1,4}\]<std(?:err|out)>:?"
    r"|\((?=[^)\n]*[A-Za-z])(?=[^)\n]*(?:[\d_]|rank|pid))[^()\n]{1,80}\)"
    r"|[A-Za-z_][\w.-]{0,60}[ \t]*\|(?=[ \t])|\||\d{1,5}:(?=[ \t])|>|#(?=\s)|E(?=[ \t]{2}))[ \t]*"
)
_ARGUMENTS = STRONG.keys() | WEAK.keys()  # of a table, and nobody's name
_PROCESS = re.compile(
    r"(?:rank|pid|worker|engine|core|gpu|node|proc|device|\b[TDPE]P)[^\d\n]{0,12}\d|<std|\|"
    r"|^\d{1,5}:",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Stream:
    """What one process wrote: its text without prefixes, and the line of the log of each line."""

    process: str
    text: str
    lines: tuple[int, ...]


def streams_of(text: str) -> list[Stream]:
    r"""Split a log by the process that each line names; prefixes of lines are left out.

    >>> [s.text for s in streams_of("[rank0]: dim 3\n[rank1]: dim 2\n[rank0]: swizzle 3")]
    ['dim 3\nswizzle 3', 'dim 2']
    """
    if "\\n" in text and text.count("\\n") > text.count("\n"):
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    lines = _ANSI.sub("", text).replace("\xa0", " ").replace("\r\n", "\n").replace("\r", "\n")
    contents: dict[str, list[str]] = {}
    numbers: dict[str, list[int]] = {}
    for number, line in enumerate(lines.split("\n"), start=1):
        process, content = _split_prefix(line)
        contents.setdefault(process, []).append(content)
        numbers.setdefault(process, []).append(number)
    return [
        Stream(process, MULTI_WORD.sub(r"\1_\2", "\n".join(parts)), tuple(numbers[process]))
        for process, parts in contents.items()
    ]


def _split_prefix(line: str) -> tuple[str, str]:
    """Give the process that a line's prefix names, and the rest of the line."""
    at, process = len(line) - len(line.lstrip()), ""
    if line[at : at + 1].islower() and "|" not in line[:80]:
        return "", line[at:]  # as most lines of a printout are
    for _ in range(8):
        prefix = _PREFIX.match(line, at)
        if prefix is None or prefix[0].rstrip("| \t").replace("_", "").lower() in _ARGUMENTS:
            break
        if _PROCESS.search(prefix[0]):
            process += re.sub(_STAMP[3:-3], "", prefix[0]).strip()
        at = prefix.end()
    return process, line[at:]
