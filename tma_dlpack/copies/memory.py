"""The bytes that a copy may access, and the bytes that it accesses if it is not refused.

A copy is refused if it would access a byte outside of the memory that it may access.

A map keeps its tensor alive, but the tensor's memory can be freed or replaced, for example by
``layer.half()`` or ``x.resize_()`` in torch, ``x.resize()`` in NumPy, or ``x.delete()`` in JAX. For
this reason each copy reads the tensor's address and layout again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tma_dlpack import driver, geometry
from tma_dlpack.copies.request import CopyRequest, Lines
from tma_dlpack.copies.tile import Bytes
from tma_dlpack.dlpack import Storage, TensorView, as_tensor_view, host_bytes, name_of, storage_of
from tma_dlpack.geometry import CHUNK_BYTES, IntArray, TilePlan
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError
from tma_dlpack.tables.refusals import refuse
from tma_dlpack.tensor_map.map import TensorMap

#: The attributes of a `TensorView` that must not change after the map was made.
_DESCRIBED = ("address", "shape", "strides", "dtype", "device")


@dataclass(frozen=True, slots=True)
class Extent:
    """The memory that the copies of a map may access, relative to the map's address.

    Attributes
    ----------
    origin : int
        The map's address minus the address of the memory's first byte. This is a signed number
        modulo 2^64, because the engine's addresses wrap at 2^64 [measured]. The map's address may
        be outside of the memory.
    size_bytes : int
    what : str
        Name of the memory in messages, such as "the tensor's storage".
    """

    origin: int
    size_bytes: int
    what: str

    def require(self, begins: IntArray, size_bytes: int, overrun: int = 0) -> None:
        """Refuse the copy unless all ranges of `size_bytes` bytes at `begins` are in this memory.

        `begins` are offsets in bytes from the map's address, modulo 2^64. The last `overrun` bytes
        of a range contain no elements; a store writes them because it writes whole 16-byte chunks.
        """
        # int64 sums wrap at 2^64, as the engine's addresses do.
        at = begins + self.origin
        first, last = (at[0], at[0]) if len(at) == 1 else (at.min(), at.max())
        begin, end = int(first), int(last) + size_bytes
        if begin >= 0 and end <= self.size_bytes:
            return
        # The next condition means that all elements are inside, and only the rest of the last
        # 16-byte chunk is outside.
        if begin >= 0 and end - overrun <= self.size_bytes:
            found = (
                f"the store writes {counted(end - self.size_bytes, 'byte')} past the end of "
                f"{self.what}: the hardware would overwrite other memory"
            )
            refuse("COPY_STORE_OVERRUN", "memory", found)
        found = (
            f"the copy touches bytes {begin} to {end} of {self.what}, which has {self.size_bytes}"
        )
        refuse("COPY_OUTSIDE_MEMORY", "memory", found)


def _origin_of(address: int, first: int) -> int:
    """Return `address - first` as a signed number modulo 2^64."""
    return (address - first + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True, slots=True)
class HostExtent(Extent):
    """An extent in host memory; `raw` is this memory as a uint8 array (size_bytes,)."""

    raw: Bytes


def host_extent_of(tensor_map: TensorMap, memory: object, *, write: bool) -> HostExtent:
    """Return the host memory that copies of a map may access.

    The result is `memory`, or the storage of the map's host tensor if `memory` is None.

    Raises
    ------
    TmaPreconditionError
        If the map has a bare address and `memory` is None, if `memory` is not a contiguous uint8
        array, if the tensor has moved after the map was made, or if a store would write read-only
        memory.
    TmaUnsupportedError
        If the tensor is in GPU memory.
    """
    view = current_view(tensor_map) if memory is None else _view_of_memory(memory)
    if view is None:
        found = "the map has a bare address and no tensor, and memory is None"
        refuse("COPY_MEMORY", "memory", found)
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor is on {view.device}, which the simulator cannot read; make the map of a "
            'host copy, make_tma_descriptor(x.cpu(), ...), or use backend="cuda"'
        )
    storage, what = _touchable(view, memory, write)
    forbidden = None
    # `first_forbidden` is slow, so call it only for memory that no framework has allocated.
    if not storage.is_own:
        forbidden = first_forbidden(storage.address, storage.size_bytes, write)
    if forbidden is not None:
        found = f"{what} has no {'writeable' if write else 'readable'} memory at {forbidden:#x}"
        refuse("COPY_PAGES", "memory", found)
    origin = _origin_of(tensor_map.global_address, storage.address)
    return HostExtent(origin, storage.size_bytes, what, host_bytes(view, storage))


def device_extent_of(tensor_map: TensorMap, memory: object, *, write: bool) -> Extent:
    """Return the device memory that copies of a map may access.

    If `memory` is not None, the result is `memory`. If `memory` is None and the map has a tensor,
    the result is the tensor's storage. If `memory` is None and the map has a bare address, the
    result is the CUDA allocation that contains the address.

    Raises
    ------
    TmaPreconditionError
        If the tensor has moved after the map was made, or if a store would write read-only memory.
    TmaUnsupportedError
        If the memory is host memory, or if no CUDA allocation contains the address.
    """
    if not tensor_map.launchable:
        # `ptr` raises an error that says why no kernel can use the map.
        _ = tensor_map.ptr
    address = tensor_map.global_address
    view = current_view(tensor_map) if memory is None else as_tensor_view(memory)
    if view is None:
        known = driver.pointer_range(address)
        if known is None:
            raise TmaUnsupportedError(
                f"the map's address {address:#x} is in no allocation that CUDA knows, so a copy "
                "would kill the context; make the map of a live tensor, or move the map: "
                "tensor_map.with_address(x)"
            )
        return Extent(_origin_of(address, known[0]), known[1], "the allocation")
    if not view.device.is_cuda:
        what = "the tensor" if memory is None else "memory"
        raise TmaUnsupportedError(
            f"{what} is on {view.device}, and the CUDA backend copies GPU memory only; use "
            'backend="simulator", or move it to the GPU'
        )
    storage, what = _touchable(view, memory, write)
    return Extent(_origin_of(address, storage.address), storage.size_bytes, what)


def _touchable(view: TensorView, memory: object, write: bool) -> tuple[Storage, str]:
    """Return the memory that copies may access, and its name; refuse to write read-only memory.

    If `memory` is None, `view` describes the map's tensor, and the result is the tensor's whole
    storage. Otherwise `view` describes the array `memory`, and the result is only this array, even
    if its storage is larger.
    """
    what = "the tensor" if memory is None else "memory"
    if write and view.read_only:
        refuse("COPY_READ_ONLY", "memory", f"{what} is read-only")
    storage = _storage_of(view, what)
    if memory is None:
        return storage, "the tensor's storage"
    return Storage(view.address, view.extent_bytes, storage.is_own), what


def _view_of_memory(memory: object) -> TensorView:
    """Return the view of `memory`; refuse `memory` unless it is a contiguous uint8 NumPy array."""
    if not isinstance(memory, np.ndarray):
        refuse("COPY_MEMORY", "memory", f"memory is a {name_of(type(memory))}")
    if memory.dtype != np.uint8:
        refuse("COPY_MEMORY", "memory", f"memory is an array of {memory.dtype}")
    if not memory.flags.c_contiguous:
        refuse("COPY_MEMORY", "memory", "memory has gaps between its elements")
    return as_tensor_view(np.asarray(memory))


def current_view(tensor_map: TensorMap) -> TensorView | None:
    """Return the current view of a map's tensor; refuse a tensor whose address or layout changed.

    Return None for a map of a bare address. If the map keeps a DLPack capsule, the capsule keeps
    the memory alive. In this case the tensor is not exported again, because each export may make
    another temporary copy.
    """
    described = tensor_map.view
    if described is None:
        return None
    # If the map was made with shape=, strides= or offset=, `own` is the view of the tensor itself.
    before = described.own or described
    if before.capsule is not None:
        return before
    try:
        now = as_tensor_view(before.owner)
    except TmaPreconditionError as error:
        refuse("COPY_MOVED", "memory", f"the map's {error.violations[0].found}", error)
    if now == before:
        return now
    for what in _DESCRIBED:
        is_, was = getattr(now, what), getattr(before, what)
        if is_ != was:
            shown = hex if what == "address" else str
            found = f"the {what} of the map's tensor is now {shown(is_)}; the map has {shown(was)}"
            refuse("COPY_MOVED", "memory", found)
    return now


def _storage_of(view: TensorView, what: str) -> Storage:
    """Return the storage of a tensor; refuse if the storage no longer contains the tensor.

    A storage that shrinks or moves does not update its tensors.
    """
    if view.capsule is not None:
        return Storage(view.address, view.extent_bytes, False)
    try:
        storage = storage_of(view)
    # A subclass of torch.Tensor may raise any error.
    except Exception as error:
        refuse("COPY_MOVED", "memory", f"the storage of {what} is not known: {error}", error)
    if not storage.holds(view):
        found = f"the storage of {what} no longer contains its {view.extent_bytes} bytes"
        refuse("COPY_MOVED", "memory", found)
    return storage


def first_forbidden(address: int, size_bytes: int, write: bool) -> int | None:
    """Return the first address in a range that the process cannot read.

    If `write` is true, return the first address in the range that the process cannot write. Return
    None if the range has no such address, or if /proc/self/maps is missing. The function does not
    detect that another thread unmaps the memory during or after the call, or that a mapped file was
    truncated.

    >>> import numpy as np
    >>> x = np.zeros(1 << 20, np.uint8)
    >>> first_forbidden(x.ctypes.data, x.nbytes, write=True) is None
    True
    """
    if not size_bytes:
        return None
    known_to = address
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as regions:
            # A line begins with "7f0c40000000-7f0c40021000 rw-p". The lines are in ascending order
            # of their addresses.
            for region in regions:
                places, permissions = region.split(maxsplit=2)[:2]
                begin, end = (int(place, 16) for place in places.split("-"))
                if end <= known_to:
                    continue
                if begin > known_to or permissions[1 if write else 0] == "-":
                    return known_to
                known_to = end
                if known_to >= address + size_bytes:
                    return None
    except OSError:
        return None
    return known_to


# --- Bytes that a copy accesses -----------------------------------------------------------------


class Window(NamedTuple):
    """Lines of tiles (see `geometry`); a copy accesses the same bytes of each line."""

    #: The copy accesses the bytes [first, last) of each line.
    first: int
    last: int
    #: (n,) offset from the map's address to byte 0 of each line, in bytes modulo 2^64.
    source: IntArray
    #: (n,) number of each line, where the lines of all tiles are numbered consecutively.
    line: IntArray


def read_windows(plan: TilePlan, lines: Lines, extent: Extent) -> Iterator[Window]:
    """Yield the windows that loads read; they contain exactly the bytes in bounds.

    Refuse a load that would read a byte outside of `extent`.
    """
    for window in _windows(plan, lines):
        extent.require(window.source + window.first, window.last - window.first)
        yield window


def written_windows(request: CopyRequest, extent: Extent) -> Iterator[Window]:
    """Yield the windows that a store writes: whole 16-byte chunks, possibly past the end of a row.

    Refuse a store that would write a byte outside of `extent`.
    """
    lines = request.lines()
    end = geometry.store_window(request.plan, lines.start, lines.last)
    for window in _windows(request.plan, lines._replace(last=end)):
        overrun = window.last - int(lines.last[0])
        extent.require(window.source + window.first, window.last - window.first, overrun)
        yield window


def _windows(plan: TilePlan, lines: Lines) -> Iterator[Window]:
    source = lines.origins + lines.start[:, None]
    # A key encodes the pair (first, last) of a tile. In most copies all tiles have the same pair.
    keys = lines.first * (plan.line_bytes + 1) + lines.last
    for key in sorted(set(keys.tolist())):
        first, last = divmod(key, plan.line_bytes + 1)
        inside = lines.inside if len(keys) == 1 else lines.inside & (keys == key)[:, None]
        line = inside.reshape(-1).nonzero()[0]
        if first < last and len(line):
            yield Window(first, last, source.reshape(-1)[line], line)


def check_reads(request: CopyRequest, extent: Extent) -> None:
    """Refuse a load that would access bytes outside of the extent."""
    if not _is_inside_as_a_whole(request.plan.arguments, extent, 1):
        for _ in read_windows(request.plan, request.lines(), extent):
            # read_windows checks each window against the extent.
            pass


def check_writes(request: CopyRequest, extent: Extent) -> None:
    """Refuse a store that would write bytes outside of the extent.

    The written bytes include the rest of the last 16-byte chunk of each row.
    """
    if not _is_inside_as_a_whole(request.plan.arguments, extent, CHUNK_BYTES):
        for _ in written_windows(request, extent):
            pass


def _is_inside_as_a_whole(args: EncodeArguments, extent: Extent, chunk_bytes: int) -> bool:
    """Return whether the extent contains the whole tensor of a map.

    If the result is True, the extent also contains the bytes of every copy.
    """
    end = extent.origin + reach_bytes(args, chunk_bytes)
    return extent.origin >= 0 and end <= extent.size_bytes


def reach_bytes(args: EncodeArguments, chunk_bytes: int) -> int:
    """Return the number of bytes from a tensor's first byte to the end of its last row.

    The size of the last row is rounded up to a multiple of `chunk_bytes`.
    """
    # `unit_bytes` is 16 or 32 for an interleaved map, and 0 for any other map.
    unit = geometry.plan(args).unit_bytes
    row_bytes = args.global_dim[0] * unit or args.row_bytes
    outer = zip(args.global_dim[1:], args.global_strides, strict=True)
    last_row = sum((dim - 1) * stride for dim, stride in outer)
    return last_row + -(-row_bytes // chunk_bytes) * chunk_bytes
