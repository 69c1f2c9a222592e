"""What `verify` works on: memory on the host and on the GPU, and the calls that make its maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np

from tma_dlpack import driver
from tma_dlpack.copies.launch import DeviceBytes
from tma_dlpack.make.driver_words import (
    driver_encode_im2col,
    driver_encode_im2col_wide,
    driver_encode_tiled,
)
from tma_dlpack.tables.arguments import EncodeArguments, MapKind
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.verification.random_copies import ARENA_BYTES, keywords_of


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
        """Return the driver's map of a tensor on the GPU, and the same map on the host.

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


# --- Calls --------------------------------------------------------------------------------------

ENCODERS: dict[MapKind, Callable[..., TensorMap]] = {
    "tiled": driver_encode_tiled,
    "im2col": driver_encode_im2col,
    "im2col_wide": driver_encode_im2col_wide,
}


def written(kind: MapKind, keywords: Mapping[str, Any], target: Target, *more: str) -> str:
    """Write a call as Python; enum members by their numbers, `more` as it is."""
    plain = {name: int(v) if isinstance(v, int) else v for name, v in keywords.items()}
    inside = [*(f"{name}={value!r}" for name, value in plain.items()), *more]
    call = f"tma_dlpack.{ENCODERS[kind].__name__}"
    return f"{call}({', '.join(inside)}, target={target.name!r})"
