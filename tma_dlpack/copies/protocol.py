"""The `Backend` protocol: few verbs, two ways to copy, the same refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tma_dlpack.copies.tile import Tile
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.public import public

__all__ = ["Backend"]


@public
@runtime_checkable
class Backend(Protocol):
    """What copies tiles. Coordinates and offsets are row-major; see `SimulatorBackend`."""

    name: str

    def load_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        *,
        im2col_offsets: Sequence[int] | None = None,
        memory: object = None,
        smem_offset: int = 0,
    ) -> Tile:
        """Load one tile."""
        ...

    def load_tiles(
        self,
        tensor_map: TensorMap,
        coords: object,
        *,
        im2col_offsets: Sequence[int] | None = None,
        memory: object = None,
        smem_offset: int = 0,
    ) -> Tile:
        """Load many tiles: coords (n, rank), every array of the Tile with a leading axis n."""
        ...

    def store_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        data: object,
        *,
        memory: object = None,
        smem_offset: int = 0,
    ) -> None:
        """Store one tile."""
        ...

    def reduce_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        data: object,
        op: str,
        *,
        memory: object = None,
        smem_offset: int = 0,
    ) -> None:
        """Combine one tile into global memory."""
        ...

    def gather4(
        self,
        tensor_map: TensorMap,
        column: int,
        rows: Sequence[int],
        *,
        memory: object = None,
        smem_offset: int = 0,
    ) -> Tile:
        """Load four rows of a matrix into one tile; sm_100 and later."""
        ...

    def scatter4(
        self,
        tensor_map: TensorMap,
        column: int,
        rows: Sequence[int],
        data: object,
        *,
        memory: object = None,
        smem_offset: int = 0,
    ) -> None:
        """Store one tile to four rows of a matrix; sm_100 and later."""
        ...
