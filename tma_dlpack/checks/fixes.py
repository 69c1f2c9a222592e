"""The search for fixes of a refused call.

A `Request` is a call of the user. A `Fault` is a rule that a request breaks. The rule has candidate
fixes (`candidates.py`). The search applies each candidate to the request and judges the result. It
proposes the candidate if the changed request is accepted, or if the changed request breaks only
rules that the report already names. If a candidate needs a second step, the text of the fix names
both steps. `Report.fixed` combines fixes that change only arguments.
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

MAX_STEPS = 4  # the most steps of one fix
MAX_REPAIRS = 40  # the most fixes that `Report.fixed` applies to one call
_ROW = {rule.id: number for number, rule in enumerate(RULES)}

#: The arguments that decide how large the tile is.
TILE_ARGUMENTS = frozenset({"box_sizes", "channels_per_pixel", "pixels_per_column", "data_type"})

# For each rule, a mask of its prerequisites: the rules that must hold before it is reported.
_PREREQUISITES = tuple(sum(1 << _ROW[other] for other in rule.prerequisites) for rule in RULES)
_PREREQUISITES_AT_ENTRY = tuple(
    sum(1 << _ROW[other] for other in rule.prerequisites_at_entry) for rule in RULES
)

Key = tuple[str, tuple[int, ...]]


# -- broken rules ----------------------------------------------------------------------------------


class Fault(NamedTuple):
    """A rule that a request breaks. Sorted faults are in libcu++'s order."""

    place: tuple[int, int, int]  # the rule's step, the entry in libcu++'s order, the index in RULES
    key: Key  # the rule's id, and (index of the broken entry,); () for a rule without `each`
    rule: Rule
    argument: str  # the argument that the rule is about, by its name in rules

    def alternatives(self, request: Request) -> Iterable[Candidates]:
        """Return the candidate fixes of the rule, the best alternative first."""
        return () if self.rule.candidates is None else self.rule.candidates(request, *self.key[1])


@cache
def _fault(row: int, entry: int) -> Fault:
    """Return the fault of rule number `row` at an entry; the entry is -1 for a rule without `each`.

    If `Rule.on` is a function of the struct, `Fault.argument` is "", because the struct is not
    known here.
    """
    # libcu++ checks some arrays from the outermost entry on, so the highest index comes first.
    rule = RULES[row]
    nth = -entry if rule.outermost_first else entry
    key = (rule.id, () if entry < 0 else (entry,))
    return Fault((rule.step, nth, row), key, rule, rule.on if isinstance(rule.on, str) else "")


def faults_of(request: Request) -> list[Fault]:
    """Return the faults of a request, in libcu++'s order."""
    # C has judged the call already, so use the failed rules that C found.
    if request.call is not None:
        return _reported(request, request.call, request.call.failed, request.call.mask)
    # Rules cannot read a tensor that was refused, or driver arguments that could not be read.
    if request.unreadable and (request.is_driver_call or request.view is None):
        return []
    rows = rows_of(request.kind, request.rules, request.is_driver_call)
    if request.unread:
        # A rule with `each` stays in the mask even if one entry is unknown, because `_reported`
        # drops the failures at unknown entries.
        rows &= ~_unread_rows(request.unread)
    facts = request.facts
    failed = judge(facts, rows & ~request.options.allowed)
    return _reported(request, facts, failed, sum({1 << row for row, _ in failed}))


def is_refused(request: Request) -> bool:
    """Return whether a request has unreadable arguments or breaks rules."""
    return bool(request.unreadable or faults_of(request))


def outcome_of(request: Request, candidate: Candidate) -> tuple[Any, list[Fault]]:
    """Return the struct and the faults of the request with a candidate applied.

    The C extension judges the changed request if it can.
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
    """Return the faults to report, sorted.

    `failed` has the pair (index in `RULES`, entry) of every false predicate. `mask` has the bit of
    each of these indices. A failure is dropped if a prerequisite of its rule failed, or if its rule
    reads an argument of `request` that could not be read. `facts` is the struct of the request.
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
    found.sort()  # compares only `place`, because no two faults have the same place
    return found


def _is_late(row: int, entry: int, failed: list[tuple[int, int]]) -> bool:
    """Return whether a rule in `prerequisites_at_entry` of rule `row` failed at the same entry."""
    return any(
        (_ROW[other], max(0, entry)) in failed for other in RULES[row].prerequisites_at_entry
    )


def _reads_unread(request: Request, fault: Fault) -> bool:
    """Return whether the rule of a fault reads an argument that is unreadable or unknown."""
    unreadable = {v.argument for v in request.unreadable}
    names = READS[fault.place[-1]]
    return any(words.argument(request, name) in unreadable for name in names) or (
        reads(fault.rule, request.unread, *fault.key[1])
    )


@cache
def rows_of(kind: str, rules: str, is_driver_call: bool = False) -> int:
    """Return the mask of the rules that apply to a kind of map in a set of rules."""
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
    """The result of applying a candidate fix to the request `start`.

    The fix may combine several steps.
    """

    candidate: Candidate
    start: Request
    facts: Any  # the struct of the changed request
    left: list[Fault]  # the rules that the changed request breaks
    # whether every fault in `left` was known before: it is in the argument `known` of `answers`
    is_enough: bool
    is_alone: bool = True  # whether the candidate is a single step

    @property
    def request(self) -> Request:
        """The changed request."""
        return self.start.changed(self.candidate.change, self.candidate.view)


def answers(request: Request, fault: Fault, known: Set[Key]) -> list[Answer]:
    """Return the fixes of a fault after which only `known` faults are left.

    The first fix is the best fix. Another fix is dropped if it leaves a rule broken that the first
    fix repairs. If every fix leaves new faults, the first fix gets further steps that repair the
    new faults.
    """
    steps = list(_steps(request, fault, known))
    found = [answer for answer in steps if answer.is_enough]
    if found:
        # Drop a fix if it leaves a rule broken that `found[0]` repairs.
        least = {f.rule.id for f in found[0].left}
        return [a for a in found if not a.left or {f.rule.id for f in a.left} <= least]
    return [_continued(answer, set(known) - {fault.key}) for answer in steps[:1]]


def _steps(request: Request, fault: Fault, known: Set[Key]) -> Iterator[Answer]:
    """Yield the best fix of each alternative, even if this fix breaks other rules."""
    for tries in fault.alternatives(request):
        if request.keeps_tensor:
            tries = (candidate for candidate in tries if not candidate.is_other_tensor)
        answer = _first(request, fault, tries, known)
        if answer is not None:
            yield answer


def _first(request: Request, fault: Fault, tries: Candidates, known: Set[Key]) -> Answer | None:
    """Return the result of the best candidate in `tries`, or None if no candidate fixes the fault.

    The best candidate breaks no new rule and leaves no fault at the entry of `fault`. A candidate
    with another tensor must also leave no fault about the tensor. If no such candidate exists, the
    best candidate is the first one that breaks no new rule. If every candidate breaks a new rule,
    the best candidate is the first one that fixes the fault.
    """
    enough = some = None
    for candidate in tries:
        facts, left = outcome_of(request, candidate)
        if not left:
            return Answer(candidate, request, facts, left, True)
        broken, own, others = {f.key for f in left}, fault.key, known
        if candidate.is_other_tensor:
            # Dimension i may be another dimension of the new tensor, so compare rules, not entries.
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
    """Return whether a fault is about the tensor, not about another argument."""
    return fault.argument.startswith("tensor.")


def _rules_of(keys: Set[Key]) -> set[Key]:
    """Return the keys without their entries, such as ("BOX_RANGE", ()) for ("BOX_RANGE", (1,))."""
    return {(rule_id, ()) for rule_id, _ in keys}


def is_same_entry(one: Fault, other: Fault) -> bool:
    """Return whether two faults are about the same entry of the same argument."""
    return one.argument == other.argument and (one.key[1] or (0,)) == (other.key[1] or (0,))


def _continued(answer: Answer, known: Set[Key]) -> Answer:
    """Return a fix with further steps, which repair the rules that the fix newly breaks.

    If `MAX_STEPS` steps are not enough, return the fix alone. The text of this fix names the newly
    broken rules.
    """
    first = answer
    taken, change, view = [first.candidate], dict(first.candidate.change), first.candidate.view
    for _ in range(MAX_STEPS):
        if answer.is_enough:
            wording = partial(_in_one_sentence, taken)
            candidate = Candidate(wording, change, view, first.candidate.is_guess)
            return answer._replace(candidate=candidate, start=first.start, is_alone=False)
        # Repair the first newly broken rule, without guesses. Prefer a repair that breaks no rule.
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
    """Return the text of a step after the first; it names every argument that the step changes."""
    names = [name for name in step.change if f"{name}=" not in step.text]
    if not names or step.is_other_tensor:
        return step.text
    return f"pass {' and '.join(f'{name}={step.change[name]}' for name in names)}"


def _in_one_sentence(steps: list[Candidate]) -> str:
    """Return the texts of the steps, joined.

    A step is omitted if later steps change all of its arguments again.
    """
    texts: list[str] = []
    later: set[str] = set()
    for step in reversed(steps):
        if step.is_other_tensor or not step.change.keys() <= later:
            texts.append(step.text)
        later |= step.change.keys()
    return ", and ".join(reversed(texts))


# Arguments that change together, because the box counts elements of the data type.
_UNITS = {"data_type", "box_sizes", "channels_per_pixel"}
DRIVERS_RULES: Change = {"rules": "driver"}


def changes_of(
    request: Request, given: Change, request_of: Callable[[Change], Request]
) -> Change | None:
    """Return the arguments to change, with values for which the call is accepted.

    Return None if the tensor itself must change. If no change satisfies the call's own set of
    rules, the search continues with the driver's rules. If the dimensions must be in another order,
    the result has `shape=` and `strides=` in that order.
    """
    change = _accepted_change(request)
    if change is None:
        return _permuted_change(request, given, request_of)
    if not given.keys() >= change.keys() and is_refused(request_of({**given, **change})):
        # `given` lacks an argument to change, because make_conv_descriptor computes this argument.
        return None
    return _needed(change, given, request_of)


def _accepted_change(request: Request) -> Change | None:
    """Return a change that the call's rules accept; if none exists, one with ``rules="driver"``."""
    change, stuck = _search(request)
    if change is None and _may_be_lifted(request, stuck):
        by_driver, _ = _search(request.changed(DRIVERS_RULES))
        change = None if by_driver is None else DRIVERS_RULES | by_driver
    return change


def _permuted_change(
    request: Request, given: Change, request_of: Callable[[Change], Request]
) -> Change | None:
    """Return arguments that describe the tensor and the box with the dimensions in another order.

    Return None if the box must also get another size: then the user may have meant the box for the
    original order of the dimensions.
    """
    # A call without these two arguments, such as make_conv_descriptor, cannot pass another order.
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
            # Pass the permutation as arguments. Other arguments may change too, but not the tile.
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
    """Return the view of a candidate if it only reorders the dimensions, else None."""
    own, other = request.tensor, candidate.view
    if other is None or other.address != request.address or other.dtype != own.dtype:
        return None
    before, after = (sorted(zip(v.shape, v.strides, strict=True)) for v in (own, other))
    return other if before == after else None


def _may_be_lifted(request: Request, stuck: list[Fault]) -> bool:
    """Return whether a search with the driver's rules may succeed.

    The search may succeed if the driver has none of the rules in `stuck`, and if every broken rule
    about a missing feature is a rule of the driver too.
    """
    by_driver = request.set_of("driver")
    return not any(by_driver in f.rule.sets for f in stuck) and not any(
        f.rule.unsupported and by_driver not in f.rule.sets for f in faults_of(request)
    )


def _search(request: Request, without: str = "") -> tuple[Change | None, list[Fault]]:
    """Return the pair (accepted change, []).

    If the search fails, return None and the remaining faults. The list is empty if an earlier step
    has broken other rules.

    The search does not change the argument `without`. The search makes the tile smaller only if a
    fix of the first request makes the tile smaller, or if a fault of the first request is about the
    tile.
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
            # Every fix breaks a rule. Take a fix; the next rounds repair the broken rule.
            alone = request.with_fields(keeps_tensor=True)
            steps = filter(is_clear, (a for f in unsolved for a in _steps(alone, f, set())))
            may_shrink = _may_shrink(start, is_clear)
            answer = next((a for a in steps if may_shrink or not _shrinks(a)), None)
            is_in_order &= answer is None
        # An earlier step passed split_inner=True, which excludes other fixes. So search again, and
        # do not change `split_inner`.
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
    """Return the first answer that does not shrink the tile, else the first answer.

    Also return the faults without an answer. Some faults have no fix by arguments that takes one
    step and breaks no rule. Such a fault is skipped if another tensor fixes it in one step. The
    text of the violation then proposes the other tensor.
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
    """Return whether an answer makes the tile smaller."""
    return bool(answer.facts.box_bits < answer.start.facts.box_bits)


def _may_shrink(request: Request, is_clear: Callable[[Answer], bool]) -> bool:
    """Return whether a fault is about the tile, or whether a fix of a fault shrinks the tile."""
    faults = faults_of(request)
    known = {f.key for f in faults}
    return any(f.argument in TILE_ARGUMENTS for f in faults) or any(
        _shrinks(answer) for f in faults for answer in filter(is_clear, answers(request, f, known))
    )


def _needed(change: Change, given: Change, request_of: Callable[[Change], Request]) -> Change:
    """Return the part of a change that is needed for the call to be accepted.

    A data type and a box are kept or dropped together, because the box counts elements of the data
    type.
    """
    units = _UNITS & change.keys() if "data_type" in change else set()
    for names in [{name} for name in change if name not in units] + [units] * bool(units):
        fewer = {name: value for name, value in change.items() if name not in names}
        if fewer and not is_refused(request_of({**given, **fewer})):
            return _needed(fewer, given, request_of)
    return change
