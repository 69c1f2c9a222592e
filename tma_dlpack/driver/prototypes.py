"""The argument types of every function of libcuda that this package calls.

Source: cuda.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tma_dlpack.driver.encoders import ENCODERS

_int_out = ctypes.POINTER(ctypes.c_int)
_pointer_out = ctypes.POINTER(ctypes.c_void_p)
#: Name -> argtypes. Every function returns a CUresult.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (_int_out,),
    "cuDeviceGetCount": (_int_out,),
    "cuDeviceGet": (_int_out, ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetAttribute": (_int_out, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (_pointer_out, ctypes.c_int),
    "cuCtxGetCurrent": (_pointer_out,),
    "cuCtxGetDevice": (_int_out,),
    "cuCtxPushCurrent_v2": (ctypes.c_void_p,),
    "cuCtxPopCurrent_v2": (_pointer_out,),
    "cuPointerGetAttribute": (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64),
    "cuTensorMapReplaceAddress": (ctypes.c_void_p, ctypes.c_void_p),
    "cuMemAlloc_v2": (ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t),
    "cuMemFree_v2": (ctypes.c_uint64,),
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoHAsync_v2": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoDAsync_v2": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
    "cuStreamSynchronize": (ctypes.c_void_p,),
    "cuEventCreate": (_pointer_out, ctypes.c_uint),
    "cuEventRecord": (ctypes.c_void_p, ctypes.c_void_p),
    "cuEventSynchronize": (ctypes.c_void_p,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_void_p),
    "cuEventDestroy_v2": (ctypes.c_void_p,),
    "cuLibraryLoadData": (
        _pointer_out,
        ctypes.c_char_p,
        *(ctypes.c_void_p,) * 2,
        ctypes.c_uint,
        *(ctypes.c_void_p,) * 2,
        ctypes.c_uint,
    ),
    "cuLibraryGetKernel": (_pointer_out, ctypes.c_void_p, ctypes.c_char_p),
    "cuLibraryGetGlobal": (
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.c_void_p,
        ctypes.c_char_p,
    ),
    "cuKernelGetAttribute": (_int_out, ctypes.c_int, ctypes.c_void_p, ctypes.c_int),
    "cuKernelSetAttribute": (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int),
    "cuLaunchKernel": (
        ctypes.c_void_p,
        *(ctypes.c_uint,) * 7,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    **{e.function: e.prototype for e in ENCODERS.values()},
}
