"""The layout of the 128 bytes of a tensor map: one table, FIELDS.

Encoding, decoding, `TensorMap.replace` and the drawings all read this table.

The layout is **measured, not published**: equal to the driver's bytes on every accepted case tried
on an NVIDIA H200 (compute capability 9.0), driver 580.159.04 = CUDA 13.0, 2026-11-20. NVIDIA may
change it. For other compute capabilities nothing is measured, and `encode` is never used there.
Tiled maps of sm_100 and later can be read all the same (`decode(..., derived=True)`), by a layout
derived from the compiler: for every field of ``tensormap.replace.tile``, the code of ptxas 13.0 for
these writes the very bits that its code for sm_90a writes, and some more (`DERIVED_FIELDS`).

Bits are counted from bit 0 of byte 0, little-endian. Bits that no field names are 0::

    byte   0        8      12          28    32              52     55      60         64
           | address | flags | stride lo | hi | dim 0..4 (-1) | estr | box or im2col | box bytes ...
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from dataclasses import dataclass
from typing import Any, Literal

from tma_dlpack.encoding.arguments import EncodeArguments, MapKind
from tma_dlpack.types.coerce import counted
from tma_dlpack.types.dtypes import DATA_TYPES
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.types.errors import TmaPreconditionError, TmaUnsupportedError, Violation
from tma_dlpack.types.limits import ADDRESS_END, MAP_BYTES, MAX_RANK, MIN_RANK_IM2COL

__all__ = [
    "DERIVED",
    "DERIVED_FIELDS",
    "FIELDS",
    "PROVENANCE",
    "Field",
    "decode",
    "element_type_bits",
    "encode",
    "fields_of",
    "read",
    "write",
]

ENGINE_BYTES = 64  # the engine reads only the first 64 bytes [measured]
STRIDE_UNIT_BYTES = 16
DERIVED = "derived from ptxas 13.0's code of tensormap.replace, not measured"
PROVENANCE = "measured on an NVIDIA H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; not published"

_IM2COL: tuple[MapKind, ...] = ("im2col", "im2col_wide")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the map.

    Attributes
    ----------
    name : str
        The driver's name of the argument that it stores.
    index : int or None
        Which entry of an array argument; 0 is innermost, and W for corners.
    pieces : tuple of (bit, width)
        Position of its bits, low bits first.
    bias, unit : int
        The bits hold ``value // unit - bias``.
    signed : bool
        Two's complement.
    kind : {"tiled", "im2col"} or None
        The kind of map that has it; None for both ("im2col" includes im2col-wide).
    rank : int or None
        The one rank that has it, or None for every rank above `index`.
    ptx : str or None
        Field name of PTX ``tensormap.replace``, where it can change it.
    width : int
        Number of bits.
    raw : range
        The values of the bits.
    bit : int
        Position of the lowest bit.
    plain_end : int
        Values minus `bias` below this are stored at `bit` without conversion; 0 if there is a unit
        or a second piece.
    """

    name: str
    index: int | None
    pieces: tuple[tuple[int, int], ...]
    bias: int = 0
    unit: int = 1
    signed: bool = False
    kind: Literal["tiled", "im2col"] | None = None
    rank: int | None = None
    ptx: str | None = None
    width: int = dataclasses.field(init=False)
    raw: range = dataclasses.field(init=False, repr=False)
    bit: int = dataclasses.field(init=False, repr=False)
    plain_end: int = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compute `width`, `raw`, `bit` and `plain_end`."""
        width = sum(width for _, width in self.pieces)
        low = -(1 << width - 1) if self.signed else 0
        raw = range(low, low + (1 << width))
        is_plain = self.unit == len(self.pieces) == 1
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "bit", self.pieces[0][0])
        object.__setattr__(self, "plain_end", raw.stop if is_plain else 0)

    @property
    def label(self) -> str:
        """Name and index, such as ``global_dim[1]``."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"

    def exists(self, kind: MapKind, rank: int) -> bool:
        """Whether a map of this kind and rank has the field."""
        if self.kind is not None and (self.kind == "tiled") != (kind == "tiled"):
            return False
        if self.rank is not None and self.rank != rank:
            return False
        return self.index is None or self.index < _entries(self.name, kind, rank)


def _entries(name: str, kind: MapKind, rank: int) -> int:
    if name == "global_strides":
        return rank - 1
    if name.startswith("pixel_box"):
        return 1 if kind == "im2col_wide" else rank - 2
    return rank


def _corner(name: str, bit: int) -> tuple[Field, ...]:
    """Corners share 16 bits: one of 16, two of 8 or three of 5 bits, by rank."""
    return tuple(
        Field(name, i, ((bit + width * i, width),), signed=True, kind="im2col", rank=count + 2)
        for count, width in ((1, 16), (2, 8), (3, 5))
        for i in range(count)
    )


_FIVE = range(MAX_RANK)

#: Every field of the 128 bytes.
FIELDS: tuple[Field, ...] = (
    Field("global_address", None, ((0, 64),), ptx="global_address"),
    Field("im2col", None, ((64, 1),)),
    Field("rank", None, ((68, 3),), bias=1, ptx="rank"),
    Field("element_type", None, ((71, 4),), ptx="elemtype"),
    Field("interleave", None, ((75, 2),), ptx="interleave_layout"),
    Field("swizzle", None, ((77, 2),), ptx="swizzle_mode"),
    Field("oob_fill", None, ((79, 1),), ptx="fill_mode"),
    Field("tf32", None, ((80, 1),), ptx="elemtype"),
    Field("l2_promotion", None, ((81, 2),)),
    *(
        Field(
            "global_strides",
            i,
            ((96 + 32 * i, 32), (224 + 4 * i, 4)),
            unit=STRIDE_UNIT_BYTES,
            ptx="global_stride",
        )
        for i in range(MAX_RANK - 1)
    ),
    *(Field("global_dim", i, ((256 + 32 * i, 32),), bias=1, ptx="global_dim") for i in _FIVE),
    *(
        Field("element_strides", i, ((416 + 3 * i, 3),), bias=1, ptx="element_stride")
        for i in _FIVE
    ),
    *(Field("box_dim", i, ((440 + 8 * i, 8),), bias=1, kind="tiled", ptx="box_dim") for i in _FIVE),
    Field("channels_per_pixel", None, ((440, 8),), bias=1, kind="im2col"),
    *_corner("pixel_box_lower_corner", 448),
    *_corner("pixel_box_upper_corner", 464),
    Field("pixels_per_column", None, ((480, 10),), bias=1, kind="im2col"),
    Field("box_bytes", None, ((512, 32),)),
    Field("swizzle_repeat_bytes", None, ((576, 32),)),
)

#: What tiled maps of sm_100 and later have; atomicity 0..3 is a granule of 16 bytes, of 32, of 32
#: with halves of 16 flipped by 8, and of 64.
DERIVED_FIELDS: tuple[Field, ...] = tuple(
    sorted(
        (
            *(f for f in FIELDS if f.kind != "im2col"),
            Field("swizzle_atomicity", None, ((83, 2),), kind="tiled", ptx="swizzle_atomicity"),
        ),
        key=lambda field: field.bit,
    )
)
_BIT_85 = 1 << 85  # set by drivers before 13.2 (see types.limits); says nothing about the copy
_SWIZZLE_96B = 1 << 86  # of sm_103 and sm_107

#: The bits hold TFLOAT32 as FLOAT32 (7) and TFLOAT32_FTZ as FLOAT32_FTZ (8), and set `tf32`.
_TF32_AS = {
    TensorMapDataType.TFLOAT32: TensorMapDataType.FLOAT32,
    TensorMapDataType.TFLOAT32_FTZ: TensorMapDataType.FLOAT32_FTZ,
}
#: What `element_type` and `tf32` hold, in the order of DATA_TYPES; no number for packed types.
_BITS_OF_TYPE = {
    r.data_type: (
        DATA_TYPES[_TF32_AS.get(r.data_type, r.data_type)].ptx_elemtype,
        r.data_type in _TF32_AS,
    )
    for r in DATA_TYPES
    if not r.is_packed
}
_TYPE_OF_BITS = {bits: data_type for data_type, bits in _BITS_OF_TYPE.items()}
#: Packed types, only in the layout of sm_100 and later.
_DERIVED_BITS_OF_TYPE = {
    TensorMapDataType["16U4_ALIGN8B"]: (11, False),
    TensorMapDataType["16U4_ALIGN16B"]: (12, False),
    TensorMapDataType["16U6_ALIGN16B"]: (13, False),
}
_DERIVED_TYPE_OF_BITS = {bits: data_type for data_type, bits in _DERIVED_BITS_OF_TYPE.items()}
#: What bytes 72..75 hold for swizzle none, 32B, 64B, 128B.
_SWIZZLE_REPEAT_BYTES = (16, 256, 512, 1024)


def fields_of(kind: MapKind, rank: int, *, derived: bool = False) -> tuple[Field, ...]:
    """Give the fields that a map of this kind and rank has, in the order of FIELDS.

    `derived` is for sm_100 and later.
    """
    if derived:
        return tuple(f for f in DERIVED_FIELDS if f.exists(kind, rank))
    return _FIELDS_OF[kind, rank]


_FIELDS_OF = {
    (kind, rank): tuple(f for f in FIELDS if f.exists(kind, rank))
    for kind in ("tiled", *_IM2COL)
    for rank in range(1, MAX_RANK + 1)
}


def encode(arguments: EncodeArguments, address: int) -> bytes:
    """Encode accepted arguments as 128 bytes, equal to the driver's on sm_90.

    The layout is measured (H200, driver 580.159.04, 2026-11-20), not published by NVIDIA, and may
    change. The arguments must have passed the rules: a value that does not fit its field raises
    `OverflowError`.

    >>> from tma_dlpack.types.enums import TensorMapDataType as T
    >>> a = EncodeArguments("tiled", T.FLOAT16, (128, 64), (256,), (1, 1), box_dim=(64, 16))
    >>> encode(a, 0x7F0000000000)[:12].hex()
    '00000000007f000010030000'
    """
    values = _values_of(arguments, address)
    word = 0
    for field in _FIELDS_OF[arguments.kind, len(arguments.global_dim)]:
        value = values[field.name]
        if field.index is not None:
            value = value[field.index]
        if 0 <= (raw := value - field.bias) < field.plain_end:
            word |= raw << field.bit  # what `_place` does with most fields
        else:
            word |= _place(field, value)
    return word.to_bytes(MAP_BYTES, "little")


def _values_of(a: EncodeArguments, address: int) -> dict[str, Any]:
    elemtype, tf32 = element_type_bits(a.data_type)
    if a.swizzle > TmaSwizzle.bytes128:
        raise OverflowError(f"no measured bits for {a.swizzle.name}")
    return {
        "global_address": address,
        "im2col": int(a.kind != "tiled"),
        "rank": a.rank,
        "element_type": elemtype,
        "interleave": a.interleave,
        "swizzle": a.swizzle,
        "oob_fill": a.oob_fill,
        "tf32": tf32,
        "l2_promotion": a.l2_promotion,
        "global_strides": a.global_strides,
        "global_dim": a.global_dim,
        "element_strides": a.element_strides,
        "box_dim": a.box_dim,
        "channels_per_pixel": a.channels_per_pixel,
        "pixels_per_column": a.pixels_per_column,
        "pixel_box_lower_corner": a.pixel_box_lower_corner,
        "pixel_box_upper_corner": a.pixel_box_upper_corner,
        "box_bytes": a.floor_box_bytes,
        "swizzle_repeat_bytes": _SWIZZLE_REPEAT_BYTES[a.swizzle],
    }


def element_type_bits(data_type: TensorMapDataType, *, derived: bool = False) -> tuple[int, bool]:
    """Give what the fields `element_type` and `tf32` hold for a data type."""
    if derived and data_type in _DERIVED_BITS_OF_TYPE:
        return _DERIVED_BITS_OF_TYPE[data_type]
    if data_type not in _BITS_OF_TYPE:
        raise OverflowError(f"no measured bits for {data_type.name}")
    return _BITS_OF_TYPE[data_type]


def _place(field: Field, value: int) -> int:
    """Give the bits of a value, in place."""
    units, rest = divmod(value, field.unit)
    raw = units - field.bias
    if rest or raw not in field.raw:
        raise OverflowError(f"{field.label} = {value} does not fit {field.width} bits")
    word = 0
    for bit, width in field.pieces:
        word |= (raw & ((1 << width) - 1)) << bit
        raw >>= width
    return word


def read(field: Field, data: bytes) -> int:
    """Give the value of a field in 128 bytes."""
    word = int.from_bytes(data, "little")
    raw = shift = 0
    for bit, width in field.pieces:
        raw |= (word >> bit & ((1 << width) - 1)) << shift
        shift += width
    if field.signed and raw >> (shift - 1):
        raw -= 1 << shift
    return (raw + field.bias) * field.unit


def write(field: Field, data: bytes, value: int) -> bytes:
    """Give 128 bytes in which one field holds another value.

    Raises `OverflowError` if the value does not fit.
    """
    word = int.from_bytes(data, "little")
    for bit, width in field.pieces:
        word &= ~(((1 << width) - 1) << bit)
    return (word | _place(field, value)).to_bytes(MAP_BYTES, "little")


def decode(data: bytes, *, derived: bool = False) -> tuple[EncodeArguments, int]:
    """Read 128 bytes of an sm_90 map: its arguments and its address.

    With `derived`, of a tiled map of sm_100 or later; L2 promotion, of which the compiler's code
    shows nothing, is read as on sm_90.

    Bytes 64..127, which the engine ignores and ``tensormap.replace`` leaves stale, are not looked
    at; neither are entries past the rank. An im2col-wide map has the bits of an im2col map with
    one corner and comes back as im2col.

    Raises
    ------
    TmaPreconditionError
        If there are not 128 bytes, or bits outside all fields are set.
    TmaUnsupportedError
        With `derived`, for an im2col map and for a swizzle of 96 bytes.
    """
    if len(data) != MAP_BYTES:
        raise _not_a_map(f"data has {counted(len(data), 'byte')}", "be exactly 128 bytes")
    word = int.from_bytes(data[:ENGINE_BYTES], "little")
    kind: MapKind = "im2col" if read(_BY_NAME["im2col"], data) else "tiled"
    if derived:
        _check_derived(word)
        word &= ~_BIT_85
    rank = read(_BY_NAME["rank"], data)
    if not (MIN_RANK_IM2COL if kind == "im2col" else 1) <= rank <= MAX_RANK:
        raise _not_a_map(f"bits 68..70 say rank {rank}", f"be a rank that a {kind} map can have")
    stray = word & ~(_KNOWN_BITS["derived"] if derived else _KNOWN_BITS[kind])
    if stray:
        bits = ", ".join(str(b) for b in range(512) if stray >> b & 1)
        said = f"bit {bits} is set" if stray.bit_count() == 1 else f"bits {bits} are set"
        raise _not_a_map(said, f"be 0 in {'a tiled map' if derived else 'an sm_90 map'}")
    values: dict[str, list[int]] = {}
    for field in fields_of(kind, rank, derived=derived):
        values.setdefault(field.name, []).append(read(field, data))
    type_bits = (values["element_type"][0], bool(values["tf32"][0]))
    types = _TYPE_OF_BITS | _DERIVED_TYPE_OF_BITS if derived else _TYPE_OF_BITS
    if type_bits not in types:
        raise _not_a_map(
            f"bits 71..74 and 80 say element type {type_bits[0]}, tf32 {type_bits[1]}",
            "name a data type",
        )
    if values["interleave"][0] not in set(TmaInterleaveLayout):
        raise _not_a_map("bits 75..76 say interleave 3", "be 0, 1 or 2")
    address = values["global_address"][0]
    if address >= ADDRESS_END:
        raise _not_a_map(f"the address is {address:#x}", "be below 2^57")
    swizzle, atomicity = values["swizzle"][0], values.get("swizzle_atomicity", [0])[0]
    if atomicity and swizzle != TmaSwizzle.bytes128:
        raise _not_a_map(
            f"bits 83..84 say atomicity {atomicity}, and bits 77..78 swizzle {swizzle}",
            "have an atomicity with the 128-byte swizzle alone",
        )
    arguments = EncodeArguments(
        kind=kind,
        data_type=types[type_bits],
        global_dim=tuple(values["global_dim"]),
        global_strides=tuple(values.get("global_strides", ())),
        element_strides=tuple(values["element_strides"]),
        box_dim=tuple(values.get("box_dim", ())),
        interleave=TmaInterleaveLayout(values["interleave"][0]),
        swizzle=TmaSwizzle(swizzle + atomicity),
        l2_promotion=TmaL2FetchSize(values["l2_promotion"][0]),
        oob_fill=TmaOobFill(values["oob_fill"][0]),
        pixel_box_lower_corner=tuple(values.get("pixel_box_lower_corner", ())),
        pixel_box_upper_corner=tuple(values.get("pixel_box_upper_corner", ())),
        channels_per_pixel=values.get("channels_per_pixel", [0])[0],
        pixels_per_column=values.get("pixels_per_column", [0])[0],
    )
    return arguments, address


def _check_derived(word: int) -> None:
    """Refuse what nothing is known of on sm_100 and later."""
    if word >> 64 & 1:
        raise TmaUnsupportedError(
            "bit 64 says im2col, and of im2col maps of sm_100 and later no bits are known: the "
            "compiler's code, from which the layout of tiled maps is derived, changes only these"
        )
    if word & _SWIZZLE_96B:
        raise TmaUnsupportedError(
            "bit 86 says a swizzle of 96 bytes (sm_103 and sm_107), which CUtensorMapSwizzle does "
            "not name; what it does to a tile is not known here"
        )


_BY_NAME = {f.name: f for f in FIELDS if f.index is None}
_FIELDS_OF_LAYOUT = {
    "tiled": tuple(f for f in FIELDS if f.kind in (None, "tiled")),
    "im2col": tuple(f for f in FIELDS if f.kind in (None, "im2col")),
    "derived": DERIVED_FIELDS,
}
_KNOWN_BITS = {
    layout: functools.reduce(
        operator.or_, (((1 << w) - 1) << bit for f in fields for bit, w in f.pieces)
    )
    for layout, fields in _FIELDS_OF_LAYOUT.items()
}


def _not_a_map(found: str, must: str) -> TmaPreconditionError:
    return TmaPreconditionError(
        Violation(
            rule="MAP_BYTES",
            argument="data",
            found=found,
            limit=f"they must {must}",
            fix="dump the 128 bytes of a CUtensorMap, and pass the target that it was made for",
            source=f"the layout as {PROVENANCE}",
        )
    )
