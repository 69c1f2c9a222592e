"""Random copies for the hardware, and random calls of the driver's encoders.

The maps of copies describe tensors in a small arena. The coordinates of copies are inside of the
tensor or near its ends. The arguments of calls are often exactly at a limit of the driver, or one
step below or above the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

from tma_dlpack.verification.core import (
    CORNERS,
    DATA_TYPES,
    MAX_COORD,
    MAX_OFFSET,
    REDUCTIONS,
    EncodeArguments,
    MapKind,
    geometry,
    reach_bytes,
    targets,
    tma,
)

#: Size in bytes of the arena, which is the global memory that all copies use.
ARENA_BYTES = 1 << 19
#: Maximum sizes of random tiles in bytes; each tile uses one of these limits. The last limit is
#: near the maximum shared memory of a block.
_BUDGETS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 220_000)
# The data types except for the packed types of 4 and 6 bits.
_ORDINARY = tuple(tma.TensorMapDataType)[:13]
_MAX_SMEM_OFFSET = 2048


@dataclass(frozen=True, slots=True)
class Copy:
    """The arguments of one copy.

    `op` is ``"load"``, ``"store"`` or the name of a reduction. `start` is the offset in bytes of
    the tensor in the arena. `coords` are row-major. `data_seed` is the seed of the random bytes
    that a store or reduction reads from shared memory.
    """

    op: str
    arguments: EncodeArguments
    start: int
    coords: tuple[int, ...]
    im2col_offsets: tuple[int, ...] | None
    smem_offset: int
    data_seed: int


def random_copy(op: str, kind: MapKind, rng: Random, max_smem_bytes: int) -> Copy:
    """Return a random copy with a tiled or im2col map.

    `op` is ``"load"``, ``"store"`` or ``"reduce"``. With ``"reduce"``, the reduction is random.
    """
    writes = op != "load"
    while True:
        data_type = rng.choice(tuple(REDUCTIONS) if op == "reduce" else _ORDINARY)
        arguments = random_map(rng, kind, data_type, writes)
        smem_offset = 128 * rng.randint(0, _MAX_SMEM_OFFSET // 128)
        start = 32 * rng.randint(0, 64)
        # The mbarrier needs 8 bytes of shared memory after the tile.
        fits = smem_offset + geometry.smem_bytes(arguments) + 8 <= max_smem_bytes
        if fits and start + reach_bytes(arguments, geometry.CHUNK_BYTES) <= ARENA_BYTES:
            break
    coords, offsets = _start(rng, arguments, writes)
    return Copy(
        op=rng.choice(REDUCTIONS[data_type]) if op == "reduce" else op,
        arguments=arguments,
        start=start,
        coords=coords[::-1],
        im2col_offsets=None if writes else offsets,
        smem_offset=smem_offset,
        data_seed=rng.getrandbits(32),
    )


def start_at_limits(
    rng: Random, args: EncodeArguments
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return row-major coordinates and im2col offsets for a load at the limits.

    The values are often at the ends of dimensions and boxes, or at the limits of int32.
    """
    # ~MAX_COORD is the smallest coordinate, because coordinates are int32.
    coords = []
    for d, dim in enumerate(args.global_dim):
        box = args.box_dim[d] if args.box_dim else 8
        ends = (0, 0, dim - 1, dim, -1, -box, dim - box, MAX_COORD, ~MAX_COORD)
        inside = rng.randint(~MAX_COORD, MAX_COORD)
        coords.append(rng.choice((*ends, MAX_COORD - rng.randint(0, 300), inside)))
    coords = [min(max(c, ~MAX_COORD), MAX_COORD) for c in coords]
    # Round the innermost coordinate so that its offset is a multiple of 16 bytes. Otherwise the
    # load ends with the error "illegal instruction", which makes the CUDA context unusable.
    if not args.interleave:
        coords[0] = _on_16_bytes(coords[0], args)
    if args.kind == "tiled":
        return tuple(coords[::-1]), None
    for d, (low, high) in geometry.im2col_box(args).items():
        coords[d] = rng.choice((low, high, rng.randint(low, high), high + rng.randint(0, 1)))
    most = MAX_OFFSET[args.rank - 2]
    offsets = tuple(rng.choice((0, most, rng.randint(0, most + 1))) for _ in range(args.rank - 2))
    return tuple(coords[::-1]), offsets


def random_map(
    rng: Random, kind: MapKind, data_type: tma.TensorMapDataType | None = None, writes: bool = False
) -> EncodeArguments:
    """Return random valid arguments of a tiled or im2col map of a small tensor."""
    data_type = rng.choice(_ORDINARY) if data_type is None else data_type
    oob_fill = tma.TmaOobFill(DATA_TYPES[data_type].is_float and rng.random() < 0.5)
    interleave = tma.TmaInterleaveLayout(rng.choice((0, 0, 0, 1, 2)))
    swizzle = tma.TmaSwizzle(rng.randint(0, 3))
    options: dict[str, Any] = {"interleave": interleave, "swizzle": swizzle, "oob_fill": oob_fill}
    args = EncodeArguments(kind, data_type, (), (), (), **options)
    rank = rng.randint(3 if args.interleave or kind == "im2col" else 1, 5)
    dims, inner = _dims(rng, rank), _inner(rng, args)
    steps = tuple(rng.choice((1, 1, 1, rng.randint(1, 8))) for _ in range(rank))
    # Often make rows that are about 1 to 3 boxes long, so that tiles reach the end of a row.
    if not args.interleave and rng.random() < 0.7:
        dims[0] = max(1, inner * rng.randint(1, 3) + rng.randint(-3, 3))
    if kind == "tiled":
        tile = _box(rng, args, inner, steps)
    else:
        tile = _column(rng, args, inner, dims, writes)
    tile |= {"element_strides": steps, "global_strides": _strides(rng, args, dims, writes)}
    return args._replace(global_dim=tuple(dims), **tile)


def _box(rng: Random, args: EncodeArguments, inner: int, steps: tuple[int, ...]) -> dict[str, Any]:
    # A line is a row of the box along dimension 0. `room` is the number of lines that still fit the
    # random maximum size of the tile. If the box has the extent n in a dimension and the element
    # stride is s, it loads n / s lines there.
    room = rng.choice(_BUDGETS) // max(inner * args.type_row.element_bytes, 1)
    box = [inner]
    for step in steps[1:]:
        n = rng.randint(1, max(min(room, 256 // step), 1)) * step
        box.append(min(n, 256))
        room = max(room // max(n // step, 1), 1)
    return {"box_dim": tuple(box)}


def _column(
    rng: Random, args: EncodeArguments, channels: int, dims: list[int], writes: bool
) -> dict[str, Any]:
    """Return random corners, channels per pixel and pixels per column of an im2col map.

    Also change some of the spatial extents in `dims`.
    """
    first, rank = 0 if args.interleave else 1, len(dims)
    limit = targets.CORNER_ENDS[rank]
    lower, upper = [], []
    for d in range(first, first + rank - 2):
        dims[d] = rng.choice((dims[d], rng.randint(3, 24)))
        low = rng.choice((0, -1, rng.randint(-min(9, limit), 4)))
        high = rng.choice((0, -1, -2, rng.randint(-4, 9)))
        if writes:
            low, high = max(low, 0), min(high, 0)
        # Keep at least one pixel in the bounding box.
        low = min(low, dims[d] - 1 + max(high, 1 - dims[d]))
        lower.append(low)
        upper.append(max(high, low - dims[d] + 1))
    pixel_bytes = max(channels * args.type_row.element_bytes, 32 if args.interleave else 16)
    span = 0 if args.interleave else targets.SWIZZLE_SPAN_BYTES[args.swizzle]
    most = max(min(rng.choice(_BUDGETS) // max(pixel_bytes, span), 1024), 1)
    return {
        "pixel_box_lower_corner": tuple(lower),
        "pixel_box_upper_corner": tuple(upper),
        "channels_per_pixel": channels,
        "pixels_per_column": rng.randint(1, most),
    }


def _start(
    rng: Random, args: EncodeArguments, writes: bool
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return random coordinates and im2col offsets of a copy, both innermost first."""
    least = [-2] * args.rank if args.kind == "im2col" else [-box - 1 for box in args.box_dim]
    places = zip(least, args.global_dim, strict=True)
    coords = [_place(rng, 0 if writes else low, dim) for low, dim in places]
    if not args.interleave:
        coords[0] = _on_16_bytes(coords[0], args)
    if args.kind == "tiled":
        return tuple(coords), None
    for d, (low, high) in geometry.im2col_box(args).items():
        inside = min(max(coords[d], low), high)
        coords[d] = rng.choice((inside, inside, inside, low, high, rng.randint(low, high)))
    most = rng.choice((0, 0, 0, 1, 1, 2, 4, MAX_OFFSET[args.rank - 2]))
    return tuple(coords), tuple(rng.randint(0, most) for _ in range(args.rank - 2))


def _inner(rng: Random, args: EncodeArguments) -> int:
    """Return a random innermost box extent in elements.

    Its size is a multiple of 16 bytes, and at most the span of the swizzle.
    """
    span = targets.SWIZZLE_SPAN_BYTES[args.swizzle] or 256
    element_bytes = args.type_row.element_bytes
    most = min(span, 256 * element_bytes) // 16
    return max(rng.choice((1, most, rng.randint(1, most))) * 16 // element_bytes, 1)


def _dims(rng: Random, rank: int) -> list[int]:
    """Return random extents of a tensor whose number of elements is small; some extents are 1."""
    room = 2 ** rng.randint(4, 16)
    dims = []
    for _ in range(rank):
        n = rng.randint(1, max(min(room, 300), 1))
        dims.append(n)
        room = max(room // n, 1)
    rng.shuffle(dims)
    return dims


def _strides(rng: Random, args: EncodeArguments, dims: list[int], dense: bool) -> tuple[int, ...]:
    """Return random strides such that rows do not overlap, sometimes with gaps between rows.

    If `dense` is False, a stride may also be 0.
    """
    # With an interleave layout, the unit of dimension 0 is a slice of 16 or 32 bytes.
    align = args.alignment_bytes
    unit = 16 * args.interleave if args.interleave else args.type_row.element_bytes
    stride, strides = -(-dims[0] * unit // align) * align, []
    for n in dims[1:]:
        stride += align * rng.choice((0, 0, 1, rng.randint(0, 8)))
        strides.append(0 if not dense and rng.random() < 0.05 else stride)
        stride *= n
    return tuple(strides)


def _place(rng: Random, least: int, dim: int) -> int:
    """Return a random coordinate of a dimension with the extent `dim`; it is mostly in bounds."""
    if rng.random() < 0.2:
        return rng.randint(least, dim + 1)
    return rng.choice((0, rng.randint(0, dim - 1)))


def _on_16_bytes(coord: int, args: EncodeArguments) -> int:
    """Round an innermost coordinate down, so that its offset is a multiple of 16 bytes."""
    # Use the least common multiple, because 128 bits are not a whole number of 6-bit elements.
    bits = args.type_row.element_bits
    step = math.lcm(128, bits) // bits
    return coord // step * step


# -- calls -----------------------------------------------------------------------------------------


_COMMON = ("global_dim", "global_strides", "element_strides")
_OPTIONS = ("interleave", "swizzle", "l2_promotion", "oob_fill")
_OF_KIND = {"tiled": ("box_dim",), "im2col": (*CORNERS, "channels_per_pixel", "pixels_per_column")}


def keywords_of(args: EncodeArguments) -> dict[str, Any]:
    """Return the keyword arguments of `driver_encode_*` for a map, except for the address."""
    names = (*_COMMON, *_OPTIONS, *_OF_KIND[args.kind])
    first = {"tensor_data_type": args.data_type, "tensor_rank": args.rank}
    return first | {name: getattr(args, name) for name in names}


Call = dict[str, Any]

_BOX = (0, 1, 255, 256, 257)
_STRIDES = (0, 8, 16, 32, 48, *(targets.STRIDE_BYTES_END - n for n in (32, 16, 0)))
_EXTENTS = (0, 1, 2, *((1 << bits) + n for bits in (31, 32) for n in (-1, 0, 1)))
# Values at the limits of corners: the largest valid corner, the smallest valid corner, and the
# invalid neighbours of these two values. The limits depend on the rank; the tuple has the limits of
# all ranks.
_CORNERS = tuple(
    sign * end + n
    for end in sorted(targets.CORNER_ENDS.values())
    for sign in (-1, 1)
    for n in (-1, 0)
)
#: Argument -> values on both sides of each limit of the range that the driver accepts.
EDGES: dict[str, tuple[Any, ...]] = {
    "tensor_data_type": ("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"),
    "global_address": (0, 8, 16, 32, *(targets.ADDRESS_END - n for n in (32, 16, 0))),
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
#: The probability that an argument, or an entry of a tuple, is replaced by a value of `EDGES`.
_EDGE = 0.04


def random_call(kind: MapKind, rng: Random, *, of_any_magnitude: bool = True) -> Call:
    """Return random arguments for a call of `driver_encode_*`; the driver refuses some of them."""
    args = random_map(rng, "tiled" if kind == "tiled" else "im2col")
    step = args.alignment_bytes
    call = keywords_of(args) | {
        "tensor_data_type": args.data_type.name,
        "global_address": rng.randrange(step, 1 << rng.randint(10, 57), step),
        "l2_promotion": rng.randint(0, 3),
    }
    # Shift extents and strides left to make large tensors. A left shift keeps the alignment of a
    # stride.
    if of_any_magnitude:
        for name in ("global_dim", "global_strides"):
            call[name] = tuple(n << rng.choice((0, rng.randint(0, 16))) for n in call[name])
    if rng.random() < 2 * _EDGE:
        call |= _largest(rng, args)
    for name, edges in EDGES.items():
        if name in call:
            call[name] = _with_edges(rng, call[name], edges)
    if rng.random() < _EDGE:
        call |= _of_rank(call, rng.choice((1, 2, 6)))
    if kind == "im2col_wide":
        # The encoder of im2col_wide has one integer for a corner (the corner's W), not an array.
        for corner in CORNERS:
            call[f"{corner}_width"] = (*call.pop(corner), 0)[0]
        call["mode"] = rng.randint(0, 1)
    return call


def _largest(rng: Random, args: EncodeArguments) -> Call:
    """Return a new last extent of the box, so that the tile is as large as the limit (228 KB).

    In half of the cases the extent is larger by 1, so the tile exceeds the limit.
    """
    *box, _ = args.box_dim or (args.channels_per_pixel, 0)
    most = targets.MAX_BOX_BYTES // (math.prod(box) * args.type_row.element_bytes) + rng.randint(
        0, 1
    )
    if args.kind == "tiled":
        return {"box_dim": (*box, min(most, 257))}
    return {"pixels_per_column": min(most, 1025)}


def _with_edges(rng: Random, value: Any, edges: tuple[Any, ...]) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_edges(rng, n, (*edges, n - 1, n + 1)) for n in value)
    plain = int(value) if isinstance(value, int) else value
    return rng.choice(edges) if rng.random() < _EDGE else plain


def _of_rank(call: Call, rank: int) -> Call:
    """Return `tensor_rank` and the arrays for a new rank. The arrays are cut or repeated."""
    fewer = {"global_strides": 1, "pixel_box_lower_corner": 2, "pixel_box_upper_corner": 2}
    counts = {
        name: max(rank - fewer.get(name, 0), 0) for name, v in call.items() if type(v) is tuple
    }
    resized = {name: ((call[name] or (32,)) * rank)[:count] for name, count in counts.items()}
    return {"tensor_rank": rank} | resized
