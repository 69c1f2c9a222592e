"""Who encodes a map, and for which GPU: the driver where there is one, else the measured model."""

from __future__ import annotations

from typing import Literal

from tma_dlpack import driver
from tma_dlpack.dlpack import Device, Signature
from tma_dlpack.encoding import bits
from tma_dlpack.encoding.arguments import EncodeArguments
from tma_dlpack.rules.request import Case
from tma_dlpack.tensor_map.template import Template
from tma_dlpack.types.enums import DLDeviceType
from tma_dlpack.types.errors import TmaUnsupportedError
from tma_dlpack.types.limits import ADDRESS_BYTES
from tma_dlpack.types.target import TARGETS, Target

__all__ = ["Encoder", "driver_device", "encode_bare", "encode_for", "target_of"]

Encoder = Literal["auto", "driver", "model"]
DEFAULT_TARGET = TARGETS["sm_90"]


def target_of(device: Device, address: int) -> tuple[Target, bool]:
    """Give the target of a tensor's device, and whether it is only assumed.

    Host tensors are described for sm_90. So are CUDA tensors where no driver can be asked; that is
    an assumption, which the report tells.
    """
    if device.is_host:
        return DEFAULT_TARGET, False
    if not driver.is_available():
        return DEFAULT_TARGET, True
    return driver.device_target(_ordinal(device, address)), False


def _ordinal(device: Device, address: int) -> int:
    """Give the GPU of a tensor; managed memory says 0 by convention, so the driver is asked."""
    if device.device_type == DLDeviceType.kDLCUDAManaged:
        owner = driver.pointer_device(address)
        if owner is not None:
            return owner
    return device.device_id


def encode_for(case: Case, signature: Signature | None = None) -> Template:
    """Encode an accepted `make_*` call on a tensor of that signature."""
    view = case.view
    assert view is not None
    on_gpu = view.device.is_cuda
    arguments = case.encode_arguments()
    modelled = _model(arguments, case.address, case.target)
    data, encoder = modelled, None if modelled is None else "model"
    if on_gpu and driver.is_available():
        ordinal = _ordinal(view.device, case.address)
        if driver.device_target(ordinal).compute_capability == case.target.compute_capability:
            data, encoder = driver.encode(arguments, case.address, ordinal), "driver"
    return Template(
        arguments=arguments,
        tail=None if data is None else data[ADDRESS_BYTES:],
        encoder=encoder,
        target=case.target,
        view=view,
        launchable=on_gpu,
        case=case,
        signature=signature,
        reusable=data == modelled and view.device.device_type != DLDeviceType.kDLCUDAManaged,
    )


def encode_bare(case: Case, encoder: Encoder) -> Template:
    """Encode a `driver_encode_*` call by the encoder that is asked for."""
    arguments = case.encode_arguments()
    device = driver_device(case.target, encoder)
    data: bytes | None
    if device is not None:
        data, made_by = driver.encode(arguments, case.address, device), "driver"
    else:
        data = _model(arguments, case.address, case.target)
        made_by = "model"
        if data is None and encoder == "model":
            raise TmaUnsupportedError(
                f"the bytes of a map for {case.target} have not been measured, so there is no "
                "model of them: use encoder='driver' on a machine with such a GPU"
            )
    return Template(
        arguments=arguments,
        tail=None if data is None else data[ADDRESS_BYTES:],
        encoder=made_by if data is not None else None,
        target=case.target,
        view=None,
        launchable=True,
        case=case,
    )


def driver_device(target: Target, encoder: Encoder) -> int | None:
    """Give the GPU whose driver is to encode; None for the model."""
    if encoder == "model" or (encoder == "auto" and not driver.is_available()):
        return None
    current = driver.current_device() or 0
    found = driver.device_target(current)
    if found.compute_capability == target.compute_capability:
        return current
    if encoder == "driver":
        raise TmaUnsupportedError(
            f"the driver encodes for the GPU it has, {found}, and the target is {target}: pass "
            f"target={found.name!r}, or encode on a machine with such a GPU"
        )
    return None


def _model(arguments: EncodeArguments, address: int, target: Target) -> bytes | None:
    return bits.encode(arguments, address) if target.has_model else None
