"""Any `__dlpack__` tensor becomes a checked, encoded CUDA tensor map (TMA descriptor)."""

from tma_dlpack.public import PICTURES  # first, because this module handles Ctrl-C
from tma_dlpack.public import public as _public

# isort: split
import importlib
import os
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tma_dlpack.include import get_include
from tma_dlpack.make.batch import TensorMapBatch, make_tma_descriptors
from tma_dlpack.make.conv import check_conv_descriptor, im2col_corners, make_conv_descriptor
from tma_dlpack.make.descriptors import (
    check_im2col_descriptor,
    check_im2col_wide_descriptor,
    check_tma_descriptor,
    make_im2col_descriptor,
    make_im2col_wide_descriptor,
    make_tma_descriptor,
)
from tma_dlpack.make.driver_words import (
    driver_encode_im2col,
    driver_encode_im2col_wide,
    driver_encode_tiled,
    driver_replace_address,
)
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import (
    Advice,
    TmaDriverError,
    TmaError,
    TmaPreconditionError,
    TmaTargetError,
    TmaUnsupportedError,
    Violation,
)
from tma_dlpack.tables.targets import TARGETS, Target
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack import draw
    from tma_dlpack.checks.report import Report
    from tma_dlpack.consumer import MatrixDescriptor, ldmatrix_addresses, matrix_descriptor
    from tma_dlpack.copies.backend import Backend
    from tma_dlpack.copies.tile import Tile
    from tma_dlpack.copies.verbs import (
        backend,
        load_tile,
        load_tiles,
        reduce_tile,
        store_tile,
        tile_coords,
    )
    from tma_dlpack.debug.explain import explain
    from tma_dlpack.debug.lint import lint
    from tma_dlpack.debug.postmortem import postmortem
    from tma_dlpack.debug.trace import trace
    from tma_dlpack.draw import bank_conflicts
    from tma_dlpack.explorer.widget import explore
    from tma_dlpack.kernel import run_kernel
    from tma_dlpack.make.recipes import ragged, ragged_coords, split_inner, split_inner_coords
    from tma_dlpack.report.rule_list import rules
    from tma_dlpack.suggestions.tile_suggestions import suggest
    from tma_dlpack.verification.bandwidth import bandwidth
    from tma_dlpack.verification.run import verify

__version__ = "0.4.0"

__all__ = [
    "TARGETS",
    "Advice",
    "Backend",
    "MatrixDescriptor",
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
    "Violation",
    "backend",
    "bandwidth",
    "bank_conflicts",
    "check_conv_descriptor",
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
    "ldmatrix_addresses",
    "lint",
    "load_tile",
    "load_tiles",
    "make_conv_descriptor",
    "make_im2col_descriptor",
    "make_im2col_wide_descriptor",
    "make_tma_descriptor",
    "make_tma_descriptors",
    "matrix_descriptor",
    "postmortem",
    "ragged",
    "ragged_coords",
    "reduce_tile",
    "rules",
    "run_kernel",
    "split_inner",
    "split_inner_coords",
    "store_tile",
    "suggest",
    "tile_coords",
    "trace",
    "verify",
]

#: Module -> public names that are imported on their first use, so that `import tma_dlpack` is fast.
_LATER = {
    "tma_dlpack.checks.report": ("Report",),
    "tma_dlpack.consumer": ("MatrixDescriptor", "ldmatrix_addresses", "matrix_descriptor"),
    "tma_dlpack.copies.backend": ("Backend",),
    "tma_dlpack.copies.tile": ("Tile",),
    "tma_dlpack.copies.verbs": (
        "backend",
        "load_tile",
        "load_tiles",
        "reduce_tile",
        "store_tile",
        "tile_coords",
    ),
    "tma_dlpack.debug.explain": ("explain",),
    "tma_dlpack.debug.lint": ("lint",),
    "tma_dlpack.debug.postmortem": ("postmortem",),
    "tma_dlpack.debug.trace": ("trace",),
    "tma_dlpack.draw": ("bank_conflicts",),
    "tma_dlpack.explorer.widget": ("explore",),
    "tma_dlpack.kernel": ("run_kernel",),
    "tma_dlpack.make.recipes": ("ragged", "ragged_coords", "split_inner", "split_inner_coords"),
    "tma_dlpack.report.rule_list": ("rules",),
    "tma_dlpack.suggestions.tile_suggestions": ("suggest",),
    "tma_dlpack.verification.run": ("verify",),
    "tma_dlpack.verification.bandwidth": ("bandwidth",),
}

#: Subpackage -> classes that were names of `tma_dlpack` itself in version 0.3. Remove this table in
#: version 0.5.
_MOVED = {
    "tma_dlpack.debug": (
        "DeadBarrier",
        "DeadKernel",
        "Explanation",
        "Fault",
        "FoundMap",
        "LintFinding",
        "LintReport",
        "PostMortem",
        "PrintedArguments",
        "Trace",
        "TracedMap",
    ),
    "tma_dlpack.report": ("RuleInfo", "RuleList"),
    "tma_dlpack.suggestions": ("Suggestion", "Suggestions"),
    "tma_dlpack.verification": ("BandwidthReport", "VerifyReport"),
}

#: Class name -> function of `draw` that returns the HTML of an object of this class.
_HTML = {
    "MatrixDescriptor": "matrix_html",
    "Report": "report_html",
    "RuleList": "rules_html",
    "TensorMap": "tensor_map_html",
    "TensorMapBatch": "batch_html",
    "Tile": "tile_html",
}


PICTURES.update({name: ("tma_dlpack.draw", function) for name, function in _HTML.items()})


def _render_traceback_(error: TmaError) -> list[str]:
    """Return the traceback that IPython shows: the user's line and the violations.

    The frames of this package are omitted.
    """
    lines: list[str] = importlib.import_module("tma_dlpack.draw").render_traceback(error)
    return lines


def _repr_html_(error: TmaPreconditionError) -> str:
    """Return the HTML that a notebook displays for an error: a card with its violations."""
    card: str = importlib.import_module("tma_dlpack.draw").error_html(error)
    return card


TmaPreconditionError._repr_html_ = _repr_html_  # type: ignore[attr-defined]
TmaError._render_traceback_ = _render_traceback_  # type: ignore[attr-defined]

for _name in __all__:
    if isinstance(globals().get(_name), type):
        _public(globals()[_name])


def _loaded() -> set[str]:
    ours = (name for name, module in tuple(sys.modules.items()) if module is not None)
    return {name for name in ours if name.startswith(__name__)}


def _finish_imports() -> None:
    """Wait until no other thread is importing a module of this package.

    If a process forks while a thread imports a module, the child waits for this import forever.
    """
    finished: set[str] = set()
    while begun := _loaded() - finished:
        for name in begun:
            with suppress(ImportError):  # the module may be missing or blocked in sys.modules
                importlib.import_module(name)
        finished |= begun


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_imports)


#: Name of a function in another library or in the driver -> name of the function here.
_MEANT = {
    "create_tensor_map": "make_tma_descriptor",
    "create_tma_descriptor": "make_tma_descriptor",
    "encode": "make_tma_descriptor",
    "encode_im2col": "make_im2col_descriptor",
    "encode_tiled": "driver_encode_tiled",
    "launch": "run_kernel",
    "make_tensor_descriptor": "make_tma_descriptor",
    "make_tensor_map": "make_tma_descriptor",
    "run": "run_kernel",
    "tensor_map": "make_tma_descriptor",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "draw":
        return importlib.import_module("tma_dlpack.draw")
    for module, names in _LATER.items():
        if name in names:
            # Import `checks` before a module of `checks`. Otherwise, if one thread imports `checks`
            # and another thread imports a module of `checks`, they would wait for each other.
            importlib.import_module("tma_dlpack.checks")
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    for room, names in _MOVED.items():
        if name in names:
            where = f"from {room} import {name}"
            text = f"tma_dlpack.{name} will be removed in 0.5: use `{where}`"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(importlib.import_module(room), name)
    near = _MEANT.get(name) or min(
        (n for n in __all__ if name in n.split("_")), key=len, default=""
    )
    asked = f"; did you mean {near}?" * bool(near)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{asked}")
