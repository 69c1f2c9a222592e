"""Any tensor becomes a `TensorView`: address, device, dtype, shape, strides.

Two steps: `read` reads the address and the `Layout`, plain integers in DLPack's words, from the
producer; `check_layout` turns a layout into checked values, or refuses it. `as_tensor_view` does
both.

No data is read or copied, no framework is imported, nothing synchronizes, and the producer's
capsule is not consumed: its own destructor runs its deleter.

The files, each of which imports only from earlier ones: `layout` (integers, what is made of them,
and the table of reasons to refuse a tensor), `torch_tensor`, `frameworks` (a row for each),
`producer` (reads a tensor and its capsule).

A new framework needs a row of `frameworks.FRAMEWORKS`, and a row of `_WORDS` in the same file with
the code that copies, views or pads its tensors. A new reason to refuse a tensor needs a row of
`layout.REFUSALS` and a call of `refuse("TENSOR_...", found)`, or for torch a row of
`torch_tensor._FLAWS`.

Source: dlpack.h 1.3 (offsets checked against a C compiler), the array API standard for `__dlpack__`
and its streams, the CUDA Array Interface, version 3.
"""

from tma_dlpack.dlpack.frameworks import Words, native_of, storage_of, words_of
from tma_dlpack.dlpack.layout import (
    Device,
    Export,
    Layout,
    Storage,
    TensorView,
    canonical_strides,
    check_layout,
    name_of,
    row_major_strides,
)
from tma_dlpack.dlpack.producer import array_at, as_tensor_view, host_bytes, read
from tma_dlpack.dlpack.torch_tensor import torch_dtype_table
