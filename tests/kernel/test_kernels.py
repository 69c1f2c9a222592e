"""Every kernel of this repository runs on the simulator with NumPy's results and no finding."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import BLACKWELL, CASES

import tma_dlpack as tma


@pytest.mark.parametrize("name", [*CASES, *BLACKWELL])
def test_a_kernel_of_the_repository_is_right_and_nothing_is_found(name):
    case = {**CASES, **BLACKWELL}[name]()
    run = tma.run_kernel(case.source, case.name, schedules=3, **case.keywords)
    assert run.ok, str(run)
    assert run.findings == ()
    for written, expected in case.results:
        np.testing.assert_array_equal(written, expected)
