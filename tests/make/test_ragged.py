"""Ragged maps against plain NumPy slices: one map for all slices along one dimension."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack import ragged, ragged_coords

TYPES = {"FLOAT32": np.float32, "FLOAT16": np.float16, "UINT8": np.uint8, "FLOAT64": np.float64}


def ragged_map(x, box_sizes, dim=0, **options):
    """Make the map at the tensor's bare address; `memory=` is then `bytes_of(x)`."""
    made = ragged(x, box_sizes, dim)
    name = next(name for name, kind in TYPES.items() if kind == x.dtype)
    strides = [x.itemsize * stride for stride in made["strides"][-2::-1]]
    return tma.driver_encode_tiled(
        name, x.ndim + 2, x.ctypes.data, made["shape"][::-1], strides, made["box_sizes"][::-1],
        (1,) * (x.ndim + 2), encoder="model", **options,
    )  # fmt: skip


def bytes_of(x):
    return x.base.reshape(-1).view(np.uint8) if x.base is not None else x.view(np.uint8).reshape(-1)


def numbered(shape, dtype):
    x = np.empty(np.prod(shape) + 128, dtype)
    start = -x.ctypes.data % 128 // x.itemsize
    x = x[start : start + np.prod(shape)]
    x[:] = np.arange(1, x.size + 1) % 251
    return x.reshape(shape)


@st.composite
def slices(draw):
    """A tensor, a box, the ragged dimension, a slice of it, and where a tile of it begins."""
    dtype = draw(st.sampled_from(sorted(TYPES.values(), key=str)))
    step = 16 // np.dtype(dtype).itemsize
    rank = draw(st.integers(2, 3))
    shape = (*draw(st.tuples(*[st.integers(1, 12)] * (rank - 1))), step * draw(st.integers(1, 4)))
    box = (*draw(st.tuples(*[st.integers(1, 8)] * (rank - 1))), step * draw(st.integers(1, 4)))
    dim = draw(st.integers(0, rank - 2))
    offset = draw(st.integers(0, shape[dim]))
    size = draw(st.integers(0, shape[dim] - offset))
    coords = [draw(st.integers(-3, 14)) for _ in range(rank - 1)]
    coords[dim] = draw(st.integers(0, 14))
    coords.append(step * draw(st.integers(-2, 4)))
    return shape, dtype, box, dim, offset, size, tuple(coords)


def part_of(x, dim, offset, size):
    return x[(slice(None),) * dim + (slice(offset, offset + size),)]


def expected_tile(part, box, coords):
    """The tile of a NumPy array, zeros where it lies outside."""
    tile = np.zeros(box, part.dtype)
    source, target = [], []
    for begin, count, extent in zip(coords, box, part.shape, strict=True):
        first, last = max(begin, 0), min(begin + count, extent)
        source.append(slice(first, max(first, last)))
        target.append(slice(first - begin, max(first, last) - begin))
    if all(s.stop > s.start for s in source):
        tile[tuple(target)] = part[tuple(source)]
    return tile


@settings(max_examples=300)
@given(slices())
def test_a_tile_of_a_slice_is_the_tile_of_the_numpy_slice(case):
    shape, dtype, box, dim, offset, size, coords = case
    x = numbered(shape, dtype)
    tensor_map = ragged_map(x, box, dim)
    at = ragged_coords(tensor_map, offset, size, coords)
    tile = tma.load_tile(tensor_map, at, memory=bytes_of(x)).array[0, 0]
    np.testing.assert_array_equal(tile, expected_tile(part_of(x, dim, offset, size), box, coords))


@settings(max_examples=200)
@given(slices(), st.sampled_from(["store", "add"]))
def test_a_store_or_reduction_changes_the_slice_alone(case, verb):
    shape, dtype, box, dim, offset, size, coords = case
    if dtype == np.uint8:
        verb = "store"  # the hardware has no reduction of bytes
    coords = tuple(max(0, c) for c in coords)
    x = numbered(shape, dtype)
    before = x.copy()
    tensor_map = ragged_map(x, box, dim)
    at = ragged_coords(tensor_map, offset, size, coords)
    data = np.full((1, 1, *box), 7, dtype)
    if verb == "store":
        tma.store_tile(tensor_map, at, data[None], memory=bytes_of(x))
    else:
        tma.reduce_tile(tensor_map, at, data[None], verb, memory=bytes_of(x))
    part = part_of(before, dim, offset, size)
    places = tuple(slice(c, c + n) for c, n in zip(coords, box, strict=True))
    part[places] = 7 if verb == "store" else part[places] + dtype(7)
    np.testing.assert_array_equal(x, before)


def test_one_map_serves_the_uneven_slices_of_eight_experts():
    sizes = [5, 0, 17, 64, 1, 33, 8, 0]
    offsets = np.cumsum([0, *sizes])
    x = numbered((sum(sizes), 32), np.float32)
    tensor_map = ragged_map(x, (16, 32))
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
    tensor_map = ragged_map(x, (8, 16))
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
    tensor_map = ragged_map(x, (4, 16))
    at = ragged_coords(tensor_map, 8, 4, (0, 0))  # of a bare address, so not known to be outside
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.load_tile(tensor_map, at, memory=bytes_of(x)[: 10 * 64])
    (violation,) = caught.value.violations
    start = (x.ctypes.data - bytes_of(x).ctypes.data) + 8 * 64
    assert violation.rule == "COPY_OUTSIDE_MEMORY"
    assert f"touches bytes {start} to {start + 256} of memory" in violation.found


def test_the_arguments_of_a_padded_tensor_along_its_middle_dimension():
    x = torch.zeros(6, 100, 40, dtype=torch.bfloat16)[..., :32]
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
        ((8, 4), (4,), 0, "box_sizes", "be 2 integers"),
        ((8, 4), 4, 0, "box_sizes", "be 2 integers"),
        ((8, 4), (4, 4), 1, "dim", "not be the innermost"),
        ((8, 4), (4, 4), -1, "dim", "not be the innermost"),
        ((8, 4), (4, 4), 2, "dim", "be -2..1"),
        ((8, 4), (4, 4), None, "dim", "be -2..1"),
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
    tensor_map = ragged_map(numbered((10, 16), np.float32), (4, 16))
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
