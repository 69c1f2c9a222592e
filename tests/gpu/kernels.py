"""Kernels of the tests, compiled and launched by the package's own functions."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from tma_dlpack import driver
from tma_dlpack.copies import launch

#: The headers that generated code includes, because NVRTC has no headers on this machine.
CUDA_H = """
struct alignas(128) CUtensorMap { unsigned char opaque[128]; };
namespace std { using uint32_t = unsigned int; using uint64_t = unsigned long long; }
"""


def compile_here(source: str, name: str) -> launch.Library:
    source = source.replace("#include <cuda.h>", CUDA_H).replace("#include <cstdint>", "")
    return launch.compile_source(source, name, driver.device_target(0))


def ways() -> launch.Library:
    return compile_here(Path(__file__).with_name("ways.cu").read_text(), "ways.cu")


def run(library: launch.Library, name: str, threads: int, *arguments) -> None:
    """Launch one block of a kernel on the default stream, and wait."""
    launch.launch(library.kernel(name, 0), 1, threads, 0, 0, arguments)
    launch.synchronize(0)


def status_of(run_with) -> int:
    """Return the status word that a kernel leaves."""
    status = np.full(1, 0xFFFFFFFF, np.uint32)
    with launch.scratch(4) as room:
        launch.upload(room, status, 0)
        run_with(ctypes.c_uint64(room))
        launch.download(status, room, 0)
        launch.synchronize(0)
    return int(status[0])
