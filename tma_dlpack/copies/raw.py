"""`RawCopy`: a copy as a kernel issues it, with coordinates innermost first and memory as bytes.

The simulator of kernels uses this module. It checks a copy at its issue and executes it later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.copies.memory import HostExtent, read_windows, written_windows
from tma_dlpack.copies.reductions import combine, reduction_of
from tma_dlpack.copies.request import (
    CopyRequest,
    gather4_request,
    load_request,
    scatter4_request,
    store_request,
)
from tma_dlpack.copies.simulator import load_smem, store_smem
from tma_dlpack.copies.tile import Bytes, Tile
from tma_dlpack.geometry import CHUNK_BYTES, IntArray, TilePlan
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tensor_map.map import TensorMap

#: Function from an address to the memory that contains it: (first address, bytes, name).
FindMemory = Callable[[int], tuple[int, Bytes, str] | None]
_ADDRESS_SPACE = 1 << 64
# Every swizzle repeats after this number of bytes.
_PATTERN_BYTES = 1024
_T = TensorMapDataType
_TYPES = {
    "u32": _T.UINT32, "s32": _T.INT32, "u64": _T.UINT64, "s64": _T.INT64, "f16": _T.FLOAT16,
    "bf16": _T.BFLOAT16, "f32": _T.FLOAT32, "f64": _T.FLOAT64, "b32": _T.UINT32, "b64": _T.UINT64,
}  # fmt: skip


class RawCopy:
    """One checked copy of a tile.

    Parameters
    ----------
    mode : {"load", "store", "gather4", "scatter4", "add", "min", ...}
        Kind of copy; a reduction has the name of its operation.
    coords : sequence of int
        Coordinates, innermost first. For gather4 and scatter4: the column, then four rows.
    offsets : sequence of int, optional
        Offsets of im2col loads, W first.

    Raises
    ------
    TmaPreconditionError
        If the hardware refuses the copy; the violation names the row of `REFUSALS`.

    Attributes
    ----------
    chunks : int array
        Numbers of the 16-byte chunks that a load writes, from the start of shared memory on.
    first, raw, name
        First address, bytes and name of the memory that the copy accesses. `raw` is None if the
        copy accesses no memory.
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
        # Lines with bytes in bounds; a tile that is out of bounds accesses no memory.
        touched = lines.inside & (lines.first < lines.last)[:, None]
        if not touched.any():
            return None
        starts = (lines.origins + lines.start[:, None])[touched] + int(lines.first.max())
        begin = (int(starts.min()) + base) % _ADDRESS_SPACE
        # The lowest byte decides the region; the check of the windows refuses a copy that leaves
        # it.
        found = find(begin) or find(base)
        if found is None:
            found = base, np.empty(0, np.uint8), "the memory of the kernel's arguments"
        self.first, self.raw, self.name = found
        half = _ADDRESS_SPACE // 2
        origin = (base - self.first + half) % _ADDRESS_SPACE - half
        return HostExtent(origin, len(self.raw), self.name, self.raw)

    def windows(self) -> list[tuple[IntArray, int]]:
        """Return the accesses as pairs of (first bytes in `raw`, number of bytes of each).

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
        """Return the bytes that a load writes, an array (chunks, 16)."""
        offset = self._request.smem_offset
        extent = self._extent or HostExtent(0, 0, "", np.empty(0, np.uint8))
        smem = load_smem(self._request, extent)[0, offset:]
        loaded: Bytes = smem.reshape(-1, CHUNK_BYTES)[self.chunks - offset // CHUNK_BYTES]
        return loaded

    def store(self, smem: Bytes) -> None:
        """Store or reduce a tile; `smem` has the bytes of shared memory from the tile on."""
        self._store(smem, self._extent)

    def stored(self, smem: Bytes) -> Bytes:
        """Return the bytes of `raw` after the store; `raw` itself does not change."""
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
    # The other modules take coordinates row-major.
    row_major = tuple(coords[::-1])
    if mode == "load":
        given = None if offsets is None else tuple(offsets[::-1])
        return load_request(tensor_map, row_major, given, smem_offset, many=False)
    if mode != "store":
        reduction_of(tensor_map.data_type, mode)
    return store_request(tensor_map, row_major, smem_offset)


@lru_cache(maxsize=256)
def _chunks(plan: TilePlan, phase: int) -> IntArray:
    """Return the chunks that a load fills, from the start of the tile on.

    `phase` is the tile's address modulo the period of the swizzle.
    """
    # Lines without gaps fill all chunks.
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
    """Return ``op(old, new)`` of a PTX type, as ``cp.reduce.async.bulk`` computes it."""
    data_type = _TYPES[type_name]
    # "s32" -> "i4", "b64" -> "u8"; a bfloat16 is passed as its bits.
    numpy_type = {_T.BFLOAT16: "u2", _T.FLOAT16: "f2", _T.FLOAT32: "f4", _T.FLOAT64: "f8"}.get(
        data_type, type_name.replace("s", "i").replace("b", "u")
    )
    if numpy_type[1:] in ("32", "64"):
        numpy_type = f"{numpy_type[0]}{int(numpy_type[1:]) // 8}"
    result: npt.NDArray[Any] = combine(data_type, op, old.view(numpy_type), new.view(numpy_type))
    return np.ascontiguousarray(result).view(np.uint8)
