"""`explain`, which finds the cause of a failed encode or launch in the text that a program printed.

`words` splits a text by process, normalises its numbers, and has the tables of the names that
programs print for the driver's arguments. `read` groups the lines ``name = value`` of one printout
into a block. `printed` converts a block to the driver's arguments, and `judge` checks these
arguments against the rules. `sentences` recognises the error messages of other projects. `failures`
recognises error codes of the driver, and failures without a code, such as a hang. It ranks the
causes of each failure.

The text files next to the modules have tables. Table FORMS of words.txt describes how other
projects print the arguments, in one row per format. To add a format, add a row. The row lists the
words by which `read` recognises a printout in this format. It also lists the differences between
the printout and the driver's arguments, such as the unit of strides and the arguments that are not
printed. Add new names of arguments to table STRONG or WEAK of words.txt. Add an example printout
with the expected arguments to tests/debug/printed_forms.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tma_dlpack.debug import foreign
from tma_dlpack.debug.core import coerce, counted, errors, public, report, targets, tma
from tma_dlpack.debug.explain import failures, sentences
from tma_dlpack.debug.explain.judge import PrintedArguments, check_printed, of_map
from tma_dlpack.debug.explain.printed import printed_arguments
from tma_dlpack.debug.explain.read import Block, blocks_in
from tma_dlpack.debug.explain.words import Lines, plain, streams_of

CHECKED_BUILD = "a checked build of tma_dlpack.h"
NOTHING_READ = (
    "this text has neither an encode nor a failure that TMA explains; the lines around the first "
    "error are missing, or the arguments of the encode, which `tma-dlpack trace -- PROGRAM` prints"
)
# Maximum number of error messages of other projects that are reported. If there are this many
# notes, no remarks on printouts are added.
MOST_NOTES = 100
# Maximum number of characters of a text that is read whole. In a longer text, lines that cannot
# belong to an encode are skipped.
LONG = 1 << 18
# Maximum number of characters of a line. A longer line is read in pieces.
LONGEST = 10_000
# Maximum number of characters that are read in all, from the lines that may belong to an encode. If
# these lines have more characters, the lines in the middle of the text are skipped. The number may
# be exceeded slightly, because lines are read whole.
MOST_READ = 1 << 19


@public.opaque
def explain(text: str | bytes | BaseException, target: tma.Target | str = "sm_90") -> Explanation:
    """Explain why a tensor map could not be encoded or used, from the text that a program printed.

    Parameters
    ----------
    text : str, bytes or BaseException
        Any of these: the printed arguments of an encode; a traceback or a whole log; the source
        code of the call; a dump of a map's 128 bytes; or a failure after a launch ("misaligned
        address", 719, "my kernel hangs"). Line prefixes and colours are ignored. A log may contain
        the lines of several processes if each line names its process. If `text` is an exception,
        its message is read. Bytes are decoded as UTF-8.
    target : Target or str
        The GPU that the encode was for.

    Returns
    -------
    Explanation
        `.reports` has a Report for each encode in the text, with every violation and its fix.
        `.requests` has the arguments of each encode (lists begin with the innermost dimension,
        strides are in bytes, and arguments that were not read are None). `.notes` has remarks. If
        nothing can be read, there are no reports, and a note says what is missing. `.symptoms` has
        the failures that the text shows, in the order of the text.

    Raises
    ------
    TmaPreconditionError
        If `text` is none of these three types, or `target` is not a target. The content of a text
        never causes an error.

    Notes
    -----
    `explain` reads ``name = value`` lines with the driver's names. It also reads the formats of
    CUTLASS, Triton, DeepGEMM, TensorRT-LLM, FlashInfer, TileLang, ThunderKittens, FlashMLA, XLA and
    other projects. The errors 700, 715, 719 and 999 come from an earlier kernel. If the text has
    one of them, a note says so. A number that is masked, cut off, or mixed with another process's
    output is not read, so no rule is checked with this number.

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
    return _explained(text, tma.Target.of(target))


@foreign.refusing("FILE_LOG")
def _explained(text: str | bytes | BaseException, known: tma.Target) -> Explanation:
    words = str(text) if issubclass(type(text), BaseException) else coerce.text_of(text)
    if words is None:
        raw = coerce.bytes_of(text)
        if raw is None:
            found = f"text is {coerce.shown(text)}"
            raise errors.argument_error("text", found, "be a str", "pass what the program printed")
        words = raw.decode("utf-8", "replace")
    log = _Log(plain(words))
    notes = log.notes
    # An error message of another project ("Assertion ... failed") is reported as an encode only if
    # the text shows no arguments of an encode. Otherwise, the message becomes a note.
    read = [*_printed(log, known), *_refused(log, known), *_dumped(log, known), *_checked(log)]
    read.sort(key=lambda encode: encode.line)
    failed = [*_worded(log, known)]
    if read:
        notes += [_in_words(encode.report) for encode in failed]
    read = read or failed
    reports = tuple(encode.report for encode in read)
    maps = [encode.arguments for encode in read if encode.arguments.shown()]
    seen: list[failures.FoundFailure] = []
    # A failed device check of tma_dlpack.h ends its kernel with __trap. So this check is the only
    # cause of the launch error.
    if any(encode.arguments.printed_by == CHECKED_BUILD for encode in read):
        notes.append("the error of the launch comes from the failed check, which ends the kernel")
    else:
        once = failures.distinct_lines(log.text)
        seen = failures.failures_in(once, [failures.ENCODE] * bool(read or log.is_mixed))
        about = [failures.result_notes(once, reports), failures.notes_of(once, seen, maps)]
        notes += itertools.chain(*(about if reports else about[::-1]))
    if not reports:
        notes += failures.where_notes(log.text, log.is_mixed)
    if not (reports or seen or log.is_mixed):
        notes.append(NOTHING_READ)
    arguments = tuple(encode.arguments for encode in read)
    unique = tuple(dict.fromkeys(notes))
    symptoms = tuple(dict.fromkeys(one.failure.words for one in seen))
    return Explanation(reports, arguments, unique, str(known), symptoms)


class _Encode(NamedTuple):
    """An encode that a text shows: the number of its first line, its arguments, and a report."""

    line: int
    arguments: PrintedArguments
    report: tma.Report


class _Log(Lines):
    """The lines of a text that may belong to an encode, and notes about these lines."""

    def __init__(self, text: str) -> None:
        self.notes: list[str] = []
        self.is_mixed = False
        lines = [
            (number, piece)
            for number, line in enumerate(text.split("\n"), 1)
            for piece in ([line] if len(line) <= LONGEST else _PIECES.findall(line))
        ]
        super().__init__(self._relevant(lines) if len(text) > LONG else lines)

    def _relevant(self, lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """Return the lines that may belong to an encode; skip the middle lines of a long text."""
        kept, stop = _near_words(lines, range(len(lines)))
        if stop is not None:
            rest, stop = _near_words(lines, range(len(lines) - 1, stop, -1))
            skipped = range(max(kept) + 1, min(rest, default=0))
            if stop is not None and skipped:
                first, last = lines[skipped[0]][0], lines[skipped[-1]][0]
                self.notes.append(
                    f"the text is long: lines {first:,} to {last:,} of its {lines[-1][0]:,} lines "
                    "were not read. Paste a part of these lines to have it read"
                )
            kept |= rest
        return [lines[at] for at in sorted(kept)] or [(1, "")]


def _near_words(lines: list[tuple[int, str]], places: range) -> tuple[set[int], int | None]:
    """Return the indices of lines near a word of `_MAY_BELONG` or near bytes of a map.

    The search visits the indices in `places`. It ends when the found lines have more than half of
    `MOST_READ` characters. The second value is the index at which the search ended, or None if it
    visited all places.
    """
    kept: set[int] = set()
    size = 0
    for at in places:
        line = lines[at][1]
        low = line.lower()
        if low and (any(map(low.__contains__, _MAY_BELONG)) or foreign.is_dump_line(line)):
            near = {*range(max(at - 4, 0), min(at + 17, len(lines)))} - kept
            size += sum(len(lines[index][1]) + 1 for index in near)
            kept |= near
            if size > MOST_READ // 2:
                return kept, at
    return kept, None


# Pieces of a long line, cut at blanks where possible.
_PIECES: Final = re.compile(rf".{{1,{LONGEST}}}(?:[ \t]|$)|.{{{LONGEST}}}")

#: Each line of an encode contains one of these words, or is near a line with such a word.
_MAY_BELONG: Final = re.split(
    r",\s+",
    """tma, tensormap, tensor_map, tensor map, globaldim, global_dim, globalstride, global_stride,
    gmem, smem, boxdim, box_dim, box_size, swizzle, cu_tensor, descriptor, cuda error, cuda_error,
    cudaerror, tile::, illegal, misaligned, launch failure, shared memory, out of bounds, invalid,
    xid, mmu fault, =====, allocator, legalize, ptxas, cutlass, cluster, undefined, not supported,
    resource, assert, cuda driver, hang""",
)


#: A line of source code in C++. Source code near a mixed block shows that no process printed it.
_CODE: Final = re.compile(r";[ \t]*(?://.*)?$|\)[ \t]*\{$|\b[A-Za-z_]\w*\($|^[ \t]*(?:\*|//)[ \t]")


def _printed(log: _Log, target: tma.Target) -> list[_Encode]:
    """Return the encodes whose arguments the text shows; add notes about unread printouts."""
    mixed: list[Block] = []
    whole: list[_Encode] = []
    cut: list[_Encode] = []
    # The lines that tma_dlpack_make.hpp printed also contain the driver's names. These lines are
    # removed here, because `_refused` reads them.
    others = sentences.REFUSED_CALL.sub("", log.text).split("\n")
    numbered = [(number, line) for (number, _), line in zip(log.numbered, others, strict=True)]
    code = {number for number, line in numbered if _CODE.search(line)}
    for block in blocks_in(streams_of(numbered)):
        if block.is_mixed:
            if code.isdisjoint(range(block.first_line - 3, block.last_line + 4)):
                mixed.append(block)
            continue
        arguments, remarks = printed_arguments(block)
        where = f"lines {block.first_line}-{block.last_line}"
        if len(log.notes) < MOST_NOTES:
            log.notes += [f"{where}: {remark}" for remark in remarks]
        encode = _Encode(block.first_line, arguments, check_printed(arguments, target))
        if block.shows_arguments and arguments.shown():
            (cut if block.is_cut else whole).append(encode)
    if mixed:
        log.is_mixed = True
        first, last = min(b.first_line for b in mixed), max(b.last_line for b in mixed)
        around = [line for n, line in log.numbered if first - 12 <= n <= last + 12]
        log.notes.append(failures.mixed_note((first, last), log.text, "\n".join(around)))
    if whole:  # if the text has a complete encode, cut-off encodes become notes
        log.notes += [_cut_note(encode) for encode in cut]
    return whole or cut


def _cut_note(encode: _Encode) -> str:
    """Return a note with the arguments of a cut-off printout and the rules that they break."""
    part = f"what the printout that is cut off shows: {encode.arguments}"
    return f"line {encode.line}: {part}; {_in_words(encode.report) or 'no rule is broken'}"


def _in_words(report: tma.Report) -> str:
    return "; ".join(f"{v.found} ({v.rule}: {v.limit}; fix: {v.fix})" for v in report.violations)


def _dumped(log: _Log, target: tma.Target) -> Iterator[_Encode]:
    """Yield the maps whose 128 bytes are in the text, and add notes about bytes that are no map."""
    for place, data in foreign.find_dumps(log.text):
        line = log.numbered[place][0]
        if not any(data):
            log.notes.append(
                f"line {line}: {targets.MAP_BYTES} zero bytes: a map that was never encoded"
            )
            continue
        try:
            tensor_map = tma.TensorMap.from_bytes(data, target)
        except tma.TmaError as error:
            why = " ".join(str(error).split())
            log.notes.append(f"line {line}: 128 bytes that are no map for {target}: {why}")
            continue
        printer = "a dump of the map's 128 bytes"
        arguments = of_map(tensor_map, printed_by=printer, lines=(line, line))
        report = check_printed(arguments, target)
        # `tensor_map.advice` is about bits that the arguments do not show, such as BIT_85.
        advice = report.advice + tensor_map.advice
        yield _Encode(line, arguments, tma.Report(report.violations, advice))


def _refused(log: _Log, target: tma.Target) -> Iterator[_Encode]:
    """Yield the calls that the C++ header refused, according to its messages in the text."""
    if sentences.BEGINS not in log.text:
        return
    for found in sentences.REFUSED_CALL.finditer(log.text):
        line, call = log.line_at(found.start()), sentences.RefusedCall(found["parts"])
        read = sentences.read_call(call, line)
        if call.why:
            log.notes.append(f"line {line}: {call.why}")
        yield _Encode(line, read, sentences.check_call(call, read, target))
    for place, violation in sentences.says_in(log.text):
        line = log.line_at(place)
        read = PrintedArguments(printed_by="tma_dlpack.h", lines=(line, line))
        yield _Encode(line, read, tma.Report((violation,)))


def _checked(log: _Log) -> Iterator[_Encode]:
    """Yield the failed checks that a checked build of ``tma_dlpack.h`` printed."""
    for place, violation in sentences.device_checks(log.text):
        line = log.line_at(place)
        arguments = PrintedArguments(printed_by=CHECKED_BUILD, lines=(line, line))
        yield _Encode(line, arguments, tma.Report((violation,)))


def _worded(log: _Log, target: tma.Target) -> Iterator[_Encode]:
    """Yield the error messages of other projects that are in the text."""
    for sentence, found in sentences.sentences_in(log.text)[:MOST_NOTES]:
        line = log.line_at(found.start())
        yield _Encode(line, *sentences.report_of(sentence, found, line, target))


# -- the result -----------------------------------------------------------------------------------


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    r"""The result of `explain`: the calls that encode maps in a text, and the rules they break.

    ``print(explanation)`` shows the whole result; notebooks show it as HTML.

    Attributes
    ----------
    reports : tuple of Report
        One Report for each encode in the text, in the order of the text.
    requests : tuple of PrintedArguments
        The driver's arguments of each encode, with None for arguments that are not printed.
    notes : tuple of str
        Remarks, for example about the error of an earlier kernel, about the causes of a failed
        launch, or about lines that are cut off or mixed.
    target : str
        The GPU that the encodes were checked for.
    symptoms : tuple of str
        The failures after a launch, such as "719 (unspecified launch failure)".

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> found = tma.explain("globalDim (1001,4096,1,1,1)\nglobalStrides (2,2002,0,0,0)\n"
    ...                     "boxDim (64,128,1,1,1)")
    >>> found.requests[0].global_strides, [v.rule for v in found.reports[0].violations]
    ((2002,), ['STRIDE_ALIGNED'])
    """

    reports: tuple[tma.Report, ...] = ()
    requests: tuple[PrintedArguments, ...] = ()
    notes: tuple[str, ...] = ()
    target: str = field(default="sm_90")
    symptoms: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether at least one encode was read, and no printed argument breaks a rule."""
        return bool(self.reports) and not any(report.violations for report in self.reports)

    def _groups(self) -> list[tuple[str, PrintedArguments, tma.Report]]:
        """Return the title, the arguments and the report of each group of equal encodes."""
        groups: dict[tuple[PrintedArguments, tma.Report], list[int]] = {}
        for n, encode in enumerate(zip(self.requests, self.reports, strict=True)):
            groups.setdefault(encode, []).append(n)
        return [(self._title(numbers), *encode) for encode, numbers in groups.items()]

    def _title(self, numbers: list[int]) -> str:
        lines = (self.requests[n].lines for n in numbers)
        places = [f"line {a}" if a == b else f"lines {a}-{b}" for a, b in lines]
        where = ", ".join(places[:4]) + (", ..." if len(places) > 4 else "")
        printer = self.requests[numbers[0]].printed_by
        who = f" (the form of {printer})" if printer else ""
        count = f" ({len(numbers)} times the same)" if len(numbers) > 1 else ""
        return f"encode {numbers[0] + 1}{count}: {where}{who}"

    def _head(self) -> str:
        count = len(self.reports)
        if not count and self.symptoms:
            seen = " and ".join(self.symptoms)
            causes = sum(", cause " in note for note in self.notes)
            likely = f"{counted(causes, 'possible cause')}, the most likely first"
            return f"{seen}: {likely}" if causes else f"{seen}: the error of an earlier kernel"
        if not count:
            return "no encode was read"
        broken = sum(bool(report.violations) for report in self.reports)
        verdict = f"{broken} refused" if broken else _not_shown(self.requests) or "ok"
        read = f"{counted(count, 'encode')} read, checked against the driver's rules on"
        return f"{read} {self.target}: {verdict}"

    def __repr__(self) -> str:
        return coerce.summary(f"Explanation: {self._head()}; {counted(len(self.notes), 'note')}")

    def __str__(self) -> str:
        return report.as_text(self._head(), self._sections(), self.notes, is_head_first=True)

    def _repr_html_(self) -> str:
        return report.as_html(self._head(), self._sections(), self.notes)

    def _sections(self) -> list[report.Section]:
        return [
            report.Section(
                title,
                [str(request)] if request.shown() else (),
                [_one_line(found, request)],
                findings=(*found.violations, *found.advice),
            )
            for title, request, found in self._groups()
        ]


def _not_shown(requests: Iterable[PrintedArguments]) -> str:
    missing = dict.fromkeys(
        name for request in requests for name in (*request.missing(), *request.inferred)
    )
    return f"nothing wrong in what is shown; not shown: {', '.join(missing)}" if missing else ""


def _one_line(report: tma.Report, request: PrintedArguments) -> str:
    if report.violations:
        return f"refused: {counted(len(report.violations), 'violation')}"
    return _not_shown([request]) or "all arguments are in order: the driver accepts them"
