"""`tma.suggest`: known results, refused suggestions, and laws that hold for all suggestions."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import math
import pickle
import re
import time
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.cli.main import main
from tma_dlpack.dlpack import Device, as_tensor_view
from tma_dlpack.driver.library import DeviceFacts, DriverStatus
from tma_dlpack.suggestions import reasons, tile_suggestions
from tma_dlpack.suggestions.speeds import CARDS, card_of
from tma_dlpack.suggestions.tile_choices import (
    AS_FAST,
    AS_FAST_ELSEWHERE,
    SuggestRequest,
    column_degree,
)

A = np.zeros((4096, 4096), np.uint16)
BF16 = {"data_type": "BFLOAT16"}


def first(x, tile, **words):
    return tma.suggest(x, tile, **words)[0]


# --- Known answers ------------------------------------------------------------------------------


def test_a_gemm_operand_of_128_bytes_a_row_is_one_copy_with_the_128_byte_swizzle():
    best = first(A, (128, 64), **BF16)
    assert best.arguments == {
        "box_sizes": (128, 64),
        "swizzle": "bytes128",
        "l2_fetch_size": best.arguments["l2_fetch_size"],
        "data_type": "BFLOAT16",
    }
    assert (best.copies, best.tx_bytes, best.smem_bytes, best.smem_alignment) == (
        1, 16384, 16384, 1024,
    )  # fmt: skip
    assert (best.bank_conflicts, best.bandwidth) == (
        1,
        max(CARDS[0].shares(32, 1, 128, 128)),
    )
    assert best.descriptor == tma.matrix_descriptor(tma.make_tma_descriptor(A, **best.arguments))


def test_a_gemm_operand_of_256_bytes_a_row_is_one_copy_of_two_spans():
    best = first(A, (128, 128), stages=3, **BF16)
    assert best.arguments["box_sizes"] == (128, 128)
    assert best.arguments["split_inner"] is True
    assert tma.make_tma_descriptor(A, **best.arguments).box_sizes == (2, 128, 64)
    assert (best.copies, best.tx_bytes, best.smem_bytes) == (1, 32768, 3 * 32768)


def test_without_a_dimension_to_spare_the_same_tile_takes_two_copies():
    x = np.zeros((2, 2, 2, 256, 128), np.float16)
    best = first(x, (1, 1, 1, 128, 128))
    assert (best.arguments["box_sizes"], best.copies) == ((1, 1, 1, 128, 64), 2)


@pytest.mark.parametrize(
    ("columns", "swizzle"), [(16, "bytes32"), (32, "bytes64"), (64, "bytes128")]
)
def test_a_narrow_operand_takes_the_swizzle_of_its_row(columns, swizzle):
    best = first(A, (128, columns), **BF16)
    assert (best.arguments["box_sizes"], best.arguments["swizzle"]) == ((128, columns), swizzle)


def test_rows_beyond_256_are_cut_into_equal_copies():
    best = first(A, (384, 64), **BF16)
    assert (best.arguments["box_sizes"], best.copies) == ((192, 64), 2)


def test_an_mn_major_operand_is_rows_of_k():
    best = first(A, (64, 128), major="MN", **BF16)
    assert (best.arguments["box_sizes"], best.copies) == ((64, 128), 1)
    assert best.descriptor.major == "MN"


def test_a_tile_that_threads_read_by_row_is_widest_without_a_swizzle():
    best = first(A, (64, 128), reader="threads")
    assert (best.arguments["box_sizes"], best.arguments["swizzle"]) == ((64, 128), "none")


def test_a_tile_that_threads_read_by_column_is_swizzled_and_the_conflicts_are_shown():
    found = tma.suggest(A, (64, 128), reader="threads", access="column")
    assert found[0].arguments["swizzle"] == "bytes128"
    assert {one.bank_conflicts for one in found} == {1}
    (left_out,) = found.reasons
    assert left_out == (
        "left out: box (64, 128) with swizzle none, which threads read 8-way"
    )  # fmt: skip


def test_a_function_of_a_thread_counts_in_the_tile_however_it_is_cut():
    """One element of each of 32 rows: 8 banks with the 128-byte swizzle, one bank without."""
    found = tma.suggest(A, (64, 128), reader="threads", access=lambda t: (t, 127))
    assert {one.bank_conflicts for one in found} == {4}
    assert "which threads read 32-way" in found.reasons[0]
    along = tma.suggest(A, (64, 128), reader="threads", access=lambda t: (0, 2 * t))
    assert along[0].bank_conflicts == 1


def test_idle_threads_read_without_conflicts():
    assert first(A, (64, 64), reader="threads", access=lambda t: None).bank_conflicts == 1


def test_a_tile_that_is_only_stored_has_no_reader():
    best = first(A, (64, 128), reader=None)
    assert (best.bank_conflicts, best.descriptor) == (None, None)
    assert best.arguments["box_sizes"] == (64, 128)


def test_tcgen05_of_sm_100_has_no_measured_speed():
    best = first(A, (128, 64), reader="tcgen05", target="sm_100", **BF16)
    assert best.bandwidth is None
    assert best.descriptor.instruction == "tcgen05"
    assert best.arguments["target"] == "sm_100"


def test_a_tile_larger_than_the_tensor_is_filled_with_zeros():
    x = np.zeros((16, 4096), np.float16)
    best = first(x, (64, 64))
    assert best.arguments["allow"] == ("BOX_IN_SHAPE",)
    assert any("what is outside is filled with zeros" in reason for reason in best.reasons)
    assert tma.make_tma_descriptor(x, **best.arguments).tx_bytes == best.tx_bytes


def test_a_tile_of_several_matrices_takes_a_copy_for_each():
    x = np.zeros((4, 256, 64), np.float16)
    best = first(x, (3, 128, 64))
    assert (best.arguments["box_sizes"], best.copies) == ((1, 128, 64), 3)
    thin = np.zeros((3, 1, 16), np.float16)  # its matrices look like spans side by side
    assert first(thin, (2, 8, 16)).arguments["box_sizes"] == (1, 8, 16)


def test_boxes_that_do_not_fit_as_often_as_asked_are_left_out():
    assert first(A, (256, 128), stages=3, **BF16).smem_bytes == 3 * 65536
    none = tma.suggest(A, (256, 128), stages=4, **BF16)
    assert not none
    assert none.reasons == (
        "4 stages of 65536 bytes of shared memory do not fit into 232448: pass stages=3",
    )
    none = tma.suggest(A, (256, 128), smem_bytes=65535, **BF16)
    assert none.reasons == (
        "1 stage of 65536 bytes of shared memory do not fit into 65535: take a smaller tile, such "
        "as (128, 128)",
    )
    assert tma.suggest(A, (128, 128), smem_bytes=65535, **BF16)
    unread = tma.suggest(A, (42, 64), stages=3, smem_bytes=15000, **BF16)  # 42 rows are no atoms
    assert "take a smaller tile, such as (16, 32)" in unread.reasons[0]
    assert tma.suggest(A, (16, 32), stages=3, smem_bytes=15000, **BF16)
    assert tma.suggest(A, (256, 128), smem_bytes=65536, **BF16)


# --- Nothing to suggest -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "tile", "words", "reason"),
    [
        (np.zeros((100, 132), np.float16), (64, 64), {},
         "tensor.strides[0] is 132 elements, 264 bytes; it must be a multiple of 16 bytes. pad the "
         "last dimension from 132 to 136 elements: y = numpy.empty((100, 136), x.dtype)[..., :132]"
         "; y[...] = x"),
        (A[:, ::2], (64, 64), {},
         "tensor.strides[1] is 2 elements; it must be 1: the last dimension must be contiguous"),
        (A, (1, 256), {},
         "the tile is one contiguous row of 512 bytes: cp.async.bulk copies it without a tensor "
         "map"),
        (A, (8, 16), {},
         "the tile has 256 bytes: a warp loads 512 in one instruction"),
        (A, (64, 4), BF16,
         "a row of the tile is 8 bytes, and a copy takes multiples of 16 bytes: take a tile of "
         "(64, 16), or copy it with plain loads"),
        (A, (64, 4), {"reader": None},
         "a row of the tile is 8 bytes, and a copy takes multiples of 16 bytes: take a tile of "
         "(64, 8), or copy it with plain loads"),
        (A, (64, 4), {},
         "a row of the tile is 8 bytes, and a copy takes multiples of 16 bytes: copy it with plain "
         "loads"),
        (np.zeros((64, 64), np.float32), (64, 32), {},
         "wgmma cannot read it, in whatever boxes"),
        (A, (60, 64), {"reader": "ldmatrix"},
         "ldmatrix cannot read it: M or N is 60, no multiple of 8; 56 or 64 works: take a tile of "
         "(56, 64) or (64, 64)"),
        (A, (128, 72), BF16,
         "wgmma cannot read it: K is 72, no multiple of 16; 64 or 80 works: take a tile of "
         "(128, 64) or (128, 80)"),
        (A, (72, 64), BF16 | {"major": "mn"},
         "wgmma cannot read it: K is 72, no multiple of 16; 64 or 80 works: take a tile of "
         "(64, 64) or (80, 64)"),
        (A, (128, 8), BF16,
         "wgmma cannot read it: K is 8, no multiple of 16; 16 works: take a tile of (128, 16)"),
        (A, (128, 64), {"target": "sm_120", "data_type": "BFLOAT16"},
         "wgmma cannot read it, in whatever boxes"),
    ],
    ids=["stride", "inner stride", "a row", "few bytes", "8 bytes", "8 bytes, stored",
         "8 bytes, type", "type", "60 rows", "K = 72", "K = 72 rows", "K = 8", "no wgmma"],
)  # fmt: skip
def test_where_tma_is_no_help_the_reasons_say_what_to_do(x, tile, words, reason):
    found = tma.suggest(x, tile, **words)
    assert len(found) == 0
    assert found.reasons[0].startswith(reason)
    assert "no suggestion" in str(found)
    assert reason.split(":")[0].split("'")[0] in " ".join(str(found).split())


@pytest.mark.parametrize(
    ("tile", "words"), [((2, 256), {"reader": None}), ((8, 32), BF16), ((64, 8), {"reader": None})]
)
def test_a_step_further_there_is_a_suggestion(tile, words):
    assert tma.suggest(A, tile, **words)


@pytest.mark.parametrize(
    ("tile", "example"),
    [
        ((128, 128), (1, 1, 128, 128)),
        ((64,), (1, 1, 1, 64)),
        ((1, 1, 1, 64, 64), (1, 1, 64, 64)),
        ("32, 64", (1, 1, 32, 64)),
        (None, (1, 1, 64, 64)),
    ],
)
def test_a_tile_of_another_rank_is_answered_with_what_was_given(tile, example):
    x = np.zeros((2, 8, 512, 64), np.float16)
    with pytest.raises(tma.TmaPreconditionError) as refused:
        tma.suggest(x, tile)
    (violation,) = refused.value.violations
    assert violation.fix == f"pass its extents row-major, such as {example}"
    tma.suggest(x, example)


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("reader", ["wgmma", "ldmatrix", "threads"])
def test_a_permute_is_advised_in_the_words_of_suggest_and_flips_the_major(major, reader):
    x = np.zeros((4096, 128), np.float16).T
    (reason, _) = tma.suggest(x, (64, 128), major=major, reader=reader).reasons
    code, other = "pass x.transpose(1, 0) with tile=(128, 64)", "K" if major == "MN" else "MN"
    assert (f"{code} and major={other!r};" in reason) is (reader != "threads")
    assert code in reason
    assert tma.suggest(x.transpose(1, 0), (128, 64), major=other, reader=reader)


def test_a_permute_that_leaves_k_in_its_place_does_not_flip_the_major():
    x = np.zeros((64, 128, 8), np.float16).transpose(2, 0, 1)  # its first dimension is contiguous
    (reason, _) = tma.suggest(x, (8, 64, 64)).reasons
    assert "pass x.transpose(1, 2, 0) with tile=(64, 64, 8)" in reason
    assert "major" not in reason


def test_a_stride_that_no_copy_takes_is_answered_with_loads_and_a_wrong_type_is_not():
    assert "plain loads" in tma.suggest(A[:, ::2], (64, 64)).reasons[-1]
    of_int8 = tma.suggest(np.zeros((64, 64), np.int8), (64, 64))
    assert of_int8.reasons == (
        "tensor.dtype is int8; it must be one that tensor maps have: uint8/16/32/64, int32/64, "
        "float16/32/64, bfloat16, bool, a float8, or 4-bit values of 16 lanes (or float4_e2m1fn). "
        "pass data_type='UINT8': TMA copies bits, so int8 values arrive unchanged",
    )


@examples(60)
@given(st.data())
def test_every_tile_that_a_reason_names_has_a_suggestion(data):
    words = {
        "reader": data.draw(st.sampled_from(("wgmma", "tcgen05", "ldmatrix", "threads", None))),
        "major": data.draw(st.sampled_from(("K", "MN"))),
        "smem_bytes": data.draw(st.sampled_from((None, 10_000, 50_000))),
        "stages": data.draw(st.sampled_from((1, 1, 3))),
    }
    x = np.zeros((2, 512, 4096), data.draw(st.sampled_from(("f2", "u1", "f4"))))
    words["data_type"] = DTYPES[x.dtype.str[1:]]
    tile = (1, data.draw(st.integers(2, 400)), data.draw(st.integers(1, 600)))
    found = tma.suggest(x, tile, **words)
    text = " ".join(found.reasons)
    named = [] if found else re.findall(r"(?:tile of|or|such as) \((\d+), (\d+), (\d+)\)", text)
    for extents in named:
        assert tma.suggest(x, tuple(map(int, extents)), **words), (tile, words, text)
    stages = re.search(r"pass stages=(\d+)", text)
    if stages and not found:
        assert tma.suggest(x, tile, **words | {"stages": int(stages[1])})


@pytest.mark.parametrize("tile", [(1 << 20, 1 << 20), (720720, 720720), (4096, 4096), (2000, 64)])
def test_a_tile_that_fits_into_no_shared_memory_is_noticed_at_once(tile, monkeypatch):
    def no_box(wanted):
        raise AssertionError("no box need be tried")

    with monkeypatch.context() as patched:
        patched.setattr(tile_suggestions, "choices", no_box)
        found = tma.suggest(A, tile, **BF16)
        assert not found
    begin = time.perf_counter()
    (reason,) = found.reasons
    assert time.perf_counter() - begin < 2  # it took 80 s; this is a tenth, where it is slow
    smaller = re.search(r"take a smaller tile, such as \((\d+), (\d+)\)$", reason)
    assert tma.suggest(A, tuple(map(int, smaller.groups())), **BF16)


def test_a_tile_of_many_boxes_is_judged_quickly():
    x = np.zeros((64, 64, 64, 64, 64), np.uint8)
    begin = time.perf_counter()
    assert not tma.suggest(x, (12, 12, 12, 12, 10), reader="threads", smem_bytes=1000)
    assert not tma.suggest(x, (12, 12, 12, 6, 17 * 16), reader="ldmatrix", smem_bytes=1000)
    assert time.perf_counter() - begin < 2


def test_narrow_rows_are_called_slow():
    narrow = first(A, (64, 8), reader=None)
    assert any(reason.startswith("slow: narrow lines") for reason in narrow.reasons)
    assert not any("slow" in reason for reason in first(A, (64, 64), reader=None).reasons)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"tile": (128,)}, "tile is (128,); it must be 2 positive integers"),
        ({"tile": (128, 0)}, "tile is (128, 0); it must be 2 positive integers"),
        ({"tile": 64}, "tile is 64; it must be"),
        ({"reader": "mma"}, "reader is 'mma'; it must be one of 'wgmma', 'tcgen05', 'ldmatrix'"),
        ({"major": "M"}, "major is 'M'; it must be 'K' or 'MN'"),
        ({"major": None}, "major is None; it must be 'K' or 'MN'"),
        ({"rules": "strict"}, "rules is 'strict'"),
        ({"allow": 3}, "allow is 3"),
        ({"allow": "BOX_RANGE"}, "BOX_RANGE"),
        ({"access": "diagonal"}, "access is 'diagonal'; it must be 'row', 'column' or a function"),
        ({"stages": 0}, "stages is 0; it must be an integer of at least 1"),
        ({"stages": 2.0}, "stages is 2.0; it must be an integer of at least 1"),
        ({"smem_bytes": 0}, "smem_bytes is 0; it must be a number of bytes, or None"),
        ({"smem_bytes": "1 KB"}, "smem_bytes is '1 KB'; it must be a number of bytes, or None"),
        ({"data_type": "BF17"}, "data_type is 'BF17'"),
        ({"target": "sm_9"}, "target='sm_9'; it must be sm_90"),
        ({"reader": "threads", "access": lambda t: (t, 64)},
         "access(0) returns (0, 64); it must return an index into the tile, which has shape"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_read_are_refused(words, said):
    with pytest.raises(tma.TmaPreconditionError, match=re.escape(said)):
        tma.suggest(A, **{"tile": (128, 64)} | words)


def test_another_reader_is_refused_with_what_to_name():
    with pytest.raises(tma.TmaPreconditionError) as refused:
        tma.suggest(A, (128, 64), reader="mma")
    fix = "choose who reads the tile in shared memory; None if it is only stored"
    assert refused.value.violations[0].fix == fix


def test_what_is_no_tensor_is_refused():
    with pytest.raises(tma.TmaPreconditionError, match="TENSOR_TYPE"):
        tma.suggest(3, (64, 64))


# --- Rules, views, majors -----------------------------------------------------------------------

Q = np.zeros((2, 512, 8, 64), np.float16)  # batch, sequence, heads, channels
PERMUTED = {"allow": ("STRIDE_UNIQUE",)}


@pytest.mark.parametrize("ids", [[], ["BOX_IN_SHAPE"], ["BOX_IN_SHAPE", "STRIDE_UNIQUE"]])
def test_rules_to_allow_may_be_in_a_list_or_an_array(ids):
    expected = tma.suggest(A, (64, 64), allow=tuple(ids))
    assert list(tma.suggest(A, (64, 64), allow=ids)) == list(expected)
    assert list(tma.suggest(A, (64, 64), allow=np.array(ids, str))) == list(expected)


def test_a_permuted_view_is_served_and_says_what_it_allows():
    x = Q.transpose(0, 2, 1, 3)
    with pytest.raises(tma.TmaPreconditionError, match="STRIDE_UNIQUE"):
        tma.make_tma_descriptor(x, (1, 1, 128, 64))
    best = first(x, (1, 1, 128, 64))
    assert best.arguments["allow"] == ("STRIDE_UNIQUE",)
    assert best.arguments["box_sizes"] == (1, 1, 128, 64)
    assert tma.make_tma_descriptor(x, **best.arguments).tx_bytes == 16384
    assert best.reasons[-2:] == (
        "the strides (262144, 64, 512, 1) are not those of ordered, separate rows",
        "allow=('STRIDE_UNIQUE',): the driver itself accepts this and copies the elements at these "
        "strides",
    )
    assert "allow" not in first(Q, (1, 128, 1, 64)).arguments


def test_a_permuted_view_of_fewer_rows_than_the_tile_allows_both():
    best = first(Q[:, :100].transpose(0, 2, 1, 3), (1, 1, 128, 64))
    assert set(best.arguments["allow"]) == {"STRIDE_UNIQUE", "BOX_IN_SHAPE"}
    assert tma.make_tma_descriptor(Q[:, :100].transpose(0, 2, 1, 3), **best.arguments)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"rules": "driver"}, {"rules": "driver"}),
        ({"allow": "STRIDE_UNIQUE"}, PERMUTED),
        ({"allow": ["STRIDE_UNIQUE"]}, PERMUTED),
        ({"allow": iter(["STRIDE_UNIQUE"])}, PERMUTED),
        ({"allow": ("BOX_IN_SHAPE",)}, {"allow": ("BOX_IN_SHAPE", "STRIDE_UNIQUE")}),
        ({"rules": "libcu++", "allow": ()}, PERMUTED),
    ],
    ids=["driver", "a string", "a list", "an iterator", "another", "none"],
)
def test_rules_and_allow_are_part_of_the_suggestion(given, kept):
    x = Q.transpose(0, 2, 1, 3)
    for one in tma.suggest(x, (1, 1, 128, 64), **given):
        words = one.arguments
        assert {name: words[name] for name in ("rules", "allow") if name in words} == kept
        assert tma.make_tma_descriptor(x, **words).tx_bytes == one.tx_bytes


def test_the_drivers_rules_take_a_tile_beyond_the_tensor_without_allow():
    x = np.zeros((16, 4096), np.float16)
    best = first(x, (64, 64), rules="driver")
    assert best.arguments["rules"] == "driver"
    assert "allow" not in best.arguments
    assert tma.make_tma_descriptor(x, **best.arguments)


def test_a_stride_that_no_rule_lifts_is_refused_however_much_is_allowed():
    x = np.zeros((4, 100, 132), np.float16).transpose(1, 0, 2)
    (reason, _) = tma.suggest(x, (64, 1, 64)).reasons
    assert reason.startswith("tensor.strides[1] is 132 elements") or "132" in reason


@pytest.mark.parametrize("major", ["mn", "Mn", "MN"])
def test_a_major_may_be_written_small(major):
    found = tma.suggest(A, (64, 128), major=major, **BF16)
    assert found == tma.suggest(A, (64, 128), major="MN", **BF16)
    tm = tma.make_tma_descriptor(A, **found[0].arguments)
    assert tma.matrix_descriptor(tm, major=major) == found[0].descriptor


def test_a_tensor_without_an_owner_has_the_same_suggestions():
    """The command line describes tensors that do not exist, so Python checks them, not C."""
    for x, tile in ((A, (128, 128)), (Q.transpose(0, 2, 1, 3), (1, 1, 128, 64))):
        words = {"reader": "wgmma", "major": "K", "access": "row", "stages": 1, "smem_bytes": None}
        options = {"data_type": "BFLOAT16"} if x is A else {}
        view = as_tensor_view(x)
        bare = tile_suggestions.suggest_view(view.at(view.address), tile, options, **words)
        assert bare == tma.suggest(x, tile, **options)
        assert [one.reasons for one in bare] == [
            one.reasons for one in tma.suggest(x, tile, **options)
        ]


@examples(100)
@given(st.data())
def test_conflicts_of_eight_rows_are_those_of_all_rows(data):
    swizzle = data.draw(st.sampled_from(("none", "bytes32", "bytes64", "bytes128")))
    most = {"none": 512, "bytes32": 32, "bytes64": 64, "bytes128": 128}[swizzle]
    width = 16 * data.draw(st.integers(1, most // 16))
    rows = data.draw(st.integers(1, 64))
    x = np.zeros((64, 4096), np.uint16)
    split = width == most and swizzle != "none" and data.draw(st.booleans())
    tm = tma.make_tma_descriptor(
        x, (rows, width // 2 * (2 if split else 1)), swizzle=swizzle, split_inner=split
    )
    assert column_degree(tm) == tma.bank_conflicts(tm).degree


# --- Speeds of cards ----------------------------------------------------------------------------


def test_every_card_has_speeds_of_every_kind_of_box():
    for card, begin, spans in itertools.product(CARDS, (16, 32), (1, 2, 5, 32)):
        for line_bytes, lines in itertools.product((16, 48, 64, 100, 128, 512), (1, 8, 100, 256)):
            shares = card.shares(begin, spans, line_bytes, lines)
            assert len(shares) == 3
            assert all(0.2 < share < 1.1 for share in shares)


def named(gpu, target=None):
    facts = DeviceFacts(0, gpu, target or tma.TARGETS["sm_90"])
    return lambda: DriverStatus(13000, (facts,), None)


@pytest.mark.parametrize(
    ("gpu", "name", "other"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", None),
        ("NVIDIA H200", "NVIDIA H200", None),
        ("NVIDIA GH200 480GB", "NVIDIA H200", "NVIDIA GH200 480GB"),
        ("NVIDIA H100 PCIe", "NVIDIA H200", "NVIDIA H100 PCIe"),
    ],
)
def test_speeds_are_those_of_the_tensors_gpu(gpu, name, other, monkeypatch):
    monkeypatch.setattr(driver, "status", named(gpu))
    card, another = card_of(Device(2, 0))
    assert (card.name, another) == (name, other)
    host, _ = card_of(Device(1, 0))
    assert host is CARDS[0]


@pytest.mark.parametrize(
    ("gpu", "device_type", "as_fast"),
    [("NVIDIA H200", 2, AS_FAST), ("NVIDIA H100 PCIe", 2, AS_FAST_ELSEWHERE),
     ("NVIDIA H200", 1, AS_FAST_ELSEWHERE)],
)  # fmt: skip
def test_another_cards_speeds_decide_only_beyond_what_cards_differ_by(
    gpu, device_type, as_fast, monkeypatch
):
    monkeypatch.setattr(driver, "status", named(gpu))
    view = dataclasses.replace(as_tensor_view(A), device=Device(device_type, 0))
    wanted = SuggestRequest(view, (8, 8), None, "K", "row", CARDS[0], {})
    assert wanted.as_fast == as_fast


def test_speeds_of_another_card_say_whose_they_are(monkeypatch):
    assert any("(measured, H200, driver" in reason for reason in first(A, (64, 64), **BF16).reasons)
    monkeypatch.setattr(reasons, "card_of", lambda device: (CARDS[0], "NVIDIA GH200"))
    for words in ({}, {"target": "sm_100", "reader": "tcgen05"}):
        text = " ".join(first(A, (64, 64), **words, **BF16).reasons)
        assert "(not measured on NVIDIA GH200; on an H200, driver" in text


# --- Laws ---------------------------------------------------------------------------------------

DTYPES = {"f2": "FLOAT16", "u2": "BFLOAT16", "f4": "TFLOAT32", "u1": "UINT8"}


@st.composite
def questions(draw):
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    size = np.dtype(dtype).itemsize
    rank = draw(st.sampled_from((2, 2, 2, 3)))
    rows = draw(st.sampled_from((2, 8, 24, 64, 100, 128, 320)))
    width = draw(st.sampled_from((16, 32, 48, 64, 128, 160, 256, 384))) // size
    outer = (draw(st.sampled_from((1, 2))),) if rank == 3 else ()
    shape = (*(n + 1 for n in outer), draw(st.integers(1, 400)), width * draw(st.integers(1, 3)))
    words = {
        "reader": draw(st.sampled_from(("wgmma", "tcgen05", "ldmatrix", "threads", None))),
        "major": draw(st.sampled_from(("K", "MN"))),
        "access": draw(st.sampled_from(("row", "column"))),
        "stages": draw(st.sampled_from((1, 2, 4))),
        "data_type": DTYPES[dtype],
    }
    rng = np.random.default_rng(rows * width)
    x = rng.integers(0, 99, shape).astype(dtype)
    return x, (*outer, rows, width), words


def places(suggestion, tile, tensor_map):
    """Return the coordinates of the suggestion's copies, for the tile at the tensor's start."""
    box = tensor_map.box_sizes
    is_split = len(box) > len(tile)
    whole = (*box[1:-1], box[0] * box[-1]) if is_split else box
    steps = [range(0, n, step) for n, step in zip(tile, whole, strict=True)]
    for at in np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(tile)):
        start = tuple(int(i) for i in at)
        coords = (start[-1] // box[-1], *start[:-1], 0) if is_split else start
        yield tuple(slice(i, i + n) for i, n in zip(start, whole, strict=True)), coords


def in_tile(array, tile):
    """Return the copied elements, in the tensor's own dimensions."""
    if array.ndim == len(tile):
        return array
    moved = np.moveaxis(array, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)


def padded(x, tile):
    """Return the tile at the start of x as the copies fill it, with zeros outside of x."""
    out = np.zeros(tile, x.dtype)
    inside = tuple(slice(0, min(n, m)) for n, m in zip(x.shape, tile, strict=True))
    out[inside] = x[inside]
    return out


@examples(120)
@given(questions())
def test_every_suggestion_is_accepted_covers_the_tile_and_is_read(question):
    x, tile, words = question
    found = tma.suggest(x, tile, **words)
    assert bool(found) is (len(found) > 0)
    assert found or found.reasons
    wanted = padded(x, tile)
    for one in found:
        tm = tma.make_tma_descriptor(x, **one.arguments)
        assert one.copies * one.tx_bytes == math.prod(tile) * x.itemsize
        assert (one.tx_bytes, one.smem_alignment) == (tm.tx_bytes, tm.smem_alignment)
        assert one.smem_bytes % one.smem_alignment == 0
        assert one.smem_bytes >= words["stages"] * one.copies * tm.smem_bytes
        assert one.smem_bytes <= 232_448
        reached = np.zeros(tile, int)
        for n, (where, coords) in enumerate(places(one, tile, tm)):
            reached[where] += 1
            if n in (0, one.copies - 1):
                loaded = tma.load_tile(tm, coords)
                assert in_tile(loaded.array, tile).tobytes() == wanted[where].tobytes()
                if one.descriptor is not None:
                    seen = one.descriptor.read(loaded.smem)
                    assert seen.tobytes() == wanted[where].tobytes()
        assert (reached == 1).all()


@examples(60)
@given(questions())
def test_no_suggestion_is_faster_than_one_before_it_beyond_the_noise(question):
    x, tile, words = question
    found = tma.suggest(x, tile, **words)
    for before, after in itertools.pairwise(found):
        assert after.bandwidth <= before.bandwidth / AS_FAST_ELSEWHERE
        if after.bandwidth == before.bandwidth:
            assert after.copies >= before.copies


# --- As a value, as text, on the command line ---------------------------------------------------


def test_an_item_of_an_empty_answer_raises_with_the_reasons():
    none = tma.suggest(A, (128, 72), **BF16)
    with pytest.raises(IndexError, match=r"64\) or\s+\(128, 80\)") as caught:
        none[0]
    assert isinstance(caught.value, tma.TmaError)
    assert str(caught.value) == str(none)
    assert (list(none), none[:1], len(none)) == ([], (), 0)
    with pytest.raises(IndexError, match="tuple index out of range"):
        tma.suggest(A, (128, 64), **BF16)[99]


@pytest.mark.parametrize("tile", [(128, 64), (128, 72), (1, 64), (4096, 4096)])
@pytest.mark.parametrize("reader", ["wgmma", "threads", None])
def test_repr_is_one_line(tile, reader):
    found = tma.suggest(A, tile, reader=reader, access=lambda t: (0, 0), **BF16)
    for value in (found, *found):
        assert "\n" not in repr(value)
        assert len(repr(value)) <= 200
    long = tma.suggest(np.zeros((1,) * 30 + (64, 64)), (1,) * 30 + (64, 64))
    assert len(repr(long)) <= 200


def test_repr_names_the_first():
    assert repr(tma.suggest(A, (128, 128), **BF16)).endswith(
        "for tile (128, 128) of uint16 (4096, 4096), read by wgmma, K-major; first: box 128x128, "
        f"split, bytes128, L2 {first(A, (128, 128), **BF16).arguments['l2_fetch_size']}>"
    )
    assert repr(tma.suggest(A, (128, 72), **BF16)) == (
        "<Suggestions: none for tile (128, 72) of uint16 (4096, 4096), read by wgmma, K-major>"
    )


def test_no_reason_is_made_before_it_is_read(monkeypatch):
    def no_words(*arguments):
        raise AssertionError("nobody read the reasons")

    words = [
        name for name in vars(reasons) if name.startswith(("of_", "_narrow", "_reasons_of", "_few"))
    ]
    assert len(words) == 8
    for name in words:
        monkeypatch.setattr(reasons, name, no_words)
    found = tma.suggest(A, (128, 64), **BF16)
    with pytest.raises(AssertionError, match="nobody read"):
        assert found[0].reasons
    assert not tma.suggest(A, (128, 72), **BF16)


def test_suggestions_keep_no_tensor_and_survive_a_pickle():
    x = np.zeros((4096, 4096), np.float16)
    alive = weakref.ref(x)
    some, none = tma.suggest(x, (128, 64)), tma.suggest(x, (128, 72))
    del x
    gc.collect()
    assert alive() is None
    for found in (some, none):
        again = pickle.loads(pickle.dumps(found))
        assert (again, again.reasons) == (found, found.reasons)
        assert [one.reasons for one in again] == [one.reasons for one in found]
    assert "80 works" in none.reasons[0]


def test_suggestions_are_a_sequence_that_does_not_change():
    found = tma.suggest(A, (128, 64), **BF16)
    assert found[0] == next(iter(found)) == found[:1][0]
    assert list(reversed(found))[-1] is found[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.items = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].copies = 2


def test_the_text_is_a_table_with_the_reasons_of_the_first():
    title, head, row, *rest = str(tma.suggest(A, (128, 128), stages=4, **BF16)).splitlines()
    assert title == "tile (128, 128) of uint16 (4096, 4096), read by wgmma, K-major"
    assert head.split() == [
        *("box", "swizzle", "L2", "fetch", "copies", "tx", "bytes", "smem", "bytes", "aligned"),
        *("conflicts", "of", "memcpy"),
    ]
    assert row.split()[:4] == ["1", "128x128,", "split", "bytes128"]
    assert row.split()[5:10] == ["1", "32768", "131072", "1024", "free"]
    text = " ".join(" ".join(rest).split())
    assert "one copy fills the tile: box (128, 128) with swizzle bytes128" in text
    assert (
        "in a box (2, 128, 64); the coordinates of a tile at (.., m, k) are (k / 64, .., m, 0)"
        in text
    )
    assert "wgmma reads a copy in 8 steps of K: 0x4000004000010000 at shared address 0" in text


def test_the_html_has_the_table_and_escapes_what_users_write():
    def access(thread):
        return (thread, 0)

    page = tma.suggest(A, (64, 64), reader="threads", access=access)._repr_html_()
    assert "<td>64x64</td><td>bytes128</td>" in page
    empty = tma.suggest(A, (1, 64))._repr_html_()
    assert "no suggestion" in empty
    assert "cp.async.bulk copies it" in empty


def test_the_command_prints_the_table_and_exits_1_where_there_is_none(capsys):
    words = ["suggest", "--shape", "4096,4096", "--dtype", "bfloat16", "--tile", "128,64"]
    assert main(words) == 0
    assert "128x64  bytes128" in capsys.readouterr().out
    assert main([*words, "--stages", "15"]) == 1
    assert "pass stages=14" in capsys.readouterr().out
    assert main([*words, "--reader", "none"]) == 0
    assert "only stored" in capsys.readouterr().out
    assert main([*words, "--strides", "4098,1"]) == 1
    assert "tensor.strides[0] is 4098 elements, 8196 bytes" in capsys.readouterr().out
    assert main([*words, "--rules", "driver", "--json"]) == 0
    assert '"rules": "driver"' in capsys.readouterr().out
    permuted = ["suggest", "--shape=2,8,512,64", "--strides=262144,64,512,1", "--dtype=bf16"]
    assert main([*permuted, "--tile=1,1,128,64", "--allow", "BOX_IN_SHAPE", "--json"]) == 0
    allowed = json.loads(capsys.readouterr().out)["items"][0]["arguments"]["allow"]
    assert allowed == ["BOX_IN_SHAPE", "STRIDE_UNIQUE"]
    assert main([*words[:-1], "64,128", "--major", "mn"]) == 0
    assert "read by wgmma, MN-major" in capsys.readouterr().out
    assert main([*words, "--major", "m"]) == 2
    assert "major is 'm'; it must be 'K' or 'MN'" in capsys.readouterr().err
