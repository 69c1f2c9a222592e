"""What the simulator of kernels uses of the core, and nothing else (tests/test_layers.py)."""

from tma_dlpack.copies.nvrtc import require as nvrtc_bindings
from tma_dlpack.driver import tool
from tma_dlpack.include import get_include
from tma_dlpack.tables.coerce import shown
from tma_dlpack.tables.errors import TmaUnsupportedError, argument_error
