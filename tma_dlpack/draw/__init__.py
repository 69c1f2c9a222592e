"""Pictures of tensor maps: frozen figures that become SVG, HTML or text.

Every figure has `svg()`, `html()` and `text()` (also `str`), and notebooks show it.

`grid.py` has the primitive of all figures: cells on a grid, their styles, and the layout of grids
as panels. `figure.py` has the base class, and writes panels as SVG and HTML. Each figure is one
module: a frozen dataclass (the facts), its lowering to grids and to text, and the function that
makes it from a map. `cards.py` and `results.py` have the HTML of TensorMap, Tile, Report and other
results; the package's `__init__` attaches these functions to the classes, so that other rooms do
not depend on this one.

A new figure: a module with a frozen dataclass that derives from `Figure` and defines `title`,
`scenes()`, `text()` (100 columns at most; the facts must not depend on colour alone) and
`sentence` (the caption; its "[words](key)" are highlighted with the cells of the key), and a public
function ``(tensor_map, coords=None)``. A scene is ``lay_out(about, grids, ...)``, where
`about` is the sentence for screen readers and the style of a cell is a name in `grid.STYLES`.
Export the function and the class here: their import for type checkers, their names in `__all__`
and in `_LATER`. For the command line and `figure()`, add a row to `FIGURES` and the name to the
docstring of `figure`. Test its facts and its text in tests/draw.

>>> import numpy as np
>>> import tma_dlpack as tma
>>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64), swizzle="bytes128")
>>> from tma_dlpack import draw
>>> print(draw.tensor(tm, (24, 64)).title)
tensor (30, 104) FLOAT16, box (8, 64) at (24, 64)
>>> draw.shared(tm).svg()[:4]
'<svg'
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tma_dlpack.draw.figure import MAKE_ONE, Figure, require
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import text_of
from tma_dlpack.tables.errors import bad_value
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.copies.tile import Tile
    from tma_dlpack.draw.atoms import MatrixAtoms, matrix, matrix_html
    from tma_dlpack.draw.banks import AccessSteps, BankConflicts, access_steps, bank_conflicts
    from tma_dlpack.draw.barrier_figure import BarrierPlay, barrier
    from tma_dlpack.draw.bits import SwizzleBits, swizzle_bits
    from tma_dlpack.draw.boxes import TensorBox, tensor
    from tma_dlpack.draw.cards import page, report_html, tensor_map_html, tile_html
    from tma_dlpack.draw.map_bytes import MapBytes, diff, fields_of
    from tma_dlpack.draw.memory import Comparison, SharedMemory, compare, shared
    from tma_dlpack.draw.motion import CopyMotion, copy_motion
    from tma_dlpack.draw.results import (
        bandwidth_html,
        batch_html,
        error_html,
        render_traceback,
        rules_html,
        verify_html,
    )
    from tma_dlpack.draw.timeline import (
        ChainLink,
        Timeline,
        TimelineArrow,
        TimelineRow,
        WaitChain,
        chain,
        lanes,
        missing_fence,
    )
    from tma_dlpack.draw.walks import Im2colWalk, walk

__all__ = [
    "FIGURES",
    "AccessSteps",
    "BankConflicts",
    "BarrierPlay",
    "ChainLink",
    "Comparison",
    "CopyMotion",
    "Figure",
    "Im2colWalk",
    "MapBytes",
    "MatrixAtoms",
    "SharedMemory",
    "SwizzleBits",
    "TensorBox",
    "Timeline",
    "TimelineArrow",
    "TimelineRow",
    "WaitChain",
    "access_steps",
    "bandwidth_html",
    "bank_conflicts",
    "barrier",
    "batch_html",
    "chain",
    "compare",
    "copy_motion",
    "diff",
    "error_html",
    "fields_of",
    "figure",
    "lanes",
    "matrix",
    "matrix_html",
    "missing_fence",
    "page",
    "render_traceback",
    "report_html",
    "rules_html",
    "shared",
    "swizzle_bits",
    "tensor",
    "tensor_map_html",
    "tile_html",
    "verify_html",
    "walk",
]

#: Names that are imported on first use, because one picture needs few of them.
_LATER = {
    "atoms": ("MatrixAtoms", "matrix", "matrix_html"),
    "banks": ("AccessSteps", "BankConflicts", "access_steps", "bank_conflicts"),
    "barrier_figure": ("BarrierPlay", "barrier"),
    "bits": ("SwizzleBits", "swizzle_bits"),
    "boxes": ("TensorBox", "tensor"),
    "cards": ("page", "report_html", "tensor_map_html", "tile_html"),
    "map_bytes": ("MapBytes", "diff", "fields_of"),
    "memory": ("Comparison", "SharedMemory", "compare", "shared"),
    "motion": ("CopyMotion", "copy_motion"),
    "results": (
        "bandwidth_html",
        "batch_html",
        "error_html",
        "render_traceback",
        "rules_html",
        "verify_html",
    ),
    "timeline": (
        "ChainLink",
        "Timeline",
        "TimelineArrow",
        "TimelineRow",
        "WaitChain",
        "chain",
        "lanes",
        "missing_fence",
    ),
    "walks": ("Im2colWalk", "walk"),
}

#: Name -> what it shows, the function that makes it, and whether this function takes coordinates.
FIGURES: dict[str, tuple[str, str, bool]] = {
    "tensor": ("the tensor with the box of one tile", "tensor", True),
    "shared": ("the tile in shared memory, chunk by chunk", "shared", True),
    "bytes": ("the 128 bytes and their fields", "fields_of", False),
    "banks": ("bank conflicts of reading columns", "bank_conflicts", False),
    "access": ("reading columns, phase after phase", "access_steps", False),
    "copy": ("one load, moving", "copy_motion", True),
    "barrier": ("the mbarrier of one load, played", "barrier", False),
    "bits": ("the swizzle as bits of an address", "swizzle_bits", False),
    "walk": ("the pixels of an im2col tile", "walk", True),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            # The next access finds the name without __getattr__.
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


@opaque
def figure(
    tensor_map: TensorMap | Tile, what: str = "shared", coords: Sequence[int] | None = None
) -> Figure:
    """Return a figure by its name.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
    what : {"tensor", "shared", "bytes", "banks", "access", "copy", "barrier", "bits", "walk"}
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the first tile of a map, or a tile's own coordinates.

    Returns
    -------
    Figure

    Raises
    ------
    TmaPreconditionError
        For another name, and for an object that is neither a map nor a tile.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> figure(tm, "banks").title
    'bank conflicts of a column: 8-way with none, free with bytes128'
    """
    from tma_dlpack.copies.tile import Tile

    name = text_of(what)
    if name not in FIGURES:
        must = f"be the name of a figure: {', '.join(FIGURES)}"
        raise bad_value("what", what, must, "choose one of them")
    require("tensor_map", tensor_map, (TensorMap, Tile), MAKE_ONE)
    _, function, takes_coords = FIGURES[name]
    make = getattr(sys.modules[__name__], function)
    if name == "bytes" and isinstance(tensor_map, Tile):
        tensor_map = tensor_map.tensor_map
    made: Figure = make(tensor_map, coords) if takes_coords else make(tensor_map)
    return made
