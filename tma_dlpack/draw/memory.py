"""Shared memory as lines of 128 bytes (32 banks): what each chunk contains, and how it arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import (
    CHUNKS,
    LINE_BYTES,
    ROWS_READ,
    Block,
    Chunk,
    drawn_chunks,
    request_of,
    smem_contents,
)
from tma_dlpack.draw.figure import STILL, Figure
from tma_dlpack.draw.grid import Cell, Grid, Scene, label, lay_out, words
from tma_dlpack.geometry import CHUNK_BYTES
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

UNIT = 50, 29  # px of a chunk
SLICE_ROWS, THEN_ROWS = 0.52, 0.7  # of the lines of words between, in rows
COLOURS = "chunks at the same place in their rows have the same colour"
#: state of a chunk -> a sample of it, and its meaning.
LEGEND = {
    "data": (Cell(0, 0, "tint0"), "in bounds"),
    "filled": (Cell(0, 0, "filled", hatched=True), "out of bounds, filled"),
    "clipped": (Cell(0, 0, "tint0", hatched=True), "partly out of bounds"),
    "padding": (Cell(0, 0, "padding"), "untouched by the copy"),
    "gap": (Cell(0, 0, "padding", "gap"), "gap of a packed type"),
}


@dataclass(frozen=True, slots=True)
class DrawnLayout:
    """One order of the tile in shared memory."""

    name: str
    blocks: tuple[Block, ...]

    def scene(self, notes: Sequence[str]) -> Scene:
        """Draw one row per 128 bytes, one cell per 16, and a legend of what occurs."""
        cells = [label(0, -0.6, "bank", rows=0.5)]
        for k in range(CHUNKS):
            name, spans = f"{4 * k}..{4 * k + 3}", f"{16 * k}..{16 * k + 15}"
            title = f"banks {name}: bytes {spans} of every 128"
            cells.append(Cell(k, -0.6, "plain", name, title, rows=0.5, key=f"bank{k}"))
        firsts, framed = self.first_chunks(), list[Cell]()
        row, slices = 0.0, tuple[tuple[int, ...], ...]()
        for block in self.blocks:
            for line in block.lines:
                if line.slices and line.slices != slices:
                    slices = line.slices
                    cells += _slice_heading(slices, row)
                    row += SLICE_ROWS
                cells.append(label(0, row, f"{line.address:#06x}"))
                for k, chunk in enumerate(line.chunks):
                    cells += _chunk(chunk, k, row)
                    if chunk in firsts:
                        framed.append(Cell(k, row, "focus", to=("is-first",)))
                row += 1
            if block.is_cut:
                cells.append(Cell(0, row + 0.1, "zigzag", columns=CHUNKS, rows=0, anchor="start"))
            if block.then:
                cells.append(words(0, row, f"⋮ {block.then}", "label"))
                row += THEN_ROWS
        chunks = [c for block in self.blocks for line in block.lines for c in line.chunks]
        shown = {c.state for c in chunks} | {"gap" for c in chunks if c.data_bytes < CHUNK_BYTES}
        about = f"shared memory, {self.name}: 16-byte chunks in lines of 128 bytes"
        legend = [entry for state, entry in LEGEND.items() if state in shown]
        grid = Grid((*cells, *framed), UNIT)
        return lay_out(about, [grid], self.name, (), notes, legend)

    def first_chunks(self) -> tuple[Chunk, ...]:
        """Return the first chunk of each of the first 8 rows, which ldmatrix reads at once."""
        chunks = (c for block in self.blocks for line in block.lines for c in line.chunks)
        firsts = [c for c in chunks if 0 <= c.row < ROWS_READ and c.number == 0]
        return tuple(firsts) if len(firsts) == ROWS_READ else ()

    def in_banks(self) -> Counter[int]:
        """Return how many of those chunks are in each group of 4 banks, by its first byte."""
        return Counter(chunk.address % LINE_BYTES for chunk in self.first_chunks())


def _slice_heading(slices: Sequence[tuple[int, ...]], row: float) -> list[Cell]:
    """Name the place in the box of the following rows, of a box of three and more dimensions."""
    first, last = (f"box[{', '.join(map(str, s))}, ...]" for s in (slices[0], slices[-1]))
    name = first if first == last else f"{first} to {last}"
    rule = Cell(0, row, "axis", columns=CHUNKS, rows=0)
    return [rule, words(0, row, name, rows=SLICE_ROWS)]


def _chunk(chunk: Chunk, column: int, row: float) -> list[Cell]:
    cell, gap = chunk.cell(column, row, chunk.label), CHUNK_BYTES - chunk.data_bytes
    if not gap:
        return [cell]
    title = f"gap of {gap} bytes: written, no value"
    rest = Cell(column + cell.columns, row, "padding", "gap", title, columns=1 - cell.columns)
    return [cell, rest]


@dataclass(frozen=True, slots=True, repr=False)
class SharedMemory(Figure):
    """A tile in shared memory, unswizzled and as its map swizzles it."""

    title: str
    layouts: tuple[DrawnLayout, ...]
    notes: tuple[str, ...]

    def brief(self) -> SharedMemory:
        """Return the last layout alone, with a note that there is another."""
        notes = (*self.notes, "before the swizzle: see draw.shared")
        short = replace(self, layouts=self.layouts[-1:], notes=notes)
        return short if len(self.layouts) > 1 else self

    @property
    def sentence(self) -> str:
        """What to see: over how many banks the framed chunks are spread."""
        before, after = (layout.in_banks() for layout in (self.layouts[0], self.layouts[-1]))
        if not before or not after:
            return ""
        groups = f"{counted(len(after), 'group')} of 4 banks"
        groups += f" (before the swizzle: {len(before)})" * (len(self.layouts) > 1)
        waves = counted(max(after.values()), "wavefront")
        return (
            f"[The first 16 bytes of 8 rows](is-first), framed, are in {groups}: reading them at "
            f"once, as ldmatrix does, takes {waves}."
        )

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel per layout."""
        return tuple(layout.scene(self.notes) for layout in self.layouts)

    def text(self) -> str:
        """Return one table per layout."""
        parts = [self.title]
        for layout in self.layouts:
            banks = "".join(f"{f'{4 * n}..{4 * n + 3}':<11}" for n in range(CHUNKS))
            parts += [layout.name, f"{'banks':<9}{banks}".rstrip()]
            for block in layout.blocks:
                for line in block.lines:
                    tokens = "".join(f"{chunk.token:<11}" for chunk in line.chunks)
                    parts.append(f"{line.address:#06x}   {tokens}".rstrip())
                parts += [f"         {block.then}"] * bool(block.then)
        marks = "* out of bounds, filled   ~ partly out of bounds   . untouched"
        return "\n".join([*parts, *self.notes, marks])


@opaque
def shared(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    *,
    im2col_offsets: Sequence[int] | None = None,
    smem_offset: int = 0,
) -> SharedMemory:
    """Show the place of each 16-byte chunk of a tile in shared memory.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        A tile brings its own coordinates and offset.
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the first tile.
    im2col_offsets : sequence of int, optional
        Row-major, of an im2col map.
    smem_offset : int
        Where the tile starts in shared memory, bytes; a multiple of 128.

    Returns
    -------
    SharedMemory
        With two layouts, before and after the swizzle; one where there is no swizzle.

    Raises
    ------
    TmaPreconditionError
        For what is neither map nor tile, and for coordinates and offsets that `load_tile` would
        refuse.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((8, 64), np.float16), (4, 64), swizzle="bytes128")
    >>> swizzled = shared(tm).layouts[1].blocks[0]
    >>> [chunk.label.split() for chunk in swizzled.lines[1].chunks[:2]]
    [['r1', 'c8..15'], ['r1', 'c0..7']]
    """
    request = request_of(tensor_map, coords, im2col_offsets, smem_offset)
    plan = request.plan
    if plan.pitch_bytes % CHUNK_BYTES:
        found = f"lines of {plan.pitch_bytes} bytes cannot be drawn as chunks of 16 bytes"
        raise TmaUnsupportedError(f"{found}; no driver accepts such a map")
    own, names = plan.arguments.swizzle, {TmaSwizzle.none: "unswizzled"}
    if plan.swizzle.terms:
        names = {TmaSwizzle.none: "before the swizzle", own: f"swizzle {own.name}"}
    line = "row of the box" if plan.arguments.kind == "tiled" else "pixel of the column"
    at = f" at {request.smem_offset:#x}" if request.smem_offset else ""
    title = f"shared memory{at}: {plan.smem_bytes} bytes, {plan.tx_bytes} written"
    layouts = (DrawnLayout(name, smem_contents(request, s)) for s, name in names.items())
    rows = f"r: {'unit' if plan.unit_bytes else line}, counted row-major; c: which of its elements"
    return SharedMemory(title, tuple(layouts), (rows, COLOURS))


# --- One load, moving -----------------------------------------------------------------------------

MAX_CHUNKS = 64
SECONDS_PER_CHUNK, HOLD_SECONDS, FLIGHT = 0.22, 2.5, 3.0  # a flight lasts 3 chunks
MOTION_UNIT = 24, 20  # px of a chunk
ENGINE, MEMORY = 9.4, 14.2  # columns; the tensor begins at 0
ENGINE_ROWS = 2.3
NAMES = "2.5 is chunk 5 of row 2 of the box"
ORDER = "The picture goes row by row; NVIDIA does not document in which order the engine copies."


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
        total = SECONDS_PER_CHUNK * (len(self.chunks) + FLIGHT) + HOLD_SECONDS
        cells, flying, keyframes = self._places(), [], []
        for n, (chunk, source) in enumerate(zip(self.chunks, self._sources(), strict=True)):
            line, column = divmod((chunk.address - self.start) // CHUNK_BYTES, CHUNKS)
            cell = chunk.cell(MEMORY + column, line, f"{chunk.row}.{chunk.number}")
            cell = replace(cell, columns=1, css=f"animation:c{n} {total:g}s linear infinite")
            is_filled = chunk.state == "filled"
            style = "filled" if is_filled else "cell"
            origin = Cell(*source, style, hatched=is_filled, key=chunk.key, to=("is-source",))
            cells.append(origin)
            cells.append(Cell(cell.column, line, "padding"))
            flying.append(cell)
            keyframes.append(_flight(n, None if is_filled else source, cell, total))
        for n, left in enumerate(self.left_after):  # still viewers show the last alone
            is_last = n == len(self.chunks)
            css = f"opacity:{int(is_last)};animation:n{n} {total:g}s step-end infinite"
            text = f"{left}" if left else "0: done"
            flying.append(replace(words(ENGINE, 5, text, "label"), css=css))
            keyframes.append(_count(n, len(self.chunks), total))
        more = self.all_chunks - len(self.chunks)
        notes = [NAMES, ORDER, *[f"{more} further chunks count with the last"] * bool(more)]
        grid = Grid((*cells, *flying), MOTION_UNIT)
        css = "".join([*keyframes, STILL])
        return (lay_out(f"{self.title}, moving", [grid], notes=notes, css=css),)

    @property
    def sentence(self) -> str:
        """What to see: the way of each chunk, and what the barrier counts."""
        return (
            "One instruction moves the box: [16 bytes at a time](is-source) come from the tensor, "
            "[the engine](is-engine) finds the place of each in shared memory, and the barrier "
            f"counts {self.tx_bytes} bytes down to 0."
        )

    def _places(self) -> list[Cell]:
        """Name the three places, and draw the engine."""
        return [
            words(0, -2, "tensor", "strong"),
            words(0, -1, f"box at {self.chunks[0].element}"),
            words(ENGINE, -2, "TMA engine", "strong"),
            words(MEMORY, -2, "shared memory", "strong"),
            words(MEMORY, -1, f"from {self.start:#06x}, 128 bytes a row"),
            words(ENGINE, 3.2, "mbarrier", "strong"),
            words(ENGINE, 4.1, "bytes to come:"),
            Cell(
                *(ENGINE, 0.5, "taken", "tensor map\naddress, XOR", "", 3.5, ENGINE_ROWS),
                key="is-engine",
            ),
        ]

    def _sources(self) -> list[tuple[int, int]]:
        """Return the column and row of each chunk in the tensor: rows of the box, 8 to a line."""
        rows = {row: n for n, row in enumerate(dict.fromkeys(c.row for c in self.chunks))}
        first = self.chunks[0].number
        tall = (max(c.number for c in self.chunks) - first) // CHUNKS + 1
        places = ((rows[c.row], divmod(c.number - first, CHUNKS)) for c in self.chunks)
        return [(column, row * tall + line) for row, (line, column) in places]

    def text(self) -> str:
        """Return the order of the chunks, and what the barrier counts."""
        pairs = zip(self.chunks[:12], self.left_after[1:], strict=False)
        path = "{0.token:<10} from element {0.element} to {0.address:#06x}   barrier waits for {1}"
        rows = [path.format(chunk, left) for chunk, left in pairs]
        more = len(self.chunks) - 12
        rows += [f"and so on: {more} further chunks"] * (more > 0)
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
        message = "rows that are not a multiple of 16 bytes cannot be drawn as chunks"
        raise TmaUnsupportedError(message)
    tx_bytes = request.plan.tx_bytes
    title = f"one load: {tx_bytes} bytes, swizzle {request.plan.arguments.swizzle.name}"
    drawn, count = tuple(chunks[:MAX_CHUNKS]), tx_bytes // CHUNK_BYTES
    return CopyMotion(title, drawn, request.smem_offset, tx_bytes, count)


def _flight(n: int, source: tuple[int, int] | None, place: Cell, total: float) -> str:
    """Return the keyframes of a chunk: it waits, goes through the engine, stays in its place.

    Without a source, out of bounds, it appears in the engine.
    """

    def at(column: float, row: float) -> str:
        x, y = MOTION_UNIT[0] * (column - place.column), MOTION_UNIT[1] * (row - place.row)
        return f"{{transform:translate({x:g}px,{y:g}px)}}"

    start, middle, end = (_percent(n + share * FLIGHT, total) for share in (0, 0.5, 1))
    begin = f"0%,{start:.2f}%{{opacity:0}}{start + 0.01:.2f}%,"
    if source is not None:
        begin = f"0%,{start:.2f}%{at(*source)}"
    through = at(ENGINE + 1.25, 0.5 + ENGINE_ROWS / 2 - 0.5)
    rest = f"{end:.2f}%,100%{{transform:none}}"
    return f"@keyframes c{n}{{{begin}{middle:.2f}%{through}{rest}}}"


def _count(n: int, chunks: int, total: float) -> str:
    """Return the keyframes of a byte count: shown from one landing to the next."""
    begin, end = (_percent(k + FLIGHT, total) if k >= 0 else 0.0 for k in (n - 1, n))
    before = "0%{opacity:0}" * bool(n)
    after = f"{end:.2f}%{{opacity:0}}" * (n < chunks)
    return f"@keyframes n{n}{{{before}{begin:.2f}%{{opacity:1}}{after}}}"


def _percent(chunks: float, total: float) -> float:
    return 100 * SECONDS_PER_CHUNK * chunks / total
