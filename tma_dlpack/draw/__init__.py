"""Pictures of tensor maps, which can be written as SVG, HTML or text.

Every figure has the methods `svg()`, `html()` and `text()`. `str(figure)` returns `text()`, and a
notebook displays `html()`.

All figures consist of cells on a grid. `grid.py` defines the cells and their styles, and lays out
grids as panels. `figure.py` defines the base class, and writes panels as SVG and HTML. The module
of a figure has three parts: a frozen dataclass with the facts, methods that draw the facts as grids
and as text, and a function that makes the figure from a map. `cards.py` and `results.py` have
functions that return the HTML of a TensorMap, a Tile, a Report and other results.
`tma_dlpack/__init__.py` registers these functions for the classes, so that the modules of the
classes do not import `draw`.

To add a figure:

1. Write a module with a frozen dataclass that derives from `Figure`. Define `title`, `sentence`
   (the caption), `scenes()` and `text()`. A line of the text has at most 100 characters. The facts
   must be readable without colours. In the caption, write "[words](key)" for words that are
   highlighted together with the cells of `key`.
2. Let `scenes()` return the results of ``lay_out(about, grids, ...)``. `about` is a sentence for
   screen readers. The style of each cell is a key of `grid.STYLES`.
3. Write a public function ``(tensor_map, coords=None)`` that returns the figure.
4. Export the function and the class in this file: import both for type checkers, and add both
   names to `__all__` and `_LATER`.
5. To offer the figure on the command line and in `figure()`, add a row to `FIGURES`, and add the
   name to the docstring of `figure`.
6. Test the facts and the text of the figure in tests/draw.

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

#: Module -> names that are imported from it on first use. One picture needs few of these modules.
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
    # `course/` is optional: without it, the other entries still work.
    "tma_dlpack.course.barrier_play": ("BarrierPlay",),
    "tma_dlpack.course.swizzle_bits": ("SwizzleBits", "swizzle_bits"),
}
__getattr__ = imported_later(__name__, _LATER)

#: Name of a figure -> what the figure shows, the name of the function that makes the figure, and
#: True if this function takes coordinates.
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
        Row-major coordinates, as in `load_tile`. None means the first tile of a map. A Tile has its
        own coordinates, so `coords` is ignored.

    Returns
    -------
    Figure

    Raises
    ------
    TmaPreconditionError
        If `what` is not the name of a figure, `tensor_map` is neither a TensorMap nor a Tile, or
        `load_tile` would refuse `coords`.

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
    """Show on one time axis how the threads of a kernel wait at an mbarrier for the copy engine.

    The kernel runs on a model of the mbarrier, which has a phase, pending arrivals and pending
    bytes. In a notebook, switches select a mistake, and a slider moves from event to event. If
    `tensor_map` is an iterable of timeline rows, the picture shows these rows, and no model runs.

    Parameters
    ----------
    tensor_map : TensorMap or Tile or iterable of TimelineRow, optional
        With a map or tile, each load in the kernel copies `tx_bytes` bytes. With None, each load
        copies 8192 bytes: 64 x 64 elements of 16 bits. Rows must be valid for `lanes`. If rows
        are passed, all other arguments must be omitted.
    mistake : str, optional
        Name of the mistake in the kernel. Every kernel can have "expects too little", "expects too
        much", "wrong parity" or "initialised for 2". A kernel of one block and one stage can also
        have "no fence". A kernel of several stages can also have "empty parity", "never flipped" or
        "not released".
    stages : int
        With 1, the kernel loads one tile, waits for the tile, and changes it. If the kernel has
        only one block, it also stores the tile. With 2 to 8, a producer and a consumer share a ring
        of this many stages, with `full` and `empty` barriers.
    blocks : int
        2 means a cluster of two blocks. Each block loads one part of a tile into both blocks
        (multicast).

    Returns
    -------
    BarrierPlay, or Timeline for rows

    Raises
    ------
    TmaPreconditionError
        If rows are passed with other arguments, if `mistake` is unknown or not possible in this
        kernel, or if `stages` or `blocks` is out of range.

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
    Source: PTX ISA, mbarrier. The outcomes are measured (H200, driver 580.159.04), unless the
    caption says "not measured".
    """
    from tma_dlpack.copies.tile import Tile

    if not (tensor_map is None or isinstance(tensor_map, (TensorMap, Tile))):
        # A str and a DLPack tensor are iterable too, but their items are not rows.
        is_text = isinstance(tensor_map, str)
        if is_text or not isinstance(tensor_map, Iterable) or hasattr(tensor_map, "__dlpack__"):
            require("tensor_map", tensor_map, (TensorMap, Tile), MAKE_ONE)
        for name, given in {"mistake": mistake, "stages": stages, "blocks": blocks}.items():
            if given not in (None, 1):
                must = "be omitted where rows are passed, which have no model"
                raise bad_value(name, given, must, f"omit {name}, or the rows")
        from tma_dlpack.draw.timeline import lanes

        return lanes(tensor_map, title="mbarrier")
    # `course/` is optional, so no `import` statement outside `course/` may import it at run time.
    course = importlib.import_module("tma_dlpack.course.barrier_play")
    play: BarrierPlay = course.play_barrier(tensor_map, mistake, stages, blocks)
    return play
