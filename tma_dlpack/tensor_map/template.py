"""What a tensor map describes: everything but the address, and how it reads in both orders."""

from __future__ import annotations

from dataclasses import dataclass, field

from tma_dlpack import geometry
from tma_dlpack.dlpack import TensorView
from tma_dlpack.encoding.arguments import EncodeArguments, MapKind, reverse
from tma_dlpack.rules.request import Case
from tma_dlpack.tensor_map.storage import Slot
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.types.errors import TmaUnsupportedError
from tma_dlpack.types.limits import ADDRESS_END
from tma_dlpack.types.target import Target

__all__ = ["Described", "Template"]


@dataclass(frozen=True, slots=True)
class Template:
    """A tensor map without its address.

    Attributes
    ----------
    arguments : EncodeArguments
    tail : bytes or None
        Bytes 8..127; None where neither driver nor model can make them.
    encoder : {"driver", "model", None}
        Who made the bytes; None for none, and for bytes that came from elsewhere.
    target : Target
    view : TensorView or None
        The tensor's description at address 0 and without owner; None for bare addresses.
    launchable : bool
        Whether a kernel may be given the map.
    case : Case or None
        The request that was accepted; None for decoded bytes.
    signature : tuple or None
        What the tensor told of its layout (`dlpack.Signature`): another tensor that tells the same
        needs no comparison.
    reusable : bool
        Whether the bytes serve for other addresses without being encoded anew: the model must have
        made the same as the driver. Never for managed memory, whose GPU is known by its address.
    refused_bits : int
        The bits that no address of the map may have: those below its alignment, 16 or 32 bytes,
        and those from 2^57 on.
    """

    arguments: EncodeArguments
    tail: bytes | None
    encoder: str | None
    target: Target
    view: TensorView | None
    launchable: bool
    case: Case | None = field(default=None, repr=False, compare=False)
    signature: tuple[object, ...] | None = field(default=None, repr=False, compare=False)
    reusable: bool = field(default=False, repr=False, compare=False)
    refused_bits: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out once what every address is held against."""
        object.__setattr__(self, "refused_bits", self.arguments.alignment_bytes - 1 | -ADDRESS_END)


class Described:
    """The attributes of a map that come from its arguments: the driver's words, and ours."""

    __slots__ = ("_address", "_capsule", "_slot", "_template", "_tensor")

    _template: Template
    _address: int
    _tensor: object
    _capsule: object
    _slot: Slot | None  # once it has been asked where the bytes lie

    @property
    def arguments(self) -> EncodeArguments:
        """The driver's arguments, less the address."""
        return self._template.arguments

    @property
    def global_address(self) -> int:
        """Where element (0, ..., 0) stands in global memory."""
        return self._address

    @property
    def kind(self) -> MapKind:
        """``"tiled"``, ``"im2col"`` or ``"im2col_wide"``."""
        return self._template.arguments.kind

    @property
    def data_type(self) -> TensorMapDataType:
        """The element type of the map."""
        return self._template.arguments.data_type

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self._template.arguments.rank

    @property
    def global_dim(self) -> tuple[int, ...]:
        """Extents, innermost first, elements."""
        return self._template.arguments.global_dim

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Strides of dimensions 1 to rank - 1, innermost first, bytes."""
        return self._template.arguments.global_strides

    @property
    def box_dim(self) -> tuple[int, ...]:
        """Box of a tiled map, innermost first, elements; empty for im2col maps."""
        return self._template.arguments.box_dim

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Traversal strides, innermost first, elements."""
        return self._template.arguments.element_strides

    @property
    def interleave(self) -> TmaInterleaveLayout:
        """The interleaved layout of global memory."""
        return self._template.arguments.interleave

    @property
    def swizzle(self) -> TmaSwizzle:
        """The pattern of shared memory."""
        return self._template.arguments.swizzle

    @property
    def l2_promotion(self) -> TmaL2FetchSize:
        """How much L2 fetches at a time."""
        return self._template.arguments.l2_promotion

    @property
    def oob_fill(self) -> TmaOobFill:
        """What fills out-of-bounds elements."""
        return self._template.arguments.oob_fill

    @property
    def pixel_box_lower_corner(self) -> tuple[int, ...]:
        """Lower corner of an im2col map's bounding box, W first; empty for tiled maps."""
        return self._template.arguments.pixel_box_lower_corner

    @property
    def pixel_box_upper_corner(self) -> tuple[int, ...]:
        """Upper corner of an im2col map's bounding box, W first; empty for tiled maps."""
        return self._template.arguments.pixel_box_upper_corner

    @property
    def channels_per_pixel(self) -> int:
        """Channels of an im2col tile; 0 for tiled maps."""
        return self._template.arguments.channels_per_pixel

    @property
    def pixels_per_column(self) -> int:
        """Pixels of an im2col tile; 0 for tiled maps."""
        return self._template.arguments.pixels_per_column

    @property
    def mode(self) -> TensorMapIm2ColWideMode:
        """How far an im2col-wide copy walks."""
        return self._template.arguments.mode

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, row-major, elements (packed types: values)."""
        return reverse(self._template.arguments.global_dim)

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides, row-major, elements (packed types: values); the innermost is 1."""
        a = self._template.arguments
        bits = a.type_row.element_bits
        elements = []
        for stride_bytes in a.global_strides:
            stride, rest = divmod(stride_bytes * 8, bits)
            if rest:
                raise TmaUnsupportedError(
                    f"a stride of {stride_bytes} bytes is no whole number of {bits}-bit values; "
                    "read global_strides, which is in bytes"
                )
            elements.append(stride)
        return (*reverse(elements), 1)

    @property
    def box_sizes(self) -> tuple[int, ...]:
        """Box of a tiled map, row-major, elements; empty for im2col maps."""
        return reverse(self._template.arguments.box_dim)

    @property
    def elem_strides(self) -> tuple[int, ...]:
        """Traversal strides, row-major, elements."""
        return reverse(self._template.arguments.element_strides)

    @property
    def tx_bytes(self) -> int:
        """Bytes that one load reports to its mbarrier (what `expect_tx` must name)."""
        return geometry.tx_bytes(self._template.arguments)

    @property
    def smem_bytes(self) -> int:
        """Bytes of shared memory that one tile spans, swizzle padding included."""
        return geometry.smem_bytes(self._template.arguments)

    @property
    def smem_alignment(self) -> int:
        """Alignment in bytes of the tile in shared memory that makes its pattern start at 0."""
        return geometry.smem_alignment(self._template.arguments)

    @property
    def target(self) -> Target:
        """The GPU that the map is made for."""
        return self._template.target
