"""Calls with every option on GPU memory: C and Python make the map with the measured bytes."""

import random

import numpy as np
import pytest
from in_c import IN_C, MAKE, by_python
from random_requests import request_at_random

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.make import extension
from tma_dlpack.tables import bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not driver.is_available(), reason=driver.status().reason or ""),
]
BYTES = 1 << 16


@pytest.fixture(scope="module")
def memories():
    """Device memory and managed memory, as CuPy pointers."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    return cupy.cuda.alloc(BYTES), cupy.cuda.malloc_managed(BYTES)


def test_random_calls_on_gpu_memory_have_one_result(memories):
    import cupy

    rng = random.Random(20261122)
    maps = by_driver = managed = 0
    while maps < 300:
        asked = request_at_random(rng)
        if asked is None or not isinstance(asked.tensor, np.ndarray):
            continue
        array, memory = asked.tensor, rng.choice((*[memories[0]] * 3, memories[1]))
        try:
            start = memory + rng.choice((0, 16, 64, 128))
            x = cupy.ndarray(array.shape, array.dtype, start, array.strides)
        except (TypeError, ValueError, OverflowError):  # types and strides that CuPy lacks
            continue
        expected = by_python(asked.kind, x, asked.given)
        if expected is None:
            if extension.COMPILED:
                assert IN_C[asked.kind](x, **asked.given) is None
            continue
        made = (IN_C if extension.COMPILED else MAKE)[asked.kind](x, **asked.given)
        if made is None:  # left to Python
            continue
        maps += 1
        managed += memory is memories[1]
        by_driver += made.encoder == "driver"
        assert made._data == expected._data
        assert (made, made.description) == (expected, expected.description)
        assert made.launchable
        if made.target.has_model:
            assert bytes(made) == bits.encode(made.arguments, made.global_address)
    assert min(managed, by_driver) > 30


def test_a_map_of_managed_memory_copies(memories):
    import cupy

    x = cupy.ndarray((64, 64), np.float32, memories[1])
    x[...] = cupy.arange(4096, dtype=np.float32).reshape(64, 64)
    made = tma.make_tma_descriptor(x, (16, 32), swizzle="bytes128")
    assert (made.encoder, made.launchable, str(made.device)) == ("driver", True, "cuda_managed:0")
    expected = np.arange(4096, dtype=np.float32).reshape(64, 64)[16:32, 32:]
    assert np.array_equal(tma.load_tile(made, (16, 32)).array, expected)


def test_a_map_for_another_target_has_no_bytes_and_says_so():
    torch = pytest.importorskip("torch")
    x = torch.zeros(128, 64, dtype=torch.float16, device="cuda")
    made = tma.make_tma_descriptor(x, (16, 64), target="sm_120")
    assert (made.encoder, made.launchable) == (None, True)
    with pytest.raises(tma.TmaUnsupportedError, match="sm_120"):
        _ = made.ptr
