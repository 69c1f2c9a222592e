"""A tensor's layout as its producer exports it, in plain integers, and `TensorView`, checked.

At the end: why a tensor is refused before any rule is checked, one row per reason.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

from tma_dlpack.tables.coerce import shown
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.enums import DLDataTypeCode, DLDeviceType
from tma_dlpack.tables.rule import rules_of
from tma_dlpack.tables.targets import STRIDE_BYTES_END

# DLPACK_FLAG_BITMASK_READ_ONLY and ..._IS_SUBBYTE_TYPE_PADDED
READ_ONLY, SUBBYTE_PADDED = 1, 4

#: Device types whose memory a tensor map may describe, and those that the simulator can read.
CUDA = frozenset({DLDeviceType.kDLCUDA.value, DLDeviceType.kDLCUDAManaged.value})
HOST = frozenset({DLDeviceType.kDLCPU.value, DLDeviceType.kDLCUDAHost.value})

_ADDRESSABLE = {number: DLDeviceType(number) for number in CUDA | HOST}

_DEVICE_NAMES = {
    DLDeviceType.kDLCPU.value: "cpu",
    DLDeviceType.kDLCUDA.value: "cuda",
    DLDeviceType.kDLCUDAHost.value: "cuda_host",
    DLDeviceType.kDLCUDAManaged.value: "cuda_managed",
}


class Device(NamedTuple):
    """DLPack's DLDevice: the memory that contains a tensor.

    >>> str(Device(DLDeviceType.kDLCUDA, 1)), Device(1, 0).is_host
    ('cuda:1', True)
    """

    device_type: int
    device_id: int

    @property
    def is_cuda(self) -> bool:
        """Whether a kernel may access it: GPU memory or managed memory."""
        return self.device_type in CUDA

    @property
    def is_host(self) -> bool:
        """Whether it is the CPU's memory, pinned memory included."""
        return self.device_type in HOST

    def __str__(self) -> str:
        """Return ``cuda:0``, ``cpu:0`` and the like; DLPack's own name for a device without one."""
        name = _DEVICE_NAMES.get(self.device_type)
        if name is None:
            known = self.device_type in DLDeviceType._value2member_map_
            name = (
                DLDeviceType(self.device_type).name if known else f"type {shown(self.device_type)}"
            )
        return f"{name}:{shown(self.device_id)}"


class Layout(NamedTuple):
    """A tensor without its address, in DLPack's numbers, as its producer exports them.

    `shape` and `strides` are row-major; strides are in elements, or None for row-major.
    """

    device_type: int
    device_id: int
    code: int
    bits: int
    lanes: int
    flags: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


class Export(NamedTuple):
    """The layout that a producer exports for a tensor, not yet checked.

    `capsule` keeps the memory of an unknown producer alive (None for known producers).
    """

    address: int
    layout: Layout
    capsule: object = None


def check_layout(
    layout: Layout,
) -> tuple[Device, DLDataType, tuple[int, ...], tuple[int, ...], bool]:
    """Turn a layout into device, dtype, shape, strides and read_only, or refuse it.

    Raises `TmaPreconditionError`.

    >>> check_layout(Layout(1, 0, 2, 32, 1, 0, (4, 8), None))[3]
    (8, 1)
    """
    device_type, device_id, code, bits, lanes, flags, shape, strides = layout
    if device_type not in _ADDRESSABLE:
        refuse("TENSOR_DEVICE", f"lies on {Device(device_type, device_id)}")
    if device_id < 0:
        refuse("TENSOR_DEVICE_ID", f"lies on {Device(device_type, device_id)}")
    device = Device(_ADDRESSABLE[device_type], device_id)
    dtype = DLDataType(code, bits, lanes)
    if not bits or not lanes:
        refuse("TENSOR_DTYPE", f"has elements of {bits} bits and {lanes} lanes")
    if code == DLDataTypeCode.kDLOpaqueHandle:
        refuse("TENSOR_OPAQUE", f"holds opaque handles of {bits} bits")
    if flags & SUBBYTE_PADDED and bits < 8:
        refuse("TENSOR_PADDED", f"has {bits}-bit values, each padded to a byte")
    shape = tuple(shape)
    if min(shape, default=0) < 0:
        refuse("TENSOR_EXTENT", f"has shape {shape}")
    if 0 in shape:  # no stride of it is used: one that every rule takes
        strides = (*(0 for _ in shape[1:]), 1)
    elif strides is None:
        strides = row_major_strides(shape)
    if min(strides, default=0) < 0 and any(
        stride < 0 < extent - 1 for extent, stride in zip(shape, strides, strict=True)
    ):
        refuse("TENSOR_STRIDE_NEGATIVE", f"has strides {tuple(strides)}, in elements")
    strides = canonical_strides(shape, strides, bits * lanes)
    return device, dtype, shape, strides, bool(flags & READ_ONLY)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements; an extent of 0 counts as 1."""
    strides, span = [], 1
    for extent in reversed(shape):
        strides.append(span)
        span *= max(extent, 1)
    return tuple(strides[::-1])


def canonical_strides(
    shape: Sequence[int], strides: Sequence[int], itemsize_bits: int, align_bytes: int = 16
) -> tuple[int, ...]:
    """Replace the strides of dimensions of extent 1, which no access uses, by valid ones.

    The new stride is the row-major one, the span of the next inner dimension (1 if
    innermost), rounded up to a multiple of `align_bytes`, because maps require that; it is 0 where
    it would reach 2^40 bytes. It never exceeds an outer stride that is aligned and does not
    overlap. Other strides do not change. The result may be passed again, with the same or another
    alignment.

    Parameters
    ----------
    shape, strides : sequence of int
        Row-major, strides in elements.
    itemsize_bits : int
        Bits of one element, `DLDataType.itemsize_bits`.
    align_bytes : int
        What strides must be a multiple of: 16, or 32 with INTERLEAVE_32B and for packed types that
        require it.

    Examples
    --------
    One row of 1733 float16 values; its outer stride means nothing:

    >>> canonical_strides((1, 1733), (99, 1), 16)
    (1736, 1)
    >>> canonical_strides((4, 1, 64, 1), (4096, 7, 64, 7), 16)
    (4096, 4096, 64, 1)
    """
    if 1 not in shape:
        return tuple(strides)
    align_elems = align_bytes * 8 // math.gcd(align_bytes * 8, itemsize_bits)
    result = list(strides)
    span = 1
    for i in reversed(range(len(shape))):
        if shape[i] == 1:
            stride = span if i == len(shape) - 1 else -(-span // align_elems) * align_elems
            result[i] = stride if stride * itemsize_bits < 8 * STRIDE_BYTES_END else 0
        span = shape[i] * result[i]
    return tuple(result)


# Not frozen: constructing it is three times faster, and every call in Python makes one.
@dataclass(slots=True, unsafe_hash=True)
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
        return -(-(last + 1) * self.dtype.bits * self.dtype.lanes // 8)

    def at(self, address: int, owner: object = None, capsule: object = None) -> TensorView:
        """Return the same layout at another address, with another owner."""
        producer = self.producer if owner is None else name_of(type(owner))
        own = self.own and self.own.at(address - self.offset_bytes, owner, capsule)
        return replace(
            self, address=address, producer=producer, owner=owner, capsule=capsule, own=own
        )

    def as_strided(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset_bytes: int
    ) -> TensorView:
        """Return another description of the same memory; it may reach beyond the tensor.

        >>> import numpy as np
        >>> from tma_dlpack.dlpack import as_tensor_view
        >>> x = as_tensor_view(np.zeros((4, 8), np.float32))
        >>> half = x.as_strided((4, 4), (8, 1), 16)
        >>> half.address - x.address, half.extent_bytes, half.own == x
        (16, 112, True)
        """
        return TensorView(
            self.address + offset_bytes,
            self.device,
            self.dtype,
            shape,
            canonical_strides(shape, strides, self.dtype.itemsize_bits),
            self.read_only,
            self.producer,
            self.owner,
            self.capsule,
            self,
            offset_bytes,
        )


class Storage(NamedTuple):
    """The memory around a tensor, which may be larger than the tensor.

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


# --- Types --------------------------------------------------------------------------------------


def name_of(kind: type) -> str:
    """Name a type as users write it, such as ``torch.Tensor`` or ``list``."""
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def package_of(kind: type) -> str:
    """Name the package that defines a type."""
    return str(kind.__module__).partition(".")[0]


def is_a(kind: type, path: str) -> bool:
    """Whether a type is, or derives from, a class of a module; False if it is not imported.

    >>> is_a(bool, "builtins.int"), is_a(bool, "torch.Tensor")
    (True, False)
    """
    module, _, name = path.rpartition(".")
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)


# --- Refusals -----------------------------------------------------------------------------------

MAX_NDIM = 64  # NumPy's and torch's limit; the rules refuse ranks over 5

_DLPACK_H = "dlpack.h 1.3"
_EXPORT = "array API standard, __dlpack__"
_INTERFACE = "CUDA Array Interface, version 3"
_LIBCUXX = "make_tma_descriptor.h at NVIDIA/cccl 571f2fc3bc"
_TORCH = "measured, torch 2.13"
_REPORT = "this is a bug of the producer: report it there, and export through another framework"

_ROWS = rules_of(
    "tensor",
    f"""
id | limit | fix | source
TENSOR_TYPE | it must be a tensor: an object with __dlpack__ (torch, NumPy, JAX, CuPy, tvm-ffi, ...)
    or __cuda_array_interface__
    | pass the tensor itself; for lists and numbers pass numpy.asarray(x) | {_EXPORT}
TENSOR_RAW_CAPSULE | it must be the tensor, not its capsule, because a capsule can be consumed only
    once
    | pass x instead of x.__dlpack__() | {_EXPORT}
TENSOR_EXPORT | its producer must be able to export it
    | do what the producer's message asks, or pass another tensor over the same memory | {_EXPORT}
TENSOR_CAPSULE | __dlpack__ must return a capsule named "dltensor" or "dltensor_versioned"
    | {_REPORT} | {_DLPACK_H}
TENSOR_CAPSULE_USED | a capsule must not have been consumed before
    | make the producer's __dlpack__ return a new capsule at each call | {_DLPACK_H}
TENSOR_DLPACK_VERSION | the major version of DLPack must be 1
    | update tma_dlpack, or make the producer respect max_version=(1, 3) | {_DLPACK_H}
TENSOR_POINTER | every pointer in its capsule must lead to readable, aligned memory
    | {_REPORT} | {_DLPACK_H}
TENSOR_FILES | two file descriptors must be free: the memory of an unknown producer is read through
    a pipe, to detect invalid pointers
    | close files, or raise the limit (ulimit -n) | pipe(2)
TENSOR_NDIM | ndim must be 0 to {MAX_NDIM} | {_REPORT} | {_DLPACK_H}
TENSOR_SHAPE_NULL | shape must not be null when ndim is not 0 | {_REPORT} | {_DLPACK_H}
TENSOR_EXTENT | extents must not be negative | {_REPORT} | {_DLPACK_H}
TENSOR_STRIDE_NEGATIVE | strides must not be negative: those of a tensor map are unsigned
    | copy it: x.copy() or numpy.ascontiguousarray(x) | CUDA driver API, cuTensorMapEncodeTiled,
    globalStrides
TENSOR_ADDRESS_WRAPS | data + byte_offset must fit in 64 bits | {_REPORT} | {_DLPACK_H}
TENSOR_NULL | a tensor with elements must have an address
    | pass a tensor that has memory, for example x.clone() of torch or x.copy() of NumPy |
    {_LIBCUXX}
TENSOR_DTYPE | neither bits nor lanes may be 0 | {_REPORT} | {_DLPACK_H}
TENSOR_OPAQUE | elements must be numbers
    | pass a view of the same bytes as unsigned integers | {_LIBCUXX}
TENSOR_PADDED | values smaller than a byte must be packed
    | pack them, two 4-bit values in a byte, and pass the bytes | {_DLPACK_H},
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
TENSOR_DEVICE | it must be CUDA memory (kDLCUDA, kDLCUDAManaged) or host memory (kDLCPU,
    kDLCUDAHost)
    | copy it to a CUDA device, x.cuda(), or to the host, x.cpu() | {_LIBCUXX}; {_DLPACK_H},
    DLDeviceType
TENSOR_DEVICE_ID | the id of a device must be 0 or more | {_REPORT} | {_DLPACK_H}
TENSOR_NUMPY_DTYPE | NumPy must be able to export its type
    | convert it to a number type of 8 to 64 bits, or pass a view of its bytes |
    numpy.ndarray.__dlpack__
TENSOR_NUMPY_READ_ONLY | it must be writeable: NumPy before 2.1 exports no read-only arrays
    | update NumPy, or pass x.copy() | numpy.ndarray.__dlpack__
TENSOR_FAKE | it must be a real tensor: a fake one has no memory
    | call this outside of the traced function: in one marked @torch.compiler.disable, or in a
    torch.library.custom_op such as those of tma_dlpack.torch_ops | {_TORCH}
TENSOR_NESTED | it must be one dense tensor
    | pass one of x.unbind(), x.values() of a jagged tensor, or x.to_padded_tensor(0) | {_TORCH}
TENSOR_SPARSE | its layout must be torch.strided | pass x.to_dense() | {_TORCH}
TENSOR_META | it must have memory, and the meta device has none
    | allocate it on a real device: torch.empty_like(x, device="cuda") | {_TORCH}
TENSOR_QUANTIZED | its elements must be plain numbers
    | pass x.int_repr() or x.dequantize() | {_TORCH}
TENSOR_TORCH_DTYPE | its dtype must be one that DLPack knows: bool, integers, floats, complex,
    bfloat16, float8 or float4_e2m1fn_x2
    | pass x.view(torch.uint8), or another unsigned type of the same size | {_DLPACK_H}
TENSOR_NEG | its memory must hold its values, but torch negates them when they are read
    | pass x.resolve_neg() | {_TORCH}
TENSOR_CONJ | its memory must hold its values, but torch conjugates them when they are read
    | pass x.resolve_conj() | {_TORCH}
TENSOR_WRAPPER | it must have memory of its own
    | pass the tensor inside the wrapper, such as x.to_local() of a DTensor; in a compiled function
    use torch.compiler.disable or torch.library.custom_op | {_TORCH}
TENSOR_MASKED | it must have no mask, because a copy includes the masked elements
    | pass x.data of numpy.ma, and the mask as a tensor of its own | {_INTERFACE}; numpy.ma
TENSOR_INTERFACE | __cuda_array_interface__ must be well-formed | {_REPORT} | {_INTERFACE}
TENSOR_INTERFACE_DTYPE | typestr must name a number type in the machine's byte order
    | pass a view of its bytes, or convert it | {_INTERFACE}
TENSOR_BYTE_STRIDES | strides must be multiples of the element size
    | copy it: x.copy() | {_DLPACK_H}
""",
    on="tensor",
)
REFUSALS = {row.id: row for row in _ROWS}


def refuse(
    rule: str, tensor_is: str, cause: BaseException | None = None, fix: str | None = None
) -> NoReturn:
    """Raise the refusal of a row; `tensor_is` continues the sentence "tensor ..."."""
    REFUSALS[rule].refuse("tensor", f"tensor {tensor_is}", cause, fix)


def error_text(error: BaseException) -> str:
    """Return the type and first line of a producer's error; `__cause__` has all of it."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # it may hold an int that is too long to print
        lines = []
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
