"""The errors of this package, and the findings of a check (`Violation` and `Advice`).

`TmaError` is the base class of the errors. Its subclasses correspond to the exceptions in C++. If
`cuda::make_tma_descriptor` throws `std::invalid_argument`, this package raises a `ValueError`. If
the C++ function throws `std::runtime_error`, this package raises a `RuntimeError`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, NoReturn, TypeVar

from tma_dlpack.public import computed_later
from tma_dlpack.tables.coerce import integer_of, shown

COLUMNS = 100  # the longest line of a message
#: `rule` and `source` of a `Violation` that reports an argument that cannot be read.
ARGUMENT_ID, ARGUMENT_SOURCE = "ARGUMENT", "tma_dlpack: the type of the argument"
T = TypeVar("T")


def sealed(frozen: type[T]) -> type[T]:
    """Make a frozen dataclass raise FrozenInstanceError if code sets any attribute.

    Without this decorator, a frozen dataclass with slots raises a TypeError if the attribute is not
    one of its fields.
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
        The stable id of the rule, such as ``"BOX_INNER_16B"``. It is ``"ARGUMENT"`` for an argument
        of the wrong type, and ``"FILE_..."`` for a file that this package cannot read.
    argument : str
        The argument that the finding is about, such as ``"box_sizes"``.
    found : str
        What was found, as a sentence about the argument, with units.
    limit : str
        What the rule requires; for an `Advice`, why the finding matters.
    fix : str
        What to change, in the order and the units of the call (row-major, elements).
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
        return self.rule == ARGUMENT_ID or self.rule.startswith("FILE_")

    def __str__(self) -> str:
        fix = f"fix: {self.fix}"  # code to copy stays on one line
        return "\n".join(
            (
                f"{self.found}; {self.limit}",
                wrapped(fix, "  ") if self.is_unread else f"  {fix}",
                f"  rule: {self.rule}",
            )
        )


def wrapped(line: str, indent: str = "") -> str:
    """Return a line as lines of at most 100 columns.

    The first line is indented by `indent`, and each further line by two more spaces.
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
    """Error of a feature that the target, the driver, the machine or the build lacks.

    The message names a target, driver, machine or build that has the feature.
    """


class TmaDriverError(TmaError, RuntimeError):
    """Error that the CUDA driver returned.

    The message shows the arguments under the driver's names.
    """


class TmaPreconditionError(TmaError, ValueError):
    """Error of a call that breaks one or more rules.

    `violations` has one entry per broken rule, and the message shows them all. The violations of
    arguments that cannot be read come first. The other violations are in libcu++'s order. The first
    of them is the violation for which the overload of `cuda::make_tma_descriptor` with element
    strides would throw. libcu++ differs in two ways. Its overload without element strides checks
    the rank before the device. With DLPack 1.2 and later, libcu++ refuses strides that are NULL,
    while this package reads them as row-major.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> try:
    ...     tma.make_tma_descriptor(np.zeros((64, 64), np.float16), box_sizes=(300, 6))
    ... except tma.TmaPreconditionError as error:
    ...     [violation.rule for violation in error.violations]
    ['BOX_RANGE', 'BOX_INNER_16B']
    """

    violations: tuple[Violation, ...] = computed_later("_find_violations")  # type: ignore[assignment]

    def __init__(self, violations: Violation | Sequence[Violation]) -> None:
        if isinstance(violations, Violation):
            violations = (violations,)
        self.violations = tuple(violations)

    @classmethod
    def _deferred(
        cls, find_violations: Callable[[], tuple[Violation, ...]]
    ) -> TmaPreconditionError:
        """Return an error that computes its violations on first use."""
        error = cls.__new__(cls)
        error.__dict__["_find_violations"] = find_violations
        return error

    def _finder(self) -> Callable[[], tuple[Violation, ...]]:
        """Return a function that returns the violations and does not keep the error alive."""
        find: Callable[[], tuple[Violation, ...]] | None = self.__dict__.get("_find_violations")
        if find is not None:
            return find
        violations = self.violations
        return lambda: violations

    @property
    def args(self) -> tuple[Any, ...]:
        """The message in a tuple, as in every exception."""
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
    """Return the violation of an argument that cannot be read."""
    return Violation(ARGUMENT_ID, argument, found, f"it must {must}", fix, ARGUMENT_SOURCE)


def argument_error(argument: str, found: str, must: str, fix: str) -> TmaPreconditionError:
    """Return the error of an argument that cannot be read."""
    return TmaPreconditionError(argument_violation(argument, found, must, fix))


def bad_value(argument: str, value: object, must: str, fix: str) -> TmaPreconditionError:
    """Return the error of an argument whose value is wrong; the message shows the value."""
    return argument_error(argument, f"{argument} is {shown(value)}", must, fix)


def at_least(argument: str, value: object, least: int = 1, usual: int | None = None) -> int:
    """Return an argument as an int; raise an error if it is not an int, or is below `least`."""
    number = integer_of(value)
    if number is None or number < least:
        fix = f"pass {argument}={least if usual is None else usual}"
        raise bad_value(argument, value, f"be an integer of at least {least}", fix)
    return number


class TmaTargetError(TmaPreconditionError, TmaUnsupportedError):
    """Error of a call that breaks a rule because the target lacks the feature."""
