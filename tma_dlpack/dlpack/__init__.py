"""Any tensor becomes a `TensorView`: where its memory lies and how it is laid out.

Two steps: `read` asks the producer and gives an address and a `Layout`, plain integers in DLPack's
words; `judge` turns a layout into checked values, or refuses it. `as_tensor_view` does both.

No data is read or copied, no framework is imported, nothing is synchronised, and the producer's
capsule is only looked at: its own destructor runs its deleter.

Files, each importing only from those before it: `refusals` (the table), `layout` (integers and
what is made of them), `capsule` (ctypes), `torch_tensor`, `producer`, `view`.

Source: dlpack.h 1.3 (offsets checked against a C compiler), the array API standard for `__dlpack__`
and its streams, the CUDA Array Interface, version 3. What each producer really exports is measured:
torch 2.4 to 2.13, NumPy 1.26 to 2.4, JAX 0.10, tvm-ffi 0.1; CuPy from its source.
"""

from tma_dlpack.dlpack.layout import (
    Device,
    Layout,
    Reading,
    canonical_strides,
    judge,
    row_major_strides,
)
from tma_dlpack.dlpack.refusals import name_of
from tma_dlpack.dlpack.torch_tensor import torch_dtype_table
from tma_dlpack.dlpack.view import (
    TensorView,
    as_tensor_view,
    host_bytes,
    read,
)

__all__ = [
    "Device",
    "Layout",
    "Reading",
    "TensorView",
    "as_tensor_view",
    "canonical_strides",
    "host_bytes",
    "judge",
    "name_of",
    "read",
    "row_major_strides",
    "torch_dtype_table",
]
