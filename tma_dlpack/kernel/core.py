"""What the simulator of kernels uses of the core, and nothing else (tests/test_layers.py)."""

from tma_dlpack.copies.raw import RawCopy, reduce_bytes
from tma_dlpack.ptx.parse import Instruction
from tma_dlpack.tables.coerce import counted, rows
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.ptx_replace import replace_field

__all__ = [
    "Instruction", "RawCopy", "TensorMap", "TmaError", "counted", "reduce_bytes", "replace_field",
    "rows",
]  # fmt: skip
