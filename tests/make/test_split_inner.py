"""`split_inner`: the keyword arguments, and one copy compared with several narrow copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import tma_dlpack as tma
from tma_dlpack import split_inner

SPANS = {"none": 16, "bytes32": 32, "bytes64": 64, "bytes128": 128}


def test_a_matrix_becomes_columns_of_spans():
    x = np.zeros((256, 512), np.float16)
    assert split_inner(x, (64, 128)) == {
        "box_sizes": (2, 64, 64),
        "shape": (8, 256, 64),
        "strides": (64, 512, 1),
        "swizzle": "bytes128",
        "allow": ("STRIDE_UNIQUE",),
    }


def test_a_batch_of_matrices_keeps_its_other_dimensions():
    x = np.zeros((4, 256, 512), np.float32)
    words = split_inner(x[:, :, :256], (1, 64, 64), swizzle=tma.TmaSwizzle.bytes64)
    assert words["box_sizes"] == (4, 1, 64, 16)
    assert words["shape"] == (16, 4, 256, 16)
    assert words["strides"] == (16, 256 * 512, 512, 1)
    assert words["swizzle"] == "bytes64"


def test_without_a_swizzle_columns_are_16_bytes():
    words = split_inner(np.zeros((64, 64), np.uint8), (64, 64), swizzle="none")
    assert words["box_sizes"] == (4, 64, 16)


def test_a_vector_becomes_a_matrix_without_overlap():
    words = split_inner(np.zeros(512, np.float16), (128,))
    assert words == {
        "box_sizes": (2, 64),
        "shape": (8, 64),
        "strides": (64, 1),
        "swizzle": "bytes128",
    }


@st.composite
def splits(draw):
    swizzle = draw(st.sampled_from(sorted(SPANS)))
    dtype = draw(st.sampled_from(["u1", "f2", "f4", "f8"]))
    span = SPANS[swizzle] // np.dtype(dtype).itemsize
    spans = draw(st.integers(1, 5))
    taken = draw(st.integers(1, spans))
    rows, m = draw(st.integers(1, 40)), 8 * draw(st.integers(1, 4))
    at = (draw(st.integers(-2, rows)), span * draw(st.integers(-1, spans)))
    return swizzle, dtype, (rows, spans * span), (m, taken * span), at


@given(splits())
def test_one_copy_equals_several_narrow_ones_byte_for_byte(case):
    swizzle, dtype, shape, (m, k), (row, element) = case
    x = np.random.default_rng(0).integers(0, 256, np.prod(shape) * np.dtype(dtype).itemsize)
    x = x.astype(np.uint8).view(dtype).reshape(shape)
    words = split_inner(x, (m, k), swizzle)
    span = words["box_sizes"][-1]
    view = as_strided(x, words["shape"], [s * x.itemsize for s in words["strides"]])
    options = {"swizzle": swizzle, "rules": "driver"}
    wide = tma.make_tma_descriptor(view, words["box_sizes"], **options)
    narrow = tma.make_tma_descriptor(x, (m, span), **options)
    tile = tma.load_tile(wide, (element // span, row, 0))
    assert tile.tx_bytes == k // span * narrow.tx_bytes
    for column in range(k // span):
        start = column * narrow.smem_bytes
        part = tma.load_tile(narrow, (row, element + column * span), smem_offset=start)
        end = start + narrow.smem_bytes
        assert np.array_equal(part.smem[start:], tile.smem[start:end])
        assert np.array_equal(part.written[start:], tile.written[start:end])
        assert np.array_equal(part.filled, tile.filled[column])


@pytest.mark.parametrize(
    ("shape", "box", "swizzle", "rule", "said"),
    [
        ((64, 100), (64, 64), "bytes128", "SPLIT_SPAN",
         ("the last dimension is 100 elements", "multiple of 64, the 128 bytes of a span",
          "pad the last dimension from 100 to 128 elements")),
        ((64, 104), (64, 64), "bytes128", "SPLIT_SPAN",
         ("the last dimension is 104 elements", "pad the last dimension from 104 to 128 elements",
          "box_sizes=(64, 64), swizzle='bytes128', without split_inner")),
        ((64, 96), (64, 96), "bytes128", "SPLIT_SPAN",
         ("the last dimension is 96 elements", "; or pass swizzle='bytes64'")),
        ((64, 128), (64, 96), "bytes128", "SPLIT_SPAN",
         ("the last entry of box_sizes is 96 elements", "use a multiple of 64: 128",
          "; or pass swizzle='bytes64'")),
        ((1, 1, 1, 1, 64), (1, 1, 1, 1, 64), "bytes128", "SPLIT_RANK",
         ("has 5 dimensions", "have 1 to 4", "x.reshape((1, 1, 1, 64))")),
        ((64, 64), (64,), "bytes128", "BOX_RANK", ("box_sizes has 1 entry", "have 2, one per")),
        ((64, 64), (64, 0), "bytes128", "BOX_RANGE", ("box_sizes[1] is 0", "use at least 64")),
        ((64, 64), 64, "bytes128", "ARGUMENT", ("box_sizes is 64; it must be a sequence",)),
        ((64, 64), (64, 64), "256B", "ARGUMENT", ("swizzle is '256B'", "its name or its value")),
    ],
)  # fmt: skip
def test_what_does_not_divide_is_refused_with_the_way_out(shape, box, swizzle, rule, said):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        split_inner(np.zeros(shape, np.float16), box, swizzle)
    (violation,) = (v for v in refused.value.violations if v.rule != "STRIDE_ALIGNED")
    assert violation.rule == rule
    for part in said:
        assert part in str(violation)


def test_four_bit_values_are_refused():
    torch = pytest.importorskip("torch")
    x = torch.zeros((64, 64), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(
        tma.TmaPreconditionError,
        match="map's type is 16U4_ALIGN8B; it must be used for elements of whole bytes",
    ):
        split_inner(x, (64, 64))
