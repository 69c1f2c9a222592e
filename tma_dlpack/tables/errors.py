"""Errors, and the `Violation` that they carry: what was found, the limit, a fix and the source.

`TmaError` is the base class. Its subclasses follow C++: this package raises a `ValueError` where
`cuda::make_tma_descriptor` throws `std::invalid_argument`, and a `RuntimeError` where it throws
`std::runtime_error`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, NoReturn, TypeVar

from tma_dlpack.tables.arguments import FUNCTIONS, KINDS, MapKind
from tma_dlpack.tables.coerce import integer_of, rows, shown

COLUMNS = 100  # of text
T = TypeVar("T")


def sealed(frozen: type[T]) -> type[T]:
    """Make a frozen dataclass raise FrozenInstanceError for every attribute.

    A frozen dataclass with slots does so for its fields only; other names give a TypeError.
    """

    def refuse(self: T, name: str, value: object = None) -> NoReturn:
        raise FrozenInstanceError(f"a {type(self).__name__} is immutable: {name} cannot be changed")

    frozen.__setattr__ = refuse  # type: ignore[method-assign, assignment]
    frozen.__delattr__ = refuse  # type: ignore[method-assign, assignment]
    return frozen


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check: a `Violation` or an `Advice`.

    Attributes
    ----------
    rule : str
        Stable id of the rule, such as ``"BOX_INNER_16B"``; ``"ARGUMENT"`` for an argument of the
        wrong type, ``"FILE_..."`` for a file that this package cannot read.
    argument : str
        The argument that the finding is about, such as ``"box_sizes"``.
    found : str
        What was found, as a sentence about the argument, with units.
    limit : str
        What is required instead; for an `Advice`, why it matters.
    fix : str
        What to change, in the terms of the call (row-major, elements).
    source : str
        Where the rule comes from: a document, a header line, or a measurement.
    """

    rule: str
    argument: str
    found: str
    limit: str
    fix: str
    source: str

    @property
    def is_unread(self) -> bool:
        """Whether an argument or a file could not be read, so that no rule could judge it."""
        return self.rule == "ARGUMENT" or self.rule.startswith("FILE_")

    def __str__(self) -> str:
        fix = f"fix: {self.fix}"  # on one line, to copy; only lists of choices are wrapped
        return "\n".join(
            (
                f"{self.found}; {self.limit}",
                wrapped(fix, "  ") if self.is_unread else f"  {fix}",
                f"  rule: {self.rule}",
            )
        )


def wrapped(line: str, indent: str = "") -> str:
    """Return a line as lines of at most 100 columns.

    Lines after the first are indented by two more.
    """
    return textwrap.fill(
        line,
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


@sealed
@dataclass(frozen=True, slots=True)
class Violation(Finding):
    """A rule that the call breaks: what was found, the limit, a fix and the source.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> violation = tma.check_tma_descriptor(x, box_sizes=(64, 6)).violations[0]
    >>> violation.rule, violation.argument
    ('BOX_INNER_16B', 'box_sizes')
    """


@sealed
@dataclass(frozen=True, slots=True)
class Advice(Finding):
    """A remark on a call that is accepted, such as a likely bank conflict.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> [advice.rule for advice in tma.check_tma_descriptor(x, box_sizes=(64, 64)).advice]
    ['BANK_CONFLICTS']
    """


class TmaError(Exception):
    """Base class of the errors that this package raises."""


class TmaUnsupportedError(TmaError, RuntimeError):
    """Error for what the target, driver, machine or build cannot do; the message names what can."""


class TmaDriverError(TmaError, RuntimeError):
    """Error that the CUDA driver returned; the message shows arguments under their driver names."""


class TmaPreconditionError(TmaError, ValueError):
    """Error of a call that breaks one or more rules; `violations` has all, in libcu++'s order.

    The message shows every violation. The first one is what `cuda::make_tma_descriptor` with
    element strides would throw, unless an argument cannot be read: such arguments come first.
    libcu++ differs in two ways. Its overload without element strides checks the rank before the
    device, and since DLPack 1.2 it refuses strides that are NULL, which mean row-major here.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> try:
    ...     tma.make_tma_descriptor(np.zeros((64, 64), np.float16), box_sizes=(300, 6))
    ... except tma.TmaPreconditionError as error:
    ...     [violation.rule for violation in error.violations]
    ['BOX_RANGE', 'BOX_INNER_16B']
    """

    violations: tuple[Violation, ...]

    def __init__(self, violations: Violation | Sequence[Violation]) -> None:
        if isinstance(violations, Violation):
            violations = (violations,)
        self.violations = tuple(violations)

    @classmethod
    def _deferred(
        cls, find_violations: Callable[[], tuple[Violation, ...]]
    ) -> TmaPreconditionError:
        """Make the error of a call whose violations are computed on first use."""
        error = cls.__new__(cls)
        error.__dict__["_find_violations"] = find_violations
        return error

    def _reworded(self, change: Callable[[Violation], Violation]) -> TmaPreconditionError:
        """Return the same error with changed violations; they are computed on first use."""
        find = self.__dict__.get("_find_violations")
        if find is None:
            return type(self)(tuple(map(change, self.violations)))
        return self._deferred(lambda: tuple(map(change, find())))

    def __getattr__(self, name: str) -> Any:
        """Work out the violations."""
        known = self.__dict__  # which several threads may read at once
        find_violations = known.get("_find_violations")
        if name != "violations" or (find_violations is None and name not in known):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if find_violations is not None:
            known["violations"] = find_violations()
            known.pop("_find_violations", None)
        return known["violations"]

    @property
    def args(self) -> tuple[Any, ...]:
        """The message, as every exception has it."""
        known: tuple[Any, ...] | None = self.__dict__.get("_args")
        return ("\n".join(map(str, self.violations)),) if known is None else known

    @args.setter
    def args(self, changed: tuple[Any, ...]) -> None:
        self.__dict__["_args"] = tuple(changed)

    def __str__(self) -> str:
        return str(self.args[0] if len(self.args) == 1 else self.args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.args))})"

    def __reduce__(self) -> tuple[type, tuple[tuple[Violation, ...]]]:
        return type(self), (self.violations,)


def argument_violation(argument: str, found: str, must: str, fix: str) -> Violation:
    """Make the violation of an argument that is of the wrong type."""
    return ARGUMENT.violation(argument, found, limit=f"it must {must}", fix=fix)


def argument_error(argument: str, found: str, must: str, fix: str) -> TmaPreconditionError:
    """Make the error of an argument that is of the wrong type."""
    return TmaPreconditionError(argument_violation(argument, found, must, fix))


def bad_value(argument: str, value: object, must: str, fix: str) -> TmaPreconditionError:
    """Make the error of an argument whose value does not fit."""
    return argument_error(argument, f"{argument} is {shown(value)}", must, fix)


def at_least(argument: str, value: object, least: int = 1, usual: int | None = None) -> int:
    """Return an argument as an int of at least `least`, or refuse it."""
    number = integer_of(value)
    if number is None or number < least:
        fix = f"pass {argument}={least if usual is None else usual}"
        raise bad_value(argument, value, f"be an integer of at least {least}", fix)
    return number


class TmaTargetError(TmaPreconditionError, TmaUnsupportedError):
    """Error of a call that breaks a rule because the target lacks the feature."""


# -- rules -----------------------------------------------------------------------------------------

CCCL_COMMIT = "571f2fc3bc"  # NVIDIA/cccl, 2026-08-22
LIBCUDACXX = f"libcu++ make_tma_descriptor.h at {CCCL_COMMIT}"
DOCUMENTS = {kind: f"CUDA driver API, {function}" for kind, function in FUNCTIONS.items()}
EVERY_SET = frozenset({"libcu++", "driver", "documented", "measured"})

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
        The predicate. Of rows of `checks`, an expression over the fields of `rule.STRUCT` and the
        limits, in the subset of Python that `.packaging/generate.py` prints as C. It multiplies no
        unbounded fields and divides by no field that may be 0. Of an advice and of an operand, a
        function.
    each : str
        A key of `rule.LOOPS` for a predicate of every entry of an argument; "" for one of the call.
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

    def words(self, request: Any, *entry: int) -> tuple[str, str, str]:
        """Return what was found, the limit and the fix; `entry` is given if the rule has `each`."""
        return (*self.found_and_limit(request, *entry), self.usual_fix(request, *entry))

    def found_and_limit(self, request: Any, *entry: int) -> tuple[str, str]:
        """Return what was found, and the limit."""
        found, must = self.found, self.must
        return (
            found if isinstance(found, str) else found(request, *entry),
            self.limit or f"it must {must if isinstance(must, str) else must(request, *entry)}",
        )

    def usual_fix(self, request: Any, *entry: int) -> str:
        """Return the fix if none of the `candidates` is accepted."""
        return self.fix if isinstance(self.fix, str) else self.fix(request, *entry)

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
    id="ARGUMENT",
    group="call",
    asks="have a type and form that the argument takes",
    fix="",
    source="tma_dlpack: the type of the argument",
)
