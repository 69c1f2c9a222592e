"""MAP_MISMATCH: instructions that do not fit the maps of a launch, each with a right neighbour."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.debug import Trace

X = np.zeros((256, 256), np.float16)
TILE = tma.make_tma_descriptor(X, (64, 64), swizzle="bytes128")  # 8192 bytes
IMAGE = tma.make_im2col_descriptor(np.zeros((2, 8, 8, 64), np.float16), (0, 0), (0, 0), 64, 32)


def found(copy: str, more: str = "", maps: object = (TILE,)) -> list[str]:
    text = (
        ".version 9.0\n.target sm_90a\n.address_size 64\n.shared .align 128 .b8 tile[8192];\n"
        ".shared .align 8 .b8 bar[8];\n"
        ".visible .entry k(.param .u64 k_param_0, .param .align 64 .b8 k_param_1[128]) {\n"
        "mov.b64 %rd1, k_param_1;\nmov.u32 %r1, tile;\nmov.u32 %r2, bar;\n"
        f"{more}{copy}\nret;\n}}\n"
    )
    report = tma.lint(text, maps=maps)
    return [f"{f.severity}: {f.message}" for f in report.findings if f.rule == "MAP_MISMATCH"]


def load(mode: str, coordinates: str, offsets: str = "") -> str:
    return (
        f"cp.async.bulk.tensor.{mode}.mbarrier::complete_tx::bytes "
        f"[%r1], [%rd1, {{{coordinates}}}], [%r2]{offsets};"
    )


TILED = load("2d.shared::cta.global.tile", "%r5, %r6")
IM2COL = load("4d.shared::cta.global.im2col", "%r5, %r6, %r7, %r8", ", {%rs1, %rs2}")


def test_the_rank_of_the_copy_is_that_of_its_map():
    assert found(TILED) == []
    assert found(load("3d.shared::cta.global.tile", "%r5, %r6, %r7")) == [
        "error: the copy is 3-D and its map has rank 2: error 715"
    ]


def test_the_mode_of_the_copy_is_that_of_its_map():
    assert found(IM2COL, maps=[IMAGE]) == []
    assert found(load("4d.shared::cta.global", "%r5, %r6, %r7, %r8"), maps=[IMAGE]) == [
        "error: the copy is tiled and its map is im2col: error 715"
    ]


@pytest.mark.parametrize(("count", "right"), [(8192, True), (16384, True), (4096, False)])
def test_a_sum_of_the_copies_gives_the_expected_bytes(count, right):
    expect = f"mov.u32 %r9, {count};\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], %r9;\n"
    words = (
        f"warning: a barrier expects {count} bytes, and no sum of this kernel's copies (8192 bytes "
        "each) gives that: the wait never ends, or ends too early"
    )
    assert found(TILED, expect) == ([] if right else [words])


def test_bytes_of_a_copy_without_a_map_count_too_and_unknown_ones_end_the_question():
    expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 8256;\n"
    line = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd5], {}, [%r2];"
    assert len(found(TILED, expect)) == 1
    assert found(TILED, expect + line.format(64) + "\n") == []
    assert found(TILED, expect + line.format("%r30") + "\n") == []


@pytest.mark.parametrize(("layout", "right"), [(1, True), (2, False), (3, False)])
def test_the_swizzle_of_a_matrix_descriptor_is_that_of_a_loaded_map(layout, right):
    product = (
        f"or.b64 %rd8, %rd7, {layout << 62 | 64 << 32 | 1 << 16};\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd8, %rd8, "
        "p, 1, 1, 0, 0;\n"
    )
    messages = found(TILED, product)
    assert [message.split(",")[0] for message in messages] == (
        [] if right else [f"warning: the matrix descriptor says swizzle bytes{128 >> layout - 1}"]
    )


def test_a_tile_with_a_swizzle_is_noted_where_its_pattern_begins_elsewhere():
    for alignment, expected in ((128, ["note"]), (1024, [])):
        text = (
            ".version 9.0\n.target sm_90a\n.address_size 64\n"
            f".shared .align {alignment} .b8 tile[8192];\n.shared .align 8 .b8 bar[8];\n"
            ".visible .entry k(.param .align 64 .b8 k_param_0[128]) {\n"
            f"mov.b64 %rd1, k_param_0;\nmov.u32 %r1, tile;\nmov.u32 %r2, bar;\n{TILED}\nret;\n}}\n"
        )
        findings = tma.lint(text, maps=[TILE], notes=True).findings
        assert [f.severity for f in findings if f.rule == "ALIGNMENT"] == expected


def test_a_trace_says_which_kernel_takes_which_map(tmp_path, capsys):
    trace = {
        "tma_dlpack_trace": 1,
        "processes": [{"problems": [], "calls": 1, "overflow": 0, "pauses": 0, "kernels": 1}],
        "maps": [
            {
                "call": None,
                "process": 0,
                "count": 0,
                "bytes": bytes(TILE).hex(),
                "kernels": [{"kernel": "k", "parameter": 1, "offset": 0, "count": 1}],
            }
        ],
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    copy = load("3d.shared::cta.global.tile", "%r5, %r6, %r7")
    assert len(found(copy, maps=path)) == 1
    assert len(found(copy, maps=Trace.from_json(path.read_text()))) == 1
    trace["maps"][0]["kernels"][0]["kernel"] = "another"
    path.write_text(json.dumps(trace))
    assert found(copy, maps=path) == []
    kernel = Path(__file__).with_name("kernels.ptx")
    assert main(["lint", str(kernel), "--map", str(path)]) == 1
    assert "MAP_MISMATCH" not in capsys.readouterr().out


def test_what_is_no_trace_and_no_maps_is_refused():
    with pytest.raises(tma.TmaPreconditionError) as refused:
        found(TILED, maps=[1])
    assert str(refused.value).startswith(
        "maps is a list; it must be a Trace, the path of one (trace --json), or a sequence of "
        "TensorMap"
    )
