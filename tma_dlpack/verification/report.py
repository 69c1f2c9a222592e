"""The result of `verify`, as values and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tma_dlpack.tables.errors import sealed
from tma_dlpack.tables.public import Drawn, public


@sealed
@dataclass(frozen=True, slots=True)
class VerifyRow:
    """The result of one check.

    Attributes
    ----------
    name : str
    cases : int
        Number of cases that were run.
    accepted : int
        Number of cases that both sides accepted, and whose results were compared byte for byte.
    disagreements : int
        Number of cases in which the two sides differ.
    first : str or None
        The first disagreement: a Python call that repeats it, and the difference.
    note : str
        A remark, such as which fields of an unknown layout agree.
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
    """The result of `verify`: one row per check; ``print`` shows the table.

    Attributes
    ----------
    device : str
        The GPU, its compute capability and the driver's version.
    seed : int
        Seed of the random cases.
    rows : tuple of VerifyRow
        Each with `name`, `cases`, `accepted`, `disagreements`, `first` (a call that repeats the
        first disagreement) and `note`.
    """

    device: str
    seed: int
    rows: tuple[VerifyRow, ...]

    @property
    def ok(self) -> bool:
        """Whether both sides agree in all cases."""
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


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines, with columns aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]
