"""Any `__dlpack__` tensor becomes a checked, encoded CUDA tensor map (TMA descriptor)."""

import importlib
from typing import TYPE_CHECKING, Any

from tma_dlpack.copies.protocol import Backend
from tma_dlpack.copies.tile import Tile
from tma_dlpack.copies.verbs import (
    backend,
    load_tile,
    load_tiles,
    reduce_tile,
    store_tile,
    tile_coords,
)
from tma_dlpack.include import get_include
from tma_dlpack.make.batch import TensorMapBatch, make_tma_descriptors
from tma_dlpack.make.im2col import (
    check_im2col_descriptor,
    check_im2col_wide_descriptor,
    driver_encode_im2col,
    driver_encode_im2col_wide,
    im2col_corners,
    make_im2col_descriptor,
    make_im2col_wide_descriptor,
)
from tma_dlpack.make.tiled import (
    cache_clear,
    cache_info,
    check_tma_descriptor,
    driver_encode_tiled,
    driver_replace_address,
    make_tma_descriptor,
)
from tma_dlpack.rules.check import Report
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.types.errors import (
    Advice,
    TmaDriverError,
    TmaError,
    TmaPreconditionError,
    TmaTargetError,
    TmaUnsupportedError,
    Violation,
)
from tma_dlpack.types.target import TARGETS, Target

if TYPE_CHECKING:
    from tma_dlpack import draw
    from tma_dlpack.bench.tile_bandwidth import BandwidthReport, bandwidth
    from tma_dlpack.cli.explain import Explanation, PrintedArguments, explain
    from tma_dlpack.draw import bank_conflicts
    from tma_dlpack.explorer.widget import explore
    from tma_dlpack.verification import VerifyReport, verify

__version__ = "0.1.0"

__all__ = [
    "TARGETS",
    "Advice",
    "Backend",
    "BandwidthReport",
    "Explanation",
    "PrintedArguments",
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
    "explain",
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
    "BandwidthReport": ("tma_dlpack.bench.tile_bandwidth", "BandwidthReport"),
    "Explanation": ("tma_dlpack.cli.explain", "Explanation"),
    "PrintedArguments": ("tma_dlpack.cli.explain", "PrintedArguments"),
    "VerifyReport": ("tma_dlpack.verification", "VerifyReport"),
    "bandwidth": ("tma_dlpack.bench.tile_bandwidth", "bandwidth"),
    "bank_conflicts": ("tma_dlpack.draw", "bank_conflicts"),
    "draw": ("tma_dlpack.draw", None),
    "explain": ("tma_dlpack.cli.explain", "explain"),
    "explore": ("tma_dlpack.explorer.widget", "explore"),
    "verify": ("tma_dlpack.verification", "verify"),
}


#: Which function of `draw` gives the HTML of which class.
_HTML = {Report: "report_html", TensorMap: "tensor_map_html", Tile: "tile_html"}


def _attach_html(drawn: type, function: str) -> None:
    """Give a class its notebook picture; `draw` is imported when the first one is shown."""

    def _repr_html_(self: object) -> str:
        draw = importlib.import_module("tma_dlpack.draw")
        html: str = getattr(draw, function)(self)
        return html

    drawn._repr_html_ = _repr_html_  # type: ignore[attr-defined]


for _drawn, _function in _HTML.items():
    _attach_html(_drawn, _function)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def _adopt(name: str, value: Any) -> None:
    """Make a public object known here; tracebacks and pickles then name the package alone."""
    globals()[name] = value
    if isinstance(value, type):
        value.__module__ = __name__


for _name in __all__:
    if _name in globals():
        _adopt(_name, globals()[_name])


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_LATER[name][0])
    for later, (where, attribute) in _LATER.items():
        if where == module.__name__:
            _adopt(later, module if attribute is None else getattr(module, attribute))
    return globals()[name]
