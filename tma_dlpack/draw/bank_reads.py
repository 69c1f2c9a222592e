"""What a warp reads of a tile: patterns, a function per thread, or shared addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.draw.chunks import CHUNK_BYTES, LINE_BYTES
from tma_dlpack.geometry import IntArray, TilePlan
from tma_dlpack.tables.coerce import integer_of, integers_of, shown
from tma_dlpack.tables.errors import refusal

WARP, PHASE = 32, 8  # threads; of 16 bytes, those served at once
MAX_READS = 1 << 16  # 16-byte reads of a pattern, or threads of a function, that are looked at

#: thread number -> row-major index of the element in the logical tile; None for an idle thread.
Access = Callable[[int], Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class Reads:
    """Line of the tile and byte of the line, per (phase, thread); line -1 of an idle thread."""

    lines: IntArray
    inner: IntArray


def _column(plan: TilePlan) -> Reads:
    rows: IntArray = np.arange(min(plan.lines, MAX_READS), dtype=np.int64)
    rows = (
        rows[: len(rows) // PHASE * PHASE].reshape(-1, PHASE) if len(rows) > PHASE else rows[None]
    )
    columns: IntArray = np.arange(0, plan.smem_line_bytes, CHUNK_BYTES, dtype=np.int64)
    columns = columns[: max(1, MAX_READS // rows.size)]
    every = (len(columns), *rows.shape)
    lines, inner = np.broadcast_to(rows, every), np.broadcast_to(columns[:, None, None], every)
    return Reads(lines.reshape(-1, rows.shape[1]), inner.reshape(-1, rows.shape[1]))


def _row(plan: TilePlan) -> Reads:
    columns: IntArray = np.arange(0, plan.smem_line_bytes, CHUNK_BYTES, dtype=np.int64)
    rows: IntArray = np.arange(min(plan.lines, MAX_READS // len(columns)), dtype=np.int64)
    lines, inner = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
    whole = len(lines) // PHASE * PHASE or len(lines)
    width = min(PHASE, whole)
    return Reads(lines[:whole].reshape(-1, width), inner[:whole].reshape(-1, width))


PATTERNS = {"column": _column, "row": _row}
PATTERN_WORDS = {
    "column": "8 rows at one 16-byte column per phase, as ldmatrix reads them",
    "row": "8 neighbouring chunks of 16 bytes per phase",
}


def reads_of_function(plan: TilePlan, access: Access, threads: int, size: int) -> Reads:
    """Call a function for every thread."""
    reads = [_place(plan, access, thread, size) for thread in range(threads)]
    per_phase = min(WARP, LINE_BYTES // size)
    reads += [(-1, 0)] * (-len(reads) % per_phase)
    lines, inner = np.array(reads, np.int64).T
    return Reads(lines.reshape(-1, per_phase), inner.reshape(-1, per_phase))


def addresses_of(access: object) -> IntArray | None:
    """Give shared addresses of whole phases; None for anything else."""
    numbers = access if issubclass(type(access), np.ndarray) else integers_of(access)
    if numbers is None:
        return None
    addresses = np.asarray(numbers)
    if addresses.ndim != 1 or addresses.dtype.kind not in "iu":
        return None
    whole = 0 < len(addresses) <= MAX_READS and len(addresses) % PHASE == 0
    return addresses.astype(np.int64) if whole else None


def reads_at(plan: TilePlan, addresses: IntArray, size: int, smem_offset: int) -> Reads:
    """Find which bytes of the tile lie at shared addresses, under the map's own swizzle."""
    plain = np.asarray(geometry.swizzle_offset(plan.arguments.swizzle, addresses)) - smem_offset
    lines, inner = np.divmod(plain, plan.pitch_bytes)
    outside = (lines < 0) | (lines >= plan.lines) | (inner + size > plan.smem_line_bytes)
    wrong = np.flatnonzero(outside | (addresses % size != 0))
    if len(wrong):
        thread = int(wrong[0])
        found = f"access[{thread}] is {int(addresses[thread]):#x}"
        end = smem_offset + plan.smem_bytes
        must = f"be a multiple of {size} where the tile lies, {smem_offset:#x}..{end - 1:#x}"
        fix = "pass ldmatrix_addresses(tensor_map, row, column, smem_address=smem_offset)"
        raise refusal("access", found, must, fix)
    per_phase = min(WARP, LINE_BYTES // size)
    idle = -len(addresses) % per_phase
    lines = np.pad(lines, (0, idle), constant_values=-1).reshape(-1, per_phase)
    return Reads(lines, np.pad(inner, (0, idle)).reshape(-1, per_phase))


def thread_count(given: object) -> int:
    """Give the number of threads that a function is called for."""
    count = integer_of(given)
    if count is None or not 1 <= count <= MAX_READS:
        found = f"threads is {shown(given)}"
        raise refusal("threads", found, f"be 1..{MAX_READS}", f"pass threads={WARP}, a warp")
    return count


def thread_bytes(plan: TilePlan, given: object) -> int:
    """Give the bytes that a thread reads: one element by default."""
    if given is None:
        return max(1, plan.arguments.type_row.element_bits // 8)
    size = integer_of(given)
    if size not in (1, 2, 4, 8, 16):
        found, must = f"bytes_per_thread is {shown(given)}", "be 1, 2, 4, 8 or 16, as loads read"
        raise refusal("bytes_per_thread", found, must, "pass bytes_per_thread=16, or none")
    return size


def _place(plan: TilePlan, access: Access, thread: int, size: int) -> tuple[int, int]:
    """Call a function for one thread; give the line of its element and the byte in it."""
    shape = plan.tile_shape
    must = f"give an index into the tile, which has shape {shape}, or None for an idle thread"
    fix = "count elements of the tile row-major, from 0"
    try:
        index = access(thread)
    except Exception as error:
        raise refusal("access", f"access({thread}) raises {shown(error)}", must, fix) from error
    if index is None:
        return -1, 0
    place = integers_of(index)
    if (
        place is None
        or len(place) != len(shape)
        or any(not 0 <= i < n for i, n in zip(place, shape, strict=True))
    ):
        raise refusal("access", f"access({thread}) gives {shown(index)}", must, fix)
    line = 0
    for i, n in zip(place[:-1], shape[:-1], strict=True):
        line = line * n + i
    inner = place[-1] * plan.smem_line_bytes // shape[-1]
    if inner % size:
        found = f"access({thread}) gives {place}, byte {inner} of its row"
        must = f"start at a multiple of {size}, the bytes of its read"
        raise refusal("access", found, must, "read other elements, or fewer bytes per thread")
    return line, inner
