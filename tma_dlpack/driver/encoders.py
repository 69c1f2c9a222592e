"""The functions of libcuda that this package calls: their prototypes; the encoders' parameters.

Of the three encoders one table of rows (driver name, C type, and their value) gives the prototypes,
the arguments of a call and the list in an error message. Nothing here calls the driver.

Source: cuda.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any

from tma_dlpack.tables.arguments import EncodeArguments, MapKind
from tma_dlpack.tables.enums import c_name
from tma_dlpack.tables.errors import TmaPreconditionError
from tma_dlpack.tables.refusals import REFUSALS

_u32, _u64, _int, _pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p

#: C type -> its name in cuda.h, its letter in `struct`, and what fits: low <= value < high.
_C_TYPES: dict[Any, tuple[str, str, int, int]] = {
    _u32: ("cuuint32_t", "I", 0, 1 << 32),
    _u64: ("cuuint64_t", "Q", 0, 1 << 64),
    _int: ("int", "i", -(1 << 31), 1 << 31),
    _pointer: ("void*", "Q", 0, 1 << 64),
}
#: Arrays have at least so many entries, so that no driver reads past their end.
_LEAST_ENTRIES = 5


@dataclass(frozen=True)
class Parameter:
    """One parameter of an encoder.

    `read` gets it from the arguments; None for the address. `fewer` is None for a scalar; for an
    array, the number of entries that it is shorter than the rank. `c_name` is the C type in cuda.h.
    Valid: low <= value < high.
    """

    name: str
    c_type: Any
    read: Callable[[EncodeArguments], Any] | None
    fewer: int | None = None
    c_name: str = field(init=False)
    low: int = field(init=False)
    high: int = field(init=False)

    def __post_init__(self) -> None:
        """Look up the C type once."""
        c_name, _, low, high = _C_TYPES[self.c_type]
        object.__setattr__(self, "c_name", c_name)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)


@dataclass(frozen=True, slots=True)
class Encoder:
    """One cuTensorMapEncode*: its name and its parameters after the map, in order.

    `since` is the version of CUDA that first has it, as cuDriverGetVersion returns versions.
    """

    function: str
    parameters: tuple[Parameter, ...]
    since: int = 12000

    @property
    def prototype(self) -> tuple[Any, ...]:
        """The argtypes of the C function."""
        return (_pointer, *(p.c_type if p.fewer is None else _pointer for p in self.parameters))


def _enum(name: str, attribute: str) -> Parameter:
    return Parameter(name, _int, attrgetter(attribute))


def _first(attribute: str) -> Callable[[EncodeArguments], Any]:
    return lambda a: getattr(a, attribute)[0]


_TENSOR = (
    _enum("tensorDataType", "data_type"),
    Parameter("tensorRank", _u32, attrgetter("rank")),
    Parameter("globalAddress", _pointer, None),
    Parameter("globalDim", _u64, attrgetter("global_dim"), 0),
    Parameter("globalStrides", _u64, attrgetter("global_strides"), 1),
)
_PIXELS = (
    Parameter("channelsPerPixel", _u32, attrgetter("channels_per_pixel")),
    Parameter("pixelsPerColumn", _u32, attrgetter("pixels_per_column")),
)
_ELEMENT_STRIDES = Parameter("elementStrides", _u32, attrgetter("element_strides"), 0)
_INTERLEAVE = _enum("interleave", "interleave")
_OPTIONS = (
    _enum("swizzle", "swizzle"),
    _enum("l2Promotion", "l2_promotion"),
    _enum("oobFill", "oob_fill"),
)

ENCODERS: dict[MapKind, Encoder] = {
    "tiled": Encoder(
        "cuTensorMapEncodeTiled",
        (
            *_TENSOR,
            Parameter("boxDim", _u32, attrgetter("box_dim"), 0),
            _ELEMENT_STRIDES,
            _INTERLEAVE,
            *_OPTIONS,
        ),
    ),
    "im2col": Encoder(
        "cuTensorMapEncodeIm2col",
        (
            *_TENSOR,
            Parameter("pixelBoxLowerCorner", _int, attrgetter("pixel_box_lower_corner"), 2),
            Parameter("pixelBoxUpperCorner", _int, attrgetter("pixel_box_upper_corner"), 2),
            *_PIXELS,
            _ELEMENT_STRIDES,
            _INTERLEAVE,
            *_OPTIONS,
        ),
    ),
    "im2col_wide": Encoder(
        "cuTensorMapEncodeIm2colWide",
        (
            *_TENSOR,
            Parameter("pixelBoxLowerCornerWidth", _int, _first("pixel_box_lower_corner")),
            Parameter("pixelBoxUpperCornerWidth", _int, _first("pixel_box_upper_corner")),
            *_PIXELS,
            _ELEMENT_STRIDES,
            _INTERLEAVE,
            _enum("mode", "mode"),
            *_OPTIONS,
        ),
        since=12080,
    ),
}


def bind(encoder: Encoder, arguments: EncodeArguments, address: int) -> list[Any]:
    """Turn arguments into C values, in the order of the prototype after the map; arrays as bytes.

    Raises
    ------
    TmaPreconditionError
        If a value does not fit its C type, or an array has the wrong length.
    """
    values: list[Any] = []
    rank = arguments.rank
    for p in encoder.parameters:
        value: Any = address if p.read is None else p.read(arguments)
        if p.fewer is not None:
            try:
                value = _packer(p.c_type, max(rank - p.fewer, 0)).pack(*value)
            except struct.error:
                raise _unpackable(p, value, rank) from None
        elif not p.low <= value < p.high:
            raise _misfit(p, p.name, value)
        values.append(value)
    return values


@lru_cache(maxsize=256)
def _packer(c_type: Any, count: int) -> struct.Struct:
    """Return a struct that packs `count` entries as a C array; it raises if one does not fit."""
    _, letter, _, _ = _C_TYPES[c_type]
    spare_bytes = max(_LEAST_ENTRIES - count, 0) * ctypes.sizeof(c_type)
    return struct.Struct(f"={count}{letter}{spare_bytes}x")


def describe(encoder: Encoder, arguments: EncodeArguments, address: int) -> Iterator[str]:
    """Return every argument as a line ``name = value``, under its driver name."""
    for p in encoder.parameters:
        if p.read is None:
            yield f"{p.name} = {address:#x}"
            continue
        value = p.read(arguments)
        if isinstance(value, IntEnum):
            yield f"{p.name} = {c_name(value)} ({value.value})"
        elif p.fewer is None:
            yield f"{p.name} = {value}"
        else:
            yield from (f"{p.name}[{i}] = {entry}" for i, entry in enumerate(value))


def _misfit(p: Parameter, label: str, value: int) -> TmaPreconditionError:
    limit = f"it must fit {p.c_name}: {p.low} to {p.high - 1}"
    return misfit(p.name, f"{label} is {value}", limit)


def _unpackable(p: Parameter, value: Any, rank: int) -> TmaPreconditionError:
    assert p.fewer is not None
    if len(value) != max(rank - p.fewer, 0):
        limit = f"the driver reads {max(rank - p.fewer, 0)} at rank {rank}"
        return misfit(p.name, f"{p.name} has {len(value)} entries", limit)
    i = next(i for i, n in enumerate(value) if not p.low <= n < p.high)
    return _misfit(p, f"{p.name}[{i}]", value[i])


def misfit(name: str, found: str, limit: str) -> TmaPreconditionError:
    """Make the error of a value that does not fit the C prototype."""
    return REFUSALS["C_TYPE"].error(name, found, limit=limit)


# -- prototypes (source: cuda.h of CUDA 13.0) ------------------------------------------------------

#: A letter per parameter: lower case goes in, upper case is written through a pointer.
_LETTERS: dict[str, Any] = {
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "q": ctypes.c_uint64,
    "s": ctypes.c_char_p,
    "p": ctypes.c_void_p,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
}
_LETTERS |= {letter.upper(): ctypes.POINTER(kind) for letter, kind in _LETTERS.items()}

_SIGNATURES = {
    "cuInit": "u",
    "cuDriverGetVersion": "I",
    "cuDeviceGetCount": "I",
    "cuDeviceGet": "Ii",
    "cuDeviceGetName": "sii",
    "cuDeviceGetAttribute": "Iii",
    "cuDevicePrimaryCtxRetain": "Pi",
    "cuCtxGetCurrent": "P",
    "cuCtxGetDevice": "I",
    "cuCtxPushCurrent_v2": "p",
    "cuCtxPopCurrent_v2": "P",
    "cuPointerGetAttribute": "piq",
    "cuTensorMapReplaceAddress": "pp",
    "cuMemAlloc_v2": "Qz",
    "cuMemFree_v2": "q",
    "cuMemcpyHtoDAsync_v2": "qpzp",
    "cuMemcpyDtoHAsync_v2": "pqzp",
    "cuMemcpyDtoDAsync_v2": "qqzp",
    "cuStreamSynchronize": "p",
    "cuEventCreate": "Pu",
    "cuEventRecord": "pp",
    "cuEventSynchronize": "p",
    "cuEventElapsedTime": "Fpp",
    "cuEventDestroy_v2": "p",
    "cuLibraryLoadData": "Psppuppu",
    "cuLibraryGetKernel": "Pps",
    "cuLibraryGetGlobal": "QZps",
    "cuKernelGetAttribute": "Iipi",
    "cuKernelSetAttribute": "iipi",
    "cuLaunchKernel": "puuuuuuuppp",
    "cuGetErrorName": "iS",
    "cuGetErrorString": "iS",
}
#: Name -> argtypes. Every function returns a CUresult.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    **{name: tuple(_LETTERS[letter] for letter in text) for name, text in _SIGNATURES.items()},
    **{encoder.function: encoder.prototype for encoder in ENCODERS.values()},
}
