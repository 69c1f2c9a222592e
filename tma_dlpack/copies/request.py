"""`CopyRequest`: a checked copy. The functions of this file make the requests of all backends.

These functions refuse every copy that would kill a kernel. A request computes the addresses of the
tile's lines (see `geometry`), so a backend only moves bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.geometry import BoolArray, IntArray, TilePlan
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.coerce import counted, integer_of, integers_of, shown
from tma_dlpack.tables.dtypes import PACKED_TYPES
from tma_dlpack.tables.enums import Ints, TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError
from tma_dlpack.tables.refusals import refuse
from tma_dlpack.tables.targets import INNER_BYTES, PADDED_INNER_VALUES, RAGGED_EXTRA_EXTENT, Target
from tma_dlpack.tensor_map.map import TensorMap, require_map

# A coordinate is a signed 32-bit integer (PTX: tensorCoords are .s32).
MIN_COORD, MAX_COORD = -(1 << 31), (1 << 31) - 1
#: Maximum extent of a dimension, in elements. The driver encodes larger extents, but every copy
#: with such a map is an illegal instruction [measured].
MAX_COPIED_DIM = 1 << 31
#: Number of im2col offsets of a copy -> maximum of each offset. All offsets of a copy share 16 bits
#: [measured].
MAX_OFFSET = {1: 0xFFFF, 2: 0xFF, 3: 0x1F}


class Lines(NamedTuple):
    """Places of the lines of tiles in global memory; see `geometry.line_origins`.

    The shape of `origins` and `inside` is (tiles, lines). The shape of `start`, `first` and `last`
    is (tiles,), because these numbers are equal for all lines of a tile.
    """

    #: Bytes from the map's address to the origin of each line. The origin is the element of the
    #: tensor that has the line's outer coordinates and the inner coordinate 0.
    origins: IntArray
    #: Whether all outer coordinates of the line are in bounds.
    inside: BoolArray
    #: Bytes from the origin of a line to the first byte of the line.
    start: IntArray
    #: The bytes [first, last) of each line are in bounds along the inner dimension.
    first: IntArray
    last: IntArray


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A checked copy of one or several tiles.

    `coords` is an array (tiles, rank), and `offsets` has the im2col offsets; in both, the innermost
    dimension is first. If `many` is true, the arrays of the result have a leading axis for tiles.
    """

    tensor_map: TensorMap
    plan: TilePlan
    coords: IntArray
    offsets: tuple[int, ...]
    smem_offset: int
    many: bool = False

    @property
    def tiles(self) -> int:
        """Number of tiles that the copy moves."""
        return len(self.coords)

    def lines(self, which: slice | IntArray = slice(None)) -> Lines:
        """Return the places of the lines of the tiles `which` (default: all tiles)."""
        coords = self.coords[which]
        return Lines(
            *geometry.line_origins(self.plan, coords, self.offsets),
            *geometry.inner_window(self.plan, coords[:, 0]),
        )

    @property
    def note(self) -> str:
        """The evidence for the result: ``"measured"`` or ``"documented, not measured"``."""
        args = self.plan.arguments
        measured = (
            # The subclass is for gather4 and scatter4. Their results are not measured.
            type(self) is CopyRequest
            and self.tensor_map.target.has_model
            and args.kind != "im2col_wide"
            and args.data_type not in PACKED_TYPES
            and args.swizzle <= TmaSwizzle.bytes128
        )
        return "measured" if measured else "documented, not measured"


@dataclass(frozen=True, slots=True)
class Gather4Request(CopyRequest):
    """A tile::gather4 or tile::scatter4 copy; its tile consists of any four rows of a matrix.

    `coords` is an array (4, 2) with the coordinates (column, row) of each row. `plan` describes a
    box of four rows. `plan.lattice` is None, because the four rows are not a regular grid.
    """

    @property
    def tiles(self) -> int:
        """Number of tiles, which is 1: the four rows are one tile."""
        return 1

    def lines(self, which: slice | IntArray = slice(None)) -> Lines:
        """Return the places of the four rows in global memory."""
        one_row = geometry.plan(self.plan.arguments._replace(box_dim=(self.plan.counts[0], 1)))
        origins, inside = geometry.line_origins(one_row, self.coords)
        start, first, last = geometry.inner_window(one_row, self.coords[:1, 0])
        return Lines(origins.reshape(1, 4), inside.reshape(1, 4), start, first, last)


def load_request(
    tensor_map: TensorMap,
    coords: object,
    im2col_offsets: Ints | None,
    smem_offset: int,
    *,
    many: bool,
) -> CopyRequest:
    """Check a load and return the request.

    `coords` is row-major. Its shape is (rank,), or (n, rank) if `many` is true.

    Raises `TmaPreconditionError` if an argument is refused; the error has one violation for each
    refused argument. Raises `TmaUnsupportedError` for a map that supports only stores.
    """
    plan = plan_of(tensor_map)
    args = plan.arguments
    _check_can_load(args)

    def places() -> IntArray:
        found = _many_coords_of(plan, coords) if many else _coords_of(plan, coords)
        _check_inner(plan, found)
        if args.kind != "tiled":
            _check_start(args, found)
        return found

    driver_coords, offsets, offset = _all_of(
        places,
        lambda: _offsets_of(args, im2col_offsets),
        lambda: _check_smem(tensor_map, plan, smem_offset),
    )
    return CopyRequest(tensor_map, plan, driver_coords, offsets, offset, many)


def store_request(tensor_map: TensorMap, coords: object, smem_offset: int) -> CopyRequest:
    """Check the arguments of a store or reduction except `data` and `op`; return the request.

    Raises `TmaPreconditionError` as `load_request` does, and `TmaUnsupportedError` for a map that
    supports only loads.
    """
    plan = plan_of(tensor_map)
    args = plan.arguments
    _check_can_store(args)
    driver_coords, offset = _all_of(
        lambda: _store_coords_of(plan, coords),
        lambda: _check_smem(tensor_map, plan, smem_offset),
    )
    return CopyRequest(tensor_map, plan, driver_coords, (), offset)


def _store_coords_of(plan: TilePlan, coords: object) -> IntArray:
    """Return the coordinates of one tile; refuse coordinates where no tile can be stored."""
    args, found_at = plan.arguments, _coords_of(plan, coords)
    _check_inner(plan, found_at)
    if found_at.min() < 0:
        found = f"coords are {_as_written(found_at[0])}"
        inside = _as_written(found_at[0].clip(0))
        fix = f"use coords {inside}, and pass data of the elements from there on"
        refuse("COPY_STORE_NEGATIVE", "coords", found, fix=fix)
    if args.kind == "im2col":
        lower, upper = args.pixel_box_lower_corner, args.pixel_box_upper_corner
        if min(lower) < 0 or max(upper) > 0:
            found = f"lower corner is {lower[::-1]} and upper corner {upper[::-1]} (row-major)"
            refuse("COPY_IM2COL_STORE_CORNERS", "tensor_map", found)
        _check_start(args, found_at)
    return found_at


def _all_of(*reads: Callable[[], Any]) -> list[Any]:
    """Call all functions and return their results.

    If some functions raise `TmaPreconditionError`, raise one error with the violations of all these
    errors.
    """
    values, refused = [], []
    for read in reads:
        try:
            values.append(read())
        except TmaPreconditionError as error:
            refused.append(error)
    if len(refused) > 1:
        raise TmaPreconditionError([v for error in refused for v in error.violations])
    if refused:
        raise refused[0]
    return values


def gather4_request(
    tensor_map: TensorMap, column: object, rows: object, smem_offset: int
) -> Gather4Request:
    """Check a tile::gather4 load of four rows and return the request.

    Raises `TmaPreconditionError` for a refused argument, and `TmaUnsupportedError` if the target
    has no gather4.
    """
    require_map(tensor_map)
    args = tensor_map.arguments
    if tensor_map.target.is_sm_9x:
        raise TmaUnsupportedError(
            f"{tensor_map.target} has no gather4 and scatter4; sm_100 and later have (PTX ISA): "
            "make the map with target='sm_100'"
        )
    four = integers_of(rows) or ()
    if args.kind != "tiled" or args.box_dim[1:] != (1,) or len(four) != 4:
        found = f"the map is {args.kind} with box_dim {args.box_dim}, and rows are {shown(rows)}"
        refuse("COPY_GATHER4", "rows", found)
    plan_of(tensor_map)
    # Shared memory has the layout of a tile from a box of four rows.
    plan = geometry.plan(args._replace(box_dim=(args.box_dim[0], 4), element_strides=(1, 1)))
    coords = np.concatenate([_coords_of(plan, (row, column)) for row in four])
    _check_inner(plan, coords)
    offset = _check_smem(tensor_map, plan, smem_offset)
    return Gather4Request(tensor_map, replace(plan, lattice=None), coords, (), offset)


def scatter4_request(
    tensor_map: TensorMap, column: object, rows: object, smem_offset: int
) -> Gather4Request:
    """Check a tile::scatter4 store of four rows and return the request.

    Raises `TmaPreconditionError` for a refused argument, and `TmaUnsupportedError` if the target
    has no scatter4 or if the map supports only loads.
    """
    require_map(tensor_map)
    target = tensor_map.target
    if not target.has_scatter4 and not target.is_sm_9x:
        raise TmaUnsupportedError(
            f"{target} has no tile::scatter4, only gather4 (ptxas 13.0 refuses it): store the four "
            "rows one by one, or make the map for sm_100, sm_103, sm_107 or sm_110"
        )
    request = gather4_request(tensor_map, column, rows, smem_offset)
    _check_can_store(request.plan.arguments)
    if request.coords.min() < 0:
        found = f"column is {shown(column)} and rows are {_as_written(request.coords[::-1, 1])}"
        refuse("COPY_STORE_NEGATIVE", "rows", found)
    return request


# --- The map ------------------------------------------------------------------------------------


def plan_of(tensor_map: TensorMap) -> TilePlan:
    """Return the plan of a map; refuse a map if every copy with it is an illegal instruction.

    The driver refuses to encode most of these maps, but `TensorMap.replace` and
    `TensorMap.from_bytes` can make all of them.
    """
    require_map(tensor_map)
    plan = geometry.plan(tensor_map.arguments)
    alignment_bytes, fault = _alignment_and_fault(plan, tensor_map.target)
    address = tensor_map.global_address
    if address % alignment_bytes:
        found = f"the map's address is {address:#x}, not a multiple of {alignment_bytes} bytes"
        refuse("COPY_ADDRESS", "tensor_map", found)
    if fault:
        rule, found = fault
        all_zero = "the map is all zero, 128 zero bytes"
        refuse(rule, "tensor_map", all_zero if tensor_map.is_zero else found)
    return plan


@lru_cache(maxsize=1024)
def _alignment_and_fault(plan: TilePlan, target: Target) -> tuple[int, tuple[str, str] | None]:
    """Return the alignment in bytes that the map's address must have, and the map's fault.

    The fault is (rule, found), or None for a map without a fault. The caller checks the address, so
    maps that differ only in their address share a cached result.
    """
    args = plan.arguments
    alignment_bytes, inner_bytes, swizzle = args.alignment_bytes, args.inner_box_bytes, args.swizzle
    span_bytes = geometry.SWIZZLES[swizzle].span_bytes if swizzle else inner_bytes
    fault = None
    if any(stride % alignment_bytes for stride in args.global_strides):
        found = f"global_strides are {args.global_strides} with interleave {args.interleave.name}"
        fault = "COPY_STRIDE", found
    elif not args.interleave and (inner_bytes % INNER_BYTES or inner_bytes > span_bytes):
        found = f"a row of the box is {inner_bytes} bytes with swizzle {swizzle.name}"
        fault = "COPY_BOX_ROW", found
    elif args.oob_fill and not args.type_row.is_float:
        fault = "COPY_NAN_FILL", f"oob_fill is nan and the type {args.data_type.name}"
    elif target.is_sm_9x and max(args.global_dim) > MAX_COPIED_DIM:
        fault = "COPY_DIM_31_BITS", f"an extent of the map is {max(args.global_dim)}"
    return alignment_bytes, fault


def _check_can_load(args: EncodeArguments) -> None:
    if args.swizzle == TmaSwizzle.bytes128_atom_64B and args.data_type.name == "16U6_ALIGN16B":
        raise TmaUnsupportedError(
            "16U6_ALIGN16B with swizzle bytes128_atom_64B can be stored but not loaded; use "
            "bytes128 or bytes128_atom_32B (CUDA driver API, cuTensorMapEncodeTiled: swizzle)"
        )


def _check_can_store(args: EncodeArguments) -> None:
    if args.kind == "im2col_wide":
        raise TmaUnsupportedError(
            "an im2col-wide map can only be loaded: stores have the modes tile and im2col_no_offs "
            "(PTX ISA, cp.async.bulk.tensor); make an im2col map for the store"
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


# --- Coordinates, offsets, shared memory --------------------------------------------------------


def array_of(value: object) -> npt.NDArray[Any] | None:
    """Return an object as an array; return None if NumPy cannot convert the object.

    Return None for a range, because its array may need more memory than there is.
    """
    try:
        return None if type(value) is range else np.asarray(value)
    # NumPy calls methods of the object, which may raise any error.
    except Exception:
        return None


def _coords_of(plan: TilePlan, coords: object) -> IntArray:
    """Convert the row-major coordinates (rank,) of one tile to an array (1, rank), innermost first.

    Refuse coordinates that are not `rank` integers of 32 bits.
    """
    numbers, rank = integers_of(coords), len(plan.arguments.global_dim)
    if numbers is None:
        refuse("COPY_COORDS_TYPE", "coords", f"coords are {shown(coords)}")
    if len(numbers) != rank:
        found = f"coords are {shown(coords)}, but the map has {rank} dimensions"
        fix = f"pass {counted(rank, 'integer')}, such as coords={(0,) * rank}"
        fix += _of_the_tensor(plan.arguments)
        refuse("COPY_COORDS_COUNT", "coords", found, fix=fix)
    if min(numbers) < MIN_COORD or max(numbers) > MAX_COORD:
        refuse("COPY_COORD_32_BITS", "coords", f"coords are {shown(coords)}")
    return np.array([numbers[::-1]], np.int64)


def _of_the_tensor(a: EncodeArguments) -> str:
    """Return a hint that names the coordinate function of a ragged or split map; else return ""."""
    # A ragged map has two added outer dimensions; split_inner splits the innermost dimension.
    if a.kind == "tiled" and a.rank > 2 and a.global_dim[-2:] == (RAGGED_EXTRA_EXTENT,) * 2:
        return "; tma.ragged_coords(tensor_map, offset, size, coords) gives them of a slice"
    span_bytes = a.row_bytes if a.kind == "tiled" and a.box_dim[0] == a.global_dim[0] else 0
    if a.rank > 1 and not a.interleave and a.global_strides[-1] == span_bytes:
        return "; tma.split_inner_coords(tensor_map, coords) gives them of the tensor's"
    return ""


def _many_coords_of(plan: TilePlan, coords: object) -> IntArray:
    """Convert row-major coordinates (n, rank) of n tiles to an int64 array, innermost first.

    Refuse coordinates that are not integers of 32 bits in an array of this shape.
    """
    rank = len(plan.arguments.global_dim)
    if type(coords) in (list, tuple) and not coords:
        coords = np.empty((0, rank), np.int64)
    array = array_of(coords)
    if array is None:
        refuse("COPY_COORDS_TYPE", "coords", f"coords are {shown(coords)}")
    if array.dtype.kind not in "iu":
        refuse("COPY_COORDS_TYPE", "coords", f"coords are an array of {array.dtype}")
    if array.ndim != 2 or array.shape[1] != rank:
        found = f"coords have shape {array.shape}, but the map needs (n, {rank})"
        fix = f"pass an array of shape (n, {rank}), such as tma.tile_coords(tensor_map)"
        fix += _of_the_tensor(plan.arguments)
        refuse("COPY_COORDS_COUNT", "coords", found, fix=fix)
    if array.size and not MIN_COORD <= int(array.min()) <= int(array.max()) <= MAX_COORD:
        found = f"coords reach from {array.min()} to {array.max()}"
        refuse("COPY_COORD_32_BITS", "coords", found)
    return array.astype(np.int64)[:, ::-1]


def _check_inner(plan: TilePlan, coords: IntArray) -> None:
    """Refuse innermost coordinates whose element does not begin at a multiple of 16 bytes."""
    # The innermost coordinate of an interleaved map counts units of 16 or 32 bytes, so every
    # coordinate is allowed.
    if plan.unit_bytes:
        return
    row = plan.row
    rule, step = "COPY_INNER_16B", INNER_BYTES * 8 // row.element_bits
    # For ALIGN16B types the innermost coordinate must be a multiple of 128 elements.
    if row.smem_chunk_bytes == 16:
        rule, step = "COPY_INNER_128_VALUES", PADDED_INNER_VALUES
    off = coords[:, 0] % step
    if np.count_nonzero(off):
        bad = coords[int(off.argmax())]
        found = (
            f"coords[{len(bad) - 1}] is {bad[0]} in coords {_as_written(bad)}; "
            f"{row.data_type.name} needs a multiple of {step} elements"
        )
        aligned = (*_as_written(bad)[:-1], int(bad[0]) // step * step)
        fix = f"use coords {aligned}, with a box that is wide enough to include element {bad[0]}"
        refuse(rule, "coords", found, fix=fix)


def _check_start(args: EncodeArguments, coords: IntArray) -> None:
    """Refuse coordinates outside of an im2col map's bounding box, where no column can start.

    A column is the sequence of pixels that one im2col copy loads.
    """
    for d, (first, last) in geometry.im2col_box(args).items():
        start = coords[:, d]
        # A column of an im2col-wide map may start before the bounding box and reach into the box
        # [documented].
        out = start > last if args.kind == "im2col_wide" else (start < first) | (start > last)
        if np.count_nonzero(out):
            bad = coords[int(out.argmax())]
            found = (
                f"coords[{args.rank - 1 - d}] is {bad[d]} in coords {_as_written(bad)}; the "
                f"bounding box there is {first}..{last}"
            )
            nearest = min(max(int(bad[d]), first), last)
            fix = (
                f"use {nearest}, the nearest start, or one of the rows of "
                "tma.tile_coords(tensor_map)"
            )
            refuse("COPY_IM2COL_START", "coords", found, fix=fix)


def _offsets_of(args: EncodeArguments, offsets: object) -> tuple[int, ...]:
    """Check row-major im2col offsets; return them in the order W, H, D, or () for zeros."""
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


def _check_smem(tensor_map: TensorMap, plan: TilePlan, smem_offset: object) -> int:
    """Return `smem_offset` as an int; refuse an offset where the tile cannot start."""
    offset, limit = integer_of(smem_offset), tensor_map.target.max_smem_bytes
    if offset is None or offset < 0 or offset % geometry.SMEM_ALIGNMENT:
        fix = None
        if offset is not None and 0 <= offset < limit:
            aligned = -(-offset // geometry.SMEM_ALIGNMENT) * geometry.SMEM_ALIGNMENT
            fix = f"pass smem_offset={aligned}; in a kernel, declare the buffer alignas(128)"
        refuse("COPY_SMEM_OFFSET", "smem_offset", f"smem_offset is {shown(smem_offset)}", fix=fix)
    if offset + plan.smem_bytes > limit:
        found = (
            f"the tile takes {plan.smem_bytes} bytes from smem_offset={shown(offset)} on; a block "
            f"on {tensor_map.target} has {limit} bytes"
        )
        refuse("COPY_SMEM_SIZE", "smem_offset", found)
    return offset


def _as_written(driver_coords: IntArray) -> tuple[int, ...]:
    """Return the coordinates in the order of the caller, which is row-major.

    `driver_coords` has the innermost coordinate first.
    """
    return tuple(int(c) for c in driver_coords[::-1])
