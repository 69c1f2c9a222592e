"""The public functions that have the parameters of the driver's functions.

Arrays are innermost first, and strides are in bytes, as in the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from tma_dlpack.make.extension import quick
from tma_dlpack.public import opaque
from tma_dlpack.tables.enums import (
    DataType,
    Interleave,
    Ints,
    L2FetchSize,
    OobFill,
    Swizzle,
    WideMode,
)
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.make.build import Encoder


@quick("driver_tiled")
@opaque
def driver_encode_tiled(
    tensor_data_type: DataType,
    tensor_rank: SupportsIndex,
    global_address: SupportsIndex,
    global_dim: Ints,
    global_strides: Ints,
    box_dim: Ints,
    element_strides: Ints,
    interleave: Interleave = 0,
    swizzle: Swizzle = 0,
    l2_promotion: L2FetchSize = 0,
    oob_fill: OobFill = 0,
    *,
    target: Target | str = "sm_90",
    encoder: Encoder = "auto",
) -> TensorMap:
    """Encode a tiled map from the arguments of ``cuTensorMapEncodeTiled``, with or without a GPU.

    Parameters
    ----------
    tensor_data_type, tensor_rank, global_address, global_dim, global_strides, box_dim, \
element_strides, interleave, swizzle, l2_promotion, oob_fill
        The driver's arguments. Arrays are innermost first. `global_dim`, `box_dim` and
        `element_strides` have `tensor_rank` entries, in elements. `global_strides` has
        `tensor_rank` - 1 entries, in bytes, for dimensions 1 to `tensor_rank` - 1. Entries past the
        rank are ignored, as in C.
    target : Target or str
        The GPU that the map is for.
    encoder : {"auto", "driver", "model"}
        ``"driver"`` calls cuTensorMapEncodeTiled. ``"model"`` uses the measured layout, which
        exists only for sm_90. ``"auto"`` calls the driver if this machine's GPU has the compute
        capability of `target`, and uses the measured layout otherwise.

    Returns
    -------
    TensorMap
        A map with an address and without a tensor. You must keep the memory alive.

    Raises
    ------
    TmaPreconditionError
        For sm_90, if and only if the driver refuses the call [measured, H200, driver 580.159.04,
        2026-11-20]. For other targets, if the driver API documentation forbids the call.
    TmaDriverError
        If the driver was called and refused the call. The message shows each argument.
    TmaUnsupportedError
        If `encoder` cannot encode for `target` on this machine.

    Examples
    --------
    >>> tm = driver_encode_tiled("FLOAT32", 2, 0x7F0000000000, (64, 64), (256,), (16, 16), (1, 1),
    ...                          encoder="model")
    >>> bytes(tm)[:16].hex()
    '00000000007f00009003000010000000'
    """
    given = dict(locals())  # the arguments by name
    from tma_dlpack.make import build

    return build.mirror("tiled", given, target, encoder)


@opaque
def driver_replace_address(tensor_map: TensorMap, global_address: SupportsIndex) -> TensorMap:
    """Return a copy of a map with another address, as ``cuTensorMapReplaceAddress`` does.

    Only the first 8 bytes change [measured, H200, driver 580.159.04, 2026-11-20]. If this
    machine's GPU has the compute capability of the map's target, the driver is called too and must
    return the same bytes.

    Parameters
    ----------
    tensor_map : TensorMap
        Any map that has bytes. It may be a map of 128 zero bytes.
    global_address : int
        A multiple of 16, above 0 and below 2^57. Some maps need a multiple of 32, but the driver
        does not check this [measured]; `TensorMap.with_address` does.

    Returns
    -------
    TensorMap
        A map with an address and without a tensor. You must keep the memory alive.
        `TensorMap.with_address` takes a tensor and keeps the tensor alive.

    Raises
    ------
    TmaPreconditionError
        If the address is misaligned, out of range or not an integer.
    TmaDriverError
        If the driver refuses the call.

    Examples
    --------
    >>> tm = driver_replace_address(TensorMap.from_bytes(bytes(128)), 0x7F0000000000)
    >>> bytes(tm)[:8].hex()
    '00000000007f0000'
    """
    from tma_dlpack.make import build

    return build.replace_address(tensor_map, global_address)


@quick("driver_im2col")
@opaque
def driver_encode_im2col(
    tensor_data_type: DataType,
    tensor_rank: SupportsIndex,
    global_address: SupportsIndex,
    global_dim: Ints,
    global_strides: Ints,
    pixel_box_lower_corner: Ints,
    pixel_box_upper_corner: Ints,
    channels_per_pixel: SupportsIndex,
    pixels_per_column: SupportsIndex,
    element_strides: Ints,
    interleave: Interleave = 0,
    swizzle: Swizzle = 0,
    l2_promotion: L2FetchSize = 0,
    oob_fill: OobFill = 0,
    *,
    target: Target | str = "sm_90",
    encoder: Encoder = "auto",
) -> TensorMap:
    """Encode an im2col map from ``cuTensorMapEncodeIm2col``'s arguments, with or without a GPU.

    Parameters
    ----------
    tensor_data_type, tensor_rank, global_address, global_dim, global_strides, element_strides, \
interleave, swizzle, l2_promotion, oob_fill, target, encoder
        As in `driver_encode_tiled`.
    pixel_box_lower_corner, pixel_box_upper_corner : sequence of int
        Corners of the bounding box in pixels. The lower corner is an offset from the image's first
        pixel, the upper corner from the last pixel. Both are innermost first: (W,), (W, H) or
        (W, H, D). The hardware reads the corners in this order [measured, H200, driver 580.159.04,
        2026-11-20], although the driver API documentation writes {D, H, W}.
    channels_per_pixel : int
        Number of channels that a copy moves of each pixel, 1..256.
    pixels_per_column : int
        Number of pixels that a copy moves, 1..1024.

    Returns
    -------
    TensorMap
        A map with an address and without a tensor. You must keep the memory alive.

    Raises
    ------
    TmaPreconditionError, TmaDriverError, TmaUnsupportedError
        As `driver_encode_tiled` does.

    Examples
    --------
    >>> tm = driver_encode_im2col("FLOAT16", 4, 0x7F0000000000, (32, 14, 14, 2),
    ...                           (64, 896, 12544), (-1, -1), (-1, -1), 32, 64, (1, 1, 1, 1),
    ...                           encoder="model")
    >>> bytes(tm)[55:62].hex()
    '1fffffffff3f00'
    """
    given = dict(locals())  # the arguments by name
    from tma_dlpack.make import build

    return build.mirror("im2col", given, target, encoder)


@quick("driver_im2col_wide")
@opaque
def driver_encode_im2col_wide(
    tensor_data_type: DataType,
    tensor_rank: SupportsIndex,
    global_address: SupportsIndex,
    global_dim: Ints,
    global_strides: Ints,
    pixel_box_lower_corner_width: SupportsIndex,
    pixel_box_upper_corner_width: SupportsIndex,
    channels_per_pixel: SupportsIndex,
    pixels_per_column: SupportsIndex,
    element_strides: Ints,
    interleave: Interleave = 0,
    mode: WideMode = 0,
    swizzle: Swizzle = 3,
    l2_promotion: L2FetchSize = 0,
    oob_fill: OobFill = 0,
    *,
    target: Target | str = "sm_90",
    encoder: Encoder = "auto",
) -> TensorMap:
    """Encode a wide im2col map from ``cuTensorMapEncodeIm2colWide``'s arguments.

    The function needs no GPU. The documentation requires compute capability 10.0 for these maps.
    The measured driver also encodes these maps for sm_90, so this function accepts sm_90 too, and
    `TensorMap.advice` has a warning.

    Parameters
    ----------
    tensor_data_type, tensor_rank, global_address, global_dim, global_strides, element_strides, \
interleave, l2_promotion, oob_fill, target, encoder
        As in `driver_encode_tiled`.
    pixel_box_lower_corner_width, pixel_box_upper_corner_width : int
        Bounding box along W in pixels: the lower corner is an offset from the first pixel of a row,
        the upper corner from the last pixel.
    channels_per_pixel : int
        Number of channels that a copy moves of each pixel, 1..256.
    pixels_per_column : int
        Number of pixels that a copy moves, 1..1024.
    mode : TensorMapIm2ColWideMode, name or value
        With ``"w128"`` a copy moves 128 pixels, and `pixels_per_column` is ignored.
    swizzle : TmaSwizzle, name or value
        The documentation allows only bytes64, bytes128 and bytes128_atom_32B.

    Returns
    -------
    TensorMap
        A map with an address and without a tensor. You must keep the memory alive.

    Raises
    ------
    TmaPreconditionError, TmaDriverError, TmaUnsupportedError
        As `driver_encode_tiled` does.

    Examples
    --------
    >>> tm = driver_encode_im2col_wide("FLOAT16", 4, 0x7F0000000000, (64, 14, 14, 2),
    ...                                (128, 1792, 25088), -1, -1, 64, 64, (1, 1, 1, 1),
    ...                                encoder="model")
    >>> tm.kind, [a.rule for a in tm.advice]
    ('im2col_wide', ['WIDE_ON_SM_90'])
    """
    given = dict(locals())  # the arguments by name
    from tma_dlpack.make import build

    return build.mirror("im2col_wide", given, target, encoder)
