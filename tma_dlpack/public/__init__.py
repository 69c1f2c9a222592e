"""Shared parts of public classes and functions: module, pictures, signatures, torch.compile.

The package imports this module before all others, because it begins with the handling of Ctrl-C
while the command line starts: it ends without a traceback. Importing NumPy alone takes a tenth of a
second, and Python prints a traceback if an import is interrupted.

Classes that users see get `@public`, so that tracebacks and `help()` say `tma_dlpack`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise


def is_program(words: Sequence[str]) -> bool:
    """Whether Python was started for the command line of this package.

    >>> is_program(["python", "-m", "tma_dlpack", "demo"]), is_program(["python", "-m", "pytest"])
    (True, False)
    """
    if ("-m", "tma_dlpack") in pairwise(words):
        return True
    return any(word.replace("\\", "/").split("/")[-1] == "tma-dlpack" for word in words[:2])


IS_PROGRAM = is_program(sys.orig_argv)


def end_at_once() -> None:
    """Let Ctrl-C end the process, until `raise_as_usual` is called."""
    if IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_as_usual() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, which `main` and running commands handle."""
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

#: Class name -> module and function that make its HTML, imported when the first picture is shown.
#: Higher packages fill it, so that this package need not know them.
PICTURES: dict[str, tuple[str, str]] = {}


def public(kind: C) -> C:
    """Set the module of a class to the package, for tracebacks, pickles and help()."""
    kind.__module__ = "tma_dlpack"
    return kind


def public_in(room: str) -> Callable[[C], C]:
    """Set the module of a result class to the room from which users import it."""

    def named(kind: C) -> C:
        kind.__module__ = room
        return kind

    return named


def imported_later(room: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a room that imports each name when it is first asked for.

    Parameters
    ----------
    room : str
        The module whose names they are.
    modules : dict
        Module -> the names that it defines, and the names of modules in it.
    """

    def of_room(name: str) -> Any:
        for module, names in modules.items():
            if name in names:
                try:
                    value = getattr(importlib.import_module(module), name)
                except AttributeError:  # a module that nothing has imported yet
                    value = importlib.import_module(f"{module}.{name}")
                setattr(sys.modules[room], name, value)
                return value
        raise AttributeError(f"module {room!r} has no attribute {name!r}", name=name)

    return of_room


class Drawn:
    """Base of the classes that notebooks show as a picture."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        drawn = (kind.__name__ for kind in type(self).__mro__)  # a subclass is drawn as its base
        module, function = next(PICTURES[name] for name in drawn if name in PICTURES)
        html: str = getattr(importlib.import_module(module), function)(self)
        return html


class lazy(Generic[T]):  # noqa: N801 # a decorator
    """As ``functools.cached_property``, but without its lock.

    Up to Python 3.11, `cached_property` holds a lock while it computes. If the process forks at
    that time, nobody releases the lock in the child. Without a lock, two threads may compute the
    value at the same time; both get the value that is kept.

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
            return self  # type: ignore[return-value] # what documentation looks at
        value = self.function(instance)
        kept: T = instance.__dict__.setdefault(self.name, value)  # atomic
        return kept


class computed_later:  # noqa: N801 # as `lazy`
    """An attribute that is computed on first use by a function that its instance got.

    The function may be of a room below the room of the class: an error of `tables` gets its
    violations from `checks` when its text is read.

    Parameters
    ----------
    source : str
        The item of the instance's ``__dict__`` with the function, which takes no arguments.

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
        known = instance.__dict__  # which several threads may read at once
        find = known.get(self.source)
        if find is not None:
            known[self.name] = find()
            known.pop(self.source, None)
        elif self.name not in known:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        return known[self.name]


# -- torch.compile ---------------------------------------------------------------------------------

#: The text that torch adds if it must not leave the graph (``fullgraph=True``).
REASON = (
    "a graph has no addresses; make maps and read their numbers before the compiled function, or "
    "inside of a torch.library.custom_op such as those of tma_dlpack.torch_ops"
)


def untraced(function: F) -> F:
    """Let torch.compile end its graph before a call of this function.

    torch may still trace functions that it calls. This is enough for functions without tensors or
    arrays in their arguments and results, and costs nothing.

    >>> untraced(lambda x: x)(3)
    3
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = REASON  # type: ignore[attr-defined]
    return function


@untraced
def _stop() -> tuple[Callable[[Any], Any], Any] | None:
    """Stop tracing in this thread.

    Return the arguments of `_go_on`, or None if nothing is traced.
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

    torch.compile ends its graph before the call, and compiles nothing until the function returns,
    as with ``torch.compiler.disable``, but without importing torch. The TypeError for an unknown
    keyword names the parameter that it means.

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
            # Inside of `try`, because torch.compile, which is given this call too, skips a function
            # that leaves its graph there.
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

#: What people write for a parameter: a line has our name, the driver's, and others for the same.
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
#: Arguments of im2col maps alone.
_OF_IM2COL = frozenset(
    ("pixel_box_lower_corner", "pixel_box_upper_corner", "channels_per_pixel", "pixels_per_column",
     "kernel_size", "padding", "dilation", "stride")
)  # fmt: skip
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


def _explained(function: Callable[..., Any], keywords: dict[str, Any]) -> TypeError | None:
    """Return Python's TypeError for an unknown keyword, with the parameter that it means.

    The function must not take any keyword (``**keywords``).
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
    import difflib  # a millisecond that only a wrong name needs

    near = difflib.get_close_matches(word, names, n=1, cutoff=0.75)
    return near[0] if near else None


def with_arguments_of(
    model: Callable[P, object],
) -> Callable[[Callable[[Any, dict[str, Any]], R]], Callable[P, R]]:
    """Copy the signature of `model` to a function, except the return type.

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
    """A function with the options of another, for many tensors."""

    def __call__(self, tensors: Iterable[Any], *args: P.args, **keywords: P.kwargs) -> R_co: ...


def with_options_of(
    model: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[[Any, dict[str, Any]], R]], OfMany[P, R]]:
    """Return a function of `tensors` the signature of `model`, except the first parameter.

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
    """Raise Python's TypeError for arguments that do not fit `model`, with other names."""
    try:
        model(*args, **{names.get(word, word): value for word, value in keywords.items()})
    except TypeError as error:
        text = str(error).replace(model.__name__, name, 1)
        text = re.sub("(?<=')\\w+(?=')", lambda word: names.get(word[0], word[0]), text)
        raise TypeError(text) from None
    raise AssertionError("the arguments fit")
