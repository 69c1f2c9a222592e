"""Functions that split logs by process, find names of the driver's arguments, and convert numbers.

`plain` removes colours. `streams_of` splits a log by process, and removes the prefixes of loggers.

A *word* is a name that a program prints for a driver's argument. A *strong* word, such as
``globalDim``, has one meaning in nearly all logs. A *weak* word (``dim``, ``shape``, ``format``)
also has other meanings, so it is read only near strong words. A *form* describes how one project
prints the arguments, and `FORMS` has the forms of all known projects. To add a project, add a row
to table FORMS of words.txt and an example to tests/debug/printed_forms.py.

`normal` removes casts and types around numbers, and writes numbers in decimal. A number that is
masked, broken or in another unit becomes ``?``. If the text is source code with a driver call, the
call's arguments become ``name=value``, with the values from the declarations of arrays and
constants.
"""

from __future__ import annotations

import bisect
import html
import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tma_dlpack.debug import foreign
from tma_dlpack.debug.core import CORNERS, ENUMS, coerce, meanings, tma
from tma_dlpack.debug.explain.source import with_names

LONGEST_WORD = 60  # characters

# The entries of a list. An entry that is not read is None.
Entries = tuple[int | None, ...]


def key_of(word: str) -> str:
    """Return the table key of a word, which is the word in lower case without underscores."""
    return word.replace("_", "").lower()


def tables(name: str) -> dict[str, list[list[str]]]:
    """Return the tables of a text file next to this module: the table's name -> rows of cells."""
    # A table begins with "== NAME" and indented lines that describe it.
    text = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^== (\w+)(?:\n  .*)*\n", text, flags=re.MULTILINE)
    return {table: coerce.rows(lines) for table, lines in zip(parts[::2], parts[1::2], strict=True)}


_TABLES: Final = tables("words")


def _words(table: str) -> dict[str, str]:
    lines = _TABLES[table]
    return {key_of(word): argument for argument, words in lines for word in words.split()}


STRONG: Final = _words("STRONG")
WEAK: Final = _words("WEAK")

#: Arguments that are lists; `raw_strides` may begin with the size of an element.
ARRAYS: Final = frozenset(
    {"global_dim", "global_strides", "raw_strides", "box_dim", "element_strides", *CORNERS}
)

#: Names of two words, such as "box dim" in "box dim: 64". `normal` joins them by an underscore.
MULTI_WORD: Final = re.compile(
    r"(?i)\b(global|shared|outer|elem|element|item|box|data|tensor|block|tile) "
    r"(memory|stride|strides|size|sizes|ptr|address|dim|dims|shape|type|rank)(?=[\"']?[ \t]*[:=])"
)

#: The heading of a printout. Fields before a heading and after it belong to different encodes.
HEADING: Final = (
    r"(?i:TMA Desc Addr(?::?[ \t]+\d+(?: \(\w+=\d+\))?)?"
    r"|(?:\b\w{1,40}_)?cuTensorMapEncode(?:Tiled|Im2col(?:Wide)?)\b"
    r"|Making (?:\dD )?TMA desc"
    r"|(?:TmaDescriptor|CudaTensorMapInfo|TensorMapSpec)\s*[{(]|TensorMapInfo\("
    r"|Failed to (?:initialize|create|encode)[\w ]{0,40}?(?:TMA|tensor ?map)"
    r"|TMA descriptor creation)"
)

#: A name or a mark. A mark is either a heading, or a line that is a part of a broken list, such as
#: "64, 1)".
WORD: Final = re.compile(
    rf"(?P<heading>{HEADING})|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<broken>^[ \t]*(?:(?:[\d,][\d, \t]*\)|,)[\d,() \t]*|\([\d, \t]*|\d{1,20},)$)",
    re.MULTILINE,
)


@lru_cache(maxsize=4096)
def meaning_of(word: str) -> tuple[str, str, bool] | None:
    """Return the argument that a word names, the word's key, and whether the word is strong.

    >>> meaning_of("A_desc_globalDim"), meaning_of("head_dim")
    (('global_dim', 'globaldim', True), None)
    """
    if len(word) > LONGEST_WORD:
        return None
    key = key_of(word)
    if key in STRONG:
        return STRONG[key], key, True
    if key in WEAK:
        return WEAK[key], key, False
    # A prefix such as "A_desc_" may name the operand. It is skipped only before a strong word.
    parts = word.lower().split("_")
    tails = ("".join(parts[first:]) for first in range(1, len(parts)))
    return next(((STRONG[tail], tail, True) for tail in tails if tail in STRONG), None)


# -- members of enums by number, by name, by bytes ------------------------------------------------


_WITH_MODE: Final[dict[str, Any]] = {**ENUMS, "mode": tma.TensorMapIm2ColWideMode}
#: (argument, printed value) -> number of the enum's member, for values that only printouts use. In
#: DeepGEMM, a swizzle of 16 bytes means no swizzle, and "fp8" means UINT8.
_PRINTED: Final = {("swizzle", "16"): 0, ("data_type", "fp8"): 0, ("data_type", "bfloat"): 9}


def member_of(argument: str, value: int | str) -> Any:
    """Return the enum's member for a printed number, a printed name, or the bytes of a swizzle.

    A number that is not a member stays an int. A name that is not a member's name becomes None.

    >>> member_of("swizzle", "B64").name, member_of("swizzle", 128).name, member_of("swizzle", 9)
    ('bytes64', 'bytes128', 9)
    >>> member_of("data_type", "torch.bfloat16").name, member_of("data_type", "float3")
    ('BFLOAT16', None)
    """
    enum = _WITH_MODE[argument]
    if type(value) is int and 0 <= value < len(enum):
        return enum(value)
    tail = re.split(r"[.:]+", value)[-1] if isinstance(value, str) else value
    if (
        isinstance(tail, str)
        and tail.startswith("CU_TENSOR_MAP")
        and not meanings.has_name(enum, tail)
    ):
        return None  # a name that was cut off
    for word in (value, tail):  # first the whole name, "cute::B64", then "B64" without its scope
        printed = _PRINTED.get((argument, str(word).lower()))
        member = meanings.parse(enum, word) if printed is None else enum(printed)
        if member is not None:
            return member
    return value if isinstance(value, int) else None


# -- who prints which words -----------------------------------------------------------------------


class Form(NamedTuple):
    """The form in which one project prints the arguments of an encode.

    The printout of an encode has this form if its words have all the keys of at least one set in
    `any_of`. `words` are the project's words in printed order, or () if the order is not known.
    `implied` has the arguments that the project always passes and does not print. `flags` may
    contain "leading" (the first stride is the size of an element, which the driver does not read),
    "padded" (lists have five entries for every rank), "garbage" (the entries after the last
    dimension are uninitialised) and "elements" (strides are in elements).
    """

    name: str = ""
    any_of: tuple[frozenset[str], ...] = ()
    flags: frozenset[str] = frozenset()
    implied: Mapping[str, int] = MappingProxyType({})
    words: tuple[str, ...] = ()


def _form(name: str, any_of: str, how: str, words: str) -> Form:
    # Examples: `any_of` is "globaldim+boxdim tileshapes", and `how` is "leading padded swizzle=3".
    together = tuple(frozenset(map(key_of, group.split("+"))) for group in any_of.split())
    implied = {k: int(v) for k, _, v in (word.partition("=") for word in how.split()) if v}
    return Form(name, together, frozenset(how.split()), implied, tuple(words.split()))


#: The forms in the order in which `form_of` tries them.
FORMS: Final[tuple[Form, ...]] = tuple(_form(*row) for row in _TABLES["FORMS"])
GENERAL: Final = Form()
#: Keys of lists that every project prints in the driver's order and units.
DRIVERS_OWN: Final = frozenset(
    ["globaldim", "globalstrides", "boxdim", "gmemprobshape", "gmemprobstride"]
)


# -- normal text ----------------------------------------------------------------------------------

# The sizes of C types in bytes, for sizeof.
_BYTES = {"double": 8, "float": 4, "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2}


def _character(found: re.Match[str]) -> str:
    return " " if found[0] in ("&nbsp;", "&#10;") else html.unescape(found[0])


def _digits(found: re.Match[str]) -> str:
    return re.sub(r"\D", "", found[0])


def _product(found: re.Match[str]) -> str:
    return str(math.prod(map(int, re.findall(r"\d{1,24}", found[0]))))


def _bracketed(found: re.Match[str]) -> str:
    """Return numbers as a list in brackets ("[64, 128]" for "64 x 128"); keep the line ends."""
    numbers = re.findall(r"\d+", found[0])
    return f" [{', '.join(numbers)}]" + "\n" * found[0].count("\n")


# An integer of C, which may have a suffix ("64ULL"). A leading zero is not allowed, because the
# number may be octal.
_INTEGER = re.compile(r"([-+]?(?:0[xX][\da-fA-F]{1,16}|(?!0\d)\d{1,24}))[uUlL]{0,3}")


def _number(found: re.Match[str]) -> str:
    """Return a number in decimal, or ``?`` for a number with a mask, a unit or a fraction."""
    clean = _INTEGER.fullmatch(found[0])
    if clean:
        return str(int(clean[1], 0))
    is_name = re.fullmatch(r"\d{1,4}(?![KMGk](?:i?B)?\b)[A-WYZa-wyz]\w*", found[0])
    return found[0] if is_name else "?"  # names are 64B, 2D, 16U4_ALIGN8B


_C_TYPES = "cuu?int|u?int|size_t|unsigned|long"
_HTML = "span|code|pre|font|b|i|em|strong|a|p|br|t[dr]|div"

#: Patterns and their replacements, which `normal` applies in this order. No replacement adds or
#: removes a line, so line numbers stay the log's line numbers.
_NORMAL: Final = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        # HTML of a pasted page: tags, and entities such as &quot;
        (rf"(?i)</?(?:{_HTML})(?: [^<>\n]{{0,99}})?/?>", ""),
        (r"&(?:#\d{2,6}|#[xX][\da-fA-F]{2,5}|[A-Za-z]{2,8});", _character),
        ("\xa0(?!\\d)", " "),
        # thousands separators other than commas: 4_096, 4'096
        ("(?<![\\w.'])\\d{1,3}(?:[_'’\xa0\u2009\u202f]\\d{3})+(?![\\w'’])", _digits),
        # no entry of a list begins with 0, so 4,096 has a separator of thousands; it becomes ?
        (r"(?<![\w.,])\d{1,3}(?:,\d{3})*,0\d\d(?:,\d{3})*(?!\w)", "?"),
        (MULTI_WORD.pattern, r"\1_\2"),
        (r"(?<!\w)'([^'\n]{0,80})'(?!\w)", r" \1 "),
        # quotes and Markdown's asterisks around words
        (r"\*\*(?=[A-Za-z])|(?<=[A-Za-z])\*\*|[\"`]|(?<![\da-fA-F])'", " "),
        # casts and types around numbers: (cuuint64_t)4096, <int: 64>, uint32_t(64)
        (rf"\((?:const )?(?:CU[a-z]|{_C_TYPES})[\w: ]*\*?\)[ \t]*(?=-?\d)", ""),
        (r"<[\w.]+(?::[ \t]*| )(-?\d{1,24})>|\b(?:cuuint\d\d_t|u?int\d*(?:_t)?)\((\d+)\)", r"\1\2"),
        (r"\bsizeof\s?\(\s?(\w+)\s?\)", lambda m: str(_BYTES.get(m[1], m[0]))),
        (r"(?<![\w.*])\d{1,24}(?:(?: \* |\*)\d{1,24}){1,8}\b(?! ?\*)", _product),
        # text before a list, which is removed: torch.Size([1]), "size 3 {...}", the list's address
        (r"[A-Za-z_][\w.:]{0,40}\(([\[({][^\[\](){}]{0,300}[\])}])\)", r"\1"),  # torch.Size([1])
        (r"(?:[\w:]{1,20} of )?(?:size|length|len|count)[ =:]{1,3}\d+[,\w =]{0,20}?(?=[\[({])", ""),
        (r"(?<=[:= ])\d{9,20}[ \t]+(?=[\[({])", ""),  # the address of the list that follows
        # lists without brackets, which get brackets: YAML's lines "- 64", and 64x128
        (r"(?:[ \t]{0,9}\n[ \t]{0,99}-[ \t]+\d{1,20}(?=[ \t]*$)){1,8}", _bracketed),
        (r"\bouter_stride(?=: [\d ]+, swizzle: \d+ elem)", "outer_stride (bytes)"),
        (r"(?<![\w.])[1-9]\d{0,9}(?:(?:[ \t][x×][ \t]|[x×])\d{1,10})+(?![\w^])", _bracketed),
        # addresses: null becomes 0, a placeholder such as 0xdeadbeef becomes ?, and hex digits
        # without 0x become a decimal number
        (r"\(nil\)|\b(?:nullptr|NULL)\b|(?<=(?:ptr|ess)[ =:][ =:])None\b|(?<=ess=)None\b", "0"),
        (r"(?i)\b(?:0x)?(?:dead|beef|cafe|babe|feed|face|abcdef)[\da-f]*\b|\b0x(?:1234|f)+\b", "?"),
        (
            r"(?i)((?:ptr|pointer|addr|address|gmem)[ \t]*[:=]?[ \t]*)"
            r"((?=[a-f]*\d)(?!\d+e\d+\b)(?:0000[\da-f]{12}|(?=\d*[a-f])[\da-f]{8,12}))(?![\w*?#…]|\.\.)",
            lambda m: f"{m[1]}{int(m[2], 16)}",
        ),
        # in "64, ...", digits of the 64 may be missing, so the 64 becomes ?
        (r"(?<![\w.])-?\d{1,24},[ \t]*(?:\.{3}|…)(?=[\s,)\]}]|$)", "?"),
        # all other numbers; a number that is masked, has a unit, or is cut at a terminal's width
        # becomes ?
        (r"(?<![\w.-])[-+]?\d(?:[\w*?#…%]|[.'’](?=[\w*.…]))*(?:[ \t]?[KMG](?:i?B)?\b)?", _number),
        (r"(?<![\w.*])(?:0[xX])?(?:\*{2,}|#{2,}|\?+|[xX]{2,}|…|\.{3}|<[a-z]+>)(?!\w)", "?"),
        (r"(?<![\w.?])-?\d+(?=(?:[ \t]{0,99}\n){1,4}[ \t]*(?:[xX]?[\da-fA-F]{1,16}\b|\?))", "?"),
    )
)  # fmt: skip


def normal(text: str) -> str:
    """Return a text with the replacements of `_NORMAL`; lines keep their numbers."""
    text = with_names(text)
    for pattern, replacement in _NORMAL:
        text = pattern.sub(replacement, text)
    return text


# -- lines ----------------------------------------------------------------------------------------

LONGEST_OBJECT = 1 << 16  # maximum number of characters of a line of JSON

# Escape sequences of terminals, such as "\x1b[31m", and colours whose ESC was lost, such as "[31m".
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[\d{1,3}(?:;\d{1,3})*m")
# Digits other than 0 to 9 (full-width, Arabic, ...), which become `?`, the mark of masked digits.
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?"
# One prefix, such as "[rank0]:", "2026-01-02 03:04:05", "(Worker pid=12)" or "INFO". A line may
# have several prefixes. The alternatives are, in this order: brackets or a time; short times and
# mpirun's "[1,0]<stdout>"; glog; syslog; levels; parentheses; docker's "name |"; pytest's "E".
_PREFIX = re.compile(
    rf"(?:\[(?=[^\[\]\n]*[A-Za-z])[^\[\]\n]{{1,80}}\](?!\d):?|\[?{_TIME}\]?"
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
        """Return the line number, in the log, of the character `text[place]`."""
        return self.numbered[bisect.bisect_right(self._starts, place) - 1][0]


def plain(text: str) -> str:
    r"""Return a text without colours, with ASCII blanks, and with "\n" as the line end.

    A log line that is a JSON object is replaced by the object's message. The escape sequences of a
    repr (``\n``) are replaced by the characters that they stand for.
    """
    if _OBJECT.match(text) or '\n{"' in text:
        text = "\n".join(map(_said, text.splitlines()))
    # If the text has more escaped line ends than real line ends, it is a repr.
    if "\\n" in text and text.count("\\n") > text.count("\n"):
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _FOREIGN_DIGIT.sub("?", text).replace("\u00a0", " ")
    return _unwrapped(text)


def _unwrapped(text: str) -> str:
    """Join lines that were cut at a terminal's width.

    A blank line replaces each line that was joined to the line before it, so that line numbers stay
    the same.

    A line is taken as cut if it is as long as the longest line of the text. In addition, the next
    line must be shorter, and must begin with neither a prefix nor a field.
    """
    lines = text.split("\n")
    width = max(map(len, lines))
    if width not in _WIDTHS:
        return text
    cut = [i for i, line in enumerate(lines[:-1]) if len(line) == width and _CUT_OFF.search(line)]
    # An unusual width is taken as a terminal's width only if two different lines have it.
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
    # Process -> the numbers of its lines, and the lines without their prefixes.
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
