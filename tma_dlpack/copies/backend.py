"""`Backend`: the verbs of a copy, checked once, and carried out by the simulator or the GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tma_dlpack.copies.reductions import reduction_of
from tma_dlpack.copies.request import (
    CopyRequest,
    gather4_request,
    load_request,
    scatter4_request,
    store_request,
)
from tma_dlpack.copies.tile import Tile
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.public import public

__all__ = ["Backend"]


@public
class Backend(ABC):
    """What copies tiles: `backend("simulator")` or `backend("cuda")`.

    The parameters of every verb are those of the function of the same name in `tma_dlpack`. Each
    verb checks its arguments, so that a bad coordinate is refused before anything is copied, and
    gives the checked request to `load` or `store`, which a backend implements.

    Every verb also takes `stream`, for the CUDA backend: None for the current stream of torch or
    CuPy if the tensor is theirs, else the legacy default stream; or a stream of any of them, or a
    handle.
    """

    name: str

    @abstractmethod
    def load(self, request: CopyRequest, memory: object, stream: object) -> Tile:
        """Carry out a checked load."""

    @abstractmethod
    def store(
        self, request: CopyRequest, data: object, op: str, memory: object, stream: object
    ) -> None:
        """Carry out a checked store (`op` is ``"store"``) or reduction."""

    def load_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        *,
        im2col_offsets: Sequence[int] | None = None,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> Tile:
        """Load one tile into shared memory; see `tma_dlpack.load_tile`."""
        request = load_request(tensor_map, coords, im2col_offsets, smem_offset, many=False)
        return self.load(request, memory, stream)

    def load_tiles(
        self,
        tensor_map: TensorMap,
        coords: object,
        *,
        im2col_offsets: Sequence[int] | None = None,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> Tile:
        """Load many tiles, coords (n, rank); see `tma_dlpack.load_tiles`."""
        request = load_request(tensor_map, coords, im2col_offsets, smem_offset, many=True)
        return self.load(request, memory, stream)

    def store_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        data: object,
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> None:
        """Store one tile to global memory; see `tma_dlpack.store_tile`."""
        request = store_request(tensor_map, coords, smem_offset)
        self.store(request, data, "store", memory, stream)

    def reduce_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        data: object,
        op: str,
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> None:
        """Combine one tile into global memory; see `tma_dlpack.reduce_tile`."""
        request = store_request(tensor_map, coords, smem_offset)
        reduction = reduction_of(tensor_map.data_type, op)
        self.store(request, data, reduction, memory, stream)

    def gather4(
        self,
        tensor_map: TensorMap,
        column: int,
        rows: Sequence[int],
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> Tile:
        """Load four rows of a matrix into one tile (tile::gather4, sm_100 and later).

        The map's box is (1, columns). Documented, not measured; the simulator alone has it.
        """
        return self.load(gather4_request(tensor_map, column, rows, smem_offset), memory, stream)

    def scatter4(
        self,
        tensor_map: TensorMap,
        column: int,
        rows: Sequence[int],
        data: object,
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> None:
        """Store four rows of a matrix from one tile (tile::scatter4, sm_100, sm_103 and sm_110).

        The map's box is (1, columns). Documented, not measured; the simulator alone has it.
        """
        request = scatter4_request(tensor_map, column, rows, smem_offset)
        self.store(request, data, "store", memory, stream)
