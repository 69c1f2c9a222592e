"""Names for messages, as the call spells them: `box_sizes[1]`, or `box_dim[0]` of the driver.

Rules name arguments in the words of `make_tma_descriptor`, and count dimensions from the innermost
one. A `make_*` call counts from the outermost; a `driver_encode_*` call has the driver's words.
"""

from __future__ import annotations

from tma_dlpack.checks.request import Request
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.coerce import counted

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
_OF_DRIVER = {
    "tensor.rank": "tensor_rank",
    "tensor.address": "global_address",
    "tensor.dtype": "tensor_data_type",
    "tensor.shape": "global_dim",
    "tensor.strides": "global_strides",
    "data_type": "tensor_data_type",
    "box_sizes": "box_dim",
    "elem_strides": "element_strides",
    "interleave_layout": "interleave",
    "l2_fetch_size": "l2_promotion",
    "oobfill": "oob_fill",
    "lower_corner_width": "pixel_box_lower_corner_width",
    "upper_corner_width": "pixel_box_upper_corner_width",
}


def argument(r: Request, name: str) -> str:
    """Give the call's own name for an argument that a rule names."""
    name = _OF_KIND[r.kind].get(name, name)
    if r.is_driver_call:
        return _OF_DRIVER.get(name, name)
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


def box_entry(r: Request, i: int) -> str:
    """Name entry i of the box."""
    return f"{argument(r, 'box_sizes')}[{_index(r, i)}]"


def inner_box(r: Request) -> str:
    """Name the argument for dimension 0 of the box."""
    return box_entry(r, 0) if r.kind == "tiled" else "channels_per_pixel"


def elem_stride(r: Request, i: int) -> str:
    """Name entry i of the traversal strides."""
    return f"{argument(r, 'elem_strides')}[{_index(r, i)}]"


def corner_entry(r: Request, which: str, i: int) -> str:
    """Name entry i of the ``"lower"`` or ``"upper"`` corner; i = 0 is W."""
    name = argument(r, f"pixel_box_{which}_corner")
    if r.kind == "im2col_wide":
        return name
    index = i if r.is_driver_call else r.spatial - 1 - i
    return f"{name}[{index}] ({'WHD'[i]})"


def _index(r: Request, i: int) -> int:
    """Give the index of dimension i in the order of the call."""
    return i if r.is_driver_call else r.rank - 1 - i
