"""The header's functions of 0.4 under compute-sanitizer: no test fails, no tool finds a fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tma_dlpack
from tma_dlpack.include import get_include

HERE = Path(__file__).parent
NOTHING_FOUND = {
    "memcheck": "ERROR SUMMARY: 0 errors",
    "racecheck": "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
    "synccheck": "ERROR SUMMARY: 0 errors",
}
#: Tests of test_header_on_gpu.py, by words of their names. Each test launches another function.
TESTS = (
    "one_thread_of_each_warp",  # elect_one
    "expected_without_an_arrival",  # expect_tx_only, test_wait
    "bytes_in_a_row",  # load_bulk, store_bulk
    "prefetched_tile",  # prefetch_tile, RankedMap
    "a_ring_of_any_number",  # arrive_expect_tx, PipelineState
    "advanced_by_so_many",
    "starts_early",  # launch_dependents, wait_dependencies
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("compute-sanitizer") is None or shutil.which("nvcc") is None,
        reason="compute-sanitizer and nvcc are not installed",
    ),
]


def sanitized(tool: str, *command: str) -> str:
    package = str(Path(tma_dlpack.__file__).parents[1])
    path = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])
    # The inner pytest is not a worker of xdist, but pytest-benchmark would warn that it is.
    alone = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        ["compute-sanitizer", "--tool", tool, *command],
        env=alone | {"PYTHONPATH": path},
        cwd=HERE.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    print(done.stdout)
    return done.stdout


@pytest.mark.parametrize("tool", NOTHING_FOUND)
def test_no_tool_finds_anything_in_the_verbs_of_this_release(tool, torch):
    plain = ("-q", "-p", "no:cacheprovider", "-m", "gpu", "-k", " or ".join(TESTS))
    said = sanitized(
        tool, sys.executable, "-m", "pytest", *plain, str(HERE / "test_header_on_gpu.py")
    )
    assert NOTHING_FOUND[tool] in said
    assert "29 passed" in said
    assert "failed" not in said


def test_memcheck_finds_a_bulk_copy_to_an_address_that_is_not_aligned(torch, tmp_path):
    program, target = str(tmp_path / "misuses"), "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, f"-I{get_include()}", "-o", program]
    subprocess.run([*command, str(HERE / "misuses.cu")], check=True)
    assert NOTHING_FOUND["memcheck"] in sanitized("memcheck", program, "nothing_wrong")
    assert NOTHING_FOUND["memcheck"] not in sanitized("memcheck", program, "bulk_to_8_bytes_off")
