"""Kernels of this repository, each with one mistake: the findings, and their schedule.

``python tests/kernel/test_mutants.py`` prints the table.
"""

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from kernel_cases import BLACKWELL, CASES, NOTEBOOKS, blackwell, gemm

import tma_dlpack as tma

KERNELS = {
    **CASES,
    **BLACKWELL,
    "hopper_gemm": lambda: gemm("hopper_gemm", (128, 64), "bytes128", 256, 256, 768),
    "blackwell_gemm": lambda: blackwell(1, 512),
}


class Mutant(NamedTuple):
    """A kernel, the changed file, the change, and the rules of which one must be found."""

    kernel: str
    mistake: str
    file: str
    old: str
    new: str
    rules: tuple[str, ...]
    is_error: bool = True


GEMM, DOUBLE = "hopper_gemm.cu", "extension/double_tiles.cu"
LADDER, BLACK, CONV = "gemm_ladder.cu", "blackwell_gemm.cu", "hopper_conv.cu"
NAMED_BARRIER = "    sync_threads(1 + warpgroup, 128);\n"
_ALL = [
    # fences
    ("double_tiles", "no fence", DOUBLE, "  fence_async();", "", "PROXY_FENCE"),
    ("hopper_gemm", "no fence", GEMM, "    fence_async();", "", "PROXY_FENCE"),
    ("hopper_conv", "no fence", GEMM, "    fence_async();", "", "PROXY_FENCE"),
    ("ladder_threads", "no fence", LADDER, "fence_async();", "", "PROXY_FENCE"),
    ("blackwell_gemm", "no fence", BLACK, "  fence_async();", "", "PROXY_FENCE"),
    # waits
    (
        "double_tiles",
        "no wait",
        DOUBLE,
        "    wait(full + at.stage(), at.phase());",
        "",
        "LOAD_WAIT",
    ),
    (
        "double_tiles",
        "other parity",
        DOUBLE,
        "at.phase()",
        "at.phase() ^ 1",
        "HANG_PARITY LOAD_WAIT",
    ),
    (
        "double_tiles",
        "other stage",
        DOUBLE,
        "wait(full + at.stage()",
        "wait(full + (at.stage() ^ 1)",
        "LOAD_WAIT HANG_PARITY",
    ),
    (
        "hopper_gemm",
        "no wait for full",
        GEMM,
        "  wait(ring.full(), ring.at.phase());",
        "",
        "LOAD_WAIT",
    ),
    (
        "hopper_gemm",
        "full, other parity",
        GEMM,
        "wait(ring.full(), ring.at.phase())",
        "wait(ring.full(), ring.at.phase() ^ 1)",
        "LOAD_WAIT",
    ),
    (
        "hopper_gemm",
        "no wait for empty",
        GEMM,
        "    wait(empties + at.stage(), at.phase());",
        "",
        "SLOT_REUSED BARRIER_ARRIVALS",
    ),
    (
        "hopper_gemm",
        "empty, other parity",
        GEMM,
        "wait(empties + at.stage(), at.phase())",
        "wait(empties + at.stage(), at.phase() ^ 1)",
        "HANG_CYCLE",
    ),
    ("hopper_gemm", "wgmma_wait<2>", GEMM, "wgmma_wait<1>();", "wgmma_wait<2>();", "SLOT_REUSED"),
    (
        "hopper_conv",
        "no wait for full",
        GEMM,
        "  wait(ring.full(), ring.at.phase());",
        "",
        "LOAD_WAIT",
    ),
    (
        "ladder_tma",
        "wgmma is not waited for",
        LADDER,
        "    wgmma_wait();\n",
        "",
        "SLOT_REUSED WGMMA_WAIT",
    ),
    (
        "blackwell_gemm",
        "no wait for full",
        BLACK,
        "      wait(full + at.stage(), at.phase());",
        "",
        "LOAD_WAIT",
    ),
    (
        "blackwell_gemm",
        "no wait for empty",
        BLACK,
        "      wait(empty + at.stage(), at.phase());",
        "",
        "SLOT_REUSED BARRIER_ARRIVALS",
    ),
    (
        "hopper_gemm",
        "accumulators are not waited for",
        GEMM,
        "  wgmma_wait();\n  release",
        "  release",
        "WGMMA_WAIT",
    ),
    ("hopper_gemm", "wgmma is not committed", GEMM, "  wgmma_commit();", "", "WGMMA_WAIT"),
    # bulk stores
    (
        "double_tiles",
        "no wait_read",
        DOUBLE,
        "    store_wait_read();  // the engine",
        "// the engine",
        "BULK_WAIT",
    ),
    ("double_tiles", "no commit", DOUBLE, ", store_commit();", ";", "BULK_WAIT"),
    (
        "hopper_gemm",
        "no wait_read",
        GEMM,
        "    if (thread == 0) store_wait_read<Choose::c_boxes - 1>();",
        "",
        "BULK_WAIT",
    ),
    ("hopper_gemm", "no commit", GEMM, "      store_commit();", "", "BULK_WAIT"),
    # barriers of threads
    (
        "double_tiles",
        "no barrier before the store",
        DOUBLE,
        "    __syncthreads();\n    if",
        "    if",
        "RACE",
    ),
    (
        "hopper_gemm",
        "no barrier before the store",
        GEMM,
        NAMED_BARRIER + "    if",
        "    if",
        "RACE",
    ),
    (
        "hopper_gemm",
        "no barrier after wait_read",
        GEMM,
        NAMED_BARRIER + "#pragma",
        "#pragma",
        "BULK_WAIT",
    ),
    (
        "hopper_gemm",
        "a barrier of too many threads",
        GEMM,
        "sync_threads(1 + warpgroup, 128);\n    if",
        "sync_threads(1 + warpgroup, 160);\n    if",
        "HANG_THREADS",
    ),
    (
        "ladder_tma",
        "no barrier after the products",
        LADDER,
        "    __syncthreads();  // all threads have",
        "// all threads have",
        "SLOT_REUSED",
    ),
    (
        "ladder_threads",
        "no barrier before the product",
        LADDER,
        "    __syncthreads();  // all threads have written the stage\n",
        "",
        "CP_ASYNC_WAIT",
    ),
    # initialisation, expected bytes, arrivals
    (
        "double_tiles",
        "no barrier after init",
        DOUBLE,
        "  __syncthreads();\n\n",
        "\n",
        "BARRIER_INIT",
    ),
    (
        "double_tiles",
        "a barrier is not initialised",
        DOUBLE,
        "init(full + 1), ",
        "",
        "BARRIER_INIT",
    ),
    (
        "double_tiles",
        "initialised for two",
        DOUBLE,
        "init(full), ",
        "init(full, 2), ",
        "HANG_ARRIVALS",
    ),
    (
        "double_tiles",
        "twice the bytes",
        DOUBLE,
        "sizeof(tiles[0]));",
        "sizeof(tiles[0]) * 2);",
        "HANG_BYTES",
    ),
    (
        "double_tiles",
        "half of the bytes",
        DOUBLE,
        "sizeof(tiles[0]));",
        "sizeof(tiles[0]) / 2);",
        "LOAD_WAIT",
    ),
    (
        "double_tiles",
        "no expected bytes",
        DOUBLE,
        "arrive_expect_tx(full + next.stage(), sizeof(tiles[0]));",
        "arrive(full + next.stage());",
        "LOAD_WAIT HANG_NOT_ANNOUNCED BARRIER_ARRIVALS",
    ),
    (
        "hopper_gemm",
        "half of the bytes",
        GEMM,
        "arrive_expect_tx(full(), STAGE_BYTES);",
        "arrive_expect_tx(full(), STAGE_BYTES / 2);",
        "LOAD_WAIT",
    ),
    (
        "hopper_gemm",
        "16 bytes too many",
        GEMM,
        "arrive_expect_tx(full(), STAGE_BYTES);",
        "arrive_expect_tx(full(), STAGE_BYTES + 16);",
        "HANG_BYTES",
    ),
    (
        "hopper_gemm",
        "no barrier of the cluster after init",
        GEMM,
        "  cluster_sync();\n  return ring;",
        "  return ring;",
        "BARRIER_INIT",
    ),
    (
        "hopper_gemm",
        "empty counts one block",
        GEMM,
        "CONSUMERS * Choose::cluster);",
        "CONSUMERS);",
        "SLOT_REUSED BARRIER_ARRIVALS",
    ),
    (
        "hopper_gemm",
        "no arrival at empty",
        GEMM,
        "  if (block < Choose::cluster) arrive_remote_relaxed(ring.empties + stage, block);",
        "",
        "HANG_CYCLE",
    ),
    (
        "hopper_gemm",
        "an arrival at one block alone",
        GEMM,
        "if (block < Choose::cluster) arrive",
        "if (block < 1) arrive",
        "HANG_CYCLE",
    ),
    (
        "hopper_gemm",
        "an arrival by two lanes",
        GEMM,
        "const unsigned block = threadIdx.x % 128;",
        "const unsigned block = threadIdx.x % 64;",
        "SLOT_REUSED BARRIER_ARRIVALS",
    ),
    (
        "hopper_gemm",
        "the stage that is read is released",
        GEMM,
        "release(ring, before);\n    before",
        "release(ring, ring.at.stage());\n    before",
        "HANG_CYCLE SLOT_REUSED",
    ),
    (
        "blackwell_gemm",
        "16 bytes too many",
        BLACK,
        "BLOCKS * STAGE_BYTES);",
        "BLOCKS * STAGE_BYTES + 16);",
        "HANG_BYTES",
    ),
    # clusters
    (
        "hopper_gemm",
        "multicast to one block",
        GEMM,
        "(1 << Choose::cluster) - 1",
        "1",
        "HANG_BYTES",
    ),
    (
        "hopper_gemm",
        "multicast to four blocks",
        GEMM,
        "(1 << Choose::cluster) - 1",
        "15",
        "MULTICAST_BLOCK",
    ),
    # coordinates and places
    (
        "hopper_gemm",
        "coordinates off 16 bytes",
        GEMM,
        "load(to, map, ring.full(), k + column, row + r);",
        "load(to, map, ring.full(), k + column + 1, row + r);",
        "COORDINATE_16B",
    ),
    (
        "hopper_gemm",
        "a stage 64 bytes off",
        GEMM,
        "tiles + at.stage() * STAGE_BYTES;",
        "tiles + at.stage() * STAGE_BYTES + 64;",
        "SMEM_ALIGNED",
    ),
]
MUTANTS = [Mutant(*row[:5], tuple(row[5].split())) for row in _ALL] + [
    Mutant(
        "hopper_gemm",
        "a block ends early",
        GEMM,
        "  cluster_sync();  // the other block loads",
        "  // the other block loads",
        ("BLOCK_ENDED",),
        is_error=False,
    ),
    Mutant(
        "hopper_gemm",
        "no wait at the end",
        GEMM,
        "    if (threadIdx.x % 128 == 0) store_wait_read();",
        "",
        ("BULK_WAIT",),
        is_error=False,
    ),
    Mutant(
        "double_tiles",
        "no wait at the end",
        DOUBLE,
        "  if (threadIdx.x == 0) store_wait_read();  // sh",
        "// sh",
        ("BULK_WAIT",),
        is_error=False,
    ),
]


def run(mutant: Mutant, folder: Path):
    """Run a kernel with its mistake."""
    (folder / "extension").mkdir()
    for source in [*NOTEBOOKS.glob("*.cu"), NOTEBOOKS / DOUBLE]:
        shutil.copy(source, folder / source.relative_to(NOTEBOOKS))
    file = folder / mutant.file
    text = file.read_text()
    # Kernels of the ladder share lines, so only the kernel that runs is changed.
    start = max(0, text.find(f"  {mutant.kernel}(")) if mutant.file == LADDER else 0
    assert text.count(mutant.old, start) >= 1
    file.write_text(text[:start] + text[start:].replace(mutant.old, mutant.new, 1))
    case = KERNELS[mutant.kernel]()
    source = folder / case.source.relative_to(NOTEBOOKS)
    return tma.run_kernel(source, case.name, schedules=3, **case.keywords)


def name_of(mutant: Mutant) -> str:
    return f"{mutant.kernel}: {mutant.mistake}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_mistake_in_a_kernel_is_found(mutant, tmp_path):
    found = run(mutant, tmp_path)
    severity = "error" if mutant.is_error else "warning"
    assert found.ok is not mutant.is_error
    rules = {f.rule for f in found.findings if f.severity == severity}
    assert rules & set(mutant.rules), str(found)


if __name__ == "__main__":
    import tempfile

    for mutant in MUTANTS:
        with tempfile.TemporaryDirectory() as folder:
            found = run(mutant, Path(folder))
            rules = ", ".join(dict.fromkeys(f.rule for f in found.findings)) or "nothing"
            print(f"{name_of(mutant):55} {found.schedule:9} {rules}")
