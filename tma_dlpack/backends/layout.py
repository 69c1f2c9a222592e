"""Between lines, shared memory and logical tiles.

Lines are uint8 (tiles, lines, line_bytes) as in global memory, or smem_line_bytes long as in shared
memory; the two differ for packed types, which leave gaps there.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.backends.refusals import refuse
from tma_dlpack.backends.requests import CopyRequest
from tma_dlpack.dtypes import DataTypeRow
from tma_dlpack.enums import TensorMapDataType
from tma_dlpack.geometry import TilePlan

__all__ = [
    "Bytes",
    "lines_of_data",
    "lines_of_smem",
    "smem_of_data",
    "smem_of_lines",
    "spread",
    "values_of_lines",
]

Bytes = npt.NDArray[np.uint8]
Values = npt.NDArray[Any]

_T = TensorMapDataType


def smem_of_lines(
    plan: TilePlan, smem_offset: int, lines: Bytes, out: Bytes | None = None
) -> Bytes:
    """Lay lines (tiles, lines, smem_line_bytes) out as shared memory (tiles, smem_bytes).

    The result is `out` where given; it may share memory with `lines` where not.
    """
    if lines.shape[1] * lines.shape[2] == plan.smem_bytes:
        dense = lines.reshape(len(lines), plan.smem_bytes)
    else:
        dense = np.zeros((len(lines), plan.smem_bytes), np.uint8)
        _slots(plan, dense)[..., : plan.smem_line_bytes] = lines
    return _swizzled(plan, smem_offset, dense, out)


def _swizzled(plan: TilePlan, smem_offset: int, region: Bytes, out: Bytes | None = None) -> Bytes:
    """Swizzle, or unswizzle, shared memory (tiles, smem_bytes) that starts at `smem_offset`."""
    if plan.swizzle.terms:
        granule = f"V{plan.swizzle.granule}"
        order = geometry.swizzle_order(plan, smem_offset)
        out_items = None if out is None else out.view(granule)
        return region.view(granule).take(order, 1, out_items, "clip").view(np.uint8)
    if out is None:
        return region
    out[...] = region
    return out


def lines_of_smem(plan: TilePlan, smem_offset: int, region: Bytes) -> Bytes:
    """Read lines (tiles, lines, smem_line_bytes) out of shared memory (tiles, smem_bytes)."""
    return _slots(plan, _swizzled(plan, smem_offset, region))[..., : plan.smem_line_bytes]


def _slots(plan: TilePlan, dense: Bytes) -> Bytes:
    taken = dense[:, : plan.lines * plan.pitch]
    return taken.reshape(len(dense), plan.lines, plan.pitch)


# --- Packed types -------------------------------------------------------------------------------


def group_bytes(row: DataTypeRow) -> int:
    """Give the bytes of 16 packed values in global memory."""
    return geometry.PACKED_GROUP * row.element_bits // 8


def spread(row: DataTypeRow, lines: Bytes) -> Bytes:
    """Turn lines as in global memory into lines as in shared memory; gaps come as zeros."""
    if row.smem_chunk_bytes in (0, group_bytes(row)):
        return lines
    groups = lines.reshape(*lines.shape[:-1], -1, group_bytes(row))
    out = np.zeros((*groups.shape[:-1], row.smem_chunk_bytes), np.uint8)
    out[..., : group_bytes(row)] = groups
    return out.reshape(*lines.shape[:-1], -1)


def _gathered(row: DataTypeRow, lines: Bytes) -> Bytes:
    """Turn lines as in shared memory into lines as in global memory."""
    if row.smem_chunk_bytes in (0, group_bytes(row)):
        return lines
    groups = lines.reshape(*lines.shape[:-1], -1, row.smem_chunk_bytes)
    return groups[..., : group_bytes(row)].reshape(*lines.shape[:-1], -1)


# --- Logical tiles ------------------------------------------------------------------------------


def values_of_lines(plan: TilePlan, lines: Bytes) -> Values:
    """Give the logical tiles (tiles, *tile_shape) of lines as in shared memory."""
    row = plan.arguments.type_row
    dense = np.ascontiguousarray(_gathered(row, lines))
    if row.is_packed:
        bits = np.unpackbits(dense, axis=-1, bitorder="little")
        by_value = bits.reshape(-1, row.element_bits)
        dense = np.packbits(by_value, axis=-1, bitorder="little")
    values = dense.reshape(-1).view(row.numpy)
    return values.reshape(len(lines), *plan.tile_shape)


def _lines_of_values(plan: TilePlan, tile: Values) -> Bytes:
    """Give the lines (1, lines, line_bytes) as in global memory of one logical tile."""
    row = plan.arguments.type_row
    dense = np.ascontiguousarray(tile)
    if row.is_packed:
        bits = np.unpackbits(dense[..., None], axis=-1, count=row.element_bits, bitorder="little")
        dense = np.packbits(bits.reshape(-1), bitorder="little")
    raw: Bytes = dense.reshape(-1).view(np.uint8)
    return raw.reshape(1, plan.lines, plan.line_bytes)


# --- What a caller hands to a store -------------------------------------------------------------


def lines_of_data(request: CopyRequest, data: object) -> Bytes:
    """Give `data` of a store as lines (1, lines, line_bytes) as in global memory."""
    plan = request.plan
    array = _read(request, data)
    if _is_smem(request, array):
        region = np.ascontiguousarray(array[-plan.smem_bytes :])[None]
        lines = lines_of_smem(plan, request.smem_offset, region)
        return _gathered(plan.arguments.type_row, lines)
    return _lines_of_values(plan, array)


def smem_of_data(request: CopyRequest, data: object) -> Bytes:
    """Give `data` of a store as shared memory (smem_bytes,) from smem_offset on."""
    plan = request.plan
    array = _read(request, data)
    if _is_smem(request, array):
        region: Bytes = np.ascontiguousarray(array[-plan.smem_bytes :])
        return region
    lines = spread(plan.arguments.type_row, _lines_of_values(plan, array))
    smem: Bytes = smem_of_lines(plan, request.smem_offset, lines)[0]
    return smem


def _is_smem(request: CopyRequest, array: Values) -> bool:
    sizes = (request.plan.smem_bytes, request.smem_offset + request.plan.smem_bytes)
    return array.dtype == np.uint8 and array.ndim == 1 and len(array) in sizes


def _read(request: CopyRequest, data: object) -> Values:
    """Give `data` as an array that is a logical tile or shared memory, else refuse."""
    plan, row = request.plan, request.plan.arguments.type_row
    try:
        array = np.asarray(data)
    except (TypeError, ValueError, RuntimeError, BufferError):
        _refuse_data(plan, f"a {type(data).__name__} that NumPy cannot read")
    if _is_smem(request, array):
        return array
    if array.shape != plan.tile_shape or not _is_same_type(row, array.dtype):
        _refuse_data(plan, f"{array.dtype} of shape {array.shape}")
    if row.is_packed and (array >> row.element_bits).any():
        _refuse_data(plan, f"up to {array.max()}, more than {row.element_bits} bits")
    return array


def _refuse_data(plan: TilePlan, found: str) -> NoReturn:
    numpy_type = plan.arguments.type_row.numpy
    refuse(
        "COPY_DATA",
        "data",
        f"data is {found}; the map's tile is {numpy_type} of shape {plan.tile_shape}, its shared "
        f"memory uint8 of shape ({plan.smem_bytes},)",
    )


def _is_same_type(row: DataTypeRow, dtype: np.dtype[Any]) -> bool:
    """Whether an array's values are the map's, bit for bit.

    Some types also stand for what NumPy or ml_dtypes call by another name.
    """
    name: str = dtype.name
    return dtype == row.numpy or name.startswith(_ALSO_STANDS_FOR.get(row.data_type, ()))


_ALSO_STANDS_FOR: dict[TensorMapDataType, tuple[str, ...]] = {
    _T.BFLOAT16: ("bfloat16",),
    _T.UINT8: ("bool", "int8", "float8"),
    _T.UINT16: ("int16",),
    _T.UINT64: ("complex64",),
}
