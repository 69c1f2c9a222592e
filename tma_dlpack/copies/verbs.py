"""The public functions that copy tiles, with the simulator or on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tma_dlpack import geometry
from tma_dlpack.copies.backend import Backend, reduction_of
from tma_dlpack.copies.request import load_request, store_request
from tma_dlpack.copies.simulator import SimulatorBackend
from tma_dlpack.copies.tile import Tile
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import text_of
from tma_dlpack.tables.enums import Ints
from tma_dlpack.tables.errors import TmaUnsupportedError, bad_value
from tma_dlpack.tensor_map.map import TensorMap, require_map

if TYPE_CHECKING:
    from tma_dlpack.geometry import IntArray

SIMULATOR = SimulatorBackend()


@opaque
def backend(name: str) -> Backend:
    """Return a backend that copies tiles, with NumPy or on the GPU.

    Parameters
    ----------
    name : {"simulator", "cuda"}
        ``"simulator"`` copies host tensors with NumPy. ``"cuda"`` copies CUDA tensors with the
        hardware, and needs the extra ``cuda``.

    Returns
    -------
    Backend
        A backend with the methods `load_tile`, `load_tiles`, `store_tile` and `reduce_tile`. Its
        methods `gather4` and `scatter4` (sm_100) work only with the simulator.

    Raises
    ------
    TmaPreconditionError
        If `name` is neither ``"simulator"`` nor ``"cuda"``.
    TmaUnsupportedError
        If `name` is ``"cuda"`` and this machine lacks a driver, a GPU of compute capability 9.0 or
        later, or NVRTC. The message names what is missing and what to install.

    Examples
    --------
    >>> backend("simulator").name
    'simulator'
    """
    chosen = _named(name)
    if chosen is not SIMULATOR:
        # The CUDA backend is imported only if it is used.
        from tma_dlpack.copies.cuda import require_all

        require_all()
    return chosen


def _named(name: object) -> Backend:
    """Return a backend; do not check whether this machine can run the backend."""
    word = text_of(name)
    if word == "simulator":
        return SIMULATOR
    if word == "cuda":
        from tma_dlpack.copies.cuda import CudaBackend

        return CudaBackend()
    must = "be 'simulator', 'cuda' or a Backend"
    raise bad_value("backend", name, must, "pass backend='simulator'")


def _choose(tensor_map: TensorMap, wanted: object, memory: object) -> Backend:
    """Return the backend `wanted`; choose by the tensor's device if `wanted` is None."""
    require_map(tensor_map)
    if wanted is None:
        on_gpu = memory is None and tensor_map.device is not None and tensor_map.device.is_cuda
        return _named("cuda") if on_gpu else SIMULATOR
    return wanted if isinstance(wanted, Backend) else _named(wanted)


@opaque
def load_tile(
    tensor_map: TensorMap,
    coords: Ints,
    *,
    im2col_offsets: Ints | None = None,
    backend: Literal["simulator", "cuda"] | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> Tile:
    """Load one tile into shared memory, as ``cp.async.bulk.tensor`` does.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        Coordinates of the tile's first element, row-major like `box_sizes`. They are counted in
        elements, and may be negative or past the end; out-of-bounds elements get the fill value.
        Unless the map is interleaved, the innermost coordinate times the size of an element must be
        a multiple of 16 bytes.
    im2col_offsets : sequence of int, optional
        Offsets in pixels, row-major (D, H, W), for im2col maps only. For a convolution, pass the
        index of the filter's tap times the dilation. None means zeros.
    backend : str or Backend, optional
        ``"simulator"``, ``"cuda"``, or a result of `tma_dlpack.backend`. None means the GPU if the
        map's tensor is on a GPU and `memory` is None, else the simulator.
    memory : uint8 array, one-dimensional, optional
        The memory that the copy may access; pass it for a map of a bare address. The array must
        contain the map's addresses. The simulator takes a NumPy array. ``backend="cuda"`` takes a
        CUDA tensor, and needs no `memory` if a CUDA allocation contains the address.
    smem_offset : int
        Address of the tile in shared memory in bytes, a multiple of 128. The pattern of a swizzle
        depends on this address.

    Returns
    -------
    Tile
        `.array` (the logical tile, row-major, unswizzled), `.smem` (bytes of shared memory),
        `.written`, `.filled`, `.tx_bytes`. The arrays are read-only.

    Raises
    ------
    TmaPreconditionError
        If the copy would kill a kernel, or if it would access memory outside the tensor's storage,
        for example because the tensor moved after the map was made. In these cases nothing is
        copied.
    TmaUnsupportedError
        If the target, the map or this machine does not support the copy.
    TmaDriverError
        If the driver refuses the launch, or if a copy on the GPU does not complete within two
        seconds.

    Notes
    -----
    The result is measured: it is equal, byte for byte, to the result of an H200 (driver 580.159.04,
    2026-11-20). Results for packed types, atom swizzles and im2col-wide maps are documented, not
    measured; see `Tile.note`.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.arange(64, dtype=np.float32).reshape(8, 8)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(2, 4))
    >>> tma.load_tile(tm, (-1, 4)).array
    array([[0., 0., 0., 0.],
           [4., 5., 6., 7.]], dtype=float32)
    """
    chosen = _choose(tensor_map, backend, memory)
    request = load_request(tensor_map, coords, im2col_offsets, smem_offset, many=False)
    return chosen.load(request, memory, None)


@opaque
def load_tiles(
    tensor_map: TensorMap,
    coords: object,
    *,
    im2col_offsets: Sequence[int] | None = None,
    backend: Literal["simulator", "cuda"] | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> Tile:
    """Load many tiles in one vectorised call; see `load_tile`.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : integer array (n, rank)
        Each row of the array has the row-major coordinates of one tile. `tile_coords(tensor_map)`
        returns the coordinates of the tiles that cover the tensor. With an empty list, the result
        has no tiles.
    im2col_offsets, backend, memory, smem_offset
        As in `load_tile`; these arguments apply to all tiles.

    Returns
    -------
    Tile
        The result of `load_tile`, but every array has an additional leading axis of length n.

    Raises
    ------
    TmaPreconditionError, TmaUnsupportedError, TmaDriverError
        As `load_tile`.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.arange(64, dtype=np.float32).reshape(8, 8)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(4, 8))
    >>> tma.load_tiles(tm, tma.tile_coords(tm)).array.shape
    (2, 4, 8)
    """
    chosen = _choose(tensor_map, backend, memory)
    request = load_request(tensor_map, coords, im2col_offsets, smem_offset, many=True)
    return chosen.load(request, memory, None)


@opaque
def store_tile(
    tensor_map: TensorMap,
    coords: Ints,
    data: object,
    *,
    backend: Literal["simulator", "cuda"] | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> None:
    """Store one tile to global memory, as ``cp.async.bulk.tensor`` does.

    Out-of-bounds elements are not stored. The copy writes whole 16-byte chunks. If the size of a
    tensor's row is not a multiple of 16 bytes, a store at the end of the row also overwrites the
    bytes up to the next multiple of 16, as on hardware [measured]. If these bytes are outside the
    tensor's storage (torch's untyped storage, NumPy's base, CuPy's memory), both backends raise an
    error before they write.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        As in `load_tile`, but not negative.
    data : array
        An array in host memory: either a logical tile or shared memory. A logical tile has the
        shape of `Tile.array`, or this shape with an additional leading axis of length 1. It has the
        dtype of `Tile.array` or of the tensor, such as torch.bfloat16. Shared memory is a uint8
        array or ``bytes`` like `Tile.smem`. Its length is smem_offset + smem_bytes if it starts at
        address 0, and smem_bytes if it starts at smem_offset. A one-dimensional uint8 array may be
        a valid logical tile and valid shared memory. If these two forms would store different
        bytes, the array is refused. In this case pass ``data[None]`` for a logical tile, or
        ``data.tobytes()`` for shared memory.
    backend, memory, smem_offset
        As in `load_tile`.

    Raises
    ------
    TmaPreconditionError
        As `load_tile` does, and also if the tensor is read-only, as all JAX arrays are. To store
        nevertheless, copy the tensor to NumPy, torch or CuPy and make a map of the copy, or pass
        `memory`.
    TmaUnsupportedError, TmaDriverError
        As `load_tile`.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((4, 4), dtype=np.float32)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(2, 4))
    >>> tma.store_tile(tm, (3, 0), np.ones((2, 4), dtype=np.float32))
    >>> x.sum(axis=1)
    array([0., 0., 0., 4.], dtype=float32)
    """
    chosen = _choose(tensor_map, backend, memory)
    request = store_request(tensor_map, coords, smem_offset)
    chosen.store(request, data, "store", memory, None)


@opaque
def reduce_tile(
    tensor_map: TensorMap,
    coords: Ints,
    data: object,
    op: Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"],
    *,
    backend: Literal["simulator", "cuda"] | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> None:
    """Reduce one tile into global memory, as ``cp.reduce.async.bulk.tensor`` does.

    Each element of the tensor becomes ``op(old, new)``, where `old` is the element's value and
    `new` is the tile's value for this element.

    Parameters
    ----------
    tensor_map, coords, data, backend, memory, smem_offset
        As in `store_tile`.
    op : {"add", "min", "max", "inc", "dec", "and", "or", "xor"}
        The operation. Each data type supports some of these operations [measured]. An operation
        that the data type does not support would kill a kernel, so it is refused.

    Raises
    ------
    TmaPreconditionError, TmaUnsupportedError, TmaDriverError
        As `store_tile` does, and also for an operation that the data type does not support.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.ones((4, 4), dtype=np.float32)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(4, 4))
    >>> tma.reduce_tile(tm, (0, 0), np.full((4, 4), 2, dtype=np.float32), "add")
    >>> x[0]
    array([3., 3., 3., 3.], dtype=float32)
    """
    chosen = _choose(tensor_map, backend, memory)
    request = store_request(tensor_map, coords, smem_offset)
    chosen.store(request, data, reduction_of(tensor_map.data_type, op), memory, None)


@opaque
def tile_coords(tensor_map: TensorMap) -> IntArray:
    """Return the coordinates of the tiles that cover the tensor, for `load_tiles`.

    Parameters
    ----------
    tensor_map : TensorMap
        A tiled or im2col map. For an im2col map, a tile is a column of pixels, and the result has
        the coordinates of the columns that cover the output of the convolution.

    Returns
    -------
    ndarray of int64, (n, rank)
        Each row of the array has the coordinates of one tile, row-major, in elements. For a map
        with ``split_inner=True``, each row has the form that `split_inner_coords` returns.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is not a TensorMap.
    TmaUnsupportedError
        If the map was made with ``ragged=``, because each slice has its own tiles. `ragged_coords`
        returns the coordinates of a tile of a slice.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 96), dtype=np.float32)
    >>> tile_coords(tma.make_tma_descriptor(x, box_sizes=(32, 64))).tolist()
    [[0, 0], [0, 64], [32, 0], [32, 64]]
    """
    require_map(tensor_map)
    if tensor_map.ragged is not None:
        raise TmaUnsupportedError(
            "the tiles of a ragged map belong to its slices: "
            "tma.ragged_coords(tensor_map, offset, size, coords) returns the coordinates of each"
        )
    return geometry.tile_coords(tensor_map.arguments)
