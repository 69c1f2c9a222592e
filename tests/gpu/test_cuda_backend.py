"""The CUDA backend on tensors of real frameworks: values, streams, contexts, refusals, threads."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
import time

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.copies import cuda
from tma_dlpack.copies.cuda import CudaBackend
from tma_dlpack.copies.launch import DeviceBytes
from tma_dlpack.copies.request import load_request

MATRIX = np.arange(40 * 64, dtype=np.float32).reshape(40, 64)


# --- Tensors of each framework ------------------------------------------------------------------


@pytest.fixture(params=["torch", "cupy", "cupy managed", "jax"])
def on_gpu(request):
    """Return a function that puts a NumPy array on the GPU with one framework."""
    framework, _, managed = request.param.partition(" ")
    module = request.getfixturevalue(framework)
    if framework == "torch":
        yield lambda a: module.from_numpy(a.copy()).cuda()
    elif framework == "jax":
        yield lambda a: module.device_put(a)
    elif managed:
        pool = module.cuda.MemoryPool(module.cuda.malloc_managed)
        with module.cuda.using_allocator(pool.malloc):
            yield module.asarray
    else:
        yield module.asarray


@pytest.mark.parametrize("swizzle", ["none", "bytes32", "bytes64", "bytes128"])
def test_a_tile_is_a_slice_of_the_tensor(on_gpu, swizzle):
    columns = {"none": 32, "bytes32": 8, "bytes64": 16, "bytes128": 32}[swizzle]
    tensor_map = tma.make_tma_descriptor(on_gpu(MATRIX), (8, columns), swizzle=swizzle)
    assert tensor_map.encoder == "driver"
    tile = tma.load_tile(tensor_map, (36, 64 - columns))
    np.testing.assert_array_equal(tile.array[:4], MATRIX[36:, 64 - columns :])
    assert not tile.array[4:].any()
    assert tile.filled[4:].all()
    assert not tile.filled[:4].any()


def test_hardware_and_simulator_leave_the_same_shared_memory(on_gpu):
    options = {"box_sizes": (9, 16), "swizzle": "bytes128", "oobfill": "nan"}
    real = tma.load_tile(
        tma.make_tma_descriptor(on_gpu(MATRIX), **options), (-2, 56), smem_offset=384
    )
    simulated = tma.load_tile(tma.make_tma_descriptor(MATRIX, **options), (-2, 56), smem_offset=384)
    np.testing.assert_array_equal(real.written, simulated.written)
    np.testing.assert_array_equal(real.smem, simulated.smem)


def test_many_tiles_cover_the_tensor(on_gpu):
    tensor_map = tma.make_tma_descriptor(on_gpu(MATRIX), (8, 16))
    tile = tma.load_tiles(tensor_map, tma.tile_coords(tensor_map))
    expected = MATRIX.reshape(5, 8, 4, 16).swapaxes(1, 2).reshape(20, 8, 16)
    np.testing.assert_array_equal(tile.array, expected)


def test_model_and_driver_make_the_same_map_of_a_tensor(on_gpu):
    tensor = on_gpu(MATRIX)
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16), l2_fetch_size="bytes128")
    modelled = tma.driver_encode_tiled(
        "FLOAT32", 2, tensor_map.global_address, (64, 40), (256,), (16, 8), (1, 1),
        l2_promotion="bytes128", encoder="model",
    )  # fmt: skip
    assert bytes(tensor_map) == bytes(modelled)


@pytest.fixture(params=["torch", "cupy"])
def writeable(request):
    """Return a writeable tensor of zeros on the GPU, and a function that reads the tensor."""
    module = request.getfixturevalue(request.param)
    if request.param == "torch":
        tensor = module.zeros((40, 64), device="cuda")
        return tensor, lambda: tensor.cpu().numpy()
    tensor = module.zeros((40, 64), module.float32)
    return tensor, tensor.get


def test_a_stored_tile_is_in_the_tensor_and_clipped(writeable):
    tensor, read = writeable
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16), swizzle="bytes64")
    data = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    tma.store_tile(tensor_map, (36, 48), data, smem_offset=128)
    expected = np.zeros((40, 64), np.float32)
    expected[36:, 48:] = data[:4]
    np.testing.assert_array_equal(read(), expected)


def test_a_reduced_tile_is_added(writeable):
    tensor, read = writeable
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16))
    for _ in range(3):
        tma.reduce_tile(tensor_map, (0, 0), np.full((8, 16), 1.5, np.float32), "add")
    expected = np.zeros((40, 64), np.float32)
    expected[:8, :16] = 4.5
    np.testing.assert_array_equal(read(), expected)


def test_a_jax_array_is_not_written(jax):
    x = jax.device_put(MATRIX)
    tensor_map = tma.make_tma_descriptor(x, (8, 16))
    for ask in (
        lambda: tma.store_tile(tensor_map, (0, 0), MATRIX[8:16, :16]),
        lambda: tma.reduce_tile(tensor_map, (0, 0), MATRIX[8:16, :16], "add"),
    ):
        with pytest.raises(tma.TmaPreconditionError, match="read-only"):
            ask()
    np.testing.assert_array_equal(x, MATRIX)


def test_a_torch_tile_of_the_tensor_s_own_dtype_is_stored(torch):
    tensor = torch.zeros((8, 16), dtype=torch.bfloat16, device="cuda")
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16))
    tile = torch.ones((8, 16), dtype=torch.bfloat16)
    tma.store_tile(tensor_map, (0, 0), tile)
    assert (tensor == 1).all()
    with pytest.raises(tma.TmaPreconditionError, match=r"torch\.bfloat16.*cuda:0(.|\n)*x\.cpu\(\)"):
        tma.store_tile(tensor_map, (0, 0), tile.cuda())


def test_im2col_columns_are_a_convolution_s(torch):
    import itertools

    x = torch.randn((2, 9, 10, 16), device="cuda", dtype=torch.float32)
    weight = torch.randn((5, 16, 3, 3), dtype=torch.float64)
    lower, upper = tma.im2col_corners((3, 3), padding=1)
    tensor_map = tma.make_im2col_descriptor(x, lower, upper, 16, 64)
    starts = tma.tile_coords(tensor_map)
    result = 0
    for h, w in itertools.product(range(3), range(3)):
        tiles = tma.load_tiles(tensor_map, starts, im2col_offsets=(h, w))
        pixels = tiles.array.reshape(-1, 16)[: 2 * 9 * 10].astype(np.float64)
        result = result + pixels @ weight[:, :, h, w].numpy().T
    direct = torch.nn.functional.conv2d(x.cpu().double().permute(0, 3, 1, 2), weight, padding=1)
    expected = direct.permute(0, 2, 3, 1).reshape(-1, 5).numpy()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-10)


# --- Streams, contexts, threads -----------------------------------------------------------------

SLEEP_CYCLES = 200_000_000  # about a tenth of a second


def test_a_load_waits_for_torch_s_current_stream(torch):
    tensor = torch.zeros((64, 64), device="cuda")
    tensor_map = tma.make_tma_descriptor(tensor, (64, 64))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(SLEEP_CYCLES)
        tensor.fill_(7)
        assert (tma.load_tile(tensor_map, (0, 0)).array == 7).all()


def test_a_load_on_another_stream_is_ordered_after_torch_s(torch):
    tensor = torch.zeros((64, 64), device="cuda")
    tensor_map = tma.make_tma_descriptor(tensor, (64, 64))
    torch.cuda.synchronize()
    other = torch.cuda.Stream()
    torch.cuda._sleep(SLEEP_CYCLES)
    tensor.fill_(7)
    for stream in (other, other.cuda_stream):
        tile = CudaBackend().load_tile(tensor_map, (0, 0), stream=stream)
        assert (tile.array == 7).all()


def test_a_load_waits_for_cupy_s_current_stream(cupy):
    tensor = cupy.zeros((64, 64), cupy.float32)
    big = cupy.ones((8192, 8192), cupy.float32)
    tensor_map = tma.make_tma_descriptor(tensor, (64, 64))
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            big = big @ big * 1e-4
        tensor[...] = 7
        assert (tma.load_tile(tensor_map, (0, 0)).array == 7).all()


def test_a_load_waits_for_jax(jax):
    x = jax.numpy.ones((4096, 4096))
    for _ in range(20):
        x = x @ x * (1 / 4096)
    tile = tma.load_tile(tma.make_tma_descriptor(x, (8, 64)), (4088, 4032))
    np.testing.assert_allclose(tile.array, 1, rtol=1e-2)


def test_a_stream_of_no_known_kind_is_refused(torch):
    tensor_map = tma.make_tma_descriptor(torch.zeros((64, 64), device="cuda"), (8, 64))
    with pytest.raises(tma.TmaUnsupportedError, match="stream is a str"):
        CudaBackend().load_tile(tensor_map, (0, 0), stream="default")


def test_a_thread_without_a_context_has_none_afterwards(torch):
    tensor_map = tma.make_tma_descriptor(torch.zeros((64, 64), device="cuda"), (8, 64))
    seen = []

    def load():
        seen.append(driver.current_device())
        tma.load_tile(tensor_map, (0, 0))
        tma.driver_encode_tiled(
            "INT32", 1, 0x7F0000000000, (64,), (), (16,), (1,), encoder="driver"
        )
        seen.append(driver.current_device())

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    assert seen == [None, None]


def test_threads_do_not_disturb_each_other(torch):
    tensors = [torch.full((64, 64), float(i), device="cuda") for i in range(8)]
    maps = [tma.make_tma_descriptor(t, (8, 64)) for t in tensors]
    wrong = []

    def load(value, tensor_map):
        for row in range(0, 64, 8):
            if not (tma.load_tile(tensor_map, (row, 0)).array == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=load, args=pair) for pair in enumerate(maps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_many_tiles_come_in_several_launches(torch, monkeypatch):
    tensor = torch.from_numpy(MATRIX.copy()).cuda()
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16))
    whole = tma.load_tiles(tensor_map, tma.tile_coords(tensor_map))
    monkeypatch.setattr(cuda, "MAX_SCRATCH_BYTES", 3000)
    parts = tma.load_tiles(tensor_map, tma.tile_coords(tensor_map))
    np.testing.assert_array_equal(parts.array, whole.array)
    np.testing.assert_array_equal(parts.written, whole.written)


def test_tiles_that_never_complete_end_by_themselves_and_are_reported(torch):
    tensor_map = tma.make_tma_descriptor(torch.zeros((4096, 64), device="cuda"), (8, 64))
    coords = tma.tile_coords(tensor_map).repeat(40, axis=0)  # more blocks than run at the same time
    request = load_request(tensor_map, coords, None, 0, many=True)
    wrong = dataclasses.replace(request.plan, tx_bytes=request.plan.tx_bytes + 16)
    started = time.monotonic()
    with pytest.raises(tma.TmaDriverError, match=r"tile \d+ did not complete within 2 s"):
        cuda._load(dataclasses.replace(request, plan=wrong), None, None)
    assert time.monotonic() - started < 10
    assert tma.load_tile(tensor_map, (0, 0)).written.all()


# --- Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda tm: tma.load_tile(tm, (0, 1)),
        lambda tm: tma.load_tile(tm, (0, 0, 0)),
        lambda tm: tma.load_tile(tm, (0, 0), smem_offset=64),
        lambda tm: tma.store_tile(tm, (-1, 0), MATRIX[:8, :16]),
        lambda tm: tma.reduce_tile(tm, (0, 0), MATRIX[:8, :16], "xor"),
    ],
    ids=["inner coordinate", "number of coordinates", "smem_offset", "negative store", "op"],
)
def test_what_would_kill_a_kernel_is_refused_and_the_context_lives(torch, ask):
    tensor = torch.from_numpy(MATRIX.copy()).cuda()
    tensor_map = tma.make_tma_descriptor(tensor, (8, 16))
    with pytest.raises(tma.TmaPreconditionError):
        ask(tensor_map)
    np.testing.assert_array_equal(tma.load_tile(tensor_map, (0, 0)).array, MATRIX[:8, :16])


def test_the_map_of_a_host_tensor_is_refused(torch):
    with pytest.raises(tma.TmaUnsupportedError, match="not launchable"):
        tma.load_tile(tma.make_tma_descriptor(MATRIX, (8, 16)), (0, 0), backend="cuda")


def test_a_tensor_that_moved_after_its_map_was_made_is_refused(torch):
    x = torch.nn.Parameter(torch.ones((64, 64), device="cuda"))
    tensor_map = tma.make_tma_descriptor(x, (8, 16))
    assert (tma.load_tile(tensor_map, (0, 0)).array == 1).all()
    x.data = torch.full((64, 64), 2.0, device="cuda")
    for ask in (
        lambda tm: tma.load_tile(tm, (0, 0)),
        lambda tm: tma.store_tile(tm, (0, 0), MATRIX[:8, :16]),
    ):
        with pytest.raises(tma.TmaPreconditionError, match="COPY_MOVED"):
            ask(tensor_map)
    assert (tma.load_tile(tensor_map.with_address(x), (0, 0)).array == 2).all()


def test_a_tensor_whose_storage_was_emptied_is_refused(torch):
    x = torch.ones((64, 64), device="cuda")
    tensor_map = tma.make_tma_descriptor(x, (8, 16))
    x.untyped_storage().resize_(0)
    with pytest.raises(tma.TmaPreconditionError, match=r"data_ptr\(\) is 0(.|\n)*COPY_MOVED"):
        tma.load_tile(tensor_map, (0, 0))


def test_a_copied_tile_keeps_what_the_hardware_wrote(torch):
    tensor_map = tma.make_tma_descriptor(torch.ones((64, 64), device="cuda"), (8, 16))
    tile = tma.load_tile(tensor_map, (0, 0), smem_offset=128)
    for again in (copy.deepcopy(tile), pickle.loads(pickle.dumps(tile))):
        assert type(again) is type(tile)
        np.testing.assert_array_equal(again.written, tile.written)
        with pytest.raises(ValueError, match="read-only"):
            again.written[...] = True
    with pytest.raises(AttributeError, match="written cannot be set"):
        tile.written = None


def test_the_largest_tile_leaves_room_for_the_mbarrier(torch):
    tensor = torch.zeros((256, 256), device="cuda", dtype=torch.float32)
    tensor_map = tma.make_tma_descriptor(tensor, (226, 256))  # 231,424 bytes
    assert tma.load_tile(tensor_map, (0, 0)).written.all()
    tile_bytes = tensor_map.smem_bytes
    assert tma.load_tile(tensor_map, (0, 0), smem_offset=896).smem.shape == (896 + tile_bytes,)
    with pytest.raises(tma.TmaPreconditionError, match="mbarrier"):
        tma.load_tile(tensor_map, (0, 0), smem_offset=1024)


def encode(address: int, rows: int = 64) -> tma.TensorMap:
    return tma.driver_encode_tiled(
        "UINT8", 2, address, (64, rows), (64,), (64, 8), (1, 1), encoder="driver"
    )


def test_a_bare_address_is_read_within_its_allocation():
    with DeviceBytes(4096) as room:
        room.put(np.arange(4096, dtype=np.uint8))
        tile = tma.load_tile(encode(room.address), (56, 0), backend="cuda")
        np.testing.assert_array_equal(tile.array.reshape(-1), np.arange(56 * 64, 4096) % 256)


def test_a_bare_address_that_cuda_does_not_know_is_refused():
    with pytest.raises(tma.TmaUnsupportedError, match="no allocation that CUDA knows"):
        tma.load_tile(encode(0x10000), (0, 0), backend="cuda")


def test_a_byte_outside_memory_is_refused():
    with DeviceBytes(4096) as room:
        tensor_map = encode(room.address, rows=65)
        assert tma.load_tile(tensor_map, (56, 0), backend="cuda", memory=room).written.all()
        with pytest.raises(tma.TmaPreconditionError, match="touches bytes 3648 to 4160"):
            tma.load_tile(tensor_map, (57, 0), backend="cuda", memory=room)


def test_a_store_past_a_ragged_row_that_hits_foreign_memory_is_refused():
    with DeviceBytes(4096) as room:
        tensor_map = tma.driver_encode_tiled(
            "UINT8", 1, room.address, (4090,), (), (16,), (1,), encoder="driver"
        )
        tma.store_tile(tensor_map, (4080,), np.full(16, 3, np.uint8), backend="cuda", memory=room)
        assert (room.get()[4080:] == 3).all()  # the whole chunk, six bytes past the row
        short = type("Short", (), {"__cuda_array_interface__": room.__cuda_array_interface__})()
        short.__cuda_array_interface__["shape"] = (4090,)
        with pytest.raises(tma.TmaPreconditionError, match="COPY_STORE_OVERRUN"):
            tma.store_tile(
                tensor_map, (4080,), np.full(16, 4, np.uint8), backend="cuda", memory=short
            )
