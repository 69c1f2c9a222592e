"""The layout of the 128 bytes of a tensor map: one table, FIELDS.

Encoding, decoding, `TensorMap.replace` and the drawings all read this table.

The layout is **measured, not published**: equal to the driver's bytes on every accepted case tried
on an NVIDIA H200 (compute capability 9.0), driver 580.159.04 = CUDA 13.0, 2026-11-20. NVIDIA may
change it. For other compute capabilities nothing is measured. For sm_100 and later the layout is
derived (`DERIVED_FIELDS`): for every field of ``tensormap.replace.tile``, the code of ptxas 13.0
for these writes the very bits that its code for sm_90a writes, and some more; and NVIDIA's CuTe DSL
4.8.1 builds the same bytes for all, im2col maps and L2 promotion included.

Bits are counted from bit 0 of byte 0, little-endian. Bits that no field names are 0::

    byte   0        8      12          28    32              52     55      60         64
           | address | flags | stride lo | hi | dim 0..4 (-1) | estr | box or im2col | box bytes ...
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.limits import MAX_RANK

STRIDE_UNIT_BYTES = 16
DERIVED = "derived from ptxas 13.0 and maps of CuTe DSL 4.8.1, not measured"
PROVENANCE = "measured on an NVIDIA H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; not published"


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
    known : str
        Of a bit that no argument sets: who sets it, and what it does. `encode` leaves it 0.
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
        """A word with all its bits set."""
        return sum(((1 << width) - 1) << bit for bit, width in self.pieces)

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

    def place(self, value: int) -> int:
        """Return the bits of a value, in place; `OverflowError` if it does not fit."""
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
        """Return the value of the field in 128 bytes."""
        word = int.from_bytes(data, "little")
        raw = shift = 0
        for bit, width in self.pieces:
            raw |= (word >> bit & ((1 << width) - 1)) << shift
            shift += width
        if self.signed and raw >> (shift - 1):
            raw -= 1 << shift
        return (raw + self.bias) * self.unit

    def write(self, data: bytes, value: int) -> bytes:
        """Return 128 bytes in which this field has another value; `OverflowError` as `place`."""
        word = int.from_bytes(data, "little") & ~self.mask
        return (word | self.place(value)).to_bytes(len(data), "little")


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
#: What bit 85 means: cuTensorMapSetAllocationClass of CUDA 13.5 (cuda.h), which sets and clears it.
ALLOCATION_CLASS = (
    "the map is of the allocation class LARGE: at least 128 KiB around what is copied must be "
    "accessible, or copies may fault; where they are, copies may be faster"
)

#: Every field of the 128 bytes.
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

#: What maps of sm_100 and later have; atomicity 0..3 is a granule of 16 bytes, of 32, of 32 with
#: halves of 16 flipped by 8, and of 64.
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

    `derived` is for sm_100 and later.
    """
    fields = DERIVED_FIELDS if derived else FIELDS
    return tuple(field for field in fields if field.exists(kind, rank))
