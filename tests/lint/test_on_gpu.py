"""Kernels in which `lint` finds errors are wrong on hardware, and their neighbours are right.

Measured on an H100 80GB HBM3, driver 580.159.04, 2026-11-23, tiles (or loads) that were wrong:
`write_wrong` 8,219 of 8,448, `read_wrong`, `again_wrong` and `others_wrong` 8,184, `map_wrong` and
`map_acquire_wrong` 8,316 of 8,448 loads; of the neighbours none. `end_wrong`, 0 of 8,448, is why an
end without a wait is a note. On 2026-11-24: `read_block_wrong` 8,184; `read_arrived_wrong`, 0 of
8,448, is why a load over reads after an mbarrier is a warning. Not seen to fail either:
`mbarrier.init` with a barrier of the block and no fence (1,000 launches), and a missing fence where
a barrier of the block and slower code stand between the accesses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import tma_dlpack as tma
from tma_dlpack import driver

HERE = Path(__file__).parent
NVCC = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")

#: Case -> (CUDA error code, whether the output is wrong); None means that either may happen.
MEASURED = {
    "write_wrong": (0, True), "write_right": (0, False),
    "write_late": (0, None), "write_some_wrong": (0, None),
    "read_wrong": (0, True), "read_block_wrong": (0, True), "read_arrived_wrong": (0, False),
    "read_right": (0, False),
    "again_wrong": (0, True), "others_wrong": (0, True), "again_right": (0, False),
    "end_wrong": (0, None), "end_right": (0, False),
    "map_wrong": (0, True), "map_acquire_wrong": (0, True), "map_right": (0, False),
    "barrier_alone_wrong": (0, None),
    "barrier_init_both_wrong": (None, None),  # error 719 in at least one of 1,000 launches
    "barrier_init_right": (0, False),
    "map_space_local_wrong": (700, None), "map_space_shared_wrong": (700, None),
    "map_space_right": (0, False),
    "cluster_wrong": (715, None), "cluster_right": (0, False),
}  # fmt: skip

needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc compiles on_gpu.cu")


@needs_nvcc
@pytest.mark.slow
def test_lint_accuses_exactly_the_wrong_ones():
    kernels = {finding.kernel for finding in tma.lint(HERE / "on_gpu.cu", notes=True).findings}
    assert {name for name in MEASURED if name in kernels} == {
        name for name in MEASURED if name.endswith("_wrong")
    }


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("lint") / "cases"
    architecture = "arch=compute_90a,code=sm_90a"
    words = [NVCC, "-std=c++17", "-O3", "-gencode", architecture, "-o", path, HERE / "on_gpu.cu"]
    subprocess.run(words, check=True, capture_output=True)
    return path


@needs_nvcc
@pytest.mark.gpu
@pytest.mark.skipif(driver.status().reason is not None, reason="the kernels run on a Hopper GPU")
@pytest.mark.parametrize("case", MEASURED)
def test_a_kernel_does_on_hardware_what_lint_says(case, program):
    run = subprocess.run([program, case], capture_output=True, text=True, timeout=60, check=True)
    code, wrong, of = map(int, run.stdout.split())
    expected, is_wrong = MEASURED[case]
    assert expected is None or code == expected
    assert of > 0
    if is_wrong is not None:
        assert (wrong > 0) == is_wrong, f"{wrong} of {of}"
