"""Errors, and what they carry: a `Violation` names what was found, the limit, a fix and the source.

`TmaError` is the base class. Its subclasses follow C++: where `cuda::make_tma_descriptor` throws
`std::invalid_argument`, we raise a `ValueError`; for its `std::runtime_error`, a `RuntimeError`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import NoReturn, TypeVar

COLUMNS = 100
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
        wrong type.
    argument : str
        The argument of the call that it is about, such as ``"box_sizes"``.
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

    def __str__(self) -> str:
        fix = f"fix: {self.fix}"  # on one line, to copy; only lists of choices are wrapped
        return "\n".join(
            (
                f"{self.found}; {self.limit}",
                wrapped(fix, "  ") if self.rule == "ARGUMENT" else f"  {fix}",
                f"  rule: {self.rule}",
            )
        )


def wrapped(line: str, indent: str = "") -> str:
    """Return a line broken at `COLUMNS`; the lines that follow are indented by two more."""
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
    """The target, driver, machine or build cannot do it; the message says what could."""


class TmaDriverError(TmaError, RuntimeError):
    """The CUDA driver returned an error; the message shows each argument under its driver name."""


class TmaPreconditionError(TmaError, ValueError):
    """The call breaks one or more rules; `violations` has all of them, in libcu++'s order.

    The message shows all. The first is the one that `cuda::make_tma_descriptor` with element
    strides would throw, but for arguments that cannot be read, which come before all others. Two
    differences: its overload without element strides looks at the rank before the device, and since
    DLPack 1.2 it refuses strides that are NULL, which stand for row-major here.

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
        super().__init__("\n".join(map(str, self.violations)))

    def __reduce__(self) -> tuple[type, tuple[tuple[Violation, ...]]]:
        return type(self), (self.violations,)


def wrong_argument(argument: str, found: str, must: str, fix: str) -> Violation:
    """Make the violation of an argument that is of the wrong type."""
    return Violation(
        rule="ARGUMENT",
        argument=argument,
        found=found,
        limit=f"it must {must}",
        fix=fix,
        source="tma_dlpack: the type of the argument",
    )


def refusal(argument: str, found: str, must: str, fix: str) -> TmaPreconditionError:
    """Make the error of an argument that is of the wrong type."""
    return TmaPreconditionError(wrong_argument(argument, found, must, fix))


class TmaTargetError(TmaPreconditionError, TmaUnsupportedError):
    """The call breaks a rule because the target lacks the feature."""
