"""`run_kernel` on both backends: the same call writes the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import CASES
from random_kernels import SOURCE, case

import tma_dlpack as tma


@pytest.fixture
def hopper(torch):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma needs compute capability 9.0")


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_writes_the_same_bytes_on_both_backends(name, hopper):
    on_gpu, simulated = CASES[name](), CASES[name]()
    run = tma.run_kernel(on_gpu.source, on_gpu.name, backend="cuda", **on_gpu.keywords)
    assert run.backend == "cuda"
    assert run.findings == ()
    tma.run_kernel(
        simulated.source, simulated.name, backend="simulator", schedules=1, **simulated.keywords
    )
    for (ours, expected), (theirs, _) in zip(simulated.results, on_gpu.results, strict=True):
        np.testing.assert_array_equal(theirs, expected)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(24))
def test_a_random_kernel_writes_the_same_bytes_on_both_backends(seed, hopper):
    on_gpu, simulated = case(seed), case(seed)
    tma.run_kernel(SOURCE, on_gpu.name, backend="cuda", **on_gpu.keywords)
    run = tma.run_kernel(
        SOURCE, simulated.name, backend="simulator", schedules=3, seed=seed, **simulated.keywords
    )
    assert run.findings == (), str(run)
    np.testing.assert_array_equal(on_gpu.written, on_gpu.expected)
    np.testing.assert_array_equal(simulated.written, on_gpu.written)


def test_tensors_on_the_gpu_choose_the_backend(torch, hopper):
    x = torch.arange(64 * 64, dtype=torch.float32, device="cuda").reshape(64, 64)
    out = torch.zeros(16, 32, device="cuda")
    source = r"""
    #include <tma_dlpack.h>
    using namespace tma_dlpack;
    extern "C" __global__ void corner(const __grid_constant__ Map x, float* out) {
      __shared__ alignas(128) float tile[16 * 32];
      __shared__ Barrier full;
      if (threadIdx.x == 0)
        init(&full), arrive_expect_tx(&full, 2048), load(tile, x, &full, 32, 16);
      __syncthreads(), wait(&full, 0);
      out[threadIdx.x] = tile[threadIdx.x];
    }"""
    tm = tma.make_tma_descriptor(x, (16, 32))
    run = tma.run_kernel(source, grid=1, block=512, args=(tm, out))
    assert run.backend == "cuda"
    assert torch.equal(out, x[16:32, 32:64])
