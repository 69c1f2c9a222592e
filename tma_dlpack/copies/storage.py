"""The storage of a tensor: the memory around it, which may be larger than the tensor itself."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.dlpack import TensorView
from tma_dlpack.dlpack.producer import is_known
from tma_dlpack.dlpack.torch_tensor import is_torch
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.enums import DLDataTypeCode

_UINT8 = DLDataType(DLDataTypeCode.kDLUInt, 8)


class Storage(NamedTuple):
    """A range of bytes of memory.

    `is_own` says that the framework itself allocated it: then it can be read, and written unless
    flagged read-only. Memory that the framework only wraps may be unmapped.
    """

    address: int
    size_bytes: int
    is_own: bool

    def holds(self, view: TensorView) -> bool:
        """Whether every byte of a tensor is inside."""
        end = self.address + self.size_bytes
        return self.address <= view.address and view.address + view.extent_bytes <= end

    def as_view(self, view: TensorView) -> TensorView:
        """Give the storage of a tensor as a uint8 view, which keeps the same owner alive."""
        return TensorView(
            self.address,
            view.device,
            _UINT8,
            (self.size_bytes,),
            (1,),
            view.read_only,
            view.producer,
            view.owner,
            view.capsule,
        )


def storage_of(view: TensorView) -> Storage:
    """Give the storage of a tensor; only the tensor's own extent for other frameworks.

    Sources: ``untyped_storage()`` of torch, ``base`` of NumPy, ``data.mem`` of CuPy. A subclass of
    torch.Tensor may raise anything here.

    Examples
    --------
    >>> from tma_dlpack.dlpack import as_tensor_view
    >>> x = np.zeros((4, 8), np.float32)
    >>> storage_of(as_tensor_view(x[1:, :5])).size_bytes  # not 84
    128
    """
    owner: Any = view.owner
    if is_torch(owner):
        storage = owner.untyped_storage()
        # A storage that wraps foreign memory, as from_numpy makes, cannot be resized.
        return Storage(storage.data_ptr(), storage.nbytes(), storage.resizable())
    if isinstance(owner, np.ndarray):
        return _numpy_storage(owner)
    if _is_cupy(owner):
        memory = owner.data.mem
        return Storage(int(memory.ptr), int(memory.size), True)
    return Storage(view.address, view.extent_bytes, is_known(type(owner)))


def _is_cupy(owner: object) -> bool:
    kind = getattr(sys.modules.get("cupy"), "ndarray", None)
    return isinstance(kind, type) and isinstance(owner, kind)


def _numpy_storage(array: np.ndarray[Any, Any]) -> Storage:
    """Give the memory of the outermost array that the given one is a view of.

    A base that is not an array, such as a buffer or the helper object of `as_strided`, ends the
    chain.
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    first = array.__array_interface__["data"][0]
    reaches = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    if 0 in array.shape:
        return Storage(first, 0, True)
    begin = first + sum(min(reach, 0) for reach in reaches)
    size_bytes = sum(map(abs, reaches)) + array.itemsize
    return Storage(begin, size_bytes, bool(array.flags.owndata))
