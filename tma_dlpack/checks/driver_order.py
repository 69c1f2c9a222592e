"""A tensor's row-major shape and strides become the driver's extents and byte strides."""

from __future__ import annotations

from fractions import Fraction

from tma_dlpack.dlpack import TensorView
from tma_dlpack.tables.arguments import Number
from tma_dlpack.tables.dtypes import row
from tma_dlpack.tables.enums import TensorMapDataType


def driver_layout(
    view: TensorView, data_type: TensorMapDataType | None
) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
    """Turn a tensor's shape and strides into global_dim and global_strides (bytes).

    Extents count values of the map's type: where those are smaller than an element of the tensor
    (packed types) the innermost extent grows, and need not come out whole.

    >>> import numpy as np
    >>> from tma_dlpack.dlpack import as_tensor_view
    >>> driver_layout(as_tensor_view(np.zeros((2, 3, 8), np.float32)), TensorMapDataType.FLOAT32)
    ((8, 3, 2), (32, 96))
    """
    itemsize_bits = view.dtype.itemsize_bits
    dims: tuple[Number, ...] = view.shape[::-1]
    if dims and data_type is not None and row(data_type).is_packed:
        values = _whole(Fraction(view.shape[-1] * itemsize_bits, row(data_type).element_bits))
        dims = (values, *dims[1:])
    outer = view.strides[-2::-1]
    if itemsize_bits % 8 == 0:
        return dims, tuple(stride * (itemsize_bits // 8) for stride in outer)
    return dims, tuple(_whole(Fraction(stride * itemsize_bits, 8)) for stride in outer)


def _whole(number: Fraction) -> Number:
    return int(number) if number.denominator == 1 else number
