"""`Rule`: one row for whatever can be refused: a tensor, a call, a copy, an operand.

A row of `checks` has a predicate that the judge evaluates; the others are found where a tensor is
read or a copy is prepared, and raised with `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tma_dlpack.tables.arguments import KINDS, MapKind
from tma_dlpack.tables.errors import TmaPreconditionError, Violation

CCCL_COMMIT = "571f2fc3bc"  # NVIDIA/cccl, 2026-08-22
LIBCUDACXX = f"libcu++ make_tma_descriptor.h at {CCCL_COMMIT}"
DOCUMENTS: dict[MapKind, str] = {
    "tiled": "CUDA driver API, cuTensorMapEncodeTiled",
    "im2col": "CUDA driver API, cuTensorMapEncodeIm2col",
    "im2col_wide": "CUDA driver API, cuTensorMapEncodeIm2colWide",
}
EVERY_SET = frozenset({"libcu++", "driver", "documented", "measured"})

Text = str | Callable[..., str]  # of the request, and of the entry where the row has `each`


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One precondition: the predicate that judges it, and the words that explain it.

    Only `id`, `fix`, and `must` or `limit` are required of every row.

    Attributes
    ----------
    id : str
        Stable name; it never changes meaning.
    step : int
        Place in libcu++'s order. Rules of one step are one loop there: their violations are
        reported entry by entry.
    on : str or callable (request) -> str
        The argument that it is about, such as ``"box_sizes"`` or ``"tensor.shape"``; in a
        `driver_encode_*` call the part after the dot becomes the driver's name.
    why : str
        Why there is such a rule, for the list of rules.
    holds : str or callable
        The predicate. Of rows of `checks`, an expression over the fields of `rule.STRUCT` and the
        limits, in the subset of Python that `.packaging/generate.py` prints as C. It multiplies no
        unbounded fields and divides by no field that may be 0.
    each : str
        A key of `rule.LOOPS` for a predicate of every entry of an argument; "" for one of the call.
    outermost_first : bool
        Whether libcu++ looks at the outermost entry first.
    group : {"tensor", "rule", "advice", "copy", "call", "operand"}
        What it is about.
    found, must, fix : str or callable (request[, entry]) -> str
        What was found; the limit, read after "it must"; what to do.
    limit : str
        The whole limit, where it is not "it must ...".
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
        Whether the target lacks something (a RuntimeError in C++), or the hardware fails.
    differs : str
        Where header, documentation and driver disagree, and which we follow.
    """

    id: str
    group: str = "rule"
    step: int = 0
    on: Text = ""
    why: str = ""
    holds: str | Callable[..., bool] = ""
    each: str = ""
    outermost_first: bool = False
    found: Text = ""
    must: Text = ""
    limit: str = ""
    fix: Text
    repair: Callable[..., dict[str, Any]] | None = None
    asks: str = ""
    make_only: bool = False
    libcudacxx: str = ""
    documented: bool = False
    source: str = ""
    sets: frozenset[str] = EVERY_SET
    kinds: tuple[MapKind, ...] = KINDS
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

    def violation(
        self, argument: str, found: str, fix: str = "", kind: MapKind = "tiled"
    ) -> Violation:
        """Return the violation of a row that was found outside of the judge."""
        limit = self.limit or f"it must {self.must}"
        return Violation(self.id, argument, found, limit, fix or str(self.fix), self.sources(kind))

    def refuse(
        self, argument: str, found: str, cause: BaseException | None = None, fix: str | None = None
    ) -> NoReturn:
        """Raise the violation; `fix` replaces the row's own where the caller knows a better one."""
        raise TmaPreconditionError(self.violation(argument, found, fix or "")) from cause


def by_id(rows: Iterable[Rule]) -> Mapping[str, Rule]:
    """Return rows by their ids."""
    return {row.id: row for row in rows}
