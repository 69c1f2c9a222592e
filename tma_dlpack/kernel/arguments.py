"""Translation of a kernel's arguments into parameter bytes and memory regions.

A tensor is passed as its address, and the kernel may access the tensor's whole storage. A tensor
map is passed by value as its 128 bytes, or as the address of a copy of these bytes. The kernel may
also access the tensor that the map describes, by TMA copies and through pointers.

Source: PTX ISA 9.0, section 7.1 (parameters); the CUDA C++ ABI passes structures by value.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.kernel.core import (
    TensorView,
    argument_error,
    as_tensor_view,
    counted,
    host_bytes,
    shown,
    storage_of,
    tma,
)
from tma_dlpack.kernel.memory import Region

MAP_BYTES, MAP_ALIGNMENT = 128, 128
#: First bytes of a handle (see `_Binder.map`).
HANDLE = b"tma_dlpack map  "
# Type of a PTX parameter -> format letter of Python's module `struct`.
_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}
# For example ".param .align 64 .b8 k_param_0[128]" or ".param .u64 .ptr .global .align 16 x".
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]+\d+)\s*"
    r"(?P<pointer>\.ptr(?:\s*\.\w+(?:\s+\d+)?)*)?\s*"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\[(?P<count>\d+)\])?"
)


class Parameter(NamedTuple):
    """A parameter of a kernel, as its PTX declares it; sizes are in bytes."""

    name: str
    #: PTX type such as "u64"; PTX declares a structure as an array of "b8".
    type: str
    size: int
    align: int
    is_struct: bool

    def __str__(self) -> str:
        if self.is_struct:
            return f"{self.size} bytes, aligned to {self.align}"
        return f"{self.type}, {counted(self.size, 'byte')}"


def parameters_of(header: str) -> tuple[Parameter, ...]:
    """Return the parameters that the header of an entry declares.

    >>> parameters_of(".entry k(.param .align 64 .b8 k_param_0[128], .param .u64 k_param_1)")[1]
    Parameter(name='k_param_1', type='u64', size=8, align=8, is_struct=False)
    """
    found = []
    for match in _PARAMETER.finditer(header):
        # The type "u64" has 8 bytes. The default alignment is the size of the type.
        size = int(match["type"].lstrip("abcdefghijklmnopqrstuvwxyz")) // 8
        count = match["count"]
        align = int(match["align"] or size)
        total = size * int(count or 1)
        found.append(Parameter(match["name"], match["type"], total, align, count is not None))
    return tuple(found)


class Bound(NamedTuple):
    """Checked arguments: the bytes of all parameters, and the memory that the kernel may use."""

    parameters: bytes
    regions: list[Region]
    #: 128 bytes of a map -> map. If the encoding of the map's target is not known, the key is a
    #: substitute of 128 bytes, called a handle (see `_Binder.map`).
    maps: dict[bytes, tma.TensorMap]
    tensors: list[TensorView]


class _Binder:
    """Collector of the memory that the arguments refer to; each storage is added once."""

    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.regions: dict[int, Region] = {}
        self.maps: dict[bytes, tma.TensorMap] = {}
        self.tensors: list[TensorView] = []

    def tensor(self, view: TensorView, what: str) -> int:
        """Return a tensor's address; for the simulator, add the tensor's storage to `regions`."""
        if self.on_gpu:
            return view.address
        if not view.device.is_host:
            fix = 'pass backend="cuda", or copies in host memory: x.cpu()'
            found = f"{what} is on {view.device}"
            raise argument_error("args", found, "be in host memory for the simulator", fix)
        storage = storage_of(view)
        if storage.size_bytes:
            raw = host_bytes(view, storage)
            # Two tensors may report the same storage address with different sizes. Keep the larger
            # region.
            known = self.regions.get(storage.address)
            if known is None or known.size < storage.size_bytes:
                writable = bool(raw.flags.writeable) and not view.read_only
                self.regions[storage.address] = Region(storage.address, raw, what, writable)
        self.tensors.append(view)
        return view.address

    def map(self, tensor_map: tma.TensorMap, what: str) -> bytes:
        """Return a map's bytes, or a handle if the encoding of its target is not known."""
        # For a GPU these bytes are not used, because `on_gpu.launch` encodes the map again with a
        # device address.
        if self.on_gpu:
            return bytes(MAP_BYTES)
        if tensor_map.view is not None and tensor_map.view.device.is_host:
            self.tensor(tensor_map.view.own or tensor_map.view, f"the tensor of {what}")
        try:
            data = bytes(tensor_map)
        except tma.TmaUnsupportedError:
            # A handle has 128 bytes: 16 bytes of text, the map's number (8 bytes), then zeros.
            data = struct.pack("<16sQ104x", HANDLE, len(self.maps))
        self.maps[data] = tensor_map
        return data

    def buffer(self, data: bytes, what: str) -> int:
        """Copy bytes to new memory aligned to 128 bytes; return the address of the new memory."""
        # NumPy guarantees no alignment to 128 bytes. So allocate 128 more bytes, and skip the bytes
        # before the first multiple of 128.
        raw = np.zeros(len(data) + MAP_ALIGNMENT, np.uint8)
        skip = -raw.ctypes.data % MAP_ALIGNMENT
        own = raw[skip : skip + len(data)]
        own[:] = np.frombuffer(data, np.uint8)
        self.regions[own.ctypes.data] = Region(own.ctypes.data, own, what, True)
        return int(own.ctypes.data)


def bind(parameters: Sequence[Parameter], args: Sequence[Any], *, on_gpu: bool = False) -> Bound:
    """Return the parameter bytes of a kernel and the memory of its arguments.

    With `on_gpu`, `bind` only checks that the arguments fit, and the returned bytes have no
    meaning.

    Raises
    ------
    TmaPreconditionError
        If the number of arguments differs from the number of parameters, or if the type or size of
        an argument does not fit its parameter. The message lists the parameters.
    """
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        found = f"args is a {type(args).__name__}"
        raise argument_error("args", found, "be a tuple", "pass args=(x,) for one argument")
    if len(args) != len(parameters):
        found = f"args has {counted(len(args), 'entry')}, and the kernel has {_listed(parameters)}"
        raise argument_error("args", found, "fit the parameters", "pass one argument for each")
    binder, data = _Binder(on_gpu), bytearray()
    for number, (parameter, value) in enumerate(zip(parameters, args, strict=True)):
        # Parameters are laid out like the fields of a C structure, so pad to the alignment.
        data += bytes(-len(data) % parameter.align)
        data += _bytes_of(binder, parameter, value, f"args[{number}]", parameters)
    return Bound(bytes(data), list(binder.regions.values()), binder.maps, binder.tensors)


def _listed(parameters: Sequence[Parameter]) -> str:
    lines = [f"\n  {number}: {parameter}" for number, parameter in enumerate(parameters)]
    return f"{counted(len(parameters), 'parameter')}{':' * bool(lines)}{''.join(lines)}"


def _bytes_of(
    binder: _Binder, parameter: Parameter, value: Any, what: str, all_: Sequence[Parameter]
) -> bytes:
    """Return the bytes of one argument.

    If the argument does not fit its parameter, raise an error that lists all parameters.
    """
    # PTX may declare a pointer as a plain 64-bit integer. So every parameter of 8 bytes that is not
    # a structure may be a pointer.
    is_pointer = parameter.size == 8 and not parameter.is_struct
    if isinstance(value, tma.TensorMap):
        if parameter.is_struct and parameter.size == MAP_BYTES:
            return binder.map(value, what)
        if is_pointer:
            address = binder.buffer(binder.map(value, what), f"the bytes of {what}")
            return struct.pack("<Q", address)
        raise _misfit(what, "a TensorMap, 128 bytes or an address", parameter, all_)
    if isinstance(value, tma.TensorMapBatch) and is_pointer:
        maps = b"".join(binder.map(one, f"{what}[{n}]") for n, one in enumerate(value))
        return struct.pack("<Q", binder.buffer(maps, f"the maps of {what}"))
    # The argument is no map here. It is a number, a structure or a tensor. Numbers and structures
    # are passed by value.
    data = number_bytes(parameter, value)
    if data is not None:
        if len(data) != parameter.size:
            raise _misfit(what, f"{_named(value)} of {len(data)} bytes", parameter, all_)
        return data
    if is_number(value) or not is_pointer:
        raise _misfit(what, _named(value), parameter, all_)
    return struct.pack("<Q", binder.tensor(as_tensor_view(value), what))


def is_number(value: object) -> bool:
    """Return whether an argument is None, a number, bytes or a C structure."""
    kinds = (bool, int, float, np.generic, bytes, bytearray, *_C_TYPES)
    return value is None or isinstance(value, kinds)


_C_TYPES = (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)


def number_bytes(parameter: Parameter, value: Any) -> bytes | None:
    """Return the bytes of a number or structure.

    Return None if the argument is a tensor, or an integer that the parameter cannot represent.
    """
    is_integer = value is None or isinstance(value, bool | int | np.integer | np.bool_)
    letter = _FLOATS.get(parameter.type)
    if letter and (is_integer or isinstance(value, float | np.floating)):
        return struct.pack(f"<{letter}", float(value or 0))
    if is_integer:
        # PTX types such as "b32" do not say whether the number is signed, so accept -2**(bits - 1)
        # to 2**bits - 1.
        number, bits = int(value or 0), 8 * parameter.size
        if parameter.size > 8 or not -(1 << (bits - 1)) <= number < 1 << bits:
            return None
        return (number % (1 << bits)).to_bytes(parameter.size, "little")
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, (bytes, bytearray, *_C_TYPES)):
        return bytes(value)
    return None


def _named(value: object) -> str:
    if is_number(value) and not isinstance(value, (bytes, bytearray, *_C_TYPES)):
        return f"{shown(value)}, a {type(value).__name__},"
    return f"a {type(value).__name__}"


def _misfit(what: str, found: str, parameter: Parameter, all_: Sequence[Parameter]) -> Exception:
    number = all_.index(parameter)
    found = f"{what} is {found}; parameter {number} has {parameter}. The kernel has {_listed(all_)}"
    fix = "pass an argument of that size: a TensorMap, a tensor, a number or a ctypes structure"
    return argument_error("args", found, "fit its parameter", fix)
