"""Causes of faults, as rows: what is wrong with an instruction's operands, and what to change.

What a row of `CAUSES` asks for and the file does not hold is None, and the row is then not asked:
nothing is guessed. A row whose error the hardware reported comes first.

Source of what ends in which error: measured on an H100, driver 580.159.04, 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tma_dlpack.copies.reductions import REDUCTIONS
from tma_dlpack.debug.postmortem.dump import EXCEPTIONS, Warp
from tma_dlpack.debug.postmortem.memory import MOST, Word, offset_of
from tma_dlpack.debug.postmortem.results import BLOCK_SHIFT, Cause, FoundMap
from tma_dlpack.debug.postmortem.sass import Instruction
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tensor_map.map import TensorMap

ILLEGAL, RANGE, MISALIGNED = 4, (5, 17), (6, 11)
NO_MEMORY = (1, 10, 14)
SMEM_ALIGNMENT, MAP_ALIGNMENT, BULK_ALIGNMENT, BARRIER_BYTES = 128, 64, 16, 8


@dataclass(slots=True)
class Use:
    """An instruction that was wrong, and what it worked with; None for what cannot be told."""

    warp: Warp
    op: Instruction
    exception: int
    shared_bytes: int
    cluster_blocks: int
    shared_address: int | None = None  # destination or source
    barrier: int | None = None
    coordinates: tuple[int, ...] | None = None
    global_address: int | None = None
    blocks_mask: int | None = None
    map_address: int | None = None
    map_space: str = ""
    map_bytes: bytes | None = None
    map: TensorMap | None = None
    found: FoundMap | None = None
    word: Word | None = None  # of the barrier
    operand: int | None = None  # of an arrival
    why_no_map: str = ""

    @property
    def is_store(self) -> bool:
        """Whether it copies from shared memory."""
        return self.op.coding is not None and self.op.coding.first[0] in ("source",)

    @property
    def inner_bytes(self) -> int | None:
        """The innermost coordinate in bytes, where it has to be a multiple of 16."""
        if self.map is None or not self.coordinates or self.map.interleave:
            return None
        bits = self.coordinates[0] * self.map.arguments.type_row.element_bits
        return bits // 8 if self.map.kind == "tiled" else None


class Row(NamedTuple):
    """A cause: the errors in which it ends, and its words where it holds."""

    rule: str
    exceptions: tuple[int, ...]
    found: Callable[[Use], str]  # "" where it does not hold
    fix: str


def _map_in(space: str) -> Callable[[Use], str]:
    def found(use: Use) -> str:
        if use.map_space != space or use.map_address is None:
            return ""
        return (
            f"the map is at {use.map_address:#x}, which is the thread's own {space} memory: TMA "
            "reads maps from parameters, constant and global memory alone"
            if space == "local"
            else f"the map is at {use.map_address:#x}, which is shared memory: TMA reads maps from "
            "parameters, constant and global memory alone"
        )

    return found


def _map_kind(use: Use) -> str:
    if use.map is None or not use.op.has_map:
        return ""
    wanted = "tiled" if use.op.mode in ("", ".GATHER4", ".SCATTER4") else "im2col"
    if (use.map.kind == "tiled") == (wanted == "tiled"):
        return ""
    article = "an" if use.map.kind[0] == "i" else "a"
    return f"{use.op.name} copies by {wanted} maps, and this is {article} {use.map.kind} map"


def _map_rank(use: Use) -> str:
    if use.map is None or use.op.mode in (".GATHER4", ".SCATTER4") or use.op.rank == use.map.rank:
        return ""
    return f"{use.op.name} has {use.op.rank} coordinates, and the map's rank is {use.map.rank}"


def _inner(use: Use) -> str:
    if use.inner_bytes is None or use.inner_bytes % BULK_ALIGNMENT == 0:
        return ""
    assert use.coordinates is not None
    return (
        f"the innermost coordinate is {use.coordinates[0]}, {use.inner_bytes} bytes; it must be a "
        f"multiple of {BULK_ALIGNMENT} bytes, out of bounds too"
    )


def _negative_store(use: Use) -> str:
    if use.op.coding is None or not use.is_store or use.map is None or use.map.kind != "tiled":
        return ""
    negative = any(place < 0 for place in use.coordinates or ())
    return f"a store at {use.coordinates}: no coordinate may be negative" if negative else ""


def _im2col_start(use: Use) -> str:
    m = use.map
    if m is None or m.kind == "tiled" or m.interleave or use.op.mode != ".IM2COL":
        return ""
    if use.coordinates is None or use.op.rank != m.rank:
        return ""
    lower, upper = m.pixel_box_lower_corner, m.pixel_box_upper_corner
    for place, size, low, high in zip(
        use.coordinates[1:-1], m.global_dim[1:-1], lower, upper, strict=False
    ):
        if not low <= place <= size - 1 + high:
            inside = f"{low}..{size - 1 + high}"
            return f"the walk starts at {place}, outside of the corners' range {inside}"
    return ""


def _im2col_store(use: Use) -> str:
    m = use.map
    if m is None or m.kind == "tiled" or not use.is_store:
        return ""
    lower, upper = m.pixel_box_lower_corner or (), m.pixel_box_upper_corner or ()
    if all(n >= 0 for n in lower) and all(n <= 0 for n in upper):
        return ""
    return f"a store by a map with corners {lower} and {upper}, outside of the tensor"


def _reduction(use: Use) -> str:
    if not use.op.reduction or use.map is None:
        return ""
    has = REDUCTIONS.get(use.map.data_type, ())
    if use.op.reduction.lower() in has:
        return ""
    words = ", ".join(has) or "none"
    return f"no {use.op.reduction.lower()} for {use.map.data_type.name}: the hardware has {words}"


def _multicast(use: Use) -> str:
    if use.blocks_mask is None or not use.op.is_multicast:
        return ""
    absent = [n for n in range(16) if use.blocks_mask >> n & 1 and n >= use.cluster_blocks]
    if not absent:
        return ""
    return (
        f"multicast to the blocks {use.blocks_mask:#b} (a bit each); the cluster has "
        f"{use.cluster_blocks}, so block {absent[0]} is not there"
    )


def _tile_aligned(use: Use) -> str:
    if use.shared_address is None:
        return ""
    must = SMEM_ALIGNMENT if use.op.has_map else BULK_ALIGNMENT
    rest = use.shared_address % must
    what = "source" if use.is_store else "destination"
    if not rest:
        return ""
    return f"the {what} {use.shared_address:#x} is {rest} bytes past a multiple of {must}"


def _tile_inside(use: Use) -> str:
    if use.shared_address is None or use.map is None or not use.shared_bytes:
        return ""
    start = offset_of(use.shared_address)
    end = start + use.map.smem_bytes
    if end <= use.shared_bytes:
        return ""
    return (
        f"the tile takes shared memory {start:#x}..{end:#x} ({use.map.smem_bytes:,} bytes); the "
        f"block has {use.shared_bytes:#x} ({use.shared_bytes:,} bytes)"
    )


def _barrier_aligned(use: Use) -> str:
    if use.barrier is None or use.barrier % BARRIER_BYTES == 0:
        return ""
    return f"the barrier {use.barrier:#x} is not at a multiple of {BARRIER_BYTES} bytes"


def _barrier_inside(use: Use) -> str:
    if use.barrier is None or not use.shared_bytes or use.barrier >> BLOCK_SHIFT >= 64:
        return ""
    offset = offset_of(use.barrier)
    if offset + BARRIER_BYTES <= use.shared_bytes:
        return ""
    return f"the barrier {offset:#x} is beyond the block's {use.shared_bytes:#x} bytes"


def _barrier_fresh(use: Use) -> str:
    if use.word is None or not use.op.is_arrival or use.word.is_initialised:
        return ""
    return f"the barrier {use.barrier:#x} was never initialised: its count is 0"


def _barrier_late(use: Use) -> str:
    word = use.word
    if word is None or not use.op.is_arrival or not word.is_initialised:
        return ""
    is_new = word.arrivals == word.count and not word.bytes and not word.phase
    if not is_new or use.operand is None or _arrivals(use) or _bytes(use):
        return ""
    return (
        f"the barrier {use.barrier:#x} is as initialised ({counted(word.count, 'arrival')}), and "
        "this arrival failed: it came before the initialisation"
    )


def _arrivals(use: Use) -> str:
    if use.word is None or not use.op.is_arrival or not use.word.is_initialised:
        return ""
    count = {"": 1, ".A1T0": 1, ".ART0": use.operand}.get(use.op.arrival)
    if count is None or count <= use.word.arrivals:
        return ""
    return (
        f"{counted(count, 'arrival')} at the barrier {use.barrier:#x}, which waits for "
        f"{use.word.arrivals} more in this phase (it was initialised with {use.word.count})"
    )


def _bytes(use: Use) -> str:
    if use.operand is None or use.op.arrival not in ("", ".A0TR") or not use.op.is_arrival:
        return ""
    announced = use.operand + (use.word.bytes if use.word is not None else 0)
    if announced <= MOST:
        return ""
    return f"{announced:,} bytes are announced; a barrier counts {MOST:,} at most"


def _no_memory(use: Use) -> str:
    if use.map is None or use.exception not in NO_MEMORY:
        return ""
    first = use.map.global_address
    where = f"the tensor of the map is at {first:#x}, "
    dump = use.warp.dump
    if dump.has_global_memory and dump.global_memory(first, 1) is None:
        return where + "in no allocation of the dump"
    return (
        where + "or at the coordinates reaches, where the GPU has no memory that it may use: an "
        "address of the host, memory that was freed, or dims and strides beyond the allocation"
    )


_GRID_CONSTANT = (
    "declare the parameter `const __grid_constant__ CUtensorMap map`: without __grid_constant__ "
    "the kernel works with a copy of its own"
)
#: Every cause; the order is that of the text among those that are equally sure.
CAUSES: Final = (
    Row("MAP_IN_LOCAL_MEMORY", (ILLEGAL, *NO_MEMORY), _map_in("local"), _GRID_CONSTANT),
    Row(
        "MAP_IN_SHARED_MEMORY", (ILLEGAL, *NO_MEMORY), _map_in("shared"),
        "pass the map as a __grid_constant__ parameter, or copy it to global memory",
    ),
    Row(
        "MAP_ALIGNED", MISALIGNED,
        lambda use: ""
        if use.map_address is None or use.map_address % MAP_ALIGNMENT == 0
        else f"the map is at {use.map_address:#x}, not at a multiple of {MAP_ALIGNMENT} bytes",
        "align it: alignas(64), in CUDA 13 alignas(128); CUtensorMap is, a byte array is not",
    ),
    Row(
        "MAP_OF_ZEROS", (ILLEGAL,),
        lambda use: ""
        if use.map_bytes is None or any(use.map_bytes)
        else "the map's 128 bytes are zero: it was never encoded, or its encode failed",
        "look at the result of cuTensorMapEncode...; python -m tma_dlpack explain reads its output",
    ),
    Row(
        "MAP_BYTES", (ILLEGAL,),
        lambda use: f"the 128 bytes at {use.map_address:#x} are no tensor map: {use.why_no_map}"
        if use.why_no_map else "",
        "pass the map itself, by value, not what points to it",
    ),
    Row(
        "MAP_KIND", (ILLEGAL,), _map_kind,
        "encode the map as the instruction needs it, or use the other form of the instruction",
    ),
    Row(
        "MAP_RANK", (ILLEGAL,), _map_rank,
        "use the instruction of the map's rank, or encode the map with the instruction's",
    ),
    Row(
        "COORDINATE_16B", (ILLEGAL,), _inner,
        "step the innermost coordinate by whole 16 bytes, or move the map's address",
    ),
    Row(
        "STORE_NEGATIVE", (ILLEGAL,), _negative_store,
        "skip such tiles, or store what is inside by a map that begins there",
    ),
    Row(
        "IM2COL_START", (ILLEGAL,), _im2col_start,
        "start within the corners; the offsets move the filter's tap, not the start",
    ),
    Row("IM2COL_STORE_CORNERS", (ILLEGAL,), _im2col_store, "store by a map with corners of 0"),
    Row("REDUCTION_TYPE", (ILLEGAL,), _reduction, "reduce in another type, or with atomics"),
    Row(
        "MULTICAST_BLOCK", (ILLEGAL, 18), _multicast,
        "launch with a cluster that has the blocks, or clear their bits",
    ),
    Row(
        "SMEM_ALIGNED", MISALIGNED, _tile_aligned,
        "align the tile: extern __shared__ __align__(1024), and stages by whole multiples",
    ),
    Row(
        "SMEM_RANGE", (*RANGE, *NO_MEMORY), _tile_inside,
        "launch with as much dynamic shared memory as the tiles take "
        "(cudaFuncAttributeMaxDynamicSharedMemorySize above 48 KB), or place it lower",
    ),
    Row("BARRIER_ALIGNED", MISALIGNED, _barrier_aligned, "declare it alignas(8) uint64_t"),
    Row("BARRIER_RANGE", RANGE, _barrier_inside, "place it in the block's shared memory"),
    Row(
        "BULK_ALIGNED", MISALIGNED,
        lambda use: ""
        if not (use.global_address or 0) % BULK_ALIGNMENT
        else f"the global address {use.global_address:#x} is not at a multiple of 16 bytes",
        "copy from and to whole 16 bytes",
    ),
    Row(
        "BARRIER_INIT", (ILLEGAL,), _barrier_fresh,
        "initialise it in one thread before, then fence.mbarrier_init and a barrier of the block",
    ),
    Row(
        "BARRIER_INIT_LATE", (ILLEGAL,), _barrier_late,
        "let every thread wait at a barrier of the block, or of the cluster, after the "
        "initialisation and its fence.mbarrier_init",
    ),
    Row(
        "BARRIER_ARRIVALS", (ILLEGAL,), _arrivals,
        "initialise it with the number of arrivals of a phase (arrive.expect_tx is one, too); or a "
        "wait passed too early, by its parity or its stage, and a thread arrives a phase too soon",
    ),
    Row("BARRIER_BYTES", (ILLEGAL,), _bytes, "announce in several phases, or in several barriers"),
)  # fmt: skip
_LAST: Final = Row(
    "TENSOR_ADDRESS", NO_MEMORY, _no_memory,
    "encode with the address of device memory, and keep the tensor alive until the kernel ends",
)  # fmt: skip


def causes_of(use: Use) -> tuple[Cause, ...]:
    """Return every cause that holds, the surest first."""
    held = [(row, row.found(use)) for row in CAUSES]
    found = [
        Cause(row.rule, text, row.fix, _ends_in(row, use.exception)) for row, text in held if text
    ]
    if not any(cause.is_sure for cause in found):
        text = _LAST.found(use)
        found += [Cause(_LAST.rule, text, _LAST.fix, True)] if text else []
    return tuple(sorted(found, key=lambda cause: not cause.is_sure))


def _ends_in(row: Row, exception: int) -> bool:
    return exception in row.exceptions or exception not in EXCEPTIONS
