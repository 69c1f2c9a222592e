"""The short cut: an ordinary call becomes a map in one straight line, or None for "not sure".

It never refuses and never explains. Where it returns None, the rules (`build.make`) decide: they
refuse with reasons, or accept after all. Whatever is accepted here, the rules accept too, with the
same bytes. Ordinary means: a dense tensor in host memory or on a GPU of compute capability 9.0, no
interleaved layout, no `target`.

Every threshold comes from `types.limits`; the rules use the same ones and cite their sources.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.dlpack.capsule import DIRECT, parse_capsule
from tma_dlpack.dlpack.layout import READ_ONLY, row_major_strides
from tma_dlpack.dlpack.producer import CODES, MAX_VERSION
from tma_dlpack.dlpack.torch_tensor import torch_dtype_table
from tma_dlpack.encoding.arguments import EncodeArguments
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.dtypes import DATA_TYPES, DataTypeRow, DLDataType, data_type_of, overrides_of
from tma_dlpack.types.enums import (
    NAMES,
    DLDeviceType,
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.types.limits import (
    ADDRESS_END,
    INNER_BYTES,
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_DIM,
    MAX_ELEM_STRIDE,
    MAX_PIXELS,
    MAX_RANK,
    STRIDE_BYTES_END,
    SWIZZLE_SPAN_BYTES,
)
from tma_dlpack.types.target import DEFAULT_TARGET, Target

__all__ = ["accept_im2col", "accept_im2col_wide", "accept_tiled"]

_Layout = tuple[Any, ...]  # as dlpack.Layout: a plain tuple is quicker to make

_HOST, _CUDA = DLDeviceType.kDLCPU.value, DLDeviceType.kDLCUDA.value


def accept_tiled(
    tensor: Any,
    box_sizes: Any,
    elem_strides: Any,
    interleave_layout: Any,
    swizzle: Any,
    l2_fetch_size: Any,
    oobfill: Any,
    data_type: Any,
    rules: Any,
    target: Any,
) -> TensorMap | None:
    """Make the map for the arguments of `make_tma_descriptor`; None for "not sure"."""
    try:
        plain = _plain_options(interleave_layout, swizzle, l2_fetch_size, oobfill, data_type)
        libcudacxx = rules == "libcu++"
        if plain is None or target is not None or not (libcudacxx or rules == "driver"):
            return None
        address, layout, kind = _typed(tensor, plain)
        dims, strides_bytes = _extents(address, layout, kind.element_bytes, libcudacxx)
        box = _integers(box_sizes, len(dims), 1, MAX_BOX)
        steps = _steps(elem_strides, dims, libcudacxx, libcudacxx)
        inner_bytes = box[0] * kind.element_bytes
        if inner_bytes % INNER_BYTES or inner_bytes > plain.span_bytes:
            return None
        whole_bytes = box_bytes = kind.element_bytes
        for size, dim, step in zip(box, dims, steps):  # noqa: B905 # strict=True is slower
            if size > dim and libcudacxx:
                return None
            whole_bytes *= size
            box_bytes *= size // step  # rounding down, as the driver does
        gpu = _target_of(layout)
        if box_bytes > MAX_BOX_BYTES or (libcudacxx and whole_bytes > gpu.max_smem_bytes):
            return None
        data = None  # for host tensors: encoded when the bytes are first needed
        if layout[0] == _CUDA:
            arguments = EncodeArguments(
                "tiled", kind.data_type, dims, strides_bytes, steps, box, **plain.words
            )
            data = _by_driver(arguments, address, layout[1])
        given = None if elem_strides is None else tuple(elem_strides)
        options = box[::-1], given, 0, *plain[:4], rules, None
        return _accepted(0, tensor, address, layout, data, options)
    except Exception:  # the rules will meet the same problem and explain it
        return None


def accept_im2col(
    tensor: Any,
    pixel_box_lower_corner: Any,
    pixel_box_upper_corner: Any,
    channels_per_pixel: Any,
    pixels_per_column: Any,
    elem_strides: Any,
    interleave_layout: Any,
    swizzle: Any,
    l2_fetch_size: Any,
    oobfill: Any,
    data_type: Any,
    rules: Any,
    target: Any,
) -> TensorMap | None:
    """Make the map for the arguments of `make_im2col_descriptor`; None for "not sure"."""
    try:
        plain = _plain_options(interleave_layout, swizzle, l2_fetch_size, oobfill, data_type)
        documented = rules == "documented"
        if plain is None or target is not None or not (documented or rules == "driver"):
            return None
        address, layout, kind = _typed(tensor, plain)
        dims, strides_bytes = _extents(address, layout, kind.element_bytes, documented)
        bits = _CORNER_BITS[len(dims)]
        half = 1 << (bits - 1)
        lower = _integers(pixel_box_lower_corner, len(dims) - 2, -half, half - 1)
        upper = _integers(pixel_box_upper_corner, len(dims) - 2, -half, half - 1)
        (channels,) = _integers((channels_per_pixel,), 1, 1, MAX_BOX)
        (pixels,) = _integers((pixels_per_column,), 1, 1, MAX_PIXELS)
        steps = _steps(elem_strides, dims, documented, False)
        inner_bytes = channels * kind.element_bytes
        if inner_bytes % INNER_BYTES or inner_bytes > plain.span_bytes:
            return None
        if inner_bytes * pixels > MAX_BOX_BYTES:
            return None
        for dim, low, high in zip(dims[1:-1], lower, upper, strict=True):
            if dim >= _MAY_WRAP or dim + high - low <= 0:
                return None
        _target_of(layout)
        data = None  # for host tensors: encoded when the bytes are first needed
        if layout[0] == _CUDA:
            arguments = EncodeArguments(
                "im2col", kind.data_type, dims, strides_bytes, steps, **plain.words,
                pixel_box_lower_corner=lower, pixel_box_upper_corner=upper,
                channels_per_pixel=channels, pixels_per_column=pixels,
            )  # fmt: skip
            data = _by_driver(arguments, address, layout[1])
        given = None if elem_strides is None else tuple(elem_strides)
        options = (
            lower[::-1], upper[::-1], channels, pixels, given, 0, *plain[:4], rules, None
        )  # fmt: skip
        return _accepted(1, tensor, address, layout, data, options)
    except Exception:  # the rules will meet the same problem and explain it
        return None


def accept_im2col_wide(*arguments: Any) -> TensorMap | None:
    """Give None: these maps are for sm_100 and later, whose bytes have not been measured."""
    return None


def _by_driver(arguments: EncodeArguments, address: int, device_id: int) -> bytes:
    from tma_dlpack import driver  # loaded when the first CUDA tensor comes

    return driver.encode(arguments, address, device_id)


class _NotSureError(Exception):
    """Raised inside the short cut for "not sure"; the rules take over."""


#: Rank -> bits of one entry of a corner.
_CORNER_BITS = {3: 16, 4: 8, 5: 5}
_MAY_WRAP = 1 << 30  # larger extents may overflow the driver's 32-bit sum of extent and corner


def _accepted(
    kind: int,
    tensor: object,
    address: int,
    layout: _Layout,
    data: bytes | None,
    options: tuple[Any, ...],
) -> TensorMap:
    on_gpu = layout[0] == _CUDA
    return TensorMap._accepted(tensor, data, on_gpu, (kind, address, layout, options, on_gpu))


class _Plain(NamedTuple):
    """The options that all `make_*` functions share, as numbers, and what follows from them."""

    swizzle: int
    l2: int
    fill: int
    data_type: int | None
    span_bytes: int  # most bytes of a row of the box
    words: dict[str, Any]  # for EncodeArguments


@functools.lru_cache(maxsize=1024, typed=True)
def _plain_options(
    interleave_layout: Any, swizzle: Any, l2_fetch_size: Any, oobfill: Any, data_type: Any
) -> _Plain | None:
    if _number(TmaInterleaveLayout, interleave_layout) != TmaInterleaveLayout.none:
        return None
    pattern = _number(TmaSwizzle, swizzle)
    l2 = _number(TmaL2FetchSize, l2_fetch_size)
    fill = _number(TmaOobFill, oobfill)
    asked_type = None if data_type is None else _number(TensorMapDataType, data_type)
    if pattern is None or l2 is None or fill is None or pattern > TmaSwizzle.bytes128:
        return None
    if data_type is not None and asked_type is None:
        return None
    words = {
        "swizzle": TmaSwizzle(pattern),
        "l2_promotion": TmaL2FetchSize(l2),
        "oob_fill": TmaOobFill(fill),
    }
    span_bytes = SWIZZLE_SPAN_BYTES[pattern] or MAX_BOX_BYTES
    return _Plain(pattern, l2, fill, asked_type, span_bytes, words)


def _typed(tensor: Any, plain: _Plain) -> tuple[int, _Layout, DataTypeRow]:
    """Get the address and layout of a tensor, and the type of its map, which the fill must suit."""
    address, layout = _look_at(tensor)
    kind = _type_of(layout[2], layout[3], layout[4], plain.data_type)
    if kind.is_packed or (plain.fill and not kind.is_float):
        raise _NotSureError
    return address, layout, kind


def _look_at(tensor: Any) -> tuple[int, _Layout]:
    """Get the address and layout of a tensor, if its type is one of those known here."""
    kind = type(tensor)
    torch = sys.modules.get("torch")
    if torch is not None and (kind is torch.Tensor or kind is torch.nn.Parameter):
        ordinal = tensor.get_device()  # -1 on the host
        if tensor.is_neg() or not (tensor.is_cpu if ordinal < 0 else _is_cuda(torch, tensor)):
            raise _NotSureError
        device = (_HOST, 0) if ordinal < 0 else (_CUDA, ordinal)
        dtype = torch_dtype_table()[tensor.dtype]
        shape, strides = tuple(tensor.shape), tensor.stride()
        return tensor.data_ptr(), (*device, *dtype, 0, shape, strides)
    if kind is np.ndarray:
        return _look_at_array(tensor.__array_interface__)
    package = kind.__module__.partition(".")[0]
    if package not in ("cupy", "jax", "jaxlib"):
        raise _NotSureError
    stream = {}
    if tensor.__dlpack_device__()[0] == _CUDA:
        stream["stream"] = -1 if package == "cupy" else 1  # JAX would read -1 as a stream handle
    capsule = tensor.__dlpack__(max_version=MAX_VERSION, **stream)
    address, layout = parse_capsule(capsule, DIRECT)
    if package != "cupy":  # JAX arrays are immutable, but their capsules are not flagged read-only
        layout = layout._replace(flags=READ_ONLY)
    return address, layout


#: NumPy's typestr -> DLPack's code and bits, of types that NumPy exports.
_ARRAY_TYPES = {
    dtype.str: (CODES[dtype.kind].value, 8 * dtype.itemsize)
    for dtype in map(np.dtype, "?bBhHiIlLqQefd")
}


def _look_at_array(interface: Mapping[str, Any]) -> tuple[int, _Layout]:
    """Read NumPy's array interface: quicker from Python than a capsule, and the same numbers."""
    address, read_only = interface["data"]
    code, bits = _ARRAY_TYPES[interface["typestr"]]
    strides = interface["strides"]  # bytes; None where contiguous
    if strides is not None:
        itemsize = bits // 8
        if any(stride % itemsize for stride in strides):
            raise _NotSureError
        strides = tuple([stride // itemsize for stride in strides])
    flags = READ_ONLY if read_only else 0
    return address, (_HOST, 0, code, bits, 1, flags, interface["shape"], strides)


def _is_cuda(torch: Any, tensor: Any) -> bool:
    return torch.version.hip is None and bool(tensor.is_cuda)


def _target_of(layout: _Layout) -> Target:
    """Give the GPU that the map is for, if the layout of its maps has been measured."""
    if layout[0] == _HOST:
        return DEFAULT_TARGET
    if layout[0] == _CUDA:
        from tma_dlpack import driver

        target = driver.device_target(layout[1])  # raises where there is no driver
        if target.has_model:
            return target
    raise _NotSureError


def _extents(
    address: int, layout: _Layout, element_bytes: int, unique: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give extents and the byte strides of dimensions 1 to rank - 1, innermost first.

    The stride of a dimension of extent 1 means nothing: it is replaced by that of a row-major
    tensor. With `unique`, a dimension must not overlap the next inner one.
    """
    if address % INNER_BYTES or not 0 < address < ADDRESS_END:
        raise _NotSureError
    dims, strides = layout[6][::-1], layout[7]
    if not 1 <= len(dims) <= MAX_RANK or not 1 <= dims[0] <= MAX_DIM:
        raise _NotSureError
    if strides is None:
        strides = row_major_strides(layout[6])
    if strides[-1] != 1 and dims[0] != 1:
        raise _NotSureError
    result = []
    nested = dims[0] * element_bytes
    for i in range(1, len(dims)):
        dim, stride = dims[i], strides[-1 - i] * element_bytes
        if dim == 1:
            stride = -(-nested // INNER_BYTES) * INNER_BYTES
        elif unique and 0 != stride < nested:
            raise _NotSureError
        if stride % INNER_BYTES or not 0 <= stride < STRIDE_BYTES_END or not 1 <= dim <= MAX_DIM:
            raise _NotSureError
        result.append(stride)
        nested = dim * stride
    return dims, tuple(result)


@functools.cache
def _type_of(code: int, bits: int, lanes: int, asked: int | None) -> DataTypeRow:
    """Give the row of the map's data type for a tensor's element type."""
    dtype = DLDataType(code, bits, lanes)
    known = data_type_of(dtype) if asked is None else TensorMapDataType(asked)
    if known is None or (asked is not None and known not in overrides_of(dtype)):
        raise _NotSureError
    return DATA_TYPES[known]


def _number(enum: Any, value: Any) -> int | None:
    """Give the number of a member, a name or a plain int of an enum; None for all else."""
    if type(value) is str:
        return NAMES[enum].get(value)
    if type(value) is enum or (type(value) is int and 0 <= value < len(enum)):
        return int(value)
    return None


def _integers(values: Any, count: int, low: int, high: int) -> tuple[int, ...]:
    """Give `count` plain ints in a range, innermost first."""
    if (type(values) is not tuple and type(values) is not list) or len(values) != count:
        raise _NotSureError
    for value in values:
        if type(value) is not int or not low <= value <= high:
            raise _NotSureError
    return tuple(values[::-1])


def _steps(
    elem_strides: Any, dims: tuple[int, ...], innermost_ignored: bool, within_shape: bool
) -> tuple[int, ...]:
    """Give the element strides as passed to the driver, innermost first."""
    if elem_strides is None:
        return (1, 1, 1, 1, 1)[: len(dims)]
    if innermost_ignored and type(elem_strides[-1]) is int:
        elem_strides = (*elem_strides[:-1], 1)
    steps = _integers(elem_strides, len(dims), 1, MAX_ELEM_STRIDE)
    if within_shape and any(map(int.__gt__, steps, dims)):
        raise _NotSureError
    return steps
