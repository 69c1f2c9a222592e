"""Write the compact golden copies: ``python tests/golden/make_copies.py FOLDER``.

FOLDER holds the recorded answers of an H200 (load.npz, ..., reduce.npz). Nothing else ever writes
these files. Compact: addresses of changed bytes as differences, cases as bytes of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

PROVENANCE = (
    "NVIDIA H200 (compute capability 9.0), driver 580.159.04 (CUDA 13.0), 2026-11-20, driver API "
    "and one CUDA kernel per copy. Global memory: default_rng(20261120).integers(0, 256, 1 << 20, "
    "uint8); shared memory filled with 0xA5 before loads, with default_rng(seed).integers(0, 256, "
    "foot, uint8) before stores and reductions."
)
LOADS = ("load", "im2col", "im2col_interleave")
STORES = ("store", "im2col_store", "reduce")


def main(folder: Path) -> None:
    for name in LOADS + STORES:
        with np.load(folder / f"{name}.npz") as recorded:
            cases = json.dumps(json.loads(str(recorded["cases"]))).encode()
            assert (recorded["status"] == 1).all()
            arrays = {"lens": recorded["lens"].astype(np.uint32)}
            if name in LOADS:
                arrays["blob"] = recorded["blob"]
            else:
                arrays["val"] = recorded["val"]
                arrays["idx_step"] = np.diff(recorded["idx"].astype(np.int64), prepend=0).astype(
                    np.int32
                )
        np.savez_compressed(
            Path(__file__).with_name(f"copies_{name}.npz"),
            provenance=np.array(PROVENANCE),
            cases=np.frombuffer(cases, np.uint8),
            **arrays,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
