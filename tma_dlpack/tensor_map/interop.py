"""A map in the forms that launchers take, and the errors of maps that cannot be launched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tma_dlpack.dlpack import TensorView
from tma_dlpack.dlpack.frameworks import TORCH
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.targets import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray


def for_torch(storage: NDArray[np.uint8]) -> Any:
    """Give the bytes of maps as a torch CPU tensor that shares them."""
    assert TORCH.launcher is not None
    return TORCH.launcher(storage)


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
    """Make the error of a map that must not be passed to a kernel."""
    on_host = view is not None and view.device.is_host
    where = "a host tensor" if on_host else "a tensor that is not in this process (unpickled)"
    return TmaUnsupportedError(
        f"this map is not launchable: it describes {where}, and a kernel that uses its "
        f"address {address:#x} would fault. Make the map of a CUDA tensor, "
        "make_tma_descriptor(x.cuda(), ...), or move this one: tensor_map.with_address(x)"
    )


def no_bytes(target: Target) -> TmaUnsupportedError:
    """Make the error of a map that could not be encoded on this machine."""
    return TmaUnsupportedError(
        f"this map has no bytes: the layout for {target} has not been measured, and this machine "
        "has no such GPU whose driver could encode it; make the map on a machine that has one "
        "(checks, the simulator and drawings work without the bytes)"
    )
