"""Random driver calls that reach limits and refusals: one step inside, on, and one step outside."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.limits import ADDRESS_END, MAX_BOX_BYTES, STRIDE_BYTES_END

Call = dict[str, Any]
T = TypeVar("T")

#: Edges of the driver's ranges; both sides of each are drawn.
_EDGES_OF_DIM = (0, 1, 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1)
_EDGES_OF_BOX = (0, 1, 255, 256, 257)
_EDGES_OF_STEP = (0, 1, 7, 8, 9)
_EDGES_OF_PIXELS = (0, 1, 1023, 1024, 1025)
_EDGES_OF_ADDRESS = (0, 8, 16, 32, ADDRESS_END - 32, ADDRESS_END - 16, ADDRESS_END)
_EDGES_OF_STRIDE = (
    0,
    8,
    16,
    32,
    48,
    STRIDE_BYTES_END - 32,
    STRIDE_BYTES_END - 16,
    STRIDE_BYTES_END,
)
_CORNER_LIMIT = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
#: How often a value is drawn from the edges.
_EDGE = 0.04


def random_call(kind: MapKind, rng: Random) -> Call:
    """Return the arguments of one `driver_encode_*` call, some of them refused."""
    tiled = kind == "tiled"
    data_type = _data_type(rng)
    rank = _sometimes(rng, (1, 2, 6), rng.randint(1 if tiled else 3, 5))
    interleave = _mostly(rng, 0, (1, 2))
    if interleave and rank < 3 and rng.random() < 0.8:
        rank = rng.randint(3, 5)
    swizzle = rng.choice((0, 1, 2, 3)) if rng.random() < 0.95 else rng.randint(4, 6)
    align = 32 if interleave == 2 else 16
    element_bytes = max(DATA_TYPES[data_type].element_bits // 8, 1)
    span = (1 << 30, 32, 64, 128)[swizzle] if swizzle < 4 else 128
    call: Call = {
        "tensor_data_type": data_type.name,
        "tensor_rank": rank,
        "global_address": _address(rng, align),
        "global_dim": tuple(_sometimes(rng, _EDGES_OF_DIM, _size(rng)) for _ in range(rank)),
        "global_strides": tuple(
            _sometimes(rng, _EDGES_OF_STRIDE, align * _size(rng)) for _ in range(rank - 1)
        ),
    }
    inner = _inner(rng, element_bytes, span)
    if tiled:
        call["box_dim"] = (inner, *_box(rng, rank, inner * element_bytes))
    else:
        call |= _pixels(kind, rng, rank, inner, element_bytes, call["global_dim"])
    call["element_strides"] = tuple(
        _sometimes(rng, _EDGES_OF_STEP, _mostly(rng, 1, (2, 3, 8))) for _ in range(rank)
    )
    call["interleave"] = interleave
    if kind == "im2col_wide":
        call["mode"] = rng.randint(0, 1)
    is_float = DATA_TYPES[data_type].is_float
    call["swizzle"] = swizzle
    call["l2_promotion"] = rng.randint(0, 3)
    call["oob_fill"] = int(rng.random() < (0.5 if is_float else 0.03))
    return call


def _data_type(rng: Random) -> TensorMapDataType:
    return TensorMapDataType(rng.randint(0, 12) if rng.random() < 0.98 else rng.randint(13, 15))


def _address(rng: Random, align: int) -> int:
    if rng.random() < 2 * _EDGE:
        return rng.choice(_EDGES_OF_ADDRESS)
    return rng.randrange(align, 1 << rng.randint(10, 57), align)


def _size(rng: Random) -> int:
    """Return a size of any magnitude."""
    return rng.randint(1, 1 << rng.randint(1, 20))


def _inner(rng: Random, element_bytes: int, span: int) -> int:
    """Return inner elements: mostly whole 16 bytes within the swizzle's span."""
    most = min(span // 16, 256 * element_bytes // 16)
    legal = rng.randint(1, max(most, 1)) * 16 // element_bytes
    return _sometimes(rng, (*_EDGES_OF_BOX, legal + 1, span // element_bytes + 16), legal)


def _box(rng: Random, rank: int, inner_bytes: int) -> tuple[int, ...]:
    """Return the outer box: often close to the limit of 228 KB."""
    room = MAX_BOX_BYTES // max(inner_bytes, 1)
    box = []
    for _ in range(rank - 1):
        most = min(max(room, 1), 256)
        n = most + rng.randint(0, 1) if rng.random() < 0.1 else rng.randint(1, most)
        box.append(_sometimes(rng, _EDGES_OF_BOX, n))
        room //= max(n, 1)
    return tuple(box)


def _pixels(
    kind: MapKind, rng: Random, rank: int, inner: int, element_bytes: int, dims: Sequence[int]
) -> Call:
    most = min(1024, max(MAX_BOX_BYTES // max(inner * element_bytes, 1), 1))
    pixels = most + rng.randint(0, 1) if rng.random() < 0.1 else rng.randint(1, most)
    limit = _CORNER_LIMIT.get(rank, 1 << 15)

    def corner(i: int) -> int:
        edges = (-limit - 1, -limit, limit - 1, limit, -int(dims[min(1 + i, rank - 1)]))
        return _sometimes(rng, edges, rng.randint(-min(limit, 8), min(limit - 1, 8)))

    lower = tuple(corner(i) for i in range(max(rank - 2, 1)))
    upper = tuple(corner(i) for i in range(max(rank - 2, 1)))
    if kind == "im2col_wide":
        corners: Call = {
            "pixel_box_lower_corner_width": lower[0],
            "pixel_box_upper_corner_width": upper[0],
        }
    else:
        corners = {
            "pixel_box_lower_corner": lower[: max(rank - 2, 0)],
            "pixel_box_upper_corner": upper[: max(rank - 2, 0)],
        }
    return {
        **corners,
        "channels_per_pixel": inner,
        "pixels_per_column": _sometimes(rng, _EDGES_OF_PIXELS, pixels),
    }


def _sometimes(rng: Random, edges: Sequence[T], otherwise: T) -> T:
    return rng.choice(edges) if rng.random() < _EDGE else otherwise


def _mostly(rng: Random, usual: T, others: Sequence[T]) -> T:
    return usual if rng.random() < 0.7 else rng.choice(others)
