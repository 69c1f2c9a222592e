"""Why a tensor is refused before any rule is checked: one row per reason."""

from __future__ import annotations

from typing import NoReturn

from tma_dlpack.tables.rule import rules_of

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
