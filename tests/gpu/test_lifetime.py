"""A map keeps its tensor alive, and a launch needs the map."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from user_kernel import double, kernel, map_of

SHAPE = 64, 64


@pytest.fixture
def x(torch):
    return torch.arange(64 * 64, dtype=torch.float32, device="cuda").reshape(SHAPE)


def test_a_map_may_go_while_its_launch_still_waits(torch, x):
    expected = x * 2
    kernel()
    tensor_map = map_of(x)
    torch.cuda._sleep(100_000_000)  # cycles of a sleep on the same stream: tens of milliseconds
    double(tensor_map, torch.cuda.current_stream().cuda_stream)
    gone = weakref.ref(tensor_map)
    del tensor_map
    gc.collect()
    assert gone() is None
    assert torch.equal(x, expected)  # the launch took the 128 bytes by value


def test_an_array_of_a_maps_bytes_keeps_the_map(torch, x):
    tensor_map = map_of(x)
    alive, storage = weakref.ref(tensor_map), tensor_map.numpy()
    before = bytes(tensor_map)
    del tensor_map
    gc.collect()
    assert alive() is not None
    assert (storage.tobytes(), storage.flags.writeable) == (before, False)


def test_a_tensor_lives_as_long_as_a_map_of_it(torch):
    gc.collect()
    before = torch.cuda.memory_allocated()
    x = torch.ones(SHAPE, device="cuda")
    tensor = weakref.ref(x)
    tensor_map = map_of(x)
    del x
    gc.collect()
    assert tensor() is tensor_map.tensor
    assert torch.cuda.memory_allocated() == before + 64 * 64 * 4
    del tensor_map
    gc.collect()
    assert tensor() is None
    assert torch.cuda.memory_allocated() == before


def test_a_temporary_is_not_given_to_the_next_tensor_while_its_map_lives(torch):
    tensor_map = map_of(torch.ones(SHAPE, device="cuda"))
    others = [torch.full(SHAPE, float(n), device="cuda") for n in range(2, 6)]
    assert tensor_map.global_address not in [other.data_ptr() for other in others]
    double(tensor_map, torch.cuda.current_stream().cuda_stream)
    assert torch.equal(tensor_map.tensor, torch.full(SHAPE, 2.0, device="cuda"))
    assert [float(other.unique()) for other in others] == [2, 3, 4, 5]


def test_with_address_keeps_the_new_tensor_and_lets_the_old_one_go(torch):
    old, new = torch.ones(SHAPE, device="cuda"), torch.ones(SHAPE, device="cuda")
    old_alive, new_alive = weakref.ref(old), weakref.ref(new)
    tensor_map = map_of(old).with_address(new)
    del old, new
    gc.collect()
    assert old_alive() is None
    assert new_alive() is tensor_map.tensor


def test_a_cupy_array_lives_as_long_as_a_map_of_it(cupy):
    pool = cupy.get_default_memory_pool()
    gc.collect()
    before = pool.used_bytes()
    tensor_map = map_of(cupy.ones(SHAPE, dtype=np.float32))
    gc.collect()
    assert pool.used_bytes() == before + 64 * 64 * 4
    del tensor_map
    gc.collect()
    assert pool.used_bytes() == before
