"""``python tests/bench l2``: the gain of L2 policies and prefetches, by notebooks/l2_cache.cu.

Streamed: 1 GiB is read once, while a small matrix is read again and again. Waiting: each
block loads a tile, works for some cycles, and loads the next.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Sequence
from typing import Any

from bench.hopper import compile_file, milliseconds, parser_of, require_torch
from tma_dlpack import driver
from tma_dlpack.copies import launch
from tma_dlpack.copies.launch import Library
from tma_dlpack.make.descriptors import make_tma_descriptor

ROWS, ROW_BYTES = 64, 256
TILE_BYTES = ROWS * ROW_BYTES
STREAMED_SMEM_BYTES = 6 * 2 * TILE_BYTES
LARGE_BYTES = 1 << 30
MEBIBYTE = 1 << 20
#: Name of the L2 policies of the copies of the large and the small matrix -> kernel. The last
#: kernel is timed last, because the lines that it keeps in L2 stay there after the kernel.
POLICIES = {
    "no policy": "streamed_plain",
    "large evict_first": "streamed_evict_first",
    "small evict_last too": "streamed_both",
}
SMALL_MEBIBYTES = (8, 16, 24, 32, 40)
WORK_CYCLES = (0, 1000, 2000, 4000)
TILES_OF_A_BLOCK = 64
THREADS = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Print GB/s with each policy, and nanoseconds per tile with and without a prefetch."""
    options = parser_of("l2", __doc__, "l2_cache.cu").parse_args(argv)
    torch = require_torch()
    library = compile_file(options.source)
    device_id = torch.cuda.current_device()
    blocks = driver.device_target(device_id).multiprocessors
    assert blocks is not None
    large = torch.zeros(LARGE_BYTES // ROW_BYTES, ROW_BYTES, dtype=torch.uint8, device="cuda")
    print(f"{driver.status().devices[device_id]}: median of {options.rounds} rounds")

    print("\n1 GiB read once, a small matrix again and again: GB/s of both")
    found: dict[str, list[float]] = {}
    for name, kernel in POLICIES.items():
        found[name] = []
        for mebibytes in SMALL_MEBIBYTES:
            small = large.new_zeros(mebibytes * MEBIBYTE // ROW_BYTES, ROW_BYTES)
            numbers = [LARGE_BYTES // TILE_BYTES, mebibytes * MEBIBYTE // TILE_BYTES]
            run = _launcher(library, kernel, [large, small], numbers, blocks, STREAMED_SMEM_BYTES)
            found[name].append(2 * LARGE_BYTES / _median(run, options.rounds) / 1e6)
            del small
    print(f"{'small matrix':22}" + "".join(f"{n:>5} MiB" for n in SMALL_MEBIBYTES))
    for name, speeds in found.items():
        print(f"{name:22}" + "".join(f"{speed:9,.0f}" for speed in speeds))

    print("\na tile of 16 KiB, then work, in turns, a block on each multiprocessor: ns a turn")
    print(f"{'cycles of work':22}" + "".join(f"{n:9,}" for n in WORK_CYCLES))
    for name in ("waiting_plain", "waiting_prefetch"):
        times = []
        for cycles in WORK_CYCLES:
            run = _launcher(library, name, [large], [TILES_OF_A_BLOCK, cycles], blocks, 0)
            times.append(_median(run, options.rounds) / TILES_OF_A_BLOCK * 1e6)
        label = "with prefetch_tile" if name == "waiting_prefetch" else "without"
        print(f"{label:22}" + "".join(f"{time:9,.0f}" for time in times))
    return 0


def _launcher(
    library: Library,
    name: str,
    matrices: list[Any],
    numbers: list[int],
    blocks: int,
    smem_bytes: int,
) -> Any:
    import torch

    kernel = library.kernel(name, torch.cuda.current_device())
    maps = [make_tma_descriptor(matrix, (ROWS, ROW_BYTES)) for matrix in matrices]
    arguments = [*(launch.by_value(bytes(tm)) for tm in maps), *map(ctypes.c_int, numbers)]

    def run(_: object = matrices) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        launch.launch(kernel, blocks, THREADS, smem_bytes, stream, arguments)

    return run


def _median(run: Any, rounds: int) -> float:
    milliseconds(run, 2)  # warms up
    return statistics.median(milliseconds(run, 1) for _ in range(rounds))
