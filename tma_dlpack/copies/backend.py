"""`Backend`: base class of the two backends, which checks the arguments of copies."""

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
from tma_dlpack.public import public
from tma_dlpack.tensor_map.map import TensorMap


@public
class Backend(ABC):
    """A backend that copies tiles: `backend("simulator")` uses NumPy, `backend("cuda")` the GPU.

    `load_tile`, `load_tiles`, `store_tile` and `reduce_tile` have the parameters of the functions
    of the same name in `tma_dlpack`. Each method checks its arguments first, so it refuses a bad
    coordinate before it copies a byte.

    Every method also takes `stream`, which only the CUDA backend uses: a stream of torch, CuPy or
    cuda.core, or a CUstream as an integer. None means the current stream of torch or CuPy for their
    tensors, and the legacy default stream for other tensors.

    To write a backend, implement `load` and `store`, which receive the checked request.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.ones((8, 8), np.float32), box_sizes=(2, 4))
    >>> tma.backend("simulator").load_tile(tm, (0, 0)).array.tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """

    name: str

    @abstractmethod
    def load(self, request: CopyRequest, memory: object, stream: object) -> Tile:
        """Execute a checked load."""

    @abstractmethod
    def store(
        self, request: CopyRequest, data: object, op: str, memory: object, stream: object
    ) -> None:
        """Execute a checked store (`op` is ``"store"``) or reduction (`op` is its name)."""

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
        """Reduce one tile into global memory; see `tma_dlpack.reduce_tile`."""
        request = store_request(tensor_map, coords, smem_offset)
        # Check the coordinates first, then the operation.
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

        `column` is the first column, `rows` are four row coordinates; the map's box must be
        (1, columns). Documented, not measured; only the simulator has it.
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
        """Store one tile to four rows of a matrix (tile::scatter4, sm_100, sm_103 and sm_110).

        `column` is the first column, `rows` are four row coordinates; the map's box must be
        (1, columns). Documented, not measured; only the simulator has it.
        """
        request = scatter4_request(tensor_map, column, rows, smem_offset)
        self.store(request, data, "store", memory, stream)
