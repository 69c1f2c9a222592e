"""Remarks of `explain`: on CUDA results, on text that is cut off or mixed, on what can be read."""

from __future__ import annotations

from collections.abc import Sequence

from tma_dlpack.checks.report import Report
from tma_dlpack.cli import hexdump
from tma_dlpack.cli.explain import results
from tma_dlpack.cli.explain.blocks import Block
from tma_dlpack.cli.explain.formats import FORMATS
from tma_dlpack.cli.explain.printed import PrintedArguments

NEAR_LINES = 12  # around torn ones, in which the result may have got

_HOW_TO_FIND = (
    "Run the program again with CUDA_LAUNCH_BLOCKING=1, so that the failing launch itself raises, "
    "or under compute-sanitizer, which names the kernel and the access."
)
_IN_ORDER = "all arguments that are shown are in order. "
_INVALID_VALUE = (
    "CUDA_ERROR_INVALID_VALUE without a broken rule: look at what is not shown, whether the target "
    "is the right one, whether the CUtensorMap is aligned to 64 bytes, and whether the driver is "
    "older than the type or swizzle"
)
_OTHER_RESULTS = {
    3: "the driver is not initialized: call cuInit(0), or any function of the CUDA runtime, first",
    4: "the driver is shutting down: no encode while the process exits",
    201: "there is no current context: make one before the encode, as cudaFree(0) or torch's first "
    "CUDA call does; a new thread has none",
    801: "this GPU or driver has no such maps: compute capability 9.0 and driver 525 or later",
}


def result_notes(text: str, reports: Sequence[Report]) -> list[str]:
    """Explain the CUDA results that a text shows, given what the rules say of its encodes."""
    codes = {result.code: result for result in results.results_of(text)}
    sticky = [result for code, result in codes.items() if code in results.STICKY]
    clean = bool(reports) and all(report.ok for report in reports)
    notes = []
    if sticky:
        named = " and ".join(f"{r.code} ({r.name}: {r.words})" for r in sticky)
        notes.append(
            f"{_IN_ORDER * clean}{named}: the error of an earlier kernel, which every later call "
            f"of the process returns, this encode too. {_HOW_TO_FIND}"
        )
    elif clean:
        notes.append(
            f"{_IN_ORDER}Codes 700, 715, 719 and 999 (and other errors of a launch) are an earlier "
            f"kernel's, which every later call returns. {_HOW_TO_FIND}"
        )
        if 1 in codes:
            notes.append(_INVALID_VALUE)
    return notes + [f"{code}: {said}" for code, said in _OTHER_RESULTS.items() if code in codes]


def cut_note(where: str, arguments: PrintedArguments, report: Report) -> str:
    """Say that a printout is cut off, what it shows, and which rules that breaks."""
    broken = "; ".join(f"{v.found}; {v.limit} ({v.rule}; fix: {v.fix})" for v in report.violations)
    if not arguments.shown():
        return f"{where}: the printout is cut off before its first argument; paste the rest"
    return f"{where}: the printout is cut off. It shows {arguments}. " + (
        f"Of that: {broken}" if broken else "No rule is broken by that; paste the rest."
    )


def torn_notes(text: str, torn: list[Block]) -> list[str]:
    """Give the lines that are mixed, and error codes that appear there."""
    if not torn:
        return []
    first = min(block.first_line for block in torn)
    last = max(block.last_line for block in torn)
    notes = [
        f"lines {first}-{last}: the output of several processes (or threads) is mixed here, or "
        "parts of lines are missing, so that no number can be trusted and none is read. Write one "
        "log per rank, or run one process, and paste one whole block."
    ]
    lines = text.split("\n")[max(0, first - NEAR_LINES) : last + NEAR_LINES]
    codes = [r for r in results.sticky_numbers("\n".join(lines)) if r.name not in text]
    notes += [
        f"{r.code} stands in it: if that is the result, it is {r.name} ({r.words}), the error "
        f"of an earlier kernel. {_HOW_TO_FIND}"
        for r in codes
    ]
    return notes


def where_notes(text: str, torn: bool) -> list[str]:
    """Say where the arguments of a known project are printed, and which formats can be read."""
    notes = []
    for pattern, printer, where in results.HEADINGS:
        if not torn and pattern.search(text):
            notes.append(f"{printer}: the arguments of the encode are not in the text; {where}")
            break
    names = ", ".join(row.name for row in FORMATS if row.name)
    notes.append(
        f"what can be read: the printed arguments of an encode as {names} and others print them, "
        "name = value lines in the driver's words (globalDim, globalStrides, boxDim...), or a dump "
        f"of the map: {hexdump.FORMS}"
    )
    return notes
