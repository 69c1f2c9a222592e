"""Reader of the messages that other projects and this package's headers print for a refused encode.

Most messages show only some of the call's numbers. These numbers are checked like printed
arguments. Documents quote the same messages although no encode failed. So a message is read only if
its line reports a failure, or shows a value that only a failed run shows. The messages of
tma_dlpack_make.hpp also show the tensor and the options. Therefore `check_call` checks the whole
call, as `check_tma_descriptor` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tma_dlpack.debug.core import (
    CORNERS,
    ENUMS,
    KIND_OF,
    OF_DRIVER,
    RARE_OPTIONS,
    RULES,
    check_view,
    counted,
    dlpack,
    dtypes,
    refusals,
    tma,
)
from tma_dlpack.debug.explain.judge import COLUMN, PrintedArguments, arguments_of, check_printed
from tma_dlpack.debug.explain.words import ARRAYS, meaning_of, member_of, tables

_TABLES: Final = tables("sentences")


class Sentence(NamedTuple):
    """A check of another project, which prints a message if it fails.

    `printer` is the project, `pattern` matches the message, and `rule` is the id of this package's
    rule for the same mistake. `source` is the file with the check.
    """

    printer: str
    pattern: re.Pattern[str]
    rule: str
    source: str


#: Name in a pattern of sentences.txt -> the regular expression that replaces the name.
_PARTS: Final = {
    "<ASSERT>": r"Assertion[^\n]{0,200}?",
    "<ERROR>": r"(?:Error|Exception|what\(\)|[Cc]heck failed)[^\n]{0,99}?"
    r"(?:TMA|[Tt]ensor ?[Mm]ap)[^\n]{0,99}?",
    "<BYTES>": r"(?:(?P<bytes>-?\d{1,24})(?=[.,;:)\]]?\s|$)(?![ \t]*[(\[<](?:\w+ed\b|\.|…))|)",
    "<16>": r"(?:multiple of 16|16[- ]?(?:bytes?|B)[- ]aligned|divisible by 16|aligned to 16)",
    "<NOT_SUPPORTED>": r" not supported(?: on \.target '\w+')?",
}


def _sentences() -> Iterator[Sentence]:
    # A row "# printer | source" comes before the rows "RULE pattern" of this printer's checks.
    printer = source = ""
    for cells in _TABLES["CHECKS"]:
        first, _, rest = cells[0].partition(" ")
        if first == "#":
            printer, source = rest, cells[1]
            continue
        for name, part in _PARTS.items():
            rest = rest.replace(name, part)
        yield Sentence(printer, re.compile(rest), first, source)


SENTENCES: Final = tuple(_sentences())


#: Rule -> the fix that is reported if the message of a check shows no wrong number.
FIXES: Final = dict(_TABLES["FIXES"])
_RULES: Final = {rule.id: rule for rule in (*RULES, *refusals.CALL_RULES)}

# Words that show that the line of a message reports a failure.
_FAILED = re.compile(
    r"error|exception|assert|failed|abort|fatal|what\(\)|terminate|^[ \t>|]*\[\d+\] ",
    re.IGNORECASE,
)
# Values that only a failed run shows. A document that quotes the message does not show
# these values.
_SHOWS_VALUE = re.compile(
    r"\bgot\b|mod\d+=\d|too large \d|Feature '|last dim must be 1|TILE_GATHER4 requires"
    r"|(?:dims|strides) [(\[]\d|\(\d+\) \* elem|\d\) must"
)
# The line that TileLang prints above the messages of its checks.
_HEADING = "Invalid TMA descriptor arguments"


def sentences_in(text: str) -> list[tuple[Sentence, re.Match[str]]]:
    """Return the checks of `SENTENCES` that failed according to the text, in the text's order."""
    found = []
    seen: set[str] = set()
    for sentence in SENTENCES:
        for match in sentence.pattern.finditer(text):
            words = " ".join(match[0].split())
            begin = text.rfind("\n", 0, match.start()) + 1
            line = text[max(begin, match.start() - 60) : match.end() + 60].partition("\n")[0]
            failed = _FAILED.search(line) or _SHOWS_VALUE.search(match[0] + line)
            below = _HEADING in text[max(0, match.start() - 600) : match.start()]
            if (failed or below) and words not in seen:
                seen.add(words)
                found.append((match.start(), sentence, match))
    return [(sentence, match) for _, sentence, match in sorted(found, key=lambda item: item[0])]


def report_of(
    sentence: Sentence, found: re.Match[str], line: int, target: tma.Target
) -> tuple[PrintedArguments, tma.Report]:
    """Return the arguments that an error message shows, and the report about these arguments."""
    # A pattern's group `bytes` is a stride, and the group `entry` is the index of the stride.
    shown, strides = found.groupdict(), None
    if shown.get("bytes"):
        entries_before = (None,) * int(shown.get("entry", 0))
        strides = (*entries_before, int(shown["bytes"]))
    read = PrintedArguments(global_strides=strides, printed_by=sentence.printer, lines=(line, line))
    report = check_printed(read, target)
    if report.violations:
        return read, report
    # If the message has no number, or the number breaks no rule, the report quotes the message.
    rule = _RULES[sentence.rule]
    violation = rule.violation(
        OF_DRIVER.get(str(rule.on), str(rule.on)),
        f"{sentence.printer} says: {' '.join(found[0].split())}",
        limit=rule.limit or f"it must {rule.asks or rule.must}",
        fix=FIXES.get(rule.id, ""),
        source=f"{sentence.printer}'s own check, {sentence.source}",
    )
    return read, tma.Report((violation,))


# -- a checked build of tma_dlpack.h --------------------------------------------------------------

_PLACE = r"-?\d{1,10}, -?\d{1,10}, -?\d{1,10}"
# The line that a kernel built with TMA_DLPACK_CHECK prints for a failed check. It has the file, the
# block, the thread, the checked call, the value, and the limit.
_DEVICE_CHECK: Final = re.compile(
    r"tma_dlpack check: (?P<file>[^\n]{1,300}?:\d{1,9}), "
    rf"block \((?P<block>{_PLACE})\), thread \((?P<thread>{_PLACE})\), "
    r"(?P<verb>[^:;\n]{1,99}): (?P<found>[^;\n]{1,300}); (?P<limit>[^\n]{1,400})"
)


def _device_fix(found: str, limit: str) -> str:
    """Return the fix of a failed device check in table DEVICE_FIXES, or `limit` if it has none."""
    words = f"{found}; {limit}"
    fixes = (
        fix for pattern, fix in _TABLES["DEVICE_FIXES"] if re.search(pattern, words, re.IGNORECASE)
    )
    return next(fixes, limit)


def device_checks(text: str) -> Iterator[tuple[int, tma.Violation]]:
    """Yield each failed device check, as its index in the text and its violation."""
    # Many threads print the same check. Their lines differ only in the block and the thread.
    failed: dict[tuple[str, ...], list[re.Match[str]]] = {}
    for match in _DEVICE_CHECK.finditer(text):
        failed.setdefault(match.group("file", "verb", "found", "limit"), []).append(match)
    for (file, verb, what, limit), matches in failed.items():
        first = matches[0]
        who = f"block ({first['block']}), thread ({first['thread']})"
        more = f" and {counted(len(matches) - 1, 'other line')}" if len(matches) > 1 else ""
        yield (
            first.start(),
            refusals.REFUSALS["DEVICE_CHECK"].violation(
                verb,
                f"{verb} in {who}{more}: {what}",
                limit=limit,
                fix=f"in {file}: {_device_fix(what, limit)}",
            ),
        )


# -- exceptions of tma_dlpack_make.hpp ------------------------------------------------------------

BEGINS = "tma_dlpack: refused: "
#: The line of a refused call. If the output has two such lines without a line end between them, the
#: match ends before the second line.
REFUSED_CALL: Final = re.compile(
    rf"{BEGINS}(?P<parts>(?:cuTensorMapEncode|rules=)(?:(?!{BEGINS})[^\n]){{0,8000}}?)"
    r"; (?:tma-dlpack|python -m tma_dlpack) explain says why"
)
_CALL = re.compile(r"(cuTensorMapEncode\w{1,20})\((.*)\)")
# name={1, 2}, name=0x7f00, name=-3 or name=True
_PAIR = re.compile(
    r"(\w{1,40})=(?:\{([^{}\n]{0,999})\}|(0x[\da-f]{1,16}|-?(?:0|[1-9]\d{0,23})|True)(?!\w))"
)
_NUMBER = re.compile(r"-?\d{1,24}")
# Rare option of the Python functions -> the form of its value, such as "flag" or "integers".
_RARE = {option.name: option.form for option in RARE_OPTIONS}
# Names whose values are lists, in addition to the driver's arrays.
_LISTS = ("dtype", "device", "box_sizes", *(n for n, form in _RARE.items() if form == "integers"))
_OPTIONS = ("elem_strides", "interleave_layout", "swizzle", "l2_fetch_size", "oobfill")
# A refusal that shows no driver call, such as a refusal of an argument of the header's function.
_LINE: Final = re.compile(rf"{BEGINS}(?!cuTensorMap|rules=)([^\n]{{1,400}})")


_NO_BITS: Final = (
    "the C++ header does not know this dtype (torch's fp4, or one newer than the header): pass a "
    "DLTensor with the dtype {17, 4, 2} for fp4, or x.view(torch.uint8) and the data type of the "
    "map; make_tma_descriptor in Python takes the tensor itself"
)


class RefusedCall:
    """The parts of the line that tma_dlpack_make.hpp prints when it refuses a call.

    `call` maps the names of the driver's arguments to the values in the line. `tensor` has the
    names and values of the part "tensor: ...", and `options` those of the part "options: ...".
    `rules` names the set of rules that the call was checked with. `why` is the remaining text, such
    as the reason why the line shows no call.
    """

    function: str
    rules: str
    why: str

    def __init__(self, parts: str) -> None:
        self.function, self.rules, self.why = "", "", ""
        self.call: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.tensor: dict[str, Any] = {}
        for part in parts.split("; "):
            name, _, rest = part.partition(": ")
            if call := _CALL.fullmatch(part):
                self.function, self.call = call[1], _pairs(call[2])
            elif part.startswith("rules="):
                self.rules = part.removeprefix("rules=")
            elif name in ("options", "tensor"):
                setattr(self, name, _pairs(rest))
            # The header's list of broken rules ("broken: ...") is skipped, because `check_call`
            # checks the call again.
            elif not part.startswith(("broken: ", "allow names ")):
                self.why = f"{self.why}; {part}" if self.why else part


def says_in(text: str) -> Iterator[tuple[int, tma.Violation]]:
    """Yield each refusal that shows no driver call, as its index in the text and its violation."""
    for line in _LINE.finditer(text):
        for pattern, argument, limit, fix in _TABLES["SAYS"]:
            if found := re.match(pattern, line[1]):
                name, what = found.expand(argument), found[0].partition(", and ")[0]
                words = {"limit": limit, "fix": fix, "source": "tma_dlpack_make.hpp"}
                yield line.start(), refusals.REFUSALS["ARGUMENT"].violation(name, what, **words)


def read_call(line: RefusedCall, number: int) -> PrintedArguments:
    """Return the driver's arguments of a refused call; all are None if the line has no call."""
    where: dict[str, Any] = {"printed_by": "tma_dlpack.h", "lines": (number, number)}
    shown: dict[str, Any] = {}
    for name, value in line.call.items():
        meaning = meaning_of(name)
        if meaning is not None:
            shown[meaning[0]] = member_of(meaning[0], value) if meaning[0] in ENUMS else value
    for corner in CORNERS:
        if f"{corner}_width" in shown:
            shown[corner] = (shown.pop(f"{corner}_width"),)
    kind = KIND_OF.get(line.function, "im2col" if CORNERS[0] in line.options else "tiled")
    known = {name: shown[name] for name in arguments_of(kind) if name in shown}
    return PrintedArguments(kind=kind, **where, **known)


def check_call(line: RefusedCall, read: PrintedArguments, target: tma.Target) -> tma.Report:
    """Check a refused call as `check_tma_descriptor` does.

    If the line does not show the tensor, only the driver's arguments are checked.
    """
    tensor, options = line.tensor, line.options
    dtype, device = tensor.get("dtype", ()), tensor.get("device", ())
    shape, strides = tensor.get("shape", ()), tensor.get("strides")
    one_each = strides is None or len(strides) == len(shape)
    if len(dtype) != 3 or len(device) != 2 or not one_each:
        return check_printed(read, target)
    (code, bits, lanes), (device_type, device_id) = dtype, device
    # A line without a call does not show the map's address, so an aligned address replaces it.
    # The map's address includes the option `offset`, which is a number of elements. The tensor's
    # address does not include it.
    address = 1 << 32 if read.global_address is None else read.global_address
    address -= options.get("offset", 0) * bits * lanes // 8
    try:
        layout = dlpack.Layout(device_type, device_id, code, bits, lanes, 0, shape, strides)
        view = dlpack.TensorView(address, *dlpack.check_layout(layout), "DLTensor")
    except tma.TmaPreconditionError as error:
        if bits == 0:  # tma_dlpack_make.hpp writes 0 bits for an unknown dtype
            return tma.Report(tuple(replace(v, fix=_NO_BITS, source="") for v in error.violations))
        return tma.Report(error.violations)
    # The Python functions' lists are outermost first, so the driver's arrays are reversed.
    given: dict[str, Any] = {"rules": line.rules, "target": target}
    for name in _OPTIONS + (("box_sizes",) if read.kind == "tiled" else COLUMN):
        value = getattr(read, OF_DRIVER.get(name, name))
        given[name] = value[::-1] if isinstance(value, tuple) else value
    # Pass the data type only if it does not follow from the tensor's dtype. -1 means that no map
    # has elements of this dtype. The option data_type replaces this value.
    own_type = dtypes.data_type_of(view.dtype)
    given["data_type"] = None if read.data_type in (-1, own_type) else read.data_type
    given |= {name: value for name, value in options.items() if name in (*given, "allow", *_RARE)}
    # Some options add dimensions, so the map may have another rank than the tensor. Then only the
    # driver's arguments are checked.
    if read.rank not in (None, len(given.get("shape") or shape)):
        return check_printed(read, target)
    if not line.call:
        given |= dict.fromkeys(_OPTIONS[1:], 0)
    return check_view(read.kind, view, given)


def _pairs(text: str) -> dict[str, Any]:
    """Return the values of all pairs ``name=value`` in a text, except values of a wrong type."""
    pairs: dict[str, Any] = {}
    for name, listed, single in _PAIR.findall(text):
        items = [item for item in listed.split(", ") if item]
        meaning = meaning_of(name)
        is_list = name in _LISTS or (meaning is not None and meaning[0] in ARRAYS)
        if name == "allow" and not single:
            pairs[name] = tuple(items)
        elif is_list and not single and all(_NUMBER.fullmatch(item) for item in items):
            pairs[name] = tuple(map(int, items))
        elif single and not is_list and (single == "True") == (_RARE.get(name) == "flag"):
            pairs[name] = single == "True" or int(single, 0)
    return pairs
