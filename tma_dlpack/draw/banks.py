"""Bank conflicts: how many wavefronts shared memory takes to serve one access of a warp.

Shared memory has 32 banks of 4 bytes. Threads are served in phases of at most 128 bytes (8 threads
of 16 bytes each, as `ldmatrix` reads 8 rows). Words of one bank from different lines of 128 bytes
are served one after the other: their number is the phase's *degree*, 1 being free of conflicts.

Source: CUDA C++ Programming Guide, shared memory; documented, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.bank_panel import (
    SwizzleConflicts,
    Threads,
    bank_panel,
    degrees_said,
    ranked_panel,
)
from tma_dlpack.draw.bank_reads import (
    PATTERN_WORDS,
    PATTERNS,
    WARP,
    Access,
    Reads,
    addresses_of,
    reads_at,
    reads_of_function,
    thread_bytes,
    thread_count,
)
from tma_dlpack.draw.chunks import BANK_BYTES, BANKS, CHUNK_BYTES
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.scene import Scene
from tma_dlpack.draw.shown_copy import request_of
from tma_dlpack.draw.swizzles import with_other_swizzles
from tma_dlpack.geometry import IntArray, TilePlan
from tma_dlpack.tables.coerce import shown, text_of
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import refusal
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap

MAX_PHASES = 16  # kept to be stepped through


@dataclass(frozen=True, slots=True, repr=False)
class BankConflicts(Figure):
    """Conflict degrees of one access, swizzle against swizzle.

    Attributes
    ----------
    access : str
        The pattern in words.
    bytes_per_thread : int
    swizzles : tuple of SwizzleConflicts
        The map's own first, then the others that the rules accept of the same map.
    """

    title: str
    access: str
    bytes_per_thread: int
    swizzles: tuple[SwizzleConflicts, ...]

    @property
    def degree(self) -> int:
        """The worst degree with the map's own swizzle."""
        return self.swizzles[0].worst

    @property
    def best(self) -> SwizzleConflicts:
        """The swizzle with the fewest wavefronts; the map's own if it is among the best."""
        return min(self.swizzles, key=lambda s: s.wavefronts)

    def of(self, swizzle: TmaSwizzle) -> SwizzleConflicts:
        """Give the result of one swizzle; `KeyError` where the map cannot have it."""
        return {s.swizzle: s for s in self.swizzles}[swizzle]

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to a ranked strip, and one panel of banks per swizzle."""
        ranked = (ranked_panel(self.swizzles),) if len(self.swizzles) > 1 else ()
        return (*ranked, *(bank_panel(s) for s in self.swizzles))

    def text(self) -> str:
        """Give one line per swizzle."""
        rows = [
            f"  {s.swizzle.name:<26} worst {s.worst:>2}   {degrees_said(s.degrees)}"
            for s in self.swizzles
        ]
        return "\n".join([self.title, self.access, *rows])


@opaque
def bank_conflicts(
    tensor_map: TensorMap | Tile,
    access: str | Access | IntArray | Sequence[int] = "column",
    *,
    threads: int = WARP,
    bytes_per_thread: int | None = None,
    smem_offset: int = 0,
) -> BankConflicts:
    """Count the bank conflicts of reading a tile, with the map's swizzle and with the others.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        A tile brings its own offset in shared memory.
    access : {"column", "row"}, function, or integers
        ``"column"``: 8 rows at one 16-byte column per phase, as `ldmatrix` and the tensor cores
        read. ``"row"``: 8 neighbouring 16-byte chunks along the rows. Or a function that gives,
        for a thread number, the row-major index of an element in the logical tile (`Tile.array`),
        or None for an idle thread. Or the shared addresses themselves, one per thread and a
        multiple of 8 of them, such as `ldmatrix_addresses` gives: the first 8 x num of them count.
    threads : int
        For how many threads a function is called, 1..65536.
    bytes_per_thread : int, optional
        What each thread reads with a function or addresses: 1, 2, 4, 8 or 16. None for one element
        with a function, and for 16 bytes, as `ldmatrix` reads, with addresses.
    smem_offset : int
        Where the tile starts in shared memory, bytes; a multiple of 128.

    Returns
    -------
    BankConflicts
        `degree` is the worst with the map's own swizzle; `swizzles` has every phase.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is neither, for any other access, a function that raises or gives an index
        outside the tile, an address outside of it, a size that no instruction reads, or an access
        that does not fall on a multiple of its size.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> print(bank_conflicts(tma.make_tma_descriptor(x, (64, 64))))
    bank conflicts of a column: 8-way with none, free with bytes128
    8 rows at one 16-byte column per phase, as ldmatrix reads them
      none                       worst  8   64 phases of degree 8
      bytes128                   worst  1   64 phases of degree 1
    """
    request = request_of(tensor_map, None, None, smem_offset)
    plan, pattern = request.plan, text_of(access)
    if callable(access):
        count, size = thread_count(threads), thread_bytes(plan, bytes_per_thread)
        reads = reads_of_function(plan, access, count, size)
        name, words = "the access", f"a function of {count} threads, {size} bytes each"
    elif pattern in PATTERNS:
        size, reads = CHUNK_BYTES, PATTERNS[pattern](plan)
        name, words = f"a {pattern}", PATTERN_WORDS[pattern]
    elif (addresses := addresses_of(access)) is not None:
        size = CHUNK_BYTES if bytes_per_thread is None else thread_bytes(plan, bytes_per_thread)
        reads = reads_at(plan, addresses, size, request.smem_offset)
        name, words = "the access", f"{len(addresses)} threads, {size} bytes each, by address"
    else:
        must = "be 'column', 'row' or a function, or shared addresses, a multiple of 8 integers"
        fix = "pass access='column'"
        raise refusal("access", f"access is {shown(access)}", must, fix)
    others = with_other_swizzles(plan.arguments, request.tensor_map)
    results = tuple(
        _conflicts(of_one, reads, size, request.smem_offset)
        for of_one in (plan, *map(geometry.plan, others))
    )
    best = min(results, key=lambda s: s.wavefronts)
    against = f", {_said(best)}" if best.wavefronts < results[0].wavefronts else ""
    title = f"bank conflicts of {name}: {_said(results[0])}{against}"
    return BankConflicts(title, words, size, results)


def _said(s: SwizzleConflicts) -> str:
    return f"{'free' if s.worst < 2 else f'{s.worst}-way'} with {s.swizzle.name}"


# --- Counting ------------------------------------------------------------------


def _conflicts(plan: TilePlan, reads: Reads, size: int, smem_offset: int) -> SwizzleConflicts:
    """Count, per phase, the different words that meet in one bank; the most of any bank."""
    start = smem_offset + reads.lines * plan.pitch_bytes + reads.inner
    every: IntArray = start[..., None] + np.arange(0, size, BANK_BYTES)
    words: IntArray = np.asarray(geometry.swizzle_offset(plan.arguments.swizzle, every))
    words = np.where(reads.lines[..., None] < 0, -1, words // BANK_BYTES)

    sorted_words = np.sort(words.reshape(len(words), -1), axis=1)
    new = np.diff(sorted_words, axis=1, prepend=-1) != 0
    phase = np.nonzero(new)[0]
    counts = np.bincount(phase * BANKS + sorted_words[new] % BANKS, minlength=len(words) * BANKS)
    degrees = counts.reshape(-1, BANKS).max(axis=1)
    worst = int(degrees.argmax())
    first = tuple(map(_of_threads, words[:MAX_PHASES]))
    return SwizzleConflicts(
        plan.arguments.swizzle, tuple(degrees.tolist()), worst, _of_threads(words[worst]), first
    )


def _of_threads(words: IntArray) -> Threads:
    return tuple(tuple(sorted(w for w in thread if w >= 0)) for thread in words.tolist())
