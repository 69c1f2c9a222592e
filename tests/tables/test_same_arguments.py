"""A function with copied parameters binds arguments as Python does, with the same errors."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tma_dlpack.public import with_arguments_of, with_options_of


def make(tensor, box, steps=None, swizzle="none", *, rules="all", offset=0) -> int:
    """Make it."""
    return 1


@with_arguments_of(make)
def check(tensor, options) -> bool:
    """Check it."""
    return tensor, options


def in_full(tensor, box, steps=None, swizzle="none", *, rules="all", offset=0) -> bool:
    """Check it."""
    return tensor, {
        "box": box,
        "steps": steps,
        "swizzle": swizzle,
        "rules": rules,
        "offset": offset,
    }


in_full.__name__ = in_full.__qualname__ = "check"


@with_options_of(make)
def check_all(tensors, options) -> bool:
    """Check them."""
    return tensors, options


def all_in_full(tensors, box, steps=None, swizzle="none", *, rules="all", offset=0):
    return in_full(tensors, box, steps, swizzle, rules=rules, offset=offset)


all_in_full.__name__ = all_in_full.__qualname__ = "check_all"


def result(function, args, keywords):
    try:
        return function(*args, **keywords)
    except TypeError as error:
        return str(error)


NAMES = ["tensor", "box", "steps", "swizzle", "rules", "offset", "boks"]


@given(
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.sampled_from(NAMES), st.integers(), max_size=4),
)
def test_every_call_gives_what_the_signature_in_full_gives(args, keywords):
    assert result(check, args, keywords) == result(in_full, args, keywords)


@given(
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.sampled_from([*NAMES, "tensors"]), st.integers(), max_size=4),
)
def test_a_function_of_many_tensors_differs_in_the_name_of_the_first_alone(args, keywords):
    assert result(check_all, args, keywords) == result(all_in_full, args, keywords)


def test_defaults_are_filled_in_in_the_order_of_the_signature():
    assert list(check(1, offset=3, box=2)[1]) == ["box", "steps", "swizzle", "rules", "offset"]


def test_signature_name_and_text_are_shown():
    assert str(inspect.signature(check)) == str(inspect.signature(make)).replace("int", "bool")
    assert (check.__name__, check.__doc__) == ("check", "Check it.")
    assert check.__annotations__ == {"return": "bool"}


class Thing:
    def make(self, *, size=1):
        """Make it."""

    @with_arguments_of(make)
    def check(self, options) -> bool:
        """Check it."""
        return options


def test_methods_take_the_arguments_of_methods():
    assert Thing().check(size=2) == {"size": 2}
    assert str(inspect.signature(Thing().check)) == "(*, size=1) -> 'bool'"
    with pytest.raises(TypeError, match=r"^Thing\.check\(\) got an unexpected keyword argument"):
        Thing().check(sise=2)
