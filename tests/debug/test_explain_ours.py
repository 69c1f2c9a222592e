"""`explain` for the line that the C++ header throws, from text and from a compiled program."""

import re
import shutil
import subprocess

import pytest

import tma_dlpack as tma

LINE = (
    "tma_dlpack: refused: cuTensorMapEncodeTiled(tensorDataType=6, tensorRank=2, "
    "globalAddress={address:#x}, globalDim={{64, {rows}}}, globalStrides={{128}}, "
    "boxDim={{64, {box_rows}}}, elementStrides={{1, 1}}, interleave=0, swizzle=3, l2Promotion=0, "
    "oobFill=0); rules={rules}; tensor: dtype={{2, 16, 1}}, device={{2, 0}}, shape={{{rows}, 64}}, "
    "strides={{64, 1}}; {why}python -m tma_dlpack explain says why"
)


def line(address=0x7F0000000000, rows=32, box_rows=64, rules="libcu++", why=""):
    return LINE.format(address=address, rows=rows, box_rows=box_rows, rules=rules, why=why)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (line(), ["BOX_IN_SHAPE"]),
        (line(box_rows=32), []),
        (line(rules="driver"), []),
        (line(address=0x7F0000000008), ["ADDRESS_ALIGNED", "BOX_IN_SHAPE"]),
        (line(address=0x7F0000000008, rules="driver"), ["ADDRESS_ALIGNED"]),
    ],
)
def test_the_whole_call_is_checked_under_its_own_rules(text, rules):
    (report,) = tma.explain(f"terminate called: what():  {text}\n").reports
    assert [v.rule for v in report.violations] == rules


def test_the_report_speaks_of_the_tensor_in_row_major_words():
    (report,) = tma.explain(line()).reports
    assert report.violations[0].found == "box_sizes[0] is 64"
    assert report.violations[0].limit == "it must be at most tensor.shape[0] = 32"


def test_what_the_arguments_cannot_show_is_a_note():
    found = tma.explain("\n" + line(box_rows=32, why="the tensor is not on a GPU; "))
    assert found.ok
    assert "line 2: the tensor is not on a GPU" in found.notes


CALL = (
    "tma_dlpack: refused: cuTensorMapEncodeTiled(tensorDataType=6, tensorRank=2, "
    "globalAddress=0x7f0000000000, globalDim={64, 32}, globalStrides={128}, boxDim=TILE, "
    "elementStrides={1, 1}, interleave=0, swizzle=3, l2Promotion=0, oobFill=0); rules=libcu++; "
    "options: OPTIONS; tensor: dtype={2, 16, 1}, device={2, 0}, shape={32, 64}, strides={64, 1}; "
    "broken: WHAT; python -m tma_dlpack explain says why"
)


def with_options(options, box="{64, 64}"):
    return CALL.replace("OPTIONS", options).replace("TILE", box)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (with_options("allow={BOX_IN_SHAPE}"), []),
        (with_options("allow={STRIDE_UNIQUE}"), ["BOX_IN_SHAPE"]),
        (with_options("allow={BOX_IN_SHAPE, NONSENSE}"), ["ARGUMENT"]),
        (with_options("shape={64, 64}, strides={64, 1}, offset=8"), []),
        (with_options("shape={64, 64}, strides={60, 1}"), ["STRIDE_UNIQUE", "STRIDE_ALIGNED"]),
        (with_options("split_inner=True", "{128, 32}"), ["BOX_IN_SHAPE"]),
        (with_options("split_inner=True", "{64, 32}"), []),
        (with_options("ragged=1"), ["RAGGED_DIM", "BOX_IN_SHAPE"]),
        (with_options("ragged=0", "{64, 32}"), []),
        (with_options("offset=0", "{3, 64, 32}"), ["BOX_RANK"]),
    ],
)
def test_the_options_of_the_call_count(text, rules):
    (report,) = tma.explain(text).reports
    assert [v.rule for v in report.violations] == rules


COLUMNS = (
    "tma_dlpack: refused: cuTensorMapEncodeIm2col(tensorDataType=7, tensorRank=3, "
    "globalAddress=ADDRESS, globalDim={64, 64, 4}, globalStrides={256, 16384}, "
    "pixelBoxLowerCorner={0}, pixelBoxUpperCorner={0}, channelsPerPixel=32, pixelsPerColumn=16, "
    "elementStrides={1, 9, 1}, interleave=0, swizzle=0, l2Promotion=0, oobFill=0); "
    "rules=documented; options: OPTIONS; tensor: dtype={2, 32, 1}, device={2, 0}, "
    "shape={4, 64, 64}, strides={4096, 65, 1}; broken: WHAT; tma-dlpack explain says why"
)


@pytest.mark.parametrize(
    ("shown", "dtype", "options", "rule", "found"),
    [
        (7, "{2, 16, 1}", "data_type=7", "DATA_TYPE_OVERRIDE",
         "data_type is FLOAT32 for a tensor of float16"),
        (-1, "{5, 64, 1}", "offset=0", "DTYPE", "tensor.dtype is complex64"),
        (0, "{10, 8, 1}", "data_type=0", "OOB_NAN", "oobfill is nan for the map type UINT8"),
        (0, "{10, 8, 1}", "offset=0", "OOB_NAN_FLOAT8", "oobfill is nan for the map type UINT8"),
    ],
)  # fmt: skip
def test_a_data_type_that_the_call_asks_for_is_an_option(shown, dtype, options, rule, found):
    text = with_options(options, "{16, 16}").replace("tensorDataType=6", f"tensorDataType={shown}")
    text = text.replace("oobFill=0", "oobFill=1").replace("{2, 16, 1}", dtype)
    (report,) = tma.explain(text).reports
    assert [(v.rule, v.found) for v in report.violations] == [(rule, found)]


def columns(options, address=0x7F0000000000):
    return COLUMNS.replace("OPTIONS", options).replace("ADDRESS", f"{address:#x}")


@pytest.mark.parametrize(
    ("options", "address", "rules"),
    [
        ("allow={STRIDE_UNIQUE}", 0, ["STRIDE_ALIGNED"]),
        ("strides={4096, 64, 1}", 0, []),
        ("strides={4096, 64, 1}, offset=1", 4, ["ADDRESS_ALIGNED"]),
        ("strides={4096, 64, 1}, offset=4", 16, []),
        ("shape={4, 32, 64}, strides={4096, 68, 1}", 0, []),
        ("strides={4096, 68, 1}", 0, ["STRIDE_UNIQUE"]),
        ("strides={4096, 68, 1}, allow={STRIDE_UNIQUE}", 0, []),
        ("strides={4096, 68, 1}, allow={STRIDE_ALIGNED}", 0, ["ARGUMENT"]),
    ],
)
def test_the_options_of_an_im2col_call_count(options, address, rules):
    (report,) = tma.explain(columns(options, 0x7F0000000000 + address)).reports
    assert [v.rule for v in report.violations] == [*rules, "ELEM_STRIDES_RANGE"]


def test_names_that_cannot_be_allowed_are_named_with_those_that_can():
    (report,) = tma.explain(with_options("allow={BOX_RANGE}")).reports
    found = next(v for v in report.violations if v.rule == "ARGUMENT")
    assert found.found == "allow names BOX_RANGE, which is also a rule of the driver"
    assert "BOX_IN_SHAPE" in found.limit


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("box_sizes={} has 0 entries, and a tensor map has 1 to 5 dimensions", "box_sizes"),
        ("split_inner and ragged are options of tiled maps", "split_inner"),
        ("the tensor is undefined, or its layout is not strided; pass x.to_dense()", "tensor"),
        (
            "the tensor is lazily negated or conjugated; pass x.resolve_neg().resolve_conj()",
            "tensor",
        ),
    ],
)
def test_lines_without_a_call_are_read_too(line, argument):
    (report,) = tma.explain(f"what():  tma_dlpack: refused: {line}\n").reports
    (violation,) = report.violations
    assert (violation.rule, violation.argument) == ("ARGUMENT", argument)
    assert violation.fix


@pytest.mark.parametrize(
    "hostile",
    [
        *("strides={}", "shape={1}", "dtype={2, 16}", "dtype={99, 0, 0}", "swizzle=9", "boxDim={}"),
        *("tensorRank=9", "offset=99999999999999999", "globalDim=7", "rules=no", "ragged=06"),
    ],
)
@pytest.mark.parametrize(
    "text",
    [with_options("ragged=0"), columns("split_inner=True, ragged=0")],
    ids=["tiled", "im2col"],
)
def test_a_line_that_no_header_wrote_raises_nothing(text, hostile):
    name = hostile.partition("=")[0]
    changed = re.sub(rf"\b{name}=(\{{[^{{}}]*\}}|[\w+]+)", hostile, text)
    assert changed != text or name in ("offset", "boxDim")
    assert str(tma.explain(changed.replace("ragged=0;", f"ragged=0, {hostile};")))


PROGRAM = """
#include <tma_dlpack_make.hpp>
#include <cstdio>
int main() {
  std::int64_t shape[] = {64, 1733}, strides[] = {1733, 1};
  TmaDlpackTensor x{};
  x.data = reinterpret_cast<void*>(0x7f0000000000ull);
  x.device = {2, 0};
  x.ndim = 2;
  x.dtype = {2, 16, 1};
  x.shape = shape;
  x.strides = strides;
  try {
    tma_dlpack::make_tma_descriptor(x, {65, 64}, tma_dlpack::Swizzle::bytes128);
  } catch (const std::invalid_argument& error) {
    std::puts(error.what());
  }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
def test_a_compiled_programs_own_line_is_explained(tmp_path):
    source, program = tmp_path / "refused.cpp", tmp_path / "refused"
    source.write_text(PROGRAM)
    command = ["g++", "-std=c++17", f"-I{tma.get_include()}", source, "-o", program, "-ldl"]
    subprocess.run(command, check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert printed.count("\n") == 1
    (report,) = tma.explain(printed).reports
    assert [v.rule for v in report.violations] == ["STRIDE_ALIGNED", "BOX_IN_SHAPE"]
