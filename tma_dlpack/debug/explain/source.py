"""Calls of the driver in pasted source code, as ``name=value``.

`with_names` writes the arguments of each call with the driver's names. The values come from the
declarations of arrays and constants, but only if no other code may change them.
"""

from __future__ import annotations

import bisect
import inspect
import itertools
import re
from typing import Final

from tma_dlpack.debug.core import ENUMS, tma

#: Arguments that may be printed as a name.
NAMED: Final = frozenset({*ENUMS, "mode", "padding"})

_CALL = re.compile(
    r"cuTensorMapEncode(?:Tiled|Im2col(?:Wide)?)\b[\w:]*\)?\s*"
    r"\((?P<passed>(?:[^()\[\]{}]|[(\[{][^()\[\]{}]*[)\]}]){1,2000})\)"
)
# A comma outside of brackets.
_COMMA = re.compile(r",(?![^()\[\]{}]*[)\]}])")
# Text that is not the value of an argument, such as a declaration, "name: value" or two words.
_NO_VALUE = re.compile(r"[;=]|^\w+\s*:(?!:)|\w\s+\w")
# An array that is passed as an argument: "dims", "&dims[0]", "dims.data()", "strides + 1".
_ARRAY = re.compile(r"&?([A-Za-z_]\w*)(?:\.data\(\)|\[0\])?(?:\s*\+\s*(\d))?")
# Comments, and the directives that begin and end the branches of #if.
_NO_CODE = re.compile(
    r"(?<!:)//[^\n]*|(?<!\w)/\*.*?(?:\*/|\Z)|^#(?:if|el(?=se|if)|en(?=dif))",
    re.DOTALL | re.MULTILINE,
)
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"?")
# A branch of #if becomes a block in braces, because both hide what they declare.
_BRACES = {"#if": "{  ", "#el": "}{ ", "#en": "}  "}
# Definitions of constants, "#define TILE 64" and "const int M = 4096, N = 64;", and each constant.
_CONSTANTS = re.compile(
    r"^#define[ \t]+\w+[ \t]+\d+[ \t]*$"
    r"|(?:^|(?<=[;{}]))"
    r"(?=[^=;(){}\n]*(?:\b(?:static|const|constexpr|unsigned|int|long|short|auto)|_t)\b)"
    r"[^;(){}<>\n]*;",
    re.MULTILINE,
)
_CONSTANT = re.compile(r"\b([A-Za-z_]\w*)(?:[ \t]*=[ \t]*|[ \t]+)(\d+)[ \t]*(?:[,;]|$)")
# Patterns of uses of a name, which replaces {0}. `_DECLARED` matches "dims[2] = {64, 128}" and
# "dims[0] = 64;". `_BOUND` matches all places that declare a constant or change its value, and
# `_CHANGED` matches the places that may change an array.
_DECLARED = (
    r"\b{0}\s*(?:\[\s*(?P<index>[^\]\n]{{0,80}}?)\s*\])?\s*(?:(?:=\s*[\[{{]|\{{)"
    r"(?P<list>(?:[^()\[\]{{}};]|[(\[{{][^()\[\]{{}}]*[)\]}}])*)[\]}}](?=[ \t]*(?:[;,#\n]|\Z))"
    r"|=(?!=)\s*(?P<entry>[^;{{}}\n]+);)"
)
_SETS = r"\s*(?:(?:[-+*/%|&^]|<<|>>)?=(?!=)|\+\+|--)"
_BOUND = rf"(?:\w[>&*]*(?<!\breturn)\s+|&|\+\+|--|>>\s*){{0}}\b|\b{{0}}{_SETS}"
_CHANGED = (
    rf"(?:&|\+\+|--|>>\s*){{0}}\b|\b{{0}}\b(?!\s*\[)|\b{{0}}\s*\[[^;\n]{{{{0,200}}}}?\]{_SETS}"
)
# Code of C with arrays, which `read` would take for a printout: a declaration, an assignment to an
# entry, and an entry in an expression.
_ARRAY_CODE = re.compile(
    r"\b(?:\w+_t|unsigned|int|long)>?\s+\w+\s*[\[(](?:[^;{}]|\{[^;{}]*\}){0,1000};"
    r"|\b\w+\s*\[[^\]\n]{0,80}\]\s*=(?!=)[^;\n]*;"
    r"|\b\w+\s*\[\s*\w{1,40}\s*\](?=\s*(?:[+*/%<>,;)&!?]|==|\|\|))"
)
# Maximum number of characters between a declaration and the call that uses it.
FAR = 8_000
# Maximum number of calls that are read in a pasted source.
MOST_CALLS = 200
_DRIVER_ARGUMENTS = tuple(
    tuple(inspect.signature(encode).parameters)[:-2]  # without target and encoder
    for encode in (tma.driver_encode_im2col_wide, tma.driver_encode_im2col, tma.driver_encode_tiled)
)
# Number of arguments of a call, with or without CUtensorMap* -> the names of the parameters.
_NAMES_OF = {len(names) + n: names for names in _DRIVER_ARGUMENTS for n in (0, 1)}


def with_names(text: str) -> str:
    """Return source code in which driver calls show the names and values of their arguments."""
    if "cuTensorMapEncode" not in text:
        return text
    log = text
    text = _NO_CODE.sub(_blank, text)
    source = _Source(text)
    # (start, end) in the text -> the new words. The edits are applied from the end of the
    # text to its start, so that the indices of the remaining edits stay valid.
    edits: dict[tuple[int, int], str] = {}
    for call in itertools.islice(_CALL.finditer(text), MOST_CALLS):
        passed = [a.strip() for a in _COMMA.split(call["passed"])]
        names = _NAMES_OF.get(len(passed), ())
        pairs = [*zip(names, passed[-len(names) :], strict=False)]
        if any(
            _NO_VALUE.search(a) or ("CU_TENSOR_MAP" in a and n.removeprefix("tensor_") not in NAMED)
            for n, a in pairs
        ):
            continue  # the call is not complete, so arguments would get wrong names
        written = []
        for name, words in pairs:
            value, declared = _passed(source, call.start(), words)
            # Remove a declaration such as "dims = [64, 128]", because it would be read as a second
            # printout.
            edits |= dict.fromkeys(declared, "_")
            written += [f"{name}={value}"] if re.search(r"\d|CU_|NULL|nullptr", value) else []
        if written:
            edits[call.span("passed")] = ", ".join(written)
    if not edits:
        return log
    text = _ARRAY_CODE.sub(_blank, text)
    for (start, end), words in sorted(edits.items(), reverse=True):
        text = text[:start] + words + "\n" * text.count("\n", start, end) + text[end:]
    return text


def _blank(found: re.Match[str]) -> str:
    return _BRACES.get(found[0]) or re.sub(r"[^\n]", " ", found[0])


class _Source:
    """Source code without strings, its constants, and the ends of its blocks in braces."""

    def __init__(self, code: str) -> None:
        self.text = _STRING.sub(_blank, code)
        # Name -> the place and the value of each definition.
        self.constants: dict[str, list[tuple[int, str]]] = {}
        for statement in _CONSTANTS.finditer(self.text):
            for name, value in _CONSTANT.findall(statement[0]):
                self.constants.setdefault(name, []).append((statement.start(), value))
        braces = [*re.finditer("[{}]", self.text)]
        self._places = [brace.start() for brace in braces]
        # The places of the braces, and the end of the innermost block around the text before each.
        self._ends, open_ends = [len(code)], [len(code)]
        for brace in reversed(braces):
            if brace[0] == "}":
                open_ends.append(brace.start())
            elif len(open_ends) > 1:
                open_ends.pop()
            self._ends.append(open_ends[-1])
        self._ends.reverse()

    def is_visible(self, definition: int, place: int) -> bool:
        """Return whether a definition is before a place, near it, and in a block around it."""
        is_near = place - FAR <= definition < place
        return is_near and self._ends[bisect.bisect(self._places, definition)] >= place


def _passed(source: _Source, place: int, words: str) -> tuple[str, list[tuple[int, int]]]:
    """Return an argument with numbers in place of names, and the span of an array's declaration.

    A name is replaced only if all its definitions are visible at the call and equal.
    """
    spans: list[tuple[int, int]] = []
    if array := _ARRAY.fullmatch(words):
        entries, spans = _entries(source, place, array[1])
        words = f"{{{','.join(entries[int(array[2] or 0) :])}}}" if entries else words

    def number(name: re.Match[str]) -> str:
        known = source.constants.get(name[0], ())
        values = [value for at, value in known if source.is_visible(at, place)]
        before = source.text[max(0, place - FAR) : place] if values else ""
        bound = re.findall(_BOUND.format(name[0]), before)
        is_known = len({*values}) == 1 and len(values) == len(bound)
        return values[0] if is_known and not name[0].startswith("CU") else name[0]

    words = re.sub(r"(?<![\w.>:])[A-Za-z_]\w*", number, " ".join(words.split()))
    return words, spans


def _entries(source: _Source, place: int, name: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Return an array's entries at a call, and the span of the array's last declaration.

    The declarations after the call before this call are used, or else the last declarations. If
    the declarations differ, or if other code may change the array, no entries are returned.
    """
    found = re.compile(_DECLARED.format(name)).finditer(source.text, max(0, place - FAR), place)
    declared = [d for d in found if source.is_visible(d.start(), place)]
    if not declared:
        return [], []
    call = source.text.rfind("cuTensorMapEncode", 0, declared[-1].start())
    declared = [d for d in declared if d.start() > call]
    ends = [*(d.start() for d in declared[1:]), place]
    rest = "".join(source.text[d.end() : end] for d, end in zip(declared, ends, strict=True))
    lists, entries = {d["list"] for d in declared}, {d["index"]: d["entry"] for d in declared}
    indices = [str(i) for i in range(len(declared))]
    values: list[str] = []
    if not re.search(_CHANGED.format(name), _CALL.sub("", rest)):
        if lists == {None} and entries.keys() == {*indices}:
            values = [entries[index] for index in indices]
        elif len(lists) == 1 and None not in lists:
            values = _COMMA.split(declared[0]["list"])
    return values, [declared[-1].span()]
