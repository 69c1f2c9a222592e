"""`suggest`, which lists boxes, swizzles and L2 fetch sizes for a tile, best first.

`tile_suggestions.py` has `suggest` and its result. `reasons.py` makes the sentences of the result.
`tile_choices.py` finds the boxes and swizzles that the tile's reader, such as wgmma, can use.
`speeds.py` ranks the boxes by measured tables, one per GPU. ``python tests/bench tiles`` prints
such a table.
"""

from typing import TYPE_CHECKING

from tma_dlpack.public import imported_later

if TYPE_CHECKING:
    from tma_dlpack.suggestions.tile_suggestions import Suggestion, Suggestions

__all__ = ["Suggestion", "Suggestions"]
_LATER = {"tma_dlpack.suggestions.tile_suggestions": ("Suggestion", "Suggestions")}
__getattr__ = imported_later(__name__, _LATER)
