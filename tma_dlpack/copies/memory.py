"""Which bytes a copy may touch, and those it does touch; it is refused where they differ.

A map keeps its tensor alive, and yet the tensor can take other memory, or lose it: ``layer.half()``
and ``x.resize_()`` of torch, ``x.resize()`` of NumPy, ``x.delete()`` of JAX. So each copy
looks at the tensor again.
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
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.coerce import counted
from tma_dlpack.types.errors import TmaPreconditionError, TmaUnsupportedError

__all__ = [
    "Extent",
    "HostExtent",
    "Window",
    "check_writeable",
    "current_view",
    "host_extent_of",
    "origin_of",
    "read_windows",
    "storage_of_view",
    "written_windows",
]

#: What of a view a map depends on.
_DESCRIBED = ("address", "shape", "strides", "dtype", "device")


@dataclass(frozen=True, slots=True)
class Extent:
    """So many bytes of known memory, around a map's address.

    Attributes
    ----------
    origin : int
        Bytes from the first known one to the map's address, which may lie outside; modulo 2^64, as
        a signed number, because the engine's addresses wrap there [measured].
    size_bytes : int
    what : str
        Name for messages.
    """

    origin: int
    size_bytes: int
    what: str

    def require(self, begins: IntArray, size_bytes: int, overrun: int = 0) -> None:
        """Refuse unless the bytes from each of `begins` on are all known.

        `begins` count from the map's address, modulo 2^64. `overrun` of the bytes, at the end, are
        no elements but what a store writes of the last chunk.
        """
        at = begins + self.origin  # wraps, as the engine's addresses do
        begin, end = int(at.min()), int(at.max()) + size_bytes
        if begin >= 0 and end <= self.size_bytes:
            return
        if begin >= 0 and end - overrun <= self.size_bytes:
            found = (
                f"the store writes {counted(end - self.size_bytes, 'byte')} past the end of "
                f"{self.what}: the hardware would have overwritten foreign memory"
            )
            refuse("COPY_STORE_OVERRUN", "memory", found)
        found = f"the copy touches bytes {begin} to {end} of {self.what}, which has "
        refuse("COPY_OUTSIDE_MEMORY", "memory", f"{found}{self.size_bytes}")


def origin_of(address: int, first: int) -> int:
    """Give the distance from byte `first` to an address, modulo 2^64 as a signed number."""
    return (address - first + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True, slots=True)
class HostExtent(Extent):
    """Bytes of this process; `raw` is uint8, (size_bytes,)."""

    raw: Bytes


def host_extent_of(tensor_map: TensorMap, memory: object, *, write: bool) -> HostExtent:
    """Give the bytes of this process that copies through a map may touch.

    They are `memory` where given, else the storage of the map's host tensor.

    Raises
    ------
    TmaPreconditionError
        For a bare address without `memory`, a `memory` that is no contiguous uint8 array, a tensor
        that has moved, or bytes that must not be written.
    TmaUnsupportedError
        For a tensor in a GPU's memory.
    """
    what = "the tensor" if memory is None else "memory"
    view = current_view(tensor_map) if memory is None else _view_of_memory(memory)
    if view is None:
        found = "the map has a bare address and no tensor, and memory is None"
        refuse("COPY_MEMORY", "memory", found)
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor lies on {view.device}, which the simulator cannot reach; copy it to the "
            'host and make the map there, or use backend="cuda"'
        )
    check_writeable(write, view, what)
    if memory is not None:  # the array alone, not what it is a part of
        storage = Storage(view.address, view.extent_bytes, storage_of(view).is_own)
    else:
        storage = storage_of_view(view, what)
        what = "the tensor's storage"
    if not storage.is_own:
        _check_pages(storage, write, what)
    origin = origin_of(tensor_map.global_address, storage.address)
    return HostExtent(origin, storage.size_bytes, what, host_bytes(storage.as_view(view)))


def _view_of_memory(memory: object) -> TensorView:
    """Look at `memory` if it is a contiguous uint8 array of NumPy."""
    if not isinstance(memory, np.ndarray):
        refuse("COPY_MEMORY", "memory", f"memory is a {name_of(type(memory))}")
    if memory.dtype != np.uint8:
        refuse("COPY_MEMORY", "memory", f"memory is an array of {memory.dtype}")
    if not memory.flags.c_contiguous:
        refuse("COPY_MEMORY", "memory", "memory has gaps between its elements")
    return as_tensor_view(np.asarray(memory))


def current_view(tensor_map: TensorMap) -> TensorView | None:
    """Give the view of a map's tensor, which must lie where and as it did when the map was made.

    None for a bare address. A capsule that the map keeps holds the memory by itself, and its
    producer may export another temporary each time, so it is not exported again.
    """
    described = tensor_map.view
    if described is None:
        return None
    before = described.own or described  # a map may describe the tensor's memory otherwise
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
            found = f"the {what} of the map's tensor is {shown(is_)}, and the map has {shown(was)}"
            refuse("COPY_MOVED", "memory", found)
    return now


def storage_of_view(view: TensorView, what: str) -> Storage:
    """Give the storage of a tensor; refuse one that lies there no longer.

    When a storage shrinks or moves, the tensors that lie in it do not change.
    """
    if view.capsule is not None:
        return Storage(view.address, view.extent_bytes, False)
    try:
        storage = storage_of(view)
    except Exception as error:  # a subclass of torch.Tensor may refuse the question
        refuse("COPY_MOVED", "memory", f"the storage of {what} is not known: {error}", error)
    if not storage.holds(view):
        found = f"the storage of {what} no longer holds its {view.extent_bytes} bytes"
        refuse("COPY_MOVED", "memory", found)
    return storage


def check_writeable(write: bool, view: TensorView, what: str) -> None:
    """Refuse to write to what is read-only."""
    if write and view.read_only:
        refuse("COPY_READ_ONLY", "memory", f"{what} is read-only")


def _check_pages(storage: Storage, write: bool, what: str) -> None:
    """Refuse memory that would end this process; only of memory that no framework allocated."""
    address = first_forbidden(storage.address, storage.size_bytes, write)
    if address is not None:
        found = f"{what} has no {'writeable' if write else 'readable'} memory at {address:#x}"
        refuse("COPY_PAGES", "memory", found)


# --- What a copy touches ------------------------------------------------------------------------


class Window(NamedTuple):
    """Lines of which the same bytes are touched."""

    first: int  # bytes [first, last) of each line
    last: int
    source: IntArray  # (n,) where byte 0 of each line lies, from the map's address, modulo 2^64
    line: IntArray  # (n,) the number of each line, all tiles in a row


def read_windows(plan: TilePlan, lines: Lines, extent: Extent) -> Iterator[Window]:
    """Give what loads read: the bytes in bounds, exactly."""
    for window in _windows(plan, lines):
        extent.require(window.source + window.first, window.last - window.first)
        yield window


def written_windows(request: CopyRequest, extent: Extent) -> Iterator[Window]:
    """Give what a store writes: whole 16-byte chunks, past the row's end where that is ragged."""
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
