"""Why an instruction cannot read a tile: one row per reason, with a call that works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tma_dlpack.consumer import fixes
from tma_dlpack.consumer.instructions import K_STEP_BYTES, OPERAND_TYPES, SPAN_BYTES
from tma_dlpack.consumer.operand import ADDRESS_END, Operand
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle
from tma_dlpack.tables.errors import Violation

#: The float types of tensors with UINT8 maps that tensor cores multiply.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")


#: A text, or a function that gives it.
_Text = str | Callable[[Operand], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    id: str
    on: str
    holds: Callable[[Operand], bool]
    found: _Text
    must: _Text
    fix: _Text
    needs: tuple[str, ...] = ()


def find_violations(operand: Operand) -> tuple[Violation, ...]:
    """Give every reason why an instruction cannot read a tile; skip rows whose `needs` failed."""
    broken: list[Violation] = []
    unmet: set[str] = set()
    for row in _ROWS:
        if unmet.intersection(row.needs):
            unmet.add(row.id)
        elif not row.holds(operand):
            unmet.add(row.id)
            violation = Violation(
                rule=row.id,
                argument=row.on,
                found=_text(row.found, operand),
                limit=f"it must {_text(row.must, operand)}",
                fix=_text(row.fix, operand),
                source=operand.instruction.source,
            )
            broken.append(violation)
    return tuple(broken)


def _text(text: _Text, operand: Operand) -> str:
    return text if isinstance(text, str) else text(operand)


# --- The conditions -----------------------------------------------------------------------------


def _has_instruction(o: Operand) -> bool:
    target = o.tensor_map.target
    if target.compute_capability[0] in o.instruction.capabilities:
        return True
    # A host tensor without `target=` gets sm_90, but its tile is the same on every GPU.
    return target.is_sm_9x and not o.tensor_map.launchable


def _is_operand_type(o: Operand) -> bool:
    if o.tensor_map.data_type not in OPERAND_TYPES:
        return False
    if o.tensor_map.data_type is not TensorMapDataType.UINT8:
        return True
    return o.dtype in _FLOAT8 or not o.dtype.startswith(("float", "int4", "uint4"))


def _major_is_read(o: Operand) -> bool:
    return o.major == "K" or o.bits in o.instruction.mn_bits


def _swizzle_is_read(o: Operand) -> bool:
    if o.swizzle not in o.instruction.layout_types:
        return False
    if o.instruction.name != "tcgen05":
        return True
    # only MN-major operands of 32-bit types use atoms of 32 bytes, and they use nothing else
    turned = o.major == "MN" and o.bits == 32
    return turned is (o.swizzle is TmaSwizzle.bytes128_atom_32B)


def _address_is_read(o: Operand) -> bool:
    address = o.smem_address
    last = ADDRESS_END - o.tensor_map.smem_bytes
    return address % o.address_step == 0 and 0 <= address <= last


def _width_is_read(o: Operand) -> bool:
    tile, span = o.tile, SPAN_BYTES[o.swizzle]
    if o.swizzle is TmaSwizzle.none:
        whole = tile.row_bytes == span
        return whole and (o.major == "MN" or tile.columns % 2 == 0)
    if o.major == "K":
        return tile.row_bytes % K_STEP_BYTES == 0
    return tile.columns == 1 or tile.row_bytes == span


_IS_MATRIX = ("MATRIX_TYPE", "MATRIX_INTERLEAVE", "MATRIX_MAJOR", "MATRIX_SWIZZLE", "MATRIX_RANK")

_ROWS: tuple[_Row, ...] = (
    _Row(
        id="MATRIX_TARGET",
        on="instruction",
        holds=_has_instruction,
        found=lambda o: f"the map is for {o.tensor_map.target}, which has no {o.instruction.name}",
        must="be an instruction of the map's GPU",
        fix=fixes.fix_target,
    ),
    _Row(
        id="MATRIX_TYPE",
        on="tensor_map",
        holds=_is_operand_type,
        found=fixes.found_type,
        must="be FLOAT16, BFLOAT16, TFLOAT32, or UINT8 for e4m3, e5m2, s8 and u8",
        fix=fixes.fix_type,
    ),
    _Row(
        id="MATRIX_MAJOR",
        on="major",
        holds=_major_is_read,
        found=lambda o: f"major is MN with elements of {o.bits} bits",
        must="be K: only 16-bit types have a wgmma that transposes",
        fix="transpose the tensor in global memory, so that K is its last dimension, and pass "
        "major='K'",
        needs=("MATRIX_TYPE",),
    ),
    _Row(
        id="MATRIX_INTERLEAVE",
        on="tensor_map",
        holds=lambda o: o.tensor_map.interleave is TmaInterleaveLayout.none,
        found=lambda o: f"interleave_layout is {o.tensor_map.interleave.name}",
        must="be none: an interleaved tile is not a matrix of rows",
        fix="make the map with interleave_layout='none' of a tensor in the order N, H, W, C",
    ),
    _Row(
        id="MATRIX_FILL",
        on="tensor_map",
        holds=lambda o: o.tensor_map.oob_fill is not TmaOobFill.nan,
        found="oobfill is nan",
        must="be none: one out-of-bounds NaN makes whole rows of the product NaN",
        fix="make the map with oobfill='none', which fills with zeros",
    ),
    _Row(
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
        fix=fixes.fix_swizzle,
        needs=("MATRIX_TYPE", "MATRIX_MAJOR"),
    ),
    _Row(
        id="MATRIX_RANK",
        on="tensor_map",
        holds=lambda o: o.matrix is not None,
        found=fixes.found_rank,
        must="be a matrix: two extents over 1, or three in a map made with split_inner",
        fix=fixes.fix_rank,
        needs=("MATRIX_TYPE", "MATRIX_INTERLEAVE"),
    ),
    _Row(
        id="MATRIX_WIDTH",
        on="tensor_map",
        holds=_width_is_read,
        found=fixes.found_width,
        must=fixes.must_width,
        fix=fixes.fix_width,
        needs=_IS_MATRIX,
    ),
    _Row(
        id="MATRIX_ROWS",
        on="tensor_map",
        holds=lambda o: o.tile.rows % o.rows_step == 0,
        found=lambda o: f"the tile has {o.tile.rows} rows ({'M or N' if o.major == 'K' else 'K'})",
        must=lambda o: (
            "be a multiple of 8, the rows of an atom"
            if o.major == "K"
            else f"be a multiple of {o.k_elements}, the K of one instruction"
        ),
        fix=fixes.fix_rows,
        needs=_IS_MATRIX,
    ),
    _Row(
        id="MATRIX_ADDRESS",
        on="smem_address",
        holds=_address_is_read,
        found=lambda o: f"smem_address is {o.smem_address:#x}",
        must=fixes.must_address,
        fix=fixes.fix_address,
    ),
)
