"""The public functions that make the tiled or im2col map of a tensor, or check the arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

from tma_dlpack.make.extension import quick
from tma_dlpack.public import opaque, with_arguments_of
from tma_dlpack.tables.arguments import NO_SWIZZLE
from tma_dlpack.tables.enums import (
    DataType,
    Im2colRules,
    Interleave,
    Ints,
    L2FetchSize,
    OobFill,
    Rules,
    Swizzle,
    Tensor,
    WideMode,
)
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.checks.report import Report


@quick("tiled")
@opaque
def make_tma_descriptor(
    tensor: Tensor,
    box_sizes: Ints,
    elem_strides: Ints | None = None,
    interleave_layout: Interleave = "none",
    swizzle: Swizzle = NO_SWIZZLE,
    l2_fetch_size: L2FetchSize = "none",
    oobfill: OobFill = "none",
    *,
    data_type: DataType | None = None,
    rules: Rules = "libcu++",
    allow: Iterable[str] = (),
    shape: Ints | None = None,
    strides: Ints | None = None,
    offset: SupportsIndex = 0,
    split_inner: bool = False,
    ragged: SupportsIndex | None = None,
    target: Target | str | None = None,
) -> TensorMap:
    """Make the tensor map of a tensor, as ``cuda::make_tma_descriptor`` does in C++.

    Parameters
    ----------
    tensor : object
        Any object with ``__dlpack__`` (PyTorch, JAX, CuPy, NumPy...) of rank 1 to 5, in CUDA,
        managed or host memory. The call does not read or copy the data, and does not synchronize.
        The map keeps the tensor alive.
    box_sizes : sequence of int
        Extents of the tile that one copy moves: row-major, one entry per dimension of the tensor,
        in elements (for packed types, in values), 1..256 each.
    elem_strides : sequence of int, optional
        Distance in the tensor between neighbours in the tile: row-major, one entry per dimension,
        in elements, 1..8 each. None means 1 for all dimensions. The innermost entry is ignored
        unless `interleave_layout` is given.
    interleave_layout : TmaInterleaveLayout, name or value
        ``"bytes16"`` for images stored as NC/8HWC8, ``"bytes32"`` for images stored as NC/16HWC16.
    swizzle : TmaSwizzle, name or value
        Order of the bytes in shared memory, to avoid bank conflicts. If a row of the box has 32,
        64 or 128 bytes, choose ``"bytes32"``, ``"bytes64"`` or ``"bytes128"``. Like other enum
        arguments, `swizzle` also accepts a number of bytes (128) and names of the driver, CUTLASS
        and PTX: ``"SWIZZLE_128B"``, ``"Swizzle<3,4,3>"``, ``"K_SW128"``.
    l2_fetch_size : TmaL2FetchSize, name or value
        Number of bytes that the L2 cache fetches at a time. It changes only the speed.
    oobfill : TmaOobFill, name or value
        Value that a load writes for elements outside of the tensor: ``"none"`` means zeros,
        ``"nan"`` (only for floating-point types) means NaN.
    data_type : TensorMapDataType, name or value, optional
        Another map data type of the same element size, such as ``"TFLOAT32"`` for float32 or
        ``"UINT8"`` for int8. A dtype or its name is accepted too: ``torch.float16`` or ``"bf16"``.
        None means the map data type that libcu++ uses for the tensor's dtype.
    rules : {"libcu++", "driver"}
        ``"libcu++"`` checks all preconditions of cuda::make_tma_descriptor. ``"driver"`` checks
        only the driver's preconditions. With ``"driver"``, boxes may for example be larger than the
        tensor, and strides may overlap.
    allow : iterable of str
        Ids of rules to skip in this call. Only rules of libcu++ that the driver does not have can
        be skipped, such as ``"BOX_IN_SHAPE"`` or ``"STRIDE_UNIQUE"``.
    shape, strides : sequence of int, optional
        Another description of the tensor's memory, as in torch's ``as_strided``: row-major, in
        elements of the tensor's dtype. If you pass only `shape`, the strides are the tensor's own
        strides or those of a contiguous tensor. If both choices are possible and differ, you must
        also pass `strides`.
    offset : int
        Number of elements from the tensor's first element to the first element of the map; may be
        negative. The map may describe memory outside of the tensor, but a copy must not access that
        memory.
    split_inner : bool
        Whether to split the last dimension into spans of the swizzle, so that one copy moves a tile
        wider than a span. You must pass `swizzle`. `box_sizes` is the tile (.., m, k) in the
        tensor's own dimensions. The map has the dimensions (K / span, .., M, span), as
        `tma.split_inner` describes. `split_inner_coords` returns the coordinates of a tile.
    ragged : int, optional
        The dimension along which one map serves slices of any length, as `tma.ragged` describes.
        The map has two additional outer dimensions. `ragged_coords` returns the coordinates of a
        tile.
    target : Target or str, optional
        The GPU that the map is for. None means the tensor's own GPU, or sm_90 for a host tensor.
        The map of a host tensor is not `launchable`.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaPreconditionError
        If the call breaks a rule. The error has every violation with its fix and its source. The
        first violation is the one that libcu++ would report first; the docstring of
        `TmaPreconditionError` lists the exceptions to this order.
    TmaTargetError
        If the target lacks a feature that the call needs. A TmaTargetError is also a
        TmaPreconditionError.
    TmaDriverError
        If the driver refuses a call that the rules accept.

    Notes
    -----
    The driver encodes the maps of CUDA tensors. The maps of host tensors are encoded in the layout
    that was measured on an H200 (driver 580.159.04, 2026-11-20); NVIDIA does not publish the
    layout. Source: libcu++ make_tma_descriptor.h; CUDA driver API, cuTensorMapEncodeTiled.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((128, 64), dtype=np.float16)
    >>> tm = make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    >>> tm.global_dim, tm.global_strides, tm.box_dim, tm.tx_bytes
    ((64, 128), (128,), (64, 16), 2048)
    """
    given = dict(locals())  # the arguments by name
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.make("tiled", given.pop("tensor"), given)


@quick("check_tiled")
@opaque
@with_arguments_of(make_tma_descriptor)
def check_tma_descriptor(tensor: object, options: dict[str, Any]) -> Report:
    """Validate the arguments of `make_tma_descriptor`; return a Report instead of raising.

    The function takes the arguments of `make_tma_descriptor`. A wrong argument does not raise an
    error: the report lists all violations.

    Returns
    -------
    Report
        A report with `.ok`, `.violations` and `.advice`. `.fixed()` returns corrected keyword
        arguments, or None if no correction is known.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((4, 1733), dtype=np.float16)
    >>> report = check_tma_descriptor(x, box_sizes=(4, 64))
    >>> report.ok, [violation.rule for violation in report.violations]
    (False, ['STRIDE_ALIGNED'])
    >>> print(report.violations[0].fix)
    pad the last dimension from 1733 to 1736 elements: y = numpy.empty((4, 1736), x.dtype)[..., :1733]; y[...] = x
    """  # noqa: E501
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.check("tiled", tensor, options)


@quick("im2col")
@opaque
def make_im2col_descriptor(
    tensor: Tensor,
    pixel_box_lower_corner: Ints,
    pixel_box_upper_corner: Ints,
    channels_per_pixel: SupportsIndex,
    pixels_per_column: SupportsIndex,
    elem_strides: Ints | None = None,
    interleave_layout: Interleave = "none",
    swizzle: Swizzle = "none",
    l2_fetch_size: L2FetchSize = "none",
    oobfill: OobFill = "none",
    *,
    data_type: DataType | None = None,
    rules: Im2colRules = "documented",
    allow: Iterable[str] = (),
    shape: Ints | None = None,
    strides: Ints | None = None,
    offset: SupportsIndex = 0,
    target: Target | str | None = None,
) -> TensorMap:
    """Make the im2col tensor map of an image tensor N, [D,] [H,] W, C.

    One load copies `pixels_per_column` pixels of `channels_per_pixel` channels each. The pixels
    follow each other along W, then H, then D, within the bounding box of an image. After the end of
    the bounding box, the load continues in the next image. `make_conv_descriptor` takes the
    arguments of a convolution instead of corners.

    Parameters
    ----------
    tensor : object
        Any object with ``__dlpack__`` of rank 3 to 5. The channels must be the last dimension and
        contiguous.
    pixel_box_lower_corner, pixel_box_upper_corner : sequence of int
        Corners of the bounding box in pixels. The lower corner is an offset from the image's first
        pixel, the upper corner from the last pixel. Both are row-major: (D, H, W), (H, W) or (W,).
    channels_per_pixel : int
        Number of channels that a load copies of each pixel, 1..256.
    pixels_per_column : int
        Number of pixels that a load copies, 1..1024.
    elem_strides : sequence of int, optional
        Distance between the loaded pixels, which is the stride of a convolution: row-major, one
        entry per dimension of the tensor, 1..8 each. The entry for the channels is ignored unless
        `interleave_layout` is given.
    interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, allow, shape, strides, offset, \
target
        As in `make_tma_descriptor`.
    rules : {"documented", "driver"}
        ``"documented"`` checks the requirements of the driver API documentation, and further
        requirements of the measured driver. ``"driver"`` checks only the requirements of the
        measured driver. Only the driver for sm_90 is measured, so for other targets ``"driver"``
        checks the requirements of the documentation.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaPreconditionError
        If the tensor or an argument breaks a rule. The attribute `violations` of the error lists
        all broken rules, each with a fix and a source.

    Notes
    -----
    Source of the rules: CUDA driver API, cuTensorMapEncodeIm2col. The bytes are measured on an
    H200, driver 580.159.04, 2026-11-20.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> images = np.zeros((2, 14, 14, 32), dtype=np.float16)  # N, H, W, C
    >>> lower, upper = tma.im2col_corners((3, 3), padding=1)
    >>> tm = make_im2col_descriptor(images, lower, upper, 32, 64, swizzle="bytes64")
    >>> tm.pixel_box_lower_corner, tm.pixel_box_upper_corner, tm.tx_bytes
    ((-1, -1), (-1, -1), 4096)
    """
    given = dict(locals())  # the arguments by name
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.make("im2col", given.pop("tensor"), given)


@quick("check_im2col")
@opaque
@with_arguments_of(make_im2col_descriptor)
def check_im2col_descriptor(tensor: object, options: dict[str, Any]) -> Report:
    """Validate the arguments of `make_im2col_descriptor`; return a Report instead of raising.

    The function takes the arguments of `make_im2col_descriptor`. A wrong argument does not raise an
    error: the report lists all violations.

    Returns
    -------
    Report
        A report with `.ok`, `.violations` and `.advice`. `.fixed()` returns corrected keyword
        arguments, or None if no correction is known.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((2, 14, 14, 32), dtype=np.float16)
    >>> report = check_im2col_descriptor(images, (0, 0), (-14, 0), 32, 64)
    >>> report.ok, report.violations[0].rule
    (False, 'BOUNDING_BOX')
    """
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.check("im2col", tensor, options)


@quick("im2col_wide")
@opaque
def make_im2col_wide_descriptor(
    tensor: Tensor,
    lower_corner_width: SupportsIndex,
    upper_corner_width: SupportsIndex,
    channels_per_pixel: SupportsIndex,
    pixels_per_column: SupportsIndex,
    elem_strides: Ints | None = None,
    interleave_layout: Interleave = "none",
    swizzle: Swizzle = "bytes128",
    l2_fetch_size: L2FetchSize = "none",
    oobfill: OobFill = "none",
    *,
    mode: WideMode = "w",
    data_type: DataType | None = None,
    rules: Im2colRules = "documented",
    allow: Iterable[str] = (),
    shape: Ints | None = None,
    strides: Ints | None = None,
    offset: SupportsIndex = 0,
    target: Target | str | None = None,
) -> TensorMap:
    """Make the im2col-wide tensor map of an image tensor N, [D,] [H,] W, C.

    The pixels of a load follow each other along W only, with H and D fixed. After the end of the
    row, the load continues in the next image. These maps are for compute capability 10.0 and later;
    their rules are documented, not measured. sm_90 has no instruction that uses such a map, so the
    function refuses sm_90. With ``rules="driver"`` it accepts sm_90, because driver 580.159.04
    encodes these maps for sm_90.

    Parameters
    ----------
    tensor : object
        Any object with ``__dlpack__`` of rank 3 to 5. The channels must be the last dimension and
        contiguous.
    lower_corner_width, upper_corner_width : int
        Bounding box along W in pixels: the lower corner is an offset from the first pixel of a row,
        the upper corner from the last pixel.
    channels_per_pixel, pixels_per_column, elem_strides, interleave_layout, l2_fetch_size, \
oobfill, data_type, rules, allow, shape, strides, offset, target
        As in `make_im2col_descriptor`.
    swizzle : TmaSwizzle, name or value
        The documentation allows only bytes64, bytes128 and bytes128_atom_32B.
    mode : {"w", "w128"}
        With ``"w128"`` a load copies 128 pixels, and `pixels_per_column` is ignored.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaTargetError
        If the target's compute capability is below 10.0 and `rules` is ``"documented"``.
    TmaPreconditionError
        If the tensor or an argument breaks a rule. The attribute `violations` of the error lists
        all broken rules.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((2, 14, 14, 64), dtype=np.float16)
    >>> make_im2col_wide_descriptor(images, -1, -1, 64, 128, target="sm_100").kind
    'im2col_wide'
    """
    given = dict(locals())  # the arguments by name
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.make("im2col_wide", given.pop("tensor"), given)


@quick("check_im2col_wide")
@opaque
@with_arguments_of(make_im2col_wide_descriptor)
def check_im2col_wide_descriptor(tensor: object, options: dict[str, Any]) -> Report:
    """Validate the arguments of `make_im2col_wide_descriptor`; return a Report, never raise.

    The function takes the arguments of `make_im2col_wide_descriptor`. A wrong argument does not
    raise an error: the report lists all violations.

    Returns
    -------
    Report
        A report with `.ok`, `.violations` and `.advice`. `.fixed()` returns corrected keyword
        arguments, or None if no correction is known.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((2, 14, 14, 64), dtype=np.float16)
    >>> check_im2col_wide_descriptor(images, -1, -1, 64, 128).violations[0].rule
    'WIDE_CAPABILITY'
    """
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.check("im2col_wide", tensor, options)
