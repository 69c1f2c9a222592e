"""The report as a value and as text, and its advice."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from strategies import check, im2col, tiled, view

import tma_dlpack as tma
from tma_dlpack.checks.call import read_call
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.targets import Target

# -- reports are values ---------------------------------------------------------------------------


@pytest.mark.parametrize("x", [np.zeros((64, 64), np.float32), object], ids=["array", "no tensor"])
def test_a_report_survives_pickle_with_its_repairs(x):
    report = tma.check_tma_descriptor(x, [16, 3])
    again = pickle.loads(pickle.dumps(report))
    assert (again, str(again), again.fixed()) == (report, str(report), report.fixed())


@pytest.mark.parametrize("name", ["ok", "violations", "anything"])
def test_a_report_and_its_findings_are_immutable(name):
    report = tma.check_tma_descriptor(np.zeros((64, 64), np.float32), (16, 3))
    for value in (report, report.violations[0]):
        with pytest.raises(AttributeError, match="is immutable"):
            setattr(value, name, 1)
        with pytest.raises(AttributeError, match="is immutable"):
            delattr(value, name)


def test_the_driver_counts_a_column_of_pixels_whole():
    column = im2col((0,), (0,), 64, 128)
    request = read_call("im2col", None, 0, column, Target.of("sm_90"), False)
    request = request.with_fields(layout=(TensorMapDataType.FLOAT16, (), ()))
    assert 8 * request.arguments.floor_box_bytes == request.facts.box_bits == 8 * 16384


# -- the report ------------------------------------------------------------------------------------


def test_a_report_reads_as_text():
    report = check("tiled", view((64, 64)), tiled((16, 3), elem_strides=(9, 1)))
    assert str(report).splitlines() == [
        "refused: 2 violations",
        "box_sizes[1] spans 12 bytes; it must be a multiple of 16 bytes when interleave_layout is "
        "none",
        "  fix: use a multiple of 4 elements (16 bytes); the nearest that fits is box_sizes="
        "(16, 4)",
        "  rule: BOX_INNER_16B",
        "elem_strides[0] is 9; it must be 1..8",
        "  fix: use 8, the largest step; or step the tensor itself: pass x[::9] with box_sizes="
        "(2, 3) and elem_strides=(1, 1)",
        "  rule: ELEM_STRIDES_RANGE",
    ]


def test_the_repr_of_a_report_is_one_short_line():
    refused = check("tiled", view((64, 64)), tiled((16, 3), elem_strides=(9, 1)))
    assert repr(refused) == "<Report refused: 2 violations: BOX_INNER_16B, ELEM_STRIDES_RANGE>"
    accepted = check("tiled", view((64, 64)), tiled((16, 32)))
    assert repr(accepted) == "<Report accepted, advice: BANK_CONFLICTS>"
    assert repr(tma.Report(())) == "<Report accepted>"
    (first, _) = refused.violations
    many = tma.Report(tuple(dataclasses.replace(first, rule=rule.id) for rule in tma.rules("rule")))
    assert len(repr(many)) == 200
    assert repr(many).endswith("...>")


def test_the_choices_of_an_argument_are_printed_within_100_columns():
    options = tiled((16, 16), data_type="?", swizzle="?", elem_strides="?")
    report = check("tiled", view((64, 64)), options)
    assert len(report.violations) == 3
    assert max(map(len, str(report).splitlines())) <= 100
    assert "16U6_ALIGN16B (15)" in str(report)


def test_a_report_is_true_exactly_when_accepted():
    accepted = check("tiled", view((64, 64)), tiled((16, 16), swizzle="bytes64"))
    assert accepted
    assert str(accepted).startswith("accepted")
    accepted.raise_if_refused()
    refused = check("tiled", view((64, 64)), tiled((16, 3)))
    assert not refused
    with pytest.raises(tma.TmaPreconditionError) as caught:
        refused.raise_if_refused()
    assert caught.value.violations == refused.violations
    assert not isinstance(caught.value, tma.TmaUnsupportedError)


def test_the_html_of_a_report_is_escaped():
    report = check("tiled", view((64, 64)), tiled((16, 16), swizzle="<i9>"))
    assert "<i9>" not in report._repr_html_()
    assert "&lt;i9&gt;" in report._repr_html_()


def test_the_html_of_a_report_without_a_way_out_says_why():
    unclear = check("tiled", view((64, 64)), tiled((16, 16), swizzle=96))
    assert "<p>An argument is not clear, or the tensor itself must change.</p>" in (
        unclear._repr_html_()
    )
    narrow = check("tiled", view((64, 63)), tiled((16, 16)))
    assert "No change of the arguments fixes this: the tensor itself must change." in (
        narrow._repr_html_()
    )


def test_a_report_does_not_follow_a_list_that_changes_later():
    box = [16, 3]
    report = check("tiled", view((64, 64)), tiled(box))
    box[:] = [1, 1, 1, 1]
    assert report.fixed()["box_sizes"] == (16, 4)


# -- advice ----------------------------------------------------------------------------------------


def advice_of(x, options, kind="tiled"):
    report = check(kind, x, options)
    assert report.ok, str(report)
    return [a.rule for a in report.advice]


def test_advice_of_neighbours():
    even = view((64, 64))
    ragged = view((64, 63), strides=(64, 1))
    assert advice_of(even, tiled((16, 32), swizzle="bytes128")) == []
    assert advice_of(ragged, tiled((16, 32), swizzle="bytes128")) == [
        "STORE_OVERRUN",
        "COORDINATE_STEP",
    ]
    assert advice_of(even, tiled((16, 32))) == ["BANK_CONFLICTS"]
    assert advice_of(even, tiled((1, 32))) == []
    assert advice_of(even, tiled((16, 16), swizzle="bytes128")) == ["SWIZZLE_PADDING"]
    padded = view((64, 64), strides=(128, 1))
    assert advice_of(padded, tiled((1, 16), target="sm_100")) == ["BIT_85"]
    assert advice_of(even, tiled((1, 16), target="sm_100")) == []
    assert advice_of(padded, tiled((1, 16), target=Target((10, 0), driver_version=13020))) == []


def test_a_dimension_over_2_31_comes_with_advice():
    options = tiled((1, 16), swizzle="bytes64")
    assert "DIM_OVER_2_31" in advice_of(view((1, (1 << 31) + 4)), options)
    assert "DIM_OVER_2_31" not in advice_of(view((1, 1 << 31)), options)


def test_violations_that_only_allow_would_lift_together_are_all_reported():
    report = tma.check_tma_descriptor(np.zeros((2, 2, 30, 32), np.float16), (1, 33, 31, 64))
    assert [v.found for v in report.violations] == [
        "box_sizes[3] is 64", "box_sizes[2] is 31", "box_sizes[1] is 33"
    ]  # fmt: skip
    assert tma.check_tma_descriptor(
        np.zeros((2, 2, 30, 32), np.float16), (1, 2, 30, 32)
    ).ok  # each change is the one that its violation names


def test_a_list_of_tensors_is_refused_with_the_function_for_several():
    violation = tma.check_tma_descriptor([np.zeros((8, 8), np.float32)], (4, 4)).violations[0]
    assert violation.fix.startswith("call make_tma_descriptors(tensors, box_sizes)")


def test_an_argument_of_im2col_maps_is_refused_with_their_functions():
    with pytest.raises(TypeError, match=r"pixels_per_column is an argument of make_im2col_desc"):
        tma.make_tma_descriptor(np.zeros((8, 8), np.float32), (4, 4), pixels_per_column=4)
