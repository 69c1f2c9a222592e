"""Several GPUs: a copy runs on the tensor's GPU, not on the current GPU."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack import driver

MATRIX = np.arange(40 * 64, dtype=np.float32).reshape(40, 64)


@pytest.fixture(autouse=True)
def _needs_two_gpus(_needs_a_gpu):
    if len(driver.status().devices) < 2:
        pytest.skip("there is one GPU")
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.set_device(0)  # the current GPU in later tests


def test_a_tensor_on_the_second_gpu_is_copied_there_while_the_first_is_current(torch):
    torch.cuda.set_device(0)
    tensor = torch.from_numpy(MATRIX.copy()).to("cuda:1")
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16))
    assert tensor_map.encoder == "driver"
    np.testing.assert_array_equal(tma.load_tile(tensor_map, (8, 16)).array, MATRIX[8:16, 16:32])
    tma.store_tile(tensor_map, (0, 0), np.zeros((8, 16), np.float32))
    assert not tensor[:8, :16].any()
    assert driver.current_device() == torch.cuda.current_device() == 0


OPTIONS = [
    {"target": "sm_90"},
    {"allow": ("BOX_IN_SHAPE",)},
    {"rules": "driver"},
    {"data_type": "TFLOAT32"},
    {"shape": (20, 64), "strides": (128, 1), "offset": 64},
    {"split_inner": True},
    {"split_inner": True, "ragged": 0},
]


@pytest.mark.parametrize("given", OPTIONS, ids=str)
@pytest.mark.parametrize("current", [0, 1])
def test_every_option_is_encoded_by_the_tensors_gpu_whatever_is_current(torch, given, current):
    torch.cuda.set_device(current)
    host = tma.make_tma_descriptor(MATRIX, (8, 32), swizzle="bytes128", **given)
    for device_id in (0, 1):
        tensor = torch.from_numpy(MATRIX.copy()).to(f"cuda:{device_id}")
        made = tma.make_tma_descriptor(tensor, (8, 32), swizzle="bytes128", **given)
        (one,) = tma.make_tma_descriptors([tensor], (8, 32), swizzle="bytes128", **given)
        assert (made.encoder, made.launchable, one) == ("driver", True, made)
        assert made.device.device_id == device_id
        assert bytes(made)[8:] == bytes(host)[8:]  # two GPUs of one kind, as measured
        assert made.arguments == host.arguments
    assert driver.current_device() == torch.cuda.current_device() == current


def test_managed_memory_belongs_to_the_gpu_that_allocated_it():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for owner in (0, 1):
        with cupy.cuda.Device(owner):
            x = cupy.ndarray((40, 64), np.float32, cupy.cuda.malloc_managed(40 * 64 * 4))
        with cupy.cuda.Device(1 - owner):
            made = tma.make_tma_descriptor(x, (8, 32), swizzle="bytes128")
        assert (made.encoder, made.launchable) == ("driver", True)
        assert driver.pointer_device(made.global_address) == owner


def test_the_gpu_of_an_address_is_known(torch):
    for device_id in (0, 1):
        tensor = torch.zeros(64, device=f"cuda:{device_id}")
        assert driver.pointer_device(tensor.data_ptr()) == device_id


def test_threads_on_two_gpus_do_not_disturb_each_other(torch):
    maps = [
        tma.make_tma_descriptor(torch.full((64, 64), float(i), device=f"cuda:{i % 2}"), (8, 64))
        for i in range(6)
    ]
    wrong = []

    def load(value, tensor_map):
        for _ in range(20):
            if not (tma.load_tile(tensor_map, (0, 0)).array == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=load, args=pair) for pair in enumerate(maps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
