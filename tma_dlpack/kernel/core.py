"""What the simulator of kernels uses of the core, and nothing else (tests/test_layers.py)."""

from tma_dlpack.tables.coerce import counted, rows

__all__ = ["counted", "rows"]
