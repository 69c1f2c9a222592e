"""The table `ROWS`: reasons why wgmma or tcgen05 cannot read a tile.

The field `fix` of a row proposes a call that works. The condition `holds` of a row is a single
expression, because `.packaging/generate.py` prints the condition in JavaScript for the explorer's
page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tma_dlpack.consumer.operand import (
    ADDRESS_END,
    INSTRUCTIONS,
    K_STEP_BYTES,
    OPERAND_TYPES,
    SPAN_BYTES,
    UNITS,
    Operand,
)
from tma_dlpack.geometry import SMEM_ALIGNMENT
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle
from tma_dlpack.tables.errors import Violation
from tma_dlpack.tables.rule import Rule, Text
from tma_dlpack.tables.targets import MAX_RANK
from tma_dlpack.tensor_map.map import TensorMap

#: Floating-point dtypes of 8 bits that tensor cores multiply. Maps of such tensors have the data
#: type UINT8.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_SWIZZLES = (TmaSwizzle.bytes32, TmaSwizzle.bytes64, TmaSwizzle.bytes128)
_MAX_SPAN_BYTES = 128


def find_violations(facts: Any, rows: Sequence[Rule], source: str = "") -> list[Violation]:
    """Return a violation for each row whose condition `holds` is false.

    A row is skipped if the condition of one of its prerequisites is false. `facts` is an `Operand`,
    or a `Load` of ldmatrix. `source`, if not empty, replaces the source of the rows.
    """
    failed = [row for row in rows if not row.holds(facts)]  # type: ignore[operator]
    if not failed:
        return []
    ids = {row.id for row in failed}
    return [
        Violation(
            row.id,
            _text(row.on, facts),
            _text(row.found, facts),
            row.limit or f"it must {_text(row.must, facts)}",
            _text(row.fix, facts),
            source or row.source,
        )
        for row in failed
        if ids.isdisjoint(row.prerequisites)
    ]


def _text(text: Text, facts: Any) -> str:
    return text if isinstance(text, str) else text(facts)


# --- Instruction, type, swizzle -----------------------------------------------------------------


def _has_instruction(o: Operand) -> bool:
    # Accept a host tensor's map for sm_90 with every instruction, because sm_90 is the default
    # target and the tile is the same on every GPU.
    return o.tensor_map.target.compute_capability[0] in o.instruction.capabilities or (
        o.tensor_map.target.is_sm_9x and not o.tensor_map.launchable
    )


def _fix_target(o: Operand) -> str:
    major = o.tensor_map.target.compute_capability[0]
    if major in (10, 11):
        return "pass instruction='tcgen05'"
    if major == 9:
        return "pass instruction='wgmma', or make the map with target='sm_100'"
    return "this GPU's tensor cores read registers: load them with ldmatrix (ldmatrix_addresses)"


def _is_operand_type(o: Operand) -> bool:
    return o.arguments.data_type in OPERAND_TYPES and (
        o.arguments.data_type != TensorMapDataType.UINT8
        or o.dtype in _FLOAT8
        or not o.dtype.startswith(("float", "int4", "uint4"))
    )


def _found_type(o: Operand) -> str:
    data_type = o.arguments.data_type
    if data_type in OPERAND_TYPES:
        return f"the tensor's type is {o.dtype}, which the map copies as {data_type.name}"
    return f"the map's data type is {data_type.name}"


def _fix_type(o: Operand) -> str:
    data_type = o.arguments.data_type
    if data_type.name.startswith("FLOAT32"):
        return (
            "make the map with data_type='TFLOAT32': its copies round to tf32, where the tensor "
            "core would cut off the low 13 bits"
        )
    if data_type.name == "UINT16":
        return "make the map with data_type='BFLOAT16' or 'FLOAT16', whichever the values are"
    if data_type in OPERAND_TYPES:
        return "convert the tensor to float8_e4m3fn or float8_e5m2"
    return (
        "convert the tensor to float16, bfloat16, float8_e4m3fn or float8_e5m2, to float32 with "
        "data_type='TFLOAT32', or to int8 with data_type='UINT8'"
    )


def _is_turned(o: Operand) -> bool:
    # A "turned" operand is an MN-major operand of a 32-bit type. tcgen05 reads such operands only
    # with the swizzle bytes128_atom_32B.
    return o.instruction.name == "tcgen05" and o.major == "MN" and o.bits == 32


def _swizzle_is_read(o: Operand) -> bool:
    # "Turned" operands need bytes128_atom_32B, and no other operand may have this swizzle.
    return o.swizzle in o.instruction.layout_types and _is_turned(o) == (
        o.swizzle == TmaSwizzle.bytes128_atom_32B
    )


def _fix_swizzle(o: Operand) -> str:
    swizzle = "bytes128_atom_32B" if _is_turned(o) else "bytes128"
    return f"make the map with swizzle={swizzle!r} and a box row of 128 bytes"


# --- The tile: a matrix, its width, its rows, its address ---------------------------------------


def _found_rank(o: Operand) -> str:
    box = o.tensor_map.box_sizes
    extents = sum(n > 1 for n in box)
    many = f"{extents} dimensions" if extents > 1 else "one dimension"
    return f"the box {box} has {many}"


def _fix_rank(o: Operand) -> str:
    box = o.tensor_map.box_sizes
    if sum(n > 1 for n in box) < 2:
        return "make the map of a matrix, x.reshape(rows, columns), with a box of rows and columns"
    return f"copy one matrix at a time, box_sizes={(*(1 for _ in box[:-2]), *box[-2:])}"


# Without a swizzle, a span must be 16 bytes. If such a tile is K-major, it must have an even number
# of columns of spans, because a K step has 32 bytes. With a swizzle, a row of a K-major tile must
# consist of whole K steps; an MN-major tile must have one column of spans, or spans of the
# swizzle's size.
def _width_is_read(o: Operand) -> bool:
    return (
        o.tile.row_bytes == SPAN_BYTES[o.swizzle] and (o.major == "MN" or o.tile.columns % 2 == 0)
        if o.swizzle == TmaSwizzle.none
        else o.tile.row_bytes % K_STEP_BYTES == 0
        if o.major == "K"
        else o.tile.columns == 1 or o.tile.row_bytes == SPAN_BYTES[o.swizzle]
    )


def _found_width(o: Operand) -> str:
    tile = o.tile
    row = f"a row of the box is {tile.row_bytes} bytes"
    if tile.columns > 1:
        row = f"the tile has {tile.columns} columns of spans of {tile.row_bytes} bytes each"
    return f"{row}, with swizzle {o.swizzle.name}"


def _must_width(o: Operand) -> str:
    if o.swizzle is TmaSwizzle.none:
        wide = "an even number of columns of 16 bytes" if o.major == "K" else "columns of 16 bytes"
        return f"be {wide}: without a swizzle an atom is 8 rows of 16 bytes"
    if o.major == "K":
        return f"be a multiple of {K_STEP_BYTES} bytes, the K of one instruction"
    span = SPAN_BYTES[o.swizzle]
    return f"be {span} bytes, the span of the swizzle, if there are several columns of spans"


def _fix_width(o: Operand) -> str:
    """Propose the swizzle whose span fits a row, or `split_inner` for rows of over 128 bytes."""
    tile = o.tile
    step = K_STEP_BYTES if o.major == "K" else UNITS
    row_bytes = tile.columns * tile.row_bytes
    whole = row_bytes // _MAX_SPAN_BYTES * _MAX_SPAN_BYTES
    if whole > _MAX_SPAN_BYTES and _can_split(o, _MAX_SPAN_BYTES):
        fix = _splitting(o, tile.rows, whole, TmaSwizzle.bytes128)
    else:
        whole = max(step, min(row_bytes, _MAX_SPAN_BYTES) // step * step)
        swizzle = next(s for s in _SWIZZLES if SPAN_BYTES[s] >= whole)
        fix = _boxing(o, tile.rows, whole, f", swizzle={swizzle.name!r}")
    divides = tile.columns == 1 and row_bytes % step == 0
    if o.swizzle is TmaSwizzle.none and divides and _can_split(o, UNITS):
        fix += "; or, to do without a swizzle, with split_inner=True, swizzle='none'"
    return fix


def _fix_rows(o: Operand) -> str:
    step, tile = o.rows_step, o.tile
    rows = max(step, tile.rows // step * step)
    if tile.columns == 1:
        return _boxing(o, rows, tile.row_bytes, "")
    return _splitting(o, rows, tile.columns * tile.row_bytes, o.swizzle)


def _can_split(o: Operand, span_bytes: int) -> bool:
    """Return whether `split_inner` can split the tensor's rows into spans of `span_bytes`."""
    args = o.arguments
    whole = args.row_bytes % span_bytes == 0 and args.rank < MAX_RANK
    return args.kind == "tiled" and (whole or o.tile.columns > 1)


def _boxing(o: Operand, rows: int, row_bytes: int, options: str) -> str:
    """Propose a box of `rows` rows; each row is one span of `row_bytes` bytes."""
    row = row_bytes * 8 // o.bits
    if o.arguments.kind != "tiled":
        return f"make the map with channels_per_pixel={row}, pixels_per_column={rows}{options}"
    if o.tensor_map.split_inner:
        return _making(o, rows, row, f", split_inner=False{options}")
    if o.tile.columns > 1:
        return f"make the map of the matrix itself, with box_sizes=({rows}, {row}){options}"
    return _making(o, rows, row, options)


def _splitting(o: Operand, rows: int, row_bytes: int, swizzle: TmaSwizzle) -> str:
    row, options = row_bytes * 8 // o.bits, f", split_inner=True, swizzle={swizzle.name!r}"
    if o.tile.columns == 1 or o.tensor_map.split_inner:
        return _making(o, rows, row, options)
    return f"make the map with box_sizes={(rows, row)}{options}"


def _making(o: Operand, rows: int, row: int, options: str) -> str:
    """Propose a box of the tensor's rank with `rows` rows of `row` elements.

    Add rules='driver' if the box is larger than the tensor.
    """
    shape, given = _tile_of_tensor(o.tensor_map)
    if len(given) < 2:
        return (
            f"make the map of a matrix, x.reshape(rows, columns), with a box of {rows} rows or a "
            "multiple of them"
        )
    # Choose the axis of the rows. Prefer an axis whose extent in the box is greater than 1, then an
    # axis whose extent in the tensor is greater than 1. Of several such axes, choose the last.
    at = max(range(len(given) - 1), key=lambda i: (given[i] > 1, shape[i] > 1, i))
    box = (*(rows if i == at else 1 for i in range(len(given) - 1)), row)
    if any(n > extent for n, extent in zip(box, shape, strict=True)):
        options += ", rules='driver'"
    return f"make the map with box_sizes={box}{options}"


def _tile_of_tensor(tensor_map: TensorMap) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the extents and the box, without the dimensions that ragged and split_inner added."""
    shape, box = tensor_map.shape, tensor_map.box_sizes
    if tensor_map.ragged is not None:
        shape, box = shape[2:], box[2:]
    if tensor_map.split_inner:
        shape, box = (*shape[1:-1], shape[0] * shape[-1]), (*box[1:-1], box[0] * box[-1])
    return shape, box


def _address_is_read(o: Operand) -> bool:
    return o.smem_address % o.address_step == 0 and (
        0 <= o.smem_address <= ADDRESS_END - o.smem_bytes
    )


def _must_address(o: Operand) -> str:
    step = o.address_step
    why = "where a TMA copy may write"
    if step > SMEM_ALIGNMENT:
        why = "where the swizzle pattern starts; other addresses have not been measured"
    return f"be a multiple of {step}, {why}, and leave room for the tile below {ADDRESS_END:#x}"


def _fix_address(o: Operand) -> str:
    step = o.address_step
    nearest = max(0, min(o.smem_address, ADDRESS_END - o.smem_bytes)) // step * step
    return f"align the tile to {step} bytes, for example smem_address={nearest:#x}"


# Prerequisites of the rules about the width and rows of the tile. If one of them fails, the tile is
# not a matrix of operand elements.
_IS_MATRIX = ("MATRIX_TYPE", "MATRIX_INTERLEAVE", "MATRIX_MAJOR", "MATRIX_SWIZZLE", "MATRIX_RANK")

_row = partial(
    Rule, group="operand", source="; ".join(each.source for each in INSTRUCTIONS.values())
)

ROWS: tuple[Rule, ...] = (
    _row(
        id="MATRIX_TARGET",
        on="instruction",
        holds=_has_instruction,
        found=lambda o: f"the map is for {o.tensor_map.target}, which has no {o.instruction.name}",
        must="be an instruction of the map's GPU",
        fix=_fix_target,
    ),
    _row(
        id="MATRIX_TYPE",
        on="tensor_map",
        holds=_is_operand_type,
        found=_found_type,
        must="be FLOAT16, BFLOAT16, TFLOAT32, or UINT8 for e4m3, e5m2, s8 and u8",
        fix=_fix_type,
    ),
    _row(
        id="MATRIX_MAJOR",
        on="major",
        holds=lambda o: o.major == "K" or o.bits in o.instruction.mn_bits,
        found=lambda o: f"major is MN with elements of {o.bits} bits",
        must="be K: only 16-bit types have a wgmma that transposes",
        fix="transpose the tensor in global memory, so that K is its last dimension, and pass "
        "major='K'",
        prerequisites=("MATRIX_TYPE",),
    ),
    _row(
        id="MATRIX_INTERLEAVE",
        on="tensor_map",
        holds=lambda o: o.arguments.interleave == TmaInterleaveLayout.none,
        found=lambda o: f"interleave_layout is {o.arguments.interleave.name}",
        must="be none: an interleaved tile is not a matrix of rows",
        fix="make the map with interleave_layout='none' of a tensor in the order N, H, W, C",
    ),
    _row(
        id="MATRIX_FILL",
        on="tensor_map",
        holds=lambda o: o.arguments.oob_fill != TmaOobFill.nan,
        found="oobfill is nan",
        must="be none: one out-of-bounds NaN makes whole rows of the product NaN",
        fix="make the map with oobfill='none', which fills with zeros",
    ),
    _row(
        id="MATRIX_SWIZZLE",
        on="tensor_map",
        holds=_swizzle_is_read,
        found=lambda o: (
            f"swizzle is {o.swizzle.name}, {o.major}-major with elements of {o.bits} bits"
        ),
        must=(
            "be bytes128_atom_32B for 32-bit elements that are MN-major, and none, bytes32, "
            "bytes64 or bytes128 for all others"
        ),
        fix=_fix_swizzle,
        prerequisites=("MATRIX_TYPE", "MATRIX_MAJOR"),
    ),
    _row(
        id="MATRIX_RANK",
        on="tensor_map",
        holds=lambda o: o.tile.rows > 0,
        found=_found_rank,
        must="be a matrix: two extents over 1, or three in a map made with split_inner",
        fix=_fix_rank,
        prerequisites=("MATRIX_TYPE", "MATRIX_INTERLEAVE"),
    ),
    _row(
        id="MATRIX_WIDTH",
        asks="have rows that one descriptor reads: whole spans, or 16 bytes without swizzle",
        on="tensor_map",
        holds=_width_is_read,
        found=_found_width,
        must=_must_width,
        fix=_fix_width,
        prerequisites=_IS_MATRIX,
    ),
    _row(
        id="MATRIX_ROWS",
        asks="have a multiple of 8 rows if K-major, else a multiple of the K of one instruction",
        on="tensor_map",
        holds=lambda o: o.tile.rows % o.rows_step == 0,
        found=lambda o: f"the tile has {o.tile.rows} rows ({'M or N' if o.major == 'K' else 'K'})",
        must=lambda o: (
            "be a multiple of 8, the rows of an atom"
            if o.major == "K"
            else f"be a multiple of {o.rows_step}, the K of one instruction"
        ),
        fix=_fix_rows,
        prerequisites=_IS_MATRIX,
    ),
    _row(
        id="MATRIX_ADDRESS",
        asks="be aligned for the swizzle, with the tile within reach",
        on="smem_address",
        holds=_address_is_read,
        found=lambda o: f"smem_address is {o.smem_address:#x}",
        must=_must_address,
        fix=_fix_address,
    ),
)
