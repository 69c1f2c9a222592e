"""The bytes of a map as a figure: a band of fields per 8 bytes, and the table of their values."""

from __future__ import annotations

import string
from dataclasses import dataclass

from tma_dlpack.draw.captions import notes_below
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.scene import Box, Item, Scene, Text, text_width
from tma_dlpack.tables.bits import DERIVED, ENGINE_BYTES
from tma_dlpack.tables.limits import MAP_BYTES

LINE_BITS = 64
KEYS = string.ascii_letters  # of the fields, in the order of the table
BIT = 8  # px
GUTTER, HEAD, BAND, HEX, MARK = 52, 32, 18, 15, 7
ROW, GAP, NOTE_COLUMNS = 15, 6, 88
KEY_X, FIELD_X, BITS_X, VALUE_X = 12, 44, 196, 318
_NOT_DERIVED = "bytes 64 to 127: as on sm_90, not derived"


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive bits of one field within one line of 8 bytes; `key` names the field."""

    bit: int
    width: int
    key: str
    field: str


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One field of the layout, and its value in each map that is shown.

    Attributes
    ----------
    key : str
        The letter that stands for it in the picture.
    field : str
        Such as ``global_dim[1]``.
    bits : str
        Such as ``64..70``.
    values : tuple of str
        Decoded, one per map; ``-`` if the map has no such field.
    stored : tuple of str
        The number that the bits hold if it is not the value itself, such as ``0x3f`` for 64; else
        empty.
    """

    key: str
    field: str
    bits: str
    values: tuple[str, ...]
    stored: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The values, each with what is stored where that differs."""
        pairs = zip(self.values, self.stored or ("",) * len(self.values), strict=True)
        return tuple(f"{value} ({raw})" if raw else value for value, raw in pairs)

    @property
    def differs(self) -> bool:
        """Whether two maps disagree."""
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True, repr=False)
class MapBytes(Figure):
    """The bytes of one map, or of two to compare.

    Attributes
    ----------
    data : tuple of bytes
        128 bytes per map.
    segments : tuple of Segment
        In the order of the bits. For two maps of different kinds: those of the first.
    values : tuple of FieldValue
    changed : tuple of int
        Bits that differ between the two.
    provenance : str
        How the layout is known.
    """

    title: str
    data: tuple[bytes, ...]
    segments: tuple[Segment, ...]
    values: tuple[FieldValue, ...]
    changed: tuple[int, ...]
    provenance: str = "measured on an H200 (driver 580.159.04), not published"

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines of 8 bytes that are drawn: those the engine uses, and others that are not 0."""
        used = {segment.bit // LINE_BITS for segment in self.segments}
        used |= {bit // LINE_BITS for bit in self.changed}
        used |= {place // 8 for data in self.data for place, byte in enumerate(data) if byte}
        return tuple(sorted(used | set(range(ENGINE_BYTES // 8))))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not drawn, and how sure the layout is."""
        left = MAP_BYTES // 8 - len(self.lines)
        notes = [f"the other {8 * left} bytes are 0"] if left else []
        if any("-" in v.values for v in self.values):
            notes.append("letters: fields of the first map")
        if any(any(v.stored) for v in self.values):
            notes.append(
                "in brackets: the stored number, where it is value - 1 or in units of 16 bytes"
            )
        notes.append(f"layout {self.provenance}")
        if self.provenance == DERIVED:
            notes.append(_NOT_DERIVED)
        return tuple(notes)

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to a panel of bits and a panel of values."""
        return _bits_panel(self), _values_panel(self)

    def text(self) -> str:
        """Give the bytes in hexadecimal, and the fields as a table."""
        rows = []
        for n in self.lines:
            for data in self.data:
                rows.append(f"byte {8 * n:>3}  " + data[8 * n : 8 * n + 8].hex(" "))
        widths = [max(len(v.shown[i]) for v in self.values) for i in range(len(self.data))]
        for v in self.values:
            shown = "  ".join(f"{s:<{w}}" for s, w in zip(v.shown, widths, strict=True))
            mark = "≠" if v.differs else " "
            rows.append(f"{mark} {v.field:<26} bits {v.bits:<18} {shown}".rstrip())
        return "\n".join([self.title, *rows, *self.notes])


def _bits_panel(figure: MapBytes) -> Scene:
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


def _values_panel(figure: MapBytes) -> Scene:
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
