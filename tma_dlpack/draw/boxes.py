"""The picture of a tensor with the box of one tile. The box may be partly out of bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import drawn_chunks, request_of
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.grid import (
    LINE,
    MARGIN,
    NARROW,
    Cell,
    Grid,
    Legend,
    Scene,
    label,
    lay_out,
    rectangle,
    sides,
    text_width,
    window,
    words,
)
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import integers_of
from tma_dlpack.tables.enums import TmaOobFill
from tma_dlpack.tables.errors import TmaUnsupportedError, bad_value
from tma_dlpack.tensor_map.map import TensorMap

MAX_TILES = 12  # maximum number of tiles that are drawn along one axis
PLOT_WIDTH = 430  # px
LEAST_BAND = 3  # px; if positions are narrower, a strided box is drawn as one rectangle
# The strip of an outer dimension: maximum number of cells; maximum width and height of a cell, px.
MAX_CELLS, STRIP_CELL = 64, (40, 15)
# The style of a strip's cell, indexed by 2 * (in the box) + (in bounds).
STRIP_STYLES = "padding", "tensor", "filled", "taken"
TEXT_WIDTH, TEXT_HEIGHT = 64, 12
LEAST_HEIGHT, MOST_HEIGHT, LEAST_WIDTH = 64, 320, 130  # px: limits of the plot's size
STACK = 5  # px between a slice and the next slice behind it
MINIMAP, MINIMAP_TEXT = (96, 44), "the whole tensor; framed: what is drawn"  # px
MOST_LETTERS = 16  # maximum number of letters of a label left of the plot
LEGEND = (
    (Cell(0, 0, "tensor"), "tensor"),
    (Cell(0, 0, "taken"), "copied"),
    (Cell(0, 0, "filled", hatched=True), "out of bounds"),
    (Cell(0, 0, "grid"), "tiles of the grid"),
)

Span = tuple[int, int]  # positions [first, last)


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the tensor, and the positions of the box along this dimension.

    Attributes
    ----------
    dimension, driver_dimension : int
        Index of the dimension in row-major order, and in the driver's order (innermost first). A
        tensor of rank 1 is drawn as one row; both indices of its vertical axis are -1.
    extent : int
        Extent of the tensor, in elements. On the innermost axis of an interleaved map, the extent
        is in units of 16 or 32 bytes.
    start, span, step : int
        The box begins at position `start`, spans `span` positions, and takes every `step`-th of
        these positions.
    shown : tuple of (int, int)
        Positions [first, last) that are drawn. If tensor and box together are longer than 12 tiles,
        these are only positions near the box. Otherwise the whole tensor and the whole box are
        drawn.
    gathered : tuple of int
        The positions of the rows that gather4 loads, in the order of the tile's rows; empty for any
        other load.
    """

    dimension: int
    driver_dimension: int
    extent: int
    start: int
    span: int
    step: int
    shown: Span
    gathered: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The row-major name of the axis, such as ``shape[0]``."""
        return f"shape[{self.dimension}]"

    @property
    def driver_name(self) -> str:
        """The driver's name of the axis, such as ``global_dim[1]``."""
        return f"global_dim[{self.driver_dimension}]"

    @property
    def box(self) -> Span:
        """The positions [first, last) that the box spans."""
        return self.start, self.start + self.span

    @property
    def pieces(self) -> list[Span]:
        """The spans [first, last) of the copy: the box, or one span per row of gather4."""
        return [(p, p + 1) for p in sorted({*self.gathered})] or [self.box]

    @property
    def taken(self) -> Sequence[int]:
        """The positions that the copy takes, whether they are in bounds or not."""
        return self.gathered or range(self.start, self.start + self.span, self.step)

    @property
    def inside(self) -> int:
        """Number of positions in `taken` that are in bounds."""
        return sum([0 <= p < self.extent for p in self.taken])

    @property
    def cut(self) -> tuple[bool, bool]:
        """Two flags: whether the tensor continues before the drawn part, and whether after it."""
        return self.shown[0] > 0, self.shown[1] < self.extent

    @property
    def ends(self) -> str:
        """First and last position of the box as text, or the rows of gather4."""
        if self.gathered:
            return ", ".join(map(str, self.gathered))
        return f"{self.start}..{self.start + self.span - 1}" if self.span > 1 else f"{self.start}"

    def about(self) -> str:
        """Return a description of the axis and of the box along it."""
        outside, (first, last) = len(self.taken) - self.inside, self.shown
        what = "rows" if self.gathered else "box"
        parts = [f"{self.name} = {self.extent} (driver {self.driver_name}): {what} {self.ends}"]
        parts += [f" every {self.step}"] * (self.step > 1)
        parts += [f", {outside} of {len(self.taken)} out of bounds"] * (outside > 0)
        parts += [f"; {first}..{last - 1} drawn"] * any(self.cut)
        return "".join(parts)

    def clip(self, span: Span) -> Span:
        """Return the part of a span that is drawn."""
        first, last = self.shown
        return min(max(span[0], first), last), min(max(span[1], first), last)

    def bands(self, unit: float) -> list[Span]:
        """Return the box's in-bounds positions as spans [first, last), to draw as rectangles.

        Positions without gaps form one span. The positions of a strided box also form one span if
        `unit`, the width of a position in px, is less than LEAST_BAND.
        """
        first, last = max(self.start, 0), min(self.start + self.span, self.extent)
        if not self.gathered and (self.step == 1 or unit < LEAST_BAND):
            return [(first, last)] * (first < last)
        return [(p, p + 1) for p in self.taken if 0 <= p < self.extent]

    def borders(self) -> range:
        """Return the positions of the borders between tiles in the drawn part of the tensor."""
        first, last = self.shown
        return range(max(first // self.span + 1, 1) * self.span, min(last, self.extent), self.span)

    def samples(self, most: int) -> list[int]:
        """Return the positions that the text shows: at most `most`, or all rows of gather4."""
        if self.gathered:
            return [p for p, _ in self.pieces]
        first, last = self.shown
        count = min(last - first, most)
        return [first + (last - first) * n // count for n in range(count)]

    @property
    def cell_size(self) -> int:
        """Number of positions that one cell of the strip shows."""
        return -(-(self.shown[1] - self.shown[0]) // MAX_CELLS)

    def strip(self, most: float = PLOT_WIDTH) -> Grid:
        """Draw the axis as a strip of at most `most` px; cells in the box have another style."""
        (first, last), size = self.shown, self.cell_size
        starts = range(first, last, size)
        width = min(STRIP_CELL[0], most / len(starts))
        # A cell shows its position only if each digit has 7 px.
        is_named = size == 1 and width > 7 * len(f"{last - 1}")
        cells = [label(0, 0, f"{self.name} = {self.extent}", "label")]
        for n, begin in enumerate(starts):
            end = min(begin + size, last)
            inside, taken = 0 <= begin < self.extent, any(begin <= p < end for p in self.taken)
            name = f"{begin}..{end - 1}" if size > 1 else f"{begin}"
            title = f"{self.name}: position {name}{' in the box' * taken}"
            style, key = STRIP_STYLES[2 * taken + inside], f"at{self.dimension}.{begin}"
            cell = Cell(n, 0, style, name if is_named else "", title, key=key)
            cells.append(replace(cell, hatched=taken and not inside))
        return Grid(tuple(cells), (width, STRIP_CELL[1]))


@dataclass(frozen=True, slots=True, repr=False)
class TensorBox(Figure):
    """Two dimensions of a tensor, and the box of one tile in them.

    Attributes
    ----------
    rows, columns : Axis
        The dimensions of the plot. For a tensor of rank 1, `rows` has the extent 1.
    outer : tuple of Axis
        The other dimensions, outermost first. The picture shows each of them as a strip. The plot
        shows the slice of the tensor at the box's first position along these dimensions.
    remarks : tuple of str
        The value of out-of-bounds elements, and the unit of an interleaved layout.
    hits : tuple of Cell
        Invisible cells for tooltips and links. Each cell covers the elements of one of the chunks
        that the figure `shared` draws.
    """

    title: str
    rows: Axis
    columns: Axis
    outer: tuple[Axis, ...]
    remarks: tuple[str, ...]
    hits: tuple[Cell, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """A description of each axis, outermost axis first, and the remarks."""
        axes = sorted((*self.outer, self.rows, self.columns), key=lambda axis: axis.dimension)
        return (*(axis.about() for axis in axes if axis.dimension >= 0), *self.remarks)

    @property
    def sentence(self) -> str:
        """The caption: the number of copied elements, and the value of out-of-bounds elements."""
        axes = (*self.outer, self.rows, self.columns)
        taken = math.prod(len(axis.taken) for axis in axes)
        inside = math.prod(axis.inside for axis in axes)
        # More than one remark means that the map is interleaved. Then the positions of the
        # innermost dimension are units, not elements.
        what = "units" if len(self.remarks) > 1 else "elements"
        copied = f"[{inside} are copied](is-data)"
        if inside == taken:
            return f"All of the box's [{taken} {what}](is-data) are in bounds, and copied."
        filled = self.remarks[0].replace(
            "out-of-bounds elements", f"[{taken - inside} others](is-filled)"
        )
        return f"Of the box's {taken} {what} {copied}; {filled}."

    def text(self) -> str:
        """Return the notes, and a sketch: ``#`` is copied, and ``x`` is out of bounds."""
        rows, columns = self.rows, self.columns
        lines = [self.title, *self.notes]
        for row in rows.samples(TEXT_HEIGHT):
            marks = ""
            for column in columns.samples(TEXT_WIDTH):
                in_tensor = 0 <= row < rows.extent and 0 <= column < columns.extent
                in_row = any(row in range(*piece) for piece in rows.pieces)
                in_box = in_row and column in range(*columns.box)
                is_copied = in_tensor and self.outer_inside
                marks += ("#" if is_copied else "x") if in_box else "." if in_tensor else " "
            lines.append(f"  {marks}".rstrip())
        return "\n".join(lines)

    @property
    def outer_inside(self) -> bool:
        """Whether the box's first position is in bounds along every outer dimension."""
        return all(0 <= axis.start < axis.extent for axis in self.outer)

    def scenes(self) -> tuple[Scene, ...]:
        """Return a panel: the plot, a strip per outer dimension, an overview if the plot is cut."""
        return (self._scene(PLOT_WIDTH),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone."""
        names = [f"rows {self.rows.ends}"[: MOST_LETTERS + 1]]
        names += [f"{axis.name} = {axis.extent}" for axis in self.outer]
        # `room`: px for the labels left of the plot.
        room = max(text_width(name) for name in names) + 2 * MARGIN + 6
        most = max(NARROW / 3, NARROW - room)
        # The slices behind the plot can make the panel too wide; then draw a narrower plot.
        scene = self._scene(most)
        return (scene if scene.width <= NARROW else self._scene(most - (scene.width - NARROW)),)

    def _scene(self, most: float) -> Scene:
        rows, columns = self.rows, self.columns
        grids = [self._plot(most), *(axis.strip(most) for axis in self.outer)]
        is_narrow, is_cut = most < PLOT_WIDTH, any((*rows.cut, *columns.cut))
        grids += [_minimap(columns, rows, is_named=not is_narrow)] * is_cut
        contiguous = ", contiguous" * (columns.driver_dimension == 0)
        above = [f"→ {columns.name} = {columns.extent} ({columns.driver_name}{contiguous})"]
        above += [f"↓ {rows.name} = {rows.extent} ({rows.driver_name})"] * (rows.dimension >= 0)
        about = "; ".join([self.title, *self.notes])
        notes = [
            f"{axis.name}: {axis.cell_size} positions per cell"
            for axis in self.outer
            if axis.cell_size > 1
        ]
        notes += [MINIMAP_TEXT] * (is_narrow and is_cut)
        notes += self.notes
        return lay_out(about, grids, "", above, notes, self.legend(), is_narrow=is_narrow)

    def legend(self) -> Legend:
        """Return the legend of the plot."""
        return LEGEND

    def _plot(self, most: float = PLOT_WIDTH) -> Grid:
        """Draw the plot. Elements are square, unless a side of the plot would break its limits."""
        rows, columns = self.rows, self.columns
        # The cells are measured in positions of the tensor; a position is `width` x `height` px.
        (left, right), (top, bottom) = columns.shown, rows.shown
        across, down = right - left, bottom - top
        high = min(max(most * down / across, LEAST_HEIGHT), MOST_HEIGHT, max(most, LEAST_HEIGHT))
        wide = max(min(high * across / down, most), min(LEAST_WIDTH, most))
        width, height = wide / across, high / down
        tensor = columns.clip((0, columns.extent)), rows.clip((0, rows.extent))
        # From back to front: other slices, tensor, filled part, copied part, box, borders of tiles.
        whole = rectangle("tensor", *tensor)
        # Up to two slices behind the plot, drawn from back to front, indicate outer dimensions.
        slices_behind = min(2, sum(axis.extent - 1 for axis in self.outer))
        cells = []
        for n in range(slices_behind, 0, -1):
            x, y = whole.column + STACK * n / width, whole.row + STACK * n / height
            cells.append(replace(whole, column=x, row=y))
        cut = columns.cut[0], rows.cut[0], columns.cut[1], rows.cut[1]
        cells += [replace(whole, style="ground"), *sides(*tensor, cut)]
        # Drawn to scale, a gathered row could be thinner than a pixel, so it has a minimum height.
        least = LEAST_BAND / height if rows.gathered else 0
        pieces = [(first, max(last, first + least)) for first, last in rows.pieces]
        filled = [rectangle("filled", columns.box, piece, hatched=True) for piece in pieces]
        cells += [replace(c, key="is-filled", title="out of bounds, filled") for c in filled]
        # The whole box has been drawn as out of bounds. Draw the in-bounds part over the box.
        parts, bands = columns.bands(width), rows.bands(height)
        # A box that is out of bounds along an outer dimension has no in-bounds part.
        if self.outer_inside and parts and bands:
            clipped = (parts[0][0], parts[-1][1]), (bands[0][0], bands[-1][1])
            cells += [rectangle("tensor", *clipped)] * (not rows.gathered)
            taken = [rectangle("taken", part, band) for band in bands for part in parts]
            cells += [replace(cell, key="is-data", title="copied") for cell in taken]
        cells += [rectangle("box", columns.box, piece) for piece in pieces]
        cells += [replace(whole, style="grid", column=c, columns=0) for c in columns.borders()]
        cells += [replace(whole, style="grid", row=r, rows=0) for r in rows.borders()]
        cells += [*self.hits, *self._bounds(width, height)]
        windows = [("x", columns.dimension, left, right)]
        windows += [("y", rows.dimension, top, bottom)] * (rows.dimension >= 0)
        return Grid(tuple(cells), (width, height), (left, top), tuple(windows))

    def _bounds(self, width: float, height: float) -> list[Cell]:
        """Label the box: its first and last column below the plot, its rows left of the plot."""
        rows, columns = self.rows, self.columns
        (left, right), bottom = columns.shown, rows.shown[1]
        name = f"columns {columns.ends}"
        first = min(columns.start, right - text_width(name) / width)
        cells = [words(first, bottom + STACK / height, name, "label", 30 / height)]
        if rows.gathered:
            # If rows are closer together than lines of text, only the first of them has a label.
            named = [rows.pieces[0][0]]
            for p, _ in rows.pieces:
                named += [p] * ((p - named[-1]) * height >= LINE)
            cells += [label(left, p, f"row {p}", "label", 1) for p in named]
        elif rows.dimension >= 0:
            name = f"rows {rows.ends}"
            # A name such as "rows 2147483640..2147483647" is too long, so the last row is omitted.
            # The notes below the plot contain the last row.
            if len(name) > MOST_LETTERS:
                name = f"rows {rows.start}.."
            cells.append(label(left, rows.start, name, "label", rows.span))
        return cells


def _minimap(*axes: Axis, is_named: bool = True) -> Grid:
    """Draw the whole tensor as a small rectangle, with a frame around the drawn part."""
    whole = [(min(0, a.shown[0]), max(a.extent, a.shown[1])) for a in axes]
    scale = min(most / (last - first) for most, (first, last) in zip(MINIMAP, whole, strict=True))
    corners = []
    for axis, (first, last) in zip(axes, whole, strict=True):
        # The tensor has at least 8 px and the frame at least 3 px, so that both are visible.
        size = max(8.0, scale * (last - first))
        length = max(3.0, (axis.shown[1] - axis.shown[0]) / (last - first) * size)
        begin = min((axis.shown[0] - first) / (last - first) * size, size - length)
        corners.append(((0.0, size), (begin, begin + length)))
    (width, left), (height, top) = corners
    cells = [rectangle("tensor", width, height), rectangle("frame", left, top)]
    cells += [words(width[1] + 12, 0, MINIMAP_TEXT, rows=LINE)] * is_named
    return Grid(tuple(cells))


@opaque
def tensor(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    *,
    smem_offset: int = 0,
    shown: Mapping[int, tuple[int, int]] | None = None,
    plane: tuple[int, int] | None = None,
) -> TensorBox:
    """Show a tensor with the box of one tile.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        A tiled map, or a Tile of a tiled map. A Tile has its own coordinates, so `coords` is
        ignored.
    coords : sequence of int, optional
        Row-major coordinates of the tile, as in `load_tile`; None means the first tile.
    smem_offset : int
        Start of the tile in shared memory, in bytes; a multiple of 128.
    shown : dict, optional
        Dimension (row-major index) -> the positions [first, last) to draw along this dimension. An
        entry is ignored if its positions do not contain the whole box. By default, a dimension of
        at most 12 tiles is drawn whole, and so is a strip of at most 64 positions. If a dimension
        is longer, only 12 tiles around the box are drawn.
    plane : (int, int), optional
        Row-major indices of the two dimensions of the plot: the vertical dimension, then the
        horizontal dimension. None means the two innermost dimensions. For a tensor (N, D, H, W, C),
        (2, 3) draws H and W.

    Returns
    -------
    TensorBox
        A dimension that is not in `plane` is a strip in the picture and a sentence in the text.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is neither a TensorMap nor a Tile, if `load_tile` would refuse `coords`, or
        if `plane` is not two different dimensions of the tensor.
    TmaUnsupportedError
        For im2col maps; use `walk` for them.

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
    >>> volume = tma.make_tma_descriptor(np.zeros((2, 4, 28, 28, 64), np.uint8), (1, 2, 4, 8, 64))
    >>> figure = tensor(volume, plane=(2, 3))
    >>> figure.rows.name, figure.columns.name, [axis.name for axis in figure.outer]
    ('shape[2]', 'shape[3]', ['shape[0]', 'shape[1]', 'shape[4]'])
    """
    request = request_of(tensor_map, coords, None, smem_offset)
    args = request.plan.arguments
    if args.kind != "tiled":
        raise TmaUnsupportedError(f"an {args.kind} map has no box; draw.walk shows its pixels")
    down, across = _plane(plane, args.rank)
    # A dimension of at most `least` positions is always drawn whole. `least` is 0 for the two
    # dimensions of the plot, and MAX_CELLS for the dimension of a strip.
    least = {down: 0, across: 0}
    axes = [axis_of(request, d, shown or {}, least.get(d, MAX_CELLS)) for d in range(args.rank)]
    one_row = Axis(-1, -1, 1, 0, 1, 1, (0, 1))  # the rows axis of a rank-1 tensor
    rows, columns = axes[down] if down >= 0 else one_row, axes[across]
    outer = tuple(axis for axis in axes if axis not in (rows, columns))
    extents = args.global_dim, args.box_dim, request.coords[0].tolist()
    shape, box, place = (tuple(numbers[::-1]) for numbers in extents)
    title = f"tensor {shape} {args.data_type.name}, box {box} at {place}"
    if rows.gathered:
        title = f"tensor {shape} {args.data_type.name}, gather4 of rows {rows.ends}"
    remarks, hits = _remarks(request), _hits(request, columns, rows)
    return TensorBox(title, rows, columns, outer, remarks, hits)


def axis_of(request: CopyRequest, row_major: int, shown: Mapping[int, Span], least: int) -> Axis:
    """Return the axis of a dimension. A dimension of at most `least` positions is drawn whole."""
    plan = request.plan
    args = plan.arguments
    d = args.rank - 1 - row_major
    start, extent, step = int(request.coords[0, d]), args.global_dim[d], plan.steps[d]
    # `request.coords` has one entry per tile. With gather4, it has one entry per row of the tile.
    if d == 1 and request.tiles != len(request.coords):
        rows = tuple(request.coords[:, d].tolist())
        drawn = min(0, *rows), max(extent - 1, *rows) + 1
        return Axis(row_major, d, extent, 0, extent, 1, drawn, rows)  # `span`: all rows
    # A copy of an interleaved map has one slice, whatever the box size is: see `TilePlan.counts`.
    span = min(args.box_dim[d], plan.counts[d] * step)
    drawn = min(0, start), max(extent, start + span)
    most = MAX_TILES * span
    if drawn[1] - drawn[0] > max(most, least):
        drawn = window(start - most // 2, drawn, most)
    # If `shown` lacks this dimension, the empty range (start, start) does not contain the box, so
    # `drawn` does not change.
    begin, end = shown.get(row_major, (start, start))
    if begin <= start and start + span <= end:
        drawn = begin, end
    return Axis(row_major, d, extent, start, span, step, drawn)


def _plane(plane: object, rank: int) -> tuple[int, int]:
    """Return the vertical and the horizontal dimension of the plot; (-1, 0) at rank 1."""
    if plane is None:
        return rank - 2, rank - 1
    match integers_of(plane):
        case (down, across) if down != across and {down, across} <= set(range(rank)):
            return down, across
    must = f"be two different dimensions of the tensor, each from 0 to {rank - 1}"
    raise bad_value("plane", plane, must, "omit it, or choose two of them")


def _hits(request: CopyRequest, columns: Axis, rows: Axis) -> tuple[Cell, ...]:
    """Return a cell for each chunk in the drawn slice; none for an interleaved map or gather4."""
    if request.plan.unit_bytes or request.tiles != len(request.coords):
        return ()
    inner = request.plan.arguments.rank - 1
    drawn = {inner, rows.dimension, columns.dimension}
    cells: dict[tuple[int, int], Cell] = {}
    for chunk in drawn_chunks(request):
        place = dict(enumerate(chunk.element))
        spans = {inner: chunk.last - chunk.first + 1}  # a span is 1 along other dimensions
        # The plot shows the slice at the box's first position along each outer dimension. Skip a
        # chunk that is not in this slice.
        if any(p != request.coords[0, inner - d] for d, p in place.items() if d not in drawn):
            continue
        x, y = (place.get(axis.dimension, 0) for axis in (columns, rows))
        across = columns.clip((x, x + spans.get(columns.dimension, 1)))
        down = rows.clip((y, y + spans.get(rows.dimension, 1)))
        cell = chunk.cell(0, 0, "")
        hit = replace(rectangle("plain", across, down), title=cell.title, key=cell.key, to=cell.to)
        cells.setdefault((y, x), hit)
    return tuple(cells.values())


def _remarks(request: CopyRequest) -> tuple[str, ...]:
    args, unit = request.plan.arguments, request.plan.unit_bytes
    value = "NaN (16-bit words 0x7FF7)" if args.oob_fill == TmaOobFill.nan else "zero"
    remarks = [f"out-of-bounds elements become {value}"]
    if unit:
        inner = f"shape[{args.rank - 1}]"
        remarks.append(f"interleave {args.interleave.name}: {inner} counts units of {unit} bytes")
        remarks.append("shape[1] counts slices; the box takes one slice")
    return tuple(remarks)
