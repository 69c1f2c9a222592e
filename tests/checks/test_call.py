"""A user's arguments become a request: order of dimensions, words, and unreadable values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from strategies import IM2COL_SPEC, TILED_SPEC, WIDE_SPEC, Door, im2col, tiled, view

import tma_dlpack as tma
from tma_dlpack.checks import call
from tma_dlpack.checks.call import read_call, read_driver_call
from tma_dlpack.checks.struct import set_of_rules
from tma_dlpack.tables.coerce import counted, nearest_integer, reusable, shown, text_of
from tma_dlpack.tables.enums import TmaInterleaveLayout, TmaSwizzle
from tma_dlpack.tables.targets import TARGETS

SM_90, SM_100 = TARGETS["sm_90"], TARGETS["sm_100"]


def request_of(kind, x, given):
    return read_call(kind, x.at(0), x.address, given, SM_90, False)


def test_row_major_becomes_innermost_first():
    x = view((2, 3, 64))
    request = request_of("tiled", x, tiled((1, 2, 16), elem_strides=[1, 2, 3]))
    assert (
        request.arguments.global_dim,
        request.arguments.global_strides,
        request.facts.inner_stride,
    ) == ((64, 3, 2), (256, 768), 1)
    assert (request.arguments.box_dim, request.arguments.element_strides) == ((16, 2, 1), (3, 2, 1))
    assert request.encode_arguments().element_strides == (1, 2, 1)


def test_corners_become_w_first():
    x = view((2, 5, 6, 7, 64))
    request = request_of("im2col", x, im2col((-1, -2, -3), (1, 2, 3), 8, 16))
    assert (request.arguments.pixel_box_lower_corner, request.arguments.pixel_box_upper_corner) == (
        (-3, -2, -1),
        (3, 2, 1),
    )
    assert request.arguments.element_strides == (1,) * 5


def test_words_become_members():
    request = request_of(
        "tiled", view((2, 2, 64)), tiled((1, 1, 8), interleave_layout=1, swizzle="bytes32")
    )
    assert (request.arguments.interleave, request.arguments.swizzle) == (
        TmaInterleaveLayout.bytes16,
        TmaSwizzle.bytes32,
    )
    assert request.unreadable == ()


def test_a_request_holds_neither_address_nor_owner_of_the_tensor_in_its_view():
    request = request_of("tiled", view((64, 64)), tiled((16, 16)))
    assert (request.view.address, request.view.owner, request.view.capsule) == (0, None, None)
    assert request.address == view((64, 64)).address


def test_every_argument_that_cannot_be_read_is_named():
    options = tiled(
        "ab", elem_strides=5, interleave_layout="x", swizzle=None, l2_fetch_size=[], oobfill=2,
        data_type="u4", rules="cuda",
    )  # fmt: skip
    request = request_of("tiled", view((64, 64)), options)
    fine = {"target", "allow", "shape", "strides", "offset", "split_inner", "ragged"}
    assert {v.argument for v in request.unreadable} == set(options) - fine
    assert {v.rule for v in request.unreadable} == {"ARGUMENT"}
    assert request.proposals == {"swizzle": "none"}  # the name of None


@pytest.mark.parametrize(
    ("argument", "value", "found", "limit", "fix"),
    [
        (
            "swizzle",
            "byte128",
            "swizzle is 'byte128'",
            "it must be a TmaSwizzle, its name or its value",
            "did you mean 'bytes128'?",
        ),
        (
            "box_sizes",
            {16, 32},
            "box_sizes is {",
            "it must be a sequence of ints, one per dimension",
            "pass a tuple of ints, such as (64, 64)",
        ),
        (
            "box_sizes",
            "64,64",
            "box_sizes is '64,64'",
            "it must be a sequence of ints, one per dimension",
            "pass a tuple of ints, such as (64, 64); did you mean (64, 64)?",
        ),
        (
            "oobfill",
            float("nan"),
            "oobfill is nan",
            "it must be a TmaOobFill, its name or its value",
            "did you mean 'nan'?",
        ),
        (
            "data_type",
            "UNIT8",
            "data_type is 'UNIT8'",
            "it must be a TensorMapDataType, its name or its value",
            "did you mean 'UINT8'?",
        ),
        ("rules", "cuda", "rules is 'cuda'", "it must be one of 'libcu++', 'driver'", "libcu++"),
    ],
)
def test_what_cannot_be_read_is_explained(argument, value, found, limit, fix):
    (violation,) = request_of("tiled", view((64, 64)), tiled((1, 1)) | {argument: value}).unreadable
    assert violation.argument == argument
    assert violation.found.startswith(found)
    assert violation.limit == limit
    assert fix in violation.fix


def test_what_an_unreadable_argument_could_look_like_is_accepted():
    x = np.zeros((256, 4096), np.float16)
    report = tma.check_tma_descriptor(x, "?", elem_strides="?")
    examples = {v.argument: v.fix.partition("such as ")[2] for v in report.violations}
    assert examples == {"box_sizes": "(64, 64)", "elem_strides": "(1, 1)"}
    assert tma.check_tma_descriptor(x, **{n: eval(t) for n, t in examples.items()}).ok

    images = np.zeros((2, 14, 14, 64), np.float16)
    report = tma.check_im2col_descriptor(images, "?", "?", "?", "?")
    examples = {v.argument: v.fix.partition("such as ")[2] for v in report.violations}
    assert set(examples.values()) == {"(-1, -1)", "64", "128"}
    assert tma.check_im2col_descriptor(images, **{n: eval(t) for n, t in examples.items()}).ok


def test_what_an_unreadable_argument_of_the_driver_could_look_like_is_accepted():
    names = ("tensor_rank", "global_address", "global_dim", "global_strides", "box_dim")
    fine = ["FLOAT16", "?", "?", "?", "?", "?", "?", 0, 0, 0, 0]
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.driver_encode_tiled(*fine, encoder="model")
    examples = {v.argument: v.fix.partition("such as ")[2] for v in caught.value.violations}
    assert {*examples} <= {*names, "element_strides"}
    given = dict.fromkeys(("interleave", "swizzle", "l2_promotion", "oob_fill"), 0)
    given |= {n: eval(call._INTEGERS[n][0]) for n in (*names, "element_strides")}
    tm = tma.driver_encode_tiled(tensor_data_type="FLOAT16", encoder="model", **given)
    assert tm.box_dim == (64, 64)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (64, 64), (64.0, 64), (np.float32(8), 8), (Fraction(16), 16), (10**30, 10**30),
        (64.5, None), (float("inf"), None), (float("nan"), None), (True, None), ("64", 64),
        (np.bool_(True), None), (TmaSwizzle.bytes32, None), (1j, None), (1 << 5000, None),
    ],
)  # fmt: skip
def test_the_integer_that_was_meant(value, meant):
    assert nearest_integer(value) == meant


def test_packed_values_are_counted_in_values():
    float4 = request_of("tiled", view((8, 64), (17, 4, 2)), tiled((4, 32)))
    assert (float4.arguments.global_dim, float4.arguments.global_strides) == ((128, 8), (64,))
    odd = request_of("tiled", view((8, 63), (1, 8)), tiled((4, 32), data_type="16U6_ALIGN16B"))
    assert odd.arguments.global_dim == (84, 8)
    ragged = request_of("tiled", view((8, 64), (1, 8)), tiled((4, 32), data_type="16U6_ALIGN16B"))
    assert ragged.arguments.global_dim == (Fraction(256, 3), 8)


@pytest.mark.parametrize(
    ("kind", "rules", "target", "rows"),
    [
        ("tiled", "libcu++", SM_90, "libcu++"),
        ("tiled", "driver", SM_90, "driver"),
        ("tiled", "driver", SM_100, "driver"),
        ("im2col", "documented", SM_90, "documented"),
        ("im2col", "driver", SM_90, "measured"),
        ("im2col", "driver", SM_100, "documented"),
        ("im2col_wide", "driver", SM_90, "measured"),
    ],
)
def test_the_rows_that_rules_stand_for(kind, rules, target, rows):
    assert set_of_rules(kind, rules, target) == rows


@pytest.mark.parametrize("spec", [TILED_SPEC, IM2COL_SPEC, WIDE_SPEC], ids=lambda s: s.kind)
def test_a_tensor_and_a_mirror_of_the_same_request_make_the_same_arguments(spec):
    made = spec.through(
        Door(spec.kind, "measured" if spec.kind != "tiled" else "driver", False, "sm_90")
    )
    mirrored = spec.through(Door(spec.kind, "measured", True, "sm_90"))
    assert made.encode_arguments() == mirrored.encode_arguments()
    assert made.address == mirrored.address


def test_a_mirror_of_a_rank_that_is_too_large_is_refused_for_its_rank():
    given = dict.fromkeys(("interleave", "swizzle", "l2_promotion", "oob_fill"), 0)
    given |= {"tensor_data_type": 7, "tensor_rank": 6, "global_address": 0}
    given |= {"global_dim": (1,), "global_strides": (), "box_dim": (1,), "element_strides": (1,)}
    assert read_driver_call("tiled", given, SM_90).unreadable == ()


def test_settled_values_are_read_once_and_lists_are_copied():
    box = [16, 16]
    assert reusable(box) == box
    assert reusable(box) is not box
    assert reusable(iter(box)) == (16, 16)
    assert reusable((16, 16)) == (16, 16)
    assert reusable("ab") == "ab"


def test_what_is_shown_is_one_short_line():
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("x" * 1000)) == 80
    assert shown(10**5000) == "an int of 16610 bits"


def test_a_text_is_a_plain_one():
    class Text(str):
        def __str__(self):
            return "other"

    assert text_of(Text("bytes32")) == "bytes32"
    assert type(text_of(Text("bytes32"))) is str
    assert text_of(3) is None


def test_numbers_are_counted_in_words():
    assert [counted(n, "byte") for n in (0, 1, 2, Fraction(21, 2))] == [
        "0 bytes", "1 byte", "2 bytes", "10.5 bytes",
    ]  # fmt: skip
    assert counted(3, "entry") == "3 entries"


def test_a_target_that_cannot_be_read_leaves_the_rest_readable():
    report = tma.check_tma_descriptor(torch_zeros(), (16, 3), target="SM90")
    assert [v.rule for v in report.violations] == ["ARGUMENT", "BOX_INNER_16B"]
    assert report.changes() == {"target": "sm_90", "box_sizes": (16, 4)}
    assert tma.check_tma_descriptor(torch_zeros(), (16, 4), target="sm_80").changes() is None


def torch_zeros():
    torch = pytest.importorskip("torch")
    return torch.zeros(64, 64)
