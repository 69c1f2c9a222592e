"""`matrix_descriptor` and `ldmatrix_addresses`: from a map to what reads its tile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tma_dlpack.consumer.descriptor import MatrixDescriptor
from tma_dlpack.consumer.operand import (
    INSTRUCTIONS,
    K_STEP_BYTES,
    SPAN_BYTES,
    UNITS,
    Major,
    Operand,
    TileMatrix,
    atom_rows,
    tile_matrix,
)
from tma_dlpack.consumer.refusals import LDMATRIX_RULES, find_violations
from tma_dlpack.geometry import SMEM_ALIGNMENT, swizzle_offset
from tma_dlpack.tables.coerce import integer_of, shown, text_of
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, TmaTargetError, unfit
from tma_dlpack.tables.public import opaque
from tma_dlpack.tensor_map.map import TensorMap, require_map


@opaque
def matrix_descriptor(
    tensor_map: TensorMap,
    *,
    instruction: Literal["wgmma", "tcgen05"] = "wgmma",
    major: Literal["K", "MN", "k", "mn"] = "K",
    smem_address: int = 0,
) -> MatrixDescriptor:
    """Return the wgmma or tcgen05 matrix descriptor of the tile that a map's copy writes.

    Parameters
    ----------
    tensor_map : TensorMap
        A tiled map whose box is a matrix, a map made with `split_inner`, or an im2col map (rows are
        pixels). Box extents of 1 do not count. The data type must be FLOAT16, BFLOAT16, TFLOAT32,
        or UINT8 (for e4m3, e5m2, s8 and u8).
    instruction : {"wgmma", "tcgen05"}
        ``"wgmma"`` (sm_90) is measured, ``"tcgen05"`` (sm_100) documented.
    major : {"K", "MN"}
        The dimension of the product that is contiguous in the tile: ``"K"`` for a box of
        (M or N, K), ``"MN"`` for a box of (K, M or N).
    smem_address : int
        Address of the tile in shared memory, bytes. With 0, a kernel adds its own
        ``shared_address / 16`` to `value`.

    Returns
    -------
    MatrixDescriptor
        For the first K step; its `advance` gives the others.

    Raises
    ------
    TmaPreconditionError
        If the instruction cannot read the tile: because of its data type, rank, interleaved
        layout, NaN fill, width, number of rows or address. Each violation names a call that works.
    TmaTargetError
        If the map's GPU lacks the instruction.

    Notes
    -----
    Measured (H200, driver 580.159.04, 2026-11-21): the products of random tiles of all types,
    majors, swizzles and K steps are exact; `verify` repeats the measurement.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((128, 64), np.float16)
    >>> tm = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
    >>> print(matrix_descriptor(tm, smem_address=0x400))
    wgmma matrix descriptor 0x4000004000010040: K-major
      bits 0..13  start address            0x40   0x400 bytes
      bits 16..29 leading byte offset       0x1   16 bytes, not read with a swizzle
      bits 32..45 stride byte offset       0x40   1024 bytes, to the next 8 rows of M or N
      bits 49..51 base offset               0x0   0: TMA swizzles by the absolute address
      bits 62..63 layout type               0x1   swizzle bytes128
    operand of f16: 64 of M or N, 64 of K in 4 steps of 16
    steps start at 0x400, 0x420, 0x440, 0x460
    measured (H200, driver 580.159.04, 2026-11-21)
    """
    require_map(tensor_map)
    row = INSTRUCTIONS.get(text_of(instruction) or "")
    if row is None:
        must, fix = "be 'wgmma' or 'tcgen05'", "pass instruction='wgmma', of sm_90"
        raise unfit("instruction", instruction, must, fix)
    named = read_major(major, "a box of (M or N, K)")
    address = integer_of(smem_address)
    if address is None:
        raise unfit("smem_address", smem_address, "be an integer, bytes", "pass smem_address=0")
    operand = Operand.of(tensor_map, row, named, address)
    violations = find_violations(operand)
    if violations:
        lacks = violations[0].rule == "MATRIX_TARGET"
        raise (TmaTargetError if lacks else TmaPreconditionError)(violations)
    return _descriptor(operand)


def read_major(major: object, of: str) -> Major:
    """Return the major in capitals; refuse another one, with the major of `of`."""
    text = text_of(major)
    named = None if text is None else text.upper()
    if named not in ("K", "MN"):
        raise unfit("major", major, "be 'K' or 'MN'", f"pass major='K' for {of}")
    return named  # type: ignore[return-value]


def _descriptor(operand: Operand) -> MatrixDescriptor:
    is_k_major, tile = operand.major == "K", operand.tile
    leading, stride = _offsets(operand)
    return MatrixDescriptor(
        operand.instruction.name,
        operand.major,
        operand.arguments.data_type,
        operand.swizzle,
        leading,
        stride,
        # Not the PTX ISA's (pattern start >> 7) & 7: with that, wgmma reads wrong bytes at an
        # address that is not a multiple of the pattern [measured, H200, driver 580.159.04,
        # 2026-11-21]. TMA and wgmma both swizzle by the absolute address, so the offset is 0.
        0,
        tile.rows if is_k_major else tile.width,
        tuple(_k_major_starts(operand) if is_k_major else _mn_major_starts(operand)),
    )


def _offsets(operand: Operand) -> tuple[int, int]:
    """Return the leading and the stride byte offset.

    ======  ============  ===================
    major   swizzle none  others
    ======  ============  ===================
    K       column, 128   16 (not read), atom
    MN      128, column   column, atom
    ======  ============  ===================

    where column is the bytes of all rows of one span, and atom 8 rows (4 of 32-byte atoms).
    """
    tile, swizzle, is_k_major = operand.tile, operand.swizzle, operand.major == "K"
    atom = atom_rows(swizzle) * SPAN_BYTES[swizzle]
    if swizzle is not TmaSwizzle.none:
        return UNITS if is_k_major else tile.column_bytes, atom
    return (tile.column_bytes, atom) if is_k_major else (atom, tile.column_bytes)


def _k_major_starts(operand: Operand) -> Iterable[int]:
    """Return the address at which each K step starts: every 32 bytes of a row, column by column.

    Without a swizzle a column is 16 bytes wide, and a step takes two.
    """
    tile, first = operand.tile, operand.smem_address
    at_once = tile.column_bytes * max(1, K_STEP_BYTES // tile.row_bytes)
    return [
        column + byte
        for column in range(first, first + tile.columns * tile.column_bytes, at_once)
        for byte in range(0, tile.row_bytes, K_STEP_BYTES)
    ]


def _mn_major_starts(operand: Operand) -> Iterable[int]:
    """Return the address at which each K step starts: every `rows_step` rows."""
    tile, first = operand.tile, operand.smem_address
    return range(first, first + tile.column_bytes, operand.rows_step * tile.pitch_bytes)


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
    tile = tile_matrix(tensor_map)
    if tile is None:
        raise _refused(
            "LDMATRIX_RANK",
            "tensor_map",
            f"the tile of {tensor_map.box_sizes} {tensor_map.data_type.name} is not a matrix",
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
        )


def _address(smem_address: object) -> int:
    address = integer_of(smem_address)
    if address is None or address < 0 or address % SMEM_ALIGNMENT:
        raise _refused(
            "LDMATRIX_ADDRESS",
            "smem_address",
            f"smem_address is {shown(smem_address)}",
        )
    return address


def _refused(rule: str, argument: str, found: str, must: str = "") -> TmaPreconditionError:
    row = LDMATRIX_RULES[rule]
    return TmaPreconditionError(replace(row, must=must or row.must).violation(argument, found))
