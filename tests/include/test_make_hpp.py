"""`make_tma_descriptor` in C++: it compiles without torch, and refuses in one line of arguments."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import tma_dlpack as tma

SOURCE = Path(__file__).with_name("make_maps.cpp")


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    program = tmp_path_factory.mktemp("hpp") / "make_maps"
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    command = [compiler, "-std=c++17", *warnings, f"-I{tma.get_include()}", SOURCE, "-o", program]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_refusal_holds_every_argument_under_its_driver_name(lines):
    assert lines[0] == (
        "tma_dlpack: refused: cuTensorMapEncodeTiled(tensorDataType=6, tensorRank=2, "
        "globalAddress=0x7f0000000000, globalDim={64, 128}, globalStrides={128}, boxDim={65, 16}, "
        "elementStrides={1, 1}, interleave=0, swizzle=3, l2Promotion=0, oobFill=0); rules=libcu++; "
        "tensor: dtype={2, 16, 1}, device={2, 99}, shape={128, 64}; broken: BOX_IN_SHAPE, "
        "BOX_INNER_16B, BOX_SWIZZLE_SPAN; there is no such GPU, or no driver with tensor maps; "
        "python -m tma_dlpack explain says why"
    )
    assert lines[4].startswith(
        "tma_dlpack: refused: cuTensorMapEncodeIm2col(tensorDataType=6, tensorRank=4, "
        "globalAddress=0x7f0000000000, globalDim={32, 14, 14, 2}, globalStrides={64, 896, 12544}, "
        "pixelBoxLowerCorner={-1, -1}, pixelBoxUpperCorner={1, 1}, channelsPerPixel=32, "
        "pixelsPerColumn=64, elementStrides={1, 1, 1, 1}, interleave=0, swizzle=2, l2Promotion=0, "
        "oobFill=0); rules=documented; "
    )


def test_a_host_tensor_of_torch_is_refused_because_no_kernel_can_have_its_map(lines):
    assert "tensorDataType=9" in lines[1]  # bfloat16
    assert "the tensor is not on a GPU, so no kernel can have its map" in lines[1]


def test_what_the_arguments_cannot_show_is_said(lines):
    assert lines[2] == (
        "tma_dlpack: refused: the tensor is lazily negated or conjugated; pass "
        "x.resolve_neg().resolve_conj()"
    )
    assert lines[3] == (
        "tma_dlpack: refused: box_sizes has 6 entries, and a tensor map has 1 to 5 dimensions"
    )
    assert "broken: LOWER_CORNER_COUNT, UPPER_CORNER_COUNT; " in lines[5]
    assert lines[6] == "tried: " + lines[0]  # without an exception
    assert "a stride is negative" not in lines[7]
    assert lines[7].endswith(
        "rules=libcu++; tensor: dtype={2, 16, 1}, device={2, 99}, shape={128, 64}; there is no "
        "such GPU, or no driver with tensor maps; python -m tma_dlpack explain says why"
    )  # split_inner, ragged and allow: nothing else stands against it
    assert lines[8] == (
        "tma_dlpack: refused: allow names BOX_RANGE, which is no rule of libcu++ alone"
    )


def test_explain_reads_the_line(lines):
    (report,) = tma.explain(lines[0]).reports
    rules = [violation.rule for violation in report.violations]
    assert rules == ["BOX_IN_SHAPE", "BOX_INNER_16B", "BOX_SWIZZLE_SPAN"]


def test_torchs_scalar_types_have_the_numbers_of_its_header():
    torch = pytest.importorskip("torch")
    header = Path(torch.__file__).parent / "include/torch/headeronly/core/ScalarType.h"
    if not header.exists():
        pytest.skip("this torch has its scalar types elsewhere")
    torchs = dict(re.findall(r"_\([\w:<>]+, (\w+)\) +/\* (\d+) \*/", header.read_text()))
    ours = re.findall(
        r"case (\d+): +return .*// (\w+)",
        (Path(tma.get_include()) / "tma_dlpack_make.hpp").read_text(),
    )
    assert len(ours) == 18
    assert ours == [(torchs[name], name) for _, name in ours]
