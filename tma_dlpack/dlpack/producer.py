"""`read` and `as_tensor_view`, which read a tensor of any producer.

If the row of a tensor's framework in `FRAMEWORKS` has a function `read`, this function reads the
tensor by its attributes. Other tensors are read through `__dlpack__`. Tensors without `__dlpack__`
are read through `__cuda_array_interface__`.

The DLTensor inside a capsule is read without consuming the capsule. Capsules of known producers are
read directly. A capsule of an unknown producer may contain a wrong pointer. Reading through a wrong
pointer would crash the process. The operating system therefore copies the bytes behind every
pointer of such a capsule, including the pointer to the capsule's name (see `read_safely`). If a
pointer is wrong, the copy fails, and an error is raised.

The byte offsets of the fields below are from dlpack.h 1.3, on 64-bit machines. A DLTensor has 48
bytes, with these offsets: data 0, device type 8, device id 12, ndim 16, dtype code 20, bits 21,
lanes 22, shape 24, strides 32, byte_offset 40. A DLManagedTensor begins with the DLTensor. A
DLManagedTensorVersioned has these offsets: version 0, manager_ctx 8, deleter 16, flags 24, DLTensor
32.
"""

from __future__ import annotations

import ctypes
import operator
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tma_dlpack.dlpack.frameworks import CODES, framework_of, is_trusted, native_of, numpy_fix
from tma_dlpack.dlpack.layout import (
    HOST,
    MAX_NDIM,
    READ_ONLY,
    Device,
    Export,
    Layout,
    Storage,
    TensorView,
    check_layout,
    error_text,
    is_a,
    name_of,
    refuse,
)
from tma_dlpack.tables.enums import DLDeviceType
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError
from tma_dlpack.tables.targets import DLPACK_VERSION


def as_tensor_view(tensor: object) -> TensorView:
    """Return the view of a tensor of any framework, without copying or reading its data.

    torch tensors are read by their attributes. This also works for tensors that torch's
    `__dlpack__` may refuse: Parameters, tensors that require a gradient, and float8 tensors of old
    versions of torch. Tensors without `__dlpack__` are read through `__cuda_array_interface__`,
    which does not name the device. Such a view has device 0.

    Parameters
    ----------
    tensor : object
        A tensor of torch, NumPy, JAX, CuPy, tvm-ffi or any other producer, in CUDA, managed, pinned
        or host memory. A tensor without elements is accepted; its address may be 0.

    Returns
    -------
    TensorView
        The view. Shape and strides are row-major and in elements. The function does not check the
        rank, alignment and data type, because the rules of tensor maps check them later.

    Raises
    ------
    TmaPreconditionError
        If the tensor cannot be read. The error has one Violation, whose argument is ``"tensor"``
        and whose rule starts with ``TENSOR_``. If the producer raised an error, the producer's
        error is the `__cause__`.

    Examples
    --------
    >>> view = as_tensor_view(np.zeros((2, 1, 8), np.float32))
    >>> view.shape, view.strides, str(view.dtype), str(view.device)
    ((2, 1, 8), (8, 8, 1), 'float32', 'cpu:0')
    """
    address, layout, capsule = read(tensor)
    return TensorView(address, *check_layout(layout), name_of(type(tensor)), tensor, capsule)


def read(tensor: object) -> Export:
    """Return a tensor's address and layout without checking the layout."""
    key = threading.get_ident(), id(tensor)
    if key in _being_read:  # `__dlpack__` of the tensor called this function again
        found = f"is a {name_of(type(tensor))} whose __dlpack__ needs a tensor map of itself"
        refuse("TENSOR_EXPORT", found, fix="make its __dlpack__ return the capsule of its memory")
    _being_read.add(key)
    try:
        return _read(tensor)
    finally:
        _being_read.discard(key)


_being_read: set[tuple[int, int]] = set()  # (id of a thread, id of the tensor that it reads)


def _read(tensor: Any) -> Export:
    kind: Any = type(tensor)
    native = native_of(kind)
    export = None if native is None else native.read(tensor)
    if export is not None:
        return export
    if is_a(kind, "torch.fx.proxy.Proxy"):
        refuse("TENSOR_FAKE", "is a torch.fx.Proxy, which stands for a tensor in a graph")
    if is_a(kind, "numpy.ma.MaskedArray"):  # `__dlpack__` of a masked array drops the mask
        refuse("TENSOR_MASKED", "is a numpy.ma.MaskedArray")
    if name_of(kind) == "PyCapsule":
        refuse("TENSOR_RAW_CAPSULE", "is a capsule")
    if issubclass(kind, type):
        refuse("TENSOR_TYPE", f"is the class {name_of(tensor)}")
    if _has(tensor, "__dlpack__"):
        return _read_dlpack(tensor)
    if _has(tensor, "__cuda_array_interface__"):
        return _read_interface(tensor)
    if issubclass(kind, list | tuple) and any(_has(one, "__dlpack__") for one in tensor):
        fix = "call make_tma_descriptors(tensors, box_sizes), or pass one of the tensors"
        refuse("TENSOR_TYPE", f"is a {name_of(kind)} of tensors", fix=fix)
    refuse("TENSOR_TYPE", f"is of type {name_of(kind)}", fix=framework_of(kind).fix(tensor))


def _has(tensor: object, attribute: str) -> bool:
    try:
        # The attribute may be a property, which can raise any exception.
        return getattr(tensor, attribute, None) is not None
    except Exception as error:
        found = f"is a {name_of(type(tensor))} whose {attribute} raised {error_text(error)}"
        refuse("TENSOR_EXPORT", found, error)


# --- __dlpack__ ---------------------------------------------------------------------------------


def _read_dlpack(tensor: Any) -> Export:
    """Read a tensor through `__dlpack__`. Pass `max_version` if the producer has this parameter."""
    kind: Any = type(tensor)
    framework = framework_of(kind)
    dtype = getattr(getattr(tensor, "dtype", None), "name", None) if framework.no_numbers else None
    if dtype in framework.no_numbers:
        found = f"is a {framework.name} tensor of dtype {dtype}"
        refuse("TENSOR_EXPORT", found, fix="pass a tensor of numbers")
    arguments = {"stream": framework.stream} if _takes_stream(tensor) else {}
    try:
        capsule = _export(tensor, {"max_version": DLPACK_VERSION, **arguments})
    except TmaPreconditionError as error:
        # A producer of DLPack before 1.0 raises TypeError, because its __dlpack__ has no parameter
        # max_version.
        if not isinstance(error.__cause__, TypeError):
            raise
        capsule = _export(tensor, arguments)
    trusted = is_trusted(kind)
    address, layout = parse_capsule(capsule, DIRECT if trusted else CAREFUL)
    # Mark a tensor of an immutable type as read-only, because the framework promises that the
    # tensor's values never change.
    if framework.immutable and kind.__name__ not in framework.variables:
        layout = layout._replace(flags=layout.flags | READ_ONLY)
    return Export(address, layout, None if trusted else capsule)


def _export(tensor: Any, arguments: dict[str, Any]) -> object:
    try:
        return tensor.__dlpack__(**arguments)
    except Exception as error:
        kind, why = type(tensor), f"__dlpack__ raised {error_text(error)}"
        if issubclass(kind, np.ndarray) and not isinstance(error, TypeError):
            if fix := numpy_fix(tensor.dtype):
                found = f"is a NumPy array of dtype {tensor.dtype}: {why}"
                refuse("TENSOR_NUMPY_DTYPE", found, error, fix)
            if not tensor.flags.writeable:
                refuse("TENSOR_NUMPY_READ_ONLY", f"is a {name_of(kind)} whose {why}", error)
        found, fix = f"is a {name_of(kind)} whose {why}", framework_of(kind).fix(tensor)
        refuse("TENSOR_EXPORT", found, error, fix)


def _takes_stream(tensor: Any) -> bool:
    """Return whether the tensor is on a CUDA device, so that `__dlpack__` needs a stream."""
    try:
        device_type, device_id = tensor.__dlpack_device__()
        if device_type in HOST:
            return False
        device = Device(operator.index(device_type), operator.index(device_id))
    except Exception:  # the producer lacks the method, or the tensor cannot be exported
        return False
    if not device.is_cuda:
        refuse("TENSOR_DEVICE", f"lies on {device}")
    return True


# --- __cuda_array_interface__ -------------------------------------------------------------------


def _read_interface(tensor: Any) -> Export:
    """Read `__cuda_array_interface__`. It does not name the device, so the result has device 0."""
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
        found = f"is a {producer} whose __cuda_array_interface__ failed with {error_text(error)}"
        refuse("TENSOR_INTERFACE", found, error)
    if is_masked:
        refuse("TENSOR_MASKED", f"is a {producer} with a mask")
    # The integers of a DLTensor are int64.
    if any(abs(number) >> 63 for number in (*shape, *(byte_strides or ()))):
        refuse("TENSOR_INTERFACE", f"is a {producer} with an extent or stride of over 64 bits")
    # A DLDataType has no byte order, so the values must have the byte order of the machine.
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
    strides = None
    if byte_strides is not None:
        step = dtype.itemsize
        if any(n > 1 and stride % step for n, stride in zip(shape, byte_strides, strict=True)):
            refuse("TENSOR_BYTE_STRIDES", f"has {step}-byte elements {byte_strides} apart")
        strides = tuple(stride // step for stride in byte_strides)
    return Export(address, Layout(cuda, 0, code, bits, 1, flags, shape, strides))


# --- Memory -------------------------------------------------------------------------------------


class _Memory:
    """An object that NumPy can view as an array of bytes; the object keeps `owner` alive."""

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
    """Return memory of this process as a uint8 array that keeps `owner` alive, without a copy."""
    return np.asarray(_Memory(address, size_bytes, owner, read_only))


def host_bytes(
    view: TensorView, storage: Storage | None = None
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes that a host tensor spans in memory, including the gaps between rows.

    Parameters
    ----------
    view : TensorView
        A view of a tensor in host or pinned memory.
    storage : Storage, optional
        If passed, return the bytes of this whole storage instead of the tensor's bytes.

    Returns
    -------
    numpy.ndarray
        A 1-D array of uint8, from the first byte of element (0, ..., 0) to the last byte of the
        last element. The array shares the tensor's memory and keeps the tensor alive. The array is
        not writeable if the view is read-only. The array is empty if the tensor has no elements.

    Raises
    ------
    TmaUnsupportedError
        If the memory is GPU memory.
    TmaPreconditionError
        If the memory cannot be read. Only the memory of unknown producers is checked.

    Examples
    --------
    >>> x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    >>> host_bytes(as_tensor_view(x[:2, :3]))
    array([0, 1, 2, 3, 4, 5, 6], dtype=uint8)
    """
    if not view.device.is_host:
        raise TmaUnsupportedError(
            f"the tensor is on {view.device}; only host memory can be read here: copy it to the "
            'host, x.cpu(), or use backend="cuda"'
        )
    address, size_bytes = storage[:2] if storage else (view.address, view.extent_bytes)
    if not size_bytes:
        return np.empty(0, np.uint8)
    kind: Any = type(view.owner)
    if not is_trusted(kind):
        read_safely(address, 1, align=1)
        read_safely(address + size_bytes - 1, 1, align=1)
    return array_at(address, size_bytes, view, read_only=view.read_only)


# --- The capsule --------------------------------------------------------------------------------

FIRST_PAGE_BYTES = 4096  # bytes of a page of memory; the page at address 0 is never mapped

_LEGACY_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_MANAGED = {
    _VERSIONED_NAME: struct.Struct("=II16xQQiiiBBHQQQ"),  # major, minor, flags, DLTensor
    _LEGACY_NAME: struct.Struct("=QiiiBBHQQQ"),
}
_NAME_BYTES = 32

# All modules of a process share the functions of ctypes.pythonapi, so this module must not set
# their `argtypes`. It makes function objects of its own instead.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Access:
    """The two functions that read a capsule and the memory behind its pointers."""

    open: Callable[[object], tuple[int, bytes]]  # capsule -> pointer, name
    read: Callable[[int, int], bytes]  # address, count


def parse_capsule(capsule: object, access: Access) -> tuple[int, Layout]:
    """Return the address and layout of the tensor in a capsule; raise if a field is invalid."""
    pointer, name = access.open(capsule)
    read = access.read
    managed = _MANAGED[name]
    fields = managed.unpack_from(read(pointer, managed.size))
    if name == _LEGACY_NAME:
        # A capsule named "dltensor" has neither a version nor flags.
        fields = (*DLPACK_VERSION, 0, *fields)
    major, minor, flags, data, device_type, device_id, ndim = fields[:7]
    code, bits, lanes, shape_at, strides_at, byte_offset = fields[7:]
    if major != DLPACK_VERSION[0]:
        refuse("TENSOR_DLPACK_VERSION", f"is exported as DLPack {major}.{minor}")
    if not 0 <= ndim <= MAX_NDIM:
        refuse("TENSOR_NDIM", f"has ndim {ndim}")
    if ndim and not shape_at:
        refuse("TENSOR_SHAPE_NULL", f"has ndim {ndim} and a null shape")
    address = data + byte_offset
    if address >> 64:
        refuse("TENSOR_ADDRESS_WRAPS", f"has data {data:#x} and byte_offset {byte_offset:#x}")
    int64s = struct.Struct(f"={ndim}q")
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None  # row-major; NumPy before 2.1.3 exports a null pointer
    if ndim:
        shape = int64s.unpack_from(read(shape_at, int64s.size))
        if strides_at:
            strides = int64s.unpack_from(read(strides_at, int64s.size))
    if not address and 0 not in shape:
        refuse("TENSOR_NULL", f"has shape {shape} and a null address")
    return address, Layout(device_type, device_id, code, bits, lanes, flags, shape, strides)


def _open_known(capsule: object) -> tuple[int, bytes]:
    for name in _MANAGED:
        try:
            return _get_pointer(capsule, name), name
        except ValueError:  # the capsule has another name, or the object is no capsule
            pass
    return _open(capsule)


def _open(capsule: object) -> tuple[int, bytes]:
    try:
        name_at = _get_name(capsule)
    except ValueError:
        refuse("TENSOR_CAPSULE", f"returned a {name_of(type(capsule))} from __dlpack__")
    name = _read_name(name_at) if name_at else b""
    if name.startswith(b"used_"):
        refuse("TENSOR_CAPSULE_USED", f"returned a capsule named {name!r} from __dlpack__")
    if name not in _MANAGED:
        refuse("TENSOR_CAPSULE", f"returned a capsule named {name!r} from __dlpack__")
    return _get_pointer(capsule, name), name


def _read_name(address: int) -> bytes:
    """Read a C string of up to 32 bytes.

    The next page of memory is read only if the string does not end in the first page.
    """
    in_page = min(_NAME_BYTES, FIRST_PAGE_BYTES - address % FIRST_PAGE_BYTES)
    name = read_safely(address, in_page, align=1)
    if b"\0" not in name and in_page < _NAME_BYTES:
        name += read_safely(address + in_page, _NAME_BYTES - in_page, align=1)
    return name.partition(b"\0")[0]


#: The process's memory as one array. The array starts at address 1, because a pointer to address 0
#: would be a null pointer. Slicing the array copies bytes. `from_address` is slower, because each
#: call raises an audit event. The event calls the installed audit hooks, and JAX installs a hook.
_memory = ctypes.cast(1, ctypes.POINTER(ctypes.c_char))


def _read_directly(address: int, count: int) -> bytes:
    return _memory[address - 1 : address - 1 + count]  # type: ignore[return-value]


_libc_write = None
if os.name == "posix":
    _libc_write = ctypes.CFUNCTYPE(
        ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    )(("write", ctypes.CDLL(None)))


def read_safely(address: int, count: int, align: int = 8) -> bytes:
    """Return up to 4096 bytes from an address; raise a refusal if the address is invalid.

    The operating system's kernel reads the bytes: write(2) copies them into a pipe. For an invalid
    address, write(2) returns EFAULT, while a direct read would crash the process. Each call has its
    own pipe, so that threads and forks do not interfere. Without POSIX, only null, misaligned and
    out-of-range addresses are refused.
    """
    found = f"has a pointer {address:#x} in its capsule"
    if address < FIRST_PAGE_BYTES or address % align or (address + count) >> 63:
        refuse("TENSOR_POINTER", found)
    if _libc_write is None:
        return ctypes.string_at(address, count)
    try:
        reading_end, writing_end = os.pipe()
    except OSError as error:
        refuse("TENSOR_FILES", f"cannot be checked: os.pipe() raised {error_text(error)}", error)
    try:
        if _libc_write(writing_end, address, count) != count:
            refuse("TENSOR_POINTER", found)
        return os.read(reading_end, count)
    finally:
        os.close(reading_end)
        os.close(writing_end)


#: `CAREFUL` reads capsules of unknown producers, and `DIRECT` reads capsules of known producers.
CAREFUL, DIRECT = Access(_open, read_safely), Access(_open_known, _read_directly)
