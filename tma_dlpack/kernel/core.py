"""All names of the core that the simulator of kernels uses (tests/test_layers.py)."""

import tma_dlpack as tma
from tma_dlpack import driver, report
from tma_dlpack.consumer.descriptor import operand_addresses
from tma_dlpack.copies.launch import Library, download, nvrtc_bindings, scratch, synchronize, upload
from tma_dlpack.copies.simulator import RawCopy, reduce_bytes
from tma_dlpack.dlpack import TensorView, as_tensor_view, host_bytes, storage_of
from tma_dlpack.draw import timeline as picture
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import counted, integer_of, integers_of, rows, shown, text_of
from tma_dlpack.tables.errors import argument_error, at_least, bad_value
from tma_dlpack.tensor_map.ptx_replace import replace_field

__all__ = [
    "Library", "RawCopy", "TensorView", "argument_error", "as_tensor_view", "at_least", "bad_value",
    "counted", "download", "driver", "host_bytes", "integer_of", "integers_of", "nvrtc_bindings",
    "opaque", "operand_addresses", "picture", "reduce_bytes", "replace_field", "report", "rows",
    "scratch", "shown", "storage_of", "synchronize", "text_of", "tma", "upload",
]  # fmt: skip
