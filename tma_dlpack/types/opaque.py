"""Functions that torch.compile runs as they are, instead of tracing into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["opaque"]

F = TypeVar("F", bound=Callable[..., Any])


def opaque(function: F) -> F:
    """Mark a function as ``torch.compiler.disable`` does, without importing torch.

    Dynamo then ends its graph at the call, and runs the function with real tensors.

    >>> opaque(lambda x: x)(3)
    3
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function
