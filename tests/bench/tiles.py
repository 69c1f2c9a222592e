"""``python tests/bench tiles``: measure the table by which `tma.suggest` ranks boxes on this GPU.

Boxes of every width and height copy whole tensors of 256 MiB, with each L2 fetch size and each
pipeline of `bandwidth`. The fastest pipeline of each box counts. tests/gpu/test_suggest_on_gpu.py
checks the table's choices on other tensors, which are drawn at random.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.suggestions import Suggestion
from tma_dlpack.verification.pipeline import Pipeline, TiledCopy, fits

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
    """A tensor of about 256 MiB, a tile of the tensor, and the reader of the tile."""

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


def variants(x: object, suggestion: Suggestion) -> list[tma.TensorMap]:
    """Return the suggestion's map with every L2 fetch size; the suggested size is first."""
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

ELEMENT_BYTES = 2
ROW_BYTES = (2048, 3072, 4096, 6144, 8192, 12288, 16384)  # of a tensor
PADDING_BYTES = (0, 16)
LINE_BYTES = (16, 32, 48, 64, 96, 128, 192, 256, 512)
SPANS = {16: "none", 32: "bytes32", 64: "bytes64", 128: "bytes128"}
SIDE_BY_SIDE = (2, 3, 4, 8)  # spans of a split tile
MOST_SPLIT_BYTES = 512  # along a row
LINES = (8, 16, 32, 64, 128, 192, 256)
L2_FETCH_SIZES = ("none", "bytes128", "bytes256")


def boxes(row_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `make_tma_descriptor` to measure, without L2 fetch sizes."""
    plain = ((n, {"swizzle": "none"}) for n in LINE_BYTES)
    split = (
        (count * span, {"swizzle": swizzle, "split_inner": True})
        for (span, swizzle), count in itertools.product(SPANS.items(), SIDE_BY_SIDE)
        if count * span <= MOST_SPLIT_BYTES
    )
    for (width, options), lines in itertools.product((*plain, *split), LINES):
        if row_bytes % width == 0 and 512 <= lines * width <= MOST_TILE_BYTES:
            yield {"box_sizes": (lines, width // ELEMENT_BYTES), **options}


def measured(row_bytes: int, padding: int, rounds: int, torch: Any) -> list[dict[str, Any]]:
    """Time each box on one tensor with each L2 fetch size."""
    pitch = row_bytes + padding
    raw = torch.randint(0, 256, (TENSOR_BYTES // pitch, pitch), dtype=torch.uint8, device="cuda")
    x = raw.view(torch.float16)[:, : row_bytes // ELEMENT_BYTES]
    ways = list(itertools.product(boxes(row_bytes), L2_FETCH_SIZES))
    maps = [tma.make_tma_descriptor(x, **words, l2_fetch_size=l2) for words, l2 in ways]
    times, memcpy = timed(maps, rounds)
    return [
        {
            "begin": 16 if padding else 32,
            "spans": tm.box_sizes[0] if "split_inner" in words else 1,
            "row_bytes": row_bytes,
            "line_bytes": tm.arguments.inner_box_bytes,
            "lines": words["box_sizes"][0],
            "l2": l2,
            "tx_bytes": tm.tx_bytes,
            "share": memcpy / time_of.seconds,
            "noise": time_of.noise,
            "pipeline": str(time_of.pipeline),
        }
        for (words, l2), tm, time_of in zip(ways, maps, times, strict=True)
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the medians as a table of `suggestions/speeds.py`: thousandths for each L2 fetch size.

    A row begins with the alignment of the tensor's lines, the number of spans side by side (1 for a
    plain box), and the bytes of a line of the box. A column is for a number of lines.
    """
    shares: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        where = (-row["begin"], row["spans"], row["line_bytes"])
        shares.setdefault((*where, row["lines"], row["l2"]), []).append(row["share"])

    def cell(where: tuple[Any, ...], lines: int) -> str:
        found = [shares.get((*where, lines, l2)) for l2 in L2_FETCH_SIZES]
        return "/".join(f"{1000 * statistics.median(f):03.0f}" if f else "---" for f in found)

    lines = ["at  n bytes " + " ".join(f"{n:>11}" for n in LINES)]
    for begin, spans, line_bytes in sorted({where[:3] for where in shares}):
        cells = " ".join(cell((begin, spans, line_bytes), n) for n in LINES)
        lines.append(f"{-begin:>2} {spans:>2} {line_bytes:>5} {cells}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure tensors in turn; print the table of this GPU."""
    import torch

    options = _parser().parse_args(argv)
    earlier = [json.loads(Path(file).read_text()) for file in options.add]
    rows: list[dict[str, Any]] = [row for rows in earlier for row in rows]
    for row_bytes, padding in itertools.product(options.row_bytes, PADDING_BYTES):
        rows += measured(row_bytes, padding, options.rounds, torch)
        if options.out:
            Path(options.out).write_text(json.dumps(rows))
    print(
        f"{driver.status().devices[0]}, {TENSOR_BYTES >> 20} MiB, rows of {options.row_bytes} bytes"
    )
    print(table(rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/bench tiles", description=__doc__)
    parser.add_argument("--row-bytes", type=int, nargs="+", default=list(ROW_BYTES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", help="also write every measurement, as JSON")
    parser.add_argument("--add", nargs="+", default=[], help="files of --out that count too")
    return parser
