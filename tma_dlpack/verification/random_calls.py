"""Random driver calls that reach limits and refusals: one step inside, on, and one step outside."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from tma_dlpack.tables.arguments import EncodeArguments, MapKind
from tma_dlpack.tables.limits import ADDRESS_END, MAX_BOX_BYTES, STRIDE_BYTES_END
from tma_dlpack.verification.arena import keywords_of
from tma_dlpack.verification.random_copies import random_map

Call = dict[str, Any]

_BOX = (0, 1, 255, 256, 257)
_STRIDES = (0, 8, 16, 32, 48, *(STRIDE_BYTES_END - n for n in (32, 16, 0)))
_EXTENTS = (0, 1, 2, *((1 << bits) + n for bits in (31, 32) for n in (-1, 0, 1)))
_CORNERS = tuple(
    end + n for bits in (4, 7, 15) for end in (-(1 << bits), 1 << bits) for n in (-1, 0)
)
#: Edges of the driver's ranges; both sides of each are drawn.
EDGES: dict[str, tuple[Any, ...]] = {
    "tensor_data_type": ("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"),
    "global_address": (0, 8, 16, 32, *(ADDRESS_END - n for n in (32, 16, 0))),
    "global_dim": _EXTENTS,
    "global_strides": _STRIDES,
    "box_dim": _BOX,
    "element_strides": (0, 1, 7, 8, 9),
    "swizzle": (4, 5, 6),
    "oob_fill": (0, 1),
    "pixel_box_lower_corner": _CORNERS,
    "pixel_box_upper_corner": _CORNERS,
    "channels_per_pixel": _BOX,
    "pixels_per_column": (0, 1, 1023, 1024, 1025),
}
#: How often a value is drawn from the edges.
_EDGE = 0.04


def random_call(kind: MapKind, rng: Random) -> Call:
    """Return the arguments of one `driver_encode_*` call, some of them refused."""
    args = random_map(rng, "tiled" if kind == "tiled" else "im2col")
    step = args.alignment_bytes
    call = keywords_of(args) | {
        "tensor_data_type": args.data_type.name,
        "global_address": rng.randrange(step, 1 << rng.randint(10, 57), step),
        "l2_promotion": rng.randint(0, 3),
    }
    for name in ("global_dim", "global_strides"):  # of any magnitude
        call[name] = tuple(n << rng.choice((0, rng.randint(0, 16))) for n in call[name])
    if rng.random() < 2 * _EDGE:
        call |= _largest(rng, args)
    for name, edges in EDGES.items():
        if name in call:
            call[name] = _with_edges(rng, call[name], edges)
    if rng.random() < _EDGE:
        call |= _of_rank(call, rng.choice((1, 2, 6)))
    if kind == "im2col_wide":
        for corner in ("pixel_box_lower_corner", "pixel_box_upper_corner"):
            call[f"{corner}_width"] = (*call.pop(corner), 0)[0]
        call["mode"] = rng.randint(0, 1)
    return call


def _largest(rng: Random, args: EncodeArguments) -> Call:
    """Return the last extent of the tile at, and one above, the limit of 228 KB."""
    *box, _ = args.box_dim or (args.channels_per_pixel, 0)
    most = MAX_BOX_BYTES // (math.prod(box) * args.type_row.element_bytes) + rng.randint(0, 1)
    if args.kind == "tiled":
        return {"box_dim": (*box, min(most, 257))}
    return {"pixels_per_column": min(most, 1025)}


def _with_edges(rng: Random, value: Any, edges: tuple[Any, ...]) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_edges(rng, n, (*edges, n - 1, n + 1)) for n in value)
    plain = int(value) if isinstance(value, int) else value
    return rng.choice(edges) if rng.random() < _EDGE else plain


def _of_rank(call: Call, rank: int) -> Call:
    """Return the arguments that have an entry per dimension, cut short or repeated."""
    fewer = {"global_strides": 1, "pixel_box_lower_corner": 2, "pixel_box_upper_corner": 2}
    counts = {
        name: max(rank - fewer.get(name, 0), 0) for name, v in call.items() if type(v) is tuple
    }
    resized = {name: ((call[name] or (32,)) * rank)[:count] for name, count in counts.items()}
    return {"tensor_rank": rank} | resized
