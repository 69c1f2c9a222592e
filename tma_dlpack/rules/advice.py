"""What is worth knowing about a call that is accepted: rows, as in `rules`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tma_dlpack.rules.request import Case
from tma_dlpack.rules.rule import MEASURED
from tma_dlpack.types.enums import TmaSwizzle
from tma_dlpack.types.limits import (
    BIT_85_MENDED_IN,
    BIT_85_SMALL_BYTES,
    INNER_BYTES,
    SWIZZLE_SPAN_BYTES,
)

__all__ = ["ADVICE", "AdviceRow", "bank_conflict_degree"]

BANK_LINE_BYTES = 128  # 32 banks of 4 bytes


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """One thing worth knowing: when it applies, what was found, why it matters, what to do."""

    id: str
    on: str
    applies: Callable[[Case], bool]
    found: Callable[[Case], str]
    why: str
    fix: Callable[[Case], str]
    source: str
    kinds: tuple[str, ...] = ("tiled", "im2col", "im2col_wide")


def bank_conflict_degree(pitch_bytes: int, rows: int) -> int:
    """Count how many of 8 rows, read 16 bytes each at one column, meet in one group of banks.

    `ldmatrix` reads 8 such rows in one phase; 1 is free of conflicts, 8 the worst.

    >>> bank_conflict_degree(128, 64), bank_conflict_degree(16, 64)
    (8, 1)
    """
    groups = BANK_LINE_BYTES // math.gcd(pitch_bytes, BANK_LINE_BYTES)
    return -(-min(8, rows) // min(8, groups))


def _inner_bytes(c: Case) -> int:
    return int(c.inner_box_bytes)


def _rows(c: Case) -> int:
    if c.kind != "tiled":
        return c.pixels
    return math.prod(-(-n // s) for n, s in zip(c.box[1:], c.elem_strides[1:], strict=True))


def _row_bytes(c: Case) -> int:
    return int(c.dims[0]) * c.element_bits // 8


def _degree(c: Case) -> int:
    return bank_conflict_degree(_inner_bytes(c), _rows(c))


def _fitting_swizzle(c: Case) -> TmaSwizzle | None:
    for swizzle in (TmaSwizzle.bytes32, TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if _inner_bytes(c) <= SWIZZLE_SPAN_BYTES[swizzle]:
            return swizzle
    return None


def _conflict_fix(c: Case) -> str:
    swizzle = _fitting_swizzle(c)
    if swizzle is not None:
        return f"use swizzle={swizzle.name!r} and read through the same pattern"
    elements = BANK_LINE_BYTES * 8 // c.element_bits
    return f"narrow the box to {elements} elements (128 bytes) and use swizzle='bytes128'"


def _dense(c: Case) -> bool:
    spans = [int(c.nested_bytes(i)) for i in range(1, c.rank)]
    return all(s == n for s, n in zip(c.strides_bytes, spans, strict=True))


def _spanned_bytes(c: Case) -> int:
    outer = zip(c.dims[1:], c.strides_bytes, strict=True)
    return _row_bytes(c) + sum((int(n) - 1) * int(s) for n, s in outer)


ADVICE: tuple[AdviceRow, ...] = (
    AdviceRow(
        id="TARGET_ASSUMED",
        on="target",
        applies=lambda c: c.target_is_assumed,
        found=lambda c: "the tensor is on a GPU, and no driver here can be asked which one",
        why="the map is described for sm_90",
        fix=lambda c: "pass target='sm_90' (or the target that it is for)",
        source="tma_dlpack",
    ),
    AdviceRow(
        id="DIM_OVER_2_31",
        on="tensor",
        kinds=("tiled",),
        applies=lambda c: max(c.dims) > 1 << 31,
        found=lambda c: f"a dimension has {max(c.dims)} elements",
        why="over 2^31 elements the driver encodes the map, and every copy of it dies with an "
        "illegal instruction",
        fix=lambda c: "split the tensor along this dimension, one map per part",
        source=f"{MEASURED}, 2026-11-20",
    ),
    AdviceRow(
        id="STORE_OVERRUN",
        on="tensor",
        applies=lambda c: not c.interleaved and _row_bytes(c) % INNER_BYTES != 0,
        found=lambda c: f"the last dimension spans {_row_bytes(c)} bytes",
        why="stores and reductions write whole chunks of 16 bytes: up to the next multiple of 16, "
        "the bytes past the end of each row are overwritten; loads are exact",
        fix=lambda c: "store only where the padding of each row may be overwritten",
        source=MEASURED,
    ),
    AdviceRow(
        id="COORDINATE_STEP",
        on="tensor",
        applies=lambda c: not c.interleaved and _row_bytes(c) % INNER_BYTES != 0,
        found=lambda c: (
            f"a tile that ends with the row would start at element {int(c.dims[0]) - c.inner_box}"
        ),
        why="the innermost coordinate of every copy must fall on a multiple of 16 bytes, else the "
        "kernel dies",
        fix=lambda c: f"step the innermost coordinate by multiples of {c.inner_unit} elements",
        source=MEASURED,
    ),
    AdviceRow(
        id="BANK_CONFLICTS",
        on="swizzle",
        applies=lambda c: not c.interleaved and not c.swizzle and _degree(c) > 1,
        found=lambda c: (
            f"rows of {_inner_bytes(c)} bytes lie behind each other without swizzle: eight rows "
            f"read at one column conflict {_degree(c)} ways"
        ),
        why="reading a tile by columns, as ldmatrix and wgmma do, is that many times slower",
        fix=_conflict_fix,
        source="CUDA C++ Programming Guide, shared memory: 32 banks of 4 bytes",
    ),
    AdviceRow(
        id="SWIZZLE_PADDING",
        on="swizzle",
        applies=lambda c: not c.interleaved and _inner_bytes(c) < c.span_bytes,
        found=lambda c: (
            f"rows of {_inner_bytes(c)} bytes take {c.span_bytes} bytes each in shared memory"
        ),
        why="the rest of each row is neither written nor counted",
        fix=lambda c: (
            f"widen the box to {c.span_bytes * 8 // c.element_bits} elements, or use a narrower "
            "swizzle"
        ),
        source=MEASURED,
    ),
    AdviceRow(
        id="BIT_85",
        on="target",
        applies=lambda c: (
            c.target.compute_capability >= (10, 0)
            and (c.target.driver_version or 0) < BIT_85_MENDED_IN
            and _spanned_bytes(c) < BIT_85_SMALL_BYTES
            and not _dense(c)
        ),
        found=lambda c: f"a tensor of {_spanned_bytes(c)} bytes that is not dense, on {c.target}",
        why="maps of such tensors can fault on Blackwell with drivers before 13.2; libcu++ clears "
        "bit 85 of tiled maps, and so does encoder='driver' here",
        fix=lambda c: (
            "encode through this package or libcu++, or update the driver"
            if c.kind == "tiled"
            else "update the driver"
        ),
        source="driver 595.71.05 release notes; documented, not measured",
    ),
    AdviceRow(
        id="WIDE_ON_SM_90",
        on="target",
        kinds=("im2col_wide",),
        applies=lambda c: c.target.compute_capability < (10, 0),
        found=lambda c: f"im2col-wide on {c.target}",
        why="the document asks compute capability 10.0; driver 580.159.04 encodes the map on "
        "sm_90, where no instruction reads it",
        fix=lambda c: "use an im2col map on sm_90",
        source="CUDA driver API, cuTensorMapEncodeIm2colWide",
    ),
)
