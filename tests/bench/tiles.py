"""``python tests/bench tiles``: the table of speeds by which `tma.suggest` ranks, of this GPU.

Tensors of 256 MiB, tiles and readers are drawn at random. Every suggestion, with each L2 fetch
size, copies the whole tensor by the pipelines of `bandwidth`; each counts with its fastest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.suggestions.pipeline import Pipeline, TiledCopy, fits

TENSOR_BYTES, MOST_TILE_BYTES = 1 << 28, 1 << 16
#: Map data type -> torch's dtype, bytes, and the type that wgmma multiplies.
TYPES = {
    "BFLOAT16": ("bfloat16", 2, "bf16"),
    "FLOAT16": ("float16", 2, "f16"),
    "TFLOAT32": ("float32", 4, "tf32"),
    "UINT8": ("uint8", 1, "e4m3"),
}
PIPELINES = [p for n in (3, 8) for ctas in (1, 2, 4, 8, 16) for p in Pipeline.family(n, ctas)]
TRIED_AGAIN = 3  # pipelines of each map, the fastest of a first look
ROUNDS, REPEATS = 5, 9


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

    def words(self) -> dict[str, Any]:
        """Return the keyword arguments of `suggest`."""
        names = ("reader", "major", "access", "data_type")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
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


def cases(seed: int) -> Iterator[Case]:
    rng = Random(seed)
    return (random_case(rng) for _ in itertools.count())


def tensor_of(case: Case, torch: Any) -> Any:
    *outer, columns = case.shape
    name, size, _ = TYPES[case.data_type]
    raw = torch.randint(0, 256, (*outer, (columns + case.padding) * size), dtype=torch.uint8,
                        device="cuda")  # fmt: skip
    if case.data_type == "TFLOAT32":  # numbers that the rounding of a load does not change
        raw.view(torch.int32).bitwise_and_(0x3FFFE000)
    return raw.view(getattr(torch, name))[..., :columns]


def variants(x: object, suggestion: tma.Suggestion) -> list[tma.TensorMap]:
    """Return the suggestion's map with every L2 fetch size, its own first."""
    own = suggestion.arguments["l2_fetch_size"]
    sizes = sorted(("none", "bytes128", "bytes256"), key=lambda l2: l2 != own)
    words = suggestion.arguments
    return [tma.make_tma_descriptor(x, **words | {"l2_fetch_size": l2}) for l2 in sizes]


@dataclass(frozen=True)
class Timed:
    """Median seconds of a whole copy by a map with its best pipeline, and half their spread."""

    seconds: float
    noise: float
    pipeline: Pipeline


def timed(maps: Sequence[tma.TensorMap], rounds: int = ROUNDS) -> tuple[list[Timed], float]:
    """Time every map in turn; return also the median seconds of a memcpy of the same rounds."""
    with TiledCopy(maps[0]) as copy:
        tried = [_fastest(copy, tm) for tm in maps]
        memcpy = []
        for _ in range(rounds):
            for tm, pipelines in zip(maps, tried, strict=True):
                for pipeline, seconds in pipelines.items():
                    seconds.append(copy.seconds(tm, pipeline, REPEATS))
            memcpy.append(copy.memcpy_seconds(REPEATS))
    return [_best(pipelines) for pipelines in tried], statistics.median(memcpy)


def _fastest(copy: TiledCopy, tm: tma.TensorMap) -> dict[Pipeline, list[float]]:
    """Look at each pipeline once; compare the copies of the fastest ones byte for byte."""
    fitting = [p for p in PIPELINES if fits(p, tm, copy.target)]
    fitting.sort(key=lambda p: copy.seconds(tm, p, 1))
    fastest = fitting[:TRIED_AGAIN]
    assert all(copy.run(tm, p, 1).verified for p in fastest)
    return {p: [] for p in fastest}


def _best(pipelines: dict[Pipeline, list[float]]) -> Timed:
    pipeline, runs = min(pipelines.items(), key=lambda item: statistics.median(item[1]))
    median = statistics.median(runs)
    return Timed(median, (max(runs) - min(runs)) / 2 / median, pipeline)


# -- the table -----------------------------------------------------------------------------------


def measured(case: Case, torch: Any, rounds: int) -> dict[str, Any] | None:
    """Time every suggestion for a case; return what was measured, None if there is none."""
    x = tensor_of(case, torch)
    found = tma.suggest(x, case.tile, **case.words())
    if not found:
        return None
    ways = [(one, tm) for one in found for tm in variants(x, one)]
    times, memcpy = timed([tm for _, tm in ways], rounds)
    begin = math.gcd(256, x.data_ptr(), *(s * x.element_size() for s in x.stride()[:-1]))
    rows = [
        {
            "begin": begin,
            "split": bool(tm.split_inner),
            "line_bytes": tm.arguments.inner_box_bytes,
            "box": tm.box_sizes,
            "swizzle": tm.swizzle.name,
            "l2": tm.l2_promotion.name,
            "tx_bytes": tm.tx_bytes,
            "share": memcpy / time_of.seconds,
            "noise": time_of.noise,
            "pipeline": str(time_of.pipeline),
            "conflicts": one.bank_conflicts,
            "copies": one.copies,
        }
        for (one, tm), time_of in zip(ways, times, strict=True)
    ]
    return {"case": str(case), "shape": case.shape, "memcpy_seconds": memcpy, "rows": rows}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure random tensors for a while; write what was measured, a line of JSON per tensor."""
    import torch

    options = _parser().parse_args(argv)
    print(driver.status().devices[0])
    end = time.monotonic() + options.seconds
    with Path(options.out).open("w") as out:
        for number, case in enumerate(itertools.islice(cases(options.seed), options.cases)):
            if time.monotonic() > end:
                print(f"{number} cases")
                break
            result = measured(case, torch, options.rounds)
            if result is not None:
                out.write(json.dumps(result) + "\n")
                out.flush()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/bench tiles", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="tiles.jsonl")
    return parser
