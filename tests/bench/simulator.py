"""The simulator's speed, compared with `ndarray.copy()` of the same bytes in the same run."""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.timing import Row, time_rows
from tma_dlpack import geometry
from tma_dlpack.copies.verbs import load_tile, load_tiles, reduce_tile, store_tile
from tma_dlpack.make.descriptors import make_im2col_descriptor, make_tma_descriptor

BOX = (64, 64)
ROW_BYTES = 16_384
SWIZZLES = ("none", "bytes128")
#: Targets: the speed of `load_tiles` as a share of a copy's speed, and the time of one tile.
RATIO_TARGETS = {"none": 1 / 4, "bytes128": 1 / 8}
SINGLE_TARGET_US = 60.0


@dataclass(frozen=True, slots=True)
class BulkResult:
    """All tiles of one tensor, loaded in one call.

    Attributes
    ----------
    mebibytes : int
        Size of the tensor.
    swizzle : str
    copy_ms, load_ms : float
        Medians of `ndarray.copy()` and `load_tiles`, interleaved.
    extra_bytes : int
        Peak memory of `load_tiles` beyond its result (tracemalloc).
    """

    mebibytes: int
    swizzle: str
    copy_ms: float
    load_ms: float
    extra_bytes: int

    @property
    def ratio(self) -> float:
        """Bytes per second, as a share of the copy's bytes per second."""
        return self.copy_ms / self.load_ms


def measure_bulk(mebibytes: int, swizzle: str, rounds: int = 5) -> BulkResult:
    """Load every 64 x 64 tile of a 16-bit matrix with rows of 16 KiB."""
    matrix = np.arange((mebibytes << 20) // 2, dtype=np.uint16).reshape(-1, ROW_BYTES // 2)
    tensor_map = make_tma_descriptor(matrix, BOX, swizzle=swizzle)
    coords = geometry.tile_coords(tensor_map.arguments)

    def load() -> None:
        load_tiles(tensor_map, coords)

    copy_us, load_us = _medians_us((matrix.copy, load), rounds)
    tracemalloc.start()
    result = load_tiles(tensor_map, coords)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    extra_bytes = peak_bytes - result.smem.nbytes
    return BulkResult(mebibytes, swizzle, copy_us / 1e3, load_us / 1e3, extra_bytes)


def measure_single_us(swizzle: str, calls: int = 2000) -> dict[str, float]:
    """Return the median microseconds of each copy function on one tile of 64 x 64 bfloat16."""
    matrix, images = np.zeros((1024, 1024), np.uint16), np.zeros((4, 32, 32, 64), np.uint16)
    tiled = make_tma_descriptor(matrix, BOX, swizzle=swizzle, data_type="BFLOAT16")
    im2col = make_im2col_descriptor(
        images, (-1, -1), (-1, -1), 64, 64, swizzle=swizzle, data_type="BFLOAT16"
    )
    tile = load_tile(tiled, (64, 128)).array
    verbs: dict[str, Callable[[], object]] = {
        "load": lambda: load_tile(tiled, (64, 128)),
        "clipped load": lambda: load_tile(tiled, (-3, -8)),
        "im2col load": lambda: load_tile(im2col, (0, -1, -1, 0), im2col_offsets=(1, 1)),
        "store": lambda: store_tile(tiled, (64, 128), tile),
        "reduce": lambda: reduce_tile(tiled, (64, 128), tile, "add"),
    }
    return {name: _medians_us((call,), calls)[0] for name, call in verbs.items()}


def _medians_us(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Time calls one by one in interleaved rounds. The first run of each call is not counted."""
    for call in calls:
        call()
    rows = [Row("", "", "call()", {"call": call}, setup="pass", number=1) for call in calls]
    return [timing.median_us for timing in time_rows(rows, rounds, sample_ms=0)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; ``python tests/bench simulator``.

    Returns 0, because the bench only measures; the reader judges the times.
    """
    parser = argparse.ArgumentParser(prog="tma_dlpack bench simulator", description=__doc__)
    parser.add_argument(
        "--mebibytes", type=int, nargs="+", default=[1, 16, 64, 256], help="sizes of the tensor"
    )
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds per median")
    options = parser.parse_args(argv)

    print("load_tiles of every 64 x 64 tile of a 16-bit matrix, against ndarray.copy()")
    print("  MiB  swizzle    copy ms   load ms   GB/s  ratio  target  beyond the result")
    for mebibytes in options.mebibytes:
        for swizzle in SWIZZLES:
            r = measure_bulk(mebibytes, swizzle, options.rounds)
            gigabytes = (mebibytes << 20) / r.load_ms / 1e6
            print(
                f"{r.mebibytes:5d}  {r.swizzle:9s} {r.copy_ms:8.2f}  {r.load_ms:8.2f} "
                f"{gigabytes:6.2f}  {r.ratio:5.2f}  {RATIO_TARGETS[swizzle]:6.3f}  "
                f"{r.extra_bytes / 2**20:.1f} MiB"
            )
    print(f"one tile of 64 x 64 bfloat16, us (target of both loads: {SINGLE_TARGET_US:.0f})")
    for swizzle in SWIZZLES:
        times = ", ".join(f"{name} {us:.1f}" for name, us in measure_single_us(swizzle).items())
        print(f"  {swizzle:9s} {times}")
    return 0
