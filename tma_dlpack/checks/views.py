"""Candidate fixes with another tensor: other dimensions over the same memory, or a copy.

They apply to a `make_*` call that uses the tensor's own layout. As for `candidates.py`, the judge
decides which candidates are accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

from tma_dlpack.checks import words
from tma_dlpack.checks.candidates import Candidate, box_in, with_box_entry, with_options
from tma_dlpack.checks.layout import OtherTensor
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import Change
from tma_dlpack.dlpack import canonical_strides, row_major_strides, words_of
from tma_dlpack.tables.arguments import reverse
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.enums import DLDataTypeCode
from tma_dlpack.tables.limits import INNER_BYTES, MAX_BOX

P = ParamSpec("P")

NUMPY_ALIGNS = 16  # bytes: alignment of numpy.empty and x.copy()
_FRESH = 1 << 20  # assumed address of a copy, aligned like allocations of its framework


def is_own(r: Request) -> bool:
    """Whether another tensor may be proposed: for `make_*` calls with the tensor's own layout."""
    return not r.is_driver_call and r.is_own_layout and not r.keeps_tensor


def of_own_tensor(
    find: Callable[Concatenate[Request, P], Iterator[Candidate]],
) -> Callable[Concatenate[Request, P], Iterable[Candidate]]:
    """Make a generator of candidates yield nothing if another tensor may not be proposed."""

    @wraps(find)
    def found(r: Request, /, *args: P.args, **keywords: P.kwargs) -> Iterable[Candidate]:
        return find(r, *args, **keywords) if is_own(r) else ()

    return found


# -- over the same memory --------------------------------------------------------------------------


def _seen(
    r: Request,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: DLDataType | None = None,
    address: int | None = None,
) -> OtherTensor:
    address = r.address if address is None else address
    return OtherTensor(address, dtype or r.tensor.dtype, tuple(shape), tuple(strides))


def _along(values: Sequence[int], kept: Sequence[int | None], missing: int = 1) -> tuple[int, ...]:
    """Return entries in the new order of dimensions; None stands for a new dimension."""
    return tuple([missing if d is None else values[d] for d in kept])


def _ragged_after(r: Request, kept: Sequence[int | None]) -> Change | None:
    """Return `ragged=` for the kept dimensions; None if the ragged dimension is not kept."""
    if r.rare.ragged is None or not -r.rank <= r.rare.ragged < r.rank:
        return {}
    dim = r.rare.ragged % r.rank
    return {"ragged": list(kept).index(dim)} if dim in kept else None


def permuted(r: Request, order: Sequence[int], text: str) -> Iterator[Candidate]:
    """Yield the tensor with its dimensions in another order, and the box in that order."""
    if list(order) == list(range(r.rank)):
        return
    change: Change = {}
    a = r.arguments
    for name, values in (("box_sizes", a.box_dim), ("elem_strides", a.element_strides)):
        if r.kind == "tiled" and len(values) == r.rank and len(set(values)) > 1:
            change[name] = _along(reverse(values), order)
    change |= _ragged_after(r, order) or {}
    code = words_of(r.tensor).permute.format(order=", ".join(map(str, order)))
    seen = _seen(r, _along(r.tensor.shape, order), _along(r.tensor.strides, order))
    yield Candidate(text.format(code + with_options(change)), change, seen)


def _reshaped(
    r: Request,
    code: str,
    text: str,
    kept: Sequence[int | None],
    shape: Sequence[int] = (),
    strides: Sequence[int] = (),
    box: Sequence[int] = (),
) -> Iterator[Candidate]:
    """Yield the tensor with other dimensions over the same elements, and a box for it.

    `kept` has the old dimension of each new one, or None for a new dimension. The ragged dimension
    must be kept. Shape, strides and box are derived from `kept` unless they are passed.
    """
    change = _ragged_after(r, kept)
    if change is None:
        return
    if r.kind == "tiled":
        old = reverse(r.arguments.box_dim)
        box = box or (_along(old, kept) if len(old) == r.rank else old)
        change = {"box_sizes": tuple(box)} | change
    options = with_options(change)
    # Steps of the old dimensions have no meaning for the new ones.
    if r.options.elem_strides is not None:
        options += f" {'and ' * bool(options)}without elem_strides"
    change |= {"elem_strides": None}
    shape = shape or _along(r.tensor.shape, kept)
    strides = strides or _along(r.tensor.strides, kept, missing=0)
    yield Candidate(text.format(code + options), change, _seen(r, shape, strides))


@of_own_tensor
def merged(r: Request, rank: int) -> Iterator[Candidate]:
    """Yield the tensor with contiguous outer dimensions merged, down to a rank."""
    if r.kind != "tiled" or r.rank <= rank:
        return
    shape, strides, box = r.tensor.shape, r.tensor.strides, reverse(r.arguments.box_dim)
    if len(box) != r.rank:
        box = (1,) * r.rank
    for first in range(rank):
        last = first + r.rank - rank  # dimensions first..last become one
        if last >= r.rank:
            return
        # Neighbours can merge if the outer stride spans the inner dimension.
        inner = zip(range(first, last), range(first + 1, last + 1), strict=True)
        if not all(strides[d] == shape[e] * strides[e] or shape[d] == 1 for d, e in inner):
            continue
        new_shape = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
        new_box = (*box[:first], _merged_box(box, shape, first, last), *box[last + 1 :])
        new_strides = (*strides[:first], *strides[last:])
        kept = (*range(first), None, *range(last + 1, r.rank))
        code, text = f"x.reshape({new_shape})", "merge dimensions that are contiguous: pass {}"
        yield from _reshaped(r, code, text, kept, new_shape, new_strides, new_box)


def _merged_box(box: Sequence[int], shape: Sequence[int], first: int, last: int) -> int:
    """Return the merged entry of the box: whole inner dimensions multiply, up to a partial one."""
    size = box[last]
    for d in range(last - 1, first - 1, -1):
        if size < math.prod(shape[d + 1 : last + 1]):
            break
        size *= box[d]
    return min(size, MAX_BOX)


@of_own_tensor
def indexed(r: Request, rank: int) -> Iterator[Candidate]:
    """Yield one slice of the tensor with a rank, indexed in its outermost non-ragged dimensions."""
    if r.kind != "tiled" or r.rank <= rank:
        return
    ragged = None if r.rare.ragged is None else r.rare.ragged % r.rank
    index = [d for d in range(r.rank - 1) if d != ragged][: r.rank - rank]
    kept = [d for d in range(r.rank) if d not in index]
    code = f"x[{', '.join('0' if d in index else ':' for d in range(index[-1] + 1))}]"
    yield from _reshaped(r, code, "make one map per slice, such as {}", kept)


@of_own_tensor
def outer_ones(r: Request, rank: int, text: str) -> Iterator[Candidate]:
    """Yield the tensor with outer dimensions of extent 1, up to a rank, and a box for it."""
    if not 0 < r.rank < rank:
        return
    ones = [None] * (rank - r.rank)
    code, text = f"x[{', '.join(map(str, ones))}]", text.format("add dimensions of size 1, {}")
    yield from _reshaped(r, code, text, (*ones, *range(r.rank)))


@of_own_tensor
def stepped(r: Request, i: int) -> Iterator[Candidate]:
    """Yield the tensor with every n-th element, in place of `elem_strides`."""
    step = r.arguments.element_strides[i]
    if r.kind != "tiled" or i == 0 or step < 1 or r.facts.box_count != r.rank:
        return
    d = r.rank - 1 - i
    shape, strides = list(r.tensor.shape), list(r.tensor.strides)
    box, steps = list(reverse(r.arguments.box_dim)), list(reverse(r.arguments.element_strides))
    shape[d], strides[d] = -(-shape[d] // step), strides[d] * step
    box[d], steps[d] = max(1, -(-box[d] // step)), 1
    change: Change = {"box_sizes": tuple(box), "elem_strides": tuple(steps)}
    code = f"x[{':, ' * d}::{step}]{with_options(change)}"
    yield Candidate(f"step the tensor itself: pass {code}", change, _seen(r, shape, strides))


@of_own_tensor
def one_at_a_time(r: Request, i: int) -> Iterator[Candidate]:
    """Yield one index of dimension i (innermost first), as a dimension of extent 1."""
    d = r.rank - 1 - i
    change = with_box_entry(r, i, 1) if r.kind == "tiled" else {}
    part = f"x[{':, ' * d}n:n+1]{with_options(change)}"
    yield Candidate(
        f"make one map for each index n of dimension {d}, of {part}", change, _part(r, i, 1)
    )


@of_own_tensor
def parts(r: Request, i: int) -> Iterator[Candidate]:
    """Yield a part of the tensor along dimension i (innermost first)."""
    yield Candidate(words.parts_fix(r, i), {}, _part(r, i, 1 << 30))


def _part(r: Request, i: int, extent: int) -> OtherTensor:
    shape = list(r.tensor.shape)
    shape[r.rank - 1 - i] = extent
    return _seen(r, shape, r.tensor.strides)


@of_own_tensor
def viewed(r: Request, bits: int, text: str) -> Iterator[Candidate]:
    """Yield the tensor viewed as unsigned integers (signed if wider), with the box in them."""
    own_bits, code = r.tensor.dtype.itemsize_bits, words_of(r.tensor)
    is_wider = bits > own_bits
    wide, narrow = (bits // own_bits, 1) if is_wider else (1, own_bits // bits)
    # Only whole bytes can be viewed, and widths must divide each other.
    if own_bits == bits or own_bits % 8 or own_bits * wide != bits * narrow:
        return
    if bits > code.widest_bits or not r.rank:
        return
    inner, strides = r.facts.inner_box, r.tensor.strides
    # A wider element must not straddle rows, nor the edge of the box.
    if any(n % wide for n in (r.tensor.shape[-1], *strides[:-1], inner)):
        return
    shape = (*r.tensor.shape[:-1], r.tensor.shape[-1] * narrow // wide)
    strides = (*(n * narrow // wide for n in strides[:-1]), strides[-1])
    change = box_in(r, bits, or_bits=own_bits)
    name = f"int{bits}" if is_wider else f"uint{bits}"
    view = code.view_as.format(dtype=name) + with_options(change)
    if r.asked_type is not None:
        view += f" {'and ' * bool(change)}without data_type"
        change["data_type"] = None
    kind = DLDataTypeCode.kDLInt if is_wider else DLDataTypeCode.kDLUInt
    yield Candidate(text.format(view), change, _seen(r, shape, strides, DLDataType(kind, bits, 1)))


# -- copies ----------------------------------------------------------------------------------------


def _copied(
    r: Request, shape: Sequence[int], rows: Sequence[int] = (), address: int = 0
) -> OtherTensor:
    """Return a copy with the alignment of its framework, and rows of another length if given."""
    address = address or _FRESH + (NUMPY_ALIGNS if words_of(r.tensor).aligned_copy else 0)
    return _seen(r, shape, row_major_strides(rows or shape), address=address)


@of_own_tensor
def copies(r: Request) -> Iterator[Candidate]:
    """Yield copies of the tensor: row-major, at an aligned address, with padded rows."""
    code, shape, bits = words_of(r.tensor), r.tensor.shape, r.tensor.dtype.itemsize_bits
    is_dense = r.tensor.strides == canonical_strides(shape, row_major_strides(shape), bits)
    yield Candidate(
        f"copy it: x = {code.copy if is_dense else code.contiguous}", {}, _copied(r, shape)
    )
    if code.aligned_copy:
        text = f"copy it to a multiple of 32 bytes: {code.aligned_copy}"
        yield Candidate(text, {}, _copied(r, shape, address=_FRESH))
    for align_bytes in (INNER_BYTES, 2 * INNER_BYTES):
        yield from _padded(r, math.lcm(align_bytes * 8, bits) // bits)


def channels_last_hint(r: Request) -> str:
    """Return how to put the channels last if the second dimension has them, else ""."""
    return next((candidate.text for candidate in channels_last(r)), "")


def channels_last(r: Request) -> Iterator[Candidate]:
    """Yield a copy of an N, C, [D,] [H,] W tensor with the channels last."""
    if r.view is None or r.kind == "tiled" or not r.is_own_layout or r.arguments.interleave:
        return
    shape, channels = r.tensor.shape, r.arguments.channels_per_pixel
    if r.rank < 3 or not shape[-1] < channels <= shape[1]:
        return
    order = (0, *range(2, r.rank), 1)
    spatial = "D, H, W"[-3 * r.facts.spatial + 2 :]
    text = f"this looks like N, C, {spatial}, and im2col reads N, {spatial}, C: pass {{}}"
    code = words_of(r.tensor)
    permuted_code = code.permute.format(order=", ".join(map(str, order)))
    copied = words.for_x(code.contiguous, permuted_code)
    yield Candidate(text.format(copied), {}, _copied(r, _along(shape, order)))


def _padded(r: Request, unit: int) -> Iterator[Candidate]:
    """Yield a copy whose rows take a multiple of `unit` elements each."""
    if r.rank:
        code, rows = words_of(r.tensor).pad, _whole_rows(r, unit)
        # A framework without strided rows pads the tensor itself.
        grows = "{widths}" in code
        seen = _copied(r, rows if grows else r.tensor.shape, rows)
        yield Candidate(words.pad_fix(r, code, unit), {}, seen)


@of_own_tensor
def widened(r: Request, unit: int) -> Iterator[Candidate]:
    """Yield a copy whose last dimension is a multiple of `unit` elements, filled with zeros."""
    if r.rank:
        text = words.pad_fix(r, words_of(r.tensor).widen, unit)
        yield Candidate(text, {}, _copied(r, _whole_rows(r, unit)))


def _whole_rows(r: Request, unit: int) -> tuple[int, ...]:
    *outer, extent = r.tensor.shape
    return (*outer, -(-extent // unit) * unit)
