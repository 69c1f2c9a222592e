"""The texts of `matrix_descriptor`'s refusals, and a call that works instead."""

from __future__ import annotations

from tma_dlpack.consumer.instructions import K_STEP_BYTES, OPERAND_TYPES, SPAN_BYTES, UNITS
from tma_dlpack.consumer.operand import ADDRESS_END, Operand
from tma_dlpack.geometry import SMEM_ALIGNMENT
from tma_dlpack.tables.enums import TmaSwizzle

MAX_SPAN_BYTES = 128
_SWIZZLES = (TmaSwizzle.bytes32, TmaSwizzle.bytes64, TmaSwizzle.bytes128)


def found_type(o: Operand) -> str:
    """Name the tensor's type, or the map's if tensor cores do not multiply it."""
    data_type = o.tensor_map.data_type.name
    if o.tensor_map.data_type in OPERAND_TYPES:
        return f"the tensor's type is {o.dtype}, which the map copies as {data_type}"
    return f"the map's data type is {data_type}"


def fix_type(o: Operand) -> str:
    """Name a map type for the same bytes, or the types to convert to."""
    name = o.tensor_map.data_type.name
    if name.startswith("FLOAT32"):
        return (
            "make the map with data_type='TFLOAT32': its copies round to tf32, where the tensor "
            "core would cut off the low 13 bits"
        )
    if name == "UINT16":
        return "make the map with data_type='BFLOAT16' or 'FLOAT16', whichever the values are"
    if o.tensor_map.data_type in OPERAND_TYPES:
        return "convert the tensor to float8_e4m3fn or float8_e5m2"
    return (
        "convert the tensor to float16, bfloat16, float8_e4m3fn or float8_e5m2, to float32 with "
        "data_type='TFLOAT32', or to int8 with data_type='UINT8'"
    )


def fix_target(o: Operand) -> str:
    """Name the instruction that the GPU has."""
    major = o.tensor_map.target.compute_capability[0]
    if major in (10, 11):
        return "pass instruction='tcgen05'"
    if major == 9:
        return "pass instruction='wgmma', or make the map with target='sm_100'"
    return "this GPU's tensor cores read registers: load them with ldmatrix (ldmatrix_addresses)"


def fix_swizzle(o: Operand) -> str:
    """Name the swizzle that the instruction reads."""
    if o.instruction.name == "tcgen05" and o.major == "MN" and o.bits == 32:
        return "make the map with swizzle='bytes128_atom_32B' and a box row of 128 bytes"
    return "make the map with swizzle='bytes128' and a box row of 128 bytes"


def found_rank(o: Operand) -> str:
    """Count the dimensions of the box, without those of extent 1."""
    box = o.tensor_map.box_sizes
    extents = [n for n in box if n > 1]
    if len(extents) < 2:
        return f"the box {box} has one dimension"
    return f"the box {box} has {len(extents)} dimensions"


def fix_rank(o: Operand) -> str:
    """Name a box of one matrix."""
    box = o.tensor_map.box_sizes
    if len([n for n in box if n > 1]) < 2:
        return "make the map of a matrix, x.reshape(rows, columns), with a box of rows and columns"
    two = (*(1 for _ in box[:-2]), *box[-2:])
    return f"copy one matrix at a time, box_sizes={two}"


def found_width(o: Operand) -> str:
    """Give the bytes of a row, and the swizzle."""
    tile = o.tile
    row = f"a row of the box is {tile.row_bytes} bytes"
    if tile.columns > 1:
        row = f"the tile has {tile.columns} columns of spans of {tile.row_bytes} bytes each"
    return f"{row}, with swizzle {o.swizzle.name}"


def must_width(o: Operand) -> str:
    """Give the width that a row must have, by swizzle and major."""
    span = SPAN_BYTES[o.swizzle]
    if o.swizzle is TmaSwizzle.none:
        wide = "an even number of columns of 16 bytes" if o.major == "K" else "columns of 16 bytes"
        return f"be {wide}: without a swizzle an atom is 8 rows of 16 bytes"
    if o.major == "K":
        return f"be a multiple of {K_STEP_BYTES} bytes, the K of one instruction"
    return f"be {span} bytes, the span of the swizzle, if there are several columns of spans"


def fix_width(o: Operand) -> str:
    """Name a swizzle that is wide enough for the row, or `split_inner` if none is."""
    tile, args = o.tile, o.tensor_map.arguments
    step = K_STEP_BYTES if o.major == "K" else UNITS
    row_bytes = tile.columns * tile.row_bytes
    if row_bytes > MAX_SPAN_BYTES:
        whole = row_bytes // MAX_SPAN_BYTES * MAX_SPAN_BYTES
        divides = args.row_bytes % MAX_SPAN_BYTES == 0 or tile.columns > 1
        if whole > MAX_SPAN_BYTES and divides and args.kind == "tiled":
            return _splitting(o, tile.rows, whole, TmaSwizzle.bytes128)
        row_bytes = MAX_SPAN_BYTES
    whole = max(step, row_bytes // step * step)
    swizzle = next(s for s in _SWIZZLES if SPAN_BYTES[s] >= whole)
    return _boxing(o, tile.rows, whole, f", swizzle={swizzle.name!r}")


def fix_rows(o: Operand) -> str:
    """Name a box whose rows are whole atoms, or whole K steps."""
    step, tile = o.rows_step, o.tile
    rows = max(step, tile.rows // step * step)
    if tile.columns == 1:
        return _boxing(o, rows, tile.row_bytes, "")
    return _splitting(o, rows, tile.columns * tile.row_bytes, o.swizzle)


def _boxing(o: Operand, rows: int, row_bytes: int, options: str) -> str:
    """Name a box of one span; if it is larger than the tensor, add rules='driver'."""
    row = row_bytes * 8 // o.bits
    if o.tensor_map.kind != "tiled":
        return f"make the map with channels_per_pixel={row}, pixels_per_column={rows}{options}"
    if o.tile.columns > 1:
        return f"make the map of the matrix itself, with box_sizes=({rows}, {row}){options}"
    box = _box(o, rows, row)
    if any(n > extent for n, extent in zip(box, o.tensor_map.shape, strict=True)):
        options += ", rules='driver'"
    return f"make the map with box_sizes={box}{options}"


def _splitting(o: Operand, rows: int, row_bytes: int, swizzle: TmaSwizzle) -> str:
    row = row_bytes * 8 // o.bits
    box = _box(o, rows, row) if o.tile.columns == 1 else (rows, row)
    return f"make the map with **tma_dlpack.split_inner(x, {box}, swizzle={swizzle.name!r})"


def _box(o: Operand, rows: int, row: int) -> tuple[int, ...]:
    """Give a box of the map's rank: other dimensions take one element."""
    given = o.tensor_map.box_sizes
    at = max((i for i, n in enumerate(given[:-1]) if n > 1), default=len(given) - 2)
    box = [1] * len(given)
    box[at], box[-1] = rows, row
    return tuple(box)


def fix_address(o: Operand) -> str:
    """Name the nearest address below at which the tile may start."""
    step = o.address_step
    aligned = max(0, min(o.smem_address, ADDRESS_END - o.tensor_map.smem_bytes)) // step * step
    return f"align the tile to {step} bytes, for example smem_address={aligned:#x}"


def must_address(o: Operand) -> str:
    """Give the alignment of the tile, and the reason for it."""
    step = o.address_step
    why = "where a TMA copy may write"
    if step > SMEM_ALIGNMENT:
        why = "where the swizzle pattern starts; other addresses have not been measured"
    return f"be a multiple of {step}, {why}, and leave room for the tile below {ADDRESS_END:#x}"
