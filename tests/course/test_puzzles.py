"""The judge of the puzzles accepts right kernels in any style, and names the mistake of others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tma_dlpack as tma
from course.puzzles import PUZZLES, Verdict, judge
from tma_dlpack.kernel.compile import compile_kernel

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SOLUTIONS = (NOTEBOOKS / "puzzle_solutions.cu").read_text(encoding="utf-8")
HEAD = SOLUTIONS[: SOLUTIONS.index("// 1  ")]


@pytest.fixture(autouse=True, scope="module")
def _compiler():
    verdict = judge("one_copy", SOLUTIONS)
    if "compiler" in verdict.text or "NVRTC" in verdict.text:
        pytest.skip(verdict.text)


def solution(name: str) -> str:
    """Return the source of one kernel only."""
    parts = re.split(r"(?m)^// \d+  ", SOLUTIONS)[1:]
    (part,) = (part for part in parts if re.search(rf"\b{name}\(", part))
    return f"{HEAD}// {part}"


def changed(name: str, *pairs: tuple[str, str]) -> str:
    source = solution(name)
    for old, new in pairs:
        assert old in source, old
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize("name", PUZZLES)
def test_a_solution_is_right(name):
    verdict = judge(name, solution(name))
    assert verdict, verdict
    assert "solved" in str(verdict)
    assert verdict.run.findings == ()
    assert "<svg" in verdict._repr_html_() or "img" in verdict._repr_html_()


LOAD = "load(tile, x, &full, 0, 16 * blockIdx.x);"
#: Right kernels that differ from the solutions.
STYLES = {
    "expect before arrive": (
        "one_copy",
        ("arrive_expect_tx(&full, tile_bytes);", "expect_tx_only(&full, tile_bytes);"),
        (LOAD, LOAD + " arrive(&full);"),
    ),
    "every thread arrives": (
        "one_copy",
        ("init(&full);\n    arrive_expect_tx(&full, tile_bytes);", "init(&full, 128);"),
        ("    " + LOAD, "    expect_tx_only(&full, tile_bytes);\n    " + LOAD),
        ("__syncthreads();\n  wait", "__syncthreads();\n  arrive(&full);\n  wait"),
    ),
    "plain PTX": (
        "one_copy",
        (
            "arrive_expect_tx(&full, tile_bytes);",
            'asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: '
            '"r"(shared_address(&full)), "r"(tile_bytes) : "memory");',
        ),
    ),
    "another thread": ("triple", ("threadIdx.x == 0", "threadIdx.x == 96")),
    "one wide store a thread": (
        "halo",
        (
            "for (int i = threadIdx.x; i < 512; i += 128)\n    out[32 * row + i] = ",
            "#pragma unroll 1\n  for (int i = 4 * threadIdx.x, e = i + 4; i < e; ++i)\n"
            "    out[32 * row + i] = ",
        ),
    ),
    "a copy without in-place writes": (
        "reload",
        ("tile[i] *= 2;", "(void)0;"),
        ("= tile[511 - i];", "= 2 * tile[511 - i];"),
    ),
    "chunks by exclusive or of the index": (
        "unswizzle",
        ("tile[32 * row + 4 * (chunk ^ (row % 8)) + i % 4]", "tile[i ^ (row % 8 * 4)]"),
    ),
    "all lanes of a warp arrive": (
        "dead",
        ("    __syncwarp();\n    if (lane == 0) arrive(&empty[s]);", "    arrive(&empty[s]);"),
        ("init(&empty[s], 3)", "init(&empty[s], 96)"),
    ),
    "tiles in the other order": (
        "transpose",
        ("tile[32 * 32], turned[32 * 32]", "turned[32 * 32], tile[32 * 32]"),
    ),
    "the last thread loads": ("ring", ("threadIdx.x == 0", "threadIdx.x == 127")),
    "each block issues its own half": (
        "multicast",
        ("rank == 0", "rank == 1"),
    ),
    "waits in one thread": (
        "two_phases",
        ("    wait(&full, t % 2);", "    while (!try_wait(&full, t & 1)) {}"),
    ),
    "guard per row": ("tail", ("if (row + i / 32 < rows)", "if (32 * row + i < 32 * rows)")),
}


@pytest.mark.parametrize(("name", "pairs"), [(n, p) for n, *p in STYLES.values()], ids=STYLES)
def test_any_style_passes(name, pairs):
    verdict = judge(name, changed(name, *pairs))
    assert verdict, verdict


EXPECT, FENCE = "arrive_expect_tx(&full, tile_bytes);", "  fence_async();\n"
#: (puzzle, change, a word of the verdict).
WRONG = [
    ("one_copy", [(EXPECT, "arrive_expect_tx(&full, 512);")], "HANG|LOAD_WAIT|TX"),
    ("one_copy", [(EXPECT, "arrive_expect_tx(&full, 2 * tile_bytes);")], "HANG"),
    ("one_copy", [("  wait(&full, 0);\n", "")], "LOAD_WAIT"),
    ("one_copy", [("alignas(128) ", "")], "716|MISALIGNED|ALIGN"),
    ("one_copy", [("tile[i] + 1", "tile[i] + 2")], "elements are wrong"),
    (
        "one_copy",
        [("for (int i = threadIdx.x; i < 512", "for (int i = threadIdx.x; i < 511")],
        "never written",
    ),
    ("two_phases", [("wait(&full, t % 2)", "wait(&full, 0)")], "BARRIER_ARRIVALS|LOAD_WAIT"),
    (
        "two_phases",
        [("    __syncthreads();  // everybody", "    // everybody")],
        "SLOT_REUSED|RACE",
    ),
    (
        "two_phases",
        [("wait(&full, t % 2)", "wait(&full, t % 2 ^ 1)")],
        "BARRIER_ARRIVALS|LOAD_WAIT",
    ),
    ("triple", [(FENCE, "")], "PROXY_FENCE"),
    (
        "triple",
        [("store(out, tile, column, row)", "store(x, tile, column, row)")],
        "never written|wrote to x",
    ),
    ("triple", [("    store_wait_read();\n", "")], "BULK_WAIT|solved"),
    ("triple", [("column, row", "row, column")], "elements are wrong|COORD|ILLEGAL"),
    ("reload", [("    fence_async();\n", "")], "PROXY_FENCE"),
    (
        "reload",
        [("    fence_async();\n    __syncthreads();\n", "    fence_async();\n")],
        "SLOT_REUSED|RACE",
    ),
    ("reload", [("tile[511 - i]", "tile[i]")], "elements are wrong"),
    ("halo", [("row - 1", "row")], "elements are wrong"),
    ("halo", [("sizeof(tile)", "tile_bytes")], "HANG|LOAD_WAIT|TX|elements"),
    (
        "halo",
        [("18 * 32", "16 * 32"), ("sizeof(tile)", "18 * 128")],
        "SMEM|RACE|ILLEGAL|BEYOND|overlap|wrong|OVER",
    ),
    ("shift", [("column, 0)", "column + 3, 0)"), (" + 3]", "]")], "illegal|COORD|715|INSTRUCTION"),
    ("shift", [(" + 3]", " + 2]")], "elements are wrong"),
    ("shift", [("36 * (i / 32)", "32 * (i / 32)")], "elements are wrong"),
    ("unswizzle", [("(chunk ^ (row % 8))", "chunk")], "elements are wrong"),
    ("unswizzle", [("row % 8", "row % 4")], "elements are wrong"),
    ("unswizzle", [("sizeof(tile)", "sizeof(tile) / 2")], "HANG|LOAD_WAIT|TX"),
    ("transpose", [(FENCE, "")], "PROXY_FENCE"),
    ("transpose", [("row, column);", "column, row);")], "elements are wrong"),
    ("transpose", [(", turned[32 * 32]", ""), ("turned", "tile")], "RACE|elements are wrong"),
    (
        "ring",
        [("    __syncthreads();\n    if (threadIdx.x == 0 && t", "    if (threadIdx.x == 0 && t")],
        "SLOT_REUSED|RACE",
    ),
    ("ring", [("t / 3 % 2", "t % 2")], "BARRIER_ARRIVALS|LOAD_WAIT|HANG"),
    ("ring", [("(t + 1) *", "t *")], "elements are wrong"),
    (
        "multicast",
        [("  }\n  cluster_sync();\n", "  }\n  __syncthreads();\n")],
        "HANG|RACE|CLUSTER|BARRIER|REMOTE",
    ),
    ("multicast", [("0b11", "0b01")], "HANG"),
    (
        "multicast",
        [("&& rank == 0", ""), ("load_multicast(tile, x, &full, 0b11,", "load(tile, x, &full,")],
        "0 of 2 multicast copies",
    ),
    ("tail", [("if (row + i / 32 < rows) ", "")], "ILLEGAL_ADDRESS"),
    ("tail", [("tile_bytes);", "4 * 32 * min(16, rows - row));")], "BLOCK_ENDED"),
    ("tail", [("tile[i] + 1", "tile[i]")], "elements are wrong"),
    ("dead", [("init(&empty[s], 3)", "init(&empty[s], 96)")], "HANG"),
    ("dead", [("t / 2 % 2 ^ 1", "t / 2 % 2")], "HANG"),
    ("dead", [("    if (lane == 0) arrive(&empty[s]);\n", "")], "HANG"),
]


@pytest.mark.parametrize(("name", "pairs", "words"), WRONG)
def test_a_wrong_kernel_is_named(name, pairs, words):
    verdict = judge(name, changed(name, *pairs))
    if "solved" in words and verdict:
        return
    assert not verdict, (verdict, pairs)
    assert re.search(words, str(verdict)), verdict


def test_a_kernel_without_tma_is_not_a_solution():
    body = "int i = threadIdx.x; out[512 * blockIdx.x + i] = 1;"
    head = f'extern "C" __global__ void one_copy({PUZZLES["one_copy"].parameters})'
    plain = f"#include <tma_dlpack.h>\nusing namespace tma_dlpack;\n{head} {{ {body} }}"
    assert "elements are wrong" in str(judge("one_copy", plain))


def test_values_that_came_without_a_copy_of_tma_do_not_pass(monkeypatch):
    import course.puzzles as module

    monkeypatch.setattr(module, "issued", lambda run: {})
    verdict = judge("one_copy", solution("one_copy"))
    assert not verdict
    assert "0 of 4 load copies were by TMA" in str(verdict)


def test_the_drivers_name_of_a_map_is_known():
    source = solution("one_copy").replace("Map x", "CUtensorMap x")
    assert judge("one_copy", source)
    broken = source.replace("out[512", "oops; out[512")
    number = 1 + broken[: broken.index("oops")].count("\n")
    assert f"({number}): error" in str(judge("one_copy", broken))


def test_an_endless_loop_ends():
    source = changed("one_copy", ("wait(&full, 0);", "wait(&full, 0);\n  while (tile[0] < 1e9) {}"))
    verdict = judge("one_copy", source)
    assert not verdict
    assert verdict.text


@pytest.mark.parametrize("kernel", [None, "", 3.5, ValueError("x"), ("a", "b"), b"x", "  \n"])
def test_what_is_no_kernel_is_one_sentence(kernel):
    assert str(judge("one_copy", kernel)).startswith("not yet: there is no kernel to run")


@pytest.mark.parametrize(
    "kernel",
    [
        "int main() {}",
        "__global__ void one_copy() {",
        '#include <tma_dlpack.h>\nextern "C" __global__ void other(float* x) {}',
        '#include <tma_dlpack.h>\nextern "C" __global__ void one_copy(float* x) {}',
    ],
)
def test_what_does_not_compile_or_fit_is_a_sentence_with_the_parameters(kernel):
    verdict = judge("one_copy", kernel)
    assert isinstance(verdict, Verdict)
    assert not verdict
    assert "the kernel is __global__ void one_copy(const __grid_constant__ Map x" in str(verdict)


def test_an_unknown_puzzle_is_refused_by_its_name():
    assert "there is no puzzle 'x'" in str(judge("x", ""))
    assert "there is no puzzle None" in str(judge(None, ""))


@pytest.mark.parametrize("name", PUZZLES)
def test_lint_finds_nothing_in_a_solution(name):
    compiled = compile_kernel(solution(name), name, (), "sm_90a")
    assert tma.lint(compiled.ptx).findings == ()
