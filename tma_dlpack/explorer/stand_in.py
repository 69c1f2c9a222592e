"""A tensor to explore in place of one that no map can describe: same shape, padded rows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.tables.limits import MAX_RANK

ALIGN_BYTES = 128
MAX_BYTES = 1 << 34  # of zeros that are never touched


def stand_in(tensor: object) -> npt.NDArray[np.generic] | None:
    """Give zeros of the same shape and element size, aligned, with rows of whole 16 bytes.

    None for shapes that no map has, and for elements that are no whole bytes.

    >>> stand_in(np.zeros((4, 7), np.float32)).strides
    (32, 4)
    """
    view = as_tensor_view(tensor)
    bits = view.dtype.itemsize_bits
    if bits not in (8, 16, 32, 64) or not 1 <= len(view.shape) <= MAX_RANK or 0 in view.shape:
        return None
    *outer, inner = view.shape
    item = bits // 8
    padded = -(-inner * item // 16) * 16 // item
    count = math.prod(outer) * padded * item
    if count > MAX_BYTES:
        return None
    storage = np.zeros(count + ALIGN_BYTES, np.uint8)
    start = -storage.ctypes.data % ALIGN_BYTES
    rows = storage[start : start + count].view(f"u{item}").reshape(*outer, padded)
    return rows[..., :inner]
