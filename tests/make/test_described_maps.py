"""Maps with another description of the tensor's memory, and maps with rules switched off."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma

X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def refused(call) -> list[str]:
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call()
    return [violation.rule for violation in caught.value.violations]


@pytest.mark.parametrize("name", ["tma", "im2col", "im2col_wide"])
def test_make_and_check_take_the_same_arguments(name):
    make, check = (
        inspect.signature(getattr(tma, f"{verb}_{name}_descriptor")) for verb in ("make", "check")
    )
    assert make.parameters == check.parameters
    assert (make.return_annotation, check.return_annotation) == ("TensorMap", "Report")


@examples(60)
@given(st.data())
def test_a_described_map_loads_what_as_strided_gives(data):
    torch = pytest.importorskip("torch")
    memory = torch.arange(4096, dtype=torch.float32)
    rank = data.draw(st.integers(1, 4))
    shape = [data.draw(st.integers(1, 6)) for _ in range(rank)]
    shape[-1] = data.draw(st.sampled_from((4, 8, 12, 16)))
    strides = [data.draw(st.sampled_from((0, 4, 8, 16, 64, 100))) for _ in range(rank - 1)] + [1]
    offset = data.draw(st.sampled_from((0, 4, 64)))
    expected = memory.as_strided(shape, strides, offset)
    tm = tma.make_tma_descriptor(
        memory, shape, rules="driver", shape=shape, strides=strides, offset=offset
    )
    assert tm.tensor is memory
    assert tm.shape == tuple(shape)
    assert np.array_equal(tma.load_tile(tm, (0,) * rank).array, expected.numpy())
    direct = tma.make_tma_descriptor(expected, shape, rules="driver")
    assert bytes(direct) == bytes(tm)


def test_an_offset_counts_from_the_tensor_itself():
    half = X[32:]
    tm = tma.make_tma_descriptor(half, (1, 16), offset=-64)
    assert tm.global_address == half.ctypes.data - 256
    assert tma.load_tile(tm, (1, 0)).array[0, 0] == half[0, 0]
    assert tma.load_tile(tm, (0, 0)).array[0, 0] == X[31, 0]  # in the storage of X
    alone = tma.make_tma_descriptor(half.copy(), (1, 16), offset=-64)
    assert refused(lambda: tma.load_tile(alone, (0, 0))) == ["COPY_OUTSIDE_MEMORY"]


def test_rows_without_end_are_copied_as_far_as_the_tensor_goes():
    tm = tma.make_tma_descriptor(X, (8, 16), shape=(1 << 31, 64))
    assert np.array_equal(tma.load_tile(tm, (56, 0)).array, X[56:, :16])
    assert refused(lambda: tma.load_tile(tm, (57, 0))) == ["COPY_OUTSIDE_MEMORY"]
    assert [a.rule for a in tm.advice] == ["BEYOND_TENSOR", "BANK_CONFLICTS"]


def test_a_store_through_a_described_map_writes_the_tensor():
    x = np.zeros((8, 64), np.float32)
    tm = tma.make_tma_descriptor(
        x, (2, 8, 16), shape=(4, 8, 16), strides=(16, 64, 1), rules="driver"
    )
    tma.store_tile(tm, (1, 0, 0), np.ones((2, 8, 16), np.float32))
    assert np.array_equal(np.flatnonzero(x[0]), np.arange(16, 48))


def test_a_described_map_can_move_to_another_tensor_of_the_same_layout():
    y = X + 1
    tm = tma.make_tma_descriptor(X, (1, 16), shape=(32, 64), offset=64)
    moved = tm.with_address(y)
    assert moved == tma.make_tma_descriptor(y, (1, 16), shape=(32, 64), offset=64)
    assert tma.load_tile(moved, (0, 0)).array[0, 0] == y[1, 0]
    assert refused(lambda: tm.with_address(y[:32])) == ["ADDRESS_LAYOUT"]


def test_a_described_map_notices_that_its_tensor_has_moved():
    torch = pytest.importorskip("torch")
    x = torch.zeros(64, 64)
    tm = tma.make_tma_descriptor(x, (1, 16), shape=(32, 64), offset=64)
    tma.load_tile(tm, (0, 0))
    x.set_(torch.zeros(64, 64))
    assert refused(lambda: tma.load_tile(tm, (0, 0))) == ["COPY_MOVED"]


def test_a_refusal_is_the_report_of_the_same_call():
    options = {"box_sizes": (65, 16), "shape": (60, 64), "allow": ["STRIDE_UNIQUE"]}
    report = tma.check_tma_descriptor(X, **options)
    assert [v.found for v in report.violations] == ["box_sizes[0] is 65"]
    assert report.violations[0].limit == "it must be at most shape[0] = 60"
    assert refused(lambda: tma.make_tma_descriptor(X, **options)) == ["BOX_IN_SHAPE"]
    tm = tma.make_tma_descriptor(X, **options | {"allow": ("BOX_IN_SHAPE",)})
    assert tm.box_sizes == (65, 16)


def test_the_code_of_a_described_map_says_so():
    plain = tma.make_tma_descriptor(X, (1, 16)).cpp()
    assert "offset=" not in plain
    assert "allow=" not in plain
    code = tma.make_tma_descriptor(X, (1, 16), shape=(32, 64), offset=64).cpp()
    assert "cuda::make_tma_descriptor(" in code
    assert "shape[] = {32, 64}" in code
    assert (
        "// shape=, strides= and offset= describe the tensor's memory in another way: the\n"
        "// address is 256 bytes from the tensor's first element.\n"
    ) in code
    code = tma.make_tma_descriptor(X, (65, 16), allow=("BOX_IN_SHAPE",)).cpp()
    assert "// allow= switched off rules of libcu++: BOX_IN_SHAPE.\n" in code
    assert "cuTensorMapEncodeTiled" in code
