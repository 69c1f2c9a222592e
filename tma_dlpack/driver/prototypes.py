"""The argument types of every function of libcuda that this package calls.

Source: cuda.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tma_dlpack.driver.encoders import ENCODERS

#: A letter per parameter: lower case goes in, upper case is written through a pointer.
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
    "cuGetErrorName": "iS",
    "cuGetErrorString": "iS",
}
#: Name -> argtypes. Every function returns a CUresult.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    **{name: tuple(_LETTERS[letter] for letter in text) for name, text in _SIGNATURES.items()},
    **{encoder.function: encoder.prototype for encoder in ENCODERS.values()},
}
