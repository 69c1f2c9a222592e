"""Encode a map's arguments as 128 bytes, and decode them, by the table of `fields.py`.

`encode` is only for sm_90, whose layout is measured. Maps of sm_100 and later can be read
(`decode(..., derived=True)`), by a derived layout. Maps that other libraries built are read too:
bits 65 and 85 may be set, and bytes 64..127 may have any value.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tma_dlpack.tables.arguments import ENUMS, EncodeArguments, MapKind
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import DATA_TYPES, PACKED_TYPES
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError
from tma_dlpack.tables.fields import DERIVED_FIELDS, FIELDS, Field, fields_of
from tma_dlpack.tables.limits import ADDRESS_END, MAP_BYTES, MAX_RANK, MIN_RANK_IM2COL
from tma_dlpack.tables.refusals import REFUSALS

ENGINE_BYTES = 64  # the engine reads only the first 64 bytes [measured]
_SWIZZLE_96B = 1 << 86  # of sm_103 and sm_107

_T: type[TensorMapDataType] = TensorMapDataType
#: Type -> the values of the fields `element_type` and `tf32`. `element_type` is PTX's number of the
#: type, except for the five types named below. Only the layout of sm_100 and later has the packed
#: types.
_BITS_OF_TYPE: dict[TensorMapDataType, tuple[int, bool]] = {
    **{row.data_type: (row.ptx_elemtype, False) for row in DATA_TYPES},
    _T.TFLOAT32: (7, True),
    _T.TFLOAT32_FTZ: (8, True),
    _T["16U4_ALIGN8B"]: (11, False),
    _T["16U4_ALIGN16B"]: (12, False),
    _T["16U6_ALIGN16B"]: (13, False),
}
_TYPE_OF_BITS = {bits: data_type for data_type, bits in _BITS_OF_TYPE.items()}
#: The values of bytes 72..75 for swizzle none, 32B, 64B, 128B.
_SWIZZLE_REPEAT_BYTES = (16, 256, 512, 1024)
#: Fields of one number, by name; the others are entries of arrays.
_BY_NAME = {field.name: field for field in FIELDS if field.index is None}


def encode(arguments: EncodeArguments, address: int) -> bytes:
    """Encode accepted arguments as 128 bytes, equal to the driver's on sm_90.

    The layout is measured (H200, driver 580.159.04, 2026-11-20), not published by NVIDIA, and may
    change. The arguments must have passed the rules: a value that does not fit its field raises
    `OverflowError`.

    >>> from tma_dlpack.tables.enums import TensorMapDataType as T
    >>> a = EncodeArguments("tiled", T.FLOAT16, (128, 64), (256,), (1, 1), box_dim=(64, 16))
    >>> encode(a, 0x7F0000000000)[:12].hex()
    '00000000007f000010030000'
    """
    values = (*arguments, *_computed(arguments, address))
    word = 0
    for at, index, bit, bias, plain_end, field in _places(arguments.kind, arguments.rank):
        value = values[at] if index is None else values[at][index]
        plain = value - bias
        word |= plain << bit if 0 <= plain < plain_end else field.place(value)
    return word.to_bytes(MAP_BYTES, "little")


#: Fields that are not an argument of the same name, in the order of `_computed`.
_COMPUTED = (
    *("global_address", "rank", "im2col", "element_type", "tf32", "box_bytes"),
    "swizzle_repeat_bytes",
)


@cache
def _places(kind: MapKind, rank: int) -> tuple[tuple[int, int | None, int, int, int, Field], ...]:
    """Return the bit positions of the arguments' values."""
    names = (*EncodeArguments._fields, *_COMPUTED)
    fields = (field for field in fields_of(kind, rank) if not field.known)
    return tuple((names.index(f.name), f.index, f.bit, f.bias, f.plain_end, f) for f in fields)


def _computed(a: EncodeArguments, address: int) -> tuple[Any, ...]:
    element_type, tf32 = element_type_bits(a.data_type)
    if a.swizzle > TmaSwizzle.bytes128:
        raise OverflowError(f"no measured bits for {a.swizzle.name}")
    is_im2col, repeat = int(a.kind != "tiled"), _SWIZZLE_REPEAT_BYTES[a.swizzle]
    return address, a.rank, is_im2col, element_type, tf32, a.floor_box_bytes, repeat


def element_type_bits(data_type: TensorMapDataType, *, derived: bool = False) -> tuple[int, bool]:
    """Return the values of the fields `element_type` and `tf32` for a data type."""
    if data_type in PACKED_TYPES and not derived:
        raise OverflowError(f"no measured bits for {data_type.name}")
    return _BITS_OF_TYPE[data_type]


def decode(data: bytes, *, derived: bool = False) -> tuple[EncodeArguments, int]:
    """Read 128 bytes of an sm_90 map: its arguments and its address.

    With `derived`, of a map of sm_100 or later.

    Bytes 64..127 are ignored, as by the engine, because ``tensormap.replace`` leaves them stale.
    Entries past the rank are ignored too. An im2col-wide map has the bits of an im2col map with one
    corner and comes back as im2col.

    Raises
    ------
    TmaPreconditionError
        If there are not 128 bytes, or bits outside all fields are set.
    TmaUnsupportedError
        With `derived`, for a swizzle of 96 bytes.
    """
    if len(data) != MAP_BYTES:
        raise _not_a_map(f"data has {counted(len(data), 'byte')}", "be exactly 128 bytes")
    kind: MapKind = "im2col" if _BY_NAME["im2col"].read(data) else "tiled"
    if derived and int.from_bytes(data, "little") & _SWIZZLE_96B:
        raise TmaUnsupportedError(
            "bit 86 says a swizzle of 96 bytes (sm_103 and sm_107), which CUtensorMapSwizzle does "
            "not name; what it does to a tile is not known here"
        )
    rank = _BY_NAME["rank"].read(data)
    lowest, a_map = (MIN_RANK_IM2COL, "an im2col map") if kind == "im2col" else (1, "a tiled map")
    if not lowest <= rank <= MAX_RANK:
        found = f"bits 68..70 (the rank) are {rank}"
        raise _not_a_map(found, f"be {lowest}..{MAX_RANK} in {a_map}")
    _check_stray_bits(data, kind, derived)
    values: dict[str, list[int]] = {}
    for field in fields_of(kind, rank, derived=derived):
        values.setdefault(field.name, []).append(field.read(data))
    data_type = _data_type_of(values["element_type"][0], bool(values["tf32"][0]), derived)
    _check_values(values)
    (swizzle,), (atomicity,) = values["swizzle"], values.get("swizzle_atomicity", [0])
    values["swizzle"] = [swizzle + atomicity]
    fields: dict[str, Any] = {"global_strides": ()}  # which rank 1 has none of
    for name in values.keys() & {*EncodeArguments._fields}:
        if name in _BY_NAME:
            fields[name] = ENUMS.get(name, int)(values[name][0])
        else:
            fields[name] = tuple(values[name])
    arguments = EncodeArguments(kind=kind, data_type=data_type, **fields)
    return arguments, values["global_address"][0]


def noted_bits(data: bytes) -> tuple[str, ...]:
    r"""Return a sentence about each set bit that belongs to no argument.

    >>> noted_bits(bytes(8) + b"\2" + bytes(119))[0][:40]
    "bit 65 is set: NVIDIA's CuTe DSL sets it"
    """
    return tuple(
        f"bit {field.bit} is set: {field.known}"
        for field in FIELDS
        if field.known and field.read(data)
    )


def _check_stray_bits(data: bytes, kind: MapKind, derived: bool) -> None:
    """Refuse set bits that no field of this kind of map has."""
    stray = int.from_bytes(data[:ENGINE_BYTES], "little") & ~known_bits(kind, derived=derived)
    if stray:
        bits = ", ".join(str(b) for b in range(8 * ENGINE_BYTES) if stray >> b & 1)
        found = f"bit {bits} is set" if stray.bit_count() == 1 else f"bits {bits} are set"
        described = "an im2col map" if kind == "im2col" else "a tiled map"
        raise _not_a_map(found, f"be 0 in {described if derived else 'an sm_90 map'}")


@cache
def known_bits(kind: MapKind, *, derived: bool = False) -> int:
    """Return a word with a bit set where some rank of this kind of map uses the bit."""
    word = 0
    for field in DERIVED_FIELDS if derived else FIELDS:
        if field.kind in (None, kind):
            word |= field.mask
    return word


def _data_type_of(element_type: int, tf32: bool, derived: bool) -> TensorMapDataType:
    data_type = _TYPE_OF_BITS.get((element_type, tf32))
    if data_type is None or (data_type in PACKED_TYPES and not derived):
        found = f"bits 71..74 and 80 say element type {element_type}, tf32 {tf32}"
        raise _not_a_map(found, "name a data type")
    return data_type


def _check_values(values: dict[str, list[int]]) -> None:
    """Refuse an interleave, an address and a swizzle that no map has."""
    if values["interleave"][0] not in set(TmaInterleaveLayout):
        raise _not_a_map("bits 75..76 say interleave 3", "be 0, 1 or 2")
    (address,) = values["global_address"]
    if address >= ADDRESS_END:
        raise _not_a_map(f"the address is {address:#x}", "be below 2^57")
    (swizzle,), (atomicity,) = values["swizzle"], values.get("swizzle_atomicity", [0])
    if atomicity and swizzle != TmaSwizzle.bytes128:
        raise _not_a_map(
            f"bits 83..84 say atomicity {atomicity}, and bits 77..78 swizzle {swizzle}",
            "have an atomicity with the 128-byte swizzle alone",
        )


def _not_a_map(found: str, must: str) -> TmaPreconditionError:
    return REFUSALS["MAP_BYTES"].error("data", found, limit=f"they must {must}")
