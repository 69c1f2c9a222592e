"""Kernels fail and hang on this GPU; the command `postmortem` explains the driver's dumps."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from laws import slow_if

from tma_dlpack import driver

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

DYING = Path(__file__).parents[1] / "postmortem" / "dying.cu"

#: Case of dying.cu -> the first finding.
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
#: One case of each kind. The others are slow, and golden files have their dumps.
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


def explained_at_ctrl_c(*words: str) -> list[str]:
    """Run a program until it has launched, send Ctrl-C if it hangs, and read the dump."""
    command = [sys.executable, "-m", "tma_dlpack", "postmortem", "--json", "--", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("launched")
        try:
            running.wait(4)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
        _, talk = running.communicate(timeout=120)
    return rules(talk[talk.index("{\n") :])


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


def test_ctrl_c_explains_a_program_that_hangs(programs):
    assert explained_at_ctrl_c(str(programs / "hang_count")) == ["HANG_ARRIVALS"]


def test_two_processes_that_hang_are_both_explained(programs, tmp_path):
    report = tmp_path / "report.json"
    both = f"{programs / 'hang_count'} & {programs / 'hang_no_copy'} & wait"
    done = postmortem("--after", "3", "-o", str(report), "--", "sh", "-c", both)
    assert sorted(rules(report.read_text())) == ["HANG_ARRIVALS", "HANG_NO_COPY"], done.stderr


#: Program of tests/postmortem, its slip, what else it is given -> what is found first.
SLIPS = {
    ("gemm_slips.py", "bytes", "grouped_gemm"): "HANG_BYTES",
    ("gemm_slips.py", "no_release", "hopper_gemm"): "HANG_CYCLE",
    ("gemm_slips.py", "coordinate", "hopper_gemm"): "COORDINATE_16B",
    ("triton_slips.py", "no_arm"): "HANG_NOT_ANNOUNCED",
    ("triton_slips.py", "coordinate"): "COORDINATE_16B",
    ("jax_slips.py", "bytes"): "HANG_BYTES",
    ("jax_slips.py", "coordinate"): "COORDINATE_16B",
    ("two_gpus_slips.py", "bytes"): "HANG_BYTES",
    ("two_gpus_slips.py", "coordinate"): "COORDINATE_16B",
}
#: Framework that a program needs.
NEEDS = {
    "gemm_slips.py": "torch",
    "triton_slips.py": "triton",
    "jax_slips.py": "jax",
    "two_gpus_slips.py": "torch",
}


def skip_without_what_it_needs(script: str) -> None:
    pytest.importorskip(NEEDS[script])
    if script == "two_gpus_slips.py" and len(driver.status().devices) < 2:
        pytest.skip("there is one GPU")


@pytest.mark.slow  # imports its framework each time
@pytest.mark.parametrize("words", SLIPS, ids="-".join)
def test_a_slip_in_a_python_process_is_explained(words):
    script, *rest = words
    skip_without_what_it_needs(script)
    found = explained_at_ctrl_c(sys.executable, str(DYING.with_name(script)), *rest)
    assert found[0] == SLIPS[words]


@pytest.mark.slow
@pytest.mark.parametrize("script", NEEDS)
def test_without_a_slip_nothing_is_found(script):
    skip_without_what_it_needs(script)
    rest = ["grouped_gemm"] if script == "gemm_slips.py" else []
    done = postmortem("--", sys.executable, str(DYING.with_name(script)), "right", *rest)
    assert (done.stdout, done.returncode) == ("launched\nended\n", 0)
