"""`TensorMap`: a checked CUtensorMap, its 128 bytes, and the tensor that it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tma_dlpack.public import Drawn, opaque, untraced, with_arguments_of
from tma_dlpack.tables.coerce import address_of, bytes_of
from tma_dlpack.tables.enums import DataType, Interleave, OobFill, Swizzle
from tma_dlpack.tables.errors import (
    Advice,
    TmaPreconditionError,
    TmaUnsupportedError,
    argument_error,
)
from tma_dlpack.tables.targets import DERIVED_NAMES, MAP_BYTES, Target
from tma_dlpack.tensor_map.attributes import MapAttributes
from tma_dlpack.tensor_map.storage import for_torch, moved_bytes, no_bytes, not_launchable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tma_dlpack.dlpack import Device, TensorView
    from tma_dlpack.tensor_map.description import Description


class TensorMap(MapAttributes, Drawn):
    """A CUDA tensor map (CUtensorMap): 128 bytes that describe to the TMA what to copy, and how.

    The class cannot be called. `make_tma_descriptor`, the other `make_*` functions, the
    `driver_encode_*` functions and `TensorMap.from_bytes` return maps. Maps are immutable and
    hashable. Two maps are equal if their arguments, addresses, bytes and names of targets are
    equal; their tensor objects are not compared. A map keeps its tensor alive.

    Pass a map to a kernel with `as_ctypes`, `as_torch` or `as_cuda_bindings`, or pass its address
    `ptr`.

    These attributes are row-major, as in the tensor: `shape`, `strides` (elements), `box_sizes`,
    `elem_strides`. These attributes have the names of the arguments of `make_tma_descriptor`:
    `interleave_layout`, `swizzle`, `l2_fetch_size`, `oobfill`.
    These attributes have the driver's names, and index 0 is the innermost dimension: `kind`,
    `data_type`, `rank`, `global_address`, `global_dim`, `global_strides` (bytes), `box_dim`,
    `element_strides`, `interleave`, `swizzle`, `l2_promotion`, `oob_fill`. For im2col maps there
    are also `pixel_box_lower_corner`, `pixel_box_upper_corner`, `channels_per_pixel`,
    `pixels_per_column` and `mode`.
    A kernel needs `tx_bytes` (for expect_tx), `smem_bytes` and `smem_alignment`. `split_inner` and
    `ragged` are options of the call that made the map; they are None for decoded bytes.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((128, 64), dtype=np.float16)
    >>> tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    >>> tm.shape, tm.box_sizes, tm.global_dim, tm.global_strides, len(bytes(tm))
    ((128, 64), (16, 64), (64, 128), (128,), 128)
    >>> tm.tx_bytes, tm.smem_alignment
    (2048, 1024)
    >>> tm.tensor is x, tm.launchable  # x is in host memory: `ptr` would raise
    (True, False)
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError(
            "TensorMap cannot be called: use make_tma_descriptor, driver_encode_tiled or "
            "TensorMap.from_bytes"
        )

    # -- bytes -----------------------------------------------------------------------------------

    @classmethod
    @opaque
    def from_bytes(cls, data: object, target: Target | str = "sm_90") -> TensorMap:
        """Decode the 128 bytes of a tensor map, for example a dump from a debugger or a kernel.

        Parameters
        ----------
        data : bytes-like
            128 bytes.
        target : str or Target
            The GPU that the map was made for. The layout of sm_90 is measured; the layouts of
            sm_100, sm_103, sm_107, sm_110, sm_120 and sm_121 are derived.

        Returns
        -------
        TensorMap
            A map with exactly these bytes. It has an address and no tensor. A map of 128 zero bytes
            has the text "an all-zero map", and its attribute `is_zero` is True. The engine cannot
            copy with this map, but `replace` can make another map from it.

        Raises
        ------
        TmaPreconditionError
            If the bytes are not a map for `target`.
        TmaUnsupportedError
            If the layout for `target` is not known, or if the map has the 96-byte swizzle of
            sm_103.

        Notes
        -----
        The layout for sm_90 is measured (H200, driver 580.159.04, 2026-11-20), not published. The
        layout for sm_100 and later is derived from the code that ptxas 13.0 generates for
        tensormap.replace and from the maps of NVIDIA's CuTe DSL 4.8.1; it is not measured. Bytes
        64..127 are kept but not decoded, because the engine does not read them. An im2col-wide map
        is decoded as an im2col map whose corners have one entry. In maps that other libraries
        built, bits 65 and 85 may be set. Such maps are decoded too, and the text of the map
        explains these bits.

        Examples
        --------
        >>> import numpy as np, tma_dlpack as tma
        >>> x = np.zeros((64, 48), np.float32)
        >>> dump = bytes(tma.make_tma_descriptor(x, box_sizes=(16, 32))).hex()
        >>> tm = tma.TensorMap.from_bytes(bytes.fromhex(dump))
        >>> tm.data_type.name, tm.shape, tm.box_sizes, tm.tensor
        ('FLOAT32', (64, 48), (16, 32), None)
        """
        from tma_dlpack.tables import bits
        from tma_dlpack.tables.targets import DERIVED, PROVENANCE
        from tma_dlpack.tensor_map.description import Description

        known = Target.of(target)
        if not known.has_model and not known.has_derived_layout:
            raise TmaUnsupportedError(
                f"the 128 bytes of a map for {known} are not known: those of sm_90 are "
                f"{PROVENANCE}; those for {DERIVED_NAMES} are "
                f"{DERIVED}"
            )
        raw = bytes_of(data)
        if raw is None:
            raise argument_error(
                "data",
                f"data is a {type(data).__name__}",
                "be 128 bytes (bytes, bytearray, uint8 array)",
                "pass bytes.fromhex(...) for hex digits",
            )
        arguments, address = bits.decode(raw, derived=not known.has_model)
        return cls._make(None, None, address, raw, True, Description(arguments, known))

    def _refuse_bytes(self) -> bytes:
        raise no_bytes(self.target)

    @property
    @untraced
    def ptr(self) -> int:
        """Address of the map's 128 bytes, aligned to 128 bytes and valid while the map exists.

        Raises `TmaUnsupportedError` for the map of a host tensor, for an unpickled map, and for a
        map that could not be encoded on this machine.
        """
        return self._ptr

    @opaque
    def _refuse_pointer(self) -> int:
        if not self._launchable:
            raise not_launchable(self.description.view, self._address)
        raise no_bytes(self.target)

    @opaque
    def numpy(self) -> NDArray[np.uint8]:
        """Return the 128 bytes as a read-only uint8 array.

        If the map is launchable, the array shares the storage of `ptr` and keeps the storage alive.
        Raises `TmaUnsupportedError` if the map could not be encoded on this machine.
        """
        if not self._launchable:
            return np.frombuffer(bytes(self), dtype=np.uint8)
        shared = self._shared_bytes()
        shared.flags.writeable = False
        return shared

    def _shared_bytes(self) -> NDArray[np.uint8]:
        """Return the 128 bytes at `ptr` as a writable array, which keeps the map alive."""
        self._keep_data()
        from tma_dlpack.dlpack import array_at

        return array_at(self.ptr, MAP_BYTES, self)

    @opaque
    def as_ctypes(self) -> Any:
        """Return the map as a ctypes array of 128 bytes that shares the storage of `ptr`.

        Some launchers, for example cuLaunchKernel, take a ctypes object or a pointer to a ctypes
        object. The array keeps the storage alive. Do not write to the array: a write changes the
        bytes that launchers receive, but not the attributes of the map. Raises
        `TmaUnsupportedError` as `ptr` does.
        """
        return np.ctypeslib.as_ctypes(self._shared_bytes())

    @opaque
    def as_torch(self) -> Any:
        """Return the map as a torch CPU tensor, uint8[128], that shares the storage of `ptr`.

        A PyTorch extension receives this tensor as an ``at::Tensor`` of 128 bytes, aligned to 128
        bytes. The tensor keeps the storage alive. Do not write to the tensor: a write changes the
        bytes that launchers receive, but not the attributes of the map. Raises
        `TmaUnsupportedError` as `ptr` does, and if torch is not imported.
        """
        return for_torch(self._shared_bytes())

    @opaque
    def as_cuda_bindings(self) -> Any:
        """Return a copy of the map as a ``cuda.bindings.driver.CUtensorMap``.

        Raises `TmaUnsupportedError` as `ptr` does, and if cuda-bindings is not installed.
        """
        if not self._launchable:
            self._refuse_pointer()
        # the attribute `opaque` of a CUtensorMap takes the 128 bytes as 16 words of 64 bits
        words = np.frombuffer(bytes(self), dtype="<u8")
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise TmaUnsupportedError(
                "as_cuda_bindings needs cuda-bindings: pip install cuda-bindings"
            ) from error
        handle = driver.CUtensorMap()
        handle.opaque = [driver.cuuint64_t(int(word)) for word in words]
        return handle

    # -- protocols by which launchers recognise a map ----------------------------------------------

    @property
    def _numba_type_(self) -> Any:
        """The type that numba-cuda-mlir uses to pass the map to a kernel by value."""
        from tma_dlpack.tensor_map.text import numba_type

        return numba_type()

    def __tma_descriptor_c_api__(self) -> int:
        """Return `ptr`; numba-cuda-mlir copies the 128 bytes at this address at each launch."""
        return self.ptr

    # -- change ----------------------------------------------------------------------------------

    @staticmethod
    def _accept_address(tensor_map: TensorMap, tensor_or_int: object) -> TensorMap | None:
        """Return None; `make.extension` replaces this function if the extension is built."""
        return None

    #: C's function `described_map`; `make.extension` sets it if the extension is built.
    _described: ClassVar[Callable[[TensorMap], Any] | None] = None

    @opaque
    def with_address(self, tensor_or_int: object) -> TensorMap:
        """Return a copy of the map for another tensor of the same layout, or for another address.

        Only the address changes, as with cuTensorMapReplaceAddress, so only the new tensor or the
        new address is checked.

        Parameters
        ----------
        tensor_or_int : tensor or int
            A tensor with the shape, strides, data type and device of the map's tensor, or an
            address on the map's device. The new map keeps the new tensor alive. If you pass an
            address, you must keep its memory alive.

        Returns
        -------
        TensorMap
            A map that is launchable unless it describes host memory.

        Raises
        ------
        TmaPreconditionError
            If the tensor's shape, strides, data type or device differ from the map's (the message
            names the difference), or if the address is misaligned or too large.

        Examples
        --------
        >>> import numpy as np, tma_dlpack as tma
        >>> a, b = np.zeros((2, 64, 64), dtype=np.float32)
        >>> tm = tma.make_tma_descriptor(a, box_sizes=(16, 16))
        >>> tm.with_address(b) == tma.make_tma_descriptor(b, box_sizes=(16, 16))
        True
        """
        moved = self._accept_address(self, tensor_or_int)
        if moved is not None:
            return moved
        from tma_dlpack.dlpack import as_tensor_view
        from tma_dlpack.tensor_map.description import check_address, differences

        address = address_of(tensor_or_int)
        if address is not None:
            check_address(address, "tensor_or_int", self.arguments.alignment_bytes)
            device = self.device
            return self._moved(address, device is None or device.is_cuda, self.description)
        view = as_tensor_view(tensor_or_int)
        if differing := differences(self.description, view):
            raise TmaPreconditionError(differing)
        # if the map was made with shape=, strides= or offset=, apply these to the new tensor too
        described = self.description.view
        if described is not None and described.own is not None:
            view = view.as_strided(described.shape, described.strides, described.offset_bytes)
        check_address(view.address, "tensor_or_int", self.arguments.alignment_bytes)
        description = self.description.of(view.at(0))
        return self._moved(
            view.address, view.device.is_cuda, description, tensor_or_int, view.capsule
        )

    @opaque
    def at_bare_address(self, address: int) -> TensorMap:
        """Return a copy of the map with another address; the copy is launchable and has no tensor.

        The address of any map must be a multiple of 16, as for cuTensorMapReplaceAddress [measured,
        H200, driver 580.159.04, 2026-11-20]. The caller must keep the memory alive.
        """
        from tma_dlpack.tensor_map.description import check_address

        check_address(address, "global_address", 16)
        return self._moved(address, True, self.description.of(None))

    def _moved(
        self,
        address: int,
        launchable: bool,
        description: Description,
        tensor: object = None,
        capsule: object = None,
    ) -> TensorMap:
        data = moved_bytes(self._data, address)
        return self._make(tensor, capsule, address, data, launchable, description)

    @opaque
    def replace(
        self,
        *,
        global_address: int | None = None,
        rank: int | None = None,
        box_dim: Mapping[int, int] | None = None,
        global_dim: Mapping[int, int] | None = None,
        global_stride: Mapping[int, int] | None = None,
        element_stride: Mapping[int, int] | None = None,
        elemtype: DataType | None = None,
        interleave_layout: Interleave | None = None,
        swizzle_mode: Swizzle | None = None,
        fill_mode: OobFill | None = None,
    ) -> TensorMap:
        """Return a map with some fields changed, as PTX ``tensormap.replace`` changes them.

        Only the fields that you pass change. As on the hardware, array entries past the rank keep
        their values, and so do bytes 64..127, which the engine ignores. Each value is checked
        against the range of its field. The rules are not checked, so the result may be a map that
        the driver would refuse. The coordinates of `split_inner` and `ragged` are computed from
        some fields (spans, rows, added dimensions). If you change such a field, the attributes
        `split_inner` and `ragged` of the result are None.

        Parameters
        ----------
        global_address : int, optional
            A multiple of 16 below 2^57. If omitted, the map keeps its address and tensor.
        rank : int, optional
            1..5. The PTX operand is rank - 1; `replace_cuda` writes this operand.
        box_dim, global_dim, element_stride : dict of int to int, optional
            Dimension (0..4, 0 is innermost) -> value, in elements.
        global_stride : dict of int to int, optional
            Ordinal (0..3, 0 is the stride of dimension 1) -> value, in bytes, a multiple of 16.
        elemtype : TensorMapDataType, name, or int, optional
            The data type as a member, a name, or an int. An int is the **PTX number** of the data
            type (f16 is 6, bf16 is 10, tf32 is 11), which differs from the value in the driver's
            enum.
        interleave_layout, swizzle_mode, fill_mode : enum member, name or value, optional
            For sm_100 and later, `swizzle_mode` also sets the PTX field swizzle_atomicity.

        Returns
        -------
        TensorMap

        Raises
        ------
        TmaPreconditionError
            If a value is out of range. The attribute `violations` of the error lists all such
            values.
        TmaUnsupportedError
            If the map is an im2col map, which PTX cannot change, or if the layout for its target is
            not known. The layout for sm_100 and later is derived from the compiler, not measured.

        Examples
        --------
        >>> zeroed = TensorMap.from_bytes(bytes(128))
        >>> tm = zeroed.replace(rank=2, global_dim={0: 64, 1: 128}, global_stride={0: 128},
        ...                     box_dim={0: 64, 1: 16}, elemtype="FLOAT16", swizzle_mode=3)
        >>> tm.data_type.name, tm.shape, tm.box_sizes, tm.swizzle.name
        ('FLOAT16', (128, 64), (16, 64), 'bytes128')
        """
        given = dict(locals())  # the arguments by name
        del given["self"]
        from tma_dlpack.tables import bits
        from tma_dlpack.tensor_map import ptx_replace
        from tma_dlpack.tensor_map.description import replaced

        changes = ptx_replace.read_replacements(self, given)
        data = ptx_replace.apply(bytes(self), changes)
        # decode the new bytes, so that the attributes are those that the engine reads
        known = self.description
        arguments, address = bits.decode(data, derived=not known.target.has_model)
        moved = global_address is not None
        description = replaced(known, arguments, moved)
        if moved:
            return self._make(None, None, address, data, True, description)
        return self._make(self._tensor, self._capsule, address, data, self._launchable, description)

    @opaque
    @with_arguments_of(replace)
    def replace_cuda(self, changes: dict[str, Any]) -> str:
        """Return the source of a CUDA C++ kernel that changes the map on the device.

        The method takes the arguments of `replace`. The kernel,
        ``replace_tensor_map<<<1, 32>>>(template_map, out)``, takes the map as a parameter, changes
        the fields in shared memory, and copies the 128 bytes to `out` with the fence that later
        copies need. Compile the kernel for the target with the suffix a, such as sm_90a. The new
        values are constants at the top of the kernel. If a value is known only at run time, make
        its constant a parameter.

        Returns
        -------
        str

        Raises
        ------
        TmaPreconditionError, TmaUnsupportedError
            As `replace` does.

        Examples
        --------
        >>> zeroed = TensorMap.from_bytes(bytes(128))
        >>> "tensormap.replace.tile.rank.shared::cta.b1024.b32" in zeroed.replace_cuda(rank=2)
        True
        """
        from tma_dlpack.tensor_map import ptx_replace

        known = ptx_replace.read_replacements(self, changes)
        return ptx_replace.replace_kernel(known, self.target.name)

    @opaque
    def cpp(self) -> str:
        """Return C++ code that makes the same map for a tensor at an address of your choice.

        If ``cuda::make_tma_descriptor`` makes the same map, the code calls this function (CCCL 3.2
        or later, with DLPack's header). Otherwise the code calls the driver's function, without
        linking libcuda. If you compile the code with ``-DTMA_DLPACK_MAIN``, it is a program that
        prints the 128 bytes.

        Examples
        --------
        >>> import numpy as np, tma_dlpack as tma
        >>> x = np.zeros((64, 64), dtype=np.float32)
        >>> "cuda::make_tma_descriptor(" in tma.make_tma_descriptor(x, (16, 16)).cpp()
        True
        >>> "cuTensorMapEncodeTiled" in tma.make_tma_descriptor(
        ...     x, (16, 16), data_type="TFLOAT32").cpp()
        True
        """
        from tma_dlpack.tensor_map import text

        return text.cpp(self.description, self._address, repr(self))

    # -- origin ---------------------------------------------------------------------

    @property
    def tensor(self) -> object:
        """The tensor, which the map keeps alive; None for a map of a bare address."""
        return self._tensor

    @property
    @opaque
    def view(self) -> TensorView | None:
        """The tensor's address, shape, strides, dtype and device; None if there is no tensor."""
        view, tensor = self.description.view, self._tensor
        if view is None or tensor is None:
            return None
        return view.at(self._address, tensor, self._capsule)

    @property
    def device(self) -> Device | None:
        """The DLPack device of the tensor; None for a map of a bare address."""
        view = self.description.view
        return None if view is None else view.device

    @property
    def launchable(self) -> bool:
        """Whether the map may be passed to a kernel.

        It is False for a map of a host tensor and for an unpickled map. A map of a bare address
        (from `driver_encode_*` or `from_bytes`) is launchable; only the caller knows whether its
        address is valid.
        """
        return self._launchable

    @property
    def encoder(self) -> str | None:
        """The encoder of the bytes: ``"driver"`` or ``"model"`` (the measured layout).

        The value is None if `from_bytes` or `replace` made the map, or if the map has no bytes.
        """
        known = self._description
        return self._encoder if known is None else known.encoder

    @property
    @opaque
    def advice(self) -> tuple[Advice, ...]:
        """Advice on the call that made the map (see `Report.advice`) and on the 128 bytes."""
        from tma_dlpack.checks.advice import advise, advise_map

        of_call = () if self.description.request is None else advise(self._accepted_request())
        return of_call if self._data is None else of_call + advise_map(self.arguments, self._data)

    # -- value -----------------------------------------------------------------------------------

    def _value(self) -> tuple[object, ...]:
        return self.arguments, self._address, self._data, self.target.name

    @opaque
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorMap):
            return NotImplemented
        return self._value() == other._value()

    @opaque
    def __hash__(self) -> int:
        return hash(self._value())

    @opaque
    def __repr__(self) -> str:
        from tma_dlpack.tensor_map import text

        return text.map_line(self)

    @opaque
    def __str__(self) -> str:
        from tma_dlpack.tensor_map import text

        return text.map_text(self, self.advice)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._address, self._data, self.description)

    def __copy__(self) -> TensorMap:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorMap:
        return self


def _unpickled(address: int, data: bytes | None, description: Description) -> TensorMap:
    """Make a map from pickled data. The map has no tensor, so it is not launchable."""
    return TensorMap._make(None, None, address, data, False, description)


def require_map(tensor_map: object) -> None:
    """Refuse an object that is not a TensorMap."""
    if not isinstance(tensor_map, TensorMap):
        found = f"tensor_map is a {type(tensor_map).__name__}"
        fix = "pass what make_tma_descriptor(x, ...) returns"
        raise argument_error("tensor_map", found, "be a TensorMap", fix)
