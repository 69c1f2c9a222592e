"""Which bytes a copy may touch and which it would touch; it is refused if it would touch others.

A map keeps its tensor alive, but the tensor can still lose or change its memory:
``layer.half()`` and ``x.resize_()`` of torch, ``x.resize()`` of NumPy, ``x.delete()`` of JAX. So
each copy reads the tensor's address and layout again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.layout import Bytes
from tma_dlpack.copies.pages import first_forbidden
from tma_dlpack.copies.refusals import refuse
from tma_dlpack.copies.request import CopyRequest, Lines
from tma_dlpack.copies.storage import Storage, storage_of
from tma_dlpack.dlpack import TensorView, as_tensor_view, host_bytes, name_of
from tma_dlpack.geometry import IntArray, TilePlan
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

#: The attributes of a view that a map depends on.
_DESCRIBED = ("address", "shape", "strides", "dtype", "device")


@dataclass(frozen=True, slots=True)
class Extent:
    """The memory that the copies of a map may touch, relative to the map's address.

    Attributes
    ----------
    origin : int
        Bytes from the first byte of the memory to the map's address, which may lie outside. A
        signed number modulo 2^64, because the engine's addresses wrap there [measured].
    size_bytes : int
    what : str
        Name for messages.
    """

    origin: int
    size_bytes: int
    what: str

    def require(self, begins: IntArray, size_bytes: int, overrun: int = 0) -> None:
        """Refuse unless the `size_bytes` bytes from each of `begins` on are all inside.

        `begins` count from the map's address, modulo 2^64. The last `overrun` bytes are not
        elements, but the rest of the last 16-byte chunk of a store.
        """
        at = begins + self.origin  # int64 wraps, as the engine's addresses do
        begin, end = int(at.min()), int(at.max()) + size_bytes
        if begin >= 0 and end <= self.size_bytes:
            return
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


def origin_of(address: int, first: int) -> int:
    """Give the distance from byte `first` to an address, as a signed number modulo 2^64."""
    return (address - first + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True, slots=True)
class HostExtent(Extent):
    """Memory of this process; `raw` is its uint8 array (size_bytes,)."""

    raw: Bytes


def host_extent_of(tensor_map: TensorMap, memory: object, *, write: bool) -> HostExtent:
    """Give the bytes of this process that copies of a map may touch.

    They are `memory` if given, else the storage of the map's host tensor.

    Raises
    ------
    TmaPreconditionError
        For a bare address without `memory`, a `memory` that is not a contiguous uint8 array, a
        tensor that has moved since the map was made, or read-only memory.
    TmaUnsupportedError
        For a tensor in GPU memory.
    """
    what = "the tensor" if memory is None else "memory"
    view = current_view(tensor_map) if memory is None else _view_of_memory(memory)
    if view is None:
        found = "the map has a bare address and no tensor, and memory is None"
        refuse("COPY_MEMORY", "memory", found)
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor is on {view.device}, which the simulator cannot read; make the map of a "
            'host copy, make_tma_descriptor(x.cpu(), ...), or use backend="cuda"'
        )
    check_writeable(write, view, what)
    if memory is not None:  # only the array itself, not the storage around it
        storage = Storage(view.address, view.extent_bytes, storage_of(view).is_own)
    else:
        storage = storage_of_view(view, what)
        what = "the tensor's storage"
    if not storage.is_own:
        _check_pages(storage, write, what)
    origin = origin_of(tensor_map.global_address, storage.address)
    return HostExtent(origin, storage.size_bytes, what, host_bytes(storage.as_view(view)))


def _view_of_memory(memory: object) -> TensorView:
    """Give the view of `memory` if it is a contiguous uint8 NumPy array; else refuse it."""
    if not isinstance(memory, np.ndarray):
        refuse("COPY_MEMORY", "memory", f"memory is a {name_of(type(memory))}")
    if memory.dtype != np.uint8:
        refuse("COPY_MEMORY", "memory", f"memory is an array of {memory.dtype}")
    if not memory.flags.c_contiguous:
        refuse("COPY_MEMORY", "memory", "memory has gaps between its elements")
    return as_tensor_view(np.asarray(memory))


def current_view(tensor_map: TensorMap) -> TensorView | None:
    """Give the view of a map's tensor; refuse if its address or layout has changed since.

    None for a bare address. If the map keeps a capsule, that keeps the memory alive; the producer
    may export another temporary each time, so the tensor is not exported again.
    """
    described = tensor_map.view
    if described is None:
        return None
    before = described.own or described  # `own` for maps made with shape=, strides= or offset=
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


def storage_of_view(view: TensorView, what: str) -> Storage:
    """Give the storage of a tensor; refuse if it no longer contains the tensor.

    When a storage shrinks or moves, the tensors in it are not updated.
    """
    if view.capsule is not None:
        return Storage(view.address, view.extent_bytes, False)
    try:
        storage = storage_of(view)
    except Exception as error:  # a subclass of torch.Tensor may raise anything
        refuse("COPY_MOVED", "memory", f"the storage of {what} is not known: {error}", error)
    if not storage.holds(view):
        found = f"the storage of {what} no longer contains its {view.extent_bytes} bytes"
        refuse("COPY_MOVED", "memory", found)
    return storage


def check_writeable(write: bool, view: TensorView, what: str) -> None:
    """Refuse to write to read-only memory."""
    if write and view.read_only:
        refuse("COPY_READ_ONLY", "memory", f"{what} is read-only")


def _check_pages(storage: Storage, write: bool, what: str) -> None:
    """Refuse memory that is not mapped; only for memory that no framework allocated."""
    address = first_forbidden(storage.address, storage.size_bytes, write)
    if address is not None:
        found = f"{what} has no {'writeable' if write else 'readable'} memory at {address:#x}"
        refuse("COPY_PAGES", "memory", found)


# --- What a copy touches ------------------------------------------------------------------------


class Window(NamedTuple):
    """Lines of which a copy touches the same bytes."""

    first: int  # bytes [first, last) of each line
    last: int
    source: IntArray  # (n,) byte 0 of each line, from the map's address, modulo 2^64
    line: IntArray  # (n,) the number of each line, counted over all tiles


def read_windows(plan: TilePlan, lines: Lines, extent: Extent) -> Iterator[Window]:
    """Give what loads read: exactly the bytes in bounds."""
    for window in _windows(plan, lines):
        extent.require(window.source + window.first, window.last - window.first)
        yield window


def written_windows(request: CopyRequest, extent: Extent) -> Iterator[Window]:
    """Give what a store writes: whole 16-byte chunks, so possibly past the end of a row."""
    lines = request.lines()
    end = geometry.store_window(request.plan, lines.start, lines.last)
    for window in _windows(request.plan, lines._replace(last=end)):
        overrun = window.last - int(lines.last[0])
        extent.require(window.source + window.first, window.last - window.first, overrun)
        yield window


def _windows(plan: TilePlan, lines: Lines) -> Iterator[Window]:
    source = lines.origins + lines.start[:, None]
    keys = lines.first * (plan.line_bytes + 1) + lines.last
    for key in sorted(set(keys.tolist())):
        first, last = divmod(key, plan.line_bytes + 1)
        inside = lines.inside if len(keys) == 1 else lines.inside & (keys == key)[:, None]
        line = inside.reshape(-1).nonzero()[0]
        if first < last and len(line):
            yield Window(first, last, source.reshape(-1)[line], line)
