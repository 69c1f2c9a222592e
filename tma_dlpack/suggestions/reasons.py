"""Sentences that explain why a box is or is not suggested, and which similar tiles would work.

The attributes `Suggestion.reasons` and `Suggestions.reasons` are computed by these functions when a
program first reads the attribute.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tma_dlpack.checks.report import driver_accepts
from tma_dlpack.consumer.reads import WARP
from tma_dlpack.suggestions.speeds import card_of
from tma_dlpack.suggestions.tile_choices import BoxChoice, SuggestRequest, choices
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import Finding, Violation
from tma_dlpack.tables.targets import INNER_BYTES

# Number of bytes that a warp loads with one instruction. A tile with fewer bytes is loaded faster
# by plain loads than by TMA.
FEW_BYTES = WARP * 16
# A choice is called slow if its speed is below this share of a memcpy's speed.
SLOW = 0.7
PLAIN_LOADS = "copy it with plain loads of 16 bytes or with cp.async, which take any stride"
Reasons = tuple[str, ...]


def of_choice(choice: BoxChoice, wanted: SuggestRequest) -> Reasons:
    # The sentences are about, in this order: number of copies, split_inner, matrix descriptor,
    # speed, gaps in shared memory, rules that `allow` switches off.
    target = wanted.target
    each = "one copy fills the tile" if choice.copies == 1 else f"{choice.copies} copies fill it"
    reasons = [f"{each}: box {choice.arguments['box_sizes']} with swizzle {choice.swizzle.name}"]
    if "split_inner" in choice.arguments:
        reasons.append(
            f"split_inner: spans of {choice.line_bytes} bytes side by side, in a box {choice.box}; "
            f"the coordinates of a tile at (.., m, k) are (k / {choice.box[-1]}, .., m, 0)"
        )
    if choice.descriptor is not None:
        d = choice.descriptor
        reasons.append(
            f"{d.instruction} reads a copy in {counted(d.k_steps, 'step')} of K: "
            f"{d.value:#018x} at shared address 0"
        )
    here = f"measured, {wanted.card.measured}"
    other = card_of(wanted.view.device)[1]
    if not target.has_model or other is not None:
        here = f"not measured on {other or target}; on an {wanted.card.measured}"
    reasons.append(
        f"lines of {choice.line_bytes} bytes: {choice.speed:.2f} of a memcpy's speed ({here})"
    )
    if choice.speed < SLOW:
        reasons.append("slow: narrow lines keep the engine busy; take a wider tile if you can")
    # In shared memory, a gap follows each line that is narrower than the swizzle's span.
    if choice.smem_bytes > choice.tx_bytes:
        each_line = choice.smem_bytes * choice.line_bytes // choice.tx_bytes
        reasons.append(f"each line takes {each_line} bytes")
    allowed = choice.arguments.get("allow", ())
    if "BOX_IN_SHAPE" in allowed:
        reasons.append("the box is larger than the tensor: what is outside is filled with zeros")
    if "STRIDE_UNIQUE" in allowed:
        strides = wanted.view.strides
        reasons.append(f"the strides {strides} are not those of ordered, separate rows")
    if allowed:
        reasons.append(f"allow={allowed}: {driver_accepts(set(allowed))}")
    return tuple(reasons)


def of_left_out(wanted: SuggestRequest, boxes: list[BoxChoice]) -> Reasons:
    return tuple(
        f"left out: box {choice.box} with swizzle {choice.swizzle.name}, which "
        f"{wanted.reader} read {choice.conflicts}-way"
        for choice in boxes
    )


def of_tensor(findings: Sequence[Finding], wanted: SuggestRequest) -> Reasons:
    # Plain loads work with the strides and addresses that TMA refuses.
    places = any(f.rule.startswith(("STRIDE", "ADDRESS")) for f in findings)
    sentences = [_for_tile(_sentence(finding), wanted) for finding in findings]
    return (*sentences, *((f"or {PLAIN_LOADS}",) if places else ()))


def _sentence(finding: Finding) -> str:
    return f"{finding.found}; {finding.limit}. {finding.fix}"


# The part of a fix that permutes the tensor, such as ".permute(1, 0) with tile=(64, 128)".
_PERMUTE = re.compile(
    r"(?P<code>\.(?:permute|transpose)\([\d, ]+\))(?P<tile> with tile=\([^)]*\))?"
)


def _for_tile(text: str, wanted: SuggestRequest) -> str:
    """Rewrite the text of a fix of `make_tma_descriptor` as a fix of `suggest`.

    The argument `box_sizes` becomes `tile`. A fix that permutes the tensor may exchange the
    dimension K with M or N. Then the fix also changes `major`.
    """
    text = text.replace("box_sizes=", "tile=")
    shape, strides = wanted.view.shape, wanted.view.strides
    # The permutation moves the dimension of stride 1 to the end. It exchanges K with M or N only if
    # the dimension of stride 1 was the second to last dimension.
    contiguous = [d for d, n in enumerate(shape) if n > 1 and strides[d] == 1]
    if wanted.reader in (None, "threads") or contiguous[-1:] != [len(shape) - 2]:
        return text  # a permutation does not exchange K with M or N
    other = "MN" if wanted.major == "K" else "K"

    def flipped(found: re.Match[str]) -> str:
        joined = "and" if found["tile"] else "with"
        return f"{found[0]} {joined} major={other!r}"

    return _PERMUTE.sub(flipped, text)


def if_needless(wanted: SuggestRequest) -> Callable[[], Reasons] | None:
    """Return a function that returns the reasons why TMA should not copy the tile.

    Return None if TMA should copy the tile.
    """
    # Row sizes are in bits, because a row of a 4-bit type may end in the middle of a byte.
    tile, bits = wanted.tile, wanted.bits
    row_bits, lines = tile[-1] * bits, math.prod(tile[:-1])
    if row_bits % (INNER_BYTES * 8):
        return partial(_narrow, wanted)
    if lines == 1:
        return partial(_reasons_of_row, row_bits // 8)
    if lines * row_bits < FEW_BYTES * 8:
        return partial(_few, lines * row_bits // 8)
    return None


def _narrow(wanted: SuggestRequest) -> Reasons:
    tile, bits = wanted.tile, wanted.bits
    works = _nearest(wanted, len(tile) - 1)[1]
    take = "" if works is None else f"take a tile of {works}, or "
    return (
        f"a row of the tile is {tile[-1] * bits / 8:g} bytes, and a copy takes multiples of "
        f"{INNER_BYTES} bytes: {take}{PLAIN_LOADS}",
    )


def _reasons_of_row(row_bytes: int) -> Reasons:
    return (
        f"the tile is one contiguous row of {row_bytes} bytes: cp.async.bulk copies it without a "
        "tensor map, from any address that is a multiple of 16 bytes; to gather many rows, take a "
        "tile of several, or load them with plain loads",
    )


def _few(tile_bytes: int) -> Reasons:
    return (
        f"the tile has {tile_bytes} bytes: a warp loads {FEW_BYTES} in one instruction, with less "
        "latency than a copy; take a larger tile, or plain loads",
    )


def of_too_large(wanted: SuggestRequest, tile_bytes: int) -> Reasons:
    stages, room = wanted.stages, wanted.room
    fewer = room // tile_bytes
    if fewer and _works(replace(wanted, stages=fewer), wanted.tile):
        fix = f"pass stages={fewer}"
    else:
        smaller = _smaller(wanted)
        fix = "take a smaller tile" + (f", such as {smaller}" if smaller else "")
    return (
        f"{counted(stages, 'stage')} of {tile_bytes} bytes of shared memory do not fit into "
        f"{room}: {fix}",
    )


def of_not_read(wanted: SuggestRequest, violations: Sequence[Violation], may_fit: bool) -> Reasons:
    """Return a sentence that names the nearest tiles that `wanted.reader` can read.

    If there is no such tile, return the violations of the first box that was refused.
    """
    reader = wanted.reader
    who = f"{reader} cannot read it" if reader else "no box is accepted"
    tile = wanted.tile
    for d in reversed(range(len(tile))) if may_fit else ():
        below, above = _nearest(wanted, d)
        works = [near for near in (below, above) if near is not None]
        if works:
            # `step` divides the extents that work. The sentence says "no multiple of `step`" if
            # `step` does not divide the tile's extent, and if there is enough evidence. Two extents
            # that work are enough, and so is a `step` of at most twice the search's step `_unit`.
            step = math.gcd(*(near[d] for near in works))
            is_cause = tile[d] % step and (len(works) == 2 or step <= 2 * _unit(wanted, d))
            multiple = f", no multiple of {step}" if is_cause else ""
            numbers = " or ".join(str(near[d]) for near in works)
            tiles = " or ".join(map(str, works))
            found = f"{_dimension(wanted, d)} is {tile[d]}{multiple}"
            return (f"{who}: {found}; {numbers} works: take a tile of {tiles}",)
    return (f"{who}, in whatever boxes", *map(_sentence, violations))


def _dimension(wanted: SuggestRequest, d: int) -> str:
    last = len(wanted.tile) - 1
    if wanted.reader in ("wgmma", "tcgen05", "ldmatrix") and d >= last - 1:
        return "K" if (d == last) is (wanted.major == "K") else "M or N"
    return f"tile[{d}]"


# -- tiles that work -------------------------------------------------------------------------------

# Maximum number of smaller tiles that `_nearest` tries; the maximum for larger tiles is the same.
MAX_TRIES = 8


def _works(wanted: SuggestRequest, tile: tuple[int, ...]) -> bool:
    other = replace(wanted, tile=tile)
    if if_needless(other) is not None or not other.fits(other.tile_bytes):
        return False
    return any(other.fits(choice.all_bytes) for choice in choices(other)[0])


def _nearest(
    wanted: SuggestRequest, d: int
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the nearest smaller tile and the nearest larger tile for which a box is accepted.

    The two tiles differ from the wanted tile only in the extent of dimension `d`. A tile is None if
    no such tile was found.
    """
    tile, unit = wanted.tile, _unit(wanted, d)
    if not isinstance(wanted.access, str):
        return None, None  # the access function is valid only for the wanted tile
    # `downward` and `upward` have the multiples of `unit` below and above the wanted tile's extent.
    begin = tile[d] // unit * unit
    downward = range(begin if begin < tile[d] else begin - unit, 0, -unit)
    upward = range(begin + unit, begin + (MAX_TRIES + 1) * unit, unit)

    def first(extents: range) -> tuple[int, ...] | None:
        tiles = ((*tile[:d], n, *tile[d + 1 :]) for n in extents[:MAX_TRIES])
        return next((near for near in tiles if _works(wanted, near)), None)

    return first(downward), first(upward)


def _smaller(wanted: SuggestRequest) -> tuple[int, ...] | None:
    """Return a smaller tile for which a box is accepted; None if no such tile is found.

    The tile's largest extent is halved again and again, until a box is accepted.
    """
    tile = list(wanted.tile)
    while True:
        d = max(range(len(tile)), key=lambda d: tile[d] / _unit(wanted, d))
        half = tile[d] // 2 // _unit(wanted, d) * _unit(wanted, d)
        if half == 0:
            return None
        tile[d] = half
        if _works(wanted, tuple(tile)):
            return tuple(tile)


def _unit(wanted: SuggestRequest, d: int) -> int:
    """Return the step between the extents that are tried along a dimension, in elements.

    In the last dimension, the step is the number of elements in 16 bytes. In other dimensions, the
    step is 8, because a swizzle atom has 8 rows.
    """
    return INNER_BYTES * 8 // wanted.bits if d == len(wanted.tile) - 1 else 8
