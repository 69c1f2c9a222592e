"""The contents of a tile's 16-byte chunks in shared memory, and the choice of chunks to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.request import CopyRequest, load_request
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.figure import MAKE_ONE, require
from tma_dlpack.draw.grid import Cell
from tma_dlpack.geometry import BANK_BYTES, CHUNK_BYTES, LINE_BYTES, IntArray
from tma_dlpack.tables.arguments import EncodeArguments, reverse
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

CHUNKS = LINE_BYTES // CHUNK_BYTES  # chunks per line of 128 bytes
ROWS_READ = 8  # number of rows of a tile that ldmatrix and wgmma read at once
MAX_LINES = 24  # maximum number of drawn lines of 128 bytes, per layout
LEAST_BLOCK_BYTES = 1024  # minimum size of a block of lines; repeats of a block are not drawn

State = Literal["padding", "data", "filled", "clipped"]
_STATES: tuple[State, ...] = ("padding", "data", "filled", "clipped")


# --- The copy -------------------------------------------------------------------------------------


def request_of(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    im2col_offsets: Sequence[int] | None = None,
    smem_offset: int = 0,
) -> CopyRequest:
    """Return the checked load that a figure shows.

    A Tile has its own coordinates and offsets, so the other arguments are ignored. For a map
    without coordinates, return the load of its first tile. If `load_tile` would refuse the load,
    raise the same error.
    """
    require("tensor_map", tensor_map, (TensorMap, Tile), MAKE_ONE)
    if isinstance(tensor_map, TensorMap):
        if coords is None:
            coords = first_coords(tensor_map.arguments)
        return load_request(tensor_map, coords, im2col_offsets, smem_offset, many=False)
    if tensor_map.smem.ndim > 1:
        count = len(tensor_map.smem)
        raise TmaUnsupportedError(f"{count} tiles at once cannot be drawn; load one with load_tile")
    return tensor_map._request


def first_coords(args: EncodeArguments) -> tuple[int, ...]:
    """Return row-major coordinates of the first tile: zeros, or an im2col box's first pixel."""
    box = geometry.im2col_box(args)
    return reverse([box[d][0] if d in box else 0 for d in range(args.rank)])


def lines_positions(request: CopyRequest) -> IntArray:
    """Return the tensor position of the first element of each line of the tile.

    The array has the shape (lines, rank). A position is in the driver's order, innermost first.
    """
    if request.tiles != len(request.coords):  # gather4: one coordinate per row
        return request.coords
    plan = request.plan
    table = np.empty((*plan.line_shape, plan.arguments.rank), np.int64)
    table[..., 0] = request.coords[0, 0]
    for line in geometry.line_positions(plan, request.coords, request.offsets):
        table[..., line.dimension] = line.positions[0]
    return table.reshape(plan.lines, -1)


# --- Chunks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk: 16 aligned bytes of shared memory.

    Attributes
    ----------
    address : int
        Address in shared memory, bytes.
    state : {"padding", "data", "filled", "clipped"}
        The copy does not write "padding". Elements of "data" are in bounds, and elements of
        "filled" are out of bounds. A "clipped" chunk has elements of both kinds.
    row : int
        Index of the tile's row whose elements are in this chunk; -1 for padding.
    first, last : int
        Indices, in the tile's row, of the chunk's first and last element (both inclusive).
    global_offset : int
        Bytes from the map's global_address to the first element; valid only if this element is in
        bounds.
    linear, placed : int
        Address of the chunk before and after the swizzle of the map.
    element : tuple of int
        Row-major position of the first element in the tensor; empty for padding.
    swapped : bool
        Whether the swizzle also exchanges the two 8-byte halves of the chunk.
    swizzle : TmaSwizzle
        Swizzle of the map.
    fields : tuple of str
        Names of the map's fields that decide the contents of the chunk.
    data_bytes : int
        Number of bytes with values. Packed types leave a gap after these bytes.
    """

    address: int
    state: State
    row: int = -1
    first: int = 0
    last: int = 0
    global_offset: int = 0
    linear: int = 0
    placed: int = 0
    element: tuple[int, ...] = ()
    swapped: bool = False
    swizzle: TmaSwizzle = TmaSwizzle.none
    fields: tuple[str, ...] = ()
    data_bytes: int = CHUNK_BYTES

    @property
    def key(self) -> str:
        """The key of all cells that show these elements, in every picture of a copy.

        The key is "" for padding.
        """
        return f"c{self.row}.{self.first}" if self.row >= 0 else ""

    @property
    def number(self) -> int:
        """Index of the chunk in its row, counted from 0."""
        return self.first // (self.last - self.first + 1)

    @property
    def moved(self) -> str:
        """A description of the XORs that move the chunk; "" for a map without a swizzle."""
        steps = []
        for right, mask, left in geometry.SWIZZLES[self.swizzle].terms:
            places = f"addr[{_bits(mask, left)}] ^= addr[{_bits(mask, right)}]"
            steps.append(f"{places} (= {self.linear >> right & mask})")
        if not steps:
            return ""
        return f"linear {self.linear:#06x} to {self.placed:#06x}: {', '.join(steps)}"

    @property
    def label(self) -> str:
        """The label: row and columns of the chunk, in two lines; "" for padding."""
        columns = f"c{self.first}" + f"..{self.last}" * (self.last > self.first)
        return f"r{self.row}\n{columns}{' ⇄' * self.swapped}" * (self.row >= 0)

    @property
    def about(self) -> str:
        """All facts about the chunk, for its tooltip."""
        bank, gap = self.address % LINE_BYTES // BANK_BYTES, CHUNK_BYTES - self.data_bytes
        where = f"shared {self.address:#06x}, banks {bank}..{bank + 3}"
        if self.state == "padding":
            return f"{where}: untouched"
        origin = f"global_address {self.global_offset:+#x}"
        partly = ", partly out of bounds" * (self.state == "clipped")
        lines = [
            f"element {self.element} and {self.last - self.first} more",
            "out of bounds, filled" if self.state == "filled" else origin + partly,
            where + f"; {gap} bytes of gap after {self.data_bytes} of values" * (gap > 0),
            self.moved,
            "its halves of 8 bytes are exchanged" * self.swapped,
            f"decided by {', '.join(self.fields)}" * bool(self.fields),
        ]
        return "\n".join(filter(None, lines))

    @property
    def token(self) -> str:
        """A short label for terminals, of at most 10 characters."""
        mark = {"filled": "*", "clipped": "~"}.get(self.state, "")
        return f"r{self.row}c{self.first}{mark}" if self.row >= 0 else "."

    def cell(self, column: float, row: float, text: str) -> Cell:
        """Draw the chunk as a cell with links to its row, its banks, its state and `fields`."""
        key, bank = self.key, f"bank{self.placed % LINE_BYTES // CHUNK_BYTES}"
        links = (f"row{self.row}", bank, f"is-{self.state}", *self.fields)
        is_tinted, hatched = self.state in ("data", "clipped"), self.state in ("filled", "clipped")
        style = f"tint{self.number % CHUNKS}" if is_tinted else self.state
        # Padding has no key and no links.
        links, width = links * bool(key), self.data_bytes / CHUNK_BYTES
        return Cell(column, row, style, text, self.about, width, 1, hatched, key, links)


@lru_cache
def _bits(mask: int, low: int) -> str:
    """Return the numbers of the address bits that ``mask << low`` selects.

    >>> _bits(7, 4), _bits(1, 7)
    ('6:4', '7')
    """
    high = low + mask.bit_length() - 1
    return f"{high}:{low}" if high > low else f"{low}"


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A line of 128 bytes of shared memory; the last line may be shorter.

    If the box has more than two dimensions, `slices` lists the slices of the box whose rows are in
    this line. A slice is a tuple of indices in the box's outer dimensions. Otherwise `slices` is
    empty.
    """

    address: int
    chunks: tuple[Chunk, ...]
    slices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Lines to draw, and a sentence (`then`) about the omitted lines that follow.

    `is_cut` is True if lines are not drawn because the picture has no space for them.
    """

    lines: tuple[MemoryLine, ...]
    then: str = ""
    is_cut: bool = False


# --- Contents of shared memory --------------------------------------------------------------------


def smem_contents(request: CopyRequest, swizzle: TmaSwizzle) -> tuple[Block, ...]:
    """Return the blocks of lines of 128 bytes that show a tile in shared memory with `swizzle`.

    Lines are omitted if they differ from drawn lines only in their row numbers. `Block.then` names
    the omitted rows.
    """
    # The layout repeats every `block` bytes, with other rows.
    block = math.lcm(request.plan.pitch_bytes, request.plan.swizzle.repeat_bytes)
    while block < LEAST_BLOCK_BYTES:
        block *= 2
    step = block // LINE_BYTES if block <= MAX_LINES * LINE_BYTES else MAX_LINES
    return _Contents(request, swizzle).blocks(step)


def drawn_chunks(request: CopyRequest) -> tuple[Chunk, ...]:
    """Return the chunks that `shared` draws for a copy with the map's swizzle, without padding.

    Return () if the tile cannot be drawn as chunks.
    """
    if request.plan.pitch_bytes % CHUNK_BYTES:
        return ()
    blocks = smem_contents(request, request.plan.arguments.swizzle)
    lines = (line for block in blocks for line in block.lines)
    return tuple(chunk for line in lines for chunk in line.chunks if chunk.row >= 0)


class _Contents:
    """The contents of each chunk from the first to the last byte of the tile.

    The arrays have the shape (lines of 128 bytes, 8 chunks). `address` is the chunk's address in
    shared memory. `row` is the index of the tile's row that is in the chunk. `byte` is the number
    of bytes from the start of this row to the chunk. `state` is an index of `_STATES`. `numbers`
    has six numbers per chunk: row, first element, last element, global offset, address before the
    map's swizzle, and address after the map's swizzle.
    """

    def __init__(self, request: CopyRequest, swizzle: TmaSwizzle) -> None:
        self.request, plan, start = request, request.plan, request.smem_offset
        self.end = start + plan.smem_bytes
        count = -(-plan.smem_bytes // LINE_BYTES)
        steps: IntArray = np.arange(0, count * LINE_BYTES, CHUNK_BYTES, dtype=np.int64)
        self.address: IntArray = start + steps.reshape(count, CHUNKS)
        # The swizzle is its own inverse, so `swizzle_offset` returns the address before the
        # swizzle. ATOM_32B_FLIP_8B also exchanges 8-byte halves, so `linear` may be the middle of a
        # chunk.
        linear = geometry.swizzle_offset(swizzle, self.address)
        # The 8-byte halves of a chunk are exchanged if bit 3 of `linear` is 1.
        self.swapped = linear % CHUNK_BYTES != 0
        linear = linear & -CHUNK_BYTES
        placed = geometry.swizzle_offset(plan.arguments.swizzle, linear) & -CHUNK_BYTES
        self.row, self.byte = np.divmod(linear - start, plan.pitch_bytes)
        # Convert bytes of shared memory to bytes of the tensor, where packed types have no gaps.
        lines = request.lines()
        written = (self.row < plan.lines) & (self.byte < plan.smem_line_bytes)
        row = np.minimum(self.row, plan.lines - 1)
        self.data_bytes = CHUNK_BYTES * plan.line_bytes // plan.smem_line_bytes
        first = self.byte * plan.line_bytes // plan.smem_line_bytes
        last = first + self.data_bytes
        inside = lines.inside[0][row]
        whole = inside & (first >= lines.first[0]) & (last <= lines.last[0])
        some = inside & (first < lines.last[0]) & (last > lines.first[0])
        # Indices of _STATES: padding 0, data 1, filled 2, clipped 3.
        self.state = np.where(written, np.where(whole, 1, np.where(some, 3, 2)), 0)
        bits = plan.arguments.type_row.element_bits
        first_element, last_element = first * 8 // bits, last * 8 // bits - 1
        global_offset = lines.origins[0][row] + lines.start[0] + first
        self.numbers: IntArray = np.stack(
            (self.row, first_element, last_element, global_offset, linear, placed), axis=-1
        )
        self.positions = lines_positions(request)

    def blocks(self, step: int) -> tuple[Block, ...]:
        """Return blocks of `step` lines, at most MAX_LINES lines in all; omit repeated blocks."""
        count, room = len(self.address), MAX_LINES
        # Per block: first line, end of the drawn lines, end of the lines that repeat the block.
        drawn: list[tuple[int, int, int]] = []
        for begin in range(0, count, step):
            end = min(begin + step, count)
            if drawn and self._alike(drawn[-1][0], begin, end - begin):
                drawn[-1] = (*drawn[-1][:2], end)
            elif room > 0:
                cut = min(end, begin + room)
                drawn.append((begin, cut, cut))
                room -= cut - begin
            # If there is no room for all these lines, no later line is drawn.
            if drawn[-1][2] < end:
                break
        blocks, left = [], drawn[-1][2]
        for begin, end, like in drawn:
            then = []
            if like > end:
                then.append(f"{self._rows(end, like)} like {self._rows(begin, end)}")
            # Only the last block of an incomplete picture is cut.
            is_cut = like == left and left < count
            if is_cut:
                then.append(f"{self._rows(left, count)} not drawn")
            lines = tuple(map(self._line, range(begin, end)))
            blocks.append(Block(lines, "; ".join(then), is_cut))
        return tuple(blocks)

    def _alike(self, shown: int, begin: int, count: int) -> bool:
        """Return whether `count` lines from `begin` on repeat the lines from `shown` on.

        The row numbers may differ by a constant, which must be the same for all chunks.
        """
        a, b = slice(shown, shown + count), slice(begin, begin + count)
        further = self.row[b] - self.row[a]
        same = all((x[a] == x[b]).all() for x in (self.state, self.byte, self.swapped))
        return same and bool((further == further.flat[0]).all())

    def _rows(self, begin: int, end: int) -> str:
        """Return a text that names the tile's rows in the memory lines [begin, end)."""
        rows = self.row[begin:end][self.state[begin:end] > 0]
        if not rows.size:
            return f"bytes {self.address[begin, 0]:#x}..{self.address[end - 1, -1] + 15:#x}"
        return f"rows {rows.min()}..{rows.max()}"

    def _line(self, n: int) -> MemoryLine:
        shape = self.request.plan.line_shape
        slices: list[tuple[int, ...]] = []
        # gather4 loads four unrelated rows, so the line has no slices.
        if len(shape) > 1 and self.request.tiles == len(self.request.coords):
            rows = np.unique(self.row[n][self.state[n] > 0] // shape[-1])
            places = np.stack(np.unravel_index(rows, shape[:-1]), axis=1)
            slices = [tuple(place) for place in places.tolist()]
        addresses = self.address[n].tolist()
        chunks = (self._chunk(a, n, k) for k, a in enumerate(addresses) if a < self.end)
        return MemoryLine(addresses[0], tuple(chunks), tuple(slices))

    def _chunk(self, address: int, n: int, k: int) -> Chunk:
        state = _STATES[self.state[n, k]]
        if state == "padding":
            return Chunk(address, state)
        row, first, last, offset, linear, placed = self.numbers[n, k].tolist()
        position = self.positions[row].tolist()
        if not self.request.plan.unit_bytes:
            # `first` counts elements. In an interleaved map, `position[0]` counts whole units of 16
            # or 32 bytes, so `first` is not added.
            position[0] += first
        fields = self._fields(state, position, last - first)
        where = row, first, last, offset, linear, placed, reverse(position)
        how = bool(self.swapped[n, k]), self.request.plan.arguments.swizzle
        return Chunk(address, state, *where, *how, fields, self.data_bytes)

    def _fields(self, state: State, position: list[int], more: int) -> tuple[str, ...]:
        """Return the fields that decide the contents of a chunk.

        If the chunk has out-of-bounds elements, the fields are the extents of the dimensions in
        which these elements are out of bounds. Otherwise the field is the swizzle, or the row size
        if the map has no swizzle.
        """
        args = self.request.plan.arguments
        if state in ("filled", "clipped"):
            ends = position.copy()
            if not self.request.plan.unit_bytes:
                ends[0] += more
            outside = (d for d, n in enumerate(args.global_dim) if position[d] < 0 or ends[d] >= n)
            return tuple(f"global_dim[{d}]" for d in outside)
        if args.swizzle:
            return ("swizzle",)
        return ("box_dim[0]",) if args.kind == "tiled" else ("channels_per_pixel",)
