"""What a caller may hand to a copy by mistake, or worse: nothing but a `TmaError` comes back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import tma_dlpack as tma
from tma_dlpack.copies import launch

HUGE = 10**5000  # Python refuses to write more than 4300 digits


def raising(*names):
    """Give an object whose methods of these names raise what is no `TmaError`."""

    def fail(self, *args, **keywords):
        raise RuntimeError("raised by the caller's object")

    body = {name: property(fail) if name in PROPERTIES else fail for name in names}
    return type("Raising", (), body)()


PROPERTIES = ("__class__", "dtype", "shape", "load_tile", "__array_interface__", "__dlpack__")
#: Each is a new object: some can be read but once.
HOSTILE = {
    "an endless iterator": itertools.count,
    "a range of a billion": lambda: range(10**9),
    "an integer of 5000 digits": lambda: HUGE,
    "a tuple of one": lambda: (HUGE, 0),
    "a list of one": lambda: [HUGE, 0],
    "a torch tensor without values": lambda: torch.zeros(2, dtype=torch.long, device="meta"),
    "a torch scalar": lambda: torch.tensor(1.5),
    "a raising __index__": lambda: raising("__index__"),
    "a tuple of a raising __index__": lambda: (raising("__index__"), 0),
    "a raising __iter__": lambda: raising("__iter__"),
    "a raising __len__": lambda: raising("__iter__", "__len__", "__getitem__"),
    "a raising __repr__": lambda: raising("__repr__"),
    "a raising __eq__": lambda: raising("__eq__", "__hash__", "__bool__"),
    "a raising __array__": lambda: raising("__array__", "dtype", "shape"),
    "a raising __array_interface__": lambda: raising("__array_interface__", "__array__"),
    "a raising __dlpack__": lambda: raising("__array__", "__dlpack__", "dtype"),
    "a raising load_tile": lambda: raising("load_tile"),
}
TILE = np.zeros((8, 16), np.float32)


def matrix_map():
    return tma.make_tma_descriptor(np.zeros((16, 64), np.float32), (8, 16))


def pixel_map():
    return tma.make_im2col_descriptor(np.zeros((2, 8, 8), np.float32), (0,), (0,), 8, 4)


def row_map():
    return tma.driver_encode_tiled(
        "FLOAT32", 2, 1 << 40, (64, 16), (256,), (16, 1), (1, 1), target="sm_100"
    )


SIMULATOR = tma.backend("simulator")
#: Verb and argument -> the call with a hostile object there.
CALLS = {
    "tile_coords tensor_map": tma.tile_coords,
    "load_tile tensor_map": lambda x: tma.load_tile(x, (0, 0)),
    "load_tile coords": lambda x: tma.load_tile(matrix_map(), x),
    "load_tile im2col_offsets": lambda x: tma.load_tile(pixel_map(), (0, 0, 0), im2col_offsets=x),
    "load_tile offsets of a tiled map": lambda x: tma.load_tile(
        matrix_map(), (0, 0), im2col_offsets=x
    ),
    "load_tile smem_offset": lambda x: tma.load_tile(matrix_map(), (0, 0), smem_offset=x),
    "load_tile memory": lambda x: tma.load_tile(matrix_map(), (0, 0), memory=x),
    "load_tile backend": lambda x: tma.load_tile(matrix_map(), (0, 0), backend=x),
    "load_tiles coords": lambda x: tma.load_tiles(matrix_map(), x),
    "store_tile coords": lambda x: tma.store_tile(matrix_map(), x, TILE),
    "store_tile data": lambda x: tma.store_tile(matrix_map(), (0, 0), x),
    "store_tile memory": lambda x: tma.store_tile(matrix_map(), (0, 0), TILE, memory=x),
    "reduce_tile data": lambda x: tma.reduce_tile(matrix_map(), (0, 0), x, "add"),
    "reduce_tile op": lambda x: tma.reduce_tile(matrix_map(), (0, 0), TILE, x),
    "gather4 tensor_map": lambda x: SIMULATOR.gather4(x, 0, (0, 1, 2, 3)),
    "gather4 column": lambda x: SIMULATOR.gather4(row_map(), x, (0, 1, 2, 3)),
    "gather4 rows": lambda x: SIMULATOR.gather4(row_map(), 0, x),
    "gather4 row": lambda x: SIMULATOR.gather4(row_map(), 0, (0, 1, 2, x)),
    "backend name": tma.backend,
    "stream": launch.stream_handle,
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("call", CALLS)
def test_only_a_tma_error_comes_back(call, what):
    with pytest.raises(tma.TmaError) as caught:
        CALLS[call](HOSTILE[what]())
    assert str(caught.value)


@pytest.mark.parametrize("coords", [[4, 8], np.array([4, 8]), torch.tensor([4, 8]), iter((4, 8))])
def test_coordinates_of_every_kind_of_sequence_are_read(coords):
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    tile = tma.load_tile(tma.make_tma_descriptor(x, (8, 16)), coords)
    np.testing.assert_array_equal(tile.array, x[4:12, 8:24])


def test_an_op_of_a_str_subclass_is_read():
    x = np.zeros((8, 16), np.float32)
    tensor_map = tma.make_tma_descriptor(x, (8, 16))
    tma.reduce_tile(tensor_map, (0, 0), TILE + 2, np.str_("add"))
    assert (x == 2).all()
