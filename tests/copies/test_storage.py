"""Copies may touch the whole storage of a tensor, and nothing outside it."""

from __future__ import annotations

import ctypes
import mmap
import sys
import warnings

import numpy as np
import pytest
import torch
from copy_cases import grow_until_moved

import tma_dlpack as tma
from tma_dlpack.copies import memory as copies_memory
from tma_dlpack.dlpack import Storage, as_tensor_view, storage_of


def refused(call, *args, **options):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call(*args, **options)
    (violation,) = caught.value.violations
    return violation


def range_of(x):
    """The storage of x as (bytes before x, bytes in all, is_own)."""
    view = as_tensor_view(x)
    storage = storage_of(view)
    return view.address - storage.address, storage.size_bytes, storage.is_own


# --- Which storage ------------------------------------------------------------------------------


def strided_over(flat, shape, strides_bytes):
    return np.ndarray(shape, flat.dtype, flat, 0, strides_bytes)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (lambda: torch.zeros(8, 8)[2:, :5], (64, 256, True)),
        (lambda: torch.zeros(8, 8).t(), (0, 256, True)),
        (lambda: torch.from_numpy(np.zeros((8, 8), np.float32))[1:], (32, 256, False)),
        (lambda: np.zeros((8, 8), np.float32)[2:, :5], (64, 256, True)),
        (lambda: np.zeros((8, 8), np.float32)[::2].T, (0, 256, True)),
        (lambda: np.zeros((8, 8), np.float32)[::-1][::-1], (0, 256, True)),
        (lambda: strided_over(np.zeros(21, np.float32), (3, 5), (32, 4)), (0, 84, True)),
        (lambda: np.frombuffer(bytearray(256), np.float32)[4:], (16, 256, False)),
        (
            lambda: np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (2, 8), (32, 4)),
            (0, 64, False),
        ),
    ],
    ids=[
        "torch part",
        "torch transposed",
        "torch over NumPy",
        "NumPy part",
        "NumPy every second",
        "NumPy turned twice",
        "NumPy over a short buffer",
        "NumPy over bytes",
        "as_strided",
    ],
)
def test_the_storage_of_a_tensor_is_where_its_memory_begins_and_ends(tensor, expected):
    assert range_of(tensor()) == expected


def test_a_jax_array_is_its_own_storage():
    jax = pytest.importorskip("jax")
    assert range_of(jax.numpy.zeros((4, 8), "float32")) == (0, 128, True)


# --- Stores into padded rows --------------------------------------------------------------------


def padded_torch():
    whole = torch.zeros(64, 1736, dtype=torch.bfloat16)
    return whole[..., :1733], lambda: whole.view(torch.uint16).numpy()


def padded_numpy():
    whole = np.zeros((64, 1736), np.float16)
    return whole[..., :1733], lambda: whole.view(np.uint16)


@pytest.mark.parametrize("padded", [padded_torch, padded_numpy])
@pytest.mark.parametrize("verb", ["store", "reduce"])
def test_the_last_row_of_a_padded_tensor_is_stored(padded, verb):
    x, words = padded()
    tensor_map = tma.make_tma_descriptor(x, (8, 64))
    ones = np.full((8, 64), 0x3F80 if tensor_map.data_type.name == "BFLOAT16" else 0x3C00, "<u2")
    data = ones if tensor_map.data_type.name == "BFLOAT16" else ones.view(np.float16)
    if verb == "store":
        tma.store_tile(tensor_map, (56, 1728), data)
    else:
        tma.reduce_tile(tensor_map, (56, 1728), data, "add")
    expected = np.zeros((64, 1736), np.uint16)
    expected[56:, 1728:] = ones[0, 0]  # stores write whole chunks of 16 bytes
    np.testing.assert_array_equal(words(), expected)


def test_a_store_past_the_storage_is_refused_and_writes_nothing():
    def ragged_rows(elements):
        flat = np.zeros(elements, np.float32)
        return flat, strided_over(flat, (3, 5), (32, 4))

    flat, x = ragged_rows(24)
    tma.store_tile(
        tma.make_tma_descriptor(x, (3, 8), rules="driver"), (0, 0), np.ones((3, 8), "f4")
    )
    assert flat.tolist() == [1] * 24
    flat, x = ragged_rows(23)
    tensor_map = tma.make_tma_descriptor(x, (3, 8), rules="driver")
    violation = refused(tma.store_tile, tensor_map, (0, 0), np.ones((3, 8), np.float32))
    assert violation.rule == "COPY_STORE_OVERRUN"
    assert violation.found == (
        "the store writes 4 bytes past the end of the tensor's storage: the hardware would "
        "overwrite other memory"
    )
    assert not flat.any()


@pytest.mark.parametrize("make", [torch.arange, np.arange])
def test_elements_beyond_the_tensor_and_inside_its_storage_are_loaded(make):
    whole = make(64 * 8, dtype=torch.float32 if make is torch.arange else np.float32).reshape(64, 8)
    tensor_map = tma.make_tma_descriptor(whole[8:16], (4, 8)).replace(global_dim={1: 56})
    tile = tma.load_tile(tensor_map, (52, 0))
    np.testing.assert_array_equal(tile.array, np.arange(480, 512, dtype="f4").reshape(4, 8))
    further = tensor_map.replace(global_dim={1: 57})
    violation = refused(tma.load_tile, further, (53, 0))
    assert violation.rule == "COPY_OUTSIDE_MEMORY"
    assert violation.found == (
        "the copy touches bytes 1952 to 2080 of the tensor's storage, which has 2048"
    )


@pytest.mark.parametrize("make", [torch.arange, np.arange])
def test_memory_described_otherwise_is_copied_to_the_end_of_the_storage(make):
    whole = make(100 * 72, dtype=torch.float32 if make is torch.arange else np.float32)
    whole = whole.reshape(100, 72)
    expected = np.asarray(whole).copy()
    every_second = tma.make_tma_descriptor(
        whole[:, :64], (8, 8), shape=(50, 72), strides=(144, 1), offset=72
    )
    tile = tma.load_tile(every_second, (42, 64))
    np.testing.assert_array_equal(tile.array, expected[85::2, 64:])
    endless = tma.make_tma_descriptor(
        whole[:, :64], (8, 8), shape=(1 << 20, 72), strides=(72, 1), rules="driver"
    )
    tile = tma.load_tile(endless, (92, 64))
    np.testing.assert_array_equal(tile.array, expected[92:, 64:])
    for ask in (
        lambda: tma.load_tile(endless, (93, 64)),
        lambda: tma.store_tile(endless, (93, 64), np.zeros((8, 8), np.float32)),
    ):
        violation = refused(ask)
        assert violation.rule == "COPY_OUTSIDE_MEMORY"
        assert violation.found == (
            "the copy touches bytes 27040 to 29088 of the tensor's storage, which has 28800"
        )
    np.testing.assert_array_equal(np.asarray(whole), expected)


def test_a_base_that_moved_is_refused():
    """NumPy frees the memory of a view if its base array is resized with refcheck=False."""
    base = np.zeros((64, 32), np.float32)
    part = base[8:16]
    tensor_map = tma.make_tma_descriptor(part, (4, 8))
    grow_until_moved(base)
    assert refused(tma.load_tile, tensor_map, (0, 0)).rule == "COPY_MOVED"


# --- Memory that ends the process ---------------------------------------------------------------

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/maps is Linux's")
PAGE = mmap.PAGESIZE


@LINUX
def test_a_store_into_pages_that_are_read_only_is_refused():
    pages = mmap.mmap(-1, 16 * PAGE, prot=mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it cannot keep the arrays read-only
        x = torch.frombuffer(pages, dtype=torch.float32).reshape(-1, 64)
    tensor_map = tma.make_tma_descriptor(x, (8, 16))
    assert not tma.load_tile(tensor_map, (0, 0)).array.any()
    violation = refused(tma.store_tile, tensor_map, (0, 0), np.ones((8, 16), np.float32))
    assert violation.rule == "COPY_PAGES"
    assert violation.found == f"the tensor's storage has no writeable memory at {x.data_ptr():#x}"


@LINUX
def test_a_tensor_with_a_page_missing_in_the_middle_is_refused():
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    address = libc.mmap(None, 3 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, 0x22, -1, 0)

    class Pages:
        def __init__(self):
            data, shape = (address, False), (3 * PAGE // 256, 64)
            self.__array_interface__ = {
                "version": 3, "typestr": "<f4", "shape": shape, "data": data
            }  # fmt: skip

    x = np.asarray(Pages())
    tensor_map = tma.make_tma_descriptor(x, (4, 16))
    assert not tma.load_tile(tensor_map, (0, 0)).array.any()
    assert libc.munmap(address + PAGE, PAGE) == 0
    try:
        violation = refused(tma.load_tile, tensor_map, (0, 0))
        assert violation.rule == "COPY_PAGES"
        assert (
            violation.found == f"the tensor's storage has no readable memory at {address + PAGE:#x}"
        )
        memory = x.reshape(-1).view(np.uint8)
        assert refused(tma.load_tile, tensor_map, (0, 0), memory=memory).rule == "COPY_PAGES"
        first_page = tma.load_tile(tensor_map, (0, 0), memory=memory[:PAGE])
        assert not first_page.array.any()
    finally:
        libc.munmap(address, 3 * PAGE)


def test_memory_that_a_framework_allocated_is_not_looked_up(monkeypatch):
    monkeypatch.setattr(copies_memory, "first_forbidden", lambda *args: pytest.fail("looked up"))
    for x in (torch.zeros(16, 64), np.zeros((16, 64), np.float32)):
        tensor_map = tma.make_tma_descriptor(x, (8, 16))
        tma.load_tile(tensor_map, (0, 0))
        tma.store_tile(tensor_map, (0, 0), np.ones((8, 16), np.float32))


def test_a_storage_holds_a_tensor_to_its_last_byte():
    view = as_tensor_view(np.zeros(16, np.float32))
    assert Storage(view.address, 64, True).holds(view)
    assert not Storage(view.address, 63, True).holds(view)
    assert not Storage(view.address + 1, 64, True).holds(view)
