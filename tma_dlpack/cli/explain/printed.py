"""The driver's arguments as a printout shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import sealed
from tma_dlpack.tables.public import public

Entries = tuple[int | None, ...]


@public
@sealed
@dataclass(frozen=True, slots=True)
class PrintedArguments:
    """The arguments of one encode, as read from a printout by `explain`.

    The attributes are named as in `TensorMap`. Arrays are innermost first, and strides are in bytes
    for dimensions 1 to rank - 1, whatever the printout uses. An argument, or a single entry, that
    is not printed is None. A number that is not a member of its enum stays an int.

    Attributes
    ----------
    kind : {"tiled", "im2col", "im2col_wide"}
    data_type, rank, global_address, global_dim, global_strides, box_dim, element_strides, \
interleave, swizzle, l2_promotion, oob_fill
        As in `TensorMap`.
    pixel_box_lower_corner, pixel_box_upper_corner, channels_per_pixel, pixels_per_column
        For im2col maps; None for tiled ones.
    element_bytes : int or None
        Bytes of one element, if the printout shows them.
    printed_by : str
        The project whose format it is; "" if it is not a known one.
    lines : (int, int)
        Its first and last line in the text, counted from 1.
    implied : mapping
        Arguments that this project always passes and does not print (source: its code). They are
        checked too.
    """

    kind: MapKind = "tiled"
    data_type: TensorMapDataType | int | None = None
    rank: int | None = None
    global_address: int | None = None
    global_dim: Entries | None = None
    global_strides: Entries | None = None
    box_dim: Entries | None = None
    element_strides: Entries | None = None
    interleave: TmaInterleaveLayout | int | None = None
    swizzle: TmaSwizzle | int | None = None
    l2_promotion: TmaL2FetchSize | int | None = None
    oob_fill: TmaOobFill | int | None = None
    pixel_box_lower_corner: Entries | None = None
    pixel_box_upper_corner: Entries | None = None
    channels_per_pixel: int | None = None
    pixels_per_column: int | None = None
    element_bytes: int | None = None
    printed_by: str = field(default="", compare=False)
    lines: tuple[int, int] = field(default=(0, 0), compare=False)
    implied: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)

    def shown(self) -> dict[str, Any]:
        """Give the arguments that the printout has, by name, in the driver's order."""
        values = {name: getattr(self, name) for name in ARGUMENTS}
        return {name: value for name, value in values.items() if value is not None}

    def missing(self) -> tuple[str, ...]:
        """Name what an encode of this kind takes and the printout does not show."""
        return tuple(
            name
            for name in arguments_of(self.kind)
            if getattr(self, name) is None and name not in self.implied
        )

    def __str__(self) -> str:
        words = ", ".join(f"{name}={_said(name, value)}" for name, value in self.shown().items())
        return f"{self.kind}: {words}"


def _said(name: str, value: object) -> str:
    if name == "global_address":
        return f"{value:#x}"
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, tuple):
        entries = ", ".join("?" if v is None else str(v) for v in value)
        return f"({entries}{',' * (len(value) == 1)})"
    return str(value)


_COMMON = ("data_type", "rank", "global_address", "global_dim", "global_strides")
_TILED = ("box_dim",)
_COLUMN = (
    "pixel_box_lower_corner",
    "pixel_box_upper_corner",
    "channels_per_pixel",
    "pixels_per_column",
)
_OPTIONS = ("element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill")


def arguments_of(kind: MapKind) -> tuple[str, ...]:
    """Name the arguments of an encode of one kind, in the driver's order."""
    return (*_COMMON, *(_TILED if kind == "tiled" else _COLUMN), *_OPTIONS)


#: Every argument, in the driver's order.
ARGUMENTS = (*_COMMON, *_TILED, *_COLUMN, *_OPTIONS)
