"""Rules on interleave_layout, swizzle and elem_strides."""

from __future__ import annotations

from functools import partial

from tma_dlpack.checks import words
from tma_dlpack.checks.box import be_in_shape, entries, valid_entry, with_entry
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import (
    ALL_BUT_MEASURED,
    HAS_TYPE,
    LIBCU,
    TILED,
    WIDE,
    Change,
    constant,
    nearest,
)
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.tables.errors import Rule
from tma_dlpack.tables.limits import MAX_ELEM_STRIDE


def _swizzles_of_type(r: Request) -> str:
    return " or ".join(s.name for s in TmaSwizzle if r.type_row.swizzles >> s & 1)


def _full_swizzle(r: Request) -> Change:
    """Choose bytes128, which padded types and im2col-wide maps allow."""
    if r.arguments.interleave is TmaInterleaveLayout.bytes32:
        return {"swizzle": TmaSwizzle.bytes128, "interleave_layout": TmaInterleaveLayout.none}
    return {"swizzle": TmaSwizzle.bytes128}


_swizzle_rule = partial(
    Rule,
    on="swizzle",
    found=lambda r: f"swizzle is {r.arguments.swizzle.name}",
    fix="use swizzle='bytes128'",
    documented=True,
    repair=_full_swizzle,
)

TILE_RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="ATOM_SWIZZLE",
        step=11,
        on="swizzle",
        why="atom swizzles came with compute capability 10.0; the driver refuses them for sm_90",
        unsupported=True,
        after=("CAPABILITY",),
        holds="swizzle <= SWIZZLE_128B or not is_sm_9x",
        found=lambda r: f"swizzle is {r.arguments.swizzle.name} on {r.target}",
        must="be none, bytes32, bytes64 or bytes128 on compute capability 9.x",
        fix="use swizzle='bytes128', or make the map for sm_100 or later (target='sm_100')",
        libcudacxx="__check_device",
        repair=constant(swizzle=TmaSwizzle.bytes128),
    ),
    # 7. interleave and swizzle
    _swizzle_rule(
        id="INTERLEAVE_32B_SWIZZLE",
        step=70,
        why="the driver API documents no other swizzle for slices of 32 bytes",
        asks="be bytes32 when interleave_layout is bytes32",
        sets=ALL_BUT_MEASURED,
        holds="interleave != INTERLEAVE_32B or swizzle == SWIZZLE_32B",
        must=lambda r: f"be bytes32 when {words.argument(r, 'interleave_layout')} is bytes32",
        fix="use swizzle='bytes32'",
        libcudacxx="__check_swizzle",
        differs="driver 580.159.04 accepts others",
        repair=constant(swizzle=TmaSwizzle.bytes32),
    ),
    Rule(
        id="PACKED_INTERLEAVE",
        step=71,
        on="interleave_layout",
        why="the driver API documents no interleaved layout for this type",
        sets=ALL_BUT_MEASURED,
        after=(*HAS_TYPE, "PACKED_TYPE"),
        holds="interleave == 0 or type_interleaves",
        found=lambda r: (
            f"{words.argument(r, 'interleave_layout')} is {r.arguments.interleave.name}"
        ),
        must="be none for 16U6_ALIGN16B",
        fix=lambda r: f"use {words.argument(r, 'interleave_layout')}='none'",
        documented=True,
        repair=constant(interleave_layout=TmaInterleaveLayout.none),
    ),
    _swizzle_rule(
        id="PACKED_SWIZZLE",
        step=72,
        why="the driver API documents only these swizzles for the types padded to 16 bytes",
        asks="be none, bytes128 or bytes128_atom_32B for 16U4_ALIGN16B; also bytes128_atom_64B for "
        "16U6_ALIGN16B",
        sets=ALL_BUT_MEASURED,
        reads=("interleave_layout",),
        after=(*HAS_TYPE, "PACKED_TYPE", "ATOM_SWIZZLE", "INTERLEAVE_32B_SWIZZLE"),
        holds="type_swizzles >> swizzle & 1",
        must=lambda r: f"be {_swizzles_of_type(r)} for {r.type_row.data_type.name}",
    ),
    _swizzle_rule(
        id="WIDE_SWIZZLE",
        step=73,
        why="the driver API documents only these swizzles for im2col-wide maps",
        kinds=WIDE,
        sets=frozenset({"documented"}),
        reads=("interleave_layout",),
        after=("ATOM_SWIZZLE", "INTERLEAVE_32B_SWIZZLE"),
        holds="WIDE_SWIZZLES >> swizzle & 1",
        must="be bytes64, bytes128 or bytes128_atom_32B for an im2col-wide map",
        differs="driver 580.159.04 accepts the others on sm_90",
    ),
)


def _step_found(r: Request, i: int) -> str:
    return f"{words.elem_stride(r, i)} is {r.arguments.element_strides[i]}"


def _step_fix(r: Request, i: int) -> str:
    if r.arguments.element_strides[i] < 1:
        return "use 1 to take every element"
    if r.kind != "tiled" or r.is_driver_call or i == 0 or not r.is_own_layout:
        return "use 1 to take every element, or 8, the largest step"
    colons = ":, " * (r.rank - 1 - i)
    step = r.arguments.element_strides[i]
    return f"use 1 and step the tensor itself, x[{colons}::{step}], or use 8, the largest step"


def _clamp_elem_stride(r: Request, i: int) -> Change:
    """Clamp entry i to 1..8, and to the shape if a rule requires it."""
    steps = r.arguments.element_strides
    valid = valid_entry(r, i, MAX_ELEM_STRIDE, "ELEM_STRIDES_IN_SHAPE")
    return {"elem_strides": with_entry(steps, i, nearest(steps[i], valid))}


_step_rule = partial(
    Rule, on="elem_strides", after=("RANK", "ELEM_STRIDES_RANK"), libcudacxx="__get_elem_strides"
)
_each_step_rule = partial(
    _step_rule, step=91, each="d", found=_step_found, repair=_clamp_elem_stride
)

ELEM_STRIDE_RULES: tuple[Rule, ...] = (
    # 9. element strides
    _step_rule(
        id="ELEM_STRIDES_RANK",
        step=90,
        why="there is a step along each dimension",
        asks="have one entry per dimension of the tensor",
        after=("RANK",),
        holds="elem_stride_count == rank",
        found=lambda r: f"elem_strides has {counted(len(r.arguments.element_strides), 'entry')}",
        must=lambda r: f"have {r.rank}, one per dimension of the tensor",
        fix="omit elem_strides for strides of 1, or give one entry per dimension, row-major",
        repair=entries("elem_strides"),
    ),
    _each_step_rule(
        id="ELEM_STRIDES_RANGE",
        why="the map stores stride - 1 in 3 bits",
        holds="d == 0 and ignores_inner_step or 1 <= element_strides[d] <= MAX_ELEM_STRIDE",
        must=f"be 1..{MAX_ELEM_STRIDE}",
        fix=_step_fix,
        documented=True,
        differs="libcu++ and the documentation ignore the innermost entry unless interleaved; the "
        "driver does not",
    ),
    _each_step_rule(
        id="ELEM_STRIDES_IN_SHAPE",
        why="libcu++ requires steps that stay within the tensor; the driver does not",
        asks="be at most the extent of the tensor",
        kinds=TILED,
        sets=LIBCU,
        after_here=("ELEM_STRIDES_RANGE", "DIM_RANGE"),
        holds="d == 0 and ignores_inner_step or element_strides[d] <= global_dim[d]",
        must=be_in_shape,
        fix=lambda r, i: f"use {min(r.arguments.global_dim[i], MAX_ELEM_STRIDE)}",
        differs="the driver accepts more",
    ),
)
