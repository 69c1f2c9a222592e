"""Functions that read torch's tensors, their storage and their streams.

Tensors are read by their attributes, because torch's `__dlpack__` refuses Parameters. In old
versions of torch, `__dlpack__` also refuses float8 tensors. This module never imports torch; it
looks torch up in `sys.modules`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from tma_dlpack.dlpack.layout import Export, Layout, Storage, error_text, is_a, name_of, refuse
from tma_dlpack.tables.dtypes import NAMED_DTYPES, DLDataType
from tma_dlpack.tables.enums import DLDeviceType
from tma_dlpack.tables.errors import TmaUnsupportedError


@lru_cache(maxsize=1)
def torch_dtype_table() -> dict[Any, DLDataType]:
    """Return {torch.dtype: DLDataType} for the dtypes of the imported version of torch.

    Raises `TmaUnsupportedError` if torch has not been imported.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        raise TmaUnsupportedError("torch is not imported; torch_dtype_table() needs: import torch")
    found = ((getattr(torch, name, None), dtype) for name, dtype in NAMED_DTYPES.items())
    return {theirs: dtype for theirs, dtype in found if isinstance(theirs, torch.dtype)}


def read_torch(tensor: Any) -> Export:
    """Return the address and layout of a torch tensor, or raise the refusal that applies to it.

    The tensor may require a gradient. For a tensor in pinned memory, the device is kDLCPU, as in
    torch's own capsules.
    """
    if _is_fake(tensor):  # before data_ptr(), which would print a warning for a fake tensor
        _refuse_torch(tensor)
    try:
        address = tensor.data_ptr()
        # Under torch.jit.trace, the extents and strides are tensors, which `int` converts.
        shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
        known = torch_dtype_table().get(tensor.dtype)
        device = _device_of(tensor)
        lazy = tensor.is_neg() or (tensor.dtype.is_complex and tensor.is_conj())
    except Exception as error:
        _refuse_torch(tensor, error)
    if known is None or device is None or lazy or (not address and 0 not in shape):
        _refuse_torch(tensor)
    return Export(address, Layout(*device, *known, 0, shape, strides))


def _device_of(tensor: Any) -> tuple[int, int] | None:
    """Return DLPack's device type and id; None if a map cannot describe that device's memory."""
    ordinal = tensor.get_device()  # -1 on the host
    if ordinal < 0:
        return (DLDeviceType.kDLCPU.value, 0) if tensor.is_cpu else None
    return (DLDeviceType.kDLCUDA.value, ordinal) if tensor.is_cuda and not _is_hip() else None


def _refuse_torch(tensor: Any, cause: Exception | None = None) -> NoReturn:
    """Raise the refusal of the first row of `_FLAWS` that applies."""
    try:
        flaws = ((rule, tensor_is(tensor)) for rule, holds, tensor_is in _FLAWS if holds(tensor))
        rule, found = next(flaws, ("TENSOR_EXPORT", _unreadable(tensor)))
    except Exception as error:  # the methods of a subclass may raise anything
        cause = cause or error
        rule, found = "TENSOR_EXPORT", _unreadable(tensor)
    if rule == "TENSOR_EXPORT" and cause:
        found += f": torch raised {error_text(cause)}"
    refuse(rule, found, cause, _OUTSIDE if _is_transformed(tensor) else None)


def _unreadable(tensor: object) -> str:
    return f"is a {name_of(type(tensor))} whose layout cannot be read"


def _torch() -> Any:
    return sys.modules["torch"]


def _is_hip() -> bool:
    return _torch().version.hip is not None


_OUTSIDE = (
    "make the map outside of torch.vmap, torch.func.grad and their like, or inside of a "
    "torch.library.custom_op"
)


def _is_transformed(tensor: Any) -> bool:
    """Return whether a function transform of torch.func wraps the tensor."""
    functorch = sys.modules.get("torch._C._functorch")
    is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    return is_wrapped is not None and bool(is_wrapped(tensor))


def _is_fake(tensor: object) -> bool:
    return is_a(type(tensor), "torch._subclasses.fake_tensor.FakeTensor")


#: Reasons to refuse a torch tensor: (rule, condition, function that returns the fault's text).
#: `_refuse_torch` reports the first reason whose condition is true.
_FLAWS: tuple[tuple[str, Callable[[Any], bool], Callable[[Any], str]], ...] = (
    ("TENSOR_FAKE", _is_fake, lambda t: "is a fake tensor of torch's tracing"),
    ("TENSOR_NESTED", lambda t: t.is_nested, lambda t: f"is nested, with layout {t.layout}"),
    (
        "TENSOR_SPARSE",
        lambda t: t.layout is not _torch().strided,
        lambda t: f"has layout {t.layout}",
    ),
    ("TENSOR_META", lambda t: t.is_meta, lambda t: "lies on torch's meta device"),
    ("TENSOR_QUANTIZED", lambda t: t.is_quantized, lambda t: f"is quantized ({t.dtype})"),
    (
        "TENSOR_TORCH_DTYPE",
        lambda t: t.dtype not in torch_dtype_table(),
        lambda t: f"has dtype {t.dtype}",
    ),
    (
        "TENSOR_DEVICE",
        lambda t: t.device.type not in ("cpu", "cuda"),
        lambda t: f"lies on torch device {t.device}",
    ),
    (
        "TENSOR_DEVICE",
        lambda t: t.device.type == "cuda" and _is_hip(),
        lambda t: f"lies on ROCm device {t.device.index} (a HIP build of torch)",
    ),
    ("TENSOR_NEG", lambda t: t.is_neg(), lambda t: "has torch's negative bit set"),
    ("TENSOR_CONJ", lambda t: t.is_conj(), lambda t: "has torch's conjugate bit set"),
    (
        "TENSOR_WRAPPER",
        lambda t: t.data_ptr() == 0,
        lambda t: f"is a {name_of(type(t))} of shape {tuple(t.shape)} whose data_ptr() is 0",
    ),
)


# --- Storage, streams and launchers -------------------------------------------------------------


def torch_storage(tensor: Any) -> Storage:
    """Return a tensor's storage.

    The methods of a subclass of torch.Tensor may raise any exception.
    """
    storage = tensor.untyped_storage()
    # A storage cannot be resized if it wraps memory that torch did not allocate, such as the memory
    # of a NumPy array.
    return Storage(storage.data_ptr(), storage.nbytes(), storage.resizable())


def torch_stream(device_id: int) -> int:
    """Return the CUstream of torch's current stream."""
    return int(_torch().cuda.current_stream(device_id).cuda_stream)


def wait_for_torch(handle: int, device_id: int) -> None:
    """Make a stream wait for the work on torch's current stream."""
    cuda = _torch().cuda
    cuda.ExternalStream(handle, device_id).wait_stream(cuda.current_stream(device_id))


def as_torch(storage: Any) -> Any:
    """Return a torch CPU tensor that shares the memory of a NumPy array."""
    if "torch" not in sys.modules:
        raise TmaUnsupportedError("as_torch needs torch: import torch first")
    return _torch().from_numpy(storage)
