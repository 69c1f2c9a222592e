"""A tensor map as an argument of a numba-cuda-mlir kernel."""

from __future__ import annotations

import functools
import re
import sys
from importlib import import_module
from typing import Any

from tma_dlpack.tables.errors import TmaUnsupportedError

#: The parameter in PTX of a kernel that gets the 128 bytes, for example
#: ``.param .align 64 .b8 kernel_param_0[128]``. The parameter for a pointer is ``.param .u64``.
BY_VALUE = re.compile(r"\.param\s+\.align\s+\d+\s+\.b8\s+\w+\[128\]")


def numba_type() -> Any:
    """Return numba-cuda-mlir's type of a map that is passed to a kernel by value.

    Raises
    ------
    AttributeError
        If numba-cuda-mlir is not imported. Numba then reports an argument of unknown type.
    TmaUnsupportedError
        If the installed compiler compiles the parameter as a pointer, so that the kernel would use
        the first 8 bytes of the map as its address.
    """
    if "numba_cuda_mlir" not in sys.modules:
        raise AttributeError("_numba_type_ is for numba-cuda-mlir, which is not imported")
    if not _passes_maps_by_value():
        version = import_module("numba_cuda_mlir").__version__
        raise TmaUnsupportedError(
            f"numba-cuda-mlir {version} compiles a parameter of type CUTensorMap as a pointer, so "
            "the kernel would use the first 8 bytes of the map as its address (measured: version "
            "0.6.0, H100, driver 580.159.04, 2026-11-24). Pass the map in device memory: "
            "m = tensor_map.as_torch().cuda(), pass m.data_ptr() and keep m alive; the kernel "
            "calls fence_acquire"
        )
    return import_module("numba_cuda_mlir.types").CUTensorMap


@functools.cache
def _passes_maps_by_value() -> bool:
    """Compile a kernel whose only parameter is a map; return whether its PTX has 128 bytes.

    The result is also True on a machine without a driver, because no kernel can be launched on it.
    """
    cuda, types = map(import_module, ("numba_cuda_mlir.cuda", "numba_cuda_mlir.types"))
    no_driver = import_module("numba_cuda_mlir.numba_cuda.cudadrv.error").CudaSupportError
    signature = types.void(types.grid_constant(types.CUTensorMap))
    try:
        ptx, _ = cuda.compile_ptx(lambda tensor_map: None, signature)
    except no_driver:
        return True
    return BY_VALUE.search(ptx) is not None
