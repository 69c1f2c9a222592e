"""Im2col maps from the arguments of a convolution: kernel size, padding, stride, dilation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np

from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.make.descriptors import check_im2col_descriptor, make_im2col_descriptor
from tma_dlpack.public import opaque, untraced, with_arguments_of
from tma_dlpack.tables.arguments import CORNERS
from tma_dlpack.tables.coerce import (
    counted,
    entries_of,
    integer_of,
    integers_of,
    nearest_integers,
    reusable,
    shown,
)
from tma_dlpack.tables.enums import (
    DataType,
    Im2colRules,
    Interleave,
    Ints,
    L2FetchSize,
    OobFill,
    Swizzle,
    Tensor,
)
from tma_dlpack.tables.errors import TmaPreconditionError, Violation, argument_violation, bad_value
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.checks.report import Report

MAX_SPATIAL = 3
#: One padding for all dimensions, or a sequence with an entry per dimension. An entry is a number,
#: or two numbers (before, after).
Padding = SupportsIndex | Sequence[SupportsIndex | tuple[SupportsIndex, SupportsIndex]]
#: Argument of a convolution -> the smallest valid value of its entries.
LEAST = {"kernel_size": 1, "padding": 0, "stride": 1, "dilation": 1}


@opaque
def make_conv_descriptor(
    tensor: Tensor,
    kernel_size: SupportsIndex | Ints,
    *,
    padding: Padding = 0,
    stride: SupportsIndex | Ints = 1,
    dilation: SupportsIndex | Ints = 1,
    channels_per_pixel: SupportsIndex,
    pixels_per_column: SupportsIndex,
    interleave_layout: Interleave = "none",
    swizzle: Swizzle = "none",
    l2_fetch_size: L2FetchSize = "none",
    oobfill: OobFill = "none",
    data_type: DataType | None = None,
    rules: Im2colRules = "documented",
    allow: Iterable[str] = (),
    shape: Ints | None = None,
    strides: Ints | None = None,
    offset: SupportsIndex = 0,
    target: Target | str | None = None,
) -> TensorMap:
    """Make the im2col tensor map of a convolution over images N, [D,] [H,] W, C.

    `make_im2col_descriptor` makes the same map if you pass the corners that `im2col_corners`
    returns, and the stride in `elem_strides`. In a kernel, a load for the filter tap with the index
    t uses the im2col offset t x dilation. If p is the first output pixel of a column, the load uses
    the coordinates p x stride - padding.

    Parameters
    ----------
    tensor : object
        Any object with ``__dlpack__`` of rank 3 to 5. The channels must be the last dimension and
        contiguous.
    kernel_size : int or sequence of int
        Extents of the filter in pixels, row-major, one per spatial dimension of the tensor:
        (D, H, W), (H, W) or (W,). A single int applies to each dimension.
    padding : int or sequence
        Number of pixels of zeros on each side of an image. A single int applies to both sides of
        each dimension. A sequence has one entry per dimension: an int for both sides, or a pair
        (before, after), as in ``((1, 2), (0, 1))``.
    stride, dilation : int or sequence of int
        Stride and dilation in pixels, one entry per spatial dimension. A single int applies to each
        dimension. A stride is 1..8.
    channels_per_pixel, pixels_per_column, interleave_layout, swizzle, l2_fetch_size, oobfill, \
data_type, rules, allow, shape, strides, offset, target
        As in `make_im2col_descriptor`.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaPreconditionError
        If the tensor or an argument breaks a rule. The attribute `violations` of the error lists
        all broken rules, each with a fix and a source.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((2, 14, 14, 32), dtype=np.float16)  # N, H, W, C
    >>> tm = make_conv_descriptor(
    ...     images, 3, padding=1, stride=2, channels_per_pixel=32, pixels_per_column=64
    ... )
    >>> tm.pixel_box_lower_corner, tm.pixel_box_upper_corner, tm.elem_strides
    ((-1, -1), (-1, -1), (1, 2, 2, 1))
    """
    given: dict[str, Any] = {name: reusable(value) for name, value in locals().items()}
    given.pop("tensor")
    call = _read(_shape(tensor), given)
    # The report of check_conv_descriptor lists the unreadable arguments and all other violations.
    if call.unreadable:
        check_conv_descriptor(tensor, **given).raise_if_refused()
    try:
        return make_im2col_descriptor(tensor, **call.arguments)
    except TmaPreconditionError as error:
        from tma_dlpack.make.build import reworded

        raise reworded(error, partial(_worded, call)) from error.__cause__


@opaque
@with_arguments_of(make_conv_descriptor)
def check_conv_descriptor(tensor: Any, options: dict[str, Any]) -> Report:
    """Validate the arguments of `make_conv_descriptor`; return a Report instead of raising.

    The function takes the arguments of `make_conv_descriptor`. A wrong argument does not raise an
    error: the report lists all violations.

    Returns
    -------
    Report
        A report with `.ok`, `.violations` and `.advice`. `.fixed()` returns corrected keyword
        arguments, or None if a correction would change the convolution.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((2, 14, 14, 32), dtype=np.float16)
    >>> report = check_conv_descriptor(
    ...     images, (3, 15), channels_per_pixel=32, pixels_per_column=64
    ... )
    >>> print(report.violations[0].found)
    the kernel spans 15 pixels along W, where a padded image has 14
    """
    from tma_dlpack.checks.report import CallInOtherWords

    own_shape, options = _shape(tensor), {name: reusable(v) for name, v in options.items()}
    call = _read(own_shape, options)
    report = check_im2col_descriptor(tensor, **call.arguments)
    violations = (*call.unreadable, *(_worded(call, v) for v in report.violations))
    of_im2col = report._request_of
    assert of_im2col is not None  # every report of a check_* function has a `_request_of`
    return dataclasses.replace(
        report,
        violations=violations,
        advice=() if violations else report.advice,
        _given=options,
        _request_of=None
        if call.unreadable
        else CallInOtherWords(of_im2col, *_kept(own_shape, options)),
    )


def _kept(
    own_shape: tuple[int, ...], options: Mapping[str, Any]
) -> tuple[frozenset[str], dict[str, Any]]:
    """Return the names of the convolution's arguments, and the map's arguments that depend on them.

    A fix must not change any of these arguments, because the convolution would change too. If
    `shape` is not a sequence of integers, but `nearest_integers` can correct it, the map's
    arguments are those for the corrected shape.
    """
    shape = options["shape"]
    if shape is not None and integers_of(shape) is None:
        shape = nearest_integers(shape)
    arguments = _read(own_shape, {**options, "shape": shape}).arguments
    return frozenset(LEAST), {name: arguments[name] for name in (*CORNERS, "elem_strides")}


@untraced
def im2col_corners(
    kernel_size: SupportsIndex | Ints,
    padding: Padding = 0,
    dilation: SupportsIndex | Ints = 1,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the corners of the im2col bounding box of a convolution.

    Pass the corners to `make_im2col_descriptor`, with the convolution's stride in `elem_strides`.
    In a kernel, a load for the filter tap with the index t uses the im2col offset t x dilation.
    `make_conv_descriptor` does both: it computes the corners and passes the stride.

    Parameters
    ----------
    kernel_size : int or sequence of int
        Extents of the filter in pixels, row-major: (D, H, W), (H, W) or (W,). If `padding` or
        `dilation` is a sequence, a single int applies to each dimension. Otherwise a single int
        means (W,).
    padding : int or sequence
        Padding in pixels, one entry per dimension: an int, or a pair (before, after). A single int
        applies to each dimension.
    dilation : int or sequence of int
        Dilation in pixels, one entry per dimension. A single int applies to each dimension.

    Returns
    -------
    lower, upper : tuple of int
        The corners in pixels, row-major. For each dimension, lower = -padding and
        upper = padding - dilation x (kernel_size - 1).

    Raises
    ------
    TmaPreconditionError
        If an entry is not an integer, if an entry of `kernel_size` or `dilation` is below 1, if an
        entry of `padding` is below 0, or if the arguments have different lengths.

    Examples
    --------
    >>> im2col_corners((3, 5), padding=(1, 2))
    ((-1, -2), (-1, -2))
    >>> im2col_corners(3, padding=1, dilation=2)
    ((-1,), (-3,))
    >>> im2col_corners(2, padding=((0, 1), (1, 0)))
    ((0, -1), (0, -1))
    """
    sizes, pads, steps = _entries(kernel_size), _entries(padding), _entries(dilation)
    count = max([len(read) for read in (sizes, pads, steps) if type(read) is tuple], default=1)
    return _corners(
        _required("kernel_size", kernel_size, sizes, count),
        _required("padding", padding, pads, count),
        _required("dilation", dilation, steps, count),
    )


def _required(name: str, given: object, read: object, count: int) -> tuple[Any, ...]:
    values = _per_dimension(name, read, count) if count <= MAX_SPATIAL else None
    if values is None:
        must = f"be an integer of at least {LEAST[name]}, or one per spatial dimension"
        fix = "give (D, H, W), (H, W) or (W,), the same number in each argument"
        raise bad_value(name, given, must, fix)
    return values


# -- reading ---------------------------------------------------------------------------------------


class _Dimension(NamedTuple):
    """The numbers of a convolution along one spatial dimension, in pixels.

    `before` and `after` are the padding on the two sides.
    """

    extent: int
    kernel_size: int
    before: int
    after: int
    stride: int
    dilation: int


class _Call(NamedTuple):
    """A parsed call of `make_conv_descriptor`.

    `arguments` are the arguments for `make_im2col_descriptor`.
    """

    arguments: dict[str, Any]
    unreadable: tuple[Violation, ...] = ()
    # (extents, kernel sizes, paddings, strides, dilations); each is a tuple in the order D, H, W
    convolution: tuple[tuple[Any, ...], ...] = ()


def _shape(tensor: object) -> tuple[int, ...]:
    """Return the shape of a tensor; return () if the tensor cannot be read."""
    try:
        return as_tensor_view(tensor).shape
    except TmaPreconditionError:
        return ()


def _read(own_shape: tuple[int, ...], given: Mapping[str, Any]) -> _Call:
    described = own_shape if given["shape"] is None else integers_of(given["shape"]) or ()
    # all dimensions except N and C are spatial
    spatial = len(described) - 2
    rest = {name: value for name, value in given.items() if name not in LEAST}
    # If the rank is not 3 to 5, `make_im2col_descriptor` refuses the tensor or the shape, so the
    # corners do not matter.
    if not 0 < spatial <= MAX_SPATIAL:
        return _Call(rest | dict.fromkeys(CORNERS, ()) | {"elem_strides": None})
    read = {name: _per_dimension(name, _entries(given[name]), spatial) for name in LEAST}
    lost = tuple(_unfit(n, given[n], spatial) for n, values in read.items() if values is None)
    # Use the smallest value for an unreadable argument, so that the other arguments are checked
    # too.
    sizes, pads, steps, dilations = [read[n] or (least,) * spatial for n, least in LEAST.items()]
    rest["pixel_box_lower_corner"], rest["pixel_box_upper_corner"] = _corners(
        sizes, pads, dilations
    )
    # the steps along N and C are 1
    rest["elem_strides"] = (1, *steps, 1)
    return _Call(rest, lost, (described[1:-1], sizes, pads, steps, dilations))


def _unfit(name: str, value: object, spatial: int) -> Violation:
    order = f"({', '.join('DHW'[-spatial:])}{',' * (spatial == 1)})"
    entries = "entry" if spatial == 1 else "entries"
    must = f"be an integer of at least {LEAST[name]}, or {spatial} {entries} {order}"
    fix = f"pass {order}, or one integer" + " for all of them" * (spatial > 1)
    if name == "padding":
        must += ", each an integer or a pair (before, after)"
        pairs = ((0, 1),) * spatial
        fix += f"; for padding on one side, pairs such as {pairs}"
    must += f": the tensor has {counted(spatial, 'spatial dimension')}"
    return argument_violation(name, f"{name} is {shown(value)}", must, fix)


def _entries(value: object) -> int | tuple[Any, ...] | None:
    """Parse an integer, or a sequence whose entries are integers or sequences of integers.

    Return None for any other value.
    """
    number = None if type(value) is tuple else integer_of(value)
    read = integers_of(value) if number is None else number
    if read is not None or not isinstance(value, (tuple, list, np.ndarray)):
        return read
    entries = [
        one if (one := integer_of(e)) is not None else integers_of(e)
        for e in entries_of(value) or (None,)
    ]
    return None if None in entries else tuple(entries)


def _per_dimension(name: str, read: object, count: int) -> tuple[Any, ...] | None:
    """Return one entry for each of `count` dimensions; repeat a single integer.

    Return None if the number of entries is wrong or an entry is out of range.
    """
    values = read if type(read) is tuple else (read,) * count
    if not 0 < len(values) == count:
        return None
    for value in values:
        # For a pair (before, after), check the smaller number.
        if type(value) is tuple and name == "padding" and len(value) == 2:
            value = min(value)
        if type(value) is not int or value < LEAST[name]:
            return None
    return values


def _sides(padding: int | tuple[int, int]) -> tuple[int, int]:
    return padding if type(padding) is tuple else (padding, padding)  # type: ignore[return-value]


def _corners(
    kernel_size: Sequence[int],
    padding: Sequence[int | tuple[int, int]],
    dilation: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lower, upper = [], []
    for size, pad, step in zip(kernel_size, padding, dilation, strict=True):
        before, after = _sides(pad)
        lower.append(-before)
        upper.append(after - step * (size - 1))
    return tuple(lower), tuple(upper)


# -- the messages of refusals ----------------------------------------------------------------------


def _worded(call: _Call, violation: Violation) -> Violation:
    """Reword a violation: name arguments of the convolution, not the corners or `elem_strides`."""
    if violation.rule not in WORDS:
        fix = _OTHER_CORNERS.sub(", which then breaks BOUNDING_BOX", violation.fix)
        return dataclasses.replace(violation, fix=fix)
    extents, sizes, pads, steps, dilations = call.convolution
    order = "DHW"[-len(extents) :]
    place = ENTRY.search(violation.found)
    # The violation of a rule in WORDS names a dimension (D, H, W) or an entry of elem_strides.
    assert place is not None
    # Entry 0 of elem_strides is for N, so entry 1 is for the first spatial dimension.
    i = order.index(place["along"]) if place["along"] else int(place["entry"]) - 1
    one = _Dimension(extents[i], sizes[i], *_sides(pads[i]), steps[i], dilations[i])
    return dataclasses.replace(violation, **WORDS[violation.rule](f"along {order[i]}", one))


#: The part of a fix that names corners: ", and use a kernel no larger than ...; the nearest that
#: fit ...". `_worded` replaces this part, because corners are not arguments of
#: `make_conv_descriptor`.
_OTHER_CORNERS = re.compile(r", and use a kernel no larger than [^;]*; the nearest that fit [^;]*")
#: The part of a violation's text that names a dimension or an entry of `elem_strides`, such as
#: "along H", "(H" or "elem_strides[2]".
ENTRY = re.compile(r"(\(|along )(?P<along>[DHW])\b|elem_strides\[(?P<entry>\d+)\]")
TILED = "load tiles of an ordinary map (make_tma_descriptor), which has no corners"


def _lower(where: str, of: _Dimension) -> dict[str, str]:
    found = f"padding is {of.before} {where}, which makes the lower corner {-of.before}"
    fix = f"pad a copy of the images and pass less padding, or {TILED}"
    return {"argument": "padding", "found": found, "fix": fix}


def _upper(where: str, of: _Dimension) -> dict[str, str]:
    upper = of.after - of.dilation * (of.kernel_size - 1)
    if upper > 0:
        found = f"padding is {of.after} {where}, which makes the upper corner {upper}"
        return _lower(where, of) | {"found": found}
    found = (
        f"the upper corner is {upper} {where}: padding {of.after} - dilation {of.dilation} x "
        f"(kernel_size {of.kernel_size} - 1)"
    )
    return {"argument": "kernel_size", "found": found, "fix": TILED}


def _bounding_box(where: str, of: _Dimension) -> dict[str, str]:
    spans, padded = of.dilation * (of.kernel_size - 1) + 1, of.before + of.after + of.extent
    if spans <= padded:
        # The kernel fits, so the violation is about a sum that wraps around in the driver. Do not
        # change the message of the violation.
        return {}
    return {
        "argument": "kernel_size",
        "found": f"the kernel spans {counted(spans, 'pixel')} {where}, where a padded image has "
        f"{padded}",
        "limit": "it must fit into the padded image along every spatial dimension",
        "fix": "no window fits: pass larger images, or the padding that the convolution has",
    }


def _stride(where: str, of: _Dimension) -> dict[str, str]:
    step = of.stride
    fix = f"pass stride=1 and use one output pixel in {step} {where}: no map takes larger steps"
    return {"argument": "stride", "found": f"stride is {step} {where}", "fix": fix}


#: Rule -> a function that returns new values for fields of the rule's violation (argument, found,
#: limit, fix). The two arguments of the function are a text for a spatial dimension, such as
#: "along H", and the numbers of this dimension.
WORDS: dict[str, Callable[[str, _Dimension], dict[str, str]]] = {
    "LOWER_CORNER": _lower,
    "UPPER_CORNER": _upper,
    "BOUNDING_BOX": _bounding_box,
    "ELEM_STRIDES_RANGE": _stride,
}
