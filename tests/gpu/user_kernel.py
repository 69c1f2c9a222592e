"""double_tiles.cu as a user's own kernel, compiled and launched by cuda.bindings."""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path

import tma_dlpack as tma
from tma_dlpack.include import get_include

SOURCE = (Path(__file__).parent / "double_tiles.cu").read_text(encoding="utf-8")
BOX = 16, 32
THREADS = 32


def without_includes(source: str) -> str:
    """Replace each ``#include`` of a header of this package by the header's text."""
    headers = Path(get_include())
    line = r'^#include ["<](tma_dlpack\w*\.h)[">]$'

    def text_of(found: re.Match[str]) -> str:
        return without_includes((headers / found[1]).read_text(encoding="utf-8"))

    return re.sub(line, text_of, source, flags=re.M)


#: For compilers that have no include path.
SELF_CONTAINED = without_includes(SOURCE)


def map_of(x) -> tma.TensorMap:
    return tma.make_tma_descriptor(x, BOX)


def grid_of(tensor_map: tma.TensorMap) -> tuple[int, int]:
    rows, columns = tensor_map.shape
    return columns // BOX[1], rows // BOX[0]


@functools.cache
def kernel():
    """Compile the source with NVRTC and return its kernel, as in the guide of cuda.bindings."""
    from cuda.bindings import driver, nvrtc

    _, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"double_tiles.cu", 0, [], [])
    options = [b"--gpu-architecture=sm_90a", f"-I{get_include()}".encode()]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size_bytes = nvrtc.nvrtcGetCUBINSize(program)
    code = bytearray(size_bytes)
    nvrtc.nvrtcGetCUBIN(program, code)
    result, module = driver.cuModuleLoadData(bytes(code))
    assert result == driver.CUresult.CUDA_SUCCESS
    result, function = driver.cuModuleGetFunction(module, b"double_tiles")
    assert result == driver.CUresult.CUDA_SUCCESS
    return function


def double(tensor_map: tma.TensorMap, stream: int) -> None:
    """Double every element of the map's tensor, on a stream."""
    from cuda.bindings import driver

    arguments = (tensor_map.as_cuda_bindings(), tensor_map.tx_bytes), (None, ctypes.c_uint)
    size = (*grid_of(tensor_map), 1, THREADS, 1, 1, 0)
    (result,) = driver.cuLaunchKernel(kernel(), *size, stream, arguments, 0)
    assert result == driver.CUresult.CUDA_SUCCESS
