"""The simulator compared with recorded hardware results, and copies by the public functions."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
import torch
from copy_cases import (
    GLOBAL_BYTES,
    GOLDEN,
    LOADS,
    STORES,
    HostMemory,
    cases_of,
    wrong_loads,
    wrong_stores,
)

import tma_dlpack as tma
from tma_dlpack.copies.backend import OPERATIONS, REDUCTIONS, combine
from tma_dlpack.copies.cuda import CudaBackend, HardwareTile
from tma_dlpack.tables.dtypes import DATA_TYPES

T = tma.TensorMapDataType
PACKED_4, PACKED_4_16, PACKED_6 = (
    T[f"{n}"] for n in ("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B")
)


@pytest.fixture(scope="module")
def memory() -> HostMemory:
    return HostMemory()


# --- Recorded copies ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOADS)
def test_every_recorded_load_leaves_the_hardware_s_shared_memory(name, memory):
    assert wrong_loads(name, "simulator", memory) == []


@pytest.mark.parametrize("name", STORES)
def test_every_recorded_store_leaves_the_hardware_s_global_memory(name, memory):
    assert wrong_stores(name, "simulator", memory) == []


def test_all_recorded_cases_are_here():
    assert {name: len(cases_of(name)) for name in LOADS | STORES} == LOADS | STORES


def test_footprint_holds_the_recorded_one_and_what_the_swizzle_reaches():
    for name in LOADS:
        for case in cases_of(name):
            span = (1, 32, 64, 128)[case["swz"]]
            tensor_map = map_at_zero(case)
            assert tensor_map.smem_bytes == -(-case["foot"] // span) * span
            assert tensor_map.tx_bytes == case["tx"]


def map_at_zero(case):
    from copy_cases import map_of

    return map_of(case | {"goff": 0}, 0)


def recorded_reductions():
    with np.load(GOLDEN / "copies_reduce_values.npz") as golden:
        return {key: golden[key] for key in golden.files if key != "provenance"}


RECORDED_REDUCTIONS = recorded_reductions()


@pytest.mark.parametrize("pair", RECORDED_REDUCTIONS)
def test_reduced_values_are_the_hardware_s_bit_for_bit(pair):
    data_type, op = pair.split(".")
    old, new, expected = RECORDED_REDUCTIONS[pair]
    numpy_type = DATA_TYPES[T[data_type]].numpy
    result = combine(T[data_type], op, old.view(numpy_type), new.view(numpy_type))
    np.testing.assert_array_equal(result.view(expected.dtype), expected)


def test_every_reduction_of_the_table_was_recorded():
    pairs = {f"{t.name}.{op}" for t, operations in REDUCTIONS.items() for op in operations}
    assert pairs == set(RECORDED_REDUCTIONS)


# --- The seeds' kernel --------------------------------------------------------------------------


def test_the_programming_guide_s_kernel_loads_changes_and_stores_back():
    """The tile starts 2 rows above the matrix. The test changes the tile's first row in bounds."""
    matrix = np.arange(16 * 64, dtype=np.int32).reshape(16, 64)
    before = matrix.copy()
    tensor_map = tma.make_tma_descriptor(matrix, (8, 16))

    tile = tma.load_tile(tensor_map, (-2, 48))
    assert (tile.array[:2] == 0).all()
    assert tile.filled[:2].all()
    np.testing.assert_array_equal(tile.array[2:], before[:6, 48:])
    assert not tile.filled[2:].any()

    tile = tma.load_tile(tensor_map, (12, 48))
    changed = tile.array.copy()
    changed[0] += np.arange(16, dtype=np.int32)
    tma.store_tile(tensor_map, (12, 48), changed)
    before[12, 48:] += np.arange(16)
    np.testing.assert_array_equal(matrix, before)


# --- Tiles --------------------------------------------------------------------------------------


def test_tile_of_a_ragged_matrix_has_array_filled_written_and_counts():
    x = np.arange(5 * 24, dtype=np.float32).reshape(5, 24)[:, :22]
    tile = tma.load_tile(tma.make_tma_descriptor(x, (4, 8), swizzle="bytes64"), (3, 16))
    expected = np.zeros((4, 8), np.float32)
    expected[:2, :6] = x[3:, 16:]
    np.testing.assert_array_equal(tile.array, expected)
    assert tile.filled.sum() == 32 - 12
    assert (tile.tx_bytes, tile.smem.shape, tile.written.sum()) == (128, (256,), 128)
    assert tile.note == "measured"
    assert tile.coords == (3, 16)


def test_smem_starts_at_address_zero_and_is_untouched_before_the_tile():
    x = np.ones((8, 32), np.float32)
    tile = tma.load_tile(tma.make_tma_descriptor(x, (8, 32)), (0, 0), smem_offset=384)
    assert tile.smem.shape == (384 + 1024,)
    assert not tile.written[:384].any()
    assert tile.written[384:].all()
    assert not tile.smem[:384].any()


def test_bfloat16_comes_as_words_and_nan_fill_as_7ff7():
    x = np.ones((4, 8), ml_dtypes.bfloat16).view(np.uint16)
    memory = HostMemory(x.view(np.uint8).reshape(-1))
    tensor_map = tma.driver_encode_tiled(
        T.BFLOAT16, 2, memory.address, (8, 4), (16,), (8, 2), (1, 1), oob_fill=1, encoder="model"
    )
    tile = tma.load_tile(tensor_map, (3, 0), memory=memory.array)
    assert tile.array.dtype == np.uint16
    assert (tile.array[0] == 0x3F80).all()
    assert (tile.array[1] == 0x7FF7).all()


def test_tf32_load_rounds_and_store_copies_bits():
    words = np.array([0x3F800FFF, 0x3F801000, 0x3F803000, 0x7F800001], np.uint32)
    expected = [0x3F800000, 0x3F800000, 0x3F804000, 0x7FFFE000]
    x = words.view(np.float32).copy()
    tensor_map = tma.make_tma_descriptor(x, (4,), data_type="TFLOAT32")
    assert tma.load_tile(tensor_map, (0,)).array.view(np.uint32).tolist() == expected
    tma.store_tile(tensor_map, (0,), words.view(np.float32))
    assert x.view(np.uint32).tolist() == words.tolist()


def test_load_does_not_change_the_tensor_when_it_rounds():
    x = np.full((2, 4), 1 + 2**-20, np.float32)
    tma.load_tile(tma.make_tma_descriptor(x, (2, 4), data_type="TFLOAT32"), (0, 0))
    assert (x == np.float32(1 + 2**-20)).all()


def test_interleaved_tile_has_an_axis_for_the_unit():
    x = np.arange(2 * 3 * 5 * 16, dtype=np.uint8).reshape(2, 3, 5, 16)  # N, slice, W, unit
    memory = HostMemory(x.reshape(-1))
    tensor_map = tma.driver_encode_tiled(
        T.UINT16, 3, memory.address, (5, 3, 2), (80, 240), (8, 3, 2), (1, 1, 1), 1, encoder="model"
    )
    tile = tma.load_tile(tensor_map, (0, 2, 1), memory=memory.array)
    assert tile.array.shape == (2, 1, 8, 8)
    np.testing.assert_array_equal(tile.array[:, 0, :4], x[:, 2, 1:].view(np.uint16))
    assert tile.filled[:, :, 4:].all()
    assert not tile.filled[:, :, :4].any()


def test_im2col_tile_is_pixels_by_channels():
    x = np.arange(2 * 4 * 8, dtype=np.float32).reshape(2, 4, 8)  # N, W, C
    tensor_map = tma.make_im2col_descriptor(x, (-1,), (-1,), 4, 6)
    tile = tma.load_tile(tensor_map, (0, -1, 4), im2col_offsets=(1,))
    # Starts -1..2 of W walk, offset 1 reads 0..3; then the next image.
    np.testing.assert_array_equal(tile.array, x.reshape(8, 8)[:6, 4:])
    assert not tile.filled.any()


@pytest.mark.parametrize("swizzle", ["none", "bytes64"])
@pytest.mark.parametrize("many", [False, True])
def test_arrays_of_a_tile_are_read_only(swizzle, many):
    x = np.ones((8, 16), np.float32)
    tensor_map = tma.make_tma_descriptor(x, (8, 16), swizzle=swizzle)
    tile = tma.load_tiles(tensor_map, [(4, 0)]) if many else tma.load_tile(tensor_map, (4, 0))
    for array in (tile.smem, tile.written, tile.array, tile.filled):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert tile.array.copy().flags.writeable
    assert (x == 1).all()


def every_array_of(tile):
    return {name: getattr(tile, name) for name in ("smem", "written", "array", "filled")}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda tile: pickle.loads(pickle.dumps(tile))],
    ids=["copy", "deepcopy", "pickle"],
)
@pytest.mark.parametrize("asked_before", [False, True])
def test_a_copied_tile_has_the_same_read_only_arrays(many, copied, asked_before):
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    tensor_map = tma.make_tma_descriptor(x, (8, 16), swizzle="bytes64")
    tile = tma.load_tiles(tensor_map, [(4, 0)]) if many else tma.load_tile(tensor_map, (4, 0))
    if asked_before:
        every_array_of(tile)
    arrays = every_array_of(copied(tile))
    for name, array in every_array_of(tile).items():
        np.testing.assert_array_equal(arrays[name], array)
        with pytest.raises(ValueError, match="read-only"):
            arrays[name][...] = 0
    assert repr(copied(tile)) == repr(tile)


@pytest.mark.parametrize("name", ["array", "smem", "tx_bytes", "anything"])
def test_an_attribute_of_a_tile_can_not_be_set_or_deleted(name):
    x = np.ones((8, 16), np.float32)
    tile = tma.load_tile(tma.make_tma_descriptor(x, (8, 16)), (0, 0))
    before = repr(tile)
    with pytest.raises(AttributeError, match=f"{name} cannot be set"):
        setattr(tile, name, 1)
    with pytest.raises(AttributeError, match=f"{name} cannot be deleted"):
        delattr(tile, name)
    assert repr(tile) == before


def test_a_tile_from_the_hardware_is_drawn_like_any_other():
    x = np.ones((8, 16), np.float32)
    tile = tma.load_tile(tma.make_tma_descriptor(x, (8, 16)), (0, 0))
    real = HardwareTile(tile._request, tile.smem, tile.written.copy())
    assert "measured" in repr(real)
    assert real._repr_html_() == tile._repr_html_()


def test_load_tiles_gives_a_leading_axis():
    x = np.arange(6 * 16, dtype=np.float32).reshape(6, 16)
    tensor_map = tma.make_tma_descriptor(x, (4, 8))
    tile = tma.load_tiles(tensor_map, tma.tile_coords(tensor_map), smem_offset=128)
    assert tile.array.shape == tile.filled.shape == (4, 4, 8)
    assert tile.smem.shape == tile.written.shape == (4, 256)
    np.testing.assert_array_equal(tile.array[1], x[:4, 8:])


@pytest.mark.parametrize("coords", [[], (), np.empty((0, 2), np.int64)])
def test_load_tiles_of_no_coords_gives_no_tiles(coords):
    tensor_map = tma.make_tma_descriptor(np.zeros((4, 8), np.float32), (4, 8))
    tile = tma.load_tiles(tensor_map, coords)
    assert tile.array.shape == tile.filled.shape == (0, 4, 8)
    assert tile.smem.shape == (0, 128)


# --- Stores and reductions ----------------------------------------------------------------------


def test_store_takes_logical_tiles_and_shared_memory_alike():
    x, y, z = (np.zeros((8, 32), np.float32) for _ in range(3))
    tile = np.random.default_rng(1).random((8, 16), np.float32)
    maps = [tma.make_tma_descriptor(a, (8, 16), swizzle="bytes64") for a in (x, y, z)]
    tma.store_tile(maps[0], (0, 16), tile, smem_offset=128)
    loaded = tma.load_tile(maps[0], (0, 16), smem_offset=128)
    tma.store_tile(maps[1], (0, 16), loaded.smem, smem_offset=128)
    tma.store_tile(maps[2], (0, 16), loaded.smem[128:], smem_offset=128)
    for a in (x, y, z):
        np.testing.assert_array_equal(a[:, 16:], tile)
        assert not a[:, :16].any()


def line_of_bytes():
    x = np.arange(128, dtype=np.uint8)
    return x, tma.make_tma_descriptor(x, (128,), swizzle="bytes128")


@pytest.mark.parametrize("smem_offset", [0, 128, 896, 1024])
def test_array_and_smem_of_a_swizzled_line_of_bytes_both_put_it_back(smem_offset):
    x, tensor_map = line_of_bytes()
    tile = tma.load_tile(tensor_map, (0,), smem_offset=smem_offset)
    region = tile.smem[smem_offset:]
    said = (tile.array[None], tile.smem.tobytes(), bytearray(region.tobytes()))
    as_long_as_both = (tile.array, region) if smem_offset % 1024 == 0 else ()
    for data in (*said, tile.smem, *as_long_as_both):
        x[:] = 0
        tma.store_tile(tensor_map, (0,), data, smem_offset=smem_offset)
        assert x.tolist() == [*range(128)]


@pytest.mark.parametrize("smem_offset", [128, 896])
def test_a_line_of_bytes_is_ambiguous_where_the_swizzle_moves_it(smem_offset):
    x, tensor_map = line_of_bytes()
    tile = tma.load_tile(tensor_map, (0,), smem_offset=smem_offset)
    assert tile.smem[smem_offset:].tolist() != tile.array.tolist()
    for data in (tile.array, tile.smem[smem_offset:]):
        violation = refused(tma.store_tile, tensor_map, (0,), data, smem_offset=smem_offset)
        assert violation.rule == "COPY_DATA_AMBIGUOUS"
        assert "data[None]" in violation.fix
        assert "data.tobytes()" in violation.fix
    assert x.tolist() == [*range(128)]
    tma.store_tile(tensor_map, (0,), np.full(128, 7, np.uint8), smem_offset=smem_offset)
    assert (x == 7).all()  # the same bytes either way


def test_bytes_of_another_length_are_refused():
    _, tensor_map = line_of_bytes()
    for data in (b"", bytes(127), bytes(384)):
        violation = refused(tma.store_tile, tensor_map, (0,), data, smem_offset=128)
        assert violation.rule == "COPY_DATA"


@pytest.mark.parametrize(("data_type", "smem_offset"), [(PACKED_6, 0), (PACKED_4, 128)])
def test_packed_line_as_long_as_its_shared_memory_is_refused_as_ambiguous(data_type, smem_offset):
    count = 128 if data_type == PACKED_6 else 256
    memory = HostMemory(np.arange(256, dtype=np.uint8))
    tensor_map = packed_map(data_type, memory, (count,), (), (count,))
    tile = tma.load_tile(tensor_map, (0,), memory=memory.array, smem_offset=smem_offset)
    assert tile.array.shape == tile.smem.shape
    options = {"memory": memory.array, "smem_offset": smem_offset}
    before = memory.array.copy()
    for data in (tile.array, tile.smem):
        rule = refused(tma.store_tile, tensor_map, (0,), data, **options).rule
        assert rule == "COPY_DATA_AMBIGUOUS"
    for data in (tile.array[None], tile.smem.tobytes()):
        memory.array[:] = 0
        tma.store_tile(tensor_map, (0,), data, **options)
        stored = memory.array != 0
        np.testing.assert_array_equal(memory.array[stored], before[stored])
        assert stored.sum() > 90


def test_data_on_a_gpu_is_refused_with_the_way_to_the_host(matrix_map):
    interface = {"version": 3, "typestr": "<f4", "shape": (8, 16), "data": (1 << 20, False)}

    class OnGpu:
        dtype = np.dtype(np.float32)
        __cuda_array_interface__ = interface

        def __array__(self, *args, **kwargs):
            raise TypeError("implicit conversion to a NumPy array is not allowed")

    violation = refused(tma.store_tile, matrix_map, (0, 0), OnGpu())
    assert violation.rule == "COPY_DATA_HOST"
    assert "float32" in violation.found
    assert "cuda:0" in violation.found
    assert "x.get() of CuPy" in violation.fix


def test_store_of_bfloat16_takes_ml_dtypes_and_words():
    x = np.zeros((4, 8), np.uint16)
    memory = HostMemory(x.view(np.uint8).reshape(-1))
    tensor_map = tma.driver_encode_tiled(
        T.BFLOAT16, 2, memory.address, (8, 4), (16,), (8, 4), (1, 1), encoder="model"
    )
    ones = np.ones((4, 8), ml_dtypes.bfloat16)
    tma.store_tile(tensor_map, (0, 0), ones, memory=memory.array)
    tma.reduce_tile(tensor_map, (0, 0), ones.view(np.uint16), "add", memory=memory.array)
    assert (memory.array.view(ml_dtypes.bfloat16) == 2).all()


def test_store_overruns_a_ragged_row_by_whole_chunks_of_16_bytes():
    x = np.zeros((3, 8), np.float32)
    view = x[:, :5]
    tensor_map = tma.make_tma_descriptor(view, (2, 8), rules="driver")
    tma.store_tile(tensor_map, (0, 0), np.ones((2, 8), np.float32))
    assert x.tolist() == [[1] * 8, [1] * 8, [0] * 8]


def test_store_overrun_past_the_tensor_is_refused_and_writes_nothing():
    x = np.zeros((3, 8), np.float32)
    tensor_map = tma.make_tma_descriptor(x[:, :5], (3, 8), rules="driver")
    whole, data = x.view(np.uint8).reshape(-1), np.ones((3, 8), np.float32)
    violation = refused(tma.store_tile, tensor_map, (0, 0), data, memory=whole[:95])
    assert violation.rule == "COPY_STORE_OVERRUN"
    assert "writes 1 byte past the end of memory" in violation.found
    assert not x.any()
    tma.store_tile(tensor_map, (0, 0), data, memory=whole)
    assert (x == 1).all()


def test_lines_that_share_an_address_accumulate():
    memory = HostMemory(np.zeros(64, np.uint8))
    tensor_map = tma.driver_encode_tiled(
        T.FLOAT32, 2, memory.address, (4, 8), (0,), (4, 8), (1, 1), encoder="model"
    )
    data = np.arange(32, dtype=np.float32).reshape(8, 4)
    tma.reduce_tile(tensor_map, (0, 0), data, "add", memory=memory.array)
    np.testing.assert_array_equal(memory.array.view(np.float32)[:4], data.sum(axis=0))


# --- Documented, not measured -------------------------------------------------------------------


def packed_map(data_type, memory, dims, strides, box, **options):
    return tma.driver_encode_tiled(
        data_type, len(dims), memory.address, dims, strides, box, (1,) * len(dims),
        target="sm_100", **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data_type", "bits", "chunk"), [(PACKED_4, 4, 8), (PACKED_4_16, 4, 16), (PACKED_6, 6, 16)]
)
def test_packed_values_are_spread_to_their_chunks(data_type, bits, chunk):
    codes = np.random.default_rng(2).integers(0, 1 << bits, (4, 256), dtype=np.uint8)
    every_bit = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")
    raw = np.packbits(every_bit.reshape(4, -1), axis=-1, bitorder="little")
    memory = HostMemory(raw.reshape(-1))
    tensor_map = packed_map(data_type, memory, (256, 4), (raw.shape[1],), (128, 2))
    tile = tma.load_tile(tensor_map, (3, 128), memory=memory.array)
    np.testing.assert_array_equal(tile.array[0], codes[3, 128:])
    assert not tile.array[1].any()
    assert tile.filled[1].all()
    assert tile.smem.shape == (2 * 8 * chunk,)
    group = 16 * bits // 8
    chunks = tile.smem.reshape(2, 8, chunk)
    np.testing.assert_array_equal(chunks[0, :, :group].reshape(-1), raw[3, raw.shape[1] // 2 :])
    assert not tile.written.reshape(2, 8, chunk)[..., group:].any()
    assert tile.written.reshape(2, 8, chunk)[..., :group].all()
    assert tile.note == "documented, not measured"


def test_packed_6_bit_values_store_what_they_loaded():
    raw = np.random.default_rng(3).integers(0, 256, 4 * 192, dtype=np.uint8)
    memory = HostMemory(raw)
    tensor_map = packed_map(PACKED_6, memory, (256, 4), (192,), (128, 4), swizzle=3)
    tile = tma.load_tile(tensor_map, (0, 128), memory=memory.array)
    memory.array[:] = 0
    for data in (tile.array, tile.smem):
        tma.store_tile(tensor_map, (0, 128), data, memory=memory.array)
        stored = memory.array.reshape(4, 2, 96)
        np.testing.assert_array_equal(stored[:, 1], raw.reshape(4, 2, 96)[:, 1])
        assert not stored[:, 0].any()


def test_16u4_align16b_can_not_be_stored():
    memory = HostMemory(np.zeros(256, np.uint8))
    tensor_map = packed_map(PACKED_4_16, memory, (128, 2), (64,), (128, 1))
    with pytest.raises(tma.TmaUnsupportedError, match="only be loaded"):
        tma.store_tile(tensor_map, (0, 0), np.zeros((1, 128), np.uint8), memory=memory.array)


@pytest.mark.parametrize(
    ("data_type", "payload"), [(PACKED_4, 8), (PACKED_4_16, 8), (PACKED_6, 12)]
)
def test_the_gaps_of_packed_types_are_neither_counted_nor_written(data_type, payload):
    memory = HostMemory(np.zeros(16384, np.uint8))
    row_bytes = 8 * payload
    tensor_map = packed_map(data_type, memory, (128, 64), (row_bytes,), (128, 64))
    tile = tma.load_tile(tensor_map, (0, 0), memory=memory.array)
    assert tile.tx_bytes == tensor_map.tx_bytes == tile.written.sum() == 64 * row_bytes
    assert tensor_map.smem_bytes == 64 * 8 * (8 if data_type == PACKED_4 else 16)


def test_flip_8b_is_loaded_and_not_stored():
    x = np.arange(8 * 32, dtype=np.float32).reshape(8, 32)
    data = np.zeros((8, 32), np.float32)
    flip, atom = (
        tma.make_tma_descriptor(x, (8, 32), swizzle=name, target="sm_100")
        for name in ("bytes128_atom_32B_flip_8B", "bytes128_atom_32B")
    )
    np.testing.assert_array_equal(tma.load_tile(flip, (0, 0)).array, x)
    for ask in (
        lambda: tma.store_tile(flip, (0, 0), data),
        lambda: tma.reduce_tile(flip, (0, 0), data, "add"),
    ):
        with pytest.raises(tma.TmaUnsupportedError, match="flip_8B can only be loaded"):
            ask()
    assert x.any()
    tma.store_tile(atom, (0, 0), data)
    assert not x.any()


@pytest.mark.parametrize("target", ["sm_100", "sm_103", "sm_120"])
def test_scatter4_is_not_on_sm_120(target):
    x = np.arange(10 * 32, dtype=np.float32).reshape(10, 32)
    tensor_map = tma.make_tma_descriptor(x, (1, 16), target=target)
    simulator = tma.backend("simulator")
    tile = simulator.gather4(tensor_map, 0, (3, 2, 1, 0))
    np.testing.assert_array_equal(tile.array, x[3::-1, :16])
    if target == "sm_120":
        with pytest.raises(tma.TmaUnsupportedError, match="sm_120 has no tile::scatter4"):
            simulator.scatter4(tensor_map, 0, (0, 1, 2, 3), tile.array)
    else:
        simulator.scatter4(tensor_map, 0, (0, 1, 2, 3), tile.array)
        np.testing.assert_array_equal(x[:4, :16], tile.array)


def test_gather4_loads_four_rows_and_scatter4_puts_them_back():
    x = np.arange(10 * 32, dtype=np.float32).reshape(10, 32)
    memory = HostMemory(x.view(np.uint8).reshape(-1))
    tensor_map = tma.driver_encode_tiled(
        T.FLOAT32, 2, memory.address, (32, 10), (128,), (16, 1), (1, 1), swizzle=2, target="sm_100"
    )
    simulator = tma.backend("simulator")
    tile = simulator.gather4(tensor_map, 16, (7, -1, 2, 2), memory=memory.array)
    np.testing.assert_array_equal(tile.array[[0, 2, 3]], x[[7, 2, 2], 16:])
    assert tile.filled[1].all()
    assert not tile.filled[[0, 2, 3]].any()
    assert (tile.tx_bytes, tile.note) == (256, "documented, not measured")
    simulator.scatter4(tensor_map, 0, (0, 1, 3, 4), tile.array, memory=memory.array)
    stored = memory.array.view(np.float32).reshape(10, 32)
    np.testing.assert_array_equal(stored[[0, 3, 4], :16], x[[7, 2, 2], 16:])
    np.testing.assert_array_equal(stored[2], x[2])


def test_gather4_and_scatter4_are_refused_on_sm_90():
    tensor_map = tma.make_tma_descriptor(np.zeros((8, 16), np.float32), (1, 16))
    for backend in (tma.backend("simulator"), CudaBackend()):
        with pytest.raises(tma.TmaUnsupportedError, match=r"no gather4.*sm_100"):
            backend.gather4(tensor_map, 0, (0, 1, 2, 3))
        with pytest.raises(tma.TmaUnsupportedError, match=r"no gather4.*sm_100"):
            backend.scatter4(tensor_map, 0, (0, 1, 2, 3), np.zeros((4, 16), np.float32))


def test_sm_120_has_gather4_and_no_scatter4():
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    for target in ("sm_120", "sm_121"):
        tensor_map = tma.make_tma_descriptor(x, (1, 16), target=target)
        simulator = tma.backend("simulator")
        rows = simulator.gather4(tensor_map, 0, (7, 0, 3, 3)).array
        np.testing.assert_array_equal(rows, x[[7, 0, 3, 3]])
        with pytest.raises(tma.TmaUnsupportedError, match=r"no tile::scatter4.*ptxas"):
            simulator.scatter4(tensor_map, 0, (0, 1, 2, 3), rows)


def test_gather4_and_scatter4_are_not_on_the_cuda_backend():
    tensor_map = rows_map(1)
    with pytest.raises(tma.TmaUnsupportedError, match=r"no gather4 copy.*sm_100"):
        CudaBackend().gather4(tensor_map, 0, (0, 1, 2, 3))
    with pytest.raises(tma.TmaUnsupportedError, match=r"no scatter4 copy.*sm_100"):
        CudaBackend().scatter4(tensor_map, 0, (0, 1, 2, 3), np.zeros((4, 16), np.float32))


def rows_map(box_rows):
    return tma.driver_encode_tiled(
        T.FLOAT32, 2, ROWS.address, (32, 10), (128,), (16, box_rows), (1, 1), target="sm_100"
    )


ROWS = HostMemory(np.arange(320, dtype=np.float32).view(np.uint8))


@pytest.mark.parametrize("rows", [(0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("box_rows", [1, 2])
def test_gather4_takes_one_row_in_the_box_and_four_rows(box_rows, rows):
    simulator, data = tma.backend("simulator"), np.zeros((4, 16), np.float32)
    options = {"memory": ROWS.array}
    if (box_rows, len(rows)) == (1, 4):
        tile = simulator.gather4(rows_map(1), 0, rows, **options)
        assert tile.array[:, 0].tolist() == [0, 32, 64, 96]
    else:
        asked = (rows_map(box_rows), 0, rows)
        assert refused(simulator.gather4, *asked, **options).rule == "COPY_GATHER4"
        assert refused(simulator.scatter4, *asked, data, **options).rule == "COPY_GATHER4"


def test_scatter4_to_a_negative_row_is_refused():
    data, options = np.zeros((4, 16), np.float32), {"memory": ROWS.array}
    violation = refused(
        tma.backend("simulator").scatter4, rows_map(1), 0, (0, -1, 2, 3), data, **options
    )
    assert violation.rule == "COPY_STORE_NEGATIVE"
    assert "(0, -1, 2, 3)" in violation.found


@pytest.mark.parametrize("data_type", [PACKED_4_16, PACKED_6])
def test_inner_coordinate_of_a_padded_type_falls_on_128_values(data_type):
    memory = HostMemory(np.arange(256, dtype=np.uint8))
    tensor_map = packed_map(data_type, memory, (256,), (), (128,))
    tile = tma.load_tile(tensor_map, (128,), memory=memory.array)
    assert tile.array.any()
    for inner in (64, 127, -64):
        violation = refused(tma.load_tile, tensor_map, (inner,), memory=memory.array)
        assert violation.rule == "COPY_INNER_128_VALUES"


def test_inner_coordinate_of_dense_4_bit_values_falls_on_32():
    memory = HostMemory(np.arange(256, dtype=np.uint8))
    tensor_map = packed_map(PACKED_4, memory, (256,), (), (128,))
    tile = tma.load_tile(tensor_map, (64,), memory=memory.array)
    assert tile.array[:4].tolist() == [0, 2, 1, 2]  # of bytes 0x20, 0x21, low halves first
    violation = refused(tma.load_tile, tensor_map, (16,), memory=memory.array)
    assert violation.rule == "COPY_INNER_16B"


def test_both_backends_are_backends_and_others_are_not():
    for backend in (tma.backend("simulator"), CudaBackend()):
        assert isinstance(backend, tma.Backend)
    assert not isinstance(tma, tma.Backend)


def test_im2col_wide_walks_w_alone_into_the_next_image():
    x = np.arange(2 * 3 * 4 * 16, dtype=np.float32).reshape(2, 3, 4, 16)  # N, H, W, C
    tensor_map = tma.make_im2col_wide_descriptor(
        x, 0, -1, 16, 5, swizzle="bytes64", target="sm_100"
    )
    tile = tma.load_tile(tensor_map, (0, 2, 1, 0), im2col_offsets=(1,))
    # W walks 1, 2 of 0..2, then 0, 1, 2 of image 1, at H = 2; the offset adds one.
    expected = np.concatenate([x[0, 2, 2:4], x[1, 2, 1:4]])
    np.testing.assert_array_equal(tile.array, expected)
    assert tile.note == "documented, not measured"


def test_im2col_wide_can_not_be_stored():
    x = np.zeros((2, 3, 4, 16), np.float32)
    tensor_map = tma.make_im2col_wide_descriptor(x, 0, 0, 16, 5, swizzle="bytes64", target="sm_100")
    with pytest.raises(tma.TmaUnsupportedError, match="only be loaded"):
        tma.store_tile(tensor_map, (0, 0, 0, 0), np.zeros((5, 16), np.float32))


# --- Refusals: each with its passing neighbour --------------------------------------------------


def refused(call, *args, **options):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call(*args, **options)
    (violation,) = caught.value.violations
    assert violation.found
    assert violation.fix
    assert violation.source
    return violation


@pytest.fixture
def matrix_map():
    return tma.make_tma_descriptor(np.zeros((16, 64), np.float32), (8, 16))


@pytest.mark.parametrize("inner", [1, 2, 3, -1, -5, 65, -1001, 2**31 - 1])
def test_inner_coordinate_off_16_bytes_is_refused(matrix_map, inner):
    assert refused(tma.load_tile, matrix_map, (0, inner)).rule == "COPY_INNER_16B"


@pytest.mark.parametrize("inner", [0, 4, -4, 64, -1000, 2**31 - 4, -(2**31)])
def test_inner_coordinate_on_16_bytes_is_loaded(matrix_map, inner):
    assert tma.load_tile(matrix_map, (0, inner)).array.shape == (8, 16)


@pytest.mark.parametrize("coords", [(0,), (0, 0, 0), ()])
def test_other_than_one_coordinate_per_dimension_is_refused(matrix_map, coords):
    assert refused(tma.load_tile, matrix_map, coords).rule == "COPY_COORDS_COUNT"


@pytest.mark.parametrize("coords", [0, [[0, 0]], None, "00", [0] * 65])
def test_coordinates_that_are_no_short_sequence_are_refused(matrix_map, coords):
    assert refused(tma.load_tile, matrix_map, coords).rule == "COPY_COORDS_TYPE"


@pytest.mark.parametrize("coords", [[(0,)], [(0, 0, 0)], [0, 0], [[[0, 0]]]])
def test_many_coordinates_of_another_shape_are_refused(matrix_map, coords):
    assert refused(tma.load_tiles, matrix_map, coords).rule == "COPY_COORDS_COUNT"


@pytest.mark.parametrize("coords", [(0.0, 0.0), (True, 0.5), (True, False), ("0", "0"), (None, 0)])
def test_coordinates_that_are_no_integers_are_refused(matrix_map, coords):
    assert refused(tma.load_tile, matrix_map, coords).rule == "COPY_COORDS_TYPE"
    assert refused(tma.load_tiles, matrix_map, [coords]).rule == "COPY_COORDS_TYPE"


@pytest.mark.parametrize("coords", [{0, 4}, frozenset((0, 4)), {0: 1, 4: 2}, {0: 1, 4: 2}.keys()])
def test_coordinates_without_an_order_are_refused(matrix_map, coords):
    assert refused(tma.load_tile, matrix_map, coords).rule == "COPY_COORDS_TYPE"
    assert tma.load_tile(matrix_map, list(coords)).coords == tuple(coords)


@pytest.mark.parametrize(
    "backend", [5, "gpu", b"cuda", tma.backend, type(tma.backend("simulator"))]
)
def test_what_is_no_backend_is_refused(matrix_map, backend):
    assert refused(tma.load_tile, matrix_map, (0, 0), backend=backend).argument == "backend"


@pytest.mark.parametrize("tensor_map", [5, None, bytes(128)], ids=["int", "None", "bytes"])
def test_what_is_no_map_is_refused_by_every_verb(tensor_map):
    simulator, data = tma.backend("simulator"), np.zeros((8, 16), np.float32)
    for ask in (
        lambda: tma.tile_coords(tensor_map),
        lambda: tma.load_tile(tensor_map, (0, 0)),
        lambda: simulator.load_tiles(tensor_map, [(0, 0)]),
        lambda: simulator.store_tile(tensor_map, (0, 0), data),
        lambda: simulator.reduce_tile(tensor_map, (0, 0), data, "add"),
        lambda: simulator.gather4(tensor_map, 0, (0, 1, 2, 3)),
    ):
        assert refused(ask).argument == "tensor_map"


@pytest.mark.parametrize("row", [2**31, -(2**31) - 1, 2**63, 2**64, 2**70])
def test_coordinate_beyond_32_bits_is_refused(matrix_map, row):
    assert refused(tma.load_tile, matrix_map, (row, 0)).rule == "COPY_COORD_32_BITS"


@pytest.mark.parametrize("row", [2**31 - 1, -(2**31)])
def test_coordinate_at_the_end_of_32_bits_is_filled(matrix_map, row):
    assert tma.load_tile(matrix_map, (row, 0)).filled.all()


@pytest.mark.parametrize("smem_offset", [-128, 1, 64, 127, 129, 1.5, None])
def test_smem_offset_off_128_is_refused(matrix_map, smem_offset):
    violation = refused(tma.load_tile, matrix_map, (0, 0), smem_offset=smem_offset)
    assert violation.rule == "COPY_SMEM_OFFSET"


def test_tile_that_ends_past_shared_memory_is_refused(matrix_map):
    end = 232_448 - 512
    assert tma.load_tile(matrix_map, (0, 0), smem_offset=end).smem.shape == (232_448,)
    assert (
        refused(tma.load_tile, matrix_map, (0, 0), smem_offset=end + 128).rule == "COPY_SMEM_SIZE"
    )
    small = tma.make_tma_descriptor(np.zeros((16, 64), np.float32), (8, 16), target="sm_120")
    assert refused(tma.load_tile, small, (0, 0), smem_offset=end).rule == "COPY_SMEM_SIZE"


@pytest.mark.parametrize("coords", [(-1, 0), (0, -4), (-1, -4)])
def test_store_at_a_negative_coordinate_is_refused(matrix_map, coords):
    data = np.zeros((8, 16), np.float32)
    assert refused(tma.store_tile, matrix_map, coords, data).rule == "COPY_STORE_NEGATIVE"
    assert refused(tma.reduce_tile, matrix_map, coords, data, "add").rule == "COPY_STORE_NEGATIVE"


def test_store_out_of_bounds_is_skipped(matrix_map):
    tma.store_tile(matrix_map, (16, 0), np.ones((8, 16), np.float32))
    tma.store_tile(matrix_map, (0, 64), np.ones((8, 16), np.float32))
    assert not matrix_map.tensor.any()


def test_im2col_column_must_start_inside_its_box():
    x = np.zeros((2, 8, 8), np.float32)
    tensor_map = tma.make_im2col_descriptor(x, (-1,), (-1,), 8, 4)
    for start in (-1, 6):
        assert tma.load_tile(tensor_map, (0, start, 0)).array.shape == (4, 8)
    for start in (-2, 7):
        assert refused(tma.load_tile, tensor_map, (0, start, 0)).rule == "COPY_IM2COL_START"


def test_im2col_channel_must_fall_on_16_bytes():
    tensor_map = tma.make_im2col_descriptor(np.zeros((2, 8, 8), np.float32), (0,), (0,), 8, 4)
    assert refused(tma.load_tile, tensor_map, (0, 0, 2)).rule == "COPY_INNER_16B"


@pytest.mark.parametrize("offsets", [(-1, 0), (256, 0), (0, 256), (0,), (0, 0, 0), (0.5, 0), 3])
def test_im2col_offsets_that_are_no_pair_of_bytes_are_refused(offsets):
    tensor_map = tma.make_im2col_descriptor(
        np.zeros((2, 8, 8, 8), np.float32), (0, 0), (0, 0), 8, 4
    )
    assert tma.load_tile(tensor_map, (0, 0, 0, 0), im2col_offsets=(255, 0)).filled.all()
    violation = refused(tma.load_tile, tensor_map, (0, 0, 0, 0), im2col_offsets=offsets)
    assert violation.rule == "COPY_IM2COL_OFFSETS"


@pytest.mark.parametrize(("spatial", "most"), [(1, 65535), (2, 255), (3, 31)])
def test_im2col_offsets_share_16_bits(spatial, most):
    corner, start = (0,) * spatial, (0,) * (spatial + 2)
    tensor_map = tma.make_im2col_descriptor(
        np.ones((1, *(2,) * spatial, 8), np.float32), corner, corner, 8, 4
    )
    for d in range(spatial):
        offsets = [0] * spatial
        offsets[d] = most
        assert tma.load_tile(tensor_map, start, im2col_offsets=offsets).filled.all()
        offsets[d] = most + 1
        violation = refused(tma.load_tile, tensor_map, start, im2col_offsets=offsets)
        assert violation.rule == "COPY_IM2COL_OFFSETS"


@pytest.mark.parametrize("d", [0, 1])
def test_a_dimension_over_2_to_the_31_is_encoded_but_not_copied(d):
    memory = HostMemory(np.arange(256, dtype=np.uint8))

    def load(extent):
        dims = [16, 16]
        dims[d] = extent
        tensor_map = tma.driver_encode_tiled(
            T.UINT8, 2, memory.address, dims, (16,), (16, 1), (1, 1), encoder="model"
        )
        return lambda: tma.load_tile(tensor_map, (3, 0), memory=memory.array)

    np.testing.assert_array_equal(load(1 << 31)().array[0], memory.array[48:64])
    assert refused(load((1 << 31) + 1)).rule == "COPY_DIM_31_BITS"


def test_offsets_of_a_tiled_map_are_refused(matrix_map):
    for offsets in ((0,), 0, "0"):
        violation = refused(tma.load_tile, matrix_map, (0, 0), im2col_offsets=offsets)
        assert violation.rule == "COPY_OFFSETS_WITHOUT_IM2COL"


@pytest.mark.parametrize("offsets", [[], (), np.empty(0, np.int64)])
def test_no_offsets_of_a_tiled_map_are_none(matrix_map, offsets):
    assert tma.load_tile(matrix_map, (0, 0), im2col_offsets=offsets).im2col_offsets == ()
    tiles = tma.load_tiles(matrix_map, [(0, 0)], im2col_offsets=offsets)
    assert tiles.array.shape == (1, 8, 16)


@pytest.mark.parametrize(("lower", "upper"), [((-1,), (0,)), ((0,), (1,))])
def test_im2col_store_with_padding_is_refused(lower, upper):
    x = np.zeros((2, 8, 8), np.float32)
    tensor_map = tma.make_im2col_descriptor(x, lower, upper, 8, 4)
    violation = refused(tma.store_tile, tensor_map, (0, 0, 0), np.zeros((4, 8), np.float32))
    assert violation.rule == "COPY_IM2COL_STORE_CORNERS"


def test_im2col_store_without_padding_is_done():
    x = np.zeros((2, 8, 8), np.float32)
    tensor_map = tma.make_im2col_descriptor(x, (0,), (0,), 8, 4)
    tma.store_tile(tensor_map, (0, 6, 0), np.ones((4, 8), np.float32))
    assert np.flatnonzero(x.any(axis=2).reshape(-1)).tolist() == [6, 7, 8, 9]


ALL_PAIRS = [(r.data_type, op) for r in DATA_TYPES if not r.is_packed for op in OPERATIONS]


@pytest.mark.parametrize(("data_type", "op"), ALL_PAIRS)
def test_reduction_pair_is_run_or_refused_as_on_the_hardware(data_type, op):
    memory = HostMemory(np.zeros(64, np.uint8))
    tensor_map = tma.driver_encode_tiled(
        data_type, 1, memory.address, (16 // DATA_TYPES[data_type].element_bytes,), (),
        (16 // DATA_TYPES[data_type].element_bytes,), (1,), encoder="model",
    )  # fmt: skip
    data = np.full(16, 1, np.uint8)
    if op in REDUCTIONS.get(data_type, ()):
        tma.reduce_tile(tensor_map, (0,), data, op, memory=memory.array)
        assert not memory.array[16:].any()
    else:
        violation = refused(tma.reduce_tile, tensor_map, (0,), data, op, memory=memory.array)
        assert violation.rule == "COPY_REDUCTION"
        assert not memory.array.any()


@pytest.mark.parametrize("op", ["sub", "ADD", "", None, 1])
def test_unknown_reduction_is_refused(matrix_map, op):
    data = np.zeros((8, 16), np.float32)
    assert refused(tma.reduce_tile, matrix_map, (0, 0), data, op).rule == "COPY_REDUCTION"


@pytest.mark.parametrize(
    "data",
    [
        np.zeros((16, 8), np.float32),
        np.zeros((8, 16), np.float64),
        np.zeros((8, 16), np.int32),
        np.zeros((8, 16), ">f4"),
        np.zeros(511, np.uint8),
        np.zeros(128, np.float32),
        None,
        "tile",
        [[1, 2], [3]],
        np.ma.masked_array(np.zeros((8, 16), np.float32), mask=True),
    ],
    ids=[
        "transposed",
        "double",
        "int",
        "big-endian",
        "short bytes",
        "flat",
        "None",
        "str",
        "ragged",
        "masked",
    ],
)
def test_data_that_is_no_tile_is_refused(matrix_map, data):
    assert refused(tma.store_tile, matrix_map, (0, 0), data).rule == "COPY_DATA"


@pytest.mark.parametrize(
    ("own", "data_type"),
    [
        ("float32", "INT32"),
        ("float16", "UINT16"),
        ("int64", "UINT64"),
        ("int32", "FLOAT32"),
        ("uint32", "INT32"),
        ("float64", "INT64"),
        ("complex32", "UINT32"),
    ],
)
def test_a_tile_with_the_dtype_of_the_tensor_is_stored_and_not_reduced(own, data_type):
    bits = torch.arange(128, dtype=torch.int64).to(torch.uint8)
    data = bits.repeat(8).view(getattr(torch, own))[:128].reshape(8, 16)
    x = torch.zeros(32, 16, dtype=torch.uint8).repeat(1, data.element_size()).view(data.dtype)
    tensor_map = tma.make_tma_descriptor(x, (8, 16), data_type=data_type)
    for tile in (data, data[None]):
        x.view(torch.uint8).zero_()
        tma.store_tile(tensor_map, (8, 0), tile)
        assert x[8:16].view(torch.uint8).equal(data.contiguous().view(torch.uint8))
        assert not x[:8].view(torch.uint8).any()
    assert refused(tma.store_tile, tensor_map, (8, 0), data[:4]).rule == "COPY_DATA"
    if data_type not in ("INT64", "UINT16"):  # types that no reduction accepts
        assert refused(tma.reduce_tile, tensor_map, (8, 0), data, "add").rule == "COPY_DATA"


# --- Memory safety ------------------------------------------------------------------------------


def bare_map(address, rows=4):
    return tma.driver_encode_tiled(
        T.UINT8, 2, address, (64, rows), (64,), (64, 4), (1, 1), encoder="model"
    )


def test_bare_address_without_memory_is_refused():
    violation = refused(tma.load_tile, bare_map(1 << 40), (0, 0))
    assert violation.rule == "COPY_MEMORY"
    assert 'backend="cuda"' in violation.fix


@pytest.mark.parametrize("shift", [0, 8, 15, 16])
def test_address_off_16_bytes_is_not_copied_from(shift):
    memory = HostMemory(np.arange(256, dtype=np.uint8))
    raw = (memory.address + shift).to_bytes(8, "little") + bytes(bare_map(1 << 40, 2))[8:]
    decoded = tma.TensorMap.from_bytes(raw)
    if shift % 16:
        assert refused(tma.load_tile, decoded, (0, 0), memory=memory.array).rule == "COPY_ADDRESS"
    else:
        tile = tma.load_tile(decoded, (0, 0), memory=memory.array)
        assert tile.array[0, 0] == shift


@pytest.mark.parametrize(
    "memory",
    [bytes(256), np.zeros(64, np.float32), np.zeros(512, np.uint8)[::2], [0] * 256],
    ids=["bytes", "float32", "strided", "list"],
)
def test_memory_that_is_no_contiguous_uint8_array_is_refused(memory):
    assert refused(tma.load_tile, bare_map(1 << 40), (0, 0), memory=memory).rule == "COPY_MEMORY"


@pytest.mark.parametrize(("shift", "rows"), [(-16, 4), (16, 4), (0, 5), (1 << 30, 4)])
def test_touched_byte_outside_memory_is_refused(shift, rows):
    memory = HostMemory(np.arange(256, dtype=np.uint8))
    whole = bare_map(memory.address)
    np.testing.assert_array_equal(
        tma.load_tile(whole, (0, 0), memory=memory.array).array.reshape(-1), memory.array
    )
    outside = bare_map(memory.address + shift, rows)
    for call in (
        tma.load_tile,
        lambda *a, **k: tma.store_tile(*a, np.zeros((4, 64), np.uint8), **k),
    ):
        violation = refused(call, outside, (rows - 4, 0), memory=memory.array)
        assert violation.rule == "COPY_OUTSIDE_MEMORY"
    np.testing.assert_array_equal(memory.array, np.arange(256, dtype=np.uint8))


def test_strides_and_positions_whose_product_overflows_are_outside():
    memory = HostMemory(np.zeros(256, np.uint8))
    tensor_map = tma.driver_encode_tiled(
        T.UINT8, 3, memory.address, (16, 1 << 31, 1 << 31), ((1 << 40) - 16,) * 2, (16, 1, 1),
        (1, 1, 1), encoder="model",
    )  # fmt: skip
    for coords in ((0, 2**31 - 1, 0), (2**31 - 1, 2**31 - 1, 0), (1 << 24, 0, 0)):
        violation = refused(tma.load_tile, tensor_map, coords, memory=memory.array)
        assert violation.rule == "COPY_OUTSIDE_MEMORY"
    assert not tma.load_tile(tensor_map, (0, 0, 0), memory=memory.array).filled.any()


def test_a_position_2_to_the_64_bytes_away_is_the_first_again():
    memory = HostMemory()
    tensor_map = tma.driver_encode_tiled(
        T.UINT8, 2, memory.address, (16, 1 << 31), (1 << 36,), (16, 1), (1, 1), encoder="model"
    )
    for position in (0, 1 << 28, 2 << 28):
        tile = tma.load_tile(tensor_map, (position, 0), memory=memory.array).array
        np.testing.assert_array_equal(tile[0], memory.array[:16])
    for position in (1, (1 << 28) - 1, (1 << 28) + 1):
        violation = refused(tma.load_tile, tensor_map, (position, 0), memory=memory.array)
        assert violation.rule == "COPY_OUTSIDE_MEMORY"


def test_read_only_tensor_is_loaded_and_never_written():
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    x.flags.writeable = False
    tensor_map = tma.make_tma_descriptor(x, (4, 16))
    tile = tma.load_tile(tensor_map, (0, 0))
    assert refused(tma.store_tile, tensor_map, (0, 0), tile.array + 1).rule == "COPY_READ_ONLY"
    assert refused(tma.reduce_tile, tensor_map, (0, 0), tile.array, "add").rule == "COPY_READ_ONLY"
    np.testing.assert_array_equal(x, tile.array)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_array_is_loaded_and_never_written(dtype):
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(64, dtype=dtype).reshape(4, 16)
    tensor_map = tma.make_tma_descriptor(x, (4, 16))
    assert tensor_map.view.read_only
    before, data = np.array(x), np.ones((4, 16), dtype)
    for ask in (
        lambda: tma.store_tile(tensor_map, (0, 0), data),
        lambda: tma.reduce_tile(tensor_map, (0, 0), data, "add"),
    ):
        violation = refused(ask)
        assert violation.rule == "COPY_READ_ONLY"
        for way in ("numpy.array(x)", "cupy", "torch", "memory="):
            assert way in violation.fix
    np.testing.assert_array_equal(x, before)
    loaded = tma.load_tile(tensor_map, (0, 0)).array
    np.testing.assert_array_equal(loaded.view(before.dtype), before)


def test_data_may_be_a_jax_array():
    jax = pytest.importorskip("jax")
    x = np.zeros((4, 16), np.float32)
    tile = jax.numpy.ones((4, 16), "float32")
    tma.store_tile(tma.make_tma_descriptor(x, (4, 16)), (0, 0), tile)
    assert (x == 1).all()


def test_read_only_memory_is_never_written():
    memory = HostMemory(np.zeros(256, np.uint8))
    memory.array.flags.writeable = False
    data = np.ones((4, 64), np.uint8)
    violation = refused(tma.store_tile, bare_map(memory.address), (0, 0), data, memory=memory.array)
    assert violation.rule == "COPY_READ_ONLY"
    assert not memory.array.any()


def test_bytes_between_rows_are_neither_read_nor_written():
    x = np.zeros((4, 32), np.float32)
    x[:, 16:] = np.nan
    tensor_map = tma.make_tma_descriptor(x[:, :16], (4, 16))
    assert not np.isnan(tma.load_tile(tensor_map, (0, 0)).array).any()
    tma.store_tile(tensor_map, (0, 0), np.ones((4, 16), np.float32))
    assert np.isnan(x[:, 16:]).all()
    assert (x[:, :16] == 1).all()


def test_recorded_memory_is_what_numpy_s_generator_gives():
    assert (
        GLOBAL_BYTES[:4].tolist()
        == np.random.default_rng(20261120).integers(0, 256, 4, dtype=np.uint8).tolist()
    )


class Recording(tma.Backend):
    """A user's backend, with the two functions that execute a checked request."""

    name = "recording"

    def __init__(self):
        self.requests = []

    def load(self, request, memory, stream):
        self.requests.append(("load", request.coords.tolist(), memory, stream))
        return tma.backend("simulator").load(request, memory, None)

    def store(self, request, data, op, memory, stream):
        self.requests.append((op, request.coords.tolist(), memory, stream))


def test_a_users_backend_receives_checked_requests():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    tm = tma.make_tma_descriptor(x, (2, 4))
    backend = Recording()
    tile = tma.load_tile(tm, (2, 4), backend=backend)
    np.testing.assert_array_equal(tile.array, x[2:4, 4:])
    tma.load_tiles(tm, [(0, 0), (2, 4)], backend=backend)
    tma.store_tile(tm, (0, 4), tile.array, backend=backend)
    tma.reduce_tile(tm, (0, 4), tile.array, "add", backend=backend)
    backend.load_tile(tm, (2, 4), stream=7)
    assert backend.requests == [
        ("load", [[4, 2]], None, None),
        ("load", [[0, 0], [4, 2]], None, None),
        ("store", [[4, 0]], None, None),
        ("add", [[4, 0]], None, None),
        ("load", [[4, 2]], None, 7),
    ]
    with pytest.raises(tma.TmaPreconditionError):
        tma.load_tile(tm, (2, 3), backend=backend)
    assert len(backend.requests) == 5
