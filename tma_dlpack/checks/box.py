"""Rules on box_sizes."""

from __future__ import annotations

from functools import partial

from tma_dlpack.checks import words
from tma_dlpack.checks.request import Request, in_bytes
from tma_dlpack.checks.rule import (
    ALL_BUT_MEASURED,
    HAS_TYPE,
    LIBCU,
    MEASURED,
    TILED,
    TILED_ON_SM_90,
    Change,
    Repair,
)
from tma_dlpack.tables.arguments import KINDS, reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import Rule
from tma_dlpack.tables.limits import (
    INNER_BYTES,
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_RANK,
    PADDED_INNER_VALUES,
    SWIZZLE_SPAN_BYTES,
)

_HAS_INNER = ("RANK", "BOX_RANK", "CHANNELS", *HAS_TYPE, "PACKED_TYPE")


def _box_found(r: Request, i: int) -> str:
    return f"{words.entry(r, 'box_sizes', i)} is {r.arguments.box_dim[i]}"


def be_in_shape(r: Request, i: int) -> str:
    """Give the limit of an entry that must not exceed the extent of the tensor."""
    return f"be at most {words.extent(r, i)} = {r.arguments.global_dim[i]}"


def inner_found(r: Request) -> str:
    """Give the bytes of a row of the box."""
    return f"{words.inner_box(r)} spans {counted(r.inner_box_bytes, 'byte')}"


def _fitting(r: Request, i: int) -> int:
    """Give the nearest valid entry i of the box: along dimension 0, a multiple of 16 bytes."""
    in_units = i == 0 and r.type_is_known and not r.arguments.interleave
    whole = whole_units(r) if in_units else {}
    box: tuple[int, ...] = (whole or _clamp_box(r, i))["box_sizes"]
    return box[r.rank - 1 - i]


def _range_fix(r: Request, i: int) -> str:
    if r.arguments.box_dim[i] < 1:
        return f"use at least {_fitting(r, i)}"
    wider = words.wider_hint(r) if i == 0 else ""
    return f"use {_fitting(r, i)}, and several copies for a larger tile{wider}"


def _box_rank_fix(r: Request) -> str:
    size = "row-major; 1 for dimensions that a tile does not extend along"
    if r.is_driver_call:
        return f"give {counted(r.rank, 'entry')}, {size}"
    box = entries("box_sizes")(r)["box_sizes"]
    return f"pass {counted(r.rank, 'entry')}, such as box_sizes={box}, {size}"


def inner_fix(r: Request) -> str:
    """Name the rows of a box that are multiples of 16 bytes, and the nearest one."""
    change = whole_units(r)
    if r.is_driver_call or not change:
        nearest = ""
    else:
        nearest = "; the nearest that fits is {}={}".format(*next(iter(change.items())))
    unit = r.inner_unit
    size = counted(unit * r.facts.element_bits // 8, "byte")
    return f"use a multiple of {counted(unit, 'element')} ({size}){nearest}"


def _span_fix(r: Request) -> str:
    span = counted(r.span_elements, "element")
    narrow = f"narrow it to {span} ({r.span_bytes} bytes) and copy in several steps"
    split = _split_hint(r)
    swizzle = _wider_swizzle(r)
    if swizzle is not None:
        return f"use swizzle={swizzle.name!r}, or {narrow}{split}"
    return f"{narrow}, or use swizzle='none'{split}"


def _split_hint(r: Request) -> str:
    """Give the call that copies a wide tile at once; "" if the row is not whole spans."""
    a, span = r.arguments, r.span_elements
    can_split = r.kind == "tiled" and not r.is_driver_call and r.is_own_layout and r.rank < MAX_RANK
    if not can_split or r.type_row.is_packed or a.box_dim[0] % span or a.global_dim[0] % span:
        return ""
    box = reverse(a.box_dim)
    return (
        "; or copy it at once: tma.make_tma_descriptor(x, **tma.split_inner(x, "
        f"box_sizes={box}, swizzle={a.swizzle.name!r}))"
    )


def _shrink_fix(r: Request) -> str:
    place, value = _shrunk(r)
    entry = f"{words.entry(r, 'box_sizes', place)} from {r.arguments.box_dim[place]} to {value}"
    return f"shrink {entry}, and copy in several steps"


# -- repairs ---------------------------------------------------------------------------------------


def nearest(value: int, valid: range) -> int:
    """Return the valid value that is nearest."""
    return max(valid[0], min(value, valid[-1]))


def with_entry(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Replace entry i of a driver-order tuple; return it row-major."""
    return reverse((*values[:i], int(value), *values[i + 1 :]))


def with_inner(r: Request, value: int) -> Change:
    """Set the row of the box, or the channels."""
    if r.kind == "tiled":
        return {"box_sizes": with_entry(r.arguments.box_dim, 0, value)}
    return {"channels_per_pixel": int(value)}


def valid_entry(r: Request, i: int, limit: int, within: str) -> range:
    """Return the valid values of entry i of a box or of elem_strides, considering no other entry.

    `within` is the rule that keeps it within the shape.
    """
    extent = int(r.arguments.global_dim[i]) if r.has_rule(within) else limit
    return range(1, max(1, min(limit, extent)) + 1)


def _clamp_box(r: Request, i: int) -> Change:
    """Clamp entry i to 1..256, and to the shape if a rule requires it."""
    limit = MAX_BOX * r.facts.span_values if r.split_inner and i == 0 else MAX_BOX
    valid = valid_entry(r, i, limit, "BOX_IN_SHAPE")
    return {"box_sizes": with_entry(r.arguments.box_dim, i, nearest(r.arguments.box_dim[i], valid))}


def whole_units(r: Request) -> Change:
    """Choose the nearest multiple of 16 bytes that the shape and the swizzle allow."""
    most = valid_entry(r, 0, MAX_BOX, "BOX_IN_SHAPE")[-1]
    if r.arguments.swizzle and not r.arguments.interleave:
        most = min(most, r.span_elements)
    unit = r.inner_unit
    if most < unit:
        return {}
    half_up = (2 * r.facts.inner_box + unit) // (2 * unit)
    return with_inner(r, unit * nearest(half_up, range(1, most // unit + 1)))


def _wider_swizzle(r: Request) -> TmaSwizzle | None:
    """Return the narrowest swizzle that is wide enough for the row of the box, or None."""
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if r.inner_box_bytes <= SWIZZLE_SPAN_BYTES[swizzle]:
            return swizzle
    return None


def _fit_span(r: Request) -> Change:
    """Choose a swizzle that is wide enough for the row; if none is, narrow the row.

    A row of channels that must become a multiple of 16 bytes anyway may then fit as it is.
    """
    if r.kind != "tiled" and r.target.has_model and r.inner_box_bytes % INNER_BYTES:
        return whole_units(r)
    swizzle = _wider_swizzle(r)
    return with_inner(r, r.span_elements) if swizzle is None else {"swizzle": swizzle}


def _shrunk(r: Request) -> tuple[int, int]:
    """Find the entry to shrink so that the limit of bytes holds: its index and new value.

    The largest outer one. libcu++ limits the bytes of the box, and the driver those of the box
    divided by the element strides, rounded down.
    """
    a, facts = r.arguments, r.facts
    place = max(range(1, r.rank), key=lambda k: a.box_dim[k], default=0)
    place = place if a.box_dim[place] > 1 else 0
    limit_bits = 8 * r.target.max_smem_bytes
    if r.has_rule("BOX_SMEM") and facts.box_bits > limit_bits:
        bits, step = facts.box_bits, 1
    else:
        bits, limit_bits = facts.floor_box_bits, 8 * MAX_BOX_BYTES
        is_ignored = place == 0 and facts.ignores_inner_step
        step = 1 if is_ignored else a.element_strides[place]
    entries_that_fit = limit_bits * (a.box_dim[place] // step) // bits
    unit = r.inner_unit if place == 0 else 1
    most = min(a.box_dim[place] - 1, entries_that_fit * step + step - 1)
    return place, most // unit * unit or 1


def entries(argument: str) -> Repair:
    """Make a list as long as the tensor's rank: add outer entries of 1, or drop outer entries."""

    def repair(r: Request) -> Change:
        values = reverse(
            r.arguments.box_dim if argument == "box_sizes" else r.arguments.element_strides
        )
        kept = values[max(0, len(values) - r.rank) :]
        return {argument: (1,) * (r.rank - len(kept)) + kept}

    return repair


# -- rules -----------------------------------------------------------------------------------------

_row = partial(Rule, on="box_sizes", kinds=TILED)
_entry_row = partial(
    _row, step=81, each="d", found=_box_found, libcudacxx="__get_box_sizes", repair=_clamp_box
)
_inner_row = partial(
    _row, after=_HAS_INNER, after_here=("BOX_RANGE",), found=inner_found, repair=whole_units
)
_bytes_row = partial(
    _row,
    fix=_shrink_fix,
    repair=lambda r: {"box_sizes": with_entry(r.arguments.box_dim, *_shrunk(r))},
)

BOX_RULES: tuple[Rule, ...] = (
    # 8. box
    _row(
        id="BOX_RANK",
        step=80,
        why="the tile has an extent along each dimension",
        asks="have one entry per dimension of the tensor",
        sets=frozenset({"libcu++", "driver"}),  # of the driver's arrays, `rank` entries are read
        after=("RANK",),
        holds="box_count == rank",
        found=lambda r: f"box_sizes has {counted(len(r.arguments.box_dim), 'entry')}",
        must=lambda r: f"have {r.rank}, one per dimension of the tensor",
        fix=_box_rank_fix,
        libcudacxx="__get_box_sizes",
        repair=entries("box_sizes"),
    ),
    _entry_row(
        id="BOX_RANGE",
        why="the map stores size - 1 in 8 bits",
        after=("RANK", "BOX_RANK"),
        holds="1 <= box_dim[d] <= (MAX_BOX * span_values if is_split and d == 0 else MAX_BOX)",
        must=lambda r, i: (
            f"be 1..{MAX_BOX * r.facts.span_values if r.split_inner and i == 0 else MAX_BOX}"
        ),
        asks=f"be 1..{MAX_BOX}",
        fix=_range_fix,
        documented=True,
    ),
    _entry_row(
        id="BOX_IN_SHAPE",
        why="libcu++ requires that a tile fits into the tensor; the driver does not",
        asks="be at most the extent of the tensor",
        sets=LIBCU,
        after=("RANK", "BOX_RANK"),
        after_here=("BOX_RANGE", "DIM_RANGE"),
        holds="box_dim[d] <= global_dim[d]",
        must=be_in_shape,
        fix=lambda r, i: f"{words.box_order_hint(r)}use {_fitting(r, i)}",
        differs="the driver accepts larger boxes; the rest of the tile is filled",
    ),
    _inner_row(
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
        fix=inner_fix,
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
        after=_HAS_INNER,
        holds="not is_padded or inner_box == PADDED_INNER_VALUES",
        found=lambda r: f"{words.inner_box(r)} is {counted(r.facts.inner_box, 'value')}",
        must=lambda r: f"be {PADDED_INNER_VALUES} for {r.type_row.data_type.name}",
        fix=lambda r: f"use {PADDED_INNER_VALUES} for {words.inner_box(r)}",
        documented=True,
        repair=lambda r: with_inner(r, PADDED_INNER_VALUES),
    ),
    _inner_row(
        id="BOX_SWIZZLE_SPAN",
        step=83,
        kinds=KINDS,
        why="the swizzle pattern is one span wide",
        asks="have an innermost entry that spans at most the span of the swizzle: 32, 64 or 128 "
        "bytes",
        holds="interleave != 0 or swizzle == 0 or inner_box_bits <= span_bits",
        must=lambda r: f"be at most {r.span_bytes} bytes with swizzle {r.arguments.swizzle.name}",
        fix=_span_fix,
        libcudacxx="__get_box_sizes",
        documented=True,
        differs="libcu++'s page says when interleaved; its code and the driver, when not",
        repair=_fit_span,
    ),
    _bytes_row(
        id="BOX_SMEM",
        step=84,
        why="a block could not hold the tile in its shared memory",
        asks="fit the shared memory of a block on the target",
        sets=LIBCU,
        after=(*_HAS_INNER, "BOX_RANGE"),
        holds="box_bits <= 8 * max_smem_bytes",
        found=lambda r: f"the box takes {counted(in_bytes(r.facts.box_bits), 'byte')}",
        must=lambda r: (
            f"fit the {r.target.max_smem_bytes} bytes of shared memory of a block on {r.target}"
        ),
        libcudacxx="__get_box_sizes",
    ),
    # 10. what only the driver requires
    _inner_row(
        id="BOX_INNER_16B_INTERLEAVED",
        step=101,
        why="the driver requires it for every layout",
        sets=TILED_ON_SM_90,
        holds="interleave == 0 or not has_model or inner_box_bits % (8 * INNER_BYTES) == 0",
        must=f"be a multiple of {INNER_BYTES} bytes for the driver, interleaved or not",
        fix=inner_fix,
        source=MEASURED,
        differs="libcu++ and the documentation require it only when not interleaved",
    ),
    _bytes_row(
        id="BOX_BYTES",
        step=102,
        why="the driver refuses more than the shared memory of an SM",
        sets=TILED_ON_SM_90,
        after=(*_HAS_INNER, "BOX_RANGE", "BOX_SMEM", "ELEM_STRIDES_RANK", "ELEM_STRIDES_RANGE"),
        holds="not has_model or floor_box_bits <= 8 * MAX_BOX_BYTES",
        found=lambda r: (
            f"the driver counts {counted(r.facts.floor_box_bits // 8, 'byte')} for the box"
        ),
        must=f"be at most {MAX_BOX_BYTES} bytes (228 KB)",
        source=MEASURED,
    ),
)
