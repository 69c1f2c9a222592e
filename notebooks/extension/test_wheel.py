"""Tests of the installed wheel: run ``python -m pytest test_wheel.py``. Some tests need a GPU."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tma_example_wheel import doubled

import tma_dlpack as tma

SOURCE = Path(__file__).with_name("double_tiles.cu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with TMA")


@pytest.mark.skipif(not hasattr(tma, "run_kernel"), reason="this tma_dlpack runs no kernels")
@pytest.mark.parametrize("shape", [(16, 32), (40, 36)])
def test_the_kernel_doubles_every_element_on_the_simulator(shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    out = np.zeros_like(x)
    maps = [tma.make_tma_descriptor(m, (16, 32), allow=["BOX_IN_SHAPE"]) for m in (x, out)]
    # The number of tiles of 16 x 32, rounded up in both dimensions.
    across, high = -(-shape[1] // 32), -(-shape[0] // 16)
    arguments = (*maps, across, across * high)
    run = tma.run_kernel(SOURCE, "double_tiles", grid=2, block=128, args=arguments)
    run.raise_if_wrong()
    assert np.array_equal(out, 2 * x)


def test_the_operator_has_a_schema_and_a_shape_without_a_gpu():
    assert str(doubled.default._schema) == "tma_example_wheel::doubled(Tensor x) -> Tensor"
    assert doubled(torch.empty(5, 8, device="meta")).shape == (5, 8)
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        doubled(torch.zeros(16, 32))


@needs_gpu
@pytest.mark.parametrize("shape", [(1, 4), (16, 32), (1000, 100), (0, 8)])
def test_every_element_is_doubled(shape):
    x = torch.rand(shape, device="cuda")
    assert torch.equal(doubled(x), 2 * x)


@needs_gpu
def test_what_tma_cannot_do_is_refused_with_the_rule():
    with pytest.raises((RuntimeError, ValueError), match="broken: STRIDE_ALIGNED"):
        doubled(torch.rand(64, 33, device="cuda"))
