"""The only door to libcuda: what GPUs there are, and the driver's own encoders.

Nothing is loaded at import. The first question loads the driver's library and calls cuInit; no
context is made before something is encoded. Every call leaves the caller's current context as it
was.

Source: cuda.h of CUDA 13.0; the CUDA driver API documents.

>>> from tma_dlpack import driver
>>> driver.is_available() is (driver.status().reason is None)
True
"""

from __future__ import annotations

from tma_dlpack.driver.encode import clear_bit_85, encode, replace_address
from tma_dlpack.driver.library import (
    DeviceFacts,
    DriverStatus,
    call,
    current_device,
    device_target,
    driver_function,
    in_context,
    in_context_of,
    is_available,
    pointer_device,
    pointer_range,
    status,
)

__all__ = [
    "DeviceFacts",
    "DriverStatus",
    "call",
    "clear_bit_85",
    "current_device",
    "device_target",
    "driver_function",
    "encode",
    "in_context",
    "in_context_of",
    "is_available",
    "pointer_device",
    "pointer_range",
    "replace_address",
    "status",
]
