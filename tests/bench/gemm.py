"""``python tests/bench gemm``: the GEMM of notebooks/hopper_gemm.cu compared with torch.matmul.

Two other kernels of this file show the cost of tiles without a swizzle, and of small boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.hopper import (
    CHOICES,
    Choice,
    Comparison,
    compare,
    compile_file,
    gemm_launcher,
    parser_of,
    print_table,
    require_torch,
)
from tma_dlpack import driver
from tma_dlpack.copies.launch import Library

#: Operations of one kernel in a round. They take much longer than a launch, and less time than the
#: GPU's clock takes to change.
ROUND_FLOP = 1e13
COLUMNS = "{:>6}  {:36}  {:>8}  {:>12}  {:>6}  {:>6}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print TFLOP/s and the ratio to torch.matmul; return 1 if a product is wrong."""
    parser = parser_of("gemm", __doc__, "hopper_gemm.cu")
    parser.add_argument("--size", type=int, nargs="+", default=(8192, 4096), help="m = n = k")
    options = parser.parse_args(argv)
    torch = require_torch()
    library = compile_file(options.source)
    device = driver.status().devices[torch.cuda.current_device()]
    print(f"{device}: C = A x B^T, bfloat16, TFLOP/s, median of {options.rounds} rounds")
    heads = ("size", "kernel", "TFLOP/s", "torch.matmul")
    return print_table(
        COLUMNS,
        heads,
        (
            (
                (size, choice.label),
                _measure(torch, library, choice, size, options.rounds),
                _is_right(torch, library, choice, size),
            )
            for size in options.size
            for choice in CHOICES
        ),
    )


def _measure(torch: Any, library: Library, choice: Choice, size: int, rounds: int) -> Comparison:
    flop = 2.0 * size**3
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    ours, torchs = torch.empty_like(a), torch.empty_like(a)
    launch = gemm_launcher(library, choice, a, b, ours)
    calls = max(1, round(ROUND_FLOP / flop))
    return compare(launch, lambda: torch.matmul(a, b.T, out=torchs), flop, rounds, calls)


def _is_right(torch: Any, library: Library, choice: Choice, size: int) -> bool:
    """Whether a product of small integers, exact in float32 and rounded once, is torch's."""
    a, b = (torch.randint(-3, 4, (size, size), device="cuda").to(torch.bfloat16) for _ in range(2))
    c = torch.full_like(a, float("nan"))
    gemm_launcher(library, choice, a, b, c)()
    return bool(torch.equal(c, torch.matmul(a, b.T)))
