"""From a tensor to the driver's layout: what `shape=` describes, extents and strides in bytes.

`split` and `ragged` add the dimensions of these options to an accepted call.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from tma_dlpack.dlpack import TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.abi import RareOptions
from tma_dlpack.tables.arguments import EncodeArguments, Number
from tma_dlpack.tables.dtypes import DATA_TYPES, DLDataType
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.limits import RAGGED_EXTENT, RAGGED_EXTRA_EXTENT, RAGGED_STRIDE_END


class OtherTensor(NamedTuple):
    """Another tensor, over the same memory or a copy of it."""

    address: int
    dtype: DLDataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def described(own: TensorView, rare: RareOptions) -> TensorView:
    """Return the view that `shape=`, `strides=` and `offset=` describe, if they can be read."""
    if rare.shape is None and rare.strides is None and not rare.offset:
        return own
    shape, strides = own.shape if rare.shape is None else rare.shape, rare.strides
    if strides is None:
        strides = own.strides if rare.shape is None else omitted_strides(own, shape)[0]
    return own.as_strided(shape, strides, rare.offset * own.dtype.itemsize_bits // 8)


def omitted_strides(view: TensorView, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return what strides may be meant for a shape without them: the tensor's, or row-major."""
    bits, choices = view.dtype.itemsize_bits, []
    if len(shape) == len(view.shape):
        choices.append(view.strides)
    if view.strides == canonical_strides(view.shape, row_major_strides(view.shape), bits):
        choices.append(canonical_strides(shape, row_major_strides(shape), bits))
    return list(dict.fromkeys(choices))


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
    if dims and data_type is not None and (row := DATA_TYPES[data_type]).is_packed:
        values = _whole(Fraction(view.shape[-1] * itemsize_bits, row.element_bits))
        dims = (values, *dims[1:])
    outer = view.strides[-2::-1]
    if itemsize_bits % 8 == 0:
        return dims, tuple([stride * (itemsize_bits // 8) for stride in outer])
    return dims, tuple(_whole(Fraction(stride * itemsize_bits, 8)) for stride in outer)


def _whole(number: Fraction) -> Number:
    return int(number) if number.denominator == 1 else number


# -- the arguments of the encode -------------------------------------------------------------------


def split(a: EncodeArguments, span: int) -> EncodeArguments:
    """Make the columns of spans the outermost dimension: (.., M, K) is (K / span, .., M, span)."""
    return a._replace(
        global_dim=(span, *a.global_dim[1:], a.global_dim[0] // span),
        global_strides=(*a.global_strides, span * a.type_row.element_bits // 8),
        element_strides=(*a.element_strides, 1),
        box_dim=(span, *a.box_dim[1:], a.box_dim[0] // span),
    )


def ragged_wrap_bytes(element_bits: int) -> int:
    """Return a stride that wraps: times 2^30 it is 0 modulo 2^64, for packed types too."""
    return RAGGED_STRIDE_END * max(8, element_bits) // 8


def ragged(a: EncodeArguments, dim: int) -> EncodeArguments:
    """Add the two dimensions whose strides sum to 2^34 elements; `make.recipes` says why."""
    stride, wrap = a.global_strides[dim - 1], ragged_wrap_bytes(a.type_row.element_bits)
    extents = list(a.global_dim)
    extents[dim] = RAGGED_EXTENT
    return a._replace(
        global_dim=(*extents, RAGGED_EXTRA_EXTENT, RAGGED_EXTRA_EXTENT),
        global_strides=(*a.global_strides, stride, wrap - stride),
        element_strides=(*a.element_strides, 1, 1),
        box_dim=(*a.box_dim, 1, 1),
    )
