"""What stands below a picture: notes, line by line, and the entries of a legend."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from tma_dlpack.draw.scene import Box, Item, Text

NOTE_HEIGHT = 16  # px from one line to the next
BASELINE = 10  # px from the top of a line


def notes_below(
    notes: Iterable[str], y: float, columns: int | None = None, pitch: float = NOTE_HEIGHT
) -> tuple[list[Item], float]:
    """Write notes below each other, from `y` down; give them, and the y where they end.

    Notes longer than `columns` characters are wrapped; None wraps nothing.

    >>> items, end = notes_below(["one", "two"], 100)
    >>> [(item.y, item.text) for item in items], end
    ([(110, 'one'), (126, 'two')], 132)
    """
    items: list[Item] = []
    for note in notes:
        lines = [note] if columns is None else textwrap.wrap(note, columns, subsequent_indent="  ")
        for line in lines:
            items.append(Text(10, y + BASELINE, line, "muted"))
            y += pitch
    return items, y


def legend_entry(
    x: float, y: float, style: str, said: str, lines: tuple[str, ...] = (), hatched: bool = False
) -> list[Item]:
    """Draw a sample cell at (x, y), and say beside it what such cells are."""
    return [
        Box(x, y, 22, 14, style, lines, hatched=hatched),
        Text(x + 28, y + 11, said, "muted"),
    ]
