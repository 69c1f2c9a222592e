"""`explain` draws no conclusion from unreadable parts: damaged printouts of valid encodes."""

from __future__ import annotations

import re
import time

import pytest
from damage import damaged
from laws import many
from masks import masked
from printed_forms import (
    GOOD,
    SHOWN,
    cutlass,
    deepgemm,
    driver_lines,
    driver_says,
    host_source,
    kerutils,
    thunderkittens,
    triton,
)

import tma_dlpack as tma
from tma_dlpack.debug import PrintedArguments
from tma_dlpack.debug.explain import NOTHING_READ
from tma_dlpack.debug.explain.judge import _check_printed


def read(text: str) -> PrintedArguments:
    (request,) = tma.explain(text).requests
    return request


def broken(text: str, target: str = "sm_90") -> list[str]:
    return [v.rule for report in tma.explain(text, target).reports for v in report.violations]


# -- one form of damage each ----------------------------------------------------------------------


def test_a_count_in_the_brackets_is_no_index():
    request = read(
        "globalDim[5]: 1000, 128, 1, 1, 1\nglobalStrides[4]: 2000, 0, 0, 0\n"
        "boxDim[5]: 64, 32, 1, 1, 1\nrank: 2\n"
    )
    assert request.global_dim == (1000, 128)
    assert request.global_strides == (2000,)
    assert request.box_dim == (64, 32)


def test_a_count_that_is_not_that_of_the_numbers_is_not_read():
    assert read("globalDim[3]: 1000, 128\nboxDim[2]: 64, 32\n").global_dim is None


def one_based(text: str) -> str:
    for i in (2, 1, 0):
        text = text.replace(f"[{i}] =", f"[{i + 1}] =")
    return text


def test_indices_that_begin_with_one_are_shifted_where_the_rank_shows_it():
    request = read(one_based(driver_lines(GOOD)))
    assert (request.global_dim, request.box_dim) == (GOOD.global_dim, GOOD.box_dim)
    assert request.global_strides == GOOD.global_strides


def test_indices_that_begin_with_one_without_a_rank_are_not_read():
    text = one_based(driver_lines(GOOD)).replace("  tensorRank = 2\n", "")
    request = read(text)
    assert request.global_dim is request.box_dim is request.global_strides is None
    assert broken(text) == []


def test_a_lost_entry_is_unknown_and_the_others_are_read():
    text = driver_lines(GOOD).replace("  boxDim[0] = 64\n", "")
    assert read(text).box_dim == (None, 128)
    assert broken(text) == []
    assert broken(text.replace("boxDim[1] = 128", "boxDim[1] = 300")) == ["BOX_RANGE"]
    assert "box_dim[0]" in read(text).missing()


def test_a_lost_inner_box_breaks_no_rule_on_the_inner_box():
    wide = GOOD.but(box_dim=(72, 128))
    assert broken(driver_lines(wide)) == ["BOX_SWIZZLE_SPAN"]
    assert broken(driver_lines(wide).replace("  boxDim[0] = 72\n", "")) == []


@pytest.mark.parametrize("index", ["...", "i", "", "-1"])
def test_entries_with_an_index_that_is_no_number_are_not_read(index):
    text = driver_lines(GOOD).replace("boxDim[0] = 64", f"boxDim[{index}] = 8")
    assert read(text).box_dim in (None, (None, 128))
    assert broken(text) == []


def test_indices_in_hex_are_numbers():
    text = driver_lines(GOOD).replace("[0] =", "[0x0] =").replace("[1] =", "[0x1] =")
    assert read(text).box_dim == GOOD.box_dim


@pytest.mark.parametrize(
    ("unit", "strides"),
    [("(elements)", (8192,)), ("(in elements)", (8192,)), ("(KiB)", None), ("(x16 bytes)", None)],
)
def test_the_unit_of_strides_counts_and_an_unknown_one_is_not_guessed(unit, strides):
    text = cutlass(GOOD).replace("globalStrides  (2,8192,", f"globalStrides {unit}: (1,4096,")
    assert read(text).global_strides == strides
    assert broken(text) == []


@pytest.mark.parametrize("number", ["8 KiB", "8KiB", "8K", "8 KB", "8.0 KiB"])
def test_a_number_in_kib_is_not_read(number):
    text = driver_lines(GOOD).replace("globalStrides[0] = 8192", f"globalStrides[0] = {number}")
    assert read(text).global_strides in (None, (None,))
    assert broken(text) == []


@pytest.mark.parametrize("number", ["8,192", "8_192", "8'192", "8\u202f192", "8 192"])
@pytest.mark.parametrize("printer", [driver_lines, cutlass, triton, deepgemm])
def test_separators_of_thousands_are_not_read(printer, number):
    text = printer(GOOD.but(global_dim=(8192, 128), global_strides=(16384,)))
    text = text.replace("16384", "16" + number[1:].replace("192", "384")).replace("8192", number)
    assert broken(text) == []
    assert all(r.global_strides in (None, (None,), (16384,)) for r in tma.explain(text).requests)


@pytest.mark.parametrize("number", ["8_192", "8'192", "8\u202f192", "8\u2009192"])
def test_separators_that_separate_nothing_else_are_read(number):
    text = driver_lines(GOOD).replace("globalStrides[0] = 8192", f"globalStrides[0] = {number}")
    assert read(text).global_strides == (8192,)
    assert broken(text.replace("192", "200")) == ["STRIDE_ALIGNED"]


def test_a_group_that_begins_with_zero_shows_that_the_comma_separates_thousands():
    text = host_source(GOOD).replace("{4096,128}", "{131,072,7}")
    assert read(text).global_dim == (None, 7)
    assert read(text.replace(",7}", ",128}")).global_dim is None  # 131072128, or two numbers
    assert broken(text) == []


def test_a_list_that_mixes_both_uses_of_the_comma_is_not_read():
    text = host_source(GOOD)
    assert read(text.replace("{4096,128}", "{4,160, 128}")).global_dim is None
    assert read(text.replace("{4096,128}", "{4096, 128}")).global_dim == (4096, 128)


def test_strides_that_fit_the_printed_rank_show_that_a_line_of_each_list_is_lost():
    text = kerutils(GOOD.but(global_dim=(4096, 128, 7), global_strides=(8192, 1 << 20)))
    text = text.replace("4096 128 7", "4096 128")
    assert read(text).rank == 3
    assert read(text).global_dim == (4096, 128, None)
    assert read(text.replace("8192 1048576", "8192")).rank == 2


def test_digits_in_groups_before_a_list_are_no_list():
    text = thunderkittens(GOOD).replace("smem_stride: ", "smem_stride: 140 730 679 700 100 ;")
    shown = re.sub(r"100 ;\d*", "100", text)
    assert "smem_stride: 140 730 679 700 100 [1, 1" in shown
    assert read(shown).element_strides is None
    assert broken(shown) == []


def test_a_vector_with_its_size_is_read():
    text = triton(GOOD).replace("=[", "=size=2 [").replace("strides=size=2", "strides=size=1")
    request = read(text)
    assert (request.global_dim, request.box_dim) == (GOOD.global_dim, GOOD.box_dim)
    assert request.global_strides == GOOD.global_strides


@pytest.mark.parametrize(
    "address",
    [
        "0x7f3b8a00****",
        "0x7f3b8aXXXXXX",
        "0x7f3b...",
        "<redacted>",
        "0xdeadbeef",
        "0x7f3b\n8a000008",
    ],
)
def test_an_address_that_is_masked_or_broken_is_not_read(address):
    text = cutlass(GOOD.but(box_dim=(64, 300))).replace("0x7f3b8a000000", address)
    assert read(text).global_address is None
    assert broken(text) == ["BOX_RANGE"]


def test_a_masked_entry_is_unknown_and_the_others_are_read():
    text = cutlass(GOOD).replace("(4096,128,1,1,1)", "(****,128,1,1,1)")
    assert read(text).global_dim == (None, 128)
    assert "global_dim[0]" in str(tma.explain(text)).partition("encode 1")[0]


def test_a_list_broken_within_a_number_is_not_read():
    text = cutlass(GOOD).replace("(2,8192,0,0,0)", "(2,81\n92,0,0,0)")
    assert read(text).global_strides is None
    assert "not read" in tma.explain(text).notes[0]


def test_a_missing_rank_line_with_trailing_zeros_pads():
    text = thunderkittens(GOOD).replace("  tma_dim: 2\n", "")
    assert "[4096, 128, 0, 0, 0]" in text
    assert read(text).global_dim == (4096, 128)
    assert broken(text) == []


FIRSTS = """\
tensorDataType 6
tensorRank     {rank}
gmem_address   0x7f8a00000000
globalDim      {dim}
globalStrides  500
boxDim         64
elementStrides 1
interleave     0
swizzle        0
l2Promotion    0
oobFill        0
"""


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_a_rank_of_a_strong_word_counts_where_first_entries_alone_are_printed(rank):
    text = FIRSTS.format(rank=rank, dim=250)
    unknown = (None,) * (rank - 1)
    request = read(text)
    assert (request.rank, request.inferred) == (rank, ())
    assert (request.global_dim, request.box_dim) == ((250, *unknown), (64, *unknown))
    assert request.global_strides == (500, *unknown[1:])
    assert broken(text) == ["STRIDE_ALIGNED"]


@pytest.mark.parametrize(("rank", "dim"), [(6, "250"), (0, "250"), (3, "(250)")])
def test_a_printed_rank_that_is_not_read_is_said_and_nothing_is_accepted(rank, dim):
    found = tma.explain(FIRSTS.format(rank=rank, dim=dim))
    assert found.requests[0].inferred == ("rank",)
    assert f"tensorRank is {rank}, which does not fit the lists: not read" in "\n".join(found.notes)
    assert "the driver accepts them" not in str(found)
    assert "not shown: rank" in str(found)


@pytest.mark.parametrize("printer", [cutlass, driver_lines, triton])
def test_the_rank_of_a_logger_is_not_the_maps(printer):
    lines = printer(GOOD).splitlines(keepends=True)
    for at in range(len(lines) + 1):
        text = "".join([*lines[:at], "rank: 9\n", *lines[at:]])
        assert all(r.rank in (None, 2) for r in tma.explain(text).requests)
        assert broken(text) == []


@pytest.mark.parametrize("line", ["size: 77", "box: 3", "box: 3 5", "shape: 5 5", "stride: 3"])
@pytest.mark.parametrize("printer", [cutlass, driver_lines, host_source])
def test_stray_lines_with_weak_words_are_not_arguments(printer, line):
    lines = printer(GOOD).splitlines(keepends=True)
    for at in range(len(lines)):
        text = "".join([*lines[:at], line + "\n", *lines[at + 1 :]])  # in the place of another one
        assert broken(text) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "When interleave is NONE, boxDim[0] * elementSize must be a multiple of 16 bytes.",
        "boxDim[0] * elementSize must be <= swizzle span",
        "globalDim[i] must be non-zero and less than or equal to 2^32; boxDim[i] must be <= 256",
    ],
)
def test_a_sentence_of_a_document_accuses_nobody(sentence):
    assert tma.explain(sentence).reports == ()
    assert broken(sentence + "\n" + cutlass(GOOD)) == []
    assert broken(f"RuntimeError: {sentence}") != [] or "[i]" in sentence


def test_a_number_where_the_text_ends_may_be_cut_off():
    assert read("globalDim: 4096 128\nboxDim: 64 30").box_dim is None
    assert read("globalDim: 4096 128\nboxDim: 64 300\n").box_dim == (64, 300)


def test_a_name_and_a_number_that_differ_are_not_read():
    text = driver_lines(GOOD).replace("SWIZZLE_128B (3)", "SWIZZLE_128B (1)")
    assert read(text).swizzle is None
    assert read(driver_lines(GOOD)).swizzle == 3


def test_an_unknown_interleave_layout_does_not_make_one():
    deep = GOOD.but(global_dim=(4096, 128, 2), global_strides=(8192, 1 << 20), box_dim=(4, 128, 1))
    deep = deep.but(element_strides=(1, 1, 1))
    assert broken(cutlass(deep), "sm_100") == ["BOX_INNER_16B"]
    text = cutlass(deep).replace("interleave     0\n", "")
    assert broken(text, "sm_100") == []  # interleaved slices do not need rows of whole 16 bytes
    assert broken(text, "sm_90") == ["BOX_INNER_16B"]  # measured: they do


# -- the headline ---------------------------------------------------------------------------------


def test_the_headline_is_ok_only_if_every_argument_is_shown():
    assert str(tma.explain(cutlass(GOOD))).splitlines()[0].endswith(": ok")
    shown = str(tma.explain(cutlass(GOOD).replace("oobFill        0\n", "")))
    head = shown.partition("\n\n")[0].replace("\n  ", " ")
    assert head.endswith("nothing wrong in what is shown; not shown: oob_fill")
    assert (
        "not shown: oob_fill"
        in tma.explain(cutlass(GOOD).replace("oobFill        0\n", ""))._repr_html_()
    )


def test_the_headline_counts_what_is_refused_also_where_numbers_are_missing():
    text = cutlass(GOOD.but(box_dim=(64, 300))).replace("oobFill        0\n", "")
    assert str(tma.explain(text)).splitlines()[0].endswith(": 1 refused")


# -- logs of several ranks ------------------------------------------------------------------------


def test_ranks_that_cannot_be_told_apart_are_answered_by_one_log_per_rank():
    a, b = cutlass(GOOD), cutlass(GOOD.but(global_dim=(4096, 77), box_dim=(64, 300)))
    mixed = "".join(f"{x}\n{y}\n" for x, y in zip(a.splitlines(), b.splitlines(), strict=True))
    found = tma.explain(mixed)
    assert found.reports == found.requests == ()
    assert "one log per rank, please" in found.notes[0]


def test_ranks_that_name_themselves_on_some_lines_alone_are_not_put_together():
    lines = cutlass(GOOD).splitlines(keepends=True)
    text = "".join(("[rank1]: " if i % 3 else "") + line for i, line in enumerate(lines))
    assert tma.explain(text).reports == ()
    assert "one log per rank, please" in tma.explain(text).notes[0]


SENTENCES = (
    "The first entry of globalStrides (2002) is not divisible by 16. How can I pad it?",
    "I tried with swizzle = 0 too",
    "swizzle = 0 does not help",
    "globalStrides (2002) is not divisible by 16.",
    "Why is boxDim = (64, 128) refused?",
    "The call of cuTensorMapEncodeTiled with boxDim = (64, 128) fails.",
)


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("printer", SHOWN)
def test_a_sentence_after_a_printout_is_no_output_of_another_process(printer, sentence):
    bad = printer(GOOD.but(box_dim=(64, 300)))
    found = tma.explain(f"{bad}{sentence}\n")
    assert found.requests == tma.explain(bad).requests
    assert [v.rule for report in found.reports for v in report.violations] == ["BOX_RANGE"]


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("printer", [cutlass, thunderkittens, triton])
def test_a_sentence_before_a_printout_with_a_heading_is_no_other_output(printer, sentence):
    bad = printer(GOOD.but(box_dim=(64, 300)))
    assert tma.explain(f"{sentence}\n{bad}").requests == tma.explain(bad).requests
    assert tma.explain(f"{bad}{sentence}\n{bad}").requests == tma.explain(bad + bad).requests


@pytest.mark.parametrize("field", ["swizzle        0", "globalStrides  (2,2002,0,0,0)"])
def test_a_line_of_a_printout_after_a_printout_is_the_output_of_another_process(field):
    assert "one log per rank, please" in tma.explain(f"{cutlass(GOOD)}{field}\n").notes[0]


# -- pasted source --------------------------------------------------------------------------------

CONDITIONS = """\
template <int BlockMajorSize, int BlockMinorSize, bool swizzle = true>
CUtensorMap make(T* gmem_ptr, int d1) {
    constexpr int smem_stride = BlockMinorSize * sizeof(T);
    static_assert(smem_stride == 32 || smem_stride == 64 || smem_stride == 128);
"""
BRANCHES = """\
    } else if (dtypeElt == DATA_TYPE_BF16) {
      tmaDataFormat = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    } else {
      swizzleType = CU_TENSOR_MAP_SWIZZLE_NONE;
    }
    if (is_wide) {
      swizzleType = CU_TENSOR_MAP_SWIZZLE_128B;
"""
COMMENT = """\
/*
 * The coordinate order matches `globalDim`, so this wrapper
 * passes `boxDim` = 8,
 * and `globalDim` = 9
 */
"""


@pytest.mark.parametrize("source", [CONDITIONS, BRANCHES, COMMENT])
def test_source_code_is_not_the_output_of_processes(source):
    found = tma.explain(source)
    assert (found.reports, found.notes[-1]) == ((), NOTHING_READ)
    assert "one log per rank" not in "\n".join(found.notes)
    lines = zip(cutlass(GOOD).splitlines(), cutlass(GOOD).splitlines(), strict=True)
    mixed = "".join(f"{a}\n{b}\n" for a, b in lines)
    assert "one log per rank, please" in "\n".join(tma.explain(source + mixed).notes)


CALL = """\
cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, ptr, dims, strides, box, steps,
    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
"""
ARRAYS = """\
constexpr int K = 4096, WIDE = 64;
cuuint64_t dims[2] = {K, 128};
cuuint64_t strides[1] = {K * sizeof(float)};
cuuint32_t box[2] = {WIDE, 32};
cuuint32_t steps[2] = {1, 1};
"""


def test_a_positional_call_with_the_drivers_names_is_read():
    request = read(ARRAYS + CALL)
    assert (request.data_type, request.rank, request.swizzle) == (7, 2, 3)
    assert (request.global_dim, request.global_strides) == ((4096, 128), (16384,))
    assert (request.box_dim, request.element_strides) == ((64, 32), (1, 1))
    assert request.global_address is None
    assert broken(ARRAYS + CALL) == ["BOX_SWIZZLE_SPAN"]
    assert broken(ARRAYS.replace("WIDE = 64", "WIDE = 32") + CALL) == []


def test_the_same_call_with_arrays_named_as_the_driver_does_is_one_encode():
    text = ARRAYS + CALL
    for name, word in (("dims", "globalDim"), ("strides", "globalStrides"), ("box", "boxDim")):
        text = text.replace(name, word)
    assert broken(text) == ["BOX_SWIZZLE_SPAN"]
    assert len(tma.explain(text).requests) == 1


def test_a_positional_call_of_cuda_bindings_is_read():
    text = """res, tm = driver.cuTensorMapEncodeTiled(
    driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x.data_ptr(),
    [4096, 128], [16384], [64, 32], [1, 1],
    driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
    driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
    driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
    driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
"""
    assert read(text).box_dim == (64, 32)
    assert broken(text) == ["BOX_SWIZZLE_SPAN"]


def test_names_without_a_declaration_are_unknown():
    request = read("cuuint32_t box[2] = {64, ROWS};\n" + CALL)
    assert (request.box_dim, request.global_dim) == ((64, None), None)
    assert broken("cuuint32_t box[2] = {64, ROWS};\n" + CALL) == ["BOX_SWIZZLE_SPAN"]
    assert broken("cuuint32_t box[2] = {COLUMNS, 32};\n" + CALL) == []


def test_the_prototype_in_the_documents_is_no_encode():
    found = tma.explain(
        "CUresult cuTensorMapEncodeTiled ( CUtensorMap* tensorMap, CUtensorMapDataType "
        "tensorDataType, cuuint32_t tensorRank, void* globalAddress, const cuuint64_t* globalDim, "
        "const cuuint64_t* globalStrides, const cuuint32_t* boxDim, const cuuint32_t* "
        "elementStrides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, "
        "CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill )"
    )
    assert found.reports == ()


def test_a_call_is_not_put_together_with_another_encode_above_it():
    a, b = tma.explain(cutlass(GOOD) + "\n" + ARRAYS + CALL).requests
    assert (a.global_dim, b.global_dim) == (GOOD.global_dim, (4096, 128))
    assert (a.box_dim, b.box_dim) == (GOOD.box_dim, (64, 32))
    assert b.global_address is None


@pytest.mark.parametrize("lost", ["FLOAT32, 2, ", "&map, ", "steps,\n", "strides, "])
def test_a_call_that_lost_an_argument_accuses_nobody(lost):
    text = (ARRAYS.replace("WIDE = 64", "WIDE = 32") + CALL).replace(lost, "")
    assert broken(text) == []


def test_a_declaration_with_more_lines_than_the_call_is_read():
    arrays = ARRAYS.replace("{K, 128}", "{\n    K,\n    128,\n}").replace("WIDE = 64", "WIDE = 32")
    (request,) = tma.explain(arrays + " ".join(CALL.split())).requests
    assert (request.global_dim, request.global_strides) == ((4096, 128), (16384,))
    assert request.lines == (9, 9)


VALID = """\
cuuint64_t dims[2] = {4096, 128}, strides[1] = {16384};
cuuint32_t box[2] = {32, 32}, steps[2] = {1, 1};
"""
ENTRIES = """\
cuuint64_t dims[2], strides[1];
cuuint32_t box[2], steps[2] = {1, 1};
dims[0] = 4096; dims[1] = 128;
strides[0] = 16384;
box[1] = 300;
box[0] = 32;
"""


def with_driver_names(text: str) -> str:
    for name, word in (
        ("dims", "globalDim"),
        ("strides", "globalStrides"),
        ("box", "boxDim"),
        ("steps", "elementStrides"),
    ):
        text = re.sub(rf"\b{name}\b", word, text)
    return text


@pytest.mark.parametrize("spelled", [str, with_driver_names])
def test_entries_that_are_assigned_one_by_one_are_read(spelled):
    request = read(spelled(ENTRIES + CALL))
    assert (request.global_dim, request.global_strides) == ((4096, 128), (16384,))
    assert (request.box_dim, request.element_strides) == ((32, 300), (1, 1))
    assert broken(spelled(ENTRIES + CALL)) == ["BOX_RANGE"]


@pytest.mark.parametrize(
    "line",
    [
        "assert(box[0] % 8 == 0);",
        'printf("%u %u, box = %d", box[0], box[1], 3);',
        "if (box[1] == 300) run();",
        "// box[1] = 300; fill(box);",
        "/* cuuint32_t box[2] = {32, 300}; */",
    ],
)
@pytest.mark.parametrize("spelled", [str, with_driver_names])
def test_an_array_that_is_only_used_is_read(spelled, line):
    assert read(spelled(f"{VALID}{line}\n{CALL}")).box_dim == (32, 32)


@pytest.mark.parametrize(
    "line",
    [
        "box[1] = 300;",
        "box[rows[1]] = 300;",
        "if (tall) { box[1] = 300; }",
        "for (int i = 0; i < 2; ++i) box[i] = 300;",
        "box[1] *= 300;",
        "++box[1];",
        "fill(box);",
        "fill(&box[1]);",
        "std::cin >> box[1];",
        "if (tall) box = {32, 300};",
        "box = [32, 300][::-1]",
        "# box = [32, 300]",
        "# if tall:\nbox = [32, 300]\n",
    ],
)
@pytest.mark.parametrize("spelled", [str, with_driver_names])
def test_an_array_that_other_code_may_change_is_unknown(spelled, line):
    request = read(spelled(f"{VALID}{line}\n{CALL}"))
    assert (request.global_dim, request.box_dim) == ((4096, 128), None)


@pytest.mark.parametrize(
    "line", ["box[1] = 32;", "if (tall) box[1] = 400;", "if (tall) { box[1] = 400; }", "fill(box);"]
)
def test_entries_that_other_code_may_change_are_unknown(line):
    request = read(f"{ENTRIES}{line}\n{CALL}")
    assert (request.global_dim, request.box_dim) == ((4096, 128), None)


def test_an_entry_that_is_not_assigned_makes_the_array_unknown():
    assert read(ENTRIES.replace("box[0]", "box[2]") + CALL).box_dim is None


@pytest.mark.parametrize("spelled", [str, with_driver_names])
def test_an_array_of_another_function_is_another_array(spelled):
    other = "void test() {\n  cuuint32_t box[2] = {32, 300};\n  run(box);\n}\n"
    assert read(spelled(other + VALID + CALL)).box_dim == (32, 32)
    assert read(spelled(VALID.replace("box[2] = {32, 32}, ", "") + other + CALL)).box_dim is None


@pytest.mark.parametrize("spelled", [str, with_driver_names])
def test_arrays_without_values_accuse_nobody(spelled):
    arrays = "cuuint64_t dims[2], strides[1] = {0};\ncuuint32_t box[2], steps[2];\n"
    filled = "fill(dims, strides, box, steps);\n"
    assert tma.explain(spelled(arrays + filled + CALL)).reports == ()
    of_pointers = CALL.replace("dims, strides, box, steps", "a, b, c, d")
    assert tma.explain(spelled(arrays + of_pointers)).reports == ()


def test_the_branches_of_a_directive_hide_their_declarations():
    tall = "cuuint32_t box[2] = {32, 300};\n"
    low = tall.replace("300", "32")
    rest = VALID.replace("box[2] = {32, 32}, ", "")
    for spelled in (str, with_driver_names):
        text = f"{rest}#ifndef TALL\n{low}#else\n{tall}#endif\n{CALL}"
        assert read(spelled(text)).box_dim is None
        text = f"#ifndef TALL\n{low}#elif X\n{rest}{tall}{CALL}#endif\n"
        assert read(spelled(text)).box_dim == (32, 300)


def test_two_versions_of_a_source_are_two_encodes():
    text = VALID + CALL + VALID.replace("{32, 32}", "{32, 300}") + CALL + CALL
    assert [r.box_dim for r in tma.explain(text).requests] == [(32, 32), (32, 300), (32, 300)]


def test_comments_in_a_call_and_in_a_list_are_skipped():
    text = ARRAYS.replace("{WIDE, 32}", "{WIDE,  // 16, inner\n  /* rows, */ 32}")
    text += CALL.replace("steps,", "steps,  // the steps, all 1")
    assert read(text).box_dim == (64, 32)
    notes = "// boxDim = (64, 300) with swizzle = 1, globalDim[0] = 3\n"
    assert len(tma.explain(notes + text).requests) == 1


STRIDE_OF_K = ARRAYS.partition("\n")[2].replace("WIDE", "32") + CALL


@pytest.mark.parametrize(
    "before",
    [
        "#define K 1001  // odd",
        "constexpr uint64_t M = 64, K = 1001;",
        "__device__ const std::size_t K = 1001;",
        'static constexpr auto K = 1001;\nprintf("K = %d, M = %d", K, M);',
        "int half() { return K; }\nint K = 1001;\nif (a > K) { run(K == 3); }",
        "#ifndef HEADER\n#define HEADER\nnamespace a {\nconst int K = 1001;\nvoid make() {",
    ],
)
def test_a_constant_is_read(before):
    assert read(f"{before}\n{STRIDE_OF_K}").global_strides == (4004,)
    assert broken(f"{before}\n{STRIDE_OF_K}") == ["STRIDE_ALIGNED"]


@pytest.mark.parametrize(
    "before",
    [
        "// for K 1001, the slow path is used\nvoid make(uint64_t K) {",
        "M 128, N 128, K 1001",
        "with M = 128, K = 1001;",
        "//#define K 1001",
        "/*\n#define K 1001\n*/",
        "void make(uint64_t M, uint64_t K = 1001) {",
        "void make(uint64_t K = 1001, uint64_t M = 1) {",
        "template <int M, int K = 1001>\nvoid make() {",
        "def make(x, M, K=1001):",
        "void test() { int K = 1001; run(K); }\nvoid make(uint64_t K) {",
        "void test() { int K = 1001; run(K); }\nvoid make() {",
        "uint64_t K = 1001;\nK = (K + 7) / 8 * 8;",
        'int K = 1001;\nscanf("%d", &K);',
        "int K = 1001; std::cin >> K;",
        "const int K = 1001;\nfor (int K : sizes) {",
        "const int K = 1001;\nvoid make(const int& K) {",
        "#ifndef K\n#define K 1001\n#endif",
        "#ifdef ODD\n#define K 1001\n#else\n#define K 1002\n#endif",
        "#ifdef ODD\nconstexpr int K = 1001;\n#endif",
        "struct Odd { static constexpr int K = 1001; };",
    ],
)
def test_a_name_whose_value_is_not_certain_is_unknown(before):
    request = read(f"{before}\n{STRIDE_OF_K}")
    assert (request.global_dim, request.box_dim) == ((None, 128), (32, 32))
    assert broken(f"{before}\n{STRIDE_OF_K}") == []


def test_a_member_of_another_object_is_no_constant():
    text = "const int K = 1001;\n" + STRIDE_OF_K.replace("K", "shape.K")
    assert read(text).global_strides in (None, (None,))


# -- long logs ------------------------------------------------------------------------------------

NOISE = "2026-05-01 18:52:10.969 INFO [core.py:12] step 12 loss 3.25 lr 1e-4 mem 70.1 GiB rank 3\n"


def test_an_encode_amid_a_long_log_is_found():
    bad = cutlass(GOOD.but(box_dim=(64, 300)))
    text = NOISE * 20_000 + bad + NOISE * 20_000
    found = tma.explain(text)
    assert [[v.rule for v in r.violations] for r in found.reports] == [["BOX_RANGE"]]
    assert found.requests[0].lines == (20_001, 20_012)


def test_of_too_many_encodes_the_first_and_the_last_are_read_and_it_says_so(monkeypatch):
    monkeypatch.setattr("tma_dlpack.debug.explain.MOST_READ", 1 << 16)
    block = cutlass(GOOD)
    text = block * 6_000 + cutlass(GOOD.but(box_dim=(64, 300)))
    found = tma.explain(text)
    assert 100 < len(found.reports) < 500
    assert [v.rule for v in found.reports[-1].violations] == ["BOX_RANGE"]
    assert re.fullmatch(
        r"the text is long: lines \d,\d{3} to 7\d,\d{3} of its 78,014 lines were not read\. "
        "Paste a part of these lines to have it read",
        found.notes[0],
    )
    assert all(a.lines[1] < 5_000 or a.lines[0] > 70_000 for a in found.requests)
    assert found.requests[-1].lines[0] == 78_001


def test_a_text_that_is_read_whole_from_both_ends_has_no_such_note(monkeypatch):
    block = cutlass(GOOD)
    monkeypatch.setattr("tma_dlpack.debug.explain.LONG", 0)
    monkeypatch.setattr("tma_dlpack.debug.explain.MOST_READ", 9 * len(block))
    found = tma.explain(block * 8)
    assert len(found.reports) == 8
    assert not any("long" in note for note in found.notes)
    assert tma.explain(block * 12).notes[0].startswith("the text is long: lines ")


@pytest.mark.slow
@pytest.mark.parametrize("piece", [NOISE, cutlass(GOOD, 700), "boxDim   0x79c062c00000(\n"])
def test_20_mb_take_at_most_5_seconds(piece):
    before = time.process_time()
    tma.explain(piece * (20_000_000 // len(piece)))
    assert time.process_time() - before < 5


@pytest.mark.parametrize("piece", [" \n", "x", "size=2,", "[1, ", "700 \n"])
def test_what_repeats_takes_linear_time(piece):
    before = time.process_time()
    tma.explain(piece * (100_000 // len(piece)))
    assert time.process_time() - before < 10  # a fraction of a second; minutes if quadratic


# -- masks -----------------------------------------------------------------------------------------

REDACTED = (
    "<redacted>", "(redacted)", "<masked>", "(truncated)", " (truncated)", "<...>", "(...)", "--",
    "/...", "&hellip;", "&lt;redacted&gt;", "</span>...", "[+3 digits]", "\u200b", "\\",
)  # fmt: skip


@pytest.mark.parametrize("mask", REDACTED)
@pytest.mark.parametrize(
    ("name", "number"),
    [("globalAddress", "0x7f3b8a"), ("globalStrides[0]", "81"), ("boxDim[0]", "6")],
)
def test_a_number_that_something_is_stuck_to_is_not_read(name, number, mask):
    before, _, after = re.split(rf"(  {re.escape(name)} = \S+\n)", driver_lines(GOOD))
    assert broken(f"{before}  {name} = {number}{mask}\n{after}") == []
    assert broken(f"{before}  {name} = {number}1\n{after}") != []  # as a number, it is refused


@pytest.mark.parametrize("mask", ["...", "<redacted>", " (truncated)", "x"])
def test_the_number_of_a_sentence_that_is_masked_is_not_read(mask):
    says = "RuntimeError: Byte strides must be divisible by 16 and less than 2**40, but got 81"
    (report,) = tma.explain(says + mask).reports
    assert report.violations[0].found.startswith("JAX Mosaic GPU says: ")
    assert tma.explain(says + "\n").requests[0].global_strides == (81,)


@pytest.mark.parametrize("name", ["CU_TENSOR_MAP_SWIZZLE_128B", "SWIZZLE_128B"])
@pytest.mark.parametrize("mask", ["...", "<redacted>", "…", "_"])
def test_a_name_that_something_is_stuck_to_is_not_read(name, mask):
    lines = driver_lines(GOOD).replace("CU_TENSOR_MAP_SWIZZLE_128B (3)", name + mask)
    assert read(lines).swizzle is None  # the word may continue, as in 128B_ATOM_32B


@pytest.mark.parametrize(
    "text", ["<span>64</span>, <b>128</b>", "&nbsp;64, 128", "'64', '128'", "64, 128<br>"]
)
def test_html_and_quotes_around_numbers_are_no_masks(text):
    assert read(f"globalDim: 4096, 128\nboxDim: {text}\nrank: 2\n").box_dim == (64, 128)


def of_masked(seeds: range) -> list[str]:
    """Return (mask, text) of valid encodes that `explain` wrongly refuses."""
    texts = map(masked, seeds)
    return [f"{mask!r}:\n{text}" for text, mask in texts if broken(text)]


def test_no_masked_number_is_judged():
    assert of_masked(range(1500)) == []


@pytest.mark.slow
def test_no_masked_number_of_many_is_judged():
    assert of_masked(range(many(10_000))) == []


# -- hostile lengths ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "printer", [cutlass, driver_lines, triton, deepgemm, host_source, kerutils]
)
def test_a_number_of_thousands_of_digits_is_not_read(printer):
    text = printer(GOOD)
    for found in re.finditer(r"(?<![\w.])\d+(?!\w)", text):
        assert broken(text[: found.start()] + "7" * 5000 + text[found.end() :]) == []


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Byte strides must be divisible by 16 and less than 2**40, but got "
        + "1" * 5000,
        f"globalDim = 2{' * 1000' * 2000}, 4\nboxDim = 64, 64\n",
        "tma_dlpack: refused: cuTensorMapEncodeTiled(tensorDataType=6); rules=libcu++; tensor: "
        f"dtype={{2, {'9' * 5000}, 1}}, device={{2, 0}}; python -m tma_dlpack explain says why",
        f"tma_dlpack check: k.cu:{'9' * 5000}, block (0, 0, 0), thread (0, 0, 0), load: a; b",
        f"globalDim[{'9' * 12}] = 4\nboxDim[{'9' * 5000}] = 4\n",
        f"CUDA error: {'7' * 5000}",
    ],
)
def test_no_number_is_too_long_to_be_refused_quietly(text):
    assert all(report.ok or "says" in str(report) for report in tma.explain(text).reports)


SPOTS = ("tma_dlpack check: f:1, block (0, 0, 0), thread (0, 0, 0), load ", "1", "{0x1,", "a_")
SPOTS += (
    "Error TMA Stride ",
    "tma_dlpack: refused: cuTensorMapEncodeTiled(",
    "boxDim=(4,",
    "1,...",
)
SPOTS += (
    "tma_dlpack: refused: rules=a; tensor: dtype={1}; a",
    "tma_dlpack: refused: cuTensorMapEncodeTiled(); rules=a; options: x; tensor: dtype=}; ",
)
FORMS = [p(GOOD).replace("\n", " ") for p in (cutlass, driver_lines, triton, deepgemm, host_source)]


@pytest.mark.parametrize("piece", [*SPOTS, *FORMS])
def test_one_long_line_takes_linear_time(piece):
    before = time.process_time()
    tma.explain(piece * (200_000 // len(piece)))
    assert time.process_time() - before < 4  # a fraction of a second; minutes if quadratic


def test_an_encode_in_a_line_of_a_megabyte_is_found():
    words = "step 12 of 40, loss 3.25; " * 2000
    text = words + cutlass(GOOD.but(box_dim=(64, 300))).replace("\n", " ") + words * 20
    assert broken(text) == ["BOX_RANGE"]


# -- damage at random -----------------------------------------------------------------------------


def accused(seeds: range) -> list[str]:
    """Return the damaged printouts in which `explain` wrongly refuses an encode."""
    texts = (damaged(seed) for seed in seeds)
    return [
        f"{done}:\n{text}"
        for text, _, done in texts
        if any(not report.ok for report in tma.explain(text).reports)
    ]


def test_what_is_damaged_is_valid():
    assert [driver_says(e) for seed in range(100) for e in damaged(seed)[1] if driver_says(e)] == []


def test_no_damaged_printout_of_a_valid_encode_is_refused():
    assert accused(range(600)) == []


@pytest.mark.slow
def test_no_damaged_printout_of_many_valid_encodes_is_refused():
    assert accused(range(many(10_000))) == []


@pytest.fixture
def filled_with(monkeypatch):
    """Replace a number that the printout does not show by another number."""

    def fill(number):
        monkeypatch.setitem(_check_printed.__wrapped__.__globals__, "UNREAD", number)
        _check_printed.cache_clear()

    yield fill
    _check_printed.cache_clear()


def test_no_rule_reads_what_stands_in_the_place_of_unread_columns(filled_with):
    texts = [damaged(seed)[0] for seed in range(150)]
    filled_with(0)
    said = [str(tma.explain(text)) for text in texts]
    assert sum("not shown" in text for text in said) > 50
    for number in (1, -3, 7, (1 << 32) + 1):
        filled_with(number)
        assert [str(tma.explain(text)) for text in texts] == said
