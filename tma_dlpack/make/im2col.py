"""Public functions for im2col maps: the tiles of a convolution as columns of pixels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

from tma_dlpack.make.extension import quick
from tma_dlpack.tables.coerce import integer_of, integers_of
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
from tma_dlpack.tables.errors import unfit
from tma_dlpack.tables.public import opaque, untraced, with_arguments_of
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.checks.report import Report

MAX_SPATIAL = 3


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
    W, then H, then D, within the bounding box of each image, then goes on in the next image.
    `im2col_corners` computes the corners for a convolution.

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
        Step from pixel to pixel, the stride of a convolution: row-major, one entry per dimension of
        the tensor, 1..8 each. The entry for the channels is ignored unless interleaved.
    interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, allow, shape, strides, offset, \
target
        As in `make_tma_descriptor`.
    rules : {"documented", "driver"}
        ``"documented"`` checks what the driver API documentation requires, and what the driver was
        measured to require beyond it. ``"driver"`` checks only what the measured driver requires;
        for targets other than sm_90, where nothing is measured, it checks the documentation.

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
    >>> import numpy as np
    >>> images = np.zeros((2, 14, 14, 32), dtype=np.float16)  # N, H, W, C
    >>> lower, upper = im2col_corners((3, 3), padding=1)
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

    Takes the same arguments, and never raises for a wrong one: the report says what is wrong.

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

    A load walks along W only, with H and D fixed, and goes on in the next image. For compute
    capability 10.0 and later: documented, not measured. Refused for sm_90 unless
    ``rules="driver"``: driver 580.159.04 encodes such a map there, but sm_90 has no instruction
    that uses it.

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

    Takes the same arguments, and never raises for a wrong one: the report says what is wrong.

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


@untraced
def im2col_corners(
    kernel_size: SupportsIndex | Ints,
    padding: SupportsIndex | Ints = 0,
    dilation: SupportsIndex | Ints = 1,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the corners of the im2col bounding box of a convolution.

    Pass them to `make_im2col_descriptor`; the convolution's stride goes into `elem_strides`. A load
    for the filter tap at position t uses the im2col offset t x dilation.

    Parameters
    ----------
    kernel_size : int or sequence of int
        Filter extents in pixels, row-major: (D, H, W), (H, W) or (W,). A single int means (W,),
        unless `padding` or `dilation` has more entries: then it applies to each dimension.
    padding, dilation : int or sequence of int
        In pixels, one per dimension; a single int applies to each.

    Returns
    -------
    lower, upper : tuple of int
        Row-major: lower = -padding, upper = padding - dilation x (kernel_size - 1).

    Raises
    ------
    TmaPreconditionError
        If an entry is not an integer, kernel_size or dilation is below 1, padding is below 0, or
        the arguments have different lengths.

    Examples
    --------
    >>> im2col_corners((3, 5), padding=(1, 2))
    ((-1, -2), (-1, -2))
    >>> im2col_corners(3, padding=1, dilation=2)
    ((-1,), (-3,))
    """
    sizes, pads, steps = _one_or_more(kernel_size), _one_or_more(padding), _one_or_more(dilation)
    count = max(len(sizes), len(pads), len(steps))
    sizes = _per_dimension("kernel_size", kernel_size, sizes, count, 1)
    pads = _per_dimension("padding", padding, pads, count, 0)
    steps = _per_dimension("dilation", dilation, steps, count, 1)
    upper = [p - d * (k - 1) for k, p, d in zip(sizes, pads, steps, strict=True)]
    return tuple([-p for p in pads]), tuple(upper)


def _one_or_more(value: object) -> tuple[int, ...]:
    """Return the integers of a sequence, or a single one; none if it is neither."""
    one = None if type(value) is tuple else integer_of(value)
    return (one,) if one is not None else integers_of(value) or ()


def _per_dimension(
    name: str, given: object, values: tuple[int, ...], count: int, least: int
) -> tuple[int, ...]:
    if len(values) == 1 < count and integer_of(given) is not None:
        values *= count
    if not 0 < len(values) == count <= MAX_SPATIAL or min(values) < least:
        must = f"be an integer of at least {least}, or one per spatial dimension"
        fix = "give (D, H, W), (H, W) or (W,), the same number in each argument"
        raise unfit(name, given, must, fix)
    return values
