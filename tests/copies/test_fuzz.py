"""Random and mutated maps in every function that takes a map: only `TmaError` is raised."""

from __future__ import annotations

import random

import numpy as np
import pytest
from laws import many

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.copies.backend import OPERATIONS
from tma_dlpack.geometry import lines
from tma_dlpack.tables import bits
from tma_dlpack.tables.bits import FIELDS

MEMORY = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
T, A = tma.TensorMapDataType, MEMORY.ctypes.data

#: The functions that are called with each map. Figures are large, so a map meets one of them.
USES = {
    "load": lambda tm, r: load(tm, r, tma.load_tile, coords_of(tm, r)),
    "load many": lambda tm, r: load(tm, r, tma.load_tiles, [coords_of(tm, r) for _ in range(3)]),
    "store": lambda tm, r: tma.store_tile(tm, inside(tm, r), data_of(tm, r), **where(r)),
    "reduce": lambda tm, r: tma.reduce_tile(
        tm, inside(tm, r), data_of(tm, r), r.choice(OPERATIONS), **where(r)
    ),
    "consume": lambda tm, r: (
        tma.matrix_descriptor(
            tm, instruction=r.choice(("wgmma", "tcgen05")), major=r.choice(("K", "MN"))
        )
        if r.random() < 0.5
        else tma.ldmatrix_addresses(tm, r.choice((0, 8, 3)), r.choice((0, 8, 16)))
    ),
    "cover": lambda tm, r: tma.tile_coords(tm),
    "sizes": lambda tm, r: (tm.tx_bytes, tm.smem_bytes, tm.smem_alignment, tm.strides, tm.shape),
    "repr": lambda tm, r: (repr(tm), str(tm)),
    "cpp": lambda tm, r: tm.cpp(),
    "decode": lambda tm, r: tma.TensorMap.from_bytes(bytes(tm)),
    "draw": lambda tm, r: drawn(tm, r),
}


def where(r):
    return {"memory": MEMORY, "smem_offset": 128 * r.choice((0, 0, 1, 7, 2000))}


def coords_of(tm, r):
    """Most coordinates are in bounds and aligned to 16 bytes."""
    inner = 128 // tm.arguments.type_row.element_bits
    coords = [r.choice((0, 0, 1, -1, 3, extent - 1, extent // 2)) for extent in tm.shape]
    if r.random() < 0.9:
        coords[-1] -= coords[-1] % inner
    return coords


def inside(tm, r):
    return [max(0, c) if r.random() < 0.98 else c for c in coords_of(tm, r)]


def load(tm, r, verb, coords):
    offsets = None
    if tm.kind != "tiled" and r.random() < 0.5:
        offsets = [r.randint(0, 3) for _ in range(tm.rank - 2)]
    tile = verb(tm, coords, im2col_offsets=offsets, **where(r))
    return tile.array, tile.filled, tile.written, repr(tile)


def data_of(tm, r):
    if r.random() < 0.1:
        return np.zeros(tm.shape[-1:] if tm.shape[-1] < 1000 else 7, np.float32)
    return bytes(tm.smem_bytes) if tm.smem_bytes < 1 << 20 else b""


def drawn(tm, r):
    what = r.choice(("html", *draw.FIGURES, "bank_conflicts"))
    if what in ("bits", "barrier") and r.random() < 0.9:  # large pages
        what = "walk" if tm.kind == "im2col" else "tensor"
    if what == "html":
        return tm._repr_html_()
    if what == "bank_conflicts":
        shown = draw.bank_conflicts(tm, r.choice(("row", "column")))
    else:
        shown = draw.figure(tm, what)
    return shown.text(), shown.svg(), shown._repr_html_()


# --- Maps ---------------------------------------------------------------------------------------


def valid_map(r):
    """A small map in MEMORY that the model encodes."""
    data_type = T(r.randrange(13))
    es = tma.tables.dtypes.DATA_TYPES[data_type].element_bytes
    interleave = r.choice((0, 0, 0, 1, 2))
    kind = r.choice(("tiled", "tiled", "im2col"))
    rank = r.randint(3 if interleave or kind == "im2col" else 1, 5)
    inner = 16 // es * r.randint(1, 4)
    dims = [inner * r.randint(1, 2), *(r.randint(1, 5) for _ in range(rank - 1))]
    row = dims[0] * es + 16 * r.randint(0, 2)
    strides = [32 * r.randint(0, 40) if r.random() < 0.3 else -(-row // 32) * 32]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent)
    address = A + (32 * r.randint(0, 64)) - A % 32 + 32
    head = (data_type, rank, address, dims, strides[: rank - 1])
    swizzle = 1 if interleave == 2 else r.randrange(4)
    tail = (interleave, swizzle, r.randrange(4), int(data_type >= 6 and r.random() < 0.3))
    steps = [r.choice((1, 1, 1, 2, 3)) for _ in dims]
    if kind == "tiled":
        box = [inner, *(r.randint(1, 6) for _ in dims[1:])]
        return tma.driver_encode_tiled(*head, box, steps, *tail, encoder="model")
    lower, upper = ([r.randint(-2, 1) for _ in range(rank - 2)] for _ in range(2))
    return tma.driver_encode_im2col(
        *head, lower, upper, inner, r.randint(1, 20), steps, *tail, encoder="model"
    )


def mutated(r):
    """A valid map in which fields or single bits are changed."""
    data = bytes(valid_map(r))
    for _ in range(r.randint(1, 4)):
        if r.random() < 0.5:
            field = r.choice(FIELDS)
            low = field.bias * field.unit
            value = r.choice((low, low + field.unit, field.raw[-1] + field.bias, r.getrandbits(40)))
            try:
                data = field.write(data, value)
            except OverflowError:
                continue
        else:
            place = r.randrange(512)
            word = int.from_bytes(data, "little") ^ (1 << place)
            data = word.to_bytes(128, "little")
    return tma.TensorMap.from_bytes(data)


def replaced(r):
    """A valid map after PTX's tensormap.replace of any field to any value that fits the field."""
    changes = {
        "rank": lambda: r.randint(1, 5),
        "box_dim": lambda: {r.randrange(5): r.choice((1, 2, 3, 5, 17, 100, 256))},
        "global_dim": lambda: {r.randrange(5): r.choice((1, 3, 7, 33, 1 << 31, (1 << 32) - 1))},
        "global_stride": lambda: {r.randrange(4): 16 * r.choice((0, 1, 3, 100, (1 << 36) - 1))},
        "element_stride": lambda: {r.randrange(5): r.randint(1, 8)},
        "elemtype": lambda: r.randrange(13),
        "interleave_layout": lambda: r.randrange(3),
        "swizzle_mode": lambda: r.randrange(4),
        "fill_mode": lambda: r.randrange(2),
    }
    names = r.sample(sorted(changes), r.randint(1, 3))
    return valid_map(r).replace(**{name: changes[name]() for name in names})


def random_bytes(r):
    """A map with random bits in all its fields, and zeros elsewhere."""
    data = r.getrandbits(512) & bits.known_bits(r.choice(("tiled", "im2col")))
    data &= ~((1 << 64) - 1)
    return tma.TensorMap.from_bytes((data | A + 32 - A % 32).to_bytes(128, "little"))


SOURCES = (valid_map, mutated, mutated, replaced, replaced, random_bytes)


def one_round(seed):
    """Make a map and use it; return the name of the use, or None if the use was refused."""
    r = random.Random(seed)
    try:
        tensor_map = r.choice(SOURCES)(r)
        use = r.choice(sorted(USES))
        USES[use](tensor_map, r)
    except tma.TmaError:
        return None
    return use


def run(monkeypatch, seeds):
    monkeypatch.setattr(lines, "MAX_COORDS", 1 << 12)
    done = []
    for seed in seeds:
        try:
            done.append(one_round(seed))
        except Exception as error:
            pytest.fail(f"one_round({seed}) raised {error!r}")
    # Check that every use sometimes succeeds and sometimes is refused. Few tiles suit wgmma.
    assert set(done) | {"consume"} == {None, *USES}


def test_1500_random_maps_raise_only_our_errors(monkeypatch):
    run(monkeypatch, range(1500))


@pytest.mark.slow
def test_many_random_maps_raise_only_our_errors(monkeypatch):
    run(monkeypatch, range(1500, 1500 + many(100_000)))
