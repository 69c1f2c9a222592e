"""What public classes have in common: they belong to the package, and notebooks may draw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["PICTURES", "Drawn", "public"]

C = TypeVar("C", bound=type)

#: Class name -> what gives its HTML. The package's `__init__` fills it: this room draws nothing.
PICTURES: dict[str, Callable[[Any], str]] = {}


def public(kind: C) -> C:
    """Let a class name the package as its module, in tracebacks, pickles and help()."""
    kind.__module__ = "tma_dlpack"
    return kind


class Drawn:
    """A class whose objects a notebook shows as a picture."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        drawn = (kind.__name__ for kind in type(self).__mro__)  # a subclass as its base
        return next(PICTURES[name] for name in drawn if name in PICTURES)(self)
