"""The class `Rule`. A rule is one precondition of a call, and one row of a table.

The rows about maps are in `checks`, the rows about operands of MMA instructions in
`consumer.refusals`, the rows about tensors in `dlpack.layout`, and all others in `tables.refusals`.
Some fields of a row may be functions. The package that defines the row calls these functions; this
file does not.
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

DRIVER_STEPS = 100  # steps from this number on are rules of the driver that libcu++ does not check

# Values of `Rule.sets`. The docstring of `checks` describes the four sets.
EVERY_SET = frozenset({"libcu++", "driver", "documented", "measured"})
DRIVER = frozenset({"driver", "measured"})
LIBCU = frozenset({"libcu++"})
#: The sets of a rule that is documented, but that the driver does not apply on sm_90.
ALL_BUT_MEASURED = frozenset({"libcu++", "driver", "documented"})
#: The sets of a rule that is not documented, but that the driver applies on sm_90.
TILED_ON_SM_90 = frozenset({"libcu++", "driver", "measured"})

Kinds = tuple[MapKind, ...]
TILED: Kinds = ("tiled",)
IM2COL: Kinds = ("im2col",)
WIDE: Kinds = ("im2col_wide",)
BOTH_IM2COL: Kinds = ("im2col", "im2col_wide")

#: The prerequisites of rules about the map's data type.
HAS_TYPE = ("DTYPE", "DATA_TYPE_OVERRIDE")

#: A text, or a function that returns it. The function is called with the request. If the row has
#: `each`, the second argument is the index at which the rule is broken.
Text = str | Callable[..., str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A precondition: its predicate, and the texts of the report if the predicate is false.

    Every row needs `id`. It also needs `must` or `limit`, and `fix` or `candidates`. All other
    fields are optional.

    Attributes
    ----------
    id : str
        The stable name of the rule. The meaning of a name never changes.
    step : int
        The position of the rule in libcu++'s order. libcu++ checks the rules of one step in a
        single loop over the entries of the argument, so their violations are reported entry by
        entry.
    on : str or callable (struct) -> str
        The argument that the rule is about, such as ``"box_sizes"`` or ``"tensor.shape"``. Reports
        on a `driver_encode_*` call name the driver's argument instead.
    why : str
        The reason for the rule, which the list of rules shows.
    holds : str or callable
        The predicate. In the rows of `checks` it is an expression over the limits and the fields of
        `checks.struct.STRUCT`, in the subset of Python that `.packaging/generate.py` prints as C.
        The expression does not multiply unbounded fields, and does not divide by a field that may
        be 0. In the rows of advice and of operands, the predicate is a function.
    each : str
        A key of `checks.struct.LOOPS` if the predicate is about each entry of an argument; "" if
        the predicate is about the whole call.
    outermost_first : bool
        Whether libcu++ checks the outermost entry first.
    group : {"tensor", "rule", "advice", "copy", "call", "operand", "file"}
        The group to which the rule belongs in the list of rules.
    found, must : str or callable (request[, entry]) -> str
        Two halves of a message. `found` states what was found. `must` is the limit, printed after
        "it must".
    fix : str or callable (request[, entry]) -> str
        The fix to print if the row has no `candidates`, or if no candidate is accepted.
    limit : str
        The whole sentence of the limit, if it does not start with "it must".
    candidates : callable (request[, entry]) -> iterable, or None
        The candidate fixes, the best first; `checks.candidates` defines a candidate.
    changes : tuple of str, or None
        The arguments that the candidates change, the best first; None if only `on` changes.
    asks : str
        The limit in general terms, which the list of rules shows if `must` depends on the request.
    make_only : bool
        Whether the rule applies only to `make_*` calls, not to `driver_encode_*` calls.
    libcudacxx : str
        The function of make_tma_descriptor.h that checks the rule for tiled maps, or "".
    documented : bool
        Whether the driver API documentation of the kind of map states the rule.
    source : str
        A further source of the rule.
    sets : frozenset of str
        The sets of rules to which the rule belongs.
    kinds : tuple of str
        The kinds of map to which the rule applies.
    reads : tuple of str
        Arguments that the rule depends on, besides the arguments that its predicate reads. The rule
        is not reported if one of these arguments could not be read.
    prerequisites : tuple of str
        Ids of rules that must hold first. If one of them is broken, this rule is not reported.
    prerequisites_at_entry : tuple of str
        Ids of rules that must hold first at the same entry. If one of them is broken at this entry,
        this rule is not reported. A rule without `each` counts as a rule about the innermost entry.
    unsupported : bool
        For a rule about a call: whether a broken rule means that the target lacks a feature, so
        that the error is a `TmaTargetError`. For a rule about a copy: whether the hardware fails if
        the rule is broken.
    differs : str
        How header, documentation and driver disagree, and which of them this package follows.
    if_allowed : str
        Words after "the driver": what the driver does if `allow=` switches off the rule.
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
        """The arguments that the candidates change. The explorer tries other values for them."""
        if self.changes is not None:
            return self.changes
        is_argument = isinstance(self.on, str) and not self.on.startswith("tensor.")
        return (str(self.on),) if self.candidates and is_argument else ()

    def sources(self, kind: MapKind) -> str:
        """Return the text that names the sources of the rule for a kind of map."""
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
        """Return a violation of this rule that other code than checks/judge.py has found.

        If passed, `limit`, `fix` and `source` replace the texts of the row.
        """
        limit = limit or self.limit or f"it must {self.must}"
        source = source or self.sources(self.kinds[0])
        return Violation(self.id, argument, found, limit, fix or str(self.fix), source)

    def error(self, argument: str, found: str, **words: str) -> TmaPreconditionError:
        """Return the error whose violation is the result of `violation` for these arguments."""
        return TmaPreconditionError(self.violation(argument, found, **words))

    def refuse(
        self, argument: str, found: str, cause: BaseException | None = None, fix: str | None = None
    ) -> NoReturn:
        """Raise the error that `error` returns; `cause` becomes its `__cause__`."""
        raise self.error(argument, found, fix=fix or "") from cause


def rules_of(group: str, table: str, on: str = "") -> tuple[Rule, ...]:
    """Return the rules of a text table. The first line of the table names fields of `Rule`."""
    fields, *cells = rows(table)
    named: list[dict[str, Any]] = [
        {"on": on, **dict(zip(fields, row, strict=True))} for row in cells
    ]
    return tuple(Rule(group=group, **row) for row in named)


#: The rule that is broken by every argument that cannot be read.
ARGUMENT = Rule(
    id=ARGUMENT_ID,
    group="call",
    asks="have a type and form that the argument takes",
    fix="",
    source=ARGUMENT_SOURCE,
)
