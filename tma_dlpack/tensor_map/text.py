"""A map as text for terminals, at most 100 columns wide: values in both orders, and the bytes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from tma_dlpack.tables.arguments import CORNERS, OPTION_NAMES
from tma_dlpack.tables.bits import noted_bits
from tma_dlpack.tables.coerce import aligned
from tma_dlpack.tables.errors import COLUMNS, Advice, TmaUnsupportedError, wrapped
from tma_dlpack.tables.fields import DERIVED
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tensor_map.attributes import MapAttributes

#: Advice that the text of a map shows: a shape, strides or offset that may not be what was meant.
SHOWN_WITH_THE_MAP = ("STRIDES_IN_BYTES", "BEYOND_TENSOR", "ALLOCATION_CLASS")
ALL_ZERO = (
    "an all-zero map: all 128 bytes are 0, as before the first tensormap.replace;\n"
    "a copy with it is an illegal instruction (CUDA error 715)"
)


def map_text(tensor_map: MapAttributes, advice: Iterable[Advice] = ()) -> str:
    """Return the values of a map in row-major and in innermost-first order, with advice."""
    a = tensor_map.arguments
    if tensor_map.is_zero:
        return ALL_ZERO
    head = [
        f"{a.kind} map of {a.data_type.name}, rank {a.rank}, at {tensor_map.global_address:#x}",
        tile_line(tensor_map),
        *([f"read from bytes by a layout {DERIVED}"] if tensor_map.is_derived else []),
    ]
    rows = [("row-major", "", "innermost first", ""), *map_rows(tensor_map)]
    further = [wrapped(line) for line in remarks(tensor_map, advice)]
    return "\n".join([*head, *_columns(rows), *further])


def remarks(tensor_map: MapAttributes, advice: Iterable[Advice]) -> tuple[str, ...]:
    """Return advice on a shape that may be wrong, and notes on set bits that no argument sets."""
    shown = (f"advice: {a.found}; {a.limit}" for a in advice if a.rule in SHOWN_WITH_THE_MAP)
    return (*shown, *noted_bits(tensor_map._data or bytes(MAP_BYTES)))


def tile_line(tensor_map: MapAttributes) -> str:
    """Return the bytes of one tile as text, or why no copy is possible, wrapped to lines."""
    try:
        return (
            f"one tile: {tensor_map.tx_bytes} bytes copied, {tensor_map.smem_bytes} bytes of "
            f"shared memory, aligned to {tensor_map.smem_alignment}"
        )
    except TmaUnsupportedError as error:
        return textwrap.fill(f"no copy is possible: {error}", COLUMNS)


def map_rows(tensor_map: MapAttributes) -> list[tuple[str, str, str, str]]:
    """Return rows of (our name, row-major value, the driver's name, innermost-first value)."""
    a = tensor_map.arguments

    def both(ours: str, theirs: str) -> tuple[str, str, str, str]:
        return ours, _list(getattr(tensor_map, ours)), theirs, _list(getattr(a, theirs))

    strides, strides_bytes = _strides(tensor_map), _list(a.global_strides)
    rows = [
        both("shape", "global_dim"),
        ("strides (elements)", strides, "global_strides (bytes)", strides_bytes),
    ]
    if a.kind == "tiled":
        rows.append(both("box_sizes", "box_dim"))
    else:
        for name in CORNERS:
            corner = getattr(a, name)
            rows.append((name, _list(corner[::-1]), "the same, W first", _list(corner)))
        rows.append(("channels_per_pixel", f"{a.channels_per_pixel}", "", ""))
        rows.append(("pixels_per_column", f"{a.pixels_per_column}", "", ""))
    rows.append(both("elem_strides", "element_strides"))
    for (ours, theirs), option in zip(OPTION_NAMES.items(), a.enums, strict=True):
        rows.append((ours, option.name, theirs, f"{int(option)}"))
    # Only maps made with these options show them.
    if tensor_map.split_inner:
        rows.append(("split_inner", "True", "", ""))
    if tensor_map.ragged is not None:
        rows.append(("ragged", f"{tensor_map.ragged}", "", ""))
    return rows


def map_line(tensor_map: MapAttributes) -> str:
    """Return a map as one line of at most 100 columns; last parts that do not fit are omitted."""
    a = tensor_map.arguments
    if tensor_map.is_zero:
        return f"<TensorMap all-zero: 128 zero bytes, {tensor_map.target}>"
    tile = (
        f", box {tensor_map.box_sizes}"
        if a.kind == "tiled"
        else f", {a.pixels_per_column} pixels x {a.channels_per_pixel} channels"
    )
    options = "".join(
        f", {name} {value.name}"
        for name, value in (("interleave", a.interleave), ("swizzle", a.swizzle))
        if value
    )
    place = f", at {tensor_map.global_address:#x}, {tensor_map.target}"
    line = f"<TensorMap {a.kind} {a.data_type.name} shape {tensor_map.shape}"
    # The most important parts come first, because the last ones may be omitted.
    for part in (tile, options, place):
        # keep room for the end of a line that omits the next part
        if len(line) + len(part) + len(", ...>") > COLUMNS:
            return f"{line}, ...>"
        line += part
    return f"{line}>"


def _list(values: Iterable[int]) -> str:
    return str(tuple(values))


def _strides(tensor_map: MapAttributes) -> str:
    try:
        return _list(tensor_map.strides)
    except TmaUnsupportedError:
        bits = tensor_map.arguments.type_row.element_bits
        return f"(not a whole number of {bits}-bit values)"


def _columns(rows: list[tuple[str, str, str, str]]) -> list[str]:
    """Return lines with both orders side by side, or row-major first if they are too wide."""
    lines = _aligned(rows)
    if max(map(len, lines)) <= COLUMNS:
        return lines
    # rows without an innermost-first value, such as channels_per_pixel, are in the first block only
    return _aligned([row[:2] for row in rows]) + _aligned([row[2:] for row in rows if row[2]])


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"  {line}".rstrip() for line in aligned(rows, left=4)]
