"""What a rule is, and the names that many rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tma_dlpack.checks.repairs import Repair, RepairOfEntry
from tma_dlpack.checks.request import Request
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

Entries = Callable[[Request], Iterable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The fields that all rules have.

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
    asks : str
        The limit in general, for the list of rules, if `must` depends on the request. Read after
        "it must".
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
        Arguments that it reads; the rule is skipped if one of them could not be parsed.
    after : tuple of str
        Ids of earlier rules; the rule is skipped if one of them does not hold or was skipped for
        its arguments.
    after_here : tuple of str
        Ids of earlier rules that must hold at the same entry; for a `Rule`, at the innermost one.
    applies : callable (request) -> bool, or None
        None for always.
    unsupported : bool
        Whether the target lacks something (a RuntimeError in C++).
    differs : str
        Where header, documentation and driver disagree, and which we follow.
    """

    id: str
    step: int
    on: str
    why: str
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
    applies: Callable[[Request], bool] | None = None
    unsupported: bool = False
    differs: str = ""

    def sources(self, kind: MapKind) -> str:
        """Give the sources of the rule, for a kind of map."""
        cites_libcudacxx = self.libcudacxx and (kind == "tiled" or not self.documented)
        sources = (
            f"{LIBCUDACXX}, {self.libcudacxx}" if cites_libcudacxx else "",
            DOCUMENTS[kind] if self.documented else "",
            self.source,
        )
        text = "; ".join(filter(None, sources))
        return f"{text} ({self.differs})" if self.differs else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(_Row):
    """One precondition of a request.

    Attributes
    ----------
    holds : callable (request) -> bool
    found, fix : str or callable (request) -> str
    must : str or callable (request) -> str
        The limit, read after "it must".
    repair : callable (request) -> dict, or None
        Keyword arguments that would satisfy the rule; None if only another tensor can.
    """

    holds: Callable[[Request], bool]
    found: str | Callable[[Request], str]
    must: str | Callable[[Request], str]
    fix: str | Callable[[Request], str]
    repair: Repair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePerEntry(_Row):
    """One precondition of every entry of an argument: of each dimension, say.

    Attributes
    ----------
    entries : callable (request) -> iterable of int
        The entries that it is about; 0 is innermost.
    holds, found, must, fix, repair
        As in `Rule`, with the entry as second argument.
    """

    entries: Entries
    holds: Callable[[Request, int], bool]
    found: str | Callable[[Request, int], str]
    must: str | Callable[[Request, int], str]
    fix: str | Callable[[Request, int], str]
    repair: RepairOfEntry | None = None


AnyRule = Rule | RulePerEntry
