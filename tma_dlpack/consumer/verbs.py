"""`matrix_descriptor` and `ldmatrix_addresses`: how to read the tile that a map's copy writes.

The table `LDMATRIX_RULES` has the reasons why ldmatrix cannot read a tile.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tma_dlpack.consumer.descriptor import MatrixDescriptor
from tma_dlpack.consumer.operand import (
    INSTRUCTIONS,
    K_STEP_BYTES,
    NO_MATRIX,
    Major,
    Operand,
    TileMatrix,
    leading_bytes,
    stride_bytes,
    tile_matrix,
)
from tma_dlpack.consumer.refusals import ROWS, find_violations
from tma_dlpack.geometry import SMEM_ALIGNMENT, swizzle_offset
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import integer_of, shown, text_of
from tma_dlpack.tables.errors import TmaPreconditionError, TmaTargetError, bad_value
from tma_dlpack.tables.rule import Rule
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
        A tiled map whose box has two extents greater than 1, a map made with `split_inner`, or an
        im2col map, whose pixels are the rows of the matrix. The data type must be FLOAT16,
        BFLOAT16, TFLOAT32, or UINT8 (for e4m3, e5m2, s8 and u8).
    instruction : {"wgmma", "tcgen05"}
        The instruction that reads the tile. The result for ``"wgmma"`` (sm_90) is measured; for
        ``"tcgen05"`` (sm_100) it is documented, not measured.
    major : {"K", "MN"}
        The dimension of the matrix product that is contiguous in the tile: ``"K"`` for a box of
        (M or N, K), ``"MN"`` for a box of (K, M or N).
    smem_address : int
        Address of the tile in shared memory in bytes. If you pass 0, the kernel must add the tile's
        address divided by 16 to `value`.

    Returns
    -------
    MatrixDescriptor
        The descriptor of the first K step. Its method `advance` returns the descriptors of later
        steps.

    Raises
    ------
    TmaPreconditionError
        If the instruction cannot read the tile because of its data type, rank, interleaved layout,
        NaN fill, width, number of rows or address. Each violation proposes a call that works.
    TmaTargetError
        If the GPU that the map is for does not have the instruction.

    Notes
    -----
    The descriptors of wgmma are measured (H200, driver 580.159.04, 2026-11-21). With these
    descriptors, the products of random tiles of all data types, majors, swizzles and K steps are
    exact. `verify` repeats the measurement.

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
        raise bad_value("instruction", instruction, must, fix)
    named = read_major(major, "a box of (M or N, K)")
    address = integer_of(smem_address)
    if address is None:
        raise bad_value("smem_address", smem_address, "be an integer, bytes", "pass smem_address=0")
    operand = Operand.of(tensor_map, row, named, address)
    violations = find_violations(operand, ROWS, row.source)
    if violations:
        lacks = violations[0].rule == "MATRIX_TARGET"
        raise (TmaTargetError if lacks else TmaPreconditionError)(violations)
    return _descriptor(operand)


def read_major(major: object, of: str) -> Major:
    """Return `major` as ``"K"`` or ``"MN"``; refuse any other value.

    `of` is the shape of a K-major box as text; the error's fix contains this text.
    """
    text = text_of(major)
    named = None if text is None else text.upper()
    if named not in ("K", "MN"):
        raise bad_value("major", major, "be 'K' or 'MN'", f"pass major='K' for {of}")
    return named  # type: ignore[return-value]


def _descriptor(operand: Operand) -> MatrixDescriptor:
    is_k_major, tile = operand.major == "K", operand.tile
    return MatrixDescriptor(
        operand.instruction.name,
        operand.major,
        operand.arguments.data_type,
        operand.swizzle,
        leading_bytes(operand),
        stride_bytes(operand),
        # The base offset is 0; the docstring of `MatrixDescriptor` gives the reason.
        0,
        tile.rows if is_k_major else tile.width,
        _k_major_starts(tile, operand.smem_address)
        if is_k_major
        else _mn_major_starts(tile, operand.smem_address, operand.rows_step),
    )


# The caches of the next two functions have the size of the cache of geometry.plan.
@functools.lru_cache(maxsize=1024)
def _k_major_starts(tile: TileMatrix, first: int) -> tuple[int, ...]:
    """Return the address where each K step starts: every 32 bytes of a row of the matrix.

    Without a swizzle a span is 16 bytes, so a K step takes two columns of spans.
    """
    columns = range(0, tile.columns, max(1, K_STEP_BYTES // tile.row_bytes))
    return tuple(
        first + column * tile.column_bytes + byte
        for column in columns
        for byte in range(0, tile.row_bytes, K_STEP_BYTES)
    )


@functools.lru_cache(maxsize=1024)
def _mn_major_starts(tile: TileMatrix, first: int, rows_step: int) -> tuple[int, ...]:
    """Return the address where each K step starts: every `rows_step` rows."""
    return tuple(range(first, first + tile.column_bytes, rows_step * tile.pitch_bytes))


# -- ldmatrix --------------------------------------------------------------------------------------

# A warp has 32 lanes. A matrix of ldmatrix has 8 rows of 16 bytes.
LANES = 32
MATRIX_ROWS = 8
ROW_BYTES = 16


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

    The addresses include the swizzle. A matrix has 8 rows of 16 bytes. Lane 8 i + r passes the
    address of row r of matrix i.

    Parameters
    ----------
    tensor_map : TensorMap
        A tiled map whose box is a matrix, a map made with `split_inner`, or an im2col map.
    row, column : int
        Indices of the tile's element where the first matrix starts. `column` times the size of an
        element must be a multiple of 16 bytes.
    num : {1, 2, 4}
        Number of matrices that the instruction loads: ``.x1``, ``.x2`` or ``.x4``.
    transpose : bool
        Whether the instruction is ``ldmatrix.trans``, which is for tiles whose rows step along K.
        ``ldmatrix.trans`` needs elements of 16 bits.
    smem_address : int
        Address of the tile in shared memory in bytes, a multiple of 128.

    Returns
    -------
    int64 array (32,)
        Shared-memory addresses in bytes. The hardware ignores the addresses of lanes 8 x num and
        above; these lanes have the addresses of the first lanes.

    Raises
    ------
    TmaPreconditionError
        If the tile is not a matrix, if a matrix of ldmatrix is not within the tile, if `column` or
        `smem_address` is misaligned, or if `transpose` is true and the elements do not have 16
        bits.

    Notes
    -----
    The matrices are in the order in which ``mma.m16n8k16`` expects its operands (PTX ISA,
    fragments). The table has the place of each matrix as (row, column), in units of 8 rows and of
    16 bytes:

    ============  ================================  ==========================================
    instruction   matrices                          registers of
    ============  ================================  ==========================================
    .x4           (0, 0) (1, 0) (0, 1) (1, 1)       A, of a tile of M by K
    .x4.trans     (0, 0) (1, 0) (0, 1) (1, 1)       B twice (8 of N each), of a tile of K by N
    .x2           (0, 0) (0, 1)                     B, of a tile of N by K
    .x2.trans     (0, 0) (1, 0)                     B, of a tile of K by N
    ============  ================================  ==========================================

    The result is equal to the result of an H200 [measured, driver 580.159.04, 2026-11-21].

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (64, 64), swizzle="bytes128")
    >>> [hex(a) for a in ldmatrix_addresses(tm, 0, 16)[:3]]
    ['0x20', '0xb0', '0x100']
    """
    require_map(tensor_map)
    at_row = integer_of(row)
    if at_row is None or at_row < 0:
        raise bad_value("row", row, "be an integer, 0 or more", "count rows of the tile from 0")
    tile = tile_matrix(tensor_map) or NO_MATRIX
    rows, columns = _extent(num, transpose)
    load = Load(tensor_map, tile, at_row, column, rows, columns, transpose, smem_address)
    violations = find_violations(load, LDMATRIX_RULES)
    if violations:
        raise TmaPreconditionError(violations)

    # Matrices are numbered down the first column, then down the second; see the table above.
    lane = np.arange(LANES, dtype=np.int64) % (MATRIX_ROWS * rows * columns)
    matrix = lane // MATRIX_ROWS
    lane_row = at_row + matrix % rows * MATRIX_ROWS + lane % MATRIX_ROWS
    at_byte = int(column) * tile.element_bytes + matrix // rows * ROW_BYTES
    span, byte = np.divmod(at_byte, tile.row_bytes)
    # See the layout of the tile, [column of spans][row][span bytes], in the docstring of `operand`.
    unswizzled = int(smem_address) + span * tile.column_bytes + lane_row * tile.pitch_bytes + byte
    addresses: npt.NDArray[np.int64] = swizzle_offset(tensor_map.swizzle, unswizzled)
    return addresses


def _extent(num: object, transpose: object) -> tuple[int, int]:
    """Return the number of rows and of columns of the loaded area, counted in matrices."""
    count = integer_of(num)
    if count not in (1, 2, 4):
        raise bad_value("num", num, "be 1, 2 or 4 matrices", "pass num=4 for ldmatrix.x4")
    if type(transpose) is not bool:
        fix = "pass transpose=True for ldmatrix.trans"
        raise bad_value("transpose", transpose, "be True or False", fix)
    if count == 4:
        return 2, 2
    return (count, 1) if transpose else (1, count)


# -- reasons to refuse a load ----------------------------------------------------------------------


class Load(NamedTuple):
    """The input of `LDMATRIX_RULES`: a tile, and the matrices that ldmatrix loads from the tile.

    Attributes
    ----------
    tensor_map : TensorMap
    tile : TileMatrix
        The tile as a matrix; `NO_MATRIX` if the tile is not a matrix.
    row : int
    column : object
    rows, columns : int
        Number of rows and of columns of the loaded area, counted in matrices.
    transpose : bool
    smem_address : object
    """

    tensor_map: TensorMap
    tile: TileMatrix
    row: int
    column: object
    rows: int
    columns: int
    transpose: bool
    smem_address: object

    @property
    def step(self) -> int:
        """Number of elements in 16 bytes."""
        return ROW_BYTES // self.tile.element_bytes

    @property
    def height(self) -> int:
        """Number of rows of the tile that all matrices together take."""
        return self.rows * MATRIX_ROWS

    @property
    def width(self) -> int:
        """Number of elements of a row that all matrices together take."""
        return self.columns * self.step

    @property
    def is_below(self) -> bool:
        """Whether a matrix reaches past the last row of the tile."""
        return self.row + self.height > self.tile.rows

    @property
    def is_inside(self) -> bool:
        """Whether all matrices are within the tile."""
        return not self.is_below and (integer_of(self.column) or 0) + self.width <= self.tile.width


def _is_multiple(value: object, step: int) -> bool:
    number = integer_of(value)
    return number is not None and number >= 0 and number % step == 0


def _found_rank(load: Load) -> str:
    tensor_map = load.tensor_map
    return f"the tile of {tensor_map.box_sizes} {tensor_map.data_type.name} is not a matrix"


_row = partial(Rule, group="operand", source="PTX ISA, ldmatrix")

LDMATRIX_RULES: tuple[Rule, ...] = (
    _row(
        id="LDMATRIX_RANK",
        on="tensor_map",
        holds=lambda load: load.tile.rows > 0,
        found=_found_rank,
        must="have elements of whole bytes and two extents over 1, or be made with split_inner",
        fix="copy one matrix at a time: set the other extents of box_sizes to 1",
    ),
    _row(
        id="LDMATRIX_COLUMN",
        on="column",
        asks="be a multiple of 16 bytes, where a row of a matrix starts",
        holds=lambda load: _is_multiple(load.column, load.step),
        found=lambda load: f"column is {shown(load.column)}",
        must=lambda load: (
            f"be a multiple of {load.step}: a row of a matrix starts at a multiple of 16 bytes"
        ),
        fix="count elements of the tile's row from 0, in steps of 16 bytes",
        prerequisites=("LDMATRIX_RANK",),
    ),
    _row(
        id="LDMATRIX_TRANSPOSE",
        on="transpose",
        holds=lambda load: not load.transpose or load.tile.element_bytes == 2,
        found=lambda load: f"transpose is True with elements of {8 * load.tile.element_bytes} bits",
        must="be False: ldmatrix.trans exchanges elements of 16 bits",
        fix="transpose the tensor in global memory, or in registers",
        prerequisites=("LDMATRIX_RANK",),
    ),
    _row(
        id="LDMATRIX_OUTSIDE",
        on=lambda load: "row" if load.is_below else "column",
        asks="be within the tile",
        holds=lambda load: load.is_inside,
        found=lambda load: (
            f"x{load.rows * load.columns} at ({load.row}, {load.column}) takes {load.height} rows "
            f"and {load.width} columns"
        ),
        must=lambda load: (
            f"be within the tile, {load.tile.rows} rows of {load.tile.width} elements"
        ),
        fix="start earlier, load fewer matrices, or use a larger box",
        prerequisites=("LDMATRIX_RANK", "LDMATRIX_COLUMN"),
    ),
    _row(
        id="LDMATRIX_ADDRESS",
        on="smem_address",
        holds=lambda load: _is_multiple(load.smem_address, SMEM_ALIGNMENT),
        found=lambda load: f"smem_address is {shown(load.smem_address)}",
        must="be a multiple of 128, where a TMA copy may write",
        fix="pass the tile's address in shared memory, aligned to TensorMap.smem_alignment",
    ),
)
