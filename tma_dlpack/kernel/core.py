"""All names of the core that the simulator of kernels uses (tests/test_layers.py)."""

from tma_dlpack import driver, report
from tma_dlpack.consumer.descriptor import operand_addresses
from tma_dlpack.copies.launch import Library, download, nvrtc_bindings, scratch, synchronize, upload
from tma_dlpack.copies.simulator import RawCopy, reduce_bytes
from tma_dlpack.dlpack import TensorView, as_tensor_view, host_bytes, storage_of
from tma_dlpack.draw import timeline as picture
from tma_dlpack.include import get_include
from tma_dlpack.make.batch import TensorMapBatch
from tma_dlpack.ptx import opcodes
from tma_dlpack.ptx.parse import Function, Instruction, Module, parse
from tma_dlpack.public import opaque
from tma_dlpack.report import stuck
from tma_dlpack.tables.coerce import counted, integer_of, integers_of, rows, shown, text_of
from tma_dlpack.tables.errors import (
    TmaError,
    TmaUnsupportedError,
    argument_error,
    at_least,
    bad_value,
)
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.ptx_replace import replace_field

__all__ = [
    "Function", "Instruction", "Library", "Module", "RawCopy", "Target", "TensorMap",
    "TensorMapBatch", "TensorView", "TmaError", "TmaUnsupportedError", "argument_error",
    "as_tensor_view", "at_least", "bad_value", "counted", "download", "driver", "get_include",
    "host_bytes", "integer_of", "integers_of", "nvrtc_bindings", "opaque", "opcodes",
    "operand_addresses", "parse", "picture", "reduce_bytes", "replace_field", "report", "rows",
    "scratch", "shown", "storage_of", "stuck", "synchronize", "text_of", "upload",
]  # fmt: skip
