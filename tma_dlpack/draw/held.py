"""What each 16-byte chunk of shared memory holds after a copy: which lines to draw, as data."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.draw.chunks import (
    CHUNK_BYTES,
    CHUNKS,
    LINE_BYTES,
    Block,
    Chunk,
    MemoryLine,
    State,
)
from tma_dlpack.draw.shown_copy import lines_positions
from tma_dlpack.geometry import IntArray
from tma_dlpack.tables.arguments import reverse
from tma_dlpack.tables.enums import TmaSwizzle

MAX_LINES = 24  # of 128 bytes, drawn per layout
LEAST_BLOCK_BYTES = 1024
_STATES: tuple[State, ...] = ("padding", "data", "filled", "clipped")


def held_blocks(request: CopyRequest, swizzle: TmaSwizzle) -> tuple[Block, ...]:
    """Give the lines of 128 bytes to draw, of a tile in shared memory with some swizzle.

    Lines that repeat those drawn before, further rows apart, are left out and named in a sentence.
    """
    held = _Held(request, swizzle)
    block = math.lcm(request.plan.pitch_bytes, request.plan.swizzle.repeat_bytes)
    while block < LEAST_BLOCK_BYTES:
        block *= 2
    step = block // LINE_BYTES if block <= MAX_LINES * LINE_BYTES else MAX_LINES
    return held.blocks(step)


def drawn_chunks(request: CopyRequest) -> tuple[Chunk, ...]:
    """Give the chunks that `shared` draws of a copy, as its map swizzles them; no padding.

    Empty where it cannot be drawn as chunks.
    """
    if request.plan.pitch_bytes % CHUNK_BYTES:
        return ()
    blocks = held_blocks(request, request.plan.arguments.swizzle)
    lines = (line for block in blocks for line in block.lines)
    return tuple(chunk for line in lines for chunk in line.chunks if chunk.row >= 0)


class _Held:
    """What every chunk of the tile's footprint holds.

    Arrays of shape (lines of 128 bytes, 8 chunks): `address` in shared memory; `linear` and
    `placed`, the same before and after the map's swizzle; `row` of the tile and first `byte` of it;
    `first` and `last` element; `state`, an index of `_STATES`.
    """

    def __init__(self, request: CopyRequest, swizzle: TmaSwizzle) -> None:
        plan, self.request = request.plan, request
        self.start = request.smem_offset
        self.end = request.smem_offset + plan.smem_bytes
        count = -(-plan.smem_bytes // LINE_BYTES)
        self.address: IntArray = (
            self.start + np.arange(count * CHUNKS, dtype=np.int64) * CHUNK_BYTES
        ).reshape(count, CHUNKS)
        self.linear: IntArray = np.asarray(geometry.swizzle_offset(swizzle, self.address))
        source: IntArray = self.linear - self.start
        self.linear = self.linear - self.linear % CHUNK_BYTES
        self.placed = np.asarray(geometry.swizzle_offset(plan.arguments.swizzle, self.linear))
        self.placed = self.placed - self.placed % CHUNK_BYTES
        self.swapped = source % CHUNK_BYTES != 0
        self.row, self.byte = np.divmod(source - source % CHUNK_BYTES, plan.pitch_bytes)
        # From bytes of shared memory to bytes of the tensor, which are fewer for packed types.
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
        self.data_bytes = CHUNK_BYTES * plan.line_bytes // plan.smem_line_bytes
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
            blocks[-1] = replace(blocks[-1], then=then, torn=True)
        return tuple(blocks)

    def _alike(self, shown: int, begin: int, count: int) -> bool:
        """Whether lines from `begin` on repeat those from `shown` on, some rows further."""
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
                self._slices(n),
            )
            for n in range(begin, end)
        )

    def _slices(self, n: int) -> tuple[tuple[int, ...], ...]:
        shape = self.request.plan.line_shape
        if len(shape) < 2 or self.request.tiles != len(self.request.coords):
            return ()
        rows = np.unique(self.row[n][self.state[n] > 0] // shape[-1])
        return tuple(tuple(map(int, np.unravel_index(int(row), shape[:-1]))) for row in rows)

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
            int(self.linear[n, k]),
            int(self.placed[n, k]),
            self.request.plan.arguments.swizzle,
            self._fields(state, position, int(self.last[n, k]) - first),
            self.data_bytes,
        )

    def _fields(self, state: str, position: list[int], more: int) -> tuple[str, ...]:
        """Name what decides a chunk: the bounds that fill it, or the swizzle or pitch behind it."""
        args = self.request.plan.arguments
        if state in ("filled", "clipped"):
            ends = [position[0] + more * (not self.request.plan.unit_bytes), *position[1:]]
            return tuple(
                f"global_dim[{d}]"
                for d, (p, end) in enumerate(zip(position, ends, strict=True))
                if p < 0 or end >= args.global_dim[d]
            )
        if args.swizzle:
            return ("swizzle",)
        return ("box_dim[0]",) if args.kind == "tiled" else ("channels_per_pixel",)
