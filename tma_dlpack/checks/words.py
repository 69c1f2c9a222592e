"""Fixes that change the tensor, as expressions of the framework that made it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from inspect import CO_OPTIMIZED

from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import TensorView, words_of
from tma_dlpack.tables.arguments import OPTION_NAMES, MapKind, Number, alignment_bytes_of, reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import PACKED_TYPES, overrides_of
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout
from tma_dlpack.tables.errors import Violation
from tma_dlpack.tables.limits import INNER_BYTES, MAX_BOX

#: The tensor in a fix, the word x: re looks for the letter quickly where a pattern begins with it.
_X = re.compile(r"x(?<!\wx)\b(?!')")
NUMPY_ALIGNS = 16  # bytes: alignment of numpy.empty and x.copy()


# -- names of arguments, as the call spells them ---------------------------------------------------

#: The names for maps that are not tiled.
_OF_KIND: dict[MapKind, dict[str, str]] = {
    "tiled": {},
    "im2col": {"box_sizes": "channels_per_pixel"},
    "im2col_wide": {
        "box_sizes": "channels_per_pixel",
        "pixel_box_lower_corner": "lower_corner_width",
        "pixel_box_upper_corner": "upper_corner_width",
    },
}
#: The arguments that describe a tensor's memory in another way.
_OF_LAYOUT = {
    "tensor.rank": "shape",
    "tensor.shape": "shape",
    "tensor.strides": "strides",
    "tensor.address": "offset",
}
#: The names in `driver_encode_*` calls.
OF_DRIVER = {
    "tensor.rank": "tensor_rank",
    "tensor.address": "global_address",
    "tensor.dtype": "tensor_data_type",
    "tensor.shape": "global_dim",
    "tensor.strides": "global_strides",
    "data_type": "tensor_data_type",
    "box_sizes": "box_dim",
    "elem_strides": "element_strides",
    **OPTION_NAMES,
    "lower_corner_width": "pixel_box_lower_corner_width",
    "upper_corner_width": "pixel_box_upper_corner_width",
}


def argument(r: Request, name: str) -> str:
    """Give the call's own name for an argument that a rule names."""
    name = _OF_KIND[r.kind].get(name, name)
    if r.is_driver_call:
        return OF_DRIVER.get(name, name)
    if name == "tensor.dtype" and r.asked_type is not None:
        return "data_type"
    if not r.is_own_layout and name in _OF_LAYOUT:
        return _OF_LAYOUT[name]
    return name.partition(".")[0]


def layout(r: Request, name: str) -> str:
    """Name the tensor's shape or strides, or the arguments that replace them."""
    return f"tensor.{name}" if r.is_own_layout else name


def extent(r: Request, i: int) -> str:
    """Name the extent of dimension i."""
    return f"{'global_dim' if r.is_driver_call else layout(r, 'shape')}[{_index(r, i)}]"


def extent_found(r: Request, i: int) -> str:
    """Name the extent of dimension i and give its value."""
    return f"{extent(r, i)} is {r.arguments.global_dim[i]}"


def stride_found(r: Request, i: int) -> str:
    """Name the stride of dimension i and give its value, with units."""
    size = counted(r.arguments.global_strides[i - 1], "byte")
    if r.view is None:
        return f"global_strides[{i - 1}] is {size}"
    index = _index(r, i)
    elements = counted(r.view.strides[index], "element")
    return f"{layout(r, 'strides')}[{index}] is {elements}, {size}"


def entry(r: Request, name: str, i: int) -> str:
    """Name entry i of the box or of the traversal strides."""
    return f"{argument(r, name)}[{_index(r, i)}]"


def inner_box(r: Request) -> str:
    """Name the argument for dimension 0 of the box."""
    return entry(r, "box_sizes", 0) if r.kind == "tiled" else "channels_per_pixel"


def corner_entry(r: Request, which: str, i: int) -> str:
    """Name entry i of the ``"lower"`` or ``"upper"`` corner; i = 0 is W."""
    name = argument(r, f"pixel_box_{which}_corner")
    if r.kind == "im2col_wide":
        return name
    index = i if r.is_driver_call else r.facts.spatial - 1 - i
    return f"{name}[{index}] ({'WHD'[i]})"


def _index(r: Request, i: int) -> int:
    """Give the index of dimension i in the order of the call."""
    return i if r.is_driver_call else r.rank - 1 - i


# -- fixes -----------------------------------------------------------------------------------------


def box_order_hint(r: Request) -> str:
    """Ask whether the box was meant in the other order, where only that order fits."""
    box, shape = reverse(r.arguments.box_dim), reverse(r.arguments.global_dim)
    turned = box[::-1]
    if r.is_driver_call or not all(map(_fits, turned, shape)) or all(map(_fits, box, shape)):
        return ""
    return f"box_sizes is row-major: did you mean {turned}? If not, "


def _fits(size: int, extent: Number) -> bool:
    return 1 <= size <= min(extent, MAX_BOX)


def channels_last_hint(r: Request) -> str:
    """Say how to put the channels last, where the second dimension has them; "" elsewhere."""
    if (
        r.view is None
        or r.kind == "tiled"
        or not r.is_own_layout
        or r.arguments.interleave
        or r.rank < 3
    ):
        return ""
    shape, channels = r.view.shape, r.arguments.channels_per_pixel
    if not shape[-1] < channels <= shape[1]:
        return ""
    words = words_of(r.view)
    order = ", ".join(map(str, (0, *range(2, r.rank), 1)))
    permuted = words.permute.format(order=order)
    spatial = "D, H, W"[-3 * r.facts.spatial + 2 :]
    return (
        f"this looks like N, C, {spatial}, and im2col reads N, {spatial}, C: pass "
        f"{_X.sub(permuted, words.contiguous, 1)}"
    )


def alignment_fix(r: Request) -> str:
    """Say how to start at an aligned address."""
    multiple = r.facts.alignment_bytes
    if r.view is None:
        return f"pass an address that is a multiple of {multiple}"
    if not r.is_own_layout:
        return _offset_fix(r)
    start = f"start the view at an element whose address is a multiple of {multiple} bytes"
    words = words_of(r.view)
    if multiple == NUMPY_ALIGNS or not words.aligned_copy:
        return f"{start}, or copy it: x = {words.copy}"
    less = (
        ", or use interleave_layout='bytes16'"
        if alignment_bytes_of(TmaInterleaveLayout.none, r.data_type) == 16
        else ""
    )
    return f"{start}{less}, or copy it to such an address: {words.aligned_copy}"


def _offset_fix(r: Request) -> str:
    """Name the nearest offset= before the one that was given, if there is one."""
    assert r.view is not None
    past, bits = r.address % r.facts.alignment_bytes, r.view.dtype.itemsize_bits
    fix = f"use an offset whose address is a multiple of {r.facts.alignment_bytes} bytes"
    if past * 8 % bits or bits % 8:
        return fix
    offset = r.view.offset_bytes * 8 // bits - past * 8 // bits
    return f"{fix}; the nearest before is offset={offset}"


def padding_fix(r: Request) -> str:
    """Say how to allocate so that strides are aligned."""
    multiple = r.facts.alignment_bytes
    if r.view is None:
        return f"lay the tensor out with strides that are multiples of {multiple} bytes"
    if hint := channels_last_hint(r):
        return hint
    bits = r.view.dtype.itemsize_bits
    unit = math.lcm(multiple * 8, bits) // bits
    if not r.is_own_layout:
        return f"use strides that are multiples of {counted(unit, 'element')}"
    if r.view.shape[-1] % unit == 0:
        return f"copy it to a row-major tensor: x = {words_of(r.view).contiguous}"
    return pad_extent_fix(r, unit)


def pad_extent_fix(r: Request, unit: int) -> str:
    """Say how to make the last dimension a multiple of `unit` elements."""
    assert r.view is not None
    *outer, extent = r.view.shape
    padded = -(-extent // unit) * unit
    code = words_of(r.view).pad.format(
        padded=padded,
        extent=extent,
        padded_shape=(*outer, padded),
        widths=(*((0, 0) for _ in outer), (0, padded - extent)),
    )
    return f"pad the last dimension from {extent} to {padded} elements: {code}"


def nesting_fix(r: Request) -> str:
    """Say how to order dimensions whose strides do not nest."""
    assert r.view is not None
    if not r.is_own_layout:
        return "order the dimensions by stride, each at least as large as the one inside it spans"
    strides = r.view.strides
    order = sorted(range(r.rank), key=lambda d: -strides[d])
    copy = f"copy it: x = {words_of(r.view).contiguous}"
    if order[-1] != r.rank - 1 or not _nest(r.view, order):
        return copy
    permuted = words_of(r.view).permute.format(order=", ".join(map(str, order)))
    return (
        f"order the dimensions by stride: pass {permuted}, and box_sizes in that order; or {copy}"
    )


def _nest(view: TensorView, order: Sequence[int]) -> bool:
    """Whether no stride is less than what the dimensions after it span, in an order of them."""
    inside = view.shape[order[-1]]
    for d in order[-2::-1]:
        if 0 < view.strides[d] < inside:
            return False
        if view.shape[d] != 1:
            inside = view.shape[d] * view.strides[d]
    return True


def transpose_fix(r: Request) -> str:
    """Say how to bring the contiguous dimension to the end."""
    assert r.view is not None
    if not r.is_own_layout:
        if (strides := strides_in_elements(r)) and strides[-1] == 1:
            return f"strides are in elements, not in bytes: did you mean strides={strides}?"
        given = (*r.view.strides[:-1], 1)
        return f"pass strides whose last entry is 1, such as strides={given}"
    words, strides = words_of(r.view), r.view.strides
    contiguous = [d for d, n in enumerate(r.view.shape) if strides[d] == 1 and n > 1]
    if not contiguous:
        return (
            f"copy it to a row-major tensor: x = {words.contiguous}; elem_strides cannot step the "
            "last dimension"
        )
    channels_last = r.kind != "tiled" and r.rank >= 3 and strides[1] == 1
    last = 1 if channels_last else contiguous[-1]
    order = ", ".join(str(d) for d in (*(d for d in range(r.rank) if d != last), last))
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


def strides_in_elements(r: Request) -> tuple[int, ...] | None:
    """Return `strides=` as elements if they may have been given in bytes."""
    assert r.view is not None
    step = r.view.dtype.itemsize_bits // 8
    if r.is_own_layout or step < 2 or any(stride % step for stride in r.view.strides[:-1]):
        return None
    inner = r.view.strides[-1]
    return (*(stride // step for stride in r.view.strides[:-1]), inner // step or inner)


def name_in_caller(tensor: object) -> str:
    """Return the name of a tensor in the function outside of this package that passed it, or x."""
    frame = sys._getframe(1)
    while frame.f_back and f"{frame.f_globals.get('__name__')}.".startswith("tma_dlpack."):
        frame = frame.f_back
    own = frame.f_locals
    name = _name_in(own, tensor) or _name_in(frame.f_globals, tensor) or "x"
    # Before Python 3.13 a function's f_locals is a copy, kept with the frame: what the function
    # deletes would live on. Unless somebody else has it (3: the frame, `own`, and the argument).
    if frame.f_code.co_flags & CO_OPTIMIZED and type(own) is dict and sys.getrefcount(own) <= 3:
        own.clear()
    return name


def _name_in(scope: Mapping[str, object], tensor: object) -> str:
    names = [name for name, value in tuple(scope.items()) if value is tensor]
    return min(names, key=lambda name: name.startswith("_"), default="")


def in_words_of_caller(violations: tuple[Violation, ...], tensor: object) -> tuple[Violation, ...]:
    """Return violations whose fixes name the tensor as the caller does, instead of x."""
    if tensor is None or not any(_X.search(v.fix) for v in violations):
        return violations
    return in_words_of(violations, name_in_caller(tensor))


def in_words_of(violations: tuple[Violation, ...], name: str) -> tuple[Violation, ...]:
    """Return violations whose fixes call the tensor by what `name_in_caller` returned."""
    if name == "x" or not name.isidentifier():
        return violations

    def renamed(v: Violation) -> Violation:
        fix = re.sub(r"\by\b", "padded", v.fix) if name == "y" else v.fix
        return Violation(v.rule, v.argument, v.found, v.limit, _X.sub(name, fix), v.source)

    return tuple(map(renamed, violations))


def carry_fix(r: Request) -> str:
    """Say how to carry the bits of a type that maps do not have."""
    assert r.view is not None
    choices = [
        t for t in overrides_of(r.view.dtype) if t not in PACKED_TYPES or not r.target.is_sm_9x
    ]
    if not choices:
        return (
            "pass a view or a copy as a type of 1, 2, 4 or 8 bytes, such as "
            f"{words_of(r.view).view_as.format(dtype='uint8')}"
        )
    others = f" (or {', '.join(t.name for t in choices[1:])})" if choices[1:] else ""
    return f"pass data_type={choices[0].name!r}{others}: copies do not change the bits"


def wider_hint(r: Request) -> str:
    """Say which view as a wider dtype would fit the box of a row in 256 elements; "" for none."""
    if r.view is None or not r.is_own_layout or not r.type_is_known or r.arguments.interleave:
        return ""
    own_bits, row = r.view.dtype.itemsize_bits, r.facts.inner_box
    if own_bits % 8 or r.facts.element_bits != own_bits or r.arguments.swizzle:
        return ""
    for bits in range(32, words_of(r.view).widest_bits + 1, 32):
        count = bits // own_bits
        sizes = (row, r.view.shape[-1], *r.view.strides[:-1])
        whole = bits > own_bits and all(n % count == 0 for n in sizes)
        if whole and row <= MAX_BOX * count and r.inner_box_bytes % INNER_BYTES == 0:
            view = words_of(r.view).view_as.format(dtype=f"int{bits}")
            return f"; or pass {view}, whose box is {counted(row // count, 'element')} wide"
    return ""


def index_fix(r: Request, i: int) -> str:
    """Say how to do without dimension i (innermost first), whose stride is too large."""
    if r.view is None or not r.is_own_layout:
        return "index this dimension instead, and make one map per slice"
    dimension = r.rank - 1 - i
    box = ", with 1 there in box_sizes" if r.kind == "tiled" else ""
    part = f"x[{':, ' * dimension}n:n+1]"
    return f"make one map for each index n of dimension {dimension}, of {part}{box}"


def parts_fix(r: Request, i: int) -> str:
    """Say how to split dimension i (innermost first) into parts that can be copied."""
    if r.view is None or not r.is_own_layout:
        return "split the tensor along this dimension, one map per part"
    colons = ":, " * (r.rank - 1 - i)
    return f"make one map per part: x[{colons}:2**30], x[{colons}2**30:2**31] and so on"


def packed_fix(r: Request) -> str:
    """Say how to do without a packed type."""
    later = "build for sm_100 or later (target='sm_100')"
    if r.view is None:
        return f"pass a type of whole bytes, or {later}"
    if TensorMapDataType.UINT8 in overrides_of(r.view.dtype):
        return f"carry it as bytes, data_type='UINT8', or {later}"
    return f"pass {words_of(r.view).view_as.format(dtype='uint8')}, or {later}"
