"""``python tests/bench grouped``: notebooks/grouped_gemm.cu compared with torch._grouped_mm.

The rows of A are assigned to the groups at random. The sizes of the groups are only in GPU memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.hopper import (
    Comparison,
    compare,
    compile_file,
    grouped_launcher,
    parser_of,
    print_table,
    require_torch,
)
from tma_dlpack import driver
from tma_dlpack.copies.launch import Library
from tma_dlpack.tables.errors import TmaUnsupportedError

ROUND_FLOP = 5e12
#: Number of groups, total m of all groups, n, k.
SIZES = ((8, 8192, 4096, 4096), (32, 16384, 2048, 4096), (64, 4096, 4096, 2048))
COLUMNS = "{:24}  {:>8}  {:>17}  {:>6}  {:>6}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print TFLOP/s and the ratio to torch._grouped_mm; return 1 if a product is wrong."""
    options = parser_of("grouped", __doc__, "grouped_gemm.cu").parse_args(argv)
    torch = require_torch()
    if not hasattr(torch, "_grouped_mm"):
        raise TmaUnsupportedError(f"torch {torch.__version__} has no _grouped_mm: install 2.8")
    library = compile_file(options.source)
    device = driver.status().devices[torch.cuda.current_device()]
    print(f"{device}: grouped GEMM, bfloat16, random sizes, median of {options.rounds} rounds")
    heads = ("groups, m, n, k", "TFLOP/s", "torch._grouped_mm")
    rows = (((str(size)[1:-1],), *measure(torch, library, size, options.rounds)) for size in SIZES)
    return print_table(COLUMNS, heads, rows)


def random_ends(torch: Any, groups: int, m: int, seed: int = 0) -> Any:
    """Return the row after each group: rows go to groups at random, more to some groups."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(groups, generator=generator) + 0.1
    counts = torch.multinomial(weights, m, replacement=True, generator=generator).bincount(
        minlength=groups
    )
    return counts.cumsum(0).to(torch.int32).cuda()


def measure(
    torch: Any, library: Library, size: tuple[int, int, int, int], rounds: int
) -> tuple[Comparison, bool]:
    """Compare the speeds on random numbers. Compare the results exactly on small integers."""
    groups, m, n, k = size
    ends = random_ends(torch, groups, m)

    def both(draw: Any) -> Any:
        a, weights = draw(m, k), draw(groups, n, k)
        c = torch.full((m, n), float("nan"), dtype=a.dtype, device="cuda")
        ours = grouped_launcher(library, a, list(weights), c, ends)
        return ours, lambda: torch._grouped_mm(a, weights.transpose(1, 2), offs=ends), c

    def integers(*shape: int) -> Any:
        return torch.randint(-3, 4, shape, device="cuda").to(torch.bfloat16)

    ours, torchs, c = both(integers)
    ours()
    right = bool(torch.equal(c, torchs()))
    ours, torchs, _ = both(lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device="cuda"))
    flop = 2.0 * m * n * k
    return compare(ours, torchs, flop, rounds, max(1, round(ROUND_FLOP / flop))), right
