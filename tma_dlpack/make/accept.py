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
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.dlpack.capsule import DIRECT, parse_capsule
from tma_dlpack.dlpack.layout import READ_ONLY
from tma_dlpack.dlpack.numpy_array import read_array
from tma_dlpack.dlpack.producer import MAX_VERSION
from tma_dlpack.dlpack.torch_tensor import torch_dtype_table
from tma_dlpack.tables.arguments import EncodeArguments, MapKind
from tma_dlpack.tables.dtypes import DATA_TYPES, DLDataType, data_type_of, overrides_of
from tma_dlpack.tables.enums import (
    NAMES,
    DLDeviceType,
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.limits import (
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
from tma_dlpack.tables.targets import DEFAULT_TARGET, Target
from tma_dlpack.tensor_map.map import TensorMap

_Layout = tuple[Any, ...]  # as dlpack.Layout: a plain tuple is quicker to make

_SEQUENCES = tuple, list
_ONES = (1,) * MAX_RANK
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
        address, layout = _look_at(tensor)
        strict, element_bytes, span_bytes, words, options = _read(
            "libcu++", layout[2:5],
            interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, rules, target,
        )  # fmt: skip
        shape = layout[6]
        strides_bytes = _strides_bytes(address, layout, element_bytes, strict)
        given, steps = None, _ONES[: len(shape)]
        if elem_strides is not None:
            given, steps = tuple(elem_strides), _steps(elem_strides, len(shape), strict)
        if type(box_sizes) not in _SEQUENCES or len(box_sizes) != len(shape):
            return None
        box, box_bytes = tuple(box_sizes), element_bytes
        for size, extent, step in zip(box, shape, steps):  # noqa: B905 # quicker
            if type(size) is not int or not 1 <= size <= MAX_BOX:
                return None
            if strict and (size > extent or step > extent):
                return None
            box_bytes *= size if strict else size // step  # the driver rounds down
        inner_bytes = box[-1] * element_bytes
        if inner_bytes % INNER_BYTES or inner_bytes > span_bytes:
            return None
        gpu = _gpu_of(layout)
        if box_bytes > MAX_BOX_BYTES or (strict and box_bytes > gpu.max_smem_bytes):
            return None
        on_gpu = layout[0] == _CUDA
        data = None  # for host tensors: encoded when the bytes are first needed
        if on_gpu:
            data = _by_driver(
                "tiled", address, layout, strides_bytes, steps, words, box_dim=box[::-1]
            )
        asked = 0, address, layout, (box, given, *options), on_gpu
        return TensorMap._accepted(tensor, data, on_gpu, asked)
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
        address, layout = _look_at(tensor)
        strict, element_bytes, span_bytes, words, options = _read(
            "documented", layout[2:5],
            interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, rules, target,
        )  # fmt: skip
        shape = layout[6]
        strides_bytes = _strides_bytes(address, layout, element_bytes, strict)
        half = _CORNER_END[len(shape)]
        lower = _integers(pixel_box_lower_corner, len(shape) - 2, -half, half - 1)
        upper = _integers(pixel_box_upper_corner, len(shape) - 2, -half, half - 1)
        channels, pixels = _integers((channels_per_pixel, pixels_per_column), 2, 1, MAX_PIXELS)
        given, steps = None, _ONES[: len(shape)]
        if elem_strides is not None:
            given, steps = tuple(elem_strides), _steps(elem_strides, len(shape), strict)
        inner_bytes = channels * element_bytes
        if inner_bytes % INNER_BYTES or inner_bytes > span_bytes:
            return None
        if channels > MAX_BOX or inner_bytes * pixels > MAX_BOX_BYTES:
            return None
        for extent, low, high in zip(shape[1:-1], lower, upper):  # noqa: B905
            if extent >= _MAY_WRAP or extent + high - low <= 0:
                return None
        _gpu_of(layout)
        on_gpu = layout[0] == _CUDA
        data = None  # for host tensors: encoded when the bytes are first needed
        if on_gpu:
            data = _by_driver(
                "im2col", address, layout, strides_bytes, steps, words,
                pixel_box_lower_corner=lower[::-1], pixel_box_upper_corner=upper[::-1],
                channels_per_pixel=channels, pixels_per_column=pixels,
            )  # fmt: skip
        asked = 1, address, layout, (lower, upper, channels, pixels, given, *options), on_gpu
        return TensorMap._accepted(tensor, data, on_gpu, asked)
    except Exception:  # the rules will meet the same problem and explain it
        return None


def accept_im2col_wide(*arguments: Any) -> TensorMap | None:
    """Give None: these maps are for sm_100 and later, whose bytes have not been measured."""
    return None


def _by_driver(
    kind: MapKind,
    address: int,
    layout: _Layout,
    strides_bytes: list[int],
    steps: tuple[int, ...],
    words: dict[str, Any],
    **box: Any,
) -> bytes:
    from tma_dlpack import driver  # loaded when the first CUDA tensor comes

    arguments = EncodeArguments(
        kind,
        global_dim=layout[6][::-1],
        global_strides=tuple(strides_bytes),
        element_strides=steps[::-1],
        **words,
        **box,
    )
    return driver.encode(arguments, address, layout[1])


class _NotSureError(Exception):
    """Raised inside the short cut for "not sure"; the rules take over."""


#: Rank -> entries of a corner lie in [-end, end): they have 16, 8 or 5 bits.
_CORNER_END = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
_MAY_WRAP = 1 << 30  # larger extents may overflow the driver's 32-bit sum of extent and corner


class _Known(NamedTuple):
    """What follows from an element type and the options that all `make_*` functions share."""

    strict: bool  # whether more than the driver's rules hold
    element_bytes: int
    span_bytes: int  # most bytes of a row of the box
    words: dict[str, Any]  # for EncodeArguments
    options: tuple[Any, ...]  # from `interleave_layout` on, as `Asked` has them


@functools.lru_cache(maxsize=1024, typed=True)
def _read(
    strict_rules: str,
    dtype: tuple[int, int, int],
    interleave_layout: Any,
    swizzle: Any,
    l2_fetch_size: Any,
    oobfill: Any,
    data_type: Any,
    rules: Any,
    target: Any,
) -> _Known:
    """Read the options for tensors of a DLPack type (code, bits, lanes)."""
    pattern = _number(TmaSwizzle, swizzle)
    l2 = _number(TmaL2FetchSize, l2_fetch_size)
    fill = _number(TmaOobFill, oobfill)
    asked_type = None if data_type is None else _number(TensorMapDataType, data_type)
    type_row = DATA_TYPES[_type_of(DLDataType(*dtype), asked_type)]
    if (
        _number(TmaInterleaveLayout, interleave_layout) != TmaInterleaveLayout.none
        or pattern > TmaSwizzle.bytes128
        or type_row.is_packed
        or (fill and not type_row.is_float)
        or rules not in (strict_rules, "driver")
        or target is not None
    ):
        raise _NotSureError
    words = {
        "data_type": type_row.data_type,
        "swizzle": TmaSwizzle(pattern),
        "l2_promotion": TmaL2FetchSize(l2),
        "oob_fill": TmaOobFill(fill),
    }
    span_bytes = SWIZZLE_SPAN_BYTES[pattern] or MAX_BOX_BYTES
    options = 0, pattern, l2, fill, asked_type, rules, None
    return _Known(rules == strict_rules, type_row.element_bytes, span_bytes, words, options)


def _type_of(dtype: DLDataType, asked: int | None) -> TensorMapDataType:
    """Give the map's data type for a tensor's element type."""
    if asked is not None and asked not in overrides_of(dtype):
        raise _NotSureError
    known = data_type_of(dtype) if asked is None else TensorMapDataType(asked)
    if known is None:
        raise _NotSureError
    return known


def _number(enum: Any, value: Any) -> int:
    """Give the number of a member, a name or a plain int of an enum."""
    if type(value) is str:
        return int(NAMES[enum][value])
    if type(value) is enum or (type(value) is int and 0 <= value < len(enum)):
        return int(value)
    raise _NotSureError


def _look_at(tensor: Any) -> tuple[int, _Layout]:
    """Get the address and layout of a tensor, if its type is one of those known here."""
    kind = type(tensor)
    if kind is np.ndarray:
        return read_array(tensor)
    torch = sys.modules.get("torch")
    if torch is not None and (kind is torch.Tensor or kind is torch.nn.Parameter):
        ordinal = tensor.get_device()  # -1 on the host
        if tensor.is_neg() or not (tensor.is_cpu if ordinal < 0 else _is_cuda(torch, tensor)):
            raise _NotSureError
        device = (_HOST, 0) if ordinal < 0 else (_CUDA, ordinal)
        dtype = torch_dtype_table()[tensor.dtype]
        shape, strides = tuple(tensor.shape), tensor.stride()
        return tensor.data_ptr(), (*device, *dtype, 0, shape, strides)
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


def _is_cuda(torch: Any, tensor: Any) -> bool:
    return torch.version.hip is None and bool(tensor.is_cuda)


def _gpu_of(layout: _Layout) -> Target:
    """Give the GPU that the map is for, if the layout of its maps has been measured."""
    if layout[0] == _HOST:
        return DEFAULT_TARGET
    if layout[0] == _CUDA:
        from tma_dlpack import driver

        target = driver.device_target(layout[1])  # raises where there is no driver
        if target.has_model:
            return target
    raise _NotSureError


def _strides_bytes(address: int, layout: _Layout, element_bytes: int, unique: bool) -> list[int]:
    """Give the byte strides of dimensions 1 to rank - 1, innermost first.

    The stride of a dimension of extent 1 means nothing: it is replaced by that of a row-major
    tensor. With `unique`, a dimension must not overlap the next inner one.
    """
    if address % INNER_BYTES or not 0 < address < ADDRESS_END:
        raise _NotSureError
    shape, strides = layout[6], layout[7]
    if not 1 <= len(shape) <= MAX_RANK or not 1 <= shape[-1] <= MAX_DIM:
        raise _NotSureError
    if strides is not None and strides[-1] != 1 and shape[-1] != 1:
        raise _NotSureError
    result = []
    dense = nested = shape[-1] * element_bytes
    for i in range(2, len(shape) + 1):
        extent = shape[-i]
        stride = dense if strides is None else strides[-i] * element_bytes
        if extent == 1:
            stride = -(-nested // INNER_BYTES) * INNER_BYTES
        elif unique and 0 != stride < nested:
            raise _NotSureError
        if stride % INNER_BYTES or not 0 <= stride < STRIDE_BYTES_END or not 1 <= extent <= MAX_DIM:
            raise _NotSureError
        result.append(stride)
        dense *= extent
        nested = extent * stride
    return result


def _integers(values: Any, count: int, low: int, high: int) -> tuple[int, ...]:
    """Give `count` plain ints in a range."""
    if type(values) not in _SEQUENCES or len(values) != count:
        raise _NotSureError
    for value in values:
        if type(value) is not int or not low <= value <= high:
            raise _NotSureError
    return tuple(values)


def _steps(elem_strides: Any, rank: int, innermost_ignored: bool) -> tuple[int, ...]:
    """Give the element strides as passed to the driver, but row-major."""
    if innermost_ignored and type(elem_strides[-1]) is int:
        elem_strides = (*elem_strides[:-1], 1)
    return _integers(elem_strides, rank, 1, MAX_ELEM_STRIDE)
