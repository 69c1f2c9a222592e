"""The share of random examples: a quarter by default; CI requests a twelfth (few), or all."""

import dataclasses
import os

import pytest
from hypothesis import HealthCheck, settings

SHARE = {"all": 1, "few": 12}.get(os.environ.get("TMA_DLPACK_EXAMPLES", ""), 4)

law = pytest.mark.hypothesis  # also marks laws that draw their examples themselves


def many(count: int) -> int:
    """Return the number of random cases of a slow test, which is the same share of `count`."""
    return count // SHARE


def slow_if(condition: bool, *values):
    """Return a test's parameter, which is marked as slow if the condition is true."""
    return pytest.param(*values, marks=[pytest.mark.slow] * condition)


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
