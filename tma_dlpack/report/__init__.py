"""Findings and reports of the tools that read or run kernels, and the list of all rules.

`finding.py` has the record `Finding`, which these tools fill. `render.py` has `Section`, a part of
a report, and writes reports as text, HTML, JSON and SARIF. `rule_list.py` has `rules`. The record
of a refused call is `Violation` of `tma_dlpack.tables.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tma_dlpack.public import imported_later
from tma_dlpack.report.finding import (
    ERROR,
    NOTE,
    SEVERITIES,
    WARNING,
    Finding,
    merged,
    total,
    worst_first,
)

if TYPE_CHECKING:
    from tma_dlpack.report.render import Section, as_html, as_json, as_sarif, as_text
    from tma_dlpack.report.rule_list import RuleInfo, RuleList

__all__ = [
    "ERROR",
    "NOTE",
    "SEVERITIES",
    "WARNING",
    "Finding",
    "RuleInfo",
    "RuleList",
    "Section",
    "as_html",
    "as_json",
    "as_sarif",
    "as_text",
    "merged",
    "total",
    "worst_first",
]
_LATER = {
    "tma_dlpack.report.render": ("Section", "as_html", "as_json", "as_sarif", "as_text"),
    "tma_dlpack.report.rule_list": ("RuleInfo", "RuleList"),
}
__getattr__ = imported_later(__name__, _LATER)
