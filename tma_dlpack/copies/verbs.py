"""The public verbs that copy tiles, by the simulator or on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tma_dlpack import geometry
from tma_dlpack.copies.backend import Backend
from tma_dlpack.copies.checks import require_map
from tma_dlpack.copies.simulator import SimulatorBackend
from tma_dlpack.copies.tile import Tile
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.coerce import shown, text_of
from tma_dlpack.types.errors import refusal
from tma_dlpack.types.opaque import opaque

if TYPE_CHECKING:
    from tma_dlpack.geometry import IntArray

__all__ = [
    "backend",
    "load_tile",
    "load_tiles",
    "reduce_tile",
    "store_tile",
    "tile_coords",
]

SIMULATOR = SimulatorBackend()


@opaque
def backend(name: str) -> Backend:
    """Give a way to copy tiles.

    Parameters
    ----------
    name : {"simulator", "cuda"}
        ``"simulator"`` copies in NumPy, ``"cuda"`` with the hardware, through the current context's
        driver (extra `cuda`).

    Returns
    -------
    Backend
        With `load_tile`, `load_tiles`, `store_tile` and `reduce_tile`; and with `gather4` and
        `scatter4` of sm_100, which the simulator alone carries out.

    Raises
    ------
    TmaPreconditionError
        For another name.
    TmaUnsupportedError
        If this machine lacks what the backend needs: a driver with a GPU, compute capability 9.0 or
        later, or NVRTC; it names which, and what to install.

    Examples
    --------
    >>> backend("simulator").name
    'simulator'
    """
    chosen = _named(name)
    if chosen is not SIMULATOR:
        from tma_dlpack.copies.cuda import require_all

        require_all()
    return chosen


def _named(name: object) -> Backend:
    """Give a backend, whether or not this machine has what it needs."""
    word = text_of(name)
    if word == "simulator":
        return SIMULATOR
    if word == "cuda":
        from tma_dlpack.copies.cuda import CudaBackend

        return CudaBackend()
    must = "be 'simulator', 'cuda' or what backend() gives"
    raise refusal("backend", f"backend is {shown(name)}", must, "pass one of them")


def _choose(tensor_map: TensorMap, wanted: object, memory: object) -> Backend:
    """Take the backend that is named, or the one for where the tensor lives."""
    require_map(tensor_map)
    if wanted is None:
        on_gpu = memory is None and tensor_map.device is not None and tensor_map.device.is_cuda
        return _named("cuda" if on_gpu else "simulator")
    return wanted if isinstance(wanted, Backend) else _named(wanted)


@opaque
def load_tile(
    tensor_map: TensorMap,
    coords: Sequence[int],
    *,
    im2col_offsets: Sequence[int] | None = None,
    backend: str | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> Tile:
    """Load one tile into shared memory, as ``cp.async.bulk.tensor`` does.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        Of the tile's first element, row-major like `box_sizes`, in elements. They may be negative
        or past the end: what is out of bounds is filled. The innermost must fall on 16 bytes
        (unless interleaved).
    im2col_offsets : sequence of int, optional
        Of an im2col map, row-major (D, H, W): tap x dilation. None for zeros; None or empty for a
        tiled map.
    backend : str or Backend, optional
        None for where the tensor lives: the GPU for CUDA memory, else the simulator; with `memory`
        always the simulator.
    memory : uint8 array, one-dimensional, optional
        What holds the map's addresses, for maps of bare addresses: of NumPy for the simulator, a
        CUDA tensor for ``backend="cuda"``. That needs none where the driver knows the address.
    smem_offset : int
        Where the tile starts in shared memory, bytes; a multiple of 128. Swizzles depend on it.

    Returns
    -------
    Tile
        `.smem` (bytes of shared memory), `.written`, `.array` (the logical tile, row-major,
        unswizzled), `.filled`, `.tx_bytes`. The arrays are read-only.

    Raises
    ------
    TmaPreconditionError
        For what would kill a kernel (before anything is copied), or touch memory outside the
        tensor's storage, such as that of a tensor that has moved since the map was made.
    TmaUnsupportedError
        For what the target, the map or this machine cannot do.
    TmaDriverError
        If the driver refuses, or a copy on the GPU does not complete within two seconds.

    Notes
    -----
    Measured: equal to an H200 (driver 580.159.04, 2026-11-20) byte for byte. Packed types, atom
    swizzles and im2col-wide are documented, not measured; `Tile.note` says so.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.arange(64, dtype=np.float32).reshape(8, 8)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(2, 4))
    >>> tma.load_tile(tm, (-1, 4)).array
    array([[0., 0., 0., 0.],
           [4., 5., 6., 7.]], dtype=float32)
    """
    return _choose(tensor_map, backend, memory).load_tile(
        tensor_map, coords, im2col_offsets=im2col_offsets, memory=memory, smem_offset=smem_offset
    )


@opaque
def load_tiles(
    tensor_map: TensorMap,
    coords: object,
    *,
    im2col_offsets: Sequence[int] | None = None,
    backend: str | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> Tile:
    """Load many tiles in one vectorised call.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : integer array (n, rank)
        Row-major, one row per tile; `tile_coords(tensor_map)` covers the tensor. An empty list
        gives no tiles.
    im2col_offsets, backend, memory, smem_offset
        As in `load_tile`, the same for all tiles.

    Returns
    -------
    Tile
        Every array with a leading axis n.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.arange(64, dtype=np.float32).reshape(8, 8)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(4, 8))
    >>> tma.load_tiles(tm, tma.tile_coords(tm)).array.shape
    (2, 4, 8)
    """
    return _choose(tensor_map, backend, memory).load_tiles(
        tensor_map, coords, im2col_offsets=im2col_offsets, memory=memory, smem_offset=smem_offset
    )


@opaque
def store_tile(
    tensor_map: TensorMap,
    coords: Sequence[int],
    data: object,
    *,
    backend: str | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> None:
    """Store one tile to global memory; im2col maps as ``im2col_no_offs``.

    Out-of-bounds elements are skipped row by row. Whole 16-byte chunks are written: where a row of
    the tensor does not end on 16 bytes, up to the next multiple is overwritten, as the hardware
    does [measured]. Where that would hit memory outside the tensor's storage (torch's untyped
    storage, NumPy's base, CuPy's memory), both backends raise before anything is written.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        As in `load_tile`, but not negative.
    data : array
        The logical tile or raw shared memory, on the host; `Tile.array` and `Tile.smem` both put
        back what was loaded. What has the shape of `Tile.array` and its type (or the tensor's own,
        such as torch.bfloat16) is the logical tile; with one more leading axis of 1 too. Else uint8
        (smem_offset + smem_bytes,) is all of shared memory, like `Tile.smem`, and (smem_bytes,)
        that from smem_offset on; of ``bytes`` or a bytearray both always are. A one-dimensional
        tile of bytes or of a packed type can be as long as its shared memory: where the two would
        store different bytes, data is refused: pass ``data[None]`` for the tile, or
        ``data.tobytes()``.
    backend, memory, smem_offset
        As in `load_tile`.

    Raises
    ------
    TmaPreconditionError
        As `load_tile`; also for a read-only tensor, which every JAX array is: copy it to NumPy,
        torch or CuPy, or say with `memory` what may be written.
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
    _choose(tensor_map, backend, memory).store_tile(
        tensor_map, coords, data, memory=memory, smem_offset=smem_offset
    )


@opaque
def reduce_tile(
    tensor_map: TensorMap,
    coords: Sequence[int],
    data: object,
    op: str,
    *,
    backend: str | Backend | None = None,
    memory: object = None,
    smem_offset: int = 0,
) -> None:
    """Combine one tile into global memory, as ``cp.reduce.async.bulk.tensor`` does.

    Parameters
    ----------
    tensor_map, coords, data, backend, memory, smem_offset
        As in `store_tile`.
    op : {"add", "min", "max", "inc", "dec", "and", "or", "xor"}
        Which of them a data type has is measured; others would kill the kernel and are refused.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.ones((4, 4), dtype=np.float32)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(4, 4))
    >>> tma.reduce_tile(tm, (0, 0), np.full((4, 4), 2, dtype=np.float32), "add")
    >>> x[0]
    array([3., 3., 3., 3.], dtype=float32)
    """
    _choose(tensor_map, backend, memory).reduce_tile(
        tensor_map, coords, data, op, memory=memory, smem_offset=smem_offset
    )


@opaque
def tile_coords(tensor_map: TensorMap) -> IntArray:
    """Give the coordinates of the tiles that cover the tensor.

    Parameters
    ----------
    tensor_map : TensorMap
        Tiled, or im2col: then the starts of the columns that cover the output of the convolution.

    Returns
    -------
    ndarray of int64, (n, rank)
        Row-major.

    Raises
    ------
    TmaPreconditionError
        For what is no map.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 96), dtype=np.float32)
    >>> tile_coords(tma.make_tma_descriptor(x, box_sizes=(32, 64))).tolist()
    [[0, 0], [0, 64], [32, 0], [32, 64]]
    """
    require_map(tensor_map)
    return geometry.tile_coords(tensor_map.arguments)
