"""The global, shared and local memory of a simulated kernel.

Global memory is a set of regions. The simulated address of a region is the address of its host
array, so pointers and tensor maps need no change. A shared address has the block's rank in the
cluster in bits 24 to 31, and the offset in bits 0 to 23. The corresponding generic address is the
shared address plus `SHARED_WINDOW`. The local memory of a block is an array (threads, bytes). The
generic address of a byte in local memory is the byte's offset plus `LOCAL_WINDOW`.

Source: PTX ISA 9.0, 5.1 (state spaces), 6.4 (operands), 9.7.9 (ld, st, atom, red).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# First generic address of shared memory and of local memory. All host addresses are lower.
SHARED_WINDOW, LOCAL_WINDOW = 1 << 62, 1 << 61
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
# Size of an element in bytes -> NumPy type.
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Region:
    """Memory that a kernel may access: a tensor's storage, a variable, or the bytes of a map."""

    first: int
    raw: Array
    name: str
    writable: bool

    def __init__(self, first: int, raw: npt.NDArray[np.uint8], name: str, writable: bool) -> None:
        self.first, self.raw, self.name, self.writable = first, raw, name, writable
        # Cache of the method `view`: size of an element in bytes -> result.
        self._views: dict[int, tuple[Array, int]] = {}

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.raw)

    def view(self, size: int) -> tuple[Array, int]:
        """Return (memory as an array of elements of `size` bytes, address of the first element)."""
        found = self._views.get(size)
        if found is None:
            skip = -self.first % size
            count = max(0, (len(self.raw) - skip) // size)
            part = self.raw[skip : skip + count * size]
            found = self._views[size] = part.view(UNSIGNED[size]), self.first + skip
        return found


class Memory:
    """Memory of a machine; threads and copies access it by address."""

    def __init__(self, machine: Any, regions: list[Region]) -> None:
        self.machine = machine
        # The regions do not overlap, and their addresses ascend. `_firsts` has the first address of
        # each region.
        self.regions: list[Region] = []
        self._firsts: list[int] = []
        for region in regions:
            self.add(region)

    def add(self, region: Region) -> None:
        """Add a region; an empty region is ignored."""
        if not region.size:
            return
        at = bisect_right(self._firsts, region.first)
        self.regions.insert(at, region)
        self._firsts.insert(at, region.first)

    def variable(self, data: bytes, align: int, name: str, writable: bool) -> Region:
        """Allocate memory for a variable, and add it as a region."""
        align = max(align, 16)
        raw = np.zeros(len(data) + align, np.uint8)
        skip = -raw.ctypes.data % align
        own = raw[skip : skip + len(data)]
        own[:] = np.frombuffer(data, np.uint8)
        region = Region(own.ctypes.data, own, name, writable)
        self.add(region)
        return region

    def region_of(self, address: int) -> Region | None:
        """Return the region that contains an address, or None."""
        at = bisect_right(self._firsts, address) - 1
        if at < 0:
            return None
        region = self.regions[at]
        return region if address < region.first + region.size else None

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes of global memory, or fewer bytes if the region ends earlier.

        The result is b"" if no region contains the address.
        """
        region = self.region_of(address)
        if region is None:
            return b""
        at = address - region.first
        return bytes(region.raw[at : at + size])

    def region_for(self, g: Any, addresses: Array, size: int) -> Region:
        """Return the region that contains `size` bytes at each of the global addresses.

        If no single region contains all these bytes, end the run.
        """
        low, high = int(addresses.min()), int(addresses.max())
        region = self.region_of(low)
        if region is None or high + size > region.first + region.size:
            self._outside(g, slice(0, 1), np.array([low if region is None else high]), size)
            raise AssertionError
        return region

    @staticmethod
    def space_of(address: int) -> str:
        """Return the state space of a generic address: "shared", "local" or "global"."""
        if address >= SHARED_WINDOW:
            return "shared"
        return "local" if address >= LOCAL_WINDOW else "global"

    # -- regions of an access --------------------------------------------------------------------

    def places(
        self, g: Any, mask: Array | None, space: str, addresses: Any, size: int
    ) -> list[tuple[Any, Array | slice, Array]]:
        """Return the accesses of a group as (owner, thread indices, offsets), one tuple per owner.

        The owner is a block for shared memory, None for local memory, and a region for global
        memory. `space` is "global", "shared", "local", or "" for generic addresses. An access
        outside of all memory ends the run.
        """
        at = np.broadcast_to(addresses, g.n).astype(np.int64)
        which: Any = slice(None)
        if mask is not None:
            which = mask.nonzero()[0]
            at = at[which]
            if not len(at):
                return []
        if int(np.bitwise_or.reduce(at)) & (size - 1):
            self._misaligned(g, which, at, size)
        # A shared address has 32 bits.
        if space == "shared":
            return self._shared(g, which, at & 0xFFFFFFFF, size)
        if space == "local":
            return [(None, which, at)]
        # In most calls, all addresses are in shared memory, or all in local memory, or all in one
        # region. Test these cases first.
        low, high = int(at.min()), int(at.max())
        if low >= SHARED_WINDOW:
            return self._shared(g, which, at - SHARED_WINDOW, size)
        if low >= LOCAL_WINDOW and high < SHARED_WINDOW:
            return [(None, which, at - LOCAL_WINDOW)]
        region = self.region_of(low)
        if region is not None and high + size <= region.first + region.size:
            return [(region, which, at - region.first)]
        if (region is not None and low == high) or len(at) == 1:
            self._outside(g, which, at, size)
        return self._by_region(g, mask, which, at, size)

    def _by_region(
        self, g: Any, mask: Array | None, which: Any, at: Array, size: int
    ) -> list[tuple[Any, Array | slice, Array]]:
        # In each iteration, take the first remaining address, find its region, and take all
        # remaining addresses in this region.
        lanes = np.arange(g.n)[which]
        found: list[tuple[Any, Array | slice, Array]] = []
        rest = np.ones(len(at), np.bool_)
        while rest.any():
            address = int(at[rest.argmax()])
            if address >= SHARED_WINDOW:
                here = rest & (at >= SHARED_WINDOW)
                found += self._shared(g, lanes[here], at[here] - SHARED_WINDOW, size)
            elif address >= LOCAL_WINDOW:
                here = rest & (at >= LOCAL_WINDOW) & (at < SHARED_WINDOW)
                found.append((None, lanes[here], at[here] - LOCAL_WINDOW))
            else:
                region = self.region_of(address)
                if region is None:
                    self._outside(g, lanes[rest][:1], at[rest][:1], size)
                    raise AssertionError
                end = region.first + region.size
                here = rest & (at >= region.first) & (at + size <= end)
                if not here.any():
                    self._outside(g, lanes[rest][:1], at[rest][:1], size)
                found.append((region, lanes[here], at[here] - region.first))
            rest &= ~here
        return found

    def _shared(self, g: Any, which: Any, at: Array, size: int) -> list[tuple[Any, Any, Array]]:
        ranks, offsets = at >> RANK_SHIFT, at & OFFSET_MASK
        first = int(ranks[0])
        same = bool((ranks == first).all())
        blocks = g.block.cluster.blocks
        # All blocks of a cluster have shared memory of the same size, so compare with block 0.
        if int(ranks.max()) >= len(blocks) or int(offsets.max()) + size > len(blocks[0].smem):
            self._outside(g, which, at + SHARED_WINDOW, size)
        if same:
            return [(blocks[first], which, offsets)]
        lanes = np.arange(g.n)[which]
        return [
            (blocks[int(rank)], lanes[ranks == rank], offsets[ranks == rank])
            for rank in np.unique(ranks)
        ]

    def _outside(self, g: Any, which: Any, at: Array, size: int) -> None:
        # Report the first access that is outside of all memory.
        bad = [
            n for n, address in enumerate(at.tolist()) if not self._is_somewhere(g, address, size)
        ]
        first = bad[0] if bad else 0
        address = int(at[first])
        lanes = g.lanes[which][bad or [0]]
        if address >= SHARED_WINDOW:
            offset = address - SHARED_WINDOW
            found = (
                f"shared memory is accessed at {offset & OFFSET_MASK:#x}; the block has "
                f"{len(g.block.smem):#x} bytes"
            )
            fix = "pass smem_bytes= of the dynamic shared memory that the kernel uses"
            if offset >> RANK_SHIFT >= len(g.block.cluster.blocks):
                found = f"shared memory of block {offset >> RANK_SHIFT} of the cluster is accessed"
                fix = "launch with a cluster that has the block"
        else:
            found = f"memory at {address:#x} is accessed, {self._nearest(address, size)}"
            fix = "correct the index, or pass the array that the pointer belongs to in args"
        self.machine.fault(g, "ILLEGAL_ADDRESS", found, fix, lanes=lanes)

    def _is_somewhere(self, g: Any, address: int, size: int) -> bool:
        if address >= SHARED_WINDOW:
            offset = address - SHARED_WINDOW
            inside = (offset & OFFSET_MASK) + size <= len(g.block.smem)
            return inside and offset >> RANK_SHIFT < len(g.block.cluster.blocks)
        if address >= LOCAL_WINDOW:
            return True
        region = self.region_of(address)
        return region is not None and address + size <= region.first + region.size

    def _nearest(self, address: int, size: int) -> str:
        """Return a text with the distance in bytes from an address to the nearest region."""
        if not self.regions:
            return "and no argument has memory"
        at = bisect_right(self._firsts, address)
        after = self.regions[at] if at < len(self.regions) else None
        before = self.regions[at - 1] if at else None
        if before is not None:
            past = address + size - before.first - before.size
            if after is None or past <= after.first - address:
                return f"{past:,} bytes past the end of {before.name} ({before.size:,} bytes)"
        assert after is not None
        return f"{after.first - address:,} bytes before {after.name}"

    def _misaligned(self, g: Any, which: Any, at: Array, size: int) -> None:
        bad = (at & (size - 1)).nonzero()[0]
        self.machine.fault(
            g, "MISALIGNED_ADDRESS",
            f"{size} bytes are accessed at {int(at[bad[0]]) & 0xFFFFFFFFFFFF:#x}, not a "
            f"multiple of {size}",
            f"align the address to {size} bytes", lanes=g.lanes[which][bad],
        )  # fmt: skip

    # -- values ----------------------------------------------------------------------------------

    def load(
        self, g: Any, mask: Array | None, space: str, addresses: Any, size: int, count: int,
        semantics: str,
    ) -> list[Array]:  # fmt: skip
        """Load `count` neighbouring elements of `size` bytes for each thread.

        The result is a list of `count` arrays, and each array has one element for each thread.
        """
        out = np.zeros((count, g.n), UNSIGNED[size])
        order = self.machine.order
        # Accesses to local memory (`where` is None) cannot race, because a thread can access only
        # its own local memory.
        for where, which, offsets in self.places(g, mask, space, addresses, size * count):
            if order is not None and where is not None:
                every, part = _spread(g, mask, which, offsets)
                order.access(g, part, where, every, size * count, write=False, semantics=semantics)
            view, index = self._view(g, where, offsets, size, which)
            for n in range(count):
                out[n, which] = view[_shifted(index, n)]
        return list(out)

    def store(
        self, g: Any, mask: Array | None, space: str, addresses: Any, size: int,
        values: list[Any], semantics: str,
    ) -> None:  # fmt: skip
        """Store neighbouring elements for each thread, starting at the thread's address.

        `values` has one array for each element, and each array has one entry for each thread.
        """
        count = len(values)
        order = self.machine.order
        columns = [np.broadcast_to(v, g.n).astype(UNSIGNED[size], copy=False) for v in values]
        for where, which, offsets in self.places(g, mask, space, addresses, size * count):
            if where is not None:
                self.require_writable(g, where, which)
            if order is not None and where is not None:
                every, part = _spread(g, mask, which, offsets)
                # Pass the bytes that each thread stores, because two stores of equal bytes are not
                # reported as a race.
                data = np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8)
                order.access(
                    g, part, where, every, size * count, write=True, semantics=semantics,
                    data=data.reshape(g.n, size * count),
                )  # fmt: skip
            view, index = self._view(g, where, offsets, size, which)
            for n, column in enumerate(columns):
                view[_shifted(index, n)] = column[which]
            if where is not None:
                self.machine.progress += 1

    def require_writable(self, g: Any, where: Any, which: Any) -> None:
        """End the run if a thread writes read-only memory."""
        if getattr(where, "writable", True):
            return
        self.machine.fault(
            g, "READ_ONLY", f"{where.name} is written, which is read-only",
            "pass an array that can be written", lanes=g.lanes[which],
        )  # fmt: skip

    def _view(self, g: Any, where: Any, offsets: Array, size: int, which: Any) -> tuple[Array, Any]:
        """Return (memory as an array of elements, index of the elements at `offsets`).

        `where` is None for local memory, a block for its shared memory, or a region.
        """
        if where is None:
            local = g.block.local
            need = int(offsets.max()) + 16
            if local.shape[1] < need:
                self._outside(g, which, offsets + LOCAL_WINDOW, size)
            return local.view(UNSIGNED[size]), (g.lanes[which], offsets // size)
        # A block has `smem`, and a region does not. A region may begin at an unaligned address, so
        # its view starts at the first aligned element.
        smem = getattr(where, "smem", None)
        if smem is not None:
            return where.smem_view(size), offsets // size
        view, first = where.view(size)
        return view, (offsets + (where.first - first)) // size

    # -- rows of matrices ------------------------------------------------------------------------

    def load_rows(self, g: Any, addresses: Array, size: int) -> Array:
        """Return the rows that ldmatrix reads, as an array of bytes with shape (rows, size)."""
        block, offsets = self._rows(g, addresses, size)
        if self.machine.order is not None:
            self._note_rows(g, block, offsets, size, None)
        found: Array = block.smem[offsets[:, None] + np.arange(size)]
        return found

    def store_rows(self, g: Any, addresses: Array, rows: Array) -> None:
        """Store the rows of stmatrix, an array of bytes (rows, size), in shared memory."""
        size = rows.shape[1]
        block, offsets = self._rows(g, addresses, size)
        if self.machine.order is not None:
            self._note_rows(g, block, offsets, size, rows)
        block.smem[offsets[:, None] + np.arange(size)] = rows
        self.machine.progress += 1

    def _rows(self, g: Any, addresses: Array, size: int) -> tuple[Any, Array]:
        at = addresses.astype(np.int64)
        if int(at.max()) >= SHARED_WINDOW:
            at = at - SHARED_WINDOW
        at = at & 0xFFFFFFFF
        if int(np.bitwise_or.reduce(at)) & (size - 1):
            self._misaligned(g, slice(0, 1), at[:1], size)
        offsets = at & OFFSET_MASK
        if int(offsets.max()) + size > len(g.block.smem):
            worst = offsets[offsets.argmax() : offsets.argmax() + 1]
            self._outside(g, slice(0, 1), worst + SHARED_WINDOW, size)
        return g.block, offsets

    def _note_rows(self, g: Any, block: Any, offsets: Array, size: int, rows: Array | None) -> None:
        """Check the accesses of ldmatrix (`rows` is None) or stmatrix, and record them in `Order`.

        `offsets` has an offset for each of the 8 rows of each matrix of each warp. Lanes 0 to 7 of
        a warp are recorded as the threads that access these rows.
        """
        warps = max(1, g.n // 32)
        shaped = offsets.reshape(-1, warps, 8)
        for n in range(len(shaped)):
            every = np.zeros((warps, 32), np.int64)
            mask = np.zeros((warps, 32), np.bool_)
            every[:, :8], mask[:, :8] = shaped[n], True
            data = None
            if rows is not None:
                data = np.zeros((warps, 32, size), np.uint8)
                data[:, :8] = rows.reshape(-1, warps, 8, size)[n]
                data = data.reshape(-1, size)
            self.machine.order.access(
                g, mask.reshape(-1)[: g.n], block, every.reshape(-1)[: g.n], size,
                write=rows is not None, data=data,
            )  # fmt: skip

    # -- atomics ---------------------------------------------------------------------------------

    def atomic(
        self, g: Any, mask: Array | None, space: str, addresses: Any, size: int, semantics: str,
        combine: Any, *operands: Any,
    ) -> Array:  # fmt: skip
        """Execute an atomic operation for one thread after another; return each thread's old value.

        `combine(old, *operands)` returns the new values. Its arguments are arrays with the values
        of several threads whose addresses are distinct.
        """
        old = np.zeros(g.n, UNSIGNED[size])
        values = [np.broadcast_to(v, g.n) for v in operands]
        order = self.machine.order
        for where, which, offsets in self.places(g, mask, space, addresses, size):
            if where is None:
                raise NotImplementedError("atomics in local memory")
            self.require_writable(g, where, which)
            if order is not None:
                every, part = _spread(g, mask, which, offsets)
                order.access(
                    g, part, where, every, size, write=True, atomic=True, semantics=semantics
                )
            view, index = self._view(g, where, offsets, size, which)
            lanes = np.arange(g.n)[which]
            changed = False
            for turn in _turns(index):
                at, who = index[turn], lanes[turn]
                before = view[at]
                after = combine(before, *(v[who] for v in values))
                changed = changed or bool((after != before).any())
                view[at] = after
                old[who] = before
            # If an atomic operation changes no memory, it counts as a poll. An example is a failed
            # compare-and-swap.
            if changed:
                self.machine.progress += 1
            else:
                g.polled("memory")
        return old


def _shifted(index: Any, n: int) -> Any:
    if not n:
        return index
    return (index[0], index[1] + n) if isinstance(index, tuple) else index + n


def _spread(g: Any, mask: Array | None, which: Any, offsets: Array) -> tuple[Array, Array | None]:
    """Return (array with one offset for each thread of a group, mask of the threads in `which`)."""
    if isinstance(which, slice):
        return offsets, mask
    every = np.zeros(g.n, np.int64)
    part = np.zeros(g.n, np.bool_)
    every[which], part[which] = offsets, True
    return every, part


def _turns(index: Array) -> list[Any]:
    """Split threads into turns, so that the threads of one turn have distinct values of `index`.

    If several threads have equal values, the thread with the lowest number is in the earliest turn.
    """
    # The rank of a thread counts the threads before it that have the same value of `index`.
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]]
    if starts.all():
        return [slice(None)]
    firsts = np.flatnonzero(starts)
    rank = np.arange(len(ordered)) - np.repeat(firsts, np.diff(np.r_[firsts, len(ordered)]))
    turns = np.empty(len(ordered), np.int64)
    turns[order] = rank
    return [np.flatnonzero(turns == n) for n in range(int(rank.max()) + 1)]
