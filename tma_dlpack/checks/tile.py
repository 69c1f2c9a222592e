"""Rules about interleave_layout, swizzle, elem_strides, split_inner and ragged.

The options `split_inner` and `ragged` add dimensions to the map of a tensor. Rules read the tensor
and the tile without these dimensions, because `Request.encode_arguments` adds the dimensions after
the call is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tma_dlpack.checks import candidates, words
from tma_dlpack.checks.box import be_in_shape
from tma_dlpack.checks.candidates import Candidate, Candidates
from tma_dlpack.checks.request import Request
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.rule import ALL_BUT_MEASURED, HAS_TYPE, LIBCU, TILED, WIDE, Rule
from tma_dlpack.tables.targets import MAX_ELEM_STRIDE, MAX_RANK, RAGGED_STRIDE_END


def _swizzles_of_type(r: Request) -> str:
    return " or ".join(s.name for s in TmaSwizzle if r.type_row.swizzles >> s & 1)


def _swizzle_candidates(r: Request) -> Iterator[Candidates]:
    """Yield candidates with the other swizzles.

    bytes128 comes first, because all data types and all kinds of map allow it.
    """
    yield candidates.members(r, "swizzle", first=(TmaSwizzle.bytes128,))


# The rules that `_swizzle_rule` makes accept different swizzles. Nevertheless, the candidates of
# each are all other swizzles, because `fixes.py` drops a candidate that a rule refuses.
_swizzle_rule = partial(
    Rule,
    on="swizzle",
    found=lambda r: f"swizzle is {r.swizzle.name}",
    fix="use swizzle='bytes128'",
    documented=True,
    candidates=_swizzle_candidates,
)

# The numbers in the comments below are steps of libcu++. `tensor.py` lists the steps.
TILE_RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="ATOM_SWIZZLE",
        step=11,
        on="swizzle",
        why="atom swizzles came with compute capability 10.0; the driver refuses them for sm_90",
        unsupported=True,
        prerequisites=("CAPABILITY",),
        holds="swizzle <= SWIZZLE_128B or not is_sm_9x",
        found=lambda r: f"swizzle is {r.swizzle.name} on {r.target}",
        must="be none, bytes32, bytes64 or bytes128 on compute capability 9.x",
        fix="use swizzle='bytes128', or make the map for sm_100 or later (target='sm_100')",
        libcudacxx="__check_device",
        candidates=lambda r: [
            *_swizzle_candidates(r),
            candidates.targets("sm_100", "make the map for sm_100 or later: target='sm_100'", True),
        ],
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
        changes=("swizzle", "interleave_layout"),
        candidates=lambda r: [
            candidates.members(r, "swizzle"),
            candidates.members(r, "interleave_layout"),
        ],
    ),
    Rule(
        id="PACKED_INTERLEAVE",
        step=71,
        on="interleave_layout",
        why="the driver API documents no interleaved layout for this type",
        sets=ALL_BUT_MEASURED,
        prerequisites=(*HAS_TYPE, "PACKED_TYPE"),
        holds="interleave == 0 or type_interleaves",
        found=lambda r: (
            f"{words.argument(r, 'interleave_layout')} is {r.arguments.interleave.name}"
        ),
        must="be none for 16U6_ALIGN16B",
        documented=True,
        changes=("interleave_layout", "data_type"),
        candidates=lambda r: [candidates.members(r, "interleave_layout"), candidates.data_types(r)],
    ),
    _swizzle_rule(
        id="PACKED_SWIZZLE",
        step=72,
        why="the driver API documents only these swizzles for the types padded to 16 bytes",
        asks="be none, bytes128 or bytes128_atom_32B for 16U4_ALIGN16B; also bytes128_atom_64B for "
        "16U6_ALIGN16B",
        sets=ALL_BUT_MEASURED,
        reads=("interleave_layout",),
        prerequisites=(*HAS_TYPE, "PACKED_TYPE", "ATOM_SWIZZLE", "INTERLEAVE_32B_SWIZZLE"),
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
        prerequisites=("ATOM_SWIZZLE", "INTERLEAVE_32B_SWIZZLE"),
        holds="WIDE_SWIZZLES >> swizzle & 1",
        must="be bytes64, bytes128 or bytes128_atom_32B for an im2col-wide map",
        differs="driver 580.159.04 accepts the others on sm_90",
    ),
)


def _step_found(r: Request, i: int) -> str:
    return f"{words.entry(r, 'elem_strides', i)} is {r.facts.element_strides[i]}"


def _step_candidates(r: Request, i: int) -> Iterator[Candidates]:
    yield candidates.elem_strides(r, i)
    yield candidates.stepped(r, i)


_step_rule = partial(
    Rule,
    on="elem_strides",
    prerequisites=("RANK", "ELEM_STRIDES_RANK"),
    libcudacxx="__get_elem_strides",
)
_each_step_rule = partial(_step_rule, step=91, each="d", found=_step_found)

ELEM_STRIDE_RULES: tuple[Rule, ...] = (
    # 9. element strides
    _step_rule(
        id="ELEM_STRIDES_RANK",
        step=90,
        why="there is a step along each dimension",
        asks="have one entry per dimension of the tensor",
        prerequisites=("RANK",),
        holds="elem_stride_count == rank",
        found=lambda r: f"elem_strides has {counted(len(r.arguments.element_strides), 'entry')}",
        must=lambda r: f"have {r.rank}, one per dimension of the tensor",
        fix="omit elem_strides for strides of 1, or give one entry per dimension, row-major",
        candidates=lambda r: [
            candidates.per_dimension(r, "elem_strides"),
            [Candidate("omit elem_strides, for strides of 1", {"elem_strides": None})],
        ],
    ),
    _each_step_rule(
        id="ELEM_STRIDES_RANGE",
        why="the map stores stride - 1 in 3 bits",
        holds="d == 0 and ignores_inner_step or 1 <= element_strides[d] <= MAX_ELEM_STRIDE",
        must=f"be 1..{MAX_ELEM_STRIDE}",
        fix=f"use 1 to take every element, or {MAX_ELEM_STRIDE}, the largest step",
        candidates=_step_candidates,
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
        prerequisites_at_entry=("ELEM_STRIDES_RANGE", "DIM_RANGE"),
        holds="d == 0 and ignores_inner_step or element_strides[d] <= global_dim[d]",
        must=be_in_shape,
        changes=("allow", "elem_strides"),
        candidates=lambda r, i: [
            candidates.allow(r, "ELEM_STRIDES_IN_SHAPE"),
            candidates.elem_strides(r, i),
        ],
        differs="the driver accepts more",
        if_allowed="fills the part of the tile past the end",
    ),
)


def _span_must(r: Request) -> str:
    # The quotient is exact, because SPLIT_DTYPE refuses packed types first.
    span_bytes = r.facts.span_values * r.facts.element_bits // 8
    return (
        f"be a multiple of {r.facts.span_values}, the {span_bytes} bytes of a span of swizzle "
        f"{r.swizzle.name}"
    )


def _extent_breaks(facts: Any) -> bool:
    return bool(facts.global_dim[0] % facts.span_values)


def _whole_span_candidates(r: Request) -> Iterator[Candidates]:
    """Yield a box or a tensor whose rows are whole spans, or a swizzle whose span divides the row.

    A span is one row of the swizzle pattern.
    """
    span, swizzle = r.facts.span_values, r.swizzle
    # If the tensor's rows are not whole spans, another box alone cannot repair the call.
    if _extent_breaks(r.facts):
        yield candidates.widened(r, span)
        # Without split_inner, the tensor's rows need not be whole spans. A box of one span is
        # valid, because a span has at most 128 elements, and a box may be 256 elements wide.
        one = candidates.with_box_entry(r, 0, min(r.facts.box_dim[0], span))
        text = "copy one span at a time: box_sizes={}, swizzle={!r}, without split_inner"
        wording = partial(text.format, one["box_sizes"], swizzle.name)
        yield [Candidate(wording, one | {"split_inner": False}, is_guess=True)]
    else:
        yield candidates.box_entries(r, 0, partial("use a multiple of {}: {}".format, span))
    yield (
        Candidate(
            partial("pass swizzle={!r}, whose spans divide it".format, narrower.name),
            {"swizzle": narrower},
        )
        for narrower in (TmaSwizzle.bytes64, TmaSwizzle.bytes32)
        if narrower < swizzle
    )


# These candidates are guesses, because the user has not named the swizzle with which the kernel
# reads the tile.
_SPLIT_BY = {
    TmaSwizzle.bytes128: "pass swizzle='bytes128'",
    TmaSwizzle.none: "pass swizzle='none' for columns of 16 bytes, the core matrices of an "
    "unswizzled operand",
}

_row = partial(
    Rule,
    make_only=True,
    sets=LIBCU | {"driver"},
    kinds=TILED,
    source="tma_dlpack: split_inner= and ragged= describe the tensor with more dimensions",
)

_rank_row = partial(
    _row,
    step=63,
    on="tensor.rank",
    found=lambda r: f"the tensor has {counted(r.rank, 'dimension')}",
)

RECIPE_RULES: tuple[Rule, ...] = (
    _row(
        id="SPLIT_SWIZZLE",
        step=62,
        on="split_inner",
        why="the span of the swizzle is the width to split by: omitted, it would be a guess",
        holds="not is_split or has_swizzle",
        found="split_inner is True, and swizzle is omitted",
        must="come with an explicit swizzle",
        fix="pass swizzle='bytes128', or swizzle='none' for columns of 16 bytes, the core matrices "
        "of an unswizzled operand",
        changes=(),
        candidates=lambda r: [
            [Candidate(text, {"swizzle": swizzle}, is_guess=True)]
            for swizzle, text in _SPLIT_BY.items()
        ],
    ),
    _row(
        id="SPLIT_INTERLEAVE",
        step=62,
        on="split_inner",
        why="the innermost dimension of an interleaved layout is not the row of the tensor",
        holds="interleave == 0 or not is_split and not is_ragged",
        found=lambda r: f"interleave_layout is {r.arguments.interleave.name}",
        must="be used without interleave_layout, as ragged must",
        fix="omit interleave_layout",
        changes=("interleave_layout",),
        candidates=lambda r: [candidates.members(r, "interleave_layout")],
    ),
    _rank_row(
        id="SPLIT_RANK",
        why="the split adds a dimension, and a ragged map two more",
        asks="have 1 to 4 dimensions with split_inner, 2 with ragged too",
        prerequisites=("RANK",),
        holds="not is_split or rank < MAX_RANK - 2 * is_ragged",
        must=lambda r: (
            f"have 1 to {MAX_RANK - 1 - 2 * r.facts.is_ragged}: the split adds one, and a map has "
            f"{MAX_RANK} at most"
        ),
        fix="merge dimensions of a contiguous tensor with x.reshape(...), or take a slice, x[0]",
        candidates=lambda r: [
            candidates.merged(r, MAX_RANK - 1 - 2 * r.facts.is_ragged),
            candidates.indexed(r, MAX_RANK - 1 - 2 * r.facts.is_ragged),
        ],
    ),
    _row(
        id="SPLIT_DTYPE",
        step=63,
        on="split_inner",
        why="a span holds whole elements",
        prerequisites=HAS_TYPE,
        holds="not is_split or not is_packed",
        found=lambda r: f"the map's type is {r.type_row.data_type.name}",
        must="be used for elements of whole bytes",
        fix="view the storage as bytes, x.view(uint8), and split that",
        changes=("data_type",),
        candidates=lambda r: [
            candidates.carriers(r),
            candidates.viewed(r, 8, "view the storage as bytes, {}, and split that"),
        ],
    ),
    _row(
        id="SPLIT_SPAN",
        step=82,
        on=lambda facts: "tensor.shape" if _extent_breaks(facts) else "box_sizes",
        why="a split tensor and its tile are whole spans of the swizzle",
        asks="be whole spans of the swizzle along the last dimension, tensor and tile",
        prerequisites=("RANK", "SPLIT_SWIZZLE", "SPLIT_DTYPE", *HAS_TYPE, "DIM_RANGE", "BOX_RANK"),
        prerequisites_at_entry=("BOX_RANGE",),
        holds="not is_split or global_dim[0] % span_values == 0 and box_dim[0] % span_values == 0",
        found=lambda r: (
            f"the last dimension is {counted(r.arguments.global_dim[0], 'element')}"
            if _extent_breaks(r.facts)
            else f"the last entry of box_sizes is {counted(r.arguments.inner_box, 'element')}"
        ),
        must=_span_must,
        changes=("box_sizes", "swizzle"),
        candidates=_whole_span_candidates,
    ),
    _row(
        id="SPLIT_STEP",
        step=92,
        on="elem_strides",
        why="the columns of a split tile stand one span apart",
        sets=frozenset({"driver"}),  # because libcu++ ignores the innermost element stride
        prerequisites=("RANK", "ELEM_STRIDES_RANK"),
        holds="not is_split or ignores_inner_step or element_strides[0] == 1",
        found=lambda r: _step_found(r, 0),
        must="be 1 with split_inner",
        fix="use 1 to take every element",
        candidates=lambda r: [candidates.elem_strides(r, 0)],
    ),
    _rank_row(
        id="RAGGED_RANK",
        why="a ragged map has two more dimensions",
        prerequisites=("RANK", "SPLIT_RANK"),
        holds="not is_ragged or 2 <= rank <= MAX_RANK - 2",
        must=f"have 2 or {MAX_RANK - 2} dimensions: a map has at most {MAX_RANK}, and a ragged one "
        "needs two of them",
        fix="merge dimensions of a contiguous tensor with x.reshape(...), or take a slice, x[0]",
        candidates=lambda r: [
            candidates.merged(r, MAX_RANK - 2),
            candidates.indexed(r, MAX_RANK - 2),
            [Candidate("omit ragged: the tensor has no rows", {"ragged": None}, is_guess=True)]
            if r.rank == 1
            else (),
        ],
    ),
    _row(
        id="RAGGED_DIM",
        step=64,
        on="ragged",
        why="slices along the innermost dimension would not start at multiples of 16 bytes",
        prerequisites=("RANK", "RAGGED_RANK"),
        holds="not is_ragged or 1 <= ragged_dim < rank",
        found=lambda r: f"ragged is {r.rare.ragged} for a tensor of {counted(r.rank, 'dimension')}",
        must=lambda r: (
            "not be the innermost: the slices must start at multiples of 16 bytes"
            if r.facts.ragged_dim == 0
            else f"be {-r.rank}..{r.rank - 1}"
        ),
        asks="be a dimension of the tensor, and not the innermost one",
        fix="pass ragged=0, the dimension of the rows, or transpose the tensor",
        candidates=lambda r: [
            [Candidate("pass ragged=0, the dimension of the rows", {"ragged": 0})],
        ],
    ),
    _row(
        id="RAGGED_STRIDE",
        step=65,
        on="ragged",
        why="the strides of the added dimensions are the ragged one, and 2^34 elements less it",
        prerequisites=("RANK", "RAGGED_DIM", "STRIDE_INNERMOST", *HAS_TYPE),
        holds="not is_ragged or ragged_stride_bits < RAGGED_STRIDE_END * element_bits",
        found=lambda r: words.stride_found(r, r.facts.ragged_dim),
        must=f"be a dimension whose stride is less than {RAGGED_STRIDE_END} elements",
        fix="make one map for each slice",
    ),
)
