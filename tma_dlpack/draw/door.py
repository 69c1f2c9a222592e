"""The check of the argument types that every figure calls first."""

from __future__ import annotations

from tma_dlpack.tables.coerce import type_name
from tma_dlpack.tables.errors import refusal

MAKE_ONE = "pass make_tma_descriptor(x, ...)"


def require(argument: str, value: object, kinds: tuple[type, ...], fix: str) -> None:
    """Refuse a value that is an instance of none of `kinds`, without calling its methods.

    >>> require("title", 3, (str,), "pass a word")
    Traceback (most recent call last):
    tma_dlpack.TmaPreconditionError: title is of type int; it must be a str
      fix: pass a word
      rule: ARGUMENT (tma_dlpack: the type of the argument)
    """
    if issubclass(type(value), kinds):
        return
    names = " or a ".join(kind.__name__ for kind in kinds)
    raise refusal(argument, f"{argument} is of type {type_name(type(value))}", f"be a {names}", fix)
