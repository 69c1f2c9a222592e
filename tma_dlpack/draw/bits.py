"""The 128 bytes of a map: where each field stands, what it says, and how two maps differ."""

from __future__ import annotations

import string
import textwrap
from dataclasses import dataclass, replace

from tma_dlpack.draw.door import MAKE_ONE, require
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.scene import Box, Item, Scene, Text, text_width
from tma_dlpack.encoding import bits
from tma_dlpack.encoding.arguments import MapKind
from tma_dlpack.encoding.bits import ENGINE_BYTES, Field
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.enums import TmaInterleaveLayout, TmaL2FetchSize, TmaOobFill, TmaSwizzle
from tma_dlpack.types.limits import MAP_BYTES
from tma_dlpack.types.opaque import opaque

__all__ = ["FieldValue", "MapBytes", "Segment", "diff", "fields_of"]

LINE_BITS = 64
_NOT_DERIVED = "l2_promotion and bytes 64 to 127: as on sm_90, not shown by the compiler"
KEYS = string.ascii_lowercase + string.ascii_uppercase
_ENUMS = {
    "interleave": TmaInterleaveLayout,
    "swizzle": TmaSwizzle,
    "oob_fill": TmaOobFill,
    "l2_promotion": TmaL2FetchSize,
}


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive bits of one field within one line of 8 bytes; `key` names the field."""

    bit: int
    width: int
    key: str
    field: str


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One field, as every map that is shown has it.

    Attributes
    ----------
    key : str
        The letter that stands for it in the picture.
    field : str
        Such as ``global_dim[1]``.
    bits : str
        Such as ``64..70``.
    values : tuple of str
        Decoded, one per map; ``-`` where a map has no such field.
    stored : tuple of str
        What the bits hold where that is not the value itself, such as ``0x3f`` of 64; else empty.
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
        In the order of the bits. Of two maps of different kinds: the first one's.
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
        used = {bit // LINE_BITS for bit in (*self.changed, *(s.bit for s in self.segments))}
        used |= {
            n
            for n in range(MAP_BYTES // 8)
            if any(d[8 * n : 8 * n + 8].strip(b"\0") for d in self.data)
        }
        return tuple(sorted(used | set(range(ENGINE_BYTES // 8))))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not drawn, and how sure the layout is."""
        left = MAP_BYTES // 8 - len(self.lines)
        two_kinds = any("-" in v.values for v in self.values)
        return (
            *([f"the other {8 * left} bytes are 0"] if left else []),
            *(["letters: fields of the first map"] if two_kinds else []),
            *(
                ["in brackets: the stored number, where it is value - 1 or in units of 16 bytes"]
                if any(any(v.stored) for v in self.values)
                else []
            ),
            f"layout {self.provenance}",
            *([_NOT_DERIVED] if self.provenance == bits.DERIVED else []),
        )

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


@opaque
def fields_of(tensor_map: TensorMap) -> MapBytes:
    """Show the 128 bytes of a map with their fields.

    Raises
    ------
    TmaPreconditionError
        For what is no map.
    TmaUnsupportedError
        If the map has no bytes here (see `TensorMap.encoder`).

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> [(v.field, v.values) for v in fields_of(tm).values if v.field.startswith("box_dim")]
    [('box_dim[0]', ('64',)), ('box_dim[1]', ('8',))]
    """
    require("tensor_map", tensor_map, (TensorMap,), MAKE_ONE)
    return _figure(
        (tensor_map,), f"the 128 bytes of the map ({tensor_map.kind}, {tensor_map.target})"
    )


@opaque
def diff(a: TensorMap, b: TensorMap) -> MapBytes:
    """Show where the 128 bytes of two maps differ, bit by bit and field by field.

    Raises
    ------
    TmaPreconditionError
        If one of them is no map.
    TmaUnsupportedError
        If one of them has no bytes here.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> a = tma.make_tma_descriptor(x, (8, 64))
    >>> b = tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128")
    >>> [(v.field, *v.values) for v in diff(a, b).values if v.differs]
    [('swizzle', 'none', 'bytes128'), ('swizzle_repeat_bytes', '16', '1024')]
    """
    for argument, value in (("a", a), ("b", b)):
        require(argument, value, (TensorMap,), MAKE_ONE)
    figure = _figure((a, b), "")
    names = [v.field for v in figure.values if v.differs]
    title = f"two maps: {len(figure.changed)} bits differ" + (", in " if names else "")
    title += ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return replace(figure, title=title)


def _figure(maps: tuple[TensorMap, ...], title: str) -> MapBytes:
    data = tuple(map(bytes, maps))
    kinds = [(tm.kind, tm.rank) for tm in maps]
    derived = [not tm.target.has_model for tm in maps]
    shown = [
        f
        for f in (bits.DERIVED_FIELDS if any(derived) else bits.FIELDS)
        if any(f.exists(*kind) for kind in kinds)
    ]
    keys = {f.label: KEYS[n] for n, f in enumerate(shown)}
    words = [int.from_bytes(d, "little") for d in data]
    changed = words[0] ^ words[-1]
    return MapBytes(
        title=title,
        data=data,
        segments=_segments(kinds[0], keys, derived[0]),
        values=tuple(
            FieldValue(
                keys[f.label],
                f.label,
                ", ".join(f"{bit}..{bit + w - 1}" if w > 1 else f"{bit}" for bit, w in f.pieces),
                tuple(
                    _value(f, tm, d) if f.exists(*kind) else "-"
                    for tm, d, kind in zip(maps, data, kinds, strict=True)
                ),
                tuple(
                    _stored(f, d) if f.exists(*kind) else ""
                    for d, kind in zip(data, kinds, strict=True)
                ),
            )
            for f in shown
        ),
        changed=tuple(bit for bit in range(8 * MAP_BYTES) if changed >> bit & 1),
        **({"provenance": bits.DERIVED} if any(derived) else {}),
    )


def _segments(
    kind: tuple[MapKind, int], keys: dict[str, str], derived: bool
) -> tuple[Segment, ...]:
    pieces = sorted(
        (bit, width, f.label)
        for f in bits.fields_of(*kind, derived=derived)
        for bit, width in f.pieces
    )
    return tuple(
        Segment(max(bit, begin), min(bit + width, begin + LINE_BITS) - max(bit, begin), keys[f], f)
        for bit, width, f in pieces
        for begin in range(bit // LINE_BITS * LINE_BITS, bit + width, LINE_BITS)
    )


def _value(field: Field, tensor_map: TensorMap, data: bytes) -> str:
    """Decode a field, with the names of the header."""
    value = bits.read(field, data)
    if field.name in _ENUMS:
        return _ENUMS[field.name](value).name
    if field.name == "element_type":
        return f"{value} ({tensor_map.data_type.name})"
    if field.name == "global_address":
        return f"{value:#x}"
    return f"{value} bytes" if field.name == "global_strides" else str(value)


def _stored(field: Field, data: bytes) -> str:
    """Give the raw bits of a field that holds its value less one, or in units; else nothing."""
    if not field.bias and field.unit == 1:
        return ""
    return f"{bits.read(field, data) // field.unit - field.bias:#x}"


# --- Drawing ------------------------------------------------------------------------------------

BIT = 8  # px
GUTTER, HEAD, BAND, HEX, MARK = 52, 32, 18, 15, 7
ROW, GAP, NOTE_COLUMNS = 15, 6, 88
KEY_X, FIELD_X, BITS_X, VALUE_X = 12, 44, 196, 318


def _bits_panel(figure: MapBytes) -> Scene:
    width = GUTTER + BIT * LINE_BITS + 10
    items: list[Item] = [Text(10, 20, "byte", "muted")]
    items += [Text(GUTTER + 8 * BIT * (n + 0.5), 20, f"+{n}", "muted", "middle") for n in range(8)]
    y = float(HEAD)
    for n in figure.lines:
        drawn, y = _bits_line(figure, n, y)
        items += drawn
    for note in ("bit 0 of each byte at the left; letters: see the table", *figure.notes):
        for line in textwrap.wrap(note, NOTE_COLUMNS, subsequent_indent="  "):
            items.append(Text(10, y + 10, line, "muted"))
            y += ROW
    return Scene(width, y + 8, f"{figure.title}: bits", tuple(items))


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
    tint = f"tint{KEYS.index(s.key) % 8}"
    last = s.bit + s.width - 1
    bits = f"bits {s.bit}..{last}" if last > s.bit else f"bit {s.bit}"
    about = f"{s.field}: {bits}"
    return Box(x, y, s.width * BIT, BAND, tint, (label,), about, key=s.field)


def _values_panel(figure: MapBytes) -> Scene:
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
            Box(KEY_X, y, 14, 13, f"tint{KEYS.index(v.key) % 8}", (v.key,), v.field, key=v.field),
            Text(FIELD_X, y + 10, v.field, style),
            Text(BITS_X, y + 10, v.bits, "muted"),
            *(Text(x, y + 10, value, style) for x, value in zip(columns, v.shown, strict=True)),
        ]
        if v.differs:
            items.append(Text(FIELD_X - 12, y + 10, "≠", "alarm"))
        y += ROW
    width = max(columns[-1] + text_width("0" * widest[-1]), VALUE_X + 104) + 14
    return Scene(width, y + 12, f"{figure.title}: values", tuple(items))
