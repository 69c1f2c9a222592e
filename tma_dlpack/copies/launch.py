"""Device memory, kernel launches and streams for the copies on the GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack import driver
from tma_dlpack.dlpack import native_of
from tma_dlpack.tables.coerce import integer_of
from tma_dlpack.tables.errors import TmaUnsupportedError

LEGACY_DEFAULT_STREAM = 0
#: Number of the legacy default stream in `__dlpack__(stream=)` (array API standard).
DLPACK_LEGACY_DEFAULT = 1


def by_value(data: bytes) -> Any:
    """Return bytes as a kernel argument that is passed by value, such as a tensor map."""
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def launch(
    kernel: int, grid: int, threads: int, smem_bytes: int, stream: int, arguments: Sequence[Any]
) -> None:
    """Launch a kernel in the current context; `arguments` are ctypes values."""
    pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
    size = (grid, 1, 1, threads, 1, 1, smem_bytes)
    # Grid (x, y, z), block (x, y, z), dynamic shared memory in bytes.
    driver.call("cuLaunchKernel", kernel, *size, stream, ctypes.addressof(pointers), None)


@contextmanager
def scratch(size_bytes: int) -> Iterator[int]:
    """Allocate device memory in the current context; the end of the with block frees it."""
    address = ctypes.c_uint64()
    driver.call("cuMemAlloc_v2", address, max(size_bytes, 1))
    try:
        yield address.value
    finally:
        # After a fault cuMemFree fails too; ignore its result, because the fault is raised already.
        driver.driver_function("cuMemFree_v2")(address)


def upload(address: int, array: npt.NDArray[Any], stream: int) -> None:
    """Copy a contiguous host array to the device, in stream order."""
    driver.call("cuMemcpyHtoDAsync_v2", address, array.ctypes.data, array.nbytes, stream)


def download(array: npt.NDArray[Any], address: int, stream: int) -> None:
    """Copy from the device into a contiguous host array; complete after `synchronize`."""
    driver.call("cuMemcpyDtoHAsync_v2", array.ctypes.data, address, array.nbytes, stream)


def synchronize(stream: int) -> None:
    """Wait for a stream."""
    driver.call("cuStreamSynchronize", stream)


class DeviceBytes:
    """A buffer of GPU memory; a context manager that allocates and frees the memory.

    The buffer has ``__cuda_array_interface__``, so it can be the `memory` of a copy.
    """

    address: int

    def __init__(self, size_bytes: int, device_id: int = 0) -> None:
        self.size_bytes = size_bytes
        self.device_id = device_id
        self.address = 0

    def __enter__(self) -> DeviceBytes:
        self._stack = ExitStack()
        self._stack.enter_context(driver.in_context(self.device_id))
        self.address = self._stack.enter_context(scratch(self.size_bytes))
        return self

    def __exit__(self, *exception: object) -> None:
        self.address = 0
        self._stack.close()

    def put(self, array: npt.NDArray[np.uint8]) -> None:
        """Copy host bytes to the beginning."""
        if array.nbytes > self.size_bytes:
            raise ValueError(f"{array.nbytes} bytes do not fit {self.size_bytes}")
        upload(self.address, array, LEGACY_DEFAULT_STREAM)
        synchronize(LEGACY_DEFAULT_STREAM)

    def get(self) -> npt.NDArray[np.uint8]:
        """Return a host copy of all bytes."""
        array = np.empty(self.size_bytes, np.uint8)
        download(array, self.address, LEGACY_DEFAULT_STREAM)
        synchronize(LEGACY_DEFAULT_STREAM)
        return array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.size_bytes,),
            "data": (self.address, False),
        }


def ordered_stream(tensor: Any, device_id: int, stream: object) -> int:
    """Return the stream to copy on, ordered after the tensor's producer.

    Parameters
    ----------
    tensor : object
        The tensor, or None for a bare address. With None, the copy waits only for earlier work on
        the stream.
    device_id : int
    stream : object
        A CUstream as an integer, or a stream of torch, CuPy, cuda.core or another type with
        ``__cuda_stream__``. None means the current stream of torch or CuPy for their tensors, and
        the legacy default stream for other tensors.

    Returns
    -------
    int
        The CUstream.
    """
    kind: Any = type(tensor)
    native = native_of(kind)
    if stream is not None:
        handle = stream_handle(stream)
        if native and native.wait:
            native.wait(handle, device_id)
    elif native and native.current_stream:
        handle = native.current_stream(device_id)
    else:
        handle = LEGACY_DEFAULT_STREAM
    if not (native and native.wait) and hasattr(kind, "__dlpack__"):
        # __dlpack__ makes the stream wait for the producer's work; the capsule is not needed.
        tensor.__dlpack__(stream=handle or DLPACK_LEGACY_DEFAULT)
    return handle


def stream_handle(stream: object) -> int:
    """Return the CUstream of an integer or a stream object."""
    handle = integer_of(_handle_of(stream))
    if handle is None or handle >> 64:
        raise TmaUnsupportedError(
            f"stream is a {type(stream).__name__}; pass a CUstream as an integer, or a stream of "
            "torch, CuPy or cuda.core"
        )
    return handle


def _handle_of(stream: object) -> object:
    # __cuda_stream__() returns (version of the protocol, handle).
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return protocol()[1]
    # Attributes of torch, CuPy and cuda.core streams.
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            return getattr(stream, attribute)
    return stream
