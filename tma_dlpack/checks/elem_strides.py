"""Rules on elem_strides."""

from __future__ import annotations

from tma_dlpack.checks import names, repairs
from tma_dlpack.checks.box import be_in_shape
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import LIBCU, TILED, Rule
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.limits import MAX_ELEM_STRIDE


def _step_found(r: Request, i: int) -> str:
    return f"{names.elem_stride(r, i)} is {r.arguments.element_strides[i]}"


def _step_fix(r: Request, i: int) -> str:
    if r.arguments.element_strides[i] < 1:
        return "use 1 to take every element"
    if r.kind != "tiled" or r.is_driver_call or i == 0 or not r.is_own_layout:
        return "use 1 to take every element, or 8, the largest step"
    colons = ":, " * (r.rank - 1 - i)
    step = r.arguments.element_strides[i]
    return f"use 1 and step the tensor itself, x[{colons}::{step}], or use 8, the largest step"


ELEM_STRIDE_RULES: tuple[Rule, ...] = (
    # 9. element strides
    Rule(
        id="ELEM_STRIDES_RANK",
        step=90,
        on="elem_strides",
        why="there is a step along each dimension",
        asks="have one entry per dimension of the tensor",
        after=("RANK",),
        holds="elem_stride_count == rank",
        found=lambda r: f"elem_strides has {counted(len(r.arguments.element_strides), 'entry')}",
        must=lambda r: f"have {r.rank}, one per dimension of the tensor",
        fix="omit elem_strides for strides of 1, or give one entry per dimension, row-major",
        libcudacxx="__get_elem_strides",
        repair=repairs.entries("elem_strides"),
    ),
    Rule(
        id="ELEM_STRIDES_RANGE",
        step=91,
        on="elem_strides",
        why="the map stores stride - 1 in 3 bits",
        after=("RANK", "ELEM_STRIDES_RANK"),
        each="d",
        holds="d == 0 and ignores_inner_step or 1 <= element_strides[d] <= MAX_ELEM_STRIDE",
        found=_step_found,
        must=f"be 1..{MAX_ELEM_STRIDE}",
        fix=_step_fix,
        libcudacxx="__get_elem_strides",
        documented=True,
        differs="libcu++ and the documentation ignore the innermost entry unless interleaved; the "
        "driver does not",
        repair=repairs.clamp_elem_stride,
    ),
    Rule(
        id="ELEM_STRIDES_IN_SHAPE",
        step=91,
        on="elem_strides",
        why="libcu++ requires steps that stay within the tensor; the driver does not",
        asks="be at most the extent of the tensor",
        kinds=TILED,
        sets=LIBCU,
        after=("RANK", "ELEM_STRIDES_RANK"),
        after_here=("ELEM_STRIDES_RANGE", "DIM_RANGE"),
        each="d",
        holds="d == 0 and ignores_inner_step or element_strides[d] <= global_dim[d]",
        found=_step_found,
        must=be_in_shape,
        fix=lambda r, i: f"use {min(r.arguments.global_dim[i], MAX_ELEM_STRIDE)}",
        libcudacxx="__get_elem_strides",
        differs="the driver accepts more",
        repair=repairs.clamp_elem_stride,
    ),
)
