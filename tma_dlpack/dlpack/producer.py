"""Read tensors other than torch's: `__dlpack__`, or `__cuda_array_interface__` without it."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from tma_dlpack.dlpack.capsule import CAREFUL, DIRECT, parse_capsule
from tma_dlpack.dlpack.fixes import JAX, fix_of, numpy_fix, package_of
from tma_dlpack.dlpack.layout import HOST, READ_ONLY, Device, Export, Layout
from tma_dlpack.dlpack.refusals import MAX_NDIM, name_of, refuse, said
from tma_dlpack.tables.enums import DLDataTypeCode, DLDeviceType
from tma_dlpack.tables.errors import TmaPreconditionError

MAX_VERSION = (1, 3)

#: Packages whose types export valid capsules and memory, so that pointers need no checks.
_KNOWN_PRODUCERS = frozenset(
    {"numpy", "jax", "jaxlib", "cupy", "torch", "tvm_ffi", "mlx", "paddle"}
)

#: Types of TensorFlow's values that are not plain bytes. Its `__dlpack__` ends the process instead
#: of raising [measured, TensorFlow 2.21].
NO_NUMBERS = frozenset({"string", "resource", "variant"})


_reading: set[tuple[int, int]] = set()  # threads, and the ids of the tensors that each reads


@contextmanager
def reading(tensor: object) -> Iterator[None]:
    """Refuse a tensor that this thread is reading already: its methods ask for a map of itself."""
    key = threading.get_ident(), id(tensor)
    if key in _reading:
        found = f"is a {name_of(type(tensor))} whose __dlpack__ needs a tensor map of itself"
        refuse("TENSOR_EXPORT", found, fix="make its __dlpack__ return the capsule of its memory")
    _reading.add(key)
    try:
        yield
    finally:
        _reading.discard(key)


def is_known(kind: type) -> bool:
    """Whether a type is defined in a known library, or inherits `__dlpack__` from one unchanged.

    Then the map keeps no capsule. A capsule could hold an object of a subclass that holds its map:
    such a cycle would never be freed, because the garbage collector does not look into capsules.
    """
    maker = next((base for base in kind.__mro__ if "__dlpack__" in vars(base)), kind)
    return not _KNOWN_PRODUCERS.isdisjoint((package_of(kind), package_of(maker)))


def is_immutable(kind: type) -> bool:
    """Whether the tensors of a type are immutable, even if their capsules lack the flag.

    Arrays of JAX and PyArrow, and TensorFlow's tensors, whose capsules say nothing of it [measured,
    TensorFlow 2.21]; its variables are not exported.
    """
    package = package_of(kind)
    return package in (*JAX, "pyarrow") or (package, kind.__name__) in (
        ("tensorflow", "EagerTensor"),
        ("tensorflow", "Tensor"),
    )


def read_dlpack(tensor: Any) -> Export:
    """Read a tensor through `__dlpack__`, with max_version (DLPack 1.0) where that is taken.

    No data is read, so nothing needs to synchronize: the stream is -1. JAX would read -1 as a
    stream handle; it gets 1, the legacy stream, on which it makes the device wait.
    """
    package = package_of(type(tensor))
    if package == "tensorflow":
        _refuse_no_numbers(tensor)
    arguments: dict[str, Any] = {}
    if _takes_stream(tensor):
        arguments["stream"] = 1 if package in JAX else -1
    try:
        capsule = _export(tensor, {"max_version": MAX_VERSION, **arguments})
    except TmaPreconditionError as error:
        if not isinstance(error.__cause__, TypeError):
            raise
        capsule = _export(tensor, arguments)
    known = is_known(type(tensor))
    address, layout = parse_capsule(capsule, DIRECT if known else CAREFUL)
    if is_immutable(type(tensor)):
        layout = layout._replace(flags=layout.flags | READ_ONLY)
    return Export(address, layout, None if known else capsule)


def _refuse_no_numbers(tensor: Any) -> None:
    dtype = getattr(getattr(tensor, "dtype", None), "name", None)
    if dtype in NO_NUMBERS:
        found = f"is a TensorFlow tensor of dtype {dtype}"
        refuse("TENSOR_EXPORT", found, fix="pass a tensor of numbers")


def _export(tensor: Any, arguments: dict[str, Any]) -> object:
    try:
        return tensor.__dlpack__(**arguments)
    except Exception as error:
        _refuse_export(tensor, error)


def _takes_stream(tensor: Any) -> bool:
    """Whether to pass a stream: the tensor says that it lies on a CUDA device."""
    try:
        device_type, device_id = tensor.__dlpack_device__()
        if device_type in HOST:
            return False
        device = Device(operator.index(device_type), operator.index(device_id))
    except Exception:  # producers without the method, or tensors that cannot be exported
        return False
    if not device.is_cuda:
        refuse("TENSOR_DEVICE", f"lies on {device}")
    return True


def _refuse_export(tensor: Any, error: Exception) -> NoReturn:
    found = f"is a {name_of(type(tensor))} whose __dlpack__ raised {said(error)}"
    if issubclass(type(tensor), np.ndarray) and not isinstance(error, TypeError):
        fix = numpy_fix(tensor.dtype)
        if fix:
            found = f"is a NumPy array of dtype {tensor.dtype}: __dlpack__ raised {said(error)}"
            refuse("TENSOR_NUMPY_DTYPE", found, error, fix)
        if not tensor.flags.writeable:
            refuse("TENSOR_NUMPY_READ_ONLY", found, error)
    refuse("TENSOR_EXPORT", found, error, fix_of(tensor))


# __cuda_array_interface__

#: NumPy's dtype.kind -> DLPack's type code.
CODES = {
    "i": DLDataTypeCode.kDLInt,
    "u": DLDataTypeCode.kDLUInt,
    "f": DLDataTypeCode.kDLFloat,
    "c": DLDataTypeCode.kDLComplex,
    "b": DLDataTypeCode.kDLBool,
}


def read_interface(tensor: Any) -> Export:
    """Read `__cuda_array_interface__`. It has no device, so device 0 is reported."""
    producer = name_of(type(tensor))
    try:
        interface = tensor.__cuda_array_interface__
        dtype = np.dtype(interface["typestr"])
        pointer, read_only = interface["data"]
        address = operator.index(pointer or 0)
        shape = tuple(map(operator.index, interface["shape"]))
        given = interface.get("strides")
        byte_strides = None if given is None else tuple(map(operator.index, given))
        is_masked = interface.get("mask") is not None
    except Exception as error:
        found = f"is a {producer} whose __cuda_array_interface__ failed with {said(error)}"
        refuse("TENSOR_INTERFACE", found, error)
    if is_masked:
        refuse("TENSOR_MASKED", f"is a {producer} with a mask")
    if any(abs(number) >> 63 for number in (*shape, *(byte_strides or ()))):
        refuse("TENSOR_INTERFACE", f"is a {producer} with an extent or stride of over 64 bits")
    if not dtype.isnative or dtype.kind not in CODES:
        refuse("TENSOR_INTERFACE_DTYPE", f"is a {producer} of typestr {dtype.str}")
    if address < 0 or address >> 64 or len(shape) > MAX_NDIM:
        refuse("TENSOR_INTERFACE", f"has address {address:#x} and {len(shape)} dimensions")
    if not address and 0 not in shape:
        refuse("TENSOR_NULL", f"has shape {shape} and a null address")
    if byte_strides is not None and len(byte_strides) != len(shape):
        refuse("TENSOR_INTERFACE", f"has shape {shape} and strides {byte_strides}")
    code, bits = CODES[dtype.kind].value, 8 * dtype.itemsize
    flags = READ_ONLY if read_only else 0
    cuda = DLDeviceType.kDLCUDA.value
    strides = _strides_in_elements(shape, byte_strides, dtype.itemsize)
    return Export(address, Layout(cuda, 0, code, bits, 1, flags, shape, strides))


def _strides_in_elements(
    shape: tuple[int, ...], byte_strides: tuple[int, ...] | None, itemsize: int
) -> tuple[int, ...] | None:
    if byte_strides is None:
        return None
    if any(n > 1 and stride % itemsize for n, stride in zip(shape, byte_strides, strict=True)):
        refuse("TENSOR_BYTE_STRIDES", f"has {itemsize}-byte elements {byte_strides} apart")
    return tuple(stride // itemsize for stride in byte_strides)


def refuse_masked(tensor: object) -> None:
    """Refuse NumPy's masked arrays, whose `__dlpack__` drops the mask."""
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if masked is not None and issubclass(type(tensor), masked):
        refuse("TENSOR_MASKED", "is a numpy.ma.MaskedArray")
