"""Functions that compile the CUDA kernels of this package with NVRTC and launch them.

A process compiles each source once per architecture. This module also allocates device memory and
orders streams.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack import driver
from tma_dlpack.dlpack import native_of
from tma_dlpack.include import get_include
from tma_dlpack.tables.coerce import integer_of
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.targets import Target

#: Headers that kernels may include. NVRTC receives their texts, so it needs no include path.
HEADERS = ("tma_dlpack.h", "tma_dlpack_mma.h", "tma_dlpack_check.h")
INSTALL = "pip install cuda-bindings nvidia-cuda-nvrtc"
LEGACY_DEFAULT_STREAM = 0
#: Value of `__dlpack__`'s argument `stream` for the legacy default stream (array API standard).
DLPACK_LEGACY_DEFAULT = 1
#: Values of the enum CUfunction_attribute (cuda.h).
_SHARED_SIZE_BYTES = 1
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


@dataclass(frozen=True)
class Library:
    """A compiled source, loaded as a CUlibrary, so its kernels can run in every context."""

    handle: int
    #: (name, device id) -> CUkernel.
    kernels: dict[tuple[str, int], int] = field(default_factory=dict)

    def kernel(self, name: str, device_id: int) -> int:
        """Return a kernel that may use all shared memory that a block can have on a device."""
        found = self.kernels.get((name, device_id))
        if found is None:
            kernel = ctypes.c_void_p()
            driver.call("cuLibraryGetKernel", kernel, self.handle, name.encode())
            static = ctypes.c_int()
            driver.call("cuKernelGetAttribute", static, _SHARED_SIZE_BYTES, kernel, device_id)
            # Static and dynamic shared memory together must fit the limit of a block.
            dynamic = driver.device_target(device_id).max_smem_bytes - static.value
            attribute = _MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuKernelSetAttribute", attribute, dynamic, kernel, device_id)
            assert kernel.value is not None
            found = self.kernels[name, device_id] = kernel.value
        return found


@lru_cache(maxsize=16)
def packaged(name: str, package: str) -> str:
    """Return the text of the CUDA source kernels/<name> of a Python package."""
    return (files(package) / "kernels" / name).read_text(encoding="utf-8")


_compiling = threading.Lock()


def _unlock() -> None:
    global _compiling
    # If another thread holds the lock during a fork, no thread of the child process releases it.
    _compiling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def compile_source(source: str, name: str, target: Target) -> Library:
    """Compile and load CUDA C++ for the architecture of `target`, such as sm_90a.

    A second call with the same arguments returns the same `Library`.

    Parameters
    ----------
    source : str
        CUDA C++ that includes only headers in `HEADERS`. Its kernels are ``extern "C"``.
    name : str
        File name of the source, which the messages of NVRTC contain.
    target : Target

    Raises
    ------
    TmaUnsupportedError
        If the target has no TMA, if NVRTC is missing or too old, or if the source does not compile.
        If the source does not compile, the message includes the compiler's log.
    """
    if not target.has_tma:
        raise TmaUnsupportedError(
            f"this GPU is {target}: tensor maps need compute capability 9.0 (Hopper) or later; use "
            'backend="simulator"'
        )
    with _compiling:
        return _compile(source, name, f"{target.name}a")


def compile_packaged(name: str, package: str, target: Target, head: str = "") -> Library:
    """Compile the text `head`, followed by the source kernels/<name> of a Python package."""
    return compile_source(head + packaged(name, package), name, target)


@lru_cache(maxsize=64)
def _compile(source: str, name: str, architecture: str) -> Library:
    nvrtc = nvrtc_bindings()
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    names = [name.encode() for name in HEADERS]
    texts = [(Path(get_include()) / name).read_bytes() for name in HEADERS]
    # `names` are the header names that an #include may contain; `texts` are the headers' texts.
    result, program = nvrtc.nvrtcCreateProgram(
        source.encode(), name.encode(), len(names), texts, names
    )
    if result != success:
        raise TmaUnsupportedError(f"NVRTC cannot start: {result}")
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"-default-device"]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if result != success:
        log = _output(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        raise TmaUnsupportedError(
            f"{name} does not compile for {architecture}: {result}; a newer NVRTC may know it: "
            f"{INSTALL}\n{log}"
        )
    code = _output(nvrtc, program, "CUBIN")
    nvrtc.nvrtcDestroyProgram(program)
    library = ctypes.c_void_p()
    driver.call("cuLibraryLoadData", library, code, None, None, 0, None, None, 0)
    assert library.value is not None
    return Library(library.value)


def _output(nvrtc: Any, program: Any, what: str) -> bytes:
    _, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    buffer = bytearray(size)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return bytes(buffer)


def nvrtc_bindings() -> Any:
    """Return the module cuda.bindings.nvrtc; raise `TmaUnsupportedError` if NVRTC is missing."""
    try:
        nvrtc = import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise TmaUnsupportedError(
            f"the CUDA backend compiles its kernels with NVRTC, and {error}: {INSTALL}"
        ) from error
    try:
        nvrtc.nvrtcVersion()
    # The type of this error depends on the version of cuda-bindings.
    except Exception as error:
        raise TmaUnsupportedError(f"NVRTC cannot be loaded ({error}): {INSTALL}") from error
    return nvrtc


def by_value(data: bytes) -> Any:
    """Return a kernel argument that passes `data` by value, such as the bytes of a tensor map."""
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def launch(
    kernel: int, grid: int, threads: int, smem_bytes: int, stream: int, arguments: Sequence[Any]
) -> None:
    """Launch a kernel with a one-dimensional grid in the current context.

    The kernel arguments in `arguments` are ctypes values.
    """
    pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
    size = (grid, 1, 1, threads, 1, 1, smem_bytes)
    # `size` is the grid (x, y, z), the block (x, y, z) and the bytes of dynamic shared memory.
    driver.call("cuLaunchKernel", kernel, *size, stream, ctypes.addressof(pointers), None)


@contextmanager
def scratch(size_bytes: int) -> Iterator[int]:
    """Yield the address of device memory in the current context; free the memory afterwards."""
    address = ctypes.c_uint64()
    driver.call("cuMemAlloc_v2", address, max(size_bytes, 1))
    try:
        yield address.value
    finally:
        # Ignore the result of cuMemFree. cuMemFree fails after a fault of a kernel, but then the
        # fault itself has already raised an error.
        driver.driver_function("cuMemFree_v2")(address)


def upload(address: int, array: npt.NDArray[Any], stream: int) -> None:
    """Copy a contiguous host array to the device, in stream order."""
    driver.call("cuMemcpyHtoDAsync_v2", address, array.ctypes.data, array.nbytes, stream)


def download(array: npt.NDArray[Any], address: int, stream: int) -> None:
    """Copy from the device into a contiguous host array, in stream order.

    The array is complete after `synchronize`.
    """
    driver.call("cuMemcpyDtoHAsync_v2", array.ctypes.data, address, array.nbytes, stream)


def synchronize(stream: int) -> None:
    """Wait until all work on a stream has finished."""
    driver.call("cuStreamSynchronize", stream)


class DeviceBytes:
    """A buffer of GPU memory, allocated when a with block begins and freed when it ends.

    The buffer has ``__cuda_array_interface__``, so it can be the argument `memory` of a copy.
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
        """Copy host bytes to the beginning of the buffer."""
        if array.nbytes > self.size_bytes:
            raise ValueError(f"{array.nbytes} bytes do not fit {self.size_bytes}")
        upload(self.address, array, LEGACY_DEFAULT_STREAM)
        synchronize(LEGACY_DEFAULT_STREAM)

    def get(self) -> npt.NDArray[np.uint8]:
        """Return the bytes of the whole buffer as a host array."""
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
    """Return the stream to copy on; make it wait for the producer's work on the tensor.

    Parameters
    ----------
    tensor : object
        The tensor, or None for a bare address. For a bare address, the copy waits only for earlier
        work on the stream.
    device_id : int
    stream : object
        A CUstream as an integer, or a stream of torch, CuPy, cuda.core or another type with
        ``__cuda_stream__``. If `stream` is None, the result for a torch or CuPy tensor is the
        current stream of torch or CuPy. In all other cases the result is the legacy default stream.

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
        # __dlpack__ makes the stream wait for the producer's work. Its result, a capsule, is not
        # needed.
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
