"""A refusal carries the call and what refuses it; its words are made when somebody reads them."""

from __future__ import annotations

import copy
import pickle
import sys
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from in_c import REPORT_IN_C, compiled, with_defaults

import tma_dlpack as tma
from tma_dlpack.checks import report as reports
from tma_dlpack.make import build

WORDS = (
    "tensor.strides[0] is 1733 elements",
    "y = numpy.empty((64, 1736), weights.dtype)[..., :1733]; y[...] = weights",
)


def refused(weights, **given) -> tma.TmaPreconditionError:
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptor(weights, given.pop("box_sizes", (64, 64)), **given)
    return caught.value


def ragged_rows() -> np.ndarray:
    return np.zeros((64, 1733), np.float16)


@pytest.fixture
def worded(monkeypatch) -> list[object]:
    """The requests whose words were made."""
    made: list[object] = []
    find = reports.find_violations

    def found(request):
        made.append(request)
        return find(request)

    monkeypatch.setattr(build, "find_violations", found)
    return made


@compiled
def test_no_words_are_made_until_they_are_read(worded):
    error = refused(ragged_rows(), swizzle="bytes128")
    report = tma.check_tma_descriptor(ragged_rows(), (64, 64), swizzle="bytes128")
    assert (report.ok, bool(report), report.advice, worded) == (False, False, (), [])
    assert [v.rule for v in error.violations] == ["STRIDE_ALIGNED"]
    assert len(worded) == 1
    assert [v.rule for v in report.violations] == ["STRIDE_ALIGNED"]
    assert str(error) == "\n".join(map(str, error.violations))
    assert str(report) == f"refused: 1 violation\n{error}".replace("weights", "x")
    assert len(worded) == 2  # each once


def test_the_words_are_right_when_the_tensor_and_the_lists_are_gone():
    weights, box, allow = ragged_rows(), [64, 64], {"BOX_IN_SHAPE"}
    try:
        tma.make_tma_descriptor(weights, box, allow=allow)
    except tma.TmaPreconditionError as caught:
        error = caught.with_traceback(None)
    report = tma.check_tma_descriptor(weights, box, allow=allow)
    gone = weakref.ref(weights)
    box[:] = [1, 2, 3]
    allow.clear()
    del weights
    assert gone() is None
    assert all(words in str(error) for words in WORDS)
    assert all(words in str(report) for words in WORDS)
    assert (report._given["box_sizes"], report._given["allow"]) == ([64, 64], {"BOX_IN_SHAPE"})


def test_an_error_keeps_no_more_alive_than_its_traceback_does():
    class Held(np.ndarray):
        pass

    for weights in (ragged_rows(), ragged_rows().view(Held)):
        references = sys.getrefcount(weights)
        try:
            tma.make_tma_descriptor(weights, (64, 64))
        except tma.TmaPreconditionError as caught:
            error = caught.with_traceback(None)
        report = tma.check_tma_descriptor(weights, (64, 64))
        assert sys.getrefcount(weights) == references
        assert error.violations == report.violations


def test_errors_and_reports_are_pickled_and_copied_with_their_words():
    weights = ragged_rows()
    report = tma.check_tma_descriptor(weights, (64, 64))
    error = refused(weights)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
        assert again.violations == error.violations
    again = pickle.loads(pickle.dumps(report))
    assert (again, str(again), again.ok) == (report, str(report), False)


def test_an_error_is_an_ordinary_exception():
    error = refused(ragged_rows())
    assert error.args == (str(error),)
    assert repr(error) == f"TmaPreconditionError({str(error)!r})"
    shown = traceback.format_exception_only(error)
    assert "".join(shown).startswith("tma_dlpack.TmaPreconditionError: tensor.strides[0] is 1733")
    error.args = ("in layer 3: " + error.args[0], *error.args[1:])  # as libraries add to a message
    assert str(error).startswith("in layer 3: tensor.strides[0] is 1733")
    with pytest.raises(AttributeError, match="'TmaPreconditionError' object has no attribute 'no'"):
        _ = error.no
    assert not hasattr(tma.TmaPreconditionError.__new__(tma.TmaPreconditionError), "violations")


def test_a_missing_feature_of_the_target_is_raised_as_such():
    error = refused(np.zeros((64, 64), np.float16), target=tma.Target((8, 0), 100_000))
    assert type(error) is tma.TmaTargetError
    assert isinstance(error, tma.TmaUnsupportedError)


def test_a_refusal_in_a_handler_shows_what_was_handled():
    handled = KeyError("first")
    try:
        raise handled
    except KeyError:
        error = refused(ragged_rows())
    assert error.__context__ is handled


def test_threads_read_the_same_words():
    weights = ragged_rows()
    for error in [refused(weights) for _ in range(20)]:
        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(str, [error] * 8))
        assert texts == [str(error)] * 8


def test_the_name_is_that_of_the_refusal_and_not_of_the_reading():
    def caller():
        my_rows = ragged_rows()
        return tma.check_tma_descriptor(my_rows, (64, 64))

    assert "my_rows" in caller().violations[0].fix
    assert "= x" in tma.check_tma_descriptor(ragged_rows(), (64, 64)).violations[0].fix


def test_the_callers_locals_are_left_as_they_were():
    def deletes():
        weights = ragged_rows()
        tma.check_tma_descriptor(weights, (64, 64))
        gone = weakref.ref(weights)
        del weights
        return gone() is None

    def has_a_copy():
        weights, count = ragged_rows(), 3
        copy_of = locals()
        tma.check_tma_descriptor(weights, (64, 64))
        return copy_of["count"] == count and copy_of["weights"] is weights

    assert deletes()
    assert has_a_copy()


@compiled
def test_an_empty_tensor_is_left_to_python():
    x = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (16, 0, 64), (0, 1 << 34, 4))
    for given in ({}, {"shape": (32, 0, 64), "offset": 16}):
        given |= {"box_sizes": (1, 1, 32)}
        assert REPORT_IN_C["tiled"](x, **given) is None
        report = tma.check_tma_descriptor(x, **given)
        assert (
            report.violations == build.check("tiled", x, with_defaults("tiled", given)).violations
        )
