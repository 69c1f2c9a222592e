"""Several GPUs: a copy runs where the tensor lies, whatever is current."""

from __future__ import annotations

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


def test_a_tensor_on_the_second_gpu_is_copied_there_while_the_first_is_current(torch):
    torch.cuda.set_device(0)
    tensor = torch.from_numpy(MATRIX.copy()).to("cuda:1")
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16))
    assert tensor_map.encoder == "driver"
    np.testing.assert_array_equal(tma.load_tile(tensor_map, (8, 16)).array, MATRIX[8:16, 16:32])
    tma.store_tile(tensor_map, (0, 0), np.zeros((8, 16), np.float32))
    assert not tensor[:8, :16].any()
    assert driver.current_device() == torch.cuda.current_device() == 0


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
