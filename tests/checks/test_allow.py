"""`allow=` switches off single rules of libcu++. It cannot switch off the driver's rules."""

from __future__ import annotations

import pytest
from strategies import check, rules_of, tiled, view

from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.tables.targets import Target

WIDE = view((1024, 1024))

#: Rule -> a tensor and options that only this rule refuses.
REFUSED = {
    "STRIDE_UNIQUE": (view((4, 64), strides=(32, 1)), tiled((1, 16))),
    "BOX_IN_SHAPE": (view((64, 64)), tiled((65, 16))),
    "BOX_SMEM": (WIDE, tiled((64, 64), target=Target((9, 0), 16_383))),
    "ELEM_STRIDES_IN_SHAPE": (view((2, 64)), tiled((1, 16), elem_strides=(4, 1))),
}


def test_the_rules_that_can_be_switched_off_are_those_of_libcudacxx_alone():
    assert set(ALLOWABLE) == set(REFUSED)


@pytest.mark.parametrize("rule", ALLOWABLE)
def test_a_rule_that_is_allowed_is_not_asked(rule):
    x, options = REFUSED[rule]
    report = check("tiled", x, options)
    assert rules_of(report) == [rule]
    assert f"pass allow=({rule!r},): the driver itself accepts this" in report.violations[0].fix
    assert "rules='driver'" not in report.violations[0].fix
    assert check("tiled", x, options | {"allow": (rule,)}).ok
    for other in set(ALLOWABLE) - {rule}:
        assert rules_of(check("tiled", x, options | {"allow": [other]})) == [rule]


def test_every_rule_of_the_driver_is_refused_by_name():
    for rule in {rule.id for rule in RULES} - set(ALLOWABLE):
        (violation,) = check("tiled", WIDE, tiled((64, 64), allow=(rule,))).violations
        assert violation.found == (f"allow names {rule}, which is also a rule of the driver")
        assert violation.limit == (
            "it must name only STRIDE_UNIQUE, BOX_IN_SHAPE, BOX_SMEM, ELEM_STRIDES_IN_SHAPE"
        )
        assert violation.fix == f"omit {rule}"


@pytest.mark.parametrize(
    ("allow", "found", "fix", "instead"),
    [
        (
            ("BOX_IN_SHAP",),
            "allow names BOX_IN_SHAP, which is not a rule",
            "omit BOX_IN_SHAP; did you mean 'BOX_IN_SHAPE'?",
            ("BOX_IN_SHAPE",),
        ),
        (("QQQ", "BOX_SMEM"), "allow names QQQ, which is not a rule", "omit QQQ", ("BOX_SMEM",)),
        (
            "BOX_IN_SHAP",
            "allow names BOX_IN_SHAP, which is not a rule",
            "omit BOX_IN_SHAP; did you mean 'BOX_IN_SHAPE'?",
            ("BOX_IN_SHAPE",),
        ),
        (None, "allow is None", "pass allow=('STRIDE_UNIQUE',)", ()),
        ((1,), "allow is (1,)", "pass allow=('STRIDE_UNIQUE',)", ()),
        (True, "allow is True", "pass allow=('STRIDE_UNIQUE',)", ()),
    ],
)
def test_what_is_no_rule_is_refused(allow, found, fix, instead):
    report = check("tiled", view((64, 64)), tiled((16, 16), allow=allow))
    (violation,) = report.violations
    assert (violation.rule, violation.argument) == ("ARGUMENT", "allow")
    assert (violation.found, violation.fix) == (found, fix)
    assert report.fixed()["allow"] in (instead, ())


def test_an_unreadable_allow_hides_the_rules_that_it_may_have_named():
    report = check("tiled", view((64, 64)), tiled((65, 3), allow="all"))
    assert rules_of(report) == ["ARGUMENT", "BOX_INNER_16B"]


@pytest.mark.parametrize(
    ("x", "box", "rule"),
    [
        (view((1, 4096), (2, 16)), (64, 64), "BOX_IN_SHAPE"),  # M = 1
        (view((2, 3, 1024), (2, 16)), (4, 4, 64), "BOX_IN_SHAPE"),  # a box beyond a small batch
        (  # the tensor q of attention, (batch, sequence, heads, channels), permuted
            view((2, 8, 512, 64), (2, 16), strides=(262144, 64, 512, 1)),
            (1, 1, 128, 64),
            "STRIDE_UNIQUE",
        ),
    ],
)
def test_everyday_calls_that_only_libcudacxx_refuses_are_allowed_by_one_sentence(x, box, rule):
    report = check("tiled", x, tiled(box, swizzle="bytes128"))
    assert set(rules_of(report)) == {rule}
    for violation in report.violations:
        allow = f"pass allow=({rule!r},): the driver itself accepts this"
        assert allow in violation.fix
        assert violation.fix.count("the driver itself accepts this") == 1
    assert report.changes() == {"allow": (rule,)}


def test_fixed_switches_off_as_few_rules_as_it_takes():
    x = view((4, 3), strides=(4, 1))
    report = check("tiled", x, tiled((1, 3), allow=()))
    assert report.changes() == {"box_sizes": (1, 4), "allow": ("BOX_IN_SHAPE",)}
    overlapping = view((4, 64), strides=(32, 1))
    report = check("tiled", overlapping, tiled((5, 16), allow=()))
    assert report.changes() == {"allow": ("STRIDE_UNIQUE", "BOX_IN_SHAPE")}
    assert all(
        "pass allow=('STRIDE_UNIQUE', 'BOX_IN_SHAPE'): the driver itself accepts this" in v.fix
        for v in report.violations
    )


@pytest.mark.parametrize(
    "allow", ["BOX_IN_SHAPE", ["BOX_IN_SHAPE"], {"BOX_IN_SHAPE"}, iter(["BOX_IN_SHAPE"])]
)
def test_any_collection_of_ids_serves(allow):
    assert check("tiled", view((64, 64)), tiled((65, 16), allow=allow)).ok
