"""A `Case`: one request, normalised, in the driver's order, ready to be held against the rules.

Its numbers may break any rule; only their types are settled. What could not even be read (a box of
strings, a swizzle that does not exist) is None, and stands in `unread` as a Violation.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction

from tma_dlpack.arguments import EncodeArguments, MapKind, Number
from tma_dlpack.dlpack import TensorView
from tma_dlpack.dtypes import DataTypeRow, row
from tma_dlpack.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.errors import Violation
from tma_dlpack.target import TARGETS, Target

__all__ = ["SWIZZLE_SPAN_BYTES", "Case", "Number"]


#: Bytes of one row of the pattern, by TmaSwizzle.
SWIZZLE_SPAN_BYTES = (0, 32, 64, 128, 128, 128, 128)


@dataclass(frozen=True, slots=True)
class Case:
    """One request. Index 0 is innermost in every tuple.

    Attributes
    ----------
    kind : {"tiled", "im2col", "im2col_wide"}
    rules : {"libcu++", "documented", "driver", "measured"}
        The set of rows that applies.
    mirror : bool
        Whether a `driver_encode_*` call asks; findings then use the driver's words.
    view : TensorView or None
        The tensor, of a `make_*` call.
    dims, strides_bytes
        global_dim, and the byte strides of dimensions 1 to rank - 1.
    innermost_stride : int
        Stride of dimension 0 in elements.
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
    box: tuple[int, ...] | None = None
    elem_strides: tuple[int, ...] | None = None
    interleave: TmaInterleaveLayout | None = None
    swizzle: TmaSwizzle | None = None
    l2_promotion: TmaL2FetchSize | None = None
    oob_fill: TmaOobFill | None = None
    lower: tuple[int, ...] | None = None
    upper: tuple[int, ...] | None = None
    channels: int | None = None
    pixels: int | None = None
    mode: TensorMapIm2ColWideMode | None = None
    unread: tuple[Violation, ...] = ()

    # -- numbers the rules ask for ---------------------------------------------------------------

    @property
    def type_row(self) -> DataTypeRow:
        """The row of the data type (rules that ask need DTYPE)."""
        assert self.data_type is not None
        return row(self.data_type)

    @property
    def element_bits(self) -> int:
        """Bits of one element in global memory; the tensor's own where the map has no type yet."""
        if self.data_type is None:
            assert self.view is not None
            return self.view.dtype.itemsize_bits
        return self.type_row.element_bits

    @property
    def interleaved(self) -> bool:
        """Whether an interleaved layout is asked."""
        return bool(self.interleave)

    @property
    def alignment_bytes(self) -> int:
        """What the address and every stride must be a multiple of."""
        wide = self.interleave is TmaInterleaveLayout.bytes32
        padded = self.data_type is not None and self.type_row.smem_chunk_bytes == 16
        return 32 if wide or padded else 16

    @property
    def inner_box(self) -> int:
        """Elements of the box along dimension 0: box[0], or channels per pixel."""
        inner = self.box[0] if self.kind == "tiled" and self.box else self.channels
        assert inner is not None
        return inner

    @property
    def inner_box_bytes(self) -> Number:
        """Bytes of the box along dimension 0, in global memory."""
        return _whole(Fraction(self.inner_box * self.element_bits, 8))

    @property
    def span_bytes(self) -> int:
        """Bytes of one row of the swizzle pattern; 0 without swizzle."""
        assert self.swizzle is not None
        return SWIZZLE_SPAN_BYTES[self.swizzle]

    @property
    def box_bytes(self) -> Number:
        """Bytes of the whole box (tiled) or column (im2col), in global memory."""
        elements = 1
        for n in self.box or (self.channels or 0, self.pixels or 0):
            elements *= n
        return _whole(Fraction(elements * self.element_bits, 8))

    @property
    def floor_box_bytes(self) -> Number:
        """Bytes that the driver computes for a box: element strides divide it rounding down."""
        elements = 1
        for n, stride in zip(self.box or (), self.elem_strides or (), strict=False):
            elements *= n // stride
        return _whole(Fraction(elements * self.element_bits, 8))

    def nested_bytes(self, i: int) -> Number:
        """Bytes that the dimensions inside dimension i span; those of size 1 have no say."""
        for k in range(i - 1, 0, -1):
            if self.dims[k] != 1:
                return self.dims[k] * self.strides_bytes[k - 1]
        return _whole(Fraction(self.dims[0] * self.element_bits, 8))

    @property
    def inner_unit(self) -> int:
        """Elements of 16 bytes along dimension 0."""
        return math.lcm(128, self.element_bits) // self.element_bits

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
        assert self.lower is not None
        assert self.upper is not None
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
        size = self.strides_bytes[i - 1]
        if self.mirror or self.view is None:
            return f"global_strides[{i - 1}] is {size} bytes"
        elements = self.view.strides[self._index(i)]
        return f"tensor.strides[{self._index(i)}] is {elements} elements, {size} bytes"

    def say_box(self, i: int) -> str:
        """Name an entry of the box."""
        return f"box_dim[{i}]" if self.mirror else f"box_sizes[{self._index(i)}]"

    def say_elem_stride(self, i: int) -> str:
        """Name a traversal stride."""
        return f"element_strides[{i}]" if self.mirror else f"elem_strides[{self._index(i)}]"

    def say_corner(self, which: str, i: int) -> str:
        """Name an entry of a corner; i = 0 is W."""
        if self.kind == "im2col_wide":
            return f"pixel_box_{which}_corner_width" if self.mirror else f"{which}_corner_width"
        index = i if self.mirror else self.spatial - 1 - i
        return f"pixel_box_{which}_corner[{index}] ({'WHD'[i]})"

    def say_inner(self) -> str:
        """Name what spans dimension 0 of the box."""
        return self.say_box(0) if self.kind == "tiled" else "channels_per_pixel"

    def argument(self, name: str) -> str:
        """Translate an argument of make_* into the mirror's word for it, where it asks."""
        return _MIRROR_WORDS.get(name, name) if self.mirror else name.split(".")[0]

    # -- result ----------------------------------------------------------------------------------

    def encode_arguments(self) -> EncodeArguments:
        """Give the driver's arguments of a case that was accepted."""
        assert self.data_type is not None
        assert self.elem_strides is not None
        assert self.interleave is not None
        assert self.swizzle is not None
        assert self.l2_promotion is not None
        assert self.oob_fill is not None
        elem_strides = self.elem_strides
        if self.rules in ("libcu++", "documented") and not self.mirror and not self.interleaved:
            elem_strides = (1, *elem_strides[1:])  # the entry is ignored; libcu++ encodes 1
        return EncodeArguments(
            kind=self.kind,
            data_type=self.data_type,
            global_dim=tuple(map(int, self.dims)),
            global_strides=tuple(map(int, self.strides_bytes)),
            element_strides=elem_strides,
            box_dim=self.box or (),
            interleave=self.interleave,
            swizzle=self.swizzle,
            l2_promotion=self.l2_promotion,
            oob_fill=self.oob_fill,
            pixel_box_lower_corner=self.lower or (),
            pixel_box_upper_corner=self.upper or (),
            channels_per_pixel=self.channels or 0,
            pixels_per_column=self.pixels or 0,
            mode=self.mode or TensorMapIm2ColWideMode.w,
        )

    def under(self, rules: str) -> Case:
        """Give the same request under another set of rules."""
        return dataclasses.replace(self, rules=rules)


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


def _whole(number: Fraction) -> Number:
    return int(number) if number.denominator == 1 else number


def _int32(n: int) -> int:
    return (n + (1 << 31)) % (1 << 32) - (1 << 31)
