"""Any `__dlpack__` tensor becomes a checked, encoded CUDA tensor map (TMA descriptor)."""

import importlib
from typing import TYPE_CHECKING, Any

from tma_dlpack.api import (
    cache_clear,
    cache_info,
    check_tma_descriptor,
    driver_encode_tiled,
    driver_replace_address,
    make_tma_descriptor,
)
from tma_dlpack.backends.base import Backend
from tma_dlpack.backends.tile import Tile
from tma_dlpack.batches import TensorMapBatch, make_tma_descriptors
from tma_dlpack.check import Report
from tma_dlpack.copies import (
    backend,
    load_tile,
    load_tiles,
    reduce_tile,
    store_tile,
    tile_coords,
)
from tma_dlpack.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.errors import (
    Advice,
    TmaDriverError,
    TmaError,
    TmaPreconditionError,
    TmaTargetError,
    TmaUnsupportedError,
    Violation,
)
from tma_dlpack.im2col import (
    check_im2col_descriptor,
    check_im2col_wide_descriptor,
    driver_encode_im2col,
    driver_encode_im2col_wide,
    im2col_corners,
    make_im2col_descriptor,
    make_im2col_wide_descriptor,
)
from tma_dlpack.include_dir import get_include
from tma_dlpack.target import TARGETS, Target
from tma_dlpack.tensor_map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack import draw
    from tma_dlpack.draw import bank_conflicts
    from tma_dlpack.explorer import explore
    from tma_dlpack.tile_bandwidth import BandwidthReport, bandwidth
    from tma_dlpack.verification import VerifyReport, verify

__version__ = "0.1.0"

__all__ = [
    "TARGETS",
    "Advice",
    "Backend",
    "BandwidthReport",
    "Report",
    "Target",
    "TensorMap",
    "TensorMapBatch",
    "TensorMapDataType",
    "TensorMapIm2ColWideMode",
    "Tile",
    "TmaDriverError",
    "TmaError",
    "TmaInterleaveLayout",
    "TmaL2FetchSize",
    "TmaOobFill",
    "TmaPreconditionError",
    "TmaSwizzle",
    "TmaTargetError",
    "TmaUnsupportedError",
    "VerifyReport",
    "Violation",
    "backend",
    "bandwidth",
    "bank_conflicts",
    "cache_clear",
    "cache_info",
    "check_im2col_descriptor",
    "check_im2col_wide_descriptor",
    "check_tma_descriptor",
    "draw",
    "driver_encode_im2col",
    "driver_encode_im2col_wide",
    "driver_encode_tiled",
    "driver_replace_address",
    "explore",
    "get_include",
    "im2col_corners",
    "load_tile",
    "load_tiles",
    "make_im2col_descriptor",
    "make_im2col_wide_descriptor",
    "make_tma_descriptor",
    "make_tma_descriptors",
    "reduce_tile",
    "store_tile",
    "tile_coords",
    "verify",
]

#: What is imported when first asked for, so that `import tma_dlpack` stays fast.
_LATER = {
    "BandwidthReport": ("tma_dlpack.tile_bandwidth", "BandwidthReport"),
    "VerifyReport": ("tma_dlpack.verification", "VerifyReport"),
    "bandwidth": ("tma_dlpack.tile_bandwidth", "bandwidth"),
    "bank_conflicts": ("tma_dlpack.draw", "bank_conflicts"),
    "draw": ("tma_dlpack.draw", None),
    "explore": ("tma_dlpack.explorer", "explore"),
    "verify": ("tma_dlpack.verification", "verify"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    value: Any = importlib.import_module(module)
    if attribute is not None:
        value = getattr(value, attribute)
    globals()[name] = value
    return value
