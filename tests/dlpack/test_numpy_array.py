"""Reading an array by attributes has the same result as reading its capsule."""

import numpy as np
import pytest

from tma_dlpack.dlpack import check_layout, read
from tma_dlpack.dlpack.frameworks import read_numpy
from tma_dlpack.dlpack.producer import DIRECT, parse_capsule

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
    by_attributes = read_numpy(array)
    assert by_attributes == read(array)
    assert by_attributes.address == array.ctypes.data
    address, layout = parse_capsule(array.__dlpack__(), DIRECT)
    if array.size:
        assert address == by_attributes.address
    assert check_layout(layout) == check_layout(by_attributes.layout)


def test_a_read_only_array_is_flagged():
    locked = np.zeros(4, np.uint8)
    locked.flags.writeable = False
    assert read_numpy(locked).layout.flags == 1
    assert read_numpy(locked.copy()).layout.flags == 0


class Subclass(np.ndarray):
    """The elements of a subclass may have another meaning."""


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.zeros(4, ">f4"), id="other byte order"),
        pytest.param(np.zeros(4, "F"), id="complex"),
        pytest.param(RECORDS, id="records"),
        pytest.param(RECORDS["a"], id="a field, 5 bytes apart"),
        pytest.param(np.zeros(4).view(Subclass), id="a subclass"),
    ],
)
def test_other_arrays_are_left_to_their_capsules(array):
    assert read_numpy(array) is None
