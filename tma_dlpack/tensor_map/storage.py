"""The data of a `TensorMap`: its 128 bytes, its tensor, and the call that made it.

`MapStorage` is the base class of `TensorMap`. It exists twice with one contract: `_storage.c`,
where the package was built with a C compiler, and `PythonStorage` below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tma_dlpack.dlpack import Layout
from tma_dlpack.tables.limits import ADDRESS_BYTES, ALIGNMENT_BYTES, MAP_BYTES
from tma_dlpack.tables.opaque import opaque

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from tma_dlpack.tables.arguments import EncodeArguments


class Asked(NamedTuple):
    """A call that the short cut accepted: a tensor's layout, and the options in plain values.

    `kind` is 0 for tiled, 1 for im2col, 2 for im2col-wide. `options` has the arguments after the
    tensor in the order of the signature, row-major: enums as ints, boxes and corners as tuples of
    int, `rules` as the user's str. `by_driver` is True if cuTensorMapEncode* made the bytes, False
    for the measured layout. For a `driver_encode_*` call `layout` is None, and `options` has the
    driver's arguments.
    """

    kind: int
    address: int
    layout: Layout | None
    options: tuple[Any, ...]
    by_driver: bool


class PythonStorage:
    """128 bytes and what they belong to. Immutable, except that `_description` is added later.

    Attributes
    ----------
    _tensor : object
        Kept alive; None for a bare address.
    _capsule : object
        The DLPack capsule of an unknown producer, which keeps the memory alive; else None.
    _address : int
        Address of element (0, ..., 0).
    _data : bytes or None
        The 128 bytes; None where neither driver nor model can make them.
    _launchable : bool
        Whether the map may be passed to a kernel.
    _asked : tuple or None
        The items of `Asked` for a map that the short cut made; else None.
    _description : description.Description or None
        What the map describes; for a map of the short cut worked out when first needed.
    """

    _tensor: object
    _capsule: object = None
    _address: int
    _launchable: bool
    _asked: tuple[Any, ...] | None = None
    _description: Any | None = None

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
        made = object.__new__(cls)
        made.__dict__.update(
            _tensor=tensor,
            _capsule=capsule,
            _address=address,
            _bytes=data,
            _launchable=launchable,
            _description=description,
        )
        return made

    @classmethod
    def _accepted(
        cls, tensor: object, data: bytes | None, launchable: bool, asked: tuple[Any, ...]
    ) -> Self:
        """Make a map of a call that the short cut accepted; `asked` holds the items of `Asked`.

        Without `data` the bytes follow the measured layout, and are encoded when first needed.
        """
        made = object.__new__(cls)
        values = made.__dict__
        values["_tensor"] = tensor
        values["_address"] = asked[1]
        values["_bytes"] = data
        values["_launchable"] = launchable
        values["_asked"] = asked
        return made

    def _keep(self, description: Any) -> None:
        """Keep the description of the map."""
        self.__dict__["_description"] = description

    @property
    def _data(self) -> bytes | None:
        data: bytes | None = self.__dict__["_bytes"]
        if data is None and self._asked is not None:
            from tma_dlpack.tables import bits

            data = bits.encode(self._described(), self._address)
            self.__dict__["_bytes"] = data
        return data

    def _described(self) -> EncodeArguments:
        raise NotImplementedError  # TensorMap works them out

    def _keep_data(self) -> None:
        """Save the bytes before handing out writable storage (only the compiled class needs it)."""

    def __bytes__(self) -> bytes:
        return self._refuse_bytes() if self._data is None else self._data

    @property
    @opaque
    def _ptr(self) -> int:
        if not self._launchable or self._data is None:
            return self._refuse_pointer()
        own = self.__dict__.get("_own_bytes")
        if own is None:
            room, _ = aligned_bytes(MAP_BYTES)
            room[:] = np.frombuffer(self._data, np.uint8)
            # setdefault is atomic: all threads get the same bytes
            own = self.__dict__.setdefault("_own_bytes", room)
        return int(own.ctypes.data)

    def _refuse_bytes(self) -> bytes:
        raise NotImplementedError  # TensorMap raises with the reason

    def _refuse_pointer(self) -> int:
        raise NotImplementedError  # TensorMap raises with the reason

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TensorMap is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a TensorMap is immutable: {name} cannot be deleted")


def aligned_bytes(count: int) -> tuple[NDArray[np.uint8], int]:
    """Make an uninitialised array of bytes; give its address too, which is a multiple of 128."""
    room = np.empty(count + ALIGNMENT_BYTES, dtype=np.uint8)
    address = room.ctypes.data
    start = -address % ALIGNMENT_BYTES
    return room[start : start + count], address + start


def moved_bytes(data: bytes | None, address: int) -> bytes | None:
    """Give the bytes of the same map at another address: only the first 8 differ."""
    return (
        None if data is None else address.to_bytes(ADDRESS_BYTES, "little") + data[ADDRESS_BYTES:]
    )


if TYPE_CHECKING:
    MapStorage = PythonStorage
    COMPILED: bool
else:
    try:
        from tma_dlpack.tensor_map._storage import MapStorage

        COMPILED = True
    except ImportError:
        MapStorage, COMPILED = PythonStorage, False
