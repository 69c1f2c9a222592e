"""Simulation of the PTX instructions that copy asynchronously or change tensor maps.

A bulk copy moves a tile that a tensor map describes, or a contiguous range of bytes. A load writes
pieces of 16 bytes, and the mbarrier counts the bytes of each piece. The simulator writes all pieces
at once, unless a phase of the mbarrier ends between two pieces. A bulk store has two events: first
it reads shared memory, later it writes global memory. `tma_dlpack.copies.simulator` copies the
tiles, and refuses the copies that the hardware refuses.

Source: PTX ISA 9.0, 9.7.9.25 and 9.7.9.27. Measurements show which copies end a kernel with an
error (H200, driver 580.159.04, 2026-11-22).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel.core import RawCopy, reduce_bytes, replace_field, rows, tma
from tma_dlpack.kernel.mbarrier import (
    OFFSET_MASK,
    RANK_SHIFT,
    Barrier,
    barrier_at,
    check_async_use,
    check_bytes,
    each,
    of_lane,
    place_of,
    report_exit,
)
from tma_dlpack.kernel.memory import LOCAL_WINDOW, SHARED_WINDOW
from tma_dlpack.kernel.operations import Operation, operation
from tma_dlpack.kernel.order import MAP_BYTES, BoolArray, Clocks, IntArray
from tma_dlpack.kernel.pending import Pending
from tma_dlpack.ptx.parse import Instruction

Bytes = npt.NDArray[np.uint8]
# CHUNK is the size in bytes of a piece of a bulk copy. _WARP is the number of threads of a warp.
CHUNK, _WARP = 16, 32
# Alignment in bytes that the hardware requires of a map's address.
_MAP_ALIGNMENT = 64

#: Rule by which `tma_dlpack.copies` refuses a copy -> (rule of the finding, text of the fix).
_FAULTS: Final = {
    copy: (rule, fix)
    for copy, rule, fix in rows("""
COPY_COORDS_COUNT | MAP_RANK | use the instruction of the map's rank, or encode the map with the
    instruction's
COPY_INNER_16B | COORDINATE_16B | step the innermost coordinate by whole 16 bytes, or move the map's
    address
COPY_INNER_128_VALUES | COORDINATE_16B | step the innermost coordinate by 128 values
COPY_SMEM_OFFSET | SMEM_ALIGNED | align the tile: extern __shared__ __align__(1024), and stages by
    whole multiples
COPY_SMEM_SIZE | SMEM_RANGE | launch with as much dynamic shared memory as the tiles take, or place
    it lower
COPY_IM2COL_START | IM2COL_START | start within the corners; the offsets move the filter's tap, not
    the start
COPY_STORE_NEGATIVE | STORE_NEGATIVE | skip such tiles, or store what is inside by a map that begins
    there
COPY_IM2COL_STORE_CORNERS | IM2COL_STORE_CORNERS | store by a map with corners of 0
COPY_REDUCTION | REDUCTION_TYPE | reduce in another type, or with atomics
COPY_GATHER4 | MAP_KIND | encode the map with one row in its box
COPY_OFFSETS_WITHOUT_IM2COL | MAP_KIND | encode the map as the instruction needs it, or use the
    other form of the instruction
COPY_OUTSIDE_MEMORY | TENSOR_ADDRESS | encode with the address and the size of memory that the
    kernel may use, and keep the tensor alive until it ends
COPY_STORE_OVERRUN | TENSOR_ADDRESS | pad the rows to 16 bytes: a store writes whole chunks of 16
    bytes
COPY_ADDRESS | MAP_ADDRESS | encode with an aligned address
""")
}


class Form(NamedTuple):
    """Rank, mode, multicast and reduction of a tensor copy, as read from the opcode."""

    rank: int
    #: "tile", "im2col", "im2col_w", "gather4" or "scatter4".
    mode: str
    multicast: bool
    reduction: str

    @classmethod
    def of(cls, opcode: str) -> Form:
        """Return the form of an opcode."""
        # For example "cp.async.bulk.tensor.4d.shared::cluster.global.im2col::w.mbarrier::..." has
        # rank 4 and mode "im2col_w".
        words = opcode.split(".")
        rank = next(int(w[0]) for w in words if re.fullmatch(r"[1-5]d", w))
        mode = "tile"
        for word in words:
            if word.startswith("im2col"):
                mode = "im2col_w" if "::w" in word else "im2col"
            elif word.startswith("tile::"):
                mode = word[6:]
        reduction = next((w for w in words if w in _REDUCTIONS), "")
        return cls(rank, mode, "multicast::cluster" in words, reduction)


_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


class _One:
    """One thread that executes an operation; `at` is the thread's index in its group."""

    def __init__(self, g: Any, lane: int) -> None:
        self.g, self.at, self.lanes = g, lane, g.lanes[lane : lane + 1]
        self.block, self.machine, self.order = g.block, g.machine, g.machine.order

    def find(self, address: int) -> tuple[int, Bytes, str] | None:
        """Return (first address, bytes, name) of the memory region that contains `address`.

        `RawCopy` calls this function. The result is None if no region contains `address`.
        """
        region = self.machine.memory.region_of(address)
        return None if region is None else (region.first, region.raw, region.name)

    def fail(self, rule: str, message: str, fix: str) -> NoReturn:
        """Report a mistake that would end the kernel on hardware, and end the simulator's run."""
        self.machine.fault(self.g, rule, message, fix, lanes=self.lanes)
        raise AssertionError


def _each_thread(g: Any, mask: BoolArray | None) -> Iterator[_One]:
    for lane in range(g.n) if mask is None else mask.nonzero()[0].tolist():
        yield _One(g, lane)


# -- maps ------------------------------------------------------------------------------------------


def _space_of(address: int) -> str:
    if address >= SHARED_WINDOW:
        return "shared"
    return "local" if address >= LOCAL_WINDOW else "global"


def _map_at(one: _One, address: int) -> tma.TensorMap:
    """Return the map at a generic address; end the run if the hardware refuses the address."""
    memory, space = one.machine.memory, _space_of(address)
    # The hardware does not read maps from local or shared memory.
    if space in ("local", "shared"):
        where = "the thread's own local memory" if space == "local" else "shared memory"
        fix = {
            "local": "declare the parameter `const __grid_constant__ CUtensorMap map`: without "
            "__grid_constant__ the kernel works with a copy of its own",
            "shared": "pass the map as a __grid_constant__ parameter, or copy it to global memory",
        }[space]
        one.fail(
            f"MAP_IN_{space.upper()}_MEMORY",
            f"the map is at {address:#x}, which is {where}: TMA reads maps from parameters, "
            "constant and global memory alone", fix,
        )  # fmt: skip
    if address % _MAP_ALIGNMENT:
        one.fail(
            "MAP_ALIGNED",
            f"the map is at {address:#x}, not at a multiple of {_MAP_ALIGNMENT} bytes",
            "align it: alignas(64), in CUDA 13 alignas(128); CUtensorMap is, a byte array is not",
        )
    data = memory.read(address, MAP_BYTES)
    if len(data) < MAP_BYTES:
        one.fail(
            "ILLEGAL_ADDRESS", f"the map is at {address:#x}, where the kernel has no memory",
            "pass the map by value, or the address of its bytes",
        )  # fmt: skip
    # A kernel can change a map in global memory, but not a map in its parameters.
    if one.order is not None and space == "global":
        region = memory.region_of(address)
        one.order.use_map(one.g, int(one.lanes[0]), region, address - region.first, address)
    # The keys of `machine.maps` are the bytes of maps, and the values are the maps. At the start of
    # a run, `machine.maps` has the maps among the kernel's arguments. If the kernel has changed a
    # map, decode the new bytes and add the result to `machine.maps`.
    found: tma.TensorMap | None = one.machine.maps.get(data)
    if found is None:
        try:
            found = tma.TensorMap.from_bytes(data, one.machine.target)
        except tma.TmaError as error:
            why = " ".join(str(error).split("\n")[0].split())
            one.fail(
                "MAP_BYTES", f"the 128 bytes at {address:#x} are no tensor map: {why}",
                "pass the map itself, by value, not what points to it",
            )  # fmt: skip
        one.machine.maps[data] = found
    if found.is_zero:
        one.fail(
            "MAP_OF_ZEROS",
            "the map's 128 bytes are zero: it was never encoded, or its encode failed",
            "look at the result of cuTensorMapEncode...; tma-dlpack explain reads its output",
        )
    return found


def _check_form(one: _One, tensor_map: tma.TensorMap, form: Form) -> None:
    is_tile = form.mode in ("tile", "gather4", "scatter4")
    if (tensor_map.kind == "tiled") != is_tile:
        asked, is_map = ("tiled", f"an {tensor_map.kind}") if is_tile else ("im2col", "a tiled")
        one.fail(
            "MAP_KIND", f"the instruction copies by {asked} maps, and this is {is_map} map",
            "encode the map as the instruction needs it, or use the other form of the instruction",
        )  # fmt: skip
    if form.mode not in ("gather4", "scatter4") and form.rank != tensor_map.rank:
        one.fail(
            "MAP_RANK",
            f"the instruction has {form.rank} coordinates, and the map's rank is {tensor_map.rank}",
            "use the instruction of the map's rank, or encode the map with the instruction's",
        )


def _refused(one: _One, error: tma.TmaError) -> NoReturn:
    for violation in getattr(error, "violations", ()):
        rule, fix = _FAULTS.get(violation.rule, ("MAP_BYTES", violation.fix or ""))
        one.fail(rule, f"{violation.found}; {violation.limit}", fix)
    raise error


def _copy(
    one: _One, address: int, mode: str, coords: tuple[int, ...], form: Form, smem: int,
    info: Any = None,
) -> RawCopy:  # fmt: skip
    """Return the checked `RawCopy` with the map at `address`; `coords` are innermost first."""
    tensor_map = _map_at(one, address)
    _check_form(one, tensor_map, form)
    offsets = None
    if info is not None and form.mode == "im2col":
        # Each im2col offset has 16 bits (PTX ISA, im2colInfo).
        offsets = tuple(of_lane(n, one.at) & 0xFFFF for n in info)
    try:
        return RawCopy(tensor_map, mode, coords, smem, one.find, offsets)
    except tma.TmaError as error:
        _refused(one, error)


def _note_windows(
    one: _One, copy: RawCopy, agent: int, clock: int, known: Clocks | None, write: bool,
    **more: Any,
) -> None:  # fmt: skip
    """Check with `Order` that a copy may access its tile in global memory, and record the access.

    `agent` and `clock` identify the copy in `Order`. `known` are the clocks that the issuing thread
    knows.
    """
    try:
        windows = copy.windows()
    except tma.TmaError as error:
        _refused(one, error)
    if one.order is None or not windows:
        return
    note = one.order.async_write if write else one.order.async_read
    region = one.machine.memory.region_of(copy.first)
    # `begins` are the offsets of the tile's rows in the region, and `width` is the number of bytes
    # of each row.
    for begins, width in windows:
        units = one.order.units(region, begins, width)
        note(one.g, one.lanes, region, units, agent, clock, known=known, **more)


# -- loads -----------------------------------------------------------------------------------------


class _Load(Pending):
    """A load into one block.

    `fetch` returns the loaded bytes as an array (pieces, 16). `chunks` has the offset of each piece
    in shared memory, in units of 16 bytes.
    """

    def __init__(
        self, one: _One, what: str, block: Any, chunks: IntArray, barrier: Barrier,
        fetch: Callable[[], Bytes], known: Clocks | None,
    ) -> None:  # fmt: skip
        super().__init__(one.g, what)
        self.block, self.chunks, self.barrier, self.known = block, chunks, barrier, known
        self._fetch, self._issuer, self._lanes = fetch, one.block, one.lanes
        self.clock = barrier.phase + 1
        self.size_bytes = len(chunks) * CHUNK
        self.machine.timeline.fills(one.g, self)

    def happen(self) -> None:
        if self.block.ended:
            found, lane = self.machine.findings, int(self._lanes[0])
            report_exit(found, self.code, self._issuer, self.block, "a load", lane)
            return
        barrier, total = self.barrier, len(self.chunks) * CHUNK
        now = total
        if barrier.pending == 0 and 0 < barrier.bytes < total and barrier.bytes % CHUNK == 0:
            # The phase of the barrier needs fewer bytes than the load still has to write. So write
            # now only the bytes that the phase needs. Then the phase ends between two pieces.
            now = barrier.bytes
        data = self._fetch()
        here, self.chunks = self.chunks[: now // CHUNK], self.chunks[now // CHUNK :]
        self._land(here, data[: len(here)])
        order = self.machine.order
        # The clock of a piece is the number of the phase in which the piece arrives. When the load
        # was issued, `Order` recorded the number of the phase that was open at that time. If these
        # pieces arrive in a later phase, correct their clock.
        if order is not None and barrier.phase + 1 != self.clock:
            order.restamp(self.block, here * CHUNK, barrier.load_agent(), barrier.phase + 1)
        check_bytes(barrier, code=self.code, place=(self._issuer, int(self._lanes[0])))
        barrier.transact(now, self.known)
        if now < total:
            # The remaining pieces stay pending. Keep their bytes, because a load reads its source
            # only once.
            rest = data[len(here) :]
            self._fetch = lambda: rest
            self.machine.add(self)
        else:
            self.machine.timeline.filled(self)

    def _land(self, chunks: IntArray, data: Bytes) -> None:
        smem = self.block.smem
        # `view` is a NumPy view, so the assignment writes to `smem`.
        view = smem[: len(smem) // CHUNK * CHUNK].reshape(-1, CHUNK)
        view[chunks] = data


def _load(
    one: _One, what: str, places: list[tuple[Any, Barrier]], chunks: IntArray,
    fetch: Callable[[], Bytes], note_read: Callable[[int, int, Clocks | None], None],
    atomic: bool = False,
) -> None:  # fmt: skip
    """Issue a load into each block of `places`.

    `chunks` has the offset of each piece in shared memory, in units of 16 bytes. `fetch` returns
    the loaded bytes. `note_read` records the read of the source in `Order`.
    """
    order = one.order
    known = order.issue(one.g, one.lanes) if order is not None else None
    for number, (block, barrier) in enumerate(places):
        check_async_use(one.g, barrier, one.lanes)
        agent, clock = 0, barrier.phase + 1
        if order is not None:
            agent = barrier.load_agent()
            barrier.issued = clock, one.block, one.g.code, int(one.lanes[0])
            units = order.units(block, chunks * CHUNK, CHUNK)
            order.async_write(
                one.g, one.lanes, block, units, agent, clock, known=known, atomic=atomic
            )
        # A multicast reads its source only once, so record the read for the first block only.
        if not number:
            note_read(agent, clock, known)
        one.machine.add(_Load(one, what, block, chunks, barrier, fetch, known))


def _places(
    one: _One, destination: int, barrier: int, blocks: int | None
) -> list[tuple[Any, Barrier]]:
    """Return (destination block, barrier that counts the bytes) for each destination of a load.

    `blocks` is the multicast mask, or None without multicast. Bit n of the mask selects the block
    with rank n in the cluster.
    """
    there = one.block.cluster.blocks
    if blocks is None:
        block, _ = place_of(one.g, destination, one.lanes)
        return [(block, barrier_at(one.g, barrier, one.lanes))]
    absent = [n for n in range(16) if blocks >> n & 1 and n >= len(there)]
    if absent:
        one.fail(
            "MULTICAST_BLOCK",
            f"multicast to the blocks {blocks:#b} (a bit each); the cluster has {len(there)}, so "
            f"block {absent[0]} is not there",
            "launch with a cluster that has the blocks, or clear their bits",
        )
    # Multicast writes the tile at the same offset in every block. It also uses the barrier at the
    # same offset in every block (PTX ISA).
    _, offset = place_of(one.g, barrier, one.lanes)
    return [
        (block, barrier_at(one.g, n << RANK_SHIFT | offset, one.lanes))
        for n, block in enumerate(there)
        if blocks >> n & 1
    ]


def _check_inside(one: _One, block: Any, offset: int, size_bytes: int, what: str) -> None:
    if offset + size_bytes > len(block.smem):
        one.fail(
            "SMEM_RANGE",
            f"the {what} takes shared memory {offset:#x}..{offset + size_bytes:#x} "
            f"({size_bytes:,} bytes); the block has {len(block.smem):#x}",
            "launch with as much dynamic shared memory as the tiles take "
            "(cudaFuncAttributeMaxDynamicSharedMemorySize above 48 KB), or place it lower",
        )


def _coords(one: _One, coords: Any) -> tuple[int, ...]:
    values = coords if isinstance(coords, tuple) else (coords,)
    return tuple(_signed(of_lane(value, one.at)) for value in values)


def _signed(value: int) -> int:
    # Interpret the low 32 bits as int32.
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


# -- tiles -----------------------------------------------------------------------------------------


@operation("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def _tensor(code: Instruction) -> Operation:
    form = Form.of(code.opcode)

    def load(g: Any, mask: BoolArray | None, *operands: Any) -> None:
        for one in _each_thread(g, mask):
            _load_tile(one, form, *operands)

    def store(g: Any, mask: BoolArray | None, target: Any, source: Any, *rest: Any) -> None:
        for one in _each_thread(g, mask):
            _store_tile(one, form, target, source)

    return Operation(store if ".global.shared::cta" in code.opcode else load)


def _load_tile(
    one: _One, form: Form, destination: Any, source: Any, barrier: Any, *rest: Any
) -> None:
    # Up to three optional operands come after the barrier, in this order: im2col offsets, multicast
    # mask, cache policy.
    operands = list(rest)
    has_info = form.mode.startswith("im2col") and operands
    info = operands.pop(0) if has_info and isinstance(operands[0], tuple) else None
    blocks = of_lane(operands[0], one.at) if form.multicast else None
    to = of_lane(destination, one.at)
    _, offset = place_of(one.g, to, one.lanes)
    coords = _coords(one, source[1])
    # A load always writes the whole box (`copy.smem_bytes` bytes), because it writes a fill value
    # for each element that is out of bounds.
    mode = "gather4" if form.mode == "gather4" else "load"
    copy = _copy(one, of_lane(source[0], one.at), mode, coords, form, offset, info)
    places = _places(one, to, of_lane(barrier, one.at), blocks)
    for block, _ in places:
        _check_inside(one, block, offset, copy.smem_bytes, "tile")

    def note(agent: int, clock: int, known: Clocks | None) -> None:
        _note_windows(one, copy, agent, clock, known, write=False)

    what = f"load of {copy.tx_bytes:,} bytes at {coords}"
    _load(one, what, places, copy.chunks, copy.load, note)


def _store_tile(one: _One, form: Form, target: Any, source: Any) -> None:
    block, offset = place_of(one.g, of_lane(source, one.at), one.lanes)
    coords = _coords(one, target[1])
    # For a reduction, the mode of `RawCopy` is the operation, such as "add".
    mode = form.reduction or ("scatter4" if form.mode == "scatter4" else "store")
    copy = _copy(one, of_lane(target[0], one.at), mode, coords, form, offset)
    _check_inside(one, block, offset, copy.smem_bytes, "tile")

    # Return the bytes that global memory will have after this store. `Order.async_write` compares
    # them with the present bytes.
    def after() -> Bytes:
        settle_stores(one.machine)
        return copy.stored(block.smem[offset : offset + copy.smem_bytes])

    def note(agent: int, clock: int, known: Clocks | None) -> None:
        more = {"atomic": bool(form.reduction), "after": after}
        _note_windows(one, copy, agent, clock, known, write=True, **more)

    what = f"{mode} of {copy.tx_bytes:,} bytes at {coords}"
    _store(one, what, offset, copy.smem_bytes, copy.store, note, quiet=not copy.is_whole)


# -- stores ----------------------------------------------------------------------------------------


class _Store:
    """State of a bulk store, which reads its source and later writes global memory."""

    def __init__(self, code: Any) -> None:
        self.code = code
        self.has_read = self.has_written = False
        self.data: Bytes | None = None


class _StoreRead(Pending):
    def __init__(self, one: _One, what: str, store: _Store, offset: int, size_bytes: int) -> None:
        super().__init__(one.g, f"the read of a {what}")
        self._store, self._block = store, one.block
        self._place = slice(offset, offset + size_bytes)

    def happen(self) -> None:
        self._store.data = self._block.smem[self._place].copy()
        self._store.has_read = True
        self.machine.progress += 1


class _StoreWrite(Pending):
    def __init__(
        self, one: _One, what: str, store: _Store, write: Callable[[Bytes], None], read: Pending
    ) -> None:
        super().__init__(one.g, f"the write of a {what}", (read,))
        self._store, self._write = store, write
        self.machine.timeline.stores(one.g, what, self)

    def happen(self) -> None:
        assert self._store.data is not None
        self._write(self._store.data)
        self._store.has_written = True
        self.machine.progress += 1
        self.machine.timeline.stored(self)


def settle_stores(machine: Any) -> None:
    """Complete all pending bulk stores; the PTX memory model allows this at any time."""
    for pending in [p for p in machine.pending if isinstance(p, _StoreRead | _StoreWrite)]:
        machine.pending.remove(pending)
        pending.happen()
        pending.happened = True


def _store(
    one: _One, what: str, offset: int, size_bytes: int, write: Callable[[Bytes], None],
    note_write: Callable[[int, int, Clocks | None], None], quiet: bool = False,
) -> None:  # fmt: skip
    """Issue a bulk store, and add it to the open bulk group of the thread.

    The store reads `size_bytes` bytes of shared memory, beginning at `offset`.
    """
    groups = one.block.sync.bulk[int(one.lanes[0])]
    order, agent, known = one.order, 0, None
    if order is not None:
        known = order.issue(one.g, one.lanes)
        name = f"bulk stores of thread {one.lanes[0]}"
        # wait_group.read waits only until the stores have read their sources. So `Order` needs one
        # agent for the reads of stores and another agent for the writes.
        reads = groups.agent(order, "store_read", one.block, name)
        agent = groups.agent(order, "store_write", one.block, name)
        where = offset, offset + size_bytes
        order.async_read(
            one.g, one.lanes, one.block, where, reads, groups.clock, known=known, quiet=quiet
        )
    note_write(agent, groups.clock, known)
    store = _Store(one.g.code)
    groups.open.append(store)
    read = _StoreRead(one, what, store, offset, size_bytes)
    one.machine.add(read)
    one.machine.add(_StoreWrite(one, what, store, write, read))


# -- lines of bytes --------------------------------------------------------------------------------


def _check_line(one: _One, smem: int, other: int, size_bytes: int) -> None:
    """End the run if an address or the size of a 1-D copy is not a multiple of 16 bytes."""
    for what, value in (("shared address", smem), ("other address", other), ("size", size_bytes)):
        if value % CHUNK:
            one.fail(
                "BULK_ALIGNED", f"the {what} {value:#x} of a bulk copy is not a multiple of 16",
                "copy from and to whole 16 bytes",
            )  # fmt: skip


def _region(one: _One, address: int, size_bytes: int) -> Any:
    """Return the memory region of a 1-D copy; end the run if the copy leaves the region."""
    region = one.machine.memory.region_of(address)
    if region is None or address - region.first + size_bytes > len(region.raw):
        one.fail(
            "ILLEGAL_ADDRESS",
            f"the bulk copy touches {address:#x}..{address + size_bytes:#x}, outside of the memory "
            "of the kernel's arguments",
            "copy within the tensors that are passed to the kernel",
        )
    return region


@operation("cp.async.bulk", "cp.reduce.async.bulk")
def _bulk(code: Instruction) -> Operation:
    words = code.opcode.split(".")
    # `spaces` is [destination, source]. ["shared", "global"] is a load, ["global", "shared"] is a
    # store, and ["shared", "shared"] is a copy to another block of the cluster.
    spaces = [word.partition("::")[0] for word in words if word.startswith(("shared", "global"))]
    op = next((word for word in words if word in _REDUCTIONS), "")
    has_blocks, has_mask = "multicast::cluster" in words, "cp_mask" in words

    def load(g: Any, mask: BoolArray | None, *operands: Any) -> None:
        for one in _each_thread(g, mask):
            # The operands of a load are destination, source, size and barrier. An optional
            # multicast mask and an optional cache policy follow. The policy is ignored.
            values = [of_lane(value, one.at) for value in operands[: 4 + has_blocks]]
            blocks = values.pop() if has_blocks else None
            _load_line(one, op, words[-1], spaces[1] == "global", blocks, *values)

    def store(g: Any, mask: BoolArray | None, *operands: Any) -> None:
        for one in _each_thread(g, mask):
            values = [of_lane(value, one.at) for value in operands]
            # The operands of a store are destination, source and size. An optional byte mask
            # follows. Bit i of the byte mask selects byte i of every 16 bytes.
            byte_mask = values[-1] if has_mask else 0xFFFF
            _store_line(one, op, words[-1], byte_mask, *values[:3])

    return Operation(store if spaces[0] == "global" else load)


def _load_line(
    one: _One, op: str, kind: str, from_global: bool, blocks: int | None, to: int, source: int,
    size_bytes: int, barrier: int,
) -> None:  # fmt: skip
    _, offset = place_of(one.g, to, one.lanes)
    _check_line(one, offset, source, size_bytes)
    places = _places(one, to, barrier, blocks)
    for block, _ in places:
        _check_inside(one, block, offset, size_bytes, "copy")
    if from_global:
        owner: Any = _region(one, source, size_bytes)
        raw, first = owner.raw, source - owner.first
    else:
        owner, first = place_of(one.g, source, one.lanes)
        raw = owner.smem
    # `goal` is used for a reduction only. A reduction to shared memory has one destination, because
    # it has no multicast.
    goal = places[0][0].smem[offset : offset + size_bytes]

    def fetch() -> Bytes:
        data = raw[first : first + size_bytes]
        changed = reduce_bytes(kind, op, goal, data) if op else data.copy()
        pieces: Bytes = changed.reshape(-1, CHUNK)
        return pieces

    def note(agent: int, clock: int, known: Clocks | None) -> None:
        if one.order is not None:
            where = first, first + size_bytes
            one.order.async_read(one.g, one.lanes, owner, where, agent, clock, known=known)
            if not from_global:
                owner.sync.sent[agent] = clock, one.g.code, int(one.lanes[0])

    chunks = offset // CHUNK + np.arange(size_bytes // CHUNK)
    _load(one, f"load of {size_bytes:,} bytes", places, chunks, fetch, note, bool(op))


def _store_line(
    one: _One, op: str, kind: str, byte_mask: int, to: int, source: int, size_bytes: int
) -> None:
    block, offset = place_of(one.g, source, one.lanes)
    _check_line(one, offset, to, size_bytes)
    _check_inside(one, block, offset, size_bytes, "copy")
    region = _region(one, to, size_bytes)
    first = to - region.first
    where = slice(first, first + size_bytes)
    taken = np.tile((byte_mask >> np.arange(CHUNK) & 1).astype(np.bool_), size_bytes // CHUNK)

    def write(data: Bytes, raw: Bytes = region.raw) -> None:
        new = reduce_bytes(kind, op, raw[where], data) if op else data
        raw[where][taken] = new[taken]

    def after() -> Bytes:
        settle_stores(one.machine)
        whole: Bytes = region.raw.copy()
        write(block.smem[offset : offset + size_bytes], whole)
        return whole

    def note(agent: int, clock: int, known: Clocks | None) -> None:
        if one.order is not None:
            one.order.async_write(
                one.g, one.lanes, region, (first, first + size_bytes), agent, clock, known=known,
                atomic=bool(op), after=after,
            )  # fmt: skip

    _store(one, f"store of {size_bytes:,} bytes", offset, size_bytes, write, note)


@operation(
    "cp.async.bulk.prefetch", "prefetch.tensormap", "prefetch.param", "prefetch.const",
)  # fmt: skip
def _prefetch(code: Instruction) -> Operation:
    """Check the map of a prefetch, and do nothing else, because the simulator has no caches."""
    if ".tensor." not in code.opcode:
        return Operation(lambda g, mask, *operands: None)
    form = Form.of(code.opcode)

    def run(g: Any, mask: BoolArray | None, source: Any, *rest: Any) -> None:
        for one in _each_thread(g, mask):
            _check_form(one, _map_at(one, of_lane(source[0], one.at)), form)

    return Operation(run)


# -- copies of threads -----------------------------------------------------------------------------


class _ThreadCopies(Pending):
    """The pending cp.async of lanes of one warp.

    `parts` has tuples (source memory, index, place), where `index` and `place` are arrays (lanes,
    bytes). For each byte, `index` is the offset in the source memory, and `place` is the offset in
    shared memory. A byte with index -1 becomes zero.
    """

    def __init__(self, g: Any, parts: list[tuple[Bytes, IntArray, IntArray]]) -> None:
        super().__init__(g, "cp.async")
        self._parts, self._block = parts, g.block

    def happen(self) -> None:
        if not self._block.ended:
            for raw, index, where in self._parts:
                self._block.smem[where] = np.where(index >= 0, raw[index], 0)


@operation("cp.async.ca", "cp.async.cg")
def _cp_async(code: Instruction) -> Operation:
    def run(
        g: Any, mask: BoolArray | None, destination: Any, source: Any, size: Any, *rest: Any
    ) -> None:
        size_bytes = int(np.max(size))
        taken = np.full(g.n, size_bytes)
        if rest:
            # The optional operand has one of three types. If it is a predicate and true, no source
            # bytes are read. If it is a 32-bit integer, it is the number of source bytes to read.
            # If it is a 64-bit integer, it is a cache policy, which is ignored.
            given = np.asarray(rest[0])
            is_flag = given.dtype == np.bool_
            is_size = given.dtype.itemsize <= 4 or given.ndim == 0
            if is_flag or is_size:
                left = np.where(given, 0, size_bytes) if is_flag else given.astype(np.int64)
                taken = np.minimum(taken, left)
        to = np.broadcast_to(destination, g.n).astype(np.int64) & OFFSET_MASK
        every = np.ones(g.n, np.bool_) if mask is None else mask
        for warp in np.unique(g.lanes[every] // _WARP).tolist():
            _copy_lanes(g, warp, every & (g.lanes // _WARP == warp), to, source, taken, size_bytes)

    return Operation(run)


def _copy_lanes(
    g: Any, warp: int, mine: BoolArray, to: IntArray, source: Any, taken: IntArray, size_bytes: int
) -> None:
    """Issue cp.async by lanes of one warp.

    Each lane writes `size_bytes` bytes. `taken` has the number of source bytes that each lane
    reads. The remaining bytes become zero.
    """
    order, groups, span = g.machine.order, g.block.sync.cp_async[warp], np.arange(size_bytes)
    parts = []
    zero = mine & (taken == 0)
    if zero.any():
        where = to[zero][:, None] + span
        parts.append((np.zeros(1, np.uint8), np.full(where.shape, -1), where))
    reads = mine & (taken > 0)
    found = g.machine.memory.places(g, reads, "global", source, 1) if reads.any() else ()
    for region, which, offsets in found:
        inside = span < taken[which][:, None]
        index = np.where(inside, offsets[:, None] + span, -1)
        # `Memory.places` has checked only the first byte of each lane, because the lanes may read
        # different numbers of bytes. So check the last bytes here.
        if int(index.max()) >= len(region.raw):
            g.machine.fault(
                g, "ILLEGAL_ADDRESS", f"cp.async reads past the end of {region.name}",
                "pass a smaller source size where the row ends", lanes=g.lanes[which],
            )  # fmt: skip
        parts.append((region.raw, index, to[which][:, None] + span))
        if order is not None:
            begins, chosen = np.zeros(g.n, np.int64), np.zeros(g.n, np.bool_)
            begins[which], chosen[which] = offsets, True
            for count in np.unique(taken[which]).tolist():
                order.access(g, chosen & (taken == count), region, begins, count, write=False)
    if order is not None:
        agent = groups.agent(order, "cp_async", g.block, f"cp.async of warp {warp}")
        units = order.units(g.block, to[mine], size_bytes)
        order.async_write(g, g.lanes[mine], g.block, units, agent, groups.clock)
    copies = _ThreadCopies(g, parts)
    groups.open.append(copies)
    g.machine.add(copies)


class _RemoteStore(Pending):
    """A write to shared memory by st.async or red.async; an mbarrier counts the written bytes."""

    def __init__(
        self,
        g: Any,
        block: Any,
        places: IntArray,
        data: Bytes,
        barrier: Barrier,
        kind: str,
        op: str,
        known: Clocks | None,
    ) -> None:
        super().__init__(g, f"a remote store of {data.size} bytes")
        self._block, self._places, self._data, self._barrier = block, places, data, barrier
        self._kind, self._op, self._known = kind, op, known

    def happen(self) -> None:
        smem = self._block.smem
        # Several lanes may reduce to the same address, so apply the operands of the lanes in
        # sequence.
        for place, data in zip(self._places, self._data, strict=True):
            old = smem[place]
            smem[place] = reduce_bytes(self._kind, self._op, old, data) if self._op else data
        check_bytes(self._barrier, code=self.code)
        self._barrier.transact(self._data.size, self._known)


@operation("st.async", "red.async")
def _store_async(code: Instruction) -> Operation:
    words = code.opcode.split(".")
    op = next((word for word in words if word in _REDUCTIONS), "") if words[0] == "red" else ""

    def run(g: Any, mask: BoolArray | None, to: Any, value: Any, barrier: Any) -> None:
        kind = words[-1]
        size = int(kind[1:]) // 8
        values = value if isinstance(value, tuple) else (value,)
        # `data` has the shape (lanes, bytes). With .v2 or .v4, the 2 or 4 elements of a lane are
        # side by side in the row of the lane.
        columns = [np.broadcast_to(v, g.n).astype(f"u{size}") for v in values]
        data = np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8)
        at = np.broadcast_to(to, g.n).astype(np.int64)
        order = g.machine.order
        for where, lanes in each(g, mask, barrier):
            block, _ = place_of(g, where, g.lanes[lanes])
            found = barrier_at(g, where, g.lanes[lanes])
            offsets, known = at[lanes] & OFFSET_MASK, None
            if order is not None:
                known = order.issue(g, g.lanes[lanes])
                agent, units = found.load_agent(), order.units(block, offsets, data.shape[1])
                order.async_write(
                    g, g.lanes[lanes], block, units, agent, found.phase + 1, known=known,
                    atomic=bool(op), generic=True,
                )  # fmt: skip
            places = offsets[:, None] + np.arange(data.shape[1])
            g.machine.add(_RemoteStore(g, block, places, data[lanes], found, kind, op, known))

    return Operation(run)


# -- changes of maps -------------------------------------------------------------------------------


# For example "tensormap.replace.tile.box_dim.shared::cta.b1024.b32".
_REPLACE = re.compile(
    r"tensormap\.replace\.tile\.(\w+)(?:\.(global|shared::cta))?\.b1024\.b(32|64)"
)


@operation("tensormap.replace")
def _replace(code: Instruction) -> Operation | None:
    found = _REPLACE.match(code.opcode)
    if found is None:
        return None
    field, space, bits = found.groups()

    def run(g: Any, mask: BoolArray | None, address: Any, *rest: Any) -> None:
        for one in _each_thread(g, mask):
            # A field such as box_dim exists for each axis. Its instruction has the operand
            # `ordinal`, the number of the axis, where 0 is the innermost axis.
            ordinal = int(rest[0]) if len(rest) == 2 else None
            operand = of_lane(rest[-1], one.at) & (1 << int(bits)) - 1
            at = of_lane(address, one.at)
            is_shared = _space_of(at) == "shared" or space == "shared::cta"
            owner, first = place_of(g, at, one.lanes) if is_shared else (None, 0)
            if owner is None:
                owner = _region(one, at, MAP_BYTES)
                first = at - owner.first
            raw = owner.smem if is_shared else owner.raw
            # `Order.access` needs an offset and a mask entry for every lane of the group. This
            # iteration is for the lane `one.at`, so the mask selects only this lane.
            only = np.zeros(g.n, np.bool_)
            only[one.at] = True
            if one.order is not None:
                for part in range(0, MAP_BYTES, CHUNK):
                    offsets = np.full(g.n, first + part)
                    one.order.access(g, only, owner, offsets, CHUNK, write=True)
            data = bytes(raw[first : first + MAP_BYTES])
            try:
                changed = replace_field(data, field, ordinal, operand)
            except (tma.TmaError, KeyError, ValueError) as error:
                one.fail(
                    "MAP_BYTES", f"tensormap.replace of {field} with {operand:#x}: {error}",
                    "pass a value of the field's range",
                )  # fmt: skip
            raw[first : first + MAP_BYTES] = np.frombuffer(changed, np.uint8)
            one.machine.progress += 1

    return Operation(run)


@operation("tensormap.cp_fenceproxy")
def _publish(code: Instruction) -> Operation:
    def run(g: Any, mask: BoolArray | None, destination: Any, source: Any, size: Any) -> None:
        for to, at in each(g, mask, destination):
            one = _One(g, int(at[0]))
            # All lanes of a warp execute cp_fenceproxy, normally with the same destination address.
            # Copy the map once for each distinct address.
            block, offset = place_of(g, of_lane(source, at[0]), one.lanes)
            region = _region(one, to, MAP_BYTES)
            first, only = to - region.first, np.zeros(g.n, np.bool_)
            only[at[0]] = True
            if one.order is not None:
                for part in range(0, MAP_BYTES, CHUNK):
                    offsets = np.full(g.n, offset + part)
                    one.order.access(g, only, block, offsets, CHUNK, write=False)
                one.order.publish_map(g, only, region, first)
            region.raw[first : first + MAP_BYTES] = block.smem[offset : offset + MAP_BYTES]
            one.machine.progress += 1

    return Operation(run, needs_warp=True)
