"""`TensorMap`: a checked CUtensorMap, its 128 bytes, and the tensor it stands for.

A map is a `Template` (everything but the address, shared by all maps of one layout) and an address.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tma_dlpack import fields, geometry
from tma_dlpack.arguments import EncodeArguments, MapKind, reverse
from tma_dlpack.case import Case
from tma_dlpack.check import advise
from tma_dlpack.dlpack import Device, TensorView
from tma_dlpack.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.errors import Advice, TmaUnsupportedError
from tma_dlpack.fields import ADDRESS_BYTES, MAP_BYTES
from tma_dlpack.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Template", "TensorMap"]

STORAGE_ALIGNMENT = 128  # alignas of CUtensorMap in CUDA 13's cuda.h (64 in the documents)


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
    """

    arguments: EncodeArguments
    tail: bytes | None
    encoder: str | None
    target: Target
    view: TensorView | None
    launchable: bool
    case: Case | None = field(default=None, repr=False, compare=False)


class TensorMap:
    """A CUDA tensor map (CUtensorMap): what the Tensor Memory Accelerator is told to copy.

    Made by `make_tma_descriptor` and its siblings, never directly. Immutable, hashable, equal by
    value (arguments, address, bytes and target; not the tensor object). It keeps its tensor alive.

    Attributes in the driver's order (index 0 is innermost): `data_type`, `rank`, `global_address`,
    `global_dim`, `global_strides` (bytes), `box_dim`, `element_strides`, `interleave`, `swizzle`,
    `l2_promotion`, `oob_fill`, `kind`, and of im2col maps `pixel_box_lower_corner`,
    `pixel_box_upper_corner`, `channels_per_pixel`, `pixels_per_column`, `mode`.
    Row-major: `shape`, `strides` (elements), `box_sizes`, `elem_strides`.
    """

    __slots__ = ("__weakref__", "_address", "_capsule", "_storage", "_template", "_tensor")

    _template: Template
    _address: int
    _tensor: object
    _capsule: object  # of a producer that may have exported a temporary
    _storage: tuple[NDArray[np.uint8], int] | None

    def __init__(self) -> None:
        raise TypeError(
            "a TensorMap is made by make_tma_descriptor, driver_encode_tiled or "
            "TensorMap.from_bytes, not by its class"
        )

    @classmethod
    def _make(
        cls, template: Template, address: int, tensor: object = None, capsule: object = None
    ) -> TensorMap:
        self = object.__new__(cls)
        set_slot = object.__setattr__
        set_slot(self, "_template", template)
        set_slot(self, "_address", address)
        set_slot(self, "_tensor", tensor)
        set_slot(self, "_capsule", capsule)
        set_slot(self, "_storage", None)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TensorMap is immutable: {name} cannot be set; make another map")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a TensorMap is immutable: {name} cannot be deleted")

    # -- bytes -----------------------------------------------------------------------------------

    @classmethod
    def from_bytes(cls, data: object, target: Target | str = "sm_90") -> TensorMap:
        """Decode the 128 bytes of a tensor map, such as a debugger or a kernel dumped.

        Parameters
        ----------
        data : bytes-like
            128 bytes.
        target : str or Target
            The GPU that the map was made for. Only sm_90's layout is known.

        Returns
        -------
        TensorMap
            With these very bytes, a bare address and no tensor.

        Raises
        ------
        TmaPreconditionError
            If the bytes are no map of sm_90.
        TmaUnsupportedError
            If the layout of that target has not been measured.

        Notes
        -----
        Measured (H200, driver 580.159.04, 2026-11-20), not published. Bytes 64..127 are kept and
        not looked at, as the engine does. An im2col-wide map reads as im2col with one corner.

        Examples
        --------
        >>> TensorMap.from_bytes(bytes(128)).data_type.name
        'UINT8'
        """
        known = Target.of(target)
        if not known.has_model:
            raise TmaUnsupportedError(
                f"the 128 bytes of a map for {known} have not been measured; only sm_90's can be "
                f"read ({fields.PROVENANCE})"
            )
        raw = _as_bytes(data)
        arguments, address = fields.decode(raw)
        template = Template(arguments, raw[ADDRESS_BYTES:], None, known, None, launchable=True)
        return cls._make(template, address)

    def __bytes__(self) -> bytes:
        tail = self._template.tail
        if tail is None:
            raise self._no_bytes()
        return self._address.to_bytes(ADDRESS_BYTES, "little") + tail

    def _no_bytes(self) -> TmaUnsupportedError:
        return TmaUnsupportedError(
            f"there are no bytes of this map: the layout for {self.target} has not been measured, "
            "and no driver with such a GPU encoded it here; make the map on a machine that has one "
            "(check, simulation and drawing go on without)"
        )

    @property
    def ptr(self) -> int:
        """Address of the map's own 128 bytes: 128-byte aligned, valid as long as the map lives.

        Raises `TmaUnsupportedError` for the map of a host tensor and for one without bytes.
        """
        return self._own_storage()[1]

    def numpy(self) -> NDArray[np.uint8]:
        """Give the 128 bytes as a read-only uint8 array.

        For a launchable map it shares the storage that `ptr` points to, and keeps it alive.
        """
        if self.launchable:
            array: NDArray[np.uint8] = self._own_storage()[0].view()
        else:
            array = np.frombuffer(bytes(self), dtype=np.uint8)
        array.flags.writeable = False
        return array

    def _own_storage(self) -> tuple[NDArray[np.uint8], int]:
        if self._storage is None:
            self._require_launchable()
            room = np.empty(MAP_BYTES + STORAGE_ALIGNMENT, dtype=np.uint8)
            start = -room.ctypes.data % STORAGE_ALIGNMENT
            array = room[start : start + MAP_BYTES]
            array[:] = np.frombuffer(bytes(self), dtype=np.uint8)
            object.__setattr__(self, "_storage", (array, array.ctypes.data))
        assert self._storage is not None
        return self._storage

    def _require_launchable(self) -> None:
        if not self.launchable:
            where = "a host tensor" if self._template.view else "a tensor that is not attached"
            raise TmaUnsupportedError(
                f"this map is not launchable: it describes {where}, and a kernel that follows its "
                f"address {self._address:#x} would fault. Move the tensor to the GPU and make the "
                "map there, or give it a live one with with_address(tensor)"
            )

    # -- what it describes -----------------------------------------------------------------------

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

    # -- where it comes from ---------------------------------------------------------------------

    @property
    def tensor(self) -> object:
        """The tensor, kept alive by the map; None for a bare address."""
        return self._tensor

    @property
    def view(self) -> TensorView | None:
        """The tensor as `dlpack.TensorView`; None for a bare address."""
        view = self._template.view
        if view is None or self._tensor is None:
            return None
        return dataclasses.replace(
            view, address=self._address, owner=self._tensor, capsule=self._capsule
        )

    @property
    def device(self) -> Device | None:
        """The DLPack device of the tensor; None for a bare address."""
        view = self._template.view
        return None if view is None else view.device

    @property
    def target(self) -> Target:
        """The GPU that the map is made for."""
        return self._template.target

    @property
    def launchable(self) -> bool:
        """Whether a kernel may be given the map: False for host tensors and unpickled maps.

        A map of a bare address (`driver_encode_*`, `from_bytes`) is launchable: the address is
        the caller's word.
        """
        return self._template.launchable

    @property
    def encoder(self) -> str | None:
        """``"driver"`` or ``"model"``: who made the bytes; None where nobody here did."""
        return self._template.encoder

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What is worth knowing about the call that made the map (see `Report.advice`)."""
        case = self._template.case
        return () if case is None else advise(case)

    # -- value -----------------------------------------------------------------------------------

    def _value(self) -> tuple[object, ...]:
        t = self._template
        return t.arguments, self._address, t.tail, t.target.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorMap):
            return NotImplemented
        return self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __repr__(self) -> str:
        a = self._template.arguments
        box = (
            f"box {self.box_sizes}"
            if a.kind == "tiled"
            else (f"{a.pixels_per_column} pixels x {a.channels_per_pixel} channels")
        )
        options = "".join(
            f", {name} {value.name}"
            for name, value in (("interleave", a.interleave), ("swizzle", a.swizzle))
            if value
        )
        return (
            f"<TensorMap {a.kind} {a.data_type.name} shape {self.shape}, {box}{options}, "
            f"at {self._address:#x}, {self.target}>"
        )

    def __copy__(self) -> TensorMap:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorMap:
        return self


def _as_bytes(data: object) -> bytes:
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"a tensor map is 128 bytes (bytes, bytearray, uint8 array), not {type(data).__name__}"
        ) from None
