"""Advice on accepted calls, such as bank conflicts.

Each advice is a row, which is an instance of `Rule`. The advice is reported if the predicate
`holds` of the row is false.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tma_dlpack.checks import candidates, words
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import row_major_strides
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.bits import ALLOCATION_CLASS, FIELDS
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import PADDED_TYPES
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import Advice
from tma_dlpack.tables.rule import MEASURED, Rule
from tma_dlpack.tables.targets import (
    BIT_85_MENDED_IN,
    BIT_85_SMALL_BYTES,
    INNER_BYTES,
    PACKED_GROUP,
    SWIZZLE_SPAN_BYTES,
)

BANK_LINE_BYTES = 128  # 32 banks of 4 bytes


def bank_conflict_degree(pitch_bytes: int, rows: int) -> int:
    """Return the degree of bank conflicts if 8 rows of a tile are read at once, 16 bytes per row.

    One phase of `ldmatrix` makes such a read, at the same offset in every row. The rows start
    `pitch_bytes` apart. If the tile has fewer than 8 `rows`, all its rows are read. Degree 1 means
    no conflict, and 8 is the worst.

    >>> bank_conflict_degree(128, 64), bank_conflict_degree(16, 64)
    (8, 1)
    """
    # Row i starts at byte (i * pitch_bytes) % 128 of the 128 bytes of the banks. These starts
    # repeat after `groups` rows, so `groups` is the number of different starts.
    groups = BANK_LINE_BYTES // math.gcd(pitch_bytes, BANK_LINE_BYTES)
    # 16 bytes take 4 of the 32 banks, so 8 rows with different starts take all banks.
    return -(-min(8, rows) // min(8, groups))


def _inner_bytes(r: Request) -> int:
    """Return how many bytes a row of the box takes in shared memory.

    For padded types, this includes the gaps between the values.
    """
    if r.data_type in PADDED_TYPES:
        return int(r.facts.inner_box) * r.type_row.smem_chunk_bytes // PACKED_GROUP
    return int(r.inner_box_bytes)


def _rows(r: Request) -> int:
    # A tile of an im2col map has one row per pixel.
    return math.prod(_tile(r)[:-1]) if r.kind == "tiled" else r.arguments.pixels_per_column


def _degree(r: Request) -> int:
    return bank_conflict_degree(_inner_bytes(r), _rows(r))


def _fitting_swizzle(r: Request) -> TmaSwizzle | None:
    """Return the narrowest swizzle whose span holds a row of the box, or None.

    Padded types allow only bytes128.
    """
    for swizzle in (TmaSwizzle.bytes32, TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        allowed = r.data_type not in PADDED_TYPES or swizzle is TmaSwizzle.bytes128
        if allowed and _inner_bytes(r) <= SWIZZLE_SPAN_BYTES[swizzle]:
            return swizzle
    return None


def _padding_fix(r: Request) -> str:
    widen = f"widen the box to {r.span_bytes * 8 // r.facts.element_bits} elements"
    swizzle = _fitting_swizzle(r)
    # Only a swizzle with a narrower span saves padding. Rows without a swizzle have no padding.
    if swizzle is None or SWIZZLE_SPAN_BYTES[swizzle] >= r.span_bytes:
        swizzle = TmaSwizzle.none
    if r.kind == "im2col_wide" and swizzle is not TmaSwizzle.bytes64:
        return widen  # im2col-wide maps have no swizzle narrower than bytes64
    return f"{widen}, or use swizzle={swizzle.name!r}"


def _conflict_fix(r: Request) -> str:
    swizzle = _fitting_swizzle(r)
    if swizzle is not None:
        return f"use swizzle={swizzle.name!r} and read through the same pattern"
    elements = BANK_LINE_BYTES * 8 // r.facts.element_bits
    return f"narrow the box to {elements} elements (128 bytes) and use swizzle='bytes128'"


def _dense(r: Request) -> bool:
    # A dimension has no gap if its stride equals the bits that the inner dimensions span.
    c = r.facts
    return all(c.stride_bits[d - 1] == c.inside_bits[d] for d in range(1, r.rank))


def spanned_bytes(arguments: EncodeArguments) -> int:
    """Return the number of bytes from a map's first element to the end of its last element."""
    outer = zip(arguments.global_dim[1:], arguments.global_strides, strict=True)
    return arguments.row_bytes + sum((int(n) - 1) * int(s) for n, s in outer)


def _beyond_bytes(r: Request) -> tuple[int, int]:
    """Return how many bytes the map covers before and after the tensor's own memory."""
    # `own` is None if the call has none of shape=, strides= and offset=. Such a map has the
    # tensor's layout, which cannot leave the tensor's memory.
    if r.view is None or r.view.own is None:
        return 0, 0
    end = r.view.offset_bytes + r.view.extent_bytes
    return max(0, -r.view.offset_bytes), max(0, end - r.view.own.extent_bytes)


def _beyond_found(r: Request) -> str:
    before, after = _beyond_bytes(r)
    parts = []
    if before:
        parts.append(f"{counted(before, 'byte')} before the tensor's first element")
    if after:
        parts.append(f"{counted(after, 'byte')} after the tensor's last element")
    return f"the map describes {' and '.join(parts)}"


def _meant_strides(r: Request) -> tuple[int, ...] | None:
    """Return the strides that the user may have meant, in elements, or None.

    `strides=` counts elements. The user probably passed `strides=` in bytes if two conditions hold.
    First, the map leaves the tensor's memory. Second, if the values were bytes, they would be the
    tensor's own strides or row-major strides.
    """
    if r.view is None or r.view.own is None or not any(_beyond_bytes(r)):
        return None
    strides = words.strides_in_elements(r)
    return strides if strides in (r.view.own.strides, row_major_strides(r.view.shape)) else None


def _tile(r: Request) -> tuple[int, ...]:
    """Return how many elements a copy transfers along each dimension, in row-major order.

    The TMA engine ignores the innermost element stride unless the layout is interleaved.
    """
    steps = r.arguments.element_strides
    # Innermost first, as in the driver's arrays; the last line of this function reverses the order.
    steps = steps if r.arguments.interleave else (1, *steps[1:])
    return tuple(-(-n // s) for n, s in zip(r.arguments.box_dim, steps, strict=True))[::-1]


_row = partial(Rule, group="advice")

ADVICE: tuple[Rule, ...] = (
    _row(
        id="TARGET_ASSUMED",
        on="target",
        holds=lambda r: not r.target_is_assumed,
        found="the tensor is on a GPU, but there is no driver to ask which one",
        limit="the map is made for sm_90",
        fix="pass target='sm_90', or the GPU that the map is for",
        source="tma_dlpack",
    ),
    _row(
        id="BEYOND_TENSOR",
        on="tensor.shape",
        holds=lambda r: not any(_beyond_bytes(r)),
        found=_beyond_found,
        limit="making such a map is legal, because it reads no memory; but a copy of bytes outside "
        "the tensor's memory reads or overwrites other data, or faults",
        fix="copy only tiles whose elements all lie in the tensor's memory",
        source="tma_dlpack: shape=, strides= and offset= are not checked against the tensor's "
        "memory",
    ),
    _row(
        id="STRIDES_IN_BYTES",
        on="tensor.strides",
        holds=lambda r: _meant_strides(r) is None,
        found=lambda r: (
            f"strides look like bytes: they lead beyond the tensor, and in elements would be "
            f"{_meant_strides(r)}, its own or those of rows without gaps"
        ),
        limit="strides= is in elements of the tensor's dtype",
        fix=lambda r: f"pass strides={_meant_strides(r)}",
        source="tma_dlpack: strides=",
    ),
    _row(
        id="CHANNELS_BEYOND",
        on="channels_per_pixel",
        kinds=("im2col", "im2col_wide"),
        # Dimension 0 of an interleaved map is W, not the channels.
        holds=lambda r: r.arguments.interleave or r.facts.inner_box <= r.arguments.global_dim[0],
        found=lambda r: (
            f"channels_per_pixel is {r.facts.inner_box}, and the last dimension of the tensor, the "
            f"channels, has {r.arguments.global_dim[0]}"
        ),
        limit="the rest of each pixel is filled, and is read as more channels",
        fix=lambda r: (
            candidates.channels_last_hint(r)
            or f"use at most {r.arguments.global_dim[0]}, unless the kernel expects the fill"
        ),
        source="PTX ISA, tensor copies in im2col mode; measured, H200",
    ),
    _row(
        id="ADDRESS_ZERO",
        on="tensor.address",
        holds=lambda r: not r.is_driver_call or r.address != 0,
        found="global_address is 0",
        limit="the driver encodes such a map (a driver of 2023 did not), but there is no tensor",
        fix="set the address before the first copy: tma.driver_replace_address(tm, address)",
        source=f"{MEASURED}, 2026-11-21",
    ),
    _row(
        id="ELEM_STRIDES_TILE",
        on="elem_strides",
        kinds=("tiled",),
        holds=lambda r: _tile(r) == r.arguments.box_dim[::-1],
        found=lambda r: (
            f"a box of {r.arguments.box_dim[::-1]} with elem_strides "
            f"{r.arguments.element_strides[::-1]} gives a tile of {_tile(r)} elements"
        ),
        limit="box_sizes counts the elements that the box spans in the tensor, and the copy takes "
        "every elem_strides-th of them: ceil(box_sizes / elem_strides)",
        fix="for a tile of as many elements as box_sizes, multiply it by elem_strides",
        source=f"CUDA driver API, cuTensorMapEncodeTiled; {MEASURED}",
    ),
    _row(
        id="DIM_OVER_2_31",
        on="tensor",
        kinds=("tiled",),
        holds=lambda r: max(r.arguments.global_dim) <= 1 << 31,
        found=lambda r: f"a dimension has {max(r.arguments.global_dim)} elements",
        limit="the driver encodes the map, but with over 2^31 elements along a dimension every "
        "copy is an illegal instruction",
        fix=lambda r: words.parts_fix(r, r.arguments.global_dim.index(max(r.arguments.global_dim))),
        source=f"{MEASURED}, 2026-11-20",
    ),
    _row(
        id="STORE_OVERRUN",
        on="tensor",
        holds=lambda r: r.arguments.interleave or r.arguments.row_bytes % INNER_BYTES == 0,
        found=lambda r: f"the last dimension spans {r.arguments.row_bytes} bytes",
        limit="stores and reductions write whole chunks of 16 bytes: they overwrite the bytes past "
        "the end of each row, up to the next multiple of 16; loads are exact",
        fix="store only if the padding after each row may be overwritten",
        source=MEASURED,
    ),
    _row(
        id="COORDINATE_STEP",
        on="tensor",
        holds=lambda r: r.arguments.interleave or r.arguments.row_bytes % INNER_BYTES == 0,
        found=lambda r: (
            "a tile that ends with the row would start at element "
            f"{int(r.arguments.global_dim[0]) - r.facts.inner_box}"
        ),
        limit="the innermost coordinate of every copy must be at a multiple of 16 bytes; otherwise "
        "the copy is an illegal instruction",
        fix=lambda r: f"step the innermost coordinate by multiples of {r.inner_unit} elements",
        source=MEASURED,
    ),
    _row(
        id="BANK_CONFLICTS",
        on="swizzle",
        holds=lambda r: r.arguments.interleave or r.arguments.swizzle or _degree(r) == 1,
        found=lambda r: (
            f"rows of {_inner_bytes(r)} bytes without swizzle: eight rows read at one column have "
            f"{_degree(r)}-way bank conflicts"
        ),
        limit="reading a tile by columns, as ldmatrix does, is slower by that factor",
        fix=_conflict_fix,
        source="CUDA C++ Programming Guide, shared memory: 32 banks of 4 bytes",
    ),
    _row(
        id="NARROW_ROWS",
        on="box_sizes",
        kinds=("tiled",),
        holds=lambda r: (
            r.arguments.interleave
            or _inner_bytes(r) > INNER_BYTES
            # If a row of the tensor itself has 16 bytes or fewer, no wider box exists.
            or r.arguments.row_bytes <= INNER_BYTES
        ),
        found=lambda r: f"rows of {_inner_bytes(r)} bytes",
        limit="copies of boxes with rows of 16 bytes reach 0.43 of a memcpy's speed; 32 bytes 0.62 "
        "to 0.76, 128 bytes 0.9",
        fix=lambda r: (
            f"widen the box to {8 * 128 // r.facts.element_bits} elements (128 bytes) where the "
            "kernel can use them; tma.suggest lists boxes by speed"
        ),
        source=f"{MEASURED}, 2026-11-22",
    ),
    _row(
        id="SWIZZLE_PADDING",
        on="swizzle",
        holds=lambda r: r.arguments.interleave or _inner_bytes(r) >= r.span_bytes,
        found=lambda r: (
            f"rows of {_inner_bytes(r)} bytes take {r.span_bytes} bytes each in shared memory"
        ),
        limit="copies do not write the rest of each row, and tx_bytes does not count it",
        fix=_padding_fix,
        source=MEASURED,
    ),
    _row(
        id="BIT_85",
        on="target",
        holds=lambda r: (
            r.target.compute_capability < (10, 0)
            or (r.target.driver_version or 0) >= BIT_85_MENDED_IN
            # The allocation class LARGE is right for a tensor of 128 KiB or more.
            or spanned_bytes(r.arguments) >= BIT_85_SMALL_BYTES
            or _dense(r)
        ),
        found=lambda r: (
            f"a tensor of {spanned_bytes(r.arguments)} bytes that is not dense, on {r.target}"
        ),
        limit="maps of such tensors can fault on Blackwell with drivers before 13.2, which set "
        "their allocation class to LARGE (bit 85); libcu++ clears the bit in tiled maps, and so "
        "does encoder='driver' here",
        fix=lambda r: (
            "make the tensor dense; or pad its allocation to 128 KiB; or update the driver to CUDA "
            "13.2 or later, whose maps are right (from 13.5 cuTensorMapSetAllocationClass sets the "
            "class)"
            + ("; or use encoder='driver' or libcu++, which clear the bit" * (r.kind == "tiled"))
        ),
        source="driver 595.71.05 release notes; CUTLASS 4.7 (dense tensors), flashinfer#4319 "
        "(padding), cuda.h of CUDA 13.5 (allocation class); documented, not measured",
    ),
    _row(
        id="WIDE_ON_SM_90",
        on="target",
        kinds=("im2col_wide",),
        holds=lambda r: r.target.has_wide,
        found=lambda r: f"im2col-wide on {r.target}",
        limit="the documentation requires compute capability 10.0; driver 580.159.04 encodes the "
        "map on sm_90, which has no instruction that uses it",
        fix="on sm_90 use tma.make_im2col_descriptor, or tma.driver_encode_im2col",
        source="CUDA driver API, cuTensorMapEncodeIm2colWide",
    ),
)


_ALLOCATION_CLASS_BIT = next(field for field in FIELDS if field.name == "bit_85")

#: Advice on the 128 bytes of any map, also of a map that other software made. `holds` and `found`
#: receive the pair (`EncodeArguments` of the map, its 128 bytes).
MAP_ADVICE: tuple[Rule, ...] = (
    _row(
        id="ALLOCATION_CLASS",
        on="data",
        holds=lambda m: (
            not _ALLOCATION_CLASS_BIT.read(m[1]) or spanned_bytes(m[0]) >= BIT_85_SMALL_BYTES
        ),
        found=lambda m: f"bit 85 is set, and the map spans {counted(spanned_bytes(m[0]), 'byte')}",
        limit=ALLOCATION_CLASS,
        fix="make the map again: make_tma_descriptor never sets the bit for so small a tensor; or "
        "allocate at least 128 KiB",
        source="CUDA 13.5, cuTensorMapSetAllocationClass; documented, not run",
    ),
)


def _advice(row: Rule, argument: str, facts: Any) -> Advice:
    found, limit = words.found_and_limit(row, facts)
    return Advice(row.id, argument, found, limit, words.row_text(row.fix, facts), row.source)


def advise_map(arguments: EncodeArguments, data: bytes) -> tuple[Advice, ...]:
    """Return the advice on the 128 bytes of a map."""
    m = arguments, data
    return tuple(
        _advice(row, str(row.on), m)
        for row in MAP_ADVICE
        if not row.holds(m)  # type: ignore[operator]
    )


#: The only advice whose predicate reads the address.
ADDRESS_ADVICE = tuple(row for row in ADVICE if row.id == "ADDRESS_ZERO")


def advise(request: Request, rows: tuple[Rule, ...] = ADVICE) -> tuple[Advice, ...]:
    """Return the advice on an accepted request."""
    return tuple(
        _advice(row, words.argument(request, str(row.on)), request)
        for row in rows
        if request.kind in row.kinds and not row.holds(request)  # type: ignore[operator]
    )
