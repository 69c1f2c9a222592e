"""Rules on split_inner= and ragged=, which add dimensions to the map of a tensor.

They and all other rules are asked of the tensor and its tile as they are given; the dimensions are
added to what was accepted (`Request.encode_arguments`).
"""

from __future__ import annotations

from functools import partial

from tma_dlpack.checks import words
from tma_dlpack.checks.box import with_inner
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import HAS_TYPE, LIBCU, TILED, Change, constant, nearest
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.tables.errors import Rule
from tma_dlpack.tables.limits import MAX_BOX, MAX_RANK, RAGGED_STRIDE_END


def _up(r: Request, extent: int) -> int:
    span: int = r.facts.span_values
    return max(1, -(-extent // span)) * span


def _span_must(r: Request) -> str:
    span_bytes = r.facts.span_values * r.facts.element_bits // 8
    return (
        f"be a multiple of {r.facts.span_values}, the {span_bytes} bytes of a span of swizzle "
        f"{r.arguments.swizzle.name}"
    )


def _narrower(r: Request) -> str:
    """Name the widest narrower swizzle whose spans divide tensor and tile; "" for none."""
    assert r.view is not None
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes32):
        span = r.span_values_of(swizzle)
        sizes = (r.view.shape[-1], *r.arguments.box_dim[:1])
        if swizzle < r.arguments.swizzle <= TmaSwizzle.bytes128 and not any(
            n % span for n in sizes
        ):
            return f"; or pass swizzle={swizzle.name!r}, whose spans divide it"
    return ""


def _extent_breaks(r: Request) -> bool:
    return bool(r.arguments.global_dim[0] % r.facts.span_values)


def _extent_fix(r: Request) -> str:
    assert r.view is not None
    extent, box = r.view.shape[-1], r.arguments.box_dim[::-1]
    pad = f"pad the last dimension from {extent} to {_up(r, extent)} elements"
    if not box:  # which has a violation of its own
        return pad
    one = (*box[:-1], min(box[-1], r.facts.span_values))
    swizzle = r.arguments.swizzle.name
    return (
        f"{pad}, or copy one span at a time: box_sizes={one}, swizzle={swizzle!r}, without "
        f"split_inner{_narrower(r)}"
    )


def _box_fix(r: Request) -> str:
    size, span = r.arguments.inner_box, r.facts.span_values
    down, up = max(span, size // span * span), _up(r, size)
    whole = f"{down} or {up}" if down != up else f"{up}"
    return f"use a multiple of {span}: {whole}{_narrower(r)}"


def _whole_spans(r: Request) -> Change:
    """Choose the nearest tile of whole spans for split_inner= that the tensor holds."""
    extent, span, size = r.arguments.global_dim[0], r.facts.span_values, r.arguments.inner_box
    spans = range(1, max(1, int(extent) // span if r.has_rule("BOX_IN_SHAPE") else MAX_BOX) + 1)
    return with_inner(r, span * nearest(-(-size // span), spans))


_row = partial(
    Rule,
    make_only=True,
    sets=LIBCU | {"driver"},
    kinds=TILED,
    source="tma_dlpack: split_inner= and ragged= describe the tensor with more dimensions",
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
        repair=constant(interleave_layout=TmaInterleaveLayout.none),
    ),
    _row(
        id="SPLIT_RANK",
        step=63,
        on="tensor.rank",
        why="the split adds a dimension, and a ragged map two more",
        asks="have 1 to 4 dimensions with split_inner, 2 with ragged too",
        after=("RANK",),
        holds="not is_split or rank < MAX_RANK - 2 * is_ragged",
        found=lambda r: f"the tensor has {counted(r.rank, 'dimension')}",
        must=lambda r: (
            f"have 1 to {MAX_RANK - 1 - 2 * r.facts.is_ragged}: the split adds one, and a map has "
            f"{MAX_RANK} at most"
        ),
        fix="merge dimensions of a contiguous tensor, x.flatten(0, 1), or take a slice, x[0]",
    ),
    _row(
        id="SPLIT_DTYPE",
        step=63,
        on="split_inner",
        why="a span holds whole elements",
        after=HAS_TYPE,
        holds="not is_split or not is_packed",
        found=lambda r: f"the map's type is {r.type_row.data_type.name}",
        must="be used for elements of whole bytes",
        fix="view the storage as bytes, x.view(uint8), and split that",
    ),
    _row(
        id="SPLIT_SPAN",
        step=82,
        on=lambda r: "tensor.shape" if _extent_breaks(r) else "box_sizes",
        why="a split tensor and its tile are whole spans of the swizzle",
        asks="be whole spans of the swizzle along the last dimension, tensor and tile",
        after=("RANK", "SPLIT_SWIZZLE", "SPLIT_DTYPE", *HAS_TYPE, "DIM_RANGE", "BOX_RANK"),
        after_here=("BOX_RANGE",),
        holds="not is_split or global_dim[0] % span_values == 0 and box_dim[0] % span_values == 0",
        found=lambda r: (
            f"the last dimension is {counted(r.arguments.global_dim[0], 'element')}"
            if _extent_breaks(r)
            else f"the last entry of box_sizes is {counted(r.arguments.inner_box, 'element')}"
        ),
        must=_span_must,
        fix=lambda r: _extent_fix(r) if _extent_breaks(r) else _box_fix(r),
        repair=lambda r: {} if _extent_breaks(r) else _whole_spans(r),
    ),
    _row(
        id="SPLIT_STEP",
        step=92,
        on="elem_strides",
        why="the columns of a split tile stand one span apart",
        sets=frozenset({"driver"}),  # libcu++ ignores the innermost step
        after=("RANK", "ELEM_STRIDES_RANK"),
        holds="not is_split or ignores_inner_step or element_strides[0] == 1",
        found=lambda r: f"{words.elem_stride(r, 0)} is {r.arguments.element_strides[0]}",
        must="be 1 with split_inner",
        fix="use 1 to take every element",
        repair=lambda r: {"elem_strides": (*r.arguments.element_strides[:0:-1], 1)},
    ),
    _row(
        id="RAGGED_RANK",
        step=63,
        on="tensor.rank",
        why="a ragged map has two more dimensions",
        after=("RANK", "SPLIT_RANK"),
        holds="not is_ragged or 2 <= rank <= MAX_RANK - 2",
        found=lambda r: f"the tensor has {counted(r.rank, 'dimension')}",
        must=f"have 2 or {MAX_RANK - 2} dimensions: a map has at most {MAX_RANK}, and a ragged one "
        "needs two of them",
        fix="merge dimensions of a contiguous tensor: x.flatten(0, 1) in torch, else x.reshape",
    ),
    _row(
        id="RAGGED_DIM",
        step=64,
        on="ragged",
        why="slices along the innermost dimension would not start at multiples of 16 bytes",
        after=("RANK", "RAGGED_RANK"),
        holds="not is_ragged or 1 <= ragged_dim < rank",
        found=lambda r: f"ragged is {r.ragged} for a tensor of {counted(r.rank, 'dimension')}",
        must=lambda r: (
            "not be the innermost: the slices must start at multiples of 16 bytes"
            if r.facts.ragged_dim == 0
            else f"be {-r.rank}..{r.rank - 1}"
        ),
        asks="be a dimension of the tensor, and not the innermost one",
        fix="pass ragged=0, the dimension of the rows, or transpose the tensor",
        repair=constant(ragged=0),
    ),
    _row(
        id="RAGGED_STRIDE",
        step=65,
        on="ragged",
        why="the strides of the added dimensions are the ragged one, and 2^34 elements less it",
        after=("RANK", "RAGGED_DIM", "STRIDE_INNERMOST", *HAS_TYPE),
        holds="not is_ragged or ragged_stride_bits < RAGGED_STRIDE_END * element_bits",
        found=lambda r: f"{words.stride_found(r, r.facts.ragged_dim)}",
        must=f"be a dimension whose stride is less than {RAGGED_STRIDE_END} elements",
        fix="make one map for each slice",
    ),
)
