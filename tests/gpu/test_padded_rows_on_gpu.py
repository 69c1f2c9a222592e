"""Stores into rows that are padded to 16 bytes. The last row's padding belongs to the storage."""

from __future__ import annotations

import numpy as np
import pytest

import tma_dlpack as tma


def torch_rows(torch):
    whole = torch.zeros(64, 1736, dtype=torch.float16, device="cuda")
    return whole[..., :1733], lambda: whole.cpu().numpy()


def cupy_rows(cupy):
    whole = cupy.zeros((64, 1736), cupy.float16)
    return whole[..., :1733], whole.get


@pytest.mark.parametrize("framework", ["torch", "cupy"])
@pytest.mark.parametrize("verb", ["store", "reduce"])
def test_the_last_row_of_a_padded_tensor_is_stored(framework, verb, request):
    module = request.getfixturevalue(framework)
    x, read = (torch_rows if framework == "torch" else cupy_rows)(module)
    tensor_map = tma.make_tma_descriptor(x, (8, 64))
    data = np.ones((8, 64), np.float16)
    if verb == "store":
        tma.store_tile(tensor_map, (56, 1728), data)
    else:
        tma.reduce_tile(tensor_map, (56, 1728), data, "add")
    expected = np.zeros((64, 1736), np.float16)
    expected[56:, 1728:] = 1  # whole chunks of 16 bytes, including the padding
    np.testing.assert_array_equal(read(), expected)


@pytest.mark.parametrize(("elements", "fits"), [(24, True), (23, False)])
def test_a_store_past_a_torch_storage_is_refused(torch, elements, fits):
    flat = torch.zeros(elements, device="cuda")
    x = flat.as_strided((3, 5), (8, 1))
    tensor_map = tma.make_tma_descriptor(x, (3, 8), rules="driver")
    data = np.ones((3, 8), np.float32)
    if fits:
        tma.store_tile(tensor_map, (0, 0), data)
        assert (flat == 1).all()
    else:
        with pytest.raises(tma.TmaPreconditionError, match="writes 4 bytes past the end"):
            tma.store_tile(tensor_map, (0, 0), data)
        assert not flat.any()
