"""Reader of the driver's results in a text, and notes on where projects print arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tma_dlpack.checks.report import Report
from tma_dlpack.debug.explain.words import tables
from tma_dlpack.tables.targets import HOW_TO_FIND, STICKY

_TABLES: Final = tables("results")

# -- results of the driver ------------------------------------------------------------------------


class Result(NamedTuple):
    """A CUresult: its code, its name, the driver's description, and the fix for an encode."""

    code: int
    name: str
    words: str
    fix: str = ""


RESULTS: Final[tuple[Result, ...]] = tuple(
    Result(int(code), f"CUDA_ERROR_{name}", *words) for code, name, *words in _TABLES["RESULTS"]
)

#: Results by the runtime's names, such as cudaErrorIllegalAddress.
_RUNTIME: Final = {
    "cudaError" + r.name[11:].title().replace("_", "").replace("Failed", "Failure"): r
    for r in RESULTS
    if r.code in STICKY
}
#: Results by the part of the driver's description that people quote.
_PHRASES: Final = {
    part: next(r for r in RESULTS if part in r.words)
    for part in ("illegal memory access", "illegal instruction", "launch failure")
}
#: Results by the words of cuda-gdb, compute-sanitizer and the kernel log.
_TOOL_PHRASES: Final = {
    words: next(r for r in RESULTS if r.code == code)
    for code, said in (
        (
            700,
            ("illegal address", "out of bounds", "out of range address", "out-of-range address"),
        ),
        (715, ("illegal instruction",)),
        (716, ("misaligned address", "misaligned")),
    )
    for words in said
}
#: Codes whose description no other library prints. The description of any other code counts only
#: if its line also names CUDA or a tensor map.
_OF_CUDA_ALONE = frozenset({700, 702, 710, 714, 715, 717, 719})
# Results by every text that the group `key` of a pattern may match: names, phrases, codes.
_KNOWN: Final = (
    _RUNTIME
    | _PHRASES
    | _TOOL_PHRASES
    | {key: r for r in RESULTS for key in (str(r.code), r.name, r.words)}
)


def _one_of(keys: Iterable[str]) -> str:
    """Return a pattern that matches any of the keys and tries longer keys first."""
    return "(?P<key>" + "|".join(map(re.escape, sorted(keys, key=len, reverse=True))) + ")"


_ABOUT = r"(?:CUDA|cuda|Triton Error|descriptor|[Tt]ensor ?[Mm]ap)[^\n]{0,120}?\b"
#: The forms of a result: a code next to a word, or alone; a name; the driver's description.
_PATTERNS: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # "TMA descriptor 700", "cuTensorMapEncodeTiled failed: 1"
        r"(?:TMA descriptor|TMA desc|tensor ?map|[Tt]ensor map|TensorMapEncode\w*|CUresult)"
        r"(?: [A-Za-z_]\w*| \d{1,3}(?=:))?(?:,? ?(?:error code|code|failed|returned|error|result))*"
        r"[ ,:=(]{1,3}(?P<key>\d{1,3})(?![\w.])",
        # "CUDA driver error: 719"
        r"(?:CUDA|cuda|[Ll]aunch|[Kk]ernel)\w*[^\n]{0,60}?(?:error|code|result|status|returned)"
        r"\W{1,4}(?P<key>7\d\d|999)(?![\w.])",
        # a line such as "error code: 716"
        r"(?i:^[^\w\n]*(?:(?:error|code|status|result)[^\w\n]{1,4}){0,2})(?P<key>7\d\d|999)[^\w\n]*$",
        r"(?:^|: )(?P<key>misaligned address)[^\w\n]*$",
        _one_of([*(result.name for result in RESULTS), *_RUNTIME]),
        f"(?i:{_ABOUT + _one_of(result.words for result in RESULTS)})",
        f"(?i:{_one_of(result.words for result in RESULTS if result.code in _OF_CUDA_ALONE)})",
        r"(?i:(?P<key>illegal memory access))",
        # cuda-gdb: "Warp Illegal Address"; kernel log: "Exception on (...): Illegal Instruction"
        r"(?i:\b(?:Warp|Lane|Device|Exception on \([^()\n]{1,60}\):) "
        r"(?P<key>illegal (?:address|instruction)|misaligned address|out[ -]of[ -]range address))",
        # compute-sanitizer: "========= Address 0x7f00 is out of bounds"
        r"(?<!=)={3,} +(?:Address|Access)(?: (?:at|to|address))? 0x[\da-f]+ is "
        r"(?P<key>out of bounds|misaligned)",
    )
)
# Maximum number of characters of a text that only names a failure.
LONGEST_SYMPTOM = 200
#: The forms of a result in such a short text: "got 719", "it dies with an illegal instruction".
_SHORT: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"^(?!.*\bhttp).{0,80}\b(?:errors?|codes?|failed|failure|status|result|got|cuda|kernel)\b"
        r"[^\w\n]{1,3}(?:(?:with|code|error|status|is|was)[^\w\n]{1,3}){0,2}"
        r"(?P<key>7\d\d|999)(?!\w|[.,]\d|[ ]?[mun]?s\b)",
        r"^(?![\s\S]*\b(?:core dumped|signal|SIGILL)\b).{0,80}"
        r"\b(?P<key>illegal instruction|launch failure)",
    )
)


def places_of(text: str) -> dict[Result, int]:
    """Return the driver's results that a text shows, each with its first place, in order."""
    patterns = _PATTERNS + _SHORT * (len(text.strip()) <= LONGEST_SYMPTOM)
    matches = (match for pattern in patterns for match in pattern.finditer(text))
    # The keys of `_KNOWN` are phrases in lower case, and names in CUDA's spelling.
    found = [
        (match.start(), _KNOWN.get(match["key"].lower(), _KNOWN.get(match["key"])))
        for match in matches
    ]
    places: dict[Result, int] = {}
    for place, result in sorted(found, key=lambda item: item[0]):
        if result:
            places.setdefault(result, place)
    return places


def results_of(text: str) -> list[Result]:
    """Return the driver's results that a text shows, each once, in the order of the text.

    >>> [r.code for r in results_of("the TMA descriptor 700 ... misaligned address")]
    [700, 716]
    """
    return [*places_of(text)]


# -- notes on results of an encode ----------------------------------------------------------------

_IN_ORDER = "all arguments that are shown are in order. "
_INVALID_VALUE = (
    "CUDA_ERROR_INVALID_VALUE without a broken rule: look at what is not shown, whether the target "
    "is the right one, whether the CUtensorMap is aligned to 64 bytes, and whether the driver is "
    "older than the type or swizzle"
)


def result_notes(text: str, reports: Sequence[Report]) -> list[str]:
    """Return notes that explain the CUDA results in a text, given the reports on its encodes."""
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
    """Return a note on mixed lines: what to do, and the meaning of error codes near them."""
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
    """Return a note on where a project prints the arguments that are missing in the text.

    The note is about the first heading that matches. A mixed text has another note instead.
    """
    headings = [(p, where) for pattern, p, where in _TABLES["HEADINGS"] if re.search(pattern, text)]
    return [
        f"{printer}: the arguments of the encode are not in the text; {where}"
        for printer, where in headings[: not is_mixed]
    ]
