"""Corners, bounding box, channels and pixels: what is asked of an im2col column."""

from __future__ import annotations

from collections.abc import Iterable

from tma_dlpack.rules import repairs
from tma_dlpack.rules.request import Case
from tma_dlpack.rules.rule import COLUMNS, DRIVER, IM2COL, IM2COL_DOC, MEASURED, WIDE, Rule
from tma_dlpack.rules.tile import inner_fix
from tma_dlpack.types.coerce import counted
from tma_dlpack.types.limits import INNER_BYTES, MAX_BOX, MAX_BOX_BYTES, MAX_PIXELS

__all__ = ["IM2COL_RULES"]


def _spatial(c: Case) -> Iterable[int]:
    return range(1 if c.kind == "im2col_wide" else c.spatial)


def _corner_count(which: str) -> Rule:
    name = f"pixel_box_{which}_corner"
    return Rule(
        id=f"{which.upper()}_CORNER_COUNT",
        step=74,
        on=name,
        kinds=IM2COL,
        needs=("RANK", name),
        holds=lambda c, i: len(getattr(c, which)) == c.spatial,
        found=lambda c, i: f"{name} has {counted(len(getattr(c, which)), 'entry')}",
        must=lambda c, i: f"have {c.spatial}, one per spatial dimension",
        fix=lambda c, i: (
            f"give {counted(c.spatial, 'entry')}, row-major as the tensor: (D, H, W), (H, W) or "
            "(W,); im2col_corners() makes both corners"
        ),
        source=IM2COL_DOC,
        repair=repairs.corner_count(which),
    )


def _corner_range(which: str) -> Rule:
    return Rule(
        id=f"{which.upper()}_CORNER",
        step=75,
        on=f"pixel_box_{which}_corner",
        kinds=COLUMNS,
        places=_spatial,
        needs=("RANK", f"{which.upper()}_CORNER_COUNT", f"pixel_box_{which}_corner", "target"),
        holds=lambda c, i: _fits_signed(getattr(c, which)[i], c.corner_bits),
        found=lambda c, i: f"{c.say_corner(which, i)} is {getattr(c, which)[i]}",
        must=_corner_must,
        fix=lambda c, i: "use a smaller kernel, padding or dilation, or a lower rank",
        source=IM2COL_DOC,
        repair=repairs.corner_range(which),
    )


def _fits_signed(value: int, bits: int) -> bool:
    half = 1 << (bits - 1)
    return -half <= value < half


def _corner_must(c: Case, i: int) -> str:
    half = 1 << (c.corner_bits - 1)
    return f"be {-half}..{half - 1} for a tensor of rank {c.rank}"


def _count(name: str, attribute: str, limit: int, what: str) -> Rule:
    def value(c: Case) -> int:
        count: int = getattr(c, attribute)
        return count

    return Rule(
        id=attribute.upper(),
        step=77,
        on=name,
        kinds=COLUMNS,
        needs=(name,),
        holds=lambda c, i: 1 <= value(c) <= limit,
        found=lambda c, i: f"{name} is {value(c)}",
        must=f"be 1..{limit}",
        fix=lambda c, i: (
            f"use {limit}, and several copies for more {what}"
            if value(c) > limit
            else "use at least 1"
        ),
        source=IM2COL_DOC,
        repair=repairs.clamp_count(name, attribute, limit),
    )


def _bounding_box_found(c: Case, i: int) -> str:
    size = f"{c.say_dim(c.first_spatial + i)} = {c.dims[c.first_spatial + i]}"
    return (
        f"the bounding box is {counted(c.bounding_box_extent(i), 'pixel')} along {'WHD'[i]} "
        f"({size}, upper corner {c.upper[i]}, lower corner {c.lower[i]})"
    )


def _only_wraps(c: Case, i: int) -> bool:
    """Say whether the bounding box is empty only because the driver's 32 bits wrap."""
    return c.dims[c.first_spatial + i] + c.upper[i] - c.lower[i] > 0


def _bounding_box_must(c: Case, i: int) -> str:
    if _only_wraps(c, i):
        return (
            "have at least one pixel as the driver adds in 32-bit integers: size + upper must be "
            "below 2^31"
        )
    return "have at least one pixel along every spatial dimension: size + upper - lower > 0"


def _bounding_box_fix(c: Case, i: int) -> str:
    if _only_wraps(c, i):
        return f"split the tensor along {'WHD'[i]}, one map per part"
    return "use a kernel no larger than the padded image; im2col_corners() makes both corners"


def _column_fix(c: Case, i: int) -> str:
    pixels = repairs.shrink_column(c, 0)["pixels_per_column"]
    return f"use at most {counted(pixels, 'pixel')} per column, or fewer channels per pixel"


IM2COL_RULES: tuple[Rule, ...] = (
    _corner_count("lower"),
    _corner_count("upper"),
    _corner_range("lower"),
    _corner_range("upper"),
    Rule(
        id="BOUNDING_BOX",
        step=76,
        on="pixel_box_upper_corner",
        kinds=COLUMNS,
        places=_spatial,
        needs=(
            "RANK",
            "DIM_RANGE",
            "LOWER_CORNER_COUNT",
            "UPPER_CORNER_COUNT",
            "pixel_box_lower_corner",
            "pixel_box_upper_corner",
            "interleave_layout",
            "target",
        ),
        needs_here=("LOWER_CORNER[i]", "UPPER_CORNER[i]"),
        holds=lambda c, i: c.bounding_box_extent(i) > 0,
        found=_bounding_box_found,
        must=_bounding_box_must,
        fix=_bounding_box_fix,
        source=f"{IM2COL_DOC}; {MEASURED}",
        differs="the driver adds in 32-bit signed integers, which wrap",
        repair=repairs.open_bounding_box,
    ),
    Rule(
        id="WIDE_DIMS",
        step=76,
        on="tensor.shape",
        kinds=WIDE,
        sets=DRIVER,
        places=lambda c: range(1, c.spatial),
        needs=("RANK", "DIM_RANGE", "interleave_layout", "target"),
        applies=lambda c: c.target.has_model,
        holds=lambda c, i: c.spatial_size(i) > 0,
        found=lambda c, i: f"{c.say_dim(c.first_spatial + i)} is {c.dims[c.first_spatial + i]}",
        must="be 1..2^31 - 1 along H and D",
        fix=lambda c, i: "split the tensor along this dimension, one map per part",
        source=MEASURED,
    ),
    _count("channels_per_pixel", "channels", MAX_BOX, "channels"),
    _count("pixels_per_column", "pixels", MAX_PIXELS, "pixels"),
    # what the driver asks beyond
    Rule(
        id="CHANNELS_16B",
        step=101,
        on="channels_per_pixel",
        kinds=COLUMNS,
        needs=("CHANNELS", "channels_per_pixel", "data_type", "PACKED_TYPE", "target"),
        applies=lambda c: c.target.has_model,
        holds=lambda c, i: c.inner_box_bytes % INNER_BYTES == 0,
        found=lambda c, i: f"{c.say_inner()} spans {counted(c.inner_box_bytes, 'byte')}",
        must=f"be a multiple of {INNER_BYTES} bytes",
        fix=inner_fix,
        source=MEASURED,
        differs="not in the im2col document",
        repair=repairs.inner_box,
    ),
    Rule(
        id="COLUMN_BYTES",
        step=102,
        on="pixels_per_column",
        kinds=COLUMNS,
        needs=(
            "CHANNELS",
            "PIXELS",
            "channels_per_pixel",
            "pixels_per_column",
            "data_type",
            "PACKED_TYPE",
            "target",
        ),
        applies=lambda c: c.target.has_model,
        holds=lambda c, i: c.box_bytes <= MAX_BOX_BYTES,
        found=lambda c, i: f"a column takes {counted(c.box_bytes, 'byte')}",
        must=f"be at most {MAX_BOX_BYTES} bytes (228 KB)",
        fix=_column_fix,
        source=MEASURED,
        differs="not in the im2col document",
        repair=repairs.shrink_column,
    ),
)
