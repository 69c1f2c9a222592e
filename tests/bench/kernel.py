"""``python tests/bench kernel``: the time that the simulator needs for whole kernels.

The bench runs one schedule ("late") with the order checks, after the kernel was compiled and
translated once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import tma_dlpack as tma

sys.path.insert(0, str(Path(__file__).parents[1]))
from kernel_cases import CASES, Case, gemm

ROWS: dict[str, Callable[[], Case]] = {
    "double_tiles": CASES["double_tiles"],
    "hopper_conv": CASES["hopper_conv"],
    "grouped_gemm": CASES["grouped_gemm"],
    "ladder_multicast": CASES["ladder_multicast"],
    "hopper_gemm 256^3": lambda: gemm("hopper_gemm", (128, 64), "bytes128", 256, 256, 256),
    "hopper_gemm 1024^3": lambda: gemm("hopper_gemm", (128, 64), "bytes128", 1024, 1024, 1024),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print seconds, steps and the verdict of each kernel; return 1 if a result is wrong."""
    parser = argparse.ArgumentParser(prog="python tests/bench kernel", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="KERNEL", help=f"of {', '.join(ROWS)}")
    names = parser.parse_args(argv).names or list(ROWS)
    print(f"{'kernel':22}{'seconds':>9}{'steps':>12}  result")
    status = 0
    for name in names:
        for _ in range(2):  # the first one compiles
            case = ROWS[name]()
            begin = time.perf_counter()
            run = tma.run_kernel(case.source, case.name, schedules=1, **case.keywords)
            seconds = time.perf_counter() - begin
        right = run.ok and all(np.array_equal(a, b) for a, b in case.results)
        status |= not right
        print(f"{name:22}{seconds:9.2f}{run.steps:12,}  {'right' if right else 'WRONG'}")
    return status
