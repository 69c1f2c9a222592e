"""`Tile`: what a load leaves in shared memory, and the same seen as an array."""

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
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.lazy import lazy
from tma_dlpack.types.opaque import opaque
from tma_dlpack.types.public import Drawn, public

__all__ = ["Tile"]


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


@public
class Tile(Drawn):
    """One loaded tile, or many with a leading axis (from `load_tiles`).

    Its arrays are read-only: copy one before changing it.

    Attributes
    ----------
    smem : uint8 array (smem_offset + footprint,)
        Shared memory from address 0 on, swizzled as the hardware leaves it. Bytes that the copy
        does not touch are 0 here and False in `written`. The footprint is the map's `smem_bytes`:
        of a dense interleaved tile with a swizzle it is the tile's bytes rounded up to the
        swizzle's span (32, 64 or 128), because the hardware scatters the last lines over the whole
        span, and so writes beyond the tile's own bytes [measured].
    written : bool array like `smem`
        Which bytes of `smem` the copy writes: padding of rows and what lies before the tile are
        not.
    array : array
        The logical tile, row-major and unswizzled, out-of-bounds elements filled. Its shape counts
        the elements taken: (n[rank-1], ..., n[0]) of a tiled map; (pixels, channels) of an im2col
        map. An interleaved map has one more axis, the elements of one unit of 16 or 32 bytes, and
        extent 1 for its slice: (n[N], 1, ..., n[W], unit). bfloat16 comes as its uint16 words, a
        packed type as one uint8 code per value.
    filled : bool array like `array`
        Which elements are out of bounds, and so hold the fill value.
    tx_bytes : int
        What the mbarrier counts, per tile.
    note : str
        ``"measured"`` (H200, driver 580.159.04, 2026-11-20) or ``"documented, not measured"``.
    """

    _request: CopyRequest
    smem: Bytes

    def __init__(self, request: CopyRequest, smem: Bytes) -> None:
        vars(self).update(_request=request, smem=_read_only(smem))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Tile is what was loaded: {name} cannot be set; load another")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Tile is what was loaded: {name} cannot be deleted")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a copied or pickled tile, whose arrays come writeable."""
        for name, value in state.items():
            vars(self)[name] = _read_only(value) if isinstance(value, np.ndarray) else value

    @property
    @opaque
    def tx_bytes(self) -> int:
        """Bytes that the mbarrier counts, per tile."""
        return self._request.plan.tx_bytes

    @property
    def note(self) -> str:
        """Whether the hardware has been seen doing this."""
        return self._request.note

    @property
    def tensor_map(self) -> TensorMap:
        """The map that the tile was loaded through."""
        return self._request.tensor_map

    @property
    @opaque
    def coords(self) -> tuple[int, ...] | npt.NDArray[np.int64]:
        """The coordinates of the load, row-major; an array (n, rank) of many tiles."""
        coords = self._request.coords[:, ::-1]
        return coords if self._request.many else tuple(coords[0].tolist())

    @property
    def im2col_offsets(self) -> tuple[int, ...]:
        """The im2col offsets of the load, row-major; empty where there were none."""
        return self._request.offsets[::-1]

    @property
    def smem_offset(self) -> int:
        """Where the tile starts in shared memory, bytes."""
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
