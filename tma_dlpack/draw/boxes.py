"""The tensor with a tile's box on it: the grid of tiles, both orders, what is out of bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.asked import request_of
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.enums import TmaOobFill
from tma_dlpack.types.errors import TmaUnsupportedError
from tma_dlpack.types.opaque import opaque

__all__ = ["Axis", "TensorBox", "tensor"]

MAX_TILES = 12  # drawn along one axis
LEAST_BAND = 3  # px; a strided box with narrower positions is filled


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the tensor, and what the box takes of it.

    Attributes
    ----------
    name, driver_name : str
        ``shape[0]`` and ``global_dim[1]``.
    extent : int
        Of the tensor, elements (units of 16 or 32 bytes along an interleaved innermost axis).
    start, span, step : int
        The box begins at `start`, spans `span` positions and takes every `step`-th.
    shown : tuple of (int, int)
        Positions [first, last) that are drawn: all of the tensor and the box, or what is around
        the box of a tensor of more than 12 tiles.
    """

    name: str
    driver_name: str
    extent: int
    start: int
    span: int
    step: int
    shown: tuple[int, int]

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


@dataclass(frozen=True, slots=True, repr=False)
class TensorBox(Figure):
    """The two innermost dimensions of a tensor with the box of one tile on them.

    Attributes
    ----------
    rows, columns : Axis
        Dimensions rank - 2 and rank - 1; `rows` of a rank-1 tensor has extent 1.
    outer : tuple of Axis
        The other dimensions, outermost first; the picture shows one position of them.
    remarks : tuple of str
        What out-of-bounds elements become, and what an interleaved layout counts.
    """

    title: str
    rows: Axis
    columns: Axis
    outer: tuple[Axis, ...]
    remarks: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The axes in words, outermost first, and the remarks."""
        axes = (*self.outer, self.rows, self.columns)
        return (*(axis.about() for axis in axes if axis.name), *self.remarks)

    @property
    def outer_inside(self) -> bool:
        """Whether the first position along every outer dimension is in bounds."""
        return all(0 <= axis.start < axis.extent for axis in self.outer)

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel."""
        return (_panel(self),)

    def text(self) -> str:
        """Give the axes in words, and the picture as characters."""
        return "\n".join([self.title, *self.notes, *_characters(self)])


@opaque
def tensor(
    tensor_map: TensorMap | Tile, coords: Sequence[int] | None = None, *, smem_offset: int = 0
) -> TensorBox:
    """Show the tensor with the box of one tile on it.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        Of a tiled map; a tile brings its own coordinates.
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the first tile.

    Returns
    -------
    TensorBox
        Of the two innermost dimensions; the outer ones are told in words.

    Raises
    ------
    TmaPreconditionError
        For what is neither map nor tile, and for coordinates that `load_tile` would refuse.
    TmaUnsupportedError
        For im2col maps, which `walk` shows.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> print(tensor(tm, (24, 64)))  # doctest: +ELLIPSIS
    tensor (30, 104) FLOAT16, box (8, 64) at (24, 64)
    shape[0] = 30 (driver global_dim[1]): box 24..31, 2 of 8 out of bounds
    shape[1] = 104 (driver global_dim[0]): box 64..127, 24 of 64 out of bounds
    ...
    """
    request = request_of(tensor_map, coords, None, smem_offset)
    args = request.plan.arguments
    if args.kind != "tiled":
        raise TmaUnsupportedError(f"an {args.kind} map has no box; draw.walk shows its pixels")
    axes = [_axis(request, d) for d in range(args.rank)]
    if args.rank == 1:
        axes.append(Axis("", "", 1, 0, 1, 1, (0, 1)))
    place = tuple(request.coords[0][::-1].tolist())
    box = tuple(args.box_dim[::-1])
    return TensorBox(
        title=f"tensor {tuple(args.global_dim[::-1])} {args.data_type.name}, box {box} at {place}",
        rows=axes[1],
        columns=axes[0],
        outer=tuple(axes[:1:-1]),
        remarks=_remarks(request),
    )


def _remarks(request: CopyRequest) -> tuple[str, ...]:
    args, unit = request.plan.arguments, request.plan.unit_bytes
    nan = args.oob_fill == TmaOobFill.nan
    filled = "out-of-bounds elements become " + ("NaN (16-bit words 0x7FF7)" if nan else "zero")
    if not unit:
        return (filled,)
    return (
        filled,
        f"interleave {args.interleave.name}: shape[{args.rank - 1}] counts units of {unit} bytes",
        "shape[1] counts slices, of which the box takes one",
    )


def _axis(request: CopyRequest, d: int) -> Axis:
    plan = request.plan
    args = plan.arguments
    start, extent, step = int(request.coords[0, d]), args.global_dim[d], plan.steps[d]
    # An interleaved map takes one slice whatever its box says: `counts` knows.
    span = min(args.box_dim[d], plan.counts[d] * step)
    first, last = min(0, start), max(extent, start + span)
    if last - first > MAX_TILES * span:
        first = max(first, start - (MAX_TILES // 2) * span)
        last = min(last, first + MAX_TILES * span)
        first = max(min(0, start), last - MAX_TILES * span)
    row_major = args.rank - 1 - d
    return Axis(f"shape[{row_major}]", f"global_dim[{d}]", extent, start, span, step, (first, last))


# --- Drawing ------------------------------------------------------------------------------------

LEFT, TOP, PLOT_WIDTH = 128, 34, 424
LEAST_HEIGHT, MOST_HEIGHT = 96, 280
RIGHT, NOTE_HEIGHT = 20, 16


@dataclass(frozen=True, slots=True)
class _Scale:
    """From positions along an axis to pixels."""

    axis: Axis
    offset: float
    length: float

    def at(self, position: float) -> float:
        first, last = self.axis.shown
        share = (min(max(position, first), last) - first) / (last - first)
        return round(self.offset + share * self.length, 2)

    def between(self, first: float, last: float) -> tuple[float, float]:
        """Give where a part begins, and how long it is."""
        return self.at(first), self.at(last) - self.at(first)


def _panel(figure: TensorBox) -> Scene:
    rows, columns = figure.rows, figure.columns
    per_element = PLOT_WIDTH / (columns.shown[1] - columns.shown[0])
    height = (rows.shown[1] - rows.shown[0]) * per_element
    height = min(max(height, LEAST_HEIGHT), MOST_HEIGHT)
    x, y = _Scale(columns, LEFT, PLOT_WIDTH), _Scale(rows, TOP, height)
    bottom = TOP + height
    items: list[Item] = [
        Text(LEFT, 20, f"{columns.name} = {columns.extent} →  ({columns.driver_name}, contiguous)"),
        *_row_labels(rows, y),
        _rectangle(x, y, (0, columns.extent), (0, rows.extent), "tensor"),
        *_box(figure, x, y),
        *_grid(x, y),
        *_bounds(x, y, bottom),
    ]
    note_y = bottom + 38
    for note in figure.notes:
        items.append(Text(10, note_y, note, "muted"))
        note_y += NOTE_HEIGHT
    items += _legend(note_y - 6)
    about = "; ".join([figure.title, *figure.notes])
    return Scene(LEFT + PLOT_WIDTH + RIGHT, note_y + 20, about, tuple(items))


def _row_labels(rows: Axis, y: _Scale) -> list[Item]:
    words = [f"{rows.name} = {rows.extent} ↓", rows.driver_name] if rows.name else ["one row"]
    return [Text(10, TOP + 14 + 15 * n, word) for n, word in enumerate(words)]


def _rectangle(
    x: _Scale,
    y: _Scale,
    columns: tuple[int, int],
    rows: tuple[int, int],
    style: str,
    hatched: bool = False,
) -> Box:
    (left, width), (top, height) = x.between(*columns), y.between(*rows)
    return Box(left, top, width, height, style, hatched=hatched)


def _box(figure: TensorBox, x: _Scale, y: _Scale) -> list[Item]:
    """Draw the box: hatched where out of bounds, filled where it takes elements."""
    rows, columns = figure.rows, figure.columns
    whole = ((columns.start, columns.start + columns.span), (rows.start, rows.start + rows.span))
    items: list[Item] = [_rectangle(x, y, *whole, "filled", hatched=True)]
    inside = columns.clipped, rows.clipped
    if figure.outer_inside and all(first < last for first, last in inside):
        items.append(_rectangle(x, y, *inside, "tensor"))
        items += [_rectangle(x, y, part, band, "taken") for band in _bands(y) for part in _bands(x)]
    return [*items, _rectangle(x, y, *whole, "box")]


def _bands(scale: _Scale) -> list[tuple[int, int]]:
    """Give the positions that the box takes in bounds, as parts to fill; all where too narrow."""
    axis = scale.axis
    first, last = axis.clipped
    if axis.step == 1 or scale.at(first + 1) - scale.at(first) < LEAST_BAND:
        return [(first, last)]
    return [(p, p + 1) for p in axis.taken if 0 <= p < axis.extent]


def _grid(x: _Scale, y: _Scale) -> list[Item]:
    """Draw the borders of the tiles that cover the tensor."""
    left, right = x.at(0), x.at(x.axis.extent)
    top, bottom = y.at(0), y.at(y.axis.extent)
    return [
        *(Line(((c, top), (c, bottom)), "grid") for c in _borders(x)),
        *(Line(((left, r), (right, r)), "grid") for r in _borders(y)),
    ]


def _borders(scale: _Scale) -> list[float]:
    first, last = scale.axis.shown
    span, extent = scale.axis.span, scale.axis.extent
    begin = max(span, -(-first // span) * span)
    return [scale.at(p) for p in range(begin, min(last, extent), span) if p > first]


def _bounds(x: _Scale, y: _Scale, bottom: float) -> list[Item]:
    """Name the box's first and last positions beside it."""
    columns, rows = x.axis, y.axis
    mid = x.at(columns.start + columns.span / 2)
    label = f"columns {columns.range}"
    half = 3.1 * len(label)
    mid = min(max(mid, LEFT + half), LEFT + PLOT_WIDTH - half)
    items: list[Item] = [Text(mid, bottom + 17, label, "label", "middle")]
    if rows.name:
        row_y = y.at(rows.start + rows.span / 2)
        row_y = min(max(row_y, TOP + 50), bottom - 4)
        label = f"rows {rows.range}"
        items.append(Text(LEFT - 8, row_y, label, "label", "end"))
    return items


def _legend(y: float) -> list[Item]:
    return [
        Box(10, y, 22, 14, "tensor"),
        Text(38, y + 11, "tensor", "muted"),
        Box(106, y, 22, 14, "taken"),
        Text(134, y + 11, "taken", "muted"),
        Box(196, y, 22, 14, "filled", hatched=True),
        Text(224, y + 11, "out of bounds", "muted"),
        Line(((334, y + 7), (356, y + 7)), "grid"),
        Text(362, y + 11, "tiles of the grid", "muted"),
    ]


# --- Characters ---------------------------------------------------------------------------------

TEXT_WIDTH, TEXT_HEIGHT = 64, 12


def _characters(figure: TensorBox) -> list[str]:
    """Sketch the same: ``.`` tensor, ``#`` taken, ``x`` out of bounds."""
    columns = _samples(figure.columns, TEXT_WIDTH)
    return [
        "  " + "".join(_character(figure, r, c) for c in columns).rstrip()
        for r in _samples(figure.rows, TEXT_HEIGHT)
    ]


def _samples(axis: Axis, most: int) -> list[int]:
    first, last = axis.shown
    count = min(last - first, most)
    return [first + (last - first) * n // count for n in range(count)]


def _character(figure: TensorBox, row: int, column: int) -> str:
    rows, columns = figure.rows, figure.columns
    in_tensor = 0 <= row < rows.extent and 0 <= column < columns.extent
    in_box = (
        rows.start <= row < rows.start + rows.span
        and columns.start <= column < columns.start + columns.span
    )
    if in_box:
        return "#" if in_tensor and figure.outer_inside else "x"
    return "." if in_tensor else " "
