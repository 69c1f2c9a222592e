"""Finder of the failures that a text shows, with their causes and the next steps.

A failure is an error code of the driver, such as 719, or a symptom, such as a hang. To add a
failure, add a block to failures.txt and a text to tests/golden/failures.json. The function
`places_of` recognises the driver's error codes and their names. All other failures are recognised
by the patterns of their blocks in failures.txt. A hang is also recognised by `_HANGS` and
`_SHORT_HANG`. `where_notes` explains where projects print an encode's arguments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tma_dlpack.debug.core import dtypes, targets, tma
from tma_dlpack.debug.explain.judge import PrintedArguments
from tma_dlpack.debug.explain.words import tables

_OF_RESULTS: Final = tables("results")

# -- results of the driver ------------------------------------------------------------------------


class Result(NamedTuple):
    """A CUresult: its code, name and description, and the fix if an encode returns this result."""

    code: int
    name: str
    words: str
    fix: str = ""


RESULTS: Final[tuple[Result, ...]] = tuple(
    Result(int(code), f"CUDA_ERROR_{name}", *words) for code, name, *words in _OF_RESULTS["RESULTS"]
)

#: Name of an error in the CUDA runtime (such as cudaErrorIllegalAddress) -> the driver's `Result`.
_RUNTIME: Final = {
    "cudaError" + r.name[11:].title().replace("_", "").replace("Failed", "Failure"): r
    for r in RESULTS
    if r.code in targets.STICKY
}
#: A part of a driver's description that people often quote -> the `Result` with this description.
_PHRASES: Final = {
    part: next(r for r in RESULTS if part in r.words)
    for part in ("illegal memory access", "illegal instruction", "launch failure")
}
#: Words that cuda-gdb, compute-sanitizer or the kernel log print for an error -> the `Result` of
#: this error.
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
#: Codes whose descriptions only CUDA prints. These descriptions are recognised on every line. The
#: description of any other code is recognised only if its line also names CUDA or a tensor map.
_OF_CUDA_ALONE = frozenset({700, 702, 710, 714, 715, 717, 719})
# Every name, phrase or code that the group `key` of a pattern may match -> its `Result`.
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
#: Patterns of a `Result` in a text: a code after a word, a code that is alone on its line, a name,
#: or the driver's description.
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
# A text of at most this number of characters may be a failure in a user's own words. Only such a
# text is searched with the patterns `_SHORT` and `_SHORT_HANG`.
LONGEST_SYMPTOM = 200
#: More patterns of a `Result`, for texts of at most `LONGEST_SYMPTOM` characters: "got 719", "it
#: dies with an illegal instruction".
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
    """Return each CUresult in a text -> the index of its first mention, in ascending order."""
    patterns = _PATTERNS + _SHORT * (len(text.strip()) <= LONGEST_SYMPTOM)
    matches = (match for pattern in patterns for match in pattern.finditer(text))
    # The keys of `_KNOWN` are phrases in lower case, and names in CUDA's spelling. So each match is
    # looked up in lower case first, and then unchanged.
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


def result_notes(text: str, reports: Sequence[tma.Report]) -> list[str]:
    """Return notes on the CUresults in a text; `reports` has the reports on the text's encodes."""
    codes = {result.code: result for result in results_of(text)}
    sticky = [result for code, result in codes.items() if code in targets.STICKY]
    clean = bool(reports) and not any(report.violations for report in reports)
    notes = []
    if sticky:
        named = " and ".join(f"{r.code} ({r.name}: {r.words})" for r in sticky)
        notes.append(
            f"{_IN_ORDER * clean}{named}: the error of an earlier kernel, which every later call "
            f"of the process returns, an encode too. {targets.HOW_TO_FIND}"
        )
    elif clean:
        notes.append(
            f"{_IN_ORDER}Codes 700, 715, 719 and 999 (and other errors of a launch) are an earlier "
            f"kernel's, which every later call returns. {targets.HOW_TO_FIND}"
        )
        if 1 in codes:
            notes.append(_INVALID_VALUE)
    return notes + [f"{r.code}: {r.fix}" for r in RESULTS if r.fix and r.code in codes]


def mixed_note(lines: tuple[int, int], text: str, around: str) -> str:
    """Return a note on lines in which the output of several processes is mixed.

    The note says why these lines are not read, and explains error codes near these lines.
    """
    known = dict.fromkeys(map(_KNOWN.get, re.findall(r"(?<![\w.])\d{3}(?![\w.])", around)))
    found = [r for r in known if r and r.code in targets.STICKY and r.name not in text]
    return (
        f"lines {lines[0]}-{lines[1]}: one log per rank, please: the output of several processes "
        "(or threads) is mixed here, or parts of lines are missing, so that no number can be "
        "trusted and none is read. Run one process, or paste one whole block."
    ) + "".join(
        f" {r.code} stands in it: if that is the result, it is {r.name} ({r.words}), the error of "
        f"an earlier kernel. {targets.HOW_TO_FIND}"
        for r in found
    )


def where_notes(text: str, is_mixed: bool) -> list[str]:
    """Return at most one note, on where a project prints the arguments that the text lacks.

    The note comes from the first row of table HEADINGS (results.txt) whose pattern matches. If
    `is_mixed` is true, there is no note, because `mixed_note` explains a mixed text.
    """
    headings = [
        (p, where) for pattern, p, where in _OF_RESULTS["HEADINGS"] if re.search(pattern, text)
    ]
    return [
        f"{printer}: the arguments of the encode are not in the text; {where}"
        for printer, where in headings[: not is_mixed]
    ]


# -- failures and their causes --------------------------------------------------------------------

# This id in `Failure.replaced_by` stands for the arguments of an encode. If a text shows such
# arguments, the failure is dropped, because the report on the encode replaces the failure's causes.
ENCODE = "encode"
# The value of `Failure.source` for failures whose causes were measured.
_MEASURED = "measured, H200"
# The pattern `Cause.named` is searched in this number of characters before and after the failure.
_NEAR = 2_000
_LONG = 1 << 15  # characters
_LONGEST_EVIDENCE = 90  # characters


class Cause(NamedTuple):
    """A cause of a failure.

    `misuse` is the program's mistake, and `check` describes how to find this mistake. `fact` is a
    key of the dict that `_facts` returns, or "". `named` matches words of a log that name this
    cause.
    """

    misuse: str
    check: str
    fact: str = ""
    named: re.Pattern[str] | None = None


class Failure(NamedTuple):
    """A failure, its causes and the next step: one block of failures.txt.

    `words` is the failure's name in messages, and `patterns` recognise the failure in a text. If a
    failure whose id is in `replaced_by` is also found, this failure is dropped.
    """

    id: str
    words: str
    step: str
    source: str
    replaced_by: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    causes: tuple[Cause, ...]


# Name in braces in failures.txt (such as {trace}) -> the text that replaces the name.
_STEPS: Final = {
    "trace": "`tma-dlpack trace -- PROGRAM`",
    "doctor": "`tma-dlpack doctor`",
    "suggest": "`tma-dlpack suggest --shape ... --dtype ... --tile ...`",
    "one_call": 'read the guide "one call", whose examples pass a map to each framework\'s kernels',
    "postmortem": "a GPU core dump names the instruction, its line and the cause, of any program "
    "without a rebuild: `tma-dlpack postmortem -- PROGRAM` (of one that hangs: --after SECONDS, or "
    "Ctrl-C)",
}


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.MULTILINE)


def _cause(misuse: str, check: str, fact: str = "", named: str = "") -> Cause:
    return Cause(misuse, check, fact, _pattern(named) if named else None)


def _failures() -> Iterator[Failure]:
    # A block is a list of rows: a row "# id | ...", then rows "? pattern" and rows of causes. A row
    # is a list of cells.
    blocks: list[list[list[str]]] = []
    for cells in tables("failures")["FAILURES"]:
        if cells[0].startswith("# "):
            blocks.append([])
        blocks[-1].append(cells)
    for (name, words, step, source, *replaced), *lines in blocks:
        # A pattern may contain " | ", at which `tables` splits rows. So the cells are joined again.
        patterns = [" | ".join(cells)[2:] for cells in lines if cells[0].startswith("? ")]
        causes = [_cause(*cells) for cells in lines if not cells[0].startswith("? ")]
        yield Failure(
            name[2:], words, step.format_map(_STEPS), source,
            frozenset(" ".join(replaced).split()), tuple(map(_pattern, patterns)), tuple(causes),
        )  # fmt: skip


FAILURES: Final = {failure.id: failure for failure in _failures()}

# Matches "the kernel hangs", but not "the kernel no longer hangs".
_HANGS = re.compile(
    r"\b(?:kernel|launch|program|process|script|copy|load|wait)\b"
    r"(?:(?!\b(?:not|no longer|never hangs?)\b|n't\b)[^\n.]){0,40}?"
    r"\b(?:hangs?|hung|hanging|deadlocks?|is stuck|never (?:returns|finishes|completes|ends))\b",
    re.IGNORECASE,
)
_DOES_NOT = r"(?:not|nothing|no|never|without|\w+n't) (?:[\w']+ )?(?:hang|deadlock|stuck|freez)"
# A pattern that must match the whole of a short text, such as "it hangs sometimes".
_SHORT_HANG = re.compile(
    rf"(?:(?!{_DOES_NOT})[\w']+ ){{0,6}}"
    r"(?:hangs?|hung|hanging|deadlock(?:s|ed)?|stuck|freezes"
    r"|never (?:returns|finishes|completes|ends|stops))(?: forever| sometimes| always)?[.!?]*",
    re.IGNORECASE,
)


class FoundFailure(NamedTuple):
    """A failure that a text shows, and the index of the failure's first character in the text."""

    failure: Failure
    place: int


def distinct_lines(text: str) -> str:
    """Return a long text without repeated lines, and a short text unchanged."""
    return text if len(text) <= _LONG else "\n".join(dict.fromkeys(text.split("\n")))


def failures_in(text: str, replacing: Iterable[str] = ()) -> list[FoundFailure]:
    """Return the failures that a text shows, in the order of the text.

    A failure is dropped if its `replaced_by` contains the id of another found failure, or an id in
    `replacing`, such as `ENCODE`.

    >>> [seen.failure.id for seen in failures_in("illegal memory access ... the kernel hangs")]
    ['700', 'hang']
    """
    # `found`: id of a failure -> the index of its first mention. `others`: id -> the `Failure` for
    # an error code that has no block in failures.txt.
    found: dict[str, int] = {}
    others: dict[str, Failure] = {}
    for result, place in places_of(text).items():
        code = str(result.code)
        # Error code 1 is recognised only by the stricter patterns of its block in failures.txt,
        # because any library may print "invalid argument".
        if code in FAILURES and code != "1":
            found[code] = place
        elif result.code in targets.STICKY:
            words = f"{code} ({result.words})"
            others[code] = Failure(code, words, "", "", frozenset(), (), ())
            found[code] = place
    for failure in FAILURES.values():
        matches = (pattern.search(text) for pattern in failure.patterns)
        if places := [match.start() for match in matches if match]:
            found[failure.id] = min(*places, found.get(failure.id, len(text)), len(text))
    short = len(text) <= LONGEST_SYMPTOM and _SHORT_HANG.fullmatch(text.strip())
    if hang := short or _HANGS.search(text):
        found["hang"] = hang.start()
    known = {*found, *replacing}
    rows = {name: others.get(name) or FAILURES[name] for name in found}
    seen = [
        FoundFailure(row, found[name]) for name, row in rows.items() if not row.replaced_by & known
    ]
    return sorted(seen, key=lambda one: one.place)


def notes_of(
    text: str, seen: Sequence[FoundFailure], maps: Sequence[PrintedArguments]
) -> list[str]:
    """Return notes on failures: the causes of each failure, and then the next steps.

    Causes that the text names come first. If the text shows a map, the map rules out some causes
    and adds facts to other causes.
    """
    # If the text shows different maps, it is not known which map the failed kernel used. So no
    # facts are used.
    facts = _facts(maps[0]) if maps and all(m == maps[0] for m in maps) else {}
    notes: list[str] = []
    for failure, place in seen:
        near = text[max(0, place - _NEAR) : place + _NEAR]
        out = [c for c in failure.causes if facts.get(c.fact, "").startswith("ruled out")]
        likely = [(_evidence(c, near), c) for c in failure.causes if c not in out]
        # Causes with evidence come first. The sort is stable, so the other causes stay in the order
        # of failures.txt, the most likely first.
        likely.sort(key=lambda item: not item[0])
        for number, (evidence, cause) in enumerate(likely, 1):
            fact = f" ({facts[cause.fact]})" if cause.fact in facts else ""
            notes.append(
                f"{failure.words}, cause {number}: {cause.misuse}{evidence}{fact}; check: "
                f"{cause.check}"
            )
        notes += [f"{failure.words}, {facts[c.fact]}: {c.misuse}" for c in out]
    if any(failure.source == _MEASURED for failure, _ in seen) and not maps:
        notes.append(
            "paste the map too (its 128 bytes or its arguments), because it rules causes out"
        )
    if any(failure.id == "hang" for failure, _ in seen):
        notes.append(_NO_ERROR)
    steps: dict[tuple[str, str], None] = dict.fromkeys(
        (failure.step, failure.source) for failure, _ in seen if failure.step
    )
    return notes + [f"next: {step} (source: {source})" for step, source in steps]


def _evidence(cause: Cause, near: str) -> str:
    found = cause.named.search(near) if cause.named else None
    return f" (the text has: {' '.join(found[0].split())[:_LONGEST_EVIDENCE]})" if found else ""


_NO_ERROR = (
    "a wait that ends too early gives no error, and a tile that is wrong or right by luck: the "
    "barrier expects fewer bytes "
    "than arrive or waits for the other parity; the block ends with the load in flight; with a "
    "swizzle, the destination is not aligned to the pattern (1024 bytes for 128B) and the kernel "
    "indexes from its own start."
)


def _facts(read: PrintedArguments) -> dict[str, str]:
    """Return facts about a map, as key -> text.

    The text is added to each cause that has the key as its `Cause.fact`. If the text begins with
    "ruled out", it excludes these causes.
    """
    facts = {"zeros": "ruled out (this map is not zeros)"}
    mode = {"tiled": "no .im2col", "im2col": "only .im2col", "im2col_wide": "only .im2col::w"}
    facts["kind"] = f"this map is {read.kind}: {mode[read.kind]} instruction may use it"
    if read.rank is not None:
        facts["rank"] = f"this map has rank {read.rank}: .{read.rank}d"
    if read.global_address is not None:
        null = "0: that is the cause" if not read.global_address else f"{read.global_address:#x}"
        facts["address"] = f"its address is {null}"
    if not isinstance(read.data_type, tma.TensorMapDataType):
        return facts
    row = dtypes.DATA_TYPES[read.data_type]
    facts["unit"] = (
        f"with this map, a multiple of {targets.INNER_BYTES * 8 // row.element_bits} elements"
    )
    box, steps = read.box_dim or (), read.element_strides or ()
    # A box of extent e with element stride s has ceil(e / s) elements (CUDA driver API).
    if box and len(box) == len(steps) and None not in (*box, *steps):
        count = math.prod(-(-(e or 0) // (s or 1)) for e, s in zip(box, steps, strict=True))
        tx_bytes = count * row.element_bits // 8
        # The tx-count of an mbarrier is at most 2^20 - 1 (PTX ISA, mbarrier).
        many = (1 << 20) // max(tx_bytes, 1) + 1
        facts["bytes"] = f"one copy through this map transfers {tx_bytes} bytes"
        facts["range"] = (
            f"one copy transfers {tx_bytes} bytes, so only {many} or more of them leave it"
        )
    return facts
