"""What a copy is asked, checked: both backends refuse here what would kill a kernel.

A checked request knows where its lines lie, so that backends only move bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.copies.arrays import array_of
from tma_dlpack.copies.refusals import PTX, refuse
from tma_dlpack.encoding.arguments import EncodeArguments
from tma_dlpack.geometry import BoolArray, IntArray, TilePlan
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.coerce import integer_of, integers_of, shown, type_name
from tma_dlpack.types.dtypes import PACKED_TYPES
from tma_dlpack.types.enums import TmaSwizzle
from tma_dlpack.types.errors import TmaUnsupportedError, refusal
from tma_dlpack.types.limits import INNER_BYTES, PADDED_INNER_VALUES

__all__ = [
    "CopyRequest",
    "Gather4Request",
    "Lines",
    "gather4_request",
    "load_request",
    "require_map",
    "scatter4_request",
    "store_request",
]

MIN_COORD, MAX_COORD = -(1 << 31), (1 << 31) - 1
#: Longer dimensions are encoded by the driver, and every copy is an illegal instruction [measured].
MAX_COPIED_DIM = 1 << 31
#: Number of im2col offsets -> the largest: they share 16 bits [measured].
MAX_OFFSET = {1: 0xFFFF, 2: 0xFF, 3: 0x1F}


class Lines(NamedTuple):
    """Where the lines of tiles lie in global memory; see `geometry.line_origins`.

    `origins` and `inside` are (tiles, lines), the others (tiles,).
    """

    origins: IntArray
    inside: BoolArray
    start: IntArray
    first: IntArray
    last: IntArray


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A checked request: `coords` (tiles, rank) and `offsets` are in driver order.

    `many` says that the caller asked for a leading axis.
    """

    tensor_map: TensorMap
    plan: TilePlan
    coords: IntArray
    offsets: tuple[int, ...]
    smem_offset: int
    many: bool = False

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return len(self.coords)

    def lines(self, which: slice | IntArray = slice(None)) -> Lines:
        """Give where the lines of the tiles, or of some, lie."""
        coords = self.coords[which]
        return Lines(
            *geometry.line_origins(self.plan, coords, self.offsets),
            *geometry.inner_window(self.plan, coords[:, 0]),
        )

    @property
    def has_lattice(self) -> bool:
        """Whether each tile is a box of the tensor, see `geometry.has_lattice`."""
        return geometry.has_lattice(self.plan)

    @property
    def note(self) -> str:
        """``"measured"`` or ``"documented, not measured"``."""
        args = self.plan.arguments
        measured = (
            self.tensor_map.target.has_model
            and args.kind != "im2col_wide"
            and args.data_type not in PACKED_TYPES
            and args.swizzle <= TmaSwizzle.bytes128
        )
        return "measured" if measured else "documented, not measured"


@dataclass(frozen=True, slots=True)
class Gather4Request(CopyRequest):
    """tile::gather4 or scatter4: `coords` are four tiles of one row, copied as one of four rows.

    `plan` is that of a box of four rows.
    """

    def lines(self, which: slice | IntArray = slice(None)) -> Lines:
        """Give where the four rows lie."""
        one_row = geometry.plan(replace(self.plan.arguments, box_dim=(self.plan.counts[0], 1)))
        origins, inside = geometry.line_origins(one_row, self.coords)
        start, first, last = geometry.inner_window(one_row, self.coords[:1, 0])
        return Lines(origins.reshape(1, 4), inside.reshape(1, 4), start, first, last)

    @property
    def has_lattice(self) -> bool:
        """Whether the rows are a box: they are four."""
        return False

    @property
    def tiles(self) -> int:
        """One, of four rows."""
        return 1

    @property
    def note(self) -> str:
        """Never measured."""
        return "documented, not measured"


def load_request(
    tensor_map: TensorMap,
    coords: object,
    im2col_offsets: Sequence[int] | None,
    smem_offset: int,
    *,
    many: bool,
) -> CopyRequest:
    """Check a load. `coords` is row-major: (rank,), or (n, rank) where `many`.

    Raises
    ------
    TmaPreconditionError
        With the row of `REFUSALS` that does not hold.
    TmaUnsupportedError
        For what only stores can do.
    """
    _check_map(tensor_map)
    args = tensor_map.arguments
    if args.swizzle == TmaSwizzle.bytes128_atom_64B and args.data_type.name == "16U6_ALIGN16B":
        raise TmaUnsupportedError(
            "16U6_ALIGN16B with swizzle bytes128_atom_64B can be stored but not loaded; use "
            "bytes128 or bytes128_atom_32B (CUDA driver API, cuTensorMapEncodeTiled: swizzle)"
        )
    driver_coords = _many_coords(args, coords) if many else _coords(args, coords)
    _check_inner(args, driver_coords)
    offsets = _offsets(args, im2col_offsets)
    if args.kind != "tiled":
        _check_start(args, driver_coords)
    plan = geometry.plan(args)
    offset = _check_smem(tensor_map, plan, smem_offset)
    return CopyRequest(tensor_map, plan, driver_coords, offsets, offset, many)


def store_request(tensor_map: TensorMap, coords: object, smem_offset: int) -> CopyRequest:
    """Check a store or the place of a reduction; raises as `load_request`."""
    _check_map(tensor_map)
    args = tensor_map.arguments
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
    driver_coords = _coords(args, coords)
    _check_inner(args, driver_coords)
    if driver_coords.min() < 0:
        refuse("COPY_STORE_NEGATIVE", "coords", f"coords are {_shown(driver_coords[0])}")
    if args.kind == "im2col":
        lower, upper = args.pixel_box_lower_corner, args.pixel_box_upper_corner
        if min(lower) < 0 or max(upper) > 0:
            found = f"lower corner is {lower[::-1]} and upper corner {upper[::-1]} (row-major)"
            refuse("COPY_IM2COL_STORE_CORNERS", "tensor_map", found)
        _check_start(args, driver_coords)
    plan = geometry.plan(args)
    offset = _check_smem(tensor_map, plan, smem_offset)
    return CopyRequest(tensor_map, plan, driver_coords, (), offset)


def gather4_request(
    tensor_map: TensorMap, column: object, rows: object, smem_offset: int
) -> Gather4Request:
    """Check a tile::gather4 load of four rows; raises as `load_request`."""
    require_map(tensor_map)
    args = tensor_map.arguments
    if tensor_map.target.is_sm_9x:
        raise TmaUnsupportedError(
            f"{tensor_map.target} has no gather4 and scatter4; sm_100 and later do (PTX ISA)"
        )
    four = integers_of(rows) or ()
    if args.kind != "tiled" or args.box_dim[1:] != (1,) or len(four) != 4:
        found = f"the map is {args.kind} with box_dim {args.box_dim}, and rows are {shown(rows)}"
        refuse("COPY_GATHER4", "rows", found)
    _check_map(tensor_map)
    coords = np.concatenate([_coords(args, (row, column)) for row in four])
    _check_inner(args, coords)
    plan = geometry.plan(replace(args, box_dim=(args.box_dim[0], 4), element_strides=(1, 1)))
    offset = _check_smem(tensor_map, plan, smem_offset)
    return Gather4Request(tensor_map, plan, coords, (), offset)


def scatter4_request(
    tensor_map: TensorMap, column: object, rows: object, smem_offset: int
) -> Gather4Request:
    """Check a tile::scatter4 store of four rows; raises as `store_request`."""
    require_map(tensor_map)
    target = tensor_map.target
    if not target.has_scatter4 and not target.is_sm_9x:
        raise TmaUnsupportedError(
            f"{target} has no tile::scatter4, although it has gather4 (ptxas 13.0 refuses it): "
            "store the four rows one by one, or build for sm_100, sm_103, sm_107 or sm_110"
        )
    request = gather4_request(tensor_map, column, rows, smem_offset)
    if request.coords.min() < 0:
        found = f"column is {shown(column)} and rows are {_shown(request.coords[::-1, 1])}"
        refuse("COPY_STORE_NEGATIVE", "rows", found)
    return request


# --- One check each -----------------------------------------------------------------------------


def require_map(tensor_map: object) -> None:
    """Refuse what is no map."""
    kind = type(tensor_map)  # isinstance would ask __class__, which may raise
    if not issubclass(kind, TensorMap):
        found = f"tensor_map is a {type_name(kind)}"
        raise refusal(
            "tensor_map", found, "be a TensorMap", "make one: make_tma_descriptor(x, ...)"
        )


def _check_map(tensor_map: TensorMap) -> None:
    require_map(tensor_map)
    if tensor_map.global_address % 16:
        found = f"the map's address is {tensor_map.global_address:#x}"
        refuse("COPY_ADDRESS", "tensor_map", found)
    longest = max(tensor_map.global_dim)
    if tensor_map.target.is_sm_9x and longest > MAX_COPIED_DIM:
        refuse("COPY_DIM_31_BITS", "tensor_map", f"an extent of the map is {longest}")


def _coords(args: EncodeArguments, coords: object) -> IntArray:
    """Give the row-major coordinates (rank,) of one tile as a driver-order array (1, rank)."""
    numbers = integers_of(coords)
    if numbers is None:
        refuse("COPY_COORDS_TYPE", "coords", f"coords are {shown(coords)}")
    if len(numbers) != args.rank:
        found = f"coords are {shown(coords)}, and the map has {args.rank} dimensions"
        refuse("COPY_COORDS_COUNT", "coords", found)
    if min(numbers) < MIN_COORD or max(numbers) > MAX_COORD:
        refuse("COPY_COORD_32_BITS", "coords", f"coords are {shown(coords)}")
    return np.array([numbers[::-1]], np.int64)


def _many_coords(args: EncodeArguments, coords: object) -> IntArray:
    """Give the row-major coordinates (n, rank) of many tiles as a driver-order array."""
    if type(coords) in (list, tuple) and not coords:
        coords = np.empty((0, args.rank), np.int64)
    array = array_of(coords)
    if array is None:
        refuse("COPY_COORDS_TYPE", "coords", f"coords are {shown(coords)}")
    if array.dtype.kind not in "iu":
        refuse("COPY_COORDS_TYPE", "coords", f"coords are an array of {array.dtype}")
    if array.ndim != 2 or array.shape[1] != args.rank:
        found = f"coords have shape {array.shape}, and the map asks for (n, {args.rank})"
        refuse("COPY_COORDS_COUNT", "coords", found)
    if array.size and not MIN_COORD <= int(array.min()) <= int(array.max()) <= MAX_COORD:
        found = f"coords reach from {array.min()} to {array.max()}"
        refuse("COPY_COORD_32_BITS", "coords", found)
    return array.astype(np.int64)[:, ::-1]


def _check_inner(args: EncodeArguments, coords: IntArray) -> None:
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
            f"coords[{args.rank - 1}] is {bad[0]} in coords {_shown(bad)}; {row.data_type.name} "
            f"asks for a multiple of {step} elements"
        )
        refuse(rule, "coords", found)


def _check_start(args: EncodeArguments, coords: IntArray) -> None:
    for d, (first, last) in zip(geometry.walked_dims(args), geometry.im2col_box(args), strict=True):
        start = coords[:, d]
        # An im2col-wide column may start left of its box [documented], and walks into it.
        out = start > last if args.kind == "im2col_wide" else (start < first) | (start > last)
        if np.count_nonzero(out):
            bad = coords[int(out.argmax())]
            found = (
                f"coords[{args.rank - 1 - d}] is {bad[d]} in coords {_shown(bad)}; the bounding "
                f"box there is {first}..{last}"
            )
            refuse("COPY_IM2COL_START", "coords", found)


def _offsets(args: EncodeArguments, offsets: object) -> tuple[int, ...]:
    """Give im2col offsets W first."""
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
        found = f"im2col_offsets are {shown(offsets)}; the map asks for {count} of 0..{most}"
        refuse("COPY_IM2COL_OFFSETS", "im2col_offsets", found)
    return numbers[::-1]


def _check_smem(tensor_map: TensorMap, plan: TilePlan, smem_offset: object) -> int:
    """Give smem_offset as an int if the tile may start there."""
    offset = integer_of(smem_offset)
    if offset is None or offset < 0 or offset % geometry.SMEM_ALIGNMENT:
        refuse("COPY_SMEM_OFFSET", "smem_offset", f"smem_offset is {shown(smem_offset)}")
    limit = tensor_map.target.max_smem_bytes
    if offset + plan.smem_bytes > limit:
        found = (
            f"the tile takes {plan.smem_bytes} bytes from {shown(offset)} on; "
            f"{tensor_map.target} has {limit} bytes"
        )
        refuse("COPY_SMEM_SIZE", "smem_offset", found)
    return offset


def _shown(driver_coords: IntArray) -> tuple[int, ...]:
    """Give coordinates as the caller wrote them."""
    return tuple(int(c) for c in driver_coords[::-1])
