"""`Rule`: one precondition as a row, which holds data and calls none of its functions.

The rows of a map are in `checks`, an operand's in `consumer.refusals`, a tensor's in
`dlpack.layout`, all others in `tables.refusals`. The room that has a row with functions calls these
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from tma_dlpack.tables.arguments import FUNCTIONS, KINDS, MapKind
from tma_dlpack.tables.coerce import rows
from tma_dlpack.tables.errors import (
    ARGUMENT_ID,
    ARGUMENT_SOURCE,
    TmaPreconditionError,
    Violation,
)

CCCL_COMMIT = "571f2fc3bc"  # NVIDIA/cccl, 2026-08-22
LIBCUDACXX = f"libcu++ make_tma_descriptor.h at {CCCL_COMMIT}"
DOCUMENTS = {kind: f"CUDA driver API, {function}" for kind, function in FUNCTIONS.items()}

MEASURED = "measured, H200, driver 580.159.04"

DRIVER_STEPS = 100  # steps from here on are the driver's, beyond libcu++'s own

# Sets of rules; the docstring of `checks` describes them.
EVERY_SET = frozenset({"libcu++", "driver", "documented", "measured"})
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

Text = str | Callable[..., str]  # of the request, and of the entry where the row has `each`


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One precondition: the predicate that judges it, and the words that explain it.

    Only `id`, `must` or `limit`, and `fix` or `candidates` are required of every row.

    Attributes
    ----------
    id : str
        Stable name; it never changes meaning.
    step : int
        Place in libcu++'s order. Rules of one step are one loop there: their violations are
        reported entry by entry.
    on : str or callable (struct) -> str
        The argument that it is about, such as ``"box_sizes"`` or ``"tensor.shape"``; in a
        `driver_encode_*` call the part after the dot becomes the driver's name.
    why : str
        Why the rule exists, for the list of rules.
    holds : str or callable
        The predicate. Of rows of `checks`, an expression over the limits and the fields of
        `checks.struct.STRUCT`, in the subset of Python that `.packaging/generate.py` prints as C.
        It multiplies no unbounded fields and divides by no field that may be 0. Of an advice and of
        an operand, a function.
    each : str
        A key of `checks.struct.LOOPS` for a predicate of every entry of an argument; "" for one of
        the call.
    outermost_first : bool
        Whether libcu++ checks the outermost entry first.
    group : {"tensor", "rule", "advice", "copy", "call", "operand", "file"}
        What it is about.
    found, must : str or callable (request[, entry]) -> str
        What was found; the limit, read after "it must".
    fix : str or callable (request[, entry]) -> str
        What to do where there are no `candidates`, or no candidate is accepted.
    limit : str
        The whole limit, where it is not "it must ...".
    candidates : callable (request[, entry]) -> iterable, or None
        Candidate fixes, the best first; `checks.candidates` defines a candidate.
    changes : tuple of str, or None
        The arguments that its candidates change, the best first, unless `on` is the only one.
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
        Arguments that it depends on, in addition to the arguments of its predicate. The rule is
        not reported if any of them could not be read.
    prerequisites : tuple of str
        Ids of earlier rules; it is not reported if one of them does not hold.
    prerequisites_at_entry : tuple of str
        Ids of earlier rules that must hold at the same entry; without `each`, at the innermost.
    unsupported : bool
        Whether the target lacks something (a RuntimeError in C++), or the hardware fails.
    differs : str
        Where header, documentation and driver disagree, and which we follow.
    if_allowed : str
        What the driver does with a call that `allow=` lets pass, read after "the driver".
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
    fix: Text = ""
    candidates: Callable[..., Iterable[Any]] | None = None
    changes: tuple[str, ...] | None = None
    asks: str = ""
    make_only: bool = False
    libcudacxx: str = ""
    documented: bool = False
    source: str = ""
    sets: frozenset[str] = EVERY_SET
    kinds: tuple[MapKind, ...] = KINDS
    reads: tuple[str, ...] = ()
    prerequisites: tuple[str, ...] = ()
    prerequisites_at_entry: tuple[str, ...] = ()
    unsupported: bool = False
    differs: str = ""
    if_allowed: str = ""

    @property
    def mended_by(self) -> tuple[str, ...]:
        """The arguments that its candidates change. The page tries other values for them."""
        if self.changes is not None:
            return self.changes
        is_argument = isinstance(self.on, str) and not self.on.startswith("tensor.")
        return (str(self.on),) if self.candidates and is_argument else ()

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
        self, argument: str, found: str, *, limit: str = "", fix: str = "", source: str = ""
    ) -> Violation:
        """Return the violation of a row that was found outside of the judge.

        If the caller knows the numbers, `limit`, `fix` and `source` replace the texts of the row.
        """
        limit = limit or self.limit or f"it must {self.must}"
        source = source or self.sources(self.kinds[0])
        return Violation(self.id, argument, found, limit, fix or str(self.fix), source)

    def error(self, argument: str, found: str, **words: str) -> TmaPreconditionError:
        """Return the error with the violation that `violation` makes of these arguments."""
        return TmaPreconditionError(self.violation(argument, found, **words))

    def refuse(
        self, argument: str, found: str, cause: BaseException | None = None, fix: str | None = None
    ) -> NoReturn:
        """Raise that error."""
        raise self.error(argument, found, fix=fix or "") from cause


def rules_of(group: str, table: str, on: str = "") -> tuple[Rule, ...]:
    """Return the rules of a table in text, whose first line names fields of `Rule`."""
    fields, *cells = rows(table)
    named: list[dict[str, Any]] = [
        {"on": on, **dict(zip(fields, row, strict=True))} for row in cells
    ]
    return tuple(Rule(group=group, **row) for row in named)


#: The refusal of an argument that cannot be read.
ARGUMENT = Rule(
    id=ARGUMENT_ID,
    group="call",
    asks="have a type and form that the argument takes",
    fix="",
    source=ARGUMENT_SOURCE,
)
