"""The driver's arguments as a printout shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tma_dlpack.encoding.arguments import MapKind
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.types.errors import sealed
from tma_dlpack.types.public import public

__all__ = ["ARGUMENTS", "PrintedArguments"]

Entries = tuple[int | None, ...]


@public
@sealed
@dataclass(frozen=True, slots=True)
class PrintedArguments:
    """What one printout shows of the arguments of one encode, under `TensorMap`'s names.

    Lists are innermost first and strides are bytes of dimensions 1 to rank - 1, whatever the
    printout has. What it does not show is None, and so is a single entry that it does not show. A
    number that is no member of its enum stays a number.

    Attributes
    ----------
    kind : {"tiled", "im2col", "im2col_wide"}
    data_type, rank, global_address, global_dim, global_strides, box_dim, element_strides, \
interleave, swizzle, l2_promotion, oob_fill
        As `TensorMap` has them.
    pixel_box_lower_corner, pixel_box_upper_corner, channels_per_pixel, pixels_per_column
        Of an im2col map; None in a tiled one.
    element_bytes : int or None
        Bytes of one element where the printout shows them beside or in place of the type.
    printed_by : str
        Whose form the printout has; "" where it is nobody's in particular.
    lines : (int, int)
        Its first and last line in the text, counted from 1.
    implied : mapping
        Arguments that this printer always passes and does not print (source: its own code). The
        rules are held against them too.
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
        """Give the arguments that the printout shows, by name, in the driver's order."""
        values = {name: getattr(self, name) for name in ARGUMENTS}
        return {name: value for name, value in values.items() if value is not None}

    def missing(self) -> tuple[str, ...]:
        """Name what an encode of this kind takes and the printout does not show."""
        return tuple(
            name
            for name in (*_COMMON, *(_TILED if self.kind == "tiled" else _COLUMN), *_OPTIONS)
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
#: Every argument, in the driver's order.
ARGUMENTS = (*_COMMON, *_TILED, *_COLUMN, *_OPTIONS)
