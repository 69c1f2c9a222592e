"""Read the DLTensor inside a DLPack capsule, without consuming the capsule.

Capsules of known producers are read directly. For any other, every pointer, including the name of
the capsule, is read through the kernel, so that a wrong pointer is an error and not a crash.

Offsets follow dlpack.h 1.3 on 64-bit machines. DLTensor, 48 bytes: data 0, device type 8,
device id 12, ndim 16, dtype code 20, bits 21, lanes 22, shape 24, strides 32, byte_offset 40.
DLManagedTensor begins with it. DLManagedTensorVersioned: version 0, manager_ctx 8, deleter 16,
flags 24, DLTensor 32.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from tma_dlpack.dlpack.layout import Layout, name_of
from tma_dlpack.dlpack.refusals import MAX_NDIM, error_text, refuse

MAJOR_VERSION = 1
FIRST_PAGE_BYTES = 4096  # the first page is never mapped; also the size of every page

_LEGACY_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_MANAGED = {
    _VERSIONED_NAME: struct.Struct("=II16xQQiiiBBHQQQ"),  # major, minor, flags, DLTensor
    _LEGACY_NAME: struct.Struct("=QiiiBBHQQQ"),
}
_NAME_BYTES = 32

# Own prototypes, because the attributes of ctypes.pythonapi are shared by the whole process.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Access:
    """How a capsule and the memory behind it are read."""

    open: Callable[[object], tuple[int, bytes]]  # capsule -> pointer, name
    read: Callable[[int, int], bytes]  # address, count


def parse_capsule(capsule: object, access: Access) -> tuple[int, Layout]:
    """Return the address and layout of the tensor in a capsule, or refuse it."""
    pointer, name = access.open(capsule)
    read = access.read
    managed = _MANAGED[name]
    fields = managed.unpack_from(read(pointer, managed.size))
    if name == _LEGACY_NAME:
        fields = (MAJOR_VERSION, 0, 0, *fields)
    major, minor, flags, data, device_type, device_id, ndim = fields[:7]
    code, bits, lanes, shape_at, strides_at, byte_offset = fields[7:]
    if major != MAJOR_VERSION:
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
    strides: tuple[int, ...] | None = None  # row-major; NumPy before 2.1.3 sends null
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
        except ValueError:  # another name, or not a capsule
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
    """Read a C string; read the next page only if the string does not end before it."""
    in_page = min(_NAME_BYTES, FIRST_PAGE_BYTES - address % FIRST_PAGE_BYTES)
    name = read_safely(address, in_page, align=1)
    if b"\0" not in name and in_page < _NAME_BYTES:
        name += read_safely(address + in_page, _NAME_BYTES - in_page, align=1)
    return name.partition(b"\0")[0]


#: All memory, from address 1 on (0 would be null); slicing it copies bytes. `from_address` would
#: raise an audit event at each read, which is slow if an audit hook is installed, as JAX does.
_memory = ctypes.cast(1, ctypes.POINTER(ctypes.c_char))


def _read_directly(address: int, count: int) -> bytes:
    return _memory[address - 1 : address - 1 + count]  # type: ignore[return-value]


_libc_write = None
if os.name == "posix":
    _libc_write = ctypes.CFUNCTYPE(
        ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    )(("write", ctypes.CDLL(None)))


def read_safely(address: int, count: int, align: int = 8) -> bytes:
    """Copy up to 4096 bytes from an address that may be invalid, or refuse it.

    The kernel reads the bytes: write(2) into a pipe returns EFAULT for an invalid address, where
    reading it ourselves would crash. Each call has its own pipe, so that threads and forks do not
    interfere. Without POSIX only null, misaligned and out-of-range addresses are refused.
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


#: For capsules of unknown and of known producers.
CAREFUL, DIRECT = Access(_open, read_safely), Access(_open_known, _read_directly)
