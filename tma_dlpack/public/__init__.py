"""Decorators and base classes that public classes and functions share.

Some decorators set a class's module or copy a signature. Others prevent torch.compile from tracing
a function. Notebooks show instances of the base class `Drawn` as pictures.

This module also handles Ctrl-C while the command line starts. Starting takes time, because
importing NumPy alone takes 0.1 s. If Ctrl-C interrupted an import, Python would print a traceback.
Importing this module therefore makes Ctrl-C end the command line without a traceback, until
`raise_as_usual` is called. `tma_dlpack` imports this module before all its other modules.

A public class has the decorator `@public`, so that tracebacks and `help()` show `tma_dlpack` as its
module.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise


def is_program(words: Sequence[str]) -> bool:
    """Return whether the words of a Python command start the command line of this package.

    >>> is_program(["python", "-m", "tma_dlpack", "demo"]), is_program(["python", "-m", "pytest"])
    (True, False)
    """
    if ("-m", "tma_dlpack") in pairwise(words):
        return True
    return any(word.replace("\\", "/").split("/")[-1] == "tma-dlpack" for word in words[:2])


IS_PROGRAM = is_program(sys.orig_argv)


def end_at_once() -> None:
    """Make Ctrl-C end the process without a traceback, until `raise_as_usual` is called."""
    if IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_as_usual() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again. `main` and some commands handle this exception."""
    if IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


end_at_once()

import functools
import importlib
import inspect
import re
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar, cast

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

#: Class name -> (module, function). The function returns the HTML of an instance. The module is
#: imported when an instance is first shown. The packages that define the functions fill this dict,
#: so that this package need not import these packages.
PICTURES: dict[str, tuple[str, str]] = {}


def public(kind: C) -> C:
    """Set the module of a class to `tma_dlpack`, which tracebacks, pickles and help() then show."""
    kind.__module__ = "tma_dlpack"
    return kind


def public_in(room: str) -> Callable[[C], C]:
    """Return a decorator that sets the module of a class to `room`.

    Users import the class from `room`.
    """

    def named(kind: C) -> C:
        kind.__module__ = room
        return kind

    return named


def imported_later(room: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], Any]:
    """Return a module's function ``__getattr__``, which imports each attribute on first access.

    Parameters
    ----------
    room : str
        The name of the module that gets the function ``__getattr__``.
    modules : dict
        Name of another module -> the attributes that this other module provides. An attribute may
        also be a submodule of the other module.
    """

    def of_room(name: str) -> Any:
        for module, names in modules.items():
            if name in names:
                try:
                    value = getattr(importlib.import_module(module), name)
                except AttributeError:  # `name` is a submodule that nothing has imported yet
                    value = importlib.import_module(f"{module}.{name}")
                setattr(sys.modules[room], name, value)
                return value
        raise AttributeError(f"module {room!r} has no attribute {name!r}", name=name)

    return of_room


class Drawn:
    """Base class of the classes that have a picture.

    A notebook shows an instance as its picture.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        # If `PICTURES` has no entry for a subclass, the entry of its base class is used.
        drawn = (kind.__name__ for kind in type(self).__mro__)
        module, function = next(PICTURES[name] for name in drawn if name in PICTURES)
        html: str = getattr(importlib.import_module(module), function)(self)
        return html


class lazy(Generic[T]):  # noqa: N801 # a decorator
    """A variant of ``functools.cached_property`` without a lock.

    Up to Python 3.11, `cached_property` holds a lock while it computes the value. If the process
    forks at that time, no thread of the child process releases the lock. Without a lock, two
    threads may compute the value at the same time. Then both threads return the value that was
    stored first.

    >>> class Tile:
    ...     @lazy
    ...     def array(self):
    ...         return print("working") or [1, 2]
    >>> tile = Tile()
    >>> tile.array is tile.array
    working
    True
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.name: str = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        if instance is None:
            return self  # type: ignore[return-value] # tools read the docstring of `self`
        value = self.function(instance)
        kept: T = instance.__dict__.setdefault(self.name, value)  # atomic
        return kept


class computed_later:  # noqa: N801 # as `lazy`
    """An attribute whose value is computed on first use, by a function that the instance stores.

    The function may be defined in a package that the module of the class cannot import. For
    example, the errors are defined in `tables`. When the text of an error is read, a function of
    `checks` finds the violations.

    Parameters
    ----------
    source : str
        The key of the function in the instance's ``__dict__``. The function has no parameters.

    Examples
    --------
    >>> class Error:
    ...     text = computed_later("find_text")
    >>> error = Error()
    >>> error.find_text = lambda: print("working") or "refused"
    >>> error.text, error.text
    working
    ('refused', 'refused')
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        known = instance.__dict__  # several threads may read the attribute at the same time
        find = known.get(self.source)
        if find is not None:
            known[self.name] = find()
            known.pop(self.source, None)
        elif self.name not in known:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        return known[self.name]


# -- torch.compile ---------------------------------------------------------------------------------

#: With ``fullgraph=True``, torch.compile raises an error if it must end its graph. torch adds this
#: text to the error.
REASON = (
    "a graph has no addresses; make maps and read their numbers before the compiled function, or "
    "inside of a torch.library.custom_op such as those of tma_dlpack.torch_ops"
)


def untraced(function: F) -> F:
    """Make torch.compile end its graph before a call of this function.

    torch.compile may nevertheless trace the functions that this function calls. The decorator adds
    no run time. Use it for functions whose arguments and results are neither tensors nor arrays.
    For other functions, use `opaque`.

    >>> untraced(lambda x: x)(3)
    3
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = REASON  # type: ignore[attr-defined]
    return function


@untraced
def _stop() -> tuple[Callable[[Any], Any], Any] | None:
    """Stop torch.compile's tracing in this thread.

    Return a value for `_go_on`, which resumes the tracing. Return None if torch.compile is not
    loaded.
    """
    if "torch._dynamo.eval_frame" not in sys.modules:
        return None
    set_callback = sys.modules["torch._C._dynamo.eval_frame"].set_eval_frame
    return set_callback, set_callback(None)


@untraced
def _go_on(stopped: tuple[Callable[[Any], Any], Any]) -> None:
    set_callback, callback = stopped
    set_callback(callback)


def opaque(function: F) -> F:
    """Make torch.compile run a function and its callees without tracing.

    torch.compile ends its graph before the call, and compiles nothing until the function returns.
    ``torch.compiler.disable`` has the same effect, but using it would import torch. The decorator
    also changes the TypeError for an unknown keyword: the error suggests the parameter that the
    caller probably meant.

    >>> @opaque
    ... def make(x, oobfill): ...
    >>> make(1, oob_fill="nan")
    Traceback (most recent call last):
    TypeError: make() got an unexpected keyword argument 'oob_fill'; did you mean oobfill?
    """

    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        stopped = None
        try:
            # torch.compile may also trace `called` itself. To prevent this, `_stop` ends the graph
            # inside of this `try`. torch.compile does not trace a function in which a graph ends
            # inside of a `try`.
            stopped = _stop()
            return function(*args, **keywords)
        except TypeError:
            explained = _explained(function, keywords)
            if explained is None:
                raise
            raise explained from None
        finally:
            if stopped is not None:
                _go_on(stopped)

    return untraced(cast(F, called))


# -- signatures ------------------------------------------------------------------------------------

#: Names that users write for a parameter. Each line has the names of one parameter: first the name
#: in this package, then the driver's name, then other names.
_SYNONYMS = tuple(
    line.split()
    for line in """
    box_sizes box_dim box boxDim box_size box_shape block_shape tile tile_shape
    elem_strides element_strides elementStrides traversal_strides
    interleave_layout interleave
    swizzle swizzle_mode swizzling
    l2_fetch_size l2_promotion l2Promotion l2
    oobfill oob_fill oobFill fill oob_fill_mode
    data_type tensor_data_type dtype
    shape global_dim globalDim
    strides global_strides globalStrides
    pixel_box_lower_corner lower lower_corner
    pixel_box_upper_corner upper upper_corner
    channels_per_pixel channels
    pixels_per_column pixels
    tensor_rank rank
    global_address address
    """.strip().splitlines()
)
#: Names of arguments that only im2col maps have.
_OF_IM2COL = frozenset(
    ("pixel_box_lower_corner", "pixel_box_upper_corner", "channels_per_pixel", "pixels_per_column",
     "kernel_size", "padding", "dilation", "stride")
)  # fmt: skip
#: Parameter -> its order and unit. The error for an unknown keyword shows this text.
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


def _explained(function: Callable[..., Any], keywords: dict[str, Any]) -> TypeError | None:
    """Return a TypeError that names an unknown keyword and suggests a similar parameter.

    Return None if the function has all keywords as parameters. The function must not have a
    parameter ``**keywords``.
    """
    names = inspect.signature(function).parameters.keys()
    unknown = [word for word in keywords if word not in names]
    if not unknown:
        return None
    name = _meant(unknown[0], names)
    hint = f"; did you mean {name}{_ORDER.get(name, '')}?" if name else ""
    if not name and (others := _OF_IM2COL.intersection(unknown)):
        other = function.__name__.replace("tma_descriptor", "im2col_descriptor")
        hint = f"; {min(others)} is an argument of {other}, or of make_conv_descriptor"
    found = f"{function.__qualname__}() got an unexpected keyword argument {unknown[0]!r}"
    return TypeError(found + hint)


def _meant(word: str, names: Collection[str]) -> str | None:
    for synonyms in _SYNONYMS:
        if word in synonyms and (meant := set(names).intersection(synonyms)):
            return min(meant)
    import difflib  # imported here, because the import takes 1 ms

    near = difflib.get_close_matches(word, names, n=1, cutoff=0.75)
    return near[0] if near else None


def with_arguments_of(
    model: Callable[P, object],
) -> Callable[[Callable[[Any, dict[str, Any]], R]], Callable[P, R]]:
    """Return a decorator that copies the signature of `model`, except the return type.

    The function that is decorated must have two parameters: the first argument, and a dict of all
    other arguments by name, including defaults. A wrong call raises the same TypeError as a call of
    a function that is defined with the copied signature.

    >>> def make(x, size=1, *, mode="a"): ...
    >>> @with_arguments_of(make)
    ... def check(x, options) -> bool:
    ...     return x, options
    >>> check(5, mode="b")
    (5, {'size': 1, 'mode': 'b'})
    >>> inspect.signature(check)
    <Signature (x, size=1, *, mode='a') -> 'bool'>
    """

    def decorate(function: Callable[[Any, dict[str, Any]], R]) -> Callable[P, R]:
        own, of_model = inspect.signature(function), inspect.signature(model)
        first, *rest = of_model.parameters.values()
        of_own = next(iter(own.parameters.values()))
        parameters = [first if of_own.name == first.name else of_own, *rest]
        shown = of_model.replace(parameters=parameters, return_annotation=own.return_annotation)
        defaults = {p.name: p.default for p in parameters}
        required = [p.name for p in parameters if p.default is p.empty]
        positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

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
                names = {first.name: of_own.name, of_own.name: first.name}
                _raise_as_python(model, function.__name__, names, *args, **keywords)
            return function(given.pop(of_own.name), given)

        called.__signature__ = shown  # type: ignore[attr-defined]
        notes = {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
        called.__annotations__ = {**notes, "return": shown.return_annotation}
        return called

    return decorate


class OfMany(Protocol[P, R_co]):
    """A function of many tensors with the same options as a function of one tensor."""

    def __call__(self, tensors: Iterable[Any], *args: P.args, **keywords: P.kwargs) -> R_co: ...


def with_options_of(
    model: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[[Any, dict[str, Any]], R]], OfMany[P, R]]:
    """Return a decorator that gives a function the parameters of `model`, except the first.

    The decorated function keeps its own first parameter, which is called `tensors`.

    >>> def make(x, size=1): ...
    >>> @with_options_of(make)
    ... def make_many(tensors, options) -> list:
    ...     return [(x, options) for x in tensors]
    >>> make_many(tensors=[5], size=2)
    [(5, {'size': 2})]
    >>> make_many(size=2)
    Traceback (most recent call last):
    TypeError: make_many() missing 1 required positional argument: 'tensors'
    """
    return with_arguments_of(cast(Any, model))


def _raise_as_python(
    model: Callable[..., object], name: str, names: dict[str, str], *args: Any, **keywords: Any
) -> NoReturn:
    """Raise Python's TypeError for arguments that do not fit the signature of `model`.

    In the text of the error, `name` replaces the name of `model`. The dict `names` maps parameter
    names of the text to their replacements.
    """
    try:
        model(*args, **{names.get(word, word): value for word, value in keywords.items()})
    except TypeError as error:
        text = str(error).replace(model.__name__, name, 1)
        text = re.sub("(?<=')\\w+(?=')", lambda word: names.get(word[0], word[0]), text)
        raise TypeError(text) from None
    raise AssertionError("the arguments fit")
