"""`encode` and `replace_address`, which call the driver's functions for tensor maps.

The table `_PARAMETERS` has the parameters of the driver's encoders. The prototypes of the encoders,
the arguments of a call, and the list of arguments in an error message are made from this table.
Source: cuda.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from tma_dlpack.driver.library import (
    SUCCESS,
    call_in_context,
    device_target,
    driver_function,
    result_name,
)
from tma_dlpack.tables.arguments import FUNCTIONS, EncodeArguments, MapKind
from tma_dlpack.tables.coerce import rows
from tma_dlpack.tables.enums import c_name
from tma_dlpack.tables.errors import TmaDriverError, TmaPreconditionError
from tma_dlpack.tables.refusals import REFUSALS
from tma_dlpack.tables.targets import (
    BIT_85_MENDED_IN,
    BIT_85_SMALL_BYTES,
    HOW_TO_FIND,
    MAP_BYTES,
    STICKY,
    Target,
)

#: C type -> (ctypes class, `struct` format letter, low, high). A value fits if low <= value < high.
_C_TYPES: dict[str, tuple[Any, str, int, int]] = {
    "cuuint32_t": (ctypes.c_uint32, "I", 0, 1 << 32),
    "cuuint64_t": (ctypes.c_uint64, "Q", 0, 1 << 64),
    "int": (ctypes.c_int, "i", -(1 << 31), 1 << 31),
    "void*": (ctypes.c_void_p, "Q", 0, 1 << 64),
}
_OF_A_KERNEL = (
    "It is the error of an earlier kernel, which every later call returns, an encode too."
)
#: Minimum number of entries in an array argument. Shorter arrays get zeros at the end, so that the
#: driver never reads past the end of an array.
_LEAST_ENTRIES = 5


class Parameter(NamedTuple):
    """One parameter of an encoder.

    `c_name` is the C type in cuda.h. `attribute` is the name of the attribute of `EncodeArguments`
    that has the value. If `attribute` is "", the value is the tensor's address. For an array,
    `fewer` is the map's rank minus the array's number of entries. For a scalar, `fewer` is None. If
    a scalar's attribute is a tuple, the value is the first entry of the tuple.
    """

    name: str
    c_name: str
    attribute: str
    fewer: int | None

    def read(self, arguments: EncodeArguments, address: Any) -> Any:
        """Return the value of this parameter for a map's arguments and the tensor's address."""
        value = getattr(arguments, self.attribute) if self.attribute else address
        return value[0] if self.fewer is None and isinstance(value, tuple) else value


class Encoder(NamedTuple):
    """One function cuTensorMapEncode*: its name, and its parameters except the first (the map).

    `since` is the first version of CUDA with this function, as cuDriverGetVersion returns it.
    """

    function: str
    parameters: tuple[Parameter, ...]
    since: int

    @property
    def prototype(self) -> tuple[Any, ...]:
        """The argtypes of the C function."""
        types = [_C_TYPES["void*" if p.fewer is not None else p.c_name] for p in self.parameters]
        return (ctypes.c_void_p, *(ctype for ctype, *_ in types))


# Rows: name in cuda.h | C type | attribute of `EncodeArguments` | `fewer`.
_PARAMETERS = {
    name: Parameter(name, c_type, attribute, int(fewer) if fewer else None)
    for name, c_type, attribute, fewer in rows("""
tensorDataType | int | data_type |
tensorRank | cuuint32_t | rank |
globalAddress | void* | |
globalDim | cuuint64_t | global_dim | 0
globalStrides | cuuint64_t | global_strides | 1
boxDim | cuuint32_t | box_dim | 0
pixelBoxLowerCorner | int | pixel_box_lower_corner | 2
pixelBoxUpperCorner | int | pixel_box_upper_corner | 2
pixelBoxLowerCornerWidth | int | pixel_box_lower_corner |
pixelBoxUpperCornerWidth | int | pixel_box_upper_corner |
channelsPerPixel | cuuint32_t | channels_per_pixel |
pixelsPerColumn | cuuint32_t | pixels_per_column |
elementStrides | cuuint32_t | element_strides | 0
interleave | int | interleave |
mode | int | mode |
swizzle | int | swizzle |
l2Promotion | int | l2_promotion |
oobFill | int | oob_fill |
""")
}


def _encoder(kind: MapKind, own: str, since: int = 12000) -> Encoder:
    # All three functions begin and end with the same parameters.
    tensor = "tensorDataType tensorRank globalAddress globalDim globalStrides"
    names = f"{tensor} {own} swizzle l2Promotion oobFill".split()
    return Encoder(FUNCTIONS[kind], tuple(_PARAMETERS[name] for name in names), since)


ENCODERS: dict[MapKind, Encoder] = {
    "tiled": _encoder("tiled", "boxDim elementStrides interleave"),
    "im2col": _encoder(
        "im2col",
        "pixelBoxLowerCorner pixelBoxUpperCorner channelsPerPixel pixelsPerColumn elementStrides "
        "interleave",
    ),
    "im2col_wide": _encoder(
        "im2col_wide",
        "pixelBoxLowerCornerWidth pixelBoxUpperCornerWidth channelsPerPixel pixelsPerColumn "
        "elementStrides interleave mode",
        since=12080,
    ),
}


def bind(encoder: Encoder, arguments: EncodeArguments, address: int) -> list[Any]:
    """Convert arguments to C values, in the order of the encoder's parameters.

    An array is converted to the bytes of the C array.

    Raises
    ------
    TmaPreconditionError
        If a value does not fit its C type, or an array has the wrong length.
    """
    values: list[Any] = []
    for p in encoder.parameters:
        value = p.read(arguments, address)
        if p.fewer is None:
            _check_fits(p, p.name, value)
        else:
            count = max(arguments.rank - p.fewer, 0)
            if len(value) != count:
                limit = f"the driver reads {count} at rank {arguments.rank}"
                raise _misfit(p.name, f"{p.name} has {len(value)} entries", limit)
            # The format "=" packs the entries without padding, as in a C array.
            spare = (0,) * (_LEAST_ENTRIES - count)
            letter = _C_TYPES[p.c_name][1]
            try:
                value = struct.pack(f"={count + len(spare)}{letter}", *value, *spare)
            except struct.error:
                # `_check_fits` raises an error that names the first entry that does not fit.
                for i, entry in enumerate(value):
                    _check_fits(p, f"{p.name}[{i}]", entry)
                raise
        values.append(value)
    return values


def _check_fits(p: Parameter, label: str, value: int) -> None:
    _, _, low, high = _C_TYPES[p.c_name]
    if not low <= value < high:
        limit = f"it must fit {p.c_name}: {low} to {high - 1}"
        raise _misfit(p.name, f"{label} is {value}", limit)


def _misfit(name: str, found: str, limit: str) -> TmaPreconditionError:
    return REFUSALS["C_TYPE"].error(name, found, limit=limit)


def describe(encoder: Encoder, arguments: EncodeArguments, address: int) -> Iterator[str]:
    """Yield a line ``name = value`` for every argument, with the driver's name."""
    for p in encoder.parameters:
        value = p.read(arguments, address)
        if not p.attribute:
            yield f"{p.name} = {value:#x}"
        elif isinstance(value, IntEnum):
            yield f"{p.name} = {c_name(value)} ({value.value})"
        elif p.fewer is None:
            yield f"{p.name} = {value}"
        else:
            yield from (f"{p.name}[{i}] = {entry}" for i, entry in enumerate(value))


def encode(arguments: EncodeArguments, address: int, device_id: int | None = None) -> bytes:
    """Encode a tensor map with the driver.

    Parameters
    ----------
    arguments : EncodeArguments
        The arguments, whose lists have the innermost dimension at index 0. `arguments.kind` selects
        the function: cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col or
        cuTensorMapEncodeIm2colWide.
    address : int
        Address of the tensor.
    device_id : int or None
        The GPU whose primary context is used. None means the current context. If no context is
        current, None means the primary context of GPU 0.

    Returns
    -------
    bytes
        The 128 bytes of the CUtensorMap.

    Raises
    ------
    TmaPreconditionError
        If a value does not fit the C type of its parameter, or an array has the wrong length.
    TmaDriverError
        If the driver refuses the arguments. The message lists every argument by its driver name.
    TmaUnsupportedError
        If there is no driver or no GPU, or if the driver is too old for this call.
    """
    encoder = ENCODERS[arguments.kind]
    function = driver_function(encoder.function)
    function.argtypes = encoder.prototype
    values = bind(encoder, arguments, address)
    # `room` owns the memory at `start`, so `room` must live until the bytes are copied.
    room, start = _map_storage()
    result, ordinal = call_in_context(device_id, function, start, *values)
    if result != SUCCESS:
        shown = "".join(f"\n  {line}" for line in describe(encoder, arguments, address))
        # A sticky error comes from an earlier kernel, so the arguments are not its cause.
        if result in STICKY:
            shown += f"\n{_OF_A_KERNEL} {HOW_TO_FIND}"
        raise TmaDriverError(f"{encoder.function} returned {result_name(result)}{shown}")
    data = ctypes.string_at(start, MAP_BYTES)
    del room
    return _mend(data, arguments, device_target(ordinal))


def replace_address(data: bytes, address: int, device_id: int | None = None) -> bytes:
    """Return the bytes of a map with another address, which cuTensorMapReplaceAddress sets.

    Raises
    ------
    TmaPreconditionError
        If the map is not 128 bytes, or the address does not fit in 64 bits.
    TmaDriverError
        If the driver refuses the arguments, for example a misaligned address.
    TmaUnsupportedError
        If there is no driver or no GPU, or if the driver is too old for this call.
    """
    if len(data) != MAP_BYTES:
        raise _misfit("tensorMap", f"tensorMap has {len(data)} bytes", "it must have 128")
    if not 0 <= address < 1 << 64:
        raise _misfit("globalAddress", f"globalAddress is {address:#x}", "it must fit 64 bits")
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


def clear_bit_85(data: bytes, target: Target) -> bytes:
    """Clear bit 85 of a map, which old drivers set wrongly on compute capability 10.0 and later.

    The bit is the allocation class (`tables.bits.ALLOCATION_CLASS`). The value 0 is always safe.
    For GPUs below compute capability 10.0, and for drivers of CUDA 13.2 and later, the function
    returns the bytes unchanged. If the target has no driver version, the driver is assumed to be
    old.

    Source: release notes of driver 595.71.05. libcu++ clears the bit after each encoding with a
    driver below 13.2 (driver_api.h, NVIDIA/cccl 571f2fc3bc). Documented, not measured.

    >>> from tma_dlpack.tables.targets import Target
    >>> set_bit = (1 << 85).to_bytes(128, "little")
    >>> clear_bit_85(set_bit, Target((10, 0), driver_version=13010)) == bytes(128)
    True
    >>> clear_bit_85(set_bit, Target((10, 0), driver_version=13020)) == set_bit
    True
    """
    if target.compute_capability < (10, 0) or (target.driver_version or 0) >= BIT_85_MENDED_IN:
        return data
    word = int.from_bytes(data, "little") & ~(1 << 85)
    return word.to_bytes(len(data), "little")


def _mend(data: bytes, arguments: EncodeArguments, target: Target) -> bytes:
    """Clear bit 85 of a map if libcu++ clears the bit of this map, too.

    libcu++ clears the bit of a tiled map if it computes a size below 128 KiB for the tensor. For a
    map of rank 1, the computed size is correct. For a map of rank 2 or more, the computed size is
    always 0, because libcu++ multiplies by an entry after the last stride, and this entry is 0.
    """
    if arguments.kind != "tiled":
        return data
    # `row_bytes` of a rank-1 map is the size of the whole tensor.
    if arguments.rank == 1 and arguments.row_bytes >= BIT_85_SMALL_BYTES:
        return data
    return clear_bit_85(data, target)


_Room = ctypes.c_char * (2 * MAP_BYTES)


def _map_storage() -> tuple[Any, int]:
    """Return zeroed memory for one map, and the address of the map in this memory.

    The address is aligned to 128 bytes.
    """
    # A CUtensorMap must be aligned to 64 bytes in cuda.h of CUDA 12, and to 128 bytes in cuda.h of
    # CUDA 13.
    room = _Room()
    start = ctypes.addressof(room)
    return room, start + -start % MAP_BYTES
