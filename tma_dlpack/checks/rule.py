"""Names that many rules share, and the struct that predicates read."""

from __future__ import annotations

from typing import Any

from tma_dlpack.tables.arguments import OPTION_NAMES, MapKind

MEASURED = "measured, H200, driver 580.159.04"

DRIVER_STEPS = 100  # steps from here on are the driver's, beyond libcu++'s own

# Sets of rules; the docstring of the package describes them.
DRIVER = frozenset({"driver", "measured"})
LIBCU = frozenset({"libcu++"})
#: Documented, but the driver of sm_90 does not refuse it.
ALL_BUT_MEASURED = frozenset({"libcu++", "driver", "documented"})
#: Not documented, but the driver of sm_90 refuses it.
TILED_ON_SM_90 = frozenset({"libcu++", "driver", "measured"})

Kinds = tuple[MapKind, ...]
TILED: Kinds = ("tiled",)
IM2COL: Kinds = ("im2col",)
WIDE: Kinds = ("im2col_wide",)
BOTH_IM2COL: Kinds = ("im2col", "im2col_wide")

#: Rules that must hold before a rule on the map's data type is checked.
HAS_TYPE = ("DTYPE", "DATA_TYPE_OVERRIDE")

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

#: Keyword arguments to pass instead, row-major.
Change = dict[str, Any]


#: Fields: name, number of entries (0 for a single number), the arguments that it depends on (if one
#: of them is unreadable, rules that read the field are not reported), and the meaning. Index 0 is
#: the innermost dimension, and W of a corner. Entries past the rank are 0 (in C: not written), and
#: `spatial`, `corners` and `corner_end` of tiled maps too.
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
    ("element_bits", 0, "data_type", "of the data type; 8 for a dtype without one"),
    ("is_packed", 0, "data_type", "column of the data type"),
    ("is_padded", 0, "data_type", "column of the data type"),
    ("is_float", 0, "data_type", "column of the data type"),
    ("packed_unit", 0, "data_type", "column of the data type"),
    ("type_interleaves", 0, "data_type", "column of the data type"),
    ("type_swizzles", 0, "data_type", "column of the data type"),
    ("passes_nan", 0, "", "whether libcu++ leaves the fill to the driver: of float8 and float4"),
    ("interleave", 0, "interleave_layout", "TmaInterleaveLayout"),
    ("swizzle", 0, "swizzle", "TmaSwizzle"),
    ("l2_promotion", 0, "l2_fetch_size", "TmaL2FetchSize"),
    ("oob_fill", 0, "oobfill", "TmaOobFill"),
    ("mode", 0, "mode", "TensorMapIm2ColWideMode"),
    ("alignment_bytes", 0, "interleave_layout data_type", "of the address and of every stride"),
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
    ("floor_box_bits", 0, "box_sizes data_type elem_strides", "the same of box // element stride"),
    ("span_bits", 0, "swizzle", "one row of the swizzle pattern; 0 without swizzle"),
    ("elem_stride_count", 0, "elem_strides", "entries that were given; the rank if none"),
    ("element_strides", 5, "elem_strides", "steps along each dimension"),
    ("ignores_inner_step", 0, "interleave_layout", "whether the innermost of them is ignored"),
    ("lower_count", 0, "pixel_box_lower_corner", "entries of the lower corner that were given"),
    ("upper_count", 0, "pixel_box_upper_corner", "entries of the upper corner that were given"),
    ("lower", 3, "pixel_box_lower_corner", "lower corner of an im2col map"),
    ("upper", 3, "pixel_box_upper_corner", "upper corner of an im2col map"),
    ("corner_end", 0, "target", "a corner entry lies in [-corner_end, corner_end)"),
    ("channels", 0, "channels_per_pixel", "per pixel"),
    ("pixels", 0, "pixels_per_column", "per column"),
    ("is_split", 0, "split_inner", "whether split_inner= is given"),
    ("has_swizzle", 0, "swizzle", "whether swizzle= is given"),
    ("span_values", 0, "swizzle data_type", "elements of a span, or of 16 bytes; 0 if not split"),
    ("is_ragged", 0, "ragged", "whether ragged= is given"),
    ("ragged_dim", 0, "ragged", "the dimension that it names; -1 without ragged="),
    ("ragged_stride_bits", 0, "ragged", "stride of that dimension"),
    ("has_tma", 0, "target", "column of the target"),
    ("is_sm_9x", 0, "target", "column of the target"),
    ("has_wide", 0, "target", "column of the target"),
    ("has_model", 0, "target", "column of the target"),
    ("max_smem_bytes", 0, "target", "shared memory of a block, after opt-in"),
)

#: The loops of predicates: (variable, first value, the field with the end). `d` counts dimensions
#: and `s` spatial ones, from the innermost.
LOOPS: dict[str, tuple[str, int, str]] = {
    "d": ("d", 0, "dims"),
    "d > 0": ("d", 1, "dims"),
    "s": ("s", 0, "corners"),
    "s > 0": ("s", 1, "spatial"),
}
