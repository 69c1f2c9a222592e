"""Convert between lines, shared memory and logical tiles.

Lines are uint8 arrays (tiles, lines, line_bytes) as in global memory, or (tiles, lines,
smem_line_bytes) as in shared memory; the two differ for packed types that have gaps there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.geometry import TilePlan
from tma_dlpack.tables.dtypes import DataTypeRow
from tma_dlpack.tables.limits import PACKED_GROUP

Bytes = npt.NDArray[np.uint8]
Values = npt.NDArray[Any]


def smem_of_lines(
    plan: TilePlan, smem_offset: int, lines: Bytes, out: Bytes | None = None
) -> Bytes:
    """Arrange lines (tiles, lines, smem_line_bytes) as shared memory (tiles, smem_bytes).

    The result is `out` if given; otherwise it may share memory with `lines`.
    """
    if lines.shape[1] * lines.shape[2] == plan.smem_bytes:
        dense = lines.reshape(len(lines), plan.smem_bytes)
    else:
        dense = np.zeros((len(lines), plan.smem_bytes), np.uint8)
        _pitches(plan, dense)[..., : plan.smem_line_bytes] = lines
    return _swizzled(plan, smem_offset, dense, out)


def _swizzled(plan: TilePlan, smem_offset: int, region: Bytes, out: Bytes | None = None) -> Bytes:
    """Swizzle, or unswizzle, shared memory (tiles, smem_bytes) that starts at `smem_offset`."""
    if plan.swizzle.terms:
        granule = f"V{plan.swizzle.granule_bytes}"
        order = geometry.swizzle_order(plan, smem_offset)
        out_items = None if out is None else out.view(granule)
        return region.view(granule).take(order, 1, out_items, "clip").view(np.uint8)
    if out is None:
        return region
    out[...] = region
    return out


def lines_of_smem(plan: TilePlan, smem_offset: int, region: Bytes) -> Bytes:
    """Read lines (tiles, lines, smem_line_bytes) out of shared memory (tiles, smem_bytes)."""
    return _pitches(plan, _swizzled(plan, smem_offset, region))[..., : plan.smem_line_bytes]


def _pitches(plan: TilePlan, dense: Bytes) -> Bytes:
    taken = dense[:, : plan.lines * plan.pitch_bytes]
    return taken.reshape(len(dense), plan.lines, plan.pitch_bytes)


# --- Packed types -------------------------------------------------------------------------------


def group_bytes(row: DataTypeRow) -> int:
    """Give the bytes of 16 packed values in global memory."""
    return PACKED_GROUP * row.element_bits // 8


def spread(row: DataTypeRow, lines: Bytes) -> Bytes:
    """Turn lines as in global memory into lines as in shared memory; gaps are zeros."""
    if row.smem_chunk_bytes in (0, group_bytes(row)):
        return lines
    groups = lines.reshape(*lines.shape[:-1], -1, group_bytes(row))
    out = np.zeros((*groups.shape[:-1], row.smem_chunk_bytes), np.uint8)
    out[..., : group_bytes(row)] = groups
    return out.reshape(*lines.shape[:-1], -1)


def gathered(row: DataTypeRow, lines: Bytes) -> Bytes:
    """Turn lines as in shared memory into lines as in global memory."""
    if row.smem_chunk_bytes in (0, group_bytes(row)):
        return lines
    groups = lines.reshape(*lines.shape[:-1], -1, row.smem_chunk_bytes)
    return groups[..., : group_bytes(row)].reshape(*lines.shape[:-1], -1)


# --- Logical tiles ------------------------------------------------------------------------------


def values_of_lines(plan: TilePlan, lines: Bytes) -> Values:
    """Give the logical tiles (tiles, *tile_shape) of lines as in shared memory."""
    row = plan.arguments.type_row
    dense = np.ascontiguousarray(gathered(row, lines))
    if row.is_packed:
        bits = np.unpackbits(dense, axis=-1, bitorder="little")
        by_value = bits.reshape(-1, row.element_bits)
        dense = np.packbits(by_value, axis=-1, bitorder="little")
    values = dense.reshape(-1).view(row.numpy)
    return values.reshape(len(lines), *plan.tile_shape)


def lines_of_values(plan: TilePlan, tile: Values) -> Bytes:
    """Give the lines (1, lines, line_bytes) as in global memory of one logical tile."""
    row = plan.arguments.type_row
    dense = np.ascontiguousarray(tile)
    if row.is_packed:
        bits = np.unpackbits(dense[..., None], axis=-1, count=row.element_bits, bitorder="little")
        dense = np.packbits(bits.reshape(-1), bitorder="little")
    raw: Bytes = dense.reshape(-1).view(np.uint8)
    return raw.reshape(1, plan.lines, plan.line_bytes)
