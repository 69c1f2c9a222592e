"""What the driver returned, and what was seen after the launch.

Also where projects print arguments that are not in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tma_dlpack.checks.report import Report
from tma_dlpack.debug import hexdump
from tma_dlpack.debug.explain.judge import PrintedArguments
from tma_dlpack.debug.explain.words import FORMS, tables
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.limits import HOW_TO_FIND, INNER_BYTES, STICKY

_TABLES: Final = tables("results")

# -- results of the driver ------------------------------------------------------------------------


class Result(NamedTuple):
    """A CUresult as texts show it, the driver's words for it, and what to do in an encode."""

    code: int
    name: str
    words: str
    fix: str = ""


RESULTS: Final[tuple[Result, ...]] = tuple(
    Result(int(code), f"CUDA_ERROR_{name}", *words) for code, name, *words in _TABLES["RESULTS"]
)

#: What the runtime calls these: cudaErrorIllegalAddress, ...
_RUNTIME: Final = {
    "cudaError" + r.name[11:].title().replace("_", "").replace("Failed", "Failure"): r
    for r in RESULTS
    if r.code in STICKY
}
#: Parts of the driver's words, as people repeat them.
_SAID: Final = {
    part: next(r for r in RESULTS if part in r.words)
    for part in ("illegal memory access", "illegal instruction", "launch failure")
}
#: What cuda-gdb, compute-sanitizer and the kernel's log call them.
_TOOLS_SAY: Final = {
    words: next(r for r in RESULTS if r.code == code)
    for code, said in (
        (700, ("illegal address", "out of bounds", "out of range address")),
        (715, ("illegal instruction",)),
        (716, ("misaligned address", "misaligned")),
    )
    for words in said
}
#: Words that only CUDA says; others count where the line speaks of CUDA or of a map.
_OF_CUDA_ALONE = frozenset({700, 702, 710, 714, 715, 717, 719})
_KNOWN: Final = (
    _RUNTIME
    | _SAID
    | _TOOLS_SAY
    | {key: r for r in RESULTS for key in (str(r.code), r.name, r.words)}
)


def _one_of(keys: Iterable[str]) -> str:
    """Return a pattern of any of some keys, the longest first."""
    return "(?P<key>" + "|".join(map(re.escape, sorted(keys, key=len, reverse=True))) + ")"


_ABOUT = r"(?:CUDA|cuda|Triton Error|descriptor|[Tt]ensor ?[Mm]ap)[^\n]{0,120}?\b"
#: What shows a result: a code beside a word, or alone; a name; the driver's words.
_PATTERNS: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"(?:TMA descriptor|TMA desc|tensor ?map|[Tt]ensor map|TensorMapEncode\w*|CUresult)"
        r"(?: [A-Za-z_]\w*| \d{1,3}(?=:))?(?:,? ?(?:error code|code|failed|returned|error|result))*"
        r"[ ,:=(]{1,3}(?P<key>\d{1,3})(?![\w.])",
        r"(?:CUDA|cuda|[Ll]aunch|[Kk]ernel)\w*[^\n]{0,60}?(?:error|code|result|status|returned)"
        r"\W{1,4}(?P<key>7\d\d|999)(?![\w.])",
        r"(?i:^[^\w\n]*(?:(?:error|code|status|result)[^\w\n]{1,4}){0,2})(?P<key>7\d\d|999)[^\w\n]*$",
        r"(?:^|: )(?P<key>misaligned address)[^\w\n]*$",
        _one_of([*(result.name for result in RESULTS), *_RUNTIME]),
        _ABOUT + _one_of(result.words for result in RESULTS),
        _one_of(result.words for result in RESULTS if result.code in _OF_CUDA_ALONE),
        r"(?i:(?P<key>illegal memory access))",
        r"(?i:\b(?:Warp|Lane|Device|Exception on \([^()\n]{1,60}\):) "
        r"(?P<key>illegal (?:address|instruction)|misaligned address|out of range address))",
        r"^=+ +Address 0x[\da-f]+ is (?P<key>out of bounds|misaligned)",
    )
)
LONGEST_SYMPTOM = 200  # characters of a text that only says what was seen
#: What shows a result there, in whatever sentence.
_SHORT: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"^(?!.*\bhttp).{0,80}\b(?:errors?|codes?|failed|failure|status|result|got|cuda|kernel)\b"
        r"[^\w\n]{1,3}(?:(?:with|code|error|status|is|was)[^\w\n]{1,3}){0,2}"
        r"(?P<key>7\d\d|999)(?!\w|[.,]\d|[ ]?[mun]?s\b)",
        r"^(?!.*\bcore dumped).{0,80}\b(?P<key>illegal instruction|launch failure)",
    )
)
_HANGS = re.compile(
    r"\b(?:kernel|launch|program|process|script|copy|load|wait)\b"
    r"(?:(?!\b(?:not|no longer|never hangs?)\b|n't\b)[^\n.]){0,40}?"
    r"\b(?:hangs?|hung|hanging|deadlocks?|is stuck|never (?:returns|finishes|completes|ends))\b",
    re.IGNORECASE,
)
_DOES_NOT = r"(?:not|nothing|no|never|without|\w+n't) (?:[\w']+ )?(?:hang|deadlock|stuck|freez)"
_SHORT_HANG = re.compile(
    rf"(?:(?!{_DOES_NOT})[\w']+ ){{0,6}}"
    r"(?:hangs?|hung|hanging|deadlock(?:s|ed)?|stuck|freezes"
    r"|never (?:returns|finishes|completes|ends|stops))(?: forever| sometimes| always)?[.!?]*",
    re.IGNORECASE,
)


def results_of(text: str) -> list[Result]:
    """Return the driver's results that a text shows, each once, in the order of the text.

    >>> [r.code for r in results_of("the TMA descriptor 700 ... misaligned address")]
    [700, 716]
    """
    patterns = _PATTERNS + _SHORT * (len(text.strip()) <= LONGEST_SYMPTOM)
    matches = (match for pattern in patterns for match in pattern.finditer(text))
    found = [
        (match.start(), _KNOWN.get(match["key"].lower(), _KNOWN.get(match["key"])))
        for match in matches
    ]
    found.sort(key=lambda item: item[0])
    return list(dict.fromkeys(result for _, result in found if result))


# -- after the launch -----------------------------------------------------------------------------


CAUSES: Final = _TABLES["CAUSES"]
_NO_ERROR = (
    "a wait that ends too early gives no error, and a tile that is wrong or right by luck: the "
    "barrier expects fewer bytes "
    "than arrive or waits for the other parity; the block ends with the load in flight; with a "
    "swizzle, the destination is not aligned to the pattern (1024 bytes for 128B) and the kernel "
    "indexes from its own start."
)


_POST_MORTEM = (
    "a GPU core dump names the instruction, its line and the cause, of any program without a "
    "rebuild: `python -m tma_dlpack postmortem -- PROGRAM` (of one that hangs: --after SECONDS, or "
    "Ctrl-C)"
)


def _facts(read: PrintedArguments) -> dict[str, str]:
    """Return what a map says about causes; what begins with "ruled out" excludes one."""
    facts = {"zeros": "ruled out (this map is not zeros)"}
    mode = {"tiled": "no .im2col", "im2col": "only .im2col", "im2col_wide": "only .im2col::w"}
    facts["kind"] = f"this map is {read.kind}: {mode[read.kind]} instruction may use it"
    if read.rank is not None:
        facts["rank"] = f"this map has rank {read.rank}: .{read.rank}d"
    if read.global_address is not None:
        null = "0: that is the cause" if not read.global_address else f"{read.global_address:#x}"
        facts["address"] = f"its address is {null}"
    if not isinstance(read.data_type, TensorMapDataType):
        return facts
    row = DATA_TYPES[read.data_type]
    facts["unit"] = f"with this map, a multiple of {INNER_BYTES * 8 // row.element_bits} elements"
    box, steps = read.box_dim or (), read.element_strides or ()
    if box and len(box) == len(steps) and None not in (*box, *steps):
        count = math.prod(-(-(e or 0) // (s or 1)) for e, s in zip(box, steps, strict=True))
        tx_bytes = count * row.element_bits // 8
        many = (1 << 20) // max(tx_bytes, 1) + 1
        facts["bytes"] = f"one copy through this map brings {tx_bytes} bytes"
        facts["range"] = f"one copy brings {tx_bytes} bytes: only {many} or more of them leave it"
    return facts


def symptoms_of(text: str) -> dict[str, str]:
    """Return what was seen after a launch: keys of `CAUSES`, or other codes, and the words.

    >>> symptoms_of("it is due to an illegal memory access"), symptoms_of("it hangs")
    ({'700': '700 (an illegal memory access was encountered)'}, {'hang': 'a kernel that hangs'})
    """
    symptoms = {str(r.code): f"{r.code} ({r.words})" for r in results_of(text) if r.code in STICKY}
    is_short = len(text) <= LONGEST_SYMPTOM and _SHORT_HANG.fullmatch(text.strip())
    if is_short or _HANGS.search(text):
        symptoms["hang"] = "a kernel that hangs"
    return symptoms


def launch_notes(text: str, maps: Sequence[PrintedArguments]) -> list[str]:
    """Return the causes of what was seen after a launch, most likely first.

    A map in the same text rules out some of them, and specifies others.
    """
    symptoms = symptoms_of(text)
    facts = _facts(maps[0]) if maps and all(m == maps[0] for m in maps) else {}
    notes: list[str] = []
    for symptom, words in symptoms.items():
        causes = [(*row[1:3], facts.get(row[3], "")) for row in CAUSES if row[0] == symptom]
        likely = [cause for cause in causes if not cause[2].startswith("ruled out")]
        for number, (misuse, check, fact) in enumerate(likely, 1):
            more = f" ({fact})" if fact else ""
            notes.append(f"{words}, cause {number}: {misuse}{more}; check: {check}")
        notes += [f"{words}, {fact}: {misuse}" for misuse, _, fact in causes if fact[:5] == "ruled"]
    if notes and not maps:
        notes.append("paste the map beside it, its 128 bytes or its arguments: it rules causes out")
    if "hang" in symptoms:
        notes.append(_NO_ERROR)
    if notes:
        notes.append(_POST_MORTEM)
    return notes


# -- notes on results of an encode ----------------------------------------------------------------

_IN_ORDER = "all arguments that are shown are in order. "
_INVALID_VALUE = (
    "CUDA_ERROR_INVALID_VALUE without a broken rule: look at what is not shown, whether the target "
    "is the right one, whether the CUtensorMap is aligned to 64 bytes, and whether the driver is "
    "older than the type or swizzle"
)


def result_notes(text: str, reports: Sequence[Report]) -> list[str]:
    """Explain the CUDA results that a text shows, given the verdicts on its encodes."""
    codes = {result.code: result for result in results_of(text)}
    sticky = [result for code, result in codes.items() if code in STICKY]
    clean = bool(reports) and not any(report.violations for report in reports)
    notes = []
    if sticky:
        named = " and ".join(f"{r.code} ({r.name}: {r.words})" for r in sticky)
        notes.append(
            f"{_IN_ORDER * clean}{named}: the error of an earlier kernel, which every later call "
            f"of the process returns, an encode too. {HOW_TO_FIND}"
        )
    elif clean:
        notes.append(
            f"{_IN_ORDER}Codes 700, 715, 719 and 999 (and other errors of a launch) are an earlier "
            f"kernel's, which every later call returns. {HOW_TO_FIND}"
        )
        if 1 in codes:
            notes.append(_INVALID_VALUE)
    return notes + [f"{r.code}: {r.fix}" for r in RESULTS if r.fix and r.code in codes]


def mixed_note(lines: tuple[int, int], text: str, around: str) -> str:
    """Return what to do about mixed lines, with the error codes that stand around them."""
    known = dict.fromkeys(map(_KNOWN.get, re.findall(r"(?<![\w.])\d{3}(?![\w.])", around)))
    found = [r for r in known if r and r.code in STICKY and r.name not in text]
    return (
        f"lines {lines[0]}-{lines[1]}: one log per rank, please: the output of several processes "
        "(or threads) is mixed here, or parts of lines are missing, so that no number can be "
        "trusted and none is read. Run one process, or paste one whole block."
    ) + "".join(
        f" {r.code} stands in it: if that is the result, it is {r.name} ({r.words}), the error of "
        f"an earlier kernel. {HOW_TO_FIND}"
        for r in found
    )


def where_notes(text: str, is_mixed: bool) -> list[str]:
    """Return where a known project prints its arguments, and which formats can be read.

    To a text that only says what was seen, the causes are the answer.
    """
    headings = [(p, where) for pattern, p, where in _TABLES["HEADINGS"] if re.search(pattern, text)]
    if not headings and len(text) <= LONGEST_SYMPTOM and symptoms_of(text):
        return []
    names = ", ".join(form.name for form in FORMS)
    return [
        f"{printer}: the arguments of the encode are not in the text; {where}"
        for printer, where in headings[: not is_mixed]
    ] + [
        f"what can be read: the printed arguments of an encode as {names} and others print them, "
        "name = value lines in the driver's words (globalDim, globalStrides, boxDim...), or a dump "
        f"of the map: {hexdump.FORMS}. Where a program prints none of these, "
        "`python -m tma_dlpack trace -- PROGRAM` records its encodes"
    ]


def has_symptom(text: str) -> bool:
    """Return whether a text shows a result of the driver, or says that a kernel hangs."""
    return bool(results_of(text) or symptoms_of(text))
