"""One tile loaded twice: by the threads of a block, and by one TMA instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import CHUNK_BYTES, request_of
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.grid import Cell, Grid, Scene, lay_out, text_width
from tma_dlpack.tables.enums import TmaOobFill
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

THREADS = 128
LINE_PX, GAP = 19, 26  # px
PIECE = 23, 19  # px: width and height of the cell of a `Piece`
#: Limits of a box that fits the page: the number of rows, and the bytes of one row.
MOST_ROWS, ROW_BYTES = 16, 128
SPACE = "\N{NO-BREAK SPACE}"
FILLS = {TmaOobFill.none: "none: zeros", TmaOobFill.nan: "nan"}
#: Size of a piece in bytes -> the C type with which a thread copies the piece.
C_TYPES = {4: "unsigned", 8: "uint2", 16: "uint4"}
LEGEND = [
    (Cell(0, 0, "taken", "t"), "thread t reads it"),
    (Cell(0, 0, "filled", "t", hatched=True), "out of bounds: thread t writes zeros"),
]
#: The load by threads: one entry of the dict for each line of code. The first word of the entry's
#: key is the key of the line. The other words are the keys of related cells. The entry's value
#: describes what the line does. `BY_TMA` has the same form, for the load by TMA.
BY_THREADS = {
    "loop": "",
    "divide box_sizes": (
        "the row and column of the box that this thread copies; the map contains box_sizes"
    ),
    "place load": "adds the start of the tile, which are the coordinates of the instruction",
    "zero oobfill": "the value of elements out of bounds; the map contains it as oobfill",
    "test shape": "the bounds test; the map contains the shape",
    "read address strides": (
        "the address in global memory; the map contains the tensor's address and strides"
    ),
    "to box_sizes": "the place in shared memory, where the rows of the box follow each other",
    "swizzle swizzle_field": (
        "the swizzle, which avoids bank conflicts in columns; the map contains the swizzle"
    ),
    "write load": "copies through a register, which TMA does not need",
    "close": "",
    "sync wait expect": "waits until all threads are done",
}
BY_TMA = {
    "one": "one thread of the block",
    "expect sync": "announces the number of bytes to the barrier; the engine counts them down",
    "load place write": (
        "the instruction: destination, map, barrier, and the coordinates, innermost first"
    ),
    "end": "",
    "wait sync": "every thread waits at the barrier until the bytes have arrived",
}
#: Field of the map -> (key of the field's cell, key of the line of code that the field replaces).
FIELDS = {
    "address": ("address", "read"),
    "shape": ("shape", "test"),
    "strides": ("strides", "read"),
    "box_sizes": ("box_sizes", "divide"),
    "swizzle": ("swizzle_field", "swizzle"),
    "oobfill": ("oobfill", "zero"),
}


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code, its key, the keys of related cells, and what the line does."""

    key: str
    text: str
    to: tuple[str, ...] = ()
    about: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Contiguous bytes that one thread copies at once.

    Attributes
    ----------
    thread, row, column : int
        The thread that copies the piece, and the row and the column of the piece's first element
        in the box.
    inside : bool
        Whether the piece is in bounds. The thread reads a piece in bounds from global memory. For
        a piece out of bounds, the thread writes zeros.
    """

    thread: int
    row: int
    column: int
    inside: bool

    def cell(self, left: float) -> Cell:
        """Return a cell for the piece, linked to the lines of code that copy the piece."""
        width, height = PIECE
        what = "reads it" if self.inside else "writes zeros"
        where = f"thread {self.thread}: row {self.row} of the box, from column {self.column}"
        return Cell(
            column=left,
            row=self.row * height,
            style="taken" if self.inside else "filled",
            text=f"{self.thread}",
            title=f"{where}; it {what}",
            columns=width,
            rows=height,
            hatched=not self.inside,
            key=f"t{self.row}.{self.column}",
            to=("read" if self.inside else "zero", "divide", "place", "test", "write"),
        )


@dataclass(frozen=True, slots=True, repr=False)
class Contrast(Figure):
    """One load in two versions: by many threads, and by TMA.

    Attributes
    ----------
    by_threads, by_tma : tuple of CodeLine
        The code that each thread runs without TMA, and the code that one thread runs with TMA.
    fields : tuple of CodeLine
        The fields of the tensor map.
    pieces : tuple of Piece
        The pieces of the tile, row by row.
    piece_bytes : int
    """

    title: str
    by_threads: tuple[CodeLine, ...]
    by_tma: tuple[CodeLine, ...]
    fields: tuple[CodeLine, ...]
    pieces: tuple[Piece, ...]
    piece_bytes: int

    def scenes(self) -> tuple[Scene, ...]:
        """Return two panels: the code by threads and the tile, and the code by TMA and the map."""
        code, width = _listing(self.by_threads)
        # Pieces are in row-major order, and a row of the box has `across` pieces.
        across = sum(piece.row == 0 for piece in self.pieces)
        tile = [
            piece.cell(width + GAP + n % across * PIECE[0]) for n, piece in enumerate(self.pieces)
        ]
        threads = lay_out(
            "a load by threads: code, and the thread that copies each piece of the tile",
            [Grid((*code, *tile))],
            f"without TMA: {THREADS} threads run this",
            [f"at the right: the tile; each cell is {self.piece_bytes} bytes, with its thread"],
            legend=LEGEND,
        )
        code, width = _listing(self.by_tma, max(len(line.text) for line in self.by_threads))
        fields, _ = _listing(self.fields, left=width + GAP, style="tint1")
        tma = lay_out(
            "a load by TMA: code, and the fields of the tensor map",
            [Grid((*code, *fields))],
            "with TMA: one thread runs this",
            ["at the right: the tensor map, made once on the host; the engine does the rest"],
        )
        return threads, tma

    def text(self) -> str:
        """Return the code by threads, the code by TMA, and the fields of the tensor map."""
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
    """Return cells for lines of code, and the width of these cells in pixels."""
    columns = max(columns, *(len(line.text) for line in lines))
    width = text_width("x" * (columns + 1)) + 6
    cells = []
    for n, line in enumerate(lines):
        text = line.text.ljust(columns).replace(" ", SPACE)
        top, height = n * LINE_PX, LINE_PX - 1
        cell = Cell(left, top, style, text, line.about, width, height, key=line.key, to=line.to)
        cells.append(cell)
    return cells, width


def contrast(tensor_map: TensorMap | Tile, coords: Sequence[int] | None = None) -> Contrast:
    """Show one load in two versions, by 128 threads and by TMA, with linked lines of code.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        A tiled map of rank 2 whose box has at most 16 rows of 16 to 128 bytes each.
    coords : sequence of int, optional
        Coordinates of the tile, row-major, as in `load_tile`. None means the first tile.

    Returns
    -------
    Contrast
        Its attributes `by_threads` and `by_tma` are the code of the two versions.

    Raises
    ------
    TmaPreconditionError
        If the coordinates are not legal. `tma_dlpack.draw.shared` refuses the same coordinates.
    TmaUnsupportedError
        If the map is not tiled or not of rank 2, if the box exceeds 16 rows of 128 bytes, if an
        element stride is not 1, if a coordinate is negative, or if the swizzle is
        bytes128_atom_32B_flip_8B. The code for such a load would not fit the page.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((20, 64), np.float16), (8, 64), swizzle="bytes128")
    >>> both = contrast(tm, (16, 0))
    >>> len(both.by_threads), len(both.by_tma), sum(not p.inside for p in both.pieces)
    (11, 5, 64)
    """
    request = request_of(tensor_map, coords, None, 0)
    tm, plan = request.tensor_map, request.plan
    start, element_bytes = request.coords[0].tolist(), plan.arguments.type_row.element_bits // 8
    is_plain = tm.kind == "tiled" and tm.rank == 2 and {*tm.elem_strides} == {1}
    is_small = (
        is_plain
        and tm.box_sizes[0] <= MOST_ROWS
        and tm.box_sizes[1] * element_bytes <= ROW_BYTES
        and len(plan.swizzle.terms) <= 1
    )
    if not is_small or min(start) < 0:
        raise TmaUnsupportedError(
            "this picture needs a tiled map of rank 2 with a box of at most 16 rows of 128 bytes"
        )
    # Box sizes and shapes are row-major, but the coordinates of a request are innermost first.
    (rows, columns), (height, width), (column, row) = tm.box_sizes, tm.shape, start
    # Use the smallest size, 4 or 8 bytes, with which each thread copies at most one piece.
    # If neither size is enough, use 16 bytes.
    piece = next((b for b in (4, 8) if tm.tx_bytes // b <= THREADS), CHUNK_BYTES)
    each = piece // element_bytes
    across = columns // each
    # Thread n % THREADS copies piece n of the tile, as the loop in `by_threads` below does.
    pieces = []
    for n in range(rows * across):
        r, c = n // across, n % across * each
        pieces.append(Piece(n % THREADS, r, c, row + r < height and column + c < width))
    vector, fill = C_TYPES[piece], FILLS[plan.arguments.oob_fill]
    # A term of a swizzle is (right shift, mask, left shift). The swizzle `none` has no term.
    swizzled = [
        f"  to ^= (to >> {right} & {mask}) << {left};" for right, mask, left in plan.swizzle.terms
    ]
    by_threads = [
        f"for (int i = threadIdx.x; i < {rows * across}; i += {THREADS}) {{",
        f"  int r = i / {across}, c = i % {across} * {each};",
        f"  int row = {row} + r, column = {column} + c;",
        f"  {vector} v = {{}};  // {fill.split()[-1]}",
        f"  if (row < {height} && column < {width})",
        f"    v = *({vector}*)(x + row * {tm.strides[0]} + column);",
        f"  int to = r * {plan.pitch_bytes} + c * {element_bytes};",
        *swizzled,
        f"  *({vector}*)(tile + to) = v;",
        "}",
        "__syncthreads();",
    ]
    by_tma = [
        "if (threadIdx.x == 0) {",
        f"  arrive_expect_tx(&full, {tm.tx_bytes});",
        f"  load(tile, map, &full, {column}, {row});",
        "}",
        "wait(&full, 0);",
    ]
    values = {
        "address": "of the tensor",
        "shape": tm.shape,
        "strides": tm.strides,
        "box_sizes": tm.box_sizes,
        "swizzle": plan.arguments.swizzle.name,
        "oobfill": fill,
    }
    # `_lines` pairs line n of the code with entry n of the table, so the counts must be equal.
    rows_of_code = dict(BY_THREADS)
    if not swizzled:
        del rows_of_code["swizzle swizzle_field"]
    return Contrast(
        title=f"one tile of {rows} x {columns}: {THREADS} threads, or one instruction",
        by_threads=_lines(by_threads, rows_of_code),
        by_tma=_lines(by_tma, BY_TMA),
        fields=tuple(
            CodeLine(key, f"{name:<10}{values[name]}", (to,), f"the map's {name}: {values[name]}")
            for name, (key, to) in FIELDS.items()
        ),
        pieces=tuple(pieces),
        piece_bytes=piece,
    )


def _lines(code: Sequence[str], rows: Mapping[str, str]) -> tuple[CodeLine, ...]:
    """Return a `CodeLine` for each line of code. Entry n of `rows` describes line n."""
    lines = []
    for text, (keys, about) in zip(code, rows.items(), strict=True):
        key, *to = keys.split()
        lines.append(CodeLine(key, text, tuple(to), about))
    return tuple(lines)
