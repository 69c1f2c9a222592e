"""Lines of a log: split by the process that wrote them, without prefixes of loggers and colours."""

from __future__ import annotations

import bisect
import json
import re
from itertools import accumulate

from tma_dlpack.debug import hexdump
from tma_dlpack.debug.explain.words import STRONG, WEAK, WORD, meaning_of, normal

LONGEST_OBJECT = 1 << 16  # characters of a line of JSON

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")  # full-width, Arabic, ...: read as a masked digit
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?"
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
_ARGUMENTS = STRONG.keys() | WEAK.keys()  # of a table, and nobody's name
_PROCESS = re.compile(
    r"(?:rank|pid|worker|engine|core|gpu|node|proc|device|\b[TDPE]P)[^\d\n]{0,12}\d|<std|\|"
    r"|^\d{1,5}:",
    re.IGNORECASE,
)


class Lines:
    """Lines with their numbers in the log, and the process that wrote them, if they name it."""

    numbered: list[tuple[int, str]]
    process: str
    text: str

    def __init__(self, numbered: list[tuple[int, str]], process: str = "") -> None:
        self.numbered, self.process = numbered, process
        self.text = "\n".join(line for _, line in numbered)
        self._starts = [0, *accumulate(len(line) + 1 for _, line in numbered)]

    def line_at(self, place: int) -> int:
        """Return the number of the line at a place of `text`."""
        return self.numbered[bisect.bisect_right(self._starts, place) - 1][0]


def plain(text: str) -> str:
    """Return a text without colours, with plain blanks and line ends; a repr as what it shows.

    Of log lines that are JSON objects, what they say.
    """
    if _OBJECT.match(text) or '\n{"' in text:
        text = "\n".join(map(_said, text.splitlines()))
    if "\\n" in text and text.count("\\n") > text.count("\n"):
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    text = _FOREIGN_DIGIT.sub("?", _ANSI.sub("", text)).replace("\r\n", "\n").replace("\r", "\n")
    return _unwrapped(text.replace("\u00a0", " "))


def _unwrapped(text: str) -> str:
    """Return a text with the lines whole that a terminal's width cut, and blank lines behind them.

    Such lines are the longest, each as long as the others; what follows is shorter, and begins with
    no prefix and no field.
    """
    lines = text.split("\n")
    width = max(map(len, lines))
    if width not in _WIDTHS:
        return text
    cut = [i for i, line in enumerate(lines[:-1]) if len(line) == width and _CUT_OFF.search(line)]
    if width not in _USUAL_WIDTHS and len({lines[i] for i in cut}) < 2:
        return text
    for i in cut:
        rest, word = lines[i + 1], WORD.match(lines[i + 1])
        is_field = word and (word["heading"] or (word["name"] and meaning_of(word["name"])))
        goes_on = len(rest) < width and _GOES_ON.match(rest) and not _PREFIX.match(rest)
        if goes_on and not is_field and not hexdump.is_line(lines[i]):
            lines[i : i + 2] = lines[i] + rest, ""
    return "\n".join(lines)


_CUT_OFF = re.compile(r"[\w,.(\[:=][ \t]*$")
_GOES_ON = re.compile(r"[\w,.()\[\]]")
_WIDTHS, _USUAL_WIDTHS = range(60, 301), (79, 80, 100, 120, 132)  # of terminals

_OBJECT = re.compile(r"\s*\{\s*\"")
_SAYS = ("log", "message", "msg", "text", "textPayload", "MESSAGE")


def _said(line: str) -> str:
    """Return the message of a log line that is a JSON object; another line unchanged."""
    if not _OBJECT.match(line) or len(line) > LONGEST_OBJECT:
        return line
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return line
    says = (parsed.get(key) for key in _SAYS) if isinstance(parsed, dict) else ()
    return next((said.rstrip("\n") for said in says if isinstance(said, str)), line)


def streams_of(numbered: list[tuple[int, str]]) -> list[Lines]:
    """Split numbered lines by the process that each names, and normalise them."""
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
    if line[at : at + 1].islower() and "|" not in line[:80]:
        return "", line[at:]  # as most lines of a printout are
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
