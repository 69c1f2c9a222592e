"""Global memory on the GPU, with which the simulator's tests also run on the hardware."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from copy_cases import GLOBAL_BYTES

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.copies.cuda import CudaBackend
from tma_dlpack.copies.launch import DeviceBytes
from tma_dlpack.copies.memory import host_extent_of
from tma_dlpack.copies.simulator import SimulatorBackend
from tma_dlpack.tables import bits


class DeviceMemory:
    """`copy_cases.HostMemory` on the GPU: the recorded global memory, for `memory=`."""

    def __init__(self, contents: np.ndarray = GLOBAL_BYTES) -> None:
        self.array = DeviceBytes(len(contents))
        self._contents = contents

    def __enter__(self) -> DeviceMemory:
        self.array.__enter__()
        self.address = self.array.address
        self.write_all()
        return self

    def __exit__(self, *exception) -> None:
        self.array.__exit__()

    def write_all(self) -> None:
        self.array.put(self._contents)

    def read_all(self) -> np.ndarray:
        return self.array.get()


class Part:
    """A range of the bytes of a `DeviceBytes`."""

    def __init__(self, whole: DeviceBytes, start: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size_bytes,),
            "data": (whole.address + start, False),
        }


class OnDevice(SimulatorBackend):
    """The simulator's functions on host tensors, executed by the hardware on copies of the tensors.

    The host's bytes go to the GPU, `CudaBackend` copies there, and for stores they come back.
    Refusals about host memory are the simulator's; all other refusals are the CUDA backend's. A map
    of a GPU that this machine lacks skips the test.
    """

    cuda = CudaBackend()

    def load(self, request, memory, stream=None):
        return self._run(request, memory, False, lambda r, m: self.cuda.load(r, m))

    def store(self, request, data, op, memory, stream=None):
        self._run(request, memory, True, lambda r, m: self.cuda.store(r, data, op, m))

    def _run(self, request, memory, write, copy):
        tensor_map = request.tensor_map
        here = driver.device_target(0)
        if tensor_map.target.compute_capability != here.compute_capability:
            pytest.skip(f"a map of {tensor_map.target}; the GPU is {here}")
        if tensor_map.kind == "im2col_wide":
            pytest.skip("im2col-wide copies need sm_100")
        extent = host_extent_of(tensor_map, memory, write=write)
        start = extent.raw.__array_interface__["data"][0] % 256
        end = start + len(extent.raw)
        with DeviceBytes(end + 1) as room:  # CUDA also knows the address of an empty allocation
            contents = np.zeros(room.size_bytes, np.uint8)
            contents[start:end] = extent.raw
            room.put(contents)
            address = room.address + start + extent.origin
            mirrored = tma.TensorMap.from_bytes(bits.encode(tensor_map.arguments, address))
            on_device = dataclasses.replace(request, tensor_map=mirrored)
            result = copy(on_device, Part(room, start, len(extent.raw)))
            if write:
                extent.raw[:] = room.get()[start:end]
        return result
