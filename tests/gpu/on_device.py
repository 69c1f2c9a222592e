"""Global memory on the GPU for the tests of the simulator, so that they run on the hardware too."""

from __future__ import annotations

import numpy as np
import pytest
from copy_cases import GLOBAL_BYTES

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.copies.cuda import CudaBackend
from tma_dlpack.copies.device_memory import DeviceBytes
from tma_dlpack.copies.host_memory import storage_of
from tma_dlpack.copies.reductions import reduction_of
from tma_dlpack.copies.request import load_request, store_request
from tma_dlpack.copies.simulator import SimulatorBackend
from tma_dlpack.encoding import bits


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
    """Some of the bytes of a `DeviceBytes`."""

    def __init__(self, whole: DeviceBytes, start: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size_bytes,),
            "data": (whole.address + start, False),
        }


class OnDevice(SimulatorBackend):
    """The simulator's verbs on host tensors, carried out by the hardware on a copy of them.

    The host's bytes go to the GPU, `CudaBackend` copies there, and for stores they come back. What
    the simulator says about host memory is said here too; everything else is the CUDA backend's.
    Maps of a GPU that is not here skip the test.
    """

    cuda = CudaBackend()

    def load_tile(self, tensor_map, coords, *, im2col_offsets=None, memory=None, smem_offset=0):
        load_request(tensor_map, coords, im2col_offsets, smem_offset, many=False)
        return self._run(
            tensor_map, memory, False,
            lambda tm, m: self.cuda.load_tile(
                tm, coords, im2col_offsets=im2col_offsets, memory=m, smem_offset=smem_offset
            ),
        )  # fmt: skip

    def load_tiles(self, tensor_map, coords, *, im2col_offsets=None, memory=None, smem_offset=0):
        load_request(tensor_map, coords, im2col_offsets, smem_offset, many=True)
        return self._run(
            tensor_map, memory, False,
            lambda tm, m: self.cuda.load_tiles(
                tm, coords, im2col_offsets=im2col_offsets, memory=m, smem_offset=smem_offset
            ),
        )  # fmt: skip

    def store_tile(self, tensor_map, coords, data, *, memory=None, smem_offset=0):
        store_request(tensor_map, coords, smem_offset)
        self._run(
            tensor_map, memory, True,
            lambda tm, m: self.cuda.store_tile(
                tm, coords, data, memory=m, smem_offset=smem_offset
            ),
        )  # fmt: skip

    def reduce_tile(self, tensor_map, coords, data, op, *, memory=None, smem_offset=0):
        store_request(tensor_map, coords, smem_offset)
        reduction_of(tensor_map.data_type, op)
        self._run(
            tensor_map, memory, True,
            lambda tm, m: self.cuda.reduce_tile(
                tm, coords, data, op, memory=m, smem_offset=smem_offset
            ),
        )  # fmt: skip

    def _run(self, tensor_map, memory, write, copy):
        here = driver.device_target(0)
        if tensor_map.target.compute_capability != here.compute_capability:
            pytest.skip(f"a map of {tensor_map.target}; the GPU is {here}")
        if tensor_map.kind == "im2col_wide":
            pytest.skip("im2col-wide copies need sm_100")
        storage = storage_of(tensor_map, memory, write=write)
        start = storage.raw.__array_interface__["data"][0] % 256
        with DeviceBytes(start + len(storage.raw)) as room:
            contents = np.zeros(room.size_bytes, np.uint8)
            contents[start:] = storage.raw
            room.put(contents)
            address = room.address + start + storage.origin
            mirrored = tma.TensorMap.from_bytes(bits.encode(tensor_map.arguments, address))
            result = copy(mirrored, Part(room, start, len(storage.raw)))
            if write:
                storage.raw[:] = room.get()[start:]
        return result
