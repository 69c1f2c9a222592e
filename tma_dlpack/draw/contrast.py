"""One tile loaded twice: by the threads of a block, and by one instruction; code beside picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import CHUNK_BYTES, request_of
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.grid import Cell, Grid, Scene, lay_out, text_width
from tma_dlpack.tables.enums import TmaOobFill
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.public import opaque
from tma_dlpack.tensor_map.map import TensorMap

THREADS = 128
LINE_PX, GAP = 19, 26  # px
PIECE = 23, 19  # px of what one thread copies
MOST_ROWS, ROW_BYTES = 16, 128
SPACE = "\N{NO-BREAK SPACE}"
FILLS = {TmaOobFill.none: "none: zeros", TmaOobFill.nan: "nan"}
C_TYPES = {4: "unsigned", 8: "uint2", 16: "uint4"}  # by bytes


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code, its key, the keys of what has to do with it, and what it does."""

    key: str
    text: str
    to: tuple[str, ...] = ()
    about: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one thread copies.

    Attributes
    ----------
    thread, row, column : int
        The row within the box, and the first element within the row of the box.
    inside : bool
        Whether it is in bounds: the thread reads it; otherwise it writes zeros.
    """

    thread: int
    row: int
    column: int
    inside: bool


@dataclass(frozen=True, slots=True, repr=False)
class Contrast(Figure):
    """The same load by many threads and by TMA.

    Attributes
    ----------
    by_threads, by_tma : tuple of CodeLine
        What each thread runs, and what one thread runs.
    fields : tuple of CodeLine
        What the tensor map holds for the instruction.
    pieces : tuple of Piece
        One per piece of the tile, row by row.
    piece_bytes : int
    """

    title: str
    by_threads: tuple[CodeLine, ...]
    by_tma: tuple[CodeLine, ...]
    fields: tuple[CodeLine, ...]
    pieces: tuple[Piece, ...]
    piece_bytes: int

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to two panels, each with its code at the left and its picture at the right."""
        code, width = _listing(self.by_threads)
        tile = [self._piece(piece, width + GAP) for piece in self.pieces]
        threads = lay_out(
            "a load by threads: code, and the thread that copies each piece of the tile",
            [Grid((*code, *tile))],
            f"without TMA: {THREADS} threads run this",
            [f"at the right: the tile; each cell is {self.piece_bytes} bytes, with its thread"],
            legend=[
                (Cell(0, 0, "taken", "t"), "thread t reads it"),
                (Cell(0, 0, "filled", "t", hatched=True), "out of bounds: thread t writes zeros"),
            ],
        )
        code, width = _listing(self.by_tma, len(max((x.text for x in self.by_threads), key=len)))
        fields, _ = _listing(self.fields, left=width + GAP, style="tint1")
        tma = lay_out(
            "a load by TMA: code, and the fields of the tensor map",
            [Grid((*code, *fields))],
            "with TMA: one thread runs this",
            ["at the right: the tensor map, made once on the host; the engine does the rest"],
        )
        return threads, tma

    def _piece(self, piece: Piece, left: float) -> Cell:
        width, height = PIECE
        column = piece.column * width // self._elements
        what = "reads it" if piece.inside else "writes zeros"
        title = f"thread {piece.thread}: row {piece.row} of the box, from column {piece.column}"
        style = "taken" if piece.inside else "filled"
        to = ("read" if piece.inside else "zero", "divide", "place", "test", "write")
        return Cell(
            left + column,
            piece.row * height,
            style,
            f"{piece.thread}",
            f"{title}; it {what}",
            width,
            height,
            not piece.inside,
            f"t{piece.row}.{piece.column}",
            to,
        )

    @property
    def _elements(self) -> int:
        """Elements of a piece."""
        first_row = [piece.column for piece in self.pieces if piece.row == 0]
        return (first_row[1] - first_row[0]) if len(first_row) > 1 else 1

    def text(self) -> str:
        """Return both listings, and what of the first each field of the map replaces."""
        filled = sum(not piece.inside for piece in self.pieces)
        lines = [self.title, f"{len(self.pieces)} pieces, {filled} of them out of bounds"]
        for heading, code in (
            ("without TMA, each thread:", self.by_threads),
            ("with TMA, one thread:", self.by_tma),
            ("the tensor map:", self.fields),
        ):
            lines += [heading, *(f"  {line.text}" for line in code)]
        return "\n".join(lines)


def _listing(
    lines: Sequence[CodeLine], columns: int = 0, left: float = 0, style: str = "ground"
) -> tuple[list[Cell], float]:
    """Draw lines of code as cells in pixels; return them, and how wide they are."""
    columns = max(columns, *(len(line.text) for line in lines))
    width = text_width("x" * (columns + 1)) + 6
    cells = []
    for n, line in enumerate(lines):
        text = line.text.ljust(columns).replace(" ", SPACE)
        top, height = n * LINE_PX, LINE_PX - 1
        about, key = line.about, line.key
        cells.append(Cell(left, top, style, text, about, width, height, key=key, to=line.to))
    return cells, width


@opaque
def contrast(tensor_map: TensorMap | Tile, coords: Sequence[int] | None = None) -> Contrast:
    """Show one load as 128 threads would do it, and as TMA does; every line linked to its twin.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        A tiled map of rank 2 whose box has 16 to 128 bytes a row and at most 16 rows.
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the first tile.

    Returns
    -------
    Contrast
        `by_threads` and `by_tma` are the two listings.

    Raises
    ------
    TmaPreconditionError
        As `shared`.
    TmaUnsupportedError
        For another map: its code would not fit the page.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> from tma_dlpack import draw
    >>> tm = tma.make_tma_descriptor(np.zeros((20, 64), np.float16), (8, 64), swizzle="bytes128")
    >>> both = draw.contrast(tm, (16, 0))
    >>> len(both.by_threads), len(both.by_tma), sum(not p.inside for p in both.pieces)
    (11, 5, 64)
    """
    request = request_of(tensor_map, coords, None, 0)
    tm, terms = request.tensor_map, request.plan.swizzle.terms
    element, start = request.plan.arguments.type_row.element_bits // 8, request.coords[0]
    is_plain = tm.kind == "tiled" and tm.rank == 2 and {*tm.elem_strides} == {1}
    is_small = is_plain and tm.box_sizes[0] <= MOST_ROWS and tm.box_sizes[1] * element <= ROW_BYTES
    if not is_small or len(terms) > 1 or min(start) < 0:
        found = (
            "this picture needs a tiled map of rank 2 with a box of at most 16 rows of 128 bytes"
        )
        raise TmaUnsupportedError(found)
    (rows, columns), column, row = tm.box_sizes, *map(int, start)
    piece = next((b for b in (4, 8) if tm.tx_bytes // b <= THREADS), CHUNK_BYTES)
    each = piece // element
    pieces = tuple(
        Piece(
            n % THREADS,
            *(n * each // columns, n * each % columns),
            0 <= row + n * each // columns < tm.shape[0]
            and 0 <= column + n * each % columns < tm.shape[1],
        )
        for n in range(rows * columns // each)
    )
    by_threads = _by_threads(request, piece, (row, column))
    by_tma = (
        CodeLine("one", "if (threadIdx.x == 0) {", (), "one thread of the block"),
        CodeLine("expect", f"  expect_tx(&full, {tm.tx_bytes});", ("sync",), EXPECT),
        CodeLine("load", f"  load(tile, map, &full, {column}, {row});", ("place", "write"), LOAD),
        CodeLine("end", "}"),
        CodeLine("wait", "wait(&full, 0);", ("sync",), WAIT),
    )
    title = f"one tile of {rows} x {columns}: {THREADS} threads, or one instruction"
    return Contrast(title, tuple(by_threads), by_tma, tuple(_fields(tm)), pieces, piece)


EXPECT = "so many bytes complete the barrier; the engine counts them down"
LOAD = (
    "the instruction: where to, by which map, which barrier, and the coordinates, innermost first"
)
WAIT = "every thread waits at the barrier, until the bytes have arrived"


def _by_threads(request: CopyRequest, piece: int, start: tuple[int, int]) -> list[CodeLine]:
    """Write the loop that each of the threads runs."""
    tm, plan, (row, column) = request.tensor_map, request.plan, start
    (height, width), (rows, columns) = tm.shape, tm.box_sizes
    element, vector = plan.arguments.type_row.element_bits // 8, C_TYPES[piece]
    each = piece // element
    across = columns // each
    swizzled = [
        CodeLine(
            "swizzle",
            f"  to ^= (to >> {right} & {mask}) << {left};",
            ("swizzle_field",),
            "the swizzle, so that columns are free of bank conflicts: the map has it",
        )
        for right, mask, left in plan.swizzle.terms
    ]
    return [
        CodeLine("loop", f"for (int i = threadIdx.x; i < {rows * across}; i += {THREADS}) {{"),
        CodeLine(
            "divide",
            f"  int r = i / {across}, c = i % {across} * {each};",
            ("box_sizes",),
            "which row and column of the box this thread copies: the map has box_sizes",
        ),
        CodeLine(
            "place",
            f"  int row = {row} + r, column = {column} + c;",
            ("load",),
            "where the tile begins: the coordinates of the instruction",
        ),
        CodeLine(
            "zero",
            f"  {vector} v = {{}};  // {FILLS[plan.arguments.oob_fill].split()[-1]}",
            ("oobfill",),
            "what is out of bounds is filled: the map has oobfill",
        ),
        CodeLine(
            "test",
            f"  if (row < {height} && column < {width})",
            ("shape",),
            "the bounds test: the map has the shape",
        ),
        CodeLine(
            "read",
            f"    v = *({vector}*)(x + row * {tm.strides[0]} + column);",
            ("address", "strides"),
            "the address in global memory: the map has the tensor's address and strides",
        ),
        CodeLine(
            "to",
            f"  int to = r * {plan.pitch_bytes} + c * {element};",
            ("box_sizes",),
            "its place in shared memory: rows of the box one after another",
        ),
        *swizzled,
        CodeLine(
            "write",
            f"  *({vector}*)(tile + to) = v;",
            ("load",),
            "through a register, which TMA does not need",
        ),
        CodeLine("close", "}"),
        CodeLine("sync", "__syncthreads();", ("wait", "expect"), "until all threads are done"),
    ]


def _fields(tm: TensorMap) -> list[CodeLine]:
    """Name the fields of the map, each linked to the line of code that it replaces."""
    rows = (
        ("address", "of the tensor", "read"),
        ("shape", f"{tm.shape}", "test"),
        ("strides", f"{tm.strides}", "read"),
        ("box_sizes", f"{tm.box_sizes}", "divide"),
        ("swizzle", tm.arguments.swizzle.name, "swizzle"),
        ("oobfill", FILLS[tm.arguments.oob_fill], "zero"),
    )
    names = {"swizzle": "swizzle_field"}  # the line of code has the other key
    return [
        CodeLine(names.get(key, key), f"{key:<10}{value}", (to,), f"the map's {key}: {value}")
        for key, value, to in rows
    ]
