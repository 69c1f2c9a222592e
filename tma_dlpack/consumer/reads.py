"""The bytes of a tile that a warp reads, and the number of wavefronts that this read needs.

Shared memory has 32 banks of 4 bytes. It serves the threads of a warp in phases of at most 128
bytes. For example, in a phase of `ldmatrix` 8 threads read 16 bytes each. Different words of the
same bank need different wavefronts, one after the other. The *degree* of a phase is the maximum
number of different words that the phase reads from one bank; a phase of degree 1 has no bank
conflict.

Source: CUDA C++ Programming Guide, shared memory; documented, not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.geometry import BANK_BYTES, BANKS, CHUNK_BYTES, LINE_BYTES, IntArray, TilePlan
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.coerce import integer_of, integers_of, shown, text_of
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import argument_error, bad_value
from tma_dlpack.tensor_map.map import TensorMap

# Number of threads of a warp; number of threads of a phase in which each thread reads 16 bytes.
WARP, PHASE = 32, 8
# Maximum number of addresses in the argument `access`, or of threads if `access` is a function.
MAX_READS = 1 << 16
# Maximum number of phases that a picture shows.
MAX_PHASES = 16

PATTERNS = {
    "column": "8 rows at one 16-byte column per phase, as ldmatrix reads them",
    "row": "8 neighbouring chunks of 16 bytes per phase",
}

#: A function from a thread's number to the row-major index of an element in the logical tile. The
#: index is None for an idle thread.
Access = Callable[[int], Sequence[int] | None]
#: Numbers of the 4-byte words that each thread of a phase reads.
Threads = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Reads:
    """An access to a tile: the bytes of the tile that each thread reads.

    Attributes
    ----------
    lines, inner : array (phases, threads)
        For each thread, the line of the tile that it reads, and the first byte that it reads in the
        line. The line of an idle thread is -1.
    size : int
        Number of bytes that a thread reads.
    threads : int
        Number of threads. The read with the number i belongs to the thread with the number i modulo
        `threads`.
    name, words : str
        Short and long description of the access.
    """

    lines: IntArray
    inner: IntArray
    size: int
    threads: int
    name: str
    words: str


def reads_of(plan: TilePlan, access: Any, threads: int, size: int | None, offset: int) -> Reads:
    """Return the reads of `access`.

    `access` is the name of a pattern, a function, or a list of shared-memory addresses.
    """
    if callable(access):
        return _by_function(plan, access, threads, size)
    pattern = text_of(access)
    if pattern in PATTERNS:
        places = _pattern(plan, pattern)
        return Reads(*places, CHUNK_BYTES, WARP, f"a {pattern}", PATTERNS[pattern])
    numbers = access if issubclass(type(access), np.ndarray) else integers_of(access)
    addresses = np.asarray(() if numbers is None else numbers)
    is_list = addresses.ndim == 1 and addresses.dtype.kind in "iu"
    if not is_list or len(addresses) % PHASE or not 0 < len(addresses) <= MAX_READS:
        must = "be 'column', 'row' or a function, or shared addresses, a multiple of 8 integers"
        raise bad_value("access", access, must, "pass access='column'")
    size = CHUNK_BYTES if size is None else _thread_bytes(plan, size)
    return _by_address(plan, addresses.astype(np.int64), size, offset)


def _pattern(plan: TilePlan, name: str) -> tuple[IntArray, IntArray]:
    """Return the line and the first byte of each 16-byte chunk, as two arrays (phases, threads).

    The order of the chunks is column by column for the pattern "column", and row by row for the
    pattern "row". Chunks that do not fill a phase are omitted.
    """
    rows: IntArray = np.arange(plan.lines, dtype=np.int64)
    columns: IntArray = np.arange(0, plan.smem_line_bytes, CHUNK_BYTES, dtype=np.int64)
    if name == "column":
        # Omit the rows that do not fill a phase, unless the tile has fewer than 8 rows.
        rows = rows[: len(rows) // PHASE * PHASE or len(rows)]
        inner, lines = np.meshgrid(columns, rows, indexing="ij")
        width = min(PHASE, len(rows))
    else:
        lines, inner = np.meshgrid(rows, columns, indexing="ij")
        width = min(PHASE, lines.size)
    whole = lines.size // width * width
    return lines.flat[:whole].reshape(-1, width), inner.flat[:whole].reshape(-1, width)


def _by_function(plan: TilePlan, access: Access, threads: object, size: object) -> Reads:
    """Call the function `access` for every thread, and return the reads."""
    count, size = integer_of(threads), _thread_bytes(plan, size)
    if count is None or not 1 <= count <= MAX_READS:
        raise bad_value("threads", threads, f"be 1..{MAX_READS}", f"pass threads={WARP}, a warp")
    reads = [_place(plan, access, thread, size) for thread in range(count)]
    places = _in_phases(np.array(reads, np.int64).T, size)
    words = f"a function of {count} threads, {size} bytes each"
    return Reads(*places, size, count, "the access", words)


def _by_address(plan: TilePlan, addresses: IntArray, size: int, offset: int) -> Reads:
    """Return the reads of threads that read at the swizzled shared-memory `addresses`."""
    # A swizzle is its own inverse, so applying it again returns the unswizzled address.
    plain = np.asarray(geometry.swizzle_offset(plan.arguments.swizzle, addresses)) - offset
    lines, inner = np.divmod(plain, plan.pitch_bytes)
    outside = (lines < 0) | (lines >= plan.lines) | (inner + size > plan.smem_line_bytes)
    wrong = np.flatnonzero(outside | (addresses % size != 0))
    if len(wrong):
        found = f"access[{wrong[0]}] is {int(addresses[wrong[0]]):#x}"
        end = offset + plan.smem_bytes - 1
        must = f"be a multiple of {size} within the tile, {offset:#x}..{end:#x}"
        fix = "pass ldmatrix_addresses(tensor_map, row, column, smem_address=smem_offset)"
        raise argument_error("access", found, must, fix)
    places = _in_phases(np.array([lines, inner]), size)
    words = f"{len(addresses)} threads, {size} bytes each, by address"
    return Reads(*places, size, len(addresses), "the access", words)


def _in_phases(places: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Split the reads of all threads into phases of at most 128 bytes.

    `places` has two rows: for each thread, the line of the tile and the byte in the line. The last
    phase is filled with idle threads.
    """
    width = min(WARP, LINE_BYTES // size)
    idle = -places.shape[1] % width
    lines = np.pad(places[0], (0, idle), constant_values=-1)
    return lines.reshape(-1, width), np.pad(places[1], (0, idle)).reshape(-1, width)


def _thread_bytes(plan: TilePlan, given: object) -> int:
    """Return the number of bytes that a thread reads; the default is the size of an element."""
    if given is None:
        return max(1, plan.arguments.type_row.element_bits // 8)
    size = integer_of(given)
    if size not in (1, 2, 4, 8, 16):
        must, fix = "be 1, 2, 4, 8 or 16, as loads read", "pass bytes_per_thread=16, or none"
        raise bad_value("bytes_per_thread", given, must, fix)
    return size


def _place(plan: TilePlan, access: Access, thread: int, size: int) -> tuple[int, int]:
    """Call `access` for one thread; return the element's place as (line, byte in the line)."""
    shape = plan.tile_shape
    place = element_of(access, thread, shape)
    if place is None:
        return -1, 0
    line = int(np.ravel_multi_index(place[:-1], shape[:-1])) if len(shape) > 1 else 0
    # Convert the index along the last axis to a byte. Packed types have several elements in a byte.
    inner = place[-1] * plan.smem_line_bytes // shape[-1]
    if inner % size:
        found = f"access({thread}) returns {place}, byte {inner} of its row"
        must = f"start at a multiple of {size}, the bytes of its read"
        raise argument_error(
            "access", found, must, "read other elements, or fewer bytes per thread"
        )
    return line, inner


def element_of(access: Access, thread: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Call `access` for one thread and return the index; refuse an index outside of the tile."""
    must = f"return an index into the tile, which has shape {shape}, or None for an idle thread"
    fix = "count elements of the tile row-major, from 0"
    try:
        index = access(thread)
    except Exception as error:
        raise argument_error(
            "access", f"access({thread}) raises {shown(error)}", must, fix
        ) from error
    if index is None:
        return None
    place = integers_of(index) or ()
    if len(place) != len(shape) or any(not 0 <= i < n for i, n in zip(place, shape, strict=True)):
        raise argument_error("access", f"access({thread}) returns {shown(index)}", must, fix)
    return place


# --- Counting -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SwizzleConflicts:
    """The bank conflicts of an access with one swizzle.

    Attributes
    ----------
    swizzle : TmaSwizzle
    degrees : tuple of int
        Number of wavefronts of each phase. A phase of 1 wavefront has no conflict.
    phase : int
        Number of the first phase with the highest degree. Pictures show this phase.
    words : tuple of tuple of int
        For each thread of the phase `phase`, the numbers of the 4-byte words that it reads; empty
        for an idle thread.
    first_phases : tuple of tuple of tuple of int
        For each of the first 16 phases, the numbers of the words that its threads read.
    """

    swizzle: TmaSwizzle
    degrees: tuple[int, ...]
    phase: int
    words: Threads
    first_phases: tuple[Threads, ...] = ()

    @property
    def worst(self) -> int:
        """The highest degree of all phases."""
        return max(self.degrees)

    @property
    def wavefronts(self) -> int:
        """Number of wavefronts of the whole access."""
        return sum(self.degrees)


def conflicts(plan: TilePlan, reads: Reads, smem_offset: int) -> SwizzleConflicts:
    """Return the bank conflicts of `reads` with the swizzle of `plan`."""
    # The shape of `words` is (phases, threads, words of a thread); -1 means an idle thread.
    start = smem_offset + reads.lines * plan.pitch_bytes + reads.inner
    every: IntArray = start[..., None] + np.arange(0, reads.size, BANK_BYTES)
    words: IntArray = np.asarray(geometry.swizzle_offset(plan.arguments.swizzle, every))
    words = np.where(reads.lines[..., None] < 0, -1, words // BANK_BYTES)

    # Several threads can read the same word in one wavefront (broadcast), so count each different
    # word of a phase once.
    sorted_words = np.sort(words.reshape(len(words), -1), axis=1)
    new = np.diff(sorted_words, axis=1, prepend=-1) != 0
    phase = np.nonzero(new)[0]
    counts = np.bincount(phase * BANKS + sorted_words[new] % BANKS, minlength=len(words) * BANKS)
    degrees = counts.reshape(-1, BANKS).max(axis=1)
    worst = int(degrees.argmax())
    return SwizzleConflicts(
        plan.arguments.swizzle,
        tuple(degrees.tolist()),
        worst,
        _of_threads(words[worst]),
        tuple(map(_of_threads, words[:MAX_PHASES])),
    )


def _of_threads(words: IntArray) -> Threads:
    return tuple(tuple(sorted(w for w in thread if w >= 0)) for thread in words.tolist())


def with_other_swizzles(own: EncodeArguments, tensor_map: TensorMap) -> list[EncodeArguments]:
    """Return a copy of `own` for each other swizzle that the rules accept for the map's target.

    `own` has the map's arguments, or, for gather4, the arguments of a box of four rows.

    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 32), np.float16), (64, 32))
    >>> [a.swizzle.name for a in with_other_swizzles(tm.arguments, tm)]
    ['bytes64', 'bytes128']
    """
    # These imports are here, because few pictures need them and they load many modules.
    from tma_dlpack.checks.report import find_violations
    from tma_dlpack.checks.request import driver_call

    request = driver_call(own, tensor_map.global_address, tensor_map.target)
    others = (request.changed({"swizzle": s}) for s in TmaSwizzle if s is not own.swizzle)
    return [other.arguments for other in others if not find_violations(other)]
