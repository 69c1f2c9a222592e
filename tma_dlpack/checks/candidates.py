"""Functions that yield candidate fixes: the call with other arguments or with another tensor.

`Rule.candidates` returns the alternatives for fixing a call, the best alternative first. Each
alternative is an iterable of candidates, in which the candidate nearest to the call is the first.
`fixes.py` applies each candidate, judges the changed call, and proposes the candidates that are
accepted. So the text of a fix and `Report.fixed` always agree. No candidate depends on the rule
that it fixes. Only a `make_*` call that uses the tensor's own layout has candidates with another
tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import partial, wraps
from typing import Concatenate, NamedTuple, ParamSpec

from tma_dlpack.checks import words
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.struct import PLACES, Change, OtherTensor
from tma_dlpack.dlpack import canonical_strides, row_major_strides, words_of
from tma_dlpack.tables.arguments import OPTION_NAMES, reverse
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import DATA_TYPES, DataTypeRow, DLDataType, data_type_of, overrides_of
from tma_dlpack.tables.enums import DLDataTypeCode, TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.targets import (
    INNER_BYTES,
    MAX_BOX,
    MAX_BOX_BYTES,
    MAX_ELEM_STRIDE,
    MAX_PIXELS,
    MAX_RANK,
    SWIZZLE_SPAN_BYTES,
)

Wording = str | Callable[[], str]


class Candidate(NamedTuple):
    """A candidate fix: its text, and the change of the call.

    `change` has the arguments to pass instead. `view` is another tensor to pass, or None.
    `wording` is the text or a function that returns the text. The function is called only if the
    candidate is accepted and printed, because most candidates are rejected. `is_guess` is true if
    the fix asks what the user meant, or makes a map with another meaning. `Report.fixed` uses
    neither guesses nor candidates that describe other memory.
    """

    wording: Wording
    change: Change
    view: OtherTensor | None = None
    is_guess: bool = False

    @property
    def text(self) -> str:
        """The text of the fix."""
        return self.wording if isinstance(self.wording, str) else self.wording()

    def reworded(self, change: Callable[[str], str]) -> Candidate:
        """Return the same fix with the text that `change` returns for the old text."""
        return self._replace(wording=lambda: change(self.text))

    @property
    def is_other_tensor(self) -> bool:
        """Whether the fix passes another tensor, or describes other memory of the same tensor."""
        return self.view is not None or not PLACES.isdisjoint(self.change)


Candidates = Iterable[Candidate]


# -- arguments -------------------------------------------------------------------------------------


def members(r: Request, name: str, first: Sequence[int] = ()) -> Iterator[Candidate]:
    """Yield candidates with the other members of an enum option.

    The members in `first` come first, then larger members, then smaller members.
    """
    old = getattr(r.arguments, OPTION_NAMES[name])
    enum: type[IntEnum] = type(old)
    order = (*first, *range(old + 1, len(enum)), *range(old - 1, -1, -1))
    for member in map(enum, dict.fromkeys(n for n in order if n != old)):
        yield Candidate(partial(_use_member, r, name, member), {name: member})


def _use_member(r: Request, name: str, member: IntEnum) -> str:
    return f"use {words.argument(r, name)}={member.name!r}"


def wider_swizzles(r: Request) -> Iterator[Candidate]:
    """Yield candidates with swizzles wider than the call's swizzle: bytes64, then bytes128."""
    span_bytes = r.span_bytes
    for swizzle in (TmaSwizzle.bytes64, TmaSwizzle.bytes128):
        if SWIZZLE_SPAN_BYTES[swizzle] > span_bytes:
            yield Candidate(partial("use swizzle={!r}".format, swizzle.name), {"swizzle": swizzle})


def split(r: Request) -> Iterator[Candidate]:
    """Yield a candidate with split_inner=True, which copies a wide tile with one instruction."""
    if not r.is_driver_call and r.kind == "tiled" and r.facts.has_swizzle and not r.facts.is_split:
        text = "pass split_inner=True, to copy it at once"
        if not r.facts.swizzle:
            text = "pass split_inner=True, to copy it at once as columns of 16 bytes"
        yield Candidate(text, {"split_inner": True})


def allow(r: Request, rule_id: str) -> Iterator[Candidate]:
    """Yield a candidate whose `allow=` switches off a rule that only libcu++ has."""
    if rule_id not in r.allowed and not r.is_driver_call:
        allowed = (*sorted(r.allowed), rule_id)
        yield Candidate(lambda: f"pass allow={allowed}", {"allow": allowed})


def _nearest_first(old: int, values: Iterable[int]) -> list[int]:
    """Return values in the order of their distance from `old`, without `old` itself.

    Of two values at the same distance, the larger value comes first.
    """
    return sorted({n for n in values if n != old}, key=lambda n: (abs(n - old), -n))


def box_entries(
    r: Request, i: int, wording: Callable[[int], str] = "use {}".format
) -> Iterator[Candidate]:
    """Yield candidates with another entry i of the box, or with another `channels_per_pixel`.

    The value nearest to the old value comes first. The values are the limits, and the multiples of
    16 bytes just below and above the old value.
    """
    # Entry 0 must be a multiple of `unit` elements: 16 bytes, or one span with split_inner=True.
    c, most, unit = r.facts, MAX_BOX, 1
    old = c.box_dim[i] if r.kind == "tiled" else c.channels
    if i == 0:
        unit = c.span_values if c.is_split else r.inner_unit
        most *= c.span_values if c.is_split else 1
    extent = c.global_dim[i] if i < r.rank else most
    # The values are the limits, each rounded down to a multiple of `unit`, and the multiples of
    # `unit` next to the old value.
    limits = [most, min(extent, most), c.packed_unit]
    if i == 0 and c.span_bits:
        limits.append(r.span_elements)
    ends = [limit // unit * unit for limit in limits]
    # If the old value is beyond the limit, no valid value is next to it.
    around = [] if abs(old) > most else [old // unit * unit, -(-old // unit) * unit]
    # A driver whose rules were not measured may accept an entry of 1, so also try 1.
    in_units = r.target.has_model or (r.kind == "tiled" and not c.interleave)
    for n in _nearest_first(old, (*ends, *around, unit if in_units else 1)):
        if 1 <= n <= most:
            yield Candidate(partial(wording, n), with_box_entry(r, i, n))


def with_box_entry(r: Request, i: int, value: int) -> Change:
    """Return the argument that sets entry i of the box (0 is the innermost), or the channels."""
    if r.kind != "tiled":
        return {"channels_per_pixel": int(value)}
    # `r.box_dim` has at most five entries, so a tensor of a higher rank needs the box of the call.
    box = r.options.box_sizes[::-1] if r.rank > MAX_RANK else r.box_dim
    return {"box_sizes": with_entry(box, i, value)}


def with_entry(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Replace entry i of a tuple in driver order, and return the tuple in row-major order."""
    return (*values[:i], int(value), *values[i + 1 :])[::-1]


def shrunk_boxes(r: Request) -> Iterator[Candidate]:
    """Yield boxes of fewer bytes.

    The entries shrink in this order: the outer entries from the largest to the smallest, then the
    innermost entry. An entry shrinks only after all earlier entries in this order have become 1.
    libcu++ limits the bytes of the whole box. The driver first divides each entry by its element
    stride and rounds down, and then limits the bytes of the divided box.
    """
    box, bits = list(r.arguments.box_dim), r.facts.element_bits
    # An element stride n divides the entry by n. The innermost element stride may be ignored.
    steps = [*r.arguments.element_strides, *[1] * len(box)][: len(box)]
    if r.facts.ignores_inner_step:
        steps[:1] = [1]
    for i in (*sorted(range(1, len(box)), key=lambda d: -box[d]), 0):
        # Find the largest entry i for each limit: shared memory, and the driver's MAX_BOX_BYTES.
        unit, fitting = r.inner_unit if i == 0 else 1, set()
        for limit_bytes, by in ((r.target.max_smem_bytes, [1] * len(box)), (MAX_BOX_BYTES, steps)):
            pairs = enumerate(zip(box, by, strict=False))
            others = math.prod(n // max(1, step) for d, (n, step) in pairs if d != i)
            step = max(1, by[i])
            fits = 8 * limit_bytes // (bits * others) * step + step - 1 if others else 0
            units = min(box[i] - 1, fits) // unit
            # Propose a power of two times the unit, because kernels use such tiles.
            fitting.add(unit << units.bit_length() - 1 if units else 0)
        for n in sorted(fitting - {0}, reverse=True):
            sizes, is_alone = with_entry(tuple(box), i, n), tuple(box) == r.arguments.box_dim
            wording = partial(_shrink_entry, r, i, n) if is_alone else partial(_shrink, r, sizes)
            yield Candidate(wording, {"box_sizes": sizes})
        box[i] = 1


def _shrink_entry(r: Request, i: int, n: int) -> str:
    entry, old = words.entry(r, "box_sizes", i), r.arguments.box_dim[i]
    return f"shrink {entry} from {old} to {n}, and copy in several steps"


def _shrink(r: Request, sizes: tuple[int, ...]) -> str:
    return f"use {words.argument(r, 'box_sizes')}={sizes}, and copy in several steps"


def per_dimension(r: Request, name: str) -> Iterator[Candidate]:
    """Yield a candidate whose argument `name` has one entry per dimension.

    If entries are missing, the candidate adds outer entries of 1. If there are too many entries,
    the candidate drops outer entries. The candidate is a guess if a dropped entry is not 1.
    """
    driver_name = "box_dim" if name == "box_sizes" else "element_strides"
    values = reverse(getattr(r.arguments, driver_name))
    excess = max(0, len(values) - r.rank)
    dropped, kept = values[:excess], values[excess:]
    value = (1,) * (r.rank - len(kept)) + kept
    yield Candidate(
        lambda: f"pass {counted(len(value), 'entry')}, row-major, such as {name}={value}",
        {name: value},
        is_guess=any(n != 1 for n in dropped),
    )


def elem_strides(r: Request, i: int) -> Iterator[Candidate]:
    """Yield candidates with other values of entry i of elem_strides, the nearest value first."""
    steps = r.arguments.element_strides
    extent = int(r.arguments.global_dim[i])
    for n in _nearest_first(steps[i], (1, MAX_ELEM_STRIDE, min(extent, MAX_ELEM_STRIDE))):
        if n >= 1:
            what = {1: " to take every element", MAX_ELEM_STRIDE: ", the largest step"}.get(n, "")
            wording = partial("use {}{}".format, n, what)
            yield Candidate(wording, {"elem_strides": with_entry(steps, i, n)})


def data_types(r: Request) -> Iterator[Candidate]:
    """Yield candidates with the other map types that the tensor's dtype allows.

    If the map's type is padded, its unpadded form comes first. The type of the tensor's dtype comes
    next, then all other types.
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
        yield Candidate(partial(_pass_type, r, t, change), {"data_type": t} | change)


def _pass_type(r: Request, data_type: TensorMapDataType | None, change: Change) -> str:
    if data_type is None:
        return f"omit data_type{',' * bool(change)}{with_options(change)}"
    why = "copies do not change the bits"
    if r.tensor.dtype.code == DLDataTypeCode.kDLInt:
        why = f"TMA copies bits, so {r.tensor.dtype} values arrive unchanged"
    return f"pass data_type={data_type.name!r}{with_options(change)}: {why}"


def with_options(change: Change) -> str:
    """Return words that name the arguments to pass in addition to a fix, or ""."""
    named = [f"{name}={value}" for name, value in change.items()]
    return f" with {' and '.join(named)}" if named else ""


def box_in(r: Request, bits: int, or_bits: int) -> Change:
    """Return the box with the innermost entry converted to elements of `bits` bits, rounded up.

    Before the conversion, the entry counts values of the map's type. If maps have no type for the
    tensor, the entry counts elements of `or_bits` bits.
    """
    old = r.facts.element_bits if r.type_is_known else or_bits
    if old == bits or (r.kind == "tiled" and not r.facts.box_count):
        return {}
    inner = r.facts.box_dim[0] if r.kind == "tiled" else r.facts.channels
    return with_box_entry(r, 0, -(-inner * old // bits))


def _is_like(row: DataTypeRow, other: DataTypeRow) -> bool:
    return row.element_bits == other.element_bits and not other.is_padded


def carriers(r: Request) -> Iterator[Candidate]:
    """Yield candidates of `data_types` whose map type is not packed."""
    return (w for w in data_types(r) if not _is_packed(w.change["data_type"]))


def _is_packed(data_type: TensorMapDataType | None) -> bool:
    return data_type is not None and DATA_TYPES[data_type].is_packed


def targets(name: str, wording: Wording, is_guess: bool = False) -> Iterator[Candidate]:
    """Yield a candidate with another target."""
    yield Candidate(wording, {"target": name}, is_guess=is_guess)


def counts(r: Request, name: str) -> Iterator[Candidate]:
    """Yield candidates with another number of channels per pixel, or pixels per column.

    The nearest number comes first.
    """
    if name == "channels_per_pixel":
        yield from box_entries(r, 0)
        return
    # `fits` is the largest number of pixels whose column has at most MAX_BOX_BYTES.
    old, fits = r.facts.pixels, MAX_PIXELS
    if r.facts.box_bits > 0 < old:
        fits = max(1, 8 * MAX_BOX_BYTES * old // r.facts.box_bits)
    for n in _nearest_first(old, (1, MAX_PIXELS, min(MAX_PIXELS, fits))):
        yield Candidate(partial("use {}".format, n), {name: n})


def moved(r: Request, offset: int) -> Iterator[Candidate]:
    """Yield a candidate with another offset= and the same shape= and strides=."""
    yield Candidate(
        lambda: (
            f"use an offset whose address is a multiple of {r.facts.alignment_bytes} bytes; the "
            f"nearest before is offset={offset}"
        ),
        {"offset": offset},
    )


def described(
    strides: tuple[int, ...], wording: Callable[[str], str], is_guess: bool = False
) -> Iterator[Candidate]:
    """Yield a candidate with other strides= and the same shape= and offset=."""
    yield Candidate(lambda: wording(f"strides={strides}"), {"strides": strides}, is_guess=is_guess)


# -- another tensor --------------------------------------------------------------------------------

P = ParamSpec("P")

# Rules need an address for a copy that does not exist yet. The assumed address has the smallest
# alignment that the framework's allocator guarantees, so the fix is right for every copy.
NUMPY_ALIGNS = 16  # the alignment of numpy.empty and x.copy(), in bytes
_FRESH = 1 << 20  # the assumed address of an aligned copy


def is_own(r: Request) -> bool:
    """Return whether a fix may pass another tensor.

    A fix may do this if the call is a `make_*` call with the tensor's own layout, and if
    `keeps_tensor` is False.
    """
    return not r.is_driver_call and r.is_own_layout and not r.keeps_tensor


def of_own_tensor(
    find: Callable[Concatenate[Request, P], Iterator[Candidate]],
) -> Callable[Concatenate[Request, P], Iterable[Candidate]]:
    """Return a generator function like `find` that yields nothing if `is_own` returns False."""

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
    """Return `values` at the indices in `kept`; for an index None, return `missing`."""
    return tuple([missing if d is None else values[d] for d in kept])


def _ragged_after(r: Request, kept: Sequence[int | None]) -> Change | None:
    """Return the argument `ragged=` for a view with the `kept` dimensions.

    Return {} if the call has no `ragged=`. Return None if the ragged dimension is not in `kept`.
    """
    # Keep a value of `ragged=` that is out of range, because RAGGED_DIM reports it.
    if r.rare.ragged is None or not -r.rank <= r.rare.ragged < r.rank:
        return {}
    dim = r.rare.ragged % r.rank
    return {"ragged": list(kept).index(dim)} if dim in kept else None


def permuted(
    r: Request, order: Sequence[int], wording: Callable[[str], str]
) -> Iterator[Candidate]:
    """Yield the tensor and the box with the dimensions in another order."""
    # If the tensor already has this order, the candidate would change nothing.
    if list(order) == list(range(r.rank)):
        return
    change: Change = {}
    a = r.arguments
    for name, values in (("box_sizes", a.box_dim), ("elem_strides", a.element_strides)):
        # If all entries are equal, the new order does not change them.
        if r.kind == "tiled" and len(values) == r.rank and len(set(values)) > 1:
            change[name] = _along(reverse(values), order)
    change |= _ragged_after(r, order) or {}
    seen = _seen(r, _along(r.tensor.shape, order), _along(r.tensor.strides, order))
    yield Candidate(lambda: wording(_permute(r, order) + with_options(change)), change, seen)


def _permute(r: Request, order: Sequence[int]) -> str:
    return words_of(r.tensor).permute.format(order=", ".join(map(str, order)))


def _reshaped(
    r: Request,
    code: Callable[[], str],
    text: str,
    kept: Sequence[int | None],
    shape: Sequence[int] = (),
    strides: Sequence[int] = (),
    box: Sequence[int] = (),
) -> Iterator[Candidate]:
    """Yield a view of the tensor with other dimensions, and a box for this view.

    Entry i of `kept` is the old dimension that becomes dimension i of the view, or None if the view
    adds dimension i. The ragged dimension must be in `kept`. Shape, strides and box are computed
    from `kept` unless they are passed.
    """
    change = _ragged_after(r, kept)
    if change is None:
        return
    if r.kind == "tiled":
        old = reverse(r.arguments.box_dim)
        box = box or (_along(old, kept) if len(old) == r.rank else old)
        change = {"box_sizes": tuple(box)} | change

    def wording() -> str:
        options = with_options(change)
        if r.options.elem_strides is not None:
            options += f" {'and ' * bool(options)}without elem_strides"
        return text.format(code() + options)

    shape = shape or _along(r.tensor.shape, kept)
    strides = strides or _along(r.tensor.strides, kept, missing=0)
    # The element strides belong to the old dimensions, so drop them.
    all_changes = change | {"elem_strides": None}
    yield Candidate(wording, all_changes, _seen(r, shape, strides))


@of_own_tensor
def merged(r: Request, rank: int) -> Iterator[Candidate]:
    """Yield views of rank `rank`. Each view merges a run of contiguous dimensions."""
    if r.kind != "tiled" or r.rank <= rank:
        return
    shape, strides, box = r.tensor.shape, r.tensor.strides, reverse(r.arguments.box_dim)
    if len(box) != r.rank:
        box = (1,) * r.rank
    for first in range(rank):
        last = first + r.rank - rank  # dimensions `first` to `last` become one dimension
        if last >= r.rank:
            return
        # Two neighbours can merge if the outer stride is the inner extent times the inner stride.
        inner = zip(range(first, last), range(first + 1, last + 1), strict=True)
        if not all(strides[d] == shape[e] * strides[e] or shape[d] == 1 for d, e in inner):
            continue
        new_shape = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
        new_box = (*box[:first], _merged_box(box, shape, first, last), *box[last + 1 :])
        new_strides = (*strides[:first], *strides[last:])
        kept = (*range(first), None, *range(last + 1, r.rank))
        code = partial("x.reshape({})".format, new_shape)
        text = "merge dimensions that are contiguous: pass {}"
        yield from _reshaped(r, code, text, kept, new_shape, new_strides, new_box)


def _merged_box(box: Sequence[int], shape: Sequence[int], first: int, last: int) -> int:
    """Return the entry of the box for the merged dimensions `first` to `last`.

    The result is the product of the old entries of these dimensions. The product goes from the
    innermost dimension outwards, and ends with the first entry that is smaller than its dimension.
    """
    size = box[last]
    for d in range(last - 1, first - 1, -1):
        if size < math.prod(shape[d + 1 : last + 1]):
            break
        size *= box[d]
    return min(size, MAX_BOX)


@of_own_tensor
def indexed(r: Request, rank: int) -> Iterator[Candidate]:
    """Yield a slice of the tensor that has `rank` dimensions.

    The slice takes index 0 of the outermost dimensions, except the ragged dimension.
    """
    if r.kind != "tiled" or r.rank <= rank:
        return
    ragged = None if r.rare.ragged is None else r.rare.ragged % r.rank
    index = [d for d in range(r.rank - 1) if d != ragged][: r.rank - rank]
    kept = [d for d in range(r.rank) if d not in index]

    def code() -> str:
        return f"x[{', '.join('0' if d in index else ':' for d in range(index[-1] + 1))}]"

    yield from _reshaped(r, code, "make one map per slice, such as {}", kept)


@of_own_tensor
def outer_ones(r: Request, rank: int, text: str) -> Iterator[Candidate]:
    """Yield the tensor with outer dimensions of extent 1 added until its rank is `rank`."""
    if not 0 < r.rank < rank:
        return
    ones = [None] * (rank - r.rank)

    def code() -> str:
        return f"add dimensions of size 1, x[{', '.join(map(str, ones))}]"

    yield from _reshaped(r, code, text, (*ones, *range(r.rank)))


@of_own_tensor
def stepped(r: Request, i: int) -> Iterator[Candidate]:
    """Yield a view of every n-th element along dimension i, where n is its element stride."""
    step = r.arguments.element_strides[i]
    if r.kind != "tiled" or i == 0 or step < 1 or r.facts.box_count != r.rank:
        return
    # Dimension i of the map is dimension d of the tensor, because the map counts from the innermost
    # dimension.
    d = r.rank - 1 - i
    shape, strides = list(r.tensor.shape), list(r.tensor.strides)
    box, steps = list(reverse(r.arguments.box_dim)), list(reverse(r.arguments.element_strides))
    shape[d], strides[d] = -(-shape[d] // step), strides[d] * step
    box[d], steps[d] = max(1, -(-box[d] // step)), 1
    change: Change = {"box_sizes": tuple(box), "elem_strides": tuple(steps)}
    yield Candidate(
        lambda: f"step the tensor itself: pass x[{':, ' * d}::{step}]{with_options(change)}",
        change,
        _seen(r, shape, strides),
    )


@of_own_tensor
def one_at_a_time(r: Request, i: int) -> Iterator[Candidate]:
    """Yield a slice of one index along dimension i (0 is the innermost), with the same rank."""
    d = r.rank - 1 - i
    change = with_box_entry(r, i, 1) if r.kind == "tiled" else {}

    def wording() -> str:
        part = f"x[{':, ' * d}n:n+1]{with_options(change)}"
        return f"make one map for each index n of dimension {d}, of {part}"

    yield Candidate(wording, change, _part(r, i, 1))


@of_own_tensor
def parts(r: Request, i: int) -> Iterator[Candidate]:
    """Yield the first 2^30 indices of the tensor along dimension i (0 is the innermost)."""
    yield Candidate(partial(words.parts_fix, r, i), {}, _part(r, i, 1 << 30))


def _part(r: Request, i: int, extent: int) -> OtherTensor:
    shape = list(r.tensor.shape)
    # The strides stay the same, because a slice skips no elements of the other dimensions.
    shape[r.rank - 1 - i] = extent
    return _seen(r, shape, r.tensor.strides)


@of_own_tensor
def viewed(r: Request, bits: int, text: str) -> Iterator[Candidate]:
    """Yield the tensor viewed as integers of `bits` bits, and the box in these integers.

    The integers are signed if they are wider than the tensor's elements, else unsigned.
    """
    own_bits, code = r.tensor.dtype.itemsize_bits, words_of(r.tensor)
    is_wider = bits > own_bits
    wide, narrow = (bits // own_bits, 1) if is_wider else (1, own_bits // bits)
    # A view needs elements of whole bytes, and one width must be a multiple of the other width.
    if own_bits == bits or own_bits % 8 or own_bits * wide != bits * narrow:
        return
    if bits > code.widest_bits or not r.rank:
        return
    inner, strides = r.facts.inner_box, r.tensor.strides
    # An element of the view must not cross the end of a row or the edge of the box.
    if any(n % wide for n in (r.tensor.shape[-1], *strides[:-1], inner)):
        return
    shape = (*r.tensor.shape[:-1], r.tensor.shape[-1] * narrow // wide)
    strides = (*(n * narrow // wide for n in strides[:-1]), strides[-1])
    box = box_in(r, bits, or_bits=own_bits)
    change: Change = box if r.asked_type is None else box | {"data_type": None}

    def wording() -> str:
        view = code.view_as.format(dtype=f"int{bits}" if is_wider else f"uint{bits}")
        view += with_options(box)
        if r.asked_type is not None:
            view += f" {'and ' * bool(box)}without data_type"
        return text.format(view)

    kind = DLDataTypeCode.kDLInt if is_wider else DLDataTypeCode.kDLUInt
    yield Candidate(wording, change, _seen(r, shape, strides, DLDataType(kind, bits, 1)))


# -- copies ----------------------------------------------------------------------------------------


def _copied(
    r: Request, shape: Sequence[int], rows: Sequence[int] = (), address: int = 0
) -> OtherTensor:
    """Return the description of a copy of the tensor.

    The copy's address has the framework's alignment unless `address` is passed. The copy's strides
    are row-major for the shape `rows`, or for `shape` if `rows` is omitted.
    """
    address = address or _FRESH + (NUMPY_ALIGNS if words_of(r.tensor).aligned_copy else 0)
    return _seen(r, shape, row_major_strides(rows or shape), address=address)


@of_own_tensor
def copies(r: Request) -> Iterator[Candidate]:
    """Yield copies of the tensor: row-major, then at an aligned address, then with padded rows."""
    code, shape, bits = words_of(r.tensor), r.tensor.shape, r.tensor.dtype.itemsize_bits
    # For a dense tensor, the code `contiguous` may return the tensor itself. Such a tensor needs
    # the code `copy`, which moves it to another address.
    is_dense = r.tensor.strides == canonical_strides(shape, row_major_strides(shape), bits)
    yield Candidate(
        lambda: f"copy it: x = {code.copy if is_dense else code.contiguous}", {}, _copied(r, shape)
    )
    if code.aligned_copy:
        yield Candidate(
            lambda: f"copy it to a multiple of 32 bytes: {code.aligned_copy}",
            {},
            _copied(r, shape, address=_FRESH),
        )
    for align_bytes in (INNER_BYTES, 2 * INNER_BYTES):
        yield from _padded(r, math.lcm(align_bytes * 8, bits) // bits)


def channels_last_hint(r: Request) -> str:
    """Return a fix that moves the channels from the second dimension to the last, or ""."""
    return next((candidate.text for candidate in channels_last(r)), "")


def channels_last(r: Request) -> Iterator[Candidate]:
    """Yield a copy with the channels last if the tensor looks like N, C, [D,] [H,] W."""
    if r.view is None or r.kind == "tiled" or not r.is_own_layout or r.arguments.interleave:
        return
    shape, channels = r.tensor.shape, r.arguments.channels_per_pixel
    # The tensor looks like N, C, [D,] [H,] W if its second dimension holds `channels` and its last
    # dimension does not.
    if r.rank < 3 or not shape[-1] < channels <= shape[1]:
        return
    order = (0, *range(2, r.rank), 1)

    def wording() -> str:
        spatial = "D, H, W"[-3 * r.facts.spatial + 2 :]
        copied = words.for_x(words_of(r.tensor).contiguous, _permute(r, order))
        return f"this looks like N, C, {spatial}, and im2col reads N, {spatial}, C: pass {copied}"

    yield Candidate(wording, {}, _copied(r, _along(shape, order)))


def _padded(r: Request, unit: int) -> Iterator[Candidate]:
    """Yield a copy in which rows start a multiple of `unit` elements apart."""
    if r.rank:
        code, rows = words_of(r.tensor).pad, _whole_rows(r, unit)
        # A framework without strides cannot leave gaps after rows, so the last dimension grows.
        grows = "{widths}" in code
        seen = _copied(r, rows if grows else r.tensor.shape, rows)
        yield Candidate(partial(words.pad_fix, r, code, unit), {}, seen)


@of_own_tensor
def widened(r: Request, unit: int) -> Iterator[Candidate]:
    """Yield a copy with zeros appended, so that its last dimension is a multiple of `unit`."""
    if r.rank:
        wording = partial(words.pad_fix, r, words_of(r.tensor).widen, unit)
        yield Candidate(wording, {}, _copied(r, _whole_rows(r, unit)))


def _whole_rows(r: Request, unit: int) -> tuple[int, ...]:
    *outer, extent = r.tensor.shape
    return (*outer, -(-extent // unit) * unit)
