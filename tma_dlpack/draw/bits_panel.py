"""The bytes of a map drawn: a band of fields per 8 bytes, and the table of their values."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from tma_dlpack.draw.captions import notes_below
from tma_dlpack.draw.scene import Box, Item, Scene, Text, text_width

if TYPE_CHECKING:
    from tma_dlpack.draw.bits import MapBytes, Segment

__all__ = ["KEYS", "LINE_BITS", "bits_panel", "values_panel"]

LINE_BITS = 64
KEYS = string.ascii_letters  # of the fields, in the order of the table
BIT = 8  # px
GUTTER, HEAD, BAND, HEX, MARK = 52, 32, 18, 15, 7
ROW, GAP, NOTE_COLUMNS = 15, 6, 88
KEY_X, FIELD_X, BITS_X, VALUE_X = 12, 44, 196, 318


def bits_panel(figure: MapBytes) -> Scene:
    """Draw the lines of 8 bytes, and the notes."""
    width = GUTTER + BIT * LINE_BITS + 10
    items: list[Item] = [Text(10, 20, "byte", "muted")]
    items += [Text(GUTTER + 8 * BIT * (n + 0.5), 20, f"+{n}", "muted", "middle") for n in range(8)]
    y = float(HEAD)
    for n in figure.lines:
        drawn, y = _bits_line(figure, n, y)
        items += drawn
    notes = ("bit 0 of each byte at the left; letters: see the table", *figure.notes)
    drawn, y = notes_below(notes, y, NOTE_COLUMNS, ROW)
    return Scene(width, y + 8, f"{figure.title}: bits", (*items, *drawn))


def _bits_line(figure: MapBytes, n: int, y: float) -> tuple[list[Item], float]:
    """Draw 8 bytes from `y` on, and give where the next line begins."""
    begin = n * LINE_BITS
    items: list[Item] = [Text(GUTTER - 8, y + 13, str(8 * n), "muted", "end")]
    items.append(Box(GUTTER, y, BIT * LINE_BITS, BAND, "padding"))
    items += [
        _segment(s, GUTTER + (s.bit - begin) * BIT, y)
        for s in figure.segments
        if s.bit // LINE_BITS == n
    ]
    y += BAND
    changed = [bit for bit in figure.changed if bit // LINE_BITS == n]
    items += [
        Box(GUTTER + (bit - begin) * BIT, y, BIT, MARK, "changed", title=f"bit {bit} differs")
        for bit in changed
    ]
    y += MARK * bool(changed)
    for data in figure.data:
        y += HEX
        items += [
            Text(GUTTER + 8 * BIT * (k + 0.5), y - 3, f"{byte:02x}", "label", "middle")
            for k, byte in enumerate(data[8 * n : 8 * n + 8])
        ]
    return items, y + GAP


def _segment(s: Segment, x: float, y: float) -> Box:
    room = s.width * BIT - 6
    named = f"{s.key} {s.field}"
    label = named if text_width(named) <= room else s.key
    last = s.bit + s.width - 1
    bits = f"bits {s.bit}..{last}" if last > s.bit else f"bit {s.bit}"
    about = f"{s.field}: {bits}"
    return Box(x, y, s.width * BIT, BAND, _tint(s.key), (label,), about, key=s.field)


def values_panel(figure: MapBytes) -> Scene:
    """Draw the table of fields: key, name, bits, and the value of each map."""
    pair = len(figure.data) > 1
    widest = [max(len(v.shown[i]) for v in figure.values) for i in range(len(figure.data))]
    second = VALUE_X + max(104.0, text_width("0" * widest[0]) + 12)
    columns = [VALUE_X, second][: len(figure.data)]
    heads = ("value",) if not pair else ("first", "second")
    items: list[Item] = [
        Text(FIELD_X, 20, "field", "muted"),
        Text(BITS_X, 20, "bits", "muted"),
        *(Text(x, 20, head, "muted") for x, head in zip(columns, heads, strict=True)),
    ]
    y = float(HEAD)
    for v in figure.values:
        style = "alarm" if v.differs else "label"
        items += [
            Box(KEY_X, y, 14, 13, _tint(v.key), (v.key,), v.field, key=v.field),
            Text(FIELD_X, y + 10, v.field, style),
            Text(BITS_X, y + 10, v.bits, "muted"),
            *(Text(x, y + 10, value, style) for x, value in zip(columns, v.shown, strict=True)),
        ]
        if v.differs:
            items.append(Text(FIELD_X - 12, y + 10, "≠", "alarm"))
        y += ROW
    width = max(columns[-1] + text_width("0" * widest[-1]), VALUE_X + 104) + 14
    return Scene(width, y + 12, f"{figure.title}: values", tuple(items))


def _tint(key: str) -> str:
    return f"tint{KEYS.index(key) % 8}"
