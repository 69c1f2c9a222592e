"""What goes wrong, as values: a `Violation` names what was found, the limit, a fix and the source.

`TmaError` is the root. Its kinds follow C++: what `cuda::make_tma_descriptor` reports as
`std::invalid_argument` is a `ValueError` here, its `std::runtime_error` a `RuntimeError`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import NoReturn, TypeVar

__all__ = [
    "Advice",
    "Finding",
    "TmaDriverError",
    "TmaError",
    "TmaPreconditionError",
    "TmaTargetError",
    "TmaUnsupportedError",
    "Violation",
    "refusal",
    "sealed",
]

COLUMNS = 100
T = TypeVar("T")


def sealed(frozen: type[T]) -> type[T]:
    """Let a frozen dataclass refuse to set or delete any attribute alike.

    With slots, dataclasses refuse their fields so, but end in a TypeError at properties.
    """

    def refuse(self: T, name: str, value: object = None) -> NoReturn:
        raise FrozenInstanceError(f"a {type(self).__name__} is immutable: {name} cannot be changed")

    frozen.__setattr__ = refuse  # type: ignore[method-assign, assignment]
    frozen.__delattr__ = refuse  # type: ignore[method-assign, assignment]
    return frozen


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check noticed.

    Attributes
    ----------
    rule : str
        Stable id of the row in the table of rules, such as ``"BOX_INNER_16B"``.
    argument : str
        The argument of the call that it is about, such as ``"box_sizes"``.
    found : str
        What was found, as a sentence about the argument, with units.
    limit : str
        What is asked instead; of an `Advice`, why it matters.
    fix : str
        What to change, in the words of the call (row-major, elements).
    source : str
        Where the rule stands: a document, a header line, or a measurement.
    """

    rule: str
    argument: str
    found: str
    limit: str
    fix: str
    source: str

    def __str__(self) -> str:
        fix = f"  fix: {self.fix}"  # often code to copy, so in one line; of an argument, choices
        return "\n".join(
            (
                f"{self.found}; {self.limit}",
                _wrapped(fix) if self.rule == "ARGUMENT" else fix,
                _wrapped(f"  rule: {self.rule} ({self.source})"),
            )
        )


def _wrapped(line: str) -> str:
    return textwrap.fill(
        line, COLUMNS, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


@sealed
@dataclass(frozen=True, slots=True)
class Violation(Finding):
    """A precondition that does not hold: the call is refused."""

    __str__ = Finding.__str__


@sealed
@dataclass(frozen=True, slots=True)
class Advice(Finding):
    """Something worth knowing about a call that is accepted."""

    __str__ = Finding.__str__


class TmaError(Exception):
    """Root of every error that this package raises on purpose."""


class TmaUnsupportedError(TmaError, RuntimeError):
    """What this target, driver, machine or build cannot do; the message says what could."""


class TmaDriverError(TmaError, RuntimeError):
    """The CUDA driver returned an error; the message shows each argument under its driver name."""


class TmaPreconditionError(TmaError, ValueError):
    """The call breaks preconditions; `violations` has all of them, in libcu++'s order.

    The message shows all. The first is the one that `cuda::make_tma_descriptor` with element
    strides would throw, but for arguments that cannot be read, which come before all others. Two
    differences: its overload without element strides looks at the rank before the device, and since
    DLPack 1.2 it refuses strides that are NULL, which stand for row-major here.
    """

    violations: tuple[Violation, ...]

    def __init__(self, violations: Violation | Sequence[Violation]) -> None:
        if isinstance(violations, Violation):
            violations = (violations,)
        self.violations = tuple(violations)
        super().__init__("\n".join(map(str, self.violations)))

    def __reduce__(self) -> tuple[type, tuple[tuple[Violation, ...]]]:
        return type(self), (self.violations,)


def refusal(argument: str, found: str, must: str, fix: str) -> TmaPreconditionError:
    """Make the error of an argument that is of the wrong kind."""
    return TmaPreconditionError(
        Violation(
            rule="ARGUMENT",
            argument=argument,
            found=found,
            limit=f"it must {must}",
            fix=fix,
            source="tma_dlpack: the type of the argument",
        )
    )


class TmaTargetError(TmaPreconditionError, TmaUnsupportedError):
    """A precondition that fails because the target lacks the feature asked for."""
