"""The swizzles that a map could have instead of its own."""

from __future__ import annotations

from dataclasses import replace

from tma_dlpack.encoding.arguments import EncodeArguments
from tma_dlpack.make.driver_words import (
    driver_encode_im2col,
    driver_encode_im2col_wide,
    driver_encode_tiled,
)
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.enums import TmaSwizzle
from tma_dlpack.types.errors import TmaError

__all__ = ["with_other_swizzles"]


def with_other_swizzles(own: EncodeArguments, tensor_map: TensorMap) -> list[EncodeArguments]:
    """Give arguments with each other swizzle that the rules accept on the GPU of a map.

    `own` are the map's, or those of what is copied through it, such as the four rows of gather4.

    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 32), np.float16), (64, 32))
    >>> [a.swizzle.name for a in with_other_swizzles(tm.arguments, tm)]
    ['bytes64', 'bytes128']
    """
    others = [replace(own, swizzle=s) for s in TmaSwizzle if s is not own.swizzle]
    return [a for a in others if _is_accepted(a, tensor_map)]


def _is_accepted(a: EncodeArguments, tensor_map: TensorMap) -> bool:
    """Whether a map of these arguments can be made at the same address."""
    target, address = tensor_map.target, tensor_map.global_address
    head = (a.data_type, a.rank, address, a.global_dim, a.global_strides)
    lower, upper = a.pixel_box_lower_corner, a.pixel_box_upper_corner
    column = (a.channels_per_pixel, a.pixels_per_column, a.element_strides, a.interleave)
    try:
        if a.kind == "tiled":
            tiled = (*head, a.box_dim, a.element_strides, a.interleave, a.swizzle)
            driver_encode_tiled(*tiled, target=target)
        elif a.kind == "im2col":
            driver_encode_im2col(*head, lower, upper, *column, a.swizzle, target=target)
        else:
            wide = (*head, lower[0], upper[0], *column, a.mode, a.swizzle)
            driver_encode_im2col_wide(*wide, target=target)
    except TmaError:
        return False
    return True
