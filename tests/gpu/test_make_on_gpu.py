"""make_tma_descriptor on CUDA tensors: the driver encodes, the model agrees, launchers work."""

import random

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.tables import bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not driver.is_available(), reason=driver.status().reason or ""),
]


def torch_tensor():
    torch = pytest.importorskip("torch")
    return torch.zeros(128, 64, dtype=torch.float16, device="cuda")


def cupy_tensor():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    return cupy.zeros((128, 64), dtype=cupy.float16)


def jax_tensor():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU backend")
    return jax.numpy.zeros((128, 64), dtype=jax.numpy.float16)


PRODUCERS = pytest.mark.parametrize("tensor_of", [torch_tensor, cupy_tensor, jax_tensor])


@PRODUCERS
def test_the_driver_encodes_a_cuda_tensor_as_the_model_does(tensor_of):
    x = tensor_of()
    tm = tma.make_tma_descriptor(x, (16, 64), swizzle="bytes128", l2_fetch_size="bytes256")
    assert (tm.encoder, tm.launchable, tm.tensor is x) == ("driver", True, True)
    assert tm.target.name == driver.device_target(0).name
    assert tm.target.max_smem_bytes == driver.device_target(0).max_smem_bytes
    assert bytes(tm) == bits.encode(tm.arguments, tm.global_address)
    assert tm.ptr % 128 == 0
    assert (tm.global_dim, tm.global_strides) == ((64, 128), (128,))


@PRODUCERS
def test_each_tensor_of_a_layout_gets_the_drivers_bytes_at_its_own_address(tensor_of):
    first, second = tensor_of(), tensor_of()
    a = tma.make_tma_descriptor(first, (16, 64))
    b = tma.make_tma_descriptor(second, (16, 64))
    assert (a.encoder, b.encoder) == ("driver", "driver")
    assert bytes(a)[8:] == bytes(b)[8:]
    assert a.with_address(second) == b
    assert bytes(b)[:8] == b.global_address.to_bytes(8, "little")


def test_managed_memory_is_launchable():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    memory = cupy.cuda.malloc_managed(64 * 64 * 4)
    x = cupy.ndarray((64, 64), dtype=cupy.float32, memptr=memory)
    tm = tma.make_tma_descriptor(x, (16, 16))
    assert tm.device.device_type == 13
    assert (tm.launchable, tm.encoder) == (True, "driver")


def test_pinned_memory_is_a_host_tensor():
    torch = pytest.importorskip("torch")
    tm = tma.make_tma_descriptor(torch.zeros(64, 64).pin_memory(), (16, 16))
    assert (tm.launchable, tm.encoder, tm.target.name) == (False, "model", "sm_90")


def test_the_current_context_is_left_as_it_was():
    torch = pytest.importorskip("torch")
    x = torch_tensor()
    before = driver.current_device()
    tma.make_tma_descriptor(x, (16, 64))
    assert driver.current_device() == before
    assert torch.cuda.current_device() == 0


def random_request(rng, torch, room):
    """A view of the tensor `room`, and options that are accepted in about half of the cases."""
    dtype = rng.choice([torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64])
    rank = rng.randint(1, 5)
    elements = room.view(dtype)
    unit = 16 // dtype.itemsize
    shape = [rng.choice([1, 2, 3, 7, 8, 16, 33, 64]) for _ in range(rank)]
    strides, step = [1], shape[-1]
    for extent in shape[-2::-1]:
        stride = -(-step // unit) * unit if rng.random() < 0.9 else step
        strides.append(rng.choice([stride, stride, stride, stride + unit, 0]))
        step = max(stride, strides[-1]) * extent
    start = unit * rng.randint(0, 64) + (rng.random() < 0.05)
    if start + step > elements.numel():
        return random_request(rng, torch, room)
    x = elements.as_strided(shape, strides[::-1], start)
    inner = rng.choice([unit, 2 * unit, 4 * unit, 8 * unit, unit + 1])
    options = {
        "box_sizes": [*(rng.choice([1, 2, 8, 64, n]) for n in shape[:-1]), inner],
        "elem_strides": rng.choice([None, [rng.choice([1, 1, 1, 2, 8]) for _ in shape]]),
        "interleave_layout": rng.choice(["none"] * 8 + ["bytes16", "bytes32"]),
        "swizzle": rng.choice(["none", "bytes32", "bytes64", "bytes128"]),
        "l2_fetch_size": rng.choice(["none", "bytes64", "bytes128", "bytes256"]),
        "oobfill": rng.choice(["none"] * 4 + ["nan"]),
        "rules": rng.choice(["libcu++", "driver", "driver"]),
    }
    return x, options


def test_driver_and_model_give_equal_bytes_on_2000_random_layouts():
    torch = pytest.importorskip("torch")
    rng = random.Random(20261120)
    room = torch.zeros(1 << 26, dtype=torch.uint8, device="cuda")
    accepted = 0
    while accepted < 2000:
        x, options = random_request(rng, torch, room)
        try:
            tm = tma.make_tma_descriptor(x, **options)
        except tma.TmaPreconditionError:
            continue
        accepted += 1
        by_driver = driver.encode(tm.arguments, tm.global_address, 0)
        assert tm.encoder == "driver"
        assert bytes(tm) == by_driver == bits.encode(tm.arguments, tm.global_address), options


@pytest.mark.parametrize(
    ("interleave", "address", "accepted"),
    [
        (0, 16, True),
        (0, 8, False),
        (0, 0, False),
        (0, (1 << 57) - 16, True),
        (0, 1 << 57, False),
        (2, 32, True),
        (2, 16, True),
    ],
)
def test_driver_replace_address_accepts_what_the_driver_does(interleave, address, accepted):
    swizzle = 1 if interleave == 2 else 0
    tm = tma.driver_encode_tiled(
        "FLOAT16", 3, 1 << 40, (64, 8, 4), (1024, 8192), (8, 8, 1), (1, 1, 1), interleave, swizzle,
        encoder="driver",
    )  # fmt: skip
    if accepted:
        moved = tma.driver_replace_address(tm, address)
        assert bytes(moved) == driver.replace_address(bytes(tm), address, 0)
        assert bytes(moved)[8:] == bytes(tm)[8:]
    else:
        with pytest.raises(tma.TmaDriverError):
            driver.replace_address(bytes(tm), address, 0)
        with pytest.raises(tma.TmaPreconditionError):
            tma.driver_replace_address(tm, address)


def test_the_driver_shows_its_refusal_with_every_argument():
    with pytest.raises(tma.TmaDriverError, match=r"CUDA_ERROR_INVALID_VALUE") as refused:
        tma.driver_encode_tiled(
            "FLOAT16", 2, 1 << 40, (64, 8), (130,), (64, 8), (1, 1), encoder="driver"
        )
    for word in ("globalDim", "globalStrides", "130", "boxDim", "elementStrides", "swizzle"):
        assert word in str(refused.value)


def test_a_launcher_gets_the_same_128_bytes():
    x = torch_tensor()
    tm = tma.make_tma_descriptor(x, (16, 64))
    assert tm.as_torch().numpy().tobytes() == bytes(tm)
    assert bytes(bytearray(tm.as_ctypes())) == bytes(tm)
    handle = tm.as_cuda_bindings()
    assert np.array([int(w) for w in handle.opaque], "<u8").tobytes() == bytes(tm)
