"""Pictures of tensor maps: frozen figures that become SVG, HTML or text.

Every figure has `svg()`, `html()` and `text()` (also `str`), and notebooks show it.

`grid.py` has the primitive under all of them, cells on a grid, and lays grids out as panels;
`svg.py` has the styles and writes panels as SVG; `figure.py` has the base class and the page of
HTML. Each figure is one module: a frozen dataclass (the facts), its lowering to grids and to text,
and the function that makes it from a map. `cards.py` and `results.py` are the HTML of TensorMap,
Tile, Report and other results; the package's `__init__` attaches them, so that other rooms need not
know of drawing.

A new figure: a module with a frozen dataclass that derives from `Figure` and defines `title`,
`scenes()` and `text()` (100 columns at most; the facts must not depend on colour alone), and a
public function ``(tensor_map, coords=None)``. A scene is ``lay_out(about, grids, ...)``, where
`about` is the sentence for screen readers and the style of a cell is a name in `svg.STYLES`. Export
the function and the class here. For the command line and `figure()`, add a row to
`catalogue.FIGURES` and the name to the docstring of `catalogue.figure`. Test its facts and its text
in tests/draw.

>>> import numpy as np
>>> import tma_dlpack as tma
>>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64), swizzle="bytes128")
>>> from tma_dlpack import draw
>>> print(draw.tensor(tm, (24, 64)).title)
tensor (30, 104) FLOAT16, box (8, 64) at (24, 64)
>>> draw.shared(tm).svg()[:4]
'<svg'
"""

from tma_dlpack.draw.ask import Question, ask
from tma_dlpack.draw.banks import AccessSteps, BankConflicts, access_steps, bank_conflicts
from tma_dlpack.draw.barrier_figure import BarrierPlay, barrier
from tma_dlpack.draw.bits import SwizzleBits, swizzle_bits
from tma_dlpack.draw.boxes import TensorBox, tensor
from tma_dlpack.draw.cards import report_html, rules_html, tensor_map_html, tile_html
from tma_dlpack.draw.catalogue import FIGURES, figure
from tma_dlpack.draw.contrast import Contrast, contrast
from tma_dlpack.draw.copying import CopyMotion, copy_motion
from tma_dlpack.draw.figure import Figure, page
from tma_dlpack.draw.map_bytes import Comparison, MapBytes, compare, diff, fields_of
from tma_dlpack.draw.matrix import MatrixAtoms, matrix, matrix_html
from tma_dlpack.draw.memory import SharedMemory, shared
from tma_dlpack.draw.results import (
    bandwidth_html,
    batch_html,
    error_html,
    render_traceback,
    verify_html,
)
from tma_dlpack.draw.sixteen import SixteenBytes, sixteen_bytes
from tma_dlpack.draw.walks import Im2colWalk, walk

__all__ = [
    "FIGURES",
    "AccessSteps",
    "BankConflicts",
    "BarrierPlay",
    "Comparison",
    "Contrast",
    "CopyMotion",
    "Figure",
    "Im2colWalk",
    "MapBytes",
    "MatrixAtoms",
    "Question",
    "SharedMemory",
    "SixteenBytes",
    "SwizzleBits",
    "TensorBox",
    "access_steps",
    "ask",
    "bandwidth_html",
    "bank_conflicts",
    "barrier",
    "batch_html",
    "compare",
    "contrast",
    "copy_motion",
    "diff",
    "error_html",
    "fields_of",
    "figure",
    "matrix",
    "matrix_html",
    "page",
    "render_traceback",
    "report_html",
    "rules_html",
    "shared",
    "sixteen_bytes",
    "swizzle_bits",
    "tensor",
    "tensor_map_html",
    "tile_html",
    "verify_html",
    "walk",
]
