"""Table of the causes of faults; a cause is a mistake in the operands of an instruction.

A row of `CAUSES` has a test for one mistake, and names the operands that this test needs. If the
dump lacks one of these operands, the row is skipped. A row also names the errors that its cause
produces. If the hardware reported one of these errors, the cause is called sure, and it is listed
before causes that are not sure.

Source: the errors of each cause were measured on an H100, driver 580.159.04, 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tma_dlpack.debug.core import REDUCTIONS, counted, tma
from tma_dlpack.debug.postmortem.dump import EXCEPTIONS, Warp
from tma_dlpack.debug.postmortem.memory import MOST, Word, offset_of
from tma_dlpack.debug.postmortem.results import BLOCK_SHIFT, Cause, FoundMap
from tma_dlpack.debug.postmortem.sass import STORES, Instruction

# numbers of exceptions (keys of `EXCEPTIONS`)
ILLEGAL, RANGE, MISALIGNED = 4, (5, 17), (6, 11)
NO_MEMORY = (1, 10, 14)
# in bytes: alignments of a tile, a map and a bulk copy, and size of an mbarrier (PTX ISA, sections
# on cp.async.bulk(.tensor) and mbarrier)
SMEM_ALIGNMENT, MAP_ALIGNMENT, BULK_ALIGNMENT, BARRIER_BYTES = 128, 64, 16, 8


@dataclass(slots=True)
class Use:
    """An instruction that failed, and its operands; an unknown operand is None."""

    warp: Warp
    op: Instruction
    exception: int
    shared_bytes: int
    cluster_blocks: int
    # operands of a copy; `shared_address` is the destination of a load, or the source of a store
    shared_address: int | None = None
    barrier: int | None = None
    coordinates: tuple[int, ...] | None = None  # innermost first
    global_address: int | None = None
    # operand of a multicast; bit n stands for the block of rank n in the cluster
    blocks_mask: int | None = None
    map_address: int | None = None
    # memory of the map: "parameter", "global", "shared" or "local"; "" if its address is unknown
    map_space: str = ""
    map_bytes: bytes | None = None
    map: tma.TensorMap | None = None
    found: FoundMap | None = None
    word: Word | None = None  # state of the barrier
    # operand of an arrival instruction, which is a number of arrivals or of bytes
    operand: int | None = None
    # the reason why `map_bytes` are not a map; "" if they are a map
    why_no_map: str = ""

    @property
    def is_store(self) -> bool:
        """Whether the instruction copies from shared memory to global memory."""
        return self.op.name.startswith(STORES)


class Row(NamedTuple):
    """A cause of faults, with its test, the errors that it produces, and its fix."""

    rule: str
    exceptions: tuple[int, ...]
    # attributes of `Use`, separated by spaces; if one of them is None, the row is skipped
    needs: str
    # test that receives the `Use`; returns a text about the mistake, or a false value without a
    # mistake
    found: Callable[[Any], object]
    fix: str


def _map_kind(use: Any) -> str:
    # the modes GATHER4 and SCATTER4 also use a tiled map
    is_tile = use.op.mode in ("", ".GATHER4", ".SCATTER4")
    if not use.op.has_map or (use.map.kind == "tiled") == is_tile:
        return ""
    asked, is_map = ("tiled", f"an {use.map.kind}") if is_tile else ("im2col", "a tiled")
    return f"{use.op.name} copies by {asked} maps, and this is {is_map} map"


def _inner(use: Any) -> str:
    # measured: without interleave, the hardware refuses an innermost offset that is not a multiple
    # of 16 bytes, even if the box is out of bounds
    first, m = use.coordinates[0], use.map
    inner_bytes = first * m.arguments.type_row.element_bits // 8
    if m.kind != "tiled" or m.interleave or inner_bytes % BULK_ALIGNMENT == 0:
        return ""
    must = f"it must be a multiple of {BULK_ALIGNMENT} bytes, out of bounds too"
    return f"the innermost coordinate is {first}, {inner_bytes} bytes; {must}"


def _im2col_start(use: Any) -> str:
    m = use.map
    if m.kind == "tiled" or m.interleave or use.op.mode != ".IM2COL" or use.op.rank != m.rank:
        return ""
    # The coordinates are C, W, H, D, N, innermost first. The spatial dimensions are all except the
    # first and the last. The corners have only the spatial dimensions.
    spatial = use.coordinates[1:-1], m.global_dim[1:-1]
    corners = m.pixel_box_lower_corner, m.pixel_box_upper_corner
    for place, size, low, high in zip(*spatial, *corners, strict=False):
        last = size - 1 + high
        if not low <= place <= last:
            return f"the walk starts at {place}, outside of the corners' range {low}..{last}"
    return ""


def _im2col_store(use: Any) -> str:
    lower, upper = use.map.pixel_box_lower_corner or (), use.map.pixel_box_upper_corner or ()
    if not use.is_store or (min(lower, default=0) >= 0 and max(upper, default=0) <= 0):
        return ""
    return f"a store by a map with corners {lower} and {upper}, outside of the tensor"


def _reduction(use: Any) -> str:
    has, asked = REDUCTIONS.get(use.map.data_type, ()), use.op.reduction.lower()
    if not asked or asked in has:
        return ""
    return f"no {asked} for {use.map.data_type.name}: the hardware has {', '.join(has) or 'none'}"


def _multicast(use: Any) -> str:
    # the mask has 16 bits; bit n stands for the block of rank n
    absent = [n for n in range(16) if use.blocks_mask >> n & 1 and n >= use.cluster_blocks]
    if not use.op.is_multicast or not absent:
        return ""
    cluster = f"the cluster has {use.cluster_blocks}, so block {absent[0]} is not there"
    return f"multicast to the blocks {use.blocks_mask:#b} (a bit each); {cluster}"


def _tile_aligned(use: Any) -> object:
    # a tensor copy needs an alignment of 128 bytes, and a bulk copy without a map needs 16 bytes
    must = SMEM_ALIGNMENT if use.op.has_map else BULK_ALIGNMENT
    rest, what = use.shared_address % must, "source" if use.is_store else "destination"
    return rest and f"the {what} {use.shared_address:#x} is {rest} bytes past a multiple of {must}"


def _tile_inside(use: Any) -> object:
    # if `shared_bytes` is 0, the dump lacks the size, so this cause is not reported
    start, size = offset_of(use.shared_address), use.map.smem_bytes
    return 0 < use.shared_bytes < start + size and (
        f"the tile takes shared memory {start:#x}..{start + size:#x} ({size:,} bytes); the "
        f"block has {use.shared_bytes:#x} ({use.shared_bytes:,} bytes)"
    )


def _barrier_inside(use: Any) -> object:
    offset = offset_of(use.barrier)
    # the upper bits of a shared::cluster address are the rank of its block, so they are less than
    # 64
    is_beyond = 0 < use.shared_bytes < offset + BARRIER_BYTES and use.barrier >> BLOCK_SHIFT < 64
    return (
        is_beyond and f"the barrier {offset:#x} is beyond the block's {use.shared_bytes:#x} bytes"
    )


def _barrier_late(use: Any) -> str:
    # In the dump, the barrier is in its initial state, in which this arrival cannot fail. But the
    # arrival failed, so it ran before the initialisation.
    word = use.word
    is_new = word.arrivals == word.count > 0 and not word.bytes and not word.phase
    if not use.op.is_arrival or not is_new or _arrivals(use) or _bytes(use):
        return ""
    late = "and this arrival failed: it came before the initialisation"
    return (
        f"the barrier {use.barrier:#x} is as initialised ({counted(word.count, 'arrival')}), {late}"
    )


def _arrivals(use: Any) -> str:
    # In the SASS modifier of an arrival, A is followed by the number of arrivals, and T by the
    # number of bytes. R stands for the value of the register operand, so ".ART0" means R arrivals
    # and no bytes. An instruction without a modifier is an arrive.expect_tx, with one arrival and R
    # bytes.
    count = {"": 1, ".A1T0": 1, ".ART0": use.operand}.get(use.op.arrival) or 0
    word = use.word
    if not use.op.is_arrival or not word.is_initialised or count <= word.arrivals:
        return ""
    return (
        f"{counted(count, 'arrival')} at the barrier {use.barrier:#x}, which waits for "
        f"{word.arrivals} more in this phase (it was initialised with {word.count})"
    )


def _bytes(use: Any) -> str:
    # only arrive.expect_tx ("") and expect_tx (".A0TR") announce bytes
    announced = use.operand + (use.word.bytes if use.word is not None else 0)
    if not use.op.is_arrival or use.op.arrival not in ("", ".A0TR") or announced <= MOST:
        return ""
    return f"{announced:,} bytes are announced; a barrier counts {MOST:,} at most"


def _no_memory(use: Any) -> object:
    # without global memory in the dump, it is unknown whether an address is in an allocation
    dump, first = use.warp.dump, use.map.global_address
    where = (
        "in no allocation of the dump"
        if dump.has_global_memory and dump.global_memory(first, 1) is None
        else "or at the coordinates reaches, where the GPU has no memory that it may use: an "
        "address of the host, memory that was freed, or dims and strides beyond the allocation"
    )
    return use.exception in NO_MEMORY and f"the tensor of the map is at {first:#x}, {where}"


_GRID_CONSTANT = (
    "declare the parameter `const __grid_constant__ CUtensorMap map`: without __grid_constant__ "
    "the kernel works with a copy of its own"
)
_READS = "TMA reads maps from parameters, constant and global memory alone"
#: All causes except `_LAST`. Reports list the sure causes first, and otherwise keep this order.
CAUSES: Final = (
    Row(
        "MAP_IN_LOCAL_MEMORY", (ILLEGAL, *NO_MEMORY), "map_address",
        lambda use: use.map_space == "local" and (
            f"the map is at {use.map_address:#x}, which is the thread's own local memory: {_READS}"
        ),
        _GRID_CONSTANT,
    ),
    Row(
        "MAP_IN_SHARED_MEMORY", (ILLEGAL, *NO_MEMORY), "map_address",
        lambda use: use.map_space == "shared"
        and f"the map is at {use.map_address:#x}, which is shared memory: {_READS}",
        "pass the map as a __grid_constant__ parameter, or copy it to global memory",
    ),
    Row(
        "MAP_ALIGNED", MISALIGNED, "map_address",
        lambda use: use.map_address % MAP_ALIGNMENT
        and f"the map is at {use.map_address:#x}, not at a multiple of {MAP_ALIGNMENT} bytes",
        "align it: alignas(64), in CUDA 13 alignas(128); CUtensorMap is, a byte array is not",
    ),
    Row(
        "MAP_OF_ZEROS", (ILLEGAL,), "map_bytes",
        lambda use: not any(use.map_bytes)
        and "the map's 128 bytes are zero: it was never encoded, or its encode failed",
        "look at the result of cuTensorMapEncode...; tma-dlpack explain reads its output",
    ),
    Row(
        "MAP_BYTES", (ILLEGAL,), "map_address",
        lambda use: use.why_no_map
        and f"the 128 bytes at {use.map_address:#x} are no tensor map: {use.why_no_map}",
        "pass the map itself, by value, not what points to it",
    ),
    Row(
        "MAP_KIND", (ILLEGAL,), "map", _map_kind,
        "encode the map as the instruction needs it, or use the other form of the instruction",
    ),
    Row(
        "MAP_RANK", (ILLEGAL,), "map",
        lambda use: use.op.mode not in (".GATHER4", ".SCATTER4") and use.op.rank != use.map.rank
        and f"{use.op.name} has {use.op.rank} coordinates, and the map's rank is {use.map.rank}",
        "use the instruction of the map's rank, or encode the map with the instruction's",
    ),
    Row(
        "COORDINATE_16B", (ILLEGAL,), "map coordinates", _inner,
        "step the innermost coordinate by whole 16 bytes, or move the map's address",
    ),
    Row(
        "STORE_NEGATIVE", (ILLEGAL,), "map coordinates",
        lambda use: use.is_store and use.map.kind == "tiled" and min(use.coordinates) < 0
        and f"a store at {use.coordinates}: no coordinate may be negative",
        "skip such tiles, or store what is inside by a map that begins there",
    ),
    Row(
        "IM2COL_START", (ILLEGAL,), "map coordinates", _im2col_start,
        "start within the corners; the offsets move the filter's tap, not the start",
    ),
    Row(
        "IM2COL_STORE_CORNERS", (ILLEGAL,), "map", _im2col_store,
        "store by a map with corners of 0",
    ),
    Row(
        "REDUCTION_TYPE", (ILLEGAL,), "map", _reduction,
        "reduce in another type, or with atomics",
    ),
    Row(
        "MULTICAST_BLOCK", (ILLEGAL, 18), "blocks_mask", _multicast,
        "launch with a cluster that has the blocks, or clear their bits",
    ),
    Row(
        "SMEM_ALIGNED", MISALIGNED, "shared_address", _tile_aligned,
        "align the tile: extern __shared__ __align__(1024), and stages by whole multiples",
    ),
    Row(
        "SMEM_RANGE", (*RANGE, *NO_MEMORY), "shared_address map", _tile_inside,
        "launch with as much dynamic shared memory as the tiles take "
        "(cudaFuncAttributeMaxDynamicSharedMemorySize above 48 KB), or place it lower",
    ),
    Row(
        "BARRIER_ALIGNED", MISALIGNED, "barrier",
        lambda use: use.barrier % BARRIER_BYTES
        and f"the barrier {use.barrier:#x} is not at a multiple of {BARRIER_BYTES} bytes",
        "declare it alignas(8) uint64_t",
    ),
    Row(
        "BARRIER_RANGE", RANGE, "barrier", _barrier_inside,
        "place it in the block's shared memory",
    ),
    Row(
        "BULK_ALIGNED", MISALIGNED, "global_address",
        lambda use: use.global_address % BULK_ALIGNMENT
        and f"the global address {use.global_address:#x} is not at a multiple of 16 bytes",
        "copy from and to whole 16 bytes",
    ),
    Row(
        "BARRIER_INIT", (ILLEGAL,), "word barrier",
        lambda use: use.op.is_arrival and not use.word.is_initialised
        and f"the barrier {use.barrier:#x} was never initialised: its count is 0",
        "initialise it in one thread before, then fence.mbarrier_init and a barrier of the block",
    ),
    Row(
        "BARRIER_INIT_LATE", (ILLEGAL,), "word barrier operand", _barrier_late,
        "let every thread wait at a barrier of the block, or of the cluster, after the "
        "initialisation and its fence.mbarrier_init",
    ),
    Row(
        "BARRIER_ARRIVALS", (ILLEGAL,), "word barrier", _arrivals,
        "initialise it with the number of arrivals of a phase (arrive.expect_tx is one, too); or a "
        "wait passed too early, by its parity or its stage, and a thread arrives a phase too soon",
    ),
    Row(
        "BARRIER_BYTES", (ILLEGAL,), "operand", _bytes,
        "announce in several phases, or in several barriers",
    ),
)  # fmt: skip
# this row is tested only if no other cause is sure, because its test also holds for other mistakes
_LAST: Final = Row(
    "TENSOR_ADDRESS", NO_MEMORY, "map", _no_memory,
    "encode with the address of device memory, and keep the tensor alive until the kernel ends",
)  # fmt: skip


def causes_of(use: Use) -> tuple[Cause, ...]:
    """Return all causes whose tests hold, the sure causes first."""
    found = [cause for row in CAUSES for cause in _cause(row, use)]
    if not any(cause.is_sure for cause in found):
        found += _cause(_LAST, use)
    return tuple(sorted(found, key=lambda cause: not cause.is_sure))


def _cause(row: Row, use: Use) -> list[Cause]:
    # a cause is sure if it produces the reported error, or if the number of this error is not in
    # `EXCEPTIONS`
    is_known = all(getattr(use, name) is not None for name in row.needs.split())
    text = is_known and row.found(use)
    is_sure = use.exception in row.exceptions or use.exception not in EXCEPTIONS
    return [Cause(row.rule, str(text), row.fix, is_sure)] if text else []
