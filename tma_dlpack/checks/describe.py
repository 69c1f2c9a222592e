"""The struct that predicates read: the driver's arguments as plain integers, and what follows.

`include/tma_dlpack_make.h` fills the same struct in C. There, numbers are cut at 2^60, which is
beyond every limit; here they are exact. Packed types count in bits, so that nothing is a fraction.
"""

from __future__ import annotations

from typing import Any

from tma_dlpack.checks.request import Request
from tma_dlpack.tables.arguments import KINDS, EncodeArguments
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.limits import SWIZZLE_SPAN_BYTES

#: Every field: its name, how many entries it has (0 for a number), the arguments that it is from
#: (a rule is not reported where one of them could not be read), and what it is. Index 0 is the
#: innermost dimension, and W of a corner. Entries past the rank are 0.
STRUCT: tuple[tuple[str, int, str, str], ...] = (
    ("kind", 0, "", "TILED, IM2COL or IM2COL_WIDE"),
    ("rank", 0, "", "as it was given"),
    ("dims", 0, "", "the rank, or 0 where it is not 1..5: the end of loops over dimensions"),
    ("spatial", 0, "", "rank - 2 of an im2col map, 0..3: the end of loops over W, H, D"),
    ("corners", 0, "", "entries of a corner that are judged: spatial, or 1 for im2col-wide"),
    ("first_spatial", 0, "interleave_layout", "the dimension of W: 1, or 0 when interleaved"),
    ("address", 0, "", "of element (0, ..., 0)"),
    ("is_null", 0, "", "whether the tensor's own address is 0"),
    ("data_type", 0, "data_type", "CUtensorMapDataType, or -1 where maps have none for the tensor"),
    ("asked_type", 0, "data_type", "the same as data_type= has it, or -1"),
    ("element_bits", 0, "data_type", "of the data type; 8 where there is none"),
    ("is_packed", 0, "data_type", "column of the data type"),
    ("is_padded", 0, "data_type", "column of the data type"),
    ("is_float", 0, "data_type", "column of the data type"),
    ("packed_unit", 0, "data_type", "column of the data type"),
    ("type_interleaves", 0, "data_type", "column of the data type"),
    ("type_swizzles", 0, "data_type", "column of the data type"),
    (
        "passes_nan",
        0,
        "",
        "whether libcu++ leaves the fill to the driver: float8 and float4 tensors",
    ),
    ("interleave", 0, "interleave_layout", "TmaInterleaveLayout"),
    ("swizzle", 0, "swizzle", "TmaSwizzle"),
    ("l2_promotion", 0, "l2_fetch_size", "TmaL2FetchSize"),
    ("oob_fill", 0, "oobfill", "TmaOobFill"),
    ("mode", 0, "mode", "TensorMapIm2ColWideMode"),
    (
        "alignment_bytes",
        0,
        "interleave_layout data_type",
        "what the address and every stride must be a multiple of",
    ),
    ("inner_stride", 0, "", "of dimension 0, in elements"),
    ("row_bits", 0, "", "that the tensor spans along dimension 0"),
    ("global_dim", 5, "", "extents, in values of the data type"),
    ("stride_bits", 4, "", "of dimensions 1 to rank - 1"),
    ("inside_bits", 5, "", "that the dimensions inside span; those of extent 1 do not count"),
    ("box_count", 0, "box_sizes", "entries of the box that were given"),
    ("box_dim", 5, "box_sizes", "the box of a tiled map"),
    ("inner_box", 0, "box_sizes", "box_dim[0], a span if split, or the channels of an im2col map"),
    ("inner_box_bits", 0, "box_sizes data_type", "bits of inner_box"),
    ("box_bits", 0, "box_sizes data_type", "bits of the whole box, or of the column"),
    (
        "floor_box_bits",
        0,
        "box_sizes data_type elem_strides",
        "the same as the driver counts it: each box // element stride",
    ),
    ("span_bits", 0, "swizzle", "one row of the swizzle pattern; 0 without swizzle"),
    (
        "elem_stride_count",
        0,
        "elem_strides",
        "entries of the element strides that were given; the rank if none",
    ),
    ("element_strides", 5, "elem_strides", "steps along each dimension"),
    (
        "ignores_inner_step",
        0,
        "interleave_layout",
        "whether the innermost element stride is ignored",
    ),
    ("lower_count", 0, "pixel_box_lower_corner", "entries of the lower corner that were given"),
    ("upper_count", 0, "pixel_box_upper_corner", "entries of the upper corner that were given"),
    ("lower", 3, "pixel_box_lower_corner", "lower corner of an im2col map"),
    ("upper", 3, "pixel_box_upper_corner", "upper corner of an im2col map"),
    ("corner_end", 0, "target", "a corner entry lies in [-corner_end, corner_end)"),
    ("channels", 0, "channels_per_pixel", "per pixel"),
    ("pixels", 0, "pixels_per_column", "per column"),
    ("is_split", 0, "split_inner", "whether split_inner= is given"),
    ("has_swizzle", 0, "swizzle", "whether swizzle= is given"),
    (
        "span_values",
        0,
        "swizzle data_type",
        "elements of one span of the swizzle; of 16 bytes without one",
    ),
    ("is_ragged", 0, "ragged", "whether ragged= is given"),
    ("ragged_dim", 0, "ragged", "the dimension that it names; -1 where there is none"),
    ("ragged_stride_bits", 0, "ragged", "stride of that dimension"),
    ("has_tma", 0, "target", "column of the target"),
    ("is_sm_9x", 0, "target", "column of the target"),
    ("has_wide", 0, "target", "column of the target"),
    ("has_model", 0, "target", "column of the target"),
    ("max_smem_bytes", 0, "target", "shared memory of a block, after opt-in"),
)


class Described:
    """A request as integers; `STRUCT` says what each field is, and each is 0 until it is set."""


for _name, _count, *_ in STRUCT:
    setattr(Described, _name, (0,) * _count if _count else 0)

_ZEROS = (0,) * 5


def describe(r: Request) -> Described:
    """Return the struct of a request."""
    a, target, rank = r.arguments, r.target, r.rank
    c: Any = Described()
    c.kind, c.rank = KINDS.index(a.kind), rank
    c.dims = dims = rank if 1 <= rank <= 5 else 0
    c.address, c.is_null = r.address, r.view is not None and r.own_address == 0

    row = DATA_TYPES[a.data_type]
    c.data_type = a.data_type if r.type_is_known else -1
    c.asked_type = -1 if r.asked_type is None else r.asked_type
    c.element_bits = bits = row.element_bits
    c.is_float, c.packed_unit, c.type_swizzles = row.is_float, 1, row.swizzles
    c.type_interleaves, c.passes_nan = row.interleaves, r.passes_nan
    if row.is_packed:
        c.is_packed, c.is_padded, c.packed_unit = True, row.is_padded, row.packed_unit

    c.interleave, c.swizzle = a.interleave, a.swizzle
    c.l2_promotion, c.oob_fill, c.mode = a.l2_promotion, a.oob_fill, a.mode
    c.first_spatial = 0 if a.interleave else 1
    c.alignment_bytes, c.inner_stride = a.alignment_bytes, r.innermost_stride

    view, extents = r.view, a.global_dim
    if view is not None and view.shape:
        c.row_bits = view.shape[-1] * view.dtype.itemsize_bits
    else:
        c.row_bits = extents[0] * bits if extents else 0
    stride_bits = tuple([int(8 * stride) for stride in a.global_strides])
    c.stride_bits = (stride_bits + _ZEROS)[:4]
    inside, spans = c.row_bits, [0]
    for d in range(1, dims):
        spans.append(inside)
        if extents[d] != 1:
            inside = extents[d] * stride_bits[d - 1]
    c.inside_bits = (*spans, *_ZEROS)[:5]
    c.global_dim = (extents + _ZEROS)[:5]
    if row.is_packed and dims:
        c.global_dim = (c.row_bits // bits, *c.global_dim[1:])

    steps = a.element_strides
    c.elem_stride_count, c.element_strides = len(steps), (steps + _ZEROS)[:5]
    c.ignores_inner_step = r.ignores_innermost_elem_stride
    c.span_bits = 8 * SWIZZLE_SPAN_BYTES[a.swizzle]
    c.is_split, c.is_ragged, c.has_swizzle = r.split_inner, r.is_ragged, r.has_swizzle
    c.span_values, c.ragged_dim = r.span_values, r.ragged_dim
    if 1 <= c.ragged_dim < dims:
        c.ragged_stride_bits = stride_bits[c.ragged_dim - 1]
    c.corner_end = r.corner_end
    if a.kind == "tiled":
        _describe_box(c, a.box_dim, steps)
    else:
        _describe_column(c, a)
    c.inner_box_bits = c.inner_box * bits

    c.has_tma, c.is_sm_9x, c.has_wide = target.has_tma, target.is_sm_9x, target.has_wide
    c.has_model, c.max_smem_bytes = target.has_model, target.max_smem_bytes
    described: Described = c
    return described


def _describe_box(c: Any, box: tuple[int, ...], steps: tuple[int, ...]) -> None:
    c.box_count, c.box_dim = len(box), (box + _ZEROS)[:5]
    c.inner_box = c.span_values if c.is_split else c.box_dim[0]
    box_bits = floor_bits = c.element_bits
    for d, size in enumerate(box):
        step = steps[d] if d < len(steps) and not (d == 0 and c.ignores_inner_step) else 1
        box_bits *= size
        floor_bits *= size // step if step > 0 else size
    c.box_bits, c.floor_box_bits = box_bits, floor_bits


def _describe_column(c: Any, a: EncodeArguments) -> None:
    lower, upper = a.pixel_box_lower_corner, a.pixel_box_upper_corner
    c.spatial = max(0, c.dims - 2)
    c.corners = min(1, c.spatial) if a.kind == "im2col_wide" else c.spatial
    c.lower_count, c.lower = len(lower), (lower + _ZEROS)[:3]
    c.upper_count, c.upper = len(upper), (upper + _ZEROS)[:3]
    c.channels, c.pixels = a.channels_per_pixel, a.pixels_per_column
    c.inner_box = c.channels
    c.box_bits = c.floor_box_bits = c.channels * c.pixels * c.element_bits
