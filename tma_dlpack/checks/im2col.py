"""Rules on im2col maps: corners, bounding box, channels and pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tma_dlpack.checks import candidates, views, words
from tma_dlpack.checks.box import inner_found, unit_candidates
from tma_dlpack.checks.candidates import Candidate, Candidates
from tma_dlpack.checks.judge import int32
from tma_dlpack.checks.request import Request, in_bytes
from tma_dlpack.checks.rule import BOTH_IM2COL, DRIVER, HAS_TYPE, IM2COL, MEASURED, WIDE, Change
from tma_dlpack.tables import limits
from tma_dlpack.tables.arguments import reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import Rule
from tma_dlpack.tables.limits import INNER_BYTES, MAX_BOX_BYTES

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
    text = f"use {values[i]}, the nearest that fits, or a convolution with a smaller "
    yield Candidate(text + _CAUSES[which], _with_corner(r, which, values))


def _corner_must(r: Request, i: int) -> str:
    return f"be {r.corner_range[0]}..{r.corner_range[-1]} for a tensor of rank {r.rank}"


def _count(rule_id: str, field: str, name: str, end: str, what: str) -> Rule:
    limit: int = getattr(limits, end)

    def value(r: Request) -> int:
        count: int = getattr(r.arguments, name)
        return count

    def _count_candidates(r: Request) -> Iterator[Candidate]:
        more = f", and several copies for more {what}" if value(r) > limit else ""
        return (w._replace(text=w.text + more) for w in candidates.counts(r, name))

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
    pixels = (int32(end) if r.target.has_model else end) - lower
    return (
        f"the bounding box is {counted(pixels, 'pixel')} along {'WHD'[i]} "
        f"({words.extent(r, d)} = {r.arguments.global_dim[d]}, "
        f"upper corner {upper}, lower corner {lower})"
    )


def _only_wraps(r: Request, i: int) -> bool:
    """Whether the bounding box is empty only because the driver's 32-bit sum overflows."""
    size: int = r.arguments.global_dim[r.facts.first_spatial + i]
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
        yield views.parts(r, r.facts.first_spatial + i)
    elif not r.is_driver_call:
        yield _open_bounding_box(r, i)


def _open_bounding_box(r: Request, i: int) -> Iterator[Candidate]:
    """Move the upper corner, or if that is not enough the lower one, to leave one pixel."""
    size, upper, lower = r.spatial_size(i), list(r.corner("upper")), list(r.corner("lower"))
    upper[i] = _nearest(lower[i] + 1 - size, r.corner_range)
    lower[i] = _nearest(min(lower[i], size + upper[i] - 1), r.corner_range)
    change = _with_corner(r, "upper", upper)
    if tuple(lower) != r.corner("lower"):
        change |= _with_corner(r, "lower", lower)
    corners = ", ".join(f"{name}={value}" for name, value in change.items())
    yield Candidate(f"{_bounding_box_fix(r, i)}; the nearest that fit are {corners}", change)


def _with_corner(r: Request, which: str, values: Sequence[int]) -> Change:
    if r.kind == "im2col_wide":
        return {f"{which}_corner_width": values[0]}
    return {f"pixel_box_{which}_corner": reverse(values)}


def _nearest(value: int, valid: range) -> int:
    return max(valid[0], min(value, valid[-1]))


def _column_candidates(r: Request) -> Iterator[Candidate]:
    for candidate in candidates.counts(r, "pixels_per_column"):
        pixels = counted(candidate.change["pixels_per_column"], "pixel")
        text = f"use at most {pixels} per column, or fewer channels per pixel"
        yield candidate._replace(text=text)


# -- rules -----------------------------------------------------------------------------------------

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
        candidates=lambda r, i: [views.parts(r, r.facts.first_spatial + i)],
        source=MEASURED,
    ),
    _count("CHANNELS", "channels", "channels_per_pixel", "MAX_BOX", "channels"),
    _count("PIXELS", "pixels", "pixels_per_column", "MAX_PIXELS", "pixels"),
    # rules of the driver only
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
