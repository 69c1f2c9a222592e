"""One copy, animated: chunks fly from the tensor through the engine into shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import CHUNK_BYTES, CHUNKS, LINE_BYTES, Chunk
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.held import drawn_chunks
from tma_dlpack.draw.scene import STILL, Box, Group, Item, Scene, Text
from tma_dlpack.draw.shown_copy import request_of
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap

MAX_CHUNKS = 64
SECONDS_PER_CHUNK, HOLD_SECONDS, FLIGHT = 0.22, 2.5, 3.0  # a flight lasts 3 chunks


@dataclass(frozen=True, slots=True, repr=False)
class CopyMotion(Figure):
    """A load, chunk by chunk.

    Attributes
    ----------
    chunks : tuple of Chunk
        In the order of the tile's rows, at most 64.
    start : int
        Where the tile begins in shared memory, bytes.
    tx_bytes : int
        What the barrier waits for.
    all_chunks : int
        How many chunks the tile has.
    """

    title: str
    chunks: tuple[Chunk, ...]
    start: int
    tx_bytes: int
    all_chunks: int

    @property
    def left_after(self) -> tuple[int, ...]:
        """Bytes that the barrier still waits for before the first chunk, and after each.

        Of a tile of more chunks than are drawn, the others count with the last.
        """
        per_chunk = self.tx_bytes // self.all_chunks
        counts = [self.tx_bytes - per_chunk * n for n in range(len(self.chunks))]
        return (*counts, 0)

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one animated panel; still viewers show every chunk in its place."""
        return (_panel(self),)

    def text(self) -> str:
        """Give the order of the chunks, and what the barrier counts."""
        rows = [
            f"{c.token:<10} from element {c.element} to {c.address:#06x}   barrier waits for {left}"
            for c, left in zip(self.chunks[:12], self.left_after[1:], strict=False)
        ]
        more = len(self.chunks) - 12
        rows += [f"and so on: {more} further chunks"] if more > 0 else []
        return "\n".join([self.title, *rows])


@opaque
def copy_motion(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    *,
    im2col_offsets: Sequence[int] | None = None,
    smem_offset: int = 0,
) -> CopyMotion:
    """Show a load as an animation: tensor, engine, shared memory, and the mbarrier's byte count.

    In which order the engine copies is not documented; the picture goes row by row. Chunks that are
    out of bounds start at the engine, which fills them.

    Parameters
    ----------
    tensor_map, coords, im2col_offsets, smem_offset
        As in `shared`.

    Returns
    -------
    CopyMotion
        `chunks` in the order in which they move, at most 64.

    Raises
    ------
    TmaPreconditionError
        As `shared`.
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
    request = request_of(tensor_map, coords, im2col_offsets, smem_offset)
    chunks = sorted(drawn_chunks(request), key=lambda c: (c.row, c.first))
    if not chunks:
        raise TmaUnsupportedError(
            "rows that are not a multiple of 16 bytes cannot be drawn as chunks"
        )
    plan = request.plan
    return CopyMotion(
        title=f"one load: {plan.tx_bytes} bytes, swizzle {plan.arguments.swizzle.name}",
        chunks=tuple(chunks[:MAX_CHUNKS]),
        start=request.smem_offset,
        tx_bytes=plan.tx_bytes,
        all_chunks=plan.tx_bytes // CHUNK_BYTES,
    )


# --- Drawing ------------------------------------------------------------------------------------

CELL_W, CELL_H, TOP = 24, 20, 64
SOURCE_X, ENGINE_X, MEMORY_X = 12, 238, 352
ENGINE_Y, ENGINE_W, ENGINE_H = TOP + 10, 84, 46
COUNT_Y = ENGINE_Y + ENGINE_H + 56


def _panel(figure: CopyMotion) -> Scene:
    total = SECONDS_PER_CHUNK * (len(figure.chunks) + FLIGHT) + HOLD_SECONDS
    sources = _sources(figure.chunks)
    items: list[Item] = [*_headings(figure)]
    for chunk, source in zip(figure.chunks, sources, strict=True):
        is_filled = chunk.state == "filled"
        items += [
            Box(*source, CELL_W, CELL_H, "filled" if is_filled else "cell", hatched=is_filled),
            Box(*_place(chunk, figure.start), CELL_W, CELL_H, "padding"),
        ]
    items += [_flying(n, chunk, figure.start, total) for n, chunk in enumerate(figure.chunks)]
    items += [_counter(n, figure, total) for n in range(len(figure.left_after))]
    last_line = max((c.address - figure.start) // LINE_BYTES for c in figure.chunks)
    source_lines = len({c.row for c in figure.chunks}) * _source_lines(figure.chunks)
    height = max(TOP + CELL_H * max(source_lines, last_line + 1), COUNT_Y + 8) + 20
    more = figure.all_chunks - len(figure.chunks)
    note = "row.chunk; their order is not documented"
    if more:
        note += f"; {more} further chunks count with the last"
    items.append(Text(12, height, note, "muted"))
    css = _keyframes(figure, sources, total)
    width = MEMORY_X + CELL_W * CHUNKS + 14
    return Scene(width, height + 12, f"{figure.title}, moving", tuple(items), css=css)


def _headings(figure: CopyMotion) -> list[Item]:
    """Name the three places, and draw the engine."""
    return [
        Text(SOURCE_X, 19, "tensor", "strong"),
        Text(SOURCE_X, 36, f"box at {figure.chunks[0].element}", "muted"),
        Text(ENGINE_X, 19, "TMA engine", "strong"),
        Text(MEMORY_X, 19, "shared memory", "strong"),
        Text(MEMORY_X, 36, f"from {figure.start:#06x}, 128 bytes a row", "muted"),
        Box(ENGINE_X, ENGINE_Y, ENGINE_W, ENGINE_H, "taken", ("tensor map", "address, XOR")),
        Text(ENGINE_X, COUNT_Y - 34, "mbarrier", "strong"),
        Text(ENGINE_X, COUNT_Y - 18, "bytes to come:", "muted"),
    ]


def _flying(n: int, chunk: Chunk, start: int, total: float) -> Group:
    """Draw a chunk in its place in shared memory, to which its animation moves it."""
    is_filled = chunk.state == "filled"
    box = Box(
        *_place(chunk, start),
        CELL_W,
        CELL_H,
        "filled" if is_filled else chunk.tint,
        (f"{chunk.row}.{chunk.number}",),
        chunk.about,
        hatched=is_filled,
        key=chunk.key,
        to=chunk.links,
    )
    return Group((box,), f"animation:c{n} {total:g}s linear infinite")


def _counter(n: int, figure: CopyMotion, total: float) -> Group:
    """Write what the barrier waits for after n chunks; still viewers show the last alone."""
    left = figure.left_after[n]
    said = Text(ENGINE_X, COUNT_Y, f"{left}" if left else "0: done", "label")
    is_last = n == len(figure.chunks)
    css = f"opacity:{int(is_last)};animation:n{n} {total:g}s step-end infinite"
    return Group((said,), css)


def _keyframes(figure: CopyMotion, sources: Sequence[tuple[float, float]], total: float) -> str:
    """Give the animations of all chunks and counts; none where motion is not wanted."""
    flights = (
        _flight(n, None if chunk.state == "filled" else source, _place(chunk, figure.start), total)
        for n, (chunk, source) in enumerate(zip(figure.chunks, sources, strict=True))
    )
    counts = (_count(n, len(figure.chunks), total) for n in range(len(figure.left_after)))
    return "".join([*flights, *counts, STILL])


def _source_lines(chunks: tuple[Chunk, ...]) -> int:
    """How many lines of 8 cells a row of the box takes in the picture."""
    per_row = sum(c.row == chunks[0].row for c in chunks)
    return -(-per_row // CHUNKS)


def _sources(chunks: tuple[Chunk, ...]) -> list[tuple[float, float]]:
    """Give where each chunk stands in the picture of the tensor: rows of the box, 8 to a line."""
    rows = {row: n for n, row in enumerate(dict.fromkeys(c.row for c in chunks))}
    tall = _source_lines(chunks)
    seen: dict[int, int] = {}
    places = []
    for chunk in chunks:
        n = seen.get(chunk.row, 0)
        seen[chunk.row] = n + 1
        line = rows[chunk.row] * tall + n // CHUNKS
        places.append((float(SOURCE_X + CELL_W * (n % CHUNKS)), float(TOP + CELL_H * line)))
    return places


def _place(chunk: Chunk, start: int) -> tuple[float, float]:
    line, column = divmod((chunk.address - start) // CHUNK_BYTES, CHUNKS)
    return float(MEMORY_X + CELL_W * column), float(TOP + CELL_H * line)


def _flight(
    n: int, source: tuple[float, float] | None, place: tuple[float, float], total: float
) -> str:
    """Give the keyframes of a chunk: it waits, goes through the engine, and stays in its place.

    Without a source, out of bounds, it appears in the engine.
    """
    through = (ENGINE_X + ENGINE_W / 2 - CELL_W / 2, ENGINE_Y + ENGINE_H / 2 - CELL_H / 2)

    def at(x: float, y: float) -> str:
        return f"{{transform:translate({x - place[0]:g}px,{y - place[1]:g}px)}}"

    start, middle, end = (
        100 * SECONDS_PER_CHUNK * (n + share * FLIGHT) / total for share in (0, 0.5, 1)
    )
    hidden = "{opacity:0}"
    if source is None:
        return (
            f"@keyframes c{n}{{0%,{start:.2f}%{hidden}"
            f"{start + 0.01:.2f}%,{middle:.2f}%{at(*through)}"
            f"{end:.2f}%,100%{{transform:none}}}}"
        )
    return (
        f"@keyframes c{n}{{0%,{start:.2f}%{at(*source)}{middle:.2f}%{at(*through)}"
        f"{end:.2f}%,100%{{transform:none}}}}"
    )


def _count(n: int, chunks: int, total: float) -> str:
    """Give the keyframes of a byte count: shown from one landing to the next."""
    begin, end = (
        100 * SECONDS_PER_CHUNK * (k + FLIGHT) / total if k >= 0 else 0.0 for k in (n - 1, n)
    )
    before = "0%{opacity:0}" if n else ""
    after = f"{end:.2f}%{{opacity:0}}" if n < chunks else ""
    return f"@keyframes n{n}{{{before}{begin:.2f}%{{opacity:1}}{after}}}"
