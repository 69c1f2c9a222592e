"""The address of an array is the one that its array interface gives."""

import numpy as np
import pytest

from tma_dlpack.dlpack.numpy_array import address_of_array

BASE = np.zeros((6, 8), np.float32)
READ_ONLY = np.zeros(4, np.uint8)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(BASE, id="whole"),
        pytest.param(BASE[2:, 3:], id="a view that starts later"),
        pytest.param(BASE[::-1], id="negative stride"),
        pytest.param(BASE.T, id="transposed"),
        pytest.param(np.zeros(()), id="no dimensions"),
        pytest.param(np.zeros((0, 4)), id="empty"),
        pytest.param(READ_ONLY, id="read-only"),
        pytest.param(np.zeros(4, ">f4"), id="other byte order"),
        pytest.param(np.zeros((1,) * 30, "f2"), id="30 dimensions"),
    ],
)
def test_the_address_is_that_of_the_array_interface(array):
    assert address_of_array(array) == array.__array_interface__["data"][0]
