"""A user's program with a mistake in each call, which mypy and pyright refuse.

The comments are the lines that must be errors; the test compares them with what is reported.
"""

from __future__ import annotations

import numpy as np

import tma_dlpack as tma


def wrong() -> None:
    """Make every mistake."""
    x = np.zeros((64, 64), np.float16)
    tm = tma.make_tma_descriptor(x, (64, 64))

    tma.make_tma_descriptor(x, (64, 64), swizzle="byte128")  # error
    tma.make_tma_descriptor(x, (64, 64), rules="Driver")  # error
    tma.make_tma_descriptor(x, (64, 64), oobfill="NaN")  # error
    tma.make_tma_descriptor(x, (64, 64), data_type="FLOAT_16")  # error
    tma.make_tma_descriptor(x, (64, 64), offset=0.5)  # error
    tma.make_tma_descriptor(x, 64)  # error
    tma.make_tma_descriptor([1, 2], (64, 64))  # error
    tma.check_tma_descriptor(x, (64, 64), l2_fetch_size="128")  # error
    tma.make_tma_descriptors([x], (64, 64), swizzle="128B")  # error
    tma.suggest(x, (64, 64), reader="WGMMA")  # error
    tma.matrix_descriptor(tm, major="N")  # error
    tma.reduce_tile(tm, (0, 0), x, "sum")  # error
    tma.load_tile(tm, (0, 0), backend="gpu")  # error
