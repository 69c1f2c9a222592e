"""The picture of a tile in shared memory: 16-byte chunks in lines of 128 bytes (32 banks)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import CHUNKS, ROWS_READ, Block, Chunk, request_of, smem_contents
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.grid import Cell, Grid, Scene, label, lay_out, words
from tma_dlpack.draw.map_bytes import FieldValue, MapBytes, diff, values_scene
from tma_dlpack.geometry import CHUNK_BYTES, LINE_BYTES
from tma_dlpack.public import lazy, opaque
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

UNIT, NARROW_UNIT = (50, 29), (28, 29)  # px: width and height of a chunk
SLICE_ROWS, THEN_ROWS = 0.52, 0.7  # heights, in rows: heading of a slice, note on omitted lines
COLOURS = "chunks at the same place in their rows have the same colour"
#: State of a chunk -> a sample cell for the legend, and the meaning of the state.
LEGEND = {
    "data": (Cell(0, 0, "tint0"), "in bounds"),
    "filled": (Cell(0, 0, "filled", hatched=True), "out of bounds, filled"),
    "clipped": (Cell(0, 0, "tint0", hatched=True), "partly out of bounds"),
    "padding": (Cell(0, 0, "padding"), "untouched by the copy"),
    "gap": (Cell(0, 0, "padding", "gap"), "gap of a packed type"),
}


@dataclass(frozen=True)  # no slots: `lazy` stores what it computes in the instance
class DrawnLayout:
    """One layout of the tile in shared memory, for example the layout before the swizzle."""

    name: str
    blocks: tuple[Block, ...]

    def scene(self, notes: Sequence[str], *, is_narrow: bool = False) -> Scene:
        """Draw one row per 128 bytes, one cell per 16 bytes, and a legend of the drawn states."""
        gaps = {"gap" for c in self.chunks if c.data_bytes < CHUNK_BYTES}
        shown = {c.state for c in self.chunks} | gaps
        about = f"shared memory, {self.name}: 16-byte chunks in lines of 128 bytes"
        legend = [entry for state, entry in LEGEND.items() if state in shown]
        grid = Grid(self.cells, UNIT)
        if is_narrow:
            grid = Grid(tuple([_with_first_of_spans(c) for c in self.cells]), NARROW_UNIT)
        return lay_out(about, [grid], self.name, (), notes, legend, is_narrow=is_narrow)

    @lazy
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks, line by line."""
        return tuple([c for block in self.blocks for line in block.lines for c in line.chunks])

    @lazy
    def cells(self) -> tuple[Cell, ...]:
        """The cells of the wide picture; a column is a chunk, and a row is a line of 128 bytes."""
        cells = [label(0, -0.6, "bank", rows=0.5)]
        for k in range(CHUNKS):
            name, spans = f"{4 * k}..{4 * k + 3}", f"{16 * k}..{16 * k + 15}"
            title = f"banks {name}: bytes {spans} of every 128"
            cells.append(Cell(k, -0.6, "plain", name, title, rows=0.5, key=f"bank{k}"))
        # Frames are drawn after all chunks, so that no chunk covers a frame.
        framed = list[Cell]()
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
                    if self.first_chunks and _is_first(chunk):
                        framed.append(Cell(k, row, "focus", to=("is-first",)))
                row += 1
            if block.is_cut:
                cells.append(Cell(0, row + 0.1, "zigzag", columns=CHUNKS, rows=0, anchor="start"))
            if block.then:
                cells.append(words(0, row, f"⋮ {block.then}", "label"))
                row += THEN_ROWS
        return (*cells, *framed)

    @lazy
    def first_chunks(self) -> tuple[Chunk, ...]:
        """The first chunks of rows 0..7, which ldmatrix reads at once; () for fewer than 8 rows."""
        firsts = tuple(filter(_is_first, self.chunks))
        return firsts if len(firsts) == ROWS_READ else ()

    def in_banks(self) -> Counter[int]:
        """Return how many of `first_chunks` are in each group of 4 banks.

        A key is the first byte of the group in a line of 128 bytes.
        """
        return Counter([chunk.address % LINE_BYTES for chunk in self.first_chunks])


def _is_first(chunk: Chunk) -> bool:
    return 0 <= chunk.row < ROWS_READ and chunk.number == 0


def _with_first_of_spans(cell: Cell) -> Cell:
    r"""Return a cell for a narrow chunk, with only the first number of each span in its text.

    >>> _with_first_of_spans(Cell(0, 0, text="r0\nc16..23")).text
    'r0\nc16'
    """
    return replace(cell, text=re.sub(r"\.\..*", "", cell.text)) if ".." in cell.text else cell


def _slice_heading(slices: Sequence[tuple[int, ...]], row: float) -> list[Cell]:
    """Return a heading such as "box[0, 1, ...]", with the outer indices of the rows below it."""
    first, last = (f"box[{', '.join(map(str, s))}, ...]" for s in (slices[0], slices[-1]))
    name = first if first == last else f"{first} to {last}"
    rule = Cell(0, row, "axis", columns=CHUNKS, rows=0)
    return [rule, words(0, row, name, rows=SLICE_ROWS)]


def _chunk(chunk: Chunk, column: int, row: float) -> list[Cell]:
    cell, gap = chunk.cell(column, row, chunk.label), CHUNK_BYTES - chunk.data_bytes
    if not gap:
        return [cell]
    # An ALIGN16B packed type: the first cell has the values, and a second cell shows the gap.
    title = f"gap of {gap} bytes: written, no value"
    rest = Cell(column + cell.columns, row, "padding", "gap", title, columns=1 - cell.columns)
    return [cell, rest]


@dataclass(frozen=True, slots=True, repr=False)
class SharedMemory(Figure):
    """A tile in shared memory, without and with the swizzle of its map."""

    title: str
    layouts: tuple[DrawnLayout, ...]
    notes: tuple[str, ...]

    def brief(self) -> SharedMemory:
        """Return the picture with only its last layout, and with a note on the other layout."""
        notes = (*self.notes, "before the swizzle: see draw.shared")
        short = replace(self, layouts=self.layouts[-1:], notes=notes)
        return short if len(self.layouts) > 1 else self

    @property
    def sentence(self) -> str:
        """The caption: the bank groups of the framed chunks, and the wavefronts that read them."""
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
        """Return one panel per layout."""
        return tuple(layout.scene(self.notes) for layout in self.layouts)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return one panel per layout for a phone; a chunk shows only its first element."""
        return tuple(layout.scene(self.notes, is_narrow=True) for layout in self.layouts)

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
        A Tile has its own coordinates and offsets, so the other arguments are ignored.
    coords : sequence of int, optional
        Row-major coordinates of the tile, as in `load_tile`; None means the first tile.
    im2col_offsets : sequence of int, optional
        Row-major offsets; only for im2col maps.
    smem_offset : int
        Start of the tile in shared memory, in bytes; a multiple of 128.

    Returns
    -------
    SharedMemory
        `layouts` has the layout before the swizzle, then the layout after the swizzle. If the map
        has no swizzle, there is only one layout.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is neither a TensorMap nor a Tile, or `load_tile` would refuse the
        coordinates or offsets.

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


# --- Two maps and their tiles ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Figure):
    """The comparison of map A with map B.

    Attributes
    ----------
    difference : MapBytes
        All fields of both maps.
    memories : tuple of SharedMemory
        The first tile of each map.
    """

    title: str
    difference: MapBytes
    memories: tuple[SharedMemory, SharedMemory]

    @property
    def changed(self) -> tuple[FieldValue, ...]:
        """The fields that differ."""
        return tuple(v for v in self.difference.values if v.differs)

    @property
    def layouts(self) -> tuple[DrawnLayout, DrawnLayout]:
        """The layout in shared memory of the tile of map A, then of the tile of map B."""
        a, b = (memory.layouts[-1] for memory in self.memories)
        return replace(a, name=f"A: {a.name}"), replace(b, name=f"B: {b.name}")

    @property
    def sentence(self) -> str:
        """The caption: the fields that differ, each linked to the cells that it affects."""
        changed = [f"[{v.field}]({v.field})" for v in self.changed]
        return f"A and B differ in {', '.join(changed)}." if changed else ""

    def scenes(self) -> tuple[Scene, ...]:
        """Return the table of changed fields, then the tile of map A, then the tile of map B."""
        tiles = zip(self.layouts, self.memories, strict=True)
        table = values_scene(self.changed, ("A", "B"), "the fields that differ")
        return (table, *(layout.scene(memory.notes) for layout, memory in tiles))

    def text(self) -> str:
        """Return the changed fields."""
        rows = [f"{v.field:<26} A {v.shown[0]:<18} B {v.shown[1]}".rstrip() for v in self.changed]
        return "\n".join([self.title, *(rows or ["no field differs"])])


@opaque
def compare(a: TensorMap, b: TensorMap) -> Comparison:
    """Show which fields differ between map A and map B, and the effect on the first tile.

    Parameters
    ----------
    a, b : TensorMap

    Returns
    -------
    Comparison
        `changed` has the fields that differ; `memories` has each map's first tile in shared memory.

    Raises
    ------
    TmaPreconditionError
        If `a` or `b` is not a TensorMap, or if `load_tile` would refuse the first tile of `a` or
        `b`.
    TmaUnsupportedError
        If `a` or `b` has no bytes on this machine.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> a = tma.make_tma_descriptor(x, (8, 64))
    >>> print(compare(a, tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128")))
    A against B: 2 fields differ
    swizzle                    A none               B bytes128
    swizzle_repeat_bytes       A 16                 B 1024
    """
    difference = diff(a, b)
    count = sum(v.differs for v in difference.values)
    title = f"A against B: {count} field{'s differ' if count != 1 else ' differs'}"
    return Comparison(title, difference, (shared(a), shared(b)))
