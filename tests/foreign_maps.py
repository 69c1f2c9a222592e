"""Maps with bits of other programs: CuTe DSL sets bit 65, and Blackwell's drivers set bit 85."""

from __future__ import annotations

import numpy as np

import tma_dlpack as tma


def with_bits(data: bytes, *bits: int) -> bytes:
    word = int.from_bytes(data, "little")
    return (word | sum(1 << bit for bit in bits)).to_bytes(128, "little")


def without_tail(data: bytes) -> bytes:
    return data[:64] + bytes(64)


def foreign_forms(data: bytes) -> tuple[bytes, ...]:
    """Return the map with bit 65, with bit 85, and with both bits but without bytes 64..127."""
    return with_bits(data, 65), with_bits(data, 85), with_bits(without_tail(data), 65, 85)


def random_map(rng: np.random.Generator, address: int, encoder: str = "model") -> tma.TensorMap:
    """Draw a tiled map of uint16, of at most 256 KiB of memory."""
    rank = int(rng.integers(1, 6))
    dims = tuple(int(n) for n in (rng.choice([16, 40, 64]), *rng.integers(1, 6, rank - 1)))
    strides, span = [], dims[0] * 2
    for extent in dims[1:]:
        span += -span % 16 + 16 * int(rng.integers(0, 3))
        strides.append(span)
        span *= extent
    swizzle = int(rng.integers(0, 4))
    box = (int(rng.choice([8, 16])), *(int(rng.integers(1, n + 2)) for n in dims[1:]))
    steps = (1, *(int(rng.integers(1, 3)) for _ in dims[1:]))
    l2 = int(rng.integers(0, 4))
    return tma.driver_encode_tiled(
        "UINT16", rank, address, dims, tuple(strides), box, steps, 0, swizzle, l2, encoder=encoder
    )


def random_coords(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    """Draw coordinates whose innermost is at a multiple of 16 bytes; some are out of bounds."""
    return (*(int(n) for n in rng.integers(-1, 3, rank - 1)), int(8 * rng.integers(-1, 4)))
