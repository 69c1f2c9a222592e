"""The `Report` of a check, the search for arguments that are accepted, and the rules' engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from tma_dlpack.checks import ALLOWABLE, RULES, words
from tma_dlpack.checks.advice import advise
from tma_dlpack.checks.judge import READS, judge
from tma_dlpack.checks.request import Request, set_of_rules
from tma_dlpack.checks.rule import Change
from tma_dlpack.tables.coerce import counted, reusable
from tma_dlpack.tables.errors import (
    Advice,
    Finding,
    Rule,
    TmaPreconditionError,
    TmaTargetError,
    TmaUnsupportedError,
    Violation,
    sealed,
)
from tma_dlpack.tables.public import Drawn, opaque, public

MAX_REPAIRS = 40  # each changes at least one argument
_VALUES = {type(None), tuple, str, int, bool}  # which can be read again
_ROW = {rule.id: number for number, rule in enumerate(RULES)}
_UNSUPPORTED = frozenset(rule.id for rule in RULES if rule.unsupported)

#: The mask of the rows of `_UNSUPPORTED`.
UNSUPPORTED_ROWS = sum(1 << number for number, rule in enumerate(RULES) if rule.unsupported)

Arguments = Mapping[str, Any]
RequestOf = Callable[[Arguments], Request]


@public
@sealed
@dataclass(frozen=True, slots=True)
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
    def _accepted(cls, given: Arguments, request_of: RequestOf) -> Report:
        """Make the report on a call that C accepted; its advice is worked out when it is read."""
        report = object.__new__(cls)
        keep = object.__setattr__
        keep(report, "violations", ())
        keep(report, "_given", given)
        keep(report, "_request_of", request_of)
        keep(report, "_find_violations", None)
        return report

    @classmethod
    def _refused(
        cls,
        given: Arguments,
        request_of: RequestOf,
        find_violations: Callable[[], tuple[Violation, ...]],
    ) -> Report:
        """Make the report on a call that C refused; its violations are worked out when read."""
        report = object.__new__(cls)
        keep = object.__setattr__
        keep(report, "advice", ())
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
        """Give the arguments that `fixed` gives; raise if the tensor itself must change.

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
        request = self._request_of(self._given)
        if any(v.argument not in request.proposals for v in request.unreadable):
            return None  # what the argument means is not clear, or the tensor itself was refused
        for start in _starts(self._given):
            started = self._request_of({**self._given, **start}) if start else request
            changes = _repaired(self._given, start, started, self._request_of)
            if changes is not None:
                return _needed(self._given, changes, self._request_of)
        return None

    @opaque
    def __str__(self) -> str:
        findings: tuple[Finding, ...] = (*self.violations, *self.advice)
        head = "accepted" if self.ok else f"refused: {counted(len(self.violations), 'violation')}"
        return "\n".join(
            [head, *(f"advice: {f}" if isinstance(f, Advice) else str(f) for f in findings)]
        )


def check_request(request_of: RequestOf, given: Arguments, tensor: object) -> Report:
    """Check a call and keep what `Report.fixed` needs; `request_of` parses the arguments."""
    given = {
        name: value if type(value) in _VALUES else reusable(value) for name, value in given.items()
    }
    request = request_of(given)
    violations = words.in_words_of_caller(find_violations(request), tensor)
    return Report(violations, () if violations else advise(request), given, request_of)


def _starts(given: Arguments) -> Iterator[Change]:
    """Give the changes to start repairing from: none, rules switched off, the driver's rules."""
    yield {}
    if "allow" in given:
        for count in range(1, len(ALLOWABLE) + 1):
            for allowed in itertools.combinations(ALLOWABLE, count):
                yield {"allow": allowed}
    yield {"rules": "driver"}


def _repaired(
    given: Arguments, changes: Change, request: Request, request_of: RequestOf
) -> Change | None:
    """Repair one fault after the other until nothing is refused; None if that fails."""
    for _ in range(MAX_REPAIRS):
        faults = faults_of(request)
        if not faults and not request.unreadable:
            return changes
        for change in _changes(request, faults):
            changed = request_of({**given, **changes, **change})
            if changed != request:
                changes, request = {**changes, **change}, changed
                break
        else:
            return None
    return None


def _needed(given: Arguments, changes: Change, request_of: RequestOf) -> Change:
    """Drop every change that is not needed for the call to be accepted."""
    for name in changes:
        fewer = {other: value for other, value in changes.items() if other != name}
        request = request_of({**given, **fewer})
        if not request.unreadable and not faults_of(request):
            return _needed(given, fewer, request_of)
    return changes


def _changes(request: Request, faults: list[Fault]) -> Iterator[Change]:
    """Give changes that may repair a request, in the order in which its faults are reported."""
    for violation in request.unreadable:
        if violation.argument in request.proposals:
            yield {violation.argument: request.proposals[violation.argument]}
    for fault in faults:
        yield fault.changes()


# -- the engine ------------------------------------------------------------------------------------


def refusal_of(violations: tuple[Violation, ...]) -> TmaPreconditionError:
    """Return the error of violations: a `TmaTargetError` if the target lacks a feature."""
    lacks = violations[0].rule in _UNSUPPORTED
    return (TmaTargetError if lacks else TmaPreconditionError)(violations)


class Fault(NamedTuple):
    """A rule that does not hold of a request."""

    rule: Rule
    request: Request
    entry: tuple[int, ...]  # one of a rule with `each`, none of the others

    def changes(self) -> Change:
        """Return keyword arguments that would satisfy the rule; none if only another tensor can."""
        return {} if self.rule.repair is None else self.rule.repair(self.request, *self.entry)


def find_violations(request: Request) -> tuple[Violation, ...]:
    """Check a request against its set of rules.

    Returns every violation, in libcu++'s order: the first is the one that C++ would throw. Rules
    whose prerequisites failed are skipped.
    """
    faults = faults_of(request)
    if not faults:
        return request.unreadable
    lifted = "; or pass rules='driver': the driver itself accepts this"
    more = lifted if _driver_accepts(request, faults) else ""
    return request.unreadable + tuple(_violation(fault, more) for fault in faults)


def faults_of(request: Request) -> list[Fault]:
    """Return the rules that do not hold, in libcu++'s order."""
    if request.unreadable and (request.is_driver_call or request.view is None):
        return []
    rows = rows_of(request.kind, request.rules, request.is_driver_call)
    failed = judge(request.facts, rows & ~mask_of(request.allowed))
    return _reported(request, failed) if failed else []


def _reported(request: Request, failed: list[tuple[int, int]]) -> list[Fault]:
    """Order failures, without those of rules whose prerequisites failed or could not be read."""
    unreadable = {v.argument for v in request.unreadable}
    ids = {RULES[row].id for row, _ in failed}
    found: list[tuple[int, int, int, Fault]] = []
    for row, entry in failed:
        rule = RULES[row]
        if not ids.isdisjoint(rule.after):
            continue
        if any((_ROW[other], max(0, entry)) in failed for other in rule.after_here):
            continue
        if unreadable and any(words.argument(request, n) in unreadable for n in READS[row]):
            continue
        nth = -entry if rule.outermost_first else entry
        fault = Fault(rule, request, () if entry < 0 else (entry,))
        found.append((rule.step, nth, row, fault))
    return [fault for *_, fault in sorted(found)]  # no two are of one row and entry


@cache
def rows_of(kind: str, rules: str, is_driver_call: bool = False) -> int:
    """Return the mask of the rows that are asked of a call."""
    return sum(
        1 << number
        for number, rule in enumerate(RULES)
        if kind in rule.kinds and rules in rule.sets and not (rule.make_only and is_driver_call)
    )


@cache
def mask_of(ids: frozenset[str]) -> int:
    """Return the mask of rows by their ids."""
    return sum(1 << number for number, rule in enumerate(RULES) if rule.id in ids)


@cache
def ids_of(mask: int) -> frozenset[str]:
    """Return the ids of the rows of a mask."""
    return frozenset(rule.id for number, rule in enumerate(RULES) if mask >> number & 1)


def _driver_accepts(request: Request, faults: list[Fault]) -> bool:
    """Whether a refused call would be accepted with ``rules="driver"``."""
    if request.is_driver_call or request.unreadable:
        return False
    drivers_rules = set_of_rules(request.kind, "driver", request.target)
    if any(drivers_rules in fault.rule.sets for fault in faults):
        return False  # the driver has the same rule
    return not faults_of(request.under("driver"))


def _violation(fault: Fault, more_to_fix: str) -> Violation:
    rule, request = fault.rule, fault.request
    on = rule.on if isinstance(rule.on, str) else rule.on(request)
    found, limit, fix = rule.words(request, *fault.entry)
    if rule.id in ALLOWABLE and request.has_rule(rule.id):
        fix += f"; or pass allow=({rule.id!r},) to skip this rule of libcu++"
    source = rule.sources(request.kind)
    argument = words.argument(request, on)
    return Violation(rule.id, argument, found, limit, fix + more_to_fix, source)
