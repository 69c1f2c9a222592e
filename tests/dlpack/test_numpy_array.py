"""An array's attributes give what its capsule gives."""

import numpy as np
import pytest

from tma_dlpack.dlpack import Layout, judge, read
from tma_dlpack.dlpack.numpy_array import read_array

BASE = np.zeros((6, 8), np.float32)
RECORDS = np.zeros(8, [("a", "f2"), ("b", "f2"), ("c", "u1")])


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(BASE, id="whole"),
        pytest.param(BASE[2:, 3:], id="a view that starts later"),
        pytest.param(BASE.T, id="transposed"),
        pytest.param(BASE[:1, ::2], id="an extent of 1"),
        pytest.param(np.zeros(()), id="no dimensions"),
        pytest.param(np.zeros((0, 4)), id="empty"),
        *(pytest.param(np.zeros(4, char), id=str(np.dtype(char))) for char in "?bBhHiIlLqQefd"),
    ],
)
def test_attributes_and_capsule_give_the_same(array):
    address, layout = read_array(array)
    assert address == array.ctypes.data
    exported = read(array)
    if array.size:
        assert address == exported.address
    assert judge(Layout(*layout)) == judge(exported.layout)


def test_a_read_only_array_is_flagged():
    locked = np.zeros(4, np.uint8)
    locked.flags.writeable = False
    assert Layout(*read_array(locked)[1]).flags == 1


@pytest.mark.parametrize(
    ("array", "error"),
    [
        pytest.param(np.zeros(4, ">f4"), KeyError, id="other byte order"),
        pytest.param(np.zeros(4, "F"), KeyError, id="complex"),
        pytest.param(RECORDS, KeyError, id="records"),
        pytest.param(RECORDS["a"], ValueError, id="a field, 5 bytes apart"),
    ],
)
def test_what_no_map_can_describe_raises(array, error):
    with pytest.raises(error):
        read_array(array)
