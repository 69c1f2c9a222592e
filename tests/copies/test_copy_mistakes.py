"""Ordinary mistakes in a copy, each with the exact message."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.copies import launch

TILE = np.zeros((8, 16), np.float32)
SIMULATOR = tma.backend("simulator")


def matrix_map():
    return tma.make_tma_descriptor(np.zeros((16, 64), np.float32), (8, 16))


def pixel_map():
    return tma.make_im2col_descriptor(np.zeros((2, 8, 8), np.float32), (0,), (0,), 8, 4)


def row_map():
    return tma.driver_encode_tiled(
        "FLOAT32", 2, 1 << 40, (64, 16), (256,), (16, 1), (1, 1), target="sm_100"
    )


def load(*args, **options):
    return tma.load_tile(matrix_map(), *args, **options)


def store(data, coords=(0, 0), **options):
    return tma.store_tile(matrix_map(), coords, data, **options)


#: Mistake -> the call, the first line of the message, and the fix.
def torch_zeros(dtype="float32", **options):
    torch = pytest.importorskip("torch", reason="torch is not installed (extra frameworks)")
    return torch.zeros(8, 16, dtype=getattr(torch, dtype), **options)


MISTAKES = {
    "one coordinate too few": (
        lambda: load((0,)),
        "coords are (0,), but the map has 2 dimensions; there must be one coordinate per dimension,"
        " outermost first",
        "pass 2 integers, such as coords=(0, 0)",
    ),
    "coordinates innermost first": (
        lambda: load((16, 8, 0)),
        "coords are (16, 8, 0), but the map has 2 dimensions; there must be one coordinate per "
        "dimension, outermost first",
        "pass 2 integers, such as coords=(0, 0)",
    ),
    "a coordinate for many": (
        lambda: load(0),
        "coords are 0; coordinates must be a sequence of integers (not bool), one per dimension",
        "pass a tuple or list of integers, or an integer array of shape (n, rank) for many tiles",
    ),
    "coordinates that are floats": (
        lambda: load((0.0, 16.0)),
        "coords are (0.0, 16.0); coordinates must be a sequence of integers (not bool), one per "
        "dimension",
        "pass a tuple or list of integers, or an integer array of shape (n, rank) for many tiles",
    ),
    "an endless iterator as coordinates": (
        lambda: load(itertools.count()),
        "coords are count(65); coordinates must be a sequence of integers (not bool), one per "
        "dimension",
        "pass a tuple or list of integers, or an integer array of shape (n, rank) for many tiles",
    ),
    "an inner coordinate off 16 bytes": (
        lambda: load((0, 2)),
        "coords[1] is 2 in coords (0, 2); FLOAT32 needs a multiple of 4 elements; the innermost "
        "coordinate must be at a multiple of 16 bytes, even if out of bounds",
        "use coords (0, 0), with a box that is wide enough to include element 2",
    ),
    "a coordinate of 33 bits": (
        lambda: load((1 << 32, 0)),
        "coords are (4294967296, 0); a coordinate must fit a signed 32-bit register, "
        "-2147483648..2147483647",
        "move the map, tensor_map.with_address(address), and count coordinates from there",
    ),
    "one tile's coordinates to load_tiles": (
        lambda: tma.load_tiles(matrix_map(), (0, 0)),
        "coords have shape (2,), but the map needs (n, 2); there must be one coordinate per "
        "dimension, outermost first",
        "pass an array of shape (n, 2), such as tma.tile_coords(tensor_map)",
    ),
    "a range to load_tiles": (
        lambda: tma.load_tiles(matrix_map(), range(10**9)),
        "coords are range(0, 1000000000); coordinates must be a sequence of integers (not bool), "
        "one per dimension",
        "pass a tuple or list of integers, or an integer array of shape (n, rank) for many tiles",
    ),
    "an array of floats to load_tiles": (
        lambda: tma.load_tiles(matrix_map(), np.zeros((3, 2))),
        "coords are an array of float64; coordinates must be a sequence of integers (not bool), "
        "one per dimension",
        "pass a tuple or list of integers, or an integer array of shape (n, rank) for many tiles",
    ),
    "offsets of a tiled map": (
        lambda: load((0, 0), im2col_offsets=(1,)),
        "im2col_offsets are (1,); only loads of im2col maps take im2col_offsets",
        "omit im2col_offsets",
    ),
    "offsets for two dimensions of one": (
        lambda: tma.load_tile(pixel_map(), (0, 0, 0), im2col_offsets=(0, 1)),
        "im2col_offsets are (0, 1); the map needs 1 of 0..65535; im2col_offsets must be integers,"
        " one per spatial dimension, row-major (D, H, W): 0..65535 at rank 3, 0..255 at rank 4, "
        "0..31 at rank 5; an im2col-wide map takes one, along W",
        "pass tap x dilation for each spatial dimension, or None for zeros",
    ),
    "a shared-memory offset in elements": (
        lambda: load((0, 0), smem_offset=32),
        "smem_offset is 32; smem_offset must be a multiple of 128 bytes, 0 or more",
        "pass smem_offset=128; in a kernel, declare the buffer alignas(128)",
    ),
    "memory that is no array": (
        lambda: load((0, 0), memory=bytearray(4096)),
        "memory is a bytearray; memory must be a contiguous NumPy uint8 array that contains the "
        "map's addresses",
        "pass memory=x.view(numpy.uint8).reshape(-1), or make the map from a tensor; for a GPU "
        'address pass backend="cuda"',
    ),
    "memory of another type": (
        lambda: load((0, 0), memory=np.zeros(1024, np.float32)),
        "memory is an array of float32; memory must be a contiguous NumPy uint8 array that "
        "contains the map's addresses",
        "pass memory=x.view(numpy.uint8).reshape(-1), or make the map from a tensor; for a GPU "
        'address pass backend="cuda"',
    ),
    "a backend's name misspelt": (
        lambda: load((0, 0), backend="gpu"),
        "backend is 'gpu'; it must be 'simulator', 'cuda' or a Backend",
        "pass backend='simulator'",
    ),
    "a stream for the simulator": (
        lambda: SIMULATOR.load_tile(matrix_map(), (0, 0), stream=0),
        "stream is 0; it must be None: the simulator has no streams",
        'pass no stream, or use backend("cuda")',
    ),
    "the tensor instead of its map": (
        lambda: tma.load_tile(np.zeros((16, 64), np.float32), (0, 0)),
        "tensor_map is a ndarray; it must be a TensorMap",
        "pass what make_tma_descriptor(x, ...) returns",
    ),
    "a tile transposed": (
        lambda: store(TILE.T),
        "data is float32 of shape (16, 8); the map's tile is float32 of shape (8, 16), its shared "
        "memory uint8 of shape (512,); data must be the logical tile (row-major, packed) or the raw"
        " shared-memory bytes",
        "pass an array like Tile.array, or uint8 bytes like Tile.smem",
    ),
    "a tile of another dtype": (
        lambda: store(torch_zeros(dtype="bfloat16")),
        "data is a torch.Tensor of dtype torch.bfloat16 and shape (8, 16); the map's tile is "
        "float32 of shape (8, 16), its shared memory uint8 of shape (512,); data must be the "
        "logical tile (row-major, packed) or the raw shared-memory bytes",
        "pass an array like Tile.array, or uint8 bytes like Tile.smem",
    ),
    "a tile without values": (
        lambda: store(torch_zeros(device="meta")),
        "data is a torch.Tensor of dtype torch.float32, and it lies on torch's meta device (*); "
        "data must be in host memory and hold its values, for a copy on the GPU too",
        "pass x.cpu() of torch (with .resolve_conj() and .resolve_neg()), or x.get() of CuPy",
    ),
    "a number for a tile": (
        lambda: store(0),
        "data is int64 of shape (); the map's tile is float32 of shape (8, 16), its shared memory "
        "uint8 of shape (512,); data must be the logical tile (row-major, packed) or the raw "
        "shared-memory bytes",
        "pass an array like Tile.array, or uint8 bytes like Tile.smem",
    ),
    "a store above the tensor": (
        lambda: store(TILE, (-1, 0)),
        "coords are (-1, 0); a store or reduction must not start at a negative coordinate",
        "use coords (0, 0), and pass data of the elements from there on",
    ),
    "an operation that there is not": (
        lambda: tma.reduce_tile(matrix_map(), (0, 0), TILE, "mul"),
        "op is 'mul', not one of add, min, max, inc, dec, and, or, xor; it must be an operation "
        "that the hardware has for the data type",
        "use one of these, or combine the tile yourself: load_tile, then store_tile",
    ),
    "an operation that the type has not": (
        lambda: tma.reduce_tile(matrix_map(), (0, 0), TILE, "max"),
        "op is 'max', but FLOAT32 has add; it must be an operation that the hardware has for the "
        "data type",
        "use one of these, or combine the tile yourself: load_tile, then store_tile",
    ),
    "three rows for gather4": (
        lambda: SIMULATOR.gather4(row_map(), 0, (0, 1, 2)),
        "the map is tiled with box_dim (16, 1), and rows are (0, 1, 2); gather4 and scatter4 take "
        "a tiled map of rank 2 with one row in its box, and four rows",
        "make the map with box_sizes=(1, columns), and pass four row coordinates",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_what_was_found_the_limit_and_a_fix(mistake):
    call, said, fix = MISTAKES[mistake]
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call()
    (violation,) = caught.value.violations
    found, _, rest = said.partition("*")
    sentence = f"{violation.found}; {violation.limit}"
    assert sentence.startswith(found)
    assert sentence.endswith(rest)
    assert rest or sentence == said
    assert violation.fix == fix


@pytest.mark.parametrize("coords", [[4, 8], np.array([4, 8]), iter((4, 8))])
def test_coordinates_of_every_kind_of_sequence_are_read(coords):
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    tile = tma.load_tile(tma.make_tma_descriptor(x, (8, 16)), coords)
    np.testing.assert_array_equal(tile.array, x[4:12, 8:24])


def test_an_op_of_a_str_subclass_is_read():
    x = np.zeros((8, 16), np.float32)
    tensor_map = tma.make_tma_descriptor(x, (8, 16))
    tma.reduce_tile(tensor_map, (0, 0), TILE + 2, np.str_("add"))
    assert (x == 2).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_longer_than_python_writes_are_refused(sign):
    number = sign * 10**5000
    for ask in (
        lambda: load((number, 0)),
        lambda: tma.load_tiles(matrix_map(), [(number, 0)]),
        lambda: load((0, 0), smem_offset=number),
    ):
        with pytest.raises(tma.TmaPreconditionError):
            ask()
    with pytest.raises(tma.TmaUnsupportedError, match="stream is a int"):
        launch.stream_handle(number)


MATRIX, UNITS = "swizzled matrix", "units of 32 bytes"


def map_to_change(kind, memory):
    address = memory.ctypes.data + -memory.ctypes.data % 128
    if kind == MATRIX:
        shape = ((64, 16), (256,), (16, 8), (1, 1), 0, "bytes64")
    else:
        shape = ((5, 3, 2), (160, 480), (8, 1, 2), (1, 1, 1), 2, "bytes32")
    rank = len(shape[0])
    return tma.driver_encode_tiled("FLOAT32", rank, address, *shape, encoder="model")


#: Change by tensormap.replace -> the rule that refuses copies; None if copies are possible.
CHANGED = [
    (MATRIX, {"box_dim": {0: 16}}, None),
    (
        MATRIX,
        {"box_dim": {0: 3}},
        ("COPY_BOX_ROW", "a row of the box is 12 bytes with swizzle bytes64"),
    ),
    (
        MATRIX,
        {"box_dim": {0: 20}},
        ("COPY_BOX_ROW", "a row of the box is 80 bytes with swizzle bytes64"),
    ),
    (
        MATRIX,
        {"swizzle_mode": "bytes32"},
        ("COPY_BOX_ROW", "a row of the box is 64 bytes with swizzle bytes32"),
    ),
    (MATRIX, {"swizzle_mode": "none", "box_dim": {0: 20}}, None),
    (MATRIX, {"swizzle_mode": "none", "elemtype": "UINT8"}, None),
    (
        MATRIX,
        {"elemtype": "UINT8", "box_dim": {0: 15}},
        ("COPY_BOX_ROW", "a row of the box is 15 bytes with swizzle bytes64"),
    ),
    (MATRIX, {"fill_mode": "nan"}, None),
    (
        MATRIX,
        {"fill_mode": "nan", "elemtype": "INT32"},
        ("COPY_NAN_FILL", "oob_fill is nan and the type INT32"),
    ),
    (UNITS, {"box_dim": {0: 3}}, None),
    (UNITS, {"global_stride": {0: 192}}, None),
    (
        UNITS,
        {"global_stride": {0: 176}},
        ("COPY_STRIDE", "global_strides are (176, 480) with interleave bytes32"),
    ),
    (UNITS, {"global_stride": {0: 176}, "interleave_layout": "bytes16"}, None),
]


@pytest.mark.parametrize(("kind", "changes", "said"), CHANGED)
def test_a_map_that_no_copy_survives_is_refused(kind, changes, said):
    memory = np.zeros(1 << 14, np.uint8)
    changed = map_to_change(kind, memory).replace(**changes)
    origin, data = (0,) * changed.rank, bytes(changed.smem_bytes)
    calls = (
        lambda: tma.load_tile(changed, origin, memory=memory),
        lambda: tma.load_tiles(changed, [origin, origin], memory=memory),
        lambda: tma.store_tile(changed, origin, data, memory=memory),
    )
    for call in calls:
        if said is None:
            call()
            continue
        with pytest.raises(tma.TmaPreconditionError) as caught:
            call()
        (violation,) = caught.value.violations
        assert (violation.rule, violation.found) == said


@pytest.mark.parametrize(("kind", "alignment"), [(MATRIX, 16), (UNITS, 32)])
def test_an_address_off_the_alignment_of_its_map_is_not_copied_from(kind, alignment):
    memory = np.zeros(1 << 14, np.uint8)
    tensor_map = map_to_change(kind, memory)
    origin = (0,) * tensor_map.rank
    for shift in (16, 32):
        moved = tensor_map.replace(global_address=tensor_map.global_address + shift)
        if shift % alignment == 0:
            assert not tma.load_tile(moved, origin, memory=memory).array.any()
            continue
        with pytest.raises(tma.TmaPreconditionError) as caught:
            tma.load_tile(moved, origin, memory=memory)
        (violation,) = caught.value.violations
        assert violation.rule == "COPY_ADDRESS"
        assert violation.found.endswith(f"{moved.global_address:#x}, not a multiple of 32 bytes")
