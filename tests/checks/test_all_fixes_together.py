"""The call is accepted after the first fix of every violation is applied.

Otherwise, the refusal was announced. Either a fix names the rule ("which then breaks"), or two
fixes change the same argument and the report has their rules.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from follow import alternatives, follow
from laws import many, slow_if
from test_every_fix import CHECKS, call_at_random, given_of

import tma_dlpack as tma


def together(given: dict[str, Any], base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments after a fix that changed `base` into `other`, merged entry by entry."""
    after = dict(given)
    for name, value in other.items():
        was, now = base.get(name), given.get(name)
        if type(was) is type(value) and was == value:
            continue
        if name == "allow":
            value = tuple(dict.fromkeys((*(now or ()), *value)))
        elif all(type(one) is tuple for one in (value, was, now)) and len(value) == len(was):
            count = min(len(value), len(now))  # the innermost entries, if a fix removed dimensions
            pairs = zip(value[-count:], was[-count:], now[-count:], strict=True)
            inner = (new if new != old else n for new, old, n in pairs)
            value = (*now[: len(now) - count], *inner)
        after[name] = value
    return after


def all_followed(kind: str, t: Any, report: tma.Report) -> tuple[Any, dict[str, Any], set[str]]:
    """Follow the first alternative of every fix; also return the rules that the fixes announce.

    A second fix of the tensor is taken from the report on the tensor that the first fix made.
    """
    base = given_of(kind, t, dict(report._given))
    given, tensor, announced = dict(base), t, set()
    for violation in report.violations:
        text = alternatives(violation.fix)[0]
        announced |= set(re.findall(r"\b[A-Z]\w+\b", text.partition("which then breaks")[2]))
        other, options = follow(text, violation, t, "t", base)
        if other is t or tensor is t:
            tensor = tensor if other is t else other
            given = together(given, base, options)
            continue
        left = [v for v in CHECKS[kind](tensor, **given).violations if v.rule == violation.rule]
        if left:
            again = alternatives(left[0].fix)[0]
            tensor, options = follow(again, left[0], tensor, "tensor", given)
            given = together(given, given, options)
    return tensor, given, announced


@pytest.mark.parametrize("count", [slow_if(n > 2000, n) for n in (1500, many(20_000))])
def test_all_first_fixes_together_are_accepted_or_lead_to_what_was_announced(count):
    rng, led = random.Random(1), Counter[str]()
    while led.total() < count:
        call = call_at_random(rng, "numpy")
        if call is None:  # the type does not exist in NumPy
            continue
        kind, t, given = call
        report = CHECKS[kind](t, **given)
        if report.ok:
            continue
        other, options, announced = all_followed(kind, t, report)
        after = CHECKS[kind](other, **options)
        left = {v.rule for v in after.violations}
        assert left <= announced | {v.rule for v in report.violations}, (str(report), str(after))
        led["announced" if left else "accepted"] += 1
    assert led["accepted"] > 0.97 * count, led


def test_independent_violations_are_all_reported_and_their_fixes_work_together():
    t = np.zeros((2, 2, 30, 32), np.float16)
    report = tma.check_tma_descriptor(t, (1, 33, 31, 64))
    assert [v.rule for v in report.violations] == ["BOX_IN_SHAPE"] * 3
    given = dict(report._given) | {"box_sizes": (1, 2, 30, 32)}
    assert tma.check_tma_descriptor(t, **given).ok
