"""`matrix_descriptor`: from a tensor map to the descriptor of its tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tma_dlpack.consumer.descriptor import Major, MatrixDescriptor
from tma_dlpack.consumer.instructions import INSTRUCTIONS, K_STEP_BYTES, SPAN_BYTES, UNITS
from tma_dlpack.consumer.operand import Operand
from tma_dlpack.consumer.refusals import find_violations
from tma_dlpack.consumer.tile_matrix import TileMatrix
from tma_dlpack.encoding.arguments import EncodeArguments
from tma_dlpack.types.coerce import integer_of, shown, text_of, type_name
from tma_dlpack.types.enums import TmaSwizzle
from tma_dlpack.types.errors import TmaPreconditionError, TmaTargetError, refusal
from tma_dlpack.types.opaque import opaque

if TYPE_CHECKING:
    from tma_dlpack.tensor_map.map import TensorMap

__all__ = ["matrix_descriptor", "require_map"]


@opaque
def matrix_descriptor(
    tensor_map: TensorMap,
    *,
    instruction: str = "wgmma",
    major: str = "K",
    smem_address: int = 0,
) -> MatrixDescriptor:
    """Give the matrix descriptor with which a tensor core reads the tile that a map's copy writes.

    Parameters
    ----------
    tensor_map : TensorMap
        A tiled map whose box is a matrix, one that `split_inner` made, or an im2col map (rows are
        pixels). Extents of 1 do not count; element strides do not matter, for the tile is as dense
        as any other. FLOAT16, BFLOAT16, TFLOAT32, or UINT8 (e4m3, e5m2, s8,
        u8: the instruction's own type says which).
    instruction : {"wgmma", "tcgen05"}
        ``"wgmma"`` of sm_90 is measured, ``"tcgen05"`` of sm_100 documented.
    major : {"K", "MN"}
        Which dimension of the product the rows of the box run along: ``"K"`` for a box of
        (M or N, K), ``"MN"`` for a box of (K, M or N).
    smem_address : int
        Where the tile starts in shared memory, as `smem_offset` of `load_tile`, bytes. In a kernel
        whose buffer starts elsewhere, add ``shared_address / 16`` to `value`.

    Returns
    -------
    MatrixDescriptor
        Of the first K step; `MatrixDescriptor.advance` gives the others.

    Raises
    ------
    TmaPreconditionError
        With every reason why the instruction cannot read the tile, and a call that works instead:
        a type that tensor cores have not, more than two dimensions, an interleaved layout, NaN
        fill, a width that is no whole number of K steps or atoms, rows that are not, an address. A
        `TmaTargetError` where the map's GPU has another instruction.

    Notes
    -----
    Measured (H200, driver 580.159.04, 2026-11-21): products of random tiles, all types, majors,
    swizzles and K steps, equal the exact ones; `verify` repeats that.

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
        must = "be 'wgmma' or 'tcgen05'"
        found = f"instruction is {shown(instruction)}"
        raise refusal("instruction", found, must, "pass instruction='wgmma', of sm_90")
    if text_of(major) not in ("K", "MN"):
        must, fix = "be 'K' or 'MN'", "pass major='K' for a box of (M or N, K)"
        raise refusal("major", f"major is {shown(major)}", must, fix)
    address = integer_of(smem_address)
    if address is None:
        found = f"smem_address is {shown(smem_address)}"
        raise refusal("smem_address", found, "be an integer, bytes", "pass smem_address=0")
    operand = Operand(tensor_map, row, major, address)
    violations = find_violations(operand)
    if violations:
        lacks = violations[0].rule == "MATRIX_TARGET"
        raise (TmaTargetError if lacks else TmaPreconditionError)(violations)
    return _descriptor(operand)


def _descriptor(operand: Operand) -> MatrixDescriptor:
    tile, tensor_map = operand.tile, operand.tensor_map
    is_k_major = operand.major == "K"
    leading, stride = _offsets(operand)
    starts = _k_major_starts(tile) if is_k_major else _mn_major_starts(operand)
    return MatrixDescriptor(
        instruction=operand.instruction.name,
        major=cast("Major", operand.major),
        data_type=tensor_map.data_type,
        swizzle=tensor_map.swizzle,
        leading_byte_offset=leading,
        stride_byte_offset=stride,
        # Not the PTX ISA's (pattern start >> 7) & 7: with that, wgmma at a destination that is no
        # multiple of the pattern reads other bytes than TMA wrote [measured, H200, driver
        # 580.159.04, 2026-11-21]. Both swizzle by the absolute address, so there is no offset.
        base_offset=0,
        mn_elements=tile.rows if is_k_major else tile.width,
        k_starts=tuple(operand.smem_address + start for start in starts),
    )


def _offsets(operand: Operand) -> tuple[int, int]:
    """Give the leading and the stride byte offset.

    ======  ============  ===================
    major   swizzle none  others
    ======  ============  ===================
    K       column, 128   16 (not read), atom
    MN      128, column   column, atom
    ======  ============  ===================

    where column is the bytes of all rows of one span, and atom 8 rows (4 of 32-byte atoms).
    """
    tile, swizzle = operand.tile, operand.swizzle
    span = SPAN_BYTES[swizzle]
    atom = (4 if swizzle is TmaSwizzle.bytes128_atom_32B else 8) * span
    if swizzle is TmaSwizzle.none:
        pair = tile.column_bytes, atom
        return pair if operand.major == "K" else pair[::-1]
    return UNITS if operand.major == "K" else tile.column_bytes, atom


def _k_major_starts(tile: TileMatrix) -> list[int]:
    """Give where the K steps start, from the tile's first byte: 32 bytes on, then column by column.

    Without a swizzle a column is 16 bytes wide, and a step takes two.
    """
    steps = tile.columns * tile.row_bytes // K_STEP_BYTES
    places = (divmod(step * K_STEP_BYTES, tile.row_bytes) for step in range(steps))
    return [column * tile.column_bytes + byte for column, byte in places]


def _mn_major_starts(operand: Operand) -> list[int]:
    """Give where the K steps start, from the tile's first byte: whole rows on."""
    tile, k_elements = operand.tile, operand.k_elements
    return [first_row * tile.pitch_bytes for first_row in range(0, tile.rows, k_elements)]


def require_map(tensor_map: object) -> None:
    """Refuse what is no tensor map."""
    try:
        is_map = issubclass(type(tensor_map.arguments), EncodeArguments)  # type: ignore[attr-defined]
    except Exception:  # the attributes of a user's object may raise anything
        is_map = False
    if not is_map:
        found = f"tensor_map is of type {type_name(type(tensor_map))}"
        fix = "make one: make_tma_descriptor(x, ...)"
        raise refusal("tensor_map", found, "be a TensorMap", fix)
