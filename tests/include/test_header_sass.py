"""The header's verbs compile to the same machine code as handwritten PTX and cuda::ptx.

``python tests/include/test_header_sass.py`` prints the number of instructions of each verb.
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

#: A pair of kernels for each verb: the header's call, and the same call by cuda::ptx, or by PTX if
#: the oldest toolkit has no function for it.
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
    "arrives_twice": (
        "arrive(b, n);",
        'asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" :: '
        '"r"(address_of(b)), "r"(n) : "memory");',
    ),
    "fences_global": (
        "out[0] = n; fence_async_global();",
        'out[0] = n; asm volatile("fence.proxy.async.global;" ::: "memory");',
    ),
    "arrives_relaxed": (
        "out[0] = n; cluster_arrive_relaxed(); cluster_wait();",
        'out[0] = n; asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); '
        'asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");',
    ),
    "loads_bytes_to_blocks": (
        "load_bulk_multicast(smem, x, n, b, 3);",
        'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes'
        '.multicast::cluster [%0], [%1], %2, [%3], %4;" :: "r"(address_of(smem)), '
        '"l"(__cvta_generic_to_global(x)), "r"(n), "r"(address_of(b)), "h"((unsigned short)3) '
        ': "memory");',
    ),
    "adds_bytes": (
        "reduce_bulk<Reduction::add>(out, smem, n); store_commit(); store_wait_read<1>();",
        'asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" '
        ':: "l"(__cvta_generic_to_global(out)), "r"(address_of(smem)), "r"(n) : "memory"); '
        'asm volatile("cp.async.bulk.commit_group;" ::: "memory"); '
        'asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");',
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
BY_HAND = """
#include <cuda.h>
#include <cstdint>
using Map = CUtensorMap;
using Barrier = std::uint64_t;
__device__ inline unsigned address_of(const void* smem)
{
  return static_cast<unsigned>(__cvta_generic_to_shared(smem));
}
"""
THEIRS = (
    BY_HAND
    + """
#include <cuda/ptx>
namespace ptx = cuda::ptx;
__device__ inline bool elected()
{
  unsigned is;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(is) :: "memory");
  return is;
}
"""
)
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
    """Return the machine code of the header's kernel, then of the other kernel."""
    for side, head in enumerate((OURS, THEIRS)):
        yield compiled(head, {name: pair[side] for name, pair in KERNELS.items()}, folder, target)


#: The tensor core's verbs, and handwritten PTX from the ISA's manual.
SUMS = ", ".join(f"%{i}" for i in range(8))
OUTPUTS = ", ".join(f'"+f"(d[{i}])' for i in range(8))
END = "for (int i = 0; i < 8; ++i) out[i] = __float_as_uint(d[i]);"


def end(columns: int) -> str:
    """Return code that uses the sums of a wgmma."""
    return END.replace("8", str(columns // 2))


def by_hand(types: str, majors: str = "", a_in_registers: bool = False, columns: int = 16) -> str:
    """Return a wgmma by PTX."""
    n = columns // 2
    a, operands = f"%{n}", '"l"(a)'
    if a_in_registers:
        a = f"{{%{n}, %{n + 1}, %{n + 2}, %{n + 3}}}"
        operands = '"r"(n), "r"(n + 1), "r"(n + 2), "r"(n + 3)'
    b = n + (4 if a_in_registers else 1)
    sums = ", ".join(f"%{i}" for i in range(n))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(n))
    return (
        f'float d[{n}] = {{}}; asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{b + 1}, 0; '
        f"wgmma.mma_async.sync.aligned.m64n{columns}{types} {{{sums}}}, {a}, %{b}, p, "
        f'1, 1{majors}; }}" : {outputs} : {operands}, "l"(a + 4), "r"(c)); {end(columns)}'
    )


def multiplied(template: str, a_in_registers: bool = False, columns: int = 16) -> str:
    """Return the header's wgmma."""
    a = "{n, n + 1, n + 2, n + 3}"
    declared = (
        f"const unsigned r[4] = {a};" if a_in_registers else "const unsigned long long r = a;"
    )
    return (
        f"float d[{columns // 2}] = {{}}; {declared} wgmma<{columns}{template}>(d, r, a + 4, c); "
        + end(columns)
    )


def wgmmas() -> dict[str, tuple[str, str]]:
    """Return every pair of types, layouts and places of A."""
    names = {"bf16": "bf16", "fp16": "f16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2"}
    depth = {"bf16": 16, "fp16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}
    pairs = [(t, t) for t in names] + [("e4m3", "e5m2"), ("e5m2", "e4m3")]
    found = {}
    for a, b in pairs:
        types = f"k{depth[a]}.f32.{names[a]}.{names[b]}"
        ours = f", MmaType::{a}, MmaType::{b}"
        both, one = (", 0, 0", ", 0") if depth[a] == 16 else ("", "")
        found[f"{a}_{b}"] = multiplied(ours), by_hand(types, both)
        found[f"{a}_{b}_registers"] = multiplied(ours, True), by_hand(types, one, True)
        if depth[a] == 16:
            for i, j in ((1, 0), (0, 1), (1, 1)):
                majors = "".join(f", Major::{('K', 'MN')[m]}" for m in (i, j))
                pair = multiplied(ours + majors), by_hand(types, f", {i}, {j}")
                found[f"{a}_{i}{j}"] = pair
            pair = multiplied(f"{ours}, Major::MN", True), by_hand(types, ", 1", True)
            found[f"{a}_registers_1"] = pair
    for n in range(8, 257, 8):
        types = "k16.f32.bf16.bf16"
        found[f"columns_{n}"] = multiplied("", columns=n), by_hand(types, ", 0, 0", columns=n)
        pair = multiplied("", True, n), by_hand(types, ", 0", True, n)
        found[f"columns_{n}_registers"] = pair
    return found


def tcgen05s() -> dict[str, tuple[str, str]]:
    """Return each verb of tcgen05 with either group."""
    found = {}
    for group in (1, 2):
        words = f".cta_group::{group}"
        for ours, kind in (("bf16", "f16"), ("tf32", "tf32"), ("e5m2", "f8f6f4")):
            text = (
                "{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma" + words + f".kind::{kind} "
                "[%0], {a}, %2, %3, p; }"
            )
            operands = ' :: "r"(n), {a}, "l"(a + 4), "r"(7u), "r"(c) : "memory");'
            for place, shown, given, theirs in (
                ("smem", "%1", "a", '"l"(a)'),
                ("tmem", "[%1]", "n + 8", '"r"(n + 8)'),
            ):
                found[f"{ours}_{place}_{group}"] = (
                    f"tcgen05_mma<MmaType::{ours}, {group}>(n, {given}, a + 4, 7u, c);",
                    'asm volatile("'
                    + text.replace("{a}", shown)
                    + '"'
                    + operands.replace("{a}", theirs),
                )
        found[f"allocates_{group}"] = (
            f"tcgen05_alloc<{group}>(&place, 64); tcgen05_relinquish<{group}>(); "
            f"tcgen05_fence_before(); __syncthreads(); tcgen05_fence_after(); "
            f"tcgen05_dealloc<{group}>(place, 64);",
            f'asm volatile("tcgen05.alloc{words}.sync.aligned.shared::cta.b32 [%0], 64;" '
            ':: "r"(address_of(&place)) : "memory"); '
            f'asm volatile("tcgen05.relinquish_alloc_permit{words}.sync.aligned;" ::: "memory"); '
            'asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); __syncthreads(); '
            'asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); '
            f'asm volatile("tcgen05.dealloc{words}.sync.aligned.b32 %0, 64;" :: "r"(place) '
            ': "memory");',
        )
        commit = f"tcgen05.commit{words}.mbarrier::arrive::one.shared::cluster"
        found[f"commits_{group}"] = (
            f"tcgen05_commit<{group}>((Barrier*)(smem + 8192)); "
            f"tcgen05_commit<{group}>((Barrier*)(smem + 8192), 3);",
            f'asm volatile("{commit}.b64 [%0];" :: "r"(address_of(smem + 8192)) : "memory"); '
            f'asm volatile("{commit}.multicast::cluster.b64 [%0], %1;" :: '
            '"r"(address_of(smem + 8192)), "h"((unsigned short)3) : "memory");',
        )
    found["loads_and_stores"] = (
        "float d[8]; tcgen05_load(d, n); tcgen05_wait_load(); tcgen05_store(n + 8, d); "
        f"tcgen05_wait_store(); {END}",
        f'float d[8]; asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{SUMS}}}, [%8];" : '
        + OUTPUTS.replace("+f", "=f")
        + ' : "r"(n) : "memory"); asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); '
        f'asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%8], {{{SUMS}}};" :: '
        + OUTPUTS.replace("+f", "f")
        + ', "r"(n + 8) : "memory"); '
        f'asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); {END}',
    )
    return found


@pytest.mark.parametrize("target", ["90a", "100a"])
def test_the_tensor_cores_verbs_are_the_machine_code_of_ptx_by_hand(target, tmp_path):
    pairs = wgmmas() if target == "90a" else tcgen05s()
    shared = "unsigned long long a = 7 | (unsigned long long)n << 20; __shared__ unsigned place;"
    codes = [
        compiled(
            head, {name: f"{shared} {pair[side]}" for name, pair in pairs.items()}, tmp_path, target
        )
        for side, head in enumerate((OURS, BY_HAND))
    ]
    assert len(codes[0]) == len(pairs) >= 17
    assert [name for name in codes[0] if codes[0][name] != codes[1][name]] == []


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
    instruction_bytes = 16  # thread 0 has a loop of at least two more instructions around each load
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
    """Print the instructions of the header's kernel and of the other kernel, for both targets."""
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
