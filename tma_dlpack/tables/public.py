"""What public classes share: their `__module__` is the package, and notebooks can draw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

#: Class name -> function that gives its HTML. The package's `__init__` fills it, so that this room
#: need not import `draw`.
PICTURES: dict[str, Callable[[Any], str]] = {}


def public(kind: C) -> C:
    """Set the module of a class to the package, for tracebacks, pickles and help()."""
    kind.__module__ = "tma_dlpack"
    return kind


class Drawn:
    """Base of the classes that notebooks show as a picture."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        drawn = (kind.__name__ for kind in type(self).__mro__)  # a subclass is drawn as its base
        return next(PICTURES[name] for name in drawn if name in PICTURES)(self)
