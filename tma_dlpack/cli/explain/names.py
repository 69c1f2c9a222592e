"""What printouts call the driver's arguments: words, and where a printout begins.

A *strong* word hardly means anything else. A *weak* one (``dim``, ``shape``, ``format``) counts
only where strong ones stand around it.
"""

from __future__ import annotations

import re
from typing import Final


def key_of(word: str) -> str:
    """Give a word as the tables have it: in lower case, without underscores."""
    return word.replace("_", "").lower()


def _words(**synonyms: str) -> dict[str, str]:
    return {key_of(word): argument for argument, line in synonyms.items() for word in line.split()}


#: Words without underscores, in lower case -> the driver's argument (as `TensorMap` names it).
STRONG: Final = _words(
    data_type="tensor_data_type tma_format tma_data_format elem_type tensor_map_data_type "
    "tma_data_type tma_dtype cu_dtype tmap_dtype tma_type desc_type",
    rank="tensor_rank tma_dim tma_rank",
    global_address="global_address gmem_address global_addr gmem_addr global_ptr gmem_ptr",
    global_dim="global_dim global_dims gmem_prob_shape gmem_shape gmem_dims gmem_dim global_shape "
    "global_sizes global_size gmem_dim_shape tensor_dims gmem_sizes",
    global_strides="global_strides global_stride gmem_prob_stride gmem_stride gmem_strides "
    "cuda_global_strides strides_in_bytes stride_in_bytes byte_strides outer_stride "
    "global_strides_bytes gmem_outer_stride",
    raw_strides="global_strides_raw",
    box_dim="box_dim box_dims box_shape box_size box_sizes smem_box_shape smem_shape smem_dims "
    "smem_box smem_dim block_size_dims tile_shapes window_shape smem_box_dim "
    "boxdims smem_box_size",
    element_strides="element_strides element_stride elem_strides elem_stride smem_box_stride "
    "smem_stride tile_strides traversal_strides traversal_stride box_strides box_stride "
    "elem_step element_strides",
    interleave="interleave interleave_mode interleave_layout tma_interleave",
    swizzle="swizzle swizzle_mode swizzle_type tma_swizzle smem_swizzle swizzle_size swizzle_bytes "
    "swizzle_kind",
    l2_promotion="l2_promotion l2_promo tma_l2_promotion l2_fetch_size l2promo l2_promotion_size",
    oob_fill="oob_fill float_oob_fill tma_oob_fill oobfill oob float_oobfill oob_fill_mode",
    pixel_box_lower_corner="pixel_box_lower_corner pixel_box_lower lower_corner tma_lower_corner",
    pixel_box_upper_corner="pixel_box_upper_corner pixel_box_upper upper_corner tma_upper_corner",
    pixel_box_lower_corner_width="pixel_box_lower_corner_width",
    pixel_box_upper_corner_width="pixel_box_upper_corner_width",
    channels_per_pixel="channels_per_pixel smem_box_channel",
    pixels_per_column="pixels_per_column smem_box_pixel",
    element_bytes="elem_size element_size elem_bytes element_bytes elem_bytewidth",
)
WEAK: Final = _words(
    data_type="format dtype data_type",
    rank="dim rank ndim num_dims",
    global_address="gmem address data_ptr ptr",
    global_dim="shape shapes size sizes dims tensor_shape tensor_size global_memory",
    global_strides="stride strides",
    box_dim="box block_size block_shape tile tile_shape tile_size tile_dims shared_memory",
    l2_promotion="l2",
    oob_fill="fill",
    padding="padding",
    swizzle_base="base",
    element_bytes="itemsize",
    mode="mode",
)

#: Arguments that are lists.
ARRAYS: Final = frozenset(
    {
        "global_dim",
        "global_strides",
        "raw_strides",
        "box_dim",
        "element_strides",
        "pixel_box_lower_corner",
        "pixel_box_upper_corner",
    }
)
#: Arguments that may be printed as a name.
NAMED: Final = frozenset(
    {"data_type", "interleave", "swizzle", "l2_promotion", "oob_fill", "padding", "mode"}
)

#: Words that are written apart; the blank becomes an underscore, so that places stay.
MULTI_WORD: Final = re.compile(
    r"\b(global|shared|outer|elem|element|item|box|data|tensor|block|tile) "
    r"(memory|stride|strides|size|sizes|ptr|address|dim|dims|shape|type|rank|strides)"
    r"(?=[\"']?[ \t]*[:=])",
    re.IGNORECASE,
)

#: Where a printout begins or ends: two such places are two encodes.
BOUNDARY: Final = re.compile(
    r"TMA Desc Addr"
    r"|cuTensorMapEncode(?:Tiled|Im2col(?:Wide)?)\b"
    r"|Making (?:\dD )?TMA desc"
    r"|(?:TmaDescriptor|CudaTensorMapInfo|TensorMapSpec)\s*[{(]|TensorMapInfo\("
    r"|Failed to (?:initialize|create|encode)[\w ]{0,40}?(?:TMA|tensor ?map)"
    r"|TMA descriptor creation",
    re.IGNORECASE,
)


def tail_of(word: str) -> str | None:
    """Give the argument that the end of a longer word names, as in ``A_desc_globalDim``.

    >>> tail_of("A_desc_globalDim"), tail_of("head_dim")
    ('global_dim', None)
    """
    parts = word.lower().split("_")
    for first in range(1, len(parts)):
        argument = STRONG.get("".join(parts[first:]))
        if argument is not None:
            return argument
    return None
