"""What a rule is, and the words that many rows share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tma_dlpack.rules.repairs import Repair
from tma_dlpack.rules.request import Case

__all__ = [
    "ALL",
    "CCCL_COMMIT",
    "COLUMNS",
    "DRIVER",
    "EVERY",
    "HAS_TYPE",
    "IM2COL",
    "IM2COL_DOC",
    "LIBCU",
    "LIBCUDACXX",
    "MEASURED",
    "TILED",
    "TILED_DOC",
    "TILED_ON_SM_90",
    "WIDE",
    "WIDE_DOC",
    "WRITTEN",
    "Ask",
    "Rule",
]

CCCL_COMMIT = "571f2fc3bc"  # NVIDIA/cccl, 2026-08-22
LIBCUDACXX = f"libcu++ make_tma_descriptor.h at {CCCL_COMMIT}"
TILED_DOC = "CUDA driver API, cuTensorMapEncodeTiled"
IM2COL_DOC = "CUDA driver API, cuTensorMapEncodeIm2col"
WIDE_DOC = "CUDA driver API, cuTensorMapEncodeIm2colWide"
MEASURED = "measured, H200, driver 580.159.04"

# Sets of rules that a row may belong to; the package's docstring says what each is.
ALL = frozenset({"libcu++", "driver", "documented", "measured"})
DRIVER = frozenset({"driver", "measured"})
LIBCU = frozenset({"libcu++"})
WRITTEN = frozenset({"libcu++", "driver", "documented"})
TILED_ON_SM_90 = frozenset({"libcu++", "driver", "measured"})

Kinds = tuple[str, ...]
TILED: Kinds = ("tiled",)
IM2COL: Kinds = ("im2col",)
WIDE: Kinds = ("im2col_wide",)
COLUMNS: Kinds = ("im2col", "im2col_wide")
EVERY: Kinds = ("tiled", "im2col", "im2col_wide")

#: What rows need that ask about the map's data type.
HAS_TYPE = ("data_type", "DTYPE", "DATA_TYPE_OVERRIDE")

#: A question about a case at a place; a place is a dimension (0 is innermost) where rows have many.
Ask = Callable[[Case, int], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One precondition.

    Attributes
    ----------
    id : str
        Stable name; it never changes meaning.
    step : int
        Place in libcu++'s order. Rows of one step are one loop: findings come place by place.
    on : str
        The argument it is about; what follows a dot is said of tensors in the mirrors' words.
    holds : callable (case, place) -> bool
    found, fix : callable (case, place) -> str
    must : str or callable
        What is asked, to be read after "it must".
    source : str
    sets : frozenset of str
        The sets of rules that it belongs to.
    kinds : tuple of str
        The kinds of map.
    needs : tuple of str
        Ids of earlier rows, and names of arguments, without which the question makes no sense.
    needs_here : tuple of str
        The same for one place: ``"ROW[i]"`` is the place in question, ``"ROW[0]"`` a fixed one.
    applies : callable (case) -> bool, or None
        None for always.
    places : callable (case) -> places, or None
        None for the one place 0.
    unsupported : bool
        Whether it says that the target lacks something (a RuntimeError in C++).
    repair : callable (case, place) -> dict, or None
        Keyword arguments that would mend it; None where only another tensor does.
    differs : str
        Where header, documentation and driver disagree, and whom we follow.
    """

    id: str
    step: int
    on: str
    holds: Ask
    found: Ask
    must: str | Ask
    fix: Ask
    source: str
    sets: frozenset[str] = ALL
    kinds: Kinds = EVERY
    needs: tuple[str, ...] = ()
    needs_here: tuple[str, ...] = ()
    applies: Callable[[Case], bool] | None = None
    places: Callable[[Case], Iterable[int]] | None = None
    unsupported: bool = False
    repair: Repair | None = None
    differs: str = ""

    def limit(self, c: Case, i: int) -> str:
        """Give what is asked, as a sentence."""
        must = self.must if isinstance(self.must, str) else self.must(c, i)
        return f"it must {must}"
