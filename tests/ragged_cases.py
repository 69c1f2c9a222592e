"""Ragged maps of small tensors, random slices, and the tiles that NumPy computes."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np

import tma_dlpack as tma

TYPES = {"FLOAT32": np.float32, "FLOAT16": np.float16, "UINT8": np.uint8, "FLOAT64": np.float64}


class Case(NamedTuple):
    """A tensor, a box, the ragged dimension, a slice along it, and coordinates of a tile."""

    shape: tuple
    dtype: type
    box: tuple
    dim: int
    offset: int
    size: int
    coords: tuple

    def slice_of(self, x):
        return x[(slice(None),) * self.dim + (slice(self.offset, self.offset + self.size),)]


def random_case(rng: Random) -> Case:
    dtype = rng.choice(list(TYPES.values()))
    step = 16 // np.dtype(dtype).itemsize
    rank = rng.randint(2, 3)
    shape = (*(rng.randint(1, 12) for _ in range(rank - 1)), step * rng.randint(1, 4))
    box = (*(rng.randint(1, 8) for _ in range(rank - 1)), step * rng.randint(1, 4))
    dim = rng.randint(0, rank - 2)
    offset = rng.randint(0, shape[dim])
    size = rng.randint(0, shape[dim] - offset)
    coords = [*(rng.randint(-3, 12) for _ in range(rank - 1)), step * rng.randint(-2, 4)]
    coords[dim] = rng.randint(0, max(size, 1))
    return Case(shape, dtype, box, dim, offset, size, tuple(coords))


def numbered(shape, dtype):
    """Return an array of small numbers other than 0, aligned to 128 bytes."""
    count = int(np.prod(shape))
    room = np.empty(count + 128, dtype)
    start = -room.ctypes.data % 128 // room.itemsize
    x = room[start : start + count]
    x[:] = np.arange(1, count + 1) % 251 + 1
    return x.reshape(shape)


def ragged_map(x, address, box_sizes, dim=0, **options):
    """Make the map of an array at a bare address, for copies with `memory=`."""
    made = tma.ragged(x, box_sizes, dim)
    name = next(name for name, kind in TYPES.items() if kind == x.dtype)
    strides = [x.itemsize * stride for stride in made["strides"][-2::-1]]
    return tma.driver_encode_tiled(
        name, x.ndim + 2, address, made["shape"][::-1], strides, made["box_sizes"][::-1],
        (1,) * (x.ndim + 2), **options,
    )  # fmt: skip


def expected_tile(part, box, coords):
    """Return a tile of a NumPy array, with zeros outside the array."""
    tile = np.zeros(box, part.dtype)
    source, target = [], []
    for begin, count, extent in zip(coords, box, part.shape, strict=True):
        first, last = max(begin, 0), max(begin, 0, min(begin + count, extent))
        source.append(slice(first, last))
        target.append(slice(first - begin, last - begin))
    if all(s.stop > s.start for s in source):
        tile[tuple(target)] = part[tuple(source)]
    return tile


def change_tile(part, box, coords, change):
    """Store a tile of sevens into a NumPy array, or add it."""
    places = tuple(slice(c, c + n) for c, n in zip(coords, box, strict=True))
    part[places] = 7 if change == "store" else part[places] + part.dtype.type(7)
