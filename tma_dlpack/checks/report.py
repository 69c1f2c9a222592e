"""The `Report` of a check, the errors of a refused call, and the sentences of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tma_dlpack.checks import ALLOWABLE, RULES, words
from tma_dlpack.checks.advice import advise
from tma_dlpack.checks.call import named_target, read_call, read_driver_call, request_of_tensor
from tma_dlpack.checks.candidates import Candidate
from tma_dlpack.checks.fixes import (
    DRIVERS_RULES,
    TILE_ARGUMENTS,
    Answer,
    Fault,
    Key,
    answers,
    changes_of,
    faults_of,
    is_refused,
    is_same_entry,
    outcome_of,
)
from tma_dlpack.checks.request import Request, request_of_map, with_facts_in_c
from tma_dlpack.checks.struct import JudgedCall
from tma_dlpack.dlpack import TensorView
from tma_dlpack.geometry import tx_bytes
from tma_dlpack.public import Drawn, opaque, public
from tma_dlpack.tables.arguments import KINDS, MapKind
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
from tma_dlpack.tables.rule import HAS_TYPE
from tma_dlpack.tables.targets import Target

_VALUES = {
    type(None),
    tuple,
    str,
    int,
    bool,
}  # immutable, so not copied
_UNSUPPORTED = frozenset(rule.id for rule in RULES if rule.unsupported)

#: The rules of `_UNSUPPORTED` as a mask: bit i is the rule `RULES[i]`.
_UNSUPPORTED_ROWS = sum(1 << number for number, rule in enumerate(RULES) if rule.unsupported)

_ALLOWABLE = frozenset(ALLOWABLE)
# Kind of map -> the source of each rule, in the order of RULES.
_SOURCES = {kind: tuple([rule.sources(kind) for rule in RULES]) for kind in KINDS}

MAX_REPR = 200  # characters
Arguments = Mapping[str, Any]
RequestOf = Callable[[Arguments], Request]


@public
@sealed
@dataclass(frozen=True, slots=True, repr=False)
class Report(Drawn):
    """The result of a check: whether the call is accepted, and if not, why and how to fix it.

    The `check_*` functions return a report. `bool(report)` is True if the call is accepted.
    ``print(report)`` shows every violation with its fix.

    Attributes
    ----------
    violations : tuple of Violation
        Every rule that the call breaks, in libcu++'s order; empty if the call is accepted.
    advice : tuple of Advice
        Remarks on an accepted call, such as bank conflicts; empty if the call is refused.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 64), dtype=np.float32)
    >>> report = tma.check_tma_descriptor(x, box_sizes=(16, 3))
    >>> report.ok, [v.rule for v in report.violations]
    (False, ['BOX_INNER_16B'])
    >>> fixed = report.fixed()  # None if the tensor itself must change
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
        """Return the report on a call that was judged.

        The violations and the advice are computed on first use.
        """
        report = object.__new__(cls)
        # A frozen dataclass can be filled only through object.__setattr__. Of `violations` and
        # `advice`, set only the one that is empty. __getattr__ computes the other one.
        keep = object.__setattr__
        keep(report, "violations" if find_violations is None else "advice", ())
        keep(report, "_given", given)
        keep(report, "_request_of", request_of)
        keep(report, "_find_violations", find_violations)
        return report

    def __getattr__(self, name: str) -> Any:
        """Compute and keep the advice of an accepted call, or the violations of a refused call."""
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

        If the first violation is that the target lacks a feature, the error is a `TmaTargetError`.
        This subclass is also a `TmaUnsupportedError`, which is a RuntimeError.
        """
        if self.violations:
            raise refusal_of(self.violations)

    @opaque
    def fixed(self) -> dict[str, Any] | None:
        """Return the keyword arguments after the tensor, corrected so that the call is accepted.

        The correction changes only arguments that a violation names. It changes these arguments as
        little as the rules allow.
        If the value of an argument is a misspelled word that may mean two values, the result is
        None, because the correction must not guess the meaning of an argument. Some calls cannot
        satisfy libcu++'s rules but can satisfy the driver's rules. For example, the box is larger
        than the tensor, and no smaller box is valid. For such a call, the result has `allow=` with
        the rules to switch off, or ``rules="driver"``.

        Returns
        -------
        dict or None
            Arguments that were checked, so ``make_tma_descriptor(x, **fixed)`` is accepted. None if
            the tensor itself must change, or if an argument could not be understood. In these two
            cases `accepted_arguments` raises an error.

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
        """Return the arguments that `fixed` returns; raise an error if `fixed` returns None.

        Returns
        -------
        dict
            Keyword arguments, for ``make_tma_descriptor(x, **report.accepted_arguments())``.

        Raises
        ------
        TmaPreconditionError
            If `fixed` returns None. The violations state what to change.

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
        """Return only the keyword arguments that `fixed` changes; None if `fixed` returns None.

        >>> import numpy as np, tma_dlpack as tma
        >>> tma.check_tma_descriptor(np.zeros((64, 64), np.float32), box_sizes=(16, 3)).changes()
        {'box_sizes': (16, 4)}
        """
        if self._request_of is None:
            return None
        meant: dict[str, Any] = {}
        # A proposal can make another argument readable or unreadable, so read the call again each
        # time.
        while (request := self._request_of({**self._given, **meant})).unreadable:
            if any(v.argument not in request.proposals for v in request.unreadable):
                return None  # an argument is ambiguous, or the tensor itself was refused
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


# -- the calls that reports hold -------------------------------------------------------------------


class CallInC:
    """A callable object that reads a refused call again with other arguments.

    The C extension has read the original call. This object keeps the `JudgedCall` and the type of
    the tensor, but not the tensor. It parses the other arguments in C if possible.
    """

    __slots__ = ("call", "names", "producer")

    def __init__(self, call: JudgedCall, producer: type, names: words.Names) -> None:
        self.call: JudgedCall = call
        self.producer: type = producer
        self.names: words.Names = names

    def __call__(self, given: Mapping[str, Any]) -> Request:
        """Return the request of the same tensor with the arguments in `given`."""
        request = self.request_of(self.call)
        # The result is None if C cannot read the arguments.
        call = self.call.changed(given, None)
        if call is not None:
            return self.request_of(call)
        own, address = _own(request)
        named = request.target if given["target"] is None else given["target"]
        target, unreadable = named_target(named)
        return read_call(request.kind, own, address, given, target, False, unreadable)

    def request_of(self, call: JudgedCall) -> Request:
        """Return the request of a call that C has judged."""
        request = Request(call=call, producer=self.producer)
        # C clamps numbers that do not fit its struct. If C clamped a number, do not set `facts`, so
        # that Python computes the exact struct.
        if call.is_exact:
            request.facts = call
        return request

    def __reduce__(self) -> tuple[Any, ...]:
        # The C call cannot be pickled. A partial of `request_of_tensor` can be pickled instead.
        request = self.request_of(self.call)
        return partial, (request_of_tensor, request.kind, *_own(request), ())


def violations_in_c(read: CallInC) -> tuple[Violation, ...]:
    """Return the violations of the call with its original arguments."""
    return find_violations(read.request_of(read.call), read.names)


def _own(request: Request) -> tuple[TensorView, int]:
    """Return the tensor's own view and address, without `shape=`, `strides=` and `offset=`."""
    view = request.tensor
    return view.own or view, request.address - view.offset_bytes


class AcceptedCall:
    """A callable object that returns the request of an accepted call that C has read.

    `call` is the request, or the map object that C returned for the call. The map object has no
    bytes, and it has the tensor's type in place of the tensor.
    """

    __slots__ = ("call",)

    def __init__(self, call: Any) -> None:
        self.call: Any = call

    def __call__(self, given: Arguments) -> Request:
        """Return the request that was accepted."""
        if isinstance(self.call, Request):
            return self.call
        return with_facts_in_c(request_of_map(self.call), self.call)

    def __reduce__(self) -> tuple[Any, ...]:
        is_map = not isinstance(self.call, Request)
        return AcceptedCall, (request_of_map(self.call) if is_map else self.call,)


@dataclass(frozen=True, slots=True)
class CallInOtherWords:
    """A function that reads a call of `make_conv_descriptor` as a call of `make_im2col_descriptor`.

    `dropped` are the arguments of the convolution, such as kernel_size. `fixed` are the arguments
    that were computed from them, such as the corners. `of_call` reads the arguments of the map.
    """

    of_call: RequestOf
    dropped: frozenset[str]
    fixed: Arguments

    def __call__(self, given: Arguments) -> Request:
        """Return the request for `given`, with `dropped` removed and `fixed` added."""
        kept = {name: value for name, value in given.items() if name not in self.dropped}
        return self.of_call({**kept, **self.fixed})


# -- checks ----------------------------------------------------------------------------------------


def check_request(request_of: RequestOf, given: Arguments, tensor: object) -> Report:
    """Return the report on a call.

    `request_of` parses the arguments. The report keeps `request_of` and `given` for `Report.fixed`.
    """
    given = {
        name: value if type(value) in _VALUES else reusable(value) for name, value in given.items()
    }
    request = request_of(given)
    if not is_refused(request):
        return Report((), advise(request), given, request_of)
    find = partial(find_violations, request, words.names_in_caller(tensor))
    return Report._judged(given, request_of, find)


def accepted(given: dict[str, Any], call: Any) -> Report:
    """Return the report on a call that C accepted.

    `call` is the map object that C returned for the call. The map object has no bytes, and it has
    the tensor's type in place of the tensor.
    """
    return Report._judged(given, AcceptedCall(call))


def refused(
    tensor: object, call: JudgedCall, given: dict[str, Any] | None
) -> Report | TmaPreconditionError:
    """Return the report on a call that C refused, or the error of the call if `given` is None.

    The report and the error compute their sentences on first use, from the numbers of the C call.
    So neither keeps the tensor.
    """
    read = CallInC(call, type(tensor), words.names_in_caller(tensor))
    find = partial(violations_in_c, read)
    if given is not None:
        return Report._judged(given, read, find)
    # The first violation may decide the class of the error, so find the violations now.
    if call.mask & _UNSUPPORTED_ROWS:
        return refusal_of(find())
    # All other errors compute their violations on first use.
    return TmaPreconditionError._deferred(find)


def error_of(request: Request, tensor: object = None) -> TmaPreconditionError | None:
    """Return the error of a request, or None if the request is accepted.

    The error computes its message on first use.
    """
    if not is_refused(request):
        return None
    lacks = not request.unreadable and faults_of(request)[0].rule.unsupported
    error = TmaTargetError if lacks else TmaPreconditionError
    return error._deferred(partial(find_violations, request, words.names_in_caller(tensor)))


def refusal_of(violations: tuple[Violation, ...]) -> TmaPreconditionError:
    """Return the error that has these violations.

    The error is a `TmaTargetError` if the first violation is that the target lacks a feature.
    """
    lacks = violations[0].rule in _UNSUPPORTED
    return (TmaTargetError if lacks else TmaPreconditionError)(violations)


def find_violations(request: Request, names: words.Names = words.UNNAMED) -> tuple[Violation, ...]:
    """Return the violations of a request under its set of rules.

    The violations of unreadable arguments come first. The other violations are in libcu++'s order,
    so the first of them is the violation for which C++ would throw. A rule is skipped if one of its
    prerequisites failed. A violation is skipped if the fix of an earlier violation removes it too.
    Fixes call the tensor by its name in `names`.
    """
    unreadable = [replace(v, fix=words.in_words_of(v.fix, names)) for v in request.unreadable]
    return (*unreadable, *violations_of(request, names))


def check_driver_call(
    kind: MapKind, given: Arguments, target: Target, unread: frozenset[str]
) -> tuple[Request, tuple[Violation, ...]]:
    """Return the request and the violations of a `driver_encode_*` call.

    `unread` names the arguments, and the entries of arguments, whose values are not known. Rules
    that need an unknown value are skipped. The caller passes the request to `advise`.
    """
    request = read_driver_call(kind, given, target)
    unreadable = [(v.argument.removeprefix("tensor_"), v) for v in request.unreadable]
    shown = tuple(v for name, v in unreadable if name not in unread)
    # An enum value without a member is a violation itself, so skip the rules that read this enum.
    wrong = frozenset(name for name, _ in unreadable)
    asked = request.with_fields(unread=unread | wrong, unreadable=())
    request = request.with_fields(unread=unread, unreadable=shown)
    return request, shown + find_violations(asked)


# -- in words --------------------------------------------------------------------------------------


def violations_of(request: Request, names: words.Names = words.UNNAMED) -> tuple[Violation, ...]:
    """Return the violations of the rules that a request breaks.

    A violation is omitted if the fixes of an earlier violation remove it too. Fixes call the tensor
    by its name in `names`.
    """
    faults, removed = faults_of(request), set[Key]()
    known = {f.key for f in faults}
    lifted = _lifted(request, faults)
    typed, found = request, dict[Fault, list[Answer]]()
    for fault in faults:
        if fault.key in removed:
            continue
        fixes = found[fault] = answers(typed, fault, known)
        if fault is faults[-1]:
            break
        removed |= _removed(fault, faults, fixes)
        if fault.rule.id in HAS_TYPE and fixes and fixes[0].is_alone and fixes[0].is_enough:
            # The fix sets a valid data type. Search the fixes of later faults with this type.
            typed = fixes[0].request
    newly_broken = () if lifted or len(found) < 2 else _broken_by_all(request, found)
    last = next(reversed(found), None)
    return tuple(
        _violation(request, fault, fixes, lifted, names, newly_broken if fault is last else ())
        for fault, fixes in found.items()
    )


def _broken_by_all(request: Request, found: dict[Fault, list[Answer]]) -> tuple[str, ...]:
    """Return the rules that the request breaks after the first fix of every fault is applied.

    Rules that a fix names, and rules that the request breaks already, are omitted.
    """
    current, is_other = request, False
    for fault, fixes in found.items():
        if not fixes:
            continue
        candidate, base = fixes[0].candidate, request
        if candidate.view is not None and is_other:
            # An earlier fix has changed the tensor, so search for a fix of the changed tensor.
            left = faults_of(current)
            fault = next((f for f in left if f.rule is fault.rule), fault)
            again = answers(current, fault, {f.key for f in left}) if fault in left else []
            if not again:
                continue
            candidate, base = again[0].candidate, current
        change = {name: _merged(base, current, name, n) for name, n in candidate.change.items()}
        current = current.changed(change, candidate.view)
        is_other |= candidate.view is not None
    named = {word for fixes in found.values() if fixes for word in fixes[0].candidate.text.split()}
    named |= {fault.rule.id for fault in found}
    return tuple(dict.fromkeys(f.rule.id for f in faults_of(current) if f.rule.id not in named))


def _merged(base: Request, current: Request, name: str, value: Any) -> Any:
    """Return the value of an argument after a second fix.

    The second fix was found for `base` and has the value `value`. Earlier fixes have changed `base`
    to `current`. The result has the entries that the second fix changes, and the other entries of
    `current`.
    """
    was, now = getattr(base.options, name, None), getattr(current.options, name, None)
    if name not in ("box_sizes", "elem_strides") or not value or not was or not now:
        return value
    if len(value) != len(was):
        return value
    # A fix may have removed outer dimensions, so match the entries from the innermost one.
    count = min(len(value), len(now))
    pairs = zip(value[-count:], was[-count:], now[-count:], strict=True)
    return (*now[: len(now) - count], *(new if new != old else n for new, old, n in pairs))


def _removed(fault: Fault, faults: list[Fault], fixes: list[Answer]) -> set[Key]:
    """Return the keys of the other faults that every fix of `fault` removes.

    Return no keys if one fix is `allow=`, because this fix changes neither the map nor the tensor.
    """
    changing = [answer for answer in fixes if not answer.candidate.is_guess]
    lifts = any(answer.candidate.change.keys() == {"allow"} for answer in changing)
    if lifts or not changing or not all(answer.is_alone for answer in changing):
        return set()
    removed = {other.key for other in faults}
    for answer in changing:
        if answer.candidate.is_other_tensor:
            # Dimension i may be another dimension of the new tensor, so compare rules, not entries.
            ids = {left.rule.id for left in answer.left}
            removed &= {other.key for other in faults if other.rule.id not in ids}
        else:
            left_keys = {left.key for left in answer.left}
            removed &= {
                other.key
                for other in faults
                if other.key not in left_keys and not is_same_entry(other, fault)
            }
    return removed


def _violation(
    request: Request,
    fault: Fault,
    fixes: list[Answer],
    lifted: str,
    names: words.Names,
    newly_broken: tuple[str, ...],
) -> Violation:
    rule, entry = fault.rule, fault.key[1]
    argument = words.argument(request, fault.argument)
    texts = []
    for answer in fixes:
        if answer.candidate.change.keys() != {"allow"}:
            texts.append(_text(request, answer))
        elif not lifted:
            allow = answer.candidate.change["allow"]
            texts.append(f"pass {allow=}: the driver has no such rule and {rule.if_allowed}")
    if lifted:
        # A question ("did you mean ...?") stays first, because it is more likely the right fix.
        is_asked_back = bool(texts) and texts[0].endswith("?")
        texts.insert(is_asked_back if rule.if_allowed else len(texts), lifted)
    if not texts:
        none = f"no other {argument} is accepted while the rest stays the same"
        texts.append(words.row_text(rule.fix, request, *entry) or none)
    if newly_broken:
        texts[0] += f", which then breaks {' and '.join(newly_broken)}"
    fix = words.in_words_of("; or ".join(texts).replace("?; or ", "? If not, "), names)
    found, limit = words.found_and_limit(rule, request, *entry)
    source = _SOURCES[request.kind][fault.place[-1]]
    return Violation(rule.id, argument, found, limit, fix, source)


def _text(request: Request, answer: Answer) -> str:
    """Return the text of an answer. If the tile gets smaller, the text states the new size."""
    candidate = answer.candidate
    if (
        TILE_ARGUMENTS.isdisjoint(candidate.change)
        or answer.left
        or candidate.is_guess
        or candidate.is_other_tensor
    ):
        return candidate.text
    if request.unreadable or request.unread or not request.type_is_known:
        return candidate.text

    def tx_bytes_after() -> int:
        known: int | None = getattr(answer.facts, "tx_bytes", None)
        return tx_bytes(answer.request.encode_arguments()) if known is None else known

    return candidate.text + words.other_tile(request.facts, answer.facts, tx_bytes_after)


def _lifted(request: Request, faults: list[Fault]) -> str:
    """Return a fix that applies only the driver's rules: `allow=` or ``rules="driver"``.

    Return "" if the driver's rules refuse the call too.
    """
    if not faults or request.is_driver_call or request.unreadable:
        return ""
    ids, change = {f.rule.id for f in faults}, DRIVERS_RULES
    if ids <= _ALLOWABLE:
        change = {"allow": tuple(i for i in ALLOWABLE if i in ids | request.allowed)}
    else:
        by_driver = request.set_of("driver")
        if any(f.rule.unsupported or by_driver in f.rule.sets for f in faults):
            return ""
    if outcome_of(request, Candidate("", change))[1]:
        return ""
    name, value = next(iter(change.items()))
    return f"pass {name}={value!r}: {driver_accepts(ids)}"


def driver_accepts(ids: Set[str]) -> str:
    """Return words that state what the driver does with a call that breaks these rules."""
    does = [rule.if_allowed for rule in RULES if rule.id in ids and rule.if_allowed]
    return "".join(["the driver itself accepts this", *(f" and {what}" for what in does)])
