"""`Tile`, the result of a load, and functions that read the data of a store.

A tile has three forms. A logical tile is an array of elements, row-major and unswizzled. Shared
memory is an array of swizzled bytes. Lines (see `geometry`) are uint8 arrays of unswizzled bytes:
(tiles, lines, line_bytes) as in global memory, or (tiles, lines, smem_line_bytes) as in shared
memory.
`smem_line_bytes` is larger than `line_bytes` for packed types, which have gaps in shared memory.
The functions convert between these forms.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.copies.request import CopyRequest, array_of
from tma_dlpack.dlpack import as_tensor_view, host_bytes, is_a, name_of
from tma_dlpack.geometry import TilePlan
from tma_dlpack.public import Drawn, lazy, opaque, public
from tma_dlpack.tables.dtypes import DataTypeRow
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.errors import TmaPreconditionError
from tma_dlpack.tables.refusals import refuse
from tma_dlpack.tables.targets import PACKED_GROUP
from tma_dlpack.tensor_map.map import TensorMap

Bytes = npt.NDArray[np.uint8]
Values = npt.NDArray[Any]


def smem_of_lines(
    plan: TilePlan, smem_offset: int, lines: Bytes, out: Bytes | None = None
) -> Bytes:
    """Arrange lines (tiles, lines, smem_line_bytes) as shared memory (tiles, smem_bytes).

    If `out` is passed, the result is `out`. Otherwise the result may share memory with `lines`.
    """
    if lines.shape[1] * lines.shape[2] == plan.smem_bytes:
        dense = lines.reshape(len(lines), plan.smem_bytes)
    else:
        dense = np.zeros((len(lines), plan.smem_bytes), np.uint8)
        # Line i starts i * pitch_bytes after the tile's start. The bytes up to the next line are
        # padding and stay zero.
        _pitches(plan, dense)[..., : plan.smem_line_bytes] = lines
    return _swizzled(plan, smem_offset, dense, out)


def _swizzled(plan: TilePlan, smem_offset: int, region: Bytes, out: Bytes | None = None) -> Bytes:
    """Swizzle, or unswizzle, shared memory (tiles, smem_bytes) that starts at `smem_offset`."""
    # Both directions are the same, because a swizzle XORs address bits with higher address bits.
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
    """Return the lines (tiles, lines, smem_line_bytes) of shared memory (tiles, smem_bytes)."""
    return _pitches(plan, _swizzled(plan, smem_offset, region))[..., : plan.smem_line_bytes]


def _pitches(plan: TilePlan, dense: Bytes) -> Bytes:
    """View unswizzled shared memory as lines and their padding: (tiles, lines, pitch_bytes)."""
    taken = dense[:, : plan.lines * plan.pitch_bytes]
    return taken.reshape(len(dense), plan.lines, plan.pitch_bytes)


# --- Packed types -------------------------------------------------------------------------------


def _group_bytes(row: DataTypeRow) -> int:
    """Return the size of 16 packed values in bytes, without the gap that follows them."""
    return PACKED_GROUP * row.element_bits // 8


def spread(plan: TilePlan, lines: Bytes) -> Bytes:
    """Convert lines from their form in global memory to the form in shared memory.

    The two forms differ only for packed types, which have gaps in shared memory. The gaps are 0.
    """
    if plan.smem_line_bytes == plan.line_bytes:
        return lines
    row, group_bytes = plan.row, _group_bytes(plan.row)
    groups = lines.reshape(*lines.shape[:-1], -1, group_bytes)
    out = np.zeros((*groups.shape[:-1], row.smem_chunk_bytes), np.uint8)
    out[..., :group_bytes] = groups
    return out.reshape(*lines.shape[:-1], -1)


def gathered(plan: TilePlan, lines: Bytes) -> Bytes:
    """Convert lines from their form in shared memory to the form in global memory, without gaps."""
    if plan.smem_line_bytes == plan.line_bytes:
        return lines
    groups = lines.reshape(*lines.shape[:-1], -1, plan.row.smem_chunk_bytes)
    return groups[..., : _group_bytes(plan.row)].reshape(*lines.shape[:-1], -1)


# --- Logical tiles ------------------------------------------------------------------------------


def values_of_lines(plan: TilePlan, lines: Bytes) -> Values:
    """Convert lines of shared memory to logical tiles (tiles, *tile_shape)."""
    row = plan.row
    dense = np.ascontiguousarray(gathered(plan, lines))
    # Each packed value of 4 or 6 bits becomes one byte. Bit 0 of a value comes first in `bits`.
    if row.smem_chunk_bytes:
        bits = np.unpackbits(dense, axis=-1, bitorder="little")
        by_value = bits.reshape(-1, row.element_bits)
        dense = np.packbits(by_value, axis=-1, bitorder="little")
    values = dense.reshape(-1).view(row.numpy)
    return values.reshape(len(lines), *plan.tile_shape)


def lines_of_values(plan: TilePlan, tile: Values) -> Bytes:
    """Convert a logical tile to lines of global memory: uint8 (1, lines, line_bytes)."""
    row = plan.row
    dense = np.ascontiguousarray(tile)
    if row.smem_chunk_bytes:
        # Each byte of `dense` holds one value in its lower bits; pack these bits.
        bits = np.unpackbits(dense[..., None], axis=-1, count=row.element_bits, bitorder="little")
        dense = np.packbits(bits.reshape(-1), bitorder="little")
    raw: Bytes = dense.reshape(-1).view(np.uint8)
    return raw.reshape(1, plan.lines, plan.line_bytes)


# --- The result of a load -----------------------------------------------------------------------


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


@public
class Tile(Drawn):
    """The result of a load: one tile from `load_tile`, or many tiles from `load_tiles`.

    For many tiles, each array has a leading axis for the tiles. The arrays are read-only; copy an
    array before you change it.

    Attributes
    ----------
    smem : uint8 array (smem_offset + smem_bytes,)
        Shared memory from address 0 on, swizzled as the hardware writes it. Bytes that the copy
        does not write are 0. `smem_bytes`, an attribute of the map, is the size of a tile. For an
        interleaved map with a swizzle, this size is rounded up to a multiple of the swizzle's span
        (32, 64 or 128 bytes), because the hardware spreads the last lines over a whole span
        [measured].
    written : bool array like `smem`
        For each byte of `smem`, whether the copy writes it. The copy writes neither the padding of
        rows nor the bytes before the tile.
    array : array
        The logical tile, row-major and unswizzled. Out-of-bounds elements have the fill value. For
        a tiled map the shape is (n[rank-1], ..., n[0]), where n[d] is the number of elements copied
        along dimension d. For an im2col map the shape is (pixels, channels). For an interleaved map
        the shape is (n[N], 1, ..., n[W], unit), where unit is the number of elements in 16 or 32
        bytes. bfloat16 elements are uint16. Elements of packed types are uint8, one value per byte.
    filled : bool array like `array`
        For each element, whether it is out of bounds and therefore has the fill value.
    tx_bytes : int
        Bytes that each tile adds to the mbarrier's transaction count.
    note : str
        ``"measured"`` (H200, driver 580.159.04, 2026-11-20) or ``"documented, not measured"``.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.arange(1, 33, dtype=np.float32).reshape(4, 8)
    >>> tile = tma.load_tile(tma.make_tma_descriptor(x, box_sizes=(2, 4)), (3, 0))
    >>> tile.array.tolist(), tile.tx_bytes
    ([[25.0, 26.0, 27.0, 28.0], [0.0, 0.0, 0.0, 0.0]], 32)
    >>> tile.filled[:, 0].tolist(), tile.smem.shape
    ([False, True], (32,))
    """

    _request: CopyRequest
    smem: Bytes

    def __init__(self, request: CopyRequest, smem: Bytes) -> None:
        vars(self).update(_request=request, smem=_read_only(smem))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Tile is immutable: {name} cannot be set; load another tile")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Tile is immutable: {name} cannot be deleted")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or pickled tile, and make its arrays read-only again."""
        for name, value in state.items():
            vars(self)[name] = _read_only(value) if isinstance(value, np.ndarray) else value

    @property
    @opaque
    def tx_bytes(self) -> int:
        """Bytes that each tile adds to the mbarrier's transaction count."""
        return self._request.plan.tx_bytes

    @property
    def note(self) -> str:
        """The evidence for this result: ``"measured"`` or ``"documented, not measured"``."""
        return self._request.note

    @property
    def tensor_map(self) -> TensorMap:
        """The map of the load."""
        return self._request.tensor_map

    @property
    @opaque
    def coords(self) -> tuple[int, ...] | npt.NDArray[np.int64]:
        """Coordinates of the load, row-major; an array (n, rank) for many tiles."""
        coords = self._request.coords[:, ::-1]
        return coords if self._request.many else tuple(coords[0].tolist())

    @property
    def im2col_offsets(self) -> tuple[int, ...]:
        """The im2col offsets of the load, row-major; an empty tuple means zeros."""
        return self._request.offsets[::-1]

    @property
    def smem_offset(self) -> int:
        """Address of the tile in shared memory, in bytes."""
        return self._request.smem_offset

    @lazy
    @opaque
    def written(self) -> npt.NDArray[np.bool_]:
        """For each byte of `smem`, whether the copy writes it."""
        # Arrange lines of ones in shared memory as a load does; gaps and padding stay zero.
        plan, offset = self._request.plan, self._request.smem_offset
        line = spread(plan, np.ones(plan.line_bytes, np.uint8))
        mask = np.zeros(offset + plan.smem_bytes, np.bool_)
        mask[offset:] = smem_of_lines(plan, offset, line[None, None])[0]
        return _read_only(np.broadcast_to(mask, self.smem.shape))

    @lazy
    @opaque
    def array(self) -> npt.NDArray[Any]:
        """The logical tile, row-major and unswizzled."""
        plan, offset = self._request.plan, self._request.smem_offset
        tiles = self.smem[None] if self.smem.ndim == 1 else self.smem
        lines = lines_of_smem(plan, offset, tiles[:, offset:])
        values = values_of_lines(plan, lines)
        return _read_only(values if self._request.many else values[0])

    @lazy
    @opaque
    def filled(self) -> npt.NDArray[np.bool_]:
        """For each element, whether it is out of bounds."""
        plan, lines = self._request.plan, self._request.lines()
        bits = plan.row.element_bits
        # Offset of each element in its line, in bits, because packed elements may begin within a
        # byte.
        at_bit = np.arange(0, plan.line_bytes * 8, bits)
        window = (at_bit >= lines.first[:, None] * 8) & (at_bit < lines.last[:, None] * 8)
        taken = lines.inside[:, :, None] & window[:, None, :]
        mask = ~taken.reshape(len(taken), *plan.tile_shape)
        return _read_only(mask if self._request.many else mask[0])

    @opaque
    def __repr__(self) -> str:
        args = self._request.plan.arguments
        return (
            f"Tile({args.data_type.name} {self.array.shape}, {self.smem.shape[-1]} bytes of shared "
            f"memory, {self.tx_bytes} transferred; {self.note})"
        )


# --- The `data` of a store ----------------------------------------------------------------------


def lines_of_data(request: CopyRequest, data: object, op: str) -> Bytes:
    """Convert the `data` of a store to lines of global memory: (1, lines, line_bytes)."""
    values, is_smem = _tile_or_smem(request, data, op)
    return _lines_of_region(request, values) if is_smem else lines_of_values(request.plan, values)


def smem_of_data(request: CopyRequest, data: object, op: str) -> Bytes:
    """Convert the `data` of a store to shared memory (smem_bytes,) that starts at smem_offset."""
    plan = request.plan
    values, is_smem = _tile_or_smem(request, data, op)
    if is_smem:
        return values
    lines = spread(plan, lines_of_values(plan, values))
    smem: Bytes = smem_of_lines(plan, request.smem_offset, lines)[0]
    return smem


def _lines_of_region(request: CopyRequest, region: Bytes) -> Bytes:
    lines = lines_of_smem(request.plan, request.smem_offset, region[None])
    return gathered(request.plan, lines)


def _tile_or_smem(request: CopyRequest, data: Any, op: str) -> tuple[Values, bool]:
    """Return `data` as an array, and whether the array is shared memory, not a logical tile.

    The docstring of `store_tile` describes the two forms of `data`. A store also accepts a tile
    with the dtype of the map's tensor. A reduction does not, because it calculates with the map's
    data type.
    """
    plan, row = request.plan, request.plan.row
    lengths = ((plan.smem_bytes,), (request.smem_offset + plan.smem_bytes,))
    if isinstance(data, (bytes, bytearray)):
        raw = np.frombuffer(data, np.uint8)
        if raw.shape not in lengths:
            _refuse_data(plan, f"{raw.size} bytes")
        return raw[-plan.smem_bytes :], True
    if is_a(type(data), "numpy.ma.MaskedArray"):
        _refuse_data(plan, "a numpy.ma.MaskedArray, whose masked elements would be stored")
    own_type = _own_type(request) if op == "store" else ""
    array = array_of(data)
    if array is None or array.dtype == object:
        array = _read_tensor(plan, data, own_type)
    is_own = array.dtype.name == own_type and array.dtype.isnative
    if is_own and plan.tile_shape in (array.shape, array.shape[1:]):
        array = np.ascontiguousarray(array).view(row.numpy)
    if array.shape == (1, *plan.tile_shape):
        return _checked_codes(plan, array[0]), False
    is_tile = array.shape == plan.tile_shape and _is_same_type(row, array.dtype)
    is_smem = array.shape in lengths and array.dtype == np.uint8
    if not is_tile and not is_smem:
        _refuse_data(plan, f"{array.dtype} of shape {array.shape}")
    region = np.ascontiguousarray(array[-plan.smem_bytes :]) if is_smem else array
    if not is_tile:
        return region, True
    if is_smem and (_lines_of_region(request, region) != lines_of_values(plan, array)).any():
        found = f"data is uint8 of shape {array.shape}, the shape of a tile and of shared memory"
        refuse("COPY_DATA_AMBIGUOUS", "data", found)
    return _checked_codes(plan, array), False


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
    """Return whether a tile of this dtype fits the map's data type, as int16 fits UINT16."""
    return dtype.isnative and _is_named_like(row, dtype.name)


def _is_named_like(row: DataTypeRow, name: str) -> bool:
    """Return whether a dtype's name (NumPy, ml_dtypes or DLPack) fits the map's data type."""
    return name == row.numpy or name.startswith(_ALSO_ACCEPTED.get(row.data_type, ()))


# Prefixes of further dtype names that fit a data type, such as "float8_e4m3fn" for UINT8.
_ALSO_ACCEPTED: dict[TensorMapDataType, tuple[str, ...]] = {
    TensorMapDataType.BFLOAT16: ("bfloat16",),
    TensorMapDataType.UINT8: ("bool", "int8", "float8"),
    TensorMapDataType.UINT16: ("int16",),
    TensorMapDataType.UINT64: ("complex64",),
}


def _own_type(request: CopyRequest) -> str:
    """Return the dtype of the map's tensor if the map has another data type of this size."""
    view, row = request.tensor_map.description.view, request.plan.row
    if view is None or view.dtype.itemsize_bits != 8 * np.dtype(row.numpy).itemsize:
        return ""
    name = str(view.dtype)
    return "" if _is_named_like(row, name) else name


def _dtype_of(data: object) -> str:
    try:
        return str(getattr(data, "dtype", "unknown"))
    # `dtype` may be a property that raises any error.
    except Exception:
        return "unknown"


def _read_tensor(plan: TilePlan, data: object, own_type: str) -> Values:
    """Return the values of a tensor that NumPy cannot convert; read them through DLPack."""
    kind = f"{name_of(type(data))} of dtype {_dtype_of(data)}"
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
    row, dtype = plan.row, str(view.dtype)
    if 0 in view.shape or not (_is_named_like(row, dtype) or dtype == own_type):
        _refuse_data(plan, f"a {kind} and shape {view.shape}")
    step = view.dtype.itemsize_bits // 8
    byte_strides = tuple(stride * step for stride in view.strides)
    values: Values = np.ndarray(view.shape, row.numpy, host_bytes(view), 0, byte_strides)
    return values
