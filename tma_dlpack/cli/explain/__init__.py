"""`explain`: read the output of a program whose encode failed, and check it against the rules.

`streams` splits a log by process; `blocks` gathers lines ``name = value`` into blocks, with `names`
and `values`; `torn` marks blocks that mix several processes; `formats` is the table of the
projects that print arguments, and turns a block into the driver's arguments with `lists`;
`sentences` and `results` recognise error messages and CUDA results; `maps` finds dumps of the 128
bytes, `ours` the line that our own header throws; `judge` checks the rules, `result` is the
result.

A new format: a row in `formats.FORMATS` (how to recognise its block, and where it differs from the
driver: order of arrays, units, arguments that it does not print), new spellings in `names.py`, and
an example as printed, with the expected arguments, in tests/cli/printed_forms.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tma_dlpack.cli import hexdump
from tma_dlpack.cli.explain import results, sentences
from tma_dlpack.cli.explain.blocks import Block, blocks_of
from tma_dlpack.cli.explain.formats import FORMATS, printed_arguments
from tma_dlpack.cli.explain.judge import judge
from tma_dlpack.cli.explain.maps import maps_in
from tma_dlpack.cli.explain.ours import refused_calls
from tma_dlpack.cli.explain.printed import PrintedArguments
from tma_dlpack.cli.explain.result import Explanation
from tma_dlpack.cli.explain.streams import streams_of
from tma_dlpack.cli.explain.torn import encodes_of
from tma_dlpack.rules.report import Report
from tma_dlpack.types.coerce import bytes_of, shown, text_of
from tma_dlpack.types.errors import Violation, refusal
from tma_dlpack.types.opaque import opaque
from tma_dlpack.types.target import Target

__all__ = ["Explanation", "PrintedArguments", "explain"]

NEAR_LINES = 12  # around torn ones, in which the result may have got
MOST_SENTENCES = 100  # different ones, of a log that has more


@opaque
def explain(text: str, target: Target | str = "sm_90") -> Explanation:
    """Say why a tensor map could not be encoded, from the text that a program printed.

    Parameters
    ----------
    text : str
        The printed arguments of an encode, a traceback or a whole log, a dump of a map's 128 bytes,
        or the line that ``tma_dlpack.h`` throws. Line prefixes and colours are ignored; a log of
        several processes is fine if each line names its process.
    target : Target or str
        The GPU that the encode was for.

    Returns
    -------
    Explanation
        `.reports`: one Report per encode found, with every violation and its fix. `.requests`: the
        arguments as read (innermost first, strides in bytes, None for those not printed).
        `.notes`: remarks. If nothing can be read, there are no reports, and a note says which
        formats could be read.

    Raises
    ------
    TmaPreconditionError
        If `text` is not a str, or `target` is not a target. No content of the text raises.

    Notes
    -----
    Reads the formats of CUTLASS, Triton, DeepGEMM, TensorRT-LLM and FlashInfer, TileLang,
    ThunderKittens, FlashMLA, XLA and others, and ``name = value`` lines with the driver's names.
    The results 700, 715, 719 and 999 come from an earlier kernel, and a note says so. Blocks that
    are cut off or mix several processes are reported in a note, and their numbers are not used.

    Examples
    --------
    >>> found = explain('''tmaFormat: 9 dim: 2 gmem: 0x7f3b8a000000
    ... Shape: 4096 4096
    ... Stride: 8192
    ... tileShapes: 128 64
    ... tileStrides: 1 1
    ... swizzleType: 3''')
    >>> [v.rule for v in found.reports[0].violations], found.requests[0].box_dim
    (['BOX_SWIZZLE_SPAN'], (128, 64))
    """
    known = Target.of(target)
    words = text_of(text)
    if words is None:
        raw = bytes_of(text)
        if raw is None:
            found = f"text is {shown(text)}"
            raise refusal("text", found, "be a str", "pass what the program printed")
        words = raw.decode("utf-8", "replace")
    read: list[tuple[int, PrintedArguments, Report]] = []
    notes: list[str] = []
    torn: list[Block] = []
    calls = dict(refused_calls(words))
    for stream in streams_of(words):
        for block in encodes_of(blocks_of(stream)):
            if block.fault in ("mixed", "junk"):
                torn.append(block)
                continue
            arguments, remarks = printed_arguments(block)
            call = calls.get(block.first_line)
            if call is None:
                report = judge(arguments, tuple(sorted(arguments.implied.items())), known)
            else:
                report = call.report(arguments, known)
                notes += [f"line {block.first_line}: {call.why}"] if call.why else []
            where = f"lines {block.first_line}-{block.last_line}"
            if block.fault == "cut":
                notes.append(_cut_note(where, arguments, report))
                continue
            if not block.shows_arguments:
                continue
            if len(notes) < MOST_SENTENCES:
                notes += [f"{where}: {remark}" for remark in remarks]
            if arguments.shown():
                read.append((block.first_line, arguments, report))
    for line, found_map in maps_in(words, known):
        if isinstance(found_map, str):
            notes.append(f"line {line}: {found_map}")
        else:
            read.append((line, found_map, judge(found_map, (), known)))
    read.sort(key=lambda item: item[0])
    notes += _torn_notes(words, torn)
    checks = list(sentences.said(words))
    if read:
        notes += [_sentence_note(s, m) for _, s, m in checks[:MOST_SENTENCES]]
    else:
        read = [_from_sentence(words, s, m, known) for _, s, m in checks[:MOST_SENTENCES]]
    reports = tuple(report for *_, report in read)
    notes += _result_notes(words, reports)
    if not reports:
        notes += _where_notes(words, bool(torn), bool(notes))
    return Explanation(
        reports,
        tuple(arguments for _, arguments, _ in read),
        tuple(dict.fromkeys(notes)),
        str(known),
    )


# -- sentences ------------------------------------------------------------------------------------


def _from_sentence(
    text: str, sentence: sentences.Sentence, found: re.Match[str], target: Target
) -> tuple[int, PrintedArguments, Report]:
    """Turn a project's own error message into a report; check its numbers if it shows them."""
    line = text.count("\n", 0, found.start()) + 1
    groups = found.groupdict()
    strides = None
    if "entry" in groups and "bytes" in groups:
        strides = (*(None,) * int(groups["entry"]), int(groups["bytes"]))
    arguments = PrintedArguments(
        global_strides=strides, printed_by=sentence.printer, lines=(line, line)
    )
    if strides is not None:
        report = judge(arguments, (), target)
        if not report.ok:
            return line, arguments, report
    return line, arguments, Report((_violation(sentence, found),))


def _violation(sentence: sentences.Sentence, found: re.Match[str]) -> Violation:
    rule = sentences.rule_of(sentence, found)
    argument, limit, fix = sentences.LIMITS[rule]
    return Violation(
        rule=rule,
        argument=argument,
        found=f"{sentence.printer} says: {' '.join(found[0].split())}",
        limit=limit,
        fix=fix,
        source=f"{sentence.printer}'s own check, {sentence.source}",
    )


def _sentence_note(sentence: sentences.Sentence, found: re.Match[str]) -> str:
    violation = _violation(sentence, found)
    return f"{violation.found} ({violation.rule}: {violation.limit}; fix: {violation.fix})"


# -- notes ----------------------------------------------------------------------------------------

_HOW_TO_FIND = (
    "Run the program again with CUDA_LAUNCH_BLOCKING=1, so that the failing launch itself raises, "
    "or under compute-sanitizer, which names the kernel and the access."
)


def _result_notes(text: str, reports: Iterable[Report]) -> list[str]:
    """Explain the CUDA results in the text, given the reports."""
    returned = results.results_of(text)
    sticky = [r for r in returned if r.code in results.STICKY]
    verdicts = list(reports)
    clean = bool(verdicts) and all(report.ok for report in verdicts)
    notes = []
    if sticky:
        codes = " and ".join(f"{r.code} ({r.name}: {r.words})" for r in sticky)
        order = "all arguments that are shown are in order. " if clean else ""
        notes.append(
            f"{order}{codes}: the error of an earlier kernel, which every later call of the "
            f"process returns, this encode too. {_HOW_TO_FIND}"
        )
    elif clean:
        notes.append(
            "all arguments that are shown are in order. Codes 700, 715, 719 and 999 (and other "
            "errors of a launch) are an earlier kernel's, which every later call returns. "
            + _HOW_TO_FIND
        )
    if clean and any(r.code == 1 for r in returned) and not sticky:
        notes.append(
            "CUDA_ERROR_INVALID_VALUE without a broken rule: look at what is not shown, whether "
            "the target is the right one, whether the CUtensorMap is aligned to 64 bytes, and "
            "whether the driver is older than the type or swizzle"
        )
    for code, said in _OTHER_RESULTS.items():
        if any(r.code == code for r in returned):
            notes.append(f"{code}: {said}")
    return notes


_OTHER_RESULTS = {
    3: "the driver is not initialized: call cuInit(0), or any function of the CUDA runtime, first",
    4: "the driver is shutting down: no encode while the process exits",
    201: "there is no current context: make one before the encode, as cudaFree(0) or torch's first "
    "CUDA call does; a new thread has none",
    801: "this GPU or driver has no such maps: compute capability 9.0 and driver 525 or later",
}


def _cut_note(where: str, arguments: PrintedArguments, report: Report) -> str:
    broken = "; ".join(f"{v.found}; {v.limit} ({v.rule}; fix: {v.fix})" for v in report.violations)
    if not arguments.shown():
        return f"{where}: the printout is cut off before its first argument; paste the rest"
    return f"{where}: the printout is cut off. It shows {arguments}. " + (
        f"Of that: {broken}" if broken else "No rule is broken by that; paste the rest."
    )


def _torn_notes(text: str, torn: list[Block]) -> list[str]:
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


def _where_notes(text: str, torn: bool, said: bool) -> list[str]:
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
