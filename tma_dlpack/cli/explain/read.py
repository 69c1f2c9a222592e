r"""From a text to blocks: the printed fields that belong to one encode.

A log is split by process, each process's text is searched for ``name [index] (unit) : value``, and
the fields found are gathered in blocks. What cannot be read for certain is not read: an entry of a
list, a list, or a whole block where lines of several processes are mixed.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from tma_dlpack.checks.parse import DRIVER_ARGUMENTS
from tma_dlpack.cli.explain.words import (
    ARRAYS,
    CUTLASS,
    FORMS,
    GENERAL,
    HEADING,
    MULTI_WORD,
    NAMED,
    STRONG,
    WEAK,
    Form,
    meaning_of,
)
from tma_dlpack.tables.arguments import MapKind

Entries = tuple[int | None, ...]

LONGEST_LIST = 600  # characters; five entries with types around them take fewer
FAR_LINES = 12  # between two fields of one printout, at most
FAR_WHOLE_LINES = 3  # where the tensor and the tile are there already
NEAR_LINES = 3  # between blocks that touch; a weak word stands no further from its neighbours
FAR_DECLARATION = 40  # lines from an array's declaration to the call that passes it

#: What `DRIVER_ARGUMENTS` calls otherwise than `TensorMap`.
CALL_NAMES: Final = {"tensor_data_type": "data_type", "tensor_rank": "rank"}

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


class Stream(NamedTuple):
    """What one process wrote: its text without prefixes, and the line of the log of each line."""

    text: str
    lines: tuple[int, ...]
    process: str

    def line_at(self, starts: list[int], place: int) -> int:
        """Return the line of the log at a place of the text."""
        return self.lines[bisect.bisect_right(starts, place) - 1]


def streams_of(numbered: list[tuple[int, str]]) -> list[Stream]:
    """Split numbered lines by the process that each names; prefixes of lines are left out."""
    contents: dict[str, list[str]] = {}
    numbers: dict[str, list[int]] = {}
    for number, line in numbered:
        process, content = _split_prefix(line)
        contents.setdefault(process, []).append(content)
        numbers.setdefault(process, []).append(number)
    return [
        Stream(MULTI_WORD.sub(r"\1_\2", "\n".join(parts)), tuple(numbers[process]), process)
        for process, parts in contents.items()
    ]


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
_CAST = re.compile(r"\([A-Za-z_][\w: *]*\)[ \t]*(?=[-\d])")
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
_GOES_ON = re.compile(
    r"(?:[ \t]*\n){1,4}[ \t]*(?:[0-9a-fA-F]+\b|,)"
)  # broken by a terminal's width
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
    fault, unit, end = _after(text, row.end(), row[0], style)
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
    after = text[end + 1 : end + 2]
    if after in tuple("([{") or after.isalnum():
        return Value(fault="torn")
    if re.match(r"[ \t]*=(?!=)", text[end + 1 : end + 4]):  # an index, and the list behind it
        return Value(fault="unread", end=end + 1)
    style = "," if re.search(r",\S", inside) else ", " if "," in inside else " "
    grouped = re.search(r"(?<!\d)\d{1,3},\d{3}(?!\d)", inside)
    mixed = grouped and re.search(r"\d,?\s+\S", inside)
    unit = _UNIT.match(text, end + 1)
    fault = "unread" if mixed or (unit and unit["other"]) else ""
    style = "grouped?" if _GROUPED.fullmatch(inside) else style
    return Value(
        numbers, "", fault, end + 1, text[opens] + style, True, (unit and unit["unit"]) or ""
    )


def _entry(piece: str) -> int | None:
    """Return one entry of a list; products of numbers are computed."""
    factors = [factor.strip() for factor in _CAST.sub("", piece).split("*")]
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
    if text[end : end + 1] in tuple("([{") or re.match(
        r",(?!\d{3}\b)[\d,(\[]", text[end : end + 3]
    ):
        return "torn", "", end
    grouped = re.match(r",\d", text[end : end + 2]) or (
        "," in style and style not in (",", ", ", ",\t") and re.search(r",\d{3}\b", shown)
    )
    goes_on = _GOES_ON.match(text, end)
    doubtful = len(shown) > 1 and _END_OF_TEXT.match(text, end)  # without a newline
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
    cast = _CAST.match(text, at)
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
    leads: bool = False  # its line
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
_HEADING_TORN = re.compile(r"TMA Desc Addr:(?![ \t]*(?:0x)?[0-9a-fA-F]{1,16}(?:[ \t\n]|$))")
_UNITS = {"bytes": "bytes", "byte": "bytes", "b": "bytes", "elements": "elements"}
_UNITS |= {"element": "elements", "elems": "elements", "elem": "elements", "values": "elements"}


def _fields(stream: Stream, starts: list[int]) -> Iterator[tuple[int, str | Field]]:
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
                line = stream.line_at(starts, place)
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
            first = stream.line_at(starts, word.start())
            last = stream.line_at(starts, max(word.start(), after - 1))
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
    is_part = text[start - 1 : start] in (".", "-", "_", ">")
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
        lost = value.fault == "cut" and strong and leads and not separator
        if not at_end and not torn and not lost:
            return None  # a sentence, or "strides:" as the heading of something else
        value = value._replace(fault="cut" if at_end else value.fault if torn else "lost")
    unit = _UNITS.get(unit or value.unit.lower(), "")
    before = text[max(0, start - 40) : start].rstrip(" \t")[-1:]
    separator = separator or ("" if opens else " ")
    return Field(argument, key, word[0], strong, value, unit, separator, index, leads, before)


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


# -- blocks ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Block:
    """The fields of one printout.

    `fault` is "" or why its numbers must not be taken: "mixed" or "cut". Fields of one argument are
    several where different words name it.
    """

    heading: str = ""
    first_line: int = 0
    last_line: int = 0
    fields: dict[str, list[Field]] = field(default_factory=dict)
    entries: dict[str, dict[str, Field]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # as printed -> key, in their order
    fault: str = ""
    is_call: bool = False
    has_orphans: bool = False

    def arguments(self) -> set[str]:
        """Return what it shows."""
        return self.fields.keys() | self.entries.keys()

    @property
    def is_whole(self) -> bool:
        """Whether what every printout shows is there: the tensor's extents and the tile's."""
        shown = self.arguments()
        return "global_dim" in shown and bool({"box_dim", "channels_per_pixel"} & shown)

    @property
    def strong(self) -> set[str]:
        """What it shows in strong words."""
        found = {a for a, named in self.fields.items() if any(f.strong for f in named)}
        return found | self.entries.keys()

    @property
    def shows_arguments(self) -> bool:
        """Whether it is the printout of an encode, not words of a log that happen to be there."""
        return len(self.strong) >= 2 and bool(self.arguments() & ARRAYS)

    @property
    def is_one_line(self) -> bool:
        """Whether nothing can stand between its parts."""
        lines = {f.line for f in self.all_fields()}
        return len(lines) <= 1

    def all_fields(self) -> list[Field]:
        """Return every field and entry."""
        groups = [*self.fields.values(), *(list(e.values()) for e in self.entries.values())]
        return [found for group in groups for found in group]

    def same(self, found: Field) -> Field | None:
        """Return what stands where a field would go."""
        if found.place is not None:
            return self.entries.get(found.argument, {}).get(found.place)
        return next((f for f in self.fields.get(found.argument, ()) if f.key == found.key), None)

    def put(self, found: Field) -> None:
        """Take a field."""
        self.first_line = self.first_line or found.line
        self.last_line = found.last_line
        self.words.setdefault(found.word, found.key)
        if found.place is not None:
            self.entries.setdefault(found.argument, {})[found.place] = found
        else:
            self.fields.setdefault(found.argument, []).append(found)


def form_of(block: Block) -> Form:
    """Return the row of the table that a block fits."""
    keys = frozenset(block.words.values())
    for form in FORMS:
        if not form.fits(keys):
            continue
        if form.name == "tma_dlpack.h" and "uTensorMapEncode" not in block.heading:
            continue
        if form is CUTLASS:  # its words are the driver's: lines without a sign before the value
            strong = {f.key for f in block.all_fields() if f.strong}
            spaced = [f.separator in ("", " ") for f in block.all_fields()]
            own = {"gmemaddress", "format"} & keys or 2 * sum(spaced) > len(spaced)
            if not strong <= set(form.keys) or not own or block.is_call:
                continue
        return form
    return GENERAL


def blocks_in(streams: list[Stream]) -> list[Block]:
    """Gather the fields of each stream in blocks; those that cannot be trusted are marked."""
    blocks = [(stream.process, block) for stream in streams for block in _blocks_of(stream)]
    named = [b for process, b in blocks if process]
    for process, block in blocks:
        for other in named if not process else ():  # a part of it may be among the lines of another
            apart = other.last_line < block.first_line or block.last_line < other.first_line
            if not apart and not (block.is_whole and other.is_whole):
                block.fault = other.fault = "mixed"
    return [block for _, block in blocks]


def _blocks_of(stream: Stream) -> list[Block]:
    blocks = [Block()]
    starts = [0, *(m.end() for m in re.finditer("\n", stream.text))]
    after = 0
    for place, event in _fields(stream, starts):
        if place < after:
            continue
        if isinstance(event, Field):
            _add(blocks, event)
            continue
        line = stream.line_at(starts, place)
        last = blocks[-1]
        again = not last.arguments() and (last.fault or last.heading == event.strip())
        near = again and line - last.last_line <= FAR_LINES  # a heading for which there is no block
        blocks.append(Block(event.strip(), line, line, fault="mixed" if near else ""))
        call = _call(stream.text, place, event)
        if call is not None:
            found, after = call
            end = stream.line_at(starts, after)
            _fill(blocks, [f._replace(line=line, last_line=end) for f in found])
        elif _HEADING_TORN.match(stream.text, place) and not _MASKED.match(
            stream.text, place + len("TMA Desc Addr:   ")
        ):
            blocks[-1].fault = "mixed"
    blocks = [b for b in blocks if b.fields or b.entries]
    _mark_mixed(blocks)
    return [b for b in blocks if b.shows_arguments or b.fault]


def _add(blocks: list[Block], found: Field) -> None:
    """Put a field into the block it belongs to, the last one or a new one."""
    block = blocks[-1]
    gap = found.line - block.last_line
    lone = gap > NEAR_LINES
    if lone and found.strong and found.argument and not block.strong:
        block.fields.clear()  # weak words further up belong to something else
        block.words.clear()
        block.first_line = found.line
    far = gap > (FAR_WHOLE_LINES if block.is_whole else FAR_LINES)
    if (block.fields or block.entries) and (far or (lone and not found.strong)):
        blocks.append(block := Block(first_line=found.line))
    if found.value.fault == "orphan":
        block.has_orphans |= gap <= NEAR_LINES
        return
    if found.value.fault in ("torn", "cut"):
        if block.fields or block.entries or (block.heading and found.argument):
            block.fault = block.fault or ("cut" if found.value.fault == "cut" else "mixed")
        if not found.argument:
            return
    same = block.same(found)
    if same is not None:
        again = same.value[:2] == found.value[:2] and same.line == found.line
        stray = not found.strong and same.separator != found.separator
        if again or stray:
            return
    others = any(f.strong and f.key != found.key for f in block.fields.get(found.argument, ()))
    if same is not None or (others and found.strong):
        blocks.append(block := Block(first_line=found.line))
    block.put(found)


def _mark_mixed(blocks: list[Block]) -> None:
    """Mark blocks that are not whole among others of their printer: several processes wrote them.

    A printer writes the same words in the same order each time. The first block of a run may lack
    its beginning, and the last one its end.
    """
    for block in blocks:
        over_lines = any(f.last_line > f.line for f in block.all_fields())
        torn = block.fault and block is not blocks[-1]
        if torn or (block.has_orphans and over_lines) or _is_rotated(block):
            block.fault = "mixed"
    runs: list[list[Block]] = []
    for before, block in pairwise([Block(), *blocks]):
        near = block.first_line - before.last_line <= NEAR_LINES
        if runs and near and _same_printer(before, block):
            runs[-1].append(block)
        else:
            runs.append([block])
    for run in runs:
        words = _words_of(run)
        apart = len({block.first_line for block in run}) == len(run)  # a line each
        several = len(run) > 1 and not (apart and all(block.is_one_line for block in run))
        parts = [
            several and not _is_part_of(words, block, block is run[0], block is run[-1])
            for block in run
        ]
        if any(parts) or any(block.fault == "mixed" for block in run):
            for block in run:
                block.fault = "mixed"


def _is_rotated(block: Block) -> bool:
    """Return whether the end of one printout stands before the beginning of another."""
    names = {CALL_NAMES.get(name, name): i for i, name in enumerate(DRIVER_ARGUMENTS["tiled"])}
    of_word = {f.word: f.argument for f in block.all_fields()}
    places = [names[of_word[word]] for word in block.words if of_word.get(word) in names]
    falls = sum(before > after for before, after in pairwise(places))
    return len(places) >= 8 and falls == 1 and places[-1] < places[0]


def _same_printer(a: Block, b: Block) -> bool:
    forms = form_of(a), form_of(b)
    keys = set(a.words.values()), set(b.words.values())
    if keys[0] <= set(forms[1].keys) or keys[1] <= set(forms[0].keys):
        return True
    if a.is_call or b.is_call:
        return False
    if forms[0].words or forms[1].words:
        return forms[0] is forms[1]
    spelled = [{f.argument: f.word for f in block.all_fields()} for block in (a, b)]
    return all(spelled[0][name] == spelled[1][name] for name in spelled[0].keys() & spelled[1])


def _words_of(run: list[Block]) -> tuple[str, ...]:
    """Return the words of a whole printout of a run, in their order."""
    used = {key for block in run for key in block.words.values()}
    order = next((form.keys for form in map(form_of, run) if form.keys), ())
    seen = [key for block in run for key in block.words.values()]
    return tuple(dict.fromkeys(key for key in (*order, *seen) if key in used))


def _is_part_of(whole: tuple[str, ...], block: Block, is_first: bool, is_last: bool) -> bool:
    """Return whether a block is a whole printout, or may be cut off where a run begins or ends."""
    words = tuple(block.words.values())
    optional = {w for w in whole if ("stride" in w and "elem" not in w) or w == "base"}  # rank 1
    if words == whole or words == tuple(w for w in whole if w not in optional):
        return True
    begins, ends = whole[: len(words)] == words, whole[-len(words) :] == words
    return (is_first and ends) or (is_last and begins)


# -- calls in pasted source -----------------------------------------------------------------------

_NO_VALUE = re.compile(r"[;=]|^\w+\s*:(?!:)|\w\s+\w")  # a name, a declaration, another line
_ARGUMENTS_OPEN = re.compile(r"[\w:]*\)?\s*\(")
_SIZES = {"double": 8, "float": 4, "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2}
_SIZEOF = re.compile(r"sizeof\s*\(\s*(\w+)\s*\)")
_CONSTANT = r"\b{}\s*(?:=\s*|\s)(\d+)\s*(?:[;,\n)]|$)"
_DECLARED = r"\b{}\s*(?:\[[^\]\n]*\])?\s*=?\s*(?=[\[{{(])"


def _call(text: str, place: int, heading: str) -> tuple[list[Field], int] | None:
    """Read a call of the driver whose arguments are told by their places; None if it is none."""
    opens = _ARGUMENTS_OPEN.match(text, place + len(heading))
    if opens is None or "ncode" not in heading:
        return None
    arguments, end = _split(text, opens.end())
    count = len(arguments)
    kinds: tuple[MapKind, ...] = ("tiled", "im2col", "im2col_wide")
    kind = next((k for k in kinds if len(DRIVER_ARGUMENTS[k]) in (count, count - 1)), None)
    if kind is None or any(map(_NO_VALUE.search, arguments)):
        return None
    names = DRIVER_ARGUMENTS[kind]
    found = []
    for name, words in zip(names, arguments[count - len(names) :], strict=True):
        argument = CALL_NAMES.get(name, name)
        value = _passed(text, place, argument, words)
        if value.numbers or value.word:
            found.append(Field(argument, argument, argument, True, value, separator="call"))
    return found, end


def _split(text: str, start: int) -> tuple[list[str], int]:
    """Return the arguments of a call that begin at a place, and where they end."""
    depth, begin, arguments = 1, start, []
    for end in range(start, min(len(text), start + 4 * LONGEST_LIST)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0 or (depth == 1 and text[end] == ","):
            arguments.append(text[begin:end].strip())
            begin = end + 1
            if depth == 0:
                return arguments, end
    return [], start


def _passed(text: str, place: int, argument: str, words: str) -> Value:
    """Return the value of an argument: a literal, or what its name was declared with."""
    if argument not in ARRAYS:
        literal = _known(text, place, _CAST.sub("", words))
        return read_scalar(literal + ";", 0, argument, argument in NAMED and "CU_" in literal)
    named = re.fullmatch(r"&?([A-Za-z_]\w*)(?:\.data\(\)|\[0\])?(?:\s*\+\s*(\d))?", words)
    if named is None:
        opens = re.search(r"[{\[](?=[^\]}])", words)
        return read_list(_known(text, place, words[opens.start() :]), 0) if opens else Value()
    declared = list(re.finditer(_DECLARED.format(named[1]), text[max(0, place - 8_000) : place]))
    if not declared:
        return Value()
    at = max(0, place - 8_000) + declared[-1].end()
    value = read_list(_known(text, place, text[at : at + LONGEST_LIST]), 0)
    return value._replace(numbers=value.numbers[int(named[2] or 0) :])


def _known(text: str, place: int, words: str) -> str:
    """Return source with the numbers of its constants."""

    def number(name: re.Match[str]) -> str:
        if name[0].startswith("CU") or not name[0].isidentifier():
            return name[0]
        nearby = text[max(0, place - 8_000) : place]
        values = set(re.findall(_CONSTANT.format(name[0]), nearby))
        return values.pop() if len(values) == 1 else name[0]

    words = _SIZEOF.sub(lambda m: str(_SIZES.get(m[1], m[0])), words.partition(";")[0])
    return re.sub(r"[A-Za-z_]\w*", number, words)


def _fill(blocks: list[Block], found: list[Field]) -> None:
    """Put a call's arguments into the last block, with those of declarations just before it."""
    call = blocks[-1]
    call.is_call = True
    for argument in found:
        call.put(argument)
    if len(blocks) < 2 or call.first_line - blocks[-2].last_line > FAR_DECLARATION:
        return
    declared = blocks[-2]
    for name in ("global_dim", "box_dim"):
        mine, theirs = call.fields.get(name), declared.fields.get(name)
        pairs = (
            zip(mine[0].value.numbers, theirs[0].value.numbers, strict=False)
            if mine and theirs
            else ()
        )
        if any(a != b and None not in (a, b) for a, b in pairs):
            return
    call.fields = {**declared.fields, **call.fields}
    call.entries = {k: v for k, v in declared.entries.items() if k not in call.fields}
    call.words = {**declared.words, **call.words}
    call.first_line = declared.first_line or call.first_line
    blocks.pop(-2)
