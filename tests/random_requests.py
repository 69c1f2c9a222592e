"""Requests at random, most of them nearly in order, on tensors of NumPy and torch that exist.

A tensor is a view of one small buffer with any shape and strides: nothing reads its elements.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.checks import ALLOWABLE
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
    c_name,
)
from tma_dlpack.tables.targets import TARGETS, Target

try:
    import ml_dtypes  # noqa: F401  # NumPy knows its types by name then
    import torch
except ImportError:  # then the tensors are NumPy's
    torch = None

KINDS = ("tiled", "im2col", "im2col_wide")

_SIZES = (
    *(1, 1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 32, 33, 64, 96),
    *(100, 128, 255, 256, 257, 300, 1024, 4096),
)
_WILD_SIZES = (0, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1)
_WILD_STRIDES = (0, 1, 2, 7, 8, 16, 100, 4096, 1 << 30, 1 << 36, 1 << 39, 1 << 40)
_OFFSETS = (0, 0, 0, -1, -1, 1, 2, -2, -3)
_WILD_OFFSETS = (
    15,
    -16,
    16,
    -17,
    127,
    128,
    -128,
    -129,
    200,
    32767,
    32768,
    -32768,
    -32769,
    -(1 << 33),
)
_NUMPY = ("u1", "u2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?")
_NUMPY_ODD = ("i1", "i2", "c8", "c16", ">f4")
_TORCH_VIEWS = {
    "bfloat16": "i2",
    "float8_e4m3fn": "i1",
    "float8_e5m2": "i1",
    "float8_e8m0fnu": "i1",
}
_TORCH_ODD = {"int8": "i1", "uint4": "u1", "float4_e2m1fn_x2": "u1"}

_POOL = np.zeros(4096, np.uint8)
_START = -_POOL.ctypes.data % 256


_TARGETS = (*("sm_90a", "sm_100", "sm_120"), *TARGETS.values(), Target((9, 0), 50_000))
_FOREIGN = tuple(Target((major, minor), 100_000) for major, minor in ((8, 0), (9, 1), (13, 0)))


class Asked(NamedTuple):
    """A call: the kind of map, the tensor, and the options by name."""

    kind: str
    tensor: Any
    given: dict[str, Any]


def spelled(rng: random.Random, member: Any) -> Any:
    """Give a member as a user may write it."""
    return rng.choice((member, member.name, member.name, int(member), c_name(member)))


def request_at_random(
    rng: random.Random, word: Callable[[random.Random, Any], Any] = spelled
) -> Asked | None:
    """Draw a call; None where NumPy has no such array. `word` writes a member of an enum."""
    wild = rng.random() < 0.2
    kind = rng.choice(("tiled", "tiled", "im2col", "im2col_wide"))
    rank = rng.randint(1 if kind == "tiled" or wild else 3, 5)
    interleave = rng.choice((0, 0, 0, 0, 0, 1, 2))
    tensor = _tensor(rng, rank, wild, 32 if interleave == 2 else 16)
    if tensor is None:
        return None
    swizzle = rng.choice((0, 1, 2, 3, 3, *((4, 5, 6) if wild else ())))
    if interleave == 2 and rng.random() < 0.8:
        swizzle = 1
    element_bytes = tensor.itemsize
    data_type = None
    if rng.random() < 0.4:
        data_type = word(rng, _data_type(rng, element_bytes, wild))
    rules = rng.choice(("libcu++" if kind == "tiled" else "documented", "driver"))
    if kind == "im2col_wide" and rng.random() < 0.9:
        rules = "driver"  # its document wants compute capability 10.0
    elem_strides = None
    if rng.random() < 0.3:
        entries = (1, 1, 1, 2, 3, 8, *((0, 9, -1) if wild else ()))
        elem_strides = [rng.choice(entries) for _ in range(rank + (wild and rng.randint(-1, 1)))]
    given = {
        **_tile(rng, kind, tuple(tensor.shape), element_bytes, swizzle, wild),
        "elem_strides": elem_strides and rng.choice((list, tuple))(elem_strides),
        "interleave_layout": word(rng, TmaInterleaveLayout(interleave)),
        "swizzle": word(rng, TmaSwizzle(swizzle)),
        "l2_fetch_size": word(rng, rng.choice(list(TmaL2FetchSize))),
        "oobfill": word(rng, TmaOobFill(rng.random() < 0.1)),
        "data_type": data_type,
        "rules": rules,
    }
    if kind == "im2col_wide":
        given["mode"] = rng.randrange(2)
    if rng.random() < 0.5:
        given |= _rare_options(rng, kind, tensor, given, swizzle, element_bytes, wild)
    if swizzle == 0 and rng.random() < 0.5:
        del given["swizzle"]  # of split_inner, which asks for it
        if kind == "im2col_wide":
            given["swizzle"] = word(rng, TmaSwizzle.none)  # which is not the default there
    return Asked(kind, tensor, given)


def _rare_options(
    rng: random.Random,
    kind: str,
    tensor: Any,
    given: dict[str, Any],
    swizzle: int,
    element_bytes: int,
    wild: bool,
) -> dict[str, Any]:
    """Draw some of the options that few calls give."""
    options: dict[str, Any] = {}
    shape = tuple(map(int, tensor.shape))
    if rng.random() < 0.3:
        options["target"] = rng.choice(_TARGETS + (_FOREIGN if wild else ()))
    if rng.random() < 0.4:
        rows = tuple(rule for rule in ALLOWABLE if rng.random() < 0.6)
        options["allow"] = rng.choice((tuple, list, frozenset, set))(rows)
    if rng.random() < 0.3:
        options["offset"] = rng.choice((0, 16, -32, 64, 3))
    if rng.random() < 0.3:
        other = list(shape)
        other[rng.randrange(len(other))] *= rng.choice((1, 2, 2))
        options["shape"] = rng.choice((tuple, list))(other if rng.random() < 0.9 else other[1:])
    if rng.random() < 0.2:
        options["strides"] = _strides_of(tensor)
    if kind == "tiled" and rng.random() < 0.4:
        options["split_inner"] = rng.random() < 0.8
        span = {0: 16, 1: 32, 2: 64}.get(swizzle, 128) // element_bytes
        if options["split_inner"] and span and given["box_sizes"] and rng.random() < 0.9:
            box = list(given["box_sizes"])
            box[-1] = max(1, shape[-1] // span // rng.choice((1, 1, 2))) * span
            options["box_sizes"] = box
    if kind == "tiled" and rng.random() < 0.4:
        options["ragged"] = rng.choice((None, 0, 0, 1, -2, -3, 4))
    return options


def _strides_of(tensor: Any) -> tuple[int, ...]:
    if not isinstance(tensor, np.ndarray):
        return tensor.stride()
    return tuple(stride // tensor.itemsize for stride in tensor.strides)


def _data_type(rng: random.Random, element_bytes: int, wild: bool) -> TensorMapDataType:
    same_size = {1: (0,), 2: (1, 6, 9), 4: (2, 3, 7, 10, 11, 12), 8: (4, 5, 8)}
    fits = same_size.get(element_bytes, ())
    numbers = range(16) if wild or not fits else fits
    return TensorMapDataType(rng.choice(numbers))


def _tensor(rng: random.Random, rank: int, wild: bool, alignment: int) -> Any:
    shape = [rng.choice(_SIZES + (_WILD_SIZES if wild else ())) for _ in range(rank)]
    torch_dtype = None
    if torch is not None and rng.random() < 0.3:
        views = _TORCH_VIEWS | (_TORCH_ODD if wild else {})
        torch_dtype = rng.choice(list(views))
        dtype = np.dtype(views[torch_dtype])
    else:
        dtype = np.dtype(rng.choice(_NUMPY + (_NUMPY_ODD if wild else ())))
    strides = [dtype.itemsize]
    for size in shape[:0:-1]:
        stride = size * strides[0] * rng.choice((1, 1, 1, 1, 2, 0))
        if rng.random() < 0.9:
            stride = -(-stride // alignment) * alignment
        strides.insert(0, stride)
    if rng.random() < 0.15:
        strides[rng.randrange(rank)] = rng.choice(_WILD_STRIDES) * dtype.itemsize
    if wild and rng.random() < 0.1:
        strides[rng.randrange(rank)] *= -1
    offset = _START + rng.choice((0, 0, 0, 16, 32, 64, *((4, 8) if wild else (128,))))
    flat = _POOL[offset : offset + 64 * dtype.itemsize].view(dtype)
    try:
        array = np.lib.stride_tricks.as_strided(flat, shape, strides)
    except (ValueError, OverflowError):  # too large for NumPy
        return None
    within_torch = all(
        0 <= size * stride < 1 << 45 for size, stride in zip(shape, strides, strict=True)
    )
    if (
        torch is None or not within_torch or max(shape) > 4096
    ):  # torch aborts on sizes that overflow
        return array
    if torch_dtype is None and (rng.random() < 0.5 or dtype.str in (">f4", "|b1")):
        return array
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensor = torch.from_numpy(array)
            return tensor if torch_dtype is None else tensor.view(getattr(torch, torch_dtype))
    except (ValueError, RuntimeError, TypeError):  # negative strides; types that torch lacks
        return array


def _tile(
    rng: random.Random,
    kind: str,
    shape: tuple[int, ...],
    element_bytes: int,
    swizzle: int,
    wild: bool,
) -> dict[str, Any]:
    span = {0: 256 * element_bytes, 1: 32, 2: 64}.get(swizzle, 128) // element_bytes
    if kind == "tiled":
        box = [rng.choice((1, 2, 4, 8, 16, 32, 64, 100, 128, 256)) for _ in shape]
        if rng.random() < 0.8:
            box = [min(entry, max(1, size)) for entry, size in zip(box, shape, strict=True)]
            box[-1] = min(box[-1], max(1, span))
        if rng.random() < 0.1:
            entries = (0, -1, 257, 256, 3, *((1 << 40, 1 << 70) if wild else ()))
            box[rng.randrange(len(box))] = rng.choice(entries)
        if wild and rng.random() < 0.1:
            box = box[:-1]
        return {"box_sizes": rng.choice((tuple, list))(box)}
    channels = rng.choice((8, 16, 32, 64, 128, 256, 4, 0, 257, max(1, span), max(1, span)))
    pixels = rng.choice((1, 16, 64, 128, 256, 1024, 1025))
    offsets = _OFFSETS + (_WILD_OFFSETS if wild else ())
    counts = {"channels_per_pixel": channels, "pixels_per_column": pixels}
    if kind == "im2col_wide":
        widths = ("lower_corner_width", "upper_corner_width")
        return {name: rng.choice(offsets) for name in widths} | counts
    count = max(0, len(shape) - 2) + (wild and rng.random() < 0.1)
    corners = ("pixel_box_lower_corner", "pixel_box_upper_corner")
    return {name: tuple(rng.choice(offsets) for _ in range(count)) for name in corners} | counts
