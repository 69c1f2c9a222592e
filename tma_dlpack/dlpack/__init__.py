"""Any tensor becomes a `TensorView`: where its memory lies and how it is laid out.

Three steps. A *reader*, chosen once per Python type, asks the producer and gives an address and a
`Signature`, the layout in the producer's own words. Those become a `Layout` (plain integers), which
`judge` turns into checked values, or refuses; that depends on nothing but the layout, so it is
remembered. `as_tensor_view` puts all together; a cache that knows the signature stops after one.

No data is read or copied, no framework is imported, nothing is synchronised, and the producer's
capsule is only looked at: its own destructor runs its deleter.

Files, each importing only from those before it: `refusals` (the table), `layout` (integers and
what is made of them), `capsule` (ctypes), `torch_tensor`, `producer` and `numpy_array` (readers),
`view`.

Source: dlpack.h 1.3 (offsets checked against a C compiler), the array API standard for `__dlpack__`
and its streams, the CUDA Array Interface, version 3. What each producer really exports is measured:
torch 2.4 to 2.13, NumPy 1.26 to 2.4, JAX 0.10, tvm-ffi 0.1; CuPy from its source.
"""

from tma_dlpack.dlpack.layout import (
    Device,
    Layout,
    Reading,
    Signature,
    canonical_strides,
    judge,
    row_major_strides,
)
from tma_dlpack.dlpack.refusals import name_of
from tma_dlpack.dlpack.torch_tensor import storage_holds, torch_dtype_table
from tma_dlpack.dlpack.view import (
    READERS,
    TensorView,
    as_tensor_view,
    described,
    host_bytes,
    read_alike,
    read_first_of_type,
    read_layout,
)

__all__ = [
    "READERS",
    "Device",
    "Layout",
    "Reading",
    "Signature",
    "TensorView",
    "as_tensor_view",
    "canonical_strides",
    "described",
    "host_bytes",
    "judge",
    "name_of",
    "read_alike",
    "read_first_of_type",
    "read_layout",
    "row_major_strides",
    "storage_holds",
    "torch_dtype_table",
]
