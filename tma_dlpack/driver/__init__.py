"""All calls to libcuda: the list of GPUs, and the driver's encoders.

Importing this package does not load libcuda. The first call of a function loads libcuda and calls
cuInit. A context is created only when a map is encoded. Every call restores the caller's current
context.

`library.py` loads libcuda, declares the prototypes of its functions, and describes the GPUs.
`encode.py` calls the functions cuTensorMapEncode*, and has a table with one row per parameter.

Source: cuda.h of CUDA 13.0, and the documentation of the CUDA driver API.

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
