"""What a fix says about the tensor, in the words of the framework that made it."""

from __future__ import annotations

import math
from typing import NamedTuple

from tma_dlpack.dlpack import TensorView
from tma_dlpack.encoding.arguments import alignment_bytes_of
from tma_dlpack.rules.request import Case
from tma_dlpack.types.dtypes import overrides_of
from tma_dlpack.types.enums import TensorMapDataType, TmaInterleaveLayout

__all__ = [
    "alignment_fix",
    "carry_fix",
    "nesting_fix",
    "packed_fix",
    "pad_extent_fix",
    "padding_fix",
    "transpose_fix",
]


class Words(NamedTuple):
    """Expressions of one framework, about a tensor x."""

    copy: str
    contiguous: str
    permute: str
    as_bytes: str
    pad: str


def _like_numpy(module: str) -> Words:
    return Words(
        copy="x.copy()",
        contiguous=f"{module}.ascontiguousarray(x)",
        permute="x.transpose({order})",
        as_bytes=f"x.view({module}.uint8)",
        pad=f"y = {module}.empty({{padded_shape}}, x.dtype)[..., :{{extent}}]; y[...] = x",
    )


NUMPY_ALIGNS = 16  # bytes: what numpy.empty and x.copy() start at a multiple of
_ALIGNED_NUMPY_COPY = (
    "y = numpy.empty(x.nbytes + 32, numpy.uint8); y = y[-y.ctypes.data % 32:][:x.nbytes]; "
    "y = y.view(x.dtype).reshape(x.shape); y[...] = x"
)
_WORDS = {
    "torch": Words(
        copy="x.clone()",
        contiguous="x.contiguous()",
        permute="x.permute({order})",
        as_bytes="x.view(torch.uint8)",
        pad="y = torch.empty(..., {padded})[..., :{extent}]; y.copy_(x)",
    ),
    "numpy": _like_numpy("numpy"),
    "cupy": _like_numpy("cupy"),
    "jaxlib": Words(
        copy="jax.numpy.array(x)",
        contiguous="jax.numpy.array(x)",
        permute="x.transpose({order})",
        as_bytes="x.view(jax.numpy.uint8)",
        pad="y = jax.numpy.pad(x, {widths})",
    ),
}
_WORDS["described"] = _WORDS["torch"]  # the command line's tensor that does not exist
_OTHER = Words(
    copy="a copy of x",
    contiguous="a row-major copy of x",
    permute="x with its dimensions in the order ({order})",
    as_bytes="a view of its bytes",
    pad="allocate rows of {padded} elements, and pass the first {extent} of each",
)


def _words(view: TensorView) -> Words:
    return _WORDS.get(view.producer.partition(".")[0], _OTHER)


def alignment_fix(c: Case, i: int) -> str:
    """Say how to start at an aligned address."""
    if c.view is None:
        return f"pass an address that is a multiple of {c.alignment_bytes}"
    start = f"start the view at an element whose address is a multiple of {c.alignment_bytes} bytes"
    if c.alignment_bytes == NUMPY_ALIGNS or not c.view.producer.startswith("numpy"):
        return f"{start}, or copy it: x = {_words(c.view).copy}"
    less = (
        ", or use interleave_layout='bytes16'"
        if alignment_bytes_of(TmaInterleaveLayout.none, c.data_type) == 16
        else ""
    )
    return f"{start}{less}, or copy it to such an address: {_ALIGNED_NUMPY_COPY}"


def padding_fix(c: Case, i: int) -> str:
    """Say how to allocate so that strides are aligned."""
    if c.view is None:
        return f"lay the tensor out with strides that are multiples of {c.alignment_bytes} bytes"
    bits = c.view.dtype.itemsize_bits
    unit = math.lcm(c.alignment_bytes * 8, bits) // bits
    if c.view.shape[-1] % unit == 0:
        return f"copy it to a row-major tensor: x = {_words(c.view).contiguous}"
    return pad_extent_fix(c, unit)


def pad_extent_fix(c: Case, unit: int) -> str:
    """Say how to make the last dimension a multiple of `unit` elements."""
    assert c.view is not None
    *outer, extent = c.view.shape
    padded = -(-extent // unit) * unit
    code = _words(c.view).pad.format(
        padded=padded,
        extent=extent,
        padded_shape=(*outer, padded),
        widths=(*((0, 0) for _ in outer), (0, padded - extent)),
    )
    return f"pad the last dimension from {extent} to {padded} elements: {code}"


def nesting_fix(c: Case, i: int) -> str:
    """Say how to order dimensions whose strides do not nest."""
    assert c.view is not None
    strides = c.view.strides
    order = sorted(range(c.rank), key=lambda d: -strides[d])
    copy = f"copy it: x = {_words(c.view).contiguous}"
    if order == list(range(c.rank)) or order[-1] != c.rank - 1:
        return copy
    permuted = _words(c.view).permute.format(order=", ".join(map(str, order)))
    return f"order the dimensions by stride: pass {permuted}; or {copy}"


def transpose_fix(c: Case, i: int) -> str:
    """Say how to bring the contiguous dimension to the end."""
    assert c.view is not None
    words, strides = _words(c.view), c.view.strides
    contiguous = [d for d, n in enumerate(c.view.shape) if strides[d] == 1 and n > 1]
    if not contiguous:
        return (
            f"copy it to a row-major tensor: x = {words.contiguous}; elem_strides cannot step the "
            "last dimension"
        )
    channels_last = c.kind != "tiled" and c.rank >= 3 and strides[1] == 1
    last = 1 if channels_last else contiguous[-1]
    order = ", ".join(str(d) for d in (*(d for d in range(c.rank) if d != last), last))
    permuted = words.permute.format(order=order)
    if channels_last:
        return (
            "this is an N, C, [D,] [H,] W tensor in channels_last memory: pass "
            f"{permuted}, which moves no data"
        )
    return (
        f"dimension {last} is the contiguous one: pass {permuted}, and box_sizes in that order; "
        f"or copy it: x = {words.contiguous}"
    )


def carry_fix(c: Case, i: int) -> str:
    """Say how to carry the bits of a type that maps do not have."""
    assert c.view is not None
    choices = overrides_of(c.view.dtype)
    if not choices:
        return (
            "pass a view or a copy as a type of 1, 2, 4 or 8 bytes, such as "
            f"{_words(c.view).as_bytes}"
        )
    others = f" (or {', '.join(t.name for t in choices[1:])})" if choices[1:] else ""
    return (
        f"say how to carry its bits: data_type={choices[0].name!r}{others}; a copy moves bits and "
        "never looks at their meaning"
    )


def packed_fix(c: Case, i: int) -> str:
    """Say how to do without a packed type."""
    later = "build for sm_100 or later (target='sm_100')"
    if c.view is None:
        return f"pass a type of whole bytes, or {later}"
    if TensorMapDataType.UINT8 in overrides_of(c.view.dtype):
        return f"carry it as bytes, data_type='UINT8', or {later}"
    return f"pass {_words(c.view).as_bytes}, or {later}"
