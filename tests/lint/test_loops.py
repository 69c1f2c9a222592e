"""Loops as nvcc unrolls them: every loop over a tile without its fence has a finding.

A loop writes (or reads) a tile; a bulk copy reads (or overwrites) the tile. Each loop is compiled
twice, with the fence and without it.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tma_dlpack as tma

NVCC = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")

#: The loop over {n} elements by 128 threads, {unroll} being a pragma or nothing | its element.
SHAPES = {
    name: (loop, element)
    for name, loop, element in (
        ("index", "{unroll} for (int i = threadIdx.x; i < {n}; i += 128)", "t[i]"),
        ("block", "{unroll} for (int i = threadIdx.x; i < {n}; i += blockDim.x)", "t[i]"),
        ("runtime", "{unroll} for (int i = threadIdx.x; i < n; i += 128)", "t[i]"),
        ("unsigned", "{unroll} for (unsigned i = threadIdx.x; i < {n}; i += 128)", "t[i]"),
        ("pointer", "{unroll} for (auto* p = t + threadIdx.x; p < t + {n}; p += 128)", "*p"),
        ("while", "int i = threadIdx.x - 128; while ((i += 128) < {n})", "t[i]"),
        ("turns", "{unroll} for (int k = 0; k < {n} / 128; ++k)", "t[k * 128 + threadIdx.x]"),
        ("down", "{unroll} for (int k = {n} / 128; k-- > 0;)", "t[k * 128 + threadIdx.x]"),
        (
            "nested",
            "for (int r = threadIdx.x / 32; r < {n} / 32; r += 4) {unroll} "
            "for (int c = threadIdx.x % 32; c < 32; c += 16)",
            "t[r * 32 + c]",
        ),
        ("rows", "{unroll} for (int r = 0; r < n; ++r)", "t[r * 128 + threadIdx.x]"),
        ("odd", "{unroll} for (int i = threadIdx.x; i < n; i += 96)", "t[i]"),
    )
}
UNROLLED = (
    "",
    *(f'_Pragma("{words}")' for words in ("unroll 1", "unroll 2", "unroll 3", "unroll")),
)
TYPES = {"float": "e = e + e;", "int4": "e.x = e.x + 1; e.w = k0;", "short": "e = e ^ k0;"}
TURNS = (4, 7, 33)

KERNEL = """
extern "C" __global__ void __launch_bounds__(128) {name}(char* out, int n, int k0) {{
  alignas(128) extern __shared__ char tile[];
  {type}* t = reinterpret_cast<{type}*>(tile);
  {loop}
  FENCE
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::
        "l"(out), "r"((unsigned)__cvta_generic_to_shared(tile)), "n"({size}) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
  }}
}}
"""
FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'


def kernels() -> Iterator[str]:
    """Return the text of every kernel: each type and each number of iterations with each shape."""
    sizes = {"float": 4, "int4": 16, "short": 2}
    for number, (shape, unroll) in enumerate(itertools.product(SHAPES, UNROLLED)):
        if shape == "while" and unroll:
            continue
        for turn, (kind, do) in enumerate(TYPES.items()):
            turns = TURNS[(number + turn) % len(TURNS)]
            loop, element = SHAPES[shape]
            loop = loop.format(n=128 * turns, unroll=unroll) + f" {{ auto& e = {element}; {do} }}"
            name = f"{shape}_{UNROLLED.index(unroll)}_{kind}_{turns}"
            size = 128 * turns * sizes[kind]
            yield KERNEL.format(name=name, type=kind, loop=loop, size=size)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[set[tuple[str, str]]]:
    """Return kernel and severity of the findings, without the fences and with them."""
    folder: Path = tmp_path_factory.mktemp("loops")
    path = folder / "loops.cu"
    path.write_text("".join(kernels()))
    made = []
    for fence in ("", FENCE):
        report = tma.lint(path, nvcc_flags=["-arch=sm_90a", f"-DFENCE={fence}"])
        assert report.functions == len([*kernels()])
        made.append({(finding.kernel, finding.severity) for finding in report.findings})
    return made


@pytest.mark.skipif(NVCC is None, reason="nvcc compiles the loops")
@pytest.mark.slow
def test_a_loop_without_its_fence_is_found_and_with_it_is_not(found):
    without, with_fence = found
    names = {text.split("128) ")[1].partition("(")[0] for text in kernels()}
    assert len(names) > 100
    assert (without, with_fence) == ({(name, "error") for name in names}, set())
