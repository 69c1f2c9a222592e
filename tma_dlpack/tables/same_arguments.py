"""Let one function take the arguments of another; answer keywords of another library's words."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

#: What people write for a parameter: the driver's words for ours, and ours for the driver's.
_SYNONYMS: dict[str, str] = {
    "box_sizes": "box box_dim boxDim box_size box_shape block_shape tile tile_shape",
    "elem_strides": "element_strides elementStrides traversal_strides",
    "interleave_layout": "interleave",
    "swizzle": "swizzle_mode swizzling",
    "l2_fetch_size": "l2_promotion l2Promotion l2",
    "oobfill": "oob_fill oobFill fill oob_fill_mode",
    "data_type": "dtype tensor_data_type",
    "shape": "global_dim globalDim",
    "strides": "global_strides globalStrides",
    "pixel_box_lower_corner": "lower lower_corner",
    "pixel_box_upper_corner": "upper upper_corner",
    "channels_per_pixel": "channels",
    "pixels_per_column": "pixels",
    "box_dim": "box box_sizes boxDim box_size box_shape block_shape tile tile_shape",
    "element_strides": "elem_strides elementStrides traversal_strides",
    "interleave": "interleave_layout",
    "l2_promotion": "l2_fetch_size l2Promotion l2",
    "oob_fill": "oobfill oobFill fill",
    "tensor_data_type": "data_type dtype",
    "tensor_rank": "rank",
    "global_address": "address",
    "global_dim": "shape globalDim",
    "global_strides": "strides globalStrides",
}
#: The order and unit of parameters that one may get wrong.
_ORDER = {
    "box_sizes": " (row-major)",
    "elem_strides": " (row-major)",
    "shape": " (row-major)",
    "strides": " (row-major, in elements)",
    "box_dim": " (innermost first)",
    "element_strides": " (innermost first)",
    "global_dim": " (innermost first)",
    "global_strides": " (innermost first, in bytes)",
}


def explaining_keywords(function: F) -> F:
    """Name the parameter that an unknown keyword means, in the TypeError of Python.

    >>> @explaining_keywords
    ... def make(x, oobfill): ...
    >>> make(1, oob_fill="nan")
    Traceback (most recent call last):
    TypeError: make() got an unexpected keyword argument 'oob_fill'; did you mean oobfill?
    """
    names = inspect.signature(function).parameters.keys()

    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        if not keywords.keys() <= names:
            unknown = keywords.keys() - names
            word = next(word for word in keywords if word in unknown)
            name = _meant(word, names)
            hint = f"; did you mean {name}{_ORDER.get(name, '')}?" if name else ""
            said = f"{function.__name__}() got an unexpected keyword argument {word!r}{hint}"
            raise TypeError(said)
        return function(*args, **keywords)

    return cast(F, called)


def _meant(word: str, names: Collection[str]) -> str | None:
    for name, others in _SYNONYMS.items():
        if name in names and word in others.split():
            return name
    import difflib  # a millisecond that only a wrong name needs

    near = difflib.get_close_matches(word, names, n=1, cutoff=0.75)
    return near[0] if near else None


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
