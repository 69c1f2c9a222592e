"""Functions that torch.compile runs as they are, instead of tracing into them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

__all__ = ["opaque", "untraced"]

F = TypeVar("F", bound=Callable[..., Any])

#: What torch adds where it must not leave the graph (``fullgraph=True``).
REASON = (
    "tma_dlpack needs addresses, which a graph does not have: call it inside of a "
    "torch.library.custom_op, or use tma_dlpack.torch_ops"
)


def opaque(function: F) -> F:
    """Let torch.compile run a function, and all that it calls, as it is.

    torch.compile ends its graph before the call, and compiles nothing until the function returns:
    what ``torch.compiler.disable`` does, but without importing torch.

    >>> opaque(lambda x: x)(3)
    3
    """
    return untraced(_Call()(function))


def untraced(function: F) -> F:
    """Let torch.compile end its graph before a call of this function.

    What the function calls may still be traced; it is enough for functions that neither take nor
    make tensors or arrays, and it costs nothing.

    >>> untraced(lambda x: x)(3)
    3
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = REASON  # type: ignore[attr-defined]
    return function


class _Call(ContextDecorator):
    """A call as it is, made by contextlib: a module in which torch.compile traces nothing."""

    def _recreate_cm(self) -> _Call:
        # that module is there as soon as somebody uses torch.compile
        return _UntracedCall() if "torch._dynamo.eval_frame" in sys.modules else self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class _UntracedCall(_Call):
    """Takes torch.compile's callback, which is given every Python call, away until the end."""

    def __enter__(self) -> None:
        self._set_callback = sys.modules["torch._C._dynamo.eval_frame"].set_eval_frame
        self._callback = self._set_callback(None)

    def __exit__(self, *error: object) -> None:
        self._set_callback(self._callback)
