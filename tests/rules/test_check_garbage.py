"""check_* never raises, and make_* raises nothing but our errors, whatever they are given."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
from strategies import (
    ADDRESS,
    im2col,
    rules_of,
    tiled,
    wide,
)

import tma_dlpack as tma
from tma_dlpack.types.errors import Violation
from tma_dlpack.types.target import Target


class Hostile:
    """An object each of whose methods raises."""

    def _raise(self, *args, **kwargs):
        raise RuntimeError("no")

    __index__ = __int__ = __iter__ = __len__ = __getitem__ = __eq__ = __hash__ = _raise
    __repr__ = __str__ = __bool__ = __float__ = __format__ = _raise


class HostileText(str):
    def _raise(self, *args, **kwargs):
        raise RuntimeError("no")

    __eq__ = __hash__ = __repr__ = __str__ = __format__ = __iter__ = __len__ = _raise


class HostileInt(int):
    def _raise(self, *args, **kwargs):
        raise RuntimeError("no")

    __index__ = __eq__ = __hash__ = __repr__ = __str__ = __format__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _raise


class Endless:
    def __iter__(self):
        return itertools.count()


class AnyInteger:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self):
        return self.value


def garbage():
    """Values that no argument expects; made anew each time, because some can be used only once."""
    return {
        "none": None,
        "true": True,
        "float": 1.5,
        "nan": float("nan"),
        "complex": 1j,
        "text": "abc",
        "empty text": "",
        "bytes": b"\x10\x10",
        "hostile": Hostile(),
        "hostile entries": [Hostile(), Hostile()],
        "hostile text": HostileText("bytes128"),
        "hostile int": HostileInt(16),
        "hostile ints": (HostileInt(16), HostileInt(16)),
        "a class": Hostile,
        "endless": Endless(),
        "generator": (n for n in (16, 16)),
        "exhausted": iter(()),
        "lists": [[16, 16], [16, 16]],
        "set": {16, 17},
        "mapping": {0: 16, 1: 16},
        "array": np.array([16, 16]),
        "2-d array": np.ones((2, 2), dtype=int),
        "float array": np.array([16.0, 16.0]),
        "bools": (True, False),
        "numpy bools": np.array([True, True]),
        "numpy bool": np.bool_(True),
        "huge": 10**5000,
        "huge ints": [10**5000, -(10**5000)],
        "65 bits": (1 << 64, 1 << 64),
        "lone surrogate": "\ud800",
        "long": [1] * 1000,
        "wrong __index__": AnyInteger("16"),
        "other enum": tma.TmaL2FetchSize.bytes128,
        "other enums": (tma.TmaSwizzle.bytes32, tma.TmaSwizzle.bytes32),
        "function": len,
        "target": Target((9, 0)),
        "ellipsis": ...,
        "recursive": _recursive(),
    }


def _recursive():
    inner: list[Any] = []
    inner.append(inner)
    return inner


CALLS = {
    "tiled": (tma.check_tma_descriptor, tma.make_tma_descriptor, tiled((16, 16))),
    "im2col": (
        tma.check_im2col_descriptor,
        tma.make_im2col_descriptor,
        im2col((0, 0), (0, 0), 8, 8),
    ),
    "im2col_wide": (
        tma.check_im2col_wide_descriptor,
        tma.make_im2col_wide_descriptor,
        wide(0, 0, 64, 8, target="sm_100"),
    ),
}
ARRAYS = {
    "tiled": np.zeros((64, 64), np.float32),
    "im2col": np.zeros((2, 14, 14, 64), np.float16),
    "im2col_wide": np.zeros((2, 14, 14, 64), np.float16),
}
PLACES = [(kind, argument) for kind, (_, _, fine) in CALLS.items() for argument in fine]


@pytest.mark.parametrize(("kind", "argument"), PLACES)
@pytest.mark.parametrize("name", sorted(garbage()))
def test_check_never_raises_and_make_raises_our_errors_only(kind, argument, name):
    check_call, make_call, fine = CALLS[kind]
    x = ARRAYS[kind]
    report = check_call(x, **fine | {argument: garbage()[name]})
    text = str(report) + report._repr_html_()
    assert text.startswith("accepted" if report.ok else "refused")
    fixed = report.fixed()
    assert fixed is not None
    assert check_call(x, **fixed).ok
    if report.ok:
        assert make_call(x, **fine | {argument: garbage()[name]}).tensor is x
    else:
        with pytest.raises(tma.TmaPreconditionError) as caught:
            make_call(x, **fine | {argument: garbage()[name]})
        assert [v.rule for v in caught.value.violations] == rules_of(report)
        assert str(caught.value)


@pytest.mark.parametrize("name", sorted(garbage()))
def test_no_garbage_as_tensor_raises_anything_else(name):
    for kind, (check_call, make_call, fine) in CALLS.items():
        report = check_call(garbage()[name], **fine)
        if report.ok or report.violations[0].argument != "tensor":
            assert name in ("array", "2-d array", "float array", "numpy bools"), kind
            continue
        assert report.fixed() is None
        assert all(isinstance(v, Violation) for v in report.violations)
        with pytest.raises(tma.TmaPreconditionError):
            make_call(garbage()[name], **fine)


MIRROR_ARGUMENTS = tuple(inspect.signature(tma.driver_encode_tiled).parameters)


@pytest.mark.parametrize("name", sorted(garbage()))
@pytest.mark.parametrize("argument", range(13))
def test_mirrors_raise_our_errors_only(argument, name):
    fine = ["FLOAT32", 2, ADDRESS, (64, 64), (256,), (16, 16), (1, 1), 0, 0, 0, 0, "sm_90", "model"]
    fine[argument] = garbage()[name]
    try:
        tm = tma.driver_encode_tiled(*fine[:11], target=fine[11], encoder=fine[12])
    except tma.TmaPreconditionError as error:
        assert all(v.argument in MIRROR_ARGUMENTS for v in error.violations)  # noqa: PT017
    else:
        assert len(bytes(tm)) == 128


@pytest.mark.parametrize(
    "box", [(16, True), (np.bool_(True), 16), (tma.TmaSwizzle.bytes32, 16), {16, 32}, (16.0, 16)]
)
def test_entries_that_are_no_plain_integers_are_refused(box):
    assert rules_of(tma.check_tma_descriptor(ARRAYS["tiled"], box)) == ["ARGUMENT"]


@pytest.mark.parametrize(
    "box",
    [[16, 32], np.array([16, 32]), (np.int64(16), np.uint8(32)), range(16, 33, 16), iter((16, 32))],
)
def test_any_ordered_sequence_of_integers_serves(box):
    tm = tma.make_tma_descriptor(ARRAYS["tiled"], box)
    assert tm.box_sizes == (16, 32)
    assert all(type(n) is int for n in tm.box_sizes)


def test_a_box_that_can_be_read_but_once_is_read_but_once():
    report = tma.check_tma_descriptor(ARRAYS["tiled"], iter((16, 3)))
    assert rules_of(report) == ["BOX_INNER_16B"]
    assert report.fixed()["box_sizes"] == (16, 4)
