"""Shared memory as lines of 128 bytes (32 banks): which 16-byte chunk holds what, and why there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.asked import lines_positions, request_of
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.scene import Box, Item, Scene, Text
from tma_dlpack.encoding.arguments import reverse
from tma_dlpack.geometry import IntArray
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.enums import TmaSwizzle
from tma_dlpack.types.errors import TmaUnsupportedError
from tma_dlpack.types.opaque import opaque

__all__ = ["Block", "Chunk", "Layout", "MemoryLine", "SharedMemory", "shared"]

LINE_BYTES = 128  # 32 banks of 4 bytes
CHUNK_BYTES = 16
CHUNKS = LINE_BYTES // CHUNK_BYTES
BANK_BYTES = 4
MAX_LINES = 24  # of 128 bytes, drawn per layout
LEAST_BLOCK_BYTES = 1024

State = Literal["data", "filled", "clipped", "padding"]
_STATES: tuple[State, ...] = ("padding", "data", "filled", "clipped")
_SAID = {
    "data": "",
    "filled": "out of bounds, filled",
    "clipped": "partly out of bounds",
    "padding": "untouched",
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """16 bytes of shared memory.

    Attributes
    ----------
    address : int
        Where they lie in shared memory, bytes.
    state : {"data", "filled", "clipped", "padding"}
        In bounds, out of bounds, both, or not written by the copy.
    row : int
        Line of the tile; -1 of padding.
    first, last : int
        Elements of that line, inclusive.
    element : tuple of int
        Row-major position of the first element in the tensor; empty for padding.
    global_address : int
        Of the first element; meaningful where in bounds.
    swapped : bool
        Whether the swizzle also exchanges its two halves of 8 bytes.
    """

    address: int
    state: State
    row: int = -1
    first: int = 0
    last: int = 0
    element: tuple[int, ...] = ()
    global_address: int = 0
    swapped: bool = False

    @property
    def banks(self) -> str:
        """The four banks it lies in."""
        bank = self.address % LINE_BYTES // BANK_BYTES
        return f"{bank}..{bank + 3}"

    @property
    def label(self) -> tuple[str, ...]:
        """Row and columns, as drawn."""
        if self.state == "padding":
            return ("untouched",)
        columns = f"c{self.first}" + (f"..{self.last}" if self.last > self.first else "")
        return (f"r{self.row}", columns + " ⇄" * self.swapped)

    @property
    def about(self) -> str:
        """Everything, as shown on hovering."""
        where = f"shared {self.address:#06x}, banks {self.banks}"
        if self.state == "padding":
            return f"{where}: untouched"
        origin = f"global {self.global_address:#x}"
        said = _SAID[self.state]
        return "\n".join(
            [
                f"element {self.element} and {self.last - self.first} more" + ", halves of 8 bytes "
                "exchanged" * self.swapped,
                said if self.state == "filled" else origin + (f", {said}" if said else ""),
                where,
            ]
        )

    @property
    def token(self) -> str:
        """The same in at most 10 characters, for terminals."""
        mark = {"data": "", "filled": "*", "clipped": "~", "padding": ""}[self.state]
        return "." if self.state == "padding" else f"r{self.row}c{self.first}{mark}"


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """128 bytes of shared memory, or what is left of them at the end."""

    address: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that are drawn, and a sentence on those after them that are not."""

    lines: tuple[MemoryLine, ...]
    then: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way the tile can lie in shared memory."""

    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, repr=False)
class SharedMemory(Figure):
    """A tile in shared memory, unswizzled and as its map swizzles it."""

    title: str
    layouts: tuple[Layout, ...]
    notes: tuple[str, ...]

    def brief(self) -> SharedMemory:
        """Give the last layout alone, and say that there is another."""
        if len(self.layouts) == 1:
            return self
        further = "before the swizzle: see draw.shared"
        return replace(self, layouts=self.layouts[-1:], notes=(*self.notes, further))

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel per layout, the notes below the last."""
        return tuple(_panel(layout, self.notes) for layout in self.layouts)

    def text(self) -> str:
        """Give one table per layout."""
        parts = [self.title]
        for layout in self.layouts:
            banks = "".join(f"{f'{4 * n}..{4 * n + 3}':<11}" for n in range(CHUNKS))
            parts += [layout.name, f"{'banks':<9}{banks}".rstrip()]
            for block in layout.blocks:
                parts += [
                    f"{line.address:#06x}   "
                    + "".join(f"{chunk.token:<11}" for chunk in line.chunks).rstrip()
                    for line in block.lines
                ]
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
    """Show where each 16-byte chunk of a tile lies in shared memory.

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
    >>> [chunk.label for chunk in swizzled.lines[1].chunks[:2]]
    [('r1', 'c8..15'), ('r1', 'c0..7')]
    """
    request = request_of(tensor_map, coords, im2col_offsets, smem_offset)
    plan = request.plan
    if plan.pitch_bytes % CHUNK_BYTES:
        raise TmaUnsupportedError(
            f"lines of {plan.pitch_bytes} bytes cannot be drawn as chunks of 16 bytes; no driver "
            "accepts such a map"
        )
    args = plan.arguments
    unswizzled = _layout("unswizzled", request, TmaSwizzle.none)
    layouts: tuple[Layout, ...] = (unswizzled,)
    if plan.swizzle.terms:
        before = replace(unswizzled, name="before the swizzle")
        layouts = (before, _layout(f"swizzle {args.swizzle.name}", request, args.swizzle))
    line = {"tiled": "line of the box"}.get(args.kind, "pixel of the column")
    at = f" at {request.smem_offset:#x}" if request.smem_offset else ""
    return SharedMemory(
        title=f"shared memory{at}: {plan.smem_bytes} bytes, {plan.tx_bytes} written",
        layouts=layouts,
        notes=(
            f"r: {'unit' if plan.unit_bytes else line}, counted row-major; c: its elements, one "
            "tint per 16 bytes",
        ),
    )


def _layout(name: str, request: CopyRequest, swizzle: TmaSwizzle) -> Layout:
    held = _Held(request, swizzle)
    block = math.lcm(request.plan.pitch_bytes, request.plan.swizzle.repeat_bytes)
    while block < LEAST_BLOCK_BYTES:
        block *= 2
    step = block // LINE_BYTES if block <= MAX_LINES * LINE_BYTES else MAX_LINES
    return Layout(name, held.blocks(step))


class _Held:
    """What every chunk of the tile's footprint holds, as arrays (memory lines, 8)."""

    def __init__(self, request: CopyRequest, swizzle: TmaSwizzle) -> None:
        plan, self.request = request.plan, request
        self.start = request.smem_offset
        self.end = request.smem_offset + plan.smem_bytes
        count = -(-plan.smem_bytes // LINE_BYTES)
        self.address: IntArray = (
            self.start + np.arange(count * CHUNKS, dtype=np.int64) * CHUNK_BYTES
        ).reshape(count, CHUNKS)
        source: IntArray = np.asarray(geometry.swizzle_offset(swizzle, self.address)) - self.start
        self.swapped = source % CHUNK_BYTES != 0
        self.row, self.byte = np.divmod(source - source % CHUNK_BYTES, plan.pitch_bytes)
        lines = request.lines()
        held = (self.row < plan.lines) & (self.byte < plan.smem_line_bytes)
        row = np.minimum(self.row, plan.lines - 1)
        first = self.byte * plan.line_bytes // plan.smem_line_bytes
        last = first + CHUNK_BYTES * plan.line_bytes // plan.smem_line_bytes
        inside = lines.inside[0][row]
        whole = inside & (first >= lines.first[0]) & (last <= lines.last[0])
        some = inside & (first < lines.last[0]) & (last > lines.first[0])
        self.state = np.where(held, np.where(whole, 1, np.where(some, 3, 2)), 0)
        self.global_address = (
            request.tensor_map.global_address + lines.origins[0][row] + lines.start[0] + first
        )
        bits = plan.arguments.type_row.element_bits
        self.first, self.last = first * 8 // bits, last * 8 // bits - 1
        self.positions = lines_positions(request)

    def blocks(self, step: int) -> tuple[Block, ...]:
        """Draw blocks of `step` lines that differ from the last drawn one, up to MAX_LINES."""
        count, room = len(self.address), MAX_LINES
        drawn: list[tuple[int, int, int]] = []  # first line, end, end of those like it
        for begin in range(0, count, step):
            end = min(begin + step, count)
            if drawn and self._alike(drawn[-1][0], begin, end - begin):
                drawn[-1] = (*drawn[-1][:2], end)
            elif room > 0:
                cut = min(end, begin + room)
                drawn.append((begin, cut, cut))
                room -= cut - begin
            if drawn[-1][2] < end:
                break
        blocks = [
            Block(self._lines(begin, end), self._like(begin, end, like) if like > end else "")
            for begin, end, like in drawn
        ]
        left = drawn[-1][2]
        if left < count:
            said = f"{self._rows(left, count)} not drawn"
            then = "; ".join(filter(None, (blocks[-1].then, said)))
            blocks[-1] = replace(blocks[-1], then=then)
        return tuple(blocks)

    def _alike(self, shown: int, begin: int, count: int) -> bool:
        """Whether lines from `begin` hold what those from `shown` hold, so many rows further on."""
        a, b = slice(shown, shown + count), slice(begin, begin + count)
        further = self.row[b] - self.row[a]
        return bool(
            (self.state[a] == self.state[b]).all()
            and (self.byte[a] == self.byte[b]).all()
            and (self.swapped[a] == self.swapped[b]).all()
            and (further == further.flat[0]).all()
        )

    def _like(self, begin: int, end: int, like: int) -> str:
        return f"{self._rows(end, like)} like {self._rows(begin, end)}"

    def _rows(self, begin: int, end: int) -> str:
        """Name the tile's rows that lie in some memory lines."""
        held = self.row[begin:end][self.state[begin:end] > 0]
        if not held.size:
            return f"bytes {self.address[begin, 0]:#x}..{self.address[end - 1, -1] + 15:#x}"
        return f"rows {held.min()}..{held.max()}"

    def _lines(self, begin: int, end: int) -> tuple[MemoryLine, ...]:
        return tuple(
            MemoryLine(
                int(self.address[n, 0]),
                tuple(self._chunk(n, k) for k in range(CHUNKS) if self.address[n, k] < self.end),
            )
            for n in range(begin, end)
        )

    def _chunk(self, n: int, k: int) -> Chunk:
        address, state = int(self.address[n, k]), _STATES[self.state[n, k]]
        if state == "padding":
            return Chunk(address, state)
        row, first = int(self.row[n, k]), int(self.first[n, k])
        position = self.positions[row].tolist()
        if not self.request.plan.unit_bytes:
            position[0] += first
        return Chunk(
            address,
            state,
            row,
            first,
            int(self.last[n, k]),
            reverse(position),
            int(self.global_address[n, k]),
            bool(self.swapped[n, k]),
        )


# --- Drawing ------------------------------------------------------------------------------------

CELL_WIDTH, CELL_HEIGHT = 63, 29
GUTTER, HEAD, THEN_HEIGHT, NOTE_HEIGHT = 54, 46, 20, 16
_STYLE = {"filled": "filled", "padding": "padding"}


def _panel(layout: Layout, notes: tuple[str, ...]) -> Scene:
    items: list[Item] = [Text(10, 19, layout.name, "strong"), Text(10, 38, "bank", "muted")]
    items += [
        Text(GUTTER + CELL_WIDTH * (k + 0.5), 38, f"{4 * k}..{4 * k + 3}", "muted", "middle")
        for k in range(CHUNKS)
    ]
    y = float(HEAD)
    for block in layout.blocks:
        for line in block.lines:
            label = f"{line.address:#06x}"
            items.append(Text(GUTTER - 6, y + CELL_HEIGHT / 2 + 4, label, "muted", "end"))
            items += [
                _cell(chunk, GUTTER + CELL_WIDTH * k, y) for k, chunk in enumerate(line.chunks)
            ]
            y += CELL_HEIGHT
        if block.then:
            items.append(Text(GUTTER, y + 14, f"⋮ {block.then}"))
            y += THEN_HEIGHT
    y += 6
    for note in notes:
        items.append(Text(10, y + 10, note, "muted"))
        y += NOTE_HEIGHT
    legend_y = y + 2
    items += _legend(legend_y)
    about = f"shared memory, {layout.name}: 16-byte chunks in lines of 128 bytes"
    return Scene(GUTTER + CELL_WIDTH * CHUNKS + 10, legend_y + 24, about, tuple(items))


def _cell(chunk: Chunk, x: float, y: float) -> Box:
    tint = f"tint{chunk.first // max(1, chunk.last - chunk.first + 1) % CHUNKS}"
    return Box(
        x,
        y,
        CELL_WIDTH,
        CELL_HEIGHT,
        _STYLE.get(chunk.state, tint),
        chunk.label,
        chunk.about,
        hatched=chunk.state in ("filled", "clipped"),
    )


def _legend(y: float) -> list[Item]:
    return [
        Box(10, y, 22, 14, "cell"),
        Text(38, y + 11, "in bounds", "muted"),
        Box(130, y, 22, 14, "filled", hatched=True),
        Text(158, y + 11, "out of bounds, filled", "muted"),
        Box(320, y, 22, 14, "padding"),
        Text(348, y + 11, "untouched by the copy", "muted"),
    ]
