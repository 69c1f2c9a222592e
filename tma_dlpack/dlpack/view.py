"""A tensor's memory as a value, and the bytes of those on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tma_dlpack.dlpack.capsule import read_safely
from tma_dlpack.dlpack.layout import Device, Reading, Signature, judge
from tma_dlpack.dlpack.numpy_array import ARRAYS_ARE_OPEN, read_numpy
from tma_dlpack.dlpack.producer import (
    first_dlpack_reading,
    is_known,
    read_interface,
    refuse_masked,
)
from tma_dlpack.dlpack.refusals import name_of, refuse, said
from tma_dlpack.dlpack.torch_tensor import is_torch, read_torch, read_torch_alike, torch_reader
from tma_dlpack.types.dtypes import DLDataType
from tma_dlpack.types.errors import TmaUnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "READERS",
    "TensorView",
    "as_tensor_view",
    "described",
    "host_bytes",
    "read_alike",
    "read_first_of_type",
    "read_layout",
]

_Reader = Callable[[Any], Reading]
_MAX_READERS = 256

#: One reader per Python type, chosen by `read_first_of_type` when its first tensor is seen.
READERS: dict[type, _Reader] = {}


@dataclass(frozen=True, slots=True)
class TensorView:
    """Where a tensor's memory lies and how it is laid out.

    Attributes
    ----------
    address : int
        Of element (0, ..., 0). May be 0 if, and only if, an extent is 0.
    device : Device
        Which memory. For managed memory DLPack's `device_id` is 0 by convention.
    dtype : DLDataType
        Of one element, lanes included: a torch ``float4_e2m1fn_x2`` is one element of 8 bits.
    shape, strides : tuple of int
        Row-major, strides in elements, none negative; those of extents 1 as `canonical_strides`
        gives them.
    read_only : bool
        Whether the producer forbids writing.
    producer : str
        Type of the tensor, such as ``"torch.Tensor"``, for messages.
    owner : object
        The tensor: the memory stays valid as long as it is alive.
    capsule : object
        The capsule of a producer that we do not know, which may have exported a temporary: it keeps
        the memory too, so keep the view. None otherwise.
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

    @property
    def extent_bytes(self) -> int:
        """Bytes from the first of element (0, ..., 0) to the last of the last, gaps included."""
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return -(-(last + 1) * self.dtype.itemsize_bits // 8)

    def at(self, address: int, owner: object = None, capsule: object = None) -> TensorView:
        """Give the same layout elsewhere; of an owner, its own name as the producer's."""
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
        )


def as_tensor_view(tensor: object) -> TensorView:
    """Look at a tensor of any framework, without copying or reading its data.

    torch tensors are asked by their attributes (so Parameters, tensors that require a gradient and
    float8 on old versions serve too), everything else through `__dlpack__`, and what has none
    through `__cuda_array_interface__`, which names no device: it is reported as device 0.

    Parameters
    ----------
    tensor : object
        A tensor of torch, NumPy, JAX, CuPy, tvm-ffi or any other producer, in CUDA, managed, pinned
        or host memory. A tensor without elements is let through; its address may then be 0.

    Returns
    -------
    TensorView
        Row-major, in elements. Ranks over 5, alignment and data types that a map lacks are not
        looked at here.

    Raises
    ------
    TmaPreconditionError
        With one Violation of argument ``"tensor"``, whose rule starts with ``TENSOR_``; what the
        producer itself raised is its `__cause__`.

    Examples
    --------
    >>> view = as_tensor_view(np.zeros((2, 1, 8), np.float32))
    >>> view.shape, view.strides, str(view.dtype), str(view.device)
    ((2, 1, 8), (8, 8, 1), 'float32', 'cpu:0')
    """
    reading = read_layout(tensor)
    address, _, capsule = reading
    return described(tensor, reading).at(address, tensor, capsule)


def described(tensor: object, reading: Reading) -> TensorView:
    """Judge what `read_layout` gave: the other half of `as_tensor_view`, less address and owner."""
    _, signature, _ = reading
    layout_of, *told = signature
    return TensorView(0, *judge(layout_of(tensor, *told)), name_of(type(tensor)))


def read_layout(tensor: object) -> Reading:
    """Ask a tensor for its address and layout, unjudged: the fast half of `as_tensor_view`.

    Returns the address, a `Signature`, and the capsule if it must be kept alive. Equal signatures
    are judged equally, so what `described` said of one holds for all. Raises as `as_tensor_view`,
    but for what can be told from the signature.
    """
    return READERS.get(type(tensor), read_first_of_type)(tensor)


def read_alike(tensors: Sequence[Any]) -> tuple[NDArray[np.uint64], Signature] | None:
    """Read many tensors at once, if they are alike and there is a quick way.

    Gives their addresses and the one signature that `read_layout` gives of each; or None.
    """
    if tensors and READERS.get(type(tensors[0])) is read_torch:
        return read_torch_alike(tensors)
    return None


def read_first_of_type(tensor: Any) -> Reading:
    """Read a tensor of a type that has no reader yet, and choose one."""
    reader, reading = _first_reading(tensor)
    if len(READERS) >= _MAX_READERS:  # types made on the fly must not pile up
        READERS.clear()
    READERS[type(tensor)] = reader
    return reading


def _first_reading(tensor: Any) -> tuple[_Reader, Reading]:
    if is_torch(tensor):
        reader = torch_reader(tensor)
        return reader, reader(tensor)
    if type(tensor) is np.ndarray and ARRAYS_ARE_OPEN:
        return read_numpy, read_numpy(tensor)
    if name_of(type(tensor)) == "PyCapsule":
        refuse("TENSOR_RAW_CAPSULE", "is a capsule")
    if issubclass(type(tensor), type):
        refuse("TENSOR_TYPE", f"is the class {name_of(tensor)}")
    refuse_masked(tensor)
    if _has(tensor, "__dlpack__"):
        return first_dlpack_reading(tensor)
    if _has(tensor, "__cuda_array_interface__"):
        return read_interface, read_interface(tensor)
    refuse("TENSOR_TYPE", f"is of type {name_of(type(tensor))}")


def _has(tensor: object, attribute: str) -> bool:
    try:
        return getattr(tensor, attribute, None) is not None
    except Exception as error:
        found = f"is a {name_of(type(tensor))} whose {attribute} raised {said(error)}"
        refuse("TENSOR_EXPORT", found, error)


class _Extent:
    """A stretch of host memory as NumPy's array interface tells it, with what keeps it alive."""

    def __init__(self, view: TensorView, size_bytes: int) -> None:
        self.view = view
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size_bytes,),
            "data": (view.address, view.read_only),
        }


def host_bytes(view: TensorView) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Give the bytes that a host tensor's shape and strides span, as they lie in memory.

    Parameters
    ----------
    view : TensorView
        Of a tensor in host or pinned memory.

    Returns
    -------
    numpy.ndarray
        uint8, 1-D, from the first byte of element (0, ..., 0) to the last byte of the last element,
        gaps between rows included; no copy. It keeps the tensor alive, and is not writeable if the
        view is read-only. Empty for a tensor without elements.

    Raises
    ------
    TmaUnsupportedError
        If the memory is a GPU's.
    TmaPreconditionError
        If the extent is no memory of this process (only looked at for producers unknown to us).

    Examples
    --------
    >>> x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    >>> host_bytes(as_tensor_view(x[:2, :3]))
    array([0, 1, 2, 3, 4, 5, 6], dtype=uint8)
    """
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor lies on {view.device}; its bytes can be read here only in host memory: "
            "copy it to the host, or use the cuda backend"
        )
    size_bytes = view.extent_bytes
    if not size_bytes:
        return np.empty(0, np.uint8)
    if not is_known(type(view.owner)):
        read_safely(view.address, 1, align=1)
        read_safely(view.address + size_bytes - 1, 1, align=1)
    return np.asarray(_Extent(view, size_bytes))
