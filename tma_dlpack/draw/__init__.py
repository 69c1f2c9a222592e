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
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from tma_dlpack.draw.figure import MAKE_ONE, Figure, require
from tma_dlpack.public import imported_later, opaque
from tma_dlpack.tables.coerce import text_of
from tma_dlpack.tables.errors import bad_value
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.copies.tile import Tile
    from tma_dlpack.course.barrier_play import BarrierPlay
    from tma_dlpack.course.swizzle_bits import SwizzleBits, swizzle_bits
    from tma_dlpack.draw.atoms import MatrixAtoms, matrix, matrix_html
    from tma_dlpack.draw.banks import AccessSteps, BankConflicts, access_steps, bank_conflicts
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

    Rows = Iterable[TimelineRow | tuple[Any, ...]]

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
    "tma_dlpack.draw.atoms": ("MatrixAtoms", "matrix", "matrix_html"),
    "tma_dlpack.draw.banks": ("AccessSteps", "BankConflicts", "access_steps", "bank_conflicts"),
    "tma_dlpack.draw.boxes": ("TensorBox", "tensor"),
    "tma_dlpack.draw.cards": ("page", "report_html", "tensor_map_html", "tile_html"),
    "tma_dlpack.draw.map_bytes": ("MapBytes", "diff", "fields_of"),
    "tma_dlpack.draw.memory": ("Comparison", "SharedMemory", "compare", "shared"),
    "tma_dlpack.draw.motion": ("CopyMotion", "copy_motion"),
    "tma_dlpack.draw.results": (
        "bandwidth_html",
        "batch_html",
        "error_html",
        "render_traceback",
        "rules_html",
        "verify_html",
    ),
    "tma_dlpack.draw.timeline": (
        "ChainLink",
        "Timeline",
        "TimelineArrow",
        "TimelineRow",
        "WaitChain",
        "chain",
        "lanes",
        "missing_fence",
    ),
    "tma_dlpack.draw.walks": ("Im2colWalk", "walk"),
    # A wing, without which the rest of this list works.
    "tma_dlpack.course.barrier_play": ("BarrierPlay",),
    "tma_dlpack.course.swizzle_bits": ("SwizzleBits", "swizzle_bits"),
}
__getattr__ = imported_later(__name__, _LATER)

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


@overload
def barrier(
    tensor_map: TensorMap | Tile | None = None,
    *,
    mistake: str | None = None,
    stages: int = 1,
    blocks: int = 1,
) -> BarrierPlay: ...
@overload
def barrier(tensor_map: Rows) -> Timeline: ...
@opaque
def barrier(
    tensor_map: TensorMap | Tile | Rows | None = None,
    *,
    mistake: str | None = None,
    stages: int = 1,
    blocks: int = 1,
) -> BarrierPlay | Timeline:
    """Show how a kernel waits for a copy: threads, copy engine and mbarrier on one axis of time.

    The picture plays the kernel on a model of the mbarrier (phase, pending arrivals, pending
    bytes). In a notebook, switches show each mistake and a slider goes from event to event. If rows
    are passed, such as those of a run, the picture shows the rows and no model.

    Parameters
    ----------
    tensor_map : TensorMap or Tile or iterable of TimelineRow, optional
        A map or tile: the kernel loads its `tx_bytes`. None: 8192 bytes, 64 x 64 elements of 16
        bits. Rows, as `lanes` takes them: the model and its options are not used.
    mistake : str, optional
        Name of the kernel's mistake: "expects too little", "expects too much", "wrong parity",
        "initialised for 2", or, with one block and one stage, "no fence", or, with several stages,
        "empty parity", "never flipped", "not released".
    stages : int
        1 for one tile: load, wait, change, store. 2 to 8 for a ring with `full` and `empty`
        barriers, a producer and a consumer.
    blocks : int
        2 for a cluster in which each block loads its part of a tile into both (multicast).

    Returns
    -------
    BarrierPlay, or Timeline of rows

    Raises
    ------
    TmaPreconditionError
        For rows together with options of the model, for a mistake that is unknown or that this
        kernel cannot make, and for numbers out of range.

    Examples
    --------
    >>> barrier().outcome
    'right'
    >>> barrier(mistake="expects too little").outcome
    'early read'
    >>> print(barrier(mistake="initialised for 2").frames[-1].states[0])
    ('full', Barrier(arrivals=2, pending=1, tx_bytes=0, phase=0))
    >>> print(barrier([("copy 0", 0, 3, "copy"), ("warp 0", 1, 3, "wait")]))
    mbarrier
    copy 0 |################################################|
    warp 0 |               .................................|
    # copies; . waits

    Notes
    -----
    Source: PTX ISA, mbarrier; the outcomes are measured (H200, driver 580.159.04), except those
    whose caption says "not measured".
    """
    from tma_dlpack.copies.tile import Tile

    if not (tensor_map is None or isinstance(tensor_map, (TensorMap, Tile))):
        # Text and DLPack tensors are iterable, but are not rows.
        is_text = isinstance(tensor_map, str)
        if is_text or not isinstance(tensor_map, Iterable) or hasattr(tensor_map, "__dlpack__"):
            require("tensor_map", tensor_map, (TensorMap, Tile), MAKE_ONE)
        for name, given in {"mistake": mistake, "stages": stages, "blocks": blocks}.items():
            if given not in (None, 1):
                must = "be omitted where rows are passed, which have no model"
                raise bad_value(name, given, must, f"omit {name}, or the rows")
        from tma_dlpack.draw.timeline import lanes

        return lanes(tensor_map, title="mbarrier")
    # `course/` is a wing: the core imports none of its files, and works without it.
    course = importlib.import_module("tma_dlpack.course.barrier_play")
    play: BarrierPlay = course.play_barrier(tensor_map, mistake, stages, blocks)
    return play
