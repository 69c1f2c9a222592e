"""Run a benchmark: ``python tests/bench NAME``, of `BENCHES`, or ``all``.

`call` times one call of make_tma_descriptor, and other libraries (`peers.py`) in the same run;
`call_targets.py` has the targets. `simulator` compares the simulator with ndarray.copy. `kernel`
times whole kernels on the simulator. `gpu`, `gemm`, `ladder`, `l2`, `conv` and `grouped` time
kernels on the GPU. `cpp` times the C++ header. `all` runs each with its defaults.

A new peer needs a row in `peers.py` with the code that makes a map. A peer that is not installed is
skipped.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

BENCHES = (
    "call",
    "simulator",
    "kernel",
    "gpu",
    "tiles",
    "gemm",
    "ladder",
    "l2",
    "conv",
    "grouped",
    "cpp",
)


def main(arguments: list[str]) -> int:
    """Run one bench with its options, or all benches without options; return the exit status."""
    from tma_dlpack.tables.errors import TmaUnsupportedError

    name, *rest = arguments or ["--help"]
    if name not in (*BENCHES, "all"):
        print(f"usage: python tests/bench {{{','.join(BENCHES)},all}} [options]")
        return 0 if name in ("-h", "--help") else 2
    worst = 0
    for bench in BENCHES if name == "all" else (name,):
        module = importlib.import_module(f"bench.{bench}")
        try:
            worst = max(worst, module.main(rest))
        except TmaUnsupportedError as error:
            print(f"bench {bench} skipped: {error}")
            worst = max(worst, 0 if name == "all" else 1)
    return worst


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)  # `bench` is the package in this folder
    sys.path.insert(1, str(Path(__file__).parent.parent.parent))  # the checkout
    sys.exit(main(sys.argv[1:]))
