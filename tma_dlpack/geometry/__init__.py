"""Pure functions that compute the addresses of a TMA copy in global and in shared memory.

All functions read `EncodeArguments`, in driver order: index 0 is the innermost dimension. A copy
moves a tile of *lines*. A line is contiguous in global and in shared memory. A line of a tiled map
is a row of the box along dimension 0. A line of an im2col map is the channels of one pixel. A line
of an interleaved map is one unit of 16 or 32 bytes. Before the swizzle, line `i` starts
`i * pitch_bytes` bytes after the tile's start in shared memory.

`plan.py` has the patterns of the swizzles, and computes the counts, lines, pitch and footprint of
a map. `lines.py` computes the addresses of lines and of whole boxes in global memory, and lists the
tiles of a tensor. A new swizzle needs a row in `plan.SWIZZLES`.

Source: measured on an H200 (compute capability 9.0, driver 580.159.04, 2026-11-20). Packed types,
atom swizzles and im2col-wide are documented (PTX ISA, CUDA driver API), not measured.

>>> from tma_dlpack.tables.arguments import EncodeArguments
>>> from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
>>> args = EncodeArguments(
...     "tiled", TensorMapDataType.BFLOAT16, (100, 30), (256,), (1, 1), (64, 8),
...     swizzle=TmaSwizzle.bytes128,
... )
>>> tx_bytes(args), smem_bytes(args), smem_alignment(args)
(1024, 1024, 1024)
>>> tile_coords(args).tolist()
[[0, 0], [0, 64], [8, 0], [8, 64], [16, 0], [16, 64], [24, 0], [24, 64]]
"""

from __future__ import annotations

from tma_dlpack.geometry.lines import (
    CHUNK_BYTES,
    Cut,
    LinePosition,
    box_starts,
    cut_box,
    in_bounds,
    inner_window,
    line_origins,
    line_positions,
    store_window,
    tile_coords,
    wholly_in_bounds,
)
from tma_dlpack.geometry.plan import (
    BANK_BYTES,
    BANKS,
    LINE_BYTES,
    SMEM_ALIGNMENT,
    SWIZZLES,
    BoolArray,
    IntArray,
    Swizzle,
    TilePlan,
    im2col_box,
    plan,
    smem_alignment,
    smem_bytes,
    spatial_dims,
    swizzle_offset,
    swizzle_order,
    tx_bytes,
    walked_dims,
)
