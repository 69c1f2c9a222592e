"""All names from other folders of the package that `verify` and `bandwidth` use.

`tests/test_layers.py` allows at most 30 names. The names are imported on first use. Almost every
run of the command line imports `commands.py`, but most runs do not use these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tma_dlpack as tma
from tma_dlpack.public import imported_later

if TYPE_CHECKING:
    from tma_dlpack import cli, driver, geometry, public, report
    from tma_dlpack.checks.call import read_driver_call
    from tma_dlpack.checks.report import find_violations
    from tma_dlpack.consumer.operand import K_STEP_BYTES, SPAN_BYTES, Major
    from tma_dlpack.copies import cuda, launch
    from tma_dlpack.copies.backend import REDUCTIONS
    from tma_dlpack.copies.memory import reach_bytes
    from tma_dlpack.copies.request import MAX_COORD, MAX_OFFSET
    from tma_dlpack.dlpack import TensorView, as_tensor_view
    from tma_dlpack.draw.results import BandwidthBars
    from tma_dlpack.tables import bits, coerce, enums, errors, refusals, targets
    from tma_dlpack.tables.arguments import CORNERS, EncodeArguments, MapKind
    from tma_dlpack.tables.dtypes import DATA_TYPES

__all__ = [
    "CORNERS", "DATA_TYPES", "K_STEP_BYTES", "MAX_COORD", "MAX_OFFSET", "REDUCTIONS", "SPAN_BYTES",
    "BandwidthBars", "EncodeArguments", "Major", "MapKind", "TensorView", "as_tensor_view", "bits",
    "cli", "coerce", "cuda", "driver", "enums", "errors", "find_violations", "geometry", "launch",
    "public", "reach_bytes", "read_driver_call", "refusals", "report", "targets", "tma",
]  # fmt: skip
_LATER = {
    "tma_dlpack": ("cli", "driver", "geometry", "public", "report"),
    "tma_dlpack.checks.call": ("read_driver_call",),
    "tma_dlpack.checks.report": ("find_violations",),
    "tma_dlpack.consumer.operand": ("K_STEP_BYTES", "SPAN_BYTES", "Major"),
    "tma_dlpack.copies": ("cuda", "launch"),
    "tma_dlpack.copies.memory": ("reach_bytes",),
    "tma_dlpack.copies.backend": ("REDUCTIONS",),
    "tma_dlpack.copies.request": ("MAX_COORD", "MAX_OFFSET"),
    "tma_dlpack.dlpack": ("TensorView", "as_tensor_view"),
    "tma_dlpack.draw.results": ("BandwidthBars",),
    "tma_dlpack.tables": ("bits", "coerce", "enums", "errors", "refusals", "targets"),
    "tma_dlpack.tables.arguments": ("CORNERS", "EncodeArguments", "MapKind"),
    "tma_dlpack.tables.dtypes": ("DATA_TYPES",),
}
__getattr__ = imported_later(__name__, _LATER)
