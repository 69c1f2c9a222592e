"""The `data` of a store: a logical tile or shared memory, as an array of any library."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from tma_dlpack.copies.refusals import refuse
from tma_dlpack.copies.request import CopyRequest, array_of
from tma_dlpack.copies.tile import (
    Bytes,
    Values,
    gathered,
    lines_of_smem,
    lines_of_values,
    smem_of_lines,
    spread,
)
from tma_dlpack.dlpack import as_tensor_view, host_bytes, name_of
from tma_dlpack.geometry import TilePlan
from tma_dlpack.tables.dtypes import DataTypeRow
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.errors import TmaPreconditionError

_T = TensorMapDataType


class _Data(NamedTuple):
    """Values of `data`, and whether they are shared memory from smem_offset on, or a tile."""

    values: Values
    is_smem: bool


def lines_of_data(request: CopyRequest, data: object) -> Bytes:
    """Return the `data` of a store as lines (1, lines, line_bytes), as in global memory."""
    values, is_smem = _tile_or_smem(request, data)
    return _lines_of_region(request, values) if is_smem else lines_of_values(request.plan, values)


def smem_of_data(request: CopyRequest, data: object) -> Bytes:
    """Return the `data` of a store as shared memory (smem_bytes,), from smem_offset on."""
    plan = request.plan
    values, is_smem = _tile_or_smem(request, data)
    if is_smem:
        return values
    lines = spread(plan, lines_of_values(plan, values))
    smem: Bytes = smem_of_lines(plan, request.smem_offset, lines)[0]
    return smem


def _lines_of_region(request: CopyRequest, region: Bytes) -> Bytes:
    lines = lines_of_smem(request.plan, request.smem_offset, region[None])
    return gathered(request.plan, lines)


# --- A tile, or shared memory -------------------------------------------------------------------


def _tile_or_smem(request: CopyRequest, data: Any) -> _Data:
    """Decide which of the two `data` is, as the docstring of `store_tile` says."""
    plan, row = request.plan, request.plan.row
    lengths = ((plan.smem_bytes,), (request.smem_offset + plan.smem_bytes,))
    if isinstance(data, (bytes, bytearray)):
        raw = np.frombuffer(data, np.uint8)
        if raw.shape not in lengths:
            _refuse_data(plan, f"{raw.size} bytes")
        return _Data(raw[-plan.smem_bytes :], True)
    array = array_of(data)
    if array is None or array.dtype == object:
        array = _read_tensor(plan, data)
    if array.shape == (1, *plan.tile_shape):
        return _Data(_checked_codes(plan, array[0]), False)
    is_tile = array.shape == plan.tile_shape and _is_same_type(row, array.dtype)
    is_smem = array.shape in lengths and array.dtype == np.uint8
    if not is_tile and not is_smem:
        _refuse_data(plan, f"{array.dtype} of shape {array.shape}")
    region = np.ascontiguousarray(array[-plan.smem_bytes :]) if is_smem else array
    if not is_tile:
        return _Data(region, True)
    if is_smem and (_lines_of_region(request, region) != lines_of_values(plan, array)).any():
        found = f"data is uint8 of shape {array.shape}, the shape of a tile and of shared memory"
        refuse("COPY_DATA_AMBIGUOUS", "data", found)
    return _Data(_checked_codes(plan, array), False)


def _checked_codes(plan: TilePlan, tile: Values) -> Values:
    row = plan.row
    if not _is_same_type(row, tile.dtype):
        _refuse_data(plan, f"{tile.dtype} of shape {tile.shape}")
    if row.is_packed and (tile >> row.element_bits).any():
        _refuse_data(plan, f"up to {tile.max()}, more than {row.element_bits} bits")
    return tile


def _refuse_data(plan: TilePlan, found: str) -> NoReturn:
    numpy_type = plan.row.numpy
    refuse(
        "COPY_DATA",
        "data",
        f"data is {found}; the map's tile is {numpy_type} of shape {plan.tile_shape}, its shared "
        f"memory uint8 of shape ({plan.smem_bytes},)",
    )


def _is_same_type(row: DataTypeRow, dtype: np.dtype[Any]) -> bool:
    """Whether an array of this dtype has the map's values, bit for bit."""
    return dtype.isnative and _is_named_like(row, dtype.name)


def _is_named_like(row: DataTypeRow, name: str) -> bool:
    """Whether the type that NumPy, ml_dtypes or DLPack names so has the map's bits."""
    return name == row.numpy or name.startswith(_ALSO_ACCEPTED.get(row.data_type, ()))


_ALSO_ACCEPTED: dict[TensorMapDataType, tuple[str, ...]] = {
    _T.BFLOAT16: ("bfloat16",),
    _T.UINT8: ("bool", "int8", "float8"),
    _T.UINT16: ("int16",),
    _T.UINT64: ("complex64",),
}


# --- Arrays of any library ----------------------------------------------------------------------


def _read_tensor(plan: TilePlan, data: object) -> Values:
    """Read what NumPy cannot, through DLPack."""
    kind = f"{name_of(type(data))} of dtype {getattr(data, 'dtype', 'unknown')}"
    try:
        view = as_tensor_view(data)
    except TmaPreconditionError as error:
        violation = error.violations[0]
        if violation.rule == "TENSOR_TYPE":
            _refuse_data(plan, f"a {name_of(type(data))}, which is not an array")
        why = violation.found.replace("tensor", "it", 1)
        refuse("COPY_DATA_HOST", "data", f"data is a {kind}, and {why} ({violation.fix})")
    if not view.device.is_host:
        refuse("COPY_DATA_HOST", "data", f"data is a {kind} on {view.device}")
    row = plan.row
    if 0 in view.shape or not _is_named_like(row, str(view.dtype)):
        _refuse_data(plan, f"a {kind} and shape {view.shape}")
    step = view.dtype.itemsize_bits // 8
    byte_strides = tuple(stride * step for stride in view.strides)
    values: Values = np.ndarray(view.shape, row.numpy, host_bytes(view), 0, byte_strides)
    return values
