"""Rules about the tile of one copy: a tiled map's box, or an im2col map's corners and column.

A column is the tile of an im2col map: `pixels_per_column` pixels of `channels_per_pixel` channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from tma_dlpack.checks import candidates, words
from tma_dlpack.checks.candidates import Candidate, Candidates
from tma_dlpack.checks.judge import int32
from tma_dlpack.checks.request import Request, in_bytes
from tma_dlpack.checks.struct import Change
from tma_dlpack.tables import targets
from tma_dlpack.tables.arguments import KINDS, reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.rule import (
    ALL_BUT_MEASURED,
    BOTH_IM2COL,
    DRIVER,
    HAS_TYPE,
    IM2COL,
    LIBCU,
    MEASURED,
    TILED,
    TILED_ON_SM_90,
    WIDE,
    Rule,
)
from tma_dlpack.tables.targets import INNER_BYTES, MAX_BOX, MAX_BOX_BYTES, PADDED_INNER_VALUES

# -- the box of a tiled map ------------------------------------------------------------------------

# If one of these rules is broken, the number of bytes in a row of the box is not known.
_HAS_INNER = ("RANK", "BOX_RANK", "CHANNELS", *HAS_TYPE, "PACKED_TYPE")


def _box_found(r: Request, i: int) -> str:
    return f"{words.entry(r, 'box_sizes', i)} is {r.facts.box_dim[i]}"


def be_in_shape(r: Request, i: int) -> str:
    """Return the limit of entry i of the box, such as "be at most tensor.shape[0] = 64"."""
    return f"be at most {words.extent(r, i)} = {r.arguments.global_dim[i]}"


def inner_found(r: Request) -> str:
    """Return a sentence that states how many bytes a row of the box spans."""
    return f"{words.inner_box(r)} spans {counted(r.inner_box_bytes, 'byte')}"


def _range_candidates(r: Request, i: int) -> Iterator[Candidates]:
    # A box with an entry below 1 has no elements, so propose the smallest valid entry.
    if r.facts.box_dim[i] < 1:
        yield candidates.box_entries(r, i, "use at least {}".format)
        return
    if i == 0:
        yield candidates.split(r)
    yield candidates.box_entries(r, i, "use {}, and several copies for a larger tile".format)
    # The limit of 256 counts elements, so a row of wider elements, such as int32 instead of uint8,
    # may have more bytes. But a swizzle limits the bytes of a row, so wider elements do not help.
    if i == 0 and not r.facts.interleave and not r.facts.swizzle and not r.asked_type:
        yield (
            candidate
            for bits in range(32, 128, 32)
            for candidate in candidates.viewed(r, bits, "pass {}")
            if not r.is_driver_call and bits > r.tensor.dtype.itemsize_bits
        )


def _shape_candidates(r: Request, i: int) -> Iterator[Candidates]:
    # The driver's arrays are innermost first, so the user may have passed the box in this order.
    turned = words.turned_box(r)
    if turned is not None:
        wording = partial("box_sizes is row-major: did you mean {}?".format, turned)
        yield [Candidate(wording, {"box_sizes": turned}, is_guess=True)]
    yield candidates.allow(r, "BOX_IN_SHAPE")
    yield candidates.box_entries(r, i)


def unit_fix(r: Request) -> str:
    """Return a fix that states which lengths make a row of the box a multiple of 16 bytes."""
    unit = r.inner_unit
    size = counted(unit * r.facts.element_bits // 8, "byte")
    return f"use a multiple of {counted(unit, 'element')} ({size})"


def unit_candidates(r: Request) -> Iterator[Candidates]:
    """Yield boxes whose rows are a multiple of 16 bytes, the nearest length of a row first."""
    yield (
        candidate._replace(wording=partial(_with_nearest, r, candidate))
        for candidate in candidates.box_entries(r, 0)
    )


def _with_nearest(r: Request, candidate: Candidate) -> str:
    # Arguments of the driver's functions are innermost first, and the candidate's box is row-major.
    # So do not print the candidate's box.
    if r.is_driver_call:
        return unit_fix(r)
    return "{}; the nearest that fits is {}={}".format(
        unit_fix(r), *next(iter(candidate.change.items()))
    )


_NARROWER = "narrow it to {} elements and copy in several steps"


def _span_candidates(r: Request) -> Iterator[Candidates]:
    # A row that is not a multiple of 16 bytes must get another length anyway. So propose only other
    # lengths, and no other swizzle.
    if r.facts.inner_box_bits % (8 * INNER_BYTES):
        yield candidates.box_entries(r, 0, _NARROWER.format)
        return
    yield candidates.wider_swizzles(r)
    yield candidates.split(r)
    span = r.span_elements

    def to_one_span() -> str:
        to = f"{counted(span, 'element')} ({r.span_bytes} bytes)"
        return f"narrow it to {to} and copy in several steps"

    yield chain(
        [Candidate(to_one_span, candidates.with_box_entry(r, 0, span))],
        candidates.box_entries(r, 0, _NARROWER.format),
    )
    # A guess, because the kernel must then read the tile in another order.
    yield [Candidate("use swizzle='none'", {"swizzle": TmaSwizzle.none}, is_guess=True)]


_row = partial(Rule, on="box_sizes", kinds=TILED)
_entry_row = partial(_row, step=81, each="d", found=_box_found, libcudacxx="__get_box_sizes")
_inner_row = partial(
    _row, prerequisites=_HAS_INNER, prerequisites_at_entry=("BOX_RANGE",), found=inner_found
)
#: The rules that `_unit_row` makes have a `fix` besides their candidates. If the call has
#: split_inner=True with a data type that cannot be split, every candidate is refused. The report
#: then prints the `fix`.
_unit_row = partial(_inner_row, fix=unit_fix, candidates=unit_candidates)
_bytes_row = partial(
    _row,
    fix="shrink it, and copy in several steps",
    candidates=lambda r: [candidates.shrunk_boxes(r)],
)

# The numbers in the comments below are steps of libcu++. `tensor.py` lists the steps.
BOX_RULES: tuple[Rule, ...] = (
    # 8. box
    _row(
        id="BOX_RANK",
        step=80,
        why="the tile has an extent along each dimension",
        asks="have one entry per dimension of the tensor",
        # The functions `driver_encode_*` read only the first `rank` entries, so this rule does not
        # apply to them.
        sets=frozenset({"libcu++", "driver"}),
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
                    lambda: f"use {PADDED_INNER_VALUES} for {words.inner_box(r)}",
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
    # 10. rules that the driver has and libcu++ does not check
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


# -- the corners and the column of an im2col map ---------------------------------------------------

# Corner -> the sizes of a convolution from which an entry of this corner is computed.
_CAUSES = {"lower": "padding", "upper": "(kernel_size - 1) * dilation - padding"}


def _corner_count(which: str) -> Rule:
    name = f"pixel_box_{which}_corner"
    return Rule(
        id=f"{which.upper()}_CORNER_COUNT",
        step=74,
        on=name,
        why="a corner is an offset along each spatial dimension",
        asks="have one entry per spatial dimension",
        make_only=True,
        kinds=IM2COL,
        prerequisites=("RANK",),
        holds=f"{which}_count == rank - 2",
        found=lambda r: f"{name} has {counted(len(r.corner(which)), 'entry')}",
        must=lambda r: f"have {r.facts.spatial}, one per spatial dimension",
        fix=lambda r: (
            f"pass {counted(r.facts.spatial, 'entry')}, in the order {'DHW'[-r.facts.spatial :]}: "
            "tma.make_conv_descriptor(x, kernel_size, ...) works out both corners, and so does "
            f"tma.im2col_corners for a kernel_size of {counted(r.facts.spatial, 'entry')}"
        ),
        documented=True,
    )


def _corner_range(which: str) -> Rule:
    return Rule(
        id=f"{which.upper()}_CORNER",
        step=75,
        on=f"pixel_box_{which}_corner",
        why="the map stores all entries of a corner in 16 bits",
        asks="be -32768..32767 at rank 3, -128..127 at rank 4, -16..15 at rank 5",
        kinds=BOTH_IM2COL,
        prerequisites=("RANK", f"{which.upper()}_CORNER_COUNT"),
        each="s",
        holds=f"-corner_end <= {which}[s] < corner_end",
        found=lambda r, i: f"{words.corner_entry(r, which, i)} is {r.corner(which)[i]}",
        must=_corner_must,
        fix=f"use a convolution with a smaller {_CAUSES[which]}",
        candidates=lambda r, i: [_clamped_corner(r, which, i)],
        documented=True,
    )


def _clamped_corner(r: Request, which: str, i: int) -> Iterator[Candidate]:
    values = list(r.corner(which))
    values[i] = _nearest(values[i], r.corner_range)
    text = "use {}, the nearest that fits, or a convolution with a smaller {}"
    wording = partial(text.format, values[i], _CAUSES[which])
    yield Candidate(wording, _with_corner(r, which, values))


def _corner_must(r: Request, i: int) -> str:
    return f"be {r.corner_range[0]}..{r.corner_range[-1]} for a tensor of rank {r.rank}"


def _count(rule_id: str, field: str, name: str, end: str, what: str) -> Rule:
    # `end` is the name of a constant in tables/targets.py. The predicate has this name, so the
    # message and the predicate have the same limit.
    limit: int = getattr(targets, end)

    def value(r: Request) -> int:
        count: int = getattr(r.arguments, name)
        return count

    def _count_candidates(r: Request) -> Iterator[Candidate]:
        for candidate in candidates.counts(r, name):
            if value(r) > limit:
                candidate = candidate.reworded(
                    lambda text: f"{text}, and several copies for more {what}"
                )
            yield candidate

    return Rule(
        id=rule_id,
        step=77,
        on=name,
        why=f"the map stores count - 1 in {(limit - 1).bit_length()} bits",
        kinds=BOTH_IM2COL,
        holds=f"1 <= {field} <= {end}",
        found=lambda r: f"{name} is {value(r)}",
        must=f"be 1..{limit}",
        fix=f"use at most {limit}, and several copies for more {what}",
        candidates=lambda r: [_count_candidates(r)],
        documented=True,
    )


def _bounding_box_found(r: Request, i: int) -> str:
    d, upper, lower = r.facts.first_spatial + i, r.corner("upper")[i], r.corner("lower")[i]
    end = r.spatial_size(i) + upper
    # The same arithmetic as in the predicate of BOUNDING_BOX below.
    pixels = (int32(end) if r.target.has_model else end) - lower
    return (
        f"the bounding box is {counted(pixels, 'pixel')} along {'WHD'[i]} "
        f"({words.extent(r, d)} = {r.arguments.global_dim[d]}, "
        f"upper corner {upper}, lower corner {lower})"
    )


def _only_wraps(r: Request, i: int) -> bool:
    """Return whether the bounding box is empty only because the driver's 32-bit sum overflows."""
    size: int = r.arguments.global_dim[r.facts.first_spatial + i]
    # Python's integers do not overflow, so this is the exact number of pixels.
    return size + r.corner("upper")[i] - r.corner("lower")[i] > 0


def _bounding_box_must(r: Request, i: int) -> str:
    if _only_wraps(r, i):
        return (
            "have at least one pixel, where the driver adds in 32-bit integers: size + upper must "
            "be below 2^31"
        )
    return "have at least one pixel along every spatial dimension: size + upper - lower > 0"


def _bounding_box_fix(r: Request, i: int) -> str:
    if _only_wraps(r, i):
        return words.parts_fix(r, r.facts.first_spatial + i)
    return f"{_KERNEL}: tma.im2col_corners(kernel_size, padding, dilation) gives both corners"


_KERNEL = "use a kernel no larger than the padded image"


def _bounding_box_candidates(r: Request, i: int) -> Iterator[Candidates]:
    if _only_wraps(r, i):
        yield candidates.parts(r, r.facts.first_spatial + i)
    elif not r.is_driver_call:
        yield _open_bounding_box(r, i)


def _open_bounding_box(r: Request, i: int) -> Iterator[Candidate]:
    """Yield corners whose bounding box has one pixel along spatial dimension i.

    The lower corner changes only if every valid upper corner leaves the bounding box empty.
    """
    size, upper, lower = r.spatial_size(i), list(r.corner("upper")), list(r.corner("lower"))
    # One pixel: size + upper - lower = 1.
    upper[i] = _nearest(lower[i] + 1 - size, r.corner_range)
    lower[i] = _nearest(min(lower[i], size + upper[i] - 1), r.corner_range)
    change = _with_corner(r, "upper", upper)
    if tuple(lower) != r.corner("lower"):
        change |= _with_corner(r, "lower", lower)

    def wording() -> str:
        corners = ", ".join(f"{name}={value}" for name, value in change.items())
        return f"{_bounding_box_fix(r, i)}; the nearest that fit are {corners}"

    yield Candidate(wording, change)


def _with_corner(r: Request, which: str, values: Sequence[int]) -> Change:
    if r.kind == "im2col_wide":
        return {f"{which}_corner_width": values[0]}
    return {f"pixel_box_{which}_corner": reverse(values)}


def _nearest(value: int, valid: range) -> int:
    return max(valid[0], min(value, valid[-1]))


def _column_candidates(r: Request) -> Iterator[Candidate]:
    for candidate in candidates.counts(r, "pixels_per_column"):
        yield candidate._replace(wording=partial(_fewer_pixels, candidate))


def _fewer_pixels(candidate: Candidate) -> str:
    pixels = counted(candidate.change["pixels_per_column"], "pixel")
    return f"use at most {pixels} per column, or fewer channels per pixel"


IM2COL_RULES: tuple[Rule, ...] = (
    _corner_count("lower"),
    _corner_count("upper"),
    _corner_range("lower"),
    _corner_range("upper"),
    Rule(
        id="BOUNDING_BOX",
        step=76,
        on="pixel_box_upper_corner",
        why="a column starts at a pixel of the bounding box",
        asks="have at least one pixel along every spatial dimension: size + upper - lower > 0",
        kinds=BOTH_IM2COL,
        prerequisites=("RANK", "DIM_RANGE", "LOWER_CORNER_COUNT", "UPPER_CORNER_COUNT"),
        prerequisites_at_entry=("LOWER_CORNER", "UPPER_CORNER"),
        each="s",
        holds="(int32(int32(global_dim[s + first_spatial]) + upper[s]) if has_model else "
        "global_dim[s + first_spatial] + upper[s]) - lower[s] > 0",
        found=_bounding_box_found,
        must=_bounding_box_must,
        fix=_bounding_box_fix,
        candidates=_bounding_box_candidates,
        changes=("pixel_box_upper_corner", "pixel_box_lower_corner"),
        documented=True,
        source=MEASURED,
        differs="the driver adds in 32-bit signed integers, which wrap",
    ),
    Rule(
        id="WIDE_DIMS",
        step=76,
        on="tensor.shape",
        why="the driver takes these extents as signed 32-bit integers",
        kinds=WIDE,
        sets=DRIVER,
        prerequisites=("RANK", "DIM_RANGE"),
        each="s > 0",
        holds="not has_model or int32(global_dim[s + first_spatial]) > 0",
        found=lambda r, i: words.extent_found(r, r.facts.first_spatial + i),
        must="be 1..2^31 - 1 along H and D",
        fix=lambda r, i: words.parts_fix(r, r.facts.first_spatial + i),
        candidates=lambda r, i: [candidates.parts(r, r.facts.first_spatial + i)],
        source=MEASURED,
    ),
    # The second and the fourth argument are the names in the predicate: a field of the struct, and
    # a constant of tables/targets.py.
    _count("CHANNELS", "channels", "channels_per_pixel", "MAX_BOX", "channels"),
    _count("PIXELS", "pixels", "pixels_per_column", "MAX_PIXELS", "pixels"),
    # 10. rules that only the driver has
    Rule(
        id="CHANNELS_16B",
        step=101,
        on="channels_per_pixel",
        why="the hardware copies a pixel in units of 16 bytes",
        kinds=BOTH_IM2COL,
        prerequisites=("CHANNELS", *HAS_TYPE, "PACKED_TYPE"),
        holds="not has_model or inner_box_bits % (8 * INNER_BYTES) == 0",
        found=inner_found,
        must=f"be a multiple of {INNER_BYTES} bytes",
        candidates=unit_candidates,
        source=MEASURED,
        differs="not in the im2col document",
    ),
    Rule(
        id="COLUMN_BYTES",
        step=102,
        on="pixels_per_column",
        why="the driver refuses more than the shared memory of an SM",
        kinds=BOTH_IM2COL,
        prerequisites=("CHANNELS", "PIXELS", *HAS_TYPE, "PACKED_TYPE"),
        holds="not has_model or box_bits <= 8 * MAX_BOX_BYTES",
        found=lambda r: f"a column takes {counted(in_bytes(r.facts.box_bits), 'byte')}",
        must=f"be at most {MAX_BOX_BYTES} bytes (228 KB)",
        fix="use fewer pixels per column, or fewer channels per pixel",
        candidates=lambda r: [_column_candidates(r)],
        source=MEASURED,
        differs="not in the im2col document",
    ),
)
