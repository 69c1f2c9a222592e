"""Asynchronous operations between their issue and their completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Pending:
    """An asynchronous event; `Machine.add` lets it happen when the schedule says so.

    Attributes
    ----------
    what : str
        For the explanation of a hang and the timeline.
    after : sequence of Pending
        Events that happen before it.
    happened : bool
    """

    machine: Any
    code: Any
    what: str
    after: Sequence[Pending]
    issued_at: Any

    def __init__(self, g: Any, what: str, after: Sequence[Pending] = ()) -> None:
        self.machine, self.code, self.what, self.after = g.machine, g.code, what, after
        self.issued_at = g.machine.steps
        self.happened = False

    def happen(self) -> None:
        """Change memory and barriers."""
        raise NotImplementedError
