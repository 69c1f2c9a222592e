"""Maps encoded by the driver: the three encoders, and the replacement of an address."""

from __future__ import annotations

import ctypes
from typing import Any

from tma_dlpack.driver.encoders import ENCODERS, Encoder, bind, describe, misfit
from tma_dlpack.driver.library import (
    SUCCESS,
    call_in_context,
    device_target,
    driver_function,
    result_name,
)
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.errors import TmaDriverError
from tma_dlpack.tables.limits import BIT_85_MENDED_IN, BIT_85_SMALL_BYTES, MAP_BYTES
from tma_dlpack.tables.targets import Target


def encode(arguments: EncodeArguments, address: int, device_id: int | None = None) -> bytes:
    """Encode a tensor map with the driver.

    Parameters
    ----------
    arguments : EncodeArguments
        Index 0 innermost; `arguments.kind` chooses cuTensorMapEncodeTiled, ...Im2col or
        ...Im2colWide.
    address : int
        Address of the tensor.
    device_id : int or None
        The GPU in whose primary context to encode; None means the current context, or GPU 0's.

    Returns
    -------
    bytes
        The 128 bytes of the CUtensorMap.

    Raises
    ------
    TmaPreconditionError
        If a value does not fit the C type of its parameter, or an array has the wrong length.
    TmaDriverError
        If the driver refuses; the message shows every argument under its driver name.
    TmaUnsupportedError
        Without a driver or GPU, or if the driver is too old for this call.
    """
    encoder = ENCODERS[arguments.kind]
    function = driver_function(encoder.function)
    values = bind(encoder, arguments, address)
    room, start = _map_storage()
    result, ordinal = call_in_context(device_id, function, start, *values)
    if result != SUCCESS:
        raise TmaDriverError(_refusal(encoder, arguments, address, result))
    data = ctypes.string_at(start, MAP_BYTES)
    del room
    return _mend(data, arguments, device_target(ordinal))


def replace_address(data: bytes, address: int, device_id: int | None = None) -> bytes:
    """Replace the address of a map with the driver (cuTensorMapReplaceAddress).

    Raises
    ------
    TmaPreconditionError
        If the map is not 128 bytes, or the address does not fit 64 bits.
    TmaDriverError
        If the driver refuses, for example a misaligned address.
    TmaUnsupportedError
        Without a driver or GPU, or if the driver is too old for this call.
    """
    if len(data) != MAP_BYTES:
        raise misfit("tensorMap", f"tensorMap has {len(data)} bytes", "it must have 128")
    if not 0 <= address < 1 << 64:
        raise misfit("globalAddress", f"globalAddress is {address:#x}", "it must fit 64 bits")
    function = driver_function("cuTensorMapReplaceAddress")
    room, start = _map_storage()
    ctypes.memmove(start, data, MAP_BYTES)
    result, _ = call_in_context(device_id, function, start, address)
    if result != SUCCESS:
        raise TmaDriverError(
            f"cuTensorMapReplaceAddress returned {result_name(result)}\n"
            f"  tensorMap = {data.hex()}\n  globalAddress = {address:#x}"
        )
    replaced = ctypes.string_at(start, MAP_BYTES)
    del room
    return replaced


_BUG_BIT = 85


def clear_bit_85(data: bytes, target: Target) -> bytes:
    """Clear the bit that old drivers set wrongly on compute capability 10.0 and later.

    It is the allocation class (`tables.fields.ALLOCATION_CLASS`); a clear bit is always safe. For
    other targets, and for drivers from CUDA 13.2 on, the bytes do not change; a target without a
    driver version counts as old.

    Source: release notes of driver 595.71.05; libcu++ clears the bit after each encoding on
    drivers below 13.2 (driver_api.h, NVIDIA/cccl 571f2fc3bc). Documented, not measured.

    >>> from tma_dlpack.tables.targets import Target
    >>> set_bit = (1 << 85).to_bytes(128, "little")
    >>> clear_bit_85(set_bit, Target((10, 0), driver_version=13010)) == bytes(128)
    True
    >>> clear_bit_85(set_bit, Target((10, 0), driver_version=13020)) == set_bit
    True
    """
    if target.compute_capability < (10, 0) or (target.driver_version or 0) >= BIT_85_MENDED_IN:
        return data
    word = int.from_bytes(data, "little") & ~(1 << _BUG_BIT)
    return word.to_bytes(len(data), "little")


def _mend(data: bytes, arguments: EncodeArguments, target: Target) -> bytes:
    """Apply the bit-85 rule as libcu++ does.

    libcu++ clears the bit in tiled maps of rank 2 and more of any size, because the size that it
    computes includes a stride past the last one, which is 0. In a map of rank 1 it clears the bit
    only below 128 KiB.
    """
    if arguments.kind != "tiled":
        return data
    if arguments.rank == 1 and arguments.row_bytes >= BIT_85_SMALL_BYTES:
        return data
    return clear_bit_85(data, target)


_Room = ctypes.c_char * (2 * MAP_BYTES)


def _map_storage() -> tuple[Any, int]:
    """Return zeroed storage and, in it, the address of 128 bytes aligned to 128."""
    room = _Room()
    start = ctypes.addressof(room)
    return room, start + -start % MAP_BYTES


def _refusal(encoder: Encoder, arguments: EncodeArguments, address: int, result: int) -> str:
    shown = "\n".join(f"  {line}" for line in describe(encoder, arguments, address))
    return f"{encoder.function} returned {result_name(result)}\n{shown}"
