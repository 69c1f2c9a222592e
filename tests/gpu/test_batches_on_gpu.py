"""A batch of maps in global memory: one copy, and a kernel that takes the address of each map."""

from __future__ import annotations

import ctypes

import kernels

import tma_dlpack as tma

X, Y = 48, 36  # the tile's last four rows are out of bounds


def matrices(torch, count):
    numbers = torch.arange(40 * 64, dtype=torch.int32, device="cuda").reshape(40, 64)
    return [numbers + 1000 * i for i in range(count)]


def test_rows_are_the_bytes_that_the_driver_makes_of_each_tensor(torch):
    tensors = [*matrices(torch, 5), torch.zeros(16, 64, dtype=torch.bfloat16, device="cuda")]
    for group in (tensors[:5], tensors):  # batches with one layout, and with two layouts
        batch = tma.make_tma_descriptors(group, (8, 16), swizzle="bytes64")
        assert batch.launchable
        for x, row, tm in zip(group, batch.numpy(), batch, strict=True):
            alone = tma.make_tma_descriptor(x, (8, 16), swizzle="bytes64")
            assert alone.encoder == "driver"
            assert row.tobytes() == bytes(alone) == bytes(tm)


def test_a_kernel_takes_each_map_of_the_copied_array(torch):
    tensors = matrices(torch, 4)
    wanted = [x.cpu() for x in tensors]
    on_device = tma.make_tma_descriptors(tensors, (8, 16)).as_torch().cuda()
    assert on_device.data_ptr() % 128 == 0
    torch.cuda.synchronize()
    for i, (x, expected) in enumerate(zip(tensors, wanted, strict=True)):
        address = ctypes.c_uint64(on_device.data_ptr() + 128 * i)
        place = ctypes.c_int(X), ctypes.c_int(Y)

        def launch(status, address=address, place=place):
            kernels.run(kernels.ways(), "by_global_memory", 16, address, *place, status)

        assert kernels.status_of(launch) == 0
        expected[Y, X:] += torch.arange(16, dtype=torch.int32)
        assert torch.equal(x.cpu(), expected)
