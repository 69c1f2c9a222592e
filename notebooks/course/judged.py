"""Helpers for functions that judge an exercise: hide tracebacks, and count copies."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tma_dlpack.copies import verbs


def without_traceback(judge: Callable[..., str]) -> Callable[..., str]:
    """Return a function that calls `judge`, and returns one line if the answer raises an exception.

    >>> @without_traceback
    ... def judged(function):
    ...     return f"solved: {function() + 1}"
    >>> judged(lambda: None)
    "not yet: TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'"
    """

    @functools.wraps(judge)
    def judged(*answers: Any) -> str:
        try:
            return judge(*answers)
        # An answer is code that may raise any exception. A learner needs the message of the
        # exception, but not the traceback of the judge.
        except Exception as error:
            first, *_ = str(error).splitlines() or [""]
            return f"not yet: {type(error).__name__}: {first}"

    return judged


@contextmanager
def counted_copies() -> Iterator[Counter[str]]:
    """Yield a counter of the tile loads and the tile stores that run inside the ``with`` block."""
    counts: Counter[str] = Counter()

    def counting(kind: str, request: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            # `request` raises an exception if the copy is refused, so count after this call.
            checked = request(*arguments, **options)
            counts[kind] += 1
            return checked

        return made

    # Every load of a tile calls `verbs.load_request`, and every store calls `verbs.store_request`.
    loads = counting("load", verbs.load_request)
    stores = counting("store", verbs.store_request)
    with mock.patch.multiple(verbs, load_request=loads, store_request=stores):
        yield counts
