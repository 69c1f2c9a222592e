"""``python tests/bench conv``: the convolution of notebooks/hopper_conv.cu compared with torch's.

3 x 3, stride 1, padding 1, bfloat16, channels last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.hopper import (
    Comparison,
    compare,
    compile_file,
    conv_launcher,
    parser_of,
    print_table,
    require_torch,
)
from tma_dlpack import driver
from tma_dlpack.copies.launch import Library

ROUND_FLOP = 3e12
#: N, H, W, C, K.
SIZES = ((32, 56, 56, 256, 256), (32, 28, 28, 512, 512), (128, 56, 56, 64, 64))
COLUMNS = "{:26}  {:>8}  {:>12}  {:>6}  {:>6}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print TFLOP/s and the ratio to torch's conv2d; return 1 if a result is wrong."""
    options = parser_of("conv", __doc__, "hopper_conv.cu").parse_args(argv)
    torch = require_torch()
    library = compile_file(options.source)
    device = driver.status().devices[torch.cuda.current_device()]
    print(
        f"{device}: 3 x 3 convolution, bfloat16, channels last, median of {options.rounds} rounds"
    )
    heads = ("N, H, W, C, K", "TFLOP/s", "torch.conv2d")
    rows = (((str(size)[1:-1],), *_measure(torch, library, size, options.rounds)) for size in SIZES)
    return print_table(COLUMNS, heads, rows)


def _measure(
    torch: Any, library: Library, size: tuple[int, ...], rounds: int
) -> tuple[Comparison, bool]:
    """Compare the speeds on random numbers. Compare the results exactly on small integers."""
    images, height, width, channels, kernels = size

    def integers(*shape: int) -> Any:
        return torch.randint(-2, 3, shape, device="cuda").to(torch.bfloat16)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")

    def both(draw: Any) -> Any:
        x, weights = draw(images, height, width, channels), draw(kernels, 3, 3, channels)
        out = torch.full((*x.shape[:3], kernels), float("nan"), dtype=x.dtype, device="cuda")
        nchw, kcrs = x.permute(0, 3, 1, 2), weights.permute(0, 3, 1, 2)  # channels last, no copy
        ours = conv_launcher(library, x, weights, out)
        return ours, lambda: torch.nn.functional.conv2d(nchw, kcrs, padding=1), out

    ours, torchs, out = both(integers)
    ours()
    right = bool(torch.equal(out, torchs().permute(0, 2, 3, 1)))
    flop = 2.0 * images * height * width * channels * kernels * 9
    ours, torchs, _ = both(random)
    return compare(ours, torchs, flop, rounds, max(1, round(ROUND_FLOP / flop))), right
