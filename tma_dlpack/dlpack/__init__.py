"""`as_tensor_view`: the address, device, dtype, shape and strides of any framework's tensor.

The framework that made a tensor is called the tensor's producer. `as_tensor_view` works in two
steps. First, `read` gets an address and a `Layout` from the producer. A `Layout` has the integers
of DLPack's structs. Second, `check_layout` converts the layout to checked values, or refuses the
tensor.

This package never reads or copies a tensor's data, never imports a framework, and never
synchronizes. This package does not consume the producer's DLPack capsule. The capsule's destructor
therefore calls the deleter of the exported tensor.

Each file of this list imports only from the files above it:

- `layout.py` has the types `Layout` and `TensorView`, and the reasons to refuse a tensor.
- `torch_tensor.py` reads torch's tensors.
- `frameworks.py` has one row per framework.
- `producer.py` reads a tensor and its capsule.

A new framework needs a row in `frameworks.FRAMEWORKS`, and a row in `_WORDS` in the same file. The
row in `_WORDS` has the code that copies, views or pads a tensor in this framework. A new reason to
refuse a tensor needs a row in the table of `layout.REFUSALS`, and a call ``refuse("TENSOR_...",
found)``. A reason that applies only to torch tensors needs a row in `torch_tensor._FLAWS` instead
of the call of `refuse`.

Sources: dlpack.h 1.3 (a C compiler confirmed the offsets of the fields); the array API standard,
for `__dlpack__` and its parameter `stream`; the CUDA Array Interface, version 3.
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
    is_a,
    name_of,
    row_major_strides,
)
from tma_dlpack.dlpack.producer import array_at, as_tensor_view, host_bytes, read
from tma_dlpack.dlpack.torch_tensor import torch_dtype_table
