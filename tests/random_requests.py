"""Random calls of `make_*` and `check_*`, made from the random calls of `verify`.

`random_call` draws the driver's arguments. Most arguments are valid, and some are one step beyond
a limit. `described` converts the arguments to a tensor and options, and sometimes makes an option
invalid that the driver does not have. `request_at_random` puts the tensor into memory, as a NumPy
or torch tensor. `strategies.requests` draws seeds of the same calls.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.checks import ALLOWABLE
from tma_dlpack.dlpack.torch_tensor import torch_dtype_table
from tma_dlpack.tables.dtypes import (
    DATA_TYPES,
    NAMED_DTYPES,
    DLDataType,
    data_type_of,
    overrides_of,
)
from tma_dlpack.tables.enums import (
    DLDataTypeCode,
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
    c_name,
)
from tma_dlpack.tables.targets import SWIZZLE_SPAN_BYTES, TARGETS, Target
from tma_dlpack.verification.random_copies import random_call

try:
    import ml_dtypes  # noqa: F401  # then NumPy knows its types by name
    import torch
except ImportError:  # then all tensors are NumPy arrays
    torch = None

KINDS = ("tiled", "tiled", "im2col", "im2col_wide")
_POOL = np.zeros(4096, np.uint8)
_START = -_POOL.ctypes.data % 256

#: Map type -> DLPack types of the tensors from which a map of this type is made.
DTYPES = {
    data_type: [
        dtype
        for dtype in NAMED_DTYPES.values()
        if dtype.code != DLDataTypeCode.kDLComplex
        and data_type in (data_type_of(dtype), *overrides_of(dtype))
    ]
    for data_type in TensorMapDataType
}
_ODD_DTYPES = (*NAMED_DTYPES.values(), DLDataType(2, 32, 2), DLDataType(15, 6), DLDataType(42, 8))
_ODD_STRIDES = (-64, 0, 1, 2, 7, 100, 4096, 1 << 39, 1 << 40)
_TARGETS = (*("sm_90a", "sm_100", "sm_120"), *TARGETS.values(), Target((9, 0), 50_000))
_FOREIGN = tuple(Target((major, minor), 100_000) for major, minor in ((8, 0), (9, 1), (13, 0)))


class Described(NamedTuple):
    """A tensor without memory: row-major, strides in elements."""

    dtype: DLDataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int


class Asked(NamedTuple):
    """A call: the kind of map, the tensor, and the options by name."""

    kind: str
    tensor: Any
    given: dict[str, Any]


Word = Callable[[random.Random, Any], Any]


def spelled(rng: random.Random, member: Any) -> Any:
    """Return an enum's member in a form that a user may write."""
    return rng.choice((member, member.name, member.name, int(member), c_name(member)))


def request_at_random(rng: random.Random, word: Word = spelled) -> Asked | None:
    """Draw a call; None if NumPy cannot make the array. `word` picks a form of an enum's member."""
    kind, tensor, given = described(rng, word)
    array = in_memory(rng, tensor)
    return None if array is None else Asked(kind, array, given)


def described(rng: random.Random, word: Word = spelled, kind: str | None = None) -> Asked:
    """Draw a call of a tensor without memory."""
    kind = kind or rng.choice(KINDS)
    wild = rng.random() < 0.2
    call = random_call(kind, rng, of_any_magnitude=rng.random() < 0.3)
    if call["interleave"] == 2 and rng.random() < 0.8:
        call["swizzle"] = 1
    data_type = TensorMapDataType[call["tensor_data_type"]]
    tensor = _tensor(rng, call, data_type, wild)
    given = {
        **_tile(rng, kind, call, tensor.shape, wild),
        "elem_strides": _row_major(rng, call["element_strides"]),
        "interleave_layout": word(rng, TmaInterleaveLayout(call["interleave"])),
        "swizzle": word(rng, TmaSwizzle(call["swizzle"])),
        "l2_fetch_size": word(rng, TmaL2FetchSize(call["l2_promotion"])),
        "oobfill": word(rng, TmaOobFill(call["oob_fill"])),
        "data_type": None,
        "rules": rng.choice(("libcu++" if kind == "tiled" else "documented", "driver")),
    }
    if kind == "im2col_wide" and rng.random() < 0.9:
        given["rules"] = "driver"  # "documented" requires compute capability 10.0
    if wild and rng.random() < 0.3:
        given["data_type"] = word(rng, rng.choice(list(TensorMapDataType)))
    elif rng.random() < (0.2 if wild or data_type_of(tensor.dtype) is data_type else 1):
        given["data_type"] = word(rng, data_type)
    if rng.random() < 0.6:
        given["elem_strides"] = None
    elif wild and rng.random() < 0.3:
        given["elem_strides"] = given["elem_strides"][1:]
    if rng.random() < 0.5:
        given |= _rare_options(rng, kind, tensor, given, call["swizzle"], wild)
    if call["swizzle"] == 0 and rng.random() < 0.5:
        del given["swizzle"]  # split_inner requires an explicit swizzle
        if kind == "im2col_wide":
            given["swizzle"] = word(rng, TmaSwizzle.none)  # the default is another swizzle
    return Asked(kind, tensor, given)


def _tensor(
    rng: random.Random, call: dict[str, Any], data_type: TensorMapDataType, wild: bool
) -> Described:
    """Convert the driver's tensor to elements of a DLPack type; some strides are random."""
    dtype = rng.choice(_ODD_DTYPES if wild and rng.random() < 0.3 else DTYPES[data_type])
    bits = dtype.itemsize_bits
    *outer, inner = call["global_dim"][::-1]
    shape = (*outer, inner * DATA_TYPES[data_type].element_bits // bits)
    strides = [*(stride * 8 // bits for stride in call["global_strides"][::-1]), 1]
    if wild and rng.random() < 0.3:
        strides[rng.randrange(len(strides))] = rng.choice(_ODD_STRIDES)
    if wild and rng.random() < 0.02:
        shape, strides = (), []
    return Described(dtype, shape, tuple(strides), call["global_address"])


def _tile(
    rng: random.Random, kind: str, call: dict[str, Any], shape: tuple[int, ...], wild: bool
) -> dict[str, Any]:
    """Return the options that determine the elements of one copy."""
    if kind == "tiled":
        box = list(call["box_dim"][::-1])
        if rng.random() < 0.7:
            box = [max(1, min(pair)) for pair in zip(box, shape, strict=False)]
        if wild and rng.random() < 0.1 and box:
            box[rng.randrange(len(box))] = rng.choice((-1, 1 << 40, 1 << 70))
        if wild and rng.random() < 0.1:
            box = box[:-1]
        return {"box_sizes": rng.choice((tuple, list))(box)}
    counts = {name: call[name] for name in ("channels_per_pixel", "pixels_per_column")}
    corners = {name: call.get(name) for name in call if "corner" in name}
    if kind == "im2col_wide":
        widths = {name.removeprefix("pixel_box_"): n for name, n in corners.items()}
        return widths | counts | {"mode": call["mode"]}
    more = (0,) * (wild and rng.random() < 0.1)
    return {name: (*corner[::-1], *more) for name, corner in corners.items()} | counts


def _row_major(rng: random.Random, entries: tuple[int, ...]) -> Any:
    return rng.choice((tuple, list))(entries[::-1])


def _rare_options(
    rng: random.Random,
    kind: str,
    tensor: Described,
    given: dict[str, Any],
    swizzle: int,
    wild: bool,
) -> dict[str, Any]:
    """Draw some of the options that only few calls pass."""
    options: dict[str, Any] = {}
    shape = tensor.shape
    if rng.random() < 0.3:
        options["target"] = rng.choice(_TARGETS + (_FOREIGN if wild else ()))
    if rng.random() < 0.4:
        rows = tuple(rule for rule in ALLOWABLE if rng.random() < 0.6)
        options["allow"] = rng.choice((tuple, list, frozenset, set))(rows)
    if rng.random() < 0.3:
        options["offset"] = rng.choice((0, 16, -32, 64, 3))
    if rng.random() < 0.3 and shape:
        other = list(shape)
        other[rng.randrange(len(other))] *= rng.choice((1, 2, 2))
        options["shape"] = rng.choice((tuple, list))(other if rng.random() < 0.9 else other[1:])
    if rng.random() < 0.2:
        options["strides"] = tensor.strides
    if kind == "tiled" and rng.random() < 0.4:
        options["split_inner"] = rng.random() < 0.8
        span = 8 * (SWIZZLE_SPAN_BYTES[swizzle] or 16) // tensor.dtype.itemsize_bits
        if options["split_inner"] and shape and span and given["box_sizes"] and rng.random() < 0.9:
            box = list(given["box_sizes"])
            box[-1] = max(1, shape[-1] // span // rng.choice((1, 1, 2))) * span
            options["box_sizes"] = box
    if kind == "tiled" and rng.random() < 0.4:
        options["ragged"] = rng.choice((None, 0, 0, 1, -2, -3, 4))
    return options


# -- in memory -------------------------------------------------------------------------------------


def in_memory(rng: random.Random, tensor: Described) -> Any:
    """Return an array of NumPy or torch, whose elements are never read; None if impossible.

    A type that both lack becomes unsigned integers of the same size.
    """
    name, item_bytes = str(tensor.dtype), max(1, tensor.dtype.itemsize_bits // 8)
    of_numpy = np.dtype(getattr(np, name, f"u{min(item_bytes, 8)}"))
    if rng.random() < 0.01:
        of_numpy = of_numpy.newbyteorder(">")
    offset = _START + tensor.address % 256
    flat = _POOL[offset : offset + 1024].view(of_numpy)
    try:
        strides = [stride * of_numpy.itemsize for stride in tensor.strides]
        array = np.lib.stride_tricks.as_strided(flat, tensor.shape, strides)
    except (ValueError, OverflowError):  # too large for NumPy
        return None
    spans = [math.prod(pair) for pair in zip(array.shape, array.strides, strict=True)]
    if torch is None or not all(0 <= span < 1 << 45 for span in (*spans, math.prod(array.shape))):
        return array  # torch aborts on sizes that overflow
    of_torch = None
    if of_numpy.name != name or rng.random() < 0.3:
        of_torch = {theirs: ours for ours, theirs in torch_dtype_table().items()}.get(tensor.dtype)
    if of_torch is None:
        return array
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.from_numpy(array).view(of_torch)
            return found.view(torch.uint4) if name == "uint8" and rng.random() < 0.1 else found
    except (ValueError, RuntimeError, TypeError):  # other byte orders; types that torch lacks
        return array
