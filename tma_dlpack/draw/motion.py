"""The animation of a load, with tensor, engine, shared memory and the mbarrier's byte count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import CHUNKS, Chunk, drawn_chunks, request_of
from tma_dlpack.draw.figure import STILL, Figure
from tma_dlpack.draw.grid import Cell, Grid, Scene, lay_out, words
from tma_dlpack.draw.memory import shared
from tma_dlpack.geometry import CHUNK_BYTES
from tma_dlpack.public import opaque, with_arguments_of
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

MAX_CHUNKS = 64
# A new chunk starts every SECONDS_PER_CHUNK, and its flight lasts FLIGHT * SECONDS_PER_CHUNK.
SECONDS_PER_CHUNK, HOLD_SECONDS, FLIGHT = 0.22, 2.5, 3.0
HEADING = 2.4  # height in rows of the heading above the engine and above shared memory
ENGINE_ROWS, ENGINE_ALL = 2.3, 2.6  # height of the engine in rows, without and with the space below
NAMES = "2.5 is chunk 5 of row 2 of the box"
ORDER = "The picture goes row by row; NVIDIA does not document in which order the engine copies."


class Places(NamedTuple):
    """The (column, row) where the engine, the mbarrier's count and shared memory begin.

    The tensor begins at (0, 0). `unit` is the width and height of a chunk in px.
    """

    unit: tuple[float, float]
    engine: tuple[float, float]
    counted: tuple[float, float]
    memory: tuple[float, float]


WIDE = Places((24, 20), (9.4, 0.5), (9.4, 3.2), (14.2, 0))


def stacked(rows: int) -> Places:
    """Return the places for a phone, one below the other; the tensor at the top has `rows` rows."""
    engine = rows + HEADING
    memory = engine + ENGINE_ALL + HEADING
    return Places((33, 20), (0, engine), (4.5, engine - 0.5), (0, memory))


@dataclass(frozen=True, slots=True, repr=False)
class CopyMotion(Figure):
    """An animated load, chunk by chunk.

    Attributes
    ----------
    chunks : tuple of Chunk
        The chunks that move, at most 64, in the order of the tile's rows.
    start : int
        Start of the tile in shared memory, in bytes.
    tx_bytes : int
        Number of bytes for which the barrier waits.
    all_chunks : int
        Number of chunks of the tile.
    """

    title: str
    chunks: tuple[Chunk, ...]
    start: int
    tx_bytes: int
    all_chunks: int

    @property
    def _chunk_bytes(self) -> int:
        """Bytes of a chunk that come from the tensor; a packed type may fill only 8 or 12 of 16."""
        return self.tx_bytes // self.all_chunks

    @property
    def left_after(self) -> tuple[int, ...]:
        """Pending bytes of the barrier: before the first chunk, then after each drawn chunk.

        The bytes of the chunks that are not drawn arrive with the last drawn chunk.
        """
        counts = [self.tx_bytes - self._chunk_bytes * n for n in range(len(self.chunks))]
        return (*counts, 0)

    def scenes(self) -> tuple[Scene, ...]:
        """Return one animated panel; without animation it shows all chunks in shared memory."""
        return (self._scene(WIDE),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone: tensor, engine and shared memory below each other."""
        rows = max(row for _, row in self._sources()) + 1
        return (self._scene(stacked(rows)),)

    def _scene(self, places: Places) -> Scene:
        (counter, below), (left, top) = places.counted, places.memory
        total = SECONDS_PER_CHUNK * (len(self.chunks) + FLIGHT) + HOLD_SECONDS
        # Moving cells come last, so that they fly over the fixed cells.
        cells, flying, keyframes = self._places(places), [], []
        for n, (chunk, source) in enumerate(zip(self.chunks, self._sources(), strict=True)):
            line, column = divmod((chunk.address - self.start) // CHUNK_BYTES, CHUNKS)
            cell = chunk.cell(left + column, top + line, f"{chunk.row}.{chunk.number}")
            # The cell is at its final place; its keyframes move it there from the tensor.
            cell = replace(cell, columns=1, css=f"animation:c{n} {total:g}s linear infinite")
            is_filled = chunk.state == "filled"
            style = "filled" if is_filled else "cell"
            origin = Cell(*source, style, hatched=is_filled, key=chunk.key, to=("is-source",))
            cells.append(origin)
            cells.append(Cell(cell.column, cell.row, "padding"))
            flying.append(cell)
            keyframes.append(_flight(n, None if is_filled else source, cell, total, places))
        # Viewers without animation show only the last count.
        for n, pending in enumerate(self.left_after):
            is_last = n == len(self.chunks)
            css = f"opacity:{int(is_last)};animation:n{n} {total:g}s step-end infinite"
            text = f"{pending}" if pending else "0: done"
            flying.append(replace(words(counter, below + 1.8, text, "label"), css=css))
            keyframes.append(_count(n, len(self.chunks), total))
        more = self.all_chunks - len(self.chunks)
        notes = [NAMES, ORDER, *[f"{more} further chunks count with the last"] * bool(more)]
        grid = Grid((*cells, *flying), places.unit)
        css = "".join([*keyframes, STILL])
        about, is_narrow = f"{self.title}, moving", places is not WIDE
        return lay_out(about, [grid], notes=notes, css=css, is_narrow=is_narrow)

    @property
    def sentence(self) -> str:
        """The caption: the path of each chunk, and the barrier's byte count."""
        return (
            f"One instruction moves the box: [{self._chunk_bytes} bytes at a time](is-source) come "
            "from the tensor, "
            "[the engine](is-engine) finds the place of each in shared memory, and the barrier "
            f"counts {self.tx_bytes} bytes down to 0."
        )

    def _places(self, places: Places) -> list[Cell]:
        """Return the names of tensor, engine, shared memory and mbarrier, and the engine's cell."""
        (engine, at), (counter, below), (left, top) = places[1:]
        heading = 2.5 if places is WIDE else 1.5  # distance from the engine, in rows
        return [
            words(0, -2, "tensor", "strong"),
            words(0, -1, f"box at {self.chunks[0].element}"),
            words(engine, at - heading, "TMA engine", "strong"),
            words(left, top - 2, "shared memory", "strong"),
            words(left, top - 1, f"from {self.start:#06x}, 128 bytes a row"),
            words(counter, below, "mbarrier", "strong"),
            words(counter, below + 0.9, "bytes to come:"),
            Cell(
                *(engine, at, "taken", "tensor map\naddress, XOR", "", 3.5, ENGINE_ROWS),
                key="is-engine",
            ),
        ]

    def _sources(self) -> list[tuple[int, int]]:
        """Return (column, row) of each chunk in the drawn tensor.

        A row of the box wraps to a new row of the picture after 8 chunks.
        """
        rows = {row: n for n, row in enumerate(dict.fromkeys(c.row for c in self.chunks))}
        first = self.chunks[0].number
        # `tall`: number of lines of 8 chunks that one row of the box needs.
        tall = (max(c.number for c in self.chunks) - first) // CHUNKS + 1
        places = ((rows[c.row], divmod(c.number - first, CHUNKS)) for c in self.chunks)
        return [(column, row * tall + line) for row, (line, column) in places]

    def text(self) -> str:
        """Return the order of the first 12 chunks, with the barrier's byte count after each."""
        pairs = zip(self.chunks[:12], self.left_after[1:], strict=False)
        path = "{0.token:<10} from element {0.element} to {0.address:#06x}   barrier waits for {1}"
        rows = [path.format(chunk, left) for chunk, left in pairs]
        more = self.all_chunks - 12
        rows += [f"and so on: {more} further chunks"] * (more > 0)
        return "\n".join([self.title, *rows])


@opaque
@with_arguments_of(shared)
def copy_motion(tensor_map: TensorMap | Tile, options: dict[str, Any]) -> CopyMotion:
    """Show a load as an animation: tensor, engine, shared memory, and the mbarrier's byte count.

    NVIDIA does not document in which order the engine copies, so the animation goes row by row. A
    chunk out of bounds starts at the engine, which fills it.

    Parameters
    ----------
    tensor_map, coords, im2col_offsets, smem_offset
        As in `shared`.

    Returns
    -------
    CopyMotion
        `chunks` has at most 64 chunks, in the order in which they move.

    Raises
    ------
    TmaPreconditionError
        In the same cases as `shared`.
    TmaUnsupportedError
        For a tile that cannot be drawn as chunks of 16 bytes.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((8, 64), np.float16), (4, 64), swizzle="bytes128")
    >>> motion = copy_motion(tm)
    >>> motion.left_after[:3], motion.left_after[-1]
    ((512, 496, 480), 0)
    """
    request = request_of(tensor_map, **options)
    chunks = sorted(drawn_chunks(request), key=lambda c: (c.row, c.first))
    if not chunks:
        message = "rows that are not a multiple of 16 bytes cannot be drawn as chunks"
        raise TmaUnsupportedError(message)
    plan = request.plan
    tx_bytes, count = plan.tx_bytes, plan.lines * plan.smem_line_bytes // CHUNK_BYTES
    title = f"one load: {tx_bytes} bytes, swizzle {plan.arguments.swizzle.name}"
    return CopyMotion(title, tuple(chunks[:MAX_CHUNKS]), request.smem_offset, tx_bytes, count)


def _flight(
    n: int, source: tuple[int, int] | None, place: Cell, total: float, places: Places
) -> str:
    """Return the keyframes of a chunk: it waits, moves through the engine, and stays in its place.

    If `source` is None, the chunk is out of bounds and is hidden until it is in the engine.
    """

    def at(column: float, row: float) -> str:
        width, height = places.unit
        x, y = width * (column - place.column), height * (row - place.row)
        return f"{{transform:translate({x:g}px,{y:g}px)}}"

    start, middle, end = (_percent(n + share * FLIGHT, total) for share in (0, 0.5, 1))
    # A sudden appearance needs two keyframes: hidden at `start`, and visible 0.01 % later.
    begin = f"0%,{start:.2f}%{{opacity:0}}{start + 0.01:.2f}%,"
    if source is not None:
        begin = f"0%,{start:.2f}%{at(*source)}"
    through = at(places.engine[0] + 1.25, places.engine[1] + ENGINE_ROWS / 2 - 0.5)
    rest = f"{end:.2f}%,100%{{transform:none}}"
    return f"@keyframes c{n}{{{begin}{middle:.2f}%{through}{rest}}}"


def _count(n: int, chunks: int, total: float) -> str:
    """Return the keyframes that show byte count n between the ends of flights n - 1 and n."""
    begin, end = (_percent(k + FLIGHT, total) if k >= 0 else 0.0 for k in (n - 1, n))
    before = "0%{opacity:0}" * bool(n)
    after = f"{end:.2f}%{{opacity:0}}" * (n < chunks)
    return f"@keyframes n{n}{{{before}{begin:.2f}%{{opacity:1}}{after}}}"


def _percent(chunks: float, total: float) -> float:
    """Return ``chunks * SECONDS_PER_CHUNK`` in percent of `total` seconds."""
    return 100 * SECONDS_PER_CHUNK * chunks / total
