"""Any tensor becomes a `TensorView`: where its memory lies and how it is laid out.

Three steps. A *reader*, chosen once per Python type, asks the producer and gives an address and a
`Layout` (plain integers). `judge` turns a layout into checked values, or refuses it; that depends
on nothing but the layout, so that it is remembered. `as_tensor_view` puts both together.

No data is read or copied, no framework is imported, nothing is synchronised, and the producer's
capsule is only looked at: its own destructor runs its deleter.

Source: dlpack.h 1.3 (offsets checked against a C compiler), the array API standard for `__dlpack__`
and its streams, the CUDA Array Interface, version 3. What each producer really exports is measured:
torch 2.4 to 2.13, NumPy 1.26 to 2.4, JAX 0.10, tvm-ffi 0.1; CuPy from its source.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tma_dlpack.dtypes import DLDataType
from tma_dlpack.enums import DLDataTypeCode, DLDeviceType
from tma_dlpack.errors import TmaPreconditionError, TmaUnsupportedError, Violation

__all__ = [
    "Device",
    "Layout",
    "TensorView",
    "as_tensor_view",
    "canonical_strides",
    "host_bytes",
    "judge",
    "read_layout",
    "torch_dtype_table",
]

DLPACK_VERSION = (1, 3)
READ_ONLY, SUBBYTE_PADDED = 1, 4  # DLPACK_FLAG_BITMASK_READ_ONLY, ..._IS_SUBBYTE_TYPE_PADDED
MAX_NDIM = 64  # NumPy's and torch's; a rank over 5 is refused by the rules, not here
FIRST_PAGE_BYTES = 4096  # never mapped

_CUDA = (DLDeviceType.kDLCUDA, DLDeviceType.kDLCUDAManaged)
_HOST = (DLDeviceType.kDLCPU, DLDeviceType.kDLCUDAHost)
_DEVICE_NAMES = {
    DLDeviceType.kDLCPU: "cpu",
    DLDeviceType.kDLCUDA: "cuda",
    DLDeviceType.kDLCUDAHost: "cuda_host",
    DLDeviceType.kDLCUDAManaged: "cuda_managed",
}


class Device(NamedTuple):
    """DLPack's DLDevice: which memory a tensor lies in.

    >>> str(Device(DLDeviceType.kDLCUDA, 1)), Device(1, 0).is_host
    ('cuda:1', True)
    """

    device_type: int
    device_id: int

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU's memory, managed memory included: what a kernel may be given."""
        return self.device_type in _CUDA

    @property
    def is_host(self) -> bool:
        """Whether it is the CPU's memory, pinned memory included."""
        return self.device_type in _HOST

    def __str__(self) -> str:
        """Give ``cuda:0``, ``cpu:0`` and the like; DLPack's own name for a device without one."""
        name = _DEVICE_NAMES.get(self.device_type)  # type: ignore[call-overload]
        if name is None:
            known = self.device_type in DLDeviceType._value2member_map_
            name = DLDeviceType(self.device_type).name if known else f"type {self.device_type}"
        return f"{name}:{self.device_id}"


#: Everything about a tensor but its address, as a producer tells it; hashable, so a cache may use
#: it as a key: device type and id, dtype code, bits and lanes, flags, shape, strides (or None).
Layout = tuple[int, int, int, int, int, int, tuple[int, ...], "tuple[int, ...] | None"]

#: What a reader gives: address, layout, and the capsule where it must stay alive (else None).
Reading = tuple[int, Layout, object]


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
    owner: object = field(repr=False, compare=False)
    capsule: object = field(default=None, repr=False, compare=False)


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
    address, layout, capsule = read_layout(tensor)
    device, dtype, shape, strides, read_only = judge(layout)
    if not address and 0 not in shape:
        _refuse("TENSOR_NULL", f"{_name(tensor)} has shape {shape} and a null address")
    producer = _name(tensor)
    return TensorView(address, device, dtype, shape, strides, read_only, producer, tensor, capsule)


def read_layout(tensor: object) -> Reading:
    """Ask a tensor for its address and layout, unjudged: the fast half of `as_tensor_view`.

    Returns the address, a hashable `Layout`, and the capsule if it must be kept alive. Equal
    layouts are judged equally. Raises as `as_tensor_view`; still to be refused are null addresses
    and whatever `judge` refuses.
    """
    reader = _readers.get(type(tensor))
    return reader(tensor) if reader else _read_first_of_type(tensor)


# --- Refusals: one row each

_DLPACK_H = "dlpack.h 1.3"
_ARRAY_API = "array API standard, __dlpack__"
_INTERFACE = "CUDA Array Interface, version 3"
_LIBCUXX = "make_tma_descriptor: it describes memory, which must hold the values themselves"
_REPORT = "this is an error in the producer: export through another framework, and report it there"

#: rule -> what is asked, the fix, the source.
_REFUSALS: dict[str, tuple[str, str, str]] = {
    "TENSOR_TYPE": (
        "it must be a tensor: an object with __dlpack__ (torch, NumPy, JAX, CuPy, tvm-ffi, ...) or "
        "__cuda_array_interface__",
        "pass the tensor itself; turn lists and numbers into one, numpy.asarray(x)",
        _ARRAY_API,
    ),
    "TENSOR_RAW_CAPSULE": (
        "it must be the tensor that makes capsules, because a capsule can be consumed only once",
        "pass x instead of x.__dlpack__()",
        _ARRAY_API,
    ),
    "TENSOR_EXPORT": (
        "the producer must be able to export it",
        "do what the producer's message asks, or pass another tensor over the same memory",
        _ARRAY_API,
    ),
    "TENSOR_CAPSULE": (
        '__dlpack__ must return a capsule named "dltensor" or "dltensor_versioned"',
        _REPORT,
        _DLPACK_H,
    ),
    "TENSOR_CAPSULE_USED": (
        "a capsule must not have been consumed before",
        "let __dlpack__ make a new capsule at each call",
        _DLPACK_H,
    ),
    "TENSOR_DLPACK_VERSION": (
        "the major version must be 1",
        "update tma_dlpack, or ask the producer for version 1",
        _DLPACK_H,
    ),
    "TENSOR_POINTER": ("it must point to readable, aligned memory", _REPORT, _DLPACK_H),
    "TENSOR_NDIM": (f"ndim must be 0 to {MAX_NDIM}", _REPORT, _DLPACK_H),
    "TENSOR_SHAPE_NULL": ("shape must not be null when ndim is not 0", _REPORT, _DLPACK_H),
    "TENSOR_EXTENT": ("extents must not be negative", _REPORT, _DLPACK_H),
    "TENSOR_STRIDE_NEGATIVE": (
        "strides must not be negative: a tensor map has no sign for them",
        "copy it: x.copy() or numpy.ascontiguousarray(x)",
        "CUDA driver API, cuTensorMapEncodeTiled, globalStrides",
    ),
    "TENSOR_ADDRESS_WRAPS": ("data + byte_offset must fit in 64 bits", _REPORT, _DLPACK_H),
    "TENSOR_NULL": (
        "a tensor with elements must have an address",
        "pass a tensor that has memory",
        "make_tma_descriptor.h",
    ),
    "TENSOR_DTYPE": ("bits and lanes must not be 0", _REPORT, _DLPACK_H),
    "TENSOR_OPAQUE": (
        "elements must be numbers",
        "pass a view of the same bytes as unsigned integers",
        "make_tma_descriptor.h",
    ),
    "TENSOR_PADDED": (
        "values smaller than a byte must be packed",
        "pack them, two 4-bit values in a byte, and pass the bytes",
        "dlpack.h 1.3, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED",
    ),
    "TENSOR_DEVICE": (
        "it must lie in CUDA memory (2), managed memory (13), host memory (1) or pinned host "
        "memory (3)",
        "copy it to a CUDA device",
        "make_tma_descriptor.h; dlpack.h 1.3, DLDeviceType",
    ),
    "TENSOR_NUMPY_DTYPE": (
        "NumPy must be able to export its type",
        "{fix}",
        "NumPy, ndarray.__dlpack__",
    ),
    "TENSOR_NUMPY_READ_ONLY": (
        "NumPy before 2.1 exports writeable arrays only",
        "update NumPy, or pass x.copy()",
        "NumPy, ndarray.__dlpack__",
    ),
    "TENSOR_FAKE": (
        "it must be a real tensor: a fake one has no memory",
        "call this outside of the traced function: behind torch.compiler.disable, or inside of a "
        "torch.library.custom_op",
        _LIBCUXX,
    ),
    "TENSOR_NESTED": (
        "it must be one dense tensor",
        "pass one of x.unbind(), the x.values() of a jagged one, or x.to_padded_tensor(0)",
        _LIBCUXX,
    ),
    "TENSOR_SPARSE": ("its layout must be torch.strided", "x.to_dense()", _LIBCUXX),
    "TENSOR_META": (
        "it must have memory; the meta device has none",
        'make it on a real device: torch.empty_like(x, device="cuda")',
        _LIBCUXX,
    ),
    "TENSOR_QUANTIZED": (
        "its elements must be plain numbers",
        "x.int_repr(), or x.dequantize()",
        _LIBCUXX,
    ),
    "TENSOR_TORCH_DTYPE": (
        "its dtype must be one that DLPack knows, see torch_dtype_table()",
        "x.view(torch.uint8), or an unsigned type of the same size",
        _DLPACK_H,
    ),
    "TENSOR_NEG": (
        "its memory must hold its values; those of this one are negated when read",
        "x.resolve_neg()",
        _LIBCUXX,
    ),
    "TENSOR_CONJ": (
        "its memory must hold its values; those of this one are conjugated when read",
        "x.resolve_conj()",
        _LIBCUXX,
    ),
    "TENSOR_WRAPPER": (
        "it must have memory of its own",
        "pass the tensor inside of the wrapper, such as x.to_local() of a DTensor; inside of a "
        "compiled function use torch.compiler.disable or torch.library.custom_op",
        _LIBCUXX,
    ),
    "TENSOR_MASKED": ("it must have no mask", "pass the data and the mask apart", _INTERFACE),
    "TENSOR_INTERFACE": ("__cuda_array_interface__ must be well-formed", _REPORT, _INTERFACE),
    "TENSOR_BYTE_STRIDES": (
        "strides must be multiples of the element size",
        "copy it: x.copy()",
        _DLPACK_H,
    ),
}


def _refuse(
    rule: str, found: str, cause: BaseException | None = None, fix: str | None = None
) -> NoReturn:
    limit, usual_fix, source = _REFUSALS[rule]
    violation = Violation(rule, "tensor", found, limit, fix or usual_fix, source)
    raise TmaPreconditionError(violation) from cause


def _said(error: BaseException) -> str:
    """Repeat the first line of what a producer said; the `__cause__` has the whole."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _name(tensor: object) -> str:
    kind = type(tensor)
    return kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# --- Judging a layout


@lru_cache(maxsize=1024)
def judge(layout: Layout) -> tuple[Device, DLDataType, tuple[int, ...], tuple[int, ...], bool]:
    """Turn a layout into device, dtype, shape, strides and read_only, or refuse it.

    Raises `TmaPreconditionError`. Remembered for the latest 1024 layouts, because the answer
    depends on these numbers alone.

    >>> judge((1, 0, 2, 32, 1, 0, (4, 8), None))[3]
    (8, 1)
    """
    device_type, device_id, code, bits, lanes, flags, shape, strides = layout
    if device_type not in (*_CUDA, *_HOST) or device_id < 0:
        _refuse("TENSOR_DEVICE", f"tensor lies on {Device(device_type, device_id)}")
    device = Device(DLDeviceType(device_type), device_id)
    dtype = DLDataType(code, bits, lanes)
    if not bits or not lanes:
        _refuse("TENSOR_DTYPE", f"tensor has elements of {bits} bits and {lanes} lanes")
    if code == DLDataTypeCode.kDLOpaqueHandle:
        _refuse("TENSOR_OPAQUE", f"tensor holds opaque handles of {bits} bits")
    if flags & SUBBYTE_PADDED and bits < 8:
        _refuse("TENSOR_PADDED", f"tensor has {bits}-bit values, each padded to a byte")
    shape = tuple(shape)
    if any(extent < 0 for extent in shape):
        _refuse("TENSOR_EXTENT", f"tensor has shape {shape}")
    if strides is None or 0 in shape:
        strides = _row_major(shape)
    if any(stride < 0 < extent - 1 for extent, stride in zip(shape, strides, strict=True)):
        _refuse("TENSOR_STRIDE_NEGATIVE", f"tensor has strides {tuple(strides)}, in elements")
    strides = canonical_strides(shape, strides, dtype.itemsize_bits)
    return device, dtype, shape, strides, bool(flags & READ_ONLY)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements; an extent of 0 counts as 1."""
    return tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))


def canonical_strides(
    shape: Sequence[int], strides: Sequence[int], itemsize_bits: int, align_bytes: int = 16
) -> tuple[int, ...]:
    """Replace the strides of extents 1, which no access uses, by ones that break no rule.

    Such a stride becomes what a row-major tensor would have there, the span of the next inner
    dimension (1 if innermost), rounded up to whole `align_bytes`, since a map asks that of its
    strides; but no further than the next outer stride that counts, so that nothing seems to
    overlap. Strides of other extents stay as they are. Calling it again, with the same or another
    alignment, starts anew from those.

    Parameters
    ----------
    shape, strides : sequence of int
        Row-major, strides in elements.
    itemsize_bits : int
        Bits of one element, `DLDataType.itemsize_bits`.
    align_bytes : int
        What strides must be a multiple of: 16, or 32 with INTERLEAVE_32B and for the packed types
        that ask it.

    Examples
    --------
    A row of 1733 float16 values, whatever its outer stride says:

    >>> canonical_strides((1, 1733), (99, 1), 16)
    (1736, 1)
    >>> canonical_strides((4, 1, 64, 1), (4096, 7, 64, 7), 16)
    (4096, 4096, 64, 1)
    """
    align_elems = align_bytes * 8 // math.gcd(align_bytes * 8, itemsize_bits)
    result = list(strides)
    span = 1
    for i in reversed(range(len(shape))):
        if shape[i] == 1:
            rounded = span if i == len(shape) - 1 else -(-span // align_elems) * align_elems
            outer = next((strides[j] for j in reversed(range(i)) if shape[j] != 1), 0)
            result[i] = min(rounded, max(span, outer)) if outer > 0 else rounded
        span = shape[i] * result[i]
    return tuple(result)


# --- Readers: one per Python type

_Reader = Callable[[Any], Reading]
_MAX_READERS = 256
_readers: dict[type, _Reader] = {}

#: Where exact types come from whose capsules are read without asking the kernel first.
_KNOWN_PRODUCERS = frozenset({"numpy", "jax", "jaxlib", "cupy", "torch", "tvm_ffi", "mlx"})


def _is_known(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] in _KNOWN_PRODUCERS


def _read_first_of_type(tensor: Any) -> Reading:
    """Read a tensor of a type not seen before, and remember how."""
    reader, reading = _first_reading(tensor)
    if len(_readers) >= _MAX_READERS:  # types made on the fly must not pile up
        _readers.clear()
    _readers[type(tensor)] = reader
    return reading


def _first_reading(tensor: Any) -> tuple[_Reader, Reading]:
    kind = type(tensor)
    if _is_torch(tensor):
        reader: _Reader = _refuse_torch if _is_fake(kind) else _read_torch
        return reader, reader(tensor)
    if kind.__name__ == "PyCapsule":
        _refuse("TENSOR_RAW_CAPSULE", "tensor is a capsule")
    if isinstance(tensor, type):
        _refuse("TENSOR_TYPE", f"tensor is the class {_full_name(tensor)}")
    if _has(tensor, "__dlpack__"):
        return _first_dlpack_reading(tensor)
    if _has(tensor, "__cuda_array_interface__"):
        return _read_interface, _read_interface(tensor)
    _refuse("TENSOR_TYPE", f"tensor is of type {_name(tensor)}")


def _has(tensor: object, attribute: str) -> bool:
    try:
        return getattr(tensor, attribute, None) is not None
    except Exception as error:
        _refuse("TENSOR_EXPORT", f"{_name(tensor)}.{attribute} raised {_said(error)}", error)


# --- torch, by its attributes

_TORCH_DTYPES = {
    "bool": DLDataType(DLDataTypeCode.kDLBool, 8),
    "bfloat16": DLDataType(DLDataTypeCode.kDLBfloat, 16),
    **{f"int{n}": DLDataType(DLDataTypeCode.kDLInt, n) for n in (8, 16, 32, 64)},
    **{f"uint{n}": DLDataType(DLDataTypeCode.kDLUInt, n) for n in (8, 16, 32, 64)},
    **{f"float{n}": DLDataType(DLDataTypeCode.kDLFloat, n) for n in (16, 32, 64)},
    **{f"complex{n}": DLDataType(DLDataTypeCode.kDLComplex, n) for n in (32, 64, 128)},
    "float8_e4m3fn": DLDataType(DLDataTypeCode.kDLFloat8_e4m3fn, 8),
    "float8_e4m3fnuz": DLDataType(DLDataTypeCode.kDLFloat8_e4m3fnuz, 8),
    "float8_e5m2": DLDataType(DLDataTypeCode.kDLFloat8_e5m2, 8),
    "float8_e5m2fnuz": DLDataType(DLDataTypeCode.kDLFloat8_e5m2fnuz, 8),
    "float8_e8m0fnu": DLDataType(DLDataTypeCode.kDLFloat8_e8m0fnu, 8),
    "float4_e2m1fn_x2": DLDataType(DLDataTypeCode.kDLFloat4_e2m1fn, 4, 2),
}


@lru_cache(maxsize=1)
def torch_dtype_table() -> dict[Any, DLDataType]:
    """Give torch's dtypes as DLPack's: those that this version of torch has, {torch.dtype: ...}.

    Raises `TmaUnsupportedError` if torch has not been imported.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        raise TmaUnsupportedError("torch is not imported; torch_dtype_table() needs: import torch")
    return {getattr(torch, n): t for n, t in _TORCH_DTYPES.items() if hasattr(torch, n)}


@lru_cache(maxsize=64)
def _torch_device(device: Any) -> tuple[int, int]:
    """DLPack's device of a torch.device, for the two kinds that can serve."""
    if device.type == "cpu":
        return DLDeviceType.kDLCPU, 0
    if device.type == "cuda" and sys.modules["torch"].version.hip is None:
        return DLDeviceType.kDLCUDA, device.index
    raise LookupError(device)


def _is_torch(tensor: object) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(kind, type) and isinstance(tensor, kind)


def _is_fake(kind: type) -> bool:
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
    return fake in kind.__mro__


def _read_torch(tensor: Any) -> Reading:
    try:
        address = tensor.data_ptr()
        code, bits, lanes = torch_dtype_table()[tensor.dtype]
        device_type, device_id = _torch_device(tensor.device)
        if device_type == DLDeviceType.kDLCPU and tensor.is_pinned():
            device_type = DLDeviceType.kDLCUDAHost
        shape = tensor.shape
        strides = tensor.stride()
        holds_its_values = not (tensor.is_neg() or tensor.is_conj())
    except Exception as error:
        _refuse_torch(tensor, error)
    if not holds_its_values or (not address and 0 not in shape):
        _refuse_torch(tensor)
    return address, (device_type, device_id, code, bits, lanes, 0, shape, strides), None


#: Why a torch tensor cannot serve, in the order of asking: rule, when, what was found.
_TORCH_FLAWS: tuple[tuple[str, Callable[[Any], bool], Callable[[Any], str]], ...] = (
    ("TENSOR_FAKE", lambda t: _is_fake(type(t)), lambda t: "a fake tensor of torch's tracing"),
    ("TENSOR_NESTED", lambda t: t.is_nested, lambda t: f"a nested tensor of layout {t.layout}"),
    (
        "TENSOR_SPARSE",
        lambda t: t.layout is not sys.modules["torch"].strided,
        lambda t: f"a torch tensor of layout {t.layout}",
    ),
    ("TENSOR_META", lambda t: t.device.type == "meta", lambda t: "a torch tensor on device meta"),
    ("TENSOR_QUANTIZED", lambda t: t.is_quantized, lambda t: f"a quantized tensor ({t.dtype})"),
    (
        "TENSOR_TORCH_DTYPE",
        lambda t: t.dtype not in torch_dtype_table(),
        lambda t: f"a torch tensor of dtype {t.dtype}",
    ),
    (
        "TENSOR_DEVICE",
        lambda t: t.device.type not in ("cpu", "cuda"),
        lambda t: f"a torch tensor on device {t.device}",
    ),
    (
        "TENSOR_DEVICE",
        lambda t: t.is_cuda and sys.modules["torch"].version.hip is not None,
        lambda t: "a torch tensor on a ROCm device (HIP build of torch)",
    ),
    ("TENSOR_NEG", lambda t: t.is_neg(), lambda t: "a torch tensor with its negative bit set"),
    ("TENSOR_CONJ", lambda t: t.is_conj(), lambda t: "a torch tensor with its conjugate bit set"),
    (
        "TENSOR_WRAPPER",
        lambda t: t.data_ptr() == 0,
        lambda t: f"{_name(t)} of shape {tuple(t.shape)} has a null data pointer",
    ),
)


def _refuse_torch(tensor: Any, cause: Exception | None = None) -> NoReturn:
    """Say which of torch's odd tensors this is."""
    try:
        flaws = ((rule, found(tensor)) for rule, holds, found in _TORCH_FLAWS if holds(tensor))
        rule, found = next(flaws, ("TENSOR_EXPORT", f"{_name(tensor)} cannot tell its layout"))
    except Exception as error:  # a subclass may refuse any question
        cause = cause or error
        rule, found = "TENSOR_EXPORT", f"{_name(tensor)} cannot tell its layout"
    said = f", torch raised {_said(cause)}" if cause and rule == "TENSOR_EXPORT" else ""
    _refuse(rule, f"tensor is {found}{said}" if found.startswith("a ") else found + said, cause)


# --- __dlpack__

_DLTENSOR = struct.Struct("=QiiiBBHQQQ")
_VERSIONED = struct.Struct("=IIQQQQiiiBBHQQQ")  # version, manager_ctx, deleter, flags, DLTensor
_LEGACY_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_LONGEST_NAME = 32

# Prototypes of our own: those of ctypes.pythonapi's attributes are shared by the whole process.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)

_Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class _Route:
    """How tensors of one type are asked: learned from the first."""

    host_arguments: dict[str, Any]
    cuda_arguments: dict[str, Any]
    read: _Read
    keeps_capsule: bool


def _first_dlpack_reading(tensor: Any) -> tuple[_Reader, Reading]:
    """Learn whether the type's `__dlpack__` takes max_version: not before DLPack 1.0."""
    kind = type(tensor)
    from_jax = str(kind.__module__).partition(".")[0] in ("jax", "jaxlib")
    # No data is read, so nothing is to be waited for: -1. JAX takes that for a stream's handle; its
    # device-side wait on the legacy stream, 1, is the least that it offers.
    stream = {"stream": 1 if from_jax else -1}
    known = _is_known(kind)
    read: _Read = ctypes.string_at if known else _read_safely
    newest = {"max_version": DLPACK_VERSION}
    try:
        reader = partial(_read_dlpack, _Route(newest, {**newest, **stream}, read, not known))
        return reader, reader(tensor)
    except TmaPreconditionError as error:
        if not isinstance(error.__cause__, TypeError):
            raise
    reader = partial(_read_dlpack, _Route({}, stream, read, not known))
    return reader, reader(tensor)


def _read_dlpack(route: _Route, tensor: Any) -> Reading:
    on_cuda = _asks_for_stream(tensor)
    try:
        capsule = tensor.__dlpack__(**(route.cuda_arguments if on_cuda else route.host_arguments))
    except Exception as error:
        _refuse_export(tensor, error)
    address, layout = _parse(capsule, route.read)
    return address, layout, capsule if route.keeps_capsule else None


def _asks_for_stream(tensor: Any) -> bool:
    """Whether the tensor says that it lies on a CUDA device; other devices are refused here."""
    try:
        device_type, device_id = map(operator.index, tensor.__dlpack_device__())
    except Exception:
        return False  # the capsule tells the device anyway
    if device_type not in (*_CUDA, *_HOST):
        _refuse("TENSOR_DEVICE", f"{_name(tensor)} lies on {Device(device_type, device_id)}")
    return device_type in _CUDA


def _refuse_export(tensor: Any, error: Exception) -> NoReturn:
    found = f"{_name(tensor)}.__dlpack__ raised {_said(error)}"
    if not isinstance(tensor, np.ndarray) or isinstance(error, TypeError):
        _refuse("TENSOR_EXPORT", found, error)
    if _numpy_fix(tensor.dtype):
        found = f"a NumPy array of dtype {tensor.dtype}; NumPy said: {_said(error)}"
        _refuse("TENSOR_NUMPY_DTYPE", found, error, _numpy_fix(tensor.dtype))
    if not tensor.flags.writeable:
        _refuse("TENSOR_NUMPY_READ_ONLY", f"a read-only NumPy array; {found}", error)
    _refuse("TENSOR_EXPORT", found, error)


def _numpy_fix(dtype: np.dtype[Any]) -> str:
    """Name the way out for a NumPy type that NumPy does not export; empty where it does."""
    if dtype.type.__module__ == "ml_dtypes":
        if dtype.name == "bfloat16":
            return 'pass x.view(numpy.uint16) and data_type="BFLOAT16"'
        if dtype.name.startswith("float8"):
            return "pass x.view(numpy.uint8): a map holds float8 values as bytes"
        return (
            "pack two values in a byte as numpy.uint8 (ml_dtypes keeps one in each) and pass "
            'data_type="16U4_ALIGN8B" on sm_100 or later'
        )
    if not dtype.isnative:
        return "convert it: x.astype(x.dtype.newbyteorder('='))"
    if dtype.names is not None:
        return "pass one field, x['name'], or a view of the whole as bytes"
    if dtype.kind not in "biufc" or dtype.itemsize > 16 or dtype == np.longdouble:
        return "convert it to a number type of 8 to 64 bits, or pass a view of its bytes"
    return ""


def _parse(capsule: object, read: _Read) -> tuple[int, Layout]:
    """Read the DLTensor in a capsule, which stays unconsumed."""
    name = _capsule_name(capsule, read)
    if name == _VERSIONED_NAME:
        fields = _VERSIONED.unpack(read(_get_pointer(capsule, _VERSIONED_NAME), _VERSIONED.size))
        major, minor, _, _, flags = fields[:5]
        tensor = fields[5:]
        if major != DLPACK_VERSION[0]:
            _refuse("TENSOR_DLPACK_VERSION", f"tensor is exported as DLPack {major}.{minor}")
    elif name == _LEGACY_NAME:
        flags = 0
        tensor = _DLTENSOR.unpack(read(_get_pointer(capsule, _LEGACY_NAME), _DLTENSOR.size))
    elif name.startswith(b"used_"):
        _refuse("TENSOR_CAPSULE_USED", f"__dlpack__ returned a capsule named {name.decode()!r}")
    else:
        _refuse("TENSOR_CAPSULE", f"__dlpack__ returned a capsule named {name!r}")
    data, device_type, device_id, ndim, code, bits, lanes, shape_at, strides_at, offset = tensor
    if not 0 <= ndim <= MAX_NDIM:
        _refuse("TENSOR_NDIM", f"tensor has ndim {ndim}")
    if ndim and not shape_at:
        _refuse("TENSOR_SHAPE_NULL", f"tensor has ndim {ndim} and a null shape")
    if data + offset >> 64:
        _refuse("TENSOR_ADDRESS_WRAPS", f"tensor has data {data:#x} and byte_offset {offset:#x}")
    shape = struct.unpack(f"={ndim}q", read(shape_at, 8 * ndim)) if ndim else ()
    strides = (
        struct.unpack(f"={ndim}q", read(strides_at, 8 * ndim)) if ndim and strides_at else None
    )
    return data + offset, (device_type, device_id, code, bits, lanes, flags, shape, strides)


def _capsule_name(capsule: object, read: _Read) -> bytes:
    try:
        at = _get_name(capsule)
    except ValueError:
        _refuse("TENSOR_CAPSULE", f"__dlpack__ returned an object of type {_name(capsule)}")
    if not at:
        return b""
    if read is ctypes.string_at:
        return ctypes.string_at(at)
    in_page = min(_LONGEST_NAME, FIRST_PAGE_BYTES - at % FIRST_PAGE_BYTES)
    text = _read_safely(at, in_page, align=1)
    if b"\0" not in text:
        text += _read_safely(at + in_page, _LONGEST_NAME - in_page, align=1)
    return text.partition(b"\0")[0]


_libc_write = None
if os.name == "posix":
    _libc_write = ctypes.CFUNCTYPE(
        ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, use_errno=True
    )(("write", ctypes.CDLL(None)))


def _read_safely(address: int, count: int, align: int = 8) -> bytes:
    """Copy bytes from an address that may be anything, or refuse it.

    The kernel does the reading: write(2) into a pipe answers EFAULT where we would crash. It needs
    no privilege, and each call has a pipe of its own, so threads and forks do not meet. Where there
    is no POSIX, only null and misaligned addresses are refused.
    """
    if address < FIRST_PAGE_BYTES or address % align or (address + count) >> 63:
        _refuse("TENSOR_POINTER", f"a pointer in the tensor's capsule is {address:#x}")
    if _libc_write is None:
        return ctypes.string_at(address, count)
    reading_end, writing_end = os.pipe()
    try:
        if _libc_write(writing_end, address, count) != count:
            _refuse("TENSOR_POINTER", f"a pointer in the tensor's capsule is {address:#x}")
        return os.read(reading_end, count)
    finally:
        os.close(reading_end)
        os.close(writing_end)


# --- __cuda_array_interface__

_KINDS = {
    "i": DLDataTypeCode.kDLInt,
    "u": DLDataTypeCode.kDLUInt,
    "f": DLDataTypeCode.kDLFloat,
    "c": DLDataTypeCode.kDLComplex,
    "b": DLDataTypeCode.kDLBool,
}


def _read_interface(tensor: Any) -> Reading:
    try:
        interface = tensor.__cuda_array_interface__
        dtype = np.dtype(interface["typestr"])
        address, read_only = interface["data"]
        address = operator.index(address or 0)
        shape = tuple(map(operator.index, interface["shape"]))
        byte_strides = interface.get("strides")
        if byte_strides is not None:
            byte_strides = tuple(map(operator.index, byte_strides))
        mask = interface.get("mask")
    except Exception as error:
        found = f"{_name(tensor)}.__cuda_array_interface__ failed with {_said(error)}"
        _refuse("TENSOR_INTERFACE", found, error)
    if mask is not None:
        _refuse("TENSOR_MASKED", f"{_name(tensor)} has a mask")
    if not dtype.isnative or dtype.kind not in _KINDS:
        fix = _numpy_fix(dtype)
        _refuse("TENSOR_INTERFACE", f"{_name(tensor)} has elements of type {dtype.str}", None, fix)
    if address >> 64 or len(shape) > MAX_NDIM:
        found = f"{_name(tensor)} has address {address:#x} and {len(shape)} dimensions"
        _refuse("TENSOR_INTERFACE", found)
    if byte_strides is not None and len(byte_strides) != len(shape):
        _refuse("TENSOR_INTERFACE", f"{_name(tensor)} has shape {shape}, strides {byte_strides}")
    if byte_strides is not None and any(stride % dtype.itemsize for stride in byte_strides):
        found = f"{_name(tensor)} has strides {byte_strides} in bytes, elements of {dtype.itemsize}"
        _refuse("TENSOR_BYTE_STRIDES", found)
    strides = byte_strides and tuple(stride // dtype.itemsize for stride in byte_strides)
    code, bits, flags = _KINDS[dtype.kind], 8 * dtype.itemsize, READ_ONLY if read_only else 0
    return address, (DLDeviceType.kDLCUDA, 0, code, bits, 1, flags, shape, strides), None


# --- Host memory


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
    if 0 in view.shape:
        return np.empty(0, np.uint8)
    last = sum((n - 1) * stride for n, stride in zip(view.shape, view.strides, strict=True))
    size_bytes = -(-(last + 1) * view.dtype.itemsize_bits // 8)
    if not _is_known(type(view.owner)):
        _read_safely(view.address, 1, align=1)
        _read_safely(view.address + size_bytes - 1, 1, align=1)
    return np.asarray(_Extent(view, size_bytes))
