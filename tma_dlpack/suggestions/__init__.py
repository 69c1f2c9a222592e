"""`suggest`: which box, swizzle and L2 fetch size.

`tile_suggestions.py` has `suggest` and its result, `reasons.py` the sentences of the result,
`tile_choices.py` the boxes and swizzles that can serve a reader, `speeds.py` the measured tables
that rank them, one per card (``python tests/bench tiles`` prints one).
"""

from typing import TYPE_CHECKING

from tma_dlpack.public import imported_later

if TYPE_CHECKING:
    from tma_dlpack.suggestions.tile_suggestions import Suggestion, Suggestions

__all__ = ["Suggestion", "Suggestions"]
_LATER = {"tma_dlpack.suggestions.tile_suggestions": ("Suggestion", "Suggestions")}
__getattr__ = imported_later(__name__, _LATER)
