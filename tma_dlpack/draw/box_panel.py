"""The tensor drawn with a box on it: torn edges where it is cropped, slices where it is deep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tma_dlpack.draw.axis import Axis, Hit
from tma_dlpack.draw.captions import legend_entry, notes_below
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text, text_width
from tma_dlpack.draw.torn import MINIMAP_HEIGHT, edges, minimap

LEFT, TOP, PLOT_WIDTH = 128, 34, 424
LEAST_HEIGHT, MOST_HEIGHT = 96, 280
RIGHT, STRIP_HEIGHT = 20, 22
NOTE_COLUMNS = 90
LEAST_BAND = 3  # px; a strided box with narrower positions is filled
MAX_CELLS = 32  # of a strip
STACK = 5  # px from one slice to the one behind it


class BoxFigure(Protocol):
    """What is drawn, see `TensorBox`."""

    @property
    def title(self) -> str: ...
    @property
    def rows(self) -> Axis: ...
    @property
    def columns(self) -> Axis: ...
    @property
    def outer(self) -> tuple[Axis, ...]: ...
    @property
    def hits(self) -> tuple[Hit, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def outer_inside(self) -> bool: ...


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
        return self.at(first), round(self.at(last) - self.at(first), 2)

    @property
    def cut(self) -> tuple[bool, bool]:
        """Whether the tensor goes on before and after what is drawn."""
        return self.axis.shown[0] > 0, self.axis.shown[1] < self.axis.extent

    @property
    def data(self) -> str:
        """Dimension, offset, length, first and last position, for scripts."""
        first, last = self.axis.shown
        return f"{self.axis.dimension} {self.offset:g} {self.length:g} {first} {last}"


def box_panel(figure: BoxFigure) -> Scene:
    """Lower a tensor and its box to one panel."""
    rows, columns = figure.rows, figure.columns
    per_element = PLOT_WIDTH / (columns.shown[1] - columns.shown[0])
    height = (rows.shown[1] - rows.shown[0]) * per_element
    height = round(min(max(height, LEAST_HEIGHT), MOST_HEIGHT), 2)
    x, y = _Scale(columns, LEFT, PLOT_WIDTH), _Scale(rows, TOP, height)
    bottom = TOP + height
    ground, sides = edges(
        x.at(0),
        y.at(0),
        x.at(columns.extent),
        y.at(rows.extent),
        (x.cut[0], y.cut[0], x.cut[1], y.cut[1]),
    )
    items: list[Item] = [
        Text(LEFT, 20, f"{columns.name} = {columns.extent} →  ({columns.driver_name}, contiguous)"),
        *_row_labels(rows),
        *_stack(figure, x, y),
        ground,
        *sides,
        *_box(figure, x, y),
        *_grid(x, y),
        *_targets(figure, x, y),
        *_bounds(x, y, bottom),
    ]
    below = bottom + 30 + STACK
    for axis in figure.outer:
        items += _strip(axis, below)
        below += STRIP_HEIGHT
    if rows.is_cut or columns.is_cut:
        whole = [(min(0, a.shown[0]), max(a.extent, a.shown[1])) for a in (columns, rows)]
        said = "the whole tensor; framed: what is drawn"
        items += minimap(LEFT, below, (whole[0], whole[1]), (columns.shown, rows.shown), said)
        below += MINIMAP_HEIGHT
    notes, below = notes_below(figure.notes, below, NOTE_COLUMNS)
    items += [*notes, *_legend(below + 4)]
    about = "; ".join([figure.title, *figure.notes])
    data = (("x", x.data), *([("y", y.data)] if rows.exists else []))
    return Scene(LEFT + PLOT_WIDTH + RIGHT, below + 28, about, tuple(items), data)


def _row_labels(rows: Axis) -> list[Item]:
    words = [f"{rows.name} = {rows.extent} ↓", rows.driver_name] if rows.exists else ["one row"]
    return [Text(10, TOP + 14 + 15 * n, word) for n, word in enumerate(words)]


def _stack(figure: BoxFigure, x: _Scale, y: _Scale) -> list[Item]:
    """Draw the slices behind the one that is shown, at most two."""
    behind = min(2, sum(axis.extent - 1 for axis in figure.outer))
    left, right = x.at(0), x.at(x.axis.extent)
    top, below = y.at(0), y.at(y.axis.extent)
    corners = ((left, below), (right, below), (right, top))
    return [
        Line(tuple((a + STACK * n, b + STACK * n) for a, b in corners), "edge")
        for n in range(behind, 0, -1)
    ]


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


def _box(figure: BoxFigure, x: _Scale, y: _Scale) -> list[Item]:
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


def _targets(figure: BoxFigure, x: _Scale, y: _Scale) -> list[Item]:
    """Lay an invisible box over the origin of each chunk, for pointers and links."""
    items: list[Item] = []
    for hit in figure.hits:
        left, width = x.between(hit.first, hit.last)
        top, height = y.between(hit.row, hit.row + 1)
        items.append(
            Box(left, top, width, height, "plain", title=hit.about, key=hit.key, to=hit.to)
        )
    return items


def _bounds(x: _Scale, y: _Scale, bottom: float) -> list[Item]:
    """Name the box's first and last positions beside it."""
    columns, rows = x.axis, y.axis
    mid = x.at(columns.start + columns.span / 2)
    label = f"columns {columns.range}"
    half = 3.1 * len(label)
    mid = min(max(mid, LEFT + half), LEFT + PLOT_WIDTH - half)
    items: list[Item] = [Text(mid, bottom + 17 + STACK, label, "label", "middle")]
    if rows.exists:
        row_y = y.at(rows.start + rows.span / 2)
        row_y = min(max(row_y, TOP + 50), bottom - 4)
        first, last = f"rows {rows.range}", ""
        if text_width(first) > LEFT - 16:  # 2^31 rows: two lines
            first, last = first.split("..")
            first += ".."
        items += [
            Text(LEFT - 8, row_y + 13 * n, said, "label", "end")
            for n, said in enumerate(filter(None, (first, last)))
        ]
    return items


def _strip(axis: Axis, y: float) -> list[Item]:
    """Draw one outer dimension as a strip of its positions, those that the box takes filled."""
    first, last = axis.shown
    count = min(MAX_CELLS, last - first)
    label = f"{axis.name} = {axis.extent}"
    items: list[Item] = [Text(10, y + 11, label)]
    for n in range(count):
        begin, end = (first + (last - first) * k // count for k in (n, n + 1))
        inside = 0 <= begin < axis.extent
        taken = any(begin <= p < end for p in axis.taken)
        style = ("taken" if inside else "filled") if taken else "tensor" if inside else "padding"
        named = f"{begin}" if end - begin == 1 else f"{begin}..{end - 1}"
        width = min(40.0, PLOT_WIDTH / count)
        items.append(
            Box(
                round(LEFT + n * width, 2),
                y,
                round(width, 2),
                15,
                style,
                (named,) if width > 9 * len(named) else (),
                f"{axis.name}: position {named}" + " in the box" * taken,
                hatched=taken and not inside,
                key=f"at{axis.dimension}.{begin}",
            )
        )
    return items


def _legend(y: float) -> list[Item]:
    return [
        *legend_entry(10, y, "tensor", "tensor"),
        *legend_entry(106, y, "taken", "taken"),
        *legend_entry(196, y, "filled", "out of bounds", hatched=True),
        Line(((334, y + 7), (356, y + 7)), "grid"),
        Text(362, y + 11, "tiles of the grid", "muted"),
    ]
