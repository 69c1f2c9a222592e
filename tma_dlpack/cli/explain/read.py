"""From a text to fields: a log is split by process and searched for name [index] (unit) : value.

What cannot be read for certain is not read: an entry of a list, or a list.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from tma_dlpack.cli.explain.words import (
    ARRAYS,
    HEADING,
    MULTI_WORD,
    NAMED,
    STRONG,
    WEAK,
    Entries,
    meaning_of,
)

LONGEST_LIST = 600  # characters; five entries with types around them take fewer

# -- lines and processes --------------------------------------------------------------------------

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
_IN_NUMBER = re.compile("(?<=\\d)[\xa0\u2009\u202f](?=\\d)")  # a space that groups digits


class Lines:
    """Lines with their numbers in the log, and the process that wrote them, if they name it."""

    def __init__(self, numbered: list[tuple[int, str]], process: str = "") -> None:
        self.numbered, self.process = numbered, process
        self.text = "\n".join(line for _, line in numbered)
        self._starts = [0, *accumulate(len(line) + 1 for _, line in numbered)]

    def line_at(self, place: int) -> int:
        """Return the number of the line at a place of `text`."""
        return self.numbered[bisect.bisect_right(self._starts, place) - 1][0]


def streams_of(numbered: list[tuple[int, str]]) -> list[Lines]:
    """Split numbered lines by the process that each names; prefixes of lines are left out."""
    streams: dict[str, list[tuple[int, str]]] = {}
    for number, line in numbered:
        process, content = _split_prefix(line)
        content = MULTI_WORD.sub(r"\1_\2", content)
        streams.setdefault(process, []).append((number, content))
    return [Lines(lines, process) for process, lines in streams.items()]


def plain(text: str) -> str:
    """Return a text without colours, with plain blanks and line ends; a repr as what it shows."""
    if "\\n" in text and text.count("\\n") > text.count("\n"):
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    text = _IN_NUMBER.sub("_", _ANSI.sub("", text)).replace("\xa0", " ")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split_prefix(line: str) -> tuple[str, str]:
    """Return the process that a line's prefix names, and the rest of the line."""
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


# -- one value ------------------------------------------------------------------------------------


class Value(NamedTuple):
    """One printed value: numbers or a name; or why there is none.

    `fault` is "" or "unread" (masked, broken, with a unit), "address" (in place of a list), "torn"
    (no value of this argument), "cut" (the text ends) or "prose". An entry of `numbers` that cannot
    be read is None.
    """

    numbers: Entries = ()
    word: str = ""
    fault: str = ""
    end: int = 0
    style: str = ""  # the bracket, and what stands between the entries
    is_list: bool = False
    unit: str = ""


_NUMBER = r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|(?!0\d)[0-9]{1,24})[uUlL]{0,3}"
_ENDS = r"(?![\w*?#…%]|\.[\w.*…]|['’]\d)"  # a masked or grouped number goes on
_ONE = re.compile(_NUMBER + _ENDS)
_ROW = re.compile(rf"{_NUMBER}{_ENDS}(?:(?:[ \t]*,[ \t]*|[ \t]+){_NUMBER}{_ENDS})*")
_DASHED = re.compile(rf"(?:[ \t]*\n[ \t]*-[ \t]+{_NUMBER}(?=[ \t]*(?:\n|$))){{1,8}}")
_TIMES = re.compile(r"\d{1,10}(?:(?:[ \t][x×][ \t]|[x×])\d{1,10})+\b")
_WRAPPED = re.compile(r"<?[A-Za-z_][\w.:]*[ (]\s*(-?\d{1,24})\s*[)>]|<(?:[\w.]+):\s*(-?\d{1,24})>")
CAST = re.compile(r"\([A-Za-z_][\w: *]*\)[ \t]*(?=[-\d])")
_MEMBER = re.compile(r"<[A-Za-z_][\w.]*:[ \t]*(-?\d{1,5})>")
_WORD = re.compile(r"[A-Za-z_0-9][\w.:]*")
_BARE_ADDRESS = re.compile(r"(?=[0-9a-fA-F]*[a-fA-F]|0000)[0-9a-fA-F]{8,16}" + _ENDS)
_NULL = re.compile(r"\(nil\)|nullptr\b|NULL\b|None\b")
_NOT_AN_ADDRESS = re.compile(  # but what people write for one
    r"(?:0x)?(?:dead|beef|cafe|babe|feed|face|abcdef)\w*|0x(?:1234|12345678|f+)", re.IGNORECASE
)
_WHOLE = ("16", "32", "64", "128", "256")  # bytes that no longer number begins with
_OPEN: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
_BEFORE_LIST = re.compile(
    r"(?:(?:\d{1,20}[ \t]+)?(?:[\w:]+ of )?(?:size|length|len|count)[ =:]{1,3}\d+[,\w =]{0,16}?[ =]"
    r"|\d{1,20}[ \t]+"
    r"|[A-Za-z_][\w.:<>]*[ \t]*)(?=[\[({])"
)
_PIECE = re.compile(r"\s*[\w*.+\-/()<> ?#…&]{0,40}\s*")  # of a list: a number, a mask, a name
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")  # 4096 with a separator, or a list
_UNIT = re.compile(
    r"[ \t]*(?:(?P<unit>bytes?|B|elements?|elems?|values?)|(?P<other>[KMG]i?B?|k))\b"
)
_AFTER = re.compile(  # of numbers without brackets: the end of the line, a sign, another field
    r"[ \t]*(?P<rest>$|[,;)\]}|(<\[\"'`&/]|\.(?!\w)|=>|-{2,}|(?P<word>[A-Za-z_]\w*))", re.MULTILINE
)
_GOES_ON = re.compile(  # broken by a terminal's width
    r"(?:[ \t]*\n){1,4}[ \t]*(?:[xX]?[0-9a-fA-F]+\b|,)"
)
_END_OF_TEXT = re.compile(r"[ \t`'\"]*\Z")
_NOTHING_FOLLOWS = re.compile(r"[\s`'\":=]*\Z")
_MASKED = re.compile(
    r"[(\[{<\"']*[ \t]*(?:0[xX])?[0-9a-fA-F]*(?:[xX*?#]{2,}|…|\.{3}|[*?]|[a-z]+[>\]])"
)


def _int(text: str) -> int:
    digits = text.rstrip("uUlL")
    return int(digits, 16 if "x" in digits[:3].lower() else 10)


def read_list(text: str, at: int) -> Value:
    r"""Read the list at a place: brackets of any kind, or numbers in a row on one line.

    >>> read_list("(64,128,1)", 0).numbers, read_list("torch.Size([3, 4])", 0).numbers
    ((64, 128, 1), (3, 4))
    >>> read_list("(64,***,1)", 0).numbers, read_list("64 128 1\n2", 0).fault
    ((64, None, 1), 'unread')
    """
    before = _BEFORE_LIST.match(text, at)
    opens = before.end() if before else at
    if text[opens : opens + 1] in _OPEN and opens < len(text):
        value = _bracketed(text, opens)
        if value.fault != "prose" or not before:
            return value
    dashed = _DASHED.match(text, at)
    if dashed:  # as YAML has it
        numbers = tuple(_int(n) for n in re.split(r"[\s-]+", dashed[0]) if n)
        return Value(numbers, end=dashed.end(), is_list=True)
    times = _TIMES.match(text, at)
    if times:
        numbers = tuple(int(n) for n in re.split(r"\D+", times[0]))
        return Value(numbers, end=times.end(), is_list=True)
    row = _ROW.match(text, at)
    if row is None:
        return _nothing(text, at)
    style = "".join(sorted(set(re.findall(r",?[ \t]|,", row[0]))))
    style = "grouped?" if _GROUPED.fullmatch(row[0]) else style
    fault, unit, end = _after(text, row.end(), f"{row[0]} ", style)
    if re.match(r"[ \t]*[\[({]", text[row.end() : row.end() + 40]):
        fault = fault or "unread"  # an address, and the list behind it
    elif re.fullmatch(r"0[xX]\w{9,16}|14\d{13,}", row[0]):  # decimal: of the stack
        fault = "address"
    pieces = [n for n in re.split(r"[,\s]+", row[0]) if n]
    return Value(tuple(map(_int, pieces)), "", fault, end, style, len(pieces) > 1, unit)


def _bracketed(text: str, opens: int) -> Value:
    """Read a list in brackets; other brackets in it are those of a type around each number."""
    depth, end = 0, opens
    for end in range(opens, min(len(text), opens + LONGEST_LIST)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0 and end > opens and text[end] in ")]}>":
            break
    else:
        rest = text[opens + 1 : opens + LONGEST_LIST]
        is_cut = re.fullmatch(r"[\s\d,xXa-fA-F-]*", rest) and len(text) <= opens + LONGEST_LIST
        return Value(fault="cut" if is_cut else "torn" if re.match(r"\s*[\d,]", rest) else "prose")
    inside = text[opens + 1 : end].strip()
    if inside[:1] in ("[", "(") and inside[-1:] in ("]", ")"):
        inside = inside[1:-1].strip()  # torch.Size([...])
    inside = re.sub(r"[\"']", "", _WRAPPED.sub(lambda m: m[1] or m[2], inside))
    broken = re.search(r"[\da-fA-FxX][ \t]*\n\s*[\da-fA-F]|\.\.\.|…", inside)
    if broken and re.fullmatch(r"[\s\dxXa-fA-F,*#?.…-]*", inside):
        return Value(fault="unread", end=end + 1)
    pieces = re.split(r"[,;]", inside.rstrip(",")) if re.search("[,*]", inside) else inside.split()
    numbers = tuple(_entry(piece.strip()) for piece in pieces)
    is_list = all(map(_PIECE.fullmatch, pieces)) and len(pieces) <= 32
    if not is_list or all(n is None for n in numbers):
        is_torn = inside[:1].isdigit() or inside[:1] == ","
        return Value(fault="prose" if not is_torn or _MASKED.match(inside) else "torn")
    if re.match(r"[ \t]*=(?!=)", text[end + 1 : end + 4]):  # an index, and the list behind it
        return Value(fault="unread", end=end + 1)
    style = "," if re.search(r",\S", inside) else ", " if "," in inside else " "
    unit = _UNIT.match(text, end + 1)
    fault = "unread" if unit and unit["other"] else ""
    style = "grouped?" if _GROUPED.fullmatch(inside) else style
    return Value(
        numbers, "", fault, end + 1, text[opens] + style, True, (unit and unit["unit"]) or ""
    )


def _entry(piece: str) -> int | None:
    """Return one entry of a list; products of numbers are computed."""
    factors = [factor.strip() for factor in CAST.sub("", piece).split("*")]
    if not all(_ONE.fullmatch(factor) for factor in factors):
        return None
    product = 1
    for factor in factors:
        product *= _int(factor)
    return product


def _after(text: str, end: int, shown: str, style: str = "") -> tuple[str, str, int]:
    """Return why numbers without brackets cannot be read, their unit, and where they end."""
    unit = _UNIT.match(text, end)
    if unit:
        end = unit.end()
    after = _AFTER.match(text, end)
    word = after and after["word"]
    behind = after.end() if after else end
    known = not word or meaning_of(word) or re.match(r"[ \t]*[:=(]", text[behind : behind + 8])
    grouped = re.match(r",[ \t]*[\d*?#]", text[end : end + 4]) or (
        "," in style and style not in (",", ", ", ",\t") and re.search(r",\d{3}\b", shown)
    )
    goes_on = _GOES_ON.match(text, end)
    doubtful = shown[1:] and _END_OF_TEXT.match(text, end)  # without a newline
    if not after or not known or grouped or goes_on or doubtful or (unit and unit["other"]):
        return "unread", "", end
    return "", (unit and unit["unit"]) or "", end


def _nothing(text: str, at: int) -> Value:
    """Return why there is no value."""
    line = text[at : at + 80].partition("\n")[0].strip()
    if not line:
        return Value(fault="cut")
    if _MASKED.match(line):
        return Value(fault="unread")
    return Value(fault="torn" if line[0] in "0123456789,()" else "prose")


def read_scalar(text: str, at: int, argument: str, may_be_word: bool) -> Value:
    """Read one number; where `may_be_word`, also the name of an enum's member.

    >>> read_scalar("3 (CU_TENSOR_MAP_SWIZZLE_128B)", 0, "swizzle", True).numbers
    (3,)
    >>> read_scalar("0x7f3b8a00****", 0, "global_address", False).fault
    'unread'
    """
    is_address = argument == "global_address"
    null = _NULL.match(text, at) if is_address else None
    member = _MEMBER.match(text, at)
    if null or member:
        found = null or member
        assert found is not None
        return Value((int(member[1]) if member else 0,), end=found.end())
    cast = CAST.match(text, at)
    start = cast.end() if cast else at
    bare = _BARE_ADDRESS.match(text, at) if is_address else None
    number = bare or _ONE.match(text, start)
    if number:
        fault, _, end = _after(text, number.end(), "" if number[0] in _WHOLE else number[0])
        if is_address and _NOT_AN_ADDRESS.fullmatch(number[0]):
            fault = fault or "unread"  # 0xdeadbeef stands for one
        value = int(number[0], 16) if bare else _int(number[0])
        return Value((value,), "", fault, end)
    word = _WORD.match(text, start)
    if word and may_be_word:
        beside = re.match(r"[ \t]*\((\d{1,5})\)", text[word.end() : word.end() + 12])
        numbers = (int(beside[1]),) if beside else ()
        return Value(numbers, word[0].rstrip(".:"), end=word.end())
    return _nothing(text, at)


# -- fields ---------------------------------------------------------------------------------------


class Field(NamedTuple):
    """One printed argument: the driver's name for it, the word, the value, where it stands."""

    argument: str
    key: str
    word: str
    strong: bool
    value: Value
    unit: str = ""
    separator: str = ""
    place: str | None = None  # of an entry printed by itself, as in name[0] = 64
    follows: str = ""  # the character before the word, blanks left out
    line: int = 0
    last_line: int = 0


_NAME = re.compile(r"[A-Za-z_]\w*")
_AFTER_WORD = re.compile(
    r"(?:\[[ \t]*(?P<index>[^\]\n]{0,12}?)[ \t]*\])?[\"'`*]{0,2}"
    r"(?:[ \t]*\((?P<unit>[A-Za-z][^()\n]{0,30})\)(?=[ \t]*[:=]))?"
    r"(?P<sep>[ \t]*(?:=>|->|:=|==?|:|\||-{2,})[ \t]*|[ \t]+|(?=[\[({])|[ \t]*$)",
    re.MULTILINE,
)
_ORPHAN = re.compile(r"^[ \t]*\d{1,20},?[ \t]*$", re.MULTILINE)  # an entry without its list
_REST_OF_LIST = re.compile(
    r"^[ \t]*(?:[\d, \t]*\)|,)[\d,() \t]*$|^[ \t]*\([\d, \t]*$", re.MULTILINE
)
_UNITS = {"bytes": "bytes", "byte": "bytes", "b": "bytes", "elements": "elements"}
_UNITS |= {"element": "elements", "elems": "elements", "elem": "elements", "values": "elements"}


def fields_of(stream: Lines) -> Iterator[tuple[int, str | Field]]:
    """Return places where a printout begins, and fields, in the order of the text."""
    text = stream.text
    marks = sorted(
        [(m.start(), m[0]) for m in HEADING.finditer(text)]
        + [(m.start(), "") for m in _REST_OF_LIST.finditer(text)]
        + [(m.start(), "\n") for m in _ORPHAN.finditer(text)]
    )
    marks.reverse()
    known: dict[str, tuple[str, str, bool] | None] = {}
    after = 0
    for word in _NAME.finditer(text):
        while marks and marks[-1][0] <= word.start():
            place, mark = marks.pop()
            if mark.strip():
                yield place, mark
            elif place >= after:
                line = stream.line_at(place)
                rest = Value(fault="orphan" if mark else "torn")
                yield place, Field("", "", "", True, rest, line=line, last_line=line)
        if word.start() < after:
            continue
        name = word[0]
        if name not in known:
            known[name] = meaning_of(name)
        meaning = known[name]
        found = meaning and _read_field(text, word, *meaning)
        if found:
            after = max(word.end(), found.value.end)
            first = stream.line_at(word.start())
            last = stream.line_at(max(word.start(), after - 1))
            yield word.start(), found._replace(line=first, last_line=last)


def _read_field(
    text: str, word: re.Match[str], argument: str, key: str, strong: bool
) -> Field | None:
    """Read the value after a word; None where the word is part of a sentence."""
    start = word.start()
    follows = _AFTER_WORD.match(text, word.end())
    line_before = text[max(0, start - 40) : start].rpartition("\n")
    on_line = line_before[2].strip(" \t\"'*`-{")
    leads = not on_line and bool(line_before[1] or start <= 40)
    leads = leads or text.find("TMA Desc Addr", max(0, start - 60), start) >= 0
    if follows is None or _is_end_of_word(text, word, key):
        return None
    if follows["index"] is not None and argument not in ARRAYS:
        return None
    separator, at = follows["sep"].strip(), follows.end()
    at += len(text[at : at + 2]) - len(text[at : at + 2].lstrip("\"'`*"))
    opens = text[at : at + 1] in tuple("([{")
    before = text[max(0, start - 40) : start].rstrip(" \t")[-1:]
    is_part = text[start - 1 : start] in (".", "-", "_", ">") or before.isalpha()
    if not strong and (is_part or (not separator and not leads)):
        return None
    index, unit = follows["index"], (follows["unit"] or "").lower().removeprefix("in ").strip()
    if argument in ARRAYS:
        value = read_list(text, at)
        if index is not None and (value.is_list or opens):
            index = None if re.fullmatch(r"\d*|\w*[A-Za-z_]\w*", index) else index
            count_differs = follows["index"].isdigit() and not opens
            if count_differs and int(follows["index"]) != len(value.numbers):
                value = value._replace(fault="unread")
        if value.fault in ("torn", "prose") and follows["index"] is not None:
            return None
    else:
        value, index = read_scalar(text, at, argument, argument in NAMED), None
        if value.word and not separator and not opens and not _is_member_name(value.word, leads):
            return None
    if (unit and unit not in _UNITS) or (value.unit and argument not in ARRAYS):
        value = value._replace(fault=value.fault or "unread")
    if value.fault in ("torn", "cut", "prose"):
        at_end = value.fault == "cut" and (opens or _NOTHING_FOLLOWS.match(text, word.end()))
        torn = value.fault == "torn" and (leads or (strong and opens))
        if not at_end and not torn:
            return None  # a sentence, or "strides:" as the heading of something else
    unit = _UNITS.get(unit or value.unit.lower(), "")
    separator = separator or ("" if opens else " ")
    return Field(argument, key, word[0], strong, value, unit, separator, index, before)


def _is_end_of_word(text: str, word: re.Match[str], key: str) -> bool:
    """Return whether a word is the rest of another one that a terminal's width has broken."""
    if word.start() <= 4 and not text[: word.start()].strip() and key in ("stride", "strides"):
        return True  # no printout begins with these: of elementStrides
    before = re.search(
        r"([A-Za-z_]\w*)[ \t]*\n[ \t]*$", text[max(0, word.start() - 80) : word.start()]
    )
    whole = before and meaning_of(before[1] + word[0])
    return bool(whole and whole[1] != key)


def _is_member_name(word: str, leads: bool) -> bool:
    sized = word.isupper() and any(map(str.isdigit, word))
    return "CU_TENSOR_MAP" in word or sized or (leads and "." in word)
