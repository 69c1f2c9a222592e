"""One finding about a kernel: which rule, where, what is wrong and how to fix it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import wrapped

ERROR, WARNING = "error", "warning"
Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake that a tool found in a kernel.

    Attributes
    ----------
    rule : str
        Stable id such as "PROXY_FENCE"; it means the same in every tool.
    severity : str
        "error" where the tool proved it, "warning" where it only can be.
    message, fix : str
        What is wrong, and what to change.
    kernel : str
        The function as the user writes it, or "".
    line : str or None
        "file:line" of the CUDA source, None where the code has no line table.
    ptx_line : int or None
        Line of the PTX, from 1.
    block, thread : tuple of int or None
        The first thread that it was found in, x first.
    sites : int
        How many instructions or warps share the cause.
    evidence : tuple of str
        Lines that show how the tool knows: a path, two accesses, the state of a barrier.
    source : str
        The document or measurement behind the rule.

    Examples
    --------
    >>> print(Finding("PROXY_FENCE", "error", "a store copies the tile before a fence",
    ...               "call fence_async() before the store", "scale", "scale.cu:31", 88))
    scale.cu:31: error: a store copies the tile before a fence [PROXY_FENCE]
      in scale, line 88 of the PTX
      fix: call fence_async() before the store
    """

    rule: str
    severity: str
    message: str
    fix: str
    kernel: str = ""
    line: str | None = None
    ptx_line: int | None = None
    block: Triple | None = None
    thread: Triple | None = None
    sites: int = 1
    evidence: tuple[str, ...] = ()
    source: str = ""

    @property
    def where(self) -> str:
        """The line of the source, else that of the PTX, else the kernel."""
        return self.line or (f"line {self.ptx_line}" if self.ptx_line else self.kernel)

    @property
    def place(self) -> str:
        """The kernel, the line of the PTX, the block and the thread, if known."""
        parts = [
            f"in {self.kernel}" if self.kernel else "",
            f"line {self.ptx_line} of the PTX" if self.ptx_line else "",
            f"block {self.block}" if self.block else "",
            f"thread {self.thread}" if self.thread else "",
            f"{self.sites} places" if self.sites > 1 else "",
        ]
        return ", ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, as JSON has them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        head = f"{self.where}: " * bool(self.where) + f"{self.severity}: {self.message}"
        lines = [wrapped(f"{head} [{self.rule}]")]
        lines += [f"  {self.place}"] if self.place else []
        lines += [wrapped(line, "  ") for line in self.evidence]
        lines += [wrapped(f"fix: {self.fix}", "  ")] if self.fix else []
        lines += [f"  source: {self.source}"] if self.source else []
        return "\n".join(lines)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in the order of a report: errors first, then by rule and line."""
    return sorted(findings, key=lambda f: (f.severity, f.rule, f.line or "", f.ptx_line or 0))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding per rule and line, with the sum of their sites, in the order given.

    An error replaces a warning of the same rule at the same line.
    """
    found: dict[Hashable, Finding] = {}
    for finding in findings:
        key = finding.rule, finding.kernel, finding.line, finding.ptx_line
        before = found.get(key)
        if before is not None:
            worse = min(before, finding, key=lambda f: f.severity)
            finding = replace(worse, sites=before.sites + finding.sites)
        found[key] = finding
    return list(found.values())


def total(findings: Iterable[Finding]) -> str:
    """Return how many errors and warnings there are, in words.

    >>> total(())
    'no mistake was found'
    """
    severities = [finding.severity for finding in findings]
    if not severities:
        return "no mistake was found"
    errors = severities.count(ERROR)
    return f"{counted(errors, 'error')}, {counted(len(severities) - errors, 'warning')}"
