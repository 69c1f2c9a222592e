"""The data of a `TensorMap`: its 128 bytes, its tensor, and data that the bytes do not contain.

`MapStorage` is the base class of `TensorMap`. It has two implementations with the same attributes:
`native/map.h` if the package was built with a C compiler, and otherwise `PythonStorage` below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tma_dlpack.public import opaque
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.targets import ADDRESS_BYTES, ALIGNMENT_BYTES, MAP_BYTES, Target

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from tma_dlpack.dlpack import TensorView


class PythonStorage:
    """The 128 bytes of a map, the tensor that the map keeps alive, and cached values.

    The object is immutable, except for values that are cached on their first read.

    Attributes
    ----------
    _tensor : object
        The tensor, which the map keeps alive. None for a map of a bare address, which is
        an address without a tensor.
    _capsule : object
        The DLPack capsule, if only the capsule keeps the memory alive; otherwise None.
    _address : int
        Address of element (0, ..., 0).
    _data : bytes or None
        The 128 bytes; None if neither the driver nor the model can encode them.
    _launchable : bool
        Whether the map may be passed to a kernel.
    _description : description.Description or None
        The description of the map. None before the first read if C made the map.
    _arguments : EncodeArguments or None
        The driver's arguments; None before the first read.
    _tx_bytes : int or None
        The bytes of one load, which the mbarrier counts; None if C did not compute them.
    """

    _tensor: object
    _capsule: object = None
    _address: int
    _data: bytes | None
    _launchable: bool
    _description: Any | None = None
    _arguments: EncodeArguments | None = None
    _tx_bytes: int | None = None

    @classmethod
    def _make(
        cls,
        tensor: object,
        capsule: object,
        address: int,
        data: bytes | None,
        launchable: bool,
        description: Any,
    ) -> Self:
        """Make a map with its description."""
        # __setattr__ raises for every name, so write to the dictionary.
        made = object.__new__(cls)
        made.__dict__.update(
            _tensor=tensor,
            _capsule=capsule,
            _address=address,
            _data=data,
            _launchable=launchable,
            _description=description,
        )
        return made

    def _keep(self, description: Any) -> None:
        """Store the description of the map."""
        self.__dict__["_description"] = description

    def _keep_arguments(self, arguments: EncodeArguments) -> None:
        """Store the driver's arguments."""
        self.__dict__["_arguments"] = arguments

    def _keep_data(self) -> None:
        """Do nothing.

        In the compiled class, this method copies the bytes before a caller receives a writable
        array.
        """

    def __bytes__(self) -> bytes:
        return self._refuse_bytes() if self._data is None else self._data

    @property
    @opaque
    def _ptr(self) -> int:
        if not self._launchable or self._data is None:
            return self._refuse_pointer()
        # `_data` may be misaligned, so allocate aligned storage for launchers on the first use.
        own = self.__dict__.get("_own_bytes")
        if own is None:
            room, _ = aligned_bytes(MAP_BYTES)
            room[:] = np.frombuffer(self._data, np.uint8)
            # setdefault is atomic, so all threads use the same storage
            own = self.__dict__.setdefault("_own_bytes", room)
        return int(own.ctypes.data)

    def _refuse_bytes(self) -> bytes:
        # TensorMap overrides this method and raises an error with the reason
        raise NotImplementedError

    def _refuse_pointer(self) -> int:
        # TensorMap overrides this method and raises an error with the reason
        raise NotImplementedError

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TensorMap is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a TensorMap is immutable: {name} cannot be deleted")


def aligned_bytes(count: int) -> tuple[NDArray[np.uint8], int]:
    """Return an uninitialised array of `count` bytes, and its address, a multiple of 128."""
    room = np.empty(count + ALIGNMENT_BYTES, dtype=np.uint8)
    # This expression takes half the time of room.ctypes.data.
    address: int = room.__array_interface__["data"][0]
    start = -address % ALIGNMENT_BYTES
    return room[start : start + count], address + start


def moved_bytes(data: bytes | None, address: int) -> bytes | None:
    """Return a copy of a map's bytes with another address in the first 8 bytes."""
    return (
        None if data is None else address.to_bytes(ADDRESS_BYTES, "little") + data[ADDRESS_BYTES:]
    )


if TYPE_CHECKING:

    class MapStorage(PythonStorage):
        """The additional attributes of the compiled class.

        They have values only for maps that C made.

        Attributes
        ----------
        _call : tuple or None
            The fields of `dlpack.Layout` and of `checks.struct.Options` for the call; () for a
            call of a `driver_encode_*` function.
        _producer : type or None
            `with_address` may replace the tensor by a bare address. Then `_producer` is the type
            of the replaced tensor.
        _numbers : tuple or None
            The fields of `EncodeArguments`, decoded from the bytes, with enums as numbers.
        _target : Target, int or None
            The Target of the call, or the ordinal of the tensor's GPU; None for the default target.
        _encoder : str or None
            The encoder of the bytes.
        _added : tuple or None
            The attributes `split_inner` and `ragged` of the map.
        """

        _call: tuple[Any, ...] | None
        _producer: type | None
        _numbers: tuple[Any, ...] | None
        _target: object
        _encoder: str | None
        _added: tuple[bool, int | None] | None

    COMPILED: bool
else:
    try:
        # this module exists only if the installation found a C compiler
        from tma_dlpack.native._core import MapStorage

        COMPILED = True
    except ImportError:
        MapStorage, COMPILED = PythonStorage, False


def for_torch(storage: NDArray[np.uint8]) -> Any:
    """Return the bytes of maps as a torch CPU tensor that shares their memory."""
    from tma_dlpack.dlpack.frameworks import TORCH

    assert TORCH.launcher is not None
    return TORCH.launcher(storage)


def not_launchable(view: TensorView | None, address: int) -> TmaUnsupportedError:
    """Return the error for a map that must not be passed to a kernel."""
    on_host = view is not None and view.device.is_host
    where = "a host tensor" if on_host else "a tensor that is not in this process (unpickled)"
    return TmaUnsupportedError(
        f"this map is not launchable: it describes {where}, and a kernel that uses its "
        f"address {address:#x} would fault. Make the map of a CUDA tensor, "
        "make_tma_descriptor(x.cuda(), ...), or move this one: tensor_map.with_address(x)"
    )


def no_bytes(target: Target) -> TmaUnsupportedError:
    """Return the error for a map that could not be encoded on this machine."""
    return TmaUnsupportedError(
        f"this map has no bytes: the layout for {target} has not been measured, and this machine "
        "has no such GPU whose driver could encode it; make the map on a machine that has one "
        "(checks, the simulator and drawings work without the bytes)"
    )
