"""`make_tma_descriptor` in C++ compiles without torch; its refusals are one line of arguments."""

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
        "tma-dlpack explain says why"
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
        "tma_dlpack: refused: box_sizes={16, 64, 1, 1, 1, 1} has 6 entries, and a tensor map has 1 "
        "to 5 dimensions"
    )
    assert "broken: LOWER_CORNER_COUNT, UPPER_CORNER_COUNT; " in lines[5]
    assert lines[6] == "tried: " + lines[0]  # without an exception
    assert "a stride is negative" not in lines[7]
    options = "allow={STRIDE_UNIQUE, BOX_IN_SHAPE}, shape={128, 64}, strides={64, 1}"
    assert lines[7].endswith(
        f"rules=libcu++; options: {options}, split_inner=True, ragged=0; {TENSOR}; {NO_GPU}; {ASK}"
    )  # nothing else prevents the call
    options = options.replace("BOX_IN_SHAPE", "BOX_RANGE, BOX_RAGE")
    assert lines[8].endswith(
        f"rules=libcu++; options: {options}, split_inner=True, ragged=0; {TENSOR}; allow names "
        f"BOX_RANGE, BOX_RAGE, which is not a rule of libcu++ alone; {NO_GPU}; {ASK}"
    )


TENSOR = "tensor: dtype={2, 16, 1}, device={2, 99}, shape={128, 64}"
NO_GPU = "there is no such GPU, or no driver with tensor maps"
ASK = "tma-dlpack explain says why"


def test_lists_are_shown_as_they_were_given(lines):
    assert "boxDim={64, 16, 1}, elementStrides={1, 1}, " in lines[9]
    assert "; broken: BOX_RANK; " in lines[9]
    assert "boxDim={64, 16}, elementStrides={4, 2, 1}, " in lines[10]
    assert "; broken: ELEM_STRIDES_RANK; " in lines[10]
    assert "pixelBoxLowerCorner={-3, -2, -1}, pixelBoxUpperCorner={1}, " in lines[11]


def test_an_im2col_map_is_tried_without_an_exception(lines):
    assert lines[12] == "tried: " + lines[5]
    assert lines[13] == (
        "tried: tma_dlpack: refused: pixel_box_lower_corner={} has 0 entries, and a tensor map has "
        "1 to 5 dimensions"
    )


def test_a_tensor_of_six_dimensions_is_described_in_two(lines):
    tensor = "tensor: dtype={2, 16, 1}, device={2, 99}, shape={2, 1, 2, 2, 16, 64}"
    gaps = f"{tensor}, strides={{8192, 8192, 4096, 2048, 128, 1}}"
    assert lines[14] == (
        f"tma_dlpack: refused: rules=libcu++; options: box_sizes={{16, 64}}; {tensor}; the tensor "
        f"has more than five dimensions; {ASK}"
    )
    assert "globalDim={64, 128}, globalStrides={128}, boxDim={64, 16}" in lines[15]
    assert lines[15].endswith(f"options: shape={{128, 64}}; {tensor}; {NO_GPU}; {ASK}")
    assert lines[16] == (
        "tma_dlpack: refused: rules=libcu++; options: shape={128, 64}, box_sizes={16, 64}; "
        f"{gaps}; strides must be given with this shape; {ASK}"
    )
    assert "globalAddress=0x7f0000000080" in lines[17]
    assert "globalDim={64, 128}, globalStrides={256}, boxDim={64, 16}" in lines[17]
    assert lines[17].endswith(f"strides={{128, 1}}, offset=64; {gaps}; {NO_GPU}; {ASK}")
    found = [report.violations for report in tma.explain("\n".join(lines[15:18])).reports]
    assert [[violation.found for violation in violations] for violations in found] == [
        [],
        ["strides are ambiguous"],
        [],
    ]


def test_a_swizzle_of_sm_100_reaches_the_rules(lines):
    assert ", swizzle=6, " in lines[18]
    assert "; broken: ATOM_SWIZZLE; " in lines[18]


def test_a_data_type_that_the_call_asks_for_is_an_argument_and_an_option(lines):
    override, reread, unknown, untyped = lines[19:23]
    assert "(tensorDataType=7, " in override
    assert f"; options: data_type=7; {TENSOR}; broken: DATA_TYPE_OVERRIDE; " in override
    assert "(tensorDataType=9, " in reread
    assert f"; options: data_type=9; {TENSOR}; {NO_GPU}; " in reread
    assert "; options: data_type=99, box_sizes={16, 64}; " in unknown
    assert "(tensorDataType=-1, " in untyped
    found = [report.violations for report in tma.explain("\n".join(lines[19:23])).reports]
    assert [[violation.found for violation in violations] for violations in found] == [
        ["data_type is FLOAT32 for a tensor of float16"],
        [],
        ["data_type is 99"],
        ["tensor.dtype is complex64"],
    ]


def test_undefined_and_sparse_tensors_are_refused_without_torchs_exception(lines):
    assert (
        lines[23:25]
        == [
            "tma_dlpack: refused: the tensor is undefined, or its layout is not strided; pass "
            "x.to_dense()"
        ]
        * 2
    )


def test_an_im2col_call_that_cannot_be_described_is_shown_by_its_arguments(lines):
    corners = "pixel_box_lower_corner={-1, -2}, pixel_box_upper_corner={1, 2}"
    assert lines[25].startswith(
        f"tma_dlpack: refused: rules=documented; options: {corners}, channels_per_pixel=32, "
        "pixels_per_column=64; tensor: dtype={2, 16, 1}, "
    )
    found = tma.explain(lines[25])
    assert [v.rule for v in found.reports[0].violations] == ["RANK"]
    assert found.requests[0].kind == "im2col"


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
    assert len(ours) == 22
    assert ours == [(torchs[name], name) for _, name in ours]
