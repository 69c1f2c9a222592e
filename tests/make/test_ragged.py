"""Ragged maps compared with NumPy slices: one map for all slices along one dimension."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from ragged_cases import change_tile, expected_tile, numbered, ragged_map, random_case

import tma_dlpack as tma
from tma_dlpack import ragged, ragged_coords


def bytes_of(x):
    return x.reshape(-1).view(np.uint8)


def host_map(x, box_sizes, dim=0):
    arguments = ragged(x, box_sizes, dim)
    arguments["allow"] += ("BOX_IN_SHAPE",)  # of the other dimensions
    return tma.make_tma_descriptor(x, **arguments)


def bare_map(x, box_sizes, dim=0):
    return ragged_map(x, x.ctypes.data, box_sizes, dim, encoder="model")


CASES = st.integers(0, 1 << 64).map(lambda seed: random_case(Random(seed)))


@examples(400)
@given(CASES)
def test_a_tile_of_a_slice_is_the_tile_of_the_numpy_slice(case):
    x = numbered(case.shape, case.dtype)
    tensor_map = host_map(x, case.box, case.dim)
    at = ragged_coords(tensor_map, case.offset, case.size, case.coords)
    tile = tma.load_tile(tensor_map, at, memory=bytes_of(x)).array[0, 0]
    np.testing.assert_array_equal(tile, expected_tile(case.slice_of(x), case.box, case.coords))


@pytest.mark.parametrize("data_type", ["UINT8", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"])
def test_a_tile_of_a_slice_of_packed_values_is_the_tile_of_the_numpy_slice(data_type):
    x, box = numbered((27, 192), np.uint8), (8, 128)
    options = {"data_type": data_type, "target": "sm_100"}
    tensor_map = tma.make_tma_descriptor(x, box, ragged=0, **options)
    tile = tma.load_tile(tensor_map, ragged_coords(tensor_map, 5, 9, (2, 0)))
    ordinary = tma.make_tma_descriptor(x[5:14], box, **options)
    np.testing.assert_array_equal(tile.array[0, 0], tma.load_tile(ordinary, (2, 0)).array)
    assert not tile.filled[0, 0, :7].any()
    assert tile.filled[0, 0, 7:].all()


@examples(300)
@given(CASES, st.sampled_from(["store", "add"]))
def test_a_store_or_reduction_changes_the_slice_alone(case, change):
    if case.dtype == np.uint8:
        change = "store"  # the hardware has no reduction of bytes
    coords = tuple(max(0, c) for c in case.coords)
    x = numbered(case.shape, case.dtype)
    expected = x.copy()
    change_tile(case.slice_of(expected), case.box, coords, change)
    tensor_map = host_map(x, case.box, case.dim)
    at = ragged_coords(tensor_map, case.offset, case.size, coords)
    data = np.full((1, 1, 1, *case.box), 7, case.dtype)
    if change == "store":
        tma.store_tile(tensor_map, at, data, memory=bytes_of(x))
    else:
        tma.reduce_tile(tensor_map, at, data, change, memory=bytes_of(x))
    np.testing.assert_array_equal(x, expected)


def test_one_map_serves_the_uneven_slices_of_eight_experts():
    sizes = [5, 0, 17, 64, 1, 33, 8, 0]
    offsets = np.cumsum([0, *sizes])
    x = numbered((sum(sizes), 32), np.float32)
    tensor_map = host_map(x, (16, 32))
    for offset, size in zip(offsets, sizes, strict=False):
        rows = [
            tma.load_tile(
                tensor_map, ragged_coords(tensor_map, int(offset), size, (row, 0)),
                memory=bytes_of(x),
            ).array[0, 0]
            for row in range(0, size, 16)
        ]  # fmt: skip
        loaded = np.concatenate([np.empty((0, 32), np.float32), *rows])
        np.testing.assert_array_equal(loaded[:size], x[offset : offset + size])
        assert not loaded[size:].any()


def test_a_tile_of_the_last_slice_touches_nothing_past_the_tensor():
    whole = numbered((12, 16), np.float32)
    x = whole[:10]
    tensor_map = host_map(x, (8, 16))
    before = whole.copy()
    memory = whole.reshape(-1).view(np.uint8)[: 10 * 64]
    at = ragged_coords(tensor_map, 7, 3, (0, 0))
    tile = tma.load_tile(tensor_map, at, memory=memory)
    np.testing.assert_array_equal(tile.array[0, 0, :3], before[7:10])
    assert tile.filled[0, 0, 3:].all()
    tma.store_tile(tensor_map, at, np.zeros((1, 1, 8, 16), np.float32), memory=memory)
    before[7:10] = 0
    np.testing.assert_array_equal(whole, before)


def test_a_slice_outside_memory_is_refused_with_the_bytes_that_it_touches():
    x = numbered((10, 16), np.float32)
    tensor_map = bare_map(x, (4, 16))
    at = ragged_coords(tensor_map, 8, 4, (0, 0))  # the bounds are unknown
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.load_tile(tensor_map, at, memory=bytes_of(x))
    (violation,) = caught.value.violations
    assert violation.rule == "COPY_OUTSIDE_MEMORY"
    assert violation.found == "the copy touches bytes 512 to 768 of memory, which has 640"


@pytest.mark.parametrize("make", [bare_map, host_map])
def test_the_map_of_a_tensor_is_that_of_its_address(make):
    x = numbered((10, 6, 16), np.float32)
    tensor_map = make(x, (2, 3, 8), dim=1)
    assert tensor_map.global_dim == (16, 1 << 30, 10, 0x7FFF0000, 0x7FFF0000)
    assert tensor_map.global_strides == (64, 384, 64, (1 << 36) - 64)
    assert tensor_map.box_dim == (8, 3, 2, 1, 1)


def test_slices_of_a_padded_tensor_are_loaded_stored_and_added():
    whole = np.arange(1, 100 * 72 + 1, dtype=np.float32).reshape(100, 72)
    x, expected = whole[:, :64], whole.copy()
    tensor_map = tma.make_tma_descriptor(x, **ragged(x, (16, 32)), swizzle="bytes128")
    at = ragged_coords(tensor_map, 90, 10, (0, 32))
    tile = tma.load_tile(tensor_map, at)
    np.testing.assert_array_equal(tile.array[0, 0, :10], expected[90:, 32:64])
    assert tile.filled[0, 0, 10:].all()
    tma.store_tile(tensor_map, at, tile.array + 1)
    tma.reduce_tile(tensor_map, ragged_coords(tensor_map, 3, 2, (0, 0)), tile.array * 0 + 5, "add")
    expected[90:, 32:64] += 1
    expected[3:5, :32] += 5
    np.testing.assert_array_equal(whole, expected)


@pytest.mark.parametrize(("offset", "size"), [(95, 6), (101, 0), (0, 101)])
def test_a_slice_outside_the_tensor_is_refused(offset, size):
    x = np.zeros((100, 64), np.float32)
    tensor_map = tma.make_tma_descriptor(x, **ragged(x, (16, 32)))
    assert ragged_coords(tensor_map, 95, 5, (0, 0))[1] == 100
    with pytest.raises(tma.TmaPreconditionError, match="within the 100 rows along dimension 0"):
        ragged_coords(tensor_map, offset, size, (0, 0))


def test_the_arguments_of_a_padded_tensor_along_its_middle_dimension():
    x = np.zeros((6, 100, 40), np.float16)[..., :32]
    assert ragged(x, (2, 8, 32), dim=-2) == {
        "shape": (0x7FFF0000, 0x7FFF0000, 6, 1 << 30, 32),
        "strides": ((1 << 34) - 40, 40, 4000, 40, 1),
        "box_sizes": (1, 1, 2, 8, 32),
        "allow": ("STRIDE_UNIQUE",),
    }


# --- Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "box_sizes", "dim", "argument", "words"),
    [
        ((4,), (4,), 0, "tensor", "have 2 or 3 dimensions"),
        ((2, 2, 2, 4), (1, 1, 1, 4), 0, "tensor", "a ragged one needs two of them"),
        ((8, 4), (4,), 0, "box_sizes", "have 2, one per dimension"),
        ((8, 4), 4, 0, "box_sizes", "be a sequence of ints"),
        ((8, 4), (4, 4), 1, "dim", "not be the innermost"),
        ((8, 4), (4, 4), -1, "dim", "not be the innermost"),
        ((8, 4), (4, 4), 2, "dim", "be -2..1"),
        ((8, 4), (4, 4), None, "dim", "be a dimension of the tensor"),
    ],
)
def test_what_can_not_be_ragged_is_refused(shape, box_sizes, dim, argument, words):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        ragged(np.zeros(shape, np.float32), box_sizes, dim)
    (violation,) = caught.value.violations
    assert violation.argument == argument
    assert words in violation.limit


@pytest.mark.parametrize(
    ("offset", "size", "coords", "argument"),
    [
        (-1, 4, (0, 0), "offset"),
        (0, -1, (0, 0), "offset"),
        (0x7FFF0000 - 4, 4, (0, 0), "offset"),
        (0, (1 << 30) + 1, (0, 0), "offset"),
        (1.5, 4, (0, 0), "offset"),
        (0, 4, (-1, 0), "coords"),
        (0, 4, (0,), "coords"),
        (0, 4, 0, "coords"),
    ],
)
def test_a_slice_or_tile_that_can_not_be_is_refused(offset, size, coords, argument):
    tensor_map = bare_map(numbered((10, 16), np.float32), (4, 16))
    assert ragged_coords(tensor_map, 6, 4, (3, -8)) == (1 << 30, 10, (1 << 30) - 1, -8)
    with pytest.raises(tma.TmaPreconditionError) as caught:
        ragged_coords(tensor_map, offset, size, coords)
    assert caught.value.violations[0].argument == argument


@pytest.mark.parametrize(
    "tensor_map",
    [
        lambda: np.zeros((10, 16), np.float32),
        lambda: tma.make_tma_descriptor(np.zeros((10, 16), np.float32), (4, 16)),
        lambda: tma.make_tma_descriptor(np.zeros((2, 2, 10, 16), np.float32), (1, 1, 4, 16)),
        lambda: tma.make_im2col_descriptor(np.zeros((2, 8, 8), np.float32), (0,), (0,), 8, 4),
    ],
    ids=["a tensor", "a matrix", "rank 4", "im2col"],
)
def test_another_map_is_refused(tensor_map):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        ragged_coords(tensor_map(), 0, 4, (0, 0))
    (violation,) = caught.value.violations
    assert violation.argument == "tensor_map"
    assert violation.limit == "it must be a map that was made with tma.ragged"
