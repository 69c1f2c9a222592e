"""`Pending`, an asynchronous event that has been issued and has not happened yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Pending:
    """An asynchronous event; after `Machine.add` the schedule decides when it happens.

    Attributes
    ----------
    what : str
        Text for the timeline.
    after : sequence of Pending
        Events that must happen before this event.
    happened : bool
    """

    machine: Any
    code: Any
    what: str
    after: Sequence[Pending]

    def __init__(self, g: Any, what: str, after: Sequence[Pending] = ()) -> None:
        self.machine, self.code, self.what, self.after = g.machine, g.code, what, after
        self.happened = False

    def happen(self) -> None:
        """Perform the event's changes of memory and barriers."""
        raise NotImplementedError
