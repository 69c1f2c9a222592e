"""Tests of cupy_double.py: run ``python -m pytest test_cupy.py`` on a GPU with TMA."""

import cupy
import pytest
from cupy_double import doubled

import tma_dlpack as tma


def matrix(rows, columns):
    return cupy.arange(rows * columns, dtype=cupy.float32).reshape(rows, columns)


@pytest.mark.parametrize("shape", [(1, 4), (16, 32), (1000, 100), (100_000, 8)])
def test_every_element_is_doubled(shape):
    assert cupy.array_equal(doubled(matrix(*shape)), 2 * matrix(*shape))


def test_it_runs_on_the_current_stream():
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = matrix(512, 512)
        y = doubled(x)
        stream.synchronize()
    assert cupy.array_equal(y, 2 * x)


def test_what_tma_cannot_do_is_refused_with_the_rule():
    with pytest.raises(tma.TmaPreconditionError, match="132 bytes"):
        doubled(matrix(64, 33))
