"""On the hardware, maps that other programs made copy the same bytes as the driver's maps."""

from __future__ import annotations

import numpy as np
import pytest
from foreign_maps import foreign_forms, random_coords, random_map
from on_device import DeviceMemory

import tma_dlpack as tma
from tma_dlpack import driver


@pytest.fixture(scope="module")
def room(_needs_a_gpu):
    if not driver.device_target(0).has_model:
        pytest.skip("the layout of this GPU's maps is not measured")
    contents = np.random.default_rng(65).integers(0, 256, 1 << 18, dtype=np.uint8)
    with DeviceMemory(contents) as memory:
        yield memory


def test_loads_and_stores_with_the_bits_equal_those_of_the_drivers_map(room):
    rng, differing = np.random.default_rng(85), []
    for n in range(60):
        ours = random_map(rng, room.address, encoder="driver")
        coords = random_coords(rng, ours.rank)
        inside = tuple(max(0, c) for c in coords)
        where = {"backend": "cuda", "memory": room.array}
        tile = tma.load_tile(ours, coords, **where)
        data = np.full(tile.array.shape, n + 1, np.uint16)
        tma.store_tile(ours, inside, data, **where)
        stored = room.read_all()
        for form, foreign in enumerate(foreign_forms(bytes(ours))):
            read = tma.TensorMap.from_bytes(foreign)
            room.write_all()
            same = np.array_equal(tma.load_tile(read, coords, **where).smem, tile.smem)
            tma.store_tile(read, inside, data, **where)
            if not same or not np.array_equal(room.read_all(), stored):
                differing.append((n, form))
        room.write_all()
    assert differing == []
