"""Which bytes of this process a map's address stands for; nothing outside them is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tma_dlpack.backends.layout import Bytes
from tma_dlpack.dlpack import host_bytes
from tma_dlpack.errors import TmaPreconditionError, TmaUnsupportedError, Violation
from tma_dlpack.tensor_map import TensorMap

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
            _refuse(
                "STORE_OVERRUN",
                f"the store writes {end - self.size_bytes} bytes past the end of {self.what}: the "
                "hardware would have overwritten foreign memory",
                "stores write whole chunks of 16 bytes, so each row must be padded to 16 bytes",
                "pad the rows of the tensor to 16 bytes, or pass memory= with the whole allocation",
                "measured (H200, driver 580.159.04, 2026-11-20)",
            )
        _refuse(
            "COPY_OUTSIDE_MEMORY",
            f"the copy touches bytes {begin} to {end} of {self.what}, which has {self.size_bytes}",
            "every byte that a copy touches must lie inside",
            "pass memory= with the array that holds the map's addresses, or smaller dimensions",
        )


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
        For a bare address without `memory`, a `memory` that is no contiguous uint8 array, or bytes
        that must not be written.
    TmaUnsupportedError
        For a tensor in a GPU's memory.
    """
    address = tensor_map.global_address
    if memory is not None:
        if not isinstance(memory, np.ndarray) or memory.dtype != np.uint8:
            kind = getattr(memory, "dtype", type(memory).__name__)
            _refuse_memory(f"memory is {kind}")
        if not memory.flags.c_contiguous:
            _refuse_memory("memory has gaps between its elements")
        check_writeable(write, memory.flags.writeable, "memory")
        start = memory.__array_interface__["data"][0]
        return Storage(address - start, memory.size, "memory", memory.reshape(-1))
    view = tensor_map.view
    if view is None:
        _refuse_memory("the map has a bare address and no tensor, and memory is None")
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor lies on {view.device}, which the simulator cannot reach; copy it to the "
            'host and make the map there, or use backend="cuda"'
        )
    check_writeable(write, not view.read_only, "the tensor")
    raw = host_bytes(view)
    return Storage(0, len(raw), "the tensor", raw)


def check_writeable(write: bool, writeable: bool, what: str) -> None:
    """Refuse to write to what is read-only."""
    if write and not writeable:
        _refuse(
            "COPY_READ_ONLY",
            f"{what} is read-only",
            "stores and reductions need memory that may be written",
            "make the map of a writeable copy: x.copy() of NumPy; numpy.array(x) of JAX, whose "
            "arrays never change, or on the GPU cupy.array(x) or a clone in torch; or pass memory=",
            "DLPACK_FLAG_BITMASK_READ_ONLY (dlpack.h 1.3); numpy.ndarray.flags; JAX: arrays are "
            "immutable",
        )


def _refuse_memory(found: str) -> NoReturn:
    _refuse(
        "COPY_MEMORY",
        found,
        "memory must be the contiguous NumPy uint8 array whose own storage holds the addresses",
        "pass memory=, such as x.view(numpy.uint8), or make the map from a tensor",
    )


def _refuse(
    rule: str, found: str, limit: str, fix: str, source: str = "tma_dlpack, the simulator"
) -> NoReturn:
    raise TmaPreconditionError(Violation(rule, "memory", found, limit, fix, source))
