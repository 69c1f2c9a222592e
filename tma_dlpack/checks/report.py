"""The `Report` of a check, the errors of a refusal, and the sentences of both."""

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

_VALUES = {type(None), tuple, str, int, bool}  # which can be read again
_UNSUPPORTED = frozenset(rule.id for rule in RULES if rule.unsupported)

#: The mask of the rows of `_UNSUPPORTED`.
_UNSUPPORTED_ROWS = sum(1 << number for number, rule in enumerate(RULES) if rule.unsupported)

_ALLOWABLE = frozenset(ALLOWABLE)
_SOURCES = {kind: tuple([rule.sources(kind) for rule in RULES]) for kind in KINDS}

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


# -- the calls that reports hold -------------------------------------------------------------------


class CallInC:
    """A refused call for a tensor that C has read.

    Calling it parses other arguments, in C if possible.
    """

    __slots__ = ("call", "names", "producer")

    def __init__(self, call: JudgedCall, producer: type, names: words.Names) -> None:
        self.call: JudgedCall = call
        self.producer: type = producer
        self.names: words.Names = names

    def __call__(self, given: Mapping[str, Any]) -> Request:
        """Return the request of the same tensor with the arguments in `given`."""
        request = self.request_of(self.call)
        # `changed` returns None for arguments that C cannot read
        call = self.call.changed(given, None)
        if call is not None:
            return self.request_of(call)
        own, address = _own(request)
        named = request.target if given["target"] is None else given["target"]
        target, unreadable = named_target(named)
        return read_call(request.kind, own, address, given, target, False, unreadable)

    def request_of(self, call: JudgedCall) -> Request:
        """Return the request of a judged call on the tensor."""
        request = Request(call=call, producer=self.producer)
        # C cuts numbers that do not fit its struct; then Python computes the facts again.
        if call.is_exact:
            request.facts = call
        return request

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled call cannot be pickled; the Python function with the same tensor can.
        request = self.request_of(self.call)
        return partial, (request_of_tensor, request.kind, *_own(request), ())


def violations_in_c(read: CallInC) -> tuple[Violation, ...]:
    """Return the violations of the call itself."""
    return find_violations(read.request_of(read.call), read.names)


def _own(request: Request) -> tuple[TensorView, int]:
    """Return the view and the address of the tensor itself, without `shape=` and `offset=`."""
    view = request.tensor
    return view.own or view, request.address - view.offset_bytes


class AcceptedCall:
    """An accepted call that C has read: its map, without tensor and bytes, or its request."""

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
    """A call whose arguments include none of `dropped`, from which it has the `fixed` ones."""

    of_call: RequestOf
    dropped: frozenset[str]
    fixed: Arguments

    def __call__(self, given: Arguments) -> Request:
        """Return the request with the other arguments in `given`."""
        kept = {name: value for name, value in given.items() if name not in self.dropped}
        return self.of_call({**kept, **self.fixed})


# -- checks ----------------------------------------------------------------------------------------


def check_request(request_of: RequestOf, given: Arguments, tensor: object) -> Report:
    """Check a call and keep what `Report.fixed` needs; `request_of` parses the arguments."""
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

    `call` is the map of the call, without its tensor and bytes.
    """
    return Report._judged(given, AcceptedCall(call))


def refused(
    tensor: object, call: JudgedCall, given: dict[str, Any] | None
) -> Report | TmaPreconditionError:
    """Return the report on a call that C refused, or its error if `given` is None.

    The words of the violations are made from numbers when they are first read, so neither result
    keeps the tensor.
    """
    read = CallInC(call, type(tensor), words.names_in_caller(tensor))
    find = partial(violations_in_c, read)
    if given is not None:
        return Report._judged(given, read, find)
    # The class of the error depends on the first violation, so find the violations now.
    if call.mask & _UNSUPPORTED_ROWS:
        return refusal_of(find())
    # All other errors compute their violations on first use.
    return TmaPreconditionError._deferred(find)


def error_of(request: Request, tensor: object = None) -> TmaPreconditionError | None:
    """Return the error of a request, or None if it is accepted.

    The message is made on first use.
    """
    if not is_refused(request):
        return None
    lacks = not request.unreadable and faults_of(request)[0].rule.unsupported
    error = TmaTargetError if lacks else TmaPreconditionError
    return error._deferred(partial(find_violations, request, words.names_in_caller(tensor)))


def refusal_of(violations: tuple[Violation, ...]) -> TmaPreconditionError:
    """Return the error of violations: a `TmaTargetError` if the target lacks a feature."""
    lacks = violations[0].rule in _UNSUPPORTED
    return (TmaTargetError if lacks else TmaPreconditionError)(violations)


def find_violations(request: Request, names: words.Names = words.UNNAMED) -> tuple[Violation, ...]:
    """Check a request against its set of rules.

    Returns every violation, in libcu++'s order: the first is the one that C++ would throw. Rules
    whose prerequisites failed are skipped, and so are violations that an earlier fix removes.
    Fixes call the tensor by its name in `names`.
    """
    unreadable = [replace(v, fix=words.in_words_of(v.fix, names)) for v in request.unreadable]
    return (*unreadable, *violations_of(request, names))


def check_driver_call(
    kind: MapKind, given: Arguments, target: Target, unread: frozenset[str]
) -> tuple[Request, tuple[Violation, ...]]:
    """Check a `driver_encode_*` call; the arguments and entries in `unread` are not known.

    Rules that need an unknown argument are skipped. Returns the request of the call, for `advise`,
    and the violations.
    """
    request = read_driver_call(kind, given, target)
    unreadable = [(v.argument.removeprefix("tensor_"), v) for v in request.unreadable]
    shown = tuple(v for name, v in unreadable if name not in unread)
    # An enum value without a member is a violation itself; rules that read it are skipped.
    wrong = frozenset(name for name, _ in unreadable)
    asked = request.with_fields(unread=unread | wrong, unreadable=())
    request = request.with_fields(unread=unread, unreadable=shown)
    return request, shown + find_violations(asked)


# -- in words --------------------------------------------------------------------------------------


def violations_of(request: Request, names: words.Names = words.UNNAMED) -> tuple[Violation, ...]:
    """Return the violations of a request, without those that earlier fixes remove anyway.

    Fixes call the tensor by its name in `names`.
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
            # Rules that need the data type are judged with the fixed type.
            typed = fixes[0].request
    newly_broken = () if lifted or len(found) < 2 else _broken_by_all(request, found)
    last = next(reversed(found), None)
    return tuple(
        _violation(request, fault, fixes, lifted, names, newly_broken if fault is last else ())
        for fault, fixes in found.items()
    )


def _broken_by_all(request: Request, found: dict[Fault, list[Answer]]) -> tuple[str, ...]:
    """Return the rules that the first fixes of all faults break, and that no fix names."""
    current, is_other = request, False
    for fault, fixes in found.items():
        if not fixes:
            continue
        candidate, base = fixes[0].candidate, request
        if candidate.view is not None and is_other:
            # An earlier fix has changed the tensor: find the fix again for the current tensor.
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
    """Return an argument after two fixes, each of which may change some of its entries."""
    was, now = getattr(base.options, name, None), getattr(current.options, name, None)
    if name not in ("box_sizes", "elem_strides") or not value or not was or not now:
        return value
    if len(value) != len(was):
        return value
    # If a fix removed dimensions, only the innermost entries correspond.
    count = min(len(value), len(now))
    pairs = zip(value[-count:], was[-count:], now[-count:], strict=True)
    return (*now[: len(now) - count], *(new if new != old else n for new, old, n in pairs))


def _removed(fault: Fault, faults: list[Fault], fixes: list[Answer]) -> set[Key]:
    """Return the other faults that every fix of a fault removes.

    No faults if `allow=` is a candidate, because it changes neither the map nor the tensor.
    """
    changing = [answer for answer in fixes if not answer.candidate.is_guess]
    lifts = any(answer.candidate.change.keys() == {"allow"} for answer in changing)
    if lifts or not changing or not all(answer.is_alone for answer in changing):
        return set()
    removed = {other.key for other in faults}
    for answer in changing:
        if answer.candidate.is_other_tensor:
            # The entries of another tensor need not correspond: compare rules only.
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
        # A question ("did you mean ...?") comes first, because its answer is more likely.
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
    """Return the text of an answer, with the new tile if its bytes change."""
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
    """Return the options that leave only the driver's own rules, or "" if there are none."""
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
    """Return what the driver does with a call that breaks these rules of libcu++."""
    does = [rule.if_allowed for rule in RULES if rule.id in ids and rule.if_allowed]
    return "".join(["the driver itself accepts this", *(f" and {what}" for what in does)])
