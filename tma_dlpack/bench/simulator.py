"""How fast the simulator copies, against `ndarray.copy()` of the same bytes in the same run."""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tma_dlpack import geometry
from tma_dlpack.api import make_tma_descriptor
from tma_dlpack.backends.simulator import SimulatorBackend
from tma_dlpack.tensor_map import TensorMap

__all__ = ["BulkResult", "main", "measure_bulk", "measure_single_us"]

BOX = (64, 64)
ROW_BYTES = 16_384
SWIZZLES = ("none", "bytes128")
#: DESIGN's targets: bytes per second of `load_tiles` over those of a copy, and one tile's time.
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
        """Bytes per second, against the copy."""
        return self.copy_ms / self.load_ms


def measure_bulk(mebibytes: int, swizzle: str, rounds: int = 5) -> BulkResult:
    """Load every 64 x 64 tile of a 16-bit matrix with rows of 16 KiB."""
    matrix = np.arange((mebibytes << 20) // 2, dtype=np.uint16).reshape(-1, ROW_BYTES // 2)
    tensor_map = make_tma_descriptor(matrix, BOX, swizzle=swizzle)
    coords = geometry.tile_coords(tensor_map.arguments)
    simulator = SimulatorBackend()

    def load() -> None:
        simulator.load_tiles(tensor_map, coords)

    copy_ms, load_ms = _medians_ms((matrix.copy, load), rounds)
    tracemalloc.start()
    result = simulator.load_tiles(tensor_map, coords)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return BulkResult(mebibytes, swizzle, copy_ms, load_ms, peak_bytes - result.smem.nbytes)


def measure_single_us(swizzle: str, coords: tuple[int, int], calls: int = 2000) -> float:
    """Give the median time of one `load_tile` of 64 x 64 16-bit elements, in microseconds."""
    matrix = np.zeros((1024, 1024), np.uint16)
    tensor_map = make_tma_descriptor(matrix, BOX, swizzle=swizzle)
    times = [_seconds(SimulatorBackend().load_tile, tensor_map, coords) for _ in range(calls)]
    return float(np.median(times)) * 1e6


def _seconds(
    load: Callable[[TensorMap, tuple[int, int]], object],
    tensor_map: TensorMap,
    coords: tuple[int, int],
) -> float:
    begin = time.perf_counter()
    load(tensor_map, coords)
    return time.perf_counter() - begin


def _medians_ms(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Time calls in interleaved rounds, after one that is not counted."""
    times = np.empty((rounds + 1, len(calls)))
    for row in times:
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            row[i] = time.perf_counter() - begin
    medians: list[float] = (np.median(times[1:], axis=0) * 1e3).tolist()
    return medians


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; ``python -m tma_dlpack bench simulator``.

    Returns 0: it measures, and leaves judging to the reader.
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
    print(f"load_tile of one 64 x 64 tile of 16 bits (target {SINGLE_TARGET_US:.0f} us)")
    for swizzle in SWIZZLES:
        inside, clipped = (measure_single_us(swizzle, at) for at in ((64, 128), (-3, -8)))
        print(f"  {swizzle:9s} in bounds {inside:5.1f} us, clipped {clipped:5.1f} us")
    return 0
