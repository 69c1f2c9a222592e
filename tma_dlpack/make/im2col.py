"""Public functions for im2col maps: the tiles of a convolution as columns of pixels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

from tma_dlpack.make.extension import quick
from tma_dlpack.public import opaque, with_arguments_of
from tma_dlpack.tables.enums import (
    DataType,
    Im2colRules,
    Interleave,
    Ints,
    L2FetchSize,
    OobFill,
    Swizzle,
    Tensor,
    WideMode,
)
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.checks.report import Report


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
