"""The `Section` of a report, and functions that write reports as text, HTML, JSON and SARIF.

A tool fills sections with its facts, findings and pictures. `as_text` and `as_html` wrap lines, and
escape text once, for all tools.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from tma_dlpack.report.finding import ERROR, Finding
from tma_dlpack.tables import errors
from tma_dlpack.tables.coerce import aligned, printable
from tma_dlpack.tables.errors import wrapped

# The JSON schema of the SARIF standard (OASIS, version 2.1.0).
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report. The order of the attributes is the order in which they are shown.

    Attributes
    ----------
    title : str
    code : sequence of str
        Lines in the font of code, such as the arguments of a call.
    lines : sequence of str
        Sentences. Blanks at the start of a line indent the line in the text.
    table : sequence of rows
        The names of the columns, then the rows.
    findings : sequence of Finding, Violation or Advice
    listing : sequence of str
        Lines that are shown as they are, such as machine code.
    pictures : sequence of Figure or str
        Figures and pieces of HTML; a report as text does not show them.
    """

    title: str = ""
    code: Sequence[str] = ()
    lines: Sequence[str] = ()
    table: Sequence[Sequence[object]] = ()
    findings: Sequence[Finding | errors.Finding] = ()
    listing: Sequence[str] = ()
    pictures: Sequence[Any] = ()

    def text(self) -> str:
        """Return the section as text; if it has a title, indent the lines below the title."""
        indent = "  " * bool(self.title)
        lines = [wrapped(self.title)] * bool(self.title)
        lines += [_filled(line, indent) for line in (*self.code, *self.lines)]
        lines += [indent + line for line in aligned(self.table, left=1)] if self.table else []
        for finding in self.findings:
            kind = "advice: " * isinstance(finding, errors.Advice)
            lines.append(textwrap.indent(f"{kind}{finding}", indent))
        return "\n".join([*lines, *(f"{indent}  {line}" for line in self.listing)])

    def html(self) -> Iterator[Any]:
        """Yield figures and pieces of HTML; all text is escaped."""
        # imported when first needed, because most reports are printed
        from tma_dlpack.draw.cards import finding_html, plain, table_html

        yield f"<h3>{escape(self.title)}</h3>" * bool(self.title)
        yield from (f"<div><code>{escape(line)}</code></div>" for line in self.code)
        yield from map(plain, map(str.strip, self.lines))
        if self.table:
            yield table_html(map(str, self.table[0]), self.table[1:])
        yield from (
            _block(one) if isinstance(one, Finding) else finding_html(one, with_argument=False)
            for one in self.findings
        )
        yield _preformatted(self.listing)
        yield from self.pictures


def _filled(line: str, indent: str) -> str:
    """Return a line wrapped to 100 columns; the wrapped lines keep the line's indentation."""
    words = line.lstrip()
    return wrapped(words, indent + line[: len(line) - len(words)])


#: The sections of a report. A finding among them becomes a section of its own.
Parts = Iterable[Section | Finding]


def _sections(parts: Parts) -> Iterator[Section]:
    return (Section(findings=(part,)) if isinstance(part, Finding) else part for part in parts)


def as_text(
    head: str, sections: Parts, notes: Iterable[str] = (), *, is_head_first: bool = False
) -> str:
    r"""Return a report as text: the sections, the notes, and `head`, which is last by default.

    >>> as_text("no mistake was found", [], ["the file has no kernel"])
    'note: the file has no kernel\n\nno mistake was found'
    """
    parts = [text for section in _sections(sections) if (text := section.text())]
    parts += [wrapped(f"note: {note}") for note in notes]
    # The conclusion comes last in a terminal, where the reader sees the end of the output first.
    parts.insert(0 if is_head_first else len(parts), "\n".join(map(wrapped, head.split("\n"))))
    return printable("\n\n".join(parts))


def as_html(head: str, sections: Parts, notes: Iterable[str] = ()) -> str:
    """Return a report as HTML: `head`, the sections, the notes; escape all except `pictures`."""
    from tma_dlpack.draw.cards import bold, plain
    from tma_dlpack.draw.figure import fragment

    parts: list[Any] = [bold(head)] * bool(head)
    parts += itertools.chain.from_iterable(section.html() for section in _sections(sections))
    parts += [plain(f"note: {note}") for note in notes]
    return fragment([printable(p if isinstance(p, str) else p.panels()) for p in parts])


def _block(finding: Finding) -> str:
    """Return a finding as a block of HTML."""
    from tma_dlpack.draw.cards import plain

    # These CSS classes are in draw/figure.css. Violations and advice of maps have the same classes.
    kind = "violation" if finding.severity == ERROR else "advice"
    place = f"{finding.where}, in {finding.kernel}" if finding.kernel else finding.where
    rule = f"<b>{escape(finding.severity)} {escape(finding.rule)}</b> {escape(place)}"
    named = (("fix", finding.fix), ("source", finding.source))
    rest = "".join(plain(f"{name}: {text}") for name, text in named if text)
    lines = f"<div>{rule}</div>{plain(finding.message)}{_preformatted(finding.evidence)}{rest}"
    return f'<div class="tma-finding tma-{kind}">{lines}</div>'


def _preformatted(lines: Sequence[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>" * bool(lines)


def as_json(findings: Iterable[Any], **more: Any) -> str:
    """Return a report as JSON: ``{"findings": [...], ...}``; `more` are the further entries."""
    return json.dumps({"findings": [f.to_dict() for f in findings], **more}, indent=2)


def as_sarif(
    tool: str,
    rules: Mapping[str, tuple[str, str]],
    findings: Iterable[tuple[Finding, str]],
    suppressed: Iterable[tuple[Finding, str]] = (),
    notes: Iterable[str] = (),
) -> str:
    """Return findings as one run of SARIF 2.1.0, which code hosts show next to the source lines.

    Parameters
    ----------
    tool : str
        Name of the tool, such as "tma_dlpack lint".
    rules : dict
        Description and source of each rule, by id.
    findings, suppressed : iterable of (Finding, str)
        Each finding with the file that was read. If a finding has no line of the CUDA source, this
        file is the finding's place.
    notes : iterable of str
        Remarks, which become warnings of the run.
    """
    described = [
        {"id": rule, "shortDescription": {"text": about}, "help": {"text": f"Source: {source}"}}
        for rule, (about, source) in rules.items()
    ]
    # SARIF 2.1.0, "suppressions": code hosts keep such a result and do not show it.
    hidden = {"suppressions": [{"kind": "inSource"}]}
    run = {
        "tool": {"driver": {"name": tool, "rules": described}},
        "results": [
            *(_sarif_result(*pair) for pair in findings),
            *(_sarif_result(*pair) | hidden for pair in suppressed),
        ],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": note}} for note in notes
                ],
            }
        ],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2)


def _sarif_result(finding: Finding, file: str) -> dict[str, Any]:
    # `line` is "file:number". Split it at the last colon, because a Windows path has a colon too.
    name, _, number = (finding.line or "").rpartition(":")
    first = int(number) if name and number.isdecimal() else finding.ptx_line or 1
    uri = (name or file or "source.ptx").replace("\\", "/")
    return {
        "ruleId": finding.rule,
        "level": finding.severity,
        "message": {"text": f"{finding.message}\nfix: {finding.fix}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(uri, safe="/:+~@")},
                    "region": {"startLine": max(1, first)},
                },
                "logicalLocations": [{"name": finding.kernel}],
            }
        ],
    }
