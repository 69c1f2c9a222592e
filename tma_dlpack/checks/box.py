"""Rules on box_sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from tma_dlpack.checks import candidates, views, words
from tma_dlpack.checks.candidates import Candidate, Candidates
from tma_dlpack.checks.request import Request, in_bytes
from tma_dlpack.checks.rule import (
    ALL_BUT_MEASURED,
    HAS_TYPE,
    LIBCU,
    MEASURED,
    TILED,
    TILED_ON_SM_90,
)
from tma_dlpack.tables.arguments import KINDS
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import Rule
from tma_dlpack.tables.limits import INNER_BYTES, MAX_BOX, MAX_BOX_BYTES, PADDED_INNER_VALUES

_HAS_INNER = ("RANK", "BOX_RANK", "CHANNELS", *HAS_TYPE, "PACKED_TYPE")


def _box_found(r: Request, i: int) -> str:
    return f"{words.entry(r, 'box_sizes', i)} is {r.facts.box_dim[i]}"


def be_in_shape(r: Request, i: int) -> str:
    """Return the limit of an entry that must not exceed the extent of the tensor."""
    return f"be at most {words.extent(r, i)} = {r.arguments.global_dim[i]}"


def inner_found(r: Request) -> str:
    """Return the bytes of a row of the box."""
    return f"{words.inner_box(r)} spans {counted(r.inner_box_bytes, 'byte')}"


def _range_candidates(r: Request, i: int) -> Iterator[Candidates]:
    if r.facts.box_dim[i] < 1:
        yield candidates.box_entries(r, i, "use at least {}")
        return
    if i == 0:
        yield candidates.split(r)
    yield candidates.box_entries(r, i, "use {}, and several copies for a larger tile")
    if i == 0 and not r.facts.interleave and not r.facts.swizzle and not r.asked_type:
        yield (
            candidate
            for bits in range(32, 128, 32)
            for candidate in views.viewed(r, bits, "pass {}")
            if not r.is_driver_call and bits > r.tensor.dtype.itemsize_bits
        )


def _shape_candidates(r: Request, i: int) -> Iterator[Candidates]:
    turned = words.turned_box(r)
    if turned is not None:
        text = f"box_sizes is row-major: did you mean {turned}?"
        yield [Candidate(text, {"box_sizes": turned}, is_guess=True)]
    yield candidates.allow(r, "BOX_IN_SHAPE")
    yield candidates.box_entries(r, i)


def unit_fix(r: Request) -> str:
    """Name the rows of a box that are multiples of 16 bytes."""
    unit = r.inner_unit
    size = counted(unit * r.facts.element_bits // 8, "byte")
    return f"use a multiple of {counted(unit, 'element')} ({size})"


def unit_candidates(r: Request) -> Iterator[Candidates]:
    """Yield rows of the box that are multiples of 16 bytes, the nearest one first."""
    yield (
        candidate._replace(text=_with_nearest(r, candidate))
        for candidate in candidates.box_entries(r, 0)
    )


def _with_nearest(r: Request, candidate: Candidate) -> str:
    if r.is_driver_call:
        return unit_fix(r)
    return "{}; the nearest that fits is {}={}".format(
        unit_fix(r), *next(iter(candidate.change.items()))
    )


def _span_candidates(r: Request) -> Iterator[Candidates]:
    if r.facts.inner_box_bits % (8 * INNER_BYTES):  # the row must change anyway, and may then fit
        yield candidates.box_entries(r, 0, "narrow it to {} elements and copy in several steps")
        return
    yield candidates.wider_swizzles(r)
    yield candidates.split(r)
    span = r.span_elements
    to = f"{counted(span, 'element')} ({r.span_bytes} bytes)"
    yield chain(
        [
            Candidate(
                f"narrow it to {to} and copy in several steps",
                candidates.with_box_entry(r, 0, span),
            )
        ],
        candidates.box_entries(r, 0, "narrow it to {} elements and copy in several steps"),
    )
    yield [Candidate("use swizzle='none'", {"swizzle": TmaSwizzle.none}, is_guess=True)]


# -- rules -----------------------------------------------------------------------------------------

_row = partial(Rule, on="box_sizes", kinds=TILED)
_entry_row = partial(_row, step=81, each="d", found=_box_found, libcudacxx="__get_box_sizes")
_inner_row = partial(
    _row, prerequisites=_HAS_INNER, prerequisites_at_entry=("BOX_RANGE",), found=inner_found
)
#: Has its own fix, because no width of a split box helps if the type can't be split.
_unit_row = partial(_inner_row, fix=unit_fix, candidates=unit_candidates)
_bytes_row = partial(
    _row,
    fix="shrink it, and copy in several steps",
    candidates=lambda r: [candidates.shrunk_boxes(r)],
)

BOX_RULES: tuple[Rule, ...] = (
    # 8. box
    _row(
        id="BOX_RANK",
        step=80,
        why="the tile has an extent along each dimension",
        asks="have one entry per dimension of the tensor",
        sets=frozenset({"libcu++", "driver"}),  # of the driver's arrays, `rank` entries are read
        prerequisites=("RANK",),
        holds="box_count == rank",
        found=lambda r: f"box_sizes has {counted(len(r.arguments.box_dim), 'entry')}",
        must=lambda r: f"have {r.rank}, one per dimension of the tensor",
        libcudacxx="__get_box_sizes",
        candidates=lambda r: [candidates.per_dimension(r, "box_sizes")],
    ),
    _entry_row(
        id="BOX_RANGE",
        why="the map stores size - 1 in 8 bits",
        prerequisites=("RANK", "BOX_RANK"),
        holds="1 <= box_dim[d] <= (MAX_BOX * span_values if is_split and d == 0 else MAX_BOX)",
        must=lambda r, i: (
            f"be 1..{MAX_BOX * r.facts.span_values if r.facts.is_split and i == 0 else MAX_BOX}"
        ),
        asks=f"be 1..{MAX_BOX}",
        changes=("split_inner", "box_sizes"),
        candidates=_range_candidates,
        documented=True,
    ),
    _entry_row(
        id="BOX_IN_SHAPE",
        why="libcu++ requires that a tile fits into the tensor; the driver does not",
        asks="be at most the extent of the tensor",
        sets=LIBCU,
        prerequisites=("RANK", "BOX_RANK"),
        prerequisites_at_entry=("BOX_RANGE", "DIM_RANGE"),
        holds="box_dim[d] <= global_dim[d]",
        must=be_in_shape,
        changes=("allow", "box_sizes"),
        candidates=_shape_candidates,
        differs="the driver accepts larger boxes; the rest of the tile is filled",
        if_allowed="fills the part of the tile outside the tensor",
    ),
    _unit_row(
        id="BOX_INNER_16B",
        step=82,
        why="the hardware copies a row of the tile in units of 16 bytes",
        asks="have an innermost entry that spans a multiple of 16 bytes when interleave_layout is "
        "none",
        holds="interleave != 0 or inner_box_bits % (8 * INNER_BYTES) == 0",
        must=lambda r: (
            f"be a multiple of {INNER_BYTES} bytes when "
            f"{words.argument(r, 'interleave_layout')} is none"
        ),
        libcudacxx="__get_box_sizes",
        documented=True,
    ),
    _row(
        id="BOX_PACKED",
        step=82,
        kinds=KINDS,
        why="the driver API documents only rows of 128 values for the types padded to 16 bytes",
        asks="have an innermost entry of 128 for the types padded to 16 bytes",
        sets=ALL_BUT_MEASURED,
        prerequisites=_HAS_INNER,
        holds="not is_padded or inner_box == PADDED_INNER_VALUES",
        found=lambda r: f"{words.inner_box(r)} is {counted(r.facts.inner_box, 'value')}",
        must=lambda r: f"be {PADDED_INNER_VALUES} for {r.type_row.data_type.name}",
        documented=True,
        changes=("box_sizes", "data_type"),
        candidates=lambda r: [
            [
                Candidate(
                    f"use {PADDED_INNER_VALUES} for {words.inner_box(r)}",
                    candidates.with_box_entry(r, 0, PADDED_INNER_VALUES),
                )
            ],
            candidates.data_types(r),
        ],
    ),
    _inner_row(
        id="BOX_SWIZZLE_SPAN",
        step=83,
        kinds=KINDS,
        why="the swizzle pattern is one span wide",
        asks="have an innermost entry that spans at most the span of the swizzle: 32, 64 or 128 "
        "bytes",
        holds="interleave != 0 or swizzle == 0 or inner_box_bits <= span_bits",
        must=lambda r: f"be at most {r.span_bytes} bytes with swizzle {r.swizzle.name}",
        changes=("swizzle", "split_inner", "box_sizes"),
        candidates=_span_candidates,
        libcudacxx="__get_box_sizes",
        documented=True,
        differs="libcu++'s page says when interleaved; its code and the driver, when not",
    ),
    _bytes_row(
        id="BOX_SMEM",
        step=84,
        why="a block could not hold the tile in its shared memory",
        asks="fit the shared memory of a block on the target",
        sets=LIBCU,
        prerequisites=(*_HAS_INNER, "BOX_RANGE"),
        holds="box_bits <= 8 * max_smem_bytes",
        found=lambda r: f"the box takes {counted(in_bytes(r.facts.box_bits), 'byte')}",
        must=lambda r: (
            f"fit the {r.target.max_smem_bytes} bytes of shared memory of a block on {r.target}"
        ),
        libcudacxx="__get_box_sizes",
    ),
    # 10. what only the driver requires
    _unit_row(
        id="BOX_INNER_16B_INTERLEAVED",
        step=101,
        why="the driver requires it for every layout",
        sets=TILED_ON_SM_90,
        holds="interleave == 0 or not has_model or inner_box_bits % (8 * INNER_BYTES) == 0",
        must=f"be a multiple of {INNER_BYTES} bytes for the driver, interleaved or not",
        source=MEASURED,
        differs="libcu++ and the documentation require it only when not interleaved",
    ),
    _bytes_row(
        id="BOX_BYTES",
        step=102,
        why="the driver refuses more than the shared memory of an SM",
        sets=TILED_ON_SM_90,
        prerequisites=(
            *_HAS_INNER,
            "BOX_RANGE",
            "BOX_SMEM",
            "ELEM_STRIDES_RANK",
            "ELEM_STRIDES_RANGE",
        ),
        holds="not has_model or floor_box_bits <= 8 * MAX_BOX_BYTES",
        found=lambda r: (
            f"the driver counts {counted(r.facts.floor_box_bits // 8, 'byte')} for the box"
        ),
        must=f"be at most {MAX_BOX_BYTES} bytes (228 KB)",
        source=MEASURED,
    ),
)
