"""The boxes of a tiled map, cut to what is in bounds: a regular grid ("lattice") of lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tma_dlpack.geometry.lines import in_bounds, inner_window
from tma_dlpack.geometry.plan import BoolArray, IntArray, TilePlan

#: Boxes of larger tensors are copied line by line, with addresses modulo 2^64 as in the engine.
MAX_LATTICE_BYTES = 1 << 58


class Cut(NamedTuple):
    """The part of a box that is in bounds: some of its lines, and the same bytes of each."""

    lines: tuple[slice, ...]  # along each axis of line_shape
    shape: tuple[int, ...]  # the number of them
    strides: tuple[int, ...]  # bytes from one to the next
    first: int  # bytes [first, last) of each line
    last: int
    start: int  # bytes from where the box starts to the first one in bounds
    reach: int  # bytes from the first line's start to the last one's

    @property
    def size_bytes(self) -> int:
        """How many bytes are in bounds."""
        return math.prod(self.shape) * (self.last - self.first)


class Lattice(NamedTuple):
    """The places of the elements of a tiled map in global memory."""

    limits: IntArray  # (rank,) the largest coordinates of boxes that are wholly in bounds
    strides_bits: IntArray  # (rank,)
    line_strides: tuple[int, ...]  # bytes from line to line, along each axis of line_shape


def has_lattice(tile_plan: TilePlan) -> bool:
    """Whether the functions of this module apply: to tiled maps of tensors up to 2^58 bytes."""
    return _lattice(tile_plan) is not None


def box_starts(tile_plan: TilePlan, coords: IntArray) -> IntArray:
    """Give the starts of boxes, in bytes from the tensor's address, (tiles,).

    Only meaningful for boxes that are in bounds at least in part.
    """
    return coords @ _known(tile_plan).strides_bits >> 3


def wholly_in_bounds(tile_plan: TilePlan, coords: IntArray) -> BoolArray:
    """Give which boxes are wholly in bounds, (tiles,)."""
    wholly: BoolArray = np.all((coords >= 0) & (coords <= _known(tile_plan).limits), axis=1)
    return wholly


def cut_box(tile_plan: TilePlan, coords: Sequence[int]) -> Cut:
    """Give the part of one box that is in bounds; `coords` in driver order.

    Examples
    --------
    >>> from tma_dlpack.tables.arguments import EncodeArguments
    >>> from tma_dlpack.tables.enums import TensorMapDataType
    >>> from tma_dlpack.geometry import plan
    >>> args = EncodeArguments("tiled", TensorMapDataType.INT32, (8, 8), (32,), (1, 1), (4, 3))
    >>> cut = cut_box(plan(args), (-4, 6))
    >>> cut.lines, cut.first, cut.last, cut.size_bytes
    ((slice(0, 2, None),), 16, 16, 0)
    """
    counts, steps, dims = tile_plan.counts, tile_plan.steps, tile_plan.arguments.global_dim
    strides = _known(tile_plan).line_strides
    _, first, last = inner_window(tile_plan, coords[0])
    lines, shape, start, reach = [], [], first, 0
    for d, stride in zip(tile_plan.line_dims, strides, strict=True):
        begin, end = in_bounds(coords[d], steps[d], counts[d], dims[d])
        lines.append(slice(begin, end))
        shape.append(end - begin)
        start += begin * stride
        reach += (end - begin - 1) * stride
    return Cut(tuple(lines), tuple(shape), strides, first, last, start, reach)


@lru_cache(maxsize=1024)
def _lattice(tile_plan: TilePlan) -> Lattice | None:
    """Give the lattice of a map, computed once; None where it has none."""
    args = tile_plan.arguments
    if args.kind != "tiled":
        return None
    strides = (tile_plan.unit_bytes, *args.global_strides)
    if (
        sum(dim * stride for dim, stride in zip(args.global_dim, strides, strict=True))
        >= MAX_LATTICE_BYTES
    ):
        return None
    reaches = [(n - 1) * s for n, s in zip(tile_plan.counts, tile_plan.steps, strict=True)]
    return Lattice(
        np.array(args.global_dim, np.int64) - 1 - reaches,
        np.array(
            [tile_plan.unit_bytes * 8 or args.type_row.element_bits, *(8 * s for s in strides[1:])]
        ),
        tuple(tile_plan.steps[d] * strides[d] for d in tile_plan.line_dims),
    )


def _known(tile_plan: TilePlan) -> Lattice:
    found = _lattice(tile_plan)
    assert found is not None  # callers check has_lattice first
    return found
