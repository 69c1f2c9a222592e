"""A map in other forms: text for terminals, C++ that makes the map, and a type for numba kernels.

The text is at most 100 columns wide. It has the map's values twice: row-major, and innermost first.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tma_dlpack.tables.arguments import CORNERS, OPTION_NAMES, EncodeArguments, reverse
from tma_dlpack.tables.bits import noted_bits
from tma_dlpack.tables.coerce import aligned, counted
from tma_dlpack.tables.dtypes import data_type_of
from tma_dlpack.tables.enums import DLDataTypeCode, c_name
from tma_dlpack.tables.errors import COLUMNS, Advice, TmaUnsupportedError, wrapped
from tma_dlpack.tables.targets import DERIVED, MAP_BYTES
from tma_dlpack.tensor_map.attributes import MapAttributes

if TYPE_CHECKING:
    from tma_dlpack.dlpack import TensorView
    from tma_dlpack.tensor_map.description import Description


#: Ids of the advice that the text of a map includes.
SHOWN_WITH_THE_MAP = ("STRIDES_IN_BYTES", "BEYOND_TENSOR", "ALLOCATION_CLASS")
ALL_ZERO = (
    "an all-zero map: all 128 bytes are 0, as before the first tensormap.replace;\n"
    "a copy with it is an illegal instruction (CUDA error 715)"
)


def map_text(tensor_map: MapAttributes, advice: Iterable[Advice] = ()) -> str:
    """Return the text of a map: its values in both orders, then advice and notes."""
    a = tensor_map.arguments
    if tensor_map.is_zero:
        return ALL_ZERO
    head = [
        f"{a.kind} map of {a.data_type.name}, rank {a.rank}, at {tensor_map.global_address:#x}",
        tile_line(tensor_map),
        *([f"read from bytes by a layout {DERIVED}"] if tensor_map.is_derived else []),
    ]
    rows = [("row-major", "", "innermost first", ""), *map_rows(tensor_map)]
    further = [wrapped(line) for line in remarks(tensor_map, advice)]
    return "\n".join([*head, *_columns(rows), *further])


def remarks(tensor_map: MapAttributes, advice: Iterable[Advice]) -> tuple[str, ...]:
    """Return the advice in `SHOWN_WITH_THE_MAP`, and notes on set bits that store no argument."""
    shown = (f"advice: {a.found}; {a.limit}" for a in advice if a.rule in SHOWN_WITH_THE_MAP)
    return (*shown, *noted_bits(tensor_map._data or bytes(MAP_BYTES)))


def tile_line(tensor_map: MapAttributes) -> str:
    """Return the size of a tile as text, or the reason why no copy is possible."""
    try:
        return (
            f"one tile: {tensor_map.tx_bytes} bytes copied, {tensor_map.smem_bytes} bytes of "
            f"shared memory, aligned to {tensor_map.smem_alignment}"
        )
    except TmaUnsupportedError as error:
        return textwrap.fill(f"no copy is possible: {error}", COLUMNS)


def map_rows(tensor_map: MapAttributes) -> list[tuple[str, str, str, str]]:
    """Return rows of (name in this package, row-major value, driver's name, driver's value).

    The driver's values are innermost first.
    """
    a = tensor_map.arguments

    def both(ours: str, theirs: str) -> tuple[str, str, str, str]:
        return ours, _list(getattr(tensor_map, ours)), theirs, _list(getattr(a, theirs))

    strides, strides_bytes = _strides(tensor_map), _list(a.global_strides)
    rows = [
        both("shape", "global_dim"),
        ("strides (elements)", strides, "global_strides (bytes)", strides_bytes),
    ]
    if a.kind == "tiled":
        rows.append(both("box_sizes", "box_dim"))
    else:
        for name in CORNERS:
            corner = getattr(a, name)
            rows.append((name, _list(corner[::-1]), "the same, W first", _list(corner)))
        rows.append(("channels_per_pixel", f"{a.channels_per_pixel}", "", ""))
        rows.append(("pixels_per_column", f"{a.pixels_per_column}", "", ""))
    rows.append(both("elem_strides", "element_strides"))
    for (ours, theirs), option in zip(OPTION_NAMES.items(), a.enums, strict=True):
        rows.append((ours, option.name, theirs, f"{int(option)}"))
    # Show these options only if the map was made with them.
    if tensor_map.split_inner:
        rows.append(("split_inner", "True", "", ""))
    if tensor_map.ragged is not None:
        rows.append(("ragged", f"{tensor_map.ragged}", "", ""))
    return rows


def map_line(tensor_map: MapAttributes) -> str:
    """Return a map as one line of at most 100 columns; omit the last parts if they do not fit."""
    a = tensor_map.arguments
    if tensor_map.is_zero:
        return f"<TensorMap all-zero: 128 zero bytes, {tensor_map.target}>"
    tile = (
        f", box {tensor_map.box_sizes}"
        if a.kind == "tiled"
        else f", {a.pixels_per_column} pixels x {a.channels_per_pixel} channels"
    )
    options = "".join(
        f", {name} {value.name}"
        for name, value in (("interleave", a.interleave), ("swizzle", a.swizzle))
        if value
    )
    place = f", at {tensor_map.global_address:#x}, {tensor_map.target}"
    line = f"<TensorMap {a.kind} {a.data_type.name} shape {tensor_map.shape}"
    # The most important parts are first, because the last parts may be omitted.
    for part in (tile, options, place):
        # the line must still have room for ", ...>" in case the next part does not fit
        if len(line) + len(part) + len(", ...>") > COLUMNS:
            return f"{line}, ...>"
        line += part
    return f"{line}>"


def _list(values: Iterable[int]) -> str:
    return str(tuple(values))


def _strides(tensor_map: MapAttributes) -> str:
    try:
        return _list(tensor_map.strides)
    except TmaUnsupportedError:
        bits = tensor_map.arguments.type_row.element_bits
        return f"(not a whole number of {bits}-bit values)"


def _columns(rows: list[tuple[str, str, str, str]]) -> list[str]:
    """Return the lines of a table: row-major values on the left, innermost-first on the right.

    If the lines are too wide, the innermost-first values are below the row-major values.
    """
    lines = _aligned(rows)
    if max(map(len, lines)) <= COLUMNS:
        return lines
    # the row-major block is first; rows without a driver's name are not in the second block
    return _aligned([row[:2] for row in rows]) + _aligned([row[2:] for row in rows if row[2]])


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"  {line}".rstrip() for line in aligned(rows, left=4)]


# -- C++ code that makes the same map on the host --------------------------------------------------

# The templates below are format strings, so each brace of C++ is written twice.
_HEAD = """\
// Makes the tensor map
//   {title}
// at an address of your choice. Generated by tma_dlpack.
{notes}"""

_MAIN = """

#ifdef TMA_DLPACK_MAIN
// Prints the 128 bytes:  nvcc -DTMA_DLPACK_MAIN this.cu && ./a.out
#include <cstdio>
int main() {{
  cudaFree(nullptr);  // creates the context that the driver needs
  alignas(128) CUtensorMap map = make_tensor_map(reinterpret_cast<void*>({address:#x}ull));
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&map);
  for (int i = 0; i < 128; ++i) std::printf("%02x", bytes[i]);
  std::printf("\\n");
}}
#endif
"""

_WGMMA = """
#ifdef TMA_DLPACK_H
// If tma_dlpack.h is included above: wgmma's matrix descriptor of a K-major tile, without its
// address. K step s starts k_step_bytes<{rows}, tma_dlpack::Swizzle::{swizzle}>(s) bytes further.
constexpr unsigned long long tile_descriptor =
    tma_dlpack::k_major_descriptor<{rows}, tma_dlpack::Swizzle::{swizzle}>();
#endif
"""

_DRIVER = """\
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>

// Does not need -lcuda: the runtime finds the driver's function.
inline CUtensorMap make_tensor_map(void* global_address) {{
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("{function}", &entry, {version}, cudaEnableDefault, &found)
          != cudaSuccess || found != cudaDriverEntryPointSuccess) {{
    throw std::runtime_error("{function} needs a driver of CUDA {major}.{minor} or later");
  }}
  auto encode = reinterpret_cast<decltype(&{function})>(entry);

  // Index 0 is the innermost dimension.
{arrays}
  alignas(128) CUtensorMap map{{}};
  const CUresult result = encode(
      &map,
{arguments});
  if (result != CUDA_SUCCESS) {{
    throw std::runtime_error("{function} refused the arguments");
  }}
  return map;
}}
"""

_LIBCUDACXX = """\
#include <cstdint>

#include <cuda/std/span>
#include <cuda/tma>          // CCCL 3.2 or later
#include <dlpack/dlpack.h>   // DLPack 1.0 or later, found at compile time

inline CUtensorMap make_tensor_map(void* address) {{
  // Row-major, as DLPack has it: the last entry is the innermost dimension.
  std::int64_t shape[] = {{{shape}}};
  std::int64_t strides[] = {{{strides}}};
  const int box_sizes[] = {{{box_sizes}}};
  const int elem_strides[] = {{{elem_strides}}};

  DLTensor tensor{{}};
  tensor.data = address;
  tensor.device = {{kDLCUDA, {device_id}}};
  tensor.ndim = {rank};
  tensor.dtype.code = {code};
  tensor.dtype.bits = {bits};
  tensor.dtype.lanes = {lanes};
  tensor.shape = shape;
  tensor.strides = strides;
  tensor.byte_offset = 0;

  return cuda::make_tma_descriptor(
      tensor,
      cuda::std::span<const int>{{box_sizes}},
      cuda::std::span<const int>{{elem_strides}},
      cuda::tma_interleave_layout::{interleave},
      cuda::tma_swizzle::{swizzle},
      cuda::tma_l2_fetch_size::{l2_fetch_size},
      cuda::tma_oob_fill::{oobfill});
}}
"""

#: Data types of maps for wgmma operands. Maps of 8-bit integers and 8-bit floats have the data type
#: UINT8.
_WGMMA_TYPES = ("FLOAT16", "BFLOAT16", "TFLOAT32", "UINT8")
#: Swizzles that wgmma's matrix descriptor can encode (PTX ISA, wgmma, matrix descriptor).
_WGMMA_SWIZZLES = ("none", "bytes32", "bytes64", "bytes128")


def cpp(known: Description, address: int, title: str) -> str:
    """Return C++ that makes a map. The code calls libcu++ if possible, and otherwise the driver."""
    head = _HEAD.format(title=title, notes=_notes(known))
    main = _wgmma(known.arguments) + _MAIN.format(address=address)
    if known.view is not None and _is_libcudacxx_own(known, known.view):
        return head + _libcudacxx_cpp(known.arguments, known.view) + main
    return head + _driver_cpp(known.arguments) + main


def _notes(known: Description) -> str:
    """Return C++ comments on options of the call that the generated code does not show."""
    notes, view, request = "", known.view, known.request
    if view is not None and view.own is not None:
        notes += (
            "// shape=, strides= and offset= describe the tensor's memory in another way: the\n"
            f"// address is {counted(view.offset_bytes, 'byte')} from the tensor's first element.\n"
        )
    if request is None:
        return notes
    if request.allowed:
        names = ", ".join(sorted(request.allowed))
        notes += f"// allow= switched off rules of libcu++: {names}.\n"
    if request.rare.split_inner:
        span = request.facts.span_values
        notes += (
            "// split_inner=True: element (.., m, k) of the tensor, or of a slice of it,\n"
            f"// has the coordinates (k / {span}, .., m, k % {span}).\n"
        )
    if request.rare.ragged is not None:
        # ragged= may be negative, as an index in Python may be.
        dim = request.rare.ragged % request.rank
        notes += (
            f"// ragged={dim} added the two outermost dimensions: row r of a slice of n rows,\n"
            "// which begins at row b, has the coordinates (2^30, b + n, .., 2^30 - n + r, ..).\n"
        )
    return notes


def _is_libcudacxx_own(known: Description, view: TensorView) -> bool:
    """Return whether cuda::make_tma_descriptor makes the same map of the view's tensor."""
    from tma_dlpack.checks.report import find_violations  # imported here: few maps need it

    # libcu++ must choose the map's data type for the dtype, and its rules must accept the call
    return (
        known.request is not None
        and known.arguments.kind == "tiled"
        and known.added == (False, None)
        and data_type_of(view.dtype) is known.arguments.data_type
        and not find_violations(by_libcudacxx := known.request.under("libcu++"))
        and by_libcudacxx.encode_arguments() == known.arguments
    )


def _driver_cpp(a: EncodeArguments) -> str:
    """Return C++ that makes the map with the driver's function."""
    from tma_dlpack.driver.encode import ENCODERS

    encoder = ENCODERS[a.kind]
    arrays, call = [], []
    for p in encoder.parameters:
        # globalDim -> global_dim
        name = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", p.name)
        value = p.read(a, name)
        # `fewer` is the rank minus the number of entries of an array; None for a scalar
        if p.fewer is not None:
            # a map of rank 1 has no strides, but an array in C needs at least one entry
            numbers = value or (0,)
            arrays.append(f"  const {p.c_name} {name}[] = {{{_joined(numbers)}}};")
            value = name
        elif isinstance(value, IntEnum):
            value = c_name(value)
        call.append(f"      {value}")
    return _DRIVER.format(
        function=encoder.function,
        # 12030 means CUDA 12.3
        version=encoder.since,
        major=encoder.since // 1000,
        minor=encoder.since % 1000 // 10,
        arrays="\n".join(arrays),
        arguments=",\n".join(call),
    )


def _wgmma(a: EncodeArguments) -> str:
    """Return C++ with wgmma's matrix descriptor of the tile, or "" if the tile is not K-major."""
    # the span is 16, 32, 64 or 128 bytes for the swizzle none, bytes32, bytes64 or bytes128
    span_bytes = 16 << a.swizzle
    is_k_major = (
        a.kind == "tiled"
        and a.rank in (2, 3)
        and a.interleave == 0
        and set(a.element_strides) == {1}
        and a.data_type.name in _WGMMA_TYPES
        and a.swizzle.name in _WGMMA_SWIZZLES
        and a.inner_box_bytes == span_bytes
        # a core matrix has 8 rows
        and a.box_dim[1] % 8 == 0
    )
    return _WGMMA.format(rows=a.box_dim[1], swizzle=a.swizzle.name) if is_k_major else ""


def _libcudacxx_cpp(a: EncodeArguments, view: TensorView) -> str:
    """Return C++ that makes the map with ``cuda::make_tma_descriptor``.

    Call this only if `_is_libcudacxx_own` is true. For 4-bit types, libcu++ requires a DLPack dtype
    of 16 lanes, and shape and strides in values. The tensor itself may have another number of
    lanes.
    """
    dtype = view.dtype
    shape, strides = view.shape, view.strides
    if dtype.bits == 4:
        shape = reverse(a.global_dim)
        # a byte has two 4-bit values
        strides = (*reverse([stride * 2 for stride in a.global_strides]), 1)
    return _LIBCUDACXX.format(
        shape=_joined(shape),
        strides=_joined(strides),
        box_sizes=_joined(reverse(a.box_dim)),
        elem_strides=_joined(reverse(a.element_strides)),
        device_id=view.device.device_id if view.device.is_cuda else 0,
        rank=a.rank,
        code=DLDataTypeCode(dtype.code).name,
        bits=dtype.bits,
        lanes=16 if dtype.bits == 4 else dtype.lanes,
        interleave=a.interleave.name,
        swizzle=a.swizzle.name,
        l2_fetch_size=a.l2_promotion.name,
        oobfill=a.oob_fill.name,
    )


def _joined(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


# -- numba-cuda-mlir -------------------------------------------------------------------------------

#: The declaration in PTX of a kernel parameter that receives the 128 bytes by value, for example
#: ``.param .align 64 .b8 kernel_param_0[128]``. A pointer would be ``.param .u64``.
BY_VALUE = re.compile(r"\.param\s+\.align\s+\d+\s+\.b8\s+\w+\[128\]")


def numba_type() -> Any:
    """Return numba-cuda-mlir's type of a map that is passed to a kernel by value.

    Raises
    ------
    AttributeError
        If numba-cuda-mlir is not imported. Numba then reports that the type of the argument is
        unknown.
    TmaUnsupportedError
        If the installed numba-cuda-mlir compiles the parameter as a pointer. The kernel would use
        the first 8 bytes of the map as the map's address.
    """
    if "numba_cuda_mlir" not in sys.modules:
        raise AttributeError("_numba_type_ is for numba-cuda-mlir, which is not imported")
    if not _passes_maps_by_value():
        version = import_module("numba_cuda_mlir").__version__
        raise TmaUnsupportedError(
            f"numba-cuda-mlir {version} compiles a parameter of type CUTensorMap as a pointer, so "
            "the kernel would use the first 8 bytes of the map as its address (measured: version "
            "0.6.0, H100, driver 580.159.04, 2026-11-24). Pass the map in device memory: "
            "m = tensor_map.as_torch().cuda(), pass m.data_ptr() and keep m alive; the kernel "
            "calls fence_acquire"
        )
    return import_module("numba_cuda_mlir.types").CUTensorMap


@functools.cache
def _passes_maps_by_value() -> bool:
    """Compile a kernel whose only parameter is a map; return whether the parameter has 128 bytes.

    The result is also True on a machine without a driver, because no kernel can be launched there.
    """
    cuda, types = map(import_module, ("numba_cuda_mlir.cuda", "numba_cuda_mlir.types"))
    no_driver = import_module("numba_cuda_mlir.numba_cuda.cudadrv.error").CudaSupportError
    signature = types.void(types.grid_constant(types.CUTensorMap))
    try:
        ptx, _ = cuda.compile_ptx(lambda tensor_map: None, signature)
    except no_driver:
        return True
    return BY_VALUE.search(ptx) is not None
