"""Run a pipelined matrix product of Triton with one slip in its PTX: triton_slips.py SLIP."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()  # Triton's cache key does not contain the slip

import torch
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend
from triton.tools.tensor_descriptor import TensorDescriptor


def without(pattern: str, count: int = 0) -> Callable[[str], str]:
    """Return a function that removes instructions and their guards from PTX."""
    return lambda ptx: re.sub(rf"@%p\d+ {pattern}[^;]*;", "", ptx, count=count)


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    """Return a function that replaces the last operand of instructions in PTX."""
    return lambda ptx: re.sub(rf"({pattern}\S* [^;]*, )(%?\w+);", rf"\g<1>{by};", ptx)


SLIPS: dict[str, Callable[[str], str]] = {
    "right": lambda ptx: ptx,
    "bytes": replaced(r"mbarrier\.arrive\.expect_tx", "17408"),  # for 16384
    "no_arm": without(r"mbarrier\.arrive\.expect_tx"),
    "no_copy": without(r"cp\.async\.bulk\.tensor", count=1),
    "count": replaced(r"mbarrier\.init", "2"),
    "init": without(r"mbarrier\.init"),
    "parity": replaced(r"mbarrier\.try_wait\.parity", "1"),
    "coordinate": lambda ptx: ptx,  # the kernel's own argument
}


@triton.jit
def matmul(a, b, c, length, shift, m: tl.constexpr, n: tl.constexpr, k: tl.constexpr):
    """Multiply a tile of m rows of a by a tile of n rows of b, k columns at a time."""
    row, column = tl.program_id(0) * m, tl.program_id(1) * n
    total = tl.zeros((m, n), tl.float32)
    for at in tl.range(0, length, k, num_stages=3):
        total = tl.dot(a.load([row, at + shift]), b.load([column, at]).T, total)
    c.store([row, column], total.to(tl.float16))


def main(slip: str) -> None:
    """Compile, launch, and wait."""
    assemble = CUDABackend.make_cubin
    CUDABackend.make_cubin = lambda self, ptx, *rest: assemble(self, SLIPS[slip](ptx), *rest)
    matrices = (torch.zeros(128, 1024, device="cuda", dtype=torch.float16) for _ in range(3))
    described = [TensorDescriptor.from_tensor(matrix, [64, 64]) for matrix in matrices]
    print("launched", flush=True)
    matmul[(2, 2)](*described, 1024, 4 * (slip == "coordinate"), 64, 64, 64)
    torch.cuda.synchronize()
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
