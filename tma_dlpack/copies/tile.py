"""`Tile`: the shared memory after a load, and the tile in it as an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.copies.layout import (
    Bytes,
    group_bytes,
    lines_of_smem,
    smem_of_lines,
    values_of_lines,
)
from tma_dlpack.copies.request import CopyRequest
from tma_dlpack.tables.lazy import lazy
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tables.public import Drawn, public
from tma_dlpack.tensor_map.map import TensorMap


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


@public
class Tile(Drawn):
    """The result of a load: one tile, or many with a leading axis (from `load_tiles`).

    Its arrays are read-only: copy one before changing it.

    Attributes
    ----------
    smem : uint8 array (smem_offset + smem_bytes,)
        Shared memory from address 0 on, swizzled as the hardware writes it. Bytes that the copy
        does not write are 0. `smem_bytes` is that of the map; for an interleaved tile with a
        swizzle it is rounded up to the span (32, 64 or 128 bytes), because the hardware spreads the
        last lines over the whole span [measured].
    written : bool array like `smem`
        Which bytes of `smem` the copy writes: not the padding of rows, and not those before the
        tile.
    array : array
        The logical tile, row-major and unswizzled, with the fill value in out-of-bounds elements.
        Shape: (n[rank-1], ..., n[0]) for a tiled map, where n counts the elements copied per
        dimension; (pixels, channels) for an im2col map; (n[N], 1, ..., n[W], unit) for an
        interleaved map, where unit is the elements in 16 or 32 bytes. bfloat16 is uint16; packed
        types are uint8, one value each.
    filled : bool array like `array`
        Which elements are out of bounds, and so have the fill value.
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
        """``"measured"`` or ``"documented, not measured"``: how sure this result is."""
        return self._request.note

    @property
    def tensor_map(self) -> TensorMap:
        """The map that the tile was loaded with."""
        return self._request.tensor_map

    @property
    @opaque
    def coords(self) -> tuple[int, ...] | npt.NDArray[np.int64]:
        """Coordinates of the load, row-major; an array (n, rank) for many tiles."""
        coords = self._request.coords[:, ::-1]
        return coords if self._request.many else tuple(coords[0].tolist())

    @property
    def im2col_offsets(self) -> tuple[int, ...]:
        """The im2col offsets of the load, row-major; empty if none were given."""
        return self._request.offsets[::-1]

    @property
    def smem_offset(self) -> int:
        """Address of the tile in shared memory, bytes."""
        return self._request.smem_offset

    @lazy
    @opaque
    def written(self) -> npt.NDArray[np.bool_]:
        """Which bytes of `smem` the copy writes."""
        plan, offset = self._request.plan, self._request.smem_offset
        row = plan.arguments.type_row
        line = np.ones(plan.smem_line_bytes, np.uint8)
        if row.smem_chunk_bytes:
            line.reshape(-1, row.smem_chunk_bytes)[:, group_bytes(row) :] = 0
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
        """Which elements are out of bounds."""
        plan, lines = self._request.plan, self._request.lines()
        bits = plan.arguments.type_row.element_bits
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
