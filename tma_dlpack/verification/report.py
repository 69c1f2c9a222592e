"""What a verification found, as values and as a table."""

from __future__ import annotations

from dataclasses import dataclass

from tma_dlpack.types.errors import sealed
from tma_dlpack.types.public import Drawn, public

__all__ = ["VerifyReport", "VerifyRow"]


@sealed
@dataclass(frozen=True, slots=True)
class VerifyRow:
    """One check.

    Attributes
    ----------
    name : str
    cases : int
        How many were compared.
    accepted : int
        How many of them were accepted by both sides and so compared byte for byte.
    disagreements : int
    first : str or None
        The first disagreement: a Python call that repeats it, and what differed.
    note : str
        What else there is to know, such as which fields of an unknown layout agree.
    """

    name: str
    cases: int
    accepted: int
    disagreements: int
    first: str | None = None
    note: str = ""


@public
@sealed
@dataclass(frozen=True, slots=True)
class VerifyReport(Drawn):
    """What `verify` found; `print` shows the table.

    Attributes
    ----------
    device : str
        The GPU, its compute capability and the driver's version.
    seed : int
    rows : tuple of VerifyRow
    """

    device: str
    seed: int
    rows: tuple[VerifyRow, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing disagreed."""
        return not any(row.disagreements for row in self.rows)

    def __str__(self) -> str:
        head = ("check", "cases", "accepted", "disagreements")
        table = [head] + [
            (r.name, str(r.cases), str(r.accepted), str(r.disagreements)) for r in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [f"{self.device}; seed {self.seed}"]
        for name, *numbers in table:
            cells = [n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *cells]))
        for row in self.rows:
            if row.note:
                lines.append(f"{row.name}: {row.note}")
            if row.first:
                lines.append(f"{row.name}, first disagreement:\n{row.first}")
        lines.append("all agree" if self.ok else "THERE ARE DISAGREEMENTS")
        return "\n".join(lines)
