"""`allow=`: single rules of libcu++ are not asked; the driver's cannot be switched off."""

from __future__ import annotations

import pytest
from strategies import LIFTED, check, rules_of, tiled, view

from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.tables.targets import Target

WIDE = view((1024, 1024))

#: Rule -> a tensor and options that it alone refuses.
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
    assert f"; or pass allow=({rule!r},)" in report.violations[0].fix
    assert report.violations[0].fix.endswith(LIFTED)
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
            "BOX_IN_SHAPE",
            "allow is 'BOX_IN_SHAPE'",
            "pass allow=('BOX_IN_SHAPE',)",
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


def test_fixed_switches_off_as_few_rules_as_it_takes():
    x = view((4, 3), strides=(4, 1))
    report = check("tiled", x, tiled((1, 3), allow=()))
    assert report.changes() == {"box_sizes": (1, 4), "allow": ("BOX_IN_SHAPE",)}
    overlapping = view((4, 64), strides=(32, 1))
    report = check("tiled", overlapping, tiled((5, 16), allow=()))
    assert report.changes() == {"box_sizes": (4, 16), "allow": ("STRIDE_UNIQUE",)}


@pytest.mark.parametrize("allow", [["BOX_IN_SHAPE"], {"BOX_IN_SHAPE"}, iter(["BOX_IN_SHAPE"])])
def test_any_collection_of_ids_serves(allow):
    assert check("tiled", view((64, 64)), tiled((65, 16), allow=allow)).ok
