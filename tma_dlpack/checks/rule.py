"""What a rule is, and the names that many rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tma_dlpack.checks.repairs import Repair, RepairOfEntry
from tma_dlpack.tables.arguments import KINDS, MapKind

CCCL_COMMIT = "571f2fc3bc"  # NVIDIA/cccl, 2026-08-22
LIBCUDACXX = f"libcu++ make_tma_descriptor.h at {CCCL_COMMIT}"
DOCUMENTS: dict[MapKind, str] = {
    "tiled": "CUDA driver API, cuTensorMapEncodeTiled",
    "im2col": "CUDA driver API, cuTensorMapEncodeIm2col",
    "im2col_wide": "CUDA driver API, cuTensorMapEncodeIm2colWide",
}
MEASURED = "measured, H200, driver 580.159.04"

DRIVER_STEPS = 100  # steps from here on are the driver's, beyond libcu++'s own

# Sets of rules that a rule may belong to; the package's docstring says what each is.
ALL = frozenset({"libcu++", "driver", "documented", "measured"})
DRIVER = frozenset({"driver", "measured"})
LIBCU = frozenset({"libcu++"})
#: Documented, but the driver of sm_90 does not refuse it.
ALL_BUT_MEASURED = frozenset({"libcu++", "driver", "documented"})
#: Not documented, but the driver of sm_90 refuses it.
TILED_ON_SM_90 = frozenset({"libcu++", "driver", "measured"})

Kinds = tuple[MapKind, ...]
TILED: Kinds = ("tiled",)
IM2COL: Kinds = ("im2col",)
WIDE: Kinds = ("im2col_wide",)
BOTH_IM2COL: Kinds = ("im2col", "im2col_wide")

#: Rules that must hold before a rule on the map's data type is checked.
HAS_TYPE = ("DTYPE", "DATA_TYPE_OVERRIDE")

#: Over what a predicate loops: the variable, its first value, the field that ends it. `d` counts
#: dimensions and `s` spatial ones, from the innermost.
LOOPS: dict[str, tuple[str, int, str]] = {
    "d": ("d", 0, "dims"),
    "d > 0": ("d", 1, "dims"),
    "s": ("s", 0, "corners"),
    "s > 0": ("s", 1, "spatial"),
}

Text = str | Callable[..., str]  # of the request, and of the entry where the row has `each`


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One precondition: the predicate that judges it, and the words that explain it.

    Attributes
    ----------
    id : str
        Stable name; it never changes meaning.
    step : int
        Place in libcu++'s order. Rules of one step are one loop there: their violations are
        reported entry by entry.
    on : str
        The argument that it is about, such as ``"box_sizes"`` or ``"tensor.shape"``; in a
        `driver_encode_*` call the part after the dot becomes the driver's name.
    why : str
        Why there is such a rule, for the list of rules.
    holds : str
        The predicate: an expression over the fields of `describe.Described` and the constants of
        `predicates.CONSTANTS`, in the subset of Python that `.packaging/generate.py` prints as C.
        It multiplies no unbounded fields and divides by no field that may be 0.
    each : str
        A key of `LOOPS` for a predicate of every entry of an argument; "" for one of the call.
    outermost_first : bool
        Whether libcu++ looks at the outermost entry first.
    found, must, fix : str or callable (request[, entry]) -> str
        What was found; the limit, read after "it must"; what to do.
    repair : callable (request[, entry]) -> dict, or None
        Keyword arguments that would satisfy the rule; None if only another tensor can.
    asks : str
        The limit in general, for the list of rules, if `must` depends on the request.
    make_only : bool
        Whether it is checked for `make_*` calls only, not for `driver_encode_*`.
    libcudacxx : str
        The function of make_tma_descriptor.h that checks it for tiled maps; "" if none does.
    documented : bool
        Whether the driver API documentation of that kind of map states it.
    source : str
        Another source.
    sets : frozenset of str
        The sets of rules that it belongs to.
    kinds : tuple of str
        The kinds of map.
    reads : tuple of str
        Arguments that it depends on beside those of its predicate; it is not reported if one of
        either could not be read.
    after : tuple of str
        Ids of earlier rules; it is not reported if one of them does not hold.
    after_here : tuple of str
        Ids of earlier rules that must hold at the same entry; without `each`, at the innermost.
    unsupported : bool
        Whether the target lacks something (a RuntimeError in C++).
    differs : str
        Where header, documentation and driver disagree, and which we follow.
    """

    id: str
    step: int
    on: str
    why: str
    holds: str
    each: str = ""
    outermost_first: bool = False
    found: Text
    must: Text
    fix: Text
    repair: Repair | RepairOfEntry | None = None
    asks: str = ""
    make_only: bool = False
    libcudacxx: str = ""
    documented: bool = False
    source: str = ""
    sets: frozenset[str] = ALL
    kinds: Kinds = KINDS
    reads: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_here: tuple[str, ...] = ()
    unsupported: bool = False
    differs: str = ""

    def sources(self, kind: MapKind) -> str:
        """Return the sources of the rule, for a kind of map."""
        cites_libcudacxx = self.libcudacxx and (kind == "tiled" or not self.documented)
        sources = (
            f"{LIBCUDACXX}, {self.libcudacxx}" if cites_libcudacxx else "",
            DOCUMENTS[kind] if self.documented else "",
            self.source,
        )
        text = "; ".join(filter(None, sources))
        return f"{text} ({self.differs})" if self.differs else text
