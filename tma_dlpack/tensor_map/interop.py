"""A map as launchers take it, and why a map cannot be given to one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tma_dlpack.dlpack import TensorView
from tma_dlpack.types.errors import TmaUnsupportedError
from tma_dlpack.types.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["array_at", "for_cuda_bindings", "for_torch", "no_bytes", "not_launchable"]


class _Memory:
    """Some bytes of memory, as NumPy's array interface describes them, and what keeps them."""

    def __init__(self, address: int, count: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (count,),
            "data": (address, False),
        }


def array_at(address: int, count: int, owner: object) -> NDArray[np.uint8]:
    """Give `count` bytes of memory as a writable array that keeps `owner` alive."""
    return np.asarray(_Memory(address, count, owner))


def for_torch(storage: NDArray[np.uint8]) -> Any:
    """Give the bytes of maps as a torch CPU tensor that shares them."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise TmaUnsupportedError("as_torch needs torch: import torch first")
    return torch.from_numpy(storage)


def for_cuda_bindings(data: bytes) -> Any:
    """Give 128 bytes as a ``cuda.bindings.driver.CUtensorMap``, which copies them."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise TmaUnsupportedError(
            "as_cuda_bindings needs cuda-bindings: pip install 'tma_dlpack[cuda]'"
        ) from error
    handle = driver.CUtensorMap()
    words = np.frombuffer(data, dtype="<u8")
    handle.opaque = [driver.cuuint64_t(int(word)) for word in words]
    return handle


def not_launchable(view: TensorView | None, address: int) -> TmaUnsupportedError:
    """Make the error of a map that no kernel may be given."""
    on_host = view is not None and view.device.is_host
    where = "a host tensor" if on_host else "a tensor that is not attached"
    return TmaUnsupportedError(
        f"this map is not launchable: it describes {where}, and a kernel that follows its "
        f"address {address:#x} would fault. Move the tensor to the GPU and make the "
        "map there, or give it a live one with with_address(tensor)"
    )


def no_bytes(target: Target) -> TmaUnsupportedError:
    """Make the error of a map that nobody here could encode."""
    return TmaUnsupportedError(
        f"there are no bytes of this map: the layout for {target} has not been measured, "
        "and no driver with such a GPU encoded it here; make the map on a machine that has one "
        "(check, simulation and drawing go on without)"
    )
