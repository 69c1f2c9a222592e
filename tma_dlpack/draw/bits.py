"""The 128 bytes of a map: where each field stands, what it says, and how two maps differ."""

from __future__ import annotations

from dataclasses import replace

from tma_dlpack.draw.door import MAKE_ONE, require
from tma_dlpack.draw.map_bytes import KEYS, LINE_BITS, FieldValue, MapBytes, Segment
from tma_dlpack.tables import bits
from tma_dlpack.tables.bits import Field
from tma_dlpack.tables.enums import TmaInterleaveLayout, TmaL2FetchSize, TmaOobFill, TmaSwizzle
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap

_ENUMS = {
    "interleave": TmaInterleaveLayout,
    "swizzle": TmaSwizzle,
    "oob_fill": TmaOobFill,
    "l2_promotion": TmaL2FetchSize,
}


@opaque
def fields_of(tensor_map: TensorMap) -> MapBytes:
    """Show the 128 bytes of a map with their fields.

    Parameters
    ----------
    tensor_map : TensorMap

    Returns
    -------
    MapBytes
        Its `values` has a row per field: bits, decoded value, and what the bits hold.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is not a TensorMap.
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

    Parameters
    ----------
    a, b : TensorMap

    Returns
    -------
    MapBytes
        `changed` has the numbers of the bits that differ; each of `values` says whether it differs.

    Raises
    ------
    TmaPreconditionError
        If one of them is not a TensorMap.
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
    derived = any(not tm.target.has_model for tm in maps)
    fields = bits.DERIVED_FIELDS if derived else bits.FIELDS
    fields = tuple(f for f in fields if any(f.exists(tm.kind, tm.rank) for tm in maps))
    keys = {f.label: KEYS[n] for n, f in enumerate(fields)}
    first, last = (int.from_bytes(bytes(tm), "little") for tm in (maps[0], maps[-1]))
    return MapBytes(
        title=title,
        data=tuple(map(bytes, maps)),
        segments=_segments(maps[0], keys),
        values=tuple(_field_value(f, keys[f.label], maps) for f in fields),
        changed=tuple(bit for bit in range(8 * MAP_BYTES) if (first ^ last) >> bit & 1),
        **({"provenance": bits.DERIVED} if derived else {}),
    )


def _segments(tensor_map: TensorMap, keys: dict[str, str]) -> tuple[Segment, ...]:
    """Cut the fields of a map where a line of 8 bytes ends."""
    derived = not tensor_map.target.has_model
    fields = bits.fields_of(tensor_map.kind, tensor_map.rank, derived=derived)
    pieces = sorted((bit, width, f.label) for f in fields for bit, width in f.pieces)
    return tuple(
        Segment(max(bit, begin), min(bit + width, begin + LINE_BITS) - max(bit, begin), keys[f], f)
        for bit, width, f in pieces
        for begin in range(bit // LINE_BITS * LINE_BITS, bit + width, LINE_BITS)
    )


def _field_value(field: Field, key: str, maps: tuple[TensorMap, ...]) -> FieldValue:
    """Read a field of each map; ``-`` of a map without it."""
    has = [field.exists(tm.kind, tm.rank) for tm in maps]
    return FieldValue(
        key,
        field.label,
        ", ".join(f"{bit}..{bit + w - 1}" if w > 1 else f"{bit}" for bit, w in field.pieces),
        tuple(_value(field, tm) if yes else "-" for tm, yes in zip(maps, has, strict=True)),
        tuple(_stored(field, tm) if yes else "" for tm, yes in zip(maps, has, strict=True)),
    )


def _value(field: Field, tensor_map: TensorMap) -> str:
    """Decode a field, with the names of the header."""
    value = bits.read(field, bytes(tensor_map))
    if field.name in _ENUMS:
        return _ENUMS[field.name](value).name
    if field.name == "element_type":
        return f"{value} ({tensor_map.data_type.name})"
    if field.name == "global_address":
        return f"{value:#x}"
    return f"{value} bytes" if field.name == "global_strides" else str(value)


def _stored(field: Field, tensor_map: TensorMap) -> str:
    """Give the raw bits of a field that holds its value less one, or in units; else nothing."""
    if not field.bias and field.unit == 1:
        return ""
    return f"{bits.read(field, bytes(tensor_map)) // field.unit - field.bias:#x}"
