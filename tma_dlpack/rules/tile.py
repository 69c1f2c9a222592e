"""Interleave, swizzle, box, element strides: what is asked of a tile."""

from __future__ import annotations

from collections.abc import Iterable

from tma_dlpack.rules import repairs
from tma_dlpack.rules.request import Case
from tma_dlpack.rules.rule import (
    HAS_TYPE,
    LIBCU,
    LIBCUDACXX,
    MEASURED,
    TILED,
    TILED_DOC,
    TILED_ON_SM_90,
    WIDE,
    WIDE_DOC,
    WRITTEN,
    Ask,
    Rule,
)
from tma_dlpack.types.coerce import counted
from tma_dlpack.types.enums import TensorMapDataType, TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.types.limits import (
    INNER_BYTES,
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_ELEM_STRIDE,
    PADDED_INNER_VALUES,
)

__all__ = ["TILE_RULES", "inner_fix"]

_ATOMS = (
    TmaSwizzle.bytes128_atom_32B,
    TmaSwizzle.bytes128_atom_32B_flip_8B,
    TmaSwizzle.bytes128_atom_64B,
)
_U6_ALIGN16B = TensorMapDataType["16U6_ALIGN16B"]
_SWIZZLES_OF_PADDED = {
    TensorMapDataType["16U4_ALIGN16B"]: (
        TmaSwizzle.none,
        TmaSwizzle.bytes128,
        TmaSwizzle.bytes128_atom_32B,
    ),
    _U6_ALIGN16B: (
        TmaSwizzle.none,
        TmaSwizzle.bytes128,
        TmaSwizzle.bytes128_atom_32B,
        TmaSwizzle.bytes128_atom_64B,
    ),
}
_WIDE_SWIZZLES = (TmaSwizzle.bytes64, TmaSwizzle.bytes128, TmaSwizzle.bytes128_atom_32B)

#: What rows need that ask for the bytes of the box along dimension 0.
_HAS_INNER = ("RANK", "BOX_RANK", "CHANNELS", "box_sizes", "data_type", "PACKED_TYPE")


def _inner_to_outer(c: Case) -> Iterable[int]:
    return range(c.rank)


def _stepped(c: Case) -> Iterable[int]:
    # an im2col map's innermost entry is asked by the driver of sm_90 alone: not of an unread target
    unsure = c.rules == "measured" and any(v.argument == "target" for v in c.unread)
    return range(1 if c.ignores_innermost_elem_stride or unsure else 0, c.rank)


def _say_swizzle(c: Case, i: int) -> str:
    return f"swizzle is {c.swizzle.name}"


def _fitting(c: Case, i: int) -> int:
    """Give what entry i of the box may be: along dimension 0, whole units of 16 bytes."""
    whole = repairs.inner_box(c, i) if i == 0 and not c.interleaved else {}
    box: tuple[int, ...] = (whole or repairs.clamp_box(c, i))["box_sizes"]
    return box[c.rank - 1 - i]


def inner_fix(c: Case, i: int) -> str:
    """Say which row of a box is a multiple of 16 bytes, and the nearest that fits."""
    change = repairs.inner_box(c, 0)
    if c.mirror or not change:
        nearest = ""
    else:
        nearest = "; the nearest that fits is {}={}".format(*next(iter(change.items())))
    unit = c.inner_unit
    size = counted(unit * c.element_bits // 8, "byte")
    return f"use a multiple of {counted(unit, 'element')} ({size}){nearest}"


def _span_fix(c: Case, i: int) -> str:
    span = counted(c.span_elements, "element")
    narrow = f"narrow it to {span} ({c.span_bytes} bytes) and copy in several steps"
    swizzle = repairs.wider_swizzle(c)
    if swizzle is not None:
        return f"use swizzle={swizzle.name!r}, or {narrow}"
    return f"{narrow}, or use swizzle='none'"


def _fits_smem(c: Case, i: int) -> bool:
    return c.box_bytes <= c.target.max_smem_bytes


def _driver_counts_few(c: Case, i: int) -> bool:
    return c.floor_box_bytes <= MAX_BOX_BYTES


def _shrink_fix(holds: repairs.Holds) -> Ask:
    def fix(c: Case, i: int) -> str:
        place, value = repairs.shrunk(c, holds)
        entry = f"{c.say_box(place)} from {c.box[place]} to {value}"
        return f"shrink {entry}, and copy in several steps"

    return fix


TILE_RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="ATOM_SWIZZLE",
        step=11,
        on="swizzle",
        unsupported=True,
        needs=("target", "CAPABILITY", "swizzle"),
        applies=lambda c: c.target.is_sm_9x,
        holds=lambda c, i: c.swizzle not in _ATOMS,
        found=lambda c, i: f"swizzle is {c.swizzle.name} on {c.target}",
        must="be none, bytes32, bytes64 or bytes128 on compute capability 9.x",
        fix=lambda c, i: "use swizzle='bytes128', or build for sm_100 or later (target='sm_100')",
        source=f"{LIBCUDACXX}, __check_device",
        repair=repairs.constant(swizzle=TmaSwizzle.bytes128),
    ),
    # 7. interleave and swizzle
    Rule(
        id="INTERLEAVE_32B_SWIZZLE",
        step=70,
        on="swizzle",
        sets=WRITTEN,
        needs=("interleave_layout", "swizzle"),
        applies=lambda c: c.interleave is TmaInterleaveLayout.bytes32,
        holds=lambda c, i: c.swizzle is TmaSwizzle.bytes32,
        found=_say_swizzle,
        must=lambda c, i: f"be bytes32 when {c.argument('interleave_layout')} is bytes32",
        fix=lambda c, i: "use swizzle='bytes32'",
        source=f"{LIBCUDACXX}, __check_swizzle; {TILED_DOC}",
        differs="driver 580.159.04 accepts others",
        repair=repairs.constant(swizzle=TmaSwizzle.bytes32),
    ),
    Rule(
        id="PACKED_INTERLEAVE",
        step=71,
        on="interleave_layout",
        sets=WRITTEN,
        needs=(*HAS_TYPE, "PACKED_TYPE", "interleave_layout"),
        applies=lambda c: c.data_type is _U6_ALIGN16B,
        holds=lambda c, i: not c.interleaved,
        found=lambda c, i: f"{c.argument('interleave_layout')} is {c.interleave.name}",
        must="be none for 16U6_ALIGN16B",
        fix=lambda c, i: f"use {c.argument('interleave_layout')}='none'",
        source=TILED_DOC,
        repair=repairs.constant(interleave_layout=TmaInterleaveLayout.none),
    ),
    Rule(
        id="PACKED_SWIZZLE",
        step=72,
        on="swizzle",
        sets=WRITTEN,
        needs=(
            *HAS_TYPE,
            "PACKED_TYPE",
            "swizzle",
            "interleave_layout",
            "ATOM_SWIZZLE",
            "INTERLEAVE_32B_SWIZZLE",
        ),
        applies=lambda c: c.data_type in _SWIZZLES_OF_PADDED,
        holds=lambda c, i: c.swizzle in _SWIZZLES_OF_PADDED[c.type_row.data_type],
        found=_say_swizzle,
        must=lambda c, i: "be {} for {}".format(
            " or ".join(s.name for s in _SWIZZLES_OF_PADDED[c.type_row.data_type]),
            c.type_row.data_type.name,
        ),
        fix=lambda c, i: "use swizzle='bytes128'",
        source=TILED_DOC,
        repair=repairs.full_swizzle,
    ),
    Rule(
        id="WIDE_SWIZZLE",
        step=73,
        on="swizzle",
        kinds=WIDE,
        sets=frozenset({"documented"}),
        needs=("swizzle", "interleave_layout", "ATOM_SWIZZLE", "INTERLEAVE_32B_SWIZZLE"),
        holds=lambda c, i: c.swizzle in _WIDE_SWIZZLES,
        found=_say_swizzle,
        must="be bytes64, bytes128 or bytes128_atom_32B for an im2col-wide map",
        fix=lambda c, i: "use swizzle='bytes128'",
        source=WIDE_DOC,
        differs="driver 580.159.04 accepts the others on sm_90",
        repair=repairs.full_swizzle,
    ),
    # 8. box
    Rule(
        id="BOX_RANK",
        step=80,
        on="box_sizes",
        sets=frozenset({"libcu++", "driver"}),  # a mirror reads as many entries as the rank says
        kinds=TILED,
        needs=("RANK", "box_sizes"),
        holds=lambda c, i: len(c.box) == c.rank,
        found=lambda c, i: f"box_sizes has {counted(len(c.box), 'entry')}",
        must=lambda c, i: f"have {c.rank}, one per dimension of the tensor",
        fix=lambda c, i: (
            f"give {counted(c.rank, 'entry')}, row-major; 1 for dimensions that a tile does not "
            "span"
        ),
        source=f"{LIBCUDACXX}, __get_box_sizes",
        repair=repairs.entries("box_sizes"),
    ),
    Rule(
        id="BOX_RANGE",
        step=81,
        on="box_sizes",
        kinds=TILED,
        places=_inner_to_outer,
        needs=("RANK", "BOX_RANK", "box_sizes"),
        holds=lambda c, i: 1 <= c.box[i] <= MAX_BOX,
        found=lambda c, i: f"{c.say_box(i)} is {c.box[i]}",
        must=f"be 1..{MAX_BOX}",
        fix=lambda c, i: (
            f"use {_fitting(c, i)}, and several copies for a larger tile"
            if c.box[i] > MAX_BOX
            else f"use at least {_fitting(c, i)}"
        ),
        source=f"{LIBCUDACXX}, __get_box_sizes; {TILED_DOC}",
        repair=repairs.clamp_box,
    ),
    Rule(
        id="BOX_IN_SHAPE",
        step=81,
        on="box_sizes",
        kinds=TILED,
        sets=LIBCU,
        places=_inner_to_outer,
        needs=("RANK", "BOX_RANK", "box_sizes"),
        needs_here=("BOX_RANGE[i]", "DIM_RANGE[i]"),
        holds=lambda c, i: c.box[i] <= c.dims[i],
        found=lambda c, i: f"{c.say_box(i)} is {c.box[i]}",
        must=lambda c, i: f"be at most {c.say_dim(i)} = {c.dims[i]}",
        fix=lambda c, i: f"use {_fitting(c, i)}",
        source=f"{LIBCUDACXX}, __get_box_sizes",
        differs="driver: more is accepted, and the rest of the tile is filled",
        repair=repairs.clamp_box,
    ),
    Rule(
        id="BOX_INNER_16B",
        step=82,
        on="box_sizes",
        kinds=TILED,
        needs=(*_HAS_INNER, "interleave_layout"),
        needs_here=("BOX_RANGE[0]",),
        applies=lambda c: not c.interleaved,
        holds=lambda c, i: c.inner_box_bytes % INNER_BYTES == 0,
        found=lambda c, i: f"{c.say_inner()} spans {counted(c.inner_box_bytes, 'byte')}",
        must=lambda c, i: (
            f"be a multiple of {INNER_BYTES} bytes when {c.argument('interleave_layout')} is none"
        ),
        fix=inner_fix,
        source=f"{LIBCUDACXX}, __get_box_sizes; {TILED_DOC}",
        repair=repairs.inner_box,
    ),
    Rule(
        id="BOX_PACKED",
        step=82,
        on="box_sizes",
        sets=WRITTEN,
        needs=(*_HAS_INNER, *HAS_TYPE),
        applies=lambda c: c.data_type in _SWIZZLES_OF_PADDED,
        holds=lambda c, i: c.inner_box == PADDED_INNER_VALUES,
        found=lambda c, i: f"{c.say_inner()} is {counted(c.inner_box, 'value')}",
        must=lambda c, i: f"be {PADDED_INNER_VALUES} for {c.type_row.data_type.name}",
        fix=lambda c, i: f"use {PADDED_INNER_VALUES} values",
        source=TILED_DOC,
        repair=repairs.padded_inner,
    ),
    Rule(
        id="BOX_SWIZZLE_SPAN",
        step=83,
        on="box_sizes",
        needs=(*_HAS_INNER, "swizzle", "interleave_layout"),
        needs_here=("BOX_RANGE[0]",),
        applies=lambda c: not c.interleaved and c.swizzle is not TmaSwizzle.none,
        holds=lambda c, i: c.inner_box_bytes <= c.span_bytes,
        found=lambda c, i: f"{c.say_inner()} spans {counted(c.inner_box_bytes, 'byte')}",
        must=lambda c, i: f"be at most {c.span_bytes} bytes with swizzle {c.swizzle.name}",
        fix=_span_fix,
        source=f"{LIBCUDACXX}, __get_box_sizes; {TILED_DOC}",
        differs="libcu++ page: when interleaved; code and driver: when not",
        repair=repairs.fit_span,
    ),
    Rule(
        id="BOX_SMEM",
        step=84,
        on="box_sizes",
        kinds=TILED,
        sets=LIBCU,
        needs=(*_HAS_INNER, "BOX_RANGE", "target"),
        holds=_fits_smem,
        found=lambda c, i: f"the box takes {counted(c.box_bytes, 'byte')}",
        must=lambda c, i: (
            f"fit the {c.target.max_smem_bytes} bytes of shared memory of a block on {c.target}"
        ),
        fix=_shrink_fix(_fits_smem),
        source=f"{LIBCUDACXX}, __get_box_sizes",
        repair=repairs.shrink_box(_fits_smem),
    ),
    # 9. element strides
    Rule(
        id="ELEM_STRIDES_RANK",
        step=90,
        on="elem_strides",
        needs=("RANK", "elem_strides"),
        holds=lambda c, i: len(c.elem_strides) == c.rank,
        found=lambda c, i: f"elem_strides has {counted(len(c.elem_strides), 'entry')}",
        must=lambda c, i: f"have {c.rank}, one per dimension of the tensor",
        fix=lambda c, i: (
            "leave it out for strides of 1, or give one entry per dimension, row-major"
        ),
        source=f"{LIBCUDACXX}, __get_elem_strides",
        repair=repairs.entries("elem_strides"),
    ),
    Rule(
        id="ELEM_STRIDES_RANGE",
        step=91,
        on="elem_strides",
        places=_stepped,
        needs=("RANK", "ELEM_STRIDES_RANK", "elem_strides", "interleave_layout"),
        holds=lambda c, i: 1 <= c.elem_strides[i] <= MAX_ELEM_STRIDE,
        found=lambda c, i: f"{c.say_elem_stride(i)} is {c.elem_strides[i]}",
        must=f"be 1..{MAX_ELEM_STRIDE}",
        fix=lambda c, i: "use 1 to take every element; for larger steps, index the tensor: x[::n]",
        source=f"{LIBCUDACXX}, __get_elem_strides; {TILED_DOC}",
        differs="libcu++ and document ignore the innermost unless interleaved; the driver does not",
        repair=repairs.clamp_elem_stride,
    ),
    Rule(
        id="ELEM_STRIDES_IN_SHAPE",
        step=91,
        on="elem_strides",
        kinds=TILED,
        sets=LIBCU,
        places=_stepped,
        needs=("RANK", "ELEM_STRIDES_RANK", "elem_strides", "interleave_layout"),
        needs_here=("ELEM_STRIDES_RANGE[i]", "DIM_RANGE[i]"),
        holds=lambda c, i: c.elem_strides[i] <= c.dims[i],
        found=lambda c, i: f"{c.say_elem_stride(i)} is {c.elem_strides[i]}",
        must=lambda c, i: f"be at most {c.say_dim(i)} = {c.dims[i]}",
        fix=lambda c, i: f"use {min(c.dims[i], MAX_ELEM_STRIDE)}",
        source=f"{LIBCUDACXX}, __get_elem_strides",
        differs="driver: more is accepted",
        repair=repairs.clamp_elem_stride,
    ),
    # 10. what the driver asks beyond
    Rule(
        id="BOX_INNER_16B_INTERLEAVED",
        step=101,
        on="box_sizes",
        sets=TILED_ON_SM_90,
        kinds=TILED,
        needs=(*_HAS_INNER, "interleave_layout", "target"),
        needs_here=("BOX_RANGE[0]",),
        applies=lambda c: c.interleaved and c.target.has_model,
        holds=lambda c, i: c.inner_box_bytes % INNER_BYTES == 0,
        found=lambda c, i: f"{c.say_inner()} spans {counted(c.inner_box_bytes, 'byte')}",
        must=f"be a multiple of {INNER_BYTES} bytes for the driver, interleaved or not",
        fix=inner_fix,
        source=MEASURED,
        differs="libcu++ and the documents ask it only when not interleaved",
        repair=repairs.inner_box,
    ),
    Rule(
        id="BOX_BYTES",
        step=102,
        on="box_sizes",
        sets=TILED_ON_SM_90,
        kinds=TILED,
        needs=(
            *_HAS_INNER,
            "BOX_RANGE",
            "BOX_SMEM",
            "ELEM_STRIDES_RANK",
            "ELEM_STRIDES_RANGE",
            "elem_strides",
            "target",
        ),
        applies=lambda c: c.target.has_model,
        holds=_driver_counts_few,
        found=lambda c, i: f"the driver counts {counted(c.floor_box_bytes, 'byte')} for the box",
        must=f"be at most {MAX_BOX_BYTES} bytes (228 KB)",
        fix=_shrink_fix(_driver_counts_few),
        source=MEASURED,
        repair=repairs.shrink_box(_driver_counts_few),
    ),
)
