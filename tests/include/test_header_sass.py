"""The header's verbs compile to the machine code of PTX by hand and of cuda::ptx, byte for byte.

``python tests/include/test_header_sass.py`` prints how many instructions each has.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_checked_header import instructions

from tma_dlpack.include import get_include

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

#: A kernel for each verb: the header's call, and the same by cuda::ptx, or by hand where the oldest
#: toolkit has no function for it.
BARRIER = "mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, b, n)"
TILE = "cp_async_bulk_tensor(ptx::space_shared, ptx::space_global, smem, &map, at, b)"
KERNELS = {
    "elect": ("if (elect_one()) out[0] = 1;", "if (elected()) out[0] = 1;"),
    "arrives": ("arrive_expect_tx(b, n);", f"ptx::{BARRIER};"),
    "expects": (
        "expect_tx_only(b, n);",
        "ptx::mbarrier_expect_tx(ptx::sem_relaxed, ptx::scope_cta, ptx::space_shared, b, n);",
    ),
    "tests": ("out[0] = test_wait(b, n);", "out[0] = ptx::mbarrier_test_wait_parity(b, n);"),
    "loads_bytes": (
        "load_bulk(smem, x, n, b);",
        "ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, smem, x, n, b);",
    ),
    "stores_bytes": (
        "store_bulk(x, smem, n);",
        "ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, x, smem, n);",
    ),
    "prefetches": (
        "prefetch_tile(map, c, c);",
        'asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %1}];" '
        ':: "l"(&map), "r"(c) : "memory");',
    ),
    "launches": ("launch_dependents();", "cudaTriggerProgrammaticLaunchCompletion();"),
    "depends": ("wait_dependencies();", "cudaGridDependencySynchronize();"),
    "loads": (
        "if (threadIdx.x < 32 && elect_one()) arrive_expect_tx(b, n), load(smem, map, b, c, c);",
        "if (threadIdx.x < 32 && elected()) "
        f"{{ ptx::{BARRIER}; int at[2] = {{c, c}}; ptx::{TILE}; }}",
    ),
    "loads_by_thread_0": (
        "if (threadIdx.x == 0) arrive_expect_tx(b, n), load(smem, map, b, c, c);",
        f"if (threadIdx.x == 0) {{ ptx::{BARRIER}; int at[2] = {{c, c}}; ptx::{TILE}; }}",
    ),
    "rings": (
        "PipelineState<4> state; for (int i = 0; i < c; ++i, state.advance()) "
        "wait(b + state.stage(), state.phase());",
        "unsigned stage = 0, phase = 0; for (int i = 0; i < c; ++i) { while "
        "(!ptx::mbarrier_try_wait_parity(b + stage, phase)) {} "
        "if (++stage == 4) stage = 0, phase ^= 1; }",
    ),
}
OURS = "#include <tma_dlpack.h>\nusing namespace tma_dlpack;\n"
THEIRS = """
#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
using Map = CUtensorMap;
using Barrier = std::uint64_t;
__device__ inline bool elected()
{
  unsigned is;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(is) :: "memory");
  return is;
}
"""
KERNEL = """
extern "C" __global__ void {name}(const __grid_constant__ Map map, void* x, unsigned n, int c,
                                  unsigned* out)
{{
  [[maybe_unused]] Barrier* const b = (Barrier*)(smem + 8192);
  {statement}
}}
"""


def compiled(head: str, statements: dict[str, str], folder: Path, target: str) -> dict[str, bytes]:
    """Return the machine code of a kernel for each statement."""
    source, cubin = folder / "kernels.cu", folder / "kernels.cubin"
    kernels = [KERNEL.format(name=name, statement=text) for name, text in statements.items()]
    shared = "extern __shared__ __align__(1024) unsigned char smem[];\n"
    source.write_text(head + shared + "".join(kernels))
    option = f"-gencode=arch=compute_{target},code=sm_{target}"
    command = ["nvcc", "-std=c++17", option, f"-I{get_include()}", "-cubin", "-o", str(cubin)]
    built = subprocess.run([*command, str(source)], capture_output=True, text=True)
    if "cuda/ptx" in built.stderr and "No such file" in built.stderr:
        pytest.skip("cuda/ptx is not on nvcc's path")
    if "has no member" in built.stderr:
        pytest.skip("this cuda::ptx lacks a function that is compared")
    assert built.returncode == 0, built.stderr
    return instructions(cubin.read_bytes())


def both(folder: Path, target: str) -> Iterator[dict[str, bytes]]:
    """Return the machine code of ours, then of theirs."""
    for side, head in enumerate((OURS, THEIRS)):
        yield compiled(head, {name: pair[side] for name, pair in KERNELS.items()}, folder, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["90a", "100a"])
def test_every_verb_is_the_machine_code_of_cuda_ptx(target, tmp_path):
    ours, theirs = both(tmp_path, target)
    assert len(ours) == len(KERNELS)
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_an_elected_thread_issues_loads_without_a_loop_around_each(tmp_path):
    loads = ", ".join(f"load(smem + {1024 * i}, map, b, c, c + {i})" for i in range(8))
    statements = {
        "by_one": f"if (threadIdx.x < 32 && elect_one()) {loads};",
        "by_thread_0": f"if (threadIdx.x == 0) {loads};",
    }
    code = compiled(OURS, statements, tmp_path, "90a")
    instruction_bytes = 16  # thread 0: a loop of at least two more around each load
    saved = len(code[".text.by_thread_0"]) - len(code[".text.by_one"])
    assert saved >= 8 * 2 * instruction_bytes


def test_the_old_name_of_arrive_expect_tx_keeps_its_meaning(tmp_path):
    statements = {"new_name": "arrive_expect_tx(b, n);", "old_name": "expect_tx(b, n);"}
    code = compiled(OURS, statements, tmp_path, "90a")
    assert code[".text.new_name"] == code[".text.old_name"]


def count(code: bytes) -> int:
    """Return the number of instructions, without the NOPs that fill up the end."""
    words = [int.from_bytes(code[at : at + 8], "little") for at in range(0, len(code), 16)]
    return sum(word & 0xFFF != 0x918 for word in words)


def main() -> None:
    """Print the instructions of each kernel: ours, and theirs, for both targets."""
    print(f"{'instructions: ours, theirs':28}{'sm_90a':>16}{'sm_100a':>16}")
    with tempfile.TemporaryDirectory() as folder:
        pairs = [tuple(both(Path(folder), target)) for target in ("90a", "100a")]
    for name in pairs[0][0]:
        counts = [f"{count(ours[name])}, {count(theirs[name])}" for ours, theirs in pairs]
        same = all(ours[name] == theirs[name] for ours, theirs in pairs)
        cells = "".join(f"{text:>16}" for text in counts)
        print(
            f"{name.removeprefix('.text.'):28}{cells}  {'the same bytes' if same else 'DIFFERENT'}"
        )


if __name__ == "__main__":
    main()
