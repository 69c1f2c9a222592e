"""The layout of the 128 bytes of a tensor map: the table `FIELDS`, and `encode` and `decode`.

`TensorMap.replace` and the drawings read `FIELDS` too.

The layout is **measured, not published**. The bytes that `encode` makes were equal to the driver's
bytes for every accepted call that was tried on an NVIDIA H200 (compute capability 9.0), driver
580.159.04 = CUDA 13.0, 2026-11-20. NVIDIA may change the layout. For other compute capabilities
nothing is measured. The layout for sm_100 and later (`DERIVED_FIELDS`) is derived from two sources.
First, ptxas 13.0 compiles ``tensormap.replace.tile`` to code that writes the bits of a field. For
every field, the code for these targets writes the bits that the code for sm_90a writes, and some
additional bits. Second, NVIDIA's CuTe DSL 4.8.1 builds the same bytes for all targets, also for
im2col maps and L2 promotion.

Bits are counted from bit 0 of byte 0, little-endian. Bits that belong to no field are 0::

    byte   0        8      12          28    32              52     55      60         64
           | address | flags | stride lo | hi | dim 0..4 (-1) | estr | box or im2col | box bytes ...

`encode` makes only maps for sm_90, because only their layout is measured.
`decode(..., derived=True)` reads maps of sm_100 and later by the derived layout. `decode` also
reads maps that other libraries built. In such maps, bits 65 and 85 may be set, and bytes 64..127
may have any value.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from tma_dlpack.tables.arguments import ENUMS, EncodeArguments, MapKind
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import DATA_TYPES, PACKED_TYPES
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError
from tma_dlpack.tables.refusals import REFUSALS
from tma_dlpack.tables.targets import ADDRESS_END, MAP_BYTES, MAX_RANK, MIN_RANK_IM2COL

STRIDE_UNIT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the map: the bits that store one number.

    Attributes
    ----------
    name : str
        The driver's name of the argument that the field stores.
    index : int or None
        The index of the entry that the field stores, if the argument is an array. Entry 0 is the
        innermost dimension. In a corner, entry 0 is W. None if the argument is a single number.
    pieces : tuple of (bit, width)
        Positions and widths of the runs of bits that make up the field, the low bits first.
    bias, unit : int
        The bits hold ``value // unit - bias``.
    signed : bool
        Whether the bits are a two's complement number.
    kind : {"tiled", "im2col"} or None
        The kind of map that has the field; "im2col" includes im2col-wide. None if both kinds have
        it.
    rank : int or None
        The only rank whose maps have the field. None if maps of every rank above `index` have it.
    ptx : str or None
        The name of the field in PTX ``tensormap.replace``; None if PTX cannot change the field.
    known : str
        For a bit that stores no argument: which software sets the bit, and the bit's effect.
        `encode` does not set the bit. Empty for all other fields.
    width : int
        Number of bits.
    raw : range
        The numbers that the bits can hold.
    bit : int
        Position of the lowest bit.
    plain_end : int
        If ``0 <= value - bias < plain_end``, the field holds ``value - bias`` as consecutive bits
        from `bit` on. `plain_end` is 0 if `unit` is not 1 or if the field has several pieces.
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
    known: str = ""
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
    def mask(self) -> int:
        """A number in which exactly the bits of the field are set."""
        return sum(((1 << width) - 1) << bit for bit, width in self.pieces)

    @property
    def label(self) -> str:
        """Name and index of the field, such as ``global_dim[1]``."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"

    def exists(self, kind: MapKind, rank: int) -> bool:
        """Return whether a map of this kind and rank has the field."""
        if self.kind is not None and (self.kind == "tiled") != (kind == "tiled"):
            return False
        if self.rank is not None and self.rank != rank:
            return False
        return self.index is None or self.index < _entries(self.name, kind, rank)

    def place(self, value: int) -> int:
        """Return a number with the bits of `value` at the field's positions.

        Raises `OverflowError` if the value does not fit the field.
        """
        if 0 <= value - self.bias < self.plain_end:
            return value - self.bias << self.bit
        units, rest = divmod(value, self.unit)
        raw = units - self.bias
        if rest or raw not in self.raw:
            raise OverflowError(f"{self.label} = {value} does not fit {self.width} bits")
        word = 0
        for bit, width in self.pieces:
            word |= (raw & ((1 << width) - 1)) << bit
            raw >>= width
        return word

    def read(self, data: bytes) -> int:
        """Return the value of the field in the 128 bytes of a map."""
        word = int.from_bytes(data, "little")
        raw = shift = 0
        for bit, width in self.pieces:
            raw |= (word >> bit & ((1 << width) - 1)) << shift
            shift += width
        if self.signed and raw >> (shift - 1):
            raw -= 1 << shift
        return (raw + self.bias) * self.unit

    def write(self, data: bytes, value: int) -> bytes:
        """Return a copy of a map's bytes in which the field has this value.

        Raises `OverflowError` if the value does not fit the field.
        """
        word = int.from_bytes(data, "little") & ~self.mask
        return (word | self.place(value)).to_bytes(len(data), "little")


def _entries(name: str, kind: MapKind, rank: int) -> int:
    if name == "global_strides":
        return rank - 1
    if name.startswith("pixel_box"):
        return 1 if kind == "im2col_wide" else rank - 2
    return rank


def _corner(name: str, bit: int) -> tuple[Field, ...]:
    """Return the fields of a corner, for every rank.

    The entries of a corner share 16 bits: one entry of 16 bits at rank 3, two entries of 8 bits at
    rank 4, three entries of 5 bits at rank 5.
    """
    return tuple(
        Field(name, i, ((bit + width * i, width),), signed=True, kind="im2col", rank=count + 2)
        for count, width in ((1, 16), (2, 8), (3, 5))
        for i in range(count)
    )


_FIVE = range(MAX_RANK)
#: The meaning of bit 85. Source: cuda.h of CUDA 13.5, whose function cuTensorMapSetAllocationClass
#: sets and clears the bit.
ALLOCATION_CLASS = (
    "the map is of the allocation class LARGE: at least 128 KiB around what is copied must be "
    "accessible, or copies may fault; where they are, copies may be faster"
)

#: Every field of the 128 bytes for sm_90.
FIELDS: tuple[Field, ...] = (
    Field("global_address", None, ((0, 64),), ptx="global_address"),
    Field("im2col", None, ((64, 1),)),
    Field(
        "bit_65",
        None,
        ((65, 1),),
        known="NVIDIA's CuTe DSL sets it in every map; it changes no copy (measured, H200, "
        "2026-11-22)",
    ),
    Field("rank", None, ((68, 3),), bias=1, ptx="rank"),
    Field("element_type", None, ((71, 4),), ptx="elemtype"),
    Field("interleave", None, ((75, 2),), ptx="interleave_layout"),
    Field("swizzle", None, ((77, 2),), ptx="swizzle_mode"),
    Field("oob_fill", None, ((79, 1),), ptx="fill_mode"),
    Field("tf32", None, ((80, 1),), ptx="elemtype"),
    Field("l2_promotion", None, ((81, 2),)),
    Field(
        "bit_85",
        None,
        ((85, 1),),
        known=f"{ALLOCATION_CLASS} (documented, CUDA 13.5; on an H200 2,000 of 2,000 copies were "
        "the same with it and without, 2026-11-22). Drivers before 13.2 set it for Blackwell, "
        "whatever the size; CuTe DSL where the tensor spans at least 128 KiB",
    ),
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

#: The fields of maps for sm_100 and later. `swizzle_atomicity` is 0 for the swizzle bytes128, 1 for
#: bytes128_atom_32B, 2 for bytes128_atom_32B_flip_8B and 3 for bytes128_atom_64B.
DERIVED_FIELDS: tuple[Field, ...] = tuple(
    sorted(
        (
            *FIELDS,
            Field("swizzle_atomicity", None, ((83, 2),), ptx="swizzle_atomicity"),
        ),
        key=lambda field: field.bit,
    )
)


@cache
def fields_of(kind: MapKind, rank: int, *, derived: bool = False) -> tuple[Field, ...]:
    """Return the fields that a map of this kind and rank has, in the order of the table.

    The table is `DERIVED_FIELDS` (sm_100 and later) if `derived` is true, and `FIELDS` otherwise.
    """
    fields = DERIVED_FIELDS if derived else FIELDS
    return tuple(field for field in fields if field.exists(kind, rank))


# --- Encoding and decoding ----------------------------------------------------------------------

ENGINE_BYTES = 64  # the engine reads only the first 64 bytes [measured]
_SWIZZLE_96B = 1 << 86  # this bit means a swizzle of 96 bytes on sm_103 and sm_107

_T: type[TensorMapDataType] = TensorMapDataType
#: Data type -> the values of the fields `element_type` and `tf32`. `element_type` is the number of
#: the data type in PTX, except for the five data types in the last lines. Only maps for sm_100 and
#: later can have the packed types (16U4 and 16U6).
_BITS_OF_TYPE: dict[TensorMapDataType, tuple[int, bool]] = {
    **{row.data_type: (row.ptx_elemtype, False) for row in DATA_TYPES},
    _T.TFLOAT32: (7, True),
    _T.TFLOAT32_FTZ: (8, True),
    _T["16U4_ALIGN8B"]: (11, False),
    _T["16U4_ALIGN16B"]: (12, False),
    _T["16U6_ALIGN16B"]: (13, False),
}
_TYPE_OF_BITS = {bits: data_type for data_type, bits in _BITS_OF_TYPE.items()}
#: The values of the field `swizzle_repeat_bytes` for the swizzles none, 32B, 64B and 128B.
_SWIZZLE_REPEAT_BYTES = (16, 256, 512, 1024)
#: The fields of single numbers, by name. All other fields are entries of arrays.
_BY_NAME = {field.name: field for field in FIELDS if field.index is None}


def encode(arguments: EncodeArguments, address: int) -> bytes:
    """Encode arguments as the 128 bytes that the driver makes for sm_90.

    The layout is measured (H200, driver 580.159.04, 2026-11-20). NVIDIA has not published it and
    may change it. Check the arguments with the rules first, because `encode` does not check them. A
    value that does not fit its field raises `OverflowError`.

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


#: The fields that `EncodeArguments` does not have, in the order in which `_computed` returns them.
_COMPUTED = (
    *("global_address", "rank", "im2col", "element_type", "tf32", "box_bytes"),
    "swizzle_repeat_bytes",
)


@cache
def _places(kind: MapKind, rank: int) -> tuple[tuple[int, int | None, int, int, int, Field], ...]:
    """Return one tuple per field, for the loop of `encode`.

    The first number is the index of the field's value in `values` of `encode`. The rest are
    attributes of the field, and the field itself.
    """
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
    """Decode the 128 bytes of a map for sm_90 to its arguments and its address.

    If `derived` is true, decode a map for sm_100 or later.

    Bytes 64..127 are ignored. The engine ignores them too, and ``tensormap.replace`` does not
    update them. Array entries past the rank are ignored too. An im2col-wide map has the bits of an
    im2col map whose corners have one entry, so it is decoded as an im2col map.

    Raises
    ------
    TmaPreconditionError
        If `data` is not 128 bytes, if bits outside all fields are set, or if a field has a value
        that no map has.
    TmaUnsupportedError
        If `derived` is true and the map has the swizzle of 96 bytes.
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
    fields: dict[str, Any] = {"global_strides": ()}  # a map of rank 1 has no field of this name
    for name in values.keys() & {*EncodeArguments._fields}:
        if name in _BY_NAME:
            fields[name] = ENUMS.get(name, int)(values[name][0])
        else:
            fields[name] = tuple(values[name])
    arguments = EncodeArguments(kind=kind, data_type=data_type, **fields)
    return arguments, values["global_address"][0]


def noted_bits(data: bytes) -> tuple[str, ...]:
    r"""Return a sentence about each set bit that stores no argument.

    >>> noted_bits(bytes(8) + b"\2" + bytes(119))[0][:40]
    "bit 65 is set: NVIDIA's CuTe DSL sets it"
    """
    return tuple(
        f"bit {field.bit} is set: {field.known}"
        for field in FIELDS
        if field.known and field.read(data)
    )


def _check_stray_bits(data: bytes, kind: MapKind, derived: bool) -> None:
    """Refuse set bits that belong to no field of this kind of map."""
    stray = int.from_bytes(data[:ENGINE_BYTES], "little") & ~known_bits(kind, derived=derived)
    if stray:
        bits = ", ".join(str(b) for b in range(8 * ENGINE_BYTES) if stray >> b & 1)
        found = f"bit {bits} is set" if stray.bit_count() == 1 else f"bits {bits} are set"
        described = "an im2col map" if kind == "im2col" else "a tiled map"
        raise _not_a_map(found, f"be 0 in {described if derived else 'an sm_90 map'}")


@cache
def known_bits(kind: MapKind, *, derived: bool = False) -> int:
    """Return a mask of the bits that maps of this kind use, at any rank."""
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
    """Refuse values of interleave, address and swizzle that no map has."""
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
