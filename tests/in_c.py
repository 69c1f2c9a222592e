"""The functions of the C extension alone; they return None if they leave a call to Python."""

from __future__ import annotations

import inspect
import operator

import pytest

import tma_dlpack as tma
from tma_dlpack.make import build, extension

compiled = pytest.mark.skipif(not extension.COMPILED, reason="the extension is not built here")

MAKE = {
    "tiled": tma.make_tma_descriptor,
    "im2col": tma.make_im2col_descriptor,
    "im2col_wide": tma.make_im2col_wide_descriptor,
}
CHECK = {
    "tiled": tma.check_tma_descriptor,
    "im2col": tma.check_im2col_descriptor,
    "im2col_wide": tma.check_im2col_wide_descriptor,
}


def in_c_alone(verb, function):
    """Return a C function that has this signature, and returns None instead of calling Python."""

    def left_to_python(*args, **keywords):
        return None

    left_to_python.__signature__ = inspect.signature(function)
    return extension.quick(verb)(left_to_python)


def verdict(verb, function):
    """Return a C function that returns a map, a Report, an error, or None to leave it to Python."""
    in_c = in_c_alone(verb, function)

    def call(*args, **keywords):
        try:
            return in_c(*args, **keywords)
        except tma.TmaPreconditionError as error:
            return error

    return call


def alone(verb, function):
    """Return a C function whose result is None if it refuses a call or leaves it to Python."""
    in_c = in_c_alone(verb, function)

    def call(*args, **keywords):
        try:
            made = in_c(*args, **keywords)
        except tma.TmaPreconditionError:
            return None
        return None if getattr(made, "ok", True) is False else made

    return call


VERDICT_IN_C = {kind: verdict(kind, make) for kind, make in MAKE.items()}
REPORT_IN_C = {kind: verdict(f"check_{kind}", check) for kind, check in CHECK.items()}
IN_C = {kind: alone(kind, make) for kind, make in MAKE.items()}
CHECKED_IN_C = {kind: alone(f"check_{kind}", check) for kind, check in CHECK.items()}


DEFAULTS = {
    kind: {p.name: p.default for p in list(inspect.signature(make).parameters.values())[1:]}
    for kind, make in MAKE.items()
}


def with_defaults(kind, given):
    """Return all options of a call by name."""
    return {**DEFAULTS[kind], **given}


def by_python(kind, x, given):
    """Return the map that Python makes, or None if Python refuses the call."""
    try:
        return build.make(kind, x, with_defaults(kind, given))
    except tma.TmaError:
        return None


def batch_in_c(tensors, address, **given):
    """Return the maps of a batch in C alone."""
    options = with_defaults("tiled", given)
    return extension.accept_many(tensors, address, options)


def answer(verb, tensor_map):
    """Return the result of a function, or the text of its refusal."""
    try:
        return verb(tensor_map)
    except tma.TmaError as error:
        return str(error)


def hold_equal(made, expected) -> None:
    """Compare a map made in C with a map made in Python, in all attributes."""
    assert made._data == expected._data
    assert made == expected
    assert hash(made) == hash(expected)
    assert (repr(made), str(made)) == (repr(expected), str(expected))
    for name in ("tx_bytes", "smem_bytes", "smem_alignment", "strides"):
        read = operator.attrgetter(name)
        assert answer(read, made) == answer(read, expected), name
    assert made.arguments == expected.arguments
    assert made.key() == expected.key()
    assert made.description == expected.description
    assert (made.split_inner, made.ragged) == (expected.split_inner, expected.ragged)
    assert made.launchable == expected.launchable
    assert made.view == expected.view
    assert made.advice == expected.advice
    assert (made.description.request is None) == (expected.description.request is None)
    if made.description.request is not None:
        ours, theirs = made._accepted_request(), expected._accepted_request()
        for name in (
            *("kind", "options", "view", "address", "layout", "rank", "target", "rules"),
            *("is_driver_call", "unreadable", "unread", "call", "keeps_tensor", "arguments"),
        ):
            assert getattr(ours, name) == getattr(theirs, name), name
    if made._data is not None:
        assert made.cpp() == expected.cpp()
