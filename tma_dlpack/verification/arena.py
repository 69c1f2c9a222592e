"""The memory that `verify` copies from and to, on the host and on the GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack

import numpy as np

from tma_dlpack import driver
from tma_dlpack.copies.device_memory import DeviceBytes
from tma_dlpack.types.target import Target
from tma_dlpack.verification.random_copies import ARENA_BYTES

__all__ = ["Arena"]


class Arena(AbstractContextManager["Arena"]):
    """The same random bytes on host and GPU, for copies to work on."""

    def __init__(self, seed: int, device_id: int) -> None:
        self.device_id = device_id
        self.target: Target = driver.device_target(device_id)
        random = np.random.default_rng(seed)
        self.initial = random.integers(0, 256, ARENA_BYTES, np.uint8)
        room = np.empty(ARENA_BYTES + 256, np.uint8)
        start = -room.ctypes.data % 256
        self.host = room[start : start + ARENA_BYTES]
        self.host[:] = self.initial
        self._stack = ExitStack()

    def __enter__(self) -> Arena:
        self.device = self._stack.enter_context(DeviceBytes(ARENA_BYTES, self.device_id))
        self.device.put(self.initial)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
