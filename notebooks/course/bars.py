"""Measured numbers, drawn as bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.grid import Cell, Grid, Scene, label, lay_out

BAR_PX, ROW_PX, BAR_ROWS = 420, 28, 0.75
NAMES = 24  # characters: width of the column of names in the result of `Bars.text`


#: Results of three runs of `python tests/bench ladder`, one entry per kernel:
#: (step, (lowest, highest) TFLOP/s of the three runs, idea of the step).
LADDER = (
    ("1 threads copy", (250, 251), "cp.async, 16 bytes at a time, into swizzled places"),
    ("2 TMA", (160, 160), "one thread loads the tile, in boxes of 16 bytes: too narrow"),
    ("3 swizzle", (344, 350), "boxes of 128 bytes, which wgmma reads with a swizzle: 1 copy for 8"),
    ("4 ring of 4 stages", (562, 568), "three tiles are loaded while one is multiplied"),
    ("5 a warp that only loads", (554, 560), "no faster alone; steps 6 and 7 need it"),
    ("6 multicast", (651, 655), "two blocks share each tile of B"),
    ("7 persistent", (695, 704), "a block per multiprocessor, tiles in an order for L2"),
)
LADDER_SOURCE = (
    "NVIDIA H100 80GB, driver 580.159.04, 2026-11-24, three runs of python tests/bench ladder; "
    "in the same runs hopper_gemm: 665 to 681; torch.matmul: 660 to 783"
)


class Row(NamedTuple):
    """A name, a measured number, and the idea that this row adds to the previous row."""

    name: str
    value: float
    about: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Bars(Figure):
    """Bars of numbers in one unit. The last bar is the final result, so this bar is emphasized.

    Attributes
    ----------
    rows : tuple of Row
    unit : str
    source : str
        Where, when and by which command the numbers were measured.
    """

    title: str
    rows: tuple[Row, ...]
    unit: str
    source: str

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel with the bars."""
        # Scale the numbers so that the longest bar is BAR_PX pixels long.
        most = max(row.value for row in self.rows)
        cells = []
        for n, row in enumerate(self.rows):
            style = "taken" if row is self.rows[-1] else "cell"
            length = BAR_PX * row.value / most
            number = f"{row.value:,.0f}"
            cells.append(Cell(0, n, style, number, row.about, length, BAR_ROWS, key=row.name))
            cells.append(label(0, n, row.name, "label", BAR_ROWS))
        grid = Grid(tuple(cells), (1, ROW_PX))
        return (lay_out(self.title, [grid], "", [self.unit], [self.source]),)

    def text(self) -> str:
        """Return a line for each row."""
        lines = [
            f"{row.name:{NAMES}} {row.value:7,.0f} {self.unit}  {row.about}".rstrip()
            for row in self.rows
        ]
        return "\n".join([self.title, *lines, self.source])


def bars(title: str, unit: str, rows: Sequence[tuple[str, float, str]], source: str) -> Bars:
    """Draw measured numbers as bars, in the given order.

    Parameters
    ----------
    title, unit : str
    rows : sequence of (str, float, str)
        Name, number, and the idea that this row adds to the previous row.
    source : str
        Where, when and by which command the numbers were measured.

    Returns
    -------
    Bars

    Examples
    --------
    >>> print(bars("two", "TFLOP/s", [("a", 1, "slow"), ("b", 2, "fast")], "not measured"))
    two
    a                              1 TFLOP/s  slow
    b                              2 TFLOP/s  fast
    not measured
    """
    return Bars(title, tuple(Row(*row) for row in rows), unit, source)


def ladder() -> Bars:
    """Draw the measured speed of each kernel of notebooks/gemm_ladder.cu.

    The length of a bar is the speed of the fastest of three runs.
    """
    rows = [(name, most, f"{least} to {most}; {idea}") for name, (least, most), idea in LADDER]
    return bars("C = A x B^T, bfloat16, 8192 x 8192 x 8192", "TFLOP/s", rows, LADDER_SOURCE)
