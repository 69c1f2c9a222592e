"""Functions that write a report of findings as text, HTML, JSON and SARIF."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from tma_dlpack.draw.cards import bold, plain
from tma_dlpack.draw.figure import fragment
from tma_dlpack.report.finding import ERROR, Finding
from tma_dlpack.tables.errors import wrapped

# The JSON schema of the SARIF standard (OASIS, version 2.1.0).
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(head: str, findings: Iterable[Finding], notes: Iterable[str] = ()) -> str:
    r"""Return a report as text: the findings, the notes, and `head` as the last line.

    >>> as_text("no mistake was found", [], ["the file has no kernel"])
    'note: the file has no kernel\n\nno mistake was found'
    """
    parts = [*map(str, findings), *(wrapped(f"note: {note}") for note in notes), head]
    return "\n\n".join(parts)


def as_html(
    head: str,
    findings: Sequence[Finding],
    notes: Iterable[str] = (),
    parts: Sequence[Any] = (),
) -> str:
    """Return a report as HTML: `head`, a block for each finding, `parts` (figures, HTML), notes.

    `head`, findings and notes are escaped; strings in `parts` are HTML and are not.
    """
    blocks = map(_block, findings)
    return fragment([bold(head), *blocks, *parts, *(plain(f"note: {note}") for note in notes)])


def _block(finding: Finding) -> str:
    """Return a finding as a block of HTML."""
    # The CSS classes of draw/figure.css, which violations and advice of maps have too.
    kind = "violation" if finding.severity == ERROR else "advice"
    place = f"{finding.where}, in {finding.kernel}" if finding.kernel else finding.where
    rule = f"<b>{escape(finding.severity)} {escape(finding.rule)}</b> {escape(place)}"
    lines = f"<div>{rule}</div>{plain(finding.message)}{plain(f'fix: {finding.fix}')}"
    return f'<div class="tma-finding tma-{kind}">{lines}</div>'


def as_json(findings: Iterable[Finding], notes: Iterable[str] = (), **more: Any) -> str:
    """Return a report as JSON: ``{"findings": [...], "notes": [...]}``, and `more` after them."""
    found = {"findings": [f.to_dict() for f in findings], "notes": list(notes), **more}
    return json.dumps(found, indent=2)


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
        Each finding with the file that was read, which is used for findings without a line of the
        CUDA source.
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
    # `line` is "file:number"; a path of Windows has a colon too, so the last one counts.
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
