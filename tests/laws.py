"""How many examples of each law are drawn: a quarter, or all or few where CI asks for them."""

import dataclasses
import os

import pytest
from hypothesis import HealthCheck, settings

SHARE = {"all": 1, "few": 12}.get(os.environ.get("TMA_DLPACK_EXAMPLES", ""), 4)

law = pytest.mark.hypothesis  # also marks laws that draw their examples themselves


def many(count: int) -> int:
    """Return how many random cases a slow test draws: a quarter, or all if they are requested."""
    return count if SHARE == 1 else count // 4


def slow_if(condition: bool, *values):
    """Return a parameter of a test, which is slow where the condition holds."""
    return pytest.param(*values, marks=[pytest.mark.slow] * condition)


def examples(count: int, *, rare: bool = False) -> settings:
    """Draw this many examples when all are requested, in any time, because machines are shared.

    `rare` is for laws of requests that few draws are.
    """
    checks = [HealthCheck.too_slow, *[HealthCheck.filter_too_much] * rare]
    return settings(max_examples=count // SHARE, deadline=None, suppress_health_check=checks)


def require_immutable(frozen):
    """Neither a field of a result nor another name can be set or deleted."""
    for name in (*(field.name for field in dataclasses.fields(frozen)), "no_field"):
        with pytest.raises(AttributeError):
            setattr(frozen, name, None)
        with pytest.raises(AttributeError):
            delattr(frozen, name)
