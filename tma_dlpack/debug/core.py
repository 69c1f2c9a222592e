"""All names from outside of `debug/` that the tools in `debug/` use.

The test `tests/test_layers.py` allows at most 30 names. Every start of the command line imports
`commands.py`, even if none of the commands in `debug/` runs. So each name is imported only on its
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tma_dlpack as tma
from tma_dlpack.public import imported_later

if TYPE_CHECKING:
    from tma_dlpack import cli, dlpack, driver, public, report
    from tma_dlpack.checks import RULES, advice
    from tma_dlpack.checks.report import check_driver_call
    from tma_dlpack.checks.struct import OF_DRIVER
    from tma_dlpack.consumer.operand import INSTRUCTIONS
    from tma_dlpack.copies.backend import REDUCTIONS
    from tma_dlpack.draw import boxes, cards, grid
    from tma_dlpack.make.build import check_view
    from tma_dlpack.tables import coerce, dtypes, errors, meanings, refusals, targets
    from tma_dlpack.tables.arguments import CORNERS, ENUMS, KIND_OF, RARE_OPTIONS, MapKind
    from tma_dlpack.tables.coerce import counted
    from tma_dlpack.tensor_map.description import check_address

__all__ = [
    "CORNERS", "ENUMS", "INSTRUCTIONS", "KIND_OF", "OF_DRIVER", "RARE_OPTIONS", "REDUCTIONS",
    "RULES", "MapKind", "advice", "boxes", "cards", "check_address", "check_driver_call",
    "check_view", "cli", "coerce", "counted", "dlpack", "driver", "dtypes", "errors", "grid",
    "meanings", "public", "refusals", "report", "targets", "tma",
]  # fmt: skip
_LATER = {
    "tma_dlpack": ("cli", "dlpack", "driver", "public", "report"),
    "tma_dlpack.checks": ("RULES", "advice"),
    "tma_dlpack.checks.report": ("check_driver_call",),
    "tma_dlpack.checks.struct": ("OF_DRIVER",),
    "tma_dlpack.consumer.operand": ("INSTRUCTIONS",),
    "tma_dlpack.copies.backend": ("REDUCTIONS",),
    "tma_dlpack.draw": ("boxes", "cards", "grid"),
    "tma_dlpack.make.build": ("check_view",),
    "tma_dlpack.tables": ("coerce", "dtypes", "errors", "meanings", "refusals", "targets"),
    "tma_dlpack.tables.arguments": ("CORNERS", "ENUMS", "KIND_OF", "RARE_OPTIONS", "MapKind"),
    "tma_dlpack.tables.coerce": ("counted",),
    "tma_dlpack.tensor_map.description": ("check_address",),
}
__getattr__ = imported_later(__name__, _LATER)
