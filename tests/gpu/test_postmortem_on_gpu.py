"""Kernels die and hang on this GPU; the command explains the dumps that the driver makes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from laws import slow_if

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

DYING = Path(__file__).parents[1] / "postmortem" / "dying.cu"

#: Case of dying.cu -> what is found first.
CASES = {
    "fault_rank": "MAP_RANK",
    "fault_zeros": "MAP_OF_ZEROS",
    "fault_nowhere": "TENSOR_ADDRESS",
    "fault_to_off_64": "SMEM_ALIGNED",
    "fault_coordinate": "COORDINATE_16B",
    "fault_never_initialised": "BARRIER_INIT",
    "hang_count": "HANG_ARRIVALS",
    "hang_no_copy": "HANG_NO_COPY",
    "hang_ring_bytes": "HANG_BYTES",
    "hang_ring_cycle": "HANG_CYCLE",
    "hang_backoff": "HANG_ARRIVALS",
    "fault_two_on_barrier": "HANG_NO_COPY",
    "fault_load_on_no_barrier": "BARRIER_INIT",
    "right_pipeline": "",
}
#: One of each kind; the others, of which the dumps are golden files, are slow.
QUICK = ("fault_coordinate", "hang_ring_bytes", "right_pipeline")


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dying")
    words = ["nvcc", "-std=c++17", "-arch=sm_90a", "-lineinfo", str(DYING)]

    def build(case: str) -> None:
        subprocess.run([*words, f"-DCASE={case}", "-o", str(folder / case)], check=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(build, CASES))
    return folder


def postmortem(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tma_dlpack", "postmortem", "--json", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def rules(report: str) -> list[str]:
    plain = json.loads(report)
    return [found["rule"] for found in (*plain["faults"], *plain["barriers"]) if found["rule"]]


@pytest.mark.parametrize("case", [slow_if(case not in QUICK, case) for case in CASES])
def test_a_kernel_that_dies_or_hangs_is_explained(case, programs, tmp_path):
    report = tmp_path / "report.json"
    done = postmortem("--after", "2", "-o", str(report), "--", str(programs / case))
    assert done.stdout.startswith("launched cudaSuccess\n")
    found = rules(report.read_text())
    assert found[:1] == [CASES[case]] * bool(CASES[case]), done.stderr
    assert done.returncode == bool(CASES[case])


@pytest.mark.slow
def test_a_map_in_global_memory_is_read_from_a_dump_that_has_it(programs, tmp_path):
    program = tmp_path / "program"
    words = ["nvcc", "-std=c++17", "-arch=sm_90a", str(DYING), "-DCASE=fault_global_map_rank"]
    subprocess.run([*words, "-o", str(program)], check=True)
    report = tmp_path / "report.json"
    postmortem("-o", str(report), "--", str(program))
    assert rules(report.read_text()) == ["UNKNOWN"]
    postmortem("--global", "-o", str(report), "--", str(program))
    assert rules(report.read_text()) == ["MAP_RANK"]


@pytest.mark.skipif(shutil.which("cuda-gdb") is None, reason="cuda-gdb is not installed")
def test_a_live_process_is_explained_and_goes_on(programs):
    hanging = subprocess.Popen([str(programs / "hang_count")], stdout=subprocess.PIPE)
    try:
        assert hanging.stdout is not None
        hanging.stdout.readline()
        time.sleep(0.5)
        done = postmortem("--pid", str(hanging.pid))
        if "ptrace" in done.stderr:
            pytest.skip("this machine does not let a debugger attach")
        assert rules(done.stdout) == ["HANG_ARRIVALS"]
        assert hanging.poll() is None
    finally:
        hanging.kill()
        hanging.communicate()
