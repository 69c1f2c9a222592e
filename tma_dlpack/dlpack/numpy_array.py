"""NumPy arrays, by their attributes: quicker than a capsule, and the same numbers.

Only for `numpy.ndarray` itself. Of its subclasses some hide a mask or a unit, so they are asked
through `__dlpack__` like any other producer.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from tma_dlpack.dlpack.layout import READ_ONLY, Layout, Reading
from tma_dlpack.dlpack.producer import CODES, first_dlpack_reading
from tma_dlpack.dlpack.refusals import refuse
from tma_dlpack.types.enums import DLDeviceType

__all__ = ["ARRAYS_ARE_OPEN", "read_numpy"]

#: The data pointer is the first field after the object's head (PyArrayObject_fields, NumPy's
#: ndarraytypes.h); every extension that uses NumPy's C API has this offset compiled in.
_DATA_OFFSET = object.__basicsize__
_DATA_WORD = _DATA_OFFSET // 8 - 1  # in `_words`

#: All memory as 8-byte words, from address 8 on (0 would be null). from_address would tell Python's
#: audit hooks of each read, which takes longer than the read where one listens.
_words = ctypes.cast(8, ctypes.POINTER(ctypes.c_uint64))


def _arrays_are_open() -> bool:
    if sys.implementation.name != "cpython":  # elsewhere id() is no address
        return False
    probe = np.empty(1)
    return bool(_words[(id(probe) >> 3) + _DATA_WORD] == probe.ctypes.data)


#: Whether `read_numpy` works with this interpreter and this NumPy.
ARRAYS_ARE_OPEN = _arrays_are_open()


def read_numpy(array: np.ndarray[Any, Any]) -> Reading:
    """Read a NumPy array, or refuse a null one."""
    address = _words[(id(array) >> 3) + _DATA_WORD]
    shape = array.shape
    if not address and 0 not in shape:
        refuse("TENSOR_NULL", f"has shape {shape} and a null address")
    signature = (_numpy_layout, array.dtype, shape, array.strides, array.flags.writeable)
    return address, signature, None


_DTYPES = {
    dtype: (CODES[dtype.kind].value, 8 * dtype.itemsize)
    for dtype in map(np.dtype, "?bBhHiIlLqQefdFD")
}


def _numpy_layout(
    array: np.ndarray[Any, Any],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    byte_strides: tuple[int, ...],
    writeable: bool,
) -> Layout:
    """Put what NumPy told in DLPack's numbers; leave what it may not export to its `__dlpack__`."""
    known = _DTYPES.get(dtype)
    if known is None or any(stride % dtype.itemsize for stride in byte_strides):
        _, (_, (_, layout), _) = first_dlpack_reading(array)
        return layout  # type: ignore[no-any-return]
    code, bits = known
    flags = 0 if writeable else READ_ONLY
    strides = [stride // dtype.itemsize for stride in byte_strides]
    return DLDeviceType.kDLCPU.value, 0, code, bits, 1, flags, shape, tuple(strides)
