"""`TensorView`: a tensor's memory as a value; and the bytes of host tensors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tma_dlpack.dlpack.capsule import read_safely
from tma_dlpack.dlpack.fixes import fix_of
from tma_dlpack.dlpack.layout import Device, Export, canonical_strides, judge
from tma_dlpack.dlpack.producer import (
    is_known,
    read_dlpack,
    read_interface,
    reading,
    refuse_masked,
)
from tma_dlpack.dlpack.refusals import name_of, refuse, said
from tma_dlpack.dlpack.torch_tensor import is_proxy, is_torch, read_torch
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.errors import TmaUnsupportedError


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor's address, device, dtype, shape and strides, as a value.

    Attributes
    ----------
    address : int
        Address of element (0, ..., 0). May be 0 if, and only if, an extent is 0.
    device : Device
        Where the memory is. For managed memory `device_id` is always 0.
    dtype : DLDataType
        Type of one element, lanes included: a torch ``float4_e2m1fn_x2`` is one element of 8 bits.
    shape, strides : tuple of int
        Row-major; strides in elements, never negative. For dimensions of extent 1 the strides are
        those of `canonical_strides`.
    read_only : bool
        Whether the producer forbids writing.
    producer : str
        Type of the tensor, such as ``"torch.Tensor"``, for messages.
    owner : object
        The tensor, which keeps the memory alive.
    capsule : object
        The capsule of an unknown producer, which may have exported a temporary: it keeps that
        memory alive. None for known producers.
    own : TensorView or None
        The tensor's own view, if this one comes from `as_strided`.
    offset_bytes : int
        Bytes from the address of `own` to `address`.
    """

    address: int
    device: Device
    dtype: DLDataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    read_only: bool
    producer: str
    owner: object = field(default=None, repr=False, compare=False)
    capsule: object = field(default=None, repr=False, compare=False)
    own: TensorView | None = None
    offset_bytes: int = 0

    @property
    def extent_bytes(self) -> int:
        """Bytes from the start of the first element to the end of the last, gaps included."""
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return -(-(last + 1) * self.dtype.itemsize_bits // 8)

    def at(self, address: int, owner: object = None, capsule: object = None) -> TensorView:
        """Give the same layout at another address, with another owner."""
        return TensorView(
            address,
            self.device,
            self.dtype,
            self.shape,
            self.strides,
            self.read_only,
            self.producer if owner is None else name_of(type(owner)),
            owner,
            capsule,
            None if self.own is None else self.own.at(address - self.offset_bytes, owner, capsule),
            self.offset_bytes,
        )

    def as_strided(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset_bytes: int
    ) -> TensorView:
        """Give another description of the same memory; it may reach beyond the tensor.

        >>> x = as_tensor_view(np.zeros((4, 8), np.float32))
        >>> half = x.as_strided((4, 4), (8, 1), 16)
        >>> half.address - x.address, half.extent_bytes, half.own == x
        (16, 112, True)
        """
        return dataclasses.replace(
            self,
            address=self.address + offset_bytes,
            shape=shape,
            strides=canonical_strides(shape, strides, self.dtype.itemsize_bits),
            own=self,
            offset_bytes=offset_bytes,
        )


def as_tensor_view(tensor: object) -> TensorView:
    """Give the view of a tensor of any framework, without copying or reading its data.

    torch tensors are read by their attributes, so Parameters, tensors that require a gradient and
    float8 on old versions work too. Everything else is read through `__dlpack__`, or, without it,
    through `__cuda_array_interface__`; that has no device, so device 0 is reported.

    Parameters
    ----------
    tensor : object
        A tensor of torch, NumPy, JAX, CuPy, tvm-ffi or any other producer, in CUDA, managed, pinned
        or host memory. A tensor without elements is accepted; its address may be 0.

    Returns
    -------
    TensorView
        Row-major, in elements. Rank, alignment and data type are not checked here, but by the
        rules.

    Raises
    ------
    TmaPreconditionError
        With one Violation of argument ``"tensor"``, whose rule starts with ``TENSOR_``; an error of
        the producer is its `__cause__`.

    Examples
    --------
    >>> view = as_tensor_view(np.zeros((2, 1, 8), np.float32))
    >>> view.shape, view.strides, str(view.dtype), str(view.device)
    ((2, 1, 8), (8, 8, 1), 'float32', 'cpu:0')
    """
    address, layout, capsule = read(tensor)
    return TensorView(address, *judge(layout), name_of(type(tensor)), tensor, capsule)


def read(tensor: object) -> Export:
    """Give a tensor's address and layout, unchecked: the first half of `as_tensor_view`."""
    with reading(tensor):
        return _read(tensor)


def _read(tensor: object) -> Export:
    if is_torch(tensor):
        return read_torch(tensor)
    if is_proxy(tensor):
        refuse("TENSOR_FAKE", "is a torch.fx.Proxy, which stands for a tensor in a graph")
    if name_of(type(tensor)) == "PyCapsule":
        refuse("TENSOR_RAW_CAPSULE", "is a capsule")
    if issubclass(type(tensor), type):
        refuse("TENSOR_TYPE", f"is the class {name_of(tensor)}")  # type: ignore[arg-type]
    refuse_masked(tensor)
    if _has(tensor, "__dlpack__"):
        return read_dlpack(tensor)
    if _has(tensor, "__cuda_array_interface__"):
        return read_interface(tensor)
    refuse("TENSOR_TYPE", f"is of type {name_of(type(tensor))}", fix=fix_of(tensor))


def _has(tensor: object, attribute: str) -> bool:
    try:
        return getattr(tensor, attribute, None) is not None
    except Exception as error:
        found = f"is a {name_of(type(tensor))} whose {attribute} raised {said(error)}"
        refuse("TENSOR_EXPORT", found, error)


class _Memory:
    """Bytes at an address, for NumPy's array interface, and the object that keeps them alive."""

    def __init__(self, address: int, size_bytes: int, owner: object, read_only: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size_bytes,),
            "data": (address, read_only),
        }


def array_at(
    address: int, size_bytes: int, owner: object, *, read_only: bool = False
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Give memory of this process as a uint8 array, without a copy; it keeps `owner` alive."""
    return np.asarray(_Memory(address, size_bytes, owner, read_only))


def host_bytes(view: TensorView) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Give the bytes of memory that a host tensor spans, gaps included.

    Parameters
    ----------
    view : TensorView
        A view of a tensor in host or pinned memory.

    Returns
    -------
    numpy.ndarray
        uint8, 1-D, from the first byte of element (0, ..., 0) to the last byte of the last element,
        gaps between rows included; no copy. It keeps the tensor alive, and is not writeable if the
        view is read-only. Empty for a tensor without elements.

    Raises
    ------
    TmaUnsupportedError
        If it is GPU memory.
    TmaPreconditionError
        If the memory cannot be read (checked only for unknown producers).

    Examples
    --------
    >>> x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    >>> host_bytes(as_tensor_view(x[:2, :3]))
    array([0, 1, 2, 3, 4, 5, 6], dtype=uint8)
    """
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor lies on {view.device}; only host memory can be read here: copy it to the "
            'host, x.cpu(), or use backend="cuda"'
        )
    size_bytes = view.extent_bytes
    if not size_bytes:
        return np.empty(0, np.uint8)
    if not is_known(type(view.owner)):
        read_safely(view.address, 1, align=1)
        read_safely(view.address + size_bytes - 1, 1, align=1)
    return array_at(view.address, size_bytes, view, read_only=view.read_only)
