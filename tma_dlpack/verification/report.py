"""The result of `verify`, as values and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.tables.coerce import aligned, integer_of, shown
from tma_dlpack.tables.errors import refusal, sealed
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
        heads = ("check", "cases", "accepted", "disagreements")
        rows = [(r.name, r.cases, r.accepted, r.disagreements) for r in self.rows]
        lines = [f"{self.device}; seed {self.seed}", *aligned([heads, *rows], left=1)]
        for row in self.rows:
            if row.note:
                lines.append(f"{row.name}: {row.note}")
            if row.first:
                lines.append(f"{row.name}, first disagreement:\n{row.first}")
        lines.append("all agree" if self.ok else "THERE ARE DISAGREEMENTS")
        return "\n".join(lines)


# --- What is shared by the functions that report ------------------------------------------------


def at_least(argument: str, value: object, least: int = 1, usual: int | None = None) -> int:
    """Return an argument as an int of at least `least`, or refuse it."""
    number = integer_of(value)
    if number is None or number < least:
        fix = f"pass {argument}={least if usual is None else usual}"
        must = f"be an integer of at least {least}"
        raise refusal(argument, f"{argument} is {shown(value)}", must, fix)
    return number


def byte_difference(what: str, simulated: npt.NDArray[Any], real: npt.NDArray[Any]) -> str | None:
    """Return how many bytes differ, and the first; None if they are equal."""
    places = np.flatnonzero(simulated != real)
    if not len(places):
        return None
    at = int(places[0])
    return (
        f"{what} differs in {len(places)} bytes, first at {at}: the simulator has "
        f"{int(simulated[at]):#04x}, the hardware {int(real[at]):#04x}"
    )
