"""Which bytes of GPU memory the copies of a map may touch; other copies are refused."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from tma_dlpack import driver, geometry
from tma_dlpack.copies import launch
from tma_dlpack.copies.layout import Bytes
from tma_dlpack.copies.memory import (
    Extent,
    check_writeable,
    current_view,
    origin_of,
    read_windows,
    storage_of_view,
    written_windows,
)
from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.geometry import CHUNK_BYTES
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap


class DeviceBytes:
    """Bytes of GPU memory, copied from and to NumPy arrays; used as a context manager.

    It has ``__cuda_array_interface__``, so it can be the `memory` of a copy.
    """

    def __init__(self, size_bytes: int, device_id: int = 0) -> None:
        self.size_bytes = size_bytes
        self.device_id = device_id
        self.address = 0

    def __enter__(self) -> DeviceBytes:
        self._stack = ExitStack()
        self._stack.enter_context(driver.in_context(self.device_id))
        self.address = self._stack.enter_context(launch.scratch(self.size_bytes))
        return self

    def __exit__(self, *exception: object) -> None:
        self.address = 0
        self._stack.close()

    def put(self, array: Bytes) -> None:
        """Copy host bytes to the beginning."""
        if array.nbytes > self.size_bytes:
            raise ValueError(f"{array.nbytes} bytes do not fit {self.size_bytes}")
        launch.upload(self.address, array, launch.LEGACY_DEFAULT_STREAM)
        launch.synchronize(launch.LEGACY_DEFAULT_STREAM)

    def get(self) -> Bytes:
        """Give a host copy of all bytes."""
        array = np.empty(self.size_bytes, np.uint8)
        launch.download(array, self.address, launch.LEGACY_DEFAULT_STREAM)
        launch.synchronize(launch.LEGACY_DEFAULT_STREAM)
        return array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.size_bytes,),
            "data": (self.address, False),
        }


def device_extent_of(tensor_map: TensorMap, memory: object, *, write: bool) -> Extent:
    """Give the device bytes that copies of a map may touch.

    They are `memory` if given, else the storage of the map's tensor, else the allocation that
    contains the map's bare address.

    Raises
    ------
    TmaPreconditionError
        For a tensor that has moved since the map was made, and for read-only memory.
    TmaUnsupportedError
        For host memory, and for an address that CUDA does not know.
    """
    if not tensor_map.launchable:
        _ = tensor_map.ptr  # raises with the reason
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
        return Extent(origin_of(address, known[0]), known[1], "the allocation")
    what = "the tensor" if memory is None else "memory"
    if not view.device.is_cuda:
        raise TmaUnsupportedError(
            f"{what} is on {view.device}, and the CUDA backend copies GPU memory only; use "
            'backend="simulator", or move it to the GPU'
        )
    check_writeable(write, view, what)
    storage = storage_of_view(view, what)
    if memory is not None:  # only the tensor itself, not the storage around it
        return Extent(origin_of(address, view.address), view.extent_bytes, what)
    return Extent(origin_of(address, storage.address), storage.size_bytes, "the tensor's storage")


def check_reads(request: CopyRequest, extent: Extent) -> None:
    """Refuse a load that would touch bytes outside."""
    if not _is_inside_as_a_whole(request.plan.arguments, extent, 1):
        for _ in read_windows(request.plan, request.lines(), extent):
            pass  # read_windows has checked each window against the extent


def check_writes(request: CopyRequest, extent: Extent) -> None:
    """Refuse a store that would touch bytes outside, including those past the end of a row."""
    if not _is_inside_as_a_whole(request.plan.arguments, extent, CHUNK_BYTES):
        for _ in written_windows(request, extent):
            pass


def _is_inside_as_a_whole(args: EncodeArguments, extent: Extent, chunk_bytes: int) -> bool:
    """Whether everything that the map describes lies inside, and so every copy does."""
    unit = geometry.plan(args).unit_bytes
    row_bytes = args.global_dim[0] * unit or args.row_bytes
    row_end = -(-row_bytes // chunk_bytes) * chunk_bytes
    outer = zip(args.global_dim[1:], args.global_strides, strict=True)
    end = sum((dim - 1) * stride for dim, stride in outer) + row_end
    return extent.origin >= 0 and extent.origin + end <= extent.size_bytes
