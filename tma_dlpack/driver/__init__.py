"""All calls to libcuda: the list of GPUs, and the driver's encoders.

Nothing is loaded at import. The first use loads the driver's library and calls cuInit. A context is
created only when a map is encoded. Every call restores the caller's current context.

`library.py` loads libcuda, has the prototypes of its functions and describes the GPUs. `encode.py`
has one row per parameter of cuTensorMapEncode*, and calls these functions.

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
    tool,
)
