"""The 128 bytes of a map: the place and value of each field, and how two maps differ."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tma_dlpack.draw.figure import MAKE_ONE, Figure, require
from tma_dlpack.draw.grid import (
    MARGIN,
    NARROW,
    Cell,
    Grid,
    Scene,
    label,
    lay_out,
    text_width,
    words,
)
from tma_dlpack.public import opaque
from tma_dlpack.tables.arguments import ENUMS
from tma_dlpack.tables.bits import DERIVED_FIELDS, ENGINE_BYTES, FIELDS, Field
from tma_dlpack.tables.bits import fields_of as fields_in
from tma_dlpack.tables.coerce import aligned, counted
from tma_dlpack.tables.targets import DERIVED, MAP_BYTES
from tma_dlpack.tensor_map.map import TensorMap

LINE_BITS = 64
UNIT, NARROW_UNIT = (8, 18), (3.8, 18)  # px: width of a bit, height of a band of fields
MARK_ROWS, HEX_ROWS, GAP_ROWS = 0.4, 0.8, 0.3  # heights in rows of the parts below a band
ROW = 15  # px: height of a row in the table of values
KEY_WIDTH, FIELD_X, BITS_X, VALUE_X, LEAST_VALUE = 20, 34, 202, 324, 104
NARROW_FIELD_X = 26
#: Group of fields -> the style of the group, and the letter of each field in it. A field that is in
#: no group has a small letter and no colour.
GROUPS = {
    "address": ("tint0", {"global_address": "A"}),
    "extents": ("tint1", {"global_dim": "D"}),
    "strides": ("tint2", {"global_strides": "S"}),
    "box": (
        "tint3",
        {
            "box_dim": "B",
            "channels_per_pixel": "C",
            "pixels_per_column": "P",
            "pixel_box_lower_corner": "L",
            "pixel_box_upper_corner": "U",
        },
    ),
}
REST = "the rest"
GROUP_OF = {field: group for group, (_, letters) in GROUPS.items() for field in letters}
LETTERS = {field: letter for _, letters in GROUPS.values() for field, letter in letters.items()}
MEASURED = "measured on an H200 (driver 580.159.04), not published"
STORED = "in brackets: the stored number, where it is value - 1 or in units of 16 bytes"
#: Field that every copy reads -> the words of the caption for this field.
READ = {
    "global_address": "where the tensor begins",
    "global_dim[0]": "how long its rows are",
    "global_strides[0]": "how far apart",
    "box_dim[0]": "what a tile takes of them",
    "swizzle": "how it is swizzled",
}
HIDDEN = "host address"  # text in place of a host address, which differs in every run


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive bits of one field in one line of 8 bytes; `key` has the letters of the field."""

    bit: int
    width: int
    key: str
    field: str

    def cell(self, row: float, unit: float) -> Cell:
        """Draw the segment with `key`, and with the field's name if it fits.

        A bit is `unit` px wide.
        """
        named, last = f"{self.key} {self.field}", self.bit + self.width - 1
        where = f"bits {self.bit}..{last}" if self.width > 1 else f"bit {self.bit}"
        name = named if text_width(named) <= self.width * unit - 6 else self.key
        place, about = (self.bit % LINE_BITS, row), f"{self.field}: {where}"
        return Cell(*place, _style(self.field), name, about, self.width, key=self.field)


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One field of the layout, and its value in each shown map.

    Attributes
    ----------
    key : str
        The letters that represent the field in the picture, such as ``D1``.
    field : str
        The name of the field, such as ``global_dim[1]``.
    bits : str
        The bit numbers of the field in the map, such as ``64..70``.
    values : tuple of str
        The decoded value in each map; ``-`` if a map has no such field.
    shown : tuple of str
        The values as the picture shows them. If the bits store a number that differs from the
        value, the stored number follows, as in ``64 (0x3f)``. A host address is omitted.
    """

    key: str
    field: str
    bits: str
    values: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def group(self) -> str:
        """The group of the field: a key of `GROUPS`, or `REST`."""
        return _group(self.field)

    @property
    def differs(self) -> bool:
        """Whether the two maps have different values."""
        return len(set(self.values)) > 1


def values_scene(values: tuple[FieldValue, ...], heads: tuple[str, ...], about: str) -> Scene:
    """Draw the table of fields: key, name, bit numbers, and the value in each map."""
    x, columns = float(VALUE_X), []
    for n in range(len(heads)):
        columns.append(x)
        x += max([LEAST_VALUE, *(text_width(v.shown[n]) + 12 for v in values)])
    titles = ((FIELD_X, "field"), (BITS_X, "bits"), *zip(columns, heads, strict=True))
    cells = [words(x, 0, text, "muted", ROW) for x, text in titles]
    cells += _groups(values, columns)
    notes = () if values else ["no field differs"]
    return lay_out(about, [Grid(tuple(cells))], notes=notes)


def narrow_values_scene(values: tuple[FieldValue, ...], about: str) -> Scene:
    """Draw the table for a phone: all fields of one map, or the fields in which two maps differ."""
    if values and len(values[0].shown) == 1:
        x = NARROW_FIELD_X + max(text_width(v.field) for v in values) + 8
        return lay_out(about, [Grid(tuple(_groups(values, (x,), is_narrow=True)))], is_narrow=True)
    differ = tuple(v for v in values if v.differs)
    cells = []
    # Two columns of values do not fit, so each field has two rows: its name, then its change.
    for n, v in enumerate(differ):
        cells += _line(v, 2 * ROW * n, (), is_narrow=True)
        change = " → ".join(v.shown)
        cells.append(words(NARROW_FIELD_X, ROW * (2 * n + 1), change, "alarm", ROW))
    note = "the other fields do not differ" if differ else "no field differs"
    return lay_out(about, [Grid(tuple(cells))], notes=[note], is_narrow=True)


def _groups(
    values: tuple[FieldValue, ...], columns: Sequence[float], *, is_narrow: bool = False
) -> list[Cell]:
    """Draw the fields below the names of their groups."""
    cells, row = [], 1
    groups: dict[str, list[FieldValue]] = {group: [] for group in (*GROUPS, REST)}
    for v in values:
        groups[v.group].append(v)
    for group, own in groups.items():
        if own:
            cells.append(words(0, ROW * row, group, "strong", ROW))
            row += 1
        for v in own:
            cells += _line(v, ROW * row, columns, is_narrow=is_narrow)
            row += 1
    return cells


def _line(
    v: FieldValue, y: float, columns: Sequence[float], *, is_narrow: bool = False
) -> list[Cell]:
    """Draw a row of the table: the letters of the field, its name, its bits, and its values."""
    style, x = "alarm" if v.differs else "label", NARROW_FIELD_X if is_narrow else FIELD_X
    cells = [Cell(0, y + 1, _style(v.field), v.key, v.field, KEY_WIDTH, 13, key=v.field)]
    cells.append(words(x, y, v.field, style, ROW))
    for place, text in zip(columns, v.shown, strict=False):
        # On a phone, move a long value to the left, so that it ends at the edge of the panel.
        room = NARROW - 2 * MARGIN - text_width(text) if is_narrow else place
        cells.append(words(min(place, room), y, text, style, ROW))
    if not is_narrow:
        cells.append(words(BITS_X, y, v.bits, "muted", ROW))
    if v.differs and not is_narrow:
        cells.append(words(FIELD_X - 12, y, "≠", "alarm", ROW))
    return cells


def _group(field: str) -> str:
    return GROUP_OF.get(field.partition("[")[0], REST)


def _style(field: str) -> str:
    group = _group(field)
    return "cell" if group == REST else GROUPS[group][0]


def _keys(fields: Iterable[str]) -> dict[str, str]:
    """Return the letters of each field: a capital letter with an index, or a small letter."""
    keys, small = {}, iter(string.ascii_lowercase)
    for field in dict.fromkeys(fields):
        name, _, index = field.partition("[")
        keys[field] = LETTERS[name] + index[:-1] if name in LETTERS else next(small)
    return keys


# --- One map, or two ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class MapBytes(Figure):
    """The bytes of one map, or of two maps to compare.

    Attributes
    ----------
    data : tuple of bytes
        128 bytes per map.
    segments : tuple of Segment
        The segments of the first map, in the order of their bits.
    values : tuple of FieldValue
    changed : tuple of int
        Numbers of the bits that differ.
    provenance : str
        Whether the layout is measured or derived.
    """

    title: str
    data: tuple[bytes, ...]
    segments: tuple[Segment, ...]
    values: tuple[FieldValue, ...]
    changed: tuple[int, ...]
    provenance: str

    @property
    def lines(self) -> tuple[int, ...]:
        """Indices of the drawn lines of 8 bytes.

        A line is not drawn if three conditions hold: the engine does not read the line, no field is
        in the line, and all bytes of the line are 0.
        """
        used = {segment.bit // LINE_BITS for segment in self.segments}
        used |= {bit // LINE_BITS for bit in self.changed}
        used |= {place // 8 for data in self.data for place, byte in enumerate(data) if byte}
        return tuple(sorted(used | set(range(ENGINE_BYTES // 8))))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on bytes that are not drawn, on the marks, and on the source of the layout."""
        left = 8 * (MAP_BYTES // 8 - len(self.lines))
        shown = {value for v in self.values for value in v.shown}
        notes = [f"the other {left} bytes are 0"] * (left > 0)
        notes += ["letters: fields of the first map"] * ("-" in shown)
        notes += [STORED] * any("(0x" in value for value in shown)
        notes += [f"··: {HIDDEN}, another one in each run"] * (HIDDEN in shown)
        notes += [f"layout {self.provenance}"]
        notes += ["bytes 64 to 127: as on sm_90, not derived"] * (self.provenance == DERIVED)
        return tuple(notes)

    def hexadecimal(self, n: int) -> list[list[str]]:
        """Return the bytes of line n of each map; bytes of a host address are dots."""
        address = next(v for v in self.values if v.field == "global_address")
        lines = []
        for data, shown in zip(self.data, address.shown, strict=True):
            is_hidden = n == 0 and shown == HIDDEN
            lines.append(["··"] * 8 if is_hidden else data[8 * n : 8 * n + 8].hex(" ").split())
        return lines

    @property
    def sentence(self) -> str:
        """The caption: fields that a copy reads, or the number of bits in which two maps differ."""
        if len(self.data) > 1:
            bits = counted(len(self.changed), "bit")
            return f"[{bits}](is-changed) differ: they are marked, and the fields that have them."
        named = {v.field for v in self.values}
        said = (f"[{words}]({field})" for field, words in READ.items() if field in named)
        return f"A copy reads all of it: {', '.join(said)}."

    def scenes(self) -> tuple[Scene, ...]:
        """Return a panel of bits and a panel of values."""
        heads = ("value",) if len(self.data) == 1 else ("first", "second")
        return self._bits(UNIT), values_scene(self.values, heads, f"{self.title}: values")

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panels for a phone: narrower bits, and values without bit numbers."""
        about = f"{self.title}: values"
        return self._bits(NARROW_UNIT, is_narrow=True), narrow_values_scene(self.values, about)

    def _bits(self, unit: tuple[float, int], *, is_narrow: bool = False) -> Scene:
        # For each line of 8 bytes, draw a band of fields, marks of changed bits, then the bytes of
        # each map.
        cells, row = [label(0, -1, "byte")], 0.0
        cells += [Cell(8 * n, -1, "muted", f"+{n}", columns=8) for n in range(8)]
        for n in self.lines:
            cells += [label(0, row, f"{8 * n}"), Cell(0, row, "padding", columns=LINE_BITS)]
            cells += [s.cell(row, unit[0]) for s in self.segments if s.bit // LINE_BITS == n]
            row += 1
            changed = [bit for bit in self.changed if bit // LINE_BITS == n]
            for bit in changed:
                title = f"bit {bit} differs"
                place = bit % LINE_BITS, row, "changed", "", title
                cells.append(Cell(*place, rows=MARK_ROWS, to=("is-changed",)))
            row += MARK_ROWS * bool(changed)
            for line in self.hexadecimal(n):
                for k, byte in enumerate(line):
                    style = "muted" if byte == "00" else "strong"
                    cells.append(Cell(8 * k, row, style, byte, "", 8, HEX_ROWS))
                row += HEX_ROWS
            row += GAP_ROWS
        notes = ("bit 0 of each byte at the left; letters: see the table", *self.notes)
        grid = Grid(tuple(cells), unit)
        return lay_out(f"{self.title}: bits", [grid], notes=notes, is_narrow=is_narrow)

    def text(self) -> str:
        """Return the bytes in hexadecimal, and the fields as a table."""
        rows = [
            f"byte {8 * n:>3}  {' '.join(line)}" for n in self.lines for line in self.hexadecimal(n)
        ]
        shown = aligned([v.shown for v in self.values], left=len(self.data))
        for v, text in zip(self.values, shown, strict=True):
            mark = "≠" if v.differs else " "
            rows.append(f"{mark} {v.field:<26} bits {v.bits:<18} {text}".rstrip())
        return "\n".join([self.title, *rows, *self.notes])


@opaque
def fields_of(tensor_map: TensorMap) -> MapBytes:
    """Show the 128 bytes of a map with their fields.

    Parameters
    ----------
    tensor_map : TensorMap

    Returns
    -------
    MapBytes
        `values` has an entry per field, with its bit numbers, its decoded value and the stored
        number.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is not a TensorMap.
    TmaUnsupportedError
        If the map has no bytes on this machine (see `TensorMap.encoder`).

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> [(v.field, v.values) for v in fields_of(tm).values if v.field.startswith("box_dim")]
    [('box_dim[0]', ('64',)), ('box_dim[1]', ('8',))]
    """
    require("tensor_map", tensor_map, (TensorMap,), MAKE_ONE)
    title = f"the 128 bytes of the map ({tensor_map.kind}, {tensor_map.target})"
    return _map_bytes((tensor_map,), title)


@opaque
def diff(a: TensorMap, b: TensorMap) -> MapBytes:
    """Show where the 128 bytes of two maps differ, bit by bit and field by field.

    Parameters
    ----------
    a, b : TensorMap

    Returns
    -------
    MapBytes
        `changed` has the numbers of the bits that differ. An entry of `values` has the flag
        `differs`.

    Raises
    ------
    TmaPreconditionError
        If `a` or `b` is not a TensorMap.
    TmaUnsupportedError
        If `a` or `b` has no bytes on this machine.

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
    figure = _map_bytes((a, b), "")
    names = [v.field for v in figure.values if v.differs]
    title = f"two maps: {len(figure.changed)} bits differ" + ", in " * bool(names)
    title += ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)
    return replace(figure, title=title)


def _map_bytes(maps: tuple[TensorMap, ...], title: str) -> MapBytes:
    derived = any(not tm.target.has_model for tm in maps)
    own = [fields_in(tm.kind, tm.rank, derived=derived) for tm in maps]
    # The fields of all maps, in the order of the layout. Maps of two kinds have different fields.
    fields = [f for f in (DERIVED_FIELDS if derived else FIELDS) if any(f in of for of in own)]
    keys = _keys(f.label for f in fields)
    # Bit n of a map is bit n of the little-endian number that its bytes form.
    first, last = (int.from_bytes(bytes(tm), "little") for tm in (maps[0], maps[-1]))
    changed = tuple([bit for bit in range(8 * MAP_BYTES) if (first ^ last) >> bit & 1])
    hosts = {tm.global_address for tm in maps if is_of_host_tensor(tm)}
    values = []
    for f in fields:
        places = [f"{bit}..{bit + w - 1}" if w > 1 else f"{bit}" for bit, w in f.pieces]
        pairs = zip(maps, own, strict=True)
        read = [_value(f, tm, hosts) if f in of else ("-", "-") for tm, of in pairs]
        values.append(
            FieldValue(keys[f.label], f.label, ", ".join(places), *zip(*read, strict=True))
        )
    data, segments = tuple(map(bytes, maps)), _segments(maps[0], keys)
    provenance = DERIVED if derived else MEASURED
    return MapBytes(title, data, segments, tuple(values), changed, provenance)


def _segments(tensor_map: TensorMap, keys: dict[str, str]) -> tuple[Segment, ...]:
    """Return the fields of a map as segments; a field is cut at the end of a line of 8 bytes."""
    derived = not tensor_map.target.has_model
    fields = fields_in(tensor_map.kind, tensor_map.rank, derived=derived)
    pieces = sorted((bit, width, f.label) for f in fields for bit, width in f.pieces)
    return tuple(
        Segment(max(bit, begin), min(bit + width, begin + LINE_BITS) - max(bit, begin), keys[f], f)
        for bit, width, f in pieces
        for begin in range(bit // LINE_BITS * LINE_BITS, bit + width, LINE_BITS)
    )


def is_of_host_tensor(tensor_map: TensorMap) -> bool:
    """Return whether the tensor is in host memory.

    Pictures omit a host address, because it differs in each run.
    """
    return tensor_map.tensor is not None and not tensor_map.launchable


def _value(field: Field, tensor_map: TensorMap, hosts: set[int]) -> tuple[str, str]:
    """Return the decoded value of a field as text, and the text that the picture shows."""
    value = field.read(bytes(tensor_map))
    if field.name == "global_address":
        return f"{value:#x}", HIDDEN if value in hosts else f"{value:#x}"
    name = ENUMS[field.name](value).name if field.name in ENUMS else f"{value}"
    if field.name == "element_type":
        name += f" ({tensor_map.data_type.name})"
    name += " bytes" * (field.name == "global_strides")
    # The bits hold value / unit - bias: extents are stored minus 1, strides in units of 16 bytes.
    raw = f" ({value // field.unit - field.bias:#x})" if field.bias or field.unit > 1 else ""
    return name, name + raw
