"""The attributes of a tensor map, under the driver's names and under libcu++'s names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tma_dlpack.public import opaque, untraced
from tma_dlpack.tables.arguments import EncodeArguments, MapKind, arguments_of, reverse
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.targets import DEFAULT_TARGET, Target
from tma_dlpack.tensor_map.storage import MapStorage

if TYPE_CHECKING:
    from tma_dlpack.checks.request import Request
    from tma_dlpack.tensor_map.description import Description


class MapKey(NamedTuple):
    """The values of a map that a compiled kernel depends on; see `TensorMap.key`.

    `box_sizes` and `elem_strides` are row-major.
    """

    kind: MapKind
    data_type: TensorMapDataType
    rank: int
    box_sizes: tuple[int, ...]
    elem_strides: tuple[int, ...]
    channels_per_pixel: int
    pixels_per_column: int
    mode: TensorMapIm2ColWideMode
    interleave_layout: TmaInterleaveLayout
    swizzle: TmaSwizzle
    oobfill: TmaOobFill
    split_inner: bool | None = None
    ragged: int | None = None


class MapAttributes(MapStorage):
    """The attributes of a map, under two sets of names.

    Arrays under the driver's names are innermost first. Arrays under libcu++'s names are row-major.
    """

    __slots__ = ()

    @property
    @untraced
    def description(self) -> Description:
        """The map's arguments, target, encoder and tensor view, computed on first use."""
        known = self._description
        return self._describe() if known is None else known

    @opaque
    def _describe(self) -> Description:
        from tma_dlpack.tensor_map.description import describe

        known = describe(self)
        self._keep(known)
        return known

    def _accepted_request(self) -> Request:
        """Return the request of the call that made the map, with the map's current address."""
        from tma_dlpack.checks.request import with_facts_in_c

        view, request = self.description.view, self.description.request
        assert request is not None
        # Take the layout from the request, because the tensor may be freed.
        of_tensor = {"layout": request.layout, "rank": request.rank}
        return with_facts_in_c(
            request.with_fields(address=self._address, view=view, **of_tensor), self
        )

    @property
    @untraced
    def arguments(self) -> EncodeArguments:
        """The arguments of cuTensorMapEncode*, without the address."""
        known = self._arguments
        if known is None:
            # If C made the map, `_numbers` are the arguments that C decodes from the bytes.
            numbers = None if self._description is not None else self._numbers
            known = self.description.arguments if numbers is None else arguments_of(numbers)
            self._keep_arguments(known)
        return known

    @property
    def global_address(self) -> int:
        """Address of element (0, ..., 0) in global memory."""
        return self._address

    @property
    def kind(self) -> MapKind:
        """Kind of map: ``"tiled"``, ``"im2col"`` or ``"im2col_wide"``."""
        return self.arguments.kind

    @property
    def data_type(self) -> TensorMapDataType:
        """Data type of an element, as a TensorMapDataType."""
        return self.arguments.data_type

    @property
    def rank(self) -> int:
        """Number of dimensions, 1..5."""
        return self.arguments.rank

    @property
    def global_dim(self) -> tuple[int, ...]:
        """Extents of the tensor in elements, innermost first."""
        return self.arguments.global_dim

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Strides of dimensions 1 to rank - 1 in bytes, innermost first."""
        return self.arguments.global_strides

    @property
    def box_dim(self) -> tuple[int, ...]:
        """Extents of a tiled map's box in elements, innermost first; empty for im2col maps."""
        return self.arguments.box_dim

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Distance in the tensor between neighbours in the tile, in elements, innermost first."""
        return self.arguments.element_strides

    @property
    def interleave(self) -> TmaInterleaveLayout:
        """Interleaved layout of global memory, as a TmaInterleaveLayout."""
        return self.arguments.interleave

    @property
    def swizzle(self) -> TmaSwizzle:
        """Swizzle of shared memory, as a TmaSwizzle."""
        return self.arguments.swizzle

    @property
    def l2_promotion(self) -> TmaL2FetchSize:
        """Bytes that L2 fetches at a time, as a TmaL2FetchSize."""
        return self.arguments.l2_promotion

    @property
    def oob_fill(self) -> TmaOobFill:
        """The value that a load writes for out-of-bounds elements, as a TmaOobFill."""
        return self.arguments.oob_fill

    # `interleave`, `l2_promotion` and `oob_fill` have other names as arguments of
    # `make_tma_descriptor`.
    @property
    def interleave_layout(self) -> TmaInterleaveLayout:
        """The value of `interleave`, under the argument's name."""
        return self.interleave

    @property
    def l2_fetch_size(self) -> TmaL2FetchSize:
        """The value of `l2_promotion`, under the argument's name."""
        return self.l2_promotion

    @property
    def oobfill(self) -> TmaOobFill:
        """The value of `oob_fill`, under the argument's name."""
        return self.oob_fill

    @property
    def pixel_box_lower_corner(self) -> tuple[int, ...]:
        """Lower corner of an im2col map's bounding box in pixels, W first; empty for tiled maps."""
        return self.arguments.pixel_box_lower_corner

    @property
    def pixel_box_upper_corner(self) -> tuple[int, ...]:
        """Upper corner of an im2col map's bounding box in pixels, W first; empty for tiled maps."""
        return self.arguments.pixel_box_upper_corner

    @property
    def channels_per_pixel(self) -> int:
        """Number of channels that an im2col copy moves of each pixel; 0 for tiled maps."""
        return self.arguments.channels_per_pixel

    @property
    def pixels_per_column(self) -> int:
        """Number of pixels that an im2col copy moves; 0 for tiled maps."""
        return self.arguments.pixels_per_column

    @property
    def mode(self) -> TensorMapIm2ColWideMode:
        """Number of pixels that an im2col-wide copy loads, as a TensorMapIm2ColWideMode."""
        return self.arguments.mode

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor, row-major, in elements (for packed types, in values)."""
        return reverse(self.arguments.global_dim)

    @property
    @untraced
    def strides(self) -> tuple[int, ...]:
        """Strides, row-major, in elements (for packed types, in values); the last stride is 1."""
        a = self.arguments
        bits = a.type_row.element_bits
        # A map stores no stride of dimension 0, because this dimension is always contiguous.
        elements = [1]
        for stride_bytes in a.global_strides:
            stride, rest = divmod(stride_bytes * 8, bits)
            if rest:
                raise TmaUnsupportedError(
                    f"a stride of {stride_bytes} bytes is not a whole number of {bits}-bit values; "
                    "read global_strides, which is in bytes"
                )
            elements.append(stride)
        return reverse(elements)

    @property
    def box_sizes(self) -> tuple[int, ...]:
        """Extents of a tiled map's box in elements, row-major; empty for im2col maps."""
        return reverse(self.arguments.box_dim)

    @property
    def elem_strides(self) -> tuple[int, ...]:
        """Distance in the tensor between neighbours in the tile, in elements, row-major."""
        return reverse(self.arguments.element_strides)

    def key(self) -> MapKey:
        """Return a key for a cache of kernels that are compiled for the values of a map.

        The key has every value that determines the layout of a tile in shared memory or the number
        of bytes of a copy. It does not have values that may change between launches of the same
        kernel: the address, extents, strides, corners of the bounding box, and L2 promotion.

        Returns
        -------
        MapKey
            A named tuple that is hashable and comparable and can be pickled.

        Examples
        --------
        >>> import numpy as np, tma_dlpack as tma
        >>> a = tma.make_tma_descriptor(np.zeros((128, 64), np.float16), (16, 64))
        >>> b = tma.make_tma_descriptor(np.zeros((999, 256), np.float16), (16, 64))
        >>> a == b, a.key() == b.key()
        (False, True)
        """
        a = self.arguments
        return MapKey(
            kind=a.kind,
            data_type=a.data_type,
            rank=a.rank,
            box_sizes=reverse(a.box_dim),
            elem_strides=reverse(a.element_strides),
            channels_per_pixel=a.channels_per_pixel,
            pixels_per_column=a.pixels_per_column,
            mode=a.mode,
            interleave_layout=a.interleave,
            swizzle=a.swizzle,
            oobfill=a.oob_fill,
            split_inner=self.split_inner,
            ragged=self.ragged,
        )

    @property
    def split_inner(self) -> bool | None:
        """Whether the map was made with `split_inner=True`; None if the call is not known."""
        added = self._added_dimensions
        return None if added is None else added[0]

    @property
    def ragged(self) -> int | None:
        """The index of the tensor's ragged dimension (row-major from 0); None without `ragged=`."""
        added = self._added_dimensions
        return None if added is None else added[1]

    @property
    def _added_dimensions(self) -> tuple[bool, int | None] | None:
        # The pair (split_inner, ragged). For a map that C made, the pair is known before the
        # description is computed.
        known = self._description
        return self._added if known is None else known.added

    @property
    @untraced
    def tx_bytes(self) -> int:
        """Bytes of one load, which the mbarrier counts: the operand of expect_tx.

        Out-of-bounds elements of the box count too.
        """
        known = self._tx_bytes
        return self._find_tx_bytes() if known is None else known

    @opaque
    def _find_tx_bytes(self) -> int:
        from tma_dlpack import geometry

        return geometry.tx_bytes(self.arguments)

    @property
    @opaque
    def smem_bytes(self) -> int:
        """Size of a tile in shared memory in bytes, padding included."""
        from tma_dlpack import geometry

        return geometry.smem_bytes(self.arguments)

    @property
    @opaque
    def smem_alignment(self) -> int:
        """Recommended alignment of a tile in shared memory, in bytes.

        With this alignment, the swizzle pattern starts at the first byte of every tile, so code can
        read all tiles in the same way. A copy itself needs only an alignment of 128 bytes.
        """
        from tma_dlpack import geometry

        return geometry.smem_alignment(self.arguments)

    @property
    def is_derived(self) -> bool:
        """Whether the map's bytes were decoded with a layout that is derived, not measured."""
        return self.target.has_derived_layout and self.description.request is None

    @property
    def is_zero(self) -> bool:
        """Whether all 128 bytes are 0, as in zeroed memory before a map is written to it."""
        return self._data is not None and not any(self._data)

    is_nothing = is_zero  # the name of `is_zero` in version 0.3

    @property
    def target(self) -> Target:
        """The GPU that the map was made for, as a Target."""
        if self._description is not None:
            return self.description.target
        # If C made the map, `_target` is the Target of the call, the ordinal of the tensor's GPU,
        # or None.
        known: Any = self._target
        if type(known) is not int:
            return DEFAULT_TARGET if known is None else known
        from tma_dlpack import driver

        return driver.device_target(known)
