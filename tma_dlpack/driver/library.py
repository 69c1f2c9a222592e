"""libcuda: loading the library, calling its functions, listing GPUs, and switching contexts.

Source: cuda.h of CUDA 13.0 (prototypes, attribute numbers).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tma_dlpack.tables.errors import TmaDriverError, TmaUnsupportedError
from tma_dlpack.tables.targets import Target

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
#: CUdevice_attribute (cuda.h).
_MULTIPROCESSOR_COUNT = 16
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
#: CUpointer_attribute (cuda.h).
_POINTER_CONTEXT = 1
_POINTER_DEVICE_ORDINAL = 9
_POINTER_RANGE_START = 11
_POINTER_RANGE_SIZE = 12
#: CUresult (cuda.h).
SUCCESS = 0
_INVALID_VALUE = 1
_INVALID_CONTEXT = 201
#: Results after which this process can run no kernel, such as CUDA_ERROR_ILLEGAL_INSTRUCTION.
_KILLED = frozenset({700, 702, 714, 715, 716, 717, 718, 719})

#: Function -> the first driver that has the function, as a CUDA version with the version of the
#: Linux driver in brackets. A function without an entry exists in the driver `_WITH_TENSOR_MAPS`
#: and in all later drivers.
_WITH_TENSOR_MAPS = "CUDA 12.0 (525.60)"
_SINCE = {"cuTensorMapEncodeIm2colWide": "CUDA 12.8 (570.26)"}


#: Letter -> ctypes class. A lower-case letter is the type of an input. The same letter in upper
#: case is a pointer to this type, through which the function writes a result.
_LETTERS: dict[str, Any] = {
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "q": ctypes.c_uint64,
    "s": ctypes.c_char_p,
    "p": ctypes.c_void_p,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
}
_LETTERS |= {letter.upper(): ctypes.POINTER(kind) for letter, kind in _LETTERS.items()}

# Function of cuda.h -> one letter of `_LETTERS` per parameter.
_SIGNATURES = {
    "cuInit": "u",
    "cuDriverGetVersion": "I",
    "cuDeviceGetCount": "I",
    "cuDeviceGet": "Ii",
    "cuDeviceGetName": "sii",
    "cuDeviceGetAttribute": "Iii",
    "cuDevicePrimaryCtxRetain": "Pi",
    "cuCtxGetCurrent": "P",
    "cuCtxGetDevice": "I",
    "cuCtxPushCurrent_v2": "p",
    "cuCtxPopCurrent_v2": "P",
    "cuPointerGetAttribute": "piq",
    "cuTensorMapReplaceAddress": "pp",
    "cuMemAlloc_v2": "Qz",
    "cuMemFree_v2": "q",
    "cuMemcpyHtoDAsync_v2": "qpzp",
    "cuMemcpyDtoHAsync_v2": "pqzp",
    "cuMemcpyDtoDAsync_v2": "qqzp",
    "cuStreamSynchronize": "p",
    "cuEventCreate": "Pu",
    "cuEventRecord": "pp",
    "cuEventSynchronize": "p",
    "cuEventElapsedTime": "Fpp",
    "cuEventDestroy_v2": "p",
    "cuLibraryLoadData": "Psppuppu",
    "cuLibraryGetKernel": "Pps",
    "cuLibraryGetGlobal": "QZps",
    "cuKernelGetAttribute": "Iipi",
    "cuKernelSetAttribute": "iipi",
    "cuLaunchKernel": "puuuuuuuppp",
    "cuLaunchKernelEx": "pppp",
    "cuGetErrorName": "iS",
    "cuGetErrorString": "iS",
}


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One GPU: its ordinal, its name, and its Target.

    >>> str(DeviceFacts(0, "NVIDIA H200", Target((9, 0), driver_version=13020)))
    'NVIDIA H200 (sm_90, driver of CUDA 13.2)'
    """

    index: int
    name: str
    target: Target

    def __str__(self) -> str:
        return f"{self.name} ({self.target}, driver of CUDA {_dotted(self.target.driver_version)})"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The driver and the GPUs of this machine.

    Attributes
    ----------
    version : int or None
        The result of ``cuDriverGetVersion``, such as 13000 for CUDA 13.0; None without a driver.
    devices : tuple of DeviceFacts
        The GPUs in the order of their ordinals.
    reason : str or None
        The reason why no GPU can be used; None if a GPU can be used.
    """

    version: int | None
    devices: tuple[DeviceFacts, ...]
    reason: str | None


def tool(name: str) -> str | None:
    """Return the path of a program of the CUDA toolkit, such as nvcc; None if it is not found."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    folders = [os.environ.get("PATH", ""), f"{home}/bin"]
    return shutil.which(name, path=os.pathsep.join(folders))


def is_available() -> bool:
    """Return whether there is a driver with at least one GPU, without raising an error."""
    return status().reason is None


def status() -> DriverStatus:
    """Return the driver and the GPUs, without raising an error.

    The first call in a process calls the driver. Later calls return the same `DriverStatus`.
    """
    return _survey()[1]


def device_target(device_id: int) -> Target:
    """Return the Target of a GPU.

    Parameters
    ----------
    device_id : int
        The GPU's ordinal, which is also its device index in frameworks and in DLPack.

    Raises
    ------
    TmaUnsupportedError
        If there is no driver, or if this machine has no GPU with this ordinal.
    """
    found = status()
    if found.reason is not None:
        raise TmaUnsupportedError(found.reason)
    if not 0 <= device_id < len(found.devices):
        raise TmaUnsupportedError(
            f"there is no GPU {device_id}: the driver shows {len(found.devices)}, counted from 0"
        )
    return found.devices[device_id].target


def current_device() -> int | None:
    """Return the ordinal of the current context's GPU; None without a context or a driver."""
    if not is_available():
        return None
    current = ctypes.c_void_p()
    _succeed("cuCtxGetCurrent", _library().cuCtxGetCurrent(current))
    if not current:
        return None
    device = ctypes.c_int()
    _succeed("cuCtxGetDevice", _library().cuCtxGetDevice(device))
    return device.value


def pointer_device(address: int) -> int | None:
    """Return the ordinal of an address's GPU; None if CUDA did not allocate the memory.

    For managed memory, the result is the GPU whose context allocated the memory.
    """
    device = ctypes.c_int(-1)
    known = _ask_pointer(_POINTER_DEVICE_ORDINAL, address, device)
    return device.value if known and device.value >= 0 else None


def pointer_range(address: int) -> tuple[int, int] | None:
    """Return the start and the size in bytes of the allocation that contains an address.

    None if CUDA did not allocate the address.
    """
    start, size_bytes = ctypes.c_uint64(), ctypes.c_size_t()
    if not _ask_pointer(_POINTER_RANGE_START, address, start):
        return None
    if not _ask_pointer(_POINTER_RANGE_SIZE, address, size_bytes):
        return None
    return start.value, size_bytes.value


def _ask_pointer(attribute: int, address: int, answer: Any) -> bool:
    # For an address that CUDA did not allocate, the driver returns one of the two results below.
    result = _library().cuPointerGetAttribute(ctypes.addressof(answer), attribute, address)
    if result in (_INVALID_VALUE, _INVALID_CONTEXT):
        return False
    _succeed("cuPointerGetAttribute", result)
    return True


@contextmanager
def in_context(device_id: int | None) -> Iterator[int]:
    """Make a GPU's primary context current in a ``with`` block.

    At the end of the block, the context that was current before is current again.

    Parameters
    ----------
    device_id : int or None
        The ordinal of the GPU. None keeps the current context. If no context is current, None means
        GPU 0.

    Yields
    ------
    int
        The ordinal of the GPU.
    """
    current = current_device()
    if device_id is None and current is not None:
        yield current
        return
    ordinal = device_id or 0
    with _pushed(_primary_context(ordinal)):
        yield ordinal


def call_in_context(device_id: int | None, function: Any, *arguments: Any) -> tuple[int, int]:
    """Call a function of the driver in a GPU's primary context.

    The call is faster if the GPU's primary context is already current.

    Returns
    -------
    result, device_id : int
        The CUresult, and the ordinal of the GPU whose context was used.
    """
    if device_id is None:
        with in_context(None) as ordinal:
            return function(*arguments), ordinal
    context, current = _primary_context(device_id), ctypes.c_void_p()
    _library().cuCtxGetCurrent(current)
    # Usually the context is already current, so that it need not be pushed and popped.
    if current.value == context:
        return function(*arguments), device_id
    with _pushed(context):
        return function(*arguments), device_id


@contextmanager
def in_context_of(address: int) -> Iterator[int]:
    """Make the context that allocated an address current in a ``with`` block.

    At the end of the block, the context that was current before is current again. Memory from a
    memory pool belongs to no context. For such memory, the primary context of the memory's GPU is
    used.

    Yields
    ------
    int
        The ordinal of the GPU.

    Raises
    ------
    TmaUnsupportedError
        If CUDA did not allocate the address.
    """
    ordinal = pointer_device(address)
    if ordinal is None:
        raise TmaUnsupportedError(
            f"CUDA does not know the address {address:#x}, so no GPU of this process can use it: "
            "make the map from a CUDA tensor, or allocate the memory with CUDA"
        )
    context = ctypes.c_void_p()
    _ask_pointer(_POINTER_CONTEXT, address, context)
    with _pushed(context.value or _primary_context(ordinal)):
        yield ordinal


@contextmanager
def _pushed(context: int) -> Iterator[None]:
    call("cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        call("cuCtxPopCurrent_v2", ctypes.c_void_p())


@lru_cache(maxsize=1)
def _survey() -> tuple[Any, DriverStatus]:
    """Load the library and list the GPUs. The result is cached until the process forks."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        reason = f"no CUDA driver: {LIBRARY} was not found ({error}); install an NVIDIA driver"
        return None, DriverStatus(None, (), reason)
    # An old driver lacks some functions. `driver_function` raises an error if the caller needs such
    # a function.
    for name, letters in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes = [_LETTERS[letter] for letter in letters]
    version = ctypes.c_int()
    library.cuDriverGetVersion(version)
    try:
        devices = _start(library, version.value)
    except TmaDriverError as error:
        return None, DriverStatus(version.value, (), f"the CUDA driver cannot start: {error}")
    none = None if devices else f"the CUDA driver ({_dotted(version.value)}) shows no GPU"
    return library, DriverStatus(version.value, devices, none)


def _start(library: Any, version: int) -> tuple[DeviceFacts, ...]:
    _succeed("cuInit", library.cuInit(0), library)
    _forget_after_fork()
    count = ctypes.c_int()
    _succeed("cuDeviceGetCount", library.cuDeviceGetCount(count), library)
    return tuple(_facts(library, i, version) for i in range(count.value))


@lru_cache(maxsize=1)
def _forget_after_fork() -> None:
    """Register hooks that clear the caches in a forked child.

    The child must load the driver again, because the parent's CUDA state is invalid in the child.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_survey.cache_clear)
        os.register_at_fork(after_in_child=_primary_context.cache_clear)


def _facts(library: Any, index: int, version: int) -> DeviceFacts:
    device, value, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    library.cuDeviceGet(device, index)
    library.cuDeviceGetName(name, len(name), device.value)

    def attribute(number: int) -> int:
        result = library.cuDeviceGetAttribute(value, number, device.value)
        _succeed("cuDeviceGetAttribute", result, library)
        return value.value

    target = Target(
        (attribute(_COMPUTE_CAPABILITY_MAJOR), attribute(_COMPUTE_CAPABILITY_MINOR)),
        attribute(_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        version,
        attribute(_MULTIPROCESSOR_COUNT),
    )
    return DeviceFacts(index, name.value.decode(errors="replace"), target)


def _library() -> Any:
    library, found = _survey()
    if found.reason is not None:
        raise TmaUnsupportedError(found.reason)
    return library


def driver_function(name: str) -> Any:
    """Return a function of the driver by name; raise if the driver is too old to have it."""
    library = _library()
    function = getattr(library, name, None)
    if function is None:
        raise TmaUnsupportedError(
            f"the driver (CUDA {_dotted(status().version)}) has no {name}; it needs a driver of "
            f"{_SINCE.get(name, _WITH_TENSOR_MAPS)} or later"
        )
    return function


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; raise `TmaDriverError` if the result is not CUDA_SUCCESS."""
    _succeed(name, driver_function(name)(*arguments))


def _dotted(version: int | None) -> str:
    # cuDriverGetVersion returns 1000 * major + 10 * minor.
    return "?" if version is None else f"{version // 1000}.{version % 1000 // 10}"


@lru_cache(maxsize=64)
def _primary_context(device_id: int) -> int:
    """Retain a GPU's primary context, once per process. The context is never released."""
    device_target(device_id)
    context = ctypes.c_void_p()
    _succeed("cuDevicePrimaryCtxRetain", _library().cuDevicePrimaryCtxRetain(context, device_id))
    assert context.value is not None
    return context.value


def _succeed(function: str, result: int, library: Any = None) -> None:
    if result != SUCCESS:
        raise TmaDriverError(f"{function} returned {result_name(result, library)}")


def result_name(result: int, library: Any = None) -> str:
    """Return the name, number and text of a CUresult."""
    library = library or _survey()[0]
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(result, name)
    library.cuGetErrorString(result, text)
    if not name.value or not text.value:
        return f"the unknown CUresult {result}"
    lost = "; the context is lost: restart the process" if result in _KILLED else ""
    return f"{name.value.decode()} ({result}): {text.value.decode()}{lost}"
