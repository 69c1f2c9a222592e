"""The tensor with a tile's box on it: the grid of tiles, both orders, what is out of bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.axis import Axis, Hit
from tma_dlpack.draw.box_panel import box_panel
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.held import drawn_chunks
from tma_dlpack.draw.scene import Scene
from tma_dlpack.draw.shown_copy import request_of
from tma_dlpack.tables.enums import TmaOobFill
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap

MAX_TILES = 12  # drawn along one axis


@dataclass(frozen=True, slots=True, repr=False)
class TensorBox(Figure):
    """The two innermost dimensions of a tensor with the box of one tile on them.

    Attributes
    ----------
    rows, columns : Axis
        Dimensions rank - 2 and rank - 1; `rows` of a rank-1 tensor has extent 1.
    outer : tuple of Axis
        The other dimensions, outermost first; the picture shows the first position that the box
        takes of them, and a strip per dimension.
    remarks : tuple of str
        What out-of-bounds elements become, and what an interleaved layout counts.
    hits : tuple of Hit
        Where the chunks of the tile come from, those that `shared` draws.
    """

    title: str
    rows: Axis
    columns: Axis
    outer: tuple[Axis, ...]
    remarks: tuple[str, ...]
    hits: tuple[Hit, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The axes in words, outermost first, and the remarks."""
        axes = (*self.outer, self.rows, self.columns)
        return (*(axis.about() for axis in axes if axis.exists), *self.remarks)

    @property
    def outer_inside(self) -> bool:
        """Whether the first position along every outer dimension is in bounds."""
        return all(0 <= axis.start < axis.extent for axis in self.outer)

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel."""
        return (box_panel(self),)

    def text(self) -> str:
        """Give the axes in words, and the picture as characters."""
        return "\n".join([self.title, *self.notes, *_characters(self)])


@opaque
def tensor(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    *,
    smem_offset: int = 0,
    shown: Mapping[int, tuple[int, int]] | None = None,
) -> TensorBox:
    """Show the tensor with the box of one tile on it.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        Of a tiled map; a tile brings its own coordinates.
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the first tile.
    smem_offset : int
        Where the tile starts in shared memory, bytes; a multiple of 128.
    shown : dict, optional
        Dimension (row-major index) -> the positions [first, last) of it to draw. It is ignored
        where the box is not within them; by default the whole dimension is drawn, or 12 tiles.

    Returns
    -------
    TensorBox
        Of the two innermost dimensions; the outer ones are described in the text.

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
    axes = [_axis(request, d, shown or {}) for d in range(args.rank)]
    if args.rank == 1:
        axes.append(Axis(-1, -1, 1, 0, 1, 1, (0, 1)))  # one row
    place = tuple(request.coords[0][::-1].tolist())
    box = tuple(args.box_dim[::-1])
    return TensorBox(
        title=f"tensor {tuple(args.global_dim[::-1])} {args.data_type.name}, box {box} at {place}",
        rows=axes[1],
        columns=axes[0],
        outer=tuple(axes[:1:-1]),
        remarks=_remarks(request),
        hits=_hits(request),
    )


def _hits(request: CopyRequest) -> tuple[Hit, ...]:
    """Give the chunks of the slice that is drawn; none of an interleaved map, or of four rows."""
    plan, start = request.plan, request.coords[0]
    if plan.unit_bytes or request.tiles != len(request.coords):
        return ()
    rows, step = (1, 1) if plan.arguments.rank == 1 else (plan.counts[1], plan.steps[1])
    first_row, column = 0 if plan.arguments.rank == 1 else int(start[1]), int(start[0])
    return tuple(
        Hit(
            first_row + c.row * step,
            column + c.first,
            column + c.last + 1,
            c.key,
            c.links,
            c.about,
        )
        for c in drawn_chunks(request)
        if c.row < rows
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


def _axis(request: CopyRequest, d: int, shown: Mapping[int, tuple[int, int]]) -> Axis:
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
    if row_major in shown:
        begin, end = shown[row_major]
        if begin <= start and start + span <= end:
            first, last = begin, end
    return Axis(row_major, d, extent, start, span, step, (first, last))


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
