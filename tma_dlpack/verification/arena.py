"""Host memory and GPU memory of `verify`, and the calls that encode maps of this memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.verification.core import EncodeArguments, MapKind, driver, launch, tma
from tma_dlpack.verification.random_copies import ARENA_BYTES, Copy, keywords_of
from tma_dlpack.verification.random_operands import OperandLayout

SIMULATOR = tma.backend("simulator")


class Arena(AbstractContextManager["Arena"]):
    """Host memory and GPU memory with equal random bytes, which copies read and write."""

    def __init__(self, seed: int, device_id: int) -> None:
        self.device_id = device_id
        self.target: tma.Target = driver.device_target(device_id)
        random = np.random.default_rng(seed)
        self.initial: npt.NDArray[np.uint8] = random.integers(0, 256, ARENA_BYTES, np.uint8)
        # The offset of a tensor in the arena is a multiple of 32 bytes. Align the start of the
        # arena, so that the tensor's address is a multiple of 32 bytes, too.
        room = np.empty(ARENA_BYTES + 256, np.uint8)
        start = -room.ctypes.data % 256
        self.host: npt.NDArray[np.uint8] = room[start : start + ARENA_BYTES]
        self.host[:] = self.initial
        self._stack = ExitStack()

    def __enter__(self) -> Arena:
        self.device: launch.DeviceBytes = self._stack.enter_context(
            launch.DeviceBytes(ARENA_BYTES, self.device_id)
        )
        self.device.put(self.initial)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def maps(self, arguments: EncodeArguments, start: int) -> tuple[tma.TensorMap, tma.TensorMap]:
        """Return (map of a tensor in GPU memory, map of this tensor in host memory).

        The driver encodes the first map. The tensor begins at byte `start` of the arena.
        """
        on_device = ENCODERS[arguments.kind](
            **keywords_of(arguments),
            global_address=self.device.address + start,
            target=self.target,
            encoder="driver",
        )
        return on_device, on_device.with_address(self.host.ctypes.data + start)

    def simulated(self, on_host: tma.TensorMap, load: Copy | OperandLayout) -> tma.Tile:
        """Load a tile from the arena's host memory with the simulator."""
        return SIMULATOR.load_tile(
            on_host, load.coords, memory=self.host, smem_offset=load.smem_offset
        )

    def run(
        self,
        kernel: tuple[str, ...],
        threads: int,
        smem_bytes: int,
        values: Sequence[bytes],
        arrays: Sequence[npt.NDArray[Any]],
    ) -> None:
        """Run one block of a kernel on device copies of the arrays, and copy the arrays back.

        `kernel` is (name of a file in kernels/, name of a kernel in this file). An optional third
        entry is a text, which is inserted before the source of the file. The kernel's arguments are
        `values`, then the addresses of the device copies of `arrays`. These addresses are multiples
        of 128 bytes.
        """
        file, name, *head = kernel
        library = launch.compile_packaged(file, __package__, self.target, *head)
        starts = [*accumulate((-(-array.nbytes // 128) * 128 for array in arrays), initial=0)]
        stream = launch.LEGACY_DEFAULT_STREAM
        # The last entry of `starts` is the end of the last array.
        with launch.scratch(starts.pop()) as room:
            addresses = [room + start for start in starts]
            for address, array in zip(addresses, arrays, strict=True):
                launch.upload(address, array, stream)
            inside = [*values, *(struct.pack("<Q", address) for address in addresses)]
            arguments = [launch.by_value(value) for value in inside]
            function = library.kernel(name, self.device_id)
            launch.launch(function, 1, threads, smem_bytes, stream, arguments)
            for address, array in zip(addresses, arrays, strict=True):
                launch.download(array, address, stream)
            launch.synchronize(stream)

    def reset(self) -> None:
        """Restore the initial bytes of the arena, on the host and on the GPU."""
        self.host[:] = self.initial
        self.device.put(self.initial)


# --- Bytes --------------------------------------------------------------------------------------


def byte_difference(what: str, simulated: npt.NDArray[Any], real: npt.NDArray[Any]) -> str | None:
    """Return a text with the first difference and the number of different bytes, or None."""
    places = np.flatnonzero(simulated != real)
    if not len(places):
        return None
    at = int(places[0])
    return (
        f"{what} differs in {len(places)} bytes, first at {at}: the simulator has "
        f"{int(simulated[at]):#04x}, the hardware {int(real[at]):#04x}"
    )


# --- Calls --------------------------------------------------------------------------------------

ENCODERS: dict[MapKind, Callable[..., tma.TensorMap]] = {
    "tiled": tma.driver_encode_tiled,
    "im2col": tma.driver_encode_im2col,
    "im2col_wide": tma.driver_encode_im2col_wide,
}


def written(kind: MapKind, keywords: Mapping[str, Any], target: tma.Target, *more: str) -> str:
    """Return a call of an encoder as Python source.

    Enum members are written as numbers. The texts `more` are further arguments.
    """
    plain = {name: int(v) if isinstance(v, int) else v for name, v in keywords.items()}
    inside = [*(f"{name}={value!r}" for name, value in plain.items()), *more]
    call = f"tma_dlpack.{ENCODERS[kind].__name__}"
    return f"{call}({', '.join(inside)}, target={target.name!r})"
