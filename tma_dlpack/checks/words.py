"""Words for reports: names of arguments, texts that several fixes share, and texts of rules."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from inspect import CO_OPTIMIZED
from typing import Any, NamedTuple

from tma_dlpack.checks.request import Request
from tma_dlpack.checks.struct import OF_DRIVER
from tma_dlpack.dlpack import TensorView
from tma_dlpack.tables.arguments import MapKind, Number, reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.rule import Rule, Text
from tma_dlpack.tables.targets import MAX_BOX, MAX_RANK

#: The word x, which stands for the tensor in the text of a fix. The pattern begins with the letter
#: x and not with \b, because `re` then searches faster.
_X = re.compile(r"x(?<!\wx)\b(?!')")
_Y = re.compile(r"\by\b")  # the word y, the variable that a fix assigns to


# -- names of arguments, as the call spells them ---------------------------------------------------

#: Name of an argument in rules -> its name in calls for this kind of map.
_OF_KIND: dict[MapKind, dict[str, str]] = {
    "tiled": {},
    "im2col": {"box_sizes": "channels_per_pixel"},
    "im2col_wide": {
        "box_sizes": "channels_per_pixel",
        "pixel_box_lower_corner": "lower_corner_width",
        "pixel_box_upper_corner": "upper_corner_width",
    },
}
#: Property of the tensor -> the argument of the call that replaces it.
_OF_LAYOUT = {
    "tensor.rank": "shape",
    "tensor.shape": "shape",
    "tensor.strides": "strides",
    "tensor.address": "offset",
}


def argument(r: Request, name: str) -> str:
    """Return the call's name for the argument whose name in rules is `name`."""
    name = _OF_KIND[r.kind].get(name, name)
    if r.is_driver_call:
        return OF_DRIVER.get(name, name)
    if name == "tensor.dtype" and r.facts.asked_type >= 0:
        return "data_type"
    if name in _OF_LAYOUT and not r.is_own_layout:
        return _OF_LAYOUT[name]
    return name.partition(".")[0]


def layout(r: Request, name: str) -> str:
    """Return "tensor.shape" or "tensor.strides", or the name of the argument that replaces it.

    `name` is "shape" or "strides".
    """
    return f"tensor.{name}" if r.is_own_layout else name


def extent(r: Request, i: int) -> str:
    """Return the name of the extent of dimension i, where 0 is the innermost."""
    return f"{'global_dim' if r.is_driver_call else layout(r, 'shape')}[{_index(r, i)}]"


def extent_found(r: Request, i: int) -> str:
    """Return words with the name and the value of the extent of dimension i."""
    return f"{extent(r, i)} is {r.arguments.global_dim[i]}"


def stride_found(r: Request, i: int) -> str:
    """Return words with the name, the value and the unit of the stride of dimension i."""
    size = counted(r.arguments.global_strides[i - 1], "byte")
    if r.is_driver_call:
        return f"global_strides[{i - 1}] is {size}"
    index = _index(r, i)
    elements = counted(r.tensor.strides[index], "element")
    return f"{layout(r, 'strides')}[{index}] is {elements}, {size}"


def entry(r: Request, name: str, i: int) -> str:
    """Return the name of entry i of an argument with one entry per dimension."""
    return f"{argument(r, name)}[{_index(r, i)}]"


def inner_box(r: Request) -> str:
    """Return the name of the innermost entry of the box, or of an im2col map's channels."""
    return entry(r, "box_sizes", 0) if r.kind == "tiled" else "channels_per_pixel"


def corner_entry(r: Request, which: str, i: int) -> str:
    """Return the name of entry i of the ``"lower"`` or ``"upper"`` corner, where 0 is W."""
    name = argument(r, f"pixel_box_{which}_corner")
    if r.kind == "im2col_wide":
        return name
    index = i if r.is_driver_call else r.facts.spatial - 1 - i
    return f"{name}[{index}] ({'WHD'[i]})"


def _index(r: Request, i: int) -> int:
    """Return the index of dimension i in the order of the call."""
    index: int = i if r.is_driver_call else r.facts.rank - 1 - i
    return index


# -- fixes -----------------------------------------------------------------------------------------


def turned_box(r: Request) -> tuple[int, ...] | None:
    """Return the box with its entries reversed, if only the reversed box fits; else None."""
    box, shape = reverse(r.arguments.box_dim), reverse(r.arguments.global_dim)
    turned = box[::-1]
    if r.is_driver_call or not all(map(_fits, turned, shape)) or all(map(_fits, box, shape)):
        return None
    unit = r.facts.span_values or r.inner_unit
    if not r.facts.interleave and r.type_is_known and turned[-1] % unit:
        return None
    return turned


def _fits(size: int, extent: Number) -> bool:
    return 1 <= size <= min(extent, MAX_BOX)


_ENTRIES = ("columns", "rows", *(f"entries of dimension {d}" for d in range(2, MAX_RANK)))


def other_tile(old: Any, new: Any, tx_bytes: Callable[[], int]) -> str:
    """Return words that state how much smaller a tile is, and the bytes that a kernel must expect.

    `old` is the struct of the user's call, and `new` is the struct of the changed call. Return ""
    if the new tile is not smaller.
    """
    names: tuple[str, ...] = _ENTRIES
    if old.kind:
        names = ("channels", "pixels")
        was, becomes = (old.channels, old.pixels), (new.channels, new.pixels)
    else:
        was, becomes = old.box_dim[: old.box_count], new.box_dim[: new.box_count]
    # Convert the new innermost entry to elements of the old data type.
    if becomes and new.element_bits != old.element_bits:
        becomes = (becomes[0] * new.element_bits // old.element_bits, *becomes[1:])
    if was == becomes or len(was) != len(becomes) or math.prod(becomes) >= math.prod(was):
        return ""
    pairs = zip(names, was, becomes, strict=False)
    differ = [f"{n} instead of {m} {name}" for name, m, n in pairs if m != n]
    return f" (copies {' and '.join(differ)}: the kernel must expect {tx_bytes()} bytes)"


def nearest_offset(r: Request) -> int | None:
    """Return the offset= of the nearest aligned address at or below the address of the call."""
    # `past` is the number of bytes from the aligned address to the address of the call.
    past, bits = r.address % r.facts.alignment_bytes, r.tensor.dtype.itemsize_bits
    if past * 8 % bits or bits % 8:
        return None
    return int(r.tensor.offset_bytes * 8 // bits - past * 8 // bits)


def pad_fix(r: Request, code: str, unit: int) -> str:
    """Return a fix that makes the last dimension a multiple of `unit` elements."""
    *outer, extent = r.tensor.shape
    padded = -(-extent // unit) * unit
    code = code.format(
        padded=padded,
        extent=extent,
        padded_shape=(*outer, padded),
        widths=(*((0, 0) for _ in outer), (0, padded - extent)),
    )
    return f"pad the last dimension from {extent} to {padded} elements: {code}"


def nesting_order(view: TensorView) -> list[int]:
    """Return the dimensions sorted by stride, with the largest stride first."""
    return sorted(range(len(view.shape)), key=lambda d: -view.strides[d])


def strides_in_elements(r: Request) -> tuple[int, ...] | None:
    """Return `strides=` divided by the item size if the values may be bytes, else None."""
    step = r.tensor.dtype.itemsize_bits // 8
    if r.is_own_layout or step < 2 or any(stride % step for stride in r.tensor.strides[:-1]):
        return None
    inner = r.tensor.strides[-1]
    return (*(stride // step for stride in r.tensor.strides[:-1]), inner // step or inner)


def parts_fix(r: Request, i: int) -> str:
    """Return a fix that makes one map for each part of dimension i (0 is the innermost)."""
    if r.view is None or not r.is_own_layout:
        return "split the tensor along this dimension, one map per part"
    colons = ":, " * (r.rank - 1 - i)
    return f"make one map per part: x[{colons}:2**30], x[{colons}2**30:2**31] and so on"


# -- the texts of a rule ---------------------------------------------------------------------------


def row_text(text: Text, call: Any, *entry: int) -> str:
    """Return a text of a rule as a string. Pass the index `entry` only if the rule has `each`."""
    return text if isinstance(text, str) else text(call, *entry)


def found_and_limit(rule: Rule, call: Any, *entry: int) -> tuple[str, str]:
    """Return the two halves of a message: what was found, and the limit."""
    limit = rule.limit or f"it must {row_text(rule.must, call, *entry)}"
    return row_text(rule.found, call, *entry), limit


# -- the caller's name for the tensor --------------------------------------------------------------


def for_x(code: str, other: str) -> str:
    """Return the code with the expression `other` in place of the first x."""
    return _X.sub(lambda match: other, code, count=1)


class Names(NamedTuple):
    """The variable names in a fix: the caller's name for the tensor, and a name for a copy."""

    tensor: str = "x"
    copy: str = "y"


#: The names for a tensor that no variable of the caller refers to.
UNNAMED = Names()


def names_in_caller(tensor: object) -> Names:
    """Return the variable names for a fix, from the function that called this package.

    If no variable of the caller refers to the tensor, a fix calls the tensor x, or "tensor" if the
    caller has another variable x. A fix calls a copy y, or "padded" if the caller has a variable y.
    """
    if tensor is None:
        return UNNAMED
    frame = sys._getframe(1)
    while frame.f_back and f"{frame.f_globals.get('__name__')}.".startswith("tma_dlpack."):
        frame = frame.f_back
    own, other = frame.f_locals, frame.f_globals
    name = _name_in(own, tensor) or ("" if own is other else _name_in(other, tensor))
    if not name.isidentifier():
        name = "tensor" if "x" in own or "x" in other else "x"
    names = Names(name, "padded" if "y" in own or "y" in other else "y")
    # Before Python 3.13, a function's f_locals is a dict that the frame keeps. This dict would keep
    # objects alive that the function deletes, so clear the dict unless other code refers to it.
    # Three references are not from other code: the frame's, `own`, and getrefcount's argument.
    if frame.f_code.co_flags & CO_OPTIMIZED and type(own) is dict and sys.getrefcount(own) <= 3:
        own.clear()
    return names


def _name_in(scope: Mapping[str, object], tensor: object) -> str:
    """Return a name of an object, if possible without a leading underscore; "" if none exists."""
    found = ""
    for name, value in tuple(scope.items()):  # another thread may add names
        if value is tensor:
            if name[:1] != "_":
                return name
            found = found or name
    return found


def in_words_of(fix: str, names: Names) -> str:
    """Return the text of a fix with x and y replaced by the variable names in `names`."""
    if names == UNNAMED:
        return fix
    return _X.sub(names.tensor, fix if names.copy == "y" else _Y.sub(names.copy, fix))
