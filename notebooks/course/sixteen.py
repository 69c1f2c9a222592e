"""A picture of the four sizes that must be multiples of 16 bytes in a tiled map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.grid import Cell, Grid, Scene, label, lay_out
from tma_dlpack.geometry import CHUNK_BYTES
from tma_dlpack.tables.coerce import integers_of
from tma_dlpack.tables.errors import TmaUnsupportedError, bad_value

ROWS = 4
CHUNKS = 9  # 16-byte chunks that are drawn for each row
UNIT = 3.4, 34  # px: width of a byte, and height of a row
BAR_ROWS = 0.6


@dataclass(frozen=True, slots=True)
class Measure:
    """One size that has to be a multiple of 16 bytes."""

    name: str
    size_bytes: int
    is_address: bool = False

    @property
    def ok(self) -> bool:
        """Whether the size is a multiple of 16 bytes."""
        return self.size_bytes % CHUNK_BYTES == 0

    @property
    def about(self) -> str:
        """One line: the name, the size, and how far the size is from a multiple of 16 bytes."""
        over = self.size_bytes % CHUNK_BYTES
        size = f"{self.size_bytes} bytes"
        # Show only the remainder of an address, because the address itself differs in each run.
        if self.is_address:
            size = f"{over} bytes past a multiple of 16" if over else "a multiple of 16"
        elif over:
            size += f": {over} too many, or {CHUNK_BYTES - over} too few"
        return f"{'✓' if self.ok else '✗'} {self.name} is {size}"


@dataclass(frozen=True, slots=True, repr=False)
class SixteenBytes(Figure):
    """The first rows of a tensor on a ruler of 16-byte chunks. In each row, a bar shows the box.

    Attributes
    ----------
    starts : tuple of int
        Start of each row, in bytes from the last 16-byte boundary at or before the tensor.
    box_bytes : int
        Size of a row of the box, in bytes.
    measures : tuple of Measure
        The address, the row stride, the size of a row of the box, and the offset of the box's first
        column.
    column_bytes : int
        Offset of the box within a row, in bytes.
    """

    title: str
    starts: tuple[int, ...]
    box_bytes: int
    column_bytes: int
    measures: tuple[Measure, ...]

    @property
    def ok(self) -> bool:
        """Whether all measures are multiples of 16 bytes."""
        return all(measure.ok for measure in self.measures)

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel with a bar for each row."""
        end, bottom = CHUNK_BYTES * CHUNKS, len(self.starts) - 1 + BAR_ROWS
        lines = range(0, end + 1, CHUNK_BYTES)
        cells = [Cell(x, -0.3, "grid", columns=0, rows=bottom + 0.3) for x in lines]
        for n, start in enumerate(self.starts):
            # Only offsets within a chunk matter, so each bar starts in one of the first two chunks.
            begin = start % CHUNK_BYTES + self.column_bytes % CHUNK_BYTES
            off, last = begin % CHUNK_BYTES, begin + self.box_bytes
            is_whole = off == 0 and last % CHUNK_BYTES == 0
            words = f"{off} bytes off" if off else "ends mid-chunk"
            style, words = ("taken", "on 16 bytes") if is_whole else ("conflict", words)
            about, width = f"row {n}: starts {off} bytes after a boundary", min(last, end) - begin
            cells.append(Cell(begin, n, style, words, about, width, BAR_ROWS))
            cells.append(label(0, n, f"row {n}", "label", BAR_ROWS))
        above = ["16 bytes between two dotted lines; each bar is a row of the box"]
        notes = [measure.about for measure in self.measures]
        return (lay_out(self.title, [Grid(tuple(cells), UNIT)], "", above, notes),)

    def text(self) -> str:
        """Return one line per measure."""
        return "\n".join([self.title, *(measure.about for measure in self.measures)])


def sixteen_bytes(
    tensor: object, box_sizes: Sequence[int], coords: Sequence[int] | None = None
) -> SixteenBytes:
    """Show which sizes of a tensor and a box are multiples of 16 bytes, as a tiled map requires.

    Parameters
    ----------
    tensor : object
        Any object with ``__dlpack__`` whose rank is 2 or more and whose last dimension is
        contiguous.
    box_sizes : sequence of int
        Row-major, in elements.
    coords : sequence of int, optional
        Coordinates of the tile, row-major. None means the first tile.

    Returns
    -------
    SixteenBytes
        The figure shows four rules of tiled maps without interleave. `check_tma_descriptor` checks
        all rules.

    Raises
    ------
    TmaPreconditionError
        If the tensor cannot be read, or if `box_sizes` or `coords` does not contain exactly one
        integer for each dimension.
    TmaUnsupportedError
        If an element is not a whole number of bytes, or the tensor has rank 1.

    Examples
    --------
    >>> import numpy as np
    >>> print(sixteen_bytes(np.zeros((4, 1733), np.float16)[:, :64], (4, 12)))  # doctest: +ELLIPSIS
    4 rows over 16-byte chunks: not all start on one
    ✓ the address is ...
    ✗ the row stride is 3466 bytes: 10 too many, or 6 too few
    ✗ a row of the box is 24 bytes: 8 too many, or 8 too few
    ✓ the offset of the first column is 0 bytes

    Notes
    -----
    Source: CUDA driver API, cuTensorMapEncodeTiled. The rule for the offset of the first column
    was measured (H200, driver 580.159.04).
    """
    # The strides of a tensor view are in elements. Every size below is in bytes.
    view = as_tensor_view(tensor)
    rank, bits = len(view.shape), view.dtype.itemsize_bits
    if rank < 2 or bits % 8:
        raise TmaUnsupportedError("this picture needs rows of elements of whole bytes")
    box = _row_major("box_sizes", box_sizes, rank)
    place = (0,) * rank if coords is None else _row_major("coords", coords, rank)
    item, stride = bits // 8, view.strides[-2] * bits // 8
    begin = view.address % CHUNK_BYTES
    measures = (
        Measure("the address", view.address, is_address=True),
        Measure("the row stride", stride),
        Measure("a row of the box", box[-1] * item),
        Measure("the offset of the first column", place[-1] * item),
    )
    rows = min(ROWS, view.shape[-2])
    starts = tuple(begin + n * stride for n in range(rows))
    verdict = "all start on one" if all(m.ok for m in measures[:2]) else "not all start on one"
    title = f"{rows} rows over 16-byte chunks: {verdict}"
    return SixteenBytes(title, starts, box[-1] * item, place[-1] * item, measures)


def _row_major(argument: str, given: Sequence[int], rank: int) -> tuple[int, ...]:
    numbers = integers_of(given)
    if numbers is None or len(numbers) != rank:
        raise bad_value(argument, given, f"be {rank} integers, row-major", "pass a tuple")
    return numbers
