"""A `Case`: one request, normalised, in the driver's order, ready to be held against the rules.

Its numbers may break any rule; only their types are reusable. What could not even be read (a box of
strings, a swizzle that does not exist) has its default here and stands in `unread` as a Violation;
rows that need it are not asked.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tma_dlpack.dlpack import TensorView
from tma_dlpack.encoding.arguments import EncodeArguments, MapKind, Number, alignment_bytes_of
from tma_dlpack.types.coerce import counted
from tma_dlpack.types.dtypes import DATA_TYPES, DataTypeRow
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.types.errors import Violation
from tma_dlpack.types.limits import INNER_BYTES, SWIZZLE_SPAN_BYTES
from tma_dlpack.types.target import TARGETS, Target

__all__ = ["RULE_SETS", "Case", "set_of_rules"]

#: What `rules=` may be, by kind of map; the first is the default.
RULE_SETS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("libcu++", "driver"),
    "im2col": ("documented", "driver"),
    "im2col_wide": ("documented", "driver"),
}


def set_of_rules(kind: MapKind, rules: str, target: Target) -> str:
    """Give the set of rows that `rules=` of a `make_*` call stands for.

    What the driver asks of an im2col map is measured on sm_90 alone; elsewhere its document holds.
    """
    if kind == "tiled" or rules != "driver":
        return rules
    return "measured" if target.has_model else "documented"


@dataclass(slots=True)  # a frozen one takes twice as long to make, 6 % of a first call
class Case:
    """One request, a value that nothing changes. Index 0 is innermost in every tuple.

    Attributes
    ----------
    kind : {"tiled", "im2col", "im2col_wide"}
    rules : {"libcu++", "documented", "driver", "measured"}
        The set of rows that applies.
    mirror : bool
        Whether a `driver_encode_*` call asks; findings then use the driver's words.
    view : TensorView or None
        The tensor of a `make_*` call, at address 0 and without its owner.
    asked_type : TensorMapDataType or None
        What `data_type=` says.
    data_type : TensorMapDataType or None
        The map's type; None where there is none for the tensor, or not the one that is asked.
    dims, strides_bytes
        global_dim, and the byte strides of dimensions 1 to rank - 1.
    innermost_stride : int
        Stride of dimension 0 in elements.
    unread : tuple of Violation
        Arguments that could not be read.
    instead : mapping
        What would be readable in their place, by argument.
    interleaved : bool
        Whether an interleaved layout is asked.
    element_bits : int
        Bits of one element in global memory; the tensor's own where the map has no type, 0 where
        neither is known.
    alignment_bytes : int
        What the address and every stride must be a multiple of.
    """

    kind: MapKind
    rules: str = "libcu++"
    mirror: bool = False
    target: Target = TARGETS["sm_90"]
    target_is_assumed: bool = False
    view: TensorView | None = None
    asked_type: TensorMapDataType | None = None
    data_type: TensorMapDataType | None = None
    address: int = 0
    rank: int = 0
    dims: tuple[Number, ...] = ()
    strides_bytes: tuple[Number, ...] = ()
    innermost_stride: int = 1
    box: tuple[int, ...] = ()
    elem_strides: tuple[int, ...] = ()
    interleave: TmaInterleaveLayout = TmaInterleaveLayout.none
    swizzle: TmaSwizzle = TmaSwizzle.none
    l2_promotion: TmaL2FetchSize = TmaL2FetchSize.none
    oob_fill: TmaOobFill = TmaOobFill.none
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    mode: TensorMapIm2ColWideMode = TensorMapIm2ColWideMode.w
    unread: tuple[Violation, ...] = ()
    instead: Mapping[str, Any] = field(default_factory=dict)
    interleaved: bool = field(init=False)
    element_bits: int = field(init=False)
    alignment_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Work out what most rows ask."""
        self.interleaved = self.interleave != TmaInterleaveLayout.none
        self.alignment_bytes = alignment_bytes_of(self.interleave, self.data_type)
        if self.data_type is not None:
            self.element_bits = DATA_TYPES[self.data_type].element_bits
        else:
            self.element_bits = 0 if self.view is None else self.view.dtype.itemsize_bits

    # -- numbers the rules ask for ---------------------------------------------------------------

    @property
    def type_row(self) -> DataTypeRow:
        """The row of the data type; rules that ask need one."""
        assert self.data_type is not None
        return DATA_TYPES[self.data_type]

    @property
    def inner_box(self) -> int:
        """Elements of the box along dimension 0: box[0], or channels per pixel."""
        return self.box[0] if self.kind == "tiled" else self.channels

    @property
    def inner_box_bytes(self) -> Number:
        """Bytes of the box along dimension 0, in global memory."""
        return _bytes(self.inner_box * self.element_bits)

    @property
    def inner_unit(self) -> int:
        """Fewest elements along dimension 0 that take a multiple of 16 bytes."""
        bits = self.element_bits
        return math.lcm(INNER_BYTES * 8, bits) // bits

    @property
    def span_bytes(self) -> int:
        """Bytes of one row of the swizzle pattern; 0 without swizzle."""
        return SWIZZLE_SPAN_BYTES[self.swizzle]

    @property
    def span_elements(self) -> int:
        """Elements that one row of the swizzle pattern holds."""
        return self.span_bytes * 8 // self.element_bits

    @property
    def box_bytes(self) -> Number:
        """Bytes of the whole box (tiled) or column (im2col), in global memory."""
        entries = self.box if self.kind == "tiled" else (self.channels, self.pixels)
        return _bytes(math.prod(entries) * self.element_bits)

    @property
    def floor_box_bytes(self) -> Number:
        """Bytes that the driver computes: a box is divided by element strides, rounding down."""
        if self.kind != "tiled":
            return self.box_bytes
        elements = math.prod(map(operator.floordiv, self.box, self.encoded_elem_strides))
        return _bytes(elements * self.element_bits)

    @property
    def ignores_innermost_elem_stride(self) -> bool:
        """Whether elem_strides' innermost entry has no say.

        libcu++ encodes 1 there unless the layout is interleaved, and the document ignores it; the
        driver wants it in range all the same.
        """
        return self.rules in ("libcu++", "documented") and not self.interleaved and not self.mirror

    @property
    def encoded_elem_strides(self) -> tuple[int, ...]:
        """Element strides as the driver is given them."""
        if self.elem_strides[:1] != (1,) and self.ignores_innermost_elem_stride:
            return (1, *self.elem_strides[1:])
        return self.elem_strides

    def nested_bytes(self, i: int) -> Number:
        """Bytes that the dimensions inside dimension i span; those of size 1 have no say."""
        for k in range(i - 1, 0, -1):
            if self.dims[k] != 1:
                return self.dims[k] * self.strides_bytes[k - 1]
        return _bytes(self.dims[0] * self.element_bits)

    @property
    def spatial(self) -> int:
        """Number of spatial dimensions (W, H, D)."""
        return self.rank - 2

    @property
    def first_spatial(self) -> int:
        """Dimension of W: 1, or 0 when interleaved."""
        return 0 if self.interleaved else 1

    def spatial_size(self, i: int) -> int:
        """Extent along spatial dimension i, 0 being W, as the target's driver sees it."""
        size = int(self.dims[self.first_spatial + i])
        return _int32(size) if self.target.has_model else size

    def bounding_box_extent(self, i: int) -> int:
        """Pixels of the im2col bounding box along spatial dimension i, 0 being W.

        The driver adds in 32-bit signed integers, which wrap [measured, sm_90].
        """
        end = self.spatial_size(i) + self.upper[i]
        return (_int32(end) if self.target.has_model else end) - self.lower[i]

    @property
    def corner_bits(self) -> int:
        """Width in bits of one corner entry."""
        if self.kind == "im2col_wide" and self.rules == "documented":
            return 16
        return {3: 16, 4: 8, 5: 5}[self.rank]

    # -- words -----------------------------------------------------------------------------------

    def _index(self, i: int) -> int:
        return i if self.mirror else self.rank - 1 - i

    def say_dim(self, i: int) -> str:
        """Name an extent."""
        return f"global_dim[{i}]" if self.mirror else f"tensor.shape[{self._index(i)}]"

    def say_stride(self, i: int) -> str:
        """Name the stride of dimension i and give its value, with units."""
        size = counted(self.strides_bytes[i - 1], "byte")
        if self.view is None:
            return f"global_strides[{i - 1}] is {size}"
        place = self._index(i)
        elements = counted(self.view.strides[place], "element")
        return f"tensor.strides[{place}] is {elements}, {size}"

    def say_box(self, i: int) -> str:
        """Name an entry of the box."""
        return f"{self.argument('box_sizes')}[{self._index(i)}]"

    def say_elem_stride(self, i: int) -> str:
        """Name a traversal stride."""
        return f"{self.argument('elem_strides')}[{self._index(i)}]"

    def say_corner(self, which: str, i: int) -> str:
        """Name an entry of a corner; i = 0 is W."""
        name = self.argument(f"pixel_box_{which}_corner")
        if self.kind == "im2col_wide":
            return name
        index = i if self.mirror else self.spatial - 1 - i
        return f"{name}[{index}] ({'WHD'[i]})"

    def say_inner(self) -> str:
        """Name what spans dimension 0 of the box."""
        return self.say_box(0) if self.kind == "tiled" else "channels_per_pixel"

    def say_type(self) -> str:
        """Name what says the type of the map, and what it says."""
        name = self.type_row.data_type.name
        if self.view is None:
            return f"tensor_data_type is {name}"
        if self.asked_type is not None:
            return f"data_type is {name}"
        return f"tensor.dtype is {self.view.dtype}, which takes the map type {name}"

    def argument(self, name: str) -> str:
        """Give the call's own name for an argument that a rule names."""
        name = _WORDS_OF_KIND[self.kind].get(name, name)
        if self.mirror:
            return _MIRROR_WORDS.get(name, name)
        if name == "tensor.dtype" and self.asked_type is not None:
            return "data_type"
        return name.partition(".")[0]

    # -- result ----------------------------------------------------------------------------------

    def encode_arguments(self) -> EncodeArguments:
        """Give the driver's arguments of a case that was accepted."""
        assert self.data_type is not None
        return EncodeArguments(
            kind=self.kind,
            data_type=self.data_type,
            global_dim=self.dims,  # type: ignore[arg-type]  # the rules asked for whole numbers
            global_strides=self.strides_bytes,  # type: ignore[arg-type]
            element_strides=self.encoded_elem_strides,
            box_dim=self.box,
            interleave=self.interleave,
            swizzle=self.swizzle,
            l2_promotion=self.l2_promotion,
            oob_fill=self.oob_fill,
            pixel_box_lower_corner=self.lower,
            pixel_box_upper_corner=self.upper,
            channels_per_pixel=self.channels,
            pixels_per_column=self.pixels,
            mode=self.mode,
        )

    def under(self, rules: str) -> Case:
        """Give the same request under other rules, as `rules=` of the call names them."""
        return dataclasses.replace(self, rules=set_of_rules(self.kind, rules, self.target))


#: Rules name a tiled map's arguments; other kinds have others in their place.
_WORDS_OF_KIND: dict[MapKind, dict[str, str]] = {
    "tiled": {},
    "im2col": {"box_sizes": "channels_per_pixel"},
    "im2col_wide": {
        "box_sizes": "channels_per_pixel",
        "pixel_box_lower_corner": "lower_corner_width",
        "pixel_box_upper_corner": "upper_corner_width",
    },
}
_MIRROR_WORDS = {
    "tensor.rank": "tensor_rank",
    "tensor.address": "global_address",
    "tensor.dtype": "tensor_data_type",
    "tensor.shape": "global_dim",
    "tensor.strides": "global_strides",
    "data_type": "tensor_data_type",
    "box_sizes": "box_dim",
    "elem_strides": "element_strides",
    "interleave_layout": "interleave",
    "l2_fetch_size": "l2_promotion",
    "oobfill": "oob_fill",
    "lower_corner_width": "pixel_box_lower_corner_width",
    "upper_corner_width": "pixel_box_upper_corner_width",
}


def _bytes(bits: Number) -> Number:
    return bits // 8 if bits % 8 == 0 else Fraction(bits) / 8


def _int32(n: int) -> int:
    return (n + (1 << 31)) % (1 << 32) - (1 << 31)
