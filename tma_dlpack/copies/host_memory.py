"""Which bytes of this process a map's address stands for; nothing outside them is touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tma_dlpack.copies.attached import attached_view, check_storage
from tma_dlpack.copies.layout import Bytes
from tma_dlpack.copies.refusals import refuse
from tma_dlpack.dlpack import host_bytes, name_of
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.errors import TmaUnsupportedError

__all__ = ["Extent", "Storage", "check_writeable", "storage_of"]


@dataclass(frozen=True, slots=True)
class Extent:
    """So many bytes of known memory, around a map's address.

    Attributes
    ----------
    origin : int
        Bytes from the first known one to the map's address; may lie outside.
    size_bytes : int
    what : str
        Name for messages.
    """

    origin: int
    size_bytes: int
    what: str

    def require(self, first: int, last: int, overrun: int = 0) -> None:
        """Refuse unless bytes [first, last), counted from the map's address, are all known.

        `overrun` of them, at the end, are no elements but what a store writes of the last chunk.
        """
        begin, end = self.origin + first, self.origin + last
        if begin >= 0 and end <= self.size_bytes:
            return
        if begin >= 0 and end - overrun <= self.size_bytes:
            found = (
                f"the store writes {end - self.size_bytes} bytes past the end of {self.what}: the "
                "hardware would have overwritten foreign memory"
            )
            refuse("COPY_STORE_OVERRUN", "memory", found)
        found = f"the copy touches bytes {begin} to {end} of {self.what}, which has "
        refuse("COPY_OUTSIDE_MEMORY", "memory", f"{found}{self.size_bytes}")


@dataclass(frozen=True, slots=True)
class Storage(Extent):
    """Bytes of this process; `raw` is uint8, (size_bytes,)."""

    raw: Bytes


def storage_of(tensor_map: TensorMap, memory: object, *, write: bool) -> Storage:
    """Give the bytes that copies through a map may touch.

    They are `memory` where given, else the extent of the map's host tensor.

    Raises
    ------
    TmaPreconditionError
        For a bare address without `memory`, a `memory` that is no contiguous uint8 array, a tensor
        that has moved, or bytes that must not be written.
    TmaUnsupportedError
        For a tensor in a GPU's memory.
    """
    address = tensor_map.global_address
    if memory is not None:
        array = _checked_memory(memory)
        check_writeable(write, array.flags.writeable, "memory")
        start = array.__array_interface__["data"][0]
        return Storage(address - start, array.size, "memory", array.reshape(-1))
    view = attached_view(tensor_map)
    if view is None:
        found = "the map has a bare address and no tensor, and memory is None"
        refuse("COPY_MEMORY", "memory", found)
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor lies on {view.device}, which the simulator cannot reach; copy it to the "
            'host and make the map there, or use backend="cuda"'
        )
    check_writeable(write, not view.read_only, "the tensor")
    raw = host_bytes(view)
    check_storage(view, len(raw), "the tensor")
    return Storage(address - view.address, len(raw), "the tensor", raw)


def _checked_memory(memory: object) -> Bytes:
    """Give `memory` if it is a contiguous uint8 array."""
    kind = type(memory)
    if not issubclass(kind, np.ndarray):
        refuse("COPY_MEMORY", "memory", f"memory is a {name_of(kind)}")
    array: Bytes = np.asarray(memory)
    if array.dtype != np.uint8:
        refuse("COPY_MEMORY", "memory", f"memory is an array of {array.dtype}")
    if not array.flags.c_contiguous:
        refuse("COPY_MEMORY", "memory", "memory has gaps between its elements")
    return array


def check_writeable(write: bool, writeable: bool, what: str) -> None:
    """Refuse to write to what is read-only."""
    if write and not writeable:
        refuse("COPY_READ_ONLY", "memory", f"{what} is read-only")
