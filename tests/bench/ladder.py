"""``python tests/bench ladder``: the seven kernels of notebooks/gemm_ladder.cu, and hopper_gemm.

Each step is timed in turns with torch.matmul, on the same matrices.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.gemm import ROUND_FLOP
from bench.hopper import (
    C_BOX,
    CHOICES,
    SMEM_BYTES,
    Choice,
    Launch,
    compare,
    compile_file,
    gemm_launcher,
    gemm_maps,
    parser_of,
    print_table,
    require_torch,
)
from tma_dlpack import driver
from tma_dlpack.copies import launch
from tma_dlpack.copies.launch import Library
from tma_dlpack.make.descriptors import make_tma_descriptor

TILE = 128, 256
COLUMNS = "{:>6}  {:38}  {:>8}  {:>12}  {:>6}  {:>6}"


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel, the boxes that its maps have, and the threads and blocks that it needs."""

    label: str
    choice: Choice
    threads: int = 256
    cluster: int = 1


def _step(label: str, kernel: str, box: tuple[int, int], swizzle: str, **more: int) -> Step:
    return Step(label, Choice(label, kernel, box, swizzle), **more)


STEPS = (
    _step("1 threads copy", "ladder_threads", (128, 8), "none"),
    _step("2 TMA", "ladder_tma", (128, 8), "none"),
    _step("3 swizzle", "ladder_swizzle", (128, 64), "bytes128"),
    _step("4 ring of 4 stages", "ladder_ring", (128, 64), "bytes128"),
    _step("5 a warp that only loads", "ladder_specialized", (128, 64), "bytes128", threads=384),
    _step("6 multicast", "ladder_multicast", (128, 64), "bytes128", threads=384, cluster=2),
    _step("7 persistent", "ladder_persistent", (128, 64), "bytes128", threads=384, cluster=2),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Print TFLOP/s of each step and the ratio to torch.matmul; return 1 if a product is wrong."""
    parser = parser_of("ladder", __doc__, "gemm_ladder.cu")
    parser.add_argument("--size", type=int, default=8192, help="m = n = k, a multiple of 256")
    options = parser.parse_args(argv)
    torch = require_torch()
    library = compile_file(options.source)
    device = driver.status().devices[torch.cuda.current_device()]
    print(f"{device}: C = A x B^T, bfloat16, TFLOP/s, median of {options.rounds} rounds")
    size = options.size
    a, b = (torch.randint(-3, 4, (size, size), device="cuda").to(torch.bfloat16) for _ in range(2))
    expected = torch.matmul(a, b.T)
    theirs = torch.empty_like(expected)
    flop = 2.0 * size**3
    calls = max(1, round(ROUND_FLOP / flop))

    def rows() -> Any:
        for label, make in [
            *((step.label, _of(step)) for step in STEPS),
            ("hopper_gemm", _persistent),
        ]:
            c = torch.full_like(expected, float("nan"))
            run = make(library, a, b, c)
            run()
            right = bool(torch.equal(c, expected))
            a_random, b_random = (torch.randn_like(a) for _ in range(2))
            timed = make(library, a_random, b_random, c)
            torchs = _torchs(torch, a_random, b_random, theirs)
            yield (size, label), compare(timed, torchs, flop, options.rounds, calls), right

    return print_table(COLUMNS, ("size", "step", "TFLOP/s", "torch.matmul"), rows())


def _torchs(torch: Any, a: Any, b: Any, out: Any) -> Launch:
    return lambda: torch.matmul(a, b.T, out=out)


def _persistent(library: Library, a: Any, b: Any, c: Any) -> Launch:
    return gemm_launcher(library, CHOICES[0], a, b, c)


def _of(step: Step) -> Any:
    def make(library: Library, a: Any, b: Any, c: Any) -> Launch:
        import torch

        m, n = c.shape
        blocks = -(-m // (TILE[0] * step.cluster)) * step.cluster * -(-n // TILE[1])
        if step.choice.kernel == "ladder_persistent":
            device = torch.cuda.get_device_properties(torch.cuda.current_device())
            blocks = min(blocks, device.multi_processor_count // step.cluster * step.cluster)
        kernel = library.kernel(step.choice.kernel, torch.cuda.current_device())
        sizes = [ctypes.c_int(number) for number in (m, n, a.shape[1])]
        if step.choice.kernel == "ladder_threads":
            to = make_tma_descriptor(c, C_BOX, swizzle="bytes128", rules="driver")
            matrices = [ctypes.c_uint64(t.data_ptr()) for t in (a, b)]
            arguments = [*matrices, launch.by_value(bytes(to)), *sizes]
        else:
            maps = gemm_maps(step.choice, a, b, c)
            arguments = [*(launch.by_value(bytes(each)) for each in maps), *sizes]

        def run(_: object = (a, b, c)) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            launch.launch(kernel, blocks, step.threads, SMEM_BYTES, stream, arguments)

        return run

    return make
