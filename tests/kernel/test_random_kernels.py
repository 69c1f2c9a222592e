"""Random kernels on the simulator. tests/gpu runs the same kernels on the hardware."""

import numpy as np
import pytest
from laws import many
from random_kernels import SOURCE, case

import tma_dlpack as tma


@pytest.mark.parametrize("seed", range(8))
def test_a_random_kernel_is_right_in_every_schedule(seed):
    made = case(seed)
    run = tma.run_kernel(SOURCE, made.name, schedules=4, seed=seed, **made.keywords)
    assert run.findings == (), str(run)
    np.testing.assert_array_equal(made.written, made.expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 8 + many(288)))
def test_more_random_kernels(seed):
    test_a_random_kernel_is_right_in_every_schedule(seed)
