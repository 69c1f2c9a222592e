"""Checked copies: whatever would kill a kernel is refused here, for every backend.

A checked request computes where its lines lie in memory, so that backends only move bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.checks import (
    as_written,
    check_can_load,
    check_can_store,
    check_inner,
    check_map,
    check_smem,
    check_start,
    coords_of,
    many_coords_of,
    offsets_of,
    require_map,
)
from tma_dlpack.copies.refusals import refuse
from tma_dlpack.geometry import BoolArray, IntArray, TilePlan
from tma_dlpack.tables.coerce import integers_of, shown
from tma_dlpack.tables.dtypes import PACKED_TYPES
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap


class Lines(NamedTuple):
    """Where the lines of tiles lie in global memory; see `geometry.line_origins`.

    `origins` and `inside` are (tiles, lines), the others (tiles,).
    """

    origins: IntArray
    inside: BoolArray
    start: IntArray
    first: IntArray
    last: IntArray


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A checked copy: `coords` (tiles, rank) and `offsets` are in driver order.

    With `many` the result has a leading axis.
    """

    tensor_map: TensorMap
    plan: TilePlan
    coords: IntArray
    offsets: tuple[int, ...]
    smem_offset: int
    many: bool = False

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return len(self.coords)

    def lines(self, which: slice | IntArray = slice(None)) -> Lines:
        """Give the places of the lines of all tiles, or of some."""
        coords = self.coords[which]
        return Lines(
            *geometry.line_origins(self.plan, coords, self.offsets),
            *geometry.inner_window(self.plan, coords[:, 0]),
        )

    @property
    def has_lattice(self) -> bool:
        """Whether each tile is a regular box of the tensor, see `geometry.has_lattice`."""
        return geometry.has_lattice(self.plan)

    @property
    def note(self) -> str:
        """``"measured"`` or ``"documented, not measured"``."""
        args = self.plan.arguments
        measured = (
            self.tensor_map.target.has_model
            and args.kind != "im2col_wide"
            and args.data_type not in PACKED_TYPES
            and args.swizzle <= TmaSwizzle.bytes128
        )
        return "measured" if measured else "documented, not measured"


@dataclass(frozen=True, slots=True)
class Gather4Request(CopyRequest):
    """tile::gather4 or scatter4: four tiles of one row each, copied as one tile of four rows.

    `coords` has the four tiles; `plan` is for a box of four rows.
    """

    def lines(self, which: slice | IntArray = slice(None)) -> Lines:
        """Give the places of the four rows."""
        one_row = geometry.plan(replace(self.plan.arguments, box_dim=(self.plan.counts[0], 1)))
        origins, inside = geometry.line_origins(one_row, self.coords)
        start, first, last = geometry.inner_window(one_row, self.coords[:1, 0])
        return Lines(origins.reshape(1, 4), inside.reshape(1, 4), start, first, last)

    @property
    def has_lattice(self) -> bool:
        """False: the four rows are not a regular box."""
        return False

    @property
    def tiles(self) -> int:
        """One tile, of four rows."""
        return 1

    @property
    def note(self) -> str:
        """``"documented, not measured"``."""
        return "documented, not measured"


def load_request(
    tensor_map: TensorMap,
    coords: object,
    im2col_offsets: Sequence[int] | None,
    smem_offset: int,
    *,
    many: bool,
) -> CopyRequest:
    """Check a load. `coords` is row-major: (rank,), or (n, rank) with `many`.

    Raises
    ------
    TmaPreconditionError
        With the first row of `REFUSALS` that applies.
    TmaUnsupportedError
        For a map that can only be stored.
    """
    check_map(tensor_map)
    args = tensor_map.arguments
    check_can_load(args)
    driver_coords = many_coords_of(args, coords) if many else coords_of(args, coords)
    check_inner(args, driver_coords)
    offsets = offsets_of(args, im2col_offsets)
    if args.kind != "tiled":
        check_start(args, driver_coords)
    plan = geometry.plan(args)
    offset = check_smem(tensor_map, plan, smem_offset)
    return CopyRequest(tensor_map, plan, driver_coords, offsets, offset, many)


def store_request(tensor_map: TensorMap, coords: object, smem_offset: int) -> CopyRequest:
    """Check a store, or the coordinates of a reduction; raises as `load_request`."""
    check_map(tensor_map)
    args = tensor_map.arguments
    check_can_store(args)
    driver_coords = coords_of(args, coords)
    check_inner(args, driver_coords)
    if driver_coords.min() < 0:
        found = f"coords are {as_written(driver_coords[0])}"
        inside = as_written(driver_coords[0].clip(0))
        fix = f"use coords {inside}, and pass data of the elements from there on"
        refuse("COPY_STORE_NEGATIVE", "coords", found, fix=fix)
    if args.kind == "im2col":
        lower, upper = args.pixel_box_lower_corner, args.pixel_box_upper_corner
        if min(lower) < 0 or max(upper) > 0:
            found = f"lower corner is {lower[::-1]} and upper corner {upper[::-1]} (row-major)"
            refuse("COPY_IM2COL_STORE_CORNERS", "tensor_map", found)
        check_start(args, driver_coords)
    plan = geometry.plan(args)
    offset = check_smem(tensor_map, plan, smem_offset)
    return CopyRequest(tensor_map, plan, driver_coords, (), offset)


def gather4_request(
    tensor_map: TensorMap, column: object, rows: object, smem_offset: int
) -> Gather4Request:
    """Check a tile::gather4 load of four rows; raises as `load_request`."""
    require_map(tensor_map)
    args = tensor_map.arguments
    if tensor_map.target.is_sm_9x:
        raise TmaUnsupportedError(
            f"{tensor_map.target} has no gather4 and scatter4; sm_100 and later have (PTX ISA): "
            "make the map with target='sm_100'"
        )
    four = integers_of(rows) or ()
    if args.kind != "tiled" or args.box_dim[1:] != (1,) or len(four) != 4:
        found = f"the map is {args.kind} with box_dim {args.box_dim}, and rows are {shown(rows)}"
        refuse("COPY_GATHER4", "rows", found)
    check_map(tensor_map)
    coords = np.concatenate([coords_of(args, (row, column)) for row in four])
    check_inner(args, coords)
    plan = geometry.plan(replace(args, box_dim=(args.box_dim[0], 4), element_strides=(1, 1)))
    offset = check_smem(tensor_map, plan, smem_offset)
    return Gather4Request(tensor_map, plan, coords, (), offset)


def scatter4_request(
    tensor_map: TensorMap, column: object, rows: object, smem_offset: int
) -> Gather4Request:
    """Check a tile::scatter4 store of four rows; raises as `store_request`."""
    require_map(tensor_map)
    target = tensor_map.target
    if not target.has_scatter4 and not target.is_sm_9x:
        raise TmaUnsupportedError(
            f"{target} has no tile::scatter4, only gather4 (ptxas 13.0 refuses it): store the four "
            "rows one by one, or make the map for sm_100, sm_103, sm_107 or sm_110"
        )
    request = gather4_request(tensor_map, column, rows, smem_offset)
    check_can_store(request.plan.arguments)
    if request.coords.min() < 0:
        found = f"column is {shown(column)} and rows are {as_written(request.coords[::-1, 1])}"
        refuse("COPY_STORE_NEGATIVE", "rows", found)
    return request
