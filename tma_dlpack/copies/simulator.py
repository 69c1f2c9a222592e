"""The simulator: TMA copies in NumPy whose results are equal to the hardware's, byte for byte.

A line is a contiguous row of a tile (see `geometry`). The simulator views memory as an array of
overlapping items. Each item has the size of a line, and an item starts every 16 bytes. Addresses,
strides and inner coordinates are multiples of 16 bytes, so each line is one item. The in-bounds
lines of a box are a regular grid of items, called a lattice.

`RawCopy` is a copy for the simulator of kernels. As in a kernel, its coordinates are innermost
first, and it reads and writes bytes. The simulator checks a `RawCopy` when the kernel issues it,
and executes it later.

Source: for every recorded copy, the simulator's result is equal to the result of an H200 (driver
580.159.04, 2026-11-20); see tests/golden. Packed types, atom swizzles, im2col-wide, gather4 and
scatter4 are documented, not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.copies.backend import Backend, combine, reduction_of
from tma_dlpack.copies.memory import (
    HostExtent,
    Window,
    host_extent_of,
    read_windows,
    written_windows,
)
from tma_dlpack.copies.request import (
    CopyRequest,
    Lines,
    gather4_request,
    load_request,
    scatter4_request,
    store_request,
)
from tma_dlpack.copies.tile import Bytes, Tile, lines_of_data, smem_of_lines, spread
from tma_dlpack.geometry import CHUNK_BYTES, IntArray, TilePlan
from tma_dlpack.tables.coerce import shown
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType, TmaOobFill
from tma_dlpack.tables.errors import argument_error
from tma_dlpack.tensor_map.map import TensorMap

#: `load_smem` loads many tiles in blocks. These are the maximum numbers of bytes and of lines of a
#: block; a block of this size fits in the CPU's caches.
BLOCK_BYTES = 1 << 20
BLOCK_LINES = 1 << 16

#: `TmaOobFill.nan` fills out-of-bounds elements of every data type with this word [measured].
NAN_WORD = np.array([0x7FF7], "<u2").view(np.uint8)

_T = TensorMapDataType
_TF32 = (_T.TFLOAT32, _T.TFLOAT32_FTZ)

# An array of the NumPy type "V<width>": NumPy copies each line as one element of `width` bytes.
Items = npt.NDArray[np.void]


class SimulatorBackend(Backend):
    """Backend that copies tiles of host memory with NumPy.

    If `memory` is None, a copy may access the storage of the map's host tensor. Otherwise `memory`
    must be a contiguous uint8 array that contains the map's addresses, and a copy may access only
    this array. The backend refuses a copy that would access any other byte.

    If lines of a store have the same address (stride 0), the last of these lines stays in memory;
    the hardware guarantees no order. If elements of a reduction have the same address, the
    reduction applies them one after the other, in the order of the lines.
    """

    name = "simulator"

    def load(self, request: CopyRequest, memory: object, stream: object = None) -> Tile:
        """Load tiles; the temporary memory is about 1 MiB, or one tile if a tile is larger."""
        _refuse_stream(stream)
        smem = load_smem(request, host_extent_of(request.tensor_map, memory, write=False))
        return Tile(request, smem if request.many else smem[0])

    def store(
        self, request: CopyRequest, data: object, op: str, memory: object, stream: object = None
    ) -> None:
        """Store or reduce one tile, in whole 16-byte chunks, as the hardware does."""
        _refuse_stream(stream)
        store_smem(request, data, op, host_extent_of(request.tensor_map, memory, write=True))


def _refuse_stream(stream: object) -> None:
    if stream is not None:
        found, must = f"stream is {shown(stream)}", "be None: the simulator has no streams"
        raise argument_error("stream", found, must, 'pass no stream, or use backend("cuda")')


# --- Loads --------------------------------------------------------------------------------------


def load_smem(request: CopyRequest, extent: HostExtent) -> Bytes:
    """Return shared memory (tiles, smem_offset + smem_bytes) after the loads."""
    plan, offset, tiles = request.plan, request.smem_offset, request.tiles
    block = _tiles_at_a_time(request)
    if 0 < tiles <= block and not offset:
        return smem_of_lines(plan, 0, _loaded_lines(request, slice(0, tiles), extent))
    smem = np.empty((tiles, offset + plan.smem_bytes), np.uint8)
    smem[:, :offset] = 0
    for begin in range(0, tiles, block):
        which = slice(begin, begin + block)
        lines = _loaded_lines(request, which, extent)
        smem_of_lines(plan, offset, lines, smem[which, offset:])
    return smem


def _tiles_at_a_time(request: CopyRequest) -> int:
    """Return the number of tiles in a block.

    If the load needs no temporary memory, one block contains all tiles.
    """
    plan = request.plan
    few = max(1, min(BLOCK_BYTES // plan.smem_bytes, BLOCK_LINES // plan.lines))
    # Without padding, swizzle and conversion, the concatenated lines are the bytes of shared
    # memory.
    is_bit_copy = plan.smem_bytes == plan.lines * plan.line_bytes and not plan.swizzle.terms
    if few >= request.tiles or not is_bit_copy or plan.arguments.data_type in _TF32:
        return few
    whole = plan.lattice and geometry.wholly_in_bounds(plan, request.coords).all()
    return request.tiles if whole else few


def _loaded_lines(request: CopyRequest, which: slice, extent: HostExtent) -> Bytes:
    """Load the tiles `which` and return their lines (tiles, lines, smem_line_bytes)."""
    plan = request.plan
    if plan.lattice is None:
        return _read_lines(plan, request.lines(which), extent)
    coords = request.coords[which]
    if len(coords) == 1:
        return _read_boxes(plan, coords, extent)
    # Read boxes that are wholly in bounds as grids. Read all other boxes line by line.
    whole = geometry.wholly_in_bounds(plan, coords)
    if whole.all():
        return _read_boxes(plan, coords, extent)
    rest = np.flatnonzero(~whole)
    clipped = _read_lines(plan, request.lines(which.start + rest), extent)
    if len(rest) == len(coords):
        return clipped
    lines = np.empty((len(coords), plan.lines, plan.smem_line_bytes), np.uint8)
    lines[whole] = _read_boxes(plan, coords[whole], extent)
    lines[rest] = clipped
    return lines


def _read_boxes(plan: TilePlan, coords: IntArray, extent: HostExtent) -> Bytes:
    """Read one box, or several boxes that are wholly in bounds, as grids of lines.

    The bounds of the first box are applied to all boxes. So a box that reaches out of bounds must
    be the only box.
    """
    cut = geometry.cut_box(plan, coords[0].tolist())
    if not cut.size_bytes:
        return _fill(plan, len(coords))
    begins = geometry.box_starts(plan, coords) + cut.start
    width = cut.last - cut.first
    extent.require(begins, cut.reach + width)
    view, index = _items(extent, begins, width, cut.shape, cut.strides, cut.reach)
    read = _converted(plan, _bytes_of(view[index]))
    if cut.size_bytes == plan.lines * plan.line_bytes:
        return read.reshape(len(coords), plan.lines, plan.smem_line_bytes)
    lines = _fill(plan, len(coords))
    boxes = lines.reshape(len(coords), *plan.line_shape, plan.smem_line_bytes)
    in_bounds = (slice(None), *cut.lines, _in_smem(plan, cut.first, read))
    boxes[in_bounds] = read
    return lines


def _read_lines(plan: TilePlan, lines: Lines, extent: HostExtent) -> Bytes:
    """Read tiles line by line; out-of-bounds bytes of the result have the fill value."""
    out = _fill(plan, len(lines.start))
    flat = out.reshape(-1, plan.smem_line_bytes)
    for window in read_windows(plan, lines, extent):
        begins, width = window.source + window.first, window.last - window.first
        view, index = _items(extent, begins, width)
        read = _converted(plan, _bytes_of(view[index]))
        flat[window.line, _in_smem(plan, window.first, read)] = read
    return out


def _in_smem(plan: TilePlan, first: int, read: Bytes) -> slice:
    """Return the part of a line in shared memory where the bytes `read` belong.

    `first` is the offset of these bytes in the line in global memory.
    """
    # Lines of packed types are longer in shared memory than in global memory, because they have
    # gaps there.
    begin = first * plan.smem_line_bytes // plan.line_bytes
    return slice(begin, begin + read.shape[-1])


def _fill(plan: TilePlan, tiles: int) -> Bytes:
    """Return the lines of tiles that are wholly out of bounds: all bytes have the fill value."""
    if plan.arguments.oob_fill == TmaOobFill.nan:
        return np.tile(NAN_WORD, (tiles, plan.lines, plan.smem_line_bytes // len(NAN_WORD)))
    return np.zeros((tiles, plan.lines, plan.smem_line_bytes), np.uint8)


def _converted(plan: TilePlan, lines: Bytes) -> Bytes:
    """Convert lines (..., n) of global memory to lines of shared memory; may change `lines`."""
    if plan.arguments.data_type in _TF32:
        _round_to_tf32(lines.reshape(-1).view("<u4"))
    return spread(plan, lines)


def _round_to_tf32(words: npt.NDArray[np.uint32]) -> None:
    """Round float32 words in place to 10 mantissa bits, to nearest even.

    A NaN becomes 0x7FFFE000 [measured].
    """
    # The last 13 of the 23 mantissa bits are dropped. To round to nearest even, first add 0x1000
    # (half of the last kept bit) if the last kept bit is 1, or 0xFFF if it is 0.
    nan = (words & 0x7FFFFFFF) > 0x7F800000
    words += 0xFFF + (words >> 13 & 1)
    words &= 0xFFFFE000
    words[nan] = 0x7FFFE000


def _items(
    extent: HostExtent,
    begins: IntArray,
    width: int,
    shape: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    reach: int = 0,
) -> tuple[Items, IntArray]:
    """View memory as items of `width` bytes; return the view, and an index for each of `begins`.

    `begins` are the offsets of the wanted items from the map's address, in bytes. If a shape is
    passed, the view has a lattice of items at each index. The last item of a lattice starts `reach`
    bytes after the first item.
    """
    # All addresses are equal modulo 16, so a view with a step of 16 bytes contains all items.
    phase = (extent.origin + int(begins[0])) % CHUNK_BYTES
    count = (extent.size_bytes - phase - reach - width) // CHUNK_BYTES + 1
    view: Items = np.ndarray(
        (count, *shape), f"V{width}", extent.raw, phase, (CHUNK_BYTES, *strides)
    )
    return view, (begins + extent.origin - phase) // CHUNK_BYTES


def _bytes_of(items: Items) -> Bytes:
    """View items (...) as bytes (..., width)."""
    return items.reshape(-1).view(np.uint8).reshape(*items.shape, items.itemsize)


# --- Stores and reductions ----------------------------------------------------------------------


def store_smem(request: CopyRequest, data: object, op: str, extent: HostExtent) -> None:
    """Store or reduce one tile into the memory of `extent`."""
    lines = lines_of_data(request, data, op)
    if op == "store":
        _store(request, lines, extent)
    else:
        _reduce(request, lines, extent, op)


def _store(request: CopyRequest, data: Bytes, extent: HostExtent) -> None:
    for window in written_windows(request, extent):
        begins, width = window.source + window.first, window.last - window.first
        view, index = _items(extent, begins, width)
        view[index] = _written(data, window).view(view.dtype)


def _reduce(request: CopyRequest, data: Bytes, extent: HostExtent, op: str) -> None:
    """Reduce 16-byte chunks into memory; apply chunks of the same address one after the other."""
    row = request.plan.row
    for window in written_windows(request, extent):
        chunks = window.source[:, None] + np.arange(window.first, window.last, CHUNK_BYTES)
        view, index = _items(extent, chunks.reshape(-1), CHUNK_BYTES)
        new = _written(data, window).view(view.dtype)
        for turn in _turns(index):
            at = index[turn]
            result = combine(row.data_type, op, view[at].view(row.numpy), new[turn].view(row.numpy))
            view[at] = result.view(view.dtype)


def _written(data: Bytes, window: Window) -> Bytes:
    """Return the bytes of `data` that a store writes in a window, line after line."""
    return data[0, window.line, window.first : window.last].reshape(-1)


def _turns(index: IntArray) -> Iterator[slice | IntArray]:
    """Split the positions in `index` into turns; the values at the positions of a turn differ.

    If a value occurs several times, its n-th position is in the n-th turn.
    """
    if (index[1:] > index[:-1]).all():
        yield slice(None)
        return
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    repeats = np.diff(np.r_[starts, len(ordered)])
    # The turn of a position is the number of earlier positions with the same value.
    turn = np.arange(len(ordered)) - np.repeat(starts, repeats)
    by_turn = order[np.argsort(turn, kind="stable")]
    yield from np.split(by_turn, np.cumsum(np.bincount(turn))[:-1])


# --- Copies of the simulator of kernels ---------------------------------------------------------

#: A function that returns the memory that contains an address, as (first address, bytes, name).
FindMemory = Callable[[int], tuple[int, Bytes, str] | None]
_ADDRESS_SPACE = 1 << 64
# The pattern of every swizzle repeats after this number of bytes of shared memory.
_PATTERN_BYTES = 1024
_TYPES = {
    "u32": _T.UINT32, "s32": _T.INT32, "u64": _T.UINT64, "s64": _T.INT64, "f16": _T.FLOAT16,
    "bf16": _T.BFLOAT16, "f32": _T.FLOAT32, "f64": _T.FLOAT64, "b32": _T.UINT32, "b64": _T.UINT64,
}  # fmt: skip


class RawCopy:
    """A copy of one tile for the simulator of kernels, checked when it is made.

    Parameters
    ----------
    mode : {"load", "store", "gather4", "scatter4", "add", "min", ...}
        Kind of copy. For a reduction, this is the name of its operation.
    coords : sequence of int
        Coordinates, innermost first. For gather4 and scatter4: the column, then four rows.
    offsets : sequence of int, optional
        Offsets of an im2col load, in the order W, H, D.

    Raises
    ------
    TmaPreconditionError
        If the copy would be an error on hardware. The violation's rule is a row of `REFUSALS`.

    Attributes
    ----------
    chunks : int array
        Numbers of the 16-byte chunks that a load writes. Chunk 0 is at address 0 of shared memory.
    first, raw, name
        First address, bytes and name of the global memory that the copy accesses. `raw` is None if
        the copy accesses no global memory.
    """

    tx_bytes: int
    smem_bytes: int
    chunks: Any
    first: int
    name: str

    def __init__(
        self, tensor_map: TensorMap, mode: str, coords: Sequence[int], smem_offset: int,
        find: FindMemory, offsets: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self.mode = mode
        self._request = _request(tensor_map, mode, coords, smem_offset, offsets)
        plan = self._request.plan
        self.tx_bytes, self.smem_bytes = plan.tx_bytes, plan.smem_bytes
        self.chunks = _chunks(plan, smem_offset % _PATTERN_BYTES) + smem_offset // CHUNK_BYTES
        self.first, self.name = 0, ""
        self.raw: Bytes | None = None
        self._extent = self._find(find)

    def _find(self, find: FindMemory) -> HostExtent | None:
        base, lines = self._request.tensor_map.global_address, self._request.lines()
        # Find the lines with bytes in bounds. A tile without such lines accesses no memory.
        touched = lines.inside & (lines.first < lines.last)[:, None]
        if not touched.any():
            return None
        starts = (lines.origins + lines.start[:, None])[touched] + int(lines.first.max())
        begin = (int(starts.min()) + base) % _ADDRESS_SPACE
        # The memory that contains the lowest accessed byte must contain all accessed bytes.
        # If a copy accesses a byte outside of this memory, `windows`, `load_smem` and `store_smem`
        # refuse the copy.
        found = find(begin) or find(base)
        if found is None:
            found = base, np.empty(0, np.uint8), "the memory of the kernel's arguments"
        self.first, self.raw, self.name = found
        half = _ADDRESS_SPACE // 2
        origin = (base - self.first + half) % _ADDRESS_SPACE - half
        return HostExtent(origin, len(self.raw), self.name, self.raw)

    def windows(self) -> list[tuple[IntArray, int]]:
        """Return the accessed ranges of `raw`, as pairs (starts, size in bytes of each range).

        Raises `TmaPreconditionError` for a copy that accesses bytes outside of `raw`.
        """
        extent, request = self._extent, self._request
        if extent is None:
            return []
        is_load = self.mode in ("load", "gather4")
        found = (
            read_windows(request.plan, request.lines(), extent)
            if is_load
            else written_windows(request, extent)
        )
        return [(w.source + extent.origin + w.first, w.last - w.first) for w in found]

    @property
    def is_whole(self) -> bool:
        """Whether every line of the tile is in bounds."""
        lines = self._request.lines()
        plan = self._request.plan
        is_wide = (lines.first == 0) & (lines.last == plan.line_bytes)
        return bool(lines.inside.all() and is_wide.all())

    def load(self) -> Bytes:
        """Return the bytes that a load writes to `chunks`, as an array (chunks, 16)."""
        offset = self._request.smem_offset
        extent = self._extent or HostExtent(0, 0, "", np.empty(0, np.uint8))
        smem = load_smem(self._request, extent)[0, offset:]
        loaded: Bytes = smem.reshape(-1, CHUNK_BYTES)[self.chunks - offset // CHUNK_BYTES]
        return loaded

    def store(self, smem: Bytes) -> None:
        """Store or reduce the tile into `raw`; `smem` has the tile's bytes of shared memory."""
        self._store(smem, self._extent)

    def stored(self, smem: Bytes) -> Bytes:
        """Return a copy of `raw` as it would be after the store; `raw` does not change."""
        if self._extent is None:
            return np.empty(0, np.uint8)
        extent = replace(self._extent, raw=self._extent.raw.copy())
        self._store(smem, extent)
        return extent.raw

    def _store(self, smem: Bytes, extent: HostExtent | None) -> None:
        if extent is not None:
            op = "store" if self.mode in ("store", "scatter4") else self.mode
            store_smem(self._request, smem.tobytes(), op, extent)


def _request(
    tensor_map: TensorMap, mode: str, coords: Sequence[int], smem_offset: int, offsets: Any
) -> CopyRequest:
    if mode == "gather4":
        return gather4_request(tensor_map, coords[0], coords[1:], smem_offset)
    if mode == "scatter4":
        return scatter4_request(tensor_map, coords[0], coords[1:], smem_offset)
    # `load_request` and `store_request` take coordinates and offsets row-major.
    row_major = tuple(coords[::-1])
    if mode == "load":
        given = None if offsets is None else tuple(offsets[::-1])
        return load_request(tensor_map, row_major, given, smem_offset, many=False)
    if mode != "store":
        reduction_of(tensor_map.data_type, mode)
    return store_request(tensor_map, row_major, smem_offset)


@lru_cache(maxsize=256)
def _chunks(plan: TilePlan, phase: int) -> IntArray:
    """Return the numbers of the 16-byte chunks that a load writes; chunk 0 is the tile's first.

    `phase` is the tile's address modulo the period of the swizzle.
    """
    # Lines without padding between them fill all chunks.
    if plan.smem_bytes == plan.lines * plan.smem_line_bytes:
        return np.arange(plan.smem_bytes // CHUNK_BYTES)
    coords = np.zeros((1, len(plan.arguments.global_dim)), np.int64)
    offset = phase // geometry.SMEM_ALIGNMENT * geometry.SMEM_ALIGNMENT
    map_of_plan: Any = None
    request = CopyRequest(map_of_plan, plan, coords, (), offset)
    written = Tile(request, np.zeros(offset + plan.smem_bytes, np.uint8)).written[offset:]
    found: IntArray = written.reshape(-1, CHUNK_BYTES).any(axis=1).nonzero()[0]
    return found


def reduce_bytes(type_name: str, op: str, old: Bytes, new: Bytes) -> Bytes:
    """Return ``op(old, new)`` for elements of a PTX type, as ``cp.reduce.async.bulk`` does."""
    data_type = _TYPES[type_name]
    numpy_type = DATA_TYPES[data_type].numpy
    result: npt.NDArray[Any] = combine(data_type, op, old.view(numpy_type), new.view(numpy_type))
    return np.ascontiguousarray(result).view(np.uint8)
