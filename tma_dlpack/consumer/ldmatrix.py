"""The shared-memory addresses that the 32 lanes of a warp pass to `ldmatrix`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.consumer.operand import TileMatrix, tile_matrix
from tma_dlpack.geometry import SMEM_ALIGNMENT, swizzle_offset
from tma_dlpack.tables.coerce import integer_of, shown
from tma_dlpack.tables.errors import TmaPreconditionError, Violation, unfit
from tma_dlpack.tables.public import opaque
from tma_dlpack.tensor_map.map import TensorMap, require_map

LANES = 32
ROWS = 8  # of a matrix; each is one row of 16 bytes
ROW_BYTES = 16
SOURCE = "PTX ISA, ldmatrix"


@opaque
def ldmatrix_addresses(
    tensor_map: TensorMap,
    row: int,
    column: int,
    *,
    num: int = 4,
    transpose: bool = False,
    smem_address: int = 0,
) -> npt.NDArray[np.int64]:
    """Return the shared-memory address that each lane of a warp passes to ``ldmatrix``.

    The swizzle is included. Lane 8 i + r points to row r of matrix i; a matrix is 8 rows of 16
    bytes.

    Parameters
    ----------
    tensor_map : TensorMap
        A tiled map whose box is a matrix, a map made with `split_inner`, or an im2col map.
    row, column : int
        Element of the tile at which the first matrix starts; `column` must start at a multiple of
        16 bytes.
    num : {1, 2, 4}
        Number of matrices: ``.x1``, ``.x2``, ``.x4``.
    transpose : bool
        Whether the instruction is ``ldmatrix.trans``, for tiles whose rows are K (16-bit types
        only).
    smem_address : int
        Address of the tile in shared memory, bytes, a multiple of 128.

    Returns
    -------
    int64 array (32,)
        Shared-memory addresses, bytes. Lanes from 8 x num on repeat the first ones; the hardware
        ignores them.

    Raises
    ------
    TmaPreconditionError
        If the tile is not a matrix, the matrices are not within it, `column` is not at a multiple
        of 16 bytes, or `transpose` is used with elements that are not 16 bits.

    Notes
    -----
    The order of the matrices is that of the operands of ``mma.m16n8k16`` (PTX ISA, fragments), in
    units of 8 rows and 16 bytes, as (rows, columns):

    ============  ================================  ==========================================
    instruction   matrices                          registers of
    ============  ================================  ==========================================
    .x4           (0, 0) (1, 0) (0, 1) (1, 1)       A, of a tile of M by K
    .x4.trans     (0, 0) (1, 0) (0, 1) (1, 1)       B twice (8 of N each), of a tile of K by N
    .x2           (0, 0) (0, 1)                     B, of a tile of N by K
    .x2.trans     (0, 0) (1, 0)                     B, of a tile of K by N
    ============  ================================  ==========================================

    Measured against the simulator (H200, driver 580.159.04, 2026-11-21).

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (64, 64), swizzle="bytes128")
    >>> [hex(a) for a in ldmatrix_addresses(tm, 0, 16)[:3]]
    ['0x20', '0xb0', '0x100']
    """
    require_map(tensor_map)
    tile = _tile(tensor_map)
    first = _place(tile, row, column)
    rows, columns = _extent(num, transpose)
    _check_transposition(tile, transpose)
    _check_inside(tile, first, rows, columns)
    address = _address(smem_address)

    lane = np.arange(LANES, dtype=np.int64) % (ROWS * rows * columns)
    matrix = lane // ROWS
    at_row = first[0] + matrix % rows * ROWS + lane % ROWS
    at_byte = first[1] * tile.element_bytes + matrix // rows * ROW_BYTES
    span, byte = np.divmod(at_byte, tile.row_bytes)
    unswizzled = address + span * tile.column_bytes + at_row * tile.pitch_bytes + byte
    addresses: npt.NDArray[np.int64] = swizzle_offset(tensor_map.swizzle, unswizzled)
    return addresses


def _tile(tensor_map: TensorMap) -> TileMatrix:
    tile = tile_matrix(geometry.plan(tensor_map.arguments))
    if tile is None:
        raise _refused(
            "LDMATRIX_RANK",
            "tensor_map",
            f"the tile of {tensor_map.box_sizes} {tensor_map.data_type.name} is not a matrix",
            "have elements of whole bytes and two extents over 1, or be made with split_inner",
            "copy one matrix at a time: set the other extents of box_sizes to 1",
        )
    return tile


def _place(tile: TileMatrix, row: object, column: object) -> tuple[int, int]:
    at_row, at_column = integer_of(row), integer_of(column)
    if at_row is None or at_row < 0:
        raise unfit("row", row, "be an integer, 0 or more", "count rows of the tile from 0")
    step = ROW_BYTES // tile.element_bytes
    if at_column is None or at_column < 0 or at_column % step:
        raise _refused(
            "LDMATRIX_COLUMN",
            "column",
            f"column is {shown(column)}",
            f"be a multiple of {step}: a row of a matrix starts at a multiple of 16 bytes",
            f"count elements of the tile's row from 0, in steps of {step}",
        )
    return at_row, at_column


def _extent(num: object, transpose: object) -> tuple[int, int]:
    """Return how many matrices there are in rows and in columns."""
    count = integer_of(num)
    if count not in (1, 2, 4):
        raise unfit("num", num, "be 1, 2 or 4 matrices", "pass num=4 for ldmatrix.x4")
    if type(transpose) is not bool:
        fix = "pass transpose=True for ldmatrix.trans"
        raise unfit("transpose", transpose, "be True or False", fix)
    if count == 4:
        return 2, 2
    return (count, 1) if transpose else (1, count)


def _check_transposition(tile: TileMatrix, transpose: bool) -> None:
    if transpose and tile.element_bytes != 2:
        raise _refused(
            "LDMATRIX_TRANSPOSE",
            "transpose",
            f"transpose is True with elements of {8 * tile.element_bytes} bits",
            "be False: ldmatrix.trans exchanges elements of 16 bits",
            "transpose the tensor in global memory, or in registers",
        )


def _check_inside(tile: TileMatrix, first: tuple[int, int], rows: int, columns: int) -> None:
    """Refuse matrices that reach past the tile; `rows` and `columns` count matrices."""
    height, width = rows * ROWS, columns * ROW_BYTES // tile.element_bytes
    if first[0] + height > tile.rows or first[1] + width > tile.width:
        raise _refused(
            "LDMATRIX_OUTSIDE",
            "row" if first[0] + height > tile.rows else "column",
            f"x{rows * columns} at {first} takes {height} rows and {width} columns",
            f"be within the tile, {tile.rows} rows of {tile.width} elements",
            "start earlier, load fewer matrices, or use a larger box",
        )


def _address(smem_address: object) -> int:
    address = integer_of(smem_address)
    if address is None or address < 0 or address % SMEM_ALIGNMENT:
        raise _refused(
            "LDMATRIX_ADDRESS",
            "smem_address",
            f"smem_address is {shown(smem_address)}",
            "be a multiple of 128, where a TMA copy may write",
            "pass the tile's address in shared memory, aligned to TensorMap.smem_alignment",
        )
    return address


def _refused(rule: str, argument: str, found: str, must: str, fix: str) -> TmaPreconditionError:
    return TmaPreconditionError(Violation(rule, argument, found, f"it must {must}", fix, SOURCE))
