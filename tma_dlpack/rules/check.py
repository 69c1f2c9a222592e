"""The small engine that holds a case against the rules, and the Report it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack.rules import RULES, Rule
from tma_dlpack.rules.advice import ADVICE
from tma_dlpack.rules.request import Case
from tma_dlpack.types.coerce import reusable
from tma_dlpack.types.errors import (
    Advice,
    Finding,
    TmaPreconditionError,
    TmaTargetError,
    Violation,
    sealed,
)
from tma_dlpack.types.public import Drawn, public

__all__ = ["Report", "advise", "check_case", "find_violations"]

MAX_REPAIRS = 40  # each changes at least one argument

Arguments = Mapping[str, Any]
Place = tuple[Rule, int]

_BY_ID = {rule.id: rule for rule in RULES}
_ROWS: dict[tuple[str, str], tuple[Rule, ...]] = {
    (kind, rules): tuple(r for r in RULES if kind in r.kinds and rules in r.sets)
    for kind in ("tiled", "im2col", "im2col_wide")
    for rules in ("libcu++", "driver", "documented", "measured")
}
#: The three questions of each row, which is all that `_all_hold` asks.
_QUESTIONS = {
    which: tuple((rule.applies, rule.places, rule.holds) for rule in rows)
    for which, rows in _ROWS.items()
}
_ONCE = (0,)  # the one place of a row without places


def find_violations(case: Case) -> tuple[Violation, ...]:
    """Hold a case against its set of rules.

    Returns every violation, in libcu++'s order: the first is the one that C++ would throw. A row
    whose question makes no sense after an earlier fault is not asked.
    """
    broken = _broken(case)
    if not broken:
        return case.unread
    lifted = "; or pass rules='driver': the driver itself accepts this"
    suffix = lifted if _driver_accepts(case) else ""
    return case.unread + tuple(_violation(rule, case, place, suffix) for rule, place in broken)


def _broken(case: Case) -> list[Place]:
    """Give the rows that do not hold, and where, in libcu++'s order."""
    if not case.unread and _all_hold(case):
        return []
    if case.unread and (case.mirror or case.view is None):
        return []
    unmet = {v.argument for v in case.unread}
    found: list[tuple[int, int, int, Rule, int]] = []
    for number, rule in enumerate(_ROWS[case.kind, case.rules]):
        if rule.applies is not None and not rule.applies(case):
            continue
        if unmet and any(case.argument(need) in unmet for need in rule.needs):
            unmet.add(rule.id)  # never asked, so whoever needs its answer is not asked either
            continue
        for nth, place in enumerate(_ONCE if rule.places is None else rule.places(case)):
            if unmet and _follows(rule, place, unmet):
                continue
            if not rule.holds(case, place):
                unmet |= {rule.id, f"{rule.id}[{place}]"}
                found.append((rule.step, nth, number, rule, place))
    found.sort(key=lambda finding: finding[:3])
    return [(rule, place) for *_, rule, place in found]


def _all_hold(case: Case) -> bool:
    """Say whether every row holds, as it mostly does: then no row needs to know of another."""
    for applies, places, holds in _QUESTIONS[case.kind, case.rules]:
        if applies is None or applies(case):
            for place in _ONCE if places is None else places(case):
                if not holds(case, place):
                    return False
    return True


def _follows(rule: Rule, place: int, unmet: set[str]) -> bool:
    """Say whether another row failed at this very place (needs written as ``ROW[i]``)."""
    return any(need.replace("[i]", f"[{place}]") in unmet for need in rule.needs_here)


def _driver_accepts(case: Case) -> bool:
    """Say whether a call that is refused would pass with ``rules="driver"``."""
    if case.mirror or case.unread:
        return False
    lifted = case.under("driver")
    return lifted.rules != case.rules and not _broken(lifted)


def _violation(rule: Rule, case: Case, place: int, suffix: str) -> Violation:
    return Violation(
        rule=rule.id,
        argument=case.argument(rule.on),
        found=rule.found(case, place),
        limit=rule.limit(case, place),
        fix=rule.fix(case, place) + suffix,
        source=f"{rule.source} ({rule.differs})" if rule.differs else rule.source,
    )


def advise(case: Case) -> tuple[Advice, ...]:
    """Give what is worth knowing about a case that is accepted."""
    return tuple(
        Advice(
            rule=row.id,
            argument=case.argument(row.on),
            found=row.found(case),
            limit=row.why,
            fix=row.fix(case),
            source=row.source,
        )
        for row in ADVICE
        if case.kind in row.kinds and row.applies(case)
    )


@public
@sealed
@dataclass(frozen=True, slots=True)
class Report(Drawn):
    """What a check found.

    Attributes
    ----------
    violations : tuple of Violation
        Every precondition that does not hold, in libcu++'s order; empty where the call is accepted.
    advice : tuple of Advice
        What is worth knowing about an accepted call.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 64), dtype=np.float32)
    >>> report = tma.check_tma_descriptor(x, box_sizes=(16, 3))
    >>> report.ok, [v.rule for v in report.violations]
    (False, ['BOX_INNER_16B'])
    >>> report.fixed()["box_sizes"]
    (16, 4)
    """

    violations: tuple[Violation, ...]
    advice: tuple[Advice, ...] = ()
    _given: Arguments = field(default_factory=dict, repr=False, compare=False)
    _case_of: Callable[[Arguments], Case] | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the call is accepted."""
        return not self.violations

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_refused(self) -> None:
        """Raise `TmaPreconditionError` with all violations, if there are any.

        Where the target lacks what is asked, it is a `TmaTargetError`, which is a
        `TmaUnsupportedError` (a RuntimeError) too.
        """
        if self.violations:
            first = _BY_ID.get(self.violations[0].rule)
            lacks = first is not None and first.unsupported
            raise (TmaTargetError if lacks else TmaPreconditionError)(self.violations)

    def fixed(self) -> dict[str, Any] | None:
        """Give the keyword arguments after the tensor, corrected so that the call is accepted.

        Each refused argument is changed as little as its rule allows; arguments that are fine stay
        as they were given, and none is changed whose given value would do beside the others. Where
        libcu++'s rules leave nothing to choose (a box that the shape cannot hold) but the driver's
        do, `rules` becomes ``"driver"``.

        Returns
        -------
        dict or None
            None where the tensor itself must change. What is returned has been checked.
        """
        changes = self.changes()
        return None if changes is None else {**self._given, **changes}

    def changes(self) -> dict[str, Any] | None:
        """Give the keyword arguments that `fixed` changes, and only these.

        >>> import numpy as np, tma_dlpack as tma
        >>> tma.check_tma_descriptor(np.zeros((64, 64), np.float32), box_sizes=(16, 3)).changes()
        {'box_sizes': (16, 4)}
        """
        if self._case_of is None:
            return None
        changes = _repaired(self._given, {}, self._case_of)
        if changes is None:
            changes = _repaired(self._given, {"rules": "driver"}, self._case_of)
        return None if changes is None else _needed(self._given, changes, self._case_of)

    def __str__(self) -> str:
        findings: tuple[Finding, ...] = (*self.violations, *self.advice)
        head = (
            "accepted"
            if self.ok
            else f"refused: {len(self.violations)} violation" + "s" * (len(self.violations) > 1)
        )
        return "\n".join(
            [head, *(("advice: " if isinstance(f, Advice) else "") + str(f) for f in findings)]
        )


def _repaired(
    given: Arguments, changes: dict[str, Any], case_of: Callable[[Arguments], Case]
) -> dict[str, Any] | None:
    """Repair one thing after the other until nothing is refused; None where that leads nowhere."""
    case = case_of({**given, **changes})
    for _ in range(MAX_REPAIRS):
        broken = _broken(case)
        if not broken and not case.unread:
            return changes
        for change in _changes(case, broken):
            changed_case = case_of({**given, **changes, **change})
            if changed_case != case:
                changes, case = {**changes, **change}, changed_case
                break
        else:
            return None
    return None


def _needed(
    given: Arguments, changes: dict[str, Any], case_of: Callable[[Arguments], Case]
) -> dict[str, Any]:
    """Take back every change without which the call is accepted all the same."""
    for name in changes:
        fewer = {other: value for other, value in changes.items() if other != name}
        case = case_of({**given, **fewer})
        if not case.unread and not _broken(case):
            return _needed(given, fewer, case_of)
    return changes


def _changes(case: Case, broken: list[Place]) -> Iterator[dict[str, Any]]:
    """Give what might mend a case, in the order in which its faults are reported."""
    for violation in case.unread:
        if violation.argument in case.instead:
            yield {violation.argument: case.instead[violation.argument]}
    for rule, place in broken:
        if rule.repair is not None:
            yield rule.repair(case, place)


def check_case(case_of: Callable[[Arguments], Case], given: Arguments) -> Report:
    """Check a request and keep what `fixed` needs."""
    given = {name: reusable(value) for name, value in given.items()}
    case = case_of(given)
    violations = find_violations(case)
    return Report(violations, () if violations else advise(case), given, case_of)
