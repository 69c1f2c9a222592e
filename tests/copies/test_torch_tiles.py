"""Tiles and coordinates that are tensors of torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tma_dlpack as tma


@pytest.fixture
def matrix_map():
    return tma.make_tma_descriptor(np.zeros((16, 64), np.float32), (8, 16))


def torch_tiles():
    bits = torch.arange(0x3F00, 0x3F80, dtype=torch.int16).reshape(8, 16)
    bytes_ = bits.to(torch.uint8)
    return {
        "bfloat16": bits.view(torch.bfloat16),
        "strided bfloat16": bits.T.contiguous().T.view(torch.bfloat16),
        "gradient": bits.float().requires_grad_(),
        "gradient bfloat16": bits.view(torch.bfloat16).clone().requires_grad_(),
        "float8": bytes_.view(torch.float8_e4m3fn),
        "bool": bytes_.bool(),
        "int8": bytes_.to(torch.int8),
        "complex64": torch.complex(bits.float(), -bits.float()),
    }


@pytest.mark.parametrize("name", torch_tiles())
def test_store_takes_torch_tiles_of_the_tensor_s_own_dtype(name):
    tile = torch_tiles()[name]
    x = torch.zeros_like(tile, memory_format=torch.contiguous_format, requires_grad=False)
    options = {"data_type": "UINT8"} if tile.dtype in (torch.bool, torch.int8) else {}
    options |= {"data_type": "UINT64"} if tile.is_complex() else {}
    tma.store_tile(tma.make_tma_descriptor(x, (8, 16), **options), (0, 0), tile)
    assert torch.equal(x.view(torch.uint8), tile.detach().contiguous().view(torch.uint8))


def test_reduce_takes_torch_bfloat16():
    x = torch.ones(8, 16, dtype=torch.bfloat16)
    tensor_map = tma.make_tma_descriptor(x, (8, 16))
    tma.reduce_tile(tensor_map, (0, 0), torch.full((8, 16), 2, dtype=torch.bfloat16), "add")
    assert (x == 3).all()


@pytest.mark.parametrize(
    ("data", "rule", "words"),
    [
        (torch.ones(8, 16, dtype=torch.bfloat16), "COPY_DATA", "torch.bfloat16"),
        (torch.ones(4, 16, requires_grad=True), "COPY_DATA", "(4, 16)"),
        (torch.ones(8, 16, device="meta"), "COPY_DATA_HOST", "torch.float32"),
        (torch.ones(8, 16, dtype=torch.complex64).conj(), "COPY_DATA_HOST", "torch.complex64"),
        (torch.ones(8, 16).to_sparse(), "COPY_DATA_HOST", "torch.float32"),
    ],
    ids=["other type", "other shape", "meta", "conj", "sparse"],
)
def test_torch_data_that_is_no_tile_is_refused_by_dtype(matrix_map, data, rule, words):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.store_tile(matrix_map, (0, 0), data)
    (violation,) = caught.value.violations
    assert violation.rule == rule
    assert words in violation.found
    assert rule == "COPY_DATA" or "x.cpu()" in violation.fix


def test_coordinates_may_be_a_tensor():
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    tile = tma.load_tile(tma.make_tma_descriptor(x, (8, 16)), torch.tensor([4, 8]))
    np.testing.assert_array_equal(tile.array, x[4:12, 8:24])
