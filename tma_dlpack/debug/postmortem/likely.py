"""Finder of likely causes of a fault, for an instruction with unknown operands.

This module is used if no row of `causes.CAUSES` explains the fault. If the map of a copy is
unknown, the rows about maps are tested with each map among the kernel's parameters, as if the copy
had used this map. For an instruction on an mbarrier, all causes that it can have are reported.
Nothing proves these causes, so the report marks them with "likely".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from tma_dlpack.debug.core import counted, targets
from tma_dlpack.debug.postmortem.causes import (
    ILLEGAL,
    MAP_ALIGNMENT,
    MISALIGNED,
    NO_MEMORY,
    SMEM_ALIGNMENT,
    Use,
    causes_of,
)
from tma_dlpack.debug.postmortem.dump import Grid
from tma_dlpack.debug.postmortem.flow import Flow
from tma_dlpack.debug.postmortem.memory import Word, looks_like_one, maps_of, offset_of
from tma_dlpack.debug.postmortem.results import Cause, FoundMap, map_words

# opcode of STL, which stores at most 16 bytes to local memory
_STORE_LOCAL = 0x387
# maximum number of threads in a block, and maximum number of addresses that a message lists
_MOST_THREADS, _MOST_SHOWN = 1024, 3
_INITIALISE = (
    "initialise it in one thread before its first use, then fence.mbarrier_init and a barrier of "
    "the block; and keep other data out of its 8 bytes"
)
_GRID_CONSTANT = "declare the parameter `const __grid_constant__ CUtensorMap map`"
_MAP_UNKNOWN = "the map's address is no longer in the registers"
#: Identifiers of the rows of `CAUSES` that test the map of a copy. Only the causes of these rows
#: are reported for a map that the copy may have used.
_OF_A_MAP: Final = frozenset(
    (
        "MAP_KIND", "MAP_RANK", "COORDINATE_16B", "STORE_NEGATIVE", "IM2COL_START",
        "IM2COL_STORE_CORNERS", "REDUCTION_TYPE", "SMEM_RANGE", "TENSOR_ADDRESS",
    )
)  # fmt: skip


def likely_causes(use: Use, flow: Flow) -> tuple[Cause, ...]:
    """Return likely causes of a fault for which no cause was found, the most likely first."""
    op = use.op
    if op.is_arrival or op.is_wait or op.is_init:
        return tuple(_of_barrier(use))
    if op.has_map and use.map_address is None:
        return tuple(_of_unknown_map(use, flow))
    return ()


def _likely(rule: str, message: str, fix: str) -> Cause:
    return Cause(rule, message, fix, is_sure=False, is_likely=True)


# -- barriers -------------------------------------------------------------------------------------


def _of_barrier(use: Use) -> Iterator[Cause]:
    """Yield the possible causes of a trap at an mbarrier; the hardware reports no reason."""
    if use.exception != ILLEGAL:
        return
    if use.barrier is None:
        where, holds = "the barrier", f"its address is not known; {_barriers_in(use)}"
    else:
        where, holds = f"the barrier {use.barrier:#x}", _bytes_at(use, use.barrier)
    yield _likely(
        "BARRIER_INIT",
        f"{where} was never initialised, or its 8 bytes were overwritten: {holds}",
        _INITIALISE,
    )
    yield _likely(
        "BARRIER_ARRIVALS",
        f"{where} got more arrivals, or more bytes, than its phase takes, and went on since",
        "initialise it with the number of arrivals of a phase (arrive.expect_tx is one, too)",
    )


def _bytes_at(use: Use, barrier: int) -> str:
    """Describe the 8 bytes of a barrier."""
    shared, offset = use.warp.block.shared, offset_of(barrier)
    raw = bytes(shared[offset : offset + 8])
    if use.word is None or len(raw) < 8:
        return "the file does not have them"
    number = int.from_bytes(raw, "little")
    word = Word.decode(number)
    if looks_like_one(number, _MOST_THREADS):
        return (
            f"they hold {number:#018x} now, an mbarrier of count {word.count} with "
            f"{counted(word.arrivals, 'arrival')} and {word.bytes:,} bytes pending"
        )
    return f"they hold {number:#018x}, which cannot be an mbarrier"


def _barriers_in(use: Use) -> str:
    """Describe the places in the block's shared memory that look like an mbarrier."""
    words = np.frombuffer(use.warp.block.shared, "<u8", len(use.warp.block.shared) // 8)
    places = np.flatnonzero(looks_like_one(words, _MOST_THREADS))
    if not len(places):
        return "no 8 bytes of the block's shared memory look like an mbarrier"
    shown = ", ".join(hex(8 * place) for place in places[:_MOST_SHOWN].tolist())
    more = ", ..." if len(places) > _MOST_SHOWN else ""
    return f"{counted(len(places), 'place')} of shared memory look like an mbarrier ({shown}{more})"


# -- maps -----------------------------------------------------------------------------------------


def _of_unknown_map(use: Use, flow: Flow) -> Iterator[Cause]:
    """Yield the likely causes of a failed copy whose map is unknown."""
    # the causes come in this order: a misaligned map, zero bytes, each map among the parameters,
    # maps elsewhere
    grid = use.warp.block.grid
    dump = use.warp.dump
    maps = maps_of(dump, grid) if grid is not None else ()
    broken = 0
    if use.exception in MISALIGNED and not (use.shared_address or 0) % SMEM_ALIGNMENT:
        yield _likely(
            "MAP_ALIGNED",
            f"{_MAP_UNKNOWN}; the tile in shared memory is aligned, so the map itself may not be "
            f"at a multiple of {MAP_ALIGNMENT} bytes",
            "align it: alignas(64), in CUDA 13 alignas(128); CUtensorMap is, a byte array is not",
        )
    zeros = _zeros_in(grid, maps) if grid is not None else None
    if zeros is not None and use.exception == ILLEGAL:
        yield _likely(
            "MAP_OF_ZEROS",
            f"{_MAP_UNKNOWN}; the kernel's parameters have {targets.MAP_BYTES} zero bytes at "
            f"+{zeros:#x}, where a map may be that was never encoded",
            "look at the result of cuTensorMapEncode...; tma-dlpack explain reads its output",
        )
    # maps whose tensor is in no allocation of the dump come first, because they are most likely
    # wrong
    for found in sorted(
        maps, key=lambda one: dump.global_memory(one.global_address, 1) is not None
    ):
        tried = dataclasses.replace(use, map=found.map, found=found, map_space="parameter")
        wrong = [c for c in causes_of(tried) if c.rule in _OF_A_MAP and c.is_sure]
        broken += bool(wrong)
        for cause in wrong:
            by = f"if it used the map at parameter +{found.offset:#x} ({map_words(found.map)})"
            yield _likely(cause.rule, f"{by}, {cause.message}", cause.fix)
    if use.exception not in (ILLEGAL, *NO_MEMORY):
        return
    # a kernel that copies a map to its stack stores 128 bytes to local memory
    stores = int(np.count_nonzero((flow.function.code[:, 0] & np.uint64(0xFFF)) == _STORE_LOCAL))
    if 16 * stores >= targets.MAP_BYTES:
        yield _likely(
            "MAP_IN_LOCAL_MEMORY",
            f"{_MAP_UNKNOWN}; the kernel has {stores} stores to local memory, enough to copy a map "
            "of 128 bytes there, where TMA cannot read it",
            _GRID_CONSTANT,
        )
    if broken == 0:
        count = counted(len(maps), "map") if maps else "no map"
        yield _likely(
            "MAP_ADDRESS",
            f"{_MAP_UNKNOWN}; the kernel has {count} among its parameters, and no rule refuses "
            "this copy by one of them: the map may be in shared memory, in host memory, or in "
            "device memory that was freed or changed without a fence",
            "pass the map as a __grid_constant__ parameter; run again with --global, so that the "
            "dump holds the maps in global memory",
        )


def _zeros_in(grid: Grid, maps: Iterable[FoundMap]) -> int | None:
    """Return the offset in the parameters of 128 zero bytes outside of `maps`, or None."""
    rest = bytearray(grid.parameters)
    for found in maps:
        rest[found.offset : found.offset + targets.MAP_BYTES] = b"\1" * targets.MAP_BYTES
    # CUtensorMap is aligned to 128 bytes in CUDA 13 and later, and to 64 in earlier releases
    for alignment in (SMEM_ALIGNMENT, MAP_ALIGNMENT):
        first = -int(grid.row["parameters"]) % alignment
        for place in range(first, len(rest) - targets.MAP_BYTES + 1, alignment):
            if not any(rest[place : place + targets.MAP_BYTES]):
                return place
    return None
