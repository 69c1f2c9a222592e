"""The memory that `verify` copies from and to, on the host and on the GPU, and maps of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack

import numpy as np

from tma_dlpack import driver
from tma_dlpack.copies.device_memory import DeviceBytes
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.verification.driver_calls import ENCODERS, keywords_of
from tma_dlpack.verification.random_copies import ARENA_BYTES


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

    def maps(self, arguments: EncodeArguments, start: int) -> tuple[TensorMap, TensorMap]:
        """Give the driver's map of a tensor on the GPU, and the same map on the host.

        The tensor begins `start` bytes after the arena does.
        """
        on_device = ENCODERS[arguments.kind](
            **keywords_of(arguments),
            global_address=self.device.address + start,
            target=self.target,
            encoder="driver",
        )
        return on_device, on_device.with_address(self.host.ctypes.data + start)

    def reset(self) -> None:
        """Write the initial bytes again, on both sides."""
        self.host[:] = self.initial
        self.device.put(self.initial)
