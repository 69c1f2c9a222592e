"""Every kernel of this repository runs on the simulator with NumPy's results and no finding."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import BLACKWELL, CASES
from laws import slow_if

import tma_dlpack as tma

CHECK = "-DTMA_DLPACK_CHECK=1"
#: Kernels whose checked build runs in about a second.
QUICK = ("ladder_swizzle", "streamed_both", "waiting_prefetch")


def check(case, **more):
    run = tma.run_kernel(case.source, case.name, schedules=3, **case.keywords, **more)
    assert run.ok, str(run)
    assert run.findings == ()
    for written, expected in case.results:
        np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize("name", [*CASES, *BLACKWELL])
def test_a_kernel_of_the_repository_is_right_and_nothing_is_found(name):
    check({**CASES, **BLACKWELL}[name]())


# -- the checked build of the header ---------------------------------------------------------------


@pytest.mark.parametrize("name", [slow_if(name not in QUICK, name) for name in CASES])
def test_the_checked_build_of_a_kernel_is_right_and_nothing_is_found(name):
    check(CASES[name](), options=(CHECK,))


def test_the_checked_build_with_a_map_without_bytes_is_refused():
    case = BLACKWELL["one block"]()
    options = (*case.keywords["options"], CHECK)
    with pytest.raises(tma.TmaUnsupportedError, match="compile without TMA_DLPACK_CHECK"):
        tma.run_kernel(case.source, case.name, **case.keywords | {"options": options})


COPIES = """#include <tma_dlpack.h>
using namespace tma_dlpack;
extern "C" __global__ void kernel(const __grid_constant__ Map map, float* out) {
  __shared__ alignas(128) float tile[512]; __shared__ float own[128]; __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full);
  __syncthreads();
  if (threadIdx.x == 0) { arrive_expect_tx(&full, 2048); load(tile, map, &full, 0, 0); }
  own[threadIdx.x] = 1;
  wait(&full, 0);
  out[threadIdx.x] = tile[threadIdx.x] + own[threadIdx.x]; }"""


def checked(change=("", ""), schedules=4):
    assert change[0] in COPIES
    x, out = np.arange(64 * 64, dtype=np.float32).reshape(64, 64), np.zeros(128, np.float32)
    args = tma.make_tma_descriptor(x, (16, 32)), out
    source = COPIES.replace(*change)
    keywords = {"grid": 1, "block": 128, "args": args, "options": (CHECK,)}
    return tma.run_kernel(source, schedules=schedules, **keywords), x, out


def test_the_checked_build_of_a_copy_is_right_and_nothing_is_found():
    run, x, out = checked()
    assert run.findings == ()
    assert run.printed == ""
    np.testing.assert_array_equal(out, x[:4, :32].ravel() + 1)


#: A change of COPIES, and words of the line that the header prints.
FAILS = {
    "a barrier without init": (
        ("if (threadIdx.x == 0) init(&full);", ""),
        "thread (0, 0, 0), arrive_expect_tx: the barrier at shared address",
    ),
    "a parity of 2 in every thread": (("wait(&full, 0)", "wait(&full, 2)"), "the parity is 2"),
    "a load of more bytes than expected": (
        ("arrive_expect_tx(&full, 2048)", "arrive_expect_tx(&full, 1024)"),
        "expects 1024 bytes, and its loads have 2048 bytes",
    ),
    "a phase that never ends": (
        ("load(tile, map, &full, 0, 0);", ""),
        "after 2 s phase 0 of the barrier at shared address",
    ),
}


@pytest.mark.parametrize("case", FAILS)
def test_a_failed_check_prints_its_line_once_and_traps(case):
    change, words = FAILS[case]
    run, _, _ = checked(change)
    assert [finding.rule for finding in run.findings] == ["TRAP"]
    assert words in run.printed
    assert run.printed.count("tma_dlpack check: ") == 1


def test_the_checked_build_has_the_findings_of_other_memory():
    run, _, _ = checked(("own[threadIdx.x] = 1;", ""))
    assert {finding.rule for finding in run.findings} == {"UNINITIALISED_SHARED"}
