"""`tma.suggest` on the hardware: the first is among the fastest, and what wgmma reads is right.

30 tensors, tiles and readers drawn at random. Every suggestion, with each L2 fetch size, copies the
whole tensor by the pipeline of `bandwidth`, five times in turn; the medians are compared.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from dataclasses import dataclass
from random import Random

import pytest

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.consumer.operand import tile_matrix
from tma_dlpack.suggestions.pipeline import Pipeline, TiledCopy, fits
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.verification import operands
from tma_dlpack.verification.arena import Arena
from tma_dlpack.verification.random_operands import Layout, Product

SEED, CASES, ROUNDS = 20261122, 30, 5
TENSOR_BYTES, MOST_TILE_BYTES = 1 << 28, 1 << 16
TOLERANCE = 0.03
#: Map data type -> torch's dtype, bytes, and the type that wgmma multiplies.
TYPES = {
    "BFLOAT16": ("bfloat16", 2, "bf16"),
    "FLOAT16": ("float16", 2, "f16"),
    "TFLOAT32": ("float32", 4, "tf32"),
    "UINT8": ("uint8", 1, "e4m3"),
}
PIPELINES = [p for n in (3, 8) for ctas in (1, 2, 4, 8, 16) for p in Pipeline.family(n, ctas)]


@dataclass(frozen=True)
class Case:
    """What is asked: a tensor of about 256 MiB, a tile of it, and who reads the tile."""

    shape: tuple[int, ...]
    padding: int
    data_type: str
    tile: tuple[int, ...]
    reader: str | None
    major: str
    access: str

    def words(self):
        names = ("reader", "major", "access", "data_type")
        return {name: getattr(self, name) for name in names}

    def __str__(self):
        who = {"threads": self.access, None: "stored"}.get(self.reader, self.major)
        return f"{self.data_type} {self.shape} tile {self.tile} {self.reader or ''} {who}"


def random_case(rng: Random) -> Case:
    data_type = rng.choice(sorted(TYPES))
    size = TYPES[data_type][1]
    reader = rng.choice(("wgmma", "wgmma", "ldmatrix", "threads", None))
    major = rng.choice(("K", "MN")) if size == 2 else "K"
    while True:
        rows = rng.choice((8, 16, 32, 64, 64, 128, 128, 192, 256))
        row_bytes = rng.choice((16, 32, 64, 96, 128, 128, 192, 256, 256, 512))
        fits_wgmma = reader != "wgmma" or major == "K" or row_bytes // size <= 256
        if 512 <= rows * row_bytes <= MOST_TILE_BYTES and fits_wgmma:
            break
    columns = row_bytes // size * rng.choice((8, 16, 30, 64))
    padding = rng.choice((0, 0, 16 // size))
    outer = rng.choice((0, 0, 0, 6))
    lines = TENSOR_BYTES // ((columns + padding) * size) // max(1, outer)
    shape, tile = (lines, columns), (rows, row_bytes // size)
    if outer:
        shape, tile = (outer, *shape), (1, *tile)
    return Case(shape, padding, data_type, tile, reader, major, rng.choice(("row", "column")))


def cases():
    rng = Random(SEED)
    return (random_case(rng) for _ in itertools.count())


def tensor_of(case: Case, torch):
    *outer, columns = case.shape
    name, size, _ = TYPES[case.data_type]
    raw = torch.randint(0, 256, (*outer, (columns + case.padding) * size), dtype=torch.uint8,
                        device="cuda")  # fmt: skip
    if case.data_type == "TFLOAT32":  # numbers that the rounding of a load does not change
        raw.view(torch.int32).bitwise_and_(0x3FFFE000)
    return raw.view(getattr(torch, name))[..., :columns]


def variants(x, suggestion):
    """The suggestion's map with every L2 fetch size, its own first."""
    own = suggestion.arguments["l2_fetch_size"]
    sizes = sorted(("none", "bytes128", "bytes256"), key=lambda l2: l2 != own)
    words = suggestion.arguments
    return [tma.make_tma_descriptor(x, **words | {"l2_fetch_size": l2}) for l2 in sizes]


def timed(maps):
    """Median seconds of a copy by each map with its best pipeline, the spread, and a memcpy's."""
    with TiledCopy(maps[0]) as copy:
        tried = []
        for tm in maps:
            runs = [copy.run(tm, p, 1) for p in PIPELINES if fits(p, tm, copy.target)]
            assert all(run.verified for run in runs)
            runs.sort(key=lambda run: run.seconds)
            tried.append([(run.pipeline, []) for run in runs[:3]])
        for _ in range(ROUNDS):
            for tm, pipelines in zip(maps, tried, strict=True):
                for pipeline, seconds in pipelines:
                    seconds.append(copy.run(tm, pipeline, 9).seconds)
        memcpy = copy.memcpy_seconds(ROUNDS)
    best = [min((runs for _, runs in pipelines), key=statistics.median) for pipelines in tried]
    medians = [statistics.median(runs) for runs in best]
    noise = [(max(runs) - min(runs)) / 2 / statistics.median(runs) for runs in best]
    return medians, noise, memcpy


def test_the_first_suggestion_is_among_the_fastest(torch):
    misses, rows = [], 0
    print(f"\n{driver.status().devices[0]}; seed {SEED}; ratio: first to best, medians of {ROUNDS}")
    for case in cases():
        x = tensor_of(case, torch)
        found = tma.suggest(x, case.tile, **case.words())
        if not found:
            print(f"      {case}: none: {found.reasons[0][:90]}")
            continue
        rows += 1
        maps = [tm for suggestion in found for tm in variants(x, suggestion)]
        medians, noise, memcpy = timed(maps)
        at = min(range(len(maps)), key=medians.__getitem__)
        ratio, allowed = medians[0] / medians[at], max(TOLERANCE, noise[0], noise[at])
        if ratio > 1 + allowed:  # the smallest of many medians is partly luck: once more, these two
            again, spread, _ = timed([maps[0], maps[at]])
            print(f"       {ratio:.3f} at first; alone {again[0] / again[1]:.3f}")
            ratio, allowed = again[0] / again[1], max(allowed, *spread)
        hit = ratio <= 1 + allowed
        print(
            f"{rows:3} {'ok  ' if hit else 'MISS'} {case}: {len(maps)} ways, "
            f"first {maps[0].box_sizes} {maps[0].swizzle.name} {maps[0].l2_promotion.name} "
            f"{memcpy / medians[0]:.3f}, best {maps[at].box_sizes} {maps[at].swizzle.name} "
            f"{maps[at].l2_promotion.name} {memcpy / medians[at]:.3f}, "
            f"ratio {ratio:.3f}, noise {max(noise[0], noise[at]):.3f}, "
            f"expected {found[0].bandwidth:.2f}"
        )
        every = zip(maps, medians, strict=True)
        print("       " + "; ".join(
            f"{'x'.join(map(str, tm.box_sizes))} {int(tm.swizzle)}{int(tm.l2_promotion)} "
            f"{memcpy / median:.3f}" for tm, median in every))  # fmt: skip
        if not hit:
            misses.append(f"{case}: {ratio:.3f}")
        del x, maps
        if rows == CASES:
            break
    assert not misses, f"{len(misses)} of {CASES}: {misses}"


# --- Multiplied ---------------------------------------------------------------------------------


def product_of(case: Case, tm: tma.TensorMap) -> Product:
    """The suggestion's tile as operand B; A is 64 rows of the same K, in columns of 32 bytes."""
    tile = tile_matrix(tm)
    size = tile.element_bytes
    n = tile.rows if case.major == "K" else tile.width
    k_bytes = tile.width * size if case.major == "K" else tile.rows * size
    steps = k_bytes // 32
    a = Layout(tm.data_type, TmaSwizzle.bytes32, (64, k_bytes // size), k_bytes, 64, steps, 32,
               (0, 0), 0)  # fmt: skip
    row_bytes = tile.width * size
    b = Layout(tm.data_type, tm.swizzle, (tile.rows, tile.width), row_bytes, tile.rows,
               tile.columns, tile.row_bytes, (0, 0), -(-a.end // 1024) * 1024)  # fmt: skip
    ptx = TYPES[case.data_type][2]
    return Product(ptx, n, 1, steps, "K", case.major, a, b, math.prod(case.tile))


def same_tile(tm: tma.TensorMap, layout: Layout) -> bool:
    """Whether a layout of the arena has the same tile in shared memory."""
    arguments = layout.arguments()
    box = tuple(n for n in tm.box_dim if n > 1)
    return (tuple(n for n in arguments.box_dim if n > 1), arguments.swizzle) == (box, tm.swizzle)


def test_what_wgmma_can_read_is_multiplied_right(torch):
    if not driver.device_target(0).is_sm_9x:
        pytest.skip("wgmma is an instruction of compute capability 9.0 alone")
    products = {}
    for case in itertools.islice(cases(), 2 * CASES):
        if case.reader == "wgmma":
            case = dataclasses.replace(case, shape=(*case.tile[:-2], 256, case.shape[-1]))
            x = tensor_of(case, torch)
            for suggestion in tma.suggest(x, case.tile, **case.words()):
                tm = tma.make_tma_descriptor(x, **suggestion.arguments)
                product = product_of(case, tm)
                assert same_tile(tm, product.b)
                address = product.b.smem_offset
                of_map = tma.matrix_descriptor(tm, major=case.major, smem_address=address)
                products[product] = of_map.value, of_map.k_starts
    with Arena(SEED, 0) as arena:
        for product, (value, starts) in products.items():
            b = arena.maps(product.b.arguments(), 0)[0]
            again = tma.matrix_descriptor(
                b, major=product.b_major, smem_address=product.b.smem_offset
            )
            assert (again.value, again.k_starts) == (value, starts)
            assert operands.compare_product(product, arena) is None, product
    print(f"\n{len(products)} tiles multiplied, all right")
    assert len(products) > 40
