"""All names of other folders that `course/` uses; tests/test_layers.py checks this."""

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import CHUNKS, ROWS_READ
from tma_dlpack.draw.figure import PLAYERS, TEXT_COLUMNS, Figure, played, svg_panel
from tma_dlpack.draw.grid import Cell, Grid, Scene, label, lay_out, text_width, words
from tma_dlpack.geometry import CHUNK_BYTES, SMEM_ALIGNMENT, SWIZZLES, swizzle_offset
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import counted, integer_of, rows, text_of
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import bad_value
from tma_dlpack.tensor_map.map import TensorMap

__all__ = [
    "CHUNKS", "CHUNK_BYTES", "PLAYERS", "ROWS_READ", "SMEM_ALIGNMENT", "SWIZZLES", "TEXT_COLUMNS",
    "Cell", "Figure", "Grid", "Scene", "TensorMap", "Tile", "TmaSwizzle", "bad_value", "counted",
    "integer_of", "label", "lay_out", "opaque", "played", "rows", "svg_panel", "swizzle_offset",
    "text_of", "text_width", "words",
]  # fmt: skip
