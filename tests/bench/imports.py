"""The time of ``import tma_dlpack`` minus the time of NumPy's import, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_PROGRAM = """
import sys, time
import numpy
sys.path.insert(0, sys.argv[1])
begin = time.perf_counter()
import tma_dlpack
print((time.perf_counter() - begin) * 1e3)
"""


def import_ms(processes: int) -> tuple[float, float, float]:
    """Return median, 10th and 90th percentile over processes, milliseconds.

    The modules are imported from compiled files, as in an installed package. A first process, which
    is not counted, writes the compiled files to a separate folder.
    """
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as compiled:
        # -E: ignore PYTHONDONTWRITEBYTECODE, so that compiled files are written
        command = [
            sys.executable,
            "-E",
            "-X",
            f"pycache_prefix={compiled}",
            "-c",
            _PROGRAM,
            str(root),
        ]
        times = [
            float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for _ in range(processes + 1)
        ]
    low, median, high = np.percentile(times[1:], [10, 50, 90])
    return float(median), float(low), float(high)
