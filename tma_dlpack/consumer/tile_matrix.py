"""A tile in shared memory as a matrix: columns of spans, each with all the rows.

::

    [column of spans][row][span bytes]        address = (column * rows + row) * pitch + byte

There is one column if the row of the box is the whole width; a map made with `split_inner` has
several, because its outermost dimension steps from one span of a row to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tma_dlpack import geometry
from tma_dlpack.geometry import TilePlan

if TYPE_CHECKING:
    from tma_dlpack.tensor_map.map import TensorMap


@dataclass(frozen=True, slots=True)
class TileMatrix:
    """The layout of a tile of two dimensions in shared memory.

    Attributes
    ----------
    columns : int
        Number of columns of spans.
    rows : int
        Rows of each column.
    row_bytes : int
        Bytes of a row within a span.
    pitch_bytes : int
        Bytes from one row to the next.
    element_bytes : int
    """

    columns: int
    rows: int
    row_bytes: int
    pitch_bytes: int
    element_bytes: int

    @property
    def width(self) -> int:
        """Elements of a row of the matrix, all columns together."""
        return self.columns * self.row_bytes // self.element_bytes

    @property
    def column_bytes(self) -> int:
        """Bytes from one column of spans to the next in shared memory."""
        return self.rows * self.pitch_bytes

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and elements of a row."""
        return self.rows, self.width


def tile_matrix(tensor_map: TensorMap) -> TileMatrix | None:
    """Give the tile of a map as a matrix; None for rank 1, or with more than two extents over 1.

    A third extent over 1 counts as columns of spans if its stride in global memory equals the bytes
    of a row of the box.
    """
    args = tensor_map.arguments
    plan = geometry.plan(args)
    if plan.unit_bytes or args.type_row.is_packed:
        return None
    if args.kind != "tiled":
        return _matrix(plan, 1, plan.lines)
    axes = [d for d in plan.line_dims if plan.counts[d] > 1]
    spans = axes[:1] if axes and axes[0] > 1 and _is_span(plan, axes[0]) else []
    if spans and len(axes) == 1 and args.global_dim[1] == 1:
        spans = []  # these are the rows of a dense matrix, not columns of spans
    if args.rank < 2 or len(axes) - len(spans) > 1:
        return None
    columns = plan.counts[spans[0]] if spans else 1
    return _matrix(plan, columns, plan.lines // columns)


def _is_span(plan: TilePlan, dimension: int) -> bool:
    """Whether one step along a dimension leads to the bytes right after the row of the box."""
    step_bytes = plan.steps[dimension] * plan.arguments.global_strides[dimension - 1]
    return step_bytes == plan.line_bytes


def _matrix(plan: TilePlan, columns: int, rows: int) -> TileMatrix:
    element_bytes = plan.arguments.type_row.element_bytes
    return TileMatrix(columns, rows, plan.line_bytes, plan.pitch_bytes, element_bytes)
