"""Figures by name, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tma_dlpack.backends.tile import Tile
from tma_dlpack.draw.banks import bank_conflicts
from tma_dlpack.draw.bits import fields_of
from tma_dlpack.draw.boxes import tensor
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.memory import shared
from tma_dlpack.draw.walks import walk
from tma_dlpack.tensor_map import TensorMap

__all__ = ["FIGURES", "figure"]

#: name -> what it shows, and who makes it of (map, coords).
FIGURES: dict[str, tuple[str, Callable[[TensorMap, Sequence[int] | None], Figure]]] = {
    "tensor": ("the tensor with the box of one tile", tensor),
    "shared": ("the tile in shared memory, chunk by chunk", shared),
    "bytes": ("the 128 bytes and their fields", lambda tm, coords: fields_of(tm)),
    "banks": ("bank conflicts of reading columns", lambda tm, coords: bank_conflicts(tm)),
    "walk": ("the pixels of an im2col tile", walk),
}


def figure(
    shown: TensorMap | Tile, what: str = "shared", coords: Sequence[int] | None = None
) -> Figure:
    """Give a figure by its name.

    Parameters
    ----------
    shown : TensorMap or Tile
    what : {"tensor", "shared", "bytes", "banks", "walk"}
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the first tile (or the tile's own).

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        For another name.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> figure(tm, "banks").title
    'bank conflicts of a column: 8-way with none, free with bytes128'
    """
    if what not in FIGURES:
        raise ValueError(f"there is no figure {what!r}; choose {', '.join(FIGURES)}")
    if what == "bytes" and isinstance(shown, Tile):
        return fields_of(shown.tensor_map)
    return FIGURES[what][1](shown, coords)  # type: ignore[arg-type]
