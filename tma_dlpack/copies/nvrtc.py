"""Compilation of CUDA C++ with NVRTC, once for each process, source and architecture."""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from tma_dlpack import driver
from tma_dlpack.include import get_include
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.targets import Target

#: Headers that kernels may include; NVRTC gets their texts with the source, so it needs no folder.
HEADERS = ("tma_dlpack.h", "tma_dlpack_mma.h", "tma_dlpack_check.h")
INSTALL = "pip install cuda-bindings nvidia-cuda-nvrtc"
#: CUfunction_attribute (cuda.h).
_SHARED_SIZE_BYTES = 1
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


@dataclass(frozen=True)
class Library:
    """A compiled source that is loaded in all contexts (CUlibrary)."""

    handle: int
    #: (name, device id) -> CUkernel.
    kernels: dict[tuple[str, int], int] = field(default_factory=dict)

    def kernel(self, name: str, device_id: int) -> int:
        """Return a kernel that may use the whole shared memory of a device."""
        found = self.kernels.get((name, device_id))
        if found is None:
            kernel = ctypes.c_void_p()
            driver.call("cuLibraryGetKernel", kernel, self.handle, name.encode())
            static = ctypes.c_int()
            driver.call("cuKernelGetAttribute", static, _SHARED_SIZE_BYTES, kernel, device_id)
            # The static shared memory of the kernel counts against the limit of a block.
            dynamic = driver.device_target(device_id).max_smem_bytes - static.value
            attribute = _MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuKernelSetAttribute", attribute, dynamic, kernel, device_id)
            assert kernel.value is not None
            found = self.kernels[name, device_id] = kernel.value
        return found


@lru_cache(maxsize=16)
def packaged(name: str, package: str) -> str:
    """Return the text of a CUDA source in the folder kernels/ of a package."""
    return (files(package) / "kernels" / name).read_text(encoding="utf-8")


_compiling = threading.Lock()


def _unlock() -> None:
    global _compiling
    # A child process has only one thread, so nothing would release a lock that was held at fork.
    _compiling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def compile_source(source: str, name: str, target: Target) -> Library:
    """Compile and load CUDA C++ for a GPU's own architecture; the same source is compiled once.

    Parameters
    ----------
    source : str
        CUDA C++ that includes no headers but those in `HEADERS`. Its kernels are ``extern "C"``.
    name : str
        File name, for messages.
    target : Target

    Raises
    ------
    TmaUnsupportedError
        If the target has no TMA, NVRTC is missing or too old, or the source does not compile. The
        message includes the compiler's log.
    """
    if not target.has_tma:
        raise TmaUnsupportedError(
            f"this GPU is {target}: tensor maps need compute capability 9.0 (Hopper) or later; use "
            'backend="simulator"'
        )
    with _compiling:
        return _compile(source, name, f"{target.name}a")


def compile_packaged(name: str, package: str, target: Target, head: str = "") -> Library:
    """Compile `head` and a source in the folder kernels/ of a package, as one text."""
    return compile_source(head + packaged(name, package), name, target)


@lru_cache(maxsize=64)
def _compile(source: str, name: str, architecture: str) -> Library:
    nvrtc = require()
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    names = [name.encode() for name in HEADERS]
    texts = [(Path(get_include()) / name).read_bytes() for name in HEADERS]
    # `texts` are the headers, `names` their names in #include.
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


def require() -> Any:
    """Return NVRTC's bindings with the library loaded; else raise `TmaUnsupportedError`."""
    try:
        nvrtc = import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise TmaUnsupportedError(
            f"the CUDA backend compiles its kernels with NVRTC, and {error}: {INSTALL}"
        ) from error
    try:
        nvrtc.nvrtcVersion()
    # The error of a missing library depends on the version of cuda-bindings.
    except Exception as error:
        raise TmaUnsupportedError(f"NVRTC cannot be loaded ({error}): {INSTALL}") from error
    return nvrtc
