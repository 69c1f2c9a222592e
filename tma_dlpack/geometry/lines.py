"""Where the lines of tiles lie in global memory, and which of them are in bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tma_dlpack.arguments import EncodeArguments
from tma_dlpack.geometry.plan import (
    BoolArray,
    IntArray,
    TilePlan,
    im2col_box,
    plan,
    spatial_dims,
    walked_dims,
)

__all__ = [
    "CHUNK_BYTES",
    "LinePosition",
    "element_positions",
    "inner_window",
    "interior_lattice",
    "interior_origins",
    "line_origins",
    "line_positions",
    "store_window",
]

#: Stores and reductions write whole chunks of global memory [measured], bytes.
CHUNK_BYTES = 16
#: A distance beyond any address (those have 57 bits), small enough that five still fit int64.
FAR = 1 << 59


class LinePosition(NamedTuple):
    """Where the lines of tiles lie along one driver dimension.

    `positions` broadcasts to (tiles, *line_shape); `dim` and `stride_bytes` are the tensor's.
    """

    dimension: int
    positions: IntArray
    dim: int
    stride_bytes: int


def line_positions(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int] = ()
) -> list[LinePosition]:
    """Give the position of each line of each tile along every dimension that lines step through.

    Parameters
    ----------
    tile_plan : TilePlan
    coords : int64 array (tiles, rank)
        Coordinates in driver order, innermost first.
    offsets : sequence of int
        Im2col offsets, W first; none means 0.
    """
    args = tile_plan.arguments
    strides = (tile_plan.unit, *args.global_strides)
    if args.kind == "tiled":
        positions = _tiled_positions(tile_plan, coords)
    else:
        positions = _im2col_positions(tile_plan, coords, offsets)
    return [LinePosition(d, p, args.global_dim[d], strides[d]) for d, p in positions.items()]


def _tiled_positions(tile_plan: TilePlan, coords: IntArray) -> dict[int, IntArray]:
    """``p[d] = coord[d] + j[d] * s[d]``, j along its own axis; dimension 1 varies fastest."""
    axes = (-1, *(1 for _ in tile_plan.line_shape))
    return {d: coords[:, d].reshape(axes) + taken for d, taken in _taken(tile_plan)}


@lru_cache(maxsize=256)
def _taken(tile_plan: TilePlan) -> list[tuple[int, IntArray]]:
    """Give ``j[d] * s[d]`` of each dimension that lines step through, shaped to broadcast."""
    axes = len(tile_plan.line_shape)
    first = 0 if tile_plan.unit else 1
    return [
        (
            d,
            np.arange(0, tile_plan.counts[d] * tile_plan.steps[d], tile_plan.steps[d]).reshape(
                [1] * (axes - (d - first)) + [-1] + [1] * (d - first)
            ),
        )
        for d in range(first, first + axes)
    ]


def _im2col_positions(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int]
) -> dict[int, IntArray]:
    """Walk each column from its start: W fastest, back to the box's first on overflow, then n.

    Pixel i of a dimension takes the start, start + step, ... up to the last (`head` of them), then
    whole passes first, first + step, ... of `full` pixels; each wrap steps the next dimension.
    """
    args = tile_plan.arguments
    turn: IntArray = np.arange(tile_plan.lines)[None, :]
    positions = {d: coords[:, d, None] for d in range(0 if tile_plan.unit else 1, args.rank)}
    for d, (first, last) in zip(walked_dims(args), im2col_box(args), strict=True):
        step, start = args.element_strides[d], positions[d]
        head, full = (last - start) // step + 1, (last - first) // step + 1
        passes, place = np.divmod(turn - head, full)
        in_head = turn < head
        positions[d] = np.where(in_head, start + turn * step, first + place * step)
        turn = np.where(in_head, 0, passes + 1)
    images = args.rank - 1
    positions[images] = positions[images] + turn * args.element_strides[images]
    for d, offset in zip(spatial_dims(args), offsets, strict=False):
        positions[d] = positions[d] + offset
    return positions


def line_origins(
    tile_plan: TilePlan, coords: IntArray, offsets: Sequence[int] = ()
) -> tuple[IntArray, BoolArray]:
    """Give where each line starts in global memory, and whether it is in bounds.

    Returns
    -------
    origins : int64 array (tiles, lines)
        Bytes from the tensor's address to dimension 0's element 0 of the line. Meaningful where
        in bounds only; anything from `FAR` on stands for "beyond every address".
    inside : bool array (tiles, lines)
        Whether the line is in bounds in every dimension that lines step through.
    """
    shape = (len(coords), *tile_plan.line_shape)
    origins, inside = np.zeros(shape, np.int64), np.ones(shape, np.bool_)
    for line in line_positions(tile_plan, coords, offsets):
        p = line.positions
        in_dim = (p >= 0) & (p < line.dim)
        inside &= in_dim
        if line.stride_bytes:
            # Strides have 40 bits and positions 32: what would overflow becomes FAR.
            p = np.minimum(p, FAR // line.stride_bytes + 1)
            origins += p * in_dim * line.stride_bytes
    flat = (len(coords), tile_plan.lines)
    return origins.reshape(flat), inside.reshape(flat)


def inner_window(tile_plan: TilePlan, coords: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Give which bytes of a line are in bounds along dimension 0.

    Returns
    -------
    start, first, last : int64 arrays (tiles,)
        Global bytes from a line's origin to the line's byte 0; the window [first, last) of line
        bytes that are in bounds. An interleaved unit is in bounds as a whole.
    """
    args, line_bytes = tile_plan.arguments, tile_plan.line_bytes
    if tile_plan.unit:
        zeros = np.zeros(len(coords), np.int64)
        return zeros, zeros, zeros + line_bytes
    bits = args.type_row.element_bits
    start = coords[:, 0] * bits // 8
    row_bytes = args.global_dim[0] * bits // 8
    first = np.minimum(np.maximum(-start, 0), line_bytes)
    last = np.minimum(np.maximum(row_bytes - start, first), line_bytes)
    return start, first, last


def store_window(tile_plan: TilePlan, start: IntArray, last: IntArray) -> IntArray:
    """Give the end of the window that a store writes: up to the next 16-byte chunk [measured]."""
    end: IntArray = -(-(start + last) // CHUNK_BYTES) * CHUNK_BYTES - start
    return end.clip(max=tile_plan.line_bytes)


class Interior(NamedTuple):
    """A tiled map's box as a lattice: what `interior_origins` needs of a map."""

    limits: IntArray  # (rank,) the largest coordinates of boxes that are wholly in bounds
    strides_bits: IntArray  # (rank,)
    line_strides: tuple[int, ...]  # bytes from line to line, along each axis of line_shape
    reach: int  # bytes from the first line's start to the last line's


def interior_origins(tile_plan: TilePlan, coords: IntArray) -> tuple[IntArray, BoolArray]:
    """Give the address of boxes that are wholly in bounds, and say which ones are.

    Returns
    -------
    origins : int64 array (tiles,)
        Bytes from the tensor's address to the tile's first; meaningful for interior tiles only.
    interior : bool array (tiles,)
        Always False for im2col maps, and for tensors longer than 2^58 bytes.
    """
    lattice = interior_lattice(tile_plan)
    if lattice is None:
        return np.zeros(len(coords), np.int64), np.zeros(len(coords), np.bool_)
    interior: BoolArray = np.all((coords >= 0) & (coords <= lattice.limits), axis=1)
    return (coords * lattice.strides_bits).sum(axis=1) >> 3, interior


@lru_cache(maxsize=1024)
def interior_lattice(tile_plan: TilePlan) -> Interior | None:
    """Give the lattice of a tiled map's interior boxes; None where there is none."""
    args = tile_plan.arguments
    if args.kind != "tiled":
        return None
    strides = (tile_plan.unit, *args.global_strides)
    if sum(dim * stride for dim, stride in zip(args.global_dim, strides, strict=True)) >= FAR >> 1:
        return None
    first = 0 if tile_plan.unit else 1
    reaches = [(n - 1) * s for n, s in zip(tile_plan.counts, tile_plan.steps, strict=True)]
    line_strides = [s * stride for s, stride in zip(tile_plan.steps, strides, strict=True)][first:]
    return Interior(
        np.array(args.global_dim, np.int64) - 1 - reaches,
        np.array([tile_plan.unit * 8 or args.type_row.element_bits, *(8 * s for s in strides[1:])]),
        tuple(line_strides[::-1]),
        sum(r * stride for r, stride in zip(reaches[first:], strides[first:], strict=True)),
    )


def element_positions(
    args: EncodeArguments, coords: Sequence[int], offsets: Sequence[int] = ()
) -> IntArray:
    """Give the tensor position of every element of one tile.

    Returns
    -------
    int64 array (*tile_shape, rank)
        Positions in driver order; out-of-bounds ones included. An interleaved tile gives each
        element of a unit the position of the unit.

    Examples
    --------
    >>> from tma_dlpack.enums import TensorMapDataType
    >>> args = EncodeArguments("tiled", TensorMapDataType.INT32, (8, 8), (32,), (1, 2), (4, 3))
    >>> element_positions(args, (4, -1))[1, 0].tolist()
    [4, 1]
    """
    tile_plan = plan(args)
    out = np.empty((*tile_plan.tile_shape, args.rank), np.int64)
    out[..., 0] = coords[0] + np.arange(tile_plan.tile_shape[-1])
    for line in line_positions(tile_plan, np.array([coords], np.int64), offsets):
        out[..., line.dimension] = line.positions[0][..., None]
    return out
