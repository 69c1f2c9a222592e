"""The search of fixes: list the broken rules in libcu++'s order, and run the judge on each fix.

A fault has the candidate fixes of its row (`candidates.py`). The engine judges the request with
each candidate applied. It proposes a candidate if that request is accepted, or breaks only rules
that are reported already. If a candidate needs a second step, the same sentence names that step.
`Report.fixed` is the first fix that changes only arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from tma_dlpack.checks import RULES, words
from tma_dlpack.checks.candidates import Candidate, Candidates
from tma_dlpack.checks.judge import READS, judge
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.struct import Change, OtherTensor, reads
from tma_dlpack.tables.rule import Rule

MAX_STEPS = 4  # fixes that one sentence names one after the other
MAX_REPAIRS = 40  # fixes that `Report.fixed` applies to one call
_ROW = {rule.id: number for number, rule in enumerate(RULES)}

#: The arguments that decide how large the tile is.
TILE_ARGUMENTS = frozenset({"box_sizes", "channels_per_pixel", "pixels_per_column", "data_type"})

# Per rule, masks of the rules that must hold before it is reported.
_PREREQUISITES = tuple(sum(1 << _ROW[other] for other in rule.prerequisites) for rule in RULES)
_PREREQUISITES_AT_ENTRY = tuple(
    sum(1 << _ROW[other] for other in rule.prerequisites_at_entry) for rule in RULES
)

Key = tuple[str, tuple[int, ...]]


# -- broken rules ----------------------------------------------------------------------------------


class Fault(NamedTuple):
    """A rule that a request breaks. Faults sort in the order in which libcu++ checks the rules."""

    place: tuple[int, int, int]  # step, entry in libcu++'s order, row
    key: Key  # the rule's id, and the entry of a rule with `each`
    rule: Rule
    argument: str  # the argument that the rule is about, as rows name it

    def alternatives(self, request: Request) -> Iterable[Candidates]:
        """Return the candidate fixes of the row, the best alternative first."""
        return () if self.rule.candidates is None else self.rule.candidates(request, *self.key[1])


@cache
def _fault(row: int, entry: int) -> Fault:
    """Return the fault of a row at an entry, or at -1; without the argument if `on` is callable."""
    rule = RULES[row]
    nth = -entry if rule.outermost_first else entry
    key = (rule.id, () if entry < 0 else (entry,))
    return Fault((rule.step, nth, row), key, rule, rule.on if isinstance(rule.on, str) else "")


def faults_of(request: Request) -> list[Fault]:
    """Return the rules that do not hold, in libcu++'s order."""
    # C has judged the call already.
    if request.call is not None:
        return _reported(request, request.call, request.call.failed, request.call.mask)
    # Without a tensor, or with unreadable driver arguments, there is nothing that rules can read.
    if request.unreadable and (request.is_driver_call or request.view is None):
        return []
    rows = rows_of(request.kind, request.rules, request.is_driver_call)
    if request.unread:
        rows &= ~_unread_rows(request.unread)
    facts = request.facts
    failed = judge(facts, rows & ~request.options.allowed)
    return _reported(request, facts, failed, sum({1 << row for row, _ in failed}))


def is_refused(request: Request) -> bool:
    """Whether a request is unreadable, or breaks rules."""
    return bool(request.unreadable or faults_of(request))


def outcome_of(request: Request, candidate: Candidate) -> tuple[Any, list[Fault]]:
    """Return the struct of the request with a candidate applied, and the rules that it breaks.

    C judges it if possible.
    """
    if request.call is not None:
        call = request.call.changed(candidate.change, candidate.view)
        if call is not None:
            mask = call.mask
            return call, _reported(request, call, call.failed, mask) if mask else []
    other = request.changed_in_python(candidate.change, candidate.view)
    return other.facts, faults_of(other)


def _reported(
    request: Request, facts: Any, failed: list[tuple[int, int]], mask: int
) -> list[Fault]:
    """Order failures, without those of rules whose prerequisites failed or could not be read.

    `facts` is the struct, which failed in the rows of `mask`; `request` names the unread arguments.
    """
    found = []
    for row, entry in failed:
        if mask & _PREREQUISITES[row] or (
            mask & _PREREQUISITES_AT_ENTRY[row] and _is_late(row, entry, failed)
        ):
            continue
        fault = _fault(row, entry)
        if not fault.argument:
            fault = fault._replace(argument=fault.rule.on(facts))  # type: ignore[operator]
        found.append(fault)
    if request.unreadable or request.unread:
        found = [fault for fault in found if not _reads_unread(request, fault)]
    found.sort()  # by `place`, which is unique
    return found


def _is_late(row: int, entry: int, failed: list[tuple[int, int]]) -> bool:
    """Whether a prerequisite of the rule failed at the same entry."""
    return any(
        (_ROW[other], max(0, entry)) in failed for other in RULES[row].prerequisites_at_entry
    )


def _reads_unread(request: Request, fault: Fault) -> bool:
    """Whether a rule reads an argument that is unreadable or unknown."""
    unreadable = {v.argument for v in request.unreadable}
    names = READS[fault.place[-1]]
    return any(words.argument(request, name) in unreadable for name in names) or (
        reads(fault.rule, request.unread, *fault.key[1])
    )


@cache
def rows_of(kind: str, rules: str, is_driver_call: bool = False) -> int:
    """Return the mask of the rules that apply to a call."""
    return sum(
        1 << number
        for number, rule in enumerate(RULES)
        if kind in rule.kinds and rules in rule.sets and not (rule.make_only and is_driver_call)
    )


@lru_cache(maxsize=256)
def _unread_rows(unread: frozenset[str]) -> int:
    return sum(1 << number for number, rule in enumerate(RULES) if reads(rule, unread))


# -- fixes of a fault -----------------------------------------------------------------------------


class Answer(NamedTuple):
    """The result of one candidate fix, or of several applied together."""

    candidate: Candidate
    start: Request
    facts: Any  # the struct of the changed request
    left: list[Fault]  # rules still broken
    is_enough: bool  # whether `left` has only known faults
    is_alone: bool = True  # whether it is a single step

    @property
    def request(self) -> Request:
        """The changed request."""
        return self.start.changed(self.candidate.change, self.candidate.view)


def answers(request: Request, fault: Fault, known: Set[Key]) -> list[Answer]:
    """Return the fixes of a fault that leave only the `known` faults.

    A fix that leaves more faults than the first one is dropped. If no fix is enough alone, the
    first one is extended with fixes of the remaining faults.
    """
    steps = list(_steps(request, fault, known))
    found = [answer for answer in steps if answer.is_enough]
    if found:
        # Alternatives must not leave more rules broken than the best fix.
        least = {f.rule.id for f in found[0].left}
        return [a for a in found if not a.left or {f.rule.id for f in a.left} <= least]
    return [_continued(answer, set(known) - {fault.key}) for answer in steps[:1]]


def _steps(request: Request, fault: Fault, known: Set[Key]) -> Iterator[Answer]:
    """Yield one fix per alternative, even if the fix breaks other rules."""
    for tries in fault.alternatives(request):
        if request.keeps_tensor:
            tries = (candidate for candidate in tries if not candidate.is_other_tensor)
        answer = _first(request, fault, tries, known)
        if answer is not None:
            yield answer


def _first(request: Request, fault: Fault, tries: Candidates, known: Set[Key]) -> Answer | None:
    """Return the best candidate, in three classes.

    First: one after which nothing about the same entry is broken. Second: one that breaks no new
    rule. Third: any candidate that fixes the fault.
    """
    enough = some = None
    for candidate in tries:
        facts, left = outcome_of(request, candidate)
        if not left:
            return Answer(candidate, request, facts, left, True)
        broken, own, others = {f.key for f in left}, fault.key, known
        if candidate.is_other_tensor:
            # The entries of another tensor need not correspond: compare rules only.
            broken, own, others = _rules_of(broken), (own[0], ()), _rules_of(known)
        if own in broken:
            continue
        answer = Answer(candidate, request, facts, left, is_enough=broken <= others)
        if not answer.is_enough:
            some = some or answer
        elif any(is_same_entry(f, fault) for f in left) or (
            candidate.view and any(map(_is_of_tensor, left))
        ):
            enough = enough or answer
        else:
            return answer
    return enough or some


def _is_of_tensor(fault: Fault) -> bool:
    """Whether a fault is about the tensor; a candidate with another tensor may avoid it."""
    return fault.argument.startswith("tensor.")


def _rules_of(keys: Set[Key]) -> set[Key]:
    """Return the keys without their entries."""
    return {(rule_id, ()) for rule_id, _ in keys}


def is_same_entry(one: Fault, other: Fault) -> bool:
    """Whether two faults are about one entry of one argument."""
    return one.argument == other.argument and (one.key[1] or (0,)) == (other.key[1] or (0,))


def _continued(answer: Answer, known: Set[Key]) -> Answer:
    """Fix the rules that a fix newly breaks; after `MAX_STEPS`, name them instead."""
    first = answer
    taken, change, view = [first.candidate], dict(first.candidate.change), first.candidate.view
    for _ in range(MAX_STEPS):
        if answer.is_enough:
            wording = partial(_in_one_sentence, taken)
            candidate = Candidate(wording, change, view, first.candidate.is_guess)
            return answer._replace(candidate=candidate, start=first.start, is_alone=False)
        # Fix the first newly broken rule, with a certain fix, best one that breaks nothing more.
        new = next(f for f in answer.left if f.key not in known)
        steps = [a for a in _steps(answer.request, new, known) if not a.candidate.is_guess]
        steps.sort(key=lambda a: not a.is_enough)
        if not steps:
            break
        answer = steps[0]
        step = answer.candidate
        taken.append(step._replace(wording=partial(_text_of_step, step)))
        change |= step.change
        view = step.view or view
    rules = dict.fromkeys(f.rule.id for f in first.left if f.key not in known)
    named = first.candidate.reworded(
        lambda text: f"{text}, which then breaks {' and '.join(rules)}"
    )
    return first._replace(candidate=named._replace(is_guess=True))


def _text_of_step(step: Candidate) -> str:
    """Return the text of a later step; it must name every argument that the step changes."""
    names = [name for name in step.change if f"{name}=" not in step.text]
    if not names or step.is_other_tensor:
        return step.text
    return f"pass {' and '.join(f'{name}={step.change[name]}' for name in names)}"


def _in_one_sentence(steps: list[Candidate]) -> str:
    """Return the texts of steps, except steps whose arguments are all changed again later."""
    texts: list[str] = []
    later: set[str] = set()
    for step in reversed(steps):
        if step.is_other_tensor or not step.change.keys() <= later:
            texts.append(step.text)
        later |= step.change.keys()
    return ", and ".join(reversed(texts))


# Arguments that change together: a box counts elements of the data type.
_UNITS = {"data_type", "box_sizes", "channels_per_pixel"}
DRIVERS_RULES: Change = {"rules": "driver"}


def changes_of(
    request: Request, given: Change, request_of: Callable[[Change], Request]
) -> Change | None:
    """Return arguments that are accepted instead; None if the tensor itself must change.

    If no arguments satisfy libcu++'s or the documented rules, the driver's own rules are tried.
    If the dimensions must be in another order, `shape=` and `strides=` describe that order.
    """
    change = _accepted_change(request)
    if change is None:
        return _permuted_change(request, given, request_of)
    if not given.keys() >= change.keys() and is_refused(request_of({**given, **change})):
        # The call has no such argument: for a convolution the change would be another convolution.
        return None
    return _needed(change, given, request_of)


def _accepted_change(request: Request) -> Change | None:
    """Return arguments that are accepted, under the rules of the call or else the driver's."""
    change, stuck = _search(request)
    if change is None and _may_be_lifted(request, stuck):
        by_driver, _ = _search(request.changed(DRIVERS_RULES))
        change = None if by_driver is None else DRIVERS_RULES | by_driver
    return change


def _permuted_change(
    request: Request, given: Change, request_of: Callable[[Change], Request]
) -> Change | None:
    """Return the tensor's dimensions in another order, as arguments, with the box in that order.

    Not where anything else of the box must change, which may have been meant for the order given.
    """
    if not given.keys() >= {"shape", "strides"} or not request.is_own_layout or not request.rank:
        return None
    if request.kind == "tiled" and len(request.arguments.box_dim) != request.rank:
        return None
    for fault in faults_of(request):
        for candidate in (
            candidate for tries in fault.alternatives(request) for candidate in tries
        ):
            view = _reordered(request, candidate)
            if view is None:
                continue
            # Describe the permutation by arguments; then the rest must be accepted, with this tile.
            change = {"strides": view.strides} | candidate.change
            if view.shape != request.tensor.shape:
                change["shape"] = view.shape
            other = request_of({**given, **change})
            more = None if other.unreadable else _accepted_change(other)
            if more is not None and TILE_ARGUMENTS.isdisjoint(more):
                needed = _needed(more, {**given, **change}, request_of) if more else {}
                return change | needed
    return None


def _reordered(request: Request, candidate: Candidate) -> OtherTensor | None:
    """Return the view of a candidate that only puts the dimensions in another order."""
    own, other = request.tensor, candidate.view
    if other is None or other.address != request.address or other.dtype != own.dtype:
        return None
    before, after = (sorted(zip(v.shape, v.strides, strict=True)) for v in (own, other))
    return other if before == after else None


def _may_be_lifted(request: Request, stuck: list[Fault]) -> bool:
    """Whether the driver may lack these rules, and the target supports what the driver accepts."""
    by_driver = request.set_of("driver")
    return not any(by_driver in f.rule.sets for f in stuck) and not any(
        f.rule.unsupported and by_driver not in f.rule.sets for f in faults_of(request)
    )


def _search(request: Request, without: str = "") -> tuple[Change | None, list[Fault]]:
    """Return accepted arguments, or None and the faults without a fix.

    If split_inner= does not help, search again `without` it. Make the tile smaller only if a fix of
    the first report proposes it.
    """
    start, change, is_in_order = request, Change(), True

    def is_clear(answer: Answer) -> bool:
        is_of_arguments = not answer.candidate.is_guess and not answer.candidate.is_other_tensor
        return is_of_arguments and without not in answer.candidate.change

    for _ in range(MAX_REPAIRS):
        faults = faults_of(request)
        if not faults:
            return change, []
        answer, unsolved = _kept_or_smaller(request, faults, is_clear)
        if answer is not None and _shrinks(answer) and not _may_shrink(start, is_clear):
            answer = None
        if answer is None:
            # No single fix is enough: take a step, even if it breaks other rules.
            alone = request.with_fields(keeps_tensor=True)
            steps = filter(is_clear, (a for f in unsolved for a in _steps(alone, f, set())))
            may_shrink = _may_shrink(start, is_clear)
            answer = next((a for a in steps if may_shrink or not _shrinks(a)), None)
            is_in_order &= answer is None
        # The split excludes other fixes: search again without it.
        if answer is None and "split_inner" in change:
            return _search(start, without="split_inner")
        if answer is None:
            return None, faults if is_in_order else []
        change |= answer.candidate.change
        request = answer.request.with_fields(keeps_tensor=False)
    return None, []


def _kept_or_smaller(
    request: Request, faults: list[Fault], is_clear: Callable[[Answer], bool]
) -> tuple[Answer | None, list[Fault]]:
    """Return the first answer that keeps the tile, else the first; and the faults without one.

    Several steps are no answer where another tensor is one, which the words then propose.
    """
    known, smaller, unsolved = {f.key for f in faults}, None, []
    alone = request.with_fields(keeps_tensor=True)
    for fault in faults:
        fixes = answers(alone, fault, known)
        if not fixes or not fixes[0].is_alone or not fixes[0].is_enough:
            if any(a.is_enough and a.is_alone for a in answers(request, fault, known)):
                continue
            unsolved.append(fault)
        for answer in filter(is_clear, fixes):
            if not _shrinks(answer):
                return answer, []
            smaller = smaller or answer
    return smaller, unsolved


def _shrinks(answer: Answer) -> bool:
    """Whether an answer makes the tile smaller."""
    return bool(answer.facts.box_bits < answer.start.facts.box_bits)


def _may_shrink(request: Request, is_clear: Callable[[Answer], bool]) -> bool:
    """Whether a fix of the report on a request makes the tile smaller, or is about the tile."""
    faults = faults_of(request)
    known = {f.key for f in faults}
    return any(f.argument in TILE_ARGUMENTS for f in faults) or any(
        _shrinks(answer) for f in faults for answer in filter(is_clear, answers(request, f, known))
    )


def _needed(change: Change, given: Change, request_of: Callable[[Change], Request]) -> Change:
    """Return the smallest part of a change that is still accepted.

    A type goes with its box, which may count other units.
    """
    units = _UNITS & change.keys() if "data_type" in change else set()
    for names in [{name} for name in change if name not in units] + [units] * bool(units):
        fewer = {name: value for name, value in change.items() if name not in names}
        if fewer and not is_refused(request_of({**given, **fewer})):
            return _needed(fewer, given, request_of)
    return change
