"""One dimension of a tensor, what a box takes of it, and its strip in the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.draw.grid import Cell, Grid, label

MAX_TILES = 12  # drawn along one axis
PLOT_WIDTH = 430  # px
LEAST_BAND = 3  # px; a strided box with narrower positions is filled
MAX_CELLS, STRIP_CELL = 64, (40, 15)  # of the strip of an outer dimension; px at most
STRIP_STYLES = "padding", "tensor", "filled", "taken"  # outside, in bounds; the same in the box

Span = tuple[int, int]  # positions [first, last)


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
    shown: Span

    @property
    def name(self) -> str:
        """Such as ``shape[0]``."""
        return f"shape[{self.dimension}]"

    @property
    def driver_name(self) -> str:
        """Such as ``global_dim[1]``."""
        return f"global_dim[{self.driver_dimension}]"

    @property
    def box(self) -> Span:
        """The positions that the box spans."""
        return self.start, self.start + self.span

    @property
    def taken(self) -> range:
        """The positions that the box takes, in bounds or not."""
        return range(self.start, self.start + self.span, self.step)

    @property
    def inside(self) -> int:
        """How many of them are in bounds."""
        return sum(0 <= p < self.extent for p in self.taken)

    @property
    def cut(self) -> tuple[bool, bool]:
        """Whether the tensor goes on before and after what is drawn."""
        return self.shown[0] > 0, self.shown[1] < self.extent

    @property
    def ends(self) -> str:
        """First and last position of the box, as words."""
        return f"{self.start}..{self.start + self.span - 1}" if self.span > 1 else f"{self.start}"

    def about(self) -> str:
        """Describe it in a sentence."""
        outside, (first, last) = len(self.taken) - self.inside, self.shown
        parts = [f"{self.name} = {self.extent} (driver {self.driver_name}): box {self.ends}"]
        parts += [f" every {self.step}"] * (self.step > 1)
        parts += [f", {outside} of {len(self.taken)} out of bounds"] * (outside > 0)
        parts += [f"; {first}..{last - 1} drawn"] * any(self.cut)
        return "".join(parts)

    def clip(self, span: Span) -> Span:
        """Return the part of some positions that is drawn."""
        first, last = (min(max(position, self.shown[0]), self.shown[1]) for position in span)
        return first, last

    def bands(self, unit: float) -> list[Span]:
        """Return the positions that the box takes in bounds; all as one where too narrow."""
        first, last = max(self.start, 0), min(self.start + self.span, self.extent)
        if self.step == 1 or unit < LEAST_BAND:
            return [(first, last)] * (first < last)
        return [(p, p + 1) for p in self.taken if first <= p < last]

    def borders(self) -> range:
        """Return the borders of the tiles that cover the tensor, within what is drawn."""
        first, last = self.shown
        return range(max(first // self.span + 1, 1) * self.span, min(last, self.extent), self.span)

    def samples(self, most: int) -> list[int]:
        """Return positions for a sketch in characters."""
        first, last = self.shown
        count = min(last - first, most)
        return [first + (last - first) * n // count for n in range(count)]

    @property
    def cell_size(self) -> int:
        """How many positions are one cell of the strip."""
        return -(-(self.shown[1] - self.shown[0]) // MAX_CELLS)

    def strip(self) -> Grid:
        """Draw an outer dimension as a strip of its positions, those that the box takes filled."""
        (first, last), size = self.shown, self.cell_size
        starts = range(first, last, size)
        width = min(STRIP_CELL[0], PLOT_WIDTH / len(starts))
        is_named = size == 1 and width > 7 * len(f"{last - 1}")
        cells = [label(0, 0, f"{self.name} = {self.extent}", "label")]
        for n, begin in enumerate(starts):
            end = min(begin + size, last)
            inside, taken = 0 <= begin < self.extent, any(begin <= p < end for p in self.taken)
            name = f"{begin}..{end - 1}" if size > 1 else f"{begin}"
            title = f"{self.name}: position {name}{' in the box' * taken}"
            cell = Cell(n, 0, STRIP_STYLES[2 * taken + inside], name * is_named, title)
            key = f"at{self.dimension}.{begin}"
            cells.append(replace(cell, hatched=taken and not inside, key=key))
        return Grid(tuple(cells), (width, STRIP_CELL[1]))


def axis_of(request: CopyRequest, row_major: int, shown: Mapping[int, Span], least: int) -> Axis:
    """Return a dimension; `least` positions of it are drawn whatever the box is."""
    plan = request.plan
    args = plan.arguments
    d = args.rank - 1 - row_major
    start, extent, step = int(request.coords[0, d]), args.global_dim[d], plan.steps[d]
    # An interleaved map takes one slice whatever its box is: see `counts`.
    span = min(args.box_dim[d], plan.counts[d] * step)
    first, last = min(0, start), max(extent, start + span)
    if last - first > max(MAX_TILES * span, least):
        first = max(first, start - (MAX_TILES // 2) * span)
        last = min(last, first + MAX_TILES * span)
        first = max(min(0, start), last - MAX_TILES * span)
    begin, end = shown.get(row_major, (start, start))
    if begin <= start and start + span <= end:
        first, last = begin, end
    return Axis(row_major, d, extent, start, span, step, (first, last))
