"""A refusal has the call and the broken rules; its text is made when a program reads it."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import sys
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from in_c import REPORT_IN_C, compiled, with_defaults
from laws import SHARE, law
from random_requests import request_at_random

import tma_dlpack as tma
from tma_dlpack.checks import RULES
from tma_dlpack.checks import report as reports
from tma_dlpack.checks.fixes import faults_of, rows_of
from tma_dlpack.checks.judge import judge
from tma_dlpack.checks.struct import OtherTensor, describe, mask_of
from tma_dlpack.make import build
from tma_dlpack.tables.dtypes import DLDataType

CHECKS = {
    "tiled": tma.check_tma_descriptor,
    "im2col": tma.check_im2col_descriptor,
    "im2col_wide": tma.check_im2col_wide_descriptor,
}

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
    """The requests for which a text was made."""
    made: list[object] = []
    find = reports.find_violations

    def found(request, *names):
        made.append(request)
        return find(request, *names)

    monkeypatch.setattr(reports, "find_violations", found)
    return made


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


def test_no_words_are_made_of_a_batch_or_a_call_of_the_driver_until_they_are_read(worded):
    with pytest.raises(tma.TmaPreconditionError) as batch:
        tma.make_tma_descriptors([np.zeros((64, 64), np.float16), ragged_rows()], (64, 64))
    with pytest.raises(tma.TmaPreconditionError) as driver:
        tma.driver_encode_tiled(6, 2, 4096, (64, 64), (120,), (64, 257), (1, 1), encoder="model")
    assert worded == []
    (violation,) = batch.value.violations
    assert violation.found.startswith("tensors[1]: tensor.strides[0] is 1733 elements")
    assert [v.rule for v in driver.value.violations] == ["STRIDE_ALIGNED", "BOX_RANGE"]
    assert "tensors[1]" in str(pickle.loads(pickle.dumps(batch.value)))
    assert len(worded) == 2


def test_what_the_target_of_a_driver_call_lacks_is_raised_as_such():
    arguments = (6, 2, 4096, (64, 64), (128,), (64, 64), (1, 1), 0, 4)
    with pytest.raises(tma.TmaTargetError) as caught:
        tma.driver_encode_tiled(*arguments, target="sm_90", encoder="model")
    assert caught.value.violations[0].rule == "ATOM_SWIZZLE"


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


# -- what C judges for the repairs -----------------------------------------------------------------


def judged_call(x, box=(64, 128), **given):
    return tma.check_tma_descriptor(x, box, **{"swizzle": "bytes128", **given})._request_of.call


@compiled
def test_a_refused_call_has_the_struct_and_what_fails():
    call = judged_call(np.zeros((1024, 4096), np.float16))
    assert (call.kind, call.rank, call.box_dim, call.span_bits) == (0, 2, (128, 64, 0, 0, 0), 1024)
    assert call.is_exact
    assert call.tx_bytes is None
    assert [(RULES[row].id, entry) for row, entry in call.failed] == [("BOX_SWIZZLE_SPAN", -1)]
    assert call.mask == sum(1 << row for row, _ in call.failed)


@compiled
def test_a_call_is_judged_with_other_arguments_and_does_not_change():
    call = judged_call(np.zeros((1024, 4096), np.float16))
    narrow = call.changed({"box_sizes": (64, 64)}, None)
    assert (narrow.mask, narrow.failed, narrow.tx_bytes) == (0, [], 8192)
    steps = narrow.changed({"elem_strides": (9, 1)}, None)
    assert [(RULES[row].id, entry) for row, entry in steps.failed] == [("ELEM_STRIDES_RANGE", 1)]
    assert steps.changed({"elem_strides": None}, None).mask == 0
    assert call.box_dim == (128, 64, 0, 0, 0)
    assert call.failed


@compiled
def test_a_call_is_judged_of_another_tensor():
    call = judged_call(ragged_rows(), (64, 64))
    padded = OtherTensor(4096, DLDataType(2, 16, 1), (64, 1733), (1736, 1))
    assert [RULES[row].id for row, _ in call.failed] == ["STRIDE_ALIGNED"]
    assert call.changed({}, padded).mask == 0
    fewer = padded._replace(shape=(1733,), strides=(1,))
    assert [RULES[row].id for row, _ in call.changed({}, fewer).failed] == ["BOX_RANK"]


@compiled
@pytest.mark.parametrize(
    "change",
    [{"box_sizes": "64"}, {"no_such": 1}, {"target": "sm_80"}, {"box_sizes": (1 << 70, 64)}],
    ids=str,
)
def test_what_c_cannot_read_is_left_to_python(change):
    assert judged_call(np.zeros((1024, 4096), np.float16)).changed(change, None) is None


@compiled
def test_numbers_that_c_cuts_are_worded_exactly():
    x, box = np.zeros((8, 8), np.float64), (1, 1, 8)
    options = {"shape": (2, 1 << 32, 8), "strides": (1 << 30, 1 << 36, 1), "swizzle": "none"}
    assert not judged_call(x, box, **options).is_exact
    report = tma.check_tma_descriptor(x, box, **options)
    (violation,) = (v for v in report.violations if v.rule == "STRIDE_UNIQUE")
    assert f"at least the {8 << 68} bytes" in violation.limit


@law
@compiled
def test_c_and_python_judge_every_candidate_alike():
    rng, compared = random.Random(33), 0
    for _ in range(6000 // SHARE):
        asked = request_at_random(rng)
        if asked is None:
            continue
        read = CHECKS[asked.kind](asked.tensor, **asked.given)._request_of
        if not isinstance(read, reports.CallInC):  # accepted, or left to Python
            continue
        request = read.request_of(read.call)
        for fault in faults_of(request):
            for candidate in itertools.chain(*fault.alternatives(request)):
                judged = read.call.changed(candidate.change, candidate.view)
                other = request.changed_in_python(candidate.change, candidate.view)
                rows = rows_of(other.kind, other.rules) & ~mask_of(other.allowed)
                assert judged.failed == sorted(judge(describe(other), rows)), (asked, candidate)
                compared += 1
    assert compared > 6000 // SHARE
