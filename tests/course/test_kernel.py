"""The exercise of chapter 04: a right kernel passes however it is written, a wrong one is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from course.kernel import judged

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
NOTEBOOKS = Path(__file__).parent.parent.parent / "notebooks"
CELLS = nbformat.read(NOTEBOOKS / "04_pytorch_extension.ipynb", as_version=4).cells


def solution():
    (cell,) = (c for c in CELLS if "kernel = r" in c.source and "Solution" in c.source)
    names = {}
    exec(cell.source.split("```python\n")[1].split("```")[0], names)
    return names["kernel"]


RIGHT = solution()
SOLVED = "solved: every element is tripled"
SYNC = "  }\n  __syncthreads();\n"


def changed(*pairs):
    source = RIGHT
    for old, new in pairs:
        assert old in source, old
        source = source.replace(old, new, 1)
    return source


WAIT = "tma_dlpack::wait(&full, 0);"
LOOP = "for (int i = threadIdx.x; i < 16 * 32; i += 128) tile[i] *= 3;"


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [(LOOP, LOOP.replace("tile[i] *= 3;", "\n  {\n    tile[i] *= 3;\n  }"))],
        [(LOOP, LOOP.replace("tile[i] *= 3", "tile[i] = 3 * tile[i]"))],
        [(LOOP, LOOP.replace("tile[i] *= 3;", "{ const float v = tile[i]; tile[i] = v * 3.0f; }"))],
        [(LOOP, "int i = threadIdx.x; while (i < 512) { tile[i] *= 3; i += 128; }")],
        [(LOOP, "for (int r = 0; r < 4; ++r) tile[r * 128 + threadIdx.x] *= 3;")],
        [(LOOP, "if (threadIdx.x < 64) for (int i = threadIdx.x; i < 512; i += 64) tile[i] *= 3;")],
        [("sizeof(tile)", "sizeof tile")],
        [("sizeof(tile)", "16 * 32 * sizeof(float)")],
        [("sizeof(tile)", "2048u")],
        [("CUtensorMap", "tma_dlpack::Map"), ("CUtensorMap", "tma_dlpack::Map")],
        [("const __grid_constant__ CUtensorMap x", "__grid_constant__ const CUtensorMap x")],
        [("init(&full)", "init(&full, 1u)")],
        [("tma_dlpack::fence_async();", "/* fence */ tma_dlpack::fence_async(); // all threads")],
        [("threadIdx.x == 0", "threadIdx.x == 77"), ("threadIdx.x == 0", "!threadIdx.x")],
        [
            ("tma_dlpack::init(&full);", "tma_dlpack::init(&full, 128);"),
            (WAIT, f"if (threadIdx.x != 0) tma_dlpack::arrive(&full);\n  {WAIT}"),
        ],
    ],
)
def test_a_kernel_that_is_right_passes_however_it_is_written(pairs):
    assert judged(changed(*pairs)) == SOLVED


@pytest.mark.parametrize(
    ("pairs", "seen"),
    [
        ([("const __grid_constant__ CUtensorMap x", "CUtensorMap x")], "error 700"),
        ([("alignas(128) ", "")], "error 716"),
        ([("alignas(128)", "alignas(64)")], "error 716"),
        ([("init(&full)", "init(&full, 128)")], "it hangs, although all bytes have arrived"),
        ([("sizeof(tile)", "16 * 32")], "no error; in some tiles the last rows are not tripled"),
        ([("sizeof(tile)", "500")], "it hangs: 1548 bytes more than announced have arrived"),
        ([("sizeof(tile)", "2 * sizeof(tile)")], "it hangs: 2048 bytes that were announced"),
        (
            [("&full, column, row", "&full, row, column")],
            "no error; only tiles whose row is their column",
        ),
        ([("tile, column, row);\n    tma", "tile, row, column);\n    tma")], "no error;"),
        ([("  tma_dlpack::fence_async();\n", "")], "no error; now and then a tile has values"),
        ([(WAIT, "")], "no error; now and then a tile has values that are not tripled"),
        ([(WAIT, "tma_dlpack::wait(&full, 1);")], "no error; now and then a tile has values"),
        ([(SYNC, "  }\n")], "error 719 or a hang, now and then"),
        (
            [("    tma_dlpack::store_commit();\n", "")],
            "no error; the block may end while the store",
        ),
        (
            [("    tma_dlpack::store_wait_read();\n", "")],
            "no error; the block may end while the store",
        ),
        ([("*= 3", "*= 2")], "no error; 3200 of 3200 elements are wrong"),
        ([("i += 128", "i += 256")], "no error;"),
        ([("threadIdx.x == 0", "threadIdx.x < 2")], "error 719 or a hang, now and then: the"),
        ([("{\n  __shared__", "{\n  if (\n  __shared__")], "it does not compile"),
        ([("__global__", "")], "it does not compile"),
        ([("&full, column", "&empty, column")], "it does not compile"),
    ],
)
def test_a_kernel_that_is_wrong_is_seen_as_on_a_gpu(pairs, seen):
    assert judged(changed(*pairs)).startswith(f"not yet: {seen}")


def test_a_fence_after_the_barrier_comes_too_late():
    fenced = "  tma_dlpack::fence_async();\n  __syncthreads();\n"
    late = "  __syncthreads();\n  if (threadIdx.x == 0) tma_dlpack::fence_async();\n"
    seen = judged(changed((fenced, late)))
    assert seen.startswith("not yet: no error;")


@pytest.mark.parametrize("text", ["", "}", "kernel", "__global__ void f() {", "\0", "x" * 100_000])
def test_what_is_no_kernel_is_said_in_a_line(text):
    assert judged(text).startswith("not yet: ")
