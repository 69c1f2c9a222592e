"""Ragged maps on the hardware: loads, stores and reductions of random slices are right."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from ragged_cases import change_tile, expected_tile, numbered, ragged_map, random_case

import tma_dlpack as tma
from tma_dlpack.copies.launch import DeviceBytes


def on_gpu(case, room):
    """Copy a case's tensor to the GPU; return the host tensor and the map of the GPU tensor."""
    x = numbered(case.shape, case.dtype)
    room.put(x.reshape(-1).view(np.uint8))
    return x, ragged_map(x, room.address, case.box, case.dim, encoder="driver")


@pytest.fixture(scope="module")
def room(_needs_a_gpu):
    with DeviceBytes(1 << 16) as memory:
        yield memory


def part_of(room, size_bytes):
    """The memory is exactly the tensor, so that a copy outside of the tensor would be refused."""
    interface = {**room.__cuda_array_interface__, "shape": (size_bytes,)}
    return type("Part", (), {"__cuda_array_interface__": interface})()


def test_random_tiles_of_random_slices_are_those_of_numpy(room):
    rng, wrong = Random(20261121), []
    for _ in range(600):
        case = random_case(rng)
        x, tensor_map = on_gpu(case, room)
        at = tma.ragged_coords(tensor_map, case.offset, case.size, case.coords)
        memory = part_of(room, x.nbytes)
        tile = tma.load_tile(tensor_map, at, backend="cuda", memory=memory)
        expected = expected_tile(case.slice_of(x), case.box, case.coords)
        if not np.array_equal(tile.array[0, 0], expected):
            wrong.append(case)
    assert wrong == []


@pytest.mark.parametrize("change", ["store", "add"])
def test_random_stores_and_reductions_change_the_slice_alone(room, change):
    rng, wrong, done = Random(change), [], 0
    while done < 200:
        case = random_case(rng)
        if case.dtype == np.uint8 and change == "add":
            continue  # the hardware has no reduction of bytes
        case = case._replace(coords=tuple(max(0, c) for c in case.coords))
        x, tensor_map = on_gpu(case, room)
        before = room.get()
        at = tma.ragged_coords(tensor_map, case.offset, case.size, case.coords)
        where = {"backend": "cuda", "memory": part_of(room, x.nbytes)}
        data = np.full((1, 1, 1, *case.box), 7, case.dtype)
        if change == "store":
            tma.store_tile(tensor_map, at, data, **where)
        else:
            tma.reduce_tile(tensor_map, at, data, change, **where)
        change_tile(case.slice_of(x), case.box, case.coords, change)
        before[: x.nbytes] = x.reshape(-1).view(np.uint8)
        if not np.array_equal(room.get(), before):
            wrong.append(case)
        done += 1
    assert wrong == []


def test_a_slice_outside_the_tensor_is_refused_before_anything_is_launched(room):
    x = np.ones((10, 16), np.float32)
    tensor_map = ragged_map(x, room.address, (4, 16), encoder="driver")
    memory = part_of(room, x.nbytes)
    inside = tma.ragged_coords(tensor_map, 6, 4, (0, 0))
    assert tma.load_tile(tensor_map, inside, backend="cuda", memory=memory).written.all()
    outside = tma.ragged_coords(tensor_map, 7, 4, (0, 0))
    with pytest.raises(tma.TmaPreconditionError, match="touches bytes 448 to 704"):
        tma.load_tile(tensor_map, outside, backend="cuda", memory=memory)


def test_one_map_of_a_torch_tensor_serves_eight_experts(torch):
    sizes = [5, 0, 17, 64, 1, 33, 8, 0]
    x = torch.randn(sum(sizes), 72, device="cuda", dtype=torch.bfloat16)[:, :64]
    tensor_map = tma.make_tma_descriptor(x, **tma.ragged(x, (16, 64)), swizzle="bytes128")
    offset = 0
    for size in sizes:
        starts = [tma.ragged_coords(tensor_map, offset, size, (r, 0)) for r in range(0, size, 16)]
        tiles = tma.load_tiles(tensor_map, starts).array.reshape(-1, 64)
        words = x[offset : offset + size].view(torch.int16).cpu().numpy().view(np.uint16)
        np.testing.assert_array_equal(tiles[:size], words)
        assert not tiles[size:].any()
        offset += size
    with pytest.raises(tma.TmaPreconditionError, match="within the 128 rows"):
        tma.ragged_coords(tensor_map, 127, 2, (0, 0))
