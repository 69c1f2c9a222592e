"""One way to write things: split a log by process, and normalise its lines for the reader.

Prefixes of loggers, colours, casts and types around numbers go; hexadecimal numbers become decimal
ones, and a number that is masked, broken or in another unit becomes ``?``. A call of the driver in
pasted source becomes ``name=value``, with the values that its arrays were declared with.
"""

from __future__ import annotations

import bisect
import inspect
import math
import re
from itertools import accumulate
from typing import Final

from tma_dlpack.cli.explain.words import MULTI_WORD, NAMED, STRONG, WEAK, meaning_of
from tma_dlpack.make.driver_words import (
    driver_encode_im2col,
    driver_encode_im2col_wide,
    driver_encode_tiled,
)

# -- lines and processes --------------------------------------------------------------------------

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STAMP = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]?"
_PREFIX = re.compile(
    rf"(?:\[(?=[^\]\n]*[A-Za-z])[^\]\n]{{1,80}}\]:?|{_STAMP}"
    r"|\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d[\d.,]*|\[\d{1,4},\d{1,4}\]<std(?:err|out)>:?"
    r"|(?:INFO|WARN|WARNING|ERROR|DEBUG|FATAL|CRITICAL|std(?:err|out))\b:?[FP]?"
    r"|\((?=[^)\n]*[A-Za-z])(?=[^)\n]*(?:[\d_]|rank|pid))[^()\n]{1,80}\)"
    r"|[A-Za-z_][\w.-]{0,60}[ \t]*\|(?=[ \t])|\||\d{1,5}:(?=[ \t])|>|#(?=\s)|E(?=[ \t]{2}))[ \t]*"
)
_ARGUMENTS = STRONG.keys() | WEAK.keys()  # of a table, and nobody's name
_PROCESS = re.compile(
    r"(?:rank|pid|worker|engine|core|gpu|node|proc|device|\b[TDPE]P)[^\d\n]{0,12}\d|<std|\|"
    r"|^\d{1,5}:",
    re.IGNORECASE,
)


class Lines:
    """Lines with their numbers in the log, and the process that wrote them, if they name it."""

    def __init__(self, numbered: list[tuple[int, str]], process: str = "") -> None:
        self.numbered, self.process = numbered, process
        self.text = "\n".join(line for _, line in numbered)
        self._starts = [0, *accumulate(len(line) + 1 for _, line in numbered)]

    def line_at(self, place: int) -> int:
        """Return the number of the line at a place of `text`."""
        return self.numbered[bisect.bisect_right(self._starts, place) - 1][0]


def plain(text: str) -> str:
    """Return a text without colours, with plain blanks and line ends; a repr as what it shows."""
    if "\\n" in text and text.count("\\n") > text.count("\n"):
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    return _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def streams_of(numbered: list[tuple[int, str]]) -> list[Lines]:
    """Split numbered lines by the process that each names, and normalise them."""
    streams: dict[str, tuple[list[int], list[str]]] = {}
    for number, line in numbered:
        process, content = _split_prefix(line)
        numbers, lines = streams.setdefault(process, ([], []))
        numbers.append(number)
        lines.append(content)
    normal = {process: _normal("\n".join(lines)) for process, (_, lines) in streams.items()}
    return [
        Lines([*zip(numbers, normal[process].split("\n"), strict=True)], process)
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
        if _PROCESS.search(prefix[0]):
            process += re.sub(_STAMP[3:-3], "", prefix[0]).strip()
        at = prefix.end()
    return process, line[at:]


# -- one way to write things ----------------------------------------------------------------------

_BYTES = {"double": 8, "float": 4, "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2}


def _digits(found: re.Match[str]) -> str:
    return re.sub(r"\D", "", found[0])


def _product(found: re.Match[str]) -> str:
    return str(math.prod(map(int, re.findall(r"\d{1,24}", found[0]))))


def _bracketed(found: re.Match[str]) -> str:
    """Write numbers under or beside each other as a list, on as many lines."""
    numbers = re.findall(r"\d+", found[0])
    return f" [{', '.join(numbers)}]" + "\n" * found[0].count("\n")


def _number(found: re.Match[str]) -> str:
    """Write a number in decimal; ? where it is masked, has a unit or a fraction."""
    clean = re.fullmatch(r"([-+]?(?:0[xX][\da-fA-F]{1,16}|(?!0\d)\d{1,24}))[uUlL]{0,3}", found[0])
    if clean:
        return str(int(clean[1], 0))
    is_name = re.fullmatch(r"\d{1,4}(?![KMGk](?:i?B)?\b)[A-WYZa-wyz]\w*", found[0])
    return found[0] if is_name else "?"  # such as 64B, 2D, 16U4_ALIGN8B


#: What is written in several ways, and how the reader expects it. No row adds or removes a line.
_NORMAL: Final = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        ("\xa0(?!\\d)", " "),
        ("(?<![\\w.'])\\d{1,3}(?:[_'’\xa0\u2009\u202f]\\d{3})+(?![\\w'’])", _digits),
        (r"(?<![\w.,])\d{1,3}(?:,\d{3})*,0\d\d(?:,\d{3})*(?!\w)", "?"),  # no entry begins with 0
        (MULTI_WORD.pattern, r"\1_\2"),
        (r"\*\*(?=[A-Za-z])|(?<=[A-Za-z])\*\*|[\"`]|(?<!\d)'", " "),
        (r"\((?:const )?(?:CU|cu|u?int|size_t|unsigned|long)[\w: ]*\*?\)[ \t]*(?=-?\d)", ""),
        (r"<[\w.]+(?::[ \t]*| )(-?\d{1,24})>|\b(?:cuuint\d\d_t|u?int\d*(?:_t)?)\((\d+)\)", r"\1\2"),
        (r"\bsizeof\s?\(\s?(\w+)\s?\)", lambda m: str(_BYTES.get(m[1], m[0]))),
        (r"(?<![\w.*])\d{1,24}(?:(?: \* |\*)\d{1,24})+\b(?!\*)", _product),
        (r"[A-Za-z_][\w.:]{0,40}\(([\[({][^\[\](){}]{0,300}[\])}])\)", r"\1"),  # torch.Size([1])
        (r"(?:[\w:]{1,20} of )?(?:size|length|len|count)[ =:]{1,3}\d+[,\w =]{0,20}?(?=[\[({])", ""),
        (r"(?<=[:= ])\d{9,20}[ \t]+(?=[\[({])", ""),  # the address of the list behind it
        (r"(?:[ \t]{0,9}\n[ \t]{0,99}-[ \t]+\d{1,20}(?=[ \t]*$)){1,8}", _bracketed),
        (r"\bouter_stride(?=: [\d ]+, swizzle: \d+ elem)", "outer_stride (bytes)"),
        (r"(?<![\w.])[1-9]\d{0,9}(?:(?:[ \t][x×][ \t]|[x×])\d{1,10})+\b", _bracketed),
        # addresses: null, what people write in place of one, hex digits alone
        (r"\(nil\)|\b(?:nullptr|NULL)\b|(?<=(?:ptr|ess)[ =:][ =:])None\b|(?<=ess=)None\b", "0"),
        (r"(?i)\b(?:0x)?(?:dead|beef|cafe|babe|feed|face|abcdef)[\da-f]*\b|\b0x(?:1234|f)+\b", "?"),
        (
            r"(?<![\w.])(?=[a-fA-F]*\d)(?:0000|(?=\d*[a-fA-F]))[\da-fA-F]{8,16}(?![\w*?#…]|\.\.)",
            lambda m: str(int(m[0], 16)),
        ),
        # numbers, and those that are not read: masked, with a unit, broken by a terminal's width
        (r"(?<![\w.])[-+]?\d(?:[\w*?#…%]|[.'’](?=[\w*.…]))*(?:[ \t]?[KMG](?:i?B)?\b)?", _number),
        (r"(?<![\w.*])(?:0[xX])?(?:\*{2,}|#{2,}|\?+|[xX]{2,}|…|\.{3}|<[a-z]+>)(?!\w)", "?"),
        (r"(?<![\w.?])-?\d+(?=(?:[ \t]{0,99}\n){1,4}[ \t]*(?:[xX]?[\da-fA-F]{1,16}\b|\?))", "?"),
    )
)  # fmt: skip


def _normal(text: str) -> str:
    text = _with_names(text)
    for pattern, replacement in _NORMAL:
        text = pattern.sub(replacement, text)
    return text


# -- calls in pasted source -----------------------------------------------------------------------

_CALL = re.compile(
    r"cuTensorMapEncode(?:Tiled|Im2col(?:Wide)?)\b[\w:]*\)?\s*"
    r"\((?P<passed>(?:[^()\[\]{}]|[(\[{][^()\[\]{}]*[)\]}]){1,2000})\)"
)
_COMMA = re.compile(r",(?![^()\[\]{}]*[)\]}])")  # not within brackets
_NO_VALUE = re.compile(r"[;=]|^\w+\s*:(?!:)|\w\s+\w")  # a name, a declaration, another line
_ARRAY = re.compile(r"&?([A-Za-z_]\w*)(?:\.data\(\)|\[0\])?(?:\s*\+\s*(\d))?")
_CONSTANT = r"\b{}\s*(?:=\s*|\s)(\d+)\s*(?:[;,\n)]|$)"
_DECLARED = r"\b{}\s*(?:\[[^\]\n]*\])?\s*=?\s*[\[{{]([^\]}}]*)"
FAR = 8_000  # characters from a declaration to the call
_DRIVER_ARGUMENTS = tuple(
    tuple(inspect.signature(encode).parameters)[:-2]  # without target and encoder
    for encode in (driver_encode_im2col_wide, driver_encode_im2col, driver_encode_tiled)
)
_NAMES_OF = {len(names) + n: names for names in _DRIVER_ARGUMENTS for n in (0, 1)}


def _with_names(text: str) -> str:
    """Return source in which each call of the driver has the names and values of its arguments."""
    edits: dict[tuple[int, int], str] = {}
    for call in _CALL.finditer(text):
        passed = [a.strip() for a in _COMMA.split(call["passed"])]
        names = _NAMES_OF.get(len(passed), ())  # with the map before them, or without it
        passed = passed[-len(names) :]
        meanings = [meaning_of(name) or ("",) for name in names]
        lost = any(
            "CU_TENSOR_MAP" in a and m[0] not in NAMED
            for a, m in zip(passed, meanings, strict=False)
        )
        if lost or any(map(_NO_VALUE.search, passed)):
            continue
        written = []
        for name, words in zip(names, passed, strict=False):
            value, declared = _passed(text, call.start(), words)
            edits |= dict.fromkeys(declared, "_")
            written += [f"{name}={value}"] if re.search(r"\d|CU_|NULL|nullptr", value) else []
        edits[call.span("passed")] = ", ".join(written) or call["passed"]
    for (start, end), words in sorted(edits.items(), reverse=True):
        lines = text.count("\n", start, end) - words.count("\n")
        text = text[:start] + words + "\n" * lines + text[end:]
    return text


def _passed(text: str, place: int, words: str) -> tuple[str, list[tuple[int, int]]]:
    """Return an argument with the numbers of its names, and where its array is declared."""
    first = max(0, place - FAR)
    source, array, declared = text[first:place], _ARRAY.fullmatch(words), []
    if array:
        declared = [*re.finditer(_DECLARED.format(array[1]), source)][-1:]
    for found in declared:
        entries = found[1].split(",")[int(array[2] or 0) if array else 0 :]
        words = f"{{{','.join(entries)}}}"

    def number(name: re.Match[str]) -> str:
        values = set(re.findall(_CONSTANT.format(name[0]), source))
        return values.pop() if len(values) == 1 and not name[0].startswith("CU") else name[0]

    places = [(first + found.start(), first + found.end()) for found in declared]
    return re.sub(r"\b[A-Za-z_]\w*", number, words), places
