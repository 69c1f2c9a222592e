"""Ways to pass a map to a kernel: parameter, constant memory, global memory, device changes."""

from __future__ import annotations

import ctypes

import kernels
import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.copies import launch
from tma_dlpack.copies.cuda import TIMED_OUT
from tma_dlpack.copies.launch import DeviceBytes

MATRIX = np.arange(40 * 64, dtype=np.int32).reshape(40, 64)
X, Y = 48, 36  # the tile's last four rows are out of bounds


@pytest.fixture
def matrix():
    with DeviceBytes(MATRIX.nbytes) as room:
        room.put(MATRIX.view(np.uint8).reshape(-1))
        yield room


def map_of(matrix: DeviceBytes) -> tma.TensorMap:
    return tma.driver_encode_tiled(
        "INT32", 2, matrix.address, (64, 40), (256,), (16, 8), (1, 1), encoder="driver"
    )


def by_parameter(library, tensor_map, status):
    place = ctypes.c_int(X), ctypes.c_int(Y)
    kernels.run(library, "by_parameter", 16, launch.by_value(bytes(tensor_map)), *place, status)


def by_constant_memory(library, tensor_map, status):
    place = ctypes.c_int(X), ctypes.c_int(Y)
    address, size_bytes = ctypes.c_uint64(), ctypes.c_size_t()
    driver.call("cuLibraryGetGlobal", address, size_bytes, library.handle, b"constant_map")
    launch.upload(address.value, tensor_map.numpy(), 0)
    kernels.run(library, "by_constant_memory", 16, *place, status)


def by_global_memory(library, tensor_map, status):
    place = ctypes.c_int(X), ctypes.c_int(Y)
    with DeviceBytes(128) as room:
        room.put(tensor_map.numpy())
        address = ctypes.c_uint64(room.address)
        kernels.run(library, "by_global_memory", 16, address, *place, status)


@pytest.mark.parametrize("way", [by_parameter, by_constant_memory, by_global_memory])
def test_the_programming_guide_s_kernel_changes_the_first_row_of_its_tile(matrix, way):
    library, tensor_map = kernels.ways(), map_of(matrix)
    assert kernels.status_of(lambda status: way(library, tensor_map, status)) == 0
    expected = MATRIX.copy()
    expected[Y, X:] += np.arange(16)
    np.testing.assert_array_equal(matrix.get().view(np.int32).reshape(40, 64), expected)


def test_a_copy_that_never_completes_ends_by_itself(matrix):
    library = kernels.ways()
    argument = launch.by_value(bytes(map_of(matrix)))
    status = kernels.status_of(lambda s: kernels.run(library, "expects_too_much", 1, argument, s))
    assert status == TIMED_OUT


# --- Changed on the device ----------------------------------------------------------------------


def changed_on_device(tensor_map: tma.TensorMap, **changes) -> bytes:
    """Run the code of `replace_cuda`, and return the 128 bytes that it writes."""
    library = kernels.compile_here(tensor_map.replace_cuda(**changes), "replace.cu")
    with DeviceBytes(128) as out:
        template = launch.by_value(bytes(tensor_map))
        kernels.run(library, "replace_tensor_map", 32, template, ctypes.c_uint64(out.address))
        return bytes(out.get())


CHANGES = {
    "address": {"global_address": 0x7F0012345680},
    "rank": {"rank": 3, "global_dim": {2: 7}, "global_stride": {1: 4096}, "box_dim": {2: 2}},
    "box": {"box_dim": {0: 32, 1: 5}},
    "shape": {"global_dim": {0: 4_000_000_000, 1: 3}, "global_stride": {0: (1 << 40) - 16}},
    "element strides": {"element_stride": {0: 2, 1: 8}},
    "type": {"elemtype": "BFLOAT16"},
    "tf32": {"elemtype": "TFLOAT32"},
    "tf32 ftz": {"elemtype": "TFLOAT32_FTZ"},
    "swizzle": {"swizzle_mode": "bytes64", "box_dim": {0: 16}},
    "interleave": {"interleave_layout": "bytes16"},
    "fill": {"elemtype": "FLOAT32", "fill_mode": "nan"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_the_device_changes_the_bits_that_replace_changes(changes):
    before = tma.driver_encode_tiled(
        "INT32", 2, 0x7F0000000000, (64, 40), (256,), (16, 8), (1, 1), encoder="model"
    )
    with driver.in_context(0):
        assert changed_on_device(before, **changes) == bytes(before.replace(**changes))


def all_fields(tensor_map: tma.TensorMap) -> dict:
    return {
        "global_address": tensor_map.global_address,
        "rank": tensor_map.rank,
        "box_dim": dict(enumerate(tensor_map.box_dim)),
        "global_dim": dict(enumerate(tensor_map.global_dim)),
        "global_stride": dict(enumerate(tensor_map.global_strides)),
        "element_stride": dict(enumerate(tensor_map.element_strides)),
        "elemtype": tensor_map.data_type,
        "interleave_layout": tensor_map.interleave,
        "swizzle_mode": tensor_map.swizzle,
        "fill_mode": tensor_map.oob_fill,
    }


def test_a_zeroed_buffer_becomes_the_driver_s_map_and_copies_the_same(matrix):
    wanted = tma.driver_encode_tiled(
        "INT32", 2, matrix.address, (64, 40), (256,), (16, 8), (1, 1),
        swizzle="bytes64", encoder="driver",
    )  # fmt: skip
    zeroed = tma.TensorMap.from_bytes(bytes(128))
    made = changed_on_device(zeroed, **all_fields(wanted))
    assert made[:64] == bytes(wanted)[:64]
    assert made == bytes(zeroed.replace(**all_fields(wanted)))
    by_device, by_driver = (
        tma.load_tile(tensor_map, (Y, X), backend="cuda", memory=matrix)
        for tensor_map in (tma.TensorMap.from_bytes(made), wanted)
    )
    np.testing.assert_array_equal(by_device.smem, by_driver.smem)
    np.testing.assert_array_equal(by_device.array[:4], MATRIX[Y:, X:])
    assert by_device.filled[4:].all()
