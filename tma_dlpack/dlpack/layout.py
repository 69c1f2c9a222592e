"""`Layout` has the integers that a producer exports, and `TensorView` has their checked form.

The table `_ROWS` at the end of this file has the reasons to refuse a tensor. These reasons are
checked before the rules of tensor maps.
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

#: `CUDA` has the device types whose memory a kernel can access. `HOST` has the device types whose
#: memory the simulator can read.
CUDA = frozenset({DLDeviceType.kDLCUDA.value, DLDeviceType.kDLCUDAManaged.value})
HOST = frozenset({DLDeviceType.kDLCPU.value, DLDeviceType.kDLCUDAHost.value})

# A lookup in a dict is faster than a call of the enum.
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
        """Whether this is GPU memory or managed memory, which a kernel may access."""
        return self.device_type in CUDA

    @property
    def is_host(self) -> bool:
        """Whether this is host memory, which includes pinned memory."""
        return self.device_type in HOST

    def __str__(self) -> str:
        """Return a name such as ``cuda:0``, or such as ``kDLMetal:0`` for an unsupported device."""
        name = _DEVICE_NAMES.get(self.device_type)
        if name is None:
            known = self.device_type in DLDeviceType._value2member_map_
            name = (
                DLDeviceType(self.device_type).name if known else f"type {shown(self.device_type)}"
            )
        return f"{name}:{shown(self.device_id)}"


class Layout(NamedTuple):
    """The fields of a DLTensor except the address. The fields are not checked yet.

    DLPack's enum values are plain ints. `shape` and `strides` list the outermost dimension first.
    Strides are in elements. If `strides` is None, the tensor is contiguous.
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
    """The address and the layout that a producer exports for a tensor, not yet checked.

    `capsule` keeps the memory of an unknown producer alive. For known producers, `capsule` is None.
    """

    address: int
    layout: Layout
    capsule: object = None


def check_layout(
    layout: Layout,
) -> tuple[Device, DLDataType, tuple[int, ...], tuple[int, ...], bool]:
    """Return the device, dtype, shape, strides and read_only of a layout.

    Raises `TmaPreconditionError` if no tensor map can describe the layout.

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
    if 0 in shape:  # no access uses the strides, so set strides that every rule accepts
        strides = (*(0 for _ in shape[1:]), 1)
    elif strides is None:
        strides = row_major_strides(shape)
    # A negative stride of a dimension of extent 1 is never used, so it is not an error.
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
    """Replace unused strides, which are the strides of dimensions of extent 1, by valid strides.

    The new stride of the innermost dimension is 1. The new stride of another dimension is the
    row-major stride (extent times stride of the next inner dimension), rounded up to a multiple of
    `align_bytes`. Maps require this alignment. If the new stride would be 2^40 bytes or more, it is
    0 instead. If the next outer stride is aligned and the tensor does not overlap itself, the new
    stride is not larger than the next outer stride. The strides of dimensions whose extent is not 1
    do not change. The result may be passed to this function again, with the same or another
    alignment.

    Parameters
    ----------
    shape, strides : sequence of int
        Row-major, strides in elements.
    itemsize_bits : int
        Bits of one element, `DLDataType.itemsize_bits`.
    align_bytes : int
        Required alignment of strides in bytes: 32 for INTERLEAVE_32B and for some packed types,
        else 16.

    Examples
    --------
    One row of 1733 float16 values. No access uses the outer stride, which is 99 elements:

    >>> canonical_strides((1, 1733), (99, 1), 16)
    (1736, 1)
    >>> canonical_strides((4, 1, 64, 1), (4096, 7, 64, 7), 16)
    (4096, 4096, 64, 1)
    """
    if 1 not in shape:
        return tuple(strides)
    # The smallest number of elements that takes a multiple of `align_bytes`.
    align_elems = align_bytes * 8 // math.gcd(align_bytes * 8, itemsize_bits)
    result = list(strides)
    span = 1
    for i in reversed(range(len(shape))):
        if shape[i] == 1:
            stride = span if i == len(shape) - 1 else -(-span // align_elems) * align_elems
            result[i] = stride if stride * itemsize_bits < 8 * STRIDE_BYTES_END else 0
        span = shape[i] * result[i]
    return tuple(result)


# The class is not frozen, because every call in Python makes a view. Constructing an instance of a
# frozen class takes three times as long.
@dataclass(slots=True, unsafe_hash=True)
class TensorView:
    """A tensor's address, device, dtype, shape and strides, as a value.

    Attributes
    ----------
    address : int
        Address of element (0, ..., 0). An address of 0 is possible only if an extent is 0.
    device : Device
        The memory that contains the tensor. For managed memory `device_id` is always 0.
    dtype : DLDataType
        Type of one element with all its lanes. For example, a torch ``float4_e2m1fn_x2`` is one
        element of 8 bits.
    shape, strides : tuple of int
        Extents and strides, outermost dimension first. Strides are in elements and never negative.
        `canonical_strides` computes the strides of dimensions of extent 1.
    read_only : bool
        Whether the producer forbids writing.
    producer : str
        Type of the tensor, such as ``"torch.Tensor"``, for messages.
    owner : object
        The tensor, which keeps the memory alive.
    capsule : object
        The capsule of an unknown producer; None for known producers. An unknown producer may export
        a temporary copy. Then the capsule keeps the copy's memory alive.
    own : TensorView or None
        The view whose method `as_strided` made this view; None for other views.
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
        """Bytes from the start of the first element to the end of the last, including gaps."""
        if 0 in self.shape:
            return 0
        # Index of the last element, in elements from the first one.
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return -(-(last + 1) * self.dtype.bits * self.dtype.lanes // 8)

    def at(self, address: int, owner: object = None, capsule: object = None) -> TensorView:
        """Return a copy of this view with another address, owner and capsule."""
        producer = self.producer if owner is None else name_of(type(owner))
        own = self.own and self.own.at(address - self.offset_bytes, owner, capsule)
        return replace(
            self, address=address, producer=producer, owner=owner, capsule=capsule, own=own
        )

    def as_strided(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset_bytes: int
    ) -> TensorView:
        """Return a view of the same memory with another layout. The layout may exceed the tensor.

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

    `is_own` is True if the framework itself allocated the memory. Such memory can be read, and can
    be written unless the tensor is read-only. If `is_own` is False, the framework only wraps the
    memory of another owner, so the memory may be unmapped.
    """

    address: int
    size_bytes: int
    is_own: bool

    def holds(self, view: TensorView) -> bool:
        """Return whether this memory contains every byte of a tensor."""
        end = self.address + self.size_bytes
        return self.address <= view.address and view.address + view.extent_bytes <= end


# --- Types --------------------------------------------------------------------------------------


def name_of(kind: type) -> str:
    """Return a type's name as users write it, such as ``torch.Tensor`` or ``list``."""
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def package_of(kind: type) -> str:
    """Return the name of the package that defines a type."""
    return str(kind.__module__).partition(".")[0]


def is_a(kind: type, path: str) -> bool:
    """Return whether a type is the class at `path` or a subclass of this class.

    Return False if the module of the class has not been imported.

    >>> is_a(bool, "builtins.int"), is_a(bool, "torch.Tensor")
    (True, False)
    """
    module, _, name = path.rpartition(".")
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)


# --- Refusals -----------------------------------------------------------------------------------

MAX_NDIM = 64  # the limit of NumPy and torch; the rules later refuse more than 5 dimensions

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
    """Raise the error of a row of `REFUSALS`.

    `tensor_is` describes the fault. The error's text has the word "tensor", followed by
    `tensor_is`.
    """
    REFUSALS[rule].refuse("tensor", f"tensor {tensor_is}", cause, fix)


def error_text(error: BaseException) -> str:
    """Return the type and the first line of a producer's error, for the text of a refusal.

    The refusal has the producer's error as its `__cause__`.
    """
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # str() raises if an argument is an int with too many digits to print
        lines = []
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
