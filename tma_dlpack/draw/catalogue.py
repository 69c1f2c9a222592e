"""Figures by name, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.banks import access_steps, bank_conflicts
from tma_dlpack.draw.barrier_figure import barrier
from tma_dlpack.draw.bits import swizzle_bits
from tma_dlpack.draw.boxes import tensor
from tma_dlpack.draw.copying import copy_motion
from tma_dlpack.draw.figure import MAKE_ONE, Figure, require
from tma_dlpack.draw.map_bytes import fields_of
from tma_dlpack.draw.memory import shared
from tma_dlpack.draw.walks import walk
from tma_dlpack.tables.coerce import shown, text_of
from tma_dlpack.tables.errors import refusal
from tma_dlpack.tables.public import opaque
from tma_dlpack.tensor_map.map import TensorMap

#: name -> what it shows, and the function of (map, coords).
FIGURES: dict[str, tuple[str, Callable[[TensorMap, Sequence[int] | None], Figure]]] = {
    "tensor": ("the tensor with the box of one tile", tensor),
    "shared": ("the tile in shared memory, chunk by chunk", shared),
    "bytes": ("the 128 bytes and their fields", lambda tm, coords: fields_of(tm)),
    "banks": ("bank conflicts of reading columns", lambda tm, coords: bank_conflicts(tm)),
    "access": ("reading columns, phase after phase", lambda tm, coords: access_steps(tm)),
    "copy": ("one load, moving", copy_motion),
    "barrier": ("the mbarrier of one load, played", lambda tm, coords: barrier(tm)),
    "bits": ("the swizzle as bits of an address", lambda tm, coords: swizzle_bits(tm)),
    "walk": ("the pixels of an im2col tile", walk),
}


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
        Row-major, as in `load_tile`; None for the first tile (or the tile's own).

    Returns
    -------
    Figure

    Raises
    ------
    TmaPreconditionError
        For another name, and for what is neither map nor tile.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> figure(tm, "banks").title
    'bank conflicts of a column: 8-way with none, free with bytes128'
    """
    name = text_of(what)
    if name not in FIGURES:
        must = f"be the name of a figure: {', '.join(FIGURES)}"
        raise refusal("what", f"what is {shown(what)}", must, "choose one of them")
    require("tensor_map", tensor_map, (TensorMap, Tile), MAKE_ONE)
    if name == "bytes" and isinstance(tensor_map, Tile):
        return fields_of(tensor_map.tensor_map)
    return FIGURES[name][1](tensor_map, coords)  # type: ignore[arg-type]
