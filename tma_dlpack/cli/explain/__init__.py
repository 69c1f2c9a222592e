"""`explain`: read the output of a program whose encode failed, and check it against the rules.

`streams` splits a log by process; `blocks` gathers lines ``name = value`` into blocks, with `names`
and `values`; `torn` marks blocks that mix several processes; `formats` is the table of the
projects that print arguments, and turns a block into the driver's arguments with `lists`;
`sentences` and `results` recognise error messages and CUDA results; `maps` finds dumps of the 128
bytes, `ours` the line that our own header throws; `judge` checks the rules, `notes` writes the
remarks, `result` is the result.

A new format: a row in `formats.FORMATS` (how to recognise its block, and where it differs from the
driver: order of arrays, units, arguments that it does not print), new spellings in `names.py`, and
an example as printed, with the expected arguments, in tests/cli/printed_forms.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tma_dlpack.checks.report import Report
from tma_dlpack.cli.explain import sentences
from tma_dlpack.cli.explain.blocks import Block, blocks_of
from tma_dlpack.cli.explain.formats import printed_arguments
from tma_dlpack.cli.explain.judge import judge
from tma_dlpack.cli.explain.maps import maps_in
from tma_dlpack.cli.explain.notes import cut_note, result_notes, torn_notes, where_notes
from tma_dlpack.cli.explain.ours import refused_calls
from tma_dlpack.cli.explain.printed import PrintedArguments
from tma_dlpack.cli.explain.result import Explanation
from tma_dlpack.cli.explain.streams import streams_of
from tma_dlpack.cli.explain.torn import encodes_of
from tma_dlpack.tables.coerce import bytes_of, shown, text_of
from tma_dlpack.tables.errors import Violation, refusal
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tables.targets import Target

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
    notes: list[str] = []
    torn: list[Block] = []
    read = [*_printed(words, known, notes, torn), *_dumped(words, known, notes)]
    read.sort(key=lambda encode: encode.line)
    notes += torn_notes(words, torn)
    checks = list(islice(sentences.said(words), MOST_SENTENCES))
    if read:
        notes += [_sentence_note(s, m) for _, s, m in checks]
    else:
        read = [_from_sentence(words, s, m, known) for _, s, m in checks]
    reports = tuple(encode.report for encode in read)
    notes += result_notes(words, reports)
    if not reports:
        notes += where_notes(words, bool(torn))
    return Explanation(
        reports,
        tuple(encode.arguments for encode in read),
        tuple(dict.fromkeys(notes)),
        str(known),
    )


class _Encode(NamedTuple):
    """An encode in the text: its first line, its arguments, and what the rules say of them."""

    line: int
    arguments: PrintedArguments
    report: Report


def _printed(text: str, target: Target, notes: list[str], torn: list[Block]) -> Iterator[_Encode]:
    """Give the encodes whose arguments are printed; add remarks, and blocks that are mixed."""
    calls = dict(refused_calls(text))
    for block in (b for stream in streams_of(text) for b in encodes_of(blocks_of(stream))):
        if block.fault in ("mixed", "junk"):
            torn.append(block)
            continue
        arguments, remarks = printed_arguments(block)
        call = calls.get(block.first_line)
        if call is None:
            report = judge(arguments, tuple(sorted(arguments.implied.items())), target)
        else:
            report = call.report(arguments, target)
            notes += [f"line {block.first_line}: {call.why}"] if call.why else []
        where = f"lines {block.first_line}-{block.last_line}"
        if block.fault == "cut":
            notes.append(cut_note(where, arguments, report))
        elif block.shows_arguments:
            if len(notes) < MOST_SENTENCES:
                notes += [f"{where}: {remark}" for remark in remarks]
            if arguments.shown():
                yield _Encode(block.first_line, arguments, report)


def _dumped(text: str, target: Target, notes: list[str]) -> Iterator[_Encode]:
    """Give the maps whose 128 bytes are in the text; add why other bytes are not a map."""
    for line, found in maps_in(text, target):
        if isinstance(found, str):
            notes.append(f"line {line}: {found}")
        else:
            yield _Encode(line, found, judge(found, (), target))


# -- sentences ------------------------------------------------------------------------------------


def _from_sentence(
    text: str, sentence: sentences.Sentence, found: re.Match[str], target: Target
) -> _Encode:
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
            return _Encode(line, arguments, report)
    return _Encode(line, arguments, Report((_violation(sentence, found),)))


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
