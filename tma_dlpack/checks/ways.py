"""Ways to mend a call: another argument, or another tensor, and the words for it.

The `ways` of a row are its alternatives, the best first; each is an iterable of tries, the nearest
first. `repairs.py` asks the judge of each try what would remain, and proposes what is accepted: the
sentence of a fix and `Report.fixed` are the same answer. Nothing here knows which rule it mends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from tma_dlpack.checks import words
from tma_dlpack.checks.request import PLACES, Request, Seen
from tma_dlpack.checks.rule import Change
from tma_dlpack.dlpack import canonical_strides, row_major_strides, words_of
from tma_dlpack.tables.arguments import OPTION_NAMES, reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import (
    DATA_TYPES,
    DataTypeRow,
    DLDataType,
    data_type_of,
    overrides_of,
)
from tma_dlpack.tables.enums import DLDataTypeCode, TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.limits import (
    INNER_BYTES,
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_ELEM_STRIDE,
    MAX_PIXELS,
    SWIZZLE_SPAN_BYTES,
)

NUMPY_ALIGNS = 16  # bytes: alignment of numpy.empty and x.copy()
_FRESH = 1 << 20  # where a copy is supposed to lie, aligned as its framework allocates


class Way(NamedTuple):
    """One thing to do: the words, the arguments to pass instead, and the tensor if another one.

    `Report.fixed` takes no other memory and no guess: words that ask what was meant, or that mean
    another map.
    """

    text: str
    change: Change
    view: Seen | None = None
    is_guess: bool = False

    @property
    def is_other_tensor(self) -> bool:
        """Whether it reads other memory."""
        return self.view is not None or not PLACES.isdisjoint(self.change)


Tries = Iterable[Way]


# -- arguments -------------------------------------------------------------------------------------


def members(r: Request, name: str, first: Sequence[int] = ()) -> Iterator[Way]:
    """Yield the other members of an option: `first`, then wider ones, then narrower ones."""
    old = getattr(r.arguments, OPTION_NAMES[name])
    enum: type[IntEnum] = type(old)
    order = (*first, *range(old + 1, len(enum)), *range(old - 1, -1, -1))
    for member in map(enum, dict.fromkeys(n for n in order if n != old)):
        yield Way(f"use {words.argument(r, name)}={member.name!r}", {name: member})


def wider_swizzles(r: Request) -> Iterator[Way]:
    """Yield the swizzles of 64 and 128 bytes that are wider than the current one."""
    span_bytes = r.span_bytes
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if SWIZZLE_SPAN_BYTES[swizzle] > span_bytes:
            yield Way(f"use swizzle={swizzle.name!r}", {"swizzle": swizzle})


def split(r: Request) -> Iterator[Way]:
    """Yield the split of the innermost dimension, which copies a wide tile at once."""
    if not r.is_driver_call and r.kind == "tiled" and r.facts.swizzle and not r.facts.is_split:
        yield Way("pass split_inner=True, to copy it at once", {"split_inner": True})


def allow(r: Request, rule_id: str) -> Iterator[Way]:
    """Yield the call without a rule that only libcu++ has."""
    if rule_id not in r.allowed and not r.is_driver_call:
        allowed = (*sorted(r.allowed), rule_id)
        yield Way(f"pass allow={allowed} to skip this rule of libcu++", {"allow": allowed})


def _nearest_first(old: int, values: Iterable[int]) -> list[int]:
    """Return values in the order of their distance, the larger first of two."""
    return sorted({n for n in values if n != old}, key=lambda n: (abs(n - old), -n))


def box_entries(r: Request, i: int, text: str = "use {}") -> Iterator[Way]:
    """Yield other values of entry i of the box, or of the channels: the nearest first.

    The candidates lie at the limits, and at the multiples of 16 bytes around the value.
    """
    c, most, unit = r.facts, MAX_BOX, 1
    old = c.box_dim[i] if r.kind == "tiled" else c.channels
    if i == 0:
        unit = c.span_values if c.is_split else r.inner_unit
        most *= c.span_values if c.is_split else 1
    extent = c.global_dim[i] if i < r.rank else most
    limits = [most, min(extent, most), c.packed_unit]
    if i == 0 and c.span_bits:
        limits.append(r.span_elements)
    ends = [limit // unit * unit for limit in limits]
    around = [] if abs(old) > most else [old // unit * unit, -(-old // unit) * unit]
    in_units = r.target.has_model or (r.kind == "tiled" and not c.interleave)
    for n in _nearest_first(old, (*ends, *around, unit if in_units else 1)):
        if 1 <= n <= most:
            yield Way(text.format(n), with_box_entry(r, i, n))


def with_box_entry(r: Request, i: int, value: int) -> Change:
    """Set entry i of the box, row-major, or the channels."""
    if r.kind != "tiled":
        return {"channels_per_pixel": int(value)}
    return {"box_sizes": with_entry(r.box_dim, i, value)}


def with_entry(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Replace entry i of a driver-order tuple; return it row-major."""
    return (*values[:i], int(value), *values[i + 1 :])[::-1]


def shrunk_boxes(r: Request) -> Iterator[Way]:
    """Yield boxes of fewer bytes: the largest outer entry is shrunk, or if that is not enough is 1.

    libcu++ limits the bytes of the box, and the driver those of the box divided by the element
    strides, rounded down.
    """
    box, bits = list(r.arguments.box_dim), r.facts.element_bits
    steps = [*r.arguments.element_strides, *[1] * len(box)][: len(box)]
    if r.facts.ignores_inner_step:
        steps[:1] = [1]
    for i in (*sorted(range(1, len(box)), key=lambda d: -box[d]), 0):
        unit, fitting = r.inner_unit if i == 0 else 1, set()
        for limit_bytes, by in ((r.target.max_smem_bytes, [1] * len(box)), (MAX_BOX_BYTES, steps)):
            pairs = enumerate(zip(box, by, strict=False))
            others = math.prod(n // max(1, step) for d, (n, step) in pairs if d != i)
            step = max(1, by[i])
            fits = 8 * limit_bytes // (bits * others) * step + step - 1 if others else 0
            fitting.add(min(box[i] - 1, fits) // unit * unit)
        for n in sorted(fitting - {0}, reverse=True):
            change = {"box_sizes": with_entry(tuple(box), i, n)}
            what = f"shrink {words.entry(r, 'box_sizes', i)} from {box[i]} to {n}"
            if tuple(box) != r.arguments.box_dim:
                what = f"use {words.argument(r, 'box_sizes')}={change['box_sizes']}"
            yield Way(f"{what}, and copy in several steps", change)
        box[i] = 1


def per_dimension(r: Request, name: str) -> Iterator[Way]:
    """Yield a list that is as long as the rank: with outer entries of 1, or without outer ones."""
    driver_name = "box_dim" if name == "box_sizes" else "element_strides"
    values = reverse(getattr(r.arguments, driver_name))
    kept = values[max(0, len(values) - r.rank) :]
    value = (1,) * (r.rank - len(kept)) + kept
    text = f"pass {counted(len(value), 'entry')}, row-major, such as {name}={value}"
    yield Way(text, {name: value})


def elem_strides(r: Request, i: int) -> Iterator[Way]:
    """Yield other values of entry i of elem_strides: the nearest first."""
    steps = r.arguments.element_strides
    extent = int(r.arguments.global_dim[i])
    for n in _nearest_first(steps[i], (1, MAX_ELEM_STRIDE, min(extent, MAX_ELEM_STRIDE))):
        if n >= 1:
            what = {1: " to take every element", MAX_ELEM_STRIDE: ", the largest step"}.get(n, "")
            yield Way(f"use {n}{what}", {"elem_strides": with_entry(steps, i, n)})


def stepped(r: Request, i: int) -> Iterator[Way]:
    """Yield every n-th element of the tensor itself, instead of a step of the copy."""
    step = r.arguments.element_strides[i]
    if not is_own(r) or r.kind != "tiled" or i == 0 or step < 1 or r.facts.box_count != r.rank:
        return
    d = r.rank - 1 - i
    shape, strides = list(r.tensor.shape), list(r.tensor.strides)
    shape[d], strides[d] = -(-shape[d] // step), strides[d] * step
    box, steps = list(reverse(r.arguments.box_dim)), list(reverse(r.arguments.element_strides))
    box[d], steps[d] = max(1, -(-box[d] // step)), 1
    change: Change = {"box_sizes": tuple(box), "elem_strides": tuple(steps)}
    if all(n == 1 for n in steps):
        change["elem_strides"] = (1,) * len(steps)
    yield Way(
        f"step the tensor itself: pass x[{':, ' * d}::{step}] with box_sizes={tuple(box)} and "
        f"elem_strides={change['elem_strides']}",
        change,
        _seen(r, tuple(shape), tuple(strides)),
    )


def data_types(r: Request) -> Iterator[Way]:
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
        change = _box_in(r, row.element_bits if r.type_is_known else bits, bits)
        named = "".join(f" with {name}={value}" for name, value in change.items())
        text = f"omit data_type{',' * bool(named)}{named}"
        if t is not None:
            text = f"pass data_type={t.name!r}{named}: copies do not change the bits"
        yield Way(text, {"data_type": t} | change)


def _box_in(r: Request, old: int, bits: int) -> Change:
    """Return the box of elements of `old` bits in as many bytes of other elements, rounded up.

    The boxes of packed types count values, the others elements of the tensor.
    """
    if old == bits or (r.kind == "tiled" and not r.facts.box_count):
        return {}
    return with_box_entry(r, 0, -(-r.arguments.inner_box * old // bits))


def _is_like(row: DataTypeRow, other: DataTypeRow) -> bool:
    return row.element_bits == other.element_bits and not other.is_padded


def carriers(r: Request) -> Iterator[Way]:
    """Yield the types of whole bytes that carry the tensor's bits."""
    return (w for w in data_types(r) if not _is_packed(w.change["data_type"]))


def _is_packed(data_type: TensorMapDataType | None) -> bool:
    return data_type is not None and DATA_TYPES[data_type].is_packed


def targets(name: str, text: str, is_guess: bool = False) -> Iterator[Way]:
    """Yield another target."""
    yield Way(text, {"target": name}, is_guess=is_guess)


def counts(r: Request, name: str) -> Iterator[Way]:
    """Yield other channels per pixel, or pixels per column: the nearest first."""
    a, c = r.arguments, r.facts
    if name == "channels_per_pixel":
        yield from box_entries(r, 0)
        return
    old, fits = a.pixels_per_column, MAX_PIXELS
    if c.box_bits > 0 < old:
        fits = max(1, 8 * MAX_BOX_BYTES * old // c.box_bits)
    for n in _nearest_first(old, (1, MAX_PIXELS, min(MAX_PIXELS, fits))):
        yield Way(f"use {n}", {name: n})


# -- another tensor over the same memory -----------------------------------------------------------


def is_own(r: Request) -> bool:
    """Whether the fix may be another tensor: of a `make_*` call that describes no other layout."""
    return not r.is_driver_call and r.is_own_layout and not r.keeps_tensor


def _seen(
    r: Request,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DLDataType | None = None,
    address: int | None = None,
) -> Seen:
    return Seen(r.address if address is None else address, dtype or r.tensor.dtype, shape, strides)


def permuted(r: Request, order: Sequence[int], text: str) -> Iterator[Way]:
    """Yield the tensor with its dimensions in another order, and the box in that order."""
    if list(order) == list(range(r.rank)):
        return
    change: Change = {}
    if r.kind == "tiled":
        for name, values in (
            ("box_sizes", r.arguments.box_dim),
            ("elem_strides", r.arguments.element_strides),
        ):
            rows = reverse(values)
            if len(rows) == r.rank and any(n != rows[0] for n in rows):
                change[name] = tuple(rows[d] for d in order)
    change |= _ragged_after(r, order) or {}
    named = [f"{name}={value}" for name, value in change.items()]
    code = words_of(r.tensor).permute.format(order=", ".join(map(str, order)))
    options = f" with {' and '.join(named)}" if named else ""
    shape = tuple(r.tensor.shape[d] for d in order)
    strides = tuple(r.tensor.strides[d] for d in order)
    yield Way(text.format(f"{code}{options}"), change, _seen(r, shape, strides))


def _ragged_after(r: Request, kept: Sequence[int | None]) -> Change | None:
    """Return ragged= for a tensor of these of the dimensions, None for others; None if it is lost.

    `kept` has the old dimension for each of the new ones.
    """
    if r.rare.ragged is None or not -r.rank <= r.rare.ragged < r.rank:
        return {}
    dim = r.rare.ragged % r.rank
    return {"ragged": list(kept).index(dim)} if dim in kept else None


def reshaped(
    r: Request,
    code: str,
    kept: Sequence[int | None],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    text: str,
) -> Iterator[Way]:
    """Yield the tensor with other dimensions over the same elements, and a box for it.

    `kept` has the dimension that each of them was, None where it was none. Slices of any length are
    taken along one that is kept.
    """
    change = _ragged_after(r, kept)
    if change is None:
        return
    if r.kind == "tiled":
        change = {"box_sizes": box} | change
    named = [f"{name}={value}" for name, value in change.items()]
    options = f" with {' and '.join(named)}" if named else ""
    if any(n != 1 for n in r.arguments.element_strides):
        options += " and without elem_strides"
    change |= {"elem_strides": None}
    yield Way(text.format(f"{code}{options}"), change, _seen(r, shape, strides))


def merged(r: Request, rank: int) -> Iterator[Way]:
    """Yield the tensor with contiguous outer dimensions merged, down to a rank."""
    if not is_own(r) or r.kind != "tiled" or r.rank <= rank:
        return
    shape, strides, box = r.tensor.shape, r.tensor.strides, reverse(r.arguments.box_dim)
    if len(box) != r.rank:
        box = (1,) * r.rank
    for first in range(rank):
        last = first + r.rank - rank  # dimensions first..last become one
        if last >= r.rank:
            return
        inner = zip(range(first, last), range(first + 1, last + 1), strict=True)
        if not all(strides[d] == shape[e] * strides[e] or shape[d] == 1 for d, e in inner):
            continue
        new_shape = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
        new_strides = (*strides[:first], *strides[last:])
        new_box = (*box[:first], _merged_box(box, shape, first, last), *box[last + 1 :])
        kept = (*range(first), None, *range(last + 1, r.rank))
        code, text = f"x.reshape({new_shape})", "merge dimensions that are contiguous: pass {}"
        yield from reshaped(r, code, kept, new_shape, new_strides, new_box, text)


def _merged_box(box: Sequence[int], shape: Sequence[int], first: int, last: int) -> int:
    """Return the merged entry: whole inner dimensions count, a part of one is all there is."""
    size = box[last]
    for d in range(last - 1, first - 1, -1):
        if size < math.prod(shape[d + 1 : last + 1]):
            break
        size *= box[d]
    return min(size, MAX_BOX)


def indexed(r: Request, rank: int) -> Iterator[Way]:
    """Yield one slice of the tensor, of a rank: of the outermost dimensions that are not ragged."""
    if not is_own(r) or r.kind != "tiled" or r.rank <= rank:
        return
    ragged = None if r.rare.ragged is None else r.rare.ragged % r.rank
    index = [d for d in range(r.rank - 1) if d != ragged][: r.rank - rank]
    kept = [d for d in range(r.rank) if d not in index]
    box = reverse(r.arguments.box_dim)
    box = tuple(box[d] for d in kept) if len(box) == r.rank else box
    code = f"x[{', '.join('0' if d in index else ':' for d in range(index[-1] + 1))}]"
    shape = tuple(r.tensor.shape[d] for d in kept)
    strides = tuple(r.tensor.strides[d] for d in kept)
    text = "make one map per slice, such as {}"
    yield from reshaped(r, code, kept, shape, strides, box, text)


def outer_ones(r: Request, rank: int, text: str) -> Iterator[Way]:
    """Yield the tensor with outer dimensions of extent 1, up to a rank, and a box for it."""
    if not is_own(r) or not 0 < r.rank < rank:
        return
    more = rank - r.rank
    code = f"x[{', '.join(['None'] * more)}]"
    box = reverse(r.arguments.box_dim)
    box = (1,) * more + box if len(box) == r.rank else box
    shape = (1,) * more + r.tensor.shape
    strides = (0,) * more + r.tensor.strides
    kept, text = (*[None] * more, *range(r.rank)), text.format("add dimensions of size 1, {}")
    yield from reshaped(r, code, kept, shape, strides, box, text)


def moved(r: Request, offset: int) -> Iterator[Way]:
    """Yield the same description of the memory from another offset=."""
    text = f"use an offset whose address is a multiple of {r.facts.alignment_bytes} bytes"
    yield Way(f"{text}; the nearest before is offset={offset}", {"offset": offset})


def described(strides: tuple[int, ...], text: str) -> Iterator[Way]:
    """Yield the same description of the memory with other strides=."""
    yield Way(text.format(f"strides={strides}"), {"strides": strides}, is_guess=text.endswith("?"))


def one_at_a_time(r: Request, i: int) -> Iterator[Way]:
    """Yield one index of dimension i (innermost first), as a dimension of extent 1."""
    if not is_own(r):
        return
    d = r.rank - 1 - i
    shape = (*r.tensor.shape[:d], 1, *r.tensor.shape[d + 1 :])
    change = with_box_entry(r, i, 1) if r.kind == "tiled" else {}
    box = f" with box_sizes={change['box_sizes']}" if change else ""
    part = f"x[{':, ' * d}n:n+1]"
    text = f"make one map for each index n of dimension {d}, of {part}{box}"
    yield Way(text, change, _seen(r, shape, r.tensor.strides))


def parts(r: Request, i: int) -> Iterator[Way]:
    """Yield a part of the tensor along dimension i (innermost first)."""
    if not is_own(r):
        return
    d = r.rank - 1 - i
    shape = (*r.tensor.shape[:d], 1 << 30, *r.tensor.shape[d + 1 :])
    yield Way(words.parts_fix(r, i), {}, _seen(r, shape, r.tensor.strides))


def viewed(r: Request, bits: int, text: str) -> Iterator[Way]:
    """Yield the tensor seen as unsigned integers (signed ones if wider), with the box in them."""
    if not is_own(r) or not r.rank:
        return
    own_bits, widest = r.tensor.dtype.itemsize_bits, words_of(r.tensor).widest_bits
    size = max(own_bits, bits)
    if own_bits == bits or bits > widest or size % min(own_bits, bits) or own_bits % 8:
        return
    wide, narrow = (bits // own_bits, 1) if bits > own_bits else (1, own_bits // bits)
    sizes = (r.tensor.shape[-1], *r.tensor.strides[:-1], r.facts.inner_box)
    if any(n % wide for n in sizes):
        return
    name = f"int{bits}" if bits > own_bits else f"uint{bits}"
    shape = (*r.tensor.shape[:-1], r.tensor.shape[-1] * narrow // wide)
    strides = (*(n * narrow // wide for n in r.tensor.strides[:-1]), r.tensor.strides[-1])
    code = DLDataTypeCode.kDLInt if bits > own_bits else DLDataTypeCode.kDLUInt
    change = _box_in(r, r.type_row.element_bits if r.type_is_known else own_bits, bits)
    box = "".join(f" with {entry}={value}" for entry, value in change.items())
    if r.asked_type is not None:
        change["data_type"] = None
        box += f" {'and ' * bool(box)}without data_type"
    view = _seen(r, shape, strides, DLDataType(code, bits, 1))
    yield Way(text.format(words_of(r.tensor).view_as.format(dtype=name) + box), change, view)


# -- copies ----------------------------------------------------------------------------------------


def copies(r: Request) -> Iterator[Way]:
    """Yield copies of the tensor: row-major, at an aligned address, with padded rows."""
    if not is_own(r):
        return
    code, shape = words_of(r.tensor), r.tensor.shape
    dense = row_major_strides(shape)
    is_dense = r.tensor.strides == canonical_strides(shape, dense, r.tensor.dtype.itemsize_bits)
    copy = f"copy it: x = {code.copy if is_dense else code.contiguous}"
    yield Way(copy, {}, _seen(r, shape, dense, address=_fresh(r)))
    if code.aligned_copy:
        text = f"copy it to such an address: {code.aligned_copy}"
        yield Way(text, {}, _seen(r, shape, dense, address=_FRESH))
    for align_bytes in (INNER_BYTES, 2 * INNER_BYTES):
        bits = r.tensor.dtype.itemsize_bits
        yield from padded(r, math.lcm(align_bytes * 8, bits) // bits)


def channels_last_hint(r: Request) -> str:
    """Say how to put the channels last, where the second dimension has them; "" elsewhere."""
    return next((way.text for way in channels_last(r)), "")


def channels_last(r: Request) -> Iterator[Way]:
    """Yield a copy of an N, C, [D,] [H,] W tensor with the channels last."""
    if r.is_driver_call or r.kind == "tiled" or not r.is_own_layout or r.arguments.interleave:
        return
    shape, channels = r.tensor.shape, r.arguments.channels_per_pixel
    if r.rank < 3 or not shape[-1] < channels <= shape[1]:
        return
    order = (0, *range(2, r.rank), 1)
    spatial = "D, H, W"[-3 * r.facts.spatial + 2 :]
    text = f"this looks like N, C, {spatial}, and im2col reads N, {spatial}, C: pass {{}}"
    code = words_of(r.tensor)
    permuted_code = code.permute.format(order=", ".join(map(str, order)))
    shape = tuple(r.tensor.shape[d] for d in order)
    seen = _seen(r, shape, row_major_strides(shape), address=_fresh(r))
    yield Way(text.format(words.for_x(code.contiguous, permuted_code)), {}, seen)


def padded(r: Request, unit: int) -> Iterator[Way]:
    """Yield a copy whose rows take a multiple of `unit` elements each."""
    if not is_own(r) or not r.rank:
        return
    *outer, extent = r.tensor.shape
    code = words_of(r.tensor).pad
    grows = "{widths}" in code  # where rows cannot have gaps, the copy is wider
    shape = (*outer, -(-extent // unit) * unit)
    strides = row_major_strides(shape)
    shape_seen = shape if grows else r.tensor.shape
    yield Way(words.pad_fix(r, code, unit), {}, _seen(r, shape_seen, strides, address=_fresh(r)))


def widened(r: Request, unit: int) -> Iterator[Way]:
    """Yield a copy whose last dimension is a multiple of `unit` elements, filled with zeros."""
    if not is_own(r) or not r.rank:
        return
    *outer, extent = r.tensor.shape
    shape = (*outer, -(-extent // unit) * unit)
    seen = _seen(r, shape, row_major_strides(shape), address=_fresh(r))
    yield Way(words.pad_fix(r, words_of(r.tensor).widen, unit), {}, seen)


def _fresh(r: Request) -> int:
    """Return an address as a copy has it, aligned no better than its framework does."""
    return _FRESH + (NUMPY_ALIGNS if words_of(r.tensor).aligned_copy else 0)
