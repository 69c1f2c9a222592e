"""Splitter of a log into the lines of each process, without colours and loggers' prefixes."""

from __future__ import annotations

import bisect
import json
import re
from itertools import accumulate

from tma_dlpack.debug import foreign
from tma_dlpack.debug.explain.words import STRONG, WEAK, WORD, meaning_of, normal

LONGEST_OBJECT = 1 << 16  # maximum number of characters of a line of JSON

# Escape sequences of terminals, such as "\x1b[31m".
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Digits other than 0 to 9 (full-width, Arabic, ...), which become `?`, the mark of masked digits.
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?"
# One prefix, such as "[rank0]:", "2026-01-02 03:04:05", "(Worker pid=12)" or "INFO". A line may
# have several prefixes. The alternatives are, in this order: brackets or a time; short times and
# mpirun's "[1,0]<stdout>"; glog; syslog; levels; parentheses; docker's "name |"; pytest's "E".
_PREFIX = re.compile(
    rf"(?:\[(?=[^\]\n]*[A-Za-z])[^\]\n]{{1,80}}\](?!\d):?|\[?{_TIME}\]?"
    r"|\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d[\d.,]*|\[\d{1,4},\d{1,4}\]<std(?:err|out)>:?"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d[\d.]* +(?P<thread>\d{1,10}) [^\s\]]{1,80}:\d{1,6}\]"  # glog
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,60} [\w./-]{1,60}"  # syslog
    r"(?:\[(?P<pid>\d{1,10})\])?:(?=\s)"
    r"|(?:INFO|WARN|WARNING|ERROR|DEBUG|FATAL|CRITICAL|std(?:err|out))\b:?(?: ?[FP]\b)?|##\[\w+\]"
    r"|\((?=[^)\n]*[A-Za-z])(?=[^)\n]*(?:[\d_]|rank|pid))[^()\n]{1,80}\)(?!\d)"
    r"|[A-Za-z_][\w.-]{0,60}[ \t]*\|(?=[ \t])|\||\d{1,5}:(?=[ \t])|>(?!\d)|#(?=\s)"
    r"|E(?=[ \t]{2}))[ \t]*"
)
# Names of arguments, which are never a prefix. In a table, the line "boxdim | 64" looks like a line
# of docker, which begins with the name of a container.
_ARGUMENTS = STRONG.keys() | WEAK.keys()
# A prefix that names a process, such as "rank 3", "pid=12" or "TP0".
_PROCESS = re.compile(
    r"(?:rank|pid|worker|engine|core|gpu|node|proc|device|\b[TDPE]P)[^\d\n]{0,12}\d|<std|\|"
    r"|^\d{1,5}:",
    re.IGNORECASE,
)


class Lines:
    """Lines that one process wrote, with their line numbers in the log.

    `process` is "" if the process is unknown.
    """

    numbered: list[tuple[int, str]]
    process: str
    text: str

    def __init__(self, numbered: list[tuple[int, str]], process: str = "") -> None:
        self.numbered, self.process = numbered, process
        self.text = "\n".join(line for _, line in numbered)
        self._starts = [0, *accumulate(len(line) + 1 for _, line in numbered)]

    def line_at(self, place: int) -> int:
        """Return the number, in the log, of the line that contains the character `text[place]`."""
        return self.numbered[bisect.bisect_right(self._starts, place) - 1][0]


def plain(text: str) -> str:
    r"""Return a text without colours, and with plain blanks and line ends.

    A log line that is a JSON object is replaced by the object's message. The escape sequences of a
    repr (``\n``) are replaced by the characters that they stand for.
    """
    if _OBJECT.match(text) or '\n{"' in text:
        text = "\n".join(map(_said, text.splitlines()))
    # If the text has more escaped line ends than real line ends, it is a repr.
    if "\\n" in text and text.count("\\n") > text.count("\n"):
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    text = _FOREIGN_DIGIT.sub("?", _ANSI.sub("", text)).replace("\r\n", "\n").replace("\r", "\n")
    return _unwrapped(text.replace("\u00a0", " "))


def _unwrapped(text: str) -> str:
    """Join lines that were cut at a terminal's width.

    A blank line replaces each line that was joined to the line before it, so that line numbers stay
    the same.

    A line counts as cut if it is as long as the longest line of the text, and if the next line is
    shorter and begins with neither a prefix nor a field.
    """
    lines = text.split("\n")
    width = max(map(len, lines))
    if width not in _WIDTHS:
        return text
    cut = [i for i, line in enumerate(lines[:-1]) if len(line) == width and _CUT_OFF.search(line)]
    # An unusual width counts only if two different lines have it.
    if width not in _USUAL_WIDTHS and len({lines[i] for i in cut}) < 2:
        return text
    for i in cut:
        rest, word = lines[i + 1], WORD.match(lines[i + 1])
        is_field = word and (word["heading"] or (word["name"] and meaning_of(word["name"])))
        goes_on = len(rest) < width and _GOES_ON.match(rest) and not _PREFIX.match(rest)
        if goes_on and not is_field and not foreign.is_dump_line(lines[i]):
            lines[i : i + 2] = lines[i] + rest, ""
    return "\n".join(lines)


# The end of a cut line, and the beginning of the line that continues it.
_CUT_OFF = re.compile(r"[\w,.(\[:=][ \t]*$")
_GOES_ON = re.compile(r"[\w,.()\[\]]")
_WIDTHS, _USUAL_WIDTHS = range(60, 301), (79, 80, 100, 120, 132)  # columns of a terminal

_OBJECT = re.compile(r"\s*\{\s*\"")
# Keys under which docker, logging libraries and journald write the message of a JSON log line.
_SAYS = ("log", "message", "msg", "text", "textPayload", "MESSAGE")


def _said(line: str) -> str:
    """Return the message of a log line that is a JSON object; return other lines unchanged."""
    if not _OBJECT.match(line) or len(line) > LONGEST_OBJECT:
        return line
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return line
    says = (parsed.get(key) for key in _SAYS) if isinstance(parsed, dict) else ()
    return next((said.rstrip("\n") for said in says if isinstance(said, str)), line)


def streams_of(numbered: list[tuple[int, str]]) -> list[Lines]:
    """Split numbered lines by the process that their prefixes name, and normalise the lines."""
    # Process -> the numbers of its lines, and the lines without prefixes.
    streams: dict[str, tuple[list[int], list[str]]] = {}
    for number, line in numbered:
        process, content = _split_prefix(line)
        numbers, lines = streams.setdefault(process, ([], []))
        numbers.append(number)
        lines.append(content)
    written = {process: normal("\n".join(lines)) for process, (_, lines) in streams.items()}
    return [
        Lines([*zip(numbers, written[process].split("\n"), strict=True)], process)
        for process, (numbers, _) in streams.items()
    ]


def _split_prefix(line: str) -> tuple[str, str]:
    """Return the process that a line's prefix names, and the rest of the line."""
    at, process = len(line) - len(line.lstrip()), ""
    # A fast path: most lines of a printout begin with a small letter and have no prefix.
    if line[at : at + 1].islower() and "|" not in line[:80]:
        return "", line[at:]
    for _ in range(8):
        prefix = _PREFIX.match(line, at)
        if prefix is None or prefix[0].rstrip("| \t").replace("_", "").lower() in _ARGUMENTS:
            break
        if named := prefix["thread"] or prefix["pid"]:
            process += named
        elif _PROCESS.search(prefix[0]):
            process += re.sub(_TIME, "", prefix[0]).strip()
        at = prefix.end()
    return process, line[at:]
