"""Many maps in one array, for kernels that read maps from global memory, such as a grouped GEMM."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tma_dlpack.make.descriptors import make_tma_descriptor
from tma_dlpack.make.extension import Maps, accept_many
from tma_dlpack.public import Drawn, opaque, with_options_of
from tma_dlpack.tables.coerce import reusable
from tma_dlpack.tables.enums import Tensor
from tma_dlpack.tables.errors import TmaDriverError, TmaPreconditionError, Violation, argument_error
from tma_dlpack.tables.targets import MAP_BYTES
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.storage import aligned_bytes, for_torch

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TensorMapBatch(Sequence[TensorMap], Drawn):
    """A sequence of maps whose bytes are in one contiguous array.

    `make_tma_descriptors` returns it. The items are `TensorMap`s; ``np.asarray(batch)`` is a uint8
    array of shape (n, 128). A batch is immutable and keeps the tensors alive. A slice of a batch is
    a batch with its own array.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> a, b = np.zeros((128, 64), np.float16), np.zeros((256, 64), np.float16)
    >>> batch = tma.make_tma_descriptors([a, b], box_sizes=(64, 64), swizzle="bytes128")
    >>> len(batch), batch[1].shape, batch.numpy().shape, batch.launchable
    (2, (256, 64), (2, 128), False)
    """

    __slots__ = ("_made", "_rows")

    def __init__(self, maps: Iterable[TensorMap]) -> None:
        self._made = Maps(tuple(maps))
        self._rows = _rows(self._made.maps)

    @classmethod
    def _accepted(cls, maps: Maps, rows: NDArray[np.uint8]) -> TensorMapBatch:
        """Make a batch from maps whose bytes C has written to `rows`.

        C makes the `TensorMap` objects later, when a program first reads one of them.
        """
        batch = object.__new__(cls)
        batch._made, batch._rows = maps, rows if maps.has_bytes else None
        return batch

    @property
    def _maps(self) -> tuple[TensorMap, ...]:
        return self._made.maps

    @property
    @opaque
    def tensors(self) -> tuple[object, ...]:
        """The tensor of each map, in the order of the maps; None for a map without a tensor."""
        return self._made.tensors

    @opaque
    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> TensorMap: ...

    @overload
    def __getitem__(self, index: slice) -> TensorMapBatch: ...

    @opaque
    def __getitem__(self, index: int | slice) -> TensorMap | TensorMapBatch:
        if isinstance(index, slice):
            return TensorMapBatch(self._maps[index])
        return self._maps[index]

    @property
    @opaque
    def launchable(self) -> bool:
        """Whether all maps may be passed to a kernel; False if any map describes host memory."""
        return self._made.launchable

    @opaque
    def numpy(self) -> NDArray[np.uint8]:
        """Return the maps as a read-only uint8 array of shape (n, 128), aligned to 128 bytes.

        Raises `TmaUnsupportedError` if a map could not be encoded on this machine, as
        ``bytes(tensor_map)`` does.
        """
        if self._rows is None:
            # For a map without bytes, `bytes(map)` raises an error that states the reason.
            bytes(next(tensor_map for tensor_map in self._maps if tensor_map._data is None))
        assert self._rows is not None
        rows: NDArray[np.uint8] = self._rows.view()
        rows.flags.writeable = False
        return rows

    @opaque
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        rows = self.numpy()
        converted = np.array(rows, dtype=dtype) if copy else np.asarray(rows, dtype=dtype)
        if copy is False and not np.shares_memory(converted, rows):
            raise ValueError(f"the maps are uint8: as {converted.dtype} they must be copied")
        return converted

    @property
    @opaque
    def ptr(self) -> int:
        """Address of the first map in host memory; map i is at this address + 128 i.

        The address is valid while the batch exists. Raises `TmaUnsupportedError` as `TensorMap.ptr`
        does.
        """
        return int(self._launchable_rows().ctypes.data)

    @opaque
    def as_torch(self) -> Any:
        """Return the maps as a torch CPU tensor, uint8 of shape (n, 128), that shares their memory.

        ``batch.as_torch().cuda()`` copies the maps to the GPU; the copy is aligned to 128 bytes
        too. Raises `TmaUnsupportedError` as `TensorMap.ptr` does, and if torch is not imported.
        """
        return for_torch(self._launchable_rows())

    def _launchable_rows(self) -> NDArray[np.uint8]:
        if not self.launchable or self._rows is None:
            # `ptr` of the first map that is not launchable raises an error with the reason
            for tensor_map in self._maps:
                _ = tensor_map.ptr
        assert self._rows is not None
        return self._rows

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorMapBatch, (self._maps,)

    def __copy__(self) -> TensorMapBatch:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorMapBatch:
        return self

    def __repr__(self) -> str:
        return f"<TensorMapBatch of {len(self)} maps>"


def _rows(maps: tuple[TensorMap, ...]) -> NDArray[np.uint8] | None:
    """Return the bytes of the maps as rows of one array; return None if a map has no bytes."""
    data = [tensor_map._data for tensor_map in maps]
    present = [one for one in data if one is not None]
    if len(present) < len(data):
        return None
    rows, _ = aligned_bytes(len(data) * MAP_BYTES)
    rows[:] = np.frombuffer(b"".join(present), dtype=np.uint8)
    return rows.reshape(-1, MAP_BYTES)


@opaque
@with_options_of(make_tma_descriptor)
def make_tma_descriptors(tensors: Iterable[Tensor], options: dict[str, Any]) -> TensorMapBatch:
    """Make the maps of many tensors with the same options, in one array.

    Use it for a kernel that chooses among many tensors, such as a grouped GEMM. Copy the array to
    the GPU once, ``batch.as_torch().cuda()``. Each thread block then uses the address of its map in
    this copy. Before a thread block uses a map in global memory for the first time, it must execute
    ``fence.proxy.tensormap::generic.acquire.gpu``.

    Parameters
    ----------
    tensors : iterable of tensors
        The tensors. Their shapes, strides and data types may differ. The call is fastest for a list
        of torch tensors with equal shape, strides and dtype.
    box_sizes, ..., target
        As in `make_tma_descriptor`; they apply to every tensor.

    Returns
    -------
    TensorMapBatch
        A sequence of maps, equal to those that `make_tma_descriptor` makes of the tensors. The
        method `numpy` returns their bytes as a uint8 array of shape (n, 128), aligned to 128 bytes.

    Raises
    ------
    TmaPreconditionError
        If a tensor is refused. The message has the index of the first refused tensor.

    Notes
    -----
    Source of the rules for maps in global memory: CUDA C++ Programming Guide, tensor memory access.

    Examples
    --------
    >>> import numpy as np
    >>> weights = [np.zeros((rows, 64), dtype=np.float16) for rows in (128, 256, 64)]
    >>> batch = make_tma_descriptors(weights, box_sizes=(64, 64), swizzle="bytes128")
    >>> batch.numpy().shape, [tm.shape for tm in batch]
    ((3, 128), [(128, 64), (256, 64), (64, 64)])
    """
    all_tensors = _as_tuple(tensors)
    rows, address = aligned_bytes(len(all_tensors) * MAP_BYTES)
    # C writes the bytes to `rows`. It returns None if Python must check one of the tensors.
    maps = accept_many(all_tensors, address, options)
    if maps is not None:
        return TensorMapBatch._accepted(maps, rows.reshape(-1, MAP_BYTES))
    # The options are read again for every tensor, so replace an iterator by its entries.
    given = {name: reusable(value) for name, value in options.items()}
    return TensorMapBatch([_made(i, tensor, given) for i, tensor in enumerate(all_tensors)])


def _as_tuple(tensors: object) -> tuple[Any, ...]:
    # A subclass of tuple or list may override iteration and raise an error, so exclude it here.
    if type(tensors) is tuple or type(tensors) is list:
        return tuple(tensors)
    cause = None
    try:
        # Refuse a single tensor, although a tensor is iterable; see the fix below.
        if isinstance(tensors, Iterable) and not hasattr(tensors, "__dlpack__"):
            return tuple(tensors)
    except Exception as error:  # an iterator may raise any error
        cause = error
    raise argument_error(
        "tensors",
        f"tensors is a {type(tensors).__name__}" + (", which ends in an error" if cause else ""),
        "be a sequence of tensors",
        "pass a list; list(x) for the slices of one tensor x",
    ) from cause


def _made(index: int, tensor: Tensor, given: dict[str, Any]) -> TensorMap:
    refusal: TmaPreconditionError | TmaDriverError
    try:
        return make_tma_descriptor(tensor, **given)
    except TmaPreconditionError as error:
        refusal, cause = _at(index, error), error.__cause__
    except TmaDriverError as error:
        refusal, cause = TmaDriverError(f"tensors[{index}]: {error}"), error.__cause__
    # Raise after the `except` blocks. Inside such a block, the new error's __context__ would keep a
    # frame alive, and the frame would keep the tensor alive.
    raise refusal from cause


def _at(index: int, error: TmaPreconditionError) -> TmaPreconditionError:
    """Return a copy of the error. The message of the copy also has the index of the tensor."""
    from tma_dlpack.make.build import reworded

    return reworded(error, partial(_with_index, index))


def _with_index(index: int, violation: Violation) -> Violation:
    return dataclasses.replace(violation, found=f"tensors[{index}]: {violation.found}")
