"""`matrix_descriptor`: the wgmma or tcgen05 descriptor of the tile that a map's copy writes."""

from __future__ import annotations

import functools
from typing import Literal

from tma_dlpack.consumer.descriptor import MatrixDescriptor
from tma_dlpack.consumer.operand import (
    INSTRUCTIONS,
    K_STEP_BYTES,
    Major,
    Operand,
    TileMatrix,
    leading_bytes,
    stride_bytes,
)
from tma_dlpack.consumer.refusals import ROWS, find_violations
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import integer_of, text_of
from tma_dlpack.tables.errors import TmaPreconditionError, TmaTargetError, bad_value
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
        ``"wgmma"`` (sm_90) is measured, ``"tcgen05"`` (sm_100) is documented, not measured.
    major : {"K", "MN"}
        The dimension of the product that is contiguous in the tile: ``"K"`` for a box of
        (M or N, K), ``"MN"`` for a box of (K, M or N).
    smem_address : int
        Address of the tile in shared memory in bytes. If you pass 0, the kernel must add its
        ``shared_address / 16`` to `value`.

    Returns
    -------
    MatrixDescriptor
        The descriptor of the first K step; its method `advance` returns those of later steps.

    Raises
    ------
    TmaPreconditionError
        If the instruction cannot read the tile because of its data type, rank, interleaved layout,
        NaN fill, width, number of rows or address. Each violation proposes a call that works.
    TmaTargetError
        If the map's GPU lacks the instruction.

    Notes
    -----
    The descriptors of wgmma are measured (H200, driver 580.159.04, 2026-11-21): the products of
    random tiles of all types, majors, swizzles and K steps are exact. `verify` repeats the
    measurement.

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
    """Return the major in capitals; refuse any other value. `of` is a box with the major K."""
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
        # The base offset is 0, because TMA and wgmma both swizzle by the absolute address. With the
        # PTX ISA's (pattern start >> 7) & 7, wgmma reads wrong bytes at an address that is not a
        # multiple of the pattern [measured, H200, driver 580.159.04, 2026-11-21].
        0,
        tile.rows if is_k_major else tile.width,
        _k_major_starts(tile, operand.smem_address)
        if is_k_major
        else _mn_major_starts(tile, operand.smem_address, operand.rows_step),
    )


# The caches are as large as that of geometry.plan.
@functools.lru_cache(maxsize=1024)
def _k_major_starts(tile: TileMatrix, first: int) -> tuple[int, ...]:
    """Return the address where each K step starts: every 32 bytes of a row, column by column.

    Without a swizzle a column is 16 bytes wide, so a step takes two columns.
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
