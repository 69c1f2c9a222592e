"""Which copy a figure shows: a map and coordinates, or a tile that was loaded, as one request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.request import CopyRequest, load_request
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.door import MAKE_ONE, require
from tma_dlpack.geometry import IntArray
from tma_dlpack.tables.arguments import EncodeArguments, reverse
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap


def request_of(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    im2col_offsets: Sequence[int] | None = None,
    smem_offset: int = 0,
) -> CopyRequest:
    """Give the checked load that a figure shows.

    A tile brings its own coordinates. A map without coordinates shows its first tile. What would
    kill a kernel is refused as `load_tile` refuses it.
    """
    require("tensor_map", tensor_map, (TensorMap, Tile), MAKE_ONE)
    if isinstance(tensor_map, Tile):
        if tensor_map.smem.ndim > 1:
            raise TmaUnsupportedError(
                f"{len(tensor_map.smem)} tiles at once cannot be drawn; load the one to draw with "
                "load_tile"
            )
        return tensor_map._request
    if coords is None:
        coords = first_coords(tensor_map.arguments)
    return load_request(tensor_map, coords, im2col_offsets, smem_offset, many=False)


def first_coords(args: EncodeArguments) -> tuple[int, ...]:
    """Give the first tile's row-major coordinates: zeros, or the bounding box's first pixel."""
    box = bounding_box(args)
    return reverse([box[d][0] if d in box else 0 for d in range(args.rank)])


def bounding_box(args: EncodeArguments) -> dict[int, tuple[int, int]]:
    """Give the first and last pixel at which an im2col column may start, by driver dimension.

    Only of the dimensions that a column walks; empty for tiled maps.
    """
    if args.kind == "tiled":
        return {}
    return dict(zip(geometry.walked_dims(args), geometry.im2col_box(args), strict=True))


def lines_positions(request: CopyRequest) -> IntArray:
    """Give the tensor position of the first element of each line, (lines, rank), driver order."""
    if request.tiles != len(request.coords):  # gather4: one coordinate per row
        return request.coords
    plan = request.plan
    table = np.empty((*plan.line_shape, plan.arguments.rank), np.int64)
    table[..., 0] = request.coords[0, 0]
    for line in geometry.line_positions(plan, request.coords, request.offsets):
        table[..., line.dimension] = line.positions[0]
    return table.reshape(plan.lines, -1)
