"""What a `TensorMap` is made of: its 128 bytes, its tensor, and the call that made it.

`MapStorage` is the base class of `TensorMap`. It exists twice with one contract: compiled
(`_storage.c`), where the package was built with a C compiler, and below in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tma_dlpack.dlpack import Layout
from tma_dlpack.types.limits import ADDRESS_BYTES, ALIGNMENT_BYTES, MAP_BYTES
from tma_dlpack.types.opaque import opaque

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from tma_dlpack.encoding.arguments import EncodeArguments

__all__ = ["COMPILED", "Asked", "MapStorage", "PythonStorage", "aligned_bytes", "moved_bytes"]


class Asked(NamedTuple):
    """A call that the short cut accepted: a tensor's layout, and the options in plain values.

    `kind` is 0 for tiled, 1 for im2col, 2 for im2col-wide. `options` stand in the order of the
    verb's signature after the tensor, row-major: enums as ints, boxes and corners as tuples of
    int, `rules` as the user's word. `by_driver` says who encoded: cuTensorMapEncode* or the
    measured layout. Of a `driver_encode_*` call `layout` is None, and the options are the driver's
    arguments.
    """

    kind: int
    address: int
    layout: Layout | None
    options: tuple[Any, ...]
    by_driver: bool


class PythonStorage:
    """128 bytes and what they belong to. Nothing of it changes, but that `_description` is added.

    Attributes
    ----------
    _tensor : object
        Kept alive; None for a bare address.
    _capsule : object
        The DLPack capsule of a producer that we do not know, which keeps its memory; else None.
    _address : int
        Of element (0, ..., 0), bytes.
    _data : bytes or None
        The 128 bytes; None where neither driver nor model can make them.
    _launchable : bool
        Whether a kernel may be given the map.
    _asked : tuple or None
        What the short cut accepted, the items of `Asked`; None for maps that came described.
    _description : description.Description or None
        What the map says, worked out when somebody asks.
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
        """Make a map that says what `description` says."""
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

        Without `data` the bytes are those of the measured layout, encoded when somebody asks.
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
        """Remember what the map says."""
        self.__dict__["_description"] = description

    @property
    def _data(self) -> bytes | None:
        data: bytes | None = self.__dict__["_bytes"]
        if data is None and self._asked is not None:
            from tma_dlpack.encoding import bits

            data = bits.encode(self._described(), self._address)
            self.__dict__["_bytes"] = data
        return data

    def _described(self) -> EncodeArguments:
        raise NotImplementedError  # TensorMap works them out

    def _keep_data(self) -> None:
        """Keep the bytes as they are now, before somebody is given what `ptr` points to."""

    def __bytes__(self) -> bytes:
        return self._refuse_bytes() if self._data is None else self._data

    @property
    @opaque
    def ptr(self) -> int:
        """Address of the map's own 128 bytes: 128-byte aligned, valid as long as the map lives.

        Raises `TmaUnsupportedError` for the map of a host tensor and for one without bytes.
        """
        if not self._launchable or self._data is None:
            return self._refuse_pointer()
        own = self.__dict__.get("_own_bytes")
        if own is None:
            room = aligned_bytes(MAP_BYTES)
            room[:] = np.frombuffer(self._data, np.uint8)
            # atomic: whichever thread comes first, all are given the same bytes
            own = self.__dict__.setdefault("_own_bytes", room)
        return int(own.ctypes.data)

    def _refuse_bytes(self) -> bytes:
        raise NotImplementedError  # TensorMap says why there are none

    def _refuse_pointer(self) -> int:
        raise NotImplementedError  # TensorMap says why there is none

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TensorMap does not change: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a TensorMap does not change: {name} cannot be deleted")


def aligned_bytes(count: int) -> NDArray[np.uint8]:
    """Make an array of `count` bytes, with nothing in it, whose address is a multiple of 128."""
    room = np.empty(count + ALIGNMENT_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT_BYTES
    return room[start : start + count]


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
