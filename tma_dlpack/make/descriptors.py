"""The public functions that make the map of a tensor, tiled or im2col, and their checks."""

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
        Anything with ``__dlpack__`` (PyTorch, JAX, CuPy, NumPy...) of rank 1 to 5, in CUDA, managed
        or host memory. Its data is not read or copied, and nothing synchronizes. The map keeps the
        tensor alive.
    box_sizes : sequence of int
        Extents of the tile in shared memory: row-major, one per dimension of the tensor, in
        elements (packed types: values), 1..256 each.
    elem_strides : sequence of int, optional
        Step between elements of the tile: row-major, one per dimension, 1..8 each. None means 1
        everywhere. The innermost entry is ignored unless `interleave_layout` is given.
    interleave_layout : TmaInterleaveLayout, name or value
        ``"bytes16"`` or ``"bytes32"`` for images stored as NC/8HWC8 or NC/16HWC16.
    swizzle : TmaSwizzle, name or value
        Order of the bytes in shared memory, to avoid bank conflicts: ``"bytes32"``, ``"bytes64"``
        or ``"bytes128"`` for a row of as many bytes. All enums also accept a number of bytes (128)
        and the names of the driver, CUTLASS and PTX: ``"SWIZZLE_128B"``, ``"Swizzle<3,4,3>"``,
        ``"K_SW128"``.
    l2_fetch_size : TmaL2FetchSize, name or value
        Bytes that L2 fetches at a time. It changes only the speed.
    oobfill : TmaOobFill, name or value
        What a load writes for elements outside of the tensor: zeros, or ``"nan"`` (floats only).
    data_type : TensorMapDataType, name or value, optional
        Another map data type of the same element size, such as ``"TFLOAT32"`` for float32 or
        ``"UINT8"`` for int8. A dtype or its name is accepted too: ``torch.float16`` or ``"bf16"``.
        None means the map data type that libcu++ uses for the tensor's dtype.
    rules : {"libcu++", "driver"}
        ``"libcu++"`` checks all preconditions of make_tma_descriptor. ``"driver"`` checks only
        those of the driver, so it accepts for example boxes larger than the tensor and overlapping
        strides.
    allow : iterable of str
        Ids of rules to skip in this call. Only rules of libcu++ that the driver does not have can
        be skipped, such as ``"BOX_IN_SHAPE"`` or ``"STRIDE_UNIQUE"``.
    shape, strides : sequence of int, optional
        Another description of the tensor's memory, as in torch's ``as_strided``: row-major, in
        elements of the tensor's dtype. If only `shape` is given, the strides are the tensor's own
        or those of a contiguous tensor; where both are possible and differ, `strides` is required.
    offset : int
        Number of elements from the tensor's first element to the first element of the map; may be
        negative. The map may describe memory outside of the tensor, but a copy must not touch it.
    split_inner : bool
        Split the last dimension into spans of `swizzle`, which must be given, so that one copy
        fills a tile wider than the span. `box_sizes` is the tile (.., m, k) in the tensor's own
        dimensions. The map has the dimensions (K / span, .., M, span), as `tma.split_inner`
        describes; `split_inner_coords` returns the coordinates of a tile.
    ragged : int, optional
        Make one map for slices of any length along this dimension, as `tma.ragged` describes. The
        map has two more outer dimensions; `ragged_coords` returns the coordinates of a tile.
    target : Target or str, optional
        The GPU that the map is for. None means the tensor's own GPU. A map of a host tensor is made
        for sm_90 and is not `launchable`.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaPreconditionError
        If the call breaks a rule. The error has every violation with its fix and its source. The
        first violation is the one that libcu++ would throw (`TmaPreconditionError` lists the
        exceptions).
    TmaTargetError
        A TmaPreconditionError for a feature that the target lacks.
    TmaDriverError If the driver refuses a call that the rules accept.

    Notes
    -----
    The driver encodes the maps of CUDA tensors. Without a driver, the 128 bytes follow the layout
    measured on an H200 (driver 580.159.04, 2026-11-20), which NVIDIA does not publish. Source:
    libcu++ make_tma_descriptor.h; CUDA driver API, cuTensorMapEncodeTiled.

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

    Takes the same arguments. A wrong argument does not raise: the report lists what is wrong.

    Returns
    -------
    Report
        `.ok`, `.violations`, `.advice`, and `.fixed()`: corrected keyword arguments, or None.

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

    One load copies `pixels_per_column` pixels of `channels_per_pixel` channels each. It walks along
    W, then H, then D, within the bounding box of each image, then continues in the next image.
    `make_conv_descriptor` takes the arguments of a convolution instead of corners.

    Parameters
    ----------
    tensor : object
        Anything with ``__dlpack__`` of rank 3 to 5, channels last and contiguous.
    pixel_box_lower_corner, pixel_box_upper_corner : sequence of int
        Corners of the bounding box as offsets, in pixels, from the image's first and last pixel.
        Row-major: (D, H, W), (H, W) or (W,).
    channels_per_pixel : int
        1..256, elements.
    pixels_per_column : int
        1..1024.
    elem_strides : sequence of int, optional
        Step from pixel to pixel, which is the stride of a convolution: row-major, one entry per
        dimension of the tensor, 1..8 each. The entry for the channels is ignored unless
        `interleave_layout` is given.
    interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, allow, shape, strides, offset, \
target
        As in `make_tma_descriptor`.
    rules : {"documented", "driver"}
        ``"documented"`` checks what the driver API documentation requires, and what the measured
        driver requires beyond the documentation. ``"driver"`` checks only what the measured driver
        requires; for targets other than sm_90, which are not measured, it checks what the
        documentation requires.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaPreconditionError
        If the tensor or an argument breaks a rule. `violations` has all of them, each with its fix
        and source.

    Notes
    -----
    Source: CUDA driver API, cuTensorMapEncodeIm2col; bytes measured on an H200, driver 580.159.04,
    2026-11-20.

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

    Takes the same arguments. A wrong argument does not raise: the report lists what is wrong.

    Returns
    -------
    Report
        `.ok`, `.violations`, `.advice`, and `.fixed()`: corrected keyword arguments, or None.

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

    A load walks along W only, with H and D fixed, and continues in the next image. These maps are
    for compute capability 10.0 and later; their rules are documented, not measured. For sm_90 they
    are refused unless ``rules="driver"``, because driver 580.159.04 encodes them for sm_90, but
    sm_90 has no instruction that uses them.

    Parameters
    ----------
    tensor : object
        Anything with ``__dlpack__`` of rank 3 to 5, channels last and contiguous.
    lower_corner_width, upper_corner_width : int
        Bounding box along W, as offsets from the row's first and last pixel.
    channels_per_pixel, pixels_per_column, elem_strides, interleave_layout, l2_fetch_size, \
oobfill, data_type, rules, allow, shape, strides, offset, target
        As in `make_im2col_descriptor`.
    swizzle : TmaSwizzle, name or value
        The documentation allows bytes64, bytes128 and bytes128_atom_32B.
    mode : {"w", "w128"}
        With ``"w128"`` a column has 128 pixels, and `pixels_per_column` is ignored.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaTargetError
        For a target below 10.0 with ``rules="documented"``.
    TmaPreconditionError
        If the tensor or an argument breaks a rule; `violations` has all of them.

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

    Takes the same arguments. A wrong argument does not raise: the report lists what is wrong.

    Returns
    -------
    Report
        `.ok`, `.violations`, `.advice`, and `.fixed()`: corrected keyword arguments, or None.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((2, 14, 14, 64), dtype=np.float16)
    >>> check_im2col_wide_descriptor(images, -1, -1, 64, 128).violations[0].rule
    'WIDE_CAPABILITY'
    """
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.check("im2col_wide", tensor, options)
