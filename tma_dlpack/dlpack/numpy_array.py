"""Read NumPy arrays by attributes: from Python quicker than a capsule, with the same result."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tma_dlpack.dlpack.layout import READ_ONLY
from tma_dlpack.dlpack.producer import CODES
from tma_dlpack.tables.enums import DLDeviceType

#: Types of real numbers that NumPy exports -> DLPack's device type and id, code, bits and lanes.
_TYPES = {
    dtype: (DLDeviceType.kDLCPU.value, 0, CODES[dtype.kind].value, 8 * dtype.itemsize, 1)
    for dtype in map(np.dtype, "?bBhHiIlLqQefd")
}


#: Capsule -> the 64-bit words of its struct.
_words_of = ctypes.PYFUNCTYPE(ctypes.POINTER(ctypes.c_size_t), ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
#: PyArrayInterface: int two, nd; char typekind; int itemsize, flags; 4 bytes of padding; then the
#: pointers shape, strides, data. Source: NumPy, "The array interface protocol".
_DATA = 5


def read_array(array: Any) -> tuple[int, tuple[Any, ...]]:
    """Give the address of a ``numpy.ndarray``, not of a subclass, and the items of its `Layout`.

    Raises KeyError for a type that is not in `_TYPES`, ValueError for strides that are no multiples
    of the element size.

    >>> address, layout = read_array(np.zeros((4, 8), np.float16)[:, :4])
    >>> layout
    (1, 0, 2, 16, 1, 0, (4, 4), (8, 1))
    """
    capsule = array.__array_struct__  # owns the struct, and has no name
    address = _words_of(capsule, None)[_DATA]  # in half the time of `array.ctypes.data`
    flags = array.flags
    strides = None if flags.c_contiguous else _in_elements(array.strides, array.itemsize)
    read_only = 0 if flags.writeable else READ_ONLY
    return address, (*_TYPES[array.dtype], read_only, array.shape, strides)


def _in_elements(strides_bytes: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    for stride in strides_bytes:
        if stride % itemsize:
            raise ValueError(f"a stride of {stride} bytes between elements of {itemsize}")
        strides.append(stride // itemsize)
    return tuple(strides)
