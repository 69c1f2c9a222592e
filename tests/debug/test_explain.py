"""`explain`: all known formats, causes of real reports, damaged text, and random text."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
import signal

import pytest
from damage import in_words, woven
from hypothesis import example, given
from hypothesis import strategies as st
from printed_forms import (
    GOOD,
    SHOWN,
    Encode,
    as_json,
    cuda_bindings,
    cutlass,
    deepgemm,
    driver_lines,
    driver_says,
    five,
    header,
    host_source,
    kerutils,
    thunderkittens,
    tilelang,
    triton,
    trtllm,
    trtllm_exact,
    xla,
)

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.debug import Explanation
from tma_dlpack.debug.explain import NOTHING_READ
from tma_dlpack.debug.explain.failures import RESULTS, results_of
from tma_dlpack.debug.explain.sentences import FIXES, SENTENCES
from tma_dlpack.debug.explain.words import FORMS
from tma_dlpack.tables.targets import STICKY


def rules(found: Explanation) -> list[list[str]]:
    return [[v.rule for v in report.violations] for report in found.reports]


def notes(found: Explanation) -> str:
    return "\n".join(found.notes)


# -- what is printed is read ----------------------------------------------------------------------


def is_no_placeholder(sixteenth):
    """`explain` reads 0xcafe0 and 0xdeadbeef as placeholders."""
    return not f"{16 * sixteenth:x}".startswith(("dead", "beef", "cafe", "babe", "feed", "face"))


@st.composite
def encodes(draw: st.DrawFn) -> Encode:
    """Draw arguments on both sides of the driver's limits."""
    rank = draw(st.integers(1, 5))
    size = st.integers(1, 70_000)

    def many(values: st.SearchStrategy[int], count: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(values, min_size=count, max_size=count)))

    return Encode(
        data_type=draw(st.integers(0, 12)),
        global_address=16 * draw(st.integers(1, 1 << 42).filter(is_no_placeholder))
        + draw(st.sampled_from((0, 0, 8))),
        global_dim=many(st.one_of(size, st.just((1 << 32) + 1), st.just(0)), rank),
        global_strides=tuple(8 * s for s in many(st.integers(0, 1 << 38), rank - 1)),
        box_dim=many(st.integers(0, 300), rank),
        element_strides=many(st.integers(0, 9), rank),
        swizzle=draw(st.integers(0, 3)),
        l2_promotion=draw(st.integers(0, 3)),
        oob_fill=draw(st.integers(0, 1)),
    )


@pytest.mark.parametrize("printer", SHOWN, ids=lambda p: p.__name__)
@given(e=encodes())
def test_arguments_are_read_as_they_were_printed(printer, e):
    if printer is deepgemm and e.rank not in (2, 3):
        e = GOOD
    found = tma.explain(printer(e))
    (read,) = found.requests
    shown = SHOWN[printer]
    for name in shown:
        assert getattr(read, name) == getattr(e, name), name
    for name in {f.name for f in dataclasses.fields(Encode)} - shown:
        assert getattr(read, name) is None, name


@pytest.mark.parametrize("printer", [p for p, s in SHOWN.items() if len(s) == 11])
@given(e=encodes())
def test_whole_printouts_break_exactly_the_rules_that_the_driver_breaks(printer, e):
    assert rules(tma.explain(printer(e))) == [driver_says(e)]


def test_every_row_of_the_table_is_the_form_of_some_printout():
    printed = {tma.explain(printer(GOOD)).requests[0].printed_by for printer in SHOWN}
    assert printed >= {row.name for row in FORMS} - {"nvFuser"}


@pytest.mark.parametrize("printer", SHOWN, ids=lambda p: p.__name__)
def test_good_arguments_are_in_order_and_one_step_further_is_not(printer):
    assert tma.explain(printer(GOOD)).ok
    assert rules(tma.explain(printer(GOOD.but(box_dim=(64, 256))))) == [[]]
    assert rules(tma.explain(printer(GOOD.but(box_dim=(64, 257))))) == [["BOX_RANGE"]]
    assert rules(tma.explain(printer(GOOD.but(global_strides=(8200,))))) == [["STRIDE_ALIGNED"]]
    assert rules(tma.explain(printer(GOOD.but(box_dim=(72, 128))))) == [["BOX_SWIZZLE_SPAN"]]


# -- 27 reports: their arguments, in words of ours ------------------------------------------------

HALF, BF16, U8, F32 = 6, 9, 0, 7
VOID_C = Encode(HALF, 0, (1024, 1024, 1), (2048, 2097152), (64, 128, 1), swizzle=3)
NO_TOKENS = Encode(BF16, 0, (512, 64, 0), (1024, 65536), (64, 64, 1), swizzle=3, l2_promotion=2)
FP8_GEMM = (
    Encode(U8, 140498872284672, (12288, 1, 1), (12288, 0), (128, 8, 1), swizzle=3, l2_promotion=2),
    Encode(
        U8, 140514418491392, (12288, 3584, 1), (12288, 0), (128, 64, 1), swizzle=3, l2_promotion=2
    ),
    Encode(BF16, 140498872214016, (3584, 1), (7168,), (32, 64), swizzle=2, l2_promotion=2),
    Encode(U8, 140499543373312, (12288, 1, 1), (12288, 0), (128, 8, 1), swizzle=3, l2_promotion=2),
)
OVERFLOWED = Encode(
    BF16,
    135569568956416,
    (192, 131072, 128, 1),
    (49152, 384, 2305843007066210304),
    (64, 128, 1, 1),
    swizzle=3,
)
LONG_VIDEO = Encode(
    F32,
    254416682745856,
    (128, 931, 931, 24, 1),
    (476672, 512, 443781632, 2305843002684583936),
    (128, 1, 1, 1, 1),
    l2_promotion=2,
)
BIG_BOX = Encode(
    F32,
    139819908857856,
    (256, 256, 256, 16, 4),
    (1024, 262144, 67108864, 1073741824),
    (256, 256, 16, 1, 1),
    l2_promotion=2,
)
HEADS = Encode(
    BF16,
    139819908857856,
    (128, 4096, 32, 2),
    (8192, 256, 33554432),
    (64, 128, 1, 1),
    swizzle=3,
    l2_promotion=2,
)
FMHA_KV = Encode(
    U8, 0x7E1C40000010, (16, 16, 64, 8, 4096), (256, 16, 16384, 131080), (16, 16, 8, 1, 1)
)
MAMBA = Encode(
    BF16, 0x7E1C40000008, (128, 64, 80, 256), (256, 16384, 1310720), (64, 64, 1, 1), swizzle=3
)
ODD_ROW = Encode(BF16, 0x7F3B8A000000, (1001, 4096), (2002,), (64, 128), swizzle=3)
WIDE_N = Encode(U8, 0, (7168, 2112), (7168,), (128, 320), swizzle=3)
MXFP8 = "globalDim      (8,128,1,1,1)\nglobalStrides  (2,16,0,0,0)\nboxDim         (2,1,1,1,1)\n"

REPORTS = {
    "CUTLASS, void C": (cutlass(VOID_C) * 3, "sm_90", [[], [], []]),
    "FlashMLA, no query tokens": (cutlass(NO_TOKENS), "sm_90", [["DIM_RANGE"]]),
    "SGLang, 700": ("".join(cutlass(e, 700) for e in FP8_GEMM), "sm_90", [[]] * 4),
    "FlashInfer, 700, spaces collapsed": (
        " ".join(cutlass(FP8_GEMM[0], 700).split(" ")),
        "sm_90",
        [[]],
    ),
    "SageAttention, stride of extent 1": (cutlass(LONG_VIDEO), "sm_120", [["STRIDE_RANGE"]]),
    "CUTLASS, three lines of it": (MXFP8, "sm_120", [["BOX_INNER_16B"]]),
    "CUTLASS, 719": (cutlass(HEADS, 719), "sm_90", [[]]),
    "CUTLASS, 999": (cutlass(HEADS, 999), "sm_90", [[]]),
    "CUTLASS, a box of 4 MiB": (cutlass(BIG_BOX), "sm_90", [["BOX_BYTES"]]),
    "DeepGEMM, debug lines": (
        deepgemm(WIDE_N.but(box_dim=(128, 128), global_dim=(7168, 4096))) + deepgemm(WIDE_N),
        "sm_90",
        [[], ["BOX_RANGE"]],
    ),
    "TensorRT-LLM attention, stride of extent 1": (
        trtllm(OVERFLOWED) + trtllm(OVERFLOWED),
        "sm_100",
        [["STRIDE_RANGE"], ["STRIDE_RANGE"]],
    ),
    "FlashInfer attention, rank 5": (trtllm(FMHA_KV), "sm_100", [["STRIDE_ALIGNED"]]),
    "FlashInfer mamba": (trtllm_exact(MAMBA), "sm_100", [["ADDRESS_ALIGNED"]]),
    "Triton, odd row": (triton(ODD_ROW), "sm_90", [["STRIDE_ALIGNED"]]),
    "Triton, 700": (triton(GOOD, "an illegal memory access was encountered"), "sm_90", [[]]),
    "TileLang, 700": (tilelang(HEADS, 700), "sm_90", [[]]),
    "TileLang, cut": (
        "Invalid TMA descriptor arguments for __tvm_tensormap_create_tiled:\n"
        "  [1] effective cuda globalStrides[0] (raw globalStride[1] = 6932) must b",
        "sm_90",
        [["STRIDE_ALIGNED"]],
    ),
    "JAX Mosaic GPU, stride": (
        "Byte strides must be divisible by 16 and less than 2**40, but got 2002 (item stride = 1, "
        "item size = 2) at index 0\nFatal Python error: Aborted",
        "sm_90",
        [["STRIDE_ALIGNED"]],
    ),
    "cuda.core, address": (
        "ValueError: Failed to build TMA descriptor via CCCL: tensor.data (address) is not "
        "sufficiently aligned",
        "sm_90",
        [["ADDRESS_ALIGNED"]],
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_has_its_true_cause(name):
    text, target, expected = REPORTS[name]
    found = tma.explain(text, target)
    assert rules(found) == expected
    assert len(found.requests) == len(found.reports)


@pytest.mark.parametrize("name", [n for n, (*_, want) in REPORTS.items() if not any(want)])
def test_arguments_in_order_are_said_to_be_and_the_earlier_kernel_is_to_blame(name):
    text, target, _ = REPORTS[name]
    found = tma.explain(text, target)
    assert found.ok
    assert "earlier kernel" in notes(found)
    assert "compute-sanitizer" in notes(found)
    assert "CUDA_LAUNCH_BLOCKING=1" in notes(found)


def test_a_null_address_is_an_advice():
    found = tma.explain(cutlass(VOID_C))
    assert [a.rule for a in found.reports[0].advice] == ["ADDRESS_ZERO"]
    assert found.requests[0].global_address == 0
    assert tma.explain(cutlass(GOOD)).reports[0].advice == ()


def test_accepted_arguments_that_are_all_shown_get_the_advice_of_their_call():
    narrow = GOOD.but(box_dim=(8, 128), swizzle=0)
    (report,) = tma.explain(cutlass(narrow)).reports
    assert [a.rule for a in report.advice] == ["NARROW_ROWS"]
    (report,) = tma.explain(cutlass(narrow).replace("oobFill        0\n", "")).reports
    assert report.advice == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Exception: Failed to encode tensor map: 700", "700 (CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("Error in tile TMA descriptor creation: unspecified launch failure", "719"),
        ("Failed to encode TMA descriptor 0: 1", "TileLang (CuTe DSL)"),
        ("cuTensorMapEncodeTiled failed: invalid argument", "print every argument"),
        ("Failed to create tensormap with cuTensorMapEncodeTiled: invalid argument", "XLA"),
        ("Failed to create tensormap\nDim: 5\nAssertion `false` failed", "standard output"),
        ("Error: Failed to initialize the TMA descriptor A_desc", "TileLang"),
        ("Error: Failed to initialize the TMA descriptor 1\n", "CUTLASS or TensorRT-LLM"),
    ],
)  # fmt: skip
def test_failures_without_arguments_are_no_encode_and_say_where_those_would_be(text, says):
    found = tma.explain(text)
    assert found.reports == found.requests == ()
    assert says in notes(found)
    is_sticky = says.startswith("7")
    assert ("`tma-dlpack trace -- PROGRAM`" in notes(found)) != is_sticky
    assert found.symptoms
    assert not found.ok


def test_a_stride_of_extent_1_and_an_overflow_are_named():
    (violation,) = tma.explain(trtllm(OVERFLOWED), "sm_100").reports[0].violations
    assert "2^61 - 2147483648: a negative stride" in violation.found
    assert "dimension 3, which has extent 1 and never uses it" in violation.found
    assert violation.fix.startswith("pass any multiple of 16 bytes")
    longer = OVERFLOWED.but(global_dim=(192, 131072, 128, 2))
    (violation,) = tma.explain(trtllm(longer), "sm_100").reports[0].violations
    assert "extent 1" not in violation.found
    assert violation.fix.startswith("compute the stride in 64 bits")


# -- other forms ----------------------------------------------------------------------------------


def test_im2col_of_our_own_header():
    found = tma.explain(
        "tma_dlpack: refused: cuTensorMapEncodeIm2col(tensorDataType=6, tensorRank=4, "
        "globalAddress=0x7f3b8a000000, globalDim={64, 56, 56, 8}, globalStrides={128, 7168, "
        "401408}, pixelBoxLowerCorner={-1, -1}, pixelBoxUpperCorner={-1, 0}, channelsPerPixel=60, "
        "pixelsPerColumn=128, elementStrides={1, 1, 1, 1}, interleave=0, swizzle=3, "
        "l2Promotion=0, oobFill=0)"
    )
    (read,) = found.requests
    assert (read.kind, read.box_dim, read.channels_per_pixel) == ("im2col", None, 60)
    assert (read.pixel_box_lower_corner, read.pixel_box_upper_corner) == ((-1, -1), (-1, 0))
    assert read.missing() == ()
    assert rules(found) == [["CHANNELS_16B"]]


def test_im2col_of_triton_prints_one_stride_more_and_the_block_too():
    (read,) = tma.explain(
        "Triton Error [CUDA]: Failed to create im2col tensor map descriptor: invalid argument\n"
        "elemType=6 rank=4 global_address=0x7f3b8a000000 elemSize=2 swizzle=3 padding=1 "
        "channelsPerPixel=64 pixelsPerColumn=1025\nshape=[64, 56, 56, 8]\n"
        "strides=[128, 7168, 401408, 3211264]\nblockSize=[64, 1025]\n"
        "pixelBoxLower=[-1, -1] pixelBoxUpper=[-1, -1]\nelementStrides=[1, 1, 1, 1]\n"
    ).requests
    assert read.global_strides == (128, 7168, 401408)
    assert (read.pixels_per_column, read.oob_fill, read.box_dim) == (1025, 1, None)


def test_im2col_of_tilelang():
    found = tma.explain(
        "TMA Desc Addr:   0x7ffc00 (mod64=0)\nformat         6 (CU_TENSOR_MAP_DATA_TYPE_FLOAT16)\n"
        "dim            4\ngmem_address   0x7f0c5e200000 (mod16=0, mod32=0)\n"
        "globalDim      [64, 56, 56, 8]\nglobalStridesRaw [2, 128, 7168, 401408]\n"
        "cudaGlobalStrides [128, 7168, 401408]\nsmem_box_pixel 128\nsmem_box_channel 96\n"
        "pixelBoxLowerCorner  [-1, -1]\npixelBoxUpperCorner  [-1, -1]\n"
        "elementStrides [1, 1, 1, 1]\ninterleave     0 (NONE)\nswizzle        3 (128B)\n"
        "l2Promotion    2 (L2_128B)\noobFill        0 (NONE)\n"
    )
    assert found.requests[0].channels_per_pixel == 96
    assert rules(found) == [["BOX_SWIZZLE_SPAN"]]


def test_im2col_wide():
    (read,) = tma.explain(
        "cuTensorMapEncodeIm2colWide(tensorDataType=6, tensorRank=3, globalAddress=0x7f0000000000, "
        "globalDim={64, 56, 8}, globalStrides={128, 7168}, pixelBoxLowerCornerWidth=-1, "
        "pixelBoxUpperCornerWidth=-2, channelsPerPixel=64, pixelsPerColumn=8, elementStrides="
        "{1, 1, 1}, interleave=0, mode=0, swizzle=3, l2Promotion=0, oobFill=0)"
    ).requests
    assert read.kind == "im2col_wide"
    assert (read.pixel_box_lower_corner, read.pixel_box_upper_corner) == ((-1,), (-2,))


def test_deepgemm_copies_that_print_bytes_are_told_by_the_missing_comma():
    words = "Making TMA desc: global memory: 4096 64, shared memory: 64 64, outer stride: 8192, "
    (bytes_,) = tma.explain(words + "swizzle: 128 elem size: 2").requests
    (elements,) = tma.explain(words + "swizzle: 128, elem size: 2").requests
    assert (bytes_.global_strides, elements.global_strides) == ((8192,), (16384,))


def test_deepgemm_prints_the_atom_of_a_swizzle_as_its_base():
    (read,) = tma.explain(
        deepgemm(GOOD.but(data_type=7)).replace("(base: 0)", "(base: 32)")
    ).requests
    assert read.swizzle is tma.TmaSwizzle.bytes128_atom_32B
    assert read.global_address is None


def test_row_major_lists_with_torch_words_are_turned():
    found = tma.explain(
        "encode failed: shape=torch.Size([128, 1001]), strides=(1001, 1), dtype=torch.bfloat16, "
        "box_shape=[64, 32], swizzle='64B', element_strides=[1, 2]"
    )
    (read,) = found.requests
    assert (read.global_dim, read.global_strides) == ((1001, 128), (2002,))
    assert (read.box_dim, read.element_strides) == ((32, 64), (2, 1))
    assert "row-major" in notes(found)
    assert rules(found) == [["STRIDE_ALIGNED"]]


@pytest.mark.parametrize(
    ("lists", "dims", "strides"),
    [
        ("shape: 1001 4096 strides: 2002", (1001, 4096), (2002,)),
        ("shape: 1001 4096 strides: 1001", (1001, 4096), (2002,)),
        ("shape: 4096 1001 strides: 2002", (1001, 4096), (2002,)),
        ("shape: 4096 1001 strides: 1001", (1001, 4096), (2002,)),
        ("shape: 1001 4096 strides: 2 2002", (1001, 4096), (2002,)),
        ("shape: 1001 4096 strides: 1 1001", (1001, 4096), (2002,)),
        ("shape: 1001 4096 strides (elements): 1008", (1001, 4096), (2016,)),
        ("shape: 1001 4096 strides (bytes): 1008", (1001, 4096), (1008,)),
        ("shape: 1001 4096 strides: 640", (1001, 4096), (640,)),
    ],
)
def test_order_and_unit_of_lists_that_are_nobodys(lists, dims, strides):
    text = f"elem_type: BFLOAT16 {lists} box_dims: 64 1 swizzle: 3"
    (read,) = tma.explain(text.replace(" ", "\n").replace(":\n", ": ")).requests or (None,)
    words = ("elem_type", "shape", "strides", "box_dims", "swizzle")
    for word in words:
        text = text.replace(f" {word}", f"\n{word}")
    (read,) = tma.explain(text).requests
    assert (read.global_dim, read.global_strides) == (dims, strides)


@pytest.mark.parametrize("word", ["3", "128", "128B", "SWIZZLE_128B", "B128", "bytes128", "s128b"])
def test_a_swizzle_is_a_number_a_name_or_its_bytes(word):
    (read,) = tma.explain(f"globalDim=(64, 64) globalStrides=(128,) swizzle={word}").requests
    assert read.swizzle is tma.TmaSwizzle.bytes128


def test_numbers_that_no_enum_has_are_kept_and_refused_beside_the_rest():
    found = tma.explain(header(GOOD.but(box_dim=(64, 300))).replace("swizzle=3", "swizzle=9"))
    assert found.requests[0].swizzle == 9
    assert rules(found) == [["ARGUMENT", "BOX_RANGE"]]


def test_a_dump_of_128_bytes_in_a_log_is_a_map():
    tm = tma.driver_encode_tiled(
        9, 2, 0x7F3B8A000000, (4096, 128), (8192,), (64, 128), (1, 1), 0, 3, 2, encoder="model"
    )
    data = bytes(tm)
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, 128, 4)]
    rows = ["\t".join(f"{w:#010x}" for w in words[i : i + 4]) for i in range(0, 32, 4)]
    gdb = "\n".join(f"0x7ffe{i:02x} <map+{i}>:\t{row}" for i, row in enumerate(rows))
    assigned = "\n".join(f"  tma[{i:2d}] = {w:#010x}" for i, w in enumerate(words))
    for dump in (data.hex(), gdb, assigned):
        found = tma.explain(f"INFO starting\n(gdb) x/32xw &map\n{dump}\nINFO done\n")
        (read,) = found.requests
        assert (read.global_dim, read.global_strides) == ((4096, 128), (8192,))
        assert (read.box_dim, read.swizzle, read.global_address) == ((64, 128), 3, 0x7F3B8A000000)
        assert found.ok


def test_bytes_that_are_no_map_say_so():
    found = tma.explain("ff" * 128)
    assert found.reports == ()
    assert "are no map" in notes(found)


# -- what is missing is missing -------------------------------------------------------------------


def test_what_is_not_shown_is_none_and_listed():
    found = tma.explain(MXFP8)
    (read,) = found.requests
    assert (read.global_dim, read.global_strides, read.box_dim) == ((8, 128), (16,), (2, 1))
    assert (read.data_type, read.element_bytes, read.global_address) == (None, 2, None)
    assert read.missing() == (
        "data_type",
        "global_address",
        "element_strides",
        "interleave",
        "swizzle",
        "l2_promotion",
        "oob_fill",
    )
    assert "BOX_INNER_16B" in str(found)


def test_what_a_printer_passes_and_does_not_print_is_judged_and_not_shown():
    (read,) = tma.explain(trtllm(GOOD)).requests
    assert read.interleave is None
    assert dict(read.implied) == {"interleave": 0, "l2_promotion": 2, "oob_fill": 0}
    assert read.missing() == ()


def test_rules_about_the_unknown_type_are_not_asked():
    text = "globalDim=(100, 64) globalStrides=(208,) boxDim=(24, 64) swizzle=3"
    assert rules(tma.explain(text)) == [[]]
    assert rules(tma.explain(text + " elemSize=4")) == [[]]
    assert rules(tma.explain(text + " elemSize=8")) == [["BOX_SWIZZLE_SPAN"]]


def test_a_list_that_is_too_short_for_the_rank_has_gaps():
    found = tma.explain(trtllm(FMHA_KV).replace("16 16 64 8 4096", "16 16 64 8"))
    assert found.requests[0].global_dim == (16, 16, 64, 8, None)
    assert "global_dim shows 4 of 5 entries" in notes(found)
    assert rules(found) == [["STRIDE_ALIGNED"]]


def test_addresses_in_place_of_lists_are_no_numbers():
    text = cutlass(GOOD)
    for name in ("globalDim ", "globalStrides ", "boxDim ", "elementStrides "):
        line = next(line for line in text.splitlines() if line.startswith(name))
        text = text.replace(line, f"{name}  0x7fc24e6b5e40")
    found = tma.explain(text)
    (read,) = found.requests
    assert read.global_dim is read.global_strides is read.box_dim is read.element_strides is None
    assert read.rank == 2
    assert notes(found).count("shows an address (0x7fc24e6b5e40)") == 4


# -- logs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-05-01 18:52:10.969 | ",
        "(EngineCore_DP0 pid=4242) ",
        "[rank3]: ",
        "[1,0]<stderr>:",
        "worker-0  | ",
        "ERROR 08-05 10:11:12 [core.py:12] ",
        "[2025-11-22 22:22:32 DP4 TP4] ",
        "\x1b[31m",
        "[36m(RayWorkerWrapper pid=3014724)[0m ",
        "[1;31m",
        "> ",
        "3: ",
        "    ",
        "E1123 05:20:08.123456   12345 cuda_executor.cc:1234] ",
        "Nov 23 05:20:08 node-17 python3[4242]: ",
        "2026-11-23T05:20:08.123456789Z stderr F ",
        "2026-11-23T05:20:08.1234567Z ##[error]",
        "\N{NO-BREAK SPACE}",
    ],
)
@pytest.mark.parametrize("printer", [cutlass, tilelang, trtllm, triton, kerutils])
def test_prefixes_of_lines_are_left_out(prefix, printer):
    bad = GOOD.but(box_dim=(64, 300))
    text = "".join(prefix + line + "\n" for line in printer(bad).splitlines())
    found = tma.explain(text)
    assert found.requests[0].global_dim == GOOD.global_dim
    assert found.requests[0].data_type == 9
    assert rules(found) == [["BOX_RANGE"]]


@pytest.mark.parametrize("key", ["log", "message", "MESSAGE"])
@pytest.mark.parametrize("printer", [cutlass, trtllm, triton, kerutils])
def test_what_lines_of_json_say_is_read(printer, key):
    lines = ["{not json", "{}", *printer(GOOD.but(box_dim=(64, 300))).splitlines()]
    text = "\n".join(json.dumps({"time": "2026", key: line + "\n", "id": 7}) for line in lines)
    for log in (text, f"starting\n{text}", text + '\n{"' + "[" * 9000):
        assert rules(tma.explain(log)) == [["BOX_RANGE"]]


@pytest.mark.parametrize("printer", [cutlass, trtllm, triton, kerutils, thunderkittens])
@pytest.mark.parametrize("width", [79, 80, 100])
@pytest.mark.parametrize("prefix", ["(Worker_TP3 pid=99) ERROR 11-23 05:20:08 [core.py:390] ", ""])
def test_a_terminal_that_wraps_lines_cuts_no_number(printer, width, prefix):
    for call, expected in ((GOOD, []), (GOOD.but(box_dim=(64, 300)), ["BOX_RANGE"])):
        lines = [prefix + line for line in printer(call).splitlines()]
        cut = "".join(re.sub(rf"(.{{{width}}})(?=.)", r"\1\n", line) + "\n" for line in lines)
        found = tma.explain(cut)
        assert {r.global_address for r in found.requests} <= {GOOD.global_address, None}
        assert rules(found) in ([expected], [[]], [])
        assert rules(found) == [expected] or prefix


def test_lines_of_two_projects_printouts_are_of_neither():
    printed = [p(GOOD).splitlines() for p in (cutlass, triton, trtllm, thunderkittens, kerutils)]
    for one, other in itertools.permutations(printed, 2):
        for step in (1, 2, 3):
            pieces = [(lines[i : i + step]) for i in range(0, 40, step) for lines in (one, other)]
            found = tma.explain("\n".join(itertools.chain(*pieces)))
            assert not any(itertools.chain(*rules(found))), found


@pytest.mark.parametrize("printer", [kerutils, trtllm, cutlass, triton])
def test_a_text_that_ends_within_a_name_is_cut_off_and_not_mixed(printer):
    text = printer(GOOD)
    for end in range(len(text)):
        assert "one log per rank" not in notes(tma.explain(text[:end])), text[:end]


def test_a_list_of_strides_that_is_too_short_or_long_for_its_printer_is_not_read():
    text = cutlass(GOOD)
    start = re.search(r"globalStrides *\(2,8192,", text)
    after = text[start.end() :].partition("\n")[2]
    for rest in (",0,0)", ",0,0,0,0)"):
        found = tma.explain(f"{text[: start.end() - 1]}{rest}\n{after}")
        assert found.requests[0].global_strides is None
        assert rules(found) == [[]]


def test_processes_that_name_themselves_are_told_apart():
    a, b = cutlass(GOOD), cutlass(GOOD.but(global_dim=(4096, 77), box_dim=(64, 300)))
    mixed = "".join(
        f"(Worker_TP0 pid=12) {x}\n(Worker_TP1 pid=13) {y}\n"
        for x, y in zip(a.splitlines(), b.splitlines(), strict=True)
    )
    found = tma.explain(mixed)
    assert [r.global_dim for r in found.requests] == [(4096, 128), (4096, 77)]
    assert rules(found) == [[], ["BOX_RANGE"]]


def test_lines_of_processes_without_names_are_not_read():
    a, b = cutlass(GOOD), cutlass(GOOD.but(global_dim=(4096, 77)))
    mixed = "".join(f"{x}\n{y}\n" for x, y in zip(a.splitlines(), b.splitlines(), strict=True))
    found = tma.explain(mixed)
    assert found.reports == ()
    assert "the output of several processes (or threads) is mixed here" in notes(found)


def test_words_of_processes_without_names_are_not_read():
    lines = ["elementStrides ,(2561TMA Desc Addr:   ,,0x7ffc69b82d402561", "format         ,,4096,"]
    lines += [
        "dim            ,041)",
        "gmem_address   ,",
        "boxDim         0x79c062c00000(",
        "1(700)2",
    ]
    lines += ["globalDim      )64(", "interleave     128,0,128", "swizzle        16,3,1", "700"]
    for seed in range(20):
        random.Random(seed).shuffle(lines)
        found = tma.explain("\n".join([*lines, "globalStrides  (2", "oobFill        )"]))
        assert found.reports == ()
        assert "mixed here" in notes(found)
        assert "700 stands in it" in notes(found)


def test_a_block_amid_the_lines_of_another_is_not_read():
    a = cutlass(GOOD).splitlines(keepends=True)
    b = cutlass(GOOD.but(global_dim=(4096, 77)))
    found = tma.explain("".join(a[:6]) + b + "".join(a[6:]))
    assert found.reports == ()
    assert "mixed here" in notes(found)


def test_a_block_far_from_a_torn_one_is_read():
    a = cutlass(GOOD).splitlines(keepends=True)
    torn = "".join(a[:6] + a[2:4] + a[6:])
    found = tma.explain(torn + "a line of the log\n" * 5 + cutlass(GOOD.but(global_dim=(4096, 77))))
    assert [r.global_dim for r in found.requests] == [(4096, 77)]
    assert "lines 1-14" in notes(found)


@pytest.mark.parametrize("pieces", ["words", "lines", "runs of lines"])
def test_numbers_of_different_processes_are_never_put_together(pieces):
    """Mix several printouts. Every encode that `explain` reads is one of the printed encodes."""
    encodes = [
        GOOD,
        Encode(HALF, 0x7A0000100000, (512, 77), (1040,), (32, 16), swizzle=2),
        Encode(F32, 0x7B0000200000, (128, 931, 7), (512, 476672), (16, 8, 4)),
    ]
    for seed in range(100):
        rnd = random.Random(seed)
        texts = [cutlass(e, 700) * rnd.choice([1, 2]) for e in rnd.sample(encodes, 2)]
        if pieces == "words":
            text = woven([*map(in_words, texts)], [1, 1, 2, 3, 6, 20, 40], rnd)
        else:
            lines = [t.splitlines(keepends=True) for t in texts]
            text = woven(lines, [1, 1, 2, 3] if pieces == "lines" else [1, 4, 9, 14], rnd)
        for read in tma.explain(text).requests:
            shown = dict(read.shown())
            assert any(
                all(getattr(e, name) == value for name, value in shown.items()) for e in encodes
            ), text


@pytest.mark.parametrize("lines", range(1, 12))
def test_a_printout_that_is_cut_off_within_a_line_is_said_and_not_read(lines):
    whole = cutlass(GOOD.but(global_strides=(8200,)))
    kept = whole.splitlines()[: lines + 1]
    kept[-1] = kept[-1].split()[0]
    found = tma.explain(whole + "\n".join(kept))
    assert len(found.reports) == 1
    assert "cut off" in notes(found)
    assert ("STRIDE_ALIGNED" in notes(found)) == (lines > 5)


def test_of_a_printout_that_is_cut_off_alone_what_is_shown_is_checked():
    text = cutlass(GOOD).partition("128,1,1,1)\nelem")[0]
    found = tma.explain(text)
    assert rules(found) == [[]]
    assert (found.requests[0].global_dim, found.requests[0].box_dim) == ((4096, 128), None)
    assert "nothing wrong in what is shown; not shown: box_dim" in str(found)
    assert "cut off" in notes(found)
    assert rules(tma.explain(text.replace("8192", "8200"))) == [["STRIDE_ALIGNED"]]


@pytest.mark.parametrize(
    "text",
    [
        "| field | value |\n|---|---|\n| format | 6 |\n| dim | 2 |\n"
        "| globalDim | (256,128,1,1,1) |\n"
        "| globalStrides | (2,520,0,0,0) |\n| boxDim | (64,32,1,1,1) |\n| swizzle | 3 |\n",
        "- **format**: 6\n- **dim**: 2\n- `globalDim`: `(256,128,1,1,1)`\n- `globalStrides`: "
        "`(2,520,0,0,0)`\n- `boxDim`: `(64,32,1,1,1)`\n- `swizzle`: 3\n",
        "tensorDataType: FLOAT16\ntensorRank: 2\nglobalDim:\n  - 256\n  - 128\nglobalStrides:\n"
        "  - 520\nboxDim:\n  - 64\n  - 32\nswizzle: 128B\n",
        "dtype=CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank=2\n gmem_dims: 256 x 128\n gmem_strides: 520\n"
        " smem_dims: 64 x 32\n swizzle: CU_TENSOR_MAP_SWIZZLE_128B",
    ],
    ids=["table", "list", "YAML", "x between numbers"],
)
def test_forms_into_which_people_turn_a_printout(text):
    found = tma.explain(text)
    (read,) = found.requests
    assert (read.data_type, read.rank, read.swizzle) == (6, 2, 3)
    assert (read.global_dim, read.global_strides) == ((256, 128), (520,))
    assert read.box_dim == (64, 32)
    assert rules(found) == [["STRIDE_ALIGNED"]]


def test_addresses_without_0x_are_read_and_first_entries_alone_are_not_the_list():
    text = cutlass(GOOD).replace("0x7f3b8a000000", "00007F3B8A000008")
    text = text.replace("(4096,128,1,1,1)", "4096").replace("(2,8192,0,0,0)", "8200")
    found = tma.explain(text)
    assert found.requests[0].global_address == 0x7F3B8A000008
    assert found.requests[0].global_dim == (4096, None)
    assert rules(found) == [["ADDRESS_ALIGNED", "STRIDE_ALIGNED"]]


def test_a_python_repr_of_a_message_is_read():
    found = tma.explain(repr(cutlass(GOOD.but(box_dim=(64, 300)))))
    assert rules(found) == [["BOX_RANGE"]]


def test_several_descriptors_in_generated_source():
    source = host_source(GOOD) + host_source(GOOD.but(box_dim=(64, 300))).replace(
        "A_desc", "B_desc"
    )
    assert rules(tma.explain(source)) == [[], ["BOX_RANGE"]]


def test_forms_of_several_projects_in_one_log():
    bad = GOOD.but(box_dim=(64, 300))
    log = "Traceback (most recent call last):\n  File x, line 3\n".join(
        printer(bad)
        for printer in (cutlass, triton, trtllm, deepgemm, thunderkittens, kerutils, xla, as_json)
    )
    found = tma.explain(log + driver_lines(bad) + cuda_bindings(bad))
    assert rules(found) == [["BOX_RANGE"]] * 10


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "the swizzle pattern of the box must match; boxDim is 256 at most\nglobalDim too",
        "q.shape: torch.Size([1, 24, 119056, 128]) torch.bfloat16\nv.stride: (1, 2, 3, 4)",
        "rank=0 world_size=8 dtype=bfloat16 block_size=16 shape=(1, 2) stride=(2, 1)",
        "max_model_len=4096, head_dim=128, kv_cache_dtype=auto, tile_size=64, padding=1",
        "assert((gmem_prob_stride[1] & 0b1111) == 0);  // Stride must be a multiple of 16B",
        "shared memory: 233472, global memory: 139 GiB",
    ],
)
def test_texts_without_an_encode_give_none(text):
    found = tma.explain(text)
    assert found.reports == found.requests == ()
    assert found.notes == (NOTHING_READ,)
    assert found.symptoms == ()
    assert "`tma-dlpack trace -- PROGRAM`" in NOTHING_READ
    assert str(found).startswith("no encode was read")


# -- sentences and results ------------------------------------------------------------------------

SAID = [
    ("STRIDE_ALIGNED", "a.out: x.hpp:9: Assertion `(gmem_prob_stride[2] & 0b1111) == 0' failed."),
    ("STRIDE_RANGE", "Assertion `(gmem_prob_stride[1]) < (uint64_t(1) << 40)' failed."),
    ("STRIDE_INNERMOST", 'Assertion `gmem_prob_stride[0] == 1 && "Majorness"\' failed.'),
    ("DIM_RANGE", "Assertion `gmem_prob_shape[2] >= (uint64_t(1))' failed."),
    ("ADDRESS_ALIGNED", "Assertion `(cast<uint64_t>(gmem_address) & 0b1111) == 0' failed."),
    ("BOX_RANGE", "Assertion `smem_box_shape[1] <= (uint32_t(1) << 8)' failed."),
    ("ELEM_STRIDES_RANGE", "Assertion `smem_box_stride[1] <= (uint32_t(8))' failed."),
    ("STRIDE_ALIGNED", "Assertion `gmem_stride[1] % 16 == 0' failed."),
    ("BOX_INNER_16B", "Assertion `(smem_shape[0]*sizeof(dtype)) % 16 == 0' failed."),
    ("BOX_SWIZZLE_SPAN", "Assertion `smem_shape[0] * sizeof(dtype) <= ST::swizzle_bytes' failed."),
    ("BOX_RANGE", "Assertion `smem_shape[1] <= 256' failed."),
    ("STRIDE_ALIGNED", "AssertionError: strides must be 16-byte aligned"),
    ("ADDRESS_ALIGNED", "AssertionError: base must be 16-byte aligned"),
    ("STRIDE_INNERMOST", "AssertionError: Last dimension must be contiguous"),
    ("DIM_RANGE", "AssertionError: shape must be positive"),
    ("RANK", "AssertionError: rank cannot be more than 5"),
    ("OOB_NAN", "Padding option `nan` is only supported for floating point tensors"),
    ("STRIDE_RANGE", "globalStrides[0] (raw globalStride[1] = 1099511627776) must be < 2^40"),
    ("STRIDE_ALIGNED", "globalStrides[1] (raw globalStride[2] = 8) must be a multiple of 16"),
    ("ADDRESS_ALIGNED", "  [1] globalAddress must be 16-byte aligned, but mod16=8"),
    ("DIM_RANGE", "  [1] globalDim[1] must be non-zero"),
    ("BOX_RANGE", "  [1] boxDim[0] must be <= 256, but got 320"),
    ("BOX_INNER_16B", "boxDim[0] * elementSize must be a multiple of 16 bytes when it is"),
    ("BOX_SWIZZLE_SPAN", "boxDim[0] * elementSize must be <= swizzle span (128 bytes) when"),
    ("ELEM_STRIDES_RANGE", "  [1] elementStrides[1] must be in [1, 8], but got 9"),
    ("STRIDE_RANGE", "Byte strides must be divisible by 16 and less than 2**40, but got -16 (x)"),
    ("DIM_RANGE", "TMA size must be less than 2**32, but got 4294967297 at index 0"),
    ("STRIDE_INNERMOST", "Minormost stride must be 1, but got 2"),
    ("BOX_RANGE", "Window shape must be in [0, 256], but got 320 at index 0"),
    ("BOX_INNER_16B", "The last dimension of window shape must have a bytewidth divisible by 16"),
    ("ADDRESS_ALIGNED", "tensor.data (address) is not sufficiently aligned"),
    ("ADDRESS_NULL", "what():  Address is null"),
    ("RANK", "tensor.ndim (rank) must be between 1 and 5"),
    ("RANK_INTERLEAVED", "tensor.ndim (rank) must be greater than or equal to 3 for interleaved"),
    ("DIM_RANGE", "tensor.shape[i] must be greater than 0 and less than or equal to 2^32"),
    ("STRIDE_ALIGNED", "Stride in bytes is not a multiple of the alignment (32 or 16)"),
    ("STRIDE_RANGE", "Stride in bytes is greater than or equal to 2^40"),
    ("STRIDE_UNIQUE", "Stride must be 0 or greater than or equal to the product of the next"),
    ("BOX_RANK", "what(): Box sizes size mismatch"),
    ("BOX_IN_SHAPE", "box_sizes[i] must be between 1 and min(tensor.shape[rank - 1 - i], 256)"),
    ("BOX_INNER_16B", "tma_interleave_layout::none requires box_sizes innermost dimension"),
    ("BOX_SWIZZLE_SPAN", "tma_swizzle::bytes64 requires box_sizes innermost dimension"),
    ("BOX_SMEM", "what(): Box sizes do not fit in shared memory"),
    ("ELEM_STRIDES_RANGE", "elem_strides[i] must be greater than 0 and less than or equal to"),
    ("INTERLEAVE_32B_SWIZZLE", "tma_interleave_layout::bytes32 requires tma_swizzle::bytes32"),
    ("OOB_NAN", "tma_oob_fill::nan is only supported for floating-point data types"),
    ("CAPABILITY", "Compute capability 9.0 or higher is required"),
    ("RANK", "unsupported rank for TMA: 6. Must be 1-5"),
    ("DIM_RANGE", "global_dims (0,128) must be non-zero and <= 2^32."),
    ("STRIDE_ALIGNED", "global_strides (120) must be a multiple of 16 and <= 2^40."),
    ("BOX_RANGE", "box_dims [64,300] must be non-zero and <= 256."),
    ("BOX_INNER_16B", "box_dims[0] (3) * element_byte_width (2) must be a multiple of 16 bytes."),
    ("BOX_SWIZZLE_SPAN", "swizzle is k64B, box_dims[0] * element_byte_width must be <= 64."),
    ("ELEM_STRIDES_RANGE", "element_strides (0,1) must be non-zero and <= 8."),
    ("RANK_INTERLEAVED", "If TmaInterleave is not kNone, then tensor rank must additionally"),
    ("INTERLEAVE_32B_SWIZZLE", "when interleave is k32B, swizzle must be k32B."),
    ("ADDRESS_ALIGNED", "Global memory address must be 16-byte aligned, got address 0x7f08"),
    ("RANK", "Tensor rank must be between 1 and 5, got 6"),
    ("BOX_RANK", "box_dim must have 2 elements (same as tensor rank), got 3"),
    ("BOX_RANGE", "box_dim[0] must be in [1, 256], got 300"),
    ("ELEM_STRIDES_RANGE", "element_strides[0] must be positive, got 0"),
    ("ADDRESS_ALIGNED", "Assertion failed: is_ok(p). Tensor data pointer must be 16B aligned"),
    ("STRIDE_ALIGNED", "For 2-byte data type, expected multiple of 8, got 1001"),
    ("STRIDE_ALIGNED", "ValueError: q TMA byte strides must be 16-byte aligned and < 2^40"),
    ("ADDRESS_ALIGNED", "ValueError: TMA global_address must be non-null and 16-byte aligned"),
    ("BOX_RANGE", "ValueError: TMA box_dims must be in [1, 256]"),
    ("BOX_RANGE", "buildNdTmaDescriptor: boxDim too large 320"),
    (
        "BOX_INNER_16B",
        "Descriptor block shape must have at least 16 bytes in the last dimension, but got 1 * 4 = "
        "4 bytes",
    ),
    ("STRIDE_INNERMOST", "Tensor descriptor last dim must be 1 but got 64"),
    ("GATHER4", "TILE_GATHER4 requires a rank-2 tensor map with tile_shape[1] == 1, got (7, 2)"),
    ("GATHER4", "TMALoadMode.TILE_GATHER4 is not supported"),
    ("SCATTER4", "Feature '.tile::scatter4' not supported on .target 'sm_121a'"),
    (
        "GATHER4_TARGET",
        "Feature '.tile::gather4 with destination state space as .shared::cluster' not supported "
        "on .target 'sm_121a'",
    ),
]


@pytest.mark.parametrize(("rule", "words"), SAID)
def test_a_check_of_a_printers_own_is_its_rule(rule, words):
    words = words.replace("For 2-byte", "Shape not supported. For 2-byte")
    found = tma.explain(f"RuntimeError: {words}\n")
    assert rules(found) == [[rule]]
    assert found.reports[0].violations[0].fix
    assert found.requests[0].shown().keys() <= {"global_strides"}


def test_every_check_of_the_table_has_a_sample_and_names_a_rule_that_exists():
    said = "\n".join(
        words.replace("For 2-byte", "Shape not supported. For 2-byte") for _, words in SAID
    )
    assert [s for s in SENTENCES if not s.pattern.search(said)] == []
    named = {rule for rule, _ in SAID}
    assert named <= {rule.id for rule in tma.rules()}
    assert named - FIXES.keys() == {"GATHER4", "SCATTER4", "GATHER4_TARGET"}  # their rows have one
    assert FIXES.keys() <= named


def test_a_check_beside_printed_arguments_is_a_note():
    found = tma.explain(f"{SAID[0][1]}\n{MXFP8}")
    assert rules(found) == [["BOX_INNER_16B"]]
    assert "STRIDE_ALIGNED" in notes(found)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_sticky_results_are_an_earlier_kernels_and_no_others(result):
    for text in (
        cutlass(GOOD, result.code),
        cutlass(GOOD) + result.name,
        triton(GOOD, result.words),
    ):
        found = tma.explain(text)
        assert f"{result.code} ({result.name}" in notes(found) or result.code not in STICKY
        assert ("the error of an earlier kernel" in notes(found)) == (result.code in STICKY)


@pytest.mark.parametrize(
    "text", ["an unknown error of the web server", "misaligned address in my C code, out of memory"]
)
def test_words_of_results_that_are_not_about_cuda_are_no_result(text):
    assert "earlier kernel" not in notes(tma.explain(text))


def test_other_results_have_their_own_advice():
    assert "cuInit" in notes(tma.explain(cutlass(GOOD, 3)))
    assert "current context" in notes(tma.explain(cutlass(GOOD, 201)))
    assert "without a broken rule" in notes(tma.explain(cutlass(GOOD, 1)))
    assert "without a broken rule" not in notes(tma.explain(cutlass(ODD_ROW, 1)))


# -- any text -------------------------------------------------------------------------------------

PIECES = [
    *"()[]{}<>,;:=|'\"\\ \n\t",
    "globalDim", "globalStrides", "boxDim", "elementStrides", "swizzle", "format", "dim", "shape",
    "TMA Desc Addr:", "cuTensorMapEncodeTiled(", "gmem_address", "0x7f00", "128", "-1", "1e9",
    "9" * 30, "9" * 5000, "<repeats 999 times>", "deadbeef", "Assertion", "(nil)", "torch.Size([",
    "rank", "None", "nan", "4294967297", "tensorRank=2", "channelsPerPixel", "pixelBoxLowerCorner",
    "Failed to create tensormap", "\x1b[31m", "é", "\x00", "\udc80",
]  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=60).map("".join)))
@example("globalDim=() globalStrides=() boxDim=() swizzle=3")
@example("tensorRank=99999999999999999999 globalDim=(1, 2) boxDim=(1, 2) swizzle=3")
@example("tensorRank=-3 globalDim=(1, 2) boxDim=(1, 2) swizzle=-1")
@example("channelsPerPixel=3 globalDim=(1, 2) swizzle=1 tensorRank=0 elementStrides=(-1, 3)")
def test_no_text_raises(text):
    found = tma.explain(text)
    assert len(found.reports) == len(found.requests)
    assert str(found)
    assert found._repr_html_()


@given(st.data())
def test_no_spoilt_printout_raises(data):
    text = data.draw(st.sampled_from([p(GOOD) for p in SHOWN]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 8))
        text = text[:at] + data.draw(st.sampled_from(["", *PIECES])) + text[at + gone :]
    assert str(tma.explain(text))


def test_an_exception_counts_as_its_message():
    error = RuntimeError("CUDA error: an illegal instruction was encountered")
    assert str(tma.explain(error)) == str(tma.explain(str(error)))
    assert tma.explain(error).symptoms


@pytest.mark.parametrize("text", [3, None, ["globalDim"], object()])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(tma.TmaPreconditionError, match=r"text is .*; it must be a str"):
        tma.explain(text)


def test_a_target_that_is_none_is_refused():
    with pytest.raises(tma.TmaPreconditionError, match="target='sm_1'"):
        tma.explain("", "sm_1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        cutlass(GOOD, 700),
        'File "x.py", line 3, in forward\n    return self.shape(swizzle=3)\n',
        "boxDim         0x79c062c00000(\nglobalDim      )64(\n",
        "globalDim ",
        "x",
        "_",
        "{0x1,",
        "Assert ",
        "0x1 <repeats 999 times> ",
        "\n",
    ],
    ids=lambda p: p[:12].strip() or "newline",
)
def test_huge_logs_do_not_take_quadratic_time(piece):
    """Linear time is one or two seconds (60 on a busy machine); quadratic time would be minutes."""

    def too_long(*_):
        raise TimeoutError("320 kB were not explained in 60 s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    try:
        tma.explain(piece * (320_000 // len(piece)))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- text, HTML, command line ---------------------------------------------------------------------


def test_equal_encodes_are_shown_once():
    printed = str(tma.explain(cutlass(GOOD) * 3))
    assert "encode 1 (3 times the same): lines 1-12, lines 14-25, lines 27-38" in printed
    assert printed.count("all arguments are in order: the driver accepts them") == 1


def test_the_runtimes_names_of_a_launchs_results_are_known():
    text = "cudaErrorLaunchFailure cudaErrorHardwareStackError cudaErrorInvalidPc"
    assert [result.code for result in results_of(text)] == [719, 714, 718]


def test_the_bytes_of_a_programs_output_are_read_as_text():
    assert tma.explain(cutlass(GOOD).encode() + b"\xff").requests[0].box_dim == GOOD.box_dim


def test_html_says_what_the_text_says_and_is_escaped():
    found = tma.explain(cutlass(GOOD.but(box_dim=(64, 300))) + "<b>")
    shown = found._repr_html_()
    assert "BOX_RANGE" in shown
    assert "box_dim=(64, 300)" in shown
    assert "<b>" not in tma.explain("boxDim too large 320 <b>")._repr_html_().replace(
        "<div><b>", ""
    )


def test_explanations_are_immutable_and_belong_to_their_room():
    found = tma.explain(cutlass(GOOD))
    assert type(found).__module__ == type(found.requests[0]).__module__ == "tma_dlpack.debug"
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.notes = ()


def test_the_command_reads_a_file_and_exits_1_where_a_rule_is_broken(tmp_path, capsys):
    log = tmp_path / "log.txt"
    log.write_text("noise\n" + cutlass(GOOD.but(box_dim=(64, 300))))
    page = tmp_path / "page.html"
    assert main(["explain", str(log), "--html", str(page)]) == 1
    assert "box_dim[1] is 300; it must be 1..256" in capsys.readouterr().out
    assert "BOX_RANGE" in page.read_text()
    log.write_text(cutlass(GOOD, 700))
    assert main(["explain", str(log)]) == 0
    assert "earlier kernel" in capsys.readouterr().out


def test_the_command_reads_standard_input_and_raw_bytes(tmp_path, capsys, monkeypatch):
    import io
    import sys

    tm = tma.driver_encode_tiled(
        9, 2, 0x7F3B8A000000, (4096, 128), (8192,), (64, 128), (1, 1), 0, 3, encoder="model"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(tm))))
    assert main(["explain", "-"]) == 0
    assert "global_dim=(4096, 128)" in capsys.readouterr().out
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe" + five((1,), 0).__repr__().encode()))
    )
    assert main(["explain", "-"]) == 2
    assert "no encode was read" in capsys.readouterr().out


def test_the_command_refuses_a_file_that_is_not_there(capsys):
    assert main(["explain", "/no/such/file"]) == 2
    assert capsys.readouterr().err == "error: /no/such/file: no such file or directory\n"


def test_the_repr_is_one_line_of_at_most_200_characters():
    refused = tma.explain(driver_lines(GOOD.but(box_dim=(64, 300))))
    assert repr(refused) == (
        "<Explanation: 1 encode read, checked against the driver's rules on sm_90: 1 refused; 0 "
        "notes>"
    )
    few = repr(tma.explain("globalDim (1001,4096)\nboxDim (64,128)\n"))
    assert (len(few), few.count("\n"), few[-4:]) == (200, 0, "...>")
