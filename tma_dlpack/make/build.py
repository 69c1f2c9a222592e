"""The implementation of the functions `make_*` and `check_*` in Python.

A call has four steps: view the tensor, parse the options, check the rules, and encode the map. The
C extension executes the same steps for calls that it accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, SupportsIndex, get_args

from tma_dlpack import driver
from tma_dlpack.checks.call import named_target, ordinal_of, read_driver_call, request_of_tensor
from tma_dlpack.checks.report import (
    Report,
    RequestOf,
    check_request,
    error_of,
    refusal_of,
)
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import TensorView, check_layout, name_of, read
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.coerce import address_of, text_of
from tma_dlpack.tables.errors import (
    TmaDriverError,
    TmaPreconditionError,
    TmaUnsupportedError,
    Violation,
    bad_value,
)
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.description import of_request
from tma_dlpack.tensor_map.map import TensorMap

Encoder = Literal["auto", "driver", "model"]
ENCODERS = get_args(Encoder)


def make(kind: MapKind, tensor: object, given: Mapping[str, Any]) -> TensorMap:
    """Make the map of a tensor with the arguments in `given`.

    If the call breaks rules, raise one error that lists all violations.
    """
    request_of, capsule, error = _read(kind, tensor)
    return _made(request_of(given), tensor, capsule, None if error is None else error.__cause__)


def make_view(kind: MapKind, view: TensorView, given: Mapping[str, Any]) -> TensorMap:
    """Make the map of a `TensorView`, whose `owner` may be None."""
    request = request_of_tensor(kind, view.at(0), view.address, (), given)
    return _made(request, view.owner, view.capsule)


def _made(
    request: Request, tensor: object, capsule: object, cause: BaseException | None = None
) -> TensorMap:
    error = error_of(request, tensor)
    if error is not None:
        if cause is None:
            # `raise error from None` would hide an exception that the caller is handling.
            raise error
        raise error from cause
    view = request.view
    # The view is None only if the tensor could not be read; then the error was raised above.
    assert view is not None
    return _map_of(request, _encoding_gpu(request, view), view.device.is_cuda, tensor, capsule)


def check(kind: MapKind, tensor: object, given: Mapping[str, Any]) -> Report:
    """Return the report on a call of `make`; never raise for a wrong argument."""
    request_of, *_ = _read(kind, tensor)
    return check_request(request_of, given, tensor)


def check_view(kind: MapKind, view: TensorView, given: Mapping[str, Any]) -> Report:
    """Return the report on a call of `make_view`; never raise for a wrong argument."""
    request_of = partial(request_of_tensor, kind, view.at(0), view.address, ())
    return check_request(request_of, given, view.owner)


def _read(kind: MapKind, tensor: object) -> tuple[RequestOf, object, TmaPreconditionError | None]:
    """Read a tensor; return (function that parses the other arguments, capsule, error or None).

    The error is the reason why the tensor is refused. The function also parses the arguments of a
    refused tensor, so that one error lists both the tensor's violations and the unreadable
    arguments.
    """
    try:
        address, layout, capsule = read(tensor)
        # the view has address 0 and no owner, because a report must not keep the tensor alive
        view = TensorView(0, *check_layout(layout), name_of(type(tensor)))
    except TmaPreconditionError as error:
        return partial(request_of_tensor, kind, None, 0, error.violations), None, error
    return partial(request_of_tensor, kind, view, address, ()), capsule, None


def reworded(
    error: TmaPreconditionError, change: Callable[[Violation], Violation]
) -> TmaPreconditionError:
    """Return a copy of an error in which `change` has been applied to each violation.

    `change` is called later, when a program first reads the violations of the copy.
    """
    # `find` refers to the data of the error, not to the error itself, because the traceback of the
    # error keeps the tensor alive.
    find = error._finder()
    return error._deferred(lambda: tuple(map(change, find())))


def replace_address(tensor_map: TensorMap, global_address: SupportsIndex) -> TensorMap:
    """Return a copy of a map with the address `global_address` and without a tensor.

    If this machine's GPU has the compute capability of the map's target, call the driver too, and
    compare its bytes with those of the copy.
    """
    if not issubclass(type(tensor_map), TensorMap):
        fix = "pass what make_tma_descriptor returns"
        raise bad_value("tensor_map", tensor_map, "be a TensorMap", fix)
    address = address_of(global_address)
    if address is None:
        fix = "pass x.data_ptr() or the like"
        raise bad_value("global_address", global_address, "be an integer", fix)
    moved = tensor_map.at_bare_address(address)
    device = driver_device(moved.target, "auto")
    if device is not None:
        by_driver = driver.replace_address(bytes(tensor_map), address, device)
        # The driver stores the address in the first 8 bytes and changes no other byte [measured].
        if by_driver != bytes(moved):
            raise TmaDriverError(
                "cuTensorMapReplaceAddress changed more than the first 8 bytes, which no measured "
                "driver does; make a new map with driver_encode_* instead"
            )
    return moved


def mirror(
    kind: MapKind, given: Mapping[str, Any], target: Target | str, encoder: Encoder
) -> TensorMap:
    """Make the map of a call of `driver_encode_*`; refuse a call that the driver would refuse."""
    if text_of(encoder) not in ENCODERS:
        choices = ", ".join(map(repr, ENCODERS))
        raise bad_value("encoder", encoder, f"be one of {choices}", "pass 'auto'")
    known, unreadable = named_target(target)
    request = read_driver_call(kind, given, known)
    # The driver can only be called with arguments that fit the C types of its parameters.
    if unreadable or (encoder == "driver" and request.unreadable):
        raise refusal_of(unreadable or request.unreadable)
    # With encoder="driver", the driver itself checks the arguments, so the rules are not checked.
    error = None if encoder == "driver" else error_of(request)
    if error is not None:
        raise error
    device = driver_device(known, encoder)
    if device is None and encoder == "model" and not known.has_model:
        raise TmaUnsupportedError(
            f"the bytes of a map for {known} have not been measured, so there is no "
            "model of them: pass encoder='driver' on a machine with such a GPU"
        )
    return _map_of(request, device, True)


# -- encode: with the driver if this machine has one, else in the measured layout ("model") --------


def _encoding_gpu(request: Request, view: TensorView) -> int | None:
    """Return the ordinal of a tensor's GPU; None if the driver cannot encode for the target."""
    if not view.device.is_cuda or not driver.is_available():
        return None
    # Find the device by the address of the tensor itself, which is the address of the request
    # without the bytes of `offset=`.
    ordinal = ordinal_of(view.device, request.address - view.offset_bytes)
    found = driver.device_target(ordinal)
    return ordinal if found.compute_capability == request.target.compute_capability else None


def _map_of(
    request: Request,
    device: int | None,
    launchable: bool,
    tensor: object = None,
    capsule: object = None,
) -> TensorMap:
    """Make the map of an accepted call.

    The driver encodes the bytes for the GPU `device`. If `device` is None, the bytes are encoded in
    the measured layout of the target. If the target has no measured layout either, the map has no
    bytes.
    """
    arguments, address, encoder, data = request.encode_arguments(), request.address, None, None
    if device is not None:
        data, encoder = driver.encode(arguments, address, device), "driver"
    elif request.target.has_model:
        data, encoder = bits.encode(arguments, address), "model"
    description = of_request(request, arguments, encoder)
    return TensorMap._make(tensor, capsule, address, data, launchable, description)


def driver_device(target: Target, encoder: Encoder) -> int | None:
    """Return the ordinal of the GPU for which the driver encodes; None for the measured layout."""
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
