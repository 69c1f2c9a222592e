"""Attributes that are computed when first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 # a decorator
    """As ``functools.cached_property``, but without its lock.

    Up to Python 3.11 that holds a lock while it works; in the child of a process that forks
    meanwhile nobody releases it. Here two threads may compute the value at the same time; both get
    the one that is kept.

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
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        if instance is None:
            return self  # type: ignore[return-value] # what documentation looks at
        value = self.function(instance)
        kept: T = instance.__dict__.setdefault(self.name, value)  # atomic
        return kept
