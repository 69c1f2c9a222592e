"""The record of one finding about a kernel: the rule, the place, the mistake and the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from tma_dlpack.tables.coerce import counted, printable
from tma_dlpack.tables.errors import wrapped

#: The severities, the worst first.
SEVERITIES = ERROR, WARNING, NOTE = "error", "warning", "note"
Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake that a tool found in a kernel.

    Attributes
    ----------
    rule : str
        Stable id such as "PROXY_FENCE", with the same meaning in every tool.
    severity : str
        "error": the tool proved the mistake. "warning": the mistake is only possible. "note": the
        code breaks a documented rule, but measurements show that it works on hardware.
    message, fix : str
        The mistake, and the change that corrects it.
    kernel : str
        The function as the user writes it, or "".
    line : str or None
        "file:line" of the CUDA source; None if the code has no line table.
    ptx_line : int or None
        Line of the PTX, from 1.
    block, thread : tuple of int or None
        The block and the thread in which the mistake was found first, each as (x, y, z).
    sites : int
        Number of instructions or warps with the same cause.
    evidence : tuple of str
        Lines of evidence, such as a path, two accesses, or the state of a barrier.
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
        """The line of the source, if it is known.

        If the line of the source is not known, this is the line of the PTX. If neither line is
        known, this is the kernel.
        """
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
        """Return the fields by name, for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        head = f"{self.where}: " * bool(self.where) + f"{self.severity}: {self.message}"
        lines = [wrapped(f"{head} [{self.rule}]")]
        lines += [f"  {self.place}"] if self.place else []
        lines += [wrapped(line, "  ") for line in self.evidence]
        lines += [wrapped(f"fix: {self.fix}", "  ")] if self.fix else []
        lines += [f"  source: {self.source}"] if self.source else []
        return printable("\n".join(lines))

    @property
    def rank(self) -> int:
        """The index of the severity in `SEVERITIES`."""
        return SEVERITIES.index(self.severity)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in the order of a report: errors first, then by rule and line."""
    return sorted(findings, key=lambda f: (f.rank, f.rule, f.line or "", f.ptx_line or 0))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Merge the findings that have the same rule, kernel and line, and add up their `sites`.

    An error replaces a warning of the same rule at the same line.
    """
    found: dict[Hashable, Finding] = {}
    for finding in findings:
        key = finding.rule, finding.kernel, finding.line, finding.ptx_line
        before = found.get(key)
        if before is not None:
            # Rank 0 is the worst severity. `min` keeps `before` if both ranks are equal.
            worse = min(before, finding, key=lambda f: f.rank)
            finding = replace(worse, sites=before.sites + finding.sites)
        found[key] = finding
    return list(found.values())


def total(findings: Iterable[Finding]) -> str:
    """Return the numbers of errors, warnings and notes, in words.

    >>> total(())
    'no mistake was found'
    """
    of = Counter(finding.severity for finding in findings)
    if not of:
        return "no mistake was found"
    notes = f", {counted(of[NOTE], 'note')}" * bool(of[NOTE])
    return f"{counted(of[ERROR], 'error')}, {counted(of[WARNING], 'warning')}{notes}"
