"""The share of random examples: a quarter by default; CI requests few of them, or all."""

import dataclasses
import os

import pytest
from hypothesis import HealthCheck, settings

_ASKED = os.environ.get("TMA_DLPACK_EXAMPLES", "")
#: 1 / SHARE of the examples are drawn, and 1 / _SLOW_SHARE of the random cases of slow tests.
SHARE, _SLOW_SHARE = {"all": (1, 1), "few": (12, 24)}.get(_ASKED, (4, 4))

law = pytest.mark.hypothesis  # also marks laws that draw their examples themselves


def many(count: int) -> int:
    """Return the number of random cases of a slow test, which is a share of `count`."""
    return count // _SLOW_SHARE


def slow_if(condition: bool, *values):
    """Return a test's parameter, which is marked as slow if the condition is true."""
    return pytest.param(*values, marks=[pytest.mark.slow] * condition)


def by_cost(values, *, fast=(), slow=()):
    """Return the values of a test's parameter, which are slow except those in `fast`.

    If few examples are requested, only the values in `fast` and `slow` run.
    """
    rare = pytest.mark.skipif(_ASKED == "few", reason="only .ci/run --full runs this case")
    return [
        slow_if(value not in fast, value)
        if value in (*fast, *slow)
        else pytest.param(value, marks=[pytest.mark.slow, rare])
        for value in values
    ]


def examples(count: int, *, rare: bool = False) -> settings:
    """Return hypothesis settings with a share of `count` examples.

    There is no deadline, because machines are shared. `rare` allows laws for which few of the drawn
    requests qualify.
    """
    checks = [HealthCheck.too_slow, *[HealthCheck.filter_too_much] * rare]
    return settings(max_examples=count // SHARE, deadline=None, suppress_health_check=checks)


def require_immutable(frozen):
    """Check that no attribute of a result can be set or deleted."""
    for name in (*(field.name for field in dataclasses.fields(frozen)), "no_field"):
        with pytest.raises(AttributeError):
            setattr(frozen, name, None)
        with pytest.raises(AttributeError):
            delattr(frozen, name)
