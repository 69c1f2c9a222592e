"""`EncodeArguments`: a tensor map without its address, with the driver's names and order.

In the driver's order, index 0 is the innermost dimension. `geometry`, the encoding of the 128 bytes
and the simulator read `EncodeArguments`. Only the function `reverse` converts between the driver's
order and row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from numbers import Rational
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from tma_dlpack.tables.dtypes import DATA_TYPES, DataTypeRow
from tma_dlpack.tables.enums import (
    DATA_TYPE_MEMBERS,
    FILL_MEMBERS,
    INTERLEAVE_MEMBERS,
    L2_MEMBERS,
    MODE_MEMBERS,
    SWIZZLE_MEMBERS,
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)

MapKind = Literal["tiled", "im2col", "im2col_wide"]
KINDS: tuple[MapKind, ...] = ("tiled", "im2col", "im2col_wide")
#: Kind of map -> the driver's function.
FUNCTIONS: dict[MapKind, str] = {
    "tiled": "cuTensorMapEncodeTiled",
    "im2col": "cuTensorMapEncodeIm2col",
    "im2col_wide": "cuTensorMapEncodeIm2colWide",
}
KIND_OF = {function: kind for kind, function in FUNCTIONS.items()}
#: The driver's arguments whose values are enums: name -> enum. Maps of every kind have them.
ENUMS: dict[str, type[IntEnum]] = {
    "data_type": TensorMapDataType,
    "interleave": TmaInterleaveLayout,
    "swizzle": TmaSwizzle,
    "l2_promotion": TmaL2FetchSize,
    "oob_fill": TmaOobFill,
}
#: Option of every kind of map: its name in this package -> its name in the driver.
OPTION_NAMES = {
    "interleave_layout": "interleave",
    "swizzle": "swizzle",
    "l2_fetch_size": "l2_promotion",
    "oobfill": "oob_fill",
}
CORNERS = ("pixel_box_lower_corner", "pixel_box_upper_corner")


class Option(NamedTuple):
    """A rarely used option of the functions `make_*`; `form` is the type of its values.

    From these rows, `.packaging/generate.py` prints the options in C and C++, and the class
    `abi.RareOptions`.
    """

    name: str
    form: Literal["flag", "integer", "integers"]
    default: bool | int | None
    about: str  # comment of the option in C and C++


RARE_OPTIONS = (
    Option("shape", "integers", None, "extents that replace the extents of the tensor"),
    Option("strides", "integers", None, "strides that replace the tensor's strides, in elements"),
    Option(
        "offset",
        "integer",
        0,
        "elements from the tensor's first element to the map's first element",
    ),
    Option("split_inner", "flag", False, "whether to split the last dimension into spans"),
    Option("ragged", "integer", None, "the dimension of slices of any length; -1 is the last"),
)


class _Omitted(str):
    """A string that stays the same object when it is pickled or copied."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NO_SWIZZLE"


#: The default of `swizzle`. It is equal to "none", but a different object, so a call with
#: split_inner= can refuse an omitted swizzle and accept swizzle="none".
NO_SWIZZLE: Literal["none"] = _Omitted("none")  # type: ignore[assignment]

T = TypeVar("T")

#: Type of an extent, or of a stride in bytes. If elements are smaller than a byte, these numbers
#: may be fractions until the rules refuse them.
if TYPE_CHECKING:
    from fractions import Fraction

    Number = int | Fraction
else:
    # Rational is a base class of int and Fraction. Fraction is not imported here, because this
    # import would take a tenth of the time of importing the package.
    Number = Rational


def reverse(sequence: Sequence[T]) -> tuple[T, ...]:
    """Convert row-major order to the driver's order, or the driver's order to row-major."""
    return tuple(sequence[::-1])


def alignment_bytes_of(interleave: TmaInterleaveLayout, data_type: TensorMapDataType | None) -> int:
    """Return the required alignment of the address and of every stride, 16 or 32 bytes.

    The alignment is 32 bytes if the interleave layout is bytes32, or if the data type is one of the
    ALIGN16B types.
    """
    if interleave is TmaInterleaveLayout.bytes32:
        return 32
    return 32 if data_type is not None and DATA_TYPES[data_type].smem_chunk_bytes == 16 else 16


class EncodeArguments(NamedTuple):
    """The arguments of cuTensorMapEncodeTiled, ...Im2col or ...Im2colWide, without the address.

    Index 0 of an array is the innermost dimension. `global_strides` are in bytes, for dimensions 1
    to rank - 1. A corner is (W,) at rank 3, (W, H) at rank 4 and (W, H, D) at rank 5; a corner of
    an im2col-wide map is always (W,). Fields that the kind of map does not have are empty or 0.
    """

    kind: MapKind
    data_type: TensorMapDataType
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    element_strides: tuple[int, ...]
    box_dim: tuple[int, ...] = ()
    interleave: TmaInterleaveLayout = TmaInterleaveLayout.none
    swizzle: TmaSwizzle = TmaSwizzle.none
    l2_promotion: TmaL2FetchSize = TmaL2FetchSize.none
    oob_fill: TmaOobFill = TmaOobFill.none
    pixel_box_lower_corner: tuple[int, ...] = ()
    pixel_box_upper_corner: tuple[int, ...] = ()
    channels_per_pixel: int = 0
    pixels_per_column: int = 0
    mode: TensorMapIm2ColWideMode = TensorMapIm2ColWideMode.w

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    @property
    def enums(
        self,
    ) -> tuple[TmaInterleaveLayout, TmaSwizzle, TmaL2FetchSize, TmaOobFill]:
        """The options whose values are enums, in the order of `OPTION_NAMES`."""
        return self.interleave, self.swizzle, self.l2_promotion, self.oob_fill

    @property
    def type_row(self) -> DataTypeRow:
        """The row of the data type in `DATA_TYPES`."""
        return DATA_TYPES[self.data_type]

    @property
    def inner_box(self) -> int:
        """Extent of the box in dimension 0: box_dim[0], or channels_per_pixel of an im2col map."""
        return self.box_dim[0] if self.kind == "tiled" else self.channels_per_pixel

    @property
    def inner_box_bytes(self) -> int:
        """Size of `inner_box` elements in global memory, in bytes."""
        return self.inner_box * self.type_row.element_bits // 8

    @property
    def row_bytes(self) -> int:
        """Size of one row of the tensor (its elements along dimension 0) in bytes."""
        return self.global_dim[0] * self.type_row.element_bits // 8

    @property
    def alignment_bytes(self) -> int:
        """Required alignment of the address and of every stride, in bytes."""
        return alignment_bytes_of(self.interleave, self.data_type)

    @property
    def floor_box_bytes(self) -> int:
        """Size of the box in bytes, as the driver computes it; the driver limits it to 228 KB.

        The driver divides each extent of the box by its element stride and rounds down [measured,
        H200, driver 580.159.04]. A copy may transfer more bytes; see `geometry.tx_bytes`.
        """
        elements = self.channels_per_pixel * self.pixels_per_column
        if self.kind == "tiled":
            elements = 1
            for box, stride in zip(self.box_dim, self.element_strides, strict=False):
                elements *= box // stride
        return elements * self.type_row.element_bits // 8


def arguments_of(numbers: tuple[Any, ...]) -> EncodeArguments:
    """Return the `EncodeArguments` for a tuple of numbers from the C extension."""
    (
        kind, data_type, dims, strides, steps, box, interleave, swizzle, l2_promotion, oob_fill,
        lower, upper, channels, pixels, mode,
    ) = numbers  # fmt: skip
    return EncodeArguments(
        KINDS[kind],
        DATA_TYPE_MEMBERS[data_type],
        dims,
        strides,
        steps,
        box,
        INTERLEAVE_MEMBERS[interleave],
        SWIZZLE_MEMBERS[swizzle],
        L2_MEMBERS[l2_promotion],
        FILL_MEMBERS[oob_fill],
        lower,
        upper,
        channels,
        pixels,
        MODE_MEMBERS[mode],
    )
