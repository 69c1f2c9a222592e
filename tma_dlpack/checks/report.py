"""The `Report` of a check, and the errors of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tma_dlpack.checks import RULES
from tma_dlpack.checks.advice import advise
from tma_dlpack.checks.parse import read_driver_call
from tma_dlpack.checks.repairs import changes_of, faults_of, is_refused, violations_of
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.words import UNNAMED, Names, in_words_of, names_in_caller
from tma_dlpack.public import Drawn, opaque, public
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.coerce import counted, reusable
from tma_dlpack.tables.errors import (
    Advice,
    Finding,
    TmaPreconditionError,
    TmaTargetError,
    TmaUnsupportedError,
    Violation,
    sealed,
)
from tma_dlpack.tables.targets import Target

_VALUES = {type(None), tuple, str, int, bool}  # which can be read again
_UNSUPPORTED = frozenset(rule.id for rule in RULES if rule.unsupported)

#: The mask of the rows of `_UNSUPPORTED`.
UNSUPPORTED_ROWS = sum(1 << number for number, rule in enumerate(RULES) if rule.unsupported)

MAX_REPR = 200  # characters
Arguments = Mapping[str, Any]
RequestOf = Callable[[Arguments], Request]


@public
@sealed
@dataclass(frozen=True, slots=True, repr=False)
class Report(Drawn):
    """The result of a check: whether the call is accepted, and if not, why and how to fix it.

    Returned by the `check_*` functions. True if the call is accepted, as `ok`; ``print(report)``
    shows every violation with its fix.

    Attributes
    ----------
    violations : tuple of Violation
        Every rule that the call breaks, in libcu++'s order; empty if the call is accepted.
    advice : tuple of Advice
        Remarks on an accepted call, such as bank conflicts; empty if it is refused.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 64), dtype=np.float32)
    >>> report = tma.check_tma_descriptor(x, box_sizes=(16, 3))
    >>> report.ok, [v.rule for v in report.violations]
    (False, ['BOX_INNER_16B'])
    >>> fixed = report.fixed()  # None where the tensor itself must change
    >>> fixed["box_sizes"]
    (16, 4)
    """

    violations: tuple[Violation, ...]
    advice: tuple[Advice, ...] = ()
    _given: Arguments = field(default_factory=dict, repr=False, compare=False)
    _request_of: RequestOf | None = field(default=None, repr=False, compare=False)
    _find_violations: Callable[[], tuple[Violation, ...]] | None = field(
        default=None, repr=False, compare=False
    )

    @classmethod
    def _judged(
        cls,
        given: Arguments,
        request_of: RequestOf,
        find_violations: Callable[[], tuple[Violation, ...]] | None = None,
    ) -> Report:
        """Make the report on a call that was judged.

        The violations and the advice are computed on first use.
        """
        report = object.__new__(cls)
        keep = object.__setattr__
        keep(report, "violations" if find_violations is None else "advice", ())
        keep(report, "_given", given)
        keep(report, "_request_of", request_of)
        keep(report, "_find_violations", find_violations)
        return report

    def __getattr__(self, name: str) -> Any:
        """Work out the advice of an accepted call, or the violations of a refused one."""
        found: tuple[Finding, ...]
        if name == "advice" and self._request_of is not None:
            found = advise(self._request_of(self._given))
        elif name == "violations" and self._find_violations is not None:
            found = self._find_violations()
        else:
            raise AttributeError(f"a Report has no attribute {name!r}")
        object.__setattr__(self, name, found)
        return found

    @property
    def ok(self) -> bool:
        """Whether the call is accepted."""
        return self._find_violations is None and not self.violations

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_refused(self) -> None:
        """Raise `TmaPreconditionError` with all violations, if there are any.

        It is a `TmaTargetError`, which is also a `TmaUnsupportedError` (a RuntimeError), if the
        first violation is that the target lacks a feature.
        """
        if self.violations:
            raise refusal_of(self.violations)

    @opaque
    def fixed(self) -> dict[str, Any] | None:
        """Return the keyword arguments after the tensor, corrected so that the call is accepted.

        Only refused arguments change, as little as their rules allow, and none is given another
        meaning: a word that may mean two things is left to you. If no arguments satisfy
        libcu++'s rules (for example a box larger than the tensor, without a smaller valid one) but
        some satisfy the driver's, `allow` names the rules to switch off, or `rules` is
        ``"driver"``.

        Returns
        -------
        dict or None
            Arguments that have been checked: ``make_tma_descriptor(x, **fixed)`` is accepted. None
            if the tensor itself must change, or an argument could not be understood;
            `accepted_arguments` raises then.

        Examples
        --------
        >>> import numpy as np, tma_dlpack as tma
        >>> x = np.zeros((64, 64), np.float32)
        >>> if fixed := tma.check_tma_descriptor(x, box_sizes=(16, 3)).fixed():
        ...     print(tma.make_tma_descriptor(x, **fixed).box_sizes)
        (16, 4)
        >>> print(tma.check_tma_descriptor(x, box_sizes=(16, 16), swizzle="bytes23").fixed())
        None
        """
        changes = self.changes()
        return None if changes is None else {**self._given, **changes}

    @opaque
    def accepted_arguments(self) -> dict[str, Any]:
        """Return the arguments that `fixed` gives; raise if the tensor itself must change.

        Returns
        -------
        dict
            Keyword arguments, for ``make_tma_descriptor(x, **report.accepted_arguments())``.

        Raises
        ------
        TmaPreconditionError
            If no arguments are accepted; its violations say what to change about the tensor.

        Examples
        --------
        >>> import numpy as np, tma_dlpack as tma
        >>> x = np.zeros((64, 64), np.float32)
        >>> report = tma.check_tma_descriptor(x, box_sizes=(16, 3))
        >>> tma.make_tma_descriptor(x, **report.accepted_arguments()).box_sizes
        (16, 4)
        """
        fixed = self.fixed()
        if fixed is None:
            self.raise_if_refused()
            raise TmaUnsupportedError("this report was not made by a check_* function")
        return fixed

    @opaque
    def changes(self) -> dict[str, Any] | None:
        """Return only the keyword arguments that `fixed` changes; None where `fixed` is None.

        >>> import numpy as np, tma_dlpack as tma
        >>> tma.check_tma_descriptor(np.zeros((64, 64), np.float32), box_sizes=(16, 3)).changes()
        {'box_sizes': (16, 4)}
        """
        if self._request_of is None:
            return None
        meant: dict[str, Any] = {}
        while (request := self._request_of({**self._given, **meant})).unreadable:
            if any(v.argument not in request.proposals for v in request.unreadable):
                return None  # the argument is not clear, or the tensor itself was refused
            meant |= request.proposals
        changes = changes_of(request, {**self._given, **meant}, self._request_of)
        return None if changes is None else meant | changes

    def __repr__(self) -> str:
        found: tuple[Finding, ...] = self.violations or self.advice
        head = "accepted" if self.ok else f"refused: {counted(len(found), 'violation')}"
        rules = ", ".join(dict.fromkeys(finding.rule for finding in found))
        text = f"<Report {head}{', advice' if self.ok and rules else ''}: {rules}>"
        text = text if rules else f"<Report {head}>"
        return text if len(text) <= MAX_REPR else f"{text[: MAX_REPR - 4]}...>"

    @opaque
    def __str__(self) -> str:
        violations, advice = self.violations, [f"advice: {a}" for a in self.advice]
        head = f"refused: {counted(len(violations), 'violation')}" if violations else "accepted"
        return "\n".join([head, *map(str, violations), *advice])


def check_request(request_of: RequestOf, given: Arguments, tensor: object) -> Report:
    """Check a call and keep what `Report.fixed` needs; `request_of` parses the arguments."""
    given = {
        name: value if type(value) in _VALUES else reusable(value) for name, value in given.items()
    }
    request = request_of(given)
    if not is_refused(request):
        return Report((), advise(request), given, request_of)
    find = partial(find_violations, request, names_in_caller(tensor))
    return Report._judged(given, request_of, find)


def error_of(request: Request, tensor: object = None) -> TmaPreconditionError | None:
    """Return the error of a request, or None if it is accepted.

    The message is made on first use.
    """
    if not is_refused(request):
        return None
    lacks = not request.unreadable and faults_of(request)[0].rule.unsupported
    error = TmaTargetError if lacks else TmaPreconditionError
    return error._deferred(partial(find_violations, request, names_in_caller(tensor)))


def refusal_of(violations: tuple[Violation, ...]) -> TmaPreconditionError:
    """Return the error of violations: a `TmaTargetError` if the target lacks a feature."""
    lacks = violations[0].rule in _UNSUPPORTED
    return (TmaTargetError if lacks else TmaPreconditionError)(violations)


def find_violations(request: Request, names: Names = UNNAMED) -> tuple[Violation, ...]:
    """Check a request against its set of rules.

    Returns every violation, in libcu++'s order: the first is the one that C++ would throw. Rules
    whose prerequisites failed are skipped, and so are violations that an earlier fix removes.
    Fixes call the tensor by its name in `names`.
    """
    unreadable = [replace(v, fix=in_words_of(v.fix, names)) for v in request.unreadable]
    return (*unreadable, *violations_of(request, names))


def check_driver_call(
    kind: MapKind, given: Arguments, target: Target, unread: frozenset[str]
) -> tuple[Request, tuple[Violation, ...]]:
    """Check a `driver_encode_*` call whose arguments and entries in `unread` are not known.

    Rules that need one of these are skipped. Returns the call's request, for `advise`, and the
    violations.
    """
    request = read_driver_call(kind, given, target)
    unreadable = [(v.argument.removeprefix("tensor_"), v) for v in request.unreadable]
    shown = tuple(v for name, v in unreadable if name not in unread)
    # An enum value without a member is a violation itself; rules that read it are skipped.
    wrong = frozenset(name for name, _ in unreadable)
    asked = request.with_fields(unread=unread | wrong, unreadable=())
    request = request.with_fields(unread=unread, unreadable=shown)
    return request, shown + find_violations(asked)
