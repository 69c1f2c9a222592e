"""The checks of a map, its coordinates and offsets before a copy starts, one function each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.copies.refusals import PTX, refuse
from tma_dlpack.geometry import SWIZZLES, IntArray, TilePlan
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.coerce import counted, integer_of, integers_of, shown, type_name
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import TmaUnsupportedError, refusal
from tma_dlpack.tables.limits import INNER_BYTES, PADDED_INNER_VALUES
from tma_dlpack.tensor_map.map import TensorMap

MIN_COORD, MAX_COORD = -(1 << 31), (1 << 31) - 1
#: The driver encodes longer dimensions, but then every copy is an illegal instruction [measured].
MAX_COPIED_DIM = 1 << 31
#: Number of im2col offsets -> the largest value: together they have 16 bits [measured].
MAX_OFFSET = {1: 0xFFFF, 2: 0xFF, 3: 0x1F}


def require_map(tensor_map: object) -> None:
    """Refuse anything that is not a TensorMap."""
    if not isinstance(tensor_map, TensorMap):
        found = f"tensor_map is a {type_name(type(tensor_map))}"
        fix = "pass what make_tma_descriptor(x, ...) returns"
        raise refusal("tensor_map", found, "be a TensorMap", fix)


def check_map(tensor_map: TensorMap) -> None:
    """Refuse a map with which every copy is an illegal instruction.

    The driver encodes few such maps, but `TensorMap.replace` and `from_bytes` can make them.
    """
    require_map(tensor_map)
    args, address = tensor_map.arguments, tensor_map.global_address
    if address % args.alignment_bytes:
        found = f"the map's address is {address:#x}, not a multiple of {args.alignment_bytes} bytes"
        refuse("COPY_ADDRESS", "tensor_map", found)
    if any(stride % args.alignment_bytes for stride in args.global_strides):
        found = f"global_strides are {args.global_strides} with interleave {args.interleave.name}"
        refuse("COPY_STRIDE", "tensor_map", found)
    span_bytes = SWIZZLES[args.swizzle].span_bytes if args.swizzle else args.inner_box_bytes
    if not args.interleave and (args.inner_box_bytes % 16 or args.inner_box_bytes > span_bytes):
        row = f"a row of the box is {args.inner_box_bytes} bytes with swizzle {args.swizzle.name}"
        found = "the map is a map of nothing, 128 zero bytes" if tensor_map.is_nothing else row
        refuse("COPY_BOX_ROW", "tensor_map", found)
    if args.oob_fill and not args.type_row.is_float:
        refuse("COPY_NAN_FILL", "tensor_map", f"oob_fill is nan and the type {args.data_type.name}")
    longest = max(tensor_map.global_dim)
    if tensor_map.target.is_sm_9x and longest > MAX_COPIED_DIM:
        refuse("COPY_DIM_31_BITS", "tensor_map", f"an extent of the map is {longest}")


def check_can_load(args: EncodeArguments) -> None:
    """Refuse maps that can only be stored through."""
    if args.swizzle == TmaSwizzle.bytes128_atom_64B and args.data_type.name == "16U6_ALIGN16B":
        raise TmaUnsupportedError(
            "16U6_ALIGN16B with swizzle bytes128_atom_64B can be stored but not loaded; use "
            "bytes128 or bytes128_atom_32B (CUDA driver API, cuTensorMapEncodeTiled: swizzle)"
        )


def check_can_store(args: EncodeArguments) -> None:
    """Refuse maps that can only be loaded."""
    if args.kind == "im2col_wide":
        raise TmaUnsupportedError(
            "an im2col-wide map can only be loaded: stores have the modes tile and im2col_no_offs "
            f"({PTX}); make an im2col map for the store"
        )
    if args.data_type.name == "16U4_ALIGN16B":
        raise TmaUnsupportedError(
            "16U4_ALIGN16B can only be loaded; store through a map of 16U4_ALIGN8B (CUDA driver "
            "API, cuTensorMapEncodeTiled: tensorDataType)"
        )
    if args.swizzle == TmaSwizzle.bytes128_atom_32B_flip_8B:
        raise TmaUnsupportedError(
            "swizzle bytes128_atom_32B_flip_8B can only be loaded; store through a map of "
            "bytes128_atom_32B, with the tile in that order (PTX ISA, swizzling modes: only from "
            "global to shared memory)"
        )


def array_of(value: object) -> npt.NDArray[Any] | None:
    """Give an object as an array; None if NumPy cannot convert it.

    A range is not converted: it may be longer than memory.
    """
    try:
        return None if type(value) is range else np.asarray(value)
    except Exception:  # the methods that NumPy calls on the object may raise anything
        return None


def _example_coords(rank: int) -> str:
    return f"{counted(rank, 'integer')}, such as coords={(0,) * rank}"


def coords_of(args: EncodeArguments, coords: object) -> IntArray:
    """Give the row-major coordinates (rank,) of one tile as a driver-order array (1, rank)."""
    numbers = integers_of(coords)
    if numbers is None:
        refuse("COPY_COORDS_TYPE", "coords", f"coords are {shown(coords)}")
    if len(numbers) != args.rank:
        found = f"coords are {shown(coords)}, but the map has {args.rank} dimensions"
        refuse("COPY_COORDS_COUNT", "coords", found, fix=f"pass {_example_coords(args.rank)}")
    if min(numbers) < MIN_COORD or max(numbers) > MAX_COORD:
        refuse("COPY_COORD_32_BITS", "coords", f"coords are {shown(coords)}")
    return np.array([numbers[::-1]], np.int64)


def many_coords_of(args: EncodeArguments, coords: object) -> IntArray:
    """Give the row-major coordinates (n, rank) of many tiles as a driver-order array."""
    if type(coords) in (list, tuple) and not coords:
        coords = np.empty((0, args.rank), np.int64)
    array = array_of(coords)
    if array is None:
        refuse("COPY_COORDS_TYPE", "coords", f"coords are {shown(coords)}")
    if array.dtype.kind not in "iu":
        refuse("COPY_COORDS_TYPE", "coords", f"coords are an array of {array.dtype}")
    if array.ndim != 2 or array.shape[1] != args.rank:
        found = f"coords have shape {array.shape}, but the map needs (n, {args.rank})"
        fix = f"pass an array of shape (n, {args.rank}), such as tma.tile_coords(tensor_map)"
        refuse("COPY_COORDS_COUNT", "coords", found, fix=fix)
    if array.size and not MIN_COORD <= int(array.min()) <= int(array.max()) <= MAX_COORD:
        found = f"coords reach from {array.min()} to {array.max()}"
        refuse("COPY_COORD_32_BITS", "coords", found)
    return array.astype(np.int64)[:, ::-1]


def check_inner(args: EncodeArguments, coords: IntArray) -> None:
    """Refuse innermost coordinates that are not at a multiple of 16 bytes."""
    if args.interleave:
        return
    row = args.type_row
    rule, step = "COPY_INNER_16B", INNER_BYTES * 8 // row.element_bits
    if row.is_packed and row.smem_chunk_bytes == 16:
        rule, step = "COPY_INNER_128_VALUES", PADDED_INNER_VALUES
    off = coords[:, 0] % step
    if np.count_nonzero(off):
        bad = coords[int(off.argmax())]
        found = (
            f"coords[{args.rank - 1}] is {bad[0]} in coords {as_written(bad)}; "
            f"{row.data_type.name} needs a multiple of {step} elements"
        )
        aligned = (*as_written(bad)[:-1], int(bad[0]) // step * step)
        fix = f"use coords {aligned}, with a box that is wide enough to include element {bad[0]}"
        refuse(rule, "coords", found, fix=fix)


def check_start(args: EncodeArguments, coords: IntArray) -> None:
    """Refuse columns of an im2col map that start outside its bounding box."""
    for d, (first, last) in zip(geometry.walked_dims(args), geometry.im2col_box(args), strict=True):
        start = coords[:, d]
        # An im2col-wide column may start left of its box and walk into it [documented].
        out = start > last if args.kind == "im2col_wide" else (start < first) | (start > last)
        if np.count_nonzero(out):
            bad = coords[int(out.argmax())]
            found = (
                f"coords[{args.rank - 1 - d}] is {bad[d]} in coords {as_written(bad)}; the "
                f"bounding box there is {first}..{last}"
            )
            nearest = min(max(int(bad[d]), first), last)
            fix = (
                f"use {nearest}, the nearest start, or one of the rows of "
                "tma.tile_coords(tensor_map)"
            )
            refuse("COPY_IM2COL_START", "coords", found, fix=fix)


def offsets_of(args: EncodeArguments, offsets: object) -> tuple[int, ...]:
    """Give im2col offsets, W first."""
    if offsets is None:
        return ()
    numbers = integers_of(offsets)
    if args.kind == "tiled":
        if numbers != ():
            found = f"im2col_offsets are {shown(offsets)}"
            refuse("COPY_OFFSETS_WITHOUT_IM2COL", "im2col_offsets", found)
        return ()
    count = len(geometry.walked_dims(args))
    most = MAX_OFFSET[count]
    if numbers is None or len(numbers) != count or not all(0 <= n <= most for n in numbers):
        found = f"im2col_offsets are {shown(offsets)}; the map needs {count} of 0..{most}"
        refuse("COPY_IM2COL_OFFSETS", "im2col_offsets", found)
    return numbers[::-1]


def _smem_offset_fix(tensor_map: TensorMap, offset: int | None) -> str | None:
    """Name the next multiple of 128 that the shared memory of a block still contains."""
    if offset is None or not 0 <= offset < tensor_map.target.max_smem_bytes:
        return None
    aligned = -(-offset // geometry.SMEM_ALIGNMENT) * geometry.SMEM_ALIGNMENT
    return f"pass smem_offset={aligned}; in a kernel, declare the buffer alignas(128)"


def check_smem(tensor_map: TensorMap, plan: TilePlan, smem_offset: object) -> int:
    """Give smem_offset as an int if the tile may start there."""
    offset = integer_of(smem_offset)
    if offset is None or offset < 0 or offset % geometry.SMEM_ALIGNMENT:
        found = f"smem_offset is {shown(smem_offset)}"
        refuse("COPY_SMEM_OFFSET", "smem_offset", found, fix=_smem_offset_fix(tensor_map, offset))
    limit = tensor_map.target.max_smem_bytes
    if offset + plan.smem_bytes > limit:
        found = (
            f"the tile takes {plan.smem_bytes} bytes from smem_offset={shown(offset)} on; a block "
            f"on {tensor_map.target} has {limit} bytes"
        )
        refuse("COPY_SMEM_SIZE", "smem_offset", found)
    return offset


def as_written(driver_coords: IntArray) -> tuple[int, ...]:
    """Give driver-order coordinates row-major, as the caller wrote them."""
    return tuple(int(c) for c in driver_coords[::-1])
