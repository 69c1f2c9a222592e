"""Why an instruction cannot read a tile: one row per reason, with a call that works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tma_dlpack.consumer.fixes import (
    fix_address,
    fix_major,
    fix_rank,
    fix_rows,
    fix_swizzle,
    fix_target,
    fix_type,
    fix_width,
    found_rank,
    found_type,
    found_width,
    must_address,
    must_width,
)
from tma_dlpack.consumer.instructions import K_STEP_BYTES, OPERAND_TYPES, SPAN_BYTES
from tma_dlpack.consumer.operand import ADDRESS_END, Operand
from tma_dlpack.types.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle
from tma_dlpack.types.errors import Violation

__all__ = ["find_violations"]

#: The float types of tensors with UINT8 maps that tensor cores multiply.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")


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
                found=row.found(operand),
                limit=f"it must {row.must(operand)}",
                fix=row.fix(operand),
                source=operand.instruction.source,
            )
            broken.append(violation)
    return tuple(broken)


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
        "MATRIX_TARGET",
        "instruction",
        _has_instruction,
        lambda o: f"the map is for {o.tensor_map.target}, which has no {o.instruction.name}",
        lambda o: "be an instruction of the map's GPU",
        fix_target,
    ),
    _Row(
        "MATRIX_TYPE",
        "tensor_map",
        _is_operand_type,
        found_type,
        lambda o: "be FLOAT16, BFLOAT16, TFLOAT32, or UINT8 for e4m3, e5m2, s8 and u8",
        fix_type,
    ),
    _Row(
        "MATRIX_MAJOR",
        "major",
        _major_is_read,
        lambda o: f"major is MN with elements of {o.bits} bits",
        lambda o: "be K: only 16-bit types have a wgmma that transposes",
        fix_major,
        needs=("MATRIX_TYPE",),
    ),
    _Row(
        "MATRIX_INTERLEAVE",
        "tensor_map",
        lambda o: o.tensor_map.interleave is TmaInterleaveLayout.none,
        lambda o: f"interleave_layout is {o.tensor_map.interleave.name}",
        lambda o: "be none: an interleaved tile is not a matrix of rows",
        lambda o: "make the map with interleave_layout='none' of a tensor in the order N, H, W, C",
    ),
    _Row(
        "MATRIX_FILL",
        "tensor_map",
        lambda o: o.tensor_map.oob_fill is not TmaOobFill.nan,
        lambda o: "oobfill is nan",
        lambda o: "be none: one out-of-bounds NaN makes whole rows of the product NaN",
        lambda o: "make the map with oobfill='none', which fills with zeros",
    ),
    _Row(
        "MATRIX_SWIZZLE",
        "tensor_map",
        _swizzle_is_read,
        lambda o: f"swizzle is {o.swizzle.name}, {o.major}-major with elements of {o.bits} bits",
        lambda o: (
            "be bytes128_atom_32B for 32-bit elements that are MN-major, and none, bytes32, "
            "bytes64 or bytes128 for all others"
        ),
        fix_swizzle,
        needs=("MATRIX_TYPE", "MATRIX_MAJOR"),
    ),
    _Row(
        "MATRIX_RANK",
        "tensor_map",
        lambda o: o.matrix is not None,
        found_rank,
        lambda o: "be a matrix: two extents over 1, or three in a map made with split_inner",
        fix_rank,
        needs=("MATRIX_TYPE", "MATRIX_INTERLEAVE"),
    ),
    _Row(
        "MATRIX_WIDTH",
        "tensor_map",
        _width_is_read,
        found_width,
        must_width,
        fix_width,
        needs=_IS_MATRIX,
    ),
    _Row(
        "MATRIX_ROWS",
        "tensor_map",
        lambda o: o.tile.rows % o.rows_step == 0,
        lambda o: f"the tile has {o.tile.rows} rows ({'M or N' if o.major == 'K' else 'K'})",
        lambda o: (
            "be a multiple of 8, the rows of an atom"
            if o.major == "K"
            else f"be a multiple of {o.k_elements}, the K of one instruction"
        ),
        fix_rows,
        needs=_IS_MATRIX,
    ),
    _Row(
        "MATRIX_ADDRESS",
        "smem_address",
        _address_is_read,
        lambda o: f"smem_address is {o.smem_address:#x}",
        must_address,
        fix_address,
    ),
)
