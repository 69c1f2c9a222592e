"""Instructions that the lanes of a warp execute together: shuffles, votes, matches, elections.

Source: PTX ISA 9.0, 9.7.9.6 (shfl.sync), 9.7.13 (vote, match, activemask, redux, elect).
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from tma_dlpack.kernel.operations import Operation, operation
from tma_dlpack.ptx.parse import Instruction

WARP = 32
_EVERY = 0xFFFFFFFF
# Operations of redux.sync: _ORDERED is for integers (u32, s32), and _BITS is for bits (b32).
_ORDERED = {"add": np.add, "min": np.minimum, "max": np.maximum}
_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _warps(g: Any, value: Any, fill: Any = 0) -> tuple[Any, Any]:
    """Return (values as an array (warps, 32), index of the group's threads in this array).

    The entries of lanes that are not in the group have the value `fill`.
    """
    if _is_whole(g):
        return np.broadcast_to(value, g.n).reshape(-1, WARP), _places(g.n)
    warps, at = np.unique(g.lanes // WARP, return_inverse=True)
    lanes = g.lanes % WARP
    shaped = np.full((len(warps), WARP), fill, np.asarray(value).dtype)
    shaped[at, lanes] = value
    return shaped, (at, lanes)


def _is_whole(g: Any) -> bool:
    """Return whether a group consists of neighbouring warps with all 32 lanes."""
    return type(g.index) is slice and g.n % WARP == 0 and g.index.start % WARP == 0


@lru_cache(maxsize=64)
def _places(n: int) -> tuple[Any, Any]:
    """Return (warp, lane) of the threads 0 to n - 1."""
    threads = np.arange(n)
    return threads // WARP, threads % WARP


def _members(g: Any, mask: Any, members: Any) -> Any:
    """Return a mask (warps, 32) of the lanes that execute and are in the member mask."""
    every = np.ones(g.n, np.bool_) if mask is None else mask
    present, (at, _) = _warps(g, every, False)
    wanted = np.broadcast_to(np.asarray(members).astype(np.uint32), g.n)
    masks = np.zeros(len(present), np.uint32)
    masks[at] = wanted
    bits = masks[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)
    return present & bits.astype(np.bool_)


def _by_mask(run: Any) -> Any:
    """Return an operation that calls `run` once for each distinct member mask.

    The member mask is the last operand.
    """

    def each(g: Any, mask: Any, *operands: Any) -> Any:
        *values, members = operands
        if np.ndim(members) == 0 or (members == members[0]).all():
            return run(g, mask, *operands)
        found: Any = None
        for one in np.unique(members):
            here = members == one if mask is None else mask & (members == one)
            result = run(g, here, *values, one)
            results = result if type(result) is tuple else (result,)
            pairs = zip(results, found or results, strict=True)
            found = tuple(np.where(here, new, old) for new, old in pairs)
        return found

    return each


def _sources(how: str, lane: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Return (source lane of a shuffle, whether the source is in the segment) for each lane."""
    # In the operand c, bits 0-4 are the clamp and bits 8-12 are the segment mask (PTX ISA 9.7.9.6).
    b = b & 31
    segment, clamp = c >> 8 & 31, c & 31
    low, high = lane & segment, (lane & segment) | (clamp & ~segment)
    if how == "up":
        source = lane - b
        inside = source >= high
    else:
        moved = {"down": lane + b, "bfly": lane ^ b, "idx": low | (b & ~segment)}
        source = moved[how]
        inside = source <= high
    return np.where(inside, source, lane) & 31, inside


@operation("shfl.sync")
def _shuffle(code: Instruction) -> Operation:
    how = code.opcode.split(".")[2]
    pair = "|" in code.operands.split(",")[0]
    # A shuffle has few distinct constant operands (b, c), so cache the results for these operands.
    known = lru_cache(maxsize=8)(partial(_sources, how, _places(WARP)[1]))

    def run(g: Any, mask: Any, value: Any, b: Any, c: Any, members: Any) -> Any:
        value = np.broadcast_to(np.asarray(value, np.uint32), g.n)
        shaped, (at, lanes) = _warps(g, value)
        is_every = type(members) is int and members & _EVERY == _EVERY
        # Most shuffles have constant operands and whole warps.
        if type(b) is type(c) is int and is_every and mask is None and _is_whole(g):
            source, inside = known(b, c)
            found = shaped[:, source].reshape(-1)
            return (found, np.tile(inside, len(shaped))) if pair else found
        present = _members(g, mask, members)
        lane = lanes.astype(np.int64)
        b, c = (np.broadcast_to(np.asarray(x).astype(np.int64), g.n) for x in (b, c))
        source, inside = _sources(how, lane, b, c)
        # In PTX, a read from a lane outside of the member mask is undefined. Return the reading
        # lane's own value in this case.
        found = np.where(present[at, source] | (source == lane), shaped[at, source], value)
        return (found, inside) if pair else found

    return Operation(_by_mask(run), destinations=1, needs_warp=True)


@operation("vote.sync")
def _vote(code: Instruction) -> Operation:
    how = code.opcode.split(".")[2]

    def run(g: Any, mask: Any, p: Any, members: Any) -> Any:
        p = np.broadcast_to(np.asarray(p, np.bool_), g.n)
        shaped, (at, _) = _warps(g, p, False)
        present = _members(g, mask, members)
        true = shaped & present
        if how == "ballot":
            weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
            return (true * weights).sum(axis=1).astype(np.uint32)[at]
        if how == "any":
            return true.any(axis=1)[at]
        # vote.uni is true if the predicates of all members are equal.
        is_all = (true == present).all(axis=1)
        return (is_all if how == "all" else is_all | ~true.any(axis=1))[at]

    return Operation(_by_mask(run), destinations=1, needs_warp=True)


@operation("activemask")
def _activemask(code: Instruction) -> Operation:
    def run(g: Any, mask: Any) -> Any:
        present, (at, _) = _warps(g, np.ones(g.n, np.bool_), False)
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        return (present * weights).sum(axis=1).astype(np.uint32)[at]

    return Operation(run, destinations=1)


@operation("elect.sync")
def _elect(code: Instruction) -> Operation:
    def run(g: Any, mask: Any, members: Any) -> Any:
        present = _members(g, mask, members)
        # PTX does not define which member is elected. Elect the lowest member.
        leader = present.argmax(axis=1).astype(np.uint32)
        _, (at, lanes) = _warps(g, np.ones(g.n, np.bool_), False)
        return leader[at], (lanes == leader[at]) & present[at, lanes]

    return Operation(_by_mask(run), destinations=1, needs_warp=True)


@operation("redux.sync")
def _redux(code: Instruction) -> Operation | None:
    words = code.opcode.split(".")
    how, kind = words[2], words[-1]
    if kind not in ("u32", "s32", "b32") or how not in {**_ORDERED, **_BITS}:
        return None

    def run(g: Any, mask: Any, value: Any, members: Any) -> Any:
        value = np.broadcast_to(np.asarray(value, np.uint32), g.n)
        shaped, (at, _) = _warps(g, value)
        present = _members(g, mask, members)
        typed = shaped.view(np.int32) if kind == "s32" else shaped
        function = {**_ORDERED, **_BITS}[how]
        results = [function.reduce(row[here]) for row, here in zip(typed, present, strict=True)]
        return np.array(results).astype(typed.dtype).view(np.uint32)[at]

    return Operation(_by_mask(run), destinations=1, needs_warp=True)


@operation("match.any.sync", "match.all.sync")
def _match(code: Instruction) -> Operation:
    is_all = code.opcode.split(".")[1] == "all"
    pair = "|" in code.operands.split(",")[0]

    def run(g: Any, mask: Any, value: Any, members: Any) -> Any:
        shaped, (at, lanes) = _warps(g, np.broadcast_to(np.asarray(value), g.n))
        present = _members(g, mask, members)
        # `same` is a mask (threads, 32). For each thread, it selects the members of the thread's
        # warp that have an equal value.
        same = (shaped[at] == shaped[at, lanes][:, None]) & present[at]
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        if is_all:
            agree = (same == present[at]).all(axis=1)
            whole = (present * weights).sum(axis=1).astype(np.uint32)[at]
            found = np.where(agree, whole, np.uint32(0))
            return (found, agree) if pair else found
        return (same * weights).sum(axis=1).astype(np.uint32)

    return Operation(_by_mask(run), destinations=1, needs_warp=True)
