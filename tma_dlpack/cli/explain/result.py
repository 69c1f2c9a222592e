"""What `explain` gives: a report per encode, the arguments as read, notes; as text and as HTML."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field

from tma_dlpack.checks.report import Report
from tma_dlpack.cli.explain.printed import PrintedArguments
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import COLUMNS, Advice, Finding, sealed
from tma_dlpack.tables.public import public


@public
@sealed
@dataclass(frozen=True, slots=True)
class Explanation:
    r"""The result of `explain`: the failed encodes in a text, and which rules they break.

    ``print(explanation)`` shows it all; notebooks show it as HTML.

    Attributes
    ----------
    reports : tuple of Report
        One per encode found, in the order of the text.
    requests : tuple of PrintedArguments
        The driver's arguments of each encode as read; None for those that are not printed.
    notes : tuple of str
        Remarks that are not about one argument: the error of an earlier kernel, text that is cut
        off or mixed, which formats can be read.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> found = tma.explain("globalDim (1001,4096,1,1,1)\nglobalStrides (2,2002,0,0,0)\n"
    ...                     "boxDim (64,128,1,1,1)")
    >>> found.requests[0].global_strides, [v.rule for v in found.reports[0].violations]
    ((2002,), ['STRIDE_ALIGNED'])
    """

    reports: tuple[Report, ...] = ()
    requests: tuple[PrintedArguments, ...] = ()
    notes: tuple[str, ...] = ()
    target: str = field(default="sm_90")

    @property
    def ok(self) -> bool:
        """Whether an encode was read and no rule is broken."""
        return bool(self.reports) and all(report.ok for report in self.reports)

    def _groups(self) -> list[tuple[list[int], PrintedArguments, Report]]:
        """Give encodes with equal arguments together."""
        groups: dict[tuple[PrintedArguments, str], list[int]] = {}
        for n, (request, report) in enumerate(zip(self.requests, self.reports, strict=True)):
            groups.setdefault((request, str(report)), []).append(n)
        return [(ns, self.requests[ns[0]], self.reports[ns[0]]) for ns in groups.values()]

    def _head(self) -> str:
        count = len(self.reports)
        if not count:
            return "no encode was read"
        broken = sum(not report.ok for report in self.reports)
        verdict = f"{broken} refused" if broken else "ok"
        read = f"{counted(count, 'encode')} read, checked against the driver's rules on"
        return f"{read} {self.target}: {verdict}"

    def __str__(self) -> str:
        lines = [self._head()]
        for numbers, request, report in self._groups():
            lines += ["", _title(numbers, request, self.requests)]
            if request.shown():
                lines.append(_wrapped(str(request), "  "))
            lines.append(textwrap.indent(_verdict(report, request), "  "))
        for note in self.notes:
            lines += ["", _wrapped(f"note: {note}", "")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        # imported when first needed
        from tma_dlpack.draw.cards import finding_html
        from tma_dlpack.draw.figure import fragment

        parts = [f"<div><b>{html.escape(self._head())}</b></div>"]
        for numbers, request, report in self._groups():
            parts.append(
                f"<div><b>{html.escape(_title(numbers, request, self.requests))}</b></div>"
            )
            if request.shown():
                parts.append(f"<div><code>{html.escape(str(request))}</code></div>")
            parts.append(f"<div>{html.escape(_one_line(report, request))}</div>")
            parts += [
                finding_html(f, with_argument=False) for f in (*report.violations, *report.advice)
            ]
        parts += [f"<p>note: {html.escape(note)}</p>" for note in self.notes]
        return fragment(parts)


def _title(numbers: list[int], request: PrintedArguments, all_: Iterable[PrintedArguments]) -> str:
    requests = tuple(all_)
    places = [_lines(requests[n].lines) for n in numbers]
    shown = ", ".join(p for p in places[:4] if p) + (", ..." if len(places) > 4 else "")
    who = f" (the form of {request.printed_by})" if request.printed_by else ""
    count = f" ({len(numbers)} times the same)" if len(numbers) > 1 else ""
    return f"encode {numbers[0] + 1}{count}: {shown or 'in the text'}{who}"


def _lines(lines: tuple[int, int]) -> str:
    first, last = lines
    if not first:
        return ""
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _one_line(report: Report, request: PrintedArguments) -> str:
    if not report.ok:
        return f"refused: {counted(len(report.violations), 'violation')}"
    missing = request.missing()
    if not missing:
        return "all arguments are in order: the driver accepts them"
    return f"what is shown is in order; not shown: {', '.join(missing)}"


def _verdict(report: Report, request: PrintedArguments) -> str:
    findings: tuple[Finding, ...] = (*report.violations, *report.advice)
    said = [("advice: " if isinstance(f, Advice) else "") + str(f) for f in findings]
    return "\n".join([_one_line(report, request), *said])


def _wrapped(line: str, indent: str) -> str:
    return textwrap.fill(
        line,
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
