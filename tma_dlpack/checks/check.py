"""The engine: check a request against the rules, in libcu++'s order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

from tma_dlpack.checks import ALLOWABLE, RULES, words
from tma_dlpack.checks.advice import ADVICE
from tma_dlpack.checks.judge import READS, judge
from tma_dlpack.checks.repairs import Change
from tma_dlpack.checks.request import Request, describe, set_of_rules
from tma_dlpack.tables.errors import Advice, Rule, Violation

T = TypeVar("T")


class Fault(NamedTuple):
    """A rule that does not hold."""

    rule: Rule
    request: Request
    entry: int | None  # of a rule with `each`

    def ask(self, question: Callable[..., T]) -> T:
        """Call one of the rule's functions with the request, and the entry if there is one."""
        if self.entry is None:
            return question(self.request)
        return question(self.request, self.entry)

    def text(self, text: str | Callable[..., str]) -> str:
        """Give one of the rule's texts, which may be a function of the request."""
        return text if isinstance(text, str) else self.ask(text)

    def changes(self) -> Change:
        """Give keyword arguments that would satisfy the rule; none if only another tensor can."""
        return {} if self.rule.repair is None else self.ask(self.rule.repair)


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
    failed = judge(describe(request), rows & ~mask_of(request.allowed))
    return _reported(request, failed) if failed else []


def _reported(request: Request, failed: list[tuple[int, int]]) -> list[Fault]:
    """Order failures, without those of rules whose prerequisites failed or could not be read."""
    unreadable = {v.argument for v in request.unreadable}
    ids = {RULES[row].id for row, _ in failed}
    here = {(RULES[row].id, entry) for row, entry in failed}
    found: list[tuple[int, int, int, Fault]] = []
    for row, entry in failed:
        rule = RULES[row]
        if not ids.isdisjoint(rule.after):
            continue
        if any((other, max(0, entry)) in here for other in rule.after_here):
            continue
        if unreadable and any(words.argument(request, n) in unreadable for n in READS[row]):
            continue
        nth = -entry if rule.outermost_first else entry
        found.append((rule.step, nth, row, Fault(rule, request, None if entry < 0 else entry)))
    return [fault for *_, fault in sorted(found, key=lambda found: found[:3])]


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
    rule = fault.rule
    return Violation(
        rule=rule.id,
        argument=words.argument(fault.request, fault.text(rule.on)),
        found=fault.text(rule.found),
        limit=f"it must {fault.text(rule.must)}",
        fix=fault.text(rule.fix) + _allow(fault) + more_to_fix,
        source=rule.sources(fault.request.kind),
    )


def _allow(fault: Fault) -> str:
    """Give the `allow=` that skips a rule which only libcu++ has; "" for others."""
    rule, request = fault.rule, fault.request
    if rule.id not in ALLOWABLE or not request.has_rule(rule.id):
        return ""
    return f"; or pass allow=({rule.id!r},) to skip this rule of libcu++"


def advise(request: Request) -> tuple[Advice, ...]:
    """Give the advice on an accepted request."""
    return tuple(
        Advice(
            rule=row.id,
            argument=words.argument(request, row.on),
            found=row.found if isinstance(row.found, str) else row.found(request),
            limit=row.why,
            fix=row.fix if isinstance(row.fix, str) else row.fix(request),
            source=row.source,
        )
        for row in ADVICE
        if request.kind in row.kinds and row.applies(request)
    )
