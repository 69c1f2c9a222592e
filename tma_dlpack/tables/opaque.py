"""Mark functions that torch.compile must run as they are instead of tracing into them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

#: What torch adds where it must not leave the graph (``fullgraph=True``).
REASON = (
    "a graph has no addresses; make maps and read their numbers before the compiled function, or "
    "inside of a torch.library.custom_op such as those of tma_dlpack.torch_ops"
)


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


@untraced
def _stop() -> tuple[Callable[[Any], Any], Any] | None:
    """Stop tracing in this thread; give what `_go_on` needs, or None where nobody traces."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        return None
    set_callback = sys.modules["torch._C._dynamo.eval_frame"].set_eval_frame
    return set_callback, set_callback(None)


@untraced
def _go_on(stopped: tuple[Callable[[Any], Any], Any]) -> None:
    set_callback, callback = stopped
    set_callback(callback)


def opaque(function: F) -> F:
    """Let torch.compile run a function, and all that it calls, as it is.

    torch.compile ends its graph before the call, and compiles nothing until the function returns:
    what ``torch.compiler.disable`` does, but without importing torch.

    >>> opaque(lambda x: x)(3)
    3
    """

    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        stopped = None
        try:
            # Inside of `try`, because torch.compile, which is given this call too, skips a function
            # that leaves its graph there.
            stopped = _stop()
            return function(*args, **keywords)
        finally:
            if stopped is not None:
                _go_on(stopped)

    return untraced(cast(F, called))
