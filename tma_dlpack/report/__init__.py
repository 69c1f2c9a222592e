"""Findings of the tools that read or run kernels, and their text, HTML, JSON and SARIF.

`finding.py` has the record, `render.py` the four forms. A tool fills `Finding` and adds no form of
its own. Refusals of calls are `tma_dlpack.tables.errors.Violation`.
"""

from __future__ import annotations

from tma_dlpack.report.finding import ERROR, WARNING, Finding, merged, total, worst_first
from tma_dlpack.report.render import as_html, as_json, as_sarif, as_text
