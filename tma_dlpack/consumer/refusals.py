"""Why a tile is no operand of an instruction: one row per reason, with a call that works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tma_dlpack.consumer.instructions import (
    K_STEP_BYTES,
    OPERAND_TYPES,
    SPAN_BYTES,
    UNITS,
    Instruction,
)
from tma_dlpack.consumer.tile_matrix import TileMatrix, tile_matrix
from tma_dlpack.geometry import SWIZZLES
from tma_dlpack.types.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle
from tma_dlpack.types.errors import Violation

if TYPE_CHECKING:
    from tma_dlpack.tensor_map.map import TensorMap

__all__ = ["Operand", "find_violations"]

ADDRESS_END = 1 << 18  # a descriptor's address has 14 bits, in units of 16 bytes
SMEM_ALIGNMENT = 128  # of the destination of a TMA copy

#: Of the float types that a UINT8 map copies, those that tensor cores read as such.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
MAX_SPAN_BYTES = 128
_SWIZZLES = (TmaSwizzle.bytes32, TmaSwizzle.bytes64, TmaSwizzle.bytes128)


@dataclass(frozen=True, slots=True)
class Operand:
    """What was asked of `matrix_descriptor`."""

    tensor_map: TensorMap
    instruction: Instruction
    major: str
    smem_address: int

    @property
    def matrix(self) -> TileMatrix | None:
        """The tile as a matrix."""
        return tile_matrix(self.tensor_map)

    @property
    def tile(self) -> TileMatrix:
        """The tile as a matrix, where it is one."""
        found = self.matrix
        assert found is not None  # rows that ask for it need MATRIX_RANK
        return found

    @property
    def swizzle(self) -> TmaSwizzle:
        """The map's swizzle."""
        return self.tensor_map.swizzle

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.tensor_map.arguments.type_row.element_bits

    @property
    def k_elements(self) -> int:
        """Elements of K in one instruction."""
        return K_STEP_BYTES * 8 // self.bits

    @property
    def dtype(self) -> str:
        """Name of the tensor's own type, such as float8_e4m3fn; empty where there is no tensor."""
        return str(getattr(self.tensor_map.tensor, "dtype", "")).rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    on: str
    holds: Callable[[Operand], bool]
    found: Callable[[Operand], str]
    must: Callable[[Operand], str]
    fix: Callable[[Operand], str]
    needs: tuple[str, ...] = ()


def find_violations(operand: Operand) -> tuple[Violation, ...]:
    """Give every reason why an instruction cannot read a tile; what follows another is skipped."""
    broken: list[Violation] = []
    unmet: set[str] = set()
    for row in _ROWS:
        if unmet.intersection(row.needs):
            unmet.add(row.id)
        elif not row.holds(operand):
            unmet.add(row.id)
            limit = f"it must {row.must(operand)}"
            violation = Violation(
                row.id, row.on, row.found(operand), limit, row.fix(operand), _source(operand)
            )
            broken.append(violation)
    return tuple(broken)


def _source(c: Operand) -> str:
    return c.instruction.source


# --- The questions ------------------------------------------------------------------------------


def _has_instruction(c: Operand) -> bool:
    target = c.tensor_map.target
    if target.compute_capability[0] in c.instruction.capabilities:
        return True
    # A host tensor is described for sm_90 where nothing else is said; its tile is the same.
    return target.is_sm_9x and not c.tensor_map.launchable


def _is_operand_type(c: Operand) -> bool:
    if c.tensor_map.data_type not in OPERAND_TYPES:
        return False
    if c.tensor_map.data_type is not TensorMapDataType.UINT8:
        return True
    return c.dtype in _FLOAT8 or not c.dtype.startswith(("float", "int4", "uint4"))


def _major_is_read(c: Operand) -> bool:
    return c.major == "K" or c.bits in c.instruction.mn_bits


def _swizzle_is_read(c: Operand) -> bool:
    if c.swizzle not in c.instruction.layout_types:
        return False
    if c.instruction.name != "tcgen05":
        return True
    # 32-bit types turned, and they alone, take atoms of 32 bytes
    turned = c.major == "MN" and c.bits == 32
    return turned is (c.swizzle is TmaSwizzle.bytes128_atom_32B)


def _address_step(c: Operand) -> int:
    if c.instruction.pattern_aligned:
        return max(SMEM_ALIGNMENT, SWIZZLES[c.swizzle].repeat_bytes)
    return SMEM_ALIGNMENT


def _address_is_read(c: Operand) -> bool:
    address = c.smem_address
    last = ADDRESS_END - c.tensor_map.smem_bytes
    return address % _address_step(c) == 0 and 0 <= address <= last


def _width_is_read(c: Operand) -> bool:
    tile, span = c.tile, SPAN_BYTES[c.swizzle]
    if c.swizzle is TmaSwizzle.none:
        whole = tile.row_bytes == span
        return whole and (c.major == "MN" or tile.columns % 2 == 0)
    if c.major == "K":
        return tile.row_bytes % K_STEP_BYTES == 0
    return tile.columns == 1 or tile.row_bytes == span


def _rows_step(c: Operand) -> int:
    return 8 if c.major == "K" else c.k_elements


# --- The answers --------------------------------------------------------------------------------


def _found_type(c: Operand) -> str:
    data_type = c.tensor_map.data_type.name
    if c.tensor_map.data_type in OPERAND_TYPES:
        return f"the tensor's type is {c.dtype}, which the map copies as {data_type}"
    return f"the map's data type is {data_type}"


def _fix_type(c: Operand) -> str:
    name = c.tensor_map.data_type.name
    if name.startswith("FLOAT32"):
        return (
            "make the map with data_type='TFLOAT32': its copies round to tf32, where the tensor "
            "core would cut off the low 13 bits"
        )
    if name == "UINT16":
        return "make the map with data_type='BFLOAT16' or 'FLOAT16', whichever the words are"
    if c.tensor_map.data_type in OPERAND_TYPES:
        return "convert the tensor to float8_e4m3fn or float8_e5m2"
    return "convert the tensor to float16, bfloat16, float32, float8_e4m3fn, float8_e5m2 or int8"


def _fix_target(c: Operand) -> str:
    major = c.tensor_map.target.compute_capability[0]
    if major in (10, 11):
        return "pass instruction='tcgen05'"
    if major == 9:
        return "pass instruction='wgmma', or make the map with target='sm_100'"
    return "this GPU's tensor cores read registers: load those with ldmatrix_addresses"


def _fix_major(c: Operand) -> str:
    return (
        "transpose the tensor in global memory, so that K is its last dimension, and pass major='K'"
    )


def _fix_swizzle(c: Operand) -> str:
    if c.instruction.name == "tcgen05" and c.major == "MN" and c.bits == 32:
        return "make the map with swizzle='bytes128_atom_32B' and a box row of 128 bytes"
    return "make the map with swizzle='bytes128' and a box row of 128 bytes"


def _found_rank(c: Operand) -> str:
    box = c.tensor_map.box_sizes
    extents = [n for n in box if n > 1]
    if len(extents) < 2:
        return f"the box {box} has one dimension"
    return f"the box {box} has {len(extents)} dimensions"


def _fix_rank(c: Operand) -> str:
    box = c.tensor_map.box_sizes
    if len([n for n in box if n > 1]) < 2:
        return "make the map of a matrix, x.reshape(rows, columns), with a box of rows and columns"
    two = (*(1 for _ in box[:-2]), *box[-2:])
    return f"copy one matrix at a time, box_sizes={two}"


def _found_width(c: Operand) -> str:
    tile = c.tile
    row = f"a row of the box is {tile.row_bytes} bytes"
    if tile.columns > 1:
        row = f"{tile.columns} spans side by side have {tile.row_bytes} bytes each"
    return f"{row}, with swizzle {c.swizzle.name}"


def _must_width(c: Operand) -> str:
    span = SPAN_BYTES[c.swizzle]
    if c.swizzle is TmaSwizzle.none:
        wide = "an even number of columns of 16 bytes" if c.major == "K" else "columns of 16 bytes"
        return f"be {wide}: without a swizzle an atom is 8 rows of 16 bytes"
    if c.major == "K":
        return f"be a multiple of {K_STEP_BYTES} bytes, the K of one instruction"
    return f"be {span} bytes, the span of the swizzle, where spans lie side by side"


def _fix_width(c: Operand) -> str:
    """Name a swizzle that holds the row, or `split_inner` for a row that none holds."""
    tile, args = c.tile, c.tensor_map.arguments
    step = K_STEP_BYTES if c.major == "K" else UNITS
    row_bytes = tile.columns * tile.row_bytes
    if row_bytes > MAX_SPAN_BYTES:
        whole = row_bytes // MAX_SPAN_BYTES * MAX_SPAN_BYTES
        divides = args.row_bytes % MAX_SPAN_BYTES == 0 or tile.columns > 1
        if whole > MAX_SPAN_BYTES and divides and args.kind == "tiled":
            return _splitting(c, tile.rows, whole, TmaSwizzle.bytes128)
        row_bytes = MAX_SPAN_BYTES
    whole = max(step, row_bytes // step * step)
    swizzle = next(s for s in _SWIZZLES if SPAN_BYTES[s] >= whole)
    return _boxing(c, tile.rows, whole, f", swizzle={swizzle.name!r}")


def _fix_rows(c: Operand) -> str:
    step, tile = _rows_step(c), c.tile
    rows = max(step, tile.rows // step * step)
    if tile.columns == 1:
        return _boxing(c, rows, tile.row_bytes, "")
    return _splitting(c, rows, tile.columns * tile.row_bytes, c.swizzle)


def _boxing(c: Operand, rows: int, row_bytes: int, options: str) -> str:
    """Name a box of one span; larger than the tensor, it is the driver's rules that allow it."""
    row = row_bytes * 8 // c.bits
    if c.tensor_map.kind != "tiled":
        return f"make the map with channels_per_pixel={row}, pixels_per_column={rows}{options}"
    if c.tile.columns > 1:
        return f"make the map of the matrix itself, with box_sizes=({rows}, {row}){options}"
    box = _box(c, rows, row)
    if any(n > extent for n, extent in zip(box, c.tensor_map.shape, strict=True)):
        options += ", rules='driver'"
    return f"make the map with box_sizes={box}{options}"


def _splitting(c: Operand, rows: int, row_bytes: int, swizzle: TmaSwizzle) -> str:
    row = row_bytes * 8 // c.bits
    box = _box(c, rows, row) if c.tile.columns == 1 else (rows, row)
    return f"make the map with **tma_dlpack.split_inner(x, {box}, swizzle={swizzle.name!r})"


def _box(c: Operand, rows: int, row: int) -> tuple[int, ...]:
    """Give a box of the map's rank: other dimensions take one element."""
    given = c.tensor_map.box_sizes
    at = max((i for i, n in enumerate(given[:-1]) if n > 1), default=len(given) - 2)
    box = [1] * len(given)
    box[at], box[-1] = rows, row
    return tuple(box)


def _fix_address(c: Operand) -> str:
    step = _address_step(c)
    aligned = max(0, min(c.smem_address, ADDRESS_END - c.tensor_map.smem_bytes)) // step * step
    return f"align the tile to {step} bytes, such as smem_address={aligned:#x}"


def _must_address(c: Operand) -> str:
    step = _address_step(c)
    why = "where a TMA copy may write"
    if step > SMEM_ALIGNMENT:
        why = "where the swizzle's pattern starts; the base offset of others was never measured"
    return f"be a multiple of {step}, {why}, and leave room for the tile below {ADDRESS_END:#x}"


_IS_MATRIX = ("MATRIX_TYPE", "MATRIX_INTERLEAVE", "MATRIX_MAJOR", "MATRIX_SWIZZLE", "MATRIX_RANK")

_ROWS: tuple[_Row, ...] = (
    _Row(
        "MATRIX_TARGET",
        "instruction",
        _has_instruction,
        lambda c: f"the map is for {c.tensor_map.target}, which has no {c.instruction.name}",
        lambda c: "be an instruction of the map's GPU",
        _fix_target,
    ),
    _Row(
        "MATRIX_TYPE",
        "tensor_map",
        _is_operand_type,
        _found_type,
        lambda c: "be FLOAT16, BFLOAT16, TFLOAT32, or UINT8 for e4m3, e5m2, s8 and u8",
        _fix_type,
    ),
    _Row(
        "MATRIX_MAJOR",
        "major",
        _major_is_read,
        lambda c: f"major is MN with elements of {c.bits} bits",
        lambda c: "be K: only 16-bit types have a wgmma that transposes",
        _fix_major,
        needs=("MATRIX_TYPE",),
    ),
    _Row(
        "MATRIX_INTERLEAVE",
        "tensor_map",
        lambda c: c.tensor_map.interleave is TmaInterleaveLayout.none,
        lambda c: f"interleave_layout is {c.tensor_map.interleave.name}",
        lambda c: "be none: an interleaved tile is no matrix of rows",
        lambda c: "make the map with interleave_layout='none', of the tensor as N, H, W, C",
    ),
    _Row(
        "MATRIX_FILL",
        "tensor_map",
        lambda c: c.tensor_map.oob_fill is not TmaOobFill.nan,
        lambda c: "oobfill is nan",
        lambda c: "be none: NaN out of bounds, times zero, makes whole rows of the product NaN",
        lambda c: "make the map with oobfill='none', which fills with zeros",
    ),
    _Row(
        "MATRIX_SWIZZLE",
        "tensor_map",
        _swizzle_is_read,
        lambda c: f"swizzle is {c.swizzle.name}, {c.major}-major with elements of {c.bits} bits",
        lambda c: (
            "be bytes128_atom_32B for 32-bit elements that are MN-major, and none, bytes32, "
            "bytes64 or bytes128 for all others"
        ),
        _fix_swizzle,
        needs=("MATRIX_TYPE", "MATRIX_MAJOR"),
    ),
    _Row(
        "MATRIX_RANK",
        "tensor_map",
        lambda c: c.matrix is not None,
        _found_rank,
        lambda c: "be a matrix: two extents over 1, or three where split_inner made the map",
        _fix_rank,
        needs=("MATRIX_TYPE", "MATRIX_INTERLEAVE"),
    ),
    _Row(
        "MATRIX_WIDTH",
        "tensor_map",
        _width_is_read,
        _found_width,
        _must_width,
        _fix_width,
        needs=_IS_MATRIX,
    ),
    _Row(
        "MATRIX_ROWS",
        "tensor_map",
        lambda c: c.tile.rows % _rows_step(c) == 0,
        lambda c: f"the tile has {c.tile.rows} rows, {'M or N' if c.major == 'K' else 'K'}",
        lambda c: (
            "be a multiple of 8, the rows of an atom"
            if c.major == "K"
            else f"be a multiple of {c.k_elements}, the K of one instruction"
        ),
        _fix_rows,
        needs=_IS_MATRIX,
    ),
    _Row(
        "MATRIX_ADDRESS",
        "smem_address",
        _address_is_read,
        lambda c: f"smem_address is {c.smem_address:#x}",
        _must_address,
        _fix_address,
    ),
)
