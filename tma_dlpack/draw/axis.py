"""One dimension of a tensor and what a box takes of it, and where its chunks come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the tensor, and what the box takes of it.

    Attributes
    ----------
    dimension, driver_dimension : int
        Row-major, and innermost first; -1 of the rows that a tensor of rank 1 lacks.
    extent : int
        Of the tensor, elements (units of 16 or 32 bytes along an interleaved innermost axis).
    start, span, step : int
        The box begins at `start`, spans `span` positions and takes every `step`-th.
    shown : tuple of (int, int)
        Positions [first, last) that are drawn: all of the tensor and the box, or what is around
        the box of a tensor of more than 12 tiles.
    """

    dimension: int
    driver_dimension: int
    extent: int
    start: int
    span: int
    step: int
    shown: tuple[int, int]

    @property
    def exists(self) -> bool:
        """Whether the tensor has this dimension."""
        return self.dimension >= 0

    @property
    def name(self) -> str:
        """Such as ``shape[0]``."""
        return f"shape[{self.dimension}]"

    @property
    def driver_name(self) -> str:
        """Such as ``global_dim[1]``."""
        return f"global_dim[{self.driver_dimension}]"

    @property
    def taken(self) -> range:
        """The positions that the box takes, in bounds or not."""
        return range(self.start, self.start + self.span, self.step)

    @property
    def inside(self) -> int:
        """How many of them are in bounds."""
        return sum(0 <= p < self.extent for p in self.taken)

    @property
    def clipped(self) -> tuple[int, int]:
        """The part [first, last) of the box that is in bounds; empty where first >= last."""
        return max(self.start, 0), min(self.start + self.span, self.extent)

    @property
    def is_cut(self) -> bool:
        """Whether some of the tensor is not drawn."""
        return self.shown[0] > 0 or self.shown[1] < self.extent

    def about(self) -> str:
        """Say it in a sentence."""
        step = f" every {self.step}" if self.step > 1 else ""
        outside = len(self.taken) - self.inside
        missing = f", {outside} of {len(self.taken)} out of bounds" if outside else ""
        cut = f"; {self.shown[0]}..{self.shown[1] - 1} drawn" if self.is_cut else ""
        return (
            f"{self.name} = {self.extent} (driver {self.driver_name}): box "
            f"{self.range}{step}{missing}{cut}"
        )

    @property
    def range(self) -> str:
        """First and last position of the box, as words."""
        return f"{self.start}..{self.start + self.span - 1}" if self.span > 1 else f"{self.start}"


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a chunk comes from: a row, the columns [first, last), and what links to it."""

    row: int
    first: int
    last: int
    key: str
    to: tuple[str, ...]
    about: str
