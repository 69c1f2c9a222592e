"""Launch of a kernel on the GPU for `run_kernel(backend="cuda")`.

Host tensors are copied to the GPU before the launch and back to the host after the launch. If a map
describes a host tensor, the kernel gets a map of the tensor's copy on the GPU. Addresses inside
structures are passed unchanged.

Source: CUDA driver API 13.0, `cuLaunchKernelEx` and `CUlaunchConfig`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

import numpy as np

from tma_dlpack.kernel.arguments import Parameter, number_bytes
from tma_dlpack.kernel.compile import Compiled
from tma_dlpack.kernel.core import (
    Library,
    TensorView,
    as_tensor_view,
    download,
    driver,
    host_bytes,
    scratch,
    storage_of,
    synchronize,
    tma,
    upload,
)

# Value of CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.
_CLUSTER_DIMENSION = 4
# The default stream.
_STREAM = 0
# A storage on the host and its copy on the device have equal addresses modulo _ALIGNMENT bytes.
_ALIGNMENT = 256


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id at byte 0, and a value of 64 bytes that begins at byte 8."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig of the driver API."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("number", ctypes.c_uint),
    )


@lru_cache(maxsize=32)
def _library(ptx: str) -> Library:
    """Return the library that the driver compiles from PTX; the result is cached."""
    handle = ctypes.c_void_p()
    driver.call("cuLibraryLoadData", handle, ptx.encode(), None, None, 0, None, None, 0)
    assert handle.value is not None
    return Library(handle.value)


class _Copies:
    """Device copies of host storages, which exist until the launch ends."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        # Host address of a storage -> (device address of the copy, bytes on the host).
        self.known: dict[int, tuple[int, Any]] = {}

    def address(self, view: TensorView) -> int:
        """Return the device address of a tensor, or of the copy of a host tensor."""
        if view.device.is_cuda:
            return view.address
        storage = storage_of(view)
        if storage.address not in self.known:
            raw = host_bytes(view, storage)
            room = self.stack.enter_context(scratch(storage.size_bytes + _ALIGNMENT))
            # A tensor may begin anywhere in its storage. So choose a device address that equals
            # the storage's address modulo _ALIGNMENT, which keeps the alignment of every element.
            device = room + (storage.address - room) % _ALIGNMENT
            upload(device, np.ascontiguousarray(raw), _STREAM)
            self.known[storage.address] = device, raw
        return self.known[storage.address][0] + view.address - storage.address

    def download(self) -> None:
        """Copy the device copies of writable storages back to the host."""
        for device, raw in self.known.values():
            if raw.flags.writeable:
                download(raw, device, _STREAM)
        synchronize(_STREAM)


def launch(
    compiled: Compiled,
    parameters: Sequence[Parameter],
    args: Sequence[Any],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    smem_bytes: int,
) -> None:
    """Launch a kernel and wait until it ends; the kernel changes host tensors in place.

    Raises
    ------
    TmaUnsupportedError
        If there is no GPU.
    TmaDriverError
        If the driver refuses the kernel, or if the kernel fails. After a failure of the kernel, the
        CUDA context is unusable.
    """
    device_id = next((d for d in map(_device_of, args) if d is not None), None)
    with driver.in_context(device_id) as ordinal, ExitStack() as stack:
        copies = _Copies(stack)
        values = [
            _argument(copies, stack, parameter, value)
            for parameter, value in zip(parameters, args, strict=True)
        ]
        # cuLaunchKernelEx reads each argument at its address. `values` keeps the arguments alive.
        pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
        kernel = _library(compiled.ptx).kernel(compiled.kernel, ordinal)
        # The launch has one attribute for a cluster of several blocks, and none for a cluster of
        # one block.
        attribute = _Attribute(id=_CLUSTER_DIMENSION)
        attribute.value[:3] = cluster
        config = _Config(
            (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), smem_bytes, _STREAM,
            ctypes.addressof(attribute), int(cluster != (1, 1, 1)),
        )  # fmt: skip
        driver.call(
            "cuLaunchKernelEx", ctypes.addressof(config), kernel, ctypes.addressof(pointers), None
        )
        synchronize(_STREAM)
        copies.download()


def _device_of(value: object) -> int | None:
    """Return the device id of a tensor or map on a GPU, else None."""
    if isinstance(value, tma.TensorMapBatch):
        return next((d for d in map(_device_of, value) if d is not None), None)
    if isinstance(value, tma.TensorMap):
        return value.device.device_id if value.device is not None and value.launchable else None
    if not hasattr(type(value), "__dlpack__") or isinstance(value, np.generic):
        return None
    device = as_tensor_view(value).device
    return device.device_id if device.is_cuda else None


def _argument(copies: _Copies, stack: ExitStack, parameter: Parameter, value: Any) -> Any:
    """Return an argument as a ctypes object of its parameter's size."""
    if isinstance(value, tma.TensorMap | tma.TensorMapBatch):
        maps = (value,) if isinstance(value, tma.TensorMap) else value
        data = b"".join(_map_bytes(copies, one) for one in maps)
        if parameter.size == len(data):
            return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)
        # The address of a map must be a multiple of 64 bytes. cuMemAlloc aligns to 256 bytes.
        address = stack.enter_context(scratch(len(data)))
        upload(address, np.frombuffer(data, np.uint8).copy(), _STREAM)
        synchronize(_STREAM)
        return ctypes.c_uint64(address)
    number = number_bytes(parameter, value)
    if number is not None:
        return (ctypes.c_ubyte * len(number)).from_buffer_copy(number)
    return ctypes.c_uint64(copies.address(as_tensor_view(value)))


def _map_bytes(copies: _Copies, tensor_map: tma.TensorMap) -> bytes:
    """Return the bytes of a map for the launch.

    If the map describes a host tensor, the bytes contain the address of the copy on the device.
    """
    view = tensor_map.view
    if view is None or view.device.is_cuda:
        return bytes(tensor_map)
    described = view.own or view
    moved = copies.address(described) - described.address
    return bytes(tensor_map.at_bare_address(tensor_map.global_address + moved))
