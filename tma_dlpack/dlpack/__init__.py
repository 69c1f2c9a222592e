"""Any tensor becomes a `TensorView`: address, device, dtype, shape, strides.

Two steps: `read` gets the address and the `Layout`, plain integers in DLPack's words, from the
producer; `judge` turns a layout into checked values, or refuses it. `as_tensor_view` does both.

No data is read or copied, no framework is imported, nothing synchronizes, and the producer's
capsule is not consumed: its own destructor runs its deleter.

Files, each importing only from those before it: `refusals` (the table), `fixes` (what to pass
instead), `layout` (integers and what is made of them), `capsule` (ctypes), `torch_tensor`,
`producer`, `numpy_array` (for the short cut), `view`.

A new reason to refuse a tensor: a row in `refusals.REFUSALS`, and a `refuse("TENSOR_...", found)`
where it is found; for torch a row in `torch_tensor._FLAWS`. A framework whose capsules need no
checks of their pointers: its package name in `producer._KNOWN_PRODUCERS`, and in `make/_tensors.h`
for the compiled short cut.

Source: dlpack.h 1.3 (offsets checked against a C compiler), the array API standard for `__dlpack__`
and its streams, the CUDA Array Interface, version 3. What each producer really exports is measured:
torch 2.4 to 2.13, NumPy 1.26 to 2.4, JAX 0.10, tvm-ffi 0.1; CuPy from its source.
"""

from tma_dlpack.dlpack.layout import (
    Device,
    Export,
    Layout,
    canonical_strides,
    judge,
    row_major_strides,
)
from tma_dlpack.dlpack.refusals import name_of
from tma_dlpack.dlpack.torch_tensor import torch_dtype_table
from tma_dlpack.dlpack.view import (
    TensorView,
    array_at,
    as_tensor_view,
    host_bytes,
    read,
)
