"""Public names are documented: a summary, the parameters, the result and the errors."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import tma_dlpack as tma
from tma_dlpack import draw

FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (tma, draw)
    for name in module.__all__
    if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
}
CLASSES = {name: getattr(tma, name) for name in tma.__all__ if isinstance(getattr(tma, name), type)}
MOVED = {name: room for room, names in tma._MOVED.items() for name in names}
RESULTS = {name: getattr(importlib.import_module(room), name) for name, room in MOVED.items()}
METHODS = {
    f"{name}.{attribute}": member
    for name, kind in (CLASSES | RESULTS).items()
    for attribute, member in vars(kind).items()
    if not attribute.startswith("_") and (callable(member) or isinstance(member, property))
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES, *RESULTS, *METHODS])
def test_a_public_name_has_a_docstring_that_begins_with_a_sentence(name):
    everything = FUNCTIONS | CLASSES | RESULTS | METHODS
    text = inspect.getdoc(everything[name])
    assert text, f"{name} has no docstring"
    first = text.split("\n\n")[0].replace("\n", " ")
    assert re.search(r"[.;:]$", first), first


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_documents_each_parameter_or_names_whose_they_are(name):
    function = FUNCTIONS[name]
    text = inspect.getdoc(function)
    refers = re.search(r"[Tt]akes the (same )?arguments|As in `|as in `|as `", text)
    missing = [
        parameter
        for parameter in inspect.signature(function).parameters
        if not re.search(rf"\b{parameter}\b", text)
    ]
    assert refers or not missing, missing


def test_public_classes_say_that_they_are_of_the_package():
    ours = {name: kind.__module__ for name, kind in CLASSES.items()}
    assert set(ours.values()) == {"tma_dlpack"}, ours
    assert {name: kind.__module__ for name, kind in RESULTS.items()} == MOVED


def test_the_package_has_at_most_60_names():
    assert len(tma.__all__) == len(set(tma.__all__)) <= 60
    assert MOVED.keys().isdisjoint(tma.__all__)
    assert len(MOVED) == 17


@pytest.mark.parametrize(("name", "room"), MOVED.items())
def test_the_old_name_of_a_result_class_warns_and_names_the_new_one(name, room):
    text = f"tma_dlpack.{name} will be removed in 0.5: use `from {room} import {name}`"
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(text)}$") as warned:
        assert getattr(tma, name) is RESULTS[name]
    assert warned[0].filename == __file__
    with pytest.raises(AttributeError, match=f"module {room!r} has no attribute 'Frobnicate'"):
        _ = importlib.import_module(room).Frobnicate


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("check", "; did you mean check_tma_descriptor?"),
        ("bank", "; did you mean bank_conflicts?"),
        ("frobnicate", ""),
    ],
)
def test_a_name_that_is_none_asks_for_the_one_that_begins_like_it(name, asked):
    with pytest.raises(AttributeError) as raised:
        getattr(tma, name)
    assert str(raised.value) == f"module 'tma_dlpack' has no attribute '{name}'{asked}"
