"""The CUDA backend: the hardware executes the copies.

The backend checks a request before the launch, because a bad coordinate would destroy the CUDA
context. The simulator makes the same checks. The copies run on the caller's stream, in the context
that owns the tensor's memory. Afterwards the caller's context is current again. The results are on
the host when a call returns.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tma_dlpack import driver
from tma_dlpack.copies import launch
from tma_dlpack.copies.backend import OPERATIONS, Backend
from tma_dlpack.copies.memory import Extent, check_reads, check_writes, device_extent_of
from tma_dlpack.copies.request import CopyRequest, Gather4Request
from tma_dlpack.copies.tile import Bytes, Tile, smem_of_data
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.errors import TmaDriverError, TmaUnsupportedError
from tma_dlpack.tables.refusals import refuse
from tma_dlpack.tensor_map.map import TensorMap

# THREADS is the number of threads of a block. BARRIER_BYTES is the size of the mbarrier, which
# follows the tile in shared memory.
THREADS = 128
BARRIER_BYTES = 8
#: Maximum number of bytes of device memory for the results of one launch of `load_tiles`.
MAX_SCRATCH_BYTES = 1 << 28
#: In copies.cu, each form of a copy has a number. The number for a tiled map is the rank of the
#: map. The number for an im2col map is the rank of the map plus this constant.
IM2COL_FORMS = 5
#: The index of an operation in this tuple is its number in copies.cu.
OPS = ("store", *OPERATIONS)
#: Values of a kernel's status word (copies.cu).
DONE, TIMED_OUT, MISALIGNED = range(3)
# Initial value of each status word. A block that returns early does not change the word.
NOT_RUN = 0xFFFFFFFF
FAILURES = {
    TIMED_OUT: "did not complete within 2 s: the mbarrier still waits for bytes",
    MISALIGNED: "was not started: shared memory does not begin at a multiple of 1024",
    NOT_RUN: "was not run, because another one failed",
}


class CudaBackend(Backend):
    """Backend that copies tiles of CUDA and managed tensors with the Tensor Memory Accelerator.

    If `memory` is None, a copy may access the storage of the map's tensor. For a map of a bare
    address, a copy may access the CUDA allocation that contains the address. If `memory` is not
    None, it must be a one-dimensional uint8 CUDA tensor that contains the map's addresses, and a
    copy may access only this tensor. The backend refuses a copy that would access any other byte.
    If several elements of a reduction have the same address, the reduction applies all of them.

    The backend needs the extra ``cuda`` (NVRTC) and a GPU of compute capability 9.0 or later. It
    raises `TmaUnsupportedError` if the extra or the GPU is missing, and for maps of another GPU or
    of a host tensor. It raises `TmaDriverError` if the driver refuses the launch, or if a copy does
    not complete within two seconds.
    """

    name = "cuda"

    def load(self, request: CopyRequest, memory: object, stream: object = None) -> Tile:
        """Load tiles, each by one thread block, and copy them to the host.

        The kernel loads each tile twice. Before each load, it fills shared memory with a different
        background pattern. If a byte still has the background pattern after each of the two loads,
        the hardware did not write it. `Tile.written` contains the result.
        """
        if isinstance(request, Gather4Request):
            raise _no_sm_100("gather4")
        return _load(request, memory, stream)

    def store(
        self, request: CopyRequest, data: object, op: str, memory: object, stream: object = None
    ) -> None:
        """Store or reduce one tile; `data` is in host memory."""
        if isinstance(request, Gather4Request):
            raise _no_sm_100("scatter4")
        _store(request, data, op, memory, stream)


def _no_sm_100(what: str) -> TmaUnsupportedError:
    return TmaUnsupportedError(
        f"the CUDA backend has no {what} copy, because no sm_100 GPU was there to test it; use "
        'backend="simulator", whose result is documented, not measured'
    )


def require_all() -> None:
    """Raise an error if the CUDA driver, a GPU with TMA, or NVRTC is missing.

    Raises
    ------
    TmaUnsupportedError
        The message names the missing part and the packages to install.
    """
    found = driver.status()
    if found.reason is not None:
        raise TmaUnsupportedError(found.reason)
    if not any(facts.target.has_tma for facts in found.devices):
        gpus = ", ".join(f"{facts.name} ({facts.target})" for facts in found.devices)
        raise TmaUnsupportedError(
            f"the GPUs here are {gpus}: tensor maps need compute capability 9.0 (Hopper) or later; "
            'use backend="simulator"'
        )
    launch.nvrtc_bindings()


class HardwareTile(Tile):
    """A tile that the hardware loaded; `written` marks the bytes that the hardware wrote."""

    def __init__(self, request: CopyRequest, smem: Bytes, written: npt.NDArray[np.bool_]) -> None:
        super().__init__(request, smem)
        written.flags.writeable = False
        # This value replaces the property `Tile.written`, which computes the mask.
        vars(self)["written"] = written

    @property
    def note(self) -> str:
        """``"measured"``, because the hardware loaded this tile."""
        return "measured"


def _load(request: CopyRequest, memory: object, stream: object) -> Tile:
    tensor_map, plan = request.tensor_map, request.plan
    if plan.arguments.kind == "im2col_wide":
        raise _no_sm_100("im2col-wide")
    extent = device_extent_of(tensor_map, memory, write=False)
    check_reads(request, extent)
    # The result includes the bytes before the tile, to show that the copy does not write them.
    tile_bytes = request.smem_offset + plan.smem_bytes
    smem = np.empty((request.tiles, tile_bytes), np.uint8)
    written = np.empty((request.tiles, tile_bytes), np.bool_)
    with driver.in_context_of(_first_byte(tensor_map, extent)) as device_id:
        _check_device(tensor_map, tile_bytes + BARRIER_BYTES, device_id)
        handle = launch.ordered_stream(_owner(tensor_map, memory), device_id, stream)
        kernel = _copies(device_id).kernel("load_tiles", device_id)
        # For each tile, the kernel returns two arrays of `tile_bytes` bytes: `smem` and `written`.
        step = max(1, MAX_SCRATCH_BYTES // (2 * tile_bytes))
        for begin in range(0, request.tiles, step):
            which = slice(begin, begin + step)
            status = _load_part(request, which, kernel, handle, smem[which], written[which])
            _check_status(status, begin, "load")
    if request.many:
        return HardwareTile(request, smem, written)
    return HardwareTile(request, smem[0], written[0])


def _load_part(
    request: CopyRequest,
    which: slice,
    kernel: int,
    stream: int,
    smem: Bytes,
    written: npt.NDArray[np.bool_],
) -> npt.NDArray[np.uint32]:
    """Launch one thread block for each tile; copy the results into `smem` and `written`.

    Return the status word of each tile.
    """
    args, tiles, tile_bytes = request.plan.arguments, *smem.shape
    coords = np.zeros((tiles, 5), np.int32)
    coords[:, : args.rank] = request.coords[which]
    status = np.full(tiles + 1, NOT_RUN, np.uint32)
    # The last word of `status` is 0 until a tile fails. Blocks that start after a failure return at
    # once.
    status[-1] = 0
    # The scratch memory contains, in this order: `smem`, `written`, `coords`, `status`.
    with launch.scratch(2 * smem.nbytes + coords.nbytes + status.nbytes) as room:
        written_at = room + smem.nbytes
        coords_at = written_at + smem.nbytes
        status_at = coords_at + coords.nbytes
        launch.upload(coords_at, coords, stream)
        launch.upload(status_at, status, stream)
        arguments = (
            launch.by_value(bytes(request.tensor_map)),
            ctypes.c_uint64(coords_at),
            launch.by_value(_packed("H", request.offsets, 3)),
            ctypes.c_uint32(_form(args)),
            ctypes.c_uint32(request.smem_offset),
            ctypes.c_uint32(tile_bytes),
            ctypes.c_uint32(request.plan.tx_bytes),
            ctypes.c_uint64(room),
            ctypes.c_uint64(written_at),
            ctypes.c_uint64(status_at),
        )
        launch.launch(kernel, tiles, THREADS, tile_bytes + BARRIER_BYTES, stream, arguments)
        launch.download(smem, room, stream)
        launch.download(written, written_at, stream)
        launch.download(status, status_at, stream)
        launch.synchronize(stream)
    return status[:-1]


def _store(request: CopyRequest, data: object, op: str, memory: object, stream: object) -> None:
    tensor_map, offset = request.tensor_map, request.smem_offset
    tile = smem_of_data(request, data, op)
    extent = device_extent_of(tensor_map, memory, write=True)
    check_writes(request, extent)
    status = np.full(1, NOT_RUN, np.uint32)
    with driver.in_context_of(_first_byte(tensor_map, extent)) as device_id:
        _check_device(tensor_map, offset + tile.nbytes, device_id)
        handle = launch.ordered_stream(_owner(tensor_map, memory), device_id, stream)
        kernel = _copies(device_id).kernel("store_tile", device_id)
        with launch.scratch(tile.nbytes + status.nbytes) as room:
            status_at = room + tile.nbytes
            launch.upload(room, tile, handle)
            launch.upload(status_at, status, handle)
            arguments = (
                launch.by_value(bytes(tensor_map)),
                launch.by_value(_packed("i", request.coords[0].tolist(), 5)),
                ctypes.c_uint32(OPS.index(op)),
                ctypes.c_uint32(_form(request.plan.arguments)),
                ctypes.c_uint32(offset),
                ctypes.c_uint64(room),
                ctypes.c_uint32(tile.nbytes),
                ctypes.c_uint64(status_at),
            )
            launch.launch(kernel, 1, THREADS, offset + tile.nbytes, handle, arguments)
            launch.download(status, status_at, handle)
            launch.synchronize(handle)
    _check_status(status, 0, op)


def _copies(device_id: int) -> launch.Library:
    return launch.compile_packaged("copies.cu", __package__, driver.device_target(device_id))


def _form(args: EncodeArguments) -> int:
    return args.rank + (IM2COL_FORMS if args.kind == "im2col" else 0)


def _packed(letter: str, values: Sequence[int], count: int) -> bytes:
    return struct.pack(f"<{count}{letter}", *values, *(0,) * (count - len(values)))


def _first_byte(tensor_map: TensorMap, extent: Extent) -> int:
    """Return the first address of `extent`; the map's own address may be outside of the extent."""
    return tensor_map.global_address - extent.origin


def _owner(tensor_map: TensorMap, memory: object) -> object:
    """Return the object whose memory is copied: `memory`, or the map's tensor.

    The copy must wait for earlier work on this object.
    """
    return tensor_map.tensor if memory is None else memory


def _check_device(tensor_map: TensorMap, smem_bytes: int, device_id: int) -> None:
    target = driver.device_target(device_id)
    if tensor_map.target.compute_capability != target.compute_capability:
        raise TmaUnsupportedError(
            f"the map was made for {tensor_map.target}, but its memory is on a GPU of {target}; "
            f"make it with target={target.name!r}"
        )
    if smem_bytes > target.max_smem_bytes:
        found = (
            f"tile and mbarrier take {smem_bytes} bytes; a block has {target.max_smem_bytes} bytes"
        )
        refuse("COPY_SMEM_SIZE", "smem_offset", found)


def _check_status(status: npt.NDArray[np.uint32], first_tile: int, what: str) -> None:
    for failure, why in FAILURES.items():
        failed = np.flatnonzero(status == failure)
        if len(failed):
            tile = first_tile + int(failed[0])
            raise TmaDriverError(f"the {what} of tile {tile} {why} ({len(failed)} did so)")
