"""Encode by the driver where there is one, else by the measured layout ("model"); pick the GPU."""

from __future__ import annotations

from typing import Literal

from tma_dlpack import driver
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import Device
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import DLDeviceType
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.targets import DEFAULT_TARGET, Target

Encoder = Literal["auto", "driver", "model"]


def target_of(device: Device, address: int) -> tuple[Target, bool]:
    """Give the target of a tensor's device, and whether it is only assumed.

    Host tensors get sm_90. So do CUDA tensors where there is no driver to ask; that is an
    assumption, which the report states as an advice.
    """
    if device.is_host:
        return DEFAULT_TARGET, False
    if not driver.is_available():
        return DEFAULT_TARGET, True
    return driver.device_target(_ordinal(device, address)), False


def _ordinal(device: Device, address: int) -> int:
    """Give the GPU of a tensor. Managed memory is always exported as device 0: ask the driver."""
    if device.device_type == DLDeviceType.kDLCUDAManaged:
        owner = driver.pointer_device(address)
        if owner is not None:
            return owner
    return device.device_id


def encode_for(request: Request) -> tuple[bytes | None, str | None]:
    """Encode an accepted `make_*` call on a tensor: give its 128 bytes, and "driver" or "model".

    The driver encodes for a tensor on a GPU of this machine, the measured layout for others; the
    result is (None, None) where neither can.
    """
    view = request.view
    assert view is not None
    arguments = request.encode_arguments()
    if view.device.is_cuda and driver.is_available():
        ordinal = _ordinal(view.device, request.own_address)
        capability = driver.device_target(ordinal).compute_capability
        if capability == request.target.compute_capability:
            return driver.encode(arguments, request.address, ordinal), "driver"
    return _modelled(arguments, request.address, request.target)


def encode_bare(request: Request, encoder: Encoder) -> tuple[bytes | None, str | None]:
    """Encode a `driver_encode_*` call by the chosen encoder."""
    arguments = request.encode_arguments()
    device = driver_device(request.target, encoder)
    if device is not None:
        return driver.encode(arguments, request.address, device), "driver"
    data, made_by = _modelled(arguments, request.address, request.target)
    if data is None and encoder == "model":
        raise TmaUnsupportedError(
            f"the bytes of a map for {request.target} have not been measured, so there is no "
            "model of them: pass encoder='driver' on a machine with such a GPU"
        )
    return data, made_by


def driver_device(target: Target, encoder: Encoder) -> int | None:
    """Give the GPU of this machine that the driver encodes for; None to use the model."""
    if encoder == "model" or (encoder == "auto" and not driver.is_available()):
        return None
    current = driver.current_device() or 0
    found = driver.device_target(current)
    if found.compute_capability == target.compute_capability:
        return current
    if encoder == "driver":
        raise TmaUnsupportedError(
            f"the driver encodes for the GPU of this machine, {found}, but the target is {target}: "
            f"pass target={found.name!r}, or encode on a machine with such a GPU"
        )
    return None


def _modelled(
    arguments: EncodeArguments, address: int, target: Target
) -> tuple[bytes | None, str | None]:
    return (bits.encode(arguments, address), "model") if target.has_model else (None, None)
