"""Candidate fixes of a call: their type, and the ones that pass other arguments.

The `candidates` of a rule are its alternatives, the best first. Each alternative is an iterable of
candidates, the nearest first. `repairs.py` runs the judge on each candidate and proposes the
accepted ones, so the text of a fix and `Report.fixed` always agree. No candidate depends on the
rule that it fixes.
Candidates with another tensor are in `views.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from tma_dlpack.checks import words
from tma_dlpack.checks.layout import OtherTensor
from tma_dlpack.checks.options import PLACES
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import Change
from tma_dlpack.tables.arguments import OPTION_NAMES, reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import DATA_TYPES, DataTypeRow, data_type_of, overrides_of
from tma_dlpack.tables.enums import DLDataTypeCode, TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.limits import (
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_ELEM_STRIDE,
    MAX_PIXELS,
    MAX_RANK,
    SWIZZLE_SPAN_BYTES,
)


class Candidate(NamedTuple):
    """A candidate fix: its text, the arguments to pass instead, and another tensor if it needs one.

    `Report.fixed` ignores candidates with other memory, and guesses (texts that ask what was meant,
    or that make another map).
    """

    text: str
    change: Change
    view: OtherTensor | None = None
    is_guess: bool = False

    @property
    def is_other_tensor(self) -> bool:
        """Whether the fix describes other memory."""
        return self.view is not None or not PLACES.isdisjoint(self.change)


Candidates = Iterable[Candidate]


# -- arguments -------------------------------------------------------------------------------------


def members(r: Request, name: str, first: Sequence[int] = ()) -> Iterator[Candidate]:
    """Yield the other members of an option: `first`, then wider ones, then narrower ones."""
    old = getattr(r.arguments, OPTION_NAMES[name])
    enum: type[IntEnum] = type(old)
    order = (*first, *range(old + 1, len(enum)), *range(old - 1, -1, -1))
    for member in map(enum, dict.fromkeys(n for n in order if n != old)):
        yield Candidate(f"use {words.argument(r, name)}={member.name!r}", {name: member})


def wider_swizzles(r: Request) -> Iterator[Candidate]:
    """Yield the swizzles of 64 and 128 bytes that are wider than the current one."""
    span_bytes = r.span_bytes
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if SWIZZLE_SPAN_BYTES[swizzle] > span_bytes:
            yield Candidate(f"use swizzle={swizzle.name!r}", {"swizzle": swizzle})


def split(r: Request) -> Iterator[Candidate]:
    """Yield the split of the innermost dimension, which copies a wide tile at once."""
    if not r.is_driver_call and r.kind == "tiled" and r.facts.has_swizzle and not r.facts.is_split:
        columns = "" if r.facts.swizzle else " as columns of 16 bytes"
        yield Candidate(
            f"pass split_inner=True, to copy it at once{columns}", {"split_inner": True}
        )


def allow(r: Request, rule_id: str) -> Iterator[Candidate]:
    """Yield the call without a rule that only libcu++ has."""
    if rule_id not in r.allowed and not r.is_driver_call:
        allowed = (*sorted(r.allowed), rule_id)
        yield Candidate(f"pass allow={allowed}", {"allow": allowed})


def _nearest_first(old: int, values: Iterable[int]) -> list[int]:
    """Return values by their distance from `old`; of two at one distance the larger first."""
    return sorted({n for n in values if n != old}, key=lambda n: (abs(n - old), -n))


def box_entries(r: Request, i: int, text: str = "use {}") -> Iterator[Candidate]:
    """Yield other values of entry i of the box, or of the channels: the nearest first.

    The candidates lie at the limits, and at the multiples of 16 bytes around the value.
    """
    # `unit` keeps the inner row at a multiple of 16 bytes; a split counts whole spans.
    c, most, unit = r.facts, MAX_BOX, 1
    old = c.box_dim[i] if r.kind == "tiled" else c.channels
    if i == 0:
        unit = c.span_values if c.is_split else r.inner_unit
        most *= c.span_values if c.is_split else 1
    extent = c.global_dim[i] if i < r.rank else most
    # The likely values: each limit, rounded to a unit, and the units around the old value.
    limits = [most, min(extent, most), c.packed_unit]
    if i == 0 and c.span_bits:
        limits.append(r.span_elements)
    ends = [limit // unit * unit for limit in limits]
    around = [] if abs(old) > most else [old // unit * unit, -(-old // unit) * unit]
    # The driver of a target without a model may accept a single element.
    in_units = r.target.has_model or (r.kind == "tiled" and not c.interleave)
    for n in _nearest_first(old, (*ends, *around, unit if in_units else 1)):
        if 1 <= n <= most:
            yield Candidate(text.format(n), with_box_entry(r, i, n))


def with_box_entry(r: Request, i: int, value: int) -> Change:
    """Return the change of entry i of the box (innermost first), or of the channels."""
    if r.kind != "tiled":
        return {"channels_per_pixel": int(value)}
    # The struct holds five entries; a tensor of more dimensions keeps its whole box.
    box = r.options.box_sizes[::-1] if r.rank > MAX_RANK else r.box_dim
    return {"box_sizes": with_entry(box, i, value)}


def with_entry(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Return a driver-order tuple in row-major order, with entry i replaced."""
    return (*values[:i], int(value), *values[i + 1 :])[::-1]


def shrunk_boxes(r: Request) -> Iterator[Candidate]:
    """Yield boxes of fewer bytes: the largest outer entry is shrunk, or if that is not enough is 1.

    libcu++ limits the bytes of the box. The driver limits the bytes of the box divided by the
    element strides, rounded down.
    """
    box, bits = list(r.arguments.box_dim), r.facts.element_bits
    # A copy of every n-th element takes 1/n of the box; an interleaved inner step is ignored.
    steps = [*r.arguments.element_strides, *[1] * len(box)][: len(box)]
    if r.facts.ignores_inner_step:
        steps[:1] = [1]
    for i in (*sorted(range(1, len(box)), key=lambda d: -box[d]), 0):
        # The largest values that fit shared memory, and the driver's limit of a box.
        unit, fitting = r.inner_unit if i == 0 else 1, set()
        for limit_bytes, by in ((r.target.max_smem_bytes, [1] * len(box)), (MAX_BOX_BYTES, steps)):
            pairs = enumerate(zip(box, by, strict=False))
            others = math.prod(n // max(1, step) for d, (n, step) in pairs if d != i)
            step = max(1, by[i])
            fits = 8 * limit_bytes // (bits * others) * step + step - 1 if others else 0
            units = min(box[i] - 1, fits) // unit
            fitting.add(unit << units.bit_length() - 1 if units else 0)  # tiles are powers of two
        for n in sorted(fitting - {0}, reverse=True):
            change = {"box_sizes": with_entry(tuple(box), i, n)}
            what = f"shrink {words.entry(r, 'box_sizes', i)} from {box[i]} to {n}"
            if tuple(box) != r.arguments.box_dim:
                what = f"use {words.argument(r, 'box_sizes')}={change['box_sizes']}"
            yield Candidate(f"{what}, and copy in several steps", change)
        box[i] = 1


def per_dimension(r: Request, name: str) -> Iterator[Candidate]:
    """Yield a list that is as long as the rank: with outer entries of 1, or without outer ones.

    It is a guess where an entry other than 1 is dropped.
    """
    driver_name = "box_dim" if name == "box_sizes" else "element_strides"
    values = reverse(getattr(r.arguments, driver_name))
    excess = max(0, len(values) - r.rank)
    dropped, kept = values[:excess], values[excess:]
    value = (1,) * (r.rank - len(kept)) + kept
    text = f"pass {counted(len(value), 'entry')}, row-major, such as {name}={value}"
    yield Candidate(text, {name: value}, is_guess=any(n != 1 for n in dropped))


def elem_strides(r: Request, i: int) -> Iterator[Candidate]:
    """Yield other values of entry i of elem_strides: the nearest first."""
    steps = r.arguments.element_strides
    extent = int(r.arguments.global_dim[i])
    for n in _nearest_first(steps[i], (1, MAX_ELEM_STRIDE, min(extent, MAX_ELEM_STRIDE))):
        if n >= 1:
            what = {1: " to take every element", MAX_ELEM_STRIDE: ", the largest step"}.get(n, "")
            yield Candidate(f"use {n}{what}", {"elem_strides": with_entry(steps, i, n)})


def data_types(r: Request) -> Iterator[Candidate]:
    """Yield the types that the same bits may have.

    Of padded values the unpadded type first, then the tensor's own type, then the others.
    """
    if r.is_driver_call:
        return
    row, others = r.type_row, [t for t in overrides_of(r.tensor.dtype) if t is not r.data_type]
    unpadded = [t for t in others if row.is_padded and _is_like(row, DATA_TYPES[t])]
    for t in (*unpadded, None, *others):
        if t is None and r.asked_type is None:
            continue
        own = data_type_of(r.tensor.dtype) if t is None else t
        bits = r.tensor.dtype.itemsize_bits if own is None else DATA_TYPES[own].element_bits
        change = box_in(r, bits, or_bits=bits)
        text = f"omit data_type{',' * bool(change)}{with_options(change)}"
        if t is not None:
            why = "copies do not change the bits"
            if r.tensor.dtype.code == DLDataTypeCode.kDLInt:
                why = f"TMA copies bits, so {r.tensor.dtype} values arrive unchanged"
            text = f"pass data_type={t.name!r}{with_options(change)}: {why}"
        yield Candidate(text, {"data_type": t} | change)


def with_options(change: Change) -> str:
    """Return the words for arguments to pass too."""
    named = [f"{name}={value}" for name, value in change.items()]
    return f" with {' and '.join(named)}" if named else ""


def box_in(r: Request, bits: int, or_bits: int) -> Change:
    """Return the box in as many bytes of elements of other `bits`, rounded up.

    The boxes of packed types count values, the others elements of the tensor. Where maps have no
    type for it, its own elements have `or_bits`.
    """
    old = r.facts.element_bits if r.type_is_known else or_bits
    if old == bits or (r.kind == "tiled" and not r.facts.box_count):
        return {}
    inner = r.facts.box_dim[0] if r.kind == "tiled" else r.facts.channels
    return with_box_entry(r, 0, -(-inner * old // bits))


def _is_like(row: DataTypeRow, other: DataTypeRow) -> bool:
    return row.element_bits == other.element_bits and not other.is_padded


def carriers(r: Request) -> Iterator[Candidate]:
    """Yield the types of whole bytes that carry the tensor's bits."""
    return (w for w in data_types(r) if not _is_packed(w.change["data_type"]))


def _is_packed(data_type: TensorMapDataType | None) -> bool:
    return data_type is not None and DATA_TYPES[data_type].is_packed


def targets(name: str, text: str, is_guess: bool = False) -> Iterator[Candidate]:
    """Yield another target."""
    yield Candidate(text, {"target": name}, is_guess=is_guess)


def counts(r: Request, name: str) -> Iterator[Candidate]:
    """Yield other channels per pixel, or pixels per column: the nearest first."""
    if name == "channels_per_pixel":
        yield from box_entries(r, 0)
        return
    old, fits = r.facts.pixels, MAX_PIXELS
    if r.facts.box_bits > 0 < old:
        fits = max(1, 8 * MAX_BOX_BYTES * old // r.facts.box_bits)
    for n in _nearest_first(old, (1, MAX_PIXELS, min(MAX_PIXELS, fits))):
        yield Candidate(f"use {n}", {name: n})


def moved(r: Request, offset: int) -> Iterator[Candidate]:
    """Yield the same description of the memory from another offset=."""
    text = f"use an offset whose address is a multiple of {r.facts.alignment_bytes} bytes"
    yield Candidate(f"{text}; the nearest before is offset={offset}", {"offset": offset})


def described(strides: tuple[int, ...], text: str) -> Iterator[Candidate]:
    """Yield the same description of the memory with other strides=."""
    yield Candidate(
        text.format(f"strides={strides}"), {"strides": strides}, is_guess=text.endswith("?")
    )
