"""Let one function take the arguments of another, so that the signature is written once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def with_arguments_of(
    model: Callable[P, object],
) -> Callable[[Callable[[Any, dict[str, Any]], R]], Callable[P, R]]:
    """Give a function the signature of `model`, but for what it returns.

    The function itself has two parameters: the first argument, and a dict of all others, by name,
    with the defaults filled in. Wrong calls raise the same TypeError as with the signature in full.

    >>> def make(x, size=1, *, mode="a"): ...
    >>> @with_arguments_of(make)
    ... def check(x, options) -> bool:
    ...     return x, options
    >>> check(5, mode="b")
    (5, {'size': 1, 'mode': 'b'})
    >>> inspect.signature(check)
    <Signature (x, size=1, *, mode='a') -> 'bool'>
    """
    signature = inspect.signature(model)
    parameters = signature.parameters.values()
    defaults = {p.name: p.default for p in parameters}
    required = [p.name for p in parameters if p.default is p.empty]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    def decorate(function: Callable[[Any, dict[str, Any]], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **keywords: P.kwargs) -> R:
            placed = dict(zip(positional, args, strict=False))
            given = {**defaults, **placed, **keywords}
            if (
                len(args) > len(positional)
                or len(given) > len(defaults)
                or not placed.keys().isdisjoint(keywords)
                or any(given[name] is inspect.Parameter.empty for name in required)
            ):
                _raise_as_python(model, function.__name__, *args, **keywords)
            return function(given.pop(required[0]), given)

        own = inspect.signature(function)
        shown = signature.replace(return_annotation=own.return_annotation)
        called.__signature__ = shown  # type: ignore[attr-defined]
        called.__annotations__ = {**model.__annotations__, "return": shown.return_annotation}
        return called

    return decorate


def _raise_as_python(
    model: Callable[..., object], name: str, *args: Any, **keywords: Any
) -> NoReturn:
    """Raise what Python raises for arguments that do not fit `model`, but for `name`."""
    try:
        model(*args, **keywords)
    except TypeError as error:
        raise TypeError(str(error).replace(model.__name__, name, 1)) from None
    raise AssertionError("the arguments fit")
