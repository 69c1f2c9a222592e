"""Write the compact golden copy of the encoders: ``python tests/golden/make_encode.py FOLDER``.

FOLDER holds the recorded answers of an H200 (encode.npz). Nothing else ever writes this file.
Compact: one array per column, entry by entry; of the maps that the driver made only bytes 8..75,
because bytes 0..7 are the address that was asked, and bytes 76..127 are 0 in all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

PROVENANCE = (
    "NVIDIA H200 (compute capability 9.0), driver 580.159.04 (CUDA 13.0), 2026-11-20: answers of "
    "cuTensorMapEncodeTiled (kind 0), ...Im2col (1) and ...Im2colWide (2) to random arguments, "
    "index 0 innermost; rc is the CUresult, map the bytes 8..75 of the map where rc is 0."
)


def main(folder: Path) -> None:
    with np.load(folder / "encode.npz") as recorded:
        cases = recorded["cases"]
    maps = cases["map"][cases["rc"] == 0]
    assert (maps[:, :8].copy().view("<u8")[:, 0] == cases["addr"][cases["rc"] == 0]).all()
    assert not maps[:, 76:].any()
    columns = {n: np.ascontiguousarray(cases[n].T) for n in cases.dtype.names if n != "map"}
    columns["map"] = np.ascontiguousarray(maps[:, 8:76].T)
    provenance = np.array(PROVENANCE)
    np.savez_compressed(Path(__file__).parent / "encode.npz", provenance=provenance, **columns)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
